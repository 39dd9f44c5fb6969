//! Walks the published unbalanced tree T3 on an engine and by plain recursion, checks its numbers, and says how busy the cores were.
//!
//! `cargo run --release -p shoal-core --example uts [ROUNDS]`

use std::{fs, process::ExitCode, sync::Arc, time::Instant};

use shoal_core::{Cost, Engine, Options};
use tree::{Shape, Tree};

mod tree;

/// What the threads of this process did between two readings, in seconds.
#[derive(Clone, Copy, Default)]
struct Used {
    /// On a core.
    running: f64,
    /// Ready to run, and somebody else had the core.
    queued: f64,
}

impl Used {
    fn now() -> Self {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
        threads
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
            .fold(Self::default(), |used, line| {
                let mut ns = line.split(' ').filter_map(|n| n.parse::<f64>().ok());
                Self {
                    running: used.running + ns.next().unwrap_or(0.0) / 1e9,
                    queued: used.queued + ns.next().unwrap_or(0.0) / 1e9,
                }
            })
    }
}

fn main() -> ExitCode {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(5);
    let engine = Engine::new(Options::default()).expect("threads");
    let workers = f64::from(engine.executor().workers());
    let cost = Arc::new(Cost::new());
    let mut best: Option<(f64, f64, f64)> = None;
    let (mut plain, mut ok) = (f64::INFINITY, true);
    for _ in 0..rounds {
        let start = Instant::now();
        ok &= Tree::T3.walk() == Tree::T3_SHAPE;
        plain = plain.min(start.elapsed().as_secs_f64());

        let (before, start) = (Used::now(), Instant::now());
        let (task, walk) = Tree::T3.spawn(&engine, Arc::clone(&cost)).expect("a set");
        // Not `task.wait`: this thread would help, and be one more than there are cores.
        task.set().wait_decided(None);
        let (wall, after) = (start.elapsed().as_secs_f64(), Used::now());
        let shape = walk.shape(&task);
        ok &= shape == Tree::T3_SHAPE;
        let busy = (after.running - before.running) / (wall * workers);
        let queued = (after.queued - before.queued) / (wall * workers);
        tell("engine", shape, wall);
        println!(
            "        busy {:.1}% of {workers} cores, {:.1}% somebody else had them",
            100.0 * busy,
            100.0 * queued
        );
        if best.is_none_or(|(least, ..)| wall < least) {
            best = Some((wall, busy, queued));
        }
    }
    tell("plain", Tree::T3_SHAPE, plain);
    if let Some((wall, busy, queued)) = best {
        println!(
            "best of {rounds}: {:.2} x the plain recursion on {workers} cores, busy {:.1}%, {:.1}% of what it could get",
            plain / wall,
            100.0 * busy,
            100.0 * busy / (1.0 - queued)
        );
    }
    if ok {
        ExitCode::SUCCESS
    } else {
        println!("these are not the published numbers: {:?}", Tree::T3_SHAPE);
        ExitCode::FAILURE
    }
}

fn tell(who: &str, shape: Shape, seconds: f64) {
    println!(
        "{who:>6}: {} nodes, depth {}, {} leaves; {seconds:.3} s, {:.2} million nodes/s",
        shape.nodes,
        shape.depth,
        shape.leaves,
        shape.nodes as f64 / seconds / 1e6
    );
}

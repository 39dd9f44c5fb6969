//! Ticks an instance of sets that do nothing, beside a plain loop and beside rayon, in one run: the budget of the native path.
//!
//! `cargo run --release -p shoal-core --example budget [ROUNDS]`

use std::{
    any::Any,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use rayon::prelude::*;
use shoal_core::{Body, Chunk, Clock, Cost, Decision, Engine, Options, Outcome, Spec, Waiting};

type Function = extern "C" fn(u32);

/// A compiled body that the compiler cannot look into.
#[inline(never)]
extern "C" fn nothing(index: u32) {
    black_box(index);
}

#[derive(Clone, Copy)]
struct Call(Function);

impl Body for Call {
    fn run(&self, chunk: &mut Chunk<'_>) {
        let f = self.0;
        chunk.each_native(|index| {
            f(index);
            Outcome::Completed
        });
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The best of several, in ticks an instance.
struct Best(f64);

impl Best {
    fn of(&mut self, clock: &Clock, count: u32, f: impl FnOnce()) {
        let start = clock.ticks();
        f();
        let each = (clock.ticks() - start) as f64 / f64::from(count);
        self.0 = self.0.min(each);
    }
}

fn main() {
    let rounds: u32 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(40);
    let engine = Engine::new(Options::default()).expect("threads");
    let clock = engine.executor().clock().clone();
    let f: Function = black_box(nothing);
    let cost = Arc::new(Cost::new());
    println!(
        "{:>10} {:>7} {:>7} {:>6} {:>7} {:>10}   ticks an instance, best of many",
        "instances", "loop", "life", "ratio", "spawn", "par_iter"
    );
    for count in [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
        let [mut plain, mut life, mut spawn, mut rayon] = [const { Best(f64::INFINITY) }; 4];
        let rounds = rounds * (10_000_000 / count).clamp(1, 200);
        for _ in 0..rounds {
            plain.of(&clock, count, || (0..count).for_each(|index| f(index)));
            life.of(&clock, count, || {
                let spec = Spec::of(u64::from(count));
                let task = engine
                    .create(spec, Arc::clone(&cost), Call(f))
                    .expect("a set");
                let decision = task.wait_as(Waiting {
                    alone_first: true,
                    ..Waiting::default()
                });
                assert_eq!(decision, Some(Decision::Fired));
            });
            rayon.of(&clock, count, || {
                // The same bookkeeping: a state for each, and a gate that is told.
                let states: Box<[AtomicU8]> = (0..count).map(|_| AtomicU8::new(0)).collect();
                let left = AtomicU64::new(u64::from(count));
                (0..count).into_par_iter().for_each(|index| {
                    f(index);
                    states[index as usize].store(1, Ordering::Relaxed);
                    left.fetch_sub(1, Ordering::AcqRel);
                });
                assert_eq!(left.into_inner(), 0);
            });
        }
        // Apart from the others, so that the workers are still awake from the set before.
        for _ in 0..rounds {
            let mut task = None;
            spawn.of(&clock, count, || {
                let spec = Spec::of(u64::from(count));
                task = engine.spawn_known(spec, Arc::clone(&cost), Call(f)).ok();
            });
            task.expect("a set").wait(None);
        }
        println!(
            "{count:>10} {:>7.2} {:>7.2} {:>6.2} {:>7.3} {:>10.2}",
            plain.0,
            life.0,
            life.0 / plain.0,
            spawn.0,
            rayon.0
        );
    }
}

//! The whole life of COUNT instances that do nothing, in chunks of CHUNK, run by the calling thread: what `benches/instructions.py` counts instructions of.
//!
//! `cargo run --release -p shoal-core --example life -- COUNT [CHUNK]`

use std::{any::Any, hint::black_box, process::ExitCode, sync::Arc};

use shoal_core::{Body, Chunk, Cost, Decision, Engine, Options, Outcome, Spec, Waiting};

/// A compiled body that the compiler cannot look into.
#[inline(never)]
extern "C" fn nothing(index: u32) {
    black_box(index);
}

struct Nothing;

impl Body for Nothing {
    fn run(&self, chunk: &mut Chunk<'_>) {
        let f: extern "C" fn(u32) = black_box(nothing);
        chunk.each_native(|index| {
            f(index);
            Outcome::Completed
        });
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|n| n.parse::<u32>().ok());
    let Some(Some(count)) = arguments.next() else {
        eprintln!("usage: life COUNT [CHUNK]");
        return ExitCode::FAILURE;
    };
    let chunk = arguments.next().flatten();
    let engine = Engine::new(Options {
        workers: Some(1),
        ..Options::default()
    })
    .expect("a thread");
    let cost = Arc::new(Cost::new());
    // A first set, so that the body's cost is known and chunks have the size they keep.
    for count in [10_000, count] {
        let spec = Spec {
            chunk,
            ..Spec::of(u64::from(count))
        };
        let task = engine
            .create(spec, Arc::clone(&cost), Nothing)
            .expect("a set");
        let decision = task.wait_as(Waiting {
            alone_first: true,
            ..Waiting::default()
        });
        assert_eq!(decision, Some(Decision::Fired));
        assert_eq!(task.set().counts().completed, count);
    }
    ExitCode::SUCCESS
}

//! The whole life of sets that do nothing, beside a plain loop and beside rayon doing the same bookkeeping: `cargo bench -p shoal-core --bench life`.

use std::{
    any::Any,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rayon::prelude::*;
use shoal_core::{Body, Chunk, Cost, Engine, Options, Outcome, Spec, Waiting};

/// Above this, a job for each instance takes too long to be measured often.
const MOST_JOBS: u32 = 100_000;

/// A compiled body that the compiler cannot look into.
#[inline(never)]
extern "C" fn nothing(index: u32) {
    black_box(index);
}

struct Call(extern "C" fn(u32));

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

/// What rayon is not given for nothing: a state for each instance, and a gate that each of them tells.
struct Books {
    states: Box<[AtomicU8]>,
    left: AtomicU64,
}

impl Books {
    fn new(count: u32) -> Self {
        Self {
            states: (0..count).map(|_| AtomicU8::new(0)).collect(),
            left: AtomicU64::new(u64::from(count)),
        }
    }

    fn completed(&self, index: u32) {
        self.states[index as usize].store(1, Ordering::Release);
        self.left.fetch_sub(1, Ordering::AcqRel);
    }
}

fn life(criterion: &mut Criterion) {
    let engine = Engine::new(Options::default()).expect("threads");
    let cost = Arc::new(Cost::new());
    let f: extern "C" fn(u32) = black_box(nothing);
    for count in [100, 1_000, 100_000, 1_000_000] {
        let mut group = criterion.benchmark_group("life");
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function(BenchmarkId::new("plain loop", count), |bencher| {
            bencher.iter(|| (0..count).for_each(|index| f(index)));
        });
        group.bench_function(BenchmarkId::new("shoal", count), |bencher| {
            bencher.iter(|| {
                let spec = Spec::of(u64::from(count));
                let task = engine
                    .create(spec, Arc::clone(&cost), Call(f))
                    .expect("a set");
                task.wait_as(Waiting {
                    alone_first: true,
                    ..Waiting::default()
                })
            });
        });
        group.bench_function(BenchmarkId::new("rayon par_iter", count), |bencher| {
            bencher.iter(|| {
                let books = Books::new(count);
                (0..count).into_par_iter().for_each(|index| {
                    f(index);
                    books.completed(index);
                });
                books.left.into_inner()
            });
        });
        if count <= MOST_JOBS {
            group.bench_function(BenchmarkId::new("rayon scope.spawn", count), |bencher| {
                bencher.iter(|| {
                    let books = Books::new(count);
                    rayon::scope(|scope| {
                        for index in 0..count {
                            let books = &books;
                            scope.spawn(move |_| {
                                f(index);
                                books.completed(index);
                            });
                        }
                    });
                    books.left.into_inner()
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, life);
criterion_main!(benches);

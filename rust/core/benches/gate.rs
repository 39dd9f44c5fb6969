//! What it costs to tell a gate, alone and when every core does nothing else: `cargo bench -p shoal-core --bench gate`.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shoal_core::{Calls, Engine, Gate, Options};

/// So long that each thread meets the others.
const ARRIVALS: u64 = 100_000;

/// The time from when all threads are there until each has arrived so often.
fn contended(gate: &Gate, threads: usize) -> Duration {
    let start = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let arriving: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    (0..ARRIVALS).filter(|_| gate.arrive(1)).count()
                })
            })
            .collect();
        start.wait();
        let since = Instant::now();
        let opened: usize = arriving
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum();
        let took = since.elapsed();
        assert_eq!(opened, 1, "exactly one opens it");
        took
    })
}

fn arrive(criterion: &mut Criterion) {
    let engine = Engine::new(Options::default()).expect("threads");
    let calls: Arc<dyn Calls> = Arc::clone(engine.executor()) as _;
    let cores = engine.executor().workers() as usize;
    let mut group = criterion.benchmark_group("gate");
    for threads in [1, cores, 4 * cores] {
        let arrivals = ARRIVALS * threads as u64;
        group.throughput(Throughput::Elements(arrivals));
        group.bench_function(BenchmarkId::new("arrive", threads), |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        let gate = Gate::new(arrivals, Arc::clone(&calls)).expect("a gate");
                        contended(&gate, threads)
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, arrive);
criterion_main!(benches);

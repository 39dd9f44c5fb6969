//! For `shoal bench` and the tests: the counter, what others take for the same in Rust, and a kernel that panics.

use std::{
    hint::black_box,
    sync::{
        LazyLock,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use pyo3::{exceptions::PyValueError, prelude::*};
use rayon::prelude::*;
use shoal_core::Clock;

use crate::kernel::Kernel;

/// The engine's counter, now.
#[pyfunction]
pub(crate) fn _ticks() -> u64 {
    Clock::default().ticks()
}

/// A kernel that panics at odd indices.
#[pyfunction]
pub(crate) fn _panic_kernel() -> Kernel {
    Kernel::panicking()
}

extern "C" fn nothing(_index: u64) -> i32 {
    0
}

/// The same work by a peer: an empty function called through a pointer, a state stored for each call, and, but for the plain loop, a gate
/// told. The ticks of the best run.
#[pyfunction]
pub(crate) fn _bench(py: Python<'_>, peer: &str, count: u32, repeats: u32) -> PyResult<u64> {
    let run: fn(u32) = match peer {
        "loop" => plain_loop,
        "par_iter" => par_iter,
        "rayon_spawn" => rayon_spawn,
        _ => return Err(PyValueError::new_err(format!("there is no peer {peer:?}"))),
    };
    py.detach(|| {
        let clock = Clock::default();
        LazyLock::force(&POOL);
        Ok((0..repeats.max(1))
            .map(|_| {
                let start = clock.ticks();
                run(count);
                clock.ticks() - start
            })
            .min()
            .unwrap_or(0))
    })
}

static POOL: LazyLock<rayon::ThreadPool> = LazyLock::new(|| {
    rayon::ThreadPoolBuilder::new()
        .thread_name(|k| format!("shoal-bench-{k}"))
        .build()
        .expect("the system gives threads")
});

fn plain_loop(count: u32) {
    let call: extern "C" fn(u64) -> i32 = black_box(nothing);
    for index in 0..u64::from(count) {
        black_box(call(index));
    }
}

fn states(count: u32) -> Box<[AtomicU8]> {
    bytemuck::zeroed_slice_box(count as usize)
}

fn par_iter(count: u32) {
    let call: extern "C" fn(u64) -> i32 = black_box(nothing);
    let (states, gate) = (states(count), AtomicU64::new(0));
    POOL.install(|| {
        states
            .par_iter()
            .enumerate()
            .fold(
                || 0,
                |completed, (index, state)| {
                    let code = call(index as u64);
                    state.store(2 + code as u8, Ordering::Relaxed);
                    completed + 1
                },
            )
            .for_each(|completed: u64| {
                gate.fetch_add(completed, Ordering::AcqRel);
            });
    });
    assert_eq!(gate.load(Ordering::Acquire), u64::from(count));
}

fn rayon_spawn(count: u32) {
    let call: extern "C" fn(u64) -> i32 = black_box(nothing);
    let (states, gate) = (states(count), AtomicU64::new(0));
    POOL.scope(|scope| {
        for (index, state) in states.iter().enumerate() {
            let gate = &gate;
            scope.spawn(move |_| {
                let code = call(index as u64);
                state.store(2 + code as u8, Ordering::Relaxed);
                gate.fetch_add(1, Ordering::AcqRel);
            });
        }
    });
    assert_eq!(gate.load(Ordering::Acquire), u64::from(count));
}

//! The one switch between the real primitives, loom's and shuttle's. Nothing else in the crate names `std::sync::atomic`.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

/// Locks, also after another holder panicked: what these locks guard is whole at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

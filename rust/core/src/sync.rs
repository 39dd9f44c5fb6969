//! The one switch between the real primitives, loom's and shuttle's. What is part of the protocol takes its words from here;
//! estimates and statistics, which nothing is decided by, use the standard ones.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    thread_local,
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    thread_local,
};

#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    thread_local,
};

/// Locks, also after another holder panicked: what these locks guard is whole at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// As [`lock`], for a lock that is held for less than a sleep and a waking cost: looks again for a few microseconds first.
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(not(any(loom, shuttle)))]
    {
        let backoff = crossbeam_utils::Backoff::new();
        while !backoff.is_completed() {
            if let Ok(guard) = mutex.try_lock() {
                return guard;
            }
            backoff.snooze();
        }
    }
    lock(mutex)
}

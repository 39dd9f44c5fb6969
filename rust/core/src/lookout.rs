//! Watches over threads that run a set alone: if one body waits for another, somebody else has to come.
//!
//! The thread looks every few milliseconds while there is something to look at, and parks when there was nothing for a while. So a caller
//! that runs many small sets wakes nobody, and none of them can hang.

use std::{
    sync::{Arc, Condvar, Mutex, Weak},
    thread,
    time::Duration,
};

use crate::executor::{Executor, Task, caught};

/// How often it looks. A caller is left alone for one to two of these.
pub(crate) const PERIOD: Duration = Duration::from_millis(5);
/// Looks at nothing before it parks.
const PATIENCE: u32 = 200;

#[derive(Default)]
pub(crate) struct Lookout {
    watch: Mutex<Watch>,
    bell: Condvar,
}

#[derive(Default)]
struct Watch {
    alone: Vec<Alone>,
    is_started: bool,
    is_ticking: bool,
    is_closed: bool,
}

struct Alone {
    task: Arc<Task>,
    was_seen: bool,
}

/// A caller that is watched over until this goes.
pub(crate) struct Watched<'a> {
    lookout: &'a Lookout,
    task: &'a Arc<Task>,
}

impl Lookout {
    /// Watches over the calling thread, which runs the task alone. Nothing: there is no thread to watch.
    pub(crate) fn over<'a>(
        self: &'a Arc<Self>,
        executor: &Weak<Executor>,
        task: &'a Arc<Task>,
    ) -> Option<Watched<'a>> {
        let mut watch = self.lock();
        if watch.is_closed {
            return None;
        }
        if !watch.is_ticking {
            if !watch.is_started {
                let (lookout, executor) = (Arc::clone(self), Weak::clone(executor));
                thread::Builder::new()
                    .name("shoal-lookout".into())
                    .spawn(move || lookout.look(&executor))
                    .ok()?;
                watch.is_started = true;
            }
            watch.is_ticking = true;
            self.bell.notify_all();
        }
        watch.alone.push(Alone {
            task: Arc::clone(task),
            was_seen: false,
        });
        Some(Watched {
            lookout: self,
            task,
        })
    }

    /// The thread goes.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.bell.notify_all();
    }

    fn look(&self, executor: &Weak<Executor>) {
        let mut watch = self.lock();
        let mut idle = 0;
        while !watch.is_closed {
            if idle >= PATIENCE {
                watch.is_ticking = false;
            }
            watch = if watch.is_ticking {
                self.bell
                    .wait_timeout(watch, PERIOD)
                    .map_or_else(|error| error.into_inner().0, |(watch, _)| watch)
            } else {
                idle = 0;
                self.bell
                    .wait(watch)
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
            };
            idle = if watch.alone.is_empty() { idle + 1 } else { 0 };
            let overdue: Vec<_> = watch
                .alone
                .iter_mut()
                .filter_map(|alone| {
                    std::mem::replace(&mut alone.was_seen, true).then(|| Arc::clone(&alone.task))
                })
                .collect();
            if !overdue.is_empty() {
                drop(watch);
                let Some(executor) = executor.upgrade() else {
                    return;
                };
                // The last owner of a body that panics when it goes must not take this thread with it.
                drop(caught(|| {
                    overdue.iter().for_each(|task| executor.submit(task));
                    drop((overdue, executor));
                }));
                watch = self.lock();
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Watch> {
        self.watch
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut watch = self.lookout.lock();
        let mine = watch
            .alone
            .iter()
            .position(|alone| Arc::ptr_eq(&alone.task, self.task));
        let gone = mine.map(|mine| watch.alone.swap_remove(mine));
        drop(watch);
        drop(gone);
    }
}

//! Who runs the chunks: a named, sized rayon pool of the engine's own, a queue of tickets in front of it, and the threads that wait and help.
//!
//! A ticket says "look at this set". A worker loop pops tickets until there are none, lingers, and leaves; it is a short-lived job of the
//! pool, so that rayon's own sleeping and waking is all there is.

use std::{
    cell::Cell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;

use crate::{
    Result,
    chunk::{self, Body, Chunk, Claim, Running},
    clock::Clock,
    cost::{Cost, Pace},
    engine::generation,
    event::{Event, Ring},
    gate::Calls,
    lookout::{self, Lookout, Watched},
    scope::Case,
    set::{Set, Settlement, Sink},
    state::{Decision, InstanceState},
    sync::{AtomicU32, AtomicU64, Condvar, Mutex, Ordering, lock, thread_local},
    ticks::Ticks,
    verdict::Callback,
};

/// `active`: somebody waits for the last worker loop to leave.
const CLOSING: u32 = 1 << 31;
/// Threads that may help at once and be seen doing it.
const HELPERS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };
/// Records the ring holds.
const EVENTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 1 << 14 };

/// Pauses of the processor between two looks of an idle worker at the queue.
const LOOKS_AWAY: u32 = 8;

/// What a caller does alone before it wakes anybody.
const ALONE: Duration = Duration::from_micros(20);

thread_local! {
    /// The executor whose worker loop this thread is in.
    #[expect(clippy::missing_const_for_thread_local, reason = "the model checkers' macro takes no const")]
    static WORKS_FOR: Cell<usize> = Cell::new(0);
}

/// A set with its body: what a claim keeps alive.
pub struct Task<B: ?Sized = dyn Body> {
    pub(crate) set: Arc<Set>,
    pub(crate) cost: Arc<Cost>,
    pub(crate) case: OnceLock<Arc<Case>>,
    pub(crate) body: B,
}

enum Ticket {
    Drive(Arc<Task>),
    Call(Callback),
}

impl<B: ?Sized> Drop for Task<B> {
    /// Nobody is left who could add to an open set, or seal it, or run what nobody has claimed.
    fn drop(&mut self) {
        if self.set.executor().generation != generation() {
            return;
        }
        self.set.seal();
        if self.set.unclaimed() > 0 {
            self.set.cancel_soon();
        }
    }
}

/// Runs tasks.
// Aligned, so that the counts of its owners, which every new set touches, are not on a line that the workers read.
#[repr(align(128))]
pub struct Executor {
    me: Weak<Executor>,
    workers: u32,
    clock: Clock,
    stopwatch: Clock,
    pace: Pace,
    ticks: Ticks,
    events: Ring,
    sink: Option<Box<dyn Sink>>,
    slots: Box<[Slot]>,
    queue: SegQueue<Ticket>,
    /// Worker loops that have entered, at most `workers`; and `CLOSING`.
    active: CachePadded<AtomicU32>,
    left: (Mutex<()>, Condvar),
    pool: pool::Pool,
    lookout: Arc<Lookout>,
    generation: u64,
}

impl Executor {
    /// # Errors
    /// [`crate::Error::Threads`] where the system gives no threads.
    pub(crate) fn new(
        workers: u32,
        name: &str,
        clock: Clock,
        sink: Option<Box<dyn Sink>>,
    ) -> Result<Arc<Self>> {
        let pool = pool::Pool::new(workers, name)?;
        // Chunks are cut by real time, whatever clock the engine shows; under a model checker that would make runs differ.
        let stopwatch = if cfg!(any(loom, shuttle)) {
            Clock::manual().0
        } else {
            Clock::default()
        };
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            workers,
            pace: Pace::new(&stopwatch),
            clock,
            stopwatch,
            ticks: Ticks::new(),
            events: Ring::new(EVENTS),
            sink,
            slots: (0..workers as usize + HELPERS)
                .map(|k| Slot::new(k, workers))
                .collect(),
            queue: SegQueue::new(),
            active: CachePadded::new(AtomicU32::new(0)),
            left: (Mutex::new(()), Condvar::new()),
            pool,
            lookout: Arc::default(),
            generation: generation(),
        }))
    }

    /// How many threads it has.
    #[must_use]
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// The engine's time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The tick histograms.
    #[must_use]
    pub fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// The newest records.
    #[must_use]
    pub fn events(&self) -> &Ring {
        &self.events
    }

    pub(crate) fn stopwatch(&self) -> &Clock {
        &self.stopwatch
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    pub(crate) fn sink(&self) -> Option<&dyn Sink> {
        self.sink.as_deref()
    }

    pub(crate) fn record(&self, event: Event) {
        // The ring has a model of its own; in everybody else's it would only multiply the interleavings.
        if cfg!(not(any(loom, shuttle))) {
            self.events.push(event);
        }
    }

    /// Whether somebody runs this instance now.
    pub(crate) fn is_at(&self, set: u64, index: u32) -> bool {
        self.slots.iter().any(|slot| slot.is_at(set, index))
    }

    /// Has somebody look at the task, unless as many as there are workers do already.
    pub(crate) fn submit(&self, task: &Arc<Task>) {
        if raise(&task.set.tickets, self.workers) {
            self.push(Ticket::Drive(Arc::clone(task)));
        }
    }

    fn push(&self, ticket: Ticket) {
        self.queue.push(ticket);
        // After the push: a loop that leaves meanwhile either is counted here, or looks at the queue after it left.
        if raise(&self.active, self.workers) {
            self.start();
        }
    }

    /// One more worker loop, counted already.
    fn start(&self) {
        if let Some(me) = self.me.upgrade() {
            pool::start(me);
        }
    }

    /// Whether the calling thread is in the middle of something of this executor's: a body, or what a worker calls.
    #[must_use]
    pub fn is_here(&self) -> bool {
        WORKS_FOR.with(|whom| whom.get() == self.id()) || chunk::is_inside_of(self)
    }

    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// A worker loop.
    fn work(&self) {
        let before = WORKS_FOR.with(|whom| whom.replace(self.id()));
        self.work_off();
        WORKS_FOR.with(|whom| whom.set(before));
    }

    fn work_off(&self) {
        loop {
            {
                let slot = self.take_slot(0);
                while let Some(ticket) = self.next() {
                    // Bodies are caught one by one. What is caught here came from around them, a body's own end for instance: it must not end the worker.
                    drop(caught(|| match ticket {
                        Ticket::Drive(task) => self.drive(&task, slot.as_deref()),
                        Ticket::Call(f) => f(),
                    }));
                }
            }
            let before = self.active.fetch_sub(1, Ordering::AcqRel);
            if before & CLOSING != 0 {
                drop(lock(&self.left.0));
                self.left.1.notify_all();
            }
            if self.queue.is_empty() || !raise(&self.active, self.workers) {
                return;
            }
        }
    }

    /// The next ticket. A worker that finds none looks around a little: waking a parked thread costs its caller more.
    fn next(&self) -> Option<Ticket> {
        if let Some(ticket) = self.queue.pop() {
            return Some(ticket);
        }
        if cfg!(any(loom, shuttle)) {
            return None;
        }
        let until = self.stopwatch.ticks() + self.pace.linger;
        while self.stopwatch.ticks() < until {
            if let Some(ticket) = self.queue.pop() {
                return Some(ticket);
            }
            // Not at every chance: who pushes needs the queue's words for itself.
            (0..LOOKS_AWAY).for_each(|_| std::hint::spin_loop());
        }
        None
    }

    /// Waits awake for what is about to be true: for less than a sleep and a waking cost, those who wake included.
    fn look_around(&self, done: impl Fn() -> bool) {
        if cfg!(any(loom, shuttle)) {
            return;
        }
        let until = self.stopwatch.ticks() + self.pace.linger;
        while !done() && self.stopwatch.ticks() < until {
            (0..LOOKS_AWAY).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Runs chunks of a task, for whose ticket the caller answers.
    fn drive(&self, task: &Arc<Task>, slot: Option<&Slot>) {
        let set = &task.set;
        let until = self.stopwatch.ticks() + self.pace.slice;
        let mut ticket = Some(Held(set));
        loop {
            // A set that others have finished needs nobody to attend to it.
            if set.unclaimed() > 0 {
                let was_run = self.attend(task, || {
                    let claim = Claim::enter(task, slot);
                    let mut company = Some(None);
                    while ticket.is_some() && self.run_chunk(&claim, slot, &mut company) {
                        if self.stopwatch.ticks() > until && !self.queue.is_empty() {
                            // Others wait: to the end of the queue, ticket in hand.
                            ticket.take().into_iter().for_each(std::mem::forget);
                            self.queue.push(Ticket::Drive(Arc::clone(task)));
                        }
                    }
                });
                if ticket.is_none() || !was_run {
                    return;
                }
            }
            set.ask_for_more();
            // After leaving, look again: an adder either sees the ticket gone, or is seen here.
            drop(ticket.take());
            if set.unclaimed() == 0 || !raise(&set.tickets, self.workers) {
                return;
            }
            ticket = Some(Held(set));
        }
    }

    /// Has the body attend to `drive`. False: there is nothing to run it with any more.
    fn attend(&self, task: &Arc<Task>, mut drive: impl FnMut()) -> bool {
        let mut was_run = false;
        let attended = caught(|| {
            task.body.attend(&mut || {
                was_run = true;
                drive();
            });
        });
        match attended {
            Ok(()) => was_run,
            Err(message) => {
                self.fail_chunk(task, &message);
                true
            }
        }
    }

    /// What should have attended to the bodies panicked: the next of them fail for it, so that the set comes to an end.
    fn fail_chunk(&self, task: &Arc<Task>, message: &str) {
        if let Some(range) = task.set.claim(1) {
            self.tell_panic(task, range.clone(), message);
            task.set.settle(Settlement {
                start: range.start,
                stop: range.end,
                state: InstanceState::Failed,
                except: Vec::new(),
                took: 0,
                worker: Event::NO_WORKER,
            });
        }
    }

    /// First the body's record of a panic, then the gate: who sees an instance failed can ask why.
    fn tell_panic(&self, task: &Arc<Task>, range: Range<u32>, message: &str) {
        let _ = caught(|| range.for_each(|index| task.body.panicked(index, message)));
    }

    /// Claims a chunk and runs it. False: there was nothing to claim. `company`: others are to share the task, or watch over who runs it; nothing
    /// for a caller that is alone.
    fn run_chunk<'a>(
        &'a self,
        claim: &'a Running,
        slot: Option<&Slot>,
        company: &mut Option<Option<Watched<'a>>>,
    ) -> bool {
        let task = claim.task();
        let set = &task.set;
        let left = set.unclaimed();
        if left == 0 {
            return false;
        }
        let want = set
            .chunk
            .unwrap_or_else(|| {
                let threads = company.as_ref().map_or(1, |_| self.workers + 1);
                task.cost.chunk(left, threads, &self.pace)
            })
            .min(set.chunk_bound(self.workers));
        let Some(range) = set.claim(want.max(1)) else {
            return false;
        };
        if let Some(watch) = company {
            self.share(task, watch);
        }
        if set.begin_chunk() {
            let mut chunk = Chunk::new(claim, slot, range);
            while !chunk.is_over() {
                let before = chunk.left().start;
                match caught(|| task.body.run(&mut chunk)) {
                    Ok(()) if chunk.left().start == before && !chunk.is_over() => {
                        chunk.fail_rest();
                    }
                    Ok(()) => {}
                    Err(message) => {
                        self.tell_panic(task, chunk.panicking(), &message);
                        chunk.panicked();
                    }
                }
            }
            chunk.finish();
        } else {
            set.settle(Settlement {
                start: range.start,
                stop: range.end,
                state: InstanceState::Cancelled,
                except: Vec::new(),
                took: 0,
                worker: Event::NO_WORKER,
            });
        }
        set.end_chunk();
        true
    }

    /// Has one more look at a task that will keep more than this thread busy; that one asks for the next. Bodies that should not may still
    /// wait for each other: then somebody comes later.
    fn share<'a>(&'a self, task: &'a Arc<Task>, watch: &mut Option<Watched<'a>>) {
        let left = task.set.unclaimed();
        if left == 0 || task.set.tickets.load(Ordering::Relaxed) >= self.workers {
            return;
        }
        if !task.cost.is_done_soon(left, &self.pace) {
            self.submit(task);
        } else if watch.is_none() {
            *watch = self.watch_over(task);
        }
    }

    /// The calling thread runs chunks of `task`, and of nothing else, until `done`, or `until`, or there is nothing to claim.
    /// With `only_short` it runs only bodies known to be below a millisecond.
    fn help(
        &self,
        task: &Arc<Task>,
        until: Option<u64>,
        only_short: bool,
        share: bool,
        done: impl Fn() -> bool,
    ) {
        if !self.may_help(task, only_short) {
            return;
        }
        if task.set.unclaimed() == 0 {
            return task.set.ask_for_more();
        }
        let slot = self.take_slot(self.workers as usize);
        self.attend(task, || {
            let claim = Claim::enter(task, slot.as_deref());
            let mut company = share.then_some(None);
            while !done()
                && self.may_help(task, only_short)
                && self.run_chunk(&claim, slot.as_deref(), &mut company)
                && until.is_none_or(|until| self.stopwatch.ticks() < until)
            {}
        });
        if task.set.unclaimed() == 0 {
            task.set.ask_for_more();
        }
    }

    /// Has somebody look after a thread that runs a task alone, if its bodies may wait for each other.
    fn watch_over<'a>(&'a self, task: &'a Arc<Task>) -> Option<Watched<'a>> {
        (task.body.may_wait() && cfg!(not(any(loom, shuttle))))
            .then(|| self.lookout.over(&self.me, task))
            .flatten()
    }

    fn may_help(&self, task: &Arc<Task>, only_short: bool) -> bool {
        !only_short || task.cost.is_short(&self.pace)
    }

    fn take_slot(&self, from: usize) -> Option<Seat<'_>> {
        self.slots[from..].iter().find(|slot| slot.take()).map(Seat)
    }

    /// Waits until no worker loop is left and no ticket, then lets the threads go; false if that took too long, then they are left alone.
    pub(crate) fn close(&self, deadline: Option<Instant>) -> bool {
        self.active.fetch_or(CLOSING, Ordering::AcqRel);
        let mut guard = lock(&self.left.0);
        while self.active.load(Ordering::Acquire) & !CLOSING != 0 || !self.queue.is_empty() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            guard = pool::sleep(&self.left.1, guard, left.unwrap_or(Duration::MAX));
        }
        drop(guard);
        self.lookout.close();
        self.pool.close();
        true
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if self.generation == generation() {
            self.lookout.close();
        } else {
            // In a child process after a fork: the threads do not exist there, and one of them may have held a lock.
            self.pool.forget();
        }
    }
}

impl Calls for Executor {
    fn call(&self, f: Callback) {
        if cfg!(loom) {
            f();
        } else {
            self.push(Ticket::Call(f));
        }
    }
}

/// A ticket of a set, given up when this goes.
struct Held<'a>(&'a Set);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.tickets.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts one more, up to `bound`. A read-modify-write also when it is full: the pairing with the one who leaves needs it.
fn raise(counter: &AtomicU32, bound: u32) -> bool {
    let mut now = counter.load(Ordering::Relaxed);
    loop {
        let is_full = now & !CLOSING >= bound;
        let next = if is_full { now } else { now + 1 };
        match counter.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return !is_full,
            Err(seen) => now = seen,
        }
    }
}

/// What `f` answers, or what it said when it panicked.
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> std::result::Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "panicked with something that is no text".to_owned());
        // Left where it is: it could panic again when it goes.
        std::mem::forget(panic);
        message
    })
}

/// The time when so much has passed; nothing where no clock goes that far.
pub(crate) fn after(time: Duration) -> Option<Instant> {
    Instant::now().checked_add(time)
}

/// How a thread waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    /// Not longer than this.
    pub timeout: Option<Duration>,
    /// Help only with bodies known to take below a millisecond: the thread has to listen to something else.
    pub only_short: bool,
    /// Help without waking anybody at first: the task was not submitted yet.
    pub alone_first: bool,
}

impl<B: Body + ?Sized> Task<B> {
    /// The set.
    #[must_use]
    pub fn set(&self) -> &Arc<Set> {
        &self.set
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &B {
        &self.body
    }

    /// What is known of its cost.
    #[must_use]
    pub fn cost(&self) -> &Arc<Cost> {
        &self.cost
    }
}

impl Task {
    /// Its owner; where it was made without one, an anonymous case of its own.
    #[must_use]
    pub fn case(self: &Arc<Self>) -> &Arc<Case> {
        self.case.get_or_init(|| {
            // Nobody adds meanwhile: what exists before is counted here, what comes after is counted by who adds it.
            let _adding = lock(&self.set.adding);
            let case = Arc::new(Case::of(self, self.set.limits()));
            let _ = self.set.case.set(Arc::downgrade(&case));
            case
        })
    }

    /// The calling thread runs what it can claim of it, for so long.
    pub fn help(self: &Arc<Self>, most: Duration, only_short: bool) {
        let executor = self.set.executor();
        let watch = executor.stopwatch();
        let until = watch.ticks().saturating_add(watch.ticks_in(most));
        executor.help(self, Some(until), only_short, true, || false);
    }

    /// Whether a thread that has to listen to something else may run it.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.cost.is_short(self.set.executor().pace())
    }

    /// Waits for the gate's decision, and helps meanwhile. `None`: not within the timeout.
    pub fn wait(self: &Arc<Self>, timeout: Option<Duration>) -> Option<Decision> {
        self.wait_as(Waiting {
            timeout,
            only_short: timeout.is_some(),
            alone_first: false,
        })
    }

    /// As [`Task::wait`], in a way of the caller's choice.
    pub fn wait_as(self: &Arc<Self>, waiting: Waiting) -> Option<Decision> {
        let set = &self.set;
        self.help_until(
            waiting,
            || set.decision().is_some(),
            |deadline| set.wait_decided(deadline),
        )
    }

    /// Waits until none is pending or running, and helps meanwhile. False: not within the timeout.
    pub fn drain(self: &Arc<Self>, timeout: Option<Duration>) -> bool {
        self.drain_as(Waiting {
            timeout,
            only_short: timeout.is_some(),
            alone_first: false,
        })
    }

    /// As [`Task::drain`], in a way of the caller's choice.
    pub fn drain_as(self: &Arc<Self>, waiting: Waiting) -> bool {
        let set = &self.set;
        self.help_until(
            waiting,
            || set.is_drained(),
            |deadline| set.wait_drained(deadline).then_some(()),
        )
        .is_some()
    }

    /// Runs a task that nobody else was told of, for a while.
    fn help_alone(self: &Arc<Self>, only_short: bool, done: impl Fn() -> bool) {
        let executor = self.set.executor();
        let watched = executor.watch_over(self);
        if self.body.may_wait() && watched.is_none() {
            return;
        }
        let alone = match &watched {
            Some(_) if self.body.is_serial() && self.cost.is_tiny(&executor.pace) => {
                lookout::PERIOD
            }
            _ => ALONE,
        };
        let watch = executor.stopwatch();
        let until = watch.ticks() + watch.ticks_in(alone);
        executor.help(self, Some(until), only_short, false, done);
    }

    fn help_until<R>(
        self: &Arc<Self>,
        waiting: Waiting,
        done: impl Fn() -> bool,
        block: impl FnOnce(Option<Instant>) -> Option<R>,
    ) -> Option<R> {
        let executor = self.set.executor();
        let deadline = waiting.timeout.and_then(after);
        if !done() {
            chunk::let_go();
            let watch = executor.stopwatch();
            if waiting.alone_first {
                // What is known to last longer than waking somebody is shared from the start.
                let is_long = !self.body.may_wait()
                    && self.cost.is_long(self.set.unclaimed(), &executor.pace);
                if !is_long {
                    self.help_alone(waiting.only_short, &done);
                }
                let left = self.set.unclaimed();
                if left > 0
                    && (self.body.may_wait() || !self.cost.is_done_soon(left, &executor.pace))
                {
                    executor.submit(self);
                }
            }
            let until = waiting
                .timeout
                .map(|timeout| watch.ticks().saturating_add(watch.ticks_in(timeout)));
            executor.help(self, until, waiting.only_short, true, &done);
            // What this thread does not run itself, others must know of: before it sleeps, and also when it has what it waited for.
            if self.set.unclaimed() > 0 {
                executor.submit(self);
            } else if self.cost.is_short(&executor.pace) && !self.body.is_serial() {
                executor.look_around(&done);
            }
        }
        block(deadline)
    }

    /// More instances for an open set; `place` puts their items where the body will look, from the index it is given.
    ///
    /// # Errors
    /// [`crate::Error::Sealed`] after the seal, [`crate::Error::Limit`] past a limit; then nothing was created.
    pub fn add(
        self: &Arc<Self>,
        count: u64,
        place: impl FnOnce(u32),
    ) -> Result<std::ops::Range<u32>> {
        let range = self.set.add(count, place)?;
        self.set.executor().submit(self);
        Ok(range)
    }
}

/// Where a thread is, for those who ask what runs.
pub(crate) struct Slot {
    worker: u32,
    /// 0 is free, 1 is taken and idle, else the set's id + 2.
    set: AtomicU64,
    index: AtomicU32,
}

impl Slot {
    fn new(k: usize, workers: u32) -> Self {
        Self {
            worker: u32::try_from(k)
                .ok()
                .filter(|&k| k < workers)
                .unwrap_or(Event::NO_WORKER),
            set: AtomicU64::new(0),
            index: AtomicU32::new(0),
        }
    }

    pub(crate) fn worker(&self) -> u32 {
        self.worker
    }

    fn take(&self) -> bool {
        self.set.load(Ordering::Relaxed) == 0
            && self
                .set
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    pub(crate) fn enter(&self, set: u64, index: u32) {
        self.index.store(index, Ordering::Release);
        self.set.store(set + 2, Ordering::Release);
    }

    #[inline]
    pub(crate) fn move_to(&self, index: u32) {
        self.index.store(index, Ordering::Release);
    }

    pub(crate) fn leave(&self) {
        self.set.store(1, Ordering::Release);
    }

    fn is_at(&self, set: u64, index: u32) -> bool {
        self.set.load(Ordering::Acquire) == set + 2 && self.index.load(Ordering::Acquire) == index
    }
}

/// A slot while it is somebody's.
struct Seat<'a>(&'a Slot);

impl std::ops::Deref for Seat<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        self.0
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.set.store(0, Ordering::Release);
    }
}

/// The threads: rayon's.
#[cfg(not(any(loom, shuttle)))]
mod pool {
    use std::{
        sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
        thread,
        time::Duration,
    };

    use super::{Executor, WORKS_FOR};
    use crate::{Error, Result, chunk, sync::lock};

    /// Bodies recurse, those of an interpreter by the thousand. Memory that nobody touches costs nothing.
    const STACK: usize = 16 << 20;

    pub(super) struct Pool(Mutex<Option<Arc<rayon::ThreadPool>>>);

    impl Pool {
        pub(super) fn new(workers: u32, name: &str) -> Result<Self> {
            let name = name.to_owned();
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(workers as usize)
                .thread_name(move |k| format!("{name}-{k}"))
                .stack_size(STACK)
                // Bodies are caught chunk by chunk; this is for what nobody foresaw: the process lives on.
                .panic_handler(|_| {})
                .build()
                .map_err(|error| Error::Threads(error.to_string()))?;
            Ok(Self(Mutex::new(Some(Arc::new(pool)))))
        }

        pub(super) fn close(&self) {
            drop(lock(&self.0).take());
        }

        /// In a child process the threads do not exist: touching the pool would hang.
        pub(super) fn forget(&self) {
            if let Ok(mut pool) = self.0.try_lock() {
                std::mem::forget(pool.take());
            }
        }
    }

    pub(super) fn start(executor: Arc<Executor>) {
        let pool = lock(&executor.pool.0).clone();
        match pool {
            Some(pool) => pool.spawn(move || {
                if chunk::is_inside() || WORKS_FOR.get() != 0 {
                    // Somebody's body or callback waits inside rayon and has taken this job up: it must not run strangers on its stack,
                    // nor come upon this job again and again.
                    elsewhere(executor);
                } else {
                    executor.work();
                }
            }),
            // Closed: what still comes in is done by who brings it.
            None => executor.work(),
        }
    }

    /// A worker loop on a thread of its own.
    fn elsewhere(executor: Arc<Executor>) {
        let thread = thread::Builder::new()
            .name("shoal-spare".into())
            .stack_size(STACK);
        let working = Arc::clone(&executor);
        if thread.spawn(move || working.work()).is_err() {
            start(executor);
        }
    }

    pub(super) fn sleep<'a>(
        bell: &Condvar,
        guard: MutexGuard<'a, ()>,
        most: Duration,
    ) -> MutexGuard<'a, ()> {
        // The standard library refuses a time that passes the clock's end.
        bell.wait_timeout(guard, most.min(Duration::from_secs(3600)))
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

/// The threads of a model checker.
#[cfg(any(loom, shuttle))]
mod pool {
    use std::{sync::Arc, time::Duration};

    use super::Executor;
    use crate::{
        Result,
        sync::{Condvar, MutexGuard},
    };

    pub(super) struct Pool;

    impl Pool {
        pub(super) fn new(_workers: u32, _name: &str) -> Result<Self> {
            Ok(Self)
        }

        pub(super) fn close(&self) {}

        pub(super) fn forget(&self) {}
    }

    pub(super) fn start(executor: Arc<Executor>) {
        #[cfg(shuttle)]
        shuttle::thread::spawn(move || executor.work());
        #[cfg(loom)]
        executor.work();
    }

    pub(super) fn sleep<'a>(
        bell: &Condvar,
        guard: MutexGuard<'a, ()>,
        _most: Duration,
    ) -> MutexGuard<'a, ()> {
        bell.wait(guard)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

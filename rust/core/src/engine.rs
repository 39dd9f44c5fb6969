//! An engine: the executor, the cases, and the records of sets, in one process.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    Error, Result,
    chunk::Body,
    clock::Clock,
    cost::Cost,
    count::Limits,
    event::{Event, Kind},
    executor::{Executor, Task, Waiting, after},
    scope::{Case, Entry, Shelf},
    set::{Set, Sink, Spec},
    state::Decision,
    sync::{Mutex, lock},
};

/// Raised in a child process after a fork: engines of an older generation have no threads there.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Tells every engine of this process that it is in a child after a fork. For `pthread_atfork`: it only counts.
pub fn after_fork() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// How often this process is a child of a fork that was told.
#[must_use]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// What an engine is made from.
pub struct Options {
    /// Threads; one for each core if `None`.
    pub workers: Option<u32>,
    /// What its threads are called.
    pub name: String,
    /// How much may be made.
    pub limits: Limits,
    /// Finished sets that are kept for those who ask.
    pub retain: usize,
    /// Its time.
    pub clock: Clock,
    /// Where settled ranges and decisions go before they count: a journal.
    pub sink: Option<Box<dyn Sink>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: None,
            name: "shoal".into(),
            limits: Limits::default(),
            retain: 1000,
            clock: Clock::default(),
            sink: None,
        }
    }
}

/// Runs sets. Closing it, or dropping it, lets what was begun end.
pub struct Engine {
    executor: Arc<Executor>,
    limits: Limits,
    retain: usize,
    generation: u64,
    next: AtomicU64,
    /// As in the registry, which decides: a look ahead, before anything is made.
    is_closed: AtomicBool,
    registry: Mutex<Registry>,
}

struct Registry {
    closed: bool,
    shelf: Shelf,
    cases: HashMap<Box<str>, Arc<Case>>,
    next_case: u64,
    /// So many cases are there when the old ones are looked for.
    sweep_at: usize,
}

/// What an engine did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sets made.
    pub sets: u64,
    /// Instances made.
    pub instances: u64,
    /// Those completed.
    pub completed: u64,
    /// Those failed.
    pub failed: u64,
    /// Those cancelled.
    pub cancelled: u64,
    /// Those timed out.
    pub timed_out: u64,
    /// Bodies that run now.
    pub running: u64,
}

impl Totals {
    pub(crate) fn count(&mut self, set: &Set) {
        let counts = set.counts();
        self.sets += 1;
        self.instances += u64::from(counts.total());
        self.completed += u64::from(counts.completed);
        self.failed += u64::from(counts.failed);
        self.cancelled += u64::from(counts.cancelled);
        self.timed_out += u64::from(counts.timed_out);
        self.running += u64::from(counts.running);
    }
}

impl Engine {
    /// An engine with its own threads.
    ///
    /// # Errors
    /// [`Error::Threads`] where the system gives none; [`Error::Count`] for no workers.
    pub fn new(options: Options) -> Result<Self> {
        let workers = match options.workers {
            Some(0) => {
                return Err(Error::Count(
                    "workers=0 could run nothing; use 1 or more".into(),
                ));
            }
            Some(workers) if workers as usize > rayon::max_num_threads() => {
                return Err(Error::Count(format!(
                    "workers={workers} is more threads than a pool can have; use at most {}",
                    rayon::max_num_threads()
                )));
            }
            Some(workers) => workers,
            None => {
                thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
            }
        };
        Ok(Self {
            executor: Executor::new(workers, &options.name, options.clock, options.sink)?,
            limits: options.limits,
            retain: options.retain,
            generation: GENERATION.load(Ordering::Relaxed),
            next: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            registry: Mutex::new(Registry {
                closed: false,
                shelf: Shelf::new(options.retain),
                cases: HashMap::new(),
                next_case: 0,
                sweep_at: 2 * options.retain.max(64),
            }),
        })
    }

    /// The executor: events, ticks, clock.
    #[must_use]
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// How much may be made.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Refuses to be used in a child process.
    ///
    /// # Errors
    /// [`Error::ForkedEngine`].
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.generation == GENERATION.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(Error::ForkedEngine)
        }
    }

    /// Makes a set and hands it to the workers.
    ///
    /// # Errors
    /// What is wrong with the spec; then nothing was created.
    pub fn spawn(&self, spec: Spec, body: impl Body + 'static) -> Result<Arc<Task>> {
        self.spawn_known(spec, Arc::new(Cost::new()), body)
    }

    /// As [`Engine::spawn`], for a body whose cost is remembered by the caller.
    ///
    /// # Errors
    /// What is wrong with the spec; then nothing was created.
    pub fn spawn_known(
        &self,
        spec: Spec,
        cost: Arc<Cost>,
        body: impl Body + 'static,
    ) -> Result<Arc<Task>> {
        let (task, created) = self.create_at(spec, cost, body)?;
        // Asked for before the workers have the set, and its words with it.
        let (count, called) = (task.set.len(), task.set.called_at());
        if task.set.unclaimed() > 0 {
            self.executor.submit(&task);
        }
        let now = self.executor.clock().ticks();
        self.executor.ticks().spawned(
            count,
            now.saturating_sub(created),
            now.saturating_sub(called),
        );
        Ok(task)
    }

    /// Makes a set that nobody looks at yet: a wait with `alone_first` follows.
    ///
    /// # Errors
    /// What is wrong with the spec; then nothing was created.
    pub fn create(
        &self,
        spec: Spec,
        cost: Arc<Cost>,
        body: impl Body + 'static,
    ) -> Result<Arc<Task>> {
        self.create_at(spec, cost, body).map(|(task, _)| task)
    }

    /// As `create`, with the time when that was done.
    fn create_at(
        &self,
        mut spec: Spec,
        cost: Arc<Cost>,
        body: impl Body + 'static,
    ) -> Result<(Arc<Task>, u64)> {
        self.check_process()?;
        if spec.called == 0 {
            spec.called = self.executor.clock().ticks();
        }
        let called = spec.called;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::EngineClosed);
        }
        let case = spec.case.clone();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let set = Set::new(id, spec, &self.limits, Arc::clone(&self.executor))?;
        let count = set.len();
        let task: Arc<Task> = Arc::new(Task {
            set: Arc::clone(&set),
            cost,
            case: case.map_or_else(OnceLock::new, OnceLock::from),
            body,
        });
        let entry = Entry {
            set,
            task: Arc::downgrade(&task),
        };
        if let Some(case) = task.case.get() {
            case.own(entry.clone())?;
        }
        let evicted = {
            let mut registry = lock(&self.registry);
            if registry.closed {
                drop(registry);
                // On its case's shelf already: there it must not look like one that will still run.
                task.set.cancel_soon();
                return Err(Error::EngineClosed);
            }
            registry.shelf.push(entry)
        };
        drop(evicted);
        let now = self.executor.clock().ticks();
        task.set
            .event_at(now, Kind::Created, 0, count, 0, Event::NO_WORKER);
        task.set.born();
        self.executor
            .ticks()
            .created(count, now.saturating_sub(called));
        Ok((task, now))
    }

    /// Makes a set, runs it with the calling thread first and the workers when it lasts, and waits for its gate.
    ///
    /// # Errors
    /// What is wrong with the spec; then nothing was created.
    pub fn run(&self, spec: Spec, body: impl Body + 'static) -> Result<(Arc<Task>, Decision)> {
        let task = self.create(spec, Arc::new(Cost::new()), body)?;
        let decision = task.wait_as(Waiting {
            alone_first: true,
            ..Waiting::default()
        });
        Ok((task, decision.unwrap_or(Decision::TimedOut)))
    }

    /// A case that may own sets.
    ///
    /// # Errors
    /// [`Error::CaseInUse`] where the engine knows a case of that id; [`Error::EngineClosed`].
    pub fn case(&self, id: Option<&str>) -> Result<Arc<Case>> {
        self.check_process()?;
        let mut registry = lock(&self.registry);
        if registry.closed {
            return Err(Error::EngineClosed);
        }
        let id: Box<str> = match id {
            Some(id) => id.into(),
            None => loop {
                registry.next_case += 1;
                let id = format!("case-{}", registry.next_case);
                if !registry.cases.contains_key(id.as_str()) {
                    break id.into();
                }
            },
        };
        if registry.cases.contains_key(&id) {
            return Err(Error::CaseInUse(id.into()));
        }
        let case = Arc::new(Case::new(
            &id,
            registry.next_case,
            self.limits.max_case_instances,
            self.retain,
        ));
        registry.next_case += 1;
        registry.cases.insert(id, Arc::clone(&case));
        let forgotten = if registry.cases.len() > registry.sweep_at {
            let forgotten = registry.forget_old_cases(self.retain);
            // Of those that stay none may be over: looking at them all is for when there are twice as many.
            registry.sweep_at = 2 * registry.cases.len().max(self.retain).max(64);
            forgotten
        } else {
            Vec::new()
        };
        drop(registry);
        // Without the lock: what layers above keep with a case may run anything when it goes.
        drop(forgotten);
        Ok(case)
    }

    /// The case of that id.
    #[must_use]
    pub fn find_case(&self, id: &str) -> Option<Arc<Case>> {
        lock(&self.registry).cases.get(id).cloned()
    }

    /// All cases it knows, oldest first.
    #[must_use]
    pub fn cases(&self) -> Vec<Arc<Case>> {
        let mut cases: Vec<_> = lock(&self.registry).cases.values().cloned().collect();
        cases.sort_by_key(|case| case.age());
        cases
    }

    /// The live sets and the finished ones it keeps, oldest first.
    #[must_use]
    pub fn sets(&self) -> Vec<Entry> {
        lock(&self.registry).shelf.iter().cloned().collect()
    }

    /// What it did so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let registry = lock(&self.registry);
        let mut totals = registry.shelf.evicted();
        registry
            .shelf
            .iter_all()
            .for_each(|entry| totals.count(&entry.set));
        totals
    }

    /// Whether it takes no more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        lock(&self.registry).closed
    }

    /// Takes nothing more: the first step of closing. The sets that are not finished, to be waited for.
    #[must_use]
    pub fn shut(&self) -> Vec<Arc<Set>> {
        let mut registry = lock(&self.registry);
        registry.closed = true;
        self.is_closed.store(true, Ordering::Relaxed);
        registry
            .shelf
            .iter()
            .filter(|entry| !entry.set.is_finished())
            .map(|entry| Arc::clone(&entry.set))
            .collect()
    }

    /// Takes nothing more and lets what there is end, or cancels it; then the threads go. False: not within the timeout, or the calling
    /// thread is in the middle of a body or a continuation of this engine, whose end it would wait for.
    pub fn close(&self, cancel: bool, timeout: Option<Duration>) -> bool {
        if self.check_process().is_err() {
            return true;
        }
        let deadline = timeout.and_then(after);
        let sets = self.shut();
        for set in &sets {
            if cancel {
                set.cancel_soon();
            } else {
                set.seal();
            }
        }
        // All are told before one is waited for: they may wait for each other.
        !self.executor.is_here()
            && sets.iter().all(|set| set.wait_drained(deadline))
            && self.executor.close(deadline)
    }
}

impl Registry {
    /// Takes out the oldest of the cases that are over and that nobody else holds.
    #[must_use]
    fn forget_old_cases(&mut self, retain: usize) -> Vec<Arc<Case>> {
        let mut over: Vec<_> = self
            .cases
            .values()
            .filter(|case| Arc::strong_count(case) == 1 && case.is_over())
            .map(|case| (case.age(), Box::from(case.id())))
            .collect();
        over.sort();
        let surplus = over.len().saturating_sub(retain);
        over.into_iter()
            .take(surplus)
            .filter_map(|(_, id): (u64, Box<str>)| self.cases.remove(&id))
            .collect()
    }
}

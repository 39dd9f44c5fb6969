//! Who owns sets: a case, its nested cases, and the shelf that finished sets stay on.

use std::{
    any::Any,
    collections::{HashSet, VecDeque},
    sync::{Arc, OnceLock, Weak},
};

use crate::{
    Error, Result,
    chunk::Body,
    count::Limits,
    engine::Totals,
    executor::Task,
    set::Set,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// Finished sets that an anonymous case keeps of those its bodies made.
const ANONYMOUS_RETAINS: usize = 16;

/// Where a case is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseState {
    /// Something of it is pending or running, or nothing was started yet.
    Active,
    /// All that it started has ended.
    Completed,
    /// Somebody cancelled it; it stays so.
    Cancelled,
}

impl CaseState {
    /// The name users see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One running of a workflow, or the free-standing owner of sets.
pub struct Case {
    id: Box<str>,
    age: u64,
    limit: u64,
    created: AtomicU64,
    /// The set whose anonymous case this is. Not held: the set's task holds the case.
    of: Option<(Weak<Set>, Weak<Task>)>,
    owned: Mutex<Owned>,
    attached: OnceLock<Box<dyn Any + Send + Sync>>,
}

struct Owned {
    cancelled: bool,
    shelf: Shelf,
    nested: Vec<Weak<Case>>,
}

impl Case {
    pub(crate) fn new(id: &str, age: u64, limit: u64, retain: usize) -> Self {
        Self {
            id: id.into(),
            age,
            limit,
            created: AtomicU64::new(0),
            of: None,
            owned: Mutex::new(Owned {
                cancelled: false,
                shelf: Shelf::new(retain),
                nested: Vec::new(),
            }),
            attached: OnceLock::new(),
        }
    }

    /// The anonymous case of a set that was made without one.
    pub(crate) fn of(task: &Arc<Task>, limits: &Limits) -> Self {
        let set = &task.set;
        let mut case = Self::new(
            &format!("set-{}", set.id()),
            0,
            limits.max_case_instances,
            ANONYMOUS_RETAINS,
        );
        case.created.store(u64::from(set.len()), Ordering::Release);
        case.of = Some((Arc::downgrade(set), Arc::downgrade(task)));
        case
    }

    /// What a layer above keeps with the case, its variables for instance: made by `f` the first time.
    pub fn attached<T: Any + Send + Sync>(&self, f: impl FnOnce() -> T) -> Option<&T> {
        self.attached.get_or_init(|| Box::new(f())).downcast_ref()
    }

    /// Its name, unique in its engine.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn age(&self) -> u64 {
        self.age
    }

    /// Instances its sets ever created.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created.load(Ordering::Acquire)
    }

    /// Counts instances against the case's limit, or refuses: one step, so that racing callers cannot pass it together.
    pub(crate) fn reserve(&self, count: u64) -> Result<()> {
        self.created
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |created| {
                created.checked_add(count).filter(|&sum| sum <= self.limit)
            })
            .map(|_| ())
            .map_err(|created| Error::Limit {
                asked: created.saturating_add(count),
                limit: self.limit,
                what: "case",
                setting: "max_case_instances",
            })
    }

    /// Where it is in its life.
    #[must_use]
    pub fn state(&self) -> CaseState {
        let owned = lock(&self.owned);
        if owned.cancelled {
            return CaseState::Cancelled;
        }
        drop(owned);
        let sets = self.sets();
        if !sets.is_empty() && sets.iter().all(|entry| entry.set.is_finished()) {
            CaseState::Completed
        } else {
            CaseState::Active
        }
    }

    /// Whether nothing of it is pending or running. Where nobody holds it, nothing ever will be.
    pub(crate) fn is_over(&self) -> bool {
        let owned = lock(&self.owned);
        owned.cancelled || owned.shelf.iter_all().all(|entry| entry.set.is_finished())
    }

    pub(crate) fn own(&self, entry: Entry) -> Result<()> {
        let evicted = {
            let mut owned = lock(&self.owned);
            if owned.cancelled {
                return Err(Error::CaseOver(self.id.to_string(), "cancelled"));
            }
            owned.shelf.push(entry)
        };
        drop(evicted);
        Ok(())
    }

    /// A case inside this one: cancelled with it.
    ///
    /// # Errors
    /// [`Error::CaseOver`] when this one is cancelled.
    pub fn nest(&self, case: &Arc<Case>) -> Result<()> {
        let mut owned = lock(&self.owned);
        if owned.cancelled {
            return Err(Error::CaseOver(self.id.to_string(), "cancelled"));
        }
        owned.nested.retain(|case| case.strong_count() > 0);
        owned.nested.push(Arc::downgrade(case));
        Ok(())
    }

    /// Its sets, oldest first: the live ones and the finished ones that are kept.
    #[must_use]
    pub fn sets(&self) -> Vec<Entry> {
        let first = self.of.as_ref().and_then(|(set, task)| {
            Some(Entry {
                set: set.upgrade()?,
                task: Weak::clone(task),
            })
        });
        let owned = lock(&self.owned);
        first
            .into_iter()
            .chain(owned.shelf.iter().cloned())
            .collect()
    }

    /// Cancels all that it owns, nested cases too, and takes nothing more. Idempotent.
    pub fn cancel(&self) {
        let (mut sets, mut nested) = self.end();
        // Cases may be nested in a ring.
        let mut seen = HashSet::from([std::ptr::from_ref(self)]);
        while let Some(case) = nested.pop() {
            if seen.insert(Arc::as_ptr(&case)) {
                let (its_sets, inside) = case.end();
                sets.extend(its_sets);
                nested.extend(inside);
            }
        }
        // All are told before one is waited for: nothing of the case begins while a journal writes.
        sets.iter().for_each(|entry| entry.set.cancel_soon());
        sets.iter().for_each(|entry| entry.set.cancel());
    }

    /// Takes nothing more: what there is.
    fn end(&self) -> (Vec<Entry>, Vec<Arc<Self>>) {
        let nested = {
            let mut owned = lock(&self.owned);
            owned.cancelled = true;
            owned.nested.iter().filter_map(Weak::upgrade).collect()
        };
        (self.sets(), nested)
    }
}

/// A set as its owner knows it: the record, and the task with body and values while somebody else keeps that alive.
#[derive(Clone)]
pub struct Entry {
    /// The record.
    pub set: Arc<Set>,
    /// Body and values.
    pub task: Weak<Task<dyn Body>>,
}

/// Live sets, and the newest finished ones. Pushing is all the upkeep there is: workers never come here.
pub(crate) struct Shelf {
    retain: usize,
    /// With the number of instances that `instances` counts for it: an open set may have more by now.
    recent: VecDeque<(Entry, u32)>,
    /// The instances of `recent`: many large sets are not kept as long as many small ones.
    instances: u64,
    /// Older than `recent` and not finished when they left it.
    lingering: Vec<Entry>,
    sweep_at: usize,
    evicted: Totals,
}

impl Shelf {
    const FEWEST_TO_SWEEP: usize = 64;
    const MOST_SLACK: usize = 64;
    /// Instances whose states are kept after their sets have finished: a byte each.
    const MOST_INSTANCES: u64 = 1 << 25;

    pub(crate) fn new(retain: usize) -> Self {
        Self {
            retain,
            recent: VecDeque::new(),
            instances: 0,
            lingering: Vec::new(),
            sweep_at: Self::FEWEST_TO_SWEEP,
            evicted: Totals::default(),
        }
    }

    /// What the sets did that are no longer kept.
    pub(crate) fn evicted(&self) -> Totals {
        self.evicted
    }

    /// Answers with what was evicted, to be dropped without the lock.
    #[must_use]
    pub(crate) fn push(&mut self, entry: Entry) -> Vec<Entry> {
        let count = entry.set.len();
        self.instances += u64::from(count);
        self.recent.push_back((entry, count));
        let mut gone = Vec::new();
        // Letting old sets go costs more than making a new one, their memory is cold: many at a time, seldom.
        let slack = (self.retain / 16).min(Self::MOST_SLACK);
        let is_due = self.recent.len() > self.retain + slack;
        while (is_due && self.recent.len() > self.retain)
            || (self.instances > Self::MOST_INSTANCES && self.recent.len() > 1)
        {
            let Some((oldest, count)) = self.recent.pop_front() else {
                break;
            };
            self.instances -= u64::from(count);
            if oldest.set.is_finished() {
                self.evicted.count(&oldest.set);
                gone.push(oldest);
            } else {
                self.lingering.push(oldest);
            }
        }
        if self.lingering.len() >= self.sweep_at {
            for entry in self
                .lingering
                .extract_if(.., |entry| entry.set.is_finished())
            {
                self.evicted.count(&entry.set);
                gone.push(entry);
            }
            self.sweep_at = (2 * self.lingering.len()).max(Self::FEWEST_TO_SWEEP);
        }
        gone
    }

    /// The live ones and the newest finished ones, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let surplus = self.recent.len().saturating_sub(self.retain);
        let (due, kept) = (self.recent.range(..surplus), self.recent.range(surplus..));
        let live = due.filter(|(entry, _)| !entry.set.is_finished());
        self.lingering
            .iter()
            .chain(live.chain(kept).map(|(entry, _)| entry))
    }

    /// All that are there, also those that are about to go.
    pub(crate) fn iter_all(&self) -> impl Iterator<Item = &Entry> {
        self.lingering
            .iter()
            .chain(self.recent.iter().map(|(entry, _)| entry))
    }
}

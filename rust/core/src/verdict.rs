//! What is decided once: the decision word of a set or gate, those who wait for it, and what follows it.
//!
//! One word carries the decision and the bit of the waiters, so that a decider and a waiter cannot miss each other.

use std::time::{Duration, Instant};

use crate::{
    chunk,
    state::Decision,
    sync::{AtomicU32, Condvar, Mutex, MutexGuard, Ordering, lock},
};

const DECISION: u32 = 0b0111;
/// The decision is chosen and on its way to the journal: nobody else can choose, nobody may act on it yet.
const CHOSEN: u32 = 0b1000;
/// Somebody may be asleep, or wants to be called: take the lock and notify.
const WAITERS: u32 = 0b01_0000;
/// Somebody wants to be woken at every settling.
const WATCHERS: u32 = 0b10_0000;

/// Called once, with the decision.
pub type Continuation = Box<dyn FnOnce(Decision) + Send>;
/// Called once.
pub type Callback = Box<dyn FnOnce() + Send>;

/// What somebody asked to be called, to take that back by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(pub u64);

/// Those who want to be called.
struct Bell {
    next: u64,
    decided: Vec<(Asked, Continuation)>,
    settled: Vec<(Asked, Callback)>,
}

impl Bell {
    fn ask(&mut self) -> Asked {
        self.next += 1;
        Asked(self.next)
    }
}

/// The word, and the bell for those who wait: its lock is taken only where somebody does.
pub(crate) struct Verdict {
    word: AtomicU32,
    bell: Mutex<Bell>,
    rung: Condvar,
}

impl Verdict {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            bell: Mutex::new(Bell {
                next: 0,
                decided: Vec::new(),
                settled: Vec::new(),
            }),
            rung: Condvar::new(),
        }
    }

    /// The published decision. Acquire pairs with `decide` and `publish`: who sees it sees all that led to it.
    pub(crate) fn get(&self) -> Option<Decision> {
        let word = self.word.load(Ordering::Acquire);
        (word & CHOSEN == 0)
            .then(|| Decision::from_bits(word & DECISION))
            .flatten()
    }

    /// Whether a decision was chosen, seen or not: there is nothing left to judge.
    pub(crate) fn is_chosen(&self) -> bool {
        self.word.load(Ordering::Relaxed) & DECISION != 0
    }

    /// Chooses and publishes at once. True for exactly one caller, ever.
    #[must_use]
    pub(crate) fn decide(&self, decision: Decision) -> bool {
        self.swap_in(decision as u32)
    }

    /// Chooses; `publish` follows when the choice is durable. True for exactly one caller, ever.
    #[must_use]
    pub(crate) fn choose(&self, decision: Decision) -> bool {
        self.swap_in(decision as u32 | CHOSEN)
    }

    fn swap_in(&self, bits: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & DECISION == 0 {
            // AcqRel: releases what the decider saw to those who read the word, acquires the waiters' bit.
            match self.word.compare_exchange_weak(
                word,
                word | bits,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// A chosen decision becomes visible.
    pub(crate) fn publish(&self) {
        self.word.fetch_and(!CHOSEN, Ordering::AcqRel);
    }

    /// Something settled: wakes those who watch, and gives back what is to be called. After the step they watch for; a read-modify-write,
    /// so that a watcher that comes later sees that step.
    #[must_use]
    pub(crate) fn ring_settled(&self) -> Vec<Callback> {
        self.ring(WATCHERS)
    }

    /// As `ring_settled`, and wakes whoever waits, for whatever it is.
    #[must_use]
    pub(crate) fn ring_all(&self) -> Vec<Callback> {
        self.ring(WAITERS | WATCHERS)
    }

    fn ring(&self, whom: u32) -> Vec<Callback> {
        if self.word.fetch_or(0, Ordering::AcqRel) & whom == 0 {
            return Vec::new();
        }
        let settled = std::mem::take(&mut lock(&self.bell).settled);
        self.rung.notify_all();
        settled.into_iter().map(|(_, f)| f).collect()
    }

    /// Wakes whoever waits, and gives back what is to be called. After `decide` or `publish` of that decision.
    #[must_use]
    pub(crate) fn ring_decided(&self, decision: Decision) -> Vec<Callback> {
        if self.word.fetch_or(0, Ordering::AcqRel) & (WAITERS | WATCHERS) == 0 {
            return Vec::new();
        }
        let mut bell = lock(&self.bell);
        let (decided, settled) = (
            std::mem::take(&mut bell.decided),
            std::mem::take(&mut bell.settled),
        );
        drop(bell);
        self.rung.notify_all();
        let decided = decided
            .into_iter()
            .map(|(_, f)| -> Callback { Box::new(move || f(decision)) });
        settled.into_iter().map(|(_, f)| f).chain(decided).collect()
    }

    /// Has `f` called with the decision; gives it back with the decision if that is there already.
    pub(crate) fn then(&self, f: Continuation) -> Result<Asked, (Continuation, Decision)> {
        let mut bell = lock(&self.bell);
        self.word.fetch_or(WAITERS, Ordering::AcqRel);
        if let Some(decision) = self.get() {
            return Err((f, decision));
        }
        let asked = bell.ask();
        bell.decided.push((asked, f));
        Ok(asked)
    }

    /// Has `f` called at the next settling: who asks looks afterwards whether there was one before.
    pub(crate) fn then_settled(&self, f: Callback) -> Asked {
        let mut bell = lock(&self.bell);
        self.word.fetch_or(WATCHERS, Ordering::AcqRel);
        let asked = bell.ask();
        bell.settled.push((asked, f));
        asked
    }

    /// Nobody wants that call any more. What it was goes after the lock: it may run anything then.
    pub(crate) fn forget(&self, asked: Asked) {
        let mut bell = lock(&self.bell);
        let decided = bell.decided.iter().position(|(other, _)| *other == asked);
        let settled = bell.settled.iter().position(|(other, _)| *other == asked);
        let decided = decided.map(|k| bell.decided.swap_remove(k));
        let settled = settled.map(|k| bell.settled.swap_remove(k));
        drop(bell);
        drop((decided, settled));
    }

    /// Blocks until `ready` answers, at most until `deadline`.
    pub(crate) fn wait<R>(
        &self,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.wait_as(WAITERS, deadline, ready)
    }

    /// As `wait`, and asks at every settling.
    pub(crate) fn watch<R>(
        &self,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.wait_as(WATCHERS, deadline, ready)
    }

    fn wait_as<R>(
        &self,
        role: u32,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        if let Some(result) = ready() {
            return Some(result);
        }
        // Without the lock: what is let go may be what is waited for.
        chunk::let_go();
        let mut bell = lock(&self.bell);
        loop {
            // Before looking: whoever changes something after this sees the bit and rings.
            self.word.fetch_or(role, Ordering::AcqRel);
            if let Some(result) = ready() {
                return Some(result);
            }
            let left = match deadline {
                None => None,
                Some(deadline) => Some(
                    deadline
                        .checked_duration_since(Instant::now())
                        .filter(|left| !left.is_zero())?,
                ),
            };
            bell = self.sleep(bell, left);
        }
    }

    fn sleep<'a>(
        &self,
        bell: MutexGuard<'a, Bell>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, Bell> {
        match left {
            #[cfg(not(any(loom, shuttle)))]
            Some(left) => {
                self.rung
                    .wait_timeout(bell, left)
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .0
            }
            _ => self
                .rung
                .wait(bell)
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        }
    }
}

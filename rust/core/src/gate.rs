//! A gate used alone: arrivals are counted, and one of them opens it.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use crate::{
    Error, Result,
    state::Decision,
    sync::{AtomicU64, Ordering},
    verdict::{Asked, Callback, Continuation, Verdict},
};

/// Opens at the arrival that makes `target`, once.
pub struct Gate {
    me: Weak<Gate>,
    target: u64,
    arrived: AtomicU64,
    verdict: Verdict,
    calls: Arc<dyn Calls>,
}

/// Where continuations run.
pub trait Calls: Send + Sync {
    /// Has `f` called, soon, by somebody else's thread.
    fn call(&self, f: Callback);
}

impl Gate {
    /// A gate that fires at the `target`-th arrival.
    ///
    /// # Errors
    /// [`Error::Join`] for a target of 0: it would never open.
    pub fn new(target: u64, calls: Arc<dyn Calls>) -> Result<Arc<Self>> {
        if target == 0 {
            return Err(Error::Join(
                "a gate with target=0 would never open; target must be 1 or more".into(),
            ));
        }
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            target,
            arrived: AtomicU64::new(0),
            verdict: Verdict::new(),
            calls,
        }))
    }

    /// Counts `n` arrivals. True for exactly one caller: the one that opened it.
    pub fn arrive(&self, n: u64) -> bool {
        // AcqRel: the one that opens it has seen what every earlier arrival brought. No addition: the count must not wrap.
        let more = |arrived: u64| Some(arrived.saturating_add(n));
        let before = self
            .arrived
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .unwrap_or_else(|arrived| arrived);
        before < self.target
            && before.saturating_add(n) >= self.target
            && self.decide(Decision::Fired)
    }

    /// Nobody will be let through any more. False if it was decided before.
    pub fn cancel(&self) -> bool {
        self.decide(Decision::Cancelled)
    }

    fn decide(&self, decision: Decision) -> bool {
        if !self.verdict.decide(decision) {
            return false;
        }
        for call in self.verdict.ring_decided(decision) {
            // Kept for the call: what is called may only know the gate as long as somebody has it.
            let gate = self.me.upgrade();
            self.calls.call(Box::new(move || {
                call();
                drop(gate);
            }));
        }
        true
    }

    /// Arrivals so far, those after it opened included.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Acquire)
    }

    /// How many it takes.
    #[must_use]
    pub fn target(&self) -> u64 {
        self.target
    }

    /// What it was decided as.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.get()
    }

    /// Blocks until it is decided, at most until `deadline`.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Decision> {
        self.verdict
            .get()
            .or_else(|| self.verdict.wait(deadline, || self.verdict.get()))
    }

    /// Has `f` called with the decision: at once, with no way back, if that is there already.
    pub fn on_decided(&self, f: Continuation) -> Option<Asked> {
        match self.verdict.then(f) {
            Ok(asked) => Some(asked),
            Err((f, decision)) => {
                self.calls.call(Box::new(move || f(decision)));
                None
            }
        }
    }

    /// Takes back what was asked for, if it was not called yet.
    pub fn forget(&self, asked: Asked) {
        self.verdict.forget(asked);
    }
}

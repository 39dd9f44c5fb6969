//! The gate's word: completed, outstanding and the creation token in one atomic, so that each step sees all three at one instant.
//!
//! ```text
//!  63            32 31   30             0
//! [   completed   ][OPEN][  outstanding  ]
//! ```

use crate::sync::{AtomicU64, Ordering};

const OPEN: u64 = 1 << 31;
const OUTSTANDING: u64 = OPEN - 1;

/// The most instances a set can hold: what `outstanding` has bits for.
pub const MAX_INSTANCES: u32 = OUTSTANDING as u32;

/// The word at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot(u64);

impl Snapshot {
    /// Instances whose completion was told.
    #[must_use]
    pub fn completed(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Instances created and not yet terminal.
    #[must_use]
    pub fn outstanding(self) -> u32 {
        (self.0 & OUTSTANDING) as u32
    }

    /// Whether more can still be created.
    #[must_use]
    pub fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// Sealed, and every instance terminal.
    #[must_use]
    pub fn is_finished(self) -> bool {
        self.0 & (OPEN | OUTSTANDING) == 0
    }

    /// A snapshot made by hand: the reference tests of joins need one.
    #[must_use]
    pub fn new(completed: u32, outstanding: u32, open: bool) -> Self {
        Self(u64::from(completed) << 32 | if open { OPEN } else { 0 } | u64::from(outstanding))
    }
}

/// The word itself. Every change is one read-modify-write and answers with what the word was after it.
#[derive(Debug)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(crate) fn new(count: u32, open: bool) -> Self {
        Self(AtomicU64::new(Snapshot::new(0, count, open).0))
    }

    /// Acquire pairs with the release of every step: what settlers wrote before their step is visible.
    pub(crate) fn read(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// More instances exist. Before `end` is raised, so that none can settle before it was counted.
    pub(crate) fn add(&self, count: u32) {
        self.0.fetch_add(u64::from(count), Ordering::AcqRel);
    }

    /// `completed` and `lost` instances became terminal. Weaker than AcqRel fails: the decider must see the writes of every settler before it.
    #[must_use]
    pub(crate) fn settle(&self, completed: u32, lost: u32) -> Snapshot {
        let terminal = u64::from(completed) + u64::from(lost);
        let step = (u64::from(completed) << 32).wrapping_sub(terminal);
        Snapshot(self.0.fetch_add(step, Ordering::AcqRel).wrapping_add(step))
    }

    /// Takes the creation token. Called once, by whoever closed `end`.
    #[must_use]
    pub(crate) fn seal(&self) -> Snapshot {
        Snapshot(self.0.fetch_sub(OPEN, Ordering::AcqRel) - OPEN)
    }
}

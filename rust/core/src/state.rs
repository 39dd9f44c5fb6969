//! The states of an instance and of a gate, and what one body's run can end as. Plain values, no behaviour.

use std::fmt;

/// Where an instance is in its life. The discriminants are the state bytes of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum InstanceState {
    /// Created, not begun.
    Pending = 0,
    /// Its body has begun. Never stored: derived from who holds the index.
    Running = 1,
    /// Its body returned.
    Completed = 2,
    /// Its body raised, panicked or returned an error.
    Failed = 3,
    /// It never began, or stopped because it was asked to.
    Cancelled = 4,
    /// Its time ran out.
    TimedOut = 5,
}

impl InstanceState {
    /// All states, in the order of their bytes.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
    ];

    pub(crate) fn from_byte(byte: u8) -> Self {
        Self::ALL[usize::from(byte)]
    }

    /// The name users see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }

    /// Whether this state is final.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self as u8 >= Self::Completed as u8
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How one body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The body returned.
    Completed,
    /// The body failed.
    Failed,
    /// The body stopped because it was asked to.
    Cancelled,
}

impl Outcome {
    pub(crate) fn state(self) -> InstanceState {
        match self {
            Self::Completed => InstanceState::Completed,
            Self::Failed => InstanceState::Failed,
            Self::Cancelled => InstanceState::Cancelled,
        }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Completed
    }
}

impl<E> From<std::result::Result<(), E>> for Outcome {
    fn from(result: std::result::Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Completed,
            Err(_) => Self::Failed,
        }
    }
}

/// What a gate was decided as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Decision {
    /// The join was met: the continuation runs.
    Fired = 1,
    /// The join can no longer be met, or the failure policy says so.
    Failed = 2,
    /// Somebody cancelled it.
    Cancelled = 3,
    /// Its time ran out.
    TimedOut = 4,
}

impl Decision {
    /// The name users see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }

    pub(crate) fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            1 => Some(Self::Fired),
            2 => Some(Self::Failed),
            3 => Some(Self::Cancelled),
            4 => Some(Self::TimedOut),
            _ => None,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many instances are in each state. The sum is the number created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Created, not begun.
    pub pending: u32,
    /// Bodies that have begun (a kernel chunk counts as one).
    pub running: u32,
    /// Bodies that returned.
    pub completed: u32,
    /// Bodies that failed.
    pub failed: u32,
    /// Never begun, or stopped when asked.
    pub cancelled: u32,
    /// Out of time.
    pub timed_out: u32,
}

impl Counts {
    /// The number created.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.pending + self.running + self.completed + self.failed + self.cancelled + self.timed_out
    }
}

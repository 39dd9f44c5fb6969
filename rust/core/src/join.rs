//! Joins and failure policies: pure rules over one snapshot of the tally. Nothing here is atomic.

use crate::{Error, Result, state::Decision, tally::Snapshot};

/// Shares are compared with this slack, so that 0.07 of 100 is 7 and not the 8 that binary fractions would make of it.
const ROUNDING: f64 = 1e-9;

/// The slack at such a number: what a product of floats is off by grows with it.
fn rounding(number: f64) -> f64 {
    ROUNDING.max(4.0 * f64::EPSILON * number)
}

/// Says when the gate fires.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Join {
    /// Sealed and every instance terminal.
    AllOf,
    /// `need` completed; with `or_all`, or all terminal.
    AtLeast {
        /// How many.
        need: Need,
        /// YAWL's threshold: all terminal is enough too.
        or_all: bool,
    },
    /// The weights of the completed reach `at_least`.
    Weighted(Weights),
    /// Nobody waits: there is no gate to see.
    Detached,
}

/// How many completions a threshold join needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Need {
    /// This many.
    Count(u32),
    /// This share of the final count, rounded up.
    Fraction(f64),
}

impl Need {
    /// The number, once the final count is known.
    #[must_use]
    pub fn of(self, created: u32) -> u32 {
        match self {
            Self::Count(n) => n,
            Self::Fraction(_) if created == 0 => 0,
            Self::Fraction(f) => {
                let share = f * f64::from(created);
                (share - rounding(share)).ceil().max(1.0) as u32
            }
        }
    }
}

/// Integer weights by index, kept as running sums so that a range costs two look-ups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    sums: Box<[u64]>,
    largest: u64,
    /// What the completed must reach.
    pub(crate) at_least: u64,
}

impl Weights {
    /// Weights by index and what the completed must reach.
    ///
    /// # Errors
    /// [`Error::Join`] where `at_least` is 0, or the sum does not fit.
    pub fn new(weights: impl IntoIterator<Item = u64>, at_least: u64) -> Result<Self> {
        let (mut sum, mut largest) = (0u64, 1);
        let mut sums = vec![0];
        for weight in weights {
            sum = sum
                .checked_add(weight)
                .filter(|&sum| sum <= BIAS as u64)
                .ok_or_else(|| Error::Join("the sum of the weights passes 2**60".into()))?;
            sums.push(sum);
            largest = largest.max(weight);
        }
        if at_least == 0 {
            return Err(Error::Join(
                "weighted(at_least=0) would fire before anything ran; at_least must be 1 or more"
                    .into(),
            ));
        }
        if at_least > BIAS as u64 {
            return Err(Error::Join("weighted(at_least=...) passes 2**60".into()));
        }
        Ok(Self {
            sums: sums.into(),
            largest,
            at_least,
        })
    }

    /// How many weights there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        (self.sums.len() - 1) as u32
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fewest completions that can make up what is missing.
    pub(crate) fn fewest(&self, gained: u64) -> u32 {
        u32::try_from(self.at_least.saturating_sub(gained).div_ceil(self.largest))
            .unwrap_or(u32::MAX)
    }

    /// The weight of a range.
    pub(crate) fn of(&self, start: u32, stop: u32) -> u64 {
        self.sums[stop as usize] - self.sums[start as usize]
    }
}

/// Larger than any sum of weights: what an unsealed set holds in reserve.
pub(crate) const BIAS: i64 = 1 << 60;

/// Says what becomes of the others when the gate is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// What has not begun is cancelled, what has begun is asked to stop.
    #[default]
    Cancel,
    /// They run on, are counted, and change nothing.
    Continue,
}

/// Says when failures fail the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnFailure {
    /// At the first failure.
    FailFast,
    /// When all are terminal, if any failed.
    FailLate,
    /// Never for a failure alone.
    Continue,
    /// At failure n + 1.
    Tolerate(u32),
    /// When more than `fraction` of those that ended failed, once `after` ended.
    TolerateFraction {
        /// The share that may fail.
        fraction: f64,
        /// Not judged before so many completed or failed.
        after: u32,
    },
}

impl OnFailure {
    /// Whether a failure has to reach the gate before the next body of its chunk begins.
    pub(crate) fn is_prompt(self) -> bool {
        !matches!(self, Self::FailLate | Self::Continue)
    }

    /// Whether so many failures fail the gate at once.
    #[must_use]
    pub fn is_exceeded(self, failed: u32) -> bool {
        match self {
            Self::FailFast => failed > 0,
            Self::Tolerate(n) => failed > n,
            Self::FailLate | Self::Continue | Self::TolerateFraction { .. } => false,
        }
    }

    /// Whether the share that failed fails the gate now.
    #[must_use]
    pub fn is_share_exceeded(self, completed: u32, failed: u32) -> bool {
        match self {
            Self::TolerateFraction { fraction, after } => {
                let ended = f64::from(completed) + f64::from(failed);
                let allowed = fraction * ended;
                ended >= f64::from(after) && f64::from(failed) > allowed + rounding(allowed)
            }
            _ => false,
        }
    }
}

/// What a set is joined by.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// When the gate fires.
    pub join: Join,
    /// What becomes of the others.
    pub rest: Rest,
    /// When failures fail it.
    pub on_failure: OnFailure,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(Join::AllOf)
    }
}

impl Policy {
    /// The join with the failure policy that belongs to it: `all_of` fails fast, the others go on.
    #[must_use]
    pub fn new(join: Join) -> Self {
        let on_failure = match join {
            Join::AllOf => OnFailure::FailFast,
            _ => OnFailure::Continue,
        };
        Self {
            join,
            rest: Rest::Cancel,
            on_failure,
        }
    }

    /// Refuses numbers that make no sense, and a threshold that a sealed set of `count` can never reach.
    ///
    /// # Errors
    /// [`Error::Join`].
    pub fn check(&self, count: u32, open: bool) -> Result<()> {
        let refuse = |text: String| Err(Error::Join(text));
        match &self.join {
            Join::AtLeast {
                need: Need::Count(0),
                ..
            } => {
                return refuse(
                    "at_least(0) would fire before anything ran; n must be 1 or more".into(),
                );
            }
            Join::AtLeast {
                need: Need::Fraction(f),
                ..
            } if !(*f > 0.0 && *f <= 1.0) => {
                return refuse(format!("at_least(fraction={f}) is outside (0, 1]"));
            }
            Join::AtLeast {
                need: Need::Count(n),
                or_all: false,
            } if !open && *n > count => {
                return refuse(format!(
                    "at_least({n}) can never be met by a set of {count}; ask for at most {count}, or pass or_all=True"
                ));
            }
            Join::Weighted(weights) => {
                if weights.len() < count {
                    return refuse(format!(
                        "weighted() has {} weights for {count} instances; give one for each",
                        weights.len()
                    ));
                }
                let total = weights.of(0, count);
                if !open && total < weights.at_least {
                    return refuse(format!(
                        "weighted(at_least={}) can never be met: all {count} weights make {total}",
                        weights.at_least
                    ));
                }
            }
            _ => {}
        }
        if let OnFailure::TolerateFraction { fraction, .. } = self.on_failure
            && !(0.0..=1.0).contains(&fraction)
        {
            return refuse(format!("tolerate(fraction={fraction}) is outside [0, 1]"));
        }
        Ok(())
    }

    /// What the gate is to be decided as after a step that left the tally at `now`, if anything.
    /// `failed` counts failures and time-outs; `exceeded` says that the tolerated share was passed at some settling; `created` is only read when the
    /// set is sealed.
    #[must_use]
    pub fn judge(
        &self,
        now: Snapshot,
        failed: u32,
        exceeded: bool,
        created: u32,
    ) -> Option<Decision> {
        if let Join::AtLeast { need, .. } = &self.join
            && (matches!(need, Need::Count(_)) || !now.is_open())
            && now.completed() >= need.of(created)
        {
            return Some(Decision::Fired);
        }
        if exceeded || self.on_failure.is_exceeded(failed) {
            return Some(Decision::Failed);
        }
        if now.is_open() {
            return None;
        }
        match &self.join {
            Join::AtLeast {
                need,
                or_all: false,
            } => {
                let possible = u64::from(now.completed()) + u64::from(now.outstanding());
                (possible < u64::from(need.of(created))).then_some(Decision::Failed)
            }
            // Decided by the words of their own; all terminal and not fired is never.
            Join::Weighted(_) => (now.outstanding() == 0).then_some(Decision::Failed),
            Join::AllOf | Join::AtLeast { or_all: true, .. } | Join::Detached => {
                (now.outstanding() == 0).then_some(match self.on_failure {
                    OnFailure::FailLate if failed > 0 => Decision::Failed,
                    _ => Decision::Fired,
                })
            }
        }
    }
}

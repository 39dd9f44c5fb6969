//! How long a body takes, remembered across sets, and the chunk sizes that follow from it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::clock::Clock;

/// Ticks are kept in sixteenths, so that a body of a few ticks has a size.
const SIXTEENTHS: u64 = 16;

/// Fewer bodies than this tell nothing about the next one.
const ENOUGH_SEEN: u64 = 16;

/// The times that chunks are cut by, in ticks of one clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// A chunk this short is not worth splitting: what claiming and settling cost is lost in it.
    floor: u64,
    /// A chunk is never meant to take longer than this.
    ceiling: u64,
    /// Bodies run between two looks at the clock.
    block: u64,
    /// A chunk that took this long gives the rest of it back.
    pub(crate) overdue: u64,
    /// Bodies known to be below this may be run by a thread that has to listen to something else.
    pub(crate) short: u64,
    /// What a caller does alone before it wakes anybody.
    pub(crate) alone: u64,
    /// Bodies below this are not worth handing a lock on.
    pub(crate) tiny: u64,
    /// How long a worker drives one set while others wait.
    pub(crate) slice: u64,
    /// How long an idle worker looks around before it leaves.
    pub(crate) linger: u64,
}

impl Pace {
    pub(crate) fn new(clock: &Clock) -> Self {
        let us = |n| clock.ticks_in(Duration::from_micros(n));
        Self {
            floor: us(8),
            ceiling: us(100),
            block: us(4),
            overdue: us(200),
            short: us(1_000),
            alone: us(20),
            tiny: us(5),
            slice: us(5_000),
            linger: us(20),
        }
    }
}

/// What is known of one body's cost. Shared by all sets that run it; written without care for lost updates, for it is an estimate.
// Aligned, so that what is learnt at each chunk is not on the line of the counts that every new set touches.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Cost {
    /// Sixteenths of a tick an instance; 0 is never measured.
    each: AtomicU64,
    /// Bodies measured, as far as it matters.
    seen: AtomicU64,
    /// The longest stretch between two looks at the clock lately, in ticks.
    peak: AtomicU64,
}

impl Cost {
    /// A body that was never seen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ticks an instance, if it was ever measured.
    #[must_use]
    pub fn ticks(&self) -> Option<f64> {
        match self.each.load(Ordering::Relaxed) {
            0 => None,
            each => Some(each as f64 / SIXTEENTHS as f64),
        }
    }

    /// Whether every body seen lately took less than a millisecond.
    pub(crate) fn is_short(&self, pace: &Pace) -> bool {
        self.seen.load(Ordering::Relaxed) >= ENOUGH_SEEN
            && self.peak.load(Ordering::Relaxed) < pace.short
    }

    /// Learns from `count` bodies that took `ticks` together, none of them longer than `longest`.
    pub(crate) fn learn(&self, count: u32, ticks: u64, longest: u64) {
        if count == 0 {
            return;
        }
        let sample = (ticks.max(1) * SIXTEENTHS / u64::from(count)).max(1);
        let each = match self.each.load(Ordering::Relaxed) {
            0 => sample,
            // Up fast, down slowly: a chunk that is too long costs more than one that is too short.
            each if sample > each => each + (sample - each).div_ceil(2),
            each => each - (each - sample) / 4,
        };
        self.each.store(each, Ordering::Relaxed);
        let seen = self.seen.load(Ordering::Relaxed);
        if seen < ENOUGH_SEEN {
            self.seen.store(seen + u64::from(count), Ordering::Relaxed);
        }
        let peak = self.peak.load(Ordering::Relaxed);
        if longest > peak {
            self.peak.store(longest, Ordering::Relaxed);
        } else if peak > 0 {
            self.peak
                .store(peak - (peak - longest).div_ceil(16), Ordering::Relaxed);
        }
    }

    /// How many of `left` instances to take at once, where so many threads share them; one that is alone may take all.
    pub(crate) fn chunk(&self, left: u32, threads: u32, pace: &Pace) -> u32 {
        match self.each.load(Ordering::Relaxed) {
            0 => 1,
            each => {
                let fits = |ticks: u64| {
                    u32::try_from(ticks * SIXTEENTHS / each)
                        .unwrap_or(u32::MAX)
                        .max(1)
                };
                let share = if threads > 1 {
                    left / (4 * threads)
                } else {
                    left
                };
                share.clamp(fits(pace.floor), fits(pace.ceiling))
            }
        }
    }

    /// How many bodies to run between two looks at the clock.
    pub(crate) fn block(&self, pace: &Pace) -> u32 {
        match self.each.load(Ordering::Relaxed) {
            0 => 1,
            each => (pace.block * SIXTEENTHS / each).clamp(1, 1024) as u32,
        }
    }

    /// Whether `left` instances are known to take much longer than waking somebody does.
    pub(crate) fn is_long(&self, left: u32, pace: &Pace) -> bool {
        let each = self.each.load(Ordering::Relaxed);
        u64::from(left).saturating_mul(each) > 2 * pace.alone * SIXTEENTHS
            && self.seen.load(Ordering::Relaxed) >= ENOUGH_SEEN
    }

    /// Whether a body is known to take less than it costs to hand a lock on.
    pub(crate) fn is_tiny(&self, pace: &Pace) -> bool {
        let each = self.each.load(Ordering::Relaxed);
        each != 0 && each < pace.tiny * SIXTEENTHS && self.is_short(pace)
    }

    /// Whether `left` instances are expected to be done before a woken worker could help.
    pub(crate) fn is_done_soon(&self, left: u32, pace: &Pace) -> bool {
        match self.each.load(Ordering::Relaxed) {
            0 => false,
            each => u64::from(left).saturating_mul(each) < pace.alone * SIXTEENTHS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        // A manual clock ticks in nanoseconds, so the sizes below are exact.
        Pace::new(&Clock::manual().0)
    }

    fn of(each_ns: u64) -> Cost {
        let cost = Cost::new();
        cost.learn(1, each_ns, each_ns);
        cost
    }

    #[test]
    fn a_body_never_seen_is_taken_one_at_a_time() {
        assert_eq!(Cost::new().chunk(1_000_000, 2, &pace()), 1);
    }

    #[test]
    fn nanosecond_bodies_are_taken_by_thousands_and_slow_ones_alone() {
        assert_eq!(of(2).chunk(1_000_000, 2, &pace()), 50_000);
        assert_eq!(of(1_000).chunk(1_000_000, 2, &pace()), 100);
        assert_eq!(of(120_000).chunk(1_000_000, 2, &pace()), 1);
    }

    #[test]
    fn who_is_alone_takes_what_there_is_as_long_as_it_is_soon_done() {
        assert_eq!(of(10).chunk(1_000, 1, &pace()), 1_000);
        assert_eq!(of(10).chunk(1_000_000, 1, &pace()), 10_000);
    }

    #[test]
    fn chunks_shrink_as_the_set_runs_out() {
        assert_eq!(of(1_000).chunk(80, 2, &pace()), 10);
        assert_eq!(
            of(1_000).chunk(40, 2, &pace()),
            8,
            "not below what is worth a claim"
        );
        assert_eq!(of(10_000).chunk(8, 2, &pace()), 1);
    }

    #[test]
    fn a_body_is_short_when_enough_were_seen_and_all_were() {
        let cost = of(100);
        assert!(!cost.is_short(&pace()), "one says nothing");
        cost.learn(100, 10_000, 200);
        assert!(cost.is_short(&pace()));
        cost.learn(1, 2_000_000, 2_000_000);
        assert!(!cost.is_short(&pace()));
    }

    #[test]
    fn it_follows_a_body_that_becomes_slow() {
        let cost = of(10);
        cost.learn(1, 1_000_000, 1_000_000);
        cost.learn(1, 1_000_000, 1_000_000);
        assert_eq!(cost.chunk(1_000_000, 2, &pace()), 1);
        assert!(!cost.is_short(&pace()));
    }
}

//! The tick budget as a feature: how many ticks an instance creating, spawning and living took, by set size.

use std::sync::atomic::{AtomicU64, Ordering};

/// Set sizes 1, 10, ... 10^9.
const SIZES: usize = 10;
/// Upper bounds 1/16, 1/8, ... ticks an instance; the last bucket is open.
const BUCKETS: usize = 48;
const SMALLEST: f64 = 1.0 / 16.0;

/// What is measured of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Making the set.
    Creation = 0,
    /// Handing it to the workers.
    Spawn = 1,
    /// From the call to the last settled instance.
    Life = 2,
}

/// The histograms of an engine.
pub struct Ticks {
    cells: Box<[AtomicU64]>,
    over_budget: AtomicU64,
    budget: u64,
}

impl Ticks {
    /// Ticks an instance that creation and spawn may take together.
    pub const BUDGET: u64 = 8;

    pub(crate) fn new() -> Self {
        Self {
            cells: (0..3 * SIZES * BUCKETS)
                .map(|_| AtomicU64::new(0))
                .collect(),
            over_budget: AtomicU64::new(0),
            budget: Self::BUDGET,
        }
    }

    pub(crate) fn created(&self, count: u32, ticks: u64) {
        self.record(Phase::Creation, count, ticks);
    }

    /// `both`: creation and spawn together, which the budget is for.
    pub(crate) fn spawned(&self, count: u32, spawn: u64, both: u64) {
        self.record(Phase::Spawn, count, spawn);
        if count > 0 && both > self.budget * u64::from(count) {
            self.over_budget.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn record(&self, phase: Phase, count: u32, ticks: u64) {
        if count > 0 {
            let cell = (phase as usize * SIZES + count.ilog10() as usize) * BUCKETS
                + bucket(ticks, u64::from(count));
            self.cells[cell].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets that were measured: all but the empty ones.
    #[must_use]
    pub fn sets(&self) -> u64 {
        let creations = &self.cells[..SIZES * BUCKETS];
        creations
            .iter()
            .map(|cell| cell.load(Ordering::Relaxed))
            .sum()
    }

    /// Sets whose creation and spawn took more than the budget.
    #[must_use]
    pub fn over_budget(&self) -> u64 {
        self.over_budget.load(Ordering::Relaxed)
    }

    /// The budget, ticks an instance.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// One phase as (smallest size of the class, [(upper bound, number of sets)]), without what is empty.
    #[must_use]
    pub fn histogram(&self, phase: Phase) -> Vec<(u64, Vec<(f64, u64)>)> {
        (0..SIZES)
            .map(|size| {
                let first = (phase as usize * SIZES + size) * BUCKETS;
                let row = (0..BUCKETS)
                    .map(|k| (upper(k), self.cells[first + k].load(Ordering::Relaxed)))
                    .filter(|&(_, sets)| sets > 0)
                    .collect::<Vec<_>>();
                (10u64.pow(size as u32), row)
            })
            .filter(|(_, row)| !row.is_empty())
            .collect()
    }
}

/// The first bucket whose upper bound is not below `ticks / count`.
fn bucket(ticks: u64, count: u64) -> usize {
    let sixteenths = ticks.saturating_mul(16).div_ceil(count).max(1);
    (64 - (sixteenths - 1).leading_zeros() as usize).min(BUCKETS - 1)
}

fn upper(bucket: usize) -> f64 {
    if bucket == BUCKETS - 1 {
        f64::INFINITY
    } else {
        SMALLEST * (1u64 << bucket) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_lands_in_the_bucket_whose_bound_holds_it() {
        for (ticks, count) in [
            (1, 16),
            (0, 5),
            (8, 1),
            (9, 1),
            (1_000, 3),
            (7_999, 1_000),
            (8_000, 1_000),
            (8_001, 1_000),
            (u64::MAX, 1),
        ] {
            let each = ticks as f64 / count as f64;
            let k = bucket(ticks, count);
            assert!(each <= upper(k), "{each} above {}", upper(k));
            assert!(
                k == 0 || each > upper(k - 1),
                "{each} not above {}",
                upper(k - 1)
            );
        }
    }

    #[test]
    fn sets_over_budget_are_counted() {
        let ticks = Ticks::new();
        for both in [8_000, 8_001] {
            ticks.created(1_000, 4_000);
            ticks.spawned(1_000, both - 4_000, both);
        }
        assert_eq!((ticks.sets(), ticks.over_budget()), (2, 1));
        assert_eq!(
            ticks.histogram(Phase::Creation),
            vec![(1_000, vec![(4.0, 2)])]
        );
    }
}

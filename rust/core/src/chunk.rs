//! A claimed range on its way through a body: which index is next, what became of each, when to stop, and what to give back.

use std::sync::Arc;

use crate::{
    cost::{Cost, Pace},
    event::Event,
    executor::{Slot, Task},
    set::{Set, Settlement},
    state::{InstanceState, Outcome},
};

/// By how much more bodies run between two looks at the clock than between the two before, up to what their known cost allows.
const TRUST_GROWS: u32 = 16;

/// What every instance of a set does.
pub trait Body: Send + Sync {
    /// Runs the instances of a chunk by one of its methods, [`Chunk::each`] for instance.
    fn run(&self, chunk: &mut Chunk<'_>);

    /// The body of `index` panicked; it counts as failed.
    fn panicked(&self, index: u32, message: &str) {
        let _ = (index, message);
    }

    /// Calls `drive`, which runs many chunks, with what all of them need in place: an interpreter, a transaction.
    fn attend(&self, drive: &mut dyn FnMut()) {
        drive();
    }

    /// Whether one instance may wait for another: then it must never be the calling thread's alone for long.
    fn may_wait(&self) -> bool {
        true
    }

    /// Whether a lock lets only one body run at a time: then short ones gain nothing from more threads.
    fn is_serial(&self) -> bool {
        false
    }

    /// For those who keep bodies of many kinds and know theirs.
    fn as_any(&self) -> &dyn std::any::Any;
}

impl<F, R> Body for F
where
    F: Fn(u32) -> R + Send + Sync + 'static,
    R: Into<Outcome>,
{
    fn run(&self, chunk: &mut Chunk<'_>) {
        chunk.each(|index| self(index).into());
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Runs bodies until one does not complete, the set is stopped, or `stop`: where that is, and how the last one ended.
// Apart from what is around it, so that all it needs stays in registers.
#[inline(never)]
fn native_stretch(
    set: &Set,
    start: u32,
    stop: u32,
    f: &mut impl FnMut(u32) -> Outcome,
) -> (u32, Outcome) {
    let mut index = start;
    while index < stop && !set.is_stopped() {
        let outcome = f(index);
        if outcome != Outcome::Completed {
            return (index, outcome);
        }
        index += 1;
    }
    (index, Outcome::Completed)
}

/// A claimed range. What it holds is settled when it goes.
pub struct Chunk<'a> {
    task: &'a Arc<Task>,
    set: &'a Arc<Set>,
    cost: &'a Cost,
    pace: &'a Pace,
    slot: Option<&'a Slot>,
    worker: u32,
    /// First index that was not settled yet.
    start: u32,
    /// The next to run, or the one that runs.
    at: u32,
    stop: u32,
    except: Vec<(u32, InstanceState)>,
    began: u64,
    looked: u64,
    longest: u64,
    ran: u32,
    /// The most bodies to run before the next look at the clock.
    trust: u32,
}

impl<'a> Chunk<'a> {
    pub(crate) fn new(
        task: &'a Arc<Task>,
        slot: Option<&'a Slot>,
        range: std::ops::Range<u32>,
    ) -> Self {
        let (set, cost) = (&task.set, &*task.cost);
        let now = set.executor().stopwatch().ticks();
        if let Some(slot) = slot {
            slot.enter(set.id(), range.start);
        }
        Self {
            task,
            set,
            cost,
            pace: set.executor().pace(),
            slot,
            worker: slot.map_or(Event::NO_WORKER, Slot::worker),
            start: range.start,
            at: range.start,
            stop: range.end,
            except: Vec::new(),
            began: now,
            looked: now,
            longest: 0,
            ran: 0,
            trust: 1,
        }
    }

    /// The set this is a part of.
    #[must_use]
    pub fn set(&self) -> &'a Arc<Set> {
        self.set
    }

    /// The task this is a part of.
    #[must_use]
    pub fn task(&self) -> &'a Arc<Task> {
        self.task
    }

    /// The indices that are left.
    #[must_use]
    pub fn left(&self) -> std::ops::Range<u32> {
        self.at..self.stop
    }

    /// Whether there is nothing left to begin.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.at >= self.stop || self.set.is_stopped()
    }

    /// Runs each instance alone. `f` may panic: that one failed.
    #[inline]
    pub fn each(&mut self, mut f: impl FnMut(u32) -> Outcome) {
        while let Some(stop) = self.next_block() {
            while self.at < stop {
                let index = self.at;
                if self.set.is_stopped() {
                    return;
                }
                if let Some(slot) = self.slot {
                    slot.move_to(index);
                }
                let outcome = f(index);
                if outcome != Outcome::Completed {
                    self.lose(index, outcome);
                }
                self.at = index + 1;
            }
        }
    }

    /// Runs each instance of a compiled body that cannot panic, with nothing but a look at the stop word between two.
    #[inline]
    pub fn each_native(&mut self, mut f: impl FnMut(u32) -> Outcome) {
        while let Some(stop) = self.next_block() {
            while self.at < stop {
                let (index, outcome) = native_stretch(self.set, self.at, stop, &mut f);
                self.at = index;
                match outcome {
                    Outcome::Completed => break,
                    outcome => self.lose(index, outcome),
                }
                self.at = index + 1;
            }
        }
    }

    /// Runs stretches of instances with one call each; a stretch completes or fails as a whole. At most `most` in one.
    pub fn spans(&mut self, most: u32, mut f: impl FnMut(u32, u32) -> Outcome) {
        while !self.is_over() {
            let start = self.at;
            let stop = self.stop.min(start.saturating_add(most));
            match f(start, stop) {
                Outcome::Completed => {}
                outcome => {
                    (start..stop).for_each(|index| self.except.push((index, outcome.state())))
                }
            }
            self.at = stop;
            self.look();
            if !self.except.is_empty() && self.set.policy().on_failure.is_prompt() {
                self.settle();
            }
            self.give_back_if_overdue();
        }
    }

    /// The body returned without running what is left: that is its failure.
    pub(crate) fn fail_rest(&mut self) {
        let (start, stop) = (self.at, self.stop);
        (start..stop).for_each(|index| self.except.push((index, InstanceState::Failed)));
        self.at = stop;
    }

    /// The instance that runs panicked.
    pub(crate) fn panicked(&mut self) -> u32 {
        let index = self.at;
        self.lose(index, Outcome::Failed);
        self.at = index + 1;
        index
    }

    /// Where the next look at the clock is due; nothing if the chunk is over.
    #[inline]
    fn next_block(&mut self) -> Option<u32> {
        if self.at != self.start || self.ran > 0 {
            self.look();
            self.give_back_if_overdue();
        }
        if self.is_over() {
            return None;
        }
        // What is known of the body may come from sets of another kind: the first bodies of a chunk have to show that it holds.
        let block = self.cost.block(self.pace).min(self.trust);
        self.trust = self.trust.saturating_mul(TRUST_GROWS);
        Some(self.stop.min(self.at.saturating_add(block)))
    }

    fn look(&mut self) {
        let now = self.set.executor().stopwatch().ticks();
        self.longest = self.longest.max(now.saturating_sub(self.looked));
        self.looked = now;
    }

    /// Bodies that turned out slower than they were taken for must not keep others waiting.
    fn give_back_if_overdue(&mut self) {
        if self.stop - self.at > 1
            && self.looked.saturating_sub(self.began) > self.pace.overdue
            && !self.set.is_stopped()
        {
            self.settle();
            self.learn();
            let rest = self.at..self.stop;
            self.stop = self.at;
            self.set.give_back(rest);
            self.set.executor().submit(self.task);
        }
    }

    fn lose(&mut self, index: u32, outcome: Outcome) {
        self.except.push((index, outcome.state()));
        if outcome == Outcome::Failed && self.set.policy().on_failure.is_prompt() {
            self.settle_to(index + 1);
        }
    }

    fn settle(&mut self) {
        self.settle_to(self.at);
    }

    fn settle_to(&mut self, stop: u32) {
        let start = self.start;
        if start == stop {
            return;
        }
        self.start = stop;
        self.ran += stop - start;
        let now = self.set.executor().stopwatch().ticks();
        self.set.settle(Settlement {
            start,
            stop,
            state: InstanceState::Completed,
            except: std::mem::take(&mut self.except),
            took: now.saturating_sub(self.began),
            worker: self.worker,
        });
    }

    fn learn(&mut self) {
        self.cost.learn(
            self.ran,
            self.looked.saturating_sub(self.began),
            self.longest,
        );
        self.ran = 0;
        self.began = self.looked;
    }

    /// Settles what ran, cancels what was not begun.
    pub(crate) fn finish(mut self) {
        self.look();
        self.settle();
        self.learn();
        if self.at < self.stop {
            let set = self.set;
            set.settle(Settlement {
                start: self.at,
                stop: self.stop,
                state: InstanceState::Cancelled,
                except: Vec::new(),
                took: 0,
                worker: self.worker,
            });
        }
        if let Some(slot) = self.slot {
            slot.leave();
        }
    }
}

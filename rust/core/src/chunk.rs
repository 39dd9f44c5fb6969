//! A claimed range on its way through a body: which index is next, what became of each, when to stop, and what to give back.

use std::{
    cell::{Cell, RefCell},
    ops::{Deref, Range},
    rc::Rc,
    sync::Arc,
};

use crate::{
    cost::{Cost, Pace},
    event::Event,
    executor::{Executor, Slot, Task},
    set::{HUNGRY, STOP, Set, Settlement},
    state::{InstanceState, Outcome},
    sync::thread_local,
};

/// By how much more bodies run between two looks at the clock than between the two before, up to what their known cost allows.
const TRUST_GROWS: u32 = 16;

/// What every instance of a set does.
pub trait Body: Send + Sync {
    /// Runs the instances of a chunk by one of its methods, [`Chunk::each`] for instance.
    fn run(&self, chunk: &mut Chunk<'_>);

    /// The body of `index` panicked; it counts as failed. Called before that is settled.
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

thread_local! {
    /// What this thread runs, the innermost last: where a body waits and helps, more than one.
    #[expect(clippy::missing_const_for_thread_local, reason = "the model checkers' macro takes no const")]
    static CLAIMS: RefCell<Vec<Rc<Claim>>> = RefCell::new(Vec::new());
}

/// Whether this thread is in the middle of a body.
pub(crate) fn is_inside() -> bool {
    CLAIMS.with(|claims| !claims.borrow().is_empty())
}

/// Whether this thread is in the middle of a body of that executor's.
pub(crate) fn is_inside_of(executor: &Executor) -> bool {
    CLAIMS.with(|claims| {
        let claims = claims.borrow();
        claims
            .iter()
            .any(|claim| std::ptr::eq(&**claim.task.set.executor(), executor))
    })
}

/// Before this thread sleeps or helps: what the body that it runs holds and others may need is let go. Nothing outside of bodies.
pub(crate) fn let_go() {
    let innermost = CLAIMS.with(|claims| claims.borrow().last().cloned());
    if let Some(claim) = innermost {
        claim.let_go();
    }
}

/// The range that a thread has claimed of a task. Chunk after chunk goes through one of these, and the thread's list of them has it, so that
/// a wait inside a body finds it.
pub(crate) struct Claim {
    task: Arc<Task>,
    worker: u32,
    /// First index that was not settled yet.
    start: Cell<u32>,
    /// The next to run, or the first of those that run.
    at: Cell<u32>,
    /// How many the body's present call is for.
    span: Cell<u32>,
    stop: Cell<u32>,
    except: RefCell<Vec<(u32, InstanceState)>>,
    began: Cell<u64>,
    /// Settled and not learnt from.
    ran: Cell<u32>,
}

impl Claim {
    /// For a task that this thread is about to run chunks of.
    pub(crate) fn enter(task: &Arc<Task>, slot: Option<&Slot>) -> Running {
        let claim = Rc::new(Self {
            task: Arc::clone(task),
            worker: slot.map_or(Event::NO_WORKER, Slot::worker),
            start: Cell::new(0),
            at: Cell::new(0),
            span: Cell::new(1),
            stop: Cell::new(0),
            except: RefCell::default(),
            began: Cell::new(0),
            ran: Cell::new(0),
        });
        if task.body.may_wait() {
            CLAIMS.with(|claims| claims.borrow_mut().push(Rc::clone(&claim)));
        }
        Running(claim)
    }

    pub(crate) fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// Settles what has ended and gives back what has not begun: this body is about to wait, for one of them perhaps.
    fn let_go(&self) {
        let (at, stop) = (self.at.get(), self.stop.get());
        self.settle_to(at);
        let rest = at.saturating_add(self.span.get())..stop;
        if !rest.is_empty() {
            self.stop.set(rest.start);
            self.give_back(rest);
        }
    }

    fn give_back(&self, rest: Range<u32>) {
        self.task.set.give_back(rest);
        self.task.set.executor().submit(&self.task);
    }

    fn settle_to(&self, stop: u32) {
        let start = self.start.get();
        if start >= stop {
            return;
        }
        self.start.set(stop);
        self.ran.set(self.ran.get() + (stop - start));
        let set = &self.task.set;
        let now = set.executor().stopwatch().ticks();
        set.settle(Settlement {
            start,
            stop,
            state: InstanceState::Completed,
            except: self.except.take(),
            took: now.saturating_sub(self.began.get()),
            worker: self.worker,
        });
    }
}

/// A claim while it is on its thread's list.
pub(crate) struct Running(Rc<Claim>);

impl Deref for Running {
    type Target = Claim;

    fn deref(&self) -> &Claim {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.task.body.may_wait() {
            CLAIMS.with(|claims| {
                let mut claims = claims.borrow_mut();
                if let Some(mine) = claims.iter().rposition(|other| Rc::ptr_eq(other, &self.0)) {
                    claims.remove(mine);
                }
            });
        }
    }
}

/// Runs bodies until one does not complete, somebody asks for something that this chunk heeds, or `stop`: where that is, and how the last one ended.
// Apart from what is around it, so that all it needs stays in registers.
#[inline(never)]
fn native_stretch(
    set: &Set,
    heeds: u32,
    start: u32,
    stop: u32,
    f: &mut impl FnMut(u32) -> Outcome,
) -> (u32, Outcome) {
    let mut index = start;
    while index < stop && !set.is_asked(heeds) {
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
    claim: &'a Claim,
    task: &'a Arc<Task>,
    set: &'a Arc<Set>,
    cost: &'a Cost,
    pace: &'a Pace,
    slot: Option<&'a Slot>,
    looked: u64,
    longest: u64,
    /// The most bodies to run before the next look at the clock.
    trust: u32,
    /// What it interrupts a block for.
    heeds: u32,
}

impl<'a> Chunk<'a> {
    pub(crate) fn new(claim: &'a Claim, slot: Option<&'a Slot>, range: Range<u32>) -> Self {
        let task = &claim.task;
        let (set, cost) = (&task.set, &*task.cost);
        let now = set.executor().stopwatch().ticks();
        if let Some(slot) = slot {
            slot.enter(set.id(), range.start);
        }
        claim.start.set(range.start);
        claim.at.set(range.start);
        claim.span.set(1);
        claim.stop.set(range.end);
        claim.began.set(now);
        claim.ran.set(0);
        Self {
            claim,
            task,
            set,
            cost,
            pace: set.executor().pace(),
            slot,
            looked: now,
            longest: 0,
            trust: 1,
            heeds: STOP | HUNGRY,
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
    pub fn left(&self) -> Range<u32> {
        self.claim.at.get()..self.claim.stop.get()
    }

    /// Whether there is nothing left to begin.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left().is_empty() || self.set.is_stopped()
    }

    /// Runs each instance alone. `f` may panic: that one failed.
    #[inline]
    pub fn each(&mut self, mut f: impl FnMut(u32) -> Outcome) {
        let claim = self.claim;
        while let Some(stop) = self.next_block() {
            // A body that waits lets the rest of the chunk go, so its end is looked at each time.
            while claim.at.get() < stop.min(claim.stop.get()) && !self.set.is_asked(self.heeds) {
                let index = claim.at.get();
                if let Some(slot) = self.slot {
                    slot.move_to(index);
                }
                let outcome = f(index);
                if outcome != Outcome::Completed {
                    self.lose(index, outcome);
                }
                claim.at.set(index + 1);
            }
        }
    }

    /// Runs each instance of a compiled body that cannot panic and cannot wait, with nothing but a look at the stop word between two.
    #[inline]
    pub fn each_native(&mut self, mut f: impl FnMut(u32) -> Outcome) {
        let claim = self.claim;
        while let Some(stop) = self.next_block() {
            while claim.at.get() < stop {
                let (index, outcome) =
                    native_stretch(self.set, self.heeds, claim.at.get(), stop, &mut f);
                claim.at.set(index);
                match outcome {
                    Outcome::Completed => break,
                    outcome => self.lose(index, outcome),
                }
                claim.at.set(index + 1);
            }
        }
    }

    /// Runs stretches of instances with one call each; a stretch completes or fails as a whole. At most `most` in one.
    pub fn spans(&mut self, most: u32, mut f: impl FnMut(u32, u32) -> Outcome) {
        let claim = self.claim;
        while !self.is_over() {
            let start = claim.at.get();
            let stop = claim.stop.get().min(start.saturating_add(most));
            claim.span.set(stop - start);
            match f(start, stop) {
                Outcome::Completed => {}
                outcome => self.lose_range(start..stop, outcome.state()),
            }
            claim.at.set(stop);
            claim.span.set(1);
            self.look();
            self.tell(stop);
            self.give_back_if_overdue();
        }
    }

    fn lose_range(&mut self, range: Range<u32>, state: InstanceState) {
        let lost = range.map(|index| (index, state));
        self.claim.except.borrow_mut().extend(lost);
    }

    /// The body returned without running what is left: that is its failure.
    pub(crate) fn fail_rest(&mut self) {
        let left = self.left();
        self.claim.at.set(left.end);
        self.lose_range(left, InstanceState::Failed);
    }

    /// The instances of the call that panicked; none if it was after the last of them had ended.
    pub(crate) fn panicking(&self) -> Range<u32> {
        let left = self.left();
        left.start
            ..left
                .end
                .min(left.start.saturating_add(self.claim.span.get()))
    }

    /// The call that runs panicked: its instances failed.
    pub(crate) fn panicked(&mut self) {
        let range = self.panicking();
        let stop = range.end;
        self.lose_range(range, InstanceState::Failed);
        self.claim.at.set(stop);
        self.claim.span.set(1);
        self.tell(stop);
    }

    /// Settles what ended before `stop` at once, if what was lost may decide the gate.
    fn tell(&self, stop: u32) {
        let lost = self.claim.except.borrow().len() as u32;
        if lost > 0 && self.set.is_due(lost) {
            self.claim.settle_to(stop);
        }
    }

    /// Where the next look at the clock is due; nothing if the chunk is over.
    #[inline]
    fn next_block(&mut self) -> Option<u32> {
        let claim = self.claim;
        if claim.at.get() != claim.start.get() || claim.ran.get() > 0 {
            self.look();
            self.give_back_if_overdue();
        }
        if self.is_over() {
            return None;
        }
        // What is known of the body may come from sets of another kind: the first bodies of a chunk have to show that it holds.
        if self.set.is_asked(HUNGRY) {
            // Others have nothing to do: what turns out slow goes to them soon.
            self.heeds = STOP;
            let most = match self.task.body.may_wait() {
                true => 1,
                // Looking costs a body of nanoseconds most.
                false => self.cost.block(self.pace).div_ceil(16),
            };
            self.trust = self.trust.min(most);
        }
        let block = self.cost.block(self.pace).min(self.trust);
        self.trust = self.trust.saturating_mul(TRUST_GROWS);
        let left = self.left();
        Some(left.end.min(left.start.saturating_add(block)))
    }

    fn look(&mut self) {
        let now = self.set.executor().stopwatch().ticks();
        self.longest = self.longest.max(now.saturating_sub(self.looked));
        self.looked = now;
    }

    /// Bodies that turned out slower than they were taken for must not keep others waiting.
    fn give_back_if_overdue(&mut self) {
        let (claim, left) = (self.claim, self.left());
        if left.len() > 1
            && self.looked.saturating_sub(claim.began.get()) > self.pace.overdue
            && !self.set.is_stopped()
        {
            claim.settle_to(left.start);
            self.learn();
            claim.stop.set(left.start);
            claim.give_back(left);
        }
    }

    fn lose(&mut self, index: u32, outcome: Outcome) {
        self.claim
            .except
            .borrow_mut()
            .push((index, outcome.state()));
        self.tell(index + 1);
    }

    fn learn(&mut self) {
        let claim = self.claim;
        self.cost.learn(
            claim.ran.take(),
            self.looked.saturating_sub(claim.began.get()),
            self.longest,
        );
        claim.began.set(self.looked);
    }

    /// Settles what ran, cancels what was not begun.
    pub(crate) fn finish(mut self) {
        self.look();
        self.claim.settle_to(self.claim.at.get());
        // Asked for now: a journal that waits inside `settled` lets the rest go.
        let left = self.left();
        self.learn();
        if !left.is_empty() {
            self.set.settle(Settlement {
                start: left.start,
                stop: left.end,
                state: InstanceState::Cancelled,
                except: Vec::new(),
                took: 0,
                worker: self.claim.worker,
            });
        }
        if let Some(slot) = self.slot {
            slot.leave();
        }
    }
}

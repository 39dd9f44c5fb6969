//! A set of instances: who may run which index, what became of each, and when the gate is decided.
//! This is `PROTOCOL.md` as code: claim, give back, settle, close.

use std::{
    mem::MaybeUninit,
    ops::Range,
    sync::{Arc, OnceLock, Weak},
    time::Instant,
};

use crate::{
    Error, Result,
    column::{BLOCK, Column, States, WORTH_BLOCKS},
    count::Limits,
    event::{Event, Kind},
    executor::Executor,
    gate::Calls,
    join::{BIAS, Join, Need, OnFailure, Policy, Rest},
    scope::Case,
    state::{Counts, Decision, InstanceState},
    sync::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Mutex, Ordering, lock, lock_soon},
    tally::{Snapshot, Tally},
    ticks::Phase,
    verdict::{Asked, Callback, Continuation, Verdict},
};

/// `end`: no more can be added.
const CLOSED: u64 = 1 << 63;
/// `cursor` of a fixed set that was closed: past every count, far from wrapping.
const PAST: u64 = 1 << 62;
/// `running`: begin no more bodies.
pub(crate) const STOP: u32 = 1 << 31;
/// `running`: a worker found nothing to claim while others ran.
pub(crate) const HUNGRY: u32 = 1 << 30;

/// When a set takes no more instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seal {
    /// The count is final at creation.
    #[default]
    AtOnce,
    /// When somebody says so.
    Manual,
    /// When none is pending or running.
    WhenIdle,
}

/// What a set is made from.
#[derive(Clone, Default)]
pub struct Spec {
    /// Instances it starts with.
    pub count: u64,
    /// When it takes no more.
    pub seal: Seal,
    /// When its gate fires, and what then.
    pub policy: Policy,
    /// Who owns it; nobody else does if there is none.
    pub case: Option<Arc<Case>>,
    /// Fixes the size of its chunks.
    pub chunk: Option<u32>,
    /// What users call it.
    pub name: Option<Box<str>>,
    /// The number of the workflow pattern it is, 0 for none.
    pub pattern: u8,
    /// The clock's ticks when the call that makes it began; 0 for now.
    pub called: u64,
}

impl Spec {
    /// So many instances, all of which have to complete.
    #[must_use]
    pub fn of(count: u64) -> Self {
        Self {
            count,
            ..Self::default()
        }
    }
}

/// Keeps what is written by different threads on different cache lines. Not an alignment: that would cost a slow allocation for each set.
struct Line(#[expect(dead_code, reason = "it is there for its size")] MaybeUninit<[u64; 8]>);

impl Line {
    const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
}

/// The instances of one multiple-instance task.
// In this order in memory, for the lines between the words.
#[repr(C)]
pub struct Set {
    id: u64,
    called: u64,
    policy: Policy,
    seal: Seal,
    limits: Limits,
    pub(crate) chunk: Option<u32>,
    pattern: u8,
    name: Option<Box<str>>,
    /// Its owner holds it, and its task holds its owner.
    pub(crate) case: OnceLock<Weak<Case>>,
    executor: Arc<Executor>,
    states: States,
    weight: Option<Box<Weight>>,
    ratio: Option<Box<Ratio>>,
    finished_at: OnceLock<u64>,
    returned: Mutex<Returned>,
    _adds: Line,
    pub(crate) adding: Mutex<()>,
    end: AtomicU64,
    pub(crate) tickets: AtomicU32,
    _claims: Line,
    cursor: AtomicU64,
    hint: AtomicU32,
    _run: Line,
    running: AtomicU32,
    _gate: Line,
    tally: Tally,
    /// Failed in the low half, timed out in the high: one word, for both count as failures.
    failures: AtomicU64,
    cancelled: AtomicU32,
    verdict: Verdict,
    log: Log,
}

#[derive(Default)]
struct Returned {
    closed: bool,
    ranges: Vec<Range<u32>>,
}

/// The words of a weighted join.
struct Weight {
    gained: AtomicU64,
    /// Total - target - lost; biased until the total is known.
    spare: AtomicI64,
}

/// The words of `tolerate(fraction=)`.
struct Ratio {
    /// Completed in the high half, failed in the low.
    ended: AtomicU64,
    /// The share was exceeded at some settling.
    exceeded: AtomicBool,
}

/// Settled ranges in the order of settling: a settler takes the next place and writes its range there.
/// A range has `start` in the high half and `stop` in the low; 0 is not written yet.
struct Log {
    taken: AtomicU64,
    /// The first places: a small set needs no allocation.
    first: [AtomicU64; Self::FIRST],
    more: OnceLock<Column<AtomicU64>>,
}

/// What became of a claimed range: the unit in which outcomes reach the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// First index.
    pub start: u32,
    /// One past the last.
    pub stop: u32,
    /// What every instance became that is not in `except`.
    pub state: InstanceState,
    /// Those that became something else, in order.
    pub except: Vec<(u32, InstanceState)>,
    /// How long the range ran, in ticks.
    pub took: u64,
    /// Where it ran.
    pub worker: u32,
}

impl Settlement {
    fn cancelled(range: Range<u32>) -> Self {
        Self {
            start: range.start,
            stop: range.end,
            state: InstanceState::Cancelled,
            except: Vec::new(),
            took: 0,
            worker: Event::NO_WORKER,
        }
    }

    fn count(&self, state: InstanceState) -> u32 {
        let named = self.except.iter().filter(|(_, s)| *s == state).count() as u32;
        if state == self.state {
            self.stop - self.start - self.except.len() as u32
        } else {
            named
        }
    }
}

/// Stands between a body and its gate. A journal keeps what it is given, makes it durable, and then tells the gate. It must not panic: the
/// outcomes that it was given would be lost.
pub trait Sink: Send + Sync {
    /// A range has its outcomes: call [`Set::arrive`] when it may count.
    fn settled(&self, set: &Arc<Set>, settlement: Settlement);
    /// The decision is chosen: call [`Set::publish`] when it may be seen.
    fn decided(&self, set: &Arc<Set>, decision: Decision);
}

impl Set {
    /// Checks everything, then makes the set; on an error nothing was created.
    pub(crate) fn new(
        id: u64,
        spec: Spec,
        limits: &Limits,
        executor: Arc<Executor>,
    ) -> Result<Arc<Self>> {
        let open = spec.seal != Seal::AtOnce;
        let count = limits.check_set(spec.count)?;
        spec.policy.check(count, open)?;
        match &spec.case {
            Some(case) => case.reserve(u64::from(count))?,
            None => limits.check_case(u64::from(count))?,
        }
        let weight = match &spec.policy.join {
            Join::Weighted(weights) => {
                let total = if open {
                    BIAS
                } else {
                    weights.of(0, count) as i64
                };
                Some(Box::new(Weight {
                    gained: AtomicU64::new(0),
                    spare: AtomicI64::new(total - weights.at_least as i64),
                }))
            }
            _ => None,
        };
        let ratio = match spec.policy.on_failure {
            OnFailure::TolerateFraction { .. } => Some(Box::new(Ratio {
                ended: AtomicU64::new(0),
                exceeded: AtomicBool::new(false),
            })),
            _ => None,
        };
        let states = if open {
            let states = States::growing();
            states.reserve(count);
            states
        } else {
            States::flat(count)
        };
        Ok(Arc::new(Self {
            id,
            called: spec.called,
            policy: spec.policy,
            seal: spec.seal,
            limits: *limits,
            chunk: spec.chunk,
            pattern: spec.pattern,
            name: spec.name,
            case: spec
                .case
                .map_or_else(OnceLock::new, |case| OnceLock::from(Arc::downgrade(&case))),
            executor,
            states,
            weight,
            ratio,
            finished_at: OnceLock::new(),
            returned: Mutex::default(),
            _adds: Line::new(),
            adding: Mutex::new(()),
            end: AtomicU64::new(u64::from(count) | if open { 0 } else { CLOSED }),
            tickets: AtomicU32::new(0),
            _claims: Line::new(),
            cursor: AtomicU64::new(0),
            hint: AtomicU32::new(0),
            _run: Line::new(),
            running: AtomicU32::new(0),
            _gate: Line::new(),
            tally: Tally::new(count, open),
            failures: AtomicU64::new(0),
            cancelled: AtomicU32::new(0),
            verdict: Verdict::new(),
            log: Log::new(),
        }))
    }

    /// The number of this set in its engine.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What users call it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The number of its workflow pattern, 0 for none.
    #[must_use]
    pub fn pattern(&self) -> u8 {
        self.pattern
    }

    /// Its owner, if it has one that is still there.
    #[must_use]
    pub fn case(&self) -> Option<Arc<Case>> {
        self.case.get().and_then(Weak::upgrade)
    }

    /// How much may be made.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What it is joined by.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The executor it runs on.
    #[must_use]
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// When the call that made it began, in ticks.
    #[must_use]
    pub fn called_at(&self) -> u64 {
        self.called
    }

    /// When the last instance ended, in ticks.
    #[must_use]
    pub fn finished_at(&self) -> Option<u64> {
        self.finished_at.get().copied()
    }

    /// The number created.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        (self.end.load(Ordering::Acquire) & !CLOSED) as u32
    }

    /// Whether there are no instances.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it takes more instances.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.end.load(Ordering::Acquire) & CLOSED == 0
    }

    /// What the gate was decided as.
    #[must_use]
    #[inline]
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.get()
    }

    /// Whether none is pending or running.
    #[must_use]
    #[inline]
    pub fn is_drained(&self) -> bool {
        let now = self.tally.read();
        now.outstanding() == 0 && (!now.is_finished() || self.decision().is_some())
    }

    /// Sealed, and every instance terminal: no count will change any more. Its decision may still be on its way.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.tally.read().is_finished()
    }

    /// Whether bodies are asked to stop.
    #[must_use]
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.is_asked(STOP)
    }

    /// Whether somebody asks those who run it for one of these.
    #[inline]
    pub(crate) fn is_asked(&self, bits: u32) -> bool {
        self.running.load(Ordering::Relaxed) & bits != 0
    }

    /// The caller found nothing to claim: those who have chunks look whether theirs last longer than they should.
    pub(crate) fn ask_for_more(&self) {
        if !self.is_asked(HUNGRY) && self.tally.read().outstanding() > 0 {
            self.running.fetch_or(HUNGRY, Ordering::Relaxed);
        }
    }

    /// How many are in each state, at one moment; never blocks a worker.
    #[must_use]
    pub fn counts(&self) -> Counts {
        // Terminal counters first, the number created last: see PROTOCOL.md.
        let completed = self.tally.read().completed();
        let failures = self.failures.load(Ordering::Acquire);
        let cancelled = self.cancelled.load(Ordering::Acquire);
        let running = self.running.load(Ordering::Acquire) & !(STOP | HUNGRY);
        let (failed, timed_out) = (failures as u32, (failures >> 32) as u32);
        let left = self.len() - completed - failed - timed_out - cancelled;
        let running = running.min(left);
        Counts {
            pending: left - running,
            running,
            completed,
            failed,
            cancelled,
            timed_out,
        }
    }

    /// The state of one instance, if it exists.
    #[must_use]
    pub fn status(&self, index: u32) -> Option<InstanceState> {
        if index >= self.len() {
            return None;
        }
        Some(match self.states.get(index) {
            InstanceState::Pending if self.executor.is_at(self.id, index) => InstanceState::Running,
            state => state,
        })
    }

    /// The stored state of an instance that exists: `Pending` also while it runs.
    #[must_use]
    #[inline]
    pub fn settled(&self, index: u32) -> InstanceState {
        self.states.get(index)
    }

    /// Instances nobody has claimed.
    #[must_use]
    pub fn unclaimed(&self) -> u32 {
        let cursor = self.cursor.load(Ordering::Relaxed);
        let returned = self.hint.load(Ordering::Acquire);
        u64::from(self.len()).saturating_sub(cursor) as u32 + returned
    }

    /// The most instances of a threshold join that one chunk may hold.
    pub(crate) fn chunk_bound(&self, workers: u32) -> u32 {
        let needed = match &self.policy.join {
            Join::AllOf | Join::Detached => return u32::MAX,
            _ if self.verdict.get().is_some() => return u32::MAX,
            Join::AtLeast { need, .. } => need
                .of(self.len())
                .saturating_sub(self.tally.read().completed()),
            Join::Weighted(weights) => weights.fewest(
                self.weight
                    .as_ref()
                    .map_or(0, |words| words.gained.load(Ordering::Relaxed)),
            ),
        };
        (needed / (2 * workers)).max(1)
    }

    /// Whether so many that were lost in a chunk have to be told at once: with as many in the chunks of others they might decide.
    pub(crate) fn is_due(&self, lost: u32) -> bool {
        if self.verdict.is_chosen() {
            return false;
        }
        let may_decide = match &self.policy.join {
            Join::AtLeast {
                need,
                or_all: false,
            } if !self.is_open() => {
                let now = self.tally.read();
                let possible = u64::from(now.completed()) + u64::from(now.outstanding());
                let everywhere = u64::from(lost) * u64::from(self.executor.workers() + 1);
                possible < u64::from(need.of(self.len())) + everywhere
            }
            Join::Weighted(_) => true,
            _ => false,
        };
        may_decide || self.policy.on_failure.is_prompt()
    }

    /// Takes up to `want` indices that nobody has.
    #[must_use]
    pub(crate) fn claim(&self, want: u32) -> Option<Range<u32>> {
        if self.hint.load(Ordering::Acquire) > 0
            && let Some(range) = self.claim_returned(want)
        {
            return Some(range);
        }
        let want = u64::from(want);
        if self.seal == Seal::AtOnce {
            let end = u64::from(self.len());
            // A look first: the word must not run away under workers that come in vain.
            let seen = self.cursor.load(Ordering::Relaxed);
            if seen >= end {
                return None;
            }
            let want = if want >= u64::from(WORTH_BLOCKS) {
                // Up to where a block ends, as far as one can tell: whole blocks are settled at once.
                want - (seen + want) % u64::from(BLOCK)
            } else {
                want
            };
            let start = self.cursor.fetch_add(want, Ordering::AcqRel);
            return (start < end).then(|| start as u32..(start + want).min(end) as u32);
        }
        let mut cursor = self.cursor.load(Ordering::Relaxed);
        loop {
            // Read again for each try: a cursor may have passed an `end` that was read before it.
            let end = u64::from(self.len());
            if cursor >= end {
                return None;
            }
            let stop = (cursor + want).min(end);
            match self.cursor.compare_exchange_weak(
                cursor,
                stop,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(cursor as u32..stop as u32),
                Err(now) => cursor = now,
            }
        }
    }

    fn claim_returned(&self, want: u32) -> Option<Range<u32>> {
        let mut returned = lock(&self.returned);
        let mut range = returned.ranges.pop()?;
        if range.len() as u32 > want {
            returned.ranges.push(range.start + want..range.end);
            range.end = range.start + want;
        }
        self.hint.fetch_sub(range.len() as u32, Ordering::AcqRel);
        Some(range)
    }

    /// What was claimed and not run is free again, or cancelled if the set was closed meanwhile.
    pub(crate) fn give_back(self: &Arc<Self>, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        {
            let mut returned = lock(&self.returned);
            if !returned.closed {
                self.hint.fetch_add(range.len() as u32, Ordering::AcqRel);
                self.event(Kind::GivenBack, range.start, range.end, 0, Event::NO_WORKER);
                returned.ranges.push(range);
                return;
            }
        }
        self.settle(Settlement::cancelled(range));
    }

    /// A chunk begins. False: it must not, the set is closed. Pairs with `end_chunk`.
    #[must_use]
    pub(crate) fn begin_chunk(&self) -> bool {
        // One word with STOP: either the closer sees this chunk running, or the chunk sees STOP.
        self.running.fetch_add(1, Ordering::AcqRel) & STOP == 0
    }

    pub(crate) fn end_chunk(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
    }

    /// The outcomes of a claimed range go to the gate, through the journal if there is one. Only the claim's owner may call it.
    pub(crate) fn settle(self: &Arc<Self>, settlement: Settlement) {
        match self.executor.sink() {
            Some(sink) => sink.settled(self, settlement),
            None => self.arrive(settlement),
        }
    }

    /// The gate is told: once for each settlement, by [`Sink`] or directly.
    pub fn arrive(self: &Arc<Self>, settlement: Settlement) {
        let (start, stop) = (settlement.start, settlement.stop);
        if start >= stop {
            return;
        }
        let mut clean = start;
        for &(index, state) in &settlement.except {
            self.states.fill(clean, index, settlement.state);
            self.states.fill(index, index + 1, state);
            clean = index + 1;
        }
        self.states.fill(clean, stop, settlement.state);

        let completed = settlement.count(InstanceState::Completed);
        let lost = stop - start - completed;
        let mut failed = 0;
        if lost > 0 {
            let cancelled = settlement.count(InstanceState::Cancelled);
            let timed_out = settlement.count(InstanceState::TimedOut);
            failed = lost - cancelled - timed_out;
            if cancelled > 0 {
                self.cancelled.fetch_add(cancelled, Ordering::AcqRel);
            }
            if failed + timed_out > 0 {
                let step = u64::from(timed_out) << 32 | u64::from(failed);
                self.failures.fetch_add(step, Ordering::AcqRel);
            }
            failed += timed_out;
        }
        if let Some(words) = &self.ratio
            && completed + failed > 0
        {
            let step = u64::from(completed) << 32 | u64::from(failed);
            let ended = words.ended.fetch_add(step, Ordering::AcqRel) + step;
            if self
                .policy
                .on_failure
                .is_share_exceeded((ended >> 32) as u32, ended as u32)
            {
                words.exceeded.store(true, Ordering::Release);
            }
        }
        if let (Some(words), Join::Weighted(weights)) = (&self.weight, &self.policy.join) {
            let total = weights.of(start, stop);
            let named: u64 = settlement
                .except
                .iter()
                .map(|&(index, _)| weights.of(index, index + 1))
                .sum();
            let completed = match settlement.state {
                InstanceState::Completed => total - named,
                _ => settlement
                    .except
                    .iter()
                    .filter(|(_, state)| *state == InstanceState::Completed)
                    .map(|&(index, _)| weights.of(index, index + 1))
                    .sum(),
            };
            words.gained.fetch_add(completed, Ordering::AcqRel);
            words
                .spare
                .fetch_sub((total - completed) as i64, Ordering::AcqRel);
        }
        self.log.push(start..stop);
        self.record(&settlement);
        let now = self.tally.settle(completed, lost);
        self.call_all(self.verdict.ring_settled());
        self.stepped(now);
    }

    /// One record for each run of the same outcome.
    fn record(&self, settlement: &Settlement) {
        let (took, worker) = (settlement.took, settlement.worker);
        let mut run = (settlement.start, settlement.state);
        let mut turn = |index: u32, state: InstanceState| {
            if state != run.1 {
                if run.0 < index {
                    self.event(kind_of(run.1), run.0, index, took, worker);
                }
                run = (index, state);
            }
        };
        let mut clean = settlement.start;
        for &(index, state) in &settlement.except {
            if clean < index {
                turn(clean, settlement.state);
            }
            turn(index, state);
            clean = index + 1;
        }
        if clean < settlement.stop {
            turn(clean, settlement.state);
        }
        self.event(kind_of(run.1), run.0, settlement.stop, took, worker);
    }

    /// After each step of the tally: is it decided, drained, finished?
    fn stepped(self: &Arc<Self>, now: Snapshot) {
        // Before the decision: who has waited for that may ask when it was over.
        if now.is_finished() {
            self.finished();
        }
        self.judge(now);
        if now.outstanding() == 0 {
            self.emptied(now);
        }
    }

    fn judge(self: &Arc<Self>, now: Snapshot) {
        if self.verdict.is_chosen() {
            return;
        }
        let failures = self.failures.load(Ordering::Acquire);
        let failed = failures as u32 + (failures >> 32) as u32;
        let exceeded = self
            .ratio
            .as_ref()
            .is_some_and(|words| words.exceeded.load(Ordering::Acquire));
        let verdict = match (&self.weight, &self.policy.join) {
            (Some(words), Join::Weighted(weights))
                if words.gained.load(Ordering::Acquire) >= weights.at_least =>
            {
                Some(Decision::Fired)
            }
            (Some(words), _) if words.spare.load(Ordering::Acquire) < 0 => Some(Decision::Failed),
            _ => self.policy.judge(now, failed, exceeded, self.len()),
        };
        if let Some(decision) = verdict {
            self.decide(decision);
        }
    }

    /// Decides the gate. True for exactly one caller.
    pub(crate) fn decide(self: &Arc<Self>, decision: Decision) -> bool {
        if !self.verdict.choose(decision) {
            return false;
        }
        match self.executor.sink() {
            Some(sink) => sink.decided(self, decision),
            None => self.publish(decision),
        }
        true
    }

    /// The chosen decision takes effect: the rest is dealt with, then it is seen, then what follows it is called.
    pub fn publish(self: &Arc<Self>, decision: Decision) {
        let kind = match decision {
            Decision::Fired => Kind::GateFired,
            Decision::Failed => Kind::GateFailed,
            Decision::Cancelled => Kind::GateCancelled,
            Decision::TimedOut => Kind::GateTimedOut,
        };
        self.event(kind, 0, self.len(), 0, Event::NO_WORKER);
        if self.policy.rest == Rest::Cancel {
            self.close();
        } else {
            self.take_token();
        }
        self.verdict.publish();
        self.call_all(self.verdict.ring_decided(decision));
    }

    /// Makes the count final. Twice is once.
    pub fn seal(self: &Arc<Self>) {
        self.take_token();
    }

    /// Closes `end` and takes the creation token; the lock is free again before anything is judged.
    fn take_token(self: &Arc<Self>) {
        if !self.is_open() {
            return;
        }
        let taken = {
            let _adding = lock(&self.adding);
            self.take_token_locked()
        };
        if let Some(now) = taken {
            self.stepped(now);
            // For who feeds it: it takes no more.
            self.call_all(self.verdict.ring_settled());
        }
    }

    fn take_token_locked(&self) -> Option<Snapshot> {
        let end = self.end.fetch_or(CLOSED, Ordering::AcqRel);
        if end & CLOSED != 0 {
            return None;
        }
        let count = end as u32;
        if let (Some(words), Join::Weighted(weights)) = (&self.weight, &self.policy.join) {
            let total = weights.of(0, count) as i64;
            words.spare.fetch_add(total - BIAS, Ordering::AcqRel);
        }
        self.event(Kind::Sealed, 0, count, 0, Event::NO_WORKER);
        Some(self.tally.seal())
    }

    /// More instances, before the seal. `place` puts their items where the bodies will look, from the index it is given.
    ///
    /// # Errors
    /// [`Error::Sealed`] after the seal, [`Error::Limit`] past a limit, [`Error::Join`] past the weights; then nothing was created.
    pub(crate) fn add(&self, count: u64, place: impl FnOnce(u32)) -> Result<Range<u32>> {
        let adding = lock_soon(&self.adding);
        let end = self.end.load(Ordering::Acquire);
        if end & CLOSED != 0 {
            return Err(Error::Sealed);
        }
        let stop = self.limits.check_set(end.saturating_add(count))?;
        if let Join::Weighted(weights) = &self.policy.join
            && stop > weights.len()
        {
            return Err(Error::Join(format!(
                "weighted() has {} weights, and this would be instance {stop}; give one for each",
                weights.len()
            )));
        }
        match self.case() {
            Some(case) => case.reserve(count)?,
            None => self.limits.check_case(u64::from(stop))?,
        }
        let start = end as u32;
        self.states.reserve(stop);
        place(start);
        self.tally.add(stop - start);
        // Before they can be claimed: what happens to them comes later in the record too.
        self.event(Kind::Added, start, stop, 0, Event::NO_WORKER);
        self.end.store(u64::from(stop), Ordering::Release);
        drop(adding);
        Ok(start..stop)
    }

    /// Notes the end, once.
    fn finished(&self) {
        let at = self.executor.clock().ticks();
        if self.finished_at.set(at).is_ok() {
            let life = at.saturating_sub(self.called);
            self.executor.ticks().record(Phase::Life, self.len(), life);
        }
    }

    /// None is outstanding: wakes who drains; an idle set seals itself.
    fn emptied(self: &Arc<Self>, now: Snapshot) {
        if self.seal == Seal::WhenIdle && !now.is_finished() {
            let taken = {
                let _adding = lock(&self.adding);
                // Adding holds this lock: what is idle here stays idle until the token is gone.
                (self.tally.read().outstanding() == 0)
                    .then(|| self.take_token_locked())
                    .flatten()
            };
            if let Some(now) = taken {
                self.stepped(now);
            }
        }
        self.call_all(self.verdict.ring_all());
    }

    /// A set that is born empty has no settling to be judged at, or to be idle after.
    pub(crate) fn born(self: &Arc<Self>) {
        let now = self.tally.read();
        if now.is_finished() || (self.seal == Seal::WhenIdle && now.outstanding() == 0) {
            self.stepped(now);
        }
    }

    /// Closes the set to claims and additions and cancels all that nobody has. Any number of threads may do it at once.
    pub(crate) fn close(self: &Arc<Self>) {
        self.running.fetch_or(STOP, Ordering::AcqRel);
        self.take_token();
        let end = u64::from(self.len());
        let mut taken = Vec::new();
        // The swap and every claim are ordered by this one word: what it was is where the unclaimed begin.
        // An open set's `end` is final here, so its cursor needs no value past it.
        let past = if self.seal == Seal::AtOnce { PAST } else { end };
        let cursor = self.cursor.swap(past, Ordering::AcqRel);
        if cursor < end {
            taken.push(cursor as u32..end as u32);
        }
        {
            let mut returned = lock(&self.returned);
            returned.closed = true;
            taken.append(&mut returned.ranges);
            self.hint.store(0, Ordering::Release);
        }
        for range in taken {
            self.settle(Settlement::cancelled(range));
        }
    }

    /// Ends the set from outside: the gate is `cancelled`, what has not begun is cancelled, nothing can be added. Idempotent.
    pub fn cancel(self: &Arc<Self>) {
        self.end_as(Decision::Cancelled);
    }

    /// Ends the set from outside as a success: the gate fires now, what has not begun is cancelled. Idempotent.
    pub fn complete(self: &Arc<Self>) {
        self.end_as(Decision::Fired);
    }

    /// Fails the gate from outside: what feeds the set raised.
    pub fn fail(self: &Arc<Self>) {
        self.end_as(Decision::Failed);
    }

    /// As `cancel`, without waiting for a journal that has to write the decision down first.
    pub(crate) fn cancel_soon(self: &Arc<Self>) {
        self.choose_end(Decision::Cancelled);
    }

    fn end_as(self: &Arc<Self>, decision: Decision) {
        self.choose_end(decision);
        self.verdict.wait(None, || self.verdict.get());
    }

    fn choose_end(self: &Arc<Self>, decision: Decision) {
        // Decide first: closing settles, and a settling would decide otherwise. Then close, won or lost: nothing begins after this returned.
        self.decide(decision);
        self.close();
    }

    /// Blocks until the gate is decided, at most until `deadline`.
    pub fn wait_decided(&self, deadline: Option<Instant>) -> Option<Decision> {
        self.verdict
            .get()
            .or_else(|| self.verdict.wait(deadline, || self.verdict.get()))
    }

    /// Blocks until none is pending or running, at most until `deadline`.
    pub fn wait_drained(&self, deadline: Option<Instant>) -> bool {
        self.is_drained()
            || self
                .verdict
                .wait(deadline, || self.is_drained().then_some(()))
                .is_some()
    }

    /// The next up to `most` indices in the order of settling, from `place` on, which moves past them. Blocks until there are some;
    /// an empty range says that nothing will come any more, `None` that the deadline passed.
    pub fn wait_settled(
        &self,
        place: &mut Place,
        most: u32,
        deadline: Option<Instant>,
    ) -> Option<Range<u32>> {
        self.verdict.watch(deadline, || {
            // Looked at first: what settles between the two looks is found by the second.
            let finished = self.is_finished() && self.decision().is_some();
            self.log
                .next(place, most)
                .or_else(|| finished.then_some(0..0))
        })
    }

    /// Blocks until fewer than `below` are unclaimed, or the set takes no more.
    pub fn wait_hungry(&self, below: u32) {
        self.verdict.watch(None, || {
            (self.unclaimed() < below || !self.is_open()).then_some(())
        });
    }

    /// Has `f` called with the decision, on a worker: at once, with no way back, if it is there already.
    pub fn on_decided(&self, f: Continuation) -> Option<Asked> {
        match self.verdict.then(f) {
            Ok(asked) => Some(asked),
            Err((f, decision)) => {
                self.executor.call(Box::new(move || f(decision)));
                None
            }
        }
    }

    /// Has `f` called, on a worker, when something settles after this; who asks looks afterwards whether that was already so.
    pub fn on_settled(&self, f: Callback) -> Asked {
        self.verdict.then_settled(f)
    }

    /// Takes back what was asked for, if it was not called yet.
    pub fn forget(&self, asked: Asked) {
        self.verdict.forget(asked);
    }

    fn call_all(&self, calls: Vec<Callback>) {
        calls.into_iter().for_each(|call| self.executor.call(call));
    }

    /// Wakes those who wait, so that they look at something of their own.
    pub fn nudge(&self) {
        self.call_all(self.verdict.ring_all());
    }

    /// The first number of completions that fires the gate, as far as it is known.
    #[must_use]
    pub fn target(&self) -> Option<u32> {
        match &self.policy.join {
            Join::AtLeast {
                need: Need::Count(n),
                ..
            } => Some(*n),
            Join::AtLeast { need, .. } => (!self.is_open()).then(|| need.of(self.len())),
            Join::AllOf => (!self.is_open()).then(|| self.len()),
            Join::Weighted(_) | Join::Detached => None,
        }
    }

    pub(crate) fn event(&self, kind: Kind, start: u32, stop: u32, took: u64, worker: u32) {
        let at = self.executor.clock().ticks();
        self.event_at(at, kind, start, stop, took, worker);
    }

    pub(crate) fn event_at(
        &self,
        at: u64,
        kind: Kind,
        start: u32,
        stop: u32,
        took: u64,
        worker: u32,
    ) {
        self.executor.record(Event {
            seq: 0,
            at,
            took,
            set: self.id,
            start,
            stop,
            kind,
            worker,
        });
    }
}

fn kind_of(state: InstanceState) -> Kind {
    match state {
        InstanceState::Completed => Kind::Completed,
        InstanceState::Failed => Kind::Failed,
        InstanceState::TimedOut => Kind::TimedOut,
        InstanceState::Cancelled | InstanceState::Pending | InstanceState::Running => {
            Kind::Cancelled
        }
    }
}

/// How far a reader of the log has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    entry: usize,
    offset: u32,
}

impl Log {
    // Under loom none goes further: it does not see what a standard `OnceLock` orders.
    const FIRST: usize = if cfg!(loom) {
        4
    } else if cfg!(shuttle) {
        2
    } else {
        8
    };

    fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            first: std::array::from_fn(|_| AtomicU64::new(0)),
            more: OnceLock::new(),
        }
    }

    fn find(&self, place: usize) -> Option<&AtomicU64> {
        match place.checked_sub(Self::FIRST) {
            None => Some(&self.first[place]),
            Some(place) => self.more.get()?.find(place),
        }
    }

    fn push(&self, range: Range<u32>) {
        let place = self.taken.fetch_add(1, Ordering::Relaxed) as usize;
        if place >= Self::FIRST {
            #[cfg(not(any(loom, shuttle)))]
            let growing = Column::growing_zeroed;
            #[cfg(any(loom, shuttle))]
            let growing = Column::growing;
            self.more
                .get_or_init(growing)
                .reserve(place - Self::FIRST + 1);
        }
        let entry = u64::from(range.start) << 32 | u64::from(range.end);
        // Release pairs with `next`: who finds the range finds its states and values.
        if let Some(word) = self.find(place) {
            word.store(entry, Ordering::Release);
        }
    }

    fn next(&self, place: &mut Place, most: u32) -> Option<Range<u32>> {
        loop {
            let entry = self.find(place.entry)?.load(Ordering::Acquire);
            if entry == 0 {
                return None;
            }
            let (start, end) = ((entry >> 32) as u32 + place.offset, entry as u32);
            if start < end {
                let stop = end.min(start.saturating_add(most));
                place.offset += stop - start;
                return Some(start..stop);
            }
            *place = Place {
                entry: place.entry + 1,
                offset: 0,
            };
        }
    }
}

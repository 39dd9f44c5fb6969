//! Every interleaving of two or three threads over the words of `PROTOCOL.md`; each model ends by checking that nothing was lost and nothing was decided twice.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use loom::thread;

mod alone;
mod ending;
mod open;
mod pairs;
mod settle;
mod waiting;

use crate::{
    Decision, Event, InstanceState, Join, Limits, Need, OnFailure, Place, Policy, Rest, Seal, Set,
    Settlement, Sink, Spec, Weights, clock::Clock, executor::Executor, state::Counts,
};

/// Explores a model, and prints how many interleavings that were. `bound` is how many preemptions one interleaving may have: `None` is
/// exhaustive; a model has a bound where all interleavings take minutes. `SHOAL_LONG` raises the bounds by one.
fn explore(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    static TOTAL: AtomicUsize = AtomicUsize::new(0);
    let name = std::thread::current()
        .name()
        .and_then(|name| name.rsplit("::").next())
        .unwrap_or("a model")
        .to_owned();
    let bound = bound.map(|bound| bound + usize::from(std::env::var_os("SHOAL_LONG").is_some()));
    let start = Instant::now();
    let explored = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = 20_000;
    let counter = Arc::clone(&explored);
    builder.check(move || {
        counter.fetch_add(1, SeqCst);
        model();
    });
    let explored = explored.load(SeqCst);
    let total = TOTAL.fetch_add(explored, SeqCst) + explored;
    println!(
        "loom: {name}: {explored} interleavings, {}, {:.1} s ({total} so far)",
        bound.map_or("exhaustive".to_owned(), |bound| format!(
            "at most {bound} preemptions"
        )),
        start.elapsed().as_secs_f64(),
    );
}

/// A set, and what everybody outside saw of it. What the witness keeps is no part of the model: it adds no interleavings.
#[derive(Clone)]
struct World {
    set: Arc<Set>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    settled: Mutex<Vec<Settlement>>,
    /// With how many were said to be completed by then.
    decided: Mutex<Vec<(Decision, u32)>>,
    called: Mutex<Vec<Decision>>,
    /// There is a continuation.
    continues: AtomicBool,
    /// Somebody's `cancel`, `complete` or `close` returned.
    closed: AtomicBool,
}

/// The sink is the one way to the gate, so it sees each settlement and each decision.
struct Witness(Arc<Seen>);

impl Sink for Witness {
    fn settled(&self, set: &Arc<Set>, settlement: Settlement) {
        self.0.settled.lock().unwrap().push(settlement.clone());
        set.arrive(settlement);
    }

    fn decided(&self, set: &Arc<Set>, decision: Decision) {
        let told = self.0.settled.lock().unwrap();
        let completed = told
            .iter()
            .filter(|settlement| settlement.state == InstanceState::Completed)
            .map(|settlement| settlement.stop - settlement.start - settlement.except.len() as u32)
            .sum();
        drop(told);
        self.0.decided.lock().unwrap().push((decision, completed));
        set.publish(decision);
    }
}

impl World {
    fn new(spec: Spec) -> Self {
        let world = Self::bare(spec);
        let seen = Arc::clone(&world.seen);
        world.set.on_decided(Box::new(move |decision| {
            seen.called.lock().unwrap().push(decision);
        }));
        world.seen.continues.store(true, SeqCst);
        world
    }

    /// Without a continuation, which somebody would have to lock the bell for.
    fn bare(spec: Spec) -> Self {
        let seen = Arc::new(Seen::default());
        let sink = Box::new(Witness(Arc::clone(&seen)));
        let executor = Executor::new(1, "loom", Clock::manual().0, Some(sink)).unwrap();
        let set = Set::new(0, spec, &Limits::default(), executor).unwrap();
        set.born();
        Self { set, seen }
    }

    fn spawn<R: 'static>(&self, f: impl FnOnce(&Self) -> R + 'static) -> thread::JoinHandle<R> {
        let world = self.clone();
        thread::spawn(move || f(&world))
    }

    /// What a worker does with one chunk: false if there was nothing to claim.
    fn run(&self, want: u32, failing: &[u32]) -> bool {
        match self.set.claim(want) {
            Some(range) => {
                self.run_range(range, failing);
                true
            }
            None => false,
        }
    }

    fn run_range(&self, range: Range<u32>, failing: &[u32]) {
        let state = if self.set.begin_chunk() {
            assert!(
                !self.seen.closed.load(SeqCst),
                "nothing begins after the set was closed"
            );
            InstanceState::Completed
        } else {
            InstanceState::Cancelled
        };
        let failing = if state == InstanceState::Completed {
            failing
        } else {
            &[]
        };
        self.settle(range, state, failing);
        self.set.end_chunk();
    }

    fn settle(&self, range: Range<u32>, state: InstanceState, failing: &[u32]) {
        let failed = failing.iter().filter(|index| range.contains(index));
        self.set.settle(Settlement {
            start: range.start,
            stop: range.end,
            state,
            except: failed
                .map(|&index| (index, InstanceState::Failed))
                .collect(),
            took: 0,
            worker: Event::NO_WORKER,
        });
    }

    fn closed(&self) {
        self.seen.closed.store(true, SeqCst);
    }

    /// The conservation laws of a set whose threads are gone: each index terminal exactly once, in the bytes, in the counters, in the log;
    /// decided once. Answers with what it came to.
    fn over(&self) -> (Decision, Counts) {
        let (set, seen) = (&self.set, &self.seen);
        assert!(set.is_finished() && !set.is_open());
        assert!(
            set.claim(1).is_none() && set.unclaimed() == 0,
            "none is left"
        );
        let len = set.len() as usize;

        let mut times = vec![0; len];
        for settlement in seen.settled.lock().unwrap().iter() {
            (settlement.start..settlement.stop).for_each(|index| times[index as usize] += 1);
        }
        assert_eq!(times, vec![1; len], "each is settled exactly once");

        let mut logged = vec![0; len];
        let mut place = Place::default();
        loop {
            let range = set.wait_settled(&mut place, u32::MAX, None).unwrap();
            if range.is_empty() {
                break;
            }
            range.for_each(|index| logged[index as usize] += 1);
        }
        assert_eq!(logged, vec![1; len], "each is in the log exactly once");

        let mut bytes = Counts::default();
        for index in 0..set.len() {
            match set.settled(index) {
                InstanceState::Completed => bytes.completed += 1,
                InstanceState::Failed => bytes.failed += 1,
                InstanceState::Cancelled => bytes.cancelled += 1,
                InstanceState::TimedOut => bytes.timed_out += 1,
                state => panic!("{index} is {state}"),
            }
        }
        assert_eq!(set.counts(), bytes, "counters and bytes agree");
        assert_eq!(bytes.total() as usize, len);

        let decided = seen.decided.lock().unwrap();
        assert_eq!(decided.len(), 1, "decided once: {decided:?}");
        assert_eq!(set.decision(), Some(decided[0].0));
        let called = seen.called.lock().unwrap();
        let expected = usize::from(seen.continues.load(SeqCst));
        assert_eq!(called.len(), expected, "continued once");
        assert!(called.iter().all(|called| *called == decided[0].0));
        (decided[0].0, bytes)
    }

    /// How many had completed when it was decided.
    fn completed_at_decision(&self) -> u32 {
        self.seen.decided.lock().unwrap()[0].1
    }
}

fn at_least(n: u32) -> Policy {
    Policy::new(Join::AtLeast {
        need: Need::Count(n),
        or_all: false,
    })
}

fn going_on(policy: Policy) -> Policy {
    Policy {
        rest: Rest::Continue,
        ..policy
    }
}

fn failing_as(on_failure: OnFailure) -> Policy {
    Policy {
        on_failure,
        ..Policy::default()
    }
}

fn fixed(count: u64, policy: Policy) -> World {
    World::new(Spec {
        policy,
        ..Spec::of(count)
    })
}

fn open(count: u64, policy: Policy) -> World {
    World::new(Spec {
        policy,
        seal: Seal::Manual,
        ..Spec::of(count)
    })
}

fn completed(completed: u32) -> Counts {
    Counts {
        completed,
        ..Counts::default()
    }
}

fn weighted(weights: [u64; 2], at_least: u64) -> Policy {
    Policy::new(Join::Weighted(Weights::new(weights, at_least).unwrap()))
}

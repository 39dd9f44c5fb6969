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

use crate::{
    Calls, Decision, Engine, Error, Event, Gate, InstanceState, Join, Kind, Limits, Need,
    OnFailure, Options, Place, Policy, Rest, Ring, Seal, Set, Settlement, Sink, Spec, Weights,
    clock::Clock, cost::Cost, executor::Executor, state::Counts,
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
    decided: Mutex<Vec<(Decision, Counts)>>,
    called: Mutex<Vec<Decision>>,
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
        let counts = set.counts();
        self.0.decided.lock().unwrap().push((decision, counts));
        set.publish(decision);
    }
}

impl World {
    fn new(spec: Spec) -> Self {
        let seen = Arc::new(Seen::default());
        let sink = Box::new(Witness(Arc::clone(&seen)));
        let executor = Executor::new(1, "loom", Clock::manual().0, Some(sink)).unwrap();
        let set = Arc::new(Set::new(0, spec, &Limits::default(), executor).unwrap());
        set.born();
        let called = Arc::clone(&seen);
        set.on_decided(Box::new(move |decision| {
            called.called.lock().unwrap().push(decision);
        }));
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
        let failed = failing
            .iter()
            .filter(|index| state == InstanceState::Completed && range.contains(index));
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
        self.set.end_chunk();
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
        assert_eq!(
            *seen.called.lock().unwrap(),
            [decided[0].0],
            "continued once"
        );
        (decided[0].0, bytes)
    }

    /// The counts that the decider saw.
    fn at_decision(&self) -> Counts {
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

// Claim and settle

#[test]
fn all_of_fires_once_and_only_when_both_settlers_are_done() {
    explore(None, || {
        let world = fixed(2, Policy::default());
        let other = world.spawn(|world| world.run(1, &[]));
        assert!(world.run(1, &[]));
        assert!(other.join().unwrap());
        assert_eq!(world.over().0, Decision::Fired);
        assert_eq!(world.at_decision().completed, 2, "the last one decides");
    });
}

#[test]
fn a_threshold_fires_once_at_the_nth_and_the_rest_is_cancelled() {
    explore(Some(3), || {
        let world = fixed(3, at_least(2));
        let other = world.spawn(|world| while world.run(1, &[]) {});
        while world.run(1, &[]) {}
        other.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!(decision, Decision::Fired);
        assert!(counts.completed >= 2 && world.at_decision().completed >= 2);
    });
}

#[test]
fn a_threshold_that_lets_the_rest_go_on_counts_them_and_decides_nothing_more() {
    explore(None, || {
        let world = fixed(2, going_on(at_least(1)));
        let other = world.spawn(|world| world.run(1, &[]));
        world.run(1, &[]);
        other.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!((decision, counts.completed), (Decision::Fired, 2));
    });
}

#[test]
fn chunks_that_share_a_word_of_state_bytes_keep_each_their_own() {
    explore(None, || {
        let world = fixed(5, failing_as(OnFailure::FailLate));
        let other = world.spawn(|world| world.run(3, &[1, 3]));
        world.run(3, &[1, 3]);
        other.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!(
            (decision, counts.completed, counts.failed),
            (Decision::Failed, 3, 2)
        );
    });
}

// Failures

#[test]
fn fail_fast_fails_once_whoever_comes_first() {
    explore(None, || {
        let world = fixed(2, Policy::default());
        let other = world.spawn(|world| world.run(1, &[0]));
        world.run(1, &[0]);
        other.join().unwrap();
        let (decision, counts) = world.over();
        assert!(counts.completed + counts.cancelled <= 2);
        // Either 0 ran and failed, or nobody got to it; but somebody always claims it first.
        assert_eq!((decision, counts.failed), (Decision::Failed, 1));
    });
}

#[test]
fn a_tolerated_failure_does_not_fail_the_gate() {
    explore(None, || {
        let world = fixed(2, failing_as(OnFailure::Tolerate(1)));
        let other = world.spawn(|world| world.run(1, &[0]));
        world.run(1, &[0]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Fired);
    });
}

#[test]
fn one_failure_more_than_tolerated_fails_it_though_each_settler_saw_one() {
    explore(None, || {
        let world = fixed(2, failing_as(OnFailure::Tolerate(1)));
        let other = world.spawn(|world| world.run(1, &[0, 1]));
        world.run(1, &[0, 1]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Failed);
    });
}

#[test]
fn a_tolerated_share_is_judged_at_each_settling() {
    explore(None, || {
        let world = fixed(
            2,
            failing_as(OnFailure::TolerateFraction {
                fraction: 0.4,
                after: 2,
            }),
        );
        let other = world.spawn(|world| world.run(1, &[0]));
        world.run(1, &[0]);
        other.join().unwrap();
        assert_eq!(
            world.over().0,
            Decision::Failed,
            "one of two is more than 0.4"
        );
    });
}

#[test]
fn a_threshold_that_can_no_longer_be_met_fails_there_and_then() {
    explore(None, || {
        let world = fixed(2, at_least(2));
        let other = world.spawn(|world| world.run(1, &[0]));
        world.run(1, &[0]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Failed);
    });
}

// Ending from outside

#[test]
fn cancel_racing_a_worker_cancels_what_has_not_begun_and_nothing_begins_after() {
    explore(None, || {
        let world = fixed(2, Policy::default());
        let other = world.spawn(|world| while world.run(1, &[]) {});
        world.set.cancel();
        world.closed();
        let at_return = world.set.decision();
        other.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!(
            Some(decision),
            at_return,
            "the decision is there when cancel returns"
        );
        match decision {
            Decision::Fired => assert_eq!(counts.completed, 2),
            decision => assert_eq!(decision, Decision::Cancelled),
        }
    });
}

#[test]
fn complete_racing_a_settler_fires_once() {
    explore(None, || {
        let world = fixed(2, Policy::default());
        let other = world.spawn(|world| while world.run(1, &[]) {});
        world.set.complete();
        world.closed();
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Fired);
    });
}

#[test]
fn cancel_racing_complete_one_of_them_wins() {
    explore(None, || {
        let world = fixed(2, Policy::default());
        let other = world.spawn(|world| {
            world.set.complete();
            world.set.decision()
        });
        world.set.cancel();
        let mine = world.set.decision();
        let theirs = other.join().unwrap();
        let (decision, counts) = world.over();
        assert!(matches!(decision, Decision::Fired | Decision::Cancelled));
        assert_eq!(
            (mine, theirs),
            (Some(decision), Some(decision)),
            "both callers see the one decision"
        );
        assert_eq!(counts.cancelled, 2);
    });
}

#[test]
fn cancel_racing_complete_and_a_worker() {
    // Exhaustive takes minutes.
    explore(Some(2), || {
        let world = fixed(2, Policy::default());
        let completer = world.spawn(|world| {
            world.set.complete();
            world.closed();
        });
        let worker = world.spawn(|world| while world.run(1, &[]) {});
        world.set.cancel();
        world.closed();
        completer.join().unwrap();
        worker.join().unwrap();
        world.over();
    });
}

#[test]
fn a_chunk_that_begins_against_close_either_begins_before_it_or_is_cancelled() {
    explore(None, || {
        let world = fixed(1, going_on(Policy::default()));
        let range = world.set.claim(1).unwrap();
        let other = world.spawn(|world| world.run_range(range, &[]));
        world.set.close();
        world.closed();
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Fired);
    });
}

// Give back

#[test]
fn what_is_given_back_while_the_set_closes_is_cancelled_and_none_is_lost() {
    explore(None, || {
        let world = fixed(2, Policy::default());
        let range = world.set.claim(2).unwrap();
        let other = world.spawn(|world| world.set.give_back(range));
        world.set.cancel();
        world.closed();
        other.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!((decision, counts.cancelled), (Decision::Cancelled, 2));
    });
}

#[test]
fn what_is_given_back_is_claimed_by_one() {
    explore(None, || {
        let world = fixed(3, Policy::default());
        let range = world.set.claim(3).unwrap();
        let other = world.spawn(|world| world.run(2, &[]));
        world.set.give_back(range.start + 1..range.end);
        world.run_range(range.start..range.start + 1, &[]);
        while world.run(1, &[]) {}
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Fired);
    });
}

#[test]
fn a_claimer_a_giver_and_a_closer_share_the_indices_out() {
    // Exhaustive takes minutes.
    explore(Some(2), || {
        let world = fixed(3, Policy::default());
        let range = world.set.claim(2).unwrap();
        let giver = world.spawn(|world| world.set.give_back(range));
        let claimer = world.spawn(|world| while world.run(1, &[]) {});
        world.set.cancel();
        world.closed();
        giver.join().unwrap();
        claimer.join().unwrap();
        world.over();
    });
}

// Open sets

#[test]
fn add_racing_seal_racing_a_worker_wins_or_is_told() {
    // Exhaustive takes minutes.
    explore(Some(2), || {
        let world = open(1, Policy::default());
        let adder = world.spawn(|world| {
            let placed = AtomicBool::new(false);
            let added = world.set.add(1, |start| {
                assert_eq!(start, 1);
                placed.store(true, SeqCst);
            });
            match &added {
                Ok(range) => assert_eq!((range.clone(), placed.into_inner()), (1..2, true)),
                Err(error) => assert_eq!((error, placed.into_inner()), (&Error::Sealed, false)),
            }
            // As the executor would: whoever added has somebody look.
            while world.run(1, &[]) {}
            added.is_ok()
        });
        let worker = world.spawn(|world| while world.run(1, &[]) {});
        world.set.seal();
        let len = world.set.len();
        let added = adder.join().unwrap();
        worker.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!(decision, Decision::Fired);
        assert_eq!(counts.completed, 1 + u32::from(added));
        assert_eq!(counts.total(), len, "the count is final when seal returns");
    });
}

#[test]
fn a_set_that_is_open_does_not_fire_however_fast_its_instances_finish() {
    explore(None, || {
        let world = open(1, Policy::default());
        let other = world.spawn(|world| {
            world.run(1, &[]);
            assert_eq!(world.set.decision(), None, "creation holds a token");
            world.set.add(1, |_| {}).unwrap();
            world.run(1, &[]);
            world.set.seal();
        });
        let early = world.set.counts();
        assert!(early.total() >= early.completed && early.total() <= 2);
        other.join().unwrap();
        assert_eq!(world.over(), (Decision::Fired, completed(2)));
    });
}

fn completed(completed: u32) -> Counts {
    Counts {
        completed,
        ..Counts::default()
    }
}

/// Seal races the settling of all there is.
fn seal_against_settle(policy: Policy, failing: &'static [u32]) -> (Decision, Counts) {
    let world = open(2, policy);
    let range = world.set.claim(2).unwrap();
    let other = world.spawn(move |world| world.run_range(range, failing));
    world.set.seal();
    other.join().unwrap();
    world.over()
}

#[test]
fn seal_racing_settle_all_of_fires() {
    explore(None, || {
        assert_eq!(
            seal_against_settle(Policy::default(), &[]),
            (Decision::Fired, completed(2))
        );
    });
}

#[test]
fn seal_racing_settle_twice_is_once() {
    explore(None, || {
        let world = open(1, Policy::default());
        let sealer = world.spawn(|world| world.set.seal());
        let worker = world.spawn(|world| world.run(1, &[]));
        world.set.seal();
        sealer.join().unwrap();
        worker.join().unwrap();
        assert_eq!(world.over().0, Decision::Fired);
    });
}

#[test]
fn seal_racing_settle_a_threshold_above_the_count_fails() {
    explore(None, || {
        assert_eq!(seal_against_settle(at_least(3), &[]).0, Decision::Failed);
    });
}

#[test]
fn seal_racing_settle_a_threshold_or_all_fires() {
    explore(None, || {
        let policy = Policy::new(Join::AtLeast {
            need: Need::Count(3),
            or_all: true,
        });
        assert_eq!(seal_against_settle(policy, &[]).0, Decision::Fired);
    });
}

#[test]
fn seal_racing_settle_a_fraction_knows_its_number_only_after_the_seal() {
    explore(None, || {
        let half = |fraction| {
            Policy::new(Join::AtLeast {
                need: Need::Fraction(fraction),
                or_all: false,
            })
        };
        assert_eq!(seal_against_settle(half(0.5), &[0]).0, Decision::Fired);
    });
    explore(None, || {
        let most = Policy::new(Join::AtLeast {
            need: Need::Fraction(0.6),
            or_all: false,
        });
        assert_eq!(seal_against_settle(most, &[0]).0, Decision::Failed);
    });
}

fn weighted(weights: [u64; 2], at_least: u64) -> Policy {
    Policy::new(Join::Weighted(Weights::new(weights, at_least).unwrap()))
}

#[test]
fn seal_racing_settle_weights_that_fall_short_fail() {
    explore(None, || {
        assert_eq!(
            seal_against_settle(weighted([3, 4], 7), &[0]).0,
            Decision::Failed
        );
    });
}

#[test]
fn seal_racing_settle_weights_that_are_reached_fire() {
    explore(None, || {
        assert_eq!(
            seal_against_settle(weighted([3, 4], 4), &[0]).0,
            Decision::Fired
        );
    });
}

#[test]
fn two_settlers_of_a_weighted_set_reach_it_together() {
    explore(None, || {
        let world = fixed(2, weighted([3, 4], 7));
        let other = world.spawn(|world| world.run(1, &[]));
        world.run(1, &[]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Fired);
    });
}

#[test]
fn two_settlers_of_a_weighted_set_that_lose_enough_fail_it() {
    explore(None, || {
        let world = fixed(2, going_on(weighted([3, 4], 4)));
        let other = world.spawn(|world| world.run(1, &[1]));
        world.run(1, &[1]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Failed);
    });
}

#[test]
fn an_open_set_that_is_cancelled_refuses_more_or_cancels_it() {
    explore(None, || {
        let world = open(1, Policy::default());
        let other = world.spawn(|world| world.set.add(1, |_| {}).is_ok());
        world.set.cancel();
        world.closed();
        let len = world.set.len();
        let added = other.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!(
            (decision, counts.cancelled),
            (Decision::Cancelled, 1 + u32::from(added))
        );
        assert_eq!(
            counts.total(),
            len,
            "nothing can be added after cancel returned"
        );
    });
}

#[test]
fn a_decision_seals_also_where_the_rest_goes_on() {
    explore(None, || {
        let world = open(2, going_on(at_least(1)));
        let other = world.spawn(|world| world.run(1, &[]));
        world.run(1, &[]);
        other.join().unwrap();
        assert_eq!(world.set.add(1, |_| {}), Err(Error::Sealed));
        assert_eq!(world.over(), (Decision::Fired, completed(2)));
    });
}

fn when_idle(count: u64) -> World {
    World::new(Spec {
        seal: Seal::WhenIdle,
        ..Spec::of(count)
    })
}

#[test]
fn when_idle_an_instance_that_adds_keeps_the_set_open_until_all_are_done() {
    explore(None, || {
        let world = when_idle(1);
        let range = world.set.claim(1).unwrap();
        let other = world.spawn(|world| while world.run(1, &[]) {});
        // The body of 0: what it adds is counted before it is settled itself.
        world.set.add(1, |_| {}).unwrap();
        world.run_range(range, &[]);
        while world.run(1, &[]) {}
        other.join().unwrap();
        assert_eq!(world.over(), (Decision::Fired, completed(2)));
    });
}

#[test]
fn when_idle_an_add_from_outside_wins_or_is_told() {
    explore(None, || {
        let world = when_idle(1);
        let other = world.spawn(|world| {
            let added = world.set.add(1, |_| {}).is_ok();
            while world.run(1, &[]) {}
            added
        });
        while world.run(1, &[]) {}
        let added = other.join().unwrap();
        assert_eq!(
            world.over(),
            (Decision::Fired, completed(1 + u32::from(added)))
        );
    });
}

// Waiting

#[test]
fn a_waiter_is_woken_by_the_decider_and_sees_what_was_settled() {
    explore(None, || {
        let world = fixed(1, Policy::default());
        let other = world.spawn(|world| world.run(1, &[]));
        assert_eq!(world.set.wait_decided(None), Some(Decision::Fired));
        assert_eq!(world.set.counts().completed, 1);
        assert_eq!(world.set.settled(0), InstanceState::Completed);
        other.join().unwrap();
        world.over();
    });
}

#[test]
fn a_waiter_sees_the_work_of_every_settler_not_only_of_the_last() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = fixed(2, Policy::default());
        let first = world.spawn(|world| world.run(1, &[]));
        let second = world.spawn(|world| world.run(1, &[]));
        assert_eq!(world.set.wait_decided(None), Some(Decision::Fired));
        assert_eq!(world.set.counts().completed, 2);
        for index in 0..2 {
            assert_eq!(world.set.settled(index), InstanceState::Completed);
        }
        first.join().unwrap();
        second.join().unwrap();
        world.over();
    });
}

#[test]
fn a_continuation_that_comes_while_it_is_decided_is_called_once() {
    explore(None, || {
        let world = fixed(1, Policy::default());
        let calls = Arc::new(AtomicUsize::new(0));
        let other = world.spawn(|world| world.run(1, &[]));
        let counter = Arc::clone(&calls);
        world.set.on_decided(Box::new(move |decision| {
            assert_eq!(decision, Decision::Fired);
            counter.fetch_add(1, SeqCst);
        }));
        other.join().unwrap();
        assert_eq!(calls.load(SeqCst), 1);
        world.over();
    });
}

#[test]
fn who_drains_is_woken_when_the_last_one_ends() {
    explore(None, || {
        let world = fixed(2, going_on(at_least(1)));
        let other = world.spawn(|world| while world.run(1, &[]) {});
        assert!(world.set.wait_drained(None));
        assert_eq!(world.set.counts().completed, 2);
        other.join().unwrap();
        world.over();
    });
}

#[test]
fn who_watches_gets_every_settled_index_once_and_then_the_end() {
    explore(None, || {
        let world = fixed(2, Policy::default());
        let other = world.spawn(|world| while world.run(1, &[]) {});
        let (mut place, mut got) = (Place::default(), Vec::new());
        loop {
            let range = world.set.wait_settled(&mut place, 1, None).unwrap();
            if range.is_empty() {
                break;
            }
            for index in range {
                assert_eq!(world.set.settled(index), InstanceState::Completed);
                got.push(index);
            }
        }
        assert_eq!(got, [0, 1]);
        other.join().unwrap();
        world.over();
    });
}

#[test]
fn who_watches_two_settlers_misses_none() {
    // Exhaustive takes minutes. Three ranges: the log holds two in the set itself and goes on elsewhere.
    explore(Some(2), || {
        let world = fixed(3, Policy::default());
        let first = world.spawn(|world| while world.run(1, &[]) {});
        let second = world.spawn(|world| world.run(1, &[]));
        let (mut place, mut got) = (Place::default(), Vec::new());
        loop {
            let range = world.set.wait_settled(&mut place, 2, None).unwrap();
            if range.is_empty() {
                break;
            }
            for index in range {
                assert_eq!(world.set.settled(index), InstanceState::Completed);
                got.push(index);
            }
        }
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2]);
        first.join().unwrap();
        second.join().unwrap();
        world.over();
    });
}

#[test]
fn who_watches_a_set_that_is_only_sealed_is_told_the_end() {
    explore(None, || {
        let world = open(1, Policy::default());
        world.run(1, &[]);
        let other = world.spawn(|world| world.set.seal());
        let mut place = Place::default();
        assert_eq!(world.set.wait_settled(&mut place, 9, None), Some(0..1));
        assert_eq!(world.set.wait_settled(&mut place, 9, None), Some(0..0));
        other.join().unwrap();
        world.over();
    });
}

// Counts

fn watch_counts(world: &World, most: u32) {
    let terminal = |c: &Counts| [c.completed, c.failed, c.cancelled, c.timed_out];
    let mut before = Counts::default();
    for _ in 0..2 {
        let now = world.set.counts();
        let sum: u32 = terminal(&now).iter().sum();
        assert!(sum <= now.total(), "no more ended than there are: {now:?}");
        assert!(
            (1..=most).contains(&now.total()) && now.total() >= before.total(),
            "{now:?}"
        );
        assert!(now.pending <= most && now.running <= most, "{now:?}");
        assert!(
            terminal(&now)
                .iter()
                .zip(terminal(&before))
                .all(|(now, before)| *now >= before),
            "no terminal count shrinks: {before:?} {now:?}"
        );
        before = now;
    }
}

#[test]
fn counts_always_sum_to_the_number_created_while_a_set_grows() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = open(1, failing_as(OnFailure::Continue));
        let other = world.spawn(|world| {
            world.set.add(1, |_| {}).unwrap();
            while world.run(1, &[1]) {}
        });
        watch_counts(&world, 2);
        other.join().unwrap();
        world.set.seal();
        let (decision, counts) = world.over();
        assert_eq!(
            (decision, counts.completed, counts.failed),
            (Decision::Fired, 1, 1)
        );
    });
}

#[test]
fn counts_always_sum_to_the_number_created_while_a_set_is_cancelled() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = fixed(2, Policy::default());
        world.run(1, &[]);
        let other = world.spawn(|world| world.set.cancel());
        watch_counts(&world, 2);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Cancelled);
    });
}

// The gate alone

struct AtOnce;

impl Calls for AtOnce {
    fn call(&self, f: Box<dyn FnOnce() + Send>) {
        f();
    }
}

fn gate(target: u64) -> (Arc<Gate>, Arc<AtomicUsize>) {
    let gate = Arc::new(Gate::new(target, Arc::new(AtOnce)).unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    gate.on_decided(Box::new(move |_| {
        counter.fetch_add(1, SeqCst);
    }));
    (gate, calls)
}

#[test]
fn a_gate_lets_exactly_one_arrival_open_it_and_counts_the_others() {
    explore(None, || {
        let (gate, calls) = gate(2);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || gate.arrive(1))
            })
            .collect();
        let mut opened = usize::from(gate.arrive(1));
        for other in others {
            opened += usize::from(other.join().unwrap());
        }
        assert_eq!(opened, 1);
        assert_eq!((gate.arrived(), calls.load(SeqCst)), (3, 1));
        assert_eq!(gate.decision(), Some(Decision::Fired));
        assert!(!gate.arrive(5), "later arrivals are only counted");
        assert_eq!((gate.arrived(), calls.load(SeqCst)), (8, 1));
    });
}

#[test]
fn a_gate_is_opened_or_cancelled_and_never_both() {
    explore(None, || {
        let (gate, calls) = gate(1);
        let other = Arc::clone(&gate);
        let other = thread::spawn(move || other.arrive(1));
        let cancelled = gate.cancel();
        let opened = other.join().unwrap();
        assert!(opened != cancelled, "one of them");
        let decision = if opened {
            Decision::Fired
        } else {
            Decision::Cancelled
        };
        assert_eq!(gate.wait(None), Some(decision));
        assert_eq!(calls.load(SeqCst), 1);
    });
}

#[test]
fn who_waits_at_a_gate_is_woken() {
    explore(None, || {
        let (gate, _) = gate(2);
        let other = Arc::clone(&gate);
        let other = thread::spawn(move || other.arrive(1));
        let mine = gate.arrive(1);
        assert_eq!(gate.wait(None), Some(Decision::Fired));
        assert!(mine != other.join().unwrap());
    });
}

// The event ring

fn event(n: u64) -> Event {
    Event {
        seq: 0,
        at: n,
        took: n,
        set: n,
        start: n as u32,
        stop: n as u32,
        kind: Kind::Completed,
        worker: n as u32,
    }
}

fn assert_whole(events: &[Event]) {
    for e in events {
        assert_eq!(
            (e.at, e.took, e.start, e.stop, e.worker),
            (e.set, e.set, e.set as u32, e.set as u32, e.set as u32),
            "torn: {e:?}"
        );
    }
}

#[test]
fn a_record_is_never_torn_while_its_slot_is_written_again() {
    // Exhaustive takes minutes: each field is read in every older value too.
    explore(Some(3), || {
        let ring = Arc::new(Ring::new(1));
        ring.push(event(7));
        let writer = Arc::clone(&ring);
        let writer = thread::spawn(move || writer.push(event(8)));
        let (events, next) = ring.read(0);
        assert_whole(&events);
        assert!(next >= 1 && events.iter().all(|e| e.set == e.seq + 7));
        writer.join().unwrap();
        assert_eq!((ring.written(), ring.dropped()), (2, 0));
        let (events, _) = ring.read(0);
        assert_eq!(
            events.iter().map(|e| e.set).collect::<Vec<_>>(),
            [8],
            "the newest is kept"
        );
    });
}

#[test]
fn two_writers_of_one_slot_leave_one_whole_record() {
    explore(None, || {
        let ring = Arc::new(Ring::new(1));
        let writer = Arc::clone(&ring);
        let writer = thread::spawn(move || writer.push(event(1)));
        ring.push(event(2));
        writer.join().unwrap();
        let (events, next) = ring.read(0);
        assert_whole(&events);
        // The one who came second may find the slot in hand and give up: then the newest place is empty, and said to be.
        assert_eq!(events.len() as u64 + ring.dropped().min(1), 1);
        assert_eq!(next, 2);
    });
}

// Waking: here the executor runs its worker loops in the thread that starts them.

#[test]
fn an_instance_added_while_a_worker_leaves_is_run() {
    // Exhaustive takes minutes.
    explore(Some(2), || {
        let engine = Engine::new(Options {
            workers: Some(1),
            ..Options::default()
        })
        .unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&ran);
        let spec = Spec {
            seal: Seal::Manual,
            chunk: Some(1),
            ..Spec::of(0)
        };
        let task = engine
            .create(spec, Arc::new(Cost::new()), move |_: u32| {
                counter.fetch_add(1, SeqCst);
            })
            .unwrap();
        let other = Arc::clone(&task);
        let other = thread::spawn(move || other.add(1, |_| {}).unwrap());
        task.add(1, |_| {}).unwrap();
        other.join().unwrap();
        assert_eq!(
            (ran.load(SeqCst), task.set().unclaimed()),
            (2, 0),
            "nobody has to look again"
        );
        task.set().seal();
        assert_eq!(task.set().decision(), Some(Decision::Fired));
        assert_eq!(task.set().counts(), completed(2));
    });
}

//! Joins against a plain reference: the tables of the contract said again over a list of instance states, with whole numbers, and compared with
//! the rules themselves and with whole sets whose bodies follow a script.
#![cfg(not(any(loom, shuttle)))]

use std::{
    sync::{Arc, LazyLock, mpsc},
    time::Duration,
};

use proptest::{collection::vec, prelude::*, sample::select};
use shoal_core::{
    Counts, Decision, Engine, Error, InstanceState, Join, MAX_INSTANCES, Need, OnFailure, Options,
    Outcome, Policy, Rest, Seal, Set, Snapshot, Spec, Task, Weights,
};

use InstanceState::{Cancelled, Completed, Failed, Pending, TimedOut};

/// A share as two whole numbers: the reference knows no rounding.
#[derive(Clone, Copy, Debug)]
struct Share(u64, u64);

impl Share {
    fn float(self) -> f64 {
        self.0 as f64 / self.1 as f64
    }

    fn of_rounded_up(self, count: u64) -> u64 {
        (self.0 * count).div_ceil(self.1)
    }
}

/// The join's column of the contract.
#[derive(Clone, Debug)]
enum Fires {
    AllOf,
    AtLeast(u32, bool),
    Fraction(Share, bool),
    Weighted(Vec<u64>, u64),
    Detached,
}

/// The failure policy's column of the contract.
#[derive(Clone, Copy, Debug)]
enum Fails {
    Fast,
    Late,
    Continue,
    Tolerate(u32),
    TolerateShare(Share, u32),
}

/// What has happened to a set so far: its instances in the order of creation, and the outcomes in the order of settling.
#[derive(Clone, Debug, Default)]
struct History {
    states: Vec<InstanceState>,
    outcomes: Vec<InstanceState>,
    sealed: bool,
}

impl History {
    fn settle(&mut self, index: usize, state: InstanceState) {
        self.states[index] = state;
        self.outcomes.push(state);
    }

    fn settle_next(&mut self, state: InstanceState) {
        let next = self.states.iter().position(|state| *state == Pending);
        self.settle(next.unwrap(), state);
    }

    fn how_many(&self, state: InstanceState) -> usize {
        self.states.iter().filter(|s| **s == state).count()
    }

    fn failures(&self) -> usize {
        self.how_many(Failed) + self.how_many(TimedOut)
    }

    fn all_terminal(&self) -> bool {
        self.sealed && self.how_many(Pending) == 0
    }

    /// "when, with at least m completed or failed, more than f of them failed; judged at each settling".
    fn share_was_exceeded(&self, share: Share, after: u32) -> bool {
        (1..=self.outcomes.len()).any(|settled| {
            let judged = &self.outcomes[..settled];
            let failed = judged
                .iter()
                .filter(|s| matches!(s, Failed | TimedOut))
                .count();
            let ended = failed + judged.iter().filter(|s| **s == Completed).count();
            ended >= after as usize && failed as u64 * share.1 > share.0 * ended as u64
        })
    }

    fn counts(&self) -> Counts {
        Counts {
            pending: self.how_many(Pending) as u32,
            running: 0,
            completed: self.how_many(Completed) as u32,
            failed: self.how_many(Failed) as u32,
            cancelled: self.how_many(Cancelled) as u32,
            timed_out: self.how_many(TimedOut) as u32,
        }
    }
}

/// What the contract says of a gate that was not decided before.
fn reference(fires: &Fires, fails: Fails, history: &History) -> Option<Decision> {
    let completed = history.how_many(Completed);
    let possible = completed + history.how_many(Pending);
    let count = history.states.len() as u64;

    let failures_fail_it = match fails {
        Fails::Fast => history.failures() >= 1,
        Fails::Late => history.all_terminal() && history.failures() >= 1,
        Fails::Continue => false,
        Fails::Tolerate(n) => history.failures() > n as usize,
        Fails::TolerateShare(share, after) => history.share_was_exceeded(share, after),
    };
    let (met, or_all, unmeetable) = match fires {
        Fires::AllOf | Fires::Detached => (false, true, false),
        Fires::AtLeast(n, or_all) => {
            let n = *n as usize;
            (completed >= n, *or_all, history.sealed && possible < n)
        }
        Fires::Fraction(share, or_all) => {
            let n = share.of_rounded_up(count) as usize;
            (
                history.sealed && completed >= n,
                *or_all,
                history.sealed && possible < n,
            )
        }
        Fires::Weighted(weights, target) => {
            let weight = |wanted: &[InstanceState]| -> u64 {
                let of_those = history.states.iter().zip(weights);
                of_those
                    .filter(|(state, _)| wanted.contains(state))
                    .map(|(_, w)| w)
                    .sum()
            };
            (
                weight(&[Completed]) >= *target,
                false,
                history.sealed && weight(&[Completed, Pending]) < *target,
            )
        }
    };
    if met {
        Some(Decision::Fired)
    } else if failures_fail_it {
        Some(Decision::Failed)
    } else if or_all && history.all_terminal() {
        Some(Decision::Fired)
    } else if unmeetable && !or_all {
        Some(Decision::Failed)
    } else {
        None
    }
}

fn policy(fires: &Fires, fails: Fails, rest: Rest) -> Policy {
    let join = match fires {
        Fires::AllOf => Join::AllOf,
        Fires::AtLeast(n, or_all) => Join::AtLeast {
            need: Need::Count(*n),
            or_all: *or_all,
        },
        Fires::Fraction(share, or_all) => Join::AtLeast {
            need: Need::Fraction(share.float()),
            or_all: *or_all,
        },
        Fires::Weighted(weights, target) => {
            Join::Weighted(Weights::new(weights.iter().copied(), *target).unwrap())
        }
        Fires::Detached => Join::Detached,
    };
    let on_failure = match fails {
        Fails::Fast => OnFailure::FailFast,
        Fails::Late => OnFailure::FailLate,
        Fails::Continue => OnFailure::Continue,
        Fails::Tolerate(n) => OnFailure::Tolerate(n),
        Fails::TolerateShare(share, after) => OnFailure::TolerateFraction {
            fraction: share.float(),
            after,
        },
    };
    Policy {
        join,
        rest,
        on_failure,
    }
}

const MOST: usize = 12;

fn any_share(from: u64) -> impl Strategy<Value = Share> {
    (1..=30u64).prop_flat_map(move |whole| (from..=whole).prop_map(move |part| Share(part, whole)))
}

/// Those that are decided by the tally alone.
fn any_plain() -> impl Strategy<Value = Fires> {
    prop_oneof![
        Just(Fires::AllOf),
        (1..=MOST as u32 + 1, any::<bool>()).prop_map(|(n, or_all)| Fires::AtLeast(n, or_all)),
        (any_share(1), any::<bool>()).prop_map(|(share, or_all)| Fires::Fraction(share, or_all)),
        Just(Fires::Detached),
    ]
}

fn any_fires() -> impl Strategy<Value = Fires> {
    let weighted =
        (vec(0..5u64, MOST), 1..20u64).prop_map(|(weights, n)| Fires::Weighted(weights, n));
    prop_oneof![4 => any_plain(), 1 => weighted]
}

fn any_fails() -> impl Strategy<Value = Fails> {
    prop_oneof![
        Just(Fails::Fast),
        Just(Fails::Late),
        Just(Fails::Continue),
        (0..4u32).prop_map(Fails::Tolerate),
        (any_share(0), 0..5u32).prop_map(|(share, after)| Fails::TolerateShare(share, after)),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add,
    /// The n-th of those that are pending, and what it becomes.
    Settle(usize, InstanceState),
    Seal,
}

fn any_step() -> impl Strategy<Value = Step> {
    let outcome = select(vec![
        Completed, Completed, Completed, Failed, Failed, Cancelled, TimedOut,
    ]);
    prop_oneof![
        4 => Just(Step::Add),
        6 => (0..MOST, outcome).prop_map(|(n, state)| Step::Settle(n, state)),
        1 => Just(Step::Seal),
    ]
}

fn any_outcomes() -> impl Strategy<Value = Vec<Outcome>> {
    let outcome = select(vec![
        Outcome::Completed,
        Outcome::Completed,
        Outcome::Completed,
        Outcome::Failed,
        Outcome::Failed,
        Outcome::Cancelled,
    ]);
    vec(outcome, 0..=MOST)
}

fn state(outcome: Outcome) -> InstanceState {
    match outcome {
        Outcome::Completed => Completed,
        Outcome::Failed => Failed,
        Outcome::Cancelled => Cancelled,
    }
}

/// One worker: bodies settle in the order of their indices.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    Engine::new(Options {
        workers: Some(1),
        retain: 10,
        ..Options::default()
    })
    .unwrap()
});

fn spawn(count: usize, seal: Seal, policy: Policy, outcomes: Vec<Outcome>) -> Arc<Task> {
    let spec = Spec {
        seal,
        policy,
        chunk: Some(1),
        ..Spec::of(count as u64)
    };
    ENGINE
        .spawn(spec, move |index: u32| outcomes[index as usize])
        .unwrap()
}

/// What a set's continuation is called with; it hangs up when it was called.
fn calls(set: &Set) -> mpsc::Receiver<Decision> {
    let (told, calls) = mpsc::channel();
    set.on_decided(Box::new(move |decision| told.send(decision).unwrap()));
    calls
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_decide_what_the_contract_says_step_by_step(
        fires in any_plain(),
        fails in any_fails(),
        at_once in any::<bool>(),
        steps in vec(any_step(), 0..4 * MOST),
    ) {
        let policy = policy(&fires, fails, Rest::Cancel);
        let mut history = History::default();
        if at_once {
            history.states = vec![Pending; steps.iter().filter(|step| matches!(step, Step::Add)).count()];
            history.sealed = true;
        }
        for step in steps {
            match step {
                Step::Add if !history.sealed => history.states.push(Pending),
                Step::Seal => history.sealed = true,
                Step::Settle(n, state) => {
                    let pending: Vec<_> = (0..history.states.len()).filter(|&i| history.states[i] == Pending).collect();
                    if pending.is_empty() {
                        continue;
                    }
                    history.settle(pending[n % pending.len()], state);
                }
                Step::Add => continue,
            }
            let counts = history.counts();
            let exceeded = matches!(fails, Fails::TolerateShare(share, after) if history.share_was_exceeded(share, after));
            let judged = policy.judge(
                Snapshot::new(counts.completed, counts.pending, !history.sealed),
                counts.failed + counts.timed_out,
                exceeded,
                counts.total(),
            );
            prop_assert_eq!(judged, reference(&fires, fails, &history), "{:?}", history);
            if judged.is_some() {
                break;
            }
        }
    }

    #[test]
    fn the_tolerated_share_is_exceeded_where_whole_numbers_say_so(
        share in any_share(0), after in 0..20u32, ended in prop_oneof![0..=200u32, 0..=MAX_INSTANCES], of_those in 0..=1_000u64,
    ) {
        // Near the bound, where rounding would show.
        let ended = u64::from(ended);
        let failed = ((share.0 * ended).div_ceil(share.1) + of_those % 3).saturating_sub(1).min(ended) as u32;
        let completed = ended as u32 - failed;
        let exceeded = ended >= u64::from(after) && u64::from(failed) * share.1 > share.0 * ended;
        let on_failure = OnFailure::TolerateFraction { fraction: share.float(), after };
        prop_assert_eq!(on_failure.is_share_exceeded(completed, failed), exceeded);
    }

    #[test]
    fn a_fraction_of_a_count_is_rounded_up_from_the_exact_number(
        (part, whole) in (1..=1_000u64).prop_flat_map(|whole| (1..=whole, Just(whole))),
        count in prop_oneof![0..=200u32, 0..=10_000_000u32, 0..=MAX_INSTANCES],
    ) {
        let share = Share(part, whole);
        prop_assert_eq!(u64::from(Need::Fraction(share.float()).of(count)), share.of_rounded_up(u64::from(count)));
    }

    #[test]
    fn a_join_that_can_never_be_met_is_refused_before_anything_is_created(
        fires in any_fires(), fails in any_fails(), count in 0..=MOST as u32, open in any::<bool>(),
    ) {
        let refused = !open && match &fires {
            Fires::AtLeast(n, or_all) => *n > count && !or_all,
            Fires::Weighted(weights, target) => weights[..count as usize].iter().sum::<u64>() < *target,
            _ => false,
        };
        let checked = policy(&fires, fails, Rest::Cancel).check(count, open);
        prop_assert_eq!(matches!(checked, Err(Error::Join(_))), refused, "{:?}", checked);
    }

    #[test]
    fn a_fraction_outside_its_bounds_is_refused(fraction in prop_oneof![
        Just(0.0), Just(f64::NAN), Just(f64::INFINITY), -10.0..0.0, 1.000_001..10.0,
    ]) {
        let share = Policy::new(Join::AtLeast { need: Need::Fraction(fraction), or_all: false });
        prop_assert!(matches!(share.check(10, true), Err(Error::Join(_))));
        let tolerated = Policy { on_failure: OnFailure::TolerateFraction { fraction, after: 1 }, ..Policy::default() };
        prop_assert_eq!(tolerated.check(10, true).is_err(), fraction != 0.0);
    }

    #[test]
    fn a_set_with_scripted_bodies_ends_as_the_contract_says(
        fires in any_fires(), fails in any_fails(), outcomes in any_outcomes(), cancel in any::<bool>(),
    ) {
        let rest = if cancel { Rest::Cancel } else { Rest::Continue };
        let policy = policy(&fires, fails, rest);
        let count = outcomes.len();
        if policy.check(count as u32, false).is_err() {
            // Refused: that has a test of its own.
            return Ok(());
        }

        let mut history = History { states: vec![Pending; count], sealed: true, ..History::default() };
        let mut expected = reference(&fires, fails, &history);
        for &outcome in &outcomes {
            match expected {
                Some(_) if cancel => history.settle_next(Cancelled),
                Some(_) => history.settle_next(state(outcome)),
                None => {
                    history.settle_next(state(outcome));
                    expected = reference(&fires, fails, &history);
                }
            }
        }

        let task = spawn(count, Seal::AtOnce, policy, outcomes);
        let calls = calls(task.set());
        prop_assert_eq!(task.set().wait_decided(None), expected);
        prop_assert!(task.set().wait_drained(None));
        prop_assert_eq!(task.set().counts(), history.counts());
        for (index, state) in history.states.iter().enumerate() {
            prop_assert_eq!(task.set().settled(index as u32), *state);
        }
        prop_assert_eq!(calls.recv_timeout(Duration::from_secs(60)).ok(), expected);
        prop_assert_eq!(calls.recv(), Err(mpsc::RecvError), "once");
    }

    #[test]
    fn a_set_that_grows_is_decided_when_the_contract_says(
        fires in any_fires(), fails in any_fails(), outcomes in any_outcomes(), seal_after in 0..=MOST,
    ) {
        let task = spawn(0, Seal::Manual, policy(&fires, fails, Rest::Cancel), outcomes.clone());
        let set = task.set();
        let mut history = History::default();
        for (index, &outcome) in outcomes.iter().enumerate().take(seal_after) {
            task.add(1, |_| {}).unwrap();
            // One at a time: the order of settling is then the script's.
            prop_assert!(set.wait_drained(None));
            history.states.push(Pending);
            history.settle(index, state(outcome));
            let expected = reference(&fires, fails, &history);
            match expected {
                Some(_) => prop_assert_eq!(set.wait_decided(None), expected, "{:?}", history),
                None => prop_assert_eq!(set.decision(), None, "{:?}", history),
            }
            if expected.is_some() {
                break;
            }
        }
        if set.decision().is_none() {
            set.seal();
            history.sealed = true;
            prop_assert_eq!(set.decision(), reference(&fires, fails, &history), "{:?}", history);
        }
        prop_assert!(set.is_finished());
        prop_assert_eq!(task.add(1, |_| {}), Err(Error::Sealed));
        prop_assert_eq!(set.counts(), history.counts());
    }
}

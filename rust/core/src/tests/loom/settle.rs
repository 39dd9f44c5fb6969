//! Claiming and settling: who fires, who fails, and what is given back.

use super::{World, at_least, completed, explore, failing_as, fixed, going_on, open, weighted};
use crate::{Decision, InstanceState, OnFailure, Policy, Spec, state::Counts};

#[test]
fn all_of_fires_once_and_only_when_both_settlers_are_done() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = fixed(2, Policy::default());
        let other = world.spawn(|world| world.run(1, &[]));
        assert!(world.run(1, &[]));
        assert!(other.join().unwrap());
        assert_eq!(world.over().0, Decision::Fired);
        assert_eq!(world.completed_at_decision(), 2, "the last one decides");
    });
}

#[test]
fn a_threshold_fires_once_at_the_nth_and_the_rest_is_cancelled() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = fixed(3, at_least(2));
        let other = world.spawn(|world| while world.run(1, &[]) {});
        while world.run(1, &[]) {}
        other.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!(decision, Decision::Fired);
        assert!(counts.completed >= 2 && world.completed_at_decision() >= 2);
    });
}

#[test]
fn a_threshold_that_lets_the_rest_go_on_counts_them_and_decides_nothing_more() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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

#[test]
fn fail_fast_fails_once_whoever_comes_first() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = fixed(2, failing_as(OnFailure::Tolerate(1)));
        let other = world.spawn(|world| world.run(1, &[0]));
        world.run(1, &[0]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Fired);
    });
}

#[test]
fn one_failure_more_than_tolerated_fails_it_though_each_settler_saw_one() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = fixed(2, failing_as(OnFailure::Tolerate(1)));
        let other = world.spawn(|world| world.run(1, &[0, 1]));
        world.run(1, &[0, 1]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Failed);
    });
}

#[test]
fn a_tolerated_share_is_judged_at_each_settling() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = fixed(2, at_least(2));
        let other = world.spawn(|world| world.run(1, &[0]));
        world.run(1, &[0]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Failed);
    });
}

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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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

/// Two settlements race and nothing else does: small enough for every interleaving, whatever the join.
fn settlements_race(policy: Policy, failing: &'static [u32], expected: Decision) {
    explore(None, move || {
        let world = World::bare(Spec {
            policy: policy.clone(),
            ..Spec::of(2)
        });
        let (mine, theirs) = (world.set.claim(1).unwrap(), world.set.claim(1).unwrap());
        let other =
            world.spawn(move |world| world.settle(theirs, InstanceState::Completed, failing));
        world.settle(mine, InstanceState::Completed, failing);
        other.join().unwrap();
        let (decision, counts) = world.over();
        assert_eq!(decision, expected);
        assert_eq!(counts.failed as usize, failing.len());
    });
}

#[test]
fn two_settlements_alone_all_of_fires_at_the_second() {
    settlements_race(Policy::default(), &[], Decision::Fired);
}

#[test]
fn two_settlements_alone_a_failure_fails_fast() {
    settlements_race(Policy::default(), &[1], Decision::Failed);
}

#[test]
fn two_settlements_alone_a_failure_fails_late() {
    settlements_race(failing_as(OnFailure::FailLate), &[0], Decision::Failed);
}

#[test]
fn two_settlements_alone_one_failure_more_than_tolerated() {
    settlements_race(
        failing_as(OnFailure::Tolerate(1)),
        &[0, 1],
        Decision::Failed,
    );
}

#[test]
fn two_settlements_alone_a_share_that_is_exceeded_together() {
    let half = OnFailure::TolerateFraction {
        fraction: 0.4,
        after: 2,
    };
    settlements_race(failing_as(half), &[0], Decision::Failed);
}

#[test]
fn two_settlements_alone_a_threshold_that_both_reach() {
    settlements_race(at_least(2), &[], Decision::Fired);
    settlements_race(at_least(1), &[], Decision::Fired);
}

#[test]
fn two_settlements_alone_a_threshold_that_is_out_of_reach() {
    settlements_race(at_least(2), &[0], Decision::Failed);
}

#[test]
fn two_settlements_alone_weights_that_are_reached_together_or_missed() {
    settlements_race(weighted([3, 4], 7), &[], Decision::Fired);
    settlements_race(weighted([3, 4], 4), &[1], Decision::Failed);
}

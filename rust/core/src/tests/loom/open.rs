//! Sets that grow: add, seal and settle against each other.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::{World, at_least, completed, explore, fixed, going_on, open, weighted};
use crate::{Decision, Error, Join, Need, Policy, Seal, Spec, state::Counts};

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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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

#[test]
fn seal_racing_settle_weights_that_fall_short_fail() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        assert_eq!(
            seal_against_settle(weighted([3, 4], 7), &[0]).0,
            Decision::Failed
        );
    });
}

#[test]
fn seal_racing_settle_weights_that_are_reached_fire() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        assert_eq!(
            seal_against_settle(weighted([3, 4], 4), &[0]).0,
            Decision::Fired
        );
    });
}

#[test]
fn two_settlers_of_a_weighted_set_reach_it_together() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
        let world = fixed(2, weighted([3, 4], 7));
        let other = world.spawn(|world| world.run(1, &[]));
        world.run(1, &[]);
        other.join().unwrap();
        assert_eq!(world.over().0, Decision::Fired);
    });
}

#[test]
fn two_settlers_of_a_weighted_set_that_lose_enough_fail_it() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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

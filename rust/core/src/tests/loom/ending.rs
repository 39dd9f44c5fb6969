//! Ending from outside: cancel, complete and close against those who work.

use super::{explore, fixed, going_on};
use crate::{Decision, Policy};

#[test]
fn cancel_racing_a_worker_cancels_what_has_not_begun_and_nothing_begins_after() {
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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

//! Waiting: no wake-up is lost, and who is woken sees what woke it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use loom::thread;

use super::{at_least, completed, explore, fixed, going_on, open};
use crate::{Decision, Engine, InstanceState, Options, Place, Policy, Seal, Spec, cost::Cost};

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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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
    // Exhaustive takes minutes.
    explore(Some(3), || {
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

#[test]
fn an_instance_added_while_a_worker_leaves_is_run() {
    // Here the executor runs its worker loops in the thread that starts them.
    explore(None, || {
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

//! The edges: what is dropped too early, panics where nobody looks, is nested deeply, or turns out other than it was taken for.
#![cfg(not(any(loom, shuttle)))]

use std::{
    any::Any,
    panic::resume_unwind,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use shoal_core::{
    Body, CaseState, Chunk, Cost, Decision, Engine, Error, Join, Need, OnFailure, Options, Outcome,
    Place, Policy, Seal, Spec, Task,
};

fn engine(workers: u32) -> Engine {
    Engine::new(Options {
        workers: Some(workers),
        ..Options::default()
    })
    .unwrap()
}

fn at_least(n: u32) -> Policy {
    Policy::new(Join::AtLeast {
        need: Need::Count(n),
        or_all: false,
    })
}

/// A cost that was learnt from bodies of nanoseconds, by an engine that is gone afterwards.
fn known_as_quick() -> Arc<Cost> {
    let cost = Arc::new(Cost::new());
    while cost.ticks().is_none_or(|ticks| ticks > 200.0) {
        let engine = engine(1);
        engine
            .spawn_known(Spec::of(100_000), Arc::clone(&cost), |_: u32| {})
            .unwrap();
        assert!(engine.close(false, None));
    }
    cost
}

/// Until that much real time has passed: what a body does that is slow.
fn toil(time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn a_set_whose_task_goes_before_anybody_ran_it_is_cancelled() {
    for seal in [Seal::AtOnce, Seal::Manual] {
        let engine = engine(1);
        let spec = Spec {
            seal,
            ..Spec::of(3)
        };
        let task = engine.create(spec, Arc::new(Cost::new()), |_: u32| {});
        let set = Arc::clone(task.unwrap().set());
        assert_eq!(set.decision(), Some(Decision::Cancelled));
        assert_eq!(set.counts().cancelled, 3);
        assert!(engine.close(false, None));
    }
}

struct CannotAttend;

impl Body for CannotAttend {
    fn run(&self, chunk: &mut Chunk<'_>) {
        chunk.each(|_| Outcome::Completed);
    }

    fn attend(&self, _drive: &mut dyn FnMut()) {
        resume_unwind(Box::new("there is nothing to run it with"));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn a_panic_around_the_bodies_fails_them_also_in_a_thread_that_helps() {
    let engine = engine(1);
    let spec = Spec {
        policy: Policy {
            on_failure: OnFailure::FailLate,
            ..Policy::default()
        },
        ..Spec::of(3)
    };
    let (task, decision) = engine.run(spec, CannotAttend).unwrap();
    assert_eq!(decision, Decision::Failed);
    assert!(task.drain(None));
    assert_eq!(task.set().counts().failed, 3);
    assert!(engine.close(false, None));
}

/// Panics once more when it goes.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            resume_unwind(Box::new("again"));
        }
    }
}

#[test]
fn a_panic_whose_payload_panics_when_it_goes_fails_one_instance() {
    let engine = engine(1);
    let spec = Spec {
        chunk: Some(3),
        policy: Policy {
            on_failure: OnFailure::Continue,
            ..Policy::default()
        },
        ..Spec::of(6)
    };
    let task = engine.spawn(spec, |index: u32| {
        if index == 1 {
            resume_unwind(Box::new(Bomb));
        }
    });
    let task = task.unwrap();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    let counts = task.set().counts();
    assert_eq!((counts.completed, counts.failed), (5, 1));
}

#[test]
fn who_sees_the_end_of_a_set_sees_its_decision() {
    let engine = engine(2);
    for round in 0..2_000 {
        let spec = Spec {
            policy: if round % 2 == 0 {
                at_least(1)
            } else {
                Policy::default()
            },
            chunk: Some(1),
            ..Spec::of(3)
        };
        let task = engine.spawn(spec, |_: u32| {}).unwrap();
        if round % 4 < 2 {
            task.set().wait_drained(None);
        } else {
            let mut place = Place::default();
            while !task
                .set()
                .wait_settled(&mut place, 9, None)
                .unwrap()
                .is_empty()
            {}
        }
        assert_eq!(task.set().decision(), Some(Decision::Fired));
    }
}

#[test]
fn an_undecidable_join_is_decided_at_once_also_in_the_middle_of_a_chunk() {
    let engine = engine(1);
    let begun = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&begun);
    let spec = Spec {
        policy: at_least(100),
        chunk: Some(100),
        ..Spec::of(100)
    };
    let task = engine.spawn(spec, move |index: u32| -> Result<(), ()> {
        count.fetch_add(1, Ordering::Relaxed);
        if index == 40 { Err(()) } else { Ok(()) }
    });
    let set = Arc::clone(task.unwrap().set());
    assert_eq!(set.wait_decided(None), Some(Decision::Failed));
    assert!(set.wait_drained(None));
    assert_eq!(begun.load(Ordering::Relaxed), 41, "none began after it");
    assert_eq!(set.counts().cancelled, 59);
}

#[test]
fn a_quick_body_that_turns_slow_is_shared_when_somebody_has_nothing_to_do() {
    let engine = engine(2);
    // The first bodies are quick. Then two of them meet, which takes two threads.
    let meeting = Barrier::new(2);
    let task = engine
        .spawn_known(
            Spec::of(600),
            known_as_quick(),
            move |index: u32| match index {
                ..290 => {}
                290 => toil(Duration::from_millis(40)),
                291 | 292 => drop(meeting.wait()),
                _ => {}
            },
        )
        .unwrap();
    assert_eq!(task.wait(None), Some(Decision::Fired));
}

#[test]
fn who_feeds_a_set_is_told_when_it_is_sealed() {
    let engine = engine(1);
    let (begun, first) = mpsc::channel();
    let door = Arc::new(Barrier::new(2));
    let inside = Arc::clone(&door);
    let spec = Spec {
        seal: Seal::Manual,
        chunk: Some(1),
        ..Spec::of(2)
    };
    let task = engine.spawn(spec, move |index: u32| {
        if index == 0 {
            let _ = begun.send(());
            inside.wait();
        }
    });
    let task = task.unwrap();
    first.recv().unwrap();
    let set = Arc::clone(task.set());
    let feeder = thread::spawn(move || set.wait_hungry(1));
    task.set().seal();
    feeder.join().unwrap();
    door.wait();
    assert_eq!(task.wait(None), Some(Decision::Fired));
}

#[test]
fn cases_that_nobody_holds_and_nothing_runs_in_are_forgotten() {
    let engine = engine(1);
    let held: Vec<_> = (0..10).map(|_| engine.case(None).unwrap()).collect();
    for _ in 0..20_000 {
        engine.case(None).unwrap();
    }
    let kept = engine.cases();
    assert!(kept.len() <= 2_010, "{} are kept", kept.len());
    assert!(
        held.iter()
            .all(|case| engine.find_case(case.id()).is_some())
    );
}

#[test]
fn cancelling_reaches_the_innermost_of_any_number_of_nested_cases() {
    let engine = engine(1);
    let cases: Vec<_> = (0..20_000).map(|_| engine.case(None).unwrap()).collect();
    for pair in cases.windows(2) {
        pair[0].nest(&pair[1]).unwrap();
    }
    // A ring.
    cases[cases.len() - 1].nest(&cases[0]).unwrap();
    cases[0].cancel();
    assert!(
        cases
            .iter()
            .all(|case| case.state() == CaseState::Cancelled)
    );
}

#[test]
fn what_is_added_while_somebody_asks_for_the_case_counts_against_its_limit() {
    let engine = engine(1);
    for _ in 0..200 {
        let spec = Spec {
            seal: Seal::Manual,
            ..Spec::of(0)
        };
        let task: Arc<Task> = engine.spawn(spec, |_: u32| {}).unwrap();
        let start = Arc::new(Barrier::new(2));
        let (adder, begin) = (Arc::clone(&task), Arc::clone(&start));
        let adding = thread::spawn(move || {
            begin.wait();
            for _ in 0..20 {
                adder.add(1, |_| {}).unwrap();
            }
        });
        start.wait();
        let case = Arc::clone(task.case());
        adding.join().unwrap();
        assert_eq!(case.created(), 20);
        task.set().seal();
    }
}

#[test]
fn a_body_that_waits_inside_rayon_gets_its_own_jobs_done() {
    let engine = Arc::new(engine(2));
    let inner = Arc::clone(&engine);
    let made = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&made);
    let (told, small) = mpsc::channel();
    let small = Mutex::new(small);
    let task = engine.spawn(Spec::of(1), move |_: u32| {
        let taken = Arc::new(Barrier::new(2));
        rayon::scope(|scope| {
            let (small, begun) = (&small, Arc::clone(&taken));
            scope.spawn(move |_| {
                begun.wait();
                // Until the other job was done, which only this body's own thread can do.
                small.lock().unwrap().recv().unwrap();
            });
            taken.wait();
            let told = told.clone();
            scope.spawn(move |_| told.send(()).unwrap());
            // A worker loop that this thread comes upon first.
            let set = inner.spawn(Spec::of(1), |_: u32| {}).unwrap();
            keep.lock().unwrap().push(set);
        });
    });
    assert_eq!(
        task.unwrap().set().wait_decided(None),
        Some(Decision::Fired)
    );
    let made = made.lock().unwrap();
    assert_eq!(made[0].set().wait_decided(None), Some(Decision::Fired));
}

#[test]
fn more_workers_than_a_pool_can_have_are_refused() {
    let options = Options {
        workers: Some(u32::MAX),
        ..Options::default()
    };
    assert!(matches!(Engine::new(options), Err(Error::Count(_))));
}

#[test]
fn many_tasks_that_end_in_other_ways_leave_an_engine_that_closes() {
    let engine = Arc::new(engine(2));
    let begun = Arc::new(AtomicU32::new(0));
    let spawner = {
        let (engine, begun) = (Arc::clone(&engine), Arc::clone(&begun));
        thread::spawn(move || {
            while engine.spawn(Spec::of(3), |_: u32| {}).is_ok() {
                begun.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    while begun.load(Ordering::Relaxed) < 100 {
        thread::yield_now();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    assert!(engine.close(true, Some(Duration::from_secs(60))));
    assert!(Instant::now() < deadline);
    spawner.join().unwrap();
    for entry in engine.sets() {
        assert!(entry.set.is_finished() && entry.set.decision().is_some());
    }
}

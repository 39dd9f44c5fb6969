//! What an engine does, through the public API alone: bodies wait for doors and channels, never for a while.
#![cfg(not(any(loom, shuttle)))]

use std::{
    any::Any,
    panic::resume_unwind,
    sync::{
        Arc, Barrier, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use shoal_core::{
    Body, Case, CaseState, Chunk, Clock, Column, Cost, Decision, Engine, Error, Event,
    InstanceState, Join, Kind, Limits, Need, OnFailure, Options, Place, Policy, Seal, Set,
    Settlement, Sink, Spec, Task, Totals, Waiting,
};

fn engine(workers: u32) -> Engine {
    Engine::new(options(workers)).unwrap()
}

fn options(workers: u32) -> Options {
    Options {
        workers: Some(workers),
        ..Options::default()
    }
}

fn limited(limits: Limits) -> Engine {
    Engine::new(Options {
        limits,
        ..options(2)
    })
    .unwrap()
}

fn alone(count: u64) -> Spec {
    Spec {
        chunk: Some(1),
        ..Spec::of(count)
    }
}

fn going_on(count: u64) -> Spec {
    Spec {
        policy: Policy {
            on_failure: OnFailure::Continue,
            ..Policy::new(Join::AllOf)
        },
        ..Spec::of(count)
    }
}

fn open(seal: Seal, count: u64) -> Spec {
    Spec {
        seal,
        ..Spec::of(count)
    }
}

/// What bodies wait at until the test lets them through.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let shut = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(shut, |open| !*open).unwrap());
    }
}

/// A set whose bodies tell that they have begun and then wait at the door. Back when the first has begun.
fn held(engine: &Engine, spec: Spec) -> (Arc<Task>, Door) {
    let (door, (begun, first)) = (Door::default(), mpsc::channel());
    let inside = door.clone();
    let task = engine
        .spawn(spec, move |index: u32| {
            let _ = begun.send(index);
            inside.pass();
        })
        .unwrap();
    first.recv().unwrap();
    (task, door)
}

/// Until that much real time has passed: what a body does that is slow.
fn toil(time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn events_of(engine: &Engine, set: &Set) -> Vec<Event> {
    let (events, _) = engine.executor().events().read(0);
    events.into_iter().filter(|e| e.set == set.id()).collect()
}

/// What happened to which range: a chunk that was cut because the machine was slow reads like a whole one.
fn kinds(events: &[Event]) -> Vec<(Kind, u32, u32)> {
    let mut told: Vec<(Kind, u32, u32)> = Vec::new();
    for event in events.iter().filter(|e| e.kind != Kind::GivenBack) {
        match told.last_mut() {
            Some((kind, _, stop)) if *kind == event.kind && *stop == event.start => {
                *stop = event.stop;
            }
            _ => told.push((event.kind, event.start, event.stop)),
        }
    }
    told
}

#[test]
fn every_index_runs_once() {
    for count in [1, 2, 63, 64, 65, 1_000, 100_000] {
        let engine = engine(2);
        let ran = Arc::new(Column::<AtomicU64>::zeroed(count));
        let seen = Arc::clone(&ran);
        let (task, decision) = engine
            .run(Spec::of(count as u64), move |index: u32| {
                seen.get(index as usize).fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        assert_eq!(decision, Decision::Fired);
        assert!((0..count).all(|k| ran.get(k).load(Ordering::Relaxed) == 1));
        assert_eq!(task.set().counts().completed as usize, count);
    }
}

#[test]
fn a_thread_that_waits_helps() {
    let engine = engine(1);
    let (first, door) = held(&engine, Spec::of(1));
    let me = thread::current().id();
    let task = engine
        .spawn(Spec::of(100), move |_: u32| {
            assert_eq!(thread::current().id(), me);
        })
        .unwrap();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    assert_eq!(first.set().counts().running, 1);
    door.open();
    assert_eq!(first.wait(None), Some(Decision::Fired));
}

#[test]
fn a_wait_whose_time_runs_out_decides_nothing() {
    let engine = engine(1);
    let (task, door) = held(&engine, alone(2));
    assert_eq!(task.wait(Some(Duration::ZERO)), None);
    assert!(!task.drain(Some(Duration::ZERO)));
    assert_eq!(task.set().decision(), None);
    door.open();
    assert_eq!(task.wait(None), Some(Decision::Fired));
}

#[test]
fn a_caller_that_begins_alone_wakes_the_workers_when_it_lasts() {
    let engine = engine(1);
    let meeting = Barrier::new(2);
    let task = engine
        .create(alone(3), Arc::new(Cost::new()), move |index: u32| {
            if index == 0 {
                toil(Duration::from_millis(1));
            } else {
                meeting.wait();
            }
        })
        .unwrap();
    let decision = task.wait_as(Waiting {
        alone_first: true,
        ..Waiting::default()
    });
    assert_eq!(decision, Some(Decision::Fired));
}

#[test]
fn a_panic_fails_one_instance_and_process_and_workers_live_on() {
    struct Panics(Mutex<Vec<(u32, String)>>);

    impl Body for Panics {
        fn run(&self, chunk: &mut Chunk<'_>) {
            chunk.each(|index| {
                // Not `panic!`: that would also print.
                if index % 10 == 3 {
                    resume_unwind(Box::new(format!("at {index}")));
                }
                ().into()
            });
        }

        fn panicked(&self, index: u32, message: &str) {
            self.0.lock().unwrap().push((index, message.to_owned()));
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    let engine = engine(2);
    let task = engine
        .spawn(going_on(50), Panics(Mutex::default()))
        .unwrap();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    let counts = task.set().counts();
    assert_eq!((counts.completed, counts.failed), (45, 5));
    let mut told = task
        .body()
        .as_any()
        .downcast_ref::<Panics>()
        .unwrap()
        .0
        .lock()
        .unwrap()
        .clone();
    told.sort();
    let expected: Vec<_> = [3, 13, 23, 33, 43].map(|k| (k, format!("at {k}"))).into();
    assert_eq!(told, expected);
    assert!((0..50).all(|k| {
        let failed = task.set().status(k) == Some(InstanceState::Failed);
        failed == (k % 10 == 3)
    }));

    // Both workers are still there: two bodies that meet need two threads, and this one does not help.
    let barrier = Barrier::new(2);
    let after = engine
        .spawn(alone(2), move |_: u32| {
            barrier.wait();
        })
        .unwrap();
    assert_eq!(after.set().wait_decided(None), Some(Decision::Fired));
}

#[test]
fn a_body_that_leaves_its_chunk_undone_fails_it() {
    struct Idle;

    impl Body for Idle {
        fn run(&self, _: &mut Chunk<'_>) {}

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    let engine = engine(1);
    let task = engine.spawn(going_on(10), Idle).unwrap();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    assert_eq!(task.set().counts().failed, 10);
}

#[test]
fn fail_fast_fails_the_gate_at_the_first_failure_and_cancels_the_rest() {
    let engine = engine(1);
    let task = engine
        .spawn(
            alone(1_000),
            |index: u32| {
                if index == 3 { Err("no") } else { Ok(()) }
            },
        )
        .unwrap();
    assert_eq!(task.wait(None), Some(Decision::Failed));
    assert!(task.drain(None));
    let counts = task.set().counts();
    assert_eq!((counts.failed, counts.total()), (1, 1_000));
    assert!(counts.cancelled > 900, "{counts:?}");
}

#[test]
fn cancel_ends_what_has_not_begun_and_keeps_what_has() {
    let engine = engine(1);
    let (task, door) = held(&engine, alone(100));
    let set = task.set();
    set.cancel();
    assert_eq!(set.decision(), Some(Decision::Cancelled));
    let counts = set.counts();
    assert_eq!((counts.running, counts.cancelled), (1, 99));
    assert_eq!(set.status(0), Some(InstanceState::Running));
    assert_eq!(set.status(99), Some(InstanceState::Cancelled));
    set.complete();
    set.cancel();
    assert_eq!(
        set.decision(),
        Some(Decision::Cancelled),
        "decided once, for ever"
    );
    door.open();
    assert!(task.drain(None));
    let counts = set.counts();
    assert_eq!((counts.completed, counts.cancelled), (1, 99));
}

#[test]
fn complete_fires_the_gate_now() {
    let engine = engine(1);
    let (task, door) = held(&engine, alone(100));
    let (tell, told) = mpsc::channel();
    let again = tell.clone();
    task.set()
        .on_decided(Box::new(move |decision| tell.send(decision).unwrap()));
    task.set().complete();
    assert_eq!(task.set().decision(), Some(Decision::Fired));
    assert_eq!(task.set().counts().cancelled, 99);
    door.open();
    assert_eq!(told.recv(), Ok(Decision::Fired));
    task.set()
        .on_decided(Box::new(move |decision| again.send(decision).unwrap()));
    assert_eq!(
        told.recv(),
        Ok(Decision::Fired),
        "who comes late is called too"
    );
    assert!(told.recv().is_err(), "each exactly once");
}

#[test]
fn nothing_fires_before_the_seal_however_fast_instances_finish() {
    let engine = engine(2);
    let task = engine.spawn(open(Seal::Manual, 3), |_: u32| {}).unwrap();
    assert!(task.drain(None));
    assert_eq!(task.set().decision(), None);
    assert_eq!(task.add(2, |_| {}), Ok(3..5));
    assert!(task.drain(None));
    assert!(task.set().is_open());
    task.set().seal();
    task.set().seal();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    assert_eq!(task.set().counts().completed, 5);
    assert_eq!(
        task.add(1, |_| panic!("nothing is placed")),
        Err(Error::Sealed)
    );
    let sealed = events_of(&engine, task.set());
    assert_eq!(sealed.iter().filter(|e| e.kind == Kind::Sealed).count(), 1);
}

#[test]
fn an_added_instance_finds_its_item() {
    let engine = engine(2);
    let items = Arc::new(Column::<AtomicU64>::growing_zeroed());
    let sum = Arc::new(AtomicU64::new(0));
    let (read, total) = (Arc::clone(&items), Arc::clone(&sum));
    let task = engine
        .spawn(open(Seal::Manual, 0), move |index: u32| {
            let item = read.get(index as usize).load(Ordering::Relaxed);
            assert_eq!(item, u64::from(index) + 1_000);
            total.fetch_add(item, Ordering::Relaxed);
        })
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    task.add(3, |start| {
                        items.reserve(start as usize + 3);
                        for k in start..start + 3 {
                            let item = u64::from(k) + 1_000;
                            items.get(k as usize).store(item, Ordering::Relaxed);
                        }
                    })
                    .unwrap();
                }
            });
        }
    });
    task.set().seal();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    assert_eq!(sum.load(Ordering::Relaxed), (1_000..7_000).sum::<u64>());
}

#[test]
fn a_set_that_seals_when_idle_stays_open_while_one_runs() {
    let engine = engine(2);
    let (task, door) = held(&engine, open(Seal::WhenIdle, 1));
    assert!(task.set().is_open());
    assert_eq!(task.add(4, |_| {}), Ok(1..5));
    door.open();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    assert!(!task.set().is_open());
    assert_eq!(task.set().counts().completed, 5);
    assert_eq!(task.add(1, |_| {}), Err(Error::Sealed));
}

#[test]
fn a_limit_is_told_before_anything_is_created() {
    let engine = limited(Limits {
        max_instances: 10,
        max_case_instances: 20,
    });
    let refused = engine.spawn(Spec::of(11), |_: u32| {}).err();
    assert!(
        matches!(
            refused,
            Some(Error::Limit {
                asked: 11,
                limit: 10,
                ..
            })
        ),
        "{refused:?}"
    );
    let third = Policy::new(Join::AtLeast {
        need: Need::Count(3),
        or_all: false,
    });
    let unmeetable = Spec {
        policy: third,
        ..Spec::of(2)
    };
    assert!(matches!(
        engine.spawn(unmeetable, |_: u32| {}).err(),
        Some(Error::Join(_))
    ));
    assert_eq!(engine.totals(), Totals::default());
    assert!(engine.sets().is_empty());
    assert_eq!(engine.executor().events().written(), 0);

    let task = engine.spawn(open(Seal::Manual, 8), |_: u32| {}).unwrap();
    assert!(task.add(3, |_| panic!("nothing is placed")).is_err());
    assert_eq!(task.set().len(), 8);
    assert_eq!(task.add(2, |_| {}), Ok(8..10));
    task.set().seal();
    assert_eq!(task.wait(None), Some(Decision::Fired));
}

#[test]
fn racing_spawns_cannot_pass_the_limit_of_their_case_together() {
    let engine = limited(Limits {
        max_instances: 1_000,
        max_case_instances: 1_000,
    });
    let case = engine.case(Some("racing")).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let spec = Spec {
                    case: Some(Arc::clone(&case)),
                    ..Spec::of(7)
                };
                while let Ok(task) = engine.spawn(spec.clone(), |_: u32| {}) {
                    task.wait(None);
                }
            });
        }
    });
    assert_eq!(case.created(), 142 * 7);
    assert_eq!(
        case.sets().iter().map(|entry| entry.set.len()).sum::<u32>(),
        142 * 7
    );
    assert_eq!(engine.totals().completed, 142 * 7);
    assert_eq!(case.state(), CaseState::Completed);
}

#[test]
fn finished_sets_are_kept_up_to_a_bound_and_counted_for_ever() {
    let engine = Engine::new(Options {
        retain: 10,
        ..options(2)
    })
    .unwrap();
    let (long, door) = held(&engine, Spec::of(1));
    for _ in 0..300 {
        engine.run(Spec::of(10), |_: u32| {}).unwrap();
    }
    let kept = engine.sets();
    assert_eq!(
        kept[0].set.id(),
        long.set().id(),
        "what still runs is not forgotten"
    );
    assert!(kept.len() <= 11, "{}", kept.len());
    let totals = engine.totals();
    assert_eq!(
        (totals.sets, totals.instances, totals.completed),
        (301, 3_001, 3_000)
    );
    assert_eq!(totals.running, 1);
    door.open();
    long.wait(None);
    assert_eq!(engine.totals().completed, 3_001);
}

#[test]
fn cancelling_a_case_cancels_what_is_nested_in_it_and_takes_no_more() {
    let engine = engine(2);
    let (outer, inner) = (engine.case(None).unwrap(), engine.case(None).unwrap());
    outer.nest(&inner).unwrap();
    let of = |case: &Arc<Case>, count| Spec {
        case: Some(Arc::clone(case)),
        ..alone(count)
    };
    let (in_outer, first) = held(&engine, of(&outer, 1));
    let (in_inner, second) = held(&engine, of(&inner, 50));
    outer.cancel();
    outer.cancel();
    for task in [&in_outer, &in_inner] {
        assert_eq!(task.set().decision(), Some(Decision::Cancelled));
    }
    first.open();
    second.open();
    for (task, case) in [(in_outer, &outer), (in_inner, &inner)] {
        assert!(task.drain(None));
        assert_eq!(case.state(), CaseState::Cancelled, "never completed");
        assert!(matches!(
            engine.spawn(of(case, 1), |_: u32| {}).err(),
            Some(Error::CaseOver(..))
        ));
    }
    assert!(matches!(
        outer.nest(&engine.case(None).unwrap()),
        Err(Error::CaseOver(..))
    ));
}

#[test]
fn what_happened_to_a_set_is_told_in_order() {
    let engine = engine(1);
    let spec = Spec {
        chunk: Some(6),
        seal: Seal::Manual,
        ..going_on(6)
    };
    let task = engine
        .spawn(
            spec,
            |index: u32| if index % 6 == 2 { Err(()) } else { Ok(()) },
        )
        .unwrap();
    // By the one worker alone: who waits here does not help.
    assert!(task.set().wait_drained(None));
    task.add(1, |_| {}).unwrap();
    assert!(task.set().wait_drained(None));
    task.set().seal();
    assert_eq!(task.set().wait_decided(None), Some(Decision::Fired));
    let events = events_of(&engine, task.set());
    assert_eq!(
        kinds(&events),
        [
            (Kind::Created, 0, 6),
            (Kind::Completed, 0, 2),
            (Kind::Failed, 2, 3),
            (Kind::Completed, 3, 6),
            (Kind::Added, 6, 7),
            (Kind::Completed, 6, 7),
            (Kind::Sealed, 0, 7),
            (Kind::GateFired, 0, 7),
        ]
    );
    assert!(events.is_sorted_by_key(|e| (e.seq, e.at)));

    let mut place = Place::default();
    let mut settled = Vec::new();
    while let Some(range) = task.set().wait_settled(&mut place, 2, None) {
        if range.is_empty() {
            break;
        }
        assert!(range.len() <= 2);
        settled.extend(range);
    }
    assert_eq!(settled, [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn the_engines_time_is_the_clock_it_was_given() {
    let (clock, hand) = Clock::manual();
    let engine = Engine::new(Options {
        clock,
        ..options(1)
    })
    .unwrap();
    hand.advance(Duration::from_secs(5));
    let (task, door) = held(&engine, Spec::of(1));
    hand.advance(Duration::from_secs(7));
    door.open();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    let at = |kind| {
        let events = events_of(&engine, task.set());
        events.iter().find(|e| e.kind == kind).unwrap().at
    };
    assert_eq!(at(Kind::Created), 5_000_000_000);
    assert_eq!(at(Kind::Completed), 12_000_000_000);
    assert_eq!(task.set().called_at(), 5_000_000_000);
    assert_eq!(task.set().finished_at(), Some(12_000_000_000));
}

enum Told {
    Settled(Arc<Set>, Settlement),
    Decided(Arc<Set>, Decision),
}

/// A journal that has not written anything yet.
struct Journal(mpsc::Sender<Told>);

impl Sink for Journal {
    fn settled(&self, set: &Arc<Set>, settlement: Settlement) {
        let _ = self.0.send(Told::Settled(Arc::clone(set), settlement));
    }

    fn decided(&self, set: &Arc<Set>, decision: Decision) {
        let _ = self.0.send(Told::Decided(Arc::clone(set), decision));
    }
}

fn journalled(workers: u32) -> (Engine, mpsc::Receiver<Told>) {
    let (tell, told) = mpsc::channel();
    let engine = Engine::new(Options {
        sink: Some(Box::new(Journal(tell))),
        ..options(workers)
    })
    .unwrap();
    (engine, told)
}

#[test]
fn a_gate_hears_of_a_settlement_when_the_journal_passes_it_on_and_a_decision_is_seen_when_it_publishes()
 {
    let (engine, told) = journalled(1);
    let spec = Spec {
        chunk: Some(2),
        ..Spec::of(4)
    };
    let task = engine.spawn(spec, |_: u32| {}).unwrap();
    let set = task.set();
    let mut kept = Vec::new();
    while kept
        .iter()
        .map(|s: &Settlement| s.stop - s.start)
        .sum::<u32>()
        < 4
    {
        let Ok(Told::Settled(_, settlement)) = told.recv() else {
            panic!("decided before anything counted");
        };
        kept.push(settlement);
    }
    // All four bodies have run; nothing of it is known to the gate.
    assert_eq!(set.counts().completed, 0);
    assert_eq!((set.decision(), set.is_drained()), (None, false));
    assert_eq!(set.settled(0), InstanceState::Pending);
    let last = kept.pop().unwrap();
    kept.into_iter().for_each(|s| set.arrive(s));
    assert_eq!((set.counts().completed, set.decision()), (2, None));
    assert!(told.try_recv().is_err());

    set.arrive(last);
    assert_eq!(set.counts().completed, 4);
    let Ok(Told::Decided(_, decision)) = told.recv() else {
        panic!("all completed and nothing was chosen");
    };
    assert_eq!(decision, Decision::Fired);
    assert_eq!(set.decision(), None, "chosen, not published");
    let (tell, heard) = mpsc::channel();
    set.on_decided(Box::new(move |decision| tell.send(decision).unwrap()));
    assert!(heard.try_recv().is_err());
    set.publish(decision);
    assert_eq!(set.decision(), Some(Decision::Fired));
    assert_eq!(heard.recv(), Ok(Decision::Fired));
}

#[test]
fn a_journal_that_is_behind_changes_no_count_and_no_decision() {
    let (engine, told) = journalled(2);
    let journal = thread::spawn(move || {
        while let Ok(first) = told.recv() {
            // What came meanwhile, and the wrong way round, as a journal with several writers would.
            let batch: Vec<_> = std::iter::once(first).chain(told.try_iter()).collect();
            for told in batch.into_iter().rev() {
                match told {
                    Told::Settled(set, settlement) => set.arrive(settlement),
                    Told::Decided(set, decision) => set.publish(decision),
                }
            }
        }
    });
    let all = engine.spawn(alone(500), |_: u32| {}).unwrap();
    assert_eq!(all.wait(None), Some(Decision::Fired));
    assert_eq!(all.set().counts().completed, 500);
    let (cut, door) = held(&engine, alone(100));
    door.open();
    cut.set().cancel();
    assert!(cut.drain(None));
    assert_eq!(cut.set().counts().total(), 100);
    assert!(engine.close(false, None));
    drop((engine, all, cut));
    journal.join().unwrap();
}

#[test]
fn closing_waits_for_what_was_begun_and_takes_nothing_more() {
    let engine = engine(1);
    let (task, door) = held(&engine, alone(3));
    assert!(!engine.close(false, Some(Duration::ZERO)));
    assert!(engine.is_closed());
    assert!(matches!(
        engine.spawn(Spec::of(1), |_: u32| {}).err(),
        Some(Error::EngineClosed)
    ));
    assert!(matches!(engine.case(None).err(), Some(Error::EngineClosed)));
    door.open();
    assert!(engine.close(false, None));
    assert_eq!(task.set().decision(), Some(Decision::Fired));
    assert_eq!(task.set().counts().completed, 3);
    assert!(engine.close(false, None), "twice is once");
}

#[test]
fn closing_with_cancel_ends_what_has_not_begun() {
    let engine = Arc::new(engine(1));
    let (task, door) = held(&engine, alone(100));
    let waiting = engine.spawn(open(Seal::Manual, 0), |_: u32| {}).unwrap();
    let closer = {
        let engine = Arc::clone(&engine);
        thread::spawn(move || engine.close(true, None))
    };
    assert_eq!(task.set().wait_decided(None), Some(Decision::Cancelled));
    door.open();
    assert!(closer.join().unwrap());
    let counts = task.set().counts();
    assert_eq!((counts.completed, counts.cancelled), (1, 99));
    assert_eq!(waiting.set().decision(), Some(Decision::Cancelled));
}

#[test]
fn closing_seals_a_set_that_nobody_sealed() {
    let engine = engine(1);
    let task = engine.spawn(open(Seal::Manual, 5), |_: u32| {}).unwrap();
    assert!(engine.close(false, None));
    assert_eq!(task.set().decision(), Some(Decision::Fired));
    assert_eq!(task.set().counts().completed, 5);
}

#[test]
fn the_rest_of_a_chunk_whose_bodies_turn_out_slow_is_taken_over_by_others() {
    let engine = engine(2);
    let cost = Arc::new(Cost::new());
    // Again where the machine was too busy to show that the bodies are quick. By an engine that is gone afterwards, so that nobody learns more.
    while cost.ticks().is_none_or(|ticks| ticks > 200.0) {
        let engine = self::engine(2);
        engine
            .spawn_known(Spec::of(100_000), Arc::clone(&cost), |_: u32| {})
            .unwrap();
        assert!(engine.close(false, None));
    }

    // Taken for quick, so many are in the first chunk. The two that meet can only do so on two threads.
    let meeting = Barrier::new(2);
    let task = engine
        .spawn_known(
            Spec::of(100),
            Arc::clone(&cost),
            move |index: u32| match index {
                0 => toil(Duration::from_millis(2)),
                1 | 2 => drop(meeting.wait()),
                _ => {}
            },
        )
        .unwrap();
    assert_eq!(task.set().wait_decided(None), Some(Decision::Fired));
    let given = events_of(&engine, task.set());
    assert!(
        given
            .iter()
            .any(|e| e.kind == Kind::GivenBack && e.start == 1)
    );
    assert_eq!(task.set().counts().completed, 100);
}

#[test]
fn a_long_set_lets_another_in() {
    let engine = engine(1);
    let let_in = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&let_in);
    let long = engine
        .spawn(Spec::of(1_000_000), move |_: u32| {
            if !seen.load(Ordering::Relaxed) {
                toil(Duration::from_micros(10));
            }
        })
        .unwrap();
    let set = Arc::clone(long.set());
    let short = engine
        .spawn(Spec::of(1), move |_: u32| {
            let_in.store(true, Ordering::Relaxed);
            // It took its turn while the other had most of its work before it.
            if set.counts().pending > 500_000 {
                Ok(())
            } else {
                Err(())
            }
        })
        .unwrap();
    assert_eq!(short.set().wait_decided(None), Some(Decision::Fired));
    assert_eq!(long.set().wait_decided(None), Some(Decision::Fired));
}

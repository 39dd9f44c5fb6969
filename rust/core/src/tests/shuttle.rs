//! The executor under shuttle: thousands of random schedules of engines with two or three workers, their callers, and a journal that answers late.

use std::{
    any::Any,
    collections::VecDeque,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use shuttle::thread;

use crate::{
    Body, Chunk, Decision, Engine, Error, InstanceState, Join, Need, OnFailure, Options, Outcome,
    Place, Policy, Rest, Seal, Set, Settlement, Sink, Spec, Task,
    sync::{Condvar, Mutex, lock},
};

/// Runs a model under the random scheduler and under PCT with few preemptions. Shuttle itself reports what never ends.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    static TOTAL: AtomicUsize = AtomicUsize::new(0);
    let schedules = if std::env::var_os("SHOAL_LONG").is_some() {
        200_000
    } else {
        20_000
    };
    let name = std::thread::current()
        .name()
        .and_then(|name| name.rsplit("::").next())
        .unwrap_or("a model")
        .to_owned();
    let start = Instant::now();
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    shuttle::check_random(move || model(), schedules);
    shuttle::check_pct(move || again(), schedules, 3);
    let total = TOTAL.fetch_add(2 * schedules, SeqCst) + 2 * schedules;
    println!(
        "shuttle: {name}: {schedules} random and {schedules} PCT schedules, {:.1} s ({total} so far)",
        start.elapsed().as_secs_f64(),
    );
}

fn engine(workers: u32) -> Engine {
    engine_with(workers, None)
}

fn engine_with(workers: u32, sink: Option<Box<dyn Sink>>) -> Engine {
    Engine::new(Options {
        workers: Some(workers),
        sink,
        ..Options::default()
    })
    .unwrap()
}

/// Chunks of one: under a model the time a body takes says nothing.
fn of(count: u64) -> Spec {
    Spec {
        chunk: Some(1),
        ..Spec::of(count)
    }
}

fn open(seal: Seal, count: u64) -> Spec {
    Spec { seal, ..of(count) }
}

fn failing_as(on_failure: OnFailure) -> Policy {
    Policy {
        on_failure,
        ..Policy::default()
    }
}

/// How often each body ran.
#[derive(Clone)]
struct Runs(Arc<[AtomicUsize]>);

impl Runs {
    fn new(most: usize) -> Self {
        Self((0..most).map(|_| AtomicUsize::new(0)).collect())
    }

    fn count(&self, index: u32) {
        self.0[index as usize].fetch_add(1, SeqCst);
        // Somewhere in a body another thread has its turn.
        thread::yield_now();
    }

    fn body(&self) -> impl Body + 'static {
        let runs = self.clone();
        move |index: u32| runs.count(index)
    }
}

/// The conservation laws of a set that is over: each index is terminal, once in the log, and ran exactly where it says so.
fn over(task: &Arc<Task>, runs: &Runs) {
    let set = task.set();
    let counts = set.counts();
    assert!(set.is_finished() && counts.pending + counts.running == 0);
    assert_eq!(counts.total(), set.len());
    let mut logged = vec![0; set.len() as usize];
    let mut place = Place::default();
    loop {
        let range = set.wait_settled(&mut place, u32::MAX, None).unwrap();
        if range.is_empty() {
            break;
        }
        range.for_each(|index| logged[index as usize] += 1);
    }
    assert_eq!(logged, vec![1; set.len() as usize]);
    for index in 0..set.len() {
        let ran = runs.0[index as usize].load(SeqCst);
        match set.settled(index) {
            InstanceState::Completed | InstanceState::Failed => assert_eq!(ran, 1, "{index}"),
            InstanceState::Cancelled => assert_eq!(ran, 0, "{index}"),
            state => panic!("{index} is {state}"),
        }
    }
}

/// Counts the calls of a continuation. To be asked after the engine was closed, for it is a worker that calls.
fn continuations(set: &Set) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    set.on_decided(Box::new(move |_| {
        counter.fetch_add(1, SeqCst);
    }));
    calls
}

#[test]
fn a_caller_that_waits_helps_and_all_complete() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(3));
        let task = engine.spawn(of(3), runs.body()).unwrap();
        let calls = continuations(task.set());
        assert_eq!(task.wait(None), Some(Decision::Fired));
        assert!(task.drain(None));
        over(&task, &runs);
        assert!(engine.close(false, None));
        assert_eq!(calls.load(SeqCst), 1);
    });
}

#[test]
fn a_caller_that_starts_alone_leaves_nothing_behind() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(3));
        let (task, decision) = engine.run(of(3), runs.body()).unwrap();
        assert_eq!(decision, Decision::Fired);
        over(&task, &runs);
        assert!(engine.close(false, None));
    });
}

#[test]
fn two_sets_at_once_share_the_workers() {
    explore(|| {
        let engine = Arc::new(engine(2));
        let (mine, theirs) = (Runs::new(2), Runs::new(2));
        let other = {
            let (engine, theirs) = (Arc::clone(&engine), theirs.clone());
            thread::spawn(move || {
                let task = engine.spawn(of(2), theirs.body()).unwrap();
                assert_eq!(task.wait(None), Some(Decision::Fired));
                over(&task, &theirs);
            })
        };
        let task = engine.spawn(of(2), mine.body()).unwrap();
        assert_eq!(task.wait(None), Some(Decision::Fired));
        over(&task, &mine);
        other.join().unwrap();
        assert!(engine.close(false, None));
        let totals = engine.totals();
        assert_eq!((totals.sets, totals.completed), (2, 4));
    });
}

#[test]
fn a_set_grows_from_another_thread_until_it_is_sealed() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(4));
        let task = engine.spawn(open(Seal::Manual, 1), runs.body()).unwrap();
        let calls = continuations(task.set());
        let adder = Arc::clone(&task);
        let adder = thread::spawn(move || {
            let added = (0..3).map(|_| adder.add(1, |_| {}));
            added
                .filter(|added| match added {
                    Ok(_) => true,
                    Err(error) => {
                        assert_eq!(*error, Error::Sealed);
                        false
                    }
                })
                .count()
        });
        thread::yield_now();
        task.set().seal();
        assert_eq!(task.wait(None), Some(Decision::Fired));
        let added = adder.join().unwrap();
        assert_eq!(task.set().counts().completed as usize, 1 + added);
        over(&task, &runs);
        assert!(engine.close(false, None));
        assert_eq!(calls.load(SeqCst), 1);
    });
}

#[test]
fn what_is_added_to_idle_workers_is_run_without_the_adder() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(4));
        let task = engine.spawn(open(Seal::Manual, 0), runs.body()).unwrap();
        let other = Arc::clone(&task);
        let other = thread::spawn(move || {
            other.add(1, |_| {}).unwrap();
            thread::yield_now();
            other.add(1, |_| {}).unwrap();
        });
        task.add(2, |_| {}).unwrap();
        other.join().unwrap();
        // Not `drain`, which would help: the workers alone have to find all of it.
        assert!(task.set().wait_drained(None));
        assert_eq!(task.set().counts().completed, 4);
        task.set().seal();
        over(&task, &runs);
        assert!(engine.close(false, None));
    });
}

/// The first two bodies each add one more.
struct Adding(Runs);

impl Body for Adding {
    fn run(&self, chunk: &mut Chunk<'_>) {
        let task = Arc::clone(chunk.task());
        chunk.each(|index| {
            self.0.count(index);
            if index < 2 {
                task.add(1, |_| {}).unwrap();
            }
            Outcome::Completed
        });
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn a_set_that_seals_when_idle_waits_for_what_its_bodies_add() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(4));
        let task = engine
            .spawn(open(Seal::WhenIdle, 2), Adding(runs.clone()))
            .unwrap();
        let calls = continuations(task.set());
        assert_eq!(task.wait(None), Some(Decision::Fired));
        assert_eq!(task.set().counts().completed, 4);
        over(&task, &runs);
        assert!(engine.close(false, None));
        assert_eq!(calls.load(SeqCst), 1);
    });
}

#[test]
fn a_set_cancelled_from_another_thread_ends_with_none_lost() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(4));
        let task = engine.spawn(of(4), runs.body()).unwrap();
        let calls = continuations(task.set());
        let canceller = Arc::clone(&task);
        let canceller = thread::spawn(move || canceller.set().cancel());
        let decision = task.wait(None);
        canceller.join().unwrap();
        assert!(task.drain(None));
        over(&task, &runs);
        match decision {
            Some(Decision::Fired) => assert_eq!(task.set().counts().completed, 4),
            decision => assert_eq!(decision, Some(Decision::Cancelled)),
        }
        assert!(engine.close(false, None));
        assert_eq!(calls.load(SeqCst), 1);
    });
}

#[test]
fn a_chunk_that_is_stopped_in_the_middle_settles_all_of_it() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(5));
        let spec = Spec {
            chunk: Some(3),
            ..Spec::of(5)
        };
        let task = engine.spawn(spec, runs.body()).unwrap();
        let canceller = Arc::clone(&task);
        let canceller = thread::spawn(move || canceller.set().cancel());
        assert!(task.set().wait_drained(None));
        canceller.join().unwrap();
        over(&task, &runs);
        assert!(engine.close(false, None));
    });
}

#[test]
fn a_threshold_fires_once_and_stops_the_rest() {
    explore(|| {
        let (engine, runs) = (engine(3), Runs::new(5));
        let policy = Policy::new(Join::AtLeast {
            need: Need::Count(2),
            or_all: false,
        });
        let task = engine.spawn(Spec { policy, ..of(5) }, runs.body()).unwrap();
        let calls = continuations(task.set());
        assert_eq!(task.wait(None), Some(Decision::Fired));
        assert!(task.set().counts().completed >= 2);
        assert!(task.drain(None));
        over(&task, &runs);
        assert!(engine.close(false, None));
        assert_eq!(calls.load(SeqCst), 1);
    });
}

#[test]
fn a_body_that_panics_fails_alone_and_the_workers_live_on() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(4));
        let body = {
            let runs = runs.clone();
            move |index: u32| {
                runs.count(index);
                if index == 1 {
                    // Not `panic!`: its message would be printed for each schedule.
                    resume_unwind(Box::new("one"));
                }
            }
        };
        let spec = Spec {
            policy: failing_as(OnFailure::Continue),
            chunk: Some(2),
            ..Spec::of(4)
        };
        let task = engine.spawn(spec, body).unwrap();
        assert_eq!(task.wait(None), Some(Decision::Fired));
        over(&task, &runs);
        let counts = task.set().counts();
        assert_eq!((counts.completed, counts.failed), (3, 1));

        let next = Runs::new(2);
        let task = engine.spawn(of(2), next.body()).unwrap();
        assert_eq!(task.wait(None), Some(Decision::Fired));
        over(&task, &next);
        assert!(engine.close(false, None));
    });
}

#[test]
fn a_failure_that_fails_fast_stops_the_chunks_of_others() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(5));
        let body = {
            let runs = runs.clone();
            move |index: u32| {
                runs.count(index);
                if index == 0 { Err(()) } else { Ok(()) }
            }
        };
        let spec = Spec {
            chunk: Some(2),
            ..Spec::of(5)
        };
        let task = engine.spawn(spec, body).unwrap();
        let calls = continuations(task.set());
        assert_eq!(task.wait(None), Some(Decision::Failed));
        assert!(task.drain(None));
        over(&task, &runs);
        assert!(engine.close(false, None));
        assert_eq!(calls.load(SeqCst), 1);
    });
}

#[test]
fn a_continuation_that_comes_late_or_early_is_called_once() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(2));
        let task = engine.spawn(of(2), runs.body()).unwrap();
        let other = Arc::clone(&task);
        let other = thread::spawn(move || continuations(other.set()));
        let mine = continuations(task.set());
        assert_eq!(task.wait(None), Some(Decision::Fired));
        let theirs = other.join().unwrap();
        assert!(engine.close(false, None));
        assert_eq!((mine.load(SeqCst), theirs.load(SeqCst)), (1, 1));
    });
}

#[test]
fn closing_the_engine_waits_for_everything() {
    explore(|| {
        let engine = Arc::new(engine(2));
        let (mine, theirs) = (Runs::new(3), Runs::new(2));
        let going_on = Policy {
            rest: Rest::Continue,
            ..Policy::new(Join::AtLeast {
                need: Need::Count(1),
                or_all: false,
            })
        };
        let spec = Spec {
            policy: going_on,
            ..of(3)
        };
        let task = engine.spawn(spec, mine.body()).unwrap();
        let calls = continuations(task.set());
        let other = {
            let (engine, theirs) = (Arc::clone(&engine), theirs.clone());
            thread::spawn(move || engine.spawn(of(2), theirs.body()))
        };
        assert!(engine.close(false, None));
        over(&task, &mine);
        assert_eq!((task.set().counts().completed, calls.load(SeqCst)), (3, 1));
        // One that came in time was waited for; one that came late was refused.
        match other.join().unwrap() {
            Ok(task) => over(&task, &theirs),
            Err(error) => assert_eq!(error, Error::EngineClosed),
        }
    });
}

#[test]
fn what_is_given_back_is_run_by_somebody_or_cancelled() {
    explore(|| {
        let (engine, runs) = (engine(2), Runs::new(4));
        let task = engine.spawn(of(4), runs.body()).unwrap();
        let giver = Arc::clone(&task);
        let giver = thread::spawn(move || {
            if let Some(range) = giver.set().claim(2) {
                thread::yield_now();
                giver.set().give_back(range);
                giver.set().executor().submit(&giver);
            }
        });
        // Without help, so that it is the workers who find what came back.
        assert_eq!(task.set().wait_decided(None), Some(Decision::Fired));
        giver.join().unwrap();
        assert_eq!(task.set().counts().completed, 4);
        over(&task, &runs);

        let runs = Runs::new(4);
        let task = engine.spawn(of(4), runs.body()).unwrap();
        let giver = Arc::clone(&task);
        let giver = thread::spawn(move || {
            if let Some(range) = giver.set().claim(2) {
                giver.set().give_back(range);
                giver.set().executor().submit(&giver);
            }
        });
        task.set().cancel();
        giver.join().unwrap();
        assert!(task.set().wait_drained(None));
        over(&task, &runs);
        assert!(engine.close(false, None));
    });
}

/// A journal: what it is given counts when its own thread has written it.
#[derive(Default)]
struct Journal {
    lines: Mutex<VecDeque<Line>>,
    written: Condvar,
}

enum Line {
    Settled(Arc<Set>, Settlement),
    Decided(Arc<Set>, Decision),
    End,
}

struct Desk(Arc<Journal>);

impl Journal {
    fn push(&self, line: Line) {
        lock(&self.lines).push_back(line);
        self.written.notify_all();
    }

    /// Writes until the end; answers with the number of decisions.
    fn write(&self) -> usize {
        let mut decisions = 0;
        loop {
            let mut lines = lock(&self.lines);
            let line = loop {
                match lines.pop_front() {
                    Some(line) => break line,
                    None => lines = self.written.wait(lines).unwrap(),
                }
            };
            drop(lines);
            match line {
                Line::Settled(set, settlement) => set.arrive(settlement),
                Line::Decided(set, decision) => {
                    decisions += 1;
                    set.publish(decision);
                }
                Line::End => return decisions,
            }
        }
    }
}

impl Sink for Desk {
    fn settled(&self, set: &Arc<Set>, settlement: Settlement) {
        self.0.push(Line::Settled(Arc::clone(set), settlement));
    }

    fn decided(&self, set: &Arc<Set>, decision: Decision) {
        self.0.push(Line::Decided(Arc::clone(set), decision));
    }
}

#[test]
fn with_a_journal_a_decision_is_seen_when_it_was_written_and_only_once() {
    explore(|| {
        let journal = Arc::new(Journal::default());
        let engine = engine_with(2, Some(Box::new(Desk(Arc::clone(&journal)))));
        let writer = {
            let journal = Arc::clone(&journal);
            thread::spawn(move || journal.write())
        };
        let runs = Runs::new(3);
        let task = engine.spawn(of(3), runs.body()).unwrap();
        let calls = continuations(task.set());
        let canceller = Arc::clone(&task);
        let canceller = thread::spawn(move || {
            canceller.set().cancel();
            canceller.set().decision()
        });
        let decision = task.wait(None);
        assert_eq!(canceller.join().unwrap(), decision);
        assert!(task.drain(None));
        over(&task, &runs);
        assert!(engine.close(false, None));
        journal.push(Line::End);
        assert_eq!((writer.join().unwrap(), calls.load(SeqCst)), (1, 1));
    });
}

//! What stands alone: the gate of its own and the ring of events.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use loom::thread;

use super::explore;
use crate::{Calls, Decision, Event, Gate, Kind, Ring};

struct AtOnce;

impl Calls for AtOnce {
    fn call(&self, f: Box<dyn FnOnce() + Send>) {
        f();
    }
}

fn gate(target: u64) -> (Arc<Gate>, Arc<AtomicUsize>) {
    let gate = Gate::new(target, Arc::new(AtOnce)).unwrap();
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
        assert!(ring.dropped() <= 1 && events.len() as u64 + ring.dropped() >= 1);
        assert_eq!(next, 2);
    });
}

//! The one stream of what happened: a record for a range, in a bounded ring that observers pull from and writers never wait for.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

/// What a record says happened to its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Instances exist from here on.
    Created = 0,
    /// Instances joined an open set.
    Added = 1,
    /// The set takes no more; `stop` is the final count.
    Sealed = 2,
    /// Bodies returned.
    Completed = 3,
    /// Bodies failed.
    Failed = 4,
    /// Never begun, or stopped when asked.
    Cancelled = 5,
    /// Out of time.
    TimedOut = 6,
    /// Claimed, not run, and free again.
    GivenBack = 7,
    /// The gate fired.
    GateFired = 8,
    /// The gate failed.
    GateFailed = 9,
    /// The gate was cancelled.
    GateCancelled = 10,
    /// The gate's time ran out.
    GateTimedOut = 11,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Created,
        Self::Added,
        Self::Sealed,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::GivenBack,
        Self::GateFired,
        Self::GateFailed,
        Self::GateCancelled,
        Self::GateTimedOut,
    ];

    /// The name users see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Added => "added",
            Self::Sealed => "sealed",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::GivenBack => "given_back",
            Self::GateFired => "gate_fired",
            Self::GateFailed => "gate_failed",
            Self::GateCancelled => "gate_cancelled",
            Self::GateTimedOut => "gate_timed_out",
        }
    }
}

/// One thing that happened to one range of one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the engine's stream, from 0.
    pub seq: u64,
    /// When it was over, in ticks of the engine's clock.
    pub at: u64,
    /// How long it took, in ticks; 0 where nothing ran.
    pub took: u64,
    /// The set.
    pub set: u64,
    /// First index.
    pub start: u32,
    /// One past the last.
    pub stop: u32,
    /// What happened.
    pub kind: Kind,
    /// The worker it happened on; [`Event::NO_WORKER`] for other threads.
    pub worker: u32,
}

impl Event {
    /// The thread was no worker of the engine.
    pub const NO_WORKER: u32 = u32::MAX;
}

/// A slot's stamp is `2 * seq + 1` while it is written and `2 * seq + 2` when it holds record `seq`.
struct Slot {
    stamp: AtomicU64,
    /// One more than the last record that was given up here.
    given_up: AtomicU64,
    fields: [AtomicU64; 5],
}

/// The newest records. Writers take a number each; a reader that was lapped is told what it missed.
pub struct Ring {
    head: CachePadded<AtomicU64>,
    dropped: AtomicU64,
    slots: Box<[Slot]>,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.next_power_of_two();
        Self {
            head: CachePadded::new(AtomicU64::new(0)),
            dropped: AtomicU64::new(0),
            slots: (0..capacity)
                .map(|_| Slot {
                    stamp: AtomicU64::new(0),
                    given_up: AtomicU64::new(0),
                    fields: std::array::from_fn(|_| AtomicU64::new(0)),
                })
                .collect(),
        }
    }

    /// How many records were ever written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// How many were given up because a writer a whole ring behind held their slot.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, event: Event) {
        let seq = self.head.fetch_add(1, Ordering::AcqRel);
        let slot = &self.slots[seq as usize & (self.slots.len() - 1)];
        let stamp = slot.stamp.load(Ordering::Relaxed);
        // A slot that is being written belongs to a writer that was lapped; a newer stamp says we were.
        if stamp % 2 == 1
            || stamp > 2 * seq
            || slot
                .stamp
                .compare_exchange(stamp, 2 * seq + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
        {
            // Readers must not wait for it.
            slot.given_up.fetch_max(seq + 1, Ordering::Release);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let place = u64::from(event.start) << 32 | u64::from(event.stop);
        let what = u64::from(event.worker) << 8 | event.kind as u64;
        for (field, value) in slot
            .fields
            .iter()
            .zip([event.at, event.took, event.set, place, what])
        {
            // Release keeps the field behind the odd stamp for a reader that sees it.
            field.store(value, Ordering::Release);
        }
        slot.stamp.store(2 * seq + 2, Ordering::Release);
    }

    /// The records from `since` on that are still there, in order, and the number to ask from next. A record that is being written ends
    /// the answer: it comes with the next one. Numbers that are left out were overwritten, or given up by their writer.
    #[must_use]
    pub fn read(&self, since: u64) -> (Vec<Event>, u64) {
        let head = self.written();
        let capacity = self.slots.len() as u64;
        let oldest = head.saturating_sub(capacity);
        let mut events = Vec::new();
        for seq in since.max(oldest)..head {
            let slot = &self.slots[seq as usize & (self.slots.len() - 1)];
            let stamp = slot.stamp.load(Ordering::Acquire);
            let is_due = stamp < 2 * seq + 2 && head - seq <= capacity / 2;
            if is_due && slot.given_up.load(Ordering::Acquire) <= seq {
                return (events, seq);
            }
            if stamp != 2 * seq + 2 {
                continue;
            }
            // Acquire on each field keeps the second look at the stamp behind them.
            let [at, took, set, place, what] =
                std::array::from_fn(|k| slot.fields[k].load(Ordering::Acquire));
            if slot.stamp.load(Ordering::Relaxed) != 2 * seq + 2 {
                continue;
            }
            events.push(Event {
                seq,
                at,
                took,
                set,
                start: (place >> 32) as u32,
                stop: place as u32,
                kind: Kind::ALL[(what & 0xff) as usize],
                worker: (what >> 8) as u32,
            });
        }
        (events, head)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn event(set: u64) -> Event {
        Event {
            seq: 0,
            at: set * 3,
            took: set * 5,
            set,
            start: set as u32,
            stop: set as u32 + 1,
            kind: Kind::Completed,
            worker: Event::NO_WORKER,
        }
    }

    #[test]
    fn the_ring_keeps_the_newest_and_tells_where_to_go_on() {
        let ring = Ring::new(4);
        (0..10).for_each(|set| ring.push(event(set)));
        let (events, next) = ring.read(0);
        assert_eq!(
            events.iter().map(|e| e.set).collect::<Vec<_>>(),
            [6, 7, 8, 9]
        );
        assert_eq!(next, 10);
        assert!(ring.read(next).0.is_empty());
        assert_eq!(events[0].worker, Event::NO_WORKER);
    }

    #[test]
    fn a_record_that_was_given_up_hides_none_after_it() {
        let ring = Ring::new(16);
        (0..16).for_each(|set| ring.push(event(set)));
        // The writer of record 16 is put aside in the middle of it, and a whole ring goes by.
        let slow = ring.head.fetch_add(1, Ordering::AcqRel);
        let slot = &ring.slots[slow as usize % 16];
        slot.stamp.store(2 * slow + 1, Ordering::Relaxed);
        (17..35).for_each(|set| ring.push(event(set)));
        slot.stamp.store(2 * slow + 2, Ordering::Relaxed);
        assert_eq!(ring.dropped(), 1);
        let (events, next) = ring.read(30);
        assert_eq!(
            events.iter().map(|e| e.seq).collect::<Vec<_>>(),
            [30, 31, 33, 34]
        );
        assert_eq!(next, 35);
    }

    #[test]
    fn a_record_is_never_torn() {
        let ring = Ring::new(8);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let ring = &ring;
                scope.spawn(move || (0..20_000).for_each(|k| ring.push(event(writer + 2 * k))));
            }
            for _ in 0..2_000 {
                for e in ring.read(0).0 {
                    assert_eq!(
                        (e.at, e.took, e.stop),
                        (e.set * 3, e.set * 5, e.set as u32 + 1)
                    );
                }
            }
        });
        assert_eq!(ring.written(), 40_000);
    }
}

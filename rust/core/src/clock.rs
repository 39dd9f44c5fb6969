//! Time: the processor's invariant counter where there is one, nanoseconds elsewhere, and a clock that tests move by hand.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// What one tick of the clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A tick of the processor's invariant time-stamp counter.
    Ticks,
    /// A nanosecond.
    Nanoseconds,
}

/// Where an engine's time comes from.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Machine,
    Manual(Arc<AtomicU64>),
}

/// The hand that moves a manual clock.
#[derive(Clone, Debug)]
pub struct Hand(Arc<AtomicU64>);

impl Hand {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self(Source::Machine)
    }
}

impl Clock {
    /// A clock that stands still until its hand is moved. It ticks in nanoseconds.
    #[must_use]
    pub fn manual() -> (Self, Hand) {
        let time = Arc::new(AtomicU64::new(0));
        (Self(Source::Manual(Arc::clone(&time))), Hand(time))
    }

    /// The time in ticks of this clock's [`Unit`].
    #[must_use]
    #[inline]
    pub fn ticks(&self) -> u64 {
        match &self.0 {
            Source::Machine => machine().ticks(),
            Source::Manual(time) => time.load(Ordering::SeqCst),
        }
    }

    /// What a tick is.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match &self.0 {
            Source::Machine => machine().unit,
            Source::Manual(_) => Unit::Nanoseconds,
        }
    }

    /// Ticks in so much time.
    #[must_use]
    pub fn ticks_in(&self, time: Duration) -> u64 {
        match &self.0 {
            Source::Machine => (time.as_nanos() as f64 * machine().per_ns) as u64,
            Source::Manual(_) => time.as_nanos() as u64,
        }
    }

    /// Nanoseconds in so many ticks.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        match &self.0 {
            Source::Machine => (ticks as f64 / machine().per_ns) as u64,
            Source::Manual(_) => ticks,
        }
    }

    /// Nanoseconds since the Unix epoch at a reading of [`Clock::ticks`].
    #[must_use]
    pub fn unix_ns(&self, ticks: u64) -> u64 {
        match &self.0 {
            Source::Machine => machine().unix_ns(ticks),
            Source::Manual(_) => ticks,
        }
    }
}

struct Machine {
    unit: Unit,
    per_ns: f64,
    origin_ticks: u64,
    origin: Instant,
    origin_unix_ns: u64,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

#[inline]
fn machine() -> &'static Machine {
    MACHINE.get_or_init(Machine::measure)
}

impl Machine {
    /// Half a millisecond, once a process: fixes how many ticks a nanosecond has.
    fn measure() -> Self {
        let origin = Instant::now();
        let mut machine = Self {
            unit: if counter::is_invariant() {
                Unit::Ticks
            } else {
                Unit::Nanoseconds
            },
            per_ns: 1.0,
            origin_ticks: counter::read(),
            origin,
            origin_unix_ns: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_nanos() as u64),
        };
        if machine.unit == Unit::Ticks {
            while origin.elapsed() < Duration::from_micros(500) {
                std::hint::spin_loop();
            }
            let ticks = counter::read() - machine.origin_ticks;
            machine.per_ns = ticks as f64 / origin.elapsed().as_nanos() as f64;
        }
        machine
    }

    #[inline]
    fn ticks(&self) -> u64 {
        match self.unit {
            Unit::Ticks => counter::read(),
            Unit::Nanoseconds => self.origin.elapsed().as_nanos() as u64,
        }
    }

    fn unix_ns(&self, ticks: u64) -> u64 {
        let origin = match self.unit {
            Unit::Ticks => self.origin_ticks,
            Unit::Nanoseconds => 0,
        };
        let since = ticks.wrapping_sub(origin) as i64;
        self.origin_unix_ns
            .wrapping_add_signed((since as f64 / self.per_ns) as i64)
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the time-stamp counter is an instruction")]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has rdtsc; it reads a register and touches no memory.
        unsafe { _rdtsc() }
    }

    /// Leaf 0x8000_0007, EDX bit 8: the counter runs at one rate in every power state.
    pub(super) fn is_invariant() -> bool {
        const ADVANCED_POWER: u32 = 0x8000_0007;
        __cpuid(0x8000_0000).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx & (1 << 8) != 0
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub(super) fn read() -> u64 {
        0
    }

    pub(super) fn is_invariant() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_its_hand() {
        let (clock, hand) = Clock::manual();
        assert_eq!(clock.ticks(), 0);
        hand.advance(Duration::from_secs(3));
        assert_eq!(clock.ticks(), 3_000_000_000);
        assert_eq!(clock.unit(), Unit::Nanoseconds);
    }

    #[test]
    fn ticks_and_nanoseconds_agree_with_the_systems_clock() {
        let clock = Clock::default();
        let (ticks, start) = (clock.ticks(), Instant::now());
        while start.elapsed() < Duration::from_millis(5) {}
        let (measured, real) = (
            clock.nanoseconds(clock.ticks() - ticks),
            start.elapsed().as_nanos(),
        );
        assert!(measured as f64 > 0.8 * 5e6 && (measured as f64) < 1.5 * real as f64);
    }
}

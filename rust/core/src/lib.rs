//! Run one task a million times, and know when enough of them are done.
//!
//! A *set* is one task's instances, known by their index. A *body* is what each of them does. The set's *gate* is decided exactly once, by
//! its *join*. No object is made for an instance: sets are created, claimed, settled, counted and recorded as ranges.
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//! use shoal_core::{Decision, Engine, Options, Spec};
//!
//! let engine = Engine::new(Options::default())?;
//! let sum = Arc::new(AtomicU64::new(0));
//!
//! let total = Arc::clone(&sum);
//! let set = engine.spawn(Spec::of(100_000), move |index: u32| {
//!     total.fetch_add(u64::from(index), Ordering::Relaxed);
//! })?;
//!
//! assert_eq!(set.wait(None), Some(Decision::Fired));
//! assert_eq!(set.set().counts().completed, 100_000);
//! assert_eq!(sum.load(Ordering::Relaxed), 4_999_950_000);
//! # Ok::<(), shoal_core::Error>(())
//! ```
//!
//! Enough is enough: the third success fires the gate and cancels what has not begun.
//!
//! ```
//! use shoal_core::{Decision, Engine, Join, Need, Options, Policy, Spec};
//!
//! let engine = Engine::new(Options::default())?;
//! let third = Policy::new(Join::AtLeast { need: Need::Count(3), or_all: false });
//! let set = engine.spawn(Spec { policy: third, ..Spec::of(1_000) }, |index: u32| {
//!     if index % 2 == 0 { Ok(()) } else { Err("odd") }
//! })?;
//!
//! assert_eq!(set.wait(None), Some(Decision::Fired));
//! set.drain(None);
//! let counts = set.set().counts();
//! assert!(counts.completed >= 3 && counts.completed < 20);
//! assert_eq!(counts.total(), 1_000);
//! # Ok::<(), shoal_core::Error>(())
//! ```
//!
//! `PROTOCOL.md` beside this crate is the protocol on one page; `tests` under it check that page with loom and shuttle.

mod chunk;
mod clock;
mod column;
mod cost;
mod count;
mod engine;
mod error;
mod event;
mod executor;
mod gate;
mod join;
mod lookout;
mod scope;
mod set;
mod state;
mod sync;
mod tally;
#[cfg(all(test, any(loom, shuttle)))]
mod tests;
mod ticks;
mod verdict;

pub use chunk::{Body, Chunk};
pub use clock::{Clock, Hand, Unit};
pub use column::Column;
pub use cost::Cost;
pub use count::{Count, Limits};
pub use engine::{Engine, Options, Totals, after_fork, generation};
pub use error::{Error, Result};
pub use event::{Event, Kind, Ring};
pub use executor::{Executor, Task, Waiting};
pub use gate::{Calls, Gate};
pub use join::{Join, Need, OnFailure, Policy, Rest, Weights};
pub use scope::{Case, CaseState, Entry};
pub use set::{Place, Seal, Set, Settlement, Sink, Spec};
pub use state::{Counts, Decision, InstanceState, Outcome};
pub use tally::{MAX_INSTANCES, Snapshot};
pub use ticks::{Phase, Ticks};
pub use verdict::{Asked, Callback, Continuation};

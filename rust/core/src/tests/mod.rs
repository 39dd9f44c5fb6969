//! `PROTOCOL.md` under the model checkers: loom over the words of a set, shuttle over the executor.
//! In the crate, for claim, settle and give back are nobody else's.

#[cfg(loom)]
mod loom;
#[cfg(shuttle)]
mod shuttle;

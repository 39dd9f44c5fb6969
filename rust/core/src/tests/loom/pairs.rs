//! Each verb against each other verb, and nothing else: small enough for every interleaving of the two, but where both do much.

use std::{ops::Range, sync::atomic::Ordering::SeqCst};

use super::{World, explore};
use crate::{Decision, InstanceState, Seal, Spec};

/// What a thread does to the set of one instance that the models are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    /// Claims one, and runs it when the race is over.
    Claim,
    /// Claims what it can, and settles it as completed.
    Run,
    /// Settles what was claimed before the race.
    Settle,
    /// Gives back what was claimed before the race.
    GiveBack,
    Add,
    Seal,
    Cancel,
    Complete,
}
use Verb::{Add, Cancel, Claim, Complete, GiveBack, Run, Seal as SealIt, Settle};

impl Verb {
    /// What it claimed and still has.
    fn act(self, world: &World) -> Option<Range<u32>> {
        match self {
            Claim => return world.set.claim(1),
            Run => while world.run(1, &[]) {},
            Settle => world.settle(0..1, InstanceState::Completed, &[]),
            GiveBack => world.set.give_back(0..1),
            Add => drop(world.set.add(1, |_| {})),
            SealIt => world.set.seal(),
            Cancel | Complete => {
                match self {
                    Cancel => world.set.cancel(),
                    _ => world.set.complete(),
                }
                assert!(world.set.decision().is_some(), "decided when it returns");
                world.closed();
            }
        }
        None
    }

    fn needs_a_claim(self) -> bool {
        matches!(self, Settle | GiveBack)
    }

    fn does_much(self) -> bool {
        matches!(self, Run | Cancel | Complete)
    }
}

/// Both verbs at once on a set of one instance, open where that makes a difference; then what is left is run, so that it ends.
fn race(one: Verb, other: Verb) {
    // Exhaustive takes hours where a close races a close, or all of a chunk.
    let is_large = one.does_much() && other.does_much() && (one, other) != (Run, Run);
    explore(is_large.then_some(4), move || {
        let is_open = [one, other].iter().any(|verb| matches!(verb, Add | SealIt));
        let world = World::bare(Spec {
            seal: if is_open { Seal::Manual } else { Seal::AtOnce },
            ..Spec::of(1)
        });
        if one.needs_a_claim() || other.needs_a_claim() {
            assert_eq!(world.set.claim(1), Some(0..1));
        }
        let thread = world.spawn(move |world| other.act(world));
        let mine = one.act(&world);
        let theirs = thread.join().unwrap();
        let claimed = [mine, theirs].into_iter().flatten();
        claimed.for_each(|range| world.run_range(range, &[]));
        let was_ended = world.seen.closed.load(SeqCst);
        world.set.seal();
        while world.run(1, &[]) {}
        let (decision, counts) = world.over();
        if !was_ended {
            assert_eq!(decision, Decision::Fired);
            assert_eq!(counts.completed, counts.total(), "none is lost");
        }
    });
}

macro_rules! races {
    ($($name:ident: $one:ident against $other:ident;)*) => {
        $(#[test] fn $name() {
            race($one, $other);
            // The checker treats the thread that made the others differently from them.
            if $one != $other {
                race($other, $one);
            }
        })*
    };
}

races! {
    claim_against_claim: Claim against Claim;
    claim_against_add: Add against Claim;
    claim_against_seal: SealIt against Claim;
    claim_against_give_back: Claim against GiveBack;
    claim_against_settle: Claim against Settle;
    claim_against_cancel: Claim against Cancel;
    claim_against_complete: Claim against Complete;
    run_against_run: Run against Run;
    run_against_add: Run against Add;
    run_against_seal: Run against SealIt;
    run_against_cancel: Run against Cancel;
    run_against_complete: Run against Complete;
    run_against_give_back: Run against GiveBack;
    settle_against_add: Settle against Add;
    settle_against_seal: Settle against SealIt;
    settle_against_cancel: Settle against Cancel;
    settle_against_complete: Settle against Complete;
    give_back_against_cancel: GiveBack against Cancel;
    give_back_against_complete: GiveBack against Complete;
    add_against_add: Add against Add;
    add_against_seal: Add against SealIt;
    add_against_cancel: Add against Cancel;
    add_against_complete: Add against Complete;
    seal_against_seal: SealIt against SealIt;
    seal_against_cancel: SealIt against Cancel;
    seal_against_complete: SealIt against Complete;
    cancel_against_cancel: Cancel against Cancel;
    cancel_against_complete: Cancel against Complete;
    complete_against_complete: Complete against Complete;
}

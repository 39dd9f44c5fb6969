"""hypothesis drives the Python API and the reference of model.py side by side, and compares them after each step.

Every body blocks until the test lets it go, so the test chooses the order in which instances end. `SHOAL_LONG=1` runs
many more.
"""

import os
import threading

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model import Join, OnFailure, SetModel
from steering import LIMIT, Steered, holds_by

import shoal

LONG = os.environ.get("SHOAL_LONG") == "1"
SETTINGS = settings(
    max_examples=20_000 if LONG else 400,
    stateful_step_count=60 if LONG else 20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

FRACTIONS = [0.25, 0.5, 0.75, 1.0]


@st.composite
def programs(draw):
    """Workers, count and policies of a set; only those whose meaning semantics.md fixes."""
    seal = draw(st.sampled_from(["at_once", "manual", "when_idle"]))
    count = draw(st.integers(0 if seal == "manual" else 1, 7))
    most = max(1, count) if seal == "at_once" else 6
    kinds = ["all_of", "at_least", "or_all", "any_of", "fraction"] + (["weighted"] if seal == "at_once" else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "all_of":
        join = Join()
    elif kind == "fraction":
        join = Join(fraction=draw(st.sampled_from(FRACTIONS)))
    elif kind == "weighted":
        weights = tuple(draw(st.lists(st.integers(0, 4), min_size=count, max_size=count).filter(any)))
        join = Join(weights=weights, at_least=draw(st.integers(1, sum(weights))))
    else:
        n = 1 if kind == "any_of" else draw(st.integers(1, most))
        join = Join(n=n, or_all=kind == "or_all")
    failures = [OnFailure("fail_fast"), OnFailure("fail_late"), OnFailure("continue"), OnFailure("tolerate", n=1)]
    failures += [OnFailure("tolerate", n=2)]
    if kind == "all_of":
        failures += [OnFailure("tolerate_fraction", fraction=f, after=a) for f in (0.25, 0.5) for a in (1, 3)]
    return {
        "workers": draw(st.integers(1, 3)),
        "count": count,
        "seal": seal,
        "join": join,
        "rest": draw(st.sampled_from(["cancel", "continue"])),
        "on_failure": draw(st.sampled_from(failures)),
    }


def as_join(join):
    """The model's join as the package's."""
    if join.weights is not None:
        return shoal.weighted(list(join.weights), at_least=join.at_least)
    if join.fraction is not None:
        return shoal.at_least(fraction=join.fraction)
    if join.n is None:
        return shoal.all_of()
    return shoal.at_least(join.n, or_all=True) if join.or_all else shoal.at_least(join.n)


def as_on_failure(policy):
    """The model's failure policy as the package's."""
    if policy.kind == "tolerate":
        return shoal.tolerate(policy.n)
    if policy.kind == "tolerate_fraction":
        return shoal.tolerate(fraction=policy.fraction, after=policy.after)
    return policy.kind


class SetMachine(RuleBasedStateMachine):
    """One set and its model."""

    model = None

    @initialize(program=programs())
    def spawn(self, program):
        self.body = Steered()
        self.engine = shoal.Engine(workers=program["workers"])
        self.fired, self.decided = [], []
        self.told = threading.Event()
        self.model = SetModel(
            workers=program["workers"],
            join=program["join"],
            rest=program["rest"],
            on_failure=program["on_failure"],
            seal_mode=program["seal"],
        )
        self.instances = shoal.spawn(
            self.body,
            range(program["count"]),
            seal=program["seal"],
            join=as_join(program["join"]),
            rest=program["rest"],
            on_failure=as_on_failure(program["on_failure"]),
            chunk=1,
            engine=self.engine,
        )
        self.model.create(program["count"])
        self.instances.gate.on_fired(self.fired.append)
        self.instances.on_decided(self.note_decided)

    def note_decided(self, instances):
        self.decided.append(str(instances.gate.state))
        self.told.set()

    def seen(self):
        """What a user can see of the set."""
        return (
            str(self.instances.gate.state),
            str(self.instances.state),
            tuple(self.instances.counts),
            [str(self.instances.status(i)) for i in range(len(self.instances))],
            dict(self.instances.values),
            sorted(self.instances.errors),
        )

    def expected(self):
        """The same of the model."""
        statuses = self.model.statuses
        return (
            self.model.gate,
            self.model.state,
            self.model.counts(),
            list(statuses),
            {i: i * 10 for i, s in enumerate(statuses) if s == "completed"},
            [i for i, s in enumerate(statuses) if s == "failed"],
        )

    @invariant()
    def agree(self):
        if self.model is None:
            return
        self.body.wait_begun(*self.model.running)
        if not holds_by(lambda: self.seen() == self.expected(), LIMIT / 4):
            assert self.seen() == self.expected()

    def settle(self, data, outcome):
        index = data.draw(st.sampled_from(self.model.running), label="index")
        if outcome == "completed":
            self.body.release(index)
        else:
            self.body.fail(index, shoal.Cancelled() if outcome == "cancelled" else None)
        self.model.settle(index, outcome)

    @precondition(lambda self: self.model is not None and self.model.running)
    @rule(data=st.data())
    def release_one(self, data):
        self.settle(data, "completed")

    @precondition(lambda self: self.model is not None and self.model.running)
    @rule(data=st.data(), outcome=st.sampled_from(["failed", "failed", "cancelled"]))
    def fail_one(self, data, outcome):
        self.settle(data, outcome)

    @precondition(lambda self: self.model is not None)
    @rule(count=st.integers(1, 4))
    def add(self, count):
        first = len(self.model.statuses)
        items = range(first, first + count)
        if self.model.add(count):
            self.instances.add(*items)
        else:
            with pytest.raises(shoal.SealedError):
                self.instances.add(*items)

    def may_seal(self):
        """What a threshold means for a set that never had an instance is not said."""
        return self.model is not None and (
            self.model.statuses or self.model.join in (Join(), Join(n=self.model.join.n))
        )

    @precondition(may_seal)
    @rule()
    def seal(self):
        self.instances.seal()
        self.model.seal()

    @precondition(lambda self: self.model is not None)
    @rule(again=st.booleans())
    def cancel(self, again):
        self.instances.cancel()
        self.model.cancel()
        if again:
            self.instances.cancel()

    @precondition(lambda self: self.model is not None)
    @rule(again=st.booleans())
    def complete(self, again):
        self.instances.complete()
        self.model.complete()
        if again:
            self.instances.complete()

    def teardown(self):
        if self.model is None:
            return
        try:
            self.finish()
        finally:
            self.body.release_all()
            self.engine.close(cancel=True)

    def finish(self):
        """The continuation ran once if it had to, and the outcomes come in the order in which the test let them."""
        self.instances.cancel()
        self.model.cancel()
        order = list(self.model.order)
        self.body.release_all()
        for index in self.model.running:
            self.model.settle(index, "completed")
        self.instances.drain(timeout=LIMIT)
        assert self.seen() == self.expected()
        outcomes = [o for o in self.instances.as_completed() if o.index in set(self.model.order)]
        assert [o.index for o in outcomes][: len(order)] == order
        assert sorted(o.index for o in outcomes) == sorted(self.model.order)
        assert [str(o.status) for o in outcomes] == [self.model.statuses[o.index] for o in outcomes]
        assert self.told.wait(LIMIT)
        self.engine.close()
        assert self.decided == [self.model.gate]
        assert len(self.fired) == (self.model.gate == "fired")
        assert sorted(self.body.began) == sorted(self.model.order)


@pytest.mark.hard_limit(6 * 3600 if LONG else 600)
def test_a_set_does_what_the_model_does():
    """Each sentence is a statement that a test can falsify."""
    run_state_machine_as_test(SetMachine, settings=SETTINGS)

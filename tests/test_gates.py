"""The sentences of semantics.md under "Gates"."""

import contextlib
import threading

import pytest
from steering import LIMIT, eventually, in_thread, settled

import shoal


def test_a_gate_is_waiting_until_it_is_decided(held):
    """A gate is `waiting` until it is decided."""
    body, instances = held(2)
    assert instances.gate.state == "waiting"
    assert instances.gate.fired is False
    assert isinstance(instances.gate.state, shoal.GateState)
    body.release(0)
    settled(instances, 0)
    assert instances.gate.state == "waiting"
    body.release(1)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.gate.fired is True
    assert {str(s) for s in shoal.GateState} == {"waiting", "fired", "failed", "cancelled", "timed_out"}


def test_a_gate_is_decided_once_by_one_atomic_step(engine):
    """Decided, once, by one atomic step: `fired`, `failed`, `cancelled` or `timed_out`."""
    seen = set()
    for _ in range(100):
        decided, fired = [], []
        ready = threading.Barrier(4)

        def body(index, ready=ready):
            ready.wait(LIMIT)
            if index:
                raise ValueError(index)

        instances = shoal.spawn(body, count=2, join=shoal.any_of(), on_failure="fail_fast", chunk=1, engine=engine)
        told = threading.Event()
        instances.gate.on_fired(fired.append)

        def on_decided(which, decided=decided, told=told):
            decided.append(which.gate.state)
            told.set()

        instances.on_decided(on_decided)

        def end(how, instances=instances, ready=ready):
            ready.wait(LIMIT)
            getattr(instances, how)()

        enders = [in_thread(lambda how=how, end=end: end(how)) for how in ("cancel", "complete")]
        for ender in enders:
            ender.join_result()
        state = instances.wait(timeout=LIMIT)
        assert state in ("fired", "failed", "cancelled")
        assert told.wait(LIMIT)
        instances.drain(timeout=LIMIT)
        if state == "fired":
            eventually(lambda fired=fired: len(fired) == 1, "calling of the continuation")
        assert instances.gate.state == state
        assert decided == [state]
        seen.add((str(state), len(fired)))
    assert seen <= {("fired", 1), ("failed", 0), ("cancelled", 0)}


@pytest.mark.parametrize("first", ["fired", "failed", "cancelled"])
def test_later_outcomes_are_counted_and_never_decide_again(held, first):
    """Later outcomes are counted and never decide again."""
    body, instances = held(4, join=shoal.at_least(1), on_failure="fail_fast", rest="continue")
    body.wait_begun(0, 1, 2, 3)
    if first == "fired":
        body.release(0)
    elif first == "failed":
        body.fail(0)
    else:
        instances.cancel()
        body.release(0)
    assert instances.wait(timeout=LIMIT) == first
    body.release(1)
    body.fail(2)
    body.release(3)
    instances.drain(timeout=LIMIT)
    instances.cancel()
    instances.complete()
    assert instances.gate.state == first
    assert instances.counts.failed == 1 + (first == "failed")
    assert instances.counts.completed == 4 - instances.counts.failed


@pytest.mark.parametrize("outcome", ["fired", "failed", "cancelled", "completed"])
def test_the_continuation_runs_exactly_once_and_only_for_fired(held, outcome):
    """The continuation runs exactly once, and only for `fired`."""
    ran, decided = [], []
    body, instances = held(3, rest="continue")
    instances.gate.on_fired(ran.append)
    instances.on_decided(decided.append)
    body.wait_begun(0, 1, 2)
    if outcome == "failed":
        body.fail(0)
    elif outcome == "cancelled":
        instances.cancel()
    elif outcome == "completed":
        instances.complete()
    body.release_all()
    instances.drain(timeout=LIMIT)
    instances.wait(timeout=LIMIT)
    instances.complete()
    instances.cancel()
    held.engine.close()
    assert len(ran) == (1 if outcome in ("fired", "completed") else 0)
    assert all(gate.state == "fired" for gate in ran)
    assert [s.id for s in decided] == [instances.id]


def test_on_decided_is_called_also_when_already_decided(engine):
    """`on_decided(f)` calls f once, with the set."""
    instances = shoal.spawn(abs, count=3, engine=engine)
    instances.wait(timeout=LIMIT)
    called = threading.Event()
    seen = []

    def note(which):
        seen.append(which)
        called.set()

    instances.on_decided(note)
    assert called.wait(LIMIT)
    engine.close()
    assert [s.id for s in seen] == [instances.id]


@pytest.mark.parametrize("wrong", [None, 5, "print"], ids=repr)
def test_a_continuation_that_cannot_be_called_is_refused_at_once(engine, wrong):
    """The continuation runs exactly once."""
    instances = shoal.spawn(abs, count=1, engine=engine)
    for ask in (shoal.Gate(1, engine=engine).on_fired, instances.gate.on_fired, instances.on_decided):
        with pytest.raises(TypeError, match=f"takes a function of the (gate|set), not {wrong!r}"):
            ask(wrong)


def test_an_undecidable_join_is_decided_at_once(held):
    """An undecidable join is decided at once: when fewer can still complete than are needed, the gate fails there
    and then.
    """
    body, instances = held(4, join=shoal.at_least(3), rest="continue")
    body.wait_begun(0, 1, 2, 3)
    body.fail(0)
    settled(instances, 0)
    assert instances.gate.state == "waiting"
    body.fail(1)
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.counts.running == 2


def test_a_cancelled_instance_makes_a_join_undecidable_too(held):
    """When fewer can still complete than are needed, the gate fails there and then. Nothing waits for ever."""
    body, instances = held(3, join=shoal.at_least(3), rest="continue")
    body.wait_begun(0, 1, 2)
    body.fail(0, shoal.Cancelled())
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.status(0) == "cancelled"


def test_a_gate_can_be_used_alone():
    """A gate can be used alone: `Gate(target=3)`, `arrive(n=1)`, `wait(timeout=None)`, `cancel()`."""
    gate = shoal.Gate(target=3)
    assert (gate.target, gate.arrived, gate.state, gate.fired) == (3, 0, "waiting", False)
    assert gate.wait(timeout=0) == "waiting"
    assert [gate.arrive(), gate.arrive()] == [False, False]
    assert (gate.arrived, gate.state) == (2, "waiting")
    assert gate.arrive() is True
    assert (gate.arrived, gate.state, gate.fired) == (3, "fired", True)
    assert gate.wait() == "fired"


def test_a_gate_can_be_arrived_at_several_at_a_time():
    """`arrive(n=1)`."""
    gate = shoal.Gate(3)
    assert gate.arrive(n=2) is False
    assert gate.arrive(n=5) is True
    assert gate.arrived == 7


def test_arrive_is_true_for_exactly_one_caller():
    """`arrive` is true for exactly one caller."""
    for target in (1, 2, 7, 400):
        gate = shoal.Gate(target)
        start = threading.Barrier(8)

        def arrive(gate=gate, start=start):
            start.wait(LIMIT)
            return sum(gate.arrive() for _ in range(100))

        callers = [in_thread(arrive) for _ in range(8)]
        assert sum(c.join_result() for c in callers) == 1
        assert gate.arrived == 800
        assert gate.state == "fired"


def test_arriving_after_it_fired_is_counted():
    """Arriving after it fired is counted."""
    gate = shoal.Gate(target=1)
    assert gate.arrive() is True
    assert gate.arrive() is False
    assert gate.arrive(n=3) is False
    assert gate.arrived == 5
    assert gate.state == "fired"


def test_a_gate_alone_can_be_cancelled():
    """`cancel()`."""
    fired = []
    gate = shoal.Gate(target=1)
    gate.on_fired(fired.append)
    waiting = in_thread(gate.wait)
    gate.cancel()
    gate.cancel()
    assert waiting.join_result() == "cancelled"
    assert gate.arrive() is False
    assert gate.state == "cancelled"
    assert gate.fired is False
    assert fired == []


def test_cancelling_a_gate_that_fired_changes_nothing():
    """Later outcomes are counted and never decide again."""
    gate = shoal.Gate(target=1)
    gate.arrive()
    gate.cancel()
    assert gate.state == "fired"


def test_on_fired_of_a_gate_alone_runs_exactly_once(engine):
    """The continuation runs exactly once, and only for `fired`."""
    before, after = [], []
    told = threading.Event()
    gate = shoal.Gate(target=2, engine=engine, name="alone")
    gate.on_fired(before.append)
    gate.arrive()
    assert before == []
    gate.arrive()
    gate.arrive()
    gate.on_fired(lambda g: (after.append(g), told.set()))
    assert told.wait(LIMIT)
    engine.close()
    assert len(before) == 1
    assert len(after) == 1
    assert before[0].fired
    assert after[0].target == 2


@pytest.mark.parametrize("target", [0, -1, True, 1.5, "2", 2**64])
def test_a_gate_without_a_target_of_1_or_more_is_refused(target):
    """A target of 0 never opens: it is refused."""
    with pytest.raises((ValueError, TypeError)):
        shoal.Gate(target)


def test_bodies_can_arrive_at_a_gate_alone(engine):
    """`arrive` is true for exactly one caller."""
    gate = shoal.Gate(target=500)
    answers = shoal.map(lambda index: gate.arrive(), range(1000), engine=engine)
    assert answers.count(True) == 1
    assert gate.wait(timeout=LIMIT) == "fired"
    assert gate.arrived == 1000


def test_arriving_after_it_was_cancelled_is_counted_too():
    """Later outcomes are counted and never decide again."""
    gate = shoal.Gate(target=2)
    gate.arrive()
    gate.cancel()
    assert gate.arrive(n=5) is False
    assert (gate.arrived, gate.state) == (6, "cancelled")


def test_a_cancel_racing_an_arrival_leaves_one_decision():
    """Decided, once, by one atomic step."""
    seen = set()
    for _ in range(300):
        gate = shoal.Gate(target=1)
        start = threading.Barrier(2)

        def cancel(gate=gate, start=start):
            start.wait(LIMIT)
            gate.cancel()
            return gate.state

        cancelling = in_thread(cancel)
        start.wait(LIMIT)
        opened = gate.arrive()
        assert cancelling.join_result() == gate.state
        assert gate.state == ("fired" if opened else "cancelled")
        assert gate.arrived == 1
        seen.add(str(gate.state))
    assert seen <= {"fired", "cancelled"}


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", 2**64, True], ids=repr)
def test_no_arrival_is_refused(n):
    """`arrive(n=1)`; `True` extracts as the integer 1. Refuse bool where a count is meant."""
    gate = shoal.Gate(target=2)
    with pytest.raises((ValueError, TypeError, OverflowError)):
        gate.arrive(n)
    assert gate.arrived == 0


def test_what_arrived_never_becomes_less():
    """Arriving after it fired is counted."""
    gate = shoal.Gate(target=1)
    assert gate.arrive(2**63) is True
    with contextlib.suppress(OverflowError):
        assert gate.arrive(2**63) is False
    assert gate.arrived >= 2**63


def test_the_gate_of_a_set_is_arrived_at_by_its_instances_only(held):
    """A gate can be used alone: `arrive(n=1)`."""
    body, instances = held(2)
    body.wait_begun(0, 1)
    with pytest.raises(TypeError):
        instances.gate.arrive()
    assert (instances.gate.arrived, instances.gate.state) == (0, "waiting")
    body.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.gate.arrived == 2


NOTHING = {
    "at once": lambda **options: shoal.spawn(abs, [], **options),
    "manual": lambda **options: shoal.spawn(abs, [], seal="manual", **options),
    "when_idle": lambda **options: shoal.spawn(abs, [], seal="when_idle", **options),
    "iterator": lambda **options: shoal.spawn(abs, iter([]), **options),
}


@pytest.mark.parametrize("how", NOTHING)
@pytest.mark.parametrize(
    ("join", "state"),
    [
        (shoal.all_of(), "fired"),
        (shoal.at_least(3, or_all=True), "fired"),
        (shoal.any_of(), "failed"),
        (shoal.at_least(3), "failed"),
        (shoal.weighted([1, 1], at_least=1), "failed"),
        (shoal.detached(), "fired"),
    ],
    ids=["all_of", "or_all", "any_of", "at_least", "weighted", "detached"],
)
@pytest.mark.parametrize("on_failure", ["fail_fast", "fail_late", "continue"])
def test_the_gate_of_a_set_without_instances_is_decided_at_the_seal(engine, how, join, state, on_failure):
    """An undecidable join is decided at once. Nothing waits for ever."""
    if how == "at once" and state == "failed":
        with pytest.raises(shoal.JoinError):
            NOTHING[how](join=join, on_failure=on_failure, engine=engine)
        return
    instances = NOTHING[how](join=join, on_failure=on_failure, engine=engine)
    if how == "manual":
        assert instances.state == "active"
        instances.seal()
    if join == shoal.detached():
        assert instances.drain(timeout=LIMIT)
        assert instances.gate is None
    else:
        assert instances.wait(timeout=LIMIT) == state
    assert sum(instances.counts) == 0

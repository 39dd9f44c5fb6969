"""The sentences of semantics.md under "Ending from outside", without `on="external"`."""

import ctypes
import threading

import pytest
from steering import LIMIT, in_thread, settled

import shoal


def test_cancel_ends_what_has_not_begun_as_cancelled(held):
    """`cancel()` (pattern 26): what has not begun ends as cancelled."""
    body, instances = held(5, workers=2, on_failure="continue")
    body.wait_begun(0, 1)
    body.release(0)
    body.wait_begun(2)
    settled(instances, 0)
    instances.cancel()
    assert [str(instances.status(i)) for i in (0, 3, 4)] == ["completed", "cancelled", "cancelled"]
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert instances.counts == shoal.Counts(0, 0, 3, 0, 2, 0)


def test_after_cancel_no_more_can_be_added(held):
    """No more can be added."""
    _, instances = held(items=[0], seal="manual")
    instances.cancel()
    with pytest.raises(shoal.SealedError):
        instances.add(1)
    assert len(instances) == 1


def test_after_cancel_the_gate_is_cancelled_and_nothing_downstream_is_enabled(held):
    """The gate is `cancelled`, nothing downstream is enabled."""
    enabled, decided = [], []
    body, instances = held(3)
    instances.gate.on_fired(enabled.append)
    instances.on_decided(decided.append)
    instances.cancel()
    assert instances.gate.state == "cancelled"
    assert instances.state == "cancelled"
    body.release_all()
    instances.drain(timeout=LIMIT)
    held.engine.close()
    assert enabled == []
    assert len(decided) == 1
    with pytest.raises(shoal.SetCancelled):
        instances.result()


def test_complete_fires_the_gate_once_now(held):
    """`complete()` (27): the same, but the gate fires, once, now."""
    enabled = []
    body, instances = held(items=range(5), seal="manual", workers=2)
    instances.gate.on_fired(enabled.append)
    body.wait_begun(0, 1)
    body.release(0)
    body.wait_begun(2)
    settled(instances, 0)
    instances.complete()
    assert instances.gate.state == "fired"
    assert [str(instances.status(i)) for i in (0, 3, 4)] == ["completed", "cancelled", "cancelled"]
    assert instances.result() == [0]
    with pytest.raises(shoal.SealedError):
        instances.add(5)
    body.release_all()
    instances.drain(timeout=LIMIT)
    held.engine.close()
    assert len(enabled) == 1
    assert instances.counts == shoal.Counts(0, 0, 3, 0, 2, 0)


@pytest.mark.parametrize("first", ["cancel", "complete"])
@pytest.mark.parametrize("second", ["cancel", "complete"])
def test_each_is_idempotent(held, first, second):
    """Each is idempotent."""
    body, instances = held(4, workers=1)
    body.wait_begun(0)
    getattr(instances, first)()
    state, counts = instances.gate.state, instances.counts
    assert state == {"cancel": "cancelled", "complete": "fired"}[first]
    assert counts == shoal.Counts(0, 1, 0, 0, 3, 0)
    for _ in range(3):
        getattr(instances, second)()
    assert instances.gate.state == state
    assert instances.counts == counts


def test_cancelling_what_is_done_changes_nothing(engine):
    """Each is idempotent; a terminal state never changes."""
    instances = shoal.spawn(abs, count=10, engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    instances.cancel()
    assert instances.gate.state == "fired"
    assert instances.result() == list(range(10))


def test_cancel_from_a_body(engine):
    """`cancel()` (pattern 26): what has not begun ends as cancelled."""

    def body(index):
        if index == 3:
            shoal.current().set.cancel()
        return index

    instances = shoal.spawn(body, count=100, chunk=1, engine=engine)
    assert instances.wait(timeout=LIMIT) == "cancelled"
    instances.drain(timeout=LIMIT)
    assert instances.status(3) == "completed"
    assert instances.counts.cancelled > 0


def test_case_cancel_cancels_all_that_the_case_owns(engine, steered):
    """`case.cancel()` (20) cancels all that the case owns."""
    body = steered()
    case, other = engine.case("one"), engine.case("other")
    mine = [case.spawn(body, count=3), case.spawn(body, range(3), seal="manual"), shoal.spawn(body, count=3, case=case)]
    others = other.spawn(body, count=3)
    case.cancel()
    assert [s.gate.state for s in mine] == ["cancelled"] * 3
    assert others.gate.state == "waiting"
    body.release_all()
    assert others.wait(timeout=LIMIT) == "fired"


def test_case_cancel_cancels_nested_cases_too(engine, steered):
    """Nested cases too."""
    inner_body = steered()
    inner = []
    spawned = threading.Event()

    def outer(index):
        inner.append(shoal.spawn(inner_body, count=2, engine=engine))
        spawned.set()

    case = engine.case("outer")
    case.spawn(outer, count=1)
    assert spawned.wait(LIMIT)
    case.cancel()
    assert inner[0].gate.state == "cancelled"


def test_a_cancelled_case_is_recorded_as_cancelled_never_as_completed(engine, steered):
    """The case is recorded as cancelled, never as completed. Each is idempotent."""
    body = steered()
    case = engine.case("recorded")
    instances = case.spawn(body, count=2)
    body.wait_begun(0, 1)
    case.cancel()
    assert case.state == "cancelled"
    body.release_all()
    instances.drain(timeout=LIMIT)
    case.cancel()
    assert case.state == "cancelled"
    assert engine.cases["recorded"].state == "cancelled"
    assert instances.gate.state == "cancelled"


def test_stopping_what_has_begun_is_cooperative_for_python_functions(make_engine):
    """Stopping what has begun is cooperative for Python functions (`current().cancelled`)."""
    begun = threading.Event()

    def body(index):
        me = shoal.current()
        assert me.cancelled is False
        begun.set()
        pause = threading.Event()
        while not me.cancelled:
            pause.wait(0.001)
        if index == 0:
            raise shoal.Cancelled
        return "stopped early"

    instances = shoal.spawn(body, count=1, engine=make_engine(workers=1))
    assert begun.wait(LIMIT)
    instances.cancel()
    instances.drain(timeout=LIMIT)
    assert instances.status(0) == "cancelled"
    assert instances.counts == shoal.Counts(0, 0, 0, 0, 1, 0)


def test_cancel_and_complete_racing_have_one_winner(engine):
    """`complete()` (27): the gate fires, once. Each is idempotent."""
    for _ in range(100):
        fired = []
        instances = shoal.spawn(abs, [], seal="manual", engine=engine)
        instances.gate.on_fired(fired.append)
        start = threading.Barrier(4)

        def end(how, instances=instances, start=start):
            start.wait(LIMIT)
            getattr(instances, how)()
            return instances.gate.state

        callers = [in_thread(lambda how=how, end=end: end(how)) for how in ("cancel", "complete", "cancel", "complete")]
        states = {str(c.join_result()) for c in callers}
        assert len(states) == 1
        assert states <= {"cancelled", "fired"}
        if states == {"fired"}:
            told = threading.Event()
            instances.gate.on_fired(lambda gate, told=told: told.set())
            assert told.wait(LIMIT)
        else:
            assert fired == []


@pytest.mark.parametrize("how", ["cancel", "complete"])
def test_a_detached_set_can_be_ended_from_outside(held, how):
    """`cancel()` (pattern 26), `complete()` (27): what has not begun ends as cancelled, no more can be added."""
    body, instances = held(items=range(6), workers=2, seal="manual", join=shoal.detached())
    body.wait_begun(0, 1)
    getattr(instances, how)()
    assert instances.counts == shoal.Counts(0, 2, 0, 0, 4, 0)
    assert instances.state == {"cancel": "cancelled", "complete": "fired"}[how]
    assert instances.gate is None
    with pytest.raises(shoal.SealedError):
        instances.add(6)
    assert instances.drained is False
    body.release_all()
    assert instances.drain(timeout=LIMIT)
    assert instances.counts == shoal.Counts(0, 0, 2, 0, 4, 0)
    assert sorted(body.began) == [0, 1]


def test_a_detached_set_that_was_cancelled_is_not_taken_for_one_that_fired(held):
    """`result()` of a cancelled set raises `SetCancelled`. A cancelled run recorded as completed."""
    body, instances = held(4, workers=2, join=shoal.detached())
    body.wait_begun(0, 1)
    instances.cancel()
    body.release_all()
    assert instances.wait(timeout=LIMIT) != "fired"
    with pytest.raises(shoal.SetCancelled):
        instances.result(timeout=LIMIT)


@pytest.mark.parametrize("how", ["cancel", "complete", "case.cancel"])
def test_each_asks_what_has_begun_to_stop(make_engine, how):
    """Stopping what has begun is cooperative for Python functions (`current().cancelled`)."""
    begun = threading.Event()

    def body(index):
        begun.set()
        pause = threading.Event()
        while not shoal.current().cancelled:
            pause.wait(0.001)
        return "asked"

    instances = shoal.spawn(body, count=1, engine=make_engine(workers=1))
    assert begun.wait(LIMIT)
    if how == "case.cancel":
        instances.case.cancel()
    else:
        getattr(instances, how)()
    assert instances.drain(timeout=LIMIT)
    assert instances.values == {0: "asked"}
    assert instances.gate.state == ("fired" if how == "complete" else "cancelled")


def test_stopping_what_has_begun_is_cooperative_for_kernels_between_indices(make_engine):
    """Stopping what has begun is cooperative for kernels (between indices)."""
    begun, let_go = threading.Event(), threading.Event()
    calls = []

    def compiled(index, _):
        calls.append(index)
        begun.set()
        return 0 if let_go.wait(LIMIT) else 1

    pointer = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_void_p)(compiled)
    instances = shoal.spawn(shoal.kernel(pointer), count=1000, chunk=1000, engine=make_engine(workers=1))
    assert begun.wait(LIMIT)
    instances.cancel()
    let_go.set()
    assert instances.drain(timeout=LIMIT)
    assert calls == [0]
    assert instances.counts == shoal.Counts(0, 0, 1, 0, 999, 0)


def test_a_spawn_racing_the_cancel_of_its_case_is_cancelled_or_refused(engine, steered):
    """`case.cancel()` (20) cancels all that the case owns."""
    for round_number in range(50):
        body = steered()
        case = engine.case(f"raced {round_number}")
        start = threading.Barrier(3)

        def spawn_many(case=case, start=start, body=body):
            mine = []
            start.wait(LIMIT)
            try:
                while True:
                    mine.append(case.spawn(body, count=2))
            except shoal.ShoalError:
                return mine

        callers = [in_thread(spawn_many) for _ in range(2)]
        start.wait(LIMIT)
        case.cancel()
        body.release_all()
        for instances in [s for c in callers for s in c.join_result()]:
            assert instances.gate.state == "cancelled"
            assert instances.drain(timeout=LIMIT)
        assert case.state == "cancelled"


def test_a_set_that_fired_and_goes_on_can_still_be_cancelled(held):
    """`cancel()`: what has not begun ends as cancelled. A gate is decided once."""
    body, instances = held(6, workers=2, join=shoal.any_of(), rest="continue")
    body.wait_begun(0, 1)
    body.release(0)
    assert instances.wait(timeout=LIMIT) == "fired"
    body.wait_begun(2)
    instances.cancel()
    assert instances.gate.state == "fired"
    assert instances.counts.cancelled == 3
    body.release_all()
    assert instances.drain(timeout=LIMIT)
    assert sorted(body.began) == [0, 1, 2]
    assert instances.counts == shoal.Counts(0, 0, 3, 0, 3, 0)

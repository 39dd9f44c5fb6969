"""The sentences of semantics.md under "Sets"."""

import array
import asyncio
import collections.abc
import enum
import gc
import itertools
import threading
import types

import numpy as np
import pytest
from steering import LIMIT, eventually, in_thread, settled

import shoal


def nothing_was_created(engine):
    return len(engine.sets) == 0 and engine.metrics()["instances"] == 0


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_the_count_comes_from_count(engine, count):
    """The count comes from `count=` (an int >= 1)."""
    instances = shoal.spawn(lambda i: i, count=count, engine=engine)
    assert len(instances) == count
    assert instances.result(timeout=LIMIT) == list(range(count))


def test_the_length_of_items_is_taken_once_when_the_set_is_created(held):
    """From `items=` (its length is taken once, when the set is created)."""

    class Items(collections.abc.Sequence):
        lengths = 0

        def __len__(self):
            self.lengths += 1
            return 3

        def __getitem__(self, index):
            if not 0 <= index < 3:
                raise IndexError(index)
            return index

    items = Items()
    body, instances = held(items=items)
    assert items.lengths == 1
    assert len(instances) == 3
    body.release_all()
    assert instances.result(timeout=LIMIT) == [0, 10, 20]
    assert items.lengths == 1


def test_lists_are_copied(held):
    """Lists are copied."""
    items = [0, 1, 2]
    body, instances = held(items=items, workers=1)
    body.wait_begun(0)
    items[1] = 77
    items[2:] = []
    items.extend([5, 6, 7])
    body.release_all()
    assert instances.result(timeout=LIMIT) == [0, 10, 20]


def test_arrays_are_shared(held):
    """Arrays shared."""
    items = np.arange(3)
    body, instances = held(items=items, workers=1)
    body.wait_begun(0)
    items[2] = 99
    body.release_all()
    assert instances.result(timeout=LIMIT) == [0, 10, 990]


class Series:
    """As in pandas: what is in the brackets is a label, not a position."""

    def __init__(self, values):
        self.values = dict(zip(range(len(values) - 1, -1, -1), values, strict=True))

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return iter(self.values.values())

    def __getitem__(self, label):
        return self.values[label]


class Doubled(list):
    """A list that iterates in its own way."""

    def __iter__(self):
        return (2 * item for item in super().__iter__())


class OldSequence:
    """One that knows nothing but `__getitem__`."""

    def __getitem__(self, index):
        return ["a", "b"][index]


NO_SEQUENCES = {
    "labels": Series([100, 200, 300]),
    "an Enum": enum.Enum("Colour", ["RED", "GREEN"]),
    "a list that iterates otherwise": Doubled([1, 2]),
    "a mapping": {1: "a", 2: "b"},
    "a mapping proxy": types.MappingProxyType({0: 5, 1: 6}),
    "a set": {7, 8, 9},
    "a view": {1: "a"}.values(),
    "__getitem__ alone": OldSequence(),
}


@pytest.mark.parametrize("items", NO_SEQUENCES.values(), ids=NO_SEQUENCES)
def test_what_is_no_sequence_is_iterated_over_once_as_by_the_builtin_map(engine, items):
    """Like map(), on all workers."""
    expected = list(map(repr, items))
    assert shoal.map(repr, items, engine=engine) == expected
    assert shoal.spawn(repr, items, engine=engine).result(timeout=LIMIT) == expected
    if hasattr(items, "__len__"):
        with pytest.raises(shoal.CountError, match=f"minimum={len(expected) + 1}"):
            shoal.spawn(repr, items, minimum=len(expected) + 1, engine=engine)


@pytest.mark.parametrize(
    "items",
    [array.array("d", [1, 2]), memoryview(b"ab"), np.arange(4)[::2], "ab", b"ab", collections.UserList([1, 2])],
    ids=lambda items: type(items).__name__,
)
def test_arrays_and_sequences_are_looked_into_by_position(engine, items):
    """Its length is taken once, when the set is created; arrays shared."""
    assert shoal.map(repr, items, engine=engine) == list(map(repr, items))
    assert shoal.spawn(repr, items, engine=engine).result(timeout=LIMIT) == list(map(repr, items))


def test_what_is_iterated_over_is_not_asked_for_its_length(engine):
    """Like map(), on all workers."""

    class Items(OldSequence):
        asked = 0

        def __len__(self):
            self.asked += 1
            return -1

    items = Items()
    assert shoal.map(str, items, engine=engine) == ["a", "b"]
    assert shoal.spawn(str, items, engine=engine).result(timeout=LIMIT) == ["a", "b"]
    assert items.asked == 0


def test_what_iterating_over_items_raises_is_raised(engine):
    """Like map(), on all workers."""

    class Items:
        def __iter__(self):
            raise ValueError("not today")

    for call in (shoal.map, shoal.spawn):
        with pytest.raises(ValueError, match="not today"):
            call(abs, Items(), engine=engine)
        with pytest.raises(TypeError, match="items is int, which cannot be iterated over"):
            call(abs, 5, engine=engine)
    assert nothing_was_created(engine)


def test_the_count_comes_from_a_function_of_the_cases_variables(engine):
    """Or from a function of the case's variables with optional `minimum` and `maximum`."""
    case = engine.case("counted", variables={"n": 4})
    instances = case.spawn(lambda i: i, count=lambda variables: variables["n"], minimum=4, maximum=4)
    assert len(instances) == 4
    assert instances.result(timeout=LIMIT) == [0, 1, 2, 3]
    assert len(shoal.spawn(abs, count=lambda variables: 2 + len(variables), engine=engine)) == 2


WRONG_COUNTS = [
    True,
    False,
    -1,
    0,
    1.0,
    2.5,
    float("nan"),
    float("inf"),
    "3",
    b"3",
    2**64,
    2**200,
    [3],
    np.float64(2.0),
]


@pytest.mark.parametrize("count", WRONG_COUNTS, ids=repr)
def test_anything_but_an_int_of_1_or_more_is_refused_as_count(engine, count):
    """`bool`, negative, zero, float, NaN, str and 2**64 as `count` are refused with `CountError` before anything is
    created.
    """
    ran = []
    with pytest.raises(shoal.CountError) as caught:
        shoal.spawn(ran.append, count=count, engine=engine)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, shoal.ShoalError)
    assert nothing_was_created(engine)
    with pytest.raises(shoal.CountError):
        shoal.map(ran.append, count=count, engine=engine)
    assert nothing_was_created(engine)
    assert ran == []


@pytest.mark.parametrize("count", WRONG_COUNTS, ids=repr)
def test_a_count_function_that_gives_no_count_is_refused(engine, count):
    """`bool`, negative, zero, float, NaN, str and 2**64 as `count` are refused with `CountError` before anything is
    created.
    """
    with pytest.raises(shoal.CountError):
        shoal.spawn(abs, count=lambda variables: count, engine=engine)
    assert nothing_was_created(engine)


def test_a_count_function_that_raises_creates_nothing(engine):
    """A count function that raises: `CountError`, nothing created."""

    def count(variables):
        raise KeyError("no such variable")

    with pytest.raises(shoal.CountError) as caught:
        shoal.spawn(abs, count=count, engine=engine)
    assert isinstance(caught.value.__cause__, KeyError)
    assert nothing_was_created(engine)


def test_ctrl_c_in_a_count_function_is_no_counterror(engine):
    """A count function that raises: `CountError`; an interrupt is none of its own."""

    def count(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shoal.spawn(abs, count=count, engine=engine)
    assert list(engine.sets) == []


@pytest.mark.parametrize("bounds", [{"minimum": 1}, {"maximum": 3}], ids=["minimum", "maximum"])
def test_bounds_of_a_count_do_not_go_with_an_iterator(engine, bounds):
    with pytest.raises(TypeError, match="an iterator does not have"):
        shoal.spawn(abs, iter([1, 2]), engine=engine, **bounds)
    assert list(engine.sets) == []


@pytest.mark.parametrize(("bounds", "value"), [({"minimum": 57}, 31), ({"maximum": 57}, 83)])
def test_a_count_function_that_leaves_its_bounds_creates_nothing(engine, bounds, value):
    """A count function that leaves its bounds: `CountError` with the bound and the value, nothing created."""
    with pytest.raises(shoal.CountError) as caught:
        shoal.spawn(abs, count=lambda variables: value, engine=engine, **bounds)
    assert "57" in str(caught.value)
    assert str(value) in str(caught.value)
    assert nothing_was_created(engine)
    assert len(shoal.spawn(abs, count=lambda variables: 57, engine=engine, **bounds)) == 57


def test_no_items_make_an_empty_set_that_fires_at_once(engine):
    """`items=[]` makes an empty set: `all_of` fires at once with `[]`."""
    fired = threading.Event()
    instances = shoal.spawn(abs, [], engine=engine)
    assert instances.gate.state == "fired"
    assert instances.result() == []
    assert len(instances) == 0
    assert bool(instances) is True
    instances.gate.on_fired(lambda gate: fired.set())
    assert fired.wait(LIMIT)
    assert shoal.map(abs, [], engine=engine) == []


def test_no_items_with_a_minimum_of_1_is_a_counterror(engine):
    """With `minimum=1` it is a `CountError`."""
    with pytest.raises(shoal.CountError):
        shoal.spawn(abs, [], minimum=1, engine=engine)
    assert nothing_was_created(engine)


def test_an_iterator_without_a_length_is_read_by_a_feeder_never_by_a_worker(engine):
    """An iterator without a length is read by a feeder, never by a worker."""
    readers, runners = set(), set()

    def items():
        for i in range(500):
            readers.add(threading.get_ident())
            yield i

    def body(item):
        runners.add(threading.get_ident())
        return item

    instances = shoal.spawn(body, items(), engine=engine)
    assert instances.result(timeout=LIMIT) == list(range(500))
    assert len(readers) == 1
    assert not readers & runners


def test_an_iterator_is_read_a_bounded_buffer_ahead(held):
    """A bounded buffer ahead."""
    exhausted = threading.Event()

    def items():
        yield from range(5000)
        exhausted.set()

    body, instances = held(items=items(), workers=1)
    body.wait_begun(0)
    assert not exhausted.wait(0.5)
    assert 1 <= len(instances) < 5000
    body.release_all()
    assert exhausted.wait(LIMIT)
    assert instances.result(timeout=LIMIT) == [10 * i for i in range(5000)]


def test_an_endless_iterator_ends_with_its_set(engine):
    """An iterator without a length is read by a feeder; any decision of the gate seals."""
    closed = threading.Event()

    def items():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    instances = shoal.spawn(lambda i: i, items(), join=shoal.at_least(100), engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    instances.drain(timeout=LIMIT)
    assert instances.counts.completed >= 100
    del instances
    gc.collect()
    eventually(lambda: gc.collect() >= 0 and closed.is_set(), "closing of the iterator")


def test_the_set_seals_when_the_iterator_ends(engine):
    """The set seals when it ends."""
    last = threading.Event()

    def items():
        yield 1
        assert last.wait(LIMIT)

    instances = shoal.spawn(abs, items(), engine=engine)
    settled_one = lambda: len(instances) == 1 and instances.counts.completed == 1  # noqa: E731
    eventually(settled_one)
    assert (instances.state, instances.gate.state) == ("active", "waiting")
    last.set()
    assert instances.wait(timeout=LIMIT) == "fired"
    with pytest.raises(shoal.SealedError):
        instances.add(2)


def test_an_iterator_that_raises_fails_the_gate_with_that_exception(engine):
    """If it raises, the gate fails with that exception."""

    class Broken(Exception):
        pass

    def items():
        yield 1
        raise Broken("half way")

    instances = shoal.spawn(abs, items(), engine=engine)
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.gate.state == "failed"
    with pytest.raises(shoal.SetFailed) as caught:
        instances.result()
    found = [caught.value.__cause__, *caught.value.errors.values(), *getattr(caught.value.__cause__, "exceptions", ())]
    assert any(isinstance(e, Broken) for e in found)


def test_a_manual_seal_leaves_the_set_open(engine):
    """`seal="manual"` leaves the set open: `add(*items)` creates more, `seal()` makes the count final."""
    instances = shoal.spawn(abs, [-1], seal="manual", engine=engine)
    assert instances.state == "active"
    instances.add(-2, -3)
    assert len(instances) == 3
    instances.add()
    assert len(instances) == 3
    instances.seal()
    assert instances.result(timeout=LIMIT) == [1, 2, 3]


def test_the_state_of_a_set_is_active_then_running_then_the_gates(held):
    """While open its status is `active`; `running`, then the gate's."""
    body, instances = held(items=[0], seal="manual")
    assert instances.state == "active"
    assert isinstance(instances.state, shoal.SetState)
    instances.seal()
    assert instances.state == "running"
    body.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.state == "fired"


@pytest.mark.parametrize("join", [shoal.all_of(), shoal.at_least(fraction=0.5), shoal.at_least(fraction=1.0)], ids=repr)
def test_no_join_that_needs_the_final_count_fires_before_the_seal(engine, join):
    """Creation holds a token on the gate: no join that needs the final count fires before the seal, however fast
    instances finish.
    """
    instances = shoal.spawn(abs, range(100), seal="manual", join=join, engine=engine)
    for step in range(1, 4):
        eventually(lambda expected=100 * step: instances.counts.completed == expected, "completion of all")
        assert instances.gate.state == "waiting"
        instances.add(*range(100))
    eventually(lambda: instances.counts.completed == 400, "completion of all")
    assert instances.gate.state == "waiting"
    instances.seal()
    assert instances.wait(timeout=LIMIT) == "fired"
    assert len(instances.result()) == 400


def test_sealing_twice_is_once(held):
    """`seal()` twice is once."""
    body, instances = held(items=[0, 1], seal="manual")
    instances.seal()
    instances.seal()
    assert instances.gate.state == "waiting"
    body.release(0)
    settled(instances, 0)
    instances.seal()
    assert instances.gate.state == "waiting"
    body.release(1)
    assert instances.wait(timeout=LIMIT) == "fired"
    instances.seal()
    assert instances.result() == [0, 10]


@pytest.mark.parametrize("seal", ["at_once", "manual"])
def test_add_after_the_seal_raises(held, seal):
    """`add` after the seal raises `SealedError`."""
    _, instances = held(items=[0], seal=seal)
    instances.seal()
    with pytest.raises(shoal.SealedError):
        instances.add(1)
    assert len(instances) == 1


def test_an_add_racing_a_seal_wins_or_is_told(engine):
    """An `add` racing a `seal` wins or is told."""
    for _ in range(50):
        instances = shoal.spawn(lambda item: item, [], seal="manual", engine=engine)
        begun = threading.Event()

        def adder(instances=instances, begun=begun):
            added = 0
            try:
                while True:
                    instances.add(added)
                    added += 1
                    if added == 3:
                        begun.set()
            except shoal.SealedError:
                return added

        adding = in_thread(adder)
        assert begun.wait(LIMIT)
        instances.seal()
        added = adding.join_result()
        assert instances.wait(timeout=LIMIT) == "fired"
        assert len(instances) == added
        assert instances.result() == list(range(added))


def test_when_idle_seals_when_none_is_pending_or_running(engine):
    """`seal="when_idle"` seals when none is pending or running (YAWL's rule)."""

    def body(depth):
        if depth:
            shoal.current().add(depth - 1, depth - 1)
        return depth

    instances = shoal.spawn(body, [9], seal="when_idle", engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert len(instances) == 2**10 - 1
    assert sorted(instances.result()) == sorted(d for d in range(10) for _ in range(2 ** (9 - d)))


def test_when_idle_stays_open_while_one_runs(held):
    """`seal="when_idle"` seals when none is pending or running (YAWL's rule)."""
    body, instances = held(items=[0, 1], seal="when_idle")
    body.release(0)
    settled(instances, 0)
    assert instances.state == "active"
    instances.add(2)
    body.release(1)
    settled(instances, 1)
    assert instances.state == "active"
    body.release(2)
    assert instances.wait(timeout=LIMIT) == "fired"
    with pytest.raises(shoal.SealedError):
        instances.add(3)
    assert instances.result() == [0, 10, 20]


def test_leaving_an_async_with_block_seals_and_waits_without_holding_up_the_loop(steered, engine):
    """Leaving `with spawn(..., seal="manual") as s:` seals and waits."""
    body = steered()

    async def main():
        async with shoal.spawn(body, [0], seal="manual", engine=engine) as instances:
            instances.add(1, 2)
            # Only a loop that goes on lets the bodies go.
            asyncio.get_running_loop().call_later(0, body.release_all)
        return instances

    instances = asyncio.run(main())
    assert instances.gate.state == "fired"
    assert instances.result() == [0, 10, 20]


def test_leaving_an_async_with_block_of_a_detached_set_waits_too(engine):
    """For `detached()`, `wait` is `drain`."""

    async def main():
        async with shoal.spawn(abs, [-1], seal="manual", join=shoal.detached(), engine=engine) as instances:
            instances.add(-2)
        return instances.drained

    assert asyncio.run(main())


@pytest.mark.parametrize("how", ["an exception", "a cancelled task"])
def test_leaving_an_async_with_block_by_an_exception_cancels(steered, engine, how):
    """Leaving it by an exception cancels."""
    body = steered()
    made = []

    async def main():
        async with shoal.spawn(body, [0], seal="manual", engine=engine) as instances:
            made.append(instances)
            if how == "an exception":
                raise KeyError("left")

    async def run():
        await asyncio.wait_for(main(), 0.01)

    with pytest.raises(KeyError if how == "an exception" else TimeoutError):
        asyncio.run(run())
    assert made[0].gate.state == "cancelled"


def test_leaving_the_with_block_seals_and_waits(engine):
    """Leaving `with spawn(..., seal="manual") as s:` seals and waits."""
    with shoal.spawn(abs, [], seal="manual", engine=engine) as instances:
        for i in range(200):
            instances.add(-i)
    assert instances.gate.state == "fired"
    assert instances.counts == shoal.Counts(0, 0, 200, 0, 0, 0)
    assert instances.result() == list(range(200))


def test_leaving_the_with_block_by_an_exception_cancels(held):
    """Leaving it by an exception cancels."""
    body, opened = held(items=[0, 1, 2], seal="manual", workers=1)
    body.wait_begun(0)
    with pytest.raises(ZeroDivisionError), opened as instances:  # noqa: PT012
        body.release(0)
        raise ZeroDivisionError
    assert instances is opened
    assert instances.gate.state == "cancelled"
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert instances.counts.cancelled >= 1
    with pytest.raises(shoal.SealedError):
        instances.add(3)


@pytest.mark.parametrize("rest", ["cancel", "continue"])
@pytest.mark.parametrize("decision", ["fired", "failed", "cancelled", "completed"])
def test_any_decision_of_the_gate_seals(held, rest, decision):
    """Any decision of the gate seals."""
    body, instances = held(items=[0, 1], seal="manual", join=shoal.any_of(), on_failure="fail_fast", rest=rest)
    body.wait_begun(0)
    if decision == "fired":
        body.release(0)
    elif decision == "failed":
        body.fail(0)
    elif decision == "cancelled":
        instances.cancel()
    else:
        instances.complete()
    assert instances.wait(timeout=LIMIT) == {"completed": "fired"}.get(decision, decision)
    with pytest.raises(shoal.SealedError):
        instances.add(2)
    assert len(instances) == 2


def test_limits_are_settable_and_have_defaults():
    """Limits: `max_instances` for a set (10,000,000) and for a case (100,000,000), both settable."""
    limits = shoal.Limits()
    assert (limits.max_instances, limits.max_case_instances) == (10_000_000, 100_000_000)
    limits = shoal.Limits(max_instances=3, max_case_instances=5)
    assert (limits.max_instances, limits.max_case_instances) == (3, 5)


def test_past_the_default_limit_of_a_set_is_refused(engine):
    """Limits: `max_instances` for a set (10,000,000)."""
    with pytest.raises(shoal.LimitError) as caught:
        shoal.spawn(abs, count=10_000_001, engine=engine)
    message = str(caught.value).replace(",", "").replace("_", "")
    assert "10000000" in message
    assert "10000001" in message
    assert nothing_was_created(engine)


@pytest.mark.parametrize("how", ["count", "items", "function"])
def test_past_the_limit_of_a_set_is_a_limiterror_before_anything_is_created(make_engine, how):
    """Past either: `LimitError` naming both numbers, before anything is created."""
    engine = make_engine(limits=shoal.Limits(max_instances=57, max_case_instances=1000))
    what = {"count": {"count": 83}, "items": {"items": range(83)}, "function": {"count": lambda variables: 83}}[how]
    with pytest.raises(shoal.LimitError) as caught:
        shoal.spawn(abs, engine=engine, **what)
    assert "57" in str(caught.value)
    assert "83" in str(caught.value)
    assert nothing_was_created(engine)
    assert len(shoal.spawn(abs, count=57, engine=engine)) == 57


def test_adding_past_the_limit_of_a_set_adds_nothing(make_engine):
    """Past either: `LimitError` naming both numbers, before anything is created."""
    engine = make_engine(limits=shoal.Limits(max_instances=5))
    instances = shoal.spawn(abs, range(3), seal="manual", engine=engine)
    with pytest.raises(shoal.LimitError):
        instances.add(1, 2, 3)
    assert len(instances) == 3
    instances.add(3, 4)
    instances.seal()
    assert instances.result(timeout=LIMIT) == [0, 1, 2, 3, 4]


def test_past_the_limit_of_a_case_is_a_limiterror_before_anything_is_created(steered, make_engine):
    """Past either: `LimitError` naming both numbers, before anything is created."""
    engine = make_engine(limits=shoal.Limits(max_instances=70, max_case_instances=97))
    case = engine.case("small")
    body = steered()
    case.spawn(body, count=60)
    with pytest.raises(shoal.LimitError) as caught:
        case.spawn(body, count=60)
    assert "97" in str(caught.value)
    assert "120" in str(caught.value) or "60" in str(caught.value)
    assert len(case.sets) == 1
    assert len(case.spawn(body, count=37)) == 37
    assert len(engine.case("another").spawn(body, count=60)) == 60


def test_a_call_without_a_case_has_an_anonymous_one_of_its_own(engine):
    """A call without a case has an anonymous one of its own, which goes when its handle goes."""
    first = shoal.spawn(abs, count=3, engine=engine)
    second = shoal.spawn(abs, count=3, engine=engine)
    assert first.case.id != second.case.id
    gone = first.case.id
    first.drain(timeout=LIMIT)
    del first
    gc.collect()
    eventually(lambda: gone not in engine.cases, "going of the anonymous case")


def test_cancelling_closes_the_set_to_claims_and_additions(held):
    """Cancelling closes the set to claims and additions, takes all that is not claimed."""
    body, instances = held(items=range(10), workers=2, seal="manual")
    body.wait_begun(0, 1)
    instances.cancel()
    assert instances.counts == shoal.Counts(0, 2, 0, 0, 8, 0)
    with pytest.raises(shoal.SealedError):
        instances.add(10)
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert instances.counts == shoal.Counts(0, 0, 2, 0, 8, 0)
    assert sorted(body.began) == [0, 1]


def test_nothing_begins_after_cancel_returned(held):
    """Nothing begins after `cancel()` returned."""
    body, instances = held(64, workers=1, chunk=64)
    body.wait_begun(0)
    instances.cancel()
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert body.began == [0]
    assert instances.counts == shoal.Counts(0, 0, 1, 0, 63, 0)


def test_nothing_begins_after_cancel_returned_in_a_race(make_engine):
    """Nothing begins after `cancel()` returned (a body is begun when its worker found the set open, just before its
    first line).
    """
    workers = 3
    engine = make_engine(workers=workers)
    for _ in range(20):
        returned = threading.Event()
        under_way = threading.Event()
        late = []

        def body(index, returned=returned, under_way=under_way, late=late):
            if returned.is_set():
                late.append(index)
            if index == 50:
                under_way.set()

        instances = shoal.spawn(body, count=100_000, engine=engine)
        assert under_way.wait(LIMIT)
        instances.cancel()
        returned.set()
        instances.drain(timeout=LIMIT)
        assert len(late) <= workers
        assert instances.gate.state in ("cancelled", "fired")


def test_an_instance_set_is_always_truthy_and_its_repr_is_one_line_with_the_counts(held):
    """Always truthy. `repr` is one line with the counts."""
    body, instances = held(7, workers=2)
    body.wait_begun(0, 1)
    assert bool(instances) is True
    assert "\n" not in repr(instances)
    assert "5" in repr(instances)
    assert "pending" in repr(instances)


def test_the_status_of_an_unknown_index_is_an_indexerror(engine):
    """`status(index)` is of an instance that exists."""
    instances = shoal.spawn(abs, count=3, engine=engine)
    assert instances.status(2) in list(shoal.InstanceState)
    with pytest.raises(IndexError):
        instances.status(3)


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (12, {"count": 3, "join": shoal.detached()}),
        (13, {"count": 3}),
        (14, {"items": [1, 2, 3]}),
        (14, {"count": lambda variables: 3}),
        (15, {"items": [1, 2, 3], "seal": "manual"}),
        (15, {"items": [1, 2, 3], "seal": "when_idle"}),
        (34, {"count": 3, "join": shoal.at_least(2), "rest": "continue"}),
        (35, {"count": 3, "join": shoal.at_least(2)}),
        (35, {"count": 3, "join": shoal.any_of(), "rest": "cancel"}),
    ],
)
def test_a_set_knows_its_pattern(engine, number, options):
    """The table of joins names the pattern of each."""
    assert shoal.spawn(abs, engine=engine, **options).pattern == number


@pytest.mark.parametrize(
    "option", ["timeout", "each_timeout", "retries", "concurrency", "rate", "until", "no_such_option"]
)
def test_an_option_that_is_not_built_is_refused_and_creates_nothing(engine, option):
    """An option that the package does not know is a `TypeError`, never ignored."""
    with pytest.raises(TypeError):
        shoal.spawn(abs, count=2, engine=engine, **{option: 1})
    with pytest.raises(TypeError):
        shoal.map(abs, [1, 2], engine=engine, **{option: 1})
    assert nothing_was_created(engine)


def test_a_body_that_cannot_be_called_is_refused(engine):
    """Messages name the value that was wrong."""
    with pytest.raises(TypeError):
        shoal.spawn("not a function", count=2, engine=engine)
    assert nothing_was_created(engine)


def test_a_list_of_a_class_of_its_own_is_copied_too(held):
    """Lists are copied."""

    class Own(list):
        pass

    items = Own([0, 1, 2])
    body, instances = held(items=items, workers=1)
    body.wait_begun(0)
    items[1] = 77
    del items[2:]
    body.release_all()
    assert instances.result(timeout=LIMIT) == [0, 10, 20]


@pytest.mark.parametrize("of", [dict, set, dict.keys, dict.values, dict.items], ids=lambda of: of.__name__)
def test_what_has_a_length_but_no_order_of_its_own_is_taken_when_the_set_is_created(make_engine, of):
    """Its length is taken once, when the set is created."""
    engine = make_engine(workers=1)
    begun, let_go = threading.Event(), threading.Event()

    def body(item):
        begun.set()
        assert let_go.wait(LIMIT)
        return item

    source = {0: "a", 1: "b", 2: "c"}
    items = of(source)
    expected = list(items)
    instances = shoal.spawn(body, items, chunk=1, engine=engine)
    assert begun.wait(LIMIT)
    source.clear()
    if of in (dict, set):
        items.clear()
    let_go.set()
    assert instances.result(timeout=LIMIT) == expected


def test_a_count_function_is_called_once_with_the_cases_variables(engine):
    """From a function of the case's variables."""
    variables = {"n": 3}
    case = engine.case("asked", variables=variables)
    seen = []

    def count(given):
        seen.append(dict(given))
        return given["n"]

    instances = case.spawn(lambda i: i, count=count)
    case.variables["n"] = 100
    assert seen == [variables]
    assert len(instances) == 3
    assert instances.result(timeout=LIMIT) == [0, 1, 2]


@pytest.mark.parametrize(
    ("what", "value"), [({"items": range(31)}, 31), ({"items": {i: i for i in range(31)}}, 31), ({"count": 31}, 31)]
)
@pytest.mark.parametrize("bounds", [{"minimum": 57}, {"maximum": 7}], ids=repr)
def test_bounds_are_for_items_and_a_number_too(engine, what, value, bounds):
    """With optional `minimum` and `maximum`: `CountError` with the bound and the value, nothing created."""
    with pytest.raises(shoal.CountError) as caught:
        shoal.spawn(abs, engine=engine, **what, **bounds)
    assert str(value) in str(caught.value)
    assert str(*bounds.values()) in str(caught.value)
    assert nothing_was_created(engine)
    within = {"minimum": 31, "maximum": 31}
    assert len(shoal.spawn(abs, engine=engine, **what, **within)) == 31


@pytest.mark.parametrize("count", [np.int64(3), np.uint8(3), np.int32(3)], ids=repr)
def test_an_int_of_numpy_is_an_int(engine, count):
    """`count=` (an int >= 1)."""
    assert shoal.map(lambda i: i, count=count, engine=engine) == [0, 1, 2]


@pytest.mark.parametrize("count", [np.bool_(True), np.int64(0), np.int64(-1), np.float32(3), np.array([3])], ids=repr)
def test_what_numpy_has_for_no_count_is_refused(engine, count):
    """`bool`, negative, zero, float, NaN, str and 2**64 as `count` are refused with `CountError`."""
    with pytest.raises(shoal.CountError):
        shoal.spawn(abs, count=count, engine=engine)
    assert nothing_was_created(engine)


@pytest.mark.parametrize("parallel", [1, 2], ids=["one iterable", "two iterables"])
def test_an_iterator_that_raises_ends_map_with_that_exception(engine, parallel):
    """If it raises, the gate fails with that exception."""

    class Broken(Exception):
        pass

    def items():
        yield 1
        raise Broken("half way")

    with pytest.raises(Broken, match="half way"):
        shoal.map(lambda *given: given, *[items() for _ in range(parallel)], engine=engine)
    assert engine.metrics()["running"] == 0


def test_an_iterator_that_raises_before_its_first_item_fails_the_gate(engine):
    """If it raises, the gate fails with that exception."""

    class Broken(Exception):
        pass

    def items():
        raise Broken("at once")
        yield

    for join in (shoal.all_of(), shoal.any_of(), shoal.at_least(2, or_all=True)):
        instances = shoal.spawn(abs, items(), join=join, engine=engine)
        assert instances.wait(timeout=LIMIT) == "failed"
        with pytest.raises(shoal.SetFailed) as caught:
            instances.result()
        assert isinstance(caught.value.__cause__, Broken)


def test_when_idle_without_items_seals_at_once(engine):
    """`seal="when_idle"` seals when none is pending or running."""
    instances = shoal.spawn(abs, [], seal="when_idle", engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    with pytest.raises(shoal.SealedError):
        instances.add(1)


def test_when_idle_seals_also_when_the_last_one_failed(held):
    """`seal="when_idle"` seals when none is pending or running."""
    body, instances = held(items=[0, 1], seal="when_idle", on_failure="continue")
    body.release(0)
    settled(instances, 0)
    assert instances.state == "active"
    body.fail(1)
    assert instances.wait(timeout=LIMIT) == "fired"
    with pytest.raises(shoal.SealedError):
        instances.add(2)


def test_leaving_the_with_block_waits_for_what_still_runs(held):
    """Leaving `with spawn(..., seal="manual") as s:` seals and waits."""
    body, opened = held(items=[0, 1], seal="manual")

    def use():
        with opened as instances:
            instances.add(2)
        return instances.gate.state

    leaving = in_thread(use)
    eventually(lambda: opened.state == "running", "sealing")
    body.release(0, 1)
    settled(opened, 0, 1)
    assert leaving.is_alive()
    assert opened.gate.state == "waiting"
    body.release(2)
    assert leaving.join_result() == "fired"


def test_adding_past_a_limit_names_both_numbers(make_engine):
    """Past either: `LimitError` naming both numbers, before anything is created."""
    engine = make_engine(limits=shoal.Limits(max_instances=57, max_case_instances=97))
    case = engine.case("full")
    case.spawn(abs, count=50)
    instances = case.spawn(abs, range(40), seal="manual")
    with pytest.raises(shoal.LimitError) as caught:
        instances.add(*range(83))
    assert "57" in str(caught.value)
    assert "123" in str(caught.value)
    with pytest.raises(shoal.LimitError) as caught:
        instances.add(*range(8))
    assert "97" in str(caught.value)
    assert "98" in str(caught.value)
    assert len(instances) == 40
    instances.add(*range(7))
    instances.seal()
    assert instances.wait(timeout=LIMIT) == "fired"
    assert len(instances) == 47


def test_an_iterator_past_the_limit_fails_the_gate_with_that_limiterror(make_engine):
    """Past either: `LimitError` naming both numbers; if the iterator raises, the gate fails with that exception."""
    engine = make_engine(limits=shoal.Limits(max_instances=57))
    instances = shoal.spawn(abs, itertools.count(), engine=engine)
    assert instances.wait(timeout=LIMIT) == "failed"
    with pytest.raises(shoal.SetFailed) as caught:
        instances.result()
    assert isinstance(caught.value.__cause__, shoal.LimitError)
    assert "57" in str(caught.value.__cause__)
    assert "58" in str(caught.value.__cause__)
    assert len(instances) == 57
    with pytest.raises(shoal.LimitError):
        shoal.map(abs, iter(range(83)), engine=engine)


def test_past_the_default_limit_of_a_case_is_refused(held):
    """Limits: `max_instances` for a set (10,000,000) and for a case (100,000,000)."""
    body, _ = held(1, workers=1)
    body.wait_begun(0)
    case = held.engine.case("huge")
    for _ in range(10):
        case.spawn(shoal.kernels.noop, count=10_000_000)
    with pytest.raises(shoal.LimitError) as caught:
        case.spawn(shoal.kernels.noop, count=1)
    message = str(caught.value).replace(",", "").replace("_", "")
    assert "100000000" in message
    assert "100000001" in message
    assert len(case.sets) == 10
    case.cancel()


def test_an_open_set_of_a_cancelled_case_takes_no_more(engine):
    """Cancelling closes the set to claims and additions."""
    case = engine.case("closed")
    instances = case.spawn(abs, [1], seal="manual")
    case.cancel()
    with pytest.raises(shoal.SealedError):
        instances.add(2)
    with pytest.raises(shoal.ShoalError, match="closed"):
        case.spawn(abs, count=1)
    assert len(instances) == 1

"""The sentences of semantics.md under "Patterns as a context calls them", and lines 12 to 15 of patterns.md."""

import threading
import types
import uuid

import numpy as np
import pytest
from steering import LIMIT, eventually, settled

import shoal
from shoal import patterns


@pytest.fixture(params=["case", "context"])
def context(request, engine):
    """A case, or any object with the five names."""
    name = f"order-{uuid.uuid4()}"
    variables = {
        "items": ["a", "b", "c"],
        "number": 4,
        "text": "abc",
        "nothing": None,
        "truth": True,
        "zero": 0,
        "empty": [],
    }
    if request.param == "case":
        return engine.case(name, workflow="orders", variables=variables)
    return types.SimpleNamespace(
        case_id=name, workflow_id="orders", variables=variables, arrived_from=set(), scope_id=""
    )


def case_id(context):
    return getattr(context, "case_id", None) or context.id


def test_12_has_next_activities_at_once(context, steered):
    """12 has `next_activities` at once."""
    body = steered()
    continuation = patterns.without_synchronization(context, body, 3, then=("bill", "ship"))
    assert continuation.next_activities == ("bill", "ship")
    assert continuation.instances.gate is None
    assert continuation.instances.pattern == 12
    assert continuation.instances.drained is False
    body.release_all()
    continuation.instances.drain(timeout=LIMIT)
    assert continuation.instances.counts.completed == 3
    assert continuation.next_activities == ("bill", "ship")


def test_12_instances_share_the_case(context, steered):
    """12: the next task is enabled when creation ends; instances run on and share the case."""
    body = steered()
    first = patterns.without_synchronization(context, body, 2)
    second = patterns.without_synchronization(context, body, 2)
    assert first.instances.case.id == second.instances.case.id == case_id(context)
    assert first.instances.id != second.instances.id


def test_13_next_is_empty_until_the_gate_fires_then_enabled_exactly_once_after_all_n(context, steered):
    """For 13, 14 and 15 they are empty until the gate fires. 13: constant n; next enabled exactly once, after all n."""
    enabled = []
    body = steered()
    continuation = patterns.design_time(context, body, 3, then=["bill"])
    continuation.instances.gate.on_fired(enabled.append)
    assert continuation.instances.pattern == 13
    for index in range(3):
        assert continuation.next_activities == ()
        body.release(index)
        settled(continuation.instances, index)
    assert continuation.instances.wait(timeout=LIMIT) == "fired"
    assert continuation.next_activities == ("bill",)
    eventually(lambda: len(enabled) == 1)
    assert continuation.instances.result() == [0, 10, 20]


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "3", None], ids=repr)
def test_13_a_count_that_is_none_is_a_counterror(context, count):
    """`CountError`, never one instance."""
    with pytest.raises((shoal.CountError, TypeError) if count is None else shoal.CountError):
        patterns.design_time(context, abs, count)


def test_14_takes_the_array_named_in_variables(context):
    """14 takes the array or number named in `variables`."""
    continuation = patterns.run_time(context, str.upper, "items", then=("bill",))
    assert len(continuation.instances) == 3
    assert continuation.instances.pattern == 14
    assert continuation.instances.result(timeout=LIMIT) == ["A", "B", "C"]
    assert continuation.next_activities == ("bill",)


def test_14_takes_the_number_named_in_variables(context):
    """14 takes the array or number named in `variables`."""
    continuation = patterns.run_time(context, lambda index: index, "number", then=("bill",))
    assert continuation.instances.result(timeout=LIMIT) == [0, 1, 2, 3]


@pytest.mark.parametrize("over", ["missing", "text", "nothing", "truth", "zero"])
def test_14_a_missing_or_malformed_one_is_a_counterror_never_one_instance(context, over):
    """A missing or malformed one is a `CountError`, never one instance."""
    ran = []
    with pytest.raises(shoal.CountError) as caught:
        patterns.run_time(context, ran.append, over)
    assert over in str(caught.value) or isinstance(caught.value.__cause__, KeyError)
    assert ran == []


def test_14_later_changes_of_the_data_change_nothing(context, steered):
    """14: n read when the task is enabled; later changes of the data change nothing."""
    context.variables["items"] = [0, 1]
    body = steered()
    continuation = patterns.run_time(context, body, "items")
    context.variables["items"].append(2)
    context.variables["items"] = []
    body.release_all()
    assert continuation.instances.result(timeout=LIMIT) == [0, 10]


def test_14_is_empty_until_the_gate_fires(context, steered):
    """For 13, 14 and 15 they are empty until the gate fires."""
    context.variables["items"] = [0, 1]
    body = steered()
    continuation = patterns.run_time(context, body, "items", then=("bill",))
    assert continuation.next_activities == ()
    body.release(0)
    settled(continuation.instances, 0)
    assert continuation.next_activities == ()
    body.release(1)
    assert continuation.instances.wait(timeout=LIMIT) == "fired"
    assert continuation.next_activities == ("bill",)


def test_15_instances_can_be_added_while_one_runs_and_the_join_waits_for_those_too(context, steered):
    """15 has a trigger (`instances.add`) and an end (`seal`); while open its status is `active`."""
    body = steered()
    continuation = patterns.dynamic(context, body, initial=[0], then=("bill",))
    instances = continuation.instances
    assert instances.pattern == 15
    assert instances.state == "active"
    body.wait_begun(0)
    instances.add(1)
    body.release(0)
    settled(instances, 0)
    instances.add(2)
    body.release(1, 2)
    settled(instances, 1, 2)
    assert (instances.state, continuation.next_activities) == ("active", ())
    instances.seal()
    assert instances.wait(timeout=LIMIT) == "fired"
    assert continuation.next_activities == ("bill",)
    assert instances.result() == [0, 10, 20]


def test_15_can_begin_without_any(context):
    """15: instances can be added while one runs; while open its status is `active`."""
    continuation = patterns.dynamic(context, abs, then=("bill",))
    assert continuation.instances.state == "active"
    assert continuation.next_activities == ()
    continuation.instances.add(-5)
    continuation.instances.seal()
    assert continuation.instances.result(timeout=LIMIT) == [5]


@pytest.mark.parametrize("ending", ["cancel", "complete", "failure"])
def test_next_is_enabled_only_by_firing(context, steered, ending):
    """26: not: anything enabled downstream. 27: downstream is enabled once, at once."""
    body = steered()
    continuation = patterns.design_time(context, body, 2, then=("bill",))
    body.wait_begun(0, 1)
    if ending == "failure":
        body.fail(0)
    else:
        getattr(continuation.instances, ending)()
    assert (
        continuation.instances.wait(timeout=LIMIT)
        == {"cancel": "cancelled", "complete": "fired", "failure": "failed"}[ending]
    )
    assert continuation.next_activities == (("bill",) if ending == "complete" else ())


def test_none_blocks(context, steered):
    """None blocks."""
    body = steered()
    begun = [
        patterns.without_synchronization(context, body, 2),
        patterns.design_time(context, body, 2),
        patterns.run_time(context, body, "number"),
        patterns.dynamic(context, body, initial=[0]),
    ]
    assert [c.instances.drained for c in begun] == [False] * 4
    assert [len(c.instances) for c in begun] == [2, 2, 4, 1]
    assert {c.instances.case.id for c in begun} == {case_id(context)}


def test_the_registry_knows_12_to_15():
    """`PATTERNS[number]` is the registry: `.number, .name, .execute(context)`."""
    known = [patterns.PATTERNS[number] for number in (12, 13, 14, 15)]
    assert [p.number for p in known] == [12, 13, 14, 15]
    assert len({p.name for p in known}) == 4
    assert all(isinstance(p.name, str) and p.name for p in known)
    assert all(callable(p.execute) for p in known)


def test_bodies_of_a_pattern_know_their_case(context):
    """An instance's case is the context's."""
    seen = []
    told = threading.Event()

    def body(index):
        seen.append(shoal.current().case.id)
        told.set()

    patterns.design_time(context, body, 1).instances.wait(timeout=LIMIT)
    assert told.is_set()
    assert seen == [case_id(context)]


@pytest.mark.parametrize("array", [(1, 2), np.array([1, 2]), range(1, 3)], ids=["tuple", "numpy", "range"])
def test_14_takes_any_array(context, array):
    """14 takes the array or number named in `variables`."""
    context.variables["array"] = array
    continuation = patterns.run_time(context, abs, "array", then=("bill",))
    assert continuation.instances.result(timeout=LIMIT) == [1, 2]
    assert continuation.next_activities == ("bill",)


def test_14_an_empty_array_is_an_empty_set(context):
    """`items=[]` makes an empty set: `all_of` fires at once."""
    continuation = patterns.run_time(context, abs, "empty", then=("bill",))
    assert len(continuation.instances) == 0
    assert continuation.instances.gate.state == "fired"
    assert continuation.next_activities == ("bill",)


@pytest.mark.parametrize("number", [np.int64(4), np.uint8(4)], ids=repr)
def test_14_takes_a_number_of_numpy(context, number):
    """14 takes the array or number named in `variables`."""
    context.variables["number"] = number
    assert patterns.run_time(context, lambda index: index, "number").instances.result(timeout=LIMIT) == [0, 1, 2, 3]


MALFORMED = {
    "-1": -1,
    "2**64": 2**64,
    "1.0": 1.0,
    "nan": float("nan"),
    "object": {"a": 1},
    "generator": (i for i in range(1)),
    "bytes": b"a",
    "array without dimensions": np.array(1),
    "numpy bool": np.bool_(True),
    "function": abs,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_14_whatever_is_neither_array_nor_number_is_a_counterror(context, name):
    """A missing or malformed one is a `CountError`, never one instance."""
    context.variables["malformed"] = MALFORMED[name]
    ran = []
    with pytest.raises(shoal.CountError):
        patterns.run_time(context, ran.append, "malformed")
    assert ran == []

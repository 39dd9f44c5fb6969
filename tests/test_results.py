"""The sentences of semantics.md under "Results", and the options of `map` and `spawn` that shape them."""

import gc
import itertools
import pickle
import threading
import weakref

import pytest
from steering import LIMIT, eventually, in_thread, settled

import shoal


def test_result_gives_the_completed_values_in_index_order(held):
    """`result()` gives the completed values in index order."""
    body, instances = held(4, on_failure="continue")
    body.wait_begun(0, 1, 2, 3)
    for index in (3, 1, 0):
        body.release(index)
        settled(instances, index)
    body.fail(2)
    assert instances.result(timeout=LIMIT) == [0, 10, 30]


def test_the_result_of_a_threshold_join_is_those_completed_when_it_is_called(held):
    """For a threshold join: those completed when it is called, at least n."""
    body, instances = held(4, join=shoal.at_least(2), rest="continue")
    body.wait_begun(0, 1, 2, 3)
    body.release(3)
    settled(instances, 3)
    body.release(1)
    assert instances.result(timeout=LIMIT) == [10, 30]
    body.release(0)
    settled(instances, 0)
    assert instances.result() == [0, 10, 30]
    body.release(2)
    instances.drain(timeout=LIMIT)
    assert instances.result() == [0, 10, 20, 30]


def test_result_with_fill_has_one_entry_for_every_instance(held):
    """`result(fill=x)` has one entry for every instance."""
    body, instances = held(5, workers=3, join=shoal.at_least(1))
    body.wait_begun(0, 1, 2)
    body.fail(0)
    settled(instances, 0)
    body.release(1)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.result(fill="none") == ["none", 10, "none", "none", "none"]
    assert instances.result(fill=None) == [None, 10, None, None, None]
    assert instances.result() == [10]


def test_values_and_errors_are_mappings_by_index_of_what_is_there_so_far(held):
    """`values` and `errors` are mappings by index of what is there so far."""
    body, instances = held(4, on_failure="continue")
    body.wait_begun(0, 1, 2, 3)
    assert dict(instances.values) == {}
    assert dict(instances.errors) == {}
    body.release(2)
    body.fail(1)
    settled(instances, 1, 2)
    assert dict(instances.values) == {2: 20}
    assert list(instances.errors) == [1]
    assert instances.gate.state == "waiting"
    assert 0 not in instances.values
    with pytest.raises(KeyError):
        instances.values[0]


@pytest.mark.parametrize("value", [None, False, 0, [], ValueError("returned, not raised"), NotImplemented], ids=repr)
def test_any_value_is_a_value(engine, value):
    """`result()` gives the completed values."""
    instances = shoal.spawn(lambda index: value, count=3, engine=engine)
    result = instances.result(timeout=LIMIT)
    assert len(result) == 3
    assert all(v is value for v in result)
    assert instances.counts.completed == 3


def test_as_completed_yields_outcomes_in_completion_order(held):
    """`as_completed()` yields `Outcome(index, item, status, value, error)` in completion order."""
    body, instances = held(items=[0, 1, 2, 3], on_failure="continue")
    body.wait_begun(0, 1, 2, 3)
    outcomes = iter(instances.as_completed())
    seen = []
    for index in (2, 0, 3, 1):
        if index == 3:
            body.fail(index)
        else:
            body.release(index)
        seen.append(next(outcomes))
    assert list(outcomes) == []
    assert [o.index for o in seen] == [2, 0, 3, 1]
    assert [o.item for o in seen] == [2, 0, 3, 1]
    assert [o.status for o in seen] == ["completed", "completed", "failed", "completed"]
    assert [o.value for o in seen] == [20, 0, None, 10]
    assert [type(o.error) for o in seen] == [type(None), type(None), ValueError, type(None)]
    assert isinstance(seen[0], shoal.Outcome)


def test_as_completed_gives_each_caller_everything(engine):
    """`as_completed()` yields `Outcome(index, item, status, value, error)` in completion order."""
    instances = shoal.spawn(lambda item: item * 2, range(500), engine=engine)
    first = [(o.index, o.item, o.value) for o in instances.as_completed()]
    second = [(o.index, o.item, o.value) for o in instances.as_completed()]
    assert first == second
    assert sorted(first) == [(i, i, 2 * i) for i in range(500)]


def test_keep_false_keeps_no_values_after_they_were_yielded(engine):
    """`keep=False` keeps no values after they were yielded."""

    class Value:
        pass

    made = []

    def body(index):
        value = Value()
        made.append(weakref.ref(value))
        return value

    instances = shoal.spawn(body, count=50, keep=False, engine=engine)
    yielded = 0
    for outcome in instances.as_completed():
        assert isinstance(outcome.value, Value)
        yielded += 1
    del outcome
    assert yielded == 50
    assert instances.counts.completed == 50
    gc.collect()
    eventually(lambda: all(ref() is None for ref in made), "going of the values")
    assert dict(instances.values) == {}


def test_map_gives_values_in_order(engine):
    """Like map(), on all workers: values in order."""
    assert shoal.map(lambda x: x * x, range(10_000), engine=engine) == [x * x for x in range(10_000)]
    assert shoal.map(pow, [2, 3, 4], [5, 2, 3], engine=engine) == [32, 9, 64]
    assert shoal.map(pow, [2, 3, 4], [5, 2], engine=engine) == [32, 9]
    assert shoal.map(lambda i: -i, count=3, engine=engine) == [0, -1, -2]
    assert shoal.map(str, iter("abc"), engine=engine) == ["a", "b", "c"]
    assert shoal.map(str, (c for c in "abc"), engine=engine) == ["a", "b", "c"]
    assert shoal.map(abs, {-1}, engine=engine) == [1]


def test_map_leaves_out_what_stopped_as_cancelled(engine):
    """`result()` gives the completed values in index order."""

    def body(item):
        if item == 1:
            raise shoal.Cancelled
        return item

    assert shoal.map(body, range(3), engine=engine) == [0, 2]


def test_map_works_without_an_engine():
    """`default_engine()` serves the module-level calls."""
    assert shoal.map(abs, [-1, -2, -3]) == [1, 2, 3]


def test_map_is_structured_when_it_raises_none_of_its_bodies_runs(engine):
    """`map` is structured: when it returns or raises, none of its bodies runs."""
    both = threading.Barrier(2)
    ended = threading.Event()

    def body(index):
        both.wait(LIMIT)
        if index == 0:
            raise ValueError("the first")
        pause = threading.Event()
        while not shoal.current().cancelled:
            pause.wait(0.001)
        pause.wait(0.05)
        ended.set()

    with pytest.raises(ValueError, match="the first"):
        shoal.map(body, [0, 1], chunk=1, engine=engine)
    assert ended.is_set()
    assert engine.metrics()["running"] == 0


def test_map_raises_the_bodys_own_exception_with_a_note_naming_the_instance(engine):
    """It raises the body's own exception with a note naming the instance."""

    class Own(Exception):
        pass

    mine = Own("exactly this one")

    def body(index):
        if index == 37:
            raise mine
        return index

    with pytest.raises(Own) as caught:
        shoal.map(body, range(100), engine=engine)
    assert caught.value is mine
    assert any("37" in note for note in caught.value.__notes__)


def fail_some(index):
    if index % 2:
        raise ValueError(f"number {index}")
    return index * 10


def test_result_of_a_failed_set_raises_setfailed(engine):
    """`result()` of a failed set raises `SetFailed`; each carries the counts, the errors and the partial values."""
    instances = shoal.spawn(fail_some, count=4, on_failure="fail_late", engine=engine)
    with pytest.raises(shoal.SetFailed) as caught:
        instances.result(timeout=LIMIT)
    error = caught.value
    assert isinstance(error, shoal.ShoalError)
    assert error.counts == shoal.Counts(0, 0, 2, 2, 0, 0)
    assert sorted(error.errors) == [1, 3]
    assert type(error.errors[1]) is ValueError
    assert error.values == {0: 0, 2: 20}


def test_result_of_a_cancelled_set_raises_setcancelled(held):
    """A cancelled one `SetCancelled`; each carries the counts, the errors and the partial values."""
    body, instances = held(4, workers=2, on_failure="continue")
    body.wait_begun(0, 1)
    body.release(0)
    body.wait_begun(2)
    body.fail(1)
    body.wait_begun(3)
    settled(instances, 0, 1)
    instances.cancel()
    with pytest.raises(shoal.SetCancelled) as caught:
        instances.result()
    assert not isinstance(caught.value, shoal.SetFailed)
    assert caught.value.counts == shoal.Counts(0, 2, 1, 1, 0, 0)
    assert caught.value.values == {0: 0}
    assert sorted(caught.value.errors) == [1]


def test_setfailed_names_the_first_error(engine):
    """`result()` of a failed set raises `SetFailed`."""

    def body(index):
        if index == 2:
            raise ValueError("no such page")

    def items():
        yield 0
        raise OSError("gone")

    failed = shoal.spawn(body, count=3, on_failure="fail_late", engine=engine)
    with pytest.raises(shoal.SetFailed) as caught:
        failed.result(timeout=LIMIT)
    words = "1 failed of 3; first: instance 2: ValueError: no such page"
    assert str(caught.value) == f"set {failed.id} failed: {words}"
    fed = shoal.spawn(body, items(), name="pages", engine=engine)
    with pytest.raises(
        shoal.SetFailed, match=rf"^set {fed.id} \(pages\) failed: reading its items raised OSError: gone; "
    ):
        fed.result(timeout=LIMIT)
    unmet = shoal.spawn(body, seal="manual", join=shoal.at_least(2), engine=engine)
    unmet.seal()
    with pytest.raises(shoal.SetFailed, match=f"^set {unmet.id} failed: no instances$"):
        unmet.result(timeout=LIMIT)


def test_setcancelled_says_how_far_it_came(held):
    """A cancelled one `SetCancelled`."""
    body, instances = held(3, workers=1)
    body.wait_begun(0)
    instances.cancel()
    body.release(0)
    instances.drain(timeout=LIMIT)
    with pytest.raises(shoal.SetCancelled, match=f"^set {instances.id} was cancelled: 1 completed, 2 cancelled$"):
        instances.result()


def test_the_cause_of_setfailed_is_an_exceptiongroup_of_the_first_100(engine):
    """The cause of `SetFailed` is an `ExceptionGroup` of the first 100, where there are any."""
    instances = shoal.spawn(fail_some, count=300, on_failure="fail_late", engine=engine)
    with pytest.raises(shoal.SetFailed) as caught:
        instances.result(timeout=LIMIT)
    cause = caught.value.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert len(cause.exceptions) == 100
    assert all(type(e) is ValueError for e in cause.exceptions)
    assert len(caught.value.errors) == 150


def test_a_failed_set_without_any_error_has_no_cause(held):
    """Where there are any."""
    _, instances = held(items=[0], seal="manual", join=shoal.at_least(2))
    instances.seal()
    with pytest.raises(shoal.SetFailed) as caught:
        instances.result(timeout=LIMIT)
    assert caught.value.__cause__ is None
    assert caught.value.errors == {}


def test_the_same_failure_can_be_raised_many_times(engine):
    """`result()` of a failed set raises `SetFailed`."""
    instances = shoal.spawn(fail_some, count=4, on_failure="fail_late", engine=engine)
    messages = set()
    for _ in range(3):
        with pytest.raises(shoal.SetFailed) as caught:
            instances.result(timeout=LIMIT)
        messages.add(str(caught.value))
        assert len(caught.value.__cause__.exceptions) == 2
    assert len(messages) == 1


def test_the_outcomes_of_a_set_pickle(held, engine):
    """They pickle."""
    failed = shoal.spawn(fail_some, count=4, on_failure="fail_late", engine=engine)
    _, cancelled = held(2)
    cancelled.cancel()
    for instances, kind in ((failed, shoal.SetFailed), (cancelled, shoal.SetCancelled)):
        with pytest.raises(kind) as caught:
            instances.result(timeout=LIMIT)
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is kind
        assert str(again) == str(caught.value)
        assert again.counts == caught.value.counts
        assert again.values == caught.value.values
        assert sorted(again.errors) == sorted(caught.value.errors)


def test_summary_is_a_dict(held):
    """`summary()` is a dict: `results`, `errors`, `total_children`, `success_count`, `failure_count`, `timestamp`,
    and the counts.
    """
    body, instances = held(4, on_failure="continue")
    body.wait_begun(0, 1, 2, 3)
    body.fail(1)
    body.release(0, 2, 3)
    instances.wait(timeout=LIMIT)
    summary = instances.summary()
    assert isinstance(summary, dict)
    assert {"results", "errors", "total_children", "success_count", "failure_count", "timestamp"} <= set(summary)
    assert (summary["total_children"], summary["success_count"], summary["failure_count"]) == (4, 3, 1)
    results = summary["results"]
    assert list(results.values() if isinstance(results, dict) else results) == [0, 20, 30]
    assert len(summary["errors"]) == 1
    assert {name: summary[name] for name in shoal.Counts._fields} == instances.counts._asdict()


def test_batch_bodies_take_a_list_and_return_as_many_values(engine):
    """`batch=True` or an int: the body takes a list of items and returns as many values."""
    sizes = []

    def body(items):
        assert isinstance(items, list)
        sizes.append(len(items))
        return [item * 2 for item in items]

    assert shoal.map(body, range(100), batch=True, engine=engine) == [2 * i for i in range(100)]
    assert sum(sizes) == 100
    sizes.clear()
    assert shoal.map(body, range(100), batch=7, engine=engine) == [2 * i for i in range(100)]
    assert sum(sizes) == 100
    assert max(sizes) <= 7


def test_a_batch_that_raises_fails_each_of_its_instances(make_engine):
    """If it raises, each of its instances failed."""

    def body(items):
        if 4 in items:
            raise ValueError("four")
        return items

    instances = shoal.spawn(body, range(9), batch=3, chunk=3, on_failure="continue", engine=make_engine(workers=1))
    assert instances.wait(timeout=LIMIT) == "fired"
    failed = set(instances.errors)
    assert 4 in failed
    assert 1 <= len(failed) <= 3
    assert set(instances.values) == set(range(9)) - failed
    assert all(type(e) is ValueError for e in instances.errors.values())
    assert instances.counts.failed == len(failed)


@pytest.mark.parametrize("answer", [[], [1, 2, 3, 4, 5], None], ids=repr)
def test_a_batch_that_returns_another_number_of_values_fails_its_instances(make_engine, answer):
    """The body takes a list of items and returns as many values."""
    engine = make_engine(workers=1)
    instances = shoal.spawn(lambda items: answer, range(2), batch=2, on_failure="continue", engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.counts.failed == 2


def test_of_a_batch_body_without_an_end_no_more_is_taken_than_shows_that(make_engine):
    """The body takes a list of items and returns as many values."""
    taken = []

    def endless(items):
        for number in itertools.count():
            taken.append(number)
            yield number

    engine = make_engine(workers=1)
    with pytest.raises(ValueError, match="more than 3 values for 3 items"):
        shoal.map(endless, range(3), batch=True, chunk=3, engine=engine)
    assert taken == [0, 1, 2, 3]


def test_setup_runs_once_for_each_worker(engine):
    """`setup` runs once for each worker or process."""
    prepared = []
    unprepared = []
    local = threading.local()

    def setup():
        prepared.append(threading.get_ident())
        local.ready = True

    def body(index):
        if not getattr(local, "ready", False):
            unprepared.append(index)

    waiting = in_thread(lambda: shoal.map(body, range(2000), setup=setup, chunk=1, engine=engine))
    waiting.join_result()
    assert prepared
    assert len(prepared) == len(set(prepared))
    assert unprepared == []


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_chunk_overrides_the_chunk_size(engine, chunk):
    """`chunk` overrides the chunk size."""
    assert shoal.map(lambda x: x + 1, range(500), chunk=chunk, engine=engine) == list(range(1, 501))


def test_progress_says_nothing_where_output_is_no_terminal(engine, capfd):
    """`progress=True`: a live bar in a terminal or notebook, nothing where output is no terminal."""
    assert shoal.map(abs, range(100), progress=True, engine=engine) == list(range(100))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_values_go_when_the_last_handle_goes(engine):
    """Values go when the last handle goes."""

    class Value:
        pass

    made = []

    def body(index):
        value = Value()
        made.append(weakref.ref(value))
        return value

    instances = shoal.spawn(body, count=10, engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    instances.drain(timeout=LIMIT)
    gc.collect()
    assert all(ref() is not None for ref in made)
    del instances
    eventually(lambda: gc.collect() >= 0 and all(ref() is None for ref in made), "going of the values")


def test_a_claim_keeps_body_and_items_alive_until_the_call_returns(make_engine):
    """A claim keeps body, items and arrays alive until the call returns, even after the set is drained."""
    begun, let_go, ended = threading.Event(), threading.Event(), threading.Event()
    seen = []

    class Item:
        pass

    def body(item):
        begun.set()
        let_go.wait(LIMIT)
        seen.append(type(item))
        ended.set()

    instances = shoal.spawn(body, [Item()], engine=make_engine(workers=1))
    assert begun.wait(LIMIT)
    instances.cancel()
    del instances, body
    gc.collect()
    let_go.set()
    assert ended.wait(LIMIT)
    assert seen == [Item]


def test_the_group_of_the_first_100_is_of_those_whose_frames_were_kept(held):
    """The cause of `SetFailed` is an `ExceptionGroup` of the first 100; the first 100 of a set are kept with their
    frames.
    """
    body, instances = held(120, workers=2, on_failure="fail_late")
    body.wait_begun(0)
    for index in range(1, 120):
        body.fail(index)
    settled(instances, *range(1, 120))
    body.fail(0)
    assert instances.wait(timeout=LIMIT) == "failed"
    assert isinstance(instances.errors[0], shoal.InstanceError)
    with pytest.raises(shoal.SetFailed) as caught:
        instances.result()
    group = caught.value.__cause__
    assert len(group.exceptions) == 100
    assert [type(e) for e in group.exceptions if e.__traceback__ is None] == []


def test_a_group_with_what_is_no_exception_is_a_group_of_base_exceptions(engine):
    """`ExceptionGroup` with what is no `Exception` inside raises."""

    class Own(BaseException):
        pass

    def body(index):
        raise Own(index) if index == 1 else ValueError(index)

    instances = shoal.spawn(body, count=3, on_failure="fail_late", engine=engine)
    with pytest.raises(shoal.SetFailed) as caught:
        instances.result(timeout=LIMIT)
    group = caught.value.__cause__
    assert isinstance(group, BaseExceptionGroup)
    assert [type(e) for e in group.exceptions] == [ValueError, Own, ValueError]


@pytest.mark.parametrize("rest", ["cancel", "continue"])
def test_map_is_structured_when_it_returns_none_of_its_bodies_runs(make_engine, steered, rest):
    """`map` is structured: when it returns or raises, none of its bodies runs."""
    engine = make_engine(workers=2)
    body = steered()
    mapping = in_thread(lambda: shoal.map(body, range(2), join=shoal.any_of(), rest=rest, chunk=1, engine=engine))
    body.wait_begun(0, 1)
    (instances,) = engine.sets
    body.release(1)
    assert instances.gate.wait(timeout=LIMIT) == "fired"
    mapping.join(0.05)
    assert mapping.is_alive()
    body.release(0)
    assert 10 in mapping.join_result()
    assert engine.metrics()["running"] == 0


@pytest.mark.parametrize("how", ["cancel", "case.cancel"])
def test_map_of_a_set_that_was_cancelled_raises_setcancelled(make_engine, steered, how):
    """`map` is structured; a cancelled set raises `SetCancelled`."""
    engine = make_engine(workers=1)
    body = steered()
    case = engine.case("mapped")
    mapping = in_thread(lambda: shoal.map(body, range(3), chunk=1, case=case))
    body.wait_begun(0)
    (case.sets[0] if how == "cancel" else case).cancel()
    mapping.join(0.05)
    assert mapping.is_alive()
    body.release_all()
    with pytest.raises(shoal.SetCancelled) as caught:
        mapping.join_result()
    assert caught.value.values == {0: 0}
    assert body.began == [0]


def test_result_with_fill_has_an_entry_for_those_that_still_run(held):
    """`result(fill=x)` has one entry for every instance."""
    body, instances = held(5, workers=3, join=shoal.at_least(1), rest="continue")
    body.wait_begun(0, 1, 2)
    body.fail(0)
    settled(instances, 0)
    body.release(2)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.result(fill="x") == ["x", "x", 20, "x", "x"]
    body.release_all()
    assert instances.drain(timeout=LIMIT)
    assert instances.result(fill="x") == ["x", 10, 20, 30, 40]


def test_keep_false_lets_a_value_go_while_others_run(steered, make_engine):
    """`keep=False` keeps no values after they were yielded."""

    class Value:
        pass

    steering = steered()

    def body(index):
        steering(index)
        return Value()

    instances = shoal.spawn(body, count=3, keep=False, chunk=1, engine=make_engine(workers=3))
    steering.wait_begun(0, 1, 2)
    outcomes = instances.as_completed()
    steering.release(1)
    outcome = next(outcomes)
    assert outcome.index == 1
    gone = weakref.ref(outcome.value)
    del outcome
    eventually(lambda: gone() is None, "going of the value")
    assert instances.counts.completed == 1
    assert dict(instances.values) == {}
    steering.release_all()
    assert sorted(type(o.value).__name__ for o in outcomes) == ["Value", "Value"]


def test_values_in_index_order_after_a_set_grew(held):
    """`result()` gives the completed values in index order."""
    body, instances = held(items=[0, 1], workers=4, seal="manual")
    instances.add(2, 3)
    body.wait_begun(0, 1, 2, 3)
    for index in (3, 0, 2, 1):
        body.release(index)
        settled(instances, index)
    instances.seal()
    assert instances.result(timeout=LIMIT) == [0, 10, 20, 30]
    assert [o.index for o in instances.as_completed()] == [3, 0, 2, 1]

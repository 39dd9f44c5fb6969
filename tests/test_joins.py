"""The sentences of semantics.md under "Joins", without `when`, timeouts, retries and `concurrency`."""

import threading

import pytest
from steering import LIMIT, eventually, settled

import shoal


def test_all_of_fires_when_sealed_and_every_instance_terminal(held):
    """`all_of()`: sealed and every instance terminal, with failures within what `on_failure` allows."""
    body, instances = held(items=range(3), seal="manual", join=shoal.all_of())
    body.wait_begun(0, 1, 2)
    body.release(0, 1)
    settled(instances, 0, 1)
    instances.seal()
    assert instances.gate.state == "waiting"
    body.release(2)
    assert instances.wait(timeout=LIMIT) == "fired"


def test_all_of_is_the_default(held):
    """`all_of()`: sealed and every instance terminal."""
    body, instances = held(2)
    body.wait_begun(0, 1)
    body.release(0)
    settled(instances, 0)
    assert instances.gate.state == "waiting"
    body.release(1)
    assert instances.wait(timeout=LIMIT) == "fired"


def test_all_of_counts_a_cancelled_instance_as_terminal(held):
    """`all_of()`: sealed and every instance terminal, with failures within what `on_failure` allows."""
    body, instances = held(3)
    body.wait_begun(0, 1, 2)
    body.fail(1, shoal.Cancelled())
    body.release(0, 2)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.counts == shoal.Counts(0, 0, 2, 0, 1, 0)
    assert instances.result() == [0, 20]


def test_at_least_n_fires_when_n_completed(held):
    """`at_least(n)`: n completed."""
    body, instances = held(4, join=shoal.at_least(2), rest="continue")
    body.wait_begun(0, 1, 2, 3)
    body.release(3)
    settled(instances, 3)
    assert instances.gate.state == "waiting"
    body.release(1)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.counts.running == 2


def test_at_least_n_fires_on_an_open_set_before_its_seal(held):
    """`at_least(n)`: n completed."""
    body, instances = held(items=range(3), seal="manual", join=shoal.at_least(2))
    body.release(0, 1)
    assert instances.wait(timeout=LIMIT) == "fired"


def test_at_least_or_all_fires_when_all_are_terminal(held):
    """`or_all=True`: or all terminal (YAWL's threshold)."""
    body, instances = held(4, join=shoal.at_least(3, or_all=True))
    body.wait_begun(0, 1, 2, 3)
    body.fail(0)
    body.fail(1)
    settled(instances, 0, 1)
    assert instances.gate.state == "waiting"
    body.release(2)
    settled(instances, 2)
    assert instances.gate.state == "waiting"
    body.release(3)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.result() == [20, 30]


def test_at_least_or_all_fires_at_n_too(held):
    """`at_least(n)`: n completed; `or_all=True`: or all terminal."""
    body, instances = held(4, join=shoal.at_least(2, or_all=True), rest="continue")
    body.wait_begun(0, 1, 2, 3)
    body.release(0, 1)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.counts.running == 2


@pytest.mark.parametrize(
    ("fraction", "count", "needed"), [(0.8, 10, 8), (0.5, 3, 2), (0.75, 4, 3), (0.01, 5, 1), (1.0, 4, 4), (0.7, 10, 7)]
)
def test_at_least_a_fraction_fires_at_the_ceiling_of_fraction_times_count(held, fraction, count, needed):
    """`at_least(fraction=f)`: ceil(f x final count) completed."""
    body, instances = held(count, workers=count, join=shoal.at_least(fraction=fraction), rest="continue")
    body.wait_begun(*range(count))
    body.release(*range(needed - 1))
    settled(instances, *range(needed - 1))
    assert instances.gate.state == "waiting"
    body.release(needed - 1)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.counts.completed == needed


def test_a_fraction_is_of_the_final_count(held):
    """`at_least(fraction=f)`: ceil(f x final count) completed."""
    body, instances = held(items=range(2), workers=6, seal="manual", join=shoal.at_least(fraction=0.5), rest="continue")
    body.release(0)
    settled(instances, 0)
    instances.add(2, 3, 4, 5)
    body.wait_begun(*range(6))
    instances.seal()
    assert instances.gate.state == "waiting"
    body.release(1)
    settled(instances, 1)
    assert instances.gate.state == "waiting"
    body.release(2)
    assert instances.wait(timeout=LIMIT) == "fired"


@pytest.mark.parametrize("join", [shoal.any_of(), shoal.at_least(1)], ids=["any_of", "at_least(1)"])
def test_any_of_fires_when_one_completed(held, join):
    """`any_of()`: one completed, = `at_least(1)`."""
    body, instances = held(3, join=join)
    body.wait_begun(0, 1, 2)
    body.fail(0)
    settled(instances, 0)
    assert instances.gate.state == "waiting"
    body.release(2)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.result() == [20]


def test_weighted_fires_when_the_weights_of_the_completed_reach_w(held):
    """`weighted(weights, at_least=w)`: the weights (integers >= 0) of the completed reach w."""
    body, instances = held(4, join=shoal.weighted([5, 0, 3, 2], at_least=5), rest="continue")
    body.wait_begun(0, 1, 2, 3)
    body.release(1, 2)
    settled(instances, 1, 2)
    assert instances.gate.state == "waiting"
    body.release(3)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.status(0) == "running"


def test_weighted_fires_with_one_that_weighs_enough(held):
    """`weighted(weights, at_least=w)`: the weights (integers >= 0) of the completed reach w."""
    body, instances = held(4, join=shoal.weighted([5, 0, 3, 2], at_least=5))
    body.wait_begun(0, 1, 2, 3)
    body.release(0)
    assert instances.wait(timeout=LIMIT) == "fired"


def test_weighted_fails_when_the_weights_left_are_too_few(held):
    """When fewer can still complete than are needed, the gate fails there and then."""
    body, instances = held(3, join=shoal.weighted([5, 1, 1], at_least=3), rest="continue")
    body.wait_begun(0, 1, 2)
    body.release(1)
    settled(instances, 1)
    assert instances.gate.state == "waiting"
    body.fail(0)
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.status(2) == "running"


def test_detached_has_no_gate_and_wait_is_drain(held):
    """`detached()`: there is no gate (`gate` is None); `spawn` returns when creation ends; `wait` is `drain`."""
    body, instances = held(3, workers=2, join=shoal.detached())
    assert instances.gate is None
    body.wait_begun(0, 1)
    body.fail(0)
    body.wait_begun(2)
    instances.wait(timeout=0.01)
    assert instances.drained is False
    body.release_all()
    instances.wait(timeout=LIMIT)
    assert instances.drained is True
    assert instances.counts == shoal.Counts(0, 0, 2, 1, 0, 0)


@pytest.mark.parametrize(
    "join",
    [
        lambda: shoal.at_least(0),
        lambda: shoal.at_least(-1),
        lambda: shoal.at_least(fraction=0),
        lambda: shoal.at_least(fraction=0.0),
        lambda: shoal.at_least(fraction=-0.5),
        lambda: shoal.at_least(fraction=1.01),
        lambda: shoal.at_least(fraction=float("nan")),
        lambda: shoal.at_least(fraction=float("inf")),
        lambda: shoal.weighted([1, -1, 1, 1], at_least=1),
        lambda: shoal.at_least(5),
    ],
    ids=["0", "-1", "f=0", "f=0.0", "f=-0.5", "f=1.01", "f=nan", "f=inf", "negative weight", "5 of 4"],
)
def test_a_join_that_cannot_be_is_a_joinerror_before_anything_is_created(engine, join):
    """n < 1, a fraction outside (0, 1], negative weights, or n above the count of a set sealed at creation:
    `JoinError` before anything is created.
    """
    ran = []
    with pytest.raises(shoal.JoinError) as caught:
        shoal.spawn(ran.append, count=4, join=join(), engine=engine)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, shoal.ShoalError)
    assert len(engine.sets) == 0
    assert engine.metrics()["instances"] == 0
    assert ran == []


@pytest.mark.parametrize("n", [True, 1.5, "2"], ids=repr)
def test_a_number_that_is_no_int_is_refused_as_n(n):
    """`True` extracts as the integer 1. Refuse bool where a count is meant."""
    with pytest.raises((shoal.JoinError, TypeError)):
        shoal.at_least(n)


def test_n_above_the_count_of_an_open_set_is_found_at_the_seal(held):
    """On an open set the last is found at the seal: the gate fails at once."""
    body, instances = held(items=range(2), seal="manual", join=shoal.at_least(3), rest="continue")
    body.wait_begun(0, 1)
    assert instances.gate.state == "waiting"
    instances.seal()
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.counts.running == 2


def test_cancel_is_the_default_of_rest_and_cancels_what_has_not_begun_in_one_step(held):
    """`rest=` says what becomes of the others: `"cancel"` (default). What has not begun is cancelled in one step."""
    body, instances = held(100, workers=2, join=shoal.any_of())
    body.wait_begun(0, 1)
    body.release(0)
    assert instances.wait(timeout=LIMIT) == "fired"
    eventually(lambda: instances.counts == shoal.Counts(0, 1, 1, 0, 98, 0), "cancelling of the rest")
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert sorted(body.began) == [0, 1]


@pytest.mark.parametrize("decision", ["fired", "failed"])
def test_rest_is_for_the_others_whichever_way_the_gate_is_decided(held, decision):
    """`rest=` says what becomes of the others when the gate is decided, whichever way."""
    for rest in ("cancel", "continue"):
        body, instances = held(6, workers=2, join=shoal.any_of(), on_failure="fail_fast", rest=rest)
        body.wait_begun(0, 1)
        if decision == "fired":
            body.release(0)
        else:
            body.fail(0)
        assert instances.wait(timeout=LIMIT) == decision
        body.release_all()
        instances.drain(timeout=LIMIT)
        assert instances.counts.cancelled == (4 if rest == "cancel" else 0)
        assert instances.gate.state == decision


def test_a_body_that_has_begun_is_asked_to_stop_and_keeps_its_own_outcome_if_it_finishes(engine):
    """A body that has begun is asked to stop and keeps its own outcome if it finishes."""
    both = threading.Barrier(2)
    let_go = threading.Event()

    def body(index):
        both.wait(LIMIT)
        if index == 0:
            return "first", shoal.current().cancelled
        assert let_go.wait(LIMIT)
        return "late", shoal.current().cancelled

    instances = shoal.spawn(body, count=2, join=shoal.any_of(), chunk=1, engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    let_go.set()
    instances.drain(timeout=LIMIT)
    assert instances.values == {0: ("first", False), 1: ("late", True)}
    assert instances.counts == shoal.Counts(0, 0, 2, 0, 0, 0)


def test_continue_asks_nobody_to_stop(engine):
    """`"continue"`: they run on, are counted, change nothing that was decided."""
    both = threading.Barrier(2)
    let_go = threading.Event()

    def body(index):
        both.wait(LIMIT)
        if index == 1:
            assert let_go.wait(LIMIT)
        return shoal.current().cancelled

    instances = shoal.spawn(body, count=2, join=shoal.any_of(), rest="continue", chunk=1, engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    let_go.set()
    instances.drain(timeout=LIMIT)
    assert instances.values == {0: False, 1: False}


def test_cancelled_for_one_that_had_begun_means_it_raised_cancelled(held):
    """`cancelled` for one that had begun means killed, its coroutine cancelled, or it raised `shoal.Cancelled`."""
    body, instances = held(3, workers=3, on_failure="fail_fast", rest="continue", join=shoal.at_least(1))
    body.wait_begun(0, 1, 2)
    body.fail(0, shoal.Cancelled("enough"))
    settled(instances, 0)
    assert instances.status(0) == "cancelled"
    assert instances.gate.state == "waiting"
    assert 0 not in instances.errors
    assert issubclass(shoal.Cancelled, Exception)


def test_continue_lets_the_others_run_on_and_counts_them(held):
    """`"continue"`: they run on, are counted, change nothing that was decided."""
    body, instances = held(6, workers=2, join=shoal.at_least(2), rest="continue")
    body.release(0, 1)
    assert instances.wait(timeout=LIMIT) == "fired"
    body.fail(2)
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert instances.counts == shoal.Counts(0, 0, 5, 1, 0, 0)
    assert sorted(body.began) == list(range(6))
    assert instances.gate.state == "fired"


def test_first_runs_few_more_than_one(make_engine):
    """So "first" runs few more than one."""
    workers = 2
    engine = make_engine(workers=workers)
    for _ in range(20):
        ran = []
        instances = shoal.spawn(ran.append, count=100_000, join=shoal.any_of(), engine=engine)
        assert instances.wait(timeout=LIMIT) == "fired"
        instances.drain(timeout=LIMIT)
        assert 1 <= len(ran) <= 4 * workers
        assert instances.counts.completed == len(ran)


def test_a_chunk_never_holds_much_more_than_what_is_needed(make_engine):
    """A chunk never holds more than max(1, what is still needed / (2 x workers)) instances of a threshold join."""
    engine = make_engine(workers=2)
    shoal.map(abs, range(100_000), engine=engine)
    instances = shoal.spawn(abs, count=100_000, join=shoal.at_least(400), engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    instances.drain(timeout=LIMIT)
    assert 400 <= instances.counts.completed <= 800


def test_a_chunk_of_a_threshold_join_is_bounded_even_when_its_size_is_given(held):
    """A chunk never holds more than max(1, what is still needed / (2 x workers)) instances of a threshold join."""
    body, instances = held(100, workers=1, chunk=100, join=shoal.any_of())
    body.wait_begun(0)
    body.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"
    instances.drain(timeout=LIMIT)
    assert body.began == [0]


def test_a_fail_fast_failure_stops_a_chunk_at_the_next_body(held):
    """A decision or a fail-fast failure stops a chunk at the next body."""
    body, instances = held(50, workers=1, chunk=50)
    body.wait_begun(0)
    body.fail(3)
    body.release_all()
    assert instances.wait(timeout=LIMIT) == "failed"
    instances.drain(timeout=LIMIT)
    assert body.began == [0, 1, 2, 3]
    assert instances.counts == shoal.Counts(0, 0, 3, 1, 46, 0)


def test_fail_fast_is_the_default_of_all_of_and_fails_at_the_first_failure(held):
    """`"fail_fast"` (default of `all_of`): at the first failure."""
    for options in ({}, {"on_failure": "fail_fast"}):
        body, instances = held(6, workers=3, **options)
        body.wait_begun(0, 1, 2)
        body.fail(1)
        assert instances.wait(timeout=LIMIT) == "failed"
        assert instances.counts.failed == 1
        eventually(
            lambda instances=instances: instances.counts == shoal.Counts(0, 2, 0, 1, 3, 0), "cancelling of the rest"
        )


def test_fail_late_fails_when_all_are_terminal_and_partial_results_are_there(held):
    """`"fail_late"`: when all are terminal, if any failed; partial results are there."""
    body, instances = held(3, on_failure="fail_late")
    body.wait_begun(0, 1, 2)
    body.fail(1)
    body.release(0)
    settled(instances, 0, 1)
    assert instances.gate.state == "waiting"
    body.release(2)
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.values == {0: 0, 2: 20}
    assert list(instances.errors) == [1]


def test_fail_late_fires_if_none_failed(held):
    """`"fail_late"`: when all are terminal, if any failed."""
    body, instances = held(3, on_failure="fail_late")
    body.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"


def test_continue_is_the_default_of_the_other_joins(held):
    """`"continue"` (default of the others): never for a failure alone, only when the join can no longer be met."""
    body, instances = held(4, join=shoal.at_least(2))
    body.wait_begun(0, 1, 2, 3)
    body.fail(0)
    body.fail(1)
    settled(instances, 0, 1)
    assert instances.gate.state == "waiting"
    body.release(2, 3)
    assert instances.wait(timeout=LIMIT) == "fired"


def test_all_of_with_continue_fires_when_all_are_terminal(held):
    """`"continue"`: `all_of` then fires when all are terminal."""
    body, instances = held(3, on_failure="continue")
    body.wait_begun(0, 1, 2)
    for index in range(3):
        assert instances.gate.state == "waiting"
        body.fail(index)
        settled(instances, index)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.result() == []
    assert instances.counts.failed == 3


@pytest.mark.parametrize("n", [0, 1, 3])
def test_tolerate_n_fails_at_failure_n_plus_1(held, n):
    """`tolerate(n)`: at failure n + 1."""
    body, instances = held(n + 2, workers=n + 2, on_failure=shoal.tolerate(n))
    body.wait_begun(*range(n + 2))
    for index in range(n):
        body.fail(index)
    settled(instances, *range(n))
    assert instances.gate.state == "waiting"
    body.fail(n)
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.status(n + 1) == "running"


def test_tolerate_n_fires_with_n_failures(held):
    """`all_of()`: with failures within what `on_failure` allows."""
    body, instances = held(4, on_failure=shoal.tolerate(2))
    body.fail(0)
    body.fail(3)
    body.release(1, 2)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.result() == [10, 20]


def test_tolerate_a_fraction_is_judged_at_each_settling_after_m(held):
    """`tolerate(fraction=f, after=m)`: when, with at least m completed or failed, more than f of them failed;
    judged at each settling.
    """
    body, instances = held(8, workers=8, on_failure=shoal.tolerate(fraction=0.5, after=4))
    body.wait_begun(*range(8))
    for index in range(3):
        body.fail(index)
    settled(instances, 0, 1, 2)
    assert instances.gate.state == "waiting"
    body.release(3)
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.counts.failed == 3


def test_tolerate_exactly_the_fraction_is_tolerated(held):
    """More than f of them failed."""
    body, instances = held(8, workers=8, on_failure=shoal.tolerate(fraction=0.5, after=4))
    body.wait_begun(*range(8))
    body.release(0, 1)
    settled(instances, 0, 1)
    body.fail(2)
    body.fail(3)
    settled(instances, 0, 1, 2, 3)
    assert instances.gate.state == "waiting"
    body.fail(4)
    assert instances.wait(timeout=LIMIT) == "failed"


@pytest.mark.parametrize(
    "make", [lambda: shoal.tolerate(-1), lambda: shoal.tolerate(fraction=1.5), lambda: shoal.tolerate(fraction=-0.1)]
)
def test_a_tolerance_that_cannot_be_is_refused(engine, make):
    """Messages name the value that was wrong, the bound it broke, and what to do."""
    with pytest.raises(ValueError, match=r"1"):
        shoal.spawn(abs, count=3, on_failure=make(), engine=engine)
    assert len(engine.sets) == 0


@pytest.mark.parametrize("option", ["rest", "on_failure", "seal"])
def test_an_unknown_word_for_an_option_is_refused(engine, option):
    """Messages name the value that was wrong, the bound it broke, and what to do."""
    with pytest.raises((ValueError, TypeError), match="sideways"):
        shoal.spawn(abs, count=3, engine=engine, **{option: "sideways"})
    assert len(engine.sets) == 0


def test_a_threshold_join_can_fail_fast(held):
    """`"fail_fast"`: at the first failure."""
    body, instances = held(4, join=shoal.at_least(2), on_failure="fail_fast")
    body.wait_begun(0, 1, 2, 3)
    body.fail(2)
    assert instances.wait(timeout=LIMIT) == "failed"


@pytest.mark.parametrize(
    ("join", "needed"),
    [
        (shoal.at_least(40), 40),
        (shoal.at_least(40, or_all=True), 40),
        (shoal.at_least(fraction=0.04), 40),
        (shoal.weighted([10] * 1000, at_least=400), 40),
        (shoal.at_least(3), 3),
        (shoal.any_of(), 1),
    ],
    ids=["40", "40 or_all", "0.04 of 1000", "400 of weights of 10", "3", "any_of"],
)
@pytest.mark.parametrize("rest", ["cancel", "continue"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_chunk_holds_no_more_than_what_is_needed_over_twice_the_workers(held, join, needed, rest, workers):
    """A chunk never holds more than max(1, what is still needed / (2 x workers)) instances of a threshold join."""
    body, instances = held(1000, workers=workers, chunk=1000, join=join, rest=rest)
    eventually(lambda: len(body.began) == workers, "beginning of a body for each worker")
    instances.cancel()
    claimed = 1000 - instances.counts.cancelled
    assert workers <= claimed <= workers * max(1, needed // (2 * workers))
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert len(body.began) == workers


def test_a_decision_stops_the_chunks_of_others_at_the_next_body(held):
    """A decision stops a chunk at the next body."""
    body, instances = held(100, workers=2, chunk=100, join=shoal.at_least(8))
    eventually(lambda: len(body.began) == 2)
    assert 0 in body.began
    body.release(*range(2, 100))
    assert instances.wait(timeout=LIMIT) == "fired"
    assert 1 not in body.began
    body.release(0)
    instances.drain(timeout=LIMIT)
    assert 1 not in body.began
    assert instances.status(1) == "cancelled"
    assert instances.status(0) == "completed"


@pytest.mark.parametrize("how", ["cancel", "complete", "case.cancel"])
def test_an_ending_from_outside_stops_a_chunk_at_the_next_body(held, how):
    """A decision stops a chunk at the next body."""
    body, instances = held(64, workers=1, chunk=64)
    body.wait_begun(0)
    if how == "case.cancel":
        instances.case.cancel()
    else:
        getattr(instances, how)()
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert body.began == [0]
    assert instances.counts == shoal.Counts(0, 0, 1, 0, 63, 0)


def test_a_body_that_was_asked_to_stop_and_raises_is_failed(held):
    """A body that has begun is asked to stop and keeps its own outcome if it finishes."""
    body, instances = held(4, workers=3, join=shoal.any_of())
    body.wait_begun(0, 1, 2)
    body.release(0)
    assert instances.wait(timeout=LIMIT) == "fired"
    body.fail(1)
    body.fail(2, shoal.Cancelled())
    instances.drain(timeout=LIMIT)
    assert [str(instances.status(i)) for i in range(4)] == ["completed", "failed", "cancelled", "cancelled"]
    assert list(instances.errors) == [1]
    assert instances.gate.state == "fired"


@pytest.mark.parametrize(
    "make",
    [
        lambda: shoal.weighted([1, 1, 1], at_least=1),
        lambda: shoal.weighted([1, 2, 3, 4], at_least=11),
        lambda: shoal.weighted([1, 1, 1, 1, 100], at_least=50),
        lambda: shoal.weighted([0, 0, 0, 0], at_least=1),
        lambda: shoal.weighted([1, 1, 1, 1], at_least=0),
        lambda: shoal.weighted([1, 1, 1, 1], at_least=-1),
        lambda: shoal.weighted([1.0, 1, 1, 1], at_least=1),
        lambda: shoal.weighted([True, 1, 1, 1], at_least=1),
        lambda: shoal.weighted([2**64, 1, 1, 1], at_least=1),
        lambda: shoal.weighted([2**63] * 4, at_least=1),
        lambda: shoal.at_least(2**32),
        lambda: shoal.at_least(2**64),
        lambda: shoal.at_least(-(2**70)),
    ],
    ids=[
        "3 weights of 4",
        "11 of 10",
        "50 with a weight of nobody",
        "1 of 0",
        "0",
        "-1",
        "float",
        "bool",
        "2**64",
        "sum past 2**64",
        "n 2**32",
        "n 2**64",
        "n -2**70",
    ],
)
def test_weights_and_numbers_that_can_never_be_met_are_a_joinerror_before_anything_is_created(engine, make):
    """n < 1, negative weights (integers >= 0), or n above the count of a set sealed at creation: `JoinError` before
    anything is created.
    """
    with pytest.raises(shoal.JoinError):
        shoal.spawn(abs, count=4, join=make(), engine=engine)
    assert len(engine.sets) == 0
    assert engine.metrics()["instances"] == 0


def test_or_all_of_more_than_there_are_fires_when_all_are_terminal(held):
    """`or_all=True`: or all terminal (YAWL's threshold)."""
    body, instances = held(2, join=shoal.at_least(5, or_all=True))
    body.release(0)
    settled(instances, 0)
    assert instances.gate.state == "waiting"
    body.release(1)
    assert instances.wait(timeout=LIMIT) == "fired"


def test_a_fraction_that_is_not_met_any_more_is_found_at_the_seal(held):
    """On an open set the last is found at the seal: the gate fails at once."""
    body, instances = held(
        items=range(4), workers=4, seal="manual", join=shoal.at_least(fraction=0.75), rest="continue"
    )
    body.wait_begun(0, 1, 2, 3)
    body.fail(0)
    body.fail(1)
    settled(instances, 0, 1)
    assert instances.gate.state == "waiting"
    instances.seal()
    assert instances.gate.state == "failed"
    assert instances.counts.running == 2


def test_a_fraction_that_is_met_already_fires_at_the_seal(held):
    """`at_least(fraction=f)`: ceil(f x final count) completed."""
    body, instances = held(items=range(4), seal="manual", join=shoal.at_least(fraction=0.5), rest="continue")
    body.wait_begun(0, 1, 2, 3)
    body.release(0, 1)
    settled(instances, 0, 1)
    assert instances.gate.state == "waiting"
    instances.seal()
    assert instances.gate.state == "fired"
    assert instances.counts.running == 2


def test_weights_of_an_open_set_count_as_its_instances_come(held):
    """`weighted(weights, at_least=w)`: the weights of the completed reach w."""
    body, instances = held(items=range(1), seal="manual", join=shoal.weighted([1, 1, 5], at_least=6), rest="continue")
    instances.add(1, 2)
    body.wait_begun(0, 1, 2)
    body.release(0)
    settled(instances, 0)
    with pytest.raises(shoal.JoinError):
        instances.add(3)
    assert len(instances) == 3
    assert instances.gate.state == "waiting"
    body.release(2)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert instances.status(1) == "running"


def test_weights_that_are_too_few_are_found_at_the_seal(held):
    """On an open set the last is found at the seal: the gate fails at once."""
    body, instances = held(items=range(2), seal="manual", join=shoal.weighted([1, 1, 5], at_least=6), rest="continue")
    body.wait_begun(0, 1)
    assert instances.gate.state == "waiting"
    instances.seal()
    assert instances.gate.state == "failed"
    assert instances.counts.running == 2


@pytest.mark.parametrize("seal", ["manual", "when_idle"])
def test_a_tolerance_is_judged_on_an_open_set_too(held, seal):
    """`tolerate(fraction=f, after=m)`: judged at each settling."""
    tolerance = shoal.tolerate(fraction=0.5, after=4)
    body, instances = held(items=range(5), workers=5, seal=seal, on_failure=tolerance, rest="continue")
    body.wait_begun(0, 1, 2, 3, 4)
    body.release(0)
    for index in (1, 2):
        body.fail(index)
    settled(instances, 0, 1, 2)
    assert (instances.gate.state, instances.state) == ("waiting", "active")
    body.fail(3)
    assert instances.wait(timeout=LIMIT) == "failed"
    assert instances.counts.running == 1
    with pytest.raises(shoal.SealedError):
        instances.add(5)


def test_what_is_cancelled_is_no_part_of_the_tolerated_share(held):
    """When, with at least m completed or failed, more than f of them failed."""
    body, instances = held(4, workers=4, on_failure=shoal.tolerate(fraction=0.5, after=2))
    body.wait_begun(0, 1, 2, 3)
    body.fail(0)
    body.fail(1, shoal.Cancelled())
    settled(instances, 0, 1)
    assert instances.gate.state == "waiting"
    body.release(2)
    settled(instances, 2)
    assert instances.gate.state == "waiting"
    body.fail(3)
    assert instances.wait(timeout=LIMIT) == "failed"

"""The sentences of semantics.md under "Waiting". Signals are in test_processes.py."""

import threading
import time

import pytest
from steering import LIMIT, eventually, in_thread, settled

import shoal


@pytest.mark.parametrize("outcome", ["fired", "failed", "cancelled"])
def test_wait_gives_the_gates_state_and_never_raises_for_an_outcome(held, outcome):
    """`wait(timeout=None)` gives the gate's state; it never raises for an outcome."""
    body, instances = held(1)
    body.wait_begun(0)
    if outcome == "fired":
        body.release(0)
    elif outcome == "failed":
        body.fail(0)
    else:
        instances.cancel()
    state = instances.wait(timeout=LIMIT)
    assert state == outcome
    assert isinstance(state, shoal.GateState)
    assert instances.wait() == outcome


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_wait_gives_waiting_if_time_ran_out(held, timeout):
    """`"waiting"` if time ran out."""
    body, instances = held(2)
    body.wait_begun(0, 1)
    assert instances.wait(timeout=timeout) == "waiting"
    assert instances.gate.wait(timeout=timeout) == "waiting"
    body.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"


def test_result_raises(held):
    """`result(timeout=None)` raises."""
    body, instances = held(2)
    body.wait_begun(0, 1)
    with pytest.raises(TimeoutError):
        instances.result(timeout=0.01)
    assert instances.gate.state == "waiting"
    body.fail(0)
    with pytest.raises(shoal.SetFailed):
        instances.result(timeout=LIMIT)


def test_a_result_that_ran_out_of_time_leaves_the_set_as_it_is(held):
    """`wait` and `result` look; only Ctrl-C, a cancel or the join end a set."""
    body, instances = held(3, workers=2)
    body.wait_begun(0, 1)
    with pytest.raises(TimeoutError):
        instances.result(timeout=0)
    assert instances.counts == shoal.Counts(1, 2, 0, 0, 0, 0)
    body.release_all()
    assert instances.result(timeout=LIMIT) == [0, 10, 20]


def test_drain_waits_until_none_is_pending_or_running(held):
    """`drain(timeout=None)` waits until none is pending or running."""
    body, instances = held(4, workers=2, join=shoal.any_of(), rest="continue")
    body.wait_begun(0, 1)
    body.release(0)
    assert instances.wait(timeout=LIMIT) == "fired"
    body.wait_begun(2)
    assert instances.drained is False
    instances.drain(timeout=0.01)
    assert instances.drained is False

    def drain():
        instances.drain()
        return instances.counts

    draining = in_thread(drain)
    draining.join(0.05)
    assert draining.is_alive()
    body.release_all()
    assert draining.join_result() == shoal.Counts(0, 0, 4, 0, 0, 0)
    assert instances.drained is True


def test_a_thread_that_waits_helps(held):
    """A thread that waits helps."""
    blocker, _ = held(1, workers=1)
    blocker.wait_begun(0)
    runners = set()

    def body(index):
        runners.add(threading.get_ident())
        return index

    def spawn_and_wait():
        instances = shoal.spawn(body, count=100, engine=held.engine)
        return instances.wait(), threading.get_ident()

    state, waiter = in_thread(spawn_and_wait).join_result()
    assert state == "fired"
    assert runners == {waiter}


def test_the_main_thread_helps_only_with_bodies_known_to_be_short(held):
    """But the main thread only with bodies known to take below 1 ms."""
    assert threading.current_thread() is threading.main_thread()
    blocker, _ = held(1, workers=1)
    blocker.wait_begun(0)
    runners = set()

    def never_seen_before(index):
        runners.add(threading.get_ident())

    instances = shoal.spawn(never_seen_before, count=3, engine=held.engine)
    assert instances.wait(timeout=0.1) == "waiting"
    assert threading.get_ident() not in runners
    blocker.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"


def test_all_threads_that_wait_are_woken(held):
    """`wait(timeout=None)` gives the gate's state."""
    body, instances = held(1)
    body.wait_begun(0)
    waiters = [in_thread(call) for call in (instances.wait, instances.gate.wait, instances.drain, instances.result) * 4]
    assert all(w.is_alive() for w in waiters)
    body.release(0)
    results = [w.join_result() for w in waiters]
    assert results[0::4] == ["fired"] * 4
    assert results[1::4] == ["fired"] * 4
    assert results[3::4] == [[0]] * 4


def test_a_waiter_is_woken_by_a_cancel_from_another_thread(held):
    """`wait(timeout=None)` gives the gate's state."""
    body, instances = held(1)
    body.wait_begun(0)
    waiting = in_thread(instances.wait)
    instances.cancel()
    assert waiting.join_result() == "cancelled"


def test_waiting_for_a_set_whose_items_are_added_by_another_thread_ends(engine):
    """A thread that waits helps."""
    instances = shoal.spawn(abs, [], seal="manual", engine=engine)
    waiting = in_thread(instances.wait)
    for i in range(300):
        instances.add(-i)
    instances.seal()
    assert waiting.join_result() == "fired"
    eventually(lambda: instances.drained)
    assert instances.result() == list(range(300))


@pytest.mark.parametrize("where", ["main thread", "another thread"])
def test_bodies_of_a_map_that_wait_for_each_other_meet(engine, where):
    """Helping must not hang: a caller that runs a set alone at first is not left alone with bodies that wait."""
    meeting = threading.Event()
    both = threading.Barrier(2)

    def body(index):
        if meeting.is_set():
            both.wait(LIMIT)
        return index

    def call():
        return shoal.map(body, range(2), chunk=1, engine=engine)

    for _ in range(50):
        assert call() == [0, 1]
    meeting.set()
    assert (call() if where == "main thread" else in_thread(call).join_result()) == [0, 1]


def test_the_main_thread_helps_with_bodies_known_to_be_short(make_engine, steered):
    """The main thread only with bodies known to take below 1 ms."""
    assert threading.current_thread() is threading.main_thread()
    runners = set()

    def short(index):
        runners.add(threading.get_ident())

    engine = make_engine(workers=1)
    shoal.map(short, range(1000), engine=engine)
    blocker = steered()
    shoal.spawn(blocker, count=1, engine=engine)
    blocker.wait_begun(0)
    runners.clear()
    instances = shoal.spawn(short, count=100, engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    assert runners == {threading.get_ident()}


def test_the_main_thread_does_not_help_with_bodies_known_to_be_long(make_engine, steered):
    """The main thread only with bodies known to take below 1 ms."""
    runners = set()

    def long(index):
        runners.add(threading.get_ident())
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            pass

    engine = make_engine(workers=1)
    in_thread(lambda: shoal.map(long, range(5), engine=engine)).join_result()
    blocker = steered()
    blocked = shoal.spawn(blocker, count=1, engine=engine)
    blocker.wait_begun(0)
    runners.clear()
    instances = shoal.spawn(long, count=3, engine=engine)
    assert instances.wait(timeout=0.1) == "waiting"
    assert runners == set()
    blocker.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"
    assert blocked.wait(timeout=LIMIT) == "fired"


@pytest.mark.parametrize(
    ("timeout", "known"), [(None, False), (None, True), (LIMIT, True)], ids=["new body", "short body", "with timeout"]
)
def test_a_thread_that_drains_helps(make_engine, steered, timeout, known):
    """A thread that waits helps."""
    engine = make_engine(workers=1)
    runners = set()

    def body(index):
        runners.add(threading.get_ident())

    def spawn_and_drain():
        instances = shoal.spawn(body, count=100, engine=engine)
        return instances.drain(timeout), threading.get_ident()

    if known:
        in_thread(lambda: shoal.map(body, range(1000), engine=engine)).join_result()
    blocker = steered()
    shoal.spawn(blocker, count=1, engine=engine)
    blocker.wait_begun(0)
    runners.clear()
    drained, waiter = in_thread(spawn_and_drain).join_result()
    assert drained is True
    assert runners == {waiter}


@pytest.mark.parametrize("known", [False, True], ids=["a new body", "a body known to be short"])
@pytest.mark.parametrize(
    ("where", "chunk"), [("gate", None), ("gate", 1), ("barrier", 1)], ids=["gate", "gate chunk=1", "barrier chunk=1"]
)
def test_two_instances_that_meet_at_a_gate_meet(make_engine, where, chunk, known):
    """Two instances that meet at a gate meet. Nobody waits for the set here, so nobody but the workers can help."""
    engine = make_engine(workers=2)
    gate, barrier = shoal.Gate(target=2, engine=engine), threading.Barrier(2)
    meeting = threading.Event()

    def body(index):
        if meeting.is_set():
            if where == "gate":
                gate.arrive()
                assert gate.wait(timeout=2 * LIMIT) == "fired"
            else:
                barrier.wait(2 * LIMIT)
        return index

    if known:
        for _ in range(20):
            assert shoal.spawn(body, count=2, chunk=chunk, engine=engine).result(timeout=LIMIT) == [0, 1]
    meeting.set()
    instances = shoal.spawn(body, count=2, chunk=chunk, engine=engine)
    try:
        eventually(lambda: instances.drained, "meeting")
    finally:
        gate.cancel()
        barrier.abort()
    assert instances.result(timeout=LIMIT) == [0, 1]


def test_an_added_instance_is_begun_by_an_idle_worker(held):
    """`add(*items)` creates more; nothing waits for ever: what is pending begins while a worker has nothing to do."""
    body, instances = held(items=[0], workers=3, seal="manual")
    body.release(*range(20))
    for done in range(20):
        settled(instances, done)
        instances.add(done + 1)
    body.wait_begun(20)
    instances.add(21, 22)
    body.wait_begun(21, 22)
    body.release_all()
    instances.seal()
    assert instances.wait(timeout=LIMIT) == "fired"

"""What would break a program after a year: leaks, lost thread state, deep stacks, callbacks that nobody wants any more,
calls from places where they cannot be served.
"""

import asyncio
import collections.abc
import functools
import gc
import itertools
import os
import pickle
import signal
import sys
import threading
import types
import weakref

import pytest
from steering import LIMIT, eventually, in_thread, run_script

import shoal

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")


# What the collector has to find


def test_a_set_that_its_own_body_refers_to_is_collected(engine):
    class Owner:
        def __init__(self):
            self.set = shoal.spawn(self.work, [1, 2, 3], engine=engine)

        def work(self, item):
            return item

    owner = Owner()
    assert owner.set.result(timeout=LIMIT) == [1, 2, 3]
    gone = weakref.ref(owner)
    del owner
    # A worker may hold the set for a moment after its last instance.
    eventually(lambda: gc.collect() >= 0 and gone() is None, "the owner being collected")


def test_a_set_that_one_of_its_values_items_or_errors_refers_to_is_collected(engine):
    class Holder(Exception):
        pass

    def body(holder):
        if holder.fails:
            raise holder
        return holder

    held = []
    for fails in (False, True):
        holder = Holder()
        holder.fails = fails
        holder.set = shoal.spawn(body, [holder], engine=engine)
        assert holder.set.wait(timeout=LIMIT) == ("failed" if fails else "fired")
        held.append(weakref.ref(holder))
    del holder
    eventually(lambda: gc.collect() >= 0 and not any(ref() for ref in held), "the holders being collected")


def test_a_running_set_is_not_collected(held):
    body, instances = held(2)
    body.wait_begun(0, 1)
    gc.collect()
    body.release_all()
    assert instances.result(timeout=LIMIT) == [0, 10]


def test_a_gate_that_never_opens_does_not_keep_itself_by_its_callbacks(engine):
    class Token:
        def __call__(self, gate):
            raise AssertionError("it never opens")

    token = Token()
    gone = weakref.ref(token)
    gate = shoal.Gate(target=2, engine=engine)
    gate.on_fired(token)
    del token, gate
    gc.collect()
    assert gone() is None


def alive(kind):
    gc.collect()
    return sum(type(known) is kind for known in gc.get_objects())


class Owner:
    """Has a gate that never opens, and is what it would call."""

    def __init__(self, engine):
        self.gate = shoal.Gate(target=2, engine=engine)
        self.gate.on_fired(self.fired)

    def fired(self, gate):
        raise AssertionError("it never opens")


def gate_of_a_closure(engine):
    gate = shoal.Gate(target=2, engine=engine)
    gate.on_fired(lambda _: gate)
    gate.arrive()


def gate_of_its_own_method(engine):
    gate = shoal.Gate(target=2, engine=engine)
    gate.on_fired(gate.arrive)


@pytest.mark.parametrize("make", [Owner, gate_of_a_closure, gate_of_its_own_method])
def test_a_gate_that_its_own_callback_refers_to_is_collected(engine, make):
    before = alive(shoal.Gate)
    make(engine)
    assert alive(shoal.Gate) <= before


def test_a_callback_that_is_taken_back_may_use_its_gate_when_it_goes(engine):
    class Callback:
        def __call__(self):
            raise AssertionError("it was taken back")

        def __del__(self):
            gate.on_fired(print)

    gate = shoal.Gate(target=2, engine=engine)
    number = gate._on_decided(Callback())
    in_thread(lambda: gate._forget(number)).join_result()


def test_a_gate_that_somebody_still_has_keeps_its_callbacks(engine):
    called = threading.Event()
    gate = shoal.Gate(target=1, engine=engine)
    gate.on_fired(lambda _: called.set())
    gc.collect()
    gate.arrive()
    assert called.wait(LIMIT)


VALUES = {
    "its handle": (shoal.InstanceSet, lambda: shoal.current().set),
    "its gate": (shoal.Gate, lambda: shoal.current().set.gate),
    "its instance": (shoal.Current, lambda: shoal.current()),
    "its outcomes": (shoal.Outcomes, lambda: iter(shoal.current().set)),
}


@pytest.mark.parametrize("value", VALUES)
def test_a_set_that_only_its_own_value_refers_to_is_collected(engine, value):
    kind, make = VALUES[value]
    before = alive(kind)
    assert shoal.spawn(lambda _: make(), [1], engine=engine).wait(timeout=LIMIT) == "fired"
    # A worker may hold the set for a moment after its last instance.
    eventually(lambda: alive(kind) <= before, "the set being collected")


def test_a_set_that_only_what_was_added_to_it_refers_to_is_collected(engine):
    before = alive(shoal.InstanceSet)
    instances = shoal.spawn(repr, seal="manual", engine=engine)
    instances.add(instances)
    instances.seal()
    assert instances.wait(timeout=LIMIT) == "fired"
    del instances
    eventually(lambda: alive(shoal.InstanceSet) <= before, "the set being collected")


def test_the_values_of_a_set_that_somebody_still_has_are_not_collected(engine):
    instances = shoal.spawn(lambda _: shoal.current().set, [1], engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    gc.collect()
    assert [value.id for value in instances.result()] == [instances.id]


def test_a_gate_that_opens_calls_back_also_if_nobody_else_has_it(engine):
    called = threading.Event()
    names = []

    def fired(gate):
        names.append((gate.arrived, gate.target))
        called.set()

    gate = shoal.Gate(target=1, engine=engine)
    gate.on_fired(fired)
    gate.arrive()
    del gate
    assert called.wait(LIMIT)
    assert names == [(1, 1)]


def test_a_bound_builtin_is_not_kept_by_what_is_known_of_its_cost(engine):
    class Sink(list):
        pass

    sink = Sink()
    shoal.map(sink.append, range(10), engine=engine)
    assert sorted(sink) == list(range(10))
    gone = weakref.ref(sink)
    del sink
    eventually(lambda: gone() is None, "the list being freed")


def test_an_open_set_without_a_handle_is_sealed(engine):
    case = engine.case("abandoned")
    case.spawn(abs, [-1], seal="manual")
    assert case.wait(timeout=LIMIT)
    # A worker may hold the set for a moment after its last instance.
    eventually(lambda: [str(instances.state) for instances in case.sets] == ["fired"], "the set being sealed")


# Threads


def test_what_a_body_puts_into_a_threading_local_is_there_for_the_next_set(make_engine):
    engine = make_engine(workers=1)
    local = threading.local()

    def put(index):
        local.value = "kept"
        return threading.get_ident()

    def look(index):
        return getattr(local, "value", None), threading.get_ident()

    (worker,) = in_thread(lambda: shoal.spawn(put, count=1, engine=engine).result(timeout=LIMIT)).join_result()

    def seen():
        ((value, thread),) = shoal.spawn(look, count=1, engine=engine).result(timeout=LIMIT)
        return thread == worker and value == "kept"

    eventually(seen, "the worker seeing its own value")


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_bodies_on_workers_are_seen_by_the_hooks_of_threading(make_engine, kind):
    seen = set()

    def hook(frame, event, argument):
        if frame.f_code is body.__code__:
            seen.add(threading.get_ident())

    def body(index):
        return threading.get_ident()

    get, put = getattr(threading, f"get{kind}"), getattr(threading, f"set{kind}")
    before = get()
    put(hook)
    try:
        instances = shoal.spawn(body, count=2, engine=make_engine(workers=1))
        threads = in_thread(lambda: instances.result(timeout=LIMIT)).join_result()
    finally:
        put(before)
    assert set(threads) == seen


def test_setup_runs_once_in_each_thread_and_what_it_makes_lasts(make_engine):
    engine = make_engine(workers=2)
    local = threading.local()
    made = []

    def connect():
        local.connection = object()
        made.append(threading.get_ident())

    with shoal.spawn(lambda item: local.connection and item, [1, 2], seal="manual", setup=connect, engine=engine) as it:
        for item in range(3, 50):
            assert it.drain(timeout=LIMIT)
            it.add(item)
    assert it.result(timeout=LIMIT) == list(range(1, 50))
    assert len(made) == len(set(made))


def test_thread_state_goes_with_the_threads_of_a_closed_engine():
    class Value:
        pass

    local = threading.local()
    values = []

    def body(index):
        local.value = Value()
        values.append(weakref.ref(local.value))

    engine = shoal.Engine(workers=2)
    shoal.spawn(body, count=4, engine=engine).result(timeout=LIMIT)
    engine.close()
    eventually(lambda: len(values) == 4 and not any(value() for value in values), "the workers' values going")


def test_deep_recursion_in_a_body_is_an_exception():
    """On a worker too: `RecursionError`, not a crash."""
    run_script("""
        import shoal
        def deep(n):
            return sorted([n], key=deep)
        engine = shoal.Engine(workers=1)
        instances = shoal.spawn(deep, [1], engine=engine)
        instances.wait(timeout=40)
        assert isinstance(instances.errors[0], RecursionError), instances.errors
        try:
            shoal.map(deep, [1], engine=engine)
        except RecursionError:
            pass
        else:
            raise AssertionError("map did not raise it")
        assert shoal.map(abs, [-1], engine=engine) == [1]
    """)


def test_a_subinterpreter_is_told_that_it_cannot_have_shoal():
    interpreters = pytest.importorskip("_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters")
    run_script(f"""
        import shoal, {interpreters.__name__} as interpreters
        other = interpreters.create()
        code = "try:\\n import shoal\\nexcept ImportError as error:\\n assert 'interpreter' in str(error), error"
        code += "\\nelse:\\n raise AssertionError('imported')"
        failure = interpreters.run_string(other, code)
        assert failure is None, failure
        interpreters.destroy(other)
        assert shoal.map(abs, [-1]) == [1]
    """)


@pytest.mark.parametrize("where", ["body", "continuation"])
def test_close_from_inside_raises_and_the_engine_goes_on(make_engine, where):
    engine = make_engine(workers=2)
    raised, called = [], threading.Event()

    def close(_):
        try:
            engine.close()
        except RuntimeError as error:
            raised.append(str(error))
        called.set()

    instances = shoal.spawn(close if where == "body" else abs, [1], engine=engine)
    if where == "continuation":
        instances.on_decided(close)
    assert called.wait(LIMIT)
    assert "from outside" in raised[0]
    assert shoal.map(abs, [-3], engine=engine) == [3]


# Waiting


@pytest.mark.parametrize("timeout", [1e19, 1e18, sys.float_info.max, float("inf")])
def test_a_timeout_past_the_end_of_time_is_for_ever_or_an_error_that_says_so(engine, timeout):
    calls = [
        lambda: shoal.spawn(abs, [1], engine=engine).wait(timeout),
        lambda: shoal.spawn(abs, [1], engine=engine).drain(timeout),
        lambda: shoal.spawn(abs, [1], engine=engine).result(timeout),
        lambda: engine.case().spawn(abs, [1]).case.wait(timeout),
        lambda: (gate := shoal.Gate(1, engine=engine)).arrive() and gate.wait(timeout),
    ]
    for call in calls:
        if timeout == sys.float_info.max:
            with pytest.raises(OverflowError, match="too long"):
                call()
        else:
            assert call()


def test_async_for_holds_no_thread_while_it_waits(held):
    """The default executor of asyncio has few threads: a hundred loops over sets that have nothing yet need none."""

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(_NoExecutor())
        body, instances = held(3)
        body.wait_begun(0, 1, 2)
        seen = [asyncio.ensure_future(_indices(instances)) for _ in range(100)]
        await asyncio.sleep(0)
        body.release(2)
        body.release_all()
        return await asyncio.wait_for(asyncio.gather(*seen), LIMIT)

    assert all(sorted(indices) == [0, 1, 2] for indices in asyncio.run(main()))


class _NoExecutor(__import__("concurrent.futures").futures.ThreadPoolExecutor):
    def submit(self, *call):
        raise AssertionError("a thread was asked for")


async def _indices(instances):
    return [outcome.index async for outcome in instances]


def test_async_for_yields_each_outcome_once_however_they_come(engine):
    async def main():
        instances = shoal.spawn(abs, range(20_000), engine=engine)
        return await _indices(instances), await _indices(instances)

    first, again = asyncio.run(main())
    assert sorted(first) == list(range(20_000))
    assert first == again


def test_async_for_over_what_is_all_there_lets_other_tasks_and_timeouts_run(engine):
    async def main():
        instances = shoal.spawn(shoal.kernels.noop, count=3_000_000, engine=engine)
        instances.wait()
        seen = turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def read():
            nonlocal seen
            async for _ in instances:
                seen += 1

        task = asyncio.create_task(other())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(), 0.05)
        task.cancel()
        assert 0 < seen < len(instances)
        assert turns > 1

    asyncio.run(main())


def test_an_async_for_that_is_cancelled_leaves_the_set_and_no_callback_behind(held):
    async def main():
        body, instances = held(1)
        body.wait_begun(0)
        before = _callbacks()
        waiting = asyncio.ensure_future(_indices(instances))
        await asyncio.sleep(0)
        assert _callbacks() == before + 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert _callbacks() == before
        body.release_all()
        return await _indices(instances)

    assert asyncio.run(main()) == [0]


@pytest.mark.parametrize("of", ["gate", "gate of a set"])
def test_an_await_that_ran_out_of_time_leaves_no_callback_behind(held, engine, of):
    async def main():
        body, instances = held(1)
        gate = shoal.Gate(target=1, engine=engine) if of == "gate" else instances.gate
        before = _callbacks()
        for _ in range(50):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_state(gate), 0.0001)
        gc.collect()
        assert _callbacks() <= before
        body.release_all()

    asyncio.run(main())


async def _state(gate):
    return await gate


def _callbacks():
    """How many functions that ring a loop's bell are alive."""
    gc.collect()
    functions = [thing for thing in gc.get_objects() if type(thing) is types.FunctionType]
    return sum(function.__qualname__ == "_bell.<locals>.call" for function in functions)


# Calls that go wrong after the set was made


@pytest.mark.parametrize("call", [shoal.spawn, shoal.map], ids=["spawn", "map"])
def test_a_stderr_that_cannot_be_asked_does_not_stop_progress(engine, monkeypatch, call):
    monkeypatch.setattr(sys, "stderr", object())
    result = call(abs, [-1, -2], engine=engine, progress=True)
    assert (result if call is shoal.map else result.result(timeout=LIMIT)) == [1, 2]


def test_a_spawn_that_gets_no_feeder_leaves_no_set_behind(engine, monkeypatch):
    def no_thread(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError, match="new thread"):
        shoal.spawn(abs, iter([1]), engine=engine)
    monkeypatch.undo()
    assert [str(instances.state) for instances in engine.sets] == ["cancelled"]


def test_an_items_object_that_shrank_gives_outcomes_without_items(engine):
    class Items(collections.abc.Sequence):
        size = 3

        def __len__(self):
            return self.size

        def __getitem__(self, index):
            if index >= self.size:
                raise IndexError(index)
            return index

    items = Items()
    instances = shoal.spawn(abs, items, engine=engine)
    assert instances.result(timeout=LIMIT) == [0, 1, 2]
    items.size = 1
    assert sorted((outcome.index, outcome.item) for outcome in instances if outcome.index == 0) == [(0, 0)]
    assert [outcome.item for outcome in instances if outcome.index] == [None, None]


def test_a_handle_taken_inside_a_map_keeps_its_values(engine):
    handles = []

    def body(item):
        if not handles:
            handles.append(shoal.current().set)
        return item * 2

    assert shoal.map(body, range(5), engine=engine) == [0, 2, 4, 6, 8]
    assert handles[0].values == {0: 0, 1: 2, 2: 4, 3: 6, 4: 8}


@pytest.mark.parametrize(
    "body",
    [
        functools.partial(asyncio.sleep, 0),
        type("Async", (), {"__call__": asyncio.sleep})(),
        type("Async", (), {"run": asyncio.sleep})().run,
        asyncio.sleep,
    ],
    ids=["partial", "__call__", "method", "function"],
)
def test_a_coroutine_function_in_any_wrapping_is_refused(engine, body):
    with pytest.raises(TypeError, match="coroutine function"):
        shoal.map(body, [1], engine=engine)


def test_when_idle_without_anything_to_start_from_is_refused(engine):
    with pytest.raises(TypeError, match="items to start from"):
        shoal.spawn(abs, seal="when_idle", engine=engine)


def test_a_name_that_no_thread_can_have_is_refused():
    with pytest.raises(ValueError, match="null character"):
        shoal.Engine(name="a\0b")


def test_more_items_than_a_length_can_say_are_past_the_limit(engine):
    with pytest.raises(shoal.LimitError):
        shoal.map(abs, range(2**70), engine=engine)


def test_an_exception_that_takes_no_note_is_raised_as_it_is(engine):
    class Stiff(Exception):
        def add_note(self, note):
            raise OSError("no notes")

    def body(item):
        raise Stiff(item)

    with pytest.raises(Stiff):
        shoal.map(body, [1], engine=engine)


@pytest.mark.parametrize("kind", [shoal.SetFailed, shoal.SetCancelled, shoal.SetTimedOut])
def test_the_errors_of_a_set_pickle_with_all_they_say(kind):
    error = kind("set 1 is over", shoal.Counts(1, 0, 2, 1, 0, 0), {1: ValueError("x")}, {0: 5, 2: 6})
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "set 1 is over"
    assert (copy.counts, copy.values, repr(copy.errors)) == (error.counts, error.values, repr(error.errors))


def test_a_file_that_is_fed_to_a_set_is_not_closed_by_it(engine, tmp_path):
    path = tmp_path / "lines"
    path.write_text("1\n2\n3\n")
    with path.open() as lines:
        assert shoal.spawn(int, lines, engine=engine).result(timeout=LIMIT) == [1, 2, 3]
        assert not lines.closed


def test_a_generator_that_feeds_a_set_which_is_cancelled_is_closed(engine):
    closed = threading.Event()

    def numbers():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    instances = shoal.spawn(abs, numbers(), engine=engine)
    instances.cancel()
    assert closed.wait(LIMIT)


# Forks and signals

FORKED = [
    "handle.values",
    "handle.errors",
    "handle.summary()",
    "handle.result()",
    "handle.on_decided(print)",
    "list(handle)",
    "gate.arrive()",
    "gate.cancel()",
    "gate.on_fired(print)",
    "engine.ticks()",
    "engine.metrics()",
    "engine.sets",
    "case.state",
]


@needs_fork
def test_whatever_is_asked_of_a_parents_engine_raises_and_never_hangs():
    run_script(f"""
        import os, threading, shoal
        engine = shoal.Engine(workers=2)
        case = engine.case("c")
        gate = shoal.Gate(3, engine=engine)
        go = threading.Event()
        handle = case.spawn(lambda index: go.wait(), count=4)
        for expression in {FORKED!r}:
            pid = os.fork()
            if pid == 0:
                for thing in (engine, case, gate, handle, engine.cases):
                    repr(thing)
                try:
                    eval(expression)
                except shoal.ForkedEngine:
                    os._exit(0)
                os._exit(3)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, expression
        go.set()
        assert handle.wait(timeout=20) == "fired"
    """)


@needs_fork
def test_a_body_that_forks_has_the_fresh_default_engine_in_its_child():
    run_script(
        """
        import os, shoal
        def body(index):
            pid = os.fork()
            if pid == 0:
                os._exit(sum(shoal.map(abs, [-1, -2])))
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert shoal.map(body, range(2)) == [3, 3]
        with shoal.Engine(workers=1) as engine:
            assert shoal.spawn(body, range(2), engine=engine).result() == [3, 3]
    """,
        stacks=False,
    )


HANDLERS = {
    "function": "handler = raises",
    "partial": "handler = functools.partial(raises_third, 1)",
    "object": "handler = Handler()",
    "method": "handler = Handler().method",
    "one that takes itself away": "handler = once",
}


@needs_signals
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_signals_exception_is_the_waiters_whatever_kind_of_handler_raised_it(handler):
    """A signal never fails the instance that the main thread was helping with."""
    run_script(
        """
        import functools, signal, shoal
        class Raised(Exception): pass
        def raises(number, frame): raise Raised
        def raises_third(first, number, frame): raise Raised
        def once(*args):
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            raise Raised
        class Handler:
            def __call__(self, number, frame): raise Raised
            def method(self, *args): raise Raised
        HANDLER
        engine = shoal.Engine(workers=1)
        def body(index):
            return index
        shoal.map(body, range(10_000), engine=engine)
        raised = 0
        for round in range(20):
            signal.signal(signal.SIGALRM, handler)
            instances = shoal.spawn(body, count=2_000_000, engine=engine)
            signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0005 * round)
            try:
                instances.wait()
            except Raised:
                raised += 1
                assert instances.gate.state == "cancelled", instances
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            instances.drain(timeout=20)
            assert instances.counts.failed == 0, (instances.counts, instances.errors)
        assert raised > 0
    """.replace("HANDLER", HANDLERS[handler])
    )

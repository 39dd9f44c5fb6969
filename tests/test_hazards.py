"""The lines of hazards.md under "PyO3, rayon and processes" and "Joins" that can be a test in Python and are not one
elsewhere.

Forks, exits and Ctrl-C are in test_processes.py, compiled bodies in test_kernel.py, loom and shuttle beside the Rust
code.
"""

import gc
import os
import sys
import threading
import weakref
from pathlib import Path

import pytest
from steering import LIMIT, eventually, in_thread, run_script, settled

import shoal


def quick(item):
    return item


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: shoal.map(quick, range(2000), engine=engine),
        lambda engine: shoal.spawn(quick, count=2000, engine=engine).wait(),
        lambda engine: shoal.spawn(quick, count=2000, engine=engine).gate.wait(),
        lambda engine: shoal.spawn(quick, count=2000, engine=engine).result(),
        lambda engine: shoal.spawn(quick, count=2000, engine=engine).drain(),
        lambda engine: shoal.spawn(quick, count=2000, join=shoal.detached(), engine=engine).wait(),
        lambda engine: list(shoal.spawn(quick, count=2000, engine=engine).as_completed()),
        lambda engine: shoal.spawn(quick, count=2000, engine=engine).cancel(),
        lambda engine: shoal.spawn(quick, count=2000, engine=engine).complete(),
        lambda engine: shoal.spawn(quick, range(2000), seal="manual", engine=engine).__enter__().seal(),
        lambda engine: shoal.spawn(quick, iter(range(2000)), engine=engine).result(),
        lambda engine: engine.case("c").spawn(quick, count=2000).case.wait(),
        lambda engine: (shoal.spawn(quick, count=2000, engine=engine), engine.close()),
        lambda engine: (shoal.spawn(quick, count=2000, engine=engine), engine.close(cancel=True)),
    ],
    ids=[
        "map",
        "wait",
        "gate",
        "result",
        "drain",
        "detached",
        "as_completed",
        "cancel",
        "complete",
        "seal",
        "feeder",
        "case",
        "close",
        "close(cancel)",
    ],
)
def test_waiting_for_rayon_while_attached_to_the_interpreter_deadlocks(engine, call):
    """Waiting for rayon while attached to the interpreter deadlocks as soon as a worker attaches. Detach before
    every wait.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        in_thread(lambda: call(engine)).join_result()
    finally:
        sys.setswitchinterval(before)


def test_a_panic_does_not_abort_python():
    """A panic inside `rayon::spawn` aborts Python. `PanicException` is a `BaseException`: map panics to an error of
    our own.
    """
    done = run_script(
        """
        import shoal
        engine = shoal.Engine(workers=2)
        instances = shoal.spawn(shoal._native._panic_kernel(), count=1000, engine=engine)
        try:
            instances.result(timeout=20)
        except shoal.SetFailed as error:
            assert all(isinstance(e, shoal.PanicError) for e in error.errors.values())
            assert error.errors
        else:
            raise SystemExit("did not fail")
        assert shoal.map(abs, range(1000), engine=engine) == list(range(1000))
        engine.close()
        print("alive")
        """,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "alive" in done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no os.fork here")
def test_after_fork_the_childs_first_call_hangs_never():
    """After `os.fork` the child's first rayon call hangs. In the child raise `ForkedEngine` or start a fresh pool,
    never hang.
    """
    run_script("""
        import os, shoal
        shoal.spawn(shoal.kernels.noop, count=100_000).wait()
        for generation in range(3):
            pid = os.fork()
            if pid:
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                break
            assert shoal.spawn(shoal.kernels.noop, count=100_000).wait(timeout=20) == "fired"
        if pid == 0 or generation:
            os._exit(0)
    """)


def test_a_group_with_a_keyboardinterrupt_inside_raises_what_the_body_raised(engine):
    """An `ExceptionGroup` with a `KeyboardInterrupt` inside raises."""

    def body(index):
        raise KeyboardInterrupt("stop") if index == 3 else ValueError(index)

    instances = shoal.spawn(body, count=6, on_failure="fail_late", engine=engine)
    instances.drain(timeout=LIMIT)
    assert instances.gate.state == "failed"
    with pytest.raises(KeyboardInterrupt, match="stop"):
        instances.result()
    assert sorted(instances.errors) == list(range(6))


def test_an_exceptiongroup_of_nothing_is_not_made(engine):
    """`ExceptionGroup([])` raises."""
    instances = shoal.spawn(quick, [], join=shoal.at_least(1), seal="manual", engine=engine)
    instances.seal()
    with pytest.raises(shoal.SetFailed) as caught:
        instances.result(timeout=LIMIT)
    assert caught.value.__cause__ is None


def test_kept_tracebacks_pin_frames_so_few_are_kept(engine):
    """Kept tracebacks pin frames, so keep few."""

    class Big:
        pass

    pinned = []

    def body(index):
        big = Big()
        pinned.append(weakref.ref(big))
        raise ValueError(index)

    instances = shoal.spawn(body, count=1000, on_failure="continue", engine=engine)
    assert instances.wait(timeout=LIMIT) == "fired"
    instances.drain(timeout=LIMIT)

    def alive():
        gc.collect()
        return sum(ref() is not None for ref in pinned)

    eventually(lambda: alive() <= 100, "going of the frames")
    assert len(instances.errors) == 1000


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: shoal.spawn(quick, count=True, engine=engine),
        lambda engine: shoal.map(quick, count=True, engine=engine),
        lambda engine: shoal.spawn(quick, count=lambda variables: True, engine=engine),
        lambda engine: shoal.spawn(quick, count=3, join=shoal.at_least(True), engine=engine),
        lambda engine: shoal.spawn(quick, count=3, join=shoal.weighted([True] * 3, at_least=1), engine=engine),
        lambda engine: shoal.spawn(quick, count=3, on_failure=shoal.tolerate(True), engine=engine),
        lambda engine: shoal.spawn(quick, count=3, minimum=True, engine=engine),
        lambda engine: shoal.spawn(quick, count=3, chunk=True, engine=engine),
        lambda engine: shoal.Gate(True),
        lambda engine: shoal.Gate(1).arrive(True),
        lambda engine: shoal.Engine(workers=True),
        lambda engine: shoal.Engine(workers=1, retain=True).close(),
        lambda engine: shoal.Engine(workers=1, limits=shoal.Limits(max_instances=True)).close(),
        lambda engine: shoal.Engine(workers=1, limits=shoal.Limits(max_case_instances=True)).close(),
        lambda engine: shoal.patterns.design_time(engine.case("c"), quick, True),
    ],
    ids=[
        "spawn",
        "map",
        "function",
        "at_least",
        "weighted",
        "tolerate",
        "minimum",
        "chunk",
        "Gate",
        "arrive",
        "workers",
        "retain",
        "max_instances",
        "max_case_instances",
        "pattern 13",
    ],
)
def test_true_extracts_as_the_integer_1_and_is_refused_where_a_count_is_meant(engine, call):
    """`True` extracts as the integer 1. Refuse bool where a count is meant."""
    with pytest.raises((ValueError, TypeError)):
        call(engine)


def test_first_calls_from_many_threads_at_once_do_not_deadlock():
    """`OnceLock`/`LazyLock` around Python objects can deadlock with the GIL."""
    run_script("""
        import sys, threading
        sys.setswitchinterval(1e-5)
        import shoal
        start = threading.Barrier(16)
        wrong = []
        def first(n):
            start.wait(20)
            try:
                assert shoal.map(abs, range(n)) == list(range(n))
                try:
                    shoal.spawn(abs, count=0)
                except shoal.CountError:
                    pass
                failed = shoal.spawn(lambda i: 1 / 0, count=3)
                assert failed.wait(timeout=20) == "failed"
                shoal.default_engine().metrics()
            except BaseException as error:
                wrong.append(error)
        threads = [threading.Thread(target=first, args=(n + 1,), daemon=True) for n in range(16)]
        for t in threads: t.start()
        for t in threads:
            t.join(30)
            assert not t.is_alive()
        assert wrong == [], wrong
    """)


def test_a_thread_that_waits_does_not_run_a_strangers_body(make_engine, steered):
    """A worker that steals while holding a lock can take that lock again (rayon#592). Helping must not run
    arbitrary work.
    """
    engine = make_engine(workers=2)
    lock = threading.Lock()
    awaited = steered()
    mine = shoal.spawn(awaited, count=1, chunk=1, engine=engine)
    awaited.wait_begun(0)
    locked = threading.Event()
    strangers_begun = threading.Event()

    def stranger(index):
        strangers_begun.set()
        assert lock.acquire(timeout=LIMIT), "the lock is never given back"
        lock.release()

    def wait_with_the_lock():
        with lock:
            locked.set()
            return mine.wait(timeout=2 * LIMIT)

    waiting = in_thread(wait_with_the_lock)
    assert locked.wait(LIMIT)
    strangers = shoal.spawn(stranger, count=8, chunk=1, engine=engine)
    assert strangers_begun.wait(LIMIT)
    awaited.release_all()
    assert waiting.join_result() == "fired"
    assert strangers.wait(timeout=LIMIT) == "fired"


def test_the_pool_is_sized(held):
    """Each extension links its own rayon: build a named, sized pool, never the global one."""
    body, instances = held(10, workers=3)
    body.wait_begun(0, 1, 2)
    assert instances.counts.running == 3
    assert held.engine.metrics()["workers"] == 3
    body.release_all()
    assert instances.wait(timeout=LIMIT) == "fired"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="thread names are read from /proc")
def test_the_pool_is_named_and_its_threads_go_with_the_engine():
    """Each extension links its own rayon: build a named, sized pool, never the global one."""

    def named():
        names = []
        for task in Path("/proc/self/task").iterdir():
            try:
                names.append((task / "comm").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
        return sum(name.startswith("shoal-reef-") for name in names)

    with shoal.Engine(workers=3, name="reef") as engine:
        shoal.map(quick, range(100), engine=engine)
        eventually(lambda: named() == 3, "naming of the threads")
    eventually(lambda: named() == 0, "going of the engine's threads")


def test_the_pool_is_not_the_global_one_of_rayon():
    """Build a named, sized pool, never the global one."""
    done = run_script(
        """
        import threading, shoal
        engine = shoal.Engine(workers=3)
        meet = threading.Barrier(3)
        instances = shoal.spawn(lambda index: meet.wait(20), count=3, chunk=1, engine=engine)
        print(instances.wait(timeout=30))
        """,
        env={**os.environ, "RAYON_NUM_THREADS": "1"},
    )
    assert "fired" in done.stdout


def test_a_set_whose_first_instances_finish_before_creation_ends_is_not_joined_early(engine):
    """A set whose first instances finish before creation ends is joined early and instances are lost. Hence the
    creation token.
    """
    finished = [threading.Event() for _ in range(50)]

    def items():
        for i in range(50):
            yield i
            if not finished[i].wait(LIMIT):
                raise AssertionError(f"instance {i} was not run while its iterator waited")

    def body(item):
        finished[item].set()
        return item

    instances = shoal.spawn(body, items(), engine=engine)
    assert instances.wait(timeout=2 * LIMIT) == "fired"
    assert instances.result() == list(range(50))


def test_a_gate_fires_once_however_many_arrive_past_its_target(held):
    """A gate that reports "open" for every arrival past its target fires twice."""
    fired = []
    body, instances = held(20, join=shoal.at_least(3), rest="continue")
    instances.gate.on_fired(fired.append)
    body.release_all()
    instances.drain(timeout=LIMIT)
    held.engine.close()
    assert len(fired) == 1
    gate = shoal.Gate(target=2)
    assert [gate.arrive() for _ in range(6)] == [False, True, False, False, False, False]


@pytest.mark.parametrize(
    "on_failure",
    ["fail_fast", "fail_late", "continue", shoal.tolerate(2), shoal.tolerate(fraction=0.5, after=1)],
    ids=["fail_fast", "fail_late", "continue", "tolerate 2", "tolerate half"],
)
@pytest.mark.parametrize(
    ("join", "fires_without_completions"),
    [
        pytest.param(shoal.all_of(), True, id="all_of"),
        pytest.param(shoal.any_of(), False, id="any_of"),
        pytest.param(shoal.at_least(3), False, id="at_least"),
        pytest.param(shoal.at_least(fraction=0.5), False, id="fraction"),
        pytest.param(shoal.weighted([1] * 6, at_least=3), False, id="weighted"),
        pytest.param(shoal.at_least(3, or_all=True), True, id="or_all"),
    ],
)
def test_a_failed_instance_that_never_arrives_does_not_hang_the_join(
    engine, join, fires_without_completions, on_failure
):
    """A failed instance that never arrives hangs the join. An `any` whose children all fail never joins."""

    def body(index):
        raise ValueError(index)

    instances = shoal.spawn(body, count=6, join=join, on_failure=on_failure, engine=engine)
    state = instances.wait(timeout=LIMIT)
    assert state == ("fired" if on_failure == "continue" and fires_without_completions else "failed")
    instances.drain(timeout=LIMIT)
    assert instances.counts.failed >= 1
    assert instances.counts.completed == 0


def test_an_any_whose_children_all_fail_fails(held):
    """An `any` whose children all fail never joins."""
    body, instances = held(3, join=shoal.any_of())
    body.wait_begun(0, 1, 2)
    body.fail(0)
    body.fail(1)
    settled(instances, 0, 1)
    assert instances.gate.state == "waiting"
    body.fail(2)
    assert instances.wait(timeout=LIMIT) == "failed"


def test_a_target_of_0_never_opens_and_is_refused():
    """A target of 0 never opens."""
    with pytest.raises(ValueError, match="0"):
        shoal.Gate(target=0)


def test_a_cancelled_run_is_not_recorded_as_completed(make_engine, steered):
    """A cancelled run recorded as completed."""
    engine = make_engine(workers=2)
    body = steered()
    instances = shoal.spawn(body, count=2, chunk=1, engine=engine)
    body.wait_begun(0, 1)
    instances.cancel()
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert instances.counts.completed == 2
    assert (instances.state, instances.gate.state) == ("cancelled", "cancelled")
    assert [s.state for s in engine.sets if s.id == instances.id] in ([], ["cancelled"])


def test_a_cap_is_not_passed_by_racing_starts(make_engine, steered):
    """A cap checked and then acted on lets racing starts through."""
    engine = make_engine(workers=2, limits=shoal.Limits(max_instances=100, max_case_instances=1000))
    body = steered()
    for round_number in range(10):
        case = engine.case(f"round {round_number}")
        start = threading.Barrier(8)

        def start_many(case=case, start=start):
            mine = []
            start.wait(LIMIT)
            for _ in range(40):
                try:
                    mine.append(case.spawn(body, count=7))
                except shoal.LimitError:
                    continue
            return mine

        callers = [in_thread(start_many) for _ in range(8)]
        created = [s for c in callers for s in c.join_result()]
        assert sum(len(s) for s in created) == 7 * (1000 // 7)
        case.cancel()


def test_racing_adds_do_not_pass_the_cap(make_engine):
    """A cap checked and then acted on lets racing starts through."""
    engine = make_engine(workers=2, limits=shoal.Limits(max_instances=100))
    for _ in range(20):
        instances = shoal.spawn(quick, [], seal="manual", engine=engine)
        start = threading.Barrier(4)

        def add_many(instances=instances, start=start):
            start.wait(LIMIT)
            added = 0
            for _ in range(40):
                try:
                    instances.add(1, 2, 3)
                    added += 3
                except shoal.LimitError:
                    continue
            return added

        callers = [in_thread(add_many) for _ in range(4)]
        assert sum(c.join_result() for c in callers) == 99
        assert len(instances) == 99
        instances.seal()
        assert instances.wait(timeout=LIMIT) == "fired"


def test_finished_runs_do_not_keep_their_slot(make_engine):
    """Finished runs that keep their slot."""
    engine = make_engine(workers=2, limits=shoal.Limits(max_instances=10, max_case_instances=10))
    for _ in range(50):
        assert shoal.map(quick, range(10), engine=engine) == list(range(10))
    assert engine.metrics()["running"] == 0


def test_unstarted_instances_do_not_vanish_without_a_record_when_the_case_is_cancelled(make_engine, steered):
    """Unstarted instances that vanish without a record when the parent is cancelled (prefect#23138)."""
    engine = make_engine(workers=1)
    body = steered()
    case = engine.case("parent")
    instances = case.spawn(body, count=20, chunk=1)
    body.wait_begun(0)
    case.cancel()
    body.release_all()
    instances.drain(timeout=LIMIT)
    assert len(instances) == 20
    assert instances.counts == shoal.Counts(0, 0, 1, 0, 19, 0)
    assert [str(instances.status(i)) for i in range(20)] == ["completed"] + ["cancelled"] * 19
    assert sum(e.stop - e.start for e in engine.events() if e.set == instances.id and e.kind == "cancelled") == 19

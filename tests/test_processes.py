"""The sentences of semantics.md under "Processes and forks", and those about signals, each in a process of its own."""

import os
import signal
import sys

import pytest
from steering import run_script

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no os.fork here")
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent the POSIX way")


@needs_fork
def test_after_fork_the_default_engine_starts_afresh_in_the_child():
    """After `os.fork` the default engine starts afresh in the child."""
    done = run_script("""
        import os, shoal
        parent = shoal.default_engine()
        assert shoal.map(abs, range(1000)) == list(range(1000))
        pid = os.fork()
        if pid == 0:
            ok = shoal.map(abs, range(1000)) == list(range(1000))
            instances = shoal.spawn(abs, count=10, join=shoal.at_least(5), rest="continue")
            ok = ok and instances.wait(timeout=20) == "fired"
            os._exit(0 if ok else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert shoal.map(abs, range(1000)) == list(range(1000))
        print("parent lives")
    """)
    assert "parent lives" in done.stdout


@needs_fork
def test_after_fork_an_engine_made_by_the_user_raises_there():
    """An engine made by the user raises `ForkedEngine` there."""
    run_script("""
        import os, shoal
        engine = shoal.Engine(workers=2)
        case = engine.case("before")
        assert shoal.map(abs, [-1], engine=engine) == [1]
        pid = os.fork()
        if pid == 0:
            code = 0
            for number, call in enumerate((
                lambda: shoal.map(abs, [-1], engine=engine),
                lambda: shoal.spawn(abs, count=3, engine=engine),
                lambda: case.spawn(abs, count=3),
            )):
                try:
                    call()
                except shoal.ForkedEngine:
                    continue
                code = 3 + number
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert shoal.map(abs, [-1], engine=engine) == [1]
        engine.close()
    """)


@needs_fork
def test_a_forked_child_leaves_without_hanging():
    """Neither ever hangs."""
    run_script(
        """
        import os, sys, threading, shoal
        engine = shoal.Engine(workers=2)
        begun, never = threading.Event(), threading.Event()
        def body(index):
            begun.set()
            never.wait()
        held = shoal.spawn(body, count=4, engine=engine)
        default = shoal.spawn(body, count=4)
        assert begun.wait(20)
        pid = os.fork()
        if pid == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    """,
        stacks=False,
    )


@needs_fork
def test_a_set_of_before_the_fork_does_not_hang_in_the_child():
    """An engine made by the user raises `ForkedEngine` there. Neither ever hangs."""
    run_script("""
        import os, threading, shoal
        engine = shoal.Engine(workers=2)
        begun, go = threading.Event(), threading.Event()
        def body(index):
            begun.set()
            go.wait()
        held = shoal.spawn(body, count=4, engine=engine)
        assert begun.wait(20)
        pid = os.fork()
        if pid == 0:
            try:
                held.wait()
            except shoal.ForkedEngine:
                os._exit(0)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        go.set()
        assert held.wait(timeout=20) == "fired"
    """)


@needs_fork
def test_a_fork_from_inside_a_body_does_not_hang():
    """After `os.fork` the default engine starts afresh in the child. Neither ever hangs."""
    run_script("""
        import os, shoal
        def body(index):
            pid = os.fork()
            if pid == 0:
                os._exit(index)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert shoal.map(body, range(5)) == [0, 1, 2, 3, 4]
    """)


WAYS_TO_END = {
    "returns": ("return 5", 0),
    "raises": ("raise ValueError('in the child')", 1),
    "exits": ("sys.exit(7)", 7),
    "exits with words": ("sys.exit('in the child')", 1),
}


@needs_fork
@pytest.mark.parametrize("how", WAYS_TO_END)
@pytest.mark.parametrize(
    "call",
    [
        "shoal.map(body, [1])",
        "shoal.map(body, [1], batch=True)",
        "shoal.map(lambda items: (body(item) for item in items), [1], batch=True)",
        "shoal.spawn(body, [1]).result()",
        "shoal.map(lambda item: shoal.map(body, [item])[0], range(1, 3))[:1]",
    ],
    ids=["map", "batch", "generator", "spawn", "nested"],
)
def test_a_child_that_a_body_forked_ends_where_the_body_ends(call, how):
    """Processes and forks: neither ever hangs."""
    ending, code = WAYS_TO_END[how]
    done = run_script(f"""
        import os, sys, shoal
        parent = os.getpid()
        def body(item):
            pid = os.fork()
            if pid == 0:
                print("child")
                {ending}
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            return [code] if isinstance(item, list) else code
        assert {call} == [{code}]
        assert os.getpid() == parent
    """)
    # Two children may write at once; that anything else was written would say that one went on.
    assert "child" in done.stdout
    assert not done.stdout.replace("child", "").strip()
    assert ("in the child" in done.stderr) == ("in the child" in ending)
    assert ("Traceback" in done.stderr) == (how == "raises")


@needs_fork
def test_a_fork_pool_of_multiprocessing_can_use_shoal():
    """After `os.fork` the default engine starts afresh in the child."""
    run_script("""
        import multiprocessing, shoal
        assert shoal.map(abs, [-1]) == [1]
        def work(n):
            return sum(shoal.map(abs, range(n)))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(work, [10, 100, 1000]) == [45, 4950, 499500]
    """)


AT_EXIT = {
    "blocked bodies": """
        begun, never = threading.Event(), threading.Event()
        def body(index):
            begun.set()
            never.wait()
        held = shoal.spawn(body, count=10)
        assert begun.wait(20)
    """,
    "busy bodies": """
        begun = threading.Event()
        def body(index):
            begun.set()
            while True:
                pass
        held = shoal.spawn(body, count=10)
        assert begun.wait(20)
    """,
    "a million short bodies": """
        begun = threading.Event()
        held = shoal.spawn(lambda index: begun.set(), count=1_000_000)
        assert begun.wait(20)
    """,
    "an open set": """
        held = shoal.spawn(abs, range(10), seal="manual")
    """,
    "a feeder that blocks": """
        begun, never = threading.Event(), threading.Event()
        def items():
            yield 1
            begun.set()
            never.wait()
        held = shoal.spawn(abs, items())
        assert begun.wait(20)
    """,
    "a thread that waits": """
        never = threading.Event()
        held = shoal.spawn(lambda index: never.wait(), count=2)
        threading.Thread(target=held.wait, daemon=True).start()
    """,
    "an engine of the user that is not closed": """
        begun, never = threading.Event(), threading.Event()
        def body(index):
            begun.set()
            never.wait()
        engine = shoal.Engine(workers=2)
        held = shoal.spawn(body, count=10, engine=engine)
        assert begun.wait(20)
    """,
    "nothing left": """
        assert shoal.map(abs, range(100)) == list(range(100))
    """,
}


@pytest.mark.parametrize("what", AT_EXIT)
def test_at_exit_workers_are_asked_to_stop_and_then_left(what):
    """At exit workers are asked to stop and joined for a second; then they are left. Neither ever hangs."""
    done = run_script(
        "import threading, shoal\n" + "\n".join(line[8:] for line in AT_EXIT[what].splitlines()) + "\nprint('end')"
    )
    assert "end" in done.stdout


def test_at_exit_the_exit_code_is_kept():
    """At exit workers are asked to stop and joined for a second; then they are left."""
    done = run_script(
        """
        import sys, threading, shoal
        never = threading.Event()
        held = shoal.spawn(lambda index: never.wait(), count=10)
        sys.exit(5)
        """,
        check=False,
    )
    assert done.returncode == 5, done.stderr


def test_at_exit_a_body_that_listens_is_asked_to_stop():
    """At exit workers are asked to stop."""
    done = run_script("""
        import os, threading, shoal
        begun = threading.Event()
        pause = threading.Event()
        def body(index):
            begun.set()
            while not shoal.current().cancelled:
                pause.wait(0.001)
            os.write(1, b"asked")
        held = shoal.spawn(body, count=1)
        assert begun.wait(20)
    """)
    assert "asked" in done.stdout


CTRL_C = """
import os, signal, threading, time, shoal
signal.signal(signal.SIGINT, signal.default_int_handler)
sent = []
never = threading.Event()
begun = threading.Event()

def interrupt():
    begun.wait(20)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
engine = shoal.Engine(workers=2)

def blocks(index):
    begun.set()
    never.wait(40)

def loops(index):
    begun.set()
    end = time.monotonic() + 40
    while time.monotonic() < end:
        pass

def short(index):
    if index == 1000:
        begun.set()

body, count = BODY
instances = None
try:
    CALL
except KeyboardInterrupt:
    took = time.monotonic() - sent[0]
else:
    raise SystemExit("no KeyboardInterrupt")
if instances is None:
    instances = engine.sets[0]
assert took < 2, took
assert instances.gate.state == "cancelled", instances
assert instances.counts.failed == 0, instances.counts
assert instances.counts.cancelled > 0, instances.counts
never.set()
print("heard")
os._exit(0)
"""


@needs_signals
@pytest.mark.parametrize(
    "body", ["(blocks, 10)", "(loops, 10)", "(short, 9_000_000)"], ids=["blocks", "loops", "short"]
)
@pytest.mark.parametrize(
    "call",
    [
        "shoal.map(body, count=count, engine=engine)",
        "instances = shoal.spawn(body, count=count, engine=engine); instances.wait()",
        "instances = shoal.spawn(body, count=count, engine=engine); instances.result()",
        "instances = shoal.spawn(body, count=count, engine=engine); instances.wait(timeout=100)",
    ],
    ids=["map", "wait", "result", "wait with timeout"],
)
def test_ctrl_c_cancels_the_set_and_is_heard(call, body):
    """Ctrl-C is heard within 200 ms. Ctrl-C in `map`, `wait` or `result` cancels the set; a call in flight that
    cannot stop is abandoned.
    """
    done = run_script(CTRL_C.replace("BODY", body).replace("CALL", call))
    assert "heard" in done.stdout


@needs_signals
def test_a_signal_never_fails_the_instance_that_the_main_thread_was_helping_with():
    """A signal never fails the instance that the main thread was helping with."""
    run_script("""
        import signal, shoal
        def interrupt(number, frame):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        engine = shoal.Engine(workers=1)
        def body(index):
            return index
        shoal.map(body, range(10_000), engine=engine)
        interrupted = 0
        for round in range(40):
            instances = shoal.spawn(body, count=2_000_000, engine=engine)
            signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0005 * round)
            try:
                instances.wait()
            except KeyboardInterrupt:
                interrupted += 1
                assert instances.gate.state == "cancelled", instances
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            instances.drain(timeout=20)
            assert instances.counts.failed == 0, (instances.counts, instances.errors)
        assert interrupted > 0
    """)


@needs_signals
def test_a_signal_whose_handler_returns_leaves_the_wait_as_it_is():
    """Ctrl-C in `map`, `wait` or `result` cancels the set; other signals run their handler."""
    run_script("""
        import os, signal, threading, shoal
        heard = threading.Event()
        signal.signal(signal.SIGUSR1, lambda number, frame: heard.set())
        begun = threading.Event()
        def body(index):
            begun.set()
            assert heard.wait(20)
            return index
        def send():
            begun.wait(20)
            os.kill(os.getpid(), signal.SIGUSR1)
        threading.Thread(target=send).start()
        engine = shoal.Engine(workers=2)
        assert shoal.map(body, range(4), engine=engine) == [0, 1, 2, 3]
    """)


@needs_signals
def test_ctrl_c_is_heard_while_waiting_for_a_gate_alone():
    """Rust code does not see Ctrl-C: wait in slices and check signals between them."""
    done = run_script("""
        import signal, shoal
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        gate = shoal.Gate(target=1)
        try:
            gate.wait()
        except KeyboardInterrupt:
            assert gate.state == "waiting"
            print("heard")
    """)
    assert "heard" in done.stdout


@needs_signals
@pytest.mark.parametrize("call", ["held.drain()", "list(held.as_completed())", "engine.close()", "case.wait()"])
def test_ctrl_c_is_heard_in_every_call_that_waits(call):
    """Rust code does not see Ctrl-C: wait in slices and check signals between them."""
    done = run_script(f"""
        import os, signal, threading, shoal
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        never = threading.Event()
        engine = shoal.Engine(workers=2)
        case = engine.case("held")
        held = case.spawn(lambda index: never.wait(40), count=4)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            {call}
        except KeyboardInterrupt:
            print("heard", flush=True)
        os._exit(0)
    """)
    assert "heard" in done.stdout


@needs_signals
def test_a_process_that_is_killed_by_ctrl_c_dies_of_it():
    """Ctrl-C in `map`, `wait` or `result` cancels the set; at exit workers are left."""
    done = run_script(
        """
        import os, signal, threading, shoal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        begun, never = threading.Event(), threading.Event()
        def body(index):
            begun.set()
            never.wait()
        def send():
            begun.wait(20)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=send, daemon=True).start()
        shoal.map(body, range(10))
        """,
        check=False,
    )
    assert done.returncode in (-signal.SIGINT, 130), (done.returncode, done.stderr)
    assert "KeyboardInterrupt" in done.stderr

"""What the tests steer with: bodies that block until the test lets them go, and scripts in a process of their own.

No test sleeps. A body that has to last blocks on an event; whoever waits for something waits for that thing, at most
`LIMIT` seconds.
"""

import subprocess
import sys
import textwrap
import threading
import time

import pytest

LIMIT = 20.0
"""Seconds after which something that has to happen counts as never happening."""


class Steered:
    """A body over indices whose calls say that they began, and end how and when the test says.

    Spawned with `chunk=1` the bodies begin in the order of their index, as many at once as there are workers.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._events = {}
        self._errors = {}
        self._changed = threading.Condition(self._lock)
        self._began = []
        self._all = False

    def __call__(self, index):
        index = int(index)
        with self._changed:
            self._began.append(index)
            event = self._event(index)
            if self._all:
                event.set()
            self._changed.notify_all()
        if not event.wait(3 * LIMIT):
            raise AssertionError(f"nobody let instance {index} go")
        error = self._errors.get(index)
        if error is not None:
            raise error
        return index * 10

    def _event(self, index):
        return self._events.setdefault(index, threading.Event())

    @property
    def began(self):
        """The indices whose body has begun, in that order."""
        with self._lock:
            return list(self._began)

    def wait_begun(self, *indices):
        """Returns when the bodies of these indices have begun."""
        with self._changed:
            if not self._changed.wait_for(lambda: set(indices) <= set(self._began), LIMIT):
                pytest.fail(f"of {indices} only {self._began} began")

    def release(self, *indices):
        """Lets these bodies complete."""
        with self._lock:
            for index in indices:
                self._event(index).set()

    def fail(self, index, error=None):
        """Lets this body raise."""
        with self._lock:
            self._errors[index] = ValueError(f"told to fail: {index}") if error is None else error
            self._event(index).set()

    def release_all(self):
        """Lets every body complete, also those that have not begun."""
        with self._lock:
            self._all = True
            for event in self._events.values():
                event.set()


def holds_by(condition, timeout=LIMIT):
    """Whether the condition becomes true within the time."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.0002)
    return True


def eventually(condition, what="the condition"):
    """Waits for what no call can be waited on for: one instance of several having settled."""
    if not holds_by(condition):
        pytest.fail(f"{what} did not come true within {LIMIT} s")


def settled(instances, *indices):
    """Waits until these instances are terminal, and the counts say so."""
    terminal = {"completed", "failed", "cancelled", "timed_out"}

    def all_terminal():
        if not all(instances.status(i) in terminal for i in indices):
            return False
        counts = instances.counts
        return counts.completed + counts.failed + counts.cancelled + counts.timed_out >= len(indices)

    eventually(all_terminal, f"settling of {indices}")


def in_thread(function):
    """Runs the function in a thread; the answer's `join_result()` gives its value or raises what it raised."""

    class Call(threading.Thread):
        def run(self):
            try:
                self.value, self.error = function(), None
            except BaseException as error:
                self.value, self.error = None, error

        def join_result(self):
            self.join(LIMIT)
            assert not self.is_alive(), "the thread hangs"
            if self.error is not None:
                raise self.error
            return self.value

    call = Call(daemon=True)
    call.start()
    return call


def run_script(source, *, timeout=60, check=True, env=None, stacks=True):
    """Runs the source in a fresh interpreter; a hang is a failure that shows all its stacks. Without `stacks` it only
    fails: the watchdog's own lock hangs a child that forks and then ends the ordinary way.
    """
    prelude = f"import faulthandler\nfaulthandler.dump_traceback_later({timeout - 5}, exit=True)\n" if stacks else ""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", prelude + textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=env,
    )
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        for word in ("Fatal Python error", "panicked at", "Segmentation fault"):
            assert word not in done.stderr, done.stderr
    return done

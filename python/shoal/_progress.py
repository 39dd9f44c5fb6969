"""The live bars of `progress=True`: one daemon thread looks at the watched sets ten times a second and draws them.

It reads counts and states and never holds a set: a set that goes away takes its bar with it.
"""

from __future__ import annotations

import atexit
import html
import os
import shutil
import sys
import threading
import time
import weakref
from typing import Any, Protocol

__all__ = ["refresh", "watch"]

INTERVAL = 0.1
STILL_OPEN = frozenset({"active", "open", "waiting"})


class Counts(Protocol):
    """What a bar reads of `InstanceSet.counts`."""

    @property
    def pending(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def completed(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def cancelled(self) -> int: ...
    @property
    def timed_out(self) -> int: ...


class Watched(Protocol):
    """What a bar reads of an `InstanceSet`."""

    @property
    def counts(self) -> Counts: ...
    @property
    def state(self) -> str: ...
    def __len__(self) -> int: ...


class Bar:
    """One watched set, and the last that was seen of it."""

    def __init__(self, instances: Watched) -> None:
        self.set = weakref.ref(instances)
        self.name = str(getattr(instances, "name", None) or f"set {getattr(instances, 'id', '')}".strip())
        self.began = time.monotonic()
        self.took = 0.0
        self.ended = False
        self.display: Any = None
        self.total = self.done = self.good = 0
        self.notes: list[str] = []
        self.look()

    def look(self) -> None:
        """Reads the set. One that is gone, or has nothing left to do, has ended."""
        if self.ended:
            return
        self.took = time.monotonic() - self.began
        instances = self.set()
        if instances is None:
            self.ended = True
            return
        # The state before the counts: counts that follow a decision include what it cancelled.
        state = str(instances.state)
        counts = instances.counts
        left = counts.pending + counts.running
        self.total = len(instances)
        self.done = max(0, self.total - left)
        self.good = counts.completed
        ways = (("failed", counts.failed), ("timed out", counts.timed_out), ("cancelled", counts.cancelled))
        self.notes = [f"{number:,} {way}" for way, number in ways if number]
        detached = getattr(instances, "gate", self) is None
        self.ended = left == 0 and (detached or state not in STILL_OPEN)
        if self.ended and state not in STILL_OPEN:
            self.notes.append(state.replace("_", " "))

    def figures(self) -> str:
        """What stands to the right of the bar."""
        share = 100 * self.done // self.total if self.total else 100
        parts = [f"{self.done:,}/{self.total:,}", f"{share}%", *self.notes, f"{self.took:.1f} s"]
        if self.took > 0 and self.done:
            rate = self.done / self.took
            parts.append(f"{rate:,.0f}/s")
            if not self.ended and self.took > 0.5:
                parts.append(f"{(self.total - self.done) / rate:.0f} s left")
        return "  ".join(parts)

    def line(self, width: int, colour: bool) -> str:
        """The bar as one line of at most `width` characters."""
        name = self.name if len(self.name) <= 24 else self.name[:23] + "…"
        text = f"  {self.figures()}"
        room = width - len(name) - len(text) - 2
        if room < 5:
            return f"{name}{text}"[: width - 1]
        room = min(room, 40)
        full = room * self.good // self.total if self.total else room
        spent = room * self.done // self.total - full if self.total else 0
        paint = (lambda code, part: f"\x1b[{code}m{part}\x1b[0m" if part else "") if colour else lambda _, part: part
        return f"{name} {paint(32, '━' * full)}{paint(31, '╍' * spent)}{paint(2, '─' * (room - full - spent))}{text}"

    def page(self) -> str:
        """The bar as HTML, for a notebook."""
        return (
            f"<div>{html.escape(self.name)} "
            f'<progress value="{self.done}" max="{max(1, self.total)}"></progress> {html.escape(self.figures())}</div>'
        )


class Board:
    """The bars on the screen, and the thread that redraws them while there are any."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bars: list[Bar] = []
        self.drawn = 0
        self.thread: threading.Thread | None = None
        self.stop = threading.Event()

    def add(self, bar: Bar) -> None:
        with self.lock:
            self.bars.append(bar)
            if self.thread is None and not self.stop.is_set():
                self.thread = threading.Thread(target=self.run, name="shoal-progress", daemon=True)
                self.thread.start()

    def run(self) -> None:
        while not self.stop.wait(INTERVAL):
            with self.lock:
                self.draw()
                if not self.bars:
                    self.thread = None
                    return

    def draw(self) -> None:
        """Writes every bar anew; those that ended stay above as their last line. Called with the lock held."""
        for bar in self.bars:
            bar.look()
        try:
            self.draw_notebook([bar for bar in self.bars if bar.display is not None])
            self.draw_terminal([bar for bar in self.bars if bar.display is None])
        except (OSError, ValueError):  # the terminal went away, or stderr was closed
            self.bars.clear()
        self.bars = [bar for bar in self.bars if not bar.ended]

    def draw_notebook(self, bars: list[Bar]) -> None:
        if bars:
            from IPython.display import HTML

            for bar in bars:
                bar.display.update(HTML(bar.page()))

    def draw_terminal(self, bars: list[Bar]) -> None:
        if not bars or sys.stderr is None:
            return
        width = shutil.get_terminal_size().columns
        colour = "NO_COLOR" not in os.environ
        ordered = [bar for bar in bars if bar.ended] + [bar for bar in bars if not bar.ended]
        up = f"\x1b[{self.drawn}A" if self.drawn else ""
        sys.stderr.write(f"\r{up}\x1b[J" + "".join(bar.line(width, colour) + "\n" for bar in ordered))
        sys.stderr.flush()
        self.drawn = sum(not bar.ended for bar in bars)

    def finish(self) -> None:
        """At exit: the thread ends before the interpreter takes stderr away, and the last state is drawn."""
        self.stop.set()
        thread = self.thread
        if thread is not None:
            thread.join(0.2)
        if self.lock.acquire(timeout=0.2):
            try:
                self.draw()
            finally:
                self.lock.release()


_board = Board()
atexit.register(lambda: _board.finish())


def _start_afresh() -> None:
    global _board
    _board = Board()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _on_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def watch(instances: Watched) -> None:
    """Draws a live bar for this set until it ends, and returns at once. Does nothing where output is no terminal."""
    if _in_notebook():
        from IPython.display import HTML, display

        bar = Bar(instances)
        bar.display = display(HTML(bar.page()), display_id=True)
        _board.add(bar)
    elif _on_terminal():
        _board.add(Bar(instances))


def refresh() -> None:
    """Redraws now, so that what is printed next stands below the bars of the sets that have ended."""
    with _board.lock:
        _board.draw()

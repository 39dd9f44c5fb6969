"""The live bars of `progress=True`: one daemon thread looks at the watched sets ten times a second and draws them.

It reads counts and states, and writes to stderr or to the notebook's cell; no worker ever waits for it.
"""

from __future__ import annotations

import atexit
import contextlib
import html
import os
import sys
import threading
import time
import unicodedata
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

__all__ = ["refresh", "watch"]

INTERVAL = 0.1
"""Seconds between two looks."""
UNDECIDED = frozenset({"active", "running"})
"""The states of a set whose gate is not decided."""
LONGEST_NAME, LONGEST_BAR, SHORTEST_BAR = 24, 40, 10


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


class Look(NamedTuple):
    """How a terminal wants its bars."""

    columns: int = 80
    colour: bool = False
    unicode: bool = True


class Bar:
    """One watched set, and the last that was seen of it.

    A set that is sealed ends by itself, so the bar holds it until then. An open one might never end: it is held
    weakly, and takes its bar with it.
    """

    def __init__(self, instances: Watched, display: Any = None) -> None:
        self.set: Callable[[], Watched | None] = weakref.ref(instances)
        self.name = _printable(getattr(instances, "name", None) or f"set {getattr(instances, 'id', '')}".strip())
        self.display = display
        self.began = time.monotonic()
        self.took = 0.0
        self.ended = False
        self.total = self.done = self.good = self.ran = 0
        self.needed: int | None = None
        self.notes: list[str] = []
        self.look()

    def look(self) -> None:
        """Reads the set. One that is gone, or has nothing left to do, has ended."""
        if self.ended:
            return
        instances = self.set()
        self.took = time.monotonic() - self.began
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
        self.ran = max(0, self.done - counts.cancelled)
        gate = getattr(instances, "gate", None)
        target = getattr(gate, "target", None)
        self.needed = target if target is not None and target < self.total else None
        ways = (("failed", counts.failed), ("timed out", counts.timed_out), ("cancelled", counts.cancelled))
        self.notes = [f"{number:,} {way}" for way, number in ways if number]
        if state not in UNDECIDED:
            if gate is not None:
                self.notes.insert(0, f"gate {state.replace('_', ' ')}")
            self.ended = left == 0
        self.set = weakref.ref(instances) if state == "active" or self.ended else lambda: instances

    def goal(self) -> tuple[int, int]:
        """How far it is, and how far it has to go: to the gate's target, if that is less than all."""
        return (self.done, self.total) if self.needed is None else (min(self.good, self.needed), self.needed)

    def figures(self) -> tuple[list[str], list[str]]:
        """What stands to the right of the bar; the second part can be left out, its end first."""
        so_far, goal = self.goal()
        if self.needed is None:
            parts = [f"{so_far:,}/{goal:,}", f"{100 * so_far // goal if goal else 100}%"]
        else:
            parts = [f"{so_far:,}/{goal:,} needed", f"{self.done:,} of {self.total:,} done"]
        extras = [f"{self.took:.1f} s"]
        if self.took > 0 and so_far:
            if self.took > 0.5 and so_far < goal and not self.ended:
                extras.append(f"{(goal - so_far) * self.took / so_far:.0f} s left")
            extras.append(f"{self.ran / self.took:,.0f}/s")
        return parts + self.notes, extras

    def line(self, look: Look) -> str:
        """The bar as one line of less than `columns` cells, colours apart."""
        full_part, lost_part, open_part, cut = "━╍─…" if look.unicode else "=!-~"
        name = self.name if look.unicode else self.name.encode("ascii", "replace").decode()
        if _cells(name) > LONGEST_NAME:
            while _cells(name) >= LONGEST_NAME:
                name = name[:-1]
            name += cut
        parts, extras = self.figures()
        while True:
            text = "  ".join([*parts, *extras])
            room = look.columns - _cells(name) - len(text) - 6
            if room >= SHORTEST_BAR or not (extras or parts[2:]):
                break
            (extras or parts).pop()
        if room < SHORTEST_BAR // 2:
            return f"{name}  {text}"[: look.columns - 1 - _cells(name) + len(name)]
        room = min(room, LONGEST_BAR)
        so_far, goal = self.goal()
        reached = room * so_far // goal if goal else room
        full = reached if self.needed is not None or not goal else room * self.good // goal

        def paint(code: int, part: str) -> str:
            return f"\x1b[{code}m{part}\x1b[0m" if look.colour and part else part

        bar = paint(32, full_part * full) + paint(31, lost_part * (reached - full))
        return f"{name} {bar}{paint(2, open_part * (room - reached))}  {text}"

    def page(self) -> str:
        """The bar as HTML, for a notebook."""
        so_far, goal = self.goal()
        parts, extras = self.figures()
        return (
            f"<div>{html.escape(self.name)} <progress value='{so_far}' max='{max(1, goal)}'></progress> "
            f"{html.escape(', '.join([*parts, *extras]))}</div>"
        )


def _printable(name: object) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in str(name))


def _cells(text: str) -> int:
    """How wide a terminal shows it."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


class Board:
    """The bars on the screen, and the thread that redraws them while there are any."""

    def __init__(self) -> None:
        # A signal's handler may watch a set while this very thread draws.
        self.lock = threading.RLock()
        self.bars: list[Bar] = []
        self.drawn = 0
        self.thread: threading.Thread | None = None
        self.bell = threading.Event()
        self.stopped = False

    def add(self, bar: Bar) -> None:
        with self.lock:
            self.bars.append(bar)
            if self.thread is None and not self.stopped:
                self.thread = threading.Thread(target=self.run, name="shoal-progress", daemon=True)
                self.thread.start()

    def run(self) -> None:
        while True:
            self.bell.wait(INTERVAL)
            self.bell.clear()
            with self.lock:
                if not self.stopped:
                    self.draw()
                if self.stopped or not self.bars:
                    self.thread = None
                    return

    def draw(self) -> None:
        """Writes every bar anew; those that ended stay above as their last line. Called with the lock held."""
        for bar in self.bars:
            bar.look()
        try:
            self.draw_notebook([bar for bar in self.bars if bar.display is not None])
            self.draw_terminal([bar for bar in self.bars if bar.display is None])
        except Exception:
            # The terminal or the notebook went away. Nobody looks any more, and no work may suffer from that.
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
        look = _look()
        over = [bar.line(look) for bar in bars if bar.ended]
        live = [bar.line(look) for bar in bars if not bar.ended]
        # Written over in place, in one piece, so that nothing flickers. The cursor stays at the end of the last bar,
        # not below it: what others print begins there, and the next bar stands below that instead of over it.
        up = f"\x1b[{self.drawn - 1}A" if self.drawn > 1 else ""
        text = "\n".join(f"{line}\x1b[K" for line in over + live)
        sys.stderr.write(f"\r{up}{text}" + ("  " if live else "\n") + "\x1b[J")
        sys.stderr.flush()
        self.drawn = len(live)

    def finish(self) -> None:
        """At exit: the thread ends before the interpreter takes stderr away, and the last state is drawn."""
        self.stopped = True
        self.bell.set()
        thread = self.thread
        if thread is not None:
            thread.join(0.2)
        if self.lock.acquire(timeout=0.2):
            try:
                self.draw()
                if self.drawn:
                    sys.stderr.write("\n")
                    self.drawn = 0
            except (OSError, ValueError):
                pass  # stderr is closed
            finally:
                self.lock.release()


_board = Board()
atexit.register(lambda: _board.finish())


def _start_afresh() -> None:
    global _board
    _board = Board()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def _look() -> Look:
    """How stderr wants its bars: its width, no colours with NO_COLOR, and plain letters where it has no others."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stderr.fileno()).columns)
    except (OSError, ValueError):
        columns = 0
    try:
        "━╍─…".encode(getattr(sys.stderr, "encoding", None) or "utf-8")
        unicode = True
    except (UnicodeEncodeError, LookupError):
        unicode = False
    return Look(columns if columns > 0 else 80, "NO_COLOR" not in os.environ, unicode)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _on_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (ValueError, AttributeError):  # closed, or none of Python's own files
        return False


def watch(instances: Watched) -> None:
    """Draws a live bar for this set until it ends, and returns at once. Does nothing where output is no terminal."""
    # Work goes on where it cannot be shown: in a notebook without a display, on a stderr of somebody's own.
    with contextlib.suppress(Exception):
        _watch(instances)


def _watch(instances: Watched) -> None:
    if _in_notebook():
        from IPython.display import HTML, display

        bar = Bar(instances)
        bar.display = display(HTML(bar.page()), display_id=True)
    elif _on_terminal():
        bar = Bar(instances)
    else:
        return
    board = _board
    board.add(bar)
    on_decided = getattr(instances, "on_decided", None)
    if on_decided is not None and instances.state != "active":
        # The last line is drawn as soon as there is one: what the caller prints next should stand below it.
        on_decided(lambda _: board.bell.set())


def refresh() -> None:
    """Redraws now, so that what is printed next stands below the bars of the sets that have ended."""
    with _board.lock:
        _board.draw()

"""The reference: what a set is, in plain Python, one step at a time. Written from semantics.md, not from the code.

It knows no threads. `workers` bodies run at once, begun in the order of their index; every step leaves it settled.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Join:
    """When the gate fires: exactly one of the three is set, or none for `all_of`."""

    n: int | None = None
    fraction: float | None = None
    weights: tuple[int, ...] | None = None
    at_least: int = 0
    or_all: bool = False


@dataclass(frozen=True)
class OnFailure:
    """When the gate fails: `kind` is fail_fast, fail_late, continue, tolerate or tolerate_fraction."""

    kind: str
    n: int = 0
    fraction: float = 0.0
    after: int = 0


@dataclass
class SetModel:
    """A set, its gate and its instances."""

    workers: int
    join: Join
    rest: str
    on_failure: OnFailure
    seal_mode: str
    statuses: list[str] = field(default_factory=list)
    open: bool = True
    gate: str = "waiting"
    order: list[int] = field(default_factory=list)

    def create(self, count):
        """What `spawn` does with its first instances."""
        self.statuses = ["pending"] * count
        if self.seal_mode == "at_once":
            self.open = False
        self._judge()
        self._begin()

    @property
    def state(self):
        """The state of the set."""
        if self.gate != "waiting":
            return self.gate
        return "active" if self.open else "running"

    def number(self, *states):
        """How many instances are in one of these states."""
        return sum(status in states for status in self.statuses)

    @property
    def left(self):
        """How many are not terminal."""
        return self.number("pending", "running")

    @property
    def running(self):
        """The indices whose bodies have begun and not ended."""
        return [i for i, status in enumerate(self.statuses) if status == "running"]

    def counts(self):
        """The counts, in the order of `shoal.Counts`."""
        return tuple(self.number(s) for s in ("pending", "running", "completed", "failed", "cancelled", "timed_out"))

    def add(self, count):
        """Creates more; whether it was allowed."""
        if not self.open:
            return False
        self.statuses += ["pending"] * count
        self._begin()
        return True

    def seal(self):
        """Makes the count final."""
        if self.open:
            self.open = False
            self._judge()
            self._begin()

    def settle(self, index, outcome):
        """A body that runs ends so."""
        assert self.statuses[index] == "running"
        self.statuses[index] = outcome
        self.order.append(index)
        self._judge()
        if self.open and self.seal_mode == "when_idle" and self.left == 0:
            self.seal()
        self._begin()

    def cancel(self):
        """Pattern 26."""
        self._end("cancelled")

    def complete(self):
        """Pattern 27."""
        self._end("fired")

    def _end(self, gate):
        if self.gate == "waiting":
            self.gate = gate
        self.open = False
        self._cancel_pending()

    def _begin(self):
        for index, status in enumerate(self.statuses):
            if len(self.running) >= self.workers:
                return
            if status == "pending":
                self.statuses[index] = "running"

    def _cancel_pending(self):
        self.statuses = ["cancelled" if status == "pending" else status for status in self.statuses]

    def _judge(self):
        """Decides the gate if the last step made it decidable."""
        if self.gate != "waiting":
            return
        if self._failed_too_much() or self._unmeetable():
            self._decide("failed")
        elif self._met():
            self._decide("fired")

    def _decide(self, gate):
        self.gate = gate
        self.open = False
        if self.rest == "cancel":
            self._cancel_pending()

    @property
    def _all_terminal(self):
        return not self.open and self.left == 0

    def _failed_too_much(self):
        failed, completed = self.number("failed", "timed_out"), self.number("completed")
        match self.on_failure:
            case OnFailure("fail_fast"):
                return failed >= 1
            case OnFailure("fail_late"):
                return self._all_terminal and failed >= 1 and not self._reached()
            case OnFailure("tolerate", n):
                return failed > n
            case OnFailure("tolerate_fraction", _, fraction, after):
                ended = failed + completed
                return ended >= after and Fraction(failed) > Fraction(fraction) * ended
        return False

    def _needed(self):
        """How many have to complete, or None where that is not (yet) a number."""
        if self.join.fraction is not None:
            return None if self.open else math.ceil(Fraction(self.join.fraction) * len(self.statuses))
        return self.join.n

    def _weight(self, *states):
        return sum(w for w, status in zip(self.join.weights, self.statuses, strict=True) if status in states)

    def _reached(self):
        """The threshold, where there is one, is reached."""
        if self.join.weights is not None:
            return self._weight("completed") >= self.join.at_least
        needed = self._needed()
        return needed is not None and self.number("completed") >= needed

    def _is_all_of(self):
        return self.join.n is None and self.join.fraction is None and self.join.weights is None

    def _met(self):
        if self._is_all_of() or self.join.or_all:
            return self._reached() or self._all_terminal
        return self._reached()

    def _unmeetable(self):
        if self.open or self._is_all_of() or self.join.or_all:
            return False
        if self.join.weights is not None:
            return self._weight("completed", "pending", "running") < self.join.at_least
        return self.number("completed", "pending", "running") < self._needed()

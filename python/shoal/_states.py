"""States, counts and outcomes: plain values."""

from __future__ import annotations

import datetime
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class InstanceState(StrEnum):
    """Where an instance is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class GateState(StrEnum):
    """`waiting`, then what the gate was decided as."""

    WAITING = "waiting"
    FIRED = "fired"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class SetState(StrEnum):
    """`active` while a set is open, `running`, then what its gate was decided as."""

    ACTIVE = "active"
    RUNNING = "running"
    FIRED = "fired"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class CaseState(StrEnum):
    """Where a case is in its life."""

    ACTIVE = "active"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class Counts(NamedTuple):
    """How many instances are in each state, at one moment.

    >>> Counts(pending=3, completed=2).total
    5
    """

    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    timed_out: int = 0

    @property
    def total(self) -> int:
        """The number created."""
        return sum(self)


class Outcome(NamedTuple, Generic[T]):
    """What became of one instance."""

    index: int  # type: ignore[assignment]  # hides the method of tuples
    item: Any
    status: InstanceState
    value: T | None
    error: BaseException | None


class Policy(NamedTuple):
    """How a set is joined, in words."""

    join: str
    rest: str
    on_failure: str


class Limits(NamedTuple):
    """How many instances a set, and all sets of a case together, may have."""

    max_instances: int = 10_000_000
    max_case_instances: int = 100_000_000


def summary(values: dict[int, Any], errors: dict[int, BaseException], counts: Counts) -> dict[str, Any]:
    """What `InstanceSet.summary()` gives."""
    return {
        "results": values,
        "errors": errors,
        "total_children": counts.total,
        "success_count": counts.completed,
        "failure_count": counts.failed + counts.timed_out,
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat(),
        **counts._asdict(),
    }


for _class in (InstanceState, GateState, SetState, CaseState, Counts, Outcome, Policy, Limits):
    _class.__module__ = "shoal"
del _class

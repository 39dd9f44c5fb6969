"""Run one task a million times, and know when enough of them are done.

>>> import shoal
>>> shoal.map(lambda n: n * n, range(5))
[0, 1, 4, 9, 16]
"""

import atexit as _atexit

from shoal._errors import (
    Cancelled,
    CountError,
    EngineClosed,
    ForkedEngine,
    InstanceError,
    JoinError,
    KernelError,
    LimitError,
    PanicError,
    SealedError,
    SetCancelled,
    SetFailed,
    SetTimedOut,
    ShoalError,
)
from shoal._native import (
    Case,
    Cases,
    Current,
    Engine,
    Event,
    Gate,
    InstanceSet,
    Join,
    Kernel,
    Outcomes,
    Ticks,
    Tolerance,
    all_of,
    any_of,
    at_least,
    current,
    default_engine,
    detached,
    map,
    spawn,
    tolerate,
    weighted,
)
from shoal._native import _close_all as _close_all
from shoal._states import CaseState, Counts, GateState, InstanceState, Limits, Outcome, Policy, SetState

from shoal import kernels, patterns  # isort: skip
from shoal._kernel import kernel  # isort: skip

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "Case",
    "CaseState",
    "Cases",
    "CountError",
    "Counts",
    "Current",
    "Engine",
    "EngineClosed",
    "Event",
    "ForkedEngine",
    "Gate",
    "GateState",
    "InstanceError",
    "InstanceSet",
    "InstanceState",
    "Join",
    "JoinError",
    "Kernel",
    "KernelError",
    "LimitError",
    "Limits",
    "Outcome",
    "Outcomes",
    "PanicError",
    "Policy",
    "SealedError",
    "SetCancelled",
    "SetFailed",
    "SetState",
    "SetTimedOut",
    "ShoalError",
    "Ticks",
    "Tolerance",
    "all_of",
    "any_of",
    "at_least",
    "current",
    "default_engine",
    "detached",
    "kernel",
    "kernels",
    "map",
    "patterns",
    "spawn",
    "tolerate",
    "weighted",
]

# Workers are asked to stop and given a second before the interpreter goes.
_atexit.register(_close_all)

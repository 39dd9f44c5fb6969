"""Tells an exception that a signal's handler raised in the middle of a body from one that the body raised itself."""

from __future__ import annotations

import opcode
from inspect import CO_VARARGS
from itertools import pairwise
from types import FrameType, TracebackType

_RAISES = {opcode.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in opcode.opmap}


def raised_by_handler(error: BaseException) -> bool:
    """Whether a handler raised it. Asked on the main thread, where handlers run, while it helps with bodies."""
    at: TracebackType | None = error.__traceback__
    last = None
    while at is not None:
        if _is_handler(at.tb_frame):
            return True
        last, at = at, at.tb_next
    if not isinstance(error, KeyboardInterrupt):
        return False
    # Python's own handler leaves no frame: what it raises appears at whatever instruction it came upon.
    return last is None or last.tb_frame.f_code.co_code[last.tb_lasti] not in _RAISES


def _is_handler(frame: FrameType) -> bool:
    """A handler is what gets a signal's number and the frame it interrupted; it may be gone from `signal` by now."""
    code, values = frame.f_code, frame.f_locals
    taken = code.co_argcount + bool(code.co_flags & CO_VARARGS)
    given: list[object] = []
    for k, name in enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 1]):
        value = values.get(name)
        if k < code.co_argcount:
            given.append(value)
        elif k == code.co_argcount + code.co_kwonlyargcount and taken > code.co_argcount:
            given.extend(value if isinstance(value, tuple) else ())
    return any(isinstance(number, int) and isinstance(at, FrameType) for number, at in pairwise(given))

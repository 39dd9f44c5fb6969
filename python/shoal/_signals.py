"""Tells an exception that a signal's handler raised in the middle of a body from one that the body raised itself."""

from __future__ import annotations

import opcode
import signal
from functools import partial
from types import CodeType, TracebackType

_RAISES = {opcode.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in opcode.opmap}


def raised_by_handler(error: BaseException) -> bool:
    """Whether a handler raised it. Asked on the main thread, where handlers run, while it helps with bodies."""
    handlers = _handlers()
    frame: TracebackType | None = error.__traceback__
    last = None
    while frame is not None:
        if frame.tb_frame.f_code in handlers:
            return True
        last, frame = frame, frame.tb_next
    if not isinstance(error, KeyboardInterrupt):
        return False
    # Python's own handler leaves no frame: what it raises appears at whatever instruction it came upon.
    return last is None or last.tb_frame.f_code.co_code[last.tb_lasti] not in _RAISES


def _handlers() -> set[CodeType]:
    codes = set()
    for number in signal.valid_signals():
        code = _code_of(signal.getsignal(number))
        if code is not None:
            codes.add(code)
    return codes


def _code_of(handler: object) -> CodeType | None:
    """The code of a function, a method, a partial, or an object that can be called."""
    while isinstance(handler, partial):
        handler = handler.func
    for function in (handler, getattr(type(handler), "__call__", None)):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None

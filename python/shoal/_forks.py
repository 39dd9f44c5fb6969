"""Ends a child process that a body forked, where the body ends: the threads to go on with are only in its parent."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import NoReturn


def end_child(error: BaseException | None) -> NoReturn:
    """Ends the process as a program would that returned or raised this, but for what is the parent's to run at exit."""
    code: object = 0
    with contextlib.suppress(Exception):
        if isinstance(error, SystemExit):
            code = error.code or 0
            if not isinstance(code, int):
                print(code, file=sys.stderr)
        elif error is not None:
            code = 1
            traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        # A stream may be None, closed, or a pipe that nobody reads.
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF if isinstance(code, int) else 1)

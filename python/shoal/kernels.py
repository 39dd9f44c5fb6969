"""Kernels that come with Shoal, for measuring: `noop` does nothing, `spin(nanoseconds)` keeps a core busy."""

from shoal import _native
from shoal._native import spin

__all__ = ["noop", "spin"]

noop = _native.noop()

"""Reads an iterator into an open set, a bounded buffer ahead, in a thread of its own: never by a worker."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal import InstanceSet

AHEAD = 1024
"""Items that are read and not yet claimed, at most."""


def feed(instances: InstanceSet[Any], iterator: Iterator[Any]) -> None:
    """Start to feed the set from the iterator; it is sealed when that ends, and its gate fails if that raises."""
    threading.Thread(target=_feed, args=(instances, iterator), name="shoal-feeder", daemon=True).start()


def _feed(instances: InstanceSet[Any], iterator: Iterator[Any]) -> None:
    try:
        try:
            for item in iterator:
                if not instances._feed((item,)) or not instances._wait_hungry(AHEAD):
                    return
        finally:
            # A generator's own end is due now, on this thread; a file, say, may be its owner's still.
            if isinstance(iterator, Generator):
                iterator.close()
    except BaseException as error:
        instances._feeder_raised(error)
    else:
        instances.seal()

"""`shoal demo`: six short scenes that show what Shoal does, with real sets and real work.

In a terminal the bars are live; elsewhere the same scenes print as plain text.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import shoal
from shoal import _native, _progress, bench

__all__ = ["show"]

T = TypeVar("T")


def paint(code: int, text: str) -> str:
    wanted = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return f"\x1b[{code}m{text}\x1b[0m" if wanted else text


def scene(title: str, code: str) -> None:
    print(f"\n{paint(1, title)}\n{paint(36, '  ' + code)}", flush=True)


def tell(text: str) -> None:
    print(f"  {text}", flush=True)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    answer = call()
    return answer, time.perf_counter() - start


def follow(instances: Any) -> str:
    """Waits for a set. Without a terminal, where there is no live bar, its counts are told as they change."""
    while (state := str(instances.wait(timeout=0.3))) == "waiting":
        if not sys.stderr.isatty():
            tell(f"{instances.counts}")
    instances.drain()
    _progress.refresh()
    return state


# The bodies


def checksum(number: int) -> int:
    return zlib.crc32(b"%d" % number)


def unpack(page: bytes) -> str:
    """Decompresses a page and names it by its hash; a damaged page raises."""
    return hashlib.sha256(zlib.decompress(page)).hexdigest()


def pages(count: int, content: bytes) -> list[bytes]:
    """Compressed pages, of which every 50th was damaged on its way."""
    good = zlib.compress(content, 1)
    broken = good[:-200] + bytes(200)
    return [broken if index % 50 == 49 else good for index in range(count)]


def mine(block: int) -> int:
    """Looks for a number whose hash begins with 16 zero bits, in a block of 4,096; most blocks have none."""
    for nonce in range(block * 4096, block * 4096 + 4096):
        if nonce % 512 == 0 and shoal.current().cancelled:
            raise shoal.Cancelled
        if hashlib.sha256(b"shoal %d" % nonce).digest()[:2] == b"\0\0":
            return nonce
    raise LookupError(f"block {block} has none")


def visit(folder: str) -> int:
    """The bytes of Python source in a folder; each folder inside becomes an instance of its own."""
    size = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in ("site-packages", "dist-packages", "__pycache__"):
                    shoal.current().add(entry.path)
            elif entry.name.endswith(".py"):
                size += len(Path(entry.path).read_bytes())
    return size


# The scenes


def show_map() -> None:
    scene("1. Like a comprehension, on all workers", "shoal.map(checksum, range(300_000))")
    numbers = range(300_000)
    plain, slow = timed(lambda: [checksum(number) for number in numbers])
    ours, fast = timed(lambda: shoal.map(checksum, numbers))
    same = "the same values" if plain == ours else "DIFFERENT VALUES"
    tell(f"comprehension {slow * 1e3:.0f} ms, shoal.map {fast * 1e3:.0f} ms: {same}, in order")


def show_failures() -> None:
    scene(
        "2. Failures are counted, nothing is lost", 'shoal.spawn(unpack, pages, on_failure="continue", progress=True)'
    )
    content = b"".join(hashlib.sha256(b"%d" % block).digest()[:8] * 6 for block in range(10_000))
    sample = pages(1, content)[0]
    cost = min(timed(lambda: unpack(sample))[1] for _ in range(5))
    count = max(100, min(5_000, int(2.0 * bench.cores() / cost)))
    instances = shoal.spawn(unpack, pages(count, content), on_failure="continue", name="unpack", progress=True)
    state = follow(instances)
    tell(f"{state}: {instances.counts}")
    index, error = next(iter(instances.errors.items()))
    tell(f"{len(instances.values):,} values kept; the first of {len(instances.errors):,} errors: page {index}: {error}")


def show_gate() -> None:
    scene(
        "3. Enough is enough: 5 of 2,000, the rest is cancelled",
        "shoal.spawn(mine, count=2_000, join=shoal.at_least(5))",
    )
    instances = shoal.spawn(mine, count=2_000, join=shoal.at_least(5), name="mine", progress=True)
    state = follow(instances)
    tell(f"{state}: {instances.counts}")
    tell(f"found {', '.join(f'{nonce:,}' for nonce in instances.result()[:5])}")


def show_growth() -> None:
    scene(
        "4. A set that grows while it runs",
        'shoal.spawn(visit, [folder], seal="when_idle")   # visit() adds what it finds',
    )
    folder = sysconfig.get_path("stdlib")
    instances = shoal.spawn(visit, [folder], seal="when_idle", name="visit", progress=True)
    state = follow(instances)
    size = sum(instances.result())
    tell(f"{state}: from 1 instance to {len(instances):,}; {size / 1e6:,.1f} MB of Python source in {folder}")


def show_million() -> None:
    count = 1_000_000
    scene("5. A million instances of a native kernel", "shoal.spawn(shoal.kernels.noop, count=1_000_000)")
    noop = shoal.kernels.noop
    shoal.spawn(noop, count=count).wait()
    best = None
    for _ in range(5):
        start = _native._ticks()
        instances = shoal.spawn(noop, count=count)
        spawned = _native._ticks()
        instances.wait()
        life = _native._ticks() - start
        best = min(best or (life, spawned - start), (life, spawned - start))
        counts = instances.counts
    assert best is not None
    life, spawn = best
    tell(f"{counts}")
    tell(f"created and spawned in {bench.ns(spawn) / 1e3:,.1f} us: {spawn / count:.2g} ticks an instance")
    each = f"{life / count:.2g} ticks, {bench.ns(life) / count:.2g} ns an instance"
    tell(f"whole life {bench.ns(life) / 1e6:,.2f} ms: {each}")


def show_figures() -> None:
    scene("6. This machine, beside its peers", "shoal bench   # all of it, with targets")
    for line in bench.table(bench.highlights()).splitlines()[1:]:
        tell(line)
    tell("")
    tell(bench.describe(bench.machine()))


def show() -> None:
    """All scenes, one after the other."""
    _, took = timed(
        lambda: [act() for act in (show_map, show_failures, show_gate, show_growth, show_million, show_figures)]
    )
    print(f"\n{took:.0f} s. Next: README.md, and `shoal bench --plot figures.svg`.")

"""`shoal bench`: Shoal beside its peers, on this machine.

Every figure stands beside a peer's that was measured in the same run, turn by turn, and is the best of several. The
peers in Rust (a plain loop, rayon) are measured by `_native._bench`, with the counter of `_native._ticks`.
"""

from __future__ import annotations

import array
import asyncio
import gc
import importlib.util
import json
import math
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from multiprocessing.pool import ThreadPool
from pathlib import Path
from statistics import median
from typing import Any

import shoal
from shoal import _native, _plot

__all__ = ["Row", "highlights", "measure", "run", "table"]

LOOP, PAR_ITER, RAYON_SPAWN = "plain loop", "rayon par_iter", "rayon scope.spawn"
RUST_PEERS = {LOOP: "loop", PAR_ITER: "par_iter", RAYON_SPAWN: "rayon_spawn"}
COMPREHENSION, EXECUTOR, POOL = "list comprehension", "ThreadPoolExecutor.map", "ThreadPool.map, chunks"
TASK_GROUP, JOBLIB, SUBMIT = "asyncio.TaskGroup", "joblib threads", "ThreadPoolExecutor.submit"
STATIC = "split in equal parts"
OURS = "Shoal"

LIFE = "A native kernel: created, run, counted"
CREATION = "Creation and spawn, a native kernel"
FUNCTION = "A Python function"
TARGETS = "What the design was asked for"
BUDGET = "Budget"

Run = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: our figure, a peer's, and where there is one the target and whether it was met."""

    group: str
    what: str
    count: int
    unit: str
    figure: float
    peer: str
    peer_figure: float
    target: str = ""
    ok: bool | None = None

    @property
    def ratio(self) -> float:
        """Our figure over the peer's."""
        return self.figure / self.peer_figure if self.peer_figure else math.inf

    def beside(self) -> str:
        """The ratio in words.

        >>> Row("", "", 1, "ns", 50.0, "threads", 20_000.0).beside()
        '400x faster'
        """
        less, more = {"bytes": ("smaller", "larger"), "%": ("lower", "higher")}.get(self.unit, ("faster", "slower"))
        ratio = self.ratio
        if ratio <= 0 or not math.isfinite(ratio):
            return ""
        size, word = (1 / ratio, less) if ratio < 1 else (ratio, more)
        return f"{size:,.0f}x {word}" if size >= 100 else f"{size:.3g}x {word}"


# Measuring


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gil() -> bool:
    """Whether Python code runs on one core at a time."""
    enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return enabled is None or enabled()


@cache
def ns_per_tick() -> float:
    """How long a tick of the counter is, by the clock."""
    clock, ticks = time.perf_counter_ns(), _native._ticks()
    while time.perf_counter_ns() - clock < 50_000_000:
        pass
    return (time.perf_counter_ns() - clock) / (_native._ticks() - ticks)


def ns(ticks: float) -> float:
    return ticks * ns_per_tick()


def ticks_of(call: Callable[[], object], repeats: int = 1) -> float:
    """The ticks of a call, the best of some in a row."""
    best = math.inf
    for _ in range(repeats):
        start = _native._ticks()
        call()
        best = min(best, _native._ticks() - start)
    return best


def interleave(runs: Mapping[str, Run], *, seconds: float, least: int = 3, most: int = 100) -> dict[str, float]:
    """The best of each run, in turns: all of them meet the same weather.

    >>> interleave({"one": lambda: 1.0, "two": lambda: 2.0}, seconds=0)
    {'one': 1.0, 'two': 2.0}
    """
    best = dict.fromkeys(runs, math.inf)
    start = time.perf_counter()
    for turn in range(most):
        for name, once in runs.items():
            best[name] = min(best[name], once())
        if turn + 1 >= least and time.perf_counter() - start >= seconds:
            break
    return best


def say(text: str) -> None:
    """What is being measured, where somebody is looking."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


# Native kernels


def life(count: int, peers: Iterable[str], seconds: float) -> dict[str, float]:
    """Ticks an instance, from the call to its return, ours and the peers'."""
    repeats = 5 if count <= 100_000 else 1
    noop = shoal.kernels.noop
    runs: dict[str, Run] = {OURS: lambda: ticks_of(lambda: shoal.map(noop, count=count), repeats)}
    for peer in peers:
        runs[peer] = lambda name=RUST_PEERS[peer]: float(_native._bench(name, count, repeats))  # type: ignore[misc]
    return {name: ticks / count for name, ticks in interleave(runs, seconds=seconds).items()}


def life_rows(sizes: Sequence[int], seconds: float) -> list[Row]:
    rows = []
    mine: dict[int, dict[str, float]] = {}
    for count in sizes:
        say(f"a native kernel, {count:,} instances")
        mine[count] = life(count, RUST_PEERS, seconds)
        figure = mine[count][OURS]
        for peer in RUST_PEERS:
            theirs = mine[count][peer]
            target, ok = "", None
            if peer == LOOP and count in (1_000, 1_000_000):
                ticks, factor = (8, 1.7) if count == 1_000 else (5, 1.45)
                target, ok = f"<= {ticks} ticks or {factor}x", figure <= max(ticks, factor * theirs)
            elif peer == PAR_ITER:
                target, ok = "not slower", round(figure / theirs, 2) <= 1
            rows.append(Row(LIFE, "map(kernels.noop)", count, "ticks", figure, peer, theirs, target, ok))
    small, large = 100_000, 10_000_000
    if small in mine and large in mine:
        growth, loop = (mine[large][name] / mine[small][name] for name in (OURS, LOOP))
        what = "an instance of 10,000,000 over one of 100,000"
        rows.append(Row(BUDGET, what, large, "x", growth, LOOP, loop, "<= 1.5x", growth <= 1.5))
    return rows


def creation(count: int, seconds: float) -> dict[str, float]:
    """Ticks an instance until `spawn` has returned, with the pool awake; the wait for the set is not in it."""
    noop = shoal.kernels.noop

    def ours() -> float:
        shoal.spawn(noop, count=200_000).wait()
        start = _native._ticks()
        instances = shoal.spawn(noop, count=count)
        took = _native._ticks() - start
        instances.wait()
        return took

    with ThreadPoolExecutor(cores()) as pool:

        def submit() -> float:
            start = _native._ticks()
            futures = [pool.submit(int) for _ in range(few)]
            took = _native._ticks() - start
            for future in futures:
                future.result()
            return took * count / few

        few = min(count, 10_000)
        runs: dict[str, Run] = {OURS: ours, SUBMIT: submit}
        runs[LOOP] = lambda: float(_native._bench("loop", count, 1))
        return {name: ticks / count for name, ticks in interleave(runs, seconds=seconds).items()}


def creation_rows(sizes: Sequence[int], seconds: float) -> list[Row]:
    rows = []
    for count in sizes:
        say(f"creation and spawn, {count:,} instances")
        best = creation(count, seconds)
        figure = best[OURS]
        budget = ("<= 1 tick", figure <= 1)
        rows.append(Row(CREATION, "spawn(kernels.noop)", count, "ticks", figure, LOOP, best[LOOP], *budget))
        rows.append(Row(CREATION, "spawn(kernels.noop)", count, "ticks", figure, SUBMIT, best[SUBMIT]))
        if count == 1_000:
            peer = (SUBMIT, best[SUBMIT])
            rows.append(Row(TARGETS, "creation and spawn", count, "ticks", figure, *peer, "<= 8 ticks", figure <= 8))
            time_ns, peer_ns = ns(figure), ns(best[SUBMIT])
            rows.append(Row(TARGETS, "spawn", count, "ns", time_ns, SUBMIT, peer_ns, "< 100 ns", time_ns < 100))
    return rows


# Python functions


def same(x: int) -> int:
    """The body of the Python rows: all that is measured is what stands around it."""
    return x


def python_runs(count: int, pool: ThreadPoolExecutor, threads: Any) -> dict[str, Run]:
    """One whole run of `same` over `count` items for each way to do it; each gives its ticks."""
    items = list(range(count))

    async def one(x: int) -> int:
        return x

    async def group() -> float:
        start = _native._ticks()
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(one(x)) for x in items]
        [task.result() for task in made]
        return _native._ticks() - start

    runs: dict[str, Run] = {
        OURS: lambda: ticks_of(lambda: shoal.map(same, items)),
        COMPREHENSION: lambda: ticks_of(lambda: [same(x) for x in items]),
        POOL: lambda: ticks_of(lambda: threads.map(same, items)),
        EXECUTOR: lambda: ticks_of(lambda: list(pool.map(same, items))),
        TASK_GROUP: lambda: asyncio.run(group()),
    }
    if importlib.util.find_spec("joblib"):
        import joblib

        parallel = joblib.Parallel(n_jobs=cores(), prefer="threads")
        runs[JOBLIB] = lambda: ticks_of(lambda: parallel(joblib.delayed(same)(x) for x in items))
    return runs


def python_target(peer: str, ratio: float) -> tuple[str, bool | None]:
    if peer == COMPREHENSION and gil():
        return "<= 1.2x", ratio <= 1.2
    if peer == COMPREHENSION:
        return f"> {0.8 * cores():.1f}x faster", ratio * 0.8 * cores() < 1
    if peer == POOL:
        return "not slower", round(ratio, 2) <= 1
    if peer == EXECUTOR:
        return ">= 150x faster", ratio * 150 <= 1
    return "", None


def python_rows(sizes: Sequence[int], seconds: float, peers: Sequence[str] | None = None) -> list[Row]:
    rows = []
    with ThreadPoolExecutor(cores()) as pool, ThreadPool(cores()) as threads:
        for count in sizes:
            say(f"a Python function, {count:,} instances")
            runs = python_runs(count, pool, threads)
            if peers is not None:
                runs = {name: once for name, once in runs.items() if name == OURS or name in peers}
            best = {name: ns(ticks) / count for name, ticks in interleave(runs, seconds=seconds).items()}
            figure = best.pop(OURS)
            for peer, theirs in best.items():
                target, ok = python_target(peer, figure / theirs)
                rows.append(Row(FUNCTION, "map(function)", count, "ns", figure, peer, theirs, target, ok))
        for count, bound in ((1_000, 100.0), (10, 1.0)):
            runs = python_runs(count, pool, threads)
            best = interleave({name: runs[name] for name in (OURS, EXECUTOR)}, seconds=seconds / 4)
            mine, theirs = (ns(best[name]) / 1e6 for name in (OURS, EXECUTOR))
            what = f"{count:,} instances, a Python function"
            rows.append(Row(TARGETS, what, count, "ms", mine, EXECUTOR, theirs, f"< {bound:g} ms", mine < bound))
    return rows


# Busy cores


def uint32(values: Sequence[int]) -> Any:
    """What `kernels.spin` takes: the nanoseconds of each instance."""
    return array.array("I", values)


def wall_and_busy(call: Callable[[], object]) -> tuple[float, float]:
    """The seconds of a call, and the share of all cores that this process used meanwhile."""
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    took = time.perf_counter() - wall
    return took, (time.process_time() - cpu) / (took * cores())


def skewed_rows(repeats: int) -> list[Row]:
    """A load whose last tenth takes 200 times as long as the rest, shared as ranges and split in equal parts."""
    say("a skewed load")
    count = 10_000
    nanoseconds = [1_000] * (count * 9 // 10) + [200_000] * (count // 10)
    ideal = sum(nanoseconds) / cores() / 1e9
    spin = shoal.kernels.spin(uint32(nanoseconds))
    part = math.ceil(count / cores())
    ways: dict[str, Callable[[], object]] = {
        OURS: lambda: shoal.map(spin, count=count),
        STATIC: lambda: shoal.map(spin, count=count, chunk=part),
    }
    best = dict.fromkeys(ways, (math.inf, 0.0))
    for _ in range(repeats):
        for name, call in ways.items():
            best[name] = min(best[name], wall_and_busy(call))
    busy, static_busy = (100 * best[name][1] for name in (OURS, STATIC))
    efficiency, static = (100 * ideal / best[name][0] for name in (OURS, STATIC))
    # Much above 100 % nothing was stolen well: more threads than cores spun against the clock, and the figure is void.
    stole = 80 < efficiency < 105
    load = "a skewed native load"
    return [
        Row(TARGETS, f"busy cores, {load}", count, "%", busy, STATIC, static_busy, "> 80 %", busy > 80),
        Row(TARGETS, f"work stealing, {load}", count, "%", efficiency, STATIC, static, "> 80 %", stole),
        Row(BUDGET, f"busy cores, {load}", count, "%", busy, STATIC, static_busy, "> 95 %", busy > 95),
    ]


def synchronisation_rows(seconds: float) -> list[Row]:
    """Bodies of a microsecond on all workers, beside the same in one piece over the number of cores."""
    say("synchronisation")
    count = 100_000
    spin = shoal.kernels.spin(uint32([1_000] * count))
    runs: dict[str, Run] = {
        OURS: lambda: ticks_of(lambda: shoal.map(spin, count=count)),
        LOOP: lambda: ticks_of(lambda: shoal.map(spin, count=count, chunk=count)),
    }
    best = interleave(runs, seconds=seconds)
    mine, ideal = ns(best[OURS]) / 1e6, ns(best[LOOP]) / 1e6 / cores()
    share = 1 - ideal / mine
    what = f"synchronisation: {share:.1%} of a run, 1 us bodies"
    return [Row(TARGETS, what, count, "ms", mine, "one piece / cores", ideal, "< 10 % of it", share < 0.1)]


# The rest of the budget


def wake_up_rows(samples: int) -> list[Row]:
    """From the call to the first body, after a pause in which every pool has gone to sleep; the median."""
    say("waking a parked pool")
    began = 0
    awake = threading.Event()

    def body(_: object = None) -> None:
        nonlocal began
        began = _native._ticks()
        awake.set()

    def sample(start_body: Callable[[], object]) -> float:
        awake.clear()
        time.sleep(0.02)  # the pause is what is measured after: pools park
        start = _native._ticks()
        handle = start_body()
        awake.wait()
        del handle
        return ns(began - start) / 1e3

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        pairs = [
            (sample(lambda: shoal.spawn(body, count=1)), sample(lambda: pool.submit(body))) for _ in range(samples)
        ]
    mine, theirs = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    what = "waking a parked pool, to the first body"
    return [Row(BUDGET, what, 1, "us", mine, SUBMIT, theirs, "< 100 us", mine < 100)]


def resident() -> int:
    """The bytes of memory that this process has."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024


def memory_of_this_process(count: int) -> tuple[float, float]:
    """Bytes an instance, native and finished, and a pending future. For a process that has done nothing else."""
    shoal.spawn(shoal.kernels.noop, count=1_000).wait()
    before = resident()
    instances = shoal.spawn(shoal.kernels.noop, count=count)
    instances.wait()
    mine = (resident() - before) / count
    del instances

    futures = 50_000
    release = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(release.wait)
        before = resident()
        held = [pool.submit(int) for _ in range(futures)]
        theirs = (resident() - before) / futures
        release.set()
        del held
    return mine, theirs


def memory_rows(count: int) -> list[Row]:
    say("memory")
    code = f"import json; from shoal import bench; print(json.dumps(bench.memory_of_this_process({count})))"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    mine, theirs = json.loads(answer)
    # Its state alone is a byte: less means that memory from before was used again, and the figure is void.
    ok = 1 <= mine <= 16
    return [Row(BUDGET, "memory of an instance", count, "bytes", mine, SUBMIT, theirs, "<= 16 bytes", ok)]


# All of it


def measure(*, quick: bool = False) -> list[Row]:
    """All rows, group by group. Quick: fewer sizes and turns, and no set of ten million."""
    decades = [10**power for power in range(2, 8)]
    seconds = 0.15 if quick else 1.0
    gc.collect()
    gc.disable()
    try:
        ns_per_tick()
        rows = [
            *life_rows([1_000, 100_000, 1_000_000] if quick else decades, seconds),
            *creation_rows([1_000] if quick else [1_000, 100_000, 1_000_000], seconds),
            *python_rows([1_000] if quick else [1_000, 100_000], seconds),
            *skewed_rows(3 if quick else 7),
            *synchronisation_rows(seconds),
            *wake_up_rows(21 if quick else 101),
            *memory_rows(1_000_000 if quick else 10_000_000),
        ]
    finally:
        gc.enable()
        say("")
    order = [LIFE, CREATION, FUNCTION, TARGETS, BUDGET]
    return sorted(rows, key=lambda row: order.index(row.group))


def highlights() -> list[Row]:
    """A few rows in about a second, for the demonstration."""
    ns_per_tick()
    count = 100_000
    native = life(count, RUST_PEERS, 0.2)
    rows = [Row(LIFE, "map(kernels.noop)", count, "ticks", native[OURS], peer, native[peer]) for peer in RUST_PEERS]
    rows += python_rows([1_000], 0.2, [COMPREHENSION, POOL, EXECUTOR, TASK_GROUP])
    say("")
    return [row for row in rows if row.group != TARGETS]


# Showing


def number(value: float) -> str:
    """A figure as the table shows it.

    >>> number(0.1428), number(7.5), number(20_700.4)
    ('0.143', '7.5', '20,700')
    """
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """The rows as text, under a heading for each group."""
    head = ("", "instances", OURS, "peer", "", "", "target", "")
    lines = [
        (
            row.what,
            f"{row.count:,}",
            f"{number(row.figure)} {row.unit}",
            row.peer,
            f"{number(row.peer_figure)} {row.unit}",
            row.beside(),
            row.target,
            {True: "ok", False: "MISSED", None: ""}[row.ok],
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    right = {1, 2, 4, 5}

    def join(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    shown = [join(head)]
    group = ""
    for row, line in zip(rows, lines, strict=True):
        if row.group != group:
            group = row.group
            shown += ["", group]
        shown.append(join(line))
    return "\n".join(shown)


def verdict(rows: Sequence[Row]) -> str:
    """How many targets were met, and which were not."""
    judged = [row for row in rows if row.ok is not None]
    missed = [row for row in judged if not row.ok]
    text = f"{len(judged) - len(missed)} of {len(judged)} targets met"
    return text + "".join(
        f"\n  missed: {row.what}, {row.count:,} instances: {number(row.figure)} {row.unit}, "
        f"{row.beside()} than {row.peer}, target {row.target}"
        for row in missed
    )


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "shoal": version("shoal"),
        "python": platform.python_version() + ("" if gil() else " free-threaded"),
        "system": platform.system(),
        "processor": model,
        "cores": cores(),
        "ns_per_tick": round(ns_per_tick(), 4),
    }


def describe(facts: Mapping[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"Shoal {facts['shoal']}, Python {facts['python']}, {facts['processor']}, {facts['cores']} cores; "
        f"1 tick is {facts['ns_per_tick']:.3g} ns"
    )


def chart(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """The whole life of an instance, ours and the peers', as an SVG: the largest set that both groups have."""
    groups = []
    for group, title in ((LIFE, "a native kernel"), (FUNCTION, "a Python function")):
        mine = [row for row in rows if row.group == group]
        if not mine:
            continue
        common = 1_000_000 if group == LIFE else 100_000
        sizes = {row.count for row in mine}
        count = common if common in sizes else max(sizes)
        mine = [row for row in mine if row.count == count]
        scale = ns_per_tick() if mine[0].unit == "ticks" else 1.0
        bars = [_plot.Bar(OURS, mine[0].figure * scale, ours=True)]
        bars += [_plot.Bar(row.peer, row.peer_figure * scale) for row in mine]
        groups.append(_plot.Group(f"{title}, {count:,} instances", sorted(bars, key=lambda bar: bar.value)))
    return _plot.bar_chart("Time for each instance, shorter is better", describe(facts), groups)


def run(*, quick: bool = False, plot: Path | None = None, json_file: Path | None = None) -> int:
    """Measures, prints the table, and writes the files that were asked for."""
    facts = machine()
    print(describe(facts))
    rows = measure(quick=quick)
    print(f"\n{table(rows)}\n\n{verdict(rows)}")
    if json_file is not None:
        content = {"machine": facts, "quick": quick, "rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}
        json_file.write_text(json.dumps(content, indent=2) + "\n")
    if plot is not None:
        plot.write_text(chart(rows, facts))
    return 0

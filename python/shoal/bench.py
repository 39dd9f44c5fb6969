"""`shoal bench`: Shoal beside its peers, on this machine.

Every figure stands beside a peer's that was measured in the same run, turn by turn, and is the best of several (waking
and Ctrl-C: the median). The peers in Rust (a plain loop, rayon) are measured by `_native._bench`, with the counter of
`_native._ticks`. Nothing here is tuned to a machine: what misses its bound is shown as missed.
"""

from __future__ import annotations

import array
import asyncio
import gc
import importlib.util
import json
import math
import operator
import os
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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

OURS = "Shoal"
LOOP, PAR_ITER, RAYON_SPAWN = "plain loop", "rayon par_iter", "rayon spawn"
RUST_PEERS = {LOOP: "loop", PAR_ITER: "par_iter", RAYON_SPAWN: "rayon_spawn"}
COMPREHENSION, BUILTIN = "comprehension", "list(map(...))"
EXECUTOR, SUBMIT, POOL = "Executor.map", "Executor.submit", "ThreadPool.map"
TASK_GROUP, JOBLIB = "TaskGroup", "joblib threads"
FUTURES, TASKS = "futures", "asyncio tasks"
NATIVE, VALUES = "native", "values"
STATIC, ONE_BY_ONE, AWAKE = "equal split", "chunk=1", "pool awake"

LIFE = "Whole life of a native kernel: created, run, counted"
CREATION = "Creation and spawn of a native kernel, until the call returns"
FUNCTION = "A Python function that returns its argument"
MEMORY = "Memory of an instance"
TARGETS = "What the design was asked for"
BUDGET = "Budget"

EXPLAINED = """\
Time and memory are for one instance where nothing else is said. Rayon does the same bookkeeping: a
state for each call, a gate told. The interpreter runs a call in a comprehension as its own code;
what calls it from outside pays for list(map(...)) at least. Executor is
concurrent.futures.ThreadPoolExecutor, ThreadPool that of multiprocessing.pool, in chunks, TaskGroup
that of asyncio; those that take microseconds for each run 10,000 at most. Worst is the size that
comes off worst beside its peer. Synchronisation and gate are all time of the workers outside
bodies: waking, claiming, settling, the gate, the idle end."""

# What the table has no room for.
IN_FULL = {
    RAYON_SPAWN: "rayon scope.spawn",
    COMPREHENSION: "list comprehension",
    EXECUTOR: "ThreadPoolExecutor.map",
    POOL: "ThreadPool.map, chunks",
    TASK_GROUP: "asyncio.TaskGroup",
}

Run = Callable[[], float]
Verdict = tuple[str, bool, float]

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: our figure, a peer's, and where there is one the bound and whether it was met."""

    group: str
    what: str
    count: int
    unit: str
    figure: float
    peer: str
    peer_figure: float
    target: str = ""
    ok: bool | None = None
    off: float = 0.0
    """What is judged over its bound (or the bound over it, where more is better): above 1 it is missed by so much."""

    @property
    def ratio(self) -> float:
        """Our figure over the peer's."""
        return self.figure / self.peer_figure if self.peer_figure else math.inf

    def beside(self) -> str:
        """The ratio in words.

        >>> Row("", "", 1, "ns", 50.0, "threads", 20_000.0).beside()
        '400x faster'
        """
        less, more = {"bytes": ("less", "more"), "%": ("lower", "higher"), "x": ("less", "more")}.get(
            self.unit, ("faster", "slower")
        )
        ratio = self.ratio
        if ratio <= 0 or not math.isfinite(ratio):
            return ""
        size, word = (1 / ratio, less) if ratio < 1 else (ratio, more)
        if size >= 10_000_000:
            return f"{size / 1_000_000:,.0f}Mx {word}"
        if size >= 10_000:
            return f"{size / 1_000:,.0f}kx {word}"
        return f"{size:,.0f}x {word}" if size >= 100 else f"{size:.3g}x {word}"


def judged(value: float, sign: str, limit: float, shown: str = "") -> Verdict:
    """The bound as text, whether it is met, and how far off.

    >>> judged(12, "<=", 8), judged(99, ">", 80)[:2]
    (('<= 8', False, 1.5), ('> 80', True))
    """
    off = value / limit if sign.startswith("<") else limit / value if value else math.inf
    return shown or f"{sign} {limit:g}", COMPARE[sign](value, limit), off


def not_slower(ratio: float) -> Verdict:
    return judged(round(ratio, 2), "<=", 1, "no slower")


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
    _native._ticks()  # the first call finds out how the machine counts
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


@cache
def asking() -> float:
    """The ticks between two questions for the ticks: no part of what is measured between them."""
    best = math.inf
    for _ in range(1_000):
        start = _native._ticks()
        best = min(best, _native._ticks() - start)
    return best


def interleave(runs: Mapping[str, Run], *, seconds: float, least: int = 3, most: int = 1_000) -> dict[str, float]:
    """The best of each run, in turns: all of them meet the same weather. The slow ones leave after the first turns.

    Who begins changes from turn to turn, for threads of the one before may still be on their way to sleep.

    >>> interleave({"one": lambda: 1.0, "two": lambda: 2.0}, seconds=0)
    {'one': 1.0, 'two': 2.0}
    """
    best = dict.fromkeys(runs, math.inf)
    spent = dict.fromkeys(runs, 0.0)
    start = time.perf_counter()
    names = list(runs)
    for turn in range(most):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if turn >= least and spent[name] >= seconds / 2:
                continue
            began = time.perf_counter()
            best[name] = min(best[name], runs[name]())
            spent[name] += time.perf_counter() - began
        if turn + 1 >= least and time.perf_counter() - start >= seconds:
            break
    return best


def uint32(values: Sequence[int]) -> Any:
    """What `kernels.spin` takes: the nanoseconds of each instance."""
    return array.array("I", values)


def run_apart(body: Any, count: int, **options: Any) -> Any:
    """Runs a set on the workers alone, and gives it back when it is over.

    This thread sleeps meanwhile: `kernels.spin` spins against the clock, and with more threads than cores some of
    that would be waiting, not work.
    """
    over = threading.Event()
    instances = shoal.spawn(body, count=count, **options)
    instances.on_decided(lambda *_: over.set())
    over.wait()
    instances.drain()
    return instances


@cache
def alarm() -> Any:
    """A kernel that keeps every worker busy for a moment."""
    return shoal.kernels.spin(uint32([5_000] * 8 * cores()))


def keep_awake() -> None:
    """Returns when all workers have just run something, and still look around for more."""
    instances = shoal.spawn(alarm(), count=8 * cores(), chunk=1)
    while not instances.drained:
        pass


def worker_sleeps() -> tuple[bool, int]:
    """Whether all workers sleep, and how often they went to sleep so far; where the system does not tell, yes and 0."""
    asleep, times = True, 0
    for thread in Path("/proc/self/task").glob("*/status"):
        status = thread.read_text()
        if re.match(r"Name:\tshoal-\d+\n", status):
            asleep &= "\nState:\tS" in status
            times += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return asleep, times


def let_park() -> int:
    """Keeps this thread busy, so that it stays warm, until all workers sleep; gives how often they went to."""
    start = time.perf_counter()
    while True:
        while time.perf_counter() < start + 0.002:
            pass
        asleep, times = worker_sleeps()
        if asleep or time.perf_counter() > start + 0.1:
            return times


def apart_from_this_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a function of this module in a process that has done nothing else."""
    code = f"import json; from shoal import bench; print(json.dumps(bench.{function.__name__}(*{arguments!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{function.__name__}{arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def processor_seconds() -> tuple[float, float] | None:
    """What all processes of the machine have used so far, and this one with its children; where the system tells."""
    try:
        user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


def say(text: str) -> None:
    """What is being measured, where somebody is looking."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def instances_of(count: int) -> str:
    return f"{count:,} instances"


# Native kernels


def life(count: int, peers: Sequence[str], seconds: float) -> dict[str, float]:
    """Ticks an instance, from the call to its return, ours and the peers'."""
    repeats = max(3, min(5, 1_000_000 // count))
    noop = shoal.kernels.noop
    runs: dict[str, Run] = {OURS: lambda: ticks_of(lambda: shoal.map(noop, count=count), repeats)}

    def of_peer(name: str, repeats: int) -> Run:
        return lambda: float(_native._bench(name, count, repeats))

    for peer in peers:
        runs[peer] = of_peer(RUST_PEERS[peer], 1 if peer == RAYON_SPAWN else repeats)
    return {name: ticks / count for name, ticks in interleave(runs, seconds=seconds).items()}


def life_rows(sizes: Sequence[int], seconds: float, most_spawned: int) -> list[Row]:
    rows = []
    mine: dict[int, dict[str, float]] = {}
    for count in sizes:
        say(f"a native kernel, {count:,} instances")
        mine[count] = life(count, [p for p in RUST_PEERS if p != RAYON_SPAWN or count <= most_spawned], seconds)
        figure = mine[count].pop(OURS)
        for peer, theirs in mine[count].items():
            rows.append(Row(LIFE, instances_of(count), count, "ticks", figure, peer, theirs))
        mine[count][OURS] = figure
    for count, ticks, factor in ((1_000, 8, 1.7), (1_000_000, 5, 1.45)):
        if count in mine:
            figure, loop = mine[count][OURS], mine[count][LOOP]
            # Either will do: the wider one here is the bound.
            bound = judged(figure, "<=", ticks)
            if factor * loop > ticks:
                bound = judged(figure / loop, "<=", factor, f"<= {factor:g}x")
            rows.append(Row(BUDGET, f"whole life, {count:,}", count, "ticks", figure, LOOP, loop, *bound))
    worst = max(mine, key=lambda count: mine[count][OURS] / mine[count][PAR_ITER])
    figure, theirs = mine[worst][OURS], mine[worst][PAR_ITER]
    what = f"life, worst, {worst:,}"
    rows.append(Row(BUDGET, what, worst, "ticks", figure, PAR_ITER, theirs, *not_slower(figure / theirs)))
    small, large = 100_000, 10_000_000
    if small in mine and large in mine:
        growth, loop = (mine[large][name] / mine[small][name] for name in (OURS, LOOP))
        rows.append(Row(BUDGET, "cost at 10^7 over 10^5", large, "x", growth, LOOP, loop, *judged(growth, "<=", 1.5)))
    return rows


def creation(count: int, seconds: float) -> dict[str, float]:
    """Ticks an instance until `spawn` has returned, with the pool awake; the wait for the set is not in it."""
    noop = shoal.kernels.noop

    def one() -> float:
        keep_awake()
        start = _native._ticks()
        instances = shoal.spawn(noop, count=count)
        took = _native._ticks() - start
        instances.wait()
        return took - asking()

    def ours() -> float:
        # Several in a row: the peer that was measured before has the caches.
        return min(one() for _ in range(10))

    with ThreadPoolExecutor(cores()) as pool:
        few = min(count, 10_000)

        def submit() -> float:
            start = _native._ticks()
            futures = [pool.submit(int) for _ in range(few)]
            took = _native._ticks() - start
            for future in futures:
                future.result()
            return took * count / few

        runs: dict[str, Run] = {OURS: ours, LOOP: lambda: float(_native._bench("loop", count, 1)), SUBMIT: submit}
        return {name: ticks / count for name, ticks in interleave(runs, seconds=seconds).items()}


def creation_rows(sizes: Sequence[int], seconds: float) -> list[Row]:
    rows = []
    mine = {}
    for count in sizes:
        say(f"creation and spawn, {count:,} instances")
        mine[count] = best = creation(count, seconds)
        for peer in (LOOP, SUBMIT):
            rows.append(Row(CREATION, instances_of(count), count, "ticks", best[OURS], peer, best[peer]))
    best = mine[1_000]
    figure, theirs = best[OURS], best[SUBMIT]
    bound = judged(figure, "<=", 8)
    rows.append(Row(TARGETS, "creation and spawn, each", 1_000, "ticks", figure, SUBMIT, theirs, *bound))
    each, peer_each = ns(figure), ns(theirs)
    bound = judged(each, "<", 100)
    rows.append(Row(TARGETS, "spawn, each of 1,000", 1_000, "ns", each, SUBMIT, peer_each, *bound))
    rows.append(Row(TARGETS, "spawn, the call for 1,000", 1_000, "us", each, SUBMIT, peer_each))
    worst = max(mine, key=lambda count: mine[count][OURS])
    figure, theirs = mine[worst][OURS], mine[worst][SUBMIT]
    what = f"spawn, worst, {worst:,}"
    rows.append(Row(BUDGET, what, worst, "ticks", figure, SUBMIT, theirs, *judged(figure, "<=", 1)))
    return rows


# Python functions


def same(x: int) -> int:
    """The body of the Python rows: all that is measured is what stands around it."""
    return x


def python_runs(count: int, pool: ThreadPoolExecutor, threads: Any) -> dict[str, Run]:
    """For each way to run `same` over `count` items, the ticks an item. Those with much to do for each get fewer."""
    items = list(range(count))
    few = items[:10_000]
    repeats = max(1, min(5, 10_000 // count))

    async def one(x: int) -> int:
        return x

    async def tasks() -> None:
        async with asyncio.TaskGroup() as group:
            made = [group.create_task(one(x)) for x in few]
        [task.result() for task in made]

    async def timed() -> float:
        start = _native._ticks()
        await tasks()
        return _native._ticks() - start

    def over(given: Sequence[int], call: Callable[[], object]) -> Run:
        return lambda: ticks_of(call, repeats) / len(given)

    runs: dict[str, Run] = {
        OURS: over(items, lambda: shoal.map(same, items)),
        COMPREHENSION: over(items, lambda: [same(x) for x in items]),
        BUILTIN: over(items, lambda: list(map(same, items))),
        POOL: over(items, lambda: threads.map(same, items)),
        EXECUTOR: over(few, lambda: list(pool.map(same, few))),
        # Without the loop's own start and end.
        TASK_GROUP: lambda: asyncio.run(timed()) / len(few),
    }
    if importlib.util.find_spec("joblib"):
        import joblib

        parallel = joblib.Parallel(n_jobs=cores(), prefer="threads")
        runs[JOBLIB] = over(few, lambda: parallel(joblib.delayed(same)(x) for x in few))
    return runs


def python_bound(peer: str, ratio: float) -> Verdict | None:
    """What the budget says of a Python function beside this peer."""
    if peer == COMPREHENSION and gil():
        return judged(ratio, "<=", 1.2, "<= 1.2x")
    if peer == COMPREHENSION:
        return judged(1 / ratio, ">", 0.8 * cores(), f"> {0.8 * cores():.1f}x")
    if peer == POOL:
        return not_slower(ratio)
    if peer == EXECUTOR:
        return judged(1 / ratio, ">=", 150, ">= 150x")
    return None


def python_rows(sizes: Sequence[int], seconds: float, peers: Sequence[str] | None = None) -> list[Row]:
    """Each size beside each peer, and for each peer that the budget names the size with the worst ratio."""
    rows = []
    with ThreadPoolExecutor(cores()) as pool, ThreadPool(cores()) as threads:
        for count in sizes:
            say(f"a Python function, {count:,} instances")
            runs = python_runs(count, pool, threads)
            if peers is not None:
                runs = {name: once for name, once in runs.items() if name == OURS or name in peers}
            best = {name: ns(ticks) for name, ticks in interleave(runs, seconds=seconds).items()}
            figure = best.pop(OURS)
            for peer, theirs in best.items():
                rows.append(Row(FUNCTION, instances_of(count), count, "ns", figure, peer, theirs))
    for peer in dict.fromkeys(row.peer for row in rows):
        worst = max((row for row in rows if row.group == FUNCTION and row.peer == peer), key=lambda row: row.ratio)
        bound = python_bound(peer, worst.ratio)
        if bound is not None:
            what = f"function, worst, {worst.count:,}"
            rows.append(Row(BUDGET, what, worst.count, "ns", worst.figure, peer, worst.peer_figure, *bound))
    return rows


def whole_set_rows(seconds: float) -> list[Row]:
    """A thousand instances and ten of a Python function, the whole call."""
    rows = []
    with ThreadPoolExecutor(cores()) as pool, ThreadPool(cores()) as threads:
        for count, bound in ((1_000, 100.0), (10, 1.0)):
            say(f"a Python function, {count:,} instances")
            runs = python_runs(count, pool, threads)
            best = interleave({name: runs[name] for name in (OURS, EXECUTOR)}, seconds=seconds)
            mine, theirs = (count * ns(best[name]) / 1e6 for name in (OURS, EXECUTOR))
            what = f"{count:,} times a function"
            rows.append(Row(TARGETS, what, count, "ms", mine, EXECUTOR, theirs, *judged(mine, "<", bound)))
    return rows


# Busy cores


def wall_and_busy(call: Callable[[], object]) -> tuple[float, float]:
    """The seconds of a call, and the share of all cores that this process used meanwhile."""
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    took = time.perf_counter() - wall
    return took, (time.process_time() - cpu) / (took * cores())


def skewed_rows(repeats: int) -> list[Row]:
    """A load whose last tenth takes 200 times as long as the rest, shared as ranges and split in equal parts."""
    say("an uneven load")
    count = 10_000
    nanoseconds = [1_000] * (count * 9 // 10) + [200_000] * (count // 10)
    ideal = sum(nanoseconds) / cores() / 1e9
    part = math.ceil(count / cores())
    parts = [sum(nanoseconds[start : start + part]) for start in range(0, count, part)]
    shared, split = shoal.kernels.spin(uint32(nanoseconds)), shoal.kernels.spin(uint32(parts))
    ways: dict[str, Callable[[], object]] = {
        OURS: lambda: run_apart(shared, count),
        # Each part is one instance: nobody can take a piece of it.
        STATIC: lambda: run_apart(split, len(parts), chunk=1),
    }
    best = dict.fromkeys(ways, (math.inf, 0.0))
    for _ in range(repeats):
        for name, call in ways.items():
            best[name] = min(best[name], wall_and_busy(call))
    (took, share), (static_took, static_share) = best[OURS], best[STATIC]
    busy, static_busy = 100 * share, 100 * static_share
    efficiency, static_efficiency = 100 * ideal / took, 100 * ideal / static_took
    ours, peer = ("%", busy, STATIC, static_busy), ("%", efficiency, STATIC, static_efficiency)
    return [
        Row(TARGETS, "CPU used, uneven kernels", count, *ours, *judged(busy, ">", 80)),
        Row(TARGETS, "work stealing, of ideal", count, *peer, *judged(efficiency, ">", 80)),
        Row(BUDGET, "busy cores, uneven kernels", count, *ours, *judged(busy, ">", 95)),
    ]


def outside_bodies(body: Any, count: int, **options: Any) -> float:
    """The share of the workers' time in which no body ran, from the engine's own record of what each chunk took.

    Waking the workers, claiming, settling, the gate and the idle end are all in it.
    """
    engine = shoal.default_engine()
    since = engine.metrics()["events"]
    instances = run_apart(body, count, **options)
    events = [event for event in engine.events(since) if event.set == instances.id]
    created = min(event.at for event in events if event.kind == "created")
    chunks = [event for event in events if event.kind == "completed"]
    if sum(chunk.stop - chunk.start for chunk in chunks) != count:
        raise RuntimeError("the engine's events do not hold the whole run")
    wall = max(chunk.at for chunk in chunks) - created
    return 1 - sum(chunk.took for chunk in chunks) / (wall * engine.workers)


def microsecond(_: int) -> None:
    """A Python body of a microsecond."""
    until = time.perf_counter_ns() + 1_000
    while time.perf_counter_ns() < until:
        pass


def synchronisation_rows(seconds: float) -> list[Row]:
    """Bodies of a microsecond on all workers: the share of the run that is none of theirs."""
    say("synchronisation")
    # One by one no more than the engine's ring of events holds.
    many, few = 100_000, 10_000
    body = shoal.kernels.spin(uint32([1_000] * many))
    items = range(2_000)
    with ThreadPoolExecutor(cores()) as pool:

        def executor() -> float:
            alone = ticks_of(lambda: list(map(microsecond, items)))
            return 1 - alone / ticks_of(lambda: list(pool.map(microsecond, items)))

        runs: dict[str, Run] = {
            OURS: lambda: outside_bodies(body, many),
            ONE_BY_ONE: lambda: outside_bodies(body, few, chunk=1),
            EXECUTOR: executor,
        }
        best = {name: 100 * share for name, share in interleave(runs, seconds=seconds).items()}
    share = best[OURS]
    by_executor, one_by_one = best[EXECUTOR], best[ONE_BY_ONE]
    what, contended = "synchronisation, 1 us body", "gate, contended, 1 us body"
    return [
        Row(TARGETS, what, many, "%", share, EXECUTOR, by_executor, *judged(share, "<", 10)),
        Row(BUDGET, contended, many, "%", share, ONE_BY_ONE, one_by_one, *judged(share, "<", 1)),
    ]


# Waking and being interrupted


def wake_up_rows(samples: int) -> list[Row]:
    """From the call to the first body, after a pause in which every pool has gone to sleep; the median."""
    say("waking a parked pool")
    engine = shoal.default_engine()
    began = 0
    awake = threading.Event()

    def body(_: object = None) -> None:
        nonlocal began
        began = _native._ticks()
        awake.set()

    def function(start_body: Callable[[], object]) -> float:
        awake.clear()
        time.sleep(0.01)
        start = _native._ticks()
        handle = start_body()
        awake.wait()
        del handle
        return ns(began - start) / 1e3

    def kernel() -> float:
        time.sleep(0.01)
        since = engine.metrics()["events"]
        instances = run_apart(shoal.kernels.noop, 1)
        events = {event.kind: event for event in engine.events(since) if event.set == instances.id}
        return 1e6 * float(events["completed"].at - events["completed"].took - events["created"].at)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        ways: list[Run] = [
            kernel,
            lambda: function(lambda: shoal.spawn(body, count=1)),
            lambda: function(lambda: pool.submit(body)),
        ]
        turns = [[way() for way in ways] for _ in range(samples)]
    native, python, theirs = (median(column) for column in zip(*turns, strict=True))
    return [
        Row(BUDGET, f"waking the pool, {name}", 1, "us", mine, SUBMIT, theirs, *judged(mine, "<", 100))
        for name, mine in (("kernel", native), ("function", python))
    ]


def parked_map_rows(samples: int) -> list[Row]:
    """A map that is over before a worker could wake: nobody is woken, and it takes what it takes with all awake."""
    say("a small map beside a parked pool")
    engine, noop, count = shoal.default_engine(), shoal.kernels.noop, 100
    alone = 20_000 / ns_per_tick()
    for _ in range(100):
        shoal.map(noop, count=count)
    woken = 0
    parked, awake = [], []
    for _ in range(samples):
        sleeps = let_park()
        since = engine.metrics()["events"]
        # The first call after a pause, by anybody, pays for cold caches.
        cold = ticks_of(lambda: shoal.map(noop, count=count))
        parked.append(ticks_of(lambda: shoal.map(noop, count=count)))
        slept_again = let_park() - sleeps
        if max(cold, parked[-1]) < alone:  # later, if this thread was held up, waking somebody is right
            helped = any(event.worker is not None for event in engine.events(since) if event.kind == "completed")
            woken += helped or slept_again > 0
        keep_awake()
        shoal.map(noop, count=count)
        awake.append(ticks_of(lambda: shoal.map(noop, count=count)))
    mine, theirs = (ns(median(ticks)) / 1e3 for ticks in (parked, awake))
    ok = woken == 0 and median(parked) < alone
    return [Row(BUDGET, f"map of {count}, pool parked", count, "us", mine, AWAKE, theirs, "no waking", ok, 1 + woken)]


def nap(_: int) -> None:
    time.sleep(0.002)


def ctrl_c_of_this_process(samples: int) -> list[float]:
    """Milliseconds from the signal to `KeyboardInterrupt`, the median, in a kernel's map, a function's and a peer's."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    count = 1_000_000
    spin = shoal.kernels.spin(uint32([20_000] * count))
    items = range(5_000)

    def executor() -> None:
        pool = ThreadPoolExecutor(cores())
        try:
            list(pool.map(nap, items))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def sample(call: Callable[[], object]) -> float:
        sent = 0

        def send(pause: float) -> None:
            nonlocal sent
            time.sleep(pause)
            sent = time.perf_counter_ns()
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=send, args=(random.uniform(0.05, 0.1),))
        sender.start()
        try:
            call()
        except KeyboardInterrupt:
            heard = time.perf_counter_ns()
            sender.join()
            return (heard - sent) / 1e6
        raise RuntimeError("Ctrl-C was not heard at all")

    calls = [lambda: shoal.map(spin, count=count), lambda: shoal.map(nap, items), executor]
    turns = [[sample(call) for call in calls] for _ in range(samples)]
    return [median(column) for column in zip(*turns, strict=True)]


def ctrl_c_rows(samples: int) -> list[Row]:
    say("Ctrl-C")
    native, python, theirs = apart_from_this_process(ctrl_c_of_this_process, samples)
    return [
        Row(BUDGET, f"Ctrl-C in a map, {name}", 1, "ms", mine, EXECUTOR, theirs, *judged(mine, "<", 200))
        for name, mine in (("kernel", native), ("function", python))
    ]


# Memory


def memory() -> tuple[int, int]:
    """The bytes that this process may write to, and those it has."""
    try:
        _, resident, _, _, _, writable, *_ = Path("/proc/self/statm").read_text().split()
    except OSError:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return used, used
    page = os.sysconf("SC_PAGE_SIZE")
    return int(writable) * page, int(resident) * page


def nothing(_: object = None) -> None:
    pass


async def nothing_later() -> None:
    pass


def memory_of_this_process(what: str, count: int) -> list[float]:
    """Bytes an instance of one kind, pending and finished. For a process that has done nothing else."""
    gc.disable()
    shoal.spawn(shoal.kernels.noop, count=1_000).wait()
    shoal.spawn(nothing, count=1_000).wait()
    release = threading.Event()
    before = memory()

    def grown() -> float:
        # Pending instances are memory asked for and never touched: that counts too.
        return max(now - then for now, then in zip(memory(), before, strict=True)) / count

    if what == FUTURES:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(release.wait)
            before = memory()
            futures = [pool.submit(nothing) for _ in range(count)]
            pending = grown()
            release.set()
            futures[-1].result()
            return [pending, grown()]
    if what == TASKS:

        async def tasks() -> list[float]:
            nonlocal before
            before = memory()
            made = [asyncio.create_task(nothing_later()) for _ in range(count)]
            pending = grown()
            while not made[-1].done():
                await asyncio.sleep(0)
            return [pending, grown()]

        return asyncio.run(tasks())
    workers = shoal.default_engine().workers
    blocked = shoal.spawn(lambda _: release.wait(), count=workers, chunk=1)
    while blocked.counts.running < workers:
        time.sleep(0.001)
    before = memory()
    instances = shoal.spawn(shoal.kernels.noop if what == NATIVE else nothing, count=count)
    pending = grown()
    if instances.counts.pending != count:
        raise RuntimeError("some instances were not pending")
    release.set()
    instances.drain()
    finished = grown()
    if what == VALUES and len(instances.values) != count:
        raise RuntimeError("some values are missing")
    return [pending, finished]


def memory_rows(native: int, python: int, objects: int) -> list[Row]:
    """Native and with Python values, pending and finished, beside one object each."""
    figures = {}
    for what, count in ((FUTURES, objects), (TASKS, objects), (NATIVE, native), (VALUES, python)):
        say(f"memory: {what}")
        figures[what] = apart_from_this_process(memory_of_this_process, what, count)
    rows = []
    for what, count, most in ((NATIVE, native, 16), (VALUES, python, 24)):
        for end, state in enumerate(("pending", "finished")):
            mine, label = figures[what][end], f"{what}, {state}"
            for peer in (FUTURES, TASKS):
                rows.append(Row(MEMORY, label, count, "bytes", mine, peer, figures[peer][end]))
            bound = judged(mine, "<=", most)
            if what == VALUES and mine < 7.9:
                # A value's place alone is 8 bytes: less means that memory from before was used again.
                bound = (bound[0], False, math.inf)
            rows.append(Row(BUDGET, f"memory, {label}", count, "bytes", mine, FUTURES, figures[FUTURES][end], *bound))
    return rows


# All of it


def measure(*, quick: bool = False) -> list[Row]:
    """All rows, group by group. Quick: fewer sizes and turns."""
    seconds = 0.15 if quick else 2.0
    sizes = [10**power for power in range(2, 8)]
    if quick:
        sizes.remove(10_000)
    gc.collect()
    gc.disable()
    try:
        ns_per_tick()
        rows = [
            *life_rows(sizes, seconds, 100_000 if quick else 1_000_000),
            *creation_rows([1_000, 1_000_000] if quick else [1_000, 100_000, 1_000_000], seconds),
            *python_rows([1_000] if quick else [1_000, 100_000], seconds),
            *whole_set_rows(seconds / 4),
            *skewed_rows(2 if quick else 7),
            *synchronisation_rows(seconds),
            *parked_map_rows(15 if quick else 101),
            *wake_up_rows(15 if quick else 101),
            *ctrl_c_rows(3 if quick else 9),
            *(memory_rows(1_000_000, 200_000, 20_000) if quick else memory_rows(10_000_000, 1_000_000, 50_000)),
        ]
    finally:
        gc.enable()
        say("")
    order = [LIFE, CREATION, FUNCTION, MEMORY, TARGETS, BUDGET]
    return sorted(rows, key=lambda row: order.index(row.group))


def highlights() -> list[Row]:
    """A few rows in about a second, for the demonstration."""
    ns_per_tick()
    rows = life_rows([100_000], 0.2, 100_000)
    rows += python_rows([1_000], 0.2, [COMPREHENSION, POOL, EXECUTOR, TASK_GROUP])
    say("")
    return [row for row in rows if row.group in (LIFE, FUNCTION)]


# Showing


def number(value: float) -> str:
    """A figure as the table shows it.

    >>> number(0.1428), number(7.5), number(20_700.4)
    ('0.143', '7.5', '20,700')
    """
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """The rows as text, under a heading for each group; what the row above says already is left out."""
    head = ("", OURS, "ratio", "peer", "", "bound", "")
    lines = []
    above = None
    for row in rows:
        same_as_above = above is not None and (row.group, row.what, row.figure) == above
        above = (row.group, row.what, row.figure)
        lines.append(
            (
                "" if same_as_above else f"  {row.what}",
                "" if same_as_above else f"{number(row.figure)} {row.unit}",
                row.beside(),
                number(row.peer_figure),
                row.peer,
                row.target,
                {True: "met", False: "MISS", None: ""}[row.ok],
            )
        )
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    right = {1, 2, 3}
    gaps = ["  ", "  ", "  ", " ", "  ", "  ", ""]

    def join(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "".join(map(operator.add, padded, gaps)).rstrip()

    shown = [join(head)]
    group = ""
    for row, line in zip(rows, lines, strict=True):
        if row.group != group:
            group = row.group
            shown += ["", group]
        shown.append(join(line))
    return "\n".join(shown)


def verdict(rows: Sequence[Row]) -> str:
    """How many targets were met, which were not, and by how much."""
    judged_rows = [row for row in rows if row.ok is not None]
    missed = [row for row in judged_rows if not row.ok]
    text = f"{len(judged_rows) - len(missed)} of {len(judged_rows)} targets met"
    return text + "".join(
        f"\n  missed by {number(row.off)}x: {row.what}: {number(row.figure)} {row.unit}"
        f"\n    {row.beside()} than {row.peer}"
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
    """The time for an instance as an SVG: a native kernel's by size of the set, a Python function's by peer."""
    tick: float = facts["ns_per_tick"]
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.group == LIFE:
            lines.setdefault(OURS, {})[row.count] = row.figure * tick
            lines.setdefault(row.peer, {})[row.count] = row.peer_figure * tick
    functions = [row for row in rows if row.group == FUNCTION]
    largest = max((row.count for row in functions), default=0)
    functions = [row for row in functions if row.count == largest]
    bars = [_plot.Bar(IN_FULL.get(row.peer, row.peer), row.peer_figure) for row in functions]
    bars += [_plot.Bar(OURS, functions[0].figure, ours=True)] if functions else []
    return _plot.chart(
        "Time for each instance, lower is better",
        describe(facts),
        _plot.Lines(
            "A native kernel, by size of the set",
            [
                _plot.Line(IN_FULL.get(name, name), sorted(points.items()), ours=name == OURS)
                for name, points in lines.items()
            ],
        ),
        _plot.Bars(f"A Python function, {largest:,} times", sorted(bars, key=lambda bar: bar.value)),
    )


def run(*, quick: bool = False, plot: Path | None = None, json_file: Path | None = None) -> int:
    """Measures, prints the table, and writes the files that were asked for."""
    facts = machine()
    print(describe(facts), flush=True)
    start, before = time.perf_counter(), processor_seconds()
    rows = measure(quick=quick)
    took, after = time.perf_counter() - start, processor_seconds()
    print(f"\n{table(rows)}\n\n{EXPLAINED}\n\n{verdict(rows)}")
    if before and after:
        everybody, ourselves = (now - then for now, then in zip(after, before, strict=True))
        others = max(0.0, everybody - ourselves) / (took * (os.cpu_count() or 1))
        facts["others"] = round(others, 3)
        if others > 0.05:
            print(
                f"\nOther processes used {others:.0%} of this machine meanwhile. A miss may be theirs: repeat it alone."
            )
    if json_file is not None:
        content = {"machine": facts, "quick": quick, "rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}
        json_file.write_text(json.dumps(content, indent=2) + "\n")
    if plot is not None:
        plot.write_text(chart(rows, facts))
    return 0

"""The Python calls under pytest-benchmark, each in a group with its peers: `./dev bench --all`, or pytest benches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest

import shoal
from shoal import _native
from shoal.bench import cores, same

SIZES = [1_000, 100_000]
Benchmark = Callable[..., Any]


@pytest.fixture(params=SIZES)
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(cores()) as pool:
        yield pool


@pytest.fixture(scope="module")
def threads() -> Iterator[Any]:
    with ThreadPool(cores()) as pool:
        yield pool


@pytest.mark.benchmark(group="map, a Python function")
class TestMapFunction:
    def test_shoal(self, benchmark: Benchmark, count: int) -> None:
        items = list(range(count))
        assert benchmark(shoal.map, same, items) == items

    def test_comprehension(self, benchmark: Benchmark, count: int) -> None:
        items = list(range(count))
        assert benchmark(lambda: [same(x) for x in items]) == items

    def test_thread_pool_with_chunks(self, benchmark: Benchmark, count: int, threads: Any) -> None:
        items = list(range(count))
        assert benchmark(threads.map, same, items) == items

    def test_executor(self, benchmark: Benchmark, executor: ThreadPoolExecutor) -> None:
        items = list(range(1_000))
        assert benchmark(lambda: list(executor.map(same, items))) == items

    def test_task_group(self, benchmark: Benchmark) -> None:
        async def one(x: int) -> int:
            return x

        async def group() -> None:
            async with asyncio.TaskGroup() as tasks:
                for x in range(1_000):
                    tasks.create_task(one(x))

        benchmark(lambda: asyncio.run(group()))


@pytest.mark.benchmark(group="map, a batch of a Python function")
class TestMapBatch:
    def test_shoal(self, benchmark: Benchmark, count: int) -> None:
        items = list(range(count))
        assert benchmark(lambda: shoal.map(list, items, batch=True)) == items

    def test_list(self, benchmark: Benchmark, count: int) -> None:
        items = list(range(count))
        assert benchmark(list, items) == items


@pytest.mark.benchmark(group="map, a native kernel")
class TestMapKernel:
    def test_shoal(self, benchmark: Benchmark, count: int) -> None:
        benchmark(lambda: shoal.map(shoal.kernels.noop, count=count))

    @pytest.mark.parametrize("peer", ["loop", "par_iter", "rayon_spawn"])
    def test_rust(self, benchmark: Benchmark, count: int, peer: str) -> None:
        benchmark(lambda: _native._bench(peer, count, 1))


@pytest.mark.benchmark(group="spawn, a native kernel, until it returns")
class TestSpawn:
    def test_shoal(self, benchmark: Benchmark, count: int) -> None:
        running: list[Any] = []

        def ready() -> None:
            for instances in running:
                instances.wait()
            running.clear()

        benchmark.pedantic(  # type: ignore[attr-defined]
            lambda: running.append(shoal.spawn(shoal.kernels.noop, count=count)), setup=ready, rounds=200
        )
        ready()

    def test_executor_submit(self, benchmark: Benchmark, executor: ThreadPoolExecutor) -> None:
        running: list[Future[int]] = []

        def ready() -> None:
            for future in running:
                future.result()
            running.clear()

        benchmark.pedantic(  # type: ignore[attr-defined]
            lambda: running.extend(executor.submit(int) for _ in range(1_000)), setup=ready, rounds=50
        )
        ready()


@pytest.mark.benchmark(group="gate, one arrival")
class TestGate:
    def test_shoal(self, benchmark: Benchmark) -> None:
        gate = shoal.Gate(1 << 30)
        benchmark(gate.arrive)

    def test_locked_counter(self, benchmark: Benchmark) -> None:
        import threading

        lock, arrived = threading.Lock(), 0

        def arrive() -> bool:
            nonlocal arrived
            with lock:
                arrived += 1
                return arrived == 1 << 30

        benchmark(arrive)

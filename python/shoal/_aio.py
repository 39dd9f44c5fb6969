"""Sets and gates on the caller's event loop: it is called when there is something, and no thread waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from shoal import Gate, GateState, InstanceSet, Outcome

T = TypeVar("T")

TURN = 0.005
"""Seconds of outcomes one after the other, after which the loop's other tasks have their turn."""


@contextlib.contextmanager
def _bell(register: Callable[[Callable[[], None]], int | None], forget: Callable[[int], None]) -> Iterator[Any]:
    """A future that is done when what was registered is called, by whatever thread; taken back at the end."""
    loop = asyncio.get_running_loop()
    rung = loop.create_future()

    def settle() -> None:
        if not rung.done():
            rung.set_result(None)

    def call() -> None:
        # A closed loop has nobody who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    number = register(call)
    try:
        yield rung
    finally:
        if number is not None:
            forget(number)


async def decision_of_gate(gate: Gate) -> GateState:
    """`await gate`."""
    with _bell(gate._on_decided, gate._forget) as rung:
        await rung
    return gate.state


async def _decision_of_set(instances: InstanceSet[Any]) -> None:
    """Cancelling the waiting task cancels the set."""
    try:
        with _bell(instances._on_decided, instances._forget) as rung:
            await rung
    except asyncio.CancelledError:
        instances.cancel()
        raise


async def result_of_set(instances: InstanceSet[Any]) -> list[Any]:
    """`await set`: its result."""
    await _decision_of_set(instances)
    return instances.result()


async def enter_set(instances: InstanceSet[T]) -> InstanceSet[T]:
    """`async with set`: as `with`, whose end does not hold up the loop."""
    return instances


async def leave_set(instances: InstanceSet[Any], kind: type[BaseException] | None) -> None:
    """Seals and waits; cancels where the block was left by an exception."""
    if kind is None:
        instances.seal()
        await _decision_of_set(instances)
    else:
        instances.cancel()


async def outcomes_of_set(instances: InstanceSet[T]) -> AsyncIterator[Outcome[T]]:
    """`async for outcome in set`: each outcome when it is there."""
    outcomes = instances.as_completed()
    turn_ends = time.monotonic() + TURN
    while (ready := outcomes._ready()) is not None:
        if not ready:
            with _bell(instances._on_settled, instances._forget) as rung:
                # What settled before the bell was there does not ring it.
                if (ready := outcomes._ready()) is None:
                    return
                if not ready:
                    await rung
        for outcome in ready:
            yield outcome
            if time.monotonic() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + TURN

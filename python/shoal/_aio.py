"""Sets and gates on the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from shoal import Gate, GateState, InstanceSet, Outcome

T = TypeVar("T")


async def _called(register: Callable[[Callable[[Any], None]], None]) -> None:
    """Wait until what was registered is called, by whatever thread."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    def call(_: Any) -> None:
        # A closed loop has nobody who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    register(call)
    await done


async def decision_of_gate(gate: Gate) -> GateState:
    """`await gate`."""
    await _called(gate._on_decided)
    return gate.state


async def result_of_set(instances: InstanceSet[Any]) -> list[Any]:
    """`await set`: its result. Cancelling the waiting task cancels the set."""
    try:
        await _called(instances.on_decided)
    except asyncio.CancelledError:
        instances.cancel()
        raise
    return instances.result()


async def outcomes_of_set(instances: InstanceSet[T]) -> AsyncIterator[Outcome[T]]:
    """`async for outcome in set`: each outcome when it is there."""
    outcomes = instances.as_completed()
    while (outcome := await asyncio.to_thread(next, outcomes, None)) is not None:
        yield outcome

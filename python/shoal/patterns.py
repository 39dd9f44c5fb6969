"""The multiple-instance workflow patterns 12 to 15, as a workflow engine calls them: with a context, never blocking.

A context is a `shoal.Case`, or any object with `case_id`, `workflow_id`, `variables`, `arrived_from` and `scope_id`.

>>> import shoal
>>> from shoal import patterns
>>> case = shoal.default_engine().case(workflow="orders", variables={"items": ["a", "b"]})
>>> priced = patterns.run_time(case, str.upper, "items", then=("ship",))
>>> priced.instances.result()
['A', 'B']
>>> priced.next_activities
('ship',)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from shoal._errors import CountError
from shoal._native import Case, InstanceSet, all_of, default_engine, detached

__all__ = [
    "PATTERNS",
    "Context",
    "Continuation",
    "Pattern",
    "design_time",
    "dynamic",
    "run_time",
    "without_synchronization",
]


@runtime_checkable
class Context(Protocol):
    """What a pattern is called with, where it is no case."""

    case_id: str
    workflow_id: str
    variables: dict[str, Any]


@dataclass(frozen=True)
class Continuation:
    """The instances a pattern made, and what follows them."""

    instances: InstanceSet[Any]
    then: tuple[str, ...]

    @property
    def next_activities(self) -> tuple[str, ...]:
        """What is enabled now: without a gate all that follows at once, else once it fired."""
        gate = self.instances.gate
        return self.then if gate is None or gate.fired else ()


def _case(context: Case | Context) -> Case:
    if isinstance(context, Case):
        return context
    engine = default_engine()
    while context.case_id not in engine.cases:
        try:
            return engine.case(context.case_id, workflow=context.workflow_id, variables=context.variables)
        except Exception:
            # Another thread was first.
            if context.case_id not in engine.cases:
                raise
    return engine.cases[context.case_id]


def without_synchronization(
    context: Case | Context, body: Callable[[int], Any], count: int, then: Sequence[str] = ()
) -> Continuation:
    """12: `count` instances that nobody waits for; what follows is enabled at once."""
    return Continuation(_case(context).spawn(body, count=count, join=detached()), tuple(then))


def design_time(
    context: Case | Context, body: Callable[[int], Any], count: int, then: Sequence[str] = ()
) -> Continuation:
    """13: a number known beforehand; what follows is enabled when all are done."""
    return Continuation(_case(context).spawn(body, count=count, join=all_of()), tuple(then))


def run_time(context: Case | Context, body: Callable[[Any], Any], over: str, then: Sequence[str] = ()) -> Continuation:
    """14: one instance for each element of the array named `over` in the variables, or as many as the number says."""
    if over not in context.variables:
        raise CountError(f"there is no variable {over!r} to say how many instances there are")
    value = context.variables[over]
    case = _case(context)
    # An array of numpy without dimensions is neither, though it calls itself a collection.
    is_array = isinstance(value, Collection) and getattr(value, "ndim", 1) > 0
    if is_array and not isinstance(value, (str, bytes, Mapping)):
        return Continuation(case.spawn(body, list(value)), tuple(then))
    text = f"variable {over!r} is {value!r}; it has to be an array or a number of 1 or more"
    if isinstance(value, Collection):
        raise CountError(text)
    try:
        return Continuation(case.spawn(body, count=lambda _: value), tuple(then))
    except CountError as error:
        raise CountError(text) from error


def dynamic(
    context: Case | Context, body: Callable[[Any], Any], initial: Iterable[Any] = (), then: Sequence[str] = ()
) -> Continuation:
    """15: `instances.add` creates more while it is open, `instances.seal` ends that; what follows waits for all."""
    return Continuation(_case(context).spawn(body, list(initial), seal="manual"), tuple(then))


@dataclass(frozen=True)
class Pattern:
    """A pattern of the registry."""

    number: int
    name: str
    call: Callable[..., Continuation]

    def execute(self, context: Case | Context, *arguments: Any, **options: Any) -> Continuation:
        """Run it in a context."""
        return self.call(context, *arguments, **options)


PATTERNS = {
    pattern.number: pattern
    for pattern in (
        Pattern(12, "Multiple Instances without Synchronization", without_synchronization),
        Pattern(13, "Multiple Instances with a Priori Design-Time Knowledge", design_time),
        Pattern(14, "Multiple Instances with a Priori Run-Time Knowledge", run_time),
        Pattern(15, "Multiple Instances without a Priori Run-Time Knowledge", dynamic),
    )
}

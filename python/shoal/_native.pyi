"""The types of the compiled part of Shoal, checked against the built module by `python -m mypy.stubtest shoal._native`.

Docstrings are the binding's own, for editors, which cannot read them from a compiled module.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from types import GenericAlias, TracebackType
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    final,
    overload,
    type_check_only,
)

from typing_extensions import Buffer, TypeVar, Unpack

from shoal._states import CaseState, Counts, GateState, InstanceState, Limits, Outcome, Policy, SetState

__all__ = [
    "Case",
    "Cases",
    "Current",
    "Engine",
    "Event",
    "Gate",
    "InstanceSet",
    "Join",
    "Kernel",
    "Outcomes",
    "Ticks",
    "Tolerance",
    "_bench",
    "_close_all",
    "_panic_kernel",
    "_ticks",
    "all_of",
    "any_of",
    "at_least",
    "current",
    "default_engine",
    "detached",
    "map",
    "noop",
    "spawn",
    "spin",
    "tolerate",
    "weighted",
]

_I = TypeVar("_I")
_J = TypeVar("_J")
_K = TypeVar("_K")
_T = TypeVar("_T")
_A = TypeVar("_A", bound=Buffer)
_F = TypeVar("_F")
_T_co = TypeVar("_T_co", covariant=True)
# What `result()` gives: the values, but of a kernel `out`, whatever that is.
_R_co = TypeVar("_R_co", covariant=True, default=list[_T_co])

_Count: TypeAlias = SupportsIndex | Callable[[dict[str, Any]], SupportsIndex]
_Seal: TypeAlias = Literal["at_once", "manual", "when_idle"]
_Rest: TypeAlias = Literal["cancel", "continue"]
_OnFailure: TypeAlias = Literal["fail_fast", "fail_late", "continue"] | Tolerance
_On: TypeAlias = Literal["auto", "workers"]
_KernelOn: TypeAlias = Literal["auto", "kernel"]
_Histogram: TypeAlias = dict[int, list[tuple[float, int]]]

@final
class Join:
    """When a gate fires: `all_of`, `at_least`, `any_of`, `weighted` and `detached` make one."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Tolerance:
    """How much may fail: made by `tolerate`."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Kernel:
    """A compiled body: `shoal.kernel(...)` makes one."""

    def __new__(
        cls, address: int, buffers: list[Buffer], out: Buffer | None, span: bool, name: str, keep: object
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What it is called."""
    @property
    def out(self) -> Any:
        """The array that is the result of a set that runs it."""

@final
class Gate:
    """A lock-free counter that is decided exactly once."""

    def __new__(cls, target: SupportsIndex, *, engine: Engine | None = None, name: str | None = None) -> Self: ...
    def arrive(self, n: SupportsIndex = 1) -> bool:
        """Counts arrivals; true for the one that opened it."""
    @property
    def arrived(self) -> int:
        """How many arrived; for a set's gate, how many completed."""
    @property
    def target(self) -> int | None:
        """How many it takes; None where that is not known (yet), or no number."""
    @property
    def state(self) -> GateState:
        """`waiting`, then what it was decided as."""
    @property
    def fired(self) -> bool:
        """Whether it fired."""
    def wait(self, timeout: float | None = None) -> GateState:
        """Waits until it is decided; `"waiting"` if the time ran out."""
    def cancel(self) -> None:
        """Nobody is let through any more; nothing if it was decided."""
    def on_fired(self, f: Callable[[Gate], object]) -> None:
        """Calls `f(gate)` once, on a worker, when it fires."""
    def __await__(self) -> Generator[Any, Any, GateState]: ...
    def _on_decided(self, f: Callable[[], object]) -> int | None: ...
    def _forget(self, number: int) -> None: ...

@final
class InstanceSet(Generic[_T_co, _R_co]):
    """The instances of one task, their gate and their results. `shoal.spawn` makes one."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    @property
    def id(self) -> int:
        """Its number in its engine."""
    @property
    def name(self) -> str | None:
        """What it is called."""
    @property
    def case(self) -> Case | None:
        """The case that owns it; an anonymous one where it was made without."""
    @property
    def pattern(self) -> int:
        """The number of its workflow pattern."""
    @property
    def policy(self) -> Policy:
        """Join, rest and failure policy, in words."""
    @property
    def on(self) -> Literal["workers", "kernel"]:
        """Where its bodies run."""
    @property
    def state(self) -> SetState:
        """`active` while it is open, `running`, then what its gate was decided as."""
    @property
    def counts(self) -> Counts:
        """How many instances are in each state, at one moment."""
    @property
    def gate(self) -> Gate | None:
        """Its gate; None for `detached()`."""
    @property
    def dropped(self) -> int:
        """Late results of abandoned calls that were dropped."""
    @property
    def drained(self) -> bool:
        """Whether none is pending or running."""
    @property
    def values(self) -> dict[int, _T_co]:
        """What completed so far, by index."""
    @property
    def errors(self) -> dict[int, BaseException]:
        """What failed so far, by index."""
    def status(self, index: SupportsIndex) -> InstanceState:
        """The state of one instance."""
    def add(self, *items: Any) -> None:
        """Adds instances to an open set, one for each item."""
    def seal(self) -> None:
        """Makes the count final. Twice is once."""
    def cancel(self) -> None:
        """Ends it: what has not begun is cancelled, the gate is `cancelled`. Idempotent."""
    def complete(self) -> None:
        """Ends it as a success: what has not begun is cancelled, the gate fires now. Idempotent."""
    def wait(self, timeout: float | None = None) -> GateState:
        """Waits for the gate and gives its state, `"waiting"` if the time ran out. Never raises for an outcome."""
    def drain(self, timeout: float | None = None) -> bool:
        """Waits until none is pending or running; false if the time ran out."""
    @overload
    def result(self, timeout: float | None = None) -> _R_co:
        """Waits, and gives the completed values in index order; with `fill` one entry for every instance. Raises
        `SetFailed`, `SetCancelled` or `SetTimedOut` for what the gate was decided as, `TimeoutError` if the time ran
        out.
        """
    @overload
    def result(self, timeout: float | None, fill: _F) -> list[_T_co | _F]: ...
    @overload
    def result(self, timeout: float | None = None, *, fill: _F) -> list[_T_co | _F]: ...
    def as_completed(self) -> Outcomes[_T_co]:
        """Yields an `Outcome` for each instance, in the order in which they ended."""
    def summary(self) -> dict[str, Any]:
        """Results, errors and counts as one dict."""
    def on_decided(self, f: Callable[[InstanceSet[_T_co, _R_co]], object]) -> None:
        """Calls `f(set)` once, on a worker, when the gate is decided."""
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...
    def __iter__(self) -> Outcomes[_T_co]: ...
    def __aiter__(self) -> AsyncIterator[Outcome[_T_co]]: ...
    def __await__(self) -> Generator[Any, Any, _R_co]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]: ...
    def _feed(self, items: tuple[Any, ...]) -> bool: ...
    def _wait_hungry(self, below: int) -> bool: ...
    def _feeder_raised(self, error: BaseException) -> None: ...
    def _on_decided(self, f: Callable[[], object]) -> int | None: ...
    def _on_settled(self, f: Callable[[], object]) -> int: ...
    def _forget(self, number: int) -> None: ...

@final
class Outcomes(Generic[_T_co]):
    """The outcomes of a set, in the order in which they came."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Outcome[_T_co]: ...
    def _ready(self) -> list[Outcome[_T_co]] | None: ...

@final
class Current:
    """The instance that a body runs as."""

    @property
    def index(self) -> int: ...
    @property
    def set(self) -> InstanceSet[Any]:
        """The set it is one of."""
    @property
    def case(self) -> Case:
        """The case that owns the set."""
    @property
    def scope(self) -> dict[str, Any]:
        """A dict of its own, which starts as a copy of the case's."""
    @property
    def cancelled(self) -> bool:
        """Whether it is asked to stop."""
    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
    def add(self, *items: Any) -> None:
        """Adds instances to its open set."""

# What each overload of `Case.spawn` takes by name; engine and case are the case's own.
@type_check_only
class _Options(TypedDict, total=False):
    minimum: SupportsIndex | None
    maximum: SupportsIndex | None
    join: Join | None
    rest: _Rest | None
    on_failure: _OnFailure | None
    chunk: SupportsIndex | None
    keep: bool
    progress: bool
    name: str | None

@type_check_only
class _FunctionOptions(_Options, total=False):
    on: _On | None
    setup: Callable[[], object] | None

@type_check_only
class _KernelOptions(_Options, total=False):
    on: _KernelOn | None
    seal: Literal["at_once"] | None

@final
class Case:
    """One running of a workflow, or the free-standing owner of sets."""

    @property
    def id(self) -> str:
        """Its name, unique in its engine."""
    @property
    def workflow(self) -> str | None:
        """The workflow it is a running of."""
    @property
    def variables(self) -> dict[str, Any]:
        """Its variables."""
    @property
    def scope(self) -> dict[str, Any]:
        """What every instance's own scope starts as."""
    @property
    def state(self) -> CaseState:
        """`active`, `completed` or `cancelled`."""
    @property
    def sets(self) -> list[InstanceSet[Any]]:
        """Its sets, oldest first: the live ones and the finished ones that are kept."""
    @overload
    def spawn(
        self,
        body: Callable[[_I], _T],
        items: Iterable[_I],
        *,
        count: None = None,
        batch: Literal[False] | None = None,
        seal: _Seal | None = None,
        **options: Unpack[_FunctionOptions],
    ) -> InstanceSet[_T]:
        """As `shoal.spawn`, owned by this case."""
    @overload
    def spawn(
        self,
        body: Callable[[int], _T],
        items: None = None,
        *,
        count: _Count,
        batch: Literal[False] | None = None,
        seal: _Seal | None = None,
        **options: Unpack[_FunctionOptions],
    ) -> InstanceSet[_T]: ...
    @overload
    def spawn(
        self,
        body: Callable[[Any], _T],
        items: None = None,
        *,
        count: None = None,
        batch: Literal[False] | None = None,
        seal: Literal["manual", "when_idle"],
        **options: Unpack[_FunctionOptions],
    ) -> InstanceSet[_T]: ...
    @overload
    def spawn(
        self,
        body: Callable[[_A], Iterable[_T]],
        items: _A,
        *,
        count: None = None,
        batch: SupportsIndex,
        seal: _Seal | None = None,
        **options: Unpack[_FunctionOptions],
    ) -> InstanceSet[_T]: ...
    @overload
    def spawn(
        self,
        body: Callable[[list[_I]], Iterable[_T]],
        items: Iterable[_I],
        *,
        count: None = None,
        batch: SupportsIndex,
        seal: _Seal | None = None,
        **options: Unpack[_FunctionOptions],
    ) -> InstanceSet[_T]: ...
    @overload
    def spawn(
        self,
        body: Callable[[list[int]], Iterable[_T]],
        items: None = None,
        *,
        count: _Count,
        batch: SupportsIndex,
        seal: _Seal | None = None,
        **options: Unpack[_FunctionOptions],
    ) -> InstanceSet[_T]: ...
    @overload
    def spawn(
        self,
        body: Callable[[list[Any]], Iterable[_T]],
        items: None = None,
        *,
        count: None = None,
        batch: SupportsIndex,
        seal: Literal["manual", "when_idle"],
        **options: Unpack[_FunctionOptions],
    ) -> InstanceSet[_T]: ...
    @overload
    def spawn(
        self, body: Kernel, items: range, *, count: None = None, **options: Unpack[_KernelOptions]
    ) -> InstanceSet[Any, Any]: ...
    @overload
    def spawn(
        self, body: Kernel, items: None = None, *, count: _Count, **options: Unpack[_KernelOptions]
    ) -> InstanceSet[Any, Any]: ...
    def cancel(self) -> None:
        """Cancels all that it owns, nested cases too. Idempotent."""
    def wait(self, timeout: float | None = None) -> bool:
        """Waits until none of its sets has anything pending or running; false if the time ran out."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Cases:
    """The cases of an engine by id."""

    def __getitem__(self, id: str, /) -> Case: ...
    def __contains__(self, id: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...

@final
class Engine:
    """Executor, cases, records and views in one process."""

    def __new__(
        cls,
        *,
        workers: SupportsIndex | None = None,
        name: str | None = None,
        limits: Limits | None = None,
        retain: SupportsIndex = 1000,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """What its threads are called."""
    @property
    def workers(self) -> int:
        """How many threads run bodies."""
    @property
    def cases(self) -> Cases:
        """Its cases by id."""
    @property
    def sets(self) -> list[InstanceSet[Any]]:
        """Its sets, oldest first: the live ones, and the newest finished ones."""
    def case(
        self, id: str | None = None, *, workflow: str | None = None, variables: dict[str, Any] | None = None
    ) -> Case:
        """A case of this id, which must not be in use; without one it gets one."""
    def events(self, since: SupportsIndex = 0) -> list[Event]:
        """The newest records of what happened, as ranges; with `since` those from that number on."""
    def metrics(self) -> dict[str, int]:
        """What it did so far, as a dict of numbers."""
    def ticks(self) -> Ticks:
        """How many ticks an instance creating, spawning and living took, by set size."""
    def close(self, cancel: bool = False) -> None:
        """Takes nothing more and waits for what there is; with `cancel` it is cancelled first. Then the threads go."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Event:
    """One thing that happened to one range of one set."""

    @property
    def seq(self) -> int:
        """Its place in the engine's stream."""
    @property
    def at(self) -> float:
        """When it was over, in seconds since the Unix epoch."""
    @property
    def took(self) -> float:
        """How long it took, in seconds; 0 where nothing ran."""
    @property
    def set(self) -> int:
        """The set's id."""
    @property
    def kind(
        self,
    ) -> Literal[
        "created",
        "added",
        "sealed",
        "completed",
        "failed",
        "cancelled",
        "timed_out",
        "given_back",
        "gate_fired",
        "gate_failed",
        "gate_cancelled",
        "gate_timed_out",
    ]:
        """What happened."""
    @property
    def start(self) -> int:
        """The first index."""
    @property
    def stop(self) -> int:
        """One past the last."""
    @property
    def worker(self) -> int | None:
        """The worker it happened on; None for other threads."""

@final
class Ticks:
    """The tick budget: histograms by set size (1, 10, 100, ...) of (upper bound of ticks each, number of sets)."""

    @property
    def unit(self) -> Literal["ticks", "ns"]:
        """`"ticks"` of the processor's invariant counter, or `"ns"` where there is none."""
    @property
    def budget(self) -> int:
        """What creation and spawn may take together, an instance."""
    @property
    def sets(self) -> int:
        """Sets that were measured."""
    @property
    def over_budget(self) -> int:
        """Sets whose creation and spawn took more."""
    @property
    def creation(self) -> _Histogram:
        """Making the set."""
    @property
    def spawn(self) -> _Histogram:
        """Handing it to the workers."""
    @property
    def life(self) -> _Histogram:
        """From the call to the last settled instance."""

def all_of() -> Join:
    """Fires when the set is sealed and every instance terminal."""

def any_of() -> Join:
    """Fires when one completed."""

@overload
def at_least(n: SupportsIndex, *, fraction: None = None, or_all: bool = False) -> Join:
    """Fires when `n`, or a share of the final count, completed; with `or_all` also when all are terminal."""

@overload
def at_least(n: None = None, *, fraction: float, or_all: bool = False) -> Join: ...
def weighted(weights: Iterable[SupportsIndex], *, at_least: SupportsIndex) -> Join:
    """Fires when the weights of the completed reach `at_least`."""

def detached() -> Join:
    """No gate: `spawn` returns when creation ends, and nobody waits for the rest."""

@overload
def tolerate(n: SupportsIndex, *, fraction: None = None, after: None = None) -> Tolerance:
    """`on_failure=tolerate(n)` fails the gate at failure n + 1; `tolerate(fraction=f, after=m)` when, with at least m
    completed or failed, more than that share failed.
    """

@overload
def tolerate(n: None = None, *, fraction: float, after: SupportsIndex | None = None) -> Tolerance: ...
def current() -> Current:
    """The instance that the calling body runs as; outside a body a `RuntimeError`."""

def default_engine() -> Engine:
    """The engine that serves the module-level calls."""

def noop() -> Kernel:
    """A kernel that does nothing, for measuring."""

def spin(nanoseconds: Buffer) -> Kernel:
    """A kernel that keeps a core busy for so many nanoseconds at each index: an array of unsigned 32-bit integers. For
    measuring.
    """

@overload
def spawn(
    body: Callable[[_I], _T],
    items: Iterable[_I],
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: _Seal | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: Literal[False] | None = None,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[_T]:
    """Run `body` once for each of `items` (or `count` times with the index) and return the handle at once."""

@overload
def spawn(
    body: Callable[[int], _T],
    items: None = None,
    *,
    count: _Count,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: _Seal | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: Literal[False] | None = None,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[_T]: ...
@overload
def spawn(
    body: Callable[[Any], _T],
    items: None = None,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: Literal["manual", "when_idle"],
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: Literal[False] | None = None,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[_T]: ...
@overload
def spawn(
    body: Callable[[_A], Iterable[_T]],
    items: _A,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: _Seal | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: SupportsIndex,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[_T]: ...
@overload
def spawn(
    body: Callable[[list[_I]], Iterable[_T]],
    items: Iterable[_I],
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: _Seal | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: SupportsIndex,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[_T]: ...
@overload
def spawn(
    body: Callable[[list[int]], Iterable[_T]],
    items: None = None,
    *,
    count: _Count,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: _Seal | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: SupportsIndex,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[_T]: ...
@overload
def spawn(
    body: Callable[[list[Any]], Iterable[_T]],
    items: None = None,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: Literal["manual", "when_idle"],
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: SupportsIndex,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[_T]: ...
@overload
def spawn(
    body: Kernel,
    items: range,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: Literal["at_once"] | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _KernelOn | None = None,
    batch: None = None,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[Any, Any]: ...
@overload
def spawn(
    body: Kernel,
    items: None = None,
    *,
    count: _Count,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    seal: Literal["at_once"] | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _KernelOn | None = None,
    batch: None = None,
    chunk: SupportsIndex | None = None,
    keep: bool = True,
    setup: None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> InstanceSet[Any, Any]: ...
@overload
def map(
    body: Callable[[_I], _T],
    items: Iterable[_I],
    /,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: Literal[False] | None = None,
    chunk: SupportsIndex | None = None,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> list[_T]:
    """Like the built-in `map`, on all workers: a list of the values in order; the first failure raises. An instance
    whose body raised `shoal.Cancelled` has no value: it is left out, and the list is shorter by it.
    """

@overload
def map(
    body: Callable[[_I, _J], _T],
    items: Iterable[_I],
    others: Iterable[_J],
    /,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: None = None,
    chunk: SupportsIndex | None = None,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> list[_T]: ...
@overload
def map(
    body: Callable[[_I, _J, _K], _T],
    items: Iterable[_I],
    others: Iterable[_J],
    more: Iterable[_K],
    /,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: None = None,
    chunk: SupportsIndex | None = None,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> list[_T]: ...
@overload
def map(
    body: Callable[..., _T],
    first: Iterable[Any],
    second: Iterable[Any],
    third: Iterable[Any],
    fourth: Iterable[Any],
    /,
    *iterables: Iterable[Any],
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: None = None,
    chunk: SupportsIndex | None = None,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> list[_T]: ...
@overload
def map(
    body: Callable[[int], _T],
    *,
    count: _Count,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: Literal[False] | None = None,
    chunk: SupportsIndex | None = None,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> list[_T]: ...
@overload
def map(
    body: Callable[[_A], Iterable[_T]],
    items: _A,
    /,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: SupportsIndex,
    chunk: SupportsIndex | None = None,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> list[_T]: ...
@overload
def map(
    body: Callable[[list[_I]], Iterable[_T]],
    items: Iterable[_I],
    /,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: SupportsIndex,
    chunk: SupportsIndex | None = None,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> list[_T]: ...
@overload
def map(
    body: Callable[[list[int]], Iterable[_T]],
    *,
    count: _Count,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _On | None = None,
    batch: SupportsIndex,
    chunk: SupportsIndex | None = None,
    setup: Callable[[], object] | None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> list[_T]: ...
@overload
def map(
    body: Kernel,
    indices: range,
    /,
    *,
    count: None = None,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _KernelOn | None = None,
    batch: None = None,
    chunk: SupportsIndex | None = None,
    setup: None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> Any: ...
@overload
def map(
    body: Kernel,
    *,
    count: _Count,
    minimum: SupportsIndex | None = None,
    maximum: SupportsIndex | None = None,
    join: Join | None = None,
    rest: _Rest | None = None,
    on_failure: _OnFailure | None = None,
    on: _KernelOn | None = None,
    batch: None = None,
    chunk: SupportsIndex | None = None,
    setup: None = None,
    progress: bool = False,
    name: str | None = None,
    engine: Engine | None = None,
    case: Case | None = None,
) -> Any: ...
def _bench(peer: str, count: int, repeats: int) -> int: ...
def _close_all() -> None: ...
def _panic_kernel() -> Kernel: ...
def _ticks() -> int: ...

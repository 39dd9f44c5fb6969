"""The exceptions of Shoal. They pickle; a message names the value that was wrong, the bound it broke and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal._states import Counts


class ShoalError(Exception):
    """What all errors of Shoal are."""


class CountError(ShoalError, ValueError):
    """The number of instances is not one that can be created."""


class JoinError(ShoalError, ValueError):
    """The join can never be met, or its numbers make no sense."""


class LimitError(ShoalError):
    """A limit of the engine or of the case would be passed."""


class SealedError(ShoalError):
    """The set takes no more instances."""


class EngineClosed(ShoalError):
    """The engine takes no more work."""


class ForkedEngine(ShoalError):
    """The engine belongs to the parent process."""


class Cancelled(Exception):
    """Raised by a body that stops because it was asked to: its instance is cancelled, not failed."""


class PanicError(ShoalError):
    """A compiled body panicked."""


class KernelError(ShoalError):
    """A compiled body returned a code other than 0."""

    def __init__(self, code: int, index: int) -> None:
        super().__init__(code, index)
        self.code = code
        self.index = index

    def __str__(self) -> str:
        return f"instance {self.index} returned code {self.code}"


class InstanceError(ShoalError):
    """A failure past the first hundred of its set: type, message and place are kept, not the frames."""

    def __init__(self, type_name: str, message: str, location: str) -> None:
        super().__init__(type_name, message, location)
        self.type_name = type_name
        self.message = message
        self.location = location

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message} ({self.location})"


class _SetEnded(ShoalError):
    """The gate of a set was decided as something else than fired."""

    def __init__(self, message: str, counts: Counts, errors: dict[int, BaseException], values: dict[int, Any]) -> None:
        super().__init__(message, counts, errors, values)
        self.counts = counts
        self.errors = errors
        self.values = values

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # One that is a TimeoutError, hence an OSError, keeps only two of its arguments.
        return type(self), (self.args[0], self.counts, self.errors, self.values)


class SetFailed(_SetEnded):
    """The gate failed. `counts`, `errors` and `values` say how far it came."""


class SetCancelled(_SetEnded):
    """The gate was cancelled. `counts`, `errors` and `values` say how far it came."""


class SetTimedOut(_SetEnded, TimeoutError):
    """The gate's time ran out. `counts`, `errors` and `values` say how far it came."""


for _error in list(vars().values()):
    if isinstance(_error, type) and issubclass(_error, Exception):
        _error.__module__ = "shoal"
del _error

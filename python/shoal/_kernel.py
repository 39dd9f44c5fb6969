"""`kernel()`: checks a compiled function and its arrays, and makes a `_native.Kernel` of them.

numba, numpy and cffi are optional: nothing here imports one that the caller has not imported already.
"""

from __future__ import annotations

import array
import ctypes
import importlib
import inspect
import re
import sys
from _ctypes import CFuncPtr
from types import FunctionType
from typing import TYPE_CHECKING, Any

from shoal import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

INDEX = "int32 f(uint64 i, void **arrays)"
SPAN = "int32 f(uint64 start, uint64 stop, void **arrays)"

RAISED = 1
"""The code of an instance whose njit function raised."""
OUT_OF_RANGE = 2
"""The code of an instance that returned a value for an index past the end of `out`."""

PYTHON_API = 4
"""ctypes' FUNCFLAG_PYTHONAPI: the function expects the GIL, which a worker does not hold."""


def kernel(
    function: Any,
    *arrays: Buffer,
    out: Buffer | None = None,
    span: bool = False,
    name: str | None = None,
) -> _native.Kernel:
    """Make a compiled body, which runs without the interpreter, of `function` and its arrays.

    `function` is one of

    - a numba `njit` function `f(i, *arrays)`, or `f(start, stop, *arrays)` with `span=True`. Raising fails the
      instance, with code 1. `out` is passed last if `f` has a parameter for it; if not, `out[i]` becomes the value
      that `f` returns, and an index past the end of `out` fails with code 2. Any other returned value is dropped.
    - a numba `cfunc`, a ctypes or cffi function pointer, or an address, of the type
      `int32 f(uint64 i, void **arrays)`, or with `span=True` `int32 f(uint64 start, uint64 stop, void **arrays)`.
      0 is completed, anything else is failed with that code. `out` is the last of `arrays`, unless it is one of
      them already. A `cfunc` that raises prints the exception and returns 0. A ctypes callback prints it too, but
      what it returns then is undefined, 0 or not: let its body catch what it may raise, and return a code.

    With `span=True` a call does a range of instances, which the compiler can vectorise; they fail together.

    The arrays are numpy arrays, or anything else with the buffer protocol, and C-contiguous. They stay alive, and
    cannot be resized, for as long as the kernel lives. The result of a set that runs it is `out`.

    >>> import numba, numpy, shoal
    >>> @numba.njit
    ... def square(i, x):
    ...     return x[i] * x[i]
    >>> x = numpy.arange(4.0)
    >>> squares = shoal.kernel(square, x, out=numpy.empty(4))
    >>> shoal.map(squares, range(4))
    array([0., 1., 4., 9.])
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name is a str, not {_kind(name)}")
    buffers: list[Any] = [_buffer(each, f"array {position}") for position, each in enumerate(arrays)]
    out_slot = None
    if out is not None:
        own = _buffer(out, "out")
        if memoryview(own).readonly:
            raise TypeError("out is read-only: pass an array that can be written")
        out_slot = next((slot for slot, each in enumerate(arrays) if each is out), len(arrays))
        if out_slot == len(arrays):
            buffers.append(own)

    title = _title(function) if name is None else name
    if _is_njit(function):
        objects: list[Any] = [*arrays] if out_slot != len(arrays) else [*arrays, out]
        compiled, shapes = _compile(function, objects, len(arrays), out_slot, span)
        return _native.Kernel(compiled.address, [*buffers, shapes], out, bool(span), title, (function, compiled))
    return _native.Kernel(_address(function, bool(span)), buffers, out, bool(span), title, function)


# Buffers


def _buffer(value: Any, what: str) -> Any:
    """`value`, or what exports its memory, once it is known to be plain contiguous memory."""
    if getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M") and hasattr(value, "view"):
        return _buffer(value.view("i8"), what)  # numpy does not export datetime64 and timedelta64
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(
            f"{what} is {_kind(value)}, which has no buffer: pass a numpy array, array.array, bytearray or memoryview"
        ) from None
    except (BufferError, ValueError) as error:
        raise TypeError(f"{what} does not export its memory: {error}") from error
    with view:
        # Field names stand between colons, and may hold an O themselves.
        if "O" in re.sub(":[^:]*:", "", view.format):
            raise TypeError(f"{what} holds Python objects, which a kernel cannot touch: use a numeric dtype")
        if not view.c_contiguous:
            raise TypeError(f"{what} is not C-contiguous: pass np.ascontiguousarray(...) of it")
    return value


# Addresses


def _address(function: Any, span: bool) -> int:
    """The address of anything but an njit function, its type checked as far as it is declared."""
    if isinstance(function, bool):
        raise TypeError(f"kernel() takes a compiled function, not {function}")
    if isinstance(function, int):
        if not 0 < function < 2 ** (8 * ctypes.sizeof(ctypes.c_void_p)):
            raise ValueError(f"{function} is no address of a function: it has to be above 0 and fit a pointer")
        return function
    if isinstance(function, CFuncPtr):
        return _ctypes_address(function, span)
    if type(function).__module__ == "_cffi_backend":
        return _cffi_address(function, span)
    lib = type(getattr(function, "__self__", None))
    if (lib.__module__, lib.__name__) == ("_cffi_backend", "Lib"):
        raise TypeError(
            f"{function.__name__} is cffi's Python wrapper of a function: "
            f"pass ffi.addressof(lib, {function.__name__!r})"
        )
    if _is_cfunc(function):
        return _cfunc_address(function, span)
    if isinstance(function, FunctionType):
        raise TypeError(
            f"{function.__name__} is a Python function, and a kernel is compiled: decorate it with numba.njit, "
            "or pass it directly to shoal.map or shoal.spawn"
        )
    raise TypeError(
        f"kernel() cannot take {_kind(function)}: pass a numba njit function or cfunc, "
        "a ctypes or cffi function pointer, or an address"
    )


def _refuse(function: Any, declared: str, span: bool) -> TypeError:
    hint = "" if span else " (for f(start, stop, arrays) pass span=True)"
    return TypeError(f"{_title(function)} is declared as {declared}, a kernel is {SPAN if span else INDEX}{hint}")


def _cfunc_address(function: Any, span: bool) -> int:
    types = sys.modules["numba"].types
    signature = getattr(function, "_sig", None)
    if signature is not None:
        *indices, pointers = signature.args or (None,)
        if not (
            signature.return_type == types.int32
            and len(indices) == 1 + span
            and all(each in (types.uint64, types.int64) for each in indices)
            and (pointers == types.voidptr or isinstance(pointers, types.CPointer))
        ):
            raise _refuse(function, str(signature), span)
    return int(function.address)


def _ctypes_address(function: Any, span: bool) -> int:
    if function._flags_ & PYTHON_API:
        raise TypeError(f"{_title(function)} needs the GIL, which a kernel does not hold: use CFUNCTYPE or CDLL")
    result, declared = function.restype, function.argtypes
    fits = _ctypes_integer(result, 4) and result._type_.islower()
    if declared is not None:
        *indices, pointers = declared or (None,)
        fits = fits and len(indices) == 1 + span and all(_ctypes_integer(each, 8) for each in indices)
        fits = fits and (
            pointers in (ctypes.c_void_p, ctypes.c_char_p)
            or (isinstance(pointers, type) and issubclass(pointers, ctypes._Pointer))
        )
    if not fits:
        names = "..." if declared is None else ", ".join(_name(each) for each in declared)
        raise _refuse(function, f"{_name(result)} f({names})", span)
    address = ctypes.cast(function, ctypes.c_void_p).value
    if not address:
        raise ValueError(f"{_title(function)} is a null pointer")
    return address


def _ctypes_integer(declared: Any, size: int) -> bool:
    letter = getattr(declared, "_type_", None)
    return isinstance(letter, str) and letter in "bBhHiIlLqQ" and ctypes.sizeof(declared) == size


def _cffi_address(function: Any, span: bool) -> int:
    ffi = sys.modules["_cffi_backend"].FFI()
    try:
        declared = ffi.typeof(function)
    except TypeError:
        raise TypeError(f"kernel() cannot take {_kind(function)}: pass a cffi function pointer") from None
    if declared.kind != "function":
        raise TypeError(f"kernel() cannot take cffi's {declared.cname}: pass a function pointer")

    def integer(ctype: Any, size: int) -> bool:
        # typeof has no word for it: float, char and bool are primitive too.
        return (
            ctype.kind == "primitive"
            and ffi.sizeof(ctype) == size
            and re.search("float|double|char|bool", ctype.cname) is None
        )

    *indices, pointers = declared.args or (declared.result,)
    if not (
        integer(declared.result, 4)
        and int(ffi.cast(declared.result, -1)) < 0
        and not declared.ellipsis
        and len(indices) == 1 + span
        and all(integer(each, 8) for each in indices)
        and pointers.kind == "pointer"
    ):
        raise _refuse(function, declared.cname, span)
    address = int(ffi.cast("uintptr_t", function))
    if not address:
        raise ValueError(f"{_title(function)} is a null pointer")
    return address


# numba


def _is_njit(function: Any) -> bool:
    registry = sys.modules.get("numba.core.registry")
    return registry is not None and isinstance(function, registry.CPUDispatcher)


def _is_cfunc(function: Any) -> bool:
    ccallback = sys.modules.get("numba.core.ccallback")
    return ccallback is not None and isinstance(function, ccallback.CFunc)


def _compile(function: Any, objects: Sequence[Any], given: int, out_slot: int | None, span: bool) -> tuple[Any, Any]:
    """A C function that calls an njit one, and the buffer of shapes it reads after those of `objects`.

    The shapes are data, not constants of the code, so that arrays of other lengths need no other compilation.
    """
    numba: Any = sys.modules["numba"]
    numpy: Any = sys.modules["numpy"]
    label = _title(function)
    if function.targetoptions.get("parallel"):
        raise TypeError(f"{label} is compiled with parallel=True: leave that out, the instances are spread already")

    views, types = [], []
    for slot, each in enumerate(objects):
        try:
            views.append(each if isinstance(each, numpy.ndarray) else numpy.asarray(memoryview(each)))
            types.append(numba.typeof(views[-1]))
        except Exception as error:
            what = f"array {slot}" if slot < given else "out"
            raise TypeError(f"numba has no type for {what}: {_short(error)}") from error
    indices = 2 if span else 1
    count = indices + given
    passed = list(range(given))
    store_slot = None
    expected = f"{'start, stop' if span else 'i'} and {given} array{'' if given == 1 else 's'}"
    if out_slot is None or (out_slot < given and _takes(function, count)):
        fits = _takes(function, count)
    elif not span and out_slot == given and _takes(function, count, starred=False):
        fits, store_slot = True, out_slot
        if views[out_slot].ndim == 0:
            raise TypeError("out has no dimension to store values by index: pass an array of one dimension or more")
    else:
        fits = _takes(function, count + 1)
        passed.append(out_slot)
        expected += " and out"
    if not fits:
        raise TypeError(
            f"{label}{inspect.signature(function.py_func)} does not fit the arrays: it is called with {expected}"
        )

    key = (tuple(types), tuple(passed), store_slot, bool(span))
    built: dict[Any, Any] = function.__dict__.setdefault("_shoal_kernels", {})
    if key not in built:
        arguments = (numba.intp,) * indices + tuple(types[slot] for slot in passed)
        try:
            function.get_call_template(arguments, {})  # compiles it by itself, where errors are readable
        except Exception as error:
            raise _explain(function, error, types, passed, indices) from error
        try:
            built[key] = _wrap(function, types, passed, store_slot, span)
        except Exception as error:
            if store_slot is None or "setitem" not in str(error):
                raise _explain(function, error, types, passed, indices) from error
            raise TypeError(
                f"what {label} returns cannot be stored in out, an array of {views[store_slot].dtype}: "
                f"change its dtype, or give {label} a last parameter for out and write there"
            ) from error
    return built[key], array.array("q", [length for view in views for length in view.shape])


def _takes(function: Any, count: int, starred: bool = True) -> bool:
    """Whether a call with `count` positional arguments fits; without `starred`, not by a `*args` parameter."""
    parameters = inspect.signature(function.py_func).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return starred and count >= len(parameters) - 1
    required = sum(each.default is each.empty for each in parameters)
    return required <= count <= len(parameters)


def _wrap(function: Any, types: Sequence[Any], passed: Sequence[int], store_slot: int | None, span: bool) -> Any:
    numba: Any = sys.modules["numba"]
    word = numba.intp
    views = _views(types, passed)
    indices = (numba.uint64,) * (2 if span else 1)
    njit: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit
    cfunc: Callable[[Callable[..., Any]], Callable[..., Any]]
    cfunc = numba.cfunc(numba.int32(*indices, numba.types.CPointer(numba.types.voidptr)))

    # The call stands apart since numba takes no starred argument inside try.
    if span:

        @njit
        def call_span(start: Any, stop: Any, pointers: Any) -> None:
            function(word(start), word(stop), *views(pointers))

        @cfunc
        def run_span(start: Any, stop: Any, pointers: Any) -> int:
            try:
                call_span(start, stop, pointers)
            except:  # noqa: E722 - the only form that catches all in numba
                return RAISED
            return 0

        return run_span

    if store_slot is None:

        @njit
        def call(i: Any, pointers: Any) -> None:
            function(word(i), *views(pointers))

        @cfunc
        def run(i: Any, pointers: Any) -> int:
            try:
                call(i, pointers)
            except:  # noqa: E722
                return RAISED
            return 0

        return run

    target = _views(types, [store_slot])

    # numba checks no bounds, and what is stored here is none of the user's code: it must not write elsewhere.
    @njit
    def call_store(i: Any, pointers: Any) -> int:
        out = target(pointers)[0]
        if i >= numba.uint64(len(out)):
            return OUT_OF_RANGE
        out[word(i)] = function(word(i), *views(pointers))
        return 0

    @cfunc
    def run_store(i: Any, pointers: Any) -> Any:
        code = RAISED
        try:
            code = call_store(i, pointers)
        except:  # noqa: E722
            return RAISED
        return code

    return run_store


def _views(types: Sequence[Any], slots: Sequence[int]) -> Any:
    """A function for numba code: the arrays at `slots` of the pointers, as a tuple.

    `numba.carray` would do, but for read-only arrays: it makes all of them writable.
    """
    numba: Any = sys.modules["numba"]
    arrayobj: Any = importlib.import_module("numba.np.arrayobj")
    ir: Any = importlib.import_module("llvmlite.ir")
    result = numba.types.Tuple([types[slot] for slot in slots])
    shapes = len(types)

    intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.extending.intrinsic

    @intrinsic
    def views(typing: Any, pointers: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = context.get_value_type(numba.intp)

            def at(base: Any, position: int) -> Any:
                return builder.load(builder.gep(base, [ir.Constant(word, position)]))

            lengths = builder.bitcast(at(arguments[0], shapes), word.as_pointer())
            made = []
            for slot in slots:
                kind = types[slot]
                first = sum(each.ndim for each in types[:slot])
                view = context.make_array(kind)(context, builder)
                shape = [at(lengths, first + axis) for axis in range(kind.ndim)]
                itemsize = context.get_constant(numba.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
                strides = [itemsize]
                for length in reversed(shape[1:]):
                    strides.insert(0, builder.mul(strides[0], length))
                arrayobj.populate_array(
                    view,
                    data=builder.bitcast(at(arguments[0], slot), view.data.type),
                    shape=shape,
                    strides=strides[: kind.ndim],
                    itemsize=itemsize,
                    meminfo=None,
                )
                made.append(view._getvalue())
            return context.make_tuple(builder, result, made)

        return result(pointers), generate

    return views


def _explain(function: Any, error: Exception, types: Sequence[Any], passed: Sequence[int], indices: int) -> TypeError:
    names = list(inspect.signature(function.py_func).parameters)[indices:]
    if "readonly" in str(error) and any(not types[slot].mutable for slot in passed):
        fixed = [
            f"{names[place] if place < len(names) else 'argument'} (array {slot})"
            for place, slot in enumerate(passed)
            if not types[slot].mutable
        ]
        writes = "writes to" if len(fixed) == 1 else "writes to one of"
        return TypeError(
            f"{_title(function)} {writes} {', '.join(fixed)}, which is read-only: pass a writable array or a copy"
        )
    return TypeError(f"numba cannot compile {_title(function)} for these arrays: {_short(error)}")


def _short(error: Exception) -> str:
    """The first line of a numba error that says something, with the line of the user's source if it names one."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if not line.startswith(("Failed in", "- Resolution", "During:"))), "")
    where = next((line.rstrip(":") for line in lines if line.startswith('File "')), "")
    return f"{said} ({where})" if where and where not in said else said or type(error).__name__


# Words


def _title(function: Any) -> str:
    if isinstance(function, int):
        return f"kernel at {int(function):#x}"
    found = getattr(function, "__name__", None)
    return found if isinstance(found, str) and found != "<cdata>" else "kernel"


def _name(declared: Any) -> str:
    return "void" if declared is None else str(getattr(declared, "__name__", declared))


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"

"""`shoal.kernel`: every kind of compiled function it takes, what it refuses and says, and how long arrays live."""

from __future__ import annotations

import array
import ctypes
import gc
import subprocess
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shoal
import shoal._kernel

INDEX = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p))
SPAN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p))


@pytest.fixture
def numba() -> Any:
    return pytest.importorskip("numba")


@pytest.fixture
def ffi() -> Any:
    return pytest.importorskip("cffi").FFI()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes `kernel()` answer with what it would hand to the native class."""

    def record(address: int, buffers: list[Any], out: Any, span: bool, name: str, keep: Any) -> Any:
        return SimpleNamespace(address=address, buffers=buffers, out=out, span=span, name=name, keep=keep)

    monkeypatch.setattr(shoal._kernel, "_native", SimpleNamespace(Kernel=record))


@pytest.fixture
def square(numba: Any) -> Any:
    @numba.njit
    def square(i, x):
        return x[i] * x[i]

    return square


@pytest.fixture
def double(numba: Any) -> Any:
    @numba.njit
    def double(i, x, y):
        y[i] = 2 * x[i]

    return double


def doubles(pointers: Any, slot: int, index: int) -> Any:
    """The element of an array of float64, as a C function sees it."""
    return ctypes.c_double.from_address(pointers[slot] + 8 * index)


@INDEX
def c_double(i, pointers):
    doubles(pointers, 1, i).value = 2 * doubles(pointers, 0, i).value
    return 0


@INDEX
def c_odd_fails(i, pointers):
    return 40 + i if i % 2 else 0


# njit functions


def test_what_an_njit_function_returns_is_stored_in_out(square):
    x, out = np.arange(1000.0), np.zeros(1000)
    assert shoal.map(shoal.kernel(square, x, out=out), range(1000)) is out
    assert (out == x * x).all()


def test_an_njit_function_with_a_parameter_for_out_gets_it_last(double):
    x, out = np.arange(1000.0), np.zeros(1000)
    assert shoal.map(shoal.kernel(double, x, out=out), range(1000)) is out
    assert (out == 2 * x).all()


def test_out_may_be_one_of_the_arrays(double):
    x, y = np.arange(100.0), np.zeros(100)
    assert shoal.spawn(shoal.kernel(double, x, y, out=y), count=100).result() is y
    assert (y == 2 * x).all()


def test_out_that_is_one_of_the_arrays_is_not_overwritten_by_returned_values(numba):
    @numba.njit
    def body(i, x):
        x[i] += 1
        return -5.0

    x = np.zeros(10)
    assert (shoal.map(shoal.kernel(body, x, out=x), range(10)) == 1).all()


def test_an_array_that_is_also_out_can_be_passed_twice(double):
    x = np.arange(10.0)
    assert (shoal.map(shoal.kernel(double, x, out=x), range(10)) == 2 * np.arange(10.0)).all()


def test_without_out_the_arrays_are_written_in_place(double):
    x, y = np.arange(100.0), np.zeros(100)
    shoal.map(shoal.kernel(double, x, y), range(100))
    assert (y == 2 * x).all()


def test_an_njit_function_needs_no_arrays(numba):
    @numba.njit
    def body(i):
        if i == 3:
            raise ValueError("three")

    failed = shoal.spawn(shoal.kernel(body), count=5, on_failure="continue")
    failed.drain()
    assert list(failed.errors) == [3]


def test_an_njit_function_may_have_defaults_and_starred_arrays(numba):
    @numba.njit
    def scaled(i, x, by=3.0):
        return by * x[i]

    @numba.njit
    def starred(i, *arrays):
        arrays[1][i] = arrays[0][i] + 1

    x = np.arange(10.0)
    assert (shoal.map(shoal.kernel(scaled, x, out=np.zeros(10)), range(10)) == 3 * x).all()
    assert (shoal.map(shoal.kernel(starred, x, out=np.zeros(10)), range(10)) == x + 1).all()


def test_an_njit_function_with_a_signature_of_its_own_is_taken(numba):
    @numba.njit("float64(int64, float64[:])")
    def body(i, x):
        return x[i] + 1

    x = np.arange(10.0)
    assert (shoal.map(shoal.kernel(body, x, out=np.zeros(10)), range(10)) == x + 1).all()
    with pytest.raises(TypeError, match=r"cannot compile body .*float32"):
        shoal.kernel(body, x.astype("f4"), out=np.zeros(10))


def test_an_index_is_signed_so_that_arithmetic_with_it_is_not_floating(numba):
    @numba.njit
    def before(i, x):
        return x[i - 1]

    x = np.arange(5.0)
    assert shoal.map(shoal.kernel(before, x, out=np.zeros(5)), range(5)).tolist() == [4, 0, 1, 2, 3]


def test_arrays_have_their_shape_and_dtype(numba):
    @numba.njit
    def body(i, a, b, c, out):
        if a.shape != (4, 3, 2) or b.shape != (4,) or c.shape != ():
            raise ValueError
        out[i] = a[i, 2, 1] + b[i].k + c[()]

    a = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
    b = np.array([(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.5)], dtype=[("k", "i4"), ("O", "f8")])
    out = shoal.map(shoal.kernel(body, a, b, np.array(1000), out=np.zeros(4)), range(4))
    assert (out == a[:, 2, 1] + b["k"] + 1000).all()


def test_rows_of_out_are_stored_whole(numba):
    @numba.njit
    def row(i, x):
        return x[i]

    x = np.arange(6.0).reshape(2, 3)
    assert (shoal.map(shoal.kernel(row, x, out=np.zeros((2, 3))), range(2)) == x).all()


def test_dates_are_taken_though_numpy_does_not_export_them(numba):
    @numba.njit
    def copy(i, x):
        return x[i]

    x = np.array(["2020-01-01", "2021-01-01"], "M8[D]")
    out = np.zeros(2, "M8[D]")
    assert shoal.map(shoal.kernel(copy, x, out=out), range(2)) is out
    assert (out == x).all()


def test_arrays_need_not_be_of_numpy(numba):
    @numba.njit
    def add(i, a, b, c, d):
        return a[i] + b[i] + c[i] + d[i]

    arrays = array.array("d", [1, 2]), bytearray([10, 20]), memoryview(b"\x01\x02"), (ctypes.c_int * 2)(100, 200)
    out = array.array("d", [0, 0])
    assert shoal.map(shoal.kernel(add, *arrays, out=out), range(2)) is out
    assert out.tolist() == [112, 224]


def test_empty_arrays_are_fine(square):
    out = np.zeros(0)
    assert shoal.map(shoal.kernel(square, np.zeros(0), out=out), range(0)) is out


def test_raising_in_an_njit_function_fails_that_instance_with_code_1(numba):
    @numba.njit
    def root(i, x):
        if x[i] < 0:
            raise ValueError("negative")
        return x[i] ** 0.5

    x = np.array([4.0, -1.0, 9.0, -2.0])
    roots = shoal.spawn(shoal.kernel(root, x, out=np.zeros(4)), count=4, on_failure="continue")
    roots.drain()
    assert {index: (error.code, error.index) for index, error in roots.errors.items()} == {1: (1, 1), 3: (1, 3)}
    assert all(isinstance(error, shoal.KernelError) for error in roots.errors.values())
    assert roots.result()[[0, 2]].tolist() == [2, 3]


@pytest.mark.parametrize("kind", ["zero division", "assertion", "dynamic message"])
def test_every_kind_of_raising_fails_the_instance(numba, kind):
    @numba.njit
    def divide(i, x):
        x[i] = 1 // x[i]

    @numba.njit
    def check(i, x):
        if not x[i]:
            raise AssertionError  # pytest rewrites assert to what numba cannot compile

    @numba.njit
    def tell(i, x):
        if not x[i]:
            raise ValueError(i, x[i])

    body = {"zero division": divide, "assertion": check, "dynamic message": tell}[kind]
    failed = shoal.spawn(shoal.kernel(body, np.array([1, 0, 1])), count=3, on_failure="continue")
    failed.drain()
    assert {index: error.code for index, error in failed.errors.items()} == {1: 1}


def test_the_first_failure_of_map_raises(numba):
    @numba.njit
    def body(i):
        if i == 7:
            raise ValueError

    with pytest.raises(shoal.KernelError) as caught:
        shoal.map(shoal.kernel(body), range(10))
    assert (caught.value.code, caught.value.index) == (1, 7)


def test_a_value_for_an_index_past_the_end_of_out_fails_and_writes_nothing(square):
    x, whole = np.ones(100), np.zeros(100)
    out = whole[:40]
    late = shoal.spawn(shoal.kernel(square, x, out=out), count=100, on_failure="continue")
    late.drain()
    assert {error.code for error in late.errors.values()} == {2}
    assert sorted(late.errors) == list(range(40, 100))
    assert whole.sum() == 40


def test_an_njit_span_does_a_range(numba):
    @numba.njit
    def body(start, stop, x, y):
        for i in range(start, stop):
            y[i] = x[i] + 1

    x, out = np.arange(10_000.0), np.zeros(10_000)
    assert shoal.map(shoal.kernel(body, x, out=out, span=True), range(10_000)) is out
    assert (out == x + 1).all()


def test_an_njit_span_that_raises_fails_with_code_1(numba):
    @numba.njit
    def body(start, stop):
        if start <= 5 < stop:
            raise ValueError

    failed = shoal.spawn(shoal.kernel(body, span=True), count=10, on_failure="continue")
    failed.drain()
    assert failed.errors[5].code == 1


def test_arrays_of_another_length_need_no_other_compilation(square, given):
    first = shoal.kernel(square, np.zeros(3), out=np.zeros(3))
    assert shoal.kernel(square, np.zeros(99), out=np.zeros(99)).address == first.address
    assert shoal.kernel(square, np.zeros(3, "f4"), out=np.zeros(3)).address != first.address


def test_read_only_arrays_are_read(square):
    x = np.arange(5.0)
    x.flags.writeable = False
    assert (shoal.map(shoal.kernel(square, x, out=np.zeros(5)), range(5)) == x * x).all()


def test_writing_to_a_read_only_array_is_refused_by_name(double):
    y = np.zeros(3)
    y.flags.writeable = False
    with pytest.raises(TypeError, match=r"double writes to y \(array 1\), which is read-only") as caught:
        shoal.kernel(double, np.zeros(3), y)
    assert caught.value.__cause__ is not None
    with pytest.raises(TypeError, match=r"double writes to y \(array 1\)"):
        shoal.kernel(double, np.zeros(3, "u1"), b"abc")


def test_a_compile_error_is_short_and_chained(numba):
    @numba.njit
    def body(i, x):
        return x.missing

    with pytest.raises(TypeError, match=r"numba cannot compile body .*'missing' .*test_kernel.py") as caught:
        shoal.kernel(body, np.zeros(3))
    assert "\n" not in str(caught.value)
    assert type(caught.value.__cause__).__name__ == "TypingError"


def test_a_value_that_does_not_fit_out_is_refused(numba):
    @numba.njit
    def nothing(i, x):
        pass

    with pytest.raises(TypeError, match=r"what nothing returns cannot be stored in out, an array of float64"):
        shoal.kernel(nothing, np.zeros(3), out=np.zeros(3))


def test_out_without_a_dimension_cannot_store_values(square):
    with pytest.raises(TypeError, match="out has no dimension"):
        shoal.kernel(square, np.zeros(3), out=np.zeros(()))


def test_the_wrong_number_of_arrays_is_refused(square, double):
    x = np.zeros(3)
    with pytest.raises(TypeError, match=r"square\(i, x\) does not fit the arrays: it is called with i and 0 arrays"):
        shoal.kernel(square)
    with pytest.raises(TypeError, match="i and 2 arrays"):
        shoal.kernel(square, x, x)
    with pytest.raises(TypeError, match=r"i and 1 array$"):
        shoal.kernel(double, x)
    with pytest.raises(TypeError, match="i and 3 arrays and out"):
        shoal.kernel(square, x, x, x, out=np.zeros(3))
    with pytest.raises(TypeError, match="start, stop and 1 array and out"):
        shoal.kernel(double, x, out=np.zeros(3), span=True)


def test_a_dtype_that_numba_does_not_know_is_refused(square):
    with pytest.raises(TypeError, match="numba has no type for array 0"):
        shoal.kernel(square, np.zeros(3, ">f8"))
    with pytest.raises(TypeError, match="numba has no type for out"):
        shoal.kernel(square, np.zeros(3), out=np.zeros(3, ">f8"))


def test_parallel_object_mode_and_ufuncs_are_refused(numba):
    def body(i, x):
        x[i] = 1

    with pytest.raises(TypeError, match="parallel=True"):
        shoal.kernel(numba.njit(parallel=True)(body), np.zeros(3))
    with pytest.raises(TypeError, match="cannot compile body"):
        shoal.kernel(numba.jit(forceobj=True)(body), np.zeros(3))
    with pytest.raises(TypeError, match="DUFunc"):
        shoal.kernel(numba.vectorize(lambda a: a), np.zeros(3))


# numba cfuncs


def test_a_cfunc_is_called_with_the_index_and_the_pointers(numba):
    @numba.cfunc("int32(uint64, CPointer(CPointer(float64)))")
    def body(i, pointers):
        pointers[1][i] = 2 * pointers[0][i]
        return 0

    x, out = np.arange(1000.0), np.zeros(1000)
    assert shoal.map(shoal.kernel(body, x, out=out), range(1000)) is out
    assert (out == 2 * x).all()


def test_what_a_cfunc_returns_is_the_code_of_the_failure(numba):
    body = numba.cfunc("int32(uint64, voidptr)")(lambda i, pointers: -7 if i == 2 else 0)
    failed = shoal.spawn(shoal.kernel(body), count=4, on_failure="continue")
    failed.drain()
    assert {index: error.code for index, error in failed.errors.items()} == {2: -7}


def test_a_cfunc_span_does_a_range(numba):
    @numba.cfunc("int32(uint64, uint64, CPointer(CPointer(float64)))")
    def body(start, stop, pointers):
        for i in range(start, stop):
            pointers[0][i] = i
        return 0

    out = np.zeros(1000)
    assert shoal.map(shoal.kernel(body, out=out, span=True), range(1000)).tolist() == list(range(1000))


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("float64(uint64, voidptr)", lambda i, pointers: 0),
        ("int64(uint64, voidptr)", lambda i, pointers: 0),
        ("int32(float64, voidptr)", lambda i, pointers: 0),
        ("int32(uint32, voidptr)", lambda i, pointers: 0),
        ("int32(uint64, uint64)", lambda i, pointers: 0),
        ("int32(uint64)", lambda i: 0),
        ("int32(uint64, uint64, voidptr)", lambda start, stop, pointers: 0),
        ("int32()", lambda: 0),
    ],
)
def test_a_cfunc_of_another_type_is_refused(numba, signature, body):
    with pytest.raises(TypeError, match=r"int32 f\(uint64 i, void \*\*arrays\)"):
        shoal.kernel(numba.cfunc(signature)(body))


def test_a_cfunc_for_an_index_is_no_span(numba):
    body = numba.cfunc("int32(uint64, voidptr)")(lambda i, pointers: 0)
    with pytest.raises(TypeError, match=r"int32 f\(uint64 start, uint64 stop, void \*\*arrays\)"):
        shoal.kernel(body, span=True)


# ctypes


def test_a_ctypes_callback_is_called():
    x, out = np.arange(50.0), np.zeros(50)
    assert shoal.map(shoal.kernel(c_double, x, out=out), range(50)) is out
    assert (out == 2 * x).all()


def test_what_a_ctypes_function_returns_is_the_code_of_the_failure():
    failed = shoal.spawn(shoal.kernel(c_odd_fails), count=4, on_failure="continue")
    failed.drain()
    assert {index: error.code for index, error in failed.errors.items()} == {1: 41, 3: 43}


def test_a_ctypes_span_does_a_range():
    @SPAN
    def body(start, stop, pointers):
        for i in range(start, stop):
            doubles(pointers, 0, i).value = i
        return 0

    out = np.zeros(100)
    assert shoal.map(shoal.kernel(body, out=out, span=True), range(100)).tolist() == list(range(100))


def test_a_function_of_a_library_is_taken_by_its_address(given):
    function = ctypes.CDLL(None).abs
    made = shoal.kernel(function)
    assert made.address == ctypes.cast(function, ctypes.c_void_p).value
    assert made.name == "abs"
    assert made.keep is function


@pytest.mark.parametrize(
    "declared",
    [
        (None, ctypes.c_uint64, ctypes.c_void_p),
        (ctypes.c_double, ctypes.c_uint64, ctypes.c_void_p),
        (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p),
        (ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p),
        (ctypes.c_int32, ctypes.c_double, ctypes.c_void_p),
        (ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p),
        (ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64),
        (ctypes.c_int32, ctypes.c_uint64),
        (ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p),
    ],
)
def test_a_ctypes_function_of_another_type_is_refused(declared):
    with pytest.raises(TypeError, match=r"is declared as .*int32 f\(uint64 i, void \*\*arrays\)"):
        shoal.kernel(ctypes.CFUNCTYPE(*declared)(lambda *arguments: 0))


def test_a_ctypes_function_that_needs_the_gil_is_refused():
    with pytest.raises(TypeError, match="Py_IsInitialized needs the GIL"):
        shoal.kernel(ctypes.pythonapi.Py_IsInitialized)


def test_null_pointers_are_refused(ffi):
    with pytest.raises(ValueError, match="null pointer"):
        shoal.kernel(INDEX())
    with pytest.raises(ValueError, match="null pointer"):
        shoal.kernel(ffi.cast("int32_t(*)(uint64_t, void **)", 0))


# cffi


def test_a_cffi_pointer_is_called(ffi):
    @ffi.callback("int32_t(uint64_t, void **)")
    def body(i, pointers):
        ffi.cast("double *", pointers[0])[i] = i
        return 9 if i == 3 else 0

    out = np.zeros(5)
    failed = shoal.spawn(shoal.kernel(body, out=out), count=5, on_failure="continue")
    failed.drain()
    assert out.tolist() == [0, 1, 2, 3, 4]
    assert {index: error.code for index, error in failed.errors.items()} == {3: 9}


def test_a_cffi_span_does_a_range(ffi):
    @ffi.callback("int(size_t, size_t, double **)")
    def body(start, stop, pointers):
        for i in range(start, stop):
            pointers[0][i] = i
        return 0

    out = np.zeros(100)
    assert shoal.map(shoal.kernel(body, out=out, span=True), range(100)).tolist() == list(range(100))


@pytest.mark.parametrize(
    "declared",
    [
        "void(uint64_t, void **)",
        "uint32_t(uint64_t, void **)",
        "float(uint64_t, void **)",
        "int(double, void **)",
        "int(uint32_t, void **)",
        "int(uint64_t, uint64_t)",
        "int(uint64_t)",
        "int(void)",
        "int(uint64_t, uint64_t, void **)",
    ],
)
def test_a_cffi_pointer_of_another_type_is_refused(ffi, declared):
    with pytest.raises(TypeError, match=r"is declared as .*int32 f\(uint64 i, void \*\*arrays\)"):
        shoal.kernel(ffi.callback(declared, lambda *arguments: None))


def test_cffi_data_that_is_no_function_is_refused(ffi):
    with pytest.raises(TypeError, match=r"cannot take cffi's int \*"):
        shoal.kernel(ffi.new("int *"))
    with pytest.raises(TypeError, match="pass a cffi function pointer"):
        shoal.kernel(ffi.typeof("int"))


# Addresses, and what is no compiled function


def test_an_address_is_called():
    address = ctypes.cast(c_double, ctypes.c_void_p).value
    x, out = np.arange(50.0), np.zeros(50)
    assert (shoal.map(shoal.kernel(address, x, out=out), range(50)) == 2 * x).all()


@pytest.mark.parametrize("address", [0, -1, 2**64])
def test_an_address_is_above_zero_and_fits_a_pointer(address):
    with pytest.raises(ValueError, match=f"{address} is no address"):
        shoal.kernel(address)


def test_true_is_no_address():
    with pytest.raises(TypeError, match="not True"):
        shoal.kernel(True)


def test_a_python_function_is_refused_with_what_to_do():
    def body(i):
        return i

    with pytest.raises(TypeError, match=r"body is a Python function.*numba\.njit.*shoal\.map or shoal\.spawn"):
        shoal.kernel(body)


@pytest.mark.parametrize("value", [None, len, "f", 1.5, ctypes.c_int(3), print])
def test_anything_else_is_refused_by_its_type(value):
    with pytest.raises(TypeError, match=f"cannot take .*{type(value).__name__}"):
        shoal.kernel(value)


def test_a_name_is_a_string(given):
    assert shoal.kernel(c_double, name="twice").name == "twice"
    assert shoal.kernel(0x1000).name == "kernel at 0x1000"
    with pytest.raises(TypeError, match="name is a str, not int"):
        shoal.kernel(c_double, name=3)


def test_the_name_is_that_of_the_function(square, given):
    assert shoal.kernel(square, np.zeros(1), out=np.zeros(1)).name == "square"


# Arrays


def test_buffers_are_the_arrays_and_then_out(given):
    x, y, out = np.zeros(1), bytearray(1), np.zeros(1)
    made = shoal.kernel(c_double, x, y, out=out)
    assert [id(each) for each in made.buffers] == [id(x), id(y), id(out)]
    assert made.out is out
    made = shoal.kernel(c_double, x, y, out=x)
    assert [id(each) for each in made.buffers] == [id(x), id(y)]
    assert shoal.kernel(c_double, x).out is None


def test_equal_arrays_are_not_the_same_array(given):
    x, out = np.zeros(1), np.zeros(1)
    assert len(shoal.kernel(c_double, x, out=out).buffers) == 2


def test_an_array_that_is_not_contiguous_is_refused_with_what_to_do():
    x = np.zeros(10)
    with pytest.raises(TypeError, match=r"array 1 is not C-contiguous: pass np\.ascontiguousarray"):
        shoal.kernel(c_double, x, x[::2])
    with pytest.raises(TypeError, match="array 0 is not C-contiguous"):
        shoal.kernel(c_double, np.zeros((3, 2)).T)
    with pytest.raises(TypeError, match="array 0 is not C-contiguous"):
        shoal.kernel(c_double, memoryview(b"abcd")[::2])
    with pytest.raises(TypeError, match="out is not C-contiguous"):
        shoal.kernel(c_double, x, out=x[::2])


@pytest.mark.parametrize("dtype", ["O", [("a", "f8"), ("b", "O")]])
def test_python_objects_in_an_array_are_refused(dtype):
    with pytest.raises(TypeError, match="array 0 holds Python objects"):
        shoal.kernel(c_double, np.zeros(3, dtype))


def test_a_field_called_o_is_no_object(given):
    assert shoal.kernel(c_double, np.zeros(3, [("O", "f8")]))


@pytest.mark.parametrize("value", [[1.0], 3, None, "text", iter(())])
def test_what_has_no_buffer_is_refused_by_its_type(value):
    with pytest.raises(TypeError, match=f"array 1 is {type(value).__name__}, which has no buffer"):
        shoal.kernel(c_double, np.zeros(1), value)
    if value is not None:
        with pytest.raises(TypeError, match=f"out is {type(value).__name__}, which has no buffer"):
            shoal.kernel(c_double, out=value)


def test_out_has_to_be_writable():
    x = np.zeros(3)
    x.flags.writeable = False
    for out in (x, b"abc", memoryview(b"abc")):
        with pytest.raises(TypeError, match="out is read-only"):
            shoal.kernel(c_double, out=out)


# Lifetimes


def test_a_kernel_keeps_its_arrays_alive(double):
    x, y = np.arange(1000.0), np.zeros(1000)
    gone = weakref.ref(x)
    made = shoal.kernel(double, x, out=y)
    del x, y
    gc.collect()
    assert gone() is not None
    assert (shoal.map(made, range(1000)) == 2 * np.arange(1000.0)).all()


def test_the_arrays_go_with_the_kernel(double):
    x, out = np.arange(10.0), np.zeros(10)
    gone = [weakref.ref(x), weakref.ref(out)]
    made = shoal.kernel(double, x, out=out)
    del x, out, made
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_a_kernel_keeps_its_function_alive():
    def make():
        return shoal.kernel(INDEX(lambda i, pointers: 5 if i == 1 else 0))

    made = make()
    gc.collect()
    failed = shoal.spawn(made, count=3, on_failure="continue")
    failed.drain()
    assert failed.errors[1].code == 5


def test_a_bytearray_cannot_be_resized_while_its_kernel_lives():
    data = bytearray(8)
    made = shoal.kernel(c_double, data)
    with pytest.raises(BufferError):
        data.append(1)
    del made
    gc.collect()
    data.append(1)
    assert len(data) == 9


def test_nothing_optional_is_imported_for_a_kernel():
    code = """
import ctypes, sys, shoal
before = {name for name in ("numba", "numpy", "cffi") if name in sys.modules}
function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_void_p)(lambda i, arrays: 0)
shoal.kernel(function, bytearray(8))
assert {name for name in ("numba", "numpy", "cffi") if name in sys.modules} == before
assert not {"numba", "cffi"} & before
"""
    subprocess.run([sys.executable, "-c", code], check=True)

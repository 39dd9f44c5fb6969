//! Compiled bodies: a function pointer and its arrays, run without the interpreter.
#![expect(unsafe_code, reason = "kernels are foreign code over foreign memory")]

use std::{any::Any, ffi::c_void, sync::Arc};

use pyo3::{PyTraverseError, PyVisit, exceptions::PyTypeError, ffi, prelude::*, types::PyList};
use shoal_core::{Body, Chunk, Cost, Outcome};

use crate::{body::Shown, engine::Inner, failures::Failures, python::Owned};

type Index = unsafe extern "C" fn(u64, *const *mut c_void) -> i32;
type Span = unsafe extern "C" fn(u64, u64, *const *mut c_void) -> i32;

enum Call {
    Index(Index),
    Span(Span),
    /// For tests: panics at odd indices.
    Panic,
}

/// The memory of an array, which cannot go or move while this lives. Python checked its layout.
struct Pinned(Box<ffi::Py_buffer>);

impl Pinned {
    fn new(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: an object and a fresh view; the answer says whether the view was filled.
        match unsafe { ffi::PyObject_GetBuffer(array.as_ptr(), &raw mut *view, ffi::PyBUF_SIMPLE) }
        {
            0 => Ok(Self(view)),
            _ => Err(PyErr::fetch(array.py())),
        }
    }

    fn start(&self) -> *mut c_void {
        self.0.buf
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        Python::try_attach(|_| {
            // SAFETY: filled by `new`, and released once.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
        });
    }
}

/// A compiled function, its arrays, and what is known of its cost. Lives as long as a call may touch the arrays.
pub(crate) struct Code {
    call: Call,
    pointers: Box<[*mut c_void]>,
    /// Pins the arrays' memory.
    _buffers: Vec<Pinned>,
    out: Owned<Option<Py<PyAny>>>,
    name: String,
    /// What owns the function's machine code.
    _keep: Owned<Option<Py<PyAny>>>,
    pub(crate) cost: Arc<Cost>,
}

// SAFETY: the pointers are to memory that the buffers pin, and to which only the kernel's own code goes; that the code may run on any
// thread, and on many, is what a kernel is.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    fn of(call: Call, name: &str) -> Self {
        Self {
            call,
            pointers: Box::new([]),
            _buffers: Vec::new(),
            out: Owned::new(None),
            name: name.into(),
            _keep: Owned::new(None),
            cost: Arc::new(Cost::new()),
        }
    }
}

/// A compiled body: `shoal.kernel(...)` makes one.
#[pyclass(frozen, module = "shoal")]
pub(crate) struct Kernel {
    pub(crate) code: Arc<Code>,
}

#[pymethods]
impl Kernel {
    /// Made by `shoal.kernel`, which checks what it is given.
    #[new]
    #[pyo3(signature = (address, buffers, out, span, name, keep))]
    fn new(
        address: usize,
        buffers: &Bound<'_, PyList>,
        out: Option<Py<PyAny>>,
        span: bool,
        name: String,
        keep: Py<PyAny>,
    ) -> PyResult<Self> {
        if address == 0 {
            return Err(PyTypeError::new_err("a kernel's address is not 0"));
        }
        let buffers = buffers
            .iter()
            .map(|buffer| Pinned::new(&buffer))
            .collect::<PyResult<Vec<_>>>()?;
        let call = if span {
            // SAFETY: the caller vouches that this is the address of a function of that type.
            Call::Span(unsafe { std::mem::transmute::<usize, Span>(address) })
        } else {
            // SAFETY: as above.
            Call::Index(unsafe { std::mem::transmute::<usize, Index>(address) })
        };
        Ok(Self {
            code: Arc::new(Code {
                call,
                pointers: buffers.iter().map(Pinned::start).collect(),
                _buffers: buffers,
                out: Owned::new(out),
                name,
                _keep: Owned::new(Some(keep)),
                cost: Arc::new(Cost::new()),
            }),
        })
    }

    /// What it is called.
    #[getter]
    fn name(&self) -> &str {
        &self.code.name
    }

    /// The array that is the result of a set that runs it.
    #[getter]
    fn out(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.code.out.as_ref().map(|out| out.clone_ref(py))
    }

    fn __repr__(&self) -> String {
        format!(
            "<shoal.Kernel {} over {} arrays>",
            self.code.name,
            self.code.pointers.len()
        )
    }
}

impl Kernel {
    pub(crate) fn panicking() -> Self {
        Self {
            code: Arc::new(Code::of(Call::Panic, "panic")),
        }
    }
}

unsafe extern "C" fn do_nothing(_index: u64, _arrays: *const *mut c_void) -> i32 {
    0
}

/// A kernel that does nothing, for measuring.
#[pyfunction]
pub(crate) fn noop() -> Kernel {
    Kernel {
        code: Arc::new(Code::of(Call::Index(do_nothing), "noop")),
    }
}

unsafe extern "C" fn spin_for(index: u64, arrays: *const *mut c_void) -> i32 {
    // SAFETY: `spin` passes two pointers: the memory of the nanoseconds, and their number.
    let (nanoseconds, count) = unsafe { (*arrays as *const u32, *arrays.add(1) as usize) };
    if index as usize >= count {
        return 1;
    }
    // SAFETY: inside the array, which the kernel pins.
    let time = unsafe { *nanoseconds.add(index as usize) };
    let start = std::time::Instant::now();
    while start.elapsed().as_nanos() < u128::from(time) {
        std::hint::spin_loop();
    }
    0
}

/// A kernel that keeps a core busy for so many nanoseconds at each index: an array of unsigned 32-bit integers. For measuring.
#[pyfunction]
pub(crate) fn spin(nanoseconds: &Bound<'_, PyAny>) -> PyResult<Kernel> {
    let buffer = Pinned::new(nanoseconds)?;
    if buffer.0.itemsize != 4 {
        return Err(PyTypeError::new_err(
            "nanoseconds is a contiguous array of unsigned 32-bit integers, such as array.array('I', ...)",
        ));
    }
    let mut code = Code::of(Call::Index(spin_for), "spin");
    code.pointers = Box::new([buffer.start(), (buffer.0.len / 4) as *mut c_void]);
    code._buffers = vec![buffer];
    Ok(Kernel {
        code: Arc::new(code),
    })
}

/// A kernel at work in one set.
pub(crate) struct Compiled {
    code: Arc<Code>,
    failures: Failures,
    engine: Arc<Inner>,
}

impl Compiled {
    pub(crate) fn new(code: Arc<Code>, engine: Arc<Inner>) -> Self {
        Self {
            code,
            failures: Failures::default(),
            engine,
        }
    }
}

impl Body for Compiled {
    fn run(&self, chunk: &mut Chunk<'_>) {
        let pointers = self.code.pointers.as_ptr();
        let failures = &self.failures;
        match self.code.call {
            Call::Index(call) => chunk.each_native(move |index| {
                // SAFETY: who made the kernel vouches for the function; the arrays are pinned as long as `code` lives.
                match unsafe { call(u64::from(index), pointers) } {
                    0 => Outcome::Completed,
                    code => {
                        failures.code(index, code);
                        Outcome::Failed
                    }
                }
            }),
            Call::Span(call) => chunk.spans(u32::MAX, |start, stop| {
                // SAFETY: as above.
                match unsafe { call(u64::from(start), u64::from(stop), pointers) } {
                    0 => Outcome::Completed,
                    code => {
                        (start..stop).for_each(|index| self.failures.code(index, code));
                        Outcome::Failed
                    }
                }
            }),
            Call::Panic => chunk.each(|index| {
                assert!(index % 2 == 0, "instance {index} panics, as it should");
                Outcome::Completed
            }),
        }
    }

    fn panicked(&self, index: u32, message: &str) {
        self.failures.panicked(index, message);
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Shown for Compiled {
    fn engine(&self) -> &Arc<Inner> {
        &self.engine
    }

    fn failures(&self) -> &Failures {
        &self.failures
    }

    fn item<'py>(&self, py: Python<'py>, index: u32) -> PyResult<Bound<'py, PyAny>> {
        Ok(index.into_pyobject(py)?.into_any())
    }

    fn value(&self, py: Python<'_>, index: u32) -> PyResult<Option<Py<PyAny>>> {
        match &*self.code.out {
            // An array that is shorter than the set has no value there.
            Some(out) if (index as usize) < out.bind(py).len()? => {
                Ok(Some(out.bind(py).get_item(index)?.unbind()))
            }
            _ => Ok(Some(py.None())),
        }
    }

    fn moved<'py>(&self, py: Python<'py>, _count: u32) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.whole(py).map(|whole| whole.into_bound(py)))
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The code and its arrays are the kernel's, which others share.
        self.failures.visit(visit)
    }

    fn whole(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        Some(
            self.code
                .out
                .as_ref()
                .map_or_else(|| py.None(), |out| out.clone_ref(py)),
        )
    }

    fn on(&self) -> &'static str {
        "kernel"
    }
}

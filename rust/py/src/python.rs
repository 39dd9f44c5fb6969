//! The few places that need the interpreter's C interface: fast calls, object slots without a lock, contexts.
#![expect(unsafe_code, reason = "CPython's C interface")]

use std::{
    cell::RefCell,
    mem::ManuallyDrop,
    ptr,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyImportError, PySystemError},
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyList, PyTuple},
};
use shoal_core::Column;

/// A place for one object that is written once by whoever owns the index, and read by anybody after it settled.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct Slot(AtomicPtr<ffi::PyObject>);

impl Slot {
    /// The first object of an empty slot. The set's own words publish it.
    #[inline]
    pub(crate) fn fill(&self, object: Py<PyAny>) {
        self.0.store(object.into_ptr(), Ordering::Release);
    }

    /// Puts an object here; what was here goes.
    pub(crate) fn put(&self, py: Python<'_>, object: Py<PyAny>) {
        let before = self.0.swap(object.into_ptr(), Ordering::AcqRel);
        // SAFETY: `put` and `take` swap pointers whose reference the slot owns, so `before` is ours to give up.
        drop(unsafe { Bound::from_owned_ptr_or_opt(py, before) });
    }

    /// A new reference to what is here.
    pub(crate) fn get(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let object = self.0.load(Ordering::Acquire);
        // SAFETY: the slot owns a reference as long as the pointer is in it; `take` is only called by what owns the values.
        unsafe { Bound::from_borrowed_ptr_or_opt(py, object) }.map(Bound::unbind)
    }

    /// Shows the collector what is here.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let object = self.0.load(Ordering::Acquire);
        if object.is_null() {
            return Ok(());
        }
        // SAFETY: the collector runs attached, with all others kept out; the slot owns the reference, which is neither taken nor given up.
        let object = ManuallyDrop::new(
            unsafe { Bound::from_owned_ptr(Python::assume_attached(), object) }.unbind(),
        );
        visit.call(&*object)
    }

    /// Takes out what is here, where nobody else can be doing that.
    pub(crate) fn take_unshared(&self) -> *mut ffi::PyObject {
        let object = self.0.load(Ordering::Acquire);
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
        object
    }

    /// Takes out what is here.
    pub(crate) fn take(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let object = self.0.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the reference moves from the slot to the answer.
        unsafe { Bound::from_owned_ptr_or_opt(py, object) }.map(Bound::unbind)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let object = *self.0.get_mut();
        if !object.is_null() {
            // An interpreter that is gone has freed what it had.
            Python::try_attach(|py| {
                // SAFETY: nobody else sees the slot any more, and its reference is given up.
                drop(unsafe { Bound::from_owned_ptr(py, object) });
            });
        }
    }
}

/// Python objects that may go on any thread: they go attached, at once. Without this they would wait for the next call into this module.
/// Where the interpreter is gone they are left.
pub(crate) struct Owned<T>(ManuallyDrop<T>);

impl<T> Owned<T> {
    pub(crate) fn new(objects: T) -> Self {
        Self(ManuallyDrop::new(objects))
    }
}

impl<T> std::ops::Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let objects = &mut self.0;
        // SAFETY: dropped here, once, and never touched again. A pointer that may not be sent stays on this thread.
        Python::try_attach(|_| unsafe { ManuallyDrop::drop(objects) });
    }
}

/// Zeroed memory is a column of empty slots.
pub(crate) fn empty_slots(count: usize) -> Box<[Slot]> {
    let slots: Box<[AtomicPtr<ffi::PyObject>]> = bytemuck::zeroed_slice_box(count);
    let raw = Box::into_raw(slots);
    // SAFETY: `Slot` is a transparent wrapper, so layout and length are the same.
    unsafe { Box::from_raw(raw as *mut [Slot]) }
}

/// `PyObject_Vectorcall`, as a function that may unwind: a thread that wants the interpreter back while that is being finalised is ended by
/// `pthread_exit`. Called through a pointer, for pyo3's own declaration of the symbol promises the compiler that it never unwinds.
type Vectorcall = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

static VECTORCALL: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// The workers attach to the main interpreter: bodies of another one would run in the wrong one.
pub(crate) fn refuse_subinterpreter() -> PyResult<()> {
    // SAFETY: both only tell, and this thread is attached.
    if unsafe { ffi::PyInterpreterState_Get() == ffi::PyInterpreterState_Main() } {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "shoal runs in the main interpreter only; in a subinterpreter its workers would not find it",
    ))
}

/// Before the first call. Black, so that the compiler does not see through to pyo3's promise.
pub(crate) fn prepare() {
    let vectorcall = std::hint::black_box(ffi::PyObject_Vectorcall as *mut ());
    VECTORCALL.store(vectorcall, Ordering::Relaxed);
}

/// Stops the thread for good where the interpreter ends it: Rust's frames above must not be unwound by that.
struct HangInstead;

impl Drop for HangInstead {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls with one argument, at the cost of CPython's own calls.
#[inline]
pub(crate) fn call_one<'py>(
    function: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let args = [ptr::null_mut(), argument.as_ptr()];
    // SAFETY: one argument follows the free place that PY_VECTORCALL_ARGUMENTS_OFFSET promises; both objects live through the call.
    unsafe { vectorcall(function, args.as_ptr().add(1), 1) }
}

/// Calls with two arguments.
pub(crate) fn call_two<'py>(
    function: &Bound<'py, PyAny>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let args = [ptr::null_mut(), first.as_ptr(), second.as_ptr()];
    // SAFETY: as in `call_one`, with two.
    unsafe { vectorcall(function, args.as_ptr().add(1), 2) }
}

/// Calls with the elements of a tuple.
#[inline]
pub(crate) fn call_star<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut args = vec![ptr::null_mut()];
    args.extend(arguments.iter_borrowed().map(|argument| argument.as_ptr()));
    // SAFETY: as in `call_one`; the tuple keeps its elements alive.
    unsafe { vectorcall(function, args.as_ptr().add(1), args.len() - 1) }
}

/// Calls without arguments.
pub(crate) fn call_none<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let args: [*mut ffi::PyObject; 1] = [ptr::null_mut()];
    // SAFETY: no arguments after the free place.
    unsafe { vectorcall(function, args.as_ptr().add(1), 0) }
}

/// # Safety
/// `args` points to `count` live objects, with a writable place before them.
#[inline]
unsafe fn vectorcall<'py>(
    function: &Bound<'py, PyAny>,
    args: *const *mut ffi::PyObject,
    count: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let guard = HangInstead;
    // SAFETY: by this function's contract; we are attached, as `function` shows.
    let result = unsafe {
        let call: Vectorcall = std::mem::transmute(VECTORCALL.load(Ordering::Relaxed));
        call(
            function.as_ptr(),
            args,
            count | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET,
            ptr::null_mut(),
        )
    };
    std::mem::forget(guard);
    // SAFETY: a vectorcall answers with a new reference, or null and an exception.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}

/// As `Python::try_attach`, for threads that are not Python's own: the first time on a thread its Python state is kept until the thread
/// ends, so that what a body puts into a `threading.local` is there for the next one. Nothing: the interpreter is going.
pub(crate) fn try_attach_worker<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    struct Kept(ffi::PyGILState_STATE);
    impl Drop for Kept {
        fn drop(&mut self) {
            // SAFETY: attached, and the counterpart of the call that made this, on the same thread.
            Python::try_attach(|_| unsafe { ffi::PyGILState_Release(self.0) });
        }
    }
    thread_local! {
        static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
    }
    // SAFETY: may be asked by any thread at any time.
    let is_unknown = unsafe { ffi::PyGILState_GetThisThreadState() }.is_null();
    Python::try_attach(|py| {
        if is_unknown {
            // SAFETY: attached already, so this only counts one more user of the state.
            let kept = Kept(unsafe { ffi::PyGILState_Ensure() });
            KEPT.with(|place| {
                // One from before a fork or another interpreter's end is not ours to give up.
                if let Some(older) = place.replace(Some(kept)) {
                    std::mem::forget(older);
                }
            });
            if let Err(error) = take_hooks(py) {
                error.write_unraisable(py, None);
            }
        }
        f(py)
    })
}

/// The hooks of debuggers and of coverage that `threading` gives to each new thread of its own.
fn take_hooks(py: Python<'_>) -> PyResult<()> {
    let (threading, sys) = (py.import("threading")?, py.import("sys")?);
    let trace = threading.call_method0("gettrace")?;
    let profile = threading.call_method0("getprofile")?;
    for (set, hook) in [("setprofile", profile), ("settrace", trace)] {
        if !hook.is_none() {
            sys.call_method1(set, (hook,))?;
        }
    }
    Ok(())
}

/// The caller's `contextvars`, for bodies to run in copies of.
pub(crate) struct Context(Py<PyAny>);

impl Context {
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }

    pub(crate) fn of_caller(py: Python<'_>) -> PyResult<Self> {
        // SAFETY: a new reference or null and an exception.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_CopyCurrent()) }
            .map(|context| Self(context.unbind()))
    }

    /// Enters a copy of it, to be left when the answer goes.
    pub(crate) fn enter<'py>(&self, py: Python<'py>) -> PyResult<Entered<'py>> {
        let base = self.0.bind(py).clone();
        let copy = copy(&base)?;
        enter(&copy)?;
        let offset = known_offset(py);
        // SAFETY: as in `refresh`.
        let unchanged = offset.map_or(0, |offset| unsafe { word_at(&base, offset) });
        Ok(Entered {
            base,
            copy,
            offset,
            unchanged,
        })
    }
}

fn copy<'py>(context: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a context in, a new reference or null and an exception out.
    unsafe { Bound::from_owned_ptr_or_err(context.py(), ffi::PyContext_Copy(context.as_ptr())) }
}

fn enter(context: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: it is a context, and a fresh copy, so nobody else has entered it.
    match unsafe { ffi::PyContext_Enter(context.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(context.py())),
    }
}

/// Where contexts keep their variables, if that could be found out.
fn known_offset(py: Python<'_>) -> Option<usize> {
    static OFFSET: PyOnceLock<Option<usize>> = PyOnceLock::new();
    *OFFSET.get_or_init(py, || variables_offset(py).ok().flatten())
}

/// Where a context keeps the pointer to its variables: the only word of it that setting a variable changes.
fn variables_offset(py: Python<'_>) -> PyResult<Option<usize>> {
    let contextvars = py.import("contextvars")?;
    let variable = contextvars.getattr("ContextVar")?.call1(("shoal probe",))?;
    let context = contextvars.call_method0("copy_context")?;
    let size: usize = context.get_type().getattr("__basicsize__")?.extract()?;
    let words = |context: &Bound<'_, PyAny>| -> Vec<usize> {
        (size_of::<ffi::PyObject>()..=size - size_of::<usize>())
            .step_by(size_of::<usize>())
            // SAFETY: inside the object, whose size its type says.
            .map(|offset| unsafe { word_at(context, offset) })
            .collect()
    };
    let before = words(&context);
    context.call_method1("run", (variable.getattr("set")?, 1))?;
    let changed: Vec<usize> = words(&context)
        .iter()
        .zip(&before)
        .enumerate()
        .filter(|(_, (now, then))| now != then)
        .map(|(k, _)| size_of::<ffi::PyObject>() + k * size_of::<usize>())
        .collect();
    Ok(match changed[..] {
        [offset] => Some(offset),
        _ => None,
    })
}

/// # Safety
/// `offset` is that of an aligned word inside the object.
#[inline]
unsafe fn word_at(object: &Bound<'_, PyAny>, offset: usize) -> usize {
    // SAFETY: by this function's contract; atomic, for on a free-threaded build another thread may be writing.
    unsafe { (*object.as_ptr().byte_add(offset).cast::<AtomicUsize>()).load(Ordering::Relaxed) }
}

/// A copy of a context that this thread is in.
pub(crate) struct Entered<'py> {
    base: Bound<'py, PyAny>,
    copy: Bound<'py, PyAny>,
    offset: Option<usize>,
    /// What the word at the offset is as long as no variable was set.
    unchanged: usize,
}

impl Entered<'_> {
    /// What a body set, its siblings must not see: then the next one gets a copy of its own.
    #[inline(always)]
    pub(crate) fn refresh(&mut self) -> PyResult<()> {
        match self.offset {
            // SAFETY: `variables_offset` found it inside the objects of this type.
            Some(offset) if unsafe { word_at(&self.copy, offset) } == self.unchanged => Ok(()),
            None if self.copy.eq(&self.base).unwrap_or(false) => Ok(()),
            _ => self.renew(),
        }
    }

    #[cold]
    fn renew(&mut self) -> PyResult<()> {
        self.leave();
        self.copy = copy(&self.base)?;
        enter(&self.copy)
    }

    fn leave(&self) {
        // SAFETY: this thread entered it and leaves in reverse order; an error says that a body left it already.
        if unsafe { ffi::PyContext_Exit(self.copy.as_ptr()) } != 0 {
            drop(PyErr::take(self.copy.py()));
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// An element of a tuple, borrowed from it.
///
/// # Panics
/// Past its end.
#[inline]
pub(crate) fn tuple_item<'a, 'py>(
    tuple: &'a Bound<'py, PyTuple>,
    index: usize,
) -> Borrowed<'a, 'py, PyAny> {
    assert!(index < tuple.len());
    // SAFETY: inside the tuple, which keeps its elements as long as it lives.
    unsafe {
        let item = ffi::PyTuple_GET_ITEM(tuple.as_ptr(), index as ffi::Py_ssize_t);
        Borrowed::from_ptr(tuple.py(), item)
    }
}

/// Makes a list of so many objects.
pub(crate) fn list_of<'py>(
    py: Python<'py>,
    count: usize,
    mut object: impl FnMut(usize) -> Py<PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: each pointer is a reference that the list takes over.
    unsafe { list_of_pointers(py, count, |k| object(k).into_ptr()) }
}

/// Moves the objects of the first slots into a list; what is missing is None. For the only one who takes from the slots.
pub(crate) fn list_from_slots<'py>(
    py: Python<'py>,
    slots: &Column<Slot>,
    count: usize,
) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: each pointer is a reference that moves from its slot to the list.
    unsafe {
        list_of_pointers(py, count, |k| match slots.get(k).take_unshared() {
            object if object.is_null() => py.None().into_ptr(),
            object => object,
        })
    }
}

/// # Safety
/// `object` gives references that the list takes over.
unsafe fn list_of_pointers<'py>(
    py: Python<'py>,
    count: usize,
    mut object: impl FnMut(usize) -> *mut ffi::PyObject,
) -> PyResult<Bound<'py, PyList>> {
    let length = ffi::Py_ssize_t::try_from(count)
        .map_err(|_| PySystemError::new_err("a list of more than 2**63 values"))?;
    // SAFETY: a new list or null; every place is filled before anybody else sees it.
    unsafe {
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(length))?;
        for k in 0..count {
            ffi::PyList_SET_ITEM(list.as_ptr(), k as ffi::Py_ssize_t, object(k));
        }
        Ok(list.cast_into_unchecked())
    }
}

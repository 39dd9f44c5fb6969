//! Python functions on the workers: one attach serves many chunks.

use std::{
    any::Any,
    collections::HashSet,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, ThreadId},
};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    sync::PyOnceLock,
    types::{PyList, PyTuple},
};
use shoal_core::{Body, Chunk, Column, Outcome, Set};

use crate::{
    body::Shown,
    current::Frame,
    engine::Inner,
    errors::Cancelled,
    failures::Failures,
    items::Inputs,
    names::imported,
    python::{
        Context, Entered, Owned, Slot, call_none, call_one, call_star, call_two, empty_slots,
        list_from_slots, try_attach_worker,
    },
    wait,
};

/// How the function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// With an item.
    One,
    /// With a tuple of items, spread out.
    Star,
    /// With a list of at most so many.
    Batch(u32),
}

/// A Python function, its items and its values.
pub(crate) struct Function(Owned<Parts>);

impl Deref for Function {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

pub(crate) struct Parts {
    call: Py<PyAny>,
    shape: Shape,
    setup: Option<Setup>,
    context: Context,
    keep: bool,
    is_serial: bool,
    pub(crate) inputs: Inputs,
    pub(crate) values: Column<Slot>,
    failures: Failures,
    engine: Arc<Inner>,
    /// For those who take values out, or read where somebody may: whether others than the caller of `map` can read them.
    readers: Mutex<bool>,
}

/// `setup=`: runs once in each thread that runs bodies.
pub(crate) struct Setup {
    call: Py<PyAny>,
    done: Mutex<HashSet<ThreadId>>,
}

impl Setup {
    pub(crate) fn new(call: Py<PyAny>) -> Self {
        Self {
            call,
            done: Mutex::default(),
        }
    }

    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        let me = thread::current().id();
        if self.lock().contains(&me) {
            return Ok(());
        }
        call_none(self.call.bind(py))?;
        self.lock().insert(me);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<ThreadId>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first values of something that may have no end.
fn first<'py>(values: &Bound<'py, PyAny>, most: usize) -> PyResult<Bound<'py, PyList>> {
    static SLICE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = values.py();
    let slice = imported(py, &SLICE, "itertools", "islice")?;
    let values = call_two(slice, values, most.into_pyobject(py)?.as_any())?;
    Ok(call_one(py.get_type::<PyList>().as_any(), &values)?.cast_into()?)
}

/// What a body's own code gave. In a child that it forked the process ends here: the set, its engine and their locks are the parent's.
#[inline]
fn ended_here<R>(py: Python<'_>, frame: &Frame, result: PyResult<R>) -> PyResult<R> {
    if frame.is_forked() {
        end_child(py, result.err());
    }
    result
}

#[cold]
fn end_child(py: Python<'_>, error: Option<PyErr>) -> ! {
    static END: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let error = error.map(|error| error.into_value(py));
    drop(imported(py, &END, "shoal._forks", "end_child").and_then(|end| end.call1((error,))));
    std::process::abort()
}

/// Whether Python code runs on one core at a time.
fn is_gil_enabled(py: Python<'_>) -> bool {
    static ENABLED: PyOnceLock<bool> = PyOnceLock::new();
    *ENABLED.get_or_init(py, || {
        py.import("sys")
            .and_then(|sys| sys.call_method0("_is_gil_enabled")?.extract())
            .unwrap_or(true)
    })
}

impl Function {
    #[expect(
        clippy::too_many_arguments,
        reason = "one call, from spawn, names them all"
    )]
    pub(crate) fn new(
        py: Python<'_>,
        call: Py<PyAny>,
        shape: Shape,
        setup: Option<Setup>,
        keep: bool,
        inputs: Inputs,
        count: usize,
        open: bool,
        engine: Arc<Inner>,
    ) -> PyResult<Self> {
        let values = if open {
            let values = Column::growing();
            values.reserve(count);
            values
        } else {
            Column::from_flat(empty_slots(count))
        };
        Ok(Self(Owned::new(Parts {
            call,
            shape,
            setup,
            context: Context::of_caller(py)?,
            keep,
            is_serial: is_gil_enabled(py),
            inputs,
            values,
            failures: Failures::default(),
            engine,
            readers: Mutex::new(false),
        })))
    }

    /// Runs `f` while nobody takes a value away; not at all dear, and not needed where they are kept.
    fn reading<R>(&self, f: impl FnOnce() -> R) -> R {
        let _readers =
            (!self.keep).then(|| self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        f()
    }

    #[inline]
    fn one(
        &self,
        py: Python<'_>,
        set: &Arc<Set>,
        call: &Bound<'_, PyAny>,
        entered: &mut Entered<'_>,
        frame: &Frame,
        index: u32,
    ) -> Outcome {
        frame.begin(index);
        let result = self.inputs.with(py, index, |item| match self.shape {
            Shape::Star => call_star(call, item.cast::<PyTuple>()?),
            _ => call_one(call, item),
        });
        let result = ended_here(py, frame, result);
        match result {
            Ok(value) => {
                self.values.get(index as usize).fill(value.unbind());
                match entered.refresh() {
                    Ok(()) => Outcome::Completed,
                    Err(error) => self.lost(py, set, index..index + 1, &error),
                }
            }
            Err(error) => {
                let outcome = self.lost(py, set, index..index + 1, &error);
                drop(entered.refresh());
                outcome
            }
        }
    }

    fn many(
        &self,
        py: Python<'_>,
        call: &Bound<'_, PyAny>,
        frame: &Frame,
        start: u32,
        stop: u32,
    ) -> PyResult<()> {
        frame.begin(start);
        let values = call_one(call, &self.inputs.batch(py, start, stop)?);
        let values = ended_here(py, frame, values)?;
        let values = match values.cast_into::<PyList>() {
            Ok(list) => list,
            Err(other) => {
                let other = other.into_inner();
                if other.hasattr(pyo3::intern!(py, "__iter__"))? {
                    let list = first(&other, (stop - start) as usize + 1);
                    ended_here(py, frame, list)?
                } else {
                    let kind = other.get_type().name()?.to_string();
                    return Err(PyTypeError::new_err(format!(
                        "a batch body returns as many values as it was given items, here {}; it returned {kind}",
                        stop - start
                    )));
                }
            }
        };
        let count = (stop - start) as usize;
        if values.len() != count {
            let found = match values.len() {
                fewer if fewer < count => fewer.to_string(),
                _ => format!("more than {count}"),
            };
            return Err(PyValueError::new_err(format!(
                "a batch body returns as many values as it was given items: {found} values for {count} items"
            )));
        }
        for (index, value) in (start..stop).zip(values.iter()) {
            self.values.get(index as usize).fill(value.unbind());
        }
        Ok(())
    }

    fn lost(
        &self,
        py: Python<'_>,
        set: &Arc<Set>,
        range: std::ops::Range<u32>,
        error: &PyErr,
    ) -> Outcome {
        if error.is_instance_of::<Cancelled>(py) {
            return Outcome::Cancelled;
        }
        if wait::note_signal(py, error) {
            set.cancel();
            return Outcome::Cancelled;
        }
        for index in range {
            self.failures.raised(py, index, error);
        }
        Outcome::Failed
    }
}

impl Body for Function {
    fn run(&self, chunk: &mut Chunk<'_>) {
        let set = Arc::clone(chunk.set());
        Python::attach(|py| {
            Frame::with(chunk.task(), |frame| {
                let ready = self
                    .setup
                    .as_ref()
                    .map_or(Ok(()), |setup| setup.prepare(py))
                    .and_then(|()| self.context.enter(py));
                let call = self.call.bind(py);
                match (ready, self.shape) {
                    (Err(error), _) => {
                        chunk.each(|index| self.lost(py, &set, index..index + 1, &error));
                    }
                    (Ok(mut entered), Shape::Batch(most)) => chunk.spans(most, |start, stop| {
                        let result = self.many(py, call, frame, start, stop);
                        match result.and(entered.refresh()) {
                            Ok(()) => Outcome::Completed,
                            Err(error) => self.lost(py, &set, start..stop, &error),
                        }
                    }),
                    (Ok(mut entered), _) => {
                        chunk.each(|index| self.one(py, &set, call, &mut entered, frame, index));
                    }
                }
            });
        });
    }

    fn panicked(&self, index: u32, message: &str) {
        self.failures.panicked(index, message);
    }

    fn attend(&self, drive: &mut dyn FnMut()) {
        // At the interpreter's end there is nothing left to run bodies with.
        try_attach_worker(|_| drive());
    }

    fn is_serial(&self) -> bool {
        self.is_serial
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Shown for Function {
    fn engine(&self) -> &Arc<Inner> {
        &self.engine
    }

    fn failures(&self) -> &Failures {
        &self.failures
    }

    fn item<'py>(&self, py: Python<'py>, index: u32) -> PyResult<Bound<'py, PyAny>> {
        self.inputs.get(py, index)
    }

    fn value(&self, py: Python<'_>, index: u32) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.reading(|| self.values.get(index as usize).get(py)))
    }

    fn yielded(&self, py: Python<'_>, index: u32) -> PyResult<Option<Py<PyAny>>> {
        let slot = self.values.get(index as usize);
        Ok(self.reading(|| {
            if self.keep {
                slot.get(py)
            } else {
                slot.take(py)
            }
        }))
    }

    fn moved<'py>(&self, py: Python<'py>, count: u32) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Without the interpreter's lock a handle could be taken while they move.
        if !self.is_serial || *self.readers.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(None);
        }
        Ok(Some(
            list_from_slots(py, &self.values, count as usize)?.into_any(),
        ))
    }

    fn is_read(&self) {
        if !self.keep {
            *self.readers.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.call)?;
        if let Some(setup) = &self.setup {
            visit.call(&setup.call)?;
        }
        self.context.visit(visit)?;
        self.inputs.visit(visit)?;
        self.values.iter().try_for_each(|slot| slot.visit(visit))?;
        self.failures.visit(visit)
    }

    fn clear(&self, py: Python<'_>) {
        // Without the interpreter's lock the engine's record could give out a handle meanwhile.
        if self.is_serial {
            self.inputs.clear(py);
            self.values.iter().for_each(|slot| drop(slot.take(py)));
        }
    }

    fn whole(&self, _py: Python<'_>) -> Option<Py<PyAny>> {
        None
    }

    fn on(&self) -> &'static str {
        "workers"
    }
}

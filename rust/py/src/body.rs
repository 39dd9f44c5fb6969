//! What all bodies that Python sees have in common: items, values, failures, and the engine they run on.

use std::sync::Arc;

use pyo3::{PyTraverseError, PyVisit, exceptions::PyTypeError, prelude::*, types::PyTuple};
use shoal_core::Task;

use crate::{engine::Inner, errors, failures::Failures, function::Function, kernel::Compiled};

/// A body seen from Python.
pub(crate) trait Shown {
    /// The engine it runs on.
    fn engine(&self) -> &Arc<Inner>;
    /// What failed.
    fn failures(&self) -> &Failures;
    /// What the instance was given.
    fn item<'py>(&self, py: Python<'py>, index: u32) -> PyResult<Bound<'py, PyAny>>;
    /// What a completed instance returned.
    fn value(&self, py: Python<'_>, index: u32) -> PyResult<Option<Py<PyAny>>>;
    /// As `value`, for the one reader who takes it away where `keep=False`.
    fn yielded(&self, py: Python<'_>, index: u32) -> PyResult<Option<Py<PyAny>>> {
        self.value(py, index)
    }
    /// The values of a set all of whose instances completed, moved out; nothing where others may read them.
    fn moved<'py>(&self, py: Python<'py>, count: u32) -> PyResult<Option<Bound<'py, PyAny>>>;
    /// Somebody has a handle to read values by.
    fn is_read(&self) {}
    /// Shows the collector which objects it holds.
    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
    /// Gives up the values, where that is safe: the collector found that nobody can reach the set any more.
    fn clear(&self, _py: Python<'_>) {}
    /// The one object that is the result of all, if there is one.
    fn whole(&self, py: Python<'_>) -> Option<Py<PyAny>>;
    /// Where it runs.
    fn on(&self) -> &'static str;
}

/// The body of a task, as Python sees it.
pub(crate) fn shown(task: &Task) -> &dyn Shown {
    let body = task.body().as_any();
    match body.downcast_ref::<Function>() {
        Some(function) => function,
        None => body
            .downcast_ref::<Compiled>()
            .expect("every body of the binding is one of the two"),
    }
}

/// Shows the collector what a task holds. What others hold too is not this handle's alone: it is not to be collected yet.
pub(crate) fn visit(task: &Arc<Task>, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    if Arc::strong_count(task) == 1 {
        shown(task).visit(visit)
    } else {
        Ok(())
    }
}

/// For the collector: breaks cycles that go through the values alone. Finalizers may have made another handle since it looked.
pub(crate) fn clear(py: Python<'_>, task: &Arc<Task>) {
    if Arc::strong_count(task) == 1 {
        shown(task).clear(py);
    }
}

/// `add(*items)`.
pub(crate) fn add(py: Python<'_>, task: &Arc<Task>, items: &Bound<'_, PyTuple>) -> PyResult<()> {
    shown(task).engine().check()?;
    let Some(function) = task.body().as_any().downcast_ref::<Function>() else {
        return Err(PyTypeError::new_err(
            "a kernel gets indices, not items: its set cannot be added to",
        ));
    };
    let items: Vec<Py<PyAny>> = items.iter().map(Bound::unbind).collect();
    let count = items.len();
    task.add(count as u64, |start| {
        function.inputs.place(py, start, items.into_iter());
        function.values.reserve(start as usize + count);
    })
    .map(|_| ())
    .map_err(errors::raised)
}

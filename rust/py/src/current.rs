//! `current()`: which instance this thread runs.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyDict, PyTuple},
};
use shoal_core::{Task, generation};

use crate::{body, case::Case, instances::InstanceSet};

thread_local! {
    static INNERMOST: RefCell<Option<Rc<Frame>>> = const { RefCell::new(None) };
}

/// A chunk that runs on this thread; nested where a body waits and helps.
pub(crate) struct Frame {
    task: Arc<Task>,
    index: Cell<u32>,
    scope: RefCell<Option<Py<PyDict>>>,
    /// The process it was made in.
    generation: u64,
}

impl Frame {
    /// Runs `f` with a frame for this task.
    pub(crate) fn with<R>(task: &Arc<Task>, f: impl FnOnce(&Frame) -> R) -> R {
        struct Leave(Option<Rc<Frame>>);
        impl Drop for Leave {
            fn drop(&mut self) {
                let frame = INNERMOST.replace(self.0.take());
                // What it holds may run anything when it goes.
                drop(frame);
            }
        }
        let frame = Rc::new(Frame {
            task: Arc::clone(task),
            index: Cell::new(0),
            scope: RefCell::new(None),
            generation: generation(),
        });
        let _leave = Leave(INNERMOST.replace(Some(Rc::clone(&frame))));
        f(&frame)
    }

    /// Whether the body that runs in it forked, and this is the child.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != generation()
    }

    /// The next instance begins: the scope of the last one is not its.
    #[inline]
    pub(crate) fn begin(&self, index: u32) {
        self.index.set(index);
        if self.scope.borrow().is_some() {
            self.scope.replace(None);
        }
    }
}

fn innermost() -> Option<Rc<Frame>> {
    INNERMOST.with_borrow(Clone::clone)
}

/// The task that this thread runs a body of. None in a child that the body forked: there its engine is of no use.
pub(crate) fn current_task() -> Option<Arc<Task>> {
    INNERMOST.with_borrow(|frame| {
        frame
            .as_ref()
            .filter(|frame| !frame.is_forked())
            .map(|frame| Arc::clone(&frame.task))
    })
}

/// The instance that a body runs as.
#[pyclass(frozen, module = "shoal")]
pub(crate) struct Current {
    task: Arc<Task>,
    /// Its number in its set, from 0.
    #[pyo3(get)]
    index: u32,
    scope: Py<PyDict>,
}

/// The instance that the calling body runs as; outside a body a `RuntimeError`.
///
/// >>> import shoal
/// >>> shoal.map(lambda item: (shoal.current().index, item), ["a", "b"])
/// [(0, 'a'), (1, 'b')]
#[pyfunction]
pub(crate) fn current(py: Python<'_>) -> PyResult<Current> {
    let frame = innermost().ok_or_else(|| {
        PyRuntimeError::new_err("shoal.current() is for bodies: this thread runs none")
    })?;
    let known = frame
        .scope
        .borrow()
        .as_ref()
        .map(|scope| scope.clone_ref(py));
    let scope = match known {
        Some(scope) => scope,
        None => {
            let scope = crate::case::scope_of(py, &frame.task)?;
            frame.scope.replace(Some(scope.clone_ref(py)));
            scope
        }
    };
    Ok(Current {
        task: Arc::clone(&frame.task),
        index: frame.index.get(),
        scope,
    })
}

#[pymethods]
impl Current {
    /// The set it is one of.
    #[getter]
    fn set(&self) -> InstanceSet {
        InstanceSet::reading(Arc::clone(&self.task))
    }

    /// The case that owns the set.
    #[getter]
    fn case(&self) -> Case {
        Case::of(&self.task)
    }

    /// A dict of its own, which starts as a copy of the case's.
    #[getter]
    fn scope(&self, py: Python<'_>) -> Py<PyDict> {
        self.scope.clone_ref(py)
    }

    /// Whether it is asked to stop.
    #[getter]
    fn cancelled(&self) -> bool {
        self.task.set().is_stopped()
    }

    /// Which try this is, from 1.
    #[getter]
    fn attempt(&self) -> u32 {
        1
    }

    /// Adds instances to its open set.
    #[pyo3(signature = (*items))]
    fn add(&self, py: Python<'_>, items: &Bound<'_, PyTuple>) -> PyResult<()> {
        body::add(py, &self.task, items)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.scope)?;
        body::visit(&self.task, &visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        body::clear(py, &self.task);
    }

    fn __repr__(&self) -> String {
        format!(
            "<shoal.Current instance {} of set {}>",
            self.index,
            self.task.set().id()
        )
    }
}

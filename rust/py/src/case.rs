//! Cases: owners of sets with an id, variables and a scope.

use std::{sync::Arc, time::Instant};

use pyo3::{
    exceptions::PyKeyError,
    prelude::*,
    types::{PyDict, PyString, PyTuple},
};
use shoal_core::{Case as Core, Task};

use crate::{
    body::shown,
    engine::Inner,
    instances::InstanceSet,
    names,
    python::Owned,
    spawn,
    wait::{self, For},
};

/// What Python keeps with a case.
pub(crate) struct Data {
    workflow: Option<String>,
    variables: Py<PyDict>,
    scope: Py<PyDict>,
}

/// One running of a workflow, or the free-standing owner of sets.
///
/// >>> import shoal
/// >>> with shoal.Engine(workers=2) as engine:
/// ...     case = engine.case("order-42", variables={"items": [1, 2, 3]})
/// ...     case.spawn(abs, count=lambda variables: len(variables["items"])).result()
/// [0, 1, 2]
#[pyclass(frozen, module = "shoal", weakref)]
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) core: Arc<Core>,
    engine: Arc<Inner>,
}

impl Case {
    pub(crate) fn new(
        core: Arc<Core>,
        engine: Arc<Inner>,
        workflow: Option<String>,
        variables: Py<PyDict>,
        scope: Py<PyDict>,
    ) -> Self {
        core.attached(|| {
            Owned::new(Data {
                workflow,
                variables,
                scope,
            })
        });
        Self { core, engine }
    }

    pub(crate) fn known(core: Arc<Core>, engine: Arc<Inner>) -> Self {
        Self { core, engine }
    }

    pub(crate) fn of(task: &Arc<Task>) -> Self {
        Self {
            core: Arc::clone(task.case()),
            engine: Arc::clone(shown(task).engine()),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Inner> {
        &self.engine
    }
}

fn data<'a>(py: Python<'_>, core: &'a Core) -> &'a Data {
    core.attached(|| {
        Owned::new(Data {
            workflow: None,
            variables: PyDict::new(py).unbind(),
            scope: PyDict::new(py).unbind(),
        })
    })
    .expect("only the binding attaches to a case")
}

/// The variables of a case, or none.
pub(crate) fn variables_of(py: Python<'_>, case: Option<&Arc<Core>>) -> Py<PyDict> {
    match case {
        Some(case) => data(py, case).variables.clone_ref(py),
        None => PyDict::new(py).unbind(),
    }
}

/// A copy of the scope that a new instance of this task starts with.
pub(crate) fn scope_of(py: Python<'_>, task: &Arc<Task>) -> PyResult<Py<PyDict>> {
    match task.set().case() {
        Some(case) => Ok(data(py, &case).scope.bind(py).copy()?.unbind()),
        None => Ok(PyDict::new(py).unbind()),
    }
}

#[pymethods]
impl Case {
    /// Its name, unique in its engine.
    #[getter]
    fn id(&self) -> &str {
        self.core.id()
    }

    /// The workflow it is a running of.
    #[getter]
    fn workflow(&self, py: Python<'_>) -> Option<String> {
        data(py, &self.core).workflow.clone()
    }

    /// Its variables.
    #[getter]
    fn variables(&self, py: Python<'_>) -> Py<PyDict> {
        data(py, &self.core).variables.clone_ref(py)
    }

    /// What every instance's own scope starts as.
    #[getter]
    fn scope(&self, py: Python<'_>) -> Py<PyDict> {
        data(py, &self.core).scope.clone_ref(py)
    }

    /// `active`, `completed` or `cancelled`.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.engine.check()?;
        names::case_state(py, py.detach(|| self.core.state()))
    }

    /// Its sets, oldest first: the live ones and the finished ones that are kept.
    #[getter]
    fn sets(&self, py: Python<'_>) -> PyResult<Vec<InstanceSet>> {
        self.engine.check()?;
        let sets = py.detach(|| self.core.sets());
        Ok(sets
            .into_iter()
            .map(|entry| InstanceSet::of_entry(entry, &self.engine))
            .collect())
    }

    /// As `shoal.spawn`, owned by this case.
    #[pyo3(signature = (body, items=None, **options))]
    fn spawn<'py>(
        slf: &Bound<'py, Self>,
        body: &Bound<'py, PyAny>,
        items: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let options = match options {
            Some(options) => options.copy()?,
            None => PyDict::new(py),
        };
        options.set_item("case", slf)?;
        spawn::function(py)?.call((body, items), Some(&options))
    }

    /// Cancels all that it owns, nested cases too. Idempotent.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.check()?;
        py.detach(|| self.core.cancel());
        Ok(())
    }

    /// Waits until none of its sets has anything pending or running; false if the time ran out.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.engine.check()?;
        let timeout = wait::seconds(timeout)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        for entry in py.detach(|| self.core.sets()) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let drained = match entry.task.upgrade() {
                Some(task) => wait::wait(py, &task, For::Drained, left, false, false)?.is_some(),
                None => wait::until(py, left, |slice| {
                    let until = slice.and_then(|slice| Instant::now().checked_add(slice));
                    entry.set.wait_drained(until).then_some(())
                })?
                .is_some(),
            };
            if !drained {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| Arc::ptr_eq(&self.core, &other.get().core))
    }

    fn __hash__(&self) -> usize {
        Arc::as_ptr(&self.core) as usize
    }

    fn __repr__(&self) -> String {
        // In a child process a lock may be held for ever.
        let state = match self.engine.check() {
            Ok(()) => self.core.state().name(),
            Err(_) => "of the parent process",
        };
        format!("<shoal.Case {:?} {state}>", self.core.id())
    }
}

/// The cases of an engine by id.
#[pyclass(frozen, module = "shoal", mapping)]
pub(crate) struct Cases {
    pub(crate) engine: Arc<Inner>,
}

impl Cases {
    /// What no id can be is no case's.
    fn find(&self, id: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Core>>> {
        self.engine.check()?;
        let id = id.cast::<PyString>().ok();
        let id = id.and_then(|id| id.to_str().ok());
        Ok(id.and_then(|id| self.engine.core.find_case(id)))
    }
}

#[pymethods]
impl Cases {
    fn __getitem__(&self, id: &Bound<'_, PyAny>) -> PyResult<Case> {
        match self.find(id)? {
            Some(case) => Ok(Case::known(case, Arc::clone(&self.engine))),
            None => Err(PyKeyError::new_err((id.clone().unbind(),))),
        }
    }

    fn __contains__(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.find(id)?.is_some())
    }

    fn __len__(&self) -> PyResult<usize> {
        self.engine.check()?;
        Ok(self.engine.core.cases().len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.engine.check()?;
        let cases = self.engine.core.cases();
        PyTuple::new(py, cases.iter().map(|case| case.id()))?.call_method0("__iter__")
    }

    fn __repr__(&self) -> String {
        match self.engine.check() {
            Ok(()) => format!("<shoal.Cases: {}>", self.engine.core.cases().len()),
            Err(_) => "<shoal.Cases of the parent process>".to_owned(),
        }
    }
}

//! `InstanceSet`: the handle of a set.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyIndexError, PyRuntimeError, PyStopIteration, PyTimeoutError, PyValueError},
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyList, PyTuple},
};
use shoal_core::{Asked, Decision, Entry, InstanceState, Join, Place, Set, Task};

use crate::{
    body::{self, Shown, shown},
    case::Case,
    engine::Inner,
    errors::{self, SetCancelled, SetFailed, SetTimedOut},
    failures::{self, Failures},
    gate::{Gate, call_back, called, check_callable},
    names, policy,
    python::{Owned, try_attach_worker},
    wait::{self, For},
};

/// Outcomes that a reader takes from the log at once.
const AT_A_TIME: u32 = 1024;
/// Exceptions that a group shows.
const IN_A_GROUP: usize = 100;

/// The instances of one task, their gate and their results. `shoal.spawn` makes one.
///
/// >>> import shoal
/// >>> squares = shoal.spawn(lambda n: n * n, range(5))
/// >>> squares.wait()
/// <GateState.FIRED: 'fired'>
/// >>> squares.result()
/// [0, 1, 4, 9, 16]
/// >>> squares.counts
/// Counts(pending=0, running=0, completed=5, failed=0, cancelled=0, timed_out=0)
#[pyclass(frozen, module = "shoal", weakref, generic)]
#[derive(Clone)]
pub(crate) struct InstanceSet(Held);

/// What a handle holds.
#[derive(Clone)]
enum Held {
    /// Body, items and values.
    Task(Arc<Task>),
    /// Only the record is left.
    Record(Arc<Set>, Arc<Inner>),
}

/// `fill=` as it was given, or not.
pub(crate) struct Fill(Option<Py<PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Fill {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(Some(object.to_owned().unbind())))
    }
}

impl InstanceSet {
    pub(crate) fn of(task: Arc<Task>) -> Self {
        Self(Held::Task(task))
    }

    /// One more handle of a task, by which its values may be read.
    pub(crate) fn reading(task: Arc<Task>) -> Self {
        shown(&task).is_read();
        Self::of(task)
    }

    pub(crate) fn of_entry(entry: Entry, engine: &Arc<Inner>) -> Self {
        Self(match entry.task.upgrade() {
            Some(task) => return Self::reading(task),
            None => Held::Record(entry.set, Arc::clone(engine)),
        })
    }

    pub(crate) fn set(&self) -> &Arc<Set> {
        match &self.0 {
            Held::Task(task) => task.set(),
            Held::Record(set, _) => set,
        }
    }

    pub(crate) fn task(&self) -> Option<&Arc<Task>> {
        match &self.0 {
            Held::Task(task) => Some(task),
            Held::Record(..) => None,
        }
    }

    fn shown(&self) -> Option<&dyn Shown> {
        self.task().map(|task| shown(task))
    }

    pub(crate) fn engine(&self) -> &Arc<Inner> {
        match &self.0 {
            Held::Task(task) => shown(task).engine(),
            Held::Record(_, engine) => engine,
        }
    }

    /// Shows the collector what it holds.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.task().map_or(Ok(()), |task| body::visit(task, visit))
    }

    /// Gives up what may hold it, where the collector found that nobody else does.
    pub(crate) fn clear(&self, py: Python<'_>) {
        if let Some(task) = self.task() {
            body::clear(py, task);
        }
    }

    pub(crate) fn cancel_set(&self, py: Python<'_>) -> PyResult<()> {
        self.engine().check()?;
        py.detach(|| self.set().cancel());
        Ok(())
    }

    fn wait_for(
        &self,
        py: Python<'_>,
        what: For,
        timeout: Option<&Bound<'_, PyAny>>,
        cancel: bool,
    ) -> PyResult<Option<Decision>> {
        let timeout = wait::seconds(timeout)?;
        match self.task() {
            Some(task) => wait::wait(py, task, what, timeout, false, cancel),
            // Only finished sets are kept without their task.
            None => Ok(self.set().decision()),
        }
    }

    /// The values of the completed, in order; `fill` for the others.
    fn collect<'py>(
        &self,
        py: Python<'py>,
        fill: Option<&Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(body) = self.shown() else {
            return Err(PyRuntimeError::new_err(
                "the values of this set went with its last handle; only its record is kept",
            ));
        };
        if let (Some(whole), None) = (body.whole(py), fill) {
            return Ok(whole.into_bound(py));
        }
        let values = PyList::empty(py);
        for index in 0..self.set().len() {
            let value = match self.set().settled(index) {
                InstanceState::Completed => body.value(py, index)?,
                _ => None,
            };
            match (value, fill) {
                (Some(value), _) => values.append(value)?,
                (None, Some(fill)) => values.append(fill.clone_ref(py))?,
                (None, None) => {}
            }
        }
        Ok(values.into_any())
    }

    /// Waits for the decision; without a gate until all has ended, which may have been from outside.
    fn wait_ended(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Decision>> {
        if self.set().policy().join != Join::Detached {
            return self.wait_for(py, For::Decision, timeout, true);
        }
        let drained = self.wait_for(py, For::Drained, timeout, true)?;
        Ok(drained.map(|drained| self.set().decision().unwrap_or(drained)))
    }

    /// The exception that `result` raises for what the gate was decided as.
    fn failure(&self, py: Python<'_>, decision: Decision) -> PyResult<PyErr> {
        let counts = names::counts(py, self.set().counts())?;
        let (errors, values) = (self.errors(py)?, self.values(py)?);
        let Some(body) = self.shown() else {
            return Ok(PyRuntimeError::new_err(
                "only the record of this set is kept",
            ));
        };
        let how = match decision {
            Decision::Cancelled => "was cancelled",
            Decision::TimedOut => "timed out",
            _ => "failed",
        };
        let why = match decision {
            Decision::Failed => self.first_failure(py, body.failures())?,
            _ => None,
        };
        let why = why.unwrap_or_else(|| self.counted());
        let text = format!("{} {how}: {why}", self.title());
        let arguments = (text, counts, errors.clone(), values);
        Ok(match decision {
            Decision::Cancelled => SetCancelled::new_err(unbound(arguments)),
            Decision::TimedOut => SetTimedOut::new_err(unbound(arguments)),
            _ => {
                let error = SetFailed::new_err(unbound(arguments));
                let failures = body.failures();
                if let Some(cause) = failures.of_feeder() {
                    error.set_cause(
                        py,
                        Some(PyErr::from_value(cause.bind(py).clone().into_any())),
                    );
                } else if !errors.is_empty() {
                    let first = failures.some(py, IN_A_GROUP)?;
                    let text = format!("{} of {} failed", errors.len(), self.set().len());
                    let group = py
                        .import("builtins")?
                        .getattr("BaseExceptionGroup")?
                        .call1((text, first))?;
                    error.set_cause(py, Some(PyErr::from_value(group)));
                }
                error
            }
        })
    }

    /// What made it fail, where something raised.
    fn first_failure(&self, py: Python<'_>, failures: &Failures) -> PyResult<Option<String>> {
        if let Some(cause) = failures.of_feeder() {
            let raised = failures::line(cause.bind(py));
            return Ok(Some(format!(
                "reading its items raised {raised}; {}",
                self.counted()
            )));
        }
        let Some(index) = failures.first() else {
            return Ok(None);
        };
        let Some(first) = failures.get(py, index)? else {
            return Ok(None);
        };
        Ok(Some(format!(
            "{} failed of {}; first: instance {index}: {}",
            self.set().counts().failed,
            self.set().len(),
            failures::line(first.bind(py).cast()?)
        )))
    }

    fn title(&self) -> String {
        match self.set().name() {
            Some(name) => format!("set {} ({name})", self.set().id()),
            None => format!("set {}", self.set().id()),
        }
    }

    fn counted(&self) -> String {
        let counts = self.set().counts();
        let words: Vec<_> = [
            (counts.pending, "pending"),
            (counts.running, "running"),
            (counts.completed, "completed"),
            (counts.failed, "failed"),
            (counts.cancelled, "cancelled"),
            (counts.timed_out, "timed_out"),
        ]
        .into_iter()
        .filter(|&(n, _)| n > 0)
        .map(|(n, word)| format!("{n} {word}"))
        .collect();
        if words.is_empty() {
            "no instances".into()
        } else {
            words.join(", ")
        }
    }

    /// What `map` gives: the values, moved out, or the body's own exception.
    pub(crate) fn mapped<'py>(
        &self,
        py: Python<'py>,
        decision: Decision,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(body) = self.shown() else {
            return Ok(py.None().into_bound(py));
        };
        let failures = body.failures();
        if let Some(fatal) = failures.fatal() {
            return Err(PyErr::from_value(fatal.bind(py).clone().into_any()));
        }
        if decision == Decision::Fired {
            let count = self.set().len();
            if self.set().counts().completed == count
                && let Some(values) = body.moved(py, count)?
            {
                return Ok(values);
            }
            return self.collect(py, None);
        }
        if decision == Decision::Failed
            && let Some(index) = failures.first()
            && let Some(error) = failures.get(py, index)?
        {
            let error = error.into_bound(py);
            let note = format!("in instance {index} of {}", self.title());
            // An exception that takes no note is raised without one.
            drop(error.call_method1("add_note", (note,)));
            return Err(PyErr::from_value(error));
        }
        Err(self.failure(py, decision)?)
    }
}

type Arguments = (String, Py<PyAny>, Py<PyDict>, Py<PyDict>);

fn unbound(
    (text, counts, errors, values): (String, Py<PyAny>, Bound<'_, PyDict>, Bound<'_, PyDict>),
) -> Arguments {
    (text, counts, errors.unbind(), values.unbind())
}

#[pymethods]
impl InstanceSet {
    /// Its number in its engine.
    #[getter]
    fn id(&self) -> u64 {
        self.set().id()
    }

    /// What it is called.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.set().name()
    }

    /// The case that owns it; an anonymous one where it was made without.
    #[getter]
    fn case(&self, py: Python<'_>) -> PyResult<Option<Case>> {
        let _ = py;
        Ok(match self.task() {
            Some(task) => Some(Case::of(task)),
            None => self
                .set()
                .case()
                .map(|case| Case::known(case, Arc::clone(self.engine()))),
        })
    }

    /// The number of its workflow pattern.
    #[getter]
    fn pattern(&self) -> u8 {
        self.set().pattern()
    }

    /// Join, rest and failure policy, in words.
    #[getter]
    fn policy(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        Ok(names::imported(py, &CLASS, "shoal._states", "Policy")?
            .call1(policy::shown(self.set().policy()))?
            .unbind())
    }

    /// Where its bodies run.
    #[getter]
    fn on(&self) -> &'static str {
        self.shown().map_or("workers", |body| body.on())
    }

    /// `active` while it is open, `running`, then what its gate was decided as.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        names::set_state(py, self.set().is_open(), self.set().decision())
    }

    /// How many instances are in each state, at one moment.
    #[getter]
    fn counts(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        names::counts(py, self.set().counts())
    }

    /// Its gate; None for `detached()`.
    #[getter]
    fn gate(&self) -> Option<Gate> {
        (self.set().policy().join != Join::Detached).then(|| Gate::of(self.clone()))
    }

    /// Late results of abandoned calls that were dropped.
    #[getter]
    fn dropped(&self) -> u32 {
        0
    }

    /// Whether none is pending or running.
    #[getter]
    fn drained(&self) -> bool {
        self.set().is_drained()
    }

    fn __len__(&self) -> usize {
        self.set().len() as usize
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The state of one instance.
    fn status(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let none = || {
            PyIndexError::new_err(format!(
                "there is no instance {index} in a set of {}",
                self.set().len()
            ))
        };
        let state = match policy::bounded(index, "index", 0..=u64::from(u32::MAX)) {
            Ok(index) => self.set().status(index as u32).ok_or_else(none)?,
            Err(error) if error.is_instance_of::<PyValueError>(py) => return Err(none()),
            Err(error) => return Err(error),
        };
        names::instance_state(py, state)
    }

    /// Adds instances to an open set, one for each item.
    #[pyo3(signature = (*items))]
    fn add(&self, py: Python<'_>, items: &Bound<'_, PyTuple>) -> PyResult<()> {
        match self.task() {
            Some(task) => body::add(py, task, items),
            None => Err(errors::raised(shoal_core::Error::Sealed)),
        }
    }

    /// Makes the count final. Twice is once.
    fn seal(&self, py: Python<'_>) -> PyResult<()> {
        self.engine().check()?;
        py.detach(|| self.set().seal());
        Ok(())
    }

    /// Ends it: what has not begun is cancelled, the gate is `cancelled`. Idempotent.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.cancel_set(py)
    }

    /// Ends it as a success: what has not begun is cancelled, the gate fires now. Idempotent.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        self.engine().check()?;
        py.detach(|| self.set().complete());
        Ok(())
    }

    /// Waits for the gate and gives its state, `"waiting"` if the time ran out. Never raises for an outcome.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        names::gate_state(py, self.wait_ended(py, timeout)?)
    }

    /// Waits until none is pending or running; false if the time ran out.
    #[pyo3(signature = (timeout=None))]
    fn drain(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        Ok(self.wait_for(py, For::Drained, timeout, false)?.is_some())
    }

    /// Waits, and gives the completed values in index order; with `fill` one entry for every instance. Raises `SetFailed`, `SetCancelled`
    /// or `SetTimedOut` for what the gate was decided as, `TimeoutError` if the time ran out.
    #[pyo3(signature = (timeout=None, fill=Fill(None)), text_signature = "($self, timeout=None, fill=...)")]
    fn result<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
        fill: Fill,
    ) -> PyResult<Bound<'py, PyAny>> {
        let decision = self.wait_ended(py, timeout)?;
        if let Some(fatal) = self.shown().and_then(|body| body.failures().fatal()) {
            return Err(PyErr::from_value(fatal.bind(py).clone().into_any()));
        }
        match decision {
            None => Err(PyTimeoutError::new_err(format!(
                "{} is not decided yet: {}",
                self.title(),
                self.counted()
            ))),
            Some(Decision::Fired) => self.collect(py, fill.0.as_ref()),
            Some(decision) => Err(self.failure(py, decision)?),
        }
    }

    /// What completed so far, by index.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.engine().check()?;
        let values = PyDict::new(py);
        if let Some(body) = self.shown() {
            for index in 0..self.set().len() {
                if self.set().settled(index) == InstanceState::Completed
                    && let Some(value) = body.value(py, index)?
                {
                    values.set_item(index, value)?;
                }
            }
        }
        Ok(values)
    }

    /// What failed so far, by index.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.engine().check()?;
        match self.shown() {
            Some(body) => body.failures().all(py),
            None => Ok(PyDict::new(py)),
        }
    }

    /// Yields an `Outcome` for each instance, in the order in which they ended.
    fn as_completed(&self) -> Outcomes {
        Outcomes {
            instances: self.clone(),
            reader: Mutex::new(Reader {
                place: Place::default(),
                ready: 0..0,
            }),
        }
    }

    fn __iter__(&self) -> Outcomes {
        self.as_completed()
    }

    /// Results, errors and counts as one dict.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        names::imported(py, &FUNCTION, "shoal._states", "summary")?
            .call1((self.values(py)?, self.errors(py)?, self.counts(py)?))?
            .cast_into()
            .map_err(Into::into)
    }

    /// Calls `f(set)` once, on a worker, when the gate is decided.
    fn on_decided(&self, f: &Bound<'_, PyAny>) -> PyResult<()> {
        check_callable(f, "on_decided() takes a function of the set")?;
        self.engine().check()?;
        let (f, instances) = (Owned::new(f.clone().unbind()), self.clone());
        self.set().on_decided(Box::new(move |_| {
            try_attach_worker(|py| {
                call_back(py, &f, Bound::new(py, instances).map(Bound::into_any));
            });
        }));
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Seals and waits; cancels where the block was left by an exception.
    #[pyo3(signature = (kind, _error, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            self.seal(py)?;
            self.wait(py, None).map(drop)
        } else {
            self.cancel_set(py)
        }
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("shoal._aio")?
            .call_method1("enter_set", (slf,))
    }

    /// As `__exit__`, without blocking the loop.
    #[pyo3(signature = (kind, _error, _traceback))]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
        _error: &Bound<'py, PyAny>,
        _traceback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("shoal._aio")?
            .call_method1("leave_set", (slf, kind))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("shoal._aio")?
            .call_method1("result_of_set", (slf,))?
            .call_method0("__await__")
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("shoal._aio")?
            .call_method1("outcomes_of_set", (slf,))
    }

    fn __repr__(&self) -> String {
        let state = match self.set().decision() {
            Some(decision) => decision.name(),
            None if self.set().is_open() => "active",
            None => "running",
        };
        format!(
            "<shoal.InstanceSet {} {state}: {}>",
            self.title(),
            self.counted()
        )
    }

    /// For the feeder: adds items, false where the set takes none any more.
    fn _feed(&self, py: Python<'_>, items: &Bound<'_, PyTuple>) -> PyResult<bool> {
        match self.add(py, items) {
            Ok(()) => Ok(true),
            Err(error) if error.is_instance_of::<errors::SealedError>(py) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// For the feeder: waits until fewer than so many are unclaimed; false where the set takes none any more.
    fn _wait_hungry(&self, py: Python<'_>, below: u32) -> PyResult<bool> {
        self.engine().check()?;
        Ok(py.detach(|| {
            self.set().wait_hungry(below);
            self.set().is_open()
        }))
    }

    /// For the feeder: what it reads raised.
    fn _feeder_raised(
        &self,
        py: Python<'_>,
        error: Py<pyo3::exceptions::PyBaseException>,
    ) -> PyResult<()> {
        self.engine().check()?;
        if let Some(body) = self.shown() {
            body.failures().feeder_raised(error);
        }
        py.detach(|| self.set().fail());
        Ok(())
    }

    /// For `await`: calls `f()` once, on a worker, when the gate is decided. A number to take that back by, where it is not too late.
    fn _on_decided(&self, f: Py<PyAny>) -> PyResult<Option<u64>> {
        self.engine().check()?;
        let f = Owned::new(f);
        let asked = self.set().on_decided(Box::new(move |_| called(&f)));
        Ok(asked.map(|Asked(number)| number))
    }

    /// For `async for`: calls `f()` once, on a worker, when something settles.
    fn _on_settled(&self, f: Py<PyAny>) -> PyResult<u64> {
        self.engine().check()?;
        let f = Owned::new(f);
        Ok(self.set().on_settled(Box::new(move || called(&f))).0)
    }

    /// Takes back what was to be called.
    fn _forget(&self, py: Python<'_>, number: u64) {
        py.detach(|| self.set().forget(Asked(number)));
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.visit(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        self.clear(py);
    }
}

/// How far somebody has read the log of a set.
struct Reader {
    place: Place,
    ready: Range<u32>,
}

/// The outcomes of a set, in the order in which they came.
#[pyclass(frozen, module = "shoal", generic)]
pub(crate) struct Outcomes {
    instances: InstanceSet,
    reader: Mutex<Reader>,
}

#[pymethods]
impl Outcomes {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.instances.engine().check()?;
        let next = wait::until(py, None, |slice| self.next(slice))?;
        match next {
            Some(Some(index)) => self.outcome(py, index),
            _ => Err(PyStopIteration::new_err(())),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.instances.visit(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        self.instances.clear(py);
    }

    /// For `async for`: the outcomes that are there, a stretch of them; none yet is an empty list, None says that no more will come.
    fn _ready<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        self.instances.engine().check()?;
        let ready = PyList::empty(py);
        while ready.len() < AT_A_TIME as usize {
            match py.detach(|| self.next(Some(Duration::ZERO))) {
                None => break,
                Some(Some(index)) => ready.append(self.outcome(py, index)?)?,
                Some(None) if ready.is_empty() => return Ok(None),
                Some(None) => break,
            }
        }
        Ok(Some(ready))
    }
}

impl Outcomes {
    /// The next index, within so long; nothing: not yet; nothing inside: there will be none.
    fn next(&self, within: Option<Duration>) -> Option<Option<u32>> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.ready.is_empty() {
            let deadline = within.and_then(|within| Instant::now().checked_add(within));
            let set = self.instances.set();
            reader.ready = set.wait_settled(&mut reader.place, AT_A_TIME, deadline)?;
        }
        Some(reader.ready.next())
    }

    fn outcome(&self, py: Python<'_>, index: u32) -> PyResult<Py<PyAny>> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let state = self.instances.set().settled(index);
        let (mut item, mut value, mut error) = (py.None(), py.None(), py.None());
        if let Some(body) = self.instances.shown() {
            // Items that are shared may have changed since.
            item = body.item(py, index).map_or(item, Bound::unbind);
            if state == InstanceState::Completed {
                value = body.yielded(py, index)?.unwrap_or(value);
            }
            error = body.failures().get(py, index)?.unwrap_or(error);
        }
        let status = names::instance_state(py, state)?;
        Ok(names::imported(py, &CLASS, "shoal._states", "Outcome")?
            .call1((index, item, status, value, error))?
            .unbind())
    }
}

//! Gates: a set's, and those used alone.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Instant,
};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyString,
};
use shoal_core::{Asked, Decision, Gate as Alone, Task};

use crate::{
    body::shown,
    engine::{Engine, Inner},
    errors::{self, JoinError},
    instances::InstanceSet,
    names,
    policy::{Number, bounded, named},
    python::{Owned, call_none, call_one, try_attach_worker},
    wait::{self, For},
};

/// A lock-free counter that is decided exactly once.
///
/// >>> import shoal
/// >>> gate = shoal.Gate(target=2)
/// >>> gate.arrive(), gate.arrive(), gate.arrive()
/// (False, True, False)
/// >>> gate.state
/// <GateState.FIRED: 'fired'>
#[pyclass(frozen, module = "shoal")]
pub(crate) struct Gate {
    kind: Kind,
}

enum Kind {
    Alone {
        gate: Arc<Alone>,
        engine: Arc<Inner>,
        name: Option<String>,
        callbacks: Arc<Callbacks>,
    },
    OfSet(InstanceSet),
}

/// What is called when a gate is decided; nothing: it was called, or the collector took it from a gate that never will be.
#[derive(Clone)]
struct Callback(Arc<Mutex<Option<Owned<Py<PyAny>>>>>);

impl Callback {
    fn new(f: Py<PyAny>) -> Self {
        Self(Arc::new(Mutex::new(Some(Owned::new(f)))))
    }

    fn take(&self) -> Option<Owned<Py<PyAny>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether nobody will call it any more.
    fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// The callbacks of a gate, once more: the collector cannot look into the core's list.
#[derive(Default)]
struct Callbacks(Mutex<Vec<Callback>>);

impl Callbacks {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Callback>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up what was taken back: after the lock, for that may run anything.
    fn forget(&self) {
        let mut callbacks = self.lock();
        let (over, left) = callbacks.drain(..).partition(Callback::is_over);
        *callbacks = left;
        drop(callbacks);
        drop::<Vec<_>>(over);
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Somebody who holds a lock holds the objects too.
        let Ok(callbacks) = self.0.try_lock() else {
            return Ok(());
        };
        callbacks
            .iter()
            .filter_map(|callback| callback.0.try_lock().ok())
            .try_for_each(|f| f.as_ref().map_or(Ok(()), |f| visit.call(&**f)))
    }
}

impl Gate {
    pub(crate) fn of(instances: InstanceSet) -> Self {
        Self {
            kind: Kind::OfSet(instances),
        }
    }

    fn decision(&self) -> Option<Decision> {
        match &self.kind {
            Kind::Alone { gate, .. } => gate.decision(),
            Kind::OfSet(instances) => instances.set().decision(),
        }
    }

    fn engine(&self) -> &Arc<Inner> {
        match &self.kind {
            Kind::Alone { engine, .. } => engine,
            Kind::OfSet(instances) => instances.engine(),
        }
    }

    /// Has `call` called with `f` and the decision.
    fn ask(
        &self,
        f: Py<PyAny>,
        call: impl FnOnce(&Py<PyAny>, Decision) + Send + 'static,
    ) -> Option<Asked> {
        let callback = Callback::new(f);
        let mine = callback.clone();
        let call = Box::new(move |decision| {
            if let Some(f) = mine.take() {
                call(&f, decision);
            }
        });
        match &self.kind {
            Kind::Alone {
                gate, callbacks, ..
            } => {
                let asked = gate.on_decided(call);
                if asked.is_some() {
                    callbacks.lock().push(callback);
                }
                asked
            }
            Kind::OfSet(instances) => instances.set().on_decided(call),
        }
    }
}

/// What a continuation knows of its gate: a gate of its own it must not keep, or one that never opens would keep itself.
enum Seen {
    Alone(Weak<Alone>, Arc<Inner>, Option<String>, Arc<Callbacks>),
    OfSet(InstanceSet),
}

impl Seen {
    fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Alone {
                gate,
                engine,
                name,
                callbacks,
            } => Self::Alone(
                Arc::downgrade(gate),
                Arc::clone(engine),
                name.clone(),
                Arc::clone(callbacks),
            ),
            Kind::OfSet(instances) => Self::OfSet(instances.clone()),
        }
    }

    /// The gate that fired.
    fn kind(self) -> Option<Kind> {
        Some(match self {
            Self::Alone(gate, engine, name, callbacks) => Kind::Alone {
                gate: gate.upgrade()?,
                engine,
                name,
                callbacks,
            },
            Self::OfSet(instances) => Kind::OfSet(instances),
        })
    }
}

/// Now, where who passed it is told: on a worker it could only be reported.
pub(crate) fn check_callable(f: &Bound<'_, PyAny>, takes: &str) -> PyResult<()> {
    if f.is_callable() {
        return Ok(());
    }
    let shown = f
        .repr()
        .map_or_else(|_| "that".into(), |text| text.to_string());
    Err(PyTypeError::new_err(format!("{takes}, not {shown}")))
}

/// Calls a continuation; what it raises goes where Python sends what nobody can catch.
pub(crate) fn call_back<'py>(
    py: Python<'py>,
    f: &Py<PyAny>,
    argument: PyResult<Bound<'py, PyAny>>,
) {
    let f = f.bind(py);
    if let Err(error) = argument.and_then(|argument| call_one(f, &argument)) {
        error.write_unraisable(py, Some(f));
    }
}

/// Calls a function without arguments from a worker.
pub(crate) fn called(f: &Py<PyAny>) {
    try_attach_worker(|py| {
        let f = f.bind(py);
        if let Err(error) = call_none(f) {
            error.write_unraisable(py, Some(f));
        }
    });
}

#[pymethods]
impl Gate {
    #[new]
    #[pyo3(signature = (target, *, engine=None, name=None))]
    fn new(
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        engine: Option<&Bound<'_, Engine>>,
        name: Option<&Bound<'_, PyString>>,
    ) -> PyResult<Self> {
        let target = bounded(target, "target", 1..=u64::MAX).map_err(|error| {
            match error.is_instance_of::<PyValueError>(py) {
                // It would never open.
                true => JoinError::new_err(error.value(py).to_string()),
                false => error,
            }
        })?;
        let name = name.map(|name| named(name, "name")).transpose()?;
        let name = name.map(str::to_owned);
        let engine = Arc::clone(Inner::or_default(py, engine)?);
        let calls = Arc::clone(engine.core.executor());
        let gate = Alone::new(target, calls).map_err(errors::raised)?;
        Ok(Self {
            kind: Kind::Alone {
                gate,
                engine,
                name,
                callbacks: Arc::default(),
            },
        })
    }

    /// Counts arrivals; true for the one that opened it.
    #[pyo3(signature = (n=Number(None)), text_signature = "($self, n=1)")]
    fn arrive(&self, py: Python<'_>, n: Number<'_>) -> PyResult<bool> {
        let n = n.or(1, "n", 1..=u64::MAX)?;
        self.engine().check()?;
        match &self.kind {
            Kind::Alone { gate, .. } => Ok(py.detach(|| gate.arrive(n))),
            Kind::OfSet(_) => Err(PyTypeError::new_err(
                "this is the gate of a set: its instances arrive by settling",
            )),
        }
    }

    /// How many arrived; for a set's gate, how many completed.
    #[getter]
    fn arrived(&self) -> u64 {
        match &self.kind {
            Kind::Alone { gate, .. } => gate.arrived(),
            Kind::OfSet(instances) => u64::from(instances.set().counts().completed),
        }
    }

    /// How many it takes; None where that is not known (yet), or no number.
    #[getter]
    fn target(&self) -> Option<u64> {
        match &self.kind {
            Kind::Alone { gate, .. } => Some(gate.target()),
            Kind::OfSet(instances) => instances.set().target().map(u64::from),
        }
    }

    /// `waiting`, then what it was decided as.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        names::gate_state(py, self.decision())
    }

    /// Whether it fired.
    #[getter]
    fn fired(&self) -> bool {
        self.decision() == Some(Decision::Fired)
    }

    /// Waits until it is decided; `"waiting"` if the time ran out.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let timeout = wait::seconds(timeout)?;
        let decision = match &self.kind {
            Kind::OfSet(instances) => match instances.task() {
                Some(task) => wait::wait(py, task, For::Decision, timeout, false, true)?,
                None => instances.set().decision(),
            },
            Kind::Alone { gate, engine, .. } => {
                engine.check()?;
                wait::until(py, timeout, |slice| {
                    gate.wait(slice.and_then(|slice| Instant::now().checked_add(slice)))
                })?
            }
        };
        names::gate_state(py, decision)
    }

    /// Nobody is let through any more; nothing if it was decided.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.engine().check()?;
        match &self.kind {
            Kind::Alone { gate, .. } => {
                py.detach(|| gate.cancel());
                Ok(())
            }
            Kind::OfSet(instances) => instances.cancel_set(py),
        }
    }

    /// Calls `f(gate)` once, on a worker, when it fires.
    fn on_fired(&self, f: &Bound<'_, PyAny>) -> PyResult<()> {
        check_callable(f, "on_fired() takes a function of the gate")?;
        self.engine().check()?;
        let seen = Seen::of(&self.kind);
        self.ask(f.clone().unbind(), move |f, decision| {
            if decision == Decision::Fired
                && let Some(kind) = seen.kind()
            {
                try_attach_worker(|py| {
                    call_back(py, f, Bound::new(py, Gate { kind }).map(Bound::into_any));
                });
            }
        });
        Ok(())
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("shoal._aio")?
            .call_method1("decision_of_gate", (slf,))?
            .call_method0("__await__")
    }

    /// For `await`: calls `f()` once, on a worker, when it is decided. A number to take that back by, where it is not too late.
    fn _on_decided(&self, f: Py<PyAny>) -> PyResult<Option<u64>> {
        self.engine().check()?;
        let asked = self.ask(f, |f, _| called(f));
        Ok(asked.map(|Asked(number)| number))
    }

    /// Takes back what was to be called.
    fn _forget(&self, py: Python<'_>, number: u64) {
        py.detach(|| match &self.kind {
            Kind::Alone { gate, .. } => gate.forget(Asked(number)),
            Kind::OfSet(instances) => instances.set().forget(Asked(number)),
        });
        if let Kind::Alone { callbacks, .. } = &self.kind {
            callbacks.forget();
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.kind {
            // What others hold too is not this one's alone: it is not to be collected yet.
            Kind::Alone {
                gate, callbacks, ..
            } if Arc::strong_count(gate) == 1 => callbacks.visit(&visit),
            Kind::Alone { .. } => Ok(()),
            Kind::OfSet(instances) => instances.visit(&visit),
        }
    }

    fn __clear__(&self, py: Python<'_>) {
        match &self.kind {
            Kind::Alone { callbacks, .. } => {
                let unreachable = std::mem::take(&mut *callbacks.lock());
                for callback in unreachable {
                    drop(callback.take());
                }
            }
            Kind::OfSet(instances) => instances.clear(py),
        }
    }

    fn __repr__(&self) -> String {
        let state = self.decision().map_or("waiting", Decision::name);
        match &self.kind {
            Kind::Alone { gate, name, .. } => {
                let name = name
                    .as_ref()
                    .map(|name| format!(" {name:?}"))
                    .unwrap_or_default();
                format!(
                    "<shoal.Gate{name} {state}: {} of {} arrived>",
                    gate.arrived(),
                    gate.target()
                )
            }
            Kind::OfSet(instances) => {
                format!("<shoal.Gate of set {} {state}>", instances.set().id())
            }
        }
    }
}

/// The engine of a task, for those who only have that.
pub(crate) fn engine_of(task: &Task) -> &Arc<Inner> {
    shown(task).engine()
}

//! Gates: a set's, and those used alone.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
};
use shoal_core::{Asked, Decision, Gate as Alone, Task};

use crate::{
    body::shown,
    engine::{Engine, Inner},
    errors,
    instances::{InstanceSet, called},
    names,
    policy::whole_number,
    python::{call_one, try_attach_worker},
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
    },
    OfSet(InstanceSet),
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
}

/// What a continuation knows of its gate: a gate of its own it must not keep, or one that never opens would keep itself.
enum Seen {
    Alone(Weak<Alone>, Arc<Inner>, Option<String>),
    OfSet(InstanceSet),
}

impl Seen {
    fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Alone { gate, engine, name } => {
                Self::Alone(Arc::downgrade(gate), Arc::clone(engine), name.clone())
            }
            Kind::OfSet(instances) => Self::OfSet(instances.clone()),
        }
    }

    /// The gate that fired.
    fn kind(self) -> Option<Kind> {
        Some(match self {
            Self::Alone(gate, engine, name) => Kind::Alone {
                gate: gate.upgrade()?,
                engine,
                name,
            },
            Self::OfSet(instances) => Kind::OfSet(instances),
        })
    }
}

/// Calls a continuation; what it raises goes where Python sends what nobody can catch.
pub(crate) fn call_back<'py>(py: Python<'py>, f: Py<PyAny>, argument: PyResult<Bound<'py, PyAny>>) {
    let f = f.into_bound(py);
    if let Err(error) = argument.and_then(|argument| call_one(&f, &argument)) {
        error.write_unraisable(py, Some(&f));
    }
}

#[pymethods]
impl Gate {
    #[new]
    #[pyo3(signature = (target, *, engine=None, name=None))]
    fn new(
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        engine: Option<&Bound<'_, Engine>>,
        name: Option<String>,
    ) -> PyResult<Self> {
        let target = whole_number(target, "target").map_err(|text| {
            if target.is_instance_of::<pyo3::types::PyInt>() {
                PyValueError::new_err(format!("{text}; a gate's target is 1 or more"))
            } else {
                PyTypeError::new_err(text)
            }
        })?;
        let engine = Arc::clone(Inner::or_default(py, engine)?);
        let calls = Arc::clone(engine.core.executor());
        let gate = Alone::new(target, calls).map_err(errors::raised)?;
        Ok(Self {
            kind: Kind::Alone { gate, engine, name },
        })
    }

    /// Counts arrivals; true for the one that opened it.
    #[pyo3(signature = (n=1))]
    fn arrive(&self, py: Python<'_>, n: u64) -> PyResult<bool> {
        self.engine().check()?;
        match &self.kind {
            Kind::Alone { gate, .. } if n > 0 => Ok(py.detach(|| gate.arrive(n))),
            Kind::Alone { .. } => Err(PyValueError::new_err(
                "arrive(0) is no arrival; n is 1 or more",
            )),
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
    fn on_fired(&self, f: Py<PyAny>) -> PyResult<()> {
        self.engine().check()?;
        let seen = Seen::of(&self.kind);
        let call = Box::new(move |decision: Decision| {
            if decision == Decision::Fired
                && let Some(kind) = seen.kind()
            {
                try_attach_worker(move |py| {
                    call_back(py, f, Bound::new(py, Gate { kind }).map(Bound::into_any));
                });
            }
        });
        match &self.kind {
            Kind::Alone { gate, .. } => gate.on_decided(call),
            Kind::OfSet(instances) => instances.set().on_decided(call),
        };
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
        let call = Box::new(move |_: Decision| called(f));
        let asked = match &self.kind {
            Kind::Alone { gate, .. } => gate.on_decided(call),
            Kind::OfSet(instances) => instances.set().on_decided(call),
        };
        Ok(asked.map(|Asked(number)| number))
    }

    /// Takes back what was to be called.
    fn _forget(&self, py: Python<'_>, number: u64) {
        py.detach(|| match &self.kind {
            Kind::Alone { gate, .. } => gate.forget(Asked(number)),
            Kind::OfSet(instances) => instances.set().forget(Asked(number)),
        });
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

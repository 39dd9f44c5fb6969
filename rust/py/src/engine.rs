//! Engines in Python: the default one, the user's, forks and the end of the process.

use std::{
    collections::HashMap,
    ptr,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_queue::SegQueue;
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError, PyValueError},
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyString},
};
use shoal_core::{self as core, Cost, Limits, Options, Phase, Unit};

use crate::{
    case::{Case, Cases},
    errors,
    instances::InstanceSet,
    names::imported,
    policy::{Number, bounded, named},
    wait,
};

/// An engine, and what the binding keeps beside it.
pub(crate) struct Inner {
    pub(crate) core: core::Engine,
    name: String,
    costs: Mutex<Costs>,
    /// Its user closed it.
    is_closed: AtomicBool,
}

/// What is known of functions, by the code they share. The objects are held, so that no other takes their address.
#[derive(Default)]
struct Costs(HashMap<usize, (Py<PyAny>, Arc<Cost>)>);

/// Bytes of a case's id, at most.
const LONGEST_ID: usize = 1024;

/// Functions that are remembered.
const REMEMBERED: usize = 4096;

/// Engines to be stopped when the process ends.
static LIVE: SegQueue<Weak<Inner>> = SegQueue::new();

/// The process ends: no engine takes the place of a closed one any more.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The engine of the module-level calls. Never freed: a call may be looking at it.
static DEFAULT: AtomicPtr<Arc<Inner>> = AtomicPtr::new(ptr::null_mut());

impl Inner {
    fn new(options: Options) -> core::Result<Arc<Self>> {
        let name = options.name.clone();
        let inner = Arc::new(Self {
            core: core::Engine::new(options)?,
            name,
            costs: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        LIVE.push(Arc::downgrade(&inner));
        Ok(inner)
    }

    /// Refuses to be used in a child process.
    pub(crate) fn check(&self) -> PyResult<()> {
        self.core.check_process().map_err(errors::raised)
    }

    /// Nobody needs it any more, though it was the default one.
    fn is_over(&self) -> bool {
        self.core.check_process().is_err()
            || self.is_closed.load(Ordering::Relaxed) && !IS_ENDING.load(Ordering::Relaxed)
    }

    /// The engine of the module-level calls: a fresh one after a fork, and after somebody closed the last.
    #[expect(unsafe_code, reason = "a pointer that is only ever replaced")]
    pub(crate) fn default(py: Python<'_>) -> PyResult<&'static Arc<Self>> {
        loop {
            let seen = DEFAULT.load(Ordering::Acquire);
            // SAFETY: null, or leaked by us and never freed.
            if let Some(inner) = unsafe { seen.as_ref() }
                && !inner.is_over()
            {
                return Ok(inner);
            }
            let fresh = py
                .detach(|| Inner::new(Options::default()))
                .map_err(errors::raised)?;
            let fresh = Box::into_raw(Box::new(fresh));
            if DEFAULT
                .compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: another thread was first, so nobody has seen ours.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    pub(crate) fn or_default<'a>(
        py: Python<'_>,
        engine: Option<&'a Bound<'_, Engine>>,
    ) -> PyResult<&'a Arc<Self>> {
        match engine {
            Some(engine) => {
                let inner = &engine.get().inner;
                inner.check()?;
                Ok(inner)
            }
            None => Self::default(py),
        }
    }

    /// What is known of a function, kept under its code object: a lambda made anew is the same body.
    pub(crate) fn cost_of(&self, function: &Bound<'_, PyAny>) -> Arc<Cost> {
        let key = code_of(function);
        let mut costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cost)) = costs.0.get(&(key.as_ptr() as usize)) {
            return Arc::clone(cost);
        }
        let forgotten = if costs.0.len() >= REMEMBERED {
            std::mem::take(&mut costs.0)
        } else {
            HashMap::new()
        };
        let cost = Arc::new(Cost::new());
        costs
            .0
            .insert(key.as_ptr() as usize, (key.unbind(), Arc::clone(&cost)));
        drop(costs);
        // Without the lock: giving objects up may run anything.
        drop(forgotten);
        cost
    }
}

/// The code object of a function or method; the type's own method of a bound builtin; the type of another callable.
fn code_of<'py>(function: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    let py = function.py();
    if let Ok(code) = function.getattr(pyo3::intern!(py, "__code__")) {
        return code;
    }
    if function.is_instance_of::<pyo3::types::PyType>() {
        return function.clone();
    }
    if function.is_instance_of::<pyo3::types::PyCFunction>() {
        // One that is bound to an object is made anew each time, and must not be what keeps that object.
        return match function.getattr(pyo3::intern!(py, "__self__")) {
            Ok(owner) if !owner.is_none() && !owner.is_instance_of::<pyo3::types::PyModule>() => {
                function
                    .getattr(pyo3::intern!(py, "__name__"))
                    .and_then(|name| owner.get_type().getattr(name.cast::<PyString>()?))
                    .unwrap_or_else(|_| function.get_type().into_any())
            }
            _ => function.clone(),
        };
    }
    if let Some(inner) = unwrapped(function) {
        return code_of(&inner);
    }
    function.get_type().into_any()
}

/// What a method or a `functools.partial` calls.
pub(crate) fn unwrapped<'py>(function: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    static PARTIAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = function.py();
    let partial = imported(py, &PARTIAL, "functools", "partial").ok()?;
    let inner = if function.is_instance(partial).unwrap_or(false) {
        pyo3::intern!(py, "func")
    } else {
        pyo3::intern!(py, "__func__")
    };
    function.getattr(inner).ok()
}

/// Has every fork of this process counted, so that no engine of the parent is used in a child.
#[expect(unsafe_code, reason = "a handler of the C library")]
pub(crate) fn watch_forks() {
    extern "C" fn forked() {
        core::after_fork();
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only counts, which is allowed in a child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// At exit: asks all workers to stop, waits a second for them, and leaves them.
#[pyfunction]
pub(crate) fn _close_all(py: Python<'_>) {
    IS_ENDING.store(true, Ordering::Relaxed);
    py.detach(|| {
        let deadline = Instant::now() + Duration::from_secs(1);
        let engines: Vec<_> = std::iter::from_fn(|| LIVE.pop())
            .filter_map(|engine| engine.upgrade())
            .filter(|engine| engine.core.check_process().is_ok())
            .collect();
        for engine in &engines {
            for set in engine.core.shut() {
                set.cancel();
            }
        }
        for engine in engines {
            let left = deadline.saturating_duration_since(Instant::now());
            engine.core.close(true, Some(left));
        }
    });
}

/// Executor, cases, records and views in one process.
///
/// >>> import shoal
/// >>> with shoal.Engine(workers=2) as engine:
/// ...     shoal.map(abs, [-1, -2], engine=engine)
/// [1, 2]
#[pyclass(frozen, module = "shoal", weakref)]
pub(crate) struct Engine {
    pub(crate) inner: Arc<Inner>,
}

/// The engine that serves the module-level calls.
#[pyfunction]
pub(crate) fn default_engine(py: Python<'_>) -> PyResult<Engine> {
    Ok(Engine {
        inner: Arc::clone(Inner::default(py)?),
    })
}

fn workers_of(workers: &Bound<'_, PyAny>) -> PyResult<u32> {
    Ok(bounded(workers, "workers", 1..=4096)? as u32)
}

fn limits_of(limits: &Bound<'_, PyAny>) -> PyResult<Limits> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if !limits.is_instance(imported(limits.py(), &CLASS, "shoal._states", "Limits")?)? {
        let kind = limits.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!(
            "limits is shoal.Limits(max_instances=..., max_case_instances=...), not {kind}"
        )));
    }
    let limit = |name: &str, bounds| bounded(&limits.getattr(name)?, name, bounds);
    Ok(Limits {
        max_instances: limit("max_instances", 0..=u64::from(u32::MAX))? as u32,
        max_case_instances: limit("max_case_instances", 0..=u64::MAX)?,
    })
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (*, workers=None, name=None, limits=None, retain=Number(None)),
        text_signature = "(*, workers=None, name=None, limits=None, retain=1000)")]
    fn new(
        py: Python<'_>,
        workers: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyString>>,
        limits: Option<&Bound<'_, PyAny>>,
        retain: Number<'_>,
    ) -> PyResult<Self> {
        let limits = limits.map_or_else(|| Ok(Limits::default()), limits_of)?;
        let retain = retain.or(1000, "retain", 0..=u64::from(u32::MAX))? as usize;
        let name = name.map(|name| named(name, "name")).transpose()?;
        if name.is_some_and(|name| name.contains('\0')) {
            return Err(PyValueError::new_err(
                "name has a null character, which names of threads cannot have",
            ));
        }
        let options = Options {
            workers: workers.map(workers_of).transpose()?,
            name: name.map_or_else(|| "shoal".into(), |name| format!("shoal-{name}")),
            limits,
            retain,
            ..Options::default()
        };
        Ok(Self {
            inner: py.detach(|| Inner::new(options)).map_err(errors::raised)?,
        })
    }

    /// What its threads are called.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    /// How many threads run bodies.
    #[getter]
    fn workers(&self) -> u32 {
        self.inner.core.executor().workers()
    }

    /// A case of this id, which must not be in use; without one it gets one.
    #[pyo3(signature = (id=None, *, workflow=None, variables=None))]
    fn case(
        &self,
        py: Python<'_>,
        id: Option<&Bound<'_, PyString>>,
        workflow: Option<String>,
        variables: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Case> {
        let id = id.map(|id| named(id, "id")).transpose()?;
        if let Some(id) = id.filter(|id| id.len() > LONGEST_ID) {
            return Err(PyValueError::new_err(format!(
                "id has {} bytes; a case's id has 1 to {LONGEST_ID}",
                id.len()
            )));
        }
        let core = self.inner.core.case(id).map_err(errors::raised)?;
        let variables = match variables {
            Some(variables) => variables.copy()?,
            None => PyDict::new(py),
        };
        Ok(Case::new(
            core,
            Arc::clone(&self.inner),
            workflow,
            variables.unbind(),
            PyDict::new(py).unbind(),
        ))
    }

    /// Its cases by id.
    #[getter]
    fn cases(&self) -> Cases {
        Cases {
            engine: Arc::clone(&self.inner),
        }
    }

    /// Its sets, oldest first: the live ones, and the newest finished ones.
    #[getter]
    fn sets(&self) -> PyResult<Vec<InstanceSet>> {
        self.inner.check()?;
        Ok(self
            .inner
            .core
            .sets()
            .into_iter()
            .map(|entry| InstanceSet::of_entry(entry, &self.inner))
            .collect())
    }

    /// The newest records of what happened, as ranges; with `since` those from that number on.
    #[pyo3(signature = (since=Number(None)), text_signature = "($self, since=0)")]
    fn events(&self, since: Number<'_>) -> PyResult<Vec<Event>> {
        let since = since.or(0, "since", 0..=u64::MAX)?;
        self.inner.check()?;
        let clock = self.inner.core.executor().clock();
        let (events, _) = self.inner.core.executor().events().read(since);
        Ok(events
            .into_iter()
            .map(|event| Event {
                seq: event.seq,
                at: clock.unix_ns(event.at) as f64 / 1e9,
                took: clock.nanoseconds(event.took) as f64 / 1e9,
                set: event.set,
                kind: event.kind.name(),
                start: event.start,
                stop: event.stop,
                worker: (event.worker != core::Event::NO_WORKER).then_some(event.worker),
            })
            .collect())
    }

    /// What it did so far, as a dict of numbers.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.inner.check()?;
        let totals = self.inner.core.totals();
        let executor = self.inner.core.executor();
        let events = executor.events();
        let metrics = PyDict::new(py);
        for (name, value) in [
            ("sets", totals.sets),
            ("instances", totals.instances),
            ("completed", totals.completed),
            ("failed", totals.failed),
            ("cancelled", totals.cancelled),
            ("timed_out", totals.timed_out),
            ("running", totals.running),
            ("workers", u64::from(executor.workers())),
            ("events", events.written()),
            ("events_lost", events.dropped()),
        ] {
            metrics.set_item(name, value)?;
        }
        Ok(metrics)
    }

    /// How many ticks an instance creating, spawning and living took, by set size.
    fn ticks(&self) -> PyResult<Ticks> {
        self.inner.check()?;
        let executor = self.inner.core.executor();
        let ticks = executor.ticks();
        let histogram = |phase| ticks.histogram(phase).into_iter().collect();
        Ok(Ticks {
            unit: match executor.clock().unit() {
                Unit::Ticks => "ticks",
                Unit::Nanoseconds => "ns",
            },
            budget: ticks.budget(),
            sets: ticks.sets(),
            over_budget: ticks.over_budget(),
            creation: histogram(Phase::Creation),
            spawn: histogram(Phase::Spawn),
            life: histogram(Phase::Life),
        })
    }

    /// Takes nothing more and waits for what there is; with `cancel` it is cancelled first. Then the threads go.
    #[pyo3(signature = (cancel=false))]
    fn close(&self, py: Python<'_>, cancel: bool) -> PyResult<()> {
        self.inner.check()?;
        if self.inner.core.executor().is_here() {
            return Err(PyRuntimeError::new_err(
                "close() inside one of the engine's own bodies would wait for itself; close it from outside",
            ));
        }
        self.inner.is_closed.store(true, Ordering::Relaxed);
        let sets = self.inner.core.shut();
        for set in &sets {
            py.detach(|| if cancel { set.cancel() } else { set.seal() });
        }
        for set in &sets {
            wait::until(py, None, |slice| {
                let until = slice.and_then(|slice| Instant::now().checked_add(slice));
                set.wait_drained(until).then_some(())
            })?;
        }
        wait::until(py, None, |slice| {
            self.inner.core.close(cancel, slice).then_some(())
        })?;
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, _error, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py, !kind.is_none())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| Arc::ptr_eq(&self.inner, &other.get().inner))
    }

    fn __hash__(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    fn __repr__(&self) -> String {
        let state = if self.inner.core.check_process().is_err() {
            "of the parent process"
        } else if self.inner.core.is_closed() {
            "closed"
        } else {
            "open"
        };
        format!(
            "<shoal.Engine {:?} {state}, {} workers>",
            self.inner.name,
            self.workers()
        )
    }
}

/// One thing that happened to one range of one set.
#[pyclass(frozen, get_all, module = "shoal")]
pub(crate) struct Event {
    /// Its place in the engine's stream.
    seq: u64,
    /// When it was over, in seconds since the Unix epoch.
    at: f64,
    /// How long it took, in seconds; 0 where nothing ran.
    took: f64,
    /// The set's id.
    set: u64,
    /// What happened.
    kind: &'static str,
    /// The first index.
    start: u32,
    /// One past the last.
    stop: u32,
    /// The worker it happened on; None for other threads.
    worker: Option<u32>,
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        format!(
            "<shoal.Event {}: set {} {} {}..{}>",
            self.seq, self.set, self.kind, self.start, self.stop
        )
    }
}

type Histogram = HashMap<u64, Vec<(f64, u64)>>;

/// The tick budget: histograms by set size (1, 10, 100, ...) of (upper bound of ticks an instance, number of sets).
#[pyclass(frozen, get_all, module = "shoal")]
pub(crate) struct Ticks {
    /// `"ticks"` of the processor's invariant counter, or `"ns"` where there is none.
    unit: &'static str,
    /// What creation and spawn may take together, an instance.
    budget: u64,
    /// Sets that were measured.
    sets: u64,
    /// Sets whose creation and spawn took more.
    over_budget: u64,
    /// Making the set.
    creation: Histogram,
    /// Handing it to the workers.
    spawn: Histogram,
    /// From the call to the last settled instance.
    life: Histogram,
}

#[pymethods]
impl Ticks {
    fn __repr__(&self) -> String {
        format!(
            "<shoal.Ticks: {} of {} sets over the budget of {} {} an instance>",
            self.over_budget, self.sets, self.budget, self.unit
        )
    }
}

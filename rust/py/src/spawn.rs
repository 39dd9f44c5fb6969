//! `spawn` and `map`: from what Python passes to a task of the core.

use std::sync::Arc;

use pyo3::{
    exceptions::{PyException, PyTypeError, PyValueError},
    prelude::*,
    sync::PyOnceLock,
    types::{PyBool, PyInt, PyString, PyTuple},
};
use shoal_core::{self as core, Body, Clock, Cost, Count, Join, Rest, Seal, Spec, Task};

use crate::{
    case::{Case, variables_of},
    current::current_task,
    engine::{Engine, Inner, unwrapped},
    errors::{self, CountError},
    function::{Function, Setup, Shape},
    gate::engine_of,
    instances::InstanceSet,
    items::{Given, Inputs, Items},
    kernel::{Compiled, Kernel},
    names::imported,
    policy::{self, named, refuse, text, whole_number},
    wait::{self, For},
};

/// Everything but the body and its items that `spawn` and `map` take alike.
struct Call<'a, 'py> {
    called: u64,
    engine: &'a Arc<Inner>,
    /// The caller begins alone, and its list takes the values; else the workers have it at once.
    is_map: bool,
    case: Option<Arc<core::Case>>,
    minimum: Option<&'a Bound<'py, PyAny>>,
    maximum: Option<&'a Bound<'py, PyAny>>,
    seal: Option<&'a Bound<'py, PyAny>>,
    join: Option<&'a Bound<'py, PyAny>>,
    rest: Option<&'a Bound<'py, PyAny>>,
    on_failure: Option<&'a Bound<'py, PyAny>>,
    on: Option<&'a Bound<'py, PyAny>>,
    batch: Option<&'a Bound<'py, PyAny>>,
    chunk: Option<&'a Bound<'py, PyAny>>,
    keep: bool,
    setup: Option<&'a Bound<'py, PyAny>>,
    name: Option<&'a str>,
}

/// What the instances get.
enum Input<'a, 'py> {
    Count(&'a Bound<'py, PyAny>),
    Items(Items, u64),
    Star(Items, u64),
}

/// Whose engine, and whose case: said, or those of the body that calls.
fn place<'a>(
    py: Python<'_>,
    engine: Option<&'a Bound<'_, Engine>>,
    case: Option<&'a Bound<'_, Case>>,
    parent: Option<&'a Arc<Task>>,
) -> PyResult<(&'a Arc<Inner>, Option<Arc<core::Case>>)> {
    if let Some(case) = case {
        let case = case.get();
        case.engine().check()?;
        if engine.is_some_and(|engine| !Arc::ptr_eq(&engine.get().inner, case.engine())) {
            return Err(PyValueError::new_err(
                "case belongs to another engine than engine=; leave engine= out",
            ));
        }
        return Ok((case.engine(), Some(Arc::clone(&case.core))));
    }
    let engine = match (engine, parent) {
        (None, Some(parent)) => {
            let engine = engine_of(parent);
            engine.check()?;
            engine
        }
        _ => Inner::or_default(py, engine)?,
    };
    let case = parent
        .filter(|parent| Arc::ptr_eq(engine_of(parent), engine))
        .map(|parent| Arc::clone(parent.case()));
    Ok((engine, case))
}

/// `count=`: an int of 1 or more, or a function of the case's variables that gives one.
fn count_of(
    py: Python<'_>,
    count: &Bound<'_, PyAny>,
    case: Option<&Arc<core::Case>>,
) -> PyResult<u64> {
    let refuse =
        |text: String| CountError::new_err(format!("{text}; count is an int of 1 or more"));
    if count.is_exact_instance_of::<PyInt>()
        && let Ok(count) = count.extract::<u64>()
    {
        return if count > 0 {
            Ok(count)
        } else {
            Err(refuse("count=0 makes no instance".into()))
        };
    }
    if count.is_callable() {
        let given = count.call1((variables_of(py, case),)).map_err(|cause| {
            // Ctrl-C and the like are none of its own.
            if !cause.is_instance_of::<PyException>(py) {
                return cause;
            }
            let error = CountError::new_err(format!("the count function raised {cause}"));
            error.set_cause(py, Some(cause));
            error
        })?;
        if given.is_callable() {
            return Err(refuse(format!("the count function gave {given}")));
        }
        return count_of(py, &given, case);
    }
    match whole_number(count, "count") {
        Ok(0) => Err(refuse("count=0 makes no instance".into())),
        Ok(count) => Ok(count),
        Err(text) => Err(refuse(text)),
    }
}

fn bound_of(value: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Option<u64>> {
    value
        .map(|value| whole_number(value, what).map_err(CountError::new_err))
        .transpose()
}

impl Call<'_, '_> {
    /// Checks everything, then makes the set.
    fn create(
        mut self,
        py: Python<'_>,
        body: &Bound<'_, PyAny>,
        input: Input<'_, '_>,
        seal: Seal,
    ) -> PyResult<Arc<Task>> {
        let kernel = body.cast::<Kernel>().ok();
        if let Some(on) = self.on {
            match (text(on).as_deref(), kernel) {
                (Some("auto"), _) | (Some("workers"), None) | (Some("kernel"), Some(_)) => {}
                _ => return Err(refuse(on, "on", "\"auto\" or \"workers\"")),
            }
        }
        let is_function = matches!(&input, Input::Count(count) if count.is_callable());
        let (items, count, is_star, by_count) = match input {
            Input::Count(count) => (
                Items::Index,
                count_of(py, count, self.case.as_ref())?,
                false,
                true,
            ),
            Input::Items(items, count) => (items, count, false, false),
            Input::Star(items, count) => (items, count, true, false),
        };
        let (minimum, maximum) = (
            bound_of(self.minimum, "minimum")?,
            bound_of(self.maximum, "maximum")?,
        );
        // The core knows no bounds that no set can reach.
        if let Some(minimum) = minimum.filter(|minimum| count < *minimum) {
            return Err(CountError::new_err(format!(
                "{count} instances are fewer than minimum={minimum}"
            )));
        }
        Count {
            minimum: None,
            maximum: maximum.and_then(|maximum| u32::try_from(maximum).ok()),
        }
        .check(count)
        .map_err(errors::raised)?;
        let policy = policy::policy(self.join, self.rest, self.on_failure)?;
        let pattern = match (&policy.join, policy.rest) {
            _ if seal != Seal::AtOnce => 15,
            (Join::Detached, _) => 12,
            (Join::AtLeast { .. } | Join::Weighted(_), Rest::Continue) => 34,
            (Join::AtLeast { .. } | Join::Weighted(_), Rest::Cancel) => 35,
            _ if by_count && !is_function => 13,
            _ => 14,
        };
        let shape = match self.batch {
            _ if is_star => Shape::Star,
            None => Shape::One,
            Some(batch) if batch.is_instance_of::<PyBool>() => {
                if batch.extract()? {
                    Shape::Batch(u32::MAX)
                } else {
                    Shape::One
                }
            }
            Some(batch) => match whole_number(batch, "batch") {
                Ok(n) if n > 0 => Shape::Batch(u32::try_from(n).unwrap_or(u32::MAX)),
                _ => return Err(refuse(batch, "batch", "True or an int of 1 or more")),
            },
        };
        let chunk = match self.chunk {
            None => None,
            Some(chunk) => match whole_number(chunk, "chunk") {
                Ok(n) if n > 0 => Some(u32::try_from(n).unwrap_or(u32::MAX)),
                _ => return Err(refuse(chunk, "chunk", "an int of 1 or more")),
            },
        };
        // A batch of n needs chunks of n, else the set's own sizes would cut it.
        let chunk = match (chunk, shape) {
            (None, Shape::Batch(n)) if n != u32::MAX => Some(n),
            (chunk, _) => chunk,
        };
        let spec = Spec {
            count,
            seal,
            policy,
            case: self.case.take(),
            chunk,
            name: self.name.map(Into::into),
            pattern,
            called: self.called,
        };
        let engine = Arc::clone(self.engine);
        if let Some(kernel) = kernel {
            if self.batch.is_some() || self.setup.is_some() || seal != Seal::AtOnce {
                return Err(PyTypeError::new_err(
                    "a kernel takes no batch=, setup= or open set: it runs without the interpreter, over indices",
                ));
            }
            match items {
                Items::Index | Items::Range { start: 0, step: 1 } => {}
                _ => {
                    return Err(PyTypeError::new_err(
                        "a kernel gets indices: pass count=n or range(n), and its data as arrays to shoal.kernel",
                    ));
                }
            }
            let code = Arc::clone(&kernel.get().code);
            let cost = Arc::clone(&code.cost);
            return self.make(spec, cost, Compiled::new(code, engine));
        }
        check_callable(py, body)?;
        let setup = match self.setup {
            None => None,
            Some(setup) if setup.is_callable() => Some(Setup::new(setup.clone().unbind())),
            Some(setup) => return Err(refuse(setup, "setup", "a function without arguments")),
        };
        // The core's own limits are checked again with the case's; here they keep memory from being asked for in vain.
        let fits = count.min(u64::from(self.engine.core.limits().max_instances)) as u32;
        let open = seal != Seal::AtOnce;
        let function = Function::new(
            py,
            body.clone().unbind(),
            shape,
            setup,
            self.keep,
            Inputs::new(items, fits, open),
            fits as usize,
            open,
            engine,
        )?;
        let cost = self.engine.cost_of(body);
        self.make(spec, cost, function)
    }

    fn make(&self, spec: Spec, cost: Arc<Cost>, body: impl Body + 'static) -> PyResult<Arc<Task>> {
        let engine = &self.engine.core;
        if self.is_map {
            engine.create(spec, cost, body)
        } else {
            engine.spawn_known(spec, cost, body)
        }
        .map_err(errors::raised)
    }

    fn seal(&self) -> PyResult<Seal> {
        match self.seal {
            None => Ok(Seal::AtOnce),
            Some(seal) => match text(seal).as_deref() {
                Some("at_once") => Ok(Seal::AtOnce),
                Some("manual") => Ok(Seal::Manual),
                Some("when_idle") => Ok(Seal::WhenIdle),
                _ => Err(refuse(
                    seal,
                    "seal",
                    "\"at_once\", \"manual\" or \"when_idle\"",
                )),
            },
        }
    }
}

fn check_callable(py: Python<'_>, body: &Bound<'_, PyAny>) -> PyResult<()> {
    /// `co_flags` of coroutine functions and async generators.
    const ASYNC: u32 = 0x80 | 0x200;
    if !body.is_callable() {
        let kind = body.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!(
            "the body is {kind}, which cannot be called; pass a function or a shoal.kernel(...)"
        )));
    }
    let flags = |function: &Bound<'_, PyAny>| {
        function
            .getattr(pyo3::intern!(py, "__code__"))
            .and_then(|code| {
                code.getattr(pyo3::intern!(py, "co_flags"))?
                    .extract::<u32>()
            })
    };
    let is_async = match flags(body) {
        Ok(flags) => flags & ASYNC != 0,
        // A partial, or an object with a `__call__` of its own.
        Err(_) => unwrapped(body)
            .or_else(|| body.get_type().getattr(pyo3::intern!(py, "__call__")).ok())
            .is_some_and(|inner| flags(&inner).is_ok_and(|flags| flags & ASYNC != 0)),
    };
    if is_async {
        return Err(PyTypeError::new_err(
            "the body is a coroutine function, and the workers run plain ones; wrap it: lambda item: asyncio.run(f(item))",
        ));
    }
    Ok(())
}

/// This module's `spawn`, for those who forward to it.
pub(crate) fn function(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static SPAWN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    imported(py, &SPAWN, "shoal._native", "spawn")
}

/// Run `body` once for each of `items` (or `count` times with the index) and return the handle at once.
///
/// >>> import shoal
/// >>> fastest = shoal.spawn(lambda n: n * n, range(100), join=shoal.at_least(3))
/// >>> fastest.wait()
/// <GateState.FIRED: 'fired'>
/// >>> len(fastest.result()) >= 3
/// True
#[pyfunction]
#[pyo3(signature = (body, items=None, *, count=None, minimum=None, maximum=None, seal=None, join=None, rest=None, on_failure=None, on=None,
    batch=None, chunk=None, keep=true, setup=None, progress=false, name=None, engine=None, case=None))]
#[expect(
    clippy::too_many_arguments,
    reason = "the options of the call, by name"
)]
pub(crate) fn spawn<'py>(
    py: Python<'py>,
    body: &Bound<'py, PyAny>,
    items: Option<&Bound<'py, PyAny>>,
    count: Option<&Bound<'py, PyAny>>,
    minimum: Option<&Bound<'py, PyAny>>,
    maximum: Option<&Bound<'py, PyAny>>,
    seal: Option<&Bound<'py, PyAny>>,
    join: Option<&Bound<'py, PyAny>>,
    rest: Option<&Bound<'py, PyAny>>,
    on_failure: Option<&Bound<'py, PyAny>>,
    on: Option<&Bound<'py, PyAny>>,
    batch: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    keep: bool,
    setup: Option<&Bound<'py, PyAny>>,
    progress: bool,
    name: Option<&Bound<'py, PyString>>,
    engine: Option<&Bound<'py, Engine>>,
    case: Option<&Bound<'py, Case>>,
) -> PyResult<Bound<'py, InstanceSet>> {
    let called = Clock::default().ticks();
    let parent = current_task();
    let (engine, case) = place(py, engine, case, parent.as_ref())?;
    let call = Call {
        called,
        engine,
        is_map: false,
        case,
        minimum,
        maximum,
        seal,
        join,
        rest,
        on_failure,
        on,
        batch,
        chunk,
        keep,
        setup,
        name: name.map(|name| named(name, "name")).transpose()?,
    };
    let seal = call.seal()?;
    let mut feed = None;
    let (input, seal) = match (items, count) {
        (None, Some(count)) => (Input::Count(count), seal),
        (Some(items), None) => match Items::of(items)? {
            Given::Sized(items, count) => (Input::Items(items, count), seal),
            Given::Iterator(_) if minimum.is_some() || maximum.is_some() => {
                return Err(PyTypeError::new_err(
                    "minimum= and maximum= bound a count, which an iterator does not have; collect it into a list first",
                ));
            }
            Given::Iterator(iterator) => {
                feed = Some(iterator);
                // The feeder ends the set; one that seals itself when idle would end it between two items.
                (Input::Items(Items::none(py), 0), Seal::Manual)
            }
        },
        (None, None) if seal == Seal::Manual => (Input::Items(Items::none(py), 0), seal),
        (None, None) if seal == Seal::WhenIdle => {
            return Err(PyTypeError::new_err(
                "seal=\"when_idle\" needs items to start from: an empty set is idle at once",
            ));
        }
        (None, None) => return Err(PyTypeError::new_err("spawn() needs items, or count=n")),
        (Some(_), Some(_)) => {
            return Err(PyTypeError::new_err(
                "spawn() takes items or count=, not both",
            ));
        }
    };
    let task = call.create(py, body, input, seal)?;
    // From here on it runs: who gets no handle gets no set.
    or_cancel(py, &Arc::clone(&task), || {
        let instances = Bound::new(py, InstanceSet::of(task))?;
        if let Some(iterator) = feed {
            static FEED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            imported(py, &FEED, "shoal._feeder", "feed")?.call1((&instances, iterator))?;
        }
        if progress {
            watch(py, &instances)?;
        }
        Ok(instances)
    })
}

fn or_cancel<R>(py: Python<'_>, task: &Arc<Task>, f: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let result = f();
    if result.is_err() {
        py.detach(|| task.set().cancel());
    }
    result
}

fn watch(py: Python<'_>, instances: &Bound<'_, InstanceSet>) -> PyResult<()> {
    static WATCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    imported(py, &WATCH, "shoal._progress", "watch")?.call1((instances,))?;
    Ok(())
}

/// Like the built-in `map`, on all workers: a list of the values in order; the first failure raises. An instance whose body raised
/// `shoal.Cancelled` has no value: it is left out, and the list is shorter by it.
///
/// >>> import shoal
/// >>> shoal.map(pow, [2, 3, 4], [5, 2, 3])
/// [32, 9, 64]
#[pyfunction]
#[pyo3(signature = (body, *iterables, count=None, minimum=None, maximum=None, join=None, rest=None, on_failure=None, on=None, batch=None,
    chunk=None, setup=None, progress=false, name=None, engine=None, case=None))]
#[expect(
    clippy::too_many_arguments,
    reason = "the options of the call, by name"
)]
pub(crate) fn map<'py>(
    py: Python<'py>,
    body: &Bound<'py, PyAny>,
    iterables: &Bound<'py, PyTuple>,
    count: Option<&Bound<'py, PyAny>>,
    minimum: Option<&Bound<'py, PyAny>>,
    maximum: Option<&Bound<'py, PyAny>>,
    join: Option<&Bound<'py, PyAny>>,
    rest: Option<&Bound<'py, PyAny>>,
    on_failure: Option<&Bound<'py, PyAny>>,
    on: Option<&Bound<'py, PyAny>>,
    batch: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    setup: Option<&Bound<'py, PyAny>>,
    progress: bool,
    name: Option<&Bound<'py, PyString>>,
    engine: Option<&Bound<'py, Engine>>,
    case: Option<&Bound<'py, Case>>,
) -> PyResult<Bound<'py, PyAny>> {
    let called = Clock::default().ticks();
    let parent = current_task();
    let (engine, case) = place(py, engine, case, parent.as_ref())?;
    let call = Call {
        called,
        engine,
        is_map: true,
        case,
        minimum,
        maximum,
        seal: None,
        join,
        rest,
        on_failure,
        on,
        batch,
        chunk,
        keep: false,
        setup,
        name: name.map(|name| named(name, "name")).transpose()?,
    };
    let input = match (iterables.len(), count) {
        (0, Some(count)) => Input::Count(count),
        (0, None) => {
            return Err(PyTypeError::new_err(
                "map() needs something to iterate over, or count=n",
            ));
        }
        (1, None) => match Items::of(&iterables.get_item(0)?)? {
            Given::Sized(items, count) => Input::Items(items, count),
            Given::Iterator(iterator) => {
                let (items, count) = Items::drawn(iterator.bind(py))?;
                Input::Items(items, count)
            }
        },
        (_, None) => {
            if batch.is_some() {
                return Err(PyTypeError::new_err("batch= goes with one iterable"));
            }
            let zipped = py.import("builtins")?.getattr("zip")?.call1(iterables)?;
            let (items, count) = Items::drawn(&zipped.try_iter()?)?;
            Input::Star(items, count)
        }
        (_, Some(_)) => {
            return Err(PyTypeError::new_err(
                "map() takes iterables or count=, not both",
            ));
        }
    };
    let task = call.create(py, body, input, Seal::AtOnce)?;
    let instances = InstanceSet::of(Arc::clone(&task));
    let decision = or_cancel(py, &task, || {
        if progress {
            watch(py, &Bound::new(py, instances.clone())?)?;
        }
        // The caller helps before anybody is woken: a small set is done before a worker could be.
        wait::wait(py, &task, For::Decision, None, true, true)
    })?;
    // Structured: when this returns or raises, none of its bodies runs.
    wait::wait(py, &task, For::Drained, None, false, false)?;
    match decision {
        Some(decision) => instances.mapped(py, decision),
        None => Ok(py.None().into_bound(py)),
    }
}

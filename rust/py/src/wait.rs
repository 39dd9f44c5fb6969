//! Waiting, in one place: detached, in slices, with an ear for signals, and helping.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::{Duration, Instant},
};

use pyo3::{
    exceptions::{PyOverflowError, PyTypeError, PyValueError},
    prelude::*,
    sync::PyOnceLock,
    types::PyBool,
};
use shoal_core::{Decision, Task, Waiting, generation};

use crate::{body::shown, names::imported};

/// Ctrl-C is heard this often.
const LISTEN: Duration = Duration::from_millis(50);
/// The main thread helps no longer than this at a time.
const HELP: Duration = Duration::from_millis(1);

thread_local! {
    /// This thread hears signals, and runs bodies while it waits.
    static LISTENING: Cell<bool> = const { Cell::new(false) };
    /// What a signal's handler raised while a body ran.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    static MAIN: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
}

/// `timeout=`: seconds, or nothing.
pub(crate) fn seconds(timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(timeout) = timeout else {
        return Ok(None);
    };
    if timeout.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("timeout is in seconds, not a bool"));
    }
    let seconds: f64 = timeout.extract()?;
    if seconds.is_nan() {
        return Err(PyValueError::new_err("timeout is not a number"));
    }
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    Duration::try_from_secs_f64(seconds.max(0.0))
        .map(Some)
        .map_err(|_| PyOverflowError::new_err(format!("timeout={seconds} is too long")))
}

/// Whether this is the thread that hears signals. A fork makes its caller that thread.
fn is_main(py: Python<'_>) -> PyResult<bool> {
    let now = generation();
    if let Some((then, is_main)) = MAIN.get()
        && then == now
    {
        return Ok(is_main);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = main.eq(threading.call_method0("get_ident")?)?;
    MAIN.set(Some((now, is_main)));
    Ok(is_main)
}

/// An exception that a signal's handler raised in the middle of a body is kept for the waiter: it is none of the body's.
pub(crate) fn note_signal(py: Python<'_>, error: &PyErr) -> bool {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if !LISTENING.get() {
        return false;
    }
    let is_signals = imported(py, &CHECK, "shoal._signals", "raised_by_handler")
        // With its traceback, which an error on its way keeps apart.
        .and_then(|check| {
            let error = error.clone_ref(py).into_value(py);
            check.call1((error,))?.extract::<bool>()
        })
        .unwrap_or(false);
    if is_signals {
        INTERRUPT.replace(Some(error.clone_ref(py)));
    }
    is_signals
}

/// Waits in slices until `step` answers. `step` is called detached.
pub(crate) fn until<R: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut step: impl FnMut(Option<Duration>) -> Option<R> + Send,
) -> PyResult<Option<R>> {
    let is_main = is_main(py)?;
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = match (is_main, left) {
            (false, left) => left,
            (true, None) => Some(LISTEN),
            (true, Some(left)) => Some(left.min(LISTEN)),
        };
        if let Some(result) = py.detach(|| step(slice)) {
            return Ok(Some(result));
        }
        if is_main {
            py.check_signals()?;
        }
        if left.is_some_and(|left| left.is_zero() || slice == Some(left)) {
            return Ok(None);
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Decision,
    Drained,
}

/// Waits for a task, and helps: the main thread with bodies known to be short, a millisecond at a time.
/// Nothing: the time ran out. An exception of a signal's handler ends the wait, and with `cancel` the set.
pub(crate) fn wait(
    py: Python<'_>,
    task: &Arc<Task>,
    what: For,
    timeout: Option<Duration>,
    mut alone_first: bool,
    cancel: bool,
) -> PyResult<Option<Decision>> {
    shown(task).engine().check()?;
    let set = task.set();
    let reached = || match what {
        For::Decision => set.decision(),
        // What a drained set was decided as does not matter to who drains it.
        For::Drained => set.is_drained().then_some(Decision::Fired),
    };
    if let Some(decision) = reached() {
        return Ok(Some(decision));
    }
    let is_main = is_main(py)?;
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let outer = LISTENING.replace(is_main);
    let result = loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = is_main.then(|| {
            if task.is_short() && set.unclaimed() > 0 {
                HELP
            } else {
                LISTEN
            }
        });
        let waiting = Waiting {
            timeout: match (left, slice) {
                (Some(left), Some(slice)) => Some(left.min(slice)),
                (left, slice) => left.or(slice),
            },
            only_short: is_main || left.is_some(),
            alone_first: std::mem::take(&mut alone_first),
        };
        py.detach(|| match what {
            For::Decision => drop(task.wait_as(waiting)),
            For::Drained => drop(task.drain_as(waiting)),
        });
        if let Some(error) = INTERRUPT.take() {
            break Err(error);
        }
        if let Some(decision) = reached() {
            break Ok(Some(decision));
        }
        if is_main && let Err(error) = py.check_signals() {
            break Err(error);
        }
        if left.is_some_and(|left| waiting.timeout == Some(left)) {
            break Ok(None);
        }
    };
    LISTENING.set(outer);
    if result.is_err() && cancel {
        py.detach(|| set.cancel());
    }
    result
}

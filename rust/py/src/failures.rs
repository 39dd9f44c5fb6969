//! What went wrong in which instance: the first hundred exceptions with their frames, the rest in words.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyBaseException, PyKeyboardInterrupt, PySystemExit},
    prelude::*,
    types::{PyDict, PyString},
};

use crate::{
    errors::{InstanceError, KernelError, PanicError},
    python::call_one,
};

/// Kept tracebacks pin their frames, so few are kept.
const KEPT: u32 = 100;

/// One failure.
enum Failure {
    Raised(Py<PyBaseException>),
    Brief {
        type_name: String,
        message: String,
        location: String,
    },
    Code(i32),
    Panic(String),
}

/// The failures of a set.
#[derive(Default)]
pub(crate) struct Failures {
    kept: AtomicU32,
    first: OnceLock<u32>,
    by_index: Mutex<BTreeMap<u32, Failure>>,
    /// `KeyboardInterrupt` or `SystemExit` of a body: for the thread that waits.
    fatal: OnceLock<Py<PyBaseException>>,
    /// What feeds the set raised.
    feeder: OnceLock<Py<PyBaseException>>,
}

impl Failures {
    fn keep(&self, index: u32, failure: Failure) {
        let _ = self.first.set(index);
        self.by_index
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(index, failure);
    }

    /// A body raised.
    pub(crate) fn raised(&self, py: Python<'_>, index: u32, error: &PyErr) {
        // With its traceback, which an error on its way keeps apart.
        let value = &error.clone_ref(py).into_value(py).into_bound(py);
        if value.is_instance_of::<PyKeyboardInterrupt>() || value.is_instance_of::<PySystemExit>() {
            let _ = self.fatal.set(value.clone().unbind());
        }
        let failure = if self.kept.fetch_add(1, Ordering::Relaxed) < KEPT {
            Failure::Raised(value.clone().unbind())
        } else {
            let (type_name, message) = words(value);
            Failure::Brief {
                type_name,
                message,
                location: location(py, error).unwrap_or_default(),
            }
        };
        self.keep(index, failure);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn code(&self, index: u32, code: i32) {
        self.keep(index, Failure::Code(code));
    }

    pub(crate) fn panicked(&self, index: u32, message: &str) {
        self.keep(index, Failure::Panic(message.to_owned()));
    }

    pub(crate) fn feeder_raised(&self, error: Py<PyBaseException>) {
        let _ = self.feeder.set(error);
    }

    pub(crate) fn of_feeder(&self) -> Option<&Py<PyBaseException>> {
        self.feeder.get()
    }

    pub(crate) fn fatal(&self) -> Option<&Py<PyBaseException>> {
        self.fatal.get()
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for error in self.fatal.get().into_iter().chain(self.feeder.get()) {
            visit.call(error)?;
        }
        // Somebody who holds the lock holds the objects too.
        let Ok(failures) = self.by_index.try_lock() else {
            return Ok(());
        };
        failures.values().try_for_each(|failure| match failure {
            Failure::Raised(error) => visit.call(error),
            _ => Ok(()),
        })
    }

    /// The index that failed first.
    pub(crate) fn first(&self) -> Option<u32> {
        self.first.get().copied()
    }

    /// The exception of an instance.
    pub(crate) fn get(&self, py: Python<'_>, index: u32) -> PyResult<Option<Py<PyAny>>> {
        enum Seen {
            Object(Py<PyBaseException>),
            Made(PyErr),
        }
        let seen = {
            let failures = self.by_index.lock().unwrap_or_else(PoisonError::into_inner);
            match failures.get(&index) {
                None => return Ok(None),
                Some(Failure::Raised(error)) => Seen::Object(error.clone_ref(py)),
                Some(Failure::Brief {
                    type_name,
                    message,
                    location,
                }) => Seen::Made(InstanceError::new_err((
                    type_name.clone(),
                    message.clone(),
                    location.clone(),
                ))),
                Some(Failure::Code(code)) => Seen::Made(KernelError::new_err((*code, index))),
                Some(Failure::Panic(message)) => Seen::Made(PanicError::new_err(message.clone())),
            }
        };
        Ok(Some(match seen {
            Seen::Object(error) => error.into_any(),
            Seen::Made(error) => error.into_value(py).into_any(),
        }))
    }

    /// At most so many exceptions, in the order of their indices: those that were kept as they were, then the others.
    pub(crate) fn some(&self, py: Python<'_>, most: usize) -> PyResult<Vec<Py<PyAny>>> {
        let mut indices: Vec<(bool, u32)> = self
            .by_index
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(&index, failure)| (!matches!(failure, Failure::Raised(_)), index))
            .collect();
        indices.sort_unstable();
        indices.truncate(most);
        indices.sort_unstable_by_key(|&(_, index)| index);
        let some = indices.into_iter().map(|(_, index)| self.get(py, index));
        some.filter_map(PyResult::transpose).collect()
    }

    /// All exceptions by index.
    pub(crate) fn all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let indices: Vec<u32> = self
            .by_index
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .copied()
            .collect();
        let all = PyDict::new(py);
        for index in indices {
            if let Some(error) = self.get(py, index)? {
                all.set_item(index, error)?;
            }
        }
        Ok(all)
    }
}

/// Type and message.
fn words(error: &Bound<'_, PyBaseException>) -> (String, String) {
    let type_name = error
        .get_type()
        .fully_qualified_name()
        .map_or_else(|_| "Exception".into(), |name| name.to_string());
    let message = call_one(error.py().get_type::<PyString>().as_any(), error)
        .map_or_else(|_| "<its str() raised>".into(), |text| text.to_string());
    (type_name, message)
}

/// As the last line of a traceback.
pub(crate) fn line(error: &Bound<'_, PyBaseException>) -> String {
    match words(error) {
        (type_name, message) if message.is_empty() => type_name,
        (type_name, message) => format!("{type_name}: {message}"),
    }
}

/// File and line where it was raised.
fn location(py: Python<'_>, error: &PyErr) -> Option<String> {
    let mut at = error.traceback(py)?.into_any();
    while let Ok(next) = at.getattr("tb_next")
        && !next.is_none()
    {
        at = next;
    }
    let line: u32 = at.getattr("tb_lineno").ok()?.extract().ok()?;
    let code = at.getattr("tb_frame").ok()?.getattr("f_code").ok()?;
    let file = code
        .getattr("co_filename")
        .ok()?
        .cast_into::<PyString>()
        .ok()?;
    Some(format!("{file}:{line}"))
}

//! The core's errors as the exceptions of `shoal._errors`, in one place.

use pyo3::{PyErr, Python, import_exception};
use shoal_core::Error;

/// The classes, and `prepare`, which looks each of them up: later, deep in a recursion, that could fail.
macro_rules! classes {
    ($($name:ident),* $(,)?) => {
        $(import_exception!(shoal._errors, $name);)*

        pub(crate) fn prepare(py: Python<'_>) {
            $(drop(py.get_type::<$name>());)*
        }
    };
}

classes!(
    Cancelled,
    CountError,
    EngineClosed,
    ForkedEngine,
    InstanceError,
    JoinError,
    KernelError,
    LimitError,
    PanicError,
    SealedError,
    SetCancelled,
    SetFailed,
    SetTimedOut,
    ShoalError,
);

pub(crate) fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Count(_) => CountError::new_err(text),
        Error::Join(_) => JoinError::new_err(text),
        Error::Limit { .. } => LimitError::new_err(text),
        Error::Sealed => SealedError::new_err(text),
        Error::EngineClosed => EngineClosed::new_err(text),
        Error::ForkedEngine => ForkedEngine::new_err(text),
        _ => ShoalError::new_err(text),
    }
}

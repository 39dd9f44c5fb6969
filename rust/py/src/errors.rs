//! The core's errors as the exceptions of `shoal._errors`, in one place.

use pyo3::{PyErr, import_exception};
use shoal_core::Error;

import_exception!(shoal._errors, Cancelled);
import_exception!(shoal._errors, CountError);
import_exception!(shoal._errors, EngineClosed);
import_exception!(shoal._errors, ForkedEngine);
import_exception!(shoal._errors, InstanceError);
import_exception!(shoal._errors, JoinError);
import_exception!(shoal._errors, KernelError);
import_exception!(shoal._errors, LimitError);
import_exception!(shoal._errors, PanicError);
import_exception!(shoal._errors, SealedError);
import_exception!(shoal._errors, SetCancelled);
import_exception!(shoal._errors, SetFailed);
import_exception!(shoal._errors, SetTimedOut);
import_exception!(shoal._errors, ShoalError);

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

//! Joins and failure policies as Python says them.

use std::ops::RangeInclusive;

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyInt, PyString},
};
use shoal_core::{Join as Core, Need, OnFailure, Policy, Rest, Weights};

use crate::errors::{self, JoinError};

/// An int that is no bool, 0 or more, below 2**64; else what is wrong with it.
pub(crate) fn whole_number(value: &Bound<'_, PyAny>, what: &str) -> Result<u64, String> {
    let shown = || brief(value);
    if value.is_instance_of::<PyBool>() || !is_integer(value) {
        let kind = value
            .get_type()
            .name()
            .map_or_else(|_| "object".into(), |name| name.to_string());
        return Err(format!("{what} is an int, not {} ({kind})", shown()));
    }
    value
        .extract::<u64>()
        .map_err(|_| format!("{what}={} is outside 0 to 2**64 - 1", shown()))
}

/// As `whole_number`, with bounds: a `TypeError` for what is no int, a `ValueError` for one that is outside.
pub(crate) fn bounded(
    value: &Bound<'_, PyAny>,
    what: &str,
    bounds: RangeInclusive<u64>,
) -> PyResult<u64> {
    match whole_number(value, what) {
        Ok(n) if bounds.contains(&n) => Ok(n),
        Err(text) if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() => {
            Err(PyTypeError::new_err(text))
        }
        _ => {
            let most = match *bounds.end() {
                u64::MAX => "2**64 - 1".into(),
                most => most.to_string(),
            };
            Err(PyValueError::new_err(format!(
                "{what}={} is outside {} to {most}",
                brief(value),
                bounds.start()
            )))
        }
    }
}

/// An int that may be left out.
pub(crate) struct Number<'py>(pub(crate) Option<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Number<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(Some(object.to_owned())))
    }
}

impl Number<'_> {
    /// What was given, or that.
    pub(crate) fn or(
        &self,
        left_out: u64,
        what: &str,
        bounds: RangeInclusive<u64>,
    ) -> PyResult<u64> {
        let given = self.0.as_ref();
        given.map_or(Ok(left_out), |given| bounded(given, what, bounds))
    }
}

/// A name or an id, which other programs must be able to read.
pub(crate) fn named<'a>(name: &'a Bound<'_, PyString>, what: &str) -> PyResult<&'a str> {
    match name.to_str() {
        Ok("") => Err(PyValueError::new_err(format!(
            "{what} is empty; leave it out, or give at least one character"
        ))),
        Ok(name) => Ok(name),
        Err(_) => Err(PyValueError::new_err(format!(
            "{what}={} has a lone surrogate, which no text outside of Python can have",
            brief(name.as_any())
        ))),
    }
}

/// Its repr, or the beginning of that.
fn brief(value: &Bound<'_, PyAny>) -> String {
    const LONGEST: usize = 60;
    let Ok(text) = value.repr() else {
        return "that".into();
    };
    let text = text.to_string_lossy();
    match text.char_indices().nth(LONGEST) {
        None => text.into_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// Python's int, and what says by `__index__` that it is one, such as numpy's.
fn is_integer(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyInt>() || value.hasattr("__index__").unwrap_or(false)
}

/// `fraction=`.
fn share(fraction: &Bound<'_, PyAny>) -> PyResult<f64> {
    if fraction.is_instance_of::<PyBool>() {
        return Err(JoinError::new_err(format!(
            "fraction is a number between 0 and 1, not {fraction} (bool)"
        )));
    }
    fraction.extract()
}

/// When a gate fires: `all_of`, `at_least`, `any_of`, `weighted` and `detached` make one.
#[pyclass(frozen, eq, module = "shoal")]
#[derive(Clone, PartialEq)]
pub(crate) struct Join {
    join: Core,
    text: String,
}

#[pymethods]
impl Join {
    fn __repr__(&self) -> &str {
        &self.text
    }
}

impl Join {
    fn new(join: Core, text: String) -> PyResult<Self> {
        let policy = Policy::new(join);
        // What is wrong whatever the set: an open one of no instances bears every number that makes sense.
        policy.check(0, true).map_err(errors::raised)?;
        Ok(Self {
            join: policy.join,
            text,
        })
    }
}

/// Fires when the set is sealed and every instance terminal.
#[pyfunction]
pub(crate) fn all_of() -> PyResult<Join> {
    Join::new(Core::AllOf, "all_of()".into())
}

/// Fires when one completed.
#[pyfunction]
pub(crate) fn any_of() -> PyResult<Join> {
    let need = Need::Count(1);
    Join::new(
        Core::AtLeast {
            need,
            or_all: false,
        },
        "any_of()".into(),
    )
}

/// Fires when `n`, or a share of the final count, completed; with `or_all` also when all are terminal.
///
/// >>> import shoal
/// >>> shoal.at_least(3), shoal.at_least(fraction=0.8)
/// (at_least(3), at_least(fraction=0.8))
#[pyfunction]
#[pyo3(signature = (n=None, *, fraction=None, or_all=false))]
pub(crate) fn at_least(
    n: Option<&Bound<'_, PyAny>>,
    fraction: Option<&Bound<'_, PyAny>>,
    or_all: bool,
) -> PyResult<Join> {
    let (need, text) = match (n, fraction) {
        (Some(n), None) => {
            let shown = n.repr()?.to_string();
            if n.is_instance_of::<PyInt>() && !n.is_instance_of::<PyBool>() && n.lt(1)? {
                return Err(JoinError::new_err(format!(
                    "at_least({shown}) would fire before anything ran; n is 1 or more"
                )));
            }
            let n = whole_number(n, "n").map_err(JoinError::new_err)?;
            let n = u32::try_from(n).map_err(|_| {
                JoinError::new_err(format!("at_least({n}) is more than any set can hold"))
            })?;
            (Need::Count(n), shown)
        }
        (None, Some(fraction)) => {
            let fraction = share(fraction)?;
            (Need::Fraction(fraction), format!("fraction={fraction}"))
        }
        _ => {
            return Err(PyTypeError::new_err(
                "at_least() takes n or fraction=, one of them",
            ));
        }
    };
    let or_all_text = if or_all { ", or_all=True" } else { "" };
    Join::new(
        Core::AtLeast { need, or_all },
        format!("at_least({text}{or_all_text})"),
    )
}

/// Fires when the weights of the completed reach `at_least`.
#[pyfunction]
#[pyo3(signature = (weights, *, at_least))]
pub(crate) fn weighted(weights: &Bound<'_, PyAny>, at_least: &Bound<'_, PyAny>) -> PyResult<Join> {
    let integer = |value: &Bound<'_, PyAny>, what: &str| -> PyResult<u64> {
        if is_integer(value) && !value.is_instance_of::<PyBool>() && value.lt(0)? {
            return Err(JoinError::new_err(format!(
                "{what} {value} is negative; weights are integers of 0 or more"
            )));
        }
        whole_number(value, what).map_err(JoinError::new_err)
    };
    let each = weights
        .try_iter()?
        .map(|weight| integer(&weight?, "weight"))
        .collect::<PyResult<Vec<_>>>()?;
    let text = format!("weighted(<{} weights>, at_least={at_least})", each.len());
    let weights = Weights::new(each, integer(at_least, "at_least")?).map_err(errors::raised)?;
    Join::new(Core::Weighted(weights), text)
}

/// No gate: `spawn` returns when creation ends, and nobody waits for the rest.
#[pyfunction]
pub(crate) fn detached() -> PyResult<Join> {
    Join::new(Core::Detached, "detached()".into())
}

/// How much may fail: made by `tolerate`.
#[pyclass(frozen, eq, module = "shoal")]
#[derive(Clone, PartialEq)]
pub(crate) struct Tolerance {
    on_failure: OnFailure,
    text: String,
}

#[pymethods]
impl Tolerance {
    fn __repr__(&self) -> &str {
        &self.text
    }
}

/// `on_failure=tolerate(n)` fails the gate at failure n + 1; `tolerate(fraction=f, after=m)` when, with at least m completed or failed, more
/// than that share failed.
#[pyfunction]
#[pyo3(signature = (n=None, *, fraction=None, after=None))]
pub(crate) fn tolerate(
    n: Option<&Bound<'_, PyAny>>,
    fraction: Option<&Bound<'_, PyAny>>,
    after: Option<&Bound<'_, PyAny>>,
) -> PyResult<Tolerance> {
    let small = |value: &Bound<'_, PyAny>, what: &str| -> PyResult<u32> {
        let n = whole_number(value, what).map_err(JoinError::new_err)?;
        Ok(u32::try_from(n).unwrap_or(u32::MAX))
    };
    match (n, fraction) {
        (Some(n), None) if after.is_none() => {
            let n = small(n, "n")?;
            Ok(Tolerance {
                on_failure: OnFailure::Tolerate(n),
                text: format!("tolerate({n})"),
            })
        }
        (None, Some(fraction)) => {
            let fraction = share(fraction)?;
            let after = after.map_or(Ok(1), |after| small(after, "after"))?;
            if !(0.0..=1.0).contains(&fraction) {
                return Err(JoinError::new_err(format!(
                    "tolerate(fraction={fraction}) is outside [0, 1]"
                )));
            }
            Ok(Tolerance {
                on_failure: OnFailure::TolerateFraction { fraction, after },
                text: format!("tolerate(fraction={fraction}, after={after})"),
            })
        }
        _ => Err(PyTypeError::new_err(
            "tolerate() takes n, or fraction= with after=, one of them",
        )),
    }
}

/// `join=`, `rest=` and `on_failure=` together.
pub(crate) fn policy(
    join: Option<&Bound<'_, PyAny>>,
    rest: Option<&Bound<'_, PyAny>>,
    on_failure: Option<&Bound<'_, PyAny>>,
) -> PyResult<Policy> {
    let mut policy = match join {
        None => Policy::default(),
        Some(join) => match join.cast::<Join>() {
            Ok(join) => Policy::new(join.get().join.clone()),
            Err(_) => {
                return Err(refuse(
                    join,
                    "join",
                    "all_of(), at_least(n), any_of(), weighted(...) or detached()",
                ));
            }
        },
    };
    if let Some(rest) = rest {
        policy.rest = match text(rest).as_deref() {
            Some("cancel") => Rest::Cancel,
            Some("continue") => Rest::Continue,
            _ => return Err(refuse(rest, "rest", "\"cancel\" or \"continue\"")),
        };
    }
    if let Some(on_failure) = on_failure {
        policy.on_failure = match (text(on_failure).as_deref(), on_failure.cast::<Tolerance>()) {
            (Some("fail_fast"), _) => OnFailure::FailFast,
            (Some("fail_late"), _) => OnFailure::FailLate,
            (Some("continue"), _) => OnFailure::Continue,
            (_, Ok(tolerance)) => tolerance.get().on_failure,
            _ => {
                return Err(refuse(
                    on_failure,
                    "on_failure",
                    "\"fail_fast\", \"fail_late\", \"continue\" or tolerate(...)",
                ));
            }
        };
    }
    Ok(policy)
}

/// The text of a str.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> Option<String> {
    value.cast::<PyString>().ok().map(|text| text.to_string())
}

/// A `TypeError` or `ValueError` that says what an option takes.
pub(crate) fn refuse(value: &Bound<'_, PyAny>, option: &str, takes: &str) -> PyErr {
    let shown = value
        .repr()
        .map_or_else(|_| "that".into(), |text| text.to_string());
    let message = format!("{option} takes {takes}, not {shown}");
    if value.is_instance_of::<PyString>() {
        PyValueError::new_err(message)
    } else {
        PyTypeError::new_err(message)
    }
}

/// A policy as `(join, rest, on_failure)`, in words.
pub(crate) fn shown(policy: &Policy) -> (String, &'static str, String) {
    let join = match &policy.join {
        Core::AllOf => "all_of()".into(),
        Core::AtLeast { need, or_all } => {
            let need = match need {
                Need::Count(n) => n.to_string(),
                Need::Fraction(fraction) => format!("fraction={fraction}"),
            };
            let or_all = if *or_all { ", or_all=True" } else { "" };
            format!("at_least({need}{or_all})")
        }
        Core::Weighted(weights) => format!("weighted(<{} weights>)", weights.len()),
        _ => "detached()".into(),
    };
    let rest = match policy.rest {
        Rest::Cancel => "cancel",
        Rest::Continue => "continue",
    };
    let on_failure = match policy.on_failure {
        OnFailure::FailFast => "fail_fast".into(),
        OnFailure::FailLate => "fail_late".into(),
        OnFailure::Continue => "continue".into(),
        OnFailure::Tolerate(n) => format!("tolerate({n})"),
        OnFailure::TolerateFraction { fraction, after } => {
            format!("tolerate(fraction={fraction}, after={after})")
        }
    };
    (join, rest, on_failure)
}

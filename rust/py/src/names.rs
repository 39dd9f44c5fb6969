//! The Python objects that the binding hands out again and again: states, counts and the like, looked up once.

use pyo3::{prelude::*, sync::PyOnceLock};
use shoal_core::{CaseState, Counts, Decision, InstanceState};

type Members = PyOnceLock<Vec<Py<PyAny>>>;

fn member(
    py: Python<'_>,
    members: &'static Members,
    class: &str,
    names: &[&str],
    at: usize,
) -> PyResult<Py<PyAny>> {
    let members = members.get_or_try_init(py, || {
        let class = py.import("shoal._states")?.getattr(class)?;
        names
            .iter()
            .map(|name| Ok(class.call1((*name,))?.unbind()))
            .collect::<PyResult<Vec<_>>>()
    })?;
    Ok(members[at].clone_ref(py))
}

pub(crate) fn instance_state(py: Python<'_>, state: InstanceState) -> PyResult<Py<PyAny>> {
    static MEMBERS: Members = PyOnceLock::new();
    let names = InstanceState::ALL.map(InstanceState::name);
    member(py, &MEMBERS, "InstanceState", &names, state as usize)
}

const GATE: [&str; 5] = ["waiting", "fired", "failed", "cancelled", "timed_out"];

pub(crate) fn gate_state(py: Python<'_>, decision: Option<Decision>) -> PyResult<Py<PyAny>> {
    static MEMBERS: Members = PyOnceLock::new();
    member(
        py,
        &MEMBERS,
        "GateState",
        &GATE,
        decision.map_or(0, |decision| decision as usize),
    )
}

pub(crate) fn set_state(
    py: Python<'_>,
    open: bool,
    decision: Option<Decision>,
) -> PyResult<Py<PyAny>> {
    static MEMBERS: Members = PyOnceLock::new();
    let names = [
        "active",
        "running",
        "fired",
        "failed",
        "cancelled",
        "timed_out",
    ];
    let at = match decision {
        Some(decision) => decision as usize + 1,
        None => usize::from(!open),
    };
    member(py, &MEMBERS, "SetState", &names, at)
}

pub(crate) fn case_state(py: Python<'_>, state: CaseState) -> PyResult<Py<PyAny>> {
    static MEMBERS: Members = PyOnceLock::new();
    let names = ["active", "completed", "cancelled"];
    member(py, &MEMBERS, "CaseState", &names, state as usize)
}

/// Something of one of the package's own Python modules.
pub(crate) fn imported<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    cell.get_or_try_init(py, || Ok(py.import(module)?.getattr(name)?.unbind()))
        .map(|object| object.bind(py))
}

pub(crate) fn counts(py: Python<'_>, counts: Counts) -> PyResult<Py<PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Counts {
        pending,
        running,
        completed,
        failed,
        cancelled,
        timed_out,
    } = counts;
    Ok(imported(py, &CLASS, "shoal._states", "Counts")?
        .call1((pending, running, completed, failed, cancelled, timed_out))?
        .unbind())
}

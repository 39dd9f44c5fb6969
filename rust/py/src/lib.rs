//! The binding: Python's view of shoal-core, built by maturin as `shoal._native`.

mod bench;
mod body;
mod case;
mod current;
mod engine;
mod errors;
mod failures;
mod function;
mod gate;
mod instances;
mod items;
mod kernel;
mod names;
mod policy;
mod python;
mod spawn;
mod wait;

use pyo3::prelude::*;

/// The compiled part of Shoal. Everything public is re-exported by `shoal`.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::{
        bench::{_bench, _panic_kernel, _ticks},
        case::{Case, Cases},
        current::{Current, current},
        engine::{_close_all, Engine, Event, Ticks, default_engine},
        gate::Gate,
        instances::{InstanceSet, Outcomes},
        kernel::{Kernel, noop, spin},
        policy::{Join, Tolerance, all_of, any_of, at_least, detached, tolerate, weighted},
        spawn::{map, spawn},
    };
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::python::refuse_subinterpreter()?;
        crate::errors::prepare(module.py());
        crate::python::prepare();
        crate::engine::watch_forks();
        Ok(())
    }
}

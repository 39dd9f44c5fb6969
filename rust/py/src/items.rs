//! What the instances of a set are given: indices, a list, a tuple, a range, an array, or what was added to an open set.

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyOverflowError, PyTypeError},
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyIterator, PyList, PyRange, PyRangeMethods, PySequence, PySlice, PyTuple},
};
use shoal_core::Column;

use crate::{
    names::imported,
    python::{Slot, call_two, list_of, tuple_item},
};

/// The items a set was made with.
pub(crate) enum Items {
    /// Each gets its index.
    Index,
    /// A tuple, which cannot change: the caller's, the copy of a list, or what was drawn by iterating.
    Tuple(Py<PyTuple>),
    /// Computed.
    Range { start: i64, step: i64 },
    /// Shared: what the caller changes in it is seen.
    Shared(Py<PyAny>),
}

/// What `items=` turned out to be.
pub(crate) enum Given {
    /// So many, all there.
    Sized(Items, u64),
    /// One after the other, nobody knows how many.
    Iterator(Py<PyIterator>),
}

impl Items {
    /// Takes `items=`; its length is asked for once.
    pub(crate) fn of(items: &Bound<'_, PyAny>) -> PyResult<Given> {
        if let Ok(list) = items.cast_exact::<PyList>() {
            // One copy at the speed of memory, whose elements then need no references of their own.
            let copy = list.to_tuple();
            let count = copy.len() as u64;
            return Ok(Given::Sized(Self::Tuple(copy.unbind()), count));
        }
        if let Ok(tuple) = items.cast_exact::<PyTuple>() {
            let count = tuple.len() as u64;
            return Ok(Given::Sized(Self::Tuple(tuple.clone().unbind()), count));
        }
        if let Ok(range) = items.cast_exact::<PyRange>()
            && let (Ok(start), Ok(step)) = (range.start(), range.step())
        {
            let (start, step, count) = (start as i64, step as i64, length(items)?);
            let last = i128::from(start) + i128::from(step) * i128::from(count.saturating_sub(1));
            // One that goes further is asked for its items.
            if i64::try_from(last).is_ok() {
                return Ok(Given::Sized(Self::Range { start, step }, count));
            }
        }
        if is_indexed(items) {
            let count = length(items)?;
            return Ok(Given::Sized(Self::Shared(items.clone().unbind()), count));
        }
        let iterator = iterator_of(items)?;
        if items
            .get_type()
            .hasattr(pyo3::intern!(items.py(), "__len__"))?
        {
            return Self::drawn(&iterator).map(|(items, count)| Given::Sized(items, count));
        }
        Ok(Given::Iterator(iterator.unbind()))
    }

    /// No items.
    pub(crate) fn none(py: Python<'_>) -> Self {
        Self::Tuple(PyTuple::empty(py).unbind())
    }

    /// All that an iterator yields.
    pub(crate) fn drawn(iterator: &Bound<'_, PyIterator>) -> PyResult<(Self, u64)> {
        // Not collected, for that would ask for a length.
        let mut each = Vec::new();
        for item in iterator.clone() {
            each.push(item?);
        }
        let count = each.len() as u64;
        let each = PyTuple::new(iterator.py(), each)?;
        Ok((Self::Tuple(each.unbind()), count))
    }

    /// The item of an index that the set was made with.
    fn get<'py>(&self, py: Python<'py>, index: u32) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Index => Ok(index.into_pyobject(py)?.into_any()),
            Self::Tuple(tuple) => tuple.bind(py).get_item(index as usize),
            Self::Range { start, step } => Ok((start + step * i64::from(index))
                .into_pyobject(py)?
                .into_any()),
            Self::Shared(shared) => element(shared.bind(py), index.into_pyobject(py)?.as_any()),
        }
    }

    fn slice<'py>(
        &self,
        py: Python<'py>,
        start: u32,
        stop: u32,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Self::Shared(shared) if is_array(shared.bind(py)) => {
                let slice = PySlice::new(py, start as isize, stop as isize, 1);
                element(shared.bind(py), slice.as_any()).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// What `items[key]` gives, by a call that the interpreter may end the thread in.
fn element<'py>(items: &Bound<'py, PyAny>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    call_two(
        imported(items.py(), &GET, "operator", "getitem")?,
        items,
        key,
    )
}

/// How many there are; more than any length can say is more than any limit allows.
fn length(items: &Bound<'_, PyAny>) -> PyResult<u64> {
    match items.len() {
        Err(error) if error.is_instance_of::<PyOverflowError>(items.py()) => Ok(u64::MAX),
        count => count.map(|count| count as u64),
    }
}

/// Whether `items[0]`, `items[1]`, ... are what iterating would give: so it is for arrays, and for what says that it is a sequence. A list's
/// or tuple's subclass may iterate as it likes, and elsewhere a key need not be a position: those are iterated over, as `map` does.
fn is_indexed(items: &Bound<'_, PyAny>) -> bool {
    let is_list = items.is_instance_of::<PyList>() || items.is_instance_of::<PyTuple>();
    !is_list && (is_array(items) || items.cast::<PySequence>().is_ok())
}

/// `iter(items)`. What that raises is the caller's own; only what knows no iterating at all gets our words.
fn iterator_of<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let error = match items.try_iter() {
        Ok(iterator) => return Ok(iterator),
        Err(error) => error,
    };
    let kind = items.get_type();
    if kind.hasattr("__iter__")? || kind.hasattr("__getitem__")? {
        return Err(error);
    }
    if kind.hasattr("__aiter__")? {
        return Err(PyTypeError::new_err(
            "items is an async iterator, which on=\"workers\" cannot read; collect it into a list first",
        ));
    }
    let kind = kind.name()?.to_string();
    Err(PyTypeError::new_err(format!(
        "items is {kind}, which cannot be iterated over; pass a list, a range, an array or an iterator, or count=n for indices"
    )))
}

/// Arrays export their memory: numpy's, array.array, memoryview.
#[expect(unsafe_code, reason = "the check has no safe wrapper")]
fn is_array(items: &Bound<'_, PyAny>) -> bool {
    // SAFETY: any object may be asked.
    unsafe { ffi::PyObject_CheckBuffer(items.as_ptr()) == 1 }
}

/// The items of a set, with those that were added.
pub(crate) struct Inputs {
    first: Items,
    first_count: u32,
    added: Option<Column<Slot>>,
}

impl Inputs {
    pub(crate) fn new(first: Items, first_count: u32, open: bool) -> Self {
        Self {
            first,
            first_count,
            added: open.then(Column::growing),
        }
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.first {
            Items::Tuple(tuple) => visit.call(tuple)?,
            Items::Shared(shared) => visit.call(shared)?,
            Items::Index | Items::Range { .. } => {}
        }
        match &self.added {
            Some(added) => added.iter().try_for_each(|slot| slot.visit(visit)),
            None => Ok(()),
        }
    }

    /// Gives up what was added.
    pub(crate) fn clear(&self, py: Python<'_>) {
        let added = self.added.iter().flat_map(Column::iter);
        added.for_each(|slot| drop(slot.take(py)));
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>, index: u32) -> PyResult<Bound<'py, PyAny>> {
        match &self.added {
            Some(added) if index >= self.first_count => Ok(added
                .get((index - self.first_count) as usize)
                .get(py)
                .map_or_else(|| py.None().into_bound(py), |item| item.into_bound(py))),
            _ => self.first.get(py, index),
        }
    }

    /// As `get`, for the time of a call: what a tuple holds needs no reference of its own.
    #[inline]
    pub(crate) fn with<'py, R>(
        &self,
        py: Python<'py>,
        index: u32,
        call: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<R>,
    ) -> PyResult<R> {
        match &self.first {
            Items::Tuple(tuple) if index < self.first_count => {
                call(&tuple_item(tuple.bind(py), index as usize))
            }
            _ => call(&self.get(py, index)?),
        }
    }

    /// A stretch of items, as batch bodies get them: a slice of an array, else a list.
    pub(crate) fn batch<'py>(
        &self,
        py: Python<'py>,
        start: u32,
        stop: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stop <= self.first_count
            && let Some(slice) = self.first.slice(py, start, stop)?
        {
            return Ok(slice);
        }
        let items = (start..stop)
            .map(|index| self.get(py, index).map(Bound::unbind))
            .collect::<PyResult<Vec<_>>>()?;
        let mut items = items.into_iter();
        let count = (stop - start) as usize;
        Ok(list_of(py, count, |_| items.next().unwrap_or_else(|| py.None()))?.into_any())
    }

    /// Puts added items where the bodies will look, from that index on.
    pub(crate) fn place(
        &self,
        py: Python<'_>,
        start: u32,
        items: impl ExactSizeIterator<Item = Py<PyAny>>,
    ) {
        if let Some(added) = &self.added {
            let first = (start - self.first_count) as usize;
            added.reserve(first + items.len());
            for (k, item) in items.enumerate() {
                added.get(first + k).put(py, item);
            }
        }
    }
}

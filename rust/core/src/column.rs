//! Something for each instance: one flat allocation where the count is final, doubling segments where a set may grow.
//! References stay valid while it grows, and readers never lock.

use std::sync::OnceLock;

use crate::state::InstanceState;
use crate::sync::{AtomicU8, AtomicU64, Ordering};

/// The first segment's length; segment `k` holds `FIRST << k`.
const FIRST: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
const SEGMENTS: usize = 32;
/// Bytes that are sooner written than asked for as zeroes.
#[cfg(not(any(loom, shuttle)))]
const SMALL: usize = 1024;

/// One `T` for each index.
pub struct Column<T> {
    kind: Kind<T>,
}

enum Kind<T> {
    Flat(Box<[T]>),
    Growing(Box<Segments<T>>),
}

struct Segments<T> {
    made: [OnceLock<Box<[T]>>; SEGMENTS],
    make: fn(usize) -> Box<[T]>,
}

impl<T> Segments<T> {
    fn new(make: fn(usize) -> Box<[T]>) -> Box<Self> {
        Box::new(Self {
            made: [const { OnceLock::new() }; SEGMENTS],
            make,
        })
    }
}

impl<T: Default> Column<T> {
    /// A column of defaults that never grows.
    #[must_use]
    pub fn flat(count: usize) -> Self {
        Self::from_flat((0..count).map(|_| T::default()).collect())
    }

    /// A column of zeroes that never grows: a large one is the system's fresh pages, not touched until they are written.
    #[must_use]
    #[cfg(not(any(loom, shuttle)))]
    pub fn zeroed(count: usize) -> Self
    where
        T: bytemuck::Zeroable,
    {
        // Asking the allocator for zeroes passes by its cache of small blocks.
        if count * size_of::<T>() <= SMALL {
            return Self::flat(count);
        }
        Self::from_flat(bytemuck::zeroed_slice_box(count))
    }

    /// A column that exists already.
    #[must_use]
    pub fn from_flat(flat: Box<[T]>) -> Self {
        Self {
            kind: Kind::Flat(flat),
        }
    }

    /// An empty column that grows by [`Column::reserve`].
    #[must_use]
    pub fn growing() -> Self {
        Self {
            kind: Kind::Growing(Segments::new(|count| {
                (0..count).map(|_| T::default()).collect()
            })),
        }
    }

    /// As [`Column::growing`], of zeroes: a new segment is not touched until it is written, so whoever makes one keeps nobody waiting.
    #[must_use]
    #[cfg(not(any(loom, shuttle)))]
    pub fn growing_zeroed() -> Self
    where
        T: bytemuck::Zeroable,
    {
        Self {
            kind: Kind::Growing(Segments::new(bytemuck::zeroed_slice_box)),
        }
    }

    /// Makes indices below `count` exist. Before they are published.
    pub fn reserve(&self, count: usize) {
        if let Kind::Growing(segments) = &self.kind
            && count > 0
        {
            let last = place(count - 1).0;
            // They are made in order: where the last is, all are.
            if segments.made[last].get().is_none() {
                for (k, segment) in segments.made.iter().enumerate().take(last + 1) {
                    segment.get_or_init(|| (segments.make)(FIRST << k));
                }
            }
        }
    }

    /// The element of an index, if it exists.
    #[must_use]
    pub fn find(&self, index: usize) -> Option<&T> {
        match &self.kind {
            Kind::Flat(flat) => flat.get(index),
            Kind::Growing(segments) => {
                let (segment, offset) = place(index);
                segments.made.get(segment)?.get().map(|flat| &flat[offset])
            }
        }
    }

    /// The element of an index that exists.
    ///
    /// # Panics
    /// Where it does not.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> &T {
        &self.from(index)[0]
    }

    /// All that exist, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (flat, segments) = match &self.kind {
            Kind::Flat(flat) => (Some(flat), None),
            Kind::Growing(segments) => (None, Some(segments)),
        };
        let segments = segments
            .into_iter()
            .flat_map(|segments| segments.made.iter().map_while(OnceLock::get));
        flat.into_iter().chain(segments).flatten()
    }

    /// What lies together in memory from an index on that exists.
    #[inline]
    fn from(&self, index: usize) -> &[T] {
        match &self.kind {
            Kind::Flat(flat) => &flat[index..],
            Kind::Growing(segments) => {
                let (segment, offset) = place(index);
                let made = segments.made[segment].get();
                &made.expect("reserved before published")[offset..]
            }
        }
    }
}

/// Which segment an index is in, and where.
fn place(index: usize) -> (usize, usize) {
    let block = index / FIRST + 1;
    let segment = block.ilog2() as usize;
    (segment, index - FIRST * ((1 << segment) - 1))
}

/// The states of a set. What was settled as a range is kept as a range: a block of instances that one settling brought to one state is one
/// byte. All others have a byte each, eight to a word.
pub(crate) struct States {
    /// The state of all of a block; 0 says that its instances have bytes. Like the bytes made by whoever needs them first: until then all are
    /// pending, and making a set touches no memory for its instances.
    blocks: OnceLock<Column<AtomicU8>>,
    words: OnceLock<Column<AtomicU64>>,
    /// How many there are where that is final.
    count: Option<u32>,
}

/// Instances in a block.
pub(crate) const BLOCK: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 512 };
/// A range that is shorter has bytes: looking for blocks would cost more than it saves.
pub(crate) const WORTH_BLOCKS: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 1024 };

const LANES: u32 = 8;
const EVERY_LANE: u64 = 0x0101_0101_0101_0101;

impl States {
    /// For a count that is final.
    pub(crate) fn flat(count: u32) -> Self {
        Self::new(Some(count))
    }

    /// For a set that may grow.
    pub(crate) fn growing() -> Self {
        Self::new(None)
    }

    fn new(count: Option<u32>) -> Self {
        let states = Self {
            blocks: OnceLock::new(),
            words: OnceLock::new(),
            count,
        };
        // A model checker does not see what a standard `OnceLock` orders. A set that grows has to have somewhere to grow.
        if count.is_none() || cfg!(any(loom, shuttle)) {
            states.blocks();
            states.words();
        }
        states
    }

    fn blocks(&self) -> &Column<AtomicU8> {
        let made = || zeroes(self.count.map(|count| count.div_ceil(BLOCK)));
        self.blocks.get_or_init(made)
    }

    fn words(&self) -> &Column<AtomicU64> {
        let made = || zeroes(self.count.map(|count| count.div_ceil(LANES)));
        self.words.get_or_init(made)
    }

    /// Makes indices below `count` exist, where it may grow.
    pub(crate) fn reserve(&self, count: u32) {
        self.blocks().reserve(count.div_ceil(BLOCK) as usize);
        self.words().reserve(count.div_ceil(LANES) as usize);
    }

    /// The stored state. Acquire pairs with `fill`: a terminal state shows the value written before it.
    pub(crate) fn get(&self, index: u32) -> InstanceState {
        let block = self.blocks.get();
        let block = block.and_then(|blocks| blocks.find((index / BLOCK) as usize));
        let state = block.map_or(0, |state| state.load(Ordering::Acquire));
        if state != 0 {
            return InstanceState::from_byte(state);
        }
        let Some(words) = self.words.get() else {
            return InstanceState::Pending;
        };
        let word = words.get((index / LANES) as usize).load(Ordering::Acquire);
        InstanceState::from_byte((word >> (8 * (index % LANES))) as u8)
    }

    /// Writes one terminal state over a range that its owner has not written before.
    pub(crate) fn fill(&self, start: u32, stop: u32, state: InstanceState) {
        let first = start.div_ceil(BLOCK);
        let end = match self.count {
            // What is missing from the last block will never be.
            Some(count) if count == stop => stop.div_ceil(BLOCK),
            _ => stop / BLOCK,
        };
        if stop - start < WORTH_BLOCKS || first >= end {
            return self.fill_bytes(start, stop, state);
        }
        self.fill_bytes(start, first * BLOCK, state);
        let blocks = self.blocks();
        for block in first..end {
            blocks
                .get(block as usize)
                .store(state as u8, Ordering::Release);
        }
        self.fill_bytes((end * BLOCK).min(stop), stop, state);
    }

    /// Whole words are stored; a word at the edge may be shared with another owner, so its bytes are or-ed in.
    fn fill_bytes(&self, start: u32, stop: u32, state: InstanceState) {
        if start >= stop {
            return;
        }
        let column = self.words();
        let pattern = EVERY_LANE * state as u64;
        let mut index = start;
        while index < stop {
            let words = column.from((index / LANES) as usize);
            let whole = ((stop - index) / LANES) as usize;
            if index.is_multiple_of(LANES) && whole > 0 {
                let words = &words[..whole.min(words.len())];
                for word in words {
                    word.store(pattern, Ordering::Release);
                }
                index += LANES * words.len() as u32;
            } else {
                let lane = index % LANES;
                let lanes = (LANES - lane).min(stop - index);
                let mask = ((1u64 << (8 * lanes)) - 1) << (8 * lane);
                words[0].fetch_or(pattern & mask, Ordering::AcqRel);
                index += lanes;
            }
        }
    }
}

/// So many zeroes, or as many as it will grow to.
#[cfg(not(any(loom, shuttle)))]
fn zeroes<T: Default + bytemuck::Zeroable>(count: Option<u32>) -> Column<T> {
    count.map_or_else(Column::growing_zeroed, |count| {
        Column::zeroed(count as usize)
    })
}

#[cfg(any(loom, shuttle))]
fn zeroes<T: Default>(count: Option<u32>) -> Column<T> {
    count.map_or_else(Column::growing, |count| Column::flat(count as usize))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_each_other_without_a_gap() {
        let column = Column::<AtomicU64>::growing();
        column.reserve(10_000);
        for i in 0..10_000 {
            column.get(i).store(i as u64, Ordering::Relaxed);
        }
        assert!((0..10_000).all(|i| column.get(i).load(Ordering::Relaxed) == i as u64));
    }

    #[test]
    fn a_fill_touches_its_range_and_nothing_else() {
        let ranges = [(0, 0), (0, 1), (3, 5), (7, 9), (0, 64), (5, 61), (63, 64)];
        // Whole blocks, with bytes around them.
        let ranges = ranges.into_iter().chain([(512, 1024), (500, 2_060)]);
        // The last two cross from segment to segment.
        for (start, stop) in ranges.chain([(500, 520), (1, 2_999)]) {
            let growing = States::growing();
            growing.reserve(3_000);
            for states in [States::flat(3_000), growing] {
                states.fill(start, stop, InstanceState::Failed);
                for i in 0..3_000 {
                    let expected = if (start..stop).contains(&i) {
                        InstanceState::Failed
                    } else {
                        InstanceState::Pending
                    };
                    assert_eq!(states.get(i), expected, "{i} of {start}..{stop}");
                }
            }
        }
    }
}

//! The unbalanced tree search benchmark: a binomial tree whose shape is drawn from SHA-1, once by recursion and once as an open set that adds to itself.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use sha1::{Digest, Sha1};
use shoal_core::{Body, Chunk, Column, Cost, Engine, Outcome, Result, Seal, Spec, Task};

/// What a tree is drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    /// Children of the root.
    pub(crate) b0: u32,
    /// The chance of any other node to have children.
    pub(crate) q: f64,
    /// How many it has then.
    pub(crate) m: u32,
    /// What the root's state is made from.
    pub(crate) seed: u32,
}

/// What is known of a whole tree, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Nodes, the root included.
    pub(crate) nodes: u64,
    /// The deepest node; the root's depth is 0.
    pub(crate) depth: u32,
    /// Nodes without children.
    pub(crate) leaves: u64,
}

/// A node: its generator's state and its depth.
#[derive(Clone, Copy)]
struct Node {
    state: [u8; 20],
    depth: u32,
}

impl Tree {
    /// T3 of the benchmark's samples: small branching, deep, and very uneven.
    pub(crate) const T3: Self = Self {
        b0: 2000,
        q: 0.124875,
        m: 8,
        seed: 42,
    };

    /// Its published numbers.
    pub(crate) const T3_SHAPE: Shape = Shape {
        nodes: 4_112_897,
        depth: 1572,
        leaves: 3_599_034,
    };

    fn root(&self) -> Node {
        let mut seed = [0; 20];
        seed[16..].copy_from_slice(&self.seed.to_be_bytes());
        Node {
            state: Sha1::digest(seed).into(),
            depth: 0,
        }
    }

    fn children(&self, node: &Node) -> u32 {
        if node.depth == 0 {
            return self.b0;
        }
        let [.., a, b, c, d] = node.state;
        let drawn = u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff;
        if f64::from(drawn) / f64::from(1u32 << 31) < self.q {
            self.m
        } else {
            0
        }
    }

    /// Walks it in one thread by plain recursion.
    pub(crate) fn walk(&self) -> Shape {
        let mut shape = Shape::default();
        self.visit(&self.root(), &mut shape);
        shape
    }

    fn visit(&self, node: &Node, shape: &mut Shape) {
        let children = self.children(node);
        shape.nodes += 1;
        shape.depth = shape.depth.max(node.depth);
        shape.leaves += u64::from(children == 0);
        (0..children).for_each(|k| self.visit(&node.child(k), shape));
    }

    /// Has an engine walk it: every node is an instance, which adds its children to its own set.
    pub(crate) fn spawn(self, engine: &Engine, cost: Arc<Cost>) -> Result<(Arc<Task>, Arc<Walk>)> {
        let walk = Arc::new(Walk {
            tree: self,
            parents: Column::growing_zeroed(),
            families: AtomicU32::new(0),
            depth: AtomicU32::new(0),
        });
        let spec = Spec {
            seal: Seal::WhenIdle,
            ..Spec::of(1)
        };
        let task = engine.spawn_known(spec, cost, Visit(Arc::clone(&walk)))?;
        Ok((task, walk))
    }
}

impl Node {
    fn child(&self, k: u32) -> Self {
        let mut hash = Sha1::new();
        hash.update(self.state);
        hash.update(k.to_be_bytes());
        Self {
            state: hash.finalize().into(),
            depth: self.depth + 1,
        }
    }

    // Relaxed: items are written before their instances can be claimed, and claiming makes them visible.
    fn put(&self, item: &Item) {
        let mut bytes = [0; 24];
        bytes[..20].copy_from_slice(&self.state);
        bytes[20..].copy_from_slice(&self.depth.to_ne_bytes());
        let (words, _) = bytes.as_chunks::<8>();
        for (word, bytes) in item.iter().zip(words) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    fn get(item: &Item) -> Self {
        let mut bytes = [0; 24];
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (bytes, word) in words.iter_mut().zip(item) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        let [state @ .., a, b, c, d] = bytes;
        Self {
            state,
            depth: u32::from_ne_bytes([a, b, c, d]),
        }
    }
}

/// A node in memory that threads share.
type Item = [AtomicU64; 3];

/// A tree on its way through an engine.
pub(crate) struct Walk {
    tree: Tree,
    /// One item for each family, not for each node: a node's state follows from its parent's and its place among its siblings.
    parents: Column<Item>,
    families: AtomicU32,
    depth: AtomicU32,
}

impl Walk {
    /// What was found, when the set of `task` is finished.
    pub(crate) fn shape(&self, task: &Task) -> Shape {
        let nodes = task.set().counts().completed;
        Shape {
            nodes: u64::from(nodes),
            depth: self.depth.load(Ordering::Relaxed),
            leaves: u64::from(nodes - self.families.load(Ordering::Relaxed)),
        }
    }

    /// The node of an index: the root, then its family, then families of `m`.
    fn node(&self, index: u32) -> Node {
        let Tree { b0, m, .. } = self.tree;
        let Some(index) = index.checked_sub(1) else {
            return self.tree.root();
        };
        let (family, k) = match index.checked_sub(b0) {
            None => (0, index),
            Some(index) => (1 + index / m, index % m),
        };
        Node::get(self.parents.get(family as usize)).child(k)
    }
}

/// The body: one node.
struct Visit(Arc<Walk>);

impl Body for Visit {
    fn run(&self, chunk: &mut Chunk<'_>) {
        let (task, walk) = (chunk.task(), &*self.0);
        chunk.each_native(|index| {
            let node = walk.node(index);
            let children = walk.tree.children(&node);
            if children == 0 {
                return Outcome::Completed;
            }
            let added = task.add(u64::from(children), |_| {
                // Adders take turns here, so that families are numbered in the order of their places.
                let family = walk.families.fetch_add(1, Ordering::Relaxed);
                walk.parents.reserve(family as usize + 1);
                node.put(walk.parents.get(family as usize));
                walk.depth.fetch_max(node.depth + 1, Ordering::Relaxed);
            });
            added.map(drop).into()
        });
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

//! Known answers: unbalanced trees, walked by sets that grow while they run, have the numbers that recursion finds and that were published.
#![cfg(not(any(loom, shuttle)))]

use std::sync::Arc;

use shoal_core::{Cost, Decision, Engine, Options};
use tree::{Shape, Tree};

#[path = "../examples/uts/tree.rs"]
mod tree;

fn walked(tree: Tree, workers: u32) -> Shape {
    let engine = Engine::new(Options {
        workers: Some(workers),
        ..Options::default()
    })
    .unwrap();
    let (task, walk) = tree.spawn(&engine, Arc::new(Cost::new())).unwrap();
    assert_eq!(task.wait(None), Some(Decision::Fired));
    assert!(task.set().is_finished(), "an idle set seals itself");
    walk.shape(&task)
}

#[test]
fn a_set_that_adds_to_itself_finds_what_recursion_finds() {
    for (seed, q) in [(1, 0.0), (2, 0.1), (3, 0.12), (4, 0.124)] {
        let tree = Tree {
            b0: 50,
            q,
            m: 8,
            seed,
        };
        for workers in [1, 2, 5] {
            assert_eq!(
                walked(tree, workers),
                tree.walk(),
                "{tree:?}, {workers} workers"
            );
        }
    }
}

#[test]
fn the_tree_t3_has_its_published_numbers() {
    assert_eq!(walked(Tree::T3, 2), Tree::T3_SHAPE);
}

//! Everything the core can refuse, as one enum. Messages name the value that was wrong, the bound it broke and what to do.

/// What went wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The number of instances is not one that can be created.
    #[error("{0}")]
    Count(String),
    /// The join can never be met, or its numbers make no sense.
    #[error("{0}")]
    Join(String),
    /// A limit of the engine or of the case would be passed.
    #[error(
        "{asked} instances would pass the limit of {limit} for a {what}; raise it with Limits({setting}=...) or make fewer"
    )]
    Limit {
        /// Instances there would be.
        asked: u64,
        /// The limit.
        limit: u64,
        /// `"set"` or `"case"`.
        what: &'static str,
        /// The name of the setting.
        setting: &'static str,
    },
    /// The set takes no more instances.
    #[error(
        "the set is sealed: it takes no more instances; spawn it with seal=\"manual\" and add before seal(), cancel() or the gate's decision"
    )]
    Sealed,
    /// The engine takes no more work.
    #[error("the engine is closed; make a new one, or leave its `with` block later")]
    EngineClosed,
    /// The engine belongs to the parent process.
    #[error(
        "this engine was made before os.fork() and its workers live in the parent; make a new Engine in the child"
    )]
    ForkedEngine,
    /// The case is over.
    #[error("case {0:?} is {1}: it takes no more sets; make a new case")]
    CaseOver(String, &'static str),
    /// There is a case of that id.
    #[error(
        "case {0:?} exists already in this engine; take it from engine.cases, or use another id"
    )]
    CaseInUse(String),
    /// The threads could not be started.
    #[error("the worker threads could not be started: {0}")]
    Threads(String),
}

/// The core's result.
pub type Result<T> = std::result::Result<T, Error>;

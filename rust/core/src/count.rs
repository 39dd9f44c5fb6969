//! How many instances a set starts with: bounds are checked before anything is created.

use crate::{Error, Result, tally::MAX_INSTANCES};

/// The bounds a set puts on its number of instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// At least so many.
    pub minimum: Option<u32>,
    /// At most so many.
    pub maximum: Option<u32>,
}

/// Where and for whom limits hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most instances one set may have.
    pub max_instances: u32,
    /// The most instances all sets of one case may have together.
    pub max_case_instances: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_instances: 10_000_000,
            max_case_instances: 100_000_000,
        }
    }
}

impl Limits {
    /// Refuses a set of more than `max_instances`.
    pub(crate) fn check_set(&self, asked: u64) -> Result<u32> {
        let limit = self.max_instances.min(MAX_INSTANCES);
        match u32::try_from(asked) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(Error::Limit {
                asked,
                limit: u64::from(limit),
                what: "set",
                setting: "max_instances",
            }),
        }
    }

    /// Refuses more than `max_case_instances` for the anonymous case of one set.
    pub(crate) fn check_case(&self, asked: u64) -> Result<()> {
        if asked <= self.max_case_instances {
            return Ok(());
        }
        Err(Error::Limit {
            asked,
            limit: self.max_case_instances,
            what: "case",
            setting: "max_case_instances",
        })
    }
}

impl Count {
    /// Refuses a number outside the bounds, naming the bound and the number.
    ///
    /// # Errors
    /// [`Error::Count`] with both.
    pub fn check(&self, count: u64) -> Result<()> {
        if let Some(minimum) = self.minimum
            && count < u64::from(minimum)
        {
            return Err(Error::Count(format!(
                "{count} instances are fewer than minimum={minimum}"
            )));
        }
        if let Some(maximum) = self.maximum
            && count > u64::from(maximum)
        {
            return Err(Error::Count(format!(
                "{count} instances are more than maximum={maximum}"
            )));
        }
        Ok(())
    }
}

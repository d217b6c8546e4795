//! Why a pipeline cannot run here: every reason at once, each with the user's transform and something to do about it.
//!
//! Problems are the caller's to fix. They never stand for a failure of planning itself.

use std::fmt;

/// How many problems are kept; the rest is counted only.
pub const PROBLEMS_MAX: usize = 100;

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The user's name of the transform, unless the pipeline as a whole is meant.
    pub transform: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

/// All reasons why a pipeline was refused, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// The first [`PROBLEMS_MAX`] of them.
    pub list: Vec<Problem>,
    /// How many more there were.
    pub omitted: usize,
}

impl Problems {
    /// Notes a problem of one transform. A repetition is dropped.
    pub(crate) fn at(&mut self, transform: &str, what: impl Into<String>, hint: impl Into<String>) {
        self.push(Problem { transform: Some(transform.to_owned()), what: what.into(), hint: hint.into() });
    }

    /// Notes a problem of the pipeline as a whole.
    pub(crate) fn of_pipeline(&mut self, what: impl Into<String>, hint: impl Into<String>) {
        self.push(Problem { transform: None, what: what.into(), hint: hint.into() });
    }

    fn push(&mut self, problem: Problem) {
        if self.list.contains(&problem) {
            return;
        }
        if self.list.len() < PROBLEMS_MAX {
            self.list.push(problem);
        } else {
            self.omitted += 1;
        }
    }

    /// Ends planning if there is any problem so far.
    pub(crate) fn check(&mut self) -> Result<(), Problems> {
        if self.list.is_empty() { Ok(()) } else { Err(std::mem::take(self)) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(transform) = &self.transform {
            write!(f, "transform \"{transform}\": ")?;
        }
        write!(f, "{}", self.what)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this pipeline cannot run here:")?;
        for problem in &self.list {
            write!(f, "\n  {problem}")?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

//! Components as a whole: the conformance suite, what is refused, what is limited, and the example.

mod guests;
mod conformance;
mod refusals;
mod running;
mod stages;
mod limits;
mod lies;
mod wordcount;

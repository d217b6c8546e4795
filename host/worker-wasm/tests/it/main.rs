//! Components as a whole: the conformance suite, what is refused, what is limited, and the example.

mod conformance;
mod guests;
mod lies;
mod limits;
mod memory;
mod refusals;
mod running;
mod stages;
mod stateful;
mod wordcount;

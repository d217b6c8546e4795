//! The Fn API host against harnesses that do what each test says, well or badly.

mod fake;
mod stage;

mod bundles;
mod processes;

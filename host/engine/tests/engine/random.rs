//! Random jobs against a naive model.

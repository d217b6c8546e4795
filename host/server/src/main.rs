//! The binary `purlin`.

fn main() {}

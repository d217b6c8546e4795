//! The guest of worker-wasm's tests: DoFns of the conformance suite, and DoFns that do what they must not.

mod behaved;
mod hostile;
mod stateful;

use behaved::*;
use hostile::*;
use stateful::*;

purlin::component!(
    identity, even, repeat, route, poison, Edges, measure, pass_text, at, greet, Prefix, refuse, fail_setup, crash, spin, hog,
    flood, fan_out, recurse, chatter, Liar, forget, slow_setup, Remember, Remind, Keeper, Tally, Greedy
);

//! What every worker must do, as tests that a worker's crate runs.
//!
//! A [`Subject`] offers a worker and DoFns of known behaviour over the `bytes` coder; [`conformance!`](crate::conformance) makes
//! a test of every case. Nothing of state, timers and splitting is here: workers that have them test them on top.

mod behaviour;
mod cases;
mod harness;

pub use behaviour::{Behaviour, EDGE_TIMESTAMP_MS, MAIN_TAG, METRIC_COUNTER, METRIC_DISTRIBUTION, POISON, SIDE_TAG, native};
pub use cases::*;
pub use harness::{Dofn, ENVIRONMENT, Subject};

/// Makes one test of each case. The argument is an expression that makes a [`Subject`].
#[macro_export]
macro_rules! conformance {
    ($subject:expr) => {
        $crate::conformance!(@each $subject;
            identity_keeps_every_column
            filter_drops_rows
            flat_map_multiplies_rows
            tags_reach_their_sinks
            unused_tags_are_dropped
            a_collection_may_have_several_readers
            transforms_follow_each_other
            flatten_unites
            an_empty_bundle_has_an_outcome
            many_batches_keep_their_order
            bundle_edges_may_emit
            metrics_belong_to_their_bundle
            a_big_element_passes
            a_failure_names_its_transform_and_has_no_effect
            an_aborted_bundle_completes_once
            slots_work_side_by_side
            a_closed_worker_opens_nothing
        );
    };
    (@each $subject:expr; $($case:ident)+) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$case(&$subject);
            }
        )+
    };
}

#[cfg(test)]
mod synchronous {
    crate::conformance!(super::native(false));
}

#[cfg(test)]
mod asynchronous {
    crate::conformance!(super::native(true));
}

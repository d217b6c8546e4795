//! What every worker must do, as tests that a worker's crate runs.
//!
//! A [`Subject`] offers a worker and DoFns of known behaviour over the `bytes` coder; [`conformance!`](crate::conformance) makes
//! a test of every case. State and timers have cases of their own, [`conformance_by_key!`](crate::conformance_by_key), and so
//! has user code that wants to hear of commits, [`conformance_of_commits!`](crate::conformance_of_commits): for the workers that
//! have them. Splitting is not here: workers that have it test it on top.

mod behaviour;
mod cases;
mod commits;
mod harness;
mod keyed;

pub use behaviour::{
    Behaviour, EDGE_TIMESTAMP_MS, FAMILY, MAIN_TAG, METRIC_COUNTER, METRIC_DISTRIBUTION, POISON, SIDE_TAG, STATE, native,
};
pub use cases::*;
pub use commits::*;
pub use harness::{Dofn, ENVIRONMENT, Subject};
pub use keyed::*;

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
            a_bundle_that_does_not_ask_is_not_told_of_its_commit
            a_slot_works_on_when_its_worker_is_dropped
            a_closed_worker_opens_and_runs_nothing
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

/// Makes one test of each case of state and timers.
#[macro_export]
macro_rules! conformance_by_key {
    ($subject:expr) => {
        $crate::conformance!(@each $subject;
            state_is_kept_by_key_and_window
            a_bundle_reads_what_it_has_written
            state_is_read_to_its_last_page
            state_that_cannot_be_had_fails_the_bundle
            changes_of_timers_come_out_in_order
            timers_that_are_due_reach_their_dofn_in_order
        );
    };
}

/// Makes one test of each case of user code that wants to hear of commits.
#[macro_export]
macro_rules! conformance_of_commits {
    ($subject:expr) => {
        $crate::conformance!(@each $subject;
            user_code_hears_of_a_commit_once
            user_code_hears_of_what_is_committed_only
            user_code_hears_of_commits_although_its_slot_is_gone
        );
    };
}

#[cfg(test)]
mod synchronous {
    crate::conformance!(super::native(false));
    crate::conformance_of_commits!(super::native(false));
    crate::conformance_by_key!(super::native(false));
}

#[cfg(test)]
mod asynchronous {
    crate::conformance!(super::native(true));
    crate::conformance_of_commits!(super::native(true));
    crate::conformance_by_key!(super::native(true));
}

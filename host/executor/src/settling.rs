//! Once its shards have ended, a job waits for user code to hear of the last commits: whoever hears that the job has ended may
//! take the user code's process away (`beam-model` 6.7).

use std::time::Duration;

use crate::job::Shared;

/// A job that waits looks this often whether it was stopped.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until all is answered or patience is over. Returns who has not answered, by name.
pub(crate) fn settle(shared: &Shared) -> Vec<String> {
    let (clock, options) = (&shared.spec.clock, &shared.spec.options);
    let began_ms = clock.now_ms();
    loop {
        let names: Vec<_> = shared.spec.workers.iter().flat_map(|worker| worker.settle(LOOK_INTERVAL)).collect();
        let patience_ms = if shared.stopping() { options.settle_stopped_ms } else { options.settle_ms };
        if names.is_empty() || clock.now_ms() - began_ms >= patience_ms {
            return names;
        }
    }
}

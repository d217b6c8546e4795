//! Side input readiness: which windows of the main input may be processed.
//!
//! A main window needs a side window; that one is ready once the watermark of the side input has passed its last
//! timestamp, since then its content is final. Later windows never need earlier times, so the ready ones are always a
//! prefix of time: [`Pending`](crate::pending::Pending) relies on it.

use model::{Duration, Timestamp};

use crate::topology::{GateMapping, SideGate};
use crate::watermark::Watermarks;

impl GateMapping {
    /// The time that the side input's watermark must pass before main windows up to `window_end` are ready.
    pub(crate) fn required(self, window_end: Timestamp) -> Timestamp {
        match self {
            GateMapping::Global => Timestamp::GLOBAL_WINDOW_END,
            GateMapping::Fixed { size, offset } => last_timestamp(window_end, size, size, offset),
            GateMapping::Sliding { size, period, offset } => last_timestamp(window_end, size, period, offset),
            GateMapping::Same => window_end,
        }
    }
}

/// The last timestamp of the latest window of `size` that starts at or before `time`. With gaps between windows it may
/// end before `time`; then no later window starts by then, and `time` itself is what must be passed.
fn last_timestamp(time: Timestamp, size: Duration, period: Duration, offset: Duration) -> Timestamp {
    let since_start = time.millis().saturating_sub(offset.0).rem_euclid(period.0.max(1));
    time.minus(Duration(since_start)).plus(size).minus(Duration(1)).max(time)
}

/// Whether a side input is final for main windows up to `window_end`.
pub(crate) fn is_open(gate: &SideGate, watermarks: &Watermarks, window_end: Timestamp) -> bool {
    let watermark = watermarks.everywhere(&gate.producers);
    watermark == Timestamp::MAX || watermark > gate.mapping.required(window_end)
}

/// Whether all side inputs are.
pub(crate) fn all_open(gates: &[SideGate], watermarks: &Watermarks, window_end: Timestamp) -> bool {
    gates.iter().all(|gate| is_open(gate, watermarks, window_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(mapping: GateMapping, millis: i64) -> i64 {
        mapping.required(Timestamp::from_millis(millis)).millis()
    }

    #[test]
    fn a_fixed_window_must_have_passed_altogether() {
        let mapping = GateMapping::Fixed { size: Duration(10), offset: Duration(3) };
        for (time, last) in [(3, 12), (12, 12), (13, 22), (2, 2), (0, 2), (-8, -8), (-7, 2)] {
            assert_eq!(required(mapping, time), last, "at {time}");
        }
    }

    #[test]
    fn of_sliding_windows_the_last_counts() {
        let mapping = GateMapping::Sliding { size: Duration(10), period: Duration(5), offset: Duration(0) };
        for (time, last) in [(0, 9), (4, 9), (5, 14), (9, 14), (-1, 4)] {
            assert_eq!(required(mapping, time), last, "at {time}");
        }
        let gaps = GateMapping::Sliding { size: Duration(3), period: Duration(10), offset: Duration(0) };
        assert_eq!([required(gaps, 1), required(gaps, 7)], [2, 7]);
    }

    #[test]
    fn requirements_grow_with_time_and_stay_within_bounds() {
        let (size, offset) = (Duration(7), Duration(2));
        let sliding = GateMapping::Sliding { size, period: Duration(3), offset };
        for mapping in [GateMapping::Global, GateMapping::Same, GateMapping::Fixed { size, offset }, sliding] {
            let millis = (-40..40).chain([Timestamp::GLOBAL_WINDOW_END.millis(), Timestamp::MAX.millis()]);
            let times: Vec<_> = millis.map(|millis| mapping.required(Timestamp::from_millis(millis))).collect();
            assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{mapping:?}");
        }
    }
}

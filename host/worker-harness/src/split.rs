//! What a bundle gave up: rows cut off its input, and residual roots of splittable DoFns.

use std::ops::Range;

use model::{Batch, BatchBuilder, Timestamp};
use proto::fnapi::{DelayedBundleApplication, ProcessBundleSplitResponse};
use proto::pipeline::is_bounded;
use worker::{Error, PortSpec, Residual};

use crate::rows;

/// How much of a bundle's input it still owns. Splits only ever take away from the end.
#[derive(Debug)]
pub(crate) struct Remainder {
    rows: u64,
    stop: u64,
    residuals: Vec<Residual>,
}

impl Remainder {
    /// All of `rows` rows.
    pub(crate) fn new(rows: u64) -> Self {
        Remainder { rows, stop: rows, residuals: Vec::new() }
    }

    /// Rows that the bundle began with, which is what a split request has to say.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes an answer to a split request. The row between the two indices of a channel split, if there is one, was split
    /// itself: what it left is among the residual roots.
    pub(crate) fn take(&mut self, response: ProcessBundleSplitResponse, source: &PortSpec) -> Result<(), Error> {
        for split in response.channel_splits {
            // Java leaves the id out when there is one source only.
            if !split.transform_id.is_empty() && split.transform_id != source.transform.as_str() {
                return Err(Error::Protocol(format!("split of the unknown source {:?}", split.transform_id)));
            }
            let (last, first) = (split.last_primary_element, split.first_residual_element);
            if first < 0 || last < -1 || last >= first || first - last > 2 {
                return Err(Error::Protocol(format!("impossible channel split: elements to {last} and from {first}")));
            }
            self.stop = self.stop.min(first.unsigned_abs());
        }
        self.take_roots(response.residual_roots, source)
    }

    /// Takes residual roots, of a split or of a bundle that checkpointed itself.
    pub(crate) fn take_roots(&mut self, roots: Vec<DelayedBundleApplication>, source: &PortSpec) -> Result<(), Error> {
        for root in roots {
            self.residuals.push(residual(root, source)?);
        }
        Ok(())
    }

    /// Rows that were not processed, and restrictions to continue.
    pub(crate) fn finish(self) -> (Vec<Range<usize>>, Vec<Residual>) {
        let cut = Some(self.stop as usize..self.rows as usize).filter(|cut| !cut.is_empty());
        (cut.into_iter().collect(), self.residuals)
    }
}

fn residual(root: DelayedBundleApplication, source: &PortSpec) -> Result<Residual, Error> {
    let application = root.application.ok_or_else(|| Error::Protocol("residual root without an application".to_owned()))?;
    let hold = application.output_watermarks.values().map(|at| Timestamp::from_millis(millis(at.seconds, at.nanos))).min();
    let delay = root.requested_time_delay.map_or(0, |delay| millis(delay.seconds, delay.nanos));
    Ok(Residual {
        hold: hold.unwrap_or(Timestamp::MIN),
        delay_ms: delay.max(0),
        unbounded: application.is_bounded == is_bounded::Enum::Unbounded as i32,
        batch: one_row(&application.element, source)?,
    })
}

fn one_row(element: &[u8], source: &PortSpec) -> Result<Batch, Error> {
    let mut builder = BatchBuilder::new();
    let parsed = rows::parse(element, &source.coder, source.window_coder, |row| {
        builder.push(row);
        Ok(())
    });
    if let Err(rows::RowError::Malformed(at, error)) = parsed {
        return Err(Error::Protocol(format!("malformed residual element, from byte {at} on: {error}")));
    }
    match builder.rows() {
        1 => Ok(builder.finish()),
        rows => Err(Error::Protocol(format!("a residual root has {rows} elements instead of one"))),
    }
}

/// Seconds and nanoseconds as milliseconds, rounded down, without overflow.
pub(crate) fn millis(seconds: i64, nanos: i32) -> i64 {
    seconds.saturating_mul(1000).saturating_add(i64::from(nanos).div_euclid(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Coder, WindowCoder};
    use proto::fnapi::BundleApplication;
    use proto::fnapi::process_bundle_split_response::ChannelSplit;

    fn source() -> PortSpec {
        PortSpec {
            transform: "source".into(),
            collection: "c".to_owned(),
            coder: Coder::Bytes,
            window_coder: WindowCoder::Global,
        }
    }

    fn cut(last: i64, first: i64) -> ProcessBundleSplitResponse {
        let split = ChannelSplit { transform_id: String::new(), last_primary_element: last, first_residual_element: first };
        ProcessBundleSplitResponse { channel_splits: vec![split], ..Default::default() }
    }

    #[test]
    fn splits_only_take_away() {
        let mut remainder = Remainder::new(10);
        for (last, first) in [(9, 10), (6, 7), (3, 5)] {
            remainder.take(cut(last, first), &source()).unwrap();
        }
        assert_eq!(remainder.finish().0.as_slice(), std::slice::from_ref(&(5..10)));
        assert!(Remainder::new(3).finish().0.is_empty());
    }

    #[test]
    fn impossible_splits_are_refused() {
        for (last, first) in [(3, 3), (-2, 0), (0, -1), (1, 4)] {
            assert!(Remainder::new(10).take(cut(last, first), &source()).is_err(), "{last} {first}");
        }
        let mut other = cut(0, 1);
        other.channel_splits[0].transform_id = "other".to_owned();
        assert!(Remainder::new(10).take(other, &source()).is_err());
    }

    #[test]
    fn a_root_is_one_row_with_hold_and_delay() {
        let element = [[0x80, 0, 0, 0, 0, 0, 0, 0].as_slice(), &[0, 0, 0, 1, 0x0f, 1, 7]].concat();
        let watermark = |seconds| prost_types::Timestamp { seconds, nanos: 999_999 };
        let mut application = BundleApplication { element: element.clone().into(), ..Default::default() };
        application.output_watermarks = [("a".to_owned(), watermark(-1)), ("b".to_owned(), watermark(2))].into();
        application.is_bounded = is_bounded::Enum::Unbounded as i32;
        let delay = prost_types::Duration { seconds: 1, nanos: 500_000_000 };
        let root = DelayedBundleApplication { application: Some(application), requested_time_delay: Some(delay) };
        let residual = residual(root, &source()).unwrap();
        assert_eq!((residual.hold.millis(), residual.delay_ms, residual.unbounded), (-1000, 1500, true));
        assert_eq!(residual.batch.value(0), [1, 7]);

        let bare = BundleApplication { element: element.clone().into(), ..Default::default() };
        let bare = DelayedBundleApplication { application: Some(bare), requested_time_delay: None };
        assert_eq!(super::residual(bare, &source()).unwrap().hold, Timestamp::MIN);
        for bad in [element.repeat(2), element[..10].to_vec(), Vec::new()] {
            assert!(one_row(&bad, &source()).is_err());
        }
    }
}

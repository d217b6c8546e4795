//! What a window function answers is checked before it counts.

use bytes::Bytes;
use engine::grouping::{Clocks, Grouping, Limits, MergeError, MergedWindows, WindowMerger};
use model::batch::Row;
use model::windowing::{Merging, WindowFn, WindowingStrategy};
use model::{BatchBuilder, Coder, StageId, Timestamp, WindowCoder, pane};

use crate::store::Store;

/// Says what it is told to, whatever it is asked.
struct Told(Result<Vec<(&'static str, &'static str)>, MergeError>);

impl WindowMerger for Told {
    fn merge(&mut self, _windows: &[Bytes]) -> Result<Vec<MergedWindows>, MergeError> {
        let merged = |&(result, sources): &(&str, &str)| MergedWindows {
            result: named(result),
            sources: sources.split_whitespace().map(named).collect(),
        };
        Ok(self.0.clone()?.iter().map(merged).collect())
    }
}

/// A custom window that ends at 9 milliseconds, or bytes that are none when the name is "broken".
fn named(name: &str) -> Bytes {
    let mut bytes = Timestamp::from_millis(9).encode().to_vec();
    bytes.push(name.len() as u8 + u8::from(name == "broken"));
    bytes.extend_from_slice(name.as_bytes());
    bytes.into()
}

/// Three rows of one key in the windows a, b and c; the merger answers `result=source source, ...`.
fn check(answer: Result<Vec<(&'static str, &'static str)>, MergeError>, expected: &str) {
    let mut batch = BatchBuilder::new();
    for window in ["a", "b", "c"] {
        let windows = model::window::single(&named(window));
        batch.push(Row { value: &[0, 0], timestamp: Timestamp::from_millis(1), windows: &windows, pane: pane::NO_FIRING });
    }
    let strategy = WindowingStrategy {
        window_fn: WindowFn::Custom { urn: "told".into(), spec: Bytes::new(), environment: None },
        window_coder: WindowCoder::Custom,
        merging: Merging::NeedsMerge,
        ..WindowingStrategy::global()
    };
    let coder = Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::Bytes));
    let mut grouping = Grouping::new(StageId(0), strategy, coder, WindowCoder::Custom);
    let clocks = Clocks { input_watermark: Timestamp::MIN, output_watermark: Timestamp::MIN, now_ms: 0 };
    let limits = Limits { bytes_max: u64::MAX, keys_max: usize::MAX };
    let said = match grouping.run(&[batch.finish()], clocks, limits, &mut Store::default(), &mut Told(answer)) {
        Ok(grouped) => {
            grouping.apply(grouped.delta);
            format!("{} windows", grouping.summary().windows)
        }
        Err(error) => error.to_string(),
    };
    assert_eq!(said, expected);
}

#[test]
fn what_cannot_be_is_refused() {
    let answered = |what: &str| format!("the window function answered with {what} when it was asked which windows merge");
    check(Ok(vec![]), "3 windows");
    check(Ok(vec![("ab", "a b")]), "2 windows");
    check(Ok(vec![("a", "a c")]), "2 windows");
    check(Ok(vec![("abc", "c a b")]), "1 windows");
    check(Ok(vec![("c", "a b")]), "1 windows");
    check(Ok(vec![("x", "a")]), "3 windows");
    check(Err(MergeError("it is away".into())), "merge windows: it is away");
    check(Ok(vec![("ad", "a d")]), &answered("a window twice, or one that it was not asked about"));
    check(Ok(vec![("ab", "a b"), ("bc", "b c")]), &answered("a window twice, or one that it was not asked about"));
    check(Ok(vec![("x", "a"), ("x", "b")]), &answered("a window that two sets of windows become"));
    check(Ok(vec![("x", "")]), &answered("a window made of nothing, or with bytes left over"));
    check(Ok(vec![("broken", "a b")]), &answered("a window that cannot be read"));
}

//! Rows of an entry as ascending, disjoint, non-empty ranges: counting, cutting and joining them.

use std::ops::Range;

/// Panics unless `ranges` are non-empty, ascending and disjoint, and end by `rows`.
pub(crate) fn assert_sane<T: Copy + PartialOrd + std::fmt::Debug>(ranges: &[Range<T>], rows: T, what: &str) {
    assert!(ranges.iter().all(|range| range.start < range.end), "{what}: empty range in {ranges:?}");
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{what}: {ranges:?} do not ascend");
    assert!(ranges.last().is_none_or(|last| last.end <= rows), "{what}: {ranges:?} reach beyond {rows:?} rows");
}

/// How many rows the ranges hold.
pub(crate) fn count(ranges: &[Range<u32>]) -> usize {
    ranges.iter().map(|range| (range.end - range.start) as usize).sum()
}

/// Takes the first `rows` rows out of `ranges`.
pub(crate) fn take_first(ranges: &mut Vec<Range<u32>>, rows: usize) -> Vec<Range<u32>> {
    let mut left = rows as u32;
    let mut whole = 0;
    while whole < ranges.len() && ranges[whole].end - ranges[whole].start <= left {
        left -= ranges[whole].end - ranges[whole].start;
        whole += 1;
    }
    let mut taken: Vec<_> = ranges.drain(..whole).collect();
    if left > 0 {
        let first = ranges.first_mut().expect("callers take no more rows than there are");
        taken.push(first.start..first.start + left);
        first.start += left;
    }
    taken
}

/// Adds `more` to `ranges`, which must not share rows with it.
pub(crate) fn join(ranges: &mut Vec<Range<u32>>, more: &[Range<u32>]) {
    ranges.extend_from_slice(more);
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, previous| {
        assert!(previous.end <= next.start, "rows {previous:?} and {next:?} are pending twice");
        let adjacent = previous.end == next.start;
        if adjacent {
            previous.end = next.end;
        }
        adjacent
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rows_are_taken_across_ranges() {
        let mut ranges = vec![2..4, 6..9];
        assert_eq!(take_first(&mut ranges, 3), [2..4, 6..7]);
        assert_eq!(ranges, [7..9]);
        assert_eq!(take_first(&mut ranges, 2), [7..9]);
        assert!(ranges.is_empty());
    }

    #[test]
    fn joined_ranges_are_as_few_as_possible() {
        let mut ranges = vec![0..2, 8..9];
        join(&mut ranges, &[2..5, 7..8]);
        assert_eq!(ranges, [0..5, 7..9]);
        assert_eq!(count(&ranges), 7);
    }

    #[test]
    #[should_panic(expected = "pending twice")]
    fn a_row_is_not_joined_twice() {
        join(&mut vec![0..3], &[2..4]);
    }
}

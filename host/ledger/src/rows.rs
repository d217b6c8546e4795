//! Row ranges of an entry: ascending, disjoint, none empty, none touching the next.

use std::ops::Range;

/// What is left of `remaining` once `taken` is gone. None when `taken` is not ascending and disjoint or names rows that do
/// not remain.
///
/// ```
/// use ledger::rows::subtract;
/// assert_eq!(subtract(&[0..10], &[2..4, 9..10]), Some(vec![0..2, 4..9]));
/// assert_eq!(subtract(&[0..2, 4..9], &[1..5]), None);
/// ```
pub fn subtract(remaining: &[Range<u32>], taken: &[Range<u32>]) -> Option<Vec<Range<u32>>> {
    let mut left = Vec::with_capacity(remaining.len() + taken.len());
    let mut taken = taken.iter().peekable();
    for range in remaining {
        let mut start = range.start;
        while let Some(gone) = taken.next_if(|gone| gone.start < range.end) {
            if gone.start < start || gone.end > range.end || gone.is_empty() {
                return None;
            }
            if start < gone.start {
                left.push(start..gone.start);
            }
            start = gone.end;
        }
        if start < range.end {
            left.push(start..range.end);
        }
    }
    taken.next().is_none().then_some(left)
}

/// How many rows.
pub fn count(ranges: &[Range<u32>]) -> u64 {
    ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `check("0-9", "2-3 9-9", "0-1 4-8")`: inclusive ranges; "no" where the taking is refused.
    fn check(remaining: &str, taken: &str, left: &str) {
        let parse = |text: &str| -> Vec<Range<u32>> {
            let range = |word: &str| {
                let (from, to) = word.split_once('-').unwrap();
                from.parse::<u32>().unwrap()..to.parse::<u32>().unwrap() + 1
            };
            text.split_whitespace().map(range).collect()
        };
        let expected = (left != "no").then(|| parse(left));
        assert_eq!(subtract(&parse(remaining), &parse(taken)), expected, "{remaining} without {taken}");
    }

    #[test]
    fn rows_are_taken_once() {
        check("0-9", "", "0-9");
        check("0-9", "0-9", "");
        check("0-9", "0-0", "1-9");
        check("0-9", "9-9", "0-8");
        check("0-9", "2-3 9-9", "0-1 4-8");
        check("0-1 4-8", "0-1 4-8", "");
        check("0-1 4-8", "4-4 6-6 8-8", "0-1 5-5 7-7");
        check("0-9", "0-1 2-3", "4-9");
    }

    #[test]
    fn rows_that_do_not_remain_are_refused() {
        check("0-9", "5-10", "no");
        check("0-9", "10-10", "no");
        check("0-1 4-8", "1-4", "no");
        check("0-1 4-8", "2-3", "no");
        check("0-9", "3-4 4-5", "no");
        check("0-9", "5-6 1-2", "no");
        check("0-9", "3-2", "no");
        check("", "0-0", "no");
    }
}

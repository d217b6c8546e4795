//! Numbers and times as people read them.

use model::Timestamp;

use crate::clock;

/// `184,202`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `00:12` minutes and seconds, `01:02:03` with hours, `3d 04h` from a day on.
pub fn age(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes:02}:{:02}", seconds % 60),
        (0, _) => format!("{hours:02}:{minutes:02}:{:02}", seconds % 60),
        _ => format!("{days}d {hours:02}h"),
    }
}

/// `1.2 s`, and from two minutes on as an age; `-` if there is none.
pub fn delay(ms: Option<i64>) -> String {
    match ms {
        None => "-".into(),
        Some(ms) if ms < 120_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        Some(ms) => age(ms),
    }
}

/// A watermark beside a clock: `-` before the first, `end` after the last, the time of day near today, else the date as well.
pub fn watermark(ms: i64, now_ms: i64) -> String {
    if ms <= Timestamp::MIN.millis() {
        return "-".into();
    }
    if ms >= Timestamp::GLOBAL_WINDOW_END.millis() {
        return "end".into();
    }
    second(ms, now_ms)
}

/// A point in time to the millisecond, where it has any: the time of day near today, else the date as well.
pub fn moment(ms: i64, now_ms: i64) -> String {
    match ms.rem_euclid(1_000) {
        0 => second(ms, now_ms),
        fraction => format!("{}.{fraction:03}", second(ms, now_ms)),
    }
}

fn second(ms: i64, now_ms: i64) -> String {
    const DAY_MS: u64 = 86_400_000;
    if ms.abs_diff(now_ms) < DAY_MS {
        return clock::time_of_day(ms);
    }
    let text = clock::rfc3339(ms.saturating_mul(1_000));
    text.split_once('.').map_or(text.clone(), |(seconds, _)| seconds.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_read_them() {
        assert_eq!([0, 999, 1_000, 184_202, 1_234_567].map(count), ["0", "999", "1,000", "184,202", "1,234,567"]);
        assert_eq!([12_000, 3_723_000, 273_600_000, -5].map(age), ["00:12", "01:02:03", "3d 04h", "00:00"]);
        assert_eq!([None, Some(1_234), Some(120_000)].map(delay), ["-", "1.2 s", "02:00"]);
        let now_ms = 1_796_111_104_000;
        let watermarks = [i64::MIN, i64::MAX, now_ms, 0].map(|ms| watermark(ms, now_ms));
        assert_eq!(watermarks, ["-", "end", "07:45:04", "1970-01-01 00:00:00"]);
    }
}

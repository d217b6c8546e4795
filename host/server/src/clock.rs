//! The wall clock and its usual spelling. The only place of the server that asks what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time, milliseconds since the epoch.
pub fn now_ms() -> i64 {
    now_us() / 1_000
}

/// A point in time, microseconds since the epoch.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// RFC 3339 in UTC with microseconds, in the one form that every supported Python parses: `2026-12-01T07:45:04.000123+00:00`.
pub fn rfc3339(us: i64) -> String {
    let (days, within) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000));
    let (year, month, day) = civil(days);
    let seconds = within / 1_000_000;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}+00:00", within % 1_000_000)
}

/// Hours, minutes and seconds of a day in UTC: `07:45:04`.
pub fn time_of_day(ms: i64) -> String {
    let seconds = ms.div_euclid(1_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar. Years begin in March inside, so that
/// the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_year_0 = days + 719_468;
    let (era, day_of_era) = (from_year_0.div_euclid(146_097), from_year_0.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_as_the_calendar_has_them() {
        for (us, text) in [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000+00:00"),
            (1_796_111_104_000_123, "2026-12-01T07:45:04.000123+00:00"),
            (-1, "1969-12-31T23:59:59.999999+00:00"),
        ] {
            assert_eq!(rfc3339(us), text);
        }
    }
}

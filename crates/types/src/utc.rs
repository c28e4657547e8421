//! Moments as text and back: RFC 3339 in UTC, and months.

use crate::UnixMs;

/// `2026-08-01T12:00:00Z`.
pub fn rfc3339(at: UnixMs) -> String {
    format!("{}Z", date_and_time(at))
}

/// `2026-08-01T12:00:00.250Z`, for events that may come more than once in a second.
pub fn rfc3339_ms(at: UnixMs) -> String {
    format!("{}.{:03}Z", date_and_time(at), at.0 % 1000)
}

/// `20260801T120000Z`, ISO 8601's basic form, as requests of AWS are dated.
pub fn basic(at: UnixMs) -> String {
    rfc3339(at).replace(['-', ':'], "")
}

/// The month of a moment, as `2026-08`.
pub fn month_of(at: UnixMs) -> String {
    let (year, month, _) = civil_from_days(at.seconds() / 86_400);
    format!("{year:04}-{month:02}")
}

/// The begin and the end of a month, the end not included; `None` if the text is not of the form `2026-08`.
pub fn month_range(text: &str) -> Option<(UnixMs, UnixMs)> {
    let (year, month) = text.split_once('-')?;
    if year.len() != 4 || month.len() != 2 {
        return None;
    }
    let (year, month): (u64, u64) = (year.parse().ok()?, month.parse().ok()?);
    let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    Some((day(year, month, 1)?, day(next.0, next.1, 1)?))
}

/// A moment as `2026-08-01T12:00:00Z`, with milliseconds or without, or a day as `2026-08-01`; `None` if the text is neither.
pub fn parse(text: &str) -> Option<UnixMs> {
    let number = |text: &str, digits: usize| {
        let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (date, time) = text
        .split_once('T')
        .map_or((text, None), |(date, time)| (date, Some(time)));
    let mut parts = date.splitn(3, '-');
    let mut part = |digits| number(parts.next()?, digits);
    let begin = day(part(4)?, part(2)?, part(2)?)?;
    let Some(time) = time else { return Some(begin) };
    let time = time.strip_suffix('Z')?;
    let (time, ms) = match time.split_once('.') {
        Some((time, ms)) => (time, number(ms, 3)?),
        None => (time, 0),
    };
    let mut parts = time.splitn(3, ':');
    let mut part = |most: u64| number(parts.next()?, 2).filter(|value| *value < most);
    let (hour, minute, second) = (part(24)?, part(60)?, part(60)?);
    Some(UnixMs(begin.0 + ((hour * 60 + minute) * 60 + second) * 1000 + ms))
}

/// The beginning of a day; `None` before 1970 or where there is no such day.
pub fn day(year: u64, month: u64, day: u64) -> Option<UnixMs> {
    // The same way back: years that begin in March.
    let year_from_march = if month > 2 { year } else { year.checked_sub(1)? };
    let month_from_march = (month + 9) % 12;
    let days_before_month = (153 * month_from_march + 2) / 5;
    let days_of_years = 365 * year_from_march + year_from_march / 4 - year_from_march / 100 + year_from_march / 400;
    let days = (days_of_years + days_before_month + day).checked_sub(719_469)?;
    (civil_from_days(days) == (year, month, day)).then_some(UnixMs(days.checked_mul(86_400_000)?))
}

fn date_and_time(at: UnixMs) -> String {
    let seconds = at.seconds();
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of the `days`-th day after 1970-01-01. It counts years that begin on the first of March, so that
/// the leap day is the last one of its year (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const DAYS_PER_400_YEARS: u64 = 146_097;
    let since_march_of_year_0 = days + 719_468;
    let cycle = since_march_of_year_0 / DAYS_PER_400_YEARS;
    let day_of_cycle = since_march_of_year_0 % DAYS_PER_400_YEARS;
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_basic_form_has_dates_without_signs() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (4_107_542_399, "21000228T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(basic(UnixMs(seconds * 1000)), text);
        }
    }

    #[test]
    fn moments_are_written_as_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let at = UnixMs(seconds * 1000 + 99);
            assert_eq!(rfc3339(at), text);
            assert_eq!(rfc3339_ms(at), text.replace('Z', ".099Z"));
        }
    }

    #[test]
    fn months_have_a_beginning_and_an_end() {
        for (text, from, to) in [
            ("1970-01", "1970-01-01T00:00:00Z", "1970-02-01T00:00:00Z"),
            ("2024-02", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
            ("2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ] {
            let (begin, end) = month_range(text).unwrap();
            assert_eq!((rfc3339(begin), rfc3339(end)), (from.into(), to.into()));
            assert_eq!(
                (month_of(begin), month_of(UnixMs(end.0 - 1))),
                (text.into(), text.into())
            );
        }
        for text in [
            "",
            "2026",
            "2026-13",
            "2026-00",
            "26-01",
            "2026-1",
            "1969-12",
            "2026-01-01",
        ] {
            assert_eq!(month_range(text), None, "{text}");
        }
    }

    #[test]
    fn moments_are_read_as_they_are_written() {
        for ms in [0, 951_782_400_000, 1_785_542_399_999, 1_785_542_461_001] {
            assert_eq!(parse(&rfc3339_ms(UnixMs(ms))), Some(UnixMs(ms)));
            assert_eq!(parse(&rfc3339(UnixMs(ms))), Some(UnixMs(ms / 1000 * 1000)));
        }
        assert_eq!(parse("2026-08-01"), Some(UnixMs(1_785_542_400_000)));
        for text in [
            "",
            "now",
            "2026-08",
            "2026-8-1",
            "2026-08-01T12:00:00",
            "2026-08-01T24:00:00Z",
            "2026-08-01T1:00:00Z",
            "2026-08-01T12:00:00.5Z",
            "2026-08-32",
            "+026-08-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_that_do_not_exist_are_none() {
        for (year, month, of_month) in [(2026, 2, 29), (2026, 4, 31), (2026, 1, 0), (2026, 0, 1), (1969, 12, 31)] {
            assert_eq!(day(year, month, of_month), None, "{year}-{month}-{of_month}");
        }
        assert_eq!(day(2000, 2, 29), Some(UnixMs(951_782_400_000)));
    }
}

//! Moments as text: RFC 3339 in UTC.

use tidemark_types::UnixMs;

/// `2026-08-01T12:00:00Z`.
pub(crate) fn rfc3339(at: UnixMs) -> String {
    format!("{}Z", date_and_time(at))
}

/// `2026-08-01T12:00:00.250Z`, for what happens more than once in a second.
pub(crate) fn rfc3339_ms(at: UnixMs) -> String {
    format!("{}.{:03}Z", date_and_time(at), at.0 % 1000)
}

fn date_and_time(at: UnixMs) -> String {
    let seconds = at.seconds();
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of the `days`-th day after 1970-01-01, by counting years that begin on the first of March, so
/// that the leap day is the last one of its year (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
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
}

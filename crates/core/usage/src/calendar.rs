//! Seconds since 1970 as dates in UTC.

use std::time::{Duration, UNIX_EPOCH};

/// A second as RFC 3339 has it, in UTC.
pub fn utc(second: u64) -> String {
    humantime::format_rfc3339(UNIX_EPOCH + Duration::from_secs(second)).to_string()
}

/// Beginning and end of the month of a second, in UTC.
pub fn month(second: u64) -> (u64, u64) {
    let first = |second: u64| {
        let start = format!("{}-01T00:00:00Z", &utc(second)[..7]);
        let start = humantime::parse_rfc3339(&start).ok();
        let since = start.and_then(|start| start.duration_since(UNIX_EPOCH).ok());
        since.map_or(0, |since| since.as_secs())
    };
    let start = first(second);
    (start, first(start + 31 * 86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-01T00:00:00Z
    const NOVEMBER: u64 = 1_793_491_200;
    const DAY: u64 = 86_400;

    #[test]
    fn months_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01", "1970-02-01"),
            (NOVEMBER - 1, "2026-10-01", "2026-11-01"),
            (NOVEMBER, "2026-11-01", "2026-12-01"),
            (NOVEMBER + 30 * DAY, "2026-12-01", "2027-01-01"),
            (1_709_164_800, "2024-02-01", "2024-03-01"), // 2024-02-29
        ];
        for (second, start, end) in cases {
            let (from, to) = month(second);
            assert_eq!((&utc(from)[..10], &utc(to)[..10]), (start, end), "{second}");
        }
    }
}

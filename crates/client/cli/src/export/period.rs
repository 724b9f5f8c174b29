//! Time that is charged, and months.

pub use snic_usage::{month, utc as time};

/// Time that charges are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// Seconds since 1970, a multiple of `step`.
    pub from: u64,
    /// Seconds since 1970, a multiple of `step`.
    pub to: u64,
    /// Seconds of a step.
    pub step: u64,
}

/// Seconds after which an interval that is over is counted whole.
const COUNTED_AFTER: u64 = 60;

impl Charged {
    /// The time from one second to another. Without `to` it ends with the last step that is over and counted at `now`; without
    /// `from` it begins with the month of the last step.
    ///
    /// # Errors
    /// A second is not the beginning of a step, or the last step is not over and counted.
    pub fn new(from: Option<u64>, to: Option<u64>, step: u64, now: u64) -> Result<Self, String> {
        let over = now.saturating_sub(COUNTED_AFTER);
        let to = to.unwrap_or(over / step * step);
        let from = match from {
            Some(from) => from,
            None => month(to.saturating_sub(1)).0,
        };
        if let Some(wrong) = [from, to].into_iter().find(|second| !second.is_multiple_of(step)) {
            let unit = if step == 3_600 { "an hour" } else { "a day" };
            return Err(format!("{} is not the beginning of {unit} in UTC", time(wrong)));
        }
        if to > over {
            let over = time(over / step * step);
            return Err(format!(
                "{} is not over and counted; the last step that is over ends at {over}",
                time(to)
            ));
        }
        match from < to {
            true => Ok(Self { from, to, step }),
            false => Err(format!("nothing is between {} and {}", time(from), time(to))),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// 2026-11-01T00:00:00Z
    const NOVEMBER: u64 = 1_793_491_200;
    const DAY: u64 = 86_400;

    #[rstest]
    #[case(None, None, Ok((NOVEMBER, NOVEMBER + 2 * DAY)))]
    #[case(Some(NOVEMBER + DAY), None, Ok((NOVEMBER + DAY, NOVEMBER + 2 * DAY)))]
    #[case(None, Some(NOVEMBER), Ok((NOVEMBER - 31 * DAY, NOVEMBER)))]
    #[case(Some(NOVEMBER + 1), None, Err("2026-11-01T00:00:01Z is not the beginning of a day"))]
    #[case(None, Some(NOVEMBER + 3 * DAY), Err("ends at 2026-11-03T00:00:00Z"))]
    #[case(Some(NOVEMBER + DAY), Some(NOVEMBER + DAY), Err("nothing is between"))]
    fn what_is_charged_is_over(
        #[case] from: Option<u64>,
        #[case] to: Option<u64>,
        #[case] is: Result<(u64, u64), &str>,
    ) {
        // The third of November has just begun its last minute.
        let now = NOVEMBER + 3 * DAY;
        let charged = Charged::new(from, to, DAY, now);
        match (charged, is) {
            (Ok(charged), Ok(expected)) => assert_eq!((charged.from, charged.to), expected),
            (Err(error), Err(says)) => assert!(error.contains(says), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

//! Arguments of `snicctl audit`.

use clap::Args;

/// Filter for entries of the audit log.
#[derive(Debug, Args)]
pub struct AuditQuery {
    /// Only entries about or by this tenant
    #[arg(long, value_name = "TENANT")]
    pub of: Option<String>,
    /// Only entries of this caller: operator/NAME, tenant/ID or orchestrator/NAME
    #[arg(long, value_name = "IDENTITY")]
    pub caller: Option<String>,
    /// Only entries of this method, such as CreateDag
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// Only entries since then: a duration before now, such as 2h, or a time, such as
    /// 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Moment>,
    /// Only entries before then; same format as --since
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Moment>,
    /// Only entries for which this holds, such as 'code != OK AND resource : dags'
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Maximum number of entries, the latest ones
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 100)]
    pub limit: usize,
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub std::time::SystemTime);

pub(super) fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(ago) = text.parse::<humantime::Duration>() {
        let then = std::time::SystemTime::now().checked_sub(*ago);
        return then
            .map(Moment)
            .ok_or_else(|| format!("{text} is too long ago; use a shorter duration"));
    }
    humantime::parse_rfc3339(text).map(Moment).map_err(|_| {
        format!("{text:?} is not valid; use a duration (2h) or a time (2026-01-31T12:00:00Z)")
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_moment_is_a_duration_back_or_a_time() {
        let hour = moment("1h").expect("a duration").0;
        let ago = SystemTime::now().duration_since(hour).expect("in the past");
        assert!(ago >= Duration::from_secs(3_600), "{ago:?}");
        let time = moment("1970-01-02T00:00:00Z").expect("a time").0;
        assert_eq!(time, UNIX_EPOCH + Duration::from_secs(86_400));
        for wrong in ["yesterday", "", "12:00"] {
            assert!(moment(wrong).is_err(), "{wrong:?}");
        }
    }
}

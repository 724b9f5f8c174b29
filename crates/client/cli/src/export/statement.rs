//! Daily statements of a tenant's usage, which a site signs and anybody can check who has the site's public key.
//!
//! ```text
//! snic-usage-v1 tenants/acme 2026-11-28
//! tenant,dag,uid,…                                  all meters, as `snicctl usage export` has them
//! tenants/acme,tenants/acme/dags/web,65537,…        one line for each DAG on each card
//! ```
//!
//! The first line says what is signed, so that a signature of this is none of anything else.

use std::time::UNIX_EPOCH;

use snic_api::v1::UsageEntry;

use super::columns::csv;
use super::period::{Charged, time};

const KIND: &str = "snic-usage-v1";
const DAY: u64 = 86_400;

/// The day of a statement, in UTC, such as 2026-11-28.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementDay(u64);

impl std::str::FromStr for StatementDay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no day; write it as 2026-11-28");
        let begin = humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).map_err(|_| wrong())?;
        let second = begin.duration_since(UNIX_EPOCH).map_err(|_| wrong())?.as_secs();
        Ok(Self(second))
    }
}

impl std::fmt::Display for StatementDay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(time(self.0).split('T').next().unwrap_or_default())
    }
}

impl StatementDay {
    /// Its time, if it is over and counted at `now`.
    ///
    /// # Errors
    /// It is not.
    pub fn time(self, now: u64) -> Result<Charged, String> {
        Charged::new(Some(self.0), Some(self.0 + DAY), DAY, now)
    }
}

/// The text of a statement about a tenant's usage of a day, each DAG on each card once.
pub fn statement(tenant: &str, day: StatementDay, usage: &[UsageEntry]) -> String {
    format!("{KIND} {tenant} {day}\n{}", csv(usage))
}

/// A statement that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageStatement {
    /// `tenants/{tenant}`
    pub tenant: String,
    /// The day that it is about.
    pub day: StatementDay,
    /// Lines of DAGs.
    pub lines: usize,
}

impl UsageStatement {
    /// Reads a statement. It is of one tenant and of one day.
    ///
    /// # Errors
    /// It is none, or a line is of another tenant or time than the first one says.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [KIND, tenant, day] = first[..] else {
            return Err(format!("it is no statement: its first line is not {KIND} TENANT DAY"));
        };
        let day: StatementDay = day.parse()?;
        let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let at = |column: &str| {
            let at = names.iter().position(|name| *name == column);
            at.ok_or_else(|| format!("its second line has no column {column}"))
        };
        let (of, start) = (at("tenant")?, at("start_time")?);
        let mut count = 0;
        for line in lines {
            let values: Vec<&str> = line.split(',').collect();
            if values.len() != names.len() || values[of] != tenant || values[start] != time(day.0) {
                return Err(format!("a line is not of {tenant} on {day}: {line:?}"));
            }
            count += 1;
        }
        Ok(Self { tenant: tenant.to_owned(), day, lines: count })
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    fn entry(tenant: &str, seconds: i64) -> UsageEntry {
        let start_time = Some(Timestamp { seconds, nanos: 0 });
        UsageEntry { tenant: tenant.into(), start_time, ..UsageEntry::default() }
    }

    #[test]
    fn a_statement_is_of_one_tenant_and_one_day() {
        let day: StatementDay = "2026-11-01".parse().expect("a day");
        assert_eq!((day.0, day.to_string().as_str()), (1_793_491_200, "2026-11-01"));
        for wrong in ["2026-11-31", "1.11.2026", "", "1969-12-31"] {
            wrong.parse::<StatementDay>().expect_err(wrong);
        }
        let own = [entry("tenants/acme", 1_793_491_200), entry("tenants/acme", 1_793_491_200)];
        let text = statement("tenants/acme", day, &own);
        let read = UsageStatement::parse(&text).expect("it is one");
        assert_eq!((read.tenant.as_str(), read.day, read.lines), ("tenants/acme", day, 2));
        let others = [entry("tenants/beta", 1_793_491_200), entry("tenants/acme", 1_793_577_600)];
        for other in others {
            let text = statement("tenants/acme", day, &[other]);
            let error = UsageStatement::parse(&text).expect_err("not of it");
            assert!(error.contains("a line is not of tenants/acme on 2026-11-01"), "{error}");
        }
        UsageStatement::parse("snic-bitstream-v1 x\n").expect_err("another kind");
        assert!(day.time(1_793_577_600).is_err(), "its last minute is not counted yet");
        assert!(day.time(1_793_577_700).is_ok());
    }
}

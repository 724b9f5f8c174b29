//! Hosts of a fleet that are missing from what is shown.

use std::cell::RefCell;
use std::collections::BTreeSet;

use snic_api::v1::UnreachableHost;

/// Most hosts that are named.
const NAMED_MAX: usize = 10;

/// Hosts that did not answer for pages of a list, each once.
#[derive(Debug, Default)]
pub(super) struct MissingHosts {
    named: RefCell<BTreeSet<(String, String)>>,
    /// Most that one page left out without their names, as for tenants.
    unnamed: RefCell<usize>,
}

impl MissingHosts {
    /// Adds those of a reply.
    pub fn add(&self, hosts: Vec<UnreachableHost>) {
        let (named, unnamed): (Vec<_>, Vec<_>) =
            hosts.into_iter().partition(|of| !of.host.is_empty());
        self.named.borrow_mut().extend(named.into_iter().map(|of| (of.host, of.reason)));
        let most = (*self.unnamed.borrow()).max(unnamed.len());
        self.unnamed.replace(most);
    }

    /// Lines for people, one for each host.
    fn lines(&self) -> Vec<String> {
        let named = self.named.borrow();
        let line = |(host, reason): &(String, String)| {
            let host = host.trim_start_matches("hosts/");
            format!("warning: host {host} did not answer, and nothing of it is shown: {reason}")
        };
        let mut lines: Vec<String> = named.iter().take(NAMED_MAX).map(line).collect();
        let more = named.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            lines.push(format!(
                "warning: {more} more hosts did not answer; see `snicctl fleet host list`"
            ));
        }
        let unnamed = *self.unnamed.borrow();
        if unnamed > 0 {
            let hosts = if unnamed == 1 { "host" } else { "hosts" };
            lines.push(format!(
                "warning: {unnamed} {hosts} of the fleet did not answer: what they have of yours is not shown; try again later"
            ));
        }
        lines
    }

    /// Prints them to standard error.
    pub fn complain(&self) {
        self.lines().iter().for_each(|line| snic_output::complain!("{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> UnreachableHost {
        UnreachableHost { host: format!("hosts/h{number:02}"), reason: "not linked".into() }
    }

    #[test]
    fn each_host_is_named_once_and_many_are_counted() {
        let missing = MissingHosts::default();
        assert!(missing.lines().is_empty());
        for _ in 0..2 {
            missing.add(vec![host(1), host(2)]);
        }
        let lines = missing.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("host h01 did not answer") && lines[0].contains("not linked"));
        missing.add((0..30).map(host).collect());
        let lines = missing.lines();
        assert_eq!(lines.len(), NAMED_MAX + 1);
        assert!(lines[NAMED_MAX].contains("20 more hosts"), "{lines:?}");
    }

    #[test]
    fn tenants_are_told_how_many() {
        let missing = MissingHosts::default();
        for count in [1, 2, 1] {
            missing.add(vec![UnreachableHost::default(); count]);
        }
        let lines = missing.lines();
        assert!(lines.len() == 1 && lines[0].contains("2 hosts of the fleet"), "{lines:?}");
    }
}

//! Answers of hosts, added up by group and time.

use std::collections::BTreeMap;

use snic_api::convert::name;
use snic_api::usage::add_usage;
use snic_api::v1;
use snic_api::v1::UsageGrouping;
use snic_domain::DagName;
use snic_fleet::HostId;

use super::{UsageAccountName, UsageQuestion, timestamp};

/// Answers of hosts, added up.
#[derive(Debug, Default)]
pub(super) struct MergedUsage {
    /// Sums by group and beginning of the step.
    sums: BTreeMap<String, v1::UsageEntry>,
    /// Hosts that did not answer, and why.
    missing: BTreeMap<HostId, String>,
}

/// Group and beginning of an entry.
fn key(entry: &v1::UsageEntry) -> String {
    let start = entry.start_time.map_or(0, |start| start.seconds);
    let v1::UsageEntry { project, tenant, dag, card, .. } = entry;
    format!("{project}|{tenant}|{dag}|{card}|{start:012}")
}

impl MergedUsage {
    /// Adds an entry of a host.
    pub fn add(&mut self, question: &UsageQuestion, entry: v1::UsageEntry) {
        if !question.selects(&entry) {
            return;
        }
        let tenant = entry.tenant.clone();
        let project = |of: &BTreeMap<String, String>| of.get(&tenant).cloned().unwrap_or_default();
        // Hosts and cards are not told apart, and neither are DAGs of one name.
        let entry = v1::UsageEntry { card: String::new(), uid: 0, ..entry };
        let entry = match question.by {
            UsageGrouping::Project => v1::UsageEntry {
                project: question.projects.as_ref().map(project).unwrap_or_default(),
                tenant: String::new(),
                dag: String::new(),
                ..entry
            },
            UsageGrouping::Tenant => v1::UsageEntry { dag: String::new(), ..entry },
            _ => entry,
        };
        self.add_sum(entry);
    }

    /// Adds calls that replicas have counted.
    pub fn add_calls(&mut self, question: &UsageQuestion, entries: Vec<v1::UsageEntry>) {
        entries.into_iter().for_each(|entry| self.add(question, entry));
    }

    /// Adds times in which a replica may have counted calls that are missing.
    pub fn add_gaps(&mut self, gaps: Vec<v1::UsageEntry>) {
        gaps.into_iter().for_each(|gap| self.add_sum(gap));
    }

    fn add_sum(&mut self, entry: v1::UsageEntry) {
        match self.sums.get_mut(&key(&entry)) {
            Some(sum) => add_usage(sum, &entry),
            None => drop(self.sums.insert(key(&entry), entry)),
        }
    }

    /// A host did not answer.
    pub fn miss(&mut self, host: HostId, reason: String) {
        self.missing.insert(host, reason);
    }

    /// Whether all hosts answered, and have nothing.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty() && self.missing.is_empty()
    }

    /// Hosts that did not answer.
    pub fn unreachable(&self, question: &UsageQuestion) -> Vec<v1::UnreachableHost> {
        let missing = self.missing.iter();
        missing.map(|(host, reason)| question.unreachable(host, reason.clone())).collect()
    }

    /// Sum of everything, with a gap for each host that did not answer.
    pub fn total(&self, question: &UsageQuestion, account: &UsageAccountName) -> v1::UsageEntry {
        let (from, to) = question.own_range();
        let mut total = v1::UsageEntry {
            tenant: name::of_tenant(&account.tenant),
            dag: account.dag.as_ref().map(DagName::to_string).unwrap_or_default(),
            start_time: Some(timestamp(from)),
            end_time: Some(timestamp(to)),
            ..v1::UsageEntry::default()
        };
        self.sums.values().for_each(|sum| add_usage(&mut total, sum));
        self.missing.keys().for_each(|host| add_usage(&mut total, &question.gap(host)));
        total
    }

    /// The sums, by group and time.
    pub fn into_entries(self) -> impl Iterator<Item = v1::UsageEntry> {
        self.sums.into_values()
    }

    /// A page, with an entry for the hosts that did not answer, and the key of its last entry if there are more.
    pub fn page(
        mut self,
        question: &UsageQuestion,
        after: Option<&str>,
        limit: usize,
    ) -> (v1::ListUsageResponse, Option<String>) {
        let unreachable_hosts = self.unreachable(question);
        for host in std::mem::take(&mut self.missing).into_keys() {
            self.add_sum(question.gap(&host));
        }
        let behind = |key: &String| after.is_none_or(|after| key.as_str() > after);
        let mut listed = self.sums.into_iter().filter(|(key, _)| behind(key));
        let (mut usage, mut last) = (Vec::new(), None);
        for (key, entry) in listed.by_ref().take(limit) {
            usage.push(entry);
            last = Some(key);
        }
        let next = last.filter(|_| listed.next().is_some());
        (v1::ListUsageResponse { usage, unreachable_hosts, ..Default::default() }, next)
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::TenantId;

    use super::*;

    fn question(by: UsageGrouping, own: Option<&str>) -> UsageQuestion {
        let projects = [("tenants/acme", "projects/red"), ("tenants/beta", "")];
        let projects = projects.map(|(tenant, project)| (tenant.to_owned(), project.to_owned()));
        UsageQuestion {
            to_hosts: v1::ListUsageRequest::default(),
            by,
            own: own.map(|id| TenantId::new(id).expect("a test id")),
            host: None,
            projects: (by == UsageGrouping::Project).then(|| projects.into()),
            range: (1_000, 1_060),
            born: None,
            created: None,
        }
    }

    fn entry(tenant: &str, dag: &str, bytes_served: u64) -> v1::UsageEntry {
        v1::UsageEntry {
            tenant: format!("tenants/{tenant}"),
            dag: format!("tenants/{tenant}/dags/{dag}"),
            uid: 7,
            card: "cards/card0".into(),
            start_time: Some(timestamp(1_000)),
            bytes_served,
            api_calls: 1,
            ..v1::UsageEntry::default()
        }
    }

    fn host(name: &str) -> HostId {
        HostId::new(name).expect("a test id")
    }

    fn merged(question: &UsageQuestion) -> MergedUsage {
        let mut merged = MergedUsage::default();
        let all = [("acme", "web", 5), ("acme", "web", 6), ("acme", "db", 9), ("beta", "web", 20)];
        for (tenant, dag, bytes) in all {
            merged.add(question, entry(tenant, dag, bytes));
        }
        merged
    }

    fn listed(question: &UsageQuestion) -> Vec<(String, String, u64)> {
        let (page, next) = merged(question).page(question, None, 10);
        assert_eq!(next, None);
        let of = |entry: v1::UsageEntry| {
            assert_eq!((entry.uid, entry.card.as_str()), (0, ""));
            let group = entry.project + &entry.tenant;
            (group, entry.dag, entry.bytes_served)
        };
        page.usage.into_iter().map(of).collect()
    }

    #[test]
    fn entries_of_hosts_are_added_up_by_group() {
        let group = |name: &str, dag: &str, bytes| (name.to_owned(), dag.to_owned(), bytes);
        let by = |by| listed(&question(by, None));
        assert_eq!(
            by(UsageGrouping::Tenant),
            [group("tenants/acme", "", 20), group("tenants/beta", "", 20)]
        );
        assert_eq!(by(UsageGrouping::Project), [group("projects/red", "", 20), group("", "", 20)]);
        let web = "tenants/acme/dags/web";
        let own = listed(&question(UsageGrouping::Dag, Some("acme")));
        assert!(own.contains(&group("tenants/acme", web, 11)), "{own:?}");
    }

    /// Each host that is missing is a gap as long as the range, and never nothing.
    #[test]
    fn a_host_that_does_not_answer_is_a_gap() {
        let question = question(UsageGrouping::Tenant, Some("acme"));
        let mut merged = MergedUsage::default();
        assert!(merged.is_empty());
        merged.add(&question, entry("acme", "web", 5));
        for name in ["h1", "h2"] {
            merged.miss(host(name), "no link".to_owned());
        }
        let account = UsageAccountName::parse("tenants/acme").expect("a name");
        let total = merged.total(&question, &account);
        let gap = |entry: &v1::UsageEntry| (entry.gaps[0].reason.clone(), entry.gaps[0].millis);
        assert_eq!(gap(&total), ("HOST_UNREACHABLE".to_owned(), 120_000));
        assert_eq!(total.bytes_served, 5);
        let (page, _) = merged.page(&question, None, 10);
        assert_eq!(page.usage.iter().map(gap).collect::<Vec<_>>(), [gap(&total)]);
        assert_eq!(page.unreachable_hosts.len(), 2);
        assert!(page.unreachable_hosts.iter().all(|of| of.host.is_empty()), "not for tenants");
    }

    /// Calls that replicas count are their tenant's, and those of its project; a gap of theirs is nobody's alone.
    #[test]
    fn calls_at_replicas_are_added_to_those_at_hosts() {
        let groups =
            [(UsageGrouping::Tenant, "tenants/acme"), (UsageGrouping::Project, "projects/red")];
        for (by, group) in groups {
            let question = question(by, None);
            let mut merged = merged(&question);
            let calls = v1::UsageEntry {
                tenant: "tenants/acme".into(),
                start_time: Some(timestamp(1_000)),
                api_calls: 5,
                ..v1::UsageEntry::default()
            };
            merged.add_calls(&question, vec![calls]);
            let gaps = vec![v1::UsageGap { reason: "NOT_RUNNING".to_owned(), millis: 7 }];
            let start_time = Some(timestamp(1_000));
            let gap = v1::UsageEntry { gaps, start_time, ..v1::UsageEntry::default() };
            merged.add_gaps(vec![gap]);
            let (page, _) = merged.page(&question, None, 10);
            let of = |entry: &v1::UsageEntry| format!("{}{}", entry.project, entry.tenant);
            let own = page.usage.iter().find(|entry| of(entry) == group);
            assert_eq!(
                own.map(|entry| (entry.api_calls, entry.gaps.len())),
                Some((8, 0)),
                "{by:?}"
            );
            let nobodys = page.usage.iter().find(|entry| of(entry).is_empty());
            assert_eq!(nobodys.map(|entry| entry.gaps[0].millis), Some(7), "{by:?}");
        }
    }

    #[test]
    fn pages_follow_each_other_without_a_hole() {
        let question = question(UsageGrouping::Dag, Some("acme"));
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = merged(&question).page(&question, after.as_deref(), 1);
            assert!(page.usage.len() <= 1);
            found.extend(page.usage.into_iter().map(|entry| entry.bytes_served));
            after = next;
            if after.is_none() {
                break;
            }
        }
        found.sort_unstable();
        assert_eq!(found, [9, 11, 20]);
    }
}

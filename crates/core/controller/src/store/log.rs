//! The log of the control plane's own decisions. Entries about a tenant's DAGs are kept
//! apart from other tenants', so that no tenant pushes out entries that others or operators look for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use snic_domain::{CardId, DagName, RegionId, TenantId};

use crate::protocol::{Caller, LogEntry, LogKind};
use crate::store::tx::{LogSubject, Tx};

/// Entries kept that are of no tenant; the oldest go first. A few hundred bytes each: about a megabyte.
pub const LOG_KEPT: usize = 4_096;
/// Entries kept that are about DAGs of one tenant: about a quarter of a megabyte.
pub const TENANT_LOG_KEPT: usize = 1_024;
/// DAGs that an entry for several names; of the others it has the number.
const NAMED_MAX: usize = 3;

/// The last entries.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Entries, by number.
    entries: BTreeMap<u64, LogEntry>,
    /// The numbers of each tenant's entries, and of those that are of none, the oldest first.
    of: BTreeMap<Option<TenantId>, VecDeque<u64>>,
    last_number: u64,
}

impl Log {
    /// Numbers and keeps what an event noted. Time O(log entries) for each.
    pub fn keep(&mut self, tx: &mut Tx) {
        sum_up(tx);
        for entry in tx.noted() {
            self.last_number += 1;
            entry.number = self.last_number;
            let owner = entry.tenant().cloned();
            self.entries.insert(entry.number, entry.clone());
            self.of.entry(owner.clone()).or_default().push_back(entry.number);
            self.trim(&owner);
        }
    }

    /// Forgets the oldest entries where there are too many of one owner.
    fn trim(&mut self, owner: &Option<TenantId>) {
        let kept = if owner.is_some() { TENANT_LOG_KEPT } else { LOG_KEPT };
        // Who has no entries has none too many.
        let Some(numbers) = self.of.get_mut(owner) else { return };
        let surplus = numbers.len().saturating_sub(kept);
        for number in numbers.drain(..surplus) {
            self.entries.remove(&number);
        }
    }

    /// The entries of a tenant that was deleted are for operators from now on: its name is another's
    /// now. Time O(entries of operators and of the tenant · log entries).
    pub fn retire(&mut self, tenant: &TenantId) {
        // Nothing was ever logged for it.
        let Some(numbers) = self.of.remove(&Some(tenant.clone())) else { return };
        let operators = self.of.entry(None).or_default();
        operators.extend(numbers);
        operators.make_contiguous().sort_unstable();
        self.trim(&None);
    }

    /// The entries that `caller` may see with a number under `before`, the last first.
    pub fn before(
        &self,
        caller: &Caller,
        before: Option<u64>,
    ) -> Box<dyn Iterator<Item = &LogEntry> + '_> {
        match caller {
            Caller::Operator(_) => {
                let end = before.map_or(Bound::Unbounded, Bound::Excluded);
                let all = self.entries.range((Bound::Unbounded, end)).rev();
                Box::new(all.map(|(_, entry)| entry).filter(|entry| !entry.is_detail))
            }
            Caller::Tenant(tenant) => {
                let own = self.of.get(&Some(tenant.clone())).into_iter().flatten().rev();
                let own = own.skip_while(move |number| before.is_some_and(|end| **number >= end));
                Box::new(own.filter_map(|number| self.entries.get(number)))
            }
            Caller::Orchestrator(_) => Box::new(std::iter::empty()),
        }
    }
}

/// Common part of several entries.
type Shared = (LogKind, Option<CardId>, String);

/// Several entries with one cause become one for operators: a card that loses its power takes the state of hundreds of
/// DAGs with it. Each tenant still has those about its own DAGs. Time O(entries · log entries).
fn sum_up(tx: &mut Tx) {
    let shared = |entry: &LogEntry| -> Option<Shared> {
        Some((entry.kind, entry.card.clone(), entry.cause.clone()?))
    };
    let mut all: BTreeMap<Shared, Vec<&mut LogEntry>> = BTreeMap::new();
    for entry in tx.noted() {
        if let Some(of) = shared(entry) {
            all.entry(of).or_default().push(entry);
        }
    }
    let mut sums = Vec::new();
    for ((kind, card, cause), mut entries) in all {
        if entries.len() < 2 {
            continue;
        }
        entries.iter_mut().for_each(|entry| entry.is_detail = true);
        let regions: BTreeSet<RegionId> =
            entries.iter().flat_map(|entry| entry.regions.iter().copied()).collect();
        let dags: BTreeSet<&DagName> =
            entries.iter().filter_map(|entry| entry.dag.as_ref()).collect();
        let text = summary(kind, &cause, (entries.len(), &dags));
        sums.push((kind, card, regions, text));
    }
    for (kind, card, regions, text) in sums {
        let about = LogSubject {
            card: card.as_ref(),
            regions: regions.into_iter().collect(),
            ..LogSubject::default()
        };
        tx.note(kind, about, text);
    }
}

/// Many entries in a sentence: how many, why, and the names of some.
fn summary(kind: LogKind, cause: &str, (count, dags): (usize, &BTreeSet<&DagName>)) -> String {
    let some: Vec<String> =
        dags.iter().take(NAMED_MAX).map(|dag| format!("{}/{}", dag.tenant, dag.dag)).collect();
    let more = match dags.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let of = format!("{} DAGs ({}{more})", dags.len(), some.join(", "));
    match kind {
        LogKind::StateLost => format!("{count} states of {of} are lost: {cause}"),
        LogKind::PromiseBroken => format!("the promises of {of} are not kept: {cause}"),
        LogKind::PromiseKept => format!("the promises of {of} are kept again: {cause}"),
        _ => format!("{of}: {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::Timestamp;

    use super::*;

    fn dag(name: &str) -> DagName {
        let (tenant, dag) = name.split_once('/').expect("TENANT/DAG");
        let (tenant, dag) = (tenant.parse().expect("a label"), dag.parse().expect("a label"));
        DagName { tenant, dag }
    }

    fn numbers<'a>(entries: impl Iterator<Item = &'a LogEntry>) -> Vec<u64> {
        entries.map(|entry| entry.number).collect()
    }

    #[test]
    fn entries_are_numbered_over_events_and_read_backwards() {
        let (acme, beta) = (dag("acme/web"), dag("beta/web"));
        let mut log = Log::default();
        for dags in [&[&acme, &beta][..], &[], &[&acme]] {
            let mut tx = Tx::at(Timestamp::from_nanos(7));
            for dag in dags {
                let about = LogSubject { dag: Some(dag), ..LogSubject::default() };
                tx.note(LogKind::ScaleOut, about, "overloaded".into());
            }
            log.keep(&mut tx);
            assert!(tx.noted().all(|entry| entry.number > 0 && entry.at.as_nanos() == 7));
        }
        let operator = Caller::Operator("ada".into());
        assert_eq!(numbers(log.before(&operator, None)), [3, 2, 1]);
        assert_eq!(numbers(log.before(&operator, Some(3))), [2, 1]);
        assert_eq!(numbers(log.before(&Caller::Tenant(acme.tenant.clone()), None)), [3, 1]);
        assert_eq!(numbers(log.before(&Caller::Orchestrator("vmd".into()), None)), [0; 0]);
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let mut log = Log::default();
        for _ in 0..=LOG_KEPT {
            let mut tx = Tx::default();
            tx.note(LogKind::Overrun, LogSubject::default(), String::new());
            log.keep(&mut tx);
        }
        let operator = Caller::Operator("ada".into());
        let kept = numbers(log.before(&operator, None));
        assert_eq!((kept.len(), kept.first(), kept.last()), (LOG_KEPT, Some(&4_097), Some(&2)));
    }

    #[test]
    fn operators_get_one_entry_for_one_cause_and_each_tenant_its_own() {
        let card = CardId::new("card0").expect("a label");
        let dags: Vec<DagName> = (0..5).map(|n| dag(&format!("t{}/web{n}", n % 2))).collect();
        let mut log = Log::default();
        let mut tx = Tx::default();
        for (number, dag) in dags.iter().enumerate() {
            let regions = vec![RegionId(number as u8 % 3)];
            let about = LogSubject { regions, ..LogSubject::dag(&card, dag) };
            tx.note_of("no power", LogKind::StateLost, about, format!("it lost {number}"));
        }
        tx.note_of(
            "a defect",
            LogKind::StateLost,
            LogSubject::dag(&card, &dags[0]),
            "alone".into(),
        );
        log.keep(&mut tx);
        let texts = |caller: &Caller| -> Vec<String> {
            log.before(caller, None).map(|entry| entry.text.clone()).collect()
        };
        let sum = "5 states of 5 DAGs (t0/web0, t0/web2, t0/web4 and 2 more) are lost: no power";
        assert_eq!(texts(&Caller::Operator("ada".into())), [sum, "alone"]);
        let own = texts(&Caller::Tenant(dags[1].tenant.clone()));
        assert_eq!(own, ["it lost 3", "it lost 1"]);
        let sums = log.before(&Caller::Operator("ada".into()), None).next().expect("it is there");
        assert_eq!((sums.dag.as_ref(), sums.regions.len()), (None, 3));
        assert!(
            tx.noted().all(
                |entry| entry.is_detail != entry.is_visible_to(&Caller::Operator("ada".into()))
            )
        );
    }

    fn note(log: &mut Log, dag: Option<&DagName>) {
        let mut tx = Tx::default();
        tx.note(LogKind::Overrun, LogSubject { dag, ..LogSubject::default() }, String::new());
        log.keep(&mut tx);
    }

    #[test]
    fn a_tenant_pushes_out_only_its_own() {
        let (acme, beta) = (dag("acme/web"), dag("beta/web"));
        let (of_acme, of_beta) =
            (Caller::Tenant(acme.tenant.clone()), Caller::Tenant(beta.tenant.clone()));
        let operator = Caller::Operator("ada".into());
        let mut log = Log::default();
        note(&mut log, None);
        note(&mut log, Some(&beta));
        for _ in 0..=TENANT_LOG_KEPT {
            note(&mut log, Some(&acme));
        }
        assert_eq!(numbers(log.before(&of_beta, None)), [2]);
        let own = numbers(log.before(&of_acme, None));
        assert_eq!((own.len(), own.last()), (TENANT_LOG_KEPT, Some(&4)), "the third is gone");
        assert_eq!(numbers(log.before(&of_acme, Some(6))), [5, 4]);
        assert_eq!(numbers(log.before(&operator, Some(5))), [4, 2, 1]);
        log.retire(&acme.tenant);
        assert_eq!(numbers(log.before(&of_acme, None)), [0; 0], "its name may be another's now");
        assert_eq!(numbers(log.before(&operator, Some(5))), [4, 2, 1]);
    }
}

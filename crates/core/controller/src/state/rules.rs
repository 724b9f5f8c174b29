//! Classification rules: which packets go to which DAG, and which row of which card's classifier each
//! has. It knows rows by number only; `classification` writes their contents.
//!
//! Invariants, see [`Rules::check`]: no two rules of a card have one row, and of rules of one priority
//! on one card the rows rise with the ids.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{CardId, DagName, Rule, RuleId, TenantId, VmId};
use snic_tables::{RowKey, Table};

use crate::protocol::ControlError;
use crate::protocol::etag::{check_etag, etag};
use crate::state::tally::Tally;
use crate::store::records::{InvalidRecord, Record, RecordKey, RuleRecord};
use crate::store::tx::Tx;

/// VNIs have 24 bits.
const VNI_MAX: u32 = (1 << 24) - 1;
/// 0 stands for none, and 4,095 is reserved (802.1Q-2022, table 9-2).
const VLAN_MAX: u16 = 4_094;

/// A row of a card's classifier that no rule has any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VacatedRow {
    pub card: CardId,
    pub row: RowKey,
}

impl VacatedRow {
    const fn new(card: CardId, row: u16) -> Self {
        Self { card, row: RowKey { table: Table::Classifier, row } }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Rules {
    records: BTreeMap<RuleId, RuleRecord>,
    /// Those that lead to each DAG.
    of_dags: BTreeMap<DagName, BTreeSet<RuleId>>,
    /// The rows that they have.
    taken: BTreeMap<CardId, BTreeSet<u16>>,
    /// Number of rules that lead to DAGs of each tenant.
    of_tenants: Tally,
}

impl Rules {
    /// The rules that wrote these records.
    ///
    /// # Errors
    /// Two have one row, or one has a row that no classifier has.
    pub fn restore(records: Vec<RuleRecord>) -> Result<Self, InvalidRecord> {
        let mut rules = Self::default();
        for record in records {
            let is_row = usize::from(record.row) < Table::Classifier.rows();
            if !is_row || !rules.taken.entry(record.card.clone()).or_default().insert(record.row) {
                let key = RecordKey::Rule(record.rule.id);
                return Err(InvalidRecord::contradiction(key, "its row belongs to another rule"));
            }
            rules.add(record);
        }
        Ok(rules)
    }

    fn add(&mut self, record: RuleRecord) {
        let Rule { id, dag, .. } = &record.rule;
        self.of_tenants.add(&dag.tenant);
        self.of_dags.entry(dag.clone()).or_default().insert(id.clone());
        self.records.insert(id.clone(), record);
    }

    fn take(&mut self, id: &RuleId) -> Option<RuleRecord> {
        let record = self.records.remove(id)?;
        let dag = &record.rule.dag;
        self.of_tenants.remove(&dag.tenant);
        if let Some(of) = self.of_dags.get_mut(dag) {
            of.remove(id);
            if of.is_empty() {
                self.of_dags.remove(dag);
            }
        }
        Some(record)
    }

    pub fn get(&self, id: &RuleId) -> Option<&RuleRecord> {
        self.records.get(id)
    }

    /// All of them, by id.
    pub fn all(&self) -> impl Iterator<Item = &RuleRecord> {
        self.records.values()
    }

    /// Those that lead to a DAG, by id.
    pub fn of(&self, dag: &DagName) -> impl Iterator<Item = &RuleRecord> {
        let ids = self.of_dags.get(dag).into_iter().flatten();
        ids.filter_map(|id| self.records.get(id))
    }

    /// Etag that guards deletes of a rule.
    pub fn etag(record: &RuleRecord) -> String {
        let (id, created) = (&record.rule.id, record.created.as_nanos());
        match record.updates {
            0 => etag(&[id, &created]),
            updates => etag(&[id, &created, &updates]),
        }
    }

    fn take_row(&mut self, card: &CardId) -> Option<u16> {
        let rows = u16::try_from(Table::Classifier.rows()).unwrap_or(u16::MAX);
        let taken = self.taken.get(card);
        let row = (0..rows).find(|row| taken.is_none_or(|taken| !taken.contains(row)))?;
        self.taken.entry(card.clone()).or_default().insert(row);
        Some(row)
    }

    fn give_row(&mut self, card: &CardId, row: u16) {
        let taken = self.taken.get_mut(card).expect("a rule has a row of it");
        assert!(taken.remove(&row), "row {row} of {card} was taken for the rule that had it");
        if taken.is_empty() {
            self.taken.remove(card);
        }
    }

    /// A new rule on the card of its DAG, of an operator or of a machine. Gives the DAGs whose rows
    /// are to be written.
    ///
    /// # Errors
    /// Its id is taken, it matches nothing that can be matched, or the classifier is full.
    pub fn install(
        &mut self,
        tx: &mut Tx,
        rule: Rule,
        card: CardId,
        binding: Option<VmId>,
    ) -> Result<BTreeSet<DagName>, ControlError> {
        self.check_new(&rule)?;
        let row = self.take_row(&card).ok_or_else(no_row)?;
        let (id, dag) = (rule.id.clone(), rule.dag.clone());
        let (created, updates, updated) = (tx.now(), 0, None);
        let record = RuleRecord { rule, card, row, binding, created, updates, updated };
        tx.put(Record::Rule(record.clone()));
        self.add(record);
        let mut moved = self.order_rows(tx, &id);
        moved.insert(dag);
        Ok(moved)
    }

    /// Another rule in the place of the one of its id, which gives its row back. Gives that row, and the DAGs
    /// whose rows are to be written.
    ///
    /// # Errors
    /// It matches nothing that can be matched, or the classifier of another card is full; then nothing has
    /// changed.
    pub fn replace(
        &mut self,
        tx: &mut Tx,
        rule: Rule,
        card: CardId,
        binding: Option<VmId>,
    ) -> Result<(VacatedRow, BTreeSet<DagName>), ControlError> {
        self.check_replacement(&rule, &card)?;
        let before = self.take(&rule.id).expect("it was looked at before");
        self.give_row(&before.card, before.row);
        let row = self.take_row(&card).expect("there is one, or it was just given back");
        let (id, dag) = (rule.id.clone(), rule.dag.clone());
        let (updates, updated) = (before.updates.saturating_add(1), Some(tx.now()));
        let created = before.created;
        let record = RuleRecord { rule, card, row, binding, created, updates, updated };
        tx.put(Record::Rule(record.clone()));
        self.add(record);
        let mut moved = self.order_rows(tx, &id);
        moved.insert(dag);
        Ok((VacatedRow::new(before.card, before.row), moved))
    }

    /// Checks a rule that is to replace the one of its id, without doing so.
    ///
    /// # Errors
    /// The same as [`Rules::replace`] gives.
    pub fn check_replacement(&self, rule: &Rule, card: &CardId) -> Result<(), ControlError> {
        check_match(rule)?;
        match self.records.get(&rule.id) {
            Some(before) if before.card == *card => Ok(()),
            _ => self.check_free_rows(card, 1),
        }
    }

    /// The rules that end with a machine's binding, by id. Time O(rules).
    pub fn of_binding<'a>(&'a self, vm: &'a VmId) -> impl Iterator<Item = &'a RuleId> {
        self.all().filter(move |r| r.binding.as_ref() == Some(vm)).map(|record| &record.rule.id)
    }

    /// Number of rules that lead to a tenant's DAGs.
    pub fn count_of(&self, tenant: &TenantId) -> u32 {
        self.of_tenants.of(tenant)
    }

    /// # Errors
    /// Fewer than `needed` rows of a card's classifier are free.
    pub fn check_free_rows(&self, card: &CardId, needed: usize) -> Result<(), ControlError> {
        let taken = self.taken.get(card).map_or(0, BTreeSet::len);
        if Table::Classifier.rows() - taken >= needed { Ok(()) } else { Err(no_row()) }
    }

    /// # Errors
    /// Its id is taken, or it matches nothing that can be matched.
    pub fn check_new(&self, rule: &Rule) -> Result<(), ControlError> {
        if self.records.contains_key(&rule.id) {
            return Err(ControlError::exists(format!("classificationRules/{}", rule.id)));
        }
        check_match(rule)
    }

    /// Orders the rows of rules of one priority: the card takes the rule in the first row, and tenants were promised
    /// the first by id: so these rules' rows rise with their ids. Gives the DAGs whose rows are to be
    /// written. Time O(rules).
    fn order_rows(&mut self, tx: &mut Tx, id: &RuleId) -> BTreeSet<DagName> {
        let new = &self.records[id];
        let (card, priority) = (new.card.clone(), new.rule.priority);
        let alike = |r: &RuleRecord| r.card == card && r.rule.priority == priority;
        let mut rows: Vec<u16> = self.all().filter(|r| alike(r)).map(|r| r.row).collect();
        rows.sort_unstable();
        let mut moved = BTreeSet::new();
        for (record, row) in self.records.values_mut().filter(|r| alike(r)).zip(rows) {
            if record.row != row {
                record.row = row;
                tx.put(Record::Rule(record.clone()));
                moved.insert(record.rule.dag.clone());
            }
        }
        moved
    }

    /// # Errors
    /// It does not exist, it is not as it was read, or a machine has it.
    pub fn check_change(&self, id: &RuleId, etag: Option<&str>) -> Result<(), ControlError> {
        let resource = format!("classificationRules/{id}");
        let record = self.get(id).ok_or_else(|| ControlError::not_found(&resource))?;
        check_etag(&resource, etag, Self::etag(record))?;
        match &record.binding {
            Some(vm) if record.is_of_machine() => {
                let text = format!("it belongs to vmBindings/{vm}; unbind the machine instead");
                Err(ControlError::precondition(resource, text))
            }
            _ => Ok(()),
        }
    }

    /// Removes a rule; its row is to be emptied.
    pub fn remove(&mut self, tx: &mut Tx, id: &RuleId) -> VacatedRow {
        let record = self.take(id).expect("it was found, or a machine has it");
        tx.delete(RecordKey::Rule(id.clone()));
        self.give_row(&record.card, record.row);
        VacatedRow::new(record.card, record.row)
    }

    /// A DAG's rules go with it to another card, but not those of machines, whose functions are of
    /// the card that they are on. Those for which that card's classifier has no row stay behind, and
    /// lead nowhere. Gives the rows that are to be emptied, and the DAGs whose rows are to be written.
    /// Time O(rules).
    pub fn follow(
        &mut self,
        tx: &mut Tx,
        dag: &DagName,
        card: &CardId,
    ) -> (Vec<VacatedRow>, BTreeSet<DagName>) {
        let astray = |r: &&RuleRecord| r.card != *card && r.binding.is_none();
        let ids: Vec<RuleId> = self.of(dag).filter(astray).map(|r| r.rule.id.clone()).collect();
        let (mut vacated, mut moved) = (Vec::new(), BTreeSet::new());
        for id in ids {
            let Some(to) = self.take_row(card) else { break };
            let record = self.records.get_mut(&id).expect("it was among them above");
            let row = std::mem::replace(&mut record.row, to);
            let from = std::mem::replace(&mut record.card, card.clone());
            tx.put(Record::Rule(record.clone()));
            self.give_row(&from, row);
            vacated.push(VacatedRow::new(from, row));
            moved.extend(self.order_rows(tx, &id));
        }
        (vacated, moved)
    }

    /// Every invariant, recomputed from scratch; says which is broken. Time O(rules · log rules).
    pub fn check(&self) -> Result<(), String> {
        let mut taken: BTreeMap<CardId, BTreeSet<u16>> = BTreeMap::new();
        let mut last: BTreeMap<(&CardId, u16), u16> = BTreeMap::new();
        let mut of_dags: BTreeMap<DagName, BTreeSet<RuleId>> = BTreeMap::new();
        for record in self.all() {
            let id = &record.rule.id;
            if !taken.entry(record.card.clone()).or_default().insert(record.row) {
                return Err(format!("rule {id}: its row is another rule's"));
            }
            of_dags.entry(record.rule.dag.clone()).or_default().insert(id.clone());
            let before = last.insert((&record.card, record.rule.priority), record.row);
            if before.is_some_and(|before| before > record.row) {
                return Err(format!("rule {id}: its row is before that of a rule with a lower id"));
            }
        }
        if self.of_dags != of_dags {
            return Err("the rules of DAGs are not those that lead to them".into());
        }
        if self.taken != taken {
            return Err("the rows taken are not those of the rules".into());
        }
        Ok(())
    }
}

fn check_match(rule: &Rule) -> Result<(), ControlError> {
    let matches = &rule.matches;
    if *matches == snic_domain::Match::default() {
        let text = "it would match every packet; set at least one field";
        return Err(ControlError::invalid("rule.match", text));
    }
    if let Some(vni) = matches.vni.filter(|vni| *vni > VNI_MAX) {
        let text = format!("{vni} is not allowed: 0 to {VNI_MAX}");
        return Err(ControlError::invalid("rule.match.vni", text));
    }
    if let Some(vlan) = matches.vlan.filter(|vlan| !(1..=VLAN_MAX).contains(vlan)) {
        let text = format!("{vlan} is not allowed: 1 to {VLAN_MAX}");
        return Err(ControlError::invalid("rule.match.vlan", text));
    }
    for (field, prefix) in [("source", matches.source), ("destination", matches.destination)] {
        if let Some(prefix) = prefix.filter(|prefix| prefix.length > 32) {
            let text = format!("/{} is not allowed: /0 to /32", prefix.length);
            return Err(ControlError::invalid(format!("rule.match.{field}"), text));
        }
    }
    Ok(())
}

fn no_row() -> ControlError {
    ControlError::Exhausted {
        what: "classification rules of the card".into(),
        limit: Table::Classifier.rows() as u64,
        hint: "delete one first".into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{DagId, Match, TenantId};

    use super::*;

    fn card(number: usize) -> CardId {
        CardId::new(&format!("card{number}")).expect("a label")
    }

    fn dag(name: &str) -> DagName {
        let tenant = TenantId::new("acme").expect("a label");
        DagName { tenant, dag: DagId::new(name).expect("a label") }
    }

    fn id(id: &str) -> RuleId {
        RuleId::new(id).expect("a label")
    }

    fn rule(name: &str, priority: u16, dag: &DagName) -> Rule {
        let matches = Match { vni: Some(9), ..Match::default() };
        Rule { id: id(name), priority, matches, dag: dag.clone(), notes: Default::default() }
    }

    fn machine() -> VmId {
        "123e4567-e89b-12d3-a456-426614174000".parse().expect("a UUID")
    }

    fn install(rules: &mut Rules, name: &str, priority: u16) -> BTreeSet<DagName> {
        let rule = rule(name, priority, &dag(name));
        rules.install(&mut Tx::default(), rule, card(0), None).expect("there is room")
    }

    fn rows(rules: &Rules) -> Vec<(String, u16)> {
        rules.all().map(|r| (r.rule.id.to_string(), r.row)).collect()
    }

    fn named(rows: &[(&str, u16)]) -> Vec<(String, u16)> {
        rows.iter().map(|(name, row)| ((*name).to_owned(), *row)).collect()
    }

    #[test]
    fn rows_of_one_priority_rise_with_ids() {
        let mut rules = Rules::default();
        assert_eq!(install(&mut rules, "m", 3), BTreeSet::from([dag("m")]));
        assert_eq!(install(&mut rules, "z", 3), BTreeSet::from([dag("z")]));
        assert_eq!(install(&mut rules, "a", 9), BTreeSet::from([dag("a")]));
        // All that has to move is told, so that its rows are written again.
        assert_eq!(install(&mut rules, "b", 3), ["b", "m", "z"].map(dag).into());
        assert_eq!(rows(&rules), named(&[("a", 2), ("b", 0), ("m", 1), ("z", 3)]));
        rules.check().expect("consistent");
    }

    #[test]
    fn a_removed_rules_row_is_emptied_and_used_again() {
        let mut rules = Rules::default();
        for name in ["a", "b", "c"] {
            install(&mut rules, name, 3);
        }
        let mut tx = Tx::default();
        assert_eq!(rules.remove(&mut tx, &id("b")), VacatedRow::new(card(0), 1));
        assert_eq!(tx.writes(), [("rules/b".to_owned(), None)]);
        install(&mut rules, "d", 4);
        assert_eq!(rows(&rules), named(&[("a", 0), ("c", 2), ("d", 1)]));
        rules.check().expect("consistent");
    }

    #[test]
    fn rules_follow_their_dag_and_those_of_machines_stay() {
        let mut rules = Rules::default();
        let mut tx = Tx::default();
        let web = dag("web");
        let own = rule("own", 3, &web);
        rules.install(&mut tx, own, card(0), Some(machine())).expect("room");
        rules.install(&mut tx, rule("web", 3, &web), card(0), None).expect("room");
        rules.install(&mut tx, rule("zoo", 3, &dag("zoo")), card(1), None).expect("room");
        let (vacated, moved) = rules.follow(&mut tx, &web, &card(1));
        assert_eq!(vacated, [VacatedRow::new(card(0), 1)]);
        assert_eq!(moved, ["web", "zoo"].map(dag).into());
        let of = |name: &str| rules.get(&id(name)).map(|r| (r.card.clone(), r.row));
        assert_eq!(of("own"), Some((card(0), 0)));
        assert_eq!((of("web"), of("zoo")), (Some((card(1), 0)), Some((card(1), 1))));
        rules.check().expect("consistent");
        let (vacated, moved) = rules.follow(&mut tx, &web, &card(1));
        assert!(vacated.is_empty() && moved.is_empty(), "it is there already");
    }

    #[test]
    fn where_no_row_is_free_a_rule_is_rejected_or_stays_behind() {
        let mut rules = Rules::default();
        let mut tx = Tx::default();
        for number in 0..Table::Classifier.rows() {
            let full = rule(&format!("r{number:04}"), 3, &dag("many"));
            rules.install(&mut tx, full, card(0), None).expect("a row is free");
        }
        let more = rules.install(&mut tx, rule("z", 3, &dag("z")), card(0), None);
        assert!(matches!(more, Err(ControlError::Exhausted { .. })), "{more:?}");
        rules.install(&mut tx, rule("z", 3, &dag("z")), card(1), None).expect("room");
        let before = tx.clone();
        let (vacated, moved) = rules.follow(&mut tx, &dag("z"), &card(0));
        assert!(vacated.is_empty() && moved.is_empty());
        assert_eq!(tx, before);
        rules.check().expect("consistent");
    }

    #[test]
    fn deletions_are_checked_against_machines_and_etags() {
        let mut rules = Rules::default();
        let own = rule("own", 3, &dag("web"));
        rules.install(&mut Tx::default(), own, card(0), Some(machine())).expect("room");
        install(&mut rules, "web", 3);
        let unknown = rules.check_change(&id("none"), None);
        assert!(matches!(unknown, Err(ControlError::NotFound { .. })), "{unknown:?}");
        let own = rules.check_change(&id("own"), None);
        assert!(matches!(own, Err(ControlError::Precondition { .. })), "{own:?}");
        let old = rules.check_change(&id("web"), Some("old"));
        assert!(matches!(old, Err(ControlError::EtagMismatch { .. })), "{old:?}");
        let now = Rules::etag(rules.get(&id("web")).expect("it is there"));
        assert_eq!(rules.check_change(&id("web"), Some(&now)), Ok(()));
    }

    #[test]
    fn rules_that_match_nothing_or_everything_are_rejected() {
        let rules = Rules::default();
        let field = |matches: Match| {
            let rule = Rule { matches, ..rule("r", 3, &dag("web")) };
            match rules.check_new(&rule) {
                Err(ControlError::Invalid(fields)) => fields[0].field.clone(),
                other => panic!("{rule:?}: {other:?}"),
            }
        };
        assert_eq!(field(Match::default()), "rule.match");
        let vni = Match { vni: Some(VNI_MAX + 1), ..Match::default() };
        assert_eq!(field(vni), "rule.match.vni");
        for vlan in [0, VLAN_MAX + 1] {
            let vlan = Match { vlan: Some(vlan), ..Match::default() };
            assert_eq!(field(vlan), "rule.match.vlan");
        }
    }

    proptest! {
        /// Whatever comes, goes and moves: no two rules share a row, the order is that of the ids, and
        /// the records are enough to make the rules again.
        #[test]
        fn rows_are_nobodys_twice(acts in prop::collection::vec((0u8..3, 0usize..8, 0usize..3), 1..60)) {
            let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let mut rules = Rules::default();
            let mut tx = Tx::default();
            for (act, which, at) in acts {
                let (name, to) = (names[which], card(at % 2));
                let is_there = rules.get(&id(name)).is_some();
                match act {
                    0 if !is_there => {
                        let priority = u16::try_from(at).expect("small");
                        let new = rule(name, priority, &dag(names[which / 2]));
                        rules.install(&mut tx, new, to, None).expect("there is room");
                    }
                    1 if is_there => {
                        rules.remove(&mut tx, &id(name));
                    }
                    _ => {
                        rules.follow(&mut tx, &dag(names[which / 2]), &to);
                    }
                }
                prop_assert_eq!(rules.check(), Ok(()));
            }
            let mut last: BTreeMap<&str, RuleRecord> = BTreeMap::new();
            for (key, value) in tx.writes() {
                match value.as_ref().map(|value| Record::parse(key, value)) {
                    Some(Ok(Record::Rule(record))) => last.insert(key, record),
                    None => last.remove(key.as_str()),
                    other => panic!("{key}: {other:?}"),
                };
            }
            let again = Rules::restore(last.into_values().collect()).expect("our own records");
            prop_assert_eq!(&again.records, &rules.records);
            prop_assert_eq!(again.check(), Ok(()));
        }
    }
}

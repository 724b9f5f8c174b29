//! The DAGs that were refused lately: from them it is said which bitstreams are worth building, so
//! they are kept over a restart.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use snic_domain::{Dag, DagName, DagSpec, TenantId, Timestamp};

use crate::protocol::ControlError;
use crate::records::key;
use crate::state::Controller;
use crate::tx::Tx;

/// How many are kept. More would make a recommendation slow, and the oldest tell little.
const KEPT_MAX: usize = 64;

/// A DAG that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRecord {
    /// Its name.
    pub name: DagName,
    /// What it wanted.
    pub spec: DagSpec,
    /// When.
    pub at: Timestamp,
}

/// All of them, each name once, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefusedDags(VecDeque<RefusedRecord>);

impl RefusedDags {
    /// As they were stored.
    pub(crate) fn recover(mut records: Vec<RefusedRecord>) -> Self {
        records.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
        Self(records.into())
    }
}

impl Controller {
    /// Remembers a DAG that was refused for want of room, the latest of its name; forgets the
    /// oldest.
    pub(crate) fn note_refused(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        spec: &DagSpec,
        error: &ControlError,
    ) {
        let is_known = self.refused.0.back().is_some_and(|r| r.name == *name && r.spec == *spec);
        if !matches!(error, ControlError::Refused(_)) || is_known {
            return;
        }
        self.refused.0.retain(|record| record.name != *name);
        if self.refused.0.len() == KEPT_MAX
            && let Some(oldest) = self.refused.0.pop_front()
        {
            tx.delete(key::refused(&oldest.name));
        }
        let record = RefusedRecord { name: name.clone(), spec: spec.clone(), at: self.now };
        tx.put(key::refused(name), &record);
        self.refused.0.push_back(record);
    }

    /// It was admitted after all.
    pub(crate) fn forget_refused(&mut self, tx: &mut Tx, name: &DagName) {
        self.forget_refused_where(tx, |record| record.name == *name);
    }

    /// Nobody wants them any more.
    pub(crate) fn forget_refused_of(&mut self, tx: &mut Tx, tenant: &TenantId) {
        self.forget_refused_where(tx, |record| record.name.tenant == *tenant);
    }

    fn forget_refused_where(&mut self, tx: &mut Tx, which: impl Fn(&RefusedRecord) -> bool) {
        for record in self.refused.0.iter().filter(|record| which(record)) {
            tx.delete(key::refused(&record.name));
        }
        self.refused.0.retain(|record| !which(record));
    }

    /// The DAGs that have no place now, and those that were refused; each name once, by name.
    pub(crate) fn dags_without_place(&self) -> Vec<(DagName, Dag)> {
        let refused = self.refused.0.iter().map(|record| (&record.name, &record.spec));
        let waiting =
            self.unscheduled.iter().filter_map(|name| Some((name, self.dags.get(name)?.spec())));
        let all: BTreeMap<&DagName, &DagSpec> = refused.chain(waiting).collect();
        let dag =
            |(name, spec): (&DagName, &DagSpec)| Some((name.clone(), Dag::new(spec.clone()).ok()?));
        all.into_iter().filter_map(dag).collect()
    }
}

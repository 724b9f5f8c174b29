//! Functions of virtual machines, by the DAG that they lead to.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{DagName, VmId};

use crate::protocol::BindingRecord;

/// Functions that machines hold, as they were when the book was last told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FunctionsByDag {
    /// The DAG that each function of a machine leads to.
    machines: BTreeMap<VmId, Vec<DagName>>,
    counts: BTreeMap<DagName, u32>,
}

impl FunctionsByDag {
    /// Those of all bindings.
    pub fn of<'a>(bindings: impl Iterator<Item = &'a BindingRecord>) -> Self {
        let mut all = Self::default();
        for record in bindings {
            all.follow(&record.spec.vm, Some(record), &mut BTreeSet::new());
        }
        all
    }

    /// Functions that lead to a DAG.
    pub fn count(&self, dag: &DagName) -> u32 {
        self.counts.get(dag).copied().unwrap_or_default()
    }

    /// A machine has the functions of its binding, and no others; adds the DAGs that have more or fewer now. Time O(its functions).
    pub fn follow(
        &mut self,
        vm: &VmId,
        binding: Option<&BindingRecord>,
        changed: &mut BTreeSet<DagName>,
    ) {
        let functions = binding.into_iter().flat_map(|record| &record.functions);
        let now: Vec<DagName> = functions.map(|function| function.dag.clone()).collect();
        if self.machines.get(vm).map_or(&[][..], Vec::as_slice) == now {
            return;
        }
        for dag in self.machines.remove(vm).into_iter().flatten() {
            let count = self.counts.entry(dag.clone()).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&dag);
            }
            changed.insert(dag);
        }
        for dag in &now {
            *self.counts.entry(dag.clone()).or_default() += 1;
        }
        changed.extend(now.iter().cloned());
        if !now.is_empty() {
            self.machines.insert(vm.clone(), now);
        }
    }
}

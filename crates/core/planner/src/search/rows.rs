//! Rows of the card's tables that placements take.

use std::cmp::Ordering;

use super::{ChainTask, PartPlacement, Search};
use crate::TableRows;

impl Search<'_, '_> {
    /// Whether the tables have the rows that every placement takes: those of the fewest parts that may be
    /// used now.
    pub(super) fn has_rows_min(&mut self) -> bool {
        let parts = |chain: &ChainTask| usize::from(chain.parts_min[0]);
        let in_stage = |stage| self.chains.iter().filter(move |chain| chain.stage == stage);
        let passes = (0..self.stages).map(|stage| in_stage(stage).map(parts).max().unwrap_or(1));
        let chains: usize = self.chains.iter().map(parts).sum();
        let rows = rows_of(passes.sum(), chains, chains);
        let has_rows = rows.fits(self.view.job.rows_left);
        if !has_rows && self.may_load {
            self.blocked.rows_min.get_or_insert(rows);
        }
        has_rows
    }

    /// Whether what is placed so far fits the tables.
    pub(super) fn has_rows(&self) -> bool {
        self.rows(self.passes()).fits(self.view.job.rows_left)
    }

    /// Scheduler passes: each part of a branch is a stage of its own, in parallel with the other branches.
    pub(super) fn passes(&self) -> usize {
        let parts_of = |chain| self.parts.iter().filter(|part| part.chain == chain).count();
        (0..self.stages)
            .map(|stage| {
                let chains = self.chains.iter().enumerate().filter(|(_, c)| c.stage == stage);
                chains.map(|(chain, _)| parts_of(chain)).max().unwrap_or(1)
            })
            .sum()
    }

    /// The fewest passes of all that may follow what is placed and the part that is being placed.
    pub(super) fn passes_min(&self, at: &PartPlacement) -> usize {
        let parts_of = |chain| self.parts.iter().filter(|part| part.chain == chain).count();
        // Chains come stage by stage.
        let (mut passes, mut stage, mut longest) = (0, 0, 0);
        for (index, chain) in self.chains.iter().enumerate() {
            let parts = match index.cmp(&at.chain) {
                Ordering::Less => parts_of(index),
                Ordering::Equal => parts_of(index) + 1 + usize::from(chain.parts_min[at.end]),
                Ordering::Greater => usize::from(chain.parts_min[0]),
            };
            if chain.stage != stage {
                (passes, stage, longest) = (passes + longest, chain.stage, 0);
            }
            longest = longest.max(parts);
        }
        passes + longest
    }

    pub(super) fn rows(&self, passes: usize) -> TableRows {
        let instances = self.parts.iter().map(|part| part.paths.len()).sum();
        rows_of(passes, self.parts.len(), instances)
    }
}

/// Rows of one DAG.
fn rows_of(stages: usize, chains: usize, instances: usize) -> TableRows {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    TableRows { dags: 1, stages: count(stages), chains: count(chains), instances: count(instances) }
}

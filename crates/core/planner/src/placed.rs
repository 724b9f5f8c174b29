//! A staging whose chains are all placed, before it becomes a plan.

use smallvec::SmallVec;
use snic_domain::{Cycles, Form};

use crate::form::Nodes;
use crate::search::{ChainPart, Solution};

/// A staging whose chains are all placed.
pub(crate) struct PlacedStaging<'a> {
    pub(crate) form: Form,
    /// The staging's chains, stage by stage.
    pub(crate) chains: Vec<Nodes>,
    /// Ranges of chains of the stages.
    pub(crate) stages: Vec<std::ops::Range<usize>>,
    pub(crate) solution: Solution<'a>,
    /// With the cuts that the solution makes.
    pub(crate) latency: Cycles,
}

impl PlacedStaging<'_> {
    pub(crate) fn parts_of(&self, chain: usize) -> impl Iterator<Item = &ChainPart> {
        self.solution.parts.iter().filter(move |part| part.chain == chain)
    }

    pub(crate) fn nodes(&self, part: &ChainPart) -> &[u8] {
        &self.chains[part.chain][part.start..part.end]
    }

    /// The stages of the mapping: the n-th parts of a stage's branches side by side.
    pub(crate) fn passes(&self) -> impl Iterator<Item = SmallVec<[&ChainPart; 4]>> {
        self.stages.iter().flat_map(move |chains| {
            let longest = chains.clone().map(|c| self.parts_of(c).count()).max().unwrap_or(0);
            (0..longest).map(move |n| {
                chains.clone().filter_map(|chain| self.parts_of(chain).nth(n)).collect()
            })
        })
    }
}

//! On-board memory that a tenant's DAGs use, and what its quota allows.
//!
//! Each card allocates an NT type's memory once for all DAGs of a tenant, so a type counts once for each card
//! that it is on. A DAG without a place counts what it takes at least: types that no card has for the tenant.
//! So the number is what the ledgers of all cards charge, while no DAG moves or waits. During an update
//! only its new spec counts: whether the next DAG is within the quota does not depend on how fast a card is.

use std::collections::BTreeMap;

use snic_domain::{ByteSize, CardId, DagSpec, NtTypeId, TenantId};
use snic_planner::{PlanCatalogue, allocated_memory};

use crate::protocol::ControlError;

/// The memory of each NT type of a DAG, as cards allocate it.
pub(crate) type Pages = BTreeMap<NtTypeId, ByteSize>;

/// The memory of each NT type of a DAG, as cards allocate it.
pub(crate) fn pages_of(catalogue: &PlanCatalogue, spec: &DagSpec) -> Pages {
    let memory = |id: &NtTypeId| catalogue.nt(id).map(allocated_memory).unwrap_or_default();
    spec.nodes.iter().map(|node| (node.nt.clone(), memory(&node.nt))).collect()
}

/// One NT type of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Space {
    /// Memory that a card allocates for it.
    size: ByteSize,
    /// Number of the tenant's DAGs with it on each card.
    cards: BTreeMap<CardId, u32>,
    /// Number of those without a place.
    waiting: u32,
}

impl Space {
    fn counted(&self) -> ByteSize {
        ByteSize::from_bytes(self.size.get().saturating_mul(self.cards.len().max(1) as u64))
    }

    fn is_unused(&self) -> bool {
        self.cards.is_empty() && self.waiting == 0
    }
}

/// The memory that a tenant's DAGs use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    spaces: BTreeMap<NtTypeId, Space>,
    total: ByteSize,
}

impl MemoryUse {
    /// Memory that counts against the quota.
    pub const fn total(&self) -> ByteSize {
        self.total
    }

    /// Counts a DAG in, on a card or without a place.
    pub fn add(&mut self, card: Option<&CardId>, pages: &Pages) {
        for (nt, size) in pages {
            self.total += self.added(card, nt, *size);
            let none = Space { size: *size, cards: BTreeMap::new(), waiting: 0 };
            let space = self.spaces.entry(nt.clone()).or_insert(none);
            match card {
                Some(card) => *space.cards.entry(card.clone()).or_default() += 1,
                None => space.waiting += 1,
            }
        }
    }

    /// Counts a DAG out that was counted in with the same arguments.
    pub fn remove(&mut self, card: Option<&CardId>, pages: &Pages) {
        for nt in pages.keys() {
            let Some(space) = self.spaces.get_mut(nt) else { continue };
            let before = space.counted();
            match card {
                Some(card) => {
                    if let Some(dags) = space.cards.get_mut(card) {
                        *dags -= 1;
                        if *dags == 0 {
                            space.cards.remove(card);
                        }
                    }
                }
                None => space.waiting -= 1,
            }
            let after = if space.is_unused() { ByteSize::ZERO } else { space.counted() };
            if space.is_unused() {
                self.spaces.remove(nt);
            }
            self.total = self.total - before + after;
        }
    }

    /// Memory that an NT type adds on a card, or for a DAG without a place.
    fn added(&self, card: Option<&CardId>, nt: &NtTypeId, size: ByteSize) -> ByteSize {
        let is_counted = match (self.spaces.get(nt), card) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(space), Some(card)) => space.cards.is_empty() || space.cards.contains_key(card),
        };
        if is_counted { ByteSize::ZERO } else { size }
    }

    /// The same number, and of its parts only these NT types.
    fn part(&self, nts: impl Iterator<Item = NtTypeId>) -> Self {
        let space = |nt: NtTypeId| self.spaces.get(&nt).cloned().map(|space| (nt, space));
        Self { spaces: nts.filter_map(space).collect(), total: self.total }
    }
}

/// A DAG as it is counted: its NT types, and its card if it has a place.
pub(crate) type CountedDag<'a> = (&'a Pages, Option<&'a CardId>);

/// Memory that a tenant's quota allows for DAGs that are new or changed.
#[derive(Debug, Clone)]
pub(crate) struct MemoryAllowance {
    tenant: TenantId,
    limit: ByteSize,
    /// Memory in use.
    used: ByteSize,
    /// The same without the DAG that is changed.
    others: MemoryUse,
}

/// A DAG would make a tenant use more memory than its quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverMemory {
    tenant: TenantId,
    limit: ByteSize,
    used: ByteSize,
    asked: ByteSize,
}

impl From<OverMemory> for ControlError {
    fn from(over: OverMemory) -> Self {
        let OverMemory { tenant, limit, used, asked } = over;
        Self::over_quota(&tenant, "memory_max_bytes", limit, used, asked)
    }
}

impl MemoryAllowance {
    /// For DAGs with the NT types `nts`, in place of one that is counted as `before`.
    /// Time O(`nts` · cards · log).
    pub fn new(
        tenant: &TenantId,
        limit: ByteSize,
        own: &MemoryUse,
        before: Option<CountedDag<'_>>,
        nts: impl Iterator<Item = NtTypeId>,
    ) -> Self {
        let known = before.iter().flat_map(|(pages, _)| pages.keys().cloned());
        let known: Vec<NtTypeId> = known.chain(nts).collect();
        let mut others = own.part(known.into_iter());
        let used = others.total;
        if let Some((pages, card)) = before {
            others.remove(card, pages);
        }
        Self { tenant: tenant.clone(), limit, used, others }
    }

    #[cfg(test)]
    pub fn unlimited() -> Self {
        let tenant = TenantId::new("acme").expect("a label");
        let limit = ByteSize::from_bytes(u64::MAX);
        Self::new(&tenant, limit, &MemoryUse::default(), None, std::iter::empty())
    }

    /// Whether a DAG with these NT types is within the quota on a card; without one, wherever it goes. What takes
    /// no more than before always is.
    ///
    /// # Errors
    /// It would be beyond it; says by how much.
    pub fn check(&self, card: Option<&CardId>, pages: &Pages) -> Result<(), OverMemory> {
        let added = pages.iter().map(|(nt, size)| self.others.added(card, nt, *size));
        let asked = self.others.total + added.sum();
        if asked <= self.limit || asked <= self.used {
            return Ok(());
        }
        let Self { tenant, limit, used, .. } = self;
        Err(OverMemory { tenant: tenant.clone(), limit: *limit, used: *used, asked })
    }

    /// A DAG has got a place: the next ones are looked at beside it.
    pub fn count_placed(&mut self, card: Option<&CardId>, pages: &Pages) {
        self.others.add(card, pages);
        self.used = self.others.total;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn nt(number: usize) -> NtTypeId {
        NtTypeId::new(["aes", "lb", "nat"][number]).expect("a label")
    }

    fn card(number: usize) -> Option<CardId> {
        let id = ["card0", "card1"].get(number)?;
        Some(CardId::new(id).expect("a label"))
    }

    /// A type takes 2, 4 or 8 MiB.
    fn pages(nts: &BTreeSet<usize>) -> Pages {
        nts.iter().map(|number| (nt(*number), ByteSize::from_bytes((2 << number) * MIB))).collect()
    }

    type Dags = Vec<(BTreeSet<usize>, usize)>;

    /// The number from scratch: pairs of type and card, and types without a card.
    fn counted(dags: &Dags) -> u64 {
        let at = |number: usize| -> BTreeSet<usize> {
            let with = dags.iter().filter(|(nts, _)| nts.contains(&number));
            with.map(|(_, card)| *card).collect()
        };
        (0..3)
            .map(|number| {
                let (cards, size) = (at(number), (2u64 << number) * MIB);
                let placed = cards.iter().filter(|card| **card < 2).count() as u64;
                size * if cards.is_empty() { 0 } else { placed.max(1) }
            })
            .sum()
    }

    fn dag() -> impl Strategy<Value = (BTreeSet<usize>, usize)> {
        (prop::collection::btree_set(0usize..3, 1..4), 0usize..3)
    }

    proptest! {
        /// However DAGs come, go and move: the number is that from scratch, and what a new or
        /// changed one may take is what it is then.
        #[test]
        fn memory_is_counted_by_card(
            dags in prop::collection::vec(dag(), 0..8),
            gone in prop::collection::vec(0usize..8, 0..6),
            new in dag(),
            limit in 0u64..40,
            changes in any::<prop::sample::Index>(),
        ) {
            let mut own = MemoryUse::default();
            let mut left = dags.clone();
            dags.iter().for_each(|(nts, at)| own.add(card(*at).as_ref(), &pages(nts)));
            for at in gone.into_iter().filter(|at| *at < dags.len()) {
                if at < left.len() {
                    let (nts, at) = left.remove(at);
                    own.remove(card(at).as_ref(), &pages(&nts));
                }
                prop_assert_eq!(own.total().get(), counted(&left));
            }
            prop_assert_eq!(own == MemoryUse::default(), left.is_empty());

            let before = (!left.is_empty()).then(|| changes.index(left.len()));
            let mut after = left.clone();
            let old = before.map(|at| after.remove(at));
            after.push(new.clone());
            let old = old.map(|(nts, at)| (pages(&nts), card(at)));
            let limit = limit * MIB;
            let mut allows = MemoryAllowance::new(
                &TenantId::new("acme").expect("a label"),
                ByteSize::from_bytes(limit),
                &own,
                old.as_ref().map(|(pages, card)| (pages, card.as_ref())),
                new.0.iter().map(|number| nt(*number)),
            );
            let is_allowed = allows.check(card(new.1).as_ref(), &pages(&new.0)).is_ok();
            let asked = counted(&after);
            prop_assert_eq!(is_allowed, asked <= limit || asked <= own.total().get());
            allows.count_placed(card(new.1).as_ref(), &pages(&new.0));
            prop_assert_eq!(allows.used.get(), asked);
            prop_assert!(allows.check(card(new.1).as_ref(), &pages(&new.0)).is_ok(), "it is there");
        }
    }
}

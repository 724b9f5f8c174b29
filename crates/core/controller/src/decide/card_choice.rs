//! Choice of a host's card for a DAG: first by the affinities of its tenant's DAGs, then by the policy.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{CardAffinity, CardId, DagName, DagSpec, Infeasible, Resource, Shortage};
use snic_planner::{Ledger, Plan};

use crate::protocol::{CardOrder, Choice};

/// A DAG that has a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub name: &'a DagName,
    pub affinity: &'a CardAffinity,
    pub card: &'a CardId,
}

/// Cards that a DAG may go to, by its affinity and those of its tenant's other DAGs.
#[derive(Debug, Clone, Default)]
pub(crate) struct CardWishes {
    /// The fleet assigned it to this one.
    only: Option<CardId>,
    /// Required: on the card of these DAGs.
    with: BTreeMap<DagName, CardId>,
    /// Required: not on the card of these DAGs.
    apart: BTreeMap<DagName, CardId>,
    /// Preferred: one of these cards.
    rather_with: Vec<CardId>,
    /// Preferred: none of these cards.
    rather_apart: Vec<CardId>,
}

impl CardWishes {
    /// The fleet assigned the DAG to a card. It looked at affinities, too.
    pub fn only(card: &CardId) -> Self {
        Self { only: Some(card.clone()), ..Self::default() }
    }

    /// Time O(DAGs of the tenant · log names).
    pub fn of<'a>(
        name: &DagName,
        affinity: &CardAffinity,
        others: impl Iterator<Item = Site<'a>>,
    ) -> Self {
        let mut wishes = Self::default();
        for site in others.filter(|site| site.name != name) {
            if affinity.together_with.contains(site.name) {
                wishes.wish_with(site, affinity.preferred);
            }
            if affinity.apart_from.contains(site.name) {
                wishes.wish_apart(site, affinity.preferred);
            }
            if site.affinity.apart_from.contains(name) {
                wishes.wish_apart(site, site.affinity.preferred);
            }
        }
        wishes
    }

    fn wish_with(&mut self, site: Site<'_>, preferred: bool) {
        if preferred {
            self.rather_with.push(site.card.clone());
        } else {
            self.with.insert(site.name.clone(), site.card.clone());
        }
    }

    fn wish_apart(&mut self, site: Site<'_>, preferred: bool) {
        if preferred {
            self.rather_apart.push(site.card.clone());
        } else {
            self.apart.insert(site.name.clone(), site.card.clone());
        }
    }

    /// Whether there is no rule and no preference.
    pub fn is_none(&self) -> bool {
        let Self { only, with, apart, rather_with, rather_apart } = self;
        only.is_none()
            && with.is_empty()
            && apart.is_empty()
            && rather_with.is_empty()
            && rather_apart.is_empty()
    }

    /// Whether the DAG may go there.
    pub fn allow(&self, card: &CardId) -> bool {
        self.only.as_ref().is_none_or(|only| only == card)
            && self.with.values().all(|with| with == card)
            && self.apart.values().all(|of| of != card)
    }

    /// Number of preferences that would not be met there.
    pub fn unmet(&self, card: &CardId) -> usize {
        let with = self.rather_with.iter().filter(|with| *with != card);
        with.count() + self.rather_apart.iter().filter(|of| *of == card).count()
    }

    /// The refusal if no card is allowed.
    pub fn no_card(&self) -> Infeasible {
        let named = |word: &str, dags: &BTreeMap<DagName, CardId>| {
            dags.iter().map(|(dag, card)| format!("{word} {dag} on {card}")).collect::<Vec<_>>()
        };
        let only = self.only.iter().map(|card| format!("on {card}, as the fleet assigned it"));
        let rules = [named("with", &self.with), named("apart from", &self.apart)];
        let rules = only.chain(rules.concat()).collect::<Vec<_>>();
        let detail = format!("it has to be {}", rules.join(", "));
        let (resource, nodes) = (Resource::Cards, Vec::new());
        Infeasible {
            shortages: vec![Shortage { resource, required: 1, available: 0, nodes, detail }],
        }
    }
}

/// The cards of those DAGs of a tenant that affinities refer to, or that have one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sites {
    by_name: BTreeMap<DagName, (CardAffinity, CardId)>,
}

impl Sites {
    /// The wishes of those placed DAGs that keep apart from others, or that an affinity of `candidates` names.
    pub fn of<'a>(
        placed: impl Iterator<Item = Site<'a>>,
        candidates: impl Iterator<Item = &'a DagSpec>,
    ) -> Self {
        let mut named: BTreeSet<&DagName> = BTreeSet::new();
        for CardAffinity { together_with, apart_from, .. } in
            candidates.map(|spec| &spec.card_affinity)
        {
            named.extend(together_with.iter().chain(apart_from));
        }
        let counts =
            |site: &Site<'_>| !site.affinity.apart_from.is_empty() || named.contains(site.name);
        let mut sites = Self::default();
        for Site { name, affinity, card } in placed.filter(counts) {
            sites.by_name.insert(name.clone(), (affinity.clone(), card.clone()));
        }
        sites
    }

    /// Notes the card of a newly placed DAG.
    pub fn count_placed(&mut self, name: &DagName, affinity: &CardAffinity, card: &CardId) {
        self.by_name.insert(name.clone(), (affinity.clone(), card.clone()));
    }

    pub fn wishes(&self, name: &DagName, affinity: &CardAffinity) -> CardWishes {
        let sites = self.by_name.iter();
        CardWishes::of(
            name,
            affinity,
            sites.map(|(name, (affinity, card))| Site { name, affinity, card }),
        )
    }
}

/// Rank of a card before its content is looked at, the lowest first: whether it does not answer, whether the
/// tenant would be beyond its quota of memory there, and how many preferences it does not meet.
pub(crate) type CardRank = (bool, bool, usize);

/// Rank of a card under the policy, the lowest first; cards of one rank come by id.
pub(crate) fn fill_rank(order: CardOrder, ledger: &Ledger) -> u64 {
    match order {
        CardOrder::Pack => u64::MAX - ledger.promised_ppb(),
        CardOrder::Spread | CardOrder::Headroom => ledger.promised_ppb(),
    }
}

/// The first place of cards in their order, or among the best ranks the one that takes least of its card. Else
/// what the first card lacks, if there is one.
pub(crate) fn first_place(
    order: CardOrder,
    mut places: impl Iterator<Item = (CardRank, Result<Choice, Infeasible>)>,
) -> Result<Choice, Option<Infeasible>> {
    let mut refusal = None;
    let mut placed = places.by_ref().filter_map(|(rank, place)| match place {
        Ok(choice) => Some((rank, choice)),
        Err(refused) => {
            refusal.get_or_insert(refused);
            None
        }
    });
    let chosen = match order {
        CardOrder::Pack | CardOrder::Spread => placed.next(),
        CardOrder::Headroom => placed.min_by_key(|(rank, choice)| {
            let Plan { loads, mapping, .. } = &choice.plan;
            let replaced = loads.iter().filter(|load| load.replaces.is_some()).count();
            (*rank, loads.len(), replaced, mapping.stages.len())
        }),
    };
    chosen.map(|(_, choice)| choice).ok_or(refusal)
}

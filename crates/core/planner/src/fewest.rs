//! Number of further regions that a DAG would need, for its rejection.
//!
//! If every node may be a part of its own, a DAG has a feasible placement exactly if some choice of
//! loads leaves every NT the bandwidth of all nodes that run it (see `search`). So the number
//! follows from sums: regions like those of the card are added, one by one, until some choice
//! suffices. Ports, credits, memory and rows are not counted: with them it may take more regions,
//! never fewer.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::candidates::bitstreams;
use crate::catalogue::PhysicalChain;
use crate::classes::{Class, fits_region};
use crate::effort::Effort;
use crate::job::NtTotal;
use crate::view::{View, fresh_bandwidth};

/// Beyond this many missing regions, the exact number is of no use.
const MORE_MAX: u64 = 1_000;

/// Most offers that are compared with each other, which takes the square of their number.
const REPLACED_MAX: usize = 32;

/// Sum for each NT of the DAG, in kbit/s; negative where it is short.
type Sums = SmallVec<[i64; 8]>;
/// Number of regions of each class that are not loaded yet.
type Classes = SmallVec<[u32; 4]>;

/// Regions without which a DAG has no feasible placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FurtherRegions {
    /// Regions that can be loaded and fit a bitstream with an NT of the DAG.
    pub(crate) available: u64,
    /// Number of further regions that it needs; these are like regions of the card.
    pub(crate) more: u64,
    /// Whether `more` is the number needed; otherwise it is a lower bound.
    pub(crate) is_exact: bool,
}

/// Change that a load would make in the bandwidth that a region serves.
#[derive(Clone, Copy)]
struct Offer {
    /// Where its change begins in [`Finder::changes`].
    change: usize,
    /// The class of regions that it is for; `None` is a further region.
    class: Option<usize>,
    /// The index of its bitstream in [`Finder::chains`].
    chain: usize,
    rank: OfferRank,
}

/// Better offers first: existing regions before additional ones, then by the number of NTs that
/// gain bandwidth, then by the total gain.
type OfferRank = (bool, Reverse<u64>, Reverse<i64>);

/// The number of NTs to which a load adds bandwidth.
fn adds(change: &[i64]) -> u64 {
    change.iter().filter(|change| **change > 0).count() as u64
}

struct Finder<'a> {
    chains: SmallVec<[&'a PhysicalChain; 16]>,
    offers: SmallVec<[Offer; 32]>,
    /// Bandwidth that each offer adds for each NT, in kbit/s. Offers with the same change share an
    /// entry.
    changes: SmallVec<[i64; 128]>,
    /// Most that one load adds, by NT, and most NTs to which it adds.
    best: Sums,
    widest: u64,
    effort: Effort,
}

/// The smallest number of additional regions with which the sums suffice; `None` if no number does,
/// because no bitstream for the regions of the card contains one of the NTs. `left` gives the
/// bandwidth that the loaded instances of an NT have left together, in kbit/s.
pub(crate) fn further_regions(
    view: &View<'_>,
    left: impl Fn(&NtTotal) -> u64,
) -> Option<FurtherRegions> {
    let totals = &view.job.totals;
    let slack: Sums =
        totals.iter().map(|total| signed(left(total)).saturating_sub(signed(total.kbps))).collect();
    let classes = &view.classes;
    let mut finder = Finder::new(view);
    if slack.iter().zip(&finder.best).any(|(slack, best)| *slack < 0 && *best == 0) {
        return None;
    }
    let regions: Classes = (0..classes.len())
        .map(|index| match finder.offers.iter().any(|offer| offer.class == Some(index)) {
            true => classes[index].regions.count_ones(),
            false => 0,
        })
        .collect();
    let available = regions.iter().map(|count| u64::from(*count)).sum();
    let enough = finder.more_by_best_offers(&slack, &regions);
    let mut more = finder.loads_min(&slack).saturating_sub(available).min(enough);
    let mut is_exact = true;
    if more < enough {
        finder.sort_offers();
    }
    while more < enough.min(MORE_MAX) {
        match finder.suffices(&slack, &regions, more, None) {
            Some(true) => break,
            Some(false) => more += 1,
            None => {
                is_exact = false;
                break;
            }
        }
    }
    // A further region does not help an image that was built for another one.
    let model = &view.job.ledger.profile().model;
    let groups = view.job.catalogue.region_groups(model, view.job.tenant());
    is_exact &= more < MORE_MAX && groups == [None; 2];
    view.job.effort.found_a_reason(&finder.effort);
    Some(FurtherRegions { available, more, is_exact })
}

impl<'a> Finder<'a> {
    fn new(view: &View<'a>) -> Self {
        let totals = &view.job.totals;
        let mut finder = Self {
            chains: SmallVec::new(),
            offers: SmallVec::new(),
            changes: SmallVec::new(),
            best: SmallVec::from_elem(0, totals.len()),
            widest: 0,
            effort: view.job.effort.for_a_reason(),
        };
        for (at, total) in totals.iter().enumerate() {
            for chain in bitstreams(view.job, &[total.key]) {
                // A bitstream that also contains an earlier NT is in the list already.
                if !totals[..at].iter().any(|earlier| chain.has(earlier.key)) {
                    finder.chains.push(chain);
                }
            }
        }
        let (card, work) = (view.job.ledger.profile(), &view.job.work);
        for chain in 0..finder.chains.len() {
            let of = finder.chains[chain];
            let fresh = finder.changes.len();
            finder
                .changes
                .extend(totals.iter().map(|total| signed(fresh_bandwidth(of, total.key, work))));
            for (index, class) in view.classes.iter().enumerate().filter(|(_, c)| c.takes(of)) {
                let change = finder.instead_of(view, class, fresh);
                finder.push(change, Some(index), chain);
            }
            if card.regions().any(|(id, region)| fits_region(id, region, of)) {
                finder.push(fresh, None, chain);
            }
        }
        finder
    }

    /// Where the change begins of a load that replaces the content of a class; `fresh` is that of a
    /// load into a region that serves nothing.
    fn instead_of(&mut self, view: &View<'_>, class: &Class, fresh: usize) -> usize {
        if !class.is_useful() {
            return fresh;
        }
        let region = class.regions.trailing_zeros() as usize;
        let change = self.changes.len();
        for (nt, total) in view.job.totals.iter().enumerate() {
            let now = signed(view.left_of(region, total.key));
            self.changes.push(self.changes[fresh + nt] - now);
        }
        change
    }

    fn push(&mut self, change: usize, class: Option<usize>, chain: usize) {
        let changes = &self.changes[change..change + self.best.len()];
        let (adds, sum) = (adds(changes), changes.iter().sum::<i64>());
        self.best.iter_mut().zip(changes).for_each(|(best, change)| *best = (*best).max(*change));
        self.widest = self.widest.max(adds);
        let rank = (class.is_none(), Reverse(adds), Reverse(sum));
        self.offers.push(Offer { change, class, chain, rank });
    }

    /// The bandwidth that an offer adds, by NT.
    fn change(&self, offer: &Offer) -> &[i64] {
        &self.changes[offer.change..offer.change + self.best.len()]
    }

    /// Puts the best offers first, in an order that does not depend on the order of the NTs. Of few offers those are left
    /// out that another one for the same regions replaces.
    fn sort_offers(&mut self) {
        let id = |offer: &Offer| &self.chains[offer.chain].bitstream.id;
        self.offers
            .sort_unstable_by(|a, b| (a.rank, a.class, id(a)).cmp(&(b.rank, b.class, id(b))));
        if self.offers.len() <= REPLACED_MAX {
            let kept = (0..self.offers.len()).filter(|at| !self.is_replaced(*at));
            self.offers = kept.map(|at| self.offers[at]).collect();
        }
    }

    /// Whether a better offer for the same regions adds as much bandwidth to every NT. The search would try both to no
    /// avail.
    fn is_replaced(&self, at: usize) -> bool {
        let (better, [offer, ..]) = self.offers.split_at(at) else { return false };
        let adds_as_much = |other: &Offer| {
            self.change(other).iter().zip(self.change(offer)).all(|(other, own)| other >= own)
        };
        better.iter().any(|other| other.class == offer.class && adds_as_much(other))
    }

    /// Lower bound of the loads that are needed.
    fn loads_min(&self, slack: &[i64]) -> u64 {
        let loads = |(slack, best): (&i64, &i64)| {
            slack.min(&0).unsigned_abs().div_ceil(best.unsigned_abs().max(1))
        };
        let loads = slack.iter().zip(&self.best).map(loads);
        let all = loads.clone().fold(0u64, u64::saturating_add);
        loads.max().unwrap_or(0).max(all.div_ceil(self.widest.max(1)))
    }

    /// Number of additional regions that suffice if the best offer that helps is taken each time: often
    /// the minimum.
    fn more_by_best_offers(&self, slack: &[i64], regions: &[u32]) -> u64 {
        let (mut slack, mut regions) = (Sums::from_slice(slack), Classes::from_slice(regions));
        let mut more = 0;
        while let Some(need) = slack.iter().position(|slack| *slack < 0) {
            let available = |offer: &&Offer| offer.class.is_none_or(|class| regions[class] > 0);
            let helps = |offer: &&Offer| self.change(offer)[need] > 0;
            let useful = self.offers.iter().filter(available).filter(helps);
            let Some(offer) = useful.min_by_key(|offer| offer.rank) else { return u64::MAX };
            let change = self.change(offer);
            let enough = slack[need].unsigned_abs().div_ceil(change[need].unsigned_abs());
            let times = match offer.class {
                Some(class) => {
                    let times = enough.min(regions[class].into());
                    regions[class] -= times as u32;
                    times
                }
                None => {
                    more += enough;
                    enough
                }
            };
            for (slack, change) in slack.iter_mut().zip(change) {
                *slack = slack.saturating_add(change.saturating_mul(signed(times)));
            }
        }
        more
    }

    /// Whether loads into `regions` of each class and `more` additional ones suffice; `None` if the
    /// effort is spent. `last` is the NT and the offer of the previous load: loads form sets, so
    /// those for one NT are tried only in the order of the offers.
    fn suffices(
        &self,
        slack: &[i64],
        regions: &[u32],
        more: u64,
        last: Option<(usize, usize)>,
    ) -> Option<bool> {
        let Some(need) = slack.iter().position(|slack| *slack < 0) else { return Some(true) };
        let left = regions.iter().map(|count| u64::from(*count)).sum::<u64>();
        if self.loads_min(slack) > left.saturating_add(more) {
            return Some(false);
        }
        // To add numbers takes an eighth of the time of a look.
        if !self.effort.spend(1 + self.offers.len() * slack.len() / 8) {
            return None;
        }
        let from = last.filter(|(before, _)| *before == need).map_or(0, |(_, index)| index);
        for index in from..self.offers.len() {
            let offer = &self.offers[index];
            let change = self.change(offer);
            if change[need] <= 0 {
                continue;
            }
            let (mut regions, mut more) = (Classes::from_slice(regions), more);
            match offer.class {
                Some(class) if regions[class] > 0 => regions[class] -= 1,
                None if more > 0 => more -= 1,
                _ => continue,
            }
            let rest = slack.iter().zip(change).map(|(slack, change)| slack + change);
            let rest: Sums = rest.collect();
            if self.suffices(&rest, &regions, more, Some((need, index)))? {
                return Some(true);
            }
        }
        Some(false)
    }
}

fn signed(kbps: u64) -> i64 {
    i64::try_from(kbps).unwrap_or(i64::MAX / 4)
}

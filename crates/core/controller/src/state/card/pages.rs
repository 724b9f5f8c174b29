//! On-board memory: the owner, a tenant's NT, of each page of a card.
//!
//! An NT's space is each tenant's own, and one for all of the tenant's DAGs on the card and all
//! regions that hold the NT: page rows are keyed so (SuperNIC, 4: a virtual memory). The ledger has counted as
//! much before anything comes here, or more while a DAG changes. A space is there while a DAG that uses it is in the tables, and
//! goes with the last one.
//!
//! A page uses the row with its own number, so no two spaces can ever share one. It is free when
//! neither the target tables, nor the active ones, nor a commit under way name an
//! owner: only then can no packet reach it for the previous owner. Until then a new owner waits for the
//! commit. Nothing is stored: after a restart the pages that the card's tables name are adopted
//! with their contents.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::limits::{PAGE_ROWS, PAGE_SIZE};
use snic_domain::{CardProfile, DagName, NtType};
use snic_planner::allocated_memory;
use snic_tables::{PageRow, RowKey, Table, TableImage};

use super::tables::Tables;
use crate::state::nt_numbers::NtNumbers;

/// Access of NTs to their pages: read and write; none runs what is in its memory.
const READ_WRITE: u8 = 0b011;

/// Owner of a space: the tenant's number, the NT type's number.
pub(crate) type SpaceKey = (u16, u32);

/// A space that a DAG needs, and how many pages it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageNeed {
    space: SpaceKey,
    pages: u16,
}

impl PageNeed {
    /// Spaces that the NTs of the tenant with this number need.
    pub fn of<'a>(
        tenant: u16,
        nts: impl Iterator<Item = &'a NtType>,
        numbers: &NtNumbers,
    ) -> BTreeSet<Self> {
        let need = |nt: &NtType| {
            let pages = u16::try_from(allocated_memory(nt).get() / PAGE_SIZE.get());
            Self { space: (tenant, numbers.of(&nt.id).0), pages: pages.unwrap_or(u16::MAX) }
        };
        nts.map(need).filter(|need| need.pages > 0).collect()
    }

    pub const fn space(&self) -> SpaceKey {
        self.space
    }
}

/// A tenant's pages for one NT, by virtual page, and its DAGs that use them.
#[derive(Debug, Default)]
struct Space {
    pages: Vec<u16>,
    users: BTreeSet<DagName>,
}

/// Pages that a DAG needs are still in the card's tables for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PagesInUse;

/// The spaces of one card.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Number of pages that the card has and the table can name.
    count: u16,
    spaces: BTreeMap<SpaceKey, Space>,
    /// The spaces that each DAG uses.
    held: BTreeMap<DagName, BTreeSet<SpaceKey>>,
    /// Pages of no space. Tables may still name some.
    unused: BTreeSet<u16>,
    /// Pages that the card's tables named when they were read back, by space and virtual page.
    found: BTreeMap<(SpaceKey, u16), u16>,
    /// DAGs that wait until pages are out of the tables.
    waiting: BTreeSet<DagName>,
}

/// Number of pages that a card has and the table can name.
fn count(profile: &CardProfile) -> u16 {
    let pages = (profile.memory.get() / PAGE_SIZE.get()).min(PAGE_ROWS as u64);
    u16::try_from(pages).unwrap_or(u16::MAX)
}

const fn key(page: u16) -> RowKey {
    RowKey { table: Table::Page, row: page }
}

fn row((tenant, nt): SpaceKey, virtual_page: u16, physical_page: u16) -> PageRow {
    PageRow { tenant, nt, virtual_page, physical_page, rwx: READ_WRITE }
}

impl Pages {
    /// No space yet, on a card whose tables are `active`.
    pub fn of(profile: &CardProfile, active: &TableImage) -> Self {
        let named = (0..PAGE_ROWS as u16).filter_map(|page| {
            let found: PageRow = active.get(page)?;
            let space = (found.tenant, found.nt);
            let ours = found == row(space, found.virtual_page, page);
            ours.then_some(((space, found.virtual_page), page))
        });
        Self {
            count: count(profile),
            spaces: BTreeMap::new(),
            held: BTreeMap::new(),
            unused: (0..count(profile)).collect(),
            found: named.collect(),
            waiting: BTreeSet::new(),
        }
    }

    /// Pages may be out of the tables now: the DAGs that waited for some.
    pub fn take_waiting(&mut self) -> BTreeSet<DagName> {
        std::mem::take(&mut self.waiting)
    }

    /// The spaces that each DAG uses.
    pub const fn held(&self) -> &BTreeMap<DagName, BTreeSet<SpaceKey>> {
        &self.held
    }

    /// Every space has users, and the tables name its pages and no others.
    pub fn check(&self, target: &TableImage) -> Result<(), String> {
        let mut rows = 0;
        let mut held: BTreeMap<DagName, BTreeSet<SpaceKey>> = BTreeMap::new();
        let mut unused: BTreeSet<u16> = (0..self.count).collect();
        for (space, Space { pages, users }) in &self.spaces {
            for name in users {
                held.entry(name.clone()).or_default().insert(*space);
            }
            for page in pages {
                unused.remove(page);
            }
            for (virtual_page, page) in (0..).zip(pages) {
                let expected = Some(row(*space, virtual_page, *page));
                if target.get(*page) != expected || users.is_empty() {
                    return Err(format!("page {page} is not in the tables as {space:?} has it"));
                }
                rows += 1;
            }
        }
        if held != self.held || unused != self.unused {
            return Err("spaces and who uses them, or pages of none, differ".into());
        }
        let all = target.rows_used(Table::Page) == rows;
        if all { Ok(()) } else { Err("the tables name pages of no space".into()) }
    }

    /// The rows of a DAG's spaces.
    pub fn rows_of(&self, name: &DagName) -> impl Iterator<Item = RowKey> {
        let of = self.held.get(name).into_iter().flatten().filter_map(|key| self.spaces.get(key));
        of.flat_map(|space| space.pages.iter().copied().map(key))
    }

    /// Gives a DAG the spaces that it needs, and takes those away that it does not need any more.
    ///
    /// # Errors
    /// Where pages are not free yet: it waits for them, and nothing else has changed.
    pub fn hold(
        &mut self,
        tables: &mut Tables,
        name: &DagName,
        needs: &BTreeSet<PageNeed>,
    ) -> Result<(), PagesInUse> {
        let missing: Vec<PageNeed> =
            needs.iter().filter(|need| !self.spaces.contains_key(&need.space)).copied().collect();
        let Some(taken) = self.take(tables, &missing) else {
            self.waiting.insert(name.clone());
            return Err(PagesInUse);
        };
        for (need, pages) in missing.iter().zip(taken) {
            for (virtual_page, page) in (0..).zip(&pages) {
                tables.put(*page, &row(need.space, virtual_page, *page));
            }
            for page in &pages {
                self.unused.remove(page);
            }
            self.spaces.insert(need.space, Space { pages, users: BTreeSet::new() });
        }
        for need in needs {
            let space = self.spaces.get_mut(&need.space).expect("what was missing was just made");
            space.users.insert(name.clone());
        }
        if !needs.is_empty() {
            let held = self.held.entry(name.clone()).or_default();
            held.extend(needs.iter().map(PageNeed::space));
        }
        self.release_spaces(tables, name, needs);
        Ok(())
    }

    /// Pages for spaces that are not there: those that the card's tables name for them, else the
    /// first that are free.
    fn take(&self, tables: &Tables, missing: &[PageNeed]) -> Option<Vec<Vec<u16>>> {
        if missing.is_empty() {
            return Some(Vec::new());
        }
        let under_way = tables.under_way(Table::Page);
        let is_named = |tables: &TableImage, page| tables.get::<PageRow>(page).is_some();
        let mut free = self.unused.iter().copied().filter(|page| {
            !is_named(tables.target(), *page)
                && !is_named(tables.active(), *page)
                && !under_way.contains(page)
        });
        let mut one = |space, virtual_page| {
            let found = self.found.get(&(space, virtual_page)).copied().filter(|page| {
                tables.active().get(*page) == Some(row(space, virtual_page, *page))
                    && !is_named(tables.target(), *page)
                    && !under_way.contains(page)
            });
            found.or_else(|| free.next())
        };
        let pages = |need: &PageNeed| (0..need.pages).map(|page| one(need.space, page)).collect();
        missing.iter().map(pages).collect()
    }

    /// Takes a DAG's spaces away but those of `needs`; what nobody uses any more goes. Time O(its spaces · log spaces).
    pub fn release_spaces(
        &mut self,
        tables: &mut Tables,
        name: &DagName,
        needs: &BTreeSet<PageNeed>,
    ) {
        self.waiting.remove(name);
        let Some(held) = self.held.get_mut(name) else { return };
        let is_needed = |space: &SpaceKey| needs.iter().any(|need| need.space == *space);
        let left: Vec<SpaceKey> = held.iter().filter(|space| !is_needed(space)).copied().collect();
        held.retain(is_needed);
        if held.is_empty() {
            self.held.remove(name);
        }
        let mut gone = Vec::new();
        for key in left {
            let Some(space) = self.spaces.get_mut(&key) else { continue };
            space.users.remove(name);
            if space.users.is_empty() {
                gone.append(&mut space.pages);
                self.spaces.remove(&key);
            }
        }
        self.unused.extend(&gone);
        tables.clear(gone.into_iter().map(key));
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::ByteSize;
    use snic_tables::Ticket;

    use super::*;
    use crate::fixtures::{name, profile};
    use crate::state::card::tables::TableStep;

    /// A card of four pages.
    fn card() -> (Pages, Tables) {
        let mut profile = profile(1);
        profile.memory = ByteSize::from_bytes(4 * PAGE_SIZE.get());
        (Pages::of(&profile, &TableImage::default()), Tables::default())
    }

    fn need(nt: u32, pages: u16) -> PageNeed {
        PageNeed { space: (1, nt), pages }
    }

    fn commit(tables: &mut Tables) {
        let TableStep::Commit { .. } = tables.begin(Default::default(), || Ticket(1), |_| None)
        else {
            panic!("rows differ");
        };
    }

    fn committed(tables: &mut Tables) {
        tables.ended(Default::default(), Ticket(1), Ok((1, Vec::new())), |_| {
            panic!("it did not fail")
        });
    }

    #[test]
    fn dags_of_a_tenant_share_a_space_and_the_last_one_frees_it() {
        let (mut pages, mut tables) = card();
        let needs = BTreeSet::from([need(7, 3)]);
        for of in ["a", "b"] {
            assert_eq!(pages.hold(&mut tables, &name(of), &needs), Ok(()));
        }
        assert_eq!(tables.target().rows_used(Table::Page), 3);
        pages.release_spaces(&mut tables, &name("a"), &BTreeSet::new());
        assert_eq!(tables.target().rows_used(Table::Page), 3);
        pages.release_spaces(&mut tables, &name("b"), &BTreeSet::new());
        assert_eq!(tables.target().rows_used(Table::Page), 0);
        assert_eq!((pages.held().len(), pages.check(tables.target())), (0, Ok(())));
    }

    #[test]
    fn a_page_is_free_when_no_table_names_it_any_more() {
        let (mut pages, mut tables) = card();
        let (first, second) = (BTreeSet::from([need(7, 3)]), BTreeSet::from([need(8, 2)]));
        pages.hold(&mut tables, &name("a"), &first).expect("all are free");
        commit(&mut tables);
        committed(&mut tables);
        pages.release_spaces(&mut tables, &name("a"), &BTreeSet::new());
        // Packets still read the active bank, and then the commit is under way.
        assert_eq!(pages.hold(&mut tables, &name("b"), &second), Err(PagesInUse));
        commit(&mut tables);
        assert_eq!(pages.hold(&mut tables, &name("b"), &second), Err(PagesInUse));
        assert_eq!(pages.held().len(), 0, "nothing has changed");
        committed(&mut tables);
        assert_eq!(pages.take_waiting(), BTreeSet::from([name("b")]));
        assert_eq!(pages.hold(&mut tables, &name("b"), &second), Ok(()));
        assert_eq!((pages.take_waiting(), pages.check(tables.target())), (BTreeSet::new(), Ok(())));
    }

    #[test]
    fn pages_that_the_cards_tables_name_are_taken_up_as_they_are() {
        let (mut pages, mut tables) = card();
        for (virtual_page, page) in [(0, 3), (1, 2)] {
            tables.put(page, &row((1, 7), virtual_page, page));
        }
        commit(&mut tables);
        committed(&mut tables);
        let (active, mut profile) = (tables.active().clone(), profile(1));
        profile.memory = ByteSize::from_bytes(4 * PAGE_SIZE.get());
        tables.adopt(1, active.clone(), None);
        pages = Pages { waiting: pages.waiting, ..Pages::of(&profile, &active) };
        pages
            .hold(&mut tables, &name("a"), &BTreeSet::from([need(7, 2)]))
            .expect("they are its own");
        tables.compare();
        assert!(!tables.differs([key(2), key(3)].into_iter()), "nothing is written again");
    }
}

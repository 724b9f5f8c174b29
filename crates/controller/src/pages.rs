//! On-board memory: which pages of a card belong to which tenant's NT.
//!
//! An NT's space is each tenant's own, and one for all of the tenant's DAGs on the card and all
//! regions that hold the NT: page rows are keyed so (SuperNIC, 4: a virtual memory). The ledger has counted at least
//! as much before anything comes here. A space is there while a DAG that uses it is in the tables, and
//! goes with the last one.
//!
//! A page has the row of its own number, so no two spaces can ever share one. It is free when
//! neither the tables that are to be, nor those that packets read, nor a commit under way name an
//! owner: only then can no packet reach it for the one before. Until then who needs it waits for the
//! commit. Nothing is stored: after a restart the pages that the card's tables name are taken up as
//! they are, with what NTs keep in them.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::limits::{PAGE_ROWS, PAGE_SIZE};
use snic_domain::{CardId, CardProfile, DagName, NtType};
use snic_tables::{PageRow, RowKey, Table, TableImage};

use crate::card::{CardState, KNOWN};
use crate::records::Placement;
use crate::state::Controller;

/// What NTs may do with their pages: read and write; none runs what is in its memory.
const READ_WRITE: u8 = 0b011;

/// Whose space: the tenant's number, the NT's code.
type SpaceKey = (u16, u32);

/// A space that a DAG needs, and how many pages it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    space: SpaceKey,
    pages: u16,
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
#[derive(Debug, Default)]
pub(crate) struct Pages {
    spaces: BTreeMap<SpaceKey, Space>,
    /// What the card's tables named when they were read back, by space and virtual page.
    found: BTreeMap<(SpaceKey, u16), u16>,
    /// DAGs that wait until pages are out of the tables.
    pub waiting: BTreeSet<DagName>,
}

/// How many pages a card has and the table can name.
pub(crate) fn count(profile: &CardProfile) -> u16 {
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
    pub fn of(active: &TableImage) -> Self {
        let named = (0..PAGE_ROWS as u16).filter_map(|page| {
            let found: PageRow = active.get(page)?;
            let space = (found.tenant, found.nt);
            let ours = found == row(space, found.virtual_page, page);
            ours.then_some(((space, found.virtual_page), page))
        });
        Self { found: named.collect(), ..Self::default() }
    }

    /// Every space has users, and the tables name its pages and no others.
    fn check(&self, target: &TableImage) -> Result<(), String> {
        let mut rows = 0;
        for (space, Space { pages, users }) in &self.spaces {
            for (virtual_page, page) in (0..).zip(pages) {
                let expected = Some(row(*space, virtual_page, *page));
                if target.get(*page) != expected || users.is_empty() {
                    return Err(format!("page {page} is not in the tables as {space:?} has it"));
                }
                rows += 1;
            }
        }
        let all = target.rows_used(Table::Page) == rows;
        if all { Ok(()) } else { Err("the tables name pages of no space".into()) }
    }

    /// The rows of a DAG's spaces.
    pub fn rows_of(&self, name: &DagName) -> impl Iterator<Item = RowKey> {
        let of = self.spaces.values().filter(move |space| space.users.contains(name));
        of.flat_map(|space| space.pages.iter().copied().map(key))
    }
}

impl Controller {
    /// A DAG goes from one placement to another: it gets the spaces that it needs there, and others
    /// go.
    ///
    /// # Errors
    /// Where pages are not free yet; nothing has changed then.
    pub(crate) fn move_pages(
        &mut self,
        name: &DagName,
        old: Option<&Placement>,
        new: Option<&Placement>,
    ) -> Result<(), PagesInUse> {
        if let Some(new) = new {
            let needs = self.page_needs(name, new);
            let card = self.cards.get_mut(&new.mapping.card).expect(KNOWN);
            card.hold_pages(name, &needs)?;
        }
        let is_left = |old: &&Placement| new.is_none_or(|new| new.mapping.card != old.mapping.card);
        if let Some(old) = old.filter(is_left)
            && let Some(card) = self.cards.get_mut(&old.mapping.card)
        {
            card.let_go_of_pages(name, &BTreeSet::new());
        }
        Ok(())
    }

    /// The spaces that a placement needs.
    fn page_needs(&self, name: &DagName, placement: &Placement) -> BTreeSet<Need> {
        let tenant = self.registry.tenant(&name.tenant).map_or(0, |record| record.number);
        let need = |nt: &NtType| {
            let pages = u16::try_from(nt.memory.get().div_ceil(PAGE_SIZE.get()));
            Need { space: (tenant, nt.id.code().0), pages: pages.unwrap_or(u16::MAX) }
        };
        let nts = placement.spec.nodes.iter().filter_map(|node| self.registry.nt(&node.nt));
        nts.map(need).filter(|need| need.pages > 0).collect()
    }

    /// A DAG in the target tables has the spaces that its placement needs and no others, and the
    /// tables name the pages of these spaces and no others.
    pub(crate) fn check_pages(&self, id: &CardId, card: &CardState) -> Result<(), String> {
        let mut held: BTreeMap<&DagName, BTreeSet<SpaceKey>> = BTreeMap::new();
        for (key, space) in &card.pages.spaces {
            for name in &space.users {
                held.entry(name).or_default().insert(*key);
            }
        }
        for (name, entry) in self.dags.iter().filter(|(_, entry)| entry.card() == Some(id)) {
            let target = entry.targeted();
            let needs = target.map(|target| self.page_needs(name, target)).unwrap_or_default();
            let needed: BTreeSet<SpaceKey> = needs.iter().map(|need| need.space).collect();
            if needed != held.remove(name).unwrap_or_default() {
                return Err(format!("{name} has not the pages that it needs"));
            }
        }
        if let Some(name) = held.keys().next() {
            return Err(format!("{name} has pages and is not in the tables"));
        }
        card.pages.check(card.tables.target())
    }
}

impl CardState {
    /// Gives a DAG the spaces that it needs, and takes those away that it does not need any more.
    ///
    /// # Errors
    /// Where pages are not free yet: it waits for them, and nothing else has changed.
    fn hold_pages(&mut self, name: &DagName, needs: &BTreeSet<Need>) -> Result<(), PagesInUse> {
        let missing: Vec<Need> = needs
            .iter()
            .filter(|need| !self.pages.spaces.contains_key(&need.space))
            .copied()
            .collect();
        let Some(taken) = self.take_pages(&missing) else {
            self.pages.waiting.insert(name.clone());
            return Err(PagesInUse);
        };
        for (need, pages) in missing.iter().zip(taken) {
            for (virtual_page, page) in (0..).zip(&pages) {
                self.tables.put(*page, &row(need.space, virtual_page, *page));
            }
            self.pages.spaces.insert(need.space, Space { pages, users: BTreeSet::new() });
        }
        for need in needs {
            if let Some(space) = self.pages.spaces.get_mut(&need.space) {
                space.users.insert(name.clone());
            }
        }
        self.let_go_of_pages(name, needs);
        Ok(())
    }

    /// Pages for spaces that are not there: those that the card's tables name for them, else the
    /// first that are free.
    fn take_pages(&self, missing: &[Need]) -> Option<Vec<Vec<u16>>> {
        if missing.is_empty() {
            return Some(Vec::new());
        }
        let under_way = self.tables.under_way(Table::Page);
        let is_named = |tables: &TableImage, page| tables.get::<PageRow>(page).is_some();
        let mut free = (0..count(&self.profile)).filter(|page| {
            !is_named(self.tables.target(), *page)
                && !is_named(self.tables.active(), *page)
                && !under_way.contains(page)
        });
        let mut one = |space, virtual_page| {
            let found = self.pages.found.get(&(space, virtual_page)).copied().filter(|page| {
                self.tables.active().get(*page) == Some(row(space, virtual_page, *page))
                    && !is_named(self.tables.target(), *page)
                    && !under_way.contains(page)
            });
            found.or_else(|| free.next())
        };
        let pages = |need: &Need| (0..need.pages).map(|page| one(need.space, page)).collect();
        missing.iter().map(pages).collect()
    }

    /// Takes a DAG's spaces away but those of `needs`; what nobody uses any more goes.
    pub(crate) fn let_go_of_pages(&mut self, name: &DagName, needs: &BTreeSet<Need>) {
        self.pages.waiting.remove(name);
        let mut gone = Vec::new();
        self.pages.spaces.retain(|space, Space { pages, users }| {
            if !needs.iter().any(|need| need.space == *space) {
                users.remove(name);
            }
            if users.is_empty() {
                gone.append(pages);
            }
            !users.is_empty()
        });
        self.tables.clear(gone.into_iter().map(key));
    }
}

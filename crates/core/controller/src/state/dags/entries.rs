//! DAGs by name and by number. A number is an index: who keeps one finds its DAG without comparing names.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

use snic_domain::DagName;

use super::DagEntry;

/// Number of a DAG while it is there. Another one has it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DagNumber(u32);

impl DagNumber {
    /// Its index.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A DAG with its name, which indexes share.
#[derive(Debug)]
pub(super) struct NamedEntry {
    pub name: Arc<DagName>,
    pub entry: DagEntry,
}

/// All DAGs. A look by name takes O(log DAGs), one by number O(1).
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// DAGs by number; boxed, so that a new one moves no others.
    all: Vec<Option<Box<NamedEntry>>>,
    free: Vec<DagNumber>,
    by_name: BTreeMap<Arc<DagName>, DagNumber>,
}

impl Entries {
    /// A new DAG.
    ///
    /// # Panics
    /// Its name is taken.
    pub fn insert(&mut self, entry: DagEntry) -> DagNumber {
        let name = Arc::new(entry.name().clone());
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            DagNumber(u32::try_from(self.all.len() - 1).expect("cards have fewer rows"))
        });
        let before = self.by_name.insert(Arc::clone(&name), number);
        assert!(before.is_none(), "a name that is taken was refused");
        self.all[number.index()] = Some(Box::new(NamedEntry { name, entry }));
        number
    }

    pub fn remove(&mut self, name: &DagName) -> Option<(DagNumber, NamedEntry)> {
        let number = self.by_name.remove(name)?;
        self.free.push(number);
        Some((number, *self.all[number.index()].take()?))
    }

    pub fn number_of(&self, name: &DagName) -> Option<DagNumber> {
        self.by_name.get(name).copied()
    }

    /// The DAG with a number, if there is one.
    pub fn at(&self, number: DagNumber) -> Option<&NamedEntry> {
        self.all.get(number.index())?.as_deref()
    }

    /// The DAG with a number, if there is one.
    pub fn at_mut(&mut self, number: DagNumber) -> Option<&mut NamedEntry> {
        self.all.get_mut(number.index())?.as_deref_mut()
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Those with names in a range, by name.
    pub fn range(
        &self,
        range: impl RangeBounds<DagName>,
    ) -> impl Iterator<Item = (DagNumber, &DagEntry)> {
        let named = self.by_name.range::<DagName, _>(range);
        named.filter_map(|(_, number)| Some((*number, &self.at(*number)?.entry)))
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (DagNumber, &DagEntry)> {
        self.range(..)
    }

    /// Names and numbers are one to one.
    pub fn check(&self) -> Result<(), String> {
        for (name, number) in &self.by_name {
            if self.at(*number).is_none_or(|at| at.name != *name || at.entry.name() != &**name) {
                return Err(format!("{name}: another DAG has its number"));
            }
        }
        match self.all.iter().flatten().count() == self.by_name.len() {
            true => Ok(()),
            false => Err("a DAG has a number and no name".into()),
        }
    }
}

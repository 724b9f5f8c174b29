//! The numbers that NT types have on cards: in the rows of regions and pages, and in configurations.
//!
//! No two types of any tenants share a number. A type's number is the code in
//! bitstreams ([`NtTypeId::code`]) if no other type has it, and the next free one otherwise: nobody is
//! refused a type because of somebody else's, and nobody is shown numbers. It is stored with the type.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{NtNumber, NtTypeId};

/// Numbers of NT types.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NtNumbers {
    of: BTreeMap<NtTypeId, NtNumber>,
    taken: BTreeSet<NtNumber>,
}

impl NtNumbers {
    /// The number of a type; zero, which none has, where there is no such type.
    pub fn of(&self, id: &NtTypeId) -> NtNumber {
        self.of.get(id).copied().unwrap_or_default()
    }

    /// A number for a new type. Time O(log types), and one step for each type in a row whose codes
    /// follow each other.
    pub fn give(&mut self, id: &NtTypeId) -> NtNumber {
        let mut number = id.code().0.max(1);
        while self.taken.contains(&NtNumber(number)) {
            // There are fewer types than numbers, so it ends.
            number = number.wrapping_add(1).max(1);
        }
        self.restore(id, NtNumber(number));
        NtNumber(number)
    }

    /// A stored type has this number.
    pub fn restore(&mut self, id: &NtTypeId, number: NtNumber) {
        self.of.insert(id.clone(), number);
        self.taken.insert(number);
    }

    /// A type is gone.
    pub fn take_back(&mut self, id: &NtTypeId) {
        if let Some(number) = self.of.remove(id) {
            self.taken.remove(&number);
        }
    }

    /// Every type has one, and no two the same.
    pub fn check<'a>(&self, types: impl Iterator<Item = &'a NtTypeId>) -> Result<(), String> {
        let own: BTreeSet<NtNumber> = self.of.values().copied().collect();
        let is_whole = own == self.taken && own.len() == self.of.len();
        match types.eq(self.of.keys()) && is_whole && !own.contains(&NtNumber::default()) {
            true => Ok(()),
            false => Err("NT types do not have a number each".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> NtTypeId {
        NtTypeId::new(text).expect("a label")
    }

    #[test]
    fn types_whose_codes_are_equal_have_numbers_of_their_own() {
        // Two of 2^32 whose digests begin alike, found by trying.
        let (first, second) = (id("acme.f98911"), id("globex.g13979"));
        assert_eq!(first.code(), second.code());
        let mut numbers = NtNumbers::default();
        let one = numbers.give(&first);
        let other = numbers.give(&second);
        assert_eq!((one.0, other.0), (first.code().0, first.code().0 + 1));
        numbers.take_back(&first);
        assert_eq!((numbers.of(&first), numbers.of(&second)), (NtNumber(0), other));
        assert_eq!(numbers.give(&first), one);
        assert_eq!(numbers.check([&first, &second].into_iter()), Ok(()));
    }
}

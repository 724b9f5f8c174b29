//! Numbers in as few bytes as each needs.
//!
//! A book of thousands of accounts is mostly the numbers of its pages, and most of those are small: a length of an interval has one
//! byte, its milliseconds three, the bytes of a busy DAG six. So each number is kept as groups of seven bits, the low ones first, and the
//! high bit of a byte says that another one follows. With eight bytes for each, the same book took twice the memory.

/// Bits of a number in one byte.
const GROUP: u32 = 7;
/// Bit of a byte behind which the number goes on.
const MORE: u8 = 1 << GROUP;
/// Part by which the list grows beyond what it needs: twice as much, as a list grows by itself, would be empty by a quarter on average.
const SPARE_PART: usize = 8;

/// A list of numbers that is read from the front.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PackedNumbers(Vec<u8>);

/// Bytes of a number.
const fn length(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(GROUP) as usize
}

impl PackedNumbers {
    /// A list with no room for more.
    pub fn exactly(numbers: &[u64]) -> Self {
        let length = numbers.iter().map(|number| length(*number)).sum();
        let mut packed = Self(Vec::with_capacity(length));
        numbers.iter().for_each(|number| packed.push(*number));
        packed
    }

    /// Adds numbers at the end.
    pub fn extend(&mut self, numbers: impl Iterator<Item = u64> + Clone) {
        let more: usize = numbers.clone().map(length).sum();
        if self.0.capacity() - self.0.len() < more {
            self.0.reserve_exact(more.max(self.0.len() / SPARE_PART));
        }
        numbers.for_each(|number| self.push(number));
    }

    fn push(&mut self, mut number: u64) {
        while number >= u64::from(MORE) {
            self.0.push(number as u8 | MORE);
            number >>= GROUP;
        }
        self.0.push(number as u8);
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its numbers, the first one first.
    pub fn iter(&self) -> PackedIter<'_> {
        PackedIter(&self.0)
    }
}

/// Numbers that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedIter<'a>(&'a [u8]);

impl PackedIter<'_> {
    /// Takes the next `count` numbers out without reading them; `None` if there are fewer.
    pub fn split(&mut self, count: usize) -> Option<Self> {
        if count == 0 {
            return Some(Self(&[]));
        }
        let mut ends = self.0.iter().enumerate().filter(|(_, byte)| **byte & MORE == 0);
        let (last, _) = ends.nth(count - 1)?;
        let (taken, rest) = self.0.split_at_checked(last + 1)?;
        self.0 = rest;
        Some(Self(taken))
    }
}

impl Iterator for PackedIter<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & !MORE) << shift;
            if byte & MORE == 0 {
                return Some(number);
            }
            shift = (shift + GROUP).min(u64::BITS - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A number of any length: those of few bits are as frequent as those of many.
    fn any_length() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..u64::BITS).prop_map(|(number, shift)| number >> shift)
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_added(
            parts in prop::collection::vec(prop::collection::vec(any_length(), 0..9), 0..9),
        ) {
            let mut packed = PackedNumbers::default();
            parts.iter().for_each(|part| packed.extend(part.iter().copied()));
            let all = parts.concat();
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), all.clone());
            prop_assert_eq!(packed.is_empty(), all.is_empty());
            let exact = PackedNumbers::exactly(&all);
            prop_assert_eq!(exact.0.capacity(), exact.0.len());
            prop_assert_eq!(&packed, &exact);
            let mut rest = packed.iter();
            for part in &parts {
                let taken = rest.split(part.len()).expect("they are there");
                prop_assert_eq!(taken.collect::<Vec<_>>(), part.clone());
            }
            prop_assert!(rest.split(1).is_none());
        }
    }

    #[test]
    fn a_number_takes_a_byte_for_each_seven_bits() {
        for bits in 0..=u64::BITS {
            let most = u64::MAX.checked_shr(u64::BITS - bits).unwrap_or_default();
            let packed = PackedNumbers::exactly(&[most]);
            assert_eq!(packed.0.len(), bits.max(1).div_ceil(7) as usize, "{bits} bits");
            assert_eq!(packed.iter().collect::<Vec<_>>(), [most]);
        }
    }

    #[test]
    fn little_of_a_long_list_is_room_for_more() {
        let mut packed = PackedNumbers::default();
        for number in 0..1_000 {
            packed.extend([number, 60_000, u64::MAX].into_iter());
            let (room, most) = (packed.0.capacity() - packed.0.len(), packed.0.len() / 8);
            assert!(room <= most, "{room} bytes of room after {number}, at most {most}");
        }
    }
}

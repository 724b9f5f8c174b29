//! The cache of the paper's card: pairs that were written or read lately, in the order in which they came (SuperNIC, 5.2).
//!
//! The product's cache is another one: it evicts what was used longest ago, gives a pair up when it is written, and holds as
//! many as fit the memory of its NT.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context, Result};

use super::frames::{self, CLIENT, STORE};
use super::keys::{self, Names};

/// A pair that is held.
#[derive(Debug, Clone, Copy)]
struct Held {
    version: u32,
    /// Its latest place in the order; places before that are void.
    place: u64,
}

#[derive(Debug)]
pub struct PairCache {
    names: Arc<Names>,
    value_bytes: usize,
    pairs_max: usize,
    /// Whether a use moves a pair to the end of the order.
    moves_used: bool,
    /// The pair of each key, if it is held.
    held: Vec<Option<Held>>,
    count: usize,
    order: VecDeque<(u64, u64)>,
    next_place: u64,
}

impl PairCache {
    /// An empty cache of so many pairs. With `moves_used` the one used longest ago is evicted, else the oldest.
    pub fn new(names: &Arc<Names>, value_bytes: usize, pairs_max: u64, moves_used: bool) -> Self {
        Self {
            names: Arc::clone(names),
            value_bytes,
            pairs_max: pairs_max as usize,
            moves_used,
            held: vec![None; names.len()],
            count: 0,
            order: VecDeque::new(),
            next_place: 0,
        }
    }

    /// The version of a key's value, if it is held.
    pub fn get(&mut self, key: u64) -> Option<u32> {
        let held = self.held.get(key as usize).copied().flatten()?;
        if self.moves_used {
            self.place(key, held.version);
        }
        Some(held.version)
    }

    /// Keeps a value, in the place of an older one of its key.
    pub fn put(&mut self, key: u64, version: u32) {
        let held = self.held.get(key as usize).copied().flatten();
        match held {
            Some(held) if !self.moves_used => {
                self.held[key as usize] = Some(Held { version, ..held });
                return;
            }
            Some(_) => {}
            None => self.count += 1,
        }
        self.place(key, version);
        while self.count > self.pairs_max {
            let Some((key, place)) = self.order.pop_front() else { return };
            let held = &mut self.held[key as usize];
            if held.is_some_and(|held| held.place == place) {
                *held = None;
                self.count -= 1;
            }
        }
    }

    fn place(&mut self, key: u64, version: u32) {
        self.next_place += 1;
        self.order.push_back((key, self.next_place));
        self.held[key as usize] = Some(Held { version, place: self.next_place });
    }

    /// A request on its way to the store: the answer, if the cache has it.
    ///
    /// # Errors
    /// It is not one of those that clients make.
    pub(super) fn request(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>> {
        let (number, text) = frames::read(frame)?;
        let line = text.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        let (command, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let key = self.names.key(name).context("clients use the store's keys")?;
        if command == b"get" {
            let Some(version) = self.get(key) else { return Ok(None) };
            let value = frames::value(key, version, self.value_bytes);
            let head = format!("VALUE {} 0 {}\r\n", keys::name(key), value.len());
            let text = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
            return Ok(Some(frames::message(STORE, CLIENT, number, &text)));
        }
        let data = text.get(line.len() + 2..line.len() + 2 + self.value_bytes);
        let version = data.and_then(|data| frames::version(key, data));
        self.put(key, version.context("a value that is none of the key's")?);
        Ok(None)
    }

    /// An answer of the store: what was read is kept, unless the key was written meanwhile.
    ///
    /// # Errors
    /// It is none of the store.
    pub(super) fn answer(&mut self, frame: &[u8]) -> Result<()> {
        let (_, text) = frames::read(frame)?;
        let Some((name, data)) = frames::found(text) else { return Ok(()) };
        let key = self.names.key(name).context("the store has clients' keys")?;
        if self.held[key as usize].is_none() {
            let version = frames::version(key, data).context("a value that nobody wrote")?;
            self.put(key, version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Beside a list, the next to go first.
    fn agrees_with_a_list(moves_used: bool) {
        let names = Arc::new(Names::new(12));
        let mut cache = PairCache::new(&names, 20, 4, moves_used);
        let mut list: Vec<(u64, u32)> = Vec::new();
        let mut random = ChaCha8Rng::seed_from_u64(5);
        for version in 0..2_000 {
            let key = random.random_range(0..12);
            let at = list.iter().position(|(held, _)| *held == key);
            if random.random() {
                assert_eq!(cache.get(key), at.map(|at| list[at].1));
                if let (Some(at), true) = (at, moves_used) {
                    let pair = list.remove(at);
                    list.push(pair);
                }
                continue;
            }
            cache.put(key, version);
            match at {
                Some(at) if !moves_used => list[at].1 = version,
                Some(at) => {
                    list.remove(at);
                    list.push((key, version));
                }
                None => list.push((key, version)),
            }
            if list.len() > 4 {
                list.remove(0);
            }
            assert_eq!(cache.count, list.len());
        }
    }

    #[test]
    fn the_oldest_goes_or_the_one_used_longest_ago() {
        agrees_with_a_list(false);
        agrees_with_a_list(true);
    }
}

//! The memory of the device: sparse, written and read at any address.

use std::collections::HashMap;

/// Bytes of a piece: what the shim moves at once.
const PIECE: u64 = 1 << 16;

/// Bytes by address; what was never written is zero.
#[derive(Default)]
pub(crate) struct Memory {
    pieces: HashMap<u64, Box<[u8]>>,
}

/// The parts of a range that lie in one piece each: piece, place in it, place in the range.
fn parts(at: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let address = at.wrapping_add(done as u64);
        let place = (address % PIECE) as usize;
        let length = (PIECE as usize - place).min(bytes - done);
        let range = done..done + length;
        done += length;
        (length > 0).then_some((address / PIECE, place, range))
    })
}

impl Memory {
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        for (piece, place, range) in parts(at, bytes.len()) {
            let held = self.pieces.entry(piece).or_insert_with(|| vec![0; PIECE as usize].into());
            held[place..place + range.len()].copy_from_slice(&bytes[range]);
        }
    }

    pub(crate) fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        for (piece, place, range) in parts(at, bytes) {
            if let Some(held) = self.pieces.get(&piece) {
                let end = place + range.len();
                out[range].copy_from_slice(&held[place..end]);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_read_back_across_pieces() {
        let mut memory = Memory::default();
        let bytes: Vec<u8> = (0..200_000).map(|i| (i % 251) as u8).collect();
        memory.write(PIECE - 3, &bytes);
        assert_eq!(memory.read(PIECE - 3, bytes.len()), bytes);
        assert_eq!(memory.read(PIECE - 5, 3), [0, 0, 0]);
        assert_eq!(memory.read(1 << 40, 2), [0, 0]);
    }
}

//! The row of a function's port: which frames it lets in and out.

use snic_domain::limits::{FUNCTION_MACS_MAX, FUNCTION_VLANS_MAX};

use crate::layout::Table;
use crate::rows::RowCodec;

const VALID: u32 = 1 << 31;
/// Bits of word 0.
const HAS_VLANS: u32 = 1 << 30;
const HAS_RATE: u32 = 1 << 29;
/// First word of the addresses, two words each, and of the VLANs, two in a word.
const MACS_AT: usize = 2;
const VLANS_AT: usize = MACS_AT + 2 * FUNCTION_MACS_MAX;
/// A VLAN's number has 12 bits (802.1Q).
const VLAN_MASK: u16 = (1 << 12) - 1;

const _: () = assert!(VLANS_AT + FUNCTION_VLANS_MAX / 2 == Table::Guard.row_words(), "one row");

/// Word 0: valid, VLANs count (bit 30), rate counts (bit 29), which of the addresses there are (bits 0 to 3). Word 1:
/// frames per second. Words 2 to 9: addresses, the first four bytes in one word, the others in the upper half of the next. Words
/// 10 to 15: VLANs, two in a word, the upper half first; zero where there is none.
///
/// A port without a row lets each frame pass that a port of a function may pass at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardRow {
    /// Ethernet addresses that frames of the function come from. Without any, nothing comes from it.
    pub macs: [Option<[u8; 6]>; FUNCTION_MACS_MAX],
    /// VLANs of its frames in both directions, if they count; under 2^12, as on the wire. Higher bits are not kept.
    pub vlans: Option<[u16; FUNCTION_VLANS_MAX]>,
    /// Frames to all and to groups that it may send in a second, if they count.
    pub group_frames_per_second: Option<u32>,
}

impl RowCodec for GuardRow {
    const TABLE: Table = Table::Guard;

    fn encode(&self, words: &mut [u32]) {
        words[0] = VALID;
        if let Some(rate) = self.group_frames_per_second {
            words[0] |= HAS_RATE;
            words[1] = rate;
        }
        for (at, mac) in self.macs.iter().enumerate() {
            let Some([a, b, c, d, e, f]) = *mac else { continue };
            words[0] |= 1 << at;
            words[MACS_AT + 2 * at] = u32::from_be_bytes([a, b, c, d]);
            words[MACS_AT + 2 * at + 1] = u32::from_be_bytes([e, f, 0, 0]);
        }
        if let Some(vlans) = &self.vlans {
            words[0] |= HAS_VLANS;
            for (word, pair) in words[VLANS_AT..].iter_mut().zip(vlans.chunks_exact(2)) {
                *word = u32::from(pair[0] & VLAN_MASK) << 16 | u32::from(pair[1] & VLAN_MASK);
            }
        }
    }

    fn decode(words: &[u32]) -> Option<Self> {
        let mac = |at: usize| {
            let [a, b, c, d] = words[MACS_AT + 2 * at].to_be_bytes();
            let [e, f, ..] = words[MACS_AT + 2 * at + 1].to_be_bytes();
            (words[0] >> at & 1 == 1).then_some([a, b, c, d, e, f])
        };
        let vlan = |at: usize| {
            let word = words[VLANS_AT + at / 2];
            (if at.is_multiple_of(2) { (word >> 16) as u16 } else { word as u16 }) & VLAN_MASK
        };
        (words[0] & VALID != 0).then(|| Self {
            macs: std::array::from_fn(mac),
            vlans: (words[0] & HAS_VLANS != 0).then(|| std::array::from_fn(vlan)),
            group_frames_per_second: (words[0] & HAS_RATE != 0).then_some(words[1]),
        })
    }
}

//! Bitstreams for regions of the shell, with the CRC that the built-in builder leaves out.

use snic_bitstream::catalogue::{self, Catalogue};
use snic_bitstream::{TestBuild, identify, with_known_control};
use snic_domain::{ByteSize, CardModel, CardProfile, ChainIdentity, ReportedChain};

const CMD: u32 = 0x3000_8001;
const CRC: u32 = 0x3000_0001;
const DESYNC: u32 = 13;
const RCRC: u32 = 7;
const NOOP: u32 = 0x2000_0000;

/// A bitstream, and the report of a region with it.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) chain: ReportedChain,
}

impl Image {
    /// The same with one bit of its frames changed: its CRC does not fit.
    pub(crate) fn damaged(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        bytes
    }

    /// The same without what follows DESYNC.
    pub(crate) fn without_tail(&self) -> Vec<u8> {
        let end = [0x30, 0, 0x80, 1, 0, 0, 0, 13];
        let place = self.bytes.windows(8).rposition(|bytes| bytes == end).expect("an end") + 8;
        let cut = (self.bytes.len() - place) as u32;
        let mut bytes = self.bytes[..place].to_vec();
        let mut at = 13;
        for _ in 0..4 {
            at += 3 + usize::from(u16::from_be_bytes([bytes[at + 1], bytes[at + 2]]));
        }
        let size = word(&bytes[at + 1..at + 5]) - cut;
        bytes[at + 1..at + 5].copy_from_slice(&size.to_be_bytes());
        bytes
    }

    /// The same between streams that set control registers, as the daemon sends it.
    pub(crate) fn between_control_streams(&self) -> Vec<u8> {
        with_known_control(&self.bytes).expect("a valid bitstream")
    }
}

/// Builder of bitstreams for the card of these tests.
#[derive(Debug)]
pub(crate) struct Images {
    catalogue: Catalogue,
    card: CardProfile,
}

impl Images {
    pub(crate) fn new() -> Self {
        let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
        let model = CardModel::new("sim-16").expect("a label");
        let card = catalogue.card(&model).expect("the catalogue has it").clone();
        Self { catalogue, card }
    }

    /// A bitstream of so many bytes, of a build of these NT types, by their numbers in the catalogue.
    pub(crate) fn build(&self, nts: &[usize], bytes: u64) -> Image {
        let chain: Vec<_> = nts.iter().map(|nt| &self.catalogue.nt_types[*nt]).collect();
        let first = nts.first().map_or(0, |nt| *nt as u32);
        let identity = Some(ChainIdentity::from_words([7, first, bytes as u32, 1]));
        let build = TestBuild { card: &self.card, chain: &chain, die: 0, identity };
        let bytes = build.build(ByteSize::from_bytes(bytes)).expect("a possible size");
        let bytes = with_crc(&bytes);
        let chain = identify(&bytes).expect("a valid bitstream").reported();
        Image { bytes, chain }
    }
}

/// A CRC word in front of DESYNC; two of the NOOPs behind it make room.
fn with_crc(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let sync = bytes.windows(4).position(|word| word == [0xaa, 0x99, 0x55, 0x66]).expect("there");
    let mut words: Vec<u32> = bytes[sync..].chunks_exact(4).map(word).collect();
    let desync = words.windows(2).rposition(|pair| pair == [CMD, DESYNC]).expect("an end");
    let crc = crc_of(&words[1..desync]);
    assert_eq!(words[desync + 2..desync + 4], [NOOP; 2]);
    words[desync..desync + 4].copy_from_slice(&[CRC, crc, CMD, DESYNC]);
    for (place, word) in bytes[sync..].chunks_exact_mut(4).zip(&words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

/// CRC that a device computes over these packets: bit by bit, the register's address behind each word.
fn crc_of(words: &[u32]) -> u32 {
    let (mut crc, mut register, mut left) = (0, 0, 0);
    for &word in words {
        if left == 0 {
            match word >> 29 {
                2 => left = word & 0x07ff_ffff,
                _ => (register, left) = (word >> 13 & 0x1f, word & 0x7ff),
            }
            continue;
        }
        left -= 1;
        let bits = u64::from(word) | u64::from(register) << 32;
        crc = (0..37).fold(crc, |crc: u32, bit| {
            let odd = (crc ^ (bits >> bit) as u32) & 1;
            (crc >> 1) ^ (odd * 0x82f6_3b78)
        });
        if (register, word) == (CMD >> 13 & 0x1f, RCRC) {
            crc = 0;
        }
    }
    crc
}

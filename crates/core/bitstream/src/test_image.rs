//! Bitstreams for simulated regions: valid containers with valid packets and the chain ROM, and
//! noise where a real one has logic. Nobody needs a vendor's tools to try the system.
//!
//! With an identity the ROM stands among the frames, as if a build flow had placed it: nothing at a known
//! place says what the file holds, as in a vendor's bitstream.

use snic_domain::limits::BITSTREAM_BYTES_MAX;
use snic_domain::{ByteSize, CardProfile, ChainIdentity, NtType};

use crate::packet::{
    BUS_WIDTH, FRAME_WORDS, NOOP, PAD, Register, SYNC, command, long_write, write,
};
use crate::{BitHeader, ChainRom, InvalidHeader, InvalidRom};

/// Bytes of a frame.
const FRAME_BYTES: usize = FRAME_WORDS * 4;
/// Pad words before the bus width words (UG570's sample bitstream has 16).
const LEAD_PADS: usize = 16;
/// NOOPs that flush the packet buffer after DESYNC.
const TAIL_NOOPS: usize = 4;
/// Frames at least: one with the ROM, and the pad that the device drops.
const FRAMES_MIN: usize = 2;
/// Where the ROM begins in a frame that a flow would have placed it in.
const PLACED_AT: usize = 17;

/// Why a test image cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTestImage {
    /// The chain does not fit a ROM.
    #[error(transparent)]
    Rom(#[from] InvalidRom),
    /// The part's name does not fit a header.
    #[error(transparent)]
    Header(#[from] InvalidHeader),
    /// Too small or too large.
    #[error(
        "a test image of {asked} cannot be built: {least} to {BITSTREAM_BYTES_MAX} are possible"
    )]
    Size { asked: ByteSize, least: ByteSize },
}

/// Target of a test image.
#[derive(Debug, Clone, Copy)]
pub struct TestBuild<'a> {
    pub card: &'a CardProfile,
    /// The NTs, in the order packets pass; 1 to 8.
    pub chain: &'a [&'a NtType],
    /// The die of its regions, 0 to 3 along the chain: the streams of the dies before it carry the next
    /// one's, and nothing else.
    pub die: u8,
    /// The identity of a build whose ROM is placed among the frames; without one the ROM stands at the
    /// beginning of the first frame.
    pub identity: Option<ChainIdentity>,
}

/// Builds a valid `.bit` file for the part of `card`, on its first die, with the ROM of `chain` in its first
/// frame: see [`TestBuild::build`].
///
/// # Errors
///
/// As [`TestBuild::build`].
pub fn build_test(
    card: &CardProfile,
    chain: &[&NtType],
    size: ByteSize,
) -> Result<Vec<u8>, InvalidTestImage> {
    TestBuild { card, chain, die: 0, identity: None }.build(size)
}

impl TestBuild<'_> {
    /// A valid `.bit` file: the ROM of the chain, and deterministic noise. It has exactly `size` bytes; the
    /// same arguments always give the same bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidTestImage`] if the chain has no valid ROM, or `size` is too small or not possible for the
    /// card.
    pub fn build(&self, size: ByteSize) -> Result<Vec<u8>, InvalidTestImage> {
        let Self { card, chain, die, .. } = *self;
        let rom = self.rom()?.encode();
        let mut design = chain.iter().map(|nt| nt.id.as_str()).collect::<Vec<_>>().join(" -> ");
        let header_bytes = header(card, &design).bytes();
        let (head, tail) = (head_words(card.idcode), tail_words());
        // FDRI's two headers stand between head and frames, BOUT's between a die's lead and the next.
        let (lead, end) = (lead_words(card.idcode), end_words());
        let (jumps, jump) = (usize::from(die), lead.len() + 2 + end.len());
        let packets = (jumps * jump + head.len() + 2 + tail.len()) * 4;
        let least = header_bytes + packets + FRAMES_MIN * FRAME_BYTES;
        let asked = usize::try_from(size.get()).unwrap_or(usize::MAX);
        if asked < least || size > BITSTREAM_BYTES_MAX {
            let least = ByteSize::from_bytes(least as u64);
            return Err(InvalidTestImage::Size { asked: size, least });
        }
        // Packets are whole words; spaces in the header make up for the rest.
        design.extend(std::iter::repeat_n(' ', (asked - header_bytes) % 4));
        let data_bytes = (asked - header_bytes) / 4 * 4;
        let frames = (data_bytes - packets) / FRAME_BYTES;
        let mut out = Vec::with_capacity(asked);
        // At most 16 MiB, so that all numbers below fit in 32 bits.
        header(card, &design).write(&mut out, data_bytes as u32)?;
        let innermost = head.len() + 2 + frames * FRAME_WORDS + tail.len();
        for below in (0..jumps).rev() {
            push(&mut out, &lead);
            let words = (innermost + below * jump) as u32;
            push(&mut out, &[write(Register::BOUT, 0), long_write(words)]);
        }
        push(&mut out, &head);
        push(&mut out, &[write(Register::FDRI, 0), long_write((frames * FRAME_WORDS) as u32)]);
        self.push_frames(&mut out, frames, &rom);
        push(&mut out, &tail);
        (0..jumps).for_each(|_| push(&mut out, &end));
        while out.len() < asked {
            push(&mut out, &[NOOP]);
        }
        Ok(out)
    }

    fn rom(&self) -> Result<ChainRom, InvalidRom> {
        let rom = ChainRom::of(self.chain)?;
        Ok(match self.identity {
            Some(identity) => rom.of_build(identity),
            None => rom,
        })
    }

    /// The frames: the ROM at its place, noise around it. The last frame is a pad, which no region holds.
    fn push_frames(&self, out: &mut Vec<u8>, frames: usize, rom: &[u32]) {
        let start = out.len();
        let end = start + frames * FRAME_BYTES;
        if self.identity.is_none() {
            push(out, rom);
            return fill_with_noise(out, end, rom);
        }
        fill_with_noise(out, end, rom);
        let frame = (frames / 2).min(frames - FRAMES_MIN);
        let at = start + frame * FRAME_BYTES + PLACED_AT * 4;
        for (place, word) in out[at..].chunks_exact_mut(4).zip(rom) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }
}

/// The `.bit` of a test role: for the part of `card`, with one frame and no chain.
pub(crate) fn role_bit(card: &CardProfile) -> Result<Vec<u8>, InvalidHeader> {
    let mut words = head_words(card.idcode);
    words.extend([write(Register::FDRI, 0), long_write(FRAME_WORDS as u32)]);
    words.extend([0; FRAME_WORDS]);
    words.extend(tail_words());
    let mut out = Vec::new();
    // A few hundred words.
    header(card, "snic role").write(&mut out, (words.len() * 4) as u32)?;
    push(&mut out, &words);
    Ok(out)
}

fn header<'a>(card: &'a CardProfile, design: &'a str) -> BitHeader<'a> {
    BitHeader { design, part: &card.part, date: "2024/01/01", time: "00:00:00" }
}

/// Opens a die's stream.
fn lead_words(idcode: u32) -> Vec<u32> {
    let mut words = vec![PAD; LEAD_PADS];
    words.extend(BUS_WIDTH);
    words.extend([PAD, PAD, SYNC, NOOP]);
    words.extend([write(Register::CMD, 1), command::RCRC, NOOP, NOOP]);
    words.extend([write(Register::IDCODE, 1), idcode]);
    words
}

fn head_words(idcode: u32) -> Vec<u32> {
    let mut words = lead_words(idcode);
    words.extend([write(Register::CMD, 1), command::WCFG, NOOP]);
    words.extend([write(Register::FAR, 1), 0, NOOP]);
    words
}

fn tail_words() -> Vec<u32> {
    let mut words = vec![write(Register::CMD, 1), command::LFRM, NOOP];
    words.extend(end_words());
    words
}

/// Closes a die's stream.
fn end_words() -> Vec<u32> {
    let mut words = vec![write(Register::CMD, 1), command::DESYNC];
    words.extend([NOOP; TAIL_NOOPS]);
    words
}

fn push(out: &mut Vec<u8>, words: &[u32]) {
    out.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

/// Fills `out` up to `end` bytes by xorshift64*, seeded by the ROM: images of different chains
/// differ throughout, so that their digests tell one region's content from another's.
fn fill_with_noise(out: &mut Vec<u8>, end: usize, rom: &[u32]) {
    let mut state = rom.iter().fold(0x9E37_79B9_7F4A_7C15_u64, |seed, &word| {
        (seed ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17)
    }) | 1;
    let start = out.len();
    out.resize(end, 0);
    for chunk in out[start..].chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let bytes = state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_be_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalogue::{self, Catalogue};
    use crate::{identify, parse};

    fn on_die(die: u8, card: &CardProfile, chain: &[&NtType], size: ByteSize) -> Vec<u8> {
        TestBuild { card, chain, die, identity: None }.build(size).expect("possible")
    }

    fn sim() -> (Catalogue, CardProfile) {
        let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
        let card = catalogue.cards[0].clone();
        (catalogue, card)
    }

    #[test]
    fn an_image_of_4_mib_takes_5_ms_to_load_and_says_what_it_is() {
        let (catalogue, card) = sim();
        let chain: Vec<&NtType> = catalogue.nt_types.iter().take(3).collect();
        let bytes = build_test(&card, &chain, ByteSize::from_mib(4)).expect("4 MiB are possible");
        assert_eq!(bytes.len(), 4 << 20);
        let micros = bytes.len() as u64 * 1_000_000 / card.configuration_bytes_per_second;
        assert_eq!(micros, 5_242);
        let file = parse(&bytes).expect("a valid file");
        file.check_card(&card).expect("the card's part");
        // All but headers, packets and less than a frame of NOOPs.
        assert!(file.frames() * FRAME_BYTES > bytes.len() - 2 * FRAME_BYTES);
        assert_eq!(identify(&bytes), Ok(ChainRom::of(&chain).expect("valid")));
    }

    #[test]
    fn the_same_arguments_give_the_same_bytes_and_others_give_others() {
        let (catalogue, card) = sim();
        let size = ByteSize::from_bytes(4_096);
        let image = |nts: &[&NtType]| build_test(&card, nts, size).expect("possible");
        let (a, b) = (&catalogue.nt_types[0], &catalogue.nt_types[1]);
        assert_eq!(image(&[a, b]), image(&[a, b]));
        let (ab, ba) = (image(&[a, b]), image(&[b, a]));
        let same = ab[1_000..].iter().zip(&ba[1_000..]).filter(|(x, y)| x == y).count();
        assert!(same < 300, "{same} of 3096 bytes of noise are the same");
    }

    #[test]
    fn an_image_that_cannot_be_built_is_refused() {
        let (catalogue, card) = sim();
        let nt = &catalogue.nt_types[0];
        for bytes in [0, 100, BITSTREAM_BYTES_MAX.get() + 1, u64::MAX] {
            let error = build_test(&card, &[nt], ByteSize::from_bytes(bytes));
            assert!(matches!(error, Err(InvalidTestImage::Size { .. })), "{bytes}");
        }
        let size = ByteSize::from_mib(1);
        let slots = |slots| Err(InvalidTestImage::Rom(InvalidRom::Slots { slots }));
        assert_eq!(build_test(&card, &[], size), slots(0));
        assert_eq!(build_test(&card, &[nt; 9], size), slots(9));
        let card = CardProfile { part: "\0".to_owned(), ..card };
        assert!(matches!(build_test(&card, &[nt], size), Err(InvalidTestImage::Header(_))));
    }

    #[test]
    fn the_least_size_that_the_error_names_is_possible() {
        let (catalogue, card) = sim();
        let chain = [&catalogue.nt_types[0]; 8];
        let Err(InvalidTestImage::Size { least, .. }) = build_test(&card, &chain, ByteSize::ZERO)
        else {
            panic!("0 bytes are too few");
        };
        let bytes = build_test(&card, &chain, least).expect("the least");
        assert_eq!(parse(&bytes).expect("a valid file").frames(), FRAMES_MIN);
        let less = ByteSize::from_bytes(least.get() - 1);
        assert!(build_test(&card, &chain, less).is_err());
    }

    #[test]
    fn an_image_for_another_die_writes_and_commands_that_die_alone() {
        let (catalogue, card) = sim();
        let chain = [&catalogue.nt_types[0]];
        for die in 0..4 {
            let size = ByteSize::from_bytes(4_097);
            let bytes = on_die(die, &card, &chain, size);
            assert_eq!(bytes.len(), 4_097);
            let file = parse(&bytes).expect("a valid file");
            assert_eq!((file.writes.len(), file.writes[0].die), (1, die));
            assert_eq!(file.dies, [die]);
            assert_eq!(identify(&bytes), Ok(ChainRom::of(&chain).expect("valid")));
        }
    }

    #[test]
    fn an_image_with_an_identity_says_what_it_is_nowhere_a_checker_looks() {
        let (catalogue, card) = sim();
        let chain = [&catalogue.nt_types[0], &catalogue.nt_types[1]];
        let identity = ChainIdentity::from_words([1, 2, 3, 4]);
        let build = TestBuild { card: &card, chain: &chain, die: 0, identity: Some(identity) };
        for bytes in [1_400, 4_096, 65_536] {
            let image = build.build(ByteSize::from_bytes(bytes)).expect("possible");
            let file = parse(&image).expect("a valid file");
            assert_eq!(crate::rom::claim_of(&file), Ok(None), "{bytes} bytes");
            let rom = identify(&image).expect("a simulated region finds it");
            assert_eq!(rom.reported().identity, identity);
            assert_eq!(rom, ChainRom::of(&chain).expect("valid").of_build(identity));
        }
    }

    proptest! {
        #[test]
        fn every_image_is_valid_and_has_its_size(
            size in 2_000u64..40_000,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 1..=8),
        ) {
            let (catalogue, card) = sim();
            let chain: Vec<&NtType> = picks.iter().map(|i| i.get(&catalogue.nt_types)).collect();
            let bytes = build_test(&card, &chain, ByteSize::from_bytes(size)).expect("possible");
            prop_assert_eq!(bytes.len() as u64, size);
            let rom = identify(&bytes).expect("a valid image");
            let codes: Vec<_> = rom.slots().iter().map(|slot| slot.code).collect();
            prop_assert_eq!(codes, chain.iter().map(|nt| nt.id.code()).collect::<Vec<_>>());
        }
    }
}

use proptest::prelude::*;

use super::*;
use crate::catalogue;
use crate::packet::{DIES_MAX, LEAD_WORDS_MAX, NOOP, PAD, Register, SYNC};
use crate::test_image::build_test;
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{ByteSize, NtType};

/// A file written by hand after UG570: header, pads, bus width, sync, one frame, DESYNC.
const TINY_HEAD: &[u8] = b"\x00\x09\x0f\xf0\x0f\xf0\x0f\xf0\x0f\xf0\x00\x00\x01\
    a\x00\x05tiny\0b\x00\x07xcvu9p\0c\x00\x0b2024/01/01\0d\x00\x0900:00:00\0e";
const TINY_WORDS: &[u32] = &[
    0xFFFF_FFFF,
    0x0000_00BB,
    0x1122_0044,
    0xFFFF_FFFF,
    0xAA99_5566, // pads, bus width, sync
    0x2000_0000, // NOOP
    0x3000_8001,
    0x0000_0007, // CMD: RCRC
    0x3001_8001,
    0x14B3_1093, // IDCODE
    0x3000_2001,
    0x0104_0211, // FAR: block type 1, row 1, column 2, minor 17
    0x3000_8001,
    0x0000_0001, // CMD: WCFG
    0x3000_405D, // FDRI, 93 words
];
const TINY_TAIL: &[u32] = &[
    0x3000_C001,
    0x0000_0100,
    0x3000_A001,
    0x0000_0100, // MASK, CTL0: GLUTMASK
    0x3000_0001,
    CRC,
    0x3000_8001,
    0x0000_000D, // CMD: DESYNC
    0x2000_0000,
    0x2000_0000,
];

/// The CRC of the tiny file, computed outside of this crate.
const CRC: u32 = 0x3F1A_60A5;
/// Where it stands: the packet's header.
const CRC_AT: usize = 112;

fn frame() -> Vec<u32> {
    (0..93).map(|i| 0xC0DE_0000 + i).collect()
}

fn file(words: &[u32]) -> Vec<u8> {
    let mut bytes = TINY_HEAD.to_vec();
    bytes.extend((words.len() as u32 * 4).to_be_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes
}

fn tiny() -> Vec<u32> {
    [TINY_WORDS, &frame(), TINY_TAIL].concat()
}

/// The tiny file with some of its words replaced by others, and no CRC.
fn with(range: std::ops::Range<usize>, words: &[u32]) -> Result<usize, InvalidBitstream> {
    let mut all = tiny();
    (all[CRC_AT], all[CRC_AT + 1]) = (0x2000_0000, 0x2000_0000);
    all.splice(range, words.iter().copied());
    parse(&file(&all)).map(|file| file.frames())
}

#[test]
fn the_tiny_file_is_read() {
    let bytes = file(&tiny());
    let read = parse(&bytes).expect("a valid file");
    assert_eq!((read.header.design, read.header.part), ("tiny", "xcvu9p"));
    assert_eq!(read.idcode, 0x14B3_1093);
    assert_eq!(read.writes.len(), 1);
    let write = read.writes[0];
    let address = write.address;
    assert_eq!(
        (address.block_type(), address.row(), address.column(), address.minor()),
        (1, 1, 2, 17)
    );
    assert_eq!((write.frames(), read.frames()), (1, 1));
    assert_eq!(write.words().collect::<Vec<_>>(), frame());
}

#[test]
fn a_long_packet_writes_many_frames() {
    let frames = [0x3000_4000, 0x5000_0000 + 93 * 3];
    let tail = [&TINY_TAIL[..4], &TINY_TAIL[6..]].concat();
    let words = [&TINY_WORDS[..14], &frames, &frame(), &frame(), &frame(), &tail].concat();
    let bytes = file(&words);
    assert_eq!(parse(&bytes).expect("a valid file").frames(), 3);
}

#[test]
fn registers_and_commands_beyond_the_region_are_refused_by_name() {
    let cases: [(u32, &str); 8] = [
        (11, "CBC"),
        (13, "AXSS"),
        (14, "COR1"),
        (16, "WBSTAR (boot)"),
        (17, "TIMER"),
        (22, "BOOTSTS"),
        (8, "LOUT"),
        (31, "31"),
    ];
    for (register, name) in cases {
        let error = with(5..6, &[0x3000_0001 | register << 13, 0]).expect_err(name);
        assert!(error.to_string().contains(&format!("register {name}")), "{error}");
    }
    for command in [4, 9, 12, 15] {
        let error = Err(InvalidBitstream::Command { command, at: 20 });
        assert_eq!(with(5..6, &[0x3000_8001, command]), error);
    }
}

#[test]
fn control_bits_of_the_whole_device_are_refused() {
    let at = 14 * 4 + 4 + 93 * 4;
    let mask = TINY_WORDS.len() + 93 + 1;
    for bits in [1 << 31, 1 << 30, 1 << 12, 1 << 6, 1 << 4, 1 << 3, 1] {
        let error = Err(InvalidBitstream::Control { bits, at });
        assert_eq!(with(mask..mask + 1, &[bits | 0x100]), error, "{bits:#x}");
    }
}

#[test]
fn frame_data_needs_idcode_address_and_command() {
    let missing = |missing, at| Err(InvalidBitstream::NotReady { missing, at });
    assert_eq!(with(8..10, &[]), missing("IDCODE", 48));
    assert_eq!(with(10..12, &[]), missing("FAR", 48));
    assert_eq!(with(12..14, &[]), missing("CMD WCFG", 48));
    // A second write without WCFG, which would begin with the frame that the buffer holds, and one
    // without its own address.
    let again: Vec<u32> = std::iter::once(0x3000_405D).chain(frame()).collect();
    assert_eq!(with(108..108, &again), missing("CMD WCFG", 432));
    let again: Vec<u32> = [0x3000_8001, 1].into_iter().chain(again).collect();
    assert_eq!(with(108..108, &again), missing("FAR", 440));
    let address = Err(InvalidBitstream::Address { raw: 0x0200_0000, at: 56 });
    assert_eq!(with(11..12, &[0x0200_0000]), address);
}

#[test]
fn frame_data_is_whole_frames_and_inside_the_file() {
    let words = |words| Err(InvalidBitstream::NotFrames { words, at: 56 });
    assert_eq!(with(14..15, &[0x3000_405C]), words(92));
    let long = |count: u32| with(14..15, &[0x3000_4000, 0x5000_0000 | count]);
    assert_eq!(long(0), Err(InvalidBitstream::NotFrames { words: 0, at: 60 }));
    let cut = |count, left| Err(InvalidBitstream::Cut { count, left, at: 60 });
    assert_eq!(long(93 * 1_000_000), cut(93_000_000, 103));
    assert_eq!(long(93 * 1_443_201), cut(134_217_693, 103));
    assert_eq!(with(14..15, &[0x5000_005D]), Err(InvalidBitstream::LongAlone { at: 56 }));
    let no_packet = Err(InvalidBitstream::NoPacket { word: 0x2000_0000, at: 60 });
    assert_eq!(with(14..15, &[0x3000_4000, 0x2000_0000]), no_packet);
}

#[test]
fn other_damage_has_its_error() {
    assert_eq!(with(4..5, &[]), Err(InvalidBitstream::NoSync));
    assert_eq!(with(0..0, &[PAD; LEAD_WORDS_MAX]), Err(InvalidBitstream::NoSync));
    assert_eq!(with(0..118, &[]), Err(InvalidBitstream::NoSync));
    assert_eq!(with(5..6, &[0x2800_E001]), Err(InvalidBitstream::Read { at: 20 }));
    assert_eq!(with(5..6, &[7]), Err(InvalidBitstream::NoPacket { word: 7, at: 20 }));
    let register = Register::CMD;
    let count = Err(InvalidBitstream::Count { register, count: 2, at: 24 });
    assert_eq!(with(6..7, &[0x3000_8002]), count);
    let second = Err(InvalidBitstream::TwoIdcodes { first: 0x14B3_1093, second: 1, at: 40 });
    assert_eq!(with(10..10, &[0x3001_8001, 1]), second);
    assert_eq!(with(114..118, &[]), Err(InvalidBitstream::NoDesync));
    let cut = Err(InvalidBitstream::Cut { count: 1, left: 0, at: 456 });
    assert_eq!(with(115..118, &[]), cut);
    assert_eq!(with(10..108, &[]), Err(InvalidBitstream::NoFrames));
}

/// The words of a stream that leads to the next die and does nothing else, around another stream.
fn jump(inner: &[u32]) -> Vec<u32> {
    let long = [0x3003_C000, 0x5000_0000 | inner.len() as u32];
    [&TINY_WORDS[..10], &long, inner, &TINY_TAIL[6..]].concat()
}

#[test]
fn each_die_has_a_stream_of_its_own_inside_the_one_before() {
    let mut words = tiny();
    for die in 0..DIES_MAX {
        let bytes = file(&words);
        let read = parse(&bytes).expect("a valid file");
        assert_eq!((read.writes.len(), read.writes[0].die), (1, die));
        assert_eq!((read.writes[0].address.column(), read.frames()), (2, 1));
        assert_eq!(read.dies, [die]);
        words = jump(&words);
    }
    let at = 4 * (12 * usize::from(DIES_MAX) - 1);
    assert_eq!(parse(&file(&words)), Err(InvalidBitstream::Dies { at }));
    // Both dies: after the next die's stream this one's goes on.
    let both = [&TINY_WORDS[..10], &[0x3003_C000, 0x5000_0000 | 118], &tiny(), &tiny()[10..]];
    let bytes = file(&both.concat());
    let read = parse(&bytes).expect("a valid file");
    let dies: Vec<_> = read.writes.iter().map(|write| write.die).collect();
    assert_eq!((dies, read.dies), (vec![1, 0], vec![1, 0]));
}

#[test]
fn a_die_s_stream_is_checked_as_strictly_as_the_first() {
    let mut other = tiny();
    (other[CRC_AT], other[CRC_AT + 1]) = (NOOP, NOOP);
    other[9] = 1;
    let (first, second) = (0x14B3_1093, 1);
    let two = Err(InvalidBitstream::TwoIdcodes { first, second, at: 48 + 32 });
    assert_eq!(parse(&file(&jump(&other))), two);
    let mut boot = tiny();
    boot.splice(5..6, [0x3002_0001, 0]); // WBSTAR
    let register = Register(16);
    assert_eq!(parse(&file(&jump(&boot))), Err(InvalidBitstream::Register { register, at: 68 }));
    assert_eq!(parse(&file(&jump(&tiny()[5..]))), Err(InvalidBitstream::NoSync));
    assert_eq!(parse(&file(&jump(&tiny()[..114]))), Err(InvalidBitstream::NoDesync));
    assert_eq!(parse(&file(&jump(&[]))), Err(InvalidBitstream::NoSync));
    let behind = [tiny(), vec![7]].concat();
    let after = Err(InvalidBitstream::AfterDesync { word: 7, at: 48 + 472 });
    assert_eq!(parse(&file(&jump(&behind))), after);
    // It needs an IDCODE of its own before its frames, and says where it ends.
    let mut bare = tiny();
    (bare[CRC_AT], bare[CRC_AT + 1]) = (NOOP, NOOP);
    bare.drain(8..10);
    let missing = Err(InvalidBitstream::NotReady { missing: "IDCODE", at: 48 + 48 });
    assert_eq!(parse(&file(&jump(&bare))), missing);
    let mut long = jump(&tiny());
    long[11] = 0x5000_0000 | 1_000;
    let cut = Err(InvalidBitstream::Cut { count: 1_000, left: 122, at: 44 });
    assert_eq!(parse(&file(&long)), cut);
}

#[test]
fn nothing_hides_behind_desync() {
    // A second stream is checked as the first is.
    let register = Register(16);
    let boot = Err(InvalidBitstream::Register { register, at: 476 });
    assert_eq!(with(118..118, &[SYNC, 0x3002_0001, 0]), boot);
    assert_eq!(with(118..118, &[SYNC]), Err(InvalidBitstream::NoDesync));
    let after = Err(InvalidBitstream::AfterDesync { word: 0x3000_8001, at: 472 });
    assert_eq!(with(118..118, &[0x3000_8001, 0xD]), after);
    assert_eq!(with(118..118, &[PAD, 0, NOOP]), Ok(1));
}

#[test]
fn bytes_beside_words_are_refused() {
    let mut bytes = file(&tiny());
    bytes.push(0);
    let length = TINY_HEAD.len();
    let data = bytes.len() - length - 4;
    bytes[length..length + 4].copy_from_slice(&(data as u32).to_be_bytes());
    assert_eq!(parse(&bytes), Err(InvalidBitstream::NotWords { bytes: data }));
}

#[test]
fn the_part_and_the_idcode_are_the_cards() {
    let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
    let mut card = catalogue.cards[0].clone();
    card.part = "XCVU9P".to_owned();
    let bytes = file(&tiny());
    let read = parse(&bytes).expect("a valid file");
    assert_eq!(read.check_card(&card), Ok(()));
    card.idcode ^= 0xF000_0000;
    assert_eq!(read.check_card(&card), Ok(()), "another revision of the silicon");
    // Another part each: by the lowest and the highest bit of its number, and as a card has it.
    for expected in [0x14B3_1092, 0x1CB3_1093, 0x14B7_D093] {
        card.idcode = expected;
        let found = 0x14B3_1093;
        assert_eq!(read.check_card(&card), Err(WrongCard::Idcode { found, expected }));
    }
    card.part = "xcu280".to_owned();
    let (found, expected) = ("xcvu9p".to_owned(), "xcu280".to_owned());
    assert_eq!(read.check_card(&card), Err(WrongCard::Part { found, expected }));
}

/// Checks properties of every file that is taken, whatever its bytes.
fn check_taken(bytes: &[u8]) -> bool {
    let Ok(read) = parse(bytes) else { return false };
    let frame_bytes: usize = read.writes.iter().map(|write| write.words().count() * 4).sum();
    assert!(!read.writes.is_empty() && frame_bytes < bytes.len());
    assert_eq!(frame_bytes, read.frames() * FRAME_WORDS * 4);
    assert!(read.writes.len() * size_of::<FrameWrite<'_>>() < bytes.len());
    assert!(bytes.windows(4).any(|w| w == SYNC.to_be_bytes()));
    true
}

/// A step of a generator whose every result is used: xorshift64.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

/// One of: a byte set, a bit flipped, a word replaced by a packet-like one, words moved, cut, grown.
fn mutate(bytes: &mut Vec<u8>, state: &mut u64) {
    let packets = [SYNC, NOOP, PAD, 0x3000_8001, 0x3000_4000, 0x3000_2001, 0x5000_005D, 0xD];
    let at = next(state) % bytes.len().max(1);
    match next(state) % 6 {
        0 if !bytes.is_empty() => bytes[at] = next(state) as u8,
        1 if !bytes.is_empty() => bytes[at] ^= 1 << (next(state) % 8),
        2 => {
            let word = packets[next(state) % packets.len()].to_be_bytes();
            let end = (at + 4).min(bytes.len());
            bytes[at..end].copy_from_slice(&word[..end - at]);
        }
        3 => {
            let end = (at + next(state) % 64).min(bytes.len());
            let moved: Vec<u8> = bytes.drain(at..end).collect();
            let to = next(state) % (bytes.len() + 1);
            bytes.splice(to..to, moved);
        }
        4 => bytes.truncate(at),
        _ => bytes.extend(std::iter::repeat_n(next(state) as u8, next(state) % 9)),
    }
}

#[test]
fn thirty_thousand_mutated_files_are_taken_or_refused() {
    let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
    let chain: Vec<&NtType> = catalogue.nt_types.iter().take(CHAIN_SLOTS_MAX).collect();
    let size = ByteSize::from_bytes(2_048);
    let image = build_test(&catalogue.cards[0], &chain, size).expect("2 KiB are possible");
    let sources = [file(&tiny()), image];
    let (mut taken, mut refused, mut state) = (0, 0, 0x5EED_u64);
    for round in 0..30_000 {
        let mut bytes = sources[round % sources.len()].clone();
        for _ in 0..=next(&mut state) % 3 {
            mutate(&mut bytes, &mut state);
        }
        // Also with the length field made right again, so that the packets are reached.
        let data_at = TINY_HEAD.len() + 4;
        if round % 4 == 0 && bytes.len() > data_at {
            let data = (bytes.len() - data_at) as u32;
            bytes[data_at - 4..data_at].copy_from_slice(&data.to_be_bytes());
        }
        let _ = crate::identify(&bytes);
        if check_taken(&bytes) { taken += 1 } else { refused += 1 }
    }
    assert!(taken > 3_000 && refused > 10_000, "{taken} taken, {refused} refused");
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(!check_taken(&bytes));
    }

    #[test]
    fn any_packets_are_taken_or_refused(
        picks in prop::collection::vec((0usize..12, any::<u32>()), 0..200)
    ) {
        let packets = [
            NOOP, PAD, 0x3000_8001, 0x3000_2001, 0x3001_8001, 0x3000_405D, 0x3000_4000,
            0x5000_005D, 1, 0xD, 0,
        ];
        let words = picks.iter().map(|&(i, word)| packets.get(i).copied().unwrap_or(word));
        let words: Vec<u32> = TINY_WORDS[..5].iter().copied().chain(words).collect();
        check_taken(&file(&words));
    }

    /// Cutting a valid file anywhere leaves no valid file, even with its length field made right,
    /// but behind DESYNC.
    #[test]
    fn a_cut_file_is_refused(keep in 0usize..116) {
        prop_assert!(parse(&file(&tiny()[..keep])).is_err());
    }
}

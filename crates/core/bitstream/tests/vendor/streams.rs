//! Bitstreams as the vendor's tools write them: taken where they keep to the region, refused where
//! one word reaches beyond it. One test for each word of `bitstreams/configuration-words.md`.

use crate::image::*;
use rstest::rstest;
use snic_bitstream::catalogue::Catalogue;
use snic_bitstream::manifest::BuiltManifest;
use snic_bitstream::{
    ChainRom, FloorGroup, FloorPlan, FrameKind, InvalidBitstream, InvalidRom, NotIdentified,
    OutsideRegion, UnmaskedReason, catalogue, check_upload, identify, parse,
};
use snic_domain::{
    Bitstream, BuildClaims, ByteSize, Digest, RegionId, RegionImage, RegionImages, RegionKind,
};

fn region() -> Region {
    Region { die: 0, rows: 1..=2, columns: 2..=5, memories: None }
}

/// A region that fills whole rows, memories too.
fn rows() -> Region {
    Region { die: 0, rows: 1..=2, columns: 0..=7, memories: Some(0..=1) }
}

#[derive(Debug, PartialEq)]
enum Refused {
    File(InvalidBitstream),
    Region(OutsideRegion),
}

fn check(ops: &[Op], plan: &FloorPlan) -> Result<(), Refused> {
    let bytes = bit(ops);
    let file = parse(&bytes).map_err(Refused::File)?;
    plan.check(&file, RegionKind::KnownNt).map_err(Refused::Region)
}

fn check_small(ops: &[Op]) -> Result<(), Refused> {
    let device = Device::small();
    check(ops, &device.plan(&region()))
}

#[track_caller]
fn assert_refused(ops: &[Op], expected: &str) {
    match check_small(ops) {
        Ok(()) => panic!("taken, but {expected:?} was expected"),
        Err(Refused::File(error)) => assert!(error.to_string().contains(expected), "{error}"),
        Err(Refused::Region(error)) => assert!(error.to_string().contains(expected), "{error}"),
    }
}

/// The vendor's file with `new` before the first of `old`, from the piece `from` on.
fn before(old: &Op, from: usize, new: &[Op]) -> Vec<Op> {
    let mut ops = partial(&Device::small(), &region());
    let at = from + ops[from..].iter().position(|op| op == old).expect("it is there");
    ops.splice(at..at, new.iter().cloned());
    ops
}

fn without(unwanted: &Op) -> Vec<Op> {
    let mut ops = partial(&Device::small(), &region());
    ops.retain(|op| op != unwanted);
    ops
}

fn with(old: &Op, new: &Op) -> Vec<Op> {
    let mut ops = partial(&Device::small(), &region());
    let at = ops.iter().position(|op| op == old).expect("it is there");
    ops[at] = new.clone();
    ops
}

#[rstest]
#[case::within_rows(region())]
#[case::one_row(Region { rows: 3..=3, ..region() })]
#[case::one_column(Region { columns: 4..=4, ..region() })]
#[case::to_the_last_column(Region { columns: 5..=7, ..region() })]
#[case::last_row(Region { rows: 3..=3, ..rows() })]
#[case::whole_rows(rows())]
#[case::memories_of_one_column(Region { memories: Some(1..=1), ..region() })]
#[case::memories_within_rows(Region { memories: Some(0..=0), ..region() })]
fn a_partial_bitstream_is_taken_for_its_region_and_no_other(#[case] region: Region) {
    let device = Device::small();
    let ops = partial(&device, &region);
    assert_eq!(check(&ops, &device.plan(&region)), Ok(()));
    let others = [
        Region { die: 1, ..region.clone() },
        Region { rows: *region.rows.start() + 1..=*region.rows.end() + 1, ..region.clone() },
        Region { columns: *region.columns.start() + 1..=7, ..region.clone() },
    ];
    for other in others {
        let refused = check(&ops, &device.plan(&other));
        assert!(matches!(refused, Err(Refused::Region(_))), "{other:?}: {refused:?}");
    }
    // And none but the smallest part of it is too small by a row or a column.
    if region.rows.clone().count() > 1 {
        let less = Region { rows: *region.rows.start()..=*region.rows.start(), ..region.clone() };
        assert!(check(&ops, &device.plan(&less)).is_err());
    }
    if region.columns.clone().count() > 1 {
        let last = *region.columns.end();
        let less = Region { columns: *region.columns.start()..=last - 1, ..region };
        assert!(check(&ops, &device.plan(&less)).is_err());
    }
}

#[test]
fn a_partial_bitstream_of_the_next_die_is_taken_there() {
    let device = Device::small();
    let ops = on_next_die(partial(&device, &region()));
    let there = Region { die: 1, ..region() };
    assert_eq!(check(&ops, &device.plan(&there)), Ok(()));
    assert!(matches!(check(&ops, &device.plan(&region())), Err(Refused::Region(_))));
    assert_eq!(check(&on_next_die(ops), &device.plan(&Region { die: 2, ..region() })), Ok(()));
}

#[test]
fn frames_of_the_reset_mask_are_told_from_content() {
    let device = Device::small();
    let bytes = bit(&partial(&device, &region()));
    let file = parse(&bytes).expect("valid");
    let masks = file.writes.iter().filter(|write| write.kind == FrameKind::ResetMask).count();
    // Four columns in two rows, in the first and in the last stream.
    assert_eq!((masks, file.writes.len()), (16, 18));
}

/// A run may end with a frame that stays in the frame buffer. More than one, or one with content,
/// belongs to somebody.
#[test]
fn a_pad_fills_the_last_column_of_a_region_and_no_more() {
    let first = |words: Vec<u32>| {
        let mut ops = mask_stream(&Device::small(), &region(), 0);
        ops.extend(content_stream(run(far(0, 1, 5, 0), words)));
        ops
    };
    // Column 5 has 5 frames.
    assert_eq!(check_small(&first([frames(0, 5), pads(1)].concat())), Ok(()));
    assert_refused(&first([frames(0, 5), pads(2)].concat()), "frame 0 of column 6 in row 1");
    assert_refused(&first(frames(0, 6)), "frame 0 of column 6 in row 1");
    assert_refused(&first([pads(5), frame(1)].concat()), "frame 0 of column 6 in row 1");
    // A pad alone is no pad of anything.
    let mut ops = mask_stream(&Device::small(), &region(), 0);
    ops.extend(content_stream(run(far(0, 1, 6, 0), pads(1))));
    assert_refused(&ops, "frame 0 of column 6 in row 1");
}

#[test]
fn a_run_goes_on_in_the_next_row_behind_two_pads() {
    let device = Device::small();
    let whole = Region { memories: None, ..rows() };
    let plan = device.plan(&whole);
    let count: usize = device.columns.iter().map(|frames| usize::from(*frames)).sum();
    let image = |words: Vec<u32>| {
        let mut ops = mask_stream(&device, &whole, 0);
        ops.extend(content_stream(run(far(0, 1, 0, 0), words)));
        ops
    };
    let row = || frames(7, count);
    assert_eq!(check(&image([row(), pads(2), row(), pads(2)].concat()), &plan), Ok(()));
    assert_eq!(check(&image([row(), pads(2), row(), pads(1)].concat()), &plan), Ok(()));
    // Into row 3, which is somebody else's.
    let beyond = image([row(), pads(2), row(), pads(2), frame(1)].concat());
    let error = check(&beyond, &plan).expect_err("row 3");
    assert!(format!("{error:?}").contains("row: 3"), "{error:?}");
    // Where pads have content, rows are not where the plan has them.
    for words in [[row(), frames(1, 2)].concat(), [row(), pads(1), row(), pads(2)].concat()] {
        assert!(matches!(check(&image(words), &plan), Err(Refused::Region(_))));
    }
    let unknown = FloorPlan { rows: Vec::new(), ..plan };
    let ops = image([row(), pads(2), row(), pads(1)].concat());
    assert!(matches!(check(&ops, &unknown), Err(Refused::Region(_))));
}

/// MFWR: where each repeated frame goes counts, and what its template would have been does not.
#[test]
fn compressed_writes_are_held_against_the_region_frame_by_frame() {
    let compressed = |addresses: &[u32], words: Vec<u32>| {
        let mut frames = run(far(0, 1, 5, 0), words);
        frames.extend([Op::Set(CMD, MFW), Op::Noop(12)]);
        for (i, address) in addresses.iter().enumerate() {
            frames.extend([Op::Set(FAR, *address), Op::Repeat(if i == 0 { 14 } else { 4 })]);
        }
        frames.extend(run(far(0, 2, 2, 0), [frame(5), pads(1)].concat()));
        let mut ops = mask_stream(&Device::small(), &region(), 0);
        ops.extend(content_stream(frames));
        ops
    };
    let inside = [far(0, 1, 3, 2), far(0, 2, 5, 4), far(0, 2, 2, 0)];
    assert_eq!(check_small(&compressed(&inside, frames(3, 2))), Ok(()));
    // The template itself, behind the region's last frame, only fills the buffer.
    assert_eq!(check_small(&compressed(&inside, frames(3, 6))), Ok(()));
    assert_refused(&compressed(&inside, frames(3, 7)), "frame 0 of column 6 in row 1");
    let outside = [far(0, 1, 3, 2), far(0, 2, 6, 0)];
    assert_refused(&compressed(&outside, frames(3, 2)), "frame 0 of column 6 in row 2");
    assert_refused(&compressed(&[far(0, 2, 5, 5)], frames(3, 2)), "frame 5 of column 5");
    assert_refused(&compressed(&[far(1, 1, 0, 0)], frames(3, 2)), "block type 1");
    assert_refused(&compressed(&[CLOSING], frames(3, 2)), "not a frame address");
}

#[test]
fn a_repeat_needs_its_template_its_command_and_an_address() {
    let repeat = |ops: &[Op]| before(&Op::Set(CMD, GRESTORE), 0, ops);
    let at = Op::Set(FAR, far(0, 1, 3, 0));
    let mfw = Op::Set(CMD, MFW);
    assert_eq!(check_small(&repeat(&[mfw.clone(), at.clone(), Op::Repeat(4)])), Ok(()));
    assert_refused(&repeat(&[at.clone(), Op::Repeat(4)]), "no CMD MFW before it");
    assert_refused(&repeat(&[mfw.clone(), Op::Repeat(4)]), "no FAR before it");
    let twice = [mfw.clone(), at.clone(), Op::Repeat(4), Op::Repeat(4)];
    assert_refused(&repeat(&twice), "no FAR before it");
    let emptied = [Op::Set(CMD, WCFG), mfw.clone(), at.clone(), Op::Repeat(4)];
    assert_refused(&repeat(&emptied), "no FDRI before it");
    assert_refused(&repeat(&[mfw.clone(), at.clone(), Op::Repeat(65)]), "repeats a frame with 65");
    let filled = [mfw, at, Op::Word(0x3001_4002), Op::Word(0), Op::Word(1)];
    let mut ops = repeat(&filled);
    ops.retain(|op| *op != Op::Crc);
    assert_refused(&ops, "all zero");
}

/// A file's rest in MASK would make the next one's CTL0 write more than it says.
#[test]
fn mask_shows_nothing_but_what_a_region_may_change() {
    for bits in [1, 1 << 3, 1 << 4, 1 << 6, 1 << 12, 1 << 23, 1 << 30, 1 << 31, u32::MAX] {
        // Alone, and before the registers that it is for.
        assert_refused(&before(&Op::Set(CMD, DESYNC), 0, &[Op::Set(MASK, bits)]), "unmasks");
        assert_refused(&with(&Op::Set(MASK, 0x500), &Op::Set(MASK, bits | 0x500)), "unmasks");
    }
    // Each register's bits are not the other's.
    assert_refused(&with(&Op::Set(MASK, 0x500), &Op::Set(MASK, 0x2_0000)), "unmasks");
    assert_refused(&with(&Op::Set(MASK, 1 << 17), &Op::Set(MASK, 0x500)), "unmasks");
}

#[test]
fn control_registers_are_not_written_under_the_mask_of_another_file() {
    assert_refused(&without(&Op::Set(MASK, 0x500)), "CTL0 is written");
    let mut ops = without(&Op::Set(MASK, 0x500));
    ops.retain(|op| !matches!(op, Op::Set(CTL0, _)));
    let at = ops.iter().position(|op| *op == Op::Set(MASK, 1 << 17)).expect("before CTL1");
    ops.remove(at);
    assert_refused(&ops, "CTL1 is written");
    // Each die has a MASK of its own.
    let inner = [Op::Sync, Op::Set(CMD, RCRC), Op::Set(CTL0, 0x400), Op::Set(CMD, DESYNC)];
    let ops = before(&Op::Set(CTL0, 0x400), 0, &[Op::Die(inner.to_vec())]);
    assert_refused(&ops, "CTL0 is written");
    let inner = [Op::Sync, Op::Set(CMD, RCRC), Op::Set(MASK, 0x500), Op::Set(CMD, DESYNC)];
    let ops = before(&Op::Set(CTL0, 0x400), 0, &[Op::Die(inner.to_vec())]);
    assert_refused(&ops, "commands die 1");
}

#[test]
fn the_reset_mask_is_never_switched_off() {
    assert_refused(&with(&Op::Set(CTL0, 0x500), &Op::Set(CTL0, 0x100)), "clears bit 10");
    let late = [Op::Set(MASK, 0x400), Op::Set(CTL0, 0)];
    assert_refused(&before(&Op::Set(CMD, LFRM), 0, &late), "clears bit 10");
    // GLUTMASK may change both ways.
    assert_eq!(check_small(&with(&Op::Set(CTL0, 0x500), &Op::Set(CTL0, 0x400))), Ok(()));
}

#[test]
fn frames_of_the_reset_mask_end_with_the_file() {
    let mut ops = partial(&Device::small(), &region());
    let at = ops.iter().rposition(|op| *op == Op::Set(CTL1, 0)).expect("the last stream");
    ops[at] = Op::Set(CTL1, 1 << 17);
    let error = check_small(&ops).expect_err("left open");
    assert_eq!(error, Refused::File(InvalidBitstream::MaskFramesOpen { die: 0 }));
}

#[rstest]
#[case(SHUTDOWN)]
#[case(AGHIGH)]
#[case(URAM)]
#[case(GRESTORE)]
#[case(START)]
fn commands_to_the_whole_die_need_the_reset_mask(#[case] command: u32) {
    let give = Op::Set(CMD, command);
    let unconfined = |ops: &[Op], expected: UnmaskedReason| match check_small(ops) {
        Err(Refused::File(InvalidBitstream::Unconfined { command: found, missing, .. })) => {
            assert_eq!((found, missing), (command, expected));
        }
        other => panic!("{other:?}"),
    };
    // Before bit 10 of CTL0, before the frames, between them.
    unconfined(&before(&Op::Set(MASK, 0x500), 0, std::slice::from_ref(&give)), UnmaskedReason::Off);
    let frames = Op::Set(CMD, WCFG);
    unconfined(&before(&frames, 0, std::slice::from_ref(&give)), UnmaskedReason::NotWritten);
    unconfined(&before(&Op::Set(CTL1, 0), 0, std::slice::from_ref(&give)), UnmaskedReason::Open);
    // GLUTMASK confines nothing.
    let masked = with(&Op::Set(MASK, 0x500), &Op::Set(MASK, 0x100));
    assert!(matches!(
        check_small(&masked),
        Err(Refused::File(InvalidBitstream::Unconfined { missing: UnmaskedReason::Off, .. }))
    ));
    // With all of it, and where it is repeated: FAR carries out what CMD holds.
    let last = [give.clone(), Op::Set(FAR, CLOSING)];
    assert_eq!(check_small(&before(&Op::Set(CMD, LFRM), 0, &last)), Ok(()));
    let again = [Op::Set(MASK, 1 << 17), Op::Set(CTL1, 1 << 17), Op::Set(FAR, CLOSING)];
    let ops = before(&Op::Set(CMD, LFRM), 0, &[&[give], &again[..]].concat());
    unconfined(&ops, UnmaskedReason::Open);
}

/// SHUTDOWN waits for a CRC check, START for DESYNC: the reset mask has to be whole then, too.
#[rstest]
#[case(SHUTDOWN, Op::Set(CMD, RCRC))]
#[case(SHUTDOWN, Op::Crc)]
#[case(START, Op::Set(CMD, DESYNC))]
fn a_command_that_waits_needs_the_reset_mask_when_it_is_done(#[case] give: u32, #[case] end: Op) {
    let open = [Op::Set(MASK, 1 << 17), Op::Set(CTL1, 1 << 17)];
    let close = Op::Set(CTL1, 0);
    let late = [&[Op::Set(CMD, give), Op::Set(CMD, NULL)], &open[..]].concat();
    let with_end = [&late[..], &[end, close.clone()]].concat();
    match check_small(&before(&Op::Set(CMD, LFRM), 0, &with_end)) {
        Err(Refused::File(InvalidBitstream::Unconfined { command, missing, .. })) => {
            assert_eq!((command, missing), (give, UnmaskedReason::Open));
        }
        other => panic!("{other:?}"),
    }
    let closed = [&late[..], &[close]].concat();
    assert_eq!(check_small(&before(&Op::Set(CMD, LFRM), 0, &closed)), Ok(()));
}

/// A single frame stays in the buffer: no mask is written by it.
#[test]
fn one_frame_is_no_reset_mask() {
    let mut ops = partial(&Device::small(), &region());
    let first = ops.iter().position(|op| *op == Op::Set(CTL1, 0)).expect("stream 1");
    for op in &mut ops[..first] {
        if let Op::Frames(words) = op {
            words.truncate(FRAME);
        }
    }
    let refused = check_small(&ops);
    let missing = UnmaskedReason::NotWritten;
    assert!(
        matches!(refused, Err(Refused::File(InvalidBitstream::Unconfined { missing: m, .. })) if m == missing),
        "{refused:?}"
    );
}

/// GCAPTURE, reboot, read-back and the clock of the configuration port: no mask confines them.
#[test]
fn commands_to_the_device_are_refused_wherever_they_stand() {
    for command in [4, 9, GCAPTURE, 14, 15, 16, 20, 31, 0x2A, u32::MAX] {
        let give = [Op::Set(CMD, command)];
        assert_refused(&before(&Op::Set(CMD, LFRM), 0, &give), "reaches the whole device");
    }
}

#[test]
fn options_are_those_of_a_partial_bitstream() {
    let options = Op::Set(COR0, OPTIONS);
    // The clock's source and frequency, DONE's driver, phases of start-up, reserved bits.
    for bit in [0, 3, 6, 9, 12, 17, 22, 24, 26, 27, 31] {
        assert_refused(&with(&options, &Op::Set(COR0, OPTIONS ^ 1 << bit)), "COR0");
    }
    assert_eq!(check_small(&without(&options)), Ok(()));
}

#[test]
fn far_does_not_repeat_the_command_of_another_file() {
    let mut ops = partial(&Device::small(), &region());
    ops.splice(1..1, [Op::Set(FAR, 0)]);
    assert_refused(&ops, "FAR is written at byte 84 before any command");
}

#[test]
fn a_crc_is_checked_and_counts_from_the_last_reset() {
    let crcs = partial(&Device::small(), &region()).iter().filter(|op| **op == Op::Crc).count();
    assert_eq!(crcs, 6);
    assert_eq!(check_small(&without(&Op::Crc)), Ok(()));
    // A bit of a frame, a register's value, the CRC itself.
    let bytes = bit(&partial(&Device::small(), &region()));
    let frame = frame(2).iter().take(4).flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    let frame = bytes.windows(16).position(|bytes| bytes == frame).expect("a frame");
    let crc = bytes.windows(4).position(|word| word == [0x30, 0, 0, 1]).expect("a CRC");
    for at in [frame, crc + 4, crc + 7] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        let error = parse(&bytes).expect_err("damaged");
        assert!(matches!(error, InvalidBitstream::Crc { .. }), "{error}");
    }
    // The packets before RCRC are not in it; without one it cannot be checked.
    let ops = before(&Op::Set(CMD, RCRC), 1, &[Op::Set(CMD, NULL)]);
    assert_eq!(check_small(&ops), Ok(()));
    assert_refused(&without(&Op::Set(CMD, RCRC)), "no RCRC before it");
}

#[test]
fn a_frame_that_is_written_again_is_checked_again() {
    let again =
        |address| before(&Op::Set(CMD, GRESTORE), 0, &run(address, [frame(9), pads(1)].concat()));
    assert_eq!(check_small(&again(far(0, 1, 2, 0))), Ok(()));
    assert_refused(&again(far(0, 1, 1, 0)), "column 1 in row 1");
    assert_refused(&again(far(0, 3, 2, 0)), "column 2 in row 3");
    // As a frame of a reset mask too.
    let mut mask = mask_stream(&Device::small(), &region(), 0);
    let at = mask.iter().position(|op| *op == Op::Set(CTL1, 0)).expect("its end");
    mask.splice(at..at, run(far(0, 1, 6, 0), frames(1, 2)));
    assert_refused(&mask, "column 6 in row 1");
}

/// A region holds what was written last: a file that may write its chain ROM twice does not
/// say which.
#[test]
fn a_chain_rom_is_not_written_again_with_something_else() {
    let catalogue = catalogue::builtin().expect("it ships");
    let rom = ChainRom::of(&[&catalogue.nt_types[0]]).expect("one NT");
    let mut first = rom.encode();
    first.resize(FRAME, 0);
    let at = far(0, 1, 2, 0);
    let image = |again: &[Op]| {
        let content = [&run(at, [first.clone(), frames(3, 2)].concat()), again].concat();
        let mut ops = mask_stream(&Device::small(), &region(), 0);
        ops.extend(content_stream(content));
        identify(&bit(&ops))
    };
    let refused = |again: &[Op]| {
        let error = image(again).expect_err("written again");
        assert!(matches!(error, NotIdentified::Rom(InvalidRom::Rewritten { .. })), "{error}");
    };
    assert_eq!(image(&[]), Ok(rom.clone()));
    assert_eq!(image(&run(at, [first.clone(), pads(1)].concat())), Ok(rom.clone()));
    refused(&run(at, frames(9, 2)));
    // From columns before it, as far as it takes where each had one frame.
    refused(&run(far(0, 1, 0, 0), frames(9, 3)));
    refused(&run(far(0, 0, 7, 0), frames(9, 2)));
    assert_eq!(image(&run(far(0, 1, 0, 0), frames(9, 2))), Ok(rom.clone()));
    assert_eq!(image(&run(far(0, 1, 2, 1), frames(9, 9))), Ok(rom.clone()));
    refused(&[Op::Set(CMD, MFW), Op::Set(FAR, at), Op::Repeat(2)]);
}

#[test]
fn between_streams_there_is_nothing() {
    for word in [0x3000_8001, 0x3002_0001, 1, 0xAA99_5567, 0x6655_99AA] {
        let mut ops = partial(&Device::small(), &region());
        let next = 1 + ops[1..].iter().position(|op| *op == Op::Sync).expect("the second stream");
        ops.splice(next..next, [Op::Word(word)]);
        assert_refused(&ops, "follows DESYNC");
    }
}

/// A card with two regions that are not alike: nothing is relocated, so each has its own frames. The first is
/// [`region`]; also what the second is.
fn two_regions(device: &Device) -> (FloorPlan, Region) {
    let other = Region { rows: 3..=3, ..region() };
    let mut plan = device.plan(&region());
    let second = device.plan(&other).groups.remove(0);
    plan.groups.push(FloorGroup { regions: 1..2, ..second });
    (plan, other)
}

/// The upload of `bytes` with a manifest, and what its build says.
fn declared(manifest: &BuiltManifest, build: BuildClaims, bytes: &[u8]) -> Bitstream {
    Bitstream {
        id: "chain".parse().expect("a label"),
        images: RegionImages::from(RegionImage {
            digest: Digest::of(bytes),
            size: ByteSize::from_bytes(bytes.len() as u64),
            regions: build.regions,
            signature: None,
        }),
        nts: manifest.nts.clone(),
        region_kind: manifest.region_kind,
        card_model: manifest.card_model.clone(),
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: build.identity,
    }
}

/// A file as `write_bitstream -cell` makes it, with the manifest that the flow wrote beside it: everything that an
/// upload is held against. Nothing in the file says which NTs it has.
#[test]
fn a_partial_bitstream_with_its_manifest_passes_every_check_of_an_upload() {
    let catalogue = catalogue::builtin().expect("it ships");
    let card = catalogue.card(&"sim-16".parse().expect("a label")).expect("it ships").clone();
    let device = Device::small();
    let (plan, other) = two_regions(&device);
    let nts: Vec<_> = ["firewall", "aes"].map(|id| id.parse().expect("a label")).to_vec();
    let manifest = BuiltManifest::of_test(&card.model, &nts, RegionKind::KnownNt, &[]);
    let upload = |ops: &[Op], build: BuildClaims| {
        let bytes = bit(ops);
        let declared = declared(&manifest, build, &bytes);
        let cards = std::slice::from_ref(&card);
        let checked = check_upload(&bytes, &declared, cards, |id| catalogue.nt_type(id));
        let checked = checked.map_err(|error| (error.field(), error.to_string()))?;
        assert_eq!(checked.claim, None, "no flow controls what the first frame holds");
        let regions = plan.regions_for(&checked.file, &declared);
        regions.map_err(|error| (error.field().to_owned(), error.to_string()))
    };
    let (first, second) = (partial(&device, &region()), partial(&device, &other));
    assert_eq!(upload(&first, manifest.claims()), Ok(vec![RegionId(0)]));
    assert_eq!(upload(&second, manifest.claims()), Ok(vec![RegionId(1)]));
    let naming = |regions| BuildClaims { regions, ..manifest.claims() };
    assert_eq!(upload(&second, naming(vec![RegionId(1)])), Ok(vec![RegionId(1)]));
    let error =
        upload(&second, naming(vec![RegionId(0), RegionId(1)])).expect_err("not its frames");
    assert_eq!(error.0, "regions");
    assert!(error.1.contains("region 0, but has the frames of region 1"), "{}", error.1);
    // Without a manifest nobody knows what it is.
    let error = upload(&first, BuildClaims::default()).expect_err("it does not say it");
    assert_eq!(error.0, "identity");
    // The frames are looked at all the same.
    let beyond = partial(&device, &Region { rows: 0..=0, ..region() });
    let error = upload(&beyond, manifest.claims()).expect_err("frames of the shell");
    assert!(error.0 == "chunk" && error.1.contains("in row 0"), "{error:?}");
}

/// An image with the frames of one region is for no region where that one is too small: an empty list would mean
/// every region.
#[test]
fn an_image_whose_only_region_is_too_small_is_refused() {
    let mut catalogue = catalogue::builtin().expect("it ships");
    let device = Device::small();
    let (plan, _) = two_regions(&device);
    catalogue.cards.retain(|card| card.model == plan.model);
    catalogue.floor_plans = vec![plan];
    let nts: Vec<_> = ["firewall", "aes"].map(|id| id.parse().expect("a label")).to_vec();
    let model = &catalogue.cards[0].model;
    let manifest = BuiltManifest::of_test(model, &nts, RegionKind::KnownNt, &[]);
    let bytes = bit(&partial(&device, &region()));
    let declared = declared(&manifest, manifest.claims(), &bytes);
    let check = |catalogue: &Catalogue| {
        let found = catalogue.check_image(&bytes, &declared, &catalogue.nt_types);
        let found = found.map(|(regions, _)| regions);
        found.map_err(|error| (error.field(), error.to_string()))
    };
    assert_eq!(check(&catalogue), Ok(vec![RegionId(0)]));
    let small = ByteSize::from_bytes(bytes.len() as u64 - 1);
    catalogue.cards[0].regions[0].bitstream_max = small;
    let (field, text) = check(&catalogue).expect_err("region 0 does not take it");
    assert_eq!(field, "regions");
    assert!(text.contains("region 0 of card model") && text.contains("takes"), "{text}");
    // Another region that is too small changes nothing.
    catalogue.cards[0].regions[0].bitstream_max = declared.images.first().size;
    catalogue.cards[0].regions[1].bitstream_max = small;
    assert_eq!(check(&catalogue), Ok(vec![RegionId(0)]));
}

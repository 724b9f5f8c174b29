//! A floor plan from reports as the vendor's tools write them, for a device of this file's own.

use crate::image::*;
use crate::reports::{PBLOCK, locations, region, shell};
use snic_bitstream::import::{
    DeviceMap, InvalidDeviceMap, InvalidReport, LogicLocation, NotImported, Pblock, import_region,
};
use snic_bitstream::{FloorGroup, FloorPlan, InvalidBitstream, parse};
use snic_domain::RegionKind;

fn map(device: &Device) -> DeviceMap {
    DeviceMap::from_bitstream(&bit(&shell(device))).expect("a whole device")
}

fn import(pblock: &str, locations: &str, partials: &[Vec<Op>]) -> Result<String, NotImported> {
    let device = Device::small();
    let pblock = Pblock::parse(pblock).expect("a report");
    let locations = LogicLocation::parse(locations).expect("a file");
    let files: Vec<Vec<u8>> = partials.iter().map(|ops| bit(ops)).collect();
    let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    import_region(&map(&device), &files, &pblock, &locations).map(|region| region.to_toml())
}

/// A card profile's lines, and by them what the checker takes.
#[test]
fn an_imported_plan_takes_the_bitstreams_of_its_region_and_no_others() {
    let device = Device::small();
    let partials = [partial(&device, &region())];
    let toml = import(PBLOCK, &locations(&device), &partials).expect("no contradiction");
    let table: toml::Table = toml.parse().expect("TOML");
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(2), "{toml}");
    let files: Vec<Vec<u8>> = partials.iter().map(|ops| bit(ops)).collect();
    let imported = import_region(
        &map(&device),
        &[&files[0]],
        &Pblock::parse(PBLOCK).expect("a report"),
        &LogicLocation::parse(&locations(&device)).expect("a file"),
    )
    .expect("no contradiction");
    // Columns of 4, 16, 9 and 5 frames, and one of memories: a range each.
    assert_eq!(imported.frames.len(), 5, "{imported:?}");
    let model = "sim-16".parse().expect("a label");
    let (kind, ranges) = (RegionKind::KnownNt, imported.frames);
    let groups = vec![FloorGroup { kind, regions: 0..1, ranges }];
    let plan = FloorPlan { model, rows: imported.rows, groups };
    let is_taken = |region: &Region| {
        let bytes = bit(&partial(&device, region));
        plan.check(&parse(&bytes).expect("valid"), RegionKind::KnownNt).is_ok()
    };
    assert!(is_taken(&region()));
    assert!(is_taken(&Region { columns: 3..=4, ..region() }));
    for other in [
        Region { columns: 2..=6, ..region() },
        Region { columns: 1..=5, ..region() },
        Region { rows: 2..=3, ..region() },
        Region { memories: Some(0..=1), ..region() },
    ] {
        assert!(!is_taken(&other), "{other:?}");
    }
}

#[test]
fn columns_of_as_many_frames_side_by_side_are_one_range() {
    let device = Device { columns: vec![4, 7, 7, 7, 4], ..Device::small() };
    let wide = Region { die: 0, rows: 0..=3, columns: 0..=4, memories: None };
    let bytes = bit(&partial(&device, &wide));
    let pblock =
        Pblock::parse("NAME string false p\nGRID_RANGES string false SLICE_X0Y0:SLICE_X9Y239")
            .expect("a report");
    let text = locations(&Device { memories: 0, ..device.clone() });
    let locations = LogicLocation::parse(&text).expect("a file");
    let imported =
        import_region(&map(&device), &[&bytes], &pblock, &locations).expect("whole rows");
    let ranges: Vec<_> = imported
        .frames
        .iter()
        .map(|range| (range.columns.clone(), range.rows.clone(), range.frames_per_column))
        .collect();
    assert_eq!(ranges, [(0..=0, 0..=3, 4), (1..=3, 0..=3, 7), (4..=4, 0..=3, 4)]);
}

#[test]
fn reports_that_contradict_each_other_are_refused() {
    let device = Device::small();
    let text = locations(&device);
    let refused = |pblock: &str, partials: &[Vec<Op>]| {
        import(pblock, &text, partials).expect_err("a contradiction").to_string()
    };
    let good = partial(&device, &region());
    assert!(refused(PBLOCK, &[]).contains("no partial bitstream"));
    let wider = PBLOCK.replace("SLICE_X11Y179", "SLICE_X13Y179");
    let error = refused(&wider, std::slice::from_ref(&good));
    assert!(error.contains("SLICE_X12Y67 belongs to Pblock pblock_region0"), "{error}");
    let narrower = PBLOCK.replace("SLICE_X4Y60", "SLICE_X6Y60");
    let error = refused(&narrower, std::slice::from_ref(&good));
    assert!(error.contains("SLICE_X4Y67 does not belong"), "{error}");
    let elsewhere = PBLOCK.replace("SLICE", "DSP48E2").replace("RAMB36", "URAM288");
    let error = refused(&elsewhere, &[mask_stream(&device, &region(), 0)]);
    assert!(error.contains("does not belong") || error.contains("names no site"), "{error}");
    let wide = Device { columns: vec![30; 30], ..device.clone() };
    let beyond = Region { die: 0, rows: 1..=1, columns: 20..=22, memories: None };
    let error = refused(PBLOCK, &[good, partial(&wide, &beyond)]);
    assert!(error.contains("partial bitstream 2") && error.contains("column 20"), "{error}");
    let cut = [vec![Op::Sync, Op::Set(CMD, RCRC)]];
    let error = import(PBLOCK, &text, &cut).expect_err("cut");
    let expected = NotImported::Partial { number: 1, error: InvalidBitstream::NoDesync };
    assert_eq!(error, expected);
}

#[test]
fn a_device_map_needs_every_frame_of_the_device() {
    let device = Device { rows: 2, memories: 1, ..Device::small() };
    let whole = shell(&device);
    let of = |ops: &[Op]| DeviceMap::from_bitstream(&bit(ops));
    assert!(of(&whole).is_ok());
    // A frame in the middle of a column, the first of one, a whole row's first column.
    for missing in [far(0, 0, 1, 3), far(0, 1, 2, 0), far(1, 1, 0, 100)] {
        let mut ops = whole.clone();
        let at = ops.iter().position(|op| *op == Op::Set(FAR, missing)).expect("it is there");
        ops.drain(at..at + 5);
        assert!(matches!(of(&ops), Err(InvalidDeviceMap::Gap { .. })), "{missing:#x}");
    }
    let mut ops = whole.clone();
    let last = ops.iter().position(|op| *op == Op::Set(FAR, far(0, 1, 7, 0))).expect("there");
    ops.drain(last..last + 5 * 8);
    assert!(matches!(of(&ops), Err(InvalidDeviceMap::Rows { row: 1, .. })));
    // Not written frame by frame.
    let run = partial(&device, &Region { die: 0, rows: 0..=1, columns: 0..=7, memories: None });
    assert!(matches!(of(&run), Err(InvalidDeviceMap::Run { .. })));
    assert_eq!(of(&[Op::Sync, Op::Set(CMD, DESYNC)]), Err(InvalidDeviceMap::NoFrames));
    let cut = of(&[Op::Sync, Op::Word(0x3000_4000), Op::Word(0x5000_FFFF)]);
    assert!(matches!(cut, Err(InvalidDeviceMap::Packet { .. })));
    // Dies are told apart.
    let both = [&[Op::Sync, Op::Die(whole.clone())], &whole[1..]].concat();
    assert_eq!(of(&both).expect("two dies").row_widths().len(), 4);
}

#[test]
fn a_report_that_is_none_is_refused_by_line() {
    assert_eq!(Pblock::parse(""), Err(InvalidReport::Property { property: "NAME" }));
    let no_ranges = "NAME string false p\n";
    let missing = InvalidReport::Property { property: "DERIVED_RANGES" };
    assert_eq!(Pblock::parse(no_ranges), Err(missing));
    for bad in ["SLICE_X0", "SLICE_X3Y0:SLICE_X1Y9", "SLICE_X0Y0:DSP_X1Y1", "X0Y0", "S_X-1Y0"] {
        let text = format!("NAME string false p\nGRID_RANGES string false {bad}\n");
        assert!(matches!(Pblock::parse(&text), Err(InvalidReport::Line { line: 2, .. })), "{bad}");
    }
    let lines = [
        "Bit 1 0x 0 Block=SLICE_X0Y0",
        "Bit 1 0xFFFFFFFF 0 Block=SLICE_X0Y0",
        "Bit 1 0x00000100 0 Block=SLICE",
        "Bit 1 0x00000100 0 SLR9 9 Block=SLICE_X0Y0",
    ];
    for line in lines {
        let error = LogicLocation::parse(&format!("; comment\n{line}")).expect_err(line);
        assert!(error.to_string().starts_with("line 2"), "{error}");
    }
    // What names no site tells nothing, and is no mistake.
    assert_eq!(LogicLocation::parse("Bit 1 0x100 0 Latch=AQ\nInfo X=1\n\n"), Ok(Vec::new()));
    let next_die = "Bit 1 0x0008cb0c 2072 SLR1 2 Block=SLICE_X0Y0 Latch=CQ";
    let read = LogicLocation::parse(next_die).expect("valid");
    assert_eq!((read[0].place.die, read[0].place.row, read[0].place.column), (2, 2, 203));
}

//! Loads, and what may go wrong in one: a region is coupled if and only if its ROM was verified.
//!
//! The process itself looks at each cycle whether a region is coupled that holds no ROM of a whole stream, and whether an access
//! takes over 256 cycles: it ends then, and each test with it.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_integration_rtl::{InjectedFault, RtlCard, Surroundings};
use snic_ports::card::{Buffers, Registers};
use snic_tables::registers::*;
use snic_tables::{RowKey, Table};

use crate::conformance::card;
use crate::images::{Image, Images};

/// A card, and what is loaded into it by hand.
struct Bench {
    card: RtlCard,
    images: Images,
}

impl Bench {
    fn new(seed: u32) -> Option<Self> {
        Some(Self { card: card(seed)?, images: Images::new() })
    }

    fn read(&mut self, at: u32) -> u32 {
        self.card.read(at).expect("there")
    }

    fn write(&mut self, at: u32, value: u32) {
        self.card.write(at, value).expect("there");
    }

    fn control(&mut self, number: u8, value: u32) {
        self.write(region(number, REGION_CONTROL), value);
    }

    fn step(&mut self, cycles: u64) -> u64 {
        self.card.process().step(cycles).expect("it is there").0
    }

    fn fault(&mut self, fault: InjectedFault) {
        self.card.process().set_fault(fault).expect("it is there");
    }

    fn around(&mut self) -> Surroundings {
        self.card.process().surroundings().expect("it is there")
    }

    fn is_coupled(&mut self, number: u8) -> bool {
        // A bit of control is there some cycles later.
        self.step(4);
        self.around().coupled >> number & 1 == 1
    }

    /// Decouples the region and starts a load of these bytes, as a driver does.
    fn start(&mut self, number: u8, bytes: &[u8], digest: u32) {
        self.control(number, REGION_DECOUPLE);
        for word in 0..8 {
            self.write(region(number, REGION_DIGEST_NEXT) + 4 * word, digest + word);
        }
        let buffer = self.card.stage(bytes).expect("there is room");
        self.write(LOAD_REGION, number.into());
        self.write(LOAD_BUFFER_LOW, buffer as u32);
        self.write(LOAD_BUFFER_HIGH, (buffer >> 32) as u32);
        self.write(LOAD_BYTES, bytes.len() as u32);
        self.write(LOAD_START, 1);
        // What is there stays there until something else is staged.
        self.card.release(buffer).expect("it was staged");
    }

    /// Status and error at the end of the load under way.
    fn end(&mut self) -> (u32, u32) {
        for _ in 0..20_000 {
            let status = self.read(LOAD_STATUS);
            if status != LOAD_BUSY {
                return (status, self.read(LOAD_ERROR));
            }
        }
        panic!("a load that never ends")
    }

    fn load(&mut self, number: u8, bytes: &[u8], digest: u32) -> (u32, u32) {
        self.start(number, bytes, digest);
        self.end()
    }

    fn load_well(&mut self, number: u8, image: &Image, digest: u32) {
        assert_eq!(self.load(number, &image.bytes, digest), (LOAD_DONE, 0), "region {number}");
        self.control(number, 0);
        self.holds(number, image, digest);
        assert!(self.is_coupled(number));
    }

    fn holds(&mut self, number: u8, image: &Image, digest: u32) {
        assert_eq!(self.read(region(number, REGION_STATUS)), REGION_LOADED, "region {number}");
        let mut words = [0; 12];
        self.card.read_block(region(number, REGION_NTS), &mut words).expect("there");
        assert_eq!(words[..8], image.chain.nts.map(|nt| nt.0), "region {number}");
        assert_eq!(words[8..], image.chain.identity.words(), "region {number}");
        let mut words = [0; 8];
        self.card.read_block(region(number, REGION_DIGEST), &mut words).expect("there");
        assert_eq!(words, std::array::from_fn(|word| digest + word as u32), "region {number}");
    }

    /// Whatever the host writes, it is not coupled, and says nothing of what is in it.
    fn is_out(&mut self, number: u8, status: u32) {
        assert_eq!(self.read(region(number, REGION_STATUS)), status);
        self.control(number, 0);
        assert!(!self.is_coupled(number));
        self.control(number, REGION_RESET);
        assert!(!self.is_coupled(number));
        self.step(40);
        assert!(!self.is_coupled(number));
        for register in [REGION_DIGEST, REGION_NTS, REGION_IDENTITY] {
            let mut words = [1; 4];
            self.card.read_block(region(number, register), &mut words).expect("there");
            assert_eq!(words, [0; 4], "{register:#x}");
        }
    }
}

/// Each fault of port and region; one region is coupled all the while.
#[test]
fn a_region_is_coupled_if_and_only_if_its_rom_was_verified() {
    let Some(mut bench) = Bench::new(21) else { return };
    let images = [bench.images.build(&[0, 1], 5_000), bench.images.build(&[3], 5_003)];
    bench.is_out(5, REGION_EMPTY);
    bench.load_well(2, &images[1], 50);
    for (fault, error) in [
        (InjectedFault::ErrorAfter(1), LOAD_ERROR_PACKETS),
        (InjectedFault::ErrorAfter(20), LOAD_ERROR_PACKETS),
        (InjectedFault::ErrorAfter(700), LOAD_ERROR_PACKETS),
        // The last word of the stream, DESYNC.
        (InjectedFault::ErrorAfter(last_word(&images[0])), LOAD_ERROR_PACKETS),
        (InjectedFault::NeverDone, LOAD_ERROR_PACKETS),
        (InjectedFault::RomChanges, LOAD_ERROR_IDENTITY),
        (InjectedFault::RomEmpty, LOAD_ERROR_IDENTITY),
        (InjectedFault::RomGap, LOAD_ERROR_IDENTITY),
        (InjectedFault::RomNobody, LOAD_ERROR_IDENTITY),
    ] {
        bench.fault(fault);
        assert_eq!(bench.load(5, &images[0].bytes, 9), (LOAD_FAILED, error), "{fault:?}");
        bench.is_out(5, REGION_BROKEN);
        bench.fault(InjectedFault::None);
        bench.is_out(5, REGION_BROKEN);
        assert_eq!(bench.around().coupled, 1 << 2, "{fault:?}");
        bench.holds(2, &images[1], 50);
        bench.load_well(5, &images[0], 10);
    }
}

/// Words from the synchronisation to DESYNC.
fn last_word(image: &Image) -> u32 {
    let position = |word: [u8; 4]| image.bytes.windows(4).rposition(|bytes| bytes == word);
    let sync = position([0xaa, 0x99, 0x55, 0x66]).expect("there");
    let desync = position([0, 0, 0, 13]).expect("there");
    (desync - sync) as u32 / 4
}

/// A port that goes away in the middle, and a memory that does not answer: busy until its region is reset. The next load waits
/// until the port can be had again, and is none the worse.
#[test]
fn a_load_that_hangs_is_ended_by_a_reset_and_couples_nothing() {
    let Some(mut bench) = Bench::new(22) else { return };
    let images = [bench.images.build(&[0, 1], 5_000), bench.images.build(&[3], 5_003)];
    bench.load_well(2, &images[1], 50);
    for fault in
        [InjectedFault::GoneAfter(3), InjectedFault::GoneAfter(800), InjectedFault::MemorySilent]
    {
        bench.load_well(0, &images[0], 20);
        bench.fault(fault);
        bench.start(0, &images[1].bytes, 70);
        bench.step(30_000);
        assert_eq!(bench.read(LOAD_STATUS), LOAD_BUSY, "{fault:?}");
        bench.is_out_while_loading(0);
        // Another region's reset does not end it.
        bench.control(2, REGION_RESET);
        assert_eq!(bench.read(LOAD_STATUS), LOAD_BUSY, "{fault:?}");
        bench.control(0, REGION_DECOUPLE | REGION_RESET);
        assert_eq!(bench.read(LOAD_STATUS), LOAD_FAILED, "{fault:?}");
        assert_eq!(bench.read(LOAD_ERROR), LOAD_ERROR_PACKETS, "{fault:?}");
        bench.is_out(0, REGION_BROKEN);
        bench.start(0, &images[1].bytes, 71);
        bench.step(3_000);
        assert_eq!(bench.read(LOAD_STATUS), LOAD_BUSY, "the port is still gone: {fault:?}");
        assert_eq!(bench.read(LOAD_PROGRESS), 0);
        bench.is_out_while_loading(0);
        bench.fault(InjectedFault::None);
        assert_eq!(bench.end(), (LOAD_DONE, 0), "{fault:?}");
        bench.control(0, 0);
        bench.holds(0, &images[1], 71);
        assert!(bench.is_coupled(0) && bench.is_coupled(2));
    }
    assert!(bench.around().aborts >= 2, "streams that were left are aborted");
}

impl Bench {
    /// The host couples it in the middle of its load, and decouples it again.
    fn is_out_while_loading(&mut self, number: u8) {
        self.control(number, 0);
        assert_eq!(self.read(region(number, REGION_STATUS)), REGION_LOADING);
        assert!(!self.is_coupled(number));
        for register in [REGION_DIGEST, REGION_NTS, REGION_IDENTITY] {
            assert_eq!(self.read(region(number, register)), 0, "{register:#x}");
        }
        self.control(number, REGION_DECOUPLE);
        assert!(!self.is_coupled(number));
    }
}

#[test]
fn a_driver_that_dies_before_its_load_leaves_a_region_that_can_be_coupled() {
    let Some(mut bench) = Bench::new(23) else { return };
    let image = bench.images.build(&[0, 1], 5_000);
    bench.load_well(3, &image, 20);
    bench.control(3, REGION_DECOUPLE);
    assert!(!bench.is_coupled(3));
    bench.holds(3, &image, 20);
    for word in 0..8 {
        bench.write(region(3, REGION_DIGEST_NEXT) + 4 * word, 90 + word);
    }
    bench.holds(3, &image, 20);
    bench.control(3, 0);
    assert!(bench.is_coupled(3));
    bench.holds(3, &image, 20);
    // After LOAD_START nobody is there to couple it.
    bench.start(3, &image.bytes, 30);
    bench.step(20_000);
    assert!(!bench.is_coupled(3));
    bench.holds(3, &image, 30);
    // Another driver couples it without a look: while it is loaded nothing happens, then it is.
    bench.start(3, &image.bytes, 40);
    bench.control(3, 0);
    assert!(!bench.is_coupled(3));
    assert_eq!(bench.end(), (LOAD_DONE, 0));
    assert!(bench.is_coupled(3));
    bench.holds(3, &image, 40);
}

/// Doorbells that are rung twice: the second ones do nothing, to the load as to the tables.
#[test]
fn a_second_commit_and_a_second_start_change_nothing_of_a_load() {
    let Some(mut bench) = Bench::new(24) else { return };
    let images = [bench.images.build(&[0, 1], 5_000), bench.images.build(&[3], 5_003)];
    bench.load_well(1, &images[1], 5);
    bench.start(0, &images[0].bytes, 20);
    let row = shadow_row(RowKey { table: Table::RateLimiter, row: 5 }).expect("there");
    bench.write(row + 4, 77);
    for _ in 0..2 {
        bench.write(COMMIT, 1);
        bench.write(LOAD_START, 1);
        assert_eq!(bench.read(LOAD_ERROR), LOAD_ERROR_BUSY);
        assert_eq!(bench.read(LOAD_STATUS), LOAD_BUSY);
        assert!(!bench.is_coupled(0) && bench.is_coupled(1));
    }
    // One of another region: that stays what it is.
    bench.control(1, REGION_DECOUPLE);
    bench.write(LOAD_REGION, 1);
    bench.write(LOAD_START, 1);
    bench.holds(1, &images[1], 5);
    assert_eq!(bench.end(), (LOAD_DONE, 0));
    bench.holds(0, &images[0], 20);
    bench.holds(1, &images[1], 5);
    bench.card.rest().expect("it ends");
    assert_eq!((bench.read(TABLE_VERSION), bench.read(COMMIT_STATUS)), (1, COMMIT_REFUSED));
    assert_eq!(bench.read(row - SHADOW_BANK + ACTIVE_BANK + 4), 77);
    assert_eq!(bench.around().coupled, 0);
}

/// Registers of a region that is being reset: each answers, the region is out of the crossbar as long, and then back.
#[test]
fn an_access_during_a_reset_ends_and_shows_what_is_there() {
    let Some(mut bench) = Bench::new(25) else { return };
    let image = bench.images.build(&[0, 1], 5_000);
    bench.load_well(4, &image, 20);
    let mut seen = 0;
    for register in (0..REGION_LOAD).step_by(4).filter(|at| is_register(region(4, *at))) {
        let before = bench.read(region(4, register));
        bench.control(4, REGION_RESET);
        let around = bench.around();
        seen += around.in_reset >> 4 & 1;
        assert!(around.in_reset & around.coupled == 0, "{around:?}");
        assert_eq!(bench.read(region(4, register)), before, "{register:#x}");
        bench.step(40);
        assert!(bench.is_coupled(4));
        assert_eq!(bench.around().in_reset, 0);
    }
    assert!(seen > 20, "{seen} resets were seen");
    let longest = bench.card.process().step(0).expect("it is there").1;
    assert!(longest <= 40, "{longest} cycles");
}

/// At any moment: its region is broken at once, and a load that is started in the next access ends well.
#[test]
fn a_reset_ends_a_load_at_any_moment() {
    let Some(mut bench) = Bench::new(26) else { return };
    let images = [bench.images.build(&[0, 1], 3_001), bench.images.build(&[3], 3_202)];
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut ended, mut aborts) = (0, 0);
    for round in 0..60 {
        let [first, second] = [&images[round % 2], &images[(round + 1) % 2]];
        bench.start(6, &first.bytes, 20);
        let delay = rng.random_range(0..2_600);
        bench.step(delay);
        let is_busy = bench.read(LOAD_STATUS) == LOAD_BUSY;
        bench.control(6, REGION_DECOUPLE | REGION_RESET);
        if is_busy && bench.read(region(6, REGION_STATUS)) != REGION_LOADED {
            ended += 1;
            assert_eq!(bench.read(LOAD_STATUS), LOAD_FAILED, "after {delay}");
            assert_eq!(bench.read(region(6, REGION_STATUS)), REGION_BROKEN);
        }
        bench.start(6, &second.bytes, 30 + round as u32);
        assert_eq!(bench.end(), (LOAD_DONE, 0), "after {delay}");
        bench.control(6, 0);
        bench.holds(6, second, 30 + round as u32);
        assert!(bench.is_coupled(6));
        aborts = bench.around().aborts;
    }
    assert!(ended > 30 && aborts > 20, "{ended} ended, {aborts} in a stream");
}

/// The shell's own reset, at any moment of a load: nothing is known of the regions, and the port is free.
#[test]
fn a_reset_of_the_shell_leaves_no_region_coupled() {
    let Some(mut bench) = Bench::new(27) else { return };
    let image = bench.images.build(&[0, 1], 3_001);
    for delay in [1, 90, 700, 1_500, 2_300, 4_000] {
        bench.load_well(1, &image, 9);
        bench.start(0, &image.bytes, 20);
        bench.step(delay);
        bench.card.process().reset(3).expect("it is there");
        assert_eq!(bench.around().coupled, 0);
        bench.card.rest().expect("it comes to rest");
        for at in [LOAD_STATUS, LOAD_ERROR, LOAD_PROGRESS, LOAD_REGION] {
            assert_eq!(bench.read(at), 0, "{at:#x}");
        }
        bench.is_out(0, REGION_EMPTY);
        bench.is_out(1, REGION_EMPTY);
        bench.load_well(0, &image, 21);
    }
}

/// Data begins at any byte of a word, with as many bytes as the file says, and with streams in front and behind.
#[test]
fn a_file_is_taken_at_any_alignment_and_moves_a_word_in_two_cycles() {
    let Some(mut bench) = Bench::new(28) else { return };
    for bytes in [3_000, 3_001, 3_002, 3_003, 40_002] {
        let image = bench.images.build(&[0, 1], bytes);
        bench.load_well(7, &image, 1);
        assert_eq!(u64::from(bench.read(LOAD_PROGRESS)), bytes);
        let streams = bench.around().streams;
        let framed = image.between_control_streams();
        assert_eq!(bench.load(7, &framed, 2), (LOAD_DONE, 0));
        bench.holds(7, &image, 2);
        assert_eq!(bench.around().streams, streams + 3);
        // The last word is DESYNC, so no word may be missing.
        assert_eq!(bench.load(7, &image.without_tail(), 3), (LOAD_DONE, 0), "{bytes} bytes");
        // Nobody looks meanwhile.
        bench.start(7, &image.bytes, 3);
        bench.step(bytes / 2 + 700);
        assert_eq!(bench.read(LOAD_STATUS), LOAD_DONE, "{bytes} bytes");
    }
}

#[test]
fn progress_grows_and_ends_with_the_bytes() {
    let Some(mut bench) = Bench::new(29) else { return };
    let image = bench.images.build(&[0, 1], 9_001);
    bench.start(7, &image.bytes, 1);
    let (mut before, mut steps) = (0, 0);
    while bench.read(LOAD_STATUS) == LOAD_BUSY {
        let now = bench.read(LOAD_PROGRESS);
        assert!(now >= before && now <= 9_001, "{before}, {now}");
        steps += u32::from(now > before);
        before = now;
    }
    assert!(steps > 50, "{steps} steps");
    assert_eq!(bench.read(LOAD_PROGRESS), 9_001);
}

/// Neither header nor length are believed; nothing of such a file gets to the port.
#[test]
fn a_file_that_is_no_bit_file_does_not_reach_the_port() {
    let Some(mut bench) = Bench::new(30) else { return };
    let image = bench.images.build(&[0, 1], 3_001);
    let letters: Vec<usize> = (0..13).chain(fields(&image.bytes)).collect();
    let mut files: Vec<Vec<u8>> = Vec::new();
    for at in letters {
        let mut bytes = image.bytes.clone();
        bytes[at] ^= 4;
        files.push(bytes);
    }
    files.extend((0..90).step_by(7).map(|cut| image.bytes[..cut].to_vec()));
    files.push(image.bytes[..3_000].to_vec());
    files.push([&image.bytes[..], &[0; 4]].concat());
    files.push([&image.bytes[..], &[0]].concat());
    let streams = bench.around();
    for bytes in files {
        assert_eq!(bench.load(0, &bytes, 1), (LOAD_FAILED, LOAD_ERROR_PACKETS), "{bytes:x?}");
        assert_eq!(bench.read(region(0, REGION_STATUS)), REGION_BROKEN);
    }
    let after = bench.around();
    assert_eq!((after.streams, after.aborts), (streams.streams, streams.aborts));
    bench.load_well(0, &image, 1);
}

/// Places of the fields' letters and lengths in a header.
fn fields(bytes: &[u8]) -> Vec<usize> {
    let mut at = 13;
    let mut places = Vec::new();
    for _ in 0..4 {
        places.extend([at, at + 1]);
        at += 3 + usize::from(u16::from_be_bytes([bytes[at + 1], bytes[at + 2]]));
    }
    assert_eq!(bytes[at], b'e');
    places.extend([at, at + 1, at + 4]);
    places
}

/// A request that cannot be leaves the region as it was.
#[test]
fn a_load_that_cannot_be_is_refused_before_anything_is_changed() {
    let Some(mut bench) = Bench::new(31) else { return };
    let image = bench.images.build(&[0, 1], 3_001);
    bench.load_well(0, &image, 5);
    bench.control(0, REGION_DECOUPLE);
    bench.write(LOAD_REGION, 0);
    for (low, bytes) in [(0x10_0020, 3_001), (0x10_0000, (4 << 20) + 2_049), (0, u32::MAX)] {
        bench.write(LOAD_BUFFER_LOW, low);
        bench.write(LOAD_BYTES, bytes);
        bench.write(LOAD_START, 1);
        assert_eq!(bench.end(), (LOAD_FAILED, LOAD_ERROR_PACKETS), "{bytes} bytes at {low:#x}");
        bench.holds(0, &image, 5);
    }
    bench.write(LOAD_START, 2);
    bench.holds(0, &image, 5);
    for number in [16, 17, 31, 32, 1 << 16, u32::MAX] {
        bench.write(LOAD_REGION, number);
        bench.write(LOAD_START, 1);
        assert_eq!(bench.end(), (LOAD_FAILED, LOAD_ERROR_REGION), "region {number}");
    }
    bench.control(0, 0);
    assert!(bench.is_coupled(0));
}

/// Packets that are none for this part, or that end nowhere.
#[test]
fn a_stream_that_is_not_whole_leaves_a_broken_region() {
    let Some(mut bench) = Bench::new(32) else { return };
    let image = bench.images.build(&[0, 1], 3_001);
    let place = |word: u32| {
        let word = word.to_be_bytes();
        image.bytes.windows(4).position(|bytes| bytes == word).expect("there")
    };
    let (idcode, sync, desync) = (place(0x14b3_1093), place(0xaa99_5566), place(0x3000_8001));
    let end = image.bytes.windows(8).rposition(|b| b == [0x30, 0, 0x80, 1, 0, 0, 0, 13]);
    let end = end.expect("there") + 7;
    for (at, what) in [(idcode, "IDCODE"), (sync, "sync"), (desync, "a packet"), (end, "DESYNC")] {
        let mut bytes = image.bytes.clone();
        bytes[at] ^= 0x40;
        let ended = bench.load(0, &bytes, 1);
        assert_eq!(ended, (LOAD_FAILED, LOAD_ERROR_PACKETS), "{what}");
        bench.is_out(0, REGION_BROKEN);
    }
    bench.load_well(0, &image, 1);
}

/// Both read the same memory.
#[test]
fn a_load_and_a_transfer_run_beside_each_other() {
    let Some(mut bench) = Bench::new(33) else { return };
    let image = bench.images.build(&[0, 1], 20_001);
    for seed in 0..3 {
        bench.start(0, &image.bytes, seed);
        let rows = 1_000;
        let at = shadow_row(RowKey { table: Table::RateLimiter, row: 0 }).expect("there");
        let mut records = vec![at, 4 * rows];
        records.extend((0..4 * rows).map(|word| word + seed));
        assert_eq!(bench.card.bulk(BULK_TO_TABLES, &records), Ok(BULK_DONE));
        assert_eq!(bench.read(LOAD_STATUS), LOAD_BUSY, "both were under way");
        let mut words = vec![0; 4 * rows as usize];
        bench.card.read_block(at, &mut words).expect("there");
        assert!(words.iter().zip(0..).all(|(word, at)| *word == at + seed));
        assert_eq!(bench.end(), (LOAD_DONE, 0));
        bench.holds(0, &image, seed);
    }
}

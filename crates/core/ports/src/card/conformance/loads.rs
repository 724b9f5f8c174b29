//! Loads: the configuration controller and the regions.

use std::sync::Arc;
use std::time::Duration;

use snic_domain::{Digest, ReportedChain};
use snic_tables::registers::*;
use snic_tables::{CardCommand, CardReport, LoadFailure};

use super::{Fixture, Needed, Rig};

/// Starts a load by hand: the registers as the driver writes them, but for the decoupling.
#[track_caller]
fn start(rig: &mut Rig, number: u32, image: &Arc<[u8]>) -> u64 {
    let buffer = rig.card.stage(image).needed("staging an image");
    rig.write(LOAD_REGION, number);
    rig.write(LOAD_BUFFER_LOW, buffer as u32);
    rig.write(LOAD_BUFFER_HIGH, (buffer >> 32) as u32);
    rig.write(LOAD_BYTES, image.len() as u32);
    rig.write(LOAD_START, 1);
    buffer
}

#[track_caller]
fn decouple(rig: &mut Rig, number: u8, next: &Digest) {
    rig.write(region(number, REGION_CONTROL), REGION_DECOUPLE);
    let at = region(number, REGION_DIGEST_NEXT);
    rig.card.write_block(at, &next.words()).needed("writing the next digest");
}

/// Registers say on the way that a load goes from busy to done.
pub fn a_load_goes_from_busy_to_done(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    assert_eq!(rig.read(LOAD_STATUS), LOAD_IDLE, "nothing was started since power-up");
    let image = Arc::clone(&rig.images[0]);
    decouple(&mut rig, 0, &Digest::of(&image));
    let buffer = start(&mut rig, 0, &image);
    assert_eq!(rig.read(LOAD_STATUS), LOAD_BUSY, "at once after the start");
    assert_eq!(rig.status(0), REGION_LOADING);
    assert_eq!(rig.digest(0), [0; 8], "a region that is loading has no digest");
    assert_eq!(rig.while_it_reads(LOAD_STATUS, LOAD_BUSY), LOAD_DONE);
    assert_eq!(rig.status(0), REGION_LOADED);
    let progress = rig.read(LOAD_PROGRESS) as usize;
    assert!((1..=image.len()).contains(&progress), "{progress} of {} bytes", image.len());
    let control = rig.read(region(0, REGION_CONTROL));
    assert_eq!(control & REGION_DECOUPLE, REGION_DECOUPLE, "coupling is the host's");
    rig.card.release(buffer).needed("releasing the image");
}

/// Digest and NTs, coupled, after the time the load took.
pub fn a_loaded_region_says_what_it_holds(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    for number in [0, 1] {
        let image = Arc::clone(&rig.images[usize::from(number)]);
        let took = rig.load(number, &image).expect("the valid image is loaded");
        assert!(took > Duration::ZERO, "a load takes time");
        assert_eq!(rig.status(number), REGION_LOADED);
        assert_eq!(rig.digest(number), Digest::of(&image).words());
        let chain = rig.chains[usize::from(number)];
        let words = rig.read_words(region(number, REGION_NTS), 12);
        assert_eq!(words[..8], chain.nts.map(|nt| nt.0), "the NTs of region {number}");
        assert_eq!(words[8..], chain.identity.words(), "the identity of region {number}");
        assert_eq!(rig.read(region(number, REGION_CONTROL)), 0, "region {number} is coupled");
    }
}

/// Neither one with other NTs nor another build of the same ones; a later daemon leaves it alone too.
pub fn what_another_chain_is_declared_for_is_not_coupled(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let image = Arc::clone(&rig.images[0]);
    let [first, second] = rig.chains;
    for chain in [second, ReportedChain { identity: second.identity, ..first }] {
        rig.submit_load_as(0, &image, chain);
        let mismatch = first.check(&chain).expect_err("they differ");
        assert_eq!(rig.end_load(0), Err(LoadFailure::OtherChain(mismatch)));
        assert_eq!(rig.read(region(0, REGION_CONTROL)), REGION_DECOUPLE);
    }
    let ticket = rig.ticket();
    // The second chain is known, but not of these bytes.
    let known = [(Digest::of(&image), second), (Digest::of(b"other"), first)].into();
    let CardReport::ReadBack { snapshot, .. } =
        rig.run(CardCommand::ReadBack { ticket, known }, None)
    else {
        panic!("the card was not read back")
    };
    assert_eq!((snapshot.regions[0].chain, snapshot.regions[0].decoupled), (first, true));
    rig.load_well(0);
    assert_eq!(rig.read(region(0, REGION_CONTROL)), 0, "coupled");
}

/// It is what the next load will leave, not what the region holds.
pub fn the_next_digest_is_not_shown_before_a_load(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    decouple(&mut rig, 1, &Digest::of(b"next"));
    assert_eq!(rig.digest(1), [0; 8], "of an empty region");
    let held = rig.load_well(1);
    decouple(&mut rig, 1, &Digest::of(b"next"));
    assert_eq!(rig.digest(1), held.words(), "of a loaded region");
    assert_eq!(rig.status(1), REGION_LOADED);
}

/// Output of a region during a load must not reach the crossbar.
pub fn a_coupled_region_is_not_loaded(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let held = rig.load_well(0);
    let image = Arc::clone(&rig.images[0]);
    start(&mut rig, 0, &image);
    assert_eq!(rig.while_it_reads(LOAD_STATUS, LOAD_BUSY), LOAD_FAILED);
    assert_eq!(rig.read(LOAD_ERROR), LOAD_ERROR_REGION);
    assert_eq!(rig.status(0), REGION_LOADED, "it keeps what it holds");
    assert_eq!(rig.digest(0), held.words());
}

/// Neither one more than there are, nor any other number.
pub fn a_region_that_is_not_there_is_not_loaded(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let image = Arc::clone(&rig.images[0]);
    for number in [rig.read(REGION_COUNT), 256, u32::MAX] {
        start(&mut rig, number, &image);
        assert_eq!(rig.while_it_reads(LOAD_STATUS, LOAD_BUSY), LOAD_FAILED, "region {number}");
        assert_eq!(rig.read(LOAD_ERROR), LOAD_ERROR_REGION, "region {number}");
    }
    assert_eq!((rig.status(0), rig.status(1)), (REGION_EMPTY, REGION_EMPTY));
}

#[track_caller]
pub(super) fn breaks(rig: &mut Rig, number: u8, bytes: &[u8]) -> u32 {
    let code = match rig.load(number, &Arc::from(bytes)) {
        Err(LoadFailure::Controller { code }) => code,
        other => panic!("what is no bitstream was loaded, or not refused by the card: {other:?}"),
    };
    assert_eq!(rig.status(number), REGION_BROKEN);
    assert_eq!(rig.digest(number), [0; 8], "garbage has no digest");
    assert_eq!(rig.read(region(number, REGION_CONTROL)), REGION_DECOUPLE, "it stays decoupled");
    code
}

/// Also where the region held something good before.
pub fn a_damaged_image_leaves_the_region_broken(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    rig.load_well(0);
    let image = Arc::clone(&rig.damaged);
    let code = breaks(&mut rig, 0, &image);
    assert!(matches!(code, LOAD_ERROR_PACKETS | LOAD_ERROR_IDENTITY), "code {code}");
    assert_eq!(rig.status(1), REGION_EMPTY, "the other region");
}

/// No packets at all, and an image that ends in the middle.
pub fn bytes_that_are_no_bitstream_leave_the_region_broken(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    assert_eq!(breaks(&mut rig, 0, &[0x5a; 65_536]), LOAD_ERROR_PACKETS);
    let half = rig.images[1].len() / 2;
    let cut = rig.images[1][..half].to_vec();
    assert_eq!(breaks(&mut rig, 1, &cut), LOAD_ERROR_PACKETS);
}

/// A failure is not for ever.
pub fn a_broken_region_can_be_loaded_again(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    breaks(&mut rig, 0, &[0x5a; 65_536]);
    let digest = rig.load_well(0);
    assert_eq!((rig.status(0), rig.digest(0)), (REGION_LOADED, digest.words()));
    assert_eq!(rig.read(region(0, REGION_CONTROL)), 0, "coupled again");
}

/// A second start does nothing to its region, and the first load ends well.
pub fn one_load_runs_at_a_time(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let [first, second] = rig.images.clone();
    decouple(&mut rig, 0, &Digest::of(&first));
    decouple(&mut rig, 1, &Digest::of(&second));
    start(&mut rig, 0, &first);
    start(&mut rig, 1, &second);
    assert_eq!(rig.status(1), REGION_EMPTY, "the second load was refused");
    assert_eq!(rig.while_it_reads(region(0, REGION_STATUS), REGION_LOADING), REGION_LOADED);
    assert_eq!(rig.digest(0), Digest::of(&first).words());
    assert_eq!((rig.status(1), rig.digest(1)), (REGION_EMPTY, [0; 8]), "and never began");
}

/// So that one that hangs does not take the port for ever; a reset of another region does not.
pub fn a_reset_ends_a_load(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let image = Arc::clone(&rig.images[0]);
    decouple(&mut rig, 0, &Digest::of(&image));
    start(&mut rig, 0, &image);
    rig.write(region(1, REGION_CONTROL), REGION_RESET);
    assert_eq!(rig.read(LOAD_STATUS), LOAD_BUSY, "after the reset of region 1");
    rig.write(region(0, REGION_CONTROL), REGION_DECOUPLE | REGION_RESET);
    assert_eq!(rig.read(LOAD_STATUS), LOAD_FAILED, "after the reset of region 0");
    assert_eq!((rig.status(0), rig.digest(0)), (REGION_BROKEN, [0; 8]));
    let digest = rig.load_well(0);
    assert_eq!((rig.status(0), rig.digest(0)), (REGION_LOADED, digest.words()));
}

/// Other regions keep their content, and stay coupled.
pub fn a_load_leaves_the_other_regions_alone(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let held = rig.load_well(1);
    let image = Arc::clone(&rig.images[0]);
    rig.submit_load(0, &image);
    while !rig.session.is_idle() {
        rig.step_once();
        assert_eq!((rig.status(1), rig.digest(1)), (REGION_LOADED, held.words()));
        assert_eq!(rig.read(region(1, REGION_CONTROL)), 0);
    }
    assert_eq!(rig.status(0), REGION_LOADED);
}

/// It takes a load like any other.
pub fn a_region_can_be_loaded_again_with_the_same_image(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let digest = rig.load_well(1);
    assert_eq!(rig.load_well(1), digest);
    assert_eq!((rig.status(1), rig.digest(1)), (REGION_LOADED, digest.words()));
}

use super::*;
use crate::catalogue::{self, Catalogue};
use crate::test_image::TestBuild;
use proptest::prelude::*;
use snic_domain::{Bandwidth, BitstreamId, Cycles, RegionImages, Traffic};

struct World {
    catalogue: Catalogue,
    nts: Vec<NtType>,
    declared: Bitstream,
    bytes: Vec<u8>,
}

impl World {
    /// A valid upload of `firewall -> aes` for sim-16, 2 KiB.
    fn new() -> Self {
        let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
        let nts = catalogue.nt_types.clone();
        let mut world = Self {
            declared: Bitstream {
                id: BitstreamId::new("acme.mine").expect("valid"),
                images: RegionImages::for_all(Digest::of(&[]), ByteSize::ZERO),
                nts: ids(&["firewall", "aes"]),
                region_kind: RegionKind::UserNt,
                card_model: CardModel::new("sim-16").expect("valid"),
                shareable: false,
                signed_by: None,
                modules: Vec::new(),
                notes: Default::default(),
                identity: None,
            },
            bytes: Vec::new(),
            catalogue,
            nts,
        };
        world.build(0);
        world
    }

    /// Builds the declared NTs for one of the cards, and declares the result.
    fn build(&mut self, card: usize) {
        self.build_with(card, None);
    }

    fn build_with(&mut self, card: usize, identity: Option<ChainIdentity>) {
        let chain: Vec<&NtType> =
            self.declared.nts.iter().map(|id| self.find(id).expect("a known NT")).collect();
        let size = ByteSize::from_bytes(2_048);
        let card = &self.catalogue.cards[card];
        let build = TestBuild { card, chain: &chain, die: 0, identity };
        let bytes = build.build(size).expect("2 KiB");
        self.declare(bytes);
    }

    fn declare(&mut self, bytes: Vec<u8>) {
        self.declared.images.first_mut().size = ByteSize::from_bytes(bytes.len() as u64);
        self.declared.images.first_mut().digest = Digest::of(&bytes);
        self.bytes = bytes;
    }

    fn find(&self, id: &NtTypeId) -> Option<&NtType> {
        self.nts.iter().find(|nt| nt.id == *id)
    }

    fn nt(&mut self, id: &str) -> &mut NtType {
        self.nts.iter_mut().find(|nt| nt.id.as_str() == id).expect("a known NT")
    }

    fn check(&self) -> Result<CheckedUpload<'_>, InvalidUpload> {
        check_upload(&self.bytes, &self.declared, &self.catalogue.cards, |id| self.find(id))
    }

    /// The field and the message of the error.
    fn refused(&self) -> (String, String) {
        let error = self.check().expect_err("an upload that is wrong");
        (error.field(), error.to_string())
    }
}

fn ids(ids: &[&str]) -> Vec<NtTypeId> {
    ids.iter().map(|id| NtTypeId::new(id).expect("valid")).collect()
}

#[track_caller]
fn assert_refused(world: &World, field: &str, parts: &[&str]) {
    let (found, message) = world.refused();
    assert_eq!(found, field, "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn a_correctly_declared_upload_is_accepted() {
    let world = World::new();
    let checked = world.check().expect("a valid upload");
    assert_eq!(checked.claim.expect("a test image has one").slots().len(), 2);
    assert_eq!(checked.area, Area { lut: 468 + 535, ramb36: 0, dsp: 0 });
    assert_eq!(checked.file.idcode, 0x14B3_1093);
}

#[test]
fn size_and_digest_are_those_of_the_bytes() {
    let mut world = World::new();
    world.declared.images.first_mut().size = ByteSize::from_bytes(2_047);
    assert_refused(&world, "size_bytes", &["1.999 KiB are declared", "2 KiB arrived"]);
    world.declared.images.first_mut().size = ByteSize::ZERO;
    assert_refused(&world, "size_bytes", &["0 bytes", "16 MiB"]);
    world.declared.images.first_mut().size = ByteSize::from_bytes(BITSTREAM_BYTES_MAX.get() + 1);
    assert_refused(&world, "size_bytes", &["16 MiB"]);
    let mut world = World::new();
    world.bytes[1_500] ^= 1;
    assert_refused(&world, "digest", &[&world.declared.images.first().digest.to_string()]);
    let mut world = World::new();
    world.declare(Vec::new());
    assert_refused(&world, "size_bytes", &["0 bytes"]);
}

#[test]
fn nts_are_known_and_as_many_as_a_chain_takes() {
    let mut world = World::new();
    world.declared.nts = Vec::new();
    assert_refused(&world, "nts", &["0 NTs are declared", "1 to 8"]);
    world.declared.nts = ids(&["aes"; 9]);
    assert_refused(&world, "nts", &["9 NTs are declared"]);
    world.declared.nts = ids(&["firewall", "acme.secret"]);
    assert_refused(&world, "nts[1]", &["acme.secret is not known"]);
}

#[test]
fn the_target_exists() {
    let mut world = World::new();
    world.declared.card_model = CardModel::new("u999").expect("valid");
    assert_refused(&world, "card_model", &["u999", "sim-16, sim-32, u280"]);
    let mut world = World::new();
    world.catalogue.cards[0].regions.retain(|region| region.kind == RegionKind::KnownNt);
    assert_refused(&world, "region_kind", &["sim-16", "no user-nt regions"]);
    for region in &mut world.catalogue.cards[0].regions {
        region.bitstream_max = ByteSize::from_bytes(2_047);
    }
    world.declared.region_kind = RegionKind::KnownNt;
    assert_refused(&world, "size_bytes", &["2 KiB", "at most 1.999 KiB", "known-nt"]);
}

#[test]
fn the_part_is_the_cards() {
    let mut world = World::new();
    world.build(2);
    assert_refused(&world, "card_model", &["xcu280-fsvh2892-2L-e", "xcvu9p-flgb2104-2-e"]);
    world.catalogue.cards[2].part = "xcvu9p-flgb2104-2-e".to_owned();
    world.build(2);
    assert_refused(&world, "card_model", &["0x14b7d093", "0x14b31093"]);
}

#[test]
fn the_content_is_a_bitstream_whose_rom_is_whole() {
    let mut world = World::new();
    world.declare(b"xclbin2\0".to_vec());
    assert_refused(&world, "chunk", &[".bit"]);
    let mut world = World::new();
    let mut bytes = world.bytes.clone();
    let magic = bytes.windows(4).position(|w| w == b"SNIC").expect("a ROM");
    bytes[magic + 12] ^= 1;
    world.declare(bytes);
    assert_refused(&world, "chunk", &["CRC"]);
}

/// As a vendor's tools leave it.
#[test]
fn a_bitstream_that_says_nothing_of_its_nts_is_declared_with_its_identity() {
    let identity = ChainIdentity::from_words([1, 2, 3, 4]);
    let mut world = World::new();
    world.build_with(0, Some(identity));
    assert_refused(&world, "identity", &["no identity is declared"]);
    world.declared.identity = Some(identity);
    assert_eq!(world.check().expect("its region will say what it is").claim, None);
    // What is checked without a ROM is checked with one.
    world.declared.card_model = CardModel::new("u280").expect("valid");
    assert_refused(&world, "card_model", &["xcu280-fsvh2892-2L-e"]);
    let mut world = World::new();
    world.declared.identity = Some(identity);
    assert_refused(&world, "identity", &["00000001000000020000000300000004 is declared"]);
    world.declared.identity = Some(ChainIdentity::of_nts(&world.declared.nts));
    assert!(world.check().is_ok());
}

#[test]
fn the_rom_holds_the_declared_nts_in_their_order() {
    let mut world = World::new();
    world.declared.nts.reverse();
    assert_refused(&world, "nts[0]", &["slot 0 is declared as aes", "in the order packets pass"]);
    world.declared.nts = ids(&["firewall"]);
    assert_refused(&world, "nts", &["1 NTs are declared, the bitstream holds 2"]);
    world.declared.nts = ids(&["firewall", "aes", "aes"]);
    assert_refused(&world, "nts", &["3 NTs are declared"]);
}

#[test]
fn nts_behave_as_registered() {
    let mut world = World::new();
    world.nt("aes").latency = Cycles::new(45);
    assert_refused(&world, "nts[1]", &["aes is registered with latency 45 cycles", "44 cycles"]);
    let mut world = World::new();
    // One kbit/s: less than what a bandwidth prints.
    world.nt("aes").bandwidth_max = Bandwidth::from_bps(30_000_001_000);
    assert_refused(&world, "nts[1]", &["bandwidth 30000001 kbit/s", "30000000 kbit/s"]);
    let mut world = World::new();
    world.nt("firewall").traffic = Traffic::Payload;
    assert_refused(&world, "nts[0]", &["traffic payload", "header-only"]);
    let mut world = World::new();
    world.nt("aes").packets_per_second_max = std::num::NonZeroU32::new(9);
    assert_refused(&world, "nts[1]", &["packet rate 9 packets/s", "no limit"]);
    let mut world = World::new();
    world.nt("aes").memory_traffic.bytes_per_packet = 64;
    assert_refused(&world, "nts[1]", &["memory traffic 64 bytes a packet", "0 bytes a packet"]);
}

#[test]
fn the_area_fits_one_region_that_takes_the_bitstream() {
    let mut world = World::new();
    world.nt("aes").area.lut = 60_000;
    assert_refused(&world, "nts", &["60468 LUT", "60000 LUT", "sim-16"]);
    // A region large enough, but not for the bitstream, does not help.
    let region = &mut world.catalogue.cards[0].regions[15];
    region.area.lut = 100_000;
    assert!(world.check().is_ok());
    world.catalogue.cards[0].regions[15].bitstream_max = ByteSize::from_bytes(2_047);
    assert_refused(&world, "nts", &["60468 LUT", "60000 LUT"]);
}

proptest! {
    /// Whatever is changed in the content, it is refused, or what it says it holds is unchanged.
    #[test]
    fn a_changed_byte_never_changes_what_is_held(at: prop::sample::Index, byte: u8) {
        let mut world = World::new();
        let claim = world.check().expect("a valid upload").claim;
        let mut bytes = world.bytes.clone();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        world.declare(bytes);
        match world.check() {
            Ok(checked) => prop_assert_eq!(checked.claim, claim),
            Err(error) => {
                let fields = ["chunk", "card_model", "identity"];
                prop_assert!(fields.contains(&error.field().as_str()));
            }
        }
    }
}

#[test]
fn a_tenant_brings_modules_for_its_own_nts_only() {
    let mut world = World::new();
    let own = NtTypeId::new("acme.filter").expect("valid");
    world.nts.push(NtType { id: own.clone(), ..world.nts[0].clone() });
    let module = crate::modules::tests::module(b"");
    let build = |world: &mut World, id: &str, bytes: &[u8]| {
        let nt = NtTypeId::new(id).expect("valid");
        let chain = [world.find(&nt).expect("it is known")];
        let modules = [EmbeddedModule { slot: 0, nt: id, bytes }];
        let card = &world.catalogue.cards[0];
        let build = crate::ModuleBuild { card, chain: &chain, modules: &modules, identity: None };
        let image = build.build().expect("possible");
        world.declared.nts = vec![nt];
        world.declare(image);
    };
    build(&mut world, "acme.filter", &module);
    world.check().expect("its own");
    build(&mut world, "firewall", &module);
    assert_refused(&world, "chunk", &["module of slot 0 is for NT type firewall"]);
    world.declared.id = BitstreamId::new("mine").expect("valid");
    world.check().expect("the provider's");
    // One that has lost the name of an export on its way.
    build(&mut world, "firewall", &module);
    let at = world.bytes.windows(6).position(|part| part == b"memory").expect("it is there");
    let mut damaged = world.bytes.clone();
    damaged[at] = b'M';
    world.declare(damaged);
    assert_refused(&world, "chunk", &["firewall: it does not export memory"]);
}

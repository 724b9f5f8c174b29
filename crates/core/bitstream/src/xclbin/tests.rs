//! The files on which XRT 2.13 crashes, or which it takes although they describe nothing; and
//! damage anywhere else.

use rstest::rstest;
use snic_domain::CardProfile;

use super::write::{table, words};
use super::*;
use crate::catalogue;
use crate::test_image::role_bit;

const CONTROL: &str = "snic_control:control_0";

fn card() -> CardProfile {
    let model = "sim-16".parse().expect("a label");
    catalogue::builtin().expect("valid").card(&model).expect("there").clone()
}

fn role() -> TestRole<'static> {
    TestRole {
        uuid: Uuid::from_u128(7),
        interface: Uuid::from_u128(9),
        platform: "xilinx_u280_gen3x16_xdma_base_1",
        control: CONTROL,
        registers_bytes: 1 << 22,
        memory_kibibytes: 1 << 20,
    }
}

fn expected(card: &CardProfile) -> ExpectedRole<'_> {
    ExpectedRole {
        control: CONTROL,
        registers_bytes: 1 << 21,
        first_register: 0x40,
        interface: None,
        card,
    }
}

fn good() -> Vec<u8> {
    role().build(&card()).expect("a role")
}

/// The good file with some bytes replaced.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = good();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// Where the header of the IP layout is: it is the third section.
const IP_HEADER: usize = SECTIONS + 2 * SECTION_HEADER;

fn in_ip_layout(bytes: &[u8]) -> Vec<u8> {
    let at = u64_at(&good(), IP_HEADER + 24) as usize;
    with(at, bytes)
}

/// The good file without one section, or with another content of it.
fn rebuilt(kind: u32, content: Option<&[u8]>) -> Vec<u8> {
    let mut sections = role().sections(role_bit(&card()).expect("a part"));
    match content {
        None => sections.retain(|(other, _)| *other != kind),
        Some(content) => {
            for (_, old) in sections.iter_mut().filter(|(other, _)| *other == kind) {
                *old = content.to_vec();
            }
        }
    }
    role().container(1, &sections)
}

fn connected(argument: i32, ip: i32, memory: i32) -> Vec<u8> {
    let entry = words(&[argument, ip, memory].map(i32::cast_unsigned));
    rebuilt(kind::CONNECTIVITY, Some(&table(4, &[entry])))
}

#[test]
fn a_good_role_is_read_and_fits_its_card() {
    let (file, card) = (good(), card());
    let role = check_role(&file, &expected(&card)).expect("it is good");
    assert_eq!((role.uuid, &role.interfaces[..]), (Uuid::from_u128(7), &[Uuid::from_u128(9)][..]));
    assert_eq!(role.platform, "xilinx_u280_gen3x16_xdma_base_1");
    assert_eq!(role.mode, Mode::Partial);
    assert_eq!(role.kernel(CONTROL).map(|kernel| kernel.range), Some(1 << 22));
    assert_eq!(role.memories[0].tag, "DDR[0]");
    assert_eq!(role.ips[0].control, Control::HandShake);
}

#[rstest]
#[case::empty(vec![], "does not begin")]
#[case::short(good()[..100].to_vec(), "less than the header")]
#[case::bad_magic(with(0, b"xclbin0\0"), "does not begin")]
#[case::text(b"hello world\n".repeat(100), "does not begin")]
#[case::cut_after_headers(good()[..SECTIONS + 5 * SECTION_HEADER].to_vec(), "it is cut or damaged")]
#[case::cut_in_half(good()[..good().len() / 2].to_vec(), "it is cut or damaged")]
#[case::length_huge(with(HEADER, &(1_u64 << 40).to_le_bytes()), "1099511627776 bytes")]
#[case::sections_65535(with(HEADER + 144, &0xffff_u32.to_le_bytes()), "65535 sections")]
#[case::ip_layout_offset_huge(with(IP_HEADER + 24, &(1_u64 << 40).to_le_bytes()), "section 2 is")]
#[case::ip_layout_count(in_ip_layout(&100_000_u32.to_le_bytes()), "IP_LAYOUT says 100000")]
#[case::no_ip_layout(rebuilt(kind::IP_LAYOUT, None), "no section IP_LAYOUT")]
#[case::no_xml(rebuilt(kind::EMBEDDED_METADATA, None), "no section EMBEDDED_METADATA")]
#[case::bad_xml(rebuilt(kind::EMBEDDED_METADATA, Some(b"<project><oops")), "not well formed")]
#[case::xml_without_core(
    rebuilt(kind::EMBEDDED_METADATA, Some(br#"<?xml version="1.0"?><project name="x"/>"#)),
    "EMBEDDED_METADATA"
)]
#[case::no_bitstream(rebuilt(kind::BITSTREAM, None), "no section BITSTREAM")]
#[case::no_memory(rebuilt(kind::MEM_TOPOLOGY, None), "no section MEM_TOPOLOGY")]
#[case::connection_to_no_memory(connected(0, 0, 77), "names memory 77; there are 1")]
#[case::connection_negative(connected(-5, 0, 0), "names argument -5")]
#[case::mode_sw_emu(role().container(5, &role().sections(vec![1])), "mode 5")]
#[case::uuid_zero(with(HEADER + 112, &[0; 16]), "UUID is zero")]
#[case::no_sections(role().container(1, &[]), "0 sections")]
#[case::section_size_huge(with(IP_HEADER + 32, &(1_u64 << 45).to_le_bytes()), "section 2 is")]
// Not among those: found while writing the check.
#[case::mode_flat(role().container(0, &role().sections(vec![1])), "mode 0")]
#[case::sizes_wrap(with(IP_HEADER + 32, &u64::MAX.to_le_bytes()), "section 2 is")]
#[case::offset_unaligned(with(IP_HEADER + 24, &(u64_at(&good(), IP_HEADER + 24) + 4).to_le_bytes()), "multiple of 8")]
#[case::in_the_headers(with(IP_HEADER + 24, &304_u64.to_le_bytes()), "section 2 is")]
#[case::overlap(with(IP_HEADER + 24, &u64_at(&good(), SECTIONS + 24).to_le_bytes()), "share bytes")]
#[case::count_negative(in_ip_layout(&(-1_i32).to_le_bytes()), "IP_LAYOUT says -1")]
#[case::unknown_kind(with(IP_HEADER, &99_u32.to_le_bytes()), "kind 99")]
#[case::kernel_elsewhere(in_ip_layout(&[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8]), "not in IP_LAYOUT")]
#[case::no_tree(rebuilt(kind::PARTITION_METADATA, Some(&[0; 64])), "does not begin with d00dfeed")]
#[case::no_bytes(rebuilt(kind::PARTITION_METADATA, Some(&[])), "it ends there")]
#[case::deep(rebuilt(kind::EMBEDDED_METADATA, Some(&b"<a>".repeat(17))), "too deep")]
#[case::document_type(
    rebuilt(kind::EMBEDDED_METADATA, Some(b"<!DOCTYPE a [<!ENTITY b \"c\">]><a/>")),
    "document type"
)]
fn a_bad_file_is_refused(#[case] file: Vec<u8>, #[case] says: &str) {
    let error = Xclbin::parse(&file).expect_err("it is bad").to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn a_role_for_another_card_or_daemon_is_refused() {
    let card = card();
    let refused = |file: &[u8], expected: &ExpectedRole<'_>| {
        check_role(file, expected).expect_err("it is not for this card").to_string()
    };
    let other = ExpectedRole { interface: Some(Uuid::from_u128(1)), ..expected(&card) };
    let says =
        "built against interface 00000000-0000-0000-0000-000000000009, the card's platform has";
    assert!(refused(&good(), &other).contains(says));
    let none = rebuilt(kind::PARTITION_METADATA, None);
    assert!(refused(&none, &other).contains("built against no interface"));
    assert!(Xclbin::parse(&none).expect("XRT takes it").interfaces.is_empty());
    let larger = ExpectedRole { registers_bytes: 1 << 23, ..expected(&card) };
    assert!(refused(&good(), &larger).contains("4194304 bytes of registers"));
    let renamed = ExpectedRole { control: "snic_control:control_1", ..expected(&card) };
    assert!(refused(&good(), &renamed).contains("no kernel snic_control:control_1"));
    let profile = CardProfile { idcode: card.idcode ^ 0x1000, ..card.clone() };
    assert!(refused(&good(), &expected(&profile)).contains("IDCODE"));
    let profile = CardProfile { part: "xcvu37p".into(), ..card.clone() };
    assert!(refused(&good(), &expected(&profile)).contains("xcvu37p"));
    let no_bit = rebuilt(kind::BITSTREAM, Some(b"\xff\xff"));
    assert!(refused(&no_bit, &expected(&card)).contains(".bit"));
    let mut layout = role().sections(vec![])[2].1.clone();
    layout[13] = 2; // AP_CTRL_NONE
    let streams = rebuilt(kind::IP_LAYOUT, Some(&layout));
    assert!(refused(&streams, &expected(&card)).contains("AP_CTRL_HS"));
    // A pointer at 0x10 ends at 0x18.
    let tight = ExpectedRole { first_register: 0x14, ..expected(&card) };
    assert!(refused(&good(), &tight).contains("arguments up to byte 0x18"));
    check_role(&good(), &ExpectedRole { first_register: 0x18, ..expected(&card) }).expect("room");
}

/// Metadata that v++ makes of the build flow's kernel: the element as it is, with the instance that `link.cfg` orders.
fn flow_metadata(range: &str) -> String {
    let xml = include_str!("../../../../../bitstreams/flow/rtl/kernel.xml");
    let begin = xml.find("<kernel ").expect("a kernel");
    let end = xml.find("</kernel>").expect("an end");
    let base = u64_at(&role().sections(vec![])[2].1, 16);
    format!(
        r#"<project><platform><device><core name="OCL_REGION_0">{}
        <instance name="control_0"><addrRemap base="{base:#x}" range="{range}" port="S_AXI_CONTROL"/></instance>
        </kernel></core></device></platform></project>"#,
        &xml[begin..end]
    )
}

/// The text of an attribute of the first element that begins so.
fn flow_attribute(element: &str, attribute: &str) -> String {
    let xml = include_str!("../../../../../bitstreams/flow/rtl/kernel.xml");
    let (_, rest) = xml.split_once(element).expect("an element");
    let (_, value) = rest.split_once(&format!(" {attribute}=\"")).expect("an attribute");
    value.split('"').next().expect("its end").to_owned()
}

#[test]
fn the_kernel_of_the_build_flow_is_one_that_the_daemon_drives() {
    let card = card();
    let range = flow_attribute("<port name=\"s_axi_control\"", "range");
    let with = |metadata: &str| rebuilt(kind::EMBEDDED_METADATA, Some(metadata.as_bytes()));
    let file = with(&flow_metadata(&range));
    let role = check_role(&file, &expected(&card)).expect("a role of the flow");
    let kernel = role.kernel(CONTROL).expect("the control kernel");
    assert_eq!((kernel.range, kernel.arguments_end), (1 << 22, 0x18));
    // IP_LAYOUT has what this says.
    assert_eq!(flow_attribute("<kernel ", "hwControlProtocol"), "ap_ctrl_hs");
    // The buffers' argument is the first, as the worker asks XRT for its memory.
    assert!(flow_metadata(&range).contains("<arg name=\"buffer\" addressQualifier=\"1\" id=\"0\""));
}

#[test]
fn streams_of_a_kernel_need_no_place_among_its_registers() {
    let card = card();
    let metadata = flow_metadata("0x400000");
    let stream = metadata.replace(r#"size="0x0" offset="0x0""#, r#"size="" offset="""#);
    assert_ne!(stream, metadata);
    let file = rebuilt(kind::EMBEDDED_METADATA, Some(stream.as_bytes()));
    check_role(&file, &expected(&card)).expect("nothing is zero");
    let word = metadata.replace(r#"offset="0x10""#, r#"offset="low""#);
    assert_ne!(word, metadata);
    let file = rebuilt(kind::EMBEDDED_METADATA, Some(word.as_bytes()));
    let error = Xclbin::parse(&file).expect_err("no number").to_string();
    assert!(error.contains("not a number"), "{error}");
}

/// A role that XRT's own xclbinutil (2.13.466) wrote as v++ has it do (`--target hw --key-value SYS:dfx_enable:true`),
/// from a `.bit` of this project, the build flow's kernel, and tables in JSON.
#[test]
fn a_role_of_xrts_own_tool_is_read_as_the_tool_shows_it() {
    let file = include_bytes!("../../tests/xclbinutil.xclbin");
    let catalogue = catalogue::builtin().expect("valid");
    let card = catalogue.card(&"u280".parse().expect("a label")).expect("there");
    let interfaces =
        ["862c7020-a250-293e-3203-6f19956669e5", "937ed708-67cf-3350-bc06-304053f4293c"]
            .map(|text| Uuid::try_parse(text).expect("a UUID"));
    for interface in interfaces {
        let expected = ExpectedRole { interface: Some(interface), ..expected(card) };
        let role = check_role(file, &expected).expect("a role");
        assert_eq!(role.interfaces, interfaces);
        assert_eq!(role.uuid.to_string(), "dd99618c-7ea9-7ae4-21dc-f24940005e7e");
        assert_eq!((role.platform, role.mode), ("xilinx_u280_gen3x16_xdma_base_1", Mode::Partial));
        let ip = role.ip(CONTROL).expect("the control kernel");
        assert_eq!((ip.base, ip.control), (0x0180_0000, Control::HandShake));
        assert_eq!(role.kernel(CONTROL).map(|kernel| kernel.arguments_end), Some(0x18));
        let memories: Vec<_> = role.memories.iter().map(|one| (one.tag, one.used)).collect();
        assert_eq!(memories, [("DDR[0]", true), ("HOST[0]", false)]);
    }
    // The feature ROM's UUID, which is zero in this file, is no interface.
    let zero = ExpectedRole { interface: Some(Uuid::nil()), ..expected(card) };
    assert!(matches!(check_role(file, &zero), Err(WrongRole::Interface { .. })));
}

#[test]
fn a_damaged_tree_is_answered() {
    let good = partition::write(Uuid::from_u128(9));
    assert_eq!(partition::interfaces(&good), Ok(vec![Uuid::from_u128(9)]));
    for length in 0..good.len() {
        assert!(partition::interfaces(&good[..length]).is_err(), "{length}");
    }
    // Any word may be anything: an answer, and the interface or an error where it is the interface's.
    for at in (0..good.len()).step_by(4) {
        for word in [0, 1, 2, 3, 4, 9, 0x7fff_ffff, u32::MAX, 0xffff_fffd] {
            let mut tree = good.clone();
            let end = (at + 4).min(tree.len());
            tree[at..end].copy_from_slice(&u32::to_be_bytes(word)[..end - at]);
            let _ = partition::interfaces(&tree);
        }
    }
    let many = [partition::write(Uuid::from_u128(9)), vec![0; 64]].concat();
    assert!(partition::interfaces(&many).is_ok(), "what is behind the tree is none of it");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let file = good();
    for length in (0..file.len()).step_by(7) {
        assert!(Xclbin::parse(&file[..length]).is_err(), "{length}");
    }
}

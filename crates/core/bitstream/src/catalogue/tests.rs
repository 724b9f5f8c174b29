use std::num::{NonZeroU32, NonZeroU64};

use snic_domain::{Area, Bandwidth, Cycles, Dag, FormPreference, MemoryTraffic};

use super::*;
use crate::check_upload;

fn name(model: &str) -> CardModel {
    CardModel::new(model).expect("valid")
}

fn valid() -> Catalogue {
    builtin().expect("the built-in catalogue is valid")
}

const CARD: &str = r#"model = "test"
part = "xcvu9p"
idcode = 1
clock_hz = 250_000_000
width_bits = 512
ingress_bps = 100_000_000_000
egress_bps = 100_000_000_000
memory_bytes = 1
packet_store_bytes = 1
configuration_bytes_per_second = 1
scheduler_pass_cycles = 16
core_cycles = 49
credits_initial = 8
[[regions]]
count = 2
kind = "known-nt"
area = { lut = 1_000 }
bitstream_max_bytes = 1_000_000
"#;
const NT: &str = r#"[[nt-types]]
id = "nat"
shareable = true
bandwidth_max_bps = 1_000_000
latency_cycles = 10
area = { lut = 600 }
memory_bytes = 0
traffic = "header-only"
description = ""
"#;
const CHAIN: &str = r#"[[chains]]
id = "one"
nts = ["nat"]
region_kind = "known-nt"
card_models = ["test"]
"#;
const DAG: &str = r#"[[tenants]]
id = "acme"
weight = 1
[[dags]]
tenant = "acme"
id = "web"
bandwidth_bps = 1_000_000
chain = ["nat"]
description = ""
"#;

/// Parses a small catalogue with one of its files changed.
fn changed(which: &str, from: &str, to: &str) -> Result<Catalogue, InvalidCatalogue> {
    let text = |name: &str, text: &str| {
        if name != which {
            return text.to_owned();
        }
        assert!(from.is_empty() || text.contains(from), "{from:?} is not in {name}");
        if from.is_empty() { format!("{text}{to}") } else { text.replacen(from, to, 1) }
    };
    let (card, nt) = (text("card", CARD), text("nt", NT));
    let (chain, dag) = (text("chain", CHAIN), text("dag", DAG));
    Catalogue::parse(&Files {
        cards: &[File { name: "card", text: &card }],
        nt_types: File { name: "nt", text: &nt },
        chains: File { name: "chain", text: &chain },
        dags: File { name: "dag", text: &dag },
    })
}

/// `file:line: key: ` and the message.
#[track_caller]
fn assert_refused(which: &str, from: &str, to: &str, place: &str, part: &str) {
    let error = changed(which, from, to).expect_err("a mistake").to_string();
    let message = error.strip_prefix(place).and_then(|rest| rest.strip_prefix(": "));
    let Some(message) = message else { panic!("{error:?} does not begin with {place:?}") };
    assert!(message.contains(part), "{part:?} is not in {message:?}");
}

#[test]
fn the_small_catalogue_is_valid() {
    let catalogue = changed("card", "1", "1").expect("valid");
    assert_eq!(catalogue.cards[0].regions.len(), 2);
    assert_eq!(catalogue.dags[0].name.to_string(), "tenants/acme/dags/web");
}

#[test]
fn the_built_in_cards_are_those_of_the_papers_and_the_issue() {
    let catalogue = valid();
    let models: Vec<_> = catalogue.cards.iter().map(|card| card.model.as_str()).collect();
    assert_eq!(models, ["sim-16", "sim-32", "u280", "u250", "u55c", "htg-9200"]);
    let sim = catalogue.card(&name("sim-16")).expect("there");
    assert_eq!((sim.regions.len(), sim.idcode), (16, 0x14B3_1093));
    let known = sim.regions.iter().filter(|region| region.kind == RegionKind::KnownNt);
    assert_eq!(known.count(), 14);
    assert_eq!(sim.core.duration(sim.clock_hz).as_nanos(), 196);
    assert_eq!(sim.memory.get(), 10 << 30);
    assert_eq!(sim.configuration_bytes_per_second, 800_000_000);
    assert_eq!(catalogue.card(&name("sim-32")).expect("there").regions.len(), 32);
    assert_eq!(catalogue.card(&name("u281")), None);
}

/// Limits besides bandwidth are there where a file states them; without their keys there are none, as in files from
/// before there were such keys.
#[test]
fn limits_are_read_where_they_are_stated() {
    let plain = changed("card", "1", "1").expect("valid");
    let (card, nt) = (&plain.cards[0], &plain.nt_types[0]);
    assert_eq!((card.memory_bytes_per_second, card.scheduler_lookups_per_cycle), (None, None));
    assert_eq!(card.packet_store_beats_per_cycle, None);
    assert_eq!((nt.packets_per_second_max, nt.memory_traffic.is_none()), (None, true));
    let card = changed(
        "card",
        "core_cycles",
        "memory_bytes_per_second = 7\nscheduler_lookups_per_cycle = 2\n\
         packet_store_beats_per_cycle = 3\ncore_cycles",
    );
    let card = &card.expect("valid").cards[0];
    assert_eq!(card.memory_bytes_per_second.map(NonZeroU64::get), Some(7));
    assert_eq!(card.scheduler_lookups_per_cycle.map(NonZeroU32::get), Some(2));
    assert_eq!(card.packet_store_beats_per_cycle.map(NonZeroU32::get), Some(3));
    let nt = changed(
        "nt",
        "memory_bytes = 0",
        "memory_bytes = 0\npackets_per_second_max = 4_294_967_295\nmemory_bytes_per_packet = 16_777_215\n\
         memory_bytes_per_packet_byte = 255",
    );
    let nt = &nt.expect("valid").nt_types[0];
    assert_eq!(nt.packets_per_second_max, Some(NonZeroU32::MAX));
    let MemoryTraffic { bytes_per_packet, bytes_per_packet_byte } = nt.memory_traffic;
    assert_eq!((bytes_per_packet, bytes_per_packet_byte), (16_777_215, 255));
    for (key, value, part) in [
        ("packets_per_second_max", "0", "1 to 4294967295 packets/s"),
        ("packets_per_second_max", "4_294_967_296", "1 to 4294967295 packets/s"),
        ("memory_bytes_per_packet", "16_777_216", "at most 16777215 bytes"),
        ("memory_bytes_per_packet_byte", "256", "at most 255 bytes"),
    ] {
        let to = format!("memory_bytes = 0\n{key} = {value}");
        assert_refused("nt", "memory_bytes = 0", &to, &format!("nt:8: nt-types[0].{key}"), part);
    }
    for key in
        ["memory_bytes_per_second", "scheduler_lookups_per_cycle", "packet_store_beats_per_cycle"]
    {
        let to = format!("{key} = 0\ncore_cycles");
        assert_refused("card", "core_cycles", &to, &format!("card:12: {key}"), "no limit");
    }
    let catalogue = valid();
    let known = |card: &CardProfile| {
        card.memory_bytes_per_second.is_some() && card.scheduler_lookups_per_cycle.is_some()
    };
    assert!(catalogue.cards.iter().all(known), "each has its data sheet's");
}

#[test]
fn the_built_in_nts_have_the_areas_of_fig_6() {
    let catalogue = valid();
    let figures: Vec<_> =
        catalogue.nt_types.iter().map(|nt| (nt.id.as_str(), nt.area.lut, nt.area.ramb36)).collect();
    let expected = [
        ("nat", 864, 0),
        ("firewall", 468, 0),
        ("load-balancer", 4_533, 0),
        ("go-back-n", 4_900, 0),
        ("kv-replication", 458, 96),
        ("kv-cache", 2_452, 48),
        ("dfadd", 4_266, 70),
        ("aes", 535, 0),
    ];
    assert_eq!(figures[..expected.len()], expected, "others come behind those of the paper");
    let aes = catalogue.nt_type(&NtTypeId::new("aes").expect("valid")).expect("there");
    assert_eq!(aes.bandwidth_max, Bandwidth::from_gbps(30));
}

#[test]
fn all_regions_and_the_static_part_fit_the_part() {
    // LUTs and RAMB36 of the part; Fig. 6's core, packet store, MAC and DDR4 controller take
    // 89,300 and 314.
    let parts = [
        ("sim-16", 1_182_240, 2_160),
        ("sim-32", 1_182_240, 2_160),
        ("u280", 1_303_680, 2_016),
        ("u250", 1_728_000, 2_688),
        ("u55c", 1_303_680, 2_016),
        ("htg-9200", 1_182_240, 2_160),
    ];
    for (model, lut, ramb36) in parts {
        let catalogue = valid();
        let card = catalogue.card(&name(model)).expect("there");
        let regions: Area = card.regions.iter().map(|region| region.area).sum();
        let part = Area { lut, ramb36, dsp: 12_288 };
        let fixed = Area { lut: 89_300, ramb36: 314, dsp: 0 };
        assert!(part.fits(regions + fixed), "{model}: {regions}");
    }
}

#[test]
fn the_sample_dags_fit_one_chain_and_need_two_aes() {
    let catalogue = valid();
    let sim = catalogue.card(&name("sim-16")).expect("there");
    let asked: Bandwidth = catalogue.dags.iter().map(|dag| dag.spec.bandwidth).sum();
    assert!(asked <= sim.ingress, "{asked}");
    let through_aes = catalogue
        .dags
        .iter()
        .filter(|dag| dag.spec.nodes.iter().any(|node| node.nt.as_str() == "aes"));
    let aes: Bandwidth = through_aes.map(|dag| dag.spec.bandwidth).sum();
    assert_eq!(aes, Bandwidth::from_gbps(40));
    let chain = &catalogue.chains[0];
    assert_eq!(chain.id.as_str(), "dag-d");
    for dag in &catalogue.dags[..4] {
        // Each is a subsequence of the chain.
        let mut left = chain.nts.iter();
        assert!(dag.spec.nodes.iter().all(|node| left.any(|nt| *nt == node.nt)), "{}", dag.name);
    }
    assert_eq!(catalogue.tenants.len(), 2);
}

#[test]
fn the_fork_is_faster_side_by_side() {
    let catalogue = valid();
    let sample = catalogue.dags.last().expect("there");
    assert_eq!(sample.spec.form, FormPreference::Auto);
    let dag = Dag::new(sample.spec.clone()).expect("checked");
    assert_eq!(dag.successors(0).len(), 2);
    let cycles =
        |nt: &str| catalogue.nt_type(&NtTypeId::new(nt).expect("valid")).expect("there").latency;
    let branch = cycles("load-balancer") + cycles("kv-cache");
    let ends = Cycles::new(49) + cycles("nat") + cycles("go-back-n");
    assert_eq!(ends + branch + cycles("aes"), Cycles::new(161));
    assert_eq!(ends + Cycles::new(32) + branch.max(cycles("aes")), Cycles::new(155));
}

#[test]
fn every_chain_has_a_test_bitstream_that_passes_the_upload_check() {
    let catalogue = valid();
    let card = catalogue.card(&name("sim-32")).expect("there");
    let mut built = 0;
    for chain in catalogue.chains_for(&card.model) {
        let (record, bytes) = catalogue.test_bitstream(chain, card).expect("buildable");
        let find = |id: &NtTypeId| catalogue.nt_type(id);
        check_upload(&bytes, &record, &catalogue.cards, find).expect("valid");
        assert_eq!(record.id.as_str(), format!("{}-sim-32", chain.id));
        built += 1;
    }
    assert!(built >= 10, "{built}");
    let other = catalogue.card(&name("u280")).expect("there");
    let error = catalogue.test_bitstream(&catalogue.chains[0], other);
    assert!(matches!(error, Err(NoTestBitstream::Model { .. })));
}

#[test]
fn malformed_toml_and_unknown_keys_are_refused_with_line_and_key() {
    assert_refused("card", "idcode = 1", "idcode = ", "card:3: idcode", "");
    assert_refused("card", "clock_hz", "clok_hz", "card:4: clok_hz", "unknown field `clok_hz`");
    assert_refused("card", "count = 2", "count = \"two\"", "card:15: count", "invalid type");
    assert_refused("card", "{ lut = 1_000 }", "{ lutt = 1 }", "card:17: area", "lutt");
    assert_refused("card", "known-nt", "known", "card:16: kind", "unknown variant");
    assert_refused(
        "nt",
        "traffic = \"header-only\"\n",
        "",
        "nt:1: [[nt-types]]",
        "missing field `traffic`",
    );
    assert_refused("nt", "\"nat\"", "\"N A T\"", "nt:2: id", "is not a NT type id");
    assert_refused("chain", "", "x = 1\n", "chain:6: x", "unknown field `x`");
    assert_refused("dag", "id = \"web\"", "id = \"a.b\"", "dag:6: id", "is not a DAG id");
}

#[test]
fn frames_of_regions_have_a_die_and_bad_ones_are_refused() {
    let frames = |what: &str| format!("frames = [{{ {what} }}]\n");
    let good = frames("die = 2, rows = [1, 2], columns = [3, 4], frames_per_column = 5");
    let catalogue = changed("card", "", &good).expect("valid");
    let range = catalogue.floor_plans[0].groups[0].ranges[0].clone();
    assert_eq!((range.die, range.rows, range.columns), (2, 1..=2, 3..=4));
    let refused = |from: &str, to: &str, parts: [&str; 2]| {
        assert_refused("card", "", &good.replace(from, to), parts[0], parts[1]);
    };
    refused("die = 2", "die = 4", ["card:19: regions[0].frames[0].die", "0 to 3"]);
    refused("[1, 2]", "[2, 1]", ["card:19: regions[0].frames[0].rows", "first to last"]);
    refused("[1, 2]", "[1, 64]", ["card:19: regions[0].frames[0].rows", "at most 63"]);
    refused("[3, 4]", "[3, 1024]", ["card:19: regions[0].frames[0].columns", "at most 1023"]);
    refused("= 5", "= 0", ["card:19: regions[0].frames[0].frames_per_column", "1 to 256"]);
    refused("= 5", "= 257", ["card:19: regions[0].frames[0].frames_per_column", "1 to 256"]);
    refused("die", "dye", ["card:19", "dye"]);
}

#[test]
fn rows_of_a_card_have_a_width_and_bad_ones_are_refused() {
    let rows = |what: &str| format!("rows = [{{ {what} }}]\nidcode = 1");
    let good = "die = 1, block_type = 1, columns = 12";
    let catalogue = changed("card", "idcode = 1", &rows(good)).expect("valid");
    let width = catalogue.floor_plans[0].rows[0];
    assert_eq!((width.die, width.block_type, width.columns), (1, 1, 12));
    let refused = |from: &str, to: &str, key: &str, allowed: &str| {
        assert_refused("card", "idcode = 1", &rows(&good.replace(from, to)), key, allowed);
    };
    refused("= 12", "= 0", "card:3: rows[0].columns", "1 to 1024");
    refused("= 12", "= 1025", "card:3: rows[0].columns", "1 to 1024");
    refused("die = 1", "die = 4", "card:3: rows[0].die", "0 to 3");
    refused("die", "dye", "card:3", "dye");
}

#[test]
fn bad_cards_are_refused() {
    let zero = "give more than 0";
    assert_refused("card", "idcode = 1", "idcode = 0", "card:3: idcode", zero);
    assert_refused("card", "250_000_000", "0", "card:4: clock_hz", zero);
    assert_refused("card", "512", "12", "card:5: width_bits", "whole bytes");
    assert_refused(
        "card",
        "ingress_bps = 100_000_000_000",
        "ingress_bps = 0",
        "card:6: ingress_bps",
        "0 is not allowed",
    );
    assert_refused(
        "card",
        "memory_bytes = 1",
        "memory_bytes = 17179869185",
        "card:8: memory_bytes",
        "page table",
    );
    assert_refused(
        "card",
        "core_cycles = 49",
        "core_cycles = 15",
        "card:12: core_cycles",
        "16 cycles",
    );
    assert_refused("card", "core_cycles = 49", "core_cycles = -49", "card:12: core_cycles", "-49");
    assert_refused("card", "xcvu9p", "", "card:2: part", "header");
    assert_refused("card", "count = 2", "count = 33", "card:15: regions[0].count", "at most 32");
    assert_refused("card", "count = 2", "count = 0", "card:15: regions[0].count", "0 is not");
    assert_refused("card", "lut = 1_000", "lut = 0", "card:17: regions[0].area", "LUTs");
    assert_refused(
        "card",
        "1_000_000\n",
        "16_777_217\n",
        "card:18: regions[0].bitstream_max_bytes",
        "16777216",
    );
    let again =
        &CARD[CARD.find("[[regions]]").expect("there")..].replace("count = 2", "count = 31");
    assert_refused("card", "", again, "card:20: regions[1].count", "30 are left");
    let none = changed("card", &CARD[CARD.find("[[regions]]").expect("there")..], "regions = []\n");
    assert_eq!(none.expect_err("no regions").key, "regions");
}

#[test]
fn two_profiles_of_one_model_are_refused() {
    let card = File { name: "a", text: CARD };
    let again = File { name: "b", text: CARD };
    let error = Catalogue::parse(&Files { cards: &[card, again], ..BUILTIN }).expect_err("twice");
    assert_eq!(error.to_string(), "b:1: model: test is a duplicate; ids are unique");
}

#[test]
fn bad_nts_are_refused() {
    assert_refused("nt", "", NT, "nt:11: nt-types[1].id", "nat is a duplicate");
    assert_refused("nt", "600", "1_001", "nt:6: nt-types[0].area", "no region of any card");
    assert_refused("nt", "600", "0", "nt:6: nt-types[0].area", "LUTs");
    assert_refused(
        "nt",
        "1_000_000",
        "0",
        "nt:4: nt-types[0].bandwidth_max_bps",
        "0 is not allowed",
    );
    assert_refused(
        "nt",
        "1_000_000",
        "1_500",
        "nt:4: nt-types[0].bandwidth_max_bps",
        "whole kbit/s",
    );
    assert_refused("nt", "= 10\n", "= 65_536\n", "nt:5: nt-types[0].latency_cycles", "65535");
    assert_refused("nt", "= 10\n", "= -10\n", "nt:5: latency_cycles", "`-10`");
    assert_refused("nt", "\"nat\"", "\"acme.nat\"", "nt:2: nt-types[0].id", "belongs to a tenant");
    let long = format!("description = \"{}\"", "x".repeat(1_025));
    assert_refused("nt", "description = \"\"", &long, "nt:9: nt-types[0].description", "1024");
}

#[test]
fn two_nts_with_one_code_are_refused() {
    // A code has 32 bits: among 150,000 ids two meet with a probability of 93 %, among 400,000 they do.
    let mut seen = std::collections::BTreeMap::new();
    let (a, b) = (0..400_000)
        .find_map(|i| {
            let id = NtTypeId::new(&format!("n{i}")).expect("valid");
            seen.insert(id.code(), i).map(|other| (other, i))
        })
        .expect("two ids with one code");
    let text = |i: i32| NT.replace("\"nat\"", &format!("\"n{i}\""));
    let nts = format!("{}{}", text(a), text(b));
    let files = Files { nt_types: File { name: "nt", text: &nts }, ..BUILTIN };
    let error = Catalogue::parse(&files).expect_err("one code").to_string();
    assert!(error.starts_with("nt:11: nt-types[1].id: "), "{error}");
    assert!(error.contains(&format!("n{b} and n{a} have the same code 0x")), "{error}");
}

#[test]
fn bad_chains_are_refused() {
    assert_refused("chain", "", CHAIN, "chain:7: chains[1].id", "one is a duplicate");
    assert_refused(
        "chain",
        "[\"nat\"]",
        "[\"nat\",\n\"nut\"]",
        "chain:4: chains[0].nts[1]",
        "NT type nut",
    );
    assert_refused("chain", "[\"nat\"]", "[]", "chain:3: chains[0].nts", "1 to 8 NTs");
    let nine = format!("[{}]", ["\"nat\""; 9].join(", "));
    assert_refused("chain", "[\"nat\"]", &nine, "chain:3: chains[0].nts", "a list of 9");
    let two = "[\"nat\", \"nat\"]";
    assert_refused("chain", "[\"nat\"]", two, "chain:3: chains[0].nts", "the NTs need 1200 LUT");
    assert_refused("chain", "known-nt", "user-nt", "chain:3: chains[0].nts", "no user-nt region");
    assert_refused("chain", "[\"test\"]", "[]", "chain:5: chains[0].card_models", "name a card");
    assert_refused(
        "chain",
        "\"test\"",
        "\"tset\"",
        "chain:5: chains[0].card_models[0]",
        "tset has no",
    );
    assert_refused(
        "chain",
        "\"test\"",
        "\"test\", \"test\"",
        "chain:2: chains[0].id",
        "one-test is a duplicate",
    );
    assert_refused(
        "chain",
        "\"one\"",
        "\"acme.one\"",
        "chain:2: chains[0].id",
        "belongs to a tenant",
    );
    let long = format!("\"{}\"", "a".repeat(60));
    assert_refused("chain", "\"one\"", &long, "chain:2: chains[0].id", "is not a bitstream id");
}

#[test]
fn bad_dags_are_refused() {
    assert_refused("dag", "weight = 1", "weight = 0", "dag:3: tenants[0].weight", "1 to 1000");
    assert_refused(
        "dag",
        "tenant = \"acme\"",
        "tenant = \"bcme\"",
        "dag:5: dags[0].tenant",
        "bcme",
    );
    assert_refused("dag", "1_000_000", "0", "dag:7: dags[0].bandwidth_bps", "0 bit/s");
    assert_refused("dag", "[\"nat\"]", "[\"nut\"]", "dag:8: dags[0].chain[0]", "NT type nut");
    assert_refused("dag", "[\"nat\"]", "[]", "dag:8: dags[0].chain", "no nodes");
    assert_refused("dag", "chain = [\"nat\"]\n", "", "dag:6: dags[0].id", "either `chain`");
    let again = &DAG[DAG.find("[[dags]]").expect("there")..];
    assert_refused("dag", "", again, "dag:12: dags[1].id", "tenants/acme/dags/web");
    let graph = |edges: &str| {
        format!(
            "nodes = [{{ id = \"a\", nt = \"nat\" }}, {{ id = \"b\", nt = \"nat\" }}]\nedges = [{edges}]"
        )
    };
    let ok = graph("{ from = \"a\", to = \"b\" }");
    assert!(changed("dag", "chain = [\"nat\"]", &ok).is_ok());
    let cycle = graph("{ from = \"a\", to = \"b\" }, { from = \"b\", to = \"a\" }");
    assert_refused("dag", "chain = [\"nat\"]", &cycle, "dag:9: dags[0].edges", "cycle");
    let unknown = graph("{ from = \"a\", to = \"x\" }");
    assert_refused("dag", "chain = [\"nat\"]", &unknown, "dag:9: dags[0].edges[0]", "names node x");
    assert_refused(
        "dag",
        "chain = [\"nat\"]",
        &graph(""),
        "dag:8: dags[0].nodes",
        "no predecessor",
    );
}

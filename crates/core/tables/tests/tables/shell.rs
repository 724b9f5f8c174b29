//! The package with which the shell in SystemVerilog is written (`bitstreams/shell/rtl/snic_map_pkg.sv`), made from this
//! crate and held against it. `SNIC_WRITE=1 cargo test -p snic-tables --test tables shell::` writes it.

use std::fmt::Write as _;
use std::path::Path;

use snic_tables::registers::*;
use snic_tables::{
    BANK_WORDS, ChainRow, ClassifierRow, CreditReservation, CreditRow, DagRow, DropCause, Guest,
    InstanceRow, PageRow, RateLimiterRow, RegionRow, RowCodec, StageRow, Steering, Table,
};

/// Bits of a byte address on the control interface: `ADDRESS_BITS` of `bitstreams/flow/rtl/snic_control.v`.
const ADDRESS_BITS: u32 = 22;
/// Windows with one page behind the other, and the bytes of a page.
const PAGED: [(Address, Address, Address); 2] = [
    (REGIONS, REGIONS + 32 * REGION_PAGE, REGION_PAGE),
    (STATES, STATES + 32 * STATE_PAGE, STATE_PAGE),
];

/// Constants with their names.
macro_rules! named {
    ($($name:ident)*) => { [$((stringify!($name), $name)),*] };
}

fn addresses() -> Vec<(&'static str, Address)> {
    let control = named![
        LOAD_REGION LOAD_BUFFER_LOW LOAD_BUFFER_HIGH LOAD_BYTES LOAD_START LOAD_STATUS LOAD_PROGRESS LOAD_ERROR
        BULK_BUFFER_LOW BULK_BUFFER_HIGH BULK_BYTES BULK_START BULK_STATUS MAGIC LAYOUT CAPABILITIES REGION_COUNT
        IDCODE BOOT_ID LINK_COUNT TABLE_VERSION COMMIT ABORT COMMIT_STATUS COMMIT_WAITS CLOCK_CYCLES PACKETS_IN PACKETS_OUT
        DROPS DAG_LOAD
    ];
    let windows = named![
        REGIONS REGION_PAGE REGION_STATUS REGION_CONTROL REGION_IN_FLIGHT REGION_DIGEST REGION_DIGEST_NEXT REGION_NTS
        REGION_IDENTITY
        ACTIVE_BANK SHADOW_BANK BANK_BYTES
    ];
    control.into_iter().chain(windows).collect()
}

fn values() -> Vec<(&'static str, u32)> {
    let all = named![
        LOAD_IDLE LOAD_BUSY LOAD_DONE LOAD_FAILED LOAD_ERROR_PACKETS LOAD_ERROR_REGION LOAD_ERROR_BUSY
        LOAD_ERROR_IDENTITY BULK_TO_TABLES BULK_TO_HOST BULK_IDLE BULK_BUSY BULK_DONE BULK_REFUSED BULK_BYTES_MAX
        MAGIC_VALUE LAYOUT_VALUE CAPABILITY_BULK CAPABILITY_CLOCK COMMIT_IDLE COMMIT_BUSY COMMIT_REFUSED COMMIT_NO_LINK
        CAPABILITY_LINKS REGION_EMPTY REGION_LOADING REGION_LOADED REGION_BROKEN REGION_DECOUPLE REGION_RESET
    ];
    all.into_iter().collect()
}

/// Runs of registers between two addresses, by [`is_register`]: first byte and the byte behind the last.
fn runs(from: Address, to: Address) -> Vec<(Address, Address)> {
    let mut runs: Vec<(Address, Address)> = Vec::new();
    for at in (from..to).step_by(4).filter(|at| is_register(*at)) {
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end = at + 4,
            _ => runs.push((at, at + 4)),
        }
    }
    runs
}

fn is_in(at: &str, runs: &[(Address, Address)], bits: u32) -> String {
    let one = |&(first, end): &(Address, Address)| {
        let (low, last) = (format!("{at} >= {bits}'h{first:x}"), end - 1);
        if runs.len() == 1 && first > 0 && last < (1 << bits) - 1 {
            return format!("{low} && {at} <= {bits}'h{last:x}");
        }
        match (first == 0, last == (1 << bits) - 1) {
            (true, true) => "1'b1".to_owned(),
            (true, false) => format!("{at} <= {bits}'h{last:x}"),
            (false, true) => low,
            (false, false) => format!("({low} && {at} <= {bits}'h{last:x})"),
        }
    };
    runs.iter().map(one).collect::<Vec<_>>().join("\n            || ")
}

/// The function that says whether the map has a register at an address.
fn decoder(text: &mut String) {
    text.push_str(
        "\n    // Whether the map has a register at this address.\n    \
         function automatic logic is_register(input address_t at);\n        logic known;\n        known = 1'b0;\n",
    );
    let mut from = 0;
    for (first, end, page) in PAGED {
        plain(text, from, first);
        let bits = page.ilog2();
        let of_page: Vec<_> = runs(first, first + page)
            .iter()
            .map(|(low, high)| (low - first, high - first))
            .collect();
        let last = end - 1;
        let inside = is_in(&format!("at[{}:0]", bits - 1), &of_page, bits);
        let _ = writeln!(
            text,
            "        if (at >= {ADDRESS_BITS}'h{first:x} && at <= {ADDRESS_BITS}'h{last:x})\n            known = {inside};",
        );
        from = end;
    }
    plain(text, from, 1 << ADDRESS_BITS);
    text.push_str("        return known && at[1:0] == 2'd0;\n    endfunction\n");
}

fn plain(text: &mut String, from: Address, to: Address) {
    let runs = runs(from, to);
    if !runs.is_empty() {
        let inside = is_in("at", &runs, ADDRESS_BITS);
        let _ = writeln!(text, "        if ({inside})\n            known = 1'b1;");
    }
}

/// Where a column lies: the bits that differ between a row with all of its bits set and one with none.
fn column<R: RowCodec>(text: &mut String, name: &str, without: &R, with: &R) {
    let encode = |row: &R| {
        let mut words = vec![0; R::TABLE.row_words()];
        row.encode(&mut words);
        words
    };
    let (none, all) = (encode(without), encode(with));
    let places: Vec<(u32, u32)> = (0_u32..)
        .zip(none.iter().zip(&all))
        .filter(|(_, (none, all))| none != all)
        .map(|(word, (none, all))| (word, none ^ all))
        .collect();
    let [(word, mask)] = places[..] else { panic!("{name} is not in one word: {places:x?}") };
    let (low, bits) = (mask.trailing_zeros(), mask.count_ones());
    assert_eq!(mask >> low, u32::MAX >> (32 - bits), "{name} has a gap: {mask:#x}");
    let low = 32 * word + low;
    let _ = writeln!(text, "    localparam int unsigned {name}_LOW = {low};");
    let _ = writeln!(text, "    localparam int unsigned {name}_BITS = {bits};");
}

/// Columns that a data path reads at each packet.
fn columns(text: &mut String) {
    let dag = DagRow {
        tenant: 0,
        uid: 0,
        first_stage: 0,
        stages: 0,
        rate_limiter: 0,
        payload: false,
        configuration: 0,
        guest: None,
    };
    column(text, "DAG_TENANT", &dag, &DagRow { tenant: u16::MAX, ..dag });
    column(text, "DAG_UID", &dag, &DagRow { uid: u32::MAX, ..dag });
    column(text, "DAG_FIRST_STAGE", &dag, &DagRow { first_stage: u16::MAX, ..dag });
    column(text, "DAG_STAGES", &dag, &DagRow { stages: u16::MAX, ..dag });
    column(text, "DAG_RATE_LIMITER", &dag, &DagRow { rate_limiter: u16::MAX, ..dag });
    column(text, "DAG_PAYLOAD", &dag, &DagRow { payload: true, ..dag });
    column(text, "DAG_CONFIGURATION", &dag, &DagRow { configuration: u32::MAX, ..dag });
    let guest = |link, home_uid| DagRow { guest: Some(Guest { link, home_uid }), ..dag };
    column(text, "DAG_IS_GUEST", &dag, &guest(0, 0));
    column(text, "DAG_LINK", &guest(0, 0), &guest(u8::MAX, 0));
    column(text, "DAG_HOME_UID", &guest(0, 0), &guest(0, u32::MAX));
    let stage = StageRow { chains: [0; 4], join_mask: 0, next: 0, last: false };
    // All ones would be none.
    let first = |first| StageRow { chains: [first, 0, 0, 0], ..stage };
    column(text, "STAGE_CHAIN_FIRST", &first(0x00ff), &first(0xff00));
    column(text, "STAGE_JOIN_MASK", &stage, &StageRow { join_mask: u8::MAX, ..stage });
    column(text, "STAGE_NEXT", &stage, &StageRow { next: u16::MAX, ..stage });
    column(text, "STAGE_LAST", &stage, &StageRow { last: true, ..stage });
    let chain = ChainRow { first_instance: 0, instances: 0, steering: Steering::RoundRobin };
    column(text, "CHAIN_FIRST", &chain, &ChainRow { first_instance: u16::MAX, ..chain });
    column(text, "CHAIN_INSTANCES", &chain, &ChainRow { instances: u16::MAX, ..chain });
    column(text, "CHAIN_BY_FLOW", &chain, &ChainRow { steering: Steering::ByFlow, ..chain });
    column(text, "CHAIN_BY_LOAD", &chain, &ChainRow { steering: Steering::LeastLoaded, ..chain });
    let instance = InstanceRow::in_region(0, 0, 0);
    column(text, "INSTANCE_REGION", &instance, &InstanceRow::in_region(u8::MAX, 0, 0));
    column(text, "INSTANCE_USED", &instance, &InstanceRow::in_region(0, u8::MAX, 0));
    let away = InstanceRow::on_link(0, 0, 0);
    column(text, "INSTANCE_ON_LINK", &instance, &away);
    column(text, "INSTANCE_LINK", &away, &InstanceRow::on_link(u8::MAX, 0, 0));
    column(text, "INSTANCE_ENTRY", &away, &InstanceRow::on_link(0, u16::MAX, 0));
    column(text, "INSTANCE_WEIGHT", &instance, &InstanceRow { weight_kbps: u32::MAX, ..instance });
    let region = RegionRow { user_nt: false, bitstream_tag: 0, nts: [0; 8] };
    column(text, "REGION_TAG", &region, &RegionRow { bitstream_tag: u32::MAX, ..region });
    let credit = CreditRow { initial: [0; 8], reservation: CreditReservation::Chain };
    let mut first = credit;
    first.initial[0] = 127;
    column(text, "CREDIT_FIRST", &credit, &first);
    let limits = RateLimiterRow {
        rate_kbps: 0,
        burst_bytes: 0,
        promised_kbps: 0,
        packet_bytes: 0,
        weight: 0,
    };
    column(text, "LIMITER_RATE", &limits, &RateLimiterRow { rate_kbps: u32::MAX, ..limits });
    column(text, "LIMITER_BURST", &limits, &RateLimiterRow { burst_bytes: u32::MAX, ..limits });
    column(
        text,
        "LIMITER_PROMISED",
        &limits,
        &RateLimiterRow { promised_kbps: u32::MAX, ..limits },
    );
    column(text, "LIMITER_PACKET", &limits, &RateLimiterRow { packet_bytes: u16::MAX, ..limits });
    column(text, "LIMITER_WEIGHT", &limits, &RateLimiterRow { weight: u16::MAX, ..limits });
}

/// A table's column of numbers, by table.
fn table_numbers(text: &mut String, name: &str, number: impl Fn(Table) -> usize) {
    let numbers: Vec<_> = Table::ALL
        .iter()
        .map(|table| format!("            {}: return {};", *table as u32, number(*table)))
        .collect();
    let _ = write!(
        text,
        "\n    function automatic int unsigned {name}(input int unsigned table_number);\n        \
         case (table_number)\n{}\n            default: return 0;\n        endcase\n    endfunction\n",
        numbers.join("\n"),
    );
}

/// A name of words that begin with capitals, as constants have it.
fn upper_snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_uppercase());
    }
    text
}

fn package() -> String {
    let mut text = "// The register map and the tables for the shell: numbers only.\n\
        // Made from the crate snic-tables, whose test `shell` holds it against that and writes it; do not edit.\n\n\
        // A part of the shell needs a part of the map.\n\
        /* verilator lint_off UNUSEDPARAM */\n\
        package snic_map_pkg;\n"
        .to_owned();
    let _ = writeln!(text, "    localparam int unsigned ADDRESS_BITS = {ADDRESS_BITS};");
    text.push_str(
        "    typedef logic [ADDRESS_BITS-1:0] address_t;\n    typedef logic [31:0] word_t;\n\n",
    );
    text.push_str("    // Byte addresses, and places in pages.\n");
    for (name, at) in addresses() {
        let _ = writeln!(text, "    localparam address_t {name} = {ADDRESS_BITS}'h{at:x};");
    }
    text.push_str("\n    // Values.\n");
    for (name, value) in values() {
        let _ = writeln!(text, "    localparam word_t {name} = 32'h{value:x};");
    }
    text.push_str("\n    // Causes of drops, in the order of their counters.\n");
    for cause in DropCause::ALL {
        let name = upper_snake(&format!("{cause:?}"));
        let _ = writeln!(text, "    localparam int unsigned DROP_{name} = {};", cause as u32);
    }
    let _ = writeln!(text, "    localparam int unsigned DROP_CAUSES = {};", DropCause::ALL.len());
    text.push_str("\n    // Tables, in the order in a bank.\n");
    for table in Table::ALL {
        let name = format!("{table:?}").to_uppercase();
        let _ = writeln!(text, "    localparam int unsigned TABLE_{name} = {};", table as u32);
    }
    let _ = writeln!(text, "    localparam int unsigned TABLES = {};", Table::ALL.len());
    let _ = writeln!(text, "    localparam int unsigned BANK_WORDS = {BANK_WORDS};");
    table_numbers(&mut text, "table_offset", Table::offset);
    table_numbers(&mut text, "table_rows", Table::rows);
    table_numbers(&mut text, "table_row_words", Table::row_words);
    text.push_str("\n    // Words of a row that have a column: a bit for each.");
    table_numbers(&mut text, "table_kept", |table| table.kept_words().into());
    text.push_str("\n    // Columns of a row: the lowest bit, counted from bit 0 of word 0, and the number of bits.\n");
    columns(&mut text);
    decoder(&mut text);
    text.push_str("endpackage\n/* verilator lint_on UNUSEDPARAM */\n");
    text
}

#[test]
fn the_package_of_the_shell_is_made_from_this_crate() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bitstreams/shell/rtl/snic_map_pkg.sv");
    let package = package();
    if std::env::var_os("SNIC_WRITE").is_some() {
        std::fs::write(&path, &package).expect("the folder is there");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(there, package, "SNIC_WRITE=1 cargo test -p snic-tables --test tables shell::");
}

#[test]
fn the_pages_of_a_window_are_all_the_same() {
    for (first, end, page) in PAGED {
        let of_first = runs(first, first + page);
        for at in (first..end).step_by(page as usize) {
            let moved: Vec<_> =
                runs(at, at + page).iter().map(|(a, b)| (a - at + first, b - at + first)).collect();
            assert_eq!(moved, of_first, "the page at {at:#x}");
        }
    }
}

/// Rows with as many bits set as their columns have.
#[test]
fn kept_words_are_those_that_columns_are_in() {
    fn words<R: RowCodec>(row: &R) -> (Table, u16) {
        let mut words = vec![0; R::TABLE.row_words()];
        row.encode(&mut words);
        let used = words.iter().enumerate().filter(|(_, word)| **word != 0);
        (R::TABLE, used.map(|(at, _)| 1 << at).sum())
    }
    let all = u16::MAX;
    let ones = (u32::MAX, u32::MAX);
    let classifier = ClassifierRow {
        dag_uid: u32::MAX,
        priority: all,
        virtual_function: Some(all),
        vni: Some(u32::MAX),
        source: ones,
        destination: ones,
        protocol: Some(u8::MAX),
        source_port: Some(all),
        destination_port: Some(all),
        vlan: Some(all),
    };
    let dag = DagRow {
        tenant: all,
        uid: u32::MAX,
        first_stage: all,
        stages: all,
        rate_limiter: all,
        payload: true,
        configuration: u32::MAX,
        guest: Some(Guest { link: u8::MAX, home_uid: u32::MAX }),
    };
    let limits = RateLimiterRow {
        rate_kbps: u32::MAX,
        burst_bytes: u32::MAX,
        promised_kbps: u32::MAX,
        packet_bytes: all,
        weight: all,
    };
    let guard = snic_tables::GuardRow {
        macs: [Some([0xff; 6]); 4],
        vlans: Some([all; 12]),
        group_frames_per_second: Some(u32::MAX),
    };
    let rows = [
        words(&classifier),
        words(&dag),
        words(&StageRow { chains: [all; 4], join_mask: 15, next: all, last: true }),
        words(&ChainRow { first_instance: all, instances: all, steering: Steering::LeastLoaded }),
        words(&InstanceRow::in_region(255, 255, u32::MAX)),
        words(&RegionRow { user_nt: true, bitstream_tag: u32::MAX, nts: [u32::MAX; 8] }),
        words(&CreditRow { initial: [127; 8], reservation: CreditReservation::Prefix }),
        words(&limits),
        words(&PageRow {
            tenant: all,
            nt: u32::MAX,
            virtual_page: all,
            physical_page: all,
            rwx: 7,
        }),
        words(&guard),
    ];
    for (table, used) in rows {
        assert_eq!(table.kept_words(), used, "{table:?}: {used:#x}");
    }
    assert_eq!(rows.map(|(table, _)| table), Table::ALL);
}

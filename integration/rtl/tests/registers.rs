//! Everything that a host can do to the shell's ports, and the shell to those of the memory.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::CardModel;
use snic_integration_rtl::{Response, RtlCard, RtlProcess, Shell, is_there};
use snic_ports::card::{Buffers, Registers};
use snic_tables::registers::*;
use snic_tables::{BANK_WORDS, RowKey, Table};

use crate::conformance::card;

/// A process that has just been reset, and clears its tables; `None` where there is no Verilator.
fn process(seed: u32) -> Option<RtlProcess> {
    let program = is_there().then(|| Shell::of_repository().program().expect("it is built"))?;
    Some(RtlProcess::start(&program, seed).expect("it starts"))
}

fn cycles(card: &mut RtlCard) -> u64 {
    card.process().step(0).expect("it is there").0
}

fn row(table: Table, row: u16) -> u32 {
    shadow_row(RowKey { table, row }).expect("the table has the row")
}

/// On both sides of each edge of the map, and at addresses anywhere.
#[test]
fn registers_answer_where_the_map_has_them_and_nowhere_else() {
    let Some(mut process) = process(1) else { return };
    let words = (0..1 << 22).step_by(4);
    let edges = words.filter(|at| is_register(*at) != is_register(at.wrapping_sub(4)));
    let mut places: Vec<u32> =
        edges.flat_map(|at| [at.saturating_sub(4), at, at + 1, at + 2]).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    places.extend((0..2_000).map(|_| rng.random_range(0..1 << 22)));
    places.extend((0..2_000).map(|_| rng.random_range(0..END) & !3));
    for at in places {
        let mut word = [0];
        let read = process.read(at, &mut word).expect("it is there");
        if is_register(at) {
            assert_eq!(read, (Response::Okay, 1), "{at:#x}");
        } else {
            assert_eq!(read, (Response::DecodeError, 0), "{at:#x}");
            let written = process.write(at, &[1]).expect("it is there");
            assert_eq!(written, (Response::DecodeError, 0), "{at:#x}");
        }
    }
}

#[test]
fn a_part_of_a_word_is_not_written() {
    let Some(mut card) = card(2) else { return };
    let at = row(Table::RateLimiter, 5);
    for (place, before) in [(at, 0x1111_1111), (LOAD_BYTES, 0x2222_2222)] {
        card.write(place, before).expect("there");
        for strobes in 0..15 {
            let said = card.process().write_bytes(place, strobes, u32::MAX).expect("it is there");
            assert_eq!(said, Response::SlaveError, "{strobes:#b}");
            assert_eq!(card.read(place), Ok(before), "{strobes:#b}");
        }
        assert_eq!(card.process().write_bytes(place, 15, 7).expect("there"), Response::Okay);
        assert_eq!(card.read(place), Ok(7));
    }
    let said = card.process().write_bytes(COMMIT, 7, 1).expect("it is there");
    assert_eq!((said, card.read(TABLE_VERSION)), (Response::SlaveError, Ok(0)));
}

#[test]
fn a_write_and_a_read_at_once_are_both_done() {
    let Some(mut card) = card(3) else { return };
    let at = row(Table::Page, 77);
    for value in 1..200 {
        let said = card.process().write_and_read((at, value), MAGIC).expect("it is there");
        assert_eq!(said, (Response::Okay, Response::Okay, MAGIC_VALUE));
        assert_eq!(card.read(at), Ok(value));
        let said = card.process().write_and_read((MAGIC, 0), at).expect("it is there");
        assert_eq!(said, (Response::Okay, Response::Okay, value));
    }
}

/// Until its tables are clear the card is busy, shows zeros whatever its memories began with, and takes no rows.
#[test]
fn a_card_that_has_just_got_power_is_busy_and_then_empty() {
    for seed in 1..4 {
        let Some(mut process) = process(seed) else { return };
        let mut word = [0];
        let mut read = |process: &mut RtlProcess, at| {
            process.read(at, &mut word).expect("it is there");
            word[0]
        };
        for number in [0, 1, 500] {
            process.write(row(Table::Dag, number), &[5, 5]).expect("it is there");
            for bank in [ACTIVE_BANK, SHADOW_BANK] {
                assert_eq!(read(&mut process, row(Table::Dag, number) - SHADOW_BANK + bank), 0);
                assert_eq!(read(&mut process, bank), 0);
            }
        }
        process.write(COMMIT, &[1]).expect("it is there");
        assert_eq!(read(&mut process, COMMIT_STATUS), COMMIT_BUSY);
        assert_eq!(read(&mut process, TABLE_VERSION), 0);
        let mut cleared = 0;
        while read(&mut process, COMMIT_STATUS) == COMMIT_BUSY {
            cleared = process.step(16).expect("it is there").0;
        }
        // Both banks of the longest table, a row a cycle.
        assert!((16_384..16_500).contains(&cleared), "{cleared} cycles");
        assert_eq!(read(&mut process, COMMIT_STATUS), COMMIT_REFUSED, "the commit in between");
        for at in (SHADOW_BANK..END).step_by(4 * 61) {
            assert_eq!(read(&mut process, at), 0, "{at:#x}");
        }
    }
}

#[test]
fn a_commit_takes_as_long_as_its_rows() {
    let Some(mut card) = card(4) else { return };
    for (rows, version) in [(0_u32, 1), (1, 2), (1_024, 3)] {
        let words: Vec<u32> = (0..4 * rows).map(|word| word + version).collect();
        card.write_block(row(Table::RateLimiter, 0), &words).expect("there");
        card.write(COMMIT, version).expect("there");
        let began = cycles(&mut card);
        card.rest().expect("it ends");
        let took = cycles(&mut card) - began;
        println!("a commit of {rows} rows: {took} cycles, with the wait for it");
        // The page table has 256 words of marks; a row takes a cycle.
        assert!(took <= 300 + u64::from(rows), "{rows} rows took {took} cycles");
        assert!(took + 40 >= u64::from(rows).max(256), "{rows} rows took {took} cycles");
    }
}

/// Rows that a transfer writes while the commit comes are in it or are ignored, in their order, and no bank has others.
#[test]
fn a_transfer_under_a_commit_tears_nothing() {
    for seed in 1..6_u32 {
        let Some(mut card) = card(seed) else { return };
        let rows = 1_000;
        let mut records = vec![row(Table::RateLimiter, 0), 4 * rows];
        records.extend((0..4 * rows).map(|word| 0x8000_0000 | word));
        let bytes: Vec<u8> = records.iter().flat_map(|word| word.to_le_bytes()).collect();
        card.process().write_memory(0, &bytes).expect("it is there");
        card.write(BULK_BUFFER_LOW, 0).expect("there");
        card.write(BULK_BYTES, bytes.len() as u32).expect("there");
        card.write(BULK_START, BULK_TO_TABLES).expect("there");
        card.process().step(u64::from(300 * seed)).expect("it is there");
        card.write(COMMIT, 1).expect("there");
        card.rest().expect("it ends");
        while card.read(BULK_STATUS) == Ok(BULK_BUSY) {}
        assert_eq!(card.read(BULK_STATUS), Ok(BULK_DONE));
        let mut active = vec![0; 4 * rows as usize];
        let at = row(Table::RateLimiter, 0);
        card.read_block(at - SHADOW_BANK + ACTIVE_BANK, &mut active).expect("there");
        let written = active.iter().take_while(|word| **word != 0).count();
        assert!(written > 100 && active[written..].iter().all(|word| *word == 0), "{written}");
        assert!(active[..written].iter().zip(0..).all(|(word, at)| *word == 0x8000_0000 | at));
        // What came behind the end of the commit waits for the next.
        card.write(ABORT, 1).expect("there");
        card.rest().expect("it ends");
        let mut shadow = vec![0; 4 * rows as usize];
        card.read_block(at, &mut shadow).expect("there");
        assert_eq!(shadow, active);
    }
}

/// Reads hold the copying of rows up, and what is copied is what it would be without them.
#[test]
fn rows_that_are_read_while_they_are_copied_are_copied_all_the_same() {
    let Some(mut card) = card(11) else { return };
    let (at, count) = (row(Table::RateLimiter, 0), 4 * Table::RateLimiter.rows() as u32);
    let written: Vec<u32> = (0..count).map(|word| 0xabc0_0000 | word).collect();
    card.write_block(at, &written).expect("there");
    let mut records = vec![at - SHADOW_BANK + ACTIVE_BANK, count];
    records.resize(2 + count as usize, 0);
    let bytes: Vec<u8> = records.iter().flat_map(|word| word.to_le_bytes()).collect();
    card.process().write_memory(0, &bytes).expect("it is there");
    card.write(BULK_BYTES, bytes.len() as u32).expect("there");
    card.write(BULK_START, BULK_TO_HOST).expect("there");
    card.write(COMMIT, 1).expect("there");
    let mut reads = 0;
    while card.read(COMMIT_STATUS) == Ok(COMMIT_BUSY) {
        card.read(at + 4 * (reads * 5 % count)).expect("there");
        reads += 1;
    }
    assert!(reads > 50, "{reads} reads");
    while card.read(BULK_STATUS) == Ok(BULK_BUSY) {}
    let mut words = vec![0; count as usize];
    for bank in [ACTIVE_BANK, SHADOW_BANK] {
        card.read_block(at - SHADOW_BANK + bank, &mut words).expect("there");
        assert_eq!(words, written, "{bank:#x}");
    }
}

#[test]
fn a_transfer_moves_a_word_a_cycle() {
    let Some(mut card) = card(5) else { return };
    for (bank, what) in [(SHADOW_BANK, BULK_TO_TABLES), (ACTIVE_BANK, BULK_TO_HOST)] {
        let mut records = vec![bank, BANK_WORDS as u32];
        records.resize(2 + BANK_WORDS, 0);
        let bytes: Vec<u8> = records.iter().flat_map(|word| word.to_le_bytes()).collect();
        card.process().write_memory(0, &bytes).expect("it is there");
        card.write(BULK_BYTES, bytes.len() as u32).expect("there");
        card.write(BULK_START, what).expect("there");
        // Nobody looks meanwhile; the memory takes up to 40 cycles for a beat, with 16 under way.
        card.process().step(BANK_WORDS as u64 * 101 / 100).expect("it is there");
        assert_eq!(card.read(BULK_STATUS), Ok(BULK_DONE), "{what}");
    }
}

/// The host does not wait for a transfer, nor for its memory.
#[test]
fn accesses_are_short_whatever_is_under_way() {
    let Some(mut card) = card(6) else { return };
    let mut records = vec![ACTIVE_BANK, BANK_WORDS as u32];
    records.resize(2 + BANK_WORDS, 0);
    card.bulk(BULK_TO_HOST, &records).expect("it ends");
    card.write(COMMIT, 1).expect("there");
    card.write(BULK_START, BULK_TO_HOST).expect("there");
    for at in [MAGIC, COMMIT_STATUS, SHADOW_BANK, ACTIVE_BANK + 4, region(3, REGION_CONTROL)] {
        for _ in 0..200 {
            card.read(at).expect("there");
            card.write(at, 0).expect("there");
        }
    }
    assert_eq!(card.read(BULK_STATUS), Ok(BULK_BUSY), "all of this was beside it");
    let longest = card.process().step(0).expect("it is there").1;
    println!("the longest access: {longest} cycles, those that the host waits among them");
    assert!(longest <= 40, "{longest} cycles");
    card.rest().expect("the commit ends beside a transfer that reads the same bank");
}

#[test]
fn a_transfer_that_cannot_be_is_refused_at_once() {
    let Some(mut card) = card(7) else { return };
    let mut ring = |low: u32, bytes: u32| {
        card.write(BULK_BUFFER_LOW, low).expect("there");
        card.write(BULK_BYTES, bytes).expect("there");
        card.write(BULK_START, BULK_TO_HOST).expect("there");
        card.read(BULK_STATUS).expect("there")
    };
    for (low, bytes) in
        [(4, 64), (32, 64), (0, 3), (0, 62), (0, BULK_BYTES_MAX + 4), (0, u32::MAX - 3)]
    {
        assert_eq!(ring(low, bytes), BULK_REFUSED, "{bytes} bytes at {low}");
    }
    assert_eq!(ring(0, 0), BULK_DONE, "nothing is moved");
    card.write(BULK_START, 3).expect("there");
    assert_eq!(card.read(BULK_STATUS), Ok(BULK_DONE), "no such transfer");
}

/// An address without a register ends the transfer; the bytes behind its end are not touched, whatever the length.
#[test]
fn a_transfer_to_the_host_keeps_to_its_buffer() {
    let Some(mut card) = card(8) else { return };
    for words in [1_u32, 13, 14, 15, 16, 29, 30, 31, 46, 200] {
        card.process().write_memory(0, &[0xee; 4_096]).expect("it is there");
        let mut records = vec![MAGIC, 1, 0, ACTIVE_BANK, words];
        records.resize(5 + words as usize, 0xeeee_eeee);
        assert_eq!(card.bulk(BULK_TO_HOST, &records), Ok(BULK_DONE));
        let filled = card.bulk_words(1_024).expect("it is there");
        assert_eq!(filled[2], MAGIC_VALUE);
        let end = records.len();
        assert!(filled[5..end].iter().all(|word| *word == 0), "{words}");
        assert!(filled[end..].iter().all(|word| *word == 0xeeee_eeee), "{words}");
    }
    for wrong in [[LINK_COUNT + 4, 1, 0], [MAGIC + 2, 1, 0], [1 << 22, 1, 0], [END - 4, 2, 0]] {
        let mut records = wrong.to_vec();
        records.extend([0; 4]);
        assert_eq!(card.bulk(BULK_TO_HOST, &records), Ok(BULK_REFUSED), "{wrong:x?}");
    }
    assert_eq!(
        card.bulk(BULK_TO_HOST, &[MAGIC, 1, 0]),
        Ok(BULK_DONE),
        "the next one is none the worse"
    );
    assert_eq!(card.bulk_words(3).expect("it is there")[2], MAGIC_VALUE);
}

/// A second doorbell, and registers that are written meanwhile, change nothing of what is under way.
#[test]
fn a_transfer_is_not_changed_once_it_has_begun() {
    let Some(mut card) = card(9) else { return };
    let at = row(Table::Stage, 0);
    let mut records = vec![at, 8 * 600];
    records.extend(0..8 * 600);
    let bytes: Vec<u8> = records.iter().flat_map(|word| word.to_le_bytes()).collect();
    card.process().write_memory(0, &bytes).expect("it is there");
    card.write(BULK_BUFFER_LOW, 0).expect("there");
    card.write(BULK_BYTES, bytes.len() as u32).expect("there");
    card.write(BULK_START, BULK_TO_TABLES).expect("there");
    card.write(BULK_BUFFER_LOW, 0x10_0000).expect("there");
    card.write(BULK_BYTES, 8).expect("there");
    card.write(BULK_START, BULK_TO_HOST).expect("there");
    assert_eq!(card.read(BULK_STATUS), Ok(BULK_BUSY));
    while card.read(BULK_STATUS) == Ok(BULK_BUSY) {}
    let mut words = vec![0; 8 * 600];
    card.read_block(at, &mut words).expect("there");
    let kept = |word: usize| Table::Stage.kept_words() >> (word % 8) & 1 == 1;
    assert!(
        words.iter().enumerate().all(|(at, word)| *word == if kept(at) { at as u32 } else { 0 })
    );
}

/// Whatever was under way: the card is as after power-up, and works.
#[test]
fn a_reset_leaves_nothing() {
    let Some(mut card) = card(10) else { return };
    let mut records = vec![SHADOW_BANK, 20_000];
    records.extend(0..20_000);
    for delay in [3, 40, 400, 4_000] {
        card.bulk(BULK_TO_TABLES, &records).expect("it ends");
        card.write(BOOT_ID, 77).expect("there");
        card.write(region(3, REGION_CONTROL), REGION_DECOUPLE).expect("there");
        card.write(region(3, REGION_DIGEST_NEXT), 5).expect("there");
        card.write(COMMIT, 1).expect("there");
        card.write(BULK_START, BULK_TO_TABLES).expect("there");
        card.process().step(delay).expect("it is there");
        card.process().reset(3).expect("it is there");
        assert_eq!(card.read(COMMIT_STATUS), Ok(COMMIT_BUSY));
        card.rest().expect("it comes to rest");
        for at in [BOOT_ID, TABLE_VERSION, BULK_STATUS, BULK_BYTES, COMMIT_STATUS] {
            assert_eq!(card.read(at), Ok(0), "{at:#x}");
        }
        for register in [REGION_CONTROL, REGION_DIGEST_NEXT] {
            assert_eq!(card.read(region(3, register)), Ok(0), "{register:#x}");
        }
        let mut words = vec![1; BANK_WORDS];
        for bank in [ACTIVE_BANK, SHADOW_BANK] {
            card.read_block(bank, &mut words).expect("a bank");
            assert!(words.iter().all(|word| *word == 0));
        }
    }
}

/// Buffers and the part of the memory that transfers have are apart.
#[test]
fn a_buffer_is_where_no_transfer_writes() {
    let Some(mut card) = card(1) else { return };
    let staged = card.stage(&[7; 100]).expect("there is room");
    let mut words = vec![0; BANK_WORDS];
    card.read_block(ACTIVE_BANK, &mut words).expect("a bank");
    let mut bytes = [0; 100];
    card.process().read_memory(staged, &mut bytes).expect("it is there");
    assert_eq!(bytes, [7; 100]);
    assert_eq!(CardModel::new("sim-16").as_ref().ok(), Some(snic_ports::card::Card::model(&card)));
}

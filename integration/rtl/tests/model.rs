//! The shell beside the card model: random accesses from seeds, equal answers at rest.
//!
//! Words of rows that have no column are not compared: the shell does not keep them, and the model does.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_bitstream::catalogue;
use snic_card_sim::SimCard;
use snic_domain::CardModel;
use snic_integration_rtl::RtlCard;
use snic_ports::card::{Address, Buffers, CardError, Registers};
use snic_tables::registers::*;
use snic_tables::{BANK_WORDS, RowKey, Table};

use crate::conformance::card;
use crate::images::{Image, Images};

/// Rounds of a seed; each ends at rest, and with all that may differ compared.
const ROUNDS: usize = 60;

/// Registers that two cards have in common whatever they are: what the other slices bring is left out, and the clock.
const COMMON: [Address; 17] = [
    MAGIC,
    LAYOUT,
    REGION_COUNT,
    IDCODE,
    TABLE_VERSION,
    COMMIT,
    ABORT,
    COMMIT_STATUS,
    COMMIT_WAITS,
    LOAD_REGION,
    LOAD_BUFFER_LOW,
    LOAD_BUFFER_HIGH,
    LOAD_BYTES,
    LOAD_START,
    LOAD_STATUS,
    LOAD_ERROR,
    PACKETS_IN,
];

/// Both cards, and how much of what was tried.
struct Pair {
    rng: ChaCha8Rng,
    shell: RtlCard,
    model: SimCard,
    images: [Image; 3],
    tried: Tried,
}

#[derive(Debug, Default)]
struct Tried {
    rows: usize,
    commits: usize,
    refused: usize,
    aborts: usize,
    while_busy: usize,
    transfers: usize,
    transfers_refused: usize,
    nonsense: usize,
    loads: usize,
    loads_failed: usize,
    loads_reset: usize,
    loads_twice: usize,
    no_link: usize,
}

/// The table of a bank's word, and its place in its row.
fn place_of(word: usize) -> (Table, usize) {
    let holds = |table: &&Table| {
        (table.offset()..table.offset() + table.rows() * table.row_words()).contains(&word)
    };
    let table = *Table::ALL.iter().find(holds).expect("a bank has no gaps");
    (table, (word - table.offset()) % table.row_words())
}

/// Whether the shell keeps a word of a bank.
fn is_kept(word: usize) -> bool {
    let (table, place) = place_of(word);
    table.kept_words() >> place & 1 == 1
}

/// A value for a word of the shadow bank that seldom names a link: the commit of a row with one is refused, until it is written again or
/// there is an abort.
fn seldom_a_link(at: Address, value: u32, is_free: bool) -> u32 {
    if is_free {
        return value;
    }
    match place_of((at - SHADOW_BANK) as usize / 4) {
        (Table::Instance, 0) => value & !(1 << 30),
        (Table::Dag, 3) => value & !(1 << 31),
        _ => value,
    }
}

impl Pair {
    fn new(seed: u32) -> Option<Self> {
        let shell = card(seed)?;
        let model = CardModel::new("sim-16").expect("a label");
        let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
        let profile = catalogue.card(&model).expect("the catalogue has it").clone();
        let model = SimCard::new(profile, 1).expect("a valid profile");
        let rng = ChaCha8Rng::seed_from_u64(seed.into());
        let images = Images::new();
        let images =
            [(0, 3_001), (2, 4_402), (3, 3_603)].map(|(nt, bytes)| images.build(&[nt], bytes));
        Some(Self { rng, shell, model, images, tried: Tried::default() })
    }

    /// The same write of both, and the same answer.
    fn write(&mut self, at: Address, value: u32) {
        let (shell, model) = (self.shell.write(at, value), self.model.write(at, value));
        assert_eq!(shell, model, "writing {value:#x} to {at:#x}");
    }

    fn same(&mut self, at: Address) {
        let (shell, model) = (self.shell.read(at), self.model.read(at));
        assert_eq!(shell, model, "reading {at:#x}, after {:?}", self.tried);
    }

    fn rest(&mut self) {
        self.shell.rest().expect("the shell comes to rest");
        self.model.run_for(50_000);
    }

    /// A row of any table, a few rows more often than others, so that some are written twice.
    fn row(&mut self) -> (Table, Address) {
        let table = *Table::ALL.choose(&mut self.rng).expect("there are tables");
        let last = table.rows() - 1;
        let row = match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..4),
            1 => last - self.rng.random_range(0..4),
            2 => [31, 32, 33][self.rng.random_range(0..3)].min(last),
            _ => self.rng.random_range(0..=last),
        };
        let at = shadow_row(RowKey { table, row: row as u16 }).expect("the table has the row");
        (table, at)
    }

    /// Words of one row, some of them or all.
    fn write_row(&mut self) {
        let (table, at) = self.row();
        self.tried.rows += 1;
        for word in 0..table.row_words() {
            if self.rng.random_ratio(3, 4) {
                let at = at + 4 * word as u32;
                let value = seldom_a_link(at, self.rng.random(), self.rng.random_ratio(1, 40));
                self.write(at, value);
            }
        }
    }

    /// Some rows in one transfer; with one that is not allowed among them the transfer ends there.
    fn write_in_bulk(&mut self) {
        let (mut records, mut status) = (Vec::new(), BULK_DONE);
        for _ in 0..self.rng.random_range(1..20) {
            let (_, at) = self.row();
            let count = self.rng.random_range(0..40).min((SHADOW_BANK + BANK_BYTES - at) / 4);
            records.extend([at, count]);
            for offset in 0..count {
                let is_free = self.rng.random_ratio(1, 40);
                let value = seldom_a_link(at + 4 * offset, self.rng.random(), is_free);
                records.push(value);
                self.model.write(at + 4 * offset, value).expect("it is in the shadow bank");
            }
        }
        if self.rng.random_ratio(1, 3) {
            (status, self.tried.transfers_refused) =
                (BULK_REFUSED, self.tried.transfers_refused + 1);
            let (_, at) = self.row();
            let end = SHADOW_BANK + BANK_BYTES;
            let wrong = [
                vec![at, 3, 1, 2],
                vec![at],
                vec![at + 2, 1, 5],
                vec![ACTIVE_BANK, 1, 5],
                vec![SHADOW_BANK - 4, 2, 5, 5],
                vec![end - 4, 2, 5, 5],
                vec![end, 1, 5],
                vec![COMMIT, 1, 5],
                vec![u32::MAX - 3, 1, 5],
                vec![at, u32::MAX, 5],
                vec![at, 0x4000_0001, 5],
            ];
            let wrong = wrong.choose(&mut self.rng).expect("there are some");
            records.extend(wrong);
            if wrong.len() > 2 && wrong[1] < 3 {
                // What follows is not looked at.
                records.extend([at, 1, 0xdead]);
            }
        }
        self.tried.transfers += 1;
        let said = self.shell.bulk(BULK_TO_TABLES, &records).expect("the transfer ends");
        assert_eq!(said, status, "{records:x?}");
    }

    /// Registers of any kind in one transfer, in records of any length.
    fn read_in_bulk(&mut self) {
        let mut records = Vec::new();
        for _ in 0..self.rng.random_range(1..12) {
            let bank = if self.rng.random() { ACTIVE_BANK } else { SHADOW_BANK };
            let first = self.rng.random_range(0..BANK_WORDS);
            let count = self.rng.random_range(0..60).min(BANK_WORDS - first);
            records.extend([bank + 4 * first as u32, count as u32]);
            records.extend((0..count).map(|_| 0x5a5a_5a5a));
            records.extend([MAGIC, 1, 7]);
        }
        let said = self.shell.bulk(BULK_TO_HOST, &records).expect("the transfer ends");
        assert_eq!(said, BULK_DONE);
        let filled = self.shell.bulk_words(records.len()).expect("the process is there");
        let mut at = 0;
        while at < records.len() {
            let (first, count) = (records[at], records[at + 1] as usize);
            assert_eq!(filled[at..at + 2], records[at..at + 2], "the head at word {at}");
            for (offset, word) in filled[at + 2..at + 2 + count].iter().enumerate() {
                let place = first + 4 * offset as u32;
                let expected = self.model.read(place).expect("the map has it");
                let is_word_of_bank = place >= ACTIVE_BANK;
                let of_bank = (place.wrapping_sub(ACTIVE_BANK) % (SHADOW_BANK - ACTIVE_BANK)) / 4;
                if !is_word_of_bank || is_kept(of_bank as usize) {
                    assert_eq!(*word, expected, "{place:#x} in bulk");
                }
            }
            at += 2 + count;
        }
        self.tried.transfers += 1;
    }

    /// A commit or an abort, and what a host may try while it is busy. The last is at rest.
    fn end_round(&mut self) {
        let version = self.model.read(TABLE_VERSION).expect("the map has it");
        match self.rng.random_range(0..5) {
            0 => {
                let other = [version, version + 2, 0, u32::MAX, self.rng.random()];
                let other = *other.choose(&mut self.rng).expect("five");
                if other != version + 1 {
                    self.tried.refused += 1;
                    self.write(COMMIT, other);
                }
            }
            1 => {
                self.tried.aborts += 1;
                self.write(ABORT, 1);
            }
            2 => self.write(ABORT, 2),
            _ => {
                self.tried.commits += 1;
                self.write(COMMIT, version + 1);
            }
        }
        let is_busy = self.shell.read(COMMIT_STATUS) == Ok(COMMIT_BUSY);
        assert_eq!(is_busy, self.model.read(COMMIT_STATUS) == Ok(COMMIT_BUSY), "{:?}", self.tried);
        if is_busy && self.rng.random() {
            self.tried.while_busy += 1;
            let (_, at) = self.row();
            for value in 0..3 {
                self.write(at, value);
            }
            if self.rng.random() {
                let next = self.model.read(TABLE_VERSION).expect("the map has it") + 1;
                self.write(COMMIT, next);
            } else {
                self.write(ABORT, 1);
            }
        }
        self.rest();
        let is_no_link = self.model.read(COMMIT_STATUS) == Ok(COMMIT_NO_LINK);
        self.tried.no_link += usize::from(is_no_link);
        self.same(COMMIT_STATUS);
    }

    /// A bitstream, mostly a valid one.
    fn file(&mut self) -> Vec<u8> {
        let image = self.images.choose(&mut self.rng).expect("three");
        let bytes = &image.bytes;
        match self.rng.random_range(0..10) {
            0 => image.damaged(),
            1 => vec![0x5a; 2_000],
            2 => bytes[..self.rng.random_range(0..bytes.len())].to_vec(),
            3 => [&bytes[..], &[0x20, 0, 0, 0]].concat(),
            4 => image.between_control_streams(),
            _ => bytes.clone(),
        }
    }

    /// A load of any of four regions, up to its end: whole, refused, ended by a reset, with a second start. What the host
    /// decouples and couples meanwhile is the same on both cards.
    fn load(&mut self) {
        let (number, file) = (self.rng.random_range(0..4), self.file());
        let control = region(number, REGION_CONTROL);
        if self.rng.random_ratio(7, 8) {
            self.write(control, REGION_DECOUPLE);
        }
        for word in 0..8 {
            let value = self.rng.random();
            self.write(region(number, REGION_DIGEST_NEXT) + 4 * word, value);
        }
        let buffers = [
            self.shell.stage(&file).expect("there is room"),
            self.model.stage(&file).expect("there is room"),
        ];
        let cards: [&mut dyn Registers; 2] = [&mut self.shell, &mut self.model];
        for (card, buffer) in cards.into_iter().zip(buffers) {
            card.write(LOAD_BUFFER_LOW, buffer as u32).expect("there");
            card.write(LOAD_BUFFER_HIGH, (buffer >> 32) as u32).expect("there");
        }
        self.write(LOAD_BYTES, file.len() as u32);
        self.write(LOAD_REGION, number.into());
        self.write(LOAD_START, 1);
        self.tried.loads += 1;
        if self.both_are_loading() {
            self.disturb(number);
        }
        self.model.run_for(50_000);
        while self.shell.read(LOAD_STATUS) == Ok(LOAD_BUSY) {}
        for at in [LOAD_STATUS, LOAD_ERROR, region(number, REGION_STATUS), control] {
            self.same(at);
        }
        if self.model.read(LOAD_STATUS) == Ok(LOAD_DONE) {
            self.same(LOAD_PROGRESS);
        } else {
            self.tried.loads_failed += 1;
        }
        let now = self.shell.process().surroundings().expect("it is there").coupled;
        let status = self.model.read(region(number, REGION_STATUS)) == Ok(REGION_LOADED);
        let is_coupled = status && self.model.read(control) == Ok(0);
        assert_eq!(now >> number & 1 == 1, is_coupled, "region {number}, {:?}", self.tried);
        self.shell.release(buffers[0]).expect("it was staged");
        self.model.release(buffers[1]).expect("it was staged");
        // They have other addresses.
        self.write(LOAD_BUFFER_LOW, 0);
        self.write(LOAD_BUFFER_HIGH, 0);
    }

    /// A file that is none ends at once on the one card, and after its time on the other.
    fn both_are_loading(&mut self) -> bool {
        let busy = |card: &mut dyn Registers| card.read(LOAD_STATUS) == Ok(LOAD_BUSY);
        busy(&mut self.shell) && busy(&mut self.model)
    }

    fn disturb(&mut self, number: u8) {
        let control = region(number, REGION_CONTROL);
        match self.rng.random_range(0..6) {
            0 => {
                // Where a file that is none is refused in between, both have failed all the same.
                self.tried.loads_reset += 1;
                self.write(control, REGION_DECOUPLE | REGION_RESET);
            }
            1 => {
                self.tried.loads_twice += 1;
                self.write(LOAD_START, 1);
            }
            2 => self.write(control, 0),
            3 => {
                let other = region((number + 1) % 4, REGION_CONTROL);
                self.write(other, REGION_DECOUPLE | REGION_RESET);
            }
            _ => {}
        }
    }

    fn write_anything(&mut self) {
        let (region_number, value) = (self.rng.random_range(0..32), self.rng.random());
        match self.rng.random_range(0..6) {
            0 => {
                // A region that is not coupled would be loaded by the model.
                let at = [LOAD_BUFFER_LOW, LOAD_BUFFER_HIGH, LOAD_BYTES, LOAD_PROGRESS, LOAD_ERROR];
                let at = *at.choose(&mut self.rng).expect("five");
                self.write(at, value);
            }
            1 => {
                self.write(region(0, REGION_CONTROL), 0);
                let number = if self.rng.random() { 0 } else { value | 32 };
                self.write(LOAD_REGION, number);
                self.write(LOAD_START, 1);
            }
            2 => self.write(region(region_number, REGION_CONTROL), value),
            3 => {
                let word = 4 * self.rng.random_range(0..8);
                self.write(region(region_number, REGION_DIGEST_NEXT) + word, value);
            }
            4 => {
                let at = [MAGIC, IDCODE, TABLE_VERSION, COMMIT_STATUS, COMMIT_WAITS, PACKETS_IN];
                let at = *at.choose(&mut self.rng).expect("six");
                self.write(at, value);
            }
            _ => self.write(ACTIVE_BANK + ((value % BANK_BYTES) & !3), value),
        }
    }

    /// An address without a register, on any side of one.
    fn nonsense(&mut self) {
        let near = [MAGIC, BOOT_ID, LOAD_ERROR, SHADOW_BANK, ACTIVE_BANK, END, DAG_LOAD, REGIONS];
        let in_a_page = region(1, REGION_DIGEST_NEXT) + 16;
        let near = if self.rng.random() { &near[..] } else { &[in_a_page] };
        let near = *near.choose(&mut self.rng).expect("some");
        let at = near.wrapping_add(self.rng.random_range(0..64)).wrapping_sub(32);
        if is_register(at) {
            return;
        }
        self.tried.nonsense += 1;
        assert_eq!(self.shell.read(at), Err(CardError::NoRegister(at)));
        self.write(at, 1);
    }

    fn compare(&mut self) {
        for at in COMMON {
            self.same(at);
        }
        for number in [0, 1, 2, 3, 15, 16, 31] {
            for register in (0..REGION_LOAD).step_by(4).map(|at| region(number, at)) {
                if is_register(register) {
                    self.same(register);
                }
            }
        }
        let mut words = vec![0; BANK_WORDS];
        for bank in [ACTIVE_BANK, SHADOW_BANK] {
            self.shell.read_block(bank, &mut words).expect("a bank");
            let mut expected = vec![0; BANK_WORDS];
            self.model.read_block(bank, &mut expected).expect("a bank");
            for (at, (word, expected)) in words.iter().zip(&expected).enumerate() {
                let expected = if is_kept(at) { *expected } else { 0 };
                assert_eq!(*word, expected, "word {at} of {bank:#x}, after {:?}", self.tried);
            }
        }
    }
}

fn beside_the_model(seed: u32) {
    let Some(mut pair) = Pair::new(seed) else { return };
    for round in 0..ROUNDS {
        for _ in 0..pair.rng.random_range(0..30) {
            match pair.rng.random_range(0..12) {
                0 => pair.write_in_bulk(),
                1 => pair.read_in_bulk(),
                2 | 3 => pair.write_anything(),
                4 => pair.nonsense(),
                5 => pair.load(),
                _ => pair.write_row(),
            }
        }
        pair.end_round();
        if round % 6 == 0 || round == ROUNDS - 1 {
            pair.compare();
        }
    }
    println!("seed {seed}: {:?}", pair.tried);
    let Tried { commits, aborts, while_busy, transfers_refused, refused, nonsense, .. } =
        pair.tried;
    let Tried { loads, loads_failed, loads_reset, loads_twice, .. } = pair.tried;
    let least = [commits / 4, aborts, while_busy, transfers_refused, refused, nonsense];
    assert!(pair.tried.no_link > 0, "no commit named a link: {:?}", pair.tried);
    assert!(loads > 30 && loads_failed > 5, "too little was tried: {:?}", pair.tried);
    assert!(loads_reset > 0 && loads_twice > 0, "too little was tried: {:?}", pair.tried);
    assert!(least.iter().all(|times| *times > 2), "too little was tried: {:?}", pair.tried);
}

#[test]
fn it_answers_as_the_model_from_a_first_seed() {
    beside_the_model(11);
}

#[test]
fn it_answers_as_the_model_from_a_second_seed() {
    beside_the_model(12);
}

#[test]
fn it_answers_as_the_model_from_a_third_seed() {
    beside_the_model(13);
}

/// `SNIC_SEEDS` of them, or `SNIC_SEED` alone.
#[test]
#[ignore = "nightly: minutes"]
fn it_answers_as_the_model_from_many_seeds() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("SNIC_SEED") {
        Some(seed) => beside_the_model(seed),
        None => (100..100 + number("SNIC_SEEDS").unwrap_or(100)).for_each(beside_the_model),
    }
}

//! Cost of the isolation: the same accesses to the same simulated card, in this process, and
//! through worker, XRT and its emulation; tables in bulk and register by register. Needs `snicd`
//! beside it (`cargo build --release --bin snicd`) and Debian's libxrt.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use snic_bitstream::catalogue;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_card_xrt::XrtCard;
use snic_domain::limits::DAG_ROWS;
use snic_domain::{CardProfile, Timestamp};
use snic_integration_xrt::device::{Clock, Device};
use snic_integration_xrt::emulation::{self, Emulation, SOCKET_ID};
use snic_integration_xrt::serve::{self, Shared};
use snic_ports::card::Card;
use snic_ports::driver::{Deadlines, Session};
use snic_tables::registers::{TABLE_VERSION, shadow_row};
use snic_tables::{
    CardCommand, CardReport, PageRow, RowKey, Table, TableDelta, TableImage, Ticket,
};

/// Register writes of one measurement: they travel together.
const WRITES: u32 = 1_000;
/// Rows of one commit.
const ROWS: u16 = 1_000;

fn profile() -> CardProfile {
    let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
    catalogue.card(&"sim-16".parse().expect("a label")).expect("there").clone()
}

fn now() -> Timestamp {
    Timestamp::ZERO + SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn simulated() -> SharedSimCard {
    SharedSimCard::new(SimCard::new(profile(), 1).expect("a valid profile"))
}

/// A card through XRT, with what has to live as long.
fn through_xrt(has_bulk: bool) -> (Emulation, Arc<Shared>, XrtCard) {
    let emulation = Emulation::new(profile());
    let shared = Shared::new(Device::new(simulated(), has_bulk, Clock::Wall));
    serve::start(&shared, emulation.user(), SOCKET_ID).expect("threads");
    let card = XrtCard::open(profile().model, emulation.settings("hw_emu"), emulation.role())
        .expect("it opens");
    (emulation, shared, card)
}

/// Every page row another, so that each commit writes all of them.
fn delta(generation: u16) -> TableDelta {
    let mut image = TableImage::default();
    for number in 0..ROWS {
        let (tenant, nt) = (generation % 2 + 1, 2);
        let page = PageRow { tenant, nt, virtual_page: number, physical_page: number, rwx: 3 };
        image.set(number, &page).expect("the table has this row");
    }
    TableImage::default().delta_to(&image)
}

fn commit(session: &mut Session, card: &mut dyn Card, delta: &TableDelta) {
    let command = CardCommand::Program {
        ticket: Ticket(1),
        delta: delta.clone(),
        configurations: Vec::new(),
        windows: Default::default(),
        rates_only: false,
    };
    session.submit(command, None);
    loop {
        match session.step(card, now()).into_iter().next() {
            Some(CardReport::Programmed { result: Ok(_), .. }) => return,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
}

fn sample(session: &mut Session, card: &mut dyn Card) {
    session.submit(CardCommand::Sample { ticket: Ticket(1) }, None);
    let reports = session.step(card, now());
    assert!(matches!(reports[..], [CardReport::Sampled { .. }]), "{reports:?}");
}

fn measure(criterion: &mut Criterion, name: &str, card: &mut dyn Card) {
    card.poll(now()).expect("the card answers");
    let mut group = criterion.benchmark_group("card");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    let first = shadow_row(RowKey { table: Table::Page, row: 0 }).expect("a row");
    group.throughput(Throughput::Elements(1));
    group.bench_function(format!("read a register, {name}"), |bencher| {
        bencher.iter(|| card.read(TABLE_VERSION).expect("the card answers"));
    });
    group.throughput(Throughput::Elements(WRITES.into()));
    group.bench_function(format!("write 1,000 registers, {name}"), |bencher| {
        bencher.iter(|| {
            // Every other word, so that they are separate runs.
            for word in 0..WRITES {
                card.write(first + 8 * word, word).expect("the card answers");
            }
            card.poll(now()).expect("the card answers");
        });
    });
    let mut session = Session::new(Deadlines::default());
    let deltas = [delta(0), delta(1)];
    let mut turn = 0;
    group.throughput(Throughput::Elements(ROWS.into()));
    group.bench_function(format!("commit 1,000 rows, {name}"), |bencher| {
        bencher.iter(|| {
            turn += 1;
            commit(&mut session, card, &deltas[turn % 2]);
        });
    });
    // Before its first read-back a session reads the counters of all rows.
    let mut session = Session::new(Deadlines::default());
    group.throughput(Throughput::Elements(DAG_ROWS as u64));
    group.bench_function(format!("sample 1,024 rows, {name}"), |bencher| {
        bencher.iter(|| sample(&mut session, card));
    });
}

fn overhead(criterion: &mut Criterion) {
    measure(criterion, "in this process", &mut simulated());
    if !emulation::is_there() {
        return;
    }
    for (name, has_bulk) in [("through XRT, in bulk", true), ("through XRT, one by one", false)] {
        let (_emulation, shared, mut card) = through_xrt(has_bulk);
        measure(criterion, name, &mut card);
        drop(card);
        shared.stop();
    }
}

criterion_group!(benches, overhead);
criterion_main!(benches);

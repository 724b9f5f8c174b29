//! Closing a card for another role.

use snic_tables::registers::{LOAD_BUSY, LOAD_STATUS, REGION_IN_FLIGHT, region};
use snic_tables::{CardCommand, CardReport, Ticket};

use super::{Bench, one_row, programmed, read_back};

fn load_role(bench: &mut Bench, ticket: u64) {
    let command = CardCommand::LoadRole { ticket: Ticket(ticket), force: false };
    bench.session.submit(command, None);
}

#[test]
fn a_card_is_released_after_all_that_was_asked_before_and_is_deaf_then() {
    let mut bench = Bench::adopted();
    bench.program(1, one_row(3, 100));
    load_role(&mut bench, 2);
    bench.program(3, one_row(4, 100));
    let mut reports = bench.step();
    reports.extend(bench.after_ms(1));
    assert_eq!(reports, [programmed(1, 6), CardReport::Released { ticket: Ticket(2) }]);
    assert!(bench.session.is_idle(), "what came behind it is not done");
    bench.program(4, one_row(5, 100));
    assert_eq!(bench.after_ms(1), []);
    bench.session.submit(read_back(Ticket(5)), None);
    assert!(matches!(bench.after_ms(1)[..], [CardReport::ReadBack { .. }]));
}

#[test]
fn a_card_with_packets_in_a_region_or_a_load_under_way_is_not_released() {
    let refused = |bench: &mut Bench, ticket| {
        load_role(bench, ticket);
        let reports = bench.after_ms(1);
        let [CardReport::NotReleased { reason, .. }] = &reports[..] else { panic!("{reports:?}") };
        reason.clone()
    };
    let mut bench = Bench::adopted();
    bench.card.poke(region(2, REGION_IN_FLIGHT), 3);
    assert_eq!(refused(&mut bench, 1), "region 2 still has 3 packets; try again");
    bench.card.poke(region(2, REGION_IN_FLIGHT), 0);
    bench.card.poke(LOAD_STATUS, LOAD_BUSY);
    assert!(refused(&mut bench, 2).starts_with("a region is being loaded"));
    bench.program(3, one_row(3, 100));
    let mut reports = bench.after_ms(1);
    reports.extend(bench.after_ms(1));
    assert_eq!(reports, [programmed(3, 6)], "it goes on as before");
}

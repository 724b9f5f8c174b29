//! `snicctl fleet find` and `snicctl fleet reservation` against a fleet's service.

use snic_api::fleet_v1::*;

use crate::support::fake::Fake;
use crate::support::{run, with_input};

const ID: &str = "123e4567-e89b-42d3-a456-426614174000";

fn reservation() -> Reservation {
    Reservation {
        name: format!("tenants/acme/reservations/{ID}"),
        host: "hosts/h1".into(),
        card: "card0".into(),
        functions: 4,
        functions_used: 1,
        bandwidth_bps: 5_000_000_000,
        enforced: true,
        ..Reservation::default()
    }
}

#[test]
fn hosts_are_found_and_refusals_counted() {
    let fake = Fake::start();
    let host = RankedHost {
        host: "hosts/h1".into(),
        card: "card0".into(),
        functions_left: 12,
        ingress_left_bps: 40_000_000_000,
        preferred: true,
        loads: 1,
    };
    let refusal = HostRefusal {
        reason: "functions-reserved".into(),
        hosts: 3,
        description: "with functions reserved for others".into(),
    };
    let found = FindHostsResponse {
        hosts: vec![host],
        refusals: vec![refusal],
        ..FindHostsResponse::default()
    };
    fake.answer("FindHosts", &found).answer("FindHosts", &found);
    let line = "fleet find --tenant acme --functions 2 --bandwidth 5Gbps --zone z1 --dag web --vm u1 \
                --host-label disk=ssd --order headroom --max 3";
    let text = run(fake.endpoint(), line);
    assert_eq!(text.code, 0, "{}", text.stderr);
    for part in ["h1", "12", "Other hosts: 3 with functions reserved for others"] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    let file = "name: acme/new\nbandwidth: 2Gbps\nchain: nat\n";
    let text = with_input(fake.endpoint(), "fleet find --functions 1 -f -", file);
    assert_eq!(text.code, 0, "{}", text.stderr);
    let asked = fake.asked::<FindHostsRequest>("FindHosts");
    let selector = asked[0].selector.as_ref().unwrap();
    assert_eq!(
        (selector.functions, &*selector.zones[0], &*selector.labels["disk"]),
        (2, "z1", "ssd")
    );
    assert_eq!(
        (asked[0].bandwidth_bps, asked[0].hosts_max, &*asked[0].vm),
        (5_000_000_000, 3, "u1")
    );
    assert_eq!((&*asked[0].parent, &*asked[0].dags[0]), ("tenants/acme", "tenants/acme/dags/web"));
    assert_eq!(asked[0].policy(), Policy::Headroom);
    let new = &asked[1].new_dags[0];
    assert_eq!((&*asked[1].parent, &*new.name), ("tenants/acme", "tenants/acme/dags/new"));
}

#[test]
fn reservations_are_made_shown_renewed_and_released() {
    let fake = Fake::start();
    let one = Some(reservation());
    fake.answer(
        "CreateReservation",
        &CreateReservationResponse { reservation: one.clone(), ..Default::default() },
    )
    .answer("GetReservation", &GetReservationResponse { reservation: one.clone() })
    .answer("RenewReservation", &RenewReservationResponse { reservation: one })
    .answer(
        "ListReservations",
        &ListReservationsResponse { reservations: vec![reservation()], ..Default::default() },
    )
    .answer("DeleteReservation", &DeleteReservationResponse {});
    for (line, part) in [
        (format!("create --tenant acme --functions 4 --bandwidth 5Gbps --ttl 90s --id {ID}"), "h1"),
        (format!("get acme/{ID}"), "1 taken up"),
        (format!("renew {ID} --tenant acme"), "any of the tenant"),
        ("list -A".to_owned(), "3 of 4"),
        (format!("release tenants/acme/reservations/{ID}"), "deleted tenants/acme/reservations/"),
    ] {
        let run = run(fake.endpoint(), &format!("fleet reservation {line}"));
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
        assert!(run.stdout.contains(part), "{line}: {}", run.stdout);
    }
    let made = &fake.asked::<CreateReservationRequest>("CreateReservation")[0];
    assert_eq!((&*made.parent, &*made.reservation_id), ("tenants/acme", ID));
    assert_eq!((made.bandwidth_bps, made.ttl.unwrap().seconds), (5_000_000_000, 90));
    let renewed = &fake.asked::<RenewReservationRequest>("RenewReservation")[0];
    assert_eq!((&*renewed.parent, &*renewed.reservation_id), ("tenants/acme", ID));
    let listed = &fake.asked::<ListReservationsRequest>("ListReservations")[0];
    assert_eq!(listed.parent, "tenants/-");
    let deleted = &fake.asked::<DeleteReservationRequest>("DeleteReservation")[0];
    assert_eq!((&*deleted.parent, &*deleted.reservation_id), ("tenants/acme", ID));
    let none = run(fake.endpoint(), &format!("fleet reservation get {ID}"));
    assert!(none.code == 2 && none.stderr.contains("--tenant"), "{}", none.stderr);
}

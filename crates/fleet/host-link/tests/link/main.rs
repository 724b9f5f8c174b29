//! The link against replicas that a test plays, over real TLS, with a host in memory.

mod host;
mod replica;

use std::sync::Arc;
use std::time::Duration;

use host::{MemoryHost, Said};
use replica::{
    Authority, Orders, Replica, dag, image_for, image_of, name, provide, provide_for, put, removal,
};
use snic_api::fleet_v1::answer_request::Part;
use snic_domain::{BitstreamId, DagAttachments, KeptForTenant, KeptState};
use snic_fleet::protocol::{
    Attachments, Epoch, HostPolicies, HostReport, Numbered, OrderKind, attachments_digest,
};
use snic_host_link::{HostLink, LinkSettings};

/// Longest wait for something that must happen; nothing is asserted about how long it takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn link(replicas: &[&Replica], host: &Arc<MemoryHost>) -> HostLink {
    let endpoints = replicas.iter().map(|replica| replica.endpoint()).collect();
    let settings = LinkSettings { endpoints, beat: Duration::from_millis(50) };
    HostLink::start(settings, Arc::clone(host) as Arc<dyn snic_host_link::LinkedHost>)
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens")
}

/// The next report that is meant.
async fn report<T>(orders: &mut Orders, meant: impl Fn(HostReport) -> Option<T>) -> T {
    within(async {
        loop {
            let report = orders.report().await.expect("the host is linked");
            if let Some(found) = meant(report) {
                return found;
            }
        }
    })
    .await
}

async fn applied(orders: &mut Orders, wanted: u64) {
    let is_it = |report| match report {
        HostReport::Applied { serial, .. } => (serial == wanted).then_some(()),
        _ => None,
    };
    report(orders, is_it).await;
}

async fn beat(orders: &mut Orders) -> (Epoch, u64) {
    report(orders, |report| match report {
        HostReport::Beat { epoch, sequence, .. } => Some((epoch, sequence)),
        _ => None,
    })
    .await
}

/// Until a beat says so: what was sent before has been looked at.
async fn looked_at(orders: &mut Orders, epoch: i64, sequence: u64) {
    while beat(orders).await != (Epoch(epoch), sequence) {}
}

#[tokio::test]
async fn an_order_is_carried_out_after_its_epoch_is_remembered_and_its_end_is_told() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    assert_eq!(beat(&mut orders).await, (Epoch(0), 0));
    orders.send(5, 1, OrderKind::Greet);
    orders.send(5, 2, put(7));
    applied(&mut orders, 7).await;
    assert_eq!(host.said()[..2], [Said::Remembered(5), Said::Assigned(name(), 7)]);
    // Once more, and an earlier one: nothing happens again.
    orders.send(5, 2, put(7));
    orders.send(5, 3, put(7));
    applied(&mut orders, 7).await;
    orders.send(4, 9, removal(7));
    orders.send(5, 4, removal(6));
    looked_at(&mut orders, 5, 4).await;
    assert_eq!(host.said().len(), 2, "{:?}", host.said());
    orders.send(6, 1, removal(7));
    within(host.until(Said::Withdrawn(name()))).await;
    assert_eq!(host.said()[2..], [Said::Remembered(6), Said::Withdrawn(name())]);
    let status = link.status().borrow().clone();
    assert_eq!((status.endpoint, status.epoch), (Some(replica.endpoint()), Epoch(6)));
    link.stop().await;
}

/// A DAG that loses its place long after it was served is given up on the host, told of, and not held any more.
#[tokio::test]
async fn a_place_that_is_lost_later_is_told() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    orders.send(5, 1, put(7));
    applied(&mut orders, 7).await;
    host.fail_later(true);
    let lost = report(&mut orders, |report| match report {
        HostReport::Refused { serial, was_served, .. } => Some((serial, was_served)),
        _ => None,
    });
    assert_eq!(lost.await, (7, true));
    within(host.until(Said::Withdrawn(name()))).await;
    host.fail_later(false);
    orders.send(5, 2, put(8));
    applied(&mut orders, 8).await;
    link.stop().await;
}

/// Attachments of DAGs are told by digest first, to leaders that ask in full, and by change from then on.
#[tokio::test]
async fn whatever_leads_packets_to_a_dag_is_told() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    orders.send(5, 1, put(7));
    applied(&mut orders, 7).await;
    host.bind(name(), 1);
    let one: Attachments = [(name(), DagAttachments { machines: 1, rules: 0 })].into();
    let digest = attachments_digest(&one);
    let is_it = |report| match report {
        HostReport::Beat { attachments, .. } => (attachments == Some(digest)).then_some(()),
        HostReport::Attachments { .. } => panic!("nobody has asked"),
        _ => None,
    };
    report(&mut orders, is_it).await;
    orders.send(5, 2, OrderKind::ListAttachments);
    let told = |report| match report {
        HostReport::Attachments { is_all, dags, .. } => Some((is_all, dags)),
        _ => None,
    };
    assert_eq!(report(&mut orders, told).await, (true, one));
    host.bind(name(), 0);
    let none = [(name(), DagAttachments::default())].into();
    assert_eq!(report(&mut orders, told).await, (false, none), "what has changed");
    link.stop().await;
}

/// An order of reservations reaches the controller, and the next beat says that it keeps them.
#[tokio::test]
async fn reservations_reach_the_controller_and_are_told() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    let of = KeptForTenant {
        number: 7,
        revision: 2,
        tenant: name().tenant,
        vm: None,
        card: replica::card(),
        functions: 4,
        used: 1,
        bandwidth: snic_domain::Bandwidth::from_gbps(1),
        lasts: Duration::from_secs(60),
    };
    orders.send(5, 1, OrderKind::Keep(vec![of]));
    let kept = |report| match report {
        HostReport::Beat { functions, .. } => functions.and_then(|of| of.kept.get(&7).copied()),
        _ => None,
    };
    let said = report(&mut orders, kept).await;
    assert_eq!(said, KeptState { revision: 2, used: 1, is_over: false });
    link.stop().await;
}

/// A move's removal is refused while a machine is bound, and the refusal says where the DAG is.
#[tokio::test]
async fn what_a_machine_is_bound_to_is_not_removed_by_a_move() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    orders.send(5, 1, put(7));
    applied(&mut orders, 7).await;
    host.bind(name(), 1);
    let release =
        || OrderKind::Remove { name: name(), card: replica::card(), serial: 7, if_detached: true };
    orders.send(5, 2, release());
    let kept = report(&mut orders, |report| match report {
        HostReport::Kept { serial, .. } => Some(serial),
        HostReport::Removed { .. } => panic!("a machine is bound to it"),
        _ => None,
    });
    assert_eq!(kept.await, 7);
    assert_eq!(host.said().len(), 2, "{:?}", host.said());
    // Nor when it has no place any more: it waits there.
    host.fail_later(true);
    tokio::time::sleep(Duration::from_millis(1_700)).await;
    assert_eq!(host.said().len(), 2, "{:?}", host.said());
    host.fail_later(false);
    host.bind(name(), 0);
    orders.send(5, 3, release());
    let gone = report(&mut orders, |report| match report {
        HostReport::Removed { serial, .. } => Some(serial),
        _ => None,
    });
    assert_eq!(gone.await, 7);
    assert_eq!(host.said().last(), Some(&Said::Withdrawn(name())));
    link.stop().await;
}

/// An order whose epoch is not durable is not carried out.
#[tokio::test]
async fn nothing_is_done_for_an_epoch_that_cannot_be_remembered() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    host.fail_to_remember(true);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let orders = within(replica.linked()).await;
    orders.send(5, 1, put(7));
    // The link starts again, and says that it has seen nothing.
    let mut orders = within(replica.linked()).await;
    assert_eq!(beat(&mut orders).await, (Epoch(0), 0));
    assert_eq!(host.said(), []);
    host.fail_to_remember(false);
    orders.send(5, 2, put(7));
    applied(&mut orders, 7).await;
    assert_eq!(host.said(), [Said::Remembered(5), Said::Assigned(name(), 7)]);
    link.stop().await;
}

#[tokio::test]
async fn the_next_replica_is_tried_when_one_does_not_lead_or_is_gone() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let follower = Replica::start(&authority).await;
    follower.refuse("replica-1 leads");
    let gone = Replica::start(&authority).await;
    gone.stop();
    let mut leader = Replica::start(&authority).await;
    let link = link(&[&follower, &gone, &leader], &host);
    let mut orders = within(leader.linked()).await;
    orders.send(5, 1, put(7));
    applied(&mut orders, 7).await;
    assert!(follower.asked() > 0);
    assert!(leader.lost().iter().chain(&follower.lost()).all(Option::is_none), "none was lost");
    // It no longer leads: the host keeps serving, names the leader that it lost, and finds it when it leads again.
    let before = (leader.asked(), follower.asked());
    leader.refuse("replica-1 leads");
    orders.end();
    within(async {
        while (leader.asked(), follower.asked()) < (before.0 + 1, before.1 + 1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let five = Some("5".to_owned());
    assert_eq!((&leader.lost()[before.0], &follower.lost()[before.1]), (&five, &five));
    leader.accept();
    let mut orders = within(leader.linked()).await;
    assert_eq!(beat(&mut orders).await.0, Epoch(5));
    assert_eq!(host.said(), [Said::Remembered(5), Said::Assigned(name(), 7)]);
    link.stop().await;
}

/// A host with another authority's certificate is not linked to, nor does it link to a stranger.
#[tokio::test]
async fn a_stranger_is_not_linked_to_and_certificates_are_read_again() {
    let (authority, other) = (Authority::new(), Authority::new());
    let host = MemoryHost::new(&authority);
    let mut stranger = Replica::start(&other).await;
    let link = link(&[&stranger], &host);
    let mut status = link.status();
    let failed = |status: &snic_host_link::LinkStatus| status.last_failure.is_some();
    within(status.wait_for(failed)).await.expect("the link runs");
    assert_eq!(stranger.asked(), 0);
    // The files are replaced: the next link uses them.
    host.set_tls(other.link_tls("host/h0"));
    within(stranger.linked()).await;
    link.stop().await;
}

#[tokio::test]
async fn what_the_host_refuses_is_told_with_the_reason() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    let refused = |report| match report {
        HostReport::Refused { serial, reason, .. } => Some((serial, reason)),
        _ => None,
    };
    host.refuse(Some("no room"));
    orders.send(5, 1, put(7));
    assert_eq!(report(&mut orders, refused).await, (7, "no room".to_owned()));
    // It is accepted, and then its region fails: it is given back, for another card to have it.
    host.refuse(None);
    host.fail_later(true);
    orders.send(5, 2, put(8));
    assert_eq!(report(&mut orders, refused).await.0, 8);
    assert_eq!(host.said().last(), Some(&Said::Withdrawn(name())));
    host.fail_later(false);
    orders.send(5, 3, put(9));
    applied(&mut orders, 9).await;
    let status = link.status().borrow().clone();
    assert!(status.last_refusal.is_some_and(|text| text.contains("web")));
    link.stop().await;
}

/// The daemon starts again: what it has is read from its records.
#[tokio::test]
async fn a_new_link_begins_with_what_the_host_has() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let first = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    orders.send(5, 1, put(7));
    applied(&mut orders, 7).await;
    first.stop().await;
    let again = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    assert_eq!(beat(&mut orders).await, (Epoch(5), 0));
    orders.send(5, 1, OrderKind::List(replica::card()));
    let holds = report(&mut orders, |report| match report {
        HostReport::Holds { dags, .. } => Some(dags),
        _ => None,
    });
    assert_eq!(holds.await, [(name(), 7)].into());
    // An order of an earlier leader that comes late.
    orders.send(4, 8, removal(7));
    looked_at(&mut orders, 5, 1).await;
    assert_eq!(host.said().len(), 2, "{:?}", host.said());
    again.stop().await;
}

/// It died over a DAG that it had accepted: the leader may think better of it meanwhile.
#[tokio::test]
async fn what_was_on_its_way_can_be_removed_after_a_restart() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    host.never_done();
    let mut replica = Replica::start(&authority).await;
    let first = link(&[&replica], &host);
    let orders = within(replica.linked()).await;
    orders.send(5, 1, put(7));
    within(host.until(Said::Assigned(name(), 7))).await;
    first.stop().await;
    let again = link(&[&replica], &host);
    let orders = within(replica.linked()).await;
    orders.send(5, 1, removal(7));
    within(host.until(Said::Withdrawn(name()))).await;
    again.stop().await;
    // One that has no place is given back at the start.
    host.fail_later(true);
    host.has(name(), 9);
    let last = link(&[&replica], &host);
    within(replica.linked()).await;
    within(async {
        while host.said().iter().filter(|said| **said == Said::Withdrawn(name())).count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    last.stop().await;
}

#[tokio::test]
async fn images_are_fetched_until_they_are_right() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    let missing = |report| match report {
        HostReport::Beat { missing, provided, .. } => Some((missing, provided)),
        _ => None,
    };
    // A replica that sends another image, then half of it, then all.
    let image = image_of("nat");
    replica.sends(vec![image_of("other"), image[..image.len() / 2].to_vec(), image.clone()]);
    let (_, before) = report(&mut orders, missing).await;
    orders.send(5, 1, provide("nat", 4));
    let nat: BitstreamId = "nat".parse().expect("a label");
    let (first, told) =
        report(&mut orders, |report| missing(report).filter(|(_, provided)| *provided != before))
            .await;
    assert!(first.contains(&nat), "it was told, and is not there");
    report(&mut orders, |report| missing(report).filter(|(missing, _)| missing.is_empty())).await;
    assert_eq!(host.image("nat"), Some(image));
    assert_eq!(replica.fetched(), 3);
    // The same again is there already.
    orders.send(5, 2, provide("nat", 4));
    looked_at(&mut orders, 5, 2).await;
    let (_, again) = report(&mut orders, missing).await;
    assert_eq!((again, replica.fetched()), (told, 3));
    link.stop().await;
}

/// An image that is added to a bitstream is fetched alone, and the bitstream stays; where none is there, one is
/// fetched after the other, and only the last one gives the bitstream its number.
#[tokio::test]
async fn a_bitstream_gets_further_images_and_is_complete_with_the_last() {
    let authority = Authority::new();
    let registered = |images: usize, number: u64| format!("nat: {images} images, number {number}");
    for (orders_of, images, expected) in [
        (
            vec![provide_for(&[0], 4), provide_for(&[0, 2], 6)],
            vec![image_for(0), image_for(2)],
            vec![registered(1, 4), registered(2, 6)],
        ),
        (
            vec![provide_for(&[0, 1, 2], 6)],
            vec![image_for(0), image_for(1), image_for(2)],
            vec![registered(1, 0), registered(2, 0), registered(3, 6)],
        ),
        // Region 0 has another image than before: there is no way from one to the other.
        (
            vec![provide_for(&[0], 4), provide_for(&[1, 2], 6)],
            vec![image_for(0), image_for(1), image_for(2)],
            vec![registered(1, 4), "nat: retired".into(), registered(1, 0), registered(2, 6)],
        ),
    ] {
        let host = MemoryHost::new(&authority);
        let mut replica = Replica::start(&authority).await;
        let link = link(&[&replica], &host);
        let mut orders = within(replica.linked()).await;
        replica.sends(images);
        for (at, order) in (1..).zip(orders_of) {
            orders.send(5, at, order);
            looked_at(&mut orders, 5, at).await;
            within(async {
                loop {
                    let is_whole = |report| match report {
                        HostReport::Beat { missing, .. } => Some(missing.is_empty()),
                        _ => None,
                    };
                    let is_whole = report(&mut orders, is_whole).await;
                    if is_whole && host.provided().len() >= usize::try_from(at).expect("few") {
                        break;
                    }
                }
            })
            .await;
        }
        assert_eq!(host.provided(), expected);
        link.stop().await;
    }
}

/// A flood of orders is read as fast as the host carries it out, and beats go on meanwhile.
#[tokio::test]
async fn a_slow_host_is_not_flooded() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    host.hold(true);
    for number in 1..=3_000 {
        orders.send(5, number, dag(&format!("d{number}"), number));
    }
    looked_at_least(&mut orders, 500).await;
    let (_, looked_at) = beat(&mut orders).await;
    assert!(looked_at < 3_000, "all were read, and wait somewhere: {looked_at}");
    host.hold(false);
    applied(&mut orders, 3_000).await;
    link.stop().await;
}

async fn looked_at_least(orders: &mut Orders, sequence: u64) {
    while beat(orders).await.1 < sequence {}
}

/// A call without an end holds up neither another call nor an order. When its caller goes, the host drops it.
#[tokio::test]
async fn calls_are_answered_beside_each_other_and_dropped_with_their_caller() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    orders.offer(1);
    let mut endless = within(replica.answered()).await;
    assert_eq!(within(endless.part()).await, Some(Part::Number(1)));
    endless.ask("/a/Endless");
    within(async {
        while host.replies() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;

    orders.offer(2);
    let mut echo = within(replica.answered()).await;
    assert_eq!(within(echo.part()).await, Some(Part::Number(2)));
    echo.ask("/a/Echo");
    assert_eq!(within(echo.part()).await, Some(Part::Data(vec![7; 9])));
    assert!(matches!(within(echo.part()).await, Some(Part::End(_))));
    orders.offer(3);
    let mut refused = within(replica.answered()).await;
    refused.ask("/a/Refused");
    assert_eq!(within(refused.part()).await, Some(Part::Number(3)));
    match within(refused.part()).await {
        Some(Part::End(end)) => assert_eq!((end.code, &*end.message), (7, "not you")),
        other => panic!("{other:?}"),
    }
    orders.send(5, 1, put(7));
    applied(&mut orders, 7).await;

    assert_eq!(host.replies(), 1);
    drop(endless);
    within(async {
        while host.replies() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    link.stop().await;
}

async fn policies(orders: &mut Orders) -> HostPolicies {
    report(orders, |report| match report {
        HostReport::Beat { policies, .. } => policies,
        _ => None,
    })
    .await
}

/// Policies are taken once, and said with every beat; what could not be stored is no reason to end the link.
#[tokio::test]
async fn policies_are_taken_and_what_came_of_them_is_told() {
    let authority = Authority::new();
    let host = MemoryHost::new(&authority);
    let mut replica = Replica::start(&authority).await;
    let link = link(&[&replica], &host);
    let mut orders = within(replica.linked()).await;
    assert_eq!(policies(&mut orders).await, HostPolicies::default());
    orders.send(5, 1, OrderKind::Greet);
    looked_at(&mut orders, 5, 1).await;
    host.fail_to_remember(true);
    let files = |number, text: &str| {
        let of = [("fairness.toml".to_owned(), text.to_owned())].into();
        OrderKind::SetPolicies(Numbered { number, of })
    };
    orders.send(5, 2, files(9, "a"));
    looked_at(&mut orders, 5, 2).await;
    assert_eq!((policies(&mut orders).await.number, host.policy("fairness.toml")), (0, None));
    host.fail_to_remember(false);
    orders.send(5, 3, files(9, "a"));
    while policies(&mut orders).await.number != 9 {}
    assert_eq!(host.policy("fairness.toml").as_deref(), Some("a"));
    orders.send(4, 9, files(8, "older"));
    orders.send(5, 4, OrderKind::Greet);
    looked_at(&mut orders, 5, 4).await;
    assert_eq!(host.policy("fairness.toml").as_deref(), Some("a"), "an older leader's");
    link.stop().await;
}

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::tasks::support::{
    Bench, End, Outcome, assert_valid, cut, echo, fragments, tcp, time_exceeded, udp_between,
    unreachable,
};
use crate::wire::{self, Endpoint, Flow, Frame, quoted_flow};
use crate::{DropReason, Verdict};

const SERVICE: End = ("192.0.2.1", 80);

fn settings(backends: std::ops::Range<u8>, more: Value) -> Value {
    let four: Vec<_> = backends
        .clone()
        .map(|i| json!({"address": format!("10.0.0.{i}"), "port": 8_080}))
        .collect();
    let six: Vec<_> =
        backends.map(|i| json!({"address": format!("2001:db8::{i}"), "port": 8_080})).collect();
    let mut settings = json!({"table": "251", "services": [
        {"address": SERVICE.0, "protocol": "tcp", "port": SERVICE.1, "backends": four.clone()},
        {"address": SERVICE.0, "protocol": "udp", "port": SERVICE.1, "backends": four},
        {"address": "2001:db8:1::1", "protocol": "tcp", "port": 443, "backends": six},
    ]});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn balancer(backends: std::ops::Range<u8>) -> Bench {
    Bench::new("load-balancer", settings(backends, json!({})))
}

fn flow(frame: &[u8]) -> Flow {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { panic!("not IP") };
    Flow::of(frame, &layout)
}

fn forwarded(bench: &mut Bench, frame: &[u8]) -> Vec<u8> {
    let Outcome { verdict, frame, .. } = bench.run(frame);
    assert_eq!(verdict, Verdict::Forward);
    assert_valid(&frame);
    frame
}

fn client(port: u16) -> End {
    ("198.51.100.1", port)
}

/// Where a client's packet went.
fn backend(bench: &mut Bench, frame: &[u8]) -> Endpoint {
    let flow = flow(&forwarded(bench, frame));
    Endpoint { address: flow.destination, port: flow.destination_port }
}

#[test]
fn flows_spread_and_answers_come_from_the_service() {
    for (client, service) in [(client(1), SERVICE), (("2001:db8:2::1", 1), ("2001:db8:1::1", 443))]
    {
        let mut bench = balancer(1..5);
        let mut counts = BTreeMap::new();
        for port in 1..400 {
            let client = (client.0, port);
            let to = backend(&mut bench, &tcp(client, service, "S"));
            *counts.entry(to.address).or_insert(0) += 1;
            assert_eq!(to.port, 8_080);
            let from: End = (Box::leak(to.address.to_string().into_boxed_str()), to.port);
            let answer = flow(&forwarded(&mut bench, &tcp(from, client, "SA")));
            assert_eq!(
                (answer.source.to_string(), answer.source_port),
                (service.0.into(), service.1)
            );
            assert_eq!(backend(&mut bench, &tcp(client, service, "A")), to);
        }
        assert_eq!(counts.len(), 4);
        assert!(counts.values().all(|count| (60..140).contains(count)), "{counts:?}");
    }
}

#[test]
fn cards_with_the_same_backends_choose_alike() {
    let (mut one, mut other) = (balancer(1..9), balancer(1..9));
    other.restart();
    for port in 1..100 {
        let frame = udp_between(client(port), SERVICE, b"");
        assert_eq!(backend(&mut one, &frame), backend(&mut other, &frame));
    }
}

#[test]
fn flows_keep_their_backend_when_others_come_and_go() {
    let mut bench = balancer(1..5);
    let open = |port| tcp(client(port), SERVICE, "S");
    let next = |port| tcp(client(port), SERVICE, "A");
    let before: Vec<_> = (1..300).map(|port| backend(&mut bench, &open(port))).collect();
    bench.configure(settings(2..7, json!({})));
    let gone: std::net::IpAddr = "10.0.0.1".parse().unwrap();
    for (port, before) in (1..300).zip(&before) {
        let now = backend(&mut bench, &next(port));
        assert!(now == *before || before.address == gone);
        assert!(now.address != gone);
    }
    bench.restart();
    for (port, before) in (1..300).zip(&before).filter(|(_, before)| before.address != gone) {
        assert_eq!(backend(&mut bench, &next(port)), *before);
    }
    let new: BTreeSet<_> =
        (300..600).map(|port| backend(&mut bench, &open(port)).address).collect();
    assert_eq!(new.len(), 5);
}

/// The packet of a backend that answers one that came to it.
fn answer(frame: &[u8], flags: &str) -> Vec<u8> {
    let Flow { protocol, source, source_port, destination, destination_port } = flow(frame);
    let [to, from] = [(source, source_port), (destination, destination_port)]
        .map(|(address, port)| -> End { (Box::leak(address.to_string().into_boxed_str()), port) });
    if protocol == 6 { tcp(from, to, flags) } else { udp_between(from, to, b"answer") }
}

#[test]
fn a_full_table_gives_up_what_is_not_in_use_and_no_more() {
    let mut bench = Bench::new("load-balancer", settings(1..5, json!({"flows_max": 2})));
    let full = Verdict::Drop(DropReason::TableFull);
    let ask = |port| udp_between(client(port), SERVICE, b"");
    // A flow without a reply goes for a new one.
    for port in 1..50 {
        forwarded(&mut bench, &ask(port));
    }
    let asked = [60, 61].map(|port| {
        let asked = forwarded(&mut bench, &ask(port));
        assert_eq!(flow(&forwarded(&mut bench, &answer(&asked, ""))).source_port, SERVICE.1);
        asked
    });
    assert_eq!(bench.run(&ask(62)).verdict, full, "its answer would have the wrong address");
    bench.wait_secs(119);
    assert_eq!(bench.run(&tcp(client(62), SERVICE, "S")).verdict, full);
    forwarded(&mut bench, &ask(61));
    bench.wait_secs(1);
    let opened = forwarded(&mut bench, &tcp(client(62), SERVICE, "S"));
    assert_eq!(flow(&forwarded(&mut bench, &answer(&asked[1], ""))).source_port, SERVICE.1);
    forwarded(&mut bench, &answer(&opened, "R"));
    forwarded(&mut bench, &ask(63));
    let late = answer(&asked[0], "");
    assert_eq!(forwarded(&mut bench, &late), late, "its flow is gone");
}

#[test]
fn what_a_backend_says_of_its_own_keeps_its_address() {
    for (client, service, backend) in [
        (client(7), SERVICE, ("10.0.0.1", 8_080)),
        (("2001:db8:2::1", 7), ("2001:db8:1::1", 443), ("2001:db8::1", 8_080)),
    ] {
        let mut bench = balancer(1..2);
        // A health check asks the backend itself, while clients use the service.
        let through = forwarded(&mut bench, &tcp(client, service, "S"));
        let checker = (client.0, 9);
        for (ask, answer) in [
            (tcp(checker, backend, "S"), tcp(backend, checker, "SA")),
            (tcp(checker, backend, "A"), tcp(backend, checker, "FA")),
            (tcp(backend, checker, "S"), tcp(checker, backend, "SA")),
        ] {
            assert_eq!(forwarded(&mut bench, &ask), ask);
            assert_eq!(forwarded(&mut bench, &answer), answer);
        }
        let back = flow(&forwarded(&mut bench, &answer(&through, "SA")));
        assert_eq!((back.source.to_string(), back.source_port), (service.0.into(), service.1));
    }
    // NTP uses its port at both ends (RFC 5905): the backends' own queries.
    let mut bench = Bench::new(
        "load-balancer",
        json!({"services": [{"address": SERVICE.0, "protocol": "udp", "port": 123,
            "backends": [{"address": "10.0.0.1", "port": 123}]}]}),
    );
    let (pool, backend) = (("203.0.113.5", 123), ("10.0.0.1", 123));
    for frame in [udp_between(backend, pool, b"query"), udp_between(pool, backend, b"time")] {
        assert_eq!(forwarded(&mut bench, &frame), frame);
    }
    let asked = forwarded(&mut bench, &udp_between(client(123), (SERVICE.0, 123), b"query"));
    assert_eq!(flow(&asked).destination.to_string(), backend.0);
    let back = flow(&forwarded(&mut bench, &answer(&asked, "")));
    assert_eq!(back.source.to_string(), SERVICE.0);
    bench.wait_secs(301);
    let late = answer(&asked, "");
    assert_eq!(forwarded(&mut bench, &late), late, "the flow is over");
}

#[test]
fn of_another_backend_nothing_is_taken_for_an_answer() {
    let mut bench = balancer(1..5);
    let asked = forwarded(&mut bench, &udp_between(client(1), SERVICE, b""));
    for backend in ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"] {
        let said = udp_between((backend, 8_080), client(1), b"");
        let is_its = backend == flow(&asked).destination.to_string();
        assert_eq!(forwarded(&mut bench, &said) != said, is_its, "{backend}");
    }
}

#[test]
fn who_asks_a_backend_and_the_service_from_one_port_gets_the_last_answer() {
    let backend = ("10.0.0.1", 8_080);
    let mut bench = balancer(1..2);
    let service = udp_between(client(1), SERVICE, b"");
    let direct = udp_between(client(1), backend, b"");
    let answer = udp_between(backend, client(1), b"");
    for _ in 0..2 {
        forwarded(&mut bench, &service);
        assert_eq!(flow(&forwarded(&mut bench, &answer)).source_port, SERVICE.1);
        assert_eq!(forwarded(&mut bench, &direct), direct);
        bench.restart();
        assert_eq!(forwarded(&mut bench, &answer), answer);
    }
    // Fragments of a request that is left alone say as much as a whole one.
    forwarded(&mut bench, &service);
    for fragment in fragments(&udp_between(client(1), backend, &[7; 100]), 5, 48) {
        assert_eq!(forwarded(&mut bench, &fragment), fragment);
    }
    assert_eq!(forwarded(&mut bench, &answer), answer);
    // Of TCP only a connection that is closed gives way: no stranger ends one.
    let answer = tcp(backend, client(1), "A");
    forwarded(&mut bench, &tcp(client(1), SERVICE, "S"));
    forwarded(&mut bench, &tcp(client(1), backend, "S"));
    assert_eq!(flow(&forwarded(&mut bench, &answer)).source_port, SERVICE.1);
    forwarded(&mut bench, &tcp(client(1), SERVICE, "R"));
    forwarded(&mut bench, &tcp(client(1), backend, "S"));
    assert_eq!(forwarded(&mut bench, &answer), answer);
}

#[test]
fn after_a_loss_of_the_table_a_client_brings_its_flow_back() {
    let mut bench = balancer(1..5);
    let opened = forwarded(&mut bench, &tcp(client(1), SERVICE, "S"));
    let mut other = balancer(1..5);
    let answer = answer(&opened, "A");
    assert_eq!(forwarded(&mut other, &answer), answer);
    let mut strict = Bench::new("load-balancer", settings(1..5, json!({"unmatched": "drop"})));
    assert_eq!(strict.run(&answer).verdict, Verdict::Drop(DropReason::NoConnection));
    for bench in [&mut other, &mut strict] {
        assert_eq!(forwarded(bench, &tcp(client(1), SERVICE, "A"))[30..34], opened[30..34]);
        assert_eq!(flow(&forwarded(bench, &answer)).source_port, SERVICE.1);
    }
    let request = udp_between(client(1), ("10.0.0.1", 53), b"");
    assert_eq!(forwarded(&mut strict, &request), request, "of another port");
}

#[test]
fn a_backend_without_weight_keeps_its_flows_and_gets_no_more() {
    let mut bench = balancer(1..3);
    let first = backend(&mut bench, &tcp(client(1), SERVICE, "S"));
    let mut drained = settings(1..3, json!({}));
    for service in drained["services"].as_array_mut().unwrap() {
        for backend in service["backends"].as_array_mut().unwrap() {
            if backend["address"] == first.address.to_string() {
                backend["weight"] = json!(0);
            }
        }
    }
    bench.configure(drained);
    assert_eq!(backend(&mut bench, &tcp(client(1), SERVICE, "A")), first);
    for port in 2..100 {
        assert_ne!(backend(&mut bench, &tcp(client(port), SERVICE, "S")), first);
    }
    bench.configure(json!({"services": [
        {"address": SERVICE.0, "protocol": "tcp", "port": 80, "backends": []}
    ]}));
    let nobody = bench.run(&tcp(client(1), SERVICE, "S")).verdict;
    assert_eq!(nobody, Verdict::Drop(DropReason::NoBackend));
}

#[test]
fn errors_reach_the_backend_with_its_own_packet() {
    let mut bench = balancer(1..5);
    let to = backend(&mut bench, &tcp(client(1), SERVICE, "S"));
    let from: End = (Box::leak(to.address.to_string().into_boxed_str()), to.port);
    let answer = forwarded(&mut bench, &tcp(from, client(1), "SA"));
    let error = forwarded(&mut bench, &time_exceeded("203.0.113.9", SERVICE.0, &answer));
    let Ok(Frame::Ip(layout)) = wire::parse(&error) else { panic!() };
    assert_eq!(layout.destination, to.address);
    let (_, about) = quoted_flow(&error, &layout).unwrap();
    assert_eq!((about.source, about.source_port), (to.address, to.port));
    let never = tcp(SERVICE, client(2), "SA");
    let forged = bench.run(&time_exceeded("203.0.113.9", SERVICE.0, &never)).verdict;
    assert_eq!(forged, Verdict::Drop(DropReason::NoConnection), "nobody has sent that");
}

#[test]
fn errors_about_what_was_asked_directly_stay_as_they_are() {
    let (backend, router) = (("10.0.0.1", 8_080), "203.0.113.9");
    let mut bench = balancer(1..2);
    let request = forwarded(&mut bench, &udp_between(client(1), SERVICE, b""));
    let answer = forwarded(&mut bench, &udp_between(backend, client(1), b""));
    let about_request = unreachable(backend.0, client(1).0, &request);
    assert_ne!(forwarded(&mut bench, &about_request), about_request);
    let direct = udp_between(client(1), backend, b"from the same port");
    for request in [direct, udp_between(client(2), backend, b"a health check")] {
        forwarded(&mut bench, &request);
        for from in [backend.0, router] {
            let error = unreachable(from, client(1).0, &request);
            assert_eq!(forwarded(&mut bench, &error), error);
        }
        let own = udp_between(backend, client(1), b"");
        let error = unreachable(client(1).0, backend.0, &own);
        assert_eq!(forwarded(&mut bench, &error), error);
    }
    // What went out in the name of the service was answered to the service.
    let error = unreachable(router, SERVICE.0, &answer);
    assert_eq!(flow(&forwarded(&mut bench, &error)).destination.to_string(), backend.0);
}

#[test]
fn icmp_in_fragments_that_is_not_about_a_service_passes_in_any_order() {
    let own = |backend, client: End| {
        let quoted = udp_between(client, (backend, 9), &[7; 100]);
        [echo(backend, client.0, 7, true), echo(backend, client.0, 7, false)]
            .into_iter()
            .chain([unreachable(backend, client.0, &quoted)])
    };
    let all = own("10.0.0.1", client(1)).chain(own("2001:db8::1", ("2001:db8:2::1", 1)));
    for (id, whole) in (1..).zip(all) {
        let payload = whole.len() - if whole[14] >> 4 == 4 { 34 } else { 54 };
        let mut fragments = cut(&whole, id, (payload - 1) & !7);
        assert_eq!(fragments.len(), 2);
        for _ in 0..2 {
            let mut bench = balancer(1..2);
            let mut passed = Vec::new();
            for fragment in &fragments {
                let Outcome { verdict, frame, emitted } = bench.run(fragment);
                passed.extend(emitted.into_iter().map(|(_, frame)| frame));
                passed.extend((verdict == Verdict::Forward).then_some(frame));
            }
            passed.sort();
            fragments.reverse();
            let mut expected = fragments.clone();
            expected.sort();
            assert_eq!(passed, expected);
        }
    }
}

#[test]
fn the_service_answers_echoes_itself() {
    for (from, to) in [("198.51.100.1", SERVICE.0), ("2001:db8:2::1", "2001:db8:1::1")] {
        let Outcome { verdict, frame, .. } = balancer(1..3).run(&echo(from, to, 7, true));
        assert_eq!(verdict, Verdict::Reply);
        assert_valid(&frame);
        assert_eq!(frame[12..], echo(to, from, 7, false)[12..]);
    }
}

#[test]
fn fragments_go_where_their_first_went() {
    let mut bench = balancer(1..5);
    let whole = udp_between(client(9), SERVICE, &[7; 100]);
    let [first, later] = fragments(&whole, 5, 48);
    assert_eq!(bench.run(&later).verdict, Verdict::Consume, "it waits");
    let Outcome { verdict, frame, emitted } = bench.run(&first);
    assert_eq!(verdict, Verdict::Forward);
    assert_eq!(flow(&emitted[0].1).destination, flow(&frame).destination);
    // Those of a backend's own packets keep its address.
    let own = udp_between(("10.0.0.1", 8_080), client(10), &[7; 100]);
    let [first, later] = fragments(&own, 6, 48);
    assert_eq!(bench.run(&later).verdict, Verdict::Consume, "it waits too");
    let Outcome { verdict, frame, emitted } = bench.run(&first);
    assert_eq!(verdict, Verdict::Forward);
    assert_eq!((frame, &emitted[0].1), (first, &later));
    // Those of others are not looked at.
    let [_, other] = fragments(&udp_between(client(9), ("192.0.2.77", 80), &[7; 100]), 5, 48);
    assert_eq!(forwarded(&mut bench, &other), other);
}

#[test]
fn others_pass_and_contradictions_are_rejected() {
    let mut bench = balancer(1..3);
    let other = udp_between(client(1), ("192.0.2.1", 81), b"");
    assert_eq!(forwarded(&mut bench, &other), other);
    assert!(bench.run(&other).emitted.is_empty());
    let backend = json!({"address": "10.0.0.1", "port": 1});
    let service = |address: &str, backends: Value| json!({"address": address, "protocol": "tcp", "port": 80, "backends": backends});
    for (services, expected) in [
        (
            json!([service("1.1.1.1", json!([])), service("1.1.1.1", json!([]))]),
            "services[1]: a second",
        ),
        (json!([service("::1", json!([backend]))]), "services[0].backends[0]: 10.0.0.1"),
        (
            json!([service("1.1.1.1", json!([backend])), service("1.1.1.2", json!([backend]))]),
            "services[1].backends[0]: an endpoint that is listed already",
        ),
        (
            json!([service("1.1.1.1", json!([{"address": "1.1.1.1", "port": 80}]))]),
            "services[0].backends[0]: the endpoint of a service",
        ),
    ] {
        let message = bench.rejected(&json!({"services": services}));
        assert!(message.starts_with(expected), "{message}");
    }
}

//! A few lines that are the card: what comes at a slow device gets the addresses of a NAT, a rule, and goes on.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snic_card_soft::{HeaderRule, Port, Received};
use snic_fast_path::{Exit, KernelRule};
use snic_nts::wire::{self, Endpoint, Frame, Side};
use snic_nts::{FlowKey, Pool};

use crate::frames::ACK;
use crate::site::{Bench, ip};

/// Addresses of a family: of the hosts, and the one that the NAT gives to the first.
pub struct Family {
    pub hosts: [&'static str; 2],
    pub external: &'static str,
    pub gateway: &'static str,
    pub bits: u8,
}

pub const FAMILIES: [Family; 2] = [
    Family {
        hosts: ["10.0.0.1", "10.1.0.1"],
        external: "10.1.0.200",
        gateway: "10.0.0.254",
        bits: 24,
    },
    Family { hosts: ["fd00::1", "fd01::1"], external: "fd01::c8", gateway: "fd00::fe", bits: 64 },
];

impl Family {
    /// Gives the hosts their addresses, and each other's stations.
    pub fn set_up(&self, bench: &Bench) {
        let [a, b, _] = &bench.site.namespaces;
        let nodad = if self.bits == 64 { " nodad" } else { "" };
        for ((namespace, device), host) in [(a, "a"), (b, "b")].into_iter().zip(self.hosts) {
            ip(&format!("-n {namespace} address add {host}/{} dev {device}{nodad}", self.bits));
        }
        ip(&format!("-n {a} neigh add {} lladdr 02:00:00:00:00:0b dev a", self.gateway));
        ip(&format!("-n {b} neigh add {} lladdr 02:00:00:00:00:0a dev b", self.external));
        ip(&format!("-n {a} route add default via {} dev a", self.gateway));
    }
}

/// Difference of the ports in front of the NAT and behind it.
const PORTS: u16 = 1 << 14;

/// The frame behind the NAT; `None` for what is not of the streams.
fn translate(family: &Family, from: usize, frame: &[u8]) -> Option<Vec<u8>> {
    let Ok(Frame::Ip(mut layout)) = wire::parse(frame) else { return None };
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let mut out = frame.to_vec();
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (at, is_ours) = (layout.transport, matches!(layout.protocol, 6 | 17));
    if !is_ours {
        return None;
    }
    if from == 0 && layout.source == address(family.hosts[0]) {
        let end = Endpoint { address: address(family.external), port: port(at) ^ PORTS };
        wire::rewrite(&mut out, &mut layout, Side::Source, end);
    } else if from == 1 && layout.destination == address(family.external) {
        let end = Endpoint { address: address(family.hosts[0]), port: port(at + 2) ^ PORTS };
        wire::rewrite(&mut out, &mut layout, Side::Destination, end);
    } else {
        return None;
    }
    Some(out)
}

/// The key of a frame's flow, also for a frame that opens or ends it.
fn key(frame: &[u8]) -> Option<FlowKey> {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { return None };
    let mut frame = frame.to_vec();
    if layout.protocol == 6 {
        frame[layout.transport + 13] = ACK;
    }
    FlowKey::of(&frame).map(|(key, _)| key)
}

/// The card, until it is told to stop: frames that it forwarded.
pub fn forward(
    bench: &mut Bench,
    mut out: [Box<dyn Port>; 2],
    family: &Family,
    is_over: &AtomicBool,
) -> u64 {
    let pool = Pool::new(512, 9_216);
    let mut forwarded = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut is_idle = true;
        for from in 0..2 {
            let Received::Frame(packet) = bench.slow[from].receive(&pool).expect("it is there")
            else {
                continue;
            };
            is_idle = false;
            let frame = packet.bytes();
            let Some(after) = translate(family, from, frame) else { continue };
            let keys = key(frame).zip(key(&after));
            let headers = keys.and_then(|(before, after)| HeaderRule::new(before, after, false));
            if let Some(headers) = headers {
                let exit = Exit::Peer(bench.indices[1 - from]);
                let (port, slot) = (bench.indices[from], from as u32);
                let rule =
                    KernelRule { headers, port, exit, row: 1, generation: 1, version: 1, slot };
                bench.path.set_rule(&rule).expect("there is room");
            }
            forwarded += 1;
            out[1 - from].send(&mut vec![pool.copy_of(&after).expect("a buffer")]);
        }
        if is_idle {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    forwarded
}

/// The devices that the card sends by.
pub fn exits(bench: &Bench) -> [Box<dyn Port>; 2] {
    ["interface:ca", "interface:cb"].map(|spec| bench.site.open(2, spec))
}

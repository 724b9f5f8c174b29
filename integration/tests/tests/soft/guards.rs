//! Limits of what a bound function sends: real frames at the ports of a software card, limited by what BindVm was given. No root is
//! needed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_integration::{DaemonProcess, Home, TestClient, furnished};

use super::rig::{READY_MAX, ready};

/// Longest time of a frame through the card.
const FRAME_MAX: Duration = Duration::from_secs(5);
const MACHINES: [&str; 2] =
    ["123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-a456-426614174001"];
const GIVEN: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

/// A daemon with a software card: an uplink and two functions.
struct Site {
    client: TestClient,
    daemon: DaemonProcess,
    uplink: UnixStream,
    functions: [UnixStream; 2],
    _home: Home,
}

impl Site {
    async fn new() -> Self {
        let home = Home::new();
        let path = |name: &str| home.path().join(name);
        let port = |name: &str| format!("unix:{}", path(name).display());
        let [up, first, second] = ["up.sock", "f0.sock", "f1.sock"].map(port);
        home.write_soft_settings(&format!(
            "uplink = {up:?}\nfunctions = [{first:?}, {second:?}]\n\
             guards = [{{ function = 1, group_frames_per_second = 1 }}]"
        ));
        let daemon = home.start().await;
        let client = furnished(&home, &["web"]).await;
        ready(&client).await;
        let connect = |name: &str| {
            let stream = UnixStream::connect(path(name)).expect("the card has the port");
            stream.set_read_timeout(Some(FRAME_MAX)).expect("a time");
            stream
        };
        let (uplink, functions) = (connect("up.sock"), ["f0.sock", "f1.sock"].map(connect));
        Self { client, daemon, uplink, functions, _home: home }
    }

    async fn bind(&self, machine: &str, mac: Option<[u8; 6]>, vlans: &[u32]) -> v1::BoundFunction {
        let names = vec!["tenants/acme/dags/web".to_owned()];
        let request = v1::BindVmRequest {
            vm: machine.to_owned(),
            tenant: "tenants/acme".to_owned(),
            chains: Some(v1::bind_vm_request::Chains::Dags(v1::DagNames { names })),
            mac_addresses: mac.iter().map(text).collect(),
            vlans: (!vlans.is_empty()).then(|| v1::VlanIds { ids: vlans.to_vec() }),
            ..Default::default()
        };
        let bound = self.client.machines().bind_vm(request).await.item().expect("it is bound");
        bound.functions[0].clone()
    }

    async fn function(&self, machine: &str) -> v1::BoundFunction {
        let request = v1::GetBindingRequest { name: format!("vmBindings/{machine}") };
        let bound = self.client.machines().get_binding(request).await.item().expect("it is bound");
        bound.functions[0].clone()
    }

    /// Frames that the port of a machine's function refused, as soon as they are as many.
    async fn refused(&self, machine: &str, frames: u64) -> v1::RefusedFrames {
        let until = Instant::now() + READY_MAX;
        loop {
            let of = self.function(machine).await.refused_frames.unwrap_or_default();
            if of.control + of.wrong_source + of.wrong_vlan + of.over_broadcast_rate >= frames {
                return of;
            }
            assert!(Instant::now() < until, "{of:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends frames by a function, one after the other; gives the names of those that get to the network, up to that
    /// of the last.
    fn send(&mut self, function: usize, frames: &[(&str, Vec<u8>)]) -> Vec<String> {
        for (_, frame) in frames {
            write(&mut self.functions[function], frame);
        }
        let (last, _) = frames.last().expect("a frame");
        let mut came = Vec::new();
        while came.last().is_none_or(|name| name != last) {
            let frame = read(&mut self.uplink);
            let name = frames.iter().find(|(_, sent)| *sent == frame).map(|(name, _)| *name);
            came.push(name.unwrap_or("another").to_owned());
        }
        came
    }
}

fn text(mac: &[u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn bytes(mac: &str) -> [u8; 6] {
    let bytes: Vec<u8> =
        mac.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("digits")).collect();
    bytes.try_into().expect("six")
}

fn write(port: &mut UnixStream, frame: &[u8]) {
    let length = (frame.len() as u32).to_be_bytes();
    port.write_all(&[&length[..], frame].concat()).expect("the card reads");
}

fn read(port: &mut UnixStream) -> Vec<u8> {
    let mut length = [0; 4];
    port.read_exact(&mut length).expect("a frame comes");
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    port.read_exact(&mut frame).expect("whole");
    frame
}

/// A frame of an experiment's EtherType (RFC 5342) to a station that nobody has: it leaves by the uplink.
fn frame(from: [u8; 6], tag: &[u8], number: u8) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 9][..], &from, tag, &[0x88, 0xb5, number], &[0; 60]].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_function_sends_from_its_own_addresses_and_what_else_it_sends_is_counted() {
    let mut site = Site::new().await;
    let first = site.bind(MACHINES[0], Some(GIVEN), &[5]).await;
    assert_eq!((first.virtual_function, first.guarded), (0, true), "{first:?}");
    assert_eq!(first.allowed_mac_addresses, [text(&GIVEN)]);
    let second = site.bind(MACHINES[1], None, &[]).await;
    assert_eq!(
        second.allowed_mac_addresses,
        std::slice::from_ref(&second.mac_address),
        "its own alone"
    );
    let (own, foreign) = (bytes(&second.mac_address), [0x52, 0x54, 0, 0, 0, 7]);
    let tag = |vlan: u8| [0x81, 0, 0, vlan];

    // A frame to a bound station finds it before it has said anything.
    let to_first = [&GIVEN[..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb5, 9], &[0; 60]].concat();
    write(&mut site.uplink, &to_first);
    assert_eq!(read(&mut site.functions[0]), to_first);

    // Nobody has used `foreign`, and the first function has not said anything yet.
    let came = site.send(
        1,
        &[
            ("first's", frame(GIVEN, &[], 1)),
            ("nobody's", frame(foreign, &[], 2)),
            ("own", frame(own, &[], 3)),
        ],
    );
    assert_eq!(came, ["own"]);
    let came = site.send(
        0,
        &[
            ("its function's", frame(bytes(&first.mac_address), &[], 4)),
            ("nobody's", frame(foreign, &[], 5)),
            ("vlan 6", frame(GIVEN, &tag(6), 6)),
            ("vlan 5", frame(GIVEN, &tag(5), 7)),
            ("given", frame(GIVEN, &[], 8)),
        ],
    );
    assert_eq!(came, ["vlan 5", "given"]);
    let refused = site.refused(MACHINES[0], 3).await;
    assert_eq!((refused.wrong_source, refused.wrong_vlan, refused.control), (2, 1, 0));
    assert_eq!(site.refused(MACHINES[1], 2).await.wrong_source, 2);
    let request = v1::GetCardRequest { name: "cards/card0".into() };
    let card = site.client.cards().get_card(request).await.item().expect("it is known");
    let counted: Vec<u64> = card.ports.iter().map(|port| port.frames_wrong_source).collect();
    assert_eq!(counted, [0, 2, 2]);

    // The settings stay the operator's: one frame to all in a second, whatever was requested.
    let group = |number| {
        let mut frame = frame(own, &[], number);
        frame[..6].fill(0xff);
        frame
    };
    let to_all: Vec<Vec<u8>> = (20..40).map(group).collect();
    to_all.iter().for_each(|frame| write(&mut site.functions[1], frame));
    assert!(site.refused(MACHINES[1], 3).await.over_broadcast_rate > 0);

    // Who is unbound is another's no more; the next one has the address.
    let request = v1::UnbindVmRequest { vm: MACHINES[0].into(), ..Default::default() };
    site.client.machines().unbind_vm(request).await.expect("it is bound");
    let again = site.bind(MACHINES[0], Some(foreign), &[]).await;
    assert_eq!(again.allowed_mac_addresses, [text(&foreign)]);
    let (status, log) = site.daemon.stop();
    assert!(status.success(), "{log}");
}

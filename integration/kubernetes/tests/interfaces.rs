//! Interfaces on their way into pods and back, judged by Linux: namespaces and devices are real, containers are processes.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snic_kubernetes::dra::interface::{InterfaceError, PodInterface, is_tap};

use crate::cluster::{enter, run};

const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";

/// A process with a network of its own, as the first of a pod.
struct Container(Child);

impl Container {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        let child = command.args(["--net", "sleep", "600"]).stdin(Stdio::null()).spawn();
        let container = Self(child.expect("it starts"));
        let network = |path: &str| std::fs::read_link(path).expect("a process");
        let until = Instant::now() + Duration::from_secs(60);
        while network(&format!("/proc/{}/ns/net", container.0.id())) == network("/proc/self/ns/net")
        {
            assert!(Instant::now() < until, "unshare does nothing");
            std::thread::sleep(Duration::from_millis(10));
        }
        container
    }

    fn run(&self, arguments: &str) -> String {
        run("nsenter", &format!("--net --target {} ip {arguments}", self.0.id()))
    }

    fn end(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it was a child");
    }
}

fn interface() -> PodInterface {
    PodInterface {
        uuid: UUID.into(),
        host: "vf0".into(),
        name: "snic0".into(),
        mac: "02:1f:c4:77:00:03".into(),
        addresses: vec!["10.77.0.1/24".into(), "fd00::1/64".into()],
        is_tap: false,
    }
}

#[test]
fn an_interface_moves_into_a_pod_and_survives_its_end() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: it needs root");
        return;
    }
    let part = ["--exact", "interfaces::moves", "--ignored", "--nocapture"];
    let status = enter(&part, |_| {});
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "part: of an_interface_moves_into_a_pod_and_survives_its_end"]
fn moves() {
    assert_eq!(std::process::id(), 1, "only in namespaces of its own");
    run("mount", "-t tmpfs none /run");
    run("ip", "link add vf0 type veth peer name card");
    let interface = interface();
    let host = || run("ip", "-brief link");

    // A pod without a network of its own keeps nothing.
    let own = interface.attach(1).expect_err("the host's network");
    assert!(matches!(own, InterfaceError::HostNetwork), "{own}");
    let gone = interface.attach(u32::MAX).expect_err("no process");
    assert!(gone.to_string().contains("4294967295"), "{gone}");
    assert!(host().contains("vf0"));

    // Twice is as once; a container that is started again finds its interface.
    let pod = Container::start();
    interface.attach(pod.0.id()).expect("it moves");
    interface.attach(pod.0.id()).expect("it is there");
    let shown = pod.run("address show dev snic0");
    for part in ["02:1f:c4:77:00:03", "10.77.0.1/24", "fd00::1/64", "UP"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!host().contains("vf0"));

    // The pod's last process ends, which destroys a network that nothing keeps.
    pod.end();
    interface.detach().expect("it is kept");
    interface.detach().expect("it is back");
    assert!(host().contains("vf0"), "{}", host());

    // A pod's sandbox is made again: the interface moves from the old network to the new one.
    let (first, second) = (Container::start(), Container::start());
    interface.attach(first.0.id()).expect("it moves");
    interface.attach(second.0.id()).expect("it moves on");
    assert!(!first.run("-brief link").contains("snic0"));
    assert!(second.run("-brief link").contains("snic0"));

    // One that cannot have its name there stays on the host.
    interface.detach().expect("back");
    second.run("link add snic0 type veth peer name other");
    let taken = interface.attach(second.0.id()).expect_err("the name is taken");
    assert!(taken.to_string().contains("File exists"), "{taken}");
    assert!(host().contains("vf0"), "{}", host());
    assert!(std::fs::read_dir("/run/netns").expect("a folder").next().is_none());

    // A pod that renames it and takes another for it has neither: the host gets its own back.
    interface.attach(first.0.id()).expect("it moves");
    first.run("link set snic0 down");
    first.run("link set snic0 name mine address 02:00:00:00:00:99");
    first.run("link add snic0 type veth peer name other");
    interface.detach().expect("back");
    assert!(run("ip", "-brief link").contains("vf0@card"), "{}", host());
    assert!(first.run("-brief link").contains("snic0@other"));
    first.run("link delete snic0");

    // One that is nowhere may only be disguised. When its card has it again, nothing is left behind.
    interface.attach(first.0.id()).expect("it moves");
    run("ip", "link delete card");
    let lost = interface.detach().expect_err("nobody has it");
    assert!(matches!(lost, InterfaceError::Lost { .. }), "{lost}");
    run("ip", "link add vf0 type veth peer name card");
    interface.detach().expect("nothing is left");
    assert!(std::fs::read_dir("/run/netns").expect("a folder").next().is_none());

    // A TAP device may be disguised as well, but stays one. Where the pod has none, it ended with its card.
    run("ip", "link delete vf0");
    run("ip", "tuntap add vf0 mode tap");
    assert!(is_tap("vf0") && !is_tap("lo"));
    let tap = PodInterface { is_tap: true, ..interface.clone() };
    tap.attach(first.0.id()).expect("it moves");
    first.run("link set snic0 down");
    first.run("link set snic0 name mine address 02:00:00:00:00:99 alias other");
    let lost = tap.detach().expect_err("disguised");
    assert!(matches!(lost, InterfaceError::Lost { .. }), "{lost}");
    first.run("link delete mine");
    let lost = interface.detach().expect_err("of an unknown kind");
    assert!(matches!(lost, InterfaceError::Lost { .. }), "{lost}");
    tap.detach().expect("nothing is left");
    assert!(std::fs::read_dir("/run/netns").expect("a folder").next().is_none());
    first.end();
    second.end();
}

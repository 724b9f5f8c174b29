//! A Linux guest under libvirt at a port of the software card, a unix socket or vhost-user: its first packet passes its
//! DAG, and it does not notice that the daemon is killed. A guest whose memory the card shares comes back with its card, and
//! with a reset.
//!
//! The guest is this machine's kernel with busybox, under emulation; it says on its serial line what it sees.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;
use snic_api::v1;
use snic_api::v1::vm_binding::State;
use snic_bitstream::catalogue;
use snic_integration::{Home, TestClient, program};

use super::rig::{Host, chain, client, dag, dropped, observe, start_server, try_observe_card};
use super::{Libvirt, PATIENCE, UUID, binding, configure, missing, wait_for};

const BUSYBOX: &str = "/bin/busybox";
/// Modules that a guest needs for its network device, unless its kernel has them built in.
const DRIVERS: [&str; 2] = ["virtio_pci", "virtio_net"];
/// Pings while the daemon is killed.
const PINGS: usize = 40;

/// A kernel of this machine that a guest can run, and its modules.
pub struct Kernel {
    pub image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    pub fn find() -> Option<Self> {
        let kernels = std::fs::read_dir("/boot").ok()?.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let release = name.strip_prefix("vmlinuz-")?;
            let modules = Path::new("/lib/modules").join(release);
            modules.join("modules.dep").exists().then(|| Self { image: entry.path(), modules })
        });
        kernels.max_by_key(|kernel| kernel.image.clone())
    }

    /// The files of a driver and of what it needs, in the order of loading. None where it is built in.
    fn files(&self, driver: &str) -> Vec<PathBuf> {
        let list = std::fs::read_to_string(self.modules.join("modules.dep")).expect("a list");
        let of_driver = list.lines().find_map(|line| {
            let (file, needs) = line.split_once(':')?;
            let stem = file.rsplit('/').next()?.split('.').next()?;
            (stem == driver).then(|| needs.split_whitespace().rev().chain([file]))
        });
        of_driver.into_iter().flatten().map(|file| self.modules.join(file)).collect()
    }
}

/// Why no guest can run here.
pub fn no_guest() -> Option<String> {
    if let Some(why) = missing() {
        return Some(why);
    }
    if !Path::new(BUSYBOX).exists() {
        return Some(format!("{BUSYBOX} is missing: apt-get install busybox-static"));
    }
    match Kernel::find() {
        None => Some("no kernel in /boot: apt-get install linux-image-cloud-amd64".to_owned()),
        // What the guest's busybox loads is not packed.
        Some(kernel) => DRIVERS.iter().flat_map(|driver| kernel.files(driver)).find_map(|file| {
            let is_packed = file.extension().is_some_and(|extension| extension != "ko");
            is_packed.then(|| format!("{} is packed", file.display()))
        }),
    }
}

/// A root file system in memory with busybox, the drivers of the network device and more, and `script` as the first
/// process. What the folder `guest` holds already is in it too.
pub fn root(home: &Home, kernel: &Kernel, more: &[&str], script: &str) -> PathBuf {
    let folder = home.path().join("guest");
    for name in ["bin", "proc"] {
        std::fs::create_dir_all(folder.join(name)).expect("room for a folder");
    }
    std::fs::copy(BUSYBOX, folder.join("bin/busybox")).expect("room for a program");
    let mut init =
        "#!/bin/busybox sh\n/bin/busybox --install /bin\nmount -t proc proc /proc\n".to_owned();
    let mut known = BTreeSet::new();
    for file in DRIVERS.iter().chain(more).flat_map(|driver| kernel.files(driver)) {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a plain name");
        if known.insert(name.to_owned()) {
            std::fs::copy(&file, folder.join(name)).expect("room for a driver");
            init.push_str(&format!("insmod /{name}\n"));
        }
    }
    init.push_str(script);
    let path = folder.join("init");
    std::fs::write(&path, init).expect("room for a script");
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, runs).expect("it is this test's");
    let packed = home.path().join("guest.cpio");
    let pack = format!("{BUSYBOX} find . | {BUSYBOX} cpio -o -H newc");
    let status = Command::new("sh")
        .args(["-c", &pack])
        .current_dir(&folder)
        .stdout(std::fs::File::create(&packed).expect("room for a file"))
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("sh starts").success(), "busybox packs the guest's files");
    packed
}

/// Connection of a guest's network device to its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Device {
    /// QEMU reads and writes frames at a unix socket.
    Stream,
    /// The card reads and writes the guest's memory.
    SharedMemory,
}

impl Device {
    /// The port of the card.
    fn port(self, path: &Path) -> String {
        let kind = if self == Self::Stream { "unix" } else { "vhost-user" };
        format!("{kind}:{}", path.display())
    }

    /// Elements of a machine for it, outside of its devices and among them.
    fn parts(self, port: &Path) -> [String; 2] {
        let port = port.display();
        match self {
            Self::Stream => [
                format!(
                    "<qemu:commandline><qemu:arg value='-netdev'/>\
                     <qemu:arg value='stream,id=n0,server=off,addr.type=unix,addr.path={port}'/>\
                     <qemu:arg value='-device'/>\
                     <qemu:arg value='virtio-net-pci,netdev=n0,romfile=,addr=0x10,\
                     mac=52:54:00:00:00:01'/></qemu:commandline>"
                ),
                String::new(),
            ],
            // Without KVM, QEMU 7.2 fails over the interrupts of any vhost-user device that has MSI-X.
            Self::SharedMemory => [
                "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>\
                 <qemu:override><qemu:device alias='net0'><qemu:frontend>\
                 <qemu:property name='vectors' type='unsigned' value='0'/>\
                 </qemu:frontend></qemu:device></qemu:override>"
                    .into(),
                format!(
                    "<interface type='vhostuser'><mac address='52:54:00:00:00:01'/>\
                     <source type='unix' path='{port}' mode='client'>\
                     <reconnect enabled='yes' timeout='1'/></source>\
                     <model type='virtio'/><rom enabled='no'/></interface>"
                ),
            ],
        }
    }
}

/// A machine with a network device, whose serial line goes to a file.
fn domain(kernel: &Kernel, root: &Path, [outside, device]: &[String; 2], said: &Path) -> String {
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\
         <name>web1</name><uuid>{UUID}</uuid>\
         <metadata><snic:vm xmlns:snic='urn:snic:libvirt:vm:1' tenant='acme' functions='1'>\
         <snic:dag name='web'/><snic:mac address='52:54:00:00:00:01'/></snic:vm></metadata>\
         <memory unit='MiB'>160</memory><vcpu>1</vcpu>\
         <os><type arch='x86_64' machine='pc'>hvm</type><kernel>{}</kernel><initrd>{}</initrd>\
         <cmdline>console=ttyS0 quiet panic=-1</cmdline></os>\
         <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>\
         <serial type='file'><source path='{}'/></serial>{device}</devices>{outside}</domain>",
        kernel.image.display(),
        root.display(),
        said.display(),
    )
}

/// Waits until the guest has said this on its serial line.
pub fn until_said(said: &Path, words: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let text = String::from_utf8_lossy(&std::fs::read(said).unwrap_or_default()).into_owned();
        if text.contains(words) {
            return text;
        }
        assert!(Instant::now() < until, "it did not say {words:?}: {text}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Numbers of the pings that were answered between two lines.
pub fn answered(text: &str, from: &str, to: &str) -> Vec<usize> {
    let (_, rest) = text.split_once(from).expect("the guest says where it is");
    let (part, _) = rest.split_once(to).expect("the guest says where it is");
    let number = |line: &str| line.split_once("seq=")?.1.split(' ').next()?.parse().ok();
    part.lines().filter_map(number).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guests_first_packet_passes_its_dag_and_a_daemon_kill_costs_it_none() {
    check(Device::Stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_at_a_vhost_user_port_also_outlives_its_card_and_a_reset() {
    check(Device::SharedMemory).await;
}

/// A DAG that closes a port.
async fn set_up(operator: &TestClient) {
    operator.register(&catalogue::builtin().expect("the built-in catalogue")).await;
    operator.create_tenant("acme").await.expect("a new tenant");
    let rules = json!({"rules": [
        {"action": "accept", "protocol": "icmp"},
        {"action": "accept", "protocol": "tcp", "destination_ports": "8001"},
    ]});
    let spec = chain(&[("nat", None), ("firewall", Some(rules))]);
    operator.create_dag(&dag(), &spec).await.expect("there is room");
}

/// The guest of a card that is killed, and then of a reset.
async fn comes_back(
    home: &Home,
    ports: &[String],
    said: &Path,
    (libvirt, server): (&Libvirt, Host),
) {
    // The card goes with its device to the network, and comes back.
    let pid = home.card_pid();
    home.kill_card();
    until_said(said, "GONE");
    drop(server);
    let until = Instant::now() + PATIENCE;
    while home.card_pid() == pid || try_observe_card(&home.card_folder(), ports).is_none() {
        assert!(Instant::now() < until, "no card comes back");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let _server = Host::new("vmup", "10.77.0.2/24");
    until_said(said, "BACK");
    // The guest begins again, with rings of its own.
    libvirt.fine(&["reset", "web1"]);
    let until = Instant::now() + PATIENCE;
    while until_said(said, "KILL").matches("KILL").count() < 2 {
        assert!(Instant::now() < until, "it does not boot again");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let text = until_said(said, "BACK");
    let (_, second) = text.split_once("BACK").expect("it said so");
    assert_eq!(answered(second, "FIRST", "FETCH"), [0, 1, 2], "{text}");
}

async fn check(device: Device) {
    // Both have the same names of devices.
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = ONE_AT_A_TIME.lock().await;
    if let Some(why) = no_guest() {
        eprintln!("SKIPPED: no guest can run here: {why}");
        return;
    }
    let kernel = Kernel::find().expect("it was found");
    let home = Home::new();
    configure(&home, "");
    let port = home.path().join("guest.sock");
    let ports = ["tap:vmup".to_owned(), device.port(&port)];
    let program = program("snic-card");
    home.write_soft_settings(&format!(
        "uplink = {:?}\nfunctions = [{:?}]\nprogram = {program:?}",
        ports[0], ports[1]
    ));
    let mut daemon = home.start().await;
    let until = Instant::now() + PATIENCE;
    while !port.exists() {
        assert!(Instant::now() < until, "the card does not come up");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let server = Host::new("vmup", "10.77.0.2/24");
    let _servers = [8001, 8002].map(|port| start_server(&server, port));
    let operator = client(&home).await;
    set_up(&operator).await;

    let script = format!(
        "ip address add 10.77.0.1/24 dev eth0\nip link set eth0 up\n\
         echo FIRST; ping -c 3 -W 5 10.77.0.2; echo FETCH\n\
         printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 10.77.0.2 8001; echo\n\
         printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 10.77.0.2 8002; echo SHUT\n\
         echo KILL; ping -c {PINGS} -i 0.1 -W 5 10.77.0.2; echo DONE\n\
         until ! ping -c 1 -W 1 10.77.0.2; do :; done; echo GONE\n\
         until ping -c 1 -W 1 10.77.0.2; do :; done; echo BACK\n\
         sleep 1000000\n"
    );
    let root = root(&home, &kernel, &[], &script);
    let said = home.path().join("guest.serial");
    let libvirt = Libvirt::start(&home);
    libvirt.define(&home, &domain(&kernel, &root, &device.parts(&port), &said));
    let before = observe(&home, &ports);
    assert_eq!(before.ports[0].sent, 0, "nothing has passed yet: {before:?}");

    // libvirt waits for the hook, and the hook until the DAG serves.
    libvirt.start_machine().expect("it is bound");
    let bound = binding(&operator).await.expect("it is bound");
    assert_eq!((bound.state(), bound.dags[0].state()), (State::Bound, v1::dag::State::Ready));
    until_said(&said, "KILL");
    daemon.kill();
    daemon = home.start().await;
    let text = until_said(&said, "DONE");

    assert_eq!(answered(&text, "FIRST", "FETCH"), [0, 1, 2], "{text}");
    assert_eq!(answered(&text, "KILL", "DONE"), (0..PINGS).collect::<Vec<_>>(), "{text}");
    assert!(text.contains("8001 10.77.0.1") && !text.contains("8002 10.77.0.1"), "{text}");
    let after = observe(&home, &ports);
    let refused: u64 = dropped(&after, "firewall").iter().map(|(_, packets)| packets).sum();
    assert!(refused > 0, "the firewall shuts port 8002: {after:?}");
    assert!(after.packets_out as usize >= 2 * (3 + PINGS), "both ways by the DAG: {after:?}");
    if device == Device::SharedMemory {
        assert!(after.ports[1].method.contains("vhost-user"), "{after:?}");
        comes_back(&home, &ports, &said, (&libvirt, server)).await;
    }

    libvirt.fine(&["destroy", "web1"]);
    wait_for(&client(&home).await, State::Unbound).await;
    drop(daemon);
}

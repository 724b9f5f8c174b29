//! A Linux guest in QEMU at a port: it pings a host that this test plays, and again after a
//! reset.
//!
//! The guest is this machine's kernel with busybox, under emulation; it says on its serial line what it sees.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use snic_card_soft::{Port, Received};
use snic_nts::Pool;

const QEMU: &str = "/usr/bin/qemu-system-x86_64";
const BUSYBOX: &str = "/bin/busybox";
/// Longest time of a guest under emulation, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// The host's Ethernet address.
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// The kernel of this machine, and the files of its network driver in the order of loading.
fn kernel() -> Option<(PathBuf, Vec<PathBuf>)> {
    let images = std::fs::read_dir("/boot").ok()?.flatten().map(|entry| entry.path());
    let image = images
        .filter(|path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz-"))
        })
        .max()?;
    let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let modules = Path::new("/lib/modules").join(release);
    let list = std::fs::read_to_string(modules.join("modules.dep")).ok()?;
    let mut files = Vec::new();
    for driver in ["virtio_pci", "virtio_net"] {
        let line = list.lines().find(|line| line.contains(&format!("/{driver}.ko:")));
        // Without a line it is built in.
        let Some((file, needs)) = line.and_then(|line| line.split_once(':')) else { continue };
        for file in needs.split_whitespace().rev().chain([file]) {
            let file = modules.join(file);
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    Some((image, files))
}

/// Why no guest can run here. In CI that is a failure.
fn missing() -> Option<&'static str> {
    let why = match () {
        () if !Path::new(QEMU).exists() => "qemu-system-x86",
        () if !Path::new(BUSYBOX).exists() => "busybox-static",
        () if kernel().is_none() => "linux-image-cloud-amd64",
        () if !geteuid().is_root() => "root, who can read the kernel",
        () => return None,
    };
    assert!(std::env::var_os("CI").is_none(), "missing: {why}");
    Some(why)
}

struct Guest {
    folder: tempfile::TempDir,
    qemu: Child,
}

impl Guest {
    /// A guest that runs this script.
    fn start(port: &Path, script: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        for name in ["bin", "proc"] {
            std::fs::create_dir_all(root.join(name)).expect("a folder");
        }
        std::fs::copy(BUSYBOX, root.join("bin/busybox")).expect("a program");
        let (image, files) = kernel().expect("it was found");
        let mut init =
            "#!/bin/busybox sh\n/bin/busybox --install /bin\nmount -t proc proc /proc\n".to_owned();
        for file in &files {
            let name = file.file_name().expect("a file").to_str().expect("a plain name");
            std::fs::copy(file, root.join(name)).expect("a driver");
            init += &format!("insmod /{name}\n");
        }
        std::fs::write(root.join("init"), init + script).expect("a script");
        let pack =
            format!("chmod +x init && {BUSYBOX} find . | {BUSYBOX} cpio -o -H newc > ../root.cpio");
        let mut packed = Command::new("sh");
        packed.args(["-c", &pack]).current_dir(&root).stderr(Stdio::null());
        assert!(packed.status().expect("sh starts").success(), "busybox packs the guest's files");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let qemu = Command::new(QEMU)
            .args(["-accel", "tcg", "-m", "192M", "-display", "none", "-nodefaults"])
            .args(["-object", "memory-backend-memfd,id=ram,size=192M,share=on"])
            .args(["-machine", "pc,memory-backend=ram", "-append", "console=ttyS0 quiet panic=-1"])
            .args(["-kernel", &image.display().to_string(), "-initrd", &at("root.cpio")])
            .args(["-serial", &format!("file:{}", at("serial"))])
            .args(["-chardev", &format!("socket,id=c0,path={},reconnect=1", port.display())])
            .args(["-netdev", "vhost-user,id=n0,chardev=c0"])
            // Without KVM, QEMU 7.2 fails over the interrupts of any vhost-user device that has MSI-X.
            .args(["-device", "virtio-net-pci,netdev=n0,romfile=,vectors=0"])
            .args(["-monitor", &format!("unix:{},server=on,wait=off", at("monitor"))])
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("log")).expect("a file"))
            .spawn()
            .expect("QEMU starts");
        Self { folder, qemu }
    }

    fn said(&self) -> String {
        let text = |name| std::fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&[text("serial"), text("log")].concat()).into_owned()
    }

    /// Presses the machine's reset button.
    fn reset(&self) {
        let monitor = std::os::unix::net::UnixStream::connect(self.folder.path().join("monitor"));
        let mut monitor = monitor.expect("QEMU listens");
        std::io::Write::write_all(&mut monitor, b"system_reset\n").expect("QEMU listens");
        std::thread::sleep(Duration::from_millis(500));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 =
        bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Answer of the host 10.77.0.2: to who asks for its address, and to a ping.
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let mut answer = frame.to_vec();
    answer[..6].copy_from_slice(&frame[6..12]);
    answer[6..12].copy_from_slice(&HOST);
    match frame[12..14] {
        [8, 6]
            if frame.len() >= 42 && frame[20..22] == [0, 1] && frame[38..42] == [10, 77, 0, 2] =>
        {
            answer[21] = 2;
            answer[22..28].copy_from_slice(&HOST);
            answer[28..32].copy_from_slice(&frame[38..42]);
            answer[32..42].copy_from_slice(&frame[22..32]);
            Some(answer)
        }
        [8, 0] if frame.len() >= 42 && frame[23] == 1 && frame[34] == 8 => {
            answer[26..30].copy_from_slice(&frame[30..34]);
            answer[30..34].copy_from_slice(&frame[26..30]);
            answer[34..38].fill(0);
            let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let sum = checksum(&answer[34..end]);
            answer[36..38].copy_from_slice(&sum);
            Some(answer)
        }
        _ => None,
    }
}

/// Plays the host until the guest has said this so often; gives all that it said.
fn until_said(guest: &Guest, port: &mut dyn Port, (words, times): (&str, usize)) -> String {
    let pool = Pool::new(32, snic_card_soft::FRAME_BYTES_MAX);
    let until = Instant::now() + PATIENCE;
    loop {
        while let Received::Frame(packet) = port.receive(&pool).expect("it is there") {
            if let Some(answer) = answer(packet.bytes()) {
                port.send(&mut vec![pool.copy_of(&answer).expect("a buffer")]);
            }
        }
        let said = guest.said();
        if said.matches(words).count() >= times {
            return said;
        }
        assert!(Instant::now() < until, "it did not say {words:?} {times} times: {said}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_linux_guest_pings_through_its_port_and_again_after_a_reset() {
    if let Some(why) = missing() {
        println!("not run: missing: {why}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guest.sock");
    let mut port = snic_vhost_user::open(&path).expect("a socket");
    let guest = Guest::start(
        &path,
        "ip address add 10.77.0.1/24 dev eth0\nip link set eth0 up\n\
         echo FIRST; ping -c 3 -W 20 10.77.0.2; ping -c 2 -s 1400 -W 20 10.77.0.2; echo PINGED\n\
         sleep 1000000\n",
    );
    let answered = |said: &str| said.matches("bytes from 10.77.0.2").count();
    let said = until_said(&guest, port.as_mut(), ("PINGED", 1));
    assert_eq!(answered(&said), 5, "{said}");
    guest.reset();
    let said = until_said(&guest, port.as_mut(), ("PINGED", 2));
    assert_eq!(answered(&said), 10, "{said}");
}

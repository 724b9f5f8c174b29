//! ESP between the card and a Linux kernel: a host behind the card talks to a guest whose kernel has the other end of the
//! tunnel, by `ip xfrm`.
//!
//! ```text
//!   host 10.1.0.1 ── card: esp ══ ESP ══ guest's kernel 10.2.0.1
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use snic_integration::Home;

use super::PATIENCE;
use super::guest::{Kernel, answered, no_guest, root, until_said};
use super::rig::{Ending, Host, assert_no_loss, catalogue_of, chain, client, dag, observe, run};

/// Modules that the guest's kernel needs for ESP with AES-GCM, unless it has them built in.
const MODULES: [&str; 10] = [
    "hmac",
    "sha512_generic",
    "jitterentropy_rng",
    "drbg",
    "ctr",
    "ghash-generic",
    "gcm",
    "seqiv",
    "esp4",
    "xfrm_user",
];
/// Keys of 128 bits with their salts, one for each direction.
const KEYS: [&str; 2] =
    ["000102030405060708090a0b0c0d0e0f10111213", "202122232425262728292a2b2c2d2e2f30313233"];
const SPIS: [u32; 2] = [0x1001, 0x2001];
const HOST: &str = "10.77.0.1";
const GUEST: &str = "10.77.0.2";

/// Copies a program and its libraries to where a guest finds them.
fn copy_program(root: &Path, program: &str) {
    let libraries = Command::new("ldd").arg(program).output().expect("ldd starts");
    let libraries = String::from_utf8_lossy(&libraries.stdout).into_owned();
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths.chain([program]) {
        let to = root.join(&path[1..]);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("room for a folder");
        std::fs::copy(path, to).expect("room for a program");
    }
}

/// The guest's end of the tunnel. Plain packets from behind the other end are refused by its policy.
fn script(ip: &str) -> String {
    let [(to_guest, key), (to_host, back)] = [0, 1].map(|at| (SPIS[at], KEYS[at]));
    let state = |from: &str, to: &str, spi: u32, key: &str| {
        format!(
            "{ip} xfrm state add src {from} dst {to} proto esp spi {spi} mode tunnel \
             aead 'rfc4106(gcm(aes))' 0x{key} 128\n"
        )
    };
    let policy = |from: &str, to: &str, way: &str, ends: [&str; 2]| {
        format!(
            "{ip} xfrm policy add src {from} dst {to} dir {way} \
             tmpl src {} dst {} proto esp mode tunnel\n",
            ends[0], ends[1]
        )
    };
    format!(
        "{ip} link set lo up\n{ip} address add {GUEST}/24 dev eth0\n{ip} link set eth0 up\n\
         {ip} address add 10.2.0.1/32 dev lo\n\
         {ip} route add 10.1.0.0/24 via {HOST} src 10.2.0.1 mtu 1400\n{}{}{}{}\
         seq 1 100000 > /numbers\nhttpd -p 8001 -h /\necho READY\n\
         ping -c 5 -W 5 10.1.0.1; echo PINGED\n\
         sleep 1000000\n",
        state(HOST, GUEST, to_guest, key),
        state(GUEST, HOST, to_host, back),
        policy("10.1.0.0/24", "10.2.0.0/24", "in", [HOST, GUEST]),
        policy("10.2.0.0/24", "10.1.0.0/24", "out", [GUEST, HOST]),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_of_the_card_ends_at_a_linux_kernel() {
    if let Some(why) = no_guest() {
        eprintln!("SKIPPED: no guest can run here: {why}");
        return;
    }
    let kernel = Kernel::find().expect("it was found");
    let home = Home::new();
    let port = home.path().join("guest.sock");
    let ports = [format!("unix:{}", port.display()), "tap:espf0".to_owned()];
    home.write_soft_settings(&format!("uplink = {:?}\nfunctions = [{:?}]", ports[0], ports[1]));
    let _daemon = home.start().await;
    let until = Instant::now() + PATIENCE;
    while !port.exists() {
        assert!(Instant::now() < until, "the card does not come up");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let host = Host::new("espf0", &format!("{HOST}/24"));
    run("ip", "-n snic-espf0 address add 10.1.0.1/32 dev lo");
    run("ip", &format!("-n snic-espf0 route add 10.2.0.0/24 via {GUEST} src 10.1.0.1 mtu 1400"));
    let operator = client(&home).await;
    operator.register(&catalogue_of("esp")).await;
    operator.create_tenant("acme").await.expect("a new tenant");
    let told = json!({
        "local": HOST, "remote": GUEST,
        "local_prefixes": ["10.1.0.0/24"], "remote_prefixes": ["10.2.0.0/24"],
        "outbound": {"spi": SPIS[0], "key": KEYS[0]},
        "inbound": [{"spi": SPIS[1], "key": KEYS[1]}],
    });
    let operation = operator.create_dag(&dag(), &chain(&[("esp", Some(told))])).await;
    operator.wait(&operation.expect("there is room")).await.expect("it becomes ready");
    operator.lead_function(0, &dag()).await.expect("the DAG is there");

    let ip = ["/sbin/ip", "/usr/sbin/ip", "/bin/ip"].map(Path::new);
    let ip = ip.into_iter().find(|path| path.exists()).expect("iproute2 is there");
    let folder = home.path().join("guest");
    copy_program(&folder, ip.to_str().expect("a plain path"));
    let root = root(&home, &kernel, &MODULES, &script(&ip.display().to_string()));
    let said = home.path().join("guest.serial");
    let _guest = start(&kernel.image, &root, &port, &said);

    // From the guest, whose kernel encrypts and decrypts.
    let text = until_said(&said, "PINGED");
    assert_eq!(
        answered(&text, "READY", "PINGED"),
        [0, 1, 2, 3, 4],
        "{text}{:?}",
        observe(&home, &ports)
    );
    // And from the host, up to what fits the tunnel.
    for bytes in [1, 56, 1_000, 1_372] {
        let ping = host.run(&format!("ping -c 5 -i 0.05 -W 5 -s {bytes} 10.2.0.1"));
        assert_no_loss(&String::from_utf8_lossy(&ping.stdout));
    }
    let fetched = host.run("curl -s --max-time 60 http://10.2.0.1:8001/numbers");
    let numbers: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert!(fetched.stdout == numbers.as_bytes(), "{} bytes", fetched.stdout.len());
    let seen = observe(&home, &ports);
    let esp = seen.tasks.iter().find(|task| task.nt_type == "esp").expect("it is configured");
    // The host's own kernel looks for routers.
    let is_dropped = esp.dropped.iter().any(|(why, _)| why != "not_for_tunnel");
    assert!(esp.forwarded > 400 && !is_dropped, "{esp:?}");
}

/// A guest with this kernel and files, at a port of the card; what it says goes to a file. It is emulated: not every
/// machine that has KVM lets it run.
fn start(kernel: &Path, root: &PathBuf, port: &Path, said: &Path) -> Ending {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-accel", "tcg", "-m", "192", "-display", "none"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(root);
    command.args(["-append", "console=ttyS0 quiet panic=-1", "-monitor", "none"]);
    command.args(["-serial", &format!("file:{}", said.display())]);
    let port = format!("stream,id=n0,server=off,addr.type=unix,addr.path={}", port.display());
    command.args(["-netdev", &port, "-device", "virtio-net-pci,netdev=n0,romfile="]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ending(Some(command.spawn().expect("QEMU starts")))
}

//! Go-back-N between two cards: two daemons, each with a card and a Linux host at it, and between their uplinks
//! something that loses, repeats, damages and swaps frames.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use snic_bitstream::catalogue;
use snic_card_soft::{Observation, TaskObservation};
use snic_integration::{DaemonProcess, Home, TestClient};

use super::rig::{
    Host, Pings, READY_MAX, chain, client, dag, missing, observe, ready, run, station,
};

/// The transport adds 24 bytes to packets of 1,500.
const HOST_MTU: u32 = 1_476;
const ADDRESSES: [&str; 2] = ["10.79.0.1", "10.79.0.2"];

/// A daemon with a card, and the host at the card's function.
struct End {
    home: Home,
    daemon: Option<DaemonProcess>,
    client: TestClient,
    host: Host,
    device: String,
    ports: Vec<String>,
}

impl End {
    async fn new(name: &str, side: usize) -> Self {
        let home = Home::new();
        let device = format!("{name}{side}");
        let ports = vec![
            format!("unix:{}", home.path().join("up.sock").display()),
            format!("tap:{device}"),
        ];
        home.write_soft_settings(&format!("uplink = {:?}\nfunctions = [{:?}]", ports[0], ports[1]));
        let daemon = home.start().await;
        let until = Instant::now() + READY_MAX;
        while !home.path().join("up.sock").exists() {
            assert!(Instant::now() < until, "no card");
            std::thread::sleep(Duration::from_millis(10));
        }
        let host = Host::new(&device, &format!("{}/24", ADDRESSES[side]));
        run("ip", &format!("-n {} link set {device} mtu {HOST_MTU}", host.namespace));
        let client = client(&home).await;
        client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
        client.create_tenant("acme").await.expect("a new tenant");
        let spec = chain(&[("go-back-n", None)]);
        let operation = client.create_dag(&dag(), &spec).await.expect("there is room");
        client.wait(&operation).await.expect("it becomes ready");
        client.lead_function(0, &dag()).await.expect("the DAG is there");
        Self { home, daemon: Some(daemon), client, host, device, ports }
    }

    fn station(&self) -> String {
        station(&self.host, &self.device)
    }

    /// The host is told the other one's Ethernet address: ARP is not carried.
    fn know(&self, address: &str, station: &str) {
        let line = format!("neigh replace {address} lladdr {station} dev {}", self.device);
        run("ip", &format!("-n {} {line}", self.host.namespace));
    }

    async fn configure(&self, local: &str, peer: &str) {
        let told = json!({"local": local, "peer": peer, "timeout_ms": 5, "retries_max": 1_000});
        let spec = chain(&[("go-back-n", Some(told))]);
        let operation = self.client.update_dag(&dag(), &spec).await.expect("it fits");
        self.client.wait(&operation).await.expect("it is ready");
    }

    fn observe(&self) -> Observation {
        observe(&self.home, &self.ports)
    }

    fn task(&self) -> TaskObservation {
        self.observe().tasks.into_iter().next().expect("it is configured")
    }
}

/// Line between the uplinks.
struct Middle {
    ways: Vec<JoinHandle<()>>,
    streams: [UnixStream; 2],
    /// Frames that it passed on, and those that it did not pass on whole.
    passed: Arc<AtomicU64>,
    broken: Arc<AtomicU64>,
}

/// Numbers that look random (Knuth's multiplier), from a seed.
struct Dice(u64);

impl Dice {
    /// Whether something happens that does so in this many of a hundred.
    fn falls(&mut self, of_100: u64) -> bool {
        self.roll() % 100 < of_100
    }

    fn roll(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

impl Middle {
    fn new(ends: [&End; 2]) -> Self {
        let connect = |end: &End| {
            let path = end.ports[0].strip_prefix("unix:").expect("a socket");
            UnixStream::connect(path).expect("the card listens")
        };
        let streams = ends.map(connect);
        let (passed, broken) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let copy = |stream: &UnixStream| stream.try_clone().expect("a descriptor");
        let ways = [0, 1].map(|side| {
            let (from, mut to) = (copy(&streams[side]), copy(&streams[1 - side]));
            let (passed, broken) = (Arc::clone(&passed), Arc::clone(&broken));
            std::thread::spawn(move || {
                let mut held_back: Option<Vec<u8>> = None;
                let mut dice = Dice(side as u64);
                while let Some(mut frame) = read(&from) {
                    if dice.falls(10) {
                        broken.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    if dice.falls(2) && frame.len() > 40 {
                        broken.fetch_add(1, Ordering::Relaxed);
                        let at = 34 + dice.roll() as usize % (frame.len() - 34);
                        frame[at] ^= 1 << (dice.roll() % 8);
                    }
                    let mut out = vec![frame];
                    if dice.falls(3) {
                        out.push(out[0].clone());
                    }
                    if dice.falls(3) && held_back.is_none() {
                        held_back = out.pop();
                    } else {
                        out.extend(held_back.take());
                    }
                    for frame in out {
                        passed.fetch_add(1, Ordering::Relaxed);
                        let length = u32::try_from(frame.len()).expect("a frame").to_be_bytes();
                        if to.write_all(&[&length[..], &frame].concat()).is_err() {
                            return;
                        }
                    }
                }
            })
        });
        Self { ways: ways.into(), streams, passed, broken }
    }
}

/// The next frame: its length in four bytes, then its bytes.
fn read(mut from: &UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut frame).ok()?;
    Some(frame)
}

impl Drop for Middle {
    fn drop(&mut self) {
        for stream in &self.streams {
            // The card may have closed it already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for way in self.ways.drain(..) {
            let _ = way.join();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_lose_nothing_over_a_line_that_loses_a_tenth() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let (mut a, b) = (End::new("sgb", 0).await, End::new("sgb", 1).await);
    let middle = Middle::new([&a, &b]);
    a.know(ADDRESSES[1], &b.station());
    b.know(ADDRESSES[0], &a.station());
    // Hosts without configuration of the NT see the line as it is.
    let ping = a.host.run(&format!("ping -c 100 -i 0.005 -W 1 {}", ADDRESSES[1]));
    let said = String::from_utf8_lossy(&ping.stdout).into_owned();
    assert!(said.contains("packet loss") && !said.contains(" 0% packet loss"), "{said}");

    a.configure(ADDRESSES[0], ADDRESSES[1]).await;
    b.configure(ADDRESSES[1], ADDRESSES[0]).await;
    let pings = Pings::start(&a.host, ADDRESSES[1]);
    let broken = middle.broken.load(Ordering::Relaxed);
    // What is kept survives a drain of its region, and the daemon.
    let region = a.client.region_of(&dag()).await;
    a.client.drain(&region).await;
    ready(&a.client).await;
    assert_ne!(a.client.region_of(&dag()).await, region, "it was drained");
    a.daemon.take().expect("one runs").kill();
    a.daemon = Some(a.home.start().await);
    a.client = client(&a.home).await;
    ready(&a.client).await;
    let answered = pings.all_came_back();
    // TCP fills the window, which drops as any full queue does.
    let _server = b.host.start("iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    let stream = format!("iperf3 -c {} -t 3 -b 20M", ADDRESSES[1]);
    let stream = a.host.start(&stream).wait();
    assert!(stream.contains("receiver"), "{stream}");
    let broken = middle.broken.load(Ordering::Relaxed) - broken;
    let (near, far) = (a.task(), b.task());
    println!(
        "{stream}\n{answered} pings answered in order; {broken} frames lost or damaged of {}",
        middle.passed.load(Ordering::Relaxed) + broken
    );
    println!("{near:?}\n{far:?}");
    assert!(answered > 50 && broken > 100, "{answered} pings, {broken} frames");
    let of = |task: &TaskObservation, reason: &str| {
        let found = task.dropped.iter().find(|(name, _)| name == reason);
        found.map_or(0, |(_, packets)| *packets)
    };
    for task in [&near, &far] {
        assert!(of(task, "out_of_order") > 0 && of(task, "bad_checksum") > 0, "{task:?}");
        assert_eq!(of(task, "peer_unreachable"), 0, "{task:?}");
    }
}

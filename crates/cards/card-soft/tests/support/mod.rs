//! A card in this process, programmed through its registers, between two hosts.

#![allow(unreachable_pub, dead_code, reason = "each test binary uses a part of it")]

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snic_bitstream::catalogue;
use snic_card_soft::{
    CardExtras, CardFolder, Failover, FunctionGuard, Observation, PortSpec, Program, SoftCard,
    SoftCardSettings,
};
use snic_domain::{
    Bandwidth, ByteSize, CardModel, CardProfile, DagSpec, DagUid, Digest, NtConfiguration,
    NtNumber, NtType, NtTypeId,
};
use snic_ports::card::{Buffers as _, Card as _, Registers as _};
use snic_ports::packets::PortTraffic;
use snic_tables::registers::*;
use snic_tables::{
    ChainRow, ClassifierRow, CreditReservation, CreditRow, DagConfiguration, DagRow, InstanceRow,
    NONE, RateLimiterRow, RegionRow, StageRow, Steering, TableImage,
};

/// Set for the process that sends: for how many milliseconds.
const SENDER: &str = "SNIC_FLOOD_MS";
/// Payload of a frame of 60 bytes: 64 with its checksum.
const PAYLOAD: [u8; 18] = [0; 18];

pub fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().expect("ip starts");
    assert!(output.status.success(), "ip {line}: {output:?}");
}

/// Sends or listens, where this process was started to do so.
pub fn sender() -> bool {
    let Ok(millis) = std::env::var(SENDER) else { return false };
    let span = Duration::from_millis(millis.parse().expect("a number"));
    if span.is_zero() {
        // Somebody has the port; what is not read is dropped there, and no host complains to the sender.
        let _socket = UdpSocket::bind("10.91.0.2:4000").expect("the sink's address");
        std::thread::sleep(Duration::from_secs(60));
        return true;
    }
    let socket = UdpSocket::bind("10.90.0.2:4000").expect("the sender's address");
    socket.connect("10.91.0.2:4000").expect("a route");
    let (began, mut sent) = (Instant::now(), 0_u64);
    while began.elapsed() < span {
        for _ in 0..48 {
            // A full queue is no failure: it is no packet of the card.
            sent += u64::from(socket.send(&PAYLOAD).is_ok());
        }
    }
    println!("sent={sent}");
    true
}

/// A sender and a sink, each in a network namespace with one of these devices.
pub struct Hosts {
    namespaces: [String; 2],
    sink: Child,
}

impl Hosts {
    pub fn new(devices: [String; 2]) -> Self {
        let namespaces = devices.each_ref().map(|device| format!("snic-{device}"));
        for ((device, namespace), network) in devices.iter().zip(&namespaces).zip([90, 91]) {
            ip(&format!("netns add {namespace}"));
            ip(&format!("link set {device} netns {namespace}"));
            let inside = |line: &str| ip(&format!("-n {namespace} {line}"));
            inside(&format!("address add 10.{network}.0.2/24 dev {device}"));
            inside(&format!("link set {device} addrgenmode none"));
            inside(&format!("link set {device} address 02:00:00:00:00:{network}"));
            inside(&format!("link set {device} up"));
            inside(&format!("route add default via 10.{network}.0.1"));
            let other = 90 + 91 - network;
            inside(&format!(
                "neigh replace 10.{network}.0.1 lladdr 02:00:00:00:00:{other} dev {device}"
            ));
        }
        let sink = Self::command(&namespaces[1], Duration::ZERO).spawn().expect("it starts");
        Self { namespaces, sink }
    }

    /// This program in a namespace, as a part of the test.
    fn command(namespace: &str, span: Duration) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "taskset", "-c", "0"]);
        command.arg(std::env::current_exe().expect("a path")).arg("--nocapture");
        command.env(SENDER, span.as_millis().to_string()).stdout(Stdio::piped());
        command
    }

    /// Number of frames that were sent in this time.
    pub fn flood(&self, span: Duration) -> u64 {
        let output = Self::command(&self.namespaces[0], span).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let sent = said.split("sent=").nth(1).and_then(|rest| rest.lines().next());
        // What is in the queues gets to the card.
        std::thread::sleep(Duration::from_millis(200));
        sent.and_then(|text| text.trim().parse().ok()).expect("it says how many")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.sink.kill();
        let _ = self.sink.wait();
        for namespace in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

/// A card that was switched on.
pub struct Bench {
    card: SoftCard,
    profile: CardProfile,
    image: TableImage,
    limit: Option<RateLimiterRow>,
    version: u32,
    /// NTs of the DAG.
    chain: Vec<NtTypeId>,
    /// The name of the card's thread.
    thread: String,
}

impl Bench {
    pub fn start(uplink: &PortSpec, function: &PortSpec) -> Self {
        Self::with(uplink, std::slice::from_ref(function), Vec::new())
    }

    /// With several functions, and limits of their ports.
    pub fn with(uplink: &PortSpec, functions: &[PortSpec], guards: Vec<FunctionGuard>) -> Self {
        Self::with_failovers(uplink, functions, guards, Vec::new())
    }

    /// As [`Bench::with`], with stations that functions share.
    pub fn with_failovers(
        uplink: &PortSpec,
        functions: &[PortSpec],
        guards: Vec<FunctionGuard>,
        failovers: Vec<Failover>,
    ) -> Self {
        let catalogue = catalogue::builtin().expect("the built-in catalogue");
        let model = CardModel::new("sim-16").expect("a label");
        let profile = catalogue.card(&model).expect("it is there").clone();
        let settings = SoftCardSettings {
            model: model.to_string(),
            uplink: Some(uplink.clone()),
            functions: functions.to_vec(),
            guards,
            failovers,
            fast_path: false,
        };
        let place = CardFolder::new(&tempfile::tempdir().expect("a folder").keep());
        let thread = format!("card {}", functions[0].device());
        let (at, told, of) = (place.clone(), settings.clone(), profile.clone());
        std::thread::Builder::new()
            .name(thread.clone())
            .spawn(move || snic_card_soft::serve(&at, told, of, CardExtras::default()))
            .expect("a thread");
        let until = Instant::now() + Duration::from_secs(10);
        while !place.socket().exists() {
            assert!(Instant::now() < until, "no card");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self::of(&place, &settings, thread)
    }

    /// A card that serves this place, and was not programmed yet.
    pub fn of(place: &CardFolder, settings: &SoftCardSettings, thread: String) -> Self {
        let catalogue = catalogue::builtin().expect("the built-in catalogue");
        let model = CardModel::new(&settings.model).expect("a label");
        let profile = catalogue.card(&model).expect("it is there").clone();
        let program = Program { file: "/nonexistent".into(), arguments: Vec::new() };
        let card = SoftCard::open(place, &program, model, settings).expect("it answers");
        let (image, limit, version) = (TableImage::default(), None, 0);
        let chain = ["nat", "firewall"].map(|id| id.parse().expect("a label")).to_vec();
        Self { card, profile, image, limit, version, chain, thread }
    }

    /// Limits the DAG to this rate in kbit/s and burst with the next program.
    pub fn limit(&mut self, rate_kbps: u32, burst_bytes: u32) {
        let promised_kbps = rate_kbps;
        let row =
            RateLimiterRow { rate_kbps, burst_bytes, promised_kbps, packet_bytes: 0, weight: 1 };
        self.limit = Some(row);
    }

    /// Commits another image of the tables.
    fn commit(&mut self, target: TableImage) {
        for (key, words) in self.image.delta_to(&target).rows() {
            let at = shadow_row(key).expect("there");
            self.card.write_block(at, words).expect("there");
        }
        self.image = target;
        self.version += 1;
        self.card.write(COMMIT, self.version).expect("there");
        self.until(TABLE_VERSION, self.version);
        self.until(COMMIT_STATUS, COMMIT_IDLE);
    }

    /// Gives the DAG of [`Bench::program`] other configurations.
    pub fn tell(&mut self, told: &[Option<&str>]) {
        let configuration = self.configuration(told).expect("some are told");
        self.configure(&configuration);
        let mut target = self.image.clone();
        target.set(1, &Self::dag_row(Some(&configuration), self.limit.is_some())).expect("there");
        self.commit(target);
    }

    /// Configurations of the DAG's NTs, in the chain's order.
    fn configuration(&self, told: &[Option<&str>]) -> Option<DagConfiguration> {
        let mut spec = DagSpec::chain(&self.chain, Bandwidth::from_gbps(10));
        for (node, json) in spec.nodes.iter_mut().zip(told) {
            node.configuration = json.map(NtConfiguration::new);
        }
        let uid = DagUid::new(1, 1).expect("it fits");
        DagConfiguration::of(uid, &spec, |nt| NtNumber(nt.code().0))
    }

    /// Takes the DAG of [`Bench::program`] off the card.
    pub fn remove_dag(&mut self) {
        let mut target = self.image.clone();
        target
            .clear(snic_tables::RowKey { table: snic_tables::Table::Dag, row: 1 })
            .expect("there");
        self.commit(target);
    }

    fn dag_row(configuration: Option<&DagConfiguration>, is_limited: bool) -> DagRow {
        DagRow {
            tenant: 1,
            uid: DagUid::new(1, 1).expect("it fits").raw(),
            first_stage: 0,
            stages: 1,
            rate_limiter: if is_limited { 0 } else { NONE },
            payload: true,
            configuration: configuration.map_or(0, DagConfiguration::tag),
            guest: None,
        }
    }

    /// Packets and bytes of the DAG that came in, and that went out, as the card's registers count them.
    pub fn dag_counts(&mut self) -> [[u64; 2]; 2] {
        let mut words = [0; DAG_LOAD_ROW as usize / 4];
        self.card.read_block(DAG_LOAD + DAG_LOAD_ROW, &mut words).expect("there");
        let number = |at: usize| u64::from(words[2 * at]) | u64::from(words[2 * at + 1]) << 32;
        [[number(0), number(1)], [number(3), number(2)]]
    }

    /// Processor time of the card's thread so far.
    pub fn processor_time(&self) -> Duration {
        let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
        let mut folders = threads.map(|thread| thread.expect("it lives").path());
        let is_card = |folder: &PathBuf| {
            std::fs::read_to_string(folder.join("comm"))
                .is_ok_and(|name| name.trim() == self.thread)
        };
        let folder = folders.find(is_card).expect("the card runs");
        let text = std::fs::read_to_string(folder.join("schedstat")).expect("the card runs");
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("a number"))
    }

    pub fn ports(&mut self) -> Vec<PortTraffic> {
        self.observe().ports
    }

    pub fn observe(&mut self) -> Observation {
        self.card.observe().expect("the card answers")
    }

    /// Loads NAT and firewall, and leads all packets of function 0 through them.
    pub fn program(&mut self) {
        let nat = r#"{"inside":["10.90.0.2/32"],"external":["10.91.0.1"]}"#;
        let firewall = r#"{"rules":[{"action":"accept","protocol":"udp"}]}"#;
        self.program_with(&[Some(nat), Some(firewall)], Some(0));
    }

    /// Loads NTs of these types with these configurations, as [`Bench::program_with`] does NAT and firewall.
    pub fn program_chain(&mut self, chain: &[(&str, Option<&str>)], function: Option<u16>) {
        self.chain = chain.iter().map(|(id, _)| id.parse().expect("a label")).collect();
        let told: Vec<Option<&str>> = chain.iter().map(|(_, told)| *told).collect();
        self.program_with(&told, function);
    }

    /// Loads NAT and firewall with these configurations, and leads all packets of a function, or all that there are,
    /// through them. One without a configuration passes all frames on.
    pub fn program_with(&mut self, told: &[Option<&str>], function: Option<u16>) {
        let catalogue = catalogue::builtin().expect("the built-in catalogue");
        let nts: Vec<&NtType> = self
            .chain
            .iter()
            .map(|id| catalogue.nt_types.iter().find(|nt| nt.id == *id).expect("built in"))
            .collect();
        let bytes = snic_bitstream::build_test(&self.profile, &nts, ByteSize::from_bytes(64 << 10))
            .expect("fits");
        self.load(&bytes);
        let uid = DagUid::new(1, 1).expect("it fits");
        let configuration = self.configuration(told);
        if let Some(configuration) = &configuration {
            self.configure(configuration);
        }
        let mut target = self.image.clone();
        let code = |slot: usize| nts.get(slot).map_or(0, |nt| nt.id.code().0);
        let region = RegionRow {
            user_nt: false,
            bitstream_tag: Digest::of(&bytes).words()[0],
            nts: std::array::from_fn(code),
        };
        let initial = [self.profile.credits_initial; 8];
        let credits = CreditRow { initial, reservation: CreditReservation::Chain };
        target.set(0, &region).expect("there");
        target.set(0, &credits).expect("there");
        let used = (1 << self.chain.len()) - 1;
        target.set(0, &InstanceRow::in_region(0, used, 1)).expect("there");
        let chain = ChainRow { first_instance: 0, instances: 1, steering: Steering::RoundRobin };
        target.set(0, &chain).expect("there");
        let chains = [0, NONE, NONE, NONE];
        target.set(0, &StageRow { chains, join_mask: 1, next: NONE, last: true }).expect("there");
        if let Some(limit) = &self.limit {
            target.set(0, limit).expect("there");
        }
        let dag = Self::dag_row(configuration.as_ref(), self.limit.is_some());
        target.set(1, &dag).expect("there");
        let rule = ClassifierRow {
            dag_uid: uid.raw(),
            priority: 0,
            virtual_function: function,
            vni: None,
            source: (0, 0),
            destination: (0, 0),
            protocol: None,
            source_port: None,
            destination_port: None,
            vlan: None,
        };
        target.set(0, &rule).expect("there");
        self.commit(target);
    }

    fn load(&mut self, bytes: &[u8]) {
        let buffer = self.card.stage(bytes).expect("room");
        self.card.write(region(0, REGION_CONTROL), REGION_DECOUPLE).expect("there");
        let digest = Digest::of(bytes).words();
        self.card.write_block(region(0, REGION_DIGEST_NEXT), &digest).expect("there");
        for (at, value) in [
            (LOAD_REGION, 0),
            (LOAD_BUFFER_LOW, buffer as u32),
            (LOAD_BUFFER_HIGH, (buffer >> 32) as u32),
            (LOAD_BYTES, bytes.len() as u32),
            (LOAD_START, 1),
        ] {
            self.card.write(at, value).expect("there");
        }
        self.until(LOAD_STATUS, LOAD_DONE);
        self.card.write(region(0, REGION_CONTROL), 0).expect("there");
        self.card.release(buffer).expect("staged");
    }

    fn configure(&mut self, configuration: &DagConfiguration) {
        let buffer = self.card.stage(configuration.bytes()).expect("room");
        for (at, value) in [
            (CONFIGURE_BUFFER_LOW, buffer as u32),
            (CONFIGURE_BUFFER_HIGH, (buffer >> 32) as u32),
            (CONFIGURE_BYTES, configuration.bytes().len() as u32),
            (CONFIGURE_UID, configuration.uid.raw()),
            (CONFIGURE_TAG, configuration.tag()),
            (CONFIGURE_START, 1),
        ] {
            self.card.write(at, value).expect("there");
        }
        self.until(CONFIGURE_STATUS, CONFIGURE_DONE);
        self.card.release(buffer).expect("staged");
    }

    fn until(&mut self, at: Address, value: u32) {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            self.card.poll(snic_domain::Timestamp::ZERO).expect("the card answers");
            let read = self.card.read(at).expect("there");
            if read == value {
                return;
            }
            assert!(Instant::now() < until, "{at:#x} is {read}, not {value}");
        }
    }
}

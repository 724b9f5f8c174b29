//! The program in the kernel, and its maps.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfError, include_bytes_aligned};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::time::{ClockId, clock_gettime};

use crate::layout::{
    COUNTS_BYTES, DagCounts, DagProfile, KEY_BYTES, KernelRule, PROFILE_BYTES, RULE_BYTES, RuleUse,
    USE_BYTES,
};

/// The program, compiled; empty where the build had no compiler.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flows.o"));

/// Reason why there is no fast path, or why a change of it failed.
#[derive(Debug, thiserror::Error)]
pub enum FastPathError {
    /// The crate was built without its program.
    #[error(
        "this program was built without clang, which compiles the fast path: install clang and build again"
    )]
    WithoutCompiler,
    /// The kernel did not take the program.
    #[error(
        "the kernel does not take the fast path's program (it needs root and Linux 6.6 or later): {0}"
    )]
    Load(#[source] Box<EbpfError>),
    /// The program was not verified, or the device does not take it.
    #[error(
        "the fast path's program cannot run at {device} (it needs root and Linux 6.6 or later): {error}"
    )]
    Attach {
        /// The port's device.
        device: String,
        #[source]
        error: Box<ProgramError>,
    },
    /// A device is not there.
    #[error("no network device {0:?} in this namespace")]
    NoDevice(String),
    /// A map is full, or an index is out of its range.
    #[error("the fast path's map {map} does not take the change")]
    Map {
        /// Name of the map.
        map: &'static str,
        #[source]
        error: Box<MapError>,
    },
    /// The program runs without an end.
    #[error("the fast path's program does not end")]
    Busy,
    /// The rule is for packets that the program does not read.
    #[error("the fast path takes no rules for frames with VLAN tags or to several stations")]
    NotForKernel,
}

type Table<K, V> = HashMap<MapData, K, V>;

/// The fast path of a card. It ends when this is dropped.
pub struct FastPath {
    program: Ebpf,
    flows: Table<[u8; KEY_BYTES], [u8; RULE_BYTES]>,
    ports: Table<u32, u32>,
    version: Array<MapData, u32>,
    profiles: Array<MapData, [u8; PROFILE_BYTES]>,
    dags: PerCpuArray<MapData, [u8; COUNTS_BYTES]>,
    uses: Array<MapData, [u8; USE_BYTES]>,
    buckets: Array<MapData, u64>,
    slow_packets: Array<MapData, u64>,
    running: PerCpuArray<MapData, u64>,
}

impl std::fmt::Debug for FastPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastPath").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Longest time that a program may run, on a processor that others use as well.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// The system's monotonic clock, which the program reads.
pub(crate) fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// Name of the program in `kernel/flows.c`.
const PROGRAM: &str = "forward";

/// The error of a map.
fn of(map: &'static str) -> impl Fn(MapError) -> FastPathError {
    move |error| FastPathError::Map { map, error: Box::new(error) }
}

/// Takes a map out of the program.
fn take<T: TryFrom<Map, Error = MapError>>(
    program: &mut Ebpf,
    name: &'static str,
) -> Result<T, FastPathError> {
    let missing = || MapError::InvalidName { name: name.to_owned() };
    let map = program.take_map(name).ok_or_else(missing).map_err(of(name))?;
    T::try_from(map).map_err(of(name))
}

/// The index of a device of this thread's namespace.
fn index_of(device: &str) -> Result<u32, FastPathError> {
    // Not in /sys: what is mounted there may be of another namespace.
    let found = socket(AddressFamily::INET, SocketType::DGRAM, None)
        .and_then(|socket| name_to_index(socket, device));
    found.map_err(|_| FastPathError::NoDevice(device.to_owned()))
}

impl FastPath {
    /// Loads the program, which is at no port yet.
    ///
    /// # Errors
    /// The crate was built without clang, the process is not root, or the kernel is too old.
    pub fn load() -> Result<Self, FastPathError> {
        if OBJECT.is_empty() {
            return Err(FastPathError::WithoutCompiler);
        }
        let not_loaded = |error| FastPathError::Load(Box::new(error));
        let mut program = Ebpf::load(OBJECT).map_err(not_loaded)?;
        let forward = classifier(&mut program)?;
        forward.load().map_err(|error| not_loaded(EbpfError::ProgramError(error)))?;
        Ok(Self {
            flows: take(&mut program, "flows")?,
            ports: take(&mut program, "ports")?,
            version: take(&mut program, "version")?,
            profiles: take(&mut program, "profiles")?,
            buckets: take(&mut program, "buckets")?,
            slow_packets: take(&mut program, "slow_packets")?,
            running: take(&mut program, "running")?,
            dags: take(&mut program, "dags")?,
            uses: take(&mut program, "uses")?,
            program,
        })
    }

    /// Puts the program at a port of this thread's namespace: frames without a rule go to the device `slow` from now on. Gives
    /// the port's index.
    ///
    /// # Errors
    /// A device is not there, or the kernel has no tcx.
    pub fn attach(&mut self, port: &str, slow: &str) -> Result<u32, FastPathError> {
        let (index, slow) = (index_of(port)?, index_of(slow)?);
        // Before the program is there: it drops what it knows no device for.
        self.ports.insert(index, slow, 0).map_err(of("ports"))?;
        let forward = classifier(&mut self.program)?;
        let first = TcAttachOptions::TcxOrder(LinkOrder::first());
        let attached = forward.attach_with_options(port, TcAttachType::Ingress, first);
        attached.map_err(|error| FastPathError::Attach {
            device: port.to_owned(),
            error: Box::new(error),
        })?;
        Ok(index)
    }

    /// The card's tables have a new version: rules of all others end at once.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn set_version(&mut self, version: u32) -> Result<(), FastPathError> {
        self.version.set(0, version, 0).map_err(of("version"))
    }

    /// A DAG's row has a new generation, rate or burst: its rules of other generations end at once. Its bucket keeps the time at which it is
    /// full again.
    ///
    /// # Errors
    /// The row is out of range.
    pub fn set_dag(&mut self, row: u16, profile: &DagProfile) -> Result<(), FastPathError> {
        self.profiles.set(u32::from(row), profile.value(), 0).map_err(of("profiles"))
    }

    /// Hands a DAG over with a bucket that is full in `full_in`: its rules hold until more than `slow` packets of flows with rules went to
    /// the card.
    ///
    /// # Errors
    /// The row is out of range.
    pub fn hand_over(
        &mut self,
        row: u16,
        profile: &DagProfile,
        full_in: Duration,
        slow: u64,
    ) -> Result<(), FastPathError> {
        // In the program's unit, 2⁻⁶ ns.
        let full_at = monotonic_nanos().saturating_add(full_in.as_nanos() as u64) << 6;
        // Before the program has the DAG, and writes there.
        self.buckets.set(u32::from(row), full_at, 0).map_err(of("buckets"))?;
        self.profiles.set(u32::from(row), profile.ordered(slow), 0).map_err(of("profiles"))
    }

    /// Drops all packets of a DAG's rules with this generation.
    ///
    /// # Errors
    /// The row is out of range.
    pub fn hold_back(&mut self, row: u16, generation: u32) -> Result<(), FastPathError> {
        let profile = DagProfile { generation, rate_kbps: u32::MAX, burst_bytes: u32::MAX };
        self.profiles.set(u32::from(row), profile.held_back(), 0).map_err(of("profiles"))
    }

    /// Packets of a row's flows with rules that went to the card, so far. A merged packet is one.
    ///
    /// # Errors
    /// The row is out of range.
    pub fn slow_packets(&self, row: u16) -> Result<u64, FastPathError> {
        self.slow_packets.get(&u32::from(row), 0).map_err(of("slow_packets"))
    }

    /// Waits until no program runs that has begun before the last change.
    ///
    /// # Errors
    /// One runs for more than a second.
    pub fn settle(&self) -> Result<(), FastPathError> {
        // A program that begins behind this sees what was changed before it.
        fence(Ordering::SeqCst);
        let turns = || self.running.get(&0, 0).map_err(of("running"));
        let (first, began) = (turns()?, Instant::now());
        let mut busy: Vec<usize> = (0..first.len()).filter(|at| first[*at] % 2 == 1).collect();
        while !busy.is_empty() {
            if began.elapsed() > SETTLE_MAX {
                return Err(FastPathError::Busy);
            }
            let now = turns()?;
            busy.retain(|at| now[*at] == first[*at]);
        }
        Ok(())
    }

    /// A DAG is no more: none of its rules holds.
    ///
    /// # Errors
    /// The row is out of range.
    pub fn remove_dag(&mut self, row: u16) -> Result<(), FastPathError> {
        self.profiles.set(u32::from(row), [0; PROFILE_BYTES], 0).map_err(of("profiles"))
    }

    /// Gives a flow a rule, in place of the one that it has.
    ///
    /// # Errors
    /// The table is full, or the program does not read such frames.
    pub fn set_rule(&mut self, rule: &KernelRule) -> Result<(), FastPathError> {
        if !rule.is_for_kernel() {
            return Err(FastPathError::NotForKernel);
        }
        self.flows.insert(rule.key(), rule.value(), 0).map_err(of("flows"))
    }

    /// Removes the rule of a flow, if it has one.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn remove_rule(&mut self, rule: &KernelRule) -> Result<(), FastPathError> {
        self.remove_key(&rule.key())
    }

    pub(crate) fn remove_key(&mut self, key: &[u8; KEY_BYTES]) -> Result<(), FastPathError> {
        match self.flows.remove(key) {
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            removed => removed.map_err(of("flows")),
        }
    }

    /// Counts of a DAG since the program was loaded, over all DAGs that had the row.
    ///
    /// # Errors
    /// The row is out of range.
    pub fn dag_counts(&self, row: u16) -> Result<DagCounts, FastPathError> {
        let each = self.dags.get(&u32::from(row), 0).map_err(of("dags"))?;
        Ok(DagCounts::of(each.iter()))
    }

    /// Use of a slot's rules since the program was loaded.
    ///
    /// # Errors
    /// The slot is out of range.
    pub fn rule_use(&self, slot: u32) -> Result<RuleUse, FastPathError> {
        self.uses.get(&slot, 0).map_err(of("uses")).map(|bytes| RuleUse::of(&bytes))
    }
}

/// The program among what was loaded.
fn classifier(program: &mut Ebpf) -> Result<&mut SchedClassifier, FastPathError> {
    let invalid = || ProgramError::InvalidName { name: PROGRAM.to_owned() };
    let found = program.program_mut(PROGRAM).ok_or_else(invalid);
    found
        .and_then(TryInto::try_into)
        .map_err(|error| FastPathError::Load(Box::new(EbpfError::ProgramError(error))))
}

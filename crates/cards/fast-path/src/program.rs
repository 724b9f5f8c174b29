//! The program in the kernel, and its maps.

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfError, include_bytes_aligned};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

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
}

impl std::fmt::Debug for FastPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastPath").field("program", &self.program).finish_non_exhaustive()
    }
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
        match self.flows.remove(&rule.key()) {
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

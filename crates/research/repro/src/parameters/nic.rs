//! The BlueField-3's card model as parameters: `nic.dpa.threads_usable`, `nic.dpa.host.read_bytes_per_second`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, Result};
use snic_domain::{Bandwidth, ByteSize};
use snic_processors::{ByteRate, MemoryKind, MemoryPath, NicModel, Processor, ProcessorKind};

use super::table::{
    BF3_ARM_READ, BF3_ARM_WRITE, BF3_DPA_READ, BF3_DPA_WRITE, BF3_PCIE_NANOS, BF3_SWITCH_NANOS,
};
use super::{InvalidParameter, Parameters, text, within};

const FILE: &str = include_str!("../../../../../bitstreams/models/bluefield-3.toml");
const NAME: &str = "bitstreams/models/bluefield-3.toml";

/// A key of a processor or of its way to a memory. `None` is unknown.
struct NicField<T> {
    key: &'static str,
    get: fn(&T) -> Option<f64>,
    set: fn(&mut T, f64),
    high: f64,
}

const PROCESSOR: &[NicField<Processor>] = &[
    NicField {
        key: "threads_usable",
        get: |one| one.usable().map(f64::from),
        set: |one, value| one.threads_usable = NonZeroU32::new(value as u32),
        high: 1e5,
    },
    NicField {
        key: "thread_read_bytes_per_second",
        get: |one| one.thread_read.map(rate),
        set: |one, value| one.thread_read = Some(ByteRate::new(value as u64)),
        high: 1e13,
    },
];

const PATH: &[NicField<MemoryPath>] = &[
    NicField {
        key: "read_bytes_per_second",
        get: |path| path.read.map(rate),
        set: |path, value| path.read = Some(ByteRate::new(value as u64)),
        high: 1e13,
    },
    NicField {
        key: "write_bytes_per_second",
        get: |path| path.write.map(rate),
        set: |path, value| path.write = Some(ByteRate::new(value as u64)),
        high: 1e13,
    },
    NicField {
        key: "cache_bytes",
        get: |path| path.cache.map(|size| size.get() as f64),
        set: |path, value| path.cache = Some(ByteSize::from_bytes(value as u64)),
        high: 1e12,
    },
    NicField {
        key: "cache_gain",
        get: |path| path.cache_gain.map(|gain| f64::from(gain.get())),
        set: |path, value| path.cache_gain = NonZeroU32::new(value as u32),
        high: 1e4,
    },
    NicField {
        key: "receive_bps",
        get: |path| path.receive.map(|most| most.get() as f64),
        set: |path, value| path.receive = Some(Bandwidth::from_bps(value as u64)),
        high: 1e13,
    },
    NicField {
        key: "send_bps",
        get: |path| path.send.map(|most| most.get() as f64),
        set: |path, value| path.send = Some(Bandwidth::from_bps(value as u64)),
        high: 1e13,
    },
];

const PROCESSORS: [(&str, ProcessorKind); 3] =
    [("dpa", ProcessorKind::Dpa), ("arm", ProcessorKind::Arm), ("host", ProcessorKind::Host)];
const MEMORIES: [(&str, MemoryKind); 3] =
    [("dpa", MemoryKind::Dpa), ("arm", MemoryKind::Arm), ("host", MemoryKind::Host)];

fn rate(rate: ByteRate) -> f64 {
    rate.get() as f64
}

/// The model as shipped.
pub(super) fn load() -> Result<NicModel> {
    let models = snic_processors::parse(NAME, FILE)?;
    models.into_iter().next().context("the file has the model")
}

/// Sets a value. `None`: there is no such key.
pub(super) fn set(
    nic: &mut NicModel,
    processor: &str,
    rest: &[&str],
    (key, value): (&str, f64),
) -> Option<Result<(), InvalidParameter>> {
    let (_, kind) = PROCESSORS.iter().find(|(name, _)| *name == processor)?;
    let processor = nic.processors.iter_mut().find(|one| one.kind == *kind)?;
    match rest {
        [name] => {
            let field = PROCESSOR.iter().find(|field| field.key == *name)?;
            Some(within(key, value, 1.0, field.high).map(|()| (field.set)(processor, value)))
        }
        [memory, name] => {
            let (_, memory) = MEMORIES.iter().find(|(name, _)| name == memory)?;
            let path = processor.memories.iter_mut().find(|path| path.memory == *memory)?;
            let field = PATH.iter().find(|field| field.key == *name)?;
            Some(within(key, value, 1.0, field.high).map(|()| (field.set)(path, value)))
        }
        _ => None,
    }
}

/// Key, value and source of each that is known.
pub(super) fn list(nic: &NicModel) -> Vec<(String, String, String)> {
    let sources = sources();
    let mut list = Vec::new();
    let mut add = |key: String, value: Option<f64>| {
        if let Some(value) = value {
            let source = sources.get(&key).cloned().unwrap_or_else(|| NAME.into());
            list.push((key, text(&[value]), source));
        }
    };
    for (name, kind) in PROCESSORS {
        let Some(processor) = nic.processor(kind) else { continue };
        for field in PROCESSOR {
            add(format!("nic.{name}.{}", field.key), (field.get)(processor));
        }
        for (memory, kind) in MEMORIES {
            let Some(path) = processor.path(kind) else { continue };
            for field in PATH {
                add(format!("nic.{name}.{memory}.{}", field.key), (field.get)(path));
            }
        }
    }
    list
}

/// Source of each key, from the file.
fn sources() -> BTreeMap<String, String> {
    let (mut processor, mut memory) = (String::new(), None);
    let mut sources = BTreeMap::new();
    let lines = FILE.lines().take_while(|line| !line.starts_with("[[models.implementations"));
    for line in lines {
        if line.starts_with("[[models.processors]]") {
            memory = None;
        }
        let Some((key, rest)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let value = rest.split('#').next().unwrap_or_default().trim().trim_matches('"');
        match key {
            "kind" => processor = value.to_owned(),
            "memory" => memory = Some(value.to_owned()),
            _ => {}
        }
        if let Some((_, source)) = rest.split_once('#') {
            let memory = memory.as_ref().map(|memory| format!("{memory}.")).unwrap_or_default();
            sources.insert(format!("nic.{processor}.{memory}{key}"), source.trim().to_owned());
        }
    }
    sources
}

impl Parameters {
    /// The BlueField-3 with what its study does not print from the table: rates of DPA and Arm memory, and
    /// what a packet takes to a processor and back, by the crossings of switch and PCIe on its way.
    pub(crate) fn bluefield3(&self) -> NicModel {
        let mut nic = self.nic.clone();
        let switch = self.value(&BF3_SWITCH_NANOS);
        let pcie = self.value(&BF3_PCIE_NANOS);
        for processor in &mut nic.processors {
            let kind = processor.kind;
            for path in &mut processor.memories {
                // Promises count small packets as large ones, which is a bound; figures predict.
                path.network_packet = None;
                let crossings = match (kind, path.memory) {
                    (ProcessorKind::Dpa, MemoryKind::Dpa) => Some(0.0),
                    (ProcessorKind::Arm, MemoryKind::Arm) => Some(2.0 * switch),
                    (ProcessorKind::Host, MemoryKind::Host) => Some(2.0 * (switch + pcie)),
                    _ => None,
                };
                path.network = crossings.map(|nanos| Duration::from_nanos(nanos as u64));
                let (read, write) = match (kind, path.memory) {
                    (ProcessorKind::Dpa, MemoryKind::Dpa) => (&BF3_DPA_READ, &BF3_DPA_WRITE),
                    (ProcessorKind::Dpa, MemoryKind::Arm) => (&BF3_ARM_READ, &BF3_ARM_WRITE),
                    _ => continue,
                };
                path.read.get_or_insert(ByteRate::new(self.count(read)));
                path.write.get_or_insert(ByteRate::new(self.count(write)));
            }
        }
        nic
    }
}

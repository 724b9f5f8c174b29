//! Use of a card's processors by programs.

use serde::{Deserialize, Serialize};
use snic_domain::{
    Bandwidth, ByteSize, CardProfile, Dag, Mapping, MemoryKind, NtProgram, ProcessorKind, Resource,
};

/// Part of a card's processors that programs take, in the order of the kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessorUse {
    pub(crate) threads: [u32; ProcessorKind::ALL.len()],
    /// Bytes of working sets.
    pub(crate) memory: [u64; MemoryKind::ALL.len()],
    /// Bit/s that each memory receives for each kind of processor; small packets count as large ones.
    pub(crate) received: [[u64; MemoryKind::ALL.len()]; ProcessorKind::ALL.len()],
}

impl ProcessorUse {
    /// Part of a card that the programs of a mapping take for a DAG.
    pub fn of(mapping: &Mapping, dag: &Dag, profile: &CardProfile) -> Self {
        let path = |program: &NtProgram| {
            let mut processors = profile.processors.iter();
            let processor = processors.find(|one| one.kind == program.processor)?;
            processor.memories.iter().find(|path| path.memory == program.network)
        };
        let mut all = Self::default();
        for program in &mapping.programs {
            let (kind, network) = (program.processor as usize, program.network as usize);
            all.threads[kind] = all.threads[kind].saturating_add(program.threads);
            let memory = &mut all.memory[program.working as usize];
            *memory = memory.saturating_add(program.working_set.get());
            let received = &mut all.received[kind][network];
            let packets = &dag.spec().packet_sizes;
            let bandwidth = dag.bandwidth();
            let taken = path(program).map_or(bandwidth, |path| path.received(packets, bandwidth));
            *received = received.saturating_add(taken.get());
        }
        all
    }

    /// Limits of a card. What nobody printed or measured has no limit.
    pub(crate) fn limits(profile: &CardProfile) -> Self {
        let mut all = Self {
            threads: [0; ProcessorKind::ALL.len()],
            memory: [u64::MAX; MemoryKind::ALL.len()],
            received: [[u64::MAX; MemoryKind::ALL.len()]; ProcessorKind::ALL.len()],
        };
        for processor in &profile.processors {
            let kind = processor.kind as usize;
            all.threads[kind] = processor.threads;
            for path in &processor.memories {
                let memory = path.memory as usize;
                let size = path.size.map_or(u64::MAX, ByteSize::get);
                all.memory[memory] = all.memory[memory].min(size);
                all.received[kind][memory] = path.receive.map_or(u64::MAX, Bandwidth::get);
            }
        }
        all
    }

    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let narrow = |a: u32, b: u32| u32::try_from(f(a.into(), b.into())).unwrap_or(u32::MAX);
        let received = |kind: usize| {
            std::array::from_fn(|memory| {
                f(self.received[kind][memory], other.received[kind][memory])
            })
        };
        Self {
            threads: std::array::from_fn(|kind| narrow(self.threads[kind], other.threads[kind])),
            memory: std::array::from_fn(|kind| f(self.memory[kind], other.memory[kind])),
            received: std::array::from_fn(received),
        }
    }

    pub fn max(self, other: Self) -> Self {
        self.zip(other, u64::max)
    }

    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    pub fn minus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    /// Each amount with the resource that it is of, beside the same of `other`.
    pub(crate) fn beside(self, other: Self) -> impl Iterator<Item = (Resource, u64, u64)> {
        let threads = self.threads.into_iter().zip(other.threads);
        let threads = threads.map(|(a, b)| (Resource::Threads, a.into(), b.into()));
        let memory = self.memory.into_iter().zip(other.memory);
        let memory = memory.map(|(a, b)| (Resource::ProgramMemory, a, b));
        let received =
            self.received.into_iter().flatten().zip(other.received.into_iter().flatten());
        let received = received.map(|(a, b)| (Resource::ReceiveBandwidth, a, b));
        threads.chain(memory).chain(received)
    }
}

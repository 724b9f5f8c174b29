//! A DAG's programs on their way to a card: an entry of its configurations, with a line for each program.
//!
//! ```text
//! NT type      processor  threads  packets  working set  its bytes
//! l2-reflector dpa        48       arm      arm          0
//! ```
//!
//! The start of a program says nothing of what it serves: that is the card's to show.

use std::fmt::Write as _;

use snic_domain::{MemoryKind, NtNumber, NtProgram, ProcessorKind};

use crate::nt_entry::NtEntry;

/// The number of the entry: no NT type has it.
pub const PROGRAMS: NtNumber = NtNumber(u32::MAX);

/// Start of one NT on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramStart {
    /// The NT type.
    pub nt_type: String,
    /// Where it runs.
    pub processor: ProcessorKind,
    /// On how many threads.
    pub threads: u32,
    /// Where its packets are received and sent.
    pub network: MemoryKind,
    /// Where its working set is.
    pub working: MemoryKind,
    /// The size of the working set, in bytes.
    pub working_set: u64,
}

const fn processor_word(kind: ProcessorKind) -> &'static str {
    match kind {
        ProcessorKind::Dpa => "dpa",
        ProcessorKind::Arm => "arm",
        ProcessorKind::Other => "other",
        ProcessorKind::Host => "host",
    }
}

const fn memory_word(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Dpa => "dpa",
        MemoryKind::Arm => "arm",
        MemoryKind::Host => "host",
    }
}

/// The lines of a DAG's programs, in the order that packets pass them.
pub(crate) fn lines(programs: &[NtProgram]) -> String {
    let mut text = String::new();
    for program in programs {
        let NtProgram { nt, processor, threads, network, working, working_set, .. } = program;
        let (processor, bytes) = (processor_word(*processor), working_set.get());
        let (network, working) = (memory_word(*network), memory_word(*working));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{nt} {processor} {threads} {network} {working} {bytes}");
    }
    text
}

/// The programs of an entry; `None` where it is none of programs, or no such text.
pub fn programs(entry: &NtEntry<'_>) -> Option<Vec<ProgramStart>> {
    if entry.number != PROGRAMS {
        return None;
    }
    entry.json.lines().map(start).collect()
}

fn start(line: &str) -> Option<ProgramStart> {
    let mut words = line.split(' ');
    let nt_type = words.next()?.to_owned();
    let processor = words.next()?;
    let processor =
        ProcessorKind::ALL.into_iter().find(|kind| processor_word(*kind) == processor)?;
    let threads = words.next()?.parse().ok()?;
    let mut memory = || {
        let word = words.next()?;
        MemoryKind::ALL.into_iter().find(|kind| memory_word(*kind) == word)
    };
    let (network, working) = (memory()?, memory()?);
    let working_set = words.next()?.parse().ok()?;
    let is_whole = words.next().is_none() && threads > 0;
    is_whole.then_some(ProgramStart { nt_type, processor, threads, network, working, working_set })
}

#[cfg(test)]
mod tests {
    use snic_domain::{Bandwidth, ByteSize, DagUid, NodeId, NtTypeId};

    use super::*;
    use crate::DagConfiguration;
    use crate::configuration::entries;

    fn program(processor: ProcessorKind, network: MemoryKind, working: MemoryKind) -> NtProgram {
        NtProgram {
            node: NodeId::new("n").expect("a label"),
            nt: NtTypeId::new("kv-aggregation").expect("a label"),
            processor,
            threads: 48,
            network,
            working,
            working_set: ByteSize::from_mib(3),
            serves: Bandwidth::from_gbps(7),
            latency: None,
        }
    }

    #[test]
    fn a_card_reads_the_programs_that_were_written() {
        let uid = DagUid::new(3, 7).expect("it fits");
        for processor in ProcessorKind::ALL {
            for network in MemoryKind::ALL {
                for working in MemoryKind::ALL {
                    let two = [program(processor, network, working); 1].to_vec();
                    let told = DagConfiguration::of_programs(uid, None, &two).expect("one");
                    let read = entries(told.bytes()).expect("as written");
                    let read = programs(&read[0]).expect("programs");
                    let (nt_type, working_set) = ("kv-aggregation".to_owned(), 3 << 20);
                    let threads = 48;
                    let start =
                        ProgramStart { nt_type, processor, threads, network, working, working_set };
                    assert_eq!(read, [start]);
                }
            }
        }
    }

    #[test]
    fn how_fast_a_program_was_planned_to_be_is_not_told() {
        let uid = DagUid::new(3, 7).expect("it fits");
        let one = program(ProcessorKind::Dpa, MemoryKind::Arm, MemoryKind::Arm);
        let fast = NtProgram { serves: Bandwidth::from_gbps(99), ..one.clone() };
        let tag = |program: &NtProgram| {
            let told = DagConfiguration::of_programs(uid, None, std::slice::from_ref(program));
            told.expect("one").tag()
        };
        assert_eq!(tag(&one), tag(&fast));
        assert_ne!(tag(&one), tag(&NtProgram { threads: 47, ..one.clone() }));
    }

    #[test]
    fn other_text_is_no_program() {
        let entry = |json| NtEntry { number: PROGRAMS, nt_type: "", json };
        let bad = [
            "x",
            "x dpa 1 arm arm",
            "x dpa 0 arm arm 0",
            "x dpa 1 arm arm 0 0",
            "x fpga 1 arm arm 0",
            "x dpa 1 dram arm 0",
            "x dpa -1 arm arm 0",
        ];
        for text in bad {
            assert_eq!(programs(&entry(text)), None, "{text}");
        }
        assert_eq!(programs(&entry("")), Some(Vec::new()));
        let nat = NtEntry { number: NtNumber(1), ..entry("x dpa 1 arm arm 0") };
        assert_eq!(programs(&nat), None, "an NT's configuration");
    }
}

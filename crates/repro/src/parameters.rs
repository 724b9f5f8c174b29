//! What the figures are computed from: the card profile and the data plane's own figures, each with
//! its source. There are no others, so none can belong to one figure.

use anyhow::{Context, Result};
use snic_bitstream::catalogue::{BUILTIN, Catalogue, builtin};
use snic_card_sim::Options;
use snic_card_sim::offloads::Panic;
use snic_domain::{Bandwidth, CardModel, CardProfile};

/// The card of the figures: as large as the SuperNIC paper's.
const MODEL: &str = "sim-16";

/// What each queue of a pipeline of offloads holds.
pub(crate) const FIFO_BYTES: u64 = 16 << 10;
/// From one offload to the next, in cycles.
pub(crate) const HOP_CYCLES: u64 = 2;

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// What it is.
    pub name: String,
    /// What it says.
    pub value: String,
    /// Who says so.
    pub source: String,
}

/// What every figure starts from.
#[derive(Debug)]
pub struct Parameters {
    /// The card, with ports of 100 Gbit/s.
    pub card: CardProfile,
    /// The provider's NTs and chains.
    pub catalogue: Catalogue,
}

impl Parameters {
    /// Those of the files that are compiled in.
    pub fn load() -> Result<Self> {
        let catalogue = builtin()?;
        let model = CardModel::new(MODEL)?;
        let card = catalogue.card(&model).context("the catalogue has the card")?.clone();
        Ok(Self { card, catalogue })
    }

    /// The card with ports as wide as its data path, as the papers simulate it: without the 100 Gbit/s
    /// of PHY and MAC.
    pub fn core(&self) -> CardProfile {
        let full = Bandwidth::from_bps(self.card.clock_hz * u64::from(self.card.width_bits));
        CardProfile { ingress: full, egress: full, ..self.card.clone() }
    }

    /// PANIC's scheduler, as FlexPipe's authors ran it: without detours.
    pub(crate) const fn panic(&self) -> Panic {
        Panic {
            unit_credits: 3,
            queue_clock_hz: self.card.clock_hz / 2,
            descriptor_beats: 1,
            pass_cycles: self.card.scheduler_pass.get(),
            detour: false,
        }
    }

    /// The list for the page.
    pub fn list(&self) -> Vec<Parameter> {
        let name = format!("bitstreams/cards/{MODEL}.toml");
        let file = BUILTIN.cards.iter().find(|file| file.name == name);
        // Up to the regions, a line is a key, a value and its source.
        let lines = file.map_or("", |file| file.text).lines();
        let profile = lines.take_while(|line| !line.starts_with("[[")).filter_map(parameter);
        profile.chain(data_plane()).chain(self.other_designs()).collect()
    }

    fn other_designs(&self) -> [Parameter; 5] {
        let panic = self.panic();
        [
            ("fifo_bytes", FIFO_BYTES, "FlexPipe, III: queues of 16 kB"),
            ("hop_cycles", HOP_CYCLES, "[decided] a register in the splitter, one in the arbiter"),
            (
                "panic.unit_credits",
                panic.unit_credits as u64,
                "FlexPipe, IV: the 6.6 µs between the longest and the shortest latency",
            ),
            (
                "panic.queue_clock_hz",
                panic.queue_clock_hz,
                "FlexPipe, II: priority queues at a lower clock [decided: half]",
            ),
            (
                "panic.descriptor_beats",
                panic.descriptor_beats,
                "FlexPipe, II: descriptors go ahead of packets on the data path",
            ),
        ]
        .map(|(name, value, source)| Parameter {
            name: name.into(),
            value: value.to_string(),
            source: source.into(),
        })
    }
}

/// What the data plane has beside the card model's.
fn data_plane() -> [Parameter; 4] {
    let options = Options::default();
    [
        Parameter {
            name: "descriptor_beats".into(),
            value: options.descriptor_beats.to_string(),
            source: "SuperNIC, 3.2: the parser attaches a descriptor to the header; Fig. 7: large \
                     packets stay that much under 128 Gbit/s"
                .into(),
        },
        Parameter {
            name: "credit_cycles".into(),
            value: options.credit_cycles.to_string(),
            source: "SuperNIC, Fig. 3: credits have a way of their own back; Fig. 7, with one credit: 3 \
                     more than the NT's cycles or the packet's beats"
                .into(),
        },
        Parameter {
            name: "region_packets_per_second".into(),
            value: options.region_packets_per_second.to_string(),
            source: "SuperNIC, Fig. 7, with eight credits: 51 Gbit/s of 64 bytes, 99 of 128".into(),
        },
        Parameter {
            name: "shaper_queue_bytes".into(),
            value: options.shaper_queue.get().to_string(),
            source: "[decided] 43 packets of 1500 bytes may wait at a DAG's token bucket".into(),
        },
    ]
}

fn parameter(line: &str) -> Option<Parameter> {
    let (name, rest) = line.split_once(" = ").filter(|_| !line.starts_with('#'))?;
    let (value, source) = rest.split_once('#').unwrap_or((rest, "the card model"));
    let text = |text: &str| text.trim().to_string();
    Some(Parameter { name: text(name), value: text(value), source: text(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_key_of_the_profile_with_its_source() {
        let parameters = Parameters::load().expect("our own files");
        let list = parameters.list();
        let find = |name: &str| list.iter().find(|p| p.name == name).expect("in the profile");
        assert_eq!(find("scheduler_pass_cycles").value, "16");
        assert_eq!(find("core_cycles").source, "SuperNIC, 5.1: 196 ns");
        assert_eq!(find("width_bits").value, "512");
        assert!(list.iter().all(|parameter| parameter.name != "kind"), "regions are no list");
        assert_eq!(parameters.core().egress, Bandwidth::from_gbps(128));
    }
}

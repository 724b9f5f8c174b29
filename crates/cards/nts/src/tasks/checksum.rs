//! Checksums: verified, or filled in for senders that leave them to the card.

use serde::Deserialize;
use snic_domain::Timestamp;

use crate::config::{Configuration, Field, InvalidConfiguration, Kind, NON_IP, NonIp, Schema};
use crate::tasks::read_ip::read_ip;
use crate::wire::{self, Layout, Verified};
use crate::{Context, DropReason, FlowRule, NetworkTask, Packet, Verdict};

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "checksum",
    version: 1,
    fields: &[
        Field::required(
            "mode",
            Kind::Choice(&["verify", "fill"]),
            "Whether wrong TCP, UDP and ICMP checksums are dropped, or all are computed and written.",
        ),
        NON_IP,
    ],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Verify,
    Fill,
}

#[derive(Debug, Deserialize)]
struct Settings {
    mode: Mode,
    #[serde(default)]
    non_ip: NonIp,
}

/// The NT. Fragments pass, since no card sees all bytes that their checksum covers.
#[derive(Debug, Default)]
pub(crate) struct Checksum {
    settings: Option<Settings>,
}

impl NetworkTask for Checksum {
    fn configure(
        &mut self,
        _: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        self.settings = Some(configuration.read()?);
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, _: &mut Context<'_>) -> Verdict {
        let Some(settings) = &self.settings else {
            return Verdict::Drop(DropReason::Unconfigured);
        };
        let layout = match read_ip(packet.bytes(), &settings.non_ip) {
            Ok(layout) => layout,
            Err(verdict) => return verdict,
        };
        match settings.mode {
            Mode::Fill => {
                wire::fill(packet.bytes_mut(), &layout);
                Verdict::Forward
            }
            Mode::Verify => match wire::verify(packet.bytes(), &layout) {
                Verified::Wrong => Verdict::Drop(DropReason::BadChecksum),
                Verified::Right | Verified::Absent => Verdict::Forward,
            },
        }
    }

    fn flow_rule(&self) -> Option<FlowRule> {
        self.settings.as_ref().map(|_| FlowRule::JUDGE)
    }

    fn follow(
        &mut self,
        _: &FlowRule,
        (bytes, layout): (&mut [u8], &Layout),
        _: &mut Context<'_>,
    ) -> bool {
        match self.settings.as_ref().map(|settings| settings.mode) {
            Some(Mode::Verify) => wire::verify(bytes, layout) != Verified::Wrong,
            Some(Mode::Fill) => {
                wire::fill(bytes, layout);
                true
            }
            None => false,
        }
    }
}

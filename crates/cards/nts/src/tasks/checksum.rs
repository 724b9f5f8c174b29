//! Checksums: verified, or filled in for senders that leave them to the card.

use serde::Deserialize;
use snic_domain::Timestamp;

use crate::config::{Configuration, Field, InvalidConfiguration, Kind, Schema};
use crate::wire::{self, Frame, Verified};
use crate::{Context, DropReason, NetworkTask, Packet, Verdict};

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "checksum",
    version: 1,
    fields: &[Field::required(
        "mode",
        Kind::Choice(&["verify", "fill"]),
        "Whether wrong TCP, UDP and ICMP checksums are dropped, or all are computed and written.",
    )],
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
}

/// The NT. Fragments pass, since no card sees all bytes that their checksum covers; so do packets
/// other than IP.
#[derive(Debug, Default)]
pub(crate) struct Checksum {
    mode: Option<Mode>,
}

impl NetworkTask for Checksum {
    fn configure(
        &mut self,
        _: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        self.mode = Some(configuration.read::<Settings>()?.mode);
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, _: &mut Context<'_>) -> Verdict {
        let layout = match wire::parse(packet.bytes()) {
            Ok(Frame::Ip(layout)) => layout,
            Ok(Frame::Other(_)) => return Verdict::Forward,
            Err(reason) => return Verdict::Drop(reason),
        };
        match self.mode {
            None => Verdict::Drop(DropReason::Unconfigured),
            Some(Mode::Fill) => {
                wire::fill(packet.bytes_mut(), &layout);
                Verdict::Forward
            }
            Some(Mode::Verify) => match wire::verify(packet.bytes(), &layout) {
                Verified::Wrong => Verdict::Drop(DropReason::BadChecksum),
                Verified::Right | Verified::Absent => Verdict::Forward,
            },
        }
    }
}

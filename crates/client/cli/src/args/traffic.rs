//! Arguments of `snicctl capture`, `snicctl trace` and `snicctl traffic`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use snic_dagfile::quantity;
use snic_domain::Bandwidth;

/// Packets to capture, and the file for them.
#[derive(Debug, Args)]
pub struct CaptureOptions {
    /// DAG: NAME or TENANT/NAME
    #[arg(long, value_name = "DAG")]
    pub dag: String,
    /// Only packets as they leave this node of the DAG; may be repeated
    #[arg(long, value_name = "NODE")]
    pub at: Vec<String>,
    /// Write a pcapng file, which Wireshark and tcpdump open; - for standard output. Without it, a line
    /// for each packet is printed
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Bytes of each packet
    #[arg(long, value_name = "BYTES", default_value_t = 9_216)]
    pub bytes: u32,
    /// End of the capture
    #[command(flatten)]
    pub until: StopCondition,
}

/// DAG whose packets to follow.
#[derive(Debug, Args)]
pub struct TraceOptions {
    /// DAG: NAME or TENANT/NAME
    #[arg(long, value_name = "DAG")]
    pub dag: String,
    /// End of the trace
    #[command(flatten)]
    pub until: StopCondition,
}

/// When to stop; Ctrl-C also ends it.
#[derive(Debug, Args)]
pub struct StopCondition {
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME")]
    pub duration: Option<humantime::Duration>,
    /// Stop after this many packets
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub count: Option<u64>,
}

/// Verbs of `snicctl traffic`.
#[derive(Debug, Subcommand)]
pub enum TrafficCommand {
    /// Send packets that the card makes through a DAG, and print what becomes of them
    Run(Box<RunOptions>),
}

/// Packets to send, and the DAG for them.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// DAG: NAME or TENANT/NAME
    #[arg(long, value_name = "DAG")]
    pub dag: String,
    /// Bits of packets per second, such as 5Gbps
    #[arg(long, value_name = "RATE", value_parser = quantity::bandwidth)]
    pub rate: Bandwidth,
    /// Packets: imix, bytes such as 64, a mix such as 64:7,1518:1, or pcap:FILE for the packets of a capture
    /// (pcap or pcapng), one after the other, again and again
    #[arg(long, value_name = "SIZES", default_value = "imix")]
    pub size: PacketChoice,
    /// Duration, up to 10m; Ctrl-C also ends it
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub duration: humantime::Duration,
    #[command(flatten)]
    pub headers: HeaderOptions,
}

/// Headers of the packets on cards that make bytes. Simulated cards make none.
#[derive(Debug, Args)]
pub struct HeaderOptions {
    /// Source address, IPv4 or IPv6 [default: 198.18.0.1, for measurements]
    #[arg(long, value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// Destination address [default: 198.19.0.1, for measurements]
    #[arg(long, value_name = "ADDRESS")]
    pub destination: Option<IpAddr>,
    /// Protocol [default: udp]
    #[arg(long, value_name = "PROTOCOL", value_parser = ["udp", "tcp"])]
    pub protocol: Option<String>,
    /// Source port of the first flow [default: 49152]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub source_port: Option<u16>,
    /// Destination port [default: 9, whose service discards all]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub destination_port: Option<u16>,
    /// Flows that take turns, each from a source port of its own [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub flows: Option<u16>,
}

impl HeaderOptions {
    /// Whether one is given.
    pub fn is_any(&self) -> bool {
        self.source.is_some()
            || self.destination.is_some()
            || self.protocol.is_some()
            || self.source_port.is_some()
            || self.destination_port.is_some()
            || self.flows.is_some()
    }
}

/// Packets to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketChoice {
    /// Seven packets of 64 bytes, four of 594 and one of 1,518 in each twelve.
    Imix,
    /// Sizes in bytes, and how often each comes.
    Sizes(Vec<(u32, u32)>),
    /// The packets of a capture file.
    Capture(PathBuf),
}

impl FromStr for PacketChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" {
            return Ok(Self::Imix);
        }
        if let Some(file) = text.strip_prefix("pcap:").filter(|file| !file.is_empty()) {
            return Ok(Self::Capture(file.into()));
        }
        let part = |part: &str| {
            let (bytes, weight) = part.split_once(':').unwrap_or((part, "1"));
            Some((bytes.trim().parse().ok()?, weight.trim().parse().ok()?))
        };
        let sizes: Option<Vec<_>> = text.split(',').map(part).collect();
        sizes.map(Self::Sizes).ok_or_else(|| {
            "allowed: imix, a number of bytes, BYTES:WEIGHT,… or pcap:FILE".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_a_word_a_size_a_mix_or_a_file() {
        let read = |text: &str| text.parse::<PacketChoice>();
        assert_eq!(read("imix"), Ok(PacketChoice::Imix));
        assert_eq!(read("64"), Ok(PacketChoice::Sizes(vec![(64, 1)])));
        assert_eq!(read("64:7,1518:1"), Ok(PacketChoice::Sizes(vec![(64, 7), (1_518, 1)])));
        assert_eq!(read("pcap:a:b.pcap"), Ok(PacketChoice::Capture("a:b.pcap".into())));
        for wrong in ["", "pcap:", "small", "64:", "64,,65", "-1"] {
            assert!(read(wrong).expect_err(wrong).starts_with("allowed: imix"), "{wrong}");
        }
    }
}

//! Arguments of `snicctl capture` and `snicctl trace`.

use std::path::PathBuf;

use clap::Args;

/// Which packets to capture, and where to.
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
    /// How much
    #[command(flatten)]
    pub until: Until,
}

/// Whose packets to follow.
#[derive(Debug, Args)]
pub struct TraceOptions {
    /// DAG: NAME or TENANT/NAME
    #[arg(long, value_name = "DAG")]
    pub dag: String,
    /// How much
    #[command(flatten)]
    pub until: Until,
}

/// When to stop; Ctrl-C also ends it.
#[derive(Debug, Args)]
pub struct Until {
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME")]
    pub duration: Option<humantime::Duration>,
    /// Stop after this many packets
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub count: Option<u64>,
}

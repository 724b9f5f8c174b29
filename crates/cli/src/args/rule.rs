//! Classification rules.

use clap::{Args, Subcommand};

use super::Guard;

/// A classification rule. A property that is not given matches every packet.
#[derive(Debug, Args)]
pub struct NewRule {
    /// Its id
    pub name: String,
    /// The DAG that matching packets take
    #[arg(long)]
    pub dag: String,
    /// Of the rules that match, the lowest number counts
    #[arg(long, default_value_t = 0)]
    pub priority: u32,
    /// Number of the sending virtual function
    #[arg(long, group = "match")]
    pub vf: Option<u32>,
    /// VXLAN network identifier
    #[arg(long, group = "match")]
    pub vni: Option<u32>,
    /// IPv4 source, such as 10.1.0.0/16
    #[arg(long, group = "match", default_value = "", hide_default_value = true)]
    pub source: String,
    /// IPv4 destination, such as 10.2.0.0/16
    #[arg(long, group = "match", default_value = "", hide_default_value = true)]
    pub destination: String,
    /// IP protocol: tcp, udp, icmp or a number
    #[arg(long, group = "match", value_parser = protocol)]
    pub protocol: Option<u32>,
    /// TCP or UDP source port
    #[arg(long, group = "match")]
    pub source_port: Option<u32>,
    /// TCP or UDP destination port
    #[arg(long, group = "match")]
    pub destination_port: Option<u32>,
}

fn protocol(text: &str) -> Result<u32, String> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        number => number.parse().map_err(|_| "use tcp, udp, icmp or a number, 0 to 255".to_owned()),
    }
}

/// Verbs of rules.
#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// Adds a rule
    #[command(group = clap::ArgGroup::new("match").required(true).multiple(true))]
    Create(NewRule),
    /// Lists rules
    List {
        /// Only those that lead to this DAG
        #[arg(long)]
        dag: Option<String>,
    },
    /// Shows a rule
    Get {
        /// Its id
        name: String,
    },
    /// Removes a rule
    Delete {
        /// Its id
        name: String,
        #[command(flatten)]
        guard: Guard,
    },
}

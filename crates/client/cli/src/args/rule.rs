//! Arguments of `snicctl rule`.

use clap::{Args, Subcommand};

use super::{DeleteGuard, Guard, NewNotes, OtherNotes, SelectedByLabel};

/// Properties of packets. An omitted field matches every packet.
#[derive(Debug, Default, Args)]
pub struct RuleMatch {
    /// Index of the sending virtual function
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
    /// VLAN of the outermost tag, 1 to 4094
    #[arg(long, group = "match")]
    pub vlan: Option<u32>,
}

/// A classification rule.
#[derive(Debug, Args)]
pub struct NewRule {
    /// Id
    pub name: String,
    /// DAG for matching packets
    #[arg(long)]
    pub dag: String,
    /// Priority; among matching rules, the lowest number wins
    #[arg(long, default_value_t = 0)]
    pub priority: u32,
    #[command(flatten)]
    pub matches: RuleMatch,
    #[command(flatten)]
    pub notes: NewNotes,
}

/// Another priority, match or DAG of a rule. What is not given stays; a match replaces the old one as a whole.
#[derive(Debug, Args)]
pub struct OtherRule {
    /// Id
    pub name: String,
    /// New DAG for matching packets
    #[arg(long)]
    pub dag: Option<String>,
    /// New priority; among matching rules, the lowest number wins
    #[arg(long)]
    pub priority: Option<u32>,
    #[command(flatten)]
    pub matches: RuleMatch,
    #[command(flatten)]
    pub notes: OtherNotes,
    #[command(flatten)]
    pub guard: Guard,
}

fn protocol(text: &str) -> Result<u32, String> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        number => {
            number.parse().map_err(|_| "use tcp, udp, icmp, or a number from 0 to 255".to_owned())
        }
    }
}

/// Verbs of `snicctl rule`.
#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// Create a rule
    #[command(group = clap::ArgGroup::new("match").required(true).multiple(true))]
    Create(NewRule),
    /// Update a rule, from one packet to the next; match options replace the whole match
    #[command(group = clap::ArgGroup::new("match").multiple(true))]
    Update(OtherRule),
    /// List rules
    List {
        /// Only rules of this DAG
        #[arg(long)]
        dag: Option<String>,
        #[command(flatten)]
        selected: SelectedByLabel,
    },
    /// Print changes as they happen
    Watch,
    /// Show a rule
    Get {
        /// Id
        name: String,
    },
    /// Delete a rule
    Delete {
        /// Id
        name: String,
        #[command(flatten)]
        guard: DeleteGuard,
    },
}

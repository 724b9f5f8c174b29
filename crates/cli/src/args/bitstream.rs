//! What `snicctl bitstream` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::{Guard, KindArg};

/// A bitstream to upload.
#[derive(Debug, Args)]
pub struct NewBitstream {
    /// Its id: NAME for the provider's, TENANT.NAME for a tenant's
    pub name: String,
    /// The file with its bytes
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Its network task types in the order a packet meets them: nat,firewall
    #[arg(long, value_delimiter = ',', required = true)]
    pub nts: Vec<String>,
    /// The card model it was built for
    #[arg(long)]
    pub model: String,
    /// The kind of region it loads into
    #[arg(long, default_value = "known-nt")]
    pub kind: KindArg,
    /// DAGs of other tenants may use a region that holds it
    #[arg(long)]
    pub shareable: bool,
    /// The file with its ed25519 signature, by a key that the operator trusts
    #[arg(long, value_name = "FILE")]
    pub signature: Option<PathBuf>,
}

/// A test image to be built.
#[derive(Debug, Args)]
pub struct TestImage {
    /// The file to write
    pub file: PathBuf,
    /// Its network task types in the order a packet meets them: nat,firewall; of the provider's
    /// catalogue
    #[arg(long, value_delimiter = ',', required_unless_present = "role")]
    pub nts: Vec<String>,
    /// Instead of a region's bitstream, a whole role with this UUID, for XRT's emulation
    #[arg(long, value_name = "UUID", conflicts_with_all = ["nts", "size"])]
    pub role: Option<Uuid>,
    /// The kernel with the register map of that role
    #[arg(long, default_value = "snic_control:control_0", requires = "role")]
    pub control: String,
    /// The card model to build it for
    #[arg(long)]
    pub model: String,
    /// Its bytes; else as many as the model's largest region takes
    #[arg(long)]
    pub size: Option<u64>,
}

/// Verbs of bitstreams.
#[derive(Debug, Subcommand)]
pub enum BitstreamCommand {
    /// Builds an image for simulated cards, without a vendor's tools and without a server
    BuildTest(TestImage),
    /// Uploads a bitstream
    Upload(NewBitstream),
    /// Lists the bitstreams you may use
    List,
    /// Shows a bitstream
    Get {
        /// Its id
        name: String,
    },
    /// Names sequences of NTs that are worth a bitstream, and what each would bring
    Recommend {
        /// The card; without it, the only one
        card: Option<String>,
        /// A folder for the build manifests, one file a sequence
        #[arg(long, value_name = "FOLDER")]
        manifests: Option<PathBuf>,
    },
    /// Deletes a bitstream that no DAG is mapped to
    Delete {
        /// Its id
        name: String,
        #[command(flatten)]
        guard: Guard,
    },
}

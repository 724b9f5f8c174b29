//! Arguments of `snicctl bitstream`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::{DeleteGuard, Guard, KindArg, NewNotes, SelectedByLabel};

/// A bitstream to upload.
#[derive(Debug, Args)]
pub struct NewBitstream {
    /// Id: NAME for the provider's, TENANT.NAME for a tenant's
    pub name: String,
    /// File with the bitstream; where it exists for other regions, this image is added to it
    #[arg(short, long, value_name = "FILE", required_unless_present = "folder")]
    pub file: Option<PathBuf>,
    /// Folder that the build flow wrote for a chain: each NAME.bit is an image, with its manifest
    /// NAME.toml and, if it is signed, its signature NAME.bit.sig; images that are there are not
    /// sent again
    #[arg(long, value_name = "FOLDER",
          conflicts_with_all = ["file", "manifest", "signature", "nts", "model", "kind"])]
    pub folder: Option<PathBuf>,
    /// Manifest that the build flow wrote beside it: identity, network task types, card model, kind
    /// and regions
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nts", "model", "kind"])]
    pub manifest: Option<PathBuf>,
    /// Network task types in the order packets pass them: nat,firewall
    #[arg(long, value_delimiter = ',', required_unless_present_any = ["manifest", "folder"])]
    pub nts: Vec<String>,
    /// Card model it was built for
    #[arg(long, required_unless_present_any = ["manifest", "folder"])]
    pub model: Option<String>,
    /// Kind of region it is for
    #[arg(long, default_value = "known-nt")]
    pub kind: KindArg,
    /// Allow DAGs of other tenants to use a region that holds it
    #[arg(long)]
    pub shareable: bool,
    /// File with its ed25519 signature, by a key that the operator trusts
    #[arg(long, value_name = "FILE")]
    pub signature: Option<PathBuf>,
    #[command(flatten)]
    pub notes: NewNotes,
}

/// A test image to build.
#[derive(Debug, Args)]
pub struct TestImage {
    /// File to write; with --each-region the folder
    pub file: PathBuf,
    /// Network task types in the order packets pass them: nat,firewall; from the provider's
    /// catalogue
    #[arg(long, value_delimiter = ',', required_unless_present = "role")]
    pub nts: Vec<String>,
    /// Build a whole role with this UUID for XRT's emulation, instead of a region's bitstream
    #[arg(long, value_name = "UUID", conflicts_with_all = ["nts", "size"])]
    pub role: Option<Uuid>,
    /// Kernel of the role that has the register map
    #[arg(long, default_value = "snic_control:control_0", requires = "role")]
    pub control: String,
    /// Card model to build for
    #[arg(long)]
    pub model: String,
    /// Folder with card profiles beside those that are compiled in
    #[arg(long, value_name = "FOLDER")]
    pub profiles: Option<PathBuf>,
    /// Size in bytes [default: what the model's largest region takes]
    #[arg(long)]
    pub size: Option<u64>,
    /// Build it as a vendor's flow would, with nothing at a known place that says what it holds, and write
    /// the manifest to upload it with
    #[arg(long, value_name = "FILE", conflicts_with = "role")]
    pub manifest: Option<PathBuf>,
    /// Numbers of the regions that it is for [default: any region of its kind]
    #[arg(long, value_delimiter = ',', requires = "manifest")]
    pub regions: Vec<u8>,
    /// Write an image with its manifest for each of these regions, as if the card relocated none: a
    /// folder for bitstream upload --folder
    #[arg(long, value_delimiter = ',', value_name = "REGIONS", conflicts_with_all = ["role", "manifest", "regions"])]
    pub each_region: Vec<u8>,
    /// Kind of region that the manifest names
    #[arg(long, default_value = "known-nt")]
    pub kind: KindArg,
}

/// A bitstream with WebAssembly modules to build.
#[derive(Debug, Args)]
pub struct ModuleImage {
    /// File to write
    pub file: PathBuf,
    /// Network task types in the order packets pass them: acme.marker,acme.filter; they are registered
    #[arg(long, value_delimiter = ',', required = true)]
    pub nts: Vec<String>,
    /// WebAssembly module of a network task type, as TYPE=FILE; repeat it for each. A type without one is an NT
    /// that the software card has
    #[arg(long = "module", value_name = "TYPE=FILE", required = true)]
    pub modules: Vec<String>,
    /// Card model to build for
    #[arg(long)]
    pub model: String,
    /// Folder with card profiles beside those that are compiled in
    #[arg(long, value_name = "FOLDER")]
    pub profiles: Option<PathBuf>,
    /// Write the manifest to sign and upload it with, so that each build has an identity
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Kind of region that the manifest names
    #[arg(long, default_value = "user-nt")]
    pub kind: KindArg,
}

/// Subject of a line to sign.
#[derive(Debug, Args)]
pub struct SignedFile {
    /// File with the bitstream or the role
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Manifest that the build flow wrote beside a bitstream
    #[arg(long, value_name = "FILE", required_unless_present = "role")]
    pub manifest: Option<PathBuf>,
    /// It is a role (xclbin) for cards of this model; nothing is printed unless the daemon would load it there
    #[arg(long, value_name = "MODEL", conflicts_with = "manifest")]
    pub role: Option<String>,
    /// Kernel of the role that has the register map
    #[arg(long, default_value = "snic_control:control_0", requires = "role")]
    pub control: String,
    /// Folder with card profiles beside those that are compiled in
    #[arg(long, value_name = "FOLDER", requires = "role")]
    pub profiles: Option<PathBuf>,
}

/// Verbs of `snicctl bitstream`.
#[derive(Debug, Subcommand)]
pub enum BitstreamCommand {
    /// Build an image for simulated cards, without vendor tools and without a server
    BuildTest(TestImage),
    /// Build a bitstream for software cards from WebAssembly modules
    Build(ModuleImage),
    /// Print the line to sign for a bitstream with its manifest, or for a card's role, without a server
    Statement(SignedFile),
    /// Upload a bitstream
    Upload(NewBitstream),
    /// List the bitstreams you may use
    List(SelectedByLabel),
    /// Print changes as they happen
    Watch,
    /// Take a rejected bitstream back, so that DAGs may be mapped to it again
    Retry {
        /// Id
        name: String,
        #[command(flatten)]
        guard: Guard,
    },
    /// Show a bitstream
    Get {
        /// Id
        name: String,
    },
    /// Recommend NT sequences that are worth building, with their benefit
    Recommend {
        /// Card; optional if there is only one
        card: Option<String>,
        /// Folder for build manifests, one file per sequence
        #[arg(long, value_name = "FOLDER")]
        manifests: Option<PathBuf>,
    },
    /// Delete a bitstream; for an operator, DAGs that use it move elsewhere first
    Delete {
        /// Id
        name: String,
        /// Delete only the image with this digest; no DAG may use it
        #[arg(long, value_name = "DIGEST")]
        image: Option<String>,
        /// Wait until it is deleted
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: DeleteGuard,
    },
}

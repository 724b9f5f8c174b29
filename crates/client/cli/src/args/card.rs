//! Arguments of `snicctl card`, `snicctl region` and `snicctl fairness`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{DeleteGuard, Guard, Selected};

/// Where a floor plan comes from, and where it goes.
#[derive(Debug, clap::Args)]
pub struct FloorPlanSources {
    /// Bitstream of the whole device with BITSTREAM.GENERAL.PERFRAMECRC set: it lists every frame
    #[arg(long, value_name = "BIT")]
    pub device: PathBuf,
    /// Partial bitstream of the region, not compressed; may be repeated
    #[arg(long, value_name = "BIT", required = true)]
    pub partial: Vec<PathBuf>,
    /// Output of report_property for the region's Pblock
    #[arg(long, value_name = "FILE")]
    pub pblock: PathBuf,
    /// Output of write_bitstream -logic_location_file beside the partial bitstream
    #[arg(long, value_name = "FILE")]
    pub logic_locations: PathBuf,
    /// Card profile to write the floor plan into, instead of printing it
    #[arg(long, value_name = "FILE", requires = "group")]
    pub profile: Option<PathBuf>,
    /// Group of regions of the profile, counted from 0
    #[arg(long, value_name = "NUMBER", requires = "profile")]
    pub group: Option<usize>,
}

/// Card models, and the DAG that they are asked about.
#[derive(Debug, clap::Args)]
pub struct ModelSources {
    /// Model to show in full; without it, all in a table
    pub model: Option<String>,
    /// DAG file (- is standard input): shows what this DAG would get on a card that nobody uses
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Card with regions in the same host: NTs go to its regions or to the model's processors
    #[arg(long, value_name = "MODEL", requires = "file", requires = "model")]
    pub beside: Option<String>,
    /// Folder with more card models, as in bitstreams/models
    #[arg(long, value_name = "FOLDER")]
    pub models: Option<PathBuf>,
    /// Folder with more card profiles, as in bitstreams/cards
    #[arg(long, value_name = "FOLDER")]
    pub profiles: Option<PathBuf>,
}

/// Verbs of `snicctl card`.
#[derive(Debug, Subcommand)]
pub enum CardCommand {
    /// Take a region's floor plan from the reports of Vivado, without a server
    ImportFloorplan(FloorPlanSources),
    /// Show known card models, and what a DAG would get on each, without a server
    Models(ModelSources),
    /// List cards
    List(Selected),
    /// Print changes as they happen
    Watch,
    /// Show a card and the map of its regions
    Get {
        /// Id; optional if there is only one card
        name: Option<String>,
    },
    /// Move DAGs together where that frees regions or saves passes
    Optimize {
        /// Id; optional if there is only one card
        name: Option<String>,
        /// Only show the moves
        #[arg(long, conflicts_with = "wait")]
        dry_run: bool,
        /// Wait until the change is complete
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: Guard,
    },
    /// Load the role that the daemon's settings name; drain the card first
    LoadRole {
        /// Id; optional if there is only one card
        name: Option<String>,
        /// Load it even if the card holds this role already
        #[arg(long)]
        force: bool,
        /// Wait until the change is complete
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: Guard,
    },
    /// Reset a card and open it again: all that is on it goes, and what its DAGs need is loaded again
    Reset {
        /// Card
        name: String,
        /// Reset it even while DAGs use it, which are not served meanwhile and lose their state
        #[arg(long)]
        force: bool,
        /// Wait until the change is complete
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: Guard,
    },
    /// Place no new DAGs on a card; existing DAGs stay
    Cordon {
        /// Card; optional if there is only one
        name: Option<String>,
        #[command(flatten)]
        guard: Guard,
    },
    /// Take a card out of use; completes when the DAGs that it serves are deleted
    Drain {
        /// Card; optional if there is only one
        name: Option<String>,
        /// Wait until the change is complete
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: Guard,
    },
    /// Forget a card that is lost, or that nothing is on; DAGs of a lost one go to other cards
    Remove {
        /// Card
        name: String,
        #[command(flatten)]
        guard: DeleteGuard,
    },
    /// Give the place of a lost card to the device that answers there now; its DAGs are placed again
    Replace {
        /// Card
        name: String,
        #[command(flatten)]
        guard: Guard,
    },
    /// Put a cordoned or drained card back into use
    #[command(visible_alias = "undrain")]
    Uncordon {
        /// Card; optional if there is only one
        name: Option<String>,
        #[command(flatten)]
        guard: Guard,
    },
}

/// Verbs of `snicctl fairness`.
#[derive(Debug, Subcommand)]
pub enum FairnessCommand {
    /// Show all tenants, or one tenant with the history of the last minutes
    Get {
        /// Tenant; without it, all that you may see
        #[arg(conflicts_with_all = ["filter", "order_by"])]
        tenant: Option<String>,
        #[command(flatten)]
        selected: Selected,
    },
}

/// Verbs of `snicctl region`.
#[derive(Debug, Subcommand)]
pub enum RegionCommand {
    /// List regions
    List {
        /// Card; without it, all cards
        card: Option<String>,
        #[command(flatten)]
        selected: Selected,
    },
    /// Show a region
    Get {
        /// Region: `card0/3`, or `3` if there is only one card
        name: String,
    },
    /// Take a region out of use and move its DAGs elsewhere
    Drain {
        /// Region: `card0/3`, or `3` if there is only one card
        name: String,
        /// Wait until the change is complete
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: Guard,
    },
    /// Place no new DAGs in a region; existing DAGs stay
    Cordon {
        /// Region: `card0/3`, or `3` if there is only one card
        name: String,
        #[command(flatten)]
        guard: Guard,
    },
    /// Put a cordoned or drained region back into use
    #[command(visible_alias = "uncordon")]
    Undrain {
        /// Region: `card0/3`, or `3` if there is only one card
        name: String,
        #[command(flatten)]
        guard: Guard,
    },
    /// Clear the failures of a region and try it again
    Reset {
        /// Region: `card0/3`, or `3` if there is only one card
        name: String,
        /// Wait until the change is complete
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: Guard,
    },
    /// Print changes as they happen
    Watch {
        /// Card; without it, all cards
        card: Option<String>,
    },
}

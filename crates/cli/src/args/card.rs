//! What `snicctl card`, `snicctl region` and `snicctl fairness` take.

use clap::Subcommand;

/// Verbs of cards.
#[derive(Debug, Subcommand)]
pub enum CardCommand {
    /// Lists the cards
    List,
    /// Shows a card and the map of its regions
    Get {
        /// Its id; without it, the only card
        name: Option<String>,
    },
    /// Moves DAGs together, where that frees regions or spares passes
    Optimize {
        /// Its id; without it, the only card
        name: Option<String>,
        /// Only show which moves would be made
        #[arg(long, conflicts_with = "wait")]
        dry_run: bool,
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
    },
    /// Loads the role that the daemon's settings name, with all that is in it; drain the regions first
    LoadRole {
        /// Its id; without it, the only card
        name: Option<String>,
        /// Also where the card holds this role already
        #[arg(long)]
        force: bool,
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
    },
    /// Places nothing new on a card; what is there stays
    Cordon {
        /// The card; without it, the only one
        name: Option<String>,
    },
    /// Takes a card out of use; ends when the DAGs that it serves are deleted
    Drain {
        /// The card; without it, the only one
        name: Option<String>,
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
    },
    /// Puts a cordoned or drained card into use again
    #[command(visible_alias = "undrain")]
    Uncordon {
        /// The card; without it, the only one
        name: Option<String>,
    },
}

/// Verbs of fairness.
#[derive(Debug, Subcommand)]
pub enum FairnessCommand {
    /// Shows all tenants, or one with the history of the last minutes
    Get {
        /// The tenant; without it, all that you may see
        tenant: Option<String>,
    },
}

/// Verbs of regions.
#[derive(Debug, Subcommand)]
pub enum RegionCommand {
    /// Lists regions
    List {
        /// The card; without it, all
        card: Option<String>,
    },
    /// Shows a region
    Get {
        /// `3` on the only card, or `card0/3`
        name: String,
    },
    /// Takes a region out of use and moves its DAGs elsewhere
    Drain {
        /// `3` on the only card, or `card0/3`
        name: String,
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
    },
    /// Places nothing new in a region; what is there stays
    Cordon {
        /// `3` on the only card, or `card0/3`
        name: String,
    },
    /// Puts a cordoned or drained region into use again
    #[command(visible_alias = "uncordon")]
    Undrain {
        /// `3` on the only card, or `card0/3`
        name: String,
    },
    /// Forgets a region's failures and tries it anew
    Reset {
        /// `3` on the only card, or `card0/3`
        name: String,
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
    },
    /// Prints changes as they happen
    Watch {
        /// The card; without it, all
        card: Option<String>,
    },
}

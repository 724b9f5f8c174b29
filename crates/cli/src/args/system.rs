//! What `snicctl maintenance`, `snicctl backup` and `snicctl support-bundle` take.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Verbs of maintenance.
#[derive(Debug, Subcommand)]
pub enum MaintenanceCommand {
    /// Shows whether new DAGs and machines are taken in
    Status,
    /// Takes in no new DAGs and machines; what is there is served
    On {
        /// Why; who is refused is told
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Takes in new DAGs and machines again
    Off,
}

/// Where to.
#[derive(Debug, Args)]
pub struct BackupFile {
    /// The file to write
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: PathBuf,
}

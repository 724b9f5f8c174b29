//! Options of `snicctl apply`.

use std::path::PathBuf;

use clap::Args;

use super::list::SelectedByLabel;

/// Options of `apply`.
#[derive(Debug, Args)]
pub struct ApplyOptions {
    /// File with resources, YAML or JSON; a folder with such files; `-` reads standard input; may be repeated
    #[arg(short, long, value_name = "FILE", required = true)]
    pub file: Vec<PathBuf>,
    /// Show what would be done, and do nothing; DAGs are checked by the server
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Show the old and the new value of each field that differs
    #[arg(long)]
    pub diff: bool,
    /// Delete resources of the kinds in the files that have the labels of --selector and are in no file
    #[arg(long, requires = "selector")]
    pub prune: bool,
    #[command(flatten)]
    pub selected: SelectedByLabel,
    /// Wait until each DAG is ready
    #[arg(short, long)]
    pub wait: bool,
}

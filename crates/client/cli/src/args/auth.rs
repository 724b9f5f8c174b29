//! Arguments of `snicctl auth`.

use clap::Subcommand;

/// Verbs of `snicctl auth`.
#[derive(Debug, Subcommand)]
pub enum AuthCommand {
    /// Print who you are to the server
    Whoami,
    /// Print whether a request would be allowed; if not, the exit code is 6
    CanI {
        /// Verb (get, list, create, update, delete, watch, ...) or method (CreateDag)
        action: String,
        /// Resource, such as tenants/acme/dags/web or cards/a; without it, all at once
        #[arg(default_value = "", hide_default_value = true)]
        resource: String,
        /// Decide for this identity: operator/NAME, tenant/ID, tenant/ID/MEMBER or orchestrator/NAME
        /// (operators only)
        #[arg(long = "as", value_name = "IDENTITY", default_value = "", hide_default_value = true)]
        identity: String,
    },
}

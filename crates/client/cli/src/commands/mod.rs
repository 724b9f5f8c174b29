//! The verbs: each sends requests and prints the replies.

mod apply;
#[cfg(feature = "parquet")]
mod archive;
mod audit;
mod auth;
mod batch;
mod bitstream;
mod bundle;
mod capture_file;
mod card;
mod context;
mod dag;
mod events;
mod fairness;
mod fleet;
mod floor_plan;
mod hints;
mod missing;
mod models;
mod nt;
mod operation;
mod pcapng;
mod policy;
mod region;
mod reservation;
mod rule;
mod system;
mod tenant;
mod trace;
mod traffic;
mod traffic_run;
mod usage;
mod vm;
mod wait;

use std::time::Duration;

use clap::CommandFactory as _;
use serde_json::json;

use crate::args::{Cli, Command, Global, Guard, TrafficCommand};
use snic_client::Client;
use snic_client::Failure;
use snic_client::names;
use snic_client::output::Output;
use snic_client::request_id;
use snic_client::{ClientContext, ContextsError, ContextsFile};

/// Prints the changes of a kind of resource until the server ends the stream.
macro_rules! watch {
    ($session:expr, $service:ident . $method:ident($request:ident), $view:path) => {{
        let client = $session.client()?;
        let open = async |resume_revision| {
            let request = snic_api::v1::$request { resume_revision };
            snic_client::open!(client, $service.$method, request)
        };
        let print = |event| {
            $session.output.event(&event, $view)?;
            Ok(event.revision)
        };
        snic_client::follow(&client, open, print).await
    }};
}
use watch;

/// Prints all pages of a list, as it was selected.
macro_rules! list {
    (
        $session:expr, $service:ident . $method:ident($request:ident { $($field:ident),* }) => $items:ident,
        $selected:expr, $view:path
    ) => {{
        let client = $session.client()?;
        let selected: $crate::args::Selected = $selected;
        let items = snic_client::lists::pages(async |page_token| {
            let request = snic_api::v1::$request {
                $($field: $field.clone(),)*
                page_size: snic_client::lists::PAGE_SIZE,
                page_token,
                filter: selected.filter.clone(),
                order_by: selected.order_by.clone(),
            };
            let reply = snic_client::call!(client, $service.$method, request)?;
            Ok((reply.$items, reply.next_page_token))
        });
        let items = items.await?;
        $session.output.many(&items, $view)
    }};
}
use list;

/// Prints a list as [`list!`] does that a fleet gathers from its hosts, and names those that did not answer.
macro_rules! gathered_list {
    (
        $session:expr, $service:ident . $method:ident($request:ident { $($field:ident),* }) => $items:ident,
        $selected:expr, $view:path
    ) => {{
        let client = $session.client()?;
        let selected: $crate::args::Selected = $selected;
        let missing = $crate::commands::missing::MissingHosts::default();
        let items = snic_client::lists::pages(async |page_token| {
            let request = snic_api::v1::$request {
                $($field: $field.clone(),)*
                page_size: snic_client::lists::PAGE_SIZE,
                page_token,
                filter: selected.filter.clone(),
                order_by: selected.order_by.clone(),
            };
            let reply = snic_client::call!(client, $service.$method, request)?;
            missing.add(reply.unreachable_hosts);
            Ok((reply.$items, reply.next_page_token))
        });
        let items = items.await?;
        missing.complain();
        $session.output.many(&items, $view)
    }};
}
use gathered_list;

/// Default timeout of a request.
const DEADLINE: Duration = Duration::from_secs(30);
/// Default timeout of waiting for an operation.
const WAIT_LIMIT: Duration = Duration::from_secs(600);

/// Global options and the output, which every verb needs.
pub struct CliSession {
    global: Global,
    output: Output,
}

/// Runs the command.
///
/// # Errors
/// [`Failure`], whose exit code is the program's.
pub async fn run(cli: Cli) -> Result<(), Failure> {
    let output = Output::standard(cli.global.output);
    let mut session = CliSession { global: cli.global, output };
    let session = &mut session;
    match cli.command {
        Command::Apply(options) => apply::run(session, options).await,
        Command::Dag(command) => dag::run(session, command).await,
        Command::Tenant(command) => tenant::run(session, command).await,
        Command::Nt(command) => nt::run(session, command).await,
        Command::Bitstream(command) => bitstream::run(session, command).await,
        Command::Card(command) => card::run(session, command).await,
        Command::Fleet(command) => fleet::run(session, command).await,
        Command::Region(command) => region::run(session, command).await,
        Command::Rule(command) => rule::run(session, command).await,
        Command::Vm(command) => vm::run(session, command).await,
        Command::Operation(command) => operation::run(session, command).await,
        Command::Fairness(command) => fairness::run(session, command).await,
        Command::Usage(options) => usage::run(session, options).await,
        Command::Events(query) => events::run(session, query).await,
        Command::Capture(options) => traffic::capture(session, options).await,
        Command::Trace(options) => traffic::trace(session, options).await,
        Command::Traffic(TrafficCommand::Run(options)) => traffic_run::run(session, *options).await,
        Command::Audit(query) => audit::run(session, query).await,
        Command::Auth(command) => auth::run(session, command).await,
        Command::Maintenance(command) => system::maintenance(session, command).await,
        Command::Backup(to) => system::backup(session, &to.file).await,
        Command::SupportBundle(to) => bundle::run(session, &to.file).await,
        Command::Man { command } => session.output.raw(&manual(&command)?),
        Command::Context(command) => context::run(session, command),
        Command::Top { once: true, .. } => snic_top::once(&session.client()?).await,
        Command::Top { interval, .. } => snic_top::run(&session.client()?, interval.into()).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "snicctl", &mut script);
            session.output.raw(&script)
        }
        Command::Version => system::version(session).await,
    }
}

/// The manual page of the program or of a command.
fn manual(command: &[String]) -> Result<Vec<u8>, Failure> {
    let mut found = Cli::command();
    found.build();
    for name in command {
        let next = found.find_subcommand(name).cloned();
        found = next.ok_or_else(|| {
            Failure::usage(
                format!("unknown command {name:?}"),
                "`snicctl --help` lists the commands",
            )
        })?;
    }
    let mut page = Vec::new();
    let written = clap_mangen::Man::new(found).render(&mut page);
    written.map_err(|source| Failure::Write { path: "standard output".into(), source })?;
    Ok(page)
}

impl CliSession {
    /// The connection, from options, environment and contexts, in this order.
    fn client(&self) -> Result<Client, Failure> {
        let file = ContextsFile::load()?;
        let context = self.context(&file)?;
        let client = Client::new(&context, &file, self.deadline())?;
        let client = match &self.global.host {
            Some(host) => client.for_host(host)?,
            None => client,
        };
        match &self.global.acting_for {
            Some(tenant) => client.acting_for(tenant),
            None => Ok(client),
        }
    }

    fn deadline(&self) -> Duration {
        self.global.timeout.map_or(DEADLINE, Into::into)
    }

    fn wait_limit(&self) -> Duration {
        self.global.timeout.map_or(WAIT_LIMIT, Into::into)
    }

    /// The context in use, with the options applied.
    fn context(&self, file: &ContextsFile) -> Result<ClientContext, Failure> {
        let named = self.global.context.clone().or_else(|| environment("SNICCTL_CONTEXT"));
        let endpoint = self.global.endpoint.clone().or_else(|| environment("SNICCTL_ENDPOINT"));
        let mut context = match named.or_else(|| file.contexts.current.clone()) {
            Some(name) => file.get(&name)?.clone(),
            None if endpoint.is_some() => ClientContext::default(),
            None => {
                return Err(Failure::usage(
                    format!("no current context in {}", file.path.display()),
                    "choose one with `snicctl context use`, or set --endpoint",
                ));
            }
        };
        context.endpoint = endpoint.unwrap_or(context.endpoint);
        Ok(context)
    }

    /// The id of the tenant for names without one.
    fn tenant(&self) -> Result<Option<String>, Failure> {
        if let Some(tenant) = self.global.tenant.clone().or_else(|| environment("SNICCTL_TENANT")) {
            return Ok(Some(tenant));
        }
        let file = ContextsFile::load()?;
        match self.context(&file) {
            Ok(context) => {
                let own = context.identity.as_deref().and_then(|who| who.strip_prefix("tenant/"));
                Ok(context.tenant.clone().or(own.map(str::to_owned)))
            }
            Err(Failure::Contexts(error @ ContextsError::Unknown { .. })) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// A DAG's full name.
    fn dag_name(&self, text: &str) -> Result<String, Failure> {
        names::dag(text, self.tenant()?.as_deref())
    }

    /// Reports a deletion.
    fn deleted(&mut self, name: &str) -> Result<(), Failure> {
        self.output.plain(&json!({}), &format!("deleted {name}\n"))
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Guard {
    /// The etag for a request; empty without a guard.
    fn into_etag(self) -> String {
        self.etag.unwrap_or_default()
    }
}

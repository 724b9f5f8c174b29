//! `snicctl support-bundle`: the diagnostics for a problem report in one file.
//!
//! Everything comes over the API, as the operator sees it. The server removes secrets from its settings
//! and log, and keys never leave their files. If a part cannot be read, the bundle has the error instead,
//! because a bundle is needed when things are broken. Where nobody answers there is none: it would have nothing.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use snic_api::v1::{
    GetDiagnosticsRequest, GetMaintenanceRequest, ListAuditEntriesRequest, ListBindingsRequest,
    ListBitstreamsRequest, ListDagsRequest, ListEventsRequest, ListNtTypesRequest,
    ListOperationsRequest, ListRulesRequest, ListTenantsRequest,
};

use super::CliSession;
use super::system::{self, PartialFile};
use snic_api::text::{escaped_json, escaped_lines};
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::lists::{self, PAGE_SIZE, pages};
use snic_client::output::message::{JsonMessage, PrintedMessage};
use snic_client::output::visible;

/// Entries of the audit log in a bundle.
const AUDIT_ENTRIES: i32 = 1_000;

/// The files of a bundle.
struct Bundle {
    archive: tar::Builder<GzEncoder<Vec<u8>>>,
    time: u64,
    names: Vec<String>,
    /// The first failure without an answer.
    unanswered: Option<Failure>,
    /// Whether the server said something, if only that it refuses.
    is_answered: bool,
}

impl Bundle {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        Self {
            archive,
            time: since.as_secs(),
            names: Vec::new(),
            unanswered: None,
            is_answered: false,
        }
    }

    fn add(&mut self, name: &str, content: &str) -> Result<(), Failure> {
        // People look at these files in a terminal; JSON stays the same values.
        let content =
            if name.ends_with(".json") { escaped_json(content) } else { escaped_lines(content) };
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        let path = format!("snic-support/{name}");
        self.archive.append_data(&mut header, path, content.as_bytes())?;
        self.names.push(name.to_owned());
        Ok(())
    }

    /// Adds a list as JSON, or the error instead.
    fn add_list<R: PrintedMessage>(
        &mut self,
        name: &str,
        list: Result<Vec<R>, Failure>,
    ) -> Result<(), Failure> {
        let shown = list.and_then(|list| {
            let shown: Vec<JsonMessage> =
                list.iter().map(JsonMessage::new).collect::<Result<_, _>>()?;
            visible::json(&shown, true)
        });
        match shown {
            Ok(text) => {
                self.is_answered = true;
                self.add(&format!("{name}.json"), &text)
            }
            Err(error) => self.add_error(name, error),
        }
    }

    fn add_error(&mut self, name: &str, error: Failure) -> Result<(), Failure> {
        let text = error.to_string();
        if error.is_unanswered() {
            self.unanswered.get_or_insert(error);
        } else {
            self.is_answered = true;
        }
        self.add(&format!("{name}.error.txt"), &text)
    }

    /// Fails if nobody has answered so far, not even with a refusal.
    fn check_answered(&mut self) -> Result<(), Failure> {
        self.unanswered.take().filter(|_| !self.is_answered).map_or(Ok(()), Err)
    }

    fn finish(self) -> Result<Vec<u8>, Failure> {
        Ok(self.archive.into_inner()?.finish()?)
    }
}

/// All pages of a list method.
macro_rules! list {
    ($client:expr, $service:ident.$method:ident, $request:ident { $($field:ident: $value:expr),* },
     $items:ident) => {
        pages(async |page_token| {
            #[allow(clippy::needless_update, reason = "some requests have no other fields")]
            let request = $request {
                page_size: PAGE_SIZE,
                page_token,
                $($field: $value,)*
                ..Default::default()
            };
            let reply = call!($client, $service.$method, request)?;
            Ok((reply.$items, reply.next_page_token))
        })
        .await
    };
}

/// Collects and writes the bundle.
pub async fn run(session: &mut CliSession, path: &Path) -> Result<(), Failure> {
    let client = session.client()?;
    let mut bundle = Bundle::new();
    server(&client, &mut bundle).await?;
    lists(&client, &mut bundle).await?;
    history(&client, &mut bundle).await?;
    let names = bundle.names.clone();
    let mut partial = PartialFile::create(path)?;
    partial.write(&bundle.finish()?)?;
    partial.finish()?;
    let told = format!("{}: {}\n", path.display(), names.join(", "));
    session.output.plain(&json!({ "file": path, "parts": names }), &told)
}

/// Diagnostics of the server itself.
async fn server(client: &Client, bundle: &mut Bundle) -> Result<(), Failure> {
    let mut versions = format!("snicctl {}\n", env!("CARGO_PKG_VERSION"));
    let found = call!(client, system.get_diagnostics => diagnostics, GetDiagnosticsRequest {});
    match found {
        Ok(found) => {
            bundle.is_answered = true;
            let started = snic_client::output::text::time(found.start_time.as_ref());
            versions += &format!("snicd {}, up since {started}\n", system::build(&found));
            versions += &format!("{}\n{}\n", found.operating_system, found.kernel);
            bundle.add("settings.toml", &found.settings)?;
            bundle.add("metrics.txt", &found.metrics)?;
            bundle.add("log.txt", &(found.log_lines.join("\n") + "\n"))?;
        }
        Err(error) => bundle.add_error("diagnostics", error)?,
    }
    let state = call!(client, system.get_maintenance => maintenance, GetMaintenanceRequest {});
    bundle.add_list("maintenance", state.map(|state| vec![state]))?;
    bundle.check_answered()?;
    bundle.add("versions.txt", &versions)
}

async fn lists(client: &Client, bundle: &mut Bundle) -> Result<(), Failure> {
    let all = || "tenants/-".to_owned();
    bundle.add_list("cards", lists::cards(client).await)?;
    bundle.add_list("regions", lists::regions(client, "cards/-").await)?;
    bundle
        .add_list("tenants", list!(client, tenants.list_tenants, ListTenantsRequest {}, tenants))?;
    bundle
        .add_list("dags", list!(client, dags.list_dags, ListDagsRequest { parent: all() }, dags))?;
    bundle
        .add_list("nt_types", list!(client, nts.list_nt_types, ListNtTypesRequest {}, nt_types))?;
    bundle.add_list(
        "bitstreams",
        list!(client, bitstreams.list_bitstreams, ListBitstreamsRequest {}, bitstreams),
    )?;
    bundle.add_list("rules", list!(client, rules.list_rules, ListRulesRequest {}, rules))?;
    bundle.add_list(
        "bindings",
        list!(client, machines.list_bindings, ListBindingsRequest { parent: all() }, bindings),
    )
}

/// Operations, events and the audit log.
async fn history(client: &Client, bundle: &mut Bundle) -> Result<(), Failure> {
    bundle.add_list(
        "operations",
        list!(client, operations.list_operations, ListOperationsRequest {}, operations),
    )?;
    bundle.add_list("events", list!(client, events.list_events, ListEventsRequest {}, events))?;
    let request = ListAuditEntriesRequest { page_size: AUDIT_ENTRIES, ..Default::default() };
    let latest = call!(client, audit.list_audit_entries, request);
    bundle.add_list("audit", latest.map(|reply| reply.entries))
}

//! `snicctl apply`: what files say is so afterwards.
//!
//! ```text
//!  files ──► documents ──► by kind, each before those that need it
//!                            │ as it is on the server
//!                            ├── missing ─────► create
//!                            ├── differs ─────► update of the fields that differ, guarded by the etag
//!                            └── as it is ────► nothing
//!  with --prune: what has the labels and is in no file ──► delete, in the reverse order
//! ```
//!
//! Only fields that a file names are compared and changed. A resource that cannot be changed, such as a network task
//! type, has to be deleted first.

mod bitstreams;
mod difference;
mod dry_run;
mod resources;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use snic_api::v1::{Dag, NtType, Rule, Tenant};
use snic_bitstream::catalogue;
use snic_client::output::message::{self, JsonMessage, PrintedMessage};
use snic_client::output::text;
use snic_client::{Client, Failure, names};
use snic_dagfile::{Document, DocumentKind, InvalidFile, documents};

use self::difference::{Difference, differences, lines};
use self::resources::{BegunOperation, FileResource, present};
use super::{CliSession, hints};
use crate::args::ApplyOptions;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Action for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Created,
    Changed,
    Unchanged,
    Deleted,
}

/// Result for a resource.
#[derive(Debug, Serialize)]
struct ApplyOutcome {
    name: String,
    action: Action,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
    /// A resource that it needs and that only the files would create: the server could not be asked about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    #[serde(skip)]
    begun: BegunOperation,
}

/// A document, and the folder of its file: paths in it begin there.
struct Target {
    document: Document,
    folder: PathBuf,
    name: String,
}

/// Applies files.
///
/// # Errors
/// The first failure; what was done before it stays, and is named.
pub async fn run(session: &mut CliSession, options: ApplyOptions) -> Result<(), Failure> {
    let mut targets = read_all(session, &options.file)?;
    targets.sort_by_key(|target| target.document.kind);
    check_once(&targets)?;
    let client = session.client()?;
    let mut outcomes = Vec::new();
    let done = carry_out(session, &client, &options, &targets, &mut outcomes).await;
    report(session, &options, &outcomes)?;
    done?;
    if options.wait {
        for operation in outcomes.into_iter().filter_map(|outcome| outcome.begun) {
            let ended = session.wait(&client, operation).await?;
            if let Some(snic_api::v1::operation::Result::Error(error)) = ended.result {
                return Err(tonic::Status::from(error).into());
            }
        }
    }
    Ok(())
}

async fn carry_out(
    session: &CliSession,
    client: &Client,
    options: &ApplyOptions,
    targets: &[Target],
    outcomes: &mut Vec<ApplyOutcome>,
) -> Result<(), Failure> {
    for target in targets {
        let outcome = match options.dry_run {
            true => dry_run::apply(session, client, target, outcomes).await?,
            false => apply(session, client, target, false).await?,
        };
        outcomes.push(outcome);
    }
    if options.prune {
        prune(session, client, options, targets, outcomes).await?;
    }
    Ok(())
}

impl ApplyOutcome {
    fn new(name: &str, action: Action) -> Self {
        let (differences, waits_for, begun) = (Vec::new(), None, None);
        Self { name: name.to_owned(), action, differences, waits_for, begun }
    }
}

async fn apply(
    session: &CliSession,
    client: &Client,
    target: &Target,
    dry: bool,
) -> Result<ApplyOutcome, Failure> {
    let document = &target.document;
    match document.kind {
        DocumentKind::Tenant => apply_as::<Tenant>(client, target, plain(document)?, dry).await,
        DocumentKind::NtType => apply_as::<NtType>(client, target, plain(document)?, dry).await,
        DocumentKind::Bitstream => {
            let applied = bitstreams::apply(client, target, dry).await;
            applied.map_err(|failure| at_place("header", document, failure))
        }
        DocumentKind::Dag => {
            let file = document.dag()?;
            let parent = target.name.split_once("/dags/").map_or("", |(parent, _)| parent);
            let mut paths = vec!["nodes", "edges", "bandwidth_bps"];
            let optional = super::dag::IN_FILES.iter().filter(|path| !paths.contains(path));
            let named: Vec<&str> = optional.copied().filter(|path| document.has(path)).collect();
            paths.extend(named);
            // What differs there is refused, rather than left as it is.
            paths.extend(document.has("placement").then_some("placement"));
            let wanted = (file.resource_of(parent), paths.into_iter().map(str::to_owned).collect());
            match apply_as::<Dag>(client, target, wanted, dry).await {
                Err(failure) => Err(hints::in_file(client, &file, failure).await),
                done => done,
            }
        }
        DocumentKind::Rule => {
            let (mut rule, paths) = plain::<Rule>(document)?;
            if !rule.dag.is_empty() {
                rule.dag = session.dag_name(&rule.dag)?;
            }
            apply_as::<Rule>(client, target, (rule, paths), dry).await
        }
    }
}

/// Message of a document, and the fields that it names.
fn plain<R: PrintedMessage + Default>(document: &Document) -> Result<(R, Vec<String>), Failure> {
    let (settable, others) = message::fields_of::<R>()?;
    read_fields(document, &settable, &others)
}

fn read_fields<R: PrintedMessage + Default>(
    document: &Document,
    settable: &[String],
    others: &[String],
) -> Result<(R, Vec<String>), Failure> {
    let all: Vec<&str> = settable.iter().chain(others).map(String::as_str).collect();
    let left_out: Vec<&str> = others.iter().map(String::as_str).chain(["etag"]).collect();
    let fields = document.fields(&all, &left_out)?;
    let resource = message::from_json(fields)
        .map_err(|(path, error)| Box::new(document.error_in(&path, &error, None)))?;
    let is_named = |path: &String| !left_out.contains(&path.split('.').next().unwrap_or(path));
    Ok((resource, document.paths().into_iter().filter(is_named).collect()))
}

fn value<R: PrintedMessage>(resource: &R) -> Result<Value, Failure> {
    serde_json::to_value(JsonMessage::new(resource)?)
        .map_err(|error| Failure::Reply(error.to_string()))
}

async fn apply_as<R: FileResource>(
    client: &Client,
    target: &Target,
    (mut wanted, paths): (R, Vec<String>),
    dry: bool,
) -> Result<ApplyOutcome, Failure> {
    let name = &target.name;
    let in_file = |failure: Failure| match target.document.kind {
        DocumentKind::Dag => failure, // Its file knows more of its places.
        _ => at_place(R::FIELD, &target.document, failure),
    };
    let Some(present) = present::<R>(client, name).await? else {
        let begun = wanted.create(client, name, dry).await.map_err(in_file)?;
        return Ok(ApplyOutcome { begun, ..ApplyOutcome::new(name, Action::Created) });
    };
    let differences = differences(&paths, &value(&present)?, &value(&wanted)?);
    if differences.is_empty() {
        return Ok(ApplyOutcome::new(name, Action::Unchanged));
    }
    wanted.set(name.clone(), present.etag().to_owned());
    let changed = differences.iter().map(|one| one.path.clone()).collect();
    match wanted.update(client, changed, dry).await {
        Some(begun) => {
            let begun = begun.map_err(in_file)?;
            Ok(ApplyOutcome { differences, begun, ..ApplyOutcome::new(name, Action::Changed) })
        }
        None => Err(unchangeable(target, &differences)),
    }
}

/// A refusal at the place of the field that it names, below `field` of the request.
fn at_place(field: &str, document: &Document, failure: Failure) -> Failure {
    failure.in_file(|path, message| {
        let path = path.strip_prefix(field)?.strip_prefix('.')?;
        // The place of what is missing is that of the document, which does not say what it is about.
        let is_there = path.split(['.', '[']).next().is_some_and(|key| document.has(key));
        let named = if is_there { message.to_owned() } else { format!("{path}: {message}") };
        Some(document.error_in(path, &named, None))
    })
}

fn unchangeable(target: &Target, differences: &[Difference]) -> Failure {
    let Difference { path, old, .. } = &differences[0];
    let message = format!("{} has {path} {old}, and it never changes", target.name);
    let kind = target.document.kind.word().trim_end_matches("-type");
    let id = text::id(&target.name);
    let help = format!("delete it first: `snicctl {kind} delete {id}`");
    Failure::from(Box::new(target.document.error_in(path, &message, Some(help))))
}

/// Deletes what has the labels and is in no file.
async fn prune(
    session: &CliSession,
    client: &Client,
    options: &ApplyOptions,
    targets: &[Target],
    outcomes: &mut Vec<ApplyOutcome>,
) -> Result<(), Failure> {
    let filter = options.selected.clone().whole().filter;
    let parent = session.dags_parent(false)?;
    let kept: BTreeSet<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    let kinds: BTreeSet<DocumentKind> = targets.iter().map(|target| target.document.kind).collect();
    for kind in kinds.into_iter().rev() {
        for name in resources::names(client, kind, &parent, &filter).await? {
            if kept.contains(name.as_str()) {
                continue;
            }
            let begun = match options.dry_run {
                true => None,
                false => resources::delete(client, kind, name.clone()).await?,
            };
            outcomes.push(ApplyOutcome { begun, ..ApplyOutcome::new(&name, Action::Deleted) });
        }
    }
    Ok(())
}

fn report(
    session: &mut CliSession,
    options: &ApplyOptions,
    outcomes: &[ApplyOutcome],
) -> Result<(), Failure> {
    let mut text = String::new();
    for ApplyOutcome { name, action, differences, waits_for, .. } in outcomes {
        let word = match (action, options.dry_run) {
            (Action::Unchanged, _) => "unchanged",
            (Action::Created, false) => "created",
            (Action::Changed, false) => "changed",
            (Action::Deleted, false) => "deleted",
            (Action::Created, true) => "would create",
            (Action::Changed, true) => "would change",
            (Action::Deleted, true) => "would delete",
        };
        let fields: Vec<&str> = differences.iter().map(|one| one.path.as_str()).collect();
        let fields =
            if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
        let waits =
            waits_for.as_ref().map(|needed| format!(", not checked further without {needed}"));
        text.push_str(&format!("{word} {name}{fields}{}\n", waits.unwrap_or_default()));
        if options.diff {
            text.push_str(&lines(differences));
        }
    }
    session.output.plain(&outcomes, &text)
}

/// No resource stands in the files twice.
fn check_once(targets: &[Target]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match targets.iter().find(|target| !seen.insert(target.name.as_str())) {
        None => Ok(()),
        Some(twice) => {
            let message = format!("{} is in the files twice", twice.name);
            Err(Box::new(twice.document.error_in("name", &message, None)).into())
        }
    }
}

fn read_all(session: &CliSession, files: &[PathBuf]) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    for path in files {
        if path.is_dir() {
            let mut found = entries(path)?;
            found.sort();
            if found.is_empty() {
                let hint = "it needs files that end in .yaml, .yml or .json, or a catalogue (nt-types.toml)";
                return Err(Failure::usage(format!("{} has no resources", path.display()), hint));
            }
            for file in found {
                read_file(session, &file, &mut targets)?;
            }
        } else {
            read_file(session, path, &mut targets)?;
        }
    }
    Ok(targets)
}

/// The files of a folder that have resources.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |source| Failure::Read { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let is_catalogue = path.file_name().is_some_and(|name| name == "nt-types.toml");
        if is_catalogue || ["yaml", "yml", "json"].contains(&end) {
            found.push(path);
        }
    }
    Ok(found)
}

fn read_file(session: &CliSession, path: &Path, targets: &mut Vec<Target>) -> Result<(), Failure> {
    let text = read_text(path)?;
    let is_standard_input = path.as_os_str() == "-";
    let shown = match is_standard_input {
        true => "<standard input>".to_owned(),
        false => path.display().to_string(),
    };
    let all = match path.extension().is_some_and(|end| end == "toml") {
        true => of_catalogue(&shown, &text)?,
        false => documents(&shown, &text)?,
    };
    let folder = path.parent().filter(|_| !is_standard_input).unwrap_or(Path::new("."));
    for document in all {
        let name = name_of(session, &document)?;
        targets.push(Target { document, folder: folder.to_owned(), name });
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |source| Failure::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().take(FILE_BYTES_MAX + 1).read_to_string(&mut text),
        false => {
            let file = std::fs::File::open(path).map_err(failed)?;
            file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)
        }
    };
    read.map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let message = format!("{} has more than {FILE_BYTES_MAX} bytes", path.display());
        return Err(Failure::usage(message, "divide the file"));
    }
    Ok(text)
}

/// The NT types of a catalogue file, as documents.
fn of_catalogue(shown: &str, text: &str) -> Result<Vec<Document>, Failure> {
    let types = catalogue::nt_types(catalogue::File { name: shown, text });
    let types = types.map_err(|error| {
        let hint = "a .toml file that is applied is a catalogue's nt-types.toml; write others in YAML or JSON";
        Failure::usage(error.to_string(), hint)
    })?;
    let mut all = Vec::new();
    for nt in types {
        let wire = snic_api::convert::nt_type::nt_type_to_wire(&nt);
        let (settable, _) = message::fields_of::<NtType>()?;
        let mut fields = value(&wire)?;
        if let Some(fields) = fields.as_object_mut() {
            fields.retain(|key, _| settable.contains(key) && key != "labels" || key == "name");
            fields.insert("name".to_owned(), snic_api::convert::name::of_nt_type(&nt.id).into());
        }
        all.extend(documents(shown, &fields.to_string())?);
    }
    Ok(all)
}

/// The full name of a document's resource.
fn name_of(session: &CliSession, document: &Document) -> Result<String, Failure> {
    let wrong = |message: &str, help: Option<String>| -> Failure {
        let invalid: InvalidFile = document.error_in("name", message, help);
        Box::new(invalid).into()
    };
    let Some(name) = document.name.clone() else {
        let message = format!("this {} has no name", document.kind.word());
        return Err(wrong(&message, Some("add `name:`".to_owned())));
    };
    let full = match document.kind {
        DocumentKind::Tenant => names::tenant(&name),
        DocumentKind::NtType => names::nt_type(&name),
        DocumentKind::Bitstream => names::bitstream(&name),
        DocumentKind::Dag => session.file_name(None, &document.dag()?),
        DocumentKind::Rule => names::rule(&name),
    };
    full.map_err(|failure| match failure {
        Failure::Usage { message, hint } => wrong(&message, Some(hint)),
        other => other,
    })
}

//! `snicctl context`: changes the user's file; no server is involved.

use std::path::PathBuf;

use serde::Serialize;

use super::CliSession;
use crate::args::{ContextCommand, ContextParts};
use snic_client::Failure;
use snic_client::output::Style;
use snic_client::output::table::{properties, table};
use snic_client::{ClientContext, ContextsFile};

pub fn run(session: &mut CliSession, command: ContextCommand) -> Result<(), Failure> {
    let mut file = ContextsFile::load()?;
    match command {
        ContextCommand::List => list(session, &file),
        ContextCommand::Use { name } => {
            file.get(&name)?;
            file.contexts.current = Some(name.clone());
            file.save()?;
            show(session, &file, name, "current context: ")
        }
        ContextCommand::Set { name, parts } => {
            set(session, &mut file, &name, parts)?;
            file.save()?;
            show(session, &file, name, "saved: ")
        }
        ContextCommand::Show { name } => {
            let current = || file.contexts.current.clone().ok_or_else(no_current);
            let name = name.map_or_else(current, Ok)?;
            show(session, &file, name, "")
        }
        ContextCommand::Delete { name } => {
            file.get(&name)?;
            file.contexts.contexts.remove(&name);
            file.contexts.current.take_if(|current| *current == name);
            file.save()?;
            session.deleted(&name)
        }
    }
}

fn no_current() -> Failure {
    Failure::usage("no current context", "choose one with `snicctl context use NAME`")
}

/// Sets the given parts and keeps the rest. The first context becomes the current one.
fn set(
    session: &CliSession,
    file: &mut ContextsFile,
    name: &str,
    parts: ContextParts,
) -> Result<(), Failure> {
    if name.is_empty() {
        return Err(Failure::usage(
            "the name of the context is empty",
            "choose a name, such as acme",
        ));
    }
    let mut context = file.contexts.contexts.get(name).cloned().unwrap_or_default();
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    context.endpoint = session.global.endpoint.clone().unwrap_or(context.endpoint);
    context.tenant = session.global.tenant.clone().or(context.tenant);
    context.ca = parts.ca.map(absolute).or(context.ca);
    context.certificate = parts.certificate.map(absolute).or(context.certificate);
    context.key = parts.key.map(absolute).or(context.key);
    context.server_name = parts.server_name.or(context.server_name);
    context.identity = parts.identity.or(context.identity);
    if context.endpoint.is_empty() {
        return Err(Failure::usage(
            "the context has no endpoint",
            "add --endpoint, such as https://127.0.0.1:7443",
        ));
    }
    file.contexts.contexts.insert(name.to_owned(), context);
    file.contexts.current.get_or_insert_with(|| name.to_owned());
    Ok(())
}

/// A context with its name, for JSON and YAML.
#[derive(Serialize)]
struct NamedContext<'a> {
    name: &'a str,
    current: bool,
    #[serde(flatten)]
    context: &'a ClientContext,
}

const PLAIN: Style = Style {
    is_colour: false,
    width: snic_client::output::WIDTH,
    now: std::time::SystemTime::UNIX_EPOCH,
};

fn list(session: &mut CliSession, file: &ContextsFile) -> Result<(), Failure> {
    let is_current = |name: &str| file.contexts.current.as_deref() == Some(name);
    let contexts = file.contexts.contexts.iter();
    let named: Vec<NamedContext> = contexts
        .map(|(name, context)| NamedContext { name, current: is_current(name), context })
        .collect();
    let rows = named.iter().map(|found| {
        vec![
            if found.current { "*" } else { "" }.to_owned(),
            found.name.to_owned(),
            found.context.endpoint.clone(),
            found.context.tenant.clone().unwrap_or_default(),
            identity(found.context),
        ]
    });
    let text = table(PLAIN, &["", "CONTEXT", "ENDPOINT", "TENANT", "IDENTITY"], rows.collect());
    session.output.plain(&named, &text)
}

/// The identity of a context, or the file name of its certificate.
fn identity(context: &ClientContext) -> String {
    let certificate = context.certificate.as_deref().and_then(|path| path.file_name());
    let certificate = certificate.map(|name| name.to_string_lossy().into_owned());
    context.identity.clone().or(certificate).unwrap_or_default()
}

fn show(
    session: &mut CliSession,
    file: &ContextsFile,
    name: String,
    before: &str,
) -> Result<(), Failure> {
    let context = file.get(&name)?;
    let path = |path: &Option<PathBuf>| {
        path.as_deref().map_or(String::new(), |path| file.resolve(path).display().to_string())
    };
    let current = file.contexts.current.as_deref() == Some(name.as_str());
    let text = properties(
        PLAIN,
        &[
            ("Name", name.clone()),
            ("Endpoint", context.endpoint.clone()),
            ("Tenant", context.tenant.clone().unwrap_or_default()),
            ("CA", path(&context.ca)),
            ("Certificate", path(&context.certificate)),
            ("Key", path(&context.key)),
            ("Server name", context.server_name.clone().unwrap_or_default()),
            ("Identity", context.identity.clone().unwrap_or_default()),
        ],
    );
    let before = if before.is_empty() { String::new() } else { format!("{before}{name}\n") };
    session.output.plain(&NamedContext { name: &name, current, context }, &(before + &text))
}

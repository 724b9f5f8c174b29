//! One call of libvirt's hook.
//!
//! libvirt calls `NAME OPERATION SUB-OPERATION EXTRA` with the domain's XML on standard input, and
//! waits. The hook must not call libvirt back: libvirt would wait for itself.
//!
//! | operation | action | exit code |
//! |---|---|---|
//! | `prepare begin` | bind, and wait until the card serves the domain | non-zero stops the start |
//! | `release end` | unbind; recorded and retried while the daemon is down | 0 |
//! | `reconnect begin` | bind again if the binding is gone | 0: anything else would end the domain |
//! | `migrate begin`, `restore begin` | none: `prepare` follows; no output keeps the XML as it is | 0 |
//! | all others | none | 0 |
//!
//! A bind whose answer never came may have succeeded, so the domain is recorded in the spool for
//! unbinding ([`crate::spool`]). The next start of the domain carries out that unbind first: what is
//! left of an earlier start is not this one's.

use std::io::Write as _;
use std::time::{Duration, Instant};

use snic_api::text::{escaped, escaped_lines};
use snic_output::complain;
use uuid::Uuid;

use crate::daemon::{CallError, DaemonClient};
use crate::domain::{self, Domain, RequestedBinding};
use crate::settings::{Settings, WhenDown};
use crate::spool::{PendingUnbind, Spool};

/// The arguments with which libvirt calls the hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCall {
    /// The domain's name.
    pub name: String,
    /// The operation, such as `prepare`.
    pub operation: String,
    /// Its phase, such as `begin`.
    pub sub_operation: String,
}

/// The hook's action for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Bind; a failure stops the start.
    Bind,
    /// Bind if it is not bound; a failure is only logged.
    BindAgain,
    Unbind,
    Nothing,
}

impl HookCall {
    /// The action for this call.
    pub fn action(&self) -> Action {
        match (self.operation.as_str(), self.sub_operation.as_str()) {
            ("prepare", "begin") => Action::Bind,
            ("reconnect", "begin") => Action::BindAgain,
            ("release", "end") => Action::Unbind,
            _ => Action::Nothing,
        }
    }
}

/// Carries out a call. Failures that must not stop libvirt go to its log.
///
/// # Errors
/// The reason why the domain must not start.
pub async fn run(settings: &Settings, call: &HookCall, xml: &str) -> Result<(), String> {
    let action = call.action();
    let result = match action {
        Action::Nothing => Ok(()),
        Action::Bind => bind_at_start(settings, xml).await,
        Action::BindAgain => bind_again(settings, xml).await,
        Action::Unbind => unbind(settings, xml).await,
    };
    let Err(text) = result else { return Ok(()) };
    let text =
        format!("snic-hook: {} {}: {}", call.operation, escaped(&call.name), escaped_lines(&text));
    if action == Action::Bind {
        explain(settings, call, &text);
        return Err(text);
    }
    complain!("{text}");
    Ok(())
}

/// The domain and the binding it asks for, if any.
fn requested(xml: &str) -> Result<Option<(Uuid, RequestedBinding)>, String> {
    let Domain { uuid, binding } = domain::read(xml).map_err(|error| error.to_string())?;
    match binding {
        None => Ok(None),
        Some(spec) => Ok(Some((uuid, spec.map_err(|error| error.to_string())?))),
    }
}

async fn bind_at_start(settings: &Settings, xml: &str) -> Result<(), String> {
    let Some((uuid, spec)) = requested(xml)? else { return Ok(()) };
    let result = match finish_pending_unbind(settings, uuid).await {
        Ok(()) => bind_domain(settings, uuid, &spec).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => Ok(()),
        Err(error @ CallError::Unreachable(_)) if settings.when_down == WhenDown::Allow => {
            complain!(
                "snic-hook: {}; the domain starts without its functions",
                escaped_lines(&error.to_string())
            );
            Ok(())
        }
        Err(error) => {
            if matches!(error, CallError::Unreachable(_)) {
                // The daemon may have bound it after the caller gave up.
                record_unbind(settings, PendingUnbind { uuid, tenant: Some(spec.tenant) });
            }
            Err(error.to_string())
        }
    }
}

/// Binds a domain that is running already: a failure undoes nothing.
async fn bind_again(settings: &Settings, xml: &str) -> Result<(), String> {
    let Some((uuid, spec)) = requested(xml)? else { return Ok(()) };
    forget_unbind(settings, uuid);
    bind_domain(settings, uuid, &spec).await.map_err(|error| error.to_string())
}

/// Unbinds what an earlier start of the domain may have left bound.
async fn finish_pending_unbind(settings: &Settings, uuid: Uuid) -> Result<(), CallError> {
    let Some(pending) = Spool::new(&settings.spool_dir).get(uuid) else { return Ok(()) };
    let mut daemon = DaemonClient::connect(&settings.daemon).await?;
    match daemon.unbind(uuid, pending.tenant.as_deref(), settings.timeout()).await {
        Err(error) if error.is_transient() => return Err(error),
        // Nothing is left of it, or it belongs to another tenant: the bind tells which.
        Ok(()) | Err(_) => {}
    }
    forget_unbind(settings, uuid);
    Ok(())
}

/// Binds a domain within the time of a call.
///
/// # Errors
/// [`CallError`].
pub async fn bind_domain(
    settings: &Settings,
    uuid: Uuid,
    spec: &RequestedBinding,
) -> Result<(), CallError> {
    let until = Instant::now() + settings.timeout();
    let mut daemon = DaemonClient::connect(&settings.daemon).await?;
    daemon.bind(uuid, spec, left(until)).await.map(drop)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

async fn unbind(settings: &Settings, xml: &str) -> Result<(), String> {
    let Domain { uuid, binding } = domain::read(xml).map_err(|error| error.to_string())?;
    // An invalid spec was never bound, but an earlier, valid one of this domain may be.
    let Some(spec) = binding else { return Ok(()) };
    let tenant = spec.ok().map(|spec| spec.tenant);
    let until = Instant::now() + settings.timeout();
    let result = async {
        let mut daemon = DaemonClient::connect(&settings.daemon).await?;
        daemon.unbind(uuid, tenant.as_deref(), left(until)).await
    };
    match result.await {
        Ok(()) => {
            forget_unbind(settings, uuid);
            Ok(())
        }
        Err(error) => {
            if error.is_transient() {
                record_unbind(settings, PendingUnbind { uuid, tenant });
            }
            Err(error.to_string())
        }
    }
}

fn record_unbind(settings: &Settings, pending: PendingUnbind) {
    if let Err(error) = Spool::new(&settings.spool_dir).add(&pending) {
        let (folder, uuid) = (settings.spool_dir.display(), pending.uuid);
        complain!("snic-hook: {folder}: {error}; unbind domain {uuid} by hand");
    }
}

fn forget_unbind(settings: &Settings, uuid: Uuid) {
    if let Err(error) = Spool::new(&settings.spool_dir).remove(uuid) {
        let folder = settings.spool_dir.display();
        complain!("snic-hook: {folder}: {error}; remove the record {uuid} by hand");
    }
}

/// Writes the reason to the domain's log, where its owner looks first.
fn explain(settings: &Settings, call: &HookCall, text: &str) {
    if call.name.contains('/') {
        return;
    }
    // libvirt creates the folder when the first domain starts.
    let _ = std::fs::create_dir_all(&settings.domain_log_dir);
    let path = settings.domain_log_dir.join(format!("{}.log", call.name));
    let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
    // A failure is no loss: libvirt reports the same text itself.
    let _ = log.and_then(|mut log| writeln!(log, "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(operation: &str, sub_operation: &str) -> Action {
        let (operation, sub_operation) = (operation.into(), sub_operation.into());
        HookCall { name: "vm".into(), operation, sub_operation }.action()
    }

    #[test]
    fn only_the_start_and_the_end_of_a_domain_matter() {
        assert_eq!(action("prepare", "begin"), Action::Bind);
        assert_eq!(action("reconnect", "begin"), Action::BindAgain);
        assert_eq!(action("release", "end"), Action::Unbind);
        for (operation, sub) in [
            ("start", "begin"),
            ("started", "begin"),
            ("stopped", "end"),
            ("migrate", "begin"),
            ("restore", "begin"),
            ("attach", "begin"),
            ("prepare", "end"),
            ("release", "begin"),
            ("explode", "now"),
        ] {
            assert_eq!(action(operation, sub), Action::Nothing, "{operation} {sub}");
        }
    }
}

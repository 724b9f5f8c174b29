//! One call of libvirt's hook.
//!
//! libvirt calls it `NAME OPERATION SUB-OPERATION EXTRA` with the domain's XML on standard input,
//! and waits. It is never called back from here: it would wait for itself.
//!
//! | operation | what is done | exit code |
//! |---|---|---|
//! | `prepare begin` | bind, and wait until the card serves the domain | refuses the start |
//! | `release end` | unbind; noted for later while the daemon is down | 0 |
//! | `reconnect begin` | bind again, if it is not bound any more | 0: else libvirt would end the domain |
//! | `migrate begin`, `restore begin` | nothing: `prepare` follows; no output leaves the XML as it is | 0 |
//! | all others | nothing | 0 |

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Problem};
use crate::domain::{self, Domain, Wish};
use crate::settings::{Settings, WhenDown};
use crate::spool::Spool;

/// What libvirt calls the hook with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The domain's name.
    pub name: String,
    /// What happens, such as `prepare`.
    pub operation: String,
    /// When, such as `begin`.
    pub sub_operation: String,
}

/// What a call is about for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Bind, and refuse the start where that fails.
    Bind,
    /// Bind if it is not bound; nothing is refused.
    BindAgain,
    /// Give back.
    Unbind,
    /// Nothing.
    Nothing,
}

impl Call {
    /// What is to be done.
    pub fn action(&self) -> Action {
        match (self.operation.as_str(), self.sub_operation.as_str()) {
            ("prepare", "begin") => Action::Bind,
            ("reconnect", "begin") => Action::BindAgain,
            ("release", "end") => Action::Unbind,
            _ => Action::Nothing,
        }
    }
}

/// Carries a call out; what goes wrong is for libvirt's log.
///
/// # Errors
/// Why the start is refused.
pub async fn run(settings: &Settings, call: &Call, xml: &str) -> Result<(), String> {
    let action = call.action();
    let result = match action {
        Action::Nothing => Ok(()),
        Action::Bind | Action::BindAgain => bind(settings, xml).await,
        Action::Unbind => unbind(settings, xml).await,
    };
    let Err(text) = result else { return Ok(()) };
    let text = format!("snic-hook: {} {}: {text}", call.operation, call.name);
    if action == Action::Bind {
        explain(settings, call, &text);
        return Err(text);
    }
    eprintln!("{text}");
    Ok(())
}

/// The domain and its wish, where it has one.
fn wish(xml: &str) -> Result<Option<(String, Wish)>, String> {
    let Domain { uuid, wish } = domain::read(xml).map_err(|error| error.to_string())?;
    match wish {
        None => Ok(None),
        Some(wish) => Ok(Some((uuid, wish.map_err(|error| error.to_string())?))),
    }
}

async fn bind(settings: &Settings, xml: &str) -> Result<(), String> {
    let Some((uuid, wish)) = wish(xml)? else { return Ok(()) };
    match bind_wish(settings, &uuid, &wish).await {
        Ok(()) => Ok(()),
        Err(problem @ Problem::Down(_)) if settings.when_down == WhenDown::Allow => {
            eprintln!("snic-hook: {problem}; the domain starts without its functions");
            Ok(())
        }
        Err(problem) => {
            if matches!(problem, Problem::Down(_)) {
                // It may have been bound while nobody waited for the answer any more.
                note(settings, &uuid);
            }
            Err(problem.to_string())
        }
    }
}

/// Binds a domain, in the time of a call.
///
/// # Errors
/// [`Problem`].
pub async fn bind_wish(settings: &Settings, uuid: &str, wish: &Wish) -> Result<(), Problem> {
    let until = Instant::now() + settings.timeout();
    let mut daemon = Daemon::connect(&settings.daemon).await?;
    Spool::new(&settings.spool_dir).forget(uuid);
    daemon.bind(uuid, wish, left(until)).await.map(drop)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

async fn unbind(settings: &Settings, xml: &str) -> Result<(), String> {
    let Domain { uuid, wish } = domain::read(xml).map_err(|error| error.to_string())?;
    // A wish that cannot be read cannot have been granted, but an earlier one of this domain can.
    let Some(wish) = wish else { return Ok(()) };
    let tenant = wish.ok().map(|wish| wish.tenant);
    let until = Instant::now() + settings.timeout();
    let result = async {
        let mut daemon = Daemon::connect(&settings.daemon).await?;
        daemon.unbind(&uuid, tenant.as_deref(), left(until)).await
    };
    result.await.map_err(|problem| {
        if matches!(problem, Problem::Down(_)) {
            note(settings, &uuid);
        }
        problem.to_string()
    })
}

fn note(settings: &Settings, uuid: &str) {
    if let Err(error) = Spool::new(&settings.spool_dir).note(uuid) {
        let folder = settings.spool_dir.display();
        eprintln!("snic-hook: {folder}: {error}; domain {uuid} is to be unbound by hand");
    }
}

/// Says why in the log of the domain, where its owner looks first.
fn explain(settings: &Settings, call: &Call, text: &str) {
    if call.name.contains('/') {
        return;
    }
    // libvirt makes it with the first domain that starts.
    let _ = std::fs::create_dir_all(&settings.domain_log_dir);
    let path = settings.domain_log_dir.join(format!("{}.log", call.name));
    let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
    // libvirt reports the same text by itself.
    let _ = log.and_then(|mut log| writeln!(log, "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(operation: &str, sub_operation: &str) -> Action {
        let (operation, sub_operation) = (operation.into(), sub_operation.into());
        Call { name: "vm".into(), operation, sub_operation }.action()
    }

    #[test]
    fn only_what_begins_and_ends_a_domain_counts() {
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

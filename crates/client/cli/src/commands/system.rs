//! `snicctl maintenance` and `snicctl backup`.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use snic_api::v1::condition::Status;
use snic_api::v1::{
    Diagnostics, DownloadBackupRequest, GetDiagnosticsRequest, GetMaintenanceRequest, Maintenance,
    SetMaintenanceRequest,
};

use super::{CliSession, request_id};
use crate::args::MaintenanceCommand;
use snic_client::Failure;
use snic_client::call;
use snic_client::output::{Style, text};

/// Mode of written files: backups contain what all tenants have stored.
const FILE_MODE: u32 = 0o600;

pub async fn maintenance(
    session: &mut CliSession,
    command: MaintenanceCommand,
) -> Result<(), Failure> {
    let client = session.client()?;
    let (active, reason) = match command {
        MaintenanceCommand::Status => {
            let request = GetMaintenanceRequest {};
            let state = call!(client, system.get_maintenance => maintenance, request)?;
            return session.output.one(&state, line);
        }
        MaintenanceCommand::On { reason } => (true, reason),
        MaintenanceCommand::Off => (false, String::new()),
    };
    let request = SetMaintenanceRequest { active, reason, request_id: request_id() };
    let state = call!(client, system.set_maintenance => maintenance, request)?;
    session.output.one(&state, line)
}

fn line(state: &Maintenance, _: Style) -> String {
    let mut text = if state.active {
        let because = if state.reason.is_empty() { "" } else { ": " };
        let since = text::time(state.since.as_ref());
        format!("on since {since} by {}{because}{}\n", state.by, state.reason)
    } else {
        "off: new DAGs and VM bindings are accepted\n".to_owned()
    };
    for condition in &state.conditions {
        if condition.status() == Status::False {
            text += &format!("{} is FALSE: {}\n", condition.r#type, condition.message);
        }
    }
    text
}

/// The versions of this program and of the server. A server that does not say its version is no error: it is
/// what people ask for when something is wrong.
pub async fn version(session: &mut CliSession) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    let client = session.client();
    let found = match &client {
        Ok(client) => {
            call!(client, system.get_diagnostics => diagnostics, GetDiagnosticsRequest {})
        }
        Err(failure) => Err(Failure::usage(failure.to_string(), "")),
    };
    let (server, told) = match found {
        Ok(found) => {
            let data = json!({ "version": found.version, "commit": found.commit });
            (data, format!("snicd {}\n", build(&found)))
        }
        Err(failure) => (json!(null), format!("snicd: not known ({failure})\n")),
    };
    let data = json!({ "version": own, "server": server });
    session.output.plain(&data, &format!("snicctl {own}\n{told}"))
}

/// The server's version, with its commit if that is known.
pub(super) fn build(found: &Diagnostics) -> String {
    match found.commit.as_str() {
        "" => found.version.clone(),
        commit => format!("{} ({commit})", found.version),
    }
}

/// Writes the backup to a temporary file, and renames it once it is complete and synced.
pub async fn backup(session: &mut CliSession, path: &Path) -> Result<(), Failure> {
    let client = session.client()?;
    let opened = client.system().download_backup(DownloadBackupRequest {}).await;
    let mut chunks = opened.map_err(|status| client.failure(status))?.into_inner();
    let mut partial = PartialFile::create(path)?;
    let mut bytes = 0;
    while let Some(chunk) = chunks.message().await.map_err(|status| client.failure(status))? {
        bytes += chunk.data.len();
        partial.write(&chunk.data)?;
    }
    partial.finish()?;
    let data = json!({ "file": path, "bytes": bytes });
    let told = format!("{}: {}\n", path.display(), text::size(bytes as u64));
    session.output.plain(&data, &told)
}

/// A file that appears only when it is complete. If dropped earlier, it leaves nothing behind.
pub(super) struct PartialFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    is_complete: bool,
}

impl PartialFile {
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(FILE_MODE).open(&temporary);
        let file = file.map_err(|source| Failure::Write { path: path.into(), source })?;
        Ok(Self { path: path.into(), temporary, file, is_complete: false })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let failed = |source| Failure::Write { path: self.path.clone(), source };
        self.file.write_all(bytes).map_err(failed)
    }

    pub fn finish(mut self) -> Result<(), Failure> {
        let done = self.file.sync_all().and_then(|()| fs::rename(&self.temporary, &self.path));
        done.map_err(|source| Failure::Write { path: self.path.clone(), source })?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_complete {
            // Best effort: the error that caused this is reported instead.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn maintenance_is_a_line() {
        let style = Style { is_colour: false, width: snic_client::output::WIDTH, now: UNIX_EPOCH };
        assert!(line(&Maintenance::default(), style).starts_with("off"));
        let on = Maintenance {
            active: true,
            reason: "new firmware".into(),
            by: "operator:root".into(),
            since: None,
            conditions: Vec::new(),
        };
        assert!(line(&on, style).ends_with("by operator:root: new firmware\n"));
        let condition = |status: Status, message: &str| snic_api::v1::Condition {
            r#type: "StoreWhole".into(),
            status: status.into(),
            message: message.into(),
            ..Default::default()
        };
        let conditions =
            vec![condition(Status::True, "fine"), condition(Status::False, "2 of tenant acme")];
        let off = line(&Maintenance { conditions, ..Default::default() }, style);
        assert!(off.ends_with("accepted\nStoreWhole is FALSE: 2 of tenant acme\n"), "{off}");
    }

    #[test]
    fn a_file_is_there_when_it_is_complete_and_not_before() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("backup");
        let mut partial = PartialFile::create(&path).expect("created");
        partial.write(b"half").expect("written");
        drop(partial);
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
        let mut partial = PartialFile::create(&path).expect("created");
        partial.write(b"whole").expect("written");
        partial.finish().expect("renamed");
        assert_eq!(fs::read(&path).expect("there"), b"whole");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
    }
}

//! Pages of the documentation, as tests run them: blocks of files and of commands, word for word.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use snic_integration::program;

use super::kubectl;

/// The block of a page of this package that begins with this line, without that line.
///
/// # Panics
/// There is none.
pub fn block(page: &str, first: &str) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page));
    let text = text.expect("a page");
    let (_, rest) = text.split_once(&format!("\n{first}\n")).unwrap_or_else(|| {
        panic!("{page} has no block that begins with {first:?}");
    });
    let (block, _) = rest.split_once("\n```").expect("the end of a block");
    format!("{block}\n")
}

/// The commands of a page's first block of the kind `console`, without their comments.
pub fn commands(page: &str) -> Vec<String> {
    let block = block(page, "```console");
    let typed = block.lines().filter_map(|line| {
        line.strip_prefix("# ").or_else(|| line.strip_prefix("$ "))?.split("  #").next()
    });
    typed.map(|line| line.trim().to_owned()).collect()
}

/// The profile of the scheduler that the page recommends for pods with claims.
pub const PROFILE: &str = "snic";

/// Writes the settings of kube-scheduler that the page recommends, for one that logs in with this file and has no replica.
pub fn scheduler_settings(folder: &Path, login: &Path) -> PathBuf {
    let page = block("dra.md", "# /etc/kubernetes/scheduler.yaml");
    let text = page.replace("/etc/kubernetes/scheduler.conf", &login.display().to_string());
    assert!(text.contains(&*login.to_string_lossy()) && text.contains(PROFILE), "{text}");
    let path = folder.join("scheduler.yaml");
    let text = format!("{text}leaderElection: {{leaderElect: false}}\n");
    std::fs::write(&path, text).expect("the folder takes files");
    path
}

/// A folder in which the commands of pages are typed: it has the manifests, and programs are found.
pub struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    /// For a user who logs in at the API server with this file, and at the daemon with this socket.
    pub fn new(login: &Path, socket: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path();
        let programs = here.join("bin");
        std::fs::create_dir(&programs).expect("a folder");
        symlink(which(kubectl().get_program().as_ref()), programs.join("kubectl")).expect("a link");
        for name in ["snicctl", "snicd"] {
            symlink(program(name), programs.join(name)).expect("a link");
        }
        symlink(login, here.join("login")).expect("a link");
        let contexts = format!(
            "current = \"acme\"\n[contexts.acme]\nendpoint = \"unix:{}\"\nidentity = \"tenant/acme\"\n",
            socket.display()
        );
        std::fs::write(here.join("contexts.toml"), contexts).expect("the folder takes files");
        let manifests = here.join("manifests");
        std::fs::create_dir(&manifests).expect("a folder");
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        for entry in std::fs::read_dir(ours).expect("manifests").flatten() {
            std::fs::copy(entry.path(), manifests.join(entry.file_name())).expect("copied");
        }
        Self { folder }
    }

    /// A file on the desk.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Types a line; returns what it prints.
    ///
    /// # Panics
    /// It fails.
    pub fn types(&self, line: &str) -> String {
        let mut shell = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", self.file("bin").display()));
        shell.env("KUBECONFIG", self.file("login"));
        shell.env("SNICCTL_CONFIG", self.file("contexts.toml"));
        let output = shell.current_dir(self.folder.path()).arg("-c").arg(line).output();
        let output = output.expect("a shell");
        let [said, complained] =
            [&output.stdout, &output.stderr].map(|s| String::from_utf8_lossy(s));
        println!("$ {line}\n{said}{complained}");
        assert!(output.status.success(), "{line}: {complained}");
        said.into_owned()
    }
}

/// The path of a program that the search path finds.
fn which(program: &Path) -> PathBuf {
    if program.is_absolute() {
        return program.to_owned();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.into_iter().find(|path| path.exists()).expect("it is installed")
}

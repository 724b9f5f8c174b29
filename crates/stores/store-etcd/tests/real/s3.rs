//! An S3 server that ends with its test, and a way to it that can be disturbed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snic_store_etcd::BucketSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// moto behind a port, with users whose signatures it checks.
const SERVER: &str = include_str!("s3.py");

pub const BUCKET: &str = "snic-images";
/// May do everything.
pub const FLEET: &str = "fleet";
/// May not write.
pub const READER: &str = "reader";

/// A server with a bucket. What it stores is gone when it is killed.
pub struct S3 {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    pub port: u16,
    /// Folder of the users' keys.
    folder: tempfile::TempDir,
    scheme: &'static str,
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A Python that has moto: of the test command, or of this machine.
fn python() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
    let candidates = [tools.join("moto/bin/python"), PathBuf::from("python3")];
    let found = candidates.into_iter().find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", "import boto3, moto.server"]).stdin(Stdio::null());
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    });
    if found.is_none() {
        let is_ci = std::env::var_os("CI").is_some();
        assert!(!is_ci, "the Python package moto is missing, an S3 server for tests");
        println!("not run: the Python package moto is missing (pip install 'moto[server]')");
    }
    found
}

impl S3 {
    /// Starts a server, and waits until it answers; `None` if there is none on this machine.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with files of a certificate and its key.
    pub fn start_with(tls: &[&Path]) -> Option<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        Self::start_at(port, tls, tempfile::tempdir().unwrap())
    }

    fn start_at(port: u16, tls: &[&Path], folder: tempfile::TempDir) -> Option<Self> {
        let users = format!(
            "{{\"{FLEET}\": [\"s3:*\"], \"{READER}\": [\"s3:GetObject\", \"s3:ListBucket\"]}}"
        );
        let mut command = Command::new(python()?);
        command.args(["-c", SERVER, &port.to_string(), BUCKET, &users]).args(tls);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let mut replies = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        let keys: BTreeMap<String, (String, String)> = serde_json::from_str(&line).unwrap();
        for (user, (id, secret)) in keys {
            let text =
                format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
            std::fs::write(folder.path().join(user), text).unwrap();
        }
        let scheme = if tls.is_empty() { "http" } else { "https" };
        Some(Self { child, commands, replies, port, folder, scheme })
    }

    /// SIGKILL, in the middle of whatever it does.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again at the same port, with nothing in its bucket and other keys in the users' files.
    pub fn restart(mut self) -> Self {
        self.kill();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        Self::start_at(self.port, &[], folder).unwrap()
    }

    /// A user's file of keys.
    pub fn keys(&self, user: &str) -> PathBuf {
        self.folder.path().join(user)
    }

    /// The bucket as a user's.
    pub fn settings(&self, user: &str) -> BucketSettings {
        self.settings_at(user, self.port)
    }

    /// The same through another port.
    pub fn settings_at(&self, user: &str, port: u16) -> BucketSettings {
        BucketSettings {
            bucket: BUCKET.to_owned(),
            prefix: "fleets/one".to_owned(),
            region: Some("us-east-1".to_owned()),
            endpoint: Some(format!("{}://127.0.0.1:{port}", self.scheme)),
            allow_http: true,
            authorities: None,
            credentials: Some(self.keys(user)),
            request_timeout: Duration::from_secs(2),
        }
    }

    fn command(&mut self, words: &[&str]) -> serde_json::Value {
        let line = serde_json::to_string(words).unwrap();
        writeln!(self.commands, "{line}").unwrap();
        let mut reply = String::new();
        self.replies.read_line(&mut reply).unwrap();
        serde_json::from_str(&reply).unwrap()
    }

    /// The names of all objects, as another client lists them.
    pub fn list(&mut self) -> Vec<String> {
        serde_json::from_value(self.command(&["list"])).unwrap()
    }

    /// An object's bytes in hexadecimal digits, as another client reads them.
    pub fn get(&mut self, name: &str) -> String {
        serde_json::from_value(self.command(&["get", name])).unwrap()
    }

    /// Another client stores an object.
    pub fn put(&mut self, name: &str, text: &str) {
        self.command(&["put", name, text]);
    }
}

/// Change that a [`Proxy`] makes to the server's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// Nothing comes any more, and the connection stays.
    Hang,
    /// The connection ends after so many bytes of the next answer; later ones are whole.
    CutOnce(usize),
    /// So long before each piece of 4 KiB.
    Slow(Duration),
}

/// A way to a server.
pub struct Proxy {
    pub port: u16,
    disturbance: Arc<Mutex<Disturbance>>,
}

impl Proxy {
    /// To a port of this machine, until the runtime ends.
    pub async fn start(to: u16) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let disturbance = Arc::new(Mutex::new(Disturbance::None));
        let of = Arc::clone(&disturbance);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let of = Arc::clone(&of);
                tokio::spawn(async move {
                    let to = SocketAddr::from(([127, 0, 0, 1], to));
                    // Who is not there is seen by the client as a connection that ends.
                    let Ok(server) = TcpStream::connect(to).await else { return };
                    let ((from_client, to_client), (from_server, mut to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::spawn(async move {
                        let mut from_client = from_client;
                        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
                    });
                    pass(from_server, to_client, &of).await;
                });
            }
        });
        Self { port, disturbance }
    }

    pub fn set(&self, disturbance: Disturbance) {
        *self.disturbance.lock().unwrap() = disturbance;
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, of: &Mutex<Disturbance>) {
    let mut piece = [0; 4096];
    let mut passed = 0;
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let now = *of.lock().unwrap();
        match now {
            Disturbance::None => {}
            Disturbance::Hang => std::future::pending().await,
            Disturbance::CutOnce(most) if passed + count > most => {
                *of.lock().unwrap() = Disturbance::None;
                let _ = to.write_all(&piece[..most.saturating_sub(passed)]).await;
                return;
            }
            Disturbance::CutOnce(_) => {}
            Disturbance::Slow(pause) => tokio::time::sleep(pause).await,
        }
        passed += count;
        if to.write_all(&piece[..count]).await.is_err() {
            return;
        }
    }
}

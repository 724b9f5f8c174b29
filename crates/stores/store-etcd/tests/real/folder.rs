//! Blobs in a folder of a real file system: one whose writer is killed, that is full, or that refuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use snic_domain::Digest;
use snic_store_etcd::{Blobs, BlobsUnusable, folder_of_blobs};

use super::cluster::{PATIENCE, runtime};

/// Names the folder of a process that a test starts.
const FOLDER: &str = "SNIC_TEST_FOLDER";
const IMAGE_BYTES: usize = 4 * 1024 * 1024;

/// A test of this program, in a process of its own; `before` are words that come before the command.
fn child(before: &[&str], test: &str, folder: &Path) -> Command {
    let this = std::env::current_exe().unwrap();
    let words = before.iter().map(Into::into).chain([this.into_os_string()]);
    let words: Vec<std::ffi::OsString> = words.collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["--exact", &format!("folder::{test}")]);
    command.args(["--ignored", "--nocapture"]).env(FOLDER, folder).stdin(Stdio::null());
    command
}

/// Stores images until it is killed.
#[test]
#[ignore = "part: a process that another test starts and kills"]
fn endless_writer() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let blobs = Blobs::new(folder_of_blobs(folder.as_ref()).unwrap());
    for i in 0..=u8::MAX {
        let bytes = vec![i; IMAGE_BYTES];
        runtime().block_on(blobs.put(Digest::of(&bytes), &bytes)).unwrap();
    }
}

/// SIGKILL in the middle of a write: each object is whole, and what the writer left is none, and is swept.
#[test]
fn a_killed_writer_leaves_no_half_object() {
    let mut caught = 0;
    let until = Instant::now() + PATIENCE;
    while caught < 3 {
        assert!(Instant::now() < until, "the writer is never killed in the middle");
        let folder = tempfile::tempdir().unwrap();
        let mut writer = child(&[], "endless_writer", folder.path());
        let mut writer = writer.stdout(Stdio::null()).spawn().unwrap();
        let objects = folder.path().join("bitstreams");
        let is_unfinished = |name: &String| name.starts_with("unfinished-");
        while !names(&objects).iter().any(is_unfinished) && Instant::now() < until {
            std::thread::yield_now();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let left = names(&objects);
        caught += left.iter().filter(|name| is_unfinished(name)).count();
        let blobs = Blobs::new(folder_of_blobs(folder.path()).unwrap());
        runtime().block_on(async {
            for name in left.iter().filter(|name| !is_unfinished(name)) {
                let whole = blobs.get(name.parse().unwrap()).await.unwrap();
                assert_eq!(whole.len(), IMAGE_BYTES);
            }
            let hour = Duration::from_secs(3_600);
            let (past, future) = (SystemTime::now() - hour, SystemTime::now() + hour);
            assert_eq!(blobs.sweep(&BTreeSet::new(), past, 1_000).await.unwrap(), 0);
            blobs.sweep(&BTreeSet::new(), future, 1_000).await.unwrap();
            assert_eq!(names(&objects), [""; 0]);
            blobs.put(Digest::of(b"bits"), b"bits").await.unwrap();
        });
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Prints what a check of the folder says, and an upload after it.
#[test]
#[ignore = "part: a process that another test starts"]
fn checker() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let blobs = match folder_of_blobs(folder.as_ref()) {
        Ok(objects) => Blobs::new(objects),
        Err(error) => return println!("opened: {}", error.with_source()),
    };
    match runtime().block_on(blobs.check()) {
        Ok(()) => println!("checked: ok"),
        Err(BlobsUnusable::Refused(text)) => println!("checked: refused: {text}"),
        Err(BlobsUnusable::Away(text)) => println!("checked: away: {text}"),
    }
    let bytes = vec![7; IMAGE_BYTES];
    match runtime().block_on(blobs.put(Digest::of(&bytes), &bytes)) {
        Ok(()) => println!("stored: ok"),
        Err(error) => println!("stored: {}", error.with_source()),
    }
}

/// The words of [`checker`] in a mount namespace, after a script has prepared `$0`; `None` if this machine allows none.
fn checked(script: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("set -e; {script}; exec \"$@\"");
    let unshare = ["unshare", "--mount", "--map-root-user"];
    let is_root = rustix::process::geteuid().is_root();
    let unshare = &unshare[..if is_root { 2 } else { 3 }];
    let tried = Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "namespaces are not allowed here");
        println!("not run: namespaces are not allowed here");
        return None;
    }
    let place = folder.path().to_str().unwrap();
    let before = [unshare, &["sh", "-c", &script, place]].concat();
    let Output { status, stdout, stderr } =
        child(&before, "checker", folder.path()).output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert!(status.success(), "{text}");
    Some(text)
}

/// Linux refuses each in its own way. What it says, and where, is in the error.
#[test]
fn a_folder_that_refuses_says_why() {
    let mounted = "mount -t tmpfs -o size=1m,mode=0755 none \"$0\"; mkdir \"$0\"/bitstreams";
    let Some(text) = checked(mounted) else { return };
    let full = ["checked: ok", "stored: the store could not store the bitstream ", "write /"];
    assert_all(&text, &full);
    assert_all(&text, &["/bitstreams/unfinished-", ": No space left on device (os error 28)"]);

    let text = checked(&format!("{mounted}; mount -o remount,ro \"$0\"")).unwrap();
    assert_all(
        &text,
        &["checked: away: cannot store an object: create /", "Read-only file system"],
    );
    assert_all(
        &text,
        &["stored: the store could not store the bitstream ", "Read-only file system"],
    );

    // Root may do everything, unless it gives that up.
    if !rustix::process::geteuid().is_root() {
        return println!("not run as root: the rest needs a folder of another user");
    }
    let drop = "set -- setpriv --bounding-set=-dac_override,-dac_read_search \"$@\"";
    let refused = "checked: refused: cannot store an object: the folder's permissions forbid it; ";
    for (mode, action) in [("755", "create /"), ("733", "sync /"), ("700", "look for /")] {
        let owned = format!("chmod {mode} \"$0\"/bitstreams; chown 65534 \"$0\"/bitstreams");
        let text = checked(&format!("{mounted}; {owned}; {drop}")).unwrap();
        assert_all(&text, &[refused, action, "Permission denied (os error 13)"]);
        assert_all(&text, &["stored: the store could not "]);
    }
}

fn assert_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

//! Contexts: servers and identities. They are stored in a file of the user: `$SNICCTL_CONFIG`, else
//! `$XDG_CONFIG_HOME/snic/config.toml`, else `~/.config/snic/config.toml`.
//!
//! ```toml
//! current = "acme"                      # the default context
//!
//! [contexts.acme]
//! endpoint = "https://127.0.0.1:7443"   # https://host:port, unix:/path, or http:// on loopback
//! tenant = "acme"                       # optional: tenant for names without a tenant
//! ca = "pki/ca.pem"                     # CA certificates for the server's certificate
//! certificate = "pki/acme.pem"          # client certificate
//! key = "pki/acme.key"                  # its private key
//! server_name = "localhost"             # optional: the name in the server's certificate,
//!                                       # if it differs from the endpoint's host
//!
//! [contexts.local]
//! endpoint = "unix:/run/snic/snicd.sock"
//! identity = "operator/alice"           # unix socket only, where the user has several
//! ```
//!
//! Relative paths start from the file's folder. Unknown keys are errors. The file names private keys, so it
//! is readable by its owner only (mode 0600), and it is replaced atomically.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The default context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, ClientContext>,
}

/// A server, and the user's identity there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientContext {
    /// `https://host:port`, `unix:/path`, or `http://host:port` on loopback.
    pub endpoint: String,
    /// Tenant for names without a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// PEM file with CA certificates for the server's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file with the client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of `certificate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Name in the server's certificate, if it differs from the endpoint's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Identity on a unix socket, where the user has several: `operator/{name}` or `tenant/{id}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// Why contexts cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ContextsError {
    /// The path of the file is unknown.
    #[error("none of SNICCTL_CONFIG, XDG_CONFIG_HOME and HOME is set; set one of them")]
    NoFolder,
    /// It cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is not valid.
    #[error("{path} is not valid: {error}", path = path.display(), error = source.to_string().trim_end())]
    Invalid {
        path: PathBuf,
        /// The error with line and column.
        source: Box<toml::de::Error>,
    },
    /// It cannot be written; the old file is unchanged.
    #[error("cannot write {path} (the old file is unchanged): {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("unknown context {name:?} in {path}; known contexts: {known}", path = path.display())]
    Unknown {
        name: String,
        path: PathBuf,
        /// The names that exist.
        known: String,
    },
}

/// The file and its content.
#[derive(Debug, Clone)]
pub struct ContextsFile {
    /// Its path, whether it exists or not.
    pub path: PathBuf,
    /// Its content; empty if it does not exist.
    pub contexts: Contexts,
}

/// The path of the file, from environment variables.
fn path_from(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, ContextsError> {
    let set = |name| variable(name).filter(|path| !path.as_os_str().is_empty());
    if let Some(file) = set("SNICCTL_CONFIG") {
        return Ok(file);
    }
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    Ok(folder.ok_or(ContextsError::NoFolder)?.join("snic").join("config.toml"))
}

impl ContextsFile {
    /// Reads the user's file. A missing file is empty.
    ///
    /// # Errors
    /// [`ContextsError`] if it cannot be read or is not valid.
    pub fn load() -> Result<Self, ContextsError> {
        Self::load_from(path_from(|name| std::env::var_os(name).map(PathBuf::from))?)
    }

    fn load_from(path: PathBuf) -> Result<Self, ContextsError> {
        let contexts = match fs::read_to_string(&path) {
            Ok(text) => match toml::from_str(&text) {
                Ok(contexts) => contexts,
                Err(source) => {
                    return Err(ContextsError::Invalid { path, source: Box::new(source) });
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Contexts::default(),
            Err(source) => return Err(ContextsError::Read { path, source }),
        };
        Ok(Self { path, contexts })
    }

    /// Replaces the file atomically, readable by its owner only.
    ///
    /// # Errors
    /// [`ContextsError::Write`]; the old file is unchanged.
    pub fn save(&self) -> Result<(), ContextsError> {
        let failed = |source| ContextsError::Write { path: self.path.clone(), source };
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let text =
            toml::to_string(&self.contexts).map_err(|error| failed(io::Error::other(error)))?;
        let mut file = tempfile::Builder::new()
            .prefix(".config-")
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(folder)
            .map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&self.path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// The context of this name.
    ///
    /// # Errors
    /// [`ContextsError::Unknown`], listing the known contexts.
    pub fn get(&self, name: &str) -> Result<&ClientContext, ContextsError> {
        self.contexts.contexts.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.contexts.contexts.keys().map(String::as_str).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            ContextsError::Unknown { name: name.to_owned(), path: self.path.clone(), known }
        })
    }

    /// Resolves a path of a context; relative paths start from the file's folder.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn acme() -> ClientContext {
        ClientContext {
            endpoint: "https://127.0.0.1:7443".into(),
            tenant: Some("acme".into()),
            ca: Some("pki/ca.pem".into()),
            ..ClientContext::default()
        }
    }

    fn file_in(folder: &Path) -> ContextsFile {
        let contexts = BTreeMap::from([("acme".to_owned(), acme())]);
        let contexts = Contexts { current: Some("acme".into()), contexts };
        ContextsFile { path: folder.join("deep/snic/config.toml"), contexts }
    }

    #[test]
    fn written_contexts_are_read_back_and_only_the_owner_may_open_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(folder.path());
        file.save().unwrap();
        file.save().unwrap();
        let mode = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ContextsFile::load_from(file.path.clone()).unwrap().contexts, file.contexts);
        let left = fs::read_dir(file.path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no temporary file stays");
    }

    #[test]
    fn the_file_reads_as_documented() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(folder.path());
        file.save().unwrap();
        let text = fs::read_to_string(&file.path).unwrap();
        assert_eq!(
            text,
            "current = \"acme\"\n\n[contexts.acme]\nendpoint = \"https://127.0.0.1:7443\"\n\
             tenant = \"acme\"\nca = \"pki/ca.pem\"\n"
        );
    }

    #[test]
    fn the_example_at_the_head_of_this_module_is_valid() {
        let source = include_str!("contexts.rs");
        let example = source.split("```").nth(1).unwrap().trim_start_matches("toml");
        let example = example.replace("//!", "");
        let contexts: Contexts = toml::from_str(&example).unwrap();
        assert_eq!(contexts.contexts.keys().collect::<Vec<_>>(), ["acme", "local"]);
    }

    #[test]
    fn no_file_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = ContextsFile::load_from(folder.path().join("none")).unwrap();
        assert_eq!(file.contexts, Contexts::default());
        let error = file.get("acme").unwrap_err().to_string();
        assert!(error.contains("\"acme\"") && error.ends_with("known contexts: none"), "{error}");
    }

    #[test]
    fn damage_is_shown_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        for (text, what) in [
            ("current = \"a\"\n[contexts.a]\nendpoint = 7\n", "line 3"),
            ("[contexts.a]\nendpoint = \"x\"\nkeys = \"y\"\n", "unknown field `keys`"),
            ("[contexts.a\n", "line 1"),
        ] {
            fs::write(&path, text).unwrap();
            let error = ContextsFile::load_from(path.clone()).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("config.toml is not valid"), "{error}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_leaves_a_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file_in(folder.path());
        fs::write(folder.path().join("plain"), "").unwrap();
        file.path = folder.path().join("plain/config.toml");
        assert!(file.save().unwrap_err().to_string().starts_with("cannot write"));
        assert!(
            ContextsFile::load_from(file.path).unwrap_err().to_string().starts_with("cannot read")
        );
    }

    #[test]
    fn the_environment_says_where_the_file_is() {
        let with = |set: &'static [(&str, &str)]| {
            path_from(|name| set.iter().find(|(key, _)| *key == name).map(|(_, v)| v.into()))
        };
        let path = |set| with(set).unwrap().display().to_string();
        assert_eq!(path(&[("HOME", "/h")]), "/h/.config/snic/config.toml");
        assert_eq!(path(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]), "/x/snic/config.toml");
        assert_eq!(path(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "")]), "/h/.config/snic/config.toml");
        assert_eq!(path(&[("XDG_CONFIG_HOME", "/x"), ("SNICCTL_CONFIG", "/c.toml")]), "/c.toml");
        assert!(matches!(with(&[]), Err(ContextsError::NoFolder)));
    }

    #[test]
    fn paths_start_from_the_files_folder() {
        let file = ContextsFile { path: "/a/config.toml".into(), contexts: Contexts::default() };
        assert_eq!(file.resolve(Path::new("pki/ca.pem")), Path::new("/a/pki/ca.pem"));
        assert_eq!(file.resolve(Path::new("/ca.pem")), Path::new("/ca.pem"));
    }

    proptest! {
        #[test]
        fn any_contexts_survive(names in prop::collection::btree_set(".{1,12}", 0..5), tenant in ".{0,9}") {
            let tenant = Some(tenant);
            let contexts = names.into_iter().map(|name| (name, ClientContext { tenant: tenant.clone(), ..acme() }));
            let contexts = Contexts { current: None, contexts: contexts.collect() };
            let text = toml::to_string(&contexts)?;
            prop_assert_eq!(toml::from_str::<Contexts>(&text)?, contexts);
        }
    }
}

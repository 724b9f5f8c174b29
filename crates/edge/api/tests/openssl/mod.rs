//! Authorities, certificates and lists of revoked certificates that OpenSSL makes.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::PathBuf;
use std::process::Command;

/// Settings of `openssl ca`: a database without copies of certificates.
const CONFIG: &str = "
[ca]
default_ca = own
[own]
database = DIR/NAME.index
serial = DIR/NAME.serial
crlnumber = DIR/NAME.number
new_certs_dir = DIR
certificate = DIR/NAME.pem
private_key = DIR/NAME.key
default_md = sha256
default_days = 30
default_crl_days = 30
policy = any
unique_subject = no
copy_extensions = none
[any]
commonName = supplied
[crl]
authorityKeyIdentifier = keyid
";

/// A folder with files of OpenSSL.
pub struct OpenSsl(tempfile::TempDir);

impl OpenSsl {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("it was made")
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// Runs `openssl` in the folder; words are separated by spaces.
    pub fn run(&self, line: &str) {
        let mut command = Command::new("openssl");
        command.args(line.split_whitespace()).current_dir(self.0.path());
        let output = command.output().expect("OpenSSL is installed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {line}: {error}");
    }

    /// A new key: `NAME.key`. `kind` such as `EC -pkeyopt ec_paramgen_curve:P-256`.
    pub fn key(&self, name: &str, kind: &str) {
        self.run(&format!("genpkey -algorithm {kind} -out {name}.key"));
    }

    /// An authority: `NAME.pem` with `NAME.key`; its distinguished name is `/CN=<common name>`.
    pub fn authority(&self, name: &str, common_name: &str, kind: &str) {
        self.key(name, kind);
        self.run(&format!(
            "req -x509 -new -key {name}.key -out {name}.pem -days 30 -subj /CN={common_name} -addext \
             keyUsage=critical,keyCertSign,cRLSign"
        ));
        self.database(name, "");
    }

    /// An authority that another one has issued.
    pub fn intermediate(&self, name: &str, issuer: &str) {
        self.issue(
            name,
            issuer,
            "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign",
            P256,
            "",
        );
        self.database(name, "");
    }

    /// The files of `openssl ca` of an authority; lists have these extensions.
    pub fn database(&self, name: &str, crl_extensions: &str) {
        let folder = self.0.path().display().to_string();
        let config = CONFIG.replace("DIR", &folder).replace("NAME", name) + crl_extensions;
        self.write(&format!("{name}.cnf"), config);
        for (file, content) in [("index", ""), ("serial", "1000"), ("number", "01")] {
            let path = self.path(&format!("{name}.{file}"));
            if !path.exists() {
                std::fs::write(path, content).expect("written");
            }
        }
    }

    /// A certificate `NAME.pem` with its key `NAME.key` and these extensions; `dates` such as
    /// `-startdate 20200101000000Z -enddate 20210101000000Z`.
    #[expect(clippy::too_many_arguments, reason = "all of it is what a certificate is made of")]
    pub fn issue(&self, name: &str, issuer: &str, extensions: &str, kind: &str, dates: &str) {
        self.key(name, kind);
        self.run(&format!("req -new -key {name}.key -out {name}.csr -subj /CN={name}"));
        self.write(&format!("{name}.ext"), extensions);
        let dates = if dates.is_empty() { "-days 20" } else { dates };
        self.run(&format!(
            "ca -batch -notext -config {issuer}.cnf -in {name}.csr -out {name}.pem -extfile {name}.ext {dates}"
        ));
    }

    /// A client's certificate with this path in its URI.
    pub fn client(&self, name: &str, issuer: &str, path: &str, dates: &str) {
        let uri =
            format!("subjectAltName=URI:spiffe://snic.local/{path}\nextendedKeyUsage=clientAuth");
        self.issue(name, issuer, &uri, P256, dates);
    }

    pub fn revoke(&self, name: &str, issuer: &str) {
        self.run(&format!("ca -config {issuer}.cnf -revoke {name}.pem"));
    }

    /// A list of an authority: `NAME.crl`; `dates` such as `-crl_lastupdate 20200101000000Z`.
    pub fn list(&self, name: &str, issuer: &str, dates: &str) {
        self.run(&format!("ca -gencrl -config {issuer}.cnf -crlexts crl -out {name}.crl {dates}"));
    }
}

pub const P256: &str = "EC -pkeyopt ec_paramgen_curve:P-256";
pub const P521: &str = "EC -pkeyopt ec_paramgen_curve:P-521";

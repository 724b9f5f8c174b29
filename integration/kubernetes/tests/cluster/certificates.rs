//! Certificates of a cluster, from an authority of its own, and the files with which clients log in.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType,
};

/// The authority of a cluster, in its folder.
pub struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the folder takes files");
}

impl Authority {
    /// A new authority, with a key for service accounts beside its own.
    pub fn new(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of the cluster");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        write(&folder.join("ca.crt"), &issuer.pem());
        let accounts = KeyPair::generate().expect("a key");
        write(&folder.join("accounts.key"), &accounts.serialize_pem());
        write(&folder.join("accounts.pub"), &accounts.public_key_pem());
        Self { folder: folder.to_owned(), issuer }
    }

    /// A file of the authority's folder, as text of a command line.
    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Writes `<file>.crt` and `<file>.key` for a user with groups, and for a server at these addresses.
    pub fn certificate(&self, file: &str, user: &str, groups: &[&str], addresses: &[&str]) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        let address = |text: &&str| SanType::IpAddress(text.parse().expect("an address"));
        params.subject_alt_names = addresses.iter().map(address).collect();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        write(&self.folder.join(format!("{file}.crt")), &certificate.pem());
        write(&self.folder.join(format!("{file}.key")), &key.serialize_pem());
    }

    /// Writes a certificate for a user with a group, and the file with which programs log in as that user.
    pub fn login(&self, file: &str, user: &str, group: &str) -> PathBuf {
        self.login_at(6443, file, (user, group))
    }

    /// The same where the API server has another port.
    pub fn login_at(&self, port: u16, file: &str, (user, group): (&str, &str)) -> PathBuf {
        self.certificate(file, user, &[group], &[]);
        let path = self.folder.join(format!("{file}.kubeconfig"));
        let (ca, certificate, key) = (
            self.file("ca.crt"),
            self.file(&format!("{file}.crt")),
            self.file(&format!("{file}.key")),
        );
        write(
            &path,
            &format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
                 clusters: [{{name: it, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: {ca}}}}}]\n\
                 users: [{{name: it, user: {{client-certificate: {certificate}, client-key: {key}}}}}]\n\
                 contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
            ),
        );
        path
    }
}

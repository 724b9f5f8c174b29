//! Certificates on both sides.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use snic_etcd::{Answer, Failed, Revision, Watch};
use snic_store_etcd::{EtcdConnection, EtcdSettings, TlsFiles};

use super::cluster::{Cluster, commit, in_time, put, read, runtime};

/// An authority, with what it signs.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    #[cfg(feature = "s3")]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn issue(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        // The user's name, for an etcd that has users.
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Certificate of a client, and the authority that it trusts.
    fn client(&self, trusted: &Self) -> TlsFiles {
        self.named_client("replica.example", trusted)
    }

    /// The same for a client of this name.
    pub fn named_client(&self, name: &str, trusted: &Self) -> TlsFiles {
        let (certificate, key) = self.issue(name);
        let authority = trusted.0.pem().into_bytes();
        TlsFiles { authority, certificate: certificate.into_bytes(), key: key.into_bytes() }
    }

    /// The options of a member, and its files in a folder.
    pub fn member(&self, folder: &Path) -> Vec<String> {
        let (certificate, key) = self.issue("127.0.0.1");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let authority = write("ca.pem", &self.0.pem());
        let (certificate, key) = (write("member.pem", &certificate), write("member.key", &key));
        let option = |name: &str, value: String| format!("{name}={value}");
        vec![
            "--client-cert-auth".to_owned(),
            option("--trusted-ca-file", authority),
            option("--cert-file", certificate),
            option("--key-file", key),
        ]
    }
}

#[test]
fn certificates_identify_both_sides() {
    let (ours, others) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let tls = (ours.member(folder.path()), ours.client(&ours));
    let Some(cluster) = Cluster::start_with_tls(tls) else { return };
    runtime().block_on(async {
        let with = async |tls| {
            let settings = EtcdSettings { tls: Some(tls), ..EtcdSettings::plain(cluster.urls()) };
            EtcdConnection::new(settings).await.unwrap()
        };
        let good = with(ours.client(&ours)).await;
        let answer = good.ask(&commit(vec![put("k/0", "")])).await;
        assert!(matches!(answer, Ok(Answer::Committed(_))), "{answer:?}");
        let watch = Watch { prefix: "k/".to_owned(), from: Revision(1) };
        let mut watching = good.watch(watch).unwrap();
        assert_eq!(in_time(watching.next()).await.unwrap().changes.len(), 1);

        let distrustful = with(ours.client(&others)).await;
        let failed = distrustful.ask(&commit(vec![put("k/1", "")])).await.unwrap_err();
        assert!(matches!(failed, Failed::Unreachable(_)), "{failed}");
        let stranger = with(others.client(&ours)).await;
        stranger.ask(&commit(vec![put("k/2", "")])).await.unwrap_err();
        let plain = EtcdSettings::plain(vec![cluster.urls()[0].replace("https", "http")]);
        let plain = EtcdConnection::new(plain).await.unwrap();
        plain.ask(&commit(vec![put("k/3", "")])).await.unwrap_err();
        assert_eq!(read(&good, "k/").await.unwrap().len(), 1, "nobody else has written");
    });
}

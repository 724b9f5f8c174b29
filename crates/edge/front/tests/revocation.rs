//! Lists of revoked certificates that OpenSSL made: which of them count, and which are refused.

#[path = "../../api/tests/openssl/mod.rs"]
mod openssl;

use std::time::{Duration, SystemTime};

use openssl::{OpenSsl, P256};
use snic_api::certificates::PemFile;
use snic_front::settings::TlsSettings;
use snic_front::{InvalidTls, RevocationStatus};

/// An authority `ca` with a server's certificate.
fn authority() -> OpenSsl {
    let files = OpenSsl::new();
    files.authority("ca", "ca", P256);
    files.issue("server", "ca", "subjectAltName=DNS:localhost", P256, "");
    files
}

/// The reading by a server of these lists, in this order in the file.
fn check(files: &OpenSsl, lists: &[&str]) -> Result<Vec<RevocationStatus>, InvalidTls> {
    let all: String = lists.iter().map(|list| files.text(&format!("{list}.crl"))).collect();
    files.write("all.crl", all);
    let read = |setting: &str, name: &str| PemFile::read(setting, &files.path(name)).expect("PEM");
    let settings = TlsSettings {
        certificate: read("tls.certificate", "server.pem"),
        key: read("tls.key", "server.key"),
        client_authority: read("tls.ca", "ca.pem"),
        revoked: Some(read("tls.crl", "all.crl")),
    };
    settings.check()
}

fn refused(files: &OpenSsl, lists: &[&str], what: &str) {
    let text = check(files, lists).expect_err(what).to_string();
    assert!(text.starts_with("tls.crl: ") && text.contains("all.crl cannot be used: "), "{text}");
    assert!(text.contains(what), "{what}: {text}");
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// RFC 5280, 5.2.3: a list with a higher number supersedes one with a lower number.
#[test]
fn the_newest_list_of_an_issuer_counts_whatever_the_order() {
    let files = authority();
    for name in ["first", "second", "third"] {
        files.list(name, "ca", "");
    }
    let orders =
        [["first", "second", "third"], ["third", "second", "first"], ["second", "third", "first"]];
    for order in orders {
        let statuses = check(&files, &order).expect("valid");
        let [status] = &statuses[..] else { panic!("{statuses:?}") };
        assert_eq!((&*status.issuer, &*status.number, status.superseded), ("CN=ca", "3", 2));
        assert!(status.is_known_issuer);
        assert_eq!(status.problem(SystemTime::now()), None);
    }
    let same = check(&files, &["third", "third"]).expect("the same list twice");
    assert_eq!(same[0].number, "3");
}

#[test]
fn lists_that_contradict_each_other_are_refused() {
    let files = authority();
    files.list("late", "ca", "-crl_lastupdate 20260102000000Z -crl_nextupdate 20360101000000Z");
    files.list("early", "ca", "-crl_lastupdate 20260101000000Z -crl_nextupdate 20360101000000Z");
    for order in [["late", "early"], ["early", "late"]] {
        refused(&files, &order, "lists 1 and 2 in it, of CN=ca, contradict each other");
    }
    // The same number and time, with another content.
    files.write("ca.number", "07");
    files.list("one", "ca", "-crl_lastupdate 20260101000000Z -crl_nextupdate 20360101000000Z");
    files.write("ca.number", "07");
    files.list("other", "ca", "-crl_lastupdate 20260101000000Z -crl_nextupdate 20370101000000Z");
    refused(&files, &["one", "other"], "both have the same number and time");
}

#[test]
fn a_list_is_current_from_its_issue_to_the_next_one() {
    let files = authority();
    files.list("list", "ca", "-crl_lastupdate 20200101000000Z -crl_nextupdate 20210101000000Z");
    let status = &check(&files, &["list"]).expect("usable, though it has expired")[0];
    let (begin, end) = (1_577_836_800, 1_609_459_200);
    assert_eq!((status.this_update, status.next_update), (at(begin), at(end)));
    let future = status.problem(at(begin - 1)).expect("not issued yet");
    assert!(
        future.contains("the list 1 of revoked certificates of CN=ca is from the future"),
        "{future}"
    );
    assert_eq!((status.problem(at(begin)), status.problem(at(end - 1))), (None, None));
    let expired = status.problem(at(end)).expect("the next one was due");
    assert!(expired.contains("CN=ca expired at 2021-01-01T00:00:00Z"), "{expired}");
}

#[test]
fn lists_of_other_kinds_are_refused_with_their_reason() {
    let files = authority();
    let list = |name: &str, extension: &str| {
        let config = files.text("ca.cnf") + extension + "\n";
        files.write("kind.cnf", config);
        files.run(&format!("ca -gencrl -config kind.cnf -crlexts crl -out {name}.crl"));
    };
    list("delta", "2.5.29.27=critical,DER:020101");
    list("indirect", "issuingDistributionPoint=critical,@idp\n[idp]\nindirectCRL=TRUE");
    list("reasons", "issuingDistributionPoint=critical,@idp\n[idp]\nonlysomereasons=keyCompromise");
    list("unknown", "1.2.3.4=critical,DER:0500");
    list(
        "users",
        "issuingDistributionPoint=critical,@idp\n[idp]\nfullname=URI:http://ca.test/users\nonlyuser=TRUE",
    );
    list(
        "authorities",
        "issuingDistributionPoint=critical,@idp\n[idp]\nfullname=URI:http://ca.test/authorities\nonlyCA=TRUE",
    );
    refused(&files, &["delta"], "list 1: it is a delta list of CN=ca (RFC 5280, 5.2.4)");
    refused(&files, &["indirect"], "list 1: it is an indirect list of CN=ca (RFC 5280, 5.2.5)");
    refused(&files, &["reasons"], "only some reasons");
    refused(&files, &["unknown"], "it is of CN=ca and cannot be used: ");
    // Of different certificates, both count.
    assert_eq!(check(&files, &["users", "authorities"]).expect("two parts").len(), 2);
    files.write("none.crl", files.text("ca.pem"));
    refused(&files, &["none"], "there is no list in it");
}

#[test]
fn a_list_must_have_its_issuers_signature() {
    let files = authority();
    files.list("true", "ca", "");
    // An authority of the same name with another key.
    files.authority("false", "ca", P256);
    files.list("forged", "false", "");
    files.run("crl -in true.crl -CAfile ca.pem -noout -verify");
    for order in [["true", "forged"], ["forged", "true"]] {
        refused(&files, &order, "says that it is of CN=ca, but does not have the signature");
    }
    // With both authorities both are right, but only one can be verified.
    files.write("ca.pem", files.text("ca.pem") + &files.text("false.pem"));
    files.write("server.pem", files.text("server.pem"));
    refused(&files, &["true", "forged"], "signed with different keys");
    // One of an issuer that is not there may be an intermediate one's.
    let files = authority();
    files.intermediate("middle", "ca");
    files.list("middle", "middle", "");
    let status = &check(&files, &["middle"]).expect("clients send the issuer")[0];
    assert!(
        !status.is_known_issuer && status.to_string().contains("its issuer is not in"),
        "{status}"
    );
}

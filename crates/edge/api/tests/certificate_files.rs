//! Files with certificates and keys that OpenSSL made, and what people do to them.

use std::time::{Duration, SystemTime};

use crate::openssl::{OpenSsl, P256, P521};
use snic_api::certificates::{PemFile, UnusableFile, check_issuer, check_pair};

fn read(files: &OpenSsl, name: &str) -> Result<PemFile, UnusableFile> {
    PemFile::read("tls.certificate", &files.path(name))
}

/// The error names setting and file, and says this.
fn says(files: &OpenSsl, name: &str, error: UnusableFile, what: &str) {
    let text = error.to_string();
    let path = files.path(name);
    assert!(text.contains(&*path.to_string_lossy()), "{text}");
    assert!(text.starts_with("tls.certificate: "), "{text}");
    assert!(text.contains(what), "{what}: {text}");
}

#[test]
fn a_file_that_is_no_pem_says_what_it_is() {
    let files = OpenSsl::new();
    files.authority("ca", "ca", P256);
    files.run("x509 -in ca.pem -outform DER -out ca.der");
    let pem = files.text("ca.pem");
    files.write("bom", [&[0xef, 0xbb, 0xbf], pem.as_bytes()].concat());
    let units =
        |convert: fn(u16) -> [u8; 2]| pem.encode_utf16().flat_map(convert).collect::<Vec<_>>();
    files.write("utf16le", units(u16::to_le_bytes));
    files.write("utf16be-bom", [vec![0xfe, 0xff], units(u16::to_be_bytes)].concat());
    files.write("blank", " \r\n\n");
    files.write("empty", "");
    files.write("bytes", [0x80, 0xff, 0, 1]);
    for (name, what) in [
        ("ca.der", "it is DER"),
        ("bom", "byte order mark"),
        ("utf16le", "UTF-16"),
        ("utf16be-bom", "UTF-16"),
        ("blank", "it is empty"),
        ("empty", "it is empty"),
        ("bytes", "not text"),
        ("missing", "No such file"),
    ] {
        says(&files, name, read(&files, name).expect_err(name), what);
    }
    // Line ends of Windows are fine: OpenSSL reads them, too.
    files.write("crlf.pem", pem.replace('\n', "\r\n"));
    files.run("x509 -in crlf.pem -noout");
    assert_eq!(read(&files, "crlf.pem").unwrap().certificates().map(|all| all.len()), Ok(1));
    files.write("cut.pem", &pem[..pem.len() - 40]);
    let cut = read(&files, "cut.pem").unwrap().certificates().expect_err("cut off");
    says(&files, "cut.pem", cut, "cut off");
    let key = read(&files, "ca.key").unwrap().certificates().expect_err("a key");
    says(&files, "ca.key", key, "there is no certificate in it, but: PRIVATE KEY");
}

#[test]
fn keys_that_tls_cannot_use_are_named() {
    let files = OpenSsl::new();
    files.authority("ca", "ca", P256);
    let uri = "subjectAltName=URI:spiffe://snic.local/tenant/acme";
    let kinds = [
        ("p256", P256, None),
        ("p384", "EC -pkeyopt ec_paramgen_curve:P-384", None),
        ("ed25519", "ED25519", None),
        ("rsa", "RSA -pkeyopt rsa_keygen_bits:2048", None),
        (
            "p521",
            P521,
            Some("ECDSA with P-521, which is not supported (supported: ECDSA with P-256"),
        ),
        ("weak", "RSA -pkeyopt rsa_keygen_bits:1024", Some("RSA with 1024 bits")),
        ("ed448", "ED448", Some("of the algorithm 1.3.101.113")),
    ];
    for (name, kind, wrong) in kinds {
        files.issue(name, "ca", uri, kind, "");
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        let checked =
            check_pair(&read(&files, &certificate).unwrap(), &read(&files, &key).unwrap());
        match wrong {
            None => assert_eq!(checked, Ok(()), "{name}"),
            Some(what) => says(&files, &certificate, checked.expect_err(name), what),
        }
    }
    files.authority("ca521", "ca521", P521);
    let error = read(&files, "ca521.pem").unwrap().check_authority().expect_err("P-521");
    says(&files, "ca521.pem", error, "the authority's key is ECDSA with P-521");
    // One that can be used is enough.
    files.write("both.pem", files.text("ca521.pem") + &files.text("ca.pem"));
    assert_eq!(read(&files, "both.pem").unwrap().check_authority(), Ok(()));
    files.run("pkey -in p256.key -aes256 -passout pass:secret -out encrypted.key");
    files.run("ec -in p256.key -aes256 -passout pass:secret -out old.key");
    for name in ["encrypted.key", "old.key"] {
        let error = read(&files, name).unwrap().private_key().expect_err("encrypted");
        says(&files, name, error, "the key is encrypted");
    }
    // The form that begins with EC PRIVATE KEY.
    files.run("ec -in p256.key -out sec1.key");
    let sec1 = read(&files, "sec1.key").unwrap();
    assert_eq!(check_pair(&read(&files, "p256.pem").unwrap(), &sec1), Ok(()));
}

#[test]
fn a_key_and_the_order_of_certificates_must_fit() {
    let files = OpenSsl::new();
    files.authority("root", "root", P256);
    files.intermediate("middle", "root");
    files.client("leaf", "middle", "tenant/acme", "");
    files.client("other", "middle", "tenant/other", "");
    let pair = |certificate: &str, key: &str| {
        check_pair(&read(&files, certificate).unwrap(), &read(&files, key).unwrap())
    };
    let [leaf, middle, root] = ["leaf.pem", "middle.pem", "root.pem"].map(|name| files.text(name));
    files.write("chain.pem", format!("{leaf}{middle}"));
    files.write("whole.pem", format!("{leaf}{middle}{root}"));
    assert_eq!(pair("chain.pem", "leaf.key"), Ok(()));
    assert_eq!(pair("whole.pem", "leaf.key"), Ok(()));
    says(
        &files,
        "other.key",
        pair("chain.pem", "other.key").expect_err("another"),
        "does not belong",
    );
    files.write("turned.pem", format!("{middle}{leaf}"));
    says(
        &files,
        "turned.pem",
        pair("turned.pem", "leaf.key").expect_err("order"),
        "number 2 in it; put it first",
    );
    files.write("gap.pem", format!("{leaf}{root}"));
    let error = pair("gap.pem", "leaf.key").expect_err("a gap");
    says(
        &files,
        "gap.pem",
        error,
        "certificate 1 in it was issued by CN=middle, but certificate 2 is CN=root",
    );
    // Another authority of the same name.
    files.authority("false", "middle", P256);
    files.write("forged.pem", leaf + &files.text("false.pem"));
    let error = pair("forged.pem", "leaf.key").expect_err("another key");
    says(&files, "forged.pem", error, "does not have the signature of certificate 2 (CN=middle)");
}

/// OpenSSL's verdict on the same files is the judge.
#[test]
fn a_missing_intermediate_is_named() {
    let files = OpenSsl::new();
    files.authority("root", "root", P256);
    files.intermediate("middle", "root");
    files.client("leaf", "middle", "tenant/acme", "");
    files.client("direct", "root", "tenant/acme", "");
    files.write("chain.pem", files.text("leaf.pem") + &files.text("middle.pem"));
    let root = PemFile::read("tls.ca", &files.path("root.pem")).unwrap();
    let issuer = |name: &str| check_issuer(&read(&files, name).unwrap(), &root);
    files.run("verify -CAfile root.pem direct.pem");
    files.run("verify -CAfile root.pem -untrusted middle.pem leaf.pem");
    assert_eq!((issuer("direct.pem"), issuer("chain.pem")), (Ok(()), Ok(())));
    let alone = std::process::Command::new("openssl")
        .args(["verify", "-CAfile"])
        .args([files.path("root.pem"), files.path("leaf.pem")])
        .output()
        .expect("OpenSSL is installed");
    assert!(!alone.status.success(), "OpenSSL misses it, too");
    let error = issuer("leaf.pem").expect_err("it is missing");
    says(&files, "leaf.pem", error, "its issuer CN=middle is neither in it nor in tls.ca: ");
    files.authority("false", "middle", P256);
    let false_one = PemFile::read("tls.ca", &files.path("false.pem")).unwrap();
    let error = check_issuer(&read(&files, "leaf.pem").unwrap(), &false_one).expect_err("forged");
    says(&files, "leaf.pem", error, "but with another key, which did not sign it");
}

#[test]
fn dates_and_uris_are_checked() {
    let files = OpenSsl::new();
    files.authority("ca", "ca", P256);
    files.client("new", "ca", "tenant/acme", "-startdate 20300101000000Z -enddate 20310101000000Z");
    files.client("old", "ca", "tenant/acme", "-startdate 20200101000000Z -enddate 20210101000000Z");
    files.issue("none", "ca", "subjectAltName=DNS:localhost", P256, "");
    let uris = "subjectAltName=URI:spiffe://snic.local/tenant/a,URI:spiffe://snic.local/tenant/b";
    files.issue("two", "ca", uris, P256, "");
    files.issue("web", "ca", "subjectAltName=URI:https://example.org/", P256, "");
    let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let dates = |name: &str, now| read(&files, name).unwrap().check_dates(now);
    // 2030-06-01, and the seconds around both ends of `old`.
    let (begin, end) = (1_577_836_800, 1_609_459_200);
    assert_eq!(dates("new.pem", at(1_906_502_400)), Ok(()));
    assert_eq!((dates("old.pem", at(begin)), dates("old.pem", at(end))), (Ok(()), Ok(())));
    let early = dates("old.pem", at(begin - 1)).expect_err("not yet");
    says(
        &files,
        "old.pem",
        early,
        "not valid before 2020-01-01T00:00:00Z, and it is 2019-12-31T23:59:59Z",
    );
    let late = dates("old.pem", at(end + 1)).expect_err("expired");
    says(&files, "old.pem", late, "expired at 2021-01-01T00:00:00Z");
    let uri = |name: &str| read(&files, name).unwrap().check_uri();
    assert_eq!(uri("new.pem"), Ok(()));
    says(&files, "none.pem", uri("none.pem").expect_err("none"), "has 0 URIs");
    says(&files, "two.pem", uri("two.pem").expect_err("two"), "has 2 URIs");
    says(
        &files,
        "web.pem",
        uri("web.pem").expect_err("no identity"),
        "https://example.org/ is no identity",
    );
}

//! The page for browsers: who may open it, and browsers that are many, slow or do not read at all.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use snic_front::authorization::{AccessDecision, Authorization, Authorizer, Question};
use snic_front::settings::Limits;
use snic_front::{ListenError, ServeError};
use snic_server::{PageKey, WebSettings};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};
use tokio::io::{BufReader, Lines};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::rig::{self, DOMAIN, PAGE_KEY, Rig, dag, in_time, page_key};

/// Connects over TLS, with an identity's certificate or without one.
async fn tls(rig: &Rig, who: Option<&str>) -> TlsStream<TcpStream> {
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(read(&rig.authority.pem())).expect("an authority");
    let config = rustls::ClientConfig::builder().with_root_certificates(roots);
    let config = match who {
        None => config.with_no_client_auth(),
        Some(who) => {
            let uri = format!("spiffe://{DOMAIN}/{who}");
            let (certificate, key) = rig.authority.client_pem(&[&uri]);
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(vec![read(&certificate)], key).expect("a certificate")
        }
    };
    let io = TcpStream::connect(rig.web).await.expect("it listens");
    let name = "localhost".try_into().expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, io).await.expect("a handshake")
}

fn head(method: &str, path: &str) -> String {
    let key = format!("cookie: snic-page-80={PAGE_KEY}\r\n");
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{key}connection: close\r\n\r\n")
}

/// One request; returns the whole reply.
async fn fetch(mut io: impl AsyncRead + AsyncWrite + Unpin, method: &str, path: &str) -> String {
    io.write_all(head(method, path).as_bytes()).await.expect("written");
    let mut reply = Vec::new();
    // An end without a farewell is one, too.
    let _ = in_time(io.read_to_end(&mut reply)).await;
    String::from_utf8(reply).expect("text")
}

async fn plain(rig: &Rig) -> TcpStream {
    TcpStream::connect(rig.web).await.expect("it listens")
}

/// A stream that is read line by line.
async fn watch(rig: &Rig) -> Lines<BufReader<TcpStream>> {
    let mut io = plain(rig).await;
    io.write_all(head("GET", "/stream").as_bytes()).await.expect("written");
    BufReader::new(io).lines()
}

/// Reads on until a line contains a text; returns the line, or `None` at the end.
async fn until(lines: &mut Lines<BufReader<TcpStream>>, text: &str) -> Option<String> {
    let found = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line.contains(text) {
                return Some(line);
            }
        }
        None
    };
    in_time(found).await
}

/// Refuses to tell one operator of tenants' DAGs.
#[derive(Debug)]
struct NoDagsForDave;

impl Authorizer for NoDagsForDave {
    fn decide(&self, question: &Question<'_>) -> AccessDecision {
        let is_dave = question.identity.to_string() == "operator/dave";
        let allowed = !(is_dave && question.row.method() == "ListDags");
        AccessDecision { allowed, policies: Vec::new() }
    }
}

#[tokio::test]
async fn it_is_for_operators_whom_the_policies_let_read_everything() {
    let rig = Rig::adjusted(|settings| {
        settings.front.authorization = Authorization::new(Arc::new(NoDagsForDave));
    })
    .await;
    let page = fetch(tls(&rig, Some("operator/erin")).await, "GET", "/").await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let page = fetch(tls(&rig, Some("operator/dave")).await, "GET", "/").await;
    assert!(!page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("authorization policies"), "{page}");
    rig.stop().await;
}

#[tokio::test]
async fn it_is_for_operators_who_show_their_certificate() {
    let rig = Rig::start().await;
    let page = fetch(tls(&rig, Some("operator/root")).await, "GET", "/").await;
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("<title>snic</title>"), "{page}");
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(page.contains(header), "{header} is missing in {page}");
    }
    for path in ["/", "/page.js", "/stream", "/explanation/tenants/acme/dags/web"] {
        let nobody = fetch(tls(&rig, None).await, "GET", path).await;
        assert!(nobody.starts_with("HTTP/1.1 403 "), "{path}: {nobody}");
        assert!(nobody.contains("spiffe://snic.test/operator/<name>"), "{path}: {nobody}");
        for who in ["tenant/acme", "orchestrator/libvirt"] {
            let reply = fetch(tls(&rig, Some(who)).await, "GET", path).await;
            assert!(reply.starts_with("HTTP/1.1 403 "), "{who} {path}: {reply}");
            assert!(reply.ends_with("this page is for operators\n"), "{who} {path}: {reply}");
        }
    }
    rig.stop().await;
}

#[tokio::test]
async fn it_changes_nothing_and_says_what_is_not_there() {
    let rig = Rig::with_page(Limits::default(), false).await;
    for (method, path, status) in [
        ("POST", "/", "405"),
        ("DELETE", "/stream", "405"),
        ("GET", "/nothing", "404"),
        ("GET", "/../Cargo.toml", "404"),
        ("GET", "/explanation/tenants/acme/dags/web", "404"),
        ("GET", "/explanation/nonsense", "400"),
        ("GET", "/diagnosis/tenants/acme/dags/web", "404"),
        ("GET", "/diagnosis/nonsense", "400"),
        ("GET", "/history/tenants/acme", "404"),
        ("GET", "/account/tenants/acme", "404"),
        ("GET", "/account/nonsense", "400"),
    ] {
        let reply = fetch(plain(&rig).await, method, path).await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {reply}");
    }
    let mut client = rig.furnished().await;
    client.ready_dag("tenants/acme/dags/web", dag(&["nat", "aes"], &[("nat", "aes")])).await;
    let why = fetch(plain(&rig).await, "GET", "/explanation/tenants/acme/dags/web").await;
    assert!(why.contains("\"way\":\"FREE_REGION\""), "{why}");
    let fast = fetch(plain(&rig).await, "GET", "/diagnosis/tenants/acme/dags/web").await;
    assert!(fast.contains("\"verdict\":\"") && fast.contains("[\"core\","), "{fast}");
    let account = fetch(plain(&rig).await, "GET", "/account/tenants/acme").await;
    let parts = ["\"name\":\"tenants/acme\"", "\"availabilityPpm\":", "\"objectivePpm\":999000"];
    assert!(parts.iter().all(|part| account.contains(part)), "{account}");
    // What a tenant has is told from the first epoch on.
    in_time(async {
        let named = "\"name\":\"tenants/acme cards/card0\"";
        while !fetch(plain(&rig).await, "GET", "/history/tenants/acme").await.contains(named) {}
    })
    .await;
    // A page of another site, whose name resolves to this server.
    let mut io = plain(&rig).await;
    io.write_all(b"GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n").await.expect("written");
    let mut status = [0; 12];
    in_time(io.read_exact(&mut status)).await.expect("a reply");
    assert_eq!(&status, b"HTTP/1.1 421");
    rig.stop().await;
}

#[tokio::test]
async fn in_plain_text_it_is_for_who_has_its_key() {
    let rig = Rig::with_page(Limits::default(), false).await;
    let ask = async |path: &str, headers: &str| {
        let mut io = plain(&rig).await;
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}");
        io.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await.expect("sent");
        let mut reply = String::new();
        in_time(io.read_to_string(&mut reply)).await.expect("text");
        reply
    };
    for path in ["/", "/page.js", "/stream", "/account/tenants/acme", "/?key=guess", "/?key="] {
        for cookie in ["", "cookie: snic-page-80=guess\r\n"] {
            let reply = ask(path, cookie).await;
            assert!(reply.starts_with("HTTP/1.1 403 ") && reply.contains("page.key"), "{reply}");
        }
    }
    let opened = ask(&format!("/?key={PAGE_KEY}"), "").await;
    assert!(opened.starts_with("HTTP/1.1 303 ") && opened.contains("location: /\r\n"), "{opened}");
    let (_, cookie) = opened.split_once("set-cookie: ").expect("a cookie");
    let (cookie, _) = cookie.split_once("\r\n").expect("a line");
    for kept in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(kept), "{cookie}");
    }
    let (cookie, _) = cookie.split_once(';').expect("attributes");
    let page = ask("/", &format!("cookie: theme=dark; {cookie}\r\n")).await;
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    rig.stop().await;
}

#[tokio::test]
async fn plain_text_is_for_loopback_and_only_if_allowed() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = |address: &str, plain_text: Option<PageKey>| {
        let address = address.parse().expect("an address");
        let mut settings = rig::settings(Limits::default());
        settings.front.unix = Some(folder.path().join("socket"));
        settings.web = Some(WebSettings { address, plain_text });
        snic_server::bind(settings)
    };
    let error = page("127.0.0.1:0", None).await.expect_err("not allowed");
    assert!(matches!(error, ServeError::Listen(ListenError::PlainText { .. })), "{error}");
    let error = page("127.0.0.1:0", Some(PageKey::new("guess".into()))).await.expect_err("weak");
    assert!(matches!(error, ServeError::Listen(ListenError::PlainText { .. })), "{error}");
    let error = page("0.0.0.0:0", Some(page_key())).await.expect_err("not loopback");
    assert!(matches!(error, ServeError::Listen(ListenError::NotLoopback { .. })), "{error}");
    let taken = page("127.0.0.1:0", Some(page_key()))
        .await
        .expect("bound")
        .web_address()
        .expect("an address");
    let held = std::net::TcpListener::bind(taken).expect("it is free again");
    let error = page(&taken.to_string(), Some(page_key())).await.expect_err("taken");
    assert!(matches!(error, ServeError::Listen(ListenError::Bind { .. })), "{error}");
    drop(held);
}

#[tokio::test]
async fn many_browsers_are_told_the_same_and_one_too_many_is_told_to_wait() {
    const BROWSERS: usize = 24;
    let limits = Limits { browsers_max: BROWSERS, ..Limits::default() };
    let rig = Rig::with_page(limits, false).await;
    let mut client = rig.furnished().await;
    let mut browsers = Vec::new();
    for _ in 0..BROWSERS {
        let mut browser = watch(&rig).await;
        until(&mut browser, "event: ready").await.expect("all there is");
        browsers.push(browser);
    }
    let refused = fetch(plain(&rig).await, "GET", "/stream").await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("retry-after: ") && refused.contains("24 browsers"), "{refused}");
    client.ready_dag("tenants/acme/dags/web", dag(&["nat"], &[])).await;
    for browser in &mut browsers {
        let ready = "\"state\":\"READY\"";
        let line = until(browser, ready).await.expect("the change");
        assert!(line.contains("tenants/acme/dags/web"), "{line}");
    }
    // A browser that leaves makes room for another, which gets all state from the beginning.
    drop(browsers.pop());
    let mut next = in_time(async {
        loop {
            let mut next = watch(&rig).await;
            if until(&mut next, "HTTP/1.1").await.expect("a reply").contains("200") {
                return next;
            }
        }
    })
    .await;
    assert!(until(&mut next, "\"state\":\"READY\"").await.is_some());
    rig.stop().await;
    for browser in &mut browsers {
        assert_eq!(until(browser, "there is no such line").await, None, "the stream ends");
    }
}

#[tokio::test]
async fn a_browser_that_never_reads_is_closed_and_holds_up_nobody() {
    let unread_max = Duration::from_millis(300);
    let rig = Rig::with_page(Limits { unread_max, ..Limits::default() }, false).await;
    let mut client = rig.furnished().await;
    // More than the kernel buffers for a connection.
    for tenant in ["acme", "globex"] {
        for number in 0..64 {
            let mut small =
                dag(&["nat", "firewall", "aes"], &[("nat", "firewall"), ("firewall", "aes")]);
            small.bandwidth_bps = 1_000_000;
            client
                .create_dag(&format!("tenants/{tenant}/dags/d{number}"), small)
                .await
                .expect("room");
        }
    }
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("a small buffer");
    let mut deaf = socket.connect(rig.web).await.expect("it listens");
    deaf.write_all(head("GET", "/stream").as_bytes()).await.expect("written");
    let mut other = watch(&rig).await;
    until(&mut other, "event: ready").await.expect("all there is");
    client.get_dag("tenants/acme/dags/d0").await.expect("the services go on");
    let gone = |deaf: &TcpStream| {
        // Its writes fail once the other side is closed.
        deaf.try_write(b"x").is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
    };
    in_time(async {
        while !gone(&deaf) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    rig.stop().await;
}

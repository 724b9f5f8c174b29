//! Clients that ask for replies and read none.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use snic_integration::{Home, TestClient};

/// HTTP/2 as it is on the wire: a client's first bytes, and a ping.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0whatever";

/// More clients than the daemon has threads ask for replies and read none: each keeps the daemon waiting in the middle of
/// what it has read.
#[tokio::test]
async fn clients_that_read_no_reply_stop_nobody() {
    let home = Home::new();
    let daemon = home.start().await;
    let operator = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let mut deaf = Vec::new();
    for _ in 0..16 {
        let mut io = UnixStream::connect(home.socket()).expect("it serves");
        io.write_all(HELLO).expect("it reads");
        io.set_nonblocking(true).expect("a socket");
        deaf.push(io);
    }
    // Until the daemon takes nothing more from any of them.
    let pings = PING.repeat(1_000);
    let (mut took, mut last) = (0, Instant::now());
    while last.elapsed() < Duration::from_millis(300) {
        for io in &mut deaf {
            if let Ok(bytes) = io.write(&pings) {
                (took, last) = (took + bytes, Instant::now());
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("it took {took} bytes of pings");
    let serves = async {
        for number in 0..20 {
            operator.create_tenant(&format!("t{number}")).await.expect("operators work");
        }
        TestClient::connect(&home.socket(), "operator/other").await.expect("there is room");
    };
    tokio::time::timeout(Duration::from_secs(20), serves).await.expect("it serves others");
    drop((deaf, daemon));
}

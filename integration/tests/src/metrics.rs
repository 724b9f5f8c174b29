//! A daemon's metrics, read as Prometheus reads them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// An address of this machine whose port was free a moment ago.
///
/// # Panics
/// No port is free.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it is bound")
}

/// The page with all metrics.
///
/// # Panics
/// It is not served, or not in the text format.
pub fn metrics_page(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("the page is served");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
    assert!(head.contains("200") && head.contains("version=0.0.4"), "{head}");
    body.to_owned()
}

/// The sum of a metric's values; names with this beginning count.
///
/// # Panics
/// As [`metrics_page`].
pub fn metric(address: SocketAddr, name: &str) -> f64 {
    let page = metrics_page(address);
    let of = page.lines().filter(|line| line.starts_with(name));
    of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

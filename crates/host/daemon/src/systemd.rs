//! Messages of the daemon to systemd: that it is ready, reloads, stops, and that it is alive.
//!
//! The protocol of `sd_notify(3)`: datagrams to the socket that `NOTIFY_SOCKET` names. Without systemd there
//! is no such socket, and nothing is told.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The way to systemd.
#[derive(Debug)]
pub struct Systemd {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Systemd {
    /// From the environment of the process.
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let own = std::process::id().to_string();
        // Meant for another process of the unit.
        let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == own);
        let watchdog = variable("WATCHDOG_USEC").filter(|_| is_ours);
        Self::new(std::env::var_os("NOTIFY_SOCKET").as_deref(), watchdog.as_deref())
    }

    fn new(socket: Option<&OsStr>, watchdog_usec: Option<&str>) -> Self {
        let address = socket.and_then(|name| match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
            _ => SocketAddr::from_pathname(name).ok(),
        });
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        let watchdog = watchdog_usec.and_then(|text| text.parse().ok());
        let watchdog = watchdog.filter(|usec| *usec > 0).map(Duration::from_micros);
        Self { socket, watchdog }
    }

    pub fn ready(&self) {
        self.notify("READY=1\nSTATUS=serving");
    }

    /// It reads certificates and policies again; [`Systemd::ready`] ends that.
    pub fn reloading(&self) {
        self.notify("RELOADING=1\nSTATUS=reloading");
    }

    pub fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping");
    }

    /// It is alive.
    pub fn alive(&self) {
        self.notify("WATCHDOG=1");
    }

    /// Interval at which systemd wants to hear that it is alive: half of the time after which it is killed.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    fn notify(&self, text: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(text.as_bytes(), address)
        {
            tracing::warn!(%error, text, "systemd cannot be told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_is_told_over_the_socket_that_it_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let abstract_name = format!("snic-test-{}", std::process::id());
        let abstract_address =
            SocketAddr::from_abstract_name(&abstract_name).expect("a short name");
        let cases = [
            (UnixDatagram::bind(&path).expect("bound"), path.clone().into_os_string()),
            (
                UnixDatagram::bind_addr(&abstract_address).expect("bound"),
                format!("@{abstract_name}").into(),
            ),
        ];
        for (listener, name) in cases {
            let systemd = Systemd::new(Some(&name), Some("30000000"));
            assert_eq!(systemd.watchdog(), Some(Duration::from_secs(15)));
            systemd.ready();
            systemd.alive();
            let mut text = [0; 64];
            for expected in ["READY=1\nSTATUS=serving", "WATCHDOG=1"] {
                let length = listener.recv(&mut text).expect("told");
                assert_eq!(&text[..length], expected.as_bytes());
            }
        }
    }

    #[test]
    fn without_systemd_nothing_is_told() {
        let none = Systemd::new(None, None);
        none.ready();
        assert_eq!(none.watchdog(), None);
        assert_eq!(Systemd::new(None, Some("0")).watchdog(), None);
        assert_eq!(Systemd::new(None, Some("soon")).watchdog(), None);
    }
}

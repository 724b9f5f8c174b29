//! Handshakes that were rejected: the log says who was rejected and why, at a bounded rate.
//!
//! Anyone who reaches the port can fail a handshake as often as the network carries it, so that neither the log nor the memory
//! may grow with the number of peers: an address is remembered only with a line of its own, and there are few lines in a
//! minute. What has no line is counted.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{AlertDescription, CertificateError};
use snic_api::certificates::date;
use snic_api::text::shortened;

/// Lines of all addresses in a window.
const LINES_MAX: usize = 60;
/// Lines of one address in a window.
const LINES_PER_ADDRESS_MAX: usize = 3;
/// Window in which lines are counted.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Longest explanation, in characters: some have what the peer sent.
const DETAIL_CHARS_MAX: usize = 240;

/// A reason for which a connection was rejected before any call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Bytes that are not TLS, or damaged.
    NotTls,
    /// The certificate expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate is revoked.
    Revoked,
    /// No list says whether the certificate is revoked, or the list cannot be verified.
    UnknownRevocation,
    /// No authority of clients issued the certificate, or an intermediate one is missing.
    UnknownAuthority,
    /// The certificate is not valid for another reason.
    InvalidCertificate,
    /// The certificate has no identity of this trust domain.
    NoIdentity,
    /// Peer and server have no version, cipher or protocol in common.
    Incompatible,
    /// The peer rejected the server's certificate.
    RejectedByPeer,
    /// The peer closed the connection.
    Closed,
    /// The handshake took too long.
    Timeout,
    /// The address has used up its share of connections.
    TooMany,
    /// Any other error.
    Other,
}

impl Reason {
    /// Its word, for the log and the metric.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotTls => "not_tls",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Revoked => "revoked",
            Self::UnknownRevocation => "unknown_revocation",
            Self::UnknownAuthority => "unknown_authority",
            Self::InvalidCertificate => "invalid_certificate",
            Self::NoIdentity => "no_identity",
            Self::Incompatible => "incompatible",
            Self::RejectedByPeer => "rejected_by_peer",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::TooMany => "too_many_connections",
            Self::Other => "other",
        }
    }

    /// The reason of a failed handshake, and an explanation.
    fn of(error: &io::Error) -> (Self, String) {
        let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
        else {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe => (Self::Closed, error.to_string()),
                _ => (Self::Other, error.to_string()),
            };
        };
        use rustls::Error as E;
        match tls {
            E::InvalidCertificate(error) => Self::of_certificate(error),
            E::InvalidCertRevocationList(_) => (Self::UnknownRevocation, tls.to_string()),
            E::InvalidMessage(_) | E::InappropriateMessage { .. } | E::PeerSentOversizedRecord => {
                (Self::NotTls, tls.to_string())
            }
            E::PeerIncompatible(_) | E::NoApplicationProtocol => {
                (Self::Incompatible, tls.to_string())
            }
            E::AlertReceived(
                alert @ (AlertDescription::CloseNotify | AlertDescription::UserCanceled),
            ) => (Self::Closed, format!("the peer ended it: {alert:?}")),
            E::AlertReceived(alert) => (
                Self::RejectedByPeer,
                format!("the peer rejected this server's certificate or answer: {alert:?}"),
            ),
            _ => (Self::Other, tls.to_string()),
        }
    }

    fn of_certificate(error: &CertificateError) -> (Self, String) {
        use CertificateError as E;
        let seconds = |time: rustls::pki_types::UnixTime| {
            date(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
        };
        match error {
            E::ExpiredContext { not_after, .. } => {
                (Self::Expired, format!("a certificate expired at {}", seconds(*not_after)))
            }
            E::Expired => (Self::Expired, "a certificate expired".into()),
            E::NotValidYetContext { not_before, .. } => {
                (Self::NotYetValid, format!("a certificate is not valid before {}", seconds(*not_before)))
            }
            E::NotValidYet => (Self::NotYetValid, "a certificate is not valid yet".into()),
            E::Revoked => (Self::Revoked, "a certificate is on the list of revoked ones".into()),
            E::UnknownRevocationStatus => {
                (Self::UnknownRevocation, "there is no list of revoked certificates of an issuer in its chain".into())
            }
            E::UnknownIssuer => (
                Self::UnknownAuthority,
                "no authority of clients issued the certificate, or the intermediate certificate is missing".into(),
            ),
            error => (Self::InvalidCertificate, error.to_string()),
        }
    }
}

/// Rejections of one window.
#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    /// Lines, and rejections without one, of each address that has a line.
    by_address: BTreeMap<IpAddr, usize>,
    lines: usize,
    /// Rejections without a line.
    left_out: u64,
}

impl Window {
    /// Whether a rejection gets a line. Time O(log lines); memory for as many addresses as there may be lines.
    fn take(&mut self, address: IpAddr) -> bool {
        let of_address = self.by_address.get(&address).copied().unwrap_or_default();
        let has_line = self.lines < LINES_MAX && of_address < LINES_PER_ADDRESS_MAX;
        if has_line {
            self.lines += 1;
            self.by_address.insert(address, of_address + 1);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
        has_line
    }

    /// Begins another window where one has ended. Returns how many rejections had no line.
    fn roll(&mut self, now: Instant) -> u64 {
        if self.begun.is_some_and(|begun| now.saturating_duration_since(begun) < WINDOW) {
            return 0;
        }
        let left_out = self.left_out;
        *self = Self { begun: Some(now), ..Self::default() };
        left_out
    }
}

/// The log of rejected handshakes.
#[derive(Debug, Default)]
pub(crate) struct Rejections(Mutex<Window>);

impl Rejections {
    /// A handshake has failed.
    pub fn failed(&self, peer: SocketAddr, error: &io::Error, now: Instant) {
        let (reason, detail) = Reason::of(error);
        self.rejected(peer, reason, &detail, now);
    }

    /// A connection was rejected.
    pub fn rejected(&self, peer: SocketAddr, reason: Reason, detail: &str, now: Instant) {
        snic_telemetry::metrics::instruments().handshake_rejected(reason.word());
        let address = peer.ip().to_canonical();
        let peer = SocketAddr::new(address, peer.port());
        if reason == Reason::Closed {
            // Probes of load balancers, every few seconds.
            tracing::debug!(%peer, detail, "connection closed before the end of its TLS handshake");
            return;
        }
        let (left_out, has_line) = {
            let mut window = self.0.lock();
            (window.roll(now), window.take(address))
        };
        report_left_out(left_out);
        if has_line {
            let detail = shortened(detail, DETAIL_CHARS_MAX);
            tracing::warn!(%peer, reason = reason.word(), detail, "connection rejected");
        }
    }

    /// Reports what had no line, once a window has ended.
    pub fn report(&self, now: Instant) {
        let left_out = self.0.lock().roll(now);
        report_left_out(left_out);
    }
}

fn report_left_out(left_out: u64) {
    if left_out > 0 {
        tracing::warn!(left_out, "more connections were rejected than the log has lines for");
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn ten_thousand_peers_take_few_lines_and_little_memory() {
        let (mut window, begin) = (Window::default(), Instant::now());
        window.roll(begin);
        let logged = (0..10_000).filter(|peer| window.take(address(*peer))).count();
        assert_eq!((logged, window.by_address.len()), (LINES_MAX, LINES_MAX));
        assert_eq!(window.left_out, 10_000 - LINES_MAX as u64);
        assert_eq!(window.roll(begin + WINDOW / 2), 0, "the window has not ended");
        assert_eq!(window.roll(begin + WINDOW), 10_000 - LINES_MAX as u64);
        assert_eq!((window.by_address.len(), window.roll(begin + 2 * WINDOW)), (0, 0), "told once");
    }

    #[test]
    fn one_peer_takes_no_lines_of_another() {
        let mut window = Window::default();
        window.roll(Instant::now());
        let logged = (0..1_000).filter(|_| window.take(address(1))).count();
        assert_eq!(logged, LINES_PER_ADDRESS_MAX);
        assert!(window.take(address(2)));
    }

    #[test]
    fn a_clock_that_stands_still_or_jumps_back_ends_no_window() {
        let (mut window, begin) = (Window::default(), Instant::now() + WINDOW);
        window.roll(begin);
        window.left_out = 1;
        assert_eq!(window.roll(begin - WINDOW / 2), 0);
        assert_eq!(window.left_out, 1);
    }

    #[test]
    fn reasons_are_told_apart() {
        let of =
            |error: rustls::Error| Reason::of(&io::Error::new(io::ErrorKind::InvalidData, error));
        let certificate = |error| of(rustls::Error::InvalidCertificate(error)).0.word();
        assert_eq!(certificate(CertificateError::Revoked), "revoked");
        assert_eq!(certificate(CertificateError::UnknownIssuer), "unknown_authority");
        assert_eq!(certificate(CertificateError::BadSignature), "invalid_certificate");
        let alert = of(rustls::Error::AlertReceived(AlertDescription::UnknownCA));
        assert_eq!(alert.0, Reason::RejectedByPeer);
        assert_eq!(Reason::of(&io::ErrorKind::UnexpectedEof.into()).0, Reason::Closed);
    }
}

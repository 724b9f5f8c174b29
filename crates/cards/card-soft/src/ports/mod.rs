//! Ports: where frames come from and go to.

mod drops;
mod inflow;
pub(crate) mod interface;
pub(crate) mod split;
mod stream;
pub(crate) mod system;
mod tap;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use snic_nts::{Packet, Pool};

pub use system::enter_network;

/// The longest name of a network interface that Linux takes.
const NAME_BYTES_MAX: usize = 15;

/// The longest path of a unix socket that Linux takes.
const PATH_BYTES_MAX: usize = 107;

/// Port: `tap:NAME` makes a TAP device, `interface:NAME` takes an interface that is there, `unix:PATH` makes a
/// socket, and so does `vhost-user:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PortSpec {
    /// A TAP device, which the card makes. Whoever has the device is the host.
    Tap(String),
    /// An interface of this machine, such as a veth end or a physical port, through AF_PACKET. It should
    /// have no addresses: this machine's own network would answer too.
    Interface(String),
    /// A unix socket at this absolute path, which the card makes. A host connects to it and sends each
    /// frame behind its length.
    Unix(PathBuf),
    /// A vhost-user socket at this absolute path, which the card makes. QEMU connects to it, and frames cross through the
    /// guest's memory. Only the program `snic-card` has such ports.
    VhostUser(PathBuf),
}

/// A text that names no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a port; allowed: tap:NAME for a TAP device that the card makes, interface:NAME for an \
     interface that is there, each with a name of 1 to {NAME_BYTES_MAX} characters without spaces, \
     slashes and colons, unix:PATH for a socket and vhost-user:PATH for one that QEMU shares a guest's memory \
     through, each with an absolute path of up to {PATH_BYTES_MAX} bytes"
)]
pub struct InvalidPort(pub String);

impl PortSpec {
    /// The name of the device, or the path of the socket.
    pub fn device(&self) -> &str {
        match self {
            Self::Tap(name) | Self::Interface(name) => name,
            Self::Unix(path) | Self::VhostUser(path) => path.to_str().unwrap_or_default(),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The device is not there or taken, the process may not open it, or this program has no such ports.
    pub fn open(&self, vhost_user: Option<OpenPort>) -> io::Result<Box<dyn Port>> {
        match self {
            Self::Tap(name) => Ok(Box::new(tap::Tap::open(name)?)),
            Self::Interface(name) => Ok(Box::new(interface::Interface::open(name)?)),
            Self::Unix(path) => Ok(Box::new(stream::Stream::open(path)?)),
            Self::VhostUser(path) => match vhost_user {
                Some(open) => open(path),
                None => Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this program has no vhost-user ports; the program snic-card has: set program = \
                     \"/usr/bin/snic-card\" in [cards.soft], or use unix:PATH",
                )),
            },
        }
    }
}

/// Opens a port at a path.
pub type OpenPort = fn(&Path) -> io::Result<Box<dyn Port>>;

impl FromStr for PortSpec {
    type Err = InvalidPort;

    fn from_str(text: &str) -> Result<Self, InvalidPort> {
        let invalid = || InvalidPort(text.to_owned());
        let (kind, name) = text.split_once(':').ok_or_else(invalid)?;
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name != "."
            && name != ".."
            && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:%".contains(&byte));
        let is_path = name.starts_with('/') && name.len() <= PATH_BYTES_MAX;
        match kind {
            "unix" if is_path => Ok(Self::Unix(name.into())),
            "vhost-user" if is_path => Ok(Self::VhostUser(name.into())),
            "tap" if is_name => Ok(Self::Tap(name.to_owned())),
            "interface" if is_name => Ok(Self::Interface(name.to_owned())),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tap(name) => write!(f, "tap:{name}"),
            Self::Interface(name) => write!(f, "interface:{name}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::VhostUser(path) => write!(f, "vhost-user:{}", path.display()),
        }
    }
}

impl TryFrom<String> for PortSpec {
    type Error = InvalidPort;
    fn try_from(text: String) -> Result<Self, InvalidPort> {
        text.parse()
    }
}

impl From<PortSpec> for String {
    fn from(spec: PortSpec) -> Self {
        spec.to_string()
    }
}

/// Result of a look at a port.
#[derive(Debug)]
pub enum Received {
    /// A frame. Where the kernel merged several, the others come with the next looks.
    Frame(Packet),
    /// A frame is there, and no buffer is free; it was thrown away.
    NoBuffer,
    /// A frame that is longer than any may be; it was thrown away.
    TooLong,
    /// Nothing is there.
    Nothing,
}

/// Counts of frames that were to be sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that the other side took.
    pub frames: u64,
    pub bytes: u64,
    /// Frames that it did not take: the device is gone or down, or takes no more at the moment.
    pub not_taken: u64,
}

impl Sent {
    /// Sends frames one after the other, and leaves none.
    pub fn each(frames: &mut Vec<Packet>, mut send: impl FnMut(&Packet) -> io::Result<()>) -> Self {
        let mut sent = Self::default();
        for frame in frames.drain(..) {
            let taken = send(&frame).is_ok();
            sent.count(&frame, taken);
        }
        sent
    }

    fn count(&mut self, frame: &Packet, taken: bool) {
        if taken {
            self.frames += 1;
            self.bytes += frame.len() as u64;
        } else {
            self.not_taken += 1;
        }
    }
}

/// Where frames come from and go to. No call waits.
pub trait Port: Send {
    /// Way in which frames cross, in a few words, for people.
    fn method(&self) -> &'static str;

    /// Descriptor that becomes readable when a frame is there.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Takes the next frame.
    ///
    /// # Errors
    /// The device is gone.
    fn receive(&mut self, pool: &Pool) -> io::Result<Received>;

    /// Sends frames in their order, and leaves none: what is not taken is counted and gone.
    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent;

    /// The port was readable, and no frame was there: it may have an error that it waits to tell.
    fn clear_error(&mut self) {}

    /// Frames that the system had for this port and dropped before the card took them, since the last
    /// call; 0 where the system does not say.
    fn take_drops(&mut self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_they_are_written() {
        for text in [
            "tap:web0",
            "interface:eth1.100",
            "tap:a",
            "unix:/run/snic/a b:c",
            "vhost-user:/run/vf0",
        ] {
            assert_eq!(text.parse::<PortSpec>().expect(text).to_string(), text);
        }
        let long = format!("tap:{}", "x".repeat(16));
        let far = format!("unix:/{}", "x".repeat(107));
        for text in [
            "unix:a",
            &far,
            "",
            "tap",
            "tap:",
            "eth0",
            "tap:a b",
            "tap:a/b",
            "vhost-user:a",
            "vhost:/a",
            "tap:..",
            "tap:%d",
            &long,
        ] {
            let error = text.parse::<PortSpec>().expect_err(text).to_string();
            assert!(error.contains("allowed: tap:NAME"), "{error}");
        }
    }
}

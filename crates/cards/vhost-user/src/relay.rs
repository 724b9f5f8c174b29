//! A front end's requests, passed on to the library that carries them out.
//!
//! QEMU enables a network device's rings before it says which features the guest takes. The library refuses that until it
//! knows that the front end speaks the extended protocol (`VHOST_USER_F_PROTOCOL_FEATURES`), and learns that with the
//! guest's features. So requests pass here one by one, with the files that come with them, and the library is told
//! as soon as the front end has shown that it does.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::guest::PROTOCOL_FEATURES;

/// A request: its number, flags and the length of what follows, in four bytes each (vhost-user, header).
const HEADER_BYTES: usize = 12;
/// Longest of what follows, and most files, as the library has it.
const BODY_BYTES_MAX: usize = 4_096;
const FILES_MAX: usize = 32;
const SET_FEATURES: u32 = 2;
const SET_PROTOCOL_FEATURES: u32 = 16;
/// The version of the protocol, in the flags of each request.
const VERSION: u32 = 1;
/// Bytes of a request with a number of 64 bits.
const NUMBER_BYTES: usize = 8;

/// A connection within this process, by a socket that is gone at once: the end that waits, and the one that connected.
pub(crate) fn pair(path: &Path) -> io::Result<(UnixListener, UnixStream)> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let stream = UnixStream::connect(path);
    std::fs::remove_file(path)?;
    Ok((listener, stream?))
}

/// Passes requests on and answers back, until one of both sides ends.
pub(crate) fn relay_messages(front: &UnixStream, library: &UnixStream) {
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            let _ = io::copy(&mut &*library, &mut &*front);
            let _ = front.shutdown(Shutdown::Both);
        });
        // What is no request ends the connection.
        let _ = requests(front, library);
        let _ = library.shutdown(Shutdown::Both);
        let _ = front.shutdown(Shutdown::Both);
        let _ = answers.join();
    });
}

fn requests(front: &UnixStream, library: &UnixStream) -> io::Result<()> {
    let mut request = [0; HEADER_BYTES + BODY_BYTES_MAX];
    let mut is_extended = false;
    loop {
        let mut files = Vec::new();
        receive(front, &mut request[..HEADER_BYTES], &mut files)?;
        let word = |at: usize| {
            u32::from_ne_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]])
        };
        let (number, body) = (word(0), word(8) as usize);
        if body > BODY_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let end = HEADER_BYTES + body;
        receive(front, &mut request[HEADER_BYTES..end], &mut files)?;
        if number == SET_FEATURES && body == NUMBER_BYTES && is_extended {
            let features = request[HEADER_BYTES..].first_chunk_mut::<NUMBER_BYTES>();
            let features = features.ok_or(ErrorKind::InvalidData)?;
            *features = (u64::from_ne_bytes(*features) | PROTOCOL_FEATURES).to_ne_bytes();
        }
        send(library, &request[..end], &files)?;
        if number == SET_PROTOCOL_FEATURES && !is_extended {
            is_extended = true;
            send(library, &extended(), &[])?;
        }
    }
}

/// The request that says that the front end speaks the extended protocol. It is not answered.
fn extended() -> Vec<u8> {
    let head = [SET_FEATURES, VERSION, NUMBER_BYTES as u32];
    let head = head.into_iter().flat_map(u32::to_ne_bytes);
    head.chain(PROTOCOL_FEATURES.to_ne_bytes()).collect()
}

fn receive(from: &UnixStream, mut bytes: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(bytes)];
        let received = recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sent) = message {
                files.extend(sent);
            }
        }
        if received == 0 || files.len() > FILES_MAX {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[received..];
    }
    Ok(())
}

fn send(to: &UnixStream, bytes: &[u8], files: &[OwnedFd]) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = files.iter().map(OwnedFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(ErrorKind::InvalidData.into());
    }
    let sent = sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    (&*to).write_all(&bytes[sent..])
}

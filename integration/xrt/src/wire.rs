//! The part of libxrt_hwemu's protocol that is used here: a header of 14 bytes, a message; a reply
//! with a header of 9 bytes. Found by observation; the numbers of calls are those of XRT's
//! `xcl_macros.h`.

use std::io::{self, Read, Write};

use prost::Message;

/// Bytes of a call's header.
const HEADER_BYTES: usize = 14;
/// A message is never longer: the shim cuts what it copies into packets of 64 KiB.
const MESSAGE_BYTES_MAX: u64 = 1 << 24;

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(fixed64, tag = "1")]
    size: u64,
    #[prost(fixed32, tag = "2")]
    api: u32,
}

/// Where and how much; for both ways of a copy, and for registers.
#[derive(Clone, PartialEq, Message)]
struct ToDevice {
    #[prost(uint64, tag = "3")]
    at: u64,
    #[prost(bytes = "vec", tag = "4")]
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ToHost {
    #[prost(uint64, tag = "4")]
    at: u64,
    #[prost(uint64, tag = "5")]
    bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WriteRegisters {
    #[prost(uint64, tag = "2")]
    at: u64,
    #[prost(bytes = "vec", tag = "4")]
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ReadRegisters {
    #[prost(uint64, tag = "2")]
    at: u64,
    #[prost(uint32, tag = "3")]
    bytes: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(uint64, tag = "1")]
    result: u64,
    #[prost(bytes = "vec", optional, tag = "2")]
    bytes: Option<Vec<u8>>,
}

/// A call of the shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Close,
    CopyToDevice {
        at: u64,
        bytes: Vec<u8>,
    },
    CopyToHost {
        at: u64,
        bytes: usize,
    },
    WriteRegisters {
        at: u64,
        words: Vec<u32>,
    },
    ReadRegisters {
        at: u64,
        words: usize,
    },
    /// Expects success, and nothing more: set-up, allocation, debugging.
    Other,
    /// Expects an empty reply.
    Silent,
}

/// Numbers of the calls.
mod api {
    pub(super) const CLOSE: u32 = 1;
    pub(super) const COPY_TO_DEVICE: u32 = 6;
    pub(super) const COPY_TO_HOST: u32 = 7;
    pub(super) const WRITE_REGISTERS: u32 = 9;
    pub(super) const READ_REGISTERS: u32 = 11;
    pub(super) const READ_TRACE: u32 = 16;
    pub(super) const DEBUG_MESSAGES: u32 = 19;
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads one call.
pub(crate) fn receive(from: &mut impl Read) -> io::Result<Call> {
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header)?;
    let header = Header::decode(&header[..]).map_err(invalid)?;
    if header.size > MESSAGE_BYTES_MAX {
        return Err(invalid(format!("a message of {} bytes", header.size)));
    }
    let mut message = vec![0; header.size as usize];
    from.read_exact(&mut message)?;
    let message = &message[..];
    Ok(match header.api {
        api::CLOSE => Call::Close,
        api::COPY_TO_DEVICE => {
            let ToDevice { at, bytes } = ToDevice::decode(message).map_err(invalid)?;
            Call::CopyToDevice { at, bytes }
        }
        api::COPY_TO_HOST => {
            let ToHost { at, bytes } = ToHost::decode(message).map_err(invalid)?;
            if bytes > MESSAGE_BYTES_MAX {
                return Err(invalid(format!("{bytes} bytes are asked for at once")));
            }
            Call::CopyToHost { at, bytes: bytes as usize }
        }
        api::WRITE_REGISTERS => {
            let WriteRegisters { at, bytes } = WriteRegisters::decode(message).map_err(invalid)?;
            let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            Call::WriteRegisters { at, words: bytes.chunks_exact(4).map(word).collect() }
        }
        api::READ_REGISTERS => {
            let ReadRegisters { at, bytes } = ReadRegisters::decode(message).map_err(invalid)?;
            Call::ReadRegisters { at, words: bytes as usize / 4 }
        }
        api::READ_TRACE | api::DEBUG_MESSAGES => Call::Silent,
        _ => Call::Other,
    })
}

/// The bytes of the reply to `call` with this result, if the call has a reply.
pub(crate) fn answer(call: &Call, bytes: Vec<u8>) -> Vec<u8> {
    let message = match call {
        Call::Silent => Vec::new(),
        Call::CopyToDevice { bytes, .. } => {
            Answer { result: bytes.len() as u64, bytes: None }.encode_to_vec()
        }
        Call::CopyToHost { .. } => {
            Answer { result: bytes.len() as u64, bytes: Some(bytes) }.encode_to_vec()
        }
        Call::ReadRegisters { .. } => Answer { result: 1, bytes: Some(bytes) }.encode_to_vec(),
        Call::WriteRegisters { .. } | Call::Close => {
            Answer { result: 1, bytes: None }.encode_to_vec()
        }
        Call::Other => Answer { result: 1, bytes: Some(Vec::new()) }.encode_to_vec(),
    };
    let mut frame = vec![0x09]; // field 1, 64 bits: the size, there even where it is zero
    frame.extend((message.len() as u64).to_le_bytes());
    frame.extend(message);
    frame
}

/// Notifies the shim, which listens on a second socket, that the device closes.
pub(crate) fn send_close(to: &mut impl Write) -> io::Result<()> {
    let mut header = vec![0x09];
    header.extend(0_u64.to_le_bytes());
    header.push(0x15); // field 2, 32 bits: the call
    header.extend(api::CLOSE.to_le_bytes());
    to.write_all(&header)
}

//! Packets that an end expects of its peer.

use std::hash::BuildHasher as _;

use serde::{Deserialize, Serialize};

use crate::aging::KeyedHash;

/// Decision about a packet of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is the next one.
    Next,
    /// It has arrived before.
    Again,
    /// One before it is missing; whether the peer has not been told so yet.
    Ahead { is_news: bool },
    /// Its stream is not the one that is open here.
    Unknown,
}

/// The stream that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct OpenStream {
    stream: u32,
    token: u32,
    /// The number of the next packet.
    expected: u32,
    /// The peer was told that this one is missing.
    is_told: bool,
}

/// The receiving half of an end.
///
/// A stream is opened by a packet with the right token, and tokens are those of one opening: once another
/// stream is open, no packet of a stream before it can open that again, however late it arrives. The tokens
/// that could open the next stream follow from a secret, so an OPEN leaves nothing behind here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receiver {
    secret: KeyedHash,
    open: Option<OpenStream>,
    /// Streams that were opened so far.
    openings: u32,
}

impl Receiver {
    pub(super) const fn new(secret: KeyedHash) -> Self {
        Self { secret, open: None, openings: 0 }
    }

    /// The token of a stream: its own if it is open, else the one that would open it.
    pub(super) fn token(&self, stream: u32) -> u32 {
        match &self.open {
            Some(open) if open.stream == stream => open.token,
            _ => self.secret.hash_one((stream, self.openings)) as u32,
        }
    }

    /// The number that the open stream goes on with.
    pub(super) fn expected(&self) -> u32 {
        self.open.map_or(0, |open| open.expected)
    }

    /// Takes in the number of a packet.
    pub(super) fn arrive(&mut self, stream: u32, token: u32, number: u32) -> Arrival {
        if token != self.token(stream) {
            return Arrival::Unknown;
        }
        if self.open.is_none_or(|open| open.stream != stream) {
            self.open = Some(OpenStream { stream, token, expected: stream, is_told: false });
            self.openings = self.openings.wrapping_add(1);
        }
        let Some(open) = &mut self.open else { return Arrival::Unknown };
        match number.wrapping_sub(open.expected).cast_signed() {
            0 => {
                open.expected = open.expected.wrapping_add(1);
                open.is_told = false;
                Arrival::Next
            }
            1.. => Arrival::Ahead { is_news: !std::mem::replace(&mut open.is_told, true) },
            _ => Arrival::Again,
        }
    }

    pub(super) const fn save(&self) -> SavedReceiver {
        SavedReceiver { open: self.open, openings: self.openings }
    }

    pub(super) fn restore(&mut self, saved: SavedReceiver) {
        (self.open, self.openings) = (saved.open, saved.openings);
    }
}

/// A [`Receiver`] without its secret.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SavedReceiver {
    open: Option<OpenStream>,
    openings: u32,
}

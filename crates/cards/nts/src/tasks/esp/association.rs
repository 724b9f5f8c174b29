//! Security associations: a key, an index, and the numbers of packets under it (RFC 4106).

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use snic_domain::Digest;

use super::replay::ReplayWindow;
use crate::DropReason;
use crate::config::Secret;

/// SPI and sequence number.
pub(super) const HEADER_BYTES: usize = 8;
/// The part of the nonce that is sent.
pub(super) const IV_BYTES: usize = 8;
/// The integrity check value: the whole tag.
pub(super) const ICV_BYTES: usize = 16;
/// Packets that an ICMP error may still be about: those of a second, at a million a second.
const RECENT: u32 = 1 << 20;
/// The part of the nonce that is part of the key (RFC 4106, section 4).
const SALT_BYTES: usize = 4;

/// A key with its salt.
struct Cipher {
    key: LessSafeKey,
    salt: [u8; SALT_BYTES],
    /// Identifies the key without revealing it.
    digest: Digest,
}

impl Cipher {
    /// From a key of 16 or 32 bytes and the salt behind it, as RFC 4106 section 8.1 orders them.
    fn new(secret: &Secret) -> Self {
        let bytes = secret.expose();
        let (key, salt) = bytes.split_at(bytes.len().saturating_sub(SALT_BYTES));
        let algorithm = if key.len() == 16 { &AES_128_GCM } else { &AES_256_GCM };
        let key = UnboundKey::new(algorithm, key).expect("the schema allows 20 and 36 bytes only");
        let salt = salt.try_into().expect("split off above");
        Self { key: LessSafeKey::new(key), salt, digest: secret.digest() }
    }

    fn nonce(&self, iv: [u8; IV_BYTES]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..SALT_BYTES].copy_from_slice(&self.salt);
        nonce[SALT_BYTES..].copy_from_slice(&iv);
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Header, which is authenticated and not encrypted.
fn header(spi: u32, number: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&spi.to_be_bytes());
    header[4..].copy_from_slice(&number.to_be_bytes());
    header
}

/// An outbound association.
pub(super) struct Outbound {
    spi: u32,
    cipher: Cipher,
    /// The number of the last packet; 0 before the first.
    number: u32,
    /// The upper half of each IV. It is random, drawn for each new NT: a card that lost its state
    /// starts with number 1 again, and must not use a nonce twice under one key. The lower half is
    /// the sequence number.
    epoch: Option<u32>,
}

impl Outbound {
    pub(super) fn new(spi: u32, key: &Secret) -> Self {
        Self { spi, cipher: Cipher::new(key), number: 0, epoch: None }
    }

    /// Identifies key and index.
    pub(super) fn identity(&self) -> (u32, Digest) {
        (self.spi, self.cipher.digest)
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether a packet with this index and number was sent lately.
    pub(super) fn has_sent(&self, spi: u32, number: u32) -> bool {
        let behind = self.number.checked_sub(number);
        spi == self.spi && number > 0 && behind.is_some_and(|behind| behind < RECENT)
    }

    /// Continues after `number`.
    pub(super) fn resume(&mut self, number: u32) {
        self.number = self.number.max(number);
    }

    /// Continues where `old` stopped, which has the same key; the epoch is kept too.
    pub(super) fn succeed(&mut self, old: &Self) {
        (self.number, self.epoch) = (old.number, old.epoch);
    }

    /// Encrypts `packet`, which is: header, IV, plaintext, and room for the ICV. Header, IV and ICV
    /// are written.
    ///
    /// # Errors
    /// [`DropReason::SequenceExhausted`]: numbers never start again under one key.
    pub(super) fn seal(
        &mut self,
        packet: &mut [u8],
        random: impl FnOnce() -> u32,
    ) -> Result<(), DropReason> {
        let number = self.number.checked_add(1).ok_or(DropReason::SequenceExhausted)?;
        let epoch = *self.epoch.get_or_insert_with(random);
        let header = header(self.spi, number);
        let mut iv = [0; IV_BYTES];
        iv[..4].copy_from_slice(&epoch.to_be_bytes());
        iv[4..].copy_from_slice(&number.to_be_bytes());
        let (start, rest) = packet.split_at_mut(HEADER_BYTES + IV_BYTES);
        let (plaintext, icv) = rest.split_at_mut(rest.len() - ICV_BYTES);
        start[..HEADER_BYTES].copy_from_slice(&header);
        start[HEADER_BYTES..].copy_from_slice(&iv);
        let tag: Tag = self
            .cipher
            .key
            .seal_in_place_separate_tag(self.cipher.nonce(iv), Aad::from(header), plaintext)
            .map_err(|_| DropReason::TooLarge)?;
        icv.copy_from_slice(tag.as_ref());
        self.number = number;
        Ok(())
    }
}

/// An inbound association.
pub(super) struct Inbound {
    spi: u32,
    cipher: Cipher,
    pub(super) window: ReplayWindow,
}

impl Inbound {
    pub(super) fn new(spi: u32, key: &Secret, window: u32) -> Self {
        Self { spi, cipher: Cipher::new(key), window: ReplayWindow::new(window) }
    }

    /// Identifies key and index.
    pub(super) fn identity(&self) -> (u32, Digest) {
        (self.spi, self.cipher.digest)
    }

    pub(super) fn spi(&self) -> u32 {
        self.spi
    }

    /// Decrypts `packet`: header, IV, ciphertext, ICV. The plaintext is where the ciphertext was. The
    /// window moves once the packet has proved to be authentic, and not before.
    ///
    /// # Errors
    /// [`DropReason::Replayed`] or [`DropReason::NotAuthentic`].
    pub(super) fn open(&mut self, packet: &mut [u8]) -> Result<(), DropReason> {
        let number = crate::wire::read_u32(packet, 4);
        if !self.window.may_be_new(number) {
            return Err(DropReason::Replayed);
        }
        let (start, ciphertext) = packet.split_at_mut(HEADER_BYTES + IV_BYTES);
        let iv = start[HEADER_BYTES..].try_into().expect("split off above");
        let aad = Aad::from(header(self.spi, number));
        let opened = self.cipher.key.open_in_place(self.cipher.nonce(iv), aad, ciphertext);
        opened.map_err(|_| DropReason::NotAuthentic)?;
        self.window.accept(number);
        Ok(())
    }
}

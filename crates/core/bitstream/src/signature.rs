//! Permission to load a bitstream: an ed25519 signature, by a key that the operator trusts.
//!
//! One line of text and a line feed are signed, so that a signature for this cannot be one for
//! anything else:
//!
//! ```text
//! snic-bitstream-v2 DIGEST IDENTITY MODEL KIND REGIONS NT,NT…    a bitstream with its manifest
//! snic-bitstream-v1 DIGEST                                      a test image, a card's role
//! ```
//!
//! DIGEST is the SHA-256 of the bytes, REGIONS is `all` or numbers joined by commas. The bytes of a vendor's
//! bitstream do not say what they hold, so the line does. The second is good for bytes that say it
//! themselves (an upload without a declared identity is refused unless they do). Provider and tenants have
//! rings of their own: a tenant's key is good for that tenant's bitstreams alone, and only that tenant trusts
//! them for it ([`Signer`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use snic_domain::{
    Bitstream, CardModel, ChainIdentity, Digest, NtTypeId, RegionId, RegionImage, RegionKind,
    Signer, TenantId,
};

use crate::upload::kind_name;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Bytes of a public key.
const KEY_BYTES: usize = 32;
/// Bytes before the key in its DER form (RFC 8410).
const DER_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The line that is signed for bytes that say themselves what they are.
pub fn statement(digest: Digest) -> String {
    format!("snic-bitstream-v1 {digest}\n")
}

/// The line that is signed for a bitstream with what its flow says of it.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    /// Digest of the bytes.
    pub digest: Digest,
    /// The card model that it is for.
    pub card_model: &'a CardModel,
    /// The NTs, in the order packets pass.
    pub nts: &'a [NtTypeId],
    /// Kind of regions that it is for.
    pub region_kind: RegionKind,
    /// Identity that the flow states for its build.
    pub identity: Option<ChainIdentity>,
    /// The regions that it was built for; none: every one of its kind.
    pub regions: &'a [RegionId],
}

impl<'a> Statement<'a> {
    /// Statement about a bitstream with its first image, which is the only one of an upload.
    pub fn of(bitstream: &'a Bitstream) -> Self {
        let Bitstream { images, identity, card_model, region_kind, nts, .. } = bitstream;
        let RegionImage { digest, regions, .. } = images.first();
        Self {
            digest: *digest,
            card_model,
            nts,
            region_kind: *region_kind,
            identity: *identity,
            regions,
        }
    }
}

impl fmt::Display for Statement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest, card_model, nts, region_kind, identity, regions } = self;
        let identity = identity.unwrap_or_else(|| ChainIdentity::of_nts(*nts));
        let kind = kind_name(*region_kind);
        let join = |names: Vec<String>| names.join(",");
        let regions = match regions.is_empty() {
            true => "all".to_owned(),
            false => join(regions.iter().map(ToString::to_string).collect()),
        };
        let nts = join(nts.iter().map(ToString::to_string).collect());
        writeln!(f, "snic-bitstream-v2 {digest} {identity} {card_model} {kind} {regions} {nts}")
    }
}

/// A public key, and what the operator calls it.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// Its name in listings.
    pub name: String,
    key: [u8; KEY_BYTES],
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.name)
    }
}

/// A key file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Not a PEM file with one public key.
    #[error("not a PEM file with one public key (`openssl pkey -in KEY -pubout`)")]
    Pem,
    /// Another kind of key.
    #[error("its key is not an ed25519 public key (`openssl genpkey -algorithm ed25519`)")]
    Kind,
}

/// Why a key file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("signatures: read the key {}", path.display())]
pub struct UnreadableKey {
    pub path: PathBuf,
    #[source]
    pub source: KeyFailure,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFailure {
    /// The system's reason.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// Fault of the file's content.
    #[error(transparent)]
    Invalid(#[from] InvalidKey),
}

impl PublicKey {
    /// Reads a file; the key is named after it.
    fn read(path: &Path) -> Result<Self, UnreadableKey> {
        let name = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
        let pem = std::fs::read_to_string(path).map_err(KeyFailure::from);
        pem.and_then(|pem| Ok(Self::from_pem(&name, &pem)?))
            .map_err(|source| UnreadableKey { path: path.to_owned(), source })
    }

    /// Reads a PEM file.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] unless `pem` is one ed25519 public key.
    pub fn from_pem(name: &str, pem: &str) -> Result<Self, InvalidKey> {
        let body = pem
            .trim()
            .strip_prefix("-----BEGIN PUBLIC KEY-----")
            .and_then(|rest| rest.strip_suffix("-----END PUBLIC KEY-----"))
            .ok_or(InvalidKey::Pem)?;
        let text: String = body.split_whitespace().collect();
        let der = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text)
            .map_err(|_| InvalidKey::Pem)?;
        let key = der.strip_prefix(&DER_PREFIX).and_then(|key| key.try_into().ok());
        Ok(Self { name: name.to_owned(), key: key.ok_or(InvalidKey::Kind)? })
    }

    /// Whether this is a signature of these bytes by its key.
    pub fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.key).verify(bytes, signature).is_ok()
    }

    fn has_signed(&self, statement: &str, signature: &[u8]) -> bool {
        self.verifies(statement.as_bytes(), signature)
    }
}

/// Keys whose signatures count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Keys of the provider: good for every bitstream, and all tenants trust what they signed.
    pub provider: Vec<PublicKey>,
    /// Keys of tenants: good for their own bitstreams, which other tenants do not trust for it.
    pub tenants: BTreeMap<TenantId, Vec<PublicKey>>,
    /// Whether a bitstream without a signature is taken.
    pub allows_unsigned: bool,
}

/// Why a bitstream's signature does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTrusted {
    /// There is none.
    #[error(
        "the bitstream is not signed; sign it with a key that the operator trusts, or have the operator \
         set signatures.allow_unsigned"
    )]
    Unsigned,
    /// It has another length.
    #[error("the signature has {bytes} bytes; an ed25519 signature has {SIGNATURE_BYTES}")]
    Length { bytes: usize },
    /// No key that counts has made it.
    #[error(
        "the signature is by none of the {keys} keys that are trusted for this bitstream (those of the \
         provider, and of its owner), or of another line than {line:?}"
    )]
    UnknownKey {
        /// Number of keys that were tried.
        keys: usize,
        /// Line that has to be signed.
        line: String,
    },
}

/// Rules for accepted bitstreams: those signed by one of these ed25519 public keys (PEM files).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Signatures {
    /// Accepts unsigned bitstreams too. They are listed as UNSIGNED.
    pub allow_unsigned: bool,
    /// Keys of the provider, valid for every bitstream. Packets of all tenants may pass what they signed, where its owner shares it.
    pub provider: Vec<PathBuf>,
    /// Keys of tenants by tenant id, valid for the tenant's own bitstreams. Other tenants' packets pass these only if their DAGs name the tenant.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<TenantId, Vec<PathBuf>>,
}

impl Trust {
    /// Reads the key files that the settings name.
    ///
    /// # Errors
    /// The first file that cannot be read or has no such key.
    pub fn read(settings: &Signatures) -> Result<Self, UnreadableKey> {
        let ring = |paths: &[PathBuf]| {
            paths.iter().map(|path| PublicKey::read(path)).collect::<Result<Vec<_>, _>>()
        };
        let tenants = settings.tenants.iter().map(|(id, paths)| Ok((id.clone(), ring(paths)?)));
        Ok(Self {
            provider: ring(&settings.provider)?,
            tenants: tenants.collect::<Result<_, _>>()?,
            allows_unsigned: settings.allow_unsigned,
        })
    }

    /// The key that signed a bitstream; `None` where it is unsigned and may be. A signature that is there
    /// has to be good, whatever else is allowed. A key in both rings is the provider's.
    ///
    /// # Errors
    ///
    /// [`NotTrusted`] if a required signature is missing, or the signature is not valid for any trusted key.
    pub fn signer(
        &self,
        declared: &Bitstream,
        signature: &[u8],
    ) -> Result<Option<Signer>, NotTrusted> {
        let owner = declared.id.owner();
        let own = owner.and_then(|owner| self.tenants.get(&owner)).map_or(&[][..], Vec::as_slice);
        let mut statements = vec![Statement::of(declared).to_string()];
        let image = declared.images.first();
        if declared.identity.is_none() && image.regions.is_empty() {
            statements.push(statement(image.digest));
        }
        self.signer_among(own, &statements, signature)
    }

    /// The key that signed all images of a bitstream that was uploaded before, by the keys that count now.
    ///
    /// # Errors
    ///
    /// [`NotTrusted`] for the first image that would be refused now.
    pub fn signer_of_stored(&self, stored: &Bitstream) -> Result<Option<Signer>, NotTrusted> {
        let mut signers = Vec::new();
        for image in &stored.images {
            let (bytes, regions) = match &image.signature {
                None => (Vec::new(), image.regions.clone()),
                Some(signature) => (signature.bytes(), signature.regions.clone()),
            };
            let declared = stored.with_only(&RegionImage { regions, ..image.clone() });
            signers.push(match self.signer(&declared, &bytes) {
                // It was taken when its key counted, and would be taken without a signature.
                Err(NotTrusted::UnknownKey { .. }) if self.allows_unsigned => None,
                signer => signer?,
            });
        }
        // All have the same one, unless a key that signed some of them is another ring's now. Then nobody answers for all.
        let first = signers.first().cloned().flatten();
        Ok(first.filter(|first| signers.iter().all(|signer| signer.as_ref() == Some(first))))
    }

    /// Whether there is any key.
    pub fn has_keys(&self) -> bool {
        !self.provider.is_empty() || self.tenants.values().any(|ring| !ring.is_empty())
    }

    /// The same for a card's role, which only the provider may sign.
    ///
    /// # Errors
    ///
    /// As [`Trust::signer`].
    pub fn signer_of_role(
        &self,
        role: Digest,
        signature: &[u8],
    ) -> Result<Option<Signer>, NotTrusted> {
        self.signer_among(&[], &[statement(role)], signature)
    }

    fn signer_among(
        &self,
        own: &[PublicKey],
        statements: &[String],
        signature: &[u8],
    ) -> Result<Option<Signer>, NotTrusted> {
        match signature.len() {
            0 if self.allows_unsigned => return Ok(None),
            0 => return Err(NotTrusted::Unsigned),
            SIGNATURE_BYTES => {}
            bytes => return Err(NotTrusted::Length { bytes }),
        }
        let has_signed =
            |key: &&PublicKey| statements.iter().any(|line| key.has_signed(line, signature));
        let signer_in = |ring: &[PublicKey], of: fn(Box<str>) -> Signer| {
            ring.iter().find(has_signed).map(|key| of(key.name.as_str().into()))
        };
        let signer = signer_in(&self.provider, Signer::Provider);
        let signer = signer.or_else(|| signer_in(own, Signer::Owner));
        signer.map(Some).ok_or_else(|| NotTrusted::UnknownKey {
            keys: self.provider.len() + own.len(),
            line: statements.first().map(|line| line.trim_end().to_owned()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};
    use snic_domain::{ByteSize, ImageSignature, RegionImages};

    use super::*;

    /// Made and used with openssl 3.0: `pkey -pubout`, `pkeyutl -sign -rawin` of the line below.
    const PEM: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAjhTsv9tmgcAHitf7d92xtPUNJpteOVEfeWx/n2IjSYs=\n-----END PUBLIC KEY-----\n";
    const SIGNED: &str = "4bd64e3ad7658797d930a1501fd408acab2d0cd60ea3617de298d55bc873f6e3\
        51d9075ec0eb7139f51d33b3fd430af672a6385ac13ed8b78eeeacdefc3f220e";

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("32 bytes")
    }

    fn key(seed: u8) -> PublicKey {
        let key = pair(seed).public_key().as_ref().try_into().expect("32 bytes");
        PublicKey { name: format!("key{seed}"), key }
    }

    fn sign(seed: u8, digest: Digest) -> Vec<u8> {
        sign_line(seed, &statement(digest))
    }

    fn sign_line(seed: u8, line: &str) -> Vec<u8> {
        pair(seed).sign(line.as_bytes()).as_ref().to_vec()
    }

    /// Whether no key has signed that.
    fn is_unknown(signer: Result<Option<Signer>, NotTrusted>, among: usize) -> bool {
        matches!(signer, Err(NotTrusted::UnknownKey { keys, .. }) if keys == among)
    }

    fn bitstream(id: &str) -> Bitstream {
        Bitstream {
            id: id.parse().expect("a label"),
            images: RegionImages::for_all(Digest::of(b"bytes"), ByteSize::from_bytes(5)),
            nts: vec!["nat".parse().expect("a label")],
            region_kind: RegionKind::KnownNt,
            card_model: "sim-16".parse().expect("a label"),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        }
    }

    fn trust() -> Trust {
        let tenants = [(1, "acme"), (2, "globex")]
            .map(|(seed, id)| (id.parse().expect("a label"), vec![key(seed)]));
        Trust { provider: vec![key(0)], tenants: tenants.into(), allows_unsigned: false }
    }

    #[test]
    fn a_key_is_good_for_its_own_bitstreams_and_the_providers_for_all() {
        let digest = Digest::of(b"bytes");
        let signer = |id: &str, seed| trust().signer(&bitstream(id), &sign(seed, digest));
        let provider = Signer::Provider("key0".into());
        assert_eq!(signer("nat", 0), Ok(Some(provider.clone())));
        assert_eq!(signer("acme.nat", 0), Ok(Some(provider)));
        assert_eq!(signer("acme.nat", 1), Ok(Some(Signer::Owner("key1".into()))));
        assert!(is_unknown(signer("acme.nat", 2), 2));
        assert!(is_unknown(signer("nat", 1), 1));
        assert!(is_unknown(signer("initech.nat", 1), 1));
    }

    /// The ring says whose key it is, not the name of its file: two files may have the same name.
    #[test]
    fn a_tenants_key_named_as_the_providers_is_the_tenants() {
        let namesake = PublicKey { name: "key0".to_owned(), ..key(1) };
        let tenants = [("acme".parse().expect("a label"), vec![namesake])];
        let mut trust =
            Trust { provider: vec![key(0)], tenants: tenants.into(), allows_unsigned: false };
        let signature = sign(1, Digest::of(b"bytes"));
        let signer = trust.signer(&bitstream("acme.nat"), &signature);
        assert_eq!(signer, Ok(Some(Signer::Owner("key0".into()))));
        trust.provider.push(key(1));
        let signer = trust.signer(&bitstream("acme.nat"), &signature);
        assert_eq!(signer, Ok(Some(Signer::Provider("key1".into()))), "a key in both rings");
    }

    #[test]
    fn without_a_good_signature_nothing_is_taken_unless_the_operator_says_so() {
        let (mut trust, wanted) = (trust(), bitstream("nat"));
        let mut signature = sign(0, wanted.images.first().digest);
        assert_eq!(trust.signer(&wanted, &[]), Err(NotTrusted::Unsigned));
        trust.allows_unsigned = true;
        assert_eq!(trust.signer(&wanted, &[]), Ok(None));
        // What claims to be signed has to be.
        assert_eq!(trust.signer(&wanted, &signature[1..]), Err(NotTrusted::Length { bytes: 63 }));
        signature[20] ^= 1;
        assert!(is_unknown(trust.signer(&wanted, &signature), 1));
        let other = sign(0, Digest::of(b"other bytes"));
        assert!(is_unknown(trust.signer(&wanted, &other), 1));
        let bare = sign_line(0, &wanted.images.first().digest.to_string());
        assert!(is_unknown(trust.signer(&wanted, &bare), 1));
    }

    /// The bytes of a flow's bitstream do not say what they hold, so who signs the digest alone has not
    /// said it either.
    #[test]
    fn what_a_flow_says_of_a_bitstream_is_signed_with_its_digest() {
        let trust = trust();
        let mut wanted = bitstream("nat");
        wanted.identity = Some("00000001000000020000000300000004".parse().expect("valid"));
        wanted.images.first_mut().regions = vec![RegionId(0), RegionId(3)];
        let digest = wanted.images.first().digest;
        let line = Statement::of(&wanted).to_string();
        let expected = "00000001000000020000000300000004 sim-16 known-nt 0,3 nat\n";
        assert_eq!(line, format!("snic-bitstream-v2 {digest} {expected}"));
        let signature = sign_line(0, &line);
        let provider = Signer::Provider("key0".into());
        assert_eq!(trust.signer(&wanted, &signature), Ok(Some(provider)));
        assert!(is_unknown(trust.signer(&wanted, &sign(0, digest)), 1));
        let changed = |change: &dyn Fn(&mut Bitstream)| {
            let mut other = wanted.clone();
            change(&mut other);
            is_unknown(trust.signer(&other, &signature), 1)
        };
        assert!(changed(&|other| other.nts = vec!["aes".parse().expect("a label")]));
        assert!(changed(&|other| other.identity = None));
        assert!(changed(&|other| other.images.first_mut().regions.clear()));
        assert!(changed(&|other| other.card_model = "sim-32".parse().expect("a label")));
        assert!(changed(&|other| other.region_kind = RegionKind::UserNt));
        assert!(changed(&|other| other.images.first_mut().digest = Digest::of(b"other bytes")));
    }

    /// A key that leaves its ring, or comes into another one, changes who answers for what was uploaded before.
    #[test]
    fn stored_images_are_judged_by_the_keys_of_today() {
        let mut stored = bitstream("acme.nat");
        let all = trust();
        let put = |stored: &mut Bitstream, seed: u8| {
            let line = Statement::of(stored).to_string();
            let image = stored.images.first_mut();
            let regions = image.regions.clone();
            image.signature = Some(ImageSignature::new(&sign_line(seed, &line), regions));
        };
        put(&mut stored, 0);
        // The upload found which of the named regions it fits: the line that was signed is as it was.
        stored.images.first_mut().regions = vec![RegionId(1)];
        let provider = Some(Signer::Provider("key0".into()));
        assert_eq!(all.signer_of_stored(&stored), Ok(provider.clone()));
        let without = Trust { provider: Vec::new(), ..all.clone() };
        assert!(is_unknown(without.signer_of_stored(&stored), 1));
        let lax = Trust { allows_unsigned: true, ..without.clone() };
        assert_eq!(lax.signer_of_stored(&stored), Ok(None), "as if it were not signed");
        let replaced =
            Trust { provider: vec![PublicKey { name: "key0".into(), ..key(7) }], ..without };
        assert!(is_unknown(replaced.signer_of_stored(&stored), 2), "another key of that name");
        // Two images of two keys are nobody's.
        let mut both = stored.clone();
        let mut second = bitstream("acme.nat");
        second.images = RegionImages::for_all(Digest::of(b"more"), ByteSize::from_bytes(5));
        second.images.first_mut().regions = vec![RegionId(2)];
        put(&mut second, 1);
        both.images.add(second.images.first().clone()).expect("another region");
        assert_eq!(all.signer_of_stored(&both), Ok(None));
        let unsigned = bitstream("nat");
        assert_eq!(all.signer_of_stored(&unsigned), Err(NotTrusted::Unsigned));
    }

    #[test]
    fn keys_and_signatures_of_openssl_are_understood() {
        let key = PublicKey::from_pem("openssl", PEM).expect("a key");
        let trust = Trust { provider: vec![key], ..Trust::default() };
        let signature: Vec<u8> = (0..SIGNED.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&SIGNED[at..at + 2], 16).expect("hexadecimal"))
            .collect();
        let provider = Signer::Provider("openssl".into());
        assert_eq!(trust.signer(&bitstream("nat"), &signature), Ok(Some(provider)));
    }

    #[test]
    fn files_that_are_no_ed25519_key_are_told_apart() {
        let read = |pem: &str| PublicKey::from_pem("x", pem).expect_err("no key");
        assert_eq!(read(""), InvalidKey::Pem);
        assert_eq!(read(&PEM.replace("PUBLIC", "PRIVATE")), InvalidKey::Pem);
        let begin = "-----BEGIN PUBLIC KEY-----\n";
        assert_eq!(read(&PEM.replace(begin, &format!("{begin}*"))), InvalidKey::Pem);
        // Another algorithm's number.
        assert_eq!(read(&PEM.replace("MCowBQYDK2Vw", "MCowBQYDK2Vx")), InvalidKey::Kind);
    }
}

//! Whether a role is one that the daemon can drive, on the card it is meant for.

use snic_domain::CardProfile;
use uuid::Uuid;

use super::{Control, InvalidXclbin, Xclbin};
use crate::parse::{WrongCard, is_same_part, lead_idcode};
use crate::{BitHeader, InvalidBitstream, InvalidHeader};

/// Expectations of the daemon on a role.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedRole<'a> {
    /// The kernel with the register map, as `kernel:instance`.
    pub control: &'a str,
    /// Bytes of the register map.
    pub registers_bytes: u64,
    /// Where the map's first register is; what is before belongs to the kernel's handshake and arguments.
    pub first_register: u64,
    /// The interface of the platform on the card, where it is known.
    pub interface: Option<Uuid>,
    pub card: &'a CardProfile,
}

/// Why a role is not for this daemon and card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongRole {
    #[error(transparent)]
    Container(#[from] InvalidXclbin),
    #[error(
        "the role was built against {}, the card's platform has interface {expected}; build it for \
         this platform",
        named(found)
    )]
    Interface { found: Vec<Uuid>, expected: Uuid },
    /// No register map.
    #[error("the role has no kernel {control}, which holds the register map")]
    NoControl {
        /// Name that was looked for.
        control: String,
    },
    /// A register map that XRT gives no access to.
    #[error(
        "the kernel {control} is not declared AP_CTRL_HS; XRT gives exclusive register access to no \
         other"
    )]
    NotExclusive { control: String },
    /// Arguments in the place of the map.
    #[error(
        "the kernel {control} has arguments up to byte {end:#x} of its registers; the map begins at \
         {first:#x}, so XRT would write arguments over it: declare fewer"
    )]
    Arguments {
        control: String,
        /// Where they end.
        end: u64,
        /// Where the map begins.
        first: u64,
    },
    /// A register map that is cut.
    #[error("the kernel {control} has {range} bytes of registers; the map needs {needed}")]
    Range { control: String, range: u64, needed: u64 },
    /// No memory to stage bitstreams in.
    #[error("the role uses no memory bank; bitstreams are staged in one")]
    NoMemory,
    /// The header of its bitstream.
    #[error(transparent)]
    Header(#[from] InvalidHeader),
    /// The beginning of its bitstream.
    #[error(transparent)]
    Bitstream(#[from] InvalidBitstream),
    #[error(transparent)]
    WrongCard(#[from] WrongCard),
}

/// Interfaces in a message.
pub fn named(interfaces: &[Uuid]) -> String {
    let names: Vec<String> = interfaces.iter().map(Uuid::to_string).collect();
    if names.is_empty() {
        "no interface".into()
    } else {
        format!("interface {}", names.join(" and "))
    }
}

/// Reads a role and holds it against the card. Its bitstream configures the whole role, by the
/// provider's word (the signature): it is held against the part, and its packets are not walked
/// beyond the part's id.
///
/// # Errors
///
/// [`WrongRole`] if the container is invalid, or is not for this card and interface.
pub fn check_role<'a>(
    bytes: &'a [u8],
    expected: &ExpectedRole<'_>,
) -> Result<Xclbin<'a>, WrongRole> {
    let role = Xclbin::parse(bytes)?;
    if let Some(expected) = expected.interface.filter(|known| !role.interfaces.contains(known)) {
        return Err(WrongRole::Interface { found: role.interfaces, expected });
    }
    check_control(&role, expected)?;
    if !role.memories.iter().any(|memory| memory.used && memory.kibibytes > 0) {
        return Err(WrongRole::NoMemory);
    }
    let (header, data) = BitHeader::parse(role.bitstream)?;
    is_same_part(header.part, lead_idcode(data)?, expected.card)?;
    Ok(role)
}

fn check_control(role: &Xclbin<'_>, expected: &ExpectedRole<'_>) -> Result<(), WrongRole> {
    let control = || expected.control.to_owned();
    let (Some(kernel), Some(ip)) = (role.kernel(expected.control), role.ip(expected.control))
    else {
        return Err(WrongRole::NoControl { control: control() });
    };
    if ip.control != Control::HandShake {
        return Err(WrongRole::NotExclusive { control: control() });
    }
    let (end, first) = (kernel.arguments_end, expected.first_register);
    if end > first {
        return Err(WrongRole::Arguments { control: control(), end, first });
    }
    let needed = expected.registers_bytes;
    if kernel.range < needed {
        return Err(WrongRole::Range { control: control(), range: kernel.range, needed });
    }
    Ok(())
}

//! Bitstreams: the catalogue of what exists, and what a file of bytes really holds.
//!
//! Everything here is a function of bytes. A file is never trusted: every length in it is checked
//! against what is there, every packet is decoded, and what is not known to be harmless for the
//! other regions of the card is refused.
//!
//! ```text
//! .bit file:  a–e header │ pads, sync word │ packets …  FAR, FDRI │ frames … │ … DESYNC
//!                                                       a test image: └ chain ROM in the first
//! ```
//!
//! One crate, because catalogue, parser and importer share packets, frames and floor plans: test images are
//! built by the one and judged by the other.

#![warn(clippy::missing_errors_doc)]

pub mod catalogue;
mod configuration_crc;
mod crc;
mod floor_plan;
mod header;
pub mod import;
mod load_stream;
pub mod manifest;
mod modules;
mod packet;
mod parse;
mod rom;
pub mod signature;
mod test_image;
mod upload;
mod wasm;
pub mod xclbin;

pub use floor_plan::{FloorGroup, FloorPlan, FrameRange, OutsideRegion, RowWidth};
pub use header::{BitHeader, HEADER_TEXT_BYTES_MAX, InvalidHeader};
pub use load_stream::{CONTROL_BYTES_MAX, with_known_control};
pub use modules::{EmbeddedModule, InvalidModuleBuild, InvalidModules, ModuleBuild, modules};
pub use packet::{FRAME_WORDS, FrameAddress, Register};
pub use parse::{
    BitFile, FrameKind, FrameWrite, InvalidBitstream, UnmaskedReason, WriteForm, WrongCard, parse,
};
pub use rom::{ChainRom, InvalidRom, NotIdentified, SlotRom, identify};
pub use test_image::{InvalidTestImage, TestBuild, build_test};
pub use upload::{CheckedUpload, InvalidUpload, check_upload};
pub use wasm::{InvalidModuleForm, check_module};

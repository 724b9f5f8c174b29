//! `snicctl`, the program itself.

mod floor_plan;
#[allow(dead_code, reason = "shared with the tests of the checker")]
#[path = "../../../core/bitstream/tests/vendor/image.rs"]
mod image;
#[path = "../../../core/bitstream/tests/vendor/reports.rs"]
mod reports;
mod snicctl;
#[allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]
mod support;

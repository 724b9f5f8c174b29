//! The program in the kernel, judged by Linux: frames go in at one end of a veth pair and are looked at where they come out.
//!
//! Each test has network namespaces of its own. It needs root, `ip`, clang at build time and Linux 6.6 or later, and says what is
//! missing; in CI that is a failure.

mod card;
mod death;
mod equivalence;
mod frames;
mod process;
mod rig;
mod rules;
mod site;
mod streams;
mod traffic;

#[path = "../../../card-soft/tests/support/mod.rs"]
mod support;

//! The hook as libvirt calls it, with a daemon that answers as a test says.

mod pending_unbinds;
mod usage;

//! Real processes through everything that goes wrong, and beside programs of others. What is tested with each change is in
//! `processes`. What needs the machine for itself is in `alone`.

mod alone;
mod archive;
mod budgets;
mod clients;
mod crash;
mod fleet;
mod hook;
mod host_link;
mod large_records;
mod libvirt;
mod metered;
mod modules;
mod operating;
mod pages;
mod pki;
mod policy_files;
mod processors;
mod resumed_watches;
mod signatures;
mod soft;
mod stopped;
mod store;
mod telemetry;
mod unread_replies;

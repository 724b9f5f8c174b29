//! Tests that others beside them would disturb, or that disturb others. They have failed beside each other.

mod disk;
mod flood;
mod lost_card;
mod module_floods;
mod web;

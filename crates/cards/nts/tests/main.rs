//! NTs from outside. What counts allocations is a program of its own, `memory`; peers that are programs of others are in `ci`.

mod go_back_n;
mod mutations;
mod support;
mod unreadable;

use go_back_n::{assert_valid, ends, line};

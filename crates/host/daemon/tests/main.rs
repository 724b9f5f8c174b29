//! The settings: read by the program, and described by the reference.

mod config;
mod reference;

use reference::{TABLES, types};

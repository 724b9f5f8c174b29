//! Models of NICs with processors: their files, and the choice among implementations.

mod choice;
mod files;

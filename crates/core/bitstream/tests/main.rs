//! Vendor files, read and made. What counts allocations is a program of its own, `mutations`.

mod flow;
mod vendor;

use vendor::{image, interpreter, reports};

//! An archive of usage: a file for each range of time that is over and closed, which is written once.
//!
//! ```text
//!  DIRECTORY/.lock                               held while a run writes
//!            ten-seconds/2026-11-30T14.parquet   an hour of intervals of ten seconds
//!            minutes/2026-11-30.parquet          a day of intervals of a minute
//!            hours/2026-11.parquet               a month of intervals of an hour
//!            hours/2026-10.missing               a range that the daemon did not have any more
//!            hours/.begun                        first range of the archive
//! ```
//!
//! A file has another name until all of it is on disk, so one that has its name is complete. What was left by a run that was killed is
//! removed by the next one.

mod folder;
mod ranges;

pub use folder::{ArchiveFolder, SetFolder};
pub use ranges::{Available, FileRange, IntervalSet};

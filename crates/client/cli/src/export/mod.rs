//! Usage for other programs: all meters, charges by an operator's prices, and statements to sign.

mod columns;
mod focus;
#[cfg(feature = "parquet")]
mod parquet;
mod period;
mod statement;
mod values;

pub use columns::{csv, promises_csv};
pub use focus::Charges;
#[cfg(feature = "parquet")]
pub use parquet::{UsageFile, charges_parquet, parquet};
pub use period::Charged;
pub use statement::{StatementDay, UsageStatement, statement};

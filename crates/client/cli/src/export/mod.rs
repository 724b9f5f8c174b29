//! Usage for other programs: all meters, and charges by an operator's prices.

mod columns;
mod decimal;
mod focus;
#[cfg(feature = "parquet")]
mod parquet;
mod period;
mod prices;
mod values;

pub use columns::csv;
pub use focus::charges;
#[cfg(feature = "parquet")]
pub use parquet::parquet;
pub use period::Charged;
pub use prices::{PRICES_FILE, Prices};

//! All meters of usage as a Parquet file.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use snic_api::v1::UsageEntry;

use super::columns::{Values, columns};

/// Most rows of a group, which a reader has in memory at once.
const GROUP_ROWS_MAX: usize = 65_536;

fn schema(columns: &[(String, Values)]) -> Result<TypePtr> {
    let field = |(name, values): &(String, Values)| {
        let (physical, logical) = match values {
            of if of.is_text() => (PhysicalType::BYTE_ARRAY, LogicalType::String),
            Values::Time(_) => {
                (PhysicalType::INT64, LogicalType::timestamp(true, TimeUnit::MILLIS))
            }
            _ => (PhysicalType::INT64, LogicalType::integer(64, false)),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(logical));
        field.build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_>>()?;
    Type::group_type_builder("usage").with_fields(fields).build().map(Arc::new)
}

/// All meters of all entries as a Parquet file: names are strings, times are of milliseconds in UTC, and amounts are unsigned
/// integers of 64 bits.
///
/// # Errors
/// The library refuses a value, which no entry has.
pub fn parquet(usage: &[UsageEntry]) -> Result<Vec<u8>> {
    let columns = columns();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(Vec::new(), schema(&columns)?, properties)?;
    for rows in usage.chunks(GROUP_ROWS_MAX) {
        let mut group = file.next_row_group()?;
        for (_, values) in &columns {
            let Some(mut column) = group.next_column()? else { break };
            match values {
                of if of.is_text() => {
                    let of = |entry| ByteArray::from(of.text(entry).into_bytes());
                    let texts: Vec<ByteArray> = rows.iter().map(of).collect();
                    column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
                }
                values => {
                    let scale = if matches!(values, Values::Time(_)) { 1_000 } else { 1 };
                    // An unsigned integer is stored with the bits of a signed one.
                    let of = |entry| (values.amount(entry) * scale).cast_signed();
                    let amounts: Vec<i64> = rows.iter().map(of).collect();
                    column.typed::<Int64Type>().write_batch(&amounts, None, None)?;
                }
            };
            column.close()?;
        }
        group.close()?;
    }
    file.into_inner()
}

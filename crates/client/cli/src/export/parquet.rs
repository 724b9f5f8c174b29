//! Usage as Parquet files: all meters, and charges in the columns of FOCUS.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::data_type::{
    ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int64Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use snic_api::v1::UsageEntry;

use super::columns::{Values, columns};
use super::focus::{COLUMNS, Charge, Charges, Value};

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

/// A Parquet file with all meters of entries, which is written as they come: names are strings, times are of milliseconds in UTC, and
/// amounts are unsigned integers of 64 bits.
pub struct UsageFile<W: Write + Send> {
    columns: Vec<(String, Values)>,
    file: SerializedFileWriter<W>,
}

impl<W: Write + Send> UsageFile<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(to: W) -> Result<Self> {
        let columns = columns();
        let properties = Arc::new(WriterProperties::builder().build());
        let file = SerializedFileWriter::new(to, schema(&columns)?, properties)?;
        Ok(Self { columns, file })
    }

    /// Adds entries as a group of rows, which a reader has in memory at once.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, rows: &[UsageEntry]) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for (_, values) in &self.columns {
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
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> Result<W> {
        self.file.into_inner()
    }
}

/// All meters of all entries as a Parquet file.
///
/// # Errors
/// The library refuses a value, which no entry has.
pub fn parquet(usage: &[UsageEntry]) -> Result<Vec<u8>> {
    let mut file = UsageFile::new(Vec::new())?;
    usage.chunks(GROUP_ROWS_MAX).try_for_each(|rows| file.add(rows))?;
    file.finish()
}

/// Digits of a number of FOCUS, and those of them behind the point: a price has 12 at most, a quantity 9.
const NUMBER_DIGITS: i32 = 38;
const NUMBER_SCALE: i32 = 21;

fn charges_schema() -> Result<TypePtr> {
    let field = |(name, value): &(&str, Value)| {
        let (physical, logical) = match value {
            Value::Text(_) | Value::Null => (PhysicalType::BYTE_ARRAY, LogicalType::String),
            Value::Time(_) => (PhysicalType::INT64, LogicalType::timestamp(true, TimeUnit::MILLIS)),
            Value::Number(_) => (
                PhysicalType::FIXED_LEN_BYTE_ARRAY,
                LogicalType::decimal(NUMBER_SCALE, NUMBER_DIGITS),
            ),
        };
        let mut field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(logical));
        if let Value::Number(_) = value {
            field = field.with_length(16).with_precision(NUMBER_DIGITS).with_scale(NUMBER_SCALE);
        }
        field.build().map(Arc::new)
    };
    let fields = COLUMNS.iter().map(field).collect::<Result<_>>()?;
    Type::group_type_builder("charges").with_fields(fields).build().map(Arc::new)
}

/// Values of a column, of rows; an empty text is null, as in the file of comma-separated values.
fn write_charges(
    column: &mut SerializedColumnWriter<'_>,
    value: &Value,
    rows: &[Charge<'_>],
) -> Result<()> {
    let all = vec![1; rows.len()];
    match value {
        Value::Null => {
            column.typed::<ByteArrayType>().write_batch(&[], Some(&vec![0; rows.len()]), None)?;
        }
        Value::Text(of) => {
            let texts: Vec<String> = rows.iter().map(of).collect();
            let levels: Vec<i16> = texts.iter().map(|text| i16::from(!text.is_empty())).collect();
            let texts = texts.into_iter().filter(|text| !text.is_empty());
            let texts: Vec<ByteArray> = texts.map(|text| text.into_bytes().into()).collect();
            column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None)?;
        }
        Value::Time(of) => {
            let times = rows.iter().map(|row| (of(row) * 1_000).cast_signed());
            let times: Vec<i64> = times.collect();
            column.typed::<Int64Type>().write_batch(&times, Some(&all), None)?;
        }
        Value::Number(of) => {
            let numbers = rows.iter().map(|row| number(of(row))).collect::<Result<Vec<_>>>()?;
            column.typed::<FixedLenByteArrayType>().write_batch(&numbers, Some(&all), None)?;
        }
    }
    Ok(())
}

fn number(of: snic_usage::Decimal) -> Result<FixedLenByteArray> {
    let end = 10_i128.pow(NUMBER_DIGITS.unsigned_abs());
    let units =
        of.at_scale(NUMBER_SCALE.unsigned_abs()).and_then(|units| i128::try_from(units).ok());
    let units = units.filter(|units| *units < end).ok_or_else(|| {
        let digits = NUMBER_DIGITS - NUMBER_SCALE;
        ParquetError::General(format!("{of} has more than {digits} digits before the point"))
    })?;
    Ok(ByteArray::from(units.to_be_bytes().to_vec()).into())
}

/// Charges as a Parquet file, in the columns of FOCUS: numbers are decimals, times are of milliseconds in UTC.
///
/// # Errors
/// A cost has more than 17 digits before the point.
pub fn charges_parquet(charges: &Charges<'_>) -> Result<Vec<u8>> {
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(Vec::new(), charges_schema()?, properties)?;
    for rows in charges.rows().chunks(GROUP_ROWS_MAX) {
        let mut group = file.next_row_group()?;
        for (_, value) in &COLUMNS {
            let Some(mut column) = group.next_column()? else { break };
            write_charges(&mut column, value, rows)?;
            column.close()?;
        }
        group.close()?;
    }
    file.into_inner()
}

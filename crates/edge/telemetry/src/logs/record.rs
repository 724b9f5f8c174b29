//! Encodes an event as `LogRecord` of OpenTelemetry's `logs.proto`, directly into bytes: without an
//! owned copy of each value, and without a second pass before sending.

use std::cell::Cell;
use std::fmt::{Debug, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// The event field with the line's text.
const MESSAGE: &str = "message";

/// Wire type of a field.
#[derive(Clone, Copy)]
enum Kind {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

/// Field numbers of `LogRecord`.
mod field {
    pub(super) const TIME: u8 = 1;
    pub(super) const SEVERITY: u8 = 2;
    pub(super) const SEVERITY_TEXT: u8 = 3;
    pub(super) const BODY: u8 = 5;
    pub(super) const ATTRIBUTE: u8 = 6;
    pub(super) const FLAGS: u8 = 8;
    pub(super) const TRACE_ID: u8 = 9;
    pub(super) const SPAN_ID: u8 = 10;
    pub(super) const OBSERVED: u8 = 11;
}

/// Field numbers of `KeyValue`.
mod pair {
    pub(super) const KEY: u8 = 1;
    pub(super) const VALUE: u8 = 2;
}

/// A value of `AnyValue`.
#[derive(Clone, Copy)]
enum Value<'a> {
    Text(&'a str),
    Bool(bool),
    Int(i64),
    Double(f64),
}

fn key(field: u8, kind: Kind, out: &mut Vec<u8>) {
    out.push(field << 3 | kind as u8);
}

fn varint(value: u64, out: &mut Vec<u8>) {
    let mut rest = value;
    while rest > 0x7f {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn bytes(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    length(field, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Key and length of a length-delimited field.
fn length(field: u8, length: usize, out: &mut Vec<u8>) {
    key(field, Kind::Bytes, out);
    varint(length as u64, out);
}

const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Encoded size of a length-delimited field.
fn length_of(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

impl Value<'_> {
    /// Encoded size of the `AnyValue`.
    fn len(self) -> usize {
        match self {
            Self::Text(text) => length_of(text.len()),
            Self::Bool(_) => 2,
            Self::Int(number) => 1 + varint_len(number as u64),
            Self::Double(_) => 9,
        }
    }

    fn put(self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => bytes(1, text.as_bytes(), out),
            Self::Bool(yes) => {
                key(2, Kind::Varint, out);
                out.push(u8::from(yes));
            }
            Self::Int(number) => {
                key(3, Kind::Varint, out);
                // A negative one is its two's complement.
                varint(number as u64, out);
            }
            Self::Double(number) => {
                key(4, Kind::Fixed64, out);
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
}

/// Where records are written: what one thread needs again and again.
#[derive(Default)]
struct Scratch {
    record: Vec<u8>,
    /// A value while it is formatted: its length comes before it.
    text: String,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl Scratch {
    fn head(&mut self, level: Level, at: SystemTime) {
        self.record.clear();
        let out = &mut self.record;
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        // Until the year 2554.
        let nanos = (since.as_nanos() as u64).to_le_bytes();
        for field in [field::TIME, field::OBSERVED] {
            key(field, Kind::Fixed64, out);
            out.extend_from_slice(&nanos);
        }
        key(field::SEVERITY, Kind::Varint, out);
        out.push(severity(level));
        bytes(field::SEVERITY_TEXT, level.as_str().as_bytes(), out);
    }

    fn trace(&mut self, of: &SpanContext) {
        let out = &mut self.record;
        bytes(field::TRACE_ID, &of.trace_id().to_bytes(), out);
        bytes(field::SPAN_ID, &of.span_id().to_bytes(), out);
        key(field::FLAGS, Kind::Fixed32, out);
        out.extend_from_slice(&u32::from(of.trace_flags().to_u8()).to_le_bytes());
    }

    fn put(&mut self, name: &str, value: Value<'_>) {
        put(&mut self.record, name, value);
    }
}

fn put(out: &mut Vec<u8>, name: &str, value: Value<'_>) {
    let bytes_of_value = value.len();
    if name == MESSAGE {
        length(field::BODY, bytes_of_value, out);
    } else {
        length(field::ATTRIBUTE, length_of(name.len()) + length_of(bytes_of_value), out);
        bytes(pair::KEY, name.as_bytes(), out);
        length(pair::VALUE, bytes_of_value, out);
    }
    value.put(out);
}

impl Visit for Scratch {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let Self { record, text } = self;
        text.clear();
        // Writing to a String cannot fail; a value whose Debug fails is cut short.
        let _ = write!(text, "{value:?}");
        put(record, field.name(), Value::Text(text));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), Value::Text(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), Value::Bool(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), Value::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(number) => self.put(field.name(), Value::Int(number)),
            // The protocol has only signed numbers.
            Err(_) => self.record_debug(field, &value),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), Value::Double(value));
    }
}

/// `SeverityNumber` of a level.
const fn severity(level: Level) -> u8 {
    match level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    }
}

/// Encodes an event with the current time and trace, and lends its bytes.
pub(super) fn write(event: &Event<'_>, take: impl FnOnce(&[u8])) {
    // If a value logs while being formatted, or the thread is ending, a fresh buffer is used.
    let mut scratch = SCRATCH.try_with(Cell::take).unwrap_or_default();
    scratch.head(*event.metadata().level(), SystemTime::now());
    opentelemetry::Context::map_current(|context| {
        if context.has_active_span() {
            scratch.trace(context.span().span_context());
        }
    });
    event.record(&mut scratch);
    take(&scratch.record);
    // An ending thread needs it no more.
    let _ = SCRATCH.try_with(|kept| kept.set(scratch));
}

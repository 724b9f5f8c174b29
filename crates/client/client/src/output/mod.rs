//! The output: tables for people, JSON and YAML for scripts.
//!
//! JSON and YAML have the field names of the proto files, with every field present and 64-bit values as
//! numbers. A list is an array; a stream is one document per line (JSON) or after each `---` (YAML).

pub mod audit;
mod card_views;
pub mod changes;
pub mod consolidation;
mod dag_views;
pub mod diagnosis;
pub mod explain;
pub mod fairness;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod fleet_machines;
pub mod fleet_views;
mod images;
pub mod latency_views;
pub mod limit_views;
pub mod message;
mod rule_views;
pub mod slo;
pub mod state_views;
pub mod table;
pub mod text;
pub mod usage;
pub mod views;
pub mod visible;
pub mod vm_views;
mod whole_numbers;

use std::io::{self, Write};
use std::time::SystemTime;

use clap::ValueEnum;
use serde::Serialize;

use self::message::{JsonMessage, PrintedMessage};
pub use self::table::WIDTH;
use self::visible::{guarded, json, visible, yaml};
use crate::failure::Failure;

/// A format of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables, at most 80 columns wide.
    #[default]
    Table,
    /// JSON with the field names of the API.
    Json,
    /// YAML with the field names of the API.
    Yaml,
}

/// Style of tables.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Whether to use colours.
    pub is_colour: bool,
    /// Columns that a line may have.
    pub width: usize,
    /// The current time, for ages.
    pub now: SystemTime,
}

/// Least width of a line; a terminal that is narrower breaks it.
pub const WIDTH_MIN: usize = 40;
/// Greatest width: longer lines are hard to read.
const WIDTH_MAX: usize = 200;

/// The width of lines: as wide as the terminal is, or as `COLUMNS` says; [`WIDTH`] where nobody says.
fn width_of(stream: &impl io::IsTerminal) -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    let terminal = || {
        let is_terminal = stream.is_terminal();
        let size = is_terminal.then(crossterm::terminal::size)?.ok();
        size.map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0)
    };
    said.or_else(terminal).unwrap_or(WIDTH).clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Whether to use colours on a stream: it is a terminal and `NO_COLOR` is not set.
pub fn wants_colour(stream: &impl io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The destination of the output.
pub struct Output {
    format: Format,
    style: Style,
    to: Box<dyn Write>,
}

impl Output {
    /// The standard output.
    pub fn standard(format: Format) -> Self {
        let stdout = io::stdout();
        let (is_colour, width) = (wants_colour(&stdout), width_of(&stdout));
        let style = Style { is_colour, width, now: SystemTime::now() };
        Self { format, style, to: Box::new(stdout) }
    }

    /// Output to a destination other than the standard output.
    pub fn new(format: Format, style: Style, to: Box<dyn Write>) -> Self {
        Self { format, style, to }
    }

    /// The format asked for.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Style of tables.
    pub const fn style(&self) -> Style {
        self.style
    }

    /// Prints one resource; `table` renders it for people.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be written.
    pub fn one<R: PrintedMessage>(
        &mut self,
        resource: &R,
        table: impl FnOnce(&R, Style) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.text(&table(&visible(resource)?, self.style)),
            _ => self.data(&JsonMessage::new(resource)?),
        }
    }

    /// Prints a list.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be written.
    pub fn many<R: PrintedMessage>(
        &mut self,
        resources: &[R],
        table: impl FnOnce(&[R], Style) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => {
                let shown: Vec<R> = resources.iter().map(visible).collect::<Result<_, _>>()?;
                self.text(&table(&shown, self.style))
            }
            _ => {
                let shown: Vec<JsonMessage> =
                    resources.iter().map(JsonMessage::new).collect::<Result<_, _>>()?;
                self.data(&shown)
            }
        }
    }

    /// Prints one element of a stream immediately.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be written.
    pub fn event<R: PrintedMessage>(
        &mut self,
        event: &R,
        line: impl FnOnce(&R, Style) -> Option<String>,
    ) -> Result<(), Failure> {
        let text = match self.format {
            Format::Table => {
                line(&visible(event)?, self.style).map_or(String::new(), |line| line + "\n")
            }
            Format::Json => json(&JsonMessage::new(event)?, false)? + "\n",
            Format::Yaml => format!("---\n{}", yaml(&JsonMessage::new(event)?)?),
        };
        self.text(&text)
    }

    /// Prints something that is no resource: a text for people, data for scripts.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be written.
    pub fn plain(&mut self, data: &impl Serialize, text: &str) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.text(text),
            _ => self.data(data),
        }
    }

    /// Prints bytes as they are, whatever the format.
    ///
    /// # Errors
    /// [`Failure`] if they cannot be written.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes)?;
        Ok(self.to.flush()?)
    }

    fn data(&mut self, data: &impl Serialize) -> Result<(), Failure> {
        let text = match self.format {
            Format::Yaml => yaml(data)?,
            _ => json(data, true)? + "\n",
        };
        self.text(&text)
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.raw(guarded(text, self.style.is_colour).as_bytes())
    }
}

//! The key-value store: it has a value for every key from the start.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::frames::{self, Station};
use super::keys::{self, Names};

pub(super) struct Store {
    station: Station,
    names: Arc<Names>,
    versions: Vec<u32>,
    value_bytes: usize,
}

impl Store {
    pub(super) fn new(station: Station, names: &Arc<Names>, value_bytes: usize) -> Self {
        let versions = vec![0; names.len()];
        Self { station, names: Arc::clone(names), versions, value_bytes }
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// It is not one of those that clients make.
    pub(super) fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let (number, text) = frames::read(request)?;
        let line = text.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        let (command, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let key = self.names.key(name).context("the store has all keys")?;
        let version = &mut self.versions[key as usize];
        let answer = match command {
            b"get" => {
                let value = frames::value(key, *version, self.value_bytes);
                let head = format!("VALUE {} 0 {}\r\n", keys::name(key), value.len());
                [head.as_bytes(), &value, b"\r\nEND\r\n"].concat()
            }
            b"set" => {
                let data = text.get(line.len() + 2..line.len() + 2 + self.value_bytes);
                let written = data.and_then(|data| frames::version(key, data));
                *version = written.context("a value that is none of the key's")?;
                b"STORED\r\n".to_vec()
            }
            _ => anyhow::bail!("unknown: {}", String::from_utf8_lossy(line)),
        };
        Ok(frames::message(self.station, frames::CLIENT, number, &answer))
    }
}

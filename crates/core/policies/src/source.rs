//! A policy file while it is checked. Every error names file, line and key.

use std::ops::RangeInclusive;

use serde::de::DeserializeOwned;

use super::InvalidPolicyText;

/// An optional value with its position in the file.
pub(super) type Spanned<T> = Option<toml::Spanned<T>>;

pub(super) struct Source<'a> {
    pub path: String,
    pub text: &'a str,
}

impl Source<'_> {
    /// The file's keys. Unknown keys and wrong types are errors.
    pub fn keys<T: DeserializeOwned>(&self) -> Result<T, InvalidPolicyText> {
        toml::from_str(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let message = error.message().replace('\n', "; ");
            self.wrong(at, format!("{}{message}", self.key(at)))
        })
    }

    /// The key on the line at `at`, with its table, as a prefix for a message. Empty if the line has
    /// no key.
    fn key(&self, at: usize) -> String {
        let mut table = "";
        for line in self.text.lines().take(self.line(at)) {
            if let Some((header, _)) = line.trim().strip_prefix('[').and_then(|l| l.split_once(']'))
            {
                table = header.trim();
            }
        }
        let line = self.text.lines().nth(self.line(at) - 1).unwrap_or_default();
        match line.split_once('=') {
            Some((key, _)) if table.is_empty() => format!("{}: ", key.trim()),
            Some((key, _)) => format!("{table}.{}: ", key.trim()),
            None => String::new(),
        }
    }

    pub fn wrong(&self, at: usize, message: String) -> InvalidPolicyText {
        let line = self.line(at);
        InvalidPolicyText { path: self.path.clone(), line, message }
    }

    /// The line number of a byte offset.
    pub fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    /// A number within `min..=max`, or the default if the key is missing.
    pub fn number(
        &self,
        key: &str,
        value: &Spanned<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, InvalidPolicyText> {
        let Some(value) = value else { return Ok(default) };
        let number = *value.get_ref();
        if range.contains(&number) {
            return Ok(number);
        }
        let message =
            format!("{key} = {number} is not allowed: {} to {}", range.start(), range.end());
        Err(self.wrong(value.span().start, message))
    }

    /// Like [`Self::number`], for ranges that fit 32 bits.
    pub fn small(
        &self,
        key: &str,
        value: &Spanned<u64>,
        default: u32,
        range: RangeInclusive<u32>,
    ) -> Result<u32, InvalidPolicyText> {
        let (min, max) = range.into_inner();
        let number = self.number(key, value, default.into(), min.into()..=max.into())?;
        Ok(u32::try_from(number).expect("within a range of 32 bits"))
    }

    /// The meaning of one of `words`, or the default if the key is missing.
    pub fn word<T: Copy>(
        &self,
        key: &str,
        value: &Spanned<String>,
        default: T,
        words: &[(&str, T)],
    ) -> Result<T, InvalidPolicyText> {
        let Some(value) = value else { return Ok(default) };
        let given = value.get_ref();
        if let Some((_, meaning)) = words.iter().find(|(word, _)| word == given) {
            return Ok(*meaning);
        }
        let allowed: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let message = format!("{key} = {given:?} is not allowed: {}", allowed.join(", "));
        Err(self.wrong(value.span().start, message))
    }
}

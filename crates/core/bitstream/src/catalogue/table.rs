//! One table of a file: checks of its values, and errors that say where a value stands.

use std::collections::BTreeSet;
use std::fmt::Display;

use snic_domain::limits::{DAG_BANDWIDTH_MAX, PAGE_ROWS, PAGE_SIZE};
use snic_domain::{Bandwidth, ByteSize};
use toml::Spanned;

use super::{CatalogueProblem, File, InvalidCatalogue};

/// Memory that the page table can address: 8,192 pages of 2 MB.
const MEMORY_MAX: u64 = PAGE_ROWS as u64 * PAGE_SIZE.get();

pub(super) type Checked<T> = Result<T, InvalidCatalogue>;

/// One table of a file: where its keys stand, for messages.
#[derive(Clone, Copy)]
pub(super) struct TableContext<'a> {
    pub(super) file: &'a File<'a>,
    /// Text before the key: `chains[3].`, or nothing.
    pub(super) prefix: &'a str,
}

impl TableContext<'_> {
    pub(super) fn error<T>(
        &self,
        key: &str,
        value: &Spanned<T>,
        problem: CatalogueProblem,
    ) -> InvalidCatalogue {
        self.file.error(value.span(), format!("{}{key}", self.prefix), problem)
    }

    pub(super) fn ensure<T: Display>(
        &self,
        key: &str,
        value: &Spanned<T>,
        is_allowed: bool,
        allowed: impl Display,
    ) -> Checked<()> {
        if is_allowed {
            return Ok(());
        }
        let (value_text, allowed) = (value.get_ref().to_string(), allowed.to_string());
        Err(self.error(key, value, CatalogueProblem::Range { value: value_text, allowed }))
    }

    pub(super) fn positive<T: Display + PartialEq + Default>(
        &self,
        key: &str,
        value: &Spanned<T>,
    ) -> Checked<()> {
        self.ensure(key, value, *value.get_ref() != T::default(), "give more than 0")
    }

    pub(super) fn bandwidth(&self, key: &str, value: &Spanned<u64>) -> Checked<Bandwidth> {
        let bandwidth = Bandwidth::from_bps(*value.get_ref());
        let is_allowed =
            bandwidth > Bandwidth::ZERO && bandwidth <= DAG_BANDWIDTH_MAX && bandwidth.is_whole();
        let allowed = format_args!("1000 to {} bit/s in whole kbit/s are", DAG_BANDWIDTH_MAX.get());
        self.ensure(key, value, is_allowed, allowed)?;
        Ok(bandwidth)
    }

    pub(super) fn memory(&self, key: &str, value: &Spanned<u64>) -> Checked<ByteSize> {
        let bytes = *value.get_ref();
        let allowed = format_args!("at most {MEMORY_MAX} bytes, what the page table can address");
        self.ensure(key, value, bytes <= MEMORY_MAX, allowed)?;
        Ok(ByteSize::from_bytes(bytes))
    }

    pub(super) fn unique<T: Ord + Clone + Display>(
        &self,
        key: &str,
        seen: &mut BTreeSet<T>,
        id: &Spanned<T>,
    ) -> Checked<()> {
        if seen.insert(id.get_ref().clone()) {
            return Ok(());
        }
        Err(self.error(key, id, CatalogueProblem::Duplicate { id: id.get_ref().to_string() }))
    }
}

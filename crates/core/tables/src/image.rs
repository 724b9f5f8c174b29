//! A whole bank as a value, and the difference between two.

use crate::layout::{BANK_WORDS, RowKey, Table};
use crate::rows::{InvalidRow, RowCodec};

/// The words of a bank. About 460 KB.
#[derive(Clone, PartialEq, Eq)]
pub struct TableImage {
    words: Box<[u32]>,
}

/// Rows to write, each with all its words; in the order of the bank. Empty rows are all zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableDelta {
    rows: Vec<RowKey>,
    words: Vec<u32>,
}

impl Default for TableImage {
    fn default() -> Self {
        Self { words: vec![0; BANK_WORDS].into() }
    }
}

impl std::fmt::Debug for TableImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = |table: &Table| (*table, self.rows_used(*table));
        f.debug_map().entries(Table::ALL.iter().map(used)).finish()
    }
}

impl TableImage {
    /// From the words of a bank; `None` where the length is wrong.
    pub fn from_words(words: Vec<u32>) -> Option<Self> {
        (words.len() == BANK_WORDS).then(|| Self { words: words.into() })
    }

    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The words of one row; empty where the table has no such row.
    pub fn row(&self, key: RowKey) -> &[u32] {
        key.offset().map_or(&[], |at| &self.words[at..at + key.table.row_words()])
    }

    /// The columns of one row; `None` where it is empty or not there.
    pub fn get<R: RowCodec>(&self, row: u16) -> Option<R> {
        let words = self.row(RowKey { table: R::TABLE, row });
        if words.is_empty() { None } else { R::decode(words) }
    }

    /// Writes one row; says which. Fails where the table has no such row.
    ///
    /// # Errors
    ///
    /// [`InvalidRow`] where the table has no such row.
    pub fn set<R: RowCodec>(&mut self, row: u16, columns: &R) -> Result<RowKey, InvalidRow> {
        let key = RowKey { table: R::TABLE, row };
        let words = self.clear_row(key)?;
        columns.encode(words);
        Ok(key)
    }

    /// Empties one row.
    ///
    /// # Errors
    ///
    /// [`InvalidRow`] where the table has no such row.
    pub fn clear(&mut self, key: RowKey) -> Result<(), InvalidRow> {
        self.clear_row(key).map(|_| ())
    }

    fn clear_row(&mut self, key: RowKey) -> Result<&mut [u32], InvalidRow> {
        let reason = "the table has no such row";
        let at = key.offset().ok_or(InvalidRow { table: key.table, row: key.row, reason })?;
        let words = &mut self.words[at..at + key.table.row_words()];
        words.fill(0);
        Ok(words)
    }

    /// Number of rows of `table` that are not empty.
    pub fn rows_used(&self, table: Table) -> usize {
        let all = &self.words[table.offset()..][..table.rows() * table.row_words()];
        all.chunks_exact(table.row_words()).filter(|row| row[0] != 0).count()
    }

    /// The rows to write to a bank that holds `self` so that it holds `target`.
    /// Compares every row: O(bank).
    pub fn delta_to(&self, target: &Self) -> TableDelta {
        let mut delta = TableDelta::default();
        for table in Table::ALL {
            let range = table.offset()..table.offset() + table.rows() * table.row_words();
            if self.words[range.clone()] == target.words[range] {
                continue;
            }
            for row in 0..table.rows() as u16 {
                delta.push_difference(self, target, RowKey { table, row });
            }
        }
        delta
    }

    /// The same where only `rows` can differ, named in any order and as often as they were touched:
    /// O(n log n) in their number. Rows that their table does not have never differ.
    pub fn delta_of_rows(
        &self,
        target: &Self,
        rows: impl IntoIterator<Item = RowKey>,
    ) -> TableDelta {
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_unstable();
        rows.dedup();
        let mut delta = TableDelta::default();
        for key in rows {
            delta.push_difference(self, target, key);
        }
        delta
    }

    /// Writes the rows of a delta.
    ///
    /// # Errors
    ///
    /// [`InvalidRow`] for the first row that its table does not have; the rows before it are
    /// written.
    pub fn apply(&mut self, delta: &TableDelta) -> Result<(), InvalidRow> {
        for (key, words) in delta.rows() {
            self.clear_row(key)?.copy_from_slice(words);
        }
        Ok(())
    }
}

impl TableDelta {
    fn push_difference(&mut self, from: &TableImage, to: &TableImage, key: RowKey) {
        let words = to.row(key);
        if from.row(key) != words {
            self.rows.push(key);
            self.words.extend_from_slice(words);
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of rows to write.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Number of words to write.
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// The rows with their words.
    pub fn rows(&self) -> impl Iterator<Item = (RowKey, &[u32])> {
        let mut at = 0;
        self.rows.iter().map(move |&key| {
            let words = &self.words[at..at + key.table.row_words()];
            at += words.len();
            (key, words)
        })
    }
}

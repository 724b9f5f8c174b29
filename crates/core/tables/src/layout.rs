//! Where the tables lie in a bank.
//!
//! A bank is one array of 32-bit words: table after table, row after row. Rows have a power of two
//! of words, so that hardware finds a row by shifting. A row whose first word is zero is empty, in
//! every table; a card after reset is all empty.

use snic_domain::limits;

/// A table of the card. The order is the order in a bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Classifier: the DAG that a packet without a descriptor belongs to.
    Classifier,
    /// DAGs by the row in their UID.
    Dag,
    /// Stages of DAGs.
    Stage,
    Chain,
    /// Instances of virtual chains.
    Instance,
    Region,
    /// Initial credits of each slot of each region.
    Credit,
    /// Token buckets, by the row of the DAG.
    RateLimiter,
    /// Pages of on-board memory.
    Page,
    /// Ports of virtual functions, by the function's number.
    Guard,
}

/// Widest row, in words.
pub const ROW_WORDS_MAX: usize = 16;

/// Words of a bank.
pub const BANK_WORDS: usize = offset(Table::Guard) + words(Table::Guard);

const fn words(table: Table) -> usize {
    table.rows() * table.row_words()
}

const fn offset(table: Table) -> usize {
    let mut i = 0;
    let mut sum = 0;
    while i < table as usize {
        sum += words(Table::ALL[i]);
        i += 1;
    }
    sum
}

impl Table {
    /// All tables, in the order in a bank.
    pub const ALL: [Self; 10] = [
        Self::Classifier,
        Self::Dag,
        Self::Stage,
        Self::Chain,
        Self::Instance,
        Self::Region,
        Self::Credit,
        Self::RateLimiter,
        Self::Page,
        Self::Guard,
    ];

    /// Number of rows.
    pub const fn rows(self) -> usize {
        match self {
            Self::Classifier => limits::CLASSIFIER_ROWS,
            Self::Dag | Self::RateLimiter => limits::DAG_ROWS,
            Self::Stage => limits::STAGE_ROWS,
            Self::Chain => limits::CHAIN_ROWS,
            Self::Instance => limits::INSTANCE_ROWS,
            Self::Region | Self::Credit => limits::REGIONS_MAX,
            Self::Page => limits::PAGE_ROWS,
            Self::Guard => limits::FUNCTION_ROWS,
        }
    }

    /// Number of words of a row.
    pub const fn row_words(self) -> usize {
        match self {
            Self::Classifier | Self::Region | Self::Guard => 16,
            Self::Dag | Self::Stage => 8,
            Self::Chain | Self::Instance | Self::RateLimiter | Self::Page => 4,
            Self::Credit => 2,
        }
    }

    /// Words of a row that have a column, a bit for each, the lowest for word 0. A card need not keep the others, which
    /// then read as zero.
    pub const fn kept_words(self) -> u16 {
        match self {
            Self::Classifier => 0x07ff,
            Self::Dag => 0x003f,
            Self::Stage | Self::RateLimiter => 0x000f,
            Self::Chain | Self::Instance | Self::Credit => 0x0003,
            Self::Region => 0x0ff3,
            Self::Page => 0x0007,
            Self::Guard => 0xffff,
        }
    }

    /// Where its first row begins in a bank, in words.
    pub const fn offset(self) -> usize {
        offset(self)
    }
}

/// One row of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    pub table: Table,
    /// Number of the row; under [`Table::rows`].
    pub row: u16,
}

impl RowKey {
    /// Where the row begins in a bank, in words; `None` where the table has no such row.
    pub const fn offset(self) -> Option<usize> {
        if (self.row as usize) < self.table.rows() {
            Some(self.table.offset() + self.row as usize * self.table.row_words())
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_follow_each_other_without_gap_or_overlap() {
        let mut next = 0;
        for table in Table::ALL {
            assert_eq!(table.offset(), next, "{table:?}");
            assert!(table.row_words().is_power_of_two() && table.row_words() <= ROW_WORDS_MAX);
            let last = RowKey { table, row: u16::try_from(table.rows() - 1).expect("fits") };
            next = last.offset().expect("the last row") + table.row_words();
            let behind = RowKey { table, row: u16::try_from(table.rows()).expect("fits") };
            assert_eq!(behind.offset(), None);
        }
        assert_eq!(next, BANK_WORDS);
    }
}

//! The rows of a bank with their columns unpacked, as the data plane's pipeline registers have
//! them: each row is decoded once, when a commit makes it visible, and not for every packet.

use std::collections::BTreeSet;

use snic_tables::{
    ChainRow, ClassifierRow, CreditRow, DagRow, InstanceRow, PageRow, RateLimiterRow, RegionRow,
    RowCodec, RowKey, StageRow, Table,
};

/// A bank's rows that the data plane reads, by row.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The classifier, the row that wins first.
    pub(crate) classifier: Vec<ClassifierRow>,
    pub(crate) dags: Vec<Option<DagRow>>,
    pub(crate) stages: Vec<Option<StageRow>>,
    pub(crate) chains: Vec<Option<ChainRow>>,
    pub(crate) instances: Vec<Option<InstanceRow>>,
    pub(crate) regions: Vec<Option<RegionRow>>,
    pub(crate) credits: Vec<Option<CreditRow>>,
    pub(crate) limiters: Vec<Option<RateLimiterRow>>,
    /// The page table: rows, and where a page of a tenant's NT is among them.
    page_rows: Vec<Option<PageRow>>,
    page_index: BTreeSet<(PageKey, u16)>,
}

/// A page as NTs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageKey {
    pub(crate) tenant: u16,
    pub(crate) nt: u32,
    pub(crate) virtual_page: u16,
}

impl Default for Decoded {
    fn default() -> Self {
        Self {
            classifier: Vec::new(),
            dags: vec![None; Table::Dag.rows()],
            stages: vec![None; Table::Stage.rows()],
            chains: vec![None; Table::Chain.rows()],
            instances: vec![None; Table::Instance.rows()],
            regions: vec![None; Table::Region.rows()],
            credits: vec![None; Table::Credit.rows()],
            limiters: vec![None; Table::RateLimiter.rows()],
            page_rows: vec![None; Table::Page.rows()],
            page_index: BTreeSet::new(),
        }
    }
}

impl Decoded {
    /// Decodes `rows` of a bank again.
    pub(crate) fn refresh(&mut self, bank: &[u32], rows: &[RowKey]) {
        for &key in rows {
            let row = usize::from(key.row);
            match key.table {
                Table::Dag => self.dags[row] = decode(bank, key),
                Table::Stage => self.stages[row] = decode(bank, key),
                Table::Chain => self.chains[row] = decode(bank, key),
                Table::Instance => self.instances[row] = decode(bank, key),
                Table::Region => self.regions[row] = decode(bank, key),
                Table::Credit => self.credits[row] = decode(bank, key),
                Table::RateLimiter => self.limiters[row] = decode(bank, key),
                Table::Page => self.set_page(key.row, decode(bank, key)),
                // Ports are outside of the data plane: see [`crate::Frames::guarded`].
                Table::Classifier | Table::Guard => {}
            }
        }
        if rows.iter().any(|key| key.table == Table::Classifier) {
            self.sort_classifier(bank);
        }
    }

    fn set_page(&mut self, row: u16, page: Option<PageRow>) {
        let key = |page: PageRow| {
            let PageRow { tenant, nt, virtual_page, .. } = page;
            (PageKey { tenant, nt, virtual_page }, row)
        };
        if let Some(before) = std::mem::replace(&mut self.page_rows[usize::from(row)], page) {
            self.page_index.remove(&key(before));
        }
        self.page_index.extend(page.map(key));
    }

    /// The physical page and the rights of a page; of two rows for it the first counts.
    pub(crate) fn page(&self, key: PageKey) -> Option<(u16, u8)> {
        let (_, row) = self.page_index.range((key, 0)..=(key, u16::MAX)).next()?;
        let page = self.page_rows[usize::from(*row)]?;
        Some((page.physical_page, page.rwx))
    }

    fn sort_classifier(&mut self, bank: &[u32]) {
        let rows = 0..Table::Classifier.rows() as u16;
        let keys = rows.map(|row| RowKey { table: Table::Classifier, row });
        self.classifier = keys.filter_map(|key| decode(bank, key)).collect();
        // Stable: ties stay in the order of their rows.
        self.classifier.sort_by_key(|row| row.priority);
    }
}

pub(crate) fn decode<R: RowCodec>(bank: &[u32], key: RowKey) -> Option<R> {
    let at = key.offset()?;
    R::decode(&bank[at..at + key.table.row_words()])
}

/// The row of a bank's word, with its key.
pub(crate) fn row_of_word(word: usize) -> Option<RowKey> {
    Table::ALL.into_iter().find_map(|table| {
        let row = word.checked_sub(table.offset())? / table.row_words();
        (row < table.rows()).then_some(RowKey { table, row: row as u16 })
    })
}

#[cfg(test)]
mod tests {
    use snic_tables::{BANK_WORDS, TableImage};

    use super::*;

    #[test]
    fn every_word_of_a_bank_is_of_the_row_that_covers_it() {
        for word in 0..BANK_WORDS {
            let key = row_of_word(word).expect("a bank has no gaps");
            let at = key.offset().expect("the table has the row");
            assert!((at..at + key.table.row_words()).contains(&word), "{word}: {key:?}");
        }
        assert_eq!(row_of_word(BANK_WORDS), None);
    }

    #[test]
    fn the_classifier_is_sorted_by_priority_and_then_by_row() {
        let mut image = TableImage::default();
        let mut keys = Vec::new();
        for (row, priority) in [(9, 5), (3, 7), (7, 5)] {
            let columns = ClassifierRow {
                dag_uid: u32::from(row),
                priority,
                virtual_function: Some(1),
                vni: None,
                source: (0, 0),
                destination: (0, 0),
                protocol: None,
                source_port: None,
                destination_port: None,
                vlan: None,
            };
            keys.push(image.set(row, &columns).expect("the table has the row"));
        }
        let mut decoded = Decoded::default();
        decoded.refresh(image.words(), &keys);
        let order: Vec<_> = decoded.classifier.iter().map(|row| row.dag_uid).collect();
        assert_eq!(order, [7, 9, 3]);
    }
}

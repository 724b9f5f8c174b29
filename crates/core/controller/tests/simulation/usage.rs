//! A second book of usage: packets as the card model counts them, by the DAG whose source sent them. The bill of a DAG is never more than
//! that, and no less where it has no gap.

use std::collections::BTreeMap;

use snic_controller::{Controller, UsageAccount};
use snic_domain::DagUid;
use snic_tables::DagCounters;

/// Packets and bytes that came out.
type Served = (u64, u64);

/// Amounts by the numbers of their meters.
pub type Bill = BTreeMap<u64, u64>;

/// Charges of an account in intervals that are closed.
pub fn bill(account: &UsageAccount, durable: &BTreeMap<String, Vec<u8>>) -> Bill {
    let prefix = format!("usage/{}/f/", account.key);
    let full = durable.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
    let mut bill = Bill::new();
    let mut add = |page: &serde_json::Value| {
        let numbers = page.as_array().expect("a list").iter();
        let mut numbers = numbers.map(|number| number.as_u64().expect("a number"));
        while let (Some(_), Some(_), Some(meters)) =
            (numbers.next(), numbers.next(), numbers.next())
        {
            for meter in (0..64).filter(|meter| meters >> meter & 1 == 1) {
                *bill.entry(meter).or_default() += numbers.next().expect("an amount");
            }
        }
    };
    full.for_each(|(_, page)| add(&serde_json::from_slice(page).expect("JSON")));
    add(&serde_json::to_value(&account.open[0].1).expect("JSON"));
    bill
}

#[derive(Debug, Default)]
pub struct UsageBook {
    /// DAG that sent last in a row.
    senders: BTreeMap<u16, DagUid>,
    /// Measured counters of a row.
    before: BTreeMap<u16, Served>,
    served: BTreeMap<DagUid, Served>,
    /// Records that gave a region something to hold.
    loads: u64,
}

impl UsageBook {
    /// A DAG sends in its row from now on.
    pub fn sends(&mut self, uid: DagUid) {
        self.senders.insert(uid.row(), uid);
    }

    /// A record becomes durable in place of another.
    pub fn stored(&mut self, key: &str, value: &[u8], before: Option<&Vec<u8>>) {
        if !key.starts_with("regions/") {
            return;
        }
        let content = |value: &[u8]| {
            let record: serde_json::Value = serde_json::from_slice(value).expect("JSON");
            record["bitstream"].as_str().map(str::to_owned)
        };
        let now = content(value);
        let is_other = now != before.and_then(|before| content(before));
        self.loads += u64::from(now.is_some() && is_other);
    }

    /// The card has measured this since it was last asked to begin again.
    pub fn measured(&mut self, rows: impl Iterator<Item = (u16, DagCounters)>) {
        let mut now = BTreeMap::new();
        for (row, counters) in rows {
            let after = (counters.packets_out, counters.bytes_served);
            let before = self.before.get(&row).copied().unwrap_or_default();
            let has_begun_again = after.0 < before.0 || after.1 < before.1;
            let before = if has_begun_again { (0, 0) } else { before };
            if let Some(uid) = self.senders.get(&row) {
                let sum = self.served.entry(*uid).or_default();
                *sum = (sum.0 + after.0 - before.0, sum.1 + after.1 - before.1);
            }
            now.insert(row, after);
        }
        self.before = now;
    }

    /// Compares the bills of all DAGs in intervals that are closed; returns the number of those without a gap.
    pub fn check(&self, controller: &Controller, durable: &BTreeMap<String, Vec<u8>>) -> u64 {
        let (mut compared, mut loads) = (0, 0);
        for account in controller.usage(None).accounts {
            let bill = bill(&account, durable);
            loads += bill.get(&42).copied().unwrap_or(0);
            let snic_usage::AccountPart::Dag(uid) = account.key.part else { continue };
            let of = |meter| bill.get(&meter).copied().unwrap_or(0);
            let billed = (of(6), of(4));
            let served = self.served.get(&uid).copied().unwrap_or_default();
            assert!(
                billed.0 <= served.0 && billed.1 <= served.1,
                "{uid}: {billed:?} of {served:?}"
            );
            // A gap but for readings that were late.
            if bill.keys().all(|meter| !(33..38).contains(meter)) {
                assert_eq!(billed, served, "{uid} has no gap: {bill:?}");
                compared += u64::from(served.0 > 0);
            }
        }
        let most = self.loads;
        assert!(loads <= most, "{loads} loads are billed, and regions were given {most} contents");
        compared
    }
}

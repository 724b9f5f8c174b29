//! A second book of usage: packets as the card model counts them, by the DAG whose source sent them. The bill of a DAG is never more than
//! that, and no less where it has no gap.

use std::collections::BTreeMap;

use snic_controller::{Controller, UsageAccount};
use snic_domain::{DagUid, TenantId, Timestamp};
use snic_tables::DagCounters;

use crate::callers::operator;

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
    /// Calls that the controller was told of: all, and those since the last crash.
    calls: BTreeMap<TenantId, [u64; 2]>,
    /// Bytes of bitstreams × milliseconds, and the most bytes at once.
    stored: BTreeMap<TenantId, [u128; 2]>,
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

    /// The controller is told of calls.
    pub fn calls(&mut self, tenant: TenantId, calls: u64) {
        let of = self.calls.entry(tenant).or_default();
        *of = of.map(|sum| sum + calls);
    }

    /// The daemon died, and runs again.
    pub fn crashed(&mut self) {
        self.calls.values_mut().for_each(|of| of[1] = 0);
    }

    /// Time passes in which bitstreams are as they are.
    pub fn passes(&mut self, controller: &Controller, from: Timestamp, to: Timestamp) {
        let millis = |at: Timestamp| at.as_nanos() / 1_000_000;
        let time = millis(to) - millis(from);
        if time == 0 {
            return;
        }
        let mut bytes: BTreeMap<TenantId, u128> = BTreeMap::new();
        for view in controller.bitstreams(&operator()) {
            if let Some(owner) = view.bitstream.id.owner() {
                let of = view.bitstream.images.iter().map(|image| u128::from(image.size.get()));
                *bytes.entry(owner).or_default() += of.sum::<u128>();
            }
        }
        for (tenant, bytes) in bytes {
            let [sum, most] = self.stored.entry(tenant).or_default();
            *sum += bytes * u128::from(time);
            *most = bytes.max(*most);
        }
    }

    /// Compares what tenants are charged for without a card, when all is durable; returns the number of those that stored something.
    fn check_tenant(&self, (tenant, bill): (&TenantId, &Bill), since_close: u64) -> u64 {
        let of = |meter| bill.get(&meter).copied().unwrap_or(0);
        let [told, since_crash] = self.calls.get(tenant).copied().unwrap_or_default();
        let billed = of(46);
        assert!(billed <= told && billed >= since_crash, "{tenant}: {billed} calls of {told}");
        let [sum, most] = self.stored.get(tenant).copied().unwrap_or_default();
        let billed = u128::from(of(47)) * 1_000;
        // What is not charged is of an open interval, or of a gap.
        let open = most * u128::from(of(38) + since_close) + 1_000;
        assert!(billed <= sum && billed + open >= sum, "{tenant}: {billed} of {sum}, {bill:?}");
        u64::from(billed > 0)
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

    /// Compares the bills of all DAGs in intervals that are closed; returns the number of those without a gap, and of tenants that stored
    /// something.
    pub fn check(
        &self,
        (controller, now): (&Controller, Timestamp),
        durable: &BTreeMap<String, Vec<u8>>,
    ) -> [u64; 2] {
        let (mut compared, mut stored, mut loads) = (0, 0, 0);
        let view = controller.usage(None);
        let since_close = (now.as_nanos() / 1_000_000).saturating_sub(view.closed * 1_000);
        for account in view.accounts {
            let bill = bill(&account, durable);
            loads += bill.get(&42).copied().unwrap_or(0);
            if let snic_usage::AccountPart::Tenant(tenant, _) = &account.key.part {
                stored += self.check_tenant((tenant, &bill), since_close);
            }
            let snic_usage::AccountPart::Dag(uid) = account.key.part else { continue };
            let of = |meter| bill.get(&meter).copied().unwrap_or(0);
            let billed = (of(6), of(4));
            let served = self.served.get(&uid).copied().unwrap_or_default();
            assert!(
                billed.0 <= served.0 && billed.1 <= served.1,
                "{uid}: {billed:?} of {served:?}"
            );
            // A gap but for readings that were late.
            if bill.keys().all(|meter| !(33..39).contains(meter)) {
                assert_eq!(billed, served, "{uid} has no gap: {bill:?}");
                compared += u64::from(served.0 > 0);
            }
        }
        let most = self.loads;
        assert!(loads <= most, "{loads} loads are billed, and regions were given {most} contents");
        [compared, stored]
    }
}

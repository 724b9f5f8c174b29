//! Money that tenants with a budget have spent in a calendar month (UTC): each closed interval × the prices that are in force when it
//! begins, which is what an export charges for it.
//!
//! Intervals of days that are over are in the store, and no event reads them back. So each account keeps the sum of those of this month
//! ([`MonthUsage`](crate::MonthUsage)), by version of the prices, in a record that is written once a day. With the pages that are being filled it is the
//! month up to the last close: what was spent is computed whenever somebody gets a budget or prices change, and goes on with each close.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use snic_domain::TenantId;

use crate::account::Account;
use crate::calendar::month;
use crate::decimal::Money;
use crate::meter::UsageAmounts;
use crate::pages::IntervalLevel;
use crate::prices::Prices;

/// Money that one tenant has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MonthSpending {
    /// Second in which the tenant was created: accounts of an earlier one of its name are not its own.
    born: u64,
    /// Second that the month begins with.
    month: u64,
    spent: Money,
}

/// Money that tenants with a budget have spent this month.
#[derive(Debug, Default)]
pub(crate) struct Spending {
    prices: Option<Arc<Prices>>,
    tenants: BTreeMap<TenantId, MonthSpending>,
    /// The month that the next interval begins in: its first second, and that of the next month.
    month: (u64, u64),
    /// Tenants that have spent something since they were taken.
    changed: BTreeSet<TenantId>,
}

impl Spending {
    /// Intervals are closed up to this second. Months follow these, which never go back, so one that is over does not come again.
    pub fn closed(&mut self, second: u64) {
        let (from, to) = self.month;
        if (from..to).contains(&second) {
            return;
        }
        self.month = month(second);
        self.change_all();
    }

    pub const fn month(&self) -> (u64, u64) {
        self.month
    }

    /// Whether nobody has a budget.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub fn prices(&self) -> Option<&Arc<Prices>> {
        self.prices.as_ref()
    }

    pub fn set_prices(&mut self, prices: Option<Arc<Prices>>) {
        self.prices = prices;
    }

    /// Tenants that are tracked, each with the second in which it was created.
    pub fn tracked(&self) -> Vec<(TenantId, u64)> {
        self.tenants.iter().map(|(tenant, of)| (tenant.clone(), of.born)).collect()
    }

    /// Second in which a tenant was created, if it is tracked.
    pub fn born(&self, tenant: &TenantId) -> Option<u64> {
        Some(self.tenants.get(tenant)?.born)
    }

    /// A tenant has spent what these accounts have used this month.
    pub fn track<'a>(
        &mut self,
        tenant: &TenantId,
        born: u64,
        accounts: impl Iterator<Item = &'a Account>,
    ) {
        let month = self.month.0;
        let mut spent = Money::default();
        let versions = self.prices.as_ref().map_or(&[][..], |prices| prices.versions());
        // Prices are products, so what has the same prices is added up before it is multiplied.
        let mut sums = vec![UsageAmounts::ZERO; versions.len()];
        let version = |start: u64| versions.iter().rposition(|version| version.from() <= start);
        for account in accounts.filter(|account| account.begun() >= born) {
            for (start, amounts) in account.month().map_or(&[][..], |of| of.parts_of(month)) {
                if let Some(version) = version(*start) {
                    sums[version].add_all(amounts);
                }
            }
            for level in IntervalLevel::ALL {
                // A page is of one day, and is full when its month is over.
                account.page(level).add_to(&mut sums, version);
            }
            for (version, sum) in versions.iter().zip(&mut sums) {
                spent += version.cost(&std::mem::take(sum), account.nts());
            }
        }
        self.tenants.insert(tenant.clone(), MonthSpending { born, month, spent });
        self.changed.insert(tenant.clone());
    }

    pub fn forget(&mut self, tenant: &TenantId) {
        if self.tenants.remove(tenant).is_some() {
            self.changed.insert(tenant.clone());
        }
    }

    /// The open interval of an account is about to be closed; it began with this second.
    pub fn charge(&mut self, account: &Account, start: u64) {
        let Some(before) = self.tenants.get(account.tenant()).copied() else { return };
        // Not `Account::is_since`: whether the account has ended must not change what was counted.
        if account.begun() < before.born {
            return;
        }
        let mut now = before;
        if now.month != self.month.0 {
            (now.month, now.spent) = (self.month.0, Money::default());
        }
        now.spent += self.cost(start, account, account.open());
        if now != before {
            self.tenants.insert(account.tenant().clone(), now);
            self.changed.insert(account.tenant().clone());
        }
    }

    /// Cost of amounts that were added in an interval that begins with this second; nothing before the first version of the prices.
    fn cost(&self, start: u64, account: &Account, amounts: &UsageAmounts) -> Money {
        let version = self.prices.as_ref().and_then(|prices| prices.at(start).ok());
        version.map_or_else(Money::default, |version| version.cost(amounts, account.nts()))
    }

    /// Money that a tenant has spent this month; `None` of one that is not tracked, and without prices.
    pub fn spent(&self, tenant: &TenantId) -> Option<Money> {
        let of = self.tenants.get(tenant).filter(|_| self.prices.is_some())?;
        Some(if of.month == self.month.0 { of.spent } else { Money::default() })
    }

    pub fn take_changed(&mut self) -> BTreeSet<TenantId> {
        std::mem::take(&mut self.changed)
    }

    /// Has a tenant be looked at.
    pub fn change(&mut self, tenant: &TenantId) {
        self.changed.insert(tenant.clone());
    }

    /// Has all tenants be looked at.
    pub fn change_all(&mut self) {
        self.changed.extend(self.tenants.keys().cloned());
    }
}

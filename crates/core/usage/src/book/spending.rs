//! Money that tenants with a budget have spent this month, and what accounts remember of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use snic_domain::TenantId;

use super::Book;
use crate::calendar::month;
use crate::decimal::Money;
use crate::prices::Prices;

impl Book {
    /// Has these prices be those of all that is computed from now on. Time O(accounts of tenants with a budget).
    pub fn set_prices(&mut self, prices: Option<Arc<Prices>>) {
        self.spending.set_prices(prices);
        for (tenant, born) in self.spending.tracked() {
            self.track_spending(&tenant, Some(born));
        }
    }

    /// The prices that it computes with.
    pub fn prices(&self) -> Option<&Arc<Prices>> {
        self.spending.prices()
    }

    /// Follows the spending of a tenant that was created in this second; with `None` it is followed no more. Time O(its accounts).
    pub fn track_spending(&mut self, tenant: &TenantId, born: Option<u64>) {
        let Some(born) = born else { return self.spending.forget(tenant) };
        let own = self.tenants.get(tenant).into_iter().flatten();
        let accounts = own.filter_map(|key| self.accounts.get(key));
        self.spending.track(tenant, born, accounts);
    }

    /// Second in which a tenant was created, if its spending is followed.
    pub fn tracks_spending(&self, tenant: &TenantId) -> Option<u64> {
        self.spending.born(tenant)
    }

    /// Money that a tenant has spent this month, up to the last close; `None` of one that is not followed, and without prices. Time O(log
    /// tenants with a budget).
    pub fn spent(&self, tenant: &TenantId) -> Option<Money> {
        self.spending.spent(tenant)
    }

    /// The month that the next interval begins in: its first second, and that of the next month.
    pub const fn month(&self) -> (u64, u64) {
        self.spending.month()
    }

    /// Takes the tenants of which what they have spent may be different: they spent something, or the month is another one.
    pub fn take_spenders(&mut self) -> BTreeSet<TenantId> {
        self.spending.take_changed()
    }

    /// Has a tenant be among [`Self::take_spenders`].
    pub fn note_spender(&mut self, tenant: &TenantId) {
        self.spending.change(tenant);
    }

    /// Has all tenants with a budget be among [`Self::take_spenders`].
    pub fn note_all_spenders(&mut self) {
        self.spending.change_all();
    }

    /// Computes once more what was spent.
    ///
    /// # Errors
    /// It is something else: whose.
    pub(super) fn check_spending(&self) -> Result<(), String> {
        if self.closed.is_some_and(|second| month(second) != self.spending.month()) {
            return Err(format!("the month of {:?} is {:?}", self.closed, self.spending.month()));
        }
        for (tenant, born) in self.spending.tracked() {
            let mut again = crate::spending::Spending::default();
            again.set_prices(self.spending.prices().cloned());
            again.closed(self.closed.unwrap_or_default());
            let own = self.accounts.values().filter(|account| *account.tenant() == tenant);
            again.track(&tenant, born, own);
            let (spent, sum) = (self.spent(&tenant), again.spent(&tenant));
            if spent != sum {
                return Err(format!("{tenant} has spent {sum:?}, and {spent:?} is noted"));
            }
        }
        Ok(())
    }
}

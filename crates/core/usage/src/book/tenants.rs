//! Usage of tenants themselves, without a card: bytes of bitstreams that are stored, by the host's clock, and calls of the API.
//!
//! A tenant has an account once it has either. It is that of the tenant that was created in one second: another tenant that gets the name
//! later has an account of its own. Time is charged from one change to the next, in milliseconds, and with each close. Between the last
//! record of a daemon that died and its next start nobody counted: that is a gap, and not charged.

use snic_domain::{TenantId, Timestamp};

use super::{Book, second};
use crate::account::Account;
use crate::key::{AccountKey, AccountPart};

/// Account of a tenant that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TenantAccount {
    pub key: AccountKey,
    /// Bytes of its bitstreams.
    pub bytes: u64,
}

const fn millis(now: Timestamp) -> u64 {
    now.as_nanos() / 1_000_000
}

impl Book {
    /// The daemon runs again: nobody counted since it last stored something. Time O(tenants with accounts).
    pub fn resume(&mut self, now: Timestamp) {
        let closed = self.closed.unwrap_or_default().saturating_mul(1_000);
        let keys: Vec<AccountKey> =
            self.tenant_accounts.values().map(|of| of.key.clone()).collect();
        for key in keys {
            let Some(account) = self.accounts.get_mut(&key) else { continue };
            let since = account.promised_ms().unwrap_or_default().max(closed);
            account.add_silence(millis(now).saturating_sub(since));
            account.set_promised_ms(Some(millis(now)));
            self.opened.insert(key.clone());
            self.dirty.insert(key);
        }
    }

    /// A tenant that was created in this second stores so many bytes of bitstreams from now on.
    pub fn set_stored(&mut self, now: Timestamp, (tenant, born): (&TenantId, u64), bytes: u64) {
        if self.stored(tenant) == bytes && (bytes == 0 || self.is_of(tenant, born)) {
            return;
        }
        let key = self.open_tenant(now, tenant, born);
        self.charge_stored(millis(now), tenant);
        if let Some(of) = self.tenant_accounts.get_mut(tenant) {
            of.bytes = bytes;
        }
        self.dirty.insert(key);
    }

    /// Calls of a tenant that was created in this second were admitted. They are stored with the next close.
    pub fn count_calls(&mut self, now: Timestamp, (tenant, born): (&TenantId, u64), calls: u64) {
        if calls == 0 {
            return;
        }
        let key = self.open_tenant(now, tenant, born);
        if let Some(account) = self.accounts.get_mut(&key) {
            account.add_calls(calls);
            self.opened.insert(key);
        }
    }

    /// Has what tenants have used until now be stored at once: the daemon is about to stop. Time O(tenants with accounts).
    pub fn store_tenants(&mut self, now: Timestamp) {
        let tenants = self.tenants();
        for tenant in tenants {
            self.charge_stored(millis(now), &tenant);
            if let Some(TenantAccount { key, .. }) = self.tenant_accounts.get(&tenant) {
                self.dirty.insert(key.clone());
            }
        }
    }

    /// A tenant is gone: its account ends.
    pub fn end_tenant(&mut self, now: Timestamp, tenant: &TenantId) {
        self.charge_stored(millis(now), tenant);
        let Some(TenantAccount { key, .. }) = self.tenant_accounts.remove(tenant) else { return };
        if let Some(account) = self.accounts.get_mut(&key) {
            account.end(second(now));
            account.set_promised_ms(None);
            self.sweeps.follow(&key, account);
            self.count_ended(tenant, true, true);
            self.dirty.insert(key);
        }
    }

    /// Bytes of bitstreams that a tenant is charged for.
    pub fn stored(&self, tenant: &TenantId) -> u64 {
        self.tenant_accounts.get(tenant).map_or(0, |of| of.bytes)
    }

    /// Tenants that have accounts of their own and exist.
    pub fn tenants(&self) -> Vec<TenantId> {
        self.tenant_accounts.keys().cloned().collect()
    }

    fn is_of(&self, tenant: &TenantId, born: u64) -> bool {
        let part = AccountPart::Tenant(tenant.clone(), born);
        self.tenant_accounts.get(tenant).is_some_and(|of| of.key.part == part)
    }

    /// Opens the account of a tenant; one of an earlier tenant of its name ends.
    fn open_tenant(&mut self, now: Timestamp, tenant: &TenantId, born: u64) -> AccountKey {
        let key = AccountKey { card: None, part: AccountPart::Tenant(tenant.clone(), born) };
        if self.is_of(tenant, born) {
            return key;
        }
        self.end_tenant(now, tenant);
        let was_ended = self.accounts.get(&key).is_some_and(|account| account.ended().is_some());
        self.count_ended(tenant, was_ended, false);
        match self.accounts.get_mut(&key) {
            Some(account) => account.reopen(),
            None => {
                let (account, begun) =
                    (Account::new(tenant.clone(), None, second(now)), second(now));
                self.insert(key.clone(), account, Some(begun));
            }
        }
        if let Some(account) = self.accounts.get_mut(&key) {
            account.set_promised_ms(Some(millis(now)));
            self.sweeps.follow(&key, account);
        }
        self.dirty.insert(key.clone());
        self.tenant_accounts.insert(tenant.clone(), TenantAccount { key: key.clone(), bytes: 0 });
        key
    }

    /// Charges what a tenant stores up to a time.
    fn charge_stored(&mut self, now: u64, tenant: &TenantId) {
        let Some(TenantAccount { key, bytes }) = self.tenant_accounts.get(tenant) else { return };
        let Some(account) = self.accounts.get_mut(key) else { return };
        let since = account.promised_ms().unwrap_or(now);
        account.add_stored(*bytes, now.saturating_sub(since));
        account.set_promised_ms(Some(now.max(since)));
        if !account.open().is_zero() {
            self.opened.insert(key.clone());
        }
    }

    /// Charges what all tenants store up to now. Time O(tenants with accounts).
    pub(super) fn charge_all_stored(&mut self, now: Timestamp) {
        let storing = self.tenant_accounts.iter().filter(|(_, of)| of.bytes > 0);
        let storing: Vec<TenantId> = storing.map(|(tenant, _)| tenant.clone()).collect();
        for tenant in storing {
            self.charge_stored(millis(now), &tenant);
        }
    }

    /// Whether each tenant's account is noted that has not ended, and no other.
    ///
    /// # Errors
    /// One is missing, or one is noted that has ended.
    pub(super) fn check_tenants(&self) -> Result<(), String> {
        let is_open = |(key, account): &(&AccountKey, &Account)| {
            matches!(key.part, AccountPart::Tenant(..)) && account.ended().is_none()
        };
        let open = self.accounts.iter().filter(is_open);
        let open: Vec<&AccountKey> = open.map(|(key, _)| key).collect();
        let noted: Vec<&AccountKey> = self.tenant_accounts.values().map(|of| &of.key).collect();
        match open == noted {
            true => Ok(()),
            false => Err(format!("accounts of tenants are {open:?}, and {noted:?} are noted")),
        }
    }
}

//! Functions and bandwidth of this host's cards that the fleet keeps for tenants. They survive restarts, and each ends at
//! its time whether the fleet says so or not. One that has ended is remembered until the fleet names it no more, so that
//! an order that was sent before does not bring it back.

use std::collections::BTreeMap;

use snic_domain::{Bandwidth, CardId, KeptForTenant, KeptState, TenantId, Timestamp, VmId};

use crate::protocol::ControlError;
use crate::store::records::{KeptRecord, Record, RecordKey};
use crate::store::tx::Tx;

/// Most reservations of a host: all are in one record of the store.
pub(crate) const KEPT_MAX: usize = 1_000;

/// A machine that is to be bound, as reservations see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine<'a> {
    pub tenant: &'a TenantId,
    /// `None`: a DAG of the tenant, for no machine yet.
    pub vm: Option<&'a VmId>,
}

impl KeptRecord {
    fn is_live(&self, now: Timestamp) -> bool {
        now < self.ends
    }

    fn is_for(&self, machine: Machine<'_>) -> bool {
        self.of.tenant == *machine.tenant
            && (self.of.vm.is_none() || machine.vm.is_none() || self.of.vm.as_ref() == machine.vm)
    }

    const fn functions_left(&self) -> u32 {
        self.of.functions.saturating_sub(self.of.used)
    }
}

/// All reservations of the host, by their number at the fleet.
#[derive(Debug, Default)]
pub(crate) struct KeptFunctions(BTreeMap<u64, KeptRecord>);

impl KeptFunctions {
    /// As the store has it.
    pub fn restore(records: Vec<KeptRecord>) -> Self {
        Self(records.into_iter().map(|record| (record.of.number, record)).collect())
    }

    /// These and no others, as the fleet says.
    ///
    /// # Errors
    /// There are too many, and nothing has changed.
    pub fn set(&mut self, tx: &mut Tx, all: Vec<KeptForTenant>) -> Result<(), ControlError> {
        if all.len() > KEPT_MAX {
            let limit = KEPT_MAX as u64;
            let (what, hint) = ("reservations of a host".to_owned(), "delete some".to_owned());
            return Err(ControlError::Exhausted { what, limit, hint });
        }
        let now = tx.now();
        let kept = all.into_iter().map(|mut of| {
            let before = self.0.get(&of.number);
            of.used = of.used.max(before.map_or(0, |before| before.of.used));
            let same = before.filter(|before| before.of.revision >= of.revision);
            let ends = same.map_or(now + of.lasts, |same| same.ends);
            let of = same.map_or(of, |same| same.of.clone());
            (of.number, KeptRecord { of, ends })
        });
        let kept: BTreeMap<u64, KeptRecord> = kept.collect();
        if kept != self.0 {
            self.0 = kept;
            self.store(tx);
        }
        Ok(())
    }

    fn store(&self, tx: &mut Tx) {
        if self.0.is_empty() {
            tx.delete(RecordKey::Kept);
        } else {
            tx.put(Record::Kept(self.0.values().cloned().collect()));
        }
    }

    /// State of each.
    pub fn states(&self, now: Timestamp) -> BTreeMap<u64, KeptState> {
        let state = |of: &KeptRecord| {
            let (revision, used) = (of.of.revision, of.of.used);
            KeptState { revision, used, is_over: !of.is_live(now) }
        };
        self.0.iter().map(|(number, of)| (*number, state(of))).collect()
    }

    /// Reservations of a card that are for others.
    fn of_others<'a>(
        &'a self,
        card: &'a CardId,
        machine: Machine<'a>,
        now: Timestamp,
    ) -> impl Iterator<Item = &'a KeptRecord> {
        let live = self.0.values().filter(move |of| of.is_live(now) && of.of.card == *card);
        live.filter(move |of| !of.is_for(machine))
    }

    /// # Errors
    /// A machine needs functions of a card that are kept for others. `left` are free.
    pub fn check_functions(
        &self,
        machine: Machine<'_>,
        (card, left): (&CardId, usize),
        needed: usize,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        let kept: u64 =
            self.of_others(card, machine, now).map(|of| u64::from(of.functions_left())).sum();
        if needed as u64 + kept <= left as u64 || kept == 0 {
            return Ok(());
        }
        let hint = format!(
            "{needed} needed, {left} free, {kept} of these reserved for other machines: wait until the reservations \
             end, or bind the machine on another host"
        );
        let what = format!("virtual functions of cards/{card}");
        Err(ControlError::Exhausted { what, limit: left as u64, hint })
    }

    /// # Errors
    /// A DAG needs bandwidth of a card that is kept for others. `left` is not promised.
    pub fn check_bandwidth(
        &self,
        machine: Machine<'_>,
        (card, left): (&CardId, Bandwidth),
        needed: Bandwidth,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        let kept: Bandwidth = self.of_others(card, machine, now).map(|of| of.of.bandwidth).sum();
        if kept == Bandwidth::ZERO || needed + kept <= left {
            return Ok(());
        }
        let hint = format!(
            "{needed} needed, {left} left, {kept} of it reserved for others: wait until the reservations end, or use \
             another host"
        );
        let what = format!("bandwidth of cards/{card} in bit/s");
        Err(ControlError::Exhausted { what, limit: left.get(), hint })
    }

    /// A machine has taken functions of a card: of what is kept for it first, the machine's own reservations before
    /// those of its tenant, and of these what ends first.
    pub fn take(&mut self, tx: &mut Tx, machine: Machine<'_>, card: &CardId, mut functions: u32) {
        let now = tx.now();
        let own = self.0.values().filter(|of| of.is_live(now) && of.is_for(machine));
        let own = own.filter(|of| of.of.card == *card && of.functions_left() > 0);
        let mut order: Vec<_> = own.map(|of| (of.of.vm.is_none(), of.ends, of.of.number)).collect();
        order.sort_unstable();
        let is_any = !order.is_empty();
        for (_, _, number) in order {
            let of = self.0.get_mut(&number).expect("it was just found");
            let taken = of.functions_left().min(functions);
            of.of.used += taken;
            functions -= taken;
        }
        if is_any {
            self.store(tx);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).expect("a label")
    }

    fn card() -> CardId {
        CardId::new("card0").expect("a label")
    }

    fn vm(number: u8) -> VmId {
        format!("123e4567-e89b-12d3-a456-4266141740{number:02}").parse().expect("a UUID")
    }

    fn order(number: u64, functions: u32) -> KeptForTenant {
        KeptForTenant {
            number,
            revision: 1,
            tenant: tenant("acme"),
            vm: None,
            card: card(),
            functions,
            used: 0,
            bandwidth: Bandwidth::from_gbps(10),
            lasts: Duration::from_secs(10),
        }
    }

    fn set(kept: &mut KeptFunctions, now: u64, all: Vec<KeptForTenant>) {
        kept.set(&mut Tx::at(at(now)), all).expect("few");
    }

    /// Whether a tenant's machine may take functions of four that are free.
    fn may(kept: &KeptFunctions, of: &str, machine: u8, functions: usize, now: u64) -> bool {
        let (tenant, vm) = (tenant(of), vm(machine));
        let machine = Machine { tenant: &tenant, vm: Some(&vm) };
        kept.check_functions(machine, (&card(), 4), functions, at(now)).is_ok()
    }

    #[test]
    fn functions_are_kept_for_their_tenant_until_their_time() {
        let mut kept = KeptFunctions::default();
        set(&mut kept, 0, vec![order(7, 3)]);
        assert!(may(&kept, "globex", 1, 1, 9) && !may(&kept, "globex", 1, 2, 9));
        assert!(may(&kept, "acme", 1, 4, 9), "its own and the one that is free");
        assert!(may(&kept, "globex", 1, 4, 10), "its time is over, and nobody said so");
        let again = KeptFunctions::restore(kept.0.values().cloned().collect());
        assert!(!may(&again, "globex", 1, 2, 9), "it survives a restart");
        assert!(may(&again, "globex", 1, 2, 10));
    }

    /// The order is the one of before, sent again; a renewal has a higher revision.
    #[test]
    fn an_old_order_brings_nothing_back() {
        let mut kept = KeptFunctions::default();
        set(&mut kept, 0, vec![order(7, 4)]);
        set(&mut kept, 8, vec![order(7, 4)]);
        assert!(may(&kept, "globex", 1, 4, 10), "it ends when it was to end at first");
        set(&mut kept, 11, vec![order(7, 4)]);
        assert!(may(&kept, "globex", 1, 4, 12) && kept.states(at(12))[&7].is_over);
        set(&mut kept, 12, vec![KeptForTenant { revision: 2, ..order(7, 4) }]);
        assert!(!may(&kept, "globex", 1, 1, 21) && may(&kept, "globex", 1, 1, 22));
        set(&mut kept, 13, Vec::new());
        assert!(may(&kept, "globex", 1, 4, 13), "the fleet has given it back");
    }

    #[test]
    fn a_machine_takes_its_own_first_and_what_is_taken_is_not_kept_again() {
        let mut kept = KeptFunctions::default();
        let own = KeptForTenant { vm: Some(vm(1)), ..order(8, 2) };
        set(&mut kept, 0, vec![order(7, 1), own.clone()]);
        assert!(!may(&kept, "acme", 2, 3, 1) && may(&kept, "acme", 1, 4, 1), "for machine 1 only");
        let acme = tenant("acme");
        let machine = vm(1);
        let machine = Machine { tenant: &acme, vm: Some(&machine) };
        kept.take(&mut Tx::at(at(1)), machine, &card(), 2);
        let used = |kept: &KeptFunctions| {
            kept.states(at(1)).values().map(|of| of.used).collect::<Vec<_>>()
        };
        assert_eq!(used(&kept), [0, 2]);
        set(&mut kept, 2, vec![order(7, 1), KeptForTenant { revision: 2, ..own }]);
        assert_eq!(used(&kept), [0, 2], "an order that was written before it was taken");
        kept.take(&mut Tx::at(at(3)), machine, &card(), 2);
        assert_eq!(used(&kept), [1, 2]);
    }

    #[test]
    fn bandwidth_is_kept_from_other_tenants() {
        let mut kept = KeptFunctions::default();
        set(&mut kept, 0, vec![order(7, 0)]);
        let may = |of: &str, now| {
            let (tenant, left) = (tenant(of), Bandwidth::from_gbps(12));
            let machine = Machine { tenant: &tenant, vm: None };
            kept.check_bandwidth(machine, (&card(), left), Bandwidth::from_gbps(3), at(now)).is_ok()
        };
        assert!(!may("globex", 9) && may("acme", 9) && may("globex", 10));
    }

    #[test]
    fn a_host_keeps_as_many_as_fit_in_a_record() {
        let mut kept = KeptFunctions::default();
        let mut tx = Tx::at(at(0));
        let many = (0..=KEPT_MAX as u64).map(|number| order(number, 1));
        assert!(kept.set(&mut tx, many.collect()).is_err());
        assert_eq!((tx.writes().len(), kept.0.len()), (0, 0));
    }
}

//! The only entry to the state: routes each event to its handler, then follows up all changes.

mod held;
mod queries;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use snic_bitstream::signature::Trust;
use snic_domain::{CardId, CardModel, Timestamp, VirtualFunctions};
use snic_processors::NicModel;
use snic_usage::Prices;

use crate::place::{consolidation, untrusted};
use crate::protocol::{
    CallId, Caller, Command, ControlError, ControllerSettings, Event, LogKind, Reply, Request,
};
use crate::react::{reconcile, reports, sampling, usage};
use crate::request::vm_bindings::Progress;
use crate::request::{assignments, commands, vm_bindings};
use crate::restart::inspection::{self, Inspection};
use crate::restart::quarantine::{self, SetAside};
use crate::restart::recovery::StoreContent;
use crate::restart::set_aside::SetAsideAccount;
use crate::restart::{check, recovery};
use crate::state::Core;
use crate::state::usage::Usage;
use crate::store::log::Log;
use crate::store::records::{InvalidRecord, RequestKey};
use crate::store::requests::{Fingerprint, Requests};
use crate::store::revisions::Revisions;
use crate::store::tx::{LogSubject, Tx};
use crate::view::{quotas, views};

use held::{HeldRequest, HeldRequests};
pub use queries::RegionGlance;

/// The control plane of one daemon: all tenants, all cards.
///
/// One thread owns it. [`Controller::handle`] takes an event and says what is to be done;
/// queries read what callers see.
#[derive(Debug)]
pub struct Controller {
    core: Core,
    /// Requests that were carried out, so that their repetition is not.
    requests: Requests,
    /// Decisions, each with its reason.
    log: Log,
    /// Changes and deletions of resources, with their times.
    revisions: Revisions,
    /// Records that it goes on without.
    set_aside: SetAsideAccount,
    /// Requests that wait for room.
    held: HeldRequests,
}

impl Controller {
    /// The controller that wrote these records, as far as they became durable. `secret` is used
    /// where the store is new. Time O(records · log records).
    ///
    /// # Errors
    /// A record cannot be read, or contradicts another one.
    pub fn recover(
        settings: ControllerSettings,
        records: impl IntoIterator<Item = (String, Vec<u8>)>,
        secret: u64,
        now: Timestamp,
    ) -> Result<Self, InvalidRecord> {
        let recovered = recovery::recover(settings, records, secret, now)?;
        Ok(Self::of(recovered))
    }

    /// As [`Controller::recover`]; but records that cannot be read, or contradict others, are left out and
    /// given back where the rest stands without them, 32 at most: DAGs, rules, bindings and the like. With a
    /// DAG goes what is about it, which does not count.
    ///
    /// # Errors
    /// The store's head, a tenant, a card or a region cannot be read, or more than 32 others; or there is no room to keep
    /// those that are left out beside those of earlier starts.
    pub fn recover_rest(
        settings: ControllerSettings,
        records: Vec<(String, Vec<u8>)>,
        secret: u64,
        now: Timestamp,
    ) -> Result<(Self, Vec<SetAside>), InvalidRecord> {
        let (recovered, set_aside) = quarantine::recover_rest(settings, records, secret, now)?;
        Ok((Self::of(recovered), set_aside))
    }

    /// The controller as if it had started now with these records, which are all that it had stored: what it decided
    /// since is forgotten. Cards appear again.
    ///
    /// # Errors
    /// As [`Controller::recover`].
    pub fn restarted(
        &self,
        records: Vec<(String, Vec<u8>)>,
        now: Timestamp,
    ) -> Result<Self, InvalidRecord> {
        let (settings, secret) = (*self.core.policies.current(), self.core.secret());
        // Records that were set aside at the start are not among those that it uses.
        let (mut restarted, _) = Self::recover_rest(settings, records, secret, now)?;
        restarted.core.declare_as(&self.core);
        restarted.declare_keys(self.core.registry.trust().cloned());
        // Their callers wait, and nothing of them was stored.
        restarted.held = self.held.clone();
        Ok(restarted)
    }

    /// Takes the cause of a change that no store takes out of the records, so that [`Controller::restarted`] does not
    /// decide it again: the record under `key`, or the DAG that it is about. Gives what is to be set aside; nothing where
    /// the rest does not stand without it.
    ///
    /// # Errors
    /// There is no room to keep them.
    pub fn take_cause(
        records: &mut Vec<(String, Vec<u8>)>,
        key: &str,
        why: &str,
    ) -> Result<Vec<SetAside>, InvalidRecord> {
        quarantine::take_cause(records, key, why)
    }

    fn of(content: StoreContent) -> Self {
        let StoreContent { core, requests, revisions, set_aside } = content;
        let (log, held) = (Log::default(), HeldRequests::default());
        Self { core, requests, log, revisions, set_aside, held }
    }

    /// Everything that is wrong with the records of a store, for those who look at one that no daemon has
    /// open. Time O(records · log records) for each record that contradicts others, 256 at most.
    pub fn inspect(
        settings: ControllerSettings,
        records: Vec<(String, Vec<u8>)>,
        now: Timestamp,
    ) -> Inspection {
        inspection::inspect(settings, records, now)
    }

    /// Takes an event; says what it leads to, for an [`crate::Outbox`]. `now` never goes backwards.
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Tx {
        let now = self.core.advance(now);
        let mut tx = Tx::at(now);
        self.core.usage.tick(now);
        let mut reply = None;
        let core = &mut self.core;
        if !matches!(event, Event::Request { .. })
            && let Some(held) = self.held.take_due(core)
        {
            reply = match held.plans_again(core) {
                Some(again) => Some((held.call, Ok(again))),
                None => self.decide(&mut tx, held),
            };
        }
        let core = &mut self.core;
        match event {
            Event::Request { call, request } => {
                let asked = HeldRequest::new(core, call, *request);
                reply = self.decide(&mut tx, asked);
            }
            Event::CardAppeared { card, profile } => {
                reports::card_appeared(core, &mut tx, card, *profile);
            }
            Event::CardAbsent { card, reason } => {
                reports::card_absent(core, &mut tx, card, reason);
            }
            Event::Card { card, report } => reports::card_reported(core, &mut tx, &card, report),
            Event::DeviceRead { card, reading } => {
                reports::device_read(core, &mut tx, &card, *reading);
            }
            Event::Searched(found) => consolidation::searched(core, &mut tx, found),
            Event::Tick => {}
            Event::Sample => sampling::sample(core, &mut tx),
            Event::Settings(settings) => sampling::settings_arrived(core, *settings),
            Event::KeysChanged(trust) => {
                untrusted::keys_changed(core, &mut tx, trust.map(|trust| *trust));
            }
            Event::PricesChanged(prices) => core.usage.set_prices(prices),
            Event::CallsCounted { calls, is_last } => {
                Usage::count_calls(core, now, (calls, is_last));
            }
            Event::AuthorizationChanged { changes } => {
                let text = format!("other policies are in force: {changes}");
                tx.note(LogKind::PoliciesApplied, LogSubject::default(), text);
            }
            Event::SettingsRefused { reason } => {
                tx.note(LogKind::PoliciesRefused, LogSubject::default(), reason);
            }
        }
        self.follow_up(&mut tx);
        if let Some((call, result)) = reply {
            let result = result.map(|reply| self.up_to_date(reply));
            tx.reply(call, result);
        }
        self.forget_old(&mut tx);
        usage::follow(&mut self.core, &mut tx);
        self.core.operations.store_meta_once(&mut tx);
        if cfg!(debug_assertions)
            && let Err(broken) = self.check()
        {
            panic!("an invariant of the controller is broken: {broken}");
        }
        self.log.keep(&mut tx);
        self.revisions.finish(&mut tx);
        tx
    }

    /// The answer to a request that has just come, or that was held; `None` where it waits for room.
    fn decide(
        &mut self,
        tx: &mut Tx,
        asked: HeldRequest,
    ) -> Option<(CallId, Result<Reply, ControlError>)> {
        let call = asked.call;
        if let Caller::Tenant(tenant) = &asked.request.caller {
            tx.asked_by(call, tenant.clone());
        }
        let copy = self.held.copy(&self.core, &asked);
        self.core.planning.set_can_wait(copy.is_some());
        let result = self.request(tx, asked.request);
        // A batch with a DAG that may yet find room is held as a whole: its plan is outdated as soon as DAGs have moved.
        let is_refused = matches!(result, Err(ControlError::Refused(_) | ControlError::Outdated));
        if let Some(held) = copy.filter(|_| is_refused && self.core.planning.may_wait())
            && self.held.hold(&self.core, held)
        {
            return None;
        }
        Some((call, result))
    }

    /// Carries out a request, or repeats the answer to one that was carried out before.
    fn request(&mut self, tx: &mut Tx, request: Request) -> Result<Reply, ControlError> {
        let Request { caller, request_id, command } = request;
        let Some(id) = request_id else {
            return self.carry_out(tx, &caller, command);
        };
        let key = RequestKey::new(&caller, id)?;
        let fingerprint = Fingerprint::of(&command);
        if let Some(made) = self.requests.made_before(&key, &fingerprint)? {
            return commands::made(&self.core, &caller, made);
        }
        let reply = self.carry_out(tx, &caller, command)?;
        if let Some(made) = commands::made_by(&reply) {
            self.requests.remember(tx, key, fingerprint, made);
        }
        Ok(reply)
    }

    fn carry_out(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        command: Command,
    ) -> Result<Reply, ControlError> {
        let named = match &command {
            Command::CreateTenant(tenant) => Some(tenant.id.clone()),
            Command::Fleet(change) => assignments::tenant_of(change),
            _ => None,
        };
        let created = named.filter(|id| self.core.registry.tenant(id).is_none());
        let reply = commands::carry_out(&mut self.core, tx, caller, command)?;
        if let Some(tenant) = created.filter(|id| self.core.registry.tenant(id).is_some()) {
            self.log.retire(&tenant);
            self.requests.retire(tx, &Caller::Tenant(tenant));
        }
        Ok(reply)
    }

    /// Asks the cards for the next steps, and moves bindings on, until nothing has changed.
    fn follow_up(&mut self, tx: &mut Tx) {
        reconcile::reconcile(&mut self.core, tx);
        while vm_bindings::step_bindings(&mut self.core, tx) == Progress::Made {
            reconcile::reconcile(&mut self.core, tx);
        }
    }

    /// A reply that was made before the next steps were taken, as it is after them.
    fn up_to_date(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Operation(view) => match self.core.operations.get(&view.record.id) {
                Some(record) => Reply::Operation(views::operation_view(&self.core, record)),
                None => Reply::Operation(view),
            },
            Reply::Batch(results) => {
                let now = |result: Result<Reply, _>| result.map(|reply| self.up_to_date(reply));
                Reply::Batch(results.into_iter().map(now).collect())
            }
            Reply::Binding(view) => match self.binding_view(&view.record.spec.vm) {
                Some(now) => Reply::Binding(Box::new(now)),
                None => Reply::Binding(view),
            },
            Reply::Tenant(view) => Reply::Tenant(quotas::with_usage(&self.core, view)),
            other => other,
        }
    }

    /// Forgets what ended long ago. Amortised O(log of what is remembered) an event.
    fn forget_old(&mut self, tx: &mut Tx) {
        self.core.operations.forget_old(tx, self.core.now());
        self.requests.forget_old(tx, self.core.now());
        vm_bindings::forget_old_bindings(&mut self.core, tx);
    }

    /// When [`Event::Tick`] is needed next, if nothing else happens before.
    pub fn next_wake_up(&self) -> Option<Timestamp> {
        let cards =
            self.core.cards.iter().filter_map(|(_, card)| card.next_wake_up(self.core.now()));
        let is_put_off = self.core.planning.is_put_off() || self.core.passes.is_put_off();
        let put_off = is_put_off.then(|| self.core.now());
        let (bindings, begins) = (self.core.bindings.next_alarm(), self.core.passes.begins());
        let alarms = [bindings, begins, put_off, self.held.next_wake_up(&self.core)];
        cards.chain(alarms.into_iter().flatten()).min()
    }

    /// When [`Event::Sample`] is due next.
    pub fn next_sample(&self) -> Timestamp {
        sampling::next_sample(&self.core)
    }

    /// Says which virtual functions a card has. Bindings that exist keep theirs.
    pub fn declare_functions(&mut self, card: CardId, functions: VirtualFunctions) {
        self.core.bindings.offer(card, functions);
    }

    /// Says which programs there are for NTs on cards with processors.
    pub fn declare_models(&mut self, models: impl IntoIterator<Item = NicModel>) {
        self.core.registry.set_models(models);
    }

    /// Says within which groups of regions the cards of each model relocate an image: for how many regions a chain
    /// has to be built.
    pub fn declare_region_groups(&mut self, groups: BTreeMap<CardModel, Vec<Range<u8>>>) {
        self.core.registry.set_region_groups(groups);
    }

    /// Says which keys count for bitstreams, those that were uploaded before too. `None`: what was found at each upload does.
    pub fn declare_keys(&mut self, trust: Option<Trust>) {
        untrusted::begin_with_keys(&mut self.core, trust);
    }

    /// Says which prices count for budgets. `None`: there are none.
    pub fn declare_prices(&mut self, prices: Option<Arc<Prices>>) {
        self.core.usage.set_prices(prices);
    }

    /// Says whether this host belongs to a fleet. While it does, only the fleet changes what it manages; otherwise
    /// operators of the host can, too.
    pub const fn declare_fleet(&mut self, in_fleet: bool) {
        self.core.in_fleet = in_fleet;
    }

    /// Every invariant, recomputed from scratch; says which is broken.
    /// Time O(state · log state).
    ///
    /// # Errors
    /// One is broken.
    pub fn check(&self) -> Result<(), String> {
        check::check(&self.core)
    }
}

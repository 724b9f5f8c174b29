//! Policy files, registered once for all hosts. What they mean was checked before; here they are texts.
//!
//! Hosts say with each beat which set they looked at. One that looked at another is sent the present one, and again after
//! some beats, until it says so: a host that was away or lost an order catches up, and a leader that has just begun sends
//! only what differs.

use snic_domain::{Bandwidth, BudgetPolicy, DagSpec, TenantId};

use super::{Fleet, RequestContext};
use crate::HostId;
use crate::journal::FleetStep;
use crate::placement::{CardConstraints, PlacementDefaults, PromiseLimits, TenantDefaults};
use crate::protocol::{
    Denied, FLEET_PLACEMENT, FleetPolicies, FleetReply, HostPolicies, Numbered, OrderKind,
    PolicyFiles,
};
use crate::records::{POLICIES, PoliciesRecord, RecordMeta, Versioned};

/// Most bytes of all files and their names together: one order has them all.
const BYTES_MAX: usize = 64 << 10;
/// Most hosts that a reply names.
const NAMED_MAX: usize = 100;
/// Most characters of a host's reason.
const REASON_CHARS_MAX: usize = 500;

impl Fleet {
    /// Replaces the files. The same ones again change nothing.
    pub(super) fn set_policies(
        &mut self,
        turn: &RequestContext,
        (files, promises, budgets, defaults): (
            PolicyFiles,
            PromiseLimits,
            BudgetPolicy,
            TenantDefaults,
        ),
        etag: Option<&str>,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let before = self.policies.as_ref().map(Versioned::value);
        let now = before.map(|of| of.meta.etag()).unwrap_or_default();
        if etag.is_some_and(|read| read != now) {
            return Err(Denied::Stale { what: "policies".into(), etag: now });
        }
        let bytes: usize = files.iter().map(|(name, text)| name.len() + text.len()).sum();
        if bytes > BYTES_MAX {
            let wrong = format!("policies.files: {bytes} bytes; at most {BYTES_MAX} are allowed");
            return Err(Denied::Invalid(wrong));
        }
        let is_same = before.map_or(files.is_empty(), |of| of.files == files);
        if is_same || turn.is_dry {
            return Ok(FleetReply::Done);
        }
        let number = self.journal.next_serial();
        let mut meta = RecordMeta::new(number, turn.now);
        if let Some(before) = before {
            meta = before.meta;
            meta.change(turn.now);
        }
        let record = PoliciesRecord { files, promises, budgets, defaults, number, meta };
        let record = match self.policies.take() {
            Some(mut of) => {
                *of.value_mut() = record;
                of
            }
            None => Versioned::new(record),
        };
        step.put(POLICIES.to_owned(), record.bytes());
        self.insert_policies(record);
        Ok(FleetReply::Done)
    }

    /// From a request or its record.
    pub(super) fn insert_policies(&mut self, record: Versioned<PoliciesRecord>) {
        self.inventory.set_promises(record.value().promises);
        self.policies = Some(record);
    }

    /// Constraints that the policy adds to those of a tenant's new DAG.
    pub(super) fn placement_defaults(
        &self,
        tenant: &TenantId,
        asked: &CardConstraints,
    ) -> PlacementDefaults {
        let policies = self.policies.as_ref().map(Versioned::value);
        policies.map(|of| of.defaults.of(tenant, asked)).unwrap_or_default()
    }

    /// Fails where a DAG asks for more than the policies allow, and for more than it has.
    pub(super) fn check_bandwidth(&self, of: &DagSpec, has: Bandwidth) -> Result<(), Denied> {
        let most = self.inventory.promises().dag_bandwidth_max;
        if of.bandwidth <= most || of.bandwidth <= has {
            return Ok(());
        }
        let asked = of.bandwidth;
        let rule = format!("the admission policy allows at most {most} for one DAG");
        Err(Denied::Invalid(format!("dag.bandwidth_bps: {asked} is not allowed: {rule}")))
    }

    /// The files, and on which hosts they are in force.
    pub(super) fn get_policies(&self) -> FleetReply {
        let record = self.policies.as_ref().map(Versioned::value);
        let mut found = FleetPolicies {
            files: record.map(|of| of.files.clone()).unwrap_or_default(),
            meta: record.map(|of| of.meta),
            ..FleetPolicies::default()
        };
        let number = self.policies_number();
        for (id, host) in &self.hosts {
            match host.policies().filter(|of| of.number == number) {
                Some(HostPolicies { refused: None, .. }) => found.in_force += 1,
                Some(HostPolicies { refused: Some(why), .. }) => {
                    found.refusing += 1;
                    if found.refusals.len() < NAMED_MAX {
                        found.refusals.push((id.clone(), why.clone()));
                    }
                }
                None => {
                    found.pending += 1;
                    if found.pending_hosts.len() < NAMED_MAX {
                        found.pending_hosts.push(id.clone());
                    }
                }
            }
        }
        FleetReply::Policies(Box::new(found))
    }

    /// 0: none were ever registered.
    fn policies_number(&self) -> u64 {
        self.policies.as_ref().map_or(0, |of| of.value().number)
    }

    /// A host says which files it looked at.
    pub(super) fn policies_reported(
        &mut self,
        host: &HostId,
        mut said: HostPolicies,
        step: &mut FleetStep,
    ) {
        let number = self.policies_number();
        let Some(state) = self.hosts.get_mut(host) else { return };
        said.refused = said.refused.map(|why| why.chars().take(REASON_CHARS_MAX).collect());
        if state.policies_are(said, number) {
            let files = self.policies.as_ref().map(|of| of.value().files.clone());
            let mut of = files.unwrap_or_default();
            // A host chooses among no hosts, and refuses files that it does not know.
            of.remove(FLEET_PLACEMENT);
            self.order(host, OrderKind::SetPolicies(Numbered { number, of }), step);
        }
    }
}

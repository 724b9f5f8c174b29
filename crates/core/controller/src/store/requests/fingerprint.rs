//! Fingerprints of commands: a digest of all fields, equal for equal commands.
//!
//! It is compared with fingerprints that an earlier version of the daemon stored, so it must not depend on names
//! in the code. A command is a list: its name here, then its values by position, in the JSON that
//! records have, too. If the encoding changes, [`VERSION`] changes: fingerprints of another version
//! match nothing.

use serde::Serialize;
use snic_domain::{
    DagName, DagPatch, Description, Digest, Labels, NotesPatch, RulePatch, TenantPatch,
};

use crate::protocol::{Command, DagAssignment, DagBatch, FleetChange, NewDag};

/// Counts changes of the encoding.
const VERSION: &str = "v1";

/// A digest of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint(String);

impl Fingerprint {
    pub fn of(command: &Command) -> Self {
        let json = encode(command).expect("commands have text keys and no type JSON cannot say");
        Self(format!("{VERSION}:{}", Digest::of(&json)))
    }

    /// Whether what was stored is the fingerprint of the same command.
    pub fn is_of(&self, stored: &str) -> bool {
        self.0 == stored
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

fn encode(command: &Command) -> serde_json::Result<Vec<u8>> {
    match command {
        Command::CreateTenant(tenant) => list(("create-tenant", tenant)),
        Command::UpdateTenant { id, patch, etag } => {
            let TenantPatch { weight, quota, notes, project } = patch;
            // Requests of versions that knew no projects have the fingerprints that they had.
            match project.is_keep() {
                true => list(("update-tenant", id, weight, quota, noted(notes), etag)),
                false => list(("update-tenant", id, weight, quota, noted(notes), etag, project)),
            }
        }
        Command::DeleteTenant { id, force, etag } => list(("delete-tenant", id, force, etag)),
        Command::CreateNtType(nt) => list(("create-nt-type", nt)),
        Command::DeleteNtType { id, etag } => list(("delete-nt-type", id, etag)),
        Command::CreateBitstream(bitstream) => list(("create-bitstream", bitstream)),
        Command::DeleteBitstream { id, image: None, etag } => list(("delete-bitstream", id, etag)),
        Command::DeleteBitstream { id, image: Some(image), etag } => {
            list(("delete-bitstream-image", id, image, etag))
        }
        Command::RetryBitstream { id, etag } => list(("retry-bitstream", id, etag)),
        Command::CreateDag { name, spec, validate_only } => {
            list(("create-dag", name, spec, validate_only))
        }
        // Where they go is not what is asked for.
        Command::CreateDags { batch, plan: _ } => {
            let DagBatch { tenant, dags, allow_partial, validate_only } = batch;
            let dags: Vec<_> = dags.iter().map(|NewDag { id, spec }| (id, spec)).collect();
            list(("create-dags", tenant, dags, allow_partial, validate_only))
        }
        Command::UpdateDag { name, patch, etag, validate_only } => {
            update_dag(name, patch, etag.as_deref(), *validate_only)
        }
        Command::DeleteDag { name, etag } => list(("delete-dag", name, etag)),
        Command::CreateRule(rule) => list(("create-rule", rule)),
        Command::UpdateRule { id, patch, etag } => {
            let RulePatch { priority, matches, dag, notes } = patch;
            list(("update-rule", id, priority, matches, dag, noted(notes), etag))
        }
        Command::DeleteRule { id, etag } => list(("delete-rule", id, etag)),
        Command::Guarded { etag, command } => {
            let mut command = serde_json::from_slice::<serde_json::Value>(&encode(command)?)?;
            // In one order, whatever else is built with `serde_json`.
            command.sort_all_objects();
            list(("guarded", etag, command))
        }
        Command::DrainRegion { card, region } => list(("drain-region", card, region)),
        Command::DrainCard { card } => list(("drain-card", card)),
        Command::Cordon { card, region, on } => list(("cordon", card, region, on)),
        Command::Maintain { reason } => list(("maintain", reason)),
        Command::UndrainRegion { card, region } => list(("undrain-region", card, region)),
        Command::ResetRegion { card, region } => list(("reset-region", card, region)),
        Command::BindVm(spec) => list(("bind-vm", spec)),
        Command::UnbindVm { vm, tenant } => list(("unbind-vm", vm, tenant)),
        Command::Heartbeat { vms } => list(("heartbeat", vms)),
        Command::OptimizeCard { card } => list(("optimize-card", card)),
        Command::LoadRole { card, force } => list(("load-role", card, force)),
        Command::ResetCard { card, force } => list(("reset-card", card, force)),
        Command::RemoveCard { card } => list(("remove-card", card)),
        Command::ReplaceCard { card } => list(("replace-card", card)),
        Command::CancelOperation { id } => list(("cancel-operation", id)),
        Command::DeleteOperation { id } => list(("delete-operation", id)),
        Command::Fleet(change) => fleet_change(change),
    }
}

fn fleet_change(change: &FleetChange) -> serde_json::Result<Vec<u8>> {
    match change {
        FleetChange::Assign(assignment) => {
            let DagAssignment { name, tenant, tenant_number, spec, to } = &**assignment;
            let tenant = (tenant, tenant_number);
            list(("assign-dag", name, tenant, spec, (&to.card, to.serial)))
        }
        FleetChange::Withdraw { name, card, if_detached } => {
            list(("withdraw-dag", name, card, if_detached))
        }
        FleetChange::Provide { what, number } => list(("provide", what, number)),
        FleetChange::Retire { name, number } => list(("retire", name, number)),
        FleetChange::Keep(all) => list(("keep", all)),
    }
}

fn update_dag(
    name: &DagName,
    patch: &DagPatch,
    etag: Option<&str>,
    validate_only: bool,
) -> serde_json::Result<Vec<u8>> {
    let DagPatch {
        nodes,
        edges,
        bandwidth,
        form,
        packet_sizes,
        trusted_tenants,
        card_affinity,
        latency_sensitive,
        refuse_idle_tasks,
        latency_bound,
        notes,
    } = patch;
    let graph = (nodes, edges, bandwidth, form, packet_sizes);
    let fields =
        (graph, trusted_tenants, card_affinity, latency_sensitive, refuse_idle_tasks, noted(notes));
    // Requests without a bound have the fingerprints that they had before there were any.
    match latency_bound {
        None => list(("update-dag", name, fields, etag, validate_only)),
        Some(bound) => list(("update-dag", name, (fields, bound), etag, validate_only)),
    }
}

/// Values of the notes by position.
const fn noted(notes: &NotesPatch) -> (&Option<Labels>, &Option<Description>) {
    let NotesPatch { labels, description } = notes;
    (labels, description)
}

fn list(values: impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&values)
}

#[cfg(test)]
mod tests {
    use snic_domain::{
        Bandwidth, CardId, DagId, DagName, DagSpec, NtTypeId, Quota, RegionId, Tenant, TenantId,
    };

    use super::*;

    fn tenant(weight: u32) -> Command {
        let id = TenantId::new("acme").expect("a label");
        Command::CreateTenant(Tenant {
            id,
            weight,
            quota: Quota::default(),
            notes: Default::default(),
            project: None,
        })
    }

    fn dag(gbps: u64, validate_only: bool) -> Command {
        let tenant = TenantId::new("acme").expect("a label");
        let name = DagName { tenant, dag: DagId::new("web").expect("a label") };
        let nt = NtTypeId::new("nat").expect("a label");
        let spec = DagSpec::chain(&[nt], Bandwidth::from_gbps(gbps));
        Command::CreateDag { name, spec, validate_only }
    }

    fn update(latency_sensitive: Option<bool>) -> Command {
        let tenant = TenantId::new("acme").expect("a label");
        let name = DagName { tenant, dag: DagId::new("web").expect("a label") };
        let bandwidth = Some(Bandwidth::from_gbps(2));
        let patch = DagPatch { bandwidth, latency_sensitive, ..DagPatch::default() };
        Command::UpdateDag { name, patch, etag: None, validate_only: false }
    }

    fn drain() -> Command {
        let card = CardId::new("card0").expect("a label");
        Command::DrainRegion { card, region: RegionId(3) }
    }

    fn json(command: &Command) -> String {
        String::from_utf8(encode(command).expect("JSON")).expect("text")
    }

    /// Fingerprints as a daemon in use has stored them. A change here makes retries over an upgrade fail: where it
    /// is meant, count [`VERSION`] up.
    #[test]
    fn encodings_stay_as_they_are() {
        assert_eq!(json(&drain()), r#"["drain-region","card0",3]"#);
        assert_eq!(
            json(&dag(1, false)),
            r#"["create-dag",{"tenant":"acme","dag":"web"},{"nodes":[{"id":"nat","nt":"nat"}],"edges":[],"bandwidth":1000000000,"form":"auto"},false]"#
        );
        assert_eq!(
            json(&update(None)),
            r#"["update-dag",{"tenant":"acme","dag":"web"},[[null,null,2000000000,null,null],null,null,null,null,[null,null]],null,false]"#
        );
        assert_eq!(
            json(&tenant(2)),
            r#"["create-tenant",{"id":"acme","weight":2,"quota":{"dags_max":64,"bandwidth_max":100000000000,"bitstreams_max":32,"bitstream_bytes_max":268435456,"memory_max":4294967296,"nt_types_max":64,"rules_max":256,"machines_max":256,"operations_max":256,"threads_max":128}}]"#
        );
        let text = Fingerprint::of(&drain()).into_text();
        assert_eq!(text, format!("v1:{}", Digest::of(br#"["drain-region","card0",3]"#)));
    }

    #[test]
    fn different_requests_have_different_fingerprints() {
        let updates = [None, Some(false), Some(true)].map(update);
        let mut commands =
            vec![tenant(1), tenant(2), dag(1, false), dag(1, true), dag(2, false), drain()];
        commands.extend(updates);
        for (i, a) in commands.iter().enumerate() {
            for (j, b) in commands.iter().enumerate() {
                let same = Fingerprint::of(a).is_of(&Fingerprint::of(b).into_text());
                assert_eq!(same, i == j, "{a:?} {b:?}");
            }
        }
    }

    /// Names in the code count nothing: what `Debug` says of a command is not in its encoding.
    #[test]
    fn names_of_fields_are_not_in_it() {
        for command in [dag(1, true), drain()] {
            let json = json(&command);
            let debug = format!("{command:?}");
            assert!(debug.contains("CreateDag") || debug.contains("DrainRegion"), "{debug}");
            for name in
                ["CreateDag", "DrainRegion", "validate_only", "spec", "\"card\"", "region\":"]
            {
                assert!(!json.contains(name), "{json}");
            }
        }
    }
}

//! Bindings of virtual machines.

use std::collections::BTreeSet;
use std::time::Duration;

use snic_domain::{
    BindingSpec, BindingState, BindingTarget, DagName, MacAddress, PortLimits, VmId,
};

use super::{FieldProblem, Problems, name, notes};
use crate::error::ApiError;
use crate::names::{ResourceName as _, VmBindingName};
use crate::v1;
use crate::v1::bind_vm_request::Chains as Wire;
use crate::v1::vm_binding::State;

/// Default time limit of a binding.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Parses a field with a virtual machine's UUID.
///
/// # Errors
/// [`FieldProblem`] if it is missing or not a UUID.
pub fn vm(field: &str, text: &str) -> Result<VmId, FieldProblem> {
    if text.is_empty() {
        return Err(FieldProblem::required(field));
    }
    VmId::new(text).map_err(|error| FieldProblem::invalid(field, error))
}

/// Parses `vmBindings/{uuid}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn name(field: &str, text: &str) -> Result<VmId, FieldProblem> {
    if text.is_empty() {
        return Err(FieldProblem::required(field));
    }
    let name = VmBindingName::parse(text).map_err(|error| FieldProblem::name(field, error))?;
    VmId::new(name.vm).map_err(|error| FieldProblem::name(field, error))
}

/// The name of a binding.
pub fn of_binding(vm: &VmId) -> String {
    format!("vmBindings/{vm}")
}

/// Converts a request of BindVm.
///
/// # Errors
/// [`ApiError`] with all invalid fields.
pub fn spec(request: &v1::BindVmRequest) -> Result<BindingSpec, ApiError> {
    let mut problems = Problems::default();
    let vm = problems.keep(vm("vm", &request.vm));
    let tenant = problems.keep(name::tenant("tenant", &request.tenant));
    let chains = chains(&mut problems, request.chains.as_ref());
    let ready_within = problems.keep(duration("ready_within", request.ready_within));
    let lease = problems.keep(duration("lease", request.lease));
    let requested = match &request.chains {
        Some(Wire::Dags(dags)) if request.functions == 0 => dags.names.len(),
        _ => request.functions.max(1) as usize,
    };
    let functions = problems.keep(u16::try_from(requested).map_err(|_| {
        FieldProblem::invalid(
            "functions",
            format_args!("{requested} is too large (limit {})", u16::MAX),
        )
    }));
    let notes = notes::notes(&mut problems, "", &request.labels, &request.description);
    let limits = limits(&mut problems, request);
    problems.finish()?;
    let spec = || {
        Some(BindingSpec {
            vm: vm?,
            tenant: tenant?,
            chains: chains?,
            functions: functions?,
            ready_within: ready_within?.unwrap_or(READY_WITHIN),
            lease: lease?,
            notes,
            limits: limits?,
        })
    };
    spec().ok_or_else(|| ApiError::required("chains"))
}

fn limits(problems: &mut Problems, request: &v1::BindVmRequest) -> Option<PortLimits> {
    let mut mac_addresses = Vec::new();
    for (i, text) in request.mac_addresses.iter().enumerate() {
        let mac = text.parse::<MacAddress>();
        let field = format!("mac_addresses[{i}]");
        mac_addresses.push(problems.keep(mac.map_err(|e| FieldProblem::invalid(&field, e))));
    }
    let mut vlans = Vec::new();
    for (i, id) in request.vlans.iter().flat_map(|vlans| &vlans.ids).enumerate() {
        let wrong = |_| {
            let rule = format_args!("{id} is not allowed: 1 to 4094");
            FieldProblem::invalid(format!("vlans.ids[{i}]"), rule)
        };
        vlans.push(problems.keep(u16::try_from(*id).map_err(wrong)));
    }
    let vlans: Option<BTreeSet<u16>> = vlans.into_iter().collect();
    let rate = request.broadcasts_per_second;
    Some(PortLimits {
        mac_addresses: mac_addresses.into_iter().collect::<Option<_>>()?,
        vlans: if request.vlans.is_some() { Some(vlans?) } else { None },
        broadcasts_per_second: (rate > 0).then_some(rate),
    })
}

fn chains(problems: &mut Problems, wire: Option<&Wire>) -> Option<BindingTarget> {
    match wire {
        None => problems.keep(Err(FieldProblem::required("dags"))),
        Some(Wire::Template(text)) => {
            problems.keep(name::dag("template", text)).map(BindingTarget::Template)
        }
        Some(Wire::Dags(dags)) => {
            if dags.names.is_empty() {
                return problems.keep(Err(FieldProblem::required("dags.names")));
            }
            let mut dag = |(i, text): (usize, &String)| {
                problems.keep(name::dag(&format!("dags.names[{i}]"), text))
            };
            let names: Option<Vec<DagName>> = dags.names.iter().enumerate().map(&mut dag).collect();
            names.map(BindingTarget::Dags)
        }
    }
}

/// Converts a duration, if it is set.
fn duration(
    field: &str,
    value: Option<prost_types::Duration>,
) -> Result<Option<Duration>, FieldProblem> {
    let read = |value| {
        Duration::try_from(value)
            .map_err(|_| FieldProblem::invalid(field, "a duration must not be negative"))
    };
    value.map(read).transpose()
}

/// Converts a binding's state.
pub const fn state_to_wire(state: BindingState) -> State {
    match state {
        BindingState::Initial => State::Initial,
        BindingState::BindStarted => State::BindStarted,
        BindingState::Bound => State::Bound,
        BindingState::BindFailed => State::BindFailed,
        BindingState::Unbound => State::Unbound,
    }
}

/// Converts a duration.
pub fn duration_to_wire(time: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::ErrorReason;

    const VM: &str = "123e4567-e89b-42d3-a456-426614174000";

    fn request() -> v1::BindVmRequest {
        let names = vec!["tenants/acme/dags/web".into(), "tenants/acme/dags/mail".into()];
        v1::BindVmRequest {
            vm: VM.into(),
            tenant: "tenants/acme".into(),
            chains: Some(Wire::Dags(v1::DagNames { names })),
            ..Default::default()
        }
    }

    #[test]
    fn missing_fields_have_defaults() {
        let spec = spec(&request()).expect("valid");
        assert_eq!((spec.functions, spec.lease), (2, None), "one for each DAG");
        assert_eq!(spec.ready_within, Duration::from_secs(30));
        let chains = Some(Wire::Template("tenants/acme/dags/web".into()));
        let own = super::spec(&v1::BindVmRequest { chains, ..request() }).expect("valid");
        assert_eq!(own.functions, 1);
        assert!(matches!(own.chains, BindingTarget::Template(_)));
    }

    #[test]
    fn limits_of_ports_are_taken_over() {
        let mac_addresses = vec!["52:54:00:00:00:01".to_owned()];
        let vlans = Some(v1::VlanIds { ids: vec![6, 5, 6] });
        let given =
            v1::BindVmRequest { mac_addresses, vlans, broadcasts_per_second: 9, ..request() };
        let limits = spec(&given).expect("valid").limits;
        assert_eq!(limits.mac_addresses, [MacAddress([0x52, 0x54, 0, 0, 0, 1])]);
        assert_eq!(limits.vlans, Some([5, 6].into()));
        assert_eq!(limits.broadcasts_per_second, Some(9));
        assert!(spec(&request()).expect("valid").limits.is_default());
        let untagged = v1::BindVmRequest { vlans: Some(v1::VlanIds::default()), ..request() };
        assert_eq!(spec(&untagged).expect("valid").limits.vlans, Some(BTreeSet::new()));
    }

    #[test]
    fn invalid_requests_have_a_reason() {
        let negative = Some(prost_types::Duration { seconds: -1, nanos: 0 });
        let names = vec!["web".to_owned()];
        let named = Some(Wire::Dags(v1::DagNames { names }));
        let group = vec!["01:00:5e:00:00:01".to_owned()];
        let vlans = Some(v1::VlanIds { ids: vec![5, 70_000] });
        let cases = [
            (v1::BindVmRequest { mac_addresses: group, ..request() }, ErrorReason::InvalidField),
            (v1::BindVmRequest { vlans, ..request() }, ErrorReason::InvalidField),
            (v1::BindVmRequest { vm: "vm1".into(), ..request() }, ErrorReason::InvalidField),
            (v1::BindVmRequest { vm: String::new(), ..request() }, ErrorReason::FieldRequired),
            (v1::BindVmRequest { tenant: "acme".into(), ..request() }, ErrorReason::InvalidName),
            (v1::BindVmRequest { chains: None, ..request() }, ErrorReason::FieldRequired),
            (v1::BindVmRequest { chains: named, ..request() }, ErrorReason::InvalidName),
            (v1::BindVmRequest { functions: 70_000, ..request() }, ErrorReason::InvalidField),
            (v1::BindVmRequest { lease: negative, ..request() }, ErrorReason::InvalidField),
        ];
        for (request, reason) in cases {
            assert_eq!(spec(&request).expect_err("refused").reason(), reason, "{request:?}");
        }
        assert_eq!(
            name("name", &format!("vmBindings/{VM}")).map(|vm| of_binding(&vm)).ok(),
            Some(format!("vmBindings/{VM}"))
        );
        assert!(name("name", "vmBindings/x").is_err() && name("name", VM).is_err());
    }
}

//! Bindings of virtual machines.

use std::time::Duration;

use snic_domain::{BindingSpec, BindingState, BindingTarget, DagName, VmId};

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
        })
    };
    spec().ok_or_else(|| ApiError::required("chains"))
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
    fn invalid_requests_have_a_reason() {
        let negative = Some(prost_types::Duration { seconds: -1, nanos: 0 });
        let names = vec!["web".to_owned()];
        let named = Some(Wire::Dags(v1::DagNames { names }));
        let cases = [
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

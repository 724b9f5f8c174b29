//! Bindings of virtual machines.

use std::time::Duration;

use snic_domain::{BindingSpec, BindingState, Chains, DagName, VmId};

use super::{FieldProblem, Problems, name};
use crate::error::Failure;
use crate::names::{ResourceName as _, VmBindingName};
use crate::v1;
use crate::v1::bind_vm_request::Chains as Wire;
use crate::v1::vm_binding::State;

/// How long a binding may take where the caller does not say.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A machine that stands in a field of its own.
pub fn vm(field: &str, text: &str) -> Result<VmId, FieldProblem> {
    if text.is_empty() {
        return Err(FieldProblem::required(field));
    }
    VmId::new(text).map_err(|error| FieldProblem::invalid(field, error))
}

/// `vmBindings/{uuid}`.
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

/// What an orchestrator asks for.
pub fn spec(request: &v1::BindVmRequest) -> Result<BindingSpec, Failure> {
    let mut problems = Problems::default();
    let vm = problems.keep(vm("vm", &request.vm));
    let tenant = problems.keep(name::tenant("tenant", &request.tenant));
    let chains = chains(&mut problems, request.chains.as_ref());
    let ready_within = problems.keep(duration("ready_within", request.ready_within));
    let lease = problems.keep(duration("lease", request.lease));
    let asked = match &request.chains {
        Some(Wire::Dags(dags)) if request.functions == 0 => dags.names.len(),
        _ => request.functions.max(1) as usize,
    };
    let functions = problems.keep(u16::try_from(asked).map_err(|_| {
        FieldProblem::invalid("functions", format_args!("{asked} is over {}", u16::MAX))
    }));
    problems.finish()?;
    let spec = || {
        Some(BindingSpec {
            vm: vm?,
            tenant: tenant?,
            chains: chains?,
            functions: functions?,
            ready_within: ready_within?.unwrap_or(READY_WITHIN),
            lease: lease?,
        })
    };
    spec().ok_or_else(|| Failure::required("chains"))
}

fn chains(problems: &mut Problems, wire: Option<&Wire>) -> Option<Chains> {
    match wire {
        None => problems.keep(Err(FieldProblem::required("dags"))),
        Some(Wire::Template(text)) => {
            problems.keep(name::dag("template", text)).map(Chains::Template)
        }
        Some(Wire::Dags(dags)) => {
            let mut dag =
                |(i, text): (usize, &String)| problems.keep(name::dag(&format!("dags[{i}]"), text));
            let names: Option<Vec<DagName>> = dags.names.iter().enumerate().map(&mut dag).collect();
            names.map(Chains::Dags)
        }
    }
}

/// A span of time, if it is set.
fn duration(
    field: &str,
    value: Option<prost_types::Duration>,
) -> Result<Option<Duration>, FieldProblem> {
    let read = |value| {
        Duration::try_from(value).map_err(|_| FieldProblem::invalid(field, "it is not negative"))
    };
    value.map(read).transpose()
}

/// How far a binding is, on the wire.
pub const fn state_to_wire(state: BindingState) -> State {
    match state {
        BindingState::Initial => State::Initial,
        BindingState::BindStarted => State::BindStarted,
        BindingState::Bound => State::Bound,
        BindingState::BindFailed => State::BindFailed,
        BindingState::Unbound => State::Unbound,
    }
}

/// A span of time on the wire.
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
    fn what_is_not_said_has_its_default() {
        let spec = spec(&request()).expect("valid");
        assert_eq!((spec.functions, spec.lease), (2, None), "one for each DAG");
        assert_eq!(spec.ready_within, Duration::from_secs(30));
        let chains = Some(Wire::Template("tenants/acme/dags/web".into()));
        let own = super::spec(&v1::BindVmRequest { chains, ..request() }).expect("valid");
        assert_eq!(own.functions, 1);
        assert!(matches!(own.chains, Chains::Template(_)));
    }

    #[test]
    fn what_is_wrong_is_named() {
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

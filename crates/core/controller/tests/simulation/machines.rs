//! Virtual machines of the simulation: hosts that start them, keep them alive, forget them, and
//! stop them; and what they were promised.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::Rng;
use snic_controller::{BindingView, CallId, Command, ControlError, Reply};
use snic_domain::{
    BindingSpec, BindingState, BindingTarget, DagName, DagState, PciAddress, Timestamp,
    VirtualFunctions, VmId,
};
use snic_tables::{ClassifierRow, Table};

use crate::world::World;

/// Few functions: machines have to wait for each other.
pub const FUNCTIONS: VirtualFunctions = VirtualFunctions {
    physical_function: PciAddress { domain: 0, routing_id: 0x3B00 },
    count: 5,
    first_offset: 1,
    stride: 1,
};

/// Calls about machines are numbered from here, apart from those about DAGs.
pub const CALLS: u64 = 1 << 32;
/// Machines that there are.
pub const MACHINES: u32 = 6;
/// A lease: the shortest there may be, so that time passes it by now and then.
const LEASE: Duration = Duration::from_secs(5);

/// Machines as their callers know them.
#[derive(Debug, Default)]
pub struct Machines {
    calls: u64,
    unbinds: BTreeMap<CallId, VmId>,
    /// Machines whose unbind was answered, and that nobody asked to bind since.
    gone: BTreeSet<VmId>,
    /// Running time of the daemon when heartbeats of all machines came last.
    last_beat: Duration,
    /// Ends for want of heartbeats that were looked at: the machine, and when.
    looked_at: BTreeSet<(VmId, Timestamp)>,
}

fn machine(number: u32) -> VmId {
    VmId::new(&format!("{number:08x}-0000-4000-8000-000000000000")).expect("a UUID")
}

impl Machines {
    /// One more thing that happens to a machine; `dags` are those of its tenant.
    pub fn act(&mut self, world: &mut World, dags: &[DagName]) -> (CallId, Command) {
        self.calls += 1;
        let call = CallId(CALLS + self.calls);
        let vm = machine(world.rng.random_range(0..MACHINES));
        let command = match world.rng.random_range(0..10) {
            0..6 if !dags.is_empty() => self.bind(world, vm, dags),
            6..8 => {
                self.last_beat = world.heard;
                Command::Heartbeat { vms: (0..MACHINES).map(machine).collect() }
            }
            _ => {
                self.unbinds.insert(call, vm.clone());
                Command::UnbindVm { vm, tenant: None }
            }
        };
        (call, command)
    }

    fn bind(&mut self, world: &mut World, vm: VmId, dags: &[DagName]) -> Command {
        // An unbind under way may come before it; its answer says nothing of what comes after.
        self.gone.remove(&vm);
        self.unbinds.retain(|_, unbound| *unbound != vm);
        let first = &dags[world.rng.random_range(0..dags.len())];
        let functions = world.rng.random_range(1..4u16);
        let own: Vec<DagName> =
            dags.iter().filter(|dag| dag.tenant == first.tenant).cloned().collect();
        let count = own.len().min(functions.into());
        let chains = if world.chance(25) {
            BindingTarget::Template(first.clone())
        } else {
            BindingTarget::Dags(own.into_iter().take(count).collect())
        };
        Command::BindVm(BindingSpec {
            vm,
            tenant: first.tenant.clone(),
            chains,
            functions,
            ready_within: Duration::from_millis(world.rng.random_range(1..60)),
            lease: world.chance(50).then_some(LEASE),
            notes: Default::default(),
            limits: Default::default(),
        })
    }

    /// An answer came.
    pub fn answered(&mut self, call: CallId, result: &Result<Reply, ControlError>) {
        let unbound = matches!(result, Ok(_) | Err(ControlError::NotFound { .. }));
        if let Some(vm) = self.unbinds.remove(&call)
            && unbound
        {
            self.gone.insert(vm);
        }
    }

    /// Marks requests without an answer: they may have happened or not.
    pub fn crashed(&mut self) {
        for vm in std::mem::take(&mut self.unbinds).into_values() {
            self.gone.remove(&vm);
        }
    }

    /// Invariants at any time, from what callers see alone.
    pub fn check(&mut self, world: &World) {
        let mut taken = BTreeMap::new();
        for view in world.controller.bindings_after(None, None) {
            let vm = &view.record.spec.vm;
            for function in &view.record.functions {
                let before = taken.insert((function.card.clone(), function.function), vm.clone());
                assert_eq!(before, None, "function {} of two machines", function.function);
            }
            if self.gone.contains(vm) {
                assert!(view.record.state.has_ended(), "{vm} was unbound: {view:?}");
            }
            let is_silent =
                view.record.reason.as_ref().is_some_and(|why| why.contains("heartbeat"));
            if is_silent && self.looked_at.insert((vm.clone(), view.record.changed)) {
                let listened = world.heard.saturating_sub(self.last_beat);
                assert!(
                    listened >= LEASE,
                    "{vm} was unbound after {listened:?} without a heartbeat"
                );
            }
        }
    }

    /// Invariants when nothing is under way: the card leads packets of functions that are bound,
    /// each to the DAG of its machine, and of no other.
    pub fn check_quiet(world: &World) {
        let views: Vec<BindingView> = world.controller.bindings_after(None, None).collect();
        let mut expected = BTreeMap::new();
        for view in &views {
            match view.record.state {
                BindingState::Bound => {}
                state => {
                    assert!(state.has_ended(), "{view:?} when all is quiet");
                    assert!(view.record.functions.is_empty() && view.record.own.is_none());
                    continue;
                }
            }
            for (function, programmed) in view.record.functions.iter().zip(&view.programmed) {
                let dag = world.controller.dag_view(&function.dag).expect("it is bound");
                assert_eq!(*programmed, dag.state == DagState::Ready, "{view:?}");
                if *programmed {
                    let uid = dag.uid;
                    expected.insert(function.function, uid.raw());
                }
            }
        }
        let rows = 0..Table::Classifier.rows() as u16;
        let rows = rows.filter_map(|row| world.tables().get::<ClassifierRow>(row));
        let found: BTreeMap<u16, u32> =
            rows.filter_map(|row| Some((row.virtual_function?, row.dag_uid))).collect();
        assert_eq!(found, expected, "{}", world.log);
    }
}

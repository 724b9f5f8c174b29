//! One seed: what is asked, what fails, and what must hold.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;
use snic_card_sim::Faults;
use snic_controller::{
    Autoscaling, BatchPlan, CallId, Command, ControllerSettings, CreditReservation, DagBatch,
    Event, Fairness, NewDag, OperationWork, Reply, Request, Scheduling, Scheme, Steering,
};
use snic_domain::{
    Bandwidth, Caller, DagName, DagSpec, DagState, DeviceReading, Match, QuotaPatch, Rule, RuleId,
    Sensor, SensorKind, Tenant,
};

use crate::book::{Book, Seen};
use crate::callers::{check_lists, may_change, operator, random_caller};
use crate::machines::{CALLS, MACHINES, Machines};
use crate::model::{Model, Wish};
use crate::operators::{self, drains_twice, is_drain};
use crate::rates::RatesBook;
use crate::requests::{random_batch, random_name, random_quota, random_spec, random_tenant};
use crate::trust;
use crate::weights::Weights;
use crate::windows;
use crate::world::{CATALOGUE, TENANTS, World, card_id, tenant};

/// Steps of chaos in a run.
const STEPS: u32 = 160;
/// Longer than any lease of a machine, which does not end with it.
const LEAP: Duration = Duration::from_secs(6);
/// Longer than an interval of usage.
const INTERVAL: Duration = Duration::from_secs(11);
/// Longest time until all is quiet once nothing fails any more.
const QUIET_MAX: Duration = Duration::from_secs(30);
/// Least time until that is believed: a power loss is found out by then.
/// And burst capacity is given back.
const CALM_MIN: Duration = Duration::from_millis(200);
/// Number of records and commands to the card that this may take for each region, DAG and machine: each is loaded,
/// programmed and stored a few times. Of 2,000 seeds none had more than 5.
const STEPS_EACH: usize = 20;

/// Calls about neither DAGs nor machines are numbered from here.
const OTHER_CALLS: u64 = 1 << 33;

/// One thing that happens in a step.
struct Act {
    name: &'static str,
    /// Frequency, in percent of all steps.
    weight: u32,
    run: fn(&mut Run),
}

/// Acts of the steps. The order is part of what a seed means.
const ACTS: [Act; 22] = [
    Act {
        name: "a tenant asks for a DAG, or to change or delete one",
        weight: 20,
        run: Run::request,
    },
    Act {
        name: "several DAGs are planned together, or created as planned before",
        weight: 3,
        run: Run::batch,
    },
    Act { name: "an operator changes a tenant", weight: 1, run: Run::change_tenant },
    Act { name: "somebody cancels or deletes an operation", weight: 2, run: Run::operation },
    Act { name: "a rule is made or deleted", weight: 1, run: Run::rule },
    Act {
        name: "an operator cordons, drains, resets or optimises, or loads a role",
        weight: 4,
        run: |run| run.operate(operators::of_card),
    },
    Act {
        name: "a bitstream is deleted or registered",
        weight: 1,
        run: |run| run.operate(operators::bitstream),
    },
    Act {
        name: "maintenance begins or ends",
        weight: 1,
        run: |run| run.operate(operators::maintain),
    },
    Act { name: "the daemon crashes", weight: 2, run: Run::crash },
    Act { name: "other faults", weight: 2, run: Run::change_faults },
    Act { name: "the card's power fails", weight: 1, run: |run| run.world.power_cycle() },
    Act { name: "other policies", weight: 3, run: Run::change_policies },
    Act { name: "the card is lost", weight: 1, run: |run| run.world.card.lose() },
    Act {
        name: "the lost card is removed, and comes back as a new one",
        weight: 1,
        run: Run::remove_card,
    },
    Act { name: "another device takes the place of the card", weight: 1, run: Run::replace_card },
    Act {
        name: "the daemon is stopped for a long time",
        weight: 1,
        run: |run| run.world.leap(LEAP),
    },
    Act { name: "a machine starts, stops or is alive", weight: 4, run: Run::machine },
    Act { name: "the store commits", weight: 21, run: Run::commit },
    Act { name: "the card's sensors are read", weight: 1, run: Run::read_device },
    Act { name: "microseconds pass", weight: 19, run: Run::pass_micros },
    Act { name: "milliseconds pass", weight: 8, run: Run::pass_millis },
    Act { name: "tasks of a region hang", weight: 2, run: |run| run.world.hang_region() },
];

/// An invariant after every step.
struct Invariant {
    name: &'static str,
    check: fn(&mut Run),
}

/// In their order after a step. Beside these, `World` checks what holds at each event and each command to the
/// card: the controller's own check, the durability barrier, rows that lead to a region that is loaded.
const INVARIANTS: [Invariant; 8] = [
    Invariant {
        name: "no NT over its bandwidth, one content a region",
        check: |run| run.check_mappings(),
    },
    Invariant {
        name: "no DAG passes an image that it does not trust",
        check: |run| trust::check(&run.world),
    },
    Invariant { name: "what callers see of machines", check: |run| run.machines.check(&run.world) },
    Invariant { name: "visibility and quotas", check: Run::check_book },
    Invariant { name: "shares by weight", check: Run::check_weights },
    Invariant { name: "lists agree with single reads", check: Run::check_lists },
    Invariant { name: "the card model's own check", check: Run::check_card },
    Invariant {
        name: "NTs have the configurations that rows name",
        check: |run| windows::check(&mut run.world),
    },
];

/// A seed that broke a promise.
pub struct FailedSeed {
    seed: u64,
    step: u32,
    during: &'static str,
    trace: String,
    panic: Box<dyn Any + Send>,
}

impl FailedSeed {
    /// Prints all that happened, and fails as the promise did.
    pub fn tell(self) -> ! {
        let Self { seed, step, during, trace, panic } = self;
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        eprintln!("{trace}seed {seed} failed in step {step} of {STEPS}, {during}: {text}");
        resume_unwind(panic)
    }
}

/// A reading of the card's only sensor.
fn sensors(celsius: Option<i64>) -> Event {
    let sensor = Sensor {
        name: "fpga".into(),
        kind: SensorKind::Temperature,
        milli: celsius.map(|celsius| celsius * 1_000),
        limit_milli: None,
    };
    let reading = DeviceReading { sensors: vec![sensor], ..DeviceReading::default() };
    Event::DeviceRead { card: card_id(), reading: Box::new(reading) }
}

struct Run {
    /// Steps so far.
    step: u32,
    /// The act or the invariant.
    during: &'static str,
    world: World,
    model: Model,
    machines: Machines,
    book: Book,
    weights: Weights,
    other_calls: u64,
    /// A batch that was planned and not asked for yet, while the cards may change.
    planned: Option<(DagBatch, BatchPlan)>,
    /// Batches that wait for DAGs to move.
    waiting: BTreeMap<CallId, DagBatch>,
}

/// Runs a seed; gives its story, and how often it came to what it is about.
///
/// # Errors
/// A promise was broken.
pub fn run(seed: u64) -> Result<(String, Seen), FailedSeed> {
    let mut run = Run {
        step: 0,
        during: "the catalogue is made",
        world: World::new(seed),
        model: Model::default(),
        machines: Machines::default(),
        book: Book::default(),
        weights: Weights::default(),
        other_calls: OTHER_CALLS,
        planned: None,
        waiting: BTreeMap::new(),
    };
    let kept = catch_unwind(AssertUnwindSafe(|| {
        run.set_up();
        for _ in 0..STEPS {
            run.step();
        }
        run.during = "it becomes quiet";
        run.calm_down();
        run.check_quiet();
        run.during = "a restart when all is quiet";
        run.check_restart();
        run.during = "bills are compared";
        run.check_bills();
    }));
    let Run { step, during, world, book, .. } = run;
    match kept {
        Ok(()) => Ok((world.log, book.seen)),
        Err(panic) => Err(FailedSeed { seed, step, during, trace: world.log, panic }),
    }
}

impl Run {
    fn set_up(&mut self) {
        for id in (0..TENANTS).map(tenant) {
            let weight = self.world.rng.random_range(1..=8);
            let quota = random_quota(&mut self.world);
            self.order(Command::CreateTenant(Tenant {
                id: id.clone(),
                weight,
                quota,
                notes: Default::default(),
                project: None,
            }));
            self.weights.set(&self.world.controller, &id, weight);
        }
        let nts = CATALOGUE.nts.iter().cloned().map(Command::CreateNtType);
        let bitstreams = CATALOGUE.bitstreams.iter().cloned().map(Command::CreateBitstream);
        nts.chain(bitstreams).for_each(|command| self.order(command));
        for (nt, bitstream) in CATALOGUE.own.iter().cloned() {
            let owner = Caller::Tenant(nt.id.owner().expect("a tenant's own"));
            self.send(CallId(0), owner.clone(), Command::CreateNtType(nt));
            self.send(CallId(0), owner, Command::CreateBitstream(bitstream));
        }
        for bitstream in CATALOGUE.shared.iter().cloned() {
            let owner = Caller::Tenant(bitstream.id.owner().expect("a tenant's"));
            self.send(CallId(0), owner, Command::CreateBitstream(bitstream));
        }
        self.world.commit(usize::MAX);
        for (_, result) in std::mem::take(&mut self.world.replies) {
            result.expect("the catalogue is valid");
        }
    }

    fn send(&mut self, call: CallId, caller: Caller, command: Command) {
        if call != CallId(0) {
            self.book.asks(&self.world.controller, call, &caller, &command);
        }
        let request = Box::new(Request { caller, request_id: None, command });
        self.world.handle(Event::Request { call, request });
        if self.world.controller.held_calls().any(|held| held == call) {
            self.book.waits(call);
        }
    }

    /// An operator asks for something of which the answer does not matter.
    fn order(&mut self, command: Command) {
        self.send(CallId(0), operator(), command);
    }

    /// The next call that the model need not hear of.
    fn other_call(&mut self) -> CallId {
        self.other_calls += 1;
        CallId(self.other_calls)
    }

    fn step(&mut self) {
        self.step += 1;
        let mut drawn = self.world.rng.random_range(0..100);
        let act = ACTS.iter().find(|act| {
            let is_it = drawn < act.weight;
            drawn = drawn.saturating_sub(act.weight);
            is_it
        });
        let act = act.expect("the weights make a hundred");
        self.during = act.name;
        (act.run)(self);
        self.count_calls();
        self.world.open_card();
        self.during = "replies that quotas and rights allow";
        self.take_replies();
        self.world.keep_traffic();
        for invariant in &INVARIANTS {
            self.during = invariant.name;
            (invariant.check)(self);
        }
    }

    /// The front tells of calls now and then; the numbers follow from the step.
    fn count_calls(&mut self) {
        if self.step.is_multiple_of(11) {
            let (own, calls) = (tenant(self.step % TENANTS), 1 + u64::from(self.step % 5));
            self.world.usage.calls(own.clone(), calls);
            self.world.handle(Event::CallsCounted { calls: vec![(own, calls)], is_last: false });
        }
    }

    fn commit(&mut self) {
        let count = self.world.rng.random_range(1..4);
        self.world.commit(count);
    }

    fn pass_micros(&mut self) {
        let micros = self.world.rng.random_range(1..400);
        self.world.pass(Duration::from_micros(micros));
    }

    fn pass_millis(&mut self) {
        let millis = self.world.rng.random_range(1..8);
        self.world.pass(Duration::from_millis(millis));
    }

    fn check_book(&mut self) {
        let is_kept = self.book.check(&self.world.controller);
        is_kept.unwrap_or_else(|broken| panic!("{broken}"));
    }

    fn check_weights(&mut self) {
        self.book.seen.twice += u64::from(drains_twice(&self.world));
        self.book.seen.shares += self.weights.check(&self.world.controller);
    }

    fn check_lists(&mut self) {
        if self.world.chance(6) {
            check_lists(&self.world.controller);
        }
    }

    fn check_card(&mut self) {
        self.world.card.check().expect("the card's invariants");
    }

    fn request(&mut self) {
        let name = random_name(&mut self.world);
        let exists = self.world.controller.dag_view(&name).is_some();
        let (wish, command) = if exists && self.world.chance(50) {
            let command = Command::DeleteDag { name: name.clone(), etag: None };
            (Wish::Remove(name.clone()), command)
        } else {
            let spec = random_spec(&mut self.world, &name.tenant);
            let wish = Wish::Put(name.clone(), spec.clone());
            let name = name.clone();
            let command = if exists {
                Command::UpdateDag { name, patch: spec.into(), etag: None, validate_only: false }
            } else {
                Command::CreateDag { name, spec, validate_only: false }
            };
            (wish, command)
        };
        let caller = random_caller(&mut self.world, &name);
        let call = match may_change(&caller, &name.tenant) {
            true => self.model.ask(wish),
            false => self.other_call(),
        };
        self.world.note(format_args!("{call:?} for {name}, exists: {exists}, by {caller:?}"));
        self.send(call, caller, command);
    }

    /// Somebody asks for DAGs in one step: as they were planned a while ago, or as they are planned now.
    fn batch(&mut self) {
        let Some((batch, plan)) = self.planned.take() else {
            let batch = random_batch(&mut self.world);
            let plan = self.world.controller.batch_snapshot(&batch).plan();
            self.planned = Some((batch, plan));
            if self.world.chance(50) {
                self.batch();
            }
            return;
        };
        let name = |of: &NewDag| DagName { tenant: batch.tenant.clone(), dag: of.id.clone() };
        let caller = random_caller(&mut self.world, &name(&batch.dags[0]));
        let call = match may_change(&caller, &batch.tenant) && !batch.validate_only {
            true => {
                let call = self.model.next_call();
                let wish = |of: &NewDag| Wish::Put(name(of), of.spec.clone());
                self.model.asked_for_all(call, batch.dags.iter().map(wish).collect());
                call
            }
            false => self.other_call(),
        };
        self.world.note(format_args!("{call:?} for {batch:?}, by {caller:?}"));
        self.send(call, caller, Command::CreateDags { batch: batch.clone(), plan });
        if self.world.controller.held_calls().any(|held| held == call) {
            self.waiting.insert(call, batch);
        }
    }

    /// Somebody cancels an operation, or has it forgotten.
    fn operation(&mut self) {
        let all: Vec<_> = self.world.controller.operations(&operator()).collect();
        let Some(view) = all.choose(&mut self.world.rng) else { return };
        let id = view.record.id.clone();
        if is_drain(&view.record) {
            self.world.note(format_args!("cancels {:?}", view.record));
            return self.order(Command::CancelOperation { id });
        }
        let (OperationWork::CreateDag(name)
        | OperationWork::UpdateDag(name)
        | OperationWork::DeleteDag(name, _)) = &view.record.work
        else {
            return;
        };
        let caller = random_caller(&mut self.world, name);
        if self.world.chance(20) {
            let call = self.other_call();
            return self.send(call, caller, Command::DeleteOperation { id });
        }
        let call = self.model.next_call();
        self.world.note(format_args!("{call:?} cancels {:?}, by {caller:?}", view.record));
        self.send(call, caller, Command::CancelOperation { id });
        let after = self.world.controller.dag_view(name).map(|dag| dag.spec);
        self.model.asked(
            call,
            match after {
                Some(spec) => Wish::Put(name.clone(), spec),
                None => Wish::Remove(name.clone()),
            },
        );
    }

    fn change_tenant(&mut self) {
        let id = random_tenant(&mut self.world);
        let weight = self.world.chance(50).then(|| self.world.rng.random_range(1..=8));
        let quota = self.world.chance(70).then(|| random_quota(&mut self.world));
        self.book.keeps(&self.world.controller, &id);
        let quota = quota.map(QuotaPatch::from);
        let command = Command::UpdateTenant {
            id: id.clone(),
            patch: snic_domain::TenantPatch { weight, quota, ..Default::default() },
            etag: None,
        };
        self.world.note(format_args!("{command:?}"));
        self.order(command);
        if let Some(weight) = weight {
            self.weights.set(&self.world.controller, &id, weight);
        }
    }

    /// Operators have rules beside those of machines.
    fn rule(&mut self) {
        let number = self.world.rng.random_range(0..4);
        let id = RuleId::new(&format!("r{number}")).expect("a label");
        let dags: Vec<DagName> = self.actual().into_keys().collect();
        let command = match dags.choose(&mut self.world.rng) {
            Some(dag) if self.world.controller.rule_view(&id).is_none() => {
                let matches = Match { vni: Some(number), ..Match::default() };
                Command::CreateRule(Rule {
                    id,
                    priority: 3,
                    matches,
                    dag: dag.clone(),
                    notes: Default::default(),
                })
            }
            _ => Command::DeleteRule { id, etag: None },
        };
        self.world.note(format_args!("{command:?}"));
        let call = self.other_call();
        self.send(call, operator(), command);
    }

    fn machine(&mut self) {
        let dags: Vec<DagName> = self.actual().into_keys().collect();
        let (call, command) = self.machines.act(&mut self.world, &dags);
        self.world.note(format_args!("{command:?}"));
        self.send(call, Caller::Orchestrator("simulation".into()), command);
    }

    fn operate(&mut self, command: fn(&mut World) -> Command) {
        let command = command(&mut self.world);
        self.world.note(format_args!("{command:?}"));
        self.order(command);
    }

    /// The settings still name it, so the next daemon takes it as a new card.
    fn remove_card(&mut self) {
        self.world.lose_card("it does not answer");
        self.order(Command::RemoveCard { card: card_id() });
        self.book.seen.removed += u64::from(self.world.controller.card_view(&card_id()).is_none());
        let batches = self.world.rng.random_range(0..3);
        self.world.commit(batches);
        self.crash();
    }

    /// It has another number of regions, and nothing in them.
    fn replace_card(&mut self) {
        if !self.world.is_another_device() {
            self.world.lose_card("it was pulled out");
            self.world.put_in_another_device();
        }
        self.order(Command::ReplaceCard { card: card_id() });
        self.book.seen.replaced += u64::from(!self.world.is_another_device());
        if self.world.chance(30) {
            self.crash();
        }
    }

    /// Mostly it is cool, so that something can be placed.
    fn read_device(&mut self) {
        let rng = &mut self.world.rng;
        let celsius = rng.random_ratio(9, 10).then(|| match rng.random_range(0..4) {
            0 => rng.random_range(80..110),
            _ => rng.random_range(20..90),
        });
        self.world.note(format_args!("sensor: {celsius:?}"));
        self.world.handle(sensors(celsius));
        let card = self.world.controller.card_view(&card_id());
        let device = card.and_then(|card| card.device);
        if let (Some(device), Some(celsius)) = (device, celsius) {
            assert!(device.is_fit || celsius > 90, "{celsius} is below the limit and its margin");
            assert!(!device.is_fit || celsius < 95, "{celsius} is at the limit");
        }
    }

    fn change_policies(&mut self) {
        let schemes = [Scheme::Static, Scheme::Drf, Scheme::Full];
        let usual = self.world.settings;
        let rng = &mut self.world.rng;
        let fairness = Fairness {
            scheme: *schemes.choose(rng).expect("three schemes"),
            epoch: Duration::from_millis(rng.random_range(1..=40)),
            headroom_percent: rng.random_range(0..=50),
            ..Fairness::default()
        };
        let autoscaling = Autoscaling {
            enabled: rng.random_ratio(9, 10),
            monitor_period: Duration::from_millis(rng.random_range(1..=20)),
            ..Autoscaling::default()
        };
        let scheduling = Scheduling {
            steering: *[Steering::RoundRobin, Steering::LeastLoaded].choose(rng).expect("two"),
            reservation: *[CreditReservation::Chain, CreditReservation::Prefix]
                .choose(rng)
                .expect("two"),
        };
        let settings = ControllerSettings { fairness, autoscaling, scheduling, ..usual };
        self.world.note(format_args!("{settings:?}"));
        self.world.handle(Event::Settings(Box::new(settings)));
    }

    fn change_faults(&mut self) {
        let mut odds = |percent| if self.world.rng.random_ratio(1, 2) { percent } else { 0.0 };
        let faults = Faults {
            load_fails: odds(0.3),
            load_hangs: odds(0.1),
            state_fails: odds(0.2),
            state_hangs: odds(0.1),
            commit_hangs: odds(0.02),
            card_lost: odds(0.0005),
            window_refuses: odds(0.1),
            region_reports_other_nts: odds(0.1),
            nts_stop: odds(0.1),
        };
        self.world.note(format_args!("{faults:?}"));
        self.world.set_faults(faults);
    }

    fn crash(&mut self) {
        self.model.crashed();
        self.machines.crashed();
        self.book.crashed();
        self.world.replies.clear();
        self.waiting.clear();
        self.world.crash();
        self.world.usage.crashed();
        self.weights.crashed(&self.world.controller);
        self.model.check(&self.actual());
    }

    fn actual(&self) -> BTreeMap<DagName, DagSpec> {
        // DAGs that were made for machines come and go with them.
        let of_machine = |name: &DagName| name.dag.as_str().starts_with("vm-");
        let dags = self.world.controller.dags(None).into_iter();
        dags.filter(|dag| !of_machine(&dag.name)).map(|dag| (dag.name, dag.spec)).collect()
    }

    fn take_replies(&mut self) {
        for (call, result) in std::mem::take(&mut self.world.replies) {
            self.book.answered(call, &result);
            let waited = self.waiting.remove(&call);
            if let (Ok(Reply::PlanAgain(wait)), Some(batch)) = (&result, waited) {
                let plan = self.world.controller.batch_snapshot(&batch).plan();
                self.planned = Some((batch, plan.after(Some(*wait))));
                self.book.seen.planned_again += 1;
            }
            if call.0 < CALLS {
                self.model.answered(call, &result);
            } else {
                self.machines.answered(call, &result);
            }
        }
    }

    /// No NT over its bandwidth, no region with two contents: from what callers see alone.
    fn check_mappings(&self) {
        let mut reserved = BTreeMap::new();
        let mut contents = BTreeMap::new();
        for dag in self.world.controller.dags(None) {
            for instance in dag.mapping.iter().flat_map(snic_domain::Mapping::instances) {
                let content = &instance.bitstream;
                let before = contents.insert(instance.region, content.clone());
                let same = before.is_none_or(|before| before == *content);
                assert!(same, "region {} is to hold two things", instance.region);
                for slot in &instance.slots {
                    *reserved.entry((instance.region, *slot)).or_insert(Bandwidth::ZERO) +=
                        instance.bandwidth;
                }
            }
        }
        for ((region, slot), sum) in reserved {
            let nt = &CATALOGUE.bitstream(&contents[&region]).nts[slot.index()];
            let nt = CATALOGUE.nt(nt);
            assert!(sum <= nt.bandwidth_max, "{} in region {region}: {sum}", nt.id);
        }
    }

    /// Regions, DAGs and machines that there may be something to do for.
    fn things(&self) -> usize {
        let (dags, regions) = (self.world.controller.dags(None), &self.world.profile.regions);
        dags.len() + regions.len() + MACHINES as usize
    }

    /// Nothing fails any more; time passes until nothing is under way, after a bounded number of steps.
    fn calm_down(&mut self) {
        self.world.set_faults(Faults::default());
        self.world.loads.silent = true;
        // A daemon that starts again starts with these.
        self.world.handle(Event::Settings(Box::new(self.world.settings)));
        self.world.handle(sensors(Some(20)));
        // A hang lasts until the power fails, by the fault's definition.
        self.world.power_cycle();
        // Leases end: nobody sends a heartbeat any more. Of each leap, in which the daemon hears nothing, little counts.
        (0..4).for_each(|_| self.world.leap(LEAP));
        let (begin, end) = (self.world.now + CALM_MIN, self.world.now + QUIET_MAX);
        let mut quiet = 0;
        let steps_max = self.world.steps + STEPS_EACH * self.things();
        while quiet < 3 || self.world.now < begin {
            assert!(self.world.now < end, "it never became quiet");
            assert!(self.world.steps <= steps_max, "it takes one step after the other");
            self.world.open_card();
            if self.world.is_another_device() {
                self.order(Command::ReplaceCard { card: card_id() });
            }
            self.world.commit(usize::MAX);
            self.world.pass(Duration::from_millis(2));
            self.take_replies();
            self.world.keep_traffic();
            let waits = self.world.controller.next_wake_up().is_some();
            let ready = self.world.is_quiet() && !waits;
            quiet = if ready { quiet + 1 } else { 0 };
        }
        assert!(!self.model.is_waiting(), "a request was never answered");
        self.world.check_still();
    }

    /// Checks that desired and observed state agree, and that packets of every DAG come out.
    fn check_quiet(&mut self) {
        self.model.check(&self.actual());
        let before = self.world.card.take_measurements();
        assert_eq!(before.errors(), 0);
        self.world.pass(Duration::from_millis(4));
        let after = self.world.card.measurements();
        for dag in self.world.controller.dags(None) {
            match dag.state {
                DagState::Ready => {
                    assert_eq!(dag.observed_generation, dag.generation, "{}", dag.name);
                    let seen = after.dag(dag.uid.row());
                    assert!(
                        seen.is_some_and(|m| m.counters.packets_out > 0),
                        "{}: no packet of {seen:?}\n{dag:?}",
                        dag.name
                    );
                }
                // It was placed when there was room; a region failed since, and there is none now.
                DagState::Failed => assert!(dag.mapping.is_none(), "{}", dag.name),
                state => {
                    panic!("{} is {state:?} when all is quiet: {:?}", dag.name, dag.conditions)
                }
            }
        }
        Machines::check_quiet(&self.world);
        crate::states::check_quiet(&self.world);
        self.book.seen.configured += windows::check_quiet(&self.world);
        for operation in self.world.controller.operations(&operator()) {
            let record = &operation.record;
            assert!(operation.is_done() || is_drain(record), "{record:?} has not ended");
        }
    }

    /// Each tenant has a DAG in whose life nothing fails, where there is room: faults leave hardly any bill without a gap.
    fn begin_dags_without_faults(&mut self) {
        for (own, nt) in (0..TENANTS).map(tenant).zip(CATALOGUE.nts.iter().cycle()) {
            let name = DagName { tenant: own, dag: "last".parse().expect("a label") };
            let spec = DagSpec::chain(std::slice::from_ref(&nt.id), Bandwidth::from_mbps(100));
            self.order(Command::CreateDag { name, spec, validate_only: false });
        }
        for _ in 0..50 {
            self.world.commit(usize::MAX);
            self.world.pass(Duration::from_millis(2));
            self.world.keep_traffic();
        }
    }

    /// All intervals are closed, and bills are what was sent.
    fn check_bills(&mut self) {
        self.begin_dags_without_faults();
        let profile = self.world.profile.clone();
        let mut rates = RatesBook::begin(&self.world.controller, &profile);
        for interval in 0..3 {
            self.world.leap(INTERVAL);
            for _ in 0..8 {
                self.world.commit(usize::MAX);
                rates.look(&self.world.controller, &profile);
                self.world.pass(Duration::from_millis(25));
            }
            if interval == 0 {
                rates.closed(&self.world.controller, &self.world.durable);
            }
        }
        self.book.seen.rated += rates.check(&self.world.controller, &self.world.durable);
        let now = (&self.world.controller, self.world.now);
        let [billed, stored] = self.world.usage.check(now, &self.world.durable);
        self.book.seen.billed += billed;
        self.book.seen.stored += stored;
    }

    /// A daemon that starts again finds all in place: nothing is loaded, no table word is written.
    fn check_restart(&mut self) {
        let before = self.world.card.accesses();
        self.crash();
        for _ in 0..20 {
            self.world.commit(usize::MAX);
            self.world.pass(Duration::from_millis(2));
        }
        let after = self.world.card.accesses();
        assert_eq!(after.loads, before.loads, "a region that was right was loaded again");
        assert_eq!(after.table_words, before.table_words, "a right table was written");
        self.check_quiet();
    }
}

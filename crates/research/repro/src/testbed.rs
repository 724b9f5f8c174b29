//! The product on a test bed: controller, driver session and simulated card in one thread, under
//! virtual time. Nothing fails here and the store is always durable, as in the papers' figures;
//! faults have a simulation of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use snic_bitstream::build_test;
use snic_card_sim::{Measurements, PlaneOptions, SimCard, SourceId, TrafficSource};
use snic_controller::{
    CallId, CardCommand, CardReport, Command, Controller, ControllerSettings, DagView, Effect,
    Event, Outbox, Request,
};
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, Caller, CardId, CardProfile, Cycles, DagId, DagName,
    DagSpec, DagState, Digest, NtType, NtTypeId, Quota, RegionImages, RegionKind, Tenant, TenantId,
    Timestamp, Traffic,
};
use snic_ports::driver::{Deadlines, Session};
use snic_processors::NicModel;
use snic_tables::{TableImage, Ticket, WindowChanges};

/// Interval between steps of the session while something is under way.
const STEP: Duration = Duration::from_micros(20);
/// The same while a request waits for room.
const LONG_STEP: Duration = Duration::from_millis(1);
/// Longest time that the controller has a request wait.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time of a DAG until it serves: every region loaded again, and more.
const READY_MAX: Duration = Duration::from_secs(1);

/// An ordered list of NTs that a bitstream exists for.
pub type NtSequence<'a> = &'a [&'a str];

/// The setup of a test bed.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    pub card: CardProfile,
    /// Choices for its data plane.
    pub options: PlaneOptions,
    /// The NT types.
    pub nts: Vec<NtType>,
    /// The chains for which bitstreams exist.
    pub chains: Vec<NtSequence<'a>>,
}

/// An NT type of the provider: its name, its latency and its bandwidth.
///
/// # Errors
/// The id is not a label.
pub fn nt(id: &str, latency: u64, bandwidth_max: Bandwidth) -> Result<NtType> {
    Ok(NtType {
        traffic: Traffic::Payload,
        description: "An NT of an experiment".into(),
        ..NtType::new(
            NtTypeId::new(id)?,
            bandwidth_max,
            Cycles::new(latency),
            Area { lut: 1_000, ramb36: 0, dsp: 0 },
        )
    })
}

#[derive(Debug)]
pub struct Testbed {
    /// The control plane.
    pub controller: Controller,
    pub card: SimCard,
    /// Profile that the control plane gets.
    profile: CardProfile,
    session: Session,
    outbox: Outbox<Effect>,
    now: Timestamp,
    images: BTreeMap<Digest, Arc<[u8]>>,
    replies: BTreeMap<CallId, Result<snic_controller::Reply, snic_controller::ControlError>>,
    calls: u64,
}

fn card_id() -> Result<CardId> {
    Ok(CardId::new("card0")?)
}

impl Testbed {
    /// A bench with an empty card, one tenant called `lab` and the NTs and bitstreams of `setup`.
    ///
    /// # Errors
    /// The card's profile is not valid, or the controller refuses an NT or a bitstream of the setup.
    pub fn new(setup: &Setup<'_>) -> Result<Self> {
        Self::with_profile(setup, setup.card.clone(), &setup.nts)
    }

    /// The same with a card whose draws are from this seed.
    ///
    /// # Errors
    /// The same errors as [`Testbed::new`].
    pub fn with_seed(setup: &Setup<'_>, seed: u64) -> Result<Self> {
        let card = SimCard::with_options(setup.card.clone(), seed, setup.options)?;
        Self::with_card(setup, card, setup.card.clone(), &setup.nts)
    }

    /// The same where the control plane is told another profile than the card's, and other things of NTs than are so.
    ///
    /// # Errors
    /// The same errors as [`Testbed::new`].
    pub fn with_profile(setup: &Setup<'_>, profile: CardProfile, nts: &[NtType]) -> Result<Self> {
        let card = SimCard::with_options(setup.card.clone(), 1, setup.options)?;
        Self::with_card(setup, card, profile, nts)
    }

    fn with_card(
        setup: &Setup<'_>,
        card: SimCard,
        profile: CardProfile,
        nts: &[NtType],
    ) -> Result<Self> {
        let mut testbed = Self::of_card(card, profile, nts)?;
        for chain in &setup.chains {
            let bitstream = testbed.build(setup, chain)?;
            testbed.ask(Command::CreateBitstream(bitstream))?;
        }
        Ok(testbed)
    }

    /// A bench with a card that runs NTs as programs on the processors of this model, and one tenant called `lab`.
    ///
    /// # Errors
    /// The model is not enough for a card, or the controller refuses an NT.
    pub fn on_processors(model: &NicModel, nts: &[NtType]) -> Result<Self> {
        let profile = model.card_profile().context("the model says what a card needs")?;
        let card = SimCard::with_processors(profile.clone(), 1, Arc::new(model.clone()))?;
        let mut testbed = Self::of_card(card, profile, nts)?;
        testbed.controller.declare_models([model.clone()]);
        Ok(testbed)
    }

    fn of_card(card: SimCard, profile: CardProfile, nts: &[NtType]) -> Result<Self> {
        let now = Timestamp::from_nanos(1_000_000);
        let controller =
            Controller::recover(ControllerSettings::default(), [], 7, Timestamp::ZERO)?;
        let (images, replies) = (BTreeMap::new(), BTreeMap::new());
        let session = Session::new(Deadlines::default());
        let outbox = Outbox::new();
        let mut testbed =
            Self { controller, card, profile, session, outbox, now, images, replies, calls: 0 };
        testbed.appear()?;
        testbed.tenant("lab", 1)?;
        for nt in nts {
            testbed.ask(Command::CreateNtType(nt.clone()))?;
        }
        Ok(testbed)
    }

    fn appear(&mut self) -> Result<()> {
        let profile = Box::new(self.profile.clone());
        self.handle(Event::CardAppeared { card: card_id()?, profile })
    }

    /// The card's power fails, and it comes back.
    ///
    /// # Errors
    /// As [`Testbed::pass`].
    pub fn power_fails(&mut self) -> Result<()> {
        self.card.power_cycle();
        self.session = Session::new(Deadlines::default());
        let report = CardReport::Lost { reason: "its power failed".into() };
        self.handle(Event::Card { card: card_id()?, report })?;
        self.appear()
    }

    fn build(&mut self, setup: &Setup<'_>, chain: NtSequence<'_>) -> Result<Bitstream> {
        let find = |name: &&str| setup.nts.iter().find(|nt| nt.id.as_str() == *name);
        let nts: Option<Vec<&NtType>> = chain.iter().map(find).collect();
        let nts = nts.with_context(|| format!("an NT of {chain:?} is not among the NTs"))?;
        let regions = setup.card.regions.iter().map(|region| region.bitstream_max);
        let size = regions.max().context("the card has regions")?;
        let bytes = build_test(&setup.card, &nts, size)?;
        let digest = Digest::of(&bytes);
        self.images.insert(digest, Arc::from(bytes));
        Ok(Bitstream {
            id: BitstreamId::new(&chain.join("-"))?,
            images: RegionImages::for_all(digest, size),
            nts: nts.iter().map(|nt| nt.id.clone()).collect(),
            region_kind: RegionKind::KnownNt,
            card_model: setup.card.model.clone(),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        })
    }

    /// Adds another tenant, with a quota that is never reached.
    ///
    /// # Errors
    /// The id is not a label, or the controller refuses the tenant.
    pub fn tenant(&mut self, id: &str, weight: u32) -> Result<()> {
        let quota = Quota {
            bandwidth_max: Bandwidth::from_gbps(4_000),
            threads_max: u32::MAX,
            ..Quota::default()
        };
        self.ask(Command::CreateTenant(Tenant {
            id: TenantId::new(id)?,
            weight,
            quota,
            notes: Default::default(),
            project: None,
        }))
    }

    /// Sends the controller a request, as an operator.
    ///
    /// # Errors
    /// The controller refuses the change, or its handling failed as in [`Testbed::pass`].
    pub fn ask(&mut self, command: Command) -> Result<()> {
        self.calls += 1;
        let call = CallId(self.calls);
        let caller = Caller::Operator("repro".into());
        let request = Box::new(Request { caller, request_id: None, command });
        self.handle(Event::Request { call, request })?;
        let end = self.now + READY_MAX + WAIT_MAX;
        while !self.replies.contains_key(&call) && self.now < end {
            // It waits for DAGs that move together.
            self.live(LONG_STEP, LONG_STEP)?;
        }
        match self.replies.remove(&call) {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => bail!("the controller refuses: {error}"),
            None => bail!("the controller does not answer"),
        }
    }

    /// Submits a chain of NTs as tenant `lab` and waits until the card serves it.
    ///
    /// # Errors
    /// As [`Testbed::dag`].
    pub fn chain(&mut self, id: &str, nts: &[&str], bandwidth: Bandwidth) -> Result<DagView> {
        let nts = nts.iter().map(|nt| NtTypeId::new(nt)).collect::<Result<Vec<_>, _>>()?;
        self.dag("lab", id, DagSpec::chain(&nts, bandwidth))
    }

    /// Submits a DAG and waits until the card serves it.
    ///
    /// # Errors
    /// A name is not valid, the controller refuses the DAG, or the card does not serve it in time.
    pub fn dag(&mut self, tenant: &str, id: &str, spec: DagSpec) -> Result<DagView> {
        let name = DagName { tenant: TenantId::new(tenant)?, dag: DagId::new(id)? };
        self.ask(Command::CreateDag { name: name.clone(), spec, validate_only: false })?;
        let end = self.now + READY_MAX;
        while self.now < end {
            let dag = self.controller.dag_view(&name).context("it was created")?;
            if dag.state == DagState::Ready {
                return Ok(dag);
            }
            ensure!(dag.state != DagState::Failed, "{name} finds no place: {:?}", dag.conditions);
            self.pass(STEP)?;
        }
        bail!("{name} does not serve after {READY_MAX:?}")
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        let tx = self.controller.handle(event, self.now);
        if let Some(batch) = self.outbox.submit(tx, |effect| effect) {
            self.outbox.durable(batch.number);
        }
        while let Some(effect) = self.outbox.pop_ready() {
            match effect {
                Effect::Emit(_) | Effect::DropBlob(_) => {}
                Effect::Search { card, reconfigurations } => {
                    let found = self.controller.search(&card, reconfigurations);
                    self.handle(found)?;
                }
                Effect::Reply { call, result } => {
                    self.replies.insert(call, result);
                }
                Effect::Card { command, .. } => {
                    let bytes = match &command {
                        CardCommand::Load { digest, .. } => self.images.get(digest).cloned(),
                        _ => None,
                    };
                    self.session.submit(command, bytes);
                }
            }
        }
        Ok(())
    }

    /// Advances time by one step: the card runs, the session continues, the controller gets its
    /// reports.
    ///
    /// # Errors
    /// The simulated card is lost.
    pub fn pass(&mut self, time: Duration) -> Result<()> {
        self.now = self.now + time;
        for report in self.session.step(&mut self.card, self.now) {
            if let CardReport::Lost { reason } = &report {
                bail!("the simulated card is lost: {reason}");
            }
            self.handle(Event::Card { card: card_id()?, report })?;
        }
        if self.controller.next_wake_up().is_some_and(|at| at <= self.now) {
            self.handle(Event::Tick)?;
        }
        Ok(())
    }

    /// Changes rows of the card through the driver, without the controller: what it does not do itself yet.
    ///
    /// # Errors
    /// `change` fails, or the card refuses the rows or does not take them in time.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut TableImage) -> Result<()>) -> Result<()> {
        let active = self.card.active_tables();
        let mut target = active.clone();
        change(&mut target)?;
        let (configurations, windows) = (Vec::new(), WindowChanges::default());
        let (ticket, delta) = (Ticket(u64::MAX), active.delta_to(&target));
        let program =
            CardCommand::Program { ticket, delta, configurations, windows, rates_only: false };
        self.session.submit(program, None);
        let end = self.now + READY_MAX;
        while self.now < end {
            self.now = self.now + STEP;
            for report in self.session.step(&mut self.card, self.now) {
                match report {
                    CardReport::Programmed { ticket: own, result, .. } if own == ticket => {
                        result.map_err(|failure| anyhow!("the card refuses rows: {failure:?}"))?;
                        return Ok(());
                    }
                    report => self.handle(Event::Card { card: card_id()?, report })?,
                }
            }
        }
        bail!("the card does not take rows within {READY_MAX:?}")
    }

    /// The card's counters are read and given to the controller, as the daemon does it at
    /// intervals.
    ///
    /// # Errors
    /// As [`Testbed::pass`].
    pub fn sample(&mut self) -> Result<()> {
        self.handle(Event::Sample)
    }

    /// Advances time in steps with the loop running, as in the daemon: counters are read when that
    /// is due.
    ///
    /// # Errors
    /// As [`Testbed::pass`].
    pub fn live(&mut self, time: Duration, step: Duration) -> Result<()> {
        let end = self.now + time;
        while self.now < end {
            self.pass(step.min(end.since(self.now)))?;
            if self.controller.next_sample() <= self.now {
                self.sample()?;
            }
        }
        Ok(())
    }

    /// Replaces the policies, from the next end of an epoch on.
    ///
    /// # Errors
    /// As [`Testbed::pass`].
    pub fn policies(&mut self, settings: ControllerSettings) -> Result<()> {
        self.handle(Event::Settings(Box::new(settings)))
    }

    /// The present time.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Attaches a traffic source from now on.
    ///
    /// # Errors
    /// The card model refuses the source: see `SimCard::attach`.
    pub fn send(&mut self, source: TrafficSource) -> Result<SourceId> {
        Ok(self.card.attach(source)?)
    }

    /// Runs for `warm_up` and then for `time`; returns the measurements of the latter.
    ///
    /// # Errors
    /// As [`Testbed::pass`]; or packets met faults, or the card model lost something.
    pub fn measure(&mut self, warm_up: Duration, time: Duration) -> Result<Measurements> {
        self.pass(warm_up)?;
        self.card.take_measurements();
        self.pass(time)?;
        let measured = self.card.take_measurements();
        ensure!(measured.errors() == 0, "packets met faults: {measured:?}");
        self.card.check().map_err(anyhow::Error::msg)?;
        Ok(measured)
    }

    /// The latency of a DAG whose packets meet no others, in cycles.
    ///
    /// # Errors
    /// As [`Testbed::measure`]; or packets did not go through, or met others.
    pub fn latency_alone(&mut self, dag: &DagView) -> Result<u64> {
        let row = dag.uid.row();
        let slow = Bandwidth::from_mbps(100);
        let source =
            TrafficSource::of_dag(dag.uid, slow, snic_card_sim::Sizes::Fixed(64)).at_most(3);
        self.send(source)?;
        let micros = Duration::from_micros;
        let measured = self.measure(micros(0), micros(100))?;
        let latency = measured.dag(row).context("packets went through")?.latency;
        ensure!(latency.count == 3 && latency.min == latency.max, "packets met others");
        Ok(latency.min)
    }
}

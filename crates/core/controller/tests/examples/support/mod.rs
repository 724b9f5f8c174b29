//! The shell of the examples: carries out effects in their order, each when a test says so.

pub mod card;
pub mod things;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use snic_controller::{
    CallId, CardCommand, CardReport, Change, Command, ControlError, Controller, ControllerSettings,
    DagView, Effect, Event, InvalidRecord, LOOKS_OF_AN_EVENT, NumberedBatch, OperationView, Outbox,
    Reply, Request, Tx,
};
use snic_domain::{
    Caller, CardId, Condition, ConditionType, DagState, Digest, OperationId, RegionId, RegionState,
    Timestamp,
};
use snic_ports::store::RECORD_BYTES_MAX;
use snic_tables::StateOrder;
use snic_usage::Prices;

use card::TinyCard;
use things::{bitstreams, card_id, create, dag, functions, nts, profile, spec, tenant, tenant_id};

pub type Records = BTreeMap<String, Vec<u8>>;
pub type Answer = Result<Reply, ControlError>;

/// When the daemon dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Before the batch of this number is durable.
    Before(usize),
    /// Right after it is durable, before anything that waits for it.
    After(usize),
}

/// Fate of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Persisted {
    Durable,
    /// The daemon died over it, and started again.
    Died,
}

/// The controller, its store and its cards.
pub struct World {
    pub now: Timestamp,
    pub controller: Controller,
    /// Settings of the next controller.
    pub settings: ControllerSettings,
    pub durable: Records,
    /// Batches made durable so far.
    pub batches: usize,
    pub cards: BTreeMap<CardId, TinyCard>,
    /// Commands that cards did not answer yet.
    pub asked: VecDeque<(CardId, CardCommand)>,
    /// Reported changes, with the DAG of each as it was then.
    pub changes: Vec<(Change, Option<DagView>)>,
    pub dropped: Vec<Digest>,
    /// Transaction of the last event.
    pub tx: Tx,
    /// Cards that are to be searched, and with how many loads.
    pub searches: VecDeque<(CardId, u32)>,
    outbox: Outbox<Effect>,
    pub crash: Option<Crash>,
    in_fleet: bool,
    prices: Option<Arc<Prices>>,
    answers: BTreeMap<u64, Answer>,
    calls: u64,
}

pub fn operator() -> Caller {
    Caller::Operator("ada".into())
}

/// Nothing is moved unless it is asked for: [`World::settle`] lets time pass until nothing is due.
pub fn settings() -> ControllerSettings {
    let mut settings = ControllerSettings::default();
    settings.consolidation.after = None;
    settings
}

pub fn recover(records: &Records, now: Timestamp) -> Result<Controller, InvalidRecord> {
    let records = records.iter().map(|(key, value)| (key.clone(), value.clone()));
    let mut controller = Controller::recover(settings(), records, 7, now)?;
    controller.declare_functions(card_id(), functions());
    Ok(controller)
}

impl World {
    /// A new store and no card.
    pub fn empty() -> Self {
        let now = Timestamp::from_nanos(1_000_000_000);
        Self {
            now,
            settings: settings(),
            controller: recover(&Records::new(), now).expect("nothing is readable"),
            durable: Records::new(),
            batches: 0,
            cards: BTreeMap::new(),
            asked: VecDeque::new(),
            changes: Vec::new(),
            dropped: Vec::new(),
            searches: VecDeque::new(),
            tx: Tx::default(),
            outbox: Outbox::new(),
            crash: None,
            in_fleet: false,
            prices: None,
            answers: BTreeMap::new(),
            calls: 0,
        }
    }

    /// The catalogue and the tenants `acme` and `beta`; no card.
    pub fn without_card() -> Self {
        let mut world = Self::empty();
        world.fill();
        world
    }

    /// The same with a card that was read back.
    pub fn new() -> Self {
        let mut world = Self::empty();
        world.add_card(card_id());
        world.settle();
        world.fill();
        world
    }

    pub fn fill(&mut self) {
        let tenants = ["acme", "beta"].map(|id| Command::CreateTenant(tenant(id)));
        let nts = nts().into_iter().map(Command::CreateNtType);
        let bitstreams = bitstreams().into_iter().map(Command::CreateBitstream);
        for command in tenants.into_iter().chain(nts).chain(bitstreams) {
            self.ask(command).expect("the catalogue is valid");
        }
    }

    /// The host belongs to a fleet from now on, or no longer.
    pub fn join_fleet(&mut self, in_fleet: bool) {
        self.in_fleet = in_fleet;
        self.controller.declare_fleet(in_fleet);
    }

    pub fn add_card(&mut self, id: CardId) {
        self.cards.entry(id.clone()).or_insert_with(|| TinyCard::new(profile()));
        self.appear(&id);
    }

    /// A card is opened (again).
    pub fn appear(&mut self, id: &CardId) {
        let profile = Box::new(self.cards[id].profile.clone());
        self.asked.retain(|(card, _)| card != id);
        self.handle(Event::CardAppeared { card: id.clone(), profile });
    }

    pub fn card(&mut self) -> &mut TinyCard {
        self.cards.get_mut(&card_id()).expect("there is one")
    }

    /// The card says that it is gone.
    pub fn lose_card(&mut self) {
        self.asked.clear();
        let report = CardReport::Lost { reason: "no answer on the bus".into() };
        self.handle(Event::Card { card: card_id(), report });
    }

    /// Gives an event to the controller and carries out what follows, up to commands to cards.
    pub fn handle(&mut self, event: Event) {
        if let Event::PricesChanged(prices) = &event {
            self.prices.clone_from(prices);
        }
        let tx = self.controller.handle(event, self.now);
        let looks = self.controller.looks();
        assert!(looks <= LOOKS_OF_AN_EVENT, "{looks} looks of the planner with one event");
        self.controller.check().expect("the controller's invariants");
        self.tx = tx.clone();
        let batch = self.outbox.submit(tx, |effect| effect);
        if batch.is_some_and(|batch| self.persist(batch) == Persisted::Died) {
            return;
        }
        while let Some(effect) = self.outbox.pop_ready() {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Card { card, command } => {
                self.check_overtakes_no_save(&card, &command);
                self.asked.push_back((card, command));
            }
            Effect::Reply { call, result } => {
                let before = self.answers.insert(call.0, result);
                assert!(before.is_none(), "{call:?} was answered twice");
            }
            Effect::Emit(change) => {
                let dag = match &change {
                    Change::Dag(name, _) => self.controller.dag_view(name),
                    Change::DagDeleted(dag) => Some(DagView::clone(dag)),
                    _ => None,
                };
                self.changes.push((change, dag));
            }
            Effect::DropBlob(digest) => self.dropped.push(digest),
            Effect::Search { card, reconfigurations } => {
                self.searches.push_back((card, reconfigurations));
            }
        }
    }

    /// A region is loaded when the card has answered to what saves it: a save may fail, and then what is
    /// kept there is needed yet.
    fn check_overtakes_no_save(&self, card: &CardId, command: &CardCommand) {
        let CardCommand::Load { region, .. } = command else { return };
        let saves = |asked: &CardCommand| match asked {
            CardCommand::State { region: from, order: StateOrder::Save { .. }, .. } => {
                from == region
            }
            _ => false,
        };
        let overtakes = self.asked.iter().any(|(of, asked)| of == card && saves(asked));
        assert!(!overtakes, "region {region} is loaded before it is saved: {:?}", self.asked);
    }

    /// Makes a batch durable, unless the daemon dies first.
    fn persist(&mut self, batch: NumberedBatch) -> Persisted {
        let count = self.batches;
        if self.crash.take_if(|crash| *crash == Crash::Before(count)).is_some() {
            self.restart();
            return Persisted::Died;
        }
        self.batches += 1;
        for (key, value) in batch.writes {
            let bytes = value.as_ref().map_or(0, Vec::len);
            assert!(bytes <= RECORD_BYTES_MAX, "{key} has {bytes} bytes");
            match value {
                Some(value) => self.durable.insert(key, value),
                None => self.durable.remove(&key),
            };
        }
        if self.crash.take_if(|crash| *crash == Crash::After(count)).is_some() {
            self.restart();
            return Persisted::Died;
        }
        self.outbox.durable(batch.number);
        Persisted::Durable
    }

    /// The daemon starts again from what is durable; the cards kept running. It belongs to a fleet as before.
    pub fn restart(&mut self) {
        self.asked.clear();
        self.searches.clear();
        self.outbox = Outbox::new();
        let records = self.durable.iter().map(|(key, value)| (key.clone(), value.clone()));
        self.controller = Controller::recover(self.settings, records, 7, self.now)
            .expect("our own records are readable");
        self.controller.declare_functions(card_id(), functions());
        self.controller.declare_fleet(self.in_fleet);
        self.controller.declare_prices(self.prices.clone());
        self.controller.check().expect("the invariants after recovery");
        for id in self.cards.keys().cloned().collect::<Vec<_>>() {
            self.appear(&id);
        }
    }

    /// Asks for a change as an operator.
    pub fn ask(&mut self, command: Command) -> Answer {
        self.ask_as(operator(), command)
    }

    pub fn ask_as(&mut self, caller: Caller, command: Command) -> Answer {
        let request = Request { caller, request_id: None, command };
        self.request(request).expect("every request is answered at once")
    }

    /// Asks with a request id.
    pub fn ask_once(&mut self, id: &str, command: Command) -> Answer {
        let request = Request { caller: operator(), request_id: Some(id.into()), command };
        self.request(request).expect("every request is answered at once")
    }

    /// The answer, unless the daemon died over it.
    pub fn request(&mut self, request: Request) -> Option<Answer> {
        let call = self.post(request);
        self.answer(call)
    }

    /// Sends a request that may have to wait.
    pub fn post(&mut self, request: Request) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        self.handle(Event::Request { call, request: Box::new(request) });
        call
    }

    /// The answer to a call, if there is one by now.
    pub fn answer(&mut self, call: CallId) -> Option<Answer> {
        self.answers.remove(&call.0)
    }

    /// Has what is searched found.
    pub fn search(&mut self) {
        while let Some((card, reconfigurations)) = self.searches.pop_front() {
            let found = self.controller.search(&card, reconfigurations);
            self.handle(found);
        }
    }

    /// Has searches and the oldest command answered; says which.
    pub fn answer_one(&mut self) -> Option<CardCommand> {
        self.search();
        let (id, command) = self.asked.pop_front()?;
        let card = self.cards.get_mut(&id).expect("a card that appeared");
        let report = card.answer(command.clone());
        if matches!(report, CardReport::Lost { .. }) {
            self.asked.retain(|(card, _)| *card != id);
        }
        self.handle(Event::Card { card: id, report });
        Some(command)
    }

    /// Has everything answered, without letting time pass.
    pub fn run(&mut self) {
        for _ in 0..10_000 {
            if self.answer_one().is_none() {
                return;
            }
        }
        panic!("the controller never stops asking: {:?}", self.asked);
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.handle(Event::Tick);
    }

    /// Lets so many seconds pass while the daemon runs: it has an event each second.
    pub fn listen(&mut self, seconds: u32) {
        (0..seconds).for_each(|_| self.pass(Duration::from_secs(1)));
    }

    /// Has everything answered, and time pass, until nothing is under way.
    pub fn settle(&mut self) {
        for _ in 0..1_000 {
            self.run();
            match self.controller.next_wake_up() {
                Some(at) => {
                    assert!(at >= self.now, "a wake-up in the past");
                    self.pass(at.since(self.now));
                }
                None if self.asked.is_empty() && self.searches.is_empty() => return,
                None => {}
            }
        }
        panic!("it never becomes quiet");
    }

    /// Creates a chain of NTs and has it served.
    pub fn deploy(&mut self, name: &str, chain: &str, gbps: u64) {
        self.ask(create(name, spec(chain, gbps))).expect("there is room");
        self.settle();
        assert_eq!(self.state(name), DagState::Ready, "{:?}", self.view(name).conditions);
    }

    pub fn view(&self, name: &str) -> DagView {
        self.controller.dag_view(&dag(name)).expect("the DAG exists")
    }

    pub fn state(&self, name: &str) -> DagState {
        self.view(name).state
    }

    /// The regions of a DAG, each once.
    pub fn regions_of(&self, name: &str) -> Vec<RegionId> {
        let mapping = self.view(name).mapping.expect("it has a place");
        let mut regions: Vec<RegionId> = mapping.instances().map(|i| i.region).collect();
        regions.sort_unstable();
        regions.dedup();
        regions
    }

    pub fn condition(&self, name: &str, kind: ConditionType) -> Condition {
        let all = self.view(name).conditions;
        all.into_iter().find(|c| c.kind == kind).expect("the DAG has the condition")
    }

    pub fn region(&self, number: u8) -> snic_controller::RegionView {
        self.controller.region_view(&card_id(), RegionId(number)).expect("the card has it")
    }

    pub fn region_states(&self) -> Vec<RegionState> {
        let card = self.controller.card_view(&card_id()).expect("it was seen");
        card.regions.into_iter().map(|(_, state)| state).collect()
    }

    pub fn operation(&self, id: &OperationId) -> OperationView {
        self.controller.operation(&operator(), id).expect("operators see all")
    }

    /// End of an operation, if it has ended.
    pub fn ended(&self, id: &OperationId) -> Option<Result<(), ControlError>> {
        self.operation(id).record.ended.map(|(_, result)| result)
    }

    pub fn tenant(&self, id: &str) -> snic_controller::TenantView {
        self.controller.tenant_view(&tenant_id(id)).expect("the tenant exists")
    }

    /// Reservations by region and slot, and of the ingress.
    pub fn reserved(&self) -> (Vec<Vec<u64>>, u64) {
        let card = self.controller.card_view(&card_id()).expect("it was seen");
        let regions = (0..card.regions.len() as u8).map(|region| {
            let slots = self.region(region).slots;
            slots.iter().map(|slot| slot.reserved.get()).filter(|bps| *bps > 0).collect()
        });
        (regions.collect(), card.ingress_reserved.get())
    }
}

/// Whether an event led to one answer and changed nothing.
pub fn only_replies(tx: &Tx) -> bool {
    tx.writes().is_empty() && matches!(tx.effects(), [Effect::Reply { .. }])
}

/// The operation of a reply.
pub fn operation(answer: Answer) -> OperationView {
    match answer {
        Ok(Reply::Operation(view)) => view,
        other => panic!("not an operation: {other:?}"),
    }
}

/// The id of the operation of a reply.
pub fn operation_id(answer: Answer) -> OperationId {
    operation(answer).record.id
}

/// The only wrong field of a refusal.
pub fn wrong_field(answer: Answer) -> String {
    match answer {
        Err(ControlError::Invalid(fields)) if fields.len() == 1 => fields[0].field.clone(),
        other => panic!("not one wrong field: {other:?}"),
    }
}

/// The resource and description of a failed precondition.
pub fn precondition(answer: Answer) -> (String, String) {
    match answer {
        Err(ControlError::Precondition { resource, description }) => (resource, description),
        other => panic!("not a precondition: {other:?}"),
    }
}

/// The resource that does not exist.
pub fn absent(answer: Answer) -> String {
    match answer {
        Err(ControlError::NotFound { resource }) => resource,
        other => panic!("not absent: {other:?}"),
    }
}

/// The quota that a request would exceed, its value, and what was asked.
pub fn over_quota(answer: Answer) -> (String, String, String) {
    match answer {
        Err(ControlError::Quota { quota, limit, asked, .. }) => (quota, limit, asked),
        other => panic!("within the quota: {other:?}"),
    }
}

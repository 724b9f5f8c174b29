//! Nothing leaves the controller's thread before it is durable: neither answers nor reads, neither
//! commands to cards nor events, nor the deletion of a bitstream's bytes.
//!
//! The same messages are given to a thread whose store is durable at once, and to one whose store
//! completes when the test says so, in any order, or fails. What the second one may have let out is
//! what the first one let out for the messages whose batches, and all before them, are durable.

use std::path::Path;
use std::sync::mpsc::Receiver;

use parking_lot::Mutex;
use snic_bitstream::catalogue;
use snic_controller::{Command, ControllerSettings};
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, ByteSize, Caller, CardProfile, DagId, DagName, DagSpec,
    NtTypeId, Quota, RegionImages, RegionKind, Tenant, TenantId,
};
use snic_ports::store::Done;
use snic_ports::store::memory::MemoryStore;

use super::super::card_thread::Order;
use super::super::message::Query;
use super::super::{ShellError, start};
use super::*;

/// A store that completes nothing by itself.
#[derive(Default)]
struct WithheldStore {
    inner: MemoryStore,
    /// Callbacks in the order of submission; taken once completed.
    submitted: Mutex<Vec<Option<Done>>>,
    deleted: Mutex<Vec<Digest>>,
}

impl WithheldStore {
    fn submitted(&self) -> usize {
        self.submitted.lock().len()
    }

    fn complete(&self, batch: usize, result: Result<(), StoreError>) {
        let done = self.submitted.lock()[batch].take().expect("each is completed once");
        done(result);
    }
}

impl Store for WithheldStore {
    fn submit(&self, _: Vec<Batch>, done: Done) {
        self.submitted.lock().push(Some(done));
    }
    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError> {
        self.deleted.lock().push(digest);
        Ok(())
    }
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.inner.scan(prefix)
    }
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(key)
    }
    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError> {
        self.inner.apply_all(batches)
    }
    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        self.inner.put_blob(digest, bytes)
    }
    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.inner.get_blob(digest)
    }
    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError> {
        self.inner.list_blobs()
    }
    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        self.inner.snapshot(to)
    }
    fn restore(&self, from: &Path) -> Result<(), StoreError> {
        self.inner.restore(from)
    }
}

fn card_id() -> CardId {
    "card0".parse().expect("a label")
}

fn profile() -> CardProfile {
    catalogue::builtin().expect("valid").cards[0].clone()
}

fn bitstream(id: &str, nt: &NtTypeId) -> Bitstream {
    Bitstream {
        id: BitstreamId::new(id).expect("a label"),
        images: RegionImages::for_all(Digest::of(id.as_bytes()), ByteSize::from_bytes(8_192)),
        nts: vec![nt.clone()],
        region_kind: RegionKind::KnownNt,
        card_model: profile().model,
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    }
}

fn controller() -> Controller {
    Controller::recover(ControllerSettings::default(), [], 7, wall_clock()).expect("an empty store")
}

/// The messages to the thread, one after another. Some of them store something and some do not, and
/// their effects include every kind that can leave.
fn script() -> Vec<fn() -> Message> {
    fn event(event: Event) -> Message {
        Message::Event(event)
    }
    fn appear() -> Message {
        event(Event::CardAppeared { card: card_id(), profile: Box::new(profile()) })
    }
    fn nt() -> snic_domain::NtType {
        catalogue::builtin().expect("valid").nt_types[0].clone()
    }
    fn tenant(id: &str) -> Message {
        let id = TenantId::new(id).expect("a label");
        request(Command::CreateTenant(Tenant {
            id,
            weight: 1,
            quota: Quota::default(),
            notes: Default::default(),
            project: None,
        }))
    }
    fn dag() -> DagName {
        let tenant = TenantId::new("acme").expect("a label");
        DagName { tenant, dag: DagId::new("web").expect("a label") }
    }
    fn gone() -> BitstreamId {
        BitstreamId::new("gone").expect("a label")
    }
    vec![
        || tenant("acme"),
        appear,
        // Has no batch: it waits for those before it.
        appear,
        || tenant("acme"),
        || request(Command::CreateNtType(nt())),
        || request(Command::CreateBitstream(bitstream("only", &nt().id))),
        || request(Command::CreateBitstream(bitstream("gone", &nt().id))),
        || {
            let spec = DagSpec::chain(&[nt().id], Bandwidth::from_gbps(1));
            request(Command::CreateDag { name: dag(), spec, validate_only: false })
        },
        || Message::DropIfUnused(Digest::of(b"never registered")),
        || request(Command::DeleteBitstream { id: gone(), image: None, etag: None }),
        || tenant("beta"),
        || request(Command::DeleteDag { name: dag(), etag: None }),
        || request(Command::Heartbeat { vms: Vec::new() }),
        || tenant("gamma"),
    ]
}

/// A request whose answer the test receives in place of the caller.
fn request(command: Command) -> Message {
    let caller = Caller::Operator("ada".into());
    let request = Request { caller, request_id: None, command };
    Message::Request(Box::new(request), oneshot::channel().0, Trace::default())
}

/// The thread's insides, stepped by hand, with all effects that have left.
struct World {
    actor: Actor,
    inbox: Inbox,
    store: Arc<WithheldStore>,
    commands: Receiver<Order>,
    changes: broadcast::Receiver<Notice>,
    answers: Vec<(usize, oneshot::Receiver<Result<Reply, ControlError>>)>,
    reads: Arc<Mutex<Vec<String>>>,
    /// The effects that have left, as text.
    told: Vec<String>,
    /// Number of messages that were taken.
    taken: usize,
}

impl World {
    fn new() -> Self {
        let store = Arc::new(WithheldStore::default());
        let messages = Inbox::new();
        let inbox = messages.clone();
        let (card, commands) = CardThread::stub(card_id(), messages.clone());
        let (changes, heard) = broadcast::channel(256);
        let outlets = Outlets {
            store: Arc::clone(&store) as Arc<dyn Store>,
            messages,
            cards: BTreeMap::from([(card_id(), card)]),
            changes,
            pins: Arc::default(),
            searches: std::sync::mpsc::channel().0,
        };
        Self {
            actor: Actor::new(controller(), outlets),
            inbox,
            store,
            commands,
            changes: heard,
            answers: Vec::new(),
            reads: Arc::default(),
            told: Vec::new(),
            taken: 0,
        }
    }

    /// The thread takes a message, and the state is read right after.
    fn take(&mut self, message: Message) {
        let number = self.taken;
        self.taken += 1;
        let message = match message {
            Message::Request(request, _, trace) => {
                let (answer, answered) = oneshot::channel();
                self.answers.push((number, answered));
                Message::Request(request, answer, trace)
            }
            other => other,
        };
        self.actor.take(message).expect("it fits the store");
        self.read(number, None);
        self.actor.release();
        self.hear();
    }

    /// The thread takes a read, of a tenant or of somebody who sees everything.
    fn read(&mut self, number: usize, reader: Option<TenantId>) {
        let reads = Arc::clone(&self.reads);
        let query: Query = Box::new(move |controller| {
            let tenants = controller.tenants().count();
            Box::new(move || reads.lock().push(format!("read {number}: {tenants} tenants")))
        });
        self.actor.take(Message::Read(query, reader)).expect("it stores nothing");
    }

    /// The store completes a batch; returns how the thread reacted.
    fn complete(&mut self, batch: usize, result: Result<(), StoreError>) -> Result<(), StoreError> {
        self.store.complete(batch, result);
        let Some((Message::Durable(number, result), _)) = self.inbox.receive(Duration::ZERO) else {
            panic!("a completion is a message");
        };
        let taken = self.actor.completed(number, result);
        self.actor.release();
        self.hear();
        taken
    }

    /// Records the effects that have left.
    fn hear(&mut self) {
        self.answers.retain_mut(|(number, answer)| match answer.try_recv() {
            Ok(result) => {
                let result = result.map(|_| ()).map_err(|error| error.kind());
                self.told.push(format!("answer {number}: {result:?}"));
                false
            }
            Err(_) => true,
        });
        self.told.append(&mut self.reads.lock());
        self.told.extend(self.commands.try_iter().map(|(command, _)| format!("card {command:?}")));
        while let Ok(notice) = self.changes.try_recv() {
            let Notice::Change(_, change) = notice else { continue };
            let what = match change.as_ref() {
                Change::DagDeleted(view) => format!("{} deleted", view.name),
                // Without its time, which differs from run to run.
                Change::Logged(entry) => format!("logged {:?}: {}", entry.kind, entry.text),
                other => format!("{other:?}"),
            };
            self.told.push(format!("change {what}"));
        }
        let deleted = std::mem::take(&mut *self.store.deleted.lock());
        self.told.extend(deleted.into_iter().map(|digest| format!("blob {digest}")));
    }
}

/// The effects of each message of the script if every batch is durable at once.
fn reference() -> Vec<Vec<String>> {
    let mut world = World::new();
    let groups = script().into_iter().map(|message| {
        let before = world.store.submitted();
        world.take(message());
        for batch in before..world.store.submitted() {
            world.complete(batch, Ok(())).expect("it did not fail");
        }
        std::mem::take(&mut world.told)
    });
    let groups: Vec<Vec<String>> = groups.collect();
    for what in ["answer", "read", "card", "change", "blob"] {
        let is_there = groups.iter().flatten().any(|told| told.starts_with(what));
        assert!(is_there, "the script lets out nothing like {what}");
    }
    groups
}

/// A run of the script against the reference.
struct Run {
    world: World,
    expected: Vec<Vec<String>>,
    /// Number of batches when each message had been taken.
    behind: Vec<usize>,
    /// Whether each batch is durable.
    durable: Vec<bool>,
}

impl Run {
    fn new() -> Self {
        let expected = reference();
        Self { world: World::new(), expected, behind: Vec::new(), durable: Vec::new() }
    }

    fn take_next(&mut self) {
        let message = script()[self.behind.len()];
        self.world.take(message());
        self.behind.push(self.world.store.submitted());
        self.durable.resize(self.world.store.submitted(), false);
        self.check();
    }

    fn take_all(&mut self) {
        (0..script().len()).for_each(|_| self.take_next());
    }

    fn complete(&mut self, batch: usize) {
        self.durable[batch] = true;
        self.world.complete(batch, Ok(())).expect("it did not fail");
        self.check();
    }

    fn fail(&mut self, batch: usize) {
        let failure = Err(StoreError::Stopped("no space left".into()));
        self.world.complete(batch, failure).expect_err("the thread ends");
        self.check();
    }

    /// All effects that may have left have left, and no others.
    fn check(&self) {
        let durable = self.durable.iter().take_while(|is_durable| **is_durable).count();
        let may_leave = self.behind.iter().zip(&self.expected).filter(|(b, _)| **b <= durable);
        let mut expected: Vec<&String> = may_leave.flat_map(|(_, told)| told).collect();
        let mut told: Vec<&String> = self.world.told.iter().collect();
        expected.sort();
        told.sort();
        assert_eq!(told, expected, "durable: {:?}", self.durable);
    }
}

/// Numbers that are different from seed to seed, and the same for one (xorshift64).
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("below a usize")
    }
}

#[test]
fn a_tenants_read_waits_for_its_own_records_and_not_for_others() {
    let mut world = World::new();
    let [acme, beta] = ["acme", "beta"].map(|id| TenantId::new(id).expect("a label"));
    world.take(script()[0]());
    world.read(1, Some(acme));
    world.read(2, Some(beta));
    world.actor.release();
    world.hear();
    assert_eq!(world.told, ["read 2: 1 tenants"]);
    world.complete(0, Ok(())).expect("it did not fail");
    assert!(world.told.iter().any(|told| told == "read 1: 1 tenants"), "{:?}", world.told);
}

#[test]
fn while_the_store_is_silent_nothing_leaves() {
    let mut run = Run::new();
    run.take_all();
    assert!(run.world.told.is_empty(), "{:?}", run.world.told);
    for batch in 0..run.durable.len() {
        run.complete(batch);
    }
    assert!(run.world.actor.outbox.is_durable() && run.world.actor.outbox.is_empty());
}

#[test]
fn completions_may_come_in_any_order() {
    let mut run = Run::new();
    run.take_all();
    for batch in (0..run.durable.len()).rev() {
        assert!(run.world.told.is_empty(), "{:?}", run.world.told);
        run.complete(batch);
    }
    for seed in 0..64 {
        let mut run = Run::new();
        let mut number = numbers(seed);
        while run.behind.len() < script().len() || run.durable.contains(&false) {
            let open = run.durable.iter().enumerate().filter(|(_, is_durable)| !**is_durable);
            let open: Vec<usize> = open.map(|(batch, _)| batch).collect();
            let takes = run.behind.len() < script().len() && number(2) == 0;
            match (takes, open.is_empty()) {
                (true, _) => run.take_next(),
                (false, false) => run.complete(open[number(open.len())]),
                (false, true) if run.behind.len() < script().len() => run.take_next(),
                (false, true) => {}
            }
        }
    }
}

#[test]
fn behind_a_batch_that_failed_nothing_leaves() {
    let batches = {
        let mut run = Run::new();
        run.take_all();
        run.durable.len()
    };
    for failed in 0..batches {
        let mut number = numbers(failed as u64);
        let mut run = Run::new();
        run.take_all();
        let mut others: Vec<usize> = (0..batches).filter(|batch| *batch != failed).collect();
        // Some are completed before it, some after.
        for _ in 0..number(batches) {
            run.complete(others.swap_remove(number(others.len())));
        }
        run.fail(failed);
        while !others.is_empty() {
            run.complete(others.swap_remove(number(others.len())));
        }
        let first = run.behind.iter().position(|behind| *behind > failed).expect("it is of one");
        let before: usize = run.expected[..first].iter().map(Vec::len).sum();
        assert_eq!(run.world.told.len(), before, "all before batch {failed}, and nothing else");
    }
}

/// An actor without cards, whose store has two DAGs, and the names of these.
fn with_two_dags() -> (Actor, Arc<MemoryStore>) {
    let (store, mut controller) = (Arc::new(MemoryStore::new()), controller());
    let nt = catalogue::builtin().expect("valid").nt_types[0].clone();
    let tenant: TenantId = "acme".parse().expect("a label");
    let dag = |id: &str| {
        let name = DagName { tenant: tenant.clone(), dag: id.parse().expect("a label") };
        let spec = DagSpec::chain(std::slice::from_ref(&nt.id), Bandwidth::from_gbps(1));
        request(Command::CreateDag { name, spec, validate_only: false })
    };
    let messages = [
        script()[0](),
        script()[1](),
        request(Command::CreateNtType(nt.clone())),
        request(Command::CreateBitstream(bitstream("only", &nt.id))),
        dag("mail"),
        dag("web"),
    ];
    for message in messages {
        let event = match message {
            Message::Request(request, ..) => Event::Request { call: CallId(1), request },
            Message::Event(event) => event,
            _ => panic!("none else is among them"),
        };
        let tx = controller.handle(event, wall_clock());
        let writes = tx.writes().iter().cloned().map(|(key, value)| Write { key, value });
        store.apply(Batch { writes: writes.collect() }).expect("a store in memory");
    }
    let (changes, _) = broadcast::channel(16);
    let outlets = Outlets {
        store: Arc::clone(&store) as Arc<dyn Store>,
        messages: Inbox::new(),
        cards: BTreeMap::new(),
        changes,
        pins: Arc::default(),
        searches: std::sync::mpsc::channel().0,
    };
    (Actor::new(controller, outlets), store)
}

/// Limits leave room for what nobody asks for, so no event leads to such a change. If one did, its DAG would be set aside,
/// and the rest would go on; only what all else rests on ends the thread.
#[test]
fn the_cause_of_a_change_that_nobody_asked_for_and_no_store_takes_is_set_aside() {
    let (mut actor, store) = with_two_dags();
    let stored = |key: &str| store.get(key).expect("a store in memory");
    let dags = |actor: &Actor| -> Vec<String> {
        actor.controller.dags_after(None, None).map(|view| view.name.dag.to_string()).collect()
    };
    assert_eq!(dags(&actor), ["mail", "web"]);
    let mut cards = 1..;
    let mut undo = |actor: &mut Actor, key: &str| {
        // Another one each time: one that is known already has its record.
        let number: u32 = cards.next().expect("no end");
        let card = format!("card{number}").parse().expect("a label");
        let unasked = Event::CardAppeared { card, profile: Box::new(profile()) };
        let tx = actor.controller.handle(unasked, wall_clock());
        let batch = actor.outbox.submit(tx, |_| OutboxEntry::DropBlob(Digest::of(b"none")));
        let number = batch.expect("the card's record").number;
        let (key, bytes) = (key.to_owned(), RECORD_BYTES_MAX + 1);
        actor.undo(number, StoreError::RecordTooLarge { key, bytes })
    };
    let web = stored("dags/acme/web").expect("it is there");
    undo(&mut actor, "dags/acme/web").expect("the rest stands");
    assert_eq!(dags(&actor), ["mail"]);
    assert_eq!(stored("dags/acme/web"), None);
    assert_eq!(stored("quarantine/dags/acme/web"), Some(web), "it is kept");
    assert!(stored("quarantine/explanations/acme/web").is_some(), "with what is about it");
    assert!(stored("cards/card1").is_none(), "the change is undone");
    assert!(actor.outbox.is_durable() && actor.outbox.is_empty());
    actor.controller.check().expect("all is in order");

    // What is only about a DAG is decided with it, and would be again.
    undo(&mut actor, "explanations/acme/mail").expect("the rest stands");
    assert_eq!(dags(&actor), [""; 0]);
    assert!(stored("quarantine/dags/acme/mail").is_some());
    for key in ["tenants/acme", "dags/acme/none"] {
        let ended = undo(&mut actor, key).expect_err("nothing can be set aside");
        assert!(ended.to_string().contains(key), "{ended}");
    }
    assert!(stored("tenants/acme").is_some());
}

#[tokio::test]
async fn a_store_that_fails_ends_the_thread_without_an_answer() {
    let store = Arc::new(WithheldStore::default());
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let (plane, running) = start(controller(), shared, Vec::new()).expect("threads");
    let id = TenantId::new("acme").expect("a label");
    let command = Command::CreateTenant(Tenant {
        id,
        weight: 1,
        quota: Quota::default(),
        notes: Default::default(),
        project: None,
    });
    let caller = Caller::Operator("ada".into());
    let request = plane.request(Request { caller, request_id: None, command });
    let fail = async {
        while store.submitted() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.complete(0, Err(StoreError::Stopped("no space left".into())));
    };
    let both = async { tokio::join!(request, fail) };
    let (answer, ()) =
        tokio::time::timeout(Duration::from_secs(30), both).await.expect("the thread ends");
    assert!(matches!(answer, Err(ShellError::Stopped)), "{answer:?}");
    let ended = tokio::task::spawn_blocking(|| running.wait()).await.expect("no panic");
    assert!(matches!(ended, Err(StoreError::Stopped(_))), "{ended:?}");
}

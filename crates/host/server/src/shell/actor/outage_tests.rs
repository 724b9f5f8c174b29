//! While the store cannot be written, changes are rejected, reads and the loop go on, and
//! everything recovers without a restart.

use snic_bitstream::catalogue;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_controller::{Command, ControllerSettings};
use snic_domain::{Caller, Quota, RegionId, Tenant, TenantId};
use snic_front::share::{CallerFlow, CallerLevel};
use snic_ports::card::Card as _;
use snic_ports::store::memory::{Fault, FullableDisk};
use snic_ports::store::reopening::{Folder, ReopeningStore};

use super::super::{CardSlot, ControlPlane, ControlPlaneThreads, OpenedCard, ShellError, start};
use super::*;

/// Everything below is far quicker, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(30);

fn card() -> CardSlot {
    let catalogue = catalogue::builtin().expect("valid");
    let profile = catalogue.cards[0].clone();
    let card = SharedSimCard::new(SimCard::new(profile.clone(), 1).expect("a valid profile"));
    let open = Box::new(move || -> OpenedCard {
        let mut card = card.clone();
        card.poll(wall_clock()).map_err(|error| error.to_string())?;
        Ok((Box::new(card), profile.clone()))
    });
    CardSlot::of_registers("card0".parse().expect("a label"), open)
}

fn tenant(id: &str) -> Request {
    let id = TenantId::new(id).expect("a label");
    let command = Command::CreateTenant(Tenant {
        id,
        weight: 1,
        quota: Quota::default(),
        notes: Default::default(),
        project: None,
    });
    Request { caller: Caller::Operator("ada".into()), request_id: None, command }
}

/// Result of a read of the controller.
async fn read<T: Send + 'static>(
    plane: &ControlPlane,
    query: impl FnOnce(&Controller) -> T + Send + 'static,
) -> T {
    let read = plane.read(CallerLevel::Watches, CallerFlow::Server, query);
    tokio::time::timeout(PATIENCE, read).await.expect("reads are answered").expect("it runs")
}

async fn epochs(plane: &ControlPlane) -> u64 {
    let card: CardId = "card0".parse().expect("a label");
    read(plane, move |controller| controller.loop_figures(&card).map_or(0, |f| f.epochs)).await
}

async fn tenants(plane: &ControlPlane) -> Vec<String> {
    let ids = |controller: &Controller| -> Vec<String> {
        controller.tenants().map(|view| view.tenant.id.to_string()).collect()
    };
    read(plane, ids).await
}

/// Waits until the loop has done this many epochs.
async fn wait_for_epoch(plane: &ControlPlane, count: u64) {
    let done = async {
        while epochs(plane).await < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, done)
        .await
        .expect("the card is read back, and the loop goes on");
}

/// Whether a request was rejected because of the store, and whether it may still take effect.
fn refused(answer: Result<Reply, ShellError>) -> bool {
    match answer {
        Err(ShellError::Control(ControlError::StoreUnavailable { reason, may_apply })) => {
            assert!(!reason.is_empty() && !reason.contains('/'), "{reason}");
            may_apply
        }
        other => panic!("not refused for the store: {other:?}"),
    }
}

/// A control plane whose store is on this disk.
fn begin(disk: &FullableDisk) -> (ControlPlane, ControlPlaneThreads) {
    let store = disk.open().expect("a store in memory");
    let pause = Duration::from_millis(1);
    let folder = Box::new(disk.clone());
    let store = ReopeningStore::start(folder, store, None, pause).expect("a thread");
    let controller = Controller::recover(ControllerSettings::default(), [], 7, wall_clock());
    let controller = controller.expect("an empty store");
    start(controller, Arc::new(store), vec![card()]).expect("threads")
}

#[tokio::test]
async fn events_wait_until_what_they_tell_of_is_stored() {
    let disk = FullableDisk::default();
    let (plane, running) = begin(&disk);
    wait_for_epoch(&plane, 1).await;
    let mut changes = plane.changes();
    disk.fill(Fault::BeforeDurable);
    let command =
        Command::DrainRegion { card: "card0".parse().expect("a label"), region: RegionId(0) };
    let drain = Request { caller: Caller::Operator("ada".into()), request_id: None, command };
    assert!(refused(plane.request(drain).await), "it may be stored yet");
    let is_told = |notice: &Notice| match notice {
        Notice::Change(_, change) => matches!(**change, Change::Region(_, RegionId(0))),
        Notice::Complete(_) => false,
    };
    // Other events would carry it out now.
    let seen = epochs(&plane).await;
    wait_for_epoch(&plane, seen + 3).await;
    while let Ok(change) = changes.try_recv() {
        assert!(!is_told(&change), "{change:?} is told, and a crash would undo it");
    }
    disk.free();
    let told = async { while !is_told(&changes.recv().await.expect("it goes on")) {} };
    tokio::time::timeout(PATIENCE, told).await.expect("it is told once it is stored");
    tokio::task::spawn_blocking(|| running.stop()).await.expect("no panic").expect("all is stored");
}

#[tokio::test]
async fn on_a_full_disk_changes_are_refused_and_the_rest_goes_on() {
    let disk = FullableDisk::default();
    let (plane, running) = begin(&disk);
    plane.request(tenant("before")).await.expect("there is room");
    // The card's record must be stored before the card is read back, and the loop starts after
    // that.
    wait_for_epoch(&plane, 1).await;

    disk.fill(Fault::BeforeDurable);
    assert!(refused(plane.request(tenant("during")).await), "it may be stored yet");
    assert!(!refused(plane.request(tenant("never")).await), "it was not carried out");
    assert!(tenants(&plane).await.contains(&"before".to_owned()));
    let seen = epochs(&plane).await;
    wait_for_epoch(&plane, seen + 3).await;
    assert_eq!(disk.store().scan("tenants/").expect("it can be read").len(), 1);

    disk.free();
    let heals = async {
        while plane.request(tenant("after")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, heals).await.expect("changes are taken again");
    assert_eq!(tenants(&plane).await, ["after", "before", "during"]);
    tokio::task::spawn_blocking(|| running.stop()).await.expect("no panic").expect("all is stored");
    assert_eq!(disk.store().scan("tenants/").expect("it can be read").len(), 3);
}

/// A request with a text that no limit of the controller bounds, for certificates do: the name of the operator is stored.
fn maintain_by(name: String) -> Request {
    let command = Command::Maintain { reason: Some("disks".into()) };
    Request { caller: Caller::Operator(name), request_id: None, command }
}

#[tokio::test]
async fn a_change_that_fits_no_record_is_refused_and_undone_and_the_rest_goes_on() {
    let disk = FullableDisk::default();
    let (plane, running) = begin(&disk);
    plane.request(tenant("before")).await.expect("there is room");
    wait_for_epoch(&plane, 1).await;
    for _ in 0..2 {
        match plane.request(maintain_by("x".repeat(RECORD_BYTES_MAX))).await {
            Err(ShellError::Control(error @ ControlError::Exhausted { .. })) => {
                assert!(error.to_string().contains("1048576"), "{error}");
            }
            other => panic!("no store takes it: {other:?}"),
        }
        assert_eq!(tenants(&plane).await, ["before"]);
    }
    plane.request(tenant("after")).await.expect("there is room");
    // As if it had never been asked for.
    assert!(read(&plane, |controller| controller.maintenance().is_none()).await);
    plane.request(maintain_by("ada".to_owned())).await.expect("it fits");
    // The card is opened again, and its loop starts again.
    wait_for_epoch(&plane, 1).await;
    tokio::task::spawn_blocking(|| running.stop()).await.expect("no panic").expect("all is stored");
    let stored = |kind| disk.store().scan(kind).expect("it can be read").len();
    assert_eq!((stored("tenants/"), stored("maintenance")), (2, 1));
}

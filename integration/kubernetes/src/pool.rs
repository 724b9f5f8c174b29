//! The devices of one resource: what is bound, and whether a pod may have them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use snic_api::v1::VmBinding;
use snic_cdi::{Folder, FolderError, Host};
use tokio::sync::watch;
use uuid::{Builder, Version};

use crate::daemon::Daemon;
use crate::settings::{Resource, Settings};
use crate::v1beta1::Device;

/// What the kubelet knows as a device that pods may have.
const HEALTHY: &str = "Healthy";
/// The opposite.
const UNHEALTHY: &str = "Unhealthy";

/// A device.
#[derive(Debug, Clone)]
struct Slot {
    uuid: String,
    /// Since when a pod could have it and none was seen with it; `None` while it is not bound.
    bound_since: Option<Instant>,
    /// It was bound, is not any more, and a pod may have it still.
    is_lost: bool,
}

/// The devices of a resource, and all that is needed to give them away.
pub struct Pool {
    /// All settings.
    pub settings: Arc<Settings>,
    /// The resource.
    pub resource: Resource,
    /// The daemon.
    pub daemon: Daemon,
    /// The host's nodes of functions.
    pub host: Host,
    /// The folder of container devices, where there is one.
    pub folder: Option<Folder>,
    slots: Mutex<BTreeMap<String, Slot>>,
    is_daemon_up: Mutex<bool>,
    told: watch::Sender<Vec<Device>>,
}

/// The UUID of a device: always the same for the same device of the same resource of the same node.
fn uuid(node: &str, resource: &str, id: &str) -> String {
    let digest = Sha256::digest(format!("snic-device-v1\n{node}\n{resource}\n{id}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Builder::from_bytes(bytes)
        .with_variant(uuid::Variant::RFC4122)
        .with_version(Version::Custom)
        .into_uuid()
        .to_string()
}

impl Pool {
    /// The devices of a resource. Until the daemon was heard of, none may be had.
    ///
    /// # Errors
    /// [`FolderError`] where the folder of container devices cannot be made.
    pub fn open(settings: &Arc<Settings>, resource: &Resource) -> Result<Self, FolderError> {
        let host = Host::new(&settings.sysfs);
        let folder = settings.cdi_dir.as_deref().map(|path| Folder::open(path, host.clone()));
        let slot = |number: u32| {
            let id = format!("vf-{number}");
            let uuid = uuid(&settings.node, &resource.name, &id);
            (id, Slot { uuid, bound_since: None, is_lost: false })
        };
        let pool = Self {
            settings: Arc::clone(settings),
            resource: resource.clone(),
            daemon: Daemon::new(settings),
            host,
            folder: folder.transpose()?,
            slots: Mutex::new((0..resource.devices).map(slot).collect()),
            is_daemon_up: Mutex::new(false),
            told: watch::Sender::new(Vec::new()),
        };
        pool.tell();
        Ok(pool)
    }

    /// The devices as the kubelet is told of them, and when they change.
    pub fn devices(&self) -> watch::Receiver<Vec<Device>> {
        self.told.subscribe()
    }

    fn tell(&self) {
        let is_up = *self.is_daemon_up.lock();
        let device = |(id, slot): (&String, &Slot)| Device {
            id: id.clone(),
            health: if is_up && !slot.is_lost { HEALTHY } else { UNHEALTHY }.to_owned(),
            topology: None,
        };
        let mut devices: Vec<Device> = self.slots.lock().iter().map(device).collect();
        // `vf-2` before `vf-10`.
        devices.sort_by_key(|device| (device.id.len(), device.id.clone()));
        self.told.send_if_modified(|told| {
            let differs = *told != devices;
            *told = devices;
            differs
        });
    }

    /// Says whether the daemon answers: without it no device may be had.
    pub fn set_daemon_up(&self, is_up: bool) {
        *self.is_daemon_up.lock() = is_up;
        self.tell();
    }

    /// The UUID of a device; `None` where there is no such device.
    pub fn uuid(&self, id: &str) -> Option<String> {
        self.slots.lock().get(id).map(|slot| slot.uuid.clone())
    }

    /// All devices, with their UUIDs.
    pub fn uuids(&self) -> Vec<(String, String)> {
        self.slots.lock().iter().map(|(id, slot)| (id.clone(), slot.uuid.clone())).collect()
    }

    /// Whether a device is bound, as far as is known.
    pub fn is_bound(&self, id: &str) -> bool {
        self.slots.lock().get(id).is_some_and(|slot| slot.bound_since.is_some())
    }

    /// Whether a device was bound by then, and is.
    pub fn was_bound_at(&self, id: &str, at: Instant) -> bool {
        let slots = self.slots.lock();
        slots.get(id).and_then(|slot| slot.bound_since).is_some_and(|since| since <= at)
    }

    /// A device is bound.
    ///
    /// # Errors
    /// [`FolderError`] where containers cannot be told of it.
    pub fn set_bound(&self, id: &str, binding: &VmBinding) -> Result<(), FolderError> {
        if let Some(folder) = &self.folder {
            folder.put(binding)?;
        }
        if let Some(slot) = self.slots.lock().get_mut(id) {
            (slot.bound_since, slot.is_lost) = (Some(Instant::now()), false);
        }
        self.tell();
        Ok(())
    }

    /// A pod was seen with a device: what is to be given back is counted from here.
    pub fn set_used(&self, id: &str) {
        if let Some(slot) = self.slots.lock().get_mut(id)
            && slot.bound_since.is_some()
        {
            slot.bound_since = Some(Instant::now());
        }
    }

    /// A device has nothing any more. Where a pod may have it still, none else is to get it.
    pub fn set_unbound(&self, id: &str, is_lost: bool) {
        let uuid = self.slots.lock().get_mut(id).map(|slot| {
            (slot.bound_since, slot.is_lost) = (None, is_lost);
            slot.uuid.clone()
        });
        if let (Some(folder), Some(uuid)) = (&self.folder, uuid)
            && let Err(error) = folder.remove(&uuid)
        {
            tracing::warn!(device = id, %error, "a file of a container device stays");
        }
        self.tell();
    }

    /// Bound devices that no pod was seen with for a while, and lost ones that none has.
    pub fn idle(&self, used: &[String]) -> Vec<String> {
        let idle_max = std::time::Duration::from_secs(self.settings.idle_seconds);
        let slots = self.slots.lock();
        let is_idle = |(id, slot): &(&String, &Slot)| {
            let is_idle = slot.bound_since.is_some_and(|since| since.elapsed() >= idle_max);
            (is_idle || slot.is_lost) && !used.contains(id)
        };
        slots.iter().filter(is_idle).map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(idle_seconds: u64) -> Pool {
        let resource = Resource { name: "snic.dev/web".into(), devices: 12, ..Resource::default() };
        let settings = Settings { node: "n1".into(), idle_seconds, ..Settings::default() };
        Pool::open(&Arc::new(settings), &resource).expect("no folder is needed")
    }

    fn healthy(pool: &Pool) -> Vec<String> {
        let devices = pool.devices().borrow().clone();
        let healthy = devices.into_iter().filter(|device| device.health == HEALTHY);
        healthy.map(|device| device.id).collect()
    }

    #[test]
    fn a_device_is_always_the_same_and_no_other() {
        let one = uuid("n1", "snic.dev/web", "vf-0");
        assert_eq!(one, uuid("n1", "snic.dev/web", "vf-0"));
        for other in [("n2", "vf-0"), ("n1", "vf-1")] {
            assert_ne!(one, uuid(other.0, "snic.dev/web", other.1));
        }
        assert_ne!(one, uuid("n1", "snic.dev/mail", "vf-0"));
        assert_eq!(uuid::Uuid::parse_str(&one).expect("a UUID").get_version_num(), 8);
    }

    #[test]
    fn devices_are_healthy_while_the_daemon_answers_and_they_are_not_lost() {
        let pool = pool(0);
        assert_eq!(healthy(&pool), [""; 0]);
        pool.set_daemon_up(true);
        assert_eq!(healthy(&pool).len(), 12);
        assert_eq!(healthy(&pool)[2], "vf-2", "in the order of their numbers");
        pool.set_bound("vf-3", &VmBinding::default()).expect("no folder");
        pool.set_unbound("vf-3", true);
        assert!(!healthy(&pool).contains(&"vf-3".to_owned()));
        assert_eq!(pool.idle(&["vf-3".to_owned()]), [""; 0], "a pod has it still");
        assert_eq!(pool.idle(&[]), ["vf-3"]);
        pool.set_unbound("vf-3", false);
        assert_eq!(healthy(&pool).len(), 12);
        pool.set_daemon_up(false);
        assert_eq!(healthy(&pool), [""; 0]);
    }

    #[test]
    fn what_no_pod_has_is_idle_after_a_while() {
        let (soon, late) = (pool(0), pool(3_600));
        for pool in [&soon, &late] {
            pool.set_bound("vf-1", &VmBinding::default()).expect("no folder");
            assert!(pool.is_bound("vf-1") && !pool.is_bound("vf-2"));
            assert!(pool.was_bound_at("vf-1", Instant::now()), "by now");
            let before = Instant::now().checked_sub(std::time::Duration::from_secs(1));
            assert!(!pool.was_bound_at("vf-1", before.expect("the machine is up for longer")));
        }
        assert_eq!(soon.idle(&[]), ["vf-1"]);
        assert_eq!(soon.idle(&["vf-1".to_owned()]), [""; 0]);
        assert_eq!(late.idle(&[]), [""; 0]);
    }

    #[test]
    fn the_kubelet_is_told_only_of_what_differs() {
        let pool = pool(0);
        let mut devices = pool.devices();
        pool.set_daemon_up(true);
        assert!(devices.has_changed().expect("the pool is there"));
        devices.mark_unchanged();
        pool.set_daemon_up(true);
        pool.set_bound("vf-1", &VmBinding::default()).expect("no folder");
        assert!(!devices.has_changed().expect("the pool is there"));
    }
}

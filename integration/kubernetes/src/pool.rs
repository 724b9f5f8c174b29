//! The devices of one resource: which are bound, and which the kubelet may allocate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use snic_api::v1::VmBinding;
use snic_cdi::{FolderError, Host, SpecFolder};
use tokio::sync::watch;
use uuid::{Builder, Version};

use crate::daemon::DaemonClient;
use crate::settings::{ExtendedResource, Settings};
use crate::v1beta1::Device;

/// Health of a device that the kubelet may allocate.
const HEALTHY: &str = "Healthy";
/// Health of a device that it may not.
const UNHEALTHY: &str = "Unhealthy";

#[derive(Debug, Clone)]
struct Slot {
    uuid: String,
    /// When it was bound, or last seen in use; `None` while it is not bound.
    bound_since: Option<Instant>,
    /// A pod may still use it although its binding is gone.
    is_lost: bool,
    /// An earlier run of this program left a file; whether its binding still exists is unknown.
    has_old_file: bool,
}

/// The devices of a resource, and what it takes to allocate them.
pub struct DevicePool {
    pub settings: Arc<Settings>,
    pub resource: ExtendedResource,
    pub daemon: DaemonClient,
    /// The host's device nodes.
    pub host: Host,
    /// The folder of CDI files, if configured.
    pub folder: Option<SpecFolder>,
    slots: Mutex<BTreeMap<String, Slot>>,
    is_daemon_up: Mutex<bool>,
    devices: watch::Sender<Vec<Device>>,
}

/// The UUID of a device, derived from node, resource and number, so that it survives restarts.
fn uuid(node: &str, resource: &str, id: &str) -> String {
    derived_uuid(&format!("snic-device-v1\n{node}\n{resource}\n{id}"))
}

/// A UUID that follows from a text: the same each time.
pub fn derived_uuid(text: &str) -> String {
    let digest = Sha256::digest(text);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Builder::from_bytes(bytes)
        .with_variant(uuid::Variant::RFC4122)
        .with_version(Version::Custom)
        .into_uuid()
        .to_string()
}

impl DevicePool {
    /// The devices of a resource. They are unhealthy until the daemon answers.
    ///
    /// # Errors
    /// [`FolderError`] where the folder of CDI files cannot be created or read.
    pub fn open(
        settings: &Arc<Settings>,
        resource: &ExtendedResource,
    ) -> Result<Self, FolderError> {
        let host = Host::new(&settings.sysfs);
        let folder = settings.cdi_dir.as_deref().map(|path| SpecFolder::open(path, host.clone()));
        let folder = folder.transpose()?;
        let files = folder.as_ref().map(SpecFolder::uuids).transpose()?.unwrap_or_default();
        let slot = |number: u32| {
            let id = format!("vf-{number}");
            let uuid = uuid(&settings.node, &resource.name, &id);
            let has_old_file = files.contains(&uuid);
            (id, Slot { uuid, bound_since: None, is_lost: false, has_old_file })
        };
        let pool = Self {
            settings: Arc::clone(settings),
            resource: resource.clone(),
            daemon: DaemonClient::new(
                &settings.daemon,
                Duration::from_secs(settings.bind_seconds),
                Some(Duration::from_secs(settings.lease_seconds)),
            ),
            host,
            folder,
            slots: Mutex::new((0..resource.devices).map(slot).collect()),
            is_daemon_up: Mutex::new(false),
            devices: watch::Sender::new(Vec::new()),
        };
        pool.publish();
        Ok(pool)
    }

    /// The devices as the kubelet sees them; changes wake the receiver.
    pub fn devices(&self) -> watch::Receiver<Vec<Device>> {
        self.devices.subscribe()
    }

    fn publish(&self) {
        let is_up = *self.is_daemon_up.lock();
        let device = |(id, slot): (&String, &Slot)| Device {
            id: id.clone(),
            health: if is_up && !slot.is_lost { HEALTHY } else { UNHEALTHY }.to_owned(),
            topology: None,
        };
        let mut devices: Vec<Device> = self.slots.lock().iter().map(device).collect();
        // `vf-2` before `vf-10`.
        devices.sort_by_key(|device| (device.id.len(), device.id.clone()));
        self.devices.send_if_modified(|published| {
            let differs = *published != devices;
            *published = devices;
            differs
        });
    }

    /// Sets whether the daemon answers: without it no device is healthy.
    pub fn set_daemon_up(&self, is_up: bool) {
        *self.is_daemon_up.lock() = is_up;
        self.publish();
    }

    /// The UUID of a device; `None` for an unknown device.
    pub fn uuid(&self, id: &str) -> Option<String> {
        self.slots.lock().get(id).map(|slot| slot.uuid.clone())
    }

    /// All devices, with their UUIDs.
    pub fn uuids(&self) -> Vec<(String, String)> {
        self.slots.lock().iter().map(|(id, slot)| (id.clone(), slot.uuid.clone())).collect()
    }

    /// Whether a device is bound, as far as this program knows.
    pub fn is_bound(&self, id: &str) -> bool {
        self.slots.lock().get(id).is_some_and(|slot| slot.bound_since.is_some())
    }

    /// Whether a device is bound, and was already at that time.
    pub fn was_bound_at(&self, id: &str, at: Instant) -> bool {
        let slots = self.slots.lock();
        slots.get(id).and_then(|slot| slot.bound_since).is_some_and(|since| since <= at)
    }

    /// Records that a device is bound, and writes its CDI file.
    ///
    /// # Errors
    /// [`FolderError`] where the file cannot be written; the device is not recorded as bound then.
    pub fn set_bound(&self, id: &str, binding: &VmBinding) -> Result<(), FolderError> {
        // File and slot change together: nobody removes the file of a device that is being bound.
        if let Some(slot) = self.slots.lock().get_mut(id) {
            if let Some(folder) = &self.folder {
                folder.put(binding)?;
            }
            (slot.bound_since, slot.is_lost) = (Some(Instant::now()), false);
            slot.has_old_file = false;
        }
        self.publish();
        Ok(())
    }

    /// Records that a pod uses a device: its idle time starts over.
    pub fn set_used(&self, id: &str) {
        if let Some(slot) = self.slots.lock().get_mut(id)
            && slot.bound_since.is_some()
        {
            slot.bound_since = Some(Instant::now());
        }
    }

    /// Records that a device was unbound and that no pod uses it, and removes its CDI file.
    pub fn set_unbound(&self, id: &str) {
        self.clear(id, false);
    }

    /// Records that a device's binding is gone although a pod may use the device: it stays unhealthy
    /// until no pod does. Removes its CDI file.
    pub fn set_lost(&self, id: &str) {
        self.clear(id, true);
    }

    fn clear(&self, id: &str, is_lost: bool) {
        if let Some(slot) = self.slots.lock().get_mut(id) {
            (slot.bound_since, slot.is_lost) = (None, is_lost);
            self.remove_file(id, slot);
        }
        self.publish();
    }

    /// Removes the file that an earlier run left, unless the device was bound meanwhile.
    pub fn remove_old_file(&self, id: &str) {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get_mut(id).filter(|slot| slot.has_old_file) {
            self.remove_file(id, slot);
        }
    }

    fn remove_file(&self, id: &str, slot: &mut Slot) {
        slot.has_old_file = false;
        if let Some(folder) = &self.folder
            && let Err(error) = folder.remove(&slot.uuid)
        {
            tracing::warn!(device = id, %error, "CDI file not removed");
        }
    }

    /// Bound devices that no pod has used for a while, and lost devices that no pod uses.
    pub fn idle(&self, used: &[String]) -> Vec<String> {
        let idle_max = Duration::from_secs(self.settings.idle_seconds);
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

    fn pool(idle_seconds: u64) -> DevicePool {
        let resource = ExtendedResource {
            name: "snic.dev/web".into(),
            devices: 12,
            ..ExtendedResource::default()
        };
        let settings = Settings { node: "n1".into(), idle_seconds, ..Settings::default() };
        DevicePool::open(&Arc::new(settings), &resource).expect("no folder is needed")
    }

    fn healthy(pool: &DevicePool) -> Vec<String> {
        let devices = pool.devices().borrow().clone();
        let healthy = devices.into_iter().filter(|device| device.health == HEALTHY);
        healthy.map(|device| device.id).collect()
    }

    #[test]
    fn a_device_uuid_is_stable_and_unique() {
        let one = uuid("n1", "snic.dev/web", "vf-0");
        assert_eq!(one, uuid("n1", "snic.dev/web", "vf-0"));
        for other in [("n2", "vf-0"), ("n1", "vf-1")] {
            assert_ne!(one, uuid(other.0, "snic.dev/web", other.1));
        }
        assert_ne!(one, uuid("n1", "snic.dev/mail", "vf-0"));
        assert_eq!(uuid::Uuid::parse_str(&one).expect("a UUID").get_version_num(), 8);
    }

    #[test]
    fn devices_are_healthy_unless_the_daemon_is_down_or_they_are_lost() {
        let pool = pool(0);
        assert_eq!(healthy(&pool), [""; 0]);
        pool.set_daemon_up(true);
        assert_eq!(healthy(&pool).len(), 12);
        assert_eq!(healthy(&pool)[2], "vf-2", "in the order of their numbers");
        pool.set_bound("vf-3", &VmBinding::default()).expect("no folder");
        pool.set_lost("vf-3");
        assert!(!healthy(&pool).contains(&"vf-3".to_owned()));
        assert_eq!(pool.idle(&["vf-3".to_owned()]), [""; 0], "a pod still uses it");
        assert_eq!(pool.idle(&[]), ["vf-3"]);
        pool.set_unbound("vf-3");
        assert_eq!(healthy(&pool).len(), 12);
        pool.set_daemon_up(false);
        assert_eq!(healthy(&pool), [""; 0]);
    }

    #[test]
    fn an_unused_device_becomes_idle() {
        let (soon, late) = (pool(0), pool(3_600));
        for pool in [&soon, &late] {
            pool.set_bound("vf-1", &VmBinding::default()).expect("no folder");
            assert!(pool.is_bound("vf-1") && !pool.is_bound("vf-2"));
            assert!(pool.was_bound_at("vf-1", Instant::now()), "by now");
            let before = Instant::now().checked_sub(Duration::from_secs(1));
            assert!(!pool.was_bound_at("vf-1", before.expect("the machine is up for longer")));
        }
        assert_eq!(soon.idle(&[]), ["vf-1"]);
        assert_eq!(soon.idle(&["vf-1".to_owned()]), [""; 0]);
        assert_eq!(late.idle(&[]), [""; 0]);
    }

    #[test]
    fn only_changes_wake_the_kubelet() {
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

//! Reads a card's device in a process of its own: an entry of sysfs may wait for a driver that does not answer,
//! and neither the daemon nor the worker with the registers may wait with it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use snic_domain::{DeviceReading, DriverError};
use snic_ports::device::DeviceMonitor;

use crate::launch::{XrtCardSettings, spawn};
use crate::process::WorkerProcess;
use crate::protocol::{TracedRequest, WorkerReply, WorkerRequest};

/// The log of the process.
const LOG: &str = "monitor.log";
/// Time for which a process that failed is not started again.
const PAUSE: Duration = Duration::from_secs(30);

/// Errors that a card's worker learns of beside registers, for the monitor of the same card. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct DriverErrors(Arc<Mutex<Vec<DriverError>>>);

impl DriverErrors {
    pub(crate) fn set(&self, errors: Vec<DriverError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = errors;
    }

    fn get(&self) -> Vec<DriverError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads one card's device.
pub struct XrtMonitor {
    settings: XrtCardSettings,
    device: PathBuf,
    errors: DriverErrors,
    worker: Option<WorkerProcess>,
    failed: Option<Instant>,
}

impl XrtMonitor {
    /// Monitor of the card with these settings, whose folder in sysfs this is. Errors of its driver come from its worker.
    pub const fn new(settings: XrtCardSettings, device: PathBuf, errors: DriverErrors) -> Self {
        Self { settings, device, errors, worker: None, failed: None }
    }

    fn ask(&mut self) -> Result<DeviceReading, String> {
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => spawn(&self.settings, LOG, [])?,
        };
        let request = WorkerRequest::ReadDevice { device: self.device.clone() };
        let limit = self.settings.deadlines.of(&request);
        match worker.call(&TracedRequest { parent: None, request }, &[], limit)? {
            (WorkerReply::Device(reading), _) => {
                self.worker = Some(worker);
                Ok(reading)
            }
            (other, _) => Err(format!("the process that reads it answered {other:?}")),
        }
    }
}

impl DeviceMonitor for XrtMonitor {
    fn read(&mut self) -> Result<DeviceReading, String> {
        if self.failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(format!("{} did not answer lately", self.device.display()));
        }
        let read = self.ask();
        self.failed = read.is_err().then(Instant::now);
        Ok(DeviceReading { errors: self.errors.get(), ..read? })
    }
}

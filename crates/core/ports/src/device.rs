//! Readings of a card's device beside its registers: sensors, the link to the host, what its driver says.

use snic_domain::DeviceReading;

/// Reads a card's device, also while the card is closed or lost.
pub trait DeviceMonitor: Send {
    /// Reads it. May take some seconds.
    ///
    /// # Errors
    /// Why nothing can be read at the moment, in words. What does not answer by itself is unknown in the reading.
    fn read(&mut self) -> Result<DeviceReading, String>;
}

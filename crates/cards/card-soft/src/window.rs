//! The packets of a card in another process. Each watch has a separate connection, so that the daemon's
//! accesses do not wait for it.

use snic_domain::{CardModel, DagUid, NtTypeId};
use snic_ports::card::CardError;
use snic_ports::packets::{
    NtDrops, PacketWatch, PacketWindow, SeenPackets, SoftCounts, WatchError,
};
use snic_ports::remote::RemoteRegisters as _;

use crate::SoftCardSettings;
use crate::client::SoftCard;
use crate::process::CardFolder;
use crate::protocol::{ControlReply, ControlRequest, TaskObservation};

/// Shows the packets of the card in a folder.
#[derive(Debug, Clone)]
pub struct SoftWindow {
    folder: CardFolder,
    model: CardModel,
    settings: SoftCardSettings,
}

impl SoftWindow {
    /// The window of the card in this folder, which was started with these settings.
    pub const fn new(folder: CardFolder, model: CardModel, settings: SoftCardSettings) -> Self {
        Self { folder, model, settings }
    }
}

struct Capture {
    card: SoftCard,
    id: u64,
}

fn lost(error: CardError) -> WatchError {
    WatchError::Lost(error.to_string())
}

fn unexpected(card: &mut SoftCard, reply: &ControlReply) -> WatchError {
    lost(card.lose(format!("the card's process answered {reply:?}")))
}

impl SoftWindow {
    fn connect(&self) -> Result<SoftCard, WatchError> {
        let card = SoftCard::connect(&self.folder, self.model.clone(), &self.settings);
        card.map_err(WatchError::Lost)
    }
}

impl PacketWindow for SoftWindow {
    fn counts(&self) -> Result<SoftCounts, WatchError> {
        let seen = self.connect()?.observe().map_err(lost)?;
        let nt_drops = seen.tasks.into_iter().flat_map(nt_drops).collect();
        Ok(SoftCounts { ports: seen.ports, nt_drops, flows: seen.flows_by_dag })
    }

    fn watch(&self, uid: DagUid, bytes: u32) -> Result<Box<dyn PacketWatch>, WatchError> {
        let mut card = self.connect()?;
        let request = ControlRequest::Capture { uid: uid.raw(), bytes };
        match card.call(&request, &[]).map_err(lost)? {
            (ControlReply::Capturing { id }, _) => Ok(Box::new(Capture { card, id })),
            (ControlReply::TooManyCaptures { most }, _) => Err(WatchError::TooMany { most }),
            (other, _) => Err(unexpected(&mut card, &other)),
        }
    }
}

/// The reasons for which an NT has dropped packets.
fn nt_drops(task: TaskObservation) -> impl Iterator<Item = NtDrops> {
    let TaskObservation { uid, nt_type, dropped, .. } = task;
    // What came with the DAG's configuration is an id.
    let nt_type = NtTypeId::new(&nt_type).ok();
    let drops = dropped.into_iter().filter(|(_, packets)| *packets > 0);
    drops.filter_map(move |(reason, packets)| {
        Some(NtDrops { uid: DagUid::from_raw(uid), nt_type: nt_type.clone()?, reason, packets })
    })
}

impl PacketWatch for Capture {
    fn fetch(&mut self) -> Result<SeenPackets, WatchError> {
        let request = ControlRequest::Captured { id: self.id };
        match self.card.call_patiently(&request).map_err(lost)? {
            Some((ControlReply::Captured(seen), _)) => Ok(seen),
            Some((ControlReply::NoCapture, _)) => Err(WatchError::Ended),
            Some((other, _)) => Err(unexpected(&mut self.card, &other)),
            // A process that is stopped has seen nothing either.
            None => Ok(SeenPackets::default()),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The card ends a capture that nobody asks for by itself.
        if !self.card.is_ready() {
            return;
        }
        // Where the card is gone, so is the capture.
        let _ = self.card.done(&ControlRequest::EndCapture { id: self.id }, &[]);
    }
}

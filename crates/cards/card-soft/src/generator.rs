//! The loads of a card in another process. Each has a separate connection, as watches of packets have.

use snic_domain::{Bandwidth, CardModel, CardProfile};
use snic_ports::card::CardError;
use snic_ports::generator::{
    GeneratedLoad, GeneratorError, LoadCounts, LoadReading, RunningLoad, TrafficGenerator,
};
use snic_ports::remote::RemoteRegisters as _;

use crate::SoftCardSettings;
use crate::client::SoftCard;
use crate::process::CardFolder;
use crate::protocol::{ControlReply, ControlRequest};

/// Makes loads on the card in a folder.
#[derive(Debug, Clone)]
pub struct SoftGenerator {
    folder: CardFolder,
    model: CardModel,
    rate_max: Bandwidth,
    settings: SoftCardSettings,
}

impl SoftGenerator {
    /// For the card in this folder, which was started with these settings.
    pub fn new(folder: CardFolder, profile: &CardProfile, settings: SoftCardSettings) -> Self {
        Self { folder, model: profile.model.clone(), rate_max: profile.ingress, settings }
    }
}

struct Load {
    card: SoftCard,
    id: u64,
    /// As it was read last.
    last: LoadReading,
}

fn lost(error: CardError) -> GeneratorError {
    GeneratorError::Lost(error.to_string())
}

fn unexpected(card: &mut SoftCard, reply: &ControlReply) -> GeneratorError {
    lost(card.lose(format!("the card's process answered {reply:?}")))
}

impl TrafficGenerator for SoftGenerator {
    fn rate_max(&self) -> Bandwidth {
        self.rate_max
    }

    fn start(&self, load: &GeneratedLoad) -> Result<Box<dyn RunningLoad>, GeneratorError> {
        let card = SoftCard::connect(&self.folder, self.model.clone(), &self.settings);
        let card = card.map_err(GeneratorError::Lost)?;
        begin(card, load)
    }
}

/// Begins a load by this connection.
pub(crate) fn begin(
    mut card: SoftCard,
    load: &GeneratedLoad,
) -> Result<Box<dyn RunningLoad>, GeneratorError> {
    let request = ControlRequest::Generate { load: load.clone() };
    match card.call(&request, &[]).map_err(lost)? {
        (ControlReply::Generating { id }, _) => {
            let last = LoadReading { is_sending: true, ..LoadReading::default() };
            Ok(Box::new(Load { card, id, last }))
        }
        (ControlReply::TooManyLoads { most }, _) => Err(GeneratorError::TooMany { most }),
        (ControlReply::InvalidLoad { what }, _) => Err(GeneratorError::Invalid(what)),
        (other, _) => Err(unexpected(&mut card, &other)),
    }
}

impl RunningLoad for Load {
    fn read(&mut self) -> Result<LoadReading, GeneratorError> {
        match self.card.call_patiently(&ControlRequest::ReadLoad { id: self.id }).map_err(lost)? {
            Some((ControlReply::Load(reading), _)) => {
                self.last = reading.clone();
                Ok(reading)
            }
            Some((ControlReply::NoLoad, _)) => Err(GeneratorError::Ended),
            Some((other, _)) => Err(unexpected(&mut self.card, &other)),
            // A process that is stopped makes no packets: nothing has changed since.
            None => Ok(LoadReading { recent: LoadCounts::default(), ..self.last.clone() }),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // The card ends a load that nobody asks for by itself.
        if !self.card.is_ready() {
            return;
        }
        // Where the card is gone, so is the load.
        let _ = self.card.done(&ControlRequest::EndLoad { id: self.id }, &[]);
    }
}

//! What one event leads to, while it is being worked out.

use crate::event::Effect;
use crate::records::Batch;

/// Changes of the store and other effects of one event.
#[derive(Debug, Default)]
pub(crate) struct Tx {
    pub batch: Batch,
    pub effects: Vec<Effect>,
}

impl Tx {
    /// The effects in the order in which they are to be carried out: intent first.
    pub fn into_effects(self) -> Vec<Effect> {
        let mut effects = Vec::with_capacity(self.effects.len() + 1);
        if !self.batch.0.is_empty() {
            effects.push(Effect::Persist(self.batch.0));
        }
        effects.extend(self.effects);
        effects
    }
}

//! The policies in force, and those that arrived and take effect at the next edge of an epoch.

use crate::protocol::ControllerSettings;

/// Policies of one daemon.
#[derive(Debug)]
pub(crate) struct Policies {
    current: ControllerSettings,
    /// The last ones that arrived since an edge.
    next: Option<ControllerSettings>,
}

impl Policies {
    pub const fn new(current: ControllerSettings) -> Self {
        Self { current, next: None }
    }

    /// Those in force.
    pub const fn current(&self) -> &ControllerSettings {
        &self.current
    }

    /// Others arrived. Where others wait already, these are the ones that count.
    pub const fn arrived(&mut self, settings: ControllerSettings) {
        self.next = Some(settings);
    }

    /// An epoch ends: what arrived is in force. Gives the policies before, if any of them changed.
    pub fn take_effect(&mut self) -> Option<ControllerSettings> {
        let next = self.next.take().filter(|next| *next != self.current)?;
        Some(std::mem::replace(&mut self.current, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(load_attempts: u32) -> ControllerSettings {
        ControllerSettings { load_attempts, ..ControllerSettings::default() }
    }

    #[test]
    fn the_latest_policies_take_effect_once_at_the_epochs_edge() {
        let mut policies = Policies::new(attempts(3));
        policies.arrived(attempts(4));
        policies.arrived(attempts(5));
        assert_eq!(policies.current().load_attempts, 3, "an epoch has one policy");
        assert_eq!(policies.take_effect(), Some(attempts(3)));
        assert_eq!(policies.current().load_attempts, 5);
        assert_eq!(policies.take_effect(), None);
    }

    #[test]
    fn the_same_policies_again_are_no_change() {
        let mut policies = Policies::new(attempts(3));
        policies.arrived(attempts(4));
        policies.arrived(attempts(3));
        assert_eq!(policies.take_effect(), None);
        assert_eq!(*policies.current(), attempts(3));
    }
}

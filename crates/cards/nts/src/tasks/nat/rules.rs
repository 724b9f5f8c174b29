//! Flow rules of a NAT: what further packets of a session get.

use snic_domain::Timestamp;

use super::table::Tables;
use crate::FlowRule;
use crate::aging::{EntryId, EntryTicket};
use crate::flow_rules::Rewrite;

/// Places of the tickets in a rule, for each direction: the session and its mapping.
const DIRECTIONS: usize = 2;

impl Tables {
    /// A packet begins that may follow sessions.
    pub(super) fn begin_packet(&mut self) {
        self.followed = Some([None; DIRECTIONS]);
    }

    /// Records that the packet at hand is of a session.
    pub(super) fn note_followed(&mut self, session: EntryId, is_inward: bool, is_steady: bool) {
        match &mut self.followed {
            Some(followed) if is_steady => followed[usize::from(is_inward)] = Some(session),
            followed => *followed = None,
        }
    }

    /// The rule for packets like the one at hand: with the addresses of the sessions that it has followed. `None` where it
    /// has opened or changed one, or followed none.
    pub(super) fn rule(&self) -> Option<FlowRule> {
        let [outward, inward] = self.followed?;
        let (outward, inward) =
            (outward.map(|id| self.tickets(id)), inward.map(|id| self.tickets(id)));
        let mut rule = FlowRule::PASS;
        if let Some((session, mapping)) = outward {
            rule.rewrite.source = Some(self.mappings.value(mapping.id()).external);
            (rule.tickets[0], rule.tickets[1]) = (Some(session), Some(mapping));
        }
        if let Some((session, mapping)) = inward {
            rule.rewrite.destination = Some(self.mappings.key(mapping.id()).inside);
            (rule.tickets[2], rule.tickets[3]) = (Some(session), Some(mapping));
        }
        if let (Some(_), Some((_, mapping))) = (outward, inward) {
            rule.rewrite.back_to = Some(self.mappings.value(mapping.id()).station);
        }
        (outward.is_some() || inward.is_some()).then_some(rule)
    }

    /// Tickets for a session and its mapping.
    fn tickets(&self, session: EntryId) -> (EntryTicket, EntryTicket) {
        let mapping = self.mapping_of(&self.sessions.key(session));
        (self.sessions.ticket(session), self.mappings.ticket(mapping))
    }

    /// Whether the sessions of a rule are as they were, packets that turn around still go to the same station, and packets to the
    /// sender go to `from`, the station of the packet at hand: where another station has spoken for it since, only a packet that is
    /// processed says that it is this one again.
    pub(super) fn holds(&self, rule: &FlowRule, from: [u8; 6], now: Timestamp) -> bool {
        let [out_session, out_mapping, in_session, in_mapping] = rule.tickets;
        let sessions = [out_session, in_session].into_iter().flatten();
        let mappings = [out_mapping, in_mapping].into_iter().flatten();
        let known = |mapping: EntryTicket| {
            let is_valid = self.mappings.is_valid(mapping);
            is_valid.then(|| self.mappings.value(mapping.id()).station).flatten()
        };
        let is_same_station = match (rule.rewrite, in_mapping) {
            (Rewrite { back_to: Some(station), .. }, Some(mapping)) => station == known(mapping),
            _ => true,
        };
        out_mapping.is_none_or(|mapping| known(mapping) == Some(from))
            && is_same_station
            && sessions.into_iter().all(|ticket| self.sessions.is_steady(ticket, now))
            && mappings.into_iter().all(|ticket| self.mappings.is_valid(ticket))
    }

    /// A packet of the sessions of a rule that holds.
    pub(super) fn follow_rule(&mut self, rule: &FlowRule, now: Timestamp) {
        let [out_session, out_mapping, in_session, in_mapping] = rule.tickets;
        for (session, mapping) in [(out_session, out_mapping), (in_session, in_mapping)] {
            if let (Some(session), Some(mapping)) = (session, mapping) {
                self.sessions.touch_steady(session, now);
                self.use_mapping(mapping.id(), now);
            }
        }
    }
}

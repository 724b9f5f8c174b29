//! The guard of a port: which frames it lets in and out.
//!
//! Control frames of a link end at the port for which they are meant, and are never relayed: a guest that sends PAUSE, BPDUs or
//! LACP would otherwise speak with the network's switch in the card's name, and with other guests in the switch's. The
//! guard of a function adds what ports of SR-IOV cards enforce: source addresses, VLANs, and the rate of what goes to all.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;
use snic_domain::limits::FUNCTION_VLANS_MAX;
use snic_nts::config::Mac;
use snic_nts::wire::{self, ETHERNET_BYTES};
use snic_ports::packets::PortTraffic;
use snic_tables::GuardRow;

/// Most source addresses of a function: as many as the card learns for it.
const MACS_MAX: usize = 64;
/// The highest VLAN number (IEEE 802.1Q, table 9-2).
const VLAN_MAX: u16 = 4_094;
/// EtherTypes of protocols between the two ends of a link: MAC control (PAUSE, PFC), slow protocols (LACP, OAM), LLDP.
const CONTROL_TYPES: [u16; 3] = [0x8808, 0x8809, 0x88CC];
const NANOS: u128 = 1_000_000_000;

/// Limits of a virtual function's port, as ports of SR-IOV cards enforce them. What a field does not limit is limited
/// only by what holds for all ports: no control frames of the link, and no source address of another function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionGuard {
    /// Number of the virtual function, whose port `functions` names.
    pub function: u16,
    /// Ethernet addresses that its frames may come from, 1 to 64. Without it, each address that is no other function's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macs: Option<Vec<Mac>>,
    /// VLANs that its frames may be tagged with, in both directions, each from 1 to 4094; an empty list for none.
    /// Frames without a VLAN pass. Without it, all VLANs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<BTreeSet<u16>>,
    /// Broadcast and multicast frames that it may send, per second; a second's worth at once. At least 1. Without it, no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_frames_per_second: Option<u32>,
}

/// A guard that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value} for function {function}; allowed: {allowed}")]
pub struct InvalidGuard {
    function: u16,
    field: &'static str,
    value: String,
    allowed: &'static str,
}

impl FunctionGuard {
    /// Checks the guards of a card with so many ports for functions.
    ///
    /// # Errors
    /// A function has no port or two guards, or a limit is out of its range.
    pub fn check(guards: &[Self], functions: usize) -> Result<(), InvalidGuard> {
        for (at, guard) in guards.iter().enumerate() {
            let invalid = |field, value: String, allowed| {
                let function = guard.function;
                Err(InvalidGuard { function, field, value, allowed })
            };
            if usize::from(guard.function) >= functions {
                let allowed = "a function whose port is listed in functions, counted from 0";
                return invalid("function", guard.function.to_string(), allowed);
            }
            if guards[..at].iter().any(|other| other.function == guard.function) {
                let allowed = "one guard for each function";
                return invalid("function", guard.function.to_string(), allowed);
            }
            let macs = guard.macs.as_ref().map_or(1, Vec::len);
            if !(1..=MACS_MAX).contains(&macs) {
                let allowed = "1 to 64 addresses; leave it out for any";
                return invalid("macs", format!("a list of {macs}"), allowed);
            }
            let vlans = guard.vlans.iter().flatten();
            if let Some(wrong) = vlans.copied().find(|vlan| !(1..=VLAN_MAX).contains(vlan)) {
                return invalid("vlans", wrong.to_string(), "numbers from 1 to 4094");
            }
            if guard.group_frames_per_second == Some(0) {
                let allowed = "1 and more; leave it out for no limit";
                return invalid("group_frames_per_second", "0".to_owned(), allowed);
            }
        }
        Ok(())
    }
}

/// Why a port refuses a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameRefusal {
    /// A control frame of the link.
    Control,
    /// Its source is no station's address, not one of the function's, or another function's.
    Source,
    /// A VLAN that the function does not have.
    Vlan,
    /// More broadcast and multicast frames than the function may send.
    GroupRate,
}

impl FrameRefusal {
    /// Counts the frame at its port.
    pub(crate) const fn count(self, counts: &mut PortTraffic) {
        match self {
            Self::Control => counts.control += 1,
            Self::Source => counts.wrong_source += 1,
            Self::Vlan => counts.wrong_vlan += 1,
            Self::GroupRate => counts.over_group_rate += 1,
        }
    }
}

/// The guard of a port, with the tokens of its limit.
#[derive(Debug, Default)]
pub(crate) struct PortGuard {
    /// Limits of the settings.
    settings: FunctionGuard,
    /// Limits in force.
    limits: FunctionGuard,
    /// Frames for groups that may come in, times 10^9.
    credit: u128,
    /// When the limit was last paid in.
    paid_at: Option<Timestamp>,
}

impl PortGuard {
    /// The guard of a function's port, as the settings have it.
    pub(crate) fn new(settings: FunctionGuard) -> Self {
        Self { limits: settings.clone(), settings, ..Self::default() }
    }

    /// Takes over the row of the card's tables. What the settings limit stays as they say: they are the operator's. `shared`
    /// are stations that the function may send from besides those of the row.
    pub(crate) fn set_row(&mut self, row: Option<&GuardRow>, shared: &[[u8; 6]]) {
        let mut limits = self.settings.clone();
        if let Some(row) = row {
            let macs = row.macs.iter().flatten().chain(shared);
            limits.macs = limits.macs.or_else(|| Some(macs.copied().map(Mac).collect()));
            let vlans = |vlans: [u16; FUNCTION_VLANS_MAX]| {
                vlans.into_iter().filter(|vlan| *vlan != 0).collect()
            };
            limits.vlans = limits.vlans.or_else(|| row.vlans.map(vlans));
            let rate = limits.group_frames_per_second.or(row.group_frames_per_second);
            limits.group_frames_per_second = rate;
        }
        self.limits = limits;
    }

    /// The stations that its function alone may send from; none where it is not limited.
    pub(crate) fn stations(&self) -> impl Iterator<Item = [u8; 6]> {
        self.limits.macs.iter().flatten().map(|mac| mac.0)
    }

    /// Whether a frame may come in.
    pub(crate) fn admit(&mut self, frame: &[u8], now: Timestamp) -> Result<(), FrameRefusal> {
        self.may_leave(frame)?;
        if frame.len() < ETHERNET_BYTES {
            return Err(FrameRefusal::Source);
        }
        let source = [frame[6], frame[7], frame[8], frame[9], frame[10], frame[11]];
        let is_station = source[0] & 1 == 0 && source != [0; 6];
        if !is_station {
            return Err(FrameRefusal::Source);
        }
        if self.limits.macs.as_ref().is_some_and(|macs| !macs.contains(&Mac(source))) {
            return Err(FrameRefusal::Source);
        }
        if frame[0] & 1 == 1 && !self.take_token(now) {
            return Err(FrameRefusal::GroupRate);
        }
        Ok(())
    }

    /// Whether a frame may go out by this port.
    pub(crate) fn may_leave(&self, frame: &[u8]) -> Result<(), FrameRefusal> {
        if is_link_control(frame) {
            return Err(FrameRefusal::Control);
        }
        let has_vlan = |vlan: u16| self.limits.vlans.as_ref().is_none_or(|all| all.contains(&vlan));
        let mut vlans = wire::vlans(frame).filter(|vlan| *vlan != 0);
        if vlans.all(has_vlan) { Ok(()) } else { Err(FrameRefusal::Vlan) }
    }

    fn take_token(&mut self, now: Timestamp) -> bool {
        let Some(rate) = self.limits.group_frames_per_second.map(u128::from) else { return true };
        let most = rate * NANOS;
        let paid_at = self.paid_at.replace(now);
        let gained = paid_at.map_or(most, |before| rate * now.since(before).as_nanos());
        self.credit = (self.credit + gained).min(most);
        match self.credit.checked_sub(NANOS) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }
}

/// Whether a frame is of a protocol between the two ends of a link, which no bridge relays.
pub(crate) fn is_link_control(frame: &[u8]) -> bool {
    if frame.len() < ETHERNET_BYTES {
        return false;
    }
    let is_group = match frame[..6] {
        // Reserved addresses (IEEE 802.1Q-2022, table 8-1): PAUSE, LACP, 802.1X, LLDP, spanning tree. Bridges relay the
        // others of MRP where they do not speak it, but a guest's request would change the VLANs of the switch's port.
        [0x01, 0x80, 0xC2, 0, 0, last] => matches!(last, 0x00..=0x0F | 0x20..=0x2F),
        // Cisco's: CDP, VTP, DTP, PAgP and UDLD; spanning tree for each VLAN; UplinkFast.
        [0x01, 0x00, 0x0C, a, b, c] => {
            matches!([a, b, c], [0xCC, 0xCC, 0xCC | 0xCD] | [0xCD, 0xCD, 0xCD])
        }
        _ => false,
    };
    let mut tags = wire::vlans(frame);
    tags.by_ref().for_each(drop);
    is_group || tags.ether_type().is_some_and(|of| CONTROL_TYPES.contains(&of))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn frame(to: [u8; 6], from: [u8; 6], behind: &[u8]) -> Vec<u8> {
        [&to[..], &from, behind, &[0; 50]].concat()
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn admit(guard: &FunctionGuard, frame: &[u8]) -> Result<(), FrameRefusal> {
        PortGuard::new(guard.clone()).admit(frame, at(0))
    }

    #[test]
    fn control_frames_of_a_link_are_known_by_address_and_by_type() {
        let ip = [8, 0];
        for last in 0..=0xFF {
            let frame = frame([1, 0x80, 0xC2, 0, 0, last], STATION, &ip);
            let is_control = matches!(last, 0..=0x0F | 0x20..=0x2F);
            assert_eq!(is_link_control(&frame), is_control, "{last:02x}");
        }
        for (to, is_control) in [
            ([1, 0, 0x0C, 0xCC, 0xCC, 0xCC], true),
            ([1, 0, 0x0C, 0xCC, 0xCC, 0xCD], true),
            ([1, 0, 0x0C, 0xCD, 0xCD, 0xCD], true),
            ([1, 0, 0x0C, 0xCC, 0xCC, 0xCE], false),
            ([1, 0, 0x5E, 0, 0, 251], false),
            ([0xFF; 6], false),
            ([2, 0x80, 0xC2, 0, 0, 1], false),
        ] {
            assert_eq!(is_link_control(&frame(to, STATION, &ip)), is_control, "{to:02x?}");
        }
        let to = [2, 0, 0, 0, 0, 9];
        for behind in [
            &[0x88, 0x08][..],
            &[0x88, 0x09],
            &[0x88, 0xCC],
            &[0x81, 0, 0, 0, 0x88, 0x08],
            &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 0, 0x81, 0, 0, 0, 0x88, 0xCC],
        ] {
            assert!(is_link_control(&frame(to, STATION, behind)), "{behind:02x?}");
        }
        for behind in [&[8, 0][..], &[8, 6], &[0x81, 0, 0, 0, 8, 0], &[0x88, 0xB5]] {
            assert!(!is_link_control(&frame(to, STATION, behind)), "{behind:02x?}");
        }
        assert!((0..ETHERNET_BYTES).all(|length| !is_link_control(&[1; 14][..length])));
    }

    #[test]
    fn a_source_has_to_be_a_station_and_one_of_the_functions() {
        let any = FunctionGuard::default();
        let only = FunctionGuard { macs: Some(vec![Mac(STATION)]), ..any.clone() };
        for (from, by_any, by_only) in [
            (STATION, Ok(()), Ok(())),
            ([2, 0, 0, 0, 0, 2], Ok(()), Err(FrameRefusal::Source)),
            ([3, 0, 0, 0, 0, 1], Err(FrameRefusal::Source), Err(FrameRefusal::Source)),
            ([0xFF; 6], Err(FrameRefusal::Source), Err(FrameRefusal::Source)),
            ([0; 6], Err(FrameRefusal::Source), Err(FrameRefusal::Source)),
        ] {
            let frame = frame([0xFF; 6], from, &[8, 6]);
            assert_eq!((admit(&any, &frame), admit(&only, &frame)), (by_any, by_only), "{from:?}");
        }
        for length in 0..14 {
            assert_eq!(admit(&any, &[2; 14][..length]), Err(FrameRefusal::Source), "{length}");
        }
    }

    #[test]
    fn each_tag_of_a_frame_has_to_be_one_of_the_functions() {
        let guard = |vlans: &[u16]| FunctionGuard {
            vlans: Some(vlans.iter().copied().collect()),
            ..FunctionGuard::default()
        };
        for (vlans, tags, passes) in [
            (&[][..], &[][..], true),
            (&[], &[0x81, 0, 0xE0, 0], true),
            (&[], &[0x81, 0, 0, 5], false),
            (&[5], &[0x81, 0, 0xE0, 5], true),
            (&[5], &[0x91, 0, 0, 6], false),
            (&[5], &[0x81, 0, 0, 0, 0x81, 0, 0, 6], false),
            (&[5, 6], &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 6], true),
            (&[5], &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 6], false),
        ] {
            let tagged = frame([2; 6], STATION, &[tags, &[8, 0]].concat());
            let expected = if passes { Ok(()) } else { Err(FrameRefusal::Vlan) };
            assert_eq!(admit(&guard(vlans), &tagged), expected, "{vlans:?} {tags:02x?}");
            let out = PortGuard::new(guard(vlans)).may_leave(&tagged);
            assert_eq!(out, expected, "out: {vlans:?} {tags:02x?}");
            assert_eq!(admit(&FunctionGuard::default(), &tagged), Ok(()));
        }
    }

    #[test]
    fn frames_for_groups_have_a_rate_and_others_have_none() {
        let limits =
            FunctionGuard { group_frames_per_second: Some(10), ..FunctionGuard::default() };
        let mut guard = PortGuard::new(limits);
        let (all, one) = (frame([0xFF; 6], STATION, &[8, 6]), frame([2; 6], STATION, &[8, 6]));
        let passed = |guard: &mut PortGuard, millis: u64| {
            (0..100).filter(|_| guard.admit(&all, at(millis)).is_ok()).count()
        };
        assert_eq!(passed(&mut guard, 0), 10, "a second's worth");
        assert_eq!(guard.admit(&all, at(0)), Err(FrameRefusal::GroupRate));
        assert_eq!(guard.admit(&one, at(0)), Ok(()));
        assert_eq!(passed(&mut guard, 99), 0);
        assert_eq!(passed(&mut guard, 100), 1);
        assert_eq!(passed(&mut guard, 60_000), 10, "what was not used is no more than a second's");
    }

    #[test]
    fn a_row_of_the_card_limits_what_the_settings_do_not() {
        let (given, other) = ([2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 8]);
        let row = GuardRow {
            macs: [Some(given), None, None, None],
            vlans: Some([6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            group_frames_per_second: Some(1),
        };
        let from = |station, tag: &[u8]| frame([2; 6], station, &[tag, &[8, 0]].concat());
        let (tag_5, tag_6) = ([0x81, 0, 0, 5], [0x81, 0, 0, 6]);
        let to_all = frame([0xFF; 6], given, &[8, 6]);
        let mut guard = PortGuard::default();
        assert_eq!(guard.admit(&from(other, &[]), at(0)), Ok(()));
        guard.set_row(Some(&row), &[STATION]);
        for (frame, expected) in [
            (from(given, &[]), Ok(())),
            (from(STATION, &[]), Ok(())),
            (from(other, &[]), Err(FrameRefusal::Source)),
            (from(given, &tag_6), Ok(())),
            (from(given, &tag_5), Err(FrameRefusal::Vlan)),
            (to_all.clone(), Ok(())),
            (to_all.clone(), Err(FrameRefusal::GroupRate)),
        ] {
            assert_eq!(guard.admit(&frame, at(0)), expected, "{frame:02x?}");
        }
        // The same row again pays nothing in.
        guard.set_row(Some(&row), &[]);
        assert_eq!(guard.admit(&to_all, at(0)), Err(FrameRefusal::GroupRate));
        guard.set_row(None, &[]);
        assert_eq!(guard.admit(&from(other, &tag_5), at(0)), Ok(()));

        let settings = FunctionGuard {
            macs: Some(vec![Mac(other)]),
            vlans: Some([5].into()),
            group_frames_per_second: Some(2),
            function: 0,
        };
        let mut guard = PortGuard::new(settings);
        guard.set_row(Some(&row), &[STATION]);
        let to_all = frame([0xFF; 6], other, &[8, 6]);
        for (frame, expected) in [
            (from(given, &[]), Err(FrameRefusal::Source)),
            (from(STATION, &[]), Err(FrameRefusal::Source)),
            (from(other, &tag_5), Ok(())),
            (from(other, &tag_6), Err(FrameRefusal::Vlan)),
            (to_all.clone(), Ok(())),
            (to_all.clone(), Ok(())),
            (to_all, Err(FrameRefusal::GroupRate)),
        ] {
            assert_eq!(guard.admit(&frame, at(0)), expected, "{frame:02x?}");
        }
        guard.set_row(Some(&GuardRow { macs: [None; 4], ..row }), &[]);
        assert_eq!(guard.admit(&from(other, &[]), at(0)), Ok(()), "the operator's word");
    }

    #[test]
    fn guards_that_cannot_be_meant_are_refused() {
        let good = FunctionGuard { function: 1, ..FunctionGuard::default() };
        assert_eq!(FunctionGuard::check(std::slice::from_ref(&good), 2), Ok(()));
        let error = |guards: &[FunctionGuard]| {
            FunctionGuard::check(guards, 2).expect_err("wrong").to_string()
        };
        assert!(error(&[good.clone(), good.clone()]).contains("one guard for each function"));
        let with = |change: &dyn Fn(&mut FunctionGuard)| {
            let mut guard = good.clone();
            change(&mut guard);
            error(&[guard])
        };
        assert_eq!(
            with(&|guard| guard.function = 2),
            "function = 2 for function 2; allowed: a function whose port is listed in functions, counted from 0"
        );
        assert!(with(&|guard| guard.macs = Some(Vec::new())).contains("macs = a list of 0"));
        assert!(with(&|guard| guard.vlans = Some([4_095].into())).contains("vlans = 4095"));
        assert!(with(&|guard| guard.vlans = Some([0].into())).contains("numbers from 1 to 4094"));
        assert!(with(&|guard| guard.group_frames_per_second = Some(0)).contains("no limit"));
    }
}

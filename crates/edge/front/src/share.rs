//! Fair shares: priority levels, and the flows that share one.
//!
//! See `snic_admission`. The levels, from the first to the last that must not fail:
//!
//! | level | callers |
//! |---|---|
//! | health | heartbeats and health checks of orchestrators and operators |
//! | operators | operators, and replicas of a fleet |
//! | orchestrators | programs that start virtual machines, and hosts of a fleet |
//! | tenants | tenants; each is a flow |
//! | unidentified | connections without an identity; each address is a flow |
//! | arriving | connections before their identity is known; each address is a flow |
//! | watches | what the server reads to keep watches up to date |

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use snic_admission::{LevelSeat, OverShare, Room};
use snic_api::error::ApiError;
use snic_domain::{Caller, TenantId};

use crate::error::overloaded;
use crate::identity::{CallerIdentity, Party};

/// Number of levels.
const LEVELS: usize = 7;

/// A priority level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallerLevel {
    /// Heartbeats and health checks of orchestrators and operators.
    Health,
    Operators,
    /// Programs that start virtual machines.
    Orchestrators,
    Tenants,
    /// Connections without an identity.
    Unidentified,
    /// Connections before their identity is known.
    Arriving,
    /// Reads of the server that keep watches up to date.
    Watches,
}

/// Weights of the levels for the controller's time, in the order of [`CallerLevel`].
pub const TIME_WEIGHTS: [u32; LEVELS] = [4, 4, 4, 6, 1, 1, 2];

/// Guaranteed places of each level, in percent of all; the rest is shared.
type Guarantees = [usize; LEVELS];

/// The flow whose share is used: a caller among others of its level.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallerFlow {
    /// The server itself.
    Server,
    Operator(String),
    /// A program that starts virtual machines.
    Orchestrator(String),
    /// A host of a fleet.
    Host(String),
    /// A replica of a fleet's service.
    Replica(String),
    /// A tenant, with its members.
    Tenant(TenantId),
    /// An address; of IPv6 the network of a host, because a host has as many addresses as it likes.
    Address(IpAddr),
    /// A user of this host.
    User(u32),
}

impl From<&Caller> for CallerFlow {
    fn from(caller: &Caller) -> Self {
        match caller {
            Caller::Operator(name) => Self::Operator(name.clone()),
            Caller::Orchestrator(name) => Self::Orchestrator(name.clone()),
            Caller::Tenant(id) => Self::Tenant(id.clone()),
        }
    }
}

impl From<&CallerIdentity> for CallerFlow {
    fn from(identity: &CallerIdentity) -> Self {
        match identity.party() {
            Party::Caller(caller) => caller.into(),
            Party::Host(name) => Self::Host(name.clone()),
            Party::Replica(name) => Self::Replica(name.clone()),
        }
    }
}

impl From<IpAddr> for CallerFlow {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::Address(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            address => Self::Address(address),
        }
    }
}

impl CallerLevel {
    /// The level of a caller's connections, and of its calls but health checks.
    pub fn of(caller: &Caller) -> Self {
        match caller {
            Caller::Operator(_) => Self::Operators,
            Caller::Orchestrator(_) => Self::Orchestrators,
            Caller::Tenant(_) => Self::Tenants,
        }
    }

    /// The level of an identity: hosts are programs, and replicas bring operators' requests, too.
    pub fn of_identity(identity: &CallerIdentity) -> Self {
        match identity.party() {
            Party::Caller(caller) => Self::of(caller),
            Party::Host(_) => Self::Orchestrators,
            Party::Replica(_) => Self::Operators,
        }
    }

    /// The level of an identity's health checks.
    pub fn of_health_of(identity: &CallerIdentity) -> Self {
        identity.caller().map_or(Self::Health, Self::of_health)
    }

    /// The level of a heartbeat or health check.
    pub fn of_health(caller: &Caller) -> Self {
        match caller {
            Caller::Operator(_) | Caller::Orchestrator(_) => Self::Health,
            Caller::Tenant(_) => Self::Tenants,
        }
    }
}

fn room(total: usize, guaranteed: Guarantees, flow_max: usize) -> Room<CallerFlow> {
    let guaranteed = guaranteed.map(|percent| total * percent / 100);
    let shared = total - guaranteed.iter().sum::<usize>();
    Room::new(shared, guaranteed.map(|guaranteed| snic_admission::Level { guaranteed, flow_max }))
}

/// Room for so many short calls.
pub(crate) fn call_room(total: usize) -> Room<CallerFlow> {
    room(total, [5, 15, 10, 30, 5, 0, 0], usize::MAX)
}

/// Places of one kind.
#[derive(Debug, Clone)]
pub struct PermitPool {
    room: Arc<Mutex<Room<CallerFlow>>>,
    what: &'static str,
}

/// A held place; given back on drop.
#[derive(Debug)]
pub struct Permit {
    places: PermitPool,
    level: CallerLevel,
    /// `None` once it was given back.
    flow: Option<CallerFlow>,
}

impl PermitPool {
    /// Places for short calls.
    pub fn calls(total: usize) -> Self {
        Self { room: Arc::new(Mutex::new(call_room(total))), what: "calls" }
    }

    /// Places for watches and waits.
    pub fn streams(total: usize, per_caller: usize) -> Self {
        let guaranteed = [0, 15, 10, 30, 0, 0, 0];
        Self::new("watches and waits", total, guaranteed, per_caller)
    }

    /// Places for uploads.
    pub fn uploads(total: usize, per_caller: usize) -> Self {
        let guaranteed = [0, 25, 0, 25, 0, 0, 0];
        Self::new("uploads", total, guaranteed, per_caller)
    }

    /// Places for batches, whose plans take a processor's time.
    pub fn batches(total: usize, per_caller: usize) -> Self {
        let guaranteed = [0, 25, 0, 25, 0, 0, 0];
        Self::new("batches", total, guaranteed, per_caller)
    }

    /// Places for watches of packets, which take a card's time.
    pub fn packet_watches(total: usize, per_caller: usize) -> Self {
        let guaranteed = [0, 25, 0, 25, 0, 0, 0];
        Self::new("watches of packets", total, guaranteed, per_caller)
    }

    /// Places for runs of traffic, which take a card's port and a processor.
    pub fn traffic_runs(total: usize, per_caller: usize) -> Self {
        let guaranteed = [0, 25, 0, 25, 0, 0, 0];
        Self::new("runs of traffic", total, guaranteed, per_caller)
    }

    /// Places for calls between a fleet and a host.
    pub fn passed_calls(total: usize, per_caller: usize) -> Self {
        let guaranteed = [0, 25, 5, 25, 0, 0, 0];
        Self::new("calls passed on to hosts", total, guaranteed, per_caller)
    }

    /// Places for connections.
    pub fn connections(total: usize, per_caller: usize) -> Self {
        let guaranteed = [0, 15, 15, 25, 5, 10, 0];
        Self::new("connections", total, guaranteed, per_caller)
    }

    fn new(what: &'static str, total: usize, guaranteed: Guarantees, flow_max: usize) -> Self {
        Self { room: Arc::new(Mutex::new(room(total, guaranteed, flow_max))), what }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// The flow has its share.
    pub fn enter(&self, level: CallerLevel, flow: CallerFlow) -> Result<Permit, ApiError> {
        let entered = self.room.lock().enter(level as usize, &flow);
        entered.map_err(|over| over_share(self.what, over))?;
        Ok(Permit { places: self.clone(), level, flow: Some(flow) })
    }
}

impl Permit {
    /// The same place, held by another flow.
    ///
    /// # Errors
    /// That flow has its share. The place is given back then.
    pub fn change(mut self, level: CallerLevel, flow: CallerFlow) -> Result<Self, ApiError> {
        let Some(from) = self.flow.take() else { return Ok(self) };
        let mut room = self.places.room.lock();
        let changed = room.change(
            LevelSeat { level: self.level as usize, flow: &from },
            LevelSeat { level: level as usize, flow: &flow },
        );
        drop(room);
        changed.map_err(|over| over_share(self.places.what, over))?;
        (self.level, self.flow) = (level, Some(flow));
        Ok(self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(flow) = self.flow.take() {
            self.places.room.lock().leave(self.level as usize, &flow);
        }
    }
}

fn over_share(what: &str, OverShare { held, .. }: OverShare) -> ApiError {
    let text = match held {
        0 => format!("no room for more {what} at the moment; try again later"),
        _ => format!(
            "too many {what} of this caller: {held} at once is its share at the moment; end some, \
             or try again later"
        ),
    };
    overloaded(text, held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> CallerFlow {
        text.parse::<IpAddr>().expect("an address").into()
    }

    #[test]
    fn a_network_of_ipv6_is_one_flow() {
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(address("192.0.2.2"), address("192.0.2.1"));
    }

    #[test]
    fn strangers_leave_room_for_those_with_an_identity() {
        let places = PermitPool::connections(1_024, 128);
        let mut held = Vec::new();
        for host in 0..=255u8 {
            for _ in 0..64 {
                held.extend(
                    places.enter(CallerLevel::Arriving, address(&format!("192.0.2.{host}"))),
                );
            }
        }
        let operator = || CallerFlow::Operator("root".into());
        for _ in 0..64 {
            held.push(places.enter(CallerLevel::Operators, operator()).expect("guaranteed"));
        }
        assert!(held.len() < 600, "{}", held.len());
    }

    #[test]
    fn a_place_that_changes_hands_is_given_back_once() {
        let places = PermitPool::connections(1, 9);
        let place = places.enter(CallerLevel::Arriving, address("192.0.2.1")).expect("free");
        assert!(places.enter(CallerLevel::Operators, CallerFlow::User(0)).is_err());
        let place =
            place.change(CallerLevel::Operators, CallerFlow::User(0)).expect("the same place");
        assert!(places.enter(CallerLevel::Arriving, address("192.0.2.1")).is_err());
        drop(place);
        let again = places.enter(CallerLevel::Arriving, address("192.0.2.1")).expect("free");
        drop(again);
    }
}

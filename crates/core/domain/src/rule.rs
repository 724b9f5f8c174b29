//! Classification rules: which packets belong to which DAG where the sender does not say so.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{DagName, Notes, NotesPatch, RuleId};

/// An IPv4 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prefix {
    /// The address; bits behind the prefix are zero.
    pub address: Ipv4Addr,
    /// Number of bits that count: 0 to 32.
    pub length: u8,
}

impl Prefix {
    /// The mask with `length` ones.
    pub const fn mask(self) -> u32 {
        match self.length {
            0 => 0,
            1..=31 => u32::MAX << (32 - self.length),
            _ => u32::MAX,
        }
    }
}

/// Properties that a packet must have; `None` matches anything. At least one field is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Match {
    /// Virtual function that sent it.
    pub virtual_function: Option<u16>,
    /// VXLAN network identifier, 24 bits.
    pub vni: Option<u32>,
    pub source: Option<Prefix>,
    pub destination: Option<Prefix>,
    pub protocol: Option<u8>,
    /// TCP or UDP source port.
    pub source_port: Option<u16>,
    /// TCP or UDP destination port.
    pub destination_port: Option<u16>,
    /// VLAN of the outermost tag, 1 to 4,094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}

/// A classification rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub id: RuleId,
    /// Lower wins; ties by id.
    pub priority: u16,
    /// Packets that it holds for.
    pub matches: Match,
    pub dag: DagName,
    /// Notes of its owner.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
}

/// Other values for some fields of a [`Rule`]; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulePatch {
    pub priority: Option<u16>,
    /// Packets that it holds for.
    pub matches: Option<Match>,
    pub dag: Option<DagName>,
    /// Notes of its owner.
    pub notes: NotesPatch,
}

impl RulePatch {
    /// The rule with these values.
    pub fn apply(self, rule: &Rule) -> Rule {
        Rule {
            id: rule.id.clone(),
            priority: self.priority.unwrap_or(rule.priority),
            matches: self.matches.unwrap_or_else(|| rule.matches.clone()),
            dag: self.dag.unwrap_or_else(|| rule.dag.clone()),
            notes: self.notes.apply(&rule.notes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DagId, TenantId};

    fn dag(name: &str) -> DagName {
        let tenant = TenantId::new("acme").expect("a label");
        DagName { tenant, dag: DagId::new(name).expect("a label") }
    }

    fn vni(vni: u32) -> Match {
        Match { vni: Some(vni), ..Match::default() }
    }

    #[test]
    fn a_patch_sets_what_it_names_and_leaves_the_rest() {
        let id = RuleId::new("acme.r").expect("an id");
        let rule =
            Rule { id, priority: 7, matches: vni(1), dag: dag("web"), notes: Default::default() };
        assert_eq!(RulePatch::default().apply(&rule), rule);
        let patch = RulePatch { priority: Some(0), ..RulePatch::default() };
        assert_eq!(patch.apply(&rule), Rule { priority: 0, ..rule.clone() });
        let patch = RulePatch { matches: Some(vni(2)), ..RulePatch::default() };
        assert_eq!(patch.apply(&rule), Rule { matches: vni(2), ..rule.clone() });
        let patch = RulePatch { dag: Some(dag("mail")), ..RulePatch::default() };
        assert_eq!(patch.apply(&rule), Rule { dag: dag("mail"), ..rule });
    }

    #[test]
    fn a_mask_has_as_many_ones_as_the_prefix_is_long() {
        for length in 0..=32u8 {
            let prefix = Prefix { address: Ipv4Addr::UNSPECIFIED, length };
            assert_eq!(prefix.mask().count_ones(), u32::from(length));
            assert_eq!(prefix.mask().leading_ones(), u32::from(length));
        }
    }
}

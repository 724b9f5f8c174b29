//! Senders of packets to a DAG on its host, for which it stays there.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Machines and rules that lead packets to a DAG. They are of its host, and do not go with it to another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DagAttachments {
    /// Machines whose functions lead to it.
    pub machines: u32,
    /// Classification rules that lead to it, beside those of the machines.
    pub rules: u32,
}

impl DagAttachments {
    /// Whether nothing leads to it.
    pub const fn is_none(self) -> bool {
        self.machines == 0 && self.rules == 0
    }
}

/// Such as "1 machine is bound to it and 2 rules lead to it".
impl fmt::Display for DagAttachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machines, rules } = *self;
        match machines {
            0 => {}
            1 => f.write_str("1 machine is bound to it")?,
            _ => write!(f, "{machines} machines are bound to it")?,
        }
        if machines > 0 && rules > 0 {
            f.write_str(" and ")?;
        }
        match rules {
            0 if machines == 0 => f.write_str("nothing leads to it"),
            0 => Ok(()),
            1 => f.write_str("1 rule leads to it"),
            _ => write!(f, "{rules} rules lead to it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_told_in_words() {
        let text = |machines, rules| DagAttachments { machines, rules }.to_string();
        assert_eq!(text(0, 0), "nothing leads to it");
        assert_eq!(text(1, 0), "1 machine is bound to it");
        assert_eq!(text(0, 2), "2 rules lead to it");
        assert_eq!(text(3, 1), "3 machines are bound to it and 1 rule leads to it");
        assert!(DagAttachments::default().is_none());
        assert!(!DagAttachments { machines: 0, rules: 1 }.is_none());
    }

    /// Hosts and replicas of neighbouring versions exchange it.
    #[test]
    fn attachments_have_the_same_form_in_every_version() {
        let of = DagAttachments { machines: 2, rules: 1 };
        let json = serde_json::to_string(&of).expect("numbers");
        assert_eq!(json, r#"{"machines":2,"rules":1}"#);
        assert_eq!(serde_json::from_str::<DagAttachments>(&json).expect("our own"), of);
    }
}

//! Update masks: which fields of a message a change is about.

use prost_types::FieldMask;

use super::FieldProblem;
use crate::v1::ErrorReason;

/// Which of a fixed list of paths are to be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mask {
    /// There was no mask: what is set in the message.
    WhatIsSet,
    /// These paths; `*` stands for all of them.
    Paths(Vec<&'static str>),
}

impl Mask {
    /// Reads a mask whose paths may be these.
    ///
    /// # Errors
    /// A path that is none of them.
    pub fn read(
        mask: Option<&FieldMask>,
        known: &'static [&'static str],
    ) -> Result<Self, FieldProblem> {
        // A mask without paths is what most clients send for "no mask".
        let Some(mask) = mask.filter(|mask| !mask.paths.is_empty()) else {
            return Ok(Self::WhatIsSet);
        };
        if mask.paths.iter().any(|path| path == "*") {
            return Ok(Self::Paths(known.to_vec()));
        }
        let find = |path: &String| {
            known.iter().copied().find(|known| known == path).ok_or_else(|| FieldProblem {
                reason: ErrorReason::InvalidUpdateMask,
                field: "update_mask".to_owned(),
                what: format!("{path:.80?} cannot be set; these can: {}", known.join(", ")),
            })
        };
        mask.paths.iter().map(find).collect::<Result<_, _>>().map(Self::Paths)
    }

    /// Whether a path is to be set; without a mask, whether it `is_set` in the message.
    pub fn has(&self, path: &str, is_set: bool) -> bool {
        match self {
            Self::WhatIsSet => is_set,
            Self::Paths(paths) => paths.contains(&path),
        }
    }
}

//! Update masks: the fields that an update changes.

use prost_types::FieldMask;

use super::FieldProblem;
use crate::names::excerpt;
use crate::v1::ErrorReason;

/// The paths to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mask {
    /// No mask: the fields that are set in the message.
    SetFields,
    /// These paths; `*` stands for all of them.
    Paths(Vec<&'static str>),
}

impl Mask {
    /// Parses a mask of these paths.
    ///
    /// # Errors
    /// [`FieldProblem`] for an unknown path.
    pub fn read(
        mask: Option<&FieldMask>,
        known: &'static [&'static str],
    ) -> Result<Self, FieldProblem> {
        // Most clients send an empty mask for "no mask".
        let Some(mask) = mask.filter(|mask| !mask.paths.is_empty()) else {
            return Ok(Self::SetFields);
        };
        if mask.paths.iter().any(|path| path == "*") {
            return Ok(Self::Paths(known.to_vec()));
        }
        let find = |path: &String| {
            known.iter().copied().find(|known| known == path).ok_or_else(|| FieldProblem {
                reason: ErrorReason::InvalidUpdateMask,
                field: "update_mask".to_owned(),
                what: format!(
                    "path {:?} cannot be set (allowed: {})",
                    excerpt(path),
                    known.join(", ")
                ),
            })
        };
        mask.paths.iter().map(find).collect::<Result<_, _>>().map(Self::Paths)
    }

    /// Whether a path is to be set; without a mask, whether it `is_set` in the message.
    pub fn has(&self, path: &str, is_set: bool) -> bool {
        match self {
            Self::SetFields => is_set,
            Self::Paths(paths) => paths.contains(&path),
        }
    }
}

//! Advice for those whose file system refuses.

use std::error::Error;
use std::io::{self, ErrorKind};

/// Advice about what a file system refuses: a full or read-only disk, or rights that are missing. `None` for other errors.
pub fn remedy(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::StorageFull => Some("make room there, then try again"),
        ErrorKind::QuotaExceeded => {
            Some("make room there, or have the user's quota raised, then try again")
        }
        ErrorKind::ReadOnlyFilesystem => {
            Some("mount its file system so that it can be written, or name another place")
        }
        ErrorKind::PermissionDenied => Some(
            "give the user that runs this program the rights there, or run it as one that has them",
        ),
        _ => None,
    }
}

/// The text of an error with the advice for its cause, where there is some that it does not end with yet.
pub fn with_remedy<'a>(
    text: String,
    causes: impl Iterator<Item = &'a (dyn Error + 'static)>,
) -> String {
    let kinds = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kinds.filter_map(remedy).next() {
        Some(advice) if !text.ends_with(advice) => format!("{text}; {advice}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_behind_the_causes_and_said_once() {
        let full = io::Error::from(ErrorKind::StorageFull);
        let causes = || std::iter::once(&full as &(dyn Error + 'static));
        let said = with_remedy("create the data folder /a: full".to_owned(), causes());
        assert_eq!(said, "create the data folder /a: full; make room there, then try again");
        assert_eq!(with_remedy(said.clone(), causes()), said);
        let other = io::Error::from(ErrorKind::NotFound);
        let causes = std::iter::once(&other as &(dyn Error + 'static));
        assert_eq!(with_remedy("none".to_owned(), causes), "none");
    }
}

//! Licences of all dependencies. The product is Apache-2.0 and is shipped as programs, so a dependency may
//! require attribution and nothing more. One that requires sources is found when it enters the lock file.

use spdx::{Expression, Licensee, ParseMode};

use crate::workspace::Package;

/// Accepted licences. Each requires at most attribution.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "MIT-0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "ISC",
    "Zlib",
    "BSL-1.0",
    "CC0-1.0",
    "Unlicense",
    "Unicode-3.0",
    "CDLA-Permissive-2.0", // lists of certificate authorities
];

/// The registry still has manifests with `MIT/Apache-2.0`, which means OR. Deprecated names are parsed too, so
/// that the other side of an OR can still be chosen.
const MODE: ParseMode = ParseMode {
    allow_slash_as_or_operator: true,
    allow_deprecated: true,
    allow_imprecise_license_names: false,
    allow_postfix_plus_on_gpl: false,
    allow_unknown: false,
};

/// Every package whose licence is not satisfied by [`ALLOWED`].
///
/// # Errors
/// A name in [`ALLOWED`] is not a licence.
pub fn check(packages: &[Package]) -> anyhow::Result<Vec<String>> {
    let allowed: Vec<Licensee> =
        ALLOWED.iter().map(|name| Licensee::parse(name)).collect::<Result<_, _>>()?;
    Ok(packages
        .iter()
        .filter_map(|package| {
            let reason = refusal(package.licence.as_deref(), &allowed)?;
            Some(format!("{}: {reason}", package.id))
        })
        .collect())
}

/// Why an expression is not accepted, or `None` if it is.
fn refusal(licence: Option<&str>, allowed: &[Licensee]) -> Option<String> {
    let Some(licence) = licence else {
        return Some("its manifest has no licence".to_owned());
    };
    let expression = match Expression::parse_mode(licence, MODE) {
        Ok(expression) => expression,
        Err(error) => {
            return Some(format!("`{licence}` is not a licence expression: {}", error.reason));
        }
    };
    let failures = expression
        .evaluate_with_failures(|wanted| allowed.iter().any(|ours| ours.satisfies(wanted)))
        .err()?;
    let names: Vec<_> = failures.iter().map(|failure| failure.req.to_string()).collect();
    Some(format!(
        "`{licence}` needs {}, which is not accepted (ALLOWED in crates/tools/xtask/src/licences.rs)",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(licence: &str) -> Option<String> {
        let allowed: Vec<_> = ALLOWED.iter().map(|name| Licensee::parse(name).unwrap()).collect();
        refusal(Some(licence), &allowed)
    }

    #[test]
    fn expressions_of_the_registry_are_accepted() {
        for licence in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "MIT AND BSD-3-Clause",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "MIT OR GPL-3.0",
        ] {
            assert_eq!(reason(licence), None, "{licence}");
        }
    }

    #[test]
    fn a_licence_that_demands_sources_is_refused() {
        for licence in [
            "GPL-3.0-only",
            "AGPL-3.0-or-later",
            "LGPL-2.1-or-later",
            "MPL-2.0",
            "MIT AND GPL-3.0-only",
            "(MIT OR Apache-2.0) AND SSPL-1.0",
            "GPL-2.0-only WITH Classpath-exception-2.0",
        ] {
            assert!(reason(licence).is_some(), "{licence}");
        }
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert_eq!(reason("GPL-3.0-only AND ISC OR MIT"), None);
        assert_eq!(reason("MIT OR ISC AND GPL-3.0-only"), None);
        assert!(reason("(MIT OR ISC) AND GPL-3.0-only").is_some());
    }

    #[test]
    fn a_refusal_names_the_package_and_what_it_needs() {
        let package = |id: &str, licence: Option<&str>| Package {
            id: id.to_owned(),
            licence: licence.map(str::to_owned),
        };
        let wrong = check(&[
            package("good 1.0.0", Some("MIT")),
            package("taker 0.3.0", Some("MIT AND GPL-3.0-only")),
            package("silent 0.1.0", None),
            package("own 2.0.0", Some("see LICENSE")),
        ])
        .unwrap();
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert_eq!(
            wrong[0],
            "taker 0.3.0: `MIT AND GPL-3.0-only` needs GPL-3.0-only, which is not accepted (ALLOWED in \
             crates/tools/xtask/src/licences.rs)"
        );
        assert_eq!(wrong[1], "silent 0.1.0: its manifest has no licence");
        assert!(wrong[2].starts_with("own 2.0.0: `see LICENSE` is not a licence expression"));
    }

    proptest! {
        /// OR is met by one side, AND by both, whatever the sides are.
        #[test]
        fn or_and_and_mean_what_they_say(left in 0..ALLOWED.len() + 2, right in 0..ALLOWED.len() + 2) {
            let foreign = ["GPL-3.0-only", "MPL-2.0"];
            let name = |index: usize| ALLOWED.get(index).copied()
                .unwrap_or_else(|| foreign[index - ALLOWED.len()]);
            let ours = |index: usize| index < ALLOWED.len();
            let either = reason(&format!("{} OR {}", name(left), name(right)));
            let both = reason(&format!("{} AND {}", name(left), name(right)));
            prop_assert_eq!(either.is_none(), ours(left) || ours(right));
            prop_assert_eq!(both.is_none(), ours(left) && ours(right));
        }
    }
}

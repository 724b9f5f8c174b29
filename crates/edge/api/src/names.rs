//! Resource names: `tenants/acme/dags/web-edge` to its ids and back.
//!
//! This module only splits names: the right collections in the right order, no empty ids. The rules for
//! ids are those of the id types of `snic-domain`.

use std::fmt;

/// Longest part of an invalid name that an error repeats, in characters: the longest valid name fits.
const EXCERPT_CHARS_MAX: usize = 160;

/// An invalid resource name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {kind} name: {problem} (expected {pattern})")]
pub struct InvalidName {
    /// Kind of the resource, such as `DAG`.
    pub kind: &'static str,
    /// The form of its names, such as `tenants/{tenant}/dags/{dag}`.
    pub pattern: &'static str,
    /// The text, cut to 160 characters.
    pub text: String,
    /// The first problem.
    pub problem: NameProblem,
}

/// Fault of a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// The name is empty.
    #[error("it is empty")]
    Empty,
    /// A wrong collection.
    #[error("found {found:?} instead of {expected:?}")]
    WrongCollection {
        /// The expected collection.
        expected: &'static str,
        /// The text found, cut to 160 characters.
        found: String,
    },
    /// The name ends before the id of a collection, or the id is empty.
    #[error("the id after {collection:?} is missing")]
    MissingId { collection: &'static str },
    /// The wildcard `-` instead of an id.
    #[error("the wildcard '-' is not allowed here; an id is required after {collection:?}")]
    Wildcard { collection: &'static str },
    /// More text after a complete name.
    #[error("unexpected {rest:?} after the name")]
    TooLong {
        /// The rest, cut to 160 characters.
        rest: String,
    },
}

/// A parsed resource name. The ids borrow from the text.
pub trait ResourceName<'a>: fmt::Display + Sized {
    /// Kind of the resource, for people.
    const KIND: &'static str;
    /// The form of its names.
    const PATTERN: &'static str;

    /// Parses a name. The ids are non-empty, not `-`, and have no `/`; they are not checked further.
    ///
    /// # Errors
    /// [`InvalidName`] where the text is not of the form [`ResourceName::PATTERN`].
    fn parse(text: &'a str) -> Result<Self, InvalidName>;
}

/// The parent of a list or watch: one, or all of them (`tenants/-`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent<N> {
    /// All that the caller may see.
    All,
    One(N),
}

impl<'a, N: ResourceName<'a>> Parent<N> {
    /// Parses the name of a parent, or one with the wildcard `-` as its last id.
    ///
    /// # Errors
    /// [`InvalidName`] where the text is neither.
    pub fn parse(text: &'a str) -> Result<Self, InvalidName> {
        let collections = N::PATTERN.rsplit_once('/').map(|(collections, _)| collections);
        if text.rsplit_once('/') == collections.map(|collections| (collections, "-")) {
            return Ok(Self::All);
        }
        N::parse(text).map(Self::One)
    }
}

macro_rules! resource_name {
    ($name:ident, $kind:literal, $pattern:literal, $($collection:literal / $id:ident),+) => {
        #[doc = concat!("The name of a ", $kind, ": `", $pattern, "`.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name<'a> {
            $(
                #[doc = concat!("The id after `", $collection, "/`.")]
                pub $id: &'a str,
            )+
        }

        impl<'a> ResourceName<'a> for $name<'a> {
            const KIND: &'static str = $kind;
            const PATTERN: &'static str = $pattern;

            fn parse(text: &'a str) -> Result<Self, InvalidName> {
                let [$($id),+] = ids([$($collection),+], text).map_err(|problem| InvalidName {
                    kind: $kind,
                    pattern: $pattern,
                    text: excerpt(text),
                    problem,
                })?;
                Ok(Self { $($id),+ })
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $pattern, $($id = self.$id),+)
            }
        }
    };
}

resource_name!(TenantName, "tenant", "tenants/{tenant}", "tenants" / tenant);
resource_name!(DagName, "DAG", "tenants/{tenant}/dags/{dag}", "tenants" / tenant, "dags" / dag);
resource_name!(NtTypeName, "network task type", "ntTypes/{id}", "ntTypes" / id);
resource_name!(BitstreamName, "bitstream", "bitstreams/{id}", "bitstreams" / id);
resource_name!(VmBindingName, "binding", "vmBindings/{vm}", "vmBindings" / vm);
resource_name!(CardName, "card", "cards/{card}", "cards" / card);
resource_name!(
    RegionName,
    "region",
    "cards/{card}/regions/{region}",
    "cards" / card,
    "regions" / region
);
resource_name!(
    RuleName,
    "classification rule",
    "classificationRules/{rule}",
    "classificationRules" / rule
);
resource_name!(OperationName, "operation", "operations/{id}", "operations" / id);

/// The ids of a name, one per collection.
fn ids<'a, const N: usize>(
    collections: [&'static str; N],
    text: &'a str,
) -> Result<[&'a str; N], NameProblem> {
    if text.is_empty() {
        return Err(NameProblem::Empty);
    }
    let mut rest = Some(text);
    let mut ids = [""; N];
    for (id, collection) in ids.iter_mut().zip(collections) {
        let found = next_segment(&mut rest).unwrap_or_default();
        if found != collection {
            let found = excerpt(found);
            return Err(NameProblem::WrongCollection { expected: collection, found });
        }
        *id = match next_segment(&mut rest) {
            None | Some("") => return Err(NameProblem::MissingId { collection }),
            Some("-") => return Err(NameProblem::Wildcard { collection }),
            Some(id) => id,
        };
    }
    match rest {
        None => Ok(ids),
        Some(rest) => Err(NameProblem::TooLong { rest: format!("/{}", excerpt(rest)) }),
    }
}

/// Splits off the text before the next `/`; `None` if no segment is left.
fn next_segment<'a>(rest: &mut Option<&'a str>) -> Option<&'a str> {
    let text = (*rest)?;
    let (segment, after) = match text.split_once('/') {
        Some((segment, after)) => (segment, Some(after)),
        None => (text, None),
    };
    *rest = after;
    Some(segment)
}

/// The beginning of a text for an error, at most 160 characters: what is allowed must still fit
/// behind it.
pub fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_dag_name_is_parsed_and_printed() {
        let text = "tenants/acme/dags/web-edge";
        let name = DagName::parse(text).expect("a DAG name");
        assert_eq!(name, DagName { tenant: "acme", dag: "web-edge" });
        assert_eq!(name.to_string(), text);
    }

    #[test]
    fn every_kind_has_names_of_its_own_form() {
        assert_eq!(TenantName::parse("tenants/a").map(|n| n.tenant), Ok("a"));
        assert_eq!(NtTypeName::parse("ntTypes/acme.nat").map(|n| n.id), Ok("acme.nat"));
        assert_eq!(BitstreamName::parse("bitstreams/b").map(|n| n.id), Ok("b"));
        assert_eq!(CardName::parse("cards/c0").map(|n| n.card), Ok("c0"));
        let region = RegionName::parse("cards/c0/regions/31");
        assert_eq!(region, Ok(RegionName { card: "c0", region: "31" }));
        assert_eq!(RuleName::parse("classificationRules/r").map(|n| n.rule), Ok("r"));
        assert_eq!(OperationName::parse("operations/o").map(|n| n.id), Ok("o"));
    }

    #[rstest]
    #[case("", NameProblem::Empty)]
    #[case("tenants", NameProblem::MissingId { collection: "tenants" })]
    #[case("tenants/", NameProblem::MissingId { collection: "tenants" })]
    #[case("tenants//dags/x", NameProblem::MissingId { collection: "tenants" })]
    #[case("tenants/a/dags", NameProblem::MissingId { collection: "dags" })]
    #[case("tenants/a/dags/", NameProblem::MissingId { collection: "dags" })]
    #[case("tenants/-/dags/x", NameProblem::Wildcard { collection: "tenants" })]
    #[case("tenants/a/dags/-", NameProblem::Wildcard { collection: "dags" })]
    #[case("tenants/a/dags/x/", NameProblem::TooLong { rest: "/".into() })]
    #[case("tenants/a/dags/x/y/z", NameProblem::TooLong { rest: "/y/z".into() })]
    fn the_first_problem_is_reported(#[case] text: &str, #[case] problem: NameProblem) {
        assert_eq!(DagName::parse(text).expect_err(text).problem, problem);
    }

    #[rstest]
    #[case("tenants/a", "dags", "")]
    #[case("Tenants/a/dags/x", "tenants", "Tenants")]
    #[case("/tenants/a/dags/x", "tenants", "")]
    #[case("cards/a/dags/x", "tenants", "cards")]
    #[case("tenants/a/regions/x", "dags", "regions")]
    #[case("x", "tenants", "x")]
    fn a_wrong_collection_is_reported(
        #[case] text: &str,
        #[case] expected: &'static str,
        #[case] found: &str,
    ) {
        let problem = NameProblem::WrongCollection { expected, found: found.to_owned() };
        assert_eq!(DagName::parse(text).expect_err(text).problem, problem);
    }

    #[test]
    fn the_message_has_the_problem_and_the_pattern() {
        let error = RegionName::parse("cards/c0/region/3").expect_err("a wrong collection");
        assert_eq!(
            error.to_string(),
            "\"cards/c0/region/3\" is not a valid region name: found \"region\" instead of \
             \"regions\" (expected cards/{card}/regions/{region})"
        );
    }

    #[test]
    fn a_parent_may_be_all() {
        type Tenants<'a> = Parent<TenantName<'a>>;
        assert_eq!(Tenants::parse("tenants/-"), Ok(Parent::All));
        assert_eq!(Tenants::parse("tenants/a"), Ok(Parent::One(TenantName { tenant: "a" })));
        for bad in ["cards/-", "-", "tenants/-/", "tenants/-/dags/-", "tenants-", ""] {
            assert!(Tenants::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Parent::<CardName<'_>>::parse("cards/-"), Ok(Parent::All));
    }

    proptest! {
        #[test]
        fn a_name_made_of_ids_is_read_as_these_ids(
            tenant in "[a-z][a-z0-9-]{0,62}",
            dag in "[a-z][a-z0-9-]{0,62}",
        ) {
            let name = DagName { tenant: &tenant, dag: &dag };
            let text = name.to_string();
            prop_assert_eq!(DagName::parse(&text), Ok(name));
        }

        #[test]
        fn parsed_names_print_the_same(text in "(tenants|dags|[-a-z/é]{0,9}|/){0,7}") {
            match DagName::parse(&text) {
                Ok(name) => prop_assert_eq!(name.to_string(), text),
                Err(error) => prop_assert_eq!(error.text, text),
            }
        }

        #[test]
        fn an_error_stays_short(text in "[a-zé/]{200,600}") {
            let error = DagName::parse(&text).expect_err("no such collections");
            prop_assert!(error.to_string().chars().count() < 600);
        }
    }
}

//! Resource names: `tenants/acme/dags/web-edge` to its ids and back.
//!
//! Here a name is only taken apart: the right collections in the right order, no id empty. What an
//! id may look like is said once, by the id types of `snic-domain`.

use std::fmt;

/// Longest part of a refused name that an error repeats, in characters; two ids of full length and
/// their collections fit.
const SHOWN_CHARS_MAX: usize = 160;

/// A text that is no name of the resource asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the name of a {kind}: {problem}; the form is {pattern}")]
pub struct InvalidName {
    /// What was to be named, such as `DAG`.
    pub kind: &'static str,
    /// The form of its names, such as `tenants/{tenant}/dags/{dag}`.
    pub pattern: &'static str,
    /// The text, cut to 160 characters.
    pub text: String,
    /// The first thing that is wrong.
    pub problem: NameProblem,
}

/// What is wrong with a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// There is no text.
    #[error("it is empty")]
    Empty,
    /// Another collection stands where one is needed.
    #[error("{expected:?} is needed where {found:?} stands")]
    WrongCollection {
        /// The collection that is needed.
        expected: &'static str,
        /// What stands there, cut to 160 characters.
        found: String,
    },
    /// The text ends before the id of a collection, or the id has no characters.
    #[error("the id after {collection:?} is missing")]
    MissingId {
        /// The collection.
        collection: &'static str,
    },
    /// The id `-`, which stands for all and names none.
    #[error("'-' stands for all; one is needed after {collection:?}")]
    Wildcard {
        /// The collection.
        collection: &'static str,
    },
    /// There is more text after a whole name.
    #[error("{rest:?} is too much")]
    TooLong {
        /// What is too much, cut to 160 characters.
        rest: String,
    },
}

/// The name of a resource, taken apart. The ids borrow from the text.
pub trait ResourceName<'a>: fmt::Display + Sized {
    /// What it names, for people.
    const KIND: &'static str;
    /// The form of its names.
    const PATTERN: &'static str;

    /// Takes a name apart. The ids are not empty, not `-`, and have no `/`; nothing else is
    /// checked of them.
    ///
    /// # Errors
    /// [`InvalidName`] where the text is not of the form [`ResourceName::PATTERN`].
    fn parse(text: &'a str) -> Result<Self, InvalidName>;
}

/// What a list or a watch is asked for: one parent, or all of them (`tenants/-`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent<N> {
    /// All that the caller may see.
    All,
    /// This one.
    One(N),
}

impl<'a, N: ResourceName<'a>> Parent<N> {
    /// Takes the name of a parent, or `-` in the place of its last id.
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
                    text: shown(text),
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

/// The ids of a name, one for each collection.
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
            let found = shown(found);
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
        Some(rest) => Err(NameProblem::TooLong { rest: format!("/{}", shown(rest)) }),
    }
}

/// Cuts off what stands before the next `/`; `None` where no segment is left.
fn next_segment<'a>(rest: &mut Option<&'a str>) -> Option<&'a str> {
    let text = (*rest)?;
    let (segment, after) = match text.split_once('/') {
        Some((segment, after)) => (segment, Some(after)),
        None => (text, None),
    };
    *rest = after;
    Some(segment)
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_dag_name_comes_apart_and_together_again() {
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
    fn what_is_wrong_is_named(#[case] text: &str, #[case] problem: NameProblem) {
        assert_eq!(DagName::parse(text).expect_err(text).problem, problem);
    }

    #[rstest]
    #[case("tenants/a", "dags", "")]
    #[case("Tenants/a/dags/x", "tenants", "Tenants")]
    #[case("/tenants/a/dags/x", "tenants", "")]
    #[case("cards/a/dags/x", "tenants", "cards")]
    #[case("tenants/a/regions/x", "dags", "regions")]
    #[case("x", "tenants", "x")]
    fn another_collection_is_named(
        #[case] text: &str,
        #[case] expected: &'static str,
        #[case] found: &str,
    ) {
        let problem = NameProblem::WrongCollection { expected, found: found.to_owned() };
        assert_eq!(DagName::parse(text).expect_err(text).problem, problem);
    }

    #[test]
    fn the_message_has_the_culprit_and_the_form() {
        let error = RegionName::parse("cards/c0/region/3").expect_err("a wrong collection");
        assert_eq!(
            error.to_string(),
            "\"cards/c0/region/3\" is not the name of a region: \"regions\" is needed where \
             \"region\" stands; the form is cards/{card}/regions/{region}"
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
        fn whatever_is_read_is_written_the_same(text in "(tenants|dags|[-a-z/é]{0,9}|/){0,7}") {
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

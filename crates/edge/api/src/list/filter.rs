//! Filters of lists.

use std::cmp::Ordering;

use prost_reflect::{DynamicMessage, MessageDescriptor};

use super::field::{End, Path, Scalar};
use super::tokens::{Operator, Token, tokens};

/// Longest filter, in bytes: it is parsed before the caller's share of the server's time is known.
const FILTER_BYTES_MAX: usize = 1_024;
/// Most comparisons of a filter: each is made with every resource of the list.
const COMPARISONS_MAX: usize = 16;

/// A filter: a resource is listed if all of its comparisons hold.
#[derive(Debug, Clone)]
pub(super) struct Filter(Vec<Comparison>);

#[derive(Debug, Clone)]
struct Comparison {
    negated: bool,
    path: Path,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    /// One of the values compares like this.
    Any(Operator, Scalar),
    /// One of the texts contains this.
    Contains(String),
    /// The map has this key.
    HasKey(String),
    /// Anything is there.
    IsSet,
}

impl Filter {
    /// Parses a filter of a resource.
    ///
    /// # Errors
    /// Reads a filter; the error says what is wrong, and what is allowed.
    pub fn parse(resource: &MessageDescriptor, text: &str) -> Result<Self, String> {
        if text.len() > FILTER_BYTES_MAX {
            let bytes = text.len();
            return Err(format!("it has {bytes} bytes; at most {FILTER_BYTES_MAX} are allowed"));
        }
        let tokens = tokens(text)?;
        let mut rest = tokens.as_slice();
        let mut comparisons = Vec::new();
        while !rest.is_empty() {
            if !comparisons.is_empty() {
                rest = conjunction(rest)?;
            }
            let (comparison, behind) = comparison(resource, rest)?;
            comparisons.push(comparison);
            rest = behind;
        }
        if comparisons.len() > COMPARISONS_MAX {
            let count = comparisons.len();
            return Err(format!(
                "it has {count} comparisons; at most {COMPARISONS_MAX} are allowed"
            ));
        }
        Ok(Self(comparisons))
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it holds. Time O(comparisons · size of the message).
    pub fn holds_for(&self, message: &DynamicMessage) -> bool {
        self.0.iter().all(|comparison| comparison.holds_for(message))
    }
}

/// Tokens behind an `AND`.
fn conjunction(rest: &[Token]) -> Result<&[Token], String> {
    match rest {
        [Token::Word(word), behind @ ..] if word == "AND" && !behind.is_empty() => Ok(behind),
        [Token::Word(word), ..] if word == "AND" => {
            Err("it ends with AND; add a comparison".to_owned())
        }
        [Token::Word(word), ..] if word == "OR" => {
            Err("OR is not part of filters: send one request for each alternative".to_owned())
        }
        _ => Err("join comparisons by AND, and put values with spaces in double quotes".to_owned()),
    }
}

fn comparison<'a>(
    resource: &MessageDescriptor,
    tokens: &'a [Token],
) -> Result<(Comparison, &'a [Token]), String> {
    let (negated, tokens) = match tokens {
        [Token::Word(word), rest @ ..] if word == "NOT" => (true, rest),
        tokens => (false, tokens),
    };
    let [Token::Word(field), Token::Operator(operator), value, rest @ ..] = tokens else {
        return Err(
            "a comparison is a field, an operator (=, !=, <, <=, >, >=, :) and a value, such \
                    as labels.app = web"
                .to_owned(),
        );
    };
    let path = Path::parse(resource, field)?;
    let (value, is_word) = match value {
        Token::Word(value) => (value, true),
        Token::Text(value) => (value, false),
        Token::Operator(_) => {
            return Err(format!("behind {field} two operators follow each other"));
        }
    };
    let test = match (operator, &path.end) {
        (Operator::Has, _) if is_word && value == "*" => Test::IsSet,
        (Operator::Has, End::Map) => Test::HasKey(value.clone()),
        (Operator::Has, End::Text) => Test::Contains(value.clone()),
        (Operator::Has, end) => Test::Any(Operator::Equal, end.literal(field, value)?),
        (operator, end) => Test::Any(*operator, end.literal(field, value)?),
    };
    Ok((Comparison { negated, path, test }, rest))
}

impl Comparison {
    fn holds_for(&self, message: &DynamicMessage) -> bool {
        let any = |holds: &dyn Fn(&Scalar) -> bool| self.path.values(message).iter().any(holds);
        let holds = match &self.test {
            Test::IsSet => self.path.is_set(message),
            Test::HasKey(key) => self.path.keys(message).contains(key),
            Test::Contains(part) => any(&|value| match value {
                Scalar::Text(text) => text.contains(part.as_str()),
                _ => false,
            }),
            // An absent value equals nothing.
            Test::Any(Operator::NotEqual, wanted) => !any(&|value| value == wanted),
            Test::Any(operator, wanted) => any(&|value| operator.holds(value.compare(wanted))),
        };
        holds != self.negated
    }
}

impl Operator {
    const fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal | Self::Has => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

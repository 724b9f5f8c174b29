//! Notes of callers about their resources: labels, by which lists are filtered, and a description. They mean
//! nothing to the system.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{DESCRIPTION_BYTES_MAX, LABEL_CHARS_MAX, LABELS_MAX};

/// Labels: at most [`LABELS_MAX`], by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

/// Fault of labels, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabels {
    #[error("{0} labels; at most {LABELS_MAX} are allowed")]
    TooMany(usize),
    /// An invalid key.
    #[error(
        "{0:?} is not a key: 1 to {LABEL_CHARS_MAX} lower-case letters, digits, '-', '_', '.' and '/', \
         beginning and ending with a letter or digit"
    )]
    Key(String),
    /// An invalid value.
    #[error(
        "the value {value:?} of {key} is not allowed: at most {LABEL_CHARS_MAX} letters, digits, '-', \
         '_' and '.'"
    )]
    Value {
        /// Key of the label.
        key: String,
        value: String,
    },
}

impl Labels {
    /// Checks labels.
    ///
    /// # Errors
    /// [`InvalidLabels`] for too many, and for the first key or value that is not allowed.
    pub fn new(labels: BTreeMap<String, String>) -> Result<Self, InvalidLabels> {
        if labels.len() > LABELS_MAX {
            return Err(InvalidLabels::TooMany(labels.len()));
        }
        for (key, value) in &labels {
            if !is_key(key) {
                return Err(InvalidLabels::Key(beginning(key)));
            }
            if !is_value(value) {
                let (key, value) = (key.clone(), beginning(value));
                return Err(InvalidLabels::Value { key, value });
            }
        }
        Ok(Self(labels))
    }

    /// All of them, by key.
    pub const fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = InvalidLabels;

    fn try_from(labels: BTreeMap<String, String>) -> Result<Self, InvalidLabels> {
        Self::new(labels)
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

/// As much of a text as an error says.
fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}

fn is_key(key: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let mut chars = key.chars();
    key.len() <= LABEL_CHARS_MAX
        && is_end(chars.clone().next())
        && is_end(chars.clone().next_back())
        && chars.all(|c| is_end(Some(c)) || "-_./".contains(c))
}

fn is_value(value: &str) -> bool {
    value.len() <= LABEL_CHARS_MAX
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// A description, for people: at most [`DESCRIPTION_BYTES_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Description(String);

/// A description that is too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it has {0} bytes; at most {DESCRIPTION_BYTES_MAX} are allowed")]
pub struct InvalidDescription(pub usize);

impl Description {
    /// Checks a description.
    ///
    /// # Errors
    /// [`InvalidDescription`] if it is too long.
    pub fn new(text: &str) -> Result<Self, InvalidDescription> {
        match text.len() {
            0..=DESCRIPTION_BYTES_MAX => Ok(Self(text.to_owned())),
            bytes => Err(InvalidDescription(bytes)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Description {
    type Error = InvalidDescription;

    fn try_from(text: String) -> Result<Self, InvalidDescription> {
        Self::new(&text)
    }
}

impl From<Description> for String {
    fn from(description: Description) -> Self {
        description.0
    }
}

/// Notes of a caller about a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    #[serde(default, skip_serializing_if = "has_no_text")]
    pub description: Description,
}

fn has_no_text(description: &Description) -> bool {
    description.as_str().is_empty()
}

impl Notes {
    /// Whether nothing is noted: then nothing is stored, as before there were notes.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && has_no_text(&self.description)
    }
}

/// Other notes; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotesPatch {
    /// New labels, instead of all that there are.
    pub labels: Option<Labels>,
    /// A new description.
    pub description: Option<Description>,
}

impl NotesPatch {
    /// The notes after the change.
    pub fn apply(self, notes: &Notes) -> Notes {
        Notes {
            labels: self.labels.unwrap_or_else(|| notes.labels.clone()),
            description: self.description.unwrap_or_else(|| notes.description.clone()),
        }
    }
}

impl From<Notes> for NotesPatch {
    fn from(notes: Notes) -> Self {
        Self { labels: Some(notes.labels), description: Some(notes.description) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[(&str, &str)]) -> Result<Labels, InvalidLabels> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Labels::new(labels.iter().map(owned).collect())
    }

    #[test]
    fn keys_and_values_follow_the_rules() {
        let long = "a".repeat(63);
        for key in ["a", "9", "app", "example.com/team", "a-b_c", &long] {
            assert!(labels(&[(key, "x")]).is_ok(), "{key}");
        }
        let longer = "a".repeat(64);
        for key in ["", "App", "-a", "a-", "a b", "a=b", "é", ".", "a.", &longer] {
            let error = labels(&[(key, "x")]).expect_err(key);
            assert_eq!(error, InvalidLabels::Key(key.to_owned()));
        }
        for value in ["", "Web-1_2.3", &long] {
            assert!(labels(&[("a", value)]).is_ok(), "{value}");
        }
        for value in ["a b", "a/b", "\"", "é", &longer] {
            let error = labels(&[("a", value)]).expect_err(value);
            assert!(matches!(error, InvalidLabels::Value { .. }), "{error}");
        }
    }

    #[test]
    fn there_are_at_most_32() {
        let many = |count: usize| (0..count).map(|i| (format!("k{i}"), String::new())).collect();
        assert!(Labels::new(many(32)).is_ok());
        let error = Labels::new(many(33)).expect_err("one too many");
        assert_eq!(error.to_string(), "33 labels; at most 32 are allowed");
    }

    #[test]
    fn a_description_has_at_most_1024_bytes() {
        assert!(Description::new(&"a".repeat(1_024)).is_ok());
        let error = Description::new(&"é".repeat(513)).expect_err("too long");
        assert_eq!(error.to_string(), "it has 1026 bytes; at most 1024 are allowed");
    }

    #[test]
    fn what_is_stored_is_checked_when_it_is_read() {
        assert_eq!(serde_json::to_string(&Notes::default()).expect("JSON"), "{}");
        let notes: Notes = serde_json::from_str("{\"labels\":{\"app\":\"web\"}}").expect("notes");
        assert_eq!(notes.labels, labels(&[("app", "web")]).expect("valid"));
        assert!(!notes.is_empty());
        serde_json::from_str::<Notes>("{\"labels\":{\"App\":\"web\"}}").expect_err("not a key");
    }

    fn notes(app: &str, text: &str) -> Notes {
        let labels = labels(&[("app", app)]).expect("valid");
        Notes { labels, description: Description::new(text).expect("short") }
    }

    #[test]
    fn a_patch_sets_what_it_names_and_leaves_the_rest() {
        let (before, other) = (notes("web", "shop"), notes("mail", "post"));
        assert_eq!(NotesPatch::default().apply(&before), before);
        assert_eq!(NotesPatch::from(other.clone()).apply(&before), other);
        let patch = NotesPatch { labels: Some(other.labels.clone()), ..NotesPatch::default() };
        let after = patch.apply(&before);
        assert_eq!((&after.labels, &after.description), (&other.labels, &before.description));
        let none =
            NotesPatch { description: Some(Description::default()), ..NotesPatch::default() };
        let after = none.apply(&before);
        assert_eq!((&after.labels, after.description.as_str()), (&before.labels, ""));
    }

    #[test]
    fn what_is_stored_is_read_back() {
        for notes in [Notes::default(), notes("web", ""), notes("web", "a shop")] {
            let json = serde_json::to_string(&notes).expect("JSON");
            assert_eq!(serde_json::from_str::<Notes>(&json).expect("it was just written"), notes);
        }
        let map = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        assert_eq!(BTreeMap::from(notes("web", "").labels), map);
        assert_eq!(String::from(notes("web", "a shop").description), "a shop");
    }

    /// Each error names the culprit and the rule, so that a caller need not look it up.
    #[test]
    fn errors_say_what_is_allowed() {
        let key = labels(&[("App", "x")]).expect_err("not a key").to_string();
        assert!(key.starts_with("\"App\" is not a key: 1 to 63 lower-case letters"), "{key}");
        let value = labels(&[("app", "a b")]).expect_err("not a value").to_string();
        assert!(
            value.starts_with("the value \"a b\" of app is not allowed: at most 63"),
            "{value}"
        );
        let long = labels(&[(&"A".repeat(500), "x")]).expect_err("not a key").to_string();
        assert!(long.len() < 300, "what is said of a long key stays short: {long}");
    }

    /// One that is wrong among many that are right is found, and the first of several is named.
    #[test]
    fn all_labels_are_checked() {
        let right: Vec<(String, String)> = (0..31).map(|i| (format!("k{i}"), "v".into())).collect();
        assert!(Labels::new(right.iter().cloned().collect()).is_ok());
        for wrong in [("zz!", "v"), ("a!", "v")] {
            let wrong = (wrong.0.to_owned(), wrong.1.to_owned());
            let all = right.iter().cloned().chain([wrong.clone()]).collect();
            assert_eq!(Labels::new(all), Err(InvalidLabels::Key(wrong.0)));
        }
        let both = [("b!".to_owned(), String::new()), ("a!".to_owned(), String::new())];
        assert_eq!(Labels::new(both.into()), Err(InvalidLabels::Key("a!".to_owned())));
    }

    #[test]
    fn a_spec_with_other_notes_asks_for_the_same() {
        let nt = crate::NtTypeId::new("nat").expect("an id");
        let spec = crate::DagSpec::chain(&[nt], crate::Bandwidth::from_gbps(1));
        let noted = spec.with_notes(notes("web", "shop"));
        assert_ne!(noted, spec);
        assert_eq!(noted.with_notes(Notes::default()), spec);
        let patch = crate::DagPatch { notes: notes("mail", "post").into(), ..Default::default() };
        assert_eq!(patch.apply(&noted), spec.with_notes(notes("mail", "post")));
        assert_eq!(crate::DagPatch::default().apply(&noted), noted);
        assert_eq!(crate::DagPatch::from(noted.clone()).apply(&spec), noted);
    }
}

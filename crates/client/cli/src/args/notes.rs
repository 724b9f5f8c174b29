//! Options for labels and descriptions.

use std::collections::BTreeMap;

use clap::Args;

/// Labels and description of a new resource.
#[derive(Debug, Clone, Default, Args)]
pub struct NewNotes {
    /// Label, such as app=web; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Description
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,
}

impl NewNotes {
    /// The labels by key. If a key is given twice, the last value counts.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.labels.iter().cloned().collect()
    }
}

/// Other labels and another description.
#[derive(Debug, Clone, Default, Args)]
pub struct OtherNotes {
    /// Label, such as app=web, in place of all labels it has; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label, conflicts_with = "no_labels")]
    labels: Vec<(String, String)>,
    /// Remove all labels
    #[arg(long)]
    no_labels: bool,
    /// New description; '' removes it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

impl OtherNotes {
    /// The labels and the description to set.
    pub fn values(&self) -> (BTreeMap<String, String>, String) {
        (self.labels.iter().cloned().collect(), self.description.clone().unwrap_or_default())
    }

    /// The given fields, as paths of an update mask.
    pub fn paths(&self) -> Vec<String> {
        let given = [
            ("labels", self.no_labels || !self.labels.is_empty()),
            ("description", self.description.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(path, _)| path.into()).collect()
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, such as app=web".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_key_and_may_have_an_empty_value() {
        assert_eq!(label("app=web"), Ok(("app".into(), "web".into())));
        assert_eq!(label("app="), Ok(("app".into(), String::new())));
        assert_eq!(label("a=b=c"), Ok(("a".into(), "b=c".into())), "the server says what is wrong");
        assert!(label("app").is_err() && label("=web").is_err());
    }

    #[test]
    fn only_what_is_given_is_changed() {
        assert_eq!(OtherNotes::default().paths(), Vec::<String>::new());
        let none = OtherNotes { no_labels: true, ..OtherNotes::default() };
        assert_eq!((none.paths(), none.values().0.len()), (vec!["labels".to_owned()], 0));
        let emptied = OtherNotes { description: Some(String::new()), ..OtherNotes::default() };
        assert_eq!(emptied.paths(), ["description"]);
    }
}

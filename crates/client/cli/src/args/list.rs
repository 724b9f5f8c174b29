//! Options of lists: which resources, and in which order.

use clap::Args;

/// Selection and order of a list.
#[derive(Debug, Clone, Default, Args)]
pub struct Selected {
    /// Only resources for which this holds, such as 'state = READY AND update_time > 2026-01-01'
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Order, such as 'create_time desc'; up to three fields, separated by commas
    #[arg(long, value_name = "FIELDS", default_value = "", hide_default_value = true)]
    pub order_by: String,
}

/// The same for resources with labels.
#[derive(Debug, Clone, Default, Args)]
pub struct SelectedByLabel {
    /// Only resources with these labels: app=web, app!=web, app (any value), !app; separated by commas
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = selector)]
    selector: Option<LabelFilter>,
    #[command(flatten)]
    selected: Selected,
}

impl SelectedByLabel {
    /// The whole selection, with a filter in place of the labels.
    pub fn whole(self) -> Selected {
        let Selected { filter, order_by } = self.selected;
        let parts = [self.selector.map(|LabelFilter(labels)| labels).unwrap_or_default(), filter];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.trim().is_empty()).collect();
        Selected { filter: parts.join(" AND "), order_by }
    }
}

/// Labels as a filter of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelFilter(String);

/// Reads labels as a selector of Kubernetes writes them.
fn selector(text: &str) -> Result<LabelFilter, String> {
    let parts = text.split(',').map(str::trim).map(requirement);
    Ok(LabelFilter(parts.collect::<Result<Vec<_>, _>>()?.join(" AND ")))
}

fn requirement(part: &str) -> Result<String, String> {
    let compared = |key: &str, sign: &str, value: &str| {
        let (key, value) = (key.trim(), value.trim().trim_start_matches('='));
        is_plain(key)?;
        is_plain(value)?;
        Ok(format!("labels.{key} {sign} \"{value}\""))
    };
    if let Some((key, value)) = part.split_once("!=") {
        return compared(key, "!=", value);
    }
    if let Some((key, value)) = part.split_once('=') {
        return compared(key, "=", value);
    }
    let (not, key) = part.strip_prefix('!').map_or(("", part), |key| ("NOT ", key.trim()));
    is_plain(key)?;
    Ok(format!("{not}labels.{key}:*"))
}

/// The characters of keys and values; the server checks the rest.
fn is_plain(text: &str) -> Result<(), String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !text.is_empty() && text.chars().all(is_valid) {
        return Ok(());
    }
    Err(format!("{text:?} is not a label's key or value; write app=web, app!=web, app or !app"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("app=web", r#"labels.app = "web""#)]
    #[case("app==web", r#"labels.app = "web""#)]
    #[case("app != web", r#"labels.app != "web""#)]
    #[case("app", "labels.app:*")]
    #[case("!app", "NOT labels.app:*")]
    #[case("example.com/team=edge, !x", r#"labels.example.com/team = "edge" AND NOT labels.x:*"#)]
    fn labels_become_a_filter(#[case] text: &str, #[case] filter: &str) {
        assert_eq!(selector(text), Ok(LabelFilter(filter.to_owned())));
    }

    #[rstest]
    #[case("")]
    #[case("app=")]
    #[case("=web")]
    #[case("a,,b")]
    #[case("a=b\" OR state = READY")]
    #[case("a in (b, c)")]
    fn what_is_no_selector_is_refused(#[case] text: &str) {
        assert!(selector(text).expect_err("refused").contains("app=web"), "{text}");
    }

    #[test]
    fn labels_and_filter_must_both_hold() {
        let of = |labels: Option<&str>, filter: &str| {
            let selector = labels.map(|text| selector(text).expect("valid"));
            let selected = Selected { filter: filter.into(), order_by: "name".into() };
            SelectedByLabel { selector, selected }.whole()
        };
        assert_eq!(of(Some("a=b"), "state = READY").filter, r#"labels.a = "b" AND state = READY"#);
        assert_eq!(of(Some("a"), " ").filter, "labels.a:*");
        assert_eq!(of(None, "state = READY").filter, "state = READY");
        assert_eq!((of(None, "").filter, of(None, "").order_by), (String::new(), "name".into()));
    }
}

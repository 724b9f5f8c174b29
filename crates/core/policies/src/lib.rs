//! Policy files: TOML texts whose keys say how cards are shared. Read by daemons from a folder, and registered once for the
//! hosts of a fleet. The files that ship are the defaults.
//!
//! Reading files, watching them and keeping them is for programs; here is only what the texts mean.

mod files;
#[cfg(test)]
mod keys;
mod source;

use std::collections::BTreeMap;

use snic_controller::{ControllerSettings, Scheme};

use source::Source;

/// The shipped files: name and text.
pub const SHIPPED: [(&str, &str); 5] = [
    ("placement.toml", include_str!("../../../../policies/placement.toml")),
    ("fairness.toml", include_str!("../../../../policies/fairness.toml")),
    ("autoscaling.toml", include_str!("../../../../policies/autoscaling.toml")),
    ("admission.toml", include_str!("../../../../policies/admission.toml")),
    ("scheduling.toml", include_str!("../../../../policies/scheduling.toml")),
];

/// The names of files that may contradict each other though each is valid.
pub const CONTRADICTING: [&str; 2] = ["fairness.toml", "autoscaling.toml"];

/// Fault of a text: it is not TOML, or a key is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}:{line}: {message}")]
pub struct InvalidPolicyText {
    /// Where the text is from.
    pub path: String,
    pub line: usize,
    /// The fault, and what is allowed.
    pub message: String,
}

/// The text of a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyText {
    /// Where it is from, for errors.
    pub path: String,
    pub text: String,
}

impl PolicyText {
    /// A text from this place.
    pub fn new(path: String, text: &str) -> Self {
        Self { path, text: text.to_owned() }
    }

    /// The one that ships under this name.
    pub fn shipped(name: &str, text: &str) -> Self {
        Self::new(format!("policies/{name}"), text)
    }
}

/// One text for each of [`SHIPPED`], in its order.
pub type PolicyTexts = [PolicyText; SHIPPED.len()];

/// Settings that all files together give.
///
/// # Errors
///
/// The first key that is wrong, or two that contradict each other.
pub fn parse(texts: &PolicyTexts) -> Result<ControllerSettings, InvalidPolicyText> {
    settings_of(
        &texts.each_ref().map(|PolicyText { path, text }| Source { path: path.clone(), text }),
    )
}

/// Checks one file, beside others that are empty.
///
/// # Errors
///
/// The first key that is wrong.
pub fn check_alone(name: &str, text: &PolicyText) -> Result<(), InvalidPolicyText> {
    let texts = SHIPPED.map(|(other, _)| match other == name {
        true => text.clone(),
        false => PolicyText::new(other.to_owned(), ""),
    });
    parse(&texts).map(drop)
}

/// Settings that files give, by name, beside the shipped ones for those that are not given.
///
/// # Errors
///
/// There is no policy file of a name, the first key that is wrong, or two that contradict each other.
pub fn check_files(
    files: &BTreeMap<String, String>,
) -> Result<ControllerSettings, InvalidPolicyText> {
    check_names(files)?;
    let texts = SHIPPED.map(|(name, shipped)| match files.get(name) {
        Some(text) => PolicyText::new(name.to_owned(), text),
        None => PolicyText::shipped(name, shipped),
    });
    parse(&texts)
}

/// Checks that there are policy files of these names.
///
/// # Errors
///
/// The first name that is none.
pub fn check_names(files: &BTreeMap<String, String>) -> Result<(), InvalidPolicyText> {
    if let Some(unknown) = files.keys().find(|name| SHIPPED.iter().all(|(known, _)| known != name))
    {
        let names = SHIPPED.map(|(name, _)| name).join(", ");
        let message = format!("there is no such policy file; there are {names}");
        return Err(InvalidPolicyText { path: format!("{unknown:.80}"), line: 1, message });
    }
    Ok(())
}

fn settings_of(
    sources: &[Source<'_>; SHIPPED.len()],
) -> Result<ControllerSettings, InvalidPolicyText> {
    let [placement, fairness, autoscaling, admission, scheduling] = sources;
    let mut settings = ControllerSettings::default();
    files::placement(placement, &mut settings)?;
    let scheme_at = files::fairness(fairness, &mut settings)?;
    let enabled_at = files::autoscaling(autoscaling, &mut settings)?;
    files::admission(admission, &mut settings)?;
    files::scheduling(scheduling, &mut settings)?;
    if settings.fairness.scheme != Scheme::Static || !settings.autoscaling.enabled {
        return Ok(settings);
    }
    let Some(line) = enabled_at else {
        // It was not set explicitly, so the static scheme decides.
        settings.autoscaling.enabled = false;
        return Ok(settings);
    };
    let message = format!(
        "sharing.scheme = \"static\" allows no more than the guaranteed rates, but {}:{line} sets \
         enabled = true; set enabled = false or choose another scheme",
        autoscaling.path
    );
    Err(InvalidPolicyText { path: fairness.path.clone(), line: scheme_at.unwrap_or(1), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses these texts instead of the shipped ones.
    pub(super) fn with(changed: &[(&str, &str)]) -> Result<ControllerSettings, String> {
        let text = |name: &'static str| {
            let own = changed.iter().find(|(file, _)| *file == name);
            Source { path: name.to_owned(), text: own.map_or("", |(_, text)| text) }
        };
        settings_of(&SHIPPED.map(|(name, _)| text(name))).map_err(|error| error.to_string())
    }

    pub(super) fn error(file: &str, text: &str) -> String {
        with(&[(file, text)]).expect_err(text)
    }

    #[test]
    fn the_files_that_ship_say_what_empty_ones_mean() {
        let shipped = SHIPPED.map(|(name, text)| PolicyText::new(name.to_owned(), text));
        let shipped = parse(&shipped).expect("they ship");
        assert_eq!(Ok(shipped), with(&[]));
        assert_eq!(shipped, ControllerSettings::default());
    }

    #[test]
    fn every_shipped_key_is_documented() {
        for (name, text) in SHIPPED {
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(" = ")) {
                let documented = line.starts_with('#') || lines[at - 1].starts_with('#');
                assert!(documented, "{name}:{}: {line}", at + 1);
            }
        }
    }

    #[test]
    fn errors_name_file_line_key_and_range() {
        let cases = [
            (
                "placement.toml",
                "[reconfiguration]\nattempts = 0\n",
                "placement.toml:2: reconfiguration.attempts = 0 is not allowed: 1 to 100",
            ),
            ("placement.toml", "[reconfiguration]\ntries = 3", "placement.toml:2: "),
            (
                "placement.toml",
                "[reconfiguration]\nbackoff_ms = 100\nbackoff_max_ms = 50",
                "placement.toml:3: reconfiguration.backoff_max_ms = 50 is not allowed: 100 to 600000",
            ),
            ("placement.toml", "[reconfiguration]\nattempts = -1", "placement.toml:2: "),
            (
                "placement.toml",
                "[consolidation]\n\nregions_min = 0",
                "placement.toml:3: consolidation.regions_min = 0 is not allowed: 1 to 32",
            ),
            (
                "fairness.toml",
                "[sharing]\n\nscheme = \"fair\"",
                "fairness.toml:3: sharing.scheme = \"fair\" is not allowed: \"static\", \"drf\", \"full\"",
            ),
            ("fairness.toml", "[sharing]\nweight = 0", "fairness.toml:2: "),
            ("fairness.toml", "[sharing]\nheadroom_percent = nan", "fairness.toml:2: "),
            (
                "fairness.toml",
                "[epoch]\nlength_ms = 0",
                "fairness.toml:2: epoch.length_ms = 0 is not allowed: 1 to 10000",
            ),
            ("autoscaling.toml", "enabled = 1", "autoscaling.toml:1: "),
            (
                "autoscaling.toml",
                "[scale_in]\npercent = 101",
                "autoscaling.toml:2: scale_in.percent = 101 is not allowed: 1 to 100",
            ),
            (
                "admission.toml",
                "[promises]\ningress_percent = 0",
                "admission.toml:2: promises.ingress_percent = 0 is not allowed: 1 to 100",
            ),
            ("admission.toml", "promises = ", "admission.toml:1: "),
            (
                "scheduling.toml",
                "[instances]\nsteering = \"random\"",
                "scheduling.toml:2: instances.steering = \"random\" is not allowed: \"round-robin\", \
                 \"least-loaded\", \"by-flow\"",
            ),
            (
                "scheduling.toml",
                "[credits]\n\nreservation = \"none\"",
                "scheduling.toml:3: credits.reservation = \"none\" is not allowed: \"chain\", \"prefix\"",
            ),
            ("scheduling.toml", "[credits]\ninitial = 4", "scheduling.toml:2: "),
        ];
        for (file, text, says) in cases {
            let error = error(file, text);
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn words_of_placement_are_checked() {
        let cases = [
            (
                "placement.toml",
                "[objective]\nfirst = \"latency\"",
                "placement.toml:2: objective.first = \"latency\" is not allowed: \"regions\", \
                 \"passes\", \"balanced\"",
            ),
            (
                "placement.toml",
                "[cards]\norder = \"random\"",
                "placement.toml:2: cards.order = \"random\" is not allowed: \"pack\", \"spread\", \
                 \"headroom\"",
            ),
        ];
        for (file, text, says) in cases {
            let error = error(file, text);
            assert!(error.starts_with(says), "{error}");
        }
        let text = "[objective]\nfirst = \"passes\"\n[cards]\norder = \"pack\"";
        let placement = with(&[("placement.toml", text)]).expect("both are known").placement;
        assert_eq!(placement.objective, snic_controller::Objective::Passes);
        assert_eq!(placement.cards, snic_controller::CardOrder::Pack);
    }

    #[test]
    fn policies_that_contradict_each_other_are_refused_with_both_places() {
        let fixed = ("fairness.toml", "[sharing]\nscheme = \"static\"");
        let refused =
            with(&[fixed, ("autoscaling.toml", "\nenabled = true")]).expect_err("refused");
        assert!(refused.starts_with("fairness.toml:2: "), "{refused}");
        assert!(refused.contains("autoscaling.toml:2"), "{refused}");
        let settings = with(&[fixed]).expect("nobody asked for autoscaling");
        assert!(!settings.autoscaling.enabled);
        with(&[fixed, ("autoscaling.toml", "enabled = false")]).expect("they agree");
        let calm = "[scale_in]\npercent = 90";
        let refused = error("autoscaling.toml", calm);
        let says = "autoscaling.toml:2: scale_in.percent = 90 is not below \
                    scale_out.pre_launch_percent = 90: ";
        assert!(refused.starts_with(says), "{refused}");
        let never = format!("[scale_out]\npre_launch = false\n{calm}");
        with(&[("autoscaling.toml", &never)]).expect("nothing is launched ahead of need");
        let lower = format!("[scale_out]\npre_launch_percent = 91\n{calm}");
        with(&[("autoscaling.toml", &lower)]).expect("there is room between them");
    }

    #[test]
    fn ages_of_usage_are_in_hours_and_days() {
        let usage = |keys: &str| with(&[("admission.toml", &format!("[usage]\n{keys}"))]);
        let ages = |keys: &str| usage(keys).map(|settings| settings.usage_ages);
        let [day, hour] = [86_400, 3_600];
        let age = |fine, minute, hour| Ok(snic_usage::Retention { fine, minute, hour });
        let long = "keep_10s_hours = 24\nkeep_1m_days = 31\nkeep_1h_days = 731";
        assert_eq!(ages(long), age(day, 31 * day, 731 * day));
        assert_eq!(ages("keep_1m_days = 2"), age(hour, 2 * day, 92 * day));
        assert_eq!(ages(""), age(hour, day, 92 * day));
        let wrong = "admission.toml:2: usage.keep_1h_days = 31 is not allowed: 32 to 3660";
        assert_eq!(usage("keep_1h_days = 31"), Err(wrong.to_owned()));
    }

    #[test]
    fn a_set_of_files_is_checked_beside_what_ships() {
        let set = |files: &[(&str, &str)]| {
            let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
            check_files(&files.iter().map(owned).collect())
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(set(&[]), Ok(()));
        assert_eq!(set(&[("fairness.toml", "[epoch]\nlength_ms = 40")]), Ok(()));
        let wrong = set(&[("fairness.toml", "[epoch]\nlength_ms = 0")]).expect_err("out of range");
        assert!(wrong.starts_with("fairness.toml:2: epoch.length_ms = 0"), "{wrong}");
        let unknown = set(&[("limits.toml", "")]).expect_err("no such file");
        assert!(unknown.starts_with("limits.toml:1: there is no such policy file"), "{unknown}");
        assert!(unknown.contains("admission.toml"), "{unknown}");
        // What ships sets enabled = true.
        let fixed = ("fairness.toml", "[sharing]\nscheme = \"static\"");
        let against = set(&[fixed]).expect_err("autoscaling.toml as it ships contradicts it");
        assert!(against.contains("policies/autoscaling.toml:"), "{against}");
        assert_eq!(set(&[fixed, ("autoscaling.toml", "enabled = false")]), Ok(()));
    }
}

//! Policies: TOML files that are checked as a whole and reloaded when they change. The shipped files are
//! the defaults.

mod authorization;
mod files;
#[cfg(test)]
mod keys;
mod reload;
mod source;

use std::path::{Path, PathBuf};

use snic_controller::{ControllerSettings, Scheme};

pub use authorization::{AuthorizationFiles, check as check_authorization};
pub use reload::{Reloader, watch};
use source::Source;

/// The shipped files by name.
const SHIPPED: [(&str, &str); 5] = [
    ("placement.toml", include_str!("../../../../policies/placement.toml")),
    ("fairness.toml", include_str!("../../../../policies/fairness.toml")),
    ("autoscaling.toml", include_str!("../../../../policies/autoscaling.toml")),
    ("admission.toml", include_str!("../../../../policies/admission.toml")),
    ("scheduling.toml", include_str!("../../../../policies/scheduling.toml")),
];

/// Why a policy file was rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPolicyFile {
    /// It cannot be read.
    #[error("cannot read the policy file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML, or a key is wrong.
    #[error("{path}:{line}: {message}")]
    Key {
        /// The file.
        path: String,
        /// The line.
        line: usize,
        /// What is wrong, and what is allowed.
        message: String,
    },
}

/// The policy files of the settings, and the texts of them that were last accepted.
///
/// A file that is invalid does not take effect, and does not keep the others from it: the text that was
/// accepted last stays in force, also over a restart; without one, what ships.
pub struct Policies {
    folder: Option<PathBuf>,
    accepted: PathBuf,
}

impl Policies {
    /// Those of the settings.
    pub fn new(settings: &crate::settings::Settings) -> Self {
        let accepted = settings.data_dir.join("policies");
        Self { folder: settings.policies_dir.clone(), accepted }
    }

    /// Reads all files. Gives the policies in force, and why files were rejected.
    pub fn read(&self) -> (ControllerSettings, Vec<String>) {
        let Some(folder) = &self.folder else { return (ControllerSettings::default(), Vec::new()) };
        let mut rejected = Vec::new();
        let mut texts = SHIPPED.map(|(name, shipped)| {
            let text = read(&folder.join(name), name, shipped).and_then(|text| {
                alone(name, &text)?;
                Ok(text)
            });
            text.unwrap_or_else(|error| {
                rejected.push(self.reject(name, &error));
                self.last(name, shipped)
            })
        });
        let settings = parse_texts(&texts).or_else(|error| {
            // Each is valid, but two contradict each other: neither of them takes effect.
            rejected.push(self.reject("fairness.toml and autoscaling.toml", &error));
            for (at, (name, shipped)) in SHIPPED.into_iter().enumerate() {
                if ["fairness.toml", "autoscaling.toml"].contains(&name) {
                    texts[at] = self.last(name, shipped);
                }
            }
            parse_texts(&texts)
        });
        match settings {
            Ok(settings) => {
                self.accept(&texts);
                (settings, rejected)
            }
            // What was accepted contradicts what is there now.
            Err(error) => {
                rejected.push(self.reject("all files", &error));
                (ControllerSettings::default(), rejected)
            }
        }
    }

    fn reject(&self, name: &str, error: &InvalidPolicyFile) -> String {
        tracing::error!(%error, "{name} rejected; what was accepted last stays in force");
        format!("{error}; what was accepted last stays in force")
    }

    /// The text of a file that was accepted last, or what ships.
    fn last(&self, name: &str, shipped: &str) -> PolicyText {
        let path = self.accepted.join(name);
        let kept = std::fs::read_to_string(&path).ok();
        let kept = kept.map(|text| PolicyText { path: path.display().to_string(), text });
        let kept = kept.filter(|text| alone(name, text).is_ok());
        kept.unwrap_or_else(|| PolicyText::new(format!("policies/{name}"), shipped))
    }

    fn accept(&self, texts: &[PolicyText; SHIPPED.len()]) {
        let kept = std::fs::create_dir_all(&self.accepted).map_err(anyhow::Error::from);
        let kept = kept.and_then(|()| {
            SHIPPED.iter().zip(texts).try_for_each(|((name, _), PolicyText { text, .. })| {
                let path = self.accepted.join(name);
                if std::fs::read_to_string(&path).is_ok_and(|kept| kept == *text) {
                    return Ok(());
                }
                crate::secrets::write(&path, text.as_bytes(), 0o600)
            })
        });
        if let Err(error) = kept {
            let error = format!("{error:#}");
            tracing::warn!(error, "the accepted policies cannot be kept for the next start");
        }
    }
}

/// The text of a policy file.
#[derive(Debug, Clone)]
struct PolicyText {
    /// Where it is from, for errors.
    path: String,
    text: String,
}

impl PolicyText {
    fn new(path: String, text: &str) -> Self {
        Self { path, text: text.to_owned() }
    }
}

/// Checks one file, beside others that are empty.
fn alone(name: &str, text: &PolicyText) -> Result<(), InvalidPolicyFile> {
    let texts = SHIPPED.map(|(other, _)| match other == name {
        true => text.clone(),
        false => PolicyText::new(other.to_owned(), ""),
    });
    parse_texts(&texts).map(|_| ())
}

fn parse_texts(
    texts: &[PolicyText; SHIPPED.len()],
) -> Result<ControllerSettings, InvalidPolicyFile> {
    parse(&texts.each_ref().map(|PolicyText { path, text }| Source { path: path.clone(), text }))
}

/// Reads all policies from a folder, all or none. A missing file, or no folder, means the shipped
/// policies.
pub fn load(folder: Option<&Path>) -> Result<ControllerSettings, InvalidPolicyFile> {
    let Some(folder) = folder else { return Ok(ControllerSettings::default()) };
    let mut texts = SHIPPED.map(|(name, _)| PolicyText::new(name.to_owned(), ""));
    for (text, (name, shipped)) in texts.iter_mut().zip(SHIPPED) {
        *text = read(&folder.join(name), name, shipped)?;
    }
    parse_texts(&texts)
}

/// A file's text, or what ships where there is none in the folder.
fn read(path: &Path, name: &str, shipped: &str) -> Result<PolicyText, InvalidPolicyFile> {
    let shown = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(PolicyText { path: shown, text }),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound && folder_exists(path) => {
            Ok(PolicyText::new(format!("policies/{name}"), shipped))
        }
        Err(source) => Err(InvalidPolicyFile::Read { path: shown, source }),
    }
}

fn folder_exists(file: &Path) -> bool {
    file.parent().is_some_and(Path::is_dir)
}

fn parse(sources: &[Source<'_>; SHIPPED.len()]) -> Result<ControllerSettings, InvalidPolicyFile> {
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
    Err(InvalidPolicyFile::Key {
        path: fairness.path.clone(),
        line: scheme_at.unwrap_or(1),
        message,
    })
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
        parse(&SHIPPED.map(|(name, _)| text(name))).map_err(|error| error.to_string())
    }

    pub(super) fn error(file: &str, text: &str) -> String {
        with(&[(file, text)]).expect_err(text)
    }

    #[test]
    fn the_files_that_ship_say_what_empty_ones_mean() {
        let shipped = SHIPPED.map(|(name, text)| PolicyText::new(name.to_owned(), text));
        let shipped = parse_texts(&shipped).expect("they ship");
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
                 \"least-loaded\"",
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
    fn a_missing_folder_is_named_and_a_missing_file_is_the_shipped_one() {
        let error = load(Some(Path::new("/nonexistent"))).expect_err("missing");
        assert!(error.to_string().contains("/nonexistent/placement.toml"), "{error}");
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(load(Some(folder.path())).expect("what ships"), ControllerSettings::default());
    }

    #[test]
    fn a_bad_file_blocks_no_other_and_what_was_accepted_stays_over_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("policies");
        std::fs::create_dir(&at).expect("a folder");
        let settings = crate::settings::Settings {
            data_dir: folder.path().join("store"),
            policies_dir: Some(at.clone()),
            ..Default::default()
        };
        let write = |name: &str, text: &str| std::fs::write(at.join(name), text).expect("written");
        // Each time as after a start.
        let read = || Policies::new(&settings).read();
        write("fairness.toml", "[epoch]\nlength_ms = 40");
        let (now, rejected) = read();
        assert_eq!((now.fairness.epoch.as_millis(), rejected), (40, Vec::new()));
        write("fairness.toml", "[epoch]\nlength_ms = 0");
        write("placement.toml", "[reconfiguration]\nattempts = 9");
        let (now, rejected) = read();
        assert_eq!((now.fairness.epoch.as_millis(), now.load_attempts), (40, 9));
        let [why] = &rejected[..] else { panic!("{rejected:?}") };
        assert!(why.contains("fairness.toml:2: epoch.length_ms = 0"), "{why}");
        assert!(why.contains("stays in force"), "{why}");
        // Two that contradict each other: neither takes effect.
        write("fairness.toml", "[sharing]\nscheme = \"static\"\n[epoch]\nlength_ms = 50");
        write("autoscaling.toml", "enabled = true");
        let (now, rejected) = read();
        assert_eq!((now.fairness.epoch.as_millis(), rejected.len()), (40, 1), "{rejected:?}");
        std::fs::remove_dir_all(&at).expect("removed");
        let (now, rejected) = read();
        assert_eq!((now.fairness.epoch.as_millis(), now.load_attempts), (40, 9));
        assert_eq!(rejected.len(), SHIPPED.len(), "{rejected:?}");
    }
}

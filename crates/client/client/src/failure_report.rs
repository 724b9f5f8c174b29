//! Failures as text and as data, for standard error.

use miette::GraphicalReportHandler;
use serde::Serialize;
use snic_api::error::reason_of;
use snic_api::text::{escaped, escaped_lines};
use snic_api::v1::ErrorReason;
use snic_api::words::EnumWord as _;
use snic_dagfile::InvalidFile;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::failure::Failure;
use crate::output::{Format, visible};

/// Advice about a request that was cut off.
const UNKNOWN_EFFECT: &str =
    "it may still have taken effect: check before you repeat it, or use a longer --timeout";

impl Failure {
    /// The text for standard error, ending with a line break.
    pub fn render(&self, format: Format, is_colour: bool) -> String {
        let report = Report::of(self);
        let structured = match format {
            Format::Table => None,
            Format::Json => visible::json(&report, true).ok(),
            Format::Yaml => visible::yaml(&report).ok(),
        };
        let text = match (structured, self) {
            (Some(text), _) => text.trim_end().to_owned() + "\n",
            (None, Self::File(file)) => diagram(file, is_colour),
            (None, Self::InFile { place, .. }) => {
                // The diagram has the message, and the hint if the place has one.
                let has_hint = place.problem().help.is_some();
                let text = report.text(is_colour);
                let rest = text.split_inclusive('\n').skip(1);
                let rest = rest.filter(|line| !(has_hint && line.starts_with("  next:")));
                diagram(place, is_colour) + &rest.collect::<String>()
            }
            (None, _) => report.text(is_colour),
        };
        visible::guarded(&text, is_colour).into_owned()
    }
}

/// The file with the error marked.
fn diagram(file: &InvalidFile, is_colour: bool) -> String {
    let theme = if is_colour {
        miette::GraphicalTheme::unicode()
    } else {
        miette::GraphicalTheme::unicode_nocolor()
    };
    let mut text = String::new();
    let handler = GraphicalReportHandler::new_themed(theme).with_width(80).with_links(false);
    match handler.render_report(&mut text, &file.visible()) {
        Ok(()) => text.trim_start_matches('\n').to_owned(),
        Err(_) => Report::of(&Failure::Usage { message: file.to_string(), hint: String::new() })
            .text(is_colour),
    }
}

/// A failure as data; empty fields are omitted.
#[derive(Debug, Default, Serialize)]
struct Report {
    error: ErrorReport,
}

#[derive(Debug, Default, Serialize)]
struct ErrorReport {
    message: String,
    /// Name of the gRPC code; if the server did not answer, the closest one.
    code: String,
    exit_code: u8,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    field_violations: Vec<Violation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quota_violations: Vec<Violation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    precondition_violations: Vec<Violation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Resource>,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    metadata: std::collections::BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<Position>,
}

#[derive(Debug, Serialize)]
struct Violation {
    subject: String,
    description: String,
}

#[derive(Debug, Serialize)]
struct Resource {
    r#type: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct Position {
    file: String,
    line: usize,
    column: usize,
}

impl Report {
    fn of(failure: &Failure) -> Self {
        let mut error = match failure {
            Failure::Api(status)
            | Failure::InFile { status, .. }
            | Failure::Hinted { status, .. } => ErrorReport::of(status),
            _ => ErrorReport { message: failure.to_string(), ..ErrorReport::default() },
        };
        error.exit_code = failure.exit_code();
        if error.code.is_empty() {
            error.code = match (failure, error.exit_code) {
                (Failure::NoReply { .. }, _) => "DEADLINE_EXCEEDED",
                (_, 2) => "INVALID_ARGUMENT",
                (_, 7) => "UNAVAILABLE",
                _ => "UNKNOWN",
            }
            .to_owned();
        }
        match failure {
            Failure::File(file) => {
                let (line, column) = file.position();
                error.position = Some(Position { file: file.file().to_owned(), line, column });
                error.hint = file.problem().help.clone().unwrap_or_default();
            }
            Failure::InFile { place, .. } => {
                let (line, column) = place.position();
                error.position = Some(Position { file: place.file().to_owned(), line, column });
                if let Some(help) = &place.problem().help {
                    error.hint.clone_from(help);
                }
            }
            Failure::Usage { hint, .. }
            | Failure::Hinted { hint, .. }
            | Failure::Incomplete { hint, .. } => {
                error.hint.clone_from(hint);
            }
            Failure::Connect { .. } => {
                error.hint =
                    "check that snicd runs and that the context is right: `snicctl context show`"
                        .into();
            }
            Failure::NoReply { .. } => error.hint = UNKNOWN_EFFECT.into(),
            Failure::StillRunning { operation, .. } | Failure::Interrupted { operation } => {
                error.hint =
                    format!("keep waiting with `snicctl operation wait {}`", last_part(operation));
            }
            _ => {}
        }
        Self { error }
    }

    fn text(&self, is_colour: bool) -> String {
        let error = &self.error;
        let head = if is_colour { "\x1b[1;31merror\x1b[0m" } else { "error" };
        // A line break in a server's text begins no line that looks like one of these.
        let message = escaped_lines(&error.message).replace('\n', "\n    ");
        let mut lines = vec![format!("{head}: {message}")];
        let mut line = |key: &str, value: String| {
            lines.push(format!("  {:<9} {}", format!("{key}:"), escaped(&value)));
        };
        if !error.reason.is_empty() {
            line("reason", error.reason.clone());
        }
        let shown = |violation: &&Violation| !error.message.contains(&violation.description);
        for violation in &error.field_violations {
            let text = format!("{}: {}", violation.subject, violation.description);
            if text != error.message {
                line("field", text);
            }
        }
        for violation in error.quota_violations.iter().filter(shown) {
            line("limit", format!("{}: {}", violation.subject, violation.description));
        }
        for violation in error.precondition_violations.iter().filter(shown) {
            line("blocked", format!("{}: {}", violation.subject, violation.description));
        }
        if let Some(resource) = &error.resource {
            line("resource", format!("{} {}", resource.r#type, resource.name));
        }
        if let [Some(required), Some(available)] =
            ["required", "available"].map(|key| error.metadata.get(key))
        {
            let unit = error.metadata.get("unit").map_or("", String::as_str);
            line(
                "missing",
                format!("{} needed, {} available", amount(required, unit), amount(available, unit)),
            );
        }
        if let Some(trace) = error.metadata.get("trace") {
            line("trace", trace.clone());
        }
        if let Some(seconds) = error.retry_after_seconds {
            line("retry", format!("in {seconds} s"));
        }
        if !error.hint.is_empty() {
            line("next", error.hint.clone());
        }
        lines.join("\n") + "\n"
    }
}

/// A quantity from an error's metadata in readable units.
fn amount(number: &str, unit: &str) -> String {
    match (number.parse(), unit) {
        (Ok(bps), "bit/s") => snic_domain::Bandwidth::from_bps(bps).to_string(),
        (Ok(bytes), "bytes") => snic_domain::ByteSize::from_bytes(bytes).to_string(),
        _ => format!("{number} {unit}").trim_end().to_owned(),
    }
}

impl ErrorReport {
    fn of(status: &Status) -> Self {
        let details = status.get_error_details();
        let reason = reason_of(status);
        let mut report = Self {
            message: status.message().to_owned(),
            code: code_name(status.code()),
            reason: reason.map(|reason| reason.word().to_owned()).unwrap_or_default(),
            ..Self::default()
        };
        if report.message.is_empty() {
            report.message = status.code().description().to_owned();
        }
        let violation = |subject: &str, description: &str| Violation {
            subject: subject.to_owned(),
            description: description.to_owned(),
        };
        if let Some(bad) = details.bad_request() {
            let fields = bad.field_violations.iter();
            report.field_violations =
                fields.map(|field| violation(&field.field, &field.description)).collect();
        }
        if let Some(quota) = details.quota_failure() {
            let quotas = quota.violations.iter();
            report.quota_violations =
                quotas.map(|quota| violation(&quota.subject, &quota.description)).collect();
        }
        if let Some(failure) = details.precondition_failure() {
            let conditions = failure.violations.iter();
            report.precondition_violations =
                conditions.map(|found| violation(&found.subject, &found.description)).collect();
        }
        report.resource = details.resource_info().map(|info| Resource {
            r#type: info.resource_type.clone(),
            name: info.resource_name.clone(),
        });
        if let Some(info) = details.error_info() {
            report.metadata = info.metadata.clone().into_iter().collect();
        }
        let delay = details.retry_info().and_then(|retry| retry.retry_delay);
        report.retry_after_seconds = delay.map(|delay| delay.as_secs_f64());
        report.hint = hint(status, reason, report.resource.as_ref());
        report
    }
}

/// Advice on the next step.
fn hint(status: &Status, reason: Option<ErrorReason>, resource: Option<&Resource>) -> String {
    use ErrorReason as R;
    let name = resource.map_or("", |resource| resource.name.as_str());
    let noun = noun_of(name);
    let text = match (reason, status.code()) {
        (Some(R::UnknownNtType), _) => "list the types you may use: `snicctl nt list`",
        (Some(R::ResourceNotFound), _) if !noun.is_empty() => {
            return format!("list what exists: `snicctl {noun} list`");
        }
        (Some(R::ResourceExists), _) if !noun.is_empty() => {
            return format!(
                "choose another name, or look at the existing one: `snicctl {noun} get {}`",
                short(name)
            );
        }
        (Some(R::EtagMismatch), _) => {
            "read the resource again, and repeat the change with its new etag"
        }
        (Some(R::ChangeInProgress), _) => {
            "wait for the running change: `snicctl operation list --running`"
        }
        (Some(R::PlanOutdated), _) => "others took the place meanwhile: run the command again",
        (Some(R::BindFailed), _) => {
            "check what is not ready with `snicctl dag get` and `snicctl card list`, then bind it again"
        }
        (Some(R::UnderMaintenance), _) => {
            "try again after the maintenance; existing DAGs and bindings are served meanwhile"
        }
        (Some(R::ResourceInUse), _) => "first delete or change what uses it",
        (Some(R::NoBitstream), _) => {
            "list the chains with `snicctl bitstream list`; upload one that fits, or reorder the DAG"
        }
        (Some(R::QuotaExceeded), _) => "delete something, or ask the operator for a larger quota",
        (Some(R::InsufficientCapacity), _) if is_for_cordons(status) => {
            "an operator can end cordons: `snicctl region list` shows them, `snicctl region undrain` and \
             `snicctl card uncordon` end them"
        }
        (Some(R::InsufficientCapacity), _) => {
            "request less bandwidth, or delete what is no longer needed; test with `--validate-only`"
        }
        (Some(R::StoreRefuses), _) => {
            "operators: see `snicctl fleet status`; send the request again when the store accepts writes"
        }
        (Some(R::RevisionExpired), _) => "start the watch again",
        (Some(R::IdentityMissing), _) | (None, Code::Unauthenticated) => {
            "set certificate and key (or identity) of the context: `snicctl context set`"
        }
        (Some(R::PermissionDenied), _) | (None, Code::PermissionDenied) => {
            "use another identity; list yours with `snicctl context list`"
        }
        (Some(R::CardUnavailable), _) => {
            "check the cards' health with `snicctl card list`, and try again later"
        }
        (Some(R::Internal), _) => {
            "send the trace id to the operator; the server's log has the cause"
        }
        (_, Code::Unavailable) => {
            "try again; check the server and the context: `snicctl context show`"
        }
        (_, Code::DeadlineExceeded) => UNKNOWN_EFFECT,
        // The message says which host has it.
        (Some(R::NotAtFleet), _) => "",
        (None, Code::Unimplemented) => {
            "the server is older than this program and does not know the method; upgrade it"
        }
        _ => "",
    };
    text.to_owned()
}

/// Whether a shortage names cordoned regions.
fn is_for_cordons(status: &Status) -> bool {
    let details = status.get_error_details();
    let short = details.quota_failure().map(|quota| quota.violations.as_slice());
    let mut texts =
        short.unwrap_or_default().iter().map(|violation| violation.description.as_str());
    status.message().contains(" are cordoned") || texts.any(|text| text.contains(" are cordoned"))
}

/// The noun of the command for resources with such names.
pub(crate) fn noun_of(name: &str) -> &'static str {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        ["tenants", _] => "tenant",
        ["tenants", _, "dags", _] => "dag",
        ["ntTypes", _] => "nt",
        ["bitstreams", _] => "bitstream",
        ["cards", _] => "card",
        ["cards", _, "regions", _] => "region",
        ["classificationRules", _] => "rule",
        ["operations", _] => "operation",
        _ => "",
    }
}

/// A name as commands accept it: in full if it has several ids.
fn short(name: &str) -> &str {
    if name.matches('/').count() == 1 { last_part(name) } else { name }
}

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The code as the gRPC specification writes it.
pub(crate) fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

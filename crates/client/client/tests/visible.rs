//! Every printed message with hostile text in every string, in every format.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::{DynamicMessage, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value};
use snic_api::text::is_hidden;
use snic_api::{fleet_v1 as fleet, v1};
use snic_client::Failure;
use snic_client::output::message::{JsonMessage, PrintedMessage, descriptor};
use snic_client::output::visible::{guarded, visible, yaml};
use snic_client::output::{
    Format, Output, Style, WIDTH, audit, changes, consolidation, diagnosis, explain, fairness,
    fleet_views, views, vm_views,
};

/// Clears a screen, sets colours in three ways, turns a line around, begins a line, ends one without a break.
const HOSTILE: [&str; 5] = [
    "a\x1b[2J\x1b[31mred",
    "b\u{9b}31m\u{85}\u{7f}\x07",
    "c\u{202e}fdp\u{2066}\u{200f}\u{61c}\u{200b}\u{feff}",
    "d\nFORGED: line\r\u{2028}\u{2029}",
    "e\u{e0041}\t\0",
];

/// Deepest message in a message.
const DEPTH: usize = 6;

fn hostile(variant: usize) -> String {
    format!(
        "{0} {1} {2} {3} {4}",
        HOSTILE[variant % 5],
        HOSTILE[(variant + 1) % 5],
        HOSTILE[(variant + 2) % 5],
        HOSTILE[(variant + 3) % 5],
        HOSTILE[(variant + 4) % 5]
    )
}

/// A message with every field set; of those that exclude each other the `variant`-th.
fn filled(descriptor: &MessageDescriptor, variant: usize, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    if descriptor.full_name().starts_with("google.protobuf.") {
        return well_known(message, variant, depth);
    }
    for field in descriptor.fields() {
        if let Some(choice) = field.containing_oneof() {
            let all: Vec<_> = choice.fields().collect();
            if all[variant % all.len()].number() != field.number() {
                continue;
            }
        }
        let Some(value) = value_of(&field.kind(), variant, depth) else { continue };
        let value = if field.is_map() {
            let Kind::Message(entry) = field.kind() else { continue };
            let Some(value) = value_of(&entry.map_entry_value_field().kind(), variant, depth)
            else {
                continue;
            };
            let key = match entry.map_entry_key_field().kind() {
                Kind::String => MapKey::String(hostile(variant)),
                _ => continue,
            };
            Value::Map([(key, value)].into())
        } else if field.is_list() {
            Value::List(vec![value])
        } else {
            value
        };
        message.set_field(&field, value);
    }
    message
}

fn well_known(mut message: DynamicMessage, variant: usize, depth: usize) -> DynamicMessage {
    match message.descriptor().full_name() {
        "google.protobuf.Timestamp" | "google.protobuf.Duration" => {
            message.set_field_by_name("seconds", Value::I64(1_700_000_000));
        }
        "google.protobuf.Any" if depth > 0 => {
            let descriptor = descriptor::<v1::Dag>().expect("it is there");
            let dag = filled(&descriptor, variant, depth - 1);
            let url = "type.googleapis.com/snic.control.v1.Dag".to_owned();
            message.set_field_by_name("type_url", Value::String(url));
            message.set_field_by_name("value", Value::Bytes(dag.encode_to_vec().into()));
        }
        _ => {}
    }
    message
}

fn value_of(kind: &Kind, variant: usize, depth: usize) -> Option<Value> {
    Some(match kind {
        Kind::String => Value::String(hostile(variant)),
        Kind::Bytes => Value::Bytes(hostile(variant).into_bytes().into()),
        Kind::Bool => Value::Bool(true),
        Kind::Double => Value::F64(1.5),
        Kind::Float => Value::F32(1.5),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(3),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(3),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(3),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(3),
        Kind::Enum(values) => {
            let all: Vec<_> = values.values().collect();
            Value::EnumNumber(all[variant % all.len()].number())
        }
        Kind::Message(inner) if depth > 0 => Value::Message(filled(inner, variant, depth - 1)),
        Kind::Message(_) => return None,
    })
}

fn message<R: PrintedMessage>(variant: usize) -> R {
    let descriptor = descriptor::<R>().expect("it is there");
    filled(&descriptor, variant, DEPTH).transcode_to().expect("its own descriptor")
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panicked").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn printed(
    format: Format,
    is_colour: bool,
    print: impl FnOnce(&mut Output) -> Result<(), Failure>,
) -> String {
    let written = Written::default();
    let style = Style { is_colour, width: WIDTH, now: SystemTime::UNIX_EPOCH };
    print(&mut Output::new(format, style, Box::new(written.clone()))).expect("it is written");
    let bytes = written.0.lock().expect("no writer panicked").clone();
    String::from_utf8(bytes).expect("UTF-8")
}

/// The text without the sequences that set colours.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let end = part.find('m').expect("it sets a colour");
        assert!(part[..end].bytes().all(|b| b.is_ascii_digit() || b == b';'), "{part:?}");
        all + &part[end + 1..]
    })
}

/// Checks a text for a person's terminal: it has nothing but text and our colours, and no line that somebody else has begun.
fn judge(what: &str, text: &str, is_colour: bool) {
    assert!(!text.contains("\x1b[31mred"), "{what}: a colour of others: {text:?}");
    let plain = if is_colour { without_colours(text) } else { text.to_owned() };
    let hidden: Vec<char> = plain.chars().filter(|c| is_hidden(*c) && *c != '\n').collect();
    assert!(hidden.is_empty(), "{what}: {hidden:?} in {plain:?}");
    assert!(!plain.lines().any(|line| line.starts_with("FORGED")), "{what}: {plain}");
}

/// Prints a message in each format. JSON and YAML must be the same values as before.
fn check<R: PrintedMessage>(view: impl Fn(&R, Style) -> String) {
    for variant in 0..12 {
        let message: R = message(variant);
        for is_colour in [false, true] {
            let text = printed(Format::Table, is_colour, |output| output.one(&message, &view));
            judge(R::NAME, &text, is_colour);
        }
        let expected =
            serde_json::to_value(JsonMessage::new(&message).expect("a message")).expect("JSON");
        let json = printed(Format::Json, false, |output| output.one(&message, &view));
        judge(R::NAME, &json, false);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), expected);
        let yaml = printed(Format::Yaml, false, |output| output.one(&message, &view));
        judge(R::NAME, &yaml, false);
        // Two parsers: floats are the only values that differ in their form.
        assert_eq!(
            serde_yaml_ng::from_str::<serde_json::Value>(&yaml).expect("YAML"),
            expected,
            "{yaml}"
        );
        let line = printed(Format::Json, false, |output| output.event(&message, |_, _| None));
        judge(R::NAME, &line, false);
        assert_eq!(line.lines().count(), 1, "a document a line");
    }
}

/// The same of a view of lists, and of one of events.
fn check_list<R: PrintedMessage>(view: impl Fn(&[R], Style) -> String) {
    for variant in 0..12 {
        let all = [message::<R>(variant), message::<R>(variant + 1)];
        let text = printed(Format::Table, false, |output| output.many(&all, &view));
        judge(R::NAME, &text, false);
        let json = printed(Format::Json, false, |output| output.many(&all, &view));
        judge(R::NAME, &json, false);
    }
}

fn check_event<R: PrintedMessage>(view: impl Fn(&R, Style) -> Option<String>) {
    for variant in 0..12 {
        let message = message::<R>(variant);
        let text = printed(Format::Table, false, |output| output.event(&message, &view));
        judge(R::NAME, &text, false);
        assert!(text.lines().count() <= 1, "{}: {text}", R::NAME);
    }
    check::<R>(|message, style| view(message, style).unwrap_or_default());
}

#[test]
fn resources_show_no_controls() {
    check(views::dag);
    check(views::trial);
    check(views::tenant);
    check(views::nt_type);
    check(views::bitstream);
    check(views::region);
    check(views::operation);
    check(views::rule);
    check(vm_views::binding);
    check(vm_views::heartbeat);
    check(diagnosis::diagnosis);
    check(explain::explanation);
    check(consolidation::moves);
    check(consolidation::recommendations);
    check(|card: &v1::Card, style| views::card_map(card, &[], style));
    check(fleet_views::host);
    check(fleet_views::drain);
    check(fleet_views::rebalance);
    check(|fleet: &fleet::GetFleetResponse, style| fleet_views::status(fleet, None, style));
}

#[test]
fn lists_show_no_controls() {
    check_list(views::dags);
    check_list(views::dags_below_promise_first);
    check_list(views::tenants);
    check_list(views::nt_types);
    check_list(views::bitstreams);
    check_list(views::cards);
    check_list(views::regions);
    check_list(views::rules);
    check_list(views::operations);
    check_list(vm_views::bindings);
    check_list(audit::entries);
    check_list(fairness::tenants);
    check_list(fairness::tenant);
    check_list(fairness::events);
    check_list(fleet_views::hosts);
    check_list(fleet_views::projects);
}

#[test]
fn events_are_one_line_without_controls() {
    check_event(views::dag_event);
    check_event(views::region_event);
    check_event(vm_views::event);
    check_event(fairness::event_change);
    check_event(fleet_views::host_event);
    check_event(changes::tenant_event);
    check_event(changes::nt_type_event);
    check_event(changes::bitstream_event);
    check_event(changes::rule_event);
    check_event(changes::operation_event);
    check_event(changes::card_event);
}

/// Those without a view that every caller shares: their data.
#[test]
fn other_messages_show_no_controls_as_data() {
    fn check_data<R: PrintedMessage>() {
        check::<R>(|_, _| String::new());
    }
    check_data::<v1::Maintenance>();
    check_data::<v1::CheckAccessResponse>();
    check_data::<v1::BitstreamHeader>();
    check_data::<v1::PacketSighting>();
    check_data::<v1::WhoAmIResponse>();
    check_data::<v1::Event>();
    check_data::<v1::Fairness>();
    check_data::<v1::AuditEntry>();
    check_data::<fleet::Project>();
}

/// The lines of policy files are counted: they stay lines, of nothing but text.
#[test]
fn files_of_policies_keep_their_lines() {
    let file = "a = 1\nb = \"\x1b[2J\"\n".to_owned();
    let policies =
        fleet::Policies { files: [("x.toml".to_owned(), file)].into(), ..Default::default() };
    let shown = visible(&policies).expect("it matches");
    assert_eq!(shown.files["x.toml"], "a = 1\nb = \"\\u{1b}[2J\"\n");
}

#[test]
fn an_error_of_a_server_shows_no_controls() {
    let status = tonic::Status::not_found("no\x1b[2J \u{202e}\n  next:     rm -rf /");
    let failure = Failure::from(status);
    for is_colour in [false, true] {
        let text = failure.render(Format::Table, is_colour);
        judge("a failure", &text, is_colour);
        let next = text.lines().filter(|line| line.starts_with("  next:"));
        assert!(!next.collect::<String>().contains("rm -rf"), "{text}");
    }
    let json = failure.render(Format::Json, false);
    judge("a failure", &json, false);
    let parsed: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(parsed["error"]["message"], "no\x1b[2J \u{202e}\n  next:     rm -rf /");
    judge("a failure", &failure.render(Format::Yaml, false), false);
}

#[test]
fn a_file_with_controls_is_shown_without_them() {
    let text = "nodes: [a\u{202e}b, \x1b[31mred]\n";
    let problem = snic_dagfile::DagFileProblem::new(7..19, format!("unknown {text} \x1b[2J"));
    let file = snic_dagfile::InvalidFile::new("x\x1b.yaml", text, problem);
    let failure = Failure::File(Box::new(file));
    for is_colour in [false, true] {
        judge("a file", &failure.render(Format::Table, is_colour), is_colour);
    }
}

proptest! {
    #[test]
    fn only_our_colours_pass(text in "[\x1b\\[m0-9;aé\u{9b}\u{202e}\n]{0,30}") {
        let shown = guarded(&text, true);
        let plain = without_colours(&shown);
        prop_assert!(!plain.chars().any(|c| is_hidden(c) && c != '\n' && c != '\t'), "{:?}", shown);
        let shown = guarded(&text, false);
        prop_assert!(!shown.chars().any(|c| is_hidden(c) && c != '\n' && c != '\t'));
    }

    /// serde_yaml_ng judges its own text after the escapes.
    #[test]
    fn yaml_stays_the_same_value(texts in prop::collection::vec("[\x1b~\\\\x01\"'#: \u{85}\u{202e}\u{2028}\n\ta-c\u{e0041}-]{0,12}", 1..4)) {
        let data = serde_json::json!({ "a": texts, "b": { &texts[0]: 1 } });
        let text = yaml(&data).expect("YAML");
        prop_assert!(!text.chars().any(|c| is_hidden(c) && c != '\n'), "{:?}", text);
        let parsed: serde_json::Value = serde_yaml_ng::from_str(&text).expect("YAML");
        prop_assert_eq!(parsed, data, "{}", text);
    }
}

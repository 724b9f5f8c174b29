//! google.api's annotations: what comments say of a field, programs can read as well.

use prost_reflect::{
    DescriptorPool, DynamicMessage, ExtensionDescriptor, FieldDescriptor, MessageDescriptor, Value,
};
use snic_api::{FILE_DESCRIPTOR_SET, FLEET_DESCRIPTOR_SET};

const PACKAGES: [&str; 2] = ["snic.control.v1", "snic.fleet.v1"];

fn pool() -> DescriptorPool {
    let mut pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("descriptors");
    pool.decode_file_descriptor_set(FLEET_DESCRIPTOR_SET).expect("descriptors");
    pool
}

fn is_ours(message: &MessageDescriptor) -> bool {
    PACKAGES.contains(&message.package_name())
}

fn extension(pool: &DescriptorPool, name: &str) -> ExtensionDescriptor {
    pool.get_extension_by_name(name).unwrap_or_else(|| panic!("{name} is not imported"))
}

fn messages(pool: &DescriptorPool) -> Vec<MessageDescriptor> {
    pool.all_messages().filter(|m| is_ours(m) && !m.is_map_entry()).collect()
}

/// The behaviour of a field, by its names.
fn behaviour(field: &FieldDescriptor) -> Vec<String> {
    let extension = extension(field.parent_pool(), "google.api.field_behavior");
    let prost_reflect::Kind::Enum(names) = extension.kind() else { panic!("it is an enum") };
    let options = field.options();
    let values = options.get_extension(&extension);
    let name = |value: &Value| {
        let number = value.as_enum_number().expect("a number");
        names.get_value(number).expect("a value").name().to_owned()
    };
    values.as_list().expect("a list").iter().map(name).collect()
}

/// A text of an annotation that is a message; empty where it is not set.
fn text(options: &DynamicMessage, extension: &ExtensionDescriptor, field: &str) -> String {
    let value = options.get_extension(extension).into_owned();
    let message = value.as_message().expect("a message");
    message.get_field_by_name(field).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The type of a message that is a resource; empty for others.
fn resource_type(message: &MessageDescriptor) -> String {
    let extension = extension(message.parent_pool(), "google.api.resource");
    text(&message.options(), &extension, "type")
}

/// The comments of all fields, by `Message.field`, from the sources themselves.
fn comments() -> std::collections::BTreeMap<String, String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../proto");
    let mut comments = std::collections::BTreeMap::new();
    let mut compiler = protox::Compiler::new([&folder]).expect("the folder of the proto files");
    compiler.include_source_info(true);
    for package in PACKAGES.map(|package| package.replace('.', "/")) {
        for entry in std::fs::read_dir(folder.join(package)).expect("a folder") {
            compiler.open_file(entry.expect("an entry").path()).expect("it compiles");
        }
    }
    let pool = compiler.descriptor_pool();
    for field in messages(&pool).iter().flat_map(MessageDescriptor::fields) {
        let file = field.parent_file();
        let info = file.file_descriptor_proto().source_code_info.as_ref().expect("it is kept");
        let found = info.location.iter().find(|location| location.path == field.path());
        let comment = found.map(|location| location.leading_comments()).unwrap_or_default();
        let name = format!("{}.{}", field.parent_message().name(), field.name());
        comments.insert(name, comment.trim().replace("\n ", " "));
    }
    comments
}

/// The behaviour that a comment begins with.
fn said(comment: &str, is_identifier: bool) -> &'static [&'static str] {
    let begins = |words: &str| comment.starts_with(words);
    match () {
        () if is_identifier => &["IDENTIFIER"],
        () if begins("Immutable. Required.") => &["IMMUTABLE", "REQUIRED"],
        () if begins("Immutable. Optional.") => &["IMMUTABLE", "OPTIONAL"],
        () if begins("Required.") => &["REQUIRED"],
        () if begins("Output only.") => &["OUTPUT_ONLY"],
        // An etag is also sent: it guards a change.
        () if begins("Optional") || begins("Output only, and a guard") => &["OPTIONAL"],
        () => &[],
    }
}

#[test]
fn annotations_say_what_comments_say() {
    let (pool, comments) = (pool(), comments());
    let mut count = 0;
    for message in messages(&pool) {
        let is_resource = !resource_type(&message).is_empty();
        for field in message.fields() {
            let name = format!("{}.{}", message.name(), field.name());
            let expected = said(&comments[&name], is_resource && field.name() == "name");
            assert_eq!(behaviour(&field), expected, "{name}: {}", comments[&name]);
            count += usize::from(!expected.is_empty());
        }
    }
    assert!(count > 400, "{count} fields with a behaviour");
}

/// Every field that a caller may send has a behaviour, in messages within requests as well.
#[test]
fn every_field_of_a_request_has_a_behaviour() {
    // A stream's parts: which one comes when is said there.
    let exceptions = [
        "UploadBitstreamRequest.header",
        "UploadBitstreamRequest.chunk",
        "AnswerRequest.number",
        "AnswerRequest.data",
        "AnswerRequest.end",
    ];
    let pool = pool();
    let is_request = |message: &MessageDescriptor| message.name().ends_with("Request");
    let mut open: Vec<_> = messages(&pool).into_iter().filter(is_request).collect();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(message) = open.pop() {
        if !seen.insert(message.full_name().to_owned()) {
            continue;
        }
        for field in message.fields() {
            let name = format!("{}.{}", message.name(), field.name());
            let behaviour = behaviour(&field);
            let is_known = !behaviour.is_empty() || exceptions.contains(&name.as_str());
            assert!(is_known, "{name} has no google.api.field_behavior");
            let inner = field.kind().as_message().cloned();
            let inner = inner.filter(|m| is_ours(m) && !m.is_map_entry());
            open.extend(inner.filter(|_| !behaviour.iter().any(|one| one == "OUTPUT_ONLY")));
        }
    }
    assert!(seen.len() > 60, "{}", seen.len());
}

#[test]
fn resources_have_types_and_patterns() {
    let pool = pool();
    let resource = extension(&pool, "google.api.resource");
    let mut found = Vec::new();
    for message in messages(&pool) {
        let options = message.options();
        if !options.has_extension(&resource) {
            continue;
        }
        let value = options.get_extension(&resource).into_owned();
        let value = value.as_message().expect("a message");
        let patterns = value.get_field_by_name("pattern").expect("a field").into_owned();
        let pattern = patterns.as_list().expect("a list")[0].as_str().expect("a text").to_owned();
        assert_eq!(resource_type(&message), format!("snic/{}", message.name()));
        found.push((message.name().to_owned(), pattern));
    }
    found.sort();
    let expected = [
        ("Bitstream", "bitstreams/{bitstream}"),
        ("Card", "cards/{card}"),
        ("Dag", "tenants/{tenant}/dags/{dag}"),
        ("Host", "hosts/{host}"),
        ("NtType", "ntTypes/{nt_type}"),
        ("Operation", "operations/{operation}"),
        ("Project", "projects/{project}"),
        ("Region", "cards/{card}/regions/{region}"),
        ("Reservation", "tenants/{tenant}/reservations/{reservation}"),
        ("Rule", "classificationRules/{rule}"),
        ("Tenant", "tenants/{tenant}"),
        ("VmBinding", "vmBindings/{uuid}"),
    ];
    assert_eq!(found, expected.map(|(name, pattern)| (name.to_owned(), pattern.to_owned())));
}

/// A name in a comment is a reference for programs, to a type that there is.
#[test]
fn names_of_resources_are_references() {
    let (pool, comments) = (pool(), comments());
    let reference = extension(&pool, "google.api.resource_reference");
    let types: Vec<String> = messages(&pool).iter().map(resource_type).collect();
    let patterns = [
        "`tenants/{tenant}/dags/{dag}`",
        "`tenants/{tenant}`",
        "`cards/{card}/regions/{region}`",
        "`cards/{card}`",
        "`ntTypes/{id}`",
        "`bitstreams/{id}`",
        "`classificationRules/{rule}`",
        "`vmBindings/{uuid}`",
        "`operations/{id}`",
    ];
    let mut count = 0;
    for message in messages(&pool) {
        for field in message.fields() {
            let options = field.options();
            let [of, child] = ["type", "child_type"].map(|key| text(&options, &reference, key));
            let name = format!("{}.{}", message.name(), field.name());
            for named in [&of, &child].into_iter().filter(|named| !named.is_empty()) {
                // A star is a resource of any type.
                let is_known = types.contains(named) || named == "*";
                assert!(is_known, "{name} refers to {named}, which there is not");
            }
            let names = patterns.iter().any(|pattern| comments[&name].contains(pattern));
            let is_own = behaviour(&field) == ["IDENTIFIER"];
            let is_text = field.kind() == prost_reflect::Kind::String;
            if names && is_text && !is_own {
                assert!(!(of.is_empty() && child.is_empty()), "{name}: {}", comments[&name]);
                count += 1;
            }
        }
    }
    assert!(count > 80, "{count} references");
}

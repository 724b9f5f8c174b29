//! Rust from the facts about methods in the proto files: the tables of methods, what their requests are about, and
//! the replies that carry one thing. Each part of `build.rs` is written to a file of its own.

use std::fmt::Write as _;

use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ReflectMessage as _,
};

const FACTS: &str = "snic.control.v1.facts";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Rust module of a package's messages.
fn module(package: &str) -> &'static str {
    match package {
        "snic.control.v1" => "v1",
        _ => "fleet_v1",
    }
}

fn rust_type(message: &MessageDescriptor) -> String {
    format!("crate::{}::{}", module(message.package_name()), message.name())
}

/// Facts of one method, as its option has them.
struct Facts {
    method: MethodDescriptor,
    option: DynamicMessage,
}

impl Facts {
    fn of(pool: &DescriptorPool, method: MethodDescriptor) -> Result<Self> {
        let extension = pool.get_extension_by_name(FACTS).ok_or("method.proto is not imported")?;
        let options = method.options();
        if !options.has_extension(&extension) {
            return Err(format!("{} has no option ({FACTS})", method.full_name()).into());
        }
        let option = options.get_extension(&extension);
        let option = option.as_message().ok_or("facts are a message")?.clone();
        Ok(Self { method, option })
    }

    fn text(&self, field: &str) -> String {
        let value = self.option.get_field_by_name(field);
        value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    fn flag(&self, field: &str) -> bool {
        self.option.get_field_by_name(field).and_then(|value| value.as_bool()).unwrap_or(false)
    }

    /// The name of an enum's value without its prefix.
    fn word(&self, field: &str) -> Result<String> {
        let value = self.option.get_field_by_name(field);
        let number = value.and_then(|value| value.as_enum_number()).unwrap_or(0);
        let kind = self.option.descriptor().get_field_by_name(field).ok_or("no such fact")?.kind();
        let name = kind.as_enum().and_then(|of| of.get_value(number)).ok_or("no such value")?;
        let word = name.name().split_once('_').map_or("", |(_, word)| word);
        match word {
            "UNSPECIFIED" => Err(format!("{}: no {field}", self.method.full_name()).into()),
            word => Ok(word.to_owned()),
        }
    }

    fn path(&self) -> String {
        format!("/{}/{}", self.method.parent_service().full_name(), self.method.name())
    }

    fn row(&self) -> Result<String> {
        let access = match &*self.word("callers")? {
            "IDENTIFIED" => "Identified",
            "TENANTS" => "Anyone",
            "ORCHESTRATORS" => "Orchestrator",
            "OPERATORS" => "Operator",
            "HOSTS" => "Host",
            "REPLICAS" => "Replica",
            other => return Err(format!("callers {other}").into()),
        };
        let camel = |word: String| word[..1].to_owned() + &word[1..].to_lowercase();
        Ok(format!(
            "Row {{ path: {:?}, access: Access::{access}, span: Span::{}, effect: MethodEffect::{}, passed_on: {}, \
             of_host: {} }},\n",
            self.path(),
            camel(self.word("span")?),
            camel(self.word("effect")?),
            self.flag("passed_on"),
            self.flag("of_host"),
        ))
    }

    /// The expression of a field of the request, if it has it.
    fn field(&self, of: &str, name: &str, none: &str) -> String {
        let found = self.method.input().get_field_by_name(name);
        found.map_or_else(|| none.to_owned(), |_| format!("{of}.{name}"))
    }

    /// The resource that policies are asked about; `None` where code says it.
    fn described(&self) -> Result<Option<String>> {
        let callers = self.word("callers")?;
        if self.flag("resource_in_code") || matches!(&*callers, "HOSTS" | "REPLICAS") {
            return Ok(None);
        }
        let template = self.text("resource");
        let resource = match template.strip_suffix("/*") {
            Some(parent) => format!("AskedResource::Below({})", self.format("self", parent)?),
            None if !template.is_empty() => {
                format!("AskedResource::Named({})", self.format("self", &template)?)
            }
            None if callers == "IDENTIFIED" => "AskedResource::Nothing".to_owned(),
            None => "AskedResource::Everything".to_owned(),
        };
        let validate_only = self.field("self", "validate_only", "false");
        Ok(Some(format!(
            "impl DescribedRequest for {} {{\n    fn resource(&self) -> AskedResource {{ {resource} }}\n    fn \
             validate_only(&self) -> bool {{ {validate_only} }}\n}}\n",
            rust_type(&self.method.input()),
        )))
    }

    /// The arm that reads the subject of a request that changes something.
    fn subject(&self) -> Result<Option<String>> {
        if self.word("effect")? != "CHANGE" {
            return Ok(None);
        }
        let template = match self.text("subject") {
            text if text.is_empty() => self.text("resource"),
            text => text,
        };
        let request_id = match self.method.is_client_streaming() {
            true => self.format("of", "{header.request_id}")?,
            false => self.field("of", "request_id", "String::new()"),
        };
        let validate_only = self.field("of", "validate_only", "false");
        let service = self.method.parent_service();
        Ok(Some(format!(
            "\"{}/{}\" => {{\n    let of = <{} as prost::Message>::decode(message).ok()?;\n    let (resource, owner) = \
             ({}, {});\n    AuditedRequest {{ resource, owner, validate_only: {validate_only}, request_id: {request_id} \
             }}\n}}\n",
            service.name(),
            self.method.name(),
            rust_type(&self.method.input()),
            self.format("of", &template)?,
            self.format("of", &self.text("owner"))?,
        )))
    }

    /// A template as an expression of type `String`.
    fn format(&self, of: &str, template: &str) -> Result<String> {
        let (mut text, mut arguments, mut rest) = (String::new(), String::new(), template);
        while let Some((before, after)) = rest.split_once('{') {
            let (path, behind) = after.split_once('}').ok_or("a brace is not closed")?;
            let value = value(of, &self.method.input(), path)
                .map_err(|error| format!("{}: {error}", self.method.full_name()))?;
            text += before;
            text += "{}";
            write!(arguments, ", {value}")?;
            rest = behind;
        }
        text += rest;
        Ok(match (&*text, arguments.strip_prefix(", ")) {
            ("{}", Some(only)) => format!("{only}.to_string()"),
            (literal, None) => format!("{literal:?}.to_owned()"),
            _ => format!("format!({text:?}{arguments})"),
        })
    }
}

/// The expression of the text in a field, by its path from `of`, whose type is `message`. A message that is absent has
/// empty texts; a part of a `oneof` that is absent leaves the function.
fn value(of: &str, message: &MessageDescriptor, path: &str) -> Result<String> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let field = message.get_field_by_name(name);
    let field = field.ok_or_else(|| format!("{} has no field {name}", message.name()))?;
    let Some(rest) = rest else {
        return match field.kind() {
            Kind::String if !field.is_list() => Ok(format!("{of}.{name}")),
            _ => Err(format!("{name} is no text").into()),
        };
    };
    let kind = field.kind();
    let inner = kind.as_message().ok_or_else(|| format!("{name} is no message"))?;
    let value = value("part", inner, rest)?;
    if field.is_list() {
        return Ok(format!(
            "{of}.{name}.iter().map(|part| {value}.as_str()).collect::<Vec<_>>().join(\",\")"
        ));
    }
    match field.containing_oneof() {
        Some(oneof) => {
            let variant = variant(message, oneof.name(), &field);
            Ok(format!(
                "(match &{of}.{} {{ Some({variant}(part)) => {value}.as_str(), _ => return None }})",
                oneof.name()
            ))
        }
        None => Ok(format!("{of}.{name}.as_ref().map_or(\"\", |part| {value}.as_str())")),
    }
}

/// The variant of a generated enum.
fn variant(message: &MessageDescriptor, oneof: &str, field: &FieldDescriptor) -> String {
    let camel = |words: &str| {
        words.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect::<String>()
    };
    let mut snake = String::new();
    for letter in message.name().chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    format!(
        "crate::{}::{snake}::{}::{}",
        module(message.package_name()),
        camel(oneof),
        camel(field.name())
    )
}

/// The tables and requests of the packages' methods; `tables` are a package and the name of its table each.
pub fn methods(pool: &DescriptorPool, tables: &[(&str, &str)]) -> Result<String> {
    let (mut text, mut subjects, mut requests) = (String::new(), String::new(), String::new());
    for (package, table) in tables {
        let services = pool.services().filter(|of| of.package_name() == *package);
        let methods = services.flat_map(|of| of.methods().collect::<Vec<_>>());
        let mut facts =
            methods.map(|method| Facts::of(pool, method)).collect::<Result<Vec<_>>>()?;
        facts.sort_by_key(Facts::path);
        writeln!(
            text,
            "/// Methods of `{package}`, sorted by path.\npub const {table}: &[Row] = &["
        )?;
        for of in &facts {
            text += &of.row()?;
        }
        text += "];\n";
        for of in &facts {
            if let Some(described) = of.described()? {
                text += &described;
                let input = of.method.input();
                write!(requests, "$crate::{}::{}, ", module(package), input.name())?;
            }
            subjects += &of.subject()?.unwrap_or_default();
        }
    }
    write!(
        text,
        "/// Passes the types of all described requests to a macro.\n#[macro_export]\nmacro_rules! described_requests \
         {{\n    ($callback:ident) => {{ $callback! {{ {requests} }} }};\n}}\n\n/// The audit log's description of a request \
         to `Service/Method`; `None` where it cannot be read or changes nothing.\n#[allow(clippy::too_many_lines)]\npub fn audited(method: &str, message: \
         &[u8]) -> Option<AuditedRequest> {{\n    Some(match method {{\n{subjects}        _ => return None,\n    }})\n}}\n"
    )?;
    Ok(text)
}

/// The replies of a package that carry one thing, for the macro `replies`.
pub fn replies(pool: &DescriptorPool, package: &str) -> String {
    let mut text = "replies! {\n".to_owned();
    for reply in pool.all_messages() {
        let mut fields = reply.fields();
        let (Some(field), None) = (fields.next(), fields.next()) else { continue };
        let kind = field.kind();
        let item = kind.as_message().filter(|item| item.package_name() == package);
        let is_one = reply.package_name() == package && reply.name().ends_with("Response");
        if let (Some(item), true, false) = (item, is_one, field.is_list()) {
            text += &format!("    {}: {} => {};\n", field.name(), item.name(), reply.name());
        }
    }
    text + "}\n"
}

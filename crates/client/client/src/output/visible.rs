//! Text of others in what is printed: every path to a terminal goes through here.
//!
//! Strings of messages are escaped before a table is made of them, so that columns have their widths and a line break in a
//! string begins no line. What is written at last is checked once more, whatever it came from. JSON and YAML have escapes
//! of their own, so that a program reads the same text back.

use std::borrow::Cow;

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MapKey, ReflectMessage as _, Value,
};
use serde::Serialize;
use snic_api::text::{escaped, escaped_json, escaped_lines, is_hidden};

use super::message::{PrintedMessage, dynamic};
use crate::failure::Failure;

/// The only strings with several lines: the files of policies, which are counted by lines.
const FILES: &str = "snic.fleet.v1.Policies.files";

/// A message whose strings have no hidden characters, for people.
///
/// # Errors
/// [`Failure::Reply`] if it does not match its descriptor.
pub fn visible<R: PrintedMessage>(message: &R) -> Result<R, Failure> {
    let mut all = dynamic(message)?;
    escape_message(&mut all);
    all.transcode_to().map_err(|error| Failure::Reply(error.to_string()))
}

/// The same for a screen that goes on: a message that does not match its descriptor is empty.
pub fn shown<R: PrintedMessage>(message: R) -> R {
    visible(&message).unwrap_or_default()
}

fn escape_message(message: &mut DynamicMessage) {
    let pool = message.descriptor().parent_pool().clone();
    if message.descriptor().full_name() == "google.protobuf.Any" {
        return escape_any(message, &pool);
    }
    for (field, value) in message.fields_mut() {
        let keeps_lines = is_of(&field, FILES);
        escape_value(value, keeps_lines);
    }
}

fn is_of(field: &FieldDescriptor, name: &str) -> bool {
    field.full_name() == name
}

fn escape_value(value: &mut Value, keeps_lines: bool) {
    match value {
        Value::String(text) => {
            let shown = if keeps_lines { escaped_lines(text) } else { escaped(text) };
            if let Cow::Owned(shown) = shown {
                *text = shown;
            }
        }
        Value::Message(inner) => escape_message(inner),
        Value::List(all) => all.iter_mut().for_each(|value| escape_value(value, keeps_lines)),
        Value::Map(all) => {
            let escaped_key = |key: MapKey| match key {
                MapKey::String(text) => MapKey::String(escaped(&text).into_owned()),
                key => key,
            };
            *all = std::mem::take(all)
                .into_iter()
                .map(|(key, mut value)| {
                    escape_value(&mut value, keeps_lines);
                    (escaped_key(key), value)
                })
                .collect();
        }
        _ => {}
    }
}

/// A message inside another, such as the resource that an operation has made.
fn escape_any(any: &mut DynamicMessage, pool: &DescriptorPool) {
    let url = any.get_field_by_name("type_url");
    let name = url.as_deref().and_then(Value::as_str).and_then(|url| url.rsplit('/').next());
    let found = name.and_then(|name| pool.get_message_by_name(name));
    let bytes = any.get_field_by_name("value");
    let inner = found
        .zip(bytes)
        .and_then(|(found, bytes)| DynamicMessage::decode(found, bytes.as_bytes()?.clone()).ok());
    // One of an unknown type is not shown.
    if let Some(mut inner) = inner {
        escape_message(&mut inner);
        any.set_field_by_name("value", Value::Bytes(inner.encode_to_vec().into()));
    }
}

/// A text as it is written to a terminal: hidden characters but line breaks and tabs are escapes. Where colours are used,
/// the sequences that set them (`ESC [ … m`) stay.
pub fn guarded(text: &str, is_colour: bool) -> Cow<'_, str> {
    if !is_colour || !text.contains('\x1b') {
        return escaped_lines(text);
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, from) = rest.split_at(at);
        result += &escaped_lines(before);
        let length = colour_length(from).unwrap_or_default();
        result += &from[..length];
        rest = &from[length..];
        if length == 0 {
            result += &escaped("\x1b");
            rest = &from[1..];
        }
    }
    result += &escaped_lines(rest);
    Cow::Owned(result)
}

/// The length of the sequence that sets colours, if the text begins with one.
fn colour_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|sign: char| !sign.is_ascii_digit() && sign != ';')?;
    parameters[end..].starts_with('m').then_some("\x1b[".len() + end + 1)
}

/// JSON in one line or several, with hidden characters as `\uXXXX`.
///
/// # Errors
/// [`Failure::Reply`] if it cannot be written as JSON.
pub fn json(data: &impl Serialize, is_pretty: bool) -> Result<String, Failure> {
    let text =
        if is_pretty { serde_json::to_string_pretty(data) } else { serde_json::to_string(data) };
    let text = text.map_err(|error| Failure::Reply(error.to_string()))?;
    Ok(escaped_json(&text).into_owned())
}

/// YAML with hidden characters as `\uXXXX`.
///
/// # Errors
/// [`Failure::Reply`] if it cannot be written as YAML.
pub fn yaml(data: &impl Serialize) -> Result<String, Failure> {
    let failed = |error: serde_yaml_ng::Error| Failure::Reply(error.to_string());
    let plain = serde_yaml_ng::to_string(data).map_err(failed)?;
    let mut value = serde_yaml_ng::to_value(data).map_err(failed)?;
    // The writer decides which strings are quoted, and escapes are possible only in quotes. So each hidden character is
    // replaced by a mark that begins with a control, for which it quotes the string; then the marks by the escapes.
    let mut mark = "~".to_owned();
    while plain.contains(&mark) {
        mark.push('~');
    }
    if !mark_value(&mut value, &mark) {
        return Ok(plain);
    }
    let marked = serde_yaml_ng::to_string(&value).map_err(failed)?;
    let begin = format!("\\x01{mark}");
    let mut parts = marked.split(begin.as_str());
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once(mark.as_str()).unwrap_or((part, ""));
        text += &format!("\\U{number}{rest}");
    }
    Ok(text)
}

/// Replaces hidden characters of strings by marks. Returns whether there were any.
fn mark_value(value: &mut serde_yaml_ng::Value, mark: &str) -> bool {
    use serde_yaml_ng::Value as Yaml;
    match value {
        // Line breaks alone are shown as lines of a block.
        Yaml::String(text) if text.chars().any(|c| is_hidden(c) && c != '\n') => {
            let marked = |sign: char| match is_hidden(sign) {
                true => format!("\u{1}{mark}{:08X}{mark}", u32::from(sign)),
                false => sign.to_string(),
            };
            *text = text.chars().map(marked).collect();
            true
        }
        Yaml::Sequence(all) => {
            all.iter_mut().fold(false, |any, value| mark_value(value, mark) | any)
        }
        Yaml::Mapping(all) => {
            let mut any = false;
            *all = std::mem::take(all)
                .into_iter()
                .map(|(mut key, mut value)| {
                    any |= mark_value(&mut key, mark) | mark_value(&mut value, mark);
                    (key, value)
                })
                .collect();
            any
        }
        _ => false,
    }
}

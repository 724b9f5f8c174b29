//! Sizes of a DAG's packets in a file.

use std::ops::Range;

use snic_domain::{PacketSize, PacketSizes};

use super::problem::DagFileProblem;
use super::yaml::{Value, YamlKey, YamlNode};
use super::{keyed, missing, text};

/// The sizes of packets, checked.
pub(crate) fn packet_sizes(node: &YamlNode) -> Result<PacketSizes, DagFileProblem> {
    let sizes = given_sizes(node)?;
    sizes.check().map_err(|error| DagFileProblem::new(node.span.clone(), error.to_string()))?;
    Ok(sizes)
}

/// `imix`, one size, or a mix: a mapping from bytes to weights, or the API's list.
fn given_sizes(node: &YamlNode) -> Result<PacketSizes, DagFileProblem> {
    let number = |text: &str, span: &Range<usize>| {
        text.parse::<u32>().map_err(|_| {
            let problem =
                DagFileProblem::new(span.clone(), format!("{text:?} is not a whole number"));
            problem.help("write `imix`, the bytes of all packets, or `{64: 7, 594: 4, 1518: 1}`")
        })
    };
    let value = |node: &YamlNode| number(&text(node)?, &node.span);
    match &node.value {
        Value::Scalar(text) if text.eq_ignore_ascii_case("imix") => Ok(PacketSizes::imix()),
        Value::Scalar(text) => Ok(PacketSizes::only(number(text, &node.span)?)),
        Value::Map(entries) => {
            let size = |(key, weight): &(YamlKey, YamlNode)| {
                let bytes = number(&key.text, &key.span)?;
                Ok(PacketSize { bytes, weight: value(weight)? })
            };
            Ok(PacketSizes::new(entries.iter().map(size).collect::<Result<_, _>>()?))
        }
        Value::List(items) => {
            let size = |item: &YamlNode| {
                let [bytes, weight] = keyed(item, [&["bytes"], &["weight"]])?;
                let bytes = bytes.ok_or_else(|| missing(item, "bytes", "add the size in bytes"))?;
                let weight = weight.map_or(Ok(1), value)?;
                Ok(PacketSize { bytes: value(bytes)?, weight })
            };
            Ok(PacketSizes::new(items.iter().map(size).collect::<Result<_, _>>()?))
        }
    }
}

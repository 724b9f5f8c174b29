//! Enum values in one word: `READY` where the proto files say `STATE_READY`. Their names begin with
//! the enum's, because the values of all enums of a package share one space of names; people and
//! the reasons of errors need only the rest.

use crate::v1;

/// A value of an enum of this API.
pub trait EnumWord: Copy {
    /// Prefix of every value's name in the proto files.
    const PREFIX: &'static str;

    /// The value's name without the prefix.
    fn word(self) -> &'static str;

    /// The value of this word.
    fn from_word(word: &str) -> Option<Self>;
}

macro_rules! words {
    ($($prefix:literal $name:path;)+) => {
        $(impl EnumWord for $name {
            const PREFIX: &'static str = $prefix;

            fn word(self) -> &'static str {
                let name = self.as_str_name();
                name.strip_prefix(Self::PREFIX).unwrap_or(name)
            }

            fn from_word(word: &str) -> Option<Self> {
                Self::from_str_name(&[Self::PREFIX, word].concat())
            }
        })+

        /// Every enum with its prefix, as written below.
        #[cfg(test)]
        const LISTED: &[(&str, &str)] = &[$((stringify!($name), $prefix)),+];
    };
}

words! {
    "EMBEDDING_WAY_" v1::EmbeddingWay;
    "ERROR_REASON_" v1::ErrorReason;
    "EVENT_TYPE_" v1::EventType;
    "FORM_" v1::dag::Form;
    "HEALTH_" v1::card::Health;
    "KIND_" v1::event::Kind;
    "KIND_" v1::measured_part::Kind;
    "LEVEL_" v1::spending::Level;
    "LIMITER_" v1::fairness::Limiter;
    "MEMORY_KIND_" v1::MemoryKind;
    "ORDER_" v1::placement::Order;
    "PLACE_" v1::chain_state::Place;
    "PROCESSOR_KIND_" v1::ProcessorKind;
    "REGION_KIND_" v1::RegionKind;
    "RESOURCE_" v1::shortage::Resource;
    "SCHEME_" v1::fairness_policy::Scheme;
    "SEVERITY_" v1::event::Severity;
    "SIGNATURE_STATE_" v1::bitstream::SignatureState;
    "SIGNER_ROLE_" v1::bitstream::SignerRole;
    "SPARE_" v1::fairness_policy::Spare;
    "STATE_" v1::bitstream::State;
    "STATE_" v1::dag::State;
    "STATE_" v1::region::State;
    "STATE_" v1::vm_binding::State;
    "STATUS_" v1::condition::Status;
    "STEP_" v1::packet_sighting::Step;
    "TRAFFIC_" v1::nt_type::Traffic;
    "USAGE_GROUPING_" v1::UsageGrouping;
    "VERDICT_" v1::diagnosis::Verdict;
    "VERB_" v1::operation_metadata::Verb;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message as _;
    use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

    use super::*;

    /// `EventType` in `snake_case`.
    fn snake(name: &str) -> String {
        let mut snake = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.extend(letter.to_lowercase());
        }
        snake
    }

    /// The enums in a module of the generated code: the path of each, and the names of its values.
    fn collect(
        module: &str,
        enums: &[EnumDescriptorProto],
        messages: &[DescriptorProto],
        found: &mut BTreeMap<String, (String, Vec<String>)>,
    ) {
        for of in enums {
            let values = of.value.iter().map(|value| value.name().to_owned()).collect();
            found.insert(format!("{module}::{}", of.name()), (of.name().to_owned(), values));
        }
        for message in messages {
            let module = format!("{module}::{}", snake(message.name()));
            collect(&module, &message.enum_type, &message.nested_type, found);
        }
    }

    /// A wrong prefix would print the long name, and a missing enum would have no words.
    #[test]
    fn prefixes_are_those_of_the_proto_files() {
        let set = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).expect("a descriptor set");
        let mut found = BTreeMap::new();
        // Facts about methods are options, and no field of a message.
        let is_printed = |file: &&prost_types::FileDescriptorProto| {
            file.package() == "snic.control.v1" && !file.name().ends_with("/method.proto")
        };
        for file in set.file.iter().filter(is_printed) {
            collect("v1", &file.enum_type, &file.message_type, &mut found);
        }
        let listed: BTreeMap<String, &str> =
            LISTED.iter().map(|(path, prefix)| (path.replace(' ', ""), *prefix)).collect();
        let known: Vec<&String> = found.keys().collect();
        assert_eq!(listed.keys().collect::<Vec<_>>(), known);
        for (path, (name, values)) in &found {
            assert_eq!(listed[path], format!("{}_", snake(name).to_uppercase()), "{path}");
            for value in values {
                assert!(value.starts_with(listed[path]), "{value} of {path}");
            }
        }
        assert_eq!(v1::dag::State::Ready.word(), "READY");
    }
}

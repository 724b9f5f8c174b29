//! Enum values in one word: `READY` where the proto files say `STATE_READY`. Their names begin with
//! the enum's, because the values of all enums of a package share one space of names; people and
//! the reasons of errors need only the rest.

use crate::v1;

/// A value of an enum of this API.
pub trait EnumWord: Copy {
    /// What every value's name begins with in the proto files.
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
    };
}

words! {
    "EMBEDDING_WAY_" v1::EmbeddingWay;
    "ERROR_REASON_" v1::ErrorReason;
    "EVENT_TYPE_" v1::EventType;
    "FORM_" v1::dag::Form;
    "HEALTH_" v1::card::Health;
    "KIND_" v1::event::Kind;
    "LIMITER_" v1::fairness::Limiter;
    "PLACE_" v1::chain_state::Place;
    "REGION_KIND_" v1::RegionKind;
    "RESOURCE_" v1::shortage::Resource;
    "SCHEME_" v1::fairness_policy::Scheme;
    "SIGNATURE_STATE_" v1::bitstream::SignatureState;
    "SPARE_" v1::fairness_policy::Spare;
    "STATE_" v1::dag::State;
    "STATE_" v1::region::State;
    "STATE_" v1::vm_binding::State;
    "STATUS_" v1::condition::Status;
    "STEP_" v1::packet_sighting::Step;
    "TRAFFIC_" v1::nt_type::Traffic;
    "VERB_" v1::operation_metadata::Verb;
}

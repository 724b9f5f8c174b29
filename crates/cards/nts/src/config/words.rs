//! Configurations as words, for NTs in hardware, which take them by a register window and read no JSON.
//!
//! The form follows from the type's schema alone, so an NT's RTL can be written from the table of its fields:
//!
//! ```text
//!  document   version of the schema, then an object
//!  object     a word for each 32 fields begun, bit i for field i: 1 where it is there; then those fields, in the schema's order
//!  flag       0 or 1
//!  integer    the number, lowest word first; two words where the field allows more than 2^32 - 1
//!  choice     place of the word in the schema's list
//!  address    4 or 6, then four words as in the packet's header, IPv4 in the first
//!  prefix     4 or 6 with the length << 8, then its address
//!  mac        the first two bytes, then the last four
//!  ports      first << 16 | last
//!  non-IP     1 where ARP passes, with the number of EtherTypes << 8, then each of them
//!  secret     number of bytes, then the bytes, four a word, the first one lowest, zeros behind them
//!  list       number of entries, then each
//! ```

use std::net::IpAddr;

use serde_json::Value;

use super::schema::{Field, Kind};
use super::{Configuration, InvalidConfiguration, IpPrefix, Mac, NonIp, PortRange, Secret};

/// Fields that one word of an object tells about.
const FIELDS_A_WORD: usize = u32::BITS as usize;

impl Configuration {
    /// The words that an NT in hardware takes.
    ///
    /// # Errors
    /// None for a document that its schema accepted.
    pub(crate) fn words(&self) -> Result<Vec<u32>, InvalidConfiguration> {
        let mut words = vec![u32::from(self.schema.version)];
        put_object(self.schema.fields, &self.document, &mut words).ok_or_else(|| {
            InvalidConfiguration::field(self.schema.nt_type, "the document", "what its schema says")
        })?;
        Ok(words)
    }
}

fn put_object(fields: &[Field], value: &Value, words: &mut Vec<u32>) -> Option<()> {
    let object = value.as_object()?;
    words.extend(fields.chunks(FIELDS_A_WORD).map(|fields| {
        let there = (0..).zip(fields).filter(|(_, field)| object.contains_key(field.name));
        there.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }));
    for field in fields {
        if let Some(value) = object.get(field.name) {
            put(&field.kind, value, words)?;
        }
    }
    Some(())
}

fn put(kind: &Kind, value: &Value, words: &mut Vec<u32>) -> Option<()> {
    match kind {
        Kind::Flag => words.push(value.as_bool()?.into()),
        Kind::Integer { max, .. } => {
            let number = value.as_u64()?;
            words.push(number as u32);
            words.extend((*max > u32::MAX.into()).then_some((number >> u32::BITS) as u32));
        }
        Kind::Choice(all) => words.push(count(all.iter().position(|one| *value == **one)?)),
        Kind::Address => {
            let address: IpAddr = text(value)?;
            words.push(family(address));
            words.extend(address_words(address));
        }
        Kind::Prefix => {
            let prefix: IpPrefix = text(value)?;
            words.push(family(prefix.address()) | u32::from(prefix.length()) << 8);
            words.extend(address_words(prefix.address()));
        }
        Kind::Mac => {
            let Mac([a, b, c, d, e, g]) = text(value)?;
            words.extend([u32::from_be_bytes([0, 0, a, b]), u32::from_be_bytes([c, d, e, g])]);
        }
        Kind::Ports => {
            let PortRange { first, last } = text(value)?;
            words.push(u32::from(first) << 16 | u32::from(last));
        }
        Kind::NonIp => {
            let (arp, ether_types) = serde_json::from_value::<NonIp>(value.clone()).ok()?.parts();
            words.push(u32::from(arp) | count(ether_types.len()) << 8);
            words.extend(ether_types);
        }
        Kind::Secret { .. } => {
            let secret: Secret = text(value)?;
            words.push(count(secret.expose().len()));
            words.extend(secret.expose().chunks(4).map(padded));
        }
        Kind::Object(fields) => put_object(fields, value, words)?,
        Kind::Objects { fields, .. } => {
            put_list(value, words, |entry, words| put_object(fields, entry, words))?;
        }
        Kind::List { of, .. } => put_list(value, words, |entry, words| put(of, entry, words))?,
    }
    Some(())
}

fn put_list(
    value: &Value,
    words: &mut Vec<u32>,
    put: impl Fn(&Value, &mut Vec<u32>) -> Option<()>,
) -> Option<()> {
    let entries = value.as_array()?;
    words.push(count(entries.len()));
    entries.iter().try_for_each(|entry| put(entry, words))
}

fn text<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str()?.parse().ok()
}

/// Lengths of lists and texts are limited by the length of a document (64 KiB).
fn count(length: usize) -> u32 {
    length as u32
}

const fn family(address: IpAddr) -> u32 {
    if address.is_ipv4() { 4 } else { 6 }
}

fn address_words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [address.to_bits(), 0, 0, 0],
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    }
}

/// At most four bytes, the first one lowest.
fn padded(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;
    use crate::catalogue::{self, NT_TYPES};

    /// A reader of words without the document: the schema says what comes next.
    struct Reader<'a>(std::slice::Iter<'a, u32>);

    impl Reader<'_> {
        fn next(&mut self) -> u32 {
            *self.0.next().expect("a further word")
        }

        fn object(&mut self, fields: &[Field]) -> Value {
            let there: Vec<u32> = fields.chunks(32).map(|_| self.next()).collect();
            let mut object = Map::new();
            for (at, field) in fields.iter().enumerate() {
                if there[at / 32] >> (at % 32) & 1 == 1 {
                    object.insert(field.name.to_owned(), self.value(&field.kind));
                }
            }
            Value::Object(object)
        }

        fn address(&mut self, family: u32) -> IpAddr {
            let words: [u32; 4] = std::array::from_fn(|_| self.next());
            match family {
                4 => Ipv4Addr::from_bits(words[0]).into(),
                6 => {
                    let bits = words.iter().fold(0, |bits, &word| bits << 32 | u128::from(word));
                    Ipv6Addr::from_bits(bits).into()
                }
                other => panic!("family {other}"),
            }
        }

        fn list(&mut self, of: impl Fn(&mut Self) -> Value) -> Value {
            (0..self.next()).map(|_| of(self)).collect()
        }

        fn value(&mut self, kind: &Kind) -> Value {
            match kind {
                Kind::Flag => (self.next() == 1).into(),
                Kind::Integer { max, .. } => {
                    let low = u64::from(self.next());
                    let high = if *max >> 32 > 0 { u64::from(self.next()) } else { 0 };
                    (high << 32 | low).into()
                }
                Kind::Choice(words) => words[self.next() as usize].into(),
                Kind::Address => {
                    let family = self.next();
                    self.address(family).to_string().into()
                }
                Kind::Prefix => {
                    let word = self.next();
                    format!("{}/{}", self.address(word & 0xff), word >> 8).into()
                }
                Kind::Mac => {
                    let [_, _, a, b] = self.next().to_be_bytes();
                    let [c, d, e, g] = self.next().to_be_bytes();
                    Mac([a, b, c, d, e, g]).to_string().into()
                }
                Kind::Ports => {
                    let word = self.next();
                    let ports = PortRange { first: (word >> 16) as u16, last: word as u16 };
                    ports.to_string().into()
                }
                Kind::NonIp => {
                    let word = self.next();
                    let arp = (word & 1 == 1).then(|| "arp".to_owned());
                    let named = (0..word >> 8).map(|_| format!("0x{:04x}", self.next()));
                    arp.into_iter().chain(named).collect()
                }
                Kind::Secret { .. } => {
                    let length = self.next() as usize;
                    let words = (0..length.div_ceil(4)).flat_map(|_| self.next().to_le_bytes());
                    let bytes: Vec<u8> = words.collect();
                    assert!(bytes[length..].iter().all(|byte| *byte == 0));
                    let digits = bytes[..length].iter().map(|byte| format!("{byte:02x}"));
                    digits.collect::<String>().into()
                }
                Kind::Object(fields) => self.object(fields),
                Kind::Objects { fields, .. } => self.list(|reader| reader.object(fields)),
                Kind::List { of, .. } => self.list(|reader| reader.value(of)),
            }
        }
    }

    /// A document in the form that a reader gives back.
    fn document(fields: &'static [Field]) -> BoxedStrategy<Value> {
        let fields = fields.iter().map(|field| {
            let value = value(&field.kind);
            let there = if field.optional { any::<bool>().boxed() } else { Just(true).boxed() };
            (Just(field.name), there, value)
        });
        let fields: Vec<_> = fields.collect();
        let object = fields.prop_map(|fields| {
            let there = fields.into_iter().filter(|(_, there, _)| *there);
            Value::Object(there.map(|(name, _, value)| (name.to_owned(), value)).collect())
        });
        object.boxed()
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<Ipv4Addr>().prop_map(IpAddr::from),
            any::<Ipv6Addr>().prop_map(IpAddr::from)
        ]
    }

    fn value(kind: &'static Kind) -> BoxedStrategy<Value> {
        match kind {
            Kind::Flag => any::<bool>().prop_map(Value::from).boxed(),
            Kind::Integer { min, max } => (*min..=*max).prop_map(Value::from).boxed(),
            Kind::Choice(words) => proptest::sample::select(*words).prop_map(Value::from).boxed(),
            Kind::Address => address().prop_map(|address| address.to_string().into()).boxed(),
            Kind::Prefix => prop_oneof![
                (any::<u32>(), 0_u8..=32).prop_map(|(bits, length)| {
                    let bits = bits & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                    format!("{}/{length}", Ipv4Addr::from_bits(bits)).into()
                }),
                (any::<u128>(), 0_u8..=128).prop_map(|(bits, length)| {
                    let bits = bits & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                    format!("{}/{length}", Ipv6Addr::from_bits(bits)).into()
                }),
            ]
            .boxed(),
            Kind::Mac => any::<[u8; 6]>()
                .prop_map(|mut bytes| {
                    bytes[0] = bytes[0] & 0xfe | 2;
                    Mac(bytes).to_string().into()
                })
                .boxed(),
            Kind::Ports => any::<(u16, u16)>()
                .prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) }.to_string().into())
                .boxed(),
            Kind::NonIp => (any::<bool>(), proptest::collection::vec(0x8900_u16..0x9000, 0..4))
                .prop_map(|(arp, types)| {
                    let arp = arp.then(|| "arp".to_owned());
                    let types = types.into_iter().map(|number| format!("0x{number:04x}"));
                    arp.into_iter().chain(types).collect()
                })
                .boxed(),
            Kind::Secret { lengths } => proptest::sample::select(*lengths)
                .prop_flat_map(|length| proptest::collection::vec(any::<u8>(), length))
                .prop_map(|bytes| {
                    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
                })
                .boxed(),
            Kind::Object(fields) => document(fields),
            Kind::Objects { max, fields } => {
                proptest::collection::vec(document(fields), 0..=(*max).min(3))
                    .prop_map(Value::from)
                    .boxed()
            }
            Kind::List { max, of } => proptest::collection::vec(value(of), 0..=(*max).min(3))
                .prop_map(Value::from)
                .boxed(),
        }
    }

    fn any_document() -> impl Strategy<Value = (&'static str, Value)> {
        proptest::sample::select(&NT_TYPES[..]).prop_flat_map(|nt_type| {
            let schema = catalogue::schema(nt_type).unwrap();
            document(schema.fields).prop_map(move |document| (nt_type, document))
        })
    }

    proptest! {
        /// Nothing of a document is lost on its way to the card, whatever its type.
        #[test]
        fn a_reader_of_the_words_knows_the_document((nt_type, document) in any_document()) {
            let schema = catalogue::schema(nt_type).unwrap();
            let bytes = document.to_string();
            let words = schema.check(schema.version, bytes.as_bytes()).unwrap().words().unwrap();
            let mut reader = Reader(words.iter());
            prop_assert_eq!(reader.next(), u32::from(schema.version));
            prop_assert_eq!(reader.object(schema.fields), document);
            prop_assert_eq!(reader.0.len(), 0);
        }
    }

    #[test]
    fn a_firewall_written_out() {
        let rule = json!({
            "action": "accept", "source": "10.0.0.0/8", "protocol": "tcp", "destination_ports": "80-443",
        });
        let document = json!({ "rules": [rule], "default": "drop" }).to_string();
        let words = catalogue::configuration_words("firewall", &document).unwrap().unwrap();
        let prefix = [8 << 8 | 4, 10 << 24, 0, 0, 0];
        let rule = [[0b10_0111, 0, 0].as_slice(), &prefix, &[80 << 16 | 443]].concat();
        // Version, the fields `rules` and `default`, one rule, and what happens where it does not match.
        assert_eq!(words, [[1, 0b11, 1].as_slice(), &rule, &[1]].concat());
    }

    #[test]
    fn what_a_type_does_not_take_has_no_words() {
        assert!(catalogue::configuration_words("firewall", r#"{"rules":7}"#).unwrap().is_err());
        assert!(catalogue::configuration_words("firewall", "{").unwrap().is_err());
        assert_eq!(catalogue::configuration_words("of-a-tenant", "{}"), None);
    }
}

//! An operator's price file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use snic_domain::NtTypeId;

use crate::calendar::utc;
use crate::decimal::{Decimal, Money};
use crate::meter::{Meter, UsageAmounts};

/// Name of the file in a folder of policies.
pub const PRICES_FILE: &str = "prices.toml";

/// Seconds that the beginning of a version is a multiple of.
const HOUR: u64 = 3_600;

/// A meter that can have a price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PricedMeter {
    /// Its key in the price file.
    pub key: Cow<'static, str>,
    /// Its name for people.
    pub name: Cow<'static, str>,
    /// The unit of quantities and prices, in the spelling of FOCUS 1.2, 'Unit Format'.
    pub unit: &'static str,
    /// Digits behind the point of a quantity: one unit is 10 to this power of what is counted.
    scale: u32,
    /// Part of usage that is counted.
    pub count: PricedCount,
}

/// Part of usage that is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PricedCount {
    /// A meter, of all NT types.
    Meter(Meter),
    /// Time of the instances of an NT type.
    Nt(NtTypeId),
}

impl PricedCount {
    /// Amount of it in usage of an account that counts these NT types by themselves.
    fn of(&self, amounts: &UsageAmounts, nts: &[NtTypeId]) -> u64 {
        match self {
            Self::Meter(meter) => amounts.get(*meter),
            Self::Nt(nt) => (0..)
                .zip(nts)
                .find(|(_, own)| *own == nt)
                .map_or(0, |(at, _)| amounts.get(Meter::Nt(at))),
        }
    }
}

impl PricedMeter {
    /// Quantity of so much of what is counted.
    pub fn quantity(&self, count: u64) -> Decimal {
        Decimal::new(count, self.scale)
    }

    /// Time of the instances of one NT type.
    ///
    /// # Errors
    /// This is no id of an NT type.
    fn of_nt(id: &str) -> Result<Self, String> {
        let nt = NtTypeId::new(id).map_err(|error| format!("{id:?} is no NT type: {error}"))?;
        Ok(Self {
            key: format!("nt_seconds/{id}").into(),
            name: format!("Instances of {id}").into(),
            unit: "Instance-Seconds",
            scale: 3,
            count: PricedCount::Nt(nt),
        })
    }
}

macro_rules! meter {
    ($key:literal, $name:literal, $unit:literal, $scale:literal, $meter:ident) => {
        PricedMeter {
            key: Cow::Borrowed($key),
            name: Cow::Borrowed($name),
            unit: $unit,
            scale: $scale,
            count: PricedCount::Meter(Meter::$meter),
        }
    };
}

/// All meters that can have a price, but those of NT types.
const METERS: [PricedMeter; 15] = [
    meter!("dag_seconds", "Time on a card", "DAG-Seconds", 3, Life),
    meter!("promised_gigabits", "Guaranteed bandwidth", "Gb", 6, Promised),
    meter!("region_seconds", "Regions", "Region-Seconds", 3, Regions),
    meter!("gigabytes_in", "Bytes in", "GB", 9, BytesIn),
    meter!("gigabytes_served", "Bytes served", "GB", 9, BytesServed),
    meter!("million_packets_in", "Packets in", "1000000 Packets", 6, PacketsIn),
    meter!("million_packets_served", "Packets served", "1000000 Packets", 6, PacketsServed),
    meter!("gigabytes_beyond_promise", "Bytes served beyond the promise", "GB", 9, BytesBeyond),
    meter!(
        "million_packets_beyond_promise",
        "Packets served beyond the promise",
        "1000000 Packets",
        6,
        PacketsBeyond
    ),
    meter!("card_seconds", "Area of a card", "Card-Seconds", 6, Area),
    meter!("memory_mebibyte_seconds", "On-board memory", "MiB-Seconds", 3, Memory),
    meter!("loads", "Loads of regions", "Loads", 0, Loads),
    meter!("function_seconds", "Functions of machines", "Function-Seconds", 3, Functions),
    meter!("thousand_api_calls", "Calls of the API", "1000 Calls", 3, ApiCalls),
    meter!("stored_gigabyte_seconds", "Bitstreams stored", "GB-Seconds", 9, Stored),
];

/// Prices that are in force from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceVersion {
    /// Name, which each charge has.
    pub name: String,
    /// Seconds since 1970.
    from: u64,
    prices: Vec<(PricedMeter, Decimal)>,
}

impl PriceVersion {
    /// The meters that have a price, with it.
    pub fn prices(&self) -> &[(PricedMeter, Decimal)] {
        &self.prices
    }

    /// Second from which on it is in force, since 1970.
    pub const fn from(&self) -> u64 {
        self.from
    }

    /// Cost of usage of an account that counts these NT types by themselves: the sum of what is charged for each meter.
    pub fn cost(&self, amounts: &UsageAmounts, nts: &[NtTypeId]) -> Money {
        self.cost_by(|count| count.of(amounts, nts))
    }

    /// Cost of so much of each meter that has a price.
    pub fn cost_by(&self, count: impl Fn(&PricedCount) -> u64) -> Money {
        let mut sum = Money::default();
        for (meter, price) in &self.prices {
            sum += meter.quantity(count(&meter.count)).times(*price).into();
        }
        sum
    }
}

/// The prices of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    /// ISO 4217 code.
    pub currency: String,
    /// Name of the seller.
    pub provider: String,
    /// Versions in the order of their time.
    versions: Vec<PriceVersion>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    currency: String,
    provider: String,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version {
    name: String,
    from: toml::value::Datetime,
    prices: BTreeMap<String, String>,
    /// Prices of NT types, by id.
    #[serde(default)]
    nt_seconds: BTreeMap<String, String>,
}

impl Prices {
    /// Reads a price file.
    ///
    /// # Errors
    /// It is no TOML, a key or value is not allowed, or two versions begin at the same time or have one name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let File { currency, provider, versions } =
            toml::from_str(text).map_err(|error| error.to_string())?;
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(format!(
                "currency is {currency:?}; write its ISO 4217 code, such as \"EUR\""
            ));
        }
        if provider.trim().is_empty() {
            return Err("provider is empty; write the name that bills show".to_owned());
        }
        let mut versions: Vec<PriceVersion> =
            versions.into_iter().map(Version::checked).collect::<Result<_, _>>()?;
        versions.sort_by_key(|version| version.from);
        if versions.is_empty() {
            return Err("there is no [[versions]] with prices; add one".to_owned());
        }
        let is_twice = |pair: &[PriceVersion]| pair[0].from == pair[1].from;
        if let Some(pair) = versions.windows(2).find(|pair| is_twice(pair)) {
            let [one, other] = [&pair[0].name, &pair[1].name];
            return Err(format!("versions {one:?} and {other:?} begin at the same time; keep one"));
        }
        let mut names: Vec<&str> = versions.iter().map(|version| &*version.name).collect();
        names.sort_unstable();
        if let Some(name) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two versions are named {:?}; charges name them", name[0]));
        }
        Ok(Self { currency, provider, versions })
    }

    /// The version in force at a time, in seconds since 1970.
    ///
    /// # Errors
    /// All versions begin later.
    pub fn at(&self, second: u64) -> Result<&PriceVersion, String> {
        let before = |version: &&PriceVersion| version.from <= second;
        self.versions.iter().rev().find(before).ok_or_else(|| {
            let first = &self.versions[0];
            let (first, from) = (&first.name, utc(first.from));
            format!("there are no prices for {}: the first version, {first:?}, begins at {from}; add one that begins earlier, or export from then on", utc(second))
        })
    }

    /// The versions, in the order of their time.
    pub fn versions(&self) -> &[PriceVersion] {
        &self.versions
    }

    /// Checks that there are prices for a time, and that each step has one version.
    ///
    /// # Errors
    /// All versions begin later, or one begins within a step.
    pub fn check(&self, (from, to): (u64, u64), step: u64) -> Result<(), String> {
        self.at(from)?;
        let is_within = |version: &&PriceVersion| {
            (from..to).contains(&version.from) && !version.from.is_multiple_of(step)
        };
        match self.versions.iter().find(is_within) {
            None => Ok(()),
            Some(version) => Err(format!(
                "version {:?} begins at {}, within a step; export with --step 1h",
                version.name,
                utc(version.from)
            )),
        }
    }
}

impl Version {
    fn checked(self) -> Result<PriceVersion, String> {
        let Self { name, from, prices, nt_seconds } = self;
        let wrong = |what: &str| {
            Err(format!(
                "version {name:?}: from is {from}; write {what} in UTC, such as 2026-11-01T00:00:00Z"
            ))
        };
        let at = humantime::parse_rfc3339(&from.to_string()).ok();
        let second = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let Some(second) = second else { return wrong("a time") };
        if second.subsec_nanos() != 0 || !second.as_secs().is_multiple_of(HOUR) {
            return wrong("the beginning of an hour");
        }
        let unknown = prices.keys().find(|key| METERS.iter().all(|meter| meter.key != **key));
        if let Some(key) = unknown {
            let known = METERS.map(|meter| meter.key);
            return Err(format!(
                "version {name:?}: no meter is named {key:?}; there are {}",
                known.join(", ")
            ));
        }
        let mut priced = Vec::new();
        for meter in METERS {
            if let Some(text) = prices.get(&*meter.key) {
                priced.push((meter, text));
            }
        }
        for (id, text) in &nt_seconds {
            let meter = PricedMeter::of_nt(id);
            priced.push((meter.map_err(|error| format!("version {name:?}: {error}"))?, text));
        }
        let priced = priced.into_iter().map(|(meter, text)| match Decimal::price(text) {
            Ok(price) => Ok((meter, price)),
            Err(error) => Err(format!("version {name:?}, {}: {error}", meter.key)),
        });
        let prices = priced.collect::<Result<_, _>>()?;
        Ok(PriceVersion { from: second.as_secs(), prices, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        currency = "EUR"
        provider = "Example"
        [[versions]]
        name = "b"
        from = 2026-11-15T06:00:00Z
        prices = { gigabytes_served = "0.02" }
        [[versions]]
        name = "a"
        from = 2026-11-01T00:00:00Z
        prices = { gigabytes_served = "0.01", dag_seconds = "0.000005" }
    "#;
    /// 2026-11-01T00:00:00Z
    const NOVEMBER: u64 = 1_793_491_200;

    #[test]
    fn what_ships_has_a_price_of_0_for_each_meter() {
        let text = include_str!("../../../../policies/prices.toml");
        let prices = Prices::parse(text).expect("it is valid");
        let shipped = prices.at(NOVEMBER).expect("a version");
        assert_eq!(shipped.prices().len(), METERS.len());
        assert!(shipped.prices().iter().all(|(_, price)| price.is_zero()));
    }

    #[test]
    fn a_version_is_in_force_until_the_next_begins() {
        let prices = Prices::parse(GOOD).expect("it is valid");
        let at = |second| prices.at(second).map(|version| version.name.as_str());
        let later = NOVEMBER + 14 * 86_400 + 6 * 3_600;
        assert_eq!(at(NOVEMBER), Ok("a"));
        assert_eq!(at(later - 1), Ok("a"));
        assert_eq!(at(later), Ok("b"));
        let before = at(NOVEMBER - 1).expect_err("no version");
        assert!(before.contains("2026-10-31T23:59:59Z"), "{before}");
        let check = |to, step| prices.check((NOVEMBER, to), step);
        assert_eq!(check(NOVEMBER + 14 * 86_400, 86_400), Ok(()));
        assert_eq!(check(NOVEMBER + 15 * 86_400, 3_600), Ok(()));
        assert!(check(NOVEMBER + 15 * 86_400, 86_400).expect_err("within a day").contains("\"b\""));
    }

    #[test]
    fn a_wrong_file_is_refused_with_what_is_wrong() {
        let cases = [
            ("\"EUR\"", "\"euro\"", "ISO 4217"),
            ("\"Example\"", "\" \"", "provider is empty"),
            ("provider =", "seller =", "unknown field `seller`"),
            ("name = \"b\"", "name = \"a\"", "two versions are named \"a\""),
            ("2026-11-15T06:00:00Z", "2026-11-01T00:00:00Z", "begin at the same time"),
            ("2026-11-15T06:00:00Z", "2026-11-15T06:30:00Z", "the beginning of an hour"),
            ("2026-11-15T06:00:00Z", "2026-11-15T06:00:00+01:00", "in UTC"),
            ("2026-11-15T06:00:00Z", "2026-11-15", "in UTC"),
            ("gigabytes_served = \"0.02\"", "gigabytes = \"1\"", "there are dag_seconds, "),
            ("\"0.02\"", "\"-0.02\"", "\"-0.02\" is no price"),
            ("\"0.02\" }", "\"0.02\" }\nnt_seconds = { nat = \"free\" }", "nt_seconds/nat: "),
            ("\"0.02\" }", "\"0.02\" }\nnt_seconds = { \"a/b\" = \"1\" }", "is no NT type"),
        ];
        for (good, wrong, says) in cases {
            let text = GOOD.replacen(good, wrong, 1);
            let error = Prices::parse(&text).expect_err("it is wrong");
            assert!(error.contains(says), "{error}");
        }
    }

    /// The sums are computed by hand: 2 s on the card, 3 GB served, and 5 instance-seconds of the NT that the account has at its second place.
    #[test]
    fn the_cost_is_the_sum_of_the_products() {
        let text = GOOD.replacen("\"0.02\" }", "\"0.02\" }\nnt_seconds = { nat = \"0.5\" }", 1);
        let prices = Prices::parse(&text).expect("it is valid");
        let mut amounts = UsageAmounts::default();
        amounts.add(Meter::Life, 2_000);
        amounts.add(Meter::BytesServed, 3_000_000_000);
        amounts.add(Meter::Nt(1), 5_000);
        let nts = ["firewall", "nat"].map(|id| NtTypeId::new(id).expect("an id"));
        let cost = |second| prices.at(second).expect("a version").cost(&amounts, &nts).to_string();
        assert_eq!(cost(NOVEMBER), "0.03001");
        assert_eq!(cost(NOVEMBER + 20 * 86_400), "2.56");
        let other = prices.at(NOVEMBER + 20 * 86_400).expect("a version").cost(&amounts, &nts[..1]);
        assert_eq!(other.to_string(), "0.06", "the types beyond those have no price");
    }
}

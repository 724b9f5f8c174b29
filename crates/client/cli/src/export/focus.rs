//! Charges as rows of FOCUS 1.2, FinOps' open billing format: a row for each priced meter of each DAG in each step.
//!
//! Columns are those that the specification asks for, and those of commitment discounts, which are empty: readers of
//! version 1.0 look for them. Null is an empty field. Costs are quantity × price to the last digit.

use snic_api::usage::priced_count;
use snic_api::v1::UsageEntry;
use snic_usage::{Decimal, PriceVersion, PricedMeter, Prices};

use super::period::{Charged, month, time};
use super::values;

/// One charge.
pub(super) struct Charge<'a> {
    entry: &'a UsageEntry,
    meter: &'a PricedMeter,
    price: Decimal,
    version: &'a PriceVersion,
    prices: &'a Prices,
    start: u64,
    step: u64,
}

/// Value of a column, from a charge.
pub(super) enum Value {
    Text(fn(&Charge<'_>) -> String),
    /// Seconds since 1970.
    Time(fn(&Charge<'_>) -> u64),
    Number(fn(&Charge<'_>) -> Decimal),
    Null,
}

/// A column: its name, and its value in a row.
type Column = (&'static str, Value);

const COST: Value = Value::Number(|charge| charge.quantity().times(charge.price));
const PRICE: Value = Value::Number(|charge| charge.price);
const QUANTITY: Value = Value::Number(|charge| charge.quantity());
const UNIT: Value = Value::Text(|charge| charge.meter.unit.to_owned());
const SELLER: Value = Value::Text(|charge| charge.prices.provider.clone());

/// All columns, in their order. Those of FOCUS come first, by name.
pub(super) const COLUMNS: [Column; 46] = [
    ("BilledCost", COST),
    ("BillingAccountId", Value::Text(|charge| charge.entry.tenant.clone())),
    ("BillingAccountName", Value::Text(|charge| last(&charge.entry.tenant))),
    ("BillingCurrency", Value::Text(|charge| charge.prices.currency.clone())),
    ("BillingPeriodEnd", Value::Time(|charge| month(charge.start).1)),
    ("BillingPeriodStart", Value::Time(|charge| month(charge.start).0)),
    ("ChargeCategory", Value::Text(|_| "Usage".to_owned())),
    ("ChargeClass", Value::Null),
    ("ChargeDescription", Value::Text(|charge| charge.description())),
    ("ChargeFrequency", Value::Text(|_| "Usage-Based".to_owned())),
    ("ChargePeriodEnd", Value::Time(|charge| charge.start + charge.step)),
    ("ChargePeriodStart", Value::Time(|charge| charge.start)),
    ("CommitmentDiscountCategory", Value::Null),
    ("CommitmentDiscountId", Value::Null),
    ("CommitmentDiscountName", Value::Null),
    ("CommitmentDiscountStatus", Value::Null),
    ("CommitmentDiscountType", Value::Null),
    ("ConsumedQuantity", QUANTITY),
    ("ConsumedUnit", UNIT),
    ("ContractedCost", COST),
    ("ContractedUnitPrice", PRICE),
    ("EffectiveCost", COST),
    ("InvoiceIssuerName", SELLER),
    ("ListCost", COST),
    ("ListUnitPrice", PRICE),
    ("PricingCategory", Value::Text(|_| "Standard".to_owned())),
    ("PricingQuantity", QUANTITY),
    ("PricingUnit", UNIT),
    ("ProviderName", SELLER),
    ("PublisherName", SELLER),
    ("RegionId", Value::Null),
    ("RegionName", Value::Null),
    ("ResourceId", Value::Text(|charge| charge.resource())),
    ("ResourceName", Value::Text(|charge| last(&charge.entry.dag))),
    (
        "ResourceType",
        Value::Text(|charge| if charge.entry.dag.is_empty() { "" } else { "DAG" }.to_owned()),
    ),
    ("ServiceCategory", Value::Text(|_| "Networking".to_owned())),
    ("ServiceName", Value::Text(|_| "SmartNIC network tasks".to_owned())),
    ("ServiceSubcategory", Value::Text(|_| "Other (Networking)".to_owned())),
    ("SkuId", Value::Text(|charge| charge.meter.key.to_string())),
    ("SkuMeter", Value::Text(|charge| charge.meter.name.to_string())),
    ("SkuPriceDetails", Value::Null),
    ("SkuPriceId", Value::Text(|charge| format!("{}/{}", charge.version.name, charge.meter.key))),
    ("SubAccountId", Value::Null),
    ("SubAccountName", Value::Null),
    ("Tags", Value::Null),
    ("x_Card", Value::Text(|charge| charge.entry.card.clone())),
];

impl Charge<'_> {
    fn quantity(&self) -> Decimal {
        self.meter.quantity(priced_count(self.entry, &self.meter.count))
    }

    /// Id of the DAG. One that has the name of a deleted one has another UID.
    fn resource(&self) -> String {
        match self.entry.dag.as_str() {
            "" => String::new(),
            dag => format!("{dag}@{}", self.entry.uid),
        }
    }

    fn description(&self) -> String {
        let card = last(&self.entry.card);
        let of = match self.entry.dag.as_str() {
            // What the tenant itself uses is of no card, and at a fleet of a host.
            "" if !self.entry.card.contains("cards/") => {
                format!("tenant {}", last(&self.entry.tenant))
            }
            "" => format!("deleted DAGs on card {card}"),
            dag => format!("DAG {} on card {card}", last(dag)),
        };
        let (name, unit) = (&self.meter.name, self.meter.unit);
        format!("{name} of {of}, at {} {} per {unit}", self.price, self.prices.currency)
    }
}

fn last(name: &str) -> String {
    name.rsplit('/').next().unwrap_or_default().to_owned()
}

/// All charges of the entries of steps. A meter without a price or an amount has none.
pub struct Charges<'a>(Vec<Charge<'a>>);

impl<'a> Charges<'a> {
    /// Charges by these prices.
    ///
    /// # Errors
    /// There is no price for a step.
    pub fn new(
        entries: &'a [UsageEntry],
        prices: &'a Prices,
        Charged { step, .. }: Charged,
    ) -> Result<Self, String> {
        let mut charges = Vec::new();
        for entry in entries {
            let start = entry.start_time.map_or(0, |start| start.seconds);
            let start = u64::try_from(start).unwrap_or_default();
            let version = prices.at(start)?;
            for (meter, price) in version.prices() {
                let charge = Charge { entry, meter, price: *price, version, prices, start, step };
                if !charge.quantity().is_zero() {
                    charges.push(charge);
                }
            }
        }
        Ok(Self(charges))
    }

    /// A row for each charge as comma-separated values, with a heading.
    pub fn csv(&self) -> String {
        let mut text = values::line(COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
        for charge in &self.0 {
            text += &values::line(COLUMNS.iter().map(|(_, of)| of.text(charge)));
        }
        text
    }

    #[cfg(feature = "parquet")]
    pub(super) fn rows(&self) -> &[Charge<'a>] {
        &self.0
    }
}

impl Value {
    fn text(&self, charge: &Charge<'_>) -> String {
        match self {
            Self::Text(of) => of(charge),
            Self::Time(of) => time(of(charge)),
            Self::Number(of) => of(charge).to_string(),
            Self::Null => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost_types::Timestamp;
    use snic_api::v1::UsageNtTime;

    use super::*;

    /// 2026-11-01T00:00:00Z
    const NOVEMBER: u64 = 1_793_491_200;
    const DAY: u64 = 86_400;

    fn prices(provider: &str) -> Prices {
        let text = format!(
            r#"
            currency = "EUR"
            provider = '{provider}'
            [[versions]]
            name = "first"
            from = 2026-11-01T00:00:00Z
            prices = {{ dag_seconds = "0.000005", gigabytes_served = "0.01" }}
            [[versions]]
            name = "second"
            from = 2026-11-02T00:00:00Z
            prices = {{ dag_seconds = "0.000007" }}
            "#
        );
        Prices::parse(&text).expect("valid prices")
    }

    fn entry(day: u64, life_ms: u64, bytes_served: u64) -> UsageEntry {
        let seconds = i64::try_from(NOVEMBER + day * DAY).expect("a time of today");
        UsageEntry {
            tenant: "tenants/acme".into(),
            dag: "tenants/acme/dags/web".into(),
            uid: 7,
            card: "cards/c0".into(),
            start_time: Some(Timestamp { seconds, nanos: 0 }),
            life_ms,
            bytes_served,
            ..UsageEntry::default()
        }
    }

    const CHARGED: Charged = Charged { from: NOVEMBER, to: NOVEMBER + 2 * DAY, step: DAY };

    /// Rows by column, of text without quotes.
    fn rows(text: &str) -> Vec<BTreeMap<&str, &str>> {
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert!(lines.iter().all(|line| line.len() == COLUMNS.len()), "{text}");
        lines[1..]
            .iter()
            .map(|line| lines[0].iter().copied().zip(line.iter().copied()).collect())
            .collect()
    }

    #[test]
    fn a_charge_is_quantity_times_the_price_of_its_time() {
        let entries = [entry(0, 86_400_001, 1_500_000_000), entry(1, 1, 9)];
        let prices = prices("Example");
        let text = Charges::new(&entries, &prices, CHARGED).expect("charges").csv();
        // The description alone has a comma, and is in quotes.
        let text = text.replace(", at ", " at ").replace('"', "");
        let rows = rows(&text);
        let of = |column: &str| rows.iter().map(|row| row[column]).collect::<Vec<_>>();
        assert_eq!(of("SkuId"), ["dag_seconds", "gigabytes_served", "dag_seconds"]);
        assert_eq!(of("PricingQuantity"), ["86400.001", "1.5", "0.001"]);
        assert_eq!(of("BilledCost"), ["0.432000005", "0.015", "0.000000007"]);
        assert_eq!(of("SkuPriceId")[2], "second/dag_seconds");
        assert_eq!(of("ChargePeriodEnd")[2], "2026-11-03T00:00:00Z");
        assert_eq!(of("BillingPeriodEnd")[2], "2026-12-01T00:00:00Z");
        assert_eq!(of("ResourceId")[0], "tenants/acme/dags/web@7");
    }

    /// Each type has its price; types without one are not charged.
    #[test]
    fn nt_types_are_charged_by_their_own_prices() {
        let text = r#"
            currency = "EUR"
            provider = "Example"
            [[versions]]
            name = "first"
            from = 2026-11-01T00:00:00Z
            [versions.prices]
            card_seconds = "0.5"
            loads = "0.02"
            [versions.nt_seconds]
            nat = "0.001"
            vpn = "0.003"
        "#;
        let prices = Prices::parse(text).expect("valid prices");
        let time =
            |nt_type: &str, instance_ms| UsageNtTime { nt_type: nt_type.into(), instance_ms };
        let entries = [UsageEntry {
            area_ppm_seconds: 250_000,
            loads: 3,
            nts: vec![time("ntTypes/lb", 9), time("ntTypes/vpn", 2_500), time("", 7)],
            ..entry(0, 0, 0)
        }];
        let text = Charges::new(&entries, &prices, CHARGED).expect("charges").csv();
        let text = text.replace(", at ", " at ").replace('"', "");
        let rows = rows(&text);
        let of = |column: &str| rows.iter().map(|row| row[column]).collect::<Vec<_>>();
        assert_eq!(of("SkuId"), ["card_seconds", "loads", "nt_seconds/vpn"]);
        assert_eq!(of("PricingQuantity"), ["0.25", "3", "2.5"]);
        assert_eq!(of("BilledCost"), ["0.125", "0.06", "0.0075"]);
        assert_eq!(of("PricingUnit")[2], "Instance-Seconds");
    }

    /// Calls and bytes of a tenant are of no DAG and no card.
    #[test]
    fn what_a_tenant_itself_uses_is_charged() {
        let text = r#"
            currency = "EUR"
            provider = "Example"
            [[versions]]
            name = "first"
            from = 2026-11-01T00:00:00Z
            [versions.prices]
            thousand_api_calls = "0.25"
            stored_gigabyte_seconds = "0.0001"
        "#;
        let prices = Prices::parse(text).expect("valid prices");
        let own = UsageEntry { dag: String::new(), card: String::new(), uid: 0, ..entry(0, 0, 0) };
        let own = [UsageEntry { api_calls: 1_002, stored_byte_seconds: 3_500_000_000, ..own }];
        let text = Charges::new(&own, &prices, CHARGED).expect("charges").csv();
        assert!(
            text.contains("Calls of the API of tenant acme, at 0.25 EUR per 1000 Calls"),
            "{text}"
        );
        let text = text.replace(", at ", " at ").replace('"', "");
        let rows = rows(&text);
        let of = |column: &str| rows.iter().map(|row| row[column]).collect::<Vec<_>>();
        assert_eq!(of("SkuId"), ["thousand_api_calls", "stored_gigabyte_seconds"]);
        assert_eq!(of("PricingQuantity"), ["1.002", "3.5"]);
        assert_eq!(of("BilledCost"), ["0.2505", "0.00035"]);
        assert_eq!([of("ResourceId"), of("x_Card")].concat(), ["", "", "", ""]);
    }

    #[test]
    fn a_time_without_prices_is_refused() {
        let early = Charged { from: NOVEMBER - DAY, ..CHARGED };
        let error =
            prices("Example").check((early.from, early.to), early.step).expect_err("no prices");
        assert!(error.contains("2026-10-31T00:00:00Z"), "{error}");
    }
}

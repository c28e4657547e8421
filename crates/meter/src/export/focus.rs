//! Rows as charges in the form of FOCUS 1.2 (<https://focus.finops.org/focus-specification/v1-2/>), a line for each meter.
//!
//! A charge is the growth of the bill with its row. The charges of an invoice therefore add up to the bill, whatever is
//! cut off.

use std::collections::BTreeMap;

use tidemark_types::UnixMs;

use super::csv_line;
use crate::bill::{Used, cost};
use crate::price::{METERS, Meter, Money, Tariff};
use crate::row::{Kind, Row, Subject};
use tidemark_types::utc;

/// The specification's columns, in the order of their names.
pub const FOCUS_COLUMNS: [&str; 57] = [
    "AvailabilityZone",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountQuantity",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "CommitmentDiscountUnit",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingCurrency",
    "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyEffectiveCost",
    "PricingCurrencyListUnitPrice",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    "Tags",
];

/// By what amounts are summed: a tenant, a month, a version, a meter.
type Key = (Subject, String, String, &'static str);

/// Makes charges of rows, one after the other.
#[derive(Debug)]
pub struct Focus<'a> {
    tariff: &'a Tariff,
    sums: BTreeMap<Key, u128>,
}

impl<'a> Focus<'a> {
    /// An export with these prices.
    pub fn new(tariff: &'a Tariff) -> Self {
        Self {
            tariff,
            sums: BTreeMap::new(),
        }
    }

    /// The line of names.
    pub fn header() -> String {
        FOCUS_COLUMNS.join(",")
    }

    /// A row's charges: none where it is no tenant's, or names prices that are not known.
    pub fn charges(&mut self, row: &Row) -> Vec<String> {
        let entry = &row.entry;
        let prices = self.tariff.of_version(&entry.price_version);
        let (Kind::Use, Some(tenant), Some(prices)) = (entry.kind, &entry.tenant, prices) else {
            return Vec::new();
        };
        let mut used = Used::default();
        used.add(entry, self.tariff);
        let month = utc::month_of(entry.from);
        let mut lines = Vec::new();
        for (meter, unit_price) in METERS.iter().zip(prices.units) {
            let amount = used.billed(meter);
            if amount == 0 {
                continue;
            }
            let key = (tenant.clone(), month.clone(), prices.version.clone(), meter.key);
            let sum = self.sums.entry(key).or_default();
            let before = cost(*sum, unit_price, meter.unit_amount);
            *sum += amount;
            let charge = Charge {
                row,
                tenant,
                month: &month,
                version: &prices.version,
                currency: &self.tariff.currency,
                meter,
                amount,
                unit_price,
                cost: Money(cost(*sum, unit_price, meter.unit_amount).0 - before.0),
            };
            lines.push(csv_line(&FOCUS_COLUMNS.map(|column| charge.field(column))));
        }
        lines
    }
}

struct Charge<'a> {
    row: &'a Row,
    tenant: &'a Subject,
    month: &'a str,
    version: &'a str,
    currency: &'a str,
    meter: &'a Meter,
    amount: u128,
    unit_price: Money,
    cost: Money,
}

impl Charge<'_> {
    /// The value of a column; empty is null.
    fn field(&self, column: &str) -> String {
        let entry = &self.row.entry;
        let (begin, end) = utc::month_range(self.month).unwrap_or((UnixMs(0), UnixMs(0)));
        match column {
            "BilledCost" | "EffectiveCost" | "ContractedCost" | "ListCost" | "PricingCurrencyEffectiveCost" => {
                self.cost.to_string()
            }
            "ListUnitPrice"
            | "ContractedUnitPrice"
            | "PricingCurrencyListUnitPrice"
            | "PricingCurrencyContractedUnitPrice" => self.unit_price.to_string(),
            "BillingCurrency" | "PricingCurrency" => self.currency.into(),
            "BillingAccountId" => "tidemark".into(),
            "BillingAccountName" | "ProviderName" | "PublisherName" | "InvoiceIssuerName" | "ServiceName" => {
                "Tidemark".into()
            }
            "BillingAccountType" => "Server".into(),
            "BillingPeriodStart" => utc::rfc3339(begin),
            "BillingPeriodEnd" => utc::rfc3339(end),
            "ChargePeriodStart" => utc::rfc3339(entry.from),
            "ChargePeriodEnd" => utc::rfc3339(entry.to),
            "ChargeCategory" => "Usage".into(),
            "ChargeFrequency" => "Usage-Based".into(),
            "ChargeDescription" => format!("{} of tenant {} on {}", self.meter.title, self.tenant.name, entry.node),
            "ConsumedQuantity" | "PricingQuantity" => self.quantity(),
            "ConsumedUnit" | "PricingUnit" => self.meter.unit.into(),
            "PricingCategory" => "Standard".into(),
            "ResourceId" | "SubAccountId" => self.tenant.id.to_string(),
            "ResourceName" | "SubAccountName" => self.tenant.name.clone(),
            "ResourceType" | "SubAccountType" => "Tenant".into(),
            "ServiceCategory" => "Databases".into(),
            "ServiceSubcategory" => "Caching".into(),
            "SkuId" => self.meter.key.into(),
            "SkuMeter" => self.meter.title.into(),
            "SkuPriceId" => format!("{}/{}", self.version, self.meter.key),
            "Tags" => "{}".into(),
            // Regions, zones, reservations, discounts: there are none.
            _ => String::new(),
        }
    }

    /// The amount in the meter's unit, with twelve digits behind the point.
    fn quantity(&self) -> String {
        cost(self.amount, Money(1_000_000_000_000), self.meter.unit_amount).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bill::bill;
    use crate::chain::Chain;
    use crate::price::{CpuFigure, Free, Prices};
    use crate::row::Entry;
    use crate::usage::{Resource, Usage};
    use tidemark_types::TenantId;

    fn tariff() -> Tariff {
        Tariff {
            currency: "USD".into(),
            cpu: CpuFigure::Measured,
            free: Free::ALL.to_vec(),
            prices: vec![Prices {
                version: "v1".into(),
                from: UnixMs(0),
                until: None,
                units: [Money(333_333_333); METERS.len()],
            }],
            instances: Vec::new(),
        }
    }

    fn rows() -> Vec<Row> {
        let mut chain = Chain::default();
        let minute = |number: u64| Entry {
            tenant: Some(Subject {
                id: TenantId(3),
                name: "shop".into(),
            }),
            price_version: "v1".into(),
            node: "a,b".into(),
            usage: Usage::default()
                .with(Resource::CpuNs, 1_234_567 * number)
                .with(Resource::Operations, number)
                .with(Resource::NetworkOutBytes, 77),
            ..Entry::event(Kind::Use, UnixMs(number * 60_000), UnixMs((number + 1) * 60_000), "")
        };
        (1..200).map(|number| chain.push(minute(number))).collect()
    }

    #[test]
    fn charges_add_up_to_the_bill_and_have_every_column() {
        let (tariff, mut used) = (tariff(), Used::default());
        let mut focus = Focus::new(&tariff);
        let (mut total, mut lines) = (Money::default(), 0);
        for row in rows() {
            used.add(&row.entry, &tariff);
            for line in focus.charges(&row) {
                // The one field with a comma is quoted.
                let fields: Vec<&str> = line.split('"').flat_map(|part| part.split(',')).collect();
                assert!(fields.len() > FOCUS_COLUMNS.len(), "{line}");
                total = total + Money::parse(fields[1]).unwrap();
                lines += 1;
            }
        }
        assert_eq!(lines, 199 * 3);
        assert_eq!(total, bill(&BTreeMap::from([("v1".into(), used)]), &tariff).total);
        assert!(FOCUS_COLUMNS.is_sorted());
    }

    #[test]
    fn what_may_be_null_is_and_what_must_not_be_is_not() {
        let tariff = tariff();
        let row = &rows()[0];
        let charge = Charge {
            row,
            tenant: row.entry.tenant.as_ref().unwrap(),
            month: "1970-01",
            version: "v1",
            currency: "USD",
            meter: &METERS[0],
            amount: 3_600_000_000_000 * 2,
            unit_price: Money(5),
            cost: Money(10),
        };
        // Not null in any row (FOCUS 1.2, "Allows nulls: False").
        for column in [
            "BilledCost",
            "BillingAccountId",
            "BillingCurrency",
            "BillingPeriodEnd",
            "BillingPeriodStart",
            "ChargeCategory",
            "ChargeFrequency",
            "ChargePeriodEnd",
            "ChargePeriodStart",
            "ContractedCost",
            "EffectiveCost",
            "InvoiceIssuerName",
            "ListCost",
            "ProviderName",
            "PublisherName",
            "ServiceCategory",
            "ServiceName",
            "ServiceSubcategory",
        ] {
            assert!(!charge.field(column).is_empty(), "{column}");
        }
        for column in [
            "ChargeClass",
            "CommitmentDiscountId",
            "CapacityReservationId",
            "RegionId",
            "AvailabilityZone",
            // No invoice is issued.
            "InvoiceId",
        ] {
            assert_eq!(charge.field(column), "", "{column}");
        }
        assert_eq!(charge.field("ConsumedQuantity"), "2.00");
        assert_eq!(charge.field("BillingPeriodEnd"), "1970-02-01T00:00:00Z");
        assert_eq!(tariff.currency, "USD");
    }
}

//! Bills: sums of rows, times prices.
//!
//! Amounts are summed as whole numbers for each set of prices, then priced, and cut off once, at a trillionth of the
//! currency's unit. So a bill is the same however time is split into rows.

use std::collections::BTreeMap;

use tidemark_types::UnixMs;

use crate::price::{CpuFigure, Instance, METERS, Meter, Money, Prices, Tariff};
use crate::row::{Entry, Kind};
use crate::usage::{Resource, Totals};

/// The use of a tenant under one set of prices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The amounts of resources.
    pub totals: Totals,
    /// CPU time by the figure that is billed.
    pub billed_cpu_ns: u128,
    /// The number of operations that are free.
    pub free_operations: u128,
}

impl Used {
    /// Adds an entry.
    pub fn add(&mut self, entry: &Entry, tariff: &Tariff) {
        let mut totals = Totals::default();
        totals.add(&entry.usage);
        let commands = entry.commands.iter();
        let commands = commands.map(|(command, count)| (command.as_str(), u128::from(*count)));
        self.add_sums(&totals, commands, entry.is_modelled, tariff);
    }

    /// Adds sums of entries, all with a modelled CPU time or all without.
    pub fn add_sums<'a>(
        &mut self,
        totals: &Totals,
        commands: impl Iterator<Item = (&'a str, u128)>,
        is_modelled: bool,
        tariff: &Tariff,
    ) {
        self.totals.add_all(totals);
        let free = commands.filter(|(command, _)| tariff.is_free(command));
        self.free_operations += free.map(|(_, count)| count).sum::<u128>();
        let is_billed = is_modelled && tariff.cpu == CpuFigure::Modelled;
        let figure = if is_billed {
            Resource::CpuModelNs
        } else {
            Resource::CpuNs
        };
        self.billed_cpu_ns += totals.get(figure);
    }

    /// Adds another sum.
    pub fn add_all(&mut self, other: &Self) {
        self.totals.add_all(&other.totals);
        self.billed_cpu_ns += other.billed_cpu_ns;
        self.free_operations += other.free_operations;
    }

    /// The amount on a meter's line.
    pub fn billed(&self, meter: &Meter) -> u128 {
        match meter.resource {
            Resource::CpuNs => self.billed_cpu_ns,
            Resource::Operations => self
                .totals
                .get(Resource::Operations)
                .saturating_sub(self.free_operations),
            resource => self.totals.get(resource),
        }
    }
}

/// A line of a bill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The prices.
    pub version: String,
    /// The meter.
    pub meter: Meter,
    /// How much, in the resource's own unit.
    pub amount: u128,
    /// The price of one unit of the meter.
    pub unit_price: Money,
    /// Amount times price.
    pub cost: Money,
}

impl Line {
    fn new(used: &Used, meter: &Meter, prices: &Prices, place: usize) -> Self {
        let (amount, unit_price) = (used.billed(meter), prices.units[place]);
        Self {
            version: prices.version.clone(),
            meter: *meter,
            amount,
            unit_price,
            cost: cost(amount, unit_price, meter.unit_amount),
        }
    }

    /// The amount in the meter's unit.
    pub fn quantity(&self) -> f64 {
        self.amount as f64 / self.meter.unit_amount as f64
    }

    /// The formula with its numbers: `7200000000000 ns / 3600000000000 x 0.04 = 0.08`.
    pub fn formula(&self) -> String {
        format!(
            "{} {} / {} x {} = {}",
            self.amount,
            unit_of(self.meter.resource),
            self.meter.unit_amount,
            self.unit_price,
            self.cost
        )
    }
}

/// Amount times price, cut off at a trillionth.
pub(crate) fn cost(amount: u128, unit_price: Money, unit_amount: u64) -> Money {
    let unit_amount = u128::from(unit_amount);
    let price = unit_price.0.unsigned_abs();
    // In two parts, so that no product is beyond 128 bits where the amount is large.
    let (whole, rest) = (amount / unit_amount, amount % unit_amount);
    let picos = whole.saturating_mul(price).saturating_add(rest * price / unit_amount);
    Money(i128::try_from(picos).unwrap_or(i128::MAX))
}

/// The unit of a resource's amounts.
fn unit_of(resource: Resource) -> &'static str {
    match resource {
        Resource::CpuNs | Resource::CpuModelNs => "ns",
        Resource::MemoryByteSeconds | Resource::FlashByteSeconds => "byte-seconds",
        Resource::NetworkInBytes | Resource::NetworkOutBytes | Resource::FlashWrittenBytes => "bytes",
        Resource::FunctionMibMs => "MiB-ms",
        Resource::Invocations => "invocations",
        Resource::Operations | Resource::Gets | Resource::Hits | Resource::Sets | Resource::Refused => "operations",
    }
}

/// The amount that a tenant owes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bill {
    /// One for each meter and set of prices, where there is an amount or a price.
    pub lines: Vec<Line>,
    /// Their sum.
    pub total: Money,
    /// Versions that rows name and no prices file has: their use is not in the sum.
    pub unpriced: Vec<String>,
}

/// Makes a bill of the use under each version.
pub fn bill(used: &BTreeMap<String, Used>, tariff: &Tariff) -> Bill {
    let (mut lines, mut unpriced) = (Vec::new(), Vec::new());
    for (version, used) in used {
        let Some(prices) = tariff.of_version(version) else {
            unpriced.push(version.clone());
            continue;
        };
        let all = METERS.iter().enumerate();
        let all = all.map(|(place, meter)| Line::new(used, meter, prices, place));
        lines.extend(all.filter(|line| line.amount > 0 || line.meter.is_needed));
    }
    Bill {
        total: lines.iter().map(|line| line.cost).sum(),
        lines,
        unpriced,
    }
}

/// The largest use within a time, by which a fixed instance must be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// Cores.
    pub vcpus: f64,
    /// Memory.
    pub memory_bytes: u64,
    /// The end of the time that is looked at, less its beginning.
    pub hours: f64,
    from: Option<UnixMs>,
    to: UnixMs,
}

impl Peak {
    /// Takes an entry into account.
    pub fn add(&mut self, entry: &Entry, tariff: Option<&Tariff>) {
        if entry.kind != Kind::Use {
            return;
        }
        let seconds = entry.to.since(entry.from).as_secs_f64();
        let is_modelled = tariff.is_some_and(|tariff| tariff.cpu == CpuFigure::Modelled);
        let cpu_ns = entry.cpu_model_ns().filter(|_| is_modelled);
        let cpu_ns = cpu_ns.unwrap_or_else(|| entry.usage.get(Resource::CpuNs));
        if seconds > 0.0 {
            self.vcpus = self.vcpus.max(cpu_ns as f64 / 1e9 / seconds);
            let mean = entry.usage.get(Resource::MemoryByteSeconds) as f64 / seconds;
            self.memory_bytes = self.memory_bytes.max(mean as u64);
        }
        let from = self.from.map_or(entry.from, |from| from.min(entry.from));
        (self.from, self.to) = (Some(from), self.to.max(entry.to));
        self.hours = self.to.since(from).as_secs_f64() / 3600.0;
    }
}

/// The cost of a fixed instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// The instance.
    pub instance: Instance,
    /// The cost for all of the time.
    pub cost: Money,
    /// Parts of its cores and memory that were paid for and not used.
    pub unused_cpu_ratio: f64,
    /// The same of memory.
    pub unused_memory_ratio: f64,
}

/// The cheapest instance that the peak fits, and the next larger one, which is needed when the peak is just above it (Genie, Fig. 1).
pub fn fixed(tariff: &Tariff, peak: &Peak, used: &Used) -> Vec<Fixed> {
    let fits = |instance: &&Instance| {
        instance.millicores as f64 >= peak.vcpus * 1000.0 && instance.memory_bytes >= peak.memory_bytes
    };
    let seconds = peak.hours * 3600.0;
    let waste = |instance: &Instance| {
        let cores = instance.millicores as f64 / 1000.0;
        let used_part = |used: f64, paid: f64| if paid > 0.0 { (1.0 - used / paid).max(0.0) } else { 0.0 };
        Fixed {
            cost: Money((instance.hour.0 as f64 * peak.hours) as i128),
            unused_cpu_ratio: used_part(used.billed_cpu_ns as f64 / 1e9, cores * seconds),
            unused_memory_ratio: used_part(
                used.totals.get(Resource::MemoryByteSeconds) as f64,
                instance.memory_bytes as f64 * seconds,
            ),
            instance: instance.clone(),
        }
    };
    tariff.instances.iter().filter(fits).take(2).map(waste).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::usage::Usage;

    fn tariff() -> Tariff {
        let prices = |version: &str, price: i128| Prices {
            version: version.into(),
            from: UnixMs(0),
            until: None,
            units: std::array::from_fn(|place| Money(price * (place as i128 + 1))),
        };
        let instance = |name: &str, millicores, memory_bytes, hour| Instance {
            name: name.into(),
            millicores,
            memory_bytes,
            hour: Money(hour),
        };
        Tariff {
            currency: "USD".into(),
            cpu: CpuFigure::Modelled,
            free: crate::price::Free::ALL.to_vec(),
            prices: vec![prices("v1", 1_000_003), prices("v2", 70_000_000_001)],
            instances: vec![
                instance("small", 1000, 1 << 30, 10),
                instance("middle", 2000, 2 << 30, 20),
                instance("large", 4000, 4 << 30, 40),
            ],
        }
    }

    fn entry(resource: Resource, amount: u64) -> Entry {
        Entry {
            usage: Usage::default().with(resource, amount),
            ..Entry::event(Kind::Use, UnixMs(0), UnixMs(3_600_000), "")
        }
    }

    #[test]
    fn a_line_is_its_formula() {
        let mut used = Used::default();
        used.add(&entry(Resource::CpuNs, 7_200_000_000_000), &tariff());
        let bill = bill(&BTreeMap::from([("v1".to_owned(), used)]), &tariff());
        assert_eq!(bill.lines[0].cost, Money(2_000_006));
        assert_eq!(
            bill.lines[0].formula(),
            "7200000000000 ns / 3600000000000 x 0.000001000003 = 0.000002000006"
        );
        assert_eq!(bill.total, bill.lines.iter().map(|line| line.cost).sum());
    }

    #[test]
    fn modelled_cpu_time_is_billed_where_there_is_a_model() {
        for (cpu, is_modelled, expected) in [
            (CpuFigure::Modelled, true, 7),
            (CpuFigure::Modelled, false, 5),
            (CpuFigure::Measured, true, 5),
        ] {
            let tariff = Tariff { cpu, ..tariff() };
            let mut entry = entry(Resource::CpuNs, 5);
            entry.usage.set(Resource::CpuModelNs, 7);
            entry.is_modelled = is_modelled;
            let mut used = Used::default();
            used.add(&entry, &tariff);
            assert_eq!(used.billed_cpu_ns, expected, "{cpu:?} {is_modelled}");
        }
    }

    #[test]
    fn what_is_free_is_not_billed() {
        let mut one = entry(Resource::Operations, 10);
        one.commands = vec![
            ("redis/get".into(), 6),
            ("redis/ping".into(), 3),
            ("redis/hello".into(), 1),
        ];
        let mut used = Used::default();
        used.add(&one, &tariff());
        assert_eq!(used.billed(&METERS[4]), 6);
        let none = Tariff {
            free: Vec::new(),
            ..tariff()
        };
        let mut used = Used::default();
        used.add(&one, &none);
        assert_eq!(used.billed(&METERS[4]), 10);
    }

    #[test]
    fn rows_of_unknown_prices_are_named() {
        let bill = bill(
            &BTreeMap::from([(String::new(), Used::default()), ("v9".into(), Used::default())]),
            &tariff(),
        );
        assert_eq!(bill.unpriced, ["", "v9"]);
        assert_eq!(bill.total, Money(0));
    }

    #[test]
    fn a_fixed_instance_fits_the_peak_or_is_the_next_one() {
        let hour = |cpu_s: u64, memory_bytes: u64| {
            let mut one = entry(Resource::CpuNs, cpu_s * 1_000_000_000);
            one.usage.set(Resource::MemoryByteSeconds, memory_bytes * 3600);
            one
        };
        let mut peak = Peak::default();
        let mut used = Used::default();
        for (number, one) in [hour(3600, 1 << 29), hour(360, 1 << 30)].into_iter().enumerate() {
            let begin = number as u64 * 3_600_000;
            let one = Entry {
                from: UnixMs(begin),
                to: UnixMs(begin + 3_600_000),
                ..one
            };
            peak.add(&one, Some(&tariff()));
            used.add(&one, &tariff());
        }
        let found = fixed(&tariff(), &peak, &used);
        let told: Vec<_> = found
            .iter()
            .map(|fixed| (fixed.instance.name.as_str(), fixed.cost.0))
            .collect();
        assert_eq!(told, [("small", 20), ("middle", 40)]);
        assert!((found[0].unused_cpu_ratio - 0.45).abs() < 1e-9 && (found[1].unused_cpu_ratio - 0.725).abs() < 1e-9);
        assert!((found[0].unused_memory_ratio - 0.25).abs() < 1e-9);
    }

    proptest! {
        /// However rows are split, and in whatever order: the bill is the same, and it is the sum of its lines.
        #[test]
        fn any_split_gives_the_same_bill(
            parts in proptest::collection::vec((0_usize..14, 0_u64..1 << 40, 0_usize..2), 1..60),
        ) {
            let tariff = tariff();
            let versions = ["v1", "v2"];
            let mut split: BTreeMap<String, Used> = BTreeMap::new();
            let mut whole: BTreeMap<String, Totals> = BTreeMap::new();
            for (resource, amount, version) in &parts {
                let one = entry(Resource::ALL[*resource], *amount);
                split.entry(versions[*version].into()).or_default().add(&one, &tariff);
                whole.entry(versions[*version].into()).or_default().add(&one.usage);
            }
            let at_once = whole.into_iter().map(|(version, totals)| {
                let billed_cpu_ns = totals.get(Resource::CpuNs);
                (version, Used { totals, billed_cpu_ns, free_operations: 0 })
            });
            let (split, at_once) = (bill(&split, &tariff), bill(&at_once.collect(), &tariff));
            prop_assert_eq!(split.total, split.lines.iter().map(|line| line.cost).sum());
            prop_assert_eq!(split, at_once);
        }
    }
}

//! The prices file. A mistake is named with its line.

use serde::Deserialize;
use tidemark_types::{Size, UnixMs};
use toml::Spanned;

use super::{CpuFigure, Free, Instance, METERS, Money, Prices, Tariff};
use tidemark_types::utc;

/// A prices file that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct PriceError {
    /// The line, from 1 on.
    pub line: usize,
    /// The mistake.
    pub message: String,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    currency: Spanned<String>,
    #[serde(default)]
    cpu: Option<Spanned<String>>,
    #[serde(default)]
    free: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    prices: Vec<Spanned<toml::Table>>,
    #[serde(default)]
    instances: Vec<Spanned<WrittenInstance>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenInstance {
    name: String,
    vcpus: f64,
    memory: String,
    hour: String,
}

/// Reads a prices file.
///
/// # Errors
/// It is no TOML, a key is not known, or a price is missing, negative or no decimal number. A time overlaps another, or
/// a version is there twice. Each error has its line.
pub fn parse(text: &str) -> Result<Tariff, PriceError> {
    let line_at = |place: usize| text.get(..place).map_or(1, |before| before.matches('\n').count() + 1);
    let fail = |place: usize, message: String| PriceError {
        line: line_at(place),
        message,
    };
    let file: File = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(0, |span| span.start);
        fail(place, error.message().trim().to_owned())
    })?;
    let currency = file.currency.get_ref();
    if currency.is_empty() || currency.len() > 16 || !currency.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        let message = "`currency` must be letters and digits, such as USD".to_owned();
        return Err(fail(file.currency.span().start, message));
    }
    let mut prices = Vec::new();
    for table in &file.prices {
        let place = table.span().start;
        let read = prices_of(table.get_ref()).map_err(|(key, message)| {
            // The key's own line, behind the table's head.
            let at = key.and_then(|key| key_place(text, place, &key));
            fail(at.unwrap_or(place), message)
        })?;
        prices.push((place, read));
    }
    let prices = in_order(prices).map_err(|(place, message)| fail(place, message))?;
    if prices.is_empty() {
        return Err(fail(0, "there are no prices: add a table [[prices]]".into()));
    }
    Ok(Tariff {
        currency: currency.clone(),
        cpu: cpu_of(file.cpu.as_ref()).map_err(|(place, message)| fail(place, message))?,
        free: free_of(file.free.as_ref()).map_err(|(place, message)| fail(place, message))?,
        prices,
        instances: instances_of(&file.instances).map_err(|(place, message)| fail(place, message))?,
    })
}

/// The place of a key in the table that begins at a place.
fn key_place(text: &str, place: usize, key: &str) -> Option<usize> {
    let mut at = place;
    for (number, line) in text.get(place..)?.split_inclusive('\n').enumerate() {
        let trimmed = line.trim_start();
        if number > 0 && trimmed.starts_with('[') {
            return None;
        }
        let rest = trimmed.strip_prefix(key).map(str::trim_start);
        if rest.is_some_and(|rest| rest.starts_with('=')) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

type Misplaced = (Option<String>, String);

fn prices_of(table: &toml::Table) -> Result<Prices, Misplaced> {
    let wrong = |key: &str, message: String| (Some(key.to_owned()), message);
    for key in table.keys() {
        let is_known =
            ["version", "from", "until"].contains(&key.as_str()) || METERS.iter().any(|meter| meter.key == key);
        if !is_known {
            let known = METERS.map(|meter| meter.key).join(", ");
            return Err(wrong(key, format!("there is no meter `{key}`; known are {known}")));
        }
    }
    let version = match table.get("version").and_then(toml::Value::as_str) {
        Some(version)
            if !version.is_empty() && version.len() <= 64 && version.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            version.to_owned()
        }
        _ => {
            return Err(wrong(
                "version",
                "`version` must be a name without spaces, such as \"2026-08\"".into(),
            ));
        }
    };
    let moment = |key: &str| -> Result<Option<UnixMs>, Misplaced> {
        let Some(value) = table.get(key) else { return Ok(None) };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let message = || format!("`{key}` must be a moment in UTC, such as 2026-08-01 or 2026-08-01T00:00:00Z");
        utc::parse(&text).map(Some).ok_or_else(|| wrong(key, message()))
    };
    let from = moment("from")?.ok_or_else(|| (None, format!("prices `{version}` have no `from`")))?;
    let until = moment("until")?;
    if until.is_some_and(|until| until <= from) {
        return Err(wrong("until", format!("prices `{version}` end before they begin")));
    }
    let mut units = [Money::default(); METERS.len()];
    for (unit, meter) in units.iter_mut().zip(&METERS) {
        match table.get(meter.key) {
            Some(value) => *unit = price(meter.key, value).map_err(|message| wrong(meter.key, message))?,
            None if meter.is_needed => {
                return Err((None, format!("prices `{version}` have no price for `{}`", meter.key)));
            }
            None => {}
        }
    }
    Ok(Prices {
        version,
        from,
        until,
        units,
    })
}

/// A price as text, so that it is exact; a whole number may be one.
fn price(key: &str, value: &toml::Value) -> Result<Money, String> {
    let text = match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        _ => {
            return Err(format!(
                "`{key}` must be a decimal number in quotes, such as \"0.0042\""
            ));
        }
    };
    if text.starts_with('-') {
        return Err(format!("`{key}` is negative"));
    }
    Money::parse(&text).ok_or_else(|| {
        format!("`{key}` must be a decimal number with up to 12 digits behind the point, such as \"0.0042\"")
    })
}

/// By time; none may begin before the one before has ended.
fn in_order(mut prices: Vec<(usize, Prices)>) -> Result<Vec<Prices>, (usize, String)> {
    prices.sort_by_key(|(_, prices)| prices.from);
    for pair in prices.windows(2) {
        let [(_, before), (place, after)] = pair else { continue };
        if before.from == after.from || before.until.is_some_and(|until| until > after.from) {
            let message = format!("prices `{}` overlap prices `{}`", after.version, before.version);
            return Err((*place, message));
        }
    }
    for (number, (place, one)) in prices.iter().enumerate() {
        if prices[..number].iter().any(|(_, other)| other.version == one.version) {
            return Err((*place, format!("there are prices `{}` already", one.version)));
        }
    }
    Ok(prices.into_iter().map(|(_, prices)| prices).collect())
}

fn cpu_of(written: Option<&Spanned<String>>) -> Result<CpuFigure, (usize, String)> {
    match written.map(|text| (text.span().start, text.get_ref().as_str())) {
        None | Some((_, "modelled")) => Ok(CpuFigure::Modelled),
        Some((_, "measured")) => Ok(CpuFigure::Measured),
        Some((place, _)) => Err((place, "`cpu` must be \"modelled\" or \"measured\"".into())),
    }
}

fn free_of(written: Option<&Spanned<Vec<String>>>) -> Result<Vec<Free>, (usize, String)> {
    let Some(written) = written else {
        return Ok(Free::ALL.to_vec());
    };
    let place = written.span().start;
    let mut free = Vec::new();
    for name in written.get_ref() {
        let known = Free::ALL.into_iter().find(|free| free.name() == name);
        free.push(known.ok_or_else(|| {
            let names = Free::ALL.map(Free::name).join(", ");
            (
                place,
                format!(
                    "nothing is called `{}` that could be free; known are {names}",
                    name.escape_debug()
                ),
            )
        })?);
    }
    if let Some(missing) = Free::ALL.into_iter().find(|one| one.is_always() && !free.contains(one)) {
        let message = format!(
            "`{}` is measured for no tenant and can not be billed: add it to `free`",
            missing.name()
        );
        return Err((place, message));
    }
    Ok(free)
}

fn instances_of(written: &[Spanned<WrittenInstance>]) -> Result<Vec<Instance>, (usize, String)> {
    let mut instances = Vec::new();
    for one in written {
        let place = one.span().start;
        let WrittenInstance {
            name,
            vcpus,
            memory,
            hour,
        } = one.get_ref();
        let Ok(Size(memory_bytes)) = memory.parse() else {
            return Err((
                place,
                format!("`memory` of instance `{name}` must be a size such as 4GiB"),
            ));
        };
        if !(*vcpus > 0.0 && *vcpus <= 10_000.0) {
            return Err((place, format!("`vcpus` of instance `{name}` must be above 0")));
        }
        let Some(hour) = Money::parse(hour) else {
            return Err((
                place,
                format!("`hour` of instance `{name}` must be a decimal number in quotes that is not negative"),
            ));
        };
        instances.push(Instance {
            name: name.clone(),
            millicores: (vcpus * 1000.0) as u64,
            memory_bytes,
            hour,
        });
    }
    instances.sort_by_key(|instance| (instance.hour, instance.memory_bytes));
    Ok(instances)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METERS_TEXT: &str = "vcpu_hour = \"0.04\"\nmemory_gib_hour = \"0.006\"\nnetwork_in_gib = 0\nnetwork_out_gib = \"0.01\"\n\
                               operations_million = \"0.0023\"\n";

    fn file(tables: &[&str]) -> String {
        let tables: String = tables
            .iter()
            .map(|table| format!("[[prices]]\n{table}{METERS_TEXT}"))
            .collect();
        format!("currency = \"USD\"\n{tables}")
    }

    #[test]
    fn prices_have_their_time() {
        let text = file(&[
            "version = \"b\"\nfrom = 2026-03-01\nuntil = 2026-05-01\n",
            "version = \"a\"\nfrom = \"2026-01-01T00:00:00Z\"\n",
        ]);
        let tariff = parse(&text).unwrap();
        assert_eq!((tariff.cpu, tariff.free.len()), (CpuFigure::Modelled, 4));
        for (moment, expected) in [
            ("2025-12-31", None),
            ("2026-01-01", Some("a")),
            ("2026-02-28", Some("a")),
            ("2026-03-01", Some("b")),
            ("2026-04-30", Some("b")),
            ("2026-05-01", None),
        ] {
            let found = tariff
                .at(utc::parse(moment).unwrap())
                .map(|prices| prices.version.as_str());
            assert_eq!(found, expected, "{moment}");
        }
        assert_eq!(tariff.prices[0].units[0], Money::parse("0.04").unwrap());
        assert!(tariff.is_free("redis/ping") && !tariff.is_free("redis/get"));
    }

    #[test]
    fn the_example_can_be_followed() {
        let tariff = parse(include_str!("../../../../prices.example.toml")).unwrap();
        assert_eq!((tariff.prices.len(), tariff.instances.len()), (1, 3));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let one = "version = \"a\"\nfrom = 2026-01-01\n";
        let good = file(&[one]);
        for (text, line, part) in [
            (good.replace("0.04", "-0.04"), 5, "`vcpu_hour` is negative"),
            (
                good.replace("memory_gib_hour = \"0.006\"\n", ""),
                2,
                "no price for `memory_gib_hour`",
            ),
            (good.replace("0.0023", "cheap"), 9, "decimal number"),
            (good.replace("\"0.01\"", "0.01"), 8, "in quotes"),
            (
                good.replace("network_in_gib", "netwrok_in_gib"),
                7,
                "no meter `netwrok_in_gib`",
            ),
            (good.replace("2026-01-01", "2026-13-01"), 4, ""),
            (good.replace("from = 2026-01-01\n", ""), 2, "no `from`"),
            (good.replace("\"a\"", "\"\""), 3, "`version` must be"),
            (
                file(&[
                    "version = \"a\"\nfrom = 2026-01-01\nuntil = 2026-07-01\n",
                    "version = \"b\"\nfrom = 2026-06-01\n",
                ]),
                11,
                "prices `b` overlap prices `a`",
            ),
            (file(&[one, "version = \"b\"\nfrom = 2026-01-01\n"]), 10, "overlap"),
            (file(&[one, "version = \"a\"\nfrom = 2026-02-01\n"]), 10, "already"),
            (
                good.replace("from = 2026-01-01", "from = 2026-01-01\nuntil = 2025-01-01"),
                5,
                "end before they begin",
            ),
            (good.replace("currency = \"USD\"", "currency = \"\""), 1, "`currency`"),
            (good.replace("currency", "curency"), 1, "curency"),
            (format!("cpu = \"guessed\"\n{good}"), 1, "`cpu` must be"),
            (format!("free = [\"lunch\"]\n{good}"), 1, "`lunch`"),
            (
                format!("free = [\"handshakes\"]\n{good}"),
                1,
                "`refused` is measured for no tenant",
            ),
            ("currency = \"USD\"\n".to_owned(), 1, "no prices"),
            (
                format!("{good}[[instances]]\nname = \"s\"\nvcpus = 1\nmemory = \"1GiB\"\nhour = \"-1\"\n"),
                10,
                "`hour`",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert_eq!(error.line, line, "{error}\n{text}");
            assert!(error.message.contains(part), "{part}: {error}");
        }
    }
}

//! Prices: read from their file, and kept in the ledger, so that bills can be made of it alone.

use std::path::Path;
use std::sync::Arc;

use tidemark_control::{Ledger, LedgerReader};
use tidemark_meter::price::{Prices, Tariff, parse};

use crate::failure::Failure;

/// Whether a prices file can be followed. A mistake is named with `place`, where the file was named, and its line.
pub(super) fn check(file: Option<&Path>, place: Option<&str>) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    read(file).map(|_| ()).map_err(|problem| {
        let place = place.map_or_else(|| file.display().to_string(), str::to_owned);
        Failure::usage(format!("{place}: {problem}"))
    })
}

/// A prices file's text, and its tariff.
fn read(file: &Path) -> Result<(String, Tariff), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let tariff = parse(&text).map_err(|error| error.to_string())?;
    Ok((text, tariff))
}

/// The tariff of a prices file, every version of it kept in the ledger of a data folder.
pub(super) fn adopt(file: Option<&Path>, data: &Path) -> anyhow::Result<Option<Arc<Tariff>>> {
    let Some(file) = file else { return Ok(None) };
    let place = file.display();
    let (text, tariff) = read(file).map_err(|problem| Failure::usage(format!("{place}: {problem}")))?;
    let kept = LedgerReader::open(data)?.prices()?;
    for prices in &tariff.prices {
        let before = kept.iter().find(|(version, _)| *version == prices.version);
        let before = before.and_then(|(version, text)| parse(text).ok()?.of_version(version).cloned());
        if before.is_some_and(|before| is_other(&before, prices)) {
            let message = format!(
                "{place}: prices `{}` are in the ledger already with other prices: rows name them, so give the new ones another name",
                prices.version
            );
            return Err(Failure::usage(message).into());
        }
        Ledger::note_prices(data, &prices.version, &text)?;
    }
    Ok(Some(Arc::new(tariff)))
}

/// Whether the content of a version was changed. Its end may be: it follows from the next version's beginning.
fn is_other(before: &Prices, now: &Prices) -> bool {
    (before.from, before.units) != (now.from, now.units)
}

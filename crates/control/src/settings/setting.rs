//! Questions about one setting, answered by its row of the table.

use std::time::Duration;

use tidemark_types::{Size, format_duration};

use super::table::{Setting, SettingsPatch, TenantSettings, Unset, ValueKind};
use super::value::{Bounds, PlainValue, Wrong};
use crate::error::{Refusal, RefusalKind};

impl ValueKind {
    /// The type of its column in the state file.
    pub fn column_type(self) -> &'static str {
        match self {
            Self::Size | Self::Count | Self::Time | Self::Ratio => "INTEGER",
            Self::Text => "TEXT",
        }
    }
}

impl Setting {
    /// Reads a new value from a body of the API into a patch.
    ///
    /// # Errors
    /// The value is none of this setting: with its place and the values that are allowed. Whether a number is within the
    /// bounds is seen when the patch is applied.
    pub fn read(&self, patch: &mut SettingsPatch, value: &PlainValue) -> Result<(), Refusal> {
        (self.access.read)(patch, value, self.bounds).map_err(|wrong| self.refusal(wrong))
    }

    /// Lets a patch clear the setting.
    pub fn clear(&self, patch: &mut SettingsPatch) {
        (self.access.clear)(patch);
    }

    /// The setting in answers of the API; `None`: null.
    pub fn told(&self, settings: &TenantSettings) -> Option<PlainValue> {
        let set = (self.access.write)(settings);
        match self.unset {
            Unset::InForce { value, matters } if matters(settings) => set.or_else(|| Some(PlainValue::Text(value()))),
            Unset::InForce { .. } => None,
            Unset::Nothing | Unset::Measured(_) | Unset::Value(_) => set,
        }
    }

    /// The setting as the state file keeps it: a number or a text; `None`: null.
    pub fn stored(&self, settings: &TenantSettings) -> Option<PlainValue> {
        (self.access.store)(settings)
    }

    /// Reads what the state file kept.
    ///
    /// # Errors
    /// No version writes such a value.
    pub fn restore(&self, settings: &mut TenantSettings, stored: &PlainValue) -> Result<(), Refusal> {
        (self.access.restore)(settings, stored).map_err(|wrong| self.refusal(wrong))
    }

    /// The help of its option, with bounds, names and default in their places.
    pub fn help(&self) -> String {
        let mut help = self.help.to_owned();
        if let Some(Bounds { least, most, .. }) = self.bounds {
            help = help
                .replace("{least}", &self.shown(least))
                .replace("{most}", &self.shown(most));
        }
        help = help.replace("{names}", &alternatives(&(self.access.names)()));
        match self.unset {
            Unset::Nothing => {}
            Unset::Measured(how) => help.push_str(&format!(" [default: {how}]")),
            Unset::Value(value) | Unset::InForce { value, .. } => help.push_str(&format!(" [default: {}]", value())),
        }
        help
    }

    /// A number of the API as people write it.
    pub fn shown(&self, number: u64) -> String {
        match self.kind {
            ValueKind::Size => Size(number).to_string(),
            ValueKind::Time => format_duration(Duration::from_micros(number)),
            ValueKind::Count | ValueKind::Ratio | ValueKind::Text => number.to_string(),
        }
    }

    /// Checks that the setting is within its bounds.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn check(&self, settings: &TenantSettings) -> Result<(), Refusal> {
        let (Some(Bounds { least, most, note }), Some(PlainValue::Number(given))) =
            (self.bounds, (self.access.write)(settings))
        else {
            return Ok(());
        };
        if (least..=most).contains(&given) {
            return Ok(());
        }
        let message = format!(
            "a {} of {} is not possible: allowed are {} to {}{note}",
            self.noun,
            self.shown(given),
            self.shown(least),
            self.shown(most)
        );
        Err(Refusal::new(RefusalKind::Invalid, message)
            .field(self.place.path)
            .allowed([format!("{least} to {most}"), "null".into()]))
    }

    fn refusal(&self, wrong: Wrong) -> Refusal {
        let (message, allowed) = match wrong {
            Wrong::Needed(needed, allowed) => (format!("`{}` must be {needed}", self.place.path), allowed),
            Wrong::Said(message, allowed) => (message, allowed),
        };
        Refusal::new(RefusalKind::Invalid, message)
            .field(self.place.path)
            .allowed(allowed)
    }
}

/// `a, b or c`.
fn alternatives(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

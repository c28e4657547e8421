//! The outcome of other settings, for whoever asks before making them.

use super::Controller;
use super::views::previewed_view;
use crate::error::ControlError;
use crate::settings::SettingsPatch;
use crate::view::PreviewView;

impl Controller {
    /// The outcome of the next plans if the settings were changed like this.
    pub(crate) fn preview(&mut self, name: &str, patch: SettingsPatch) -> Result<PreviewView, ControlError> {
        let now = self.refresh();
        let record = &self.existing(name)?.record;
        let (id, settings) = (record.id, patch.of(record.settings));
        self.check_settings(Some(id), &settings)?;
        let hourly = |limit| self.metered.as_ref()?.hourly(id, &limit, self.clock.wall());
        let budget = settings.spending_limit().and_then(hourly);
        let tenants = self.book.preview(id, &settings, budget, now);
        Ok(PreviewView {
            pool_bytes: self.book.pool_bytes(),
            tenants: tenants.into_iter().map(previewed_view).collect(),
        })
    }
}

//! The heaviest parts of a tenant's load.

use super::{Controller, not_found};
use crate::error::ControlError;
use crate::view::TopView;

impl Controller {
    pub(crate) fn top(&mut self, name: &str) -> Result<TopView, ControlError> {
        self.refresh();
        let tenant = self.book.find(name).ok_or_else(|| not_found(name))?;
        let metered = self.metered.as_ref();
        Ok(metered.map_or_else(TopView::default, |metered| {
            metered.top(tenant.record.id, self.clock.wall())
        }))
    }
}

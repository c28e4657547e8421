//! A tenant's moves and curve, for whoever asks.

use super::views::{curve_view, move_views};
use super::{Controller, not_found};
use crate::error::ControlError;
use crate::view::{CurveView, MoveView};

impl Controller {
    pub(crate) fn moves(&mut self, name: &str) -> Result<Vec<MoveView>, ControlError> {
        self.refresh();
        let tenant = self.book.find(name).ok_or_else(|| not_found(name))?;
        Ok(move_views(tenant, |change| self.book.name_of_other(change)))
    }

    pub(crate) fn curve(&mut self, name: &str) -> Result<CurveView, ControlError> {
        let now = self.refresh();
        let tenant = self.book.find(name).ok_or_else(|| not_found(name))?;
        Ok(curve_view(
            tenant.curve(now).as_ref(),
            tenant.grant_bytes,
            &tenant.goal(now),
            tenant.policy,
        ))
    }
}

//! The settings of tenants and of the server. Values are checked here, before anything is stored.
//!
//! Units: bytes, except where a name says otherwise.

mod bounds;
mod check;
mod server;
mod setting;
mod table;
mod tenant;
#[cfg(test)]
pub(crate) mod tests;
mod value;

pub use bounds::*;
pub(crate) use check::{check_flash_floors, check_floors, check_name, check_spending, check_tenant, round_up};
pub use server::{Idling, ServerPatch};
pub(crate) use server::{check_idling, check_pool, check_round_period};
pub use table::{
    ApiPlace, FlashPatch, FlashSettings, SETTINGS, Setting, SettingsPatch, StateColumn, TenantSettings, Unset,
    ValueKind,
};
pub use value::{Bounds, Change, PlainValue};

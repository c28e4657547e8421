//! Whether a command of a window has to wait for its key to come from flash.

use std::sync::Arc;

use tidemark_store::Key;

use super::{Executor, Member};
use crate::access::{Access, access_to};
use crate::session::Session;
use crate::step::Step;
use crate::suspend::seek;
use crate::tenant::Tenant;

impl<'a> Executor<'_, 'a> {
    /// Asks for a step's key, if the step depends on the item. Whether that has to be waited for.
    #[cold]
    pub(super) fn seeks<'t>(
        &mut self,
        step: &Step<'a>,
        tenant: &'t Arc<Tenant>,
        session: &Session,
        access: &mut Option<Access<'t>>,
    ) -> bool {
        let waits = &mut self.parts[step.member].visit.waits;
        if step.is_blind() || waits.sought() > 0 {
            return false;
        }
        let key = Key {
            db: step.db(session),
            bytes: step.key(),
            hash: step.hash,
        };
        let access = access_to(access, &tenant.store);
        access.flush_if_due(self.now);
        waits.note_sought();
        let wait = seek(tenant, access.shard_of(step.hash), &key, step.purpose(), self.now);
        wait.is_some_and(|wait| waits.push(wait))
    }

    /// Asks for the key of a step behind one that waits for flash: a pipeline's reads are under way together.
    #[inline]
    pub(super) fn seeks_ahead<'t>(&mut self, step: &Step<'a>, group: &'t [Member], access: &mut Option<Access<'t>>) {
        let session = &group[step.member].1.session;
        if let Some(tenant) = session.tenant.as_ref().filter(|tenant| tenant.tier.is_some())
            && self.parts[step.member].visit.waits.may_add()
        {
            let key = Key {
                db: step.db(session),
                bytes: step.key(),
                hash: step.hash,
            };
            let shard = access_to(access, &tenant.store).shard_of(step.hash);
            if !step.is_blind()
                && let Some(wait) = seek(tenant, shard, &key, step.purpose(), self.now)
            {
                self.parts[step.member].visit.waits.push(wait);
            }
        }
    }
}

//! Rotating a tenant's secrets: what is refused, and which ones end. Pure: a record in, a record out.

use tidemark_types::Permissions;

use crate::error::{Refusal, RefusalKind};
use crate::secret::{NewSecret, SecretName};
use crate::state::{MAX_SECRET_NAMES, MAX_SECRETS, TenantRecord};

/// Makes room for a new secret. Returns what it allows.
///
/// # Errors
/// There are two of the name, of which the older one may be in use; or there are too many names.
pub(super) fn admit(record: &mut TenantRecord, new: &NewSecret) -> Result<Permissions, Refusal> {
    let of_name = record.secrets.iter().filter(|secret| secret.name == new.name);
    let newest = of_name.clone().next_back().map(|secret| secret.permissions);
    if of_name.count() >= MAX_SECRETS {
        if !new.is_forced {
            let message = format!(
                "tenant `{}` has two secrets named `{}`, and the older one may be in use: end it with `finish`, or say \
                 `force`",
                record.name, new.name
            );
            return Err(Refusal::new(RefusalKind::OverLimit, message).field("force"));
        }
        if let Some(oldest) = record.secrets.iter().position(|secret| secret.name == new.name) {
            record.secrets.remove(oldest);
        }
    }
    if newest.is_none() && names(record) >= MAX_SECRET_NAMES {
        let message = format!(
            "tenant `{}` has secrets of {MAX_SECRET_NAMES} names: a tenant has at most that many",
            record.name
        );
        return Err(Refusal::new(RefusalKind::OverLimit, message).field("secret_name"));
    }
    // The permissions of one secret of the tenant's own name do not leak into the next one.
    let as_before = newest.filter(|_| !new.name.is_default());
    Ok(new.permissions.or(as_before).unwrap_or(Permissions::ALL))
}

/// Ends all secrets of a name but the newest.
///
/// # Errors
/// There is none of that name. The open tenant has none of the name that a tenant is made with, and that is right.
pub(super) fn finish(record: &mut TenantRecord, of: &SecretName) -> Result<(), Refusal> {
    let newest = record.secrets.iter().rposition(|secret| secret.name == *of);
    if newest.is_none() && !of.is_default() {
        return Err(unknown(record, of));
    }
    let mut place = 0;
    record.secrets.retain(|secret| {
        place += 1;
        secret.name != *of || Some(place - 1) == newest
    });
    Ok(())
}

/// Ends all secrets of a name.
///
/// # Errors
/// There is none, or no other name is left.
pub(super) fn end(record: &mut TenantRecord, of: &SecretName) -> Result<(), Refusal> {
    if record.secrets.iter().all(|secret| secret.name != *of) {
        return Err(unknown(record, of));
    }
    if names(record) == 1 {
        let message = format!("tenant `{}` has no secret but `{of}`: nobody could log in", record.name);
        return Err(Refusal::new(RefusalKind::OverLimit, message).field("secret_name"));
    }
    record.secrets.retain(|secret| secret.name != *of);
    Ok(())
}

fn unknown(record: &TenantRecord, of: &SecretName) -> Refusal {
    let message = format!("tenant `{}` has no secret named `{of}`", record.name);
    Refusal::new(RefusalKind::NotFound, message).field("secret_name")
}

fn names(record: &TenantRecord) -> usize {
    let mut names: Vec<&str> = record.secrets.iter().map(|secret| secret.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

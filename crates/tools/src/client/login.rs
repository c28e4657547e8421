//! The identity of a connection.

use std::fmt;

use tidemark_types::TenantName;

use crate::Error;

/// A tenant and its secret.
#[derive(Clone)]
pub struct Login {
    /// The tenant.
    pub tenant: TenantName,
    secret: Box<str>,
}

impl Login {
    /// The secret's text, for the login request only.
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, ..)", self.tenant)
    }
}

/// The secrets that were given: one for every tenant, or one for each by name.
#[derive(Clone, Default)]
pub struct Secrets {
    common: Option<Box<str>>,
    by_name: Vec<(Box<str>, Box<str>)>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.by_name.iter().map(|(name, _)| &**name).collect();
        write!(f, "Secrets({names:?})")
    }
}

impl Secrets {
    /// Reads a single secret, or lines of `name secret`; empty lines are passed over.
    ///
    /// # Errors
    /// A line has more than two words, or a single secret stands among others. The message quotes no secret.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let mut secrets = Self::default();
        for (number, words) in lines.iter().enumerate() {
            match words[..] {
                [] => {}
                [secret] if secrets.common.is_none() && secrets.by_name.is_empty() => {
                    secrets.common = Some(secret.into());
                }
                [name, secret] if secrets.common.is_none() => secrets.by_name.push((name.into(), secret.into())),
                _ => {
                    let expected = "either a single secret or lines of `name secret`";
                    return Err(Error::Usage(format!(
                        "line {} of the secrets: expected {expected}",
                        number + 1
                    )));
                }
            }
        }
        Ok(secrets)
    }

    /// How connections of `tenant` log in: not at all for the open tenant `default` if it was given no secret.
    ///
    /// # Errors
    /// There is no secret for it.
    pub fn login(&self, tenant: &TenantName) -> Result<Option<Login>, Error> {
        let own = self
            .by_name
            .iter()
            .find(|(name, _)| **name == *tenant.as_str())
            .map(|(_, secret)| secret);
        match own.or(self.common.as_ref().filter(|_| !tenant.is_default())) {
            Some(secret) => Ok(Some(Login {
                tenant: tenant.clone(),
                secret: secret.clone(),
            })),
            None if tenant.is_default() => Ok(None),
            None => Err(Error::Usage(format!(
                "no secret for tenant `{tenant}`: set TIDEMARK_SECRET or give --secret-file with the secret or a line `{tenant} SECRET`"
            ))),
        }
    }
}

//! Which environment variables the server knows, so that a mistyped one is not passed over in silence.

use std::ffi::OsString;

use super::nearest::nearest;
use super::{OPTIONS, OptionError};

const PREFIX: &str = "TIDEMARK_";
/// Variables that are no option of the server: the file, the log's level, those of other commands and the tests.
const OTHERS: [&str; 5] = ["CONFIG", "LOG", "SECRET", "TRACES", "PROGRAM"];
/// Kubernetes sets these in each container for a service of this name (Kubernetes, "Service", environment variables):
/// `TIDEMARK_PORT`, `TIDEMARK_PORT_11211_TCP_ADDR`, `TIDEMARK_SERVICE_HOST`. `TIDEMARK_TEST_` is the tests' own.
const OTHERS_BEGIN: [&str; 3] = ["PORT", "SERVICE_", "TEST_"];

/// Refuses a variable that begins as the server's do and is none of them.
///
/// # Errors
/// It names the variable, and the one that is nearest to it.
pub(crate) fn check(names: impl Iterator<Item = OsString>) -> Result<(), OptionError> {
    let known = || OPTIONS.iter().map(super::OptionSpec::variable);
    for name in names {
        let name = name.to_string_lossy();
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let is_other = OTHERS.contains(&rest) || OTHERS_BEGIN.iter().any(|begin| rest.starts_with(begin));
        if is_other || known().any(|known| known == name) {
            continue;
        }
        let all: Vec<String> = known().chain(OTHERS.map(|rest| format!("{PREFIX}{rest}"))).collect();
        let near = nearest(&name.to_ascii_uppercase(), all.iter().map(String::as_str));
        let hint = near.map_or_else(String::new, |near| format!(": did you mean {near}?"));
        return Err(OptionError(format!("there is no option {name} (environment){hint}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_variables_are_named_with_the_nearest() {
        for (name, expected) in [
            ("PATH", None),
            ("TIDEMARK_MEMORY", None),
            ("TIDEMARK_LOG", None),
            ("TIDEMARK_SERVICE_HOST", None),
            ("TIDEMARK_PORT_11211_TCP", None),
            ("TIDEMARK_MEMROY", Some("TIDEMARK_MEMORY")),
            ("TIDEMARK_LOGS", Some("TIDEMARK_LOG")),
            ("TIDEMARK_memory", Some("TIDEMARK_MEMORY")),
        ] {
            let found = check([name.into()].into_iter());
            match expected {
                None => assert_eq!(found, Ok(()), "{name}"),
                Some(near) => {
                    let OptionError(message) = found.unwrap_err();
                    assert!(message.contains(name) && message.contains(near), "{message}");
                }
            }
        }
    }
}

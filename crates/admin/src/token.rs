//! The token that a call over TCP must carry: made at the first start, kept in a file that only its owner reads.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;

use crate::AdminError;

/// The admin token's file in the data folder.
pub const TOKEN_FILE_NAME: &str = "admin.token";
/// 256 bits.
const TOKEN_BYTES: usize = 32;
/// Fewer characters than half of a token's are no token; somebody who writes their own may use as many as these.
const MIN_CHARACTERS: usize = 20;
/// A token is read whole into memory.
const MAX_CHARACTERS: u64 = 4096;

/// The token. Its `Debug` is blank, so that no log gets it by accident.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// From its file, or a new one where there is none yet: then `true`.
    pub(crate) fn load_or_create(folder: &Path) -> Result<(Self, bool), AdminError> {
        let path = folder.join(TOKEN_FILE_NAME);
        match File::open(&path) {
            Ok(file) => Ok((Self::load(&path, file)?, false)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((Self::create(&path)?, true)),
            Err(source) => Err(failed("read", &path, source)),
        }
    }

    fn load(path: &Path, file: File) -> Result<Self, AdminError> {
        let mode = file
            .metadata()
            .map_err(|source| failed("read", path, source))?
            .permissions()
            .mode();
        if mode & 0o077 != 0 {
            let mode = format!("{:o}", mode & 0o777);
            tracing::warn!(path = %path.display(), mode, "others can read the admin token");
        }
        let mut text = String::new();
        file.take(MAX_CHARACTERS)
            .read_to_string(&mut text)
            .map_err(|source| failed("read", path, source))?;
        let text = text.trim();
        let is_token = text.len() >= MIN_CHARACTERS && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_token {
            Ok(Self(text.into()))
        } else {
            Err(AdminError::BadToken(path.into()))
        }
    }

    fn create(path: &Path) -> Result<Self, AdminError> {
        let mut bytes = [0_u8; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| AdminError::System {
            what: "random numbers",
            detail: error.to_string(),
        })?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        write_private(path, &token).map_err(|source| failed("write", path, source))?;
        Ok(Self(token))
    }

    /// The text itself, for its one showing.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether an `Authorization` header carries this token. Takes the same time for every wrong token of one length.
    pub(crate) fn is_in(&self, authorization: &[u8]) -> bool {
        bearer(authorization).is_some_and(|text| bool::from(text.ct_eq(self.0.as_bytes())))
    }
}

/// The token in an `Authorization` header; `None` of another scheme.
pub(crate) fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let scheme_end = authorization.iter().position(|byte| *byte == b' ');
    let (scheme, rest) = authorization.split_at(scheme_end.unwrap_or(authorization.len()));
    scheme.eq_ignore_ascii_case(b"bearer").then(|| rest.trim_ascii())
}

/// Writes a line or more to a file that only its owner reads: whole or not at all, also when the machine stops meanwhile.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let new_path = path.with_added_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new_path)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&new_path, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> AdminError {
    AdminError::Token {
        doing,
        path: path.into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let (token, is_new) = Token::load_or_create(folder.path()).unwrap();
        assert!(is_new && token.expose().len() == 43);
        let mode = fs::metadata(folder.path().join(TOKEN_FILE_NAME))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let (again, is_new) = Token::load_or_create(folder.path()).unwrap();
        assert!(!is_new);
        assert_eq!(again.expose(), token.expose());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_without_a_token_is_named() {
        for text in [
            "",
            "\n",
            "short",
            "long enough but with spaces",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(TOKEN_FILE_NAME);
            fs::write(&path, text).unwrap();
            let error = Token::load_or_create(folder.path()).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn only_the_right_token_opens() {
        let token = Token("0123456789abcdefghij".into());
        for (header, opens) in [
            ("Bearer 0123456789abcdefghij", true),
            ("bearer  0123456789abcdefghij ", true),
            ("Bearer 0123456789abcdefghiJ", false),
            ("Bearer 0123456789abcdefghi", false),
            ("Bearer 0123456789abcdefghijk", false),
            ("Basic 0123456789abcdefghij", false),
            ("Bearer", false),
            ("Bearer ", false),
            ("0123456789abcdefghij", false),
            ("", false),
        ] {
            assert_eq!(token.is_in(header.as_bytes()), opens, "{header:?}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}

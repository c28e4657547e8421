//! The first member of a backup: a list of the others.

use std::fmt::Write as _;
use std::path::Path;

use tidemark_types::utc;

use super::{Backup, BackupFile};

/// The manifest's name in the archive.
pub(super) const MANIFEST_NAME: &str = "MANIFEST";
/// The longest manifest that is read: some thousands of members, where a backup has five.
pub(super) const MANIFEST_BYTES_MAX: u64 = 1 << 20;
const TITLE: &str = "tidemark-backup";
const VERSION: &str = "1";

pub(super) fn write(backup: &Backup) -> String {
    let mut text = format!("{TITLE} {VERSION} {}\n", utc::rfc3339(backup.taken_at));
    for file in &backup.files {
        let _ = writeln!(text, "{} {} {}", hex(&file.hash), file.bytes, file.name);
    }
    text
}

/// Reads a manifest.
///
/// # Errors
/// The fault of it, in words that follow the file's name.
pub(super) fn read(text: &str) -> Result<Backup, String> {
    let mut lines = text.lines();
    let mut title = lines.next().unwrap_or_default().split(' ');
    if title.next() != Some(TITLE) {
        return Err(format!("it does not begin with `{TITLE}`"));
    }
    match title.next() {
        Some(VERSION) => {}
        version => {
            let found = version.unwrap_or("none");
            return Err(format!("its version is {found}, and this Tidemark reads {VERSION}"));
        }
    }
    let taken_at = title
        .next()
        .and_then(utc::parse)
        .ok_or("it does not say when it was taken")?;
    let mut files = Vec::new();
    for line in lines {
        let file = member(line).ok_or_else(|| format!("`{line}` does not describe a member"))?;
        if files.iter().any(|other: &BackupFile| other.name == file.name) {
            return Err(format!("it lists `{}` twice", file.name));
        }
        files.push(file);
    }
    Ok(Backup { taken_at, files })
}

fn member(line: &str) -> Option<BackupFile> {
    let mut parts = line.splitn(3, ' ');
    let hash = from_hex(parts.next()?)?;
    let bytes = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    // A name is put behind the data folder's: it must stay in it.
    let is_plain = Path::new(name).file_name().is_some_and(|plain| plain == name) && !name.contains('\0');
    is_plain.then(|| BackupFile {
        name: name.into(),
        bytes,
        hash,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

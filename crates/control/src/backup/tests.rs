//! Backups over real files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidemark_types::{Permissions, SecretHash, UnixMs};

use super::{restore, take};
use crate::error::ControlError;
use crate::secret::SecretName;
use crate::settings::TenantSettings;
use crate::state::{READY_NAME, State as _, StateFile, StoredSecret, complete};

const NOW: UnixMs = UnixMs(1_795_762_800_000);
const KEY: &str = "s3.key";

fn add(state: &mut StateFile, name: &str) {
    let secret = StoredSecret {
        name: SecretName::default(),
        hash: SecretHash([7; 32]),
        permissions: Permissions::ALL,
        created_at: NOW,
    };
    state
        .add_tenant(&name.parse().unwrap(), TenantSettings::default(), secret)
        .unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let state = StateFile::open(folder, NOW).unwrap();
    let tenants = state.tenants().unwrap();
    tenants.iter().map(|tenant| tenant.name.to_string()).collect()
}

/// A data folder with the tenants `default` and `shop` and a key, and a backup of it.
fn backed_up() -> (TempDir, PathBuf, PathBuf) {
    let place = TempDir::new().unwrap();
    let folder = place.path().join("data");
    let mut state = StateFile::open(&folder, NOW).unwrap();
    add(&mut state, "shop");
    fs::write(folder.join(KEY), "a key").unwrap();
    let archive = place.path().join("backup");
    // The file is open, as while a server runs.
    take(&folder, &archive, &[KEY, "absent"], NOW).unwrap();
    (place, folder, archive)
}

#[test]
fn what_was_there_when_it_was_taken_comes_back() {
    let (place, folder, archive) = backed_up();
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let mut state = StateFile::open(&folder, NOW).unwrap();
    add(&mut state, "blog");
    drop(state);
    fs::write(folder.join(KEY), "another key").unwrap();
    let other = place.path().join("other");
    for (target, replace) in [(&other, false), (&folder, true)] {
        let backup = restore(&archive, target, replace, NOW).unwrap();
        assert_eq!(backup.taken_at, NOW);
        assert_eq!(names(target), ["default", "shop"]);
        assert_eq!(fs::read_to_string(target.join(KEY)).unwrap(), "a key");
    }
    let aside = folder.join("replaced-20261127T070000Z");
    assert_eq!(names(&aside), ["default", "shop", "blog"]);
    assert_eq!(fs::read_to_string(aside.join(KEY)).unwrap(), "another key");
    let rest = fs::read_dir(place.path()).unwrap().count();
    assert_eq!(rest, 3, "data, other and backup");
}

#[test]
fn the_system_copies_a_state_that_is_in_use() {
    let (place, folder, _) = backed_up();
    let mut state = StateFile::open(&folder, NOW).unwrap();
    let reader = rusqlite::Connection::open(folder.join("state.sqlite")).unwrap();
    let count = |reader: &rusqlite::Connection| -> i64 {
        reader
            .query_row("SELECT count(*) FROM tenants", [], |row| row.get(0))
            .unwrap()
    };
    assert_eq!(count(&reader), 2);
    add(&mut state, "blog");
    assert_eq!(count(&reader), 3);
    drop(place);
}

#[test]
fn nothing_is_overwritten_unasked() {
    let (_place, folder, archive) = backed_up();
    let refused = take(&folder, &archive, &[], NOW).unwrap_err().to_string();
    assert!(refused.contains("exists already"), "{refused}");
    let refused = restore(&archive, &folder, false, NOW).unwrap_err().to_string();
    assert!(refused.contains("--replace"), "{refused}");
    assert!(
        take(&folder.join("none"), &archive, &[], NOW)
            .unwrap_err()
            .to_string()
            .contains("no data folder")
    );
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let (_place, folder, archive) = backed_up();
    let state = StateFile::open(&folder, NOW).unwrap();
    let refused = restore(&archive, &folder, true, NOW).unwrap_err();
    assert!(matches!(refused, ControlError::InUse { .. }), "{refused}");
    drop(state);
    assert_eq!(names(&folder), ["default", "shop"]);
}

#[test]
fn an_archive_with_any_byte_changed_or_missing_is_refused_or_gives_the_same() {
    let (place, _, archive) = backed_up();
    let whole = fs::read(&archive).unwrap();
    let changed = place.path().join("changed");
    let target = place.path().join("target");
    let check = |bytes: &[u8], case: &str| {
        fs::write(&changed, bytes).unwrap();
        match restore(&changed, &target, false, NOW) {
            // A tar archive has bytes that mean nothing, as an owner's number.
            Ok(_) => assert_eq!(names(&target), ["default", "shop"], "{case}"),
            Err(_) => assert!(!target.join("state.sqlite").exists(), "{case}"),
        }
        let _ = fs::remove_dir_all(&target);
    };
    for place in (0..whole.len()).step_by(211) {
        let mut bytes = whole.clone();
        *bytes.get_mut(place).unwrap() ^= 1 << (place % 8);
        check(&bytes, &format!("byte {place}"));
        check(whole.get(..place).unwrap(), &format!("cut at {place}"));
    }
}

#[test]
fn a_restore_that_was_cut_off_is_completed_by_the_next_start() {
    let (place, folder, archive) = backed_up();
    let mut state = StateFile::open(&folder, NOW).unwrap();
    add(&mut state, "blog");
    drop(state);
    let other = place.path().join("other");
    restore(&archive, &other, false, NOW).unwrap();
    // As after a kill between the commit and the first move, and between two moves.
    for moved in [None, Some(KEY)] {
        let ready = folder.join(READY_NAME);
        fs::create_dir(&ready).unwrap();
        for name in ["state.sqlite", KEY] {
            let to = if moved == Some(name) {
                folder.join(name)
            } else {
                ready.join(name)
            };
            fs::copy(other.join(name), to).unwrap();
        }
        assert_eq!(names(&folder), ["default", "shop"]);
        assert!(!ready.exists());
        complete(&folder, NOW).unwrap();
    }
}

//! The state file accepts some values and refuses others, and a refused write changes nothing.

mod versions;

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use tidemark_types::{Policy, PolicyChoice, Weight};

use super::*;
use crate::settings::{SETTINGS, Setting, tests::full as settings};

const NOW: UnixMs = UnixMs(1_700_000_000_000);

fn secret(byte: u8) -> StoredSecret {
    StoredSecret {
        name: SecretName::default(),
        hash: SecretHash([byte; 32]),
        permissions: Permissions::READ.with(Permissions::WRITE),
        created_at: NOW,
    }
}

fn open(folder: &Path) -> StateFile {
    StateFile::open(folder, NOW).unwrap()
}

/// A folder in memory where that is possible, for files that are opened or written thousands of times.
fn quick_folder() -> tempfile::TempDir {
    let memory = Some(Path::new("/dev/shm")).filter(|memory| memory.is_dir());
    memory.map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap()
}

/// Thousands that come and go leave nothing behind: the others take the same memory again.
#[test]
fn tenants_that_come_and_go_leave_no_rows_and_no_bytes() {
    let folder = quick_folder();
    let mut file = open(folder.path());
    let mut come_and_go = |times: u32| {
        for number in 0..times {
            let name = format!("t{number}").parse().unwrap();
            let tenant = file.add_tenant(&name, settings(), secret(1)).unwrap();
            file.remember(&[(tenant.id, Some(1 << 20))]).unwrap();
            file.remove_tenant(tenant.id).unwrap();
        }
        let files = fs::read_dir(folder.path()).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let bytes = come_and_go(500);
    assert!(come_and_go(1_500) <= bytes + bytes / 8, "{bytes} before");
    assert_eq!(file.tenants().unwrap().len(), 1, "the open one");
    let rows = |table: &str| -> u64 {
        let count = format!("SELECT count(*) FROM {table}");
        file.connection.query_row(&count, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((rows("tenants"), rows("secrets")), (1, 0));
}

#[test]
fn everything_is_read_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = open(&folder.path().join("new/folder"));
    let names: Vec<_> = file
        .tenants()
        .unwrap()
        .iter()
        .map(|tenant| tenant.name.to_string())
        .collect();
    assert_eq!(names, ["default"]);
    let mut shop = file
        .add_tenant(&"shop".parse().unwrap(), settings(), secret(1))
        .unwrap();
    let blog = file
        .add_tenant(&"blog".parse().unwrap(), settings(), secret(3))
        .unwrap();
    let reader = StoredSecret {
        name: "reader".parse().unwrap(),
        ..secret(2)
    };
    shop.secrets.push(reader);
    shop.settings.policy = Some(PolicyChoice::Genie);
    shop.settings.hit_ratio = None;
    shop.settings.weight = Weight::new(2);
    shop.settings.limits.ops_per_second = None;
    shop.settings.limits.connections = Some(4);
    shop.version = 2;
    // The remembered grant is written by itself, and stays when a tenant is changed.
    file.remember(&[(shop.id, Some(5 << 20)), (blog.id, Some(1)), (TenantId(77), Some(1))])
        .unwrap();
    file.remember(&[(blog.id, None)]).unwrap();
    shop.remembered_grant_bytes = Some(5 << 20);
    file.update_tenant(&shop).unwrap();
    let server = ServerSettings {
        pool: Some(PoolSetting {
            bytes: 1 << 40,
            configured_bytes: 1 << 30,
        }),
        round_period: Some(Duration::from_millis(100)),
    };
    file.set_server(&server).unwrap();
    let folder_of_state = folder.path().join("new/folder");
    assert_eq!(
        StateFile::peek_server(&folder_of_state).unwrap(),
        Some(server),
        "in use"
    );
    drop(file);
    assert_eq!(
        StateFile::peek_server(&folder_of_state).unwrap(),
        Some(server),
        "closed"
    );
    assert_eq!(StateFile::peek_server(folder.path()).unwrap(), None, "not there");

    let file = open(&folder.path().join("new/folder"));
    let tenants = file.tenants().unwrap();
    assert_eq!(format!("{:?}", tenants[1]), format!("{shop:?}"));
    assert_eq!(format!("{:?}", tenants[2]), format!("{blog:?}"));
    assert_eq!(tenants[1].secrets[1].hash.0, [2; 32]);
    assert_eq!(tenants[1].secrets[1].name.as_str(), "reader");
    assert_eq!(file.server().unwrap(), server);
}

#[test]
fn a_number_is_never_used_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let mut file = open(folder.path());
        let tenant = file
            .add_tenant(&"shop".parse().unwrap(), settings(), secret(1))
            .unwrap();
        assert!(tenant.id.0 > last);
        last = tenant.id.0;
        file.remove_tenant(tenant.id).unwrap();
    }
    let file = open(folder.path());
    let secrets: i64 = file
        .connection
        .query_row("SELECT count(*) FROM secrets", [], |row| row.get(0))
        .unwrap();
    assert_eq!(secrets, 0, "secrets leave with their tenant");
}

#[test]
fn only_its_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut file = open(&data);
    file.add_tenant(&"shop".parse().unwrap(), settings(), secret(1))
        .unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    for entry in fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    drop(file);
    let state = data.join("state.sqlite");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o644)).unwrap();
    drop(open(&data));
    assert_eq!(mode(&state), 0o600, "a copy that others may read is closed to them");
}

#[test]
fn a_second_instance_is_told_who_is_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let error = StateFile::open(folder.path(), NOW).unwrap_err().to_string();
    let (lock, pid) = (folder.path().join("lock"), std::process::id());
    assert!(
        error.contains(&lock.display().to_string()) && error.contains(&format!("process {pid}")),
        "{error}"
    );
    drop(first);
    open(folder.path());
}

/// The damage to a file between two starts.
enum Harm {
    Replaced(&'static [u8]),
    Halved,
    Flipped,
    /// One letter of one of the two places where SQLite keeps the name: in the table and in the index.
    Misindexed,
    /// A free page that is not there, in the header (SQLite file format, 1.3.9).
    Miscounted,
    FolderInstead,
    /// As a version of this program would have written it.
    Sql(&'static str),
    /// Without the checksum that belongs to it.
    Unnoted(&'static str),
}

impl Harm {
    fn do_to(&self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        match self {
            Self::Replaced(with) => fs::write(path, with).unwrap(),
            Self::Halved => fs::write(path, &bytes[..bytes.len() / 2]).unwrap(),
            Self::Flipped => {
                bytes.iter_mut().skip(4096).step_by(7).for_each(|byte| *byte ^= 0x55);
                fs::write(path, bytes).unwrap();
            }
            Self::Misindexed => {
                let place = bytes.windows(7).rposition(|window| window == b"default").unwrap();
                bytes[place] ^= 1;
                fs::write(path, bytes).unwrap();
            }
            Self::Miscounted => {
                bytes[39] = 1;
                fs::write(path, bytes).unwrap();
            }
            Self::FolderInstead => {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            }
            Self::Sql(text) => {
                let mut file = Connection::open(path).unwrap();
                file.execute_batch(text).unwrap();
                let transaction = file.transaction().unwrap();
                // If the tables are not all there any more, there is none.
                if checksum::begin(&transaction).is_ok() {
                    transaction.commit().unwrap();
                }
            }
            Self::Unnoted(text) => Connection::open(path).unwrap().execute_batch(text).unwrap(),
        }
    }
}

#[test]
fn what_is_not_a_whole_state_file_is_refused_and_left_alone() {
    for (message, harm) in [
        ("is empty", Harm::Replaced(b"")),
        ("does not begin as an SQLite file", Harm::Replaced(b"hello")),
        ("does not begin as an SQLite file", Harm::Replaced(&[0; 40_000])),
        ("is damaged", Harm::Halved),
        ("is damaged", Harm::Flipped),
        ("index", Harm::Misindexed),
        ("(Freelist: ", Harm::Miscounted),
        ("can not open", Harm::FolderInstead),
        (
            "but not a state file of Tidemark",
            Harm::Sql("PRAGMA application_id = 5"),
        ),
        ("newer Tidemark (schema 99", Harm::Sql("PRAGMA user_version = 99")),
        ("no version wrote schema 0", Harm::Sql("PRAGMA user_version = 0")),
        ("no such table", Harm::Sql("DROP TABLE server")),
        (
            "the checksum differs): restore a copy",
            Harm::Unnoted("UPDATE tenants SET version = 2"),
        ),
        (
            "the checksum differs",
            Harm::Unnoted("UPDATE sqlite_sequence SET seq = 9"),
        ),
        ("its checksum is missing", Harm::Unnoted("DELETE FROM checksum")),
        ("its checksum is missing", Harm::Unnoted("DROP TABLE checksum")),
        ("schema 3 has no checksum", Harm::Unnoted("PRAGMA user_version = 3")),
        (
            "`a b` is not a tenant name",
            Harm::Sql("UPDATE tenants SET name = 'a b'"),
        ),
        (
            "is not an eviction policy",
            Harm::Sql("UPDATE tenants SET policy = 'lru'"),
        ),
        (
            "is not 32 bytes",
            Harm::Sql("INSERT INTO secrets VALUES (1, 0, x'00', 15, 0, 'default')"),
        ),
        (
            "unknown permissions",
            Harm::Sql("INSERT INTO secrets VALUES (1, 0, zeroblob(32), 16, 0, 'default')"),
        ),
        (
            "a secret of tenant 1 is named `A b`",
            Harm::Sql("INSERT INTO secrets VALUES (1, 0, zeroblob(32), 15, 0, 'A b')"),
        ),
        (
            "has more than 2 secrets named `r`",
            Harm::Sql(
                "INSERT INTO secrets VALUES (1, 0, zeroblob(32), 15, 0, 'r'), (1, 1, zeroblob(32), 15, 0, 'r'), \
                 (1, 2, zeroblob(32), 15, 0, 'r')",
            ),
        ),
        (
            "a hit ratio of 1500000 millionths is not possible",
            Harm::Sql("UPDATE tenants SET hit_ratio_millionths = 1500000"),
        ),
        (
            "a hit ratio of 0 millionths is not possible",
            Harm::Sql("UPDATE tenants SET hit_ratio_millionths = 0"),
        ),
        (
            "a weight of 0 is not possible",
            Harm::Sql("UPDATE tenants SET weight = 0"),
        ),
        (
            "a limit of 0 is not possible: allowed are 1 to",
            Harm::Sql("UPDATE tenants SET connections = 0"),
        ),
        (
            "`ops_per_second` is negative",
            Harm::Sql("UPDATE tenants SET ops_per_second = -1"),
        ),
        (
            "`remembered_grant_bytes` is negative",
            Harm::Sql("UPDATE tenants SET remembered_grant_bytes = -1"),
        ),
        (
            "`cap_bytes` is negative",
            Harm::Sql("UPDATE tenants SET cap_bytes = -1"),
        ),
        (
            "the floor of 2MiB is above the cap of 1MiB",
            Harm::Sql("UPDATE tenants SET floor_bytes = 2097152, cap_bytes = 1048576"),
        ),
        (
            "there is a secret of no tenant",
            Harm::Sql("PRAGMA foreign_keys = OFF; INSERT INTO secrets VALUES (7, 0, zeroblob(32), 15, 0, 'default')"),
        ),
        (
            "not numbered from 0",
            Harm::Sql("INSERT INTO secrets VALUES (1, 5, zeroblob(32), 15, 0, 'default')"),
        ),
        (
            "a round period of 0ns is not possible",
            Harm::Sql("INSERT INTO server VALUES ('round_period_us', 0)"),
        ),
        (
            "only one of `pool_bytes` and",
            Harm::Sql("INSERT INTO server VALUES ('pool_bytes', 67108864)"),
        ),
        ("`x` is not known", Harm::Sql("INSERT INTO server VALUES ('x', 1)")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.sqlite");
        drop(open(folder.path()));
        harm.do_to(&path);
        let before = fs::read(&path).ok();
        let read = || StateFile::open(folder.path(), NOW).and_then(|file| file.tenants().and_then(|_| file.server()));
        let error = read().unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
        assert!(
            error.contains(&path.display().to_string()) && !error.contains('\n'),
            "{error}"
        );
        assert_eq!(before, fs::read(&path).ok(), "{message}");
        assert_eq!(error, read().unwrap_err().to_string());
    }
}

/// The content of the first version's file: its schema to the letter, and a tenant with all that it had.
const FIRST_VERSION: &str = "
    CREATE TABLE tenants (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        floor_bytes INTEGER,
        cap_bytes INTEGER,
        policy TEXT,
        created_at_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE secrets (
        tenant_id INTEGER NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
        slot INTEGER NOT NULL,
        hash BLOB NOT NULL,
        permissions INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (tenant_id, slot)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE server (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO tenants VALUES (1, 'default', 1, NULL, NULL, NULL, 5);
    INSERT INTO tenants VALUES (7, 'shop', 3, 1048576, 2097152, 's3fifo', 6);
    INSERT INTO secrets VALUES (7, 0, zeroblob(32), 15, 7);
    INSERT INTO server VALUES ('round_period_us', 250000);
    PRAGMA application_id = 0x54696465;
    PRAGMA user_version = 1;
";

/// All that the file says.
fn content(file: &StateFile) -> String {
    let next: i64 = file
        .connection
        .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'tenants'", [], |row| {
            row.get(0)
        })
        .unwrap();
    let (tenants, server) = (file.tenants().unwrap(), file.server().unwrap());
    format!("{tenants:?} {server:?} {next}")
}

/// A closed file with one of everything, of pages as small as they may be, so that there are few bits.
fn write_small_file(folder: &Path) -> String {
    let mut file = open(folder);
    use_it(&mut file);
    let written = content(&file);
    let path = file.path().to_path_buf();
    drop(file);
    let file = Connection::open(path).unwrap();
    file.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM; PRAGMA journal_mode = WAL;")
        .unwrap();
    written
}

/// Opens the file with these bytes of it exchanged: refused with a message that names it, or just as it was.
fn check_harmed(folder: &Path, whole: &[u8], written: &str, (at, mask): (usize, u8)) -> bool {
    let path = folder.join("state.sqlite");
    let mut bytes = whole.to_vec();
    bytes[at] ^= mask;
    fs::write(&path, &bytes).unwrap();
    let opened = StateFile::open(folder, NOW);
    let is_found = match &opened {
        Ok(file) => {
            assert_eq!(content(file), written, "byte {at} with {mask:#x}");
            false
        }
        Err(error) => {
            let error = error.to_string();
            let names_it = error.contains(&path.display().to_string()) && !error.contains("can not");
            assert!(names_it, "byte {at} with {mask:#x}: {error}");
            true
        }
    };
    drop(opened);
    for left in ["state.sqlite-wal", "state.sqlite-shm", "state.sqlite-journal"] {
        let _ = fs::remove_file(folder.join(left));
    }
    is_found
}

/// One bit of every byte is flipped, and all bits of those that are something; but in `make soak`, of one byte in five.
#[test]
fn a_flipped_bit_is_found_or_changes_nothing() {
    let folder = quick_folder();
    let written = write_small_file(folder.path());
    let whole = fs::read(folder.path().join("state.sqlite")).unwrap();
    let mut harms: Vec<(usize, u8)> = Vec::new();
    let is_full = std::env::var("TIDEMARK_TEST_SCALE").is_ok_and(|scale| scale == "full");
    for (at, byte) in whole.iter().enumerate().step_by(if is_full { 1 } else { 5 }) {
        let bits = (0..8).filter(|bit| *byte != 0 || *bit == at % 8);
        harms.extend(bits.map(|bit| (at, 1 << bit)).chain([(at, 0xFF)]));
    }
    assert!(!check_harmed(folder.path(), &whole, &written, (0, 0)));
    let found = harms
        .iter()
        .filter(|harm| check_harmed(folder.path(), &whole, &written, **harm))
        .count();
    println!("{found} of {} found, in {} bytes", harms.len(), whole.len());
    assert!(found > harms.len() / 8);
}

/// Acknowledged changes are not in the log, of which SQLite takes as much as is whole.
#[test]
fn a_damaged_log_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = open(folder.path());
    use_it(&mut file);
    let written = content(&file);
    // As a kill would leave it.
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let name = path.file_name().unwrap();
        if name.to_string_lossy().ends_with("-wal") {
            bytes.iter_mut().skip(40).step_by(100).for_each(|byte| *byte ^= 1);
        }
        fs::write(copy.path().join(name), bytes).unwrap();
    }
    assert_eq!(content(&open(copy.path())), written);
}

#[test]
fn a_missing_file_beside_its_log_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    fs::rename(
        folder.path().join("state.sqlite"),
        folder.path().join("state.sqlite-wal"),
    )
    .unwrap();
    let error = StateFile::open(folder.path(), NOW).unwrap_err().to_string();
    assert!(
        error.contains("it is missing, but state.sqlite-wal is there"),
        "{error}"
    );
}

#[test]
fn a_start_that_was_cut_off_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("state.sqlite.new"), "half").unwrap();
    fs::write(folder.path().join("state.sqlite.new-journal"), "half").unwrap();
    assert_eq!(open(folder.path()).tenants().unwrap().len(), 1);
}

#[test]
fn a_folder_that_can_not_be_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = StateFile::open(&path, NOW).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn a_full_disk_refuses_the_change_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = open(folder.path());
    // SQLite itself answers as it would on a full disk.
    file.connection.pragma_update(None, "max_page_count", 9).unwrap();
    let mut written = 1;
    let error = loop {
        let name = format!("t{written}").parse().unwrap();
        match file.add_tenant(&name, settings(), secret(1)) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(
        error.to_string().contains("can not write") && error.to_string().contains("full"),
        "{error}"
    );
    assert!(written > 10);
    assert_eq!(file.tenants().unwrap().len(), written);
    drop(file);
    let tenants = open(folder.path()).tenants().unwrap();
    assert_eq!(tenants.len(), written);
    assert!(
        tenants[1..].iter().all(|tenant| tenant.secrets.len() == 1),
        "never a tenant without its secret"
    );
}

/// The calls that both must answer alike, after the tenants that a new one begins with.
fn use_it(state: &mut dyn State) -> Vec<TenantRecord> {
    let shop = state
        .add_tenant(&"shop".parse().unwrap(), settings(), secret(1))
        .unwrap();
    let gone = state
        .add_tenant(&"gone".parse().unwrap(), TenantSettings::default(), secret(2))
        .unwrap();
    state
        .remember(&[(shop.id, Some(7)), (TenantId(1000), Some(1))])
        .unwrap();
    let mut changed = shop;
    changed.version += 1;
    changed.settings.cap_bytes = None;
    changed.secrets.push(secret(3));
    state.update_tenant(&changed).unwrap();
    state.remove_tenant(gone.id).unwrap();
    let server = ServerSettings {
        round_period: Some(Duration::from_secs(2)),
        ..ServerSettings::default()
    };
    state.set_server(&server).unwrap();
    assert_eq!(state.server().unwrap(), server);
    // A number is never given twice.
    let later = state
        .add_tenant(&"later".parse().unwrap(), TenantSettings::default(), secret(4))
        .unwrap();
    assert!(later.id > gone.id);
    state.tenants().unwrap()
}

#[test]
fn memory_answers_as_a_file_does() {
    let folder = tempfile::tempdir().unwrap();
    let told = |tenants: &[TenantRecord]| -> Vec<String> {
        let tell = |tenant: &TenantRecord| {
            let TenantRecord {
                name,
                version,
                settings,
                secrets,
                created_at,
                remembered_grant_bytes,
                id: _,
            } = tenant;
            format!("{name} {version} {settings:?} {secrets:?} {created_at:?} {remembered_grant_bytes:?}")
        };
        tenants.iter().map(tell).collect()
    };
    let in_file = use_it(&mut open(folder.path()));
    let in_memory = use_it(&mut MemoryState::default());
    // A file begins with the tenant `default`.
    assert_eq!(told(&in_file[1..]), told(&in_memory));
    assert_eq!(in_memory.len(), 2);
    assert_eq!(in_memory[0].remembered_grant_bytes, Some(7));
}

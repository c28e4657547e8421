use std::time::Duration;

use tempfile::TempDir;
use tidemark_meter::{Entry, Hash, Kind, Resource, Subject, Usage};
use tidemark_types::{TenantId, UnixMs};

use super::*;

const DAY: u64 = 86_400_000;
/// 2026-08-01.
const START: u64 = 1_785_542_400_000;

fn use_of(name: &str, minute: u64, gets: u64) -> Entry {
    let (from, to) = (START + minute * 60_000, START + (minute + 1) * 60_000);
    Entry {
        tenant: Some(Subject {
            id: TenantId(7),
            name: name.into(),
        }),
        node: "here".into(),
        price_version: "v1".into(),
        usage: Usage::default().with(Resource::Gets, gets).with(Resource::CpuNs, 5),
        commands: vec![("redis/client|list".into(), 1), ("redis/get".into(), gets)],
        ..Entry::event(Kind::Use, UnixMs(from), UnixMs(to), "")
    }
}

fn end(minute: u64) -> Entry {
    let at = UnixMs(START + minute * 60_000);
    Entry::event(Kind::End, at, at, "")
}

fn written(entries: Vec<Entry>) -> TempDir {
    let folder = TempDir::new().unwrap();
    write(&folder, entries);
    folder
}

fn write(folder: &TempDir, entries: Vec<Entry>) {
    let ledger = Ledger::start(folder.path(), DEFAULT_LEDGER_RETENTION, UnixMs(START + DAY)).unwrap();
    ledger.sender().send(LedgerMessage::Entries(entries)).unwrap();
    ledger.stop();
}

fn rows(folder: &TempDir) -> Vec<tidemark_meter::Row> {
    LedgerReader::open(folder.path())
        .unwrap()
        .rows(&Query::default())
        .unwrap()
}

fn verify(folder: &TempDir) -> Result<Verified, String> {
    LedgerReader::open(folder.path()).unwrap().verify().unwrap()
}

#[test]
fn rows_are_read_as_they_were_written() {
    let entries = vec![use_of("shop", 0, 3), use_of("blog", 1, 4), end(2)];
    let folder = written(entries.clone());
    let read: Vec<Entry> = rows(&folder).into_iter().map(|row| row.entry).collect();
    assert_eq!(read, entries);
    let verified = verify(&folder).unwrap();
    assert_eq!((verified.rows, verified.last.sequence, verified.dropped), (3, 3, 0));
    let reader = LedgerReader::open(folder.path()).unwrap();
    for (query, expected) in [
        (
            Query {
                tenant: Some("blog".into()),
                ..Query::default()
            },
            vec![2],
        ),
        (
            Query {
                from: UnixMs(START + 60_000),
                ..Query::default()
            },
            vec![2, 3],
        ),
        (
            Query {
                to: UnixMs(START + 60_000),
                ..Query::default()
            },
            vec![1],
        ),
        (
            Query {
                behind: 1,
                rows_max: 1,
                ..Query::default()
            },
            vec![2],
        ),
        (
            Query {
                tenant: Some("' OR 1=1".into()),
                ..Query::default()
            },
            vec![],
        ),
    ] {
        let found: Vec<u64> = reader.rows(&query).unwrap().iter().map(|row| row.sequence).collect();
        assert_eq!(found, expected, "{query:?}");
    }
}

#[test]
fn a_restart_goes_on_with_the_chain_and_a_crash_is_a_gap() {
    let folder = written(vec![use_of("shop", 0, 3), end(1)]);
    write(&folder, vec![use_of("shop", 5, 1)]);
    let kinds = |folder: &TempDir| -> Vec<Kind> { rows(folder).iter().map(|row| row.entry.kind).collect() };
    assert_eq!(kinds(&folder), [Kind::Use, Kind::End, Kind::Use], "it ended in order");
    write(&folder, vec![end(9)]);
    assert_eq!(kinds(&folder)[3..], [Kind::Gap, Kind::End]);
    let gap = &rows(&folder)[3].entry;
    assert_eq!((gap.from, gap.to), (UnixMs(START + 360_000), UnixMs(START + DAY)));
    assert_eq!(verify(&folder).unwrap().rows, 5);
}

#[test]
fn rows_that_were_changed_removed_or_moved_are_found() {
    for (change, expected) in [
        ("UPDATE rows SET gets = 9 WHERE sequence = 3", "row 3 was changed"),
        (
            "UPDATE rows SET tenant = 'blog' WHERE sequence = 2",
            "row 2 was changed",
        ),
        (
            "UPDATE rows SET commands = 'redis/get=1' WHERE sequence = 2",
            "row 2 was changed",
        ),
        (
            "UPDATE rows SET hash = zeroblob(32) WHERE sequence = 4",
            "row 4 was changed",
        ),
        ("UPDATE rows SET hash = x'00' WHERE sequence = 4", "row 4 was changed"),
        ("DELETE FROM rows WHERE sequence = 2", "row 2 is missing"),
        ("DELETE FROM rows WHERE sequence = 1", "row 1 is missing"),
        (
            "UPDATE rows SET sequence = 99 WHERE sequence = 2; UPDATE rows SET sequence = 2 WHERE sequence = 3;
             UPDATE rows SET sequence = 3 WHERE sequence = 99;",
            "row 2 was changed",
        ),
    ] {
        let folder = written((0..6).map(|minute| use_of("shop", minute, minute)).collect());
        let connection = rusqlite::Connection::open(folder.path().join(LEDGER_FILE_NAME)).unwrap();
        connection.execute_batch(change).unwrap();
        let found = verify(&folder).unwrap_err();
        assert!(found.starts_with(expected), "{change}: {found}");
    }
}

#[test]
fn what_is_dropped_is_carried_forward_and_the_chain_holds() {
    let folder = written(Vec::new());
    let mut file = LedgerFile::open(folder.path()).unwrap();
    let minutes = |days: std::ops::Range<u64>| days.map(|day| use_of("shop", day * 1440, day)).collect::<Vec<_>>();
    file.append(&minutes(0..100)).unwrap();
    let trim =
        |file: &mut LedgerFile, day: u64| file.trim(UnixMs(START + day * DAY), Duration::from_secs(62 * 86_400), 1000);
    trim(&mut file, 100).unwrap();
    let reader = LedgerReader::open(folder.path()).unwrap();
    let sum = || -> u128 {
        let kept = reader.rows(&Query::default()).unwrap();
        let kept: u128 = kept
            .iter()
            .map(|row| u128::from(row.entry.usage.get(Resource::Gets)))
            .sum();
        let carried = reader.carried().unwrap();
        kept + carried
            .0
            .values()
            .map(|sums| sums.totals.get(Resource::Gets))
            .sum::<u128>()
    };
    assert_eq!(sum(), (0..100).sum());
    assert_eq!(reader.rows(&Query::default()).unwrap().len(), 62 + 1);
    let verified = verify(&folder).unwrap();
    assert_eq!((verified.rows, verified.dropped), (63, 38));
    // Once a day at most; then again, with the rows that were dropped before.
    trim(&mut file, 100).unwrap();
    assert_eq!(verify(&folder).unwrap(), verified);
    file.append(&minutes(100..130)).unwrap();
    trim(&mut file, 130).unwrap();
    assert_eq!(sum(), (0..130).sum());
    assert_eq!(verify(&folder).unwrap().dropped, 68);
    let carried = reader.carried().unwrap();
    let first = carried.0.values().next().unwrap();
    assert_eq!(first.commands["redis/get"], first.totals.get(Resource::Gets));
    let months: Vec<String> = reader.carried().unwrap().0.into_keys().map(|key| key.month).collect();
    assert_eq!(months, ["2026-08", "2026-09", "2026-10"]);
    // Bills of dropped rows cannot be changed either.
    let connection = rusqlite::Connection::open(folder.path().join(LEDGER_FILE_NAME)).unwrap();
    connection
        .execute("UPDATE carried SET gets = '1' WHERE month = '2026-08'", [])
        .unwrap();
    assert!(verify(&folder).unwrap_err().starts_with("the sums of what was dropped"));
}

#[test]
fn the_file_is_bounded_by_rows_too() {
    let folder = written(Vec::new());
    let mut file = LedgerFile::open(folder.path()).unwrap();
    file.append(&(0..100).map(|minute| use_of("shop", minute, 1)).collect::<Vec<_>>())
        .unwrap();
    file.trim(UnixMs(START), DEFAULT_LEDGER_RETENTION, 40).unwrap();
    assert_eq!(rows(&folder).len(), 40 + 1);
    assert_eq!(verify(&folder).unwrap().dropped, 60);
}

#[test]
fn too_many_entries_that_wait_become_a_gap() {
    let mut pending: VecDeque<Entry> = (0..11).map(|minute| use_of("shop", minute, 1)).collect();
    bound(&mut pending, 20);
    assert_eq!(pending.len(), 11);
    bound(&mut pending, 10);
    assert_eq!(pending.len(), 6);
    let gap = &pending[0];
    assert_eq!(
        (gap.kind, gap.from, gap.to),
        (Kind::Gap, UnixMs(START), UnixMs(START + 6 * 60_000))
    );
    assert!(gap.note.starts_with("6 entries"), "{}", gap.note);
}

#[test]
fn foreign_and_newer_files_are_refused() {
    for (pragma, part) in [
        ("application_id = 5", "not a state file"),
        ("user_version = 9", "newer Tidemark"),
    ] {
        let folder = written(vec![end(0)]);
        let connection = rusqlite::Connection::open(folder.path().join(LEDGER_FILE_NAME)).unwrap();
        connection.execute_batch(&format!("PRAGMA {pragma}")).unwrap();
        drop(connection);
        let error = Ledger::start(folder.path(), DEFAULT_LEDGER_RETENTION, UnixMs(0)).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(Hash::of_text("a"), Hash::of_text("a"));
}

/// A second connection in this process, such as a reload of prices makes, must not end the locks of the first. A reader
/// of another process would then take the log away with the rows that were not moved to the file yet.
#[test]
fn noting_prices_while_rows_are_written_loses_none() {
    let folder = TempDir::new().unwrap();
    let mut file = LedgerFile::open(folder.path()).unwrap();
    file.append(&[use_of("shop", 0, 1)]).unwrap();
    Ledger::note_prices(folder.path(), "v1", "text").unwrap();
    let path = folder.path().join(LEDGER_FILE_NAME);
    let reads = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(c.execute('SELECT count(*) FROM rows').fetchone()); c.close()";
    let mut python = std::process::Command::new("python3");
    // Without Python, the rest holds all the same.
    let _ = python.args(["-c", reads]).arg(&path).output();
    file.append(&[use_of("shop", 1, 1)]).unwrap();
    assert_eq!(rows(&folder).len(), 2);
    assert_eq!(verify(&folder).unwrap().rows, 2);
    assert_eq!(
        LedgerReader::open(folder.path()).unwrap().prices().unwrap(),
        [("v1".to_owned(), "text".to_owned())]
    );
}

#[test]
fn on_a_full_disk_entries_wait_and_are_written_later() {
    let folder = TempDir::new().unwrap();
    let mut writer = Writer {
        file: LedgerFile::open(folder.path()).unwrap(),
        retention: DEFAULT_LEDGER_RETENTION,
        pending: VecDeque::new(),
        has_failed: false,
    };
    let put = |writer: &mut Writer, minutes: std::ops::Range<u64>| {
        writer.pending.extend(minutes.map(|minute| use_of("shop", minute, 1)));
        writer.write();
    };
    put(&mut writer, 0..3);
    assert_eq!(writer.pending.len(), 0);
    writer.file.limit_pages(Some(12));
    put(&mut writer, 3..2000);
    assert_eq!(writer.pending.len(), 1997, "all of them wait");
    assert_eq!(rows(&folder).len(), 3, "all of a batch or nothing");
    put(&mut writer, 2000..2001);
    writer.file.limit_pages(None);
    put(&mut writer, 2001..2002);
    assert_eq!(writer.pending.len(), 0);
    assert_eq!(verify(&folder).unwrap().rows, 2002);
}

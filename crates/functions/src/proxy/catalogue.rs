//! `functions.sqlite`: where stripes are, for the next start. Written by a thread of its own, in batches.
//!
//! Objects that are stored as they are written have no version yet, and are stored under a content that was drawn. When the version is
//! known, the *name* of its content leads to that one: here, and after the next start.
//!
//! A missing entry is a miss, and a superfluous one is found when the function announces its chunks. The catalogue need
//! not be durable before a write is acknowledged. It survives the end of the process at any moment (SQLite's
//! write-ahead log).

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use crate::Code;
use crate::chunk::ContentId;
use crate::pool::{Pool, Stripe};

/// The file's name.
const FILE: &str = "functions.sqlite";
/// The version of its tables, in `user_version`.
const VERSION: i64 = 2;
/// The limit of changes that wait to be written. Beyond it some are left out, and the next start misses them.
const WAITING_MAX: usize = 65_536;
/// Names that are remembered, some 100 bytes each. Objects beyond them are found until their versions are forgotten.
const NAMES_MAX: usize = 262_144;
/// Changes in one transaction.
const BATCH_MAX: usize = 1024;

/// The catalogue cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// SQLite's error.
    #[error("{FILE}: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A later version wrote it.
    #[error("{FILE} is of version {0}; this is version {VERSION}")]
    Version(i64),
    /// No thread.
    #[error("{FILE}: {0}")]
    System(#[from] std::io::Error),
}

enum Change {
    Put(ContentId, u32, Stripe),
    Name(ContentId, ContentId),
    Forget(ContentId),
    Flush(oneshot::Sender<()>),
}

/// Contents by their names, and names by contents.
#[derive(Debug, Default)]
struct Names {
    contents: HashMap<ContentId, ContentId>,
    names: HashMap<ContentId, ContentId>,
}

impl Names {
    /// Whether there is room for it.
    fn add(&mut self, name: ContentId, content: ContentId) -> bool {
        let has_room = self.contents.len() < NAMES_MAX || self.contents.contains_key(&name);
        if has_room {
            if let Some(before) = self.contents.insert(name, content) {
                self.names.remove(&before);
            }
            self.names.insert(content, name);
        }
        has_room
    }

    fn forget(&mut self, content: &ContentId) {
        if let Some(name) = self.names.remove(content) {
            self.contents.remove(&name);
        }
    }
}

/// See the module.
pub(crate) struct Catalogue {
    names: Mutex<Names>,
    changes: Option<SyncSender<Change>>,
    thread: Option<JoinHandle<()>>,
}

impl Catalogue {
    /// Opens the file in a folder and puts its entries into the pool; without a folder, nothing is remembered.
    pub(crate) fn open(folder: Option<&Path>, pool: &mut Pool) -> Result<Self, CatalogueError> {
        let Some(folder) = folder else {
            return Ok(Self {
                names: Mutex::default(),
                changes: None,
                thread: None,
            });
        };
        let connection = Connection::open(folder.join(FILE))?;
        prepare(&connection)?;
        load(&connection, pool)?;
        let names = load_names(&connection, pool)?;
        let (changes, waiting) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("tidemark-functions".into());
        let thread = thread.spawn(move || write_all(connection, &waiting))?;
        Ok(Self {
            names: Mutex::new(names),
            changes: Some(changes),
            thread: Some(thread),
        })
    }

    /// Remembers a stripe.
    pub(crate) fn put(&self, content: ContentId, number: u32, stripe: Stripe) {
        self.change(Change::Put(content, number, stripe));
    }

    /// Remembers that the content of a version, `name`, is stored under another one.
    pub(crate) fn name(&self, name: ContentId, content: ContentId) {
        if self.names.lock().add(name, content) {
            self.change(Change::Name(name, content));
        }
    }

    /// The content that was stored under another one than its name.
    pub(crate) fn named(&self, name: &ContentId) -> Option<ContentId> {
        self.names.lock().contents.get(name).copied()
    }

    /// Forgets an object.
    pub(crate) fn forget(&self, content: ContentId) {
        self.names.lock().forget(&content);
        self.change(Change::Forget(content));
    }

    fn change(&self, change: Change) {
        if let Some(changes) = &self.changes
            && let Err(TrySendError::Full(_)) = changes.try_send(change)
        {
            tracing::debug!("{FILE} is written too slowly: a change is left out");
        }
    }

    /// Waits until all changes so far are written.
    pub(crate) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if let Some(changes) = self.changes.clone() {
            let sent = tokio::task::spawn_blocking(move || changes.send(Change::Flush(done)).is_ok());
            if sent.await.unwrap_or(false) {
                let _ = written.await;
            }
        }
    }
}

impl Drop for Catalogue {
    fn drop(&mut self) {
        self.changes = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The tables, by the version that they came with.
const TABLES: [&str; VERSION as usize] = [
    "CREATE TABLE stripes (content BLOB NOT NULL, stripe INTEGER NOT NULL, code TEXT NOT NULL, bytes INTEGER NOT NULL,
         homes BLOB NOT NULL, hashes BLOB NOT NULL, PRIMARY KEY (content, stripe)) WITHOUT ROWID;",
    "CREATE TABLE names (name BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
     CREATE INDEX names_of_contents ON names (content);",
];

/// Makes the tables that an earlier version did not have, all or none.
fn prepare(connection: &Connection) -> Result<(), CatalogueError> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let missing = usize::try_from(version).ok().and_then(|version| TABLES.get(version..));
    match missing {
        Some([]) => {}
        Some(missing) => {
            let missing = missing.concat();
            connection.execute_batch(&format!("BEGIN; {missing} PRAGMA user_version = {VERSION}; COMMIT;"))?;
        }
        None => return Err(CatalogueError::Version(version)),
    }
    Ok(())
}

fn load(connection: &Connection, pool: &mut Pool) -> Result<(), CatalogueError> {
    let mut rows = connection.prepare("SELECT content, stripe, code, bytes, homes, hashes FROM stripes")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let (content, number): (Vec<u8>, u32) = (row.get(0)?, row.get(1)?);
        let (code, bytes): (String, u32) = (row.get(2)?, row.get(3)?);
        let (homes, hashes): (Vec<u8>, Vec<u8>) = (row.get(4)?, row.get(5)?);
        // A row that says nonsense is a miss.
        if let (Ok(content), Ok(code)) = (content.try_into(), code.parse::<Code>()) {
            let stripe = Stripe {
                code,
                bytes,
                homes: homes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|home| u16::from_be_bytes(*home))
                    .collect(),
                hashes: hashes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|hash| u64::from_be_bytes(*hash))
                    .collect(),
                lost: 0,
            };
            if stripe.homes.len() == stripe.hashes.len() && bytes > 0 {
                pool.restore(content, number, stripe);
            }
        }
    }
    Ok(())
}

/// Names of what is in the pool.
fn load_names(connection: &Connection, pool: &Pool) -> Result<Names, CatalogueError> {
    let mut rows = connection.prepare("SELECT name, content FROM names")?;
    let mut rows = rows.query([])?;
    let mut names = Names::default();
    while let Some(row) = rows.next()? {
        let (name, content): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
        if let (Ok(name), Ok(content)) = (name.try_into(), content.try_into())
            && pool.has_object(&content)
        {
            names.add(name, content);
        }
    }
    Ok(names)
}

fn write_all(mut connection: Connection, waiting: &Receiver<Change>) {
    while let Ok(first) = waiting.recv() {
        let batch = std::iter::once(first).chain(waiting.try_iter().take(BATCH_MAX - 1));
        if let Err(error) = write_batch(&mut connection, batch) {
            tracing::warn!("{FILE} can not be written: {error}");
        }
    }
}

fn write_batch(connection: &mut Connection, batch: impl Iterator<Item = Change>) -> Result<(), rusqlite::Error> {
    let mut flushed = Vec::new();
    let transaction = connection.transaction()?;
    for change in batch {
        match change {
            Change::Put(content, number, stripe) => {
                let homes: Vec<u8> = stripe.homes.iter().flat_map(|home| home.to_be_bytes()).collect();
                let hashes: Vec<u8> = stripe.hashes.iter().flat_map(|hash| hash.to_be_bytes()).collect();
                let mut insert =
                    transaction.prepare_cached("INSERT OR REPLACE INTO stripes VALUES (?, ?, ?, ?, ?, ?)")?;
                let code = stripe.code.to_string();
                insert.execute(params![content, number, code, stripe.bytes, homes, hashes])?;
            }
            Change::Name(name, content) => {
                let mut insert = transaction.prepare_cached("INSERT OR REPLACE INTO names VALUES (?, ?)")?;
                insert.execute(params![name, content])?;
            }
            Change::Forget(content) => {
                for table in ["stripes", "names"] {
                    let delete = format!("DELETE FROM {table} WHERE content = ?");
                    transaction.prepare_cached(&delete)?.execute(params![content])?;
                }
            }
            Change::Flush(done) => flushed.push(done),
        }
    }
    transaction.commit()?;
    for done in flushed {
        let _ = done.send(());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn stripe() -> Stripe {
        Stripe {
            code: Code::new(2, 1).unwrap(),
            bytes: 1000,
            homes: Arc::from([3, 1, 2]),
            hashes: Arc::from([10, 20, 30]),
            lost: 0,
        }
    }

    #[test]
    fn what_was_put_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let mut pool = Pool::new(4, 1 << 20, 3);
            let catalogue = Catalogue::open(Some(folder.path()), &mut pool).unwrap();
            (catalogue, pool)
        };
        let (catalogue, pool) = open();
        assert_eq!(pool.objects(), 0);
        catalogue.put([1; 16], 7, stripe());
        catalogue.put([2; 16], 0, stripe());
        catalogue.put([2; 16], 1, stripe());
        catalogue.forget([2; 16]);
        drop(catalogue);
        let (_catalogue, mut pool) = open();
        assert_eq!((pool.objects(), pool.look(&[1; 16], 7)), (1, Some(stripe())));
        assert_eq!(pool.used_by(1), pool.used_by(3));
        assert!(pool.used_by(1) > 0 && pool.used_by(0) == 0);
    }

    #[test]
    fn what_was_written_under_a_content_of_its_own_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        // As the version before wrote it.
        let connection = Connection::open(folder.path().join(FILE)).unwrap();
        connection.execute_batch(TABLES[0]).unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        drop(connection);
        let open = || {
            let mut pool = Pool::new(4, 1 << 20, 3);
            Catalogue::open(Some(folder.path()), &mut pool).unwrap()
        };
        let catalogue = open();
        for content in [[1; 16], [2; 16], [3; 16]] {
            catalogue.put(content, 0, stripe());
        }
        // The first is written again: its name leads to the later content.
        for (name, content) in [(11, 1), (11, 2), (13, 3), (14, 4)] {
            catalogue.name([name; 16], [content; 16]);
            assert_eq!(catalogue.named(&[name; 16]), Some([content; 16]));
        }
        catalogue.forget([1; 16]);
        catalogue.forget([3; 16]);
        assert_eq!(catalogue.named(&[13; 16]), None);
        drop(catalogue);
        let catalogue = open();
        let found = [11, 13, 14].map(|name| catalogue.named(&[name; 16]));
        assert_eq!(found, [Some([2; 16]), None, None], "nothing is there of the last");
    }

    #[test]
    fn a_later_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join(FILE)).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        drop(connection);
        let opened = Catalogue::open(Some(folder.path()), &mut Pool::new(4, 1 << 20, 3));
        assert!(matches!(opened, Err(CatalogueError::Version(99))));
    }
}

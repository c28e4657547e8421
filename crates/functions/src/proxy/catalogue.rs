//! `functions.sqlite`: where stripes are, for the next start. Written by a thread of its own, in batches.
//!
//! A missing entry is a miss, and a superfluous one is found when the function announces its chunks. The catalogue need
//! not be durable before a write is acknowledged. It survives the end of the process at any moment (SQLite's
//! write-ahead log).

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use crate::Code;
use crate::chunk::ContentId;
use crate::pool::{Pool, Stripe};

/// The file's name.
const FILE: &str = "functions.sqlite";
/// The version of its tables, in `user_version`.
const VERSION: i64 = 1;
/// The limit of changes that wait to be written. Beyond it some are left out, and the next start misses them.
const WAITING_MAX: usize = 65_536;
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
    Forget(ContentId),
    Flush(oneshot::Sender<()>),
}

/// See the module.
pub(crate) struct Catalogue {
    changes: Option<SyncSender<Change>>,
    thread: Option<JoinHandle<()>>,
}

impl Catalogue {
    /// Opens the file in a folder and puts its entries into the pool; without a folder, nothing is remembered.
    pub(crate) fn open(folder: Option<&Path>, pool: &mut Pool) -> Result<Self, CatalogueError> {
        let Some(folder) = folder else {
            return Ok(Self {
                changes: None,
                thread: None,
            });
        };
        let connection = Connection::open(folder.join(FILE))?;
        prepare(&connection)?;
        load(&connection, pool)?;
        let (changes, waiting) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("tidemark-functions".into());
        let thread = thread.spawn(move || write_all(connection, &waiting))?;
        Ok(Self {
            changes: Some(changes),
            thread: Some(thread),
        })
    }

    /// Remembers a stripe.
    pub(crate) fn put(&self, content: ContentId, number: u32, stripe: Stripe) {
        self.change(Change::Put(content, number, stripe));
    }

    /// Forgets an object.
    pub(crate) fn forget(&self, content: ContentId) {
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

fn prepare(connection: &Connection) -> Result<(), CatalogueError> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match version {
        0 => connection.execute_batch(&format!(
            "BEGIN;
             CREATE TABLE stripes (content BLOB NOT NULL, stripe INTEGER NOT NULL, code TEXT NOT NULL, bytes INTEGER NOT NULL,
                 homes BLOB NOT NULL, hashes BLOB NOT NULL, PRIMARY KEY (content, stripe)) WITHOUT ROWID;
             PRAGMA user_version = {VERSION};
             COMMIT;"
        ))?,
        VERSION => {}
        other => return Err(CatalogueError::Version(other)),
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
            Change::Forget(content) => {
                let mut delete = transaction.prepare_cached("DELETE FROM stripes WHERE content = ?")?;
                delete.execute(params![content])?;
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
    fn a_later_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join(FILE)).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        drop(connection);
        let opened = Catalogue::open(Some(folder.path()), &mut Pool::new(4, 1 << 20, 3));
        assert!(matches!(opened, Err(CatalogueError::Version(99))));
    }
}

//! `functions.sqlite`: where stripes are, for the next start. Written by a thread of its own, in batches.
//!
//! Several pools may hold the same object, each for other tenants. Objects that are stored as they are written have no version yet, and
//! are stored under a content that was drawn. When the version is known, the *name* of its content leads to that one: here, and after
//! the next start. A name is taken back when no pool holds the object any more.
//!
//! A missing entry is a miss, and a superfluous one is found when the function announces its chunks. The catalogue need
//! not be durable before a write is acknowledged. It survives the end of the process at any moment (SQLite's
//! write-ahead log).

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
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
const VERSION: i64 = 3;
/// The limit of changes that wait to be written. Beyond it some are left out, and the next start misses them.
const WAITING_MAX: usize = 65_536;
/// Names that are remembered, some 150 bytes each. Then the oldest one goes: its object is found until its version is forgotten.
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
    Put(Arc<str>, ContentId, u32, Stripe),
    Name(ContentId, ContentId),
    /// A pool holds an object no more.
    Forget(Arc<str>, ContentId),
    /// A name leads nowhere any more.
    Unname(ContentId),
    Flush(oneshot::Sender<()>),
}

/// Contents by their names, and names by contents.
#[derive(Debug)]
struct Names {
    most: usize,
    contents: HashMap<ContentId, (ContentId, u64)>,
    names: HashMap<ContentId, ContentId>,
    /// Names by when they were given.
    order: BTreeMap<u64, ContentId>,
    next: u64,
}

impl Names {
    /// For so many.
    fn new(most: usize) -> Self {
        Self {
            most,
            contents: HashMap::new(),
            names: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    /// Gives a content a name; the name that had to go for it.
    fn add(&mut self, name: ContentId, content: ContentId) -> Option<ContentId> {
        self.take(&name);
        if let Some(before) = self.names.get(&content).copied() {
            self.take(&before);
        }
        let oldest = self.order.first_key_value().map(|(_, name)| *name);
        let oldest = oldest.filter(|_| self.contents.len() >= self.most);
        if let Some(oldest) = &oldest {
            self.take(oldest);
        }
        self.contents.insert(name, (content, self.next));
        self.names.insert(content, name);
        self.order.insert(self.next, name);
        self.next += 1;
        oldest
    }

    fn take(&mut self, name: &ContentId) {
        if let Some((content, at)) = self.contents.remove(name) {
            self.names.remove(&content);
            self.order.remove(&at);
        }
    }

    /// Takes the name of a content back.
    fn forget(&mut self, content: &ContentId) -> Option<ContentId> {
        let name = self.names.get(content).copied()?;
        self.take(&name);
        Some(name)
    }
}

/// See the module.
pub(crate) struct Catalogue {
    /// The pools' names.
    pools: Vec<Arc<str>>,
    names: Mutex<Names>,
    changes: Option<SyncSender<Change>>,
    thread: Option<JoinHandle<()>>,
}

impl Catalogue {
    /// Opens the file in a folder and puts its entries into the pools of these names; without a folder, nothing is remembered.
    pub(crate) fn open(folder: Option<&Path>, pools: &mut [(Arc<str>, Pool)]) -> Result<Self, CatalogueError> {
        let mut catalogue = Self {
            pools: pools.iter().map(|(name, _)| Arc::clone(name)).collect(),
            names: Mutex::new(Names::new(NAMES_MAX)),
            changes: None,
            thread: None,
        };
        let Some(folder) = folder else {
            return Ok(catalogue);
        };
        let connection = Connection::open(folder.join(FILE))?;
        prepare(&connection)?;
        load(&connection, pools)?;
        load_names(&connection, pools, &mut catalogue.names.lock())?;
        let (changes, waiting) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("tidemark-functions".into());
        let thread = thread.spawn(move || write_all(connection, &waiting))?;
        (catalogue.changes, catalogue.thread) = (Some(changes), Some(thread));
        Ok(catalogue)
    }

    /// Remembers a stripe of a pool.
    pub(crate) fn put(&self, pool: usize, content: ContentId, number: u32, stripe: Stripe) {
        self.change(Change::Put(Arc::clone(&self.pools[pool]), content, number, stripe));
    }

    /// Remembers that the content of a version, `name`, is stored under another one.
    pub(crate) fn name(&self, name: ContentId, content: ContentId) {
        let oldest = {
            let mut names = self.names.lock();
            if names.contents.get(&name).is_some_and(|(known, _)| *known == content) {
                return;
            }
            names.add(name, content)
        };
        if let Some(oldest) = oldest {
            self.change(Change::Unname(oldest));
        }
        self.change(Change::Name(name, content));
    }

    /// The content that was stored under another one than its name.
    pub(crate) fn named(&self, name: &ContentId) -> Option<ContentId> {
        self.names.lock().contents.get(name).map(|(content, _)| *content)
    }

    /// A pool holds an object no more; `is_held` by another one.
    pub(crate) fn forget(&self, pool: usize, content: ContentId, is_held: bool) {
        self.change(Change::Forget(Arc::clone(&self.pools[pool]), content));
        if !is_held {
            self.unname(content);
        }
    }

    /// Takes back the name of an object that nothing holds.
    fn unname(&self, content: ContentId) {
        if let Some(name) = self.names.lock().forget(&content) {
            self.change(Change::Unname(name));
        }
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
    // Till then there was the shared pool, whose name is empty.
    "ALTER TABLE stripes RENAME TO of_one_pool;
     CREATE TABLE stripes (content BLOB NOT NULL, stripe INTEGER NOT NULL, pool TEXT NOT NULL, code TEXT NOT NULL,
         bytes INTEGER NOT NULL, homes BLOB NOT NULL, hashes BLOB NOT NULL, PRIMARY KEY (content, stripe, pool))
         WITHOUT ROWID;
     INSERT INTO stripes SELECT content, stripe, '', code, bytes, homes, hashes FROM of_one_pool;
     DROP TABLE of_one_pool;",
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

fn load(connection: &Connection, pools: &mut [(Arc<str>, Pool)]) -> Result<(), CatalogueError> {
    let mut rows =
        connection.prepare("SELECT content, stripe, code, bytes, homes, hashes FROM stripes WHERE pool = ?")?;
    for (name, pool) in pools.iter_mut() {
        let mut rows = rows.query([&**name])?;
        while let Some(row) = rows.next()? {
            let (content, number): (Vec<u8>, u32) = (row.get(0)?, row.get(1)?);
            let (code, bytes): (String, u32) = (row.get(2)?, row.get(3)?);
            let (homes, hashes): (Vec<u8>, Vec<u8>) = (row.get(4)?, row.get(5)?);
            // A row that says nonsense is a miss.
            if let (Ok(content), Ok(code)) = (content.try_into(), code.parse::<Code>()) {
                let stripe = Stripe {
                    code,
                    bytes,
                    homes: numbers(&homes).map(u16::from_be_bytes).collect(),
                    hashes: numbers(&hashes).map(u64::from_be_bytes).collect(),
                    lost: 0,
                };
                if stripe.homes.len() == stripe.hashes.len() && bytes > 0 {
                    pool.restore(content, number, stripe);
                }
            }
        }
    }
    forget_others(connection, pools)
}

fn numbers<const BYTES: usize>(blob: &[u8]) -> impl Iterator<Item = [u8; BYTES]> {
    blob.as_chunks().0.iter().copied()
}

/// Forgets pools that are no more, and names that lead to nothing.
fn forget_others(connection: &Connection, pools: &[(Arc<str>, Pool)]) -> Result<(), CatalogueError> {
    let mut there = connection.prepare("SELECT DISTINCT pool FROM stripes")?;
    let there: Vec<String> = there.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for gone in there
        .iter()
        .filter(|name| pools.iter().all(|(pool, _)| **pool != ***name))
    {
        connection.execute("DELETE FROM stripes WHERE pool = ?", [gone])?;
    }
    connection.execute(
        "DELETE FROM names WHERE content NOT IN (SELECT content FROM stripes)",
        [],
    )?;
    Ok(())
}

/// Names of what is in the pools.
fn load_names(connection: &Connection, pools: &[(Arc<str>, Pool)], names: &mut Names) -> Result<(), CatalogueError> {
    let mut rows = connection.prepare("SELECT name, content FROM names")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let (name, content): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
        if let (Ok(name), Ok(content)) = (name.try_into(), content.try_into())
            && pools.iter().any(|(_, pool)| pool.has_object(&content))
        {
            names.add(name, content);
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
            Change::Put(pool, content, number, stripe) => {
                let homes: Vec<u8> = stripe.homes.iter().flat_map(|home| home.to_be_bytes()).collect();
                let hashes: Vec<u8> = stripe.hashes.iter().flat_map(|hash| hash.to_be_bytes()).collect();
                let mut insert =
                    transaction.prepare_cached("INSERT OR REPLACE INTO stripes VALUES (?, ?, ?, ?, ?, ?, ?)")?;
                let code = stripe.code.to_string();
                insert.execute(params![content, number, &*pool, code, stripe.bytes, homes, hashes])?;
            }
            Change::Name(name, content) => {
                let mut insert = transaction.prepare_cached("INSERT OR REPLACE INTO names VALUES (?, ?)")?;
                insert.execute(params![name, content])?;
            }
            Change::Forget(pool, content) => {
                let mut delete = transaction.prepare_cached("DELETE FROM stripes WHERE content = ? AND pool = ?")?;
                delete.execute(params![content, &*pool])?;
            }
            Change::Unname(name) => {
                transaction
                    .prepare_cached("DELETE FROM names WHERE name = ?")?
                    .execute(params![name])?;
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

    fn pools() -> Vec<(Arc<str>, Pool)> {
        ["", "shop"].map(|name| (name.into(), Pool::new(4, 1 << 20, 3))).into()
    }

    #[test]
    fn what_was_put_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = |pools: &mut [_]| Catalogue::open(Some(folder.path()), pools).unwrap();
        let mut before = pools();
        let catalogue = open(&mut before);
        assert!(before.iter().all(|(_, pool)| pool.objects() == 0));
        catalogue.put(0, [1; 16], 7, stripe());
        for pool in [0, 1] {
            catalogue.put(pool, [2; 16], 0, stripe());
            catalogue.put(pool, [2; 16], 1, stripe());
        }
        catalogue.forget(0, [2; 16], true);
        drop(catalogue);
        let mut after = pools();
        drop(open(&mut after));
        let [(_, shared), (_, shop)] = &mut after[..] else {
            panic!()
        };
        assert_eq!((shared.objects(), shared.look(&[1; 16], 7)), (1, Some(stripe())));
        assert_eq!(shared.used_by(1), shared.used_by(3));
        assert!(shared.used_by(1) > 0 && shared.used_by(0) == 0);
        assert_eq!((shop.objects(), shop.look(&[2; 16], 1)), (1, Some(stripe())));
        // A pool that the file describes no more, and does again.
        drop(open(&mut after[..1]));
        let mut again = pools();
        drop(open(&mut again));
        assert_eq!((again[0].1.objects(), again[1].1.objects()), (1, 0));
    }

    #[test]
    fn what_was_written_under_a_content_of_its_own_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        // As the first version wrote it.
        let connection = Connection::open(folder.path().join(FILE)).unwrap();
        connection.execute_batch(TABLES[0]).unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        let row = "INSERT INTO stripes VALUES (x'09', 0, '2+1', 1000, x'000300010002', zeroblob(24))";
        connection.execute(&row.replace("09", &"09".repeat(16)), []).unwrap();
        drop(connection);
        let open = || {
            let mut pools = pools();
            let catalogue = Catalogue::open(Some(folder.path()), &mut pools).unwrap();
            (catalogue, pools)
        };
        let (catalogue, earlier) = open();
        assert!(earlier[0].1.has_object(&[9; 16]) && !earlier[1].1.has_object(&[9; 16]));
        for content in [[1; 16], [2; 16], [3; 16], [5; 16]] {
            catalogue.put(0, content, 0, stripe());
        }
        catalogue.put(1, [5; 16], 0, stripe());
        // The first is written again: its name leads to the later content.
        for (name, content) in [(11, 1), (11, 2), (13, 3), (14, 4), (15, 5)] {
            catalogue.name([name; 16], [content; 16]);
            assert_eq!(catalogue.named(&[name; 16]), Some([content; 16]));
        }
        catalogue.forget(0, [1; 16], false);
        catalogue.forget(0, [3; 16], false);
        catalogue.forget(0, [5; 16], true);
        assert_eq!(catalogue.named(&[13; 16]), None);
        drop(catalogue);
        let (catalogue, _) = open();
        let found = [11, 13, 14, 15].map(|name| catalogue.named(&[name; 16]));
        assert_eq!(
            found,
            [Some([2; 16]), None, None, Some([5; 16])],
            "nothing is there of the third"
        );
    }

    #[test]
    fn the_oldest_name_makes_room_for_a_new_one() {
        let mut names = Names::new(2);
        let mut add = |name, content| names.add([name; 16], [content; 16]);
        assert_eq!((add(1, 11), add(2, 12)), (None, None));
        assert_eq!(add(1, 21), None, "a name that is given anew is not the oldest any more");
        assert_eq!(add(3, 13), Some([2; 16]));
        assert_eq!(add(4, 14), Some([1; 16]));
        assert_eq!(names.forget(&[13; 16]), Some([3; 16]));
        assert_eq!(names.forget(&[21; 16]), None);
        assert_eq!((names.contents.len(), names.names.len(), names.order.len()), (1, 1, 1));
    }

    #[test]
    fn a_later_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join(FILE)).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        drop(connection);
        let opened = Catalogue::open(Some(folder.path()), &mut pools());
        assert!(matches!(opened, Err(CatalogueError::Version(99))));
    }
}

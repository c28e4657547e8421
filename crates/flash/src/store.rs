//! A volume on a device, for a program that may wait: reads on the caller's thread, writes on a thread of its own.
//!
//! Invariant: the volume's lock is never held while the device is waited for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};

use crate::buffer::Buffer;
use crate::device::{self, Device, Done, Queue, Request};
use crate::journal::Barrier;
use crate::recover::{self, OpenError, Opening};
use crate::snapshot;
use crate::volume::{
    Borrowed, Found, IoKind, Item, Listing, Lookup, Next, Place, Read, Refused, SegmentRead, Settings, Staleness,
    Stats, TenantNumber, Volume,
};

/// Time between two looks at due work, while something waits.
const TICK: Duration = Duration::from_millis(1);
/// The same while nothing waits.
const IDLE_TICK: Duration = Duration::from_millis(500);
/// Requests of the writer under way at once: a device is busy with that many, and not much more waits for a crash.
const DEPTH: u32 = 32;
/// Reads of one lookup at most: each is of another record with the same tag, or of one that was moved meanwhile.
const READS_MAX: usize = 16;

/// The flash tier of a program.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    queue_name: &'static str,
    /// The file for the snapshot of the index.
    index: Option<PathBuf>,
    opening: Opening,
}

struct Shared {
    volume: Mutex<Volume>,
    device: Arc<dyn Device>,
    /// Something is to be written.
    work: Condvar,
    /// A request has ended.
    ended: Condvar,
    is_stopping: std::sync::atomic::AtomicBool,
    alarm: Mutex<Option<Box<dyn Fn() + Send>>>,
    given_up: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// The device was given up: promised entries may not be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the flash device failed and is not used any more")]
pub struct GivenUp;

/// Why a store was not closed as it should be.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// The device was given up.
    #[error(transparent)]
    GivenUp(#[from] GivenUp),
    /// All is on the device. The next start reads footers, since there is no snapshot of the index.
    #[error("the snapshot of the index was not written: {0}")]
    Index(std::io::Error),
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Random bytes by which the tenants of a new owner are told from all others'.
///
/// # Errors
/// The system gives none.
pub fn random_identity() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Store {
    /// Opens the volume on a device, or makes one on an empty device. Tenants have the numbers 0, 1, ... in their order.
    /// [`Self::close`] writes a snapshot of the index into the file, and opening uses it if the device is as it was left.
    ///
    /// # Errors
    /// The device is not ours, fails, or the system gives no random bytes or no thread.
    pub fn open(device: Arc<dyn Device>, tenants: &[Settings], index: Option<&Path>) -> Result<Self, OpenError> {
        let mut random = [0; 24];
        getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
        let (volume, opening) = recover::open(&*device, tenants, random, index)?;
        let shared = Arc::new(Shared {
            volume: Mutex::new(volume),
            device,
            work: Condvar::new(),
            ended: Condvar::new(),
            is_stopping: false.into(),
            alarm: Mutex::new(None),
            given_up: Mutex::new(None),
        });
        let queue = device::queue(&shared.device, DEPTH)?;
        let queue_name = queue.name();
        let writer = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("tidemark-flash".into())
            .spawn(move || writer.write(queue))?;
        Ok(Self {
            shared,
            writer: Mutex::new(Some(thread)),
            queue_name,
            index: index.map(Path::to_owned),
            opening,
        })
    }

    /// How the device is written: `io_uring` or `threads`.
    pub fn queue_name(&self) -> &'static str {
        self.queue_name
    }

    /// The source of the index when the store was opened.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// The seed of the hash that keys must be given with.
    pub fn hash_seed(&self) -> u64 {
        self.shared.volume.lock().hash_seed()
    }

    /// Whether the device failed too often: all that follows is a miss.
    pub fn is_given_up(&self) -> bool {
        self.shared.volume.lock().is_given_up()
    }

    /// Adds a tenant, without items.
    pub fn add_tenant(&self, settings: &Settings) -> TenantNumber {
        self.shared.volume.lock().add_tenant(settings)
    }

    /// Looks a key up; waits for the device where that has to be asked.
    pub fn get(&self, tenant: TenantNumber, hash: u64, db: u8, key: &[u8]) -> Option<Found> {
        let mut lookup = self.shared.volume.lock().lookup(tenant, hash, db, key, now_ms());
        for _ in 0..READS_MAX {
            match lookup {
                Lookup::Absent => return None,
                Lookup::Found(found) => return Some(found),
                Lookup::Read(read) => {
                    let mut bytes = Buffer::zeroed(read.bytes);
                    let result = self.shared.device.read(read.offset, bytes.as_mut());
                    let result = result.map(|()| bytes.as_ref()).map_err(|_| ());
                    lookup = self.shared.volume.lock().finish(read, result, now_ms());
                }
            }
        }
        None
    }

    /// Looks a key up without waiting. The bytes of [`Lookup::Read`] have to be read from [`Self::device`] and given to
    /// [`Self::finish`].
    pub fn lookup(&self, tenant: TenantNumber, hash: u64, db: u8, key: &[u8]) -> Lookup {
        self.shared.volume.lock().lookup(tenant, hash, db, key, now_ms())
    }

    /// Goes on with a lookup whose bytes were read, or could not be.
    pub fn finish(&self, read: Read, bytes: Result<&[u8], ()>) -> Lookup {
        // A segment that cannot be read is quarantined, which is written to the journal.
        self.change(|volume, now_ms| volume.finish(read, bytes, now_ms))
    }

    /// The mark of a walk that begins now: see [`Self::segment_from`].
    pub fn mark(&self, tenant: TenantNumber) -> u32 {
        self.shared.volume.lock().mark(tenant)
    }

    /// The first of a tenant's segments at this slot or behind it: of all, or of those that were opened, or got records, after
    /// a mark.
    pub fn segment_from(&self, tenant: TenantNumber, slot: u32, since: Option<u32>) -> Next {
        self.shared.volume.lock().segment_from(tenant, slot, since)
    }

    /// Shows the keys of some records of a segment that are alive in a database.
    pub fn list(&self, listing: &Listing, records: std::ops::Range<usize>, db: u8, visit: impl FnMut(&[u8])) {
        let alive = self.shared.volume.lock().alive(listing, records, db);
        listing.show(&alive, now_ms(), visit);
    }

    /// A segment of a walk could not be read, or was another one.
    pub fn lose(&self, read: &SegmentRead) {
        self.change(|volume, now_ms| volume.lose(read, now_ms));
    }

    /// The device, for reads of one's own.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }

    /// Takes an item in that memory evicts: see [`Volume::demote`].
    ///
    /// # Errors
    /// See [`Refused`]; older contents have gone then, too.
    pub fn demote(&self, tenant: TenantNumber, hash: u64, item: &Borrowed<'_>, is_used: bool) -> Result<(), Refused> {
        self.change(|volume, now_ms| volume.demote(tenant, hash, item, is_used, now_ms))
    }

    /// Begins to remove all items of a database, or of all, for good. They are gone for lookups at once, and after a
    /// crash once the barrier is durable.
    pub fn begin_flush(&self, tenant: TenantNumber, db: Option<u8>) -> Barrier {
        self.change(|volume, now_ms| {
            let barrier = volume.flush(tenant, db, now_ms);
            volume.commit(now_ms);
            barrier
        })
    }

    /// Removes a tenant.
    pub fn remove_tenant(&self, tenant: TenantNumber) -> Barrier {
        self.change(|volume, now_ms| volume.remove_tenant(tenant, now_ms))
    }

    /// The last thing of this tenant that is to survive a crash.
    pub fn barrier(&self, tenant: TenantNumber) -> Barrier {
        self.shared.volume.lock().barrier(tenant)
    }

    /// Whether this survives a crash; also where the device was given up, since nothing will come of waiting.
    pub fn is_settled(&self, barrier: Barrier) -> bool {
        let volume = self.shared.volume.lock();
        volume.is_durable(barrier) || volume.is_given_up()
    }

    /// Items of a tenant's database that memory does not hold.
    pub fn items_in(&self, tenant: TenantNumber, db: u8) -> u64 {
        self.shared.volume.lock().items_in(tenant, db)
    }

    /// Memory that all tenants' indexes and open segments take.
    pub fn memory_bytes(&self) -> u64 {
        self.shared.volume.lock().memory_bytes()
    }

    /// Segments of the device.
    pub fn segments(&self) -> usize {
        self.shared.volume.lock().segments()
    }

    /// Has this called whenever requests of the writer have ended: barriers may be durable then. It must not wait.
    pub fn set_alarm(&self, alarm: Box<dyn Fn() + Send>) {
        *self.shared.alarm.lock() = Some(alarm);
    }

    /// Has this called once the device is given up. It may wait.
    pub fn set_given_up(&self, given_up: Box<dyn FnOnce() + Send>) {
        *self.shared.given_up.lock() = Some(given_up);
    }

    /// Looks a key up without waiting: `Err` if only the device can tell.
    ///
    /// # Errors
    /// The item may be on flash: [`Self::get`] waits for it.
    pub fn try_get(&self, tenant: TenantNumber, hash: u64, db: u8, key: &[u8]) -> Result<Option<Found>, OnFlash> {
        match self.shared.volume.lock().lookup(tenant, hash, db, key, now_ms()) {
            Lookup::Absent => Ok(None),
            Lookup::Found(found) => Ok(Some(found)),
            Lookup::Read(_) => Err(OnFlash),
        }
    }

    /// Takes an item in, in place of older contents of its key.
    ///
    /// # Errors
    /// See [`Refused`]; older contents have gone then, too.
    pub fn put(&self, tenant: TenantNumber, hash: u64, item: &Item) -> Result<(), Refused> {
        self.change(|volume, now_ms| volume.put(tenant, hash, item, now_ms))
    }

    /// Removes an item that was found.
    pub fn remove(&self, tenant: TenantNumber, hash: u64, place: Place) -> Barrier {
        self.change(|volume, now_ms| volume.remove(tenant, hash, place, now_ms))
    }

    /// Removes whatever may be of this key, without looking.
    pub fn drop_unread(&self, tenant: TenantNumber, hash: u64) -> Barrier {
        self.change(|volume, now_ms| volume.drop_unread(tenant, hash, now_ms))
    }

    /// Removes all items of a database, or of all, for good.
    ///
    /// # Errors
    /// The device was given up.
    pub fn flush(&self, tenant: TenantNumber, db: Option<u8>) -> Result<(), GivenUp> {
        let barrier = self.change(|volume, now_ms| {
            let barrier = volume.flush(tenant, db, now_ms);
            volume.commit(now_ms);
            barrier
        });
        self.wait(barrier)
    }

    /// Memory holds the item of this place, too.
    pub fn promote(&self, tenant: TenantNumber, hash: u64, place: Place) -> bool {
        self.shared.volume.lock().promote(tenant, hash, place)
    }

    /// Memory evicted its unchanged copy. `false`: there is none here any more.
    pub fn demote_clean(&self, tenant: TenantNumber, hash: u64, place: Place) -> bool {
        self.shared.volume.lock().demote_clean(tenant, hash, place)
    }

    /// Changes how many segments a tenant may hold.
    pub fn set_grant(&self, tenant: TenantNumber, segments: usize) {
        self.change(|volume, now_ms| volume.set_grant(tenant, segments, now_ms));
    }

    /// Changes how stale a tenant's items may be after an unclean end, and how many bytes it may write a second; 0 for no limit.
    pub fn set_terms(&self, tenant: TenantNumber, staleness: Staleness, write_bytes_per_second: u64) {
        self.change(|volume, _| volume.set_terms(tenant, staleness, write_bytes_per_second));
    }

    /// The usage and counts of a tenant.
    pub fn stats(&self, tenant: TenantNumber) -> Stats {
        self.shared.volume.lock().stats(tenant)
    }

    /// Waits until this survives a crash.
    ///
    /// # Errors
    /// The device was given up.
    pub fn wait(&self, barrier: Barrier) -> Result<(), GivenUp> {
        let mut volume = self.shared.volume.lock();
        loop {
            if volume.is_durable(barrier) {
                return Ok(());
            }
            if volume.is_given_up() {
                return Err(GivenUp);
            }
            self.shared.work.notify_one();
            self.shared.ended.wait(&mut volume);
        }
    }

    /// Waits until nothing is written or read for its own sake.
    ///
    /// # Errors
    /// The device was given up.
    pub fn settle_writes(&self) -> Result<(), GivenUp> {
        self.settle(&mut self.shared.volume.lock(), |_| true)
    }

    /// Writes all that is in memory and the snapshot of the index, and says on the device that it was left clean. From then on
    /// nothing is found and nothing is taken.
    ///
    /// # Errors
    /// See [`CloseError`].
    pub fn close(&self) -> Result<(), CloseError> {
        let mut volume = self.shared.volume.lock();
        loop {
            volume.seal_all(now_ms());
            self.settle(&mut volume, Volume::is_committed)?;
            // Items of a segment that was being freed may have been copied meanwhile.
            if !volume.has_open() {
                break;
            }
        }
        let written = self
            .index
            .as_deref()
            .map_or(Ok(()), |path| snapshot::save(&volume, path));
        volume.write_clean();
        self.settle(&mut volume, |_| true)?;
        drop(volume);
        self.stop();
        self.shared.volume.lock().is_given_up = true;
        written.map_err(CloseError::Index)
    }

    /// Ends the writer.
    fn stop(&self) {
        let volume = self.shared.volume.lock();
        // Under the lock: the writer looks at it before it waits.
        self.shared
            .is_stopping
            .store(true, std::sync::atomic::Ordering::Release);
        drop(volume);
        self.shared.work.notify_all();
        if let Some(thread) = self.writer.lock().take() {
            // A writer that panicked has nothing to say here.
            let _ = thread.join();
        }
    }

    /// Waits until nothing is under way and this holds.
    fn settle(
        &self,
        volume: &mut parking_lot::MutexGuard<'_, Volume>,
        holds: fn(&Volume) -> bool,
    ) -> Result<(), GivenUp> {
        while volume.is_busy() || !holds(volume) {
            if volume.is_given_up() {
                return Err(GivenUp);
            }
            if !volume.is_busy() {
                volume.commit(now_ms());
            }
            self.shared.work.notify_one();
            self.shared.ended.wait(volume);
        }
        Ok(())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Volume, u64) -> T) -> T {
        let mut volume = self.shared.volume.lock();
        let (was_ticking, was_given_up) = (volume.is_ticking(), volume.is_given_up());
        let result = change(&mut volume, now_ms());
        // Else the writer finds it by itself when the time has come.
        let is_given_up = volume.is_given_up() && !was_given_up;
        let is_urgent = is_given_up || volume.has_requests() || (volume.is_ticking() && !was_ticking);
        drop(volume);
        if is_urgent {
            self.shared.work.notify_one();
        }
        result
    }
}

/// The item may be on flash, and the device was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("on flash")]
pub struct OnFlash;

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Nothing on a device that failed may be found again, since later deaths are not written to it.
    fn give_up(&self, superblocks: &[(u64, Buffer)]) {
        for (offset, bytes) in superblocks {
            // It failed before, and may fail again.
            let _ = self.device.write(*offset, bytes.as_ref());
        }
        let _ = self.device.flush();
        if let Some(given_up) = self.given_up.lock().take() {
            given_up();
        }
        self.ended.notify_all();
    }

    /// Carries out the volume's requests, until the store is dropped.
    fn write(&self, mut queue: Box<dyn Queue>) {
        let mut done: Vec<Done> = Vec::new();
        let mut volume = self.volume.lock();
        let mut is_given_up = false;
        while !self.is_stopping.load(std::sync::atomic::Ordering::Acquire) {
            volume.tick(now_ms());
            if volume.is_given_up() && !std::mem::replace(&mut is_given_up, true) {
                let anew = volume.disown();
                parking_lot::MutexGuard::unlocked(&mut volume, || self.give_up(&anew));
            }
            while queue.under_way() < DEPTH as usize
                && let Some(io) = volume.next_io()
            {
                queue.submit(io.id, request(io.kind));
            }
            if queue.under_way() == 0 {
                let most = if volume.is_ticking() { TICK } else { IDLE_TICK };
                self.work.wait_for(&mut volume, most);
                continue;
            }
            parking_lot::MutexGuard::unlocked(&mut volume, || queue.wait(&mut done));
            for Done { token, result, buffer } in done.drain(..) {
                let bytes = buffer.as_ref().map(Buffer::as_ref);
                volume.io_done(token, result.map(|()| bytes).map_err(|_| ()), now_ms());
            }
            self.ended.notify_all();
            if let Some(alarm) = &*self.alarm.lock() {
                alarm();
            }
        }
    }
}

fn request(kind: IoKind) -> Request {
    match kind {
        IoKind::Write { offset, bytes, part } => Request::Write { offset, bytes, part },
        IoKind::Read { offset, bytes } => Request::Read {
            offset,
            buffer: Buffer::zeroed(bytes),
        },
        IoKind::Flush => Request::Flush,
    }
}

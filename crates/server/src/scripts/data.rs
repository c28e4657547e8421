//! The view that a script has of its tenant's keys: copies, which its commands read and write, and which are written
//! back at the end.
//!
//! A key is copied when the script first names it, and watched from then on. Commands are executed by the handlers that
//! clients' commands are executed by, on a store that has the copies only.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidemark_plane::Purpose;
use tidemark_protocol::resp::command::{CommandId, Flags, Row, resolve};
use tidemark_protocol::resp::{ArgList, Args, ErrorReply, Limits, Reply, Version, parse};
use tidemark_scripts::Host;
use tidemark_store::{Attributes, Hasher, KeeperInbox, Key, Pool, Refused, TenantConfig, TenantStore, Watch};
use tidemark_types::{Policy, UnixMs};

use super::Job;
use crate::access::{Access, ShardSet};
use crate::counts::{Count, TurnCounts};
use crate::limits::{
    SCRIPT_SCRATCH_BYTES, SCRIPT_SCRATCH_GRANT_BYTES, SCRIPT_SCRATCH_RUNS, TRANSACTION_BYTES, TRANSACTION_COMMANDS,
};
use crate::memory::Room;
use crate::output::Output;
use crate::redis;
use crate::session::{Exec, Session, Visit};
use crate::shared::Shared;
use crate::step::admit_data;
use crate::suspend::seek;
use crate::transaction::Transaction;

/// A thread's store for the copies of one script at a time.
#[derive(Default)]
pub(crate) struct Scratch {
    store: Option<(Pool, Arc<TenantStore>)>,
    runs: u32,
}

impl Scratch {
    /// The store, empty.
    fn store(&mut self) -> Option<Arc<TenantStore>> {
        self.runs += 1;
        if self.store.is_none() {
            self.store = make_store()
                .inspect_err(|error| tracing::warn!(%error, "memory for scripts"))
                .ok();
        }
        let (_, store) = self.store.as_ref()?;
        if self.runs.is_multiple_of(SCRIPT_SCRATCH_RUNS) {
            // The rest of deleted keys.
            store.clear();
        }
        Some(Arc::clone(store))
    }
}

fn make_store() -> std::io::Result<(Pool, Arc<TenantStore>)> {
    let pool = Pool::without_thread(SCRIPT_SCRATCH_BYTES, Some(SCRIPT_SCRATCH_BYTES))?;
    let config = TenantConfig {
        policy: Policy::Fifo,
        ..TenantConfig::with_keeper(KeeperInbox::new(Box::new(|| {})), Hasher::random()?)
    };
    let store = TenantStore::new(&pool, config);
    store.set_grant(SCRIPT_SCRATCH_GRANT_BYTES, 0);
    Ok((pool, store))
}

/// A key that was copied.
struct Copied {
    /// `None` where its shard is locked all the time.
    watch: Option<Watch>,
    /// The changes to it.
    written: Written,
}

/// The outcome of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Committed {
    Done,
    /// A value that was read has changed: it is to be run again.
    Changed,
    /// A key that the transaction watches has changed: it is not to be run.
    Unwatched,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    Nothing,
    Expiry,
    Value,
}

/// The value and the attributes of a copy; `None` of a key that there is not.
type Value = Option<(Vec<u8>, Attributes)>;

/// The copies that were written before a script of a transaction began.
pub(super) struct Before<'j>(Vec<(&'j [u8], Written, Value)>);

/// The keys of one run of a script, or of a transaction with scripts.
pub(super) struct Data<'j> {
    job: &'j Job,
    declared: HashSet<&'j [u8]>,
    /// The keys of the script that runs, if others were declared by other commands.
    only: Option<HashSet<Box<[u8]>>>,
    is_read_only: bool,
    store: Option<Arc<TenantStore>>,
    /// The tenant's shards: one at a time, or those of all declared keys.
    access: Access<'j>,
    copied: HashMap<&'j [u8], Copied>,
    session: Session,
    counts: TurnCounts,
    output: Output,
    now: UnixMs,
    calls: u32,
    bytes: usize,
    fault: Option<&'static str>,
    shared: &'j Shared,
}

const NO_MEMORY: &str = "ERR there is no memory to run the script";
const TOO_MUCH: &str = "ERR the script's keys and what it writes are above the limit of its memory";
const ON_FLASH: &str = "TRYAGAIN a key of the script went to flash while it ran";
const NOT_WRITTEN: &str = "OOM the script's keys could not be written, and are deleted";

impl<'j> Data<'j> {
    /// For a run of a job with these keys.
    pub(super) fn new(
        job: &'j Job,
        keys: &'j [Box<[u8]>],
        is_read_only: bool,
        scratch: &mut Scratch,
        shared: &'j Shared,
    ) -> Self {
        let store = scratch.store();
        let now = Shared::now();
        let mut access = Access::each(&job.tenant.store);
        access.flush_if_due(now);
        Self {
            declared: keys.iter().map(|key| &**key).collect(),
            only: None,
            is_read_only,
            fault: store.is_none().then_some(NO_MEMORY),
            store,
            access,
            copied: HashMap::new(),
            session: Session::of_script(Arc::clone(&job.client), job.db, job.permissions),
            counts: TurnCounts::default(),
            output: Output::default(),
            now,
            calls: 0,
            bytes: 0,
            job,
            shared,
        }
    }

    /// Locks the shards of all declared keys until the end, and those that a transaction watches.
    pub(super) fn lock(&mut self, transaction: Option<&Transaction>) {
        let shards = self.shards(self.declared.iter().copied());
        let watched = transaction.map_or_else(ShardSet::default, Transaction::watched_shards);
        self.access.hold(shards.with(watched));
    }

    /// Why the script's result does not count, if it does not: an error's text.
    pub(super) fn fault(&self) -> Option<&'static str> {
        self.fault
    }

    /// Forgets what the script wrote: it has failed.
    pub(super) fn forget_writes(&mut self) {
        for copied in self.copied.values_mut() {
            copied.written = Written::Nothing;
        }
    }

    /// Begins a script of a transaction: until [`Self::end_script`] only these keys are known.
    pub(super) fn begin_script(&mut self, keys: &[Box<[u8]>], is_read_only: bool) -> Before<'j> {
        self.only = Some(keys.iter().cloned().collect());
        self.is_read_only = is_read_only;
        self.session.version = Version::Resp2;
        let written = self
            .copied
            .iter()
            .filter(|(_, copied)| copied.written > Written::Nothing);
        let written: Vec<(&'j [u8], Written)> = written.map(|(key, copied)| (*key, copied.written)).collect();
        let of_script = written.into_iter().filter(|(key, _)| self.knows(key));
        Before(
            of_script
                .map(|(key, written)| (key, written, self.value(key)))
                .collect(),
        )
    }

    /// Ends it. If it has failed, its keys are as they were before it.
    pub(super) fn end_script(&mut self, before: &Before<'j>, has_failed: bool) {
        if has_failed {
            let touched: Vec<&'j [u8]> = self.copied.keys().copied().filter(|key| self.knows(key)).collect();
            for key in touched {
                let saved = before.0.iter().find(|(saved, ..)| *saved == key);
                let (written, value) = match saved {
                    Some((_, written, value)) => (*written, value.clone()),
                    // If it has changed since it was copied, the whole is run again.
                    None => (Written::Nothing, self.fetch(key, false)),
                };
                if let Some(copied) = self.copied.get_mut(key) {
                    copied.written = written;
                }
                self.store_copy(key, value);
            }
        }
        self.only = None;
        self.is_read_only = false;
    }

    fn knows(&self, key: &[u8]) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(key))
    }

    /// A copy as it is now.
    fn value(&self, bytes: &[u8]) -> Value {
        let scratch = self.store.as_ref()?;
        let of_copy = scratch.key(self.job.db, bytes);
        let mut copies = Access::each(scratch);
        let found = copies.shard_of(of_copy.hash).peek(&of_copy, self.now)?;
        Some((found.value().to_vec(), found.attributes()))
    }

    /// A command of a transaction that is no script. Its reply is appended.
    pub(super) fn perform_queued(&mut self, row: &'static Row, args: Args<'_>, reply: &mut Vec<u8>) {
        self.session.version = self.job.version;
        match self.admit(row, args) {
            Ok(()) => self.perform(row, args, reply),
            Err(text) => {
                self.count(row.id, true);
                reply.extend_from_slice(&super::thread::error_reply(&text));
            }
        }
    }

    /// Counts a script of a transaction, or a command that is refused.
    pub(super) fn count(&mut self, id: CommandId, has_failed: bool) {
        let before = self.counts.before();
        if has_failed {
            self.counts.add(Count::Errors, 1);
        }
        self.counts.command(id, before);
        self.counts.add(Count::Commands, 1);
    }

    /// Writes what was written, as one step. [`Committed::Changed`]: what was read has changed, and nothing is written.
    pub(super) fn commit(&mut self, transaction: Option<&Transaction>) -> Committed {
        self.now = Shared::now();
        self.access.pause();
        if !self.access.keeps_locks() {
            let shards = self.shards(self.copied.keys().copied());
            let watched = transaction.map_or_else(ShardSet::default, Transaction::watched_shards);
            self.access.hold(shards.with(watched));
        }
        let now = self.now;
        if transaction.is_some_and(|transaction| transaction.has_changed(&mut self.access, now)) {
            return Committed::Unwatched;
        }
        if self.has_changed() {
            return Committed::Changed;
        }
        if self.write().is_err() {
            // An item may go at any time; a part of what was written may not stay.
            self.delete_written();
            self.fault = Some(NOT_WRITTEN);
        }
        self.counts.hand_over(&self.job.tenant.counts);
        self.job.tenant.touch();
        Committed::Done
    }

    fn shards<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> ShardSet {
        let store = self.access.store();
        let mut shards = ShardSet::default();
        keys.for_each(|key| shards.add(store.shard_of(store.key(self.job.db, key).hash)));
        shards
    }

    fn key(&self, bytes: &'j [u8]) -> Key<'j> {
        self.access.store().key(self.job.db, bytes)
    }

    fn has_changed(&mut self) -> bool {
        let now = self.now;
        let (access, db) = (&mut self.access, self.job.db);
        self.copied.iter().any(|(bytes, copied)| {
            let key = access.store().key(db, bytes);
            let shard = access.shard_of(key.hash);
            copied
                .watch
                .as_ref()
                .is_some_and(|watch| shard.has_changed(&key, watch, now))
        })
    }

    fn write(&mut self) -> Result<(), Refused> {
        let Some(scratch) = &self.store else { return Ok(()) };
        let mut copies = Access::each(scratch);
        for (bytes, copied) in &self.copied {
            if copied.written == Written::Nothing {
                continue;
            }
            let of_copy = scratch.key(self.job.db, bytes);
            let key = self.access.store().key(self.job.db, bytes);
            let shard = self.access.shard_of(key.hash);
            match copies.shard_of(of_copy.hash).peek(&of_copy, self.now) {
                None => {
                    shard.delete(&key, self.now);
                }
                Some(found) if copied.written == Written::Expiry => {
                    shard.set_expiry(&key, found.attributes().expiry, self.now)?;
                }
                Some(found) => {
                    let attributes = Attributes {
                        token: None,
                        ..found.attributes()
                    };
                    shard.put(&key, &found.value().to_vec(), attributes, self.now)?;
                }
            }
        }
        Ok(())
    }

    fn delete_written(&mut self) {
        let (access, db, now) = (&mut self.access, self.job.db, self.now);
        for bytes in self
            .copied
            .iter()
            .filter(|(_, copied)| copied.written != Written::Nothing)
            .map(|(key, _)| key)
        {
            let key = access.store().key(db, bytes);
            access.shard_of(key.hash).delete(&key, now);
        }
    }

    /// Copies a key that the script names for the first time.
    fn copy(&mut self, bytes: &'j [u8], reads: bool) {
        let key = self.key(bytes);
        let now = self.now;
        let is_locked = self.access.keeps_locks();
        let shard = self.access.shard_of(key.hash);
        let purpose = if reads { Purpose::Get } else { Purpose::Other };
        if seek(&self.job.tenant, shard, &key, purpose, now).is_some() {
            self.fault = Some(ON_FLASH);
        }
        let watch = (!is_locked).then(|| shard.watch(&key, now));
        let copy = self.fetch(bytes, reads);
        let written = Written::Nothing;
        self.copied.insert(bytes, Copied { watch, written });
        if copy.is_some() {
            self.store_copy(bytes, copy);
        }
    }

    /// A key as the tenant has it.
    fn fetch(&mut self, bytes: &'j [u8], reads: bool) -> Value {
        let (key, now) = (self.key(bytes), self.now);
        let shard = self.access.shard_of(key.hash);
        let found = if reads {
            shard.get(&key, now)
        } else {
            shard.access(&key, now)
        };
        let value = found.map(|found| (found.value().to_vec(), found.attributes()));
        self.access.pause();
        value
    }

    /// Makes a copy what it is to be.
    fn store_copy(&mut self, bytes: &[u8], value: Value) {
        let Some(scratch) = &self.store else { return };
        let of_copy = scratch.key(self.job.db, bytes);
        match value {
            Some((value, attributes)) => {
                let attributes = Attributes {
                    token: None,
                    ..attributes
                };
                if scratch.put(&of_copy, &value, attributes, self.now).is_err() {
                    self.fault = Some(TOO_MUCH);
                }
            }
            None => {
                let mut copies = Access::each(scratch);
                copies.shard_of(of_copy.hash).delete(&of_copy, self.now);
            }
        }
    }

    /// Checks a command that the script calls, and copies its keys.
    fn admit(&mut self, row: &'static Row, args: Args<'_>) -> Result<(), String> {
        if !redis::may_call(row) {
            return Err("ERR This Redis command is not allowed from script".to_owned());
        }
        if !self.job.permissions.allows(row.permissions) {
            return Err(ErrorReply::NotPermitted(row).to_string());
        }
        let writes = row.flags.has(Flags::WRITE);
        if writes && self.is_read_only {
            return Err("ERR Write commands are not allowed from read-only scripts.".to_owned());
        }
        self.calls += 1;
        let moment = tidemark_plane::Moment::after_start(self.shared.started.elapsed());
        let throttle = &self.job.tenant.throttle;
        // The script itself was admitted as an operation for each of its keys.
        let operations = u64::from(self.calls as usize > self.declared.len().max(1));
        admit_data(throttle, row.flags.has(Flags::DENYOOM)).map_err(|refused| format!("OOM {refused}"))?;
        if operations > 0 && throttle.is_limited() {
            let admitted = throttle.admit(operations, 0, moment);
            admitted.map_err(|refused| format!("THROTTLED {refused}"))?;
        }
        if writes {
            self.bytes += args.from(1).map(<[u8]>::len).sum::<usize>();
            if self.bytes > TRANSACTION_BYTES + (TRANSACTION_BYTES >> 4) {
                return Err(ErrorReply::AboveLimit("what the script writes", TRANSACTION_BYTES, "bytes").to_string());
            }
        }
        for place in row.key_places(args) {
            let bytes = args.arg(place);
            let declared = self.declared.get(bytes).copied();
            let Some(declared) = declared.filter(|key| self.knows(key)) else {
                let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned();
                return Err(format!(
                    "ERR Script attempted to access a key that is not in KEYS: '{shown}'"
                ));
            };
            if !self.copied.contains_key(declared) {
                self.copy(declared, row.permissions.allows(tidemark_types::Permissions::READ));
            }
        }
        Ok(())
    }

    /// Executes a command on the copies. One that fails has written nothing.
    fn perform(&mut self, row: &'static Row, args: Args<'_>, reply: &mut Vec<u8>) {
        let Some(scratch) = &self.store else { return };
        let mut access = Access::each(scratch);
        access.hold(ShardSet::ALL);
        let evicted = access.shard(0).counters().evicted;
        let mut visit = Visit::new(0);
        // The reply is bounded by what a script may hold.
        visit.promise(usize::MAX, true);
        let room = Room::default();
        let before = self.counts.before();
        let mut exec = Exec {
            now: self.now,
            shared: self.shared,
            out: &mut self.output,
            counts: &mut self.counts,
            room: &room,
            visit: &mut visit,
        };
        redis::perform_for_script(args, row, &mut self.session, &mut access, &mut exec);
        if access.shard(0).counters().evicted != evicted {
            // A copy is gone, and the script would see that there is no such key.
            self.fault = Some(TOO_MUCH);
        }
        drop(access);
        let mark = reply.len();
        self.output.move_to(reply);
        if reply.get(mark) == Some(&b'-') {
            // The session is nobody's, so the handler has counted no error.
            self.counts.add(Count::Errors, 1);
        } else if row.flags.has(Flags::WRITE) {
            for place in row.key_places(args) {
                if let Some(copied) = self.copied.get_mut(args.arg(place)) {
                    copied.written = copied.written.max(written_by(row.id));
                }
            }
        }
        self.counts.command(row.id, before);
        self.counts.add(Count::Commands, 1);
    }
}

/// The effect of a writing command on its keys.
fn written_by(id: CommandId) -> Written {
    use CommandId as Id;
    match id {
        Id::Expire | Id::PExpire | Id::ExpireAt | Id::PExpireAt | Id::Persist | Id::GetEx => Written::Expiry,
        _ => Written::Value,
    }
}

impl Host for Data<'_> {
    fn call(&mut self, args: &[&[u8]], reply: &mut Vec<u8>) {
        let input = redis::as_command(args);
        let mut list = ArgList::new();
        parse(&input, &Limits::with_value_bytes(input.len()), &mut list);
        let args = list.args(&input);
        let refused = match resolve(args) {
            Err(ErrorReply::UnknownCommand(_)) => Err("ERR Unknown Redis command called from script".to_owned()),
            Err(ErrorReply::WrongArity(_)) => {
                Err("ERR Wrong number of args calling Redis command from script".to_owned())
            }
            Err(error) => Err(error.to_string()),
            Ok(row) => {
                let admitted = self.admit(row, args);
                if admitted.is_err() {
                    self.count(row.id, true);
                }
                admitted.map(|()| row)
            }
        };
        let row = match (refused, self.copied.len() > TRANSACTION_COMMANDS) {
            (Ok(row), false) => row,
            (Ok(_), true) => {
                return Reply::new(reply, Version::Resp2).error(&ErrorReply::AboveLimit(
                    "a script",
                    TRANSACTION_COMMANDS,
                    "keys that it uses",
                ));
            }
            (Err(text), _) => return reply.extend_from_slice(&super::thread::error_reply(&text)),
        };
        match self.fault {
            // Nothing that the script does counts any more.
            Some(fault) => reply.extend_from_slice(&super::thread::error_reply(fault)),
            None => self.perform(row, args, reply),
        }
    }

    fn log(&mut self, level: u8, message: &[u8]) {
        let message = String::from_utf8_lossy(&message[..message.len().min(1024)]).into_owned();
        let tenant = self.job.tenant.name.as_str();
        match level {
            3 => tracing::info!(tenant, message, "a script says"),
            _ => tracing::debug!(tenant, message, "a script says"),
        }
    }
}

impl Drop for Data<'_> {
    /// Ends the watches, and empties the copies for the next run.
    fn drop(&mut self) {
        let Some(scratch) = &self.store else { return };
        let mut copies = Access::each(scratch);
        for (bytes, copied) in &self.copied {
            if let Some(watch) = &copied.watch {
                let key = self.access.store().key(self.job.db, bytes);
                self.access.shard_of(key.hash).unwatch(watch);
            }
            let of_copy = scratch.key(self.job.db, bytes);
            copies.shard_of(of_copy.hash).delete(&of_copy, self.now);
        }
    }
}

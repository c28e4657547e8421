//! Every maximum of the data plane, with its reason. `docs/design/limits.md` shows this table.

use std::time::Duration;

/// Commands executed together: their index buckets and items are loaded ahead at the same time. Sixteen independent loads
/// take 10 to 12 ns each on the development machine, a dependent one 160 ns.
pub(crate) const WINDOW_COMMANDS: usize = 16;
/// Connections received from before any of them is answered.
pub(crate) const GROUP_CONNECTIONS: usize = 16;
/// Bytes received from a connection in a turn: a large pipeline in one system call, and a bound on its share of the turn.
pub(crate) const RECEIVE_BYTES: usize = 64 << 10;
/// A worker's memory for receiving: several connections' pipelines, within the second-level cache.
pub(crate) const SCRATCH_BYTES: usize = 4 * RECEIVE_BYTES;
/// A worker's buffers for commands that are longer, kept for the next ones.
pub(crate) const SPARE_BYTES: usize = 8 << 20;
/// Commands of a connection in a turn: about a hundred microseconds of work. The rest waits for the next one, so that a
/// pipeline of a million delays nobody.
pub(crate) const TURN_COMMANDS: usize = 256;
/// Connections served in a turn, between two slices of upkeep.
pub(crate) const TURN_CONNECTIONS: usize = 64;
/// Work after which the system is asked which connections are ready. Waiting connections are seen then, and served
/// before those that had their share. Asking takes about a microsecond.
pub(crate) const POLL_EVERY: Duration = Duration::from_micros(100);
/// The same if a tenant asks for little beside one that does not: its wait is mostly this, once or twice. If all ask
/// for as much, larger groups serve them all sooner.
pub(crate) const POLL_EVERY_UNEVEN: Duration = Duration::from_micros(50);
/// A connection whose visit is expected to take longer is served by itself.
pub(crate) const LONG_VISIT: Duration = Duration::from_micros(25);
/// Upkeep of shards per turn. It stays below 20 us with the part that goes on when the time is over, and with a
/// machine's occasional delays.
pub(crate) const KEEPER_SLICE: Duration = Duration::from_micros(10);

/// Replies that a connection may have waiting: beyond it nothing more is read from it until they are sent.
pub(crate) const REPLY_BYTES: usize = 256 << 10;
/// Bytes sent to a connection in a turn: about a hundred microseconds, so that one who asks for megabytes delays others
/// by no more. The longest value of the log with its framing. Mostly, only values that need no copy have to wait then.
pub(crate) const SEND_BYTES: usize = 272 << 10;
/// A value of at least this size is sent from its place instead of being copied: two copies of 16 KiB cost more than a
/// pin and a gathering send.
pub(crate) const PIN_BYTES: usize = 16 << 10;
/// A value of at least this size is copied into its place without holding the shard's lock, if possible. The copy takes
/// more than the 20 us for which a lock may be held.
pub(crate) const LONG_VALUE_BYTES: usize = 256 << 10;
/// So much of a long value is copied in a turn: with the evictions for its room some tens of microseconds.
pub(crate) const COPIED_BYTES: usize = 64 << 10;
/// A connection with waiting replies or requests is closed when nothing moved for so long, in neither direction. Its
/// other side is gone, or holds memory hostage.
const STALLED: Duration = Duration::from_secs(60);
/// A command that is incomplete for so long closes its connection: its sender is gone, or holds a buffer hostage.
const INCOMPLETE_COMMAND: Duration = Duration::from_secs(60);
/// Time for a login where one is needed.
const LOGIN_TIME: Duration = Duration::from_secs(5);

/// Commands of a tenant that wait for flash at a time, over all its connections. A device answers as many within a tenth of a second.
const SUSPENDED_COMMANDS: u64 = 4096;
/// Bytes that they read together: a read is begun when fewer are wanted.
pub(crate) const SUSPENDED_READ_BYTES: u64 = 64 << 20;

/// How much clients may take. They are looked at once a second, so a connection lives up to a second longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// While replies or requests wait, without anything moving in either direction.
    pub stalled: Duration,
    /// To complete a command of which a part was received.
    pub incomplete_command: Duration,
    /// The time to log in, if that is needed.
    pub login: Duration,
    /// The delay of the answer to a login that failed.
    pub failed_login: Duration,
    /// Bytes that all connections may hold beyond their own parts, at least: with a large pool it is more.
    pub buffer_bytes: u64,
    /// Commands of a tenant that wait for flash at a time: another one is refused.
    pub suspended_commands: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stalled: STALLED,
            incomplete_command: INCOMPLETE_COMMAND,
            login: LOGIN_TIME,
            failed_login: FAILED_LOGIN,
            buffer_bytes: BUFFER_BYTES_MIN,
            suspended_commands: SUSPENDED_COMMANDS,
        }
    }
}
/// Bytes that a connection may send before it has logged in.
pub(crate) const LOGIN_BYTES: usize = 4 << 10;
/// Idle time after which the system asks the other side whether it is still there, to notice half-open connections.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(300);
/// How often connections are looked at for these limits.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A connection's own part of memory, which is never refused: the longest login or small command, and replies to small ones.
pub(crate) const OWN_BYTES: usize = 8 << 10;
/// The part of it for an incomplete command.
pub(crate) const OWN_INPUT_BYTES: usize = 4 << 10;
/// The part of it for replies after which nothing more is executed until they are sent, if the tenant's memory is used
/// up. As much again is for the last one.
pub(crate) const OWN_REPLY_BYTES: usize = 2 << 10;
/// All connections' memory beyond their own parts, at least; and at least this part of the pool.
pub(crate) const BUFFER_BYTES_MIN: u64 = 64 << 20;
pub(crate) const BUFFER_POOL_FRACTION: u64 = 16;
/// The least for each worker: the longest commands of several connections.
pub(crate) const BUFFER_BYTES_PER_WORKER: u64 = 4 << 20;
/// This part of it is not lent to those above their shares, so that a share is there when it is wanted.
pub(crate) const KEPT_FOR_SHARES_DIVISOR: u64 = 4;
/// This part of it is the longest reply that is promised as a whole.
pub(crate) const REPLY_MEMORY_DIVISOR: u64 = 2;
/// Requests of a connection that are kept while its replies wait; beyond, nothing more is read from it.
pub(crate) const KEPT_REQUEST_BYTES: usize = 8 << 20;
/// Memory that was lent and that another tenant wants back is taken from connections that have held it for so long.
pub(crate) const RECALLED_AFTER: Duration = Duration::from_secs(1);
/// Memory that other connections of the same tenant wait for is taken from those on which nothing has moved for so long.
pub(crate) const WANTED_AFTER: Duration = Duration::from_secs(5);

/// File descriptors kept for listeners, the state file and the administration.
pub(crate) const RESERVED_DESCRIPTORS: u64 = 64;
/// Failed logins of a connection in Redis's protocol, the last of which closes it: a person mistypes once or twice.
pub(crate) const FAILED_LOGINS: u32 = 3;
/// How long the answer to a failed login waits: a person hardly notices, and a program that tries again and again is slow.
const FAILED_LOGIN: Duration = Duration::from_millis(500);
/// Failed logins that are logged in a second; of others the number is logged. An attack must not fill the disk.
pub(crate) const LOGGED_FAILURES: u32 = 10;
/// Length of a client's name, library name and version (CLIENT SETNAME, SETINFO).
pub(crate) const CLIENT_NAME_BYTES: usize = 256;

/// Commands in a transaction.
pub(crate) const TRANSACTION_COMMANDS: usize = 1024;
/// Bytes of keys in a transaction.
pub(crate) const TRANSACTION_KEY_BYTES: usize = 64 << 10;
/// Bytes of all arguments in a transaction.
pub(crate) const TRANSACTION_BYTES: usize = 1 << 20;
/// Keys that a connection watches; their bytes are bounded as those of a transaction's.
pub(crate) const WATCHED_KEYS: usize = 1024;
/// Scripts that a tenant can call by their names; those that were not used for longest go.
pub(crate) const SCRIPTS_KNOWN: usize = 512;
/// Bytes of their texts, and of the longest script.
pub(crate) const SCRIPT_BYTES_KNOWN: usize = 256 << 10;
/// Scripts of a tenant that wait for their turn.
pub(crate) const SCRIPTS_WAITING: usize = 1024;
/// Tenants for which is remembered how much their scripts have taken, unless more have scripts that wait.
pub(crate) const SCRIPT_LANES_KEPT: usize = 1024;
/// Steps of Lua that a script takes on a quick thread before it is begun anew on a slow one: some milliseconds.
pub(crate) const QUICK_SCRIPT_STEPS: u64 = 200_000;
/// CPU time that it takes there.
pub(crate) const QUICK_SCRIPT_TIME: Duration = Duration::from_millis(5);
/// Steps that a script takes in all.
pub(crate) const SCRIPT_STEPS: u64 = 50_000_000;
/// CPU time that it takes in all.
pub(crate) const SCRIPT_TIME: Duration = Duration::from_secs(1);
/// Steps that it takes while its keys' shards are locked, after it met others' writes each time: some tens of microseconds.
pub(crate) const LOCKED_SCRIPT_STEPS: u64 = 2_000;
/// CPU time that it takes then. Looked at every few steps, of which one may copy megabytes.
pub(crate) const LOCKED_SCRIPT_TIME: Duration = Duration::from_millis(1);
/// Lua engines that a thread for scripts keeps, each for one tenant.
pub(crate) const SCRIPT_ENGINES: usize = 16;
/// Memory for the copies that a script works on, of each such thread: what a script may write, many times, since a copy that is
/// written anew leaves the old one behind.
pub(crate) const SCRIPT_SCRATCH_BYTES: u64 = 64 << 20;
/// The part of it for copies.
pub(crate) const SCRIPT_SCRATCH_GRANT_BYTES: u64 = 48 << 20;
/// Scripts after which a thread gives that memory back.
pub(crate) const SCRIPT_SCRATCH_RUNS: u32 = 256;
/// Keys that KEYS answers at most.
pub(crate) const KEYS_ANSWERED: usize = 10_000;
/// Keys that one SCAN looks at, about, whatever its COUNT.
pub(crate) const SCANNED_KEYS: usize = 10_000;
/// Index buckets that SCAN and KEYS read under one lock. With eight items each, and one load that misses the caches for
/// each, they take half of the 20 us that a lock may be held.
pub(crate) const SCANNED_BUCKETS: usize = 8;
/// Keys that one SCAN looks at on flash, about, if its COUNT is less: a whole segment was read for them.
pub(crate) const FLASH_SCANNED_KEYS: u64 = 512;
/// Records on flash that a walk looks at in a turn: about a hundred microseconds of checksums if they have a kilobyte.
pub(crate) const FLASH_TURN_RECORDS: usize = 512;
/// The cost of a segment that was read, in records: some 30 segments are read for one SCAN at most.
pub(crate) const FLASH_SEGMENT_COST: u64 = 512;
/// The limit of RANDOMKEY's search on flash in the same unit: some 60 segments. Beyond, it answers a key that is in memory.
pub(crate) const FLASH_RANDOM_COST: u64 = 32_768;
/// The limit of the reply to one command, values sent from their place included. A few bytes of MGET or of a
/// transaction can ask for the same megabyte again and again. See [`REPLY_MEMORY_DIVISOR`].
pub(crate) const COMMAND_REPLY_BYTES: usize = 64 << 20;
/// The reply to a command that describes the server or its commands (INFO, COMMAND, `stats`).
pub(crate) const DESCRIPTION_BYTES: usize = 256 << 10;
/// Arguments of a command that asks for descriptions, so that they are no longer than that.
pub(crate) const DESCRIBED_NAMES: usize = 512;
/// Keys of a long list that are looked at in a turn: about a hundred microseconds if none of them is in the caches.
pub(crate) const TURN_KEYS: usize = 512;
/// Connections that CLIENT LIST and CLIENT KILL look at in a turn: about a hundred microseconds.
pub(crate) const TURN_CLIENTS: usize = 128;
/// Connections among which `stats conns` looks for the tenant's own, in one step: the longest-lived ones.
pub(crate) const DESCRIBED_CONNECTIONS: usize = 512;
/// Bytes of keys that SCAN and KEYS compare with a pattern in a turn, at eight pattern bytes a step: about a hundred
/// microseconds. One key may be more.
pub(crate) const TURN_COMPARED_BYTES: u64 = 64 << 10;

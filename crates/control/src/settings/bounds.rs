//! Bounds and defaults of settings, each with its reason.

use std::time::Duration;

use tidemark_types::MIB;

/// The least cap of a tenant: one small segment and its index for each of a few shards fit, so that the tenant can
/// work.
pub const MIN_CAP_BYTES: u64 = MIB;
/// The most cap of a tenant: more than any machine has, and the state file's signed integers hold it.
pub(crate) const MAX_CAP_BYTES: u64 = 1 << 60;
/// The least cap of a tenant's flash: a segment to fill, one that is written, and two that are kept ready.
pub const MIN_FLASH_CAP_BYTES: u64 = 4 * MIB;
/// The least bytes a second that a tenant can be limited to on flash. Half of them are kept for what is known to be used. A
/// value that is longer than this is never written.
pub(crate) const MIN_FLASH_WRITE_BYTES: u64 = 512 << 10;
/// The least pool: the reserve, and a few tenants of the least cap.
pub const MIN_POOL_BYTES: u64 = 8 * MIB;
/// The most tenants of one server: beyond it, listing them and loading the state file at the start would take seconds.
pub const MAX_TENANTS: usize = 65_536;
/// The most operations a second that a tenant can be limited to: more than any machine serves.
pub(crate) const MAX_OPS_PER_SECOND: u64 = 1_000_000_000;
/// The least bytes a second that a tenant can be limited to: below it, a single command could take all of a minute.
pub(crate) const MIN_BYTES_PER_SECOND: u64 = 1 << 10;
/// The most bytes a second that a tenant can be limited to: more than any machine's network carries.
pub(crate) const MAX_BYTES_PER_SECOND: u64 = 1 << 40;
/// The most connections that a tenant can be limited to: more than a server can have descriptors for (Linux's `nr_open`).
pub(crate) const MAX_CONNECTIONS: u64 = 1 << 20;
/// How often the control plane looks, unless it is woken.
pub const DEFAULT_ROUND_PERIOD: Duration = Duration::from_secs(1);
/// A shorter round would cost CPU time that belongs to the workers.
pub const MIN_ROUND_PERIOD: Duration = Duration::from_millis(100);
/// A longer round would make floors and grants that come "within two rounds" meaningless.
pub const MAX_ROUND_PERIOD: Duration = Duration::from_secs(60);
/// The first grant, which the data plane makes by itself at the first write as far as memory is free. It is enough for
/// the writes (at 1 GB/s) until the control plane has heard of it and answered.
pub const DEFAULT_FIRST_GRANT_BYTES: u64 = 20 * MIB;
/// With a smaller first grant than the least cap, a tenant could not work until the next round.
pub const MIN_FIRST_GRANT_BYTES: u64 = MIN_CAP_BYTES;
/// A tenant that was asked nothing for this long gives its memory to those that want it.
pub const DEFAULT_IDLE_AFTER: Duration = Duration::from_secs(300);
/// A shorter silence is what many clients have between two bursts.
pub const MIN_IDLE_AFTER: Duration = Duration::from_secs(1);
/// A year: an operator that asks for more wants no tenant to be idle, and has that.
pub const MAX_IDLE_AFTER: Duration = Duration::from_secs(31_536_000);

/// Goals of the highest priority are served first: ten classes are more than anybody tells apart.
pub const MAX_PRIORITY: u8 = 9;
/// In the middle, so that some can be put above all others and some below.
pub const DEFAULT_PRIORITY: u8 = 5;
/// The least time that a get, or a miss, may be said to take.
pub const MIN_COST: Duration = Duration::from_micros(1);
/// The longest: no client waits longer for an answer.
pub const MAX_COST: Duration = Duration::from_secs(60);
/// The time of a hit for a client on the same network while the server is idle, its way there and back included.
pub const DEFAULT_HIT_COST: Duration = Duration::from_micros(50);
/// How often an instance looks at the other instances' leases and states its own. Memory moves in about three such looks:
/// one needs it, one gives it back, one takes it.
pub const DEFAULT_LEASE_PERIOD: Duration = Duration::from_secs(1);
/// A shorter one would cost CPU time for nothing: giving memory back takes as long.
pub const MIN_LEASE_PERIOD: Duration = Duration::from_millis(100);
/// With a longer one, memory would not be where it is worth most within 30 s.
pub const MAX_LEASE_PERIOD: Duration = Duration::from_secs(10);

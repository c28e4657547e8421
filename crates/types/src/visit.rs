//! The data plane's records of the commands of sampled visits: their keys and their cost. They tell the heaviest parts
//! of a tenant's load.
//!
//! A *visit* is one pass over a connection. Every command that was finished in a sampled one is recorded.

/// The longest part of a key that is recorded, in bytes.
pub const KEY_PREFIX_BYTES_MAX: usize = 128;
/// Keys of one command that are recorded, from its first on.
pub const COMMAND_KEYS_MAX: usize = 16;
/// Commands of a tenant that wait for a snapshot. Beyond, visits are left out.
pub const SAMPLED_COMMANDS_MAX: usize = 4_096;
/// Bytes of keys that wait with them, with a length before each.
pub const SAMPLED_KEY_BYTES_MAX: usize = 128 << 10;

/// A command of a sampled visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledCommand {
    /// `memcached` or `redis`.
    pub protocol: &'static str,
    /// In lower case; a subcommand's as `client|list`.
    pub command: &'static str,
    /// Bytes of the request and of the reply, before TLS.
    pub request_bytes: u32,
    /// See `request_bytes`.
    pub reply_bytes: u32,
    /// About how long executing it took, in nanoseconds: what a tenant's CPU time is shared by.
    pub work_ns: u32,
    /// How many keys it has; [`VisitSamples::push`] says it.
    pub keys: u32,
    /// How many of them are recorded; that says it, too.
    pub recorded: u32,
}

/// The commands of a tenant's sampled visits between two snapshots. Bounded by [`SAMPLED_COMMANDS_MAX`] and
/// [`SAMPLED_KEY_BYTES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisitSamples {
    /// Visits that were sampled.
    pub visits: u32,
    commands: Vec<SampledCommand>,
    /// Each key behind its length.
    keys: Vec<u8>,
}

impl SampledCommand {
    /// A command without keys.
    pub fn new(protocol: &'static str, command: &'static str) -> Self {
        Self {
            protocol,
            command,
            request_bytes: 0,
            reply_bytes: 0,
            work_ns: 0,
            keys: 0,
            recorded: 0,
        }
    }
}

impl VisitSamples {
    /// Whether no command is recorded.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Records a command with its keys. The first bytes of each of the first keys are copied.
    pub fn push<'k>(&mut self, command: SampledCommand, keys: impl ExactSizeIterator<Item = &'k [u8]>) {
        let count = keys.len();
        let mut recorded = 0;
        for key in keys.take(COMMAND_KEYS_MAX) {
            let kept = &key[..key.len().min(KEY_PREFIX_BYTES_MAX)];
            self.keys.push(kept.len() as u8);
            self.keys.extend_from_slice(kept);
            recorded += 1;
        }
        self.commands.push(SampledCommand {
            keys: u32::try_from(count).unwrap_or(u32::MAX),
            recorded,
            ..command
        });
    }

    /// Takes over a visit's commands, if there is room for all of them; empties `visit`.
    pub fn append(&mut self, visit: &mut Self) {
        let has_room = self.commands.len() + visit.commands.len() <= SAMPLED_COMMANDS_MAX
            && self.keys.len() + visit.keys.len() <= SAMPLED_KEY_BYTES_MAX;
        if has_room {
            self.visits += 1;
            self.commands.append(&mut visit.commands);
            self.keys.append(&mut visit.keys);
        }
        visit.clear();
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.visits = 0;
        self.commands.clear();
        self.keys.clear();
    }

    /// Each command with its recorded keys.
    pub fn iter(&self) -> impl Iterator<Item = (&SampledCommand, impl Iterator<Item = &[u8]>)> {
        let mut rest = &self.keys[..];
        self.commands.iter().map(move |command| {
            let mut keys = rest;
            for _ in 0..command.recorded {
                rest = behind_first(rest).1;
            }
            let of_command = (0..command.recorded).map(move |_| {
                let (key, behind) = behind_first(keys);
                keys = behind;
                key
            });
            (command, of_command)
        })
    }
}

/// The first of some keys, and what is behind it.
fn behind_first(keys: &[u8]) -> (&[u8], &[u8]) {
    let Some((&length, rest)) = keys.split_first() else {
        return (&[], &[]);
    };
    rest.split_at(rest.len().min(length.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(samples: &VisitSamples) -> Vec<(&'static str, u32, Vec<Vec<u8>>)> {
        let of = |(command, keys): (&SampledCommand, _)| (command.command, command.keys, owned(keys));
        samples.iter().map(of).collect()
    }

    fn owned<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        keys.map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn commands_come_back_with_the_beginnings_of_their_first_keys() {
        let long = [b'x'; KEY_PREFIX_BYTES_MAX + 1];
        let many = vec![&b"k"[..]; COMMAND_KEYS_MAX + 4];
        let mut samples = VisitSamples::default();
        samples.push(SampledCommand::new("redis", "get"), [&b"a\0b"[..]].into_iter());
        samples.push(SampledCommand::new("redis", "ping"), [].into_iter());
        samples.push(SampledCommand::new("redis", "mget"), [&b""[..], &long[..]].into_iter());
        samples.push(SampledCommand::new("redis", "del"), many.into_iter());
        assert_eq!(
            recorded(&samples),
            [
                ("get", 1, vec![b"a\0b".to_vec()]),
                ("ping", 0, vec![]),
                ("mget", 2, vec![vec![], vec![b'x'; KEY_PREFIX_BYTES_MAX]]),
                ("del", 20, vec![b"k".to_vec(); COMMAND_KEYS_MAX]),
            ]
        );
    }

    #[test]
    fn a_visit_is_kept_as_a_whole_or_not_at_all() {
        let visit = |commands: usize, key: &[u8]| {
            let mut visit = VisitSamples::default();
            for _ in 0..commands {
                visit.push(SampledCommand::new("redis", "get"), [key].into_iter());
            }
            visit
        };
        let mut samples = VisitSamples::default();
        for (commands, key_bytes, expected) in [
            (SAMPLED_COMMANDS_MAX - 1, 1, (1, SAMPLED_COMMANDS_MAX - 1)),
            (2, 1, (1, SAMPLED_COMMANDS_MAX - 1)),
            (1, 1, (2, SAMPLED_COMMANDS_MAX)),
        ] {
            let mut visit = visit(commands, &vec![b'k'; key_bytes]);
            samples.append(&mut visit);
            assert!(visit.is_empty());
            assert_eq!((samples.visits, samples.commands.len()), expected);
        }
        samples.clear();
        let fits = SAMPLED_KEY_BYTES_MAX / (KEY_PREFIX_BYTES_MAX + 1);
        samples.append(&mut visit(fits, &[b'k'; KEY_PREFIX_BYTES_MAX]));
        samples.append(&mut visit(fits, &[b'k'; KEY_PREFIX_BYTES_MAX]));
        assert_eq!((samples.visits, samples.commands.len()), (1, fits));
    }
}

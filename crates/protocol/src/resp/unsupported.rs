//! Names of commands that Redis (to 8), Valkey (to 9) and their best known modules have and Tidemark does not offer.
//!
//! A client that sends one is told so; "unknown command" would send its user to look for a typing error. Both lists are
//! sorted, in lower case, and looked at only after a command was not found.

/// Whether a command of this name, in any case, exists elsewhere.
pub(super) fn is_command(name: &[u8]) -> bool {
    find(COMMANDS, name) || is_module_command(name)
}

/// Whether the offered command `container` has a subcommand of this name elsewhere.
pub(super) fn is_subcommand(container: &str, name: &[u8]) -> bool {
    let known: &[&str] = match container {
        "acl" => &[
            "cat", "deluser", "dryrun", "genpass", "getuser", "help", "list", "load", "log", "save", "setuser", "users",
        ],
        "client" => &[
            "caching",
            "capa",
            "getredir",
            "help",
            "import-source",
            "maint_notifications",
            "pause",
            "trackinginfo",
            "unblock",
            "unpause",
        ],
        "command" => &["getkeysandflags", "help"],
        "config" => &["help", "resetstat", "rewrite", "set"],
        "module" => &["help", "load", "loadex", "unload"],
        "script" => &["debug", "help", "show"],
        _ => &[],
    };
    find(known, name)
}

fn find(sorted: &[&str], name: &[u8]) -> bool {
    let lower = name.iter().map(u8::to_ascii_lowercase);
    sorted
        .binary_search_by(|known| known.bytes().cmp(lower.clone()))
        .is_ok()
}

/// Modules name their commands `MODULE.COMMAND`.
fn is_module_command(name: &[u8]) -> bool {
    let dot = name.iter().position(|byte| *byte == b'.');
    dot.is_some_and(|dot| find(MODULES, &name[..dot]))
}

const MODULES: &[&str] = &[
    "ai",
    "bf",
    "bloom",
    "cf",
    "cms",
    "ft",
    "graph",
    "json",
    "redisgears",
    "tdigest",
    "tfunction",
    "timeseries",
    "topk",
    "ts",
];

const COMMANDS: &[&str] = &[
    "asking",
    "bgrewriteaof",
    "bgsave",
    "bitcount",
    "bitfield",
    "bitfield_ro",
    "bitop",
    "bitpos",
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "cluster",
    "commandlog",
    "copy",
    "debug",
    "delex",
    "delifeq",
    "digest",
    "dump",
    "failover",
    "fcall",
    "fcall_ro",
    "function",
    "geoadd",
    "geodist",
    "geohash",
    "geopos",
    "georadius",
    "georadius_ro",
    "georadiusbymember",
    "georadiusbymember_ro",
    "geosearch",
    "geosearchstore",
    "getbit",
    "hdel",
    "hexists",
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hget",
    "hgetall",
    "hgetdel",
    "hgetex",
    "hincrby",
    "hincrbyfloat",
    "hkeys",
    "hlen",
    "hmget",
    "hmset",
    "hotkeys",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hrandfield",
    "hscan",
    "hset",
    "hsetex",
    "hsetnx",
    "hstrlen",
    "httl",
    "hvals",
    "lastsave",
    "latency",
    "lcs",
    "lindex",
    "linsert",
    "llen",
    "lmove",
    "lmpop",
    "lolwut",
    "lpop",
    "lpos",
    "lpush",
    "lpushx",
    "lrange",
    "lrem",
    "lset",
    "ltrim",
    "memory",
    "migrate",
    "monitor",
    "move",
    "msetex",
    "object",
    "pfadd",
    "pfcount",
    "pfdebug",
    "pfmerge",
    "pfselftest",
    "psubscribe",
    "psync",
    "publish",
    "pubsub",
    "punsubscribe",
    "readonly",
    "readwrite",
    "replconf",
    "replicaof",
    "restore",
    "restore-asking",
    "rpop",
    "rpoplpush",
    "rpush",
    "rpushx",
    "sadd",
    "save",
    "scard",
    "sdiff",
    "sdiffstore",
    "sentinel",
    "setbit",
    "shutdown",
    "sinter",
    "sintercard",
    "sinterstore",
    "sismember",
    "slaveof",
    "slowlog",
    "smembers",
    "smismember",
    "smove",
    "sort",
    "sort_ro",
    "spop",
    "spublish",
    "srandmember",
    "srem",
    "sscan",
    "ssubscribe",
    "subscribe",
    "sunion",
    "sunionstore",
    "sunsubscribe",
    "swapdb",
    "sync",
    "unsubscribe",
    "vadd",
    "vcard",
    "vdim",
    "vemb",
    "vgetattr",
    "vinfo",
    "vismember",
    "vlinks",
    "vrandmember",
    "vrange",
    "vrem",
    "vsetattr",
    "vsim",
    "wait",
    "waitaof",
    "xack",
    "xackdel",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xdelex",
    "xgroup",
    "xinfo",
    "xlen",
    "xpending",
    "xrange",
    "xread",
    "xreadgroup",
    "xrevrange",
    "xsetid",
    "xtrim",
    "zadd",
    "zcard",
    "zcount",
    "zdiff",
    "zdiffstore",
    "zincrby",
    "zinter",
    "zintercard",
    "zinterstore",
    "zlexcount",
    "zmpop",
    "zmscore",
    "zpopmax",
    "zpopmin",
    "zrandmember",
    "zrange",
    "zrangebylex",
    "zrangebyscore",
    "zrangestore",
    "zrank",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
    "zrevrange",
    "zrevrangebylex",
    "zrevrangebyscore",
    "zrevrank",
    "zscan",
    "zscore",
    "zunion",
    "zunionstore",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::command::lookup;

    #[test]
    fn lists_are_sorted_and_disjoint_from_what_is_offered() {
        for list in [COMMANDS, MODULES] {
            assert!(list.is_sorted_by(|a, b| a < b), "{list:?}");
        }
        for name in COMMANDS {
            assert!(lookup(name.as_bytes()).is_none(), "{name} is offered");
            assert!(is_command(name.to_ascii_uppercase().as_bytes()), "{name}");
        }
        for container in ["acl", "client", "command", "config", "module", "script"] {
            let row = lookup(container.as_bytes()).unwrap();
            assert!(is_subcommand(container, b"HELP"), "{container}");
            for own in row.subcommands {
                let (_, own) = own.name.split_once('|').unwrap();
                assert!(
                    !is_subcommand(container, own.as_bytes()),
                    "{container} {own} is offered"
                );
            }
        }
    }

    #[test]
    fn modules_are_known_by_what_stands_before_the_dot() {
        for (name, known) in [
            ("JSON.GET", true),
            ("ft.search", true),
            ("json", false),
            (".get", false),
            ("foo.bar", false),
        ] {
            assert_eq!(is_command(name.as_bytes()), known, "{name}");
        }
    }
}

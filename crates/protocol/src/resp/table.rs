//! The table of commands.
//!
//! A row has identifier, name, arity, flags and key places. It has ACL categories beside those that follow from the
//! flags, the required permissions, group, version and summary. Hints for clients follow, and subcommands with the same
//! fields less key places and group.

use tidemark_types::Permissions;

use super::command::{Categories, Flags, KeyPlaces, Row};

const NONE: Permissions = Permissions::NONE;
const READ: Permissions = Permissions::READ;
const WRITE: Permissions = Permissions::WRITE;
const READ_WRITE: Permissions = Permissions::READ.with(Permissions::WRITE);
const FLUSH: Permissions = Permissions::FLUSH;
const ADMIN: Permissions = Permissions::ADMIN;

macro_rules! commands {
    ($(
        $id:ident $name:literal $arity:literal [$($flag:ident)*] $keys:ident [$($category:ident)*] $permissions:ident
        $group:literal $since:literal $summary:literal
        $(tips [$($tip:literal)*])?
        $({$(
            $sub_id:ident $sub_name:literal $sub_arity:literal [$($sub_flag:ident)*] [$($sub_category:ident)*]
            $sub_permissions:ident $sub_since:literal $sub_summary:literal
            $(tips [$($sub_tip:literal)*])?;
        )*})?;
    )*) => {
        /// Every command and subcommand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CommandId {$(
            #[doc = $summary]
            $id,
            $($(
                #[doc = $sub_summary]
                $sub_id,
            )*)?
        )*}

        const ROWS: &[Row] = &[$(
            Row {
                id: CommandId::$id,
                name: $name,
                arity: $arity,
                flags: Flags::NONE$(.with(Flags::$flag))*,
                keys: KeyPlaces::$keys,
                own_categories: Categories::NONE$(.with(Categories::$category))*,
                permissions: $permissions,
                since: $since,
                group: $group,
                summary: $summary,
                tips: &[$($($tip),*)?],
                subcommands: &[$($(
                    Row {
                        id: CommandId::$sub_id,
                        name: concat!($name, "|", $sub_name),
                        arity: $sub_arity,
                        flags: Flags::NONE$(.with(Flags::$sub_flag))*,
                        keys: KeyPlaces::NONE,
                        own_categories: Categories::NONE$(.with(Categories::$sub_category))*,
                        permissions: $sub_permissions,
                        since: $sub_since,
                        group: $group,
                        summary: $sub_summary,
                        tips: &[$($($sub_tip),*)?],
                        subcommands: &[],
                    },
                )*)?],
            },
        )*];
    };
}

/// All commands, the commonest first.
pub static COMMANDS: &[Row] = ROWS;

commands! {
    Get "get" 2 [READONLY FAST] ONE [STRING] READ "string" "1.0.0" "Returns a key's value.";
    Set "set" -3 [WRITE DENYOOM] ONE [STRING] WRITE
        "string" "1.0.0" "Gives a key a value, under conditions and with an expiration time.";
    MGet "mget" -2 [READONLY FAST] ALL [STRING] READ
        "string" "1.0.0" "Returns several keys' values."
        tips ["request_policy:multi_shard"];
    MSet "mset" -3 [WRITE DENYOOM] PAIRS [STRING] WRITE
        "string" "1.0.1" "Gives several keys values, all at once."
        tips ["request_policy:multi_shard" "response_policy:all_succeeded"];
    MSetNx "msetnx" -3 [WRITE DENYOOM] PAIRS [STRING] WRITE
        "string" "1.0.1" "Gives several keys values if none of them has one."
        tips ["request_policy:multi_shard" "response_policy:agg_min"];
    SetNx "setnx" 3 [WRITE DENYOOM FAST] ONE [STRING] WRITE
        "string" "1.0.0" "Gives a key a value if it has none.";
    SetEx "setex" 4 [WRITE DENYOOM] ONE [STRING] WRITE
        "string" "2.0.0" "Gives a key a value for some seconds.";
    PSetEx "psetex" 4 [WRITE DENYOOM] ONE [STRING] WRITE
        "string" "2.6.0" "Gives a key a value for some milliseconds.";
    GetSet "getset" 3 [WRITE DENYOOM FAST] ONE [STRING] READ_WRITE
        "string" "1.0.0" "Gives a key a value and returns the old one.";
    GetDel "getdel" 2 [WRITE FAST] ONE [STRING] READ_WRITE
        "string" "6.2.0" "Returns a key's value and deletes the key.";
    GetEx "getex" -2 [WRITE FAST] ONE [STRING] READ_WRITE
        "string" "6.2.0" "Returns a key's value and changes its expiration time.";
    Append "append" 3 [WRITE DENYOOM FAST] ONE [STRING] WRITE
        "string" "2.0.0" "Adds to the end of a key's value.";
    StrLen "strlen" 2 [READONLY FAST] ONE [STRING] READ
        "string" "2.2.0" "Returns the length of a key's value.";
    GetRange "getrange" 4 [READONLY] ONE [STRING] READ
        "string" "2.4.0" "Returns a part of a key's value.";
    Substr "substr" 4 [READONLY] ONE [STRING] READ
        "string" "1.0.0" "Returns a part of a key's value: the old name of GETRANGE.";
    SetRange "setrange" 4 [WRITE DENYOOM] ONE [STRING] WRITE
        "string" "2.2.0" "Overwrites a part of a key's value.";
    Incr "incr" 2 [WRITE DENYOOM FAST] ONE [STRING] WRITE
        "string" "1.0.0" "Adds one to a key's number.";
    Decr "decr" 2 [WRITE DENYOOM FAST] ONE [STRING] WRITE
        "string" "1.0.0" "Takes one from a key's number.";
    IncrBy "incrby" 3 [WRITE DENYOOM FAST] ONE [STRING] WRITE
        "string" "1.0.0" "Adds to a key's number.";
    DecrBy "decrby" 3 [WRITE DENYOOM FAST] ONE [STRING] WRITE
        "string" "1.0.0" "Takes from a key's number.";
    IncrByFloat "incrbyfloat" 3 [WRITE DENYOOM FAST] ONE [STRING] WRITE
        "string" "2.6.0" "Adds a number with a fraction to a key's number.";

    Del "del" -2 [WRITE] ALL [KEYSPACE] WRITE "generic" "1.0.0" "Deletes keys."
        tips ["request_policy:multi_shard" "response_policy:agg_sum"];
    Unlink "unlink" -2 [WRITE FAST] ALL [KEYSPACE] WRITE
        "generic" "4.0.0" "Deletes keys; here the same as DEL."
        tips ["request_policy:multi_shard" "response_policy:agg_sum"];
    Exists "exists" -2 [READONLY FAST] ALL [KEYSPACE] READ
        "generic" "1.0.0" "Counts those of the keys that exist."
        tips ["request_policy:multi_shard" "response_policy:agg_sum"];
    Touch "touch" -2 [READONLY FAST] ALL [KEYSPACE] READ
        "generic" "3.2.1" "Marks keys as used and counts those that exist."
        tips ["request_policy:multi_shard" "response_policy:agg_sum"];
    Type "type" 2 [READONLY FAST] ONE [KEYSPACE] READ
        "generic" "1.0.0" "Returns the type of a key's value.";
    Expire "expire" -3 [WRITE FAST] ONE [KEYSPACE] WRITE
        "generic" "1.0.0" "Lets a key expire in some seconds.";
    PExpire "pexpire" -3 [WRITE FAST] ONE [KEYSPACE] WRITE
        "generic" "2.6.0" "Lets a key expire in some milliseconds.";
    ExpireAt "expireat" -3 [WRITE FAST] ONE [KEYSPACE] WRITE
        "generic" "1.2.0" "Lets a key expire at a time in seconds since 1970.";
    PExpireAt "pexpireat" -3 [WRITE FAST] ONE [KEYSPACE] WRITE
        "generic" "2.6.0" "Lets a key expire at a time in milliseconds since 1970.";
    Ttl "ttl" 2 [READONLY FAST] ONE [KEYSPACE] READ
        "generic" "1.0.0" "Returns how many seconds a key has left."
        tips ["nondeterministic_output"];
    PTtl "pttl" 2 [READONLY FAST] ONE [KEYSPACE] READ
        "generic" "2.6.0" "Returns how many milliseconds a key has left."
        tips ["nondeterministic_output"];
    ExpireTime "expiretime" 2 [READONLY FAST] ONE [KEYSPACE] READ
        "generic" "7.0.0" "Returns when a key expires, in seconds since 1970.";
    PExpireTime "pexpiretime" 2 [READONLY FAST] ONE [KEYSPACE] READ
        "generic" "7.0.0" "Returns when a key expires, in milliseconds since 1970.";
    Persist "persist" 2 [WRITE FAST] ONE [KEYSPACE] WRITE
        "generic" "2.2.0" "Lets a key no longer expire.";
    Scan "scan" -2 [READONLY] NONE [KEYSPACE] READ
        "generic" "2.8.0" "Walks over the keys, some at a time."
        tips ["nondeterministic_output" "request_policy:special"];
    Keys "keys" 2 [READONLY] NONE [KEYSPACE DANGEROUS] READ
        "generic" "1.0.0" "Returns the keys that match a pattern."
        tips ["request_policy:all_shards" "nondeterministic_output_order"];
    RandomKey "randomkey" 1 [READONLY] NONE [KEYSPACE] READ
        "generic" "1.0.0" "Returns one of the keys."
        tips ["request_policy:all_shards" "nondeterministic_output"];
    Rename "rename" 3 [WRITE] TWO [KEYSPACE] WRITE "generic" "1.0.0" "Gives a key another name.";
    RenameNx "renamenx" 3 [WRITE FAST] TWO [KEYSPACE] WRITE
        "generic" "1.0.0" "Gives a key another name if that is free.";

    Multi "multi" 1 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] NONE [TRANSACTION] NONE
        "transactions" "1.2.0" "Begins a transaction.";
    Exec "exec" 1 [NOSCRIPT LOADING STALE SKIP_SLOWLOG] NONE [TRANSACTION] NONE
        "transactions" "1.2.0" "Executes a transaction.";
    Discard "discard" 1 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] NONE [TRANSACTION] NONE
        "transactions" "2.0.0" "Drops a transaction.";
    Watch "watch" -2 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] ALL [TRANSACTION] NONE
        "transactions" "2.2.0" "Lets the next transaction fail if one of the keys changes.";
    Unwatch "unwatch" 1 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] NONE [TRANSACTION] NONE
        "transactions" "2.2.0" "Forgets the watched keys.";

    Eval "eval" -3 [NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS MOVABLE_KEYS] NONE [SCRIPTING] NONE
        "scripting" "2.6.0" "Runs a script.";
    EvalSha "evalsha" -3 [NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS MOVABLE_KEYS] NONE [SCRIPTING] NONE
        "scripting" "2.6.0" "Runs a script that is known, by its SHA-1.";
    EvalRo "eval_ro" -3 [READONLY NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS MOVABLE_KEYS] NONE [SCRIPTING] NONE
        "scripting" "7.0.0" "Runs a script that writes nothing.";
    EvalShaRo "evalsha_ro" -3 [READONLY NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS MOVABLE_KEYS] NONE
        [SCRIPTING] NONE "scripting" "7.0.0" "Runs a script that is known and writes nothing, by its SHA-1.";
    Script "script" -2 [] NONE [] NONE "scripting" "2.6.0" "Commands about scripts." {
        ScriptLoad "load" 3 [NOSCRIPT STALE] [SCRIPTING] NONE "2.6.0" "Makes a script known, and returns its SHA-1."
            tips ["request_policy:all_nodes" "response_policy:all_succeeded"];
        ScriptExists "exists" -3 [NOSCRIPT] [SCRIPTING] NONE "2.6.0" "Says which of the scripts are known."
            tips ["request_policy:all_shards" "response_policy:agg_logical_and"];
        ScriptFlush "flush" -2 [NOSCRIPT] [SCRIPTING] WRITE "2.6.0" "Forgets the tenant's scripts."
            tips ["request_policy:all_nodes" "response_policy:all_succeeded"];
        ScriptKill "kill" 2 [NOSCRIPT ALLOW_BUSY] [SCRIPTING] WRITE "2.6.0" "Ends the tenant's script that runs."
            tips ["request_policy:all_shards" "response_policy:one_succeeded"];
    };

    Ping "ping" -1 [FAST] NONE [CONNECTION] NONE
        "connection" "1.0.0" "Answers PONG, or what it was given."
        tips ["request_policy:all_shards" "response_policy:all_succeeded"];
    Echo "echo" 2 [LOADING STALE FAST] NONE [CONNECTION] NONE
        "connection" "1.0.0" "Answers what it was given.";
    Quit "quit" -1 [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] NONE [CONNECTION] NONE
        "connection" "1.0.0" "Closes the connection.";
    Reset "reset" 1 [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] NONE [CONNECTION] NONE
        "connection" "6.2.0" "Makes the connection as it was when it was new.";
    Hello "hello" -1 [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] NONE [CONNECTION] NONE
        "connection" "6.0.0" "Chooses the protocol version, logs in, and says what the server is.";
    Auth "auth" -2 [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] NONE [CONNECTION] NONE
        "connection" "1.0.0" "Logs in as a tenant.";
    Select "select" 2 [LOADING STALE FAST] NONE [CONNECTION] NONE
        "connection" "1.0.0" "Chooses the database.";
    Client "client" -2 [] NONE [] NONE "connection" "2.4.0" "Commands about connections." {
        ClientGetName "getname" 2 [NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "2.6.9" "Returns the connection's name.";
        ClientGetId "id" 2 [NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "5.0.0" "Returns the connection's number.";
        ClientInfo "info" 2 [NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "6.2.0" "Describes the connection."
            tips ["nondeterministic_output"];
        ClientKill "kill" -3 [ADMIN NOSCRIPT LOADING STALE] [CONNECTION] ADMIN
            "2.4.0" "Closes connections.";
        ClientList "list" -2 [ADMIN NOSCRIPT LOADING STALE] [CONNECTION] ADMIN
            "2.4.0" "Describes the tenant's connections."
            tips ["nondeterministic_output"];
        ClientNoEvict "no-evict" 3 [ADMIN NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "7.0.0" "Is accepted for compatibility: connections are not closed for memory's sake.";
        ClientNoTouch "no-touch" 3 [NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "7.2.0" "Chooses whether the connection's reads count as use.";
        ClientReply "reply" 3 [NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "3.2.0" "Chooses whether the connection gets replies.";
        ClientSetInfo "setinfo" 4 [NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "7.2.0" "Tells the client library's name or version.";
        ClientTracking "tracking" -3 [NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "6.0.0" "Chooses whether the connection is told what it must not keep of what it reads.";
        ClientSetName "setname" 3 [NOSCRIPT LOADING STALE] [CONNECTION] NONE
            "2.6.9" "Gives the connection a name.";
    };

    Command "command" -1 [LOADING STALE] NONE [CONNECTION] NONE
        "server" "2.8.13" "Describes all commands."
        tips ["nondeterministic_output_order"] {
        CommandCount "count" 2 [LOADING STALE] [CONNECTION] NONE "2.8.13" "Counts the commands.";
        CommandDocs "docs" -2 [LOADING STALE] [CONNECTION] NONE "7.0.0" "Documents commands."
            tips ["nondeterministic_output_order"];
        CommandGetKeys "getkeys" -4 [LOADING STALE] [CONNECTION] NONE
            "2.8.13" "Returns a command's keys.";
        CommandInfo "info" -2 [LOADING STALE] [CONNECTION] NONE "2.8.13" "Describes commands."
            tips ["nondeterministic_output_order"];
        CommandList "list" -2 [LOADING STALE] [CONNECTION] NONE "7.0.0" "Names the commands."
            tips ["nondeterministic_output_order"];
    };
    Info "info" -1 [LOADING STALE] NONE [DANGEROUS] NONE
        "server" "1.0.0" "Describes the server and what the tenant has used."
        tips ["nondeterministic_output" "request_policy:all_shards" "response_policy:special"];
    Config "config" -2 [] NONE [] NONE "server" "2.0.0" "Commands about settings." {
        ConfigGet "get" -3 [ADMIN NOSCRIPT LOADING STALE] [] NONE
            "2.0.0" "Returns settings that clients ask for.";
    };
    DbSize "dbsize" 1 [READONLY FAST] NONE [KEYSPACE] READ
        "server" "1.0.0" "Counts the keys of the database."
        tips ["request_policy:all_shards" "response_policy:agg_sum"];
    Time "time" 1 [LOADING STALE FAST] NONE [] NONE "server" "2.6.0" "Returns the time."
        tips ["nondeterministic_output"];
    Role "role" 1 [NOSCRIPT LOADING STALE FAST] NONE [ADMIN DANGEROUS] NONE
        "server" "2.8.12" "Returns the server's place in replication.";
    Module "module" -2 [] NONE [] NONE "server" "4.0.0" "Commands about modules." {
        ModuleList "list" 2 [ADMIN NOSCRIPT] [] NONE "4.0.0" "Names the modules; there are none."
            tips ["nondeterministic_output_order"];
    };
    Acl "acl" -2 [] NONE [] NONE "server" "6.0.0" "Commands about logins." {
        AclWhoAmI "whoami" 2 [NOSCRIPT LOADING STALE] [] NONE
            "6.0.0" "Returns the tenant that the connection is logged in as.";
    };
    FlushDb "flushdb" -1 [WRITE] NONE [KEYSPACE DANGEROUS] FLUSH
        "server" "1.0.0" "Deletes all keys of the database."
        tips ["request_policy:all_shards" "response_policy:all_succeeded"];
    FlushAll "flushall" -1 [WRITE] NONE [KEYSPACE DANGEROUS] FLUSH
        "server" "1.0.0" "Deletes all of the tenant's keys."
        tips ["request_policy:all_shards" "response_policy:all_succeeded"];
}

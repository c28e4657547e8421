//! A parser's answer as one line of text: tables of cases and comparisons are written with it.

use tidemark_protocol::memcached::{self, Command, Failure, Keys, Meta, Parsed, Part};
use tidemark_protocol::resp::{self, ArgList};

/// Bytes as text, quotes and line ends escaped, long runs cut.
pub(crate) fn text(bytes: &[u8]) -> String {
    let shown = bytes.len().min(60);
    let cut = if bytes.len() > shown {
        format!("..({})", bytes.len())
    } else {
        String::new()
    };
    format!("{}{cut}", bytes[..shown].escape_ascii())
}

fn keys(keys: Keys<'_>) -> String {
    let all: Vec<String> = keys.into_iter().map(text).collect();
    assert_eq!(all.len(), keys.len(), "as many keys as were counted");
    assert_eq!(all[0], text(keys.first()), "the first key");
    all.join(" ")
}

fn noreply(is_set: bool) -> &'static str {
    if is_set { " noreply" } else { "" }
}

fn meta(meta: &Meta<'_>) -> String {
    let mut buffer = memcached::KeyBuffer::new();
    let mut line = text(meta.key.bytes(&mut buffer));
    if meta.key.encoded {
        line += " (base64)";
    }
    let flags = &meta.flags;
    for flag in flags.iter() {
        assert!(flags.has(flag.letter), "a flag that is there is had");
        line += &format!(" {}{}", char::from(flag.letter), text(flag.token));
    }
    let numbers = [
        ("ttl", flags.ttl()),
        ("vivify", flags.vivify()),
        ("recache", flags.recache()),
        ("compare", flags.compare_cas().map(|cas| cas as i64)),
        ("new", flags.new_cas().map(|cas| cas as i64)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            line += &format!(" {name}={number}");
        }
    }
    for (letter, name, number) in [
        (b'F', "flags", u64::from(flags.client_flags())),
        (b'D', "delta", flags.delta()),
        (b'J', "initial", flags.initial()),
    ] {
        if flags.has(letter) {
            line += &format!(" {name}={number}");
        }
    }
    line
}

fn command(command: &Command<'_>) -> String {
    match command {
        Command::Get(get) => {
            let cas = if get.with_cas { " cas" } else { "" };
            let touch = get.touch.map_or(String::new(), |exptime| format!(" touch={exptime}"));
            let part = match get.part {
                Part::Whole => String::new(),
                part => format!(" {part:?}"),
            };
            format!("get {}{cas}{touch}{part}", keys(get.keys))
        }
        Command::Store(store) => format!(
            "{:?} {} {} {} [{}]{}",
            store.verb,
            text(store.key),
            store.flags,
            store.exptime,
            text(store.value),
            noreply(store.noreply)
        ),
        Command::Arithmetic(arithmetic) => format!(
            "{:?} {} {}{}",
            arithmetic.direction,
            text(arithmetic.key),
            arithmetic.delta,
            noreply(arithmetic.noreply)
        ),
        Command::Touch(touch) => format!("touch {} {}{}", text(touch.key), touch.exptime, noreply(touch.noreply)),
        Command::Delete(delete) => format!("delete {}{}", text(delete.key), noreply(delete.noreply)),
        Command::FlushAll(flush) => format!("flush_all {}{}", flush.delay, noreply(flush.noreply)),
        Command::Version => "version".to_owned(),
        Command::Verbosity(verbosity) => format!("verbosity {}{}", verbosity.level, noreply(verbosity.noreply)),
        Command::Stats(stats) => {
            let words: Vec<String> = stats.arguments().map(text).collect();
            format!("stats [{}]", words.join(" "))
        }
        Command::Quit => "quit".to_owned(),
        Command::MetaGet(get) => format!("mg {}", meta(get)),
        Command::MetaSet(set) => format!("ms {:?} {} [{}]", set.mode, meta(&set.meta), text(set.value)),
        Command::MetaDelete(delete) => format!("md {}", meta(delete)),
        Command::MetaArithmetic(arithmetic) => format!("ma {:?} {}", arithmetic.direction, meta(&arithmetic.meta)),
        Command::MetaDebug(key) => {
            let mut buffer = memcached::KeyBuffer::new();
            format!("me {}", text(key.bytes(&mut buffer)))
        }
        Command::MetaNoop => "mn".to_owned(),
    }
}

/// `<command> @<consumed>`, `incomplete <needed>`, or `<reply> @<consumed> [swallow <bytes>] [close] [forget <key>]`.
pub(crate) fn memcached(parsed: &Parsed<'_>) -> String {
    match parsed {
        Parsed::Complete {
            command: parsed,
            consumed,
        } => format!("{} @{consumed}", command(parsed)),
        Parsed::Incomplete { needed } => format!("incomplete {needed}"),
        Parsed::Failed(failure) => failed(failure),
        Parsed::TooLarge { failure, key } => format!("{} forget {}", failed(failure), text(key.sent)),
    }
}

fn failed(failure: &Failure) -> String {
    let swallow = match failure.swallow {
        0 => String::new(),
        bytes => format!(" swallow {bytes}"),
    };
    // The consumed length has no meaning if nothing more is read.
    let end = if failure.close {
        " close".to_owned()
    } else {
        format!(" @{}{swallow}", failure.consumed)
    };
    format!("{}{end}", failure.reply.trim_ascii_end().escape_ascii())
}

/// `[<argument> ...] @<consumed>`, `nothing @<consumed>`, `incomplete <needed>`, `refused <error> @<consumed>
/// <rest>`, or `<error> close`.
pub(crate) fn resp(parsed: &resp::Parsed, list: &ArgList, input: &[u8]) -> String {
    match parsed {
        resp::Parsed::Complete { consumed } => {
            let args: Vec<String> = list.args(input).from(0).map(text).collect();
            format!("[{}] @{consumed}", args.join("|"))
        }
        resp::Parsed::Nothing { consumed } => format!("nothing @{consumed}"),
        resp::Parsed::Incomplete { needed } => format!("incomplete {needed}"),
        resp::Parsed::Refused { error, consumed, rest } => format!("refused {error} @{consumed} {rest:?}"),
        resp::Parsed::Failed(error) => format!("{error} close"),
    }
}

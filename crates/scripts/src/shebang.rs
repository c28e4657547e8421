//! The first line of a script that says how it is to be run: `#!lua flags=no-writes`.

/// The content of the first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Commands that write are refused.
    pub(crate) no_writes: bool,
}

/// Reads the first line, if it is one. Returns the flags and the text behind it, which keeps its line numbers.
///
/// # Errors
/// Another engine than `lua`, another option than `flags`, a flag that Redis does not have; in Redis's words.
pub(crate) fn read(text: &[u8]) -> Result<(Flags, &[u8]), String> {
    let mut flags = Flags::default();
    if !text.starts_with(b"#!") {
        return Ok((flags, text));
    }
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
        return Err("ERR Invalid script shebang".to_owned());
    };
    let line = String::from_utf8_lossy(&text[2..end]).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
    }
    for word in words {
        let Some(list) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}"));
        };
        for flag in list.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => flags.no_writes = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(format!("ERR Unexpected flag in script shebang: {flag}")),
            }
        }
    }
    Ok((flags, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_how_a_script_is_run() {
        let no_writes = Flags { no_writes: true };
        for (text, expected) in [
            ("return 1", Ok((Flags::default(), "return 1"))),
            ("#!lua\nreturn 1", Ok((Flags::default(), "\nreturn 1"))),
            ("#!lua flags=no-writes\nreturn 1", Ok((no_writes, "\nreturn 1"))),
            ("#!lua flags=allow-oom,no-writes\n", Ok((no_writes, "\n"))),
            ("#!lua", Err("ERR Invalid script shebang")),
            ("#!js\n1", Err("ERR Unexpected engine in script shebang: js")),
            ("#!lua name=x\n1", Err("ERR Unknown lua shebang option: name=x")),
            (
                "#!lua flags=fast\n1",
                Err("ERR Unexpected flag in script shebang: fast"),
            ),
        ] {
            let read = read(text.as_bytes());
            let expected = expected
                .map(|(flags, rest)| (flags, rest.as_bytes()))
                .map_err(str::to_owned);
            assert_eq!(read, expected, "{text}");
        }
    }
}

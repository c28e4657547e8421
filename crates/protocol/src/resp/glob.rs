//! Patterns as KEYS, SCAN, CONFIG GET and COMMAND LIST take them (Redis's `stringmatchlen`).
//!
//! `*` any bytes, `?` one byte, `[abc]` one of these, `[a-z]` one of a range (either way round), `[^a]` one that is
//! not, `\` takes the next byte as it is. A class that does not end reaches to the pattern's end; a backslash at the
//! end stands for itself.
//!
//! Cost: at most pattern length times text length; only the last `*` is ever gone back to, because what an earlier one
//! could match the last one can, too.

/// Whether letters of another case are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// `A` is not `a`: for keys.
    Exact,
    /// `A` is `a`: for names of settings and commands.
    Ignored,
}

/// Whether the whole text matches the pattern.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // What follows the last star, and the text from which it was last tried.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            if rest.is_empty() {
                return true;
            }
            pattern = rest;
            retry = Some((rest, text));
            continue;
        }
        let next = match (pattern.is_empty(), text.split_first()) {
            (true, None) => return true,
            (false, Some((byte, behind))) => match_one(pattern, *byte, case).map(|rest| (rest, behind)),
            (true, Some(_)) => None,
            // Only stars match nothing, and there is none here.
            (false, None) => return false,
        };
        (pattern, text) = match (next, retry) {
            (Some(behind), _) => behind,
            (None, Some((after_star, [_, behind @ ..]))) => {
                retry = Some((after_star, behind));
                (after_star, behind)
            }
            (None, _) => return false,
        };
    }
}

/// The pattern behind its first part, if that is not a star and matches the byte.
fn match_one(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let same = |a: u8| fold(a, case) == fold(byte, case);
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', b'^', class @ ..] => match match_class(class, byte, case) {
            (false, rest) => Some(rest),
            (true, _) => None,
        },
        [b'[', class @ ..] => match match_class(class, byte, case) {
            (true, rest) => Some(rest),
            (false, _) => None,
        },
        [b'\\', escaped, rest @ ..] => same(*escaped).then_some(rest),
        [literal, rest @ ..] => same(*literal).then_some(rest),
        [] => None,
    }
}

/// Whether the byte is in the class whose first part this is, and the pattern behind the class.
fn match_class(class: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
    let byte = fold(byte, case);
    let mut found = false;
    let mut rest = class;
    loop {
        rest = match rest {
            [b'\\', escaped, behind @ ..] => {
                found |= fold(*escaped, case) == byte;
                behind
            }
            [b']', behind @ ..] => return (found, behind),
            [] => return (found, rest),
            [from, b'-', to, behind @ ..] => {
                let (from, to) = (fold(*from.min(to), case), fold(*from.max(to), case));
                found |= (from..=to).contains(&byte);
                behind
            }
            [one, behind @ ..] => {
                found |= fold(*one, case) == byte;
                behind
            }
        };
    }
}

fn fold(byte: u8, case: Case) -> u8 {
    match case {
        Case::Exact => byte,
        Case::Ignored => byte.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, matched) in [
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("*", "", true),
            ("*", "anything", true),
            ("**", "", true),
            ("a*", "a", true),
            ("a*c", "abcbc", true),
            ("a*c", "abcb", false),
            ("*a*b*", "xxaxxbxx", true),
            ("?", "", false),
            ("?", "x", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            ("[^]", "a", true),
            ("[]", "a", false),
            ("[]a", "a", false),
            ("[abc", "c", true),
            ("[abc", "cd", false),
            ("[a-", "-", true),
            ("[a-", "a", true),
            ("[\\]]", "]", true),
            ("[\\-a]", "-", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\", "a\\", true),
            ("\\", "\\", true),
            ("[!a]", "!", true),
            ("user:*:name", "user:1:2:name", true),
            ("A", "a", false),
        ] {
            let matches = matches(pattern.as_bytes(), text.as_bytes(), Case::Exact);
            assert_eq!(matches, matched, "{pattern:?} {text:?}");
        }
        assert!(matches(b"MAX*[A-Z]", b"maxmemory", Case::Ignored));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(200);
        let mut pattern_with_end = pattern.clone();
        pattern_with_end.push(b'b');
        let text = b"a".repeat(20_000);
        assert!(matches(&pattern, &text, Case::Exact));
        assert!(!matches(&pattern_with_end, &text, Case::Exact));
    }
}

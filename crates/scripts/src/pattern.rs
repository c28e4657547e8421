//! Lua's patterns (Lua 5.1 manual, 5.4.1), as its own library matches them but in a bounded number of steps.
//!
//! A pattern can take time that is exponential in its length, and Lua's own library does not come back meanwhile.

use crate::limits::{CAPTURES_MAX, PATTERN_DEPTH_MAX};

/// The escape character.
const ESCAPE: u8 = b'%';
/// Steps after which they are taken from the run.
const STEPS_TAKEN_TOGETHER: u64 = 256;

/// Why a pattern was not matched to its end.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The pattern is wrong, or asks for too much: in Lua's words.
    Pattern(&'static str),
    /// The run has to end.
    Stopped(mlua::Error),
}

type Matched<T> = Result<T, Fault>;

/// A capture: its beginning, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Open(usize),
    Position(usize),
    Closed(usize, usize),
}

/// A text, a pattern, and what it has captured.
pub(crate) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    pub(crate) captures: Vec<Capture>,
    depth: usize,
    steps: u64,
    take: &'a dyn Fn(u64) -> mlua::Result<()>,
}

impl<'a> Matcher<'a> {
    /// Matches a pattern without its leading `^`; `take` takes steps from the run.
    pub(crate) fn new(text: &'a [u8], pattern: &'a [u8], take: &'a dyn Fn(u64) -> mlua::Result<()>) -> Self {
        Self {
            text,
            pattern,
            captures: Vec::new(),
            depth: 0,
            steps: 0,
            take,
        }
    }

    /// The end of the match that begins at this place, if there is one.
    pub(crate) fn at(&mut self, place: usize) -> Matched<Option<usize>> {
        self.captures.clear();
        self.depth = 0;
        self.run(place, 0)
    }

    fn step(&mut self) -> Matched<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_TAKEN_TOGETHER) {
            (self.take)(STEPS_TAKEN_TOGETHER).map_err(Fault::Stopped)?;
        }
        Ok(())
    }

    fn run(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        self.depth += 1;
        if self.depth > PATTERN_DEPTH_MAX {
            return Err(Fault::Pattern("pattern too complex"));
        }
        let end = self.run_here(s, p);
        self.depth -= 1;
        end
    }

    /// The rest of the pattern from `p` on against the text from `s` on.
    fn run_here(&mut self, mut s: usize, mut p: usize) -> Matched<Option<usize>> {
        loop {
            self.step()?;
            let Some(&first) = self.pattern.get(p) else {
                return Ok(Some(s));
            };
            let second = self.pattern.get(p + 1).copied();
            match (first, second) {
                (b'(', Some(b')')) => return self.open(Capture::Position(s), s, p + 2),
                (b'(', _) => return self.open(Capture::Open(s), s, p + 1),
                (b')', _) => return self.close(s, p + 1),
                (b'$', None) => return Ok((s == self.text.len()).then_some(s)),
                (ESCAPE, Some(b'b')) => match self.balance(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (ESCAPE, Some(b'f')) => {
                    p += 2;
                    if self.pattern.get(p) != Some(&b'[') {
                        return Err(Fault::Pattern("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    let before = s.checked_sub(1).map_or(0, |at| self.text[at]);
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.is_in_set(before, p, end - 1) || !self.is_in_set(here, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                }
                (ESCAPE, Some(digit @ b'0'..=b'9')) => match self.back_reference(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(p)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if self.is_single(s, p, end)
                                && let Some(end) = self.run(s + 1, end + 1)?
                            {
                                return Ok(Some(end));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.most(s, p, end, 0),
                        Some(b'+') => return self.most(s, p, end, 1),
                        Some(b'-') => return self.least(s, p, end),
                        _ if self.is_single(s, p, end) => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn open(&mut self, capture: Capture, s: usize, p: usize) -> Matched<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(Fault::Pattern("too many captures"));
        }
        self.captures.push(capture);
        let count = self.captures.len();
        let end = self.run(s, p)?;
        if end.is_none() {
            self.captures.truncate(count - 1);
        }
        Ok(end)
    }

    fn close(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let open = self
            .captures
            .iter()
            .rposition(|capture| matches!(capture, Capture::Open(_)));
        let Some(at) = open else {
            return Err(Fault::Pattern("invalid pattern capture"));
        };
        let Capture::Open(begin) = self.captures[at] else {
            return Err(Fault::Pattern("invalid pattern capture"));
        };
        self.captures[at] = Capture::Closed(begin, s - begin);
        let end = self.run(s, p)?;
        if end.is_none() {
            self.captures[at] = Capture::Open(begin);
        }
        Ok(end)
    }

    /// As many as there are, and fewer if the rest does not match then.
    fn most(&mut self, s: usize, p: usize, end: usize, least: usize) -> Matched<Option<usize>> {
        let mut count = 0;
        while self.is_single(s + count, p, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if count < least {
                return Ok(None);
            }
            if let Some(end) = self.run(s + count, end + 1)? {
                return Ok(Some(end));
            }
            let Some(fewer) = count.checked_sub(1) else {
                return Ok(None);
            };
            count = fewer;
        }
    }

    /// As few as possible.
    fn least(&mut self, mut s: usize, p: usize, end: usize) -> Matched<Option<usize>> {
        loop {
            if let Some(end) = self.run(s, end + 1)? {
                return Ok(Some(end));
            }
            if !self.is_single(s, p, end) {
                return Ok(None);
            }
            self.step()?;
            s += 1;
        }
    }

    fn balance(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(Fault::Pattern("unbalanced pattern"));
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for at in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Matched<Option<usize>> {
        let at = usize::from(digit).checked_sub(usize::from(b'1'));
        let Some(Capture::Closed(begin, length)) = at.and_then(|at| self.captures.get(at)).copied() else {
            return Err(Fault::Pattern("invalid capture index"));
        };
        self.steps += length as u64 / 64;
        let is_same = self.text[s..].starts_with(&self.text[begin..begin + length]);
        Ok(is_same.then_some(s + length))
    }

    /// The end of the class that begins at `p`.
    fn class_end(&self, p: usize) -> Matched<usize> {
        match self.pattern.get(p) {
            Some(&ESCAPE) if p + 1 >= self.pattern.len() => Err(Fault::Pattern("malformed pattern (ends with '%')")),
            Some(&ESCAPE) => Ok(p + 2),
            Some(b'[') => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                // A bracket right behind the first one is a member.
                loop {
                    let missing = Fault::Pattern("malformed pattern (missing ']')");
                    let byte = *self.pattern.get(at).ok_or(missing)?;
                    at += 1;
                    if byte == ESCAPE {
                        at += 1;
                    }
                    match self.pattern.get(at) {
                        Some(b']') => return Ok(at + 1),
                        Some(_) => {}
                        None => return Err(Fault::Pattern("malformed pattern (missing ']')")),
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte at `s` is of the class from `p` to `end`.
    fn is_single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            ESCAPE => is_of_class(byte, self.pattern[p + 1]),
            b'[' => self.is_in_set(byte, p, end - 1),
            other => other == byte,
        }
    }

    /// Whether a byte is in the set between the bracket at `p` and the one at `close`.
    fn is_in_set(&self, byte: u8, p: usize, close: usize) -> bool {
        let pattern = self.pattern;
        let (mut at, is_in) = match pattern.get(p + 1) {
            Some(b'^') => (p + 2, false),
            _ => (p + 1, true),
        };
        while at < close {
            if pattern[at] == ESCAPE {
                at += 1;
                if at < close && is_of_class(byte, pattern[at]) {
                    return is_in;
                }
                at += 1;
            } else if pattern.get(at + 1) == Some(&b'-') && at + 2 < close {
                if (pattern[at]..=pattern[at + 2]).contains(&byte) {
                    return is_in;
                }
                at += 3;
            } else {
                if pattern[at] == byte {
                    return is_in;
                }
                at += 1;
            }
        }
        !is_in
    }
}

/// Whether a byte is of the class that a letter stands for; a capital letter is for all others.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        // C's isspace has the vertical tab too.
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

/// Whether a text has no character that means something in a pattern.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

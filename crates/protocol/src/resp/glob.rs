//! Patterns as KEYS, SCAN, CONFIG GET and COMMAND LIST take them (Redis's `stringmatchlen`).
//!
//! `*` stands for any bytes, `?` for one byte, `[abc]` for one of these, `[a-z]` for one of a range (either way round).
//! `[^a]` stands for one that is not, and `\` takes the next byte as it is. A class that does not end reaches to the
//! pattern's end; a backslash at the end stands for itself.
//!
//! Both forms go back to the last `*` only, because the last one can match all that an earlier one could. [`matches`]
//! costs at most pattern length times text length and is for short texts. A [`Pattern`] is read once and costs time in
//! proportion to the text's length, for keys.

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
    // The pattern behind the last star, and the text from which it was last tried.
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
    let rest = read_class(class, |from, to| {
        let (from, to) = (fold(from, case), fold(to, case));
        found |= (from..=to).contains(&byte);
    });
    (found, rest)
}

/// Names the ranges of a class, each with its least and its largest byte. Returns the pattern behind the class.
fn read_class(class: &[u8], mut range: impl FnMut(u8, u8)) -> &[u8] {
    let mut rest = class;
    loop {
        rest = match rest {
            [b'\\', escaped, behind @ ..] => {
                range(*escaped, *escaped);
                behind
            }
            [b']', behind @ ..] => return behind,
            [] => return rest,
            [from, b'-', to, behind @ ..] => {
                range(*from.min(to), *from.max(to));
                behind
            }
            [one, behind @ ..] => {
                range(*one, *one);
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

/// The longest pattern that is taken: in bytes. Matching a text takes a step for each of its bytes and 64 bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// Parts between stars that are longer are looked for with a table.
const SHORT_ELEMENTS: usize = 8;

/// One byte's place in a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    Byte(u8),
    Any,
    /// A bit for each byte that matches.
    Class(Box<[u64; 4]>),
}

impl Element {
    #[inline]
    fn has(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::Any => true,
            Self::Class(bits) => bits[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
        }
    }
}

/// The pattern between two stars.
#[derive(Clone, Debug)]
struct Part {
    elements: Vec<Element>,
    /// The table of a long part: for each byte, which elements match it, a bit each (the algorithm Shift-And of
    /// Baeza-Yates and Gonnet, CACM 1992).
    table: Vec<u64>,
}

impl Part {
    fn new(elements: Vec<Element>, is_searched: bool) -> Self {
        let words = elements.len().div_ceil(64);
        let mut table = Vec::new();
        if is_searched && elements.len() > SHORT_ELEMENTS {
            table.resize(256 * words, 0);
            let mut any = vec![0; words];
            for (place, _) in elements.iter().enumerate().filter(|(_, one)| **one == Element::Any) {
                any[place / 64] |= 1 << (place % 64);
            }
            table.chunks_exact_mut(words).for_each(|row| row.copy_from_slice(&any));
            for (place, element) in elements.iter().enumerate() {
                let mut set = |byte: u8| table[usize::from(byte) * words + place / 64] |= 1 << (place % 64);
                match element {
                    Element::Any => {}
                    Element::Byte(byte) => set(*byte),
                    Element::Class(_) => (0..=u8::MAX).filter(|byte| element.has(*byte)).for_each(set),
                }
            }
        }
        Self { elements, table }
    }

    fn memory_bytes(&self) -> usize {
        let is_class = |element: &&Element| matches!(element, Element::Class(_));
        let classes = self.elements.iter().filter(is_class).count() * size_of::<[u64; 4]>();
        self.elements.capacity() * size_of::<Element>() + classes + self.table.capacity() * size_of::<u64>()
    }

    /// Whether the text begins with it.
    fn begins(&self, text: &[u8]) -> bool {
        text.len() >= self.elements.len() && self.elements.iter().zip(text).all(|(element, byte)| element.has(*byte))
    }

    /// The end of its first occurrence.
    fn find(&self, text: &[u8]) -> Option<usize> {
        let length = self.elements.len();
        if self.table.is_empty() {
            let mut places = 0..=text.len().checked_sub(length)?;
            return places.find(|at| self.begins(&text[*at..])).map(|at| at + length);
        }
        let words = length.div_ceil(64);
        let last = 1 << ((length - 1) % 64);
        let mut state = [0_u64; PATTERN_BYTES_MAX / 64];
        let state = &mut state[..words];
        for (at, byte) in text.iter().enumerate() {
            let row = &self.table[usize::from(*byte) * words..][..words];
            let mut carry = 1;
            for (word, matching) in state.iter_mut().zip(row) {
                let out = *word >> 63;
                *word = (*word << 1 | carry) & matching;
                carry = out;
            }
            if state[words - 1] & last != 0 {
                return Some(at + 1);
            }
        }
        None
    }
}

/// A pattern that was read, for texts in which letters of another case differ.
#[derive(Clone, Debug)]
pub struct Pattern {
    head: Part,
    /// Between stars.
    middle: Vec<Part>,
    /// The part behind the last star; `None` if there is none.
    tail: Option<Part>,
}

impl Pattern {
    /// Reads a pattern. `None` if it is longer than [`PATTERN_BYTES_MAX`].
    pub fn new(mut pattern: &[u8]) -> Option<Self> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let mut parts = vec![Vec::new()];
        while let Some((first, behind)) = pattern.split_first() {
            if *first == b'*' {
                // Several stars are one.
                if parts.len() == 1 || parts.last().is_some_and(|part| !part.is_empty()) {
                    parts.push(Vec::new());
                }
                pattern = behind;
                continue;
            }
            let (element, rest) = element(pattern);
            if let Some(part) = parts.last_mut() {
                part.push(element);
            }
            pattern = rest;
        }
        let tail = (parts.len() > 1).then(|| parts.pop()).flatten();
        let mut parts = parts.into_iter();
        Some(Self {
            head: Part::new(parts.next().unwrap_or_default(), false),
            middle: parts.map(|part| Part::new(part, true)).collect(),
            tail: tail.map(|tail| Part::new(tail, false)),
        })
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let head = self.head.elements.len();
        if !self.head.begins(text) {
            return false;
        }
        let Some(tail) = &self.tail else {
            return text.len() == head;
        };
        let mut rest = &text[head..];
        let Some(before_tail) = rest.len().checked_sub(tail.elements.len()) else {
            return false;
        };
        if !tail.begins(&rest[before_tail..]) {
            return false;
        }
        rest = &rest[..before_tail];
        // Each part has one length, so that its first occurrence leaves the most to those behind it.
        self.middle.iter().all(|part| match part.find(rest) {
            Some(end) => {
                rest = &rest[end..];
                true
            }
            None => false,
        })
    }

    /// The memory that it takes besides its own place, about.
    pub fn memory_bytes(&self) -> usize {
        let parts = self.middle.capacity() * size_of::<Part>();
        let all = [&self.head].into_iter().chain(&self.middle).chain(&self.tail);
        parts + all.map(Part::memory_bytes).sum::<usize>()
    }

    /// About how many steps it takes to match a text of so many bytes, at most.
    pub fn steps(&self, text_bytes: usize) -> u64 {
        let words = |part: &Part| part.elements.len().div_ceil(64);
        let most = self.middle.iter().map(words).max().unwrap_or(0);
        (text_bytes * most.max(1)) as u64
    }
}

/// The first element of a pattern that is not empty and does not begin with a star, and the rest behind it.
fn element(pattern: &[u8]) -> (Element, &[u8]) {
    match pattern {
        [b'?', rest @ ..] => (Element::Any, rest),
        [b'[', b'^', class @ ..] => class_element(class, true),
        [b'[', class @ ..] => class_element(class, false),
        [b'\\', escaped, rest @ ..] => (Element::Byte(*escaped), rest),
        [literal, rest @ ..] => (Element::Byte(*literal), rest),
        [] => (Element::Any, pattern),
    }
}

fn class_element(class: &[u8], is_negated: bool) -> (Element, &[u8]) {
    let mut bits = [0_u64; 4];
    let rest = read_class(class, |from, to| {
        (from..=to).for_each(|byte| bits[usize::from(byte >> 6)] |= 1 << (byte & 63));
    });
    if is_negated {
        bits = bits.map(|word| !word);
    }
    (Element::Class(Box::new(bits)), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(pattern: &[u8], text: &[u8]) -> bool {
        Pattern::new(pattern).unwrap().matches(text)
    }

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
            assert_eq!(
                linear(pattern.as_bytes(), text.as_bytes()),
                matched,
                "{pattern:?} {text:?}"
            );
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

    #[test]
    fn a_long_part_is_found_wherever_it_stands() {
        let part: Vec<u8> = (0..200_u8).map(|n| b'a' + n % 23).collect();
        for before in [0, 1, 63, 64, 65, 1000] {
            let text = [&vec![b'x'; before][..], &part, b"yz"].concat();
            let pattern = [b"*", &part[..], b"*z"].concat();
            assert!(linear(&pattern, &text), "{before}");
            assert!(!linear(&pattern, &text[..text.len() - 1]));
            let mut other = text.clone();
            other[before + 150] = b'!';
            assert!(!linear(&pattern, &other), "{before}");
        }
    }

    #[test]
    fn the_longest_pattern_takes_a_step_for_each_byte_and_64_elements() {
        assert!(Pattern::new(&[b'a'; PATTERN_BYTES_MAX + 1]).is_none());
        let longest = [b"*", &[b'a'; PATTERN_BYTES_MAX - 2][..], b"*"].concat();
        let pattern = Pattern::new(&longest).unwrap();
        assert_eq!(pattern.steps(64 << 10), 16 * (64 << 10));
        assert_eq!(Pattern::new(b"user:*").unwrap().steps(100), 100);
    }
}

//! A command's arguments: places in the input, kept in a list that is used again for every command.

use std::fmt;
use std::ops::Range;

/// Above this number of arguments the list's memory is given back when it is next used; 8 KiB stay.
const KEPT_ARGS: usize = 1024;
/// Above this number of bytes the same goes for unquoted inline arguments.
const KEPT_BYTES: usize = 4096;

/// The place of an argument, in bytes from the command's beginning. A command is shorter than 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    begin: u32,
    length: u32,
}

/// How far an incomplete array has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The offset of the next argument.
    pub(super) at: usize,
    /// Arguments to come; zero if nothing is incomplete.
    pub(super) left: usize,
}

/// Room for one command's arguments. It holds no bytes of a multibulk command, only places; read them through
/// [`ArgList::args`] with the same input.
#[derive(Clone, Default)]
pub struct ArgList {
    spans: Vec<Span>,
    /// An inline command's arguments without their quotes, one behind the other.
    unquoted: Vec<u8>,
    is_inline: bool,
    /// The progress from which [`super::parse_more`] goes on.
    pub(super) progress: Progress,
}

impl ArgList {
    /// An empty list, which allocates when it is first used.
    pub fn new() -> Self {
        Self::default()
    }

    /// The arguments of the command that was parsed from `input` into this list.
    #[inline]
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args {
            bytes: if self.is_inline { &self.unquoted } else { input },
            spans: &self.spans,
        }
    }

    /// The memory that the list holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.unquoted.capacity()
    }

    /// The place of an argument in the input. `None` if there are not so many, or if the command was an inline one,
    /// whose arguments are kept here instead.
    #[inline]
    pub fn place(&self, index: usize) -> Option<Range<usize>> {
        let span = self.spans.get(index).filter(|_| !self.is_inline)?;
        let begin = span.begin as usize;
        Some(begin..begin + span.length as usize)
    }

    /// Forgets the last command.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.spans.capacity() > KEPT_ARGS || self.unquoted.capacity() > KEPT_BYTES {
            *self = Self::default();
        }
        self.spans.clear();
        self.unquoted.clear();
        self.is_inline = false;
        self.progress = Progress::default();
    }

    /// Adds an argument that stands in the input. Both numbers are below 2^32.
    #[inline]
    pub(super) fn push(&mut self, begin: usize, length: usize) {
        self.spans.push(Span {
            begin: begin as u32,
            length: length as u32,
        });
    }

    /// Adds an inline argument, whose bytes `take` appends to its input.
    pub(super) fn push_unquoted<T>(&mut self, take: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.is_inline = true;
        let begin = self.unquoted.len();
        let taken = take(&mut self.unquoted);
        self.push(begin, self.unquoted.len() - begin);
        taken
    }
}

impl fmt::Debug for ArgList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgList").field("len", &self.spans.len()).finish()
    }
}

/// A command's arguments, its name first.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// How many, the name included.
    #[inline]
    pub fn len(self) -> usize {
        self.spans.len()
    }

    /// Whether there is not even a name.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// One argument, counted from the name as zero.
    #[inline]
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        let begin = span.begin as usize;
        self.bytes.get(begin..begin + span.length as usize)
    }

    /// One argument; empty if there are not so many. For use behind a check of the arity.
    #[inline]
    pub fn arg(self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// All arguments from `index` on.
    #[inline]
    pub fn from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans.get(index..).unwrap_or_default().iter().map(move |span| {
            let begin = span.begin as usize;
            bytes.get(begin..begin + span.length as usize).unwrap_or_default()
        })
    }

    /// The command that begins at argument `index`; empty if there are not so many.
    #[must_use]
    pub fn behind(self, index: usize) -> Self {
        Self {
            bytes: self.bytes,
            spans: self.spans.get(index..).unwrap_or_default(),
        }
    }

    /// Whether the argument is this word, in any case.
    #[inline]
    pub fn is(self, index: usize, word: &str) -> bool {
        self.arg(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

impl PartialEq for Args<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.from(0).eq(other.from(0))
    }
}

impl Eq for Args<'_> {}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.from(0).map(|arg| arg.escape_ascii().to_string());
        f.debug_list().entries(text).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_large_memory_back() {
        let mut list = ArgList::new();
        for _ in 0..2 * KEPT_ARGS {
            list.push(0, 1);
        }
        assert_eq!(list.args(b"x").from(0).len(), 2 * KEPT_ARGS);
        assert!(list.memory_bytes() >= 16 * KEPT_ARGS);
        list.clear();
        assert_eq!(list.memory_bytes(), 0);
    }

    #[test]
    fn arguments_out_of_reach_are_absent() {
        let mut list = ArgList::new();
        list.push(1, 2);
        let args = list.args(b"abcd");
        assert_eq!(args.get(0), Some(&b"bc"[..]));
        assert_eq!((args.get(1), args.arg(1)), (None, &b""[..]));
        assert!(args.is(0, "BC") && !args.is(1, "BC"));
        assert_eq!((list.place(0), list.place(1)), (Some(1..3), None));
        assert_eq!(args.from(2).len(), 0);
        // A list read with another input than it was parsed from shows nothing rather than another command's bytes.
        assert_eq!(list.args(b"ab").get(0), None);
    }
}

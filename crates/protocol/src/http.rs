//! HTTP requests that come through a port for commands. They come from a web page, or from a server that can be made to
//! fetch an address. The body of such a request could be commands, so that the connection is closed at its first line.

/// Whether a line's last word is that of an HTTP request line (`HTTP/1.1`), as memcached tells it.
pub fn is_version(word: &[u8]) -> bool {
    word.starts_with(b"HTTP/")
}

/// Whether a line's first word is that of an HTTP request, as Redis tells it.
pub fn is_first_word(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

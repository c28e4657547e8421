//! As much of HTTP/1.1 as the origin and the clients need: heads, and bodies of a stated length.

use std::io::{self, BufRead, ErrorKind, Read as _};

/// A head is much shorter: signatures and conditions.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// The first line and the fields of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) first: String,
    /// Names in small letters.
    fields: Vec<(String, String)>,
}

impl Head {
    /// The next one; nothing if the peer closed before it.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut lines = from.take(HEAD_BYTES_MAX);
        let mut head = Self::default();
        let mut line = String::new();
        loop {
            line.clear();
            let count = lines.read_line(&mut line)?;
            let text = line.trim_end();
            match (count, head.first.is_empty(), text.split_once(':')) {
                (0, true, _) => return Ok(None),
                (0, ..) => return Err(ErrorKind::UnexpectedEof.into()),
                (_, true, _) => head.first = text.to_owned(),
                (_, _, Some((name, value))) => head.fields.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                (_, _, None) if text.is_empty() => return Ok(Some(head)),
                _ => return Err(ErrorKind::InvalidData.into()),
            }
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The fields whose names begin so.
    pub(super) fn fields(&self, prefix: &str) -> impl Iterator<Item = (&str, &str)> {
        let own = self.fields.iter().filter(move |(name, _)| name.starts_with(prefix));
        own.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Reads the message's body in place of what `into` holds.
    pub(super) fn body(&self, from: &mut impl BufRead, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        let length = self.length()?;
        whole(length, from.take(length).read_to_end(into)? as u64)
    }

    /// Reads the message's body and keeps nothing of it; its length.
    pub(super) fn pass_body(&self, from: &mut impl BufRead) -> io::Result<u64> {
        let length = self.length()?;
        let mut body = from.take(length);
        loop {
            let here = body.fill_buf()?.len();
            if here == 0 {
                return whole(length, length - body.limit()).map(|()| length);
            }
            body.consume(here);
        }
    }

    fn length(&self) -> io::Result<u64> {
        if self.field("transfer-encoding").is_some() {
            return Err(io::Error::new(ErrorKind::Unsupported, "a body of no stated length"));
        }
        match self.field("content-length") {
            Some(text) => text.parse().map_err(|_| ErrorKind::InvalidData.into()),
            None => Ok(0),
        }
    }
}

fn whole(length: u64, read: u64) -> io::Result<()> {
    if read == length {
        Ok(())
    } else {
        Err(ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_one_after_the_other() {
        let mut bytes =
            &b"PUT /b/k HTTP/1.1\r\nHost: x:1\r\nContent-Length: 3\r\nX-A: b: c \r\n\r\nabcGET / HTTP/1.1\r\n\r\n"[..];
        let mut body = b"old".to_vec();
        let first = Head::read(&mut bytes).unwrap().unwrap();
        assert_eq!(
            (first.first.as_str(), first.field("x-a")),
            ("PUT /b/k HTTP/1.1", Some("b: c"))
        );
        assert_eq!(first.fields("x-").collect::<Vec<_>>(), [("x-a", "b: c")]);
        let (mut again, mut short) = (bytes, &bytes[..2]);
        assert_eq!(first.pass_body(&mut again).unwrap(), 3);
        assert!(Head::read(&mut again).unwrap().unwrap().first.starts_with("GET"));
        assert!(first.pass_body(&mut short).is_err(), "it ends early");
        first.body(&mut bytes, &mut body).unwrap();
        assert_eq!(body, b"abc");
        let second = Head::read(&mut bytes).unwrap().unwrap();
        second.body(&mut bytes, &mut body).unwrap();
        assert!(second.first.starts_with("GET") && body.is_empty());
        assert_eq!(Head::read(&mut bytes).unwrap(), None);
    }

    #[test]
    fn broken_ones_are_errors() {
        for text in ["GET / HTTP/1.1\r\nhost: x\r\n", "GET / HTTP/1.1\r\nno field\r\n\r\n"] {
            assert!(Head::read(&mut text.as_bytes()).is_err(), "{text}");
        }
        for text in [
            "A\r\ncontent-length: 5\r\n\r\nabc",
            "A\r\ncontent-length: x\r\n\r\n",
            "A\r\ntransfer-encoding: chunked\r\n\r\n",
        ] {
            let mut bytes = text.as_bytes();
            let head = Head::read(&mut bytes).unwrap().unwrap();
            assert!(head.body(&mut bytes, &mut Vec::new()).is_err(), "{text}");
        }
    }
}

//! A client of a server in Redis's protocol: GETs and SETs of values of any length, one after the other. A value is read as [`S3`] reads a
//! body, so that what is compared is the servers.
//!
//! [`S3`]: super::S3

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidemark_tools::client::Protocol;

use super::reads::Client;

/// An answer that is not there by then does not come.
const PATIENCE: Duration = Duration::from_secs(30);
/// A line of an answer is much shorter.
const LINE_BYTES_MAX: u64 = 512;
/// Behind a value there is an end of line.
const END_BYTES: u64 = 2;

/// A connection.
#[derive(Debug)]
pub(in crate::experiment) struct Resp {
    stream: BufReader<TcpStream>,
    value: Vec<u8>,
}

impl Resp {
    pub(in crate::experiment) fn connect(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            value: Vec::new(),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(LINE_BYTES_MAX).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Client for Resp {
    fn read(&mut self, key: &str) -> io::Result<usize> {
        let mut request = Vec::new();
        Protocol::Redis.write_get(key.as_bytes(), &mut request);
        self.stream.get_mut().write_all(&request)?;
        let line = self.line()?;
        let length = line.strip_prefix('$').and_then(|length| length.parse::<u64>().ok());
        let length = length.ok_or_else(|| io::Error::other(format!("{key}: {line}")))?;
        self.value.clear();
        let with_end = (&mut self.stream)
            .take(length + END_BYTES)
            .read_to_end(&mut self.value)?;
        if with_end as u64 == length + END_BYTES {
            Ok(length as usize)
        } else {
            Err(ErrorKind::UnexpectedEof.into())
        }
    }

    fn write(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let mut request = Vec::with_capacity(value.len() + LINE_BYTES_MAX as usize);
        Protocol::Redis.write_set(key.as_bytes(), value.len(), None, &mut request, |out| {
            out.extend_from_slice(value);
        });
        self.stream.get_mut().write_all(&request)?;
        match self.line()?.as_str() {
            "+OK" => Ok(()),
            line => Err(io::Error::other(format!("{key}: {line}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};

    use super::*;

    #[test]
    fn values_are_read_whole_and_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let long = vec![b'.'; 3_000_000];
            let parts: [&[u8]; 4] = [b"+OK\r\n$3000000\r\n", &long, b"\r\n$-1\r\n", b"$3\r\nab"];
            parts.iter().for_each(|part| stream.write_all(part).unwrap());
            // One that closes before it has read all resets the connection.
            stream.shutdown(Shutdown::Write).unwrap();
            io::copy(&mut stream, &mut io::sink()).unwrap();
        });
        let mut resp = Resp::connect(address).unwrap();
        resp.write("k", b"abc").unwrap();
        assert_eq!(resp.read("k").unwrap(), 3_000_000);
        assert!(
            resp.read("k").unwrap_err().to_string().contains("$-1"),
            "a miss is no read"
        );
        assert_eq!(resp.read("k").unwrap_err().kind(), ErrorKind::UnexpectedEof);
        drop(resp);
        answering.join().unwrap();
    }
}

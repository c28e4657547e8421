//! A client of an S3 address: signed GETs and PUTs (AWS Signature Version 4) on a connection that stays. It may come from another
//! address of this machine: an agent knows the instance of a function by that.

use std::io::{self, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use socket2::{Domain, Socket, Type};
use tidemark_types::{Clock as _, SystemClock, utc};

use super::http::Head;
use super::reads::Client;

const REGION: &str = "us-east-1";
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// A body's hash may be left out; the S3 address is on this machine.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// An answer that is not there by then does not come: the longest waits are of seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// An access key.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct AccessKey {
    pub(in crate::experiment) id: String,
    pub(in crate::experiment) secret: String,
}

/// The place where a read's bytes were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiment) enum Place {
    Copy,
    Validated,
    Home,
    Store,
    Memory,
    Functions,
    Fill,
    Origin,
    /// The answer does not say it.
    Unknown,
}

impl Place {
    fn of(text: Option<&str>) -> Self {
        match text {
            Some("copy") => Self::Copy,
            Some("validated") => Self::Validated,
            Some("home") => Self::Home,
            Some("store") => Self::Store,
            Some("memory") => Self::Memory,
            Some("functions") => Self::Functions,
            Some("fill") => Self::Fill,
            Some("origin") => Self::Origin,
            _ => Self::Unknown,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::experiment) struct Answer {
    pub(in crate::experiment) status: u16,
    pub(in crate::experiment) place: Place,
}

impl Answer {
    fn of(head: &Head) -> io::Result<Self> {
        let status = head.first.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Self {
            status: status.ok_or(io::ErrorKind::InvalidData)?,
            place: Place::of(head.field("x-tidemark-cache")),
        })
    }
}

/// A connection.
#[derive(Debug)]
pub(in crate::experiment) struct S3 {
    stream: BufReader<TcpStream>,
    host: String,
    key: AccessKey,
    /// The day's signing key.
    signing: (String, [u8; 32]),
    body: Vec<u8>,
}

impl S3 {
    pub(in crate::experiment) fn connect(from: IpAddr, to: SocketAddr, key: &AccessKey) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.connect(&to.into())?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            host: to.to_string(),
            key: key.clone(),
            signing: (String::new(), [0; 32]),
            body: Vec::new(),
        })
    }

    /// Reads an object. `path` has letters, digits, dashes and slashes only.
    pub(in crate::experiment) fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.call("GET", path, None)
    }

    /// Reads an object and keeps nothing of it; its length.
    pub(in crate::experiment) fn pass(&mut self, path: &str) -> io::Result<usize> {
        let head = self.ask("GET", path, None)?;
        let length = head.pass_body(&mut self.stream)?;
        let answer = Answer::of(&head)?;
        self.ok(path, &answer).map(|()| length as usize)
    }

    /// Writes an object.
    pub(in crate::experiment) fn put(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.call("PUT", path, Some(body))
    }

    /// The bytes of the last answer.
    pub(in crate::experiment) fn body(&self) -> &[u8] {
        &self.body
    }

    fn call(&mut self, method: &str, path: &str, sent: Option<&[u8]>) -> io::Result<Answer> {
        let head = self.ask(method, path, sent)?;
        head.body(&mut self.stream, &mut self.body)?;
        Answer::of(&head)
    }

    /// Sends a request; the head of its answer.
    fn ask(&mut self, method: &str, path: &str, sent: Option<&[u8]>) -> io::Result<Head> {
        let payload = if sent.is_some() { UNSIGNED } else { EMPTY_SHA256 };
        let at = utc::basic(SystemClock.now());
        let authorization = self.authorization(method, path, payload, &at);
        let length = sent.map_or_else(String::new, |sent| format!("content-length: {}\r\n", sent.len()));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nx-amz-content-sha256: {payload}\r\nx-amz-date: {at}\r\n\
             authorization: {authorization}\r\n{length}\r\n",
            self.host
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(sent.unwrap_or_default());
        self.stream.get_mut().write_all(&bytes)?;
        Ok(Head::read(&mut self.stream)?.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn ok(&self, path: &str, answer: &Answer) -> io::Result<()> {
        if answer.status == 200 {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&self.body);
        Err(io::Error::other(format!("{path}: {}: {said}", answer.status)))
    }

    fn authorization(&mut self, method: &str, path: &str, payload: &str, at: &str) -> String {
        let date = at.get(..8).unwrap_or(at);
        if self.signing.0 != date {
            let first = mac(format!("AWS4{}", self.key.secret).as_bytes(), date);
            let parts = [REGION, "s3", "aws4_request"];
            let key = parts.iter().fold(first, |key, part| mac(&key, part));
            self.signing = (date.to_owned(), key);
        }
        let signed = "host;x-amz-content-sha256;x-amz-date";
        let canonical = format!(
            "{method}\n{path}\n\nhost:{}\nx-amz-content-sha256:{payload}\nx-amz-date:{at}\n\n{signed}\n{payload}",
            self.host
        );
        let scope = format!("{date}/{REGION}/s3/aws4_request");
        let text = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let signature = hex(&mac(&self.signing.1, &text));
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
            self.key.id
        )
    }
}

impl Client for S3 {
    fn read(&mut self, path: &str) -> io::Result<usize> {
        let answer = self.get(path)?;
        self.ok(path, &answer).map(|()| self.body.len())
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let answer = self.put(path, bytes)?;
        self.ok(path, &answer)
    }
}

fn mac(key: &[u8], text: &str) -> [u8; 32] {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        // HMAC takes keys of any length.
        return [0; 32];
    };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::origin::Origin;
    use super::*;

    #[test]
    fn a_connection_is_used_again() {
        let origin = Origin::start().unwrap();
        let key = AccessKey {
            id: "k".into(),
            secret: "s".into(),
        };
        let from = "127.0.0.7".parse().unwrap();
        let mut s3 = S3::connect(from, origin.address(), &key).unwrap();
        assert_eq!(s3.stream.get_ref().local_addr().unwrap().ip(), from);
        let answer = |status| Answer {
            status,
            place: Place::Unknown,
        };
        assert_eq!(s3.get("/b/k").unwrap(), answer(404));
        assert_eq!(s3.put("/b/k", b"abc").unwrap(), answer(200));
        assert_eq!((s3.get("/b/k").unwrap(), s3.body()), (answer(200), &b"abc"[..]));
        assert_eq!(s3.pass("/b/k").unwrap(), 3);
        assert!(s3.pass("/b/none").is_err() && s3.read("/b/none").is_err());
    }

    /// The signing key of the example in AWS's documentation, "Deriving the signing key".
    #[test]
    fn keys_are_derived_as_documented() {
        let first = mac(b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830");
        let key = [REGION, "iam", "aws4_request"]
            .iter()
            .fold(first, |key, part| mac(&key, part));
        assert_eq!(
            hex(&key),
            "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"
        );
    }
}

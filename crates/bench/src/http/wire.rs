//! A connection of HTTP/1.1: a request, and its answer of a known length.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// An answer that takes longer is a failure.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// An answer is not larger.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The size of a read from the socket.
const READ_BYTES: usize = 64 << 10;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl std::str::FromStr for HttpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpUrl, String> {
        let wrong = || format!("{text} is not a URL such as http://127.0.0.1:8161");
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        Ok(HttpUrl { host: host.trim_matches(['[', ']']).to_owned(), port })
    }
}

/// Why a measurement over HTTP failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// There is no connection, or it ended.
    #[error("{url}: {source}")]
    Connection {
        /// Where to.
        url: HttpUrl,
        /// The system's error.
        source: io::Error,
    },
    /// The answer is not one of HTTP/1.1 with a length.
    #[error("{url}: the answer is not HTTP/1.1 with a Content-Length")]
    NotHttp {
        /// Whose.
        url: HttpUrl,
    },
    /// The server refused a request.
    #[error("{url}: {request}: status {status}: {body}")]
    Refused {
        /// By which server.
        url: HttpUrl,
        /// The request.
        request: String,
        /// The status.
        status: u16,
        /// The beginning of its answer.
        body: String,
    },
    /// The answer is not the JSON that the protocol defines.
    #[error("{url}: {request}: {source}")]
    NotJson {
        /// Whose.
        url: HttpUrl,
        /// The request.
        request: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The measurement was stopped.
    #[error("stopped")]
    Stopped,
}

/// One connection.
pub struct Wire {
    url: HttpUrl,
    stream: TcpStream,
    input: Vec<u8>,
}

impl Wire {
    /// Connects.
    pub fn open(url: &HttpUrl) -> Result<Wire, HttpError> {
        let connect = || -> io::Result<TcpStream> {
            let address = (url.host.as_str(), url.port).to_socket_addrs()?.next();
            let stream = TcpStream::connect(address.ok_or(io::ErrorKind::AddrNotAvailable)?)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
            Ok(stream)
        };
        let stream = connect().map_err(|source| HttpError::Connection { url: url.clone(), source })?;
        Ok(Wire { url: url.clone(), stream, input: Vec::with_capacity(READ_BYTES) })
    }

    /// Sends a request, and returns the body of its answer; one that is not a success is an error.
    pub fn ask(&mut self, request: &[u8]) -> Result<&[u8], HttpError> {
        let asked = self.exchange(request);
        let (head, end) = asked.map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => HttpError::NotHttp { url: self.url.clone() },
            _ => HttpError::Connection { url: self.url.clone(), source },
        })?;
        let body = &self.input[head..end];
        let status = self.input.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        match status {
            Some(200..=299) => Ok(body),
            status => {
                let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
                let (request, body) = (String::from_utf8_lossy(line), String::from_utf8_lossy(body));
                Err(HttpError::Refused {
                    url: self.url.clone(),
                    request: request.into_owned(),
                    status: status.unwrap_or_default(),
                    body: body.chars().take(300).collect(),
                })
            }
        }
    }

    /// The answer to a request as JSON.
    pub fn ask_json<'w, T: serde::Deserialize<'w>>(&'w mut self, request: &[u8]) -> Result<T, HttpError> {
        let url = self.url.clone();
        let body = self.ask(request)?;
        serde_json::from_slice(body).map_err(|source| {
            let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
            HttpError::NotJson { url, request: String::from_utf8_lossy(line).into_owned(), source }
        })
    }

    /// Begin and end of the answer's body in the input.
    fn exchange(&mut self, request: &[u8]) -> io::Result<(usize, usize)> {
        self.stream.write_all(request)?;
        self.input.clear();
        let mut chunk = [0; READ_BYTES];
        let mut known = None;
        loop {
            if known.is_none() {
                known = body_of(&self.input)?;
            }
            match known {
                Some((_, end)) if end <= self.input.len() => break,
                Some((_, end)) if ANSWER_BYTES_MAX < end => return Err(io::ErrorKind::InvalidData.into()),
                None if READ_BYTES < self.input.len() => return Err(io::ErrorKind::InvalidData.into()),
                _ => {}
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&chunk[..count]),
            }
        }
        Ok(known.unwrap_or_default())
    }
}

/// Begin and end of the body, if the head is complete.
fn body_of(input: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let Some(head) = input.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&input[..head]).map_err(|_| io::ErrorKind::InvalidData)?;
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match (text.starts_with("HTTP/1.1 "), length) {
        (true, Some(length)) => Ok(Some((head + 4, head + 4 + length))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A request with a body.
pub fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: bench\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_after_as_many_bytes_as_its_head_says() {
        for (case, input, want) in [
            ("incomplete", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", Some(None)),
            ("complete", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", Some(Some((38, 40)))),
            ("without a length", "HTTP/1.1 200 OK\r\n\r\n{}", None),
            ("of another version", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", None),
        ] {
            assert_eq!(body_of(input.as_bytes()).ok(), want, "{case}");
        }
    }

    #[test]
    fn urls_are_read() {
        for (text, want) in [
            ("http://127.0.0.1:8161", Some("http://127.0.0.1:8161")),
            ("http://host:1/", Some("http://host:1")),
            ("https://host:1", None),
            ("http://host", None),
            ("http://host:99999", None),
        ] {
            assert_eq!(text.parse::<HttpUrl>().ok().map(|url| url.to_string()).as_deref(), want, "{text}");
        }
    }
}

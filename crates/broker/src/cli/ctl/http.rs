//! HTTP over the control socket: one request, one answer.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::control::{SOCKET_NAME, SocketPath};

/// No answer is longer: a page has at most 500 messages with 4 KiB of each body.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Delete,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }
}

/// A part of a path or query, as it is written there (RFC 3986, section 2.3).
pub fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
        encoded
    })
}

/// Asks the broker that runs in this directory; `null` for an answer without a body.
///
/// # Errors
/// No broker answers there, or it says why not.
pub fn request(data: &Path, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
    let stream = SocketPath::of(data).and_then(|socket| UnixStream::connect(&socket.path));
    let mut stream = stream.with_context(|| {
        let socket = data.join(SOCKET_NAME);
        format!("no broker answers at {}; set --data to its data directory", socket.display())
    })?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let (method, length) = (method.name(), body.len());
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    read(&answer)
}

fn read(answer: &[u8]) -> anyhow::Result<Value> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.context("the broker closed the connection before it answered")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse::<u16>().ok());
    let status = status.context("the broker's answer is not HTTP")?;
    let body = &answer[end + 4..];
    let value = match body.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(body).context("the broker sent an invalid answer")?,
    };
    if !(200..300).contains(&status) {
        bail!("{}", value["error"].as_str().map_or_else(|| format!("HTTP status {status}"), str::to_owned));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        for (case, answer, want) in [
            ("a list", "HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"items\":[]}", Ok("{\"items\":[]}")),
            ("nothing", "HTTP/1.1 204 No Content\r\n\r\n", Ok("null")),
            ("refused", "HTTP/1.1 404 Not Found\r\n\r\n{\"error\":\"no queue\"}", Err("no queue")),
            ("cut off", "HTTP/1.1 200 OK\r\n", Err("the broker closed the connection before it answered")),
        ] {
            let got =
                read(answer.as_bytes()).map(|value| value.to_string()).map_err(|error| error.to_string());
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "case: {case}");
        }
        assert_eq!(encoded("a b/ä&="), "a%20b%2F%C3%A4%26%3D");
    }
}

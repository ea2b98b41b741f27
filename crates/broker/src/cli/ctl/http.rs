//! HTTP over the control socket, or to a URL: one request, one answer.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use data_encoding::BASE64;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Uri;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::control::{SOCKET_NAME, SocketPath};

/// No answer is longer: a page has at most 500 messages with 4 KiB of each body.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Holds the password where `--password` would show it to other users of the machine.
const PASSWORD_VARIABLE: &str = "POSTROAD_PASSWORD";

/// Holds the token, as [`PASSWORD_VARIABLE`] does.
const TOKEN_VARIABLE: &str = "POSTROAD_TOKEN";

/// The method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
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

/// Which broker: one on this machine by its directory, or another by its URL.
#[derive(Clone, Debug, Default, Args)]
pub struct BrokerArguments {
    /// Data directory of a running broker.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data: PathBuf,
    /// URL of the broker's HTTP port, in place of the directory: http://HOST:8161.
    #[arg(long, value_name = "URL", value_parser = parse_url, conflicts_with = "data")]
    pub url: Option<Uri>,
    /// User of the broker.
    #[arg(long, value_name = "NAME", requires = "url")]
    pub user: Option<String>,
    /// Password of the user [default: the environment variable POSTROAD_PASSWORD].
    #[arg(long, value_name = "TEXT", requires = "user")]
    pub password: Option<String>,
    /// Token of a user, in place of name and password [default: the environment variable
    /// POSTROAD_TOKEN].
    #[arg(long, value_name = "TEXT", requires = "url", conflicts_with = "user")]
    pub token: Option<String>,
    /// Number of a store, in a cluster of several: the one that is asked, or that of a new tenant.
    #[arg(long, value_name = "NUMBER")]
    pub store: Option<u16>,
}

impl BrokerArguments {
    /// The same broker, asked about this store.
    pub fn of_store(&self, store: Option<u16>) -> BrokerArguments {
        BrokerArguments { store, ..self.clone() }
    }
}

/// A URL with a host, and without a path.
fn parse_url(text: &str) -> Result<Uri, String> {
    let right = "http://HOST:PORT or https://HOST:PORT is right";
    let url: Uri = text.parse().map_err(|error| format!("{error}; {right}"))?;
    let has_scheme = matches!(url.scheme_str(), Some("http" | "https"));
    match has_scheme && url.host().is_some() && matches!(url.path(), "" | "/") && url.query().is_none() {
        true => Ok(url),
        false => Err(right.to_owned()),
    }
}

/// Whether a broker is to be asked: one with a URL, or one that runs over the directory.
pub fn is_there(broker: &BrokerArguments) -> bool {
    let answers = || SocketPath::of(&broker.data).and_then(|socket| UnixStream::connect(&socket.path));
    broker.url.is_some() || answers().is_ok()
}

/// Asks the broker; `null` for an answer without a body.
///
/// # Errors
/// No broker answers, or it says why not.
pub fn request(
    broker: &BrokerArguments,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let path = broker.store.map_or_else(|| path.to_owned(), |store| format!("/store/{store}{path}"));
    match &broker.url {
        Some(url) => request_over_network(broker, url, (method, &path), body),
        None => request_over_socket(&broker.data, method, &path, body),
    }
}

fn request_over_network(
    broker: &BrokerArguments,
    url: &Uri,
    (method, path): (Method, &str),
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let address = format!("{}{path}", url.to_string().trim_end_matches('/'));
    let mut request = hyper::Request::builder()
        .method(method.name())
        .uri(address)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default())))?;
    if let Some(user) = &broker.user {
        let password = broker.password.clone().or_else(|| std::env::var(PASSWORD_VARIABLE).ok());
        let password = password.with_context(|| format!("set --password or {PASSWORD_VARIABLE}"))?;
        let secret = BASE64.encode(format!("{user}:{password}").as_bytes());
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::try_from(format!("Basic {secret}"))?);
    } else if let Some(token) = broker.token.clone().or_else(|| std::env::var(TOKEN_VARIABLE).ok()) {
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}"))?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answered = runtime.block_on(async {
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let answer = client.request(request).await.with_context(|| format!("no broker answers at {url}"))?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX as usize).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer of {url} ended early: {error}"))?;
        anyhow::Ok((status, body.to_bytes()))
    });
    let (status, body) = answered?;
    value_of(status, &body)
}

fn request_over_socket(
    data: &Path,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
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
    // In one piece: a broker that answers without the body may close before a second one.
    stream.write_all((head + &body).as_bytes())?;
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
    value_of(status, &answer[end + 4..])
}

/// The answer, or the error that it names.
fn value_of(status: u16, body: &[u8]) -> anyhow::Result<Value> {
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
    fn a_url_has_a_host_and_no_path() {
        for (text, want) in [
            ("http://broker:8161", true),
            ("https://broker.example/", true),
            ("http://[::1]:8161", true),
            ("broker:8161", false),
            ("tcp://broker:61616", false),
            ("http://broker:8161/console/", false),
            ("http://broker:8161/?a=b", false),
            ("http://", false),
        ] {
            assert_eq!(parse_url(text).is_ok(), want, "{text}");
        }
    }

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

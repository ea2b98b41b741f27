//! The sender: a thread that sends requests to endpoints, and never to addresses that are not
//! allowed.
//!
//! Before each connection is made its name is looked up, and addresses that are not allowed are
//! left out: an earlier lookup does not count. A redirect is a new request, with the same checks.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use postroad_ironmq::push::Answer;
use tokio::sync::{mpsc, oneshot};

use super::Networks;

/// Requests that wait for the thread: the driver sends no more at a time.
const REQUESTS_MAX: usize = 4096;
/// Connections to one endpoint that are kept open without a request.
const IDLE_MAX: usize = 16;
/// For how long.
const IDLE_WITHIN: Duration = Duration::from_secs(20);
/// Redirects that one request follows.
const REDIRECTS_MAX: usize = 3;
/// An answer is read up to this size; the rest ends its connection.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Of a failure's answer this many characters are kept.
const ERROR_CHARS_MAX: usize = 200;

/// A request for an endpoint.
pub struct Outgoing {
    /// Where.
    pub url: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// The answer comes within this time.
    pub within: Duration,
    /// Hears it.
    pub answer: oneshot::Sender<Answer>,
}

/// Starts the thread. It ends with the last sender.
///
/// # Errors
/// The system starts no thread, or has no certificates of authorities.
pub fn start(allowed: Networks) -> io::Result<mpsc::Sender<Outgoing>> {
    let (sender, mut requests) = mpsc::channel::<Outgoing>(REQUESTS_MAX);
    let run = move || {
        // Without queues that push, no memory is spent on certificates and connections.
        let Some(first) = requests.blocking_recv() else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime.and_then(|runtime| Ok((runtime, client(allowed.clone())?))) {
            Ok((runtime, client)) => runtime.block_on(send_all(first, requests, &client, &allowed)),
            Err(error) => refuse_all(first, requests, &format!("cannot send requests: {error}")),
        }
    };
    std::thread::Builder::new().name("push".to_owned()).spawn(run)?;
    Ok(sender)
}

async fn send_all(
    first: Outgoing,
    mut requests: mpsc::Receiver<Outgoing>,
    client: &HttpClient,
    allowed: &Networks,
) {
    let mut next = Some(first);
    while let Some(request) = next {
        let (client, allowed) = (client.clone(), allowed.clone());
        tokio::spawn(async move {
            let Outgoing { url, headers, body, within, answer } = request;
            let sent = tokio::time::timeout(within, follow(&client, &allowed, url, headers, body));
            let result = sent.await.unwrap_or_else(|_| {
                Err(format!("the endpoint did not answer within {} seconds", within.as_secs()))
            });
            let result = result.unwrap_or_else(|error| Answer { error, ..Answer::default() });
            // The driver may have ended.
            let _ = answer.send(result);
        });
        next = requests.recv().await;
    }
}

fn refuse_all(first: Outgoing, mut requests: mpsc::Receiver<Outgoing>, error: &str) {
    let mut next = Some(first);
    while let Some(request) = next {
        let _ = request.answer.send(Answer { error: error.to_owned(), ..Answer::default() });
        next = requests.blocking_recv();
    }
}

type HttpClient = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

fn client(allowed: Networks) -> io::Result<HttpClient> {
    let mut connector = HttpConnector::new_with_resolver(Resolver(allowed));
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(provider)?
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_WITHIN)
        .pool_max_idle_per_host(IDLE_MAX)
        .build(connector);
    Ok(client)
}

/// Looks names up, and leaves out addresses that are not allowed.
#[derive(Clone)]
struct Resolver(Networks);

impl tower::Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses = allowed.allowed(found);
            match addresses.is_empty() {
                true => Err(io::Error::new(io::ErrorKind::PermissionDenied, not_allowed(name.as_str()))),
                false => Ok(addresses.into_iter()),
            }
        })
    }
}

fn not_allowed(host: &str) -> String {
    format!("{host} is a private address; allow it with push.allow in the configuration")
}

/// Sends a request, and those that redirects ask for.
async fn follow(
    client: &HttpClient,
    allowed: &Networks,
    url: String,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<Answer, String> {
    let mut uri = Uri::from_str(&url).map_err(|error| format!("{url} is not a URL: {error}"))?;
    for _ in 0..=REDIRECTS_MAX {
        let response = send(client, allowed, &uri, &headers, &body).await?;
        let is_redirect = matches!(
            response.status(),
            StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT
        );
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(location) = location.filter(|_| is_redirect) else { return Ok(answer(response).await) };
        let next = resolve(&uri, location).ok_or_else(|| format!("it redirects to {location}"))?;
        if next.authority() != uri.authority() || next.scheme() != uri.scheme() {
            // They were meant for the host that the subscriber has named.
            headers.remove(AUTHORIZATION);
            headers.remove(COOKIE);
            let secret = headers.iter().filter(|(_, value)| value.is_sensitive());
            for name in secret.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                headers.remove(name);
            }
        }
        uri = next;
    }
    Err(format!("it redirects more than {REDIRECTS_MAX} times"))
}

async fn send(
    client: &HttpClient,
    allowed: &Networks,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response<hyper::body::Incoming>, String> {
    // The connector looks only names up.
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    if host.parse::<IpAddr>().is_ok_and(|address| !allowed.allow(address)) {
        return Err(not_allowed(host));
    }
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers.clone();
    client.request(request).await.map_err(|error| reason(&error))
}

/// The whole chain of causes: the first says little.
fn reason(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Where a redirect leads.
fn resolve(from: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let whole = match location {
        _ if location.starts_with("http://") || location.starts_with("https://") => location.to_owned(),
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        _ if location.contains("://") => return None,
        _ => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{location}")
        }
    };
    let uri = Uri::from_str(whole.split('#').next().unwrap_or_default()).ok()?;
    uri.host().is_some().then_some(uri)
}

async fn answer(response: Response<hyper::body::Incoming>) -> Answer {
    let status = response.status();
    let retry_after_ms = response.headers().get(RETRY_AFTER).and_then(retry_after_ms);
    // All of it is read: the connection can be used again.
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let error = match status.is_success() {
        true => String::new(),
        false => {
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let text: String = String::from_utf8_lossy(&body).trim().chars().take(ERROR_CHARS_MAX).collect();
            let reason = status.canonical_reason().unwrap_or_default().to_owned();
            if text.is_empty() { reason } else { text }
        }
    };
    Answer { status: status.as_u16(), error, retry_after_ms }
}

/// Seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after_ms(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(seconds.saturating_mul(1000));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let left = date.duration_since(SystemTime::now()).unwrap_or_default();
    u64::try_from(left.as_millis()).ok()
}

/// Headers of a request: those later in the list win.
pub fn headers(all: impl IntoIterator<Item = (String, String)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in all {
        if let (Ok(name), Ok(value)) = (HeaderName::from_str(&name), HeaderValue::from_str(&value)) {
            headers.insert(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_resolved() {
        let from = Uri::from_static("https://a.example:8443/one/two?x=1");
        for (location, want) in [
            ("http://b/x", Some("http://b/x")),
            ("//b/x", Some("https://b/x")),
            ("/x?y", Some("https://a.example:8443/x?y")),
            ("x", Some("https://a.example:8443/one/x")),
            ("/x#part", Some("https://a.example:8443/x")),
            ("ftp://b/x", None),
        ] {
            assert_eq!(resolve(&from, location).map(|uri| uri.to_string()).as_deref(), want, "{location}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let ms = |text| retry_after_ms(&HeaderValue::from_static(text));
        assert_eq!(ms("120"), Some(120_000));
        assert_eq!(ms("Wed, 21 Oct 2015 07:28:00 GMT"), Some(0));
        assert_eq!(ms("soon"), None);
    }
}

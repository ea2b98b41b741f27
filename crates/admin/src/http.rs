//! HTTP/1.1: routes and answers.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

use crate::api::Peer;
use crate::exposition;
use crate::figures::{Figures, JournalFigures};
use crate::stall_timeout::StallTimeout;

/// A request's head arrives within this time, on a connection that is kept open too.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// A request's head is not larger.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A broker that does not say within this time how it is, is not well.
const FIGURES_WITHIN: Duration = Duration::from_secs(2);

const METRICS_PATH: &str = "/metrics";
/// The answer of an API to a caller who may have the metrics.
const PERMITTED: StatusCode = StatusCode::NO_CONTENT;

/// Who knows how the broker is.
pub trait Source: Clone + Send + Sync + 'static {
    /// Requests the statistics of all cores and journals. Takes as long as the slowest of them; a
    /// requester need not wait.
    fn figures(&self) -> impl Future<Output = Figures> + Send;

    /// Whether an operator drains the broker.
    fn is_draining(&self) -> bool;

    /// How the journals are, that of the main store first, once every core has answered. Costs a
    /// core nothing.
    fn readiness(&self) -> impl Future<Output = Vec<JournalFigures>> + Send;
}

/// Serves one connection until its client closes it.
///
/// # Errors
/// The error of the system or the client, for the log.
pub async fn serve(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    source: impl Source,
    api: Router,
) -> Result<(), String> {
    let stream = tokio::net::TcpStream::from_std(stream).map_err(|error| error.to_string())?;
    serve_on(stream, Peer::Network(peer), source, api).await
}

/// As [`serve`], over any stream.
///
/// # Errors
/// As [`serve`].
pub async fn serve_on(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    source: impl Source,
    api: Router,
) -> Result<(), String> {
    let service = service_fn(move |request: Request<Incoming>| {
        let (source, api) = (source.clone(), api.clone());
        async move { respond(request, peer, &source, api).await }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(StallTimeout::new(TokioIo::new(stream)), service)
        .await
        .map_err(|error| {
            error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        })
}

/// Answers one request of an operator.
///
/// # Errors
/// None.
pub async fn respond(
    mut request: Request<Incoming>,
    peer: Peer,
    source: &impl Source,
    api: Router,
) -> Result<Response<Body>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if !is_health(&path) {
        request.extensions_mut().insert(peer);
        let answered = api.oneshot(request.map(Body::new)).await?;
        if path != METRICS_PATH || answered.status() != PERMITTED {
            return Ok(answered);
        }
    }
    Ok(answer(&method, &path, source).await.map(Body::new))
}

/// The path of the metrics for an API: it says only that the caller may have them, and the server
/// then answers.
pub fn permits_metrics<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route(METRICS_PATH, get(async || PERMITTED))
}

/// Whether everybody may ask for it.
fn is_health(path: &str) -> bool {
    matches!(path, "/health/live" | "/health/ready")
}

async fn answer(method: &Method, path: &str, source: &impl Source) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD are allowed\n".to_owned());
    }
    if path == "/health/live" {
        return text(StatusCode::OK, "live\n".to_owned());
    }
    let silent = || {
        let what = format!("the broker does not answer within {} seconds\n", FIGURES_WITHIN.as_secs());
        text(StatusCode::SERVICE_UNAVAILABLE, what)
    };
    if path == METRICS_PATH {
        let figures = tokio::time::timeout(FIGURES_WITHIN, source.figures()).await;
        return figures
            .map_or_else(|_| silent(), |figures| text(StatusCode::OK, exposition::write(&figures)));
    }
    let Ok(journals) = tokio::time::timeout(FIGURES_WITHIN, source.readiness()).await else {
        return silent();
    };
    if source.is_draining() {
        let text = "draining: connections and messages are refused, deliveries go on\n";
        return self::text(StatusCode::SERVICE_UNAVAILABLE, text.to_owned());
    }
    ready(&journals)
}

/// Whether clients should come here.
fn ready(journals: &[JournalFigures]) -> Response<Full<Bytes>> {
    let mut journals = journals.iter();
    // Addresses without a placement live in the main store, and so clients can do little without
    // it.
    if let Some(why) = journals.next().and_then(trouble) {
        return text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    }
    let further =
        journals.filter_map(|journal| Some(format!("store {}: {}\n", journal.store, trouble(journal)?)));
    text(StatusCode::OK, "ready\n".to_owned() + &further.collect::<String>())
}

/// Why clients had better go elsewhere for now, if they need this store.
fn trouble(journal: &JournalFigures) -> Option<String> {
    if let Some(reason) = &journal.follows {
        return Some(format!("follower: {reason}"));
    }
    if let Some(reason) = &journal.broken {
        return Some(format!("journal writes fail: {reason}"));
    }
    if let [damage, further @ ..] = &journal.stopped[..] {
        let further =
            if further.is_empty() { String::new() } else { format!(" (and {} more)", further.len()) };
        return Some(format!("stopped for damage: {damage}{further}; see `postroad store repair`"));
    }
    journal.full.then(|| {
        let JournalFigures { file_bytes, live_bytes, .. } = journal;
        format!(
            "persistent messages are refused: the disk, or the store's disk_bytes_max, is full; segments take {file_bytes} bytes, \
             what is kept in them {live_bytes}"
        )
    })
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[derive(Clone)]
    struct Fixed(Option<Figures>);

    impl Source for Fixed {
        async fn figures(&self) -> Figures {
            match &self.0 {
                Some(figures) => figures.clone(),
                None => std::future::pending().await,
            }
        }

        fn is_draining(&self) -> bool {
            self.0.as_ref().is_some_and(|figures| figures.draining)
        }

        async fn readiness(&self) -> Vec<JournalFigures> {
            self.figures().await.journals
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_its_answer_is_gone_in_time_and_a_slow_one_is_not() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let request = b"GET /metrics HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
        for (case, takes_every_seconds, ends_well) in [("nothing", None, false), ("slowly", Some(8), true)] {
            let (mut client, server) = tokio::io::duplex(256);
            client.write_all(request).await.unwrap();
            let served = tokio::spawn(serve_on(
                server,
                Peer::ControlSocket,
                Fixed(Some(Figures::default())),
                permits_metrics(),
            ));
            let mut taken = Vec::new();
            while let Some(seconds) = takes_every_seconds {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                let mut piece = [0; 256];
                match client.read(&mut piece).await.unwrap() {
                    0 => break,
                    length => taken.extend_from_slice(&piece[..length]),
                }
            }
            let within = Duration::from_secs(11);
            let served = tokio::time::timeout(within, served).await.expect("it ends").unwrap();
            assert_eq!(served.is_ok(), ends_well, "case: {case}: {served:?}");
            assert_eq!(taken.starts_with(b"HTTP/1.1 200") && taken.len() > 4096, ends_well, "case: {case}");
            if let Err(reason) = served {
                assert!(reason.contains("took nothing of its answer for 10 seconds"), "{reason}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_path_has_its_answer() {
        let all = |journals| Some(Figures { journals, ..Figures::default() });
        let journal = |journal| all(vec![journal]);
        let well = || journal(JournalFigures::default());
        let full = || journal(JournalFigures { full: true, ..JournalFigures::default() });
        let broken = journal(JournalFigures { broken: Some("EIO".to_owned()), ..JournalFigures::default() });
        let (store, file_bytes, live_bytes) = ("fast".to_owned(), 9000, 700);
        let fast = JournalFigures { store, full: true, file_bytes, live_bytes, ..JournalFigures::default() };
        let partly = all(vec![JournalFigures::default(), fast]);
        let draining = Some(Figures { draining: true, ..well().unwrap_or_default() });
        let why = "n2 follows n1, which serves clients";
        let follows = journal(JournalFigures { follows: Some(why.to_owned()), ..JournalFigures::default() });
        let stopped =
            journal(JournalFigures { stopped: vec!["one".into(), "two".into()], ..Default::default() });
        let told = "ready\nstore fast: persistent messages are refused: the disk, or the store's disk_bytes_max, is full; \
                    segments take 9000 bytes, what is kept in them 700\n";
        for (case, method, path, figures, status, begin) in [
            ("another store's disk is full", Method::GET, "/health/ready", partly, 200, told),
            ("well", Method::GET, "/health/ready", well(), 200, "ready\n"),
            ("full", Method::GET, "/health/ready", full(), 503, "persistent messages are refused"),
            ("a follower", Method::GET, "/health/ready", follows, 503, "follower: n2 follows n1, which"),
            ("draining", Method::GET, "/health/ready", draining, 503, "draining: connections and messages"),
            ("broken", Method::GET, "/health/ready", broken, 503, "journal writes fail: EIO\n"),
            (
                "damaged",
                Method::GET,
                "/health/ready",
                stopped,
                503,
                "stopped for damage: one (and 1 more); see",
            ),
            ("stuck", Method::GET, "/health/ready", None, 503, "the broker does not answer within 2 seconds"),
            ("stuck and alive", Method::GET, "/health/live", None, 200, "live\n"),
            ("full, and told so", Method::HEAD, "/metrics", full(), 200, "# HELP postroad_connections "),
            ("no question", Method::POST, "/metrics", well(), 405, "GET and HEAD"),
        ] {
            let response = answer(&method, path, &Fixed(figures)).await;
            let got = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(got == status && body.starts_with(begin), "case: {case}: {got} {body}");
        }
    }
}

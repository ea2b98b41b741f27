//! HTTP connections on one core: which service a request is for, its limits, and its answer.

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::service::{HttpService, service_fn};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use postroad_admin::{Body, Peer, StallTimeout};
use postroad_ironmq::{ApiError, Call, OPENAPI_PATH};
use postroad_net::Place;
use postroad_security::Door;
use postroad_security::ldap::DIRECTORY_AWAY;
use tokio::sync::{Notify, mpsc, watch};

use super::bodies::Room;
use super::client::Fronts;
use super::ironmq;
use super::push::PushHub;
use super::sqs::{self, SqsOptions};
use super::tokens::{Tokens, locked_for};
use super::wire::{Origins, compressed, decompressed, reads_gzip};
use crate::runtime::connection::CoreHandle;
use crate::runtime::figures::StatsCollector;

/// A request's head arrives within this time, on a connection that is kept open too.
const HEAD_WITHIN: Duration = Duration::from_secs(60);

/// A request's body arrives within this time.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// A request's head is not larger.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A request's body is not larger: 100 messages of 64 KB, with room for how JSON writes them.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Requests at a time on one HTTP/2 connection: each may have its body in memory.
const STREAMS_MAX: u32 = 64;

/// A client whose first bytes are incomplete is looked at again this often.
const PEEK_EVERY: Duration = Duration::from_millis(20);

/// An HTTP connection on its way to the core that will serve it.
pub struct HttpSocket {
    /// The socket.
    pub stream: std::net::TcpStream,
    /// Who is at its other end.
    pub peer: SocketAddr,
    /// Its right to be served.
    pub place: Place,
    /// Who knows how the broker is.
    pub everybody: StatsCollector,
    /// Who is let in.
    pub door: watch::Receiver<Arc<Door>>,
    /// The admin API.
    pub api: Router,
    /// Origins whose pages may use the queues.
    pub origins: Origins,
    /// Options of SQS.
    pub sqs: SqsOptions,
    /// Whether a node of the cluster has sent it, which has proved that.
    pub is_of_node: bool,
}

/// State shared by the connections of a core.
struct Service {
    fronts: Rc<Fronts>,
    sqs: sqs::Front,
    tokens: Tokens,
    handle: CoreHandle,
    hub: PushHub,
}

/// Serves each new connection in a task of its own, until `closing`.
pub async fn welcome(
    handle: CoreHandle,
    hub: PushHub,
    mut sockets: mpsc::Receiver<HttpSocket>,
    closing: Rc<Notify>,
) {
    let fronts = Fronts::new(handle.clone(), closing.clone());
    let (sqs, tokens) = (sqs::Front::new(fronts.clone(), hub.clone()), Tokens::default());
    let service = Rc::new(Service { fronts, sqs, tokens, handle, hub });
    while let Some(socket) = sockets.recv().await {
        let HttpSocket { stream, peer, place, everybody, door, api, origins, sqs, is_of_node } = socket;
        let (service, closing) = (service.clone(), closing.clone());
        tokio::task::spawn_local(async move {
            let served = async {
                let asker = if is_of_node { Peer::Node(peer) } else { Peer::Network(peer) };
                let operators = ((peer, asker), everybody, api);
                if let Err(error) = serve(stream, service, operators, (door, origins, sqs)).await {
                    tracing::debug!(%peer, error, "an HTTP connection was closed early");
                }
            };
            tokio::select! {
                () = served => {}
                () = closing.notified() => {}
            }
            drop(place);
        });
    }
}

async fn serve(
    stream: std::net::TcpStream,
    service: Rc<Service>,
    ((peer, asker), everybody, api): ((SocketAddr, Peer), StatsCollector, Router),
    (door, origins, options): (watch::Receiver<Arc<Door>>, Origins, SqsOptions),
) -> Result<(), String> {
    let answering = service_fn(move |request: Request<Incoming>| {
        let (service, everybody, api) = (service.clone(), everybody.clone(), api.clone());
        let door = door.borrow().clone();
        let (origins, options, address) = (origins.clone(), options.clone(), peer.ip());
        async move {
            if sqs::is_meant(&request) {
                return Ok(service.sqs.respond((request, address), &door, &options).await);
            }
            let path = request.uri().path();
            if path != "/3" && !path.starts_with("/3/") {
                return postroad_admin::respond(request, asker, &everybody, api).await;
            }
            Ok::<_, Infallible>(answer(&service, (request, address), &door, &origins).await)
        }
    });
    serve_connection(stream, answering).await
}

/// Serves the requests of a connection, of either version of HTTP, with their bounds.
pub(super) async fn serve_connection<S, B>(stream: std::net::TcpStream, answering: S) -> Result<(), String>
where
    S: HttpService<Incoming, ResBody = B, Error = Infallible>,
    S::Future: 'static,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    LocalExecutor: Http2ServerConnExec<S::Future, B>,
{
    let stream = tokio::net::TcpStream::from_std(stream).map_err(|error| error.to_string())?;
    // Answers are small, and clients wait for each.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    if speaks_http2(&stream).await {
        return hyper::server::conn::http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .keep_alive_interval(HEAD_WITHIN)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .serve_connection(StallTimeout::new(TokioIo::new(stream)), answering)
            .await
            .map_err(|error| error.to_string());
    }
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX.max(64 << 10))
        .serve_connection(StallTimeout::new(TokioIo::new(stream)), answering)
        .await
        .map_err(|error| error.to_string())
}

/// HTTP/2 in clear text begins with this (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2";

/// Whether the client begins with HTTP/2. One that sends nothing is left to HTTP/1.1, which waits
/// no longer than for a head.
async fn speaks_http2(stream: &tokio::net::TcpStream) -> bool {
    let mut first = [0; HTTP2_PREFACE.len()];
    let peek = async {
        loop {
            let length = stream.peek(&mut first).await.unwrap_or(0);
            let is_like = 0 < length && first[..length] == HTTP2_PREFACE[..length];
            if !is_like || length == HTTP2_PREFACE.len() {
                return is_like;
            }
            tokio::time::sleep(PEEK_EVERY).await;
        }
    };
    tokio::time::timeout(HEAD_WITHIN, peek).await.unwrap_or(false)
}

/// Runs the streams of an HTTP/2 connection on its core.
#[derive(Clone, Copy)]
pub(super) struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}

async fn answer(
    service: &Service,
    (request, address): (Request<Incoming>, IpAddr),
    door: &Arc<Door>,
    origins: &Origins,
) -> Response<Body> {
    let headers = request.headers().clone();
    let is_preflight = request.method() == Method::OPTIONS;
    let mut response = match is_preflight {
        true => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        false => match queues(service, (request, address), door).await {
            Ok(((status, body), room)) => json(status, body, &headers, room),
            Err(error) => {
                let text = postroad_ironmq::msg(&error.msg).to_string().into_bytes();
                json(error.status, text, &headers, Room::default())
            }
        },
    };
    origins.headers(&headers, is_preflight, response.headers_mut());
    response
}

async fn queues(
    service: &Service,
    (request, address): (Request<Incoming>, IpAddr),
    door: &Arc<Door>,
) -> Result<((u16, Vec<u8>), Room), ApiError> {
    let (head, body) = request.into_parts();
    if head.uri.path() == OPENAPI_PATH {
        return Ok(((200, postroad_ironmq::openapi().to_string().into_bytes()), Room::default()));
    }
    let query = head.uri.query().unwrap_or_default();
    let token = token_of(&head.headers, query);
    let principal = service.tokens.principal_of((token, address), door, &service.handle.logins).await;
    let principal = principal.map_err(|reason| {
        if let Some(left) = locked_for(token, address, door) {
            return ApiError { status: 429, msg: postroad_security::locked(left) };
        }
        let msg =
            "You must be authorized: send a valid token, as `Authorization: OAuth TOKEN` or ?oauth=TOKEN";
        let status = if reason.as_deref() == Some(DIRECTORY_AWAY) { 503 } else { 401 };
        ApiError { status, msg: reason.unwrap_or_else(|| msg.to_owned()) }
    })?;
    let body = tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let body = match body {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let msg = format!("the body has more than {BODY_BYTES_MAX} bytes");
            return Err(ApiError { status: 413, msg });
        }
        Ok(Err(error)) => return Err(ApiError::bad(format!("cannot read the body: {error}"))),
        Err(_) => {
            let msg = format!("the body did not arrive within {} seconds", BODY_WITHIN.as_secs());
            return Err(ApiError { status: 408, msg });
        }
    };
    let body = decompressed(&head.headers, body, BODY_BYTES_MAX)?;
    let overriding = head.headers.get("x-http-method-override").and_then(|method| method.to_str().ok());
    let method = overriding.unwrap_or(head.method.as_str());
    let call = Call::parse(&postroad_ironmq::Request { method, path: head.uri.path(), query, body: &body })?;
    let client = service.fronts.of(principal).map_err(|refusal| ApiError::of_refusal(&refusal))?;
    let done = ironmq::carry_out((&client, &service.hub), call, &head.headers, &body).await?;
    Ok((done, client.take_room()))
}

/// The token of a request: in its header, or in its query.
pub(super) fn token_of<'r>(headers: &'r HeaderMap, query: &'r str) -> Option<&'r str> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.split_once(' ')).and_then(|(scheme, token)| {
        let is_known = scheme.eq_ignore_ascii_case("oauth") || scheme.eq_ignore_ascii_case("bearer");
        is_known.then_some(token.trim())
    });
    token.or_else(|| query.split('&').find_map(|pair| pair.strip_prefix("oauth=")))
}

fn json(status: u16, text: Vec<u8>, request: &HeaderMap, room: Room) -> Response<Body> {
    let packed = if reads_gzip(request) { compressed(&text) } else { None };
    let is_packed = packed.is_some();
    let mut response = Response::new(Body::from(room.answer(packed.unwrap_or(text))));
    if is_packed {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // Clients compare it with exactly this.
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

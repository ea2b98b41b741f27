//! HTTP connections on one core: which service a request is for, its limits, and its answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use postroad_admin::{Body, Patience, Peer};
use postroad_ironmq::{ApiError, Call};
use postroad_net::Place;
use postroad_security::Door;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use super::client::FrontClient;
use super::ironmq;
use super::push::PushHub;
use super::tokens::Tokens;
use crate::runtime::connection::CoreHandle;
use crate::runtime::figures::Everybody;

/// A request's head arrives within this time, on a connection that is kept open too.
const HEAD_WITHIN: Duration = Duration::from_secs(60);

/// A request's body arrives within this time.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// A request's head is not larger.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A request's body is not larger: 100 messages of 64 KB, with room for how JSON writes them.
const BODY_BYTES_MAX: usize = 16 << 20;

/// An HTTP connection on its way to the core that will serve it.
pub struct HttpSocket {
    /// The socket.
    pub stream: std::net::TcpStream,
    /// Who is at its other end.
    pub peer: SocketAddr,
    /// Its right to be served.
    pub place: Place,
    /// Who knows how the broker is.
    pub everybody: Everybody,
    /// Who is let in.
    pub door: Arc<Door>,
    /// What operators ask.
    pub api: Router,
}

/// What the connections of a core share.
struct Service {
    client: Rc<FrontClient>,
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
    let client = FrontClient::new(handle.clone());
    let runs = client.clone();
    let word = closing.clone();
    tokio::task::spawn_local(async move { runs.run(&word).await });
    let service = Rc::new(Service { client, tokens: Tokens::default(), handle, hub });
    while let Some(HttpSocket { stream, peer, place, everybody, door, api }) = sockets.recv().await {
        let (service, closing) = (service.clone(), closing.clone());
        tokio::task::spawn_local(async move {
            let served = async {
                let operators = (Peer::Network(peer), everybody, api);
                if let Err(error) = serve(stream, service, operators, door).await {
                    tracing::debug!(%peer, error, "an HTTP connection ended early");
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
    (peer, everybody, api): (Peer, Everybody, Router),
    door: Arc<Door>,
) -> Result<(), String> {
    let stream = tokio::net::TcpStream::from_std(stream).map_err(|error| error.to_string())?;
    // Answers are small, and clients wait for each.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let answering = service_fn(move |request: Request<Incoming>| {
        let (service, everybody, door, api) = (service.clone(), everybody.clone(), door.clone(), api.clone());
        async move {
            let path = request.uri().path();
            if path != "/3" && !path.starts_with("/3/") {
                return postroad_admin::respond(request, peer, &everybody, api).await;
            }
            Ok::<_, Infallible>(answer(&service, request, &door).await)
        }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX.max(64 << 10))
        .serve_connection(Patience::new(TokioIo::new(stream)), answering)
        .await
        .map_err(|error| error.to_string())
}

async fn answer(service: &Service, request: Request<Incoming>, door: &Arc<Door>) -> Response<Body> {
    let (status, body) = match queues(service, request, door).await {
        Ok((status, body)) => (status, body),
        Err(error) => (error.status, postroad_ironmq::msg(&error.msg)),
    };
    json(status, &body)
}

async fn queues(
    service: &Service,
    request: Request<Incoming>,
    door: &Arc<Door>,
) -> Result<(u16, Value), ApiError> {
    let (head, body) = request.into_parts();
    let query = head.uri.query().unwrap_or_default();
    let token = token_of(&head.headers, query);
    if !service.tokens.are_good(token, door, &service.handle.logins).await {
        let msg =
            "You must be authorized: send a valid token, as `Authorization: OAuth TOKEN` or ?oauth=TOKEN";
        return Err(ApiError { status: 401, msg: msg.to_owned() });
    }
    let body = tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let body = match body {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let msg = format!("the body has more than {BODY_BYTES_MAX} bytes");
            return Err(ApiError { status: 413, msg });
        }
        Ok(Err(error)) => return Err(ApiError::bad(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let msg = format!("the body did not come within {} seconds", BODY_WITHIN.as_secs());
            return Err(ApiError { status: 408, msg });
        }
    };
    let overriding = head.headers.get("x-http-method-override").and_then(|method| method.to_str().ok());
    let method = overriding.unwrap_or(head.method.as_str());
    let call = Call::parse(&postroad_ironmq::Request { method, path: head.uri.path(), query, body: &body })?;
    ironmq::carry_out((&service.client, &service.hub), call, &head.headers, &body).await
}

/// The token of a request: in its header, or in its query.
fn token_of<'r>(headers: &'r HeaderMap, query: &'r str) -> Option<&'r str> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.split_once(' ')).and_then(|(scheme, token)| {
        let is_known = scheme.eq_ignore_ascii_case("oauth") || scheme.eq_ignore_ascii_case("bearer");
        is_known.then_some(token.trim())
    });
    token.or_else(|| query.split('&').find_map(|pair| pair.strip_prefix("oauth=")))
}

fn json(status: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // Clients compare it with exactly this.
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

//! Requests of a node to the leaders of its cluster's stores, for the users of its control socket.
//!
//! The node proves that it is one, by a head with the leader's nonce, and inside of TLS if nodes
//! have it: see `runtime/cluster/forward.rs`. The leader takes it for an operator.
//!
//! Never here: requests of clients, which prove who they are themselves (`entry`).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper_util::rt::TokioIo;
use postroad_admin::{OtherStore, Peer};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::entry::named_store;
use crate::runtime::cluster::{EntryLogin, StorePart, reach};

/// A request waits for a leader of its store, at most this long.
const SERVED_WITHIN: Duration = Duration::from_secs(3);
/// From one look for a leader to the next.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// An answer has come within this time.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// Bytes of a request.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Sends a request to the leader of a store.
///
/// # Errors
/// No leader answers in time.
async fn ask(
    part: &StorePart,
    store: u16,
    request: hyper::Request<Full<Bytes>>,
) -> Result<hyper::Response<Bytes>, String> {
    let (_, view) = part
        .views()
        .find(|(number, _)| *number == store)
        .ok_or_else(|| format!("the cluster has no store {store}"))?;
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let login = EntryLogin { answers: Vec::new(), credential: None, certificate: None, bytes: Bytes::new() };
    let until = Instant::now() + SERVED_WITHIN;
    let far = loop {
        if let Ok((far, _)) = reach(view, (nobody, "http"), Some(&login)).await {
            break far;
        }
        if until < Instant::now() {
            return Err(format!("store {store} has no leader that is reached: {}", view.reason()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    let answered = async {
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(far)).await;
        let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
        connection.abort();
        Ok(hyper::Response::from_parts(head, body.to_bytes()))
    };
    let answered = tokio::time::timeout(ANSWERED_WITHIN, answered).await;
    answered.unwrap_or_else(|_| Err("it does not answer".to_owned())).map_err(|error| {
        // Its leader may have changed.
        format!("store {store} has not answered: {error}")
    })
}

/// For the admin API: gets paths of other stores.
pub fn other_store(part: &StorePart) -> Option<OtherStore> {
    if !part.is_one_of_several() {
        return None;
    }
    let part = part.clone();
    Some(Arc::new(move |store, path| {
        let part = part.clone();
        Box::pin(async move { get(&part, store, &path).await })
    }))
}

async fn get(part: &StorePart, store: u16, path: &str) -> Result<Value, String> {
    let request = hyper::Request::builder().uri(path).header(HOST, "node").body(Full::default());
    let answer = ask(part, store, request.map_err(|error| error.to_string())?).await?;
    let value: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    match answer.status().is_success() {
        true => Ok(value),
        false => Err(value["error"].as_str().unwrap_or("it refuses the request").to_owned()),
    }
}

/// Paths below `/store/K` at the control socket, which go to the leader of store K.
pub fn store_requests(part: &StorePart) -> Router {
    if !part.is_one_of_several() {
        return Router::new();
    }
    Router::new().route("/store/{store}/{*path}", any(pass)).with_state(part.clone())
}

async fn pass(State(part): State<StorePart>, Extension(peer): Extension<Peer>, request: Request) -> Response {
    let refused =
        |status: StatusCode, reason: String| (status, Json(json!({ "error": reason }))).into_response();
    if peer != Peer::ControlSocket {
        return refused(
            StatusCode::FORBIDDEN,
            "this path is for --data, on the node's own machine".to_owned(),
        );
    }
    let (mut head, body) = request.into_parts();
    let body = match Limited::new(body, REQUEST_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return refused(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
    };
    let whole = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let Some((store, Ok(rest))) = named_store(whole).map(|(store, rest)| (store, rest.parse())) else {
        return refused(StatusCode::BAD_REQUEST, "malformed path".to_owned());
    };
    head.uri = rest;
    for header in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        head.headers.remove(header);
    }
    head.headers.insert(HOST, HeaderValue::from_static("node"));
    head.extensions.clear();
    match ask(&part, store, hyper::Request::from_parts(head, Full::new(body))).await {
        Ok(answer) => {
            let (mut head, body) = answer.into_parts();
            head.headers.remove(CONNECTION);
            Response::from_parts(head, Body::from(body))
        }
        Err(reason) => refused(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}

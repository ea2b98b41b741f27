//! Where HTTP comes into a node of several stores: each request goes to the leader of the store of
//! its tenant, as a proxy in front may mix tenants in one connection.
//!
//! | request | store |
//! |---|---|
//! | path below `/store/K` | K; the rest of the path is that of the request |
//! | path of a project of IronMQ | that of the tenant of this name |
//! | health, metrics and the state of the cluster | none: the node answers, by its first store |
//! | users, tokens, access keys, tenants, the console's session, configuration | the first |
//! | any other | that of its user, as its login or session says, which the leader checks |
//!
//! Never here: who may do what, and answers.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use postroad_admin::session_principal;
use postroad_model::Principal;
use postroad_net::Place;
use postroad_routing::FIRST_STORE;
use postroad_security::{Door, TOKEN_PREFIX, Text};
use tokio::sync::{mpsc, watch};

use super::server::{serve_connection, token_of};
use super::sqs::KeyRing;
use crate::runtime::cluster::{ClientEntry, Far, connected_pair, is_own};

/// A request waits for a leader of its store, at most this long.
const SERVED_WITHIN: Duration = Duration::from_secs(3);

/// Connections to leaders that one client's connection keeps without a request.
const IDLE_MAX: usize = 8;

/// In place of the number of a store: this node itself.
const OWN: u16 = 0;

/// The path of a store, before that of a request to it.
const OF_STORE: &str = "/store/";

/// The documents and the configuration are changed in the first store.
const OF_FIRST: [&str; 6] = ["users", "tokens", "access-keys", "tenants", "session", "configuration"];

/// The answer of a leader, or of this node in place of it.
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// See the head of this file.
pub struct HttpEntry {
    entry: Rc<ClientEntry>,
    door: watch::Receiver<Arc<Door>>,
    keys: KeyRing,
    /// The text of access keys.
    access_keys: Text,
    /// Connections about this node, which its first store answers whether it leads or not.
    own: mpsc::Sender<(std::net::TcpStream, SocketAddr)>,
}

/// One client's connection, with its connections to leaders that have no request.
struct Visitor {
    http: Rc<HttpEntry>,
    peer: SocketAddr,
    idle: RefCell<Vec<(u16, SendRequest<Incoming>)>>,
}

impl HttpEntry {
    /// Beside that of other clients.
    pub fn new(
        entry: Rc<ClientEntry>,
        (door, access_keys): (watch::Receiver<Arc<Door>>, Text),
        own: mpsc::Sender<(std::net::TcpStream, SocketAddr)>,
    ) -> HttpEntry {
        HttpEntry { entry, door, keys: KeyRing::default(), access_keys, own }
    }

    /// Serves a connection in a task of its own. Call it within a `LocalSet`.
    pub fn receive(self: &Rc<HttpEntry>, (stream, peer): (std::net::TcpStream, SocketAddr), place: Place) {
        let visitor = Rc::new(Visitor { http: self.clone(), peer, idle: RefCell::default() });
        tokio::task::spawn_local(async move {
            if let Err(error) = visitor.serve(stream).await {
                tracing::debug!(%peer, error, "an HTTP connection was closed early");
            }
            drop(place);
        });
    }

    /// The store of a request.
    async fn store_of(&self, head: &Parts) -> u16 {
        let path = head.uri.path();
        let mut words = path.split('/').skip(1);
        match (words.next(), words.next(), words.next()) {
            (Some("3"), Some("projects"), Some(project)) => return self.entry.store_of_tenant(project),
            (Some("api"), Some(_), Some(subject)) if OF_FIRST.contains(&subject) => return FIRST_STORE,
            _ => {}
        }
        let of_session =
            || session_principal(&head.headers).filter(|_| !head.headers.contains_key(AUTHORIZATION));
        let principal = self.user_of(head).await.map(Principal::User).or_else(of_session);
        principal.map_or(FIRST_STORE, |principal| self.entry.store_of(&principal))
    }

    /// The user that a request claims to be of. It is not checked: the leader does that.
    async fn user_of(&self, head: &Parts) -> Option<Arc<str>> {
        let query = head.uri.query().unwrap_or_default();
        let header =
            head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if let Some(login) = header.strip_prefix("Basic ") {
            let login = String::from_utf8(BASE64.decode(login.trim().as_bytes()).ok()?).ok()?;
            let (user, password) = login.split_once(':')?;
            return self.user_by((!user.is_empty()).then_some(user), password);
        }
        if let Some(id) = access_key_of(header, query) {
            let keys = self.keys.keys(&self.access_keys).await.ok()?;
            return keys.get(id).map(|key| key.user.as_str().into());
        }
        let token = token_of(&head.headers, query)?;
        match token.split_once(':') {
            Some((user, password)) => self.user_by(Some(user), password),
            None => self.user_by(None, token),
        }
    }

    fn user_by(&self, user: Option<&str>, password: &str) -> Option<Arc<str>> {
        match user {
            Some(user) => Some(user.into()),
            None if password.starts_with(TOKEN_PREFIX) => {
                self.door.borrow().token(password).map(|token| token.user)
            }
            None => None,
        }
    }
}

/// The id of the access key that a request of SQS names.
fn access_key_of<'r>(header: &'r str, query: &'r str) -> Option<&'r str> {
    let credential = match header.strip_prefix("AWS4-HMAC-SHA256 ") {
        Some(fields) => fields.split(',').find_map(|field| field.trim().strip_prefix("Credential="))?,
        None => query.split('&').find_map(|pair| pair.strip_prefix("X-Amz-Credential="))?,
    };
    credential.split(['/', '%']).next()
}

/// The store that a path names, and the rest of it.
pub(super) fn named_store(path_and_query: &str) -> Option<(u16, &str)> {
    let rest = path_and_query.strip_prefix(OF_STORE)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    Some((number.parse().ok()?, if rest.starts_with('/') { rest } else { "/" }))
}

/// Whether this is about the session of the console, which is one for all stores: below `/store/K`
/// it alone goes to the first store. Other subjects of the first store have a part in store K.
/// A tenant has its usage and its queues there (`ctl tenant show`, `ctl apply`), and the
/// configuration is that of the node that leads K.
fn is_session(path_and_query: &str) -> bool {
    path_and_query.split('?').next() == Some("/api/v1/session")
}

impl Visitor {
    async fn serve(self: Rc<Visitor>, stream: std::net::TcpStream) -> Result<(), String> {
        let answering = service_fn(move |request: Request<Incoming>| {
            let visitor = self.clone();
            async move { Ok::<_, Infallible>(visitor.pass(request).await) }
        });
        serve_connection(stream, answering).await
    }

    /// Passes a request to the leader of its store, and its answer back.
    async fn pass(&self, request: Request<Incoming>) -> Answer {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        let (store, path) = match named_store(&path) {
            Some((_, rest)) if is_session(rest) => (FIRST_STORE, rest.to_owned()),
            Some((store, rest)) => (store, rest.to_owned()),
            None if is_own(head.uri.path().as_bytes()) => (OWN, path),
            None => (self.http.store_of(&head).await, path),
        };
        if let Some(reason) = self.http.entry.absence(store).filter(|_| store != OWN) {
            return refusal(StatusCode::MISDIRECTED_REQUEST, &reason);
        }
        // HTTP/2 has no header for it.
        if let Some(authority) = head.uri.authority().filter(|_| !head.headers.contains_key(HOST))
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            head.headers.insert(HOST, host);
        }
        for header in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
            head.headers.remove(header);
        }
        head.version = hyper::Version::HTTP_11;
        match path.parse() {
            Ok(path) => head.uri = path,
            Err(_) => return refusal(StatusCode::BAD_REQUEST, "malformed path"),
        }
        match self.answer(store, Request::from_parts(head, body)).await {
            Ok(answer) => answer.map(Either::Left),
            Err(error) => {
                tracing::debug!(peer = %self.peer, store, error, "a request has no answer of its store");
                refusal(StatusCode::SERVICE_UNAVAILABLE, &format!("store {store} has not answered: {error}"))
            }
        }
    }

    async fn answer(&self, store: u16, mut request: Request<Incoming>) -> Result<Response<Incoming>, String> {
        loop {
            let kept = self.idle(store);
            let was_idle = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect(store).await.map_err(|error| error.to_string())?,
            };
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    let mut idle = self.idle.borrow_mut();
                    if idle.len() < IDLE_MAX {
                        idle.push((store, sender));
                    }
                    return Ok(answer);
                }
                // The leader has closed it meanwhile: nothing was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if was_idle => request = unsent,
                    _ => return Err(error.into_error().to_string()),
                },
            }
        }
    }

    /// A connection to the leader of a store that takes a request now.
    fn idle(&self, store: u16) -> Option<SendRequest<Incoming>> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|(_, sender)| !sender.is_closed());
        let place = idle.iter().position(|(of, sender)| *of == store && sender.is_ready())?;
        Some(idle.swap_remove(place).1)
    }

    async fn connect(&self, store: u16) -> io::Result<SendRequest<Incoming>> {
        if store == OWN {
            let (near, far) = connected_pair().await?;
            let passed = self.http.own.try_send((far, self.peer));
            passed.map_err(|_| io::Error::other("too many requests about this node wait"))?;
            return speak(near, std::future::pending()).await;
        }
        let (stream, other_leads) =
            self.http.entry.connect((self.peer, "http"), store, SERVED_WITHIN).await?;
        speak(stream, other_leads).await
    }
}

/// Begins HTTP on a connection, which ends at the latest with the future.
async fn speak(
    stream: impl Far + 'static,
    ends: impl Future<Output = ()> + 'static,
) -> io::Result<SendRequest<Incoming>> {
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(io::Error::other)?;
    tokio::task::spawn_local(async move {
        tokio::select! {
            _ = connection => {}
            () = ends => {}
        }
    });
    Ok(sender)
}

/// The admin API, IronMQ and SQS have their reasons in fields of different names.
fn refusal(status: StatusCode, reason: &str) -> Answer {
    let text = serde_json::json!({ "error": reason, "msg": reason, "message": reason }).to_string();
    let mut answer = Response::new(Either::Right(Full::new(Bytes::from(text))));
    *answer.status_mut() = status;
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_name_a_store_before_the_rest() {
        for (path, want) in [
            ("/store/2/api/v1/queues?x=1", Some((2, "/api/v1/queues?x=1"))),
            ("/store/12", Some((12, "/"))),
            ("/store/2?x=1", Some((2, "/"))),
            ("/store/two/api", None),
            ("/api/v1/queues", None),
        ] {
            assert_eq!(named_store(path), want, "{path}");
        }
    }

    #[test]
    fn the_access_key_is_in_the_header_or_in_the_query() {
        let header =
            "AWS4-HMAC-SHA256 Credential=KEY/20261128/us-east-1/sqs/aws4_request, SignedHeaders=host";
        for (header, query, want) in [
            (header, "", Some("KEY")),
            ("", "Action=x&X-Amz-Credential=KEY%2F20261128", Some("KEY")),
            ("Bearer prt_a", "Action=x", None),
        ] {
            assert_eq!(access_key_of(header, query), want, "{header} {query}");
        }
    }
}

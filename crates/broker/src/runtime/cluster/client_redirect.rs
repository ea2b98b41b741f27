//! Clients that come to a follower: they log in as at the leader, and are sent there.
//!
//! Never here: the words of a protocol (its session has them), requests that a follower answers
//! itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use postroad_admin::{Peer, permits_metrics};
use postroad_cluster::NodeId;
use postroad_model::{Elsewhere, Login, LoginAnswer, Parting, Session};
use postroad_net::{Connection, Moved, Place};
use postroad_security::Visit;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::runtime::cluster::forward::{carry, is_about_the_node};
use crate::runtime::cluster::orders::orders_to_follower;
use crate::runtime::cluster::view::{ClusterView, cluster_api};
use crate::runtime::http::{is_sqs, store_requests};
use crate::runtime::new_socket::NewSocket;
use crate::runtime::reception::Reception;
use crate::runtime::{StatsCollector, now};

/// A client that has not said within this time who it is finds its connection closed.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(30);

/// A client that comes during an election waits for its result, at most this long. Otherwise a
/// client that reconnects by itself would connect, and be closed, every few milliseconds.
const ELECTED_WITHIN: Duration = Duration::from_secs(3);

/// A client that gets no address is closed only after this time. ActiveMQ's `FailoverTransport`
/// misses the end of a connection that it has not finished to restore, and waits for ever; with an
/// address it finishes first.
const RESTORED_WITHIN: Duration = Duration::from_secs(1);

/// Time for a redirected client to read its address, and to close.
const LINGER: Duration = Duration::from_secs(2);

/// Passwords that are checked at a time.
const LOGINS_MAX: usize = 2;

/// Bytes of the body of a request that are read before it is sent on.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Seconds after which clients should try again while no leader is known: about as long as an
/// election takes.
const RETRY_AFTER: &str = "1";

/// See the head of this file. Call its functions within a `LocalSet`; the clients end with it.
pub struct ClientRedirect {
    view: ClusterView,
    logins: Arc<Semaphore>,
    leaders: watch::Receiver<Option<NodeId>>,
}

impl ClientRedirect {
    /// Sends clients to the leader that `view` knows.
    pub fn new(view: ClusterView) -> ClientRedirect {
        let leaders = view.leaders();
        ClientRedirect { view, logins: Arc::new(Semaphore::new(LOGINS_MAX)), leaders }
    }

    /// Lets a client say who it is in a session of `make`, and sends it on. `scheme` is that of the
    /// URLs of its endpoint.
    pub fn receive(
        &self,
        socket: NewSocket,
        scheme: &'static str,
        make: impl FnOnce(Arc<Elsewhere>, &Visit) -> Box<dyn Session> + 'static,
    ) {
        let (view, logins) = (self.view.clone(), self.logins.clone());
        let leaders = self.leaders.clone();
        tokio::task::spawn_local(async move {
            let NewSocket { socket, peer, place, tls, tls_is_asked_for, websocket_bytes_max, door, .. } =
                socket;
            if !view.is_removed() {
                view.leader_is_known(ELECTED_WITHIN).await;
            }
            if view.is_elected() {
                return view.keep((socket, peer, scheme));
            }
            if let Some(leader) = view.leader() {
                let leader = (leader, view.node_tls());
                if let Err(error) = carry((socket, peer, scheme), leader, leaders).await {
                    tracing::debug!(%peer, %error, "a forwarded connection ended early");
                }
                return drop(place);
            }
            let connected = NewSocket::connect(socket, (tls, tls_is_asked_for), None, websocket_bytes_max);
            let mut connection = match connected {
                Ok(connection) => connection,
                Err(error) => return tracing::debug!(%peer, %error, "a connection failed"),
            };
            let conversation = async {
                if connection.ready().await? == Moved::Closed {
                    return Ok(Parting::Farewell);
                }
                let visit = Visit::new(door.borrow().clone(), connection.peer_certificate()).at(peer.ip());
                let elsewhere = Arc::new(view.elsewhere(scheme));
                let is_told = elsewhere.served_at.is_some();
                let session = make(elsewhere, &visit);
                let parting = converse(&mut connection, session, Reception::new(visit, logins)).await;
                if !is_told {
                    tokio::time::sleep(RESTORED_WITHIN).await;
                }
                parting
            };
            let parting = tokio::time::timeout(INTRODUCED_WITHIN, conversation).await;
            if let Ok(Ok(Parting::Fault(reason))) = parting {
                tracing::debug!(%peer, reason, "a client was sent on");
            }
            let _ = tokio::time::timeout(LINGER, part(&mut connection)).await;
            drop(place);
        });
    }

    /// Answers the requests of an HTTP connection by `api`.
    pub fn receive_http(
        &self,
        (stream, peer): (std::net::TcpStream, SocketAddr),
        place: Place,
        (everybody, api): (StatsCollector, Router),
    ) {
        let (view, leaders) = (self.view.clone(), self.leaders.clone());
        tokio::task::spawn_local(async move {
            let ended = match answer_or_carry(stream, peer, (view, leaders)).await {
                Ok(None) => Ok(()),
                Ok(Some(stream)) => postroad_admin::serve(stream, peer, everybody, api)
                    .await
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, error, "an HTTP connection ended early");
            }
            drop(place);
        });
    }
}

/// Carries an HTTP connection to the leader; gives it back if it is about this node, or no leader
/// is known.
async fn answer_or_carry(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    (view, leaders): (ClusterView, watch::Receiver<Option<NodeId>>),
) -> std::io::Result<Option<std::net::TcpStream>> {
    let stream = tokio::net::TcpStream::from_std(stream)?;
    let is_own = is_about_the_node(&stream).await;
    let stream = stream.into_std()?;
    match view.leader() {
        Some(leader) if !is_own => {
            let leader = (leader, view.node_tls());
            carry((stream, peer, "http"), leader, leaders).await.map(|()| None)
        }
        None if !is_own && view.is_elected() => {
            view.keep((stream, peer, "http"));
            Ok(None)
        }
        _ => Ok(Some(stream)),
    }
}

/// Until the session has sent its client on.
async fn converse(
    connection: &mut Connection,
    mut session: Box<dyn Session>,
    mut reception: Reception,
) -> std::io::Result<Parting> {
    if let Err(parting) = receive(connection, &mut *session, &mut reception) {
        return Ok(parting);
    }
    loop {
        connection.write()?;
        let reads = session.takes_input();
        let missing = if reads { session.missing_bytes(&connection.input) } else { 0 };
        let taken = tokio::select! {
            moved = connection.moved(reads, missing) => match moved? {
                Moved::Closed => return Ok(Parting::Farewell),
                Moved::Writable => Ok(()),
                Moved::Read(_) => receive(connection, &mut *session, &mut reception),
            },
            answer = reception.answered() => admit(connection, &mut *session, answer)
                .and_then(|()| receive(connection, &mut *session, &mut reception)),
        };
        if let Err(parting) = taken {
            return Ok(parting);
        }
    }
}

/// Gives the session the bytes that have come, and its login to the reception.
fn receive(
    connection: &mut Connection,
    session: &mut dyn Session,
    reception: &mut Reception,
) -> Result<(), Parting> {
    loop {
        // No core is there that would take the events.
        session.receive(&mut connection.input, now(), &mut Vec::new(), &mut connection.output)?;
        let login: Option<Login> = session.login();
        let Some(answer) = login.and_then(|login| reception.ask(login)) else { return Ok(()) };
        admit(connection, session, answer)?;
    }
}

fn admit(connection: &mut Connection, session: &mut dyn Session, answer: LoginAnswer) -> Result<(), Parting> {
    session.admit(answer, now(), &mut Vec::new(), &mut connection.output)
}

/// Ends a connection when its client has read everything.
async fn part(connection: &mut Connection) -> std::io::Result<()> {
    connection.write()?;
    while !connection.is_flushed() {
        if connection.moved(false, 0).await? == Moved::Closed {
            return Ok(());
        }
        connection.write()?;
    }
    connection.part().await
}

/// The HTTP paths of a follower: the state of the cluster, the orders of operators to it, and for
/// everything else the way to the leader.
pub fn admin_elsewhere(view: ClusterView) -> Router {
    let sends_on = view.clone();
    // The figures of a follower have no names of queues or users, and it knows no users.
    let own = permits_metrics().merge(cluster_api(view.clone()));
    own.merge(orders_to_follower(&view)).merge(store_requests(&view.part)).fallback(
        move |Extension(peer): Extension<Peer>, mut request: Request| async move {
            // A socket that is closed with unread bytes may take the answer with it.
            let body = std::mem::take(request.body_mut());
            let _ = axum::body::to_bytes(body, BODY_BYTES_MAX).await;
            let elsewhere = sends_on.elsewhere("http");
            match explained_queue(&request).filter(|_| sends_on.leader().is_none()) {
                Some(queue) => Json(without_leader(queue, &elsewhere.reason)).into_response(),
                None => send_on(&elsewhere, peer, &request),
            }
        },
    )
}

/// The queue whose explanation is asked for, as it is in the path.
fn explained_queue(request: &Request) -> Option<&str> {
    let path =
        request.uri().path().strip_prefix("/api/v1/queues/").filter(|_| request.method() == Method::GET);
    path?.strip_suffix("/explain").filter(|queue| !queue.is_empty() && !queue.contains('/'))
}

/// The explanation of a queue while its store has no leader: whether there is such a queue is not
/// known here.
fn without_leader(queue: &str, reason: &str) -> Value {
    let text =
        format!("The store has no leader, so none of its queues takes or delivers messages: {reason}.");
    let remedy = "Start nodes until a majority of them reaches each other; `postroad ctl cluster` on each shows \
                  which it reaches.";
    let verdict = json!({ "code": "no_leader", "text": text, "remedy": remedy, "blocks": true });
    json!({
        "queue": format!("queue://{queue}"), "message": null, "summary": text, "remedy": remedy,
        "queue_verdicts": [verdict], "consumer_verdicts": [],
    })
}

/// A redirect to the leader; or that the client should try again, if there is none, or its request
/// cannot be sent elsewhere.
fn send_on(elsewhere: &Elsewhere, peer: Peer, request: &Request) -> Response {
    let reason = elsewhere.reason.as_str();
    // The admin API, IronMQ and SQS have their reasons in fields of different names.
    let body = Json(json!({ "error": reason, "msg": reason, "message": reason }));
    // The signature of an SQS request is over the name of its host.
    let is_bound = is_sqs(request) || matches!(peer, Peer::ControlSocket);
    let served_at = elsewhere.served_at.as_ref().filter(|_| !is_bound);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let location = served_at.map(|served_at| Bytes::from(format!("{served_at}{path}")));
    let location = location.and_then(|location| HeaderValue::from_maybe_shared(location).ok());
    let close = (header::CONNECTION, HeaderValue::from_static("close"));
    match location {
        Some(location) => {
            let headers = [close, (header::LOCATION, location)];
            (StatusCode::TEMPORARY_REDIRECT, headers, body).into_response()
        }
        None => {
            let headers = [close, (header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER))];
            (StatusCode::SERVICE_UNAVAILABLE, headers, body).into_response()
        }
    }
}

//! Connections of clients that a follower carries to the leader, bytes as they are, TLS inside too.
//!
//! ```text
//!  client ──▶ any listener of a follower ──▶ head: scheme, address ──▶ the leader's port for nodes,
//!          inside of the nodes' TLS, if they have it ──▶ as if it had connected to the leader
//! ```
//! A connection ends with its leader (`both_ways`). Its client connects again, to this node or
//! another one.
//!
//! Never here: protocols.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use postroad_cluster::{
    FORWARD_HEAD_BYTES, FORWARD_KEY_BYTES, FORWARD_MAGIC, ForwardError, Forwarding, HANDED_BYTES_MAX,
    HANDED_MAGIC, Handed, HandedLogin, NONCE_BYTES, NodeId,
};
use postroad_security::nodes::NodeTls;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

use crate::runtime::cluster::both_ways::copy_both_ways;
use crate::runtime::cluster::entry_login::EntryLogin;
use crate::runtime::cluster::peers::Peer;
use crate::runtime::cluster::sealed::{Far, connected_pair, seal};
use crate::runtime::cluster::view::ClusterView;

/// Connections that wait for the leader to take them: it may have been elected a moment ago.
pub const WAITING_MAX: usize = 1024;

/// From one look at the first bytes of a connection to the next, should they come one by one.
const PEEK_EVERY: Duration = Duration::from_millis(2);

/// The leader accepts within this time.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of each direction in memory.
pub const BUFFER_BYTES: usize = 32 << 10;
/// An HTTP request says its path within this time, and within these bytes.
const PATH_WITHIN: Duration = Duration::from_secs(5);
const PATH_BYTES_MAX: usize = 512;

/// A client's connection that arrived at the leader.
#[derive(Debug)]
pub struct Forwarded {
    /// The scheme of the URLs of the listener that the client connected to.
    pub scheme: String,
    /// The connection.
    pub socket: TcpStream,
    /// The client's address.
    pub client: SocketAddr,
    /// Whether another node carries it here.
    pub is_carried: bool,
    /// Its login, if it has logged in at the node that it connected to. Of HTTP: the node itself
    /// asks, as an operator.
    pub login: Option<Box<EntryLogin>>,
}

/// Connections that arrive, by their use.
#[derive(Debug)]
pub struct ForwardedClients {
    /// Of protocols with sessions.
    pub sessions: mpsc::Receiver<Forwarded>,
    /// HTTP.
    pub http: mpsc::Receiver<Forwarded>,
}

impl ForwardedClients {
    /// This node leads no more: closes those that wait.
    pub fn close(&mut self) {
        while self.sessions.try_recv().is_ok() || self.http.try_recv().is_ok() {}
    }
}

/// The other end of [`ForwardedClients`].
pub struct ForwardedIntake {
    key: [u8; FORWARD_KEY_BYTES],
    sessions: mpsc::Sender<Forwarded>,
    http: mpsc::Sender<Forwarded>,
}

impl ForwardedIntake {
    /// One with a key of its own.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new() -> io::Result<(ForwardedIntake, ForwardedClients)> {
        let mut key = [0; FORWARD_KEY_BYTES];
        getrandom(&mut key, GetRandomFlags::empty())?;
        let ((sessions, from_sessions), (http, from_http)) =
            (mpsc::channel(WAITING_MAX), mpsc::channel(WAITING_MAX));
        let clients = ForwardedClients { sessions: from_sessions, http: from_http };
        Ok((ForwardedIntake { key, sessions, http }, clients))
    }

    /// The key that other nodes need.
    pub fn key(&self) -> [u8; FORWARD_KEY_BYTES] {
        self.key
    }

    /// Whether a connection at the port for nodes is that of a client. `patience` is for its first
    /// bytes.
    pub fn knows(socket: &TcpStream, patience: Duration) -> bool {
        // As the length of a hello they would be above its maximum, and TLS begins otherwise.
        first_bytes::<2>(socket, patience).is_some_and(|first| FORWARD_MAGIC.starts_with(&first))
    }

    /// A client of this node's own listeners, which came while the node took over, is served once
    /// it leads.
    pub fn keep(&self, (socket, client, scheme): (TcpStream, SocketAddr, &str)) {
        self.pass_on(Forwarded { scheme: scheme.to_owned(), socket, client, is_carried: false, login: None });
    }

    /// A client that has logged in at this node, for the leader, which is in the same process.
    pub fn hand(&self, (socket, client, scheme): (TcpStream, SocketAddr, &str), login: Box<EntryLogin>) {
        let login = Some(login);
        self.pass_on(Forwarded { scheme: scheme.to_owned(), socket, client, is_carried: false, login });
    }

    fn pass_on(&self, forwarded: Forwarded) {
        let client = forwarded.client;
        let to = if forwarded.scheme == "http" { &self.http } else { &self.sessions };
        if to.try_send(forwarded).is_err() {
            tracing::warn!(%client, "closing a client: too many wait for this node to lead");
        }
    }
}

/// The first bytes of a connection, which stay in it; `None` if fewer come within this time.
pub(super) fn first_bytes<const N: usize>(socket: &TcpStream, patience: Duration) -> Option<[u8; N]> {
    let (mut first, until) = ([0; N], Instant::now() + patience);
    let _ = socket.set_read_timeout(Some(patience));
    while let Ok(length @ 1..) = socket.peek(&mut first) {
        if length == N || until < Instant::now() {
            return (length == N).then_some(first);
        }
        thread::sleep(PEEK_EVERY);
    }
    None
}

/// Takes a connection of a client, for one of these groups, or closes it if too many wait there.
///
/// # Errors
/// It is not from a node that has the key of one of them.
pub fn take(intakes: &[&ForwardedIntake], mut socket: TcpStream, patience: Duration) -> anyhow::Result<()> {
    let mut magic = [0; HANDED_MAGIC.len()];
    socket.set_read_timeout(Some(patience))?;
    socket.read_exact(&mut magic)?;
    let (taker, forwarded) = match magic {
        HANDED_MAGIC => take_handed(intakes, &mut socket)?,
        _ => take_forwarded(intakes, magic, &mut socket)?,
    };
    socket.set_read_timeout(None)?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    let Forwarding { scheme, client } = forwarded.0;
    taker.pass_on(Forwarded { scheme, socket, client, is_carried: true, login: forwarded.1 });
    Ok(())
}

/// The group whose key fits, its client, and the login of that.
type Taken<'i> = (&'i ForwardedIntake, (Forwarding, Option<Box<EntryLogin>>));

fn take_forwarded<'i>(
    intakes: &[&'i ForwardedIntake],
    magic: [u8; 8],
    socket: &mut TcpStream,
) -> anyhow::Result<Taken<'i>> {
    let mut head = [0; FORWARD_HEAD_BYTES];
    head[..magic.len()].copy_from_slice(&magic);
    socket.read_exact(&mut head[magic.len()..])?;
    let mut rest = vec![0; Forwarding::rest_bytes(&head)?];
    socket.read_exact(&mut rest)?;
    let (taker, forwarding) = by_key(intakes, |key| Forwarding::decode(&rest, key))?;
    Ok((taker, (forwarding, None)))
}

fn take_handed<'i>(intakes: &[&'i ForwardedIntake], socket: &mut TcpStream) -> anyhow::Result<Taken<'i>> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom(&mut nonce, GetRandomFlags::empty())?;
    socket.write_all(&nonce)?;
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut rest = vec![0; handed_bytes(length)?];
    socket.read_exact(&mut rest)?;
    decode_handed(intakes, &rest, &nonce)
}

/// As [`take`], of a client that was handed over inside of TLS. Returns the way of its socket.
///
/// # Errors
/// As [`take`].
pub async fn take_sealed<'i>(
    intakes: &[&'i ForwardedIntake],
    stream: &mut impl Far,
) -> anyhow::Result<Box<dyn FnOnce(TcpStream) + Send + 'i>> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom(&mut nonce, GetRandomFlags::empty())?;
    stream.write_all(&nonce).await?;
    stream.flush().await?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let mut rest = vec![0; handed_bytes(length)?];
    stream.read_exact(&mut rest).await?;
    let (taker, (Forwarding { scheme, client }, login)) = decode_handed(intakes, &rest, &nonce)?;
    let is_carried = true;
    Ok(Box::new(move |socket| taker.pass_on(Forwarded { scheme, socket, client, is_carried, login })))
}

fn handed_bytes(length: [u8; 4]) -> anyhow::Result<usize> {
    let length = u32::from_le_bytes(length) as usize;
    if HANDED_BYTES_MAX < length {
        bail!("the login of a client has {length} bytes; the maximum is {HANDED_BYTES_MAX}");
    }
    Ok(length)
}

fn decode_handed<'i>(
    intakes: &[&'i ForwardedIntake],
    rest: &[u8],
    nonce: &[u8; NONCE_BYTES],
) -> anyhow::Result<Taken<'i>> {
    let (taker, handed) = by_key(intakes, |key| Handed::decode(rest, key, nonce))?;
    let Handed { scheme, client, login } = handed;
    let decode = |HandedLogin { answers, bytes }| EntryLogin::decode(&answers, bytes).map(Box::new);
    let login = login.map(decode).transpose()?;
    Ok((taker, (Forwarding { scheme, client }, login)))
}

/// The group whose key the sender has.
fn by_key<'i, T>(
    intakes: &[&'i ForwardedIntake],
    decode: impl Fn(&[u8; FORWARD_KEY_BYTES]) -> Result<T, ForwardError>,
) -> Result<(&'i ForwardedIntake, T), ForwardError> {
    let mut wrong = ForwardError::Proof;
    for intake in intakes {
        match decode(&intake.key) {
            Ok(found) => return Ok((intake, found)),
            Err(error) => wrong = error,
        }
    }
    Err(wrong)
}

/// Gives a client to the leader, which is another node, over a new connection, inside of TLS if
/// nodes have it. With a login it has logged in here; without one its own bytes follow.
///
/// # Errors
/// The leader is not reached, or does not take it.
pub async fn hand_over(
    (client, scheme): (SocketAddr, &str),
    login: Option<&EntryLogin>,
    leader: &Peer,
    tls: Option<&NodeTls>,
) -> io::Result<Box<dyn Far>> {
    let (scheme, key) = (scheme.to_owned(), leader.forward_key());
    let connected = async {
        let mut socket = tokio::net::TcpStream::connect(&leader.address).await?;
        socket.set_nodelay(true)?;
        if login.is_none() && !leader.takes_clients() {
            // Its version knows no other way. Its hello, inside of the nodes' TLS, has said so.
            let mut nonce = [0; NONCE_BYTES];
            getrandom(&mut nonce, GetRandomFlags::empty())?;
            socket.write_all(&Forwarding { scheme, client }.encode(&key, nonce)).await?;
            return Ok(Box::new(socket) as Box<dyn Far>);
        }
        let mut far: Box<dyn Far> = match tls {
            Some(tls) => seal(socket, &leader.address, tls).await?,
            None => {
                socket.write_all(&HANDED_MAGIC).await?;
                Box::new(socket)
            }
        };
        let mut nonce = [0; NONCE_BYTES];
        far.read_exact(&mut nonce).await?;
        let handed = Handed { scheme, client, login: login.map(EntryLogin::handed) };
        far.write_all(&handed.encode(&key, &nonce)).await?;
        far.flush().await?;
        Ok(far)
    };
    tokio::time::timeout(ACCEPTED_WITHIN, connected).await?
}

/// Connects a client, as [`hand_over`], to the leader of a store, which may be in this process.
/// Returns the number of the leader's node as well, if it is another one.
///
/// # Errors
/// No leader is reached.
pub async fn reach(
    view: &ClusterView,
    (client, scheme): (SocketAddr, &str),
    login: Option<&EntryLogin>,
) -> io::Result<(Box<dyn Far>, Option<NodeId>)> {
    if view.is_elected() {
        let (near, far) = connected_pair().await?;
        near.set_nodelay(true)?;
        match login {
            Some(login) => view.hand((far, client, scheme), Box::new(login.clone())),
            None => view.keep((far, client, scheme)),
        }
        return Ok((Box::new(near), None));
    }
    let leader = view.leader().ok_or_else(|| io::Error::other("no leader is reached"))?;
    let far = hand_over((client, scheme), login, &leader, view.node_tls()).await?;
    Ok((far, Some(leader.node)))
}

/// Copies bytes both ways until both sides have ended, or another node leads.
///
/// # Errors
/// See [`copy_both_ways`].
pub async fn copy(
    near: tokio::net::TcpStream,
    far: impl Far,
    until: impl Future<Output = ()>,
) -> io::Result<()> {
    tokio::select! {
        copied = copy_both_ways(near, far, BUFFER_BYTES) => copied,
        () = until => Ok(()),
    }
}

/// Carries a client's connection to the leader until it ends, or another node leads.
///
/// # Errors
/// The leader is not reached; or as [`copy_both_ways`].
pub async fn carry(
    (socket, client, scheme): (TcpStream, SocketAddr, &str),
    (leader, tls): (Arc<Peer>, Option<&NodeTls>),
    leaders: watch::Receiver<Option<NodeId>>,
) -> io::Result<()> {
    let near = tokio::net::TcpStream::from_std(socket)?;
    near.set_nodelay(true)?;
    let far = hand_over((client, scheme), None, &leader, tls).await?;
    copy(near, far, other_leads(leaders, Some(leader.node))).await
}

/// Ends once another than this leads, or none.
pub async fn other_leads(mut leaders: watch::Receiver<Option<NodeId>>, leader: Option<NodeId>) {
    drop(leaders.wait_for(|now| *now != leader).await);
}

/// Whether a follower answers this HTTP connection itself: it asks for the node's own state.
pub async fn is_about_the_node(socket: &tokio::net::TcpStream) -> bool {
    let mut bytes = [0; PATH_BYTES_MAX];
    let said = async {
        loop {
            let length = socket.peek(&mut bytes).await.unwrap_or(0);
            match path_of(&bytes[..length]) {
                None if 0 < length && length < PATH_BYTES_MAX => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                path => return path.is_some_and(is_own),
            }
        }
    };
    tokio::time::timeout(PATH_WITHIN, said).await.unwrap_or(false)
}

/// The path of a request line whose end has come.
fn path_of(bytes: &[u8]) -> Option<&[u8]> {
    let mut words = bytes.splitn(3, |byte| *byte == b' ');
    words.next()?;
    let path = words.next()?;
    words.next().map(|_| path)
}

/// Whether a node answers requests of this path itself. Orders, below the path of the cluster's
/// state, are for the leader.
pub fn is_own(path: &[u8]) -> bool {
    let is_state = path.split(|byte| *byte == b'?').next() == Some(b"/api/v1/cluster");
    is_state || [&b"/health"[..], b"/metrics"].iter().any(|own| path.starts_with(own))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::take as take_one;
    use super::*;

    #[test]
    fn a_follower_answers_for_its_own_state_alone() {
        for (line, want) in [
            ("GET /health/ready HTTP/1.1\r\n", Some(true)),
            ("GET /metrics HTTP/1.1", Some(true)),
            ("GET /api/v1/cluster ", Some(true)),
            ("GET /api/v1/cluster?x=1 HTTP/1.1", Some(true)),
            ("POST /api/v1/cluster/transfer HTTP/1.1", Some(false)),
            ("POST /3/projects/p/queues/q/messages HTTP/1.1", Some(false)),
            ("GET /health", None),
            ("", None),
        ] {
            assert_eq!(path_of(line.as_bytes()).map(is_own), want, "{line:?}");
        }
    }

    #[test]
    fn a_hello_of_any_length_is_not_taken_for_a_client() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for (first, want) in [
            (&b"PRfwrd"[..], true),
            (&[b'P', 1, 0, 0][..], false),
            (&[0x16, 3, 1][..], false),
            (&b""[..], false),
            (&b"P"[..], false),
        ] {
            let mut sends = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            sends.write_all(first).unwrap();
            let knows = ForwardedIntake::knows(&listener.accept().unwrap().0, Duration::from_millis(50));
            assert_eq!(knows, want, "{first:?}");
        }
    }

    fn login() -> EntryLogin {
        EntryLogin { answers: Vec::new(), credential: None, certificate: None, bytes: Bytes::new() }
    }

    fn handed(login: Option<&EntryLogin>) -> Handed {
        let login = login.map(EntryLogin::handed);
        Handed { scheme: "http".to_owned(), client: "192.0.2.7:4000".parse().unwrap(), login }
    }

    /// Over HTTP a login makes the node that asks an operator.
    #[test]
    fn a_client_has_a_login_only_if_its_node_has_said_so() {
        let (intake, mut clients) = ForwardedIntake::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for (login, key, want) in [
            (Some(login()), intake.key(), Some(true)),
            (None, intake.key(), Some(false)),
            (Some(login()), [0; FORWARD_KEY_BYTES], None),
            (None, [0; FORWARD_KEY_BYTES], None),
        ] {
            let mut sends = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = listener.accept().unwrap().0;
            let handed = handed(login.as_ref());
            let answers = thread::spawn(move || {
                let mut nonce = [0; NONCE_BYTES];
                sends.write_all(&HANDED_MAGIC).unwrap();
                sends.read_exact(&mut nonce).unwrap();
                sends.write_all(&handed.encode(&key, &nonce)).unwrap();
            });
            let taken = take_one(&[&intake], socket, ACCEPTED_WITHIN);
            answers.join().unwrap();
            assert_eq!(taken.is_ok(), want.is_some(), "{login:?} {taken:?}");
            let taken = clients.http.try_recv().ok();
            assert_eq!(taken.map(|taken| taken.login.is_some()), want, "{login:?}");
        }
    }

    #[tokio::test]
    async fn inside_of_tls_a_client_has_a_login_only_if_its_node_has_said_so() {
        let (intake, mut clients) = ForwardedIntake::new().unwrap();
        for (login, key, is_fresh, want) in [
            (Some(login()), intake.key(), true, Some(true)),
            (None, intake.key(), true, Some(false)),
            (None, intake.key(), false, None),
            (None, [0; FORWARD_KEY_BYTES], true, None),
        ] {
            let (mut near, mut far) = tokio::io::duplex(1 << 16);
            let handed = handed(login.as_ref());
            let answers = async {
                let mut nonce = [0; NONCE_BYTES];
                near.read_exact(&mut nonce).await.unwrap();
                let nonce = if is_fresh { nonce } else { [0; NONCE_BYTES] };
                near.write_all(&handed.encode(&key, &nonce)).await.unwrap();
            };
            let intakes = [&intake];
            let ((), taken) = tokio::join!(answers, take_sealed(&intakes, &mut far));
            if let Ok(pass_on) = taken {
                pass_on(connected_pair().await.unwrap().1);
            }
            let taken = clients.http.try_recv().ok();
            assert_eq!(taken.map(|taken| taken.login.is_some()), want, "{login:?}");
        }
    }

    #[test]
    fn a_forwarded_client_is_taken_with_the_key_alone_and_up_to_a_bound() {
        let (intake, mut clients) = ForwardedIntake::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = "192.0.2.7:4000".parse().unwrap();
        let take = |scheme: &str, key: [u8; FORWARD_KEY_BYTES]| {
            let head = Forwarding { scheme: scheme.to_owned(), client }.encode(&key, [1; NONCE_BYTES]);
            let mut sends = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            sends.write_all(&head).unwrap();
            let socket = listener.accept().unwrap().0;
            assert!(ForwardedIntake::knows(&socket, ACCEPTED_WITHIN));
            take_one(&[&intake], socket, ACCEPTED_WITHIN)
        };
        assert!(take("amqp", [0; FORWARD_KEY_BYTES]).unwrap_err().to_string().contains("without the key"));
        take("http", intake.key()).unwrap();
        let taken = clients.http.try_recv().unwrap();
        assert_eq!((&*taken.scheme, taken.client), ("http", client));
        for _ in 0..WAITING_MAX + 3 {
            take("amqp", intake.key()).unwrap();
        }
        assert_eq!(clients.sessions.len(), WAITING_MAX);
        clients.close();
        assert!(clients.sessions.is_empty());
    }
}

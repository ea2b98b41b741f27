//! Clients that another node hands to this one inside of the nodes' TLS.
//!
//! ```text
//!  entry node: magic, then TLS with the certificates of both nodes, then as without it ──▶ one thread
//!      of this node for all of them ──▶ a pair of sockets ──▶ the leader of the store
//! ```
//! Never here: connections of nodes, whose threads wait for them (`wire`).

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context;
use postroad_security::nodes::NodeTls;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::runtime::cluster::both_ways::copy_both_ways;
use crate::runtime::cluster::forward::take_sealed;
use crate::runtime::cluster::peers::{PATIENCE, Shared, named};
use crate::runtime::cluster::wire::host_of;
use crate::runtime::descriptors_max;

/// The beginning of such a connection.
pub const SEALED_MAGIC: [u8; 8] = *b"PRtlsn\r\n";

/// Connections that wait for the thread.
const WAITING_MAX: usize = 256;
/// Connections at a time, unless the limit of descriptors is lower; beyond that they are closed.
const CLIENTS_MAX: u64 = 16_384;
/// Handshakes at a time. Others wait, so that those under way end in time when many clients connect
/// at once.
const HANDSHAKES_MAX: usize = 256;
/// Bytes of each direction in memory: those of one record of TLS.
const BUFFER_BYTES: usize = 16 << 10;

/// The way to a leader, with TLS around it or without.
pub trait Far: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Far for S {}

/// A connection after its magic, and the groups that it may be for.
type Arrived = (std::net::TcpStream, Vec<Arc<Shared>>);

/// Takes such connections in a thread, which ends with it.
pub struct SealedClients(mpsc::Sender<Arrived>);

impl SealedClients {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start() -> io::Result<SealedClients> {
        let (sender, arrived) = mpsc::channel(WAITING_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        named("peer-clients".to_owned(), move || runtime.block_on(receive_all(arrived)))?;
        Ok(SealedClients(sender))
    }

    /// Takes a connection after its magic, or closes it if too many wait.
    pub fn take(&self, socket: std::net::TcpStream, groups: Vec<Arc<Shared>>) {
        if self.0.try_send((socket, groups)).is_err() {
            tracing::warn!("closing a client: too many wait for the TLS of this node");
        }
    }
}

/// How many there may be under a limit on open files. Each takes two descriptors besides that of
/// the client at the leader.
pub fn sealed_clients_max(descriptors: u64) -> usize {
    (descriptors / 16).clamp(1, CLIENTS_MAX) as usize
}

async fn receive_all(mut arrived: mpsc::Receiver<Arrived>) {
    let places = Arc::new(Semaphore::new(sealed_clients_max(descriptors_max())));
    let turns = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    while let Some((socket, groups)) = arrived.recv().await {
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!("closing a client: too many come by other nodes");
            continue;
        };
        let turns = turns.clone();
        tokio::spawn(async move {
            match receive(socket, &groups, &turns).await {
                Ok((stream, near)) => pass(stream, near).await,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "refused a client of another node");
                }
            }
            drop(place);
        });
    }
}

/// Gives a client to its leader. Returns both ends to copy between.
async fn receive(
    socket: std::net::TcpStream,
    groups: &[Arc<Shared>],
    turns: &Semaphore,
) -> anyhow::Result<(impl Far, TcpStream)> {
    let tls = groups.first().and_then(|group| group.tls()).context("this node has no TLS for nodes")?;
    let taken = async {
        let _turn = turns.acquire().await?;
        let mut stream = TlsAcceptor::from(tls.server.clone()).accept(ready(socket)?).await?;
        let intakes: Vec<_> = groups.iter().map(|group| group.intake()).collect();
        let pass_on = take_sealed(&intakes, &mut stream).await?;
        anyhow::Ok((stream, pass_on))
    };
    let (stream, pass_on) = tokio::time::timeout(PATIENCE, taken).await??;
    let (near, far) = connected_pair().await?;
    near.set_nodelay(true)?;
    pass_on(far);
    Ok((stream, near))
}

/// A connection for the thread. What the leader writes goes out at once.
fn ready(socket: std::net::TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    TcpStream::from_std(socket)
}

/// Copies bytes both ways until both sides have ended, as clients do at any time.
async fn pass(stream: impl Far, near: TcpStream) {
    if let Err(error) = copy_both_ways(stream, near, BUFFER_BYTES).await {
        tracing::debug!(%error, "a client of another node ended early");
    }
}

/// Begins TLS towards a node, at this address.
///
/// # Errors
/// The node is refused, or refuses this one.
pub async fn seal(mut socket: TcpStream, address: &str, tls: &NodeTls) -> io::Result<Box<dyn Far>> {
    socket.write_all(&SEALED_MAGIC).await?;
    let name = ServerName::try_from(host_of(address).to_owned()).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(tls.client.clone()).connect(name, socket).await?))
}

/// Two sockets that are connected with each other.
///
/// # Errors
/// The system refuses.
pub async fn connected_pair() -> io::Result<(TcpStream, std::net::TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    let (far, from) = listener.accept().await?;
    if from != near.local_addr()? {
        return Err(io::Error::other("another process has connected"));
    }
    far.set_nodelay(true)?;
    Ok((near, far.into_std()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_other_nodes_leave_descriptors_for_all_else() {
        for (descriptors, want) in [(u64::MAX, 16_384), (65_536, 4096), (1024, 64), (1, 1)] {
            assert_eq!(sealed_clients_max(descriptors), want, "{descriptors}");
        }
    }

    #[tokio::test]
    async fn what_the_leader_writes_does_not_wait_for_earlier_bytes_to_be_confirmed() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let _entry = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(ready(listener.accept().unwrap().0).unwrap().nodelay().unwrap());
    }
}

//! Listeners: one socket for each port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};

/// Connections that wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// Why a port cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has it.
    #[error(
        "{service}: {address} is in use by another process; stop it, or choose others with --port-offset"
    )]
    InUse {
        /// The listener's service.
        service: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// The system refuses for another reason.
    #[error("{service}: cannot listen on {address}: {source}")]
    Refused {
        /// The listener's service.
        service: &'static str,
        /// Where.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// How many connections may be served at once, over all listeners that share it. Clones share it.
#[derive(Clone, Debug)]
pub struct Places(Arc<Semaphore>);

/// The right to be served of one connection: hold it until the socket is closed.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "kept for what its end does")] OwnedSemaphorePermit);

impl Places {
    /// Room for this number of connections; [`Semaphore::MAX_PERMITS`] at most.
    pub fn new(connections_max: usize) -> Places {
        Places(Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))))
    }

    /// A place, if one is free now.
    pub fn take(&self) -> Option<Place> {
        Semaphore::try_acquire_owned(self.0.clone()).ok().map(Place)
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    source: Source,
    address: SocketAddr,
}

/// Where connections come from.
#[derive(Debug)]
enum Source {
    Socket(TcpListener),
    /// Another part of the process accepts them, and passes some on.
    Passed(Mutex<mpsc::Receiver<Accepted>>),
    /// Another part of the process has them all.
    Silent,
}

/// A connection, and who is at its other end.
pub type Accepted = (std::net::TcpStream, SocketAddr);

impl Listener {
    /// Listens on `address` for `service` (a word for error messages). Call within a runtime.
    ///
    /// # Errors
    /// [`BindError`]: the port is taken, or not to be had.
    pub fn bind(service: &'static str, address: SocketAddr) -> Result<Listener, BindError> {
        let refused = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { service, address },
            _ => BindError::Refused { service, address, source },
        };
        let socket = match address {
            SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
            SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
        };
        let socket = socket.map_err(refused)?;
        // A restarted broker gets its port back at once; a live listener still refuses it.
        socket.set_reuseaddr(true).map_err(refused)?;
        socket.bind(address).map_err(refused)?;
        let socket = socket.listen(BACKLOG).map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        Ok(Listener { source: Source::Socket(socket), address })
    }

    /// One of the same address that never accepts a connection: another part of the process does.
    pub fn silent(&self) -> Listener {
        Listener { source: Source::Silent, address: self.address }
    }

    /// One of the same address that accepts the connections which come by this way, of which a
    /// number may wait.
    pub fn passed(&self, waiting_max: usize) -> (Listener, mpsc::Sender<Accepted>) {
        let (sender, receiver) = mpsc::channel(waiting_max);
        (Listener { source: Source::Passed(Mutex::new(receiver)), address: self.address }, sender)
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    /// The next connection, free of this runtime so that any core can take it.
    ///
    /// # Errors
    /// The system's error; running out of descriptors is one, so pause before the next call.
    pub async fn accept(&self) -> io::Result<Accepted> {
        let socket = match &self.source {
            Source::Socket(socket) => socket,
            Source::Passed(passed) => match passed.lock().await.recv().await {
                Some(accepted) => return Ok(accepted),
                None => return std::future::pending().await,
            },
            Source::Silent => return std::future::pending().await,
        };
        let (stream, peer) = socket.accept().await?;
        TcpStream::set_nodelay(&stream, true)?;
        Ok((stream.into_std()?, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_once_its_connection_is_gone() {
        let places = Places::new(2);
        let (first, second) = (places.take(), places.clone().take());
        assert!(first.is_some() && second.is_some() && places.take().is_none());
        drop(first);
        assert!(places.take().is_some());
        assert!(Places::new(0).take().is_none());
        assert!(Places::new(usize::MAX).take().is_some());
    }
}

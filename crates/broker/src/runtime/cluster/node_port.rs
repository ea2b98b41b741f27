//! The port of a node for the others, shared by all of its stores.
//!
//! A node that connects says first which group it means, and a client that is carried here proves
//! whose key its node has.
//!
//! Never here: the messages of a group, sessions.

use std::fmt;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;

use anyhow::Context;
use postroad_cluster::{HELLO_BYTES_MAX, Hello};
use tokio::sync::Semaphore;

use crate::runtime::cluster::ClusterOptions;
use crate::runtime::cluster::forward::{ForwardedIntake, first_bytes, take};
use crate::runtime::cluster::peers::{PATIENCE, REDIAL, Shared, meet, named};
use crate::runtime::cluster::sealed::{SEALED_MAGIC, SealedClients};
use crate::runtime::cluster::wire::Wire;

/// Connections whose peer has not said yet who it is.
const STRANGERS_MAX: usize = 64;
/// Carried clients whose proof has not come: each may have a login in memory. Beyond that they are
/// closed, and their node tries again.
const UNPROVED_MAX: usize = 128;

/// See the head of this file.
pub struct NodePort {
    listener: TcpListener,
    /// The groups of the stores that this node has, each once its replica is open.
    groups: RwLock<Vec<Arc<Shared>>>,
    /// The names of all groups.
    names: Vec<String>,
    unproved: Semaphore,
    /// Clients inside of TLS, once there is one.
    sealed: Mutex<Option<SealedClients>>,
}

impl fmt::Debug for NodePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePort").field("names", &self.names).finish_non_exhaustive()
    }
}

impl NodePort {
    /// That of a node with one store.
    ///
    /// # Errors
    /// The address is not to be had.
    pub fn bind(options: &ClusterOptions) -> anyhow::Result<Arc<NodePort>> {
        NodePort::of_groups(options, vec![options.cluster.clone()])
    }

    /// That of a node with a store for each of these groups.
    ///
    /// # Errors
    /// The address is not to be had.
    pub fn of_groups(options: &ClusterOptions, names: Vec<String>) -> anyhow::Result<Arc<NodePort>> {
        let address = options.listen_address()?;
        let listener = TcpListener::bind(address)
            .with_context(|| format!("cannot listen for other nodes on {address}"))?;
        Ok(Arc::new(NodePort::at(listener, names)))
    }

    fn at(listener: TcpListener, names: Vec<String>) -> NodePort {
        let (groups, sealed) = (RwLock::default(), Mutex::default());
        NodePort { listener, groups, names, unproved: Semaphore::new(UNPROVED_MAX), sealed }
    }

    /// Serves a group from now on.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn serve(self: &Arc<NodePort>, group: Arc<Shared>) -> std::io::Result<()> {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.push(group);
        if groups.len() == 1 {
            let port = self.clone();
            named("peers".to_owned(), move || port.accept())?;
        }
        Ok(())
    }

    fn groups(&self) -> Vec<Arc<Shared>> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn accept(self: Arc<NodePort>) {
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        loop {
            let (socket, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept another node");
                    thread::sleep(REDIAL);
                    continue;
                }
            };
            let Ok(place) = strangers.clone().try_acquire_owned() else { continue };
            let port = self.clone();
            // Without a thread the place is free again.
            let _ = named("peer-in".to_owned(), move || port.receive(socket, from, || drop(place)));
        }
    }

    /// A peer has connected. Calls `met` once it is known who it is.
    fn receive(&self, socket: TcpStream, from: SocketAddr, met: impl FnOnce()) {
        let groups = self.groups();
        if ForwardedIntake::knows(&socket, PATIENCE) {
            met();
            let Ok(_place) = self.unproved.try_acquire() else { return };
            if first_bytes(&socket, PATIENCE) == Some(SEALED_MAGIC) {
                return self.take_sealed(socket, groups);
            }
            let intakes: Vec<_> = groups.iter().map(|group| group.intake()).collect();
            if let Err(error) = take(&intakes, socket, PATIENCE) {
                tracing::warn!(%from, error = format!("{error:#}"), "refused a forwarded client");
            }
            return;
        }
        if let Err(error) = self.talk(&groups, socket, met) {
            tracing::warn!(%from, error = format!("{error:#}"), "refused a node");
        }
    }

    /// Clients inside of TLS share a thread.
    fn take_sealed(&self, mut socket: TcpStream, groups: Vec<Arc<Shared>>) {
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match &mut *sealed {
            Some(sealed) => Ok(sealed),
            none => SealedClients::start().map(|started| none.insert(started)),
        };
        let read = socket.read_exact(&mut [0; SEALED_MAGIC.len()]);
        match taken.and_then(|sealed| read.map(|()| sealed)) {
            Ok(sealed) => sealed.take(socket, groups),
            Err(error) => tracing::warn!(%error, "cannot take a client of another node"),
        }
    }

    fn talk(&self, groups: &[Arc<Shared>], socket: TcpStream, met: impl FnOnce()) -> anyhow::Result<()> {
        let Some(first) = groups.first() else {
            met();
            return Ok(());
        };
        let said = Wire::accepted(socket, PATIENCE, first.tls())
            .and_then(|wire| wire.read_frame(HELLO_BYTES_MAX).map(|hello| (wire, hello)));
        let (wire, hello) = match said {
            Ok(said) => said,
            Err(error) => {
                met();
                return Err(error.into());
            }
        };
        let wanted = Hello::decode(&hello).ok().map(|hello| hello.cluster);
        let group = groups.iter().find(|group| wanted.as_deref() == Some(group.group()));
        if group.is_none() && wanted.is_some_and(|wanted| self.names.contains(&wanted)) {
            // That store is still being opened: the other node tries again.
            met();
            return Ok(());
        }
        // The hello of another group is refused with a reason.
        meet(group.unwrap_or(first), wire, (hello, met))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use postroad_cluster::HANDED_MAGIC;

    use super::*;

    #[test]
    fn carried_clients_without_a_proof_are_bounded() {
        let port = Arc::new(NodePort::at(TcpListener::bind("127.0.0.1:0").unwrap(), Vec::new()));
        let connect = || {
            let mut client = TcpStream::connect(port.listener.local_addr().unwrap()).unwrap();
            client.write_all(&HANDED_MAGIC).unwrap();
            let (port, (socket, from)) = (port.clone(), port.listener.accept().unwrap());
            (client, thread::spawn(move || port.receive(socket, from, || ())))
        };
        let held: Vec<_> = (0..UNPROVED_MAX).map(|_| connect()).collect();
        while 0 < port.unproved.available_permits() {
            thread::yield_now();
        }
        let (mut further, received) = connect();
        received.join().unwrap();
        assert!(matches!(further.read(&mut [0]), Ok(0) | Err(_)), "no nonce: it was closed");
        for (client, received) in held {
            drop(client);
            received.join().unwrap();
        }
        assert_eq!(port.unproved.available_permits(), UNPROVED_MAX);
    }
}

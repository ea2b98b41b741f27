//! Listeners: the open ports, and their protocols.

use std::net::{SocketAddr, TcpStream};
use std::task::Poll;

use anyhow::Context;
use postroad_model::Endpoint as Reached;
use postroad_net::Listener;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::runtime::{EntryLogin, Forwarded, Service};

/// The protocol of a port, and its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Which protocol.
    pub service: Service,
    /// Whether inside of TLS.
    pub tls: bool,
    /// Whether inside of WebSockets.
    pub websocket: bool,
    /// Whether the connection came through another node of the cluster.
    pub forwarded: bool,
}

impl Endpoint {
    fn name(self) -> &'static str {
        self.service.name()
    }

    /// What serves its connections.
    pub fn serves(self) -> Service {
        match self.service {
            Service::OpenWire if self.forwarded => Service::ForwardedOpenWire { tls: self.tls },
            service => service,
        }
    }

    /// Of the URLs by which clients name it.
    pub fn scheme(self) -> &'static str {
        match (self.service, self.websocket, self.tls) {
            (Service::OpenWire, false, false) => "tcp",
            (Service::OpenWire, false, true) => "ssl",
            (Service::OpenWire, true, false) => "ws",
            (Service::OpenWire, true, true) => "wss",
            // There is no listener for links: this broker opens them.
            (Service::Link { .. } | Service::ForwardedOpenWire { .. }, ..) => "tcp",
            (Service::Amqp, false, false) => "amqp",
            (Service::Amqp, false, true) => "amqps",
            (Service::Amqp, true, false) => "amqpws",
            (Service::Amqp, true, true) => "amqpwss",
        }
    }
}

/// A connection that a listener has accepted.
pub struct Accepted {
    /// Its listener.
    pub endpoint: Endpoint,
    /// The socket.
    pub socket: TcpStream,
    /// Who is at its other end.
    pub peer: SocketAddr,
    /// Its login, if it has logged in where it came into the cluster.
    pub login: Option<Box<EntryLogin>>,
}

/// One listener for each endpoint.
pub struct Listeners {
    all: Vec<(Endpoint, Listener)>,
    /// Which is asked first, so that a flood at one port leaves the others their turn.
    first: usize,
    /// Connections that other nodes of the cluster carry to this one.
    forwarded: Option<mpsc::Receiver<Forwarded>>,
}

impl Listeners {
    /// Opens every port. Call within a runtime.
    ///
    /// # Errors
    /// A port is taken, or not to be had.
    pub fn bind(config: &Config) -> anyhow::Result<Listeners> {
        let (ports, has_tls) = (&config.ports, config.tls.files()?.is_some());
        let mut all = Vec::new();
        for (service, websocket, tls, port) in [
            (Service::OpenWire, false, false, ports.openwire),
            (Service::Amqp, false, false, ports.amqp),
            (Service::Amqp, true, false, ports.amqp_websocket),
            (Service::OpenWire, false, true, ports.openwire_tls()),
            (Service::Amqp, false, true, ports.amqp_tls()),
            (Service::Amqp, true, true, ports.amqp_websocket_tls()),
        ] {
            if tls && !has_tls {
                continue;
            }
            let endpoint = Endpoint { service, tls, websocket, forwarded: false };
            let address = SocketAddr::new(config.bind, config.port(port)?);
            all.push((endpoint, Listener::bind(endpoint.name(), address)?));
        }
        Ok(Listeners { all, first: 0, forwarded: None })
    }

    /// The same endpoints, at which another part of the process accepts connections: only those
    /// come here that it, or another node, hands over.
    pub fn silent(&self) -> Listeners {
        let all = self.all.iter().map(|(endpoint, listener)| (*endpoint, listener.silent())).collect();
        Listeners { all, first: 0, forwarded: None }
    }

    /// Where a protocol is spoken with nothing around it.
    ///
    /// # Errors
    /// It is not, or the system does not say.
    pub fn address(&self, service: Service) -> anyhow::Result<SocketAddr> {
        let plain = Endpoint { service, tls: false, websocket: false, forwarded: false };
        let listener = self.all.iter().find(|(known, _)| *known == plain);
        Ok(listener.context("the service has no listener")?.1.address()?)
    }

    /// The table for the operator: protocols and their ports.
    ///
    /// # Errors
    /// The system's error.
    pub fn endpoints(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        let shown = |(endpoint, listener): &(Endpoint, Listener)| {
            Ok((endpoint.name(), format!("{}://{}", endpoint.scheme(), listener.address()?)))
        };
        self.all.iter().map(shown).collect()
    }

    /// Where clients on other machines connect, by the host that they know.
    ///
    /// # Errors
    /// The system does not say.
    pub fn advertised(&self, host: &str) -> anyhow::Result<Vec<Reached>> {
        let reached = |(endpoint, listener): &(Endpoint, Listener)| {
            let (scheme, host) = (endpoint.scheme().to_owned(), host.to_owned());
            Ok(Reached { scheme, host, port: listener.address()?.port() })
        };
        self.all.iter().map(reached).collect()
    }

    /// From now on connections that other nodes carry to this one are accepted as well.
    pub fn take_forwarded(&mut self, forwarded: mpsc::Receiver<Forwarded>) {
        self.forwarded = Some(forwarded);
    }

    /// Gives back what [`Listeners::take_forwarded`] took.
    pub fn release_forwarded(&mut self) -> Option<mpsc::Receiver<Forwarded>> {
        self.forwarded.take()
    }

    /// The next connection at any of them.
    ///
    /// # Errors
    /// The system's error; see [`Listener::accept`].
    pub async fn accept(&mut self) -> std::io::Result<Accepted> {
        let forwarded = &mut self.forwarded;
        self.first = (self.first + 1) % self.all.len();
        let (before, from) = self.all.split_at(self.first);
        let mut accepting = Vec::with_capacity(self.all.len());
        for (endpoint, listener) in from.iter().chain(before) {
            accepting.push((*endpoint, Box::pin(listener.accept())));
        }
        let schemes = || self.all.iter().map(|(endpoint, _)| *endpoint);
        std::future::poll_fn(move |context| {
            while let Some(Poll::Ready(Some(Forwarded { scheme, socket, client, is_carried, login }))) =
                forwarded.as_mut().map(|forwarded| forwarded.poll_recv(context))
            {
                // Both nodes have the same listeners, unless their configurations differ.
                match schemes().find(|endpoint| endpoint.scheme() == scheme) {
                    Some(endpoint) => {
                        let endpoint = Endpoint { forwarded: is_carried, ..endpoint };
                        return Poll::Ready(Ok(Accepted { endpoint, socket, peer: client, login }));
                    }
                    None => {
                        tracing::warn!(%client, scheme, "closing a forwarded client: no such listener here")
                    }
                }
            }
            for (endpoint, accepted) in &mut accepting {
                if let Poll::Ready(accepted) = accepted.as_mut().poll(context) {
                    let endpoint = *endpoint;
                    return Poll::Ready(accepted.map(|(socket, peer)| Accepted {
                        endpoint,
                        socket,
                        peer,
                        login: None,
                    }));
                }
            }
            Poll::Pending
        })
        .await
    }
}

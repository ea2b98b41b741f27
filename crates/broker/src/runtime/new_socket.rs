//! A socket on its way to the core that serves it: protocol, layers, and who is let in.

use std::net::SocketAddr;
use std::sync::Arc;

use postroad_net::{AskedTls, Connection, Layer, Place, Tls, TlsClient, TlsConfig, WebSocket};
use postroad_security::Door;
use tokio::sync::watch;

use crate::runtime::cluster::EntryLogin;
use crate::runtime::dialler::LinkReporter;

/// The subprotocol of AMQP inside of WebSockets ("AMQP 1.0 WebSocket Binding", section 2.1).
const WEBSOCKET_PROTOCOL: &str = "amqp";

/// By this a peer asks for TLS on a port of AMQP, and is answered (AMQP 1.0, section 5.2).
const TLS_HEADER: &[u8] = b"AMQP\x02\x01\0\0";

/// A socket on its way to the core that will serve it.
#[derive(Debug)]
pub struct NewSocket {
    /// The protocol that it serves.
    pub service: Service,
    /// Of the URLs by which clients name its listener.
    pub scheme: &'static str,
    /// The socket.
    pub socket: std::net::TcpStream,
    /// Who is at its other end.
    pub peer: SocketAddr,
    /// Its right to be served.
    pub place: Place,
    /// TLS settings.
    pub tls: Option<TlsConfig>,
    /// TLS begins only if the peer asks for it.
    pub tls_is_asked_for: bool,
    /// The largest message inside of WebSockets, if they are around it.
    pub websocket_bytes_max: Option<usize>,
    /// Who is let in.
    pub door: watch::Receiver<Arc<Door>>,
    /// TLS that this broker begins, over a connection that it has opened.
    pub tls_to_peer: Option<TlsClient>,
    /// Who wants to hear of it, if it is a link.
    pub link: Option<LinkReporter>,
    /// Its login, if it has logged in where it came into the cluster.
    pub login: Option<Box<EntryLogin>>,
}

impl NewSocket {
    /// The connection that it becomes, in the runtime that will serve it.
    pub fn connect(
        socket: std::net::TcpStream,
        (tls, tls_is_asked_for): (Option<TlsConfig>, bool),
        tls_to_peer: Option<TlsClient>,
        websocket_bytes_max: Option<usize>,
    ) -> std::io::Result<Connection> {
        let mut layers: Vec<Box<dyn Layer>> = Vec::new();
        if let Some(client) = tls_to_peer {
            layers.push(Box::new(Tls::to_peer(client)?));
        }
        match tls {
            Some(config) if tls_is_asked_for => layers.push(Box::new(AskedTls::new(config, TLS_HEADER))),
            Some(config) => layers.push(Box::new(Tls::new(config)?)),
            None => {}
        }
        if let Some(bytes_max) = websocket_bytes_max {
            layers.push(Box::new(WebSocket::new(WEBSOCKET_PROTOCOL, bytes_max)));
        }
        Connection::new(socket, layers)
    }
}

/// A connection on its way to its task. Boxed there: a future keeps room for its arguments to its
/// end, also for those that it has moved elsewhere.
pub struct Arrival {
    /// The connection.
    pub connection: Connection,
    /// Who is at its other end.
    pub peer: SocketAddr,
    /// The protocol, by its name.
    pub protocol: &'static str,
    /// Who is let in.
    pub door: watch::Receiver<Arc<Door>>,
    /// Of the URLs by which its client comes.
    pub scheme: &'static str,
    /// Who wants to hear of it, if this broker has opened it to another one.
    pub link: Option<LinkReporter>,
    /// As in [`NewSocket`].
    pub login: Option<Box<EntryLogin>>,
}

/// The protocol that a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// OpenWire.
    OpenWire,
    /// OpenWire of a client that came through another node of the cluster.
    ForwardedOpenWire {
        /// Whether inside of TLS.
        tls: bool,
    },
    /// AMQP 1.0.
    Amqp,
    /// OpenWire to another broker, over a connection that this one has opened.
    Link {
        /// Which `[[bridge]]`.
        number: u16,
    },
}

impl Service {
    /// Name for operators.
    pub fn name(self) -> &'static str {
        match self {
            Service::OpenWire | Service::ForwardedOpenWire { .. } => "OpenWire",
            Service::Link { .. } => "bridge",
            Service::Amqp => "AMQP",
        }
    }
}

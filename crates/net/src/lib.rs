//! Net room: the sockets of clients. The control socket and the sockets of our own tools are
//! elsewhere.
//!
//! A [`Listener`] accepts, a [`Connection`] moves bytes between a socket and two buffers, through
//! [`Layer`]s: [`Tls`], [`AskedTls`] and [`WebSocket`].
//! Never here: the meaning of bytes, the choice of a core, threads, disks.

mod asked_tls;
mod connection;
mod layer;
mod listener;
mod tls;
mod websocket;

pub use asked_tls::AskedTls;
pub use connection::{Connection, Moved};
pub use layer::Layer;
pub use listener::{BindError, Listener, Place, Places};
pub use tls::{Tls, TlsClient, TlsConfig};
pub use websocket::WebSocket;

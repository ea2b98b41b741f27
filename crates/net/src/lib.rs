//! Net room: sockets, and nothing else that touches one.
//!
//! A [`Listener`] accepts, a [`Connection`] moves bytes between a socket and two buffers, through [`Layer`]s:
//! [`Tls`], [`AskedTls`] and [`WebSocket`].
//! Never here: what the bytes mean, which core serves whom, threads, disks.

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
pub use tls::{Tls, TlsConfig};
pub use websocket::WebSocket;

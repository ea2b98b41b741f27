//! Net room: sockets, and nothing else that touches one.
//!
//! A [`Listener`] accepts, a [`Connection`] moves bytes between a socket and two buffers.
//! Never here: what the bytes mean, which core serves whom, threads, disks.

mod connection;
mod listener;

pub use connection::{Connection, Moved};
pub use listener::{BindError, Listener, Place, Places};

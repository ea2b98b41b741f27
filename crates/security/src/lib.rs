//! Security room: who connects, and how they prove it.
//!
//! [`tls`] makes the certificates of a broker ready for use.
//! Never here: sockets, threads, what a client may do once it is known, protocols' own frames.

pub mod tls;

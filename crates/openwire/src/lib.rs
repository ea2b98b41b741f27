//! OpenWire room: the protocol of ActiveMQ clients and of ActiveMQ's networks
//! of brokers, sans-IO.
//!
//! [`codec`] turns bytes into commands and back.
//! Never here: sockets, threads, clocks, the state of queues, other protocols.

pub mod codec;

//! HTTP: one port for queues over HTTP and for operators, served on the core threads.
//!
//! Connections are dealt to the cores in turn, as those of other protocols. Below `/3/` requests
//! are those of IronMQ's clients; those of SQS's clients are known by their headers; all others are
//! the admin service's. Each core has one client of its own, which all its HTTP connections share:
//! a request is an event with a ticket, and waits for its answer without holding up others.

mod bodies;
mod client;
mod entry;
mod ironmq;
mod push;
mod server;
mod sqs;
mod store_request;
mod stored;
mod tokens;
mod webhook;
mod wire;

pub use entry::HttpEntry;
pub use push::{Network, Networks, PushOptions, PushPart, drive, push_parts};
pub use server::{HttpSocket, welcome};
pub use sqs::{SqsOptions, is_meant as is_sqs};
pub use store_request::{other_store, store_requests};
pub use webhook::{SpanPoster, webhooks};
pub use wire::Origins;

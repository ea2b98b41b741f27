//! IronMQ room: the HTTP API of IronMQ v3, without HTTP. See docs/protocols/ironmq.md.
//!
//! In: method, path, query and body of a request. Out: an [`Operation`] on a queue; and the
//! broker's answers become JSON.
//! Never here: sockets, HTTP framing, clocks, waiting, the state of queues.
//!
//! Start at [`Call::parse`].

pub mod alerts;
mod answer;
mod call;
mod error;
mod fields;
mod id;
mod openapi;
pub mod push;
mod settings;

pub use answer::{
    Messages, ids_posted, message, msg, names, push_statuses, queue_info, queue_settings, touched,
};
pub use call::{Call, Change, Deleted, NewMessage, Operation, Request, TraceHeaders};
pub use error::ApiError;
pub use id::{MessageId, queue_name};
pub use openapi::{OPENAPI_PATH, openapi};
pub use settings::{Settings, SubscriberChange};

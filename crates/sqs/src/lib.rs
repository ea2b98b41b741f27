//! SQS room: the API of Amazon SQS, without HTTP. See docs/protocols/sqs.md.
//!
//! In: the parts of an HTTP request. Out: an [`Action`] on a queue; the broker's answers become
//! JSON, or XML for the query protocol. Signatures are verified here, with the secret and the time
//! given by the caller.
//! Never here: sockets, HTTP framing, clocks, waiting, the state of queues.
//!
//! Start at [`Call::parse`].

mod action;
mod answer;
mod attributes;
mod error;
mod form;
mod id;
mod message;
mod params;
mod settings;
mod signature;
mod tasks;
mod xml;

pub use action::{Action, Call, Entry, Page, Protocol, Receive, Request, Visibility};
pub use answer::{batch, list};
pub use attributes::MessageAttributes;
pub use error::{Code, SqsError};
pub use id::{
    Receipt, arn, is_fifo, is_queue_name, md5_hex, parse_task_handle, queue_of_arn, queue_url, random_id,
    sequence_number, task_handle,
};
pub use message::{NewMessage, Sent, received};
pub use params::Texts;
pub use settings::{MESSAGE_BYTES_MAX, QueueState, Settings};
pub use signature::{Credentials, Signed};
pub use tasks::{Task, TaskStatus};
pub use xml::{answer_xml, error_xml};

/// The MD5 digest (RFC 1321): clients check bodies and attributes by it.
fn md5(bytes: &[u8]) -> [u8; 16] {
    use md5::Digest as _;
    md5::Md5::digest(bytes).into()
}

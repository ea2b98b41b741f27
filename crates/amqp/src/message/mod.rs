//! Message room: the sections of a message (part 3, section 3.2), found in its bytes without
//! decoding or copying them.
//!
//! A stored message is the bytes as they were sent, all sections. [`Sections::scan`] says where
//! each begins and ends; the rest reads one of them on demand. The bare message (properties to
//! body) is rewritten by header changes of routes alone.
//! Never here: queues, links, other encodings
//! of messages.

mod annotations;
mod dead_letter;
mod header;
mod header_changes;
mod properties;
mod sections;

pub use annotations::annotate;
pub use dead_letter::{ORIGIN, REASON, mark_dead_letter, revive_dead_letter, without_end};
pub use header::delivery_header;
pub use header_changes::change_headers;
pub use properties::StoredProperties;
pub use sections::{Body, BodyKind, MESSAGE_FORMAT, Section, Sections, body_start, plain_text};

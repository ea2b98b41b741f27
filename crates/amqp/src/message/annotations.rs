//! Message annotations (3.2.3): for all who carry a message, so the one section that the broker may
//! write in.

use bytes::{Bytes, BytesMut};

use super::Sections;
use crate::codec::{Value, WireError};

/// Typical bytes of an addition, to reserve once.
const ADDED_BYTES: usize = 256;

/// The message with other annotations: each of `changes` takes the place of those of its name, or
/// takes them away if it has no value. Every other section stays as it was sent.
///
/// # Errors
/// The message, or its annotations, cannot be read.
pub fn annotate<const COUNT: usize>(
    message: &Bytes,
    changes: [(&'static str, Option<Value>); COUNT],
) -> Result<Bytes, WireError> {
    let sections = Sections::scan(message)?;
    let mut annotations = sections.message_annotations(message)?;
    let changes_it = |key: &Value| match key {
        Value::Symbol(key) => changes.iter().any(|(name, _)| *key == **name),
        _ => false,
    };
    annotations.0.retain(|(key, _)| !changes_it(key));
    for (name, value) in changes {
        value.into_iter().for_each(|value| annotations.push(name, value));
    }
    let mut bytes = BytesMut::with_capacity(message.len() + ADDED_BYTES);
    bytes.extend_from_slice(&message[..sections.annotations_start()]);
    if !annotations.is_empty() {
        bytes.extend_from_slice(b"\x00\x53\x72");
        Value::Map(annotations).encode(&mut bytes);
    }
    bytes.extend_from_slice(&message[sections.bare..]);
    Ok(bytes.freeze())
}

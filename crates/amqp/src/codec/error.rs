//! Why bytes could not become a value, a frame or a message.

/// The fault of a peer's bytes.
///
/// Always the peer's fault: a session answers with the error condition `amqp:decode-error` or
/// `amqp:connection:framing-error`. `offset` counts bytes from the start of the input: a frame with
/// its header, or a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end inside a value.
    #[error("bytes end at offset {offset}: {wanted_bytes} bytes wanted, {left_bytes} left")]
    Truncated {
        /// Where the value starts.
        offset: usize,
        /// Bytes it needs.
        wanted_bytes: usize,
        /// Bytes there are.
        left_bytes: usize,
    },
    /// No primitive type has this constructor.
    #[error("unknown constructor {code:#04x} at offset {offset}")]
    UnknownConstructor {
        /// The constructor on the wire.
        code: u8,
        /// Where it stands.
        offset: usize,
    },
    /// A value of another type than the field's.
    #[error("constructor {code:#04x} at offset {offset} where {wanted} belongs")]
    UnexpectedType {
        /// The constructor on the wire.
        code: u8,
        /// The type that belongs there.
        wanted: &'static str,
        /// Where it stands.
        offset: usize,
    },
    /// A described value of another type than belongs there.
    #[error("descriptor {descriptor} at offset {offset} where {wanted} belongs")]
    UnexpectedDescriptor {
        /// The descriptor on the wire.
        descriptor: String,
        /// The type that belongs there.
        wanted: &'static str,
        /// Where the value starts.
        offset: usize,
    },
    /// A field without which its composite means nothing.
    #[error("{composite}: the mandatory field {field} is missing")]
    MissingField {
        /// Type of the composite.
        composite: &'static str,
        /// Name of the field.
        field: &'static str,
    },
    /// A composite has more fields than its type.
    #[error("{composite} at offset {offset} has {got} fields; the type has {max}")]
    TooManyFields {
        /// Type of the composite.
        composite: &'static str,
        /// Fields on the wire.
        got: u32,
        /// Fields of the type.
        max: u32,
        /// Where its list starts.
        offset: usize,
    },
    /// A value that its type does not allow.
    #[error("expected {wanted}, got {got} at offset {offset}")]
    BadValue {
        /// The code found there.
        got: String,
        /// The expected type.
        wanted: &'static str,
        /// Where it stands.
        offset: usize,
    },
    /// A string that is not UTF-8.
    #[error("string at offset {offset} is not UTF-8")]
    NotUtf8 {
        /// Where its characters start.
        offset: usize,
    },
    /// A symbol that is not ASCII.
    #[error("symbol at offset {offset} is not ASCII")]
    NotAscii {
        /// Where its characters start.
        offset: usize,
    },
    /// The elements of a list, map or array take more or less room than announced.
    #[error("{announced_bytes} bytes were announced at offset {offset}, but the elements take {used_bytes}")]
    SizeMismatch {
        /// Where the elements start.
        offset: usize,
        /// The size on the wire.
        announced_bytes: usize,
        /// The size of the elements.
        used_bytes: usize,
    },
    /// A map has a key without a value.
    #[error("map of {count} elements at offset {offset}: keys and values come in pairs")]
    OddMap {
        /// Elements on the wire.
        count: u32,
        /// Where they start.
        offset: usize,
    },
    /// Values are nested too deeply.
    #[error("more than {max} values inside each other at offset {offset}")]
    TooDeep {
        /// The limit.
        max: u32,
        /// Where the innermost starts.
        offset: usize,
    },
    /// There are more values than one decoding may make.
    #[error("more than {max} values, at offset {offset}")]
    TooManyValues {
        /// The limit.
        max: u32,
        /// Where the first that is too much stands.
        offset: usize,
    },
    /// There are bytes after the end.
    #[error("{left_bytes} bytes left over at offset {offset}")]
    TrailingBytes {
        /// First byte that belongs to nothing.
        offset: usize,
        /// How many there are.
        left_bytes: usize,
    },
    /// The frame is larger than agreed.
    #[error("frame of {got_bytes} bytes exceeds the limit of {max_bytes}")]
    FrameTooLarge {
        /// The announced size.
        got_bytes: u64,
        /// The agreed limit.
        max_bytes: u64,
    },
    /// The frame is smaller than its own header.
    #[error("frame of {got_bytes} bytes; its header alone has {header_bytes}")]
    FrameTooSmall {
        /// The announced size.
        got_bytes: u64,
        /// The size of the header.
        header_bytes: u64,
    },
    /// Neither AMQP nor SASL.
    #[error("unknown frame type {kind:#04x}")]
    UnknownFrameKind {
        /// The type on the wire.
        kind: u8,
    },
    /// A section of a message stands where it may not.
    #[error("section {section} at offset {offset} may not follow {after}")]
    SectionOutOfOrder {
        /// The section.
        section: &'static str,
        /// The section before it.
        after: &'static str,
        /// Where it starts.
        offset: usize,
    },
}

//! Why bytes could not become a command, or a command could not become bytes.

/// The fault of a peer's bytes, or of a value to encode.
///
/// Every decode variant is the peer's fault: answer with a protocol error and
/// close the connection. `offset` counts bytes from the start of the frame,
/// without its 4-byte size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The frame ends inside a field.
    #[error("frame ends at offset {offset}: {wanted_bytes} bytes wanted, {left_bytes} left")]
    Truncated {
        /// Where the field starts.
        offset: usize,
        /// Bytes the field needs.
        wanted_bytes: usize,
        /// Bytes the frame still has.
        left_bytes: usize,
    },
    /// A size or count field is below zero.
    #[error("negative size {got} at offset {offset}")]
    NegativeSize {
        /// The value on the wire.
        got: i64,
        /// Where it stands.
        offset: usize,
    },
    /// The announced frame is larger than agreed.
    #[error(
        "frame of {got_bytes} bytes exceeds the limit of {max_bytes}, which is openwire.max_frame_bytes or the peer's MaxFrameSize"
    )]
    FrameTooLarge {
        /// The announced or produced size.
        got_bytes: u64,
        /// The agreed limit.
        max_bytes: u64,
    },
    /// The frame goes on after its command.
    #[error("{left_bytes} bytes left over after the command, at offset {offset}")]
    TrailingBytes {
        /// First byte that belongs to nothing.
        offset: usize,
        /// How many there are.
        left_bytes: usize,
    },
    /// The tight encoding's boolean stream has no bit left.
    #[error("boolean stream of {bits} bits is used up at offset {offset}")]
    BooleansUsedUp {
        /// Bits the stream had.
        bits: usize,
        /// Where the data part stood.
        offset: usize,
    },
    /// No command or data type has this id.
    #[error("unknown data type {type_id} at offset {offset}")]
    UnknownType {
        /// The id on the wire.
        type_id: u8,
        /// Where it stands.
        offset: usize,
    },
    /// The type exists, but only in later versions of the protocol.
    #[error("data type {type_id} at offset {offset} needs version {since}, the connection speaks {version}")]
    TypeNotInVersion {
        /// The id on the wire.
        type_id: u8,
        /// Where it stands; 0 when encoding.
        offset: usize,
        /// First version that knows the type.
        since: u8,
        /// The connection's version.
        version: u8,
    },
    /// A known type stands where it does not belong.
    #[error("data type {type_id} at offset {offset} where {wanted} belongs")]
    UnexpectedType {
        /// The id on the wire.
        type_id: u8,
        /// The type the field wants.
        wanted: &'static str,
        /// Where the id stands.
        offset: usize,
    },
    /// A destination has no name.
    #[error("destination of type {type_id} without a name at offset {offset}")]
    MissingName {
        /// The destination's type id.
        type_id: u8,
        /// Where the name should be.
        offset: usize,
    },
    /// An array has a hole.
    #[error("null element in an array at offset {offset}")]
    NullElement {
        /// Where the element should be.
        offset: usize,
    },
    /// Text is not Java's modified UTF-8.
    #[error("malformed modified UTF-8 at offset {offset}")]
    MalformedText {
        /// Where the text starts.
        offset: usize,
    },
    /// Objects, maps or causes are nested too deeply.
    #[error("nesting deeper than {max} at offset {offset}")]
    TooDeep {
        /// Where the limit was passed.
        offset: usize,
        /// The limit.
        max: u8,
    },
    /// A reference to a cache slot that does not exist.
    #[error("cache index {index} at offset {offset} is outside the {slots} slots")]
    CacheIndex {
        /// The index on the wire.
        index: i16,
        /// Slots agreed on.
        slots: usize,
        /// Where the index stands.
        offset: usize,
    },
    /// The peer fills the marshalling cache with more than we keep for it.
    #[error("cached values of {got_bytes} bytes at offset {offset} exceed the limit of {max_bytes}")]
    CacheBytes {
        /// Bytes the cache would hold.
        got_bytes: usize,
        /// The limit.
        max_bytes: usize,
        /// Where the value stands.
        offset: usize,
    },
    /// The cache size both sides agreed on makes no sense.
    #[error("cache size {got} is outside 0 to {max}")]
    CacheSize {
        /// The negotiated value.
        got: i32,
        /// The largest index space.
        max: i32,
    },
    /// The peer's first frame is not OpenWire.
    #[error("magic bytes {got:02x?} at offset {offset} are not \"ActiveMQ\"")]
    BadMagic {
        /// The bytes received.
        got: [u8; 8],
        /// Where they stand.
        offset: usize,
    },
    /// A primitive map or stream holds a value of unknown type.
    #[error("unknown primitive type {type_id} at offset {offset}")]
    UnknownPrimitive {
        /// The id on the wire.
        type_id: u8,
        /// Where it stands, from the start of the map.
        offset: usize,
    },
    /// There are more values in a map or stream than one decoding may make.
    #[error("more than {max} values, at offset {offset}")]
    TooManyValues {
        /// The limit.
        max: u32,
        /// Where the first that is too much stands, from the start of the map or stream.
        offset: usize,
    },
    /// Text is too long for its length field. Our fault, found when encoding.
    #[error("text of {got_bytes} bytes exceeds the limit of {max_bytes}")]
    TextTooLong {
        /// Bytes of modified UTF-8.
        got_bytes: usize,
        /// The maximum of the length field.
        max_bytes: usize,
    },
    /// An array, a byte array or a boolean stream is too long for its length field.
    #[error("{got} elements exceed the limit of {max}")]
    TooMany {
        /// Elements to write.
        got: usize,
        /// The maximum of the length field.
        max: usize,
    },
}

impl WireError {
    /// Whether more bytes might make it right.
    pub fn is_truncated(&self) -> bool {
        matches!(self, WireError::Truncated { .. })
    }
}

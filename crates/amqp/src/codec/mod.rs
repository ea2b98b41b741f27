//! Codec room: the type system (part 1 of the standard), frames (part 2) and one table of all
//! composite types.
//!
//! Text and binary data are slices of the bytes they came in. Everything that a peer can make large
//! has a bound: depth of
//! nesting, values in one decoding, size of a frame.
//! Never here: the meaning of a frame for a session.

mod error;
mod field;
mod reader;
mod symbol;
mod value;
mod writer;
#[macro_use]
mod composite;
mod frame;
mod kinds;
mod table;

pub use composite::{Composite, Descriptor};
pub use error::WireError;
pub use field::Field;
pub use frame::{FRAME_HEADER_BYTES, Frame, FrameKind, PROTOCOL_HEADER_BYTES, ProtocolHeader, ProtocolId};
pub use frame::{announced_bytes, begin_frame, end_frame, take_frame};
pub use kinds::{
    DistributionMode, Lifetime, ReceiverSettleMode, Role, SaslCode, SenderSettleMode, TerminusDurability,
    TerminusExpiry, Timestamp,
};
pub use postroad_model::portable::Text;
pub use reader::Reader;
pub use symbol::Symbol;
pub use table::*;
pub use value::{Array, Described, Value, ValueMap};

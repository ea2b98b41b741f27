//! Store room: data directories, one or several, as a broker finds and leaves them.
//!
//! In: paths, keys, and the settings of partitions. Out: open journals with their partitions;
//! damaged directories read as far as possible and repaired; directories filled while no broker
//! runs.
//! Never here: threads of a running broker, sockets, the clock, the command line, the bytes of
//! journals.
//! Start at [`Stores::open`]; one directory is [`Store`], its layout file [`Layout`].

mod layout;
mod store;
mod stores;

pub mod broker_id;
mod damaged_store;
mod filler;
mod opening;

pub use damaged_store::{ApparentRecord, DamagedStore, Known, Lost};
pub use filler::{FillError, Filler};
pub use layout::{LAYOUT_FILE, Layout, new_identity};
pub use opening::{Opening, Stage};
pub use store::{Restored, Stopped, Store, StoreError, restore_all};
pub use stores::{Directories, Found, FurtherStore, NamedStore, Stores, find_all};

/// A durable message with nothing special about it, as tests need one.
#[cfg(test)]
fn test_message() -> postroad_model::Message {
    use postroad_model::{Encoding, Message, NORMAL_PRIORITY, Protocol};

    Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: None,
        bytes: bytes::Bytes::from_static(b"body"),
    }
}

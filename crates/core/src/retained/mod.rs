//! Retained room: messages that topics keep for subscribers that come later.
//!
//! Two kinds: the latest message of each key, which a sender retains (advisories today), and the
//! recent messages that a policy keeps for retroactive consumers. Each is stored once, as a message
//! of the partition. A new subscription gets a cursor ([`Replay`]) and no messages: it reads on as
//! its consumers have credit, and its entries refer to the stored messages. The cost of a
//! subscription does not depend on the number of retained messages.
//!
//! Known to this run alone.
//! Never here: consumers, policies of queues, protocol names.
//! Start at [`Retained`].

mod keeping;
mod replay;
mod store;

pub use keeping::{keep_recent, keep_recent_of, retain_message};
pub use replay::{Replay, Source, begin_replay, read_on_replay};
pub use store::Retained;

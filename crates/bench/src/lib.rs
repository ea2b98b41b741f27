//! Bench room: measures a broker from outside, over sockets, as any client could.
//!
//! [`filters`] repeats the experiments of the paper on filter performance, [`fanout`] publishes to
//! many queues at once, [`backlog`] to queues without consumers, [`depth`] measures a queue that is
//! already deep, [`schedules`] scheduled messages, [`http`] queues over HTTP, [`sync`] senders that
//! wait, [`upkeep`] senders beside compaction, [`noisy`] senders beside another tenant's, and
//! [`disk`], [`ways`] and [`lower_bound`] the machine without any broker. [`Link`] is the one way
//! to a broker, for the command line's other sub-commands too.
//! Never here: the broker's own code, except its OpenWire client. Measurements come from a protocol
//! and from the operating system.

pub mod backlog;
pub mod depth;
pub mod disk;
pub mod fanout;
pub mod filters;
pub mod http;
pub mod lower_bound;
pub mod noisy;
pub mod schedules;
pub mod sync;
pub mod upkeep;
pub mod ways;

mod bodies;
mod broker_url;
mod link;
mod load;
mod process;
mod rounds;
mod stop;

pub use broker_url::BrokerUrl;
pub use link::{Link, LinkError, Waited};
pub use process::ServerTime;
pub use rounds::median;
pub use stop::Stop;

//! Bridge room: the demand engine of links to other brokers, sans-IO.
//!
//! In: consumers of the peer that come and go, deliveries to the link's own subscriptions,
//! responses of the peer.
//! Out: events for the core (attach, credit, settle, detach). The protocol room turns deliveries
//! into frames.
//! Never here: sockets, threads, clocks, frames, the state of queues.

mod credit;
mod demand;
mod pattern;
mod urls;

pub use demand::{DemandEngine, PATH as BROKER_PATH};
pub use urls::urls_of;

use postroad_openwire::network::MakeForwarder;

/// The engines of all OpenWire links of one broker of this swimlane; empty for none.
pub fn forwarders(swimlane: &str) -> MakeForwarder {
    MakeForwarder::new(swimlane, |options| Box::new(DemandEngine::new(options)))
}

//! Push: messages of push queues go to HTTP endpoints, and alerts about the size of a queue to
//! another queue.
//!
//! One driver, on the first core, owns the [`Engine`](postroad_ironmq::push::Engine); requests are
//! sent by a thread of its own, so that no endpoint, no name server and no handshake holds up a
//! core. HTTP connections of all cores reach the driver by a [`PushHub`].

mod addresses;
mod alerting;
mod driver;
mod hub;
mod sender;

pub use addresses::{Network, Networks};
pub use driver::{Pusher, drive};
pub use hub::{PushHub, ToPusher};
pub use sender::{Outgoing, start as start_sender};

/// The part of one core in pushing.
pub struct PushPart {
    /// How its HTTP connections reach the driver.
    pub hub: PushHub,
    /// The driver, on the first core.
    pub pusher: Option<Pusher>,
}

/// The parts of all cores.
pub fn push_parts(cores: usize, options: &PushOptions) -> Vec<PushPart> {
    let (hub, asked) = PushHub::new();
    let mut pusher = Some(Pusher { asked, options: options.clone() });
    (0..cores).map(|_| PushPart { hub: hub.clone(), pusher: pusher.take() }).collect()
}

/// Decisions of operators about push.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// Addresses inside of private ranges to which may be pushed.
    pub allowed: Networks,
    /// How endpoints reach the HTTP port: scheme, host and port.
    pub url: String,
    /// Requests under way, at most.
    pub requests_max: usize,
}

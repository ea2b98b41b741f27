//! One route as an operator writes it, parsed.

use std::sync::Arc;

use postroad_model::Destination;
use postroad_selector::Selector;

use crate::policy::{DestinationPattern, Redelivery};
use crate::route::header::HeaderRule;

/// A rule that moves or copies the messages of some addresses to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its name; unique among routes.
    pub name: Arc<str>,
    /// The addresses whose messages it takes.
    pub from: DestinationPattern,
    /// Whether a message that it sends on leaves its address; otherwise that gets it too (wiretap).
    pub consumes: bool,
    /// Only messages that this matches.
    pub selector: Option<Selector>,
    /// Header changes for all targets, made before their selectors are asked.
    pub headers: Vec<HeaderRule>,
    /// Which of the targets that match get the message.
    pub distribution: Distribution,
    /// Where messages go.
    pub targets: Vec<RouteTarget>,
    /// Where a message goes that no target matches.
    pub otherwise: Vec<RouteTarget>,
    /// Further targets, which the message itself names.
    pub recipients: Option<Recipients>,
    /// How long every message waits at its target before it is delivered.
    pub delay_ms: u64,
    /// How many messages in which time; more of them wait at their targets.
    pub throttle: Option<Throttle>,
    /// How often a copy that its target refuses is sent to it again, before it goes to the dead
    /// letters; without it the send is refused.
    pub redelivery: Option<Redelivery>,
    /// Where a message goes whose recipient list or header changes cannot be carried out, or that
    /// a target refuses after its last redelivery. Without one it stays at its address.
    pub dead_letter: Option<Destination>,
}

/// Which of several targets that match get a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// All of them (multicast).
    #[default]
    All,
    /// The first one (content-based choice).
    First,
    /// One, in turn (load balance).
    Balance,
}

/// One target of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTarget {
    /// A lasting queue or topic.
    pub destination: Destination,
    /// Only messages that this matches.
    pub selector: Option<Selector>,
    /// Header changes for this target, made after those for all.
    pub headers: Vec<HeaderRule>,
    /// How long the message waits there, beside the delay of the route.
    pub delay_ms: u64,
}

/// Targets that a header of the message names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipients {
    /// Which header.
    pub header: Arc<str>,
    /// The text between two of them.
    pub delimiter: Box<str>,
    /// The only addresses that it may name; empty for all.
    pub allow: Vec<DestinationPattern>,
}

/// A number of messages in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// How many.
    pub messages: u32,
    /// In how many milliseconds.
    pub period_ms: u64,
}

impl Route {
    /// Every target that stands in the rule itself.
    pub fn fixed_targets(&self) -> impl Iterator<Item = &RouteTarget> {
        self.targets.iter().chain(&self.otherwise)
    }

    /// Whether it takes the messages of this address.
    pub fn is_from(&self, address: &Destination) -> bool {
        let DestinationPattern { kind, temporary, name } = &self.from;
        (*kind, *temporary) == (address.kind, address.temporary) && name.matches(&address.name)
    }
}

//! Addresses that forward messages: composite destinations and mirrored queues.

use postroad_model::{Destination, DestinationKind};
use postroad_selector::{Properties, Selector};

use crate::pattern::Pattern;
use crate::policy::DestinationPattern;

/// Messages to some addresses go to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composite {
    /// Which addresses.
    pub address: DestinationPattern,
    /// Where it goes.
    pub targets: Vec<Target>,
    /// Whether it goes there alone, and not to the address itself.
    pub forward_only: bool,
}

/// One address that a composite destination passes on to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where.
    pub destination: Destination,
    /// Only messages that match; `None` for all.
    pub selector: Option<Selector>,
}

/// Queues whose messages also go to a topic of their own, for those who want to look on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirroredQueues {
    /// Which queues.
    pub queues: Pattern,
    /// The prefix of the topic's name.
    pub prefix: Box<str>,
    /// Its postfix.
    pub postfix: Box<str>,
}

impl Composite {
    pub(crate) fn is_for(&self, to: &Destination) -> bool {
        let DestinationPattern { kind, temporary, name } = &self.address;
        (*kind, *temporary) == (to.kind, to.temporary) && name.matches(&to.name)
    }

    pub(crate) fn matching(&self, properties: &dyn Properties) -> impl Iterator<Item = &Destination> {
        let takes = move |target: &&Target| {
            target.selector.as_ref().is_none_or(|selector| selector.matches(properties))
        };
        self.targets.iter().filter(takes).map(|target| &target.destination)
    }
}

impl MirroredQueues {
    /// The topic that gets the queue's messages.
    pub fn topic_of(&self, queue: &Destination) -> Option<Destination> {
        let is_mirrored =
            queue.kind == DestinationKind::Queue && !queue.temporary && self.queues.matches(&queue.name);
        let Self { prefix, postfix, .. } = self;
        is_mirrored.then(|| Destination::topic(&format!("{prefix}{}{postfix}", queue.name)))
    }

    /// The name of the queue that this topic shows.
    pub fn queue_of<'a>(&self, topic: &'a str) -> Option<&'a str> {
        let queue = topic.strip_prefix(&*self.prefix)?.strip_suffix(&*self.postfix)?;
        self.queues.matches(queue).then_some(queue)
    }
}

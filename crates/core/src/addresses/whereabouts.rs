//! Whereabouts: the assembly's questions before it decides where addresses live, as it does at each
//! start.
//!
//! Never here: that decision (see the routing room), and any change of state.

use postroad_model::{Binding, Command, Destination, MessageKey};
use postroad_routing::is_wildcard;

use crate::Partition;
use crate::addresses::binding::TopicFeed;
use crate::queue::Queue;

impl Partition {
    /// Every lasting address of which something is here: a queue, a topic with a durable
    /// subscription, or where a prepared message will go; some more than once. Those of jobs stand
    /// in their records alone: see [`Partition::job_messages`].
    pub fn held_addresses(&self) -> impl Iterator<Item = &Destination> {
        let lasting =
            self.state.queues.values().filter(|queue| !queue.id.is_volatile()).map(|queue| &queue.source);
        let prepared = self.state.prepared.values().flat_map(|prepared| &prepared.sends).map(|(_, to)| to);
        lasting.chain(prepared.filter(|to| !to.temporary))
    }

    /// The messages of all jobs, prepared ones too.
    pub fn job_messages(&self) -> impl Iterator<Item = MessageKey> {
        let waiting = self.state.jobs.waiting.iter();
        let waiting =
            waiting.map(|(due, _)| MessageKey::Durable { position: due.position, ordinal: due.ordinal });
        let prepared = self.state.prepared.values().flat_map(|prepared| &prepared.scheduled);
        waiting.chain(self.state.jobs.shelved_keys()).chain(prepared.map(|(key, ..)| *key))
    }

    /// Records that make the durable subscriptions and queues with wildcards in another partition,
    /// where they read its own addresses: there is one of each in every partition.
    pub fn read_everywhere(&self) -> Vec<Command> {
        let lasting = self.state.queues.values().filter(|queue| !queue.id.is_volatile());
        let mut wide: Vec<&Queue> = lasting.filter(|queue| is_wildcard(&queue.source.name)).collect();
        wide.sort_unstable_by_key(|queue| queue.id);
        let commands = wide.into_iter().flat_map(|queue| match &queue.subscription {
            Some(subscription) => vec![Command::Subscribe(subscription.clone())],
            None => {
                let bind = |fed: &TopicFeed| {
                    let TopicFeed { topic, selectors } = fed.clone();
                    Command::Bind(Binding { topic, queue: queue.source.clone(), selectors })
                };
                let declare = Command::Declare { queue: queue.source.clone() };
                queue.fed_by.iter().map(bind).chain([declare]).collect()
            }
        });
        commands.collect()
    }
}

//! Addressing: which topics feed which queues by their names, and where addresses live.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{Destination, DestinationKind, PartitionId, Placement};

use crate::pattern::{Pattern, is_wildcard};
use crate::virtual_topic::VirtualTopic;

/// What a name begins with that ActiveMQ's stock configuration calls a virtual topic, and what its queues begin with.
const VIRTUAL_TOPICS: &str = "VirtualTopic.>";
const CONSUMER_PREFIX: &str = "Consumer.*.";

/// What names say about destinations, for the life of one run: where they live may depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressing {
    /// Topics that feed queues.
    pub virtual_topics: Vec<VirtualTopic>,
    /// Queues that are elsewhere than their names say, because the rules were others when they were made.
    pub settled: BTreeMap<Arc<str>, PartitionId>,
}

/// A topic that feeds a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The topic; a pattern if the queue's name is one.
    pub topic: Destination,
    /// Only what the selectors of the queue's consumers match.
    pub selector_aware: bool,
}

impl Default for Addressing {
    /// Virtual topics as in ActiveMQ's stock configuration.
    fn default() -> Addressing {
        let topics = Pattern::parse(VIRTUAL_TOPICS).ok();
        let rule = |topics| VirtualTopic {
            topics,
            prefix: CONSUMER_PREFIX.into(),
            postfix: "".into(),
            selector_aware: false,
        };
        Addressing { virtual_topics: topics.into_iter().map(rule).collect(), settled: BTreeMap::new() }
    }
}

impl Addressing {
    /// The topics that feed this destination, if it is a queue; each once.
    pub fn feeds_of(&self, queue: &Destination) -> Vec<Feed> {
        let mut feeds: Vec<Feed> = Vec::new();
        if queue.kind != DestinationKind::Queue || queue.temporary {
            return feeds;
        }
        for rule in &self.virtual_topics {
            let Some(name) = rule.topic_of(&queue.name) else { continue };
            match feeds.iter_mut().find(|feed| &*feed.topic.name == name) {
                // Whoever feeds everything feeds what another rule selects.
                Some(feed) => feed.selector_aware &= rule.selector_aware,
                None => {
                    feeds.push(Feed { topic: Destination::topic(name), selector_aware: rule.selector_aware })
                }
            }
        }
        feeds
    }

    /// The partition that owns the address: a queue that a topic feeds lives with its topic, so that whatever is sent
    /// there is one record, however many queues take it.
    pub fn partition_of(&self, placement: Placement, destination: &Destination) -> PartitionId {
        if placement.partitions <= 1 {
            return PartitionId(0);
        }
        if destination.kind == DestinationKind::Queue && !destination.temporary {
            if let Some(partition) = self.settled.get(&destination.name) {
                return *partition;
            }
            let topic = self.virtual_topics.iter().find_map(|rule| rule.topic_of(&destination.name));
            if let Some(topic) = topic.filter(|topic| !is_wildcard(topic)) {
                return placement.partition_of(topic);
            }
        }
        placement.partition_of(&destination.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_lives_with_the_topic_that_feeds_it() {
        let placement = Placement { partitions: 7 };
        let topic = Destination::topic("VirtualTopic.x");
        let mut addressing = Addressing::default();
        let of = |addressing: &Addressing, name: &str| {
            addressing.partition_of(placement, &Destination::queue(name))
        };
        let home = addressing.partition_of(placement, &topic);
        assert_eq!(home, placement.partition_of("VirtualTopic.x"));
        for consumer in ["A", "B", "C", "D"] {
            assert_eq!(of(&addressing, &format!("Consumer.{consumer}.VirtualTopic.x")), home);
        }
        assert_eq!(of(&addressing, "orders"), placement.partition_of("orders"));
        addressing.settled.insert("Consumer.A.VirtualTopic.x".into(), PartitionId(home.0 ^ 1));
        assert_eq!(
            of(&addressing, "Consumer.A.VirtualTopic.x"),
            PartitionId(home.0 ^ 1),
            "where it is, it stays"
        );
    }

    #[test]
    fn rules_for_the_same_topic_make_one_feed() {
        let rule = |topics: &str, prefix: &str, selector_aware| VirtualTopic {
            topics: Pattern::parse(topics).unwrap(),
            prefix: prefix.into(),
            postfix: "".into(),
            selector_aware,
        };
        let feed = |name, selector_aware| Feed { topic: Destination::topic(name), selector_aware };
        let aware = rule(">", "C.*.", true);
        for (case, rules, queue, want) in [
            ("one", vec![aware.clone()], Destination::queue("C.A.x"), vec![feed("x", true)]),
            (
                "the same topic",
                vec![aware.clone(), rule("x", "C.*.", false)],
                Destination::queue("C.A.x"),
                vec![feed("x", false)],
            ),
            (
                "two topics",
                vec![aware.clone(), rule(">", "C.A.B.", false)],
                Destination::queue("C.A.B.x"),
                vec![feed("B.x", true), feed("x", false)],
            ),
            ("a topic is fed by none", vec![aware.clone()], Destination::topic("C.A.x"), vec![]),
            (
                "nor is a temporary queue",
                vec![aware],
                Destination { temporary: true, ..Destination::queue("C.A.x") },
                vec![],
            ),
        ] {
            let addressing = Addressing { virtual_topics: rules, settled: BTreeMap::new() };
            assert_eq!(addressing.feeds_of(&queue), want, "case: {case}");
        }
    }
}

//! Addressing: which topics feed which queues by their names, and where addresses live.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use postroad_model::{Destination, DestinationKind, PartitionId, Placement};
use postroad_selector::Properties;

use crate::composite::{Composite, MirroredQueues};
use crate::homes::Homes;
use crate::pattern::{Pattern, is_wildcard};
use crate::route::Routes;
use crate::virtual_topic::VirtualTopic;

/// The prefix of virtual topics in ActiveMQ's stock configuration, and that of their queues.
const VIRTUAL_TOPICS: &str = "VirtualTopic.>";
const CONSUMER_PREFIX: &str = "Consumer.*.";

/// The rules on destinations, for one run: the partition of a destination may depend on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressing {
    /// Topics that feed queues.
    pub virtual_topics: Vec<VirtualTopic>,
    /// Addresses that forward messages.
    pub composites: Vec<Composite>,
    /// Queues with a topic for those who look on.
    pub mirrored: Option<MirroredQueues>,
    /// Rules that move or copy messages to other addresses.
    pub routes: Arc<Routes>,
    /// Which addresses live in which store.
    pub homes: Homes,
    /// Queues that are elsewhere than the rules say, because these were others when they were made.
    pub settled: BTreeMap<Arc<str>, PartitionId>,
    /// Topics in another partition than by the rules, because of the queues that they feed.
    pub settled_topics: BTreeMap<Arc<str>, PartitionId>,
}

/// A topic that feeds a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The topic; a pattern if the queue's name is one.
    pub topic: Destination,
    /// Only messages that match a selector of the queue's consumers.
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
        Addressing {
            virtual_topics: topics.into_iter().map(rule).collect(),
            composites: Vec::new(),
            mirrored: None,
            routes: Arc::default(),
            homes: Homes::default(),
            settled: BTreeMap::new(),
            settled_topics: BTreeMap::new(),
        }
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
                // A topic that feeds everything also feeds the selection of another rule.
                Some(feed) => feed.selector_aware &= rule.selector_aware,
                None => {
                    feeds.push(Feed { topic: Destination::topic(name), selector_aware: rule.selector_aware })
                }
            }
        }
        feeds
    }

    /// Whether any address forwards messages.
    pub fn passes_on(&self) -> bool {
        !self.composites.is_empty() || self.mirrored.is_some()
    }

    /// Where a message really goes that is sent to these addresses, each once: a composite
    /// destination stands for its targets, which may be composite themselves, and a mirrored queue
    /// for itself and its topic.
    pub fn targets_of<'a>(
        &self,
        sent_to: impl Iterator<Item = &'a Destination>,
        properties: &dyn Properties,
    ) -> Vec<Destination> {
        self.spread(sent_to, |rule| rule.matching(properties).cloned().collect())
    }

    /// Where a message may go that is sent to these addresses, whatever its properties are.
    pub fn possible_targets_of<'a>(
        &self,
        sent_to: impl Iterator<Item = &'a Destination>,
    ) -> Vec<Destination> {
        self.spread(sent_to, |rule| rule.targets.iter().map(|target| target.destination.clone()).collect())
    }

    fn spread<'a>(
        &self,
        sent_to: impl Iterator<Item = &'a Destination>,
        targets_by: impl Fn(&Composite) -> Vec<Destination>,
    ) -> Vec<Destination> {
        let (mut seen, mut targets) = (BTreeSet::new(), Vec::new());
        let mut waiting: VecDeque<Destination> = sent_to.cloned().collect();
        while let Some(to) = waiting.pop_front() {
            if !seen.insert(to.clone()) {
                continue;
            }
            let rules: Vec<&Composite> = self.composites.iter().filter(|rule| rule.is_for(&to)).collect();
            for rule in &rules {
                waiting.extend(targets_by(rule));
            }
            if !rules.iter().any(|rule| rule.forward_only) {
                waiting.extend(self.mirrored.as_ref().and_then(|mirrored| mirrored.topic_of(&to)));
                targets.push(to);
            }
        }
        targets
    }

    /// The partition that owns the address: a queue that a topic feeds lives with its topic, so
    /// that whatever is sent there is one record, however many queues take it.
    pub fn partition_of(&self, placement: Placement, destination: &Destination) -> PartitionId {
        if placement.partitions <= 1 {
            return PartitionId(0);
        }
        if destination.temporary {
            return self.home_of(placement, destination.kind, true, &destination.name);
        }
        let name = &*destination.name;
        if destination.kind == DestinationKind::Topic {
            return self.partition_of_topic(placement, name);
        }
        if let Some(partition) = self.settled.get(name) {
            return *partition;
        }
        let topic = self.virtual_topics.iter().find_map(|rule| rule.topic_of(name));
        match topic.filter(|topic| !is_wildcard(topic)) {
            Some(topic) => self.partition_of_topic(placement, topic),
            None => self.home_of(placement, DestinationKind::Queue, false, name),
        }
    }

    /// An address stays where it is, whatever the rules say.
    pub fn settle(&mut self, address: &Destination, partition: PartitionId) {
        let settled = match address.kind {
            DestinationKind::Queue => &mut self.settled,
            DestinationKind::Topic => &mut self.settled_topics,
        };
        settled.insert(address.name.clone(), partition);
    }

    /// The topic of a mirrored queue lives with the queue: a send to both is one record.
    fn partition_of_topic(&self, placement: Placement, topic: &str) -> PartitionId {
        if let Some(partition) = self.settled_topics.get(topic) {
            return *partition;
        }
        let queue = self.mirrored.as_ref().and_then(|mirrored| mirrored.queue_of(topic));
        match queue {
            Some(queue) => match self.settled.get(queue) {
                Some(partition) => *partition,
                None => self.home_of(placement, DestinationKind::Queue, false, queue),
            },
            None => self.home_of(placement, DestinationKind::Topic, false, topic),
        }
    }

    /// Where an address lives that lives with no other.
    fn home_of(
        &self,
        placement: Placement,
        kind: DestinationKind,
        temporary: bool,
        name: &str,
    ) -> PartitionId {
        match self.homes.of(kind, temporary, name) {
            Some(range) => range.partition_of(name),
            None => placement.partition_of(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::PartitionRange;

    use super::*;

    #[test]
    fn a_queue_lives_with_the_topic_that_feeds_it() {
        let placement = Placement::over(7);
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
    fn addresses_live_in_the_store_that_is_named_for_them_with_all_that_belongs_to_them() {
        let placement = Placement { partitions: 5, hashed: 2 };
        let fast = PartitionRange { first: PartitionId(2), count: 2 };
        let slow = PartitionRange { first: PartitionId(4), count: 1 };
        let pattern = |text: &str| crate::DestinationPattern::parse(text).unwrap();
        let mut homes = Homes::default();
        homes.set_policy(&pattern("queue://fast.>"), Some("fast"));
        homes.set_policy(&pattern("queue://fast.not.*"), Some(crate::MAIN_STORE));
        homes.set_policy(&pattern("queue://acme.plain"), None);
        homes.set_policy(&pattern("topic://VirtualTopic.fast.>"), Some("fast"));
        homes.set_policy(&pattern("temp-queue://>"), Some("slow"));
        homes.set_tenant(&pattern("queue://acme.>"), Some("slow"));
        homes.set_tenant(&pattern("queue://acme.other.>"), None);
        homes.set_tenant(&pattern("queue://fast.of.acme"), Some("slow"));
        homes.place("fast", fast);
        homes.place("slow", slow);
        let mirrored = MirroredQueues {
            queues: Pattern::parse("fast.>").unwrap(),
            prefix: "Mirror.".into(),
            postfix: "".into(),
        };
        let mut addressing = Addressing { homes, mirrored: Some(mirrored), ..Addressing::default() };
        let store_of = |addressing: &Addressing, destination: Destination| {
            let partition = addressing.partition_of(placement, &destination);
            [(fast, "fast"), (slow, "slow")]
                .into_iter()
                .find_map(|(range, name)| range.contains(partition).then_some(name))
                .unwrap_or("main")
        };
        let temporary = Destination { temporary: true, ..Destination::queue("t") };
        for (case, destination, want) in [
            ("nobody says anything", Destination::queue("other"), "main"),
            ("a policy", Destination::queue("fast.a"), "fast"),
            ("of queues alone", Destination::topic("fast.a"), "main"),
            ("a narrower one", Destination::queue("fast.not.this"), "main"),
            ("a tenant", Destination::queue("acme.a"), "slow"),
            ("another tenant", Destination::queue("acme.other.a"), "main"),
            ("a tenant whose policy says nothing of it", Destination::queue("acme.plain"), "slow"),
            ("a policy against a tenant", Destination::queue("fast.of.acme"), "fast"),
            ("a temporary queue", temporary, "slow"),
            ("a topic", Destination::topic("VirtualTopic.fast.x"), "fast"),
            ("what it feeds", Destination::queue("Consumer.A.VirtualTopic.fast.x"), "fast"),
            ("the topic of a mirrored queue", Destination::topic("Mirror.fast.a"), "fast"),
        ] {
            assert_eq!(store_of(&addressing, destination), want, "case: {case}");
        }
        addressing.settle(&Destination::queue("fast.a"), PartitionId(0));
        addressing.settle(&Destination::topic("VirtualTopic.fast.x"), PartitionId(4));
        for (case, destination, want) in [
            ("a queue stays", Destination::queue("fast.a"), "main"),
            ("with its mirror", Destination::topic("Mirror.fast.a"), "main"),
            ("a topic stays", Destination::topic("VirtualTopic.fast.x"), "slow"),
            ("with what it feeds", Destination::queue("Consumer.A.VirtualTopic.fast.x"), "slow"),
        ] {
            assert_eq!(store_of(&addressing, destination), want, "case: {case}");
        }
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
            let addressing = Addressing { virtual_topics: rules, ..Addressing::default() };
            assert_eq!(addressing.feeds_of(&queue), want, "case: {case}");
        }
    }

    /// A message with one property.
    struct Colour(&'static str);

    impl Properties for Colour {
        fn property(&self, name: &str) -> Option<postroad_selector::Value<'_>> {
            (name == "colour").then(|| self.0.into())
        }
    }

    fn composite(address: &str, targets: &[(&str, &str)], forward_only: bool) -> Composite {
        let target = |(name, selector): &(&str, &str)| crate::Target {
            destination: match name.strip_prefix('#') {
                Some(name) => Destination::topic(name),
                None => Destination::queue(name),
            },
            selector: (!selector.is_empty()).then(|| postroad_selector::Selector::parse(selector).unwrap()),
        };
        let address = crate::DestinationPattern::parse(address).unwrap();
        Composite { address, targets: targets.iter().map(target).collect(), forward_only }
    }

    #[test]
    fn a_composite_destination_stands_for_its_targets() {
        let mirrored = MirroredQueues {
            queues: Pattern::parse("seen.>").unwrap(),
            prefix: "VirtualTopic.Mirror.".into(),
            postfix: "".into(),
        };
        let addressing = Addressing {
            composites: vec![
                composite("queue://c", &[("a", ""), ("#t", "")], true),
                composite("queue://copy", &[("a", "")], false),
                composite("queue://by.*", &[("red", "colour = 'red'"), ("blue", "colour = 'blue'")], true),
                composite("queue://nested", &[("c", ""), ("seen.x", ""), ("a", "")], true),
                composite("queue://loop", &[("pool", "")], true),
                composite("queue://pool", &[("loop", "")], false),
            ],
            mirrored: Some(mirrored),
            ..Addressing::default()
        };
        for (case, name, want) in [
            ("plain", "a", &["queue://a"][..]),
            ("targets alone", "c", &["queue://a", "topic://t"]),
            ("and itself", "copy", &["queue://copy", "queue://a"]),
            ("by selector", "by.colour", &["queue://red"]),
            (
                "nested, each once",
                "nested",
                &["queue://seen.x", "queue://a", "topic://t", "topic://VirtualTopic.Mirror.seen.x"],
            ),
            ("in a circle", "loop", &["queue://pool"]),
            ("mirrored", "seen.x", &["queue://seen.x", "topic://VirtualTopic.Mirror.seen.x"]),
        ] {
            let targets = addressing.targets_of([Destination::queue(name)].iter(), &Colour("red"));
            let targets: Vec<String> = targets.iter().map(Destination::to_string).collect();
            assert_eq!(targets, want, "case: {case}");
        }
        let nobody = addressing.targets_of([Destination::queue("by.colour")].iter(), &Colour("green"));
        assert_eq!(nobody, [], "no target wants it");
        let placement = Placement::over(7);
        let of = |destination: Destination| addressing.partition_of(placement, &destination);
        for name in ["seen.a", "seen.b", "seen.c"] {
            let mirror = format!("VirtualTopic.Mirror.{name}");
            assert_eq!(of(Destination::topic(&mirror)), of(Destination::queue(name)), "{name}");
            assert_eq!(of(Destination::queue(&format!("Consumer.A.{mirror}"))), of(Destination::queue(name)));
        }
    }
}

//! What operators decide about destinations, as the configuration file says it.

use anyhow::{Context, bail};
use postroad_routing::{
    Addressing, DeadLetterQueue, DeadLetters, DestinationPattern, Pattern, Policies, Policy, VirtualTopic,
};
use serde::Deserialize;

/// One `[[policy]]`: what is decided about the destinations that a pattern matches. What it does not say is the
/// default, whatever wider patterns say.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Which destinations: `queue://orders.>`.
    pub destination: String,
    /// Where messages go that can never be processed: see [`DeadLetterQueue::named`].
    pub dead_letter_queue: Option<String>,
    /// Whether messages go there whose time is over.
    pub dead_letter_expired: Option<bool>,
    /// Whether non-persistent messages go there.
    pub dead_letter_non_persistent: Option<bool>,
}

impl PolicyConfig {
    fn policy(&self, fallback: &Policy) -> Policy {
        let DeadLetters { queue, expired, non_persistent } = fallback.dead_letters.clone();
        Policy {
            dead_letters: DeadLetters {
                queue: self.dead_letter_queue.as_deref().map_or(queue, DeadLetterQueue::named),
                expired: self.dead_letter_expired.unwrap_or(expired),
                non_persistent: self.dead_letter_non_persistent.unwrap_or(non_persistent),
            },
        }
    }
}

/// The policies of a file.
///
/// # Errors
/// A pattern cannot be read: with the number of its policy.
pub fn policies(configs: &[PolicyConfig], dead_letter_queue: &str) -> anyhow::Result<Policies> {
    let mut policies = Policies::with_dead_letters_in(dead_letter_queue);
    let fallback = policies.fallback().clone();
    for (number, config) in (1..).zip(configs) {
        let pattern = DestinationPattern::parse(&config.destination);
        let pattern =
            pattern.with_context(|| format!("configuration: destination of [[policy]] {number}"))?;
        policies.set(&pattern, config.policy(&fallback));
    }
    Ok(policies)
}

/// One `[[virtual_topic]]`: topics that feed queues.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VirtualTopicConfig {
    /// Which topics: a name or a pattern.
    pub topics: String,
    /// What the names of the queues have ahead of the topic's.
    pub prefix: String,
    /// What they have behind it.
    pub postfix: String,
    /// Whether a queue is fed only what the selectors of its consumers match.
    pub selector_aware: bool,
}

impl Default for VirtualTopicConfig {
    fn default() -> VirtualTopicConfig {
        VirtualTopicConfig {
            topics: "VirtualTopic.>".to_owned(),
            prefix: "Consumer.*.".to_owned(),
            postfix: String::new(),
            selector_aware: false,
        }
    }
}

/// The rules of a file.
///
/// # Errors
/// A rule cannot be: with its number.
pub fn addressing(configs: &[VirtualTopicConfig]) -> anyhow::Result<Addressing> {
    let mut virtual_topics = Vec::with_capacity(configs.len());
    for (number, config) in (1..).zip(configs) {
        let VirtualTopicConfig { topics, prefix, postfix, selector_aware } = config;
        let place = || format!("configuration: [[virtual_topic]] {number}");
        if prefix.is_empty() && postfix.is_empty() {
            bail!("{}: prefix and postfix are both empty; each queue would be its own topic's", place());
        }
        virtual_topics.push(VirtualTopic {
            topics: Pattern::parse(topics).with_context(place)?,
            prefix: prefix.as_str().into(),
            postfix: postfix.as_str().into(),
            selector_aware: *selector_aware,
        });
    }
    Ok(Addressing { virtual_topics, ..Addressing::default() })
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use postroad_model::Destination;
    use postroad_routing::DeadLetters;

    fn parse(text: &str) -> Result<postroad_routing::Policies, String> {
        Config::parse(text).unwrap().policies().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_policy_says_what_differs_from_the_defaults() {
        let text = "dead_letter_queue = \"dead\"
            [[policy]]
            destination = \"queue://orders.>\"
            dead_letter_queue = \"DLQ.*\"
            [[policy]]
            destination = \"queue://orders.*\"
            dead_letter_non_persistent = true
            dead_letter_expired = false";
        let policies = parse(text).unwrap();
        for (case, name, want) in [
            ("no policy", "a", ("dead", true, false)),
            ("one", "orders.a.b", ("DLQ.orders.a.b", true, false)),
            ("the narrowest alone", "orders.a", ("dead", false, true)),
        ] {
            let origin = Destination::queue(name);
            let dead_letters = &policies.of(&origin).dead_letters;
            let DeadLetters { expired, non_persistent, .. } = *dead_letters;
            let queue = dead_letters.queue_of(&origin).unwrap();
            assert_eq!((&*queue.name, expired, non_persistent), want, "case: {case}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_named() {
        let good = "[[policy]]\ndestination = \"queue://a\"\n";
        let error = parse(&format!("{good}[[policy]]\ndestination = \"orders\"")).unwrap_err();
        let want = "configuration: destination of [[policy]] 2: \"orders\" begins with none of queue://, topic://, \
                    temp-queue://, temp-topic://";
        assert_eq!(error, want);
    }

    #[test]
    fn virtual_topics_are_those_of_activemq_unless_the_file_has_some() {
        let addressing = |text: &str| Config::parse(text).unwrap().addressing();
        assert_eq!(addressing("").unwrap(), postroad_routing::Addressing::default());
        assert_eq!(addressing("virtual_topic = []").unwrap().virtual_topics, []);
        let own = addressing("[[virtual_topic]]\ntopics = \">\"\nprefix = \"VTC.*.\"\nselector_aware = true")
            .unwrap();
        let feeds = own.feeds_of(&Destination::queue("VTC.a.x"));
        let feeds: Vec<_> = feeds.iter().map(|feed| (&*feed.topic.name, feed.selector_aware)).collect();
        assert_eq!(feeds, [("x", true)]);
        let error = addressing("[[virtual_topic]]\nprefix = \"\"").unwrap_err().to_string();
        assert!(error.contains("[[virtual_topic]] 1: prefix and postfix are both empty"), "{error}");
    }
}

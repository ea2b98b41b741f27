//! Virtual topics: topics that feed queues, by the names of the queues.

use std::sync::Arc;

use crate::pattern::Pattern;

/// A rule by which topics feed queues: the topic `VirtualTopic.a` feeds every queue
/// `Consumer.*.VirtualTopic.a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualTopic {
    /// Which topics.
    pub topics: Pattern,
    /// The prefix of the queue's name before the topic's; `*` stands for any one word.
    pub prefix: Arc<str>,
    /// The postfix of the queue's name.
    pub postfix: Arc<str>,
    /// A queue is fed only messages that match the selectors of its consumers.
    pub selector_aware: bool,
}

impl VirtualTopic {
    /// The topic, or the pattern of topics, that feeds the queue of this name.
    pub fn topic_of<'a>(&self, queue: &'a str) -> Option<&'a str> {
        let topic = behind(&self.prefix, queue)?.strip_suffix(&*self.postfix)?;
        let fits = match Pattern::parse(topic) {
            Ok(pattern) => self.topics.covers(&pattern),
            Err(_) => self.topics.matches(topic),
        };
        (!topic.is_empty() && fits).then_some(topic)
    }
}

/// The rest of a name after the prefix, in which `*` stands for anything without a dot.
fn behind<'a>(prefix: &str, name: &'a str) -> Option<&'a str> {
    let mut parts = prefix.split('*');
    let mut rest = name.strip_prefix(parts.next()?)?;
    for part in parts {
        let word_end = rest.find('.').unwrap_or(rest.len());
        rest = rest[word_end..].strip_prefix(part)?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_fed_by_the_topic_in_its_name() {
        for (case, topics, prefix, postfix, queue, want) in [
            (
                "as in ActiveMQ",
                "VirtualTopic.>",
                "Consumer.*.",
                "",
                "Consumer.A.VirtualTopic.x",
                Some("VirtualTopic.x"),
            ),
            (
                "deeper",
                "VirtualTopic.>",
                "Consumer.*.",
                "",
                "Consumer.A.VirtualTopic.x.y",
                Some("VirtualTopic.x.y"),
            ),
            (
                "many",
                "VirtualTopic.>",
                "Consumer.*.",
                "",
                "Consumer.A.VirtualTopic.>",
                Some("VirtualTopic.>"),
            ),
            ("another topic", "VirtualTopic.>", "Consumer.*.", "", "Consumer.A.x", None),
            ("two words for one", "VirtualTopic.>", "Consumer.*.", "", "Consumer.A.B.VirtualTopic.x", None),
            ("no consumer", "VirtualTopic.>", "Consumer.*.", "", "Consumer", None),
            ("every topic", ">", "VTC.*.", "", "VTC.A.x", Some("x")),
            ("no topic", ">", "VTC.*.", "", "VTC.A.", None),
            ("wider than the rule", "a.*", "VTC.*.", "", "VTC.A.a.>", None),
            ("postfix", "a.>", "", ".q", "a.b.q", Some("a.b")),
            ("other postfix", "a.>", "", ".q", "a.b", None),
            ("two stars", ">", "*.on.*.", "", "A.on.B.x", Some("x")),
        ] {
            let topics = Pattern::parse(topics).unwrap();
            let rule = VirtualTopic {
                topics,
                prefix: prefix.into(),
                postfix: postfix.into(),
                selector_aware: false,
            };
            assert_eq!(rule.topic_of(queue), want, "case: {case}");
        }
    }
}

//! What operators decide about destinations, as the configuration file says it.

use anyhow::Context;
use postroad_routing::{DeadLetterQueue, DeadLetters, DestinationPattern, Policies, Policy};
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
}

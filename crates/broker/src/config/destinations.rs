//! The operators' settings for destinations, as in the configuration file.

use std::num::NonZeroU32;

use anyhow::{Context, bail};
use postroad_model::{Compression, Destination, Durability};
use postroad_routing::{
    Addressing, Advised, AtLimit, Composite, DeadLetterQueue, DeadLetters, DestinationPattern, Evicted,
    Factor, Gathering, Homes, LeaseLimit, Limit, MirroredQueues, Pattern, Pending, Policies, Policy,
    Prefetch, Recovery, Redelivery, Returning, Slow, SlowAction, Target, TimeToLive, VirtualTopic,
};
use postroad_selector::Selector;
use serde::Deserialize;

use super::StoresConfig;

/// One `[[policy]]`: the settings of the destinations that a pattern matches. Missing keys have the
/// default, whatever wider patterns say.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Which destinations: `queue://orders.>`.
    pub destination: String,
    /// The store in which they live that do not exist yet when the broker starts.
    pub store: Option<String>,
    /// Where messages go that can never be processed: see [`DeadLetterQueue::named`].
    pub dead_letter_queue: Option<String>,
    /// Whether messages go there whose time is over.
    pub dead_letter_expired: Option<bool>,
    /// Whether non-persistent messages go there.
    pub dead_letter_non_persistent: Option<bool>,
    /// Dead letters in this queue are redriven after this time: see [`Returning`].
    pub redrive_after_ms: Option<u64>,
    /// How often each does.
    pub redrive_rounds_max: Option<u32>,
    /// Earlier deliveries without success after which a message goes there: see [`Redelivery`].
    pub redelivery_count: Option<u32>,
    /// How long a message rests after the first of them.
    pub redelivery_delay_ms: Option<u64>,
    /// How long it rests after the second; 0 for the first rest times the factor.
    pub redelivery_delay_next_ms: Option<u64>,
    /// By how much each further rest is longer than the last.
    pub redelivery_multiplier: Option<FactorConfig>,
    /// How long it rests at most.
    pub redelivery_delay_max_ms: Option<u64>,
    /// The failures that its persistent messages survive.
    pub durability: Option<DurabilityConfig>,
    /// How the bodies of its messages are written to the disk.
    pub compression: Option<CompressionConfig>,
    /// Messages that a topic keeps for retroactive consumers: see [`Recovery`].
    pub retroactive_messages: Option<u64>,
    /// As that, in bytes.
    pub retroactive_bytes: Option<u64>,
    /// As that, by age.
    pub retroactive_ms: Option<u64>,
    /// Whether every subscriber is shown it.
    pub retroactive_always: Option<bool>,
    /// How long messages live whose producers set no end: see [`TimeToLive`].
    pub ttl_default_ms: Option<u64>,
    /// How long messages live at most.
    pub ttl_max_ms: Option<u64>,
    /// Messages that a queue may hold: see [`Limit`]; 0 for any number.
    pub messages_max: Option<u64>,
    /// Bytes that it may hold; 0 for any number.
    pub bytes_max: Option<u64>,
    /// Bytes of them that may lie on the disk; 0 for any number.
    pub disk_bytes_max: Option<u64>,
    /// The action at the limit.
    pub at_limit: Option<AtLimitConfig>,
    /// How long sends wait before they fail.
    pub at_limit_wait_ms: Option<u64>,
    /// Whether sends wait while the disk is full.
    pub wait_for_disk: Option<bool>,
    /// How many messages may wait for each volatile subscriber of a topic: see [`Pending`]; 0 for
    /// any number.
    pub pending_max: Option<u64>,
    /// Percent of its prefetch; 0 for any number.
    pub pending_max_percent: Option<u32>,
    /// Which leave.
    pub pending_evicted: Option<EvictedConfig>,
    /// Whether consumers of a queue have it for themselves, though they do not ask for it.
    pub exclusive: Option<bool>,
    /// How many consumers of a queue there must be before the first of them is served: see
    /// [`Gathering`]; 0 for any number.
    pub consumers_before_dispatch: Option<u32>,
    /// How long the first waits for others at most.
    pub time_before_dispatch_ms: Option<u64>,
    /// A consumer that settles no message for this time is slow; 0 disables the check.
    pub slow_after_ms: Option<u64>,
    /// Action on a slow consumer.
    pub slow_consumer_action: Option<SlowConsumerAction>,
    /// Of the messages with the same value of this property the last one is kept.
    pub last_value_property: Option<String>,
    /// How many messages consumers of a queue, or volatile subscribers of a topic, are sent ahead:
    /// see [`Prefetch`]; below 0 clients decide.
    pub prefetch: Option<i32>,
    /// How many messages readers of durable subscriptions are sent ahead; below 0 clients decide.
    pub durable_prefetch: Option<i32>,
    /// How many messages browsers are sent ahead; below 1 clients decide.
    pub browser_prefetch: Option<i32>,
    /// Messages of a queue that may be leased at once (HTTP reservations).
    pub leases_max: Option<u64>,
    /// Advisories of ordinary messages and fast producers: see [`Advised`].
    pub advisories: Option<Vec<AdvisoryConfig>>,
}

/// See [`Advised`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the field of its name")]
pub enum AdvisoryConfig {
    Delivered,
    Consumed,
    NoConsumer,
    FastProducer,
}

/// Action on a slow consumer: see [`SlowAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is a variant of `SlowAction`")]
pub enum SlowConsumerAction {
    Advise,
    Detach,
    Requeue,
}

impl From<SlowConsumerAction> for SlowAction {
    fn from(config: SlowConsumerAction) -> SlowAction {
        match config {
            SlowConsumerAction::Advise => SlowAction::Advise,
            SlowConsumerAction::Detach => SlowAction::Detach,
            SlowConsumerAction::Requeue => SlowAction::Requeue,
        }
    }
}

/// See [`Evicted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the variant of its name")]
pub enum EvictedConfig {
    Oldest,
    LowestPriority,
}

impl From<EvictedConfig> for Evicted {
    fn from(config: EvictedConfig) -> Evicted {
        match config {
            EvictedConfig::Oldest => Evicted::Oldest,
            EvictedConfig::LowestPriority => Evicted::LowestPriority,
        }
    }
}

/// See [`AtLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the variant of its name")]
pub enum AtLimitConfig {
    Block,
    Fail,
    DropOldest,
    DropNewest,
}

impl From<AtLimitConfig> for AtLimit {
    fn from(config: AtLimitConfig) -> AtLimit {
        match config {
            AtLimitConfig::Block => AtLimit::Block,
            AtLimitConfig::Fail => AtLimit::Fail,
            AtLimitConfig::DropOldest => AtLimit::DropOldest,
            AtLimitConfig::DropNewest => AtLimit::DropNewest,
        }
    }
}

/// The action at a limit that many queues share: nothing is dropped there, because the owner would
/// be ambiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the variant of its name")]
pub enum AtSharedLimitConfig {
    #[default]
    Block,
    Fail,
}

impl From<AtSharedLimitConfig> for AtLimit {
    fn from(config: AtSharedLimitConfig) -> AtLimit {
        match config {
            AtSharedLimitConfig::Block => AtLimit::Block,
            AtSharedLimitConfig::Fail => AtLimit::Fail,
        }
    }
}

/// A [`Durability`] by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityConfig {
    /// See [`Durability::Sync`].
    Sync,
    /// See [`Durability::Async`].
    Async,
    /// See [`Durability::Memory`].
    Memory,
}

impl From<DurabilityConfig> for Durability {
    fn from(config: DurabilityConfig) -> Durability {
        match config {
            DurabilityConfig::Sync => Durability::Sync,
            DurabilityConfig::Async => Durability::Async,
            DurabilityConfig::Memory => Durability::Memory,
        }
    }
}

/// A [`Compression`] by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompressionConfig {
    /// See [`Compression::None`].
    None,
    /// See [`Compression::Lz4`].
    Lz4,
    /// See [`Compression::Zstd`].
    Zstd,
}

impl From<CompressionConfig> for Compression {
    fn from(config: CompressionConfig) -> Compression {
        match config {
            CompressionConfig::None => Compression::None,
            CompressionConfig::Lz4 => Compression::Lz4,
            CompressionConfig::Zstd => Compression::Zstd,
        }
    }
}

/// A factor from 1 to 1000, with up to three decimals.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "f64")]
pub struct FactorConfig(Factor);

impl TryFrom<f64> for FactorConfig {
    type Error = String;

    fn try_from(value: f64) -> Result<FactorConfig, String> {
        let bad = || format!("{value} is not a factor from 1 to 1000 with up to three decimals");
        Factor::of(value).map(FactorConfig).ok_or_else(bad)
    }
}

impl From<FactorConfig> for Factor {
    fn from(FactorConfig(factor): FactorConfig) -> Factor {
        factor
    }
}

impl PolicyConfig {
    /// Notes the store of its destinations.
    ///
    /// # Errors
    /// There is no such store, or the pattern cannot be read.
    pub fn place(&self, stores: &StoresConfig, homes: &mut Homes) -> anyhow::Result<()> {
        self.store.as_deref().map_or(Ok(()), |name| stores.check_name(name))?;
        homes.set_policy(&DestinationPattern::parse(&self.destination)?, self.store.as_deref());
        Ok(())
    }

    fn limit(&self) -> Limit {
        let fallback = Limit::default();
        let some = |max: Option<u64>| max.filter(|max| *max > 0);
        Limit {
            messages_max: some(self.messages_max),
            bytes_max: some(self.bytes_max),
            disk_bytes_max: some(self.disk_bytes_max),
            action: self.at_limit.map_or(fallback.action, AtLimit::from),
            wait_ms: self.at_limit_wait_ms.unwrap_or(fallback.wait_ms),
            waits_for_disk: self.wait_for_disk.unwrap_or(fallback.waits_for_disk),
        }
    }

    fn pending(&self) -> Pending {
        Pending {
            messages_max: self.pending_max.filter(|max| *max > 0),
            prefetch_percent_max: self.pending_max_percent.filter(|percent| *percent > 0),
            evicted: self.pending_evicted.map_or(Evicted::default(), Evicted::from),
        }
    }

    fn prefetch(&self) -> Prefetch {
        let decided = |messages: Option<i32>| u32::try_from(messages?).ok();
        Prefetch {
            consumers: decided(self.prefetch),
            durable: decided(self.durable_prefetch),
            browsers: decided(self.browser_prefetch).and_then(NonZeroU32::new),
        }
    }

    fn advised(&self) -> Advised {
        let wants = |kind| self.advisories.as_ref().is_some_and(|kinds| kinds.contains(&kind));
        Advised {
            delivered: wants(AdvisoryConfig::Delivered),
            consumed: wants(AdvisoryConfig::Consumed),
            no_consumer: wants(AdvisoryConfig::NoConsumer),
            fast_producer: wants(AdvisoryConfig::FastProducer),
        }
    }

    fn policy(&self, fallback: &Policy) -> Policy {
        let DeadLetters { queue, expired, non_persistent } = fallback.dead_letters.clone();
        Policy {
            dead_letters: DeadLetters {
                queue: self.dead_letter_queue.as_deref().map_or(queue, DeadLetterQueue::named),
                expired: self.dead_letter_expired.unwrap_or(expired),
                non_persistent: self.dead_letter_non_persistent.unwrap_or(non_persistent),
            },
            returning: Returning {
                after_ms: self.redrive_after_ms.filter(|ms| *ms > 0),
                rounds_max: self.redrive_rounds_max.unwrap_or(fallback.returning.rounds_max),
            },
            redelivery: Redelivery {
                count_max: self.redelivery_count.unwrap_or(fallback.redelivery.count_max),
                delay_ms: self.redelivery_delay_ms.unwrap_or(fallback.redelivery.delay_ms),
                delay_next_ms: self.redelivery_delay_next_ms.filter(|ms| *ms > 0),
                multiplier: self.redelivery_multiplier.map_or(fallback.redelivery.multiplier, Factor::from),
                delay_ms_max: self.redelivery_delay_max_ms.unwrap_or(fallback.redelivery.delay_ms_max),
            },
            durability: self.durability.map_or(fallback.durability, Durability::from),
            compression: self.compression.map_or(fallback.compression, Compression::from),
            recovery: Recovery {
                messages_max: self.retroactive_messages.unwrap_or(fallback.recovery.messages_max),
                bytes_max: self.retroactive_bytes.unwrap_or(fallback.recovery.bytes_max),
                age_ms_max: self.retroactive_ms.unwrap_or(fallback.recovery.age_ms_max),
                always: self.retroactive_always.unwrap_or(fallback.recovery.always),
            },
            time_to_live: TimeToLive {
                default_ms: self.ttl_default_ms.unwrap_or(fallback.time_to_live.default_ms),
                max_ms: self.ttl_max_ms.unwrap_or(fallback.time_to_live.max_ms),
            },
            limit: self.limit(),
            pending: self.pending(),
            exclusive: self.exclusive.unwrap_or(fallback.exclusive),
            gathering: Gathering {
                consumers_min: self.consumers_before_dispatch.unwrap_or(fallback.gathering.consumers_min),
                wait_ms_max: self.time_before_dispatch_ms.unwrap_or(fallback.gathering.wait_ms_max),
            },
            slow: Slow {
                after_ms: self.slow_after_ms.filter(|ms| *ms > 0),
                then: self.slow_consumer_action.map_or(SlowAction::Advise, SlowAction::from),
            },
            advisories: self.advised(),
            prefetch: self.prefetch(),
            leases_max: self.leases_max.map_or(fallback.leases_max, LeaseLimit),
            last_value: self.last_value_property.as_deref().filter(|name| !name.is_empty()).map(Into::into),
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
    /// The prefix of the queues' names before the topic's.
    pub prefix: String,
    /// Their postfix.
    pub postfix: String,
    /// Whether a queue is fed only messages that match a selector of its consumers.
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
pub fn addressing(
    configs: &[VirtualTopicConfig],
    composites: &[CompositeConfig],
    mirrored: &MirroredQueuesConfig,
) -> anyhow::Result<Addressing> {
    let mut virtual_topics = Vec::with_capacity(configs.len());
    for (number, config) in (1..).zip(configs) {
        let VirtualTopicConfig { topics, prefix, postfix, selector_aware } = config;
        let place = || format!("configuration: [[virtual_topic]] {number}");
        if prefix.is_empty() && postfix.is_empty() {
            bail!("{}: prefix and postfix are both empty; each topic would be its own queue", place());
        }
        virtual_topics.push(VirtualTopic {
            topics: Pattern::parse(topics).with_context(place)?,
            prefix: prefix.as_str().into(),
            postfix: postfix.as_str().into(),
            selector_aware: *selector_aware,
        });
    }
    let composites = (1..).zip(composites).map(|(number, config)| {
        config.rule().with_context(|| format!("configuration: [[composite]] {number}"))
    });
    let composites = composites.collect::<anyhow::Result<_>>()?;
    let mirrored = mirrored.rule().context("configuration: [mirrored_queues]")?;
    Ok(Addressing { virtual_topics, composites, mirrored, ..Addressing::default() })
}

/// One `[[composite]]`: an address that forwards its messages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompositeConfig {
    /// Which addresses: `queue://orders`, or a pattern.
    pub address: String,
    /// Where it goes.
    pub targets: Vec<TargetConfig>,
    /// Whether it goes there alone.
    #[serde(default = "yes")]
    pub forward_only: bool,
}

fn yes() -> bool {
    true
}

/// One target of a `[[composite]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// `queue://a` or `topic://b`.
    pub destination: String,
    /// Only messages that match.
    pub selector: Option<String>,
}

impl CompositeConfig {
    fn rule(&self) -> anyhow::Result<Composite> {
        let address = DestinationPattern::parse(&self.address)?;
        if self.targets.is_empty() {
            bail!("{} has no targets", self.address);
        }
        let targets = self.targets.iter().map(TargetConfig::target).collect::<anyhow::Result<_>>()?;
        Ok(Composite { address, targets, forward_only: self.forward_only })
    }
}

impl TargetConfig {
    fn target(&self) -> anyhow::Result<Target> {
        let DestinationPattern { kind, temporary, name } = DestinationPattern::parse(&self.destination)?;
        if temporary || name.is_wildcard() {
            bail!(
                "the target {} is not a queue or topic; patterns and temporary destinations are not allowed",
                self.destination
            );
        }
        let selector = self.selector.as_deref().map(Selector::parse).transpose();
        let selector =
            selector.with_context(|| format!("the selector of the target {}", self.destination))?;
        Ok(Target { destination: Destination { kind, temporary, name: name.text().into() }, selector })
    }
}

/// Queues with a topic for those who look on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MirroredQueuesConfig {
    /// Which queues: a name or a pattern; empty for none.
    pub queues: String,
    /// The prefix of the topic's name.
    pub prefix: String,
    /// Its postfix.
    pub postfix: String,
}

impl Default for MirroredQueuesConfig {
    fn default() -> MirroredQueuesConfig {
        let (queues, postfix) = (String::new(), String::new());
        MirroredQueuesConfig { queues, prefix: "VirtualTopic.Mirror.".to_owned(), postfix }
    }
}

impl MirroredQueuesConfig {
    fn rule(&self) -> anyhow::Result<Option<MirroredQueues>> {
        let MirroredQueuesConfig { queues, prefix, postfix } = self;
        if queues.is_empty() {
            return Ok(None);
        }
        let (prefix, postfix) = (prefix.as_str().into(), postfix.as_str().into());
        Ok(Some(MirroredQueues { queues: Pattern::parse(queues)?, prefix, postfix }))
    }
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
        let want = "configuration: destination of [[policy]] 2: \"orders\" must start with queue://, topic://, \
                    temp-queue:// or temp-topic://";
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

    #[test]
    fn composite_destinations_and_mirrors_are_read_or_refused_by_name() {
        let addressing =
            |text: &str| Config::parse(text).unwrap().addressing().map_err(|error| format!("{error:#}"));
        let good = addressing(
            "[[composite]]
            address = \"queue://c\"
            targets = [{ destination = \"queue://a\" }, { destination = \"topic://t\", selector = \"k = 1\" }]
            [mirrored_queues]
            queues = \"seen.>\"",
        );
        let good = good.unwrap();
        assert_eq!((good.composites.len(), good.composites[0].forward_only), (1, true));
        let mirror = good.mirrored.unwrap().topic_of(&Destination::queue("seen.x"));
        assert_eq!(mirror, Some(Destination::topic("VirtualTopic.Mirror.seen.x")));
        for (targets, want) in [
            ("", "[[composite]] 1: queue://c has no targets"),
            ("{ destination = \"queue://a.>\" }", "the target queue://a.> is not a queue or topic; patterns"),
            ("{ destination = \"a\" }", "must start with queue://"),
            ("{ destination = \"queue://a\", selector = \"k =\" }", "the selector of the target queue://a: "),
        ] {
            let error = addressing(&format!("[[composite]]\naddress = \"queue://c\"\ntargets = [{targets}]"));
            let error = error.unwrap_err();
            assert!(error.contains(want), "{targets}: {error}");
        }
    }
}

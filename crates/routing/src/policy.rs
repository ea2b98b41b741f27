//! Policies: the operators' settings for the destinations that a pattern matches.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use postroad_model::{Compression, Destination, DestinationKind, Durability};

use crate::pattern::{Pattern, PatternError};
use crate::pattern_map::PatternMap;

use crate::permission::Permissions;
use crate::route::Routes;
use crate::tenant::Tenants;

/// Destinations of one kind whose names match: `queue://orders.>`, `topic://*`, `temp-queue://>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationPattern {
    /// Queues or topics.
    pub kind: DestinationKind,
    /// Those that end with a connection, or those that last.
    pub temporary: bool,
    /// Their names.
    pub name: Pattern,
}

/// The settings of a destination. Everything has a default; the policy of the narrowest pattern
/// that matches counts alone, as in ActiveMQ.
///
/// To add a decision: a field here, its default in `Default`, its key in the broker's configuration
/// and in `docs/postroad.toml`; the core asks with [`Policies::of`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What to do with messages that can never be processed.
    pub dead_letters: DeadLetters,
    /// When dead letters go back by themselves.
    pub returning: Returning,
    /// How often the broker redelivers a message after a consumer gave up on it, before it becomes
    /// a dead letter.
    pub redelivery: Redelivery,
    /// The failures that its persistent messages and their acknowledgements survive.
    pub durability: Durability,
    /// How bodies of messages for it are written to the disk.
    pub compression: Compression,
    /// Messages that a topic keeps for retroactive consumers.
    pub recovery: Recovery,
    /// How long messages live.
    pub time_to_live: TimeToLive,
    /// How much a queue, or each subscription of a topic, may hold.
    pub limit: Limit,
    /// How much may wait for each volatile subscriber of a topic.
    pub pending: Pending,
    /// Consumers of a queue have it for themselves, whether they ask for it or not.
    pub exclusive: bool,
    /// For whom the first consumers of a queue wait before they are served.
    pub gathering: Gathering,
    /// How long a consumer may settle none of its messages.
    pub slow: Slow,
    /// Of the messages with the same value of this property, a queue, or each subscription of a
    /// topic, keeps the last.
    pub last_value: Option<Arc<str>>,
    /// Advisories of each of its messages, or of their senders.
    pub advisories: Advised,
    /// How many messages consumers are sent ahead.
    pub prefetch: Prefetch,
    /// Messages of a queue that may be leased at the same time.
    pub leases_max: LeaseLimit,
}

/// Messages of one queue that may be leased at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimit(pub u64);

impl Default for LeaseLimit {
    /// As many as SQS allows in flight.
    fn default() -> LeaseLimit {
        LeaseLimit(120_000)
    }
}

/// How many messages consumers are sent ahead whose clients leave that at their own default, as in
/// ActiveMQ's policies; `None` decides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetch {
    /// Those of a queue, and volatile subscribers of a topic.
    pub consumers: Option<u32>,
    /// Those of a durable subscription.
    pub durable: Option<u32>,
    /// Browsers, which would otherwise see nothing: at least 1.
    pub browsers: Option<NonZeroU32>,
}

/// Advisories of ordinary messages, and of producers that are too fast: each costs a message of its
/// own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advised {
    /// A message was taken in.
    pub delivered: bool,
    /// A message was acknowledged.
    pub consumed: bool,
    /// A non-persistent message was taken in, and there is no consumer.
    pub no_consumer: bool,
    /// A producer has to wait at a limit.
    pub fast_producer: bool,
}

/// How long messages live, whatever their producers say (ActiveMQ's time-stamping plug-in). 0
/// decides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeToLive {
    /// Of messages whose producers set no end.
    pub default_ms: u64,
    /// At most.
    pub max_ms: u64,
}

impl TimeToLive {
    /// When a message ends that came at `now_ms` with this end; 0 is never.
    pub fn end_ms(&self, expires_at_ms: u64, now_ms: u64) -> u64 {
        let end = match (expires_at_ms, self.default_ms) {
            (0, 0) => 0,
            (0, default_ms) => now_ms.saturating_add(default_ms),
            (end, _) => end,
        };
        match (end, self.max_ms) {
            (end, 0) | (end @ 0, _) => end,
            (end, max_ms) => end.min(now_ms.saturating_add(max_ms)),
        }
    }
}

/// The recent messages that a topic keeps, in memory, for retroactive consumers (ActiveMQ's
/// subscription recovery policies). A bound of 0 is none; with all of them 0 nothing is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last messages, by number.
    pub messages_max: u64,
    /// The last messages, by total bytes.
    pub bytes_max: u64,
    /// The last messages, by age.
    pub age_ms_max: u64,
    /// Every subscriber is shown them, whether it asks or not.
    pub always: bool,
}

impl Recovery {
    /// Whether anything is kept.
    pub fn keeps(&self) -> bool {
        self.messages_max != 0 || self.bytes_max != 0 || self.age_ms_max != 0
    }
}

/// For whom the first consumers of a queue wait before any of them is served, as with ActiveMQ's
/// `consumersBeforeDispatchStarts` and `timeBeforeDispatchStarts`. With both 0 there is no wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathering {
    /// Until this number is attached; 0 for as long as they may wait.
    pub consumers_min: u32,
    /// At most so long; with 0 for [`GATHERING_MS`] if a number is wanted.
    pub wait_ms_max: u64,
}

/// How long consumers wait for others where only their number is decided: as in ActiveMQ.
const GATHERING_MS: u64 = 1000;

impl Gathering {
    /// How long the first waits at most; `None` if it does not.
    pub fn wait_ms(&self) -> Option<u64> {
        match (self.consumers_min, self.wait_ms_max) {
            (0, 0) => None,
            (_, 0) => Some(GATHERING_MS),
            (_, wait_ms) => Some(wait_ms),
        }
    }

    /// Whether this number of consumers need not wait for more.
    pub fn is_complete(&self, consumers: usize) -> bool {
        self.consumers_min != 0 && self.consumers_min as usize <= consumers
    }
}

/// Consumers that have messages and say nothing about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slow {
    /// A consumer that acknowledges nothing for this time is slow; `None`: none is.
    pub after_ms: Option<u64>,
    /// The action.
    pub then: SlowAction,
}

/// The action on a slow consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowAction {
    /// Subscribers of advisories are notified.
    #[default]
    Advise,
    /// It is detached.
    Detach,
    /// Its messages are requeued.
    Requeue,
}

/// How much a queue may hold, and the action at the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Messages; `None` for any number.
    pub messages_max: Option<u64>,
    /// Bytes of their bodies; `None` for any number. One message alone is never too large.
    pub bytes_max: Option<u64>,
    /// Of these bytes those that lie on the disk; `None` for any number.
    pub disk_bytes_max: Option<u64>,
    /// The action at the limit.
    pub action: AtLimit,
    /// How long sends wait before they fail.
    pub wait_ms: u64,
    /// Sends wait while the disk is full, instead of failing.
    pub waits_for_disk: bool,
}

/// The action when a queue is at its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// Sends wait, and their producers with them.
    #[default]
    Block,
    /// Sends wait for a while and are refused then.
    Fail,
    /// Of the messages that no consumer holds the oldest of the lowest priority leaves.
    DropOldest,
    /// The oldest message leaves that no consumer holds, whatever its priority.
    DropFirst,
    /// The newest message leaves.
    DropNewest,
}

/// The limit as it is configured: only the bounds that are set.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let Limit { messages_max, bytes_max, disk_bytes_max, .. } = self;
        let all =
            [("messages_max", messages_max), ("bytes_max", bytes_max), ("disk_bytes_max", disk_bytes_max)];
        let set = all.into_iter().filter_map(|(name, max)| Some((name, (*max)?)));
        for (number, (name, max)) in set.enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name} = {max}")?;
        }
        Ok(())
    }
}

impl Limit {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.messages_max.is_none() && self.bytes_max.is_none() && self.disk_bytes_max.is_none()
    }

    /// One of this number of equal parts, rounded up.
    pub fn part_of(self, parts: u64) -> Limit {
        let part = |max: Option<u64>| max.map(|max| max.div_ceil(parts.max(1)));
        let Limit { messages_max, bytes_max, disk_bytes_max, .. } = self;
        let (messages_max, bytes_max) = (part(messages_max), part(bytes_max));
        Limit { messages_max, bytes_max, disk_bytes_max: part(disk_bytes_max), ..self }
    }

    /// Whether messages leave at the limit, instead of waiting ahead of it.
    pub fn drops(&self) -> bool {
        !self.is_none() && !matches!(self.action, AtLimit::Block | AtLimit::Fail)
    }
}

/// How many messages may wait for each volatile subscriber of a topic, beyond its prefetch: more
/// are dropped, and durable subscriptions of the topic keep theirs. As ActiveMQ's pending message
/// limit and eviction strategies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The maximum; `None` for any number.
    pub messages_max: Option<u64>,
    /// Percent of the subscriber's prefetch; `None` for any number. If both are there the smaller
    /// counts.
    pub prefetch_percent_max: Option<u32>,
    /// Which leave.
    pub evicted: Evicted,
}

/// Which of the messages leaves that wait for a volatile subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evicted {
    /// The oldest.
    #[default]
    Oldest,
    /// The oldest of those with the lowest priority.
    LowestPriority,
}

impl Pending {
    /// The limit of a subscriber with this prefetch; `None` without a setting. One message at least
    /// may wait.
    pub fn limit(&self, prefetch: u32) -> Option<Limit> {
        let percent = self.prefetch_percent_max.filter(|_| prefetch > 0);
        let by_prefetch = percent.map(|percent| u64::from(percent) * u64::from(prefetch) / 100);
        let messages_max = self.messages_max.into_iter().chain(by_prefetch).min()?;
        let action = match self.evicted {
            Evicted::Oldest => AtLimit::DropFirst,
            Evicted::LowestPriority => AtLimit::DropOldest,
        };
        Some(Limit { messages_max: Some(messages_max), action, ..Limit::default() })
    }
}

/// Deliveries that the broker adds to those of the clients' own policies, each after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redelivery {
    /// A message that failed so often before is given up when it fails once more; zero adds no
    /// delivery.
    pub count_max: u32,
    /// How long a message rests after its first delivery without success.
    pub delay_ms: u64,
    /// And after its second one; `None` for as long as the factor says.
    pub delay_next_ms: Option<u64>,
    /// Each further rest is longer than the last one by this factor.
    pub multiplier: Factor,
    /// No rest is longer.
    pub delay_ms_max: u64,
}

impl Default for Redelivery {
    /// None; where some are wanted, the delays of ActiveMQ's redelivery policy.
    fn default() -> Redelivery {
        Redelivery {
            count_max: 0,
            delay_ms: 1000,
            delay_next_ms: None,
            multiplier: Factor::ONE,
            delay_ms_max: 300_000,
        }
    }
}

impl Redelivery {
    /// How long a message rests that failed `failed` times before it failed again; `None` if it is
    /// given up.
    pub fn rest_ms(&self, failed: u32) -> Option<u64> {
        if self.count_max <= failed {
            return None;
        }
        let (mut rest_ms, steps) = match (failed, self.delay_next_ms) {
            (1.., Some(next_ms)) => (next_ms, failed - 1),
            _ => (self.delay_ms, failed),
        };
        for _ in 0..steps {
            let longer_ms = self.multiplier.times(rest_ms);
            // At the maximum, or with a factor of one, it stays as it is.
            if self.delay_ms_max <= rest_ms || longer_ms <= rest_ms {
                break;
            }
            rest_ms = longer_ms;
        }
        Some(rest_ms.min(self.delay_ms_max))
    }
}

/// A factor with up to three decimals, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    thousandths: u32,
}

impl Factor {
    /// It changes nothing.
    pub const ONE: Factor = Factor { thousandths: 1000 };

    /// The factor of this value, if it is one.
    pub fn of(value: f64) -> Option<Factor> {
        let thousandths = (value * 1000.0).round();
        let is_exact = (value * 1000.0 - thousandths).abs() < 1e-6;
        let is_in_range = (1000.0..=1_000_000.0).contains(&thousandths);
        (is_exact && is_in_range).then_some(Factor { thousandths: thousandths as u32 })
    }

    /// Multiplies; the fraction of a millisecond is cut off.
    pub fn times(self, ms: u64) -> u64 {
        u64::try_from(u128::from(ms) * u128::from(self.thousandths) / 1000).unwrap_or(u64::MAX)
    }
}

/// Whether the dead letters in a queue go back by themselves to where each was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returning {
    /// Age at which they are redriven; `None` for never.
    pub after_ms: Option<u64>,
    /// Largest number of redrives of a message; then it stays.
    pub rounds_max: u32,
}

impl Default for Returning {
    /// Never; where they do, often enough for a temporary fault.
    fn default() -> Returning {
        Returning { after_ms: None, rounds_max: 3 }
    }
}

/// What to do with messages that can never be processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetters {
    /// Where they go.
    pub queue: DeadLetterQueue,
    /// Whether messages go there whose time is over, too.
    pub expired: bool,
    /// Whether non-persistent messages go there, too.
    pub non_persistent: bool,
}

/// Where dead letters go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetterQueue {
    /// All into the queue of this name.
    Shared(Arc<str>),
    /// Those of each destination into a queue of its own: its name with something ahead and
    /// something behind.
    Individual {
        /// Ahead of the destination's name.
        prefix: Arc<str>,
        /// Behind it.
        suffix: Arc<str>,
    },
    /// They end.
    Nowhere,
}

impl DeadLetterQueue {
    /// The queue of this name; a `*` in it stands for the name of each destination, and an empty
    /// name for none.
    pub fn named(name: &str) -> DeadLetterQueue {
        match name.split_once('*') {
            _ if name.is_empty() => DeadLetterQueue::Nowhere,
            None => DeadLetterQueue::Shared(name.into()),
            Some((prefix, suffix)) => {
                DeadLetterQueue::Individual { prefix: prefix.into(), suffix: suffix.into() }
            }
        }
    }
}

/// The queue that ActiveMQ's shared dead-letter strategy has.
const DEAD_LETTER_QUEUE: &str = "ActiveMQ.DLQ";

impl Default for DeadLetters {
    fn default() -> DeadLetters {
        let queue = DeadLetterQueue::Shared(DEAD_LETTER_QUEUE.into());
        DeadLetters { queue, expired: true, non_persistent: false }
    }
}

impl DeadLetters {
    /// The queue for dead letters from this destination; `None` if they end. Where they are by
    /// queue already they stay.
    pub fn queue_of(&self, origin: &Destination) -> Option<Destination> {
        match &self.queue {
            DeadLetterQueue::Nowhere => None,
            DeadLetterQueue::Shared(name) => Some(Destination::queue(name)),
            DeadLetterQueue::Individual { prefix, suffix } => {
                let stem = origin.name.strip_prefix(&**prefix).and_then(|rest| rest.strip_suffix(&**suffix));
                let is_one = stem.is_some_and(|stem| !stem.is_empty() && stem.len() < origin.name.len());
                match is_one && origin.kind == DestinationKind::Queue {
                    true => Some(origin.clone()),
                    false => Some(Destination::queue(&format!("{prefix}{}{suffix}", origin.name))),
                }
            }
        }
    }
}

/// All policies: by pattern, and the one for every other destination; and the tenants.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    fallback: Policy,
    /// The union of their settings.
    asked: Asked,
    /// By kind; see [`place`].
    by_pattern: [PatternMap<Policy>; 4],
    /// Who owns which destinations.
    pub tenants: Tenants,
    /// How much all destinations together may hold. It never drops.
    pub limit: Limit,
    /// A durable subscription without a reader for this time ends; `None`: it stays.
    pub offline_subscription_ms: Option<u64>,
    /// Rules that move or copy messages to other addresses.
    pub routes: Arc<Routes>,
    /// Which user may do which action.
    pub permissions: Arc<Permissions>,
}

/// Settings of any policy beyond the usual: mostly none, and then nothing need be looked up for
/// each message.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Less than the most durability.
    weaker_durability: bool,
    /// Bodies compressed.
    compression: bool,
    /// Messages kept for later subscribers.
    recovery: bool,
    /// Messages that do not live as long as their producers say.
    time_to_live: bool,
    /// A limit.
    limit: bool,
    /// A look for slow consumers.
    slow: bool,
    /// Dead letters that go back by themselves.
    returning: bool,
    /// Last values.
    last_value: bool,
    /// Advisories of ordinary messages, or of fast producers.
    advisories: bool,
    /// Prefetch of consumers.
    prefetch: bool,
    /// Queues whose consumers have them for themselves.
    exclusive: bool,
    /// Consumers that wait for others.
    gathering: bool,
}

impl Asked {
    fn by(policy: &Policy) -> Asked {
        Asked {
            weaker_durability: policy.durability < Durability::Sync,
            compression: policy.compression != Compression::None,
            recovery: policy.recovery.keeps(),
            time_to_live: policy.time_to_live != TimeToLive::default(),
            limit: !policy.limit.is_none() || policy.pending.limit(u32::MAX).is_some(),
            slow: policy.slow.after_ms.is_some(),
            returning: policy.returning.after_ms.is_some(),
            last_value: policy.last_value.is_some(),
            advisories: policy.advisories != Advised::default(),
            prefetch: policy.prefetch != Prefetch::default(),
            exclusive: policy.exclusive,
            gathering: policy.gathering.wait_ms().is_some(),
        }
    }

    fn or(self, other: Asked) -> Asked {
        Asked {
            weaker_durability: self.weaker_durability || other.weaker_durability,
            compression: self.compression || other.compression,
            recovery: self.recovery || other.recovery,
            time_to_live: self.time_to_live || other.time_to_live,
            limit: self.limit || other.limit,
            slow: self.slow || other.slow,
            returning: self.returning || other.returning,
            last_value: self.last_value || other.last_value,
            advisories: self.advisories || other.advisories,
            prefetch: self.prefetch || other.prefetch,
            exclusive: self.exclusive || other.exclusive,
            gathering: self.gathering || other.gathering,
        }
    }
}

impl Policies {
    /// Defaults for every destination, except that dead letters go to the queue of this name: see
    /// [`DeadLetterQueue::named`].
    pub fn with_dead_letters_in(name: &str) -> Policies {
        let dead_letters = DeadLetters { queue: DeadLetterQueue::named(name), ..DeadLetters::default() };
        Policies::new(Policy { dead_letters, ..Policy::default() })
    }

    /// `fallback` for every destination.
    pub fn new(fallback: Policy) -> Policies {
        Policies { asked: Asked::by(&fallback), fallback, ..Policies::default() }
    }

    /// How much all destinations of this tenant, or of the broker, may hold together.
    pub fn limit_of(&self, tenant: Option<&str>) -> Limit {
        let of_tenant = |name: &str| self.tenants.named(name).map(|tenant| tenant.limit);
        tenant.map_or(self.limit, |name| of_tenant(name).unwrap_or_default())
    }

    /// When a message for these addresses ends: at the latest that one of them allows, for it is
    /// one message.
    pub fn end_ms<'a>(
        &self,
        targets: impl Iterator<Item = &'a Destination>,
        expires_at_ms: u64,
        now_ms: u64,
    ) -> u64 {
        if !self.asked.time_to_live {
            return expires_at_ms;
        }
        let ends = targets.map(|to| self.of(to).time_to_live.end_ms(expires_at_ms, now_ms));
        let latest = ends.reduce(|latest, end| if latest == 0 || end == 0 { 0 } else { latest.max(end) });
        latest.unwrap_or(expires_at_ms)
    }

    /// Whether some topic may keep messages for later subscribers.
    pub fn any_recovery(&self) -> bool {
        self.asked.recovery
    }

    /// Whether any destination has a limit, by itself or together with others.
    pub fn any_limit(&self) -> bool {
        self.asked.limit || self.any_shared_limit()
    }

    /// Whether destinations have a limit together.
    pub fn any_shared_limit(&self) -> bool {
        !self.limit.is_none() || self.tenants.iter().any(|tenant| !tenant.limit.is_none())
    }

    /// Whether any tenant may have a limited number of queues.
    pub fn any_queue_quota(&self) -> bool {
        self.tenants.iter().any(|tenant| tenant.quota.queues_max.is_some())
    }

    /// Whether slow consumers are looked for anywhere.
    pub fn any_slow(&self) -> bool {
        self.asked.slow
    }

    /// Whether consumers of any queue wait for others.
    pub fn any_gathering(&self) -> bool {
        self.asked.gathering
    }

    /// Whether dead letters go back by themselves anywhere.
    pub fn any_returning(&self) -> bool {
        self.asked.returning
    }

    /// Whether any destination keeps last values.
    pub fn any_last_value(&self) -> bool {
        self.asked.last_value
    }

    /// Whether less than the most durability is enough for any destination.
    pub fn any_weaker_durability(&self) -> bool {
        self.asked.weaker_durability
    }

    /// Advisories of the messages of this destination.
    pub fn advised(&self, destination: &Destination) -> Advised {
        match self.asked.advisories {
            true => self.of(destination).advisories,
            false => Advised::default(),
        }
    }

    /// How many messages consumers of this destination are sent ahead.
    pub fn prefetch(&self, destination: &Destination) -> Prefetch {
        match self.asked.prefetch {
            true => self.of(destination).prefetch,
            false => Prefetch::default(),
        }
    }

    /// Whether consumers of this queue have it for themselves, though they do not ask for it.
    pub fn is_exclusive(&self, queue: &Destination) -> bool {
        self.asked.exclusive && self.of(queue).exclusive
    }

    /// Whether bodies for any destination are compressed.
    pub fn any_compression(&self) -> bool {
        self.asked.compression
    }

    /// How safe the messages of this destination must be.
    pub fn durability_of(&self, destination: &Destination) -> Durability {
        match self.asked.weaker_durability {
            true => self.of(destination).durability,
            false => Durability::Sync,
        }
    }

    /// The policy of destinations that no pattern matches.
    pub fn fallback(&self) -> &Policy {
        &self.fallback
    }

    /// Sets the policy of a pattern, in place of the earlier one of exactly this pattern.
    pub fn set(&mut self, pattern: &DestinationPattern, policy: Policy) {
        self.asked = self.asked.or(Asked::by(&policy));
        let map = &mut self.by_pattern[place(pattern.kind, pattern.temporary)];
        map.remove(&pattern.name);
        map.get_or_insert_with(&pattern.name, || policy);
    }

    /// The pattern whose policy is that of the destination; `None` if it is the fallback.
    pub fn pattern_of(&self, destination: &Destination) -> Option<String> {
        let Destination { kind, temporary, name } = destination;
        let (pattern, _) = self.by_pattern[place(*kind, *temporary)].narrowest(name)?;
        let (kind, temporary, name) = (*kind, *temporary, pattern.clone());
        Some(DestinationPattern { kind, temporary, name }.to_string())
    }

    /// The policy of the destination: that of the narrowest pattern that matches it.
    pub fn of(&self, destination: &Destination) -> &Policy {
        let map = &self.by_pattern[place(destination.kind, destination.temporary)];
        map.narrowest(&destination.name).map_or(&self.fallback, |(_, policy)| policy)
    }
}

/// The place of this kind in tables of four.
pub(crate) fn place(kind: DestinationKind, temporary: bool) -> usize {
    usize::from(kind == DestinationKind::Topic) | usize::from(temporary) << 1
}

/// The prefixes of a destination pattern.
const SCHEMES: [(&str, DestinationKind, bool); 4] = [
    ("queue://", DestinationKind::Queue, false),
    ("topic://", DestinationKind::Topic, false),
    ("temp-queue://", DestinationKind::Queue, true),
    ("temp-topic://", DestinationKind::Topic, true),
];

/// Why a text is no destination pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationPatternError {
    /// It does not say of which kind.
    #[error("{0:?} must start with queue://, topic://, temp-queue:// or temp-topic://")]
    NoKind(String),
    /// It names nothing.
    #[error("{0:?} has no name; use > for every name")]
    NoName(String),
    /// Its name is no pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl DestinationPattern {
    /// Reads `queue://orders.>` and the like.
    ///
    /// # Errors
    /// [`DestinationPatternError`]: no kind, no name, or a name with too many words.
    pub fn parse(text: &str) -> Result<DestinationPattern, DestinationPatternError> {
        let found = SCHEMES
            .iter()
            .find_map(|(scheme, kind, temporary)| Some((text.strip_prefix(scheme)?, *kind, *temporary)));
        let (name, kind, temporary) =
            found.ok_or_else(|| DestinationPatternError::NoKind(text.to_owned()))?;
        if name.is_empty() {
            return Err(DestinationPatternError::NoName(text.to_owned()));
        }
        Ok(DestinationPattern { kind, temporary, name: Pattern::parse(name)? })
    }
}

impl fmt::Display for DestinationPattern {
    /// As it was written.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_own = |(_, kind, temporary): &&(_, DestinationKind, bool)| {
            (*kind, *temporary) == (self.kind, self.temporary)
        };
        let scheme = SCHEMES.iter().find(is_own).map_or("", |(scheme, ..)| *scheme);
        write!(out, "{scheme}{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_up_to_their_maximum_and_end_with_the_count() {
        let rests = |delay_ms, delay_next_ms, multiplier, delay_ms_max| {
            let multiplier = Factor::of(multiplier).expect("a factor");
            let redelivery = Redelivery { count_max: 70, delay_ms, delay_next_ms, multiplier, delay_ms_max };
            [0, 1, 2, 3, 69, 70, u32::MAX].map(|failed| redelivery.rest_ms(failed))
        };
        let some = |rests: [u64; 5]| {
            let [a, b, c, d, e] = rests.map(Some);
            [a, b, c, d, e, None, None]
        };
        assert_eq!(rests(10, None, 3.0, 100), some([10, 30, 90, 100, 100]));
        assert_eq!(rests(10, None, 1.5, 30), some([10, 15, 22, 30, 30]));
        assert_eq!(
            rests(1000, Some(300_000), 1.0, u64::MAX),
            some([1000, 300_000, 300_000, 300_000, 300_000])
        );
        assert_eq!(rests(0, Some(5), 2.0, 100), some([0, 5, 10, 20, 100]));
        assert_eq!(Redelivery::default().rest_ms(0), None);
        assert_eq!([0.5, 0.0, 1.0001, 1e9, f64::NAN].map(Factor::of), [None; 5]);
        let endless = Redelivery { count_max: u32::MAX, delay_ms: 1, ..Redelivery::default() };
        assert_eq!(endless.rest_ms(u32::MAX - 1), Some(1), "without counting that far");
    }

    #[test]
    fn messages_live_as_long_as_policy_and_producer_allow() {
        for (case, default_ms, max_ms, expires_at_ms, want) in [
            ("nothing decided", 0, 0, 0, 0),
            ("nothing decided, an end", 0, 0, 150, 150),
            ("a default", 20, 0, 0, 120),
            ("a default for those without an end alone", 20, 0, 900, 900),
            ("a maximum", 0, 30, 900, 130),
            ("a maximum that is not reached", 0, 30, 110, 110),
            ("a maximum alone sets no end", 0, 30, 0, 0),
            ("a default beyond the maximum", 99, 30, 0, 130),
            ("over already", 20, 30, 50, 50),
        ] {
            let time_to_live = TimeToLive { default_ms, max_ms };
            assert_eq!(time_to_live.end_ms(expires_at_ms, 100), want, "case: {case}");
        }
    }

    #[test]
    fn one_message_for_several_addresses_lives_as_long_as_one_of_them_allows() {
        let mut policies = Policies::default();
        for (pattern, max_ms) in [("queue://a", 10), ("queue://b", 20)] {
            let time_to_live = TimeToLive { default_ms: max_ms, max_ms };
            let policy = Policy { time_to_live, ..Policy::default() };
            policies.set(&DestinationPattern::parse(pattern).unwrap(), policy);
        }
        let [a, b, c] = ["a", "b", "c"].map(Destination::queue);
        for (targets, want) in [(vec![&a], 110), (vec![&a, &b], 120), (vec![&a, &c], 0)] {
            assert_eq!(policies.end_ms(targets.into_iter(), 0, 100), want);
        }
    }

    #[test]
    fn the_narrowest_policy_of_the_kind_counts_alone() {
        let shared = |name: &str| Policy {
            dead_letters: DeadLetters {
                queue: DeadLetterQueue::Shared(name.into()),
                ..DeadLetters::default()
            },
            ..Policy::default()
        };
        let mut policies = Policies::new(shared("fallback"));
        for (pattern, name) in
            [("queue://>", "all"), ("queue://a.*", "old"), ("queue://a.*", "a"), ("topic://a.>", "topics")]
        {
            policies.set(&DestinationPattern::parse(pattern).unwrap(), shared(name));
        }
        let temporary = Destination { temporary: true, ..Destination::queue("a.b") };
        for (case, destination, want) in [
            ("narrowest, the later of two", Destination::queue("a.b"), "a"),
            ("wider", Destination::queue("b"), "all"),
            ("topic", Destination::topic("a.b"), "topics"),
            ("no pattern", Destination::topic("b"), "fallback"),
            ("no pattern of this kind", temporary, "fallback"),
        ] {
            let queue = policies.of(&destination).dead_letters.queue_of(&destination);
            assert_eq!(queue, Some(Destination::queue(want)), "case: {case}");
        }
    }

    #[test]
    fn dead_letters_go_where_the_policy_says() {
        let individual = DeadLetterQueue::Individual { prefix: "DLQ.".into(), suffix: ".dead".into() };
        for (case, name, queue, origin, want) in [
            ("shared", "x", DeadLetterQueue::Shared("x".into()), Destination::queue("a"), Some("x")),
            ("own", "DLQ.*.dead", individual.clone(), Destination::topic("a"), Some("DLQ.a.dead")),
            (
                "one already",
                "DLQ.*.dead",
                individual.clone(),
                Destination::queue("DLQ.a.dead"),
                Some("DLQ.a.dead"),
            ),
            (
                "a topic",
                "DLQ.*.dead",
                individual,
                Destination::topic("DLQ.a.dead"),
                Some("DLQ.DLQ.a.dead.dead"),
            ),
            ("nowhere", "", DeadLetterQueue::Nowhere, Destination::queue("a"), None),
        ] {
            assert_eq!(DeadLetterQueue::named(name), queue, "case: {case}");
            let dead_letters = DeadLetters { queue, ..DeadLetters::default() };
            assert_eq!(dead_letters.queue_of(&origin), want.map(Destination::queue), "case: {case}");
        }
    }

    #[test]
    fn a_destination_pattern_says_its_kind() {
        let parse = |text: &str| DestinationPattern::parse(text).map_err(|error| error.to_string());
        let pattern = |kind, temporary, name| {
            Ok(DestinationPattern { kind, temporary, name: Pattern::parse(name).unwrap() })
        };
        for (text, want) in [
            ("queue://a.>", pattern(DestinationKind::Queue, false, "a.>")),
            ("temp-topic://>", pattern(DestinationKind::Topic, true, ">")),
            (
                "a",
                Err(r#""a" must start with queue://, topic://, temp-queue:// or temp-topic://"#.to_owned()),
            ),
            ("queue://", Err(r#""queue://" has no name; use > for every name"#.to_owned())),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
    }
}

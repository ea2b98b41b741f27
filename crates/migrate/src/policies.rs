//! Policies: ActiveMQ's policy map and its redelivery policy map, put together by pattern.
//!
//! In both brokers the narrowest pattern counts alone. ActiveMQ keeps its maps apart; Postroad has
//! one. So a pattern of either map gets a policy, with the keys of the narrowest pattern that
//! covers it in the other map.

use std::collections::BTreeMap;

use postroad_routing::{DestinationPattern, Factor};

use super::element::Element;
use super::translation::{Table, Translation, Value};

type Keys = Vec<(&'static str, Value)>;

/// One map: keys and line by pattern.
type Map = BTreeMap<String, (Keys, u32)>;

/// See the head of this file.
#[derive(Default)]
pub struct Rules {
    policies: Map,
    redelivery: Map,
    time_to_live: Map,
}

const ALWAYS: &str = "not needed: always so";
const NO_NEED: &str = "not needed: memory does not grow with the backlog";

/// Attributes of a policyEntry that need no key, or have none.
const POLICY: &[(&str, &str)] = &[
    ("memoryLimit", "not translated: memory is one budget, memory_bytes; the rest is on disk"),
    (
        "producerFlowControl",
        "not needed: persistent messages go to disk; only producers of other messages wait for memory",
    ),
    ("prioritizedMessages", ALWAYS),
    ("strictOrderDispatch", ALWAYS),
    ("useConsumerPriority", ALWAYS),
    ("persistJMSRedelivered", ALWAYS),
    ("optimizedDispatch", NO_NEED),
    ("lazyDispatch", NO_NEED),
    ("useCache", NO_NEED),
    ("maxPageSize", NO_NEED),
    ("maxBrowsePageSize", "not needed: a browser sees all messages"),
    ("expireMessagesPeriod", "not needed: expired messages are removed within a second"),
    ("maxExpirePageSize", NO_NEED),
    ("cursorMemoryHighWaterMark", NO_NEED),
    ("storeUsageHighWaterMark", NO_NEED),
    ("reduceMemoryFootprint", NO_NEED),
    ("doOptimzeMessageStorage", NO_NEED),
    ("optimizeMessageStoreInFlightLimit", NO_NEED),
    ("minimumMessageSize", NO_NEED),
    ("usePrefetchExtension", NO_NEED),
    ("enableAudit", "not needed: limits.audited_producers applies to all destinations"),
    ("maxAuditDepth", "not needed: limits.audited_producers applies to all destinations"),
    ("maxQueueAuditDepth", "not needed: limits.audited_producers applies to all destinations"),
    ("maxProducersToAudit", "not translated: limits.audited_producers applies to all destinations"),
    ("messageGroupMapFactoryType", "not needed: any number of message groups keeps its order"),
    ("gcInactiveDestinations", "not translated: idle queues are kept"),
    ("inactiveTimeoutBeforeGC", "not translated: idle queues are kept"),
    ("inactiveTimoutBeforeGC", "not translated: idle queues are kept"),
    ("gcWithNetworkConsumers", "not translated: idle queues are kept"),
    ("maxDestinations", "not translated"),
    ("advisoryForDispatched", "not translated: see docs/features/advisories.md"),
    ("advisoryForDiscardingMessages", "not needed: always published while it has subscribers"),
    ("advisoryForSlowConsumers", "not needed: always published while it has subscribers"),
    ("advisoryWhenFull", "not needed: always published while it has subscribers"),
    ("includeBodyForAdvisory", "not translated: see docs/features/advisories.md"),
    ("sendDuplicateFromStoreToDLQ", "not needed: the store has no index that could hold such duplicates"),
    ("blockedProducerWarningInterval", ""),
    (
        "useTopicSubscriptionInflightStats",
        "not needed: unacknowledged messages of subscribers are always counted",
    ),
    ("advancedNetworkStatisticsEnabled", "not translated: write a [[bridge]] by hand"),
    ("advancedMessageStatisticsEnabled", "not translated: see docs/features/metrics.md"),
    (
        "allowTempDestinationStealing",
        "not translated: only its own connection can consume from a temporary destination",
    ),
    ("sendFailIfNoSpace", "not translated"),
    ("sendFailIfNoSpaceAfterTimeout", "not translated"),
];

/// The advisories that a policyEntry can enable, and their names here.
const ADVISORIES: [(&str, &str); 4] = [
    ("advisoryForDelivery", "delivered"),
    ("advisoryForConsumed", "consumed"),
    ("sendAdvisoryIfNoConsumers", "no-consumer"),
    ("advisoryForFastProducers", "fast-producer"),
];

/// How many messages a policyEntry sends ahead: for queues, and for topics.
const PREFETCH: [(&str, [(&str, &str); 2]); 2] = [
    ("queue", [("queuePrefetch", "prefetch"), ("queueBrowserPrefetch", "browser_prefetch")]),
    ("topic", [("topicPrefetch", "prefetch"), ("durableTopicPrefetch", "durable_prefetch")]),
];

/// For whom the first consumers of a queue wait, and how long at most.
const GATHERING: [(&str, &str); 2] = [
    ("consumersBeforeDispatchStarts", "consumers_before_dispatch"),
    ("timeBeforeDispatchStarts", "time_before_dispatch_ms"),
];

/// Retroactive keys of an entry; for a topic they are not needed, as in ActiveMQ.
fn gathering(entry: &Element<'_>, pattern: &str, keys: &mut Keys, translation: &mut Translation) {
    for (attribute, key) in GATHERING {
        let Some(number) = entry.number(attribute, translation).filter(|_| pattern.contains("queue://"))
        else {
            continue;
        };
        // Below 0 there is no wait in ActiveMQ either.
        if let Some(number) = u32::try_from(number).ok().filter(|number| *number > 0) {
            keys.push((key, u64::from(number).into()));
        }
    }
}

/// Prefetch of an entry, as far as it concerns the kind of its pattern.
fn prefetch(entry: &Element<'_>, pattern: &str, keys: &mut Keys, translation: &mut Translation) {
    let kind = pattern.split_once("://").map_or("", |(scheme, _)| scheme.trim_start_matches("temp-"));
    for (of, attributes) in PREFETCH {
        for (attribute, key) in attributes {
            let number = entry.number(attribute, translation).filter(|_| of == kind);
            let least = i64::from(key == "browser_prefetch");
            match number.map(|number| (number >= least).then(|| u32::try_from(number).ok()).flatten()) {
                Some(Some(messages)) => keys.push((key, u64::from(messages).into())),
                Some(None) => {
                    let why = format!("{attribute}: not translated: the minimum is {least}");
                    translation.note(entry, &why);
                }
                None => {}
            }
        }
    }
}

/// Elements of a policyEntry that need no key, or have none.
const INNER: &[(&str, &str)] = &[
    ("dispatchPolicy", "not needed: dispatch is round robin among consumers of one priority"),
    ("pendingQueuePolicy", NO_NEED),
    ("pendingSubscriberPolicy", NO_NEED),
    ("pendingDurableSubscriberPolicy", NO_NEED),
    ("messageGroupMapFactory", "not needed: any number of message groups keeps its order"),
    ("networkBridgeFilterFactory", "not needed: between Postroads messages follow the demand back"),
    ("messageInterceptorStrategy", "not translated: Postroad runs no Java plugins"),
];

/// The patterns of an entry, by its attributes.
fn patterns(entry: &Element<'_>, translation: &mut Translation) -> Vec<String> {
    let kinds = [
        ("queue", "queue://"),
        ("topic", "topic://"),
        ("tempQueue", "temp-queue://"),
        ("tempTopic", "temp-topic://"),
    ];
    let mut found = Vec::new();
    for (attribute, scheme) in kinds {
        match entry.value(attribute, translation) {
            Some("true") if attribute.starts_with("temp") => found.push(format!("{scheme}>")),
            Some(name) => found.push(format!("{scheme}{name}")),
            None => {}
        }
    }
    found
}

const EVERYTHING: [&str; 2] = ["queue://>", "topic://>"];

impl Rules {
    /// `<destinationPolicy>`
    pub fn read_policies(&mut self, element: &Element<'_>, translation: &mut Translation) {
        let Some(map) = element.child("policyMap") else {
            return translation.note(element, "contains no <policyMap>");
        };
        for group in map.children() {
            for entry in group.children() {
                match (group.name(), entry.name()) {
                    ("policyEntries", "policyEntry") => {
                        let patterns = patterns(&entry, translation);
                        if patterns.is_empty() {
                            translation.note(&entry, "not translated: it names no valid queue or topic");
                        }
                        for pattern in patterns {
                            self.policy(&entry, pattern, translation);
                        }
                    }
                    ("defaultEntry", "policyEntry") => {
                        for pattern in EVERYTHING {
                            self.policy(&entry, pattern.to_owned(), translation);
                        }
                    }
                    _ => translation.note(&entry, "is unknown"),
                }
            }
        }
    }

    fn policy(&mut self, entry: &Element<'_>, pattern: String, translation: &mut Translation) {
        let mut keys = Keys::new();
        if let Some(always) = entry.flag("alwaysRetroactive", translation) {
            keys.push(("retroactive_always", always.into()));
        }
        if let Some(exclusive) = entry.flag("allConsumersExclusiveByDefault", translation)
            && pattern.contains("queue://")
        {
            keys.push(("exclusive", exclusive.into()));
        }
        gathering(entry, &pattern, &mut keys, translation);
        prefetch(entry, &pattern, &mut keys, translation);
        let told =
            ADVISORIES.iter().filter(|(attribute, _)| entry.flag(attribute, translation) == Some(true));
        let told: Vec<Value> = told.map(|(_, kind)| (*kind).into()).collect();
        if !told.is_empty() {
            keys.push(("advisories", Value::list(told)));
        }
        for child in entry.children() {
            match child.name() {
                "slowConsumerStrategy" => slow_consumers(&child, &mut keys, translation),
                "deadLetterStrategy" => {
                    dead_letters(&child, pattern.contains("topic://"), &mut keys, translation)
                }
                "subscriptionRecoveryPolicy" => recovery(&child, &mut keys, translation),
                "pendingMessageLimitStrategy" => pending(&child, &pattern, &mut keys, translation),
                "messageEvictionStrategy" => evicted(&child, &pattern, &mut keys, translation),
                name => match INNER.iter().find(|(known, _)| *known == name) {
                    Some((_, why)) => translation.note(&child, why),
                    None => translation.note(&child, "is unknown"),
                },
            }
        }
        let _ = patterns(entry, translation);
        entry.note_the_rest(POLICY, translation);
        // The first entry in the file counts for a pattern that is there twice.
        self.policies.entry(pattern).or_insert((keys, entry.line()));
    }

    /// `<redeliveryPlugin>`
    pub fn read_redelivery(&mut self, plugin: &Element<'_>, translation: &mut Translation) {
        for attribute in ["sendToDlqIfMaxRetriesExceeded", "fallbackToDeadLetter"] {
            if plugin.flag(attribute, translation) == Some(false) {
                let why = "not translated: dead_letter_queue = \"\" in a [[policy]] discards dead letters";
                translation.note(plugin, &format!("{attribute}=\"false\": {why}"));
            }
        }
        plugin.note_the_rest(&[], translation);
        let outer = plugin.child("redeliveryPolicyMap");
        let Some(map) = outer.as_ref().and_then(|outer| outer.child("redeliveryPolicyMap")) else {
            return translation.note(plugin, "contains no <redeliveryPolicyMap>");
        };
        for group in map.children() {
            for entry in group.children() {
                let patterns = match group.name() {
                    "redeliveryPolicyEntries" => patterns(&entry, translation),
                    "defaultEntry" => EVERYTHING.map(str::to_owned).to_vec(),
                    _ => Vec::new(),
                };
                if patterns.is_empty() {
                    translation.note(&entry, "not translated: it names no valid queue or topic");
                    continue;
                }
                let keys = redelivery(&entry, translation);
                for pattern in patterns {
                    self.redelivery.entry(pattern).or_insert((keys.clone(), entry.line()));
                }
            }
        }
    }

    /// `<timeStampingBrokerPlugin>`, which is for all destinations.
    pub fn read_time_to_live(&mut self, plugin: &Element<'_>, translation: &mut Translation) {
        let mut keys = Keys::new();
        for (attribute, key) in [("zeroExpirationOverride", "ttl_default_ms"), ("ttlCeiling", "ttl_max_ms")] {
            if let Some(ms) = plugin.number(attribute, translation) {
                keys.push((key, u64::try_from(ms).unwrap_or(0).into()));
            }
        }
        translation.note(
            plugin,
            "messages keep their producers' timestamps; expiration counts by the broker's clock",
        );
        plugin.note_the_rest(&[("futureOnly", ""), ("processNetworkMessages", "")], translation);
        for pattern in EVERYTHING.into_iter().filter(|_| !keys.is_empty()) {
            self.time_to_live.insert(pattern.to_owned(), (keys.clone(), plugin.line()));
        }
    }

    /// One `[[policy]]` for each pattern.
    pub fn write(self, translation: &mut Translation) {
        let Rules { policies, redelivery, time_to_live } = self;
        let mut patterns: Vec<&String> =
            policies.keys().chain(redelivery.keys()).chain(time_to_live.keys()).collect();
        patterns.sort();
        patterns.dedup();
        for pattern in patterns {
            let mut keys = vec![("destination", pattern.as_str().into())];
            let mut lines = Vec::new();
            for map in [&policies, &redelivery, &time_to_live] {
                if let Some((more, line)) = narrowest(map, pattern) {
                    keys.extend(more.iter().cloned());
                    lines.push(*line);
                }
            }
            if keys.len() > 1 {
                lines.dedup();
                translation.push(Table { name: "policy", lines, keys });
            }
        }
    }
}

/// The map's settings for all destinations of the pattern.
fn narrowest<'a>(map: &'a Map, pattern: &str) -> Option<&'a (Keys, u32)> {
    if let Some(own) = map.get(pattern) {
        return Some(own);
    }
    let wanted = DestinationPattern::parse(pattern).ok()?;
    let covering = map.iter().filter_map(|(text, entry)| {
        let known = DestinationPattern::parse(text).ok()?;
        let same_kind = (known.kind, known.temporary) == (wanted.kind, wanted.temporary);
        (same_kind && known.name.covers(&wanted.name)).then_some((known.name, entry))
    });
    // Of patterns that cover one another the one that others cover is the narrowest.
    let best = covering.reduce(|best, next| if best.0.covers(&next.0) { next } else { best });
    best.map(|(_, entry)| entry)
}

fn dead_letters(outer: &Element<'_>, of_topic: bool, keys: &mut Keys, translation: &mut Translation) {
    let Some(strategy) = outer.children().next() else {
        return translation.note(outer, "contains no strategy");
    };
    match strategy.name() {
        "sharedDeadLetterStrategy" => {
            let named = strategy.child("deadLetterQueue").and_then(|inner| inner.child("queue"));
            let name = match named {
                Some(queue) => queue.value("physicalName", translation),
                None => strategy.value("deadLetterQueue", translation),
            };
            if let Some(name) = name {
                keys.push(("dead_letter_queue", name.trim_start_matches("queue://").into()));
            }
        }
        "individualDeadLetterStrategy" => {
            let (prefix, suffix, default) = match of_topic {
                true => ("topicPrefix", "topicSuffix", "ActiveMQ.DLQ.Topic."),
                false => ("queuePrefix", "queueSuffix", "ActiveMQ.DLQ.Queue."),
            };
            let prefix = strategy.value(prefix, translation).unwrap_or(default);
            let suffix = strategy.value(suffix, translation).unwrap_or("");
            keys.push(("dead_letter_queue", format!("{prefix}*{suffix}").as_str().into()));
        }
        "discarding" | "discardingDeadLetterStrategy" => keys.push(("dead_letter_queue", "".into())),
        _ => return translation.note(&strategy, "not translated: Postroad runs no Java plugins"),
    }
    for (attribute, key) in
        [("processExpired", "dead_letter_expired"), ("processNonPersistent", "dead_letter_non_persistent")]
    {
        if let Some(flag) = strategy.flag(attribute, translation) {
            keys.push((key, flag.into()));
        }
    }
    for attribute in ["useQueueForQueueMessages", "useQueueForTopicMessages"] {
        if strategy.flag(attribute, translation) == Some(false) {
            translation.note(
                &strategy,
                &format!("{attribute}=\"false\": not translated: dead letters go to queues"),
            );
        }
    }
    let once = "not needed: a dead letter is written once";
    strategy.note_the_rest(
        &[
            ("destinationPerDurableSubscriber", "not translated"),
            ("expiration", "not translated: dead letters do not expire"),
            ("enableAudit", once),
            ("maxAuditDepth", once),
            ("maxProducersToAudit", once),
            ("queuePrefix", ""),
            ("queueSuffix", ""),
            ("topicPrefix", ""),
            ("topicSuffix", ""),
        ],
        translation,
    );
}

/// ActiveMQ has one strategy for consumers whose prefetch is full, and one for those that
/// acknowledge nothing.
fn slow_consumers(outer: &Element<'_>, keys: &mut Keys, translation: &mut Translation) {
    let Some(strategy) = outer.children().next() else {
        return translation.note(outer, "contains no strategy");
    };
    let attribute = match strategy.name() {
        "abortSlowAckConsumerStrategy" => "maxTimeSinceLastAck",
        "abortSlowConsumerStrategy" => {
            let why =
                "in Postroad a consumer is slow if it acknowledges nothing, not if its prefetch is full";
            translation.note(&strategy, why);
            "maxSlowDuration"
        }
        _ => return translation.note(&strategy, "not translated: Postroad runs no Java plugins"),
    };
    if strategy.flag("abortConnection", translation) == Some(true) {
        let why =
            "abortConnection=\"true\": not translated: the consumer is detached, and its connection stays";
        translation.note(&strategy, why);
    }
    let after_ms = strategy.number(attribute, translation).and_then(|ms| u64::try_from(ms).ok());
    keys.push(("slow_after_ms", after_ms.unwrap_or(SLOW_AFTER_MS).into()));
    keys.push(("slow_consumer_action", "detach".into()));
    strategy.note_the_rest(
        &[
            ("maxSlowCount", "not translated: a consumer is slow by time, not by count"),
            ("checkPeriod", "not needed: consumers are checked five times a second"),
            ("ignoreIdleConsumers", "not needed: a consumer without messages is not slow"),
            ("ignoreNetworkConsumers", "not translated: write a [[bridge]] by hand"),
        ],
        translation,
    );
}

/// How many messages may wait for a volatile subscriber. ActiveMQ's defaults stand here.
fn pending(outer: &Element<'_>, pattern: &str, keys: &mut Keys, translation: &mut Translation) {
    let Some(strategy) = outer.children().next() else {
        return translation.note(outer, "contains no strategy");
    };
    let (key, max) = match strategy.name() {
        "constantPendingMessageLimitStrategy" => {
            ("pending_max", strategy.number("limit", translation).unwrap_or(50))
        }
        "prefetchRatePendingMessageLimitStrategy" => {
            let multiplier = strategy.value("multiplier", translation).unwrap_or("2.5");
            let Ok(multiplier) = multiplier.parse::<f64>() else {
                let why = format!("multiplier=\"{multiplier}\": not translated: it is not a number");
                return translation.note(&strategy, &why);
            };
            ("pending_max_percent", (multiplier * 100.0).round() as i64)
        }
        _ => return translation.note(&strategy, "not translated: Postroad runs no Java plugins"),
    };
    strategy.note_the_rest(&[], translation);
    match u64::try_from(max) {
        _ if !pattern.contains("topic://") => {}
        Err(_) => {} // Below 0 there is no limit.
        Ok(0) => {
            translation.note(&strategy, "the minimum is one pending message per subscriber");
            keys.push((key, 1_u64.into()));
        }
        Ok(max) => keys.push((key, max.into())),
    }
}

/// Which messages leave that are too many for a volatile subscriber.
fn evicted(outer: &Element<'_>, pattern: &str, keys: &mut Keys, translation: &mut Translation) {
    let Some(strategy) = outer.children().next() else {
        return translation.note(outer, "contains no strategy");
    };
    let which = match strategy.name() {
        "oldestMessageEvictionStrategy" => "oldest",
        "oldestMessageWithLowestPriorityEvictionStrategy" => "lowest-priority",
        "uniquePropertyMessageEvictionStrategy" => {
            let why = "not translated: last_value_property keeps the last message of each value, for durable subscriptions of the topic too, and \
                       whether many wait or few";
            return translation.note(&strategy, why);
        }
        _ => return translation.note(&strategy, "not translated: Postroad runs no Java plugins"),
    };
    strategy.note_the_rest(
        &[("evictExpiredMessagesHighWatermark", "not needed: expired messages are removed within a second")],
        translation,
    );
    if pattern.contains("topic://") {
        keys.push(("pending_evicted", which.into()));
    }
}

/// The default of both of ActiveMQ's strategies.
const SLOW_AFTER_MS: u64 = 30_000;

fn recovery(outer: &Element<'_>, keys: &mut Keys, translation: &mut Translation) {
    let Some(policy) = outer.children().next() else {
        return translation.note(outer, "contains no policy");
    };
    let (key, attribute, default) = match policy.name() {
        "lastImageSubscriptionRecoveryPolicy" => return keys.push(("retroactive_messages", 1_u64.into())),
        "noSubscriptionRecoveryPolicy" => return,
        "fixedCountSubscriptionRecoveryPolicy" => ("retroactive_messages", "maximumSize", 100),
        "fixedSizedSubscriptionRecoveryPolicy" => ("retroactive_bytes", "maximumSize", 64 << 10),
        "timedSubscriptionRecoveryPolicy" => ("retroactive_ms", "recoverDuration", 60_000),
        _ => {
            return translation.note(
                &policy,
                "not translated: use retroactive_messages, retroactive_bytes and retroactive_ms",
            );
        }
    };
    let value = policy.number(attribute, translation).unwrap_or(default);
    keys.push((key, u64::try_from(value).unwrap_or(0).into()));
    policy.note_the_rest(&[("useSharedBuffer", "")], translation);
}

/// ActiveMQ's defaults stand here, for they differ from Postroad's.
fn redelivery(entry: &Element<'_>, translation: &mut Translation) -> Keys {
    let count = entry.number("maximumRedeliveries", translation).unwrap_or(6);
    let first = entry.number("initialRedeliveryDelay", translation).unwrap_or(1000);
    let next = entry.number("redeliveryDelay", translation).unwrap_or(1000);
    let grows = entry.flag("useExponentialBackOff", translation) == Some(true);
    let factor = entry.value("backOffMultiplier", translation).unwrap_or("5");
    let longest = entry.number("maximumRedeliveryDelay", translation).unwrap_or(-1);
    entry.note_the_rest(
        &[
            ("preDispatchCheck", ""),
            ("useCollisionAvoidance", "not translated: redelivery delays are exact"),
            ("collisionAvoidancePercent", "not translated: redelivery delays are exact"),
            ("queue", ""),
            ("topic", ""),
            ("tempQueue", ""),
            ("tempTopic", ""),
        ],
        translation,
    );
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    // No maximum is -1 with ActiveMQ; a message that fails four billion times is poison by any
    // measure.
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let (first, next) = (unsigned(first), unsigned(next));
    let mut keys = vec![("redelivery_count", u64::from(count).into()), ("redelivery_delay_ms", first.into())];
    match factor.parse::<f64>() {
        // As `RedeliveryPolicy.getNextRedeliveryDelay`: a factor of one or less counts as none.
        Ok(factor) if grows && factor > 1.0 => {
            if Factor::of(factor).is_none() {
                let why = "is not a factor up to 1000 with up to three decimals: the redelivery delays would differ";
                translation.refuse(entry, &format!("backOffMultiplier=\"{factor}\" {why}"));
            }
            if first == 0 {
                keys.push(("redelivery_delay_next_ms", at_once(next, entry, translation).into()));
            }
            keys.push(("redelivery_multiplier", factor.into()));
            if let Ok(longest) = u64::try_from(longest) {
                let longest = longest.max(next);
                if longest < first {
                    let why = format!("longer than the maximum of {longest} ms: later delays would differ");
                    translation.refuse(entry, &format!("initialRedeliveryDelay=\"{first}\" is {why}"));
                }
                keys.push(("redelivery_delay_max_ms", longest.into()));
                return keys;
            }
        }
        Err(_) if grows => {
            translation.refuse(entry, &format!("backOffMultiplier=\"{factor}\" is not a number"));
        }
        _ => {
            if first != next {
                keys.push(("redelivery_delay_next_ms", at_once(next, entry, translation).into()));
            }
            keys.push(("redelivery_multiplier", 1_u64.into()));
        }
    }
    keys.push(("redelivery_delay_max_ms", u64::from(u32::MAX).max(first).max(next).into()));
    keys
}

/// A second delay, which is a millisecond at least.
fn at_once(next: u64, entry: &Element<'_>, translation: &mut Translation) -> u64 {
    if next == 0 {
        translation.note(entry, "redeliveryDelay=\"0\": the second delay is 1 ms, the minimum");
    }
    next.max(1)
}

//! Subscriptions that have begun here lately: their messages may follow them from another broker.
//!
//! In the moment of the move a message may come both ways: by the topic, and from the subscription
//! that was set aside at the other broker. It is taken in once, as its name tells. Without a new
//! subscription nothing is noted. Known to this run alone.
//!
//! The other broker learns of the move when its link is up, perhaps hours later. Until then both
//! its subscription and its link's gather messages: each connection of a link begins a time of its
//! own.
//!
//! Never here: how protocols name messages.

use std::collections::VecDeque;
use std::sync::Arc;

use postroad_model::{Aim, ConnectionId, Destination, Publish, Sent};

use crate::Partition;
use crate::addresses::subscription::subscription_of;
use crate::intake::publish::receivers_of;
use crate::intake::recent::Recent;

/// Messages of the topic are noted for so long after the subscription began or was set aside, and
/// after the last message that followed it; those of a link's connection for so long after its
/// first one, too.
const WATCHED_MS: u64 = 60_000;

/// Connections that are known for each subscription; the one that came first makes way.
const SENDERS_MAX: usize = 64;

/// The clock of the partition stands still within a tick, and both clocks are cut to milliseconds:
/// a message that was taken in before the subscription began may have a time of arrival that is
/// later by so much. The former broker must not count it as one that the subscription took.
const TRUNCATED_MS: u64 = 1;

/// Subscriptions that are watched at a time; the oldest makes way.
const HOMES_MAX: usize = 64;

/// The property of messages that other brokers have sent.
pub const BROKER_PATH: &str = "JMSActiveMQBrokerPath";

/// How the assembly names a message of a topic that other brokers forward, whatever its protocol;
/// `None` if it may have another name at each of them.
pub type NameOf = fn(&postroad_model::Message, &Destination) -> Option<u128>;

/// See the head of this file.
#[derive(Default)]
pub struct Homes(VecDeque<Home>);

/// A subscription that has begun lately.
struct Home {
    name: Arc<str>,
    topic: Destination,
    /// When it began last, in milliseconds since 1970: no earlier.
    since_ms: u64,
    until_ms: u64,
    /// Connections that have sent to the topic, and until when messages of a link's are noted.
    senders: VecDeque<(ConnectionId, Option<u64>)>,
    /// Messages that came by the topic and that it took.
    by_topic: Recent,
    /// Messages that followed from other brokers.
    followed: Recent,
}

impl Home {
    /// Whether messages of the topic that this connection sends are noted.
    fn notes(&mut self, sender: ConnectionId, now_ms: u64, by_link: impl Fn() -> bool) -> bool {
        let known = self.senders.iter().find(|(known, _)| *known == sender).map(|(_, until_ms)| *until_ms);
        let until_ms = known.unwrap_or_else(|| {
            let until_ms = by_link().then(|| now_ms.saturating_add(WATCHED_MS));
            if SENDERS_MAX <= self.senders.len() {
                self.senders.pop_front();
            }
            self.senders.push_back((sender, until_ms));
            until_ms
        });
        now_ms < self.until_ms || until_ms.is_some_and(|until_ms| now_ms < until_ms)
    }
}

/// A message that has come.
struct Arrival<'a> {
    name: u128,
    to: &'a Destination,
    aim: Option<&'a Aim>,
    sender: ConnectionId,
}

/// Whether a message is taken in.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// By all of its subscriptions.
    All,
    /// By all but this one, which has it.
    Except(Arc<str>),
    /// By none: the only one that it is for has it.
    None,
}

impl Homes {
    /// The subscription is about to begin, to be set aside, or to be resumed. A message that has
    /// left it since may come back: its name is forgotten.
    pub fn begin(&mut self, name: &str, topic: &Destination, (now_ms, wall_ms): (u64, u64)) {
        self.end(name);
        if HOMES_MAX <= self.0.len() {
            self.0.pop_front();
        }
        self.0.push_back(Home {
            name: name.into(),
            topic: topic.clone(),
            since_ms: wall_ms.saturating_add(TRUNCATED_MS),
            until_ms: now_ms.saturating_add(WATCHED_MS),
            senders: VecDeque::new(),
            by_topic: Recent::default(),
            followed: Recent::default(),
        });
    }

    /// The subscription has ended.
    pub fn end(&mut self, name: &str) {
        self.0.retain(|home| &*home.name != name);
    }

    /// When the subscription began, if that is known, in milliseconds since 1970.
    pub fn since_ms(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|home| &*home.name == name).map(|home| home.since_ms)
    }

    /// Some of the messages may never have reached the log.
    pub fn clear(&mut self) {
        for home in &mut self.0 {
            home.by_topic.clear();
            home.followed.clear();
        }
    }

    /// A message has come to a topic. `takes` says which subscriptions would take it, `by_link`
    /// whether another broker sends it.
    fn take(
        &mut self,
        Arrival { name, to, aim, sender }: Arrival<'_>,
        now_ms: u64,
        takes: impl Fn(&Arc<str>) -> bool,
        by_link: impl Fn() -> bool,
    ) -> Way {
        let mut way = Way::All;
        for home in self.0.iter_mut().filter(|home| home.topic == *to) {
            match aim {
                Some(Aim::Only(only)) if *only == home.name => {
                    home.until_ms = now_ms.saturating_add(WATCHED_MS);
                    if home.by_topic.has(name) || !home.followed.is_new(name) {
                        return Way::None;
                    }
                }
                Some(_) => {}
                None if home.followed.has(name) => way = Way::Except(home.name.clone()),
                None => {
                    if home.notes(sender, now_ms, &by_link) && takes(&home.name) {
                        home.by_topic.is_new(name);
                    }
                }
            }
        }
        way
    }
}

impl Partition {
    /// Says how to name the messages of topics, which only their protocols know. To be said before
    /// the first event; until then none has a name.
    pub fn name_messages_by(&mut self, name_of: NameOf) {
        self.protocols.name_of = name_of;
    }
}

/// A message is taken in: `false` if the only subscription that it is for has it already.
pub fn arrives(partition: &mut Partition, publish: &mut Publish) -> bool {
    if partition.leader.intake.homes.0.is_empty() || !publish.sent.also.is_empty() {
        return true;
    }
    let Sent { to, message, .. } = &publish.sent;
    let Some(name) = (partition.protocols.name_of)(message, to) else { return true };
    let receivers = receivers_of(partition, &publish.sent, Some(publish.connection));
    let mut homes = std::mem::take(&mut partition.leader.intake.homes);
    // One that is on its way into the log gets what comes from now on.
    let takes = |name: &Arc<str>| {
        partition.leader.intake.waiting.is_for_subscription(name)
            || subscription_of(&partition.state, to, name).is_some_and(|id| receivers.contains(&id))
    };
    let by_link = || (partition.protocols.properties_of)(message).property(BROKER_PATH).is_some();
    let arrival = Arrival { name, to, aim: message.aim(), sender: publish.connection };
    let way = homes.take(arrival, partition.now_ms, takes, by_link);
    partition.leader.intake.homes = homes;
    match way {
        Way::All => true,
        Way::None => false,
        Way::Except(subscription) => {
            publish.sent.message = message.clone().aimed(Aim::Except(subscription));
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ConnectionId = ConnectionId::new(0, 1);

    fn all(_: &Arc<str>) -> bool {
        true
    }

    /// As [`Homes::take`], of a message that a client has sent.
    fn take(
        homes: &mut Homes,
        name: u128,
        (to, aim): (&Destination, Option<&Aim>),
        now_ms: u64,
        takes: impl Fn(&Arc<str>) -> bool,
    ) -> Way {
        homes.take(Arrival { name, to, aim, sender: CLIENT }, now_ms, takes, || false)
    }

    #[test]
    fn a_message_that_comes_both_ways_reaches_the_subscription_once() {
        let (topic, other) = (Destination::topic("t"), Destination::topic("u"));
        let only: Aim = Aim::Only("1:c:s".into());
        let of_other = Aim::Only("1:c:other".into());
        let mut homes = Homes::default();
        homes.begin("1:c:s", &topic, (0, 77));
        let except = || Way::Except("1:c:s".into());
        for (case, name, to, aim, want) in [
            ("by the topic", 1, &topic, None, Way::All),
            ("it follows", 1, &topic, Some(&only), Way::None),
            ("another follows", 2, &topic, Some(&only), Way::All),
            ("twice", 2, &topic, Some(&only), Way::None),
            ("and comes by the topic", 2, &topic, None, except()),
            ("again", 2, &topic, None, except()),
            ("of another subscription", 1, &topic, Some(&of_other), Way::All),
            ("of another topic", 2, &other, None, Way::All),
        ] {
            assert_eq!(take(&mut homes, name, (to, aim), 5, all), want, "case: {case}");
        }
        assert_eq!(take(&mut homes, 3, (&topic, None), 5, |_| false), Way::All);
        assert_eq!(take(&mut homes, 3, (&topic, Some(&only)), 5, all), Way::All, "it did not take it before");
        let late = WATCHED_MS + 5;
        assert_eq!(take(&mut homes, 4, (&topic, None), late, all), Way::All);
        assert_eq!(take(&mut homes, 4, (&topic, Some(&only)), late, all), Way::All, "not noted any more");
        homes.begin("1:c:s", &topic, (late, 78));
        assert_eq!(homes.since_ms("1:c:s"), Some(79));
        assert_eq!(take(&mut homes, 1, (&topic, Some(&only)), late, all), Way::All, "it may have left since");
        assert_eq!(take(&mut homes, 1, (&topic, Some(&only)), late, all), Way::None);
        homes.end("1:c:s");
        assert_eq!(
            take(&mut homes, 1, (&topic, Some(&only)), late, all),
            Way::All,
            "another one of the name"
        );
    }

    #[test]
    fn watched_subscriptions_are_bounded() {
        let topic = Destination::topic("t");
        let mut homes = Homes::default();
        for number in 0..2 * HOMES_MAX {
            homes.begin(&format!("1:c:{number}"), &topic, (0, 0));
        }
        assert_eq!(homes.0.len(), HOMES_MAX);
        assert_eq!(
            (homes.since_ms("1:c:0"), homes.since_ms("1:c:127")),
            (None, Some(TRUNCATED_MS)),
            "it made way"
        );
    }

    #[test]
    fn a_link_that_comes_later_begins_a_time_of_its_own() {
        let (topic, only) = (Destination::topic("t"), Aim::Only("1:c:s".into()));
        const HOUR_MS: u64 = 3_600_000;
        for (case, is_link, by_topic_ms, follows_ms, want) in [
            ("an hour later", true, HOUR_MS, HOUR_MS, Way::None),
            ("in its minute", true, HOUR_MS, HOUR_MS + WATCHED_MS - 1, Way::None),
            ("a client", false, HOUR_MS, HOUR_MS, Way::All),
        ] {
            let mut homes = Homes::default();
            homes.begin("1:c:s", &topic, (0, 0));
            let arrival = |aim, sender| Arrival { name: 1, to: &topic, aim, sender };
            let by_topic = arrival(None, ConnectionId::new(0, 2));
            assert_eq!(homes.take(by_topic, by_topic_ms, all, || is_link), Way::All, "case: {case}");
            let follows = arrival(Some(&only), ConnectionId::new(0, 2));
            assert_eq!(homes.take(follows, follows_ms, all, || is_link), want, "case: {case}");
        }
        let mut homes = Homes::default();
        homes.begin("1:c:s", &topic, (0, 0));
        let arrival = |name, aim| Arrival { name, to: &topic, aim, sender: CLIENT };
        homes.take(arrival(1, None), HOUR_MS, all, || true);
        homes.take(arrival(2, None), HOUR_MS + WATCHED_MS, all, || true);
        assert_eq!(homes.take(arrival(2, Some(&only)), HOUR_MS + WATCHED_MS, all, || true), Way::All);
    }

    #[test]
    fn known_senders_are_bounded() {
        let topic = Destination::topic("t");
        let mut homes = Homes::default();
        homes.begin("1:c:s", &topic, (0, 0));
        for number in 0..2 * SENDERS_MAX as u64 {
            let sender = ConnectionId::new(0, number);
            homes.take(Arrival { name: 1, to: &topic, aim: None, sender }, 0, all, || true);
        }
        assert_eq!(homes.0[0].senders.len(), SENDERS_MAX);
    }
}

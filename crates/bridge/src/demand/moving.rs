//! Durable subscribers that read at the peer, and have messages here: their subscription here
//! is set aside, and the link takes its messages to the one at the peer.
//!
//! ```text
//!   a reader comes at the peer ──▶ attach to the subscription here, set aside ──▶ its messages go, for that one alone
//!      in use here: tried again for a while            quiet for a minute ──▶ detach, and it ends
//!   it is read here again ──▶ drained: messages in flight are answered ──▶ detach
//! ```
//! Never here: the messages that a subscription gathers, and those that the peer has already.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{
    self as model, Attach, ConsumerKey, ConsumerMode, Deadline, Delivered, DestinationKind, Event, Refusal,
    Share, Ticket,
};
use postroad_openwire::network::RemoteConsumer;

use super::{Closing, DemandEngine, HOLDERS_MAX, Target};

/// The first pause before a subscription that is in use is tried again; each further one is twice
/// as long.
const RETRY_MS: u64 = 100;

/// The longest pause.
const RETRY_MS_MAX: u64 = 2000;

/// A subscription that is in use here for as long as this, by a reader beside the one at the peer,
/// stays: a connection that was lost has been noticed by then.
const RETRIES_MAX: u32 = 34;

/// A subscription that got nothing more for so long has nothing on its way to it any more.
const QUIET_MS: u64 = 60_000;

/// See the head of this file.
#[derive(Default)]
pub struct Moving {
    /// Readers at the peer, with the target of each.
    readers: BTreeMap<Arc<str>, Target>,
    /// When their subscriptions at the peer have begun.
    since: BTreeMap<Target, u64>,
    /// The link's consumers, with the time of their last message; `None` before the first one.
    quiet: BTreeMap<u32, Option<u64>>,
    /// Subscriptions that are in use here.
    retries: BTreeMap<Target, Retry>,
    /// Subscriptions that are being ended.
    ended: BTreeMap<Ticket, Target>,
}

/// The next attempt.
#[derive(Default)]
struct Retry {
    /// `None` until the next turn brings the time.
    due_ms: Deadline,
    tries: u32,
}

impl Moving {
    /// When there is something to do.
    pub(super) fn next_ms(&self) -> Deadline {
        let ends = self.quiet.values().map(|quiet_ms| quiet_ms.map_or(0, |ms| ms.saturating_add(QUIET_MS)));
        let retries = self.retries.values().map(|retry| retry.due_ms.unwrap_or(0));
        ends.chain(retries).min()
    }

    /// The link has a consumer for the target.
    pub(super) fn attached(&mut self, number: u32, target: &Target) {
        if target.moves.is_some() {
            self.quiet.insert(number, None);
        }
    }

    /// That consumer is gone.
    pub(super) fn detached(&mut self, number: u32) {
        self.quiet.remove(&number);
    }

    /// A message of the consumer has left, or was answered.
    pub(super) fn touched(&mut self, number: u32, now_ms: u64) {
        if let Some(quiet_ms) = self.quiet.get_mut(&number) {
            *quiet_ms = Some(now_ms);
        }
    }

    pub(super) fn has_ended(&self, ticket: Ticket) -> bool {
        self.ended.contains_key(&ticket)
    }
}

impl DemandEngine {
    /// A consumer has come at the peer: if it reads a durable subscription, the one of that name
    /// here follows it. The demand of brokers behind the peer says not enough.
    pub(super) fn follow(&mut self, consumer: &RemoteConsumer, events: &mut Vec<Event>) {
        let (Some(name), [source]) = (&consumer.durable, &consumer.sources[..]) else { return };
        let counts = self.link.as_ref().is_some_and(|link| link.counts_credit);
        let can_follow = counts
            && consumer.path.is_empty()
            && source.kind == DestinationKind::Topic
            && !source.temporary
            && !source.is_pattern()
            && self.options.share.has(source)
            && self.is_permitted(source);
        if !can_follow
            || self.moving.readers.contains_key(&consumer.id)
            || HOLDERS_MAX <= self.moving.readers.len()
        {
            return;
        }
        let moves = Some(name.clone());
        let own: Arc<str> = consumer.selector.trim().into();
        let target = Target { source: source.clone(), selector: own, is_durable: false, moves };
        self.moving.since.insert(target.clone(), consumer.since_ms);
        let ahead = consumer.prefetch.max(1);
        self.moving.readers.insert(consumer.id.clone(), target.clone());
        self.moving.retries.remove(&target);
        let wanted = self.targets.entry(target.clone()).or_default();
        if wanted.by.insert(consumer.id.clone(), ahead).is_none() {
            wanted.ahead += u64::from(ahead);
        }
        match wanted.numbers.is_empty() {
            true => self.try_to_move(&target, events),
            false => self.resize(&target, events),
        }
    }

    /// Attaches to the subscription here, unless the link's own subscription of the topic is about
    /// to end and to begin again: messages sent here meanwhile would be in neither.
    fn try_to_move(&mut self, target: &Target, events: &mut Vec<Event>) {
        let by_topic = Target::of(target.source.clone(), Arc::default(), true);
        match self.ending.contains(&by_topic) {
            true => {
                self.moving.retries.insert(target.clone(), Retry::default());
            }
            false => self.subscribe(target, events),
        }
    }

    /// A reader at the peer has gone: messages here wait.
    pub(super) fn follow_no_more(&mut self, id: &Arc<str>, events: &mut Vec<Event>) {
        let Some(target) = self.moving.readers.remove(id) else { return };
        let Some(wanted) = self.targets.get_mut(&target) else { return };
        wanted.ahead -= u64::from(wanted.by.remove(id).unwrap_or(0));
        if wanted.by.is_empty() {
            self.moving.retries.remove(&target);
            self.moving.since.remove(&target);
            self.withdraw(&target, events);
        } else {
            self.resize(&target, events);
        }
    }

    /// The link's consumer of a subscription here that is read at the peer.
    pub(super) fn attach_moving(
        &self,
        target: &Target,
        name: &str,
        (number, credit, ticket): (u32, u32, Ticket),
    ) -> Attach {
        let connection =
            self.link.as_ref().map_or_else(|| model::ConnectionId::new(0, 0), |link| link.connection);
        // Later messages of the peer are in its subscription.
        let until_ms = self.moving.since.get(target).copied().unwrap_or(0);
        let own = model::Subscription {
            name: name.into(),
            topic: target.source.clone(),
            selector: target.selector.clone(),
            skips: None,
            shared: false,
        };
        let aside = own.set_aside(until_ms);
        Attach {
            consumer: ConsumerKey::new(connection, number),
            source: target.source.clone(),
            at: None,
            mode: ConsumerMode::Shared,
            credit,
            credit_by_default: false,
            priority: self.options.priority,
            no_local: false,
            steals: self.heir_of(target),
            client: None,
            selector: aside.selector,
            subscription: Some(aside.name),
            share: Share::No,
            retroactive: false,
            notice: None,
            ticket,
        }
    }

    /// The core has refused a consumer.
    pub(super) fn cannot_move(&mut self, target: Target, refusal: &Refusal) {
        if !matches!(refusal, Refusal::SubscriptionInUse { .. }) || !self.targets.contains_key(&target) {
            // There is none here, or one that selects otherwise.
            self.moving.retries.remove(&target);
            return;
        }
        let retry = self.moving.retries.entry(target.clone()).or_default();
        (retry.due_ms, retry.tries) = (None, retry.tries + 1);
        if RETRIES_MAX < retry.tries {
            self.moving.retries.remove(&target);
        }
    }

    /// A consumer is to leave its subscription to a reader here, if the core says so without having
    /// been asked.
    pub(super) fn give_way(&mut self, number: u32) {
        let Some(subscription) = self.subscriptions.get(&number) else { return };
        if subscription.target.moves.is_none() || subscription.closing != Closing::No {
            return;
        }
        let target = subscription.target.clone();
        if let Some(wanted) = self.targets.get_mut(&target) {
            wanted.numbers.retain(|other| *other != number);
            self.moving.retries.insert(target, Retry::default());
        }
    }

    /// The time has come for another attempt, or to end subscriptions that have nothing more.
    pub(super) fn move_on(&mut self, now_ms: u64, events: &mut Vec<Event>) {
        for retry in self.moving.retries.values_mut().filter(|retry| retry.due_ms.is_none()) {
            let pause_ms = (RETRY_MS << retry.tries.min(8)).min(RETRY_MS_MAX);
            retry.due_ms = Some(now_ms.saturating_add(pause_ms));
        }
        let is_due = |retry: &Retry| retry.due_ms.is_some_and(|due_ms| due_ms <= now_ms);
        let retries = self.moving.retries.iter().filter(|(_, retry)| is_due(retry));
        let due: Vec<Target> = retries.map(|(target, _)| target.clone()).collect();
        for target in due {
            // If it is refused again, that sets the next time.
            if let Some(retry) = self.moving.retries.get_mut(&target) {
                retry.due_ms = Some(u64::MAX);
            }
            if self.targets.get(&target).is_some_and(|wanted| wanted.numbers.is_empty()) {
                self.try_to_move(&target, events);
            }
        }
        let mut over = Vec::new();
        for (number, quiet_ms) in &mut self.moving.quiet {
            let is_busy = self.subscriptions.get(number).is_none_or(|subscription| {
                0 < subscription.unanswered || subscription.closing != Closing::No
            });
            match quiet_ms {
                Some(ms) if ms.saturating_add(QUIET_MS) <= now_ms && !is_busy => over.push(*number),
                Some(ms) if now_ms < ms.saturating_add(QUIET_MS) => {}
                _ => *quiet_ms = Some(now_ms),
            }
        }
        over.into_iter().for_each(|number| self.end_moved(number, events));
    }

    /// Nothing comes to the subscription any more.
    fn end_moved(&mut self, number: u32, events: &mut Vec<Event>) {
        self.moving.detached(number);
        let Some(connection) = self.link.as_ref().map(|link| link.connection) else { return };
        let Some(subscription) = self.subscriptions.remove(&number) else { return };
        let target = subscription.target;
        let Some(name) = target.moves.as_deref().map(model::Subscription::aside_of) else { return };
        if let Some(wanted) = self.targets.get_mut(&target) {
            wanted.numbers.retain(|other| *other != number);
        }
        let consumer = ConsumerKey::new(connection, number);
        events.push(Event::Detach { consumer, delivered: Delivered::None, ticket: None });
        let ticket = self.ticket();
        self.moving.ended.insert(ticket, target);
        events.push(Event::Unsubscribe { name, connection, ticket });
    }

    /// The core has ended a subscription, or something has come to it after all.
    pub(super) fn end_of_moved(
        &mut self,
        ticket: Ticket,
        result: &Result<(), Refusal>,
        events: &mut Vec<Event>,
    ) {
        let Some(target) = self.moving.ended.remove(&ticket) else { return };
        let is_wanted = self.targets.get(&target).is_some_and(|wanted| wanted.numbers.is_empty());
        if is_wanted && matches!(result, Err(Refusal::SubscriptionInUse { .. })) {
            self.try_to_move(&target, events);
        }
    }
}

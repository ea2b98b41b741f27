//! Durable subscriptions of the link: they end with the last durable subscription at the peer that
//! they stand for, also if that one ended while the link was down.
//!
//! ```text
//!   the peer's list ──▶ demand of each ──▶ the core lists the link's own ──▶ unsubscribe the others
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{
    self as model, Destination, DestinationKind, Event, Inquiry, Page, Question, Refusal, Row, RowKey, Ticket,
};
use postroad_openwire::network::{DURABLE_PREFIX, RemoteConsumer};

use super::{DemandEngine, NO_USER, Target, client_at, holder_of, matches};

/// Subscriptions that may end before the list of the peer comes: with more, it is not used.
const ENDED_MAX: usize = 4096;

/// How far the two lists are.
#[derive(Default)]
pub struct Syncing {
    /// Subscriptions that ended ahead of the list, which may yet have them.
    ended: BTreeSet<Arc<str>>,
    /// The list has come, or is not used.
    is_done: bool,
    own: Option<Listing>,
}

/// The question for the link's own subscriptions.
struct Listing {
    inquiry: Inquiry,
    /// Subscriptions at the peer that stand for brokers behind it, by topic: they keep one of the
    /// link's own, and make none.
    onward: BTreeMap<Destination, Vec<RemoteConsumer>>,
    /// The peer has listed all of its subscriptions, not only those of included topics.
    all: bool,
}

impl Syncing {
    /// A subscription of the peer has come, perhaps again.
    pub(super) fn has_come(&mut self, holder: &Arc<str>) {
        self.ended.remove(holder);
    }

    /// A subscription of the peer has ended.
    pub(super) fn has_ended(&mut self, holder: &Arc<str>) {
        if self.is_done {
            return;
        }
        self.ended.insert(holder.clone());
        if ENDED_MAX < self.ended.len() {
            (self.ended, self.is_done) = (BTreeSet::new(), true);
        }
    }

    /// A page of the link's own subscriptions.
    pub(super) fn add(&mut self, ticket: Ticket, page: Page) {
        if let Some(own) = self.own.as_mut().filter(|own| own.inquiry.has_asked(ticket)) {
            own.inquiry.add(page);
        }
    }

    pub(super) fn has_asked(&self, ticket: Ticket) -> bool {
        self.own.as_ref().is_some_and(|own| own.inquiry.has_asked(ticket))
    }
}

impl DemandEngine {
    /// The peer's durable subscriptions: readers or not, they want messages.
    pub(super) fn sync(
        &mut self,
        of_peer: Vec<RemoteConsumer>,
        all: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        if std::mem::replace(&mut self.syncing.is_done, true) {
            return Ok(());
        }
        let ended = std::mem::take(&mut self.syncing.ended);
        let mut onward: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for consumer in of_peer {
            let holder = consumer.subscription.as_ref().map(holder_of);
            match &consumer.sources[..] {
                _ if holder.is_none_or(|holder| ended.contains(&holder)) => {}
                [source] if !consumer.path.is_empty() => {
                    onward.entry(source.clone()).or_default().push(consumer);
                }
                _ => self.has_come(consumer, events)?,
            }
        }
        self.list_own(None, (onward, all), events);
        self.count(|_| ());
        Ok(())
    }

    fn list_own(
        &mut self,
        after: Option<RowKey>,
        (onward, all): (BTreeMap<Destination, Vec<RemoteConsumer>>, bool),
        events: &mut Vec<Event>,
    ) {
        let Some(connection) = self.link.as_ref().map(|link| link.connection) else { return };
        let question = Question::Subscriptions { prefix: self.name_at("") };
        let inquiry = Inquiry::new(question, after, (connection, self.ticket()), events);
        self.syncing.own = Some(Listing { inquiry, onward, all });
    }

    /// The core has listed the link's own subscriptions.
    pub(super) fn listed(
        &mut self,
        result: &Result<(), Refusal>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let Some(Listing { inquiry, mut onward, all }) = self.syncing.own.take() else { return Ok(()) };
        if let Err(refusal) = result {
            self.remark = Some(format!("durable subscriptions of the link cannot be listed: {refusal}"));
            return Ok(());
        }
        let page = inquiry.page();
        for row in page.rows {
            let Row::Queue(row) = row else { continue };
            let (topic, Some(name)) = (row.destination, row.subscription) else { continue };
            // Another connection, or another link to the same peer, may have the others.
            let is_included = |topic: &Destination| self.options.include.iter().any(|of| matches(of, topic));
            let is_ours = topic.kind == DestinationKind::Topic
                && self.options.share.has(&topic)
                && self.is_permitted(&topic)
                && (all || is_included(&topic))
                && *name == *self.name_at(&topic.name);
            if !is_ours {
                continue;
            }
            for consumer in onward.remove(&topic).unwrap_or_default() {
                self.has_come(consumer, events)?;
            }
            let target = Target::of(topic, Arc::default(), true);
            if !self.targets.contains_key(&target) && !self.ending.contains(&target) {
                self.unsubscribe(name, events);
            }
        }
        if page.next.is_some() {
            self.list_own(page.next, (onward, all), events);
        }
        self.count(|_| ());
        Ok(())
    }

    /// A subscription of the link is drained: it ends if it was durable, and begins again if it is
    /// wanted again. `false` if it does not end.
    pub(super) fn end_durable(&mut self, target: &Target, events: &mut Vec<Event>) -> bool {
        if !self.ending.contains(target) {
            return false;
        }
        // That of a pattern has a reader in each partition.
        if target.source.is_pattern() && self.subscriptions.values().any(|other| other.target == *target) {
            return true;
        }
        self.ending.remove(target);
        if let Some(name) = self.subscription_of(target) {
            self.unsubscribe(name, events);
        }
        if self.targets.contains_key(target) {
            self.subscribe(target, events);
        }
        true
    }

    fn unsubscribe(&mut self, name: Arc<str>, events: &mut Vec<Event>) {
        let Some(connection) = self.link.as_ref().map(|link| link.connection) else { return };
        let ticket = self.ticket();
        events.push(Event::Unsubscribe { name, connection, ticket });
    }

    /// The broker's name of the link's durable subscription.
    pub(super) fn subscription_of(&self, target: &Target) -> Option<Arc<str>> {
        target.is_durable.then(|| self.name_at(&target.source.name))
    }

    /// As [`DemandEngine::subscription_of`]; without a topic the beginning of all such names.
    fn name_at(&self, topic: &str) -> Arc<str> {
        let Some(link) = &self.link else { return Arc::default() };
        let name = format!("{DURABLE_PREFIX}{}_{topic}", link.broker_name);
        model::Subscription::name_of(NO_USER, &client_at(link), &name)
    }
}

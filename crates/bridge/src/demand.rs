//! The demand engine: subscribes here for consumers of a peer, and settles the messages that the
//! peer has taken.
//!
//! ```text
//!   remote consumer ──▶ target (destination, selector) ──▶ subscription ──▶ deliveries ──▶ responses ──▶ accepted
//!   last one goes   ──▶ subscription drains: no more credit, its deliveries are answered, then it detaches
//! ```
//! Consumers with the same target share one subscription, whose window is the sum of their
//! prefetches. A topic has one subscription whatever its consumers select: two would forward a
//! message twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{
    self as model, Attach, ConsumerKey, ConsumerMode, ConsumerNotice, Deadline, Delivered, Destination,
    DestinationKind, DetachCause, EntryTag, Event, LinkBar, LinkFigures, NetworkPath, Outcome, Page,
    PartitionId, Refusal, Settle, Share, Ticket,
};
use postroad_openwire::network::{
    CreditQuestion, DURABLE_PREFIX, Demand, FORWARDER_NUMBER, FORWARDER_TICKET, Forwarder, INBOUND, Link,
    LinkOptions, RemoteConsumer,
};
use rustc_hash::FxHashMap;

use crate::credit::FarCredit;
use crate::pattern::matches;
use durables::Syncing;
use moving::Moving;
use refused::Refused;
use resting::Resting;
pub use selector::PATH;
use selector::selector_for;

/// Remote consumers and durable subscriptions that one link knows of.
const HOLDERS_MAX: usize = 65_536;

/// Subscriptions over a link belong to the user without a name.
const NO_USER: &str = "";

/// Topics of the brokers themselves, which links read in their own way.
const ADVISORY_PREFIX: &str = "ActiveMQ.Advisory.";

/// Holder of the demand for static destinations.
const STATIC: &str = "static";

/// See the module.
pub struct DemandEngine {
    options: LinkOptions,
    link: Option<Link>,
    last_number: u32,
    last_ticket: u64,
    /// The targets of each remote consumer, and of each durable subscription.
    holders: BTreeMap<Arc<str>, Vec<Target>>,
    targets: BTreeMap<Target, Wanted>,
    subscriptions: BTreeMap<u32, Subscription>,
    /// Messages that the peer has not answered, by the number of the command.
    in_flight: FxHashMap<i32, (ConsumerKey, EntryTag)>,
    /// Messages that the peer has refused, by the time at which they are given back.
    resting: BTreeMap<u64, Vec<Resting>>,
    /// Questions that the peer has not answered, by the number of the command.
    asked: FxHashMap<i32, u32>,
    /// Subscriptions for which the peer is to be asked.
    to_ask: BTreeSet<u32>,
    remark: Option<String>,
    attaching: FxHashMap<Ticket, u32>,
    declaring: FxHashMap<Ticket, Destination>,
    temporaries: BTreeSet<Destination>,
    /// Temporary destinations that are gone at the peer, and that a subscription here still reads.
    deleting: BTreeSet<Destination>,
    /// Durable subscriptions whose last consumer has gone, and that end once they are drained.
    ending: BTreeSet<Target>,
    syncing: Syncing,
    moving: Moving,
    refused: Refused,
}

/// The target of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    source: Destination,
    /// The consumers' own; always empty for topics.
    selector: Arc<str>,
    is_durable: bool,
    /// The name of a subscription here whose subscriber reads it at the peer: it is taken there.
    moves: Option<Arc<str>>,
}

impl Target {
    /// The messages of a destination.
    fn of(source: Destination, selector: Arc<str>, is_durable: bool) -> Target {
        Target { source, selector, is_durable, moves: None }
    }
}

/// A target with those who want it.
#[derive(Debug, Default)]
struct Wanted {
    /// How much each holder takes ahead, and all of them together.
    by: BTreeMap<Arc<str>, u32>,
    ahead: u64,
    /// Where the demand comes from; see [`NetworkPath`].
    path: Vec<Arc<str>>,
    stands_for: Vec<Arc<str>>,
    /// Some of them are behind the peer.
    onward: bool,
    /// The subscriptions; one for each partition if the source is a pattern.
    numbers: Vec<u32>,
    /// Where the core has refused a subscription.
    refused: Vec<Option<PartitionId>>,
}

/// One consumer of the core.
#[derive(Debug)]
struct Subscription {
    target: Target,
    at: Option<PartitionId>,
    /// Messages that it may have in flight.
    window: u32,
    /// Credit that the core has for it, and messages in flight.
    granted: u32,
    /// Messages that the peer has not answered.
    unanswered: u32,
    /// Messages that the peer has refused since it took one.
    refusals: u32,
    /// How many messages consumers at the peer would take, if it can be asked.
    far: Option<FarCredit>,
    closing: Closing,
}

/// The state of a subscription that has lost its last consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// It is needed.
    No,
    /// The core may still deliver.
    Draining,
    /// The core delivers no more; the peer may still answer.
    Drained,
}

impl DemandEngine {
    /// An engine that knows no demand yet.
    pub fn new(options: LinkOptions) -> DemandEngine {
        DemandEngine {
            options,
            link: None,
            last_number: 0,
            last_ticket: 0,
            holders: BTreeMap::new(),
            targets: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            in_flight: FxHashMap::default(),
            resting: BTreeMap::new(),
            asked: FxHashMap::default(),
            to_ask: BTreeSet::new(),
            remark: None,
            attaching: FxHashMap::default(),
            declaring: FxHashMap::default(),
            temporaries: BTreeSet::new(),
            deleting: BTreeSet::new(),
            ending: BTreeSet::new(),
            syncing: Syncing::default(),
            moving: Moving::default(),
            refused: Refused::default(),
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(FORWARDER_TICKET | self.last_ticket)
    }

    /// Whether messages of this destination may leave by the link.
    fn is_permitted(&self, destination: &Destination) -> bool {
        if destination.name.starts_with(ADVISORY_PREFIX) {
            return false;
        }
        if destination.temporary {
            return self.options.temporaries;
        }
        let named = |list: &[Destination]| list.iter().any(|pattern| matches(pattern, destination));
        // Ordinary demand stays within a swimlane.
        let takes_all =
            self.options.include.is_empty() && !self.link.as_ref().is_some_and(|link| link.crosses_swimlanes);
        !named(&self.options.exclude)
            && (takes_all || named(&self.options.statics) || named(&self.options.include))
    }

    fn has_come(&mut self, consumer: RemoteConsumer, events: &mut Vec<Event>) -> Result<(), String> {
        let Some(link) = &self.link else { return Ok(()) };
        let hops = i64::try_from(consumer.path.len()).unwrap_or(i64::MAX);
        let is_far = 0 <= self.options.consumer_ttl && i64::from(self.options.consumer_ttl) <= hops;
        if consumer.browses {
            return Ok(());
        }
        let holder = match &consumer.subscription {
            Some(subscription) => holder_of(subscription),
            None => consumer.id.clone(),
        };
        let bar = match consumer.path.contains(&link.broker_id) {
            true => Some(LinkBar::OwnPath),
            false => is_far.then_some(LinkBar::TooFar),
        };
        if let Some(bar) = bar {
            let is_here = |source: &&Destination| {
                let is_queue = source.kind == DestinationKind::Queue && !source.temporary;
                is_queue && !source.is_pattern() && self.options.share.has(source)
            };
            let sources = consumer.sources.iter().filter(is_here);
            sources.for_each(|source| link.figures.queues.barred(source, &holder, bar));
            return Ok(());
        }
        let (sources, excluded): (Vec<_>, Vec<_>) =
            consumer.sources.iter().cloned().partition(|source| self.is_permitted(source));
        let can_wait = |source: &&Destination| source.kind == DestinationKind::Queue && !source.temporary;
        let waits_here = |source: &&Destination| can_wait(source) && self.options.share.has(source);
        for source in excluded.iter().filter(waits_here).filter(|source| !source.is_pattern()) {
            link.figures.queues.excluded(source, &holder);
        }
        self.syncing.has_come(&holder);
        // A durable subscription may have changed its topic before the end of the former one is
        // known.
        let known = self.holders.get(&holder);
        let is_known =
            |source: &Destination| known.is_some_and(|known| known.iter().any(|of| of.source == *source));
        let sources: Vec<_> = sources.into_iter().filter(|source| !is_known(source)).collect();
        if sources.is_empty() {
            return Ok(());
        }
        if known.is_none() && HOLDERS_MAX <= self.holders.len() {
            return Err(format!("the peer has more than {HOLDERS_MAX} consumers"));
        }
        for source in sources {
            if source.temporary {
                self.declare(source.clone(), true, events);
            }
            if !self.options.share.has(&source) {
                continue;
            }
            let is_topic = source.kind == DestinationKind::Topic;
            let selector = if is_topic { Arc::default() } else { consumer.selector.clone() };
            let is_durable = is_topic && consumer.subscription.is_some();
            let target = Target::of(source, selector, is_durable);
            self.want(target, (holder.clone(), consumer.prefetch), &consumer, events);
        }
        Ok(())
    }

    fn change(&mut self, change: Demand, events: &mut Vec<Event>) -> Result<(), String> {
        match change {
            Demand::Consumer(consumer) => {
                self.has_come(consumer.clone(), events)?;
                // The link's own subscription is there before another one is set aside.
                self.follow(&consumer, events);
            }
            Demand::Gone { id } => {
                self.release(&id, None, events);
                self.follow_no_more(&id, events);
            }
            Demand::Unsubscribed { subscription, topic } => {
                let holder = holder_of(&subscription);
                self.syncing.has_ended(&holder);
                self.release(&holder, topic.as_ref(), events);
            }
            Demand::Temporary { destination, present: true } => self.declare(destination, false, events),
            Demand::Temporary { destination, present: false } => self.delete(destination, events),
        }
        Ok(())
    }

    fn want(
        &mut self,
        target: Target,
        (holder, prefetch): (Arc<str>, u32),
        consumer: &RemoteConsumer,
        events: &mut Vec<Event>,
    ) {
        let targets = self.holders.entry(holder.clone()).or_default();
        targets.push(target.clone());
        let wanted = self.targets.entry(target.clone()).or_default();
        let ahead = prefetch.max(1);
        wanted.by.insert(holder, ahead);
        wanted.ahead += u64::from(ahead);
        wanted.onward |= !consumer.path.is_empty();
        if wanted.numbers.is_empty() {
            wanted.path.clone_from(&consumer.path);
            wanted.stands_for = vec![consumer.id.clone()];
            wanted.stands_for.extend(consumer.stands_for.iter().cloned());
            wanted.refused.clear();
            self.subscribe(&target, events);
        } else {
            self.each_far(&target, FarCredit::gained);
            self.resize(&target, events);
            refused::try_refused(self, &target, events);
        }
    }

    /// A holder wants nothing any more, or nothing of one topic.
    fn release(&mut self, holder: &Arc<str>, only: Option<&Destination>, events: &mut Vec<Event>) {
        self.link.iter().for_each(|link| link.figures.queues.released(holder));
        let targets = self.holders.remove(holder).unwrap_or_default();
        let (released, kept): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|target| only.is_none_or(|only| *only == target.source));
        if !kept.is_empty() {
            self.holders.insert(holder.clone(), kept);
        }
        for target in released {
            let Some(wanted) = self.targets.get_mut(&target) else { continue };
            wanted.ahead -= u64::from(wanted.by.remove(holder).unwrap_or(0));
            if wanted.by.is_empty() {
                self.withdraw(&target, events);
            } else {
                self.resize(&target, events);
            }
        }
    }

    /// Where the peer counts the credit of its consumers, no more goes than they would take.
    fn far_credit(&self, target: &Target) -> Option<FarCredit> {
        let Target { source, .. } = target;
        let is_static = self.targets.get(target).is_some_and(|wanted| wanted.by.contains_key(STATIC));
        let counts = self.link.as_ref().is_some_and(|link| link.counts_credit)
            && source.kind == DestinationKind::Queue
            && !source.temporary
            && !source.is_pattern()
            && !is_static;
        let mut far = FarCredit::default();
        far.gained();
        counts.then_some(far)
    }

    /// When the peer is to be asked for a subscription.
    fn ask_ms(&self, number: u32) -> Option<u64> {
        let subscription = self.subscriptions.get(&number).filter(|of| of.closing == Closing::No)?;
        subscription.far.as_ref()?.due_ms()
    }

    /// The credit of a subscription has changed.
    fn note_question(&mut self, number: u32) {
        match self.ask_ms(number) {
            Some(_) => self.to_ask.insert(number),
            None => self.to_ask.remove(&number),
        };
    }

    fn each_far(&mut self, target: &Target, change: fn(&mut FarCredit)) {
        let Some(wanted) = self.targets.get(target) else { return };
        for number in &wanted.numbers {
            let far = self.subscriptions.get_mut(number).and_then(|of| of.far.as_mut());
            far.into_iter().for_each(change);
        }
    }

    fn window_of(&self, wanted: &Wanted) -> u32 {
        let ahead = u32::try_from(wanted.ahead).unwrap_or(u32::MAX);
        ahead.clamp(1, self.options.prefetch.max(1))
    }

    fn subscribe(&mut self, target: &Target, events: &mut Vec<Event>) {
        if self.ending.contains(target) {
            // A new one begins after that.
            return;
        }
        let (Some(link), Some(wanted)) = (&self.link, self.targets.get(target)) else { return };
        let window = self.window_of(wanted);
        let everywhere = (0..link.partitions).map(|partition| Some(PartitionId(partition)));
        let places: Vec<_> = if target.source.is_pattern() { everywhere.collect() } else { vec![None] };
        for at in places {
            self.attach(target, at, window, events);
        }
    }

    fn attach(&mut self, target: &Target, at: Option<PartitionId>, window: u32, events: &mut Vec<Event>) {
        let ticket = self.ticket();
        self.last_number += 1;
        let number = FORWARDER_NUMBER | self.last_number;
        let Some(attach) = self.attach_of(target, at, (number, window, ticket)) else { return };
        let far = self.far_credit(target);
        let granted = if far.is_some() { 1 } else { window };
        let attach = Attach { credit: granted, ..attach };
        let Some(wanted) = self.targets.get_mut(target) else { return };
        wanted.numbers.push(number);
        self.attaching.insert(ticket, number);
        if let Some(link) = &self.link
            && target.source.kind == DestinationKind::Queue
            && !target.source.is_pattern()
        {
            link.figures.queues.subscribed(attach.consumer, &target.source);
        }
        self.moving.attached(number, target);
        let (target, closing) = (target.clone(), Closing::No);
        let subscription =
            Subscription { target, at, window, granted, unanswered: 0, refusals: 0, far, closing };
        self.subscriptions.insert(number, subscription);
        events.push(Event::Attach(attach));
    }

    fn attach_of(
        &self,
        target: &Target,
        at: Option<PartitionId>,
        (number, credit, ticket): (u32, u32, Ticket),
    ) -> Option<Attach> {
        let (link, wanted) = (self.link.as_ref()?, self.targets.get(target)?);
        if let Some(name) = &target.moves {
            return Some(self.attach_moving(target, name, (number, credit, ticket)));
        }
        // A message of a topic that came back would be another one.
        let may_return = link.counts_credit && target.source.kind == DestinationKind::Queue;
        let client = client_at(link);
        let name = format!("{DURABLE_PREFIX}{}_{}", link.broker_name, target.source.name);
        let subscription = self.subscription_of(target);
        let mut brokers = wanted.path.clone();
        brokers.push(link.peer_id.clone());
        let priority = self.priority_at(brokers.len());
        let notice = at.is_none_or(|at| at == PartitionId(0)).then(|| {
            Arc::new(ConsumerNotice {
                name: format!(
                    "{}-{}-{}:1:{number}",
                    link.broker_id,
                    link.connection.core(),
                    link.connection.number()
                )
                .into(),
                source: target.source.clone(),
                mode: ConsumerMode::Shared,
                prefetch: credit,
                priority,
                no_local: false,
                retroactive: false,
                selector: target.selector.clone(),
                subscription: target.is_durable.then(|| name.as_str().into()),
                durable: None,
                since_ms: 0,
                client_id: client.clone(),
                network: Some(NetworkPath { brokers, consumers: wanted.stands_for.clone() }),
            })
        });
        Some(Attach {
            consumer: ConsumerKey::new(link.connection, number),
            source: target.source.clone(),
            at,
            mode: ConsumerMode::Shared,
            credit,
            credit_by_default: false,
            priority,
            no_local: false,
            steals: match target.is_durable {
                true => Some(format!("link {client}").into()),
                false => self.heir_of(target),
            },
            client: Some(client),
            selector: selector_for(&target.selector, (&link.peer_id, may_return), self.options.message_ttl),
            subscription,
            share: Share::No,
            retroactive: false,
            notice,
            ticket,
        })
    }

    /// One broker away: the base; further away, lower by the brokers in between, as ActiveMQ has
    /// it.
    fn priority_at(&self, brokers: usize) -> i8 {
        let further = if self.options.decreases_priority && 1 < brokers { brokers + 1 } else { 0 };
        let priority = i64::from(self.options.priority) - i64::try_from(further).unwrap_or(i64::MAX);
        i8::try_from(priority).unwrap_or(i8::MIN)
    }

    /// Others want the target too, or fewer do.
    fn resize(&mut self, target: &Target, events: &mut Vec<Event>) {
        let Some(wanted) = self.targets.get(target) else { return };
        let (window, numbers) = (self.window_of(wanted), wanted.numbers.clone());
        for number in numbers {
            if let Some(subscription) = self.subscriptions.get_mut(&number) {
                subscription.window = window;
            }
            self.refill(number, events);
        }
    }

    /// Gives the core credit up to the window.
    fn refill(&mut self, number: u32, events: &mut Vec<Event>) {
        let (Some(link), Some(subscription)) = (&self.link, self.subscriptions.get_mut(&number)) else {
            return;
        };
        // Where all is refused, one message at a time shows when that ends.
        let mut window =
            if 0 < subscription.refusals { subscription.window.min(1) } else { subscription.window };
        if let Some(far) = &subscription.far {
            let ahead = if 0 < subscription.refusals { 0 } else { far.ahead() };
            let may_go = subscription.unanswered.saturating_add(far.for_core());
            window = window.saturating_add(ahead).min(may_go);
        }
        let add = window.saturating_sub(subscription.granted);
        if subscription.closing == Closing::No && 0 < add {
            subscription.granted += add;
            events.push(Event::Credit { consumer: ConsumerKey::new(link.connection, number), add });
        }
    }

    fn withdraw(&mut self, target: &Target, events: &mut Vec<Event>) {
        let Some(link) = &self.link else { return };
        let Some(wanted) = self.targets.remove(target) else { return };
        if target.is_durable && !wanted.numbers.is_empty() {
            self.ending.insert(target.clone());
        }
        for number in wanted.numbers {
            if let Some(subscription) = self.subscriptions.get_mut(&number) {
                subscription.closing = Closing::Draining;
                let consumer = ConsumerKey::new(link.connection, number);
                link.figures.queues.unsubscribed(consumer);
                events.push(Event::Drain { consumer });
            }
        }
    }

    /// Ends a subscription once nothing of it is on its way.
    fn end_if_done(&mut self, number: u32, events: &mut Vec<Event>) {
        let is_done = self.subscriptions.get(&number).is_some_and(|subscription| {
            subscription.closing == Closing::Drained && subscription.unanswered == 0
        });
        if let (true, Some(link)) = (is_done, &self.link) {
            let consumer = ConsumerKey::new(link.connection, number);
            let subscription = self.subscriptions.remove(&number);
            self.moving.detached(number);
            events.push(Event::Detach { consumer, delivered: Delivered::None, ticket: None });
            if let Some(Subscription { target, .. }) = subscription {
                self.end_durable(&target, events);
                self.delete_if_unread(target.source, events);
            }
        }
    }

    /// Updates the figures for operators.
    fn count(&self, of_answer: impl FnOnce(&LinkFigures)) {
        let Some(link) = &self.link else { return };
        of_answer(&link.figures);
        link.figures.demand.set(self.holders.len() as u64);
        link.figures.in_flight.set(self.in_flight.len() as u64);
    }

    /// A message of the subscription has left the window.
    fn settled(&mut self, number: u32, events: &mut Vec<Event>) {
        if let Some(subscription) = self.subscriptions.get_mut(&number) {
            subscription.unanswered = subscription.unanswered.saturating_sub(1);
            subscription.granted = subscription.granted.saturating_sub(1);
        }
        self.refill(number, events);
        self.end_if_done(number, events);
    }
}

impl Forwarder for DemandEngine {
    fn begin(&mut self, link: Link, events: &mut Vec<Event>) {
        self.link = Some(link);
        self.recover(events);
        let share = self.options.share;
        for source in self.options.statics.clone().into_iter().filter(|source| share.has(source)) {
            let target = Target::of(source, Arc::default(), false);
            let holder = (STATIC.into(), self.options.prefetch);
            self.want(target, holder, &RemoteConsumer::default(), events);
        }
    }

    fn demand(&mut self, change: Demand, events: &mut Vec<Event>) -> Result<(), String> {
        let known = self.change(change, events);
        self.count(|_| ());
        known
    }

    fn subscriptions(
        &mut self,
        of_peer: Vec<RemoteConsumer>,
        all: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        self.sync(of_peer, all, events)
    }

    fn page(&mut self, ticket: Ticket, page: Page) {
        self.syncing.add(ticket, page);
    }

    fn has_consumer(&self, number: u32) -> bool {
        self.subscriptions.contains_key(&number)
    }

    fn admit(
        &mut self,
        consumer: ConsumerKey,
        tag: EntryTag,
        now_ms: u64,
        events: &mut Vec<Event>,
    ) -> Option<Destination> {
        let subscription = self.subscriptions.get_mut(&consumer.number)?;
        let is_wanted = subscription.closing == Closing::No
            && subscription.far.as_mut().is_none_or(|far| far.take(now_ms));
        if is_wanted {
            self.moving.touched(consumer.number, now_ms);
            subscription.unanswered += 1;
            let source = subscription.target.source.clone();
            self.note_question(consumer.number);
            self.refill(consumer.number, events);
            return Some(source);
        }
        // No consumer there would take it: to forward it would strand it there.
        subscription.granted = subscription.granted.saturating_sub(1);
        self.note_question(consumer.number);
        events.push(settle(consumer, tag, Outcome::Released { failed: false }));
        None
    }

    fn sent(&mut self, request: i32, consumer: ConsumerKey, tag: EntryTag) {
        self.in_flight.insert(request, (consumer, tag));
        self.count(|_| ());
    }

    fn unsendable(&mut self, consumer: ConsumerKey, tag: EntryTag, reason: &str, events: &mut Vec<Event>) {
        events.push(Event::Settle(Settle::rejected(consumer, tag, reason)));
        self.settled(consumer.number, events);
    }

    fn answered(&mut self, request: i32, refused: Option<&str>, now_ms: u64, events: &mut Vec<Event>) {
        let Some((consumer, tag)) = self.in_flight.remove(&request) else {
            // A question that the peer does not understand.
            return self.credit(request, 0, now_ms, events);
        };
        self.moving.touched(consumer.number, now_ms);
        let subscription = self.subscriptions.get_mut(&consumer.number);
        let is_temporary = subscription.as_ref().is_some_and(|known| known.target.source.temporary);
        match refused {
            None => {
                subscription.into_iter().for_each(|known| known.refusals = 0);
                events.push(settle(consumer, tag, Outcome::Accepted));
            }
            // Its destination has gone with its connection.
            Some(reason) if is_temporary => {
                events.push(Event::Settle(Settle::rejected(consumer, tag, reason)));
            }
            Some(reason) => self.rest((consumer, tag), reason, now_ms),
        }
        self.count(|figures| match refused {
            None => figures.forwarded.add(1),
            Some(_) => figures.refused.add(1),
        });
        if refused.is_none() || is_temporary {
            self.settled(consumer.number, events);
        }
    }

    fn awaits(&self, request: i32) -> bool {
        self.in_flight.contains_key(&request)
    }

    fn deadline(&self) -> Deadline {
        let rest = self.resting.first_key_value().map(|(due_ms, _)| *due_ms);
        let ask = |number: &u32| self.ask_ms(*number);
        let others = self.moving.next_ms().into_iter().chain(self.refused.next_ms());
        rest.into_iter().chain(self.to_ask.iter().filter_map(ask)).chain(others).min()
    }

    fn question(&mut self, now_ms: u64) -> Option<CreditQuestion> {
        let is_due = |number: &u32| self.ask_ms(*number).is_some_and(|due_ms| due_ms <= now_ms);
        let number = self.to_ask.iter().copied().find(is_due)?;
        let subscription = self.subscriptions.get_mut(&number)?;
        subscription.far.as_mut()?.asked(now_ms);
        let Target { source, selector, .. } = subscription.target.clone();
        let onward = self.targets.get(&subscription.target).is_some_and(|wanted| wanted.onward);
        self.note_question(number);
        Some(CreditQuestion { number, source, selector, onward })
    }

    fn asked(&mut self, request: i32, question: &CreditQuestion) {
        self.asked.insert(request, question.number);
    }

    fn credit(&mut self, request: i32, credit: u32, now_ms: u64, events: &mut Vec<Event>) {
        let Some(number) = self.asked.remove(&request) else { return };
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return };
        let (unanswered, window) = (subscription.unanswered, subscription.window);
        if let Some(far) = &mut subscription.far {
            far.answered(credit, unanswered, window, now_ms);
        }
        self.note_question(number);
        self.refill(number, events);
    }

    fn wake(&mut self, now_ms: u64, events: &mut Vec<Event>) {
        self.wake_resting(now_ms, events);
        self.move_on(now_ms, events);
        refused::wake(self, now_ms, events);
    }

    fn only_for(&self, consumer: ConsumerKey) -> Option<Arc<str>> {
        self.subscriptions.get(&consumer.number)?.target.moves.clone()
    }

    fn remark(&mut self) -> Option<String> {
        self.remark.take()
    }

    fn replied(
        &mut self,
        ticket: Ticket,
        result: Result<(), Refusal>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        if let Some(destination) = self.declaring.remove(&ticket)
            && result.is_ok()
        {
            self.temporaries.insert(destination);
        }
        if self.syncing.has_asked(ticket) {
            return self.listed(&result, events);
        }
        if self.moving.has_ended(ticket) {
            self.end_of_moved(ticket, &result, events);
            return Ok(());
        }
        refused::attach_answered(self, ticket, result, events)
    }

    fn drained(&mut self, number: u32, events: &mut Vec<Event>) {
        self.give_way(number);
        if let Some(subscription) = self.subscriptions.get_mut(&number) {
            subscription.closing = Closing::Drained;
        }
        self.end_if_done(number, events);
    }

    fn detached(&mut self, number: u32, cause: DetachCause, events: &mut Vec<Event>) {
        let Some(subscription) = self.subscriptions.remove(&number) else { return };
        if let Some(link) = &self.link {
            link.figures.queues.unsubscribed(ConsumerKey::new(link.connection, number));
        }
        self.moving.detached(number);
        self.in_flight.retain(|_, (consumer, _)| consumer.number != number);
        self.resting.values_mut().for_each(|resting| resting.retain(|each| each.consumer.number != number));
        self.count_resting();
        if self.end_durable(&subscription.target, events) {
            return;
        }
        let Some(wanted) = self.targets.get_mut(&subscription.target).filter(|_| 0 < subscription.window)
        else {
            return;
        };
        wanted.numbers.retain(|other| *other != number);
        // Another link of the same name reads a stolen one; a temporary destination has gone for
        // good.
        if cause != DetachCause::Stolen && !subscription.target.source.temporary {
            self.attach(&subscription.target, subscription.at, subscription.window, events);
        }
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        let Some(link) = self.link.take() else { return };
        for (number, subscription) in std::mem::take(&mut self.subscriptions) {
            let consumer = ConsumerKey::new(link.connection, number);
            let delivered = self.left_by(&link, &subscription);
            events.push(Event::Detach { consumer, delivered, ticket: None });
        }
    }
}

fn settle(consumer: ConsumerKey, tag: EntryTag, outcome: Outcome) -> Event {
    let (tags, transaction, reason, ticket) = (vec![tag], None, None, None);
    Event::Settle(Settle { consumer, tags, outcome, transaction, reason, ticket })
}

/// The client of the link's subscriptions. Two peers may have the same name; the id of another
/// broker changes when it is restarted.
fn client_at(link: &Link) -> Arc<str> {
    let peer = if link.counts_credit { &link.peer_id } else { &link.peer_name };
    format!("{peer}{INBOUND}{}", link.broker_name).into()
}

/// A durable subscription wants messages whether its consumer is there or not.
fn holder_of((client, name): &(Arc<str>, Arc<str>)) -> Arc<str> {
    format!("subscription {}", model::Subscription::name_of(NO_USER, client, name)).into()
}

mod durables;
mod moving;
mod recovery;
mod refused;
mod resting;
mod selector;
mod temporary;

#[cfg(test)]
mod tests;

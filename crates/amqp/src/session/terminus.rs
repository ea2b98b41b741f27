//! Termini (3.5): the node of a link, and the requested features that are met.

use std::sync::Arc;

use postroad_model::{
    self as model, ConsumerMode, ConsumerNotice, Destination, DestinationKind, Event, PartitionId,
    ProducerNotice, Share, Subscription,
};

use super::address;
use super::delay::DELAYED_DELIVERY;
use super::fault::error;
use super::incoming::{Incoming, To};
use super::link::{Attaching, LinkAt, LinkEnd, answer_to, source_of};
use super::outgoing::Outgoing;
use super::replies::Then;
use super::{AmqpSession, Turn};
use crate::codec::{
    Attach, Coordinator, Described, DistributionMode, Error, SenderSettleMode, Source, SourceTerminus,
    Symbol, Target, TargetTerminus, TerminusDurability, TerminusExpiry, Text, Value, ValueMap,
};

/// Number and name of the filter that is a JMS selector (registered with the Apache filters).
const SELECTOR: (u64, &str) = (0x0000_468c_0000_0004, "apache.org:selector-filter:string");

/// Number and name of the filter that skips messages of the link's own connection.
const NO_LOCAL: (u64, &str) = (0x0000_468c_0000_0003, "apache.org:no-local-filter:list");

/// The capabilities of transactions here (4.5.7).
const TRANSACTIONS: [&str; 2] = ["amqp:local-transactions", "amqp:multi-txns-per-ssn"];

/// Number of the lifetime policy of a node that ends with its link (3.5.10).
const DELETE_ON_CLOSE: u64 = 0x2b;

/// Capability of a source that is a subscription with several readers.
const SHARED: &str = "shared";

/// Capability of a source that is a subscription for all containers.
const GLOBAL: &str = "global";

/// The suffix in the name of a link distinguishes several readers of one subscription, as in the
/// client `qpid-jms` (`AmqpSubscriptionTracker`): `news`, `news|2`, `news|volatile1`,
/// `news|global`.
const SUFFIX: char = '|';

/// The first reader's suffix in a subscription for all containers.
const GLOBAL_SUFFIX: &str = "|global";

/// The filters of a source that are met.
#[derive(Debug, Default, PartialEq)]
struct Filters {
    selector: Arc<str>,
    no_local: bool,
    /// Those of the client's that are met: the others are left out of the answer (3.5.8).
    met: ValueMap,
}

impl Filters {
    fn of(source: &Source) -> Result<Filters, Error> {
        let mut filters = Filters::default();
        for (name, filter) in source.filter.iter().flat_map(|filter| &filter.0) {
            let Value::Described(described) = filter else { continue };
            if is_filter(described, SELECTOR) {
                let Value::String(selector) = &described.value else {
                    return Err(error("amqp:invalid-field", "the selector is not a string"));
                };
                filters.selector = selector.as_str().into();
            } else if is_filter(described, NO_LOCAL) {
                filters.no_local = true;
            } else {
                continue;
            }
            filters.met.0.push((name.clone(), filter.clone()));
        }
        Ok(filters)
    }
}

/// How long a source lasts here, which its answer says whatever was wished for (3.5.3): a durable
/// subscription until it is ended, anything else no longer than its link.
fn kept(source: &Source, subscription: bool) -> (TerminusDurability, TerminusExpiry) {
    match subscription {
        true => (source.durable, TerminusExpiry::Never),
        false => (TerminusDurability::None, TerminusExpiry::LinkDetach),
    }
}

/// How a source gives its messages away (3.3.2), which an answer says where there is a choice: of a
/// queue they are taken unless the client wants copies. Of a topic everybody has copies of its own,
/// and nothing is to be chosen.
fn mode_of(source: &Source, from: &Destination) -> Option<DistributionMode> {
    match from.kind {
        DestinationKind::Queue => Some(source.distribution_mode.unwrap_or(DistributionMode::Move)),
        DestinationKind::Topic => source.distribution_mode,
    }
}

/// Those of the wished capabilities that a terminus has: an answer names no others.
fn met(wished: &[Symbol]) -> Vec<Symbol> {
    let is_met = |wish: &&Symbol| {
        **wish == *SHARED
            || **wish == *GLOBAL
            || address::CAPABILITIES.iter().any(|(name, ..)| **wish == *name)
    };
    wished.iter().filter(is_met).cloned().collect()
}

/// The properties of a dynamic node: it ends when the link is closed, or with its connection
/// (3.5.10), regardless of the request.
fn made_properties() -> ValueMap {
    let ends = Described { descriptor: Value::Ulong(DELETE_ON_CLOSE), value: Value::List(Vec::new()) };
    let mut properties = ValueMap::default();
    properties.push("lifetime-policy", Value::Described(Box::new(ends)));
    properties
}

/// The source in the answer to the client: its real properties, regardless of the request.
fn told_source(
    wished: &Source,
    (from, made): (&Destination, Option<&Destination>),
    (durable, expiry_policy): (TerminusDurability, TerminusExpiry),
    met_filters: ValueMap,
) -> Source {
    let address = made.map(|made| address::dynamic_address(made).into());
    Source {
        address: address.or_else(|| wished.address.clone()),
        durable,
        expiry_policy,
        timeout: 0,
        dynamic_node_properties: made.map(|_| made_properties()),
        distribution_mode: mode_of(wished, from),
        filter: Some(met_filters).filter(|met| !met.is_empty()),
        capabilities: met(&wished.capabilities),
        ..wished.clone()
    }
}

/// Our end of a link by which the client receives.
fn outgoing_end(
    attach: &Attach,
    source: &Source,
    numbers: &[u32],
    browses: bool,
    subscription: Option<Arc<str>>,
) -> Outgoing {
    let mut outgoing = Outgoing::new(numbers);
    outgoing.presettled = attach.snd_settle_mode == SenderSettleMode::Settled;
    outgoing.browses = browses;
    outgoing.subscription = subscription;
    outgoing.default_outcome = source.default_outcome.clone();
    outgoing.is_held = attach.incomplete_unsettled;
    outgoing.max_message_bytes = attach.max_message_size.filter(|max| *max > 0).unwrap_or(u64::MAX);
    outgoing
}

/// The precedence that the client wishes for its link among the readers of a node.
fn priority_of(attach: &Attach) -> i8 {
    let priority = AmqpSession::number_in(attach.properties.as_ref(), "priority").unwrap_or(0);
    priority.clamp(i8::MIN.into(), i8::MAX.into()) as i8
}

/// The name of the subscription that a link reads.
fn subscription_name(link: &Text, share: Share) -> &str {
    let name = link.as_str();
    match share {
        Share::No => name,
        _ => name.split_once(SUFFIX).map_or(name, |(name, _)| name),
    }
}

fn is_filter(described: &Described, (code, name): (u64, &str)) -> bool {
    match &described.descriptor {
        Value::Ulong(got) => *got == code,
        Value::Symbol(got) => *got == *name,
        _ => false,
    }
}

impl AmqpSession {
    /// The client wants to send.
    pub(super) fn attach_incoming(
        &mut self,
        at: LinkAt,
        attach: &Attach,
        turn: &mut Turn<'_>,
    ) -> Result<(), Error> {
        let mut answer = answer_to(attach);
        answer.max_message_size = Some(self.options.max_message_bytes);
        let (to, made) = match &attach.target {
            Some(TargetTerminus::Coordinator(_)) => {
                let capabilities = TRANSACTIONS.map(Symbol::from_static).to_vec();
                answer.target = Some(TargetTerminus::Coordinator(Coordinator { capabilities }));
                (To::Coordinator, None)
            }
            Some(TargetTerminus::Target(target)) => {
                answer.offered_capabilities = vec![Symbol::from_static(DELAYED_DELIVERY)];
                self.target(target, &mut answer, turn)?
            }
            Some(TargetTerminus::Other(_)) => {
                return Err(error("amqp:not-implemented", "the target is of an unknown type"));
            }
            None => return Err(error("amqp:invalid-field", "the link has no target")),
        };
        let destination = match &to {
            To::Destination(to) => Some(to),
            _ => None,
        };
        let kept = self.keep_link(at, attach, destination, &mut answer);
        let notice = match &to {
            To::Destination(to) => {
                let (name, to) = (self.notice_name(at.channel, at.number), to.clone());
                Some(Arc::new(ProducerNotice { name, to, window_bytes: 0 }))
            }
            _ => None,
        };
        let Some(link) = self.link_at(at) else { return Ok(()) };
        let (kept, resume) = kept.unzip();
        let mut incoming = Incoming::new(to, attach, notice.clone());
        incoming.kept = kept.map(Box::new);
        link.end = LinkEnd::Incoming(Box::new(incoming));
        link.dynamic = made.clone();
        let attaching = Attaching { at, answer };
        match (made, resume) {
            (None, None) => self.attached(attaching, turn),
            (None, Some(resume)) => self.resume_link(attaching, resume, turn),
            (Some(destination), _) => {
                let ticket = self.replies.wait(1, Then::Attached(Box::new(attaching)));
                turn.events.push(Event::Declare { destination, connection: self.id, steals: None, ticket });
            }
        }
        if let Some(producer) = notice {
            turn.events.push(Event::AddProducer { connection: self.id, producer });
        }
        Ok(())
    }

    /// The name of a link in notices: see [`ConsumerNotice::name`].
    fn notice_name(&self, channel: u16, number: u32) -> Arc<str> {
        format!("{}:{channel}:{number}", self.notice_connection()).into()
    }

    /// Where a target leads, and the node that is made for it.
    fn target(
        &mut self,
        target: &Target,
        answer: &mut Attach,
        turn: &Turn<'_>,
    ) -> Result<(To, Option<Destination>), Error> {
        if target.dynamic {
            let made = self.new_node(&target.capabilities, turn);
            let address = Some(address::dynamic_address(&made).into());
            let dynamic_node_properties = Some(made_properties());
            let made_target = Target {
                address,
                dynamic_node_properties,
                capabilities: met(&target.capabilities),
                ..target.clone()
            };
            answer.target = Some(TargetTerminus::Target(made_target));
            return Ok((To::Destination(made.clone()), Some(made)));
        }
        let met = Target { capabilities: met(&target.capabilities), ..target.clone() };
        answer.target = Some(TargetTerminus::Target(met));
        match target.address.as_ref().filter(|address| !address.is_empty()) {
            // Each message says where it goes ("Using the Anonymous Terminus for Message Routing").
            None => Ok((To::Anywhere, None)),
            Some(address) => {
                let kind = address::kind_of(&target.capabilities);
                let mut destinations = address::destinations(address.as_str(), kind)?;
                match destinations.len() {
                    1 => Ok((To::Destination(destinations.remove(0)), None)),
                    _ => Ok((To::List(destinations.into()), None)),
                }
            }
        }
    }

    /// A destination that is made for a link: its name is like no other's, in this run of the
    /// broker or another.
    fn new_node(&mut self, capabilities: &[Symbol], turn: &Turn<'_>) -> Destination {
        self.temporaries += 1;
        let (kind, _) = address::kind_of(capabilities);
        let (core, wall_ms, count) = (self.id.core(), turn.now.wall_ms, self.temporaries);
        let name = format!("amqp:{wall_ms:x}:{core:x}:{:x}:{count:x}", self.id.number());
        Destination { kind, temporary: true, name: name.into() }
    }

    /// The client wants to receive.
    pub(super) fn attach_outgoing(
        &mut self,
        at: LinkAt,
        attach: &Attach,
        turn: &mut Turn<'_>,
    ) -> Result<(), Error> {
        let mut answer = answer_to(attach);
        answer.max_message_size = Some(self.options.max_message_bytes);
        let Some(source) = source_of(attach)? else { return self.find_subscription(at, attach, turn) };
        let filters = Filters::of(source)?;
        let (sources, made) = self.source(source, turn)?;
        let Some(from) = sources.first().cloned() else { return Ok(()) };
        let (subscription, share) = self.subscription_of(attach, source, &from);
        if subscription.is_some() && sources.len() > 1 {
            return Err(error(
                "amqp:not-implemented",
                "a subscription reads one topic; this source lists several",
            ));
        }
        let browses =
            from.kind == DestinationKind::Queue && mode_of(source, &from) == Some(DistributionMode::Copy);
        let places = self.places_of(&sources);
        let numbers: Vec<u32> = places.iter().map(|_| self.next_number()).collect();
        self.consumers.extend(numbers.iter().map(|number| (*number, at)));
        let lasting = subscription.clone().filter(|_| share != Share::Volatile);
        let outgoing = outgoing_end(attach, source, &numbers, browses, lasting);
        let lasts = kept(source, outgoing.subscription.is_some());
        let told = told_source(source, (&from, made.as_ref()), lasts, filters.met);
        answer.source = Some(SourceTerminus::Source(told));
        if let Some(link) = self.link_at(at) {
            link.end = LinkEnd::Outgoing(Box::new(outgoing));
            link.dynamic = made.clone();
        }
        let answers = numbers.len() as u32 + u32::from(made.is_some());
        let ticket = self.replies.wait(answers, Then::Attached(Box::new(Attaching { at, answer })));
        if let Some(destination) = made {
            turn.events.push(Event::Declare { destination, connection: self.id, steals: None, ticket });
        }
        let mode = if browses { ConsumerMode::Browse } else { ConsumerMode::Shared };
        // Its name is the container's and the link's: who reads it now is this link, left over
        // (2.6.1).
        let steals = subscription.is_some() && share == Share::No;
        let steals = steals.then(|| self.peer.user.clone().unwrap_or_default());
        let part = model::Attach {
            consumer: self.key(numbers[0]),
            source: from,
            mode,
            credit: 0,
            credit_by_default: false,
            priority: priority_of(attach),
            no_local: filters.no_local,
            client: Some(self.peer.container.clone()),
            selector: filters.selector,
            subscription,
            share,
            steals,
            retroactive: false,
            at: None,
            notice: None,
            ticket,
        };
        let notice = Arc::new(self.consumer_notice(at, &attach.name, &part));
        self.attach_parts(&part, notice, numbers.into_iter().zip(places), turn);
        Ok(())
    }

    /// One consumer for each source of a link, alike but for number, source and partition. The link
    /// is announced once.
    fn attach_parts(
        &self,
        part: &model::Attach,
        notice: Arc<ConsumerNotice>,
        sources: impl Iterator<Item = (u32, (Destination, Option<PartitionId>))>,
        turn: &mut Turn<'_>,
    ) {
        let mut notice = Some(notice);
        for (number, (source, at)) in sources {
            let (consumer, notice) = (self.key(number), notice.take());
            let mode = if source.kind == DestinationKind::Topic { ConsumerMode::Shared } else { part.mode };
            turn.events.push(Event::Attach(model::Attach {
                consumer,
                source,
                mode,
                at,
                notice,
                ..part.clone()
            }));
        }
    }

    /// The notice of a link by which the client receives.
    fn consumer_notice(&self, at: LinkAt, link: &Text, part: &model::Attach) -> ConsumerNotice {
        ConsumerNotice {
            network: None,
            name: self.notice_name(at.channel, part.consumer.number),
            source: part.source.clone(),
            mode: part.mode,
            prefetch: 0,
            priority: part.priority,
            no_local: part.no_local,
            retroactive: false,
            selector: part.selector.clone(),
            subscription: part.subscription.is_some().then(|| link.as_str().into()),
            durable: part.subscription.clone().filter(|_| part.share == Share::No),
            since_ms: 0,
            client_id: self.peer.container.clone(),
        }
    }

    /// Where the core has consumers of a source: one of each destination, but for a pattern, which
    /// is read in each partition.
    fn places_of(&self, sources: &[Destination]) -> Vec<(Destination, Option<PartitionId>)> {
        let of_source = |source: &Destination| {
            let everywhere = (0..self.options.partitions).map(|partition| Some(PartitionId(partition)));
            let places = if source.is_pattern() { everywhere.collect() } else { vec![None] };
            let source = source.clone();
            places.into_iter().map(move |at| (source.clone(), at))
        };
        sources.iter().flat_map(of_source).collect()
    }

    /// Where a source leads, to one destination or each of a list, and the node that is made for
    /// it.
    fn source(
        &mut self,
        source: &Source,
        turn: &Turn<'_>,
    ) -> Result<(Vec<Destination>, Option<Destination>), Error> {
        if source.dynamic {
            let made = self.new_node(&source.capabilities, turn);
            return Ok((vec![made.clone()], Some(made)));
        }
        let address = source.address.as_ref();
        let address = address.ok_or_else(|| error("amqp:invalid-field", "the source has no address"))?;
        let kind = address::kind_of(&source.capabilities);
        Ok((address::destinations(address.as_str(), kind)?, None))
    }

    /// The subscription that a source is, if it has a name.
    fn subscription_of(
        &self,
        attach: &Attach,
        source: &Source,
        from: &Destination,
    ) -> (Option<Arc<str>>, Share) {
        let can = |wanted: &str| source.capabilities.iter().any(|capability| *capability == *wanted);
        let durable = source.durable != TerminusDurability::None;
        let share = match (can(SHARED), durable) {
            (false, _) => Share::No,
            (true, true) => Share::Durable,
            (true, false) => Share::Volatile,
        };
        if from.kind != DestinationKind::Topic || !(durable || share == Share::Volatile) {
            return (None, Share::No);
        }
        let name = subscription_name(&attach.name, share);
        (Some(self.subscription(name, can(GLOBAL), share)), share)
    }

    /// The broker's name of a subscription. One for all containers has none of its own, and a
    /// non-durable one never takes the name of a durable one.
    fn subscription(&self, name: &str, global: bool, share: Share) -> Arc<str> {
        let container = if global { "" } else { &self.peer.container };
        let kind = if share == Share::Volatile { "volatile:" } else { "" };
        let name = Subscription::name_of(self.owner(), container, name);
        if kind.is_empty() { name } else { format!("{kind}{name}").into() }
    }

    /// A receiver without a source asks for the durable subscription of the link's name, as the
    /// client `qpid-jms` does to end one: closing the link ends it.
    fn find_subscription(&mut self, at: LinkAt, attach: &Attach, turn: &mut Turn<'_>) -> Result<(), Error> {
        // A client without an id of its own ends a subscription of all containers.
        let global = attach.name.as_str().ends_with(GLOBAL_SUFFIX);
        let share = if global { Share::Durable } else { Share::No };
        let name = self.subscription(subscription_name(&attach.name, share), global, share);
        let found = Source { durable: TerminusDurability::UnsettledState, ..Source::default() };
        let answer = Attach { source: Some(SourceTerminus::Source(found)), ..answer_to(attach) };
        if let Some(link) = self.link_at(at) {
            link.end = LinkEnd::Subscription(name);
        }
        self.attached(Attaching { at, answer }, turn);
        Ok(())
    }

    /// The core refuses a link.
    pub(super) fn not_attached(&mut self, attaching: Attaching, error: Error, turn: &mut Turn<'_>) {
        let is_stolen = error.condition == *"amqp:link:stolen";
        let attaching = match is_stolen {
            true => Some(attaching),
            false => self.attached_unkept(attaching, turn),
        };
        let Some(Attaching { at, answer }) = attaching else { return };
        self.refuse_attach(at, answer, error, turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(descriptor: Value, value: Value) -> Value {
        Value::Described(Box::new(Described { descriptor, value }))
    }

    #[test]
    fn filters_that_are_met_are_named_in_the_answer() {
        let selector = |descriptor| filter(descriptor, "a = 1".into());
        let by_name = |name: &'static str| Value::Symbol(Symbol::from_static(name));
        let met = |filters: &Filters| filters.met.0.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        for (case, filters, want) in [
            ("by name", vec![("s", selector(by_name(SELECTOR.1)))], ("a = 1", false, vec!["s"])),
            ("by number", vec![("s", selector(Value::Ulong(SELECTOR.0)))], ("a = 1", false, vec!["s"])),
            (
                "no local",
                vec![("n", filter(by_name(NO_LOCAL.1), Value::List(vec![])))],
                ("", true, vec!["n"]),
            ),
            (
                "unknown",
                vec![("x", filter(by_name("x"), Value::Null)), ("y", Value::Null)],
                ("", false, vec![]),
            ),
        ] {
            let pairs = filters.into_iter().map(|(key, filter)| (Value::Symbol(key.into()), filter));
            let source = Source { filter: Some(ValueMap(pairs.collect())), ..Source::default() };
            let got = Filters::of(&source).unwrap();
            let names: Vec<_> = want.2.into_iter().map(|name| Value::Symbol(name.into())).collect();
            assert_eq!((&*got.selector, got.no_local, met(&got)), (want.0, want.1, names), "case: {case}");
        }
        let source = Source {
            filter: Some(ValueMap(vec![("s".into(), filter(Value::Ulong(SELECTOR.0), Value::Null))])),
            ..Source::default()
        };
        assert!(Filters::of(&source).is_err());
    }
}

//! Bindings: topics that feed queues with names of their own (virtual topics). Which do follows
//! from the operator's rules when a queue is made; then it is in the log, so that a replay needs no
//! rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use postroad_model::{
    Attach, Binding, Command, ConsumerMode, Destination, DestinationKind, Effect, Sent, Urgency,
};
use postroad_routing::Feed;

use crate::Partition;
use crate::addresses::address::Addresses;
use crate::delivery::selection;
use crate::intake::blocked::BlockedOn;
use crate::intake::unparking::unpark_held_by;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::partition::declare_queue;
use crate::settings::Settings;
use crate::state::State;

/// Selectors that one binding remembers: beyond it the queue takes everything, and its consumers
/// choose.
const SELECTORS_MAX: usize = 64;

/// A topic that feeds a queue, as the queue keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFeed {
    /// The topic, or a pattern of topics.
    pub topic: Destination,
    /// See [`Binding::selectors`].
    pub selectors: Vec<Arc<str>>,
}

fn missing_binding(
    state: &State,
    queue: &Destination,
    feed: Feed,
    attach: Option<&Attach>,
) -> Option<Binding> {
    let known = state.addresses.get(queue).and_then(|address| address.bound.own());
    let known = known.and_then(|id| state.queues.get(&id));
    let fed = known.and_then(|queue| queue.fed_by.iter().find(|fed| fed.topic == feed.topic));
    let everything: Arc<str> = "".into();
    let Feed { topic, selector_aware } = feed;
    if !selector_aware {
        let selectors = vec![everything];
        let is_so = fed.is_some_and(|fed| fed.selectors == selectors);
        return (!is_so).then(|| Binding { topic, queue: queue.clone(), selectors });
    }
    let reader = attach.filter(|attach| attach.mode != ConsumerMode::Browse);
    let wanted = reader.map(|attach| Arc::<str>::from(attach.selector.trim()));
    let mut selectors = match known {
        // It has no readers: the selectors of former readers end when another reader selects.
        Some(queue) if queue.consumers.is_empty() && wanted.is_some() => Vec::new(),
        _ => fed.map(|fed| fed.selectors.clone()).unwrap_or_default(),
    };
    selectors.extend(wanted.filter(|wanted| !selectors.contains(wanted)));
    if selectors.len() > SELECTORS_MAX || selectors.contains(&everything) {
        selectors = vec![everything];
    }
    let is_so = fed.is_some_and(|fed| fed.selectors == selectors);
    (!is_so).then(|| Binding { topic, queue: queue.clone(), selectors })
}

impl Addresses {
    /// Queues that the record of this message would make.
    pub fn new_queues<'s>(&self, sent: &'s Sent) -> impl Iterator<Item = &'s Destination> {
        let queues = sent.targets().filter(|to| to.kind == DestinationKind::Queue);
        queues.filter(|queue| self.get(queue).is_none())
    }
}

/// A queue that was made under other rules may live apart from its topic: nothing feeds it
/// then.
fn lives_here(settings: &Settings, topic: &Destination) -> bool {
    let is_pattern = postroad_routing::is_wildcard(&topic.name);
    is_pattern || settings.partition_of(topic) == settings.id
}

/// The log could not take it. A queue that is there all the same is bound once the log is well
/// again.
pub fn bind_failed(state: &mut State, leader: &mut Leader, queue: Destination) {
    if state.addresses.own_queue(&queue).is_some() {
        leader.volatile.unbound.insert(queue);
    }
}

/// The records needed before the queue is as the operator's rules want it: its bindings. Empty
/// if it is, or if no topic feeds it.
pub fn missing_bindings(
    state: &State,
    settings: &Settings,
    queue: &Destination,
    attach: Option<&Attach>,
) -> Vec<Binding> {
    let feeds = settings.addressing.feeds_of(queue);
    let feeds = feeds.into_iter().filter(|feed| lives_here(settings, &feed.topic));
    feeds.filter_map(|feed| missing_binding(state, queue, feed, attach)).collect()
}

/// Whether a consumer has to wait until the log has the bindings of its queue.
pub fn changes_bindings(state: &State, settings: &Settings, attach: &Attach) -> bool {
    !missing_bindings(state, settings, &attach.source, Some(attach)).is_empty()
}

/// Makes a queue in the log, with its bindings; the last record has the completion.
pub fn propose_queue(
    partition: &mut Partition,
    queue: Destination,
    attach: Option<&Attach>,
    completion: Completion,
    effects: &mut Vec<Effect>,
) {
    for binding in missing_bindings(&partition.state, &partition.settings, &queue, attach) {
        propose(partition, Command::Bind(binding), Urgency::Waiting, Completion::Nothing, effects);
    }
    propose(partition, Command::Declare { queue }, Urgency::Waiting, completion, effects);
}

/// Messages are about to go into the log: queues among their addresses that do not exist yet
/// are bound before the record of the messages makes them. No earlier, for the log may take
/// that record though it has refused earlier proposals.
pub fn bind_new_queues(partition: &mut Partition, sends: &[Sent], effects: &mut Vec<Effect>) {
    let queues: BTreeSet<&Destination> =
        sends.iter().flat_map(|sent| partition.state.addresses.new_queues(sent)).collect();
    queues.into_iter().for_each(|queue| bind_new_queue(partition, queue, effects));
}

pub fn bind_new_queue(partition: &mut Partition, queue: &Destination, effects: &mut Vec<Effect>) {
    // Few queues are fed by topics; nothing else is looked up for the others.
    if partition.settings.addressing.feeds_of(queue).is_empty()
        || partition.state.addresses.get(queue).is_some()
        || partition.leader.intake.waiting.is_for_queue(queue)
    {
        return;
    }
    bind_queue(partition, queue, Urgency::Waiting, effects);
}

/// Has the log bind the queue as the operator's rules want it.
pub fn bind_queue(
    partition: &mut Partition,
    queue: &Destination,
    urgency: Urgency,
    effects: &mut Vec<Effect>,
) {
    for binding in missing_bindings(&partition.state, &partition.settings, queue, None) {
        let completion = Completion::Bound { queue: queue.clone() };
        propose(partition, Command::Bind(binding), urgency, completion, effects);
    }
}

pub fn apply_bind(partition: &mut Partition, binding: Binding) {
    let Binding { topic, queue, selectors } = binding;
    let id = declare_queue(partition, &queue);
    if let Some(queue) = partition.state.queues.get_mut(&id) {
        queue.fed_by.retain(|fed| fed.topic != topic);
        queue.fed_by.push(TopicFeed { topic: topic.clone(), selectors: selectors.clone() });
    }
    let takes_everything = selectors.iter().any(|selector| selector.is_empty());
    let chosen = selectors.iter().filter_map(|text| selection::of_binding(text)).collect();
    partition.state.addresses.bound_mut(&topic).insert(id, (!takes_everything).then_some(chosen));
}

pub fn apply_unbind(
    partition: &mut Partition,
    topic: &Destination,
    queue: &Destination,
    effects: &mut Vec<Effect>,
) {
    let Some(id) = partition.state.addresses.get(queue).and_then(|address| address.bound.own()) else {
        return;
    };
    if let Some(queue) = partition.state.queues.get_mut(&id) {
        queue.fed_by.retain(|fed| fed.topic != *topic);
    }
    partition.state.addresses.unbind(topic, id);
    // It may have been this queue that held up sends to the topic.
    unpark_held_by(partition, BlockedOn::Queue(id), effects);
}

/// After a start: queues that the log knows are bound as the operator's rules want it now.
pub fn bind_by_rules(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let lasting = partition
        .state
        .queues
        .values()
        .filter(|queue| !queue.id.is_volatile() && queue.subscription.is_none());
    let mut queues: Vec<_> =
        lasting.map(|queue| (queue.id, queue.source.clone(), queue.fed_by.clone())).collect();
    queues.sort_unstable_by_key(|(id, ..)| *id);
    for (_, queue, fed_by) in queues {
        let feeds = partition.settings.addressing.feeds_of(&queue);
        for TopicFeed { topic, .. } in fed_by {
            if !feeds.iter().any(|feed| feed.topic == topic) {
                let command = Command::Unbind { topic, queue: queue.clone() };
                propose(partition, command, Urgency::Lazy, Completion::Nothing, effects);
            }
        }
        bind_queue(partition, &queue, Urgency::Lazy, effects);
    }
}

/// The log is well again.
pub fn bind_again(partition: &mut Partition, effects: &mut Vec<Effect>) {
    for queue in std::mem::take(&mut partition.leader.volatile.unbound) {
        bind_queue(partition, &queue, Urgency::Lazy, effects);
    }
}

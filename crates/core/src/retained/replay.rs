//! A replay: the progress of a subscription through the messages that topics retained when it was
//! made.

use std::sync::Arc;

use postroad_model::{Attach, Destination, Effect, Message, MessageKey, QueueId};
use postroad_routing::Pattern;
use postroad_selector::Selector;

use super::store::Shown;
use crate::Partition;
use crate::delivery::line::next_in_line;
use crate::entries::{drop_reference, insert_volatile, push_entry};
use crate::intake::publish::share_is_open;
use crate::queue::LaneNumber;
use crate::retained::keeping::trim_recent;
use crate::settings::Settings;

/// Messages that are put into a queue at once for its consumers.
const STEP_MESSAGES: u32 = 64;

/// The topics that a subscription reads.
#[derive(Clone, Debug)]
pub enum Source {
    /// One, by its name.
    One(Arc<str>),
    /// All that match.
    Pattern(Pattern),
}

impl Source {
    pub fn of(destination: &Destination) -> Source {
        match Pattern::parse(&destination.name).ok().filter(Pattern::is_wildcard) {
            Some(pattern) => Source::Pattern(pattern),
            None => Source::One(destination.name.clone()),
        }
    }
}

/// Where the next message is looked for: after a key of a topic, or from an order on.
#[derive(Debug)]
pub enum Cursor {
    Latest(Option<(Arc<str>, Option<Arc<str>>)>),
    Recent(u64),
}

/// See the head of this file.
#[derive(Debug)]
pub struct Replay {
    pub(super) source: Source,
    pub(super) cursor: Cursor,
    /// Messages retained from this order on reach the subscription as they come.
    pub(super) until: u64,
    selector: Option<Selector>,
    /// Its own client, if its messages are to be skipped.
    skips: Option<Arc<str>>,
    /// It asks for recent messages of topics that do not show them to everybody.
    retroactive: bool,
}

fn shows_recent(settings: &Settings, now_ms: u64, shown: &Shown, replay: &Replay) -> bool {
    let topic = Destination::topic(&shown.topic);
    let recovery = settings.policies.of(&topic).recovery;
    let age_ms = now_ms.saturating_sub(shown.at_ms);
    let is_old = recovery.age_ms_max != 0 && recovery.age_ms_max < age_ms;
    (replay.retroactive || recovery.always) && !is_old
}

/// The new subscription begins with the retained messages of its topics: latest and recent
/// messages, or recent ones alone.
pub fn begin_replay(
    partition: &mut Partition,
    queue: QueueId,
    attach: &Attach,
    selector: Option<Selector>,
    with_latest: bool,
    effects: &mut Vec<Effect>,
) {
    let source = Source::of(&attach.source);
    trim_recent(partition, &source, effects);
    let cursor = if with_latest { Cursor::Latest(None) } else { Cursor::Recent(0) };
    let (until, retroactive) = (partition.leader.retained.end(), attach.retroactive);
    let skips = attach.client.clone().filter(|_| attach.no_local);
    let mut replay = Replay { source, cursor, until, selector, skips, retroactive };
    // Most topics retain nothing.
    if partition.leader.retained.next(&mut replay).is_none() {
        return;
    }
    replay.cursor = if with_latest { Cursor::Latest(None) } else { Cursor::Recent(0) };
    if let Some(queue) = partition.state.queues.get_mut(&queue) {
        queue.replay = Some(Box::new(replay));
    }
}

/// Puts more retained messages into the queue, as its consumers have credit and the queue has
/// room; whether it did.
pub fn read_on_replay(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) -> bool {
    let Some(queue) = partition.state.queues.get_mut(&id).filter(|queue| queue.replay.is_some()) else {
        return false;
    };
    let is_held_up = queue.fetching
        || queue.on_the_move
        || queue.gathers_until_ms.is_some()
        || partition.leader.transactions.closings.holds_up(id);
    let has_some = queue.next_ready().is_some_and(|next| LaneNumber::of_tag(next).is_ahead());
    let Some((_, first)) =
        next_in_line(&partition.state, &partition.leader, id, None).filter(|_| !is_held_up && !has_some)
    else {
        return false;
    };
    let credit = partition.leader.delivery.consumers.get(&first).map_or(0, |consumer| consumer.credit);
    let mut replay = partition.state.queues.get_mut(&id).and_then(|queue| queue.replay.take());
    let mut is_put = false;
    for _ in 0..credit.min(STEP_MESSAGES) {
        let Some(going_on) = &mut replay else { break };
        if !share_is_open(&partition.state, &partition.settings, id) {
            break;
        }
        match next_shown(partition, going_on, effects) {
            Some(message) => {
                // Before later messages.
                push_entry(partition, id, message, Some(0));
                is_put = true;
            }
            None => replay = None,
        }
    }
    if let Some(queue) = partition.state.queues.get_mut(&id) {
        queue.replay = replay;
    }
    is_put
}

/// The next message that the subscription wants, as it is to be shown.
fn next_shown(
    partition: &mut Partition,
    replay: &mut Replay,
    effects: &mut Vec<Effect>,
) -> Option<MessageKey> {
    while let Some(shown) = partition.leader.retained.next(replay) {
        if shown.latest.is_none() && !shows_recent(&partition.settings, partition.now_ms, &shown, replay) {
            continue;
        }
        let key = rewritten(partition, &shown, effects);
        let Some(message) = partition.state.bodies.resident(key) else { continue };
        let is_own =
            replay.skips.is_some() && shown.latest.is_none() && message.client() == replay.skips.as_ref();
        let wants = |selector: &Selector| selector.matches(&*(partition.protocols.properties_of)(message));
        if !is_own && replay.selector.as_ref().is_none_or(wants) {
            return Some(key);
        }
    }
    None
}

/// The message with how many its topic retains: written once for all subscribers, until that
/// changes.
fn rewritten(partition: &mut Partition, shown: &Shown, effects: &mut Vec<Effect>) -> MessageKey {
    if let Some(rewritten) = shown.rewritten {
        return rewritten;
    }
    let Some(message) = partition.state.bodies.resident(shown.key).filter(|_| shown.latest.is_some()) else {
        return shown.key;
    };
    let written: Message = (partition.protocols.count_retained)(message, shown.count);
    // Most have no such number, and are shown as they are.
    if written.bytes == message.bytes {
        return shown.key;
    }
    let key = insert_volatile(&mut partition.state, &mut partition.leader, written, effects);
    partition.state.bodies.refer(key);
    if let Some(before) = partition.leader.retained.note_rewritten(shown, key) {
        drop_reference(partition, before, effects);
    }
    key
}

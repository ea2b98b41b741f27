//! Ready entries meet waiting consumers.

use postroad_model::{
    ConsumerKey, Delivery, Destination, Effect, EntryTag, Message, MessageKey, QueueId, TraceKey,
};

use crate::clock::Clock;
use crate::connection::outbox_is_full;
use crate::delivery::browse::{browse_fetched, browses, forget_browsed, passes_over, serve_browsers};
use crate::delivery::consumer::finish_drains;
use crate::delivery::fetches::{Fetch, Waiter};
use crate::delivery::group::{GroupTurn, take_group};
use crate::delivery::idle::{fall_idle, wake_some_idle};
use crate::delivery::line::{leave_line, next_in_line};
use crate::delivery::selection::{Selected, Selection, next_selected, selected};
use crate::delivery::slow::pace_begins;
use crate::delivery::spread::{has_credit, spend_credit, starve};
use crate::entries::{entry_at, sought_at};
use crate::flow::Passed;
use crate::intake::chunks::lend;
use crate::intake::limit::{set_state, trim};
use crate::leader::Leader;
use crate::leasing::{
    bury_if_spent, ends_at_bound, feed_reserve, finish_fed, finish_overdue, is_reserving, may_bury_spent,
    peeks,
};
use crate::memory::bodies::BodyLocation;
use crate::memory::packing::{
    ahead_bytes_max, durable_bytes_max, entries_ahead, pack_what_is_idle, unpack_pages,
};
use crate::queue::{EntryState, LaneNumber, Load, ReadOn, Turn};
use crate::retained::read_on_replay;
use crate::schedule::set_job_aside;
use crate::settings::Settings;
use crate::settling::expiry::{expire, grave_of, read_for_expiry};
use crate::settling::last_value::drop_superseded;
use crate::settling::rest::redelivers;
use crate::settling::{doubt, lending};
use crate::state::State;
use crate::{Partition, pausing, traces};

/// Bodies that are read back from the log ahead of one consumer's turn: enough that a disk read
/// pays, few enough to stay small.
const FETCH_MESSAGES_MIN: u64 = 64;

/// As many where consumers have credit for them, if they are small: together no more than
/// [`FETCH_BYTES_MAX`]. A body is there after a sync of the journal, or several, and all of these
/// arrive in that time.
const FETCH_MESSAGES_MAX: u64 = 1024;

/// Consumers that one step looks at, most of which want none of the messages; the others follow
/// with the next tick.
const LOOKS_MAX: usize = 1024;

/// See [`FETCH_MESSAGES_MAX`].
const FETCH_BYTES_MAX: u64 = 1 << 20;

/// Bodies read ahead for one browser: its reads share the disk with those of consumers, so each of
/// them is short.
const BROWSED_MESSAGES_MAX: u64 = 256;

/// See [`BROWSED_MESSAGES_MAX`].
const BROWSED_BYTES_MAX: u64 = 256 << 10;

/// And of those that are read ahead of any consumer's request. While they are sent, the disk may
/// take its time.
const AHEAD_BYTES_MAX: u64 = 192 << 10;

/// With less memory than readers would take together, each has this part of it.
const PRESSED_PART: u64 = 2;

/// One reader takes no more than this fraction of the rest for all of them.
const ROOM_PARTS: u64 = 4;

/// The result of one attempt to send.
pub(crate) enum Step {
    Sent,
    /// The last of a message group: others may begin it again.
    SentLast,
    Skipped,
    Nothing,
    Waits,
}

impl Partition {
    /// The queues in which a message is due, or at its end, whose body is on its way, for reporting
    /// that it cannot be read; `None` if it was read ahead, and will be asked for again.
    pub fn awaiting(&self, key: MessageKey) -> Option<Vec<&Destination>> {
        let due = self.leader.delivery.fetches.get(key).into_iter().flat_map(|fetch| &fetch.waiting);
        let due = due.map(|waiter| waiter.queue());
        let mut queues: Vec<QueueId> = due.chain(self.state.expiries.awaiting(key).copied()).collect();
        queues.sort_unstable();
        queues.dedup();
        let names = queues.into_iter().filter_map(|id| self.state.queues.get(&id)).map(|queue| &queue.source);
        let names: Vec<&Destination> = names.collect();
        (!names.is_empty() || self.state.jobs.awaits(key)).then_some(names)
    }
}

/// The delivery of this entry to a consumer.
fn delivery_of(
    partition: &Partition,
    (id, tag): (QueueId, EntryTag),
    consumer: ConsumerKey,
    failed_deliveries: u32,
    (first_of_group, trace): (bool, Option<TraceKey>),
    message: Message,
) -> Delivery {
    let source = partition.state.queues.get(&id).filter(|_| consumer.member != 0);
    Delivery {
        consumer,
        source: source.map(|queue| queue.source.clone()),
        tag,
        queue: (partition.settings.id, id),
        failed_deliveries,
        by_policy: failed_deliveries > 0 && redelivers(&partition.state, &partition.settings, id),
        first_of_group,
        trace,
        message,
    }
}

fn selects(leader: &Leader, consumer: ConsumerKey) -> bool {
    leader.delivery.consumers.get(&consumer).is_some_and(|consumer| consumer.selection.is_some())
}

/// A browser does not look at this entry.
fn pass_by(leader: &mut Leader, key: ConsumerKey, tag: EntryTag) {
    let browse = leader.delivery.consumers.get_mut(&key).and_then(|consumer| consumer.browse.as_mut());
    if let Some(browse) = browse {
        browse.pass(tag);
    }
}

pub fn is_over(clock: &Clock, headers: &Message) -> bool {
    headers.expires_at_ms != 0 && headers.expires_at_ms <= clock.slowest_wall_ms()
}

fn note_read_on(
    state: &mut State,
    leader: &mut Leader,
    id: QueueId,
    browser: Option<ConsumerKey>,
    read_on: ReadOn,
) {
    let browse = browser.and_then(|key| leader.delivery.consumers.get_mut(&key)?.browse.as_mut());
    match (browse, state.queues.get_mut(&id)) {
        (Some(browse), _) => browse.read_on = Some(read_on),
        (None, Some(queue)) if browser.is_none() => queue.read_on = Some(read_on),
        (None, _) => {}
    }
}

/// The body is on its way from now on, unless it was before.
pub fn begin_fetch<'l>(state: &mut State, leader: &'l mut Leader, what: BodyLocation) -> &'l mut Fetch {
    let bytes = state.bodies.absent(what).unwrap_or(0);
    leader.delivery.fetches.begin(what, bytes)
}

/// Whether it stays in its line: a member's credit is looked at when its turn comes.
pub fn takes_more(leader: &Leader, settings: &Settings, key: ConsumerKey) -> bool {
    (key.member != 0 || has_credit(leader, key)) && !outbox_is_full(leader, settings, key.connection)
}

/// Whether messages in use, which stay in memory, take more than their share, with those on
/// their way.
fn is_pressed(state: &State, leader: &Leader, settings: &Settings) -> bool {
    let bytes_max = durable_bytes_max(state, leader, settings);
    state.bodies.taken() + leader.delivery.fetches.bytes() > bytes_max + bytes_max / 8
}

/// Asks for these bodies, all of them in one go.
fn fetch(
    state: &mut State,
    leader: &mut Leader,
    absent: &[(EntryTag, BodyLocation)],
    effects: &mut Vec<Effect>,
) {
    if absent.is_empty() {
        return;
    }
    let keys = absent.iter().map(|(_, sought)| sought.key).collect();
    for (_, sought) in absent {
        begin_fetch(state, leader, *sought);
    }
    effects.push(Effect::Fetch { keys });
}

/// The consumer has had this turn: after its equals, or out of the line if it can take no more.
fn next_turn(
    state: &mut State,
    leader: &mut Leader,
    settings: &Settings,
    id: QueueId,
    turn: Turn,
    key: ConsumerKey,
) {
    let Some(queue) = state.queues.get_mut(&id) else { return };
    // The delivery may have taken it out of the line.
    if queue.waiting.take(turn).is_none() {
        return;
    }
    let takes_more = takes_more(leader, settings, key);
    let Some(consumer) = leader.delivery.consumers.get_mut(&key) else { return };
    consumer.in_line = takes_more;
    if let Some(queue) = state.queues.get_mut(&id).filter(|_| takes_more) {
        consumer.turn = queue.waiting.push(consumer.waiting(key));
    }
}

/// How many bodies are read ahead, and how many bytes of them: as many as the readers may have
/// at a time, within bounds.
fn fetch_max(
    state: &State,
    leader: &Leader,
    settings: &Settings,
    id: QueueId,
    browser: Option<ConsumerKey>,
) -> (u64, u64) {
    if browser.is_some() {
        return (BROWSED_MESSAGES_MAX, BROWSED_BYTES_MAX);
    }
    let consumers = state.queues.get(&id).into_iter().flat_map(|queue| queue.consumers.iter());
    let consumers = consumers.filter_map(|key| leader.delivery.consumers.get(key));
    // As many as could take one each.
    let takers = consumers.take(FETCH_MESSAGES_MAX as usize).filter(|consumer| consumer.browse.is_none());
    let window: u64 = takers.map(|consumer| u64::from(consumer.credit) + consumer.held.len() as u64).sum();
    let part = if is_pressed(state, leader, settings) { PRESSED_PART } else { 1 };
    (window.clamp(FETCH_MESSAGES_MIN, FETCH_MESSAGES_MAX / part), FETCH_BYTES_MAX)
}

/// How much more may be read ahead, beside bodies here or on their way: of its share, or of
/// unused memory.
fn room_ahead(state: &State, leader: &Leader, settings: &Settings) -> u64 {
    let (on_its_way, bytes_max) =
        (leader.delivery.fetches.bytes(), durable_bytes_max(state, leader, settings));
    let own =
        ahead_bytes_max(state, leader, settings).saturating_sub(state.bodies.ahead_bytes() + on_its_way);
    own.max(bytes_max.saturating_sub(state.bodies.taken() + on_its_way))
}

/// The time of this entry is over: it leaves, once its body is there if a dead-letter queue gets
/// it.
fn end_expired(
    partition: &mut Partition,
    (id, tag): (QueueId, EntryTag),
    consumer: ConsumerKey,
    body: BodyLocation,
    effects: &mut Vec<Effect>,
) -> Step {
    let is_absent = partition.state.bodies.resident(body).is_none();
    let Partition { state, settings, protocols, .. } = &*partition;
    if is_absent && grave_of(state, settings, protocols, id, body.key).is_some() {
        return fetch_from(partition, id, consumer, tag, effects);
    }
    expire(partition, id, tag, effects);
    Step::Skipped
}

/// Sends ready messages to consumers with credit, in turns; then serves browsers one step.
pub fn dispatch(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) {
    partition.leader.delivery.backlogs.has_changed(id);
    serve(partition, id, effects);
}

/// As `dispatch`, where nothing has changed since the last time.
pub fn serve(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) {
    if partition.settings.policies.any_last_value() {
        drop_superseded(partition, id, effects);
    }
    let goes_on = partition.leader.delivery.backlogs.take(id);
    let has_more_idle = wake_some_idle(&mut partition.state, &mut partition.leader, id);
    let mut is_more = true;
    while is_more && !partition.leader.delivery.backlogs.has(id) {
        is_more = read_on_replay(partition, id, effects);
        dispatch_line(partition, id, effects);
    }
    if has_more_idle {
        partition.leader.delivery.backlogs.put(id);
    }
    if goes_on && !partition.leader.delivery.backlogs.has(id) {
        finish_drains(&mut partition.state, &mut partition.leader, id, effects);
    }
    serve_browsers(partition, id, effects);
    if partition.settings.policies.any_limit() {
        trim(partition, id, effects);
    }
    finish_fed(partition, effects);
    lending::record(partition, effects);
}

fn dispatch_line(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) {
    // Consumers up to this turn found nothing that they want.
    let mut passed = partition.leader.delivery.backlogs.passed(id);
    let is_paused = partition.state.paused.contains(id);
    let (mut left, mut looks) = (partition.settings.slice_changes.max(1), LOOKS_MAX);
    loop {
        match (left, looks) {
            (0, _) => return partition.leader.delivery.backlogs.put(id),
            (_, 0) => return partition.leader.delivery.backlogs.put_after(id, passed),
            _ => {}
        }
        let Some(queue) = partition.state.queues.get_mut(&id).filter(|queue| !queue.fetching) else { return };
        let returning = partition.leader.transactions.closings.holds_up(id);
        if queue.on_the_move || queue.gathers_until_ms.is_some() || returning {
            return;
        }
        // Those in doubt are older.
        if partition.leader.settling.doubts.are_read_for(id) {
            return;
        }
        let Some((turn, consumer)) = next_in_line(&partition.state, &partition.leader, id, passed) else {
            // Something has changed since those that were passed have looked.
            return partition.leader.delivery.backlogs.begin_again(id);
        };
        if is_paused && !pausing::serves(&partition.leader, consumer) {
            if partition.leader.delivery.operators == 0 {
                return;
            }
            (passed, looks) = (Some(turn), looks - 1);
            continue;
        }
        if consumer.member != 0 && !has_credit(&partition.leader, consumer) {
            starve(&mut partition.state, &mut partition.leader, consumer);
            looks -= 1;
            continue;
        }
        let step = send_next(partition, id, consumer, effects);
        match step {
            Step::Sent | Step::SentLast | Step::Skipped => left -= 1,
            Step::Nothing | Step::Waits => looks -= 1,
        }
        match step {
            Step::Sent | Step::SentLast => {
                let Partition { state, leader, settings, .. } = partition;
                next_turn(state, leader, settings, id, turn, consumer);
                if matches!(step, Step::SentLast) {
                    passed = None;
                }
            }
            Step::Skipped => {}
            Step::Nothing if fall_idle(partition, id, turn, consumer) => {}
            Step::Nothing if selects(&partition.leader, consumer) => passed = Some(turn),
            Step::Nothing => return partition.leader.delivery.backlogs.forget(id),
            Step::Waits => return,
        }
    }
}

/// The entry that is due for the consumer.
fn next_for(partition: &mut Partition, id: QueueId, key: ConsumerKey) -> Selected {
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return Selected::Nothing };
    let Some(queue) = partition.state.queues.get_mut(&id) else { return Selected::Nothing };
    if queue.groups.is_some() && consumer.browse.is_none() {
        consumer.selection.get_or_insert_with(|| Selection::new(None));
    }
    let next = match (&consumer.browse, &consumer.selection) {
        (Some(browse), _) => queue.next_visible(|lane| browse.view(lane)),
        (None, Some(_)) => return next_selected(partition, id, key),
        (None, None) => queue.next_ready(),
    };
    next.map_or(Selected::Nothing, Selected::Entry)
}

pub fn send_next(
    partition: &mut Partition,
    id: QueueId,
    consumer: ConsumerKey,
    effects: &mut Vec<Effect>,
) -> Step {
    let tag = match next_for(partition, id, consumer) {
        Selected::Entry(tag) => tag,
        Selected::Nothing => return Step::Nothing,
        Selected::Absent(tag) => return fetch_from(partition, id, consumer, tag, effects),
    };
    let browsing =
        partition.leader.delivery.consumers.get(&consumer).is_some_and(|consumer| consumer.browse.is_some());
    let Some(entry) = entry_at(partition, id, tag) else { return Step::Nothing };
    let (sought, state, failed_deliveries) = (BodyLocation::from(&*entry), entry.state, entry.deliveries());
    if browsing && state != EntryState::Ready && peeks(&partition.leader, consumer) {
        pass_by(&mut partition.leader, consumer, tag);
        return Step::Skipped;
    }
    let Some((headers, _)) = partition.state.bodies.headers(sought) else { return Step::Nothing };
    if is_over(&partition.clock, headers) && !browsing {
        return end_expired(partition, (id, tag), consumer, sought, effects);
    }
    let Some(message) = partition.state.bodies.resident(sought).cloned() else {
        return fetch_from(partition, id, consumer, tag, effects);
    };
    let read_on = read_on_of(&partition.state, &partition.leader, id, consumer).filter(|on| on.at == tag);
    if browsing && passes_over(partition, consumer, tag, &message, failed_deliveries) {
        if let Some(read_on) = read_on {
            go_on_reading(partition, id, consumer, read_on, effects);
        }
        forget_browsed(&mut partition.state, &mut partition.leader, &partition.settings, id, tag, sought.key);
        return Step::Skipped;
    }
    if !browsing
        && may_bury_spent(&partition.state, &partition.leader, id, consumer)
        && bury_if_spent(partition, id, tag, effects)
    {
        return Step::Skipped;
    }
    if ends_at_bound(partition, id, consumer) {
        return Step::Sent;
    }
    selected(&mut partition.leader, consumer, tag);
    lend(&mut partition.leader, partition.now_ms, &message, effects);
    let trace = if browsing {
        None
    } else {
        traces::delivered(&mut partition.leader, (id, tag), sought.key, consumer)
    };
    if is_reserving(&partition.leader, consumer) {
        let ended = feed_reserve(partition, id, tag, consumer, message);
        return if ended { Step::SentLast } else { Step::Sent };
    }
    hand_over(partition, (id, tag, failed_deliveries), consumer, &message);
    partition.counters.delivered += 1;
    let turn = if browsing { GroupTurn::default() } else { take_group(partition, id, consumer, &message) };
    let marks = (turn.first, trace);
    let delivery = delivery_of(partition, (id, tag), consumer, failed_deliveries, marks, message);
    lending::send(partition, delivery, sought.key, effects);
    if let Some(read_on) = read_on {
        go_on_reading(partition, id, consumer, read_on, effects);
    }
    if browsing {
        forget_browsed(&mut partition.state, &mut partition.leader, &partition.settings, id, tag, sought.key);
    }
    if turn.ended { Step::SentLast } else { Step::Sent }
}

fn hand_over(
    partition: &mut Partition,
    (id, tag, failed): (QueueId, EntryTag, u32),
    by: ConsumerKey,
    message: &Message,
) {
    pace_begins(&mut partition.leader, &partition.settings, partition.now_ms, by);
    spend_credit(&mut partition.leader, by);
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&by) else { return };
    if let Some(connection) = partition.leader.connections.get_mut(&by.connection) {
        connection.unwritten_bytes += message.bytes.len() as u64;
    }
    if let Some(browse) = &mut consumer.browse {
        browse.pass(tag);
        return;
    }
    consumer.pace.gets(tag);
    if consumer.credit == 0 && by.member == 0 {
        consumer.pulse.waits(partition.now_ms);
    }
    consumer.served = partition.leader.delivery.next_hold;
    consumer.held.push(partition.leader.delivery.next_hold, tag, partition.now_ms);
    partition.leader.delivery.next_hold += 1;
    let Some(queue) = partition.state.queues.get_mut(&id) else { return };
    queue.away.add(message.size());
    if 0 < failed {
        partition.leader.flows.note(queue, partition.now_ms, Passed::comes_again);
    }
    if let Some(entry) = queue.entry(tag) {
        entry.state = EntryState::Held { by, in_transaction: false };
        partition.state.bodies.pin(&*entry);
    }
}

/// Asks for the body that is due, and for those after it in its lane. Of a message that another
/// queue has too the body may be here, though this queue had its page packed: then nothing
/// waits.
fn fetch_from(
    partition: &mut Partition,
    id: QueueId,
    reader: ConsumerKey,
    from: EntryTag,
    effects: &mut Vec<Effect>,
) -> Step {
    let due = sought_at(partition, id, from);
    if due.is_some_and(|due| partition.state.bodies.resident(due).is_some()) {
        return Step::Skipped;
    }
    let Some(queue) = partition.state.queues.get_mut(&id) else { return Step::Nothing };
    if queue.lanes.get(LaneNumber::of_tag(from)).is_none() {
        return Step::Nothing;
    }
    let waiter = match partition
        .leader
        .delivery
        .consumers
        .get_mut(&reader)
        .and_then(|reader| reader.browse.as_mut())
    {
        // Consumers and other browsers go on.
        Some(browse) => {
            browse.is_fetching = true;
            leave_line(&mut partition.state, &mut partition.leader, reader);
            Waiter::Browser(id, reader)
        }
        None => {
            queue.fetching = true;
            Waiter::Queue(id)
        }
    };
    fetch_behind(partition, waiter, from, effects);
    Step::Waits
}

/// Asks for the body of an entry in an open page, and for those after it in its lane. Where it
/// is on its way, and half of them are or more are asked for once it is sent or one behind it,
/// it asks for no more yet: requests made together are read together.
pub fn fetch_behind(partition: &mut Partition, waiter: Waiter, from: EntryTag, effects: &mut Vec<Effect>) {
    let (id, browser) = (waiter.queue(), waiter.browser());
    let (number, first) = crate::queue::untag(from);
    let (messages_max, bytes_max) =
        fetch_max(&partition.state, &partition.leader, &partition.settings, id, browser);
    let queue = partition.state.queues.get(&id);
    let lane = queue.and_then(|queue| queue.lanes.get(LaneNumber(number)));
    // Another queue may have asked for the later ones alone.
    let is_on_its_way = |sequence| {
        let entry = lane.and_then(|lane| lane.get(sequence));
        entry.is_some_and(|entry| partition.leader.delivery.fetches.has(entry.key))
    };
    let read_on =
        read_on_for(&partition.state, &partition.leader, id, browser).map(|on| crate::queue::untag(on.then));
    let will_read_on = read_on.is_some_and(|(lane, then)| lane == number && first <= then);
    let absent = match is_on_its_way(first) && (will_read_on || is_on_its_way(first + messages_max / 2)) {
        true => Vec::new(),
        false => absent_from(partition, id, (number, first), messages_max, bytes_max),
    };
    if let Some(due) = sought_at(partition, id, from) {
        begin_fetch(&mut partition.state, &mut partition.leader, due).waiting.push(waiter);
    }
    if let Some((last, _)) = absent.last().copied() {
        let (at, then) = (absent[absent.len() / 2].0, absent[absent.len() * 3 / 4].0);
        note_read_on(&mut partition.state, &mut partition.leader, id, browser, ReadOn { at, then, last });
    }
    fetch(&mut partition.state, &mut partition.leader, &absent, effects);
    pack_what_is_idle(partition, id, LaneNumber(number), 0..0);
}

/// Half of the first request is gone, or the next of the later requests is due: further bodies
/// are asked for while the others go, so that two requests are on their way.
fn go_on_reading(
    partition: &mut Partition,
    id: QueueId,
    reader: ConsumerKey,
    before: ReadOn,
    effects: &mut Vec<Effect>,
) {
    let browser = browses(&partition.leader, reader).then_some(reader);
    let (number, last) = crate::queue::untag(before.last);
    let (messages_max, _) = fetch_max(&partition.state, &partition.leader, &partition.settings, id, browser);
    let bytes_max = if is_pressed(&partition.state, &partition.leader, &partition.settings) {
        AHEAD_BYTES_MAX / PRESSED_PART
    } else {
        AHEAD_BYTES_MAX
    };
    let absent = absent_from(partition, id, (number, last + 1), messages_max / 2, bytes_max);
    let ends = absent.first().zip(absent.last()).map(|((first, _), (last, _))| (*first, *last));
    let (then, last) = ends.unwrap_or((before.last, before.last));
    note_read_on(
        &mut partition.state,
        &mut partition.leader,
        id,
        browser,
        ReadOn { at: before.then, then, last },
    );
    fetch(&mut partition.state, &mut partition.leader, &absent, effects);
    pack_what_is_idle(partition, id, LaneNumber(number), 0..0);
}

/// How far bodies were read ahead for this reader: the browser itself, or all consumers of the
/// queue.
fn read_on_of(state: &State, leader: &Leader, id: QueueId, reader: ConsumerKey) -> Option<ReadOn> {
    read_on_for(state, leader, id, browses(leader, reader).then_some(reader))
}

fn read_on_for(state: &State, leader: &Leader, id: QueueId, browser: Option<ConsumerKey>) -> Option<ReadOn> {
    match browser {
        Some(key) => leader.delivery.consumers.get(&key)?.browse.as_ref()?.read_on,
        None => state.queues.get(&id)?.read_on,
    }
}

/// Messages from this entry on, in its page and those that are in reach of it, whose bodies are
/// neither here nor on their way. Such a page that is packed is opened, and may be packed again
/// once they are asked for.
fn absent_from(
    partition: &mut Partition,
    id: QueueId,
    (number, first): (u8, u64),
    messages_max: u64,
    bytes_max: u64,
) -> Vec<(EntryTag, BodyLocation)> {
    let (mut absent, mut bytes, mut sequence) = (Vec::new(), 0, first);
    // There may be many readers: the smaller the rest for all, the less each takes of it. A due
    // message comes in any case.
    let room = room_ahead(&partition.state, &partition.leader, &partition.settings) / ROOM_PARTS;
    let messages_min = if room < bytes_max { 1 } else { FETCH_MESSAGES_MIN / 2 };
    let bytes_max = bytes_max.min(room);
    for count in 0..messages_max {
        let lane = partition.state.queues.get(&id).and_then(|queue| queue.lanes.get(LaneNumber(number)));
        let Some(lane) = lane else { break };
        let end = lane.page_of(first) + entries_ahead(&partition.settings, lane);
        let Some((_, found)) = lane.next_visible(sequence).filter(|(_, found)| *found < end) else {
            break;
        };
        let tag = crate::queue::tag(number, found);
        let open = lane.get(found).map(BodyLocation::from);
        let opened = || {
            let rest = Load { messages: messages_max - count, bytes: bytes_max.saturating_sub(bytes) };
            unpack_pages(partition, id, LaneNumber(number), found..end, rest);
            sought_at(partition, id, tag)
        };
        let Some(sought) = open.or_else(opened) else { break };
        let Some(absent_bytes) = partition.state.bodies.absent(sought) else { break };
        // Half of them are asked for while the others go.
        if messages_min <= count && bytes_max <= bytes {
            break;
        }
        bytes += absent_bytes;
        if !partition.leader.delivery.fetches.has(sought.key) {
            absent.push((tag, sought));
        }
        sequence = found + 1;
    }
    absent
}

/// Bodies came back from the log.
pub fn bodies_fetched(
    partition: &mut Partition,
    bodies: Vec<(MessageKey, Result<Message, String>)>,
    effects: &mut Vec<Effect>,
) {
    let mut waiting: Vec<Waiter> = Vec::new();
    for (key, message) in bodies {
        let fetch = partition.leader.delivery.fetches.end(key);
        partition.leader.settling.redrives.fetched(key);
        partition.leader.moves.fetched(key);
        let expired = partition.state.expiries.take_read(key);
        let is_there = message.is_ok();
        match message {
            Ok(message) => partition.state.bodies.restore(fetch.what, message),
            Err(_) if set_job_aside(&mut partition.state, &mut partition.counters, key, effects) => continue,
            Err(_) => set_aside(partition, key, &fetch.waiting),
        }
        read_for_expiry(partition, expired, is_there, effects);
        for waiter in fetch.waiting {
            if !waiting.contains(&waiter) {
                waiting.push(waiter);
            }
        }
    }
    resume_readers(partition, waiting, effects);
}

/// A body cannot be read: its entries stay on disk, undelivered and counted, and the others go
/// on.
fn set_aside(partition: &mut Partition, key: MessageKey, waiting: &[Waiter]) {
    for id in waiting.iter().map(|waiter| waiter.queue()) {
        // Those set aside are found no more, if the queue waits several times.
        for tag in partition.state.queues.get(&id).map(|queue| queue.find(key)).unwrap_or_default() {
            partition.counters.unreadable += 1;
            set_entry_aside(partition, id, tag);
        }
    }
}

/// The entry stays where it is, undelivered, until the process ends; its queue may move without
/// it.
pub fn set_entry_aside(partition: &mut Partition, id: QueueId, tag: EntryTag) {
    set_state(partition, id, tag, EntryState::Leaving);
    if let Some(queue) = partition.state.queues.get(&id) {
        partition.leader.moves.set_aside(&queue.source, tag);
    }
}

fn resume_readers(partition: &mut Partition, waiting: Vec<Waiter>, effects: &mut Vec<Effect>) {
    for waiter in waiting {
        let id = waiter.queue();
        match waiter {
            Waiter::Queue(_) => {
                if let Some(queue) = partition.state.queues.get_mut(&id) {
                    queue.fetching = false;
                }
                dispatch(partition, id, effects);
            }
            Waiter::Browser(_, key) => browse_fetched(partition, id, key, effects),
            Waiter::Heir(_, key) => doubt::read(partition, id, key, effects),
        }
        finish_drains(&mut partition.state, &mut partition.leader, id, effects);
        finish_overdue(partition, id, effects);
    }
}

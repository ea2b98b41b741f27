//! Redrive: dead letters go back to the queues where they could not be processed.
//!
//! | who wants it | which go back | then |
//! |---|---|---|
//! | an operator | the present dead letters that match | the message is as its sender sent it |
//! | the policy of the dead-letter queue | messages there for long enough, as often as it allows | it is counted too, so that it ends |
//! | an operator, to undo a redrive | messages of that redrive that are still ready | it is a dead letter as before |
//!
//! It is done in steps, one in a millisecond at most. A step looks at some entries, and moves those
//! that go back: out of one queue and into others in one transaction, so that each message is in
//! one place at any time. Later dead letters are left alone, so nothing goes round in a circle.
//!
//! A dead letter says itself where it was, and a client can send one with any origin. So it goes
//! back only to a queue that the requester may write to or, by policy, to one of the tenant that
//! owns the dead-letter queue.
//!
//! The age of a dead letter is known to this run alone: a restart begins the wait again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use postroad_model::{
    Action, ConnectionId, DeadLetter, Destination, DestinationKind, Effect, EntryTag, Message, MessageKey,
    QueueId, REDRIVE_TARGETS_MAX, Redrive, RedriveCounts, RedriveId, RedriveMark, RedriveWay, Refusal,
    Revived, Sent, SettleCause, Ticket,
};
use postroad_routing::{Grants, Policies, Returning};
use postroad_selector::{AtDelivery, Selector};

use crate::addresses::destination::check_owner;
use crate::delivery::dispatch::fetch_behind;
use crate::delivery::fetches::Waiter;
use crate::delivery::selection::{self, PropertiesOf};
use crate::entries::entry_at;
use crate::intake::publish::dispatch_all;
use crate::memory::bodies::Bodies;
use crate::memory::packing::open_page;
use crate::partition::reply;
use crate::queue::{Entry, Look, Verdict, View, tag, untag};
use crate::settling::carrying::move_entries;
use crate::settling::last_value::note_last_value;
use crate::settling::redriven::HeldCount;
use crate::settling::rest::wake_all;
use crate::{MarkDead, Partition};

/// How the assembly takes a dead letter's past out of it, whatever its protocol.
pub type Revive = fn(&Message) -> Revived;

/// Messages that one step moves: one transaction, which pays for its sync and delays no client.
const STEP_MESSAGES: usize = 64;

/// A step moves not more than this size, or one message.
const STEP_BYTES: u64 = 1 << 20;

/// Entries that one step looks at: some hundred microseconds.
const STEP_LOOKS: u32 = 256;

/// Between two steps of the same redrive.
const STEP_MS: u64 = 1;

/// Redrives that may be under way at once.
const REDRIVES_MAX: usize = 16;

/// Interval of checks for dead letters to redrive.
const LOOK_MS: u64 = 1000;

/// Moments that are kept of the past of such a queue: a message goes back not later than by this
/// part of its wait.
const MARKS: u64 = 64;

/// See the head of this file.
#[derive(Default)]
pub struct Redrives {
    under_way: BTreeMap<u64, UnderWay>,
    next: u64,
    /// When it is time to look for those that go back by themselves.
    next_look_ms: Option<u64>,
}

impl Redrives {
    /// When there is something to do.
    pub fn next_ms(&self) -> Option<u64> {
        let steps = self.under_way.values().filter(|redrive| redrive.can_go_on());
        steps.map(|redrive| redrive.next_ms).chain(self.next_look_ms).min()
    }

    /// Operators that wait for the end of a redrive.
    pub fn waiters(&self) -> Vec<(ConnectionId, Ticket)> {
        let waiter = |redrive: &UnderWay| match redrive.by {
            By::Operator(connection, ticket) => Some((connection, ticket)),
            By::Policy { .. } => None,
        };
        self.under_way.values().filter_map(waiter).collect()
    }

    /// Nothing is under way; numbers go on.
    pub fn successor(&self) -> Redrives {
        Redrives { next: self.next, ..Redrives::default() }
    }

    /// A body came from the disk, or cannot be read.
    pub fn fetched(&mut self, key: MessageKey) {
        for redrive in self.under_way.values_mut() {
            redrive.awaits = redrive.awaits.filter(|awaited| *awaited != key);
        }
    }

    /// Its requester is gone.
    pub fn forget_those_of(&mut self, connection: ConnectionId) {
        self.under_way
            .retain(|_, redrive| !matches!(redrive.by, By::Operator(asks, _) if asks == connection));
    }
}

/// One that has begun.
struct UnderWay {
    queue: QueueId,
    wanted: Redrive,
    selector: Option<Selector>,
    by: By,
    reach: Reach,
    /// The stamp of the first entry that came too late for it.
    end: u64,
    /// How far it has looked, by lane.
    views: BTreeMap<u8, View>,
    /// The body that it waits for.
    awaits: Option<MessageKey>,
    /// Messages that are on their way to the log, by their targets.
    moving: BTreeMap<Destination, u64>,
    moved: u64,
    stayed: u64,
    /// Where messages went to, with their numbers.
    targets: BTreeMap<Destination, u64>,
    /// The mark of the last message that went back.
    mark: Option<Arc<RedriveMark>>,
    /// Of an undo that has moved all ready messages: the count of the others.
    held: Option<HeldCount>,
    next_ms: u64,
}

/// Who wants it.
#[derive(Clone, Copy)]
enum By {
    /// A request that waits for the end.
    Operator(ConnectionId, Ticket),
    /// The policy of the queue, so often for each message.
    Policy { rounds_max: u32 },
}

/// The queues that dead letters may go back to.
enum Reach {
    /// Queues that the requester may write to.
    Granted(Grants),
    /// Queues of the tenant that owns the dead-letter queue.
    Owned { tenant: Arc<str>, policies: Arc<Policies> },
}

impl Reach {
    fn of(policies: &Arc<Policies>, by: By, wanted: &Redrive) -> Reach {
        match by {
            By::Operator(..) => {
                let grants = wanted.by.as_ref().map(|principal| policies.permissions.grants_of(principal));
                Reach::Granted(grants.unwrap_or(Grants::ALL))
            }
            By::Policy { .. } => match policies.tenants.owner_of(&wanted.from) {
                Some(owner) => Reach::Owned { tenant: owner.name.clone(), policies: policies.clone() },
                None => Reach::Granted(Grants::ALL),
            },
        }
    }

    fn includes(&self, queue: &Destination) -> bool {
        match self {
            Reach::Granted(grants) => grants.permit(Action::Write, queue),
            Reach::Owned { tenant, policies } => {
                policies.tenants.owner_of(queue).is_some_and(|owner| owner.name == *tenant)
            }
        }
    }
}

impl UnderWay {
    fn can_go_on(&self) -> bool {
        self.awaits.is_none() && self.moving.is_empty()
    }

    fn left(&self) -> u64 {
        self.wanted.messages_max.saturating_sub(self.moved)
    }

    /// Whether the message may go back, by its headers.
    fn allows(&self, headers: &Message) -> bool {
        let is_of = |id: RedriveId| headers.redriven().is_some_and(|mark| mark.id == id);
        match (self.by, self.wanted.way) {
            (By::Policy { rounds_max }, _) => headers.returns() < rounds_max,
            (By::Operator(..), RedriveWay::Back(_)) => true,
            (By::Operator(..), RedriveWay::Undo(id) | RedriveWay::Count(id)) => is_of(id),
        }
    }

    /// The destination of the message and its new form, whichever way it goes; `None` if it stays.
    fn next_form(&self, message: &Message, forms: Forms) -> Option<Sent> {
        match self.wanted.way {
            RedriveWay::Back(_) => self.revived(message, forms.revive),
            RedriveWay::Undo(_) => undone(message, forms.mark_dead),
            RedriveWay::Count(_) => None,
        }
    }

    /// The mark by which the redrive can be undone, if it has a number.
    fn mark_of(&self, origin: Option<&Destination>, reason: Option<Arc<str>>) -> Option<Arc<RedriveMark>> {
        let RedriveWay::Back(Some(id)) = self.wanted.way else { return None };
        let reason = reason.map(|reason| {
            let end = reason.floor_char_boundary(RedriveMark::REASON_BYTES_MAX);
            if end == reason.len() { reason } else { reason[..end].into() }
        });
        let mark = RedriveMark { id, from: self.wanted.from.clone(), origin: origin.cloned(), reason };
        let same = self.mark.as_ref().filter(|last| ***last == mark).cloned();
        Some(same.unwrap_or_else(|| Arc::new(mark)))
    }

    /// A message may go there: there is room in the record of where messages went to.
    fn notes_target(&mut self, to: &Destination) -> bool {
        if !matches!(self.wanted.way, RedriveWay::Back(Some(_))) {
            return true;
        }
        let has_room = self.targets.len() < REDRIVE_TARGETS_MAX || self.targets.contains_key(to);
        if has_room {
            self.targets.entry(to.clone()).or_insert(0);
        }
        has_room
    }

    fn counts(&self) -> Box<RedriveCounts> {
        let (moved, stayed) = (self.moved, self.stayed);
        let held = self.held.as_ref().map_or(0, HeldCount::messages);
        let targets = self.targets.iter().filter(|(_, messages)| 0 < **messages);
        let targets = targets.map(|(to, messages)| (to.clone(), *messages)).collect();
        Box::new(RedriveCounts { moved, stayed, held, targets })
    }

    /// The destination of the message, and its new form; `None` if it stays: it does not match, may
    /// not go back to where it was, or was in a subscription, whose topic would send it to all
    /// others too. The gate of the requester has checked an explicit target.
    fn revived(&self, message: &Message, revive: Revive) -> Option<Sent> {
        let Revived { origin, reason, message: revived } = revive(message);
        if self.wanted.origin.is_some() && self.wanted.origin != origin {
            return None;
        }
        let mark = self.mark_of(origin.as_ref(), reason);
        let is_queue = |at: &Destination| at.kind == DestinationKind::Queue && !at.temporary;
        let may_go = |at: &Destination| is_queue(at) && self.reach.includes(at);
        let to = self.wanted.to.clone().or_else(|| origin.filter(may_go))?;
        let returns = match self.by {
            By::Operator(..) => 0,
            By::Policy { .. } => message.returns().saturating_add(1),
        };
        (to != self.wanted.from).then(|| Sent::new(to, revived.with_returns(returns).with_redriven(mark)))
    }

    fn judge(&mut self, entry: &Entry, judges: &Judges<'_>, looks: &mut u32) -> Verdict {
        if entry.stamp >= self.end {
            return Verdict::Wanted;
        }
        let Some((headers, _)) = judges.bodies.headers(entry.key) else { return Verdict::Refused };
        if *looks == 0 {
            return Verdict::Unknown;
        }
        *looks -= 1;
        if !self.allows(headers) {
            self.stayed += 1;
            return Verdict::Refused;
        }
        if let RedriveWay::Count(_) = self.wanted.way {
            return Verdict::Wanted;
        }
        let Some(message) = judges.bodies.resident(entry.key) else { return Verdict::Unknown };
        let is_selected = || {
            let selector = self.selector.as_ref();
            let properties = (judges.properties_of)(message);
            let properties = AtDelivery::new(properties, entry.deliveries(), judges.now_ms);
            selector.is_none_or(|selector| selector.matches(&properties))
        };
        if is_selected() && self.next_form(message, judges.forms).is_some() {
            return Verdict::Wanted;
        }
        self.stayed += 1;
        Verdict::Refused
    }
}

/// How dead letters are made and unmade.
#[derive(Clone, Copy)]
struct Forms {
    revive: Revive,
    mark_dead: MarkDead,
}

impl Forms {
    fn of(partition: &Partition) -> Forms {
        Forms { revive: partition.protocols.revive, mark_dead: partition.protocols.mark_dead }
    }
}

/// A message of a redrive as the dead letter that it was.
fn undone(message: &Message, mark_dead: MarkDead) -> Option<Sent> {
    let RedriveMark { from, origin, reason, .. } = &**message.redriven()?;
    let dead = match origin.clone() {
        Some(origin) => {
            mark_dead(message, &DeadLetter { queue: from.clone(), origin, reason: reason.clone() })
        }
        None => message.clone(),
    };
    let dead = Message { expires_at_ms: 0, ..dead.with_redriven(None) };
    Some(Sent::new(from.clone(), dead))
}

/// The inputs of a verdict beside the redrive itself.
struct Judges<'a> {
    bodies: &'a Bodies,
    properties_of: PropertiesOf,
    now_ms: u64,
    forms: Forms,
}

/// The next item of a step.
enum Next {
    /// This entry goes back.
    Entry(EntryTag),
    /// This entry must be read first.
    Absent(EntryTag),
    /// It has looked at enough for one step.
    Enough,
    /// There is nothing more.
    Nothing,
}

/// The past of a queue whose dead letters go back by themselves.
#[derive(Default)]
pub struct Returns {
    /// Stamps, each with a moment when all entries below it were there; both rise.
    marks: VecDeque<(u64, u64)>,
    /// All entries below this stamp have lain long enough.
    ripe: u64,
    /// How far the last redrive has looked, by lane; with a redrive that is under way.
    views: Option<BTreeMap<u8, View>>,
}

impl Returns {
    /// A queue of which nothing is known yet.
    pub fn new() -> Returns {
        Returns { views: Some(BTreeMap::new()), ..Returns::default() }
    }

    /// The next entry will have this stamp.
    fn note(&mut self, now_ms: u64, next_stamp: u64, after_ms: u64) {
        let is_new = self.marks.back().is_none_or(|(at_ms, stamp)| {
            *stamp < next_stamp && at_ms.saturating_add(after_ms / MARKS) <= now_ms
        });
        if is_new && self.ripe < next_stamp {
            self.marks.push_back((now_ms, next_stamp));
        }
        while let Some((at_ms, stamp)) = self.marks.front().copied()
            && at_ms.saturating_add(after_ms) <= now_ms
        {
            self.ripe = stamp;
            self.marks.pop_front();
        }
    }
}

impl Partition {
    /// Says how to take a dead letter's past out of it, which only its protocol knows. Until then
    /// it goes nowhere.
    pub fn revive_by(&mut self, revive: Revive) {
        self.protocols.revive = revive;
    }

    pub(crate) fn redrive(
        &mut self,
        wanted: Redrive,
        (connection, ticket): (ConnectionId, Ticket),
        effects: &mut Vec<Effect>,
    ) {
        let selector = match selection::parse(&wanted.selector) {
            Ok(selector) => selector,
            Err(refusal) => return reply(connection, ticket, Err(refusal), effects),
        };
        if self.leader.settling.redrives.under_way.len() >= REDRIVES_MAX {
            let refusal = Refusal::TooManyRedrives { max: REDRIVES_MAX };
            return reply(connection, ticket, Err(refusal), effects);
        }
        let own = self.state.addresses.get(&wanted.from).and_then(|address| address.bound.own());
        let Some(queue) = own.filter(|_| wanted.from.kind == DestinationKind::Queue) else {
            effects.push(Effect::Redriven { connection, ticket, counts: Box::default() });
            return reply(connection, ticket, Ok(()), effects);
        };
        if let Err(refusal) = check_owner(&self.state, &wanted.from, connection) {
            return reply(connection, ticket, Err(refusal), effects);
        }
        wake_all(self, queue);
        let end = self.state.queues.get(&queue).map_or(0, |queue| queue.next_stamp);
        self.begin_redrive(queue, (wanted, selector), By::Operator(connection, ticket), end, BTreeMap::new());
    }

    fn begin_redrive(
        &mut self,
        queue: QueueId,
        (wanted, selector): (Redrive, Option<Selector>),
        by: By,
        end: u64,
        views: BTreeMap<u8, View>,
    ) {
        let (awaits, moving, moved, stayed) = (None, BTreeMap::new(), 0, 0);
        let (targets, mark, held, next_ms) = (BTreeMap::new(), None, None, self.now_ms);
        let reach = Reach::of(&self.settings.policies, by, &wanted);
        let redrive = UnderWay {
            queue,
            wanted,
            selector,
            by,
            reach,
            end,
            views,
            awaits,
            moving,
            moved,
            stayed,
            targets,
            mark,
            held,
            next_ms,
        };
        self.leader.settling.redrives.under_way.insert(self.leader.settling.redrives.next, redrive);
        self.leader.settling.redrives.next += 1;
    }

    /// Does a step of each redrive that can go on, and begins those that policies ask for.
    pub(crate) fn go_on_redriving(&mut self, effects: &mut Vec<Effect>) {
        self.look_for_ripe();
        let now_ms = self.now_ms;
        let due = |redrive: &UnderWay| redrive.can_go_on() && redrive.next_ms <= now_ms;
        let due = self.leader.settling.redrives.under_way.iter().filter(|(_, redrive)| due(redrive));
        for number in due.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(mut redrive) = self.leader.settling.redrives.under_way.remove(&number) {
                redrive.next_ms = now_ms + STEP_MS;
                self.step(number, redrive, effects);
            }
        }
    }

    /// Policies of dead letters may have changed.
    pub(crate) fn return_anew(&mut self) {
        let returns = self.leader.is_live && self.settings.policies.any_returning();
        self.leader.settling.redrives.next_look_ms = returns.then_some(self.now_ms);
    }

    fn look_for_ripe(&mut self) {
        let now_ms = self.now_ms;
        if self.leader.settling.redrives.next_look_ms.is_none_or(|at_ms| now_ms < at_ms) {
            return;
        }
        self.leader.settling.redrives.next_look_ms = Some(now_ms + LOOK_MS);
        let mut ripe = Vec::new();
        let queues = self.state.queues.values_mut().filter(|queue| !queue.id.is_volatile());
        for queue in queues.filter(|queue| queue.source.kind == DestinationKind::Queue) {
            let Returning { after_ms: Some(after_ms), rounds_max } = queue.returning else { continue };
            let returns = queue.returns.get_or_insert_with(|| Box::new(Returns::new()));
            returns.note(now_ms, queue.next_stamp, after_ms);
            if returns.ripe > 0 && returns.views.is_some() {
                ripe.push((queue.id, rounds_max));
            }
        }
        ripe.sort_unstable();
        ripe.truncate(REDRIVES_MAX.saturating_sub(self.leader.settling.redrives.under_way.len()));
        for (id, rounds_max) in ripe {
            let Some(queue) = self.state.queues.get_mut(&id) else { continue };
            let from = queue.source.clone();
            let Some(returns) = queue.returns.as_mut() else { continue };
            let (end, views) = (returns.ripe, returns.views.take().unwrap_or_default());
            let (selector, messages_max) = ("".into(), u64::MAX);
            let way = RedriveWay::Back(None);
            let wanted = Redrive { from, to: None, origin: None, selector, messages_max, way, by: None };
            self.begin_redrive(id, (wanted, None), By::Policy { rounds_max }, end, views);
        }
    }

    fn step(&mut self, number: u64, mut redrive: UnderWay, effects: &mut Vec<Effect>) {
        if !self.leader.log.space_ample {
            let refusal = Refusal::StoreFull { to: redrive.wanted.from.clone() };
            return self.end_redrive(redrive, Err(refusal), effects);
        }
        if redrive.held.is_some() {
            return count_held(self, number, redrive, effects);
        }
        let (mut going, mut bytes, mut looks) = (Vec::new(), 0, STEP_LOOKS);
        let left = usize::try_from(redrive.left()).unwrap_or(usize::MAX).min(STEP_MESSAGES);
        let mut absent = None;
        while going.len() < left && bytes < STEP_BYTES {
            match self.next_dead(&mut redrive, &mut looks) {
                Next::Entry(tag) => {
                    let (lane, sequence) = untag(tag);
                    redrive.views.entry(lane).or_default().pass(sequence);
                    if let RedriveWay::Count(_) = redrive.wanted.way {
                        redrive.moved += 1;
                        continue;
                    }
                    let key = entry_at(self, redrive.queue, tag).map(|entry| entry.key);
                    let headers = key.and_then(|key| self.state.bodies.headers(key));
                    bytes += headers.map_or(0, |(_, bytes)| bytes);
                    going.push(tag);
                }
                Next::Absent(tag) => {
                    absent = Some(tag);
                    break;
                }
                Next::Enough => break,
                Next::Nothing if going.is_empty() => return all_seen(self, number, redrive, effects),
                Next::Nothing => break,
            }
        }
        match absent {
            _ if left == 0 => self.end_redrive(redrive, Ok(()), effects),
            _ if !going.is_empty() => self.send_back(number, redrive, &going, effects),
            Some(tag) => self.await_dead(number, redrive, tag, effects),
            None => drop(self.leader.settling.redrives.under_way.insert(number, redrive)),
        }
    }

    /// The next entry that goes back, in the order in which the queue serves them.
    fn next_dead(&self, redrive: &mut UnderWay, looks: &mut u32) -> Next {
        let Some(queue) = self.state.queues.get(&redrive.queue) else { return Next::Nothing };
        let (properties_of, forms) = (self.protocols.properties_of, Forms::of(self));
        let now_ms = self.clock.wall_ms();
        let judges = Judges { bodies: &self.state.bodies, properties_of, now_ms, forms };
        let mut absent = None;
        let found = queue.lanes.next(|number, lane| {
            if absent.is_some() {
                return None;
            }
            let mut view = redrive.views.remove(&number.0).unwrap_or_default();
            let look = view.look(lane, |entry| redrive.judge(entry, &judges, looks));
            redrive.views.insert(number.0, view);
            match look {
                Look::Found(stamp, sequence) => (stamp < redrive.end).then_some((stamp, sequence)),
                Look::Unknown(sequence) => {
                    absent = Some(tag(number.0, sequence));
                    None
                }
                Look::Nothing => None,
            }
        });
        match (absent, found) {
            (Some(_), _) if *looks == 0 => Next::Enough,
            (Some(absent), _) => Next::Absent(absent),
            (None, Some(entry)) => Next::Entry(entry),
            (None, None) => Next::Nothing,
        }
    }

    /// The entry cannot be judged yet: its page is packed, or its body on the disk.
    fn await_dead(&mut self, number: u64, mut redrive: UnderWay, from: EntryTag, effects: &mut Vec<Effect>) {
        if !open_page(self, redrive.queue, from) {
            redrive.awaits = entry_at(self, redrive.queue, from).map(|entry| entry.key);
            fetch_behind(self, Waiter::Queue(redrive.queue), from, effects);
        }
        self.leader.settling.redrives.under_way.insert(number, redrive);
    }

    /// Out of this queue and into others, all or nothing.
    fn send_back(
        &mut self,
        number: u64,
        mut redrive: UnderWay,
        going: &[EntryTag],
        effects: &mut Vec<Effect>,
    ) {
        let (mut sends, mut moving) = (Vec::with_capacity(going.len()), Vec::with_capacity(going.len()));
        let forms = Forms::of(self);
        for tag in going {
            let key = entry_at(self, redrive.queue, *tag).map(|entry| entry.key);
            let message = key.and_then(|key| self.state.bodies.resident(key));
            let Some(mut sent) = message.and_then(|message| redrive.next_form(message, forms)) else {
                continue;
            };
            if !redrive.notes_target(&sent.to) {
                redrive.stayed += 1;
                continue;
            }
            if let RedriveWay::Back(_) = redrive.wanted.way {
                let end_ms = self.settings.policies.end_ms(sent.targets(), 0, self.clock.wall_ms());
                sent.message.expires_at_ms = end_ms;
            }
            redrive.mark = sent.message.redriven().cloned();
            note_last_value(&self.settings, &self.protocols, &mut sent);
            *redrive.moving.entry(sent.to.clone()).or_insert(0) += 1;
            sends.push(sent);
            moving.push(*tag);
        }
        let from = redrive.queue;
        if sends.is_empty() {
            return drop(self.leader.settling.redrives.under_way.insert(number, redrive));
        }
        self.leader.settling.redrives.under_way.insert(number, redrive);
        let answer = Some((ConnectionId::internal(self.settings.id), Ticket(number)));
        move_entries(self, (from, &moving, SettleCause::Consumed), sends, Vec::new(), answer, effects);
    }

    /// The transaction of a step has ended.
    pub(crate) fn step_ended(
        &mut self,
        Ticket(number): Ticket,
        result: Result<(), Refusal>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(redrive) = self.leader.settling.redrives.under_way.get_mut(&number) else { return };
        let moving = std::mem::take(&mut redrive.moving);
        if result.is_ok() {
            for (to, messages) in moving {
                redrive.moved += messages;
                if let Some(target) = redrive.targets.get_mut(&to) {
                    *target += messages;
                }
                if let RedriveWay::Back(_) = redrive.wanted.way {
                    self.counters.redriven += messages;
                }
            }
            return;
        }
        if let Some(redrive) = self.leader.settling.redrives.under_way.remove(&number) {
            self.end_redrive(redrive, result, effects);
        }
    }

    fn end_redrive(&mut self, redrive: UnderWay, result: Result<(), Refusal>, effects: &mut Vec<Effect>) {
        let counts = redrive.counts();
        let UnderWay { queue, by, views, .. } = redrive;
        match by {
            By::Operator(connection, ticket) => {
                effects.push(Effect::Redriven { connection, ticket, counts });
                reply(connection, ticket, result, effects);
                // A message that was woken for it and stays is for waiting consumers.
                dispatch_all(self, vec![queue], effects);
            }
            // Messages that could not go now are looked at again.
            By::Policy { .. } => {
                let queue = self.state.queues.get_mut(&queue);
                if let Some(returns) = queue.and_then(|queue| queue.returns.as_mut()) {
                    returns.views = Some(if result.is_ok() { views } else { BTreeMap::new() });
                }
            }
        }
    }
}

/// No ready entry is left: an undo counts the others too.
fn all_seen(partition: &mut Partition, number: u64, mut redrive: UnderWay, effects: &mut Vec<Effect>) {
    let (RedriveWay::Undo(id) | RedriveWay::Count(id)) = redrive.wanted.way else {
        return partition.end_redrive(redrive, Ok(()), effects);
    };
    redrive.held = Some(HeldCount::begin(partition, redrive.queue, id));
    partition.leader.settling.redrives.under_way.insert(number, redrive);
}

/// Counts a part of the messages that the undo cannot move.
fn count_held(partition: &mut Partition, number: u64, mut redrive: UnderWay, effects: &mut Vec<Effect>) {
    let is_done = redrive.held.as_mut().is_none_or(|held| held.go_on(partition));
    match is_done {
        true => partition.end_redrive(redrive, Ok(()), effects),
        false => drop(partition.leader.settling.redrives.under_way.insert(number, redrive)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_lain_long_enough_is_ripe_and_marks_are_few() {
        let mut returns = Returns::new();
        for (now_ms, next_stamp, ripe) in [
            (0, 5, 0),
            (10, 7, 0),
            (6_399, 9, 0),
            (6_400, 9, 5),
            (6_499, 9, 5),
            // 7 came within the hundredth after the first mark, and ripens with later ones.
            (12_798, 9, 5),
            (12_799, 9, 9),
            (90_000, 9, 9),
        ] {
            returns.note(now_ms, next_stamp, 6_400);
            assert_eq!(returns.ripe, ripe, "at {now_ms}");
        }
        for now_ms in 100_000..120_000 {
            returns.note(now_ms, now_ms, 6_400);
            assert!(returns.marks.len() as u64 <= MARKS + 1);
            assert!(returns.ripe + 6_400 <= now_ms && now_ms - returns.ripe <= 6_500 || now_ms < 106_500);
        }
    }
}

//! Work on a whole queue goes in steps: each event, record or tick does a bounded amount of it.

mod bench;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bench::settings;
use bytes::Bytes;
use postroad_core::{Partition, SLICE_CHANGES, Settings};
use postroad_model::{
    Attach, Changes, Command, ConnectionId, ConsumerKey, ConsumerMode, Delivered, Destination, Effect,
    Encoding, EntryTag, Event, Message, MessageKey, NORMAL_PRIORITY, Now, Outcome, PartitionId, Position,
    Protocol, Publish, QueueId, Sent, Settle, SettleCause, Settlement, Share, Ticket, TransactionId,
    TransactionKey,
};
use postroad_routing::{AtLimit, DestinationPattern, Limit, Policies, Policy, Slow, SlowAction};

/// Effects of one step, and entries that one record settles or sends: a page of a queue that is
/// gone, after others.
const STEP_MAX: usize = 4096 + 1024;

const BACKLOG: u64 = 20_000;

/// Changes of a large transaction.
const LARGE: u64 = 5000;

/// A partition whose proposals are durable one after another, each in a step of its own.
struct Steps {
    partition: Partition,
    next: u64,
    proposed: VecDeque<Command>,
    /// Messages of the records, for reads.
    stored: BTreeMap<Position, Message>,
    wanted: VecDeque<Vec<MessageKey>>,
    worst: usize,
    /// Entries that came and went in one step.
    most_changed: u64,
    log: Vec<(Position, Command)>,
    /// Tickets that were answered, and whether with success.
    replies: Vec<(u64, bool)>,
    delivered: Vec<(ConsumerKey, EntryTag)>,
    /// Consumers whose credit has ended.
    drained: usize,
    /// Consumers that the broker has ended.
    detached: usize,
    /// Tags of [`delivered`].
    held_by_first: Vec<EntryTag>,
    now_ms: u64,
}

impl Steps {
    fn new(settings: Settings) -> Steps {
        let partition = Partition::new(settings);
        Steps {
            partition,
            next: 1,
            proposed: VecDeque::new(),
            stored: BTreeMap::new(),
            wanted: VecDeque::new(),
            worst: 0,
            most_changed: 0,
            log: Vec::new(),
            replies: Vec::new(),
            delivered: Vec::new(),
            drained: 0,
            detached: 0,
            held_by_first: Vec::new(),
            now_ms: 0,
        }
    }

    fn step(&mut self, act: impl FnOnce(&mut Partition, &mut Vec<Effect>)) {
        let mut effects = Vec::new();
        let before = self.changed();
        act(&mut self.partition, &mut effects);
        self.most_changed = self.most_changed.max(self.changed() - before);
        let mut weight = effects.len();
        for effect in effects {
            match effect {
                Effect::Propose { command, .. } => {
                    weight += match &command {
                        Command::Settle(settlements) => settlements.len(),
                        Command::Transact(changes) => changes.sends.len() + changes.settlements.len(),
                        _ => 1,
                    };
                    self.proposed.push_back(command);
                }
                Effect::Fetch { keys } => self.wanted.push_back(keys),
                Effect::Deliver(delivery) => self.delivered.push((delivery.consumer, delivery.tag)),
                Effect::Reply { ticket, result, .. } => self.replies.push((ticket.0, result.is_ok())),
                Effect::Drained { .. } => self.drained += 1,
                Effect::Detached { .. } => self.detached += 1,
                _ => {}
            }
        }
        self.worst = self.worst.max(weight);
    }

    fn apply_all(&mut self) {
        while let Some(command) = self.proposed.pop_front() {
            let position = Position::new(self.next).expect("from 1");
            self.next += 1;
            self.log.push((position, command.clone()));
            if let Command::Enqueue(sent) = &command {
                self.stored.insert(position, sent.message.clone());
            }
            self.step(|partition, effects| partition.apply(position, command, effects));
        }
    }

    fn tick(&mut self) {
        let now = Now { ticks_ms: self.now_ms, wall_ms: self.now_ms };
        self.step(|partition, effects| partition.soft(Event::Tick { now }, effects));
        self.apply_all();
        while let Some(keys) = self.wanted.pop_front() {
            let read = |key: MessageKey| match key {
                MessageKey::Durable { position, .. } => (key, Ok(self.stored[&position].clone())),
                MessageKey::Volatile(_) => (key, Err("it is in memory alone".to_owned())),
            };
            let bodies = keys.into_iter().map(read).collect();
            self.step(|partition, effects| partition.soft(Event::Fetched { bodies }, effects));
            self.apply_all();
        }
    }

    /// Until nothing is due any more; how many ticks that took.
    fn rest(&mut self) -> u64 {
        let mut ticks = 0;
        while let Some(due_ms) = self.partition.next_due_ms().filter(|_| ticks < BACKLOG) {
            self.now_ms = self.now_ms.max(due_ms);
            self.tick();
            ticks += 1;
        }
        ticks
    }

    fn fill(&mut self, messages: u64, expires_at_ms: u64) {
        for number in 0..messages {
            let sent = sent(number, expires_at_ms);
            let publish = Publish::plain(ConnectionId::internal(PartitionId(0)), Ticket(number), sent);
            self.step(|partition, effects| partition.soft(Event::Publish(publish), effects));
            self.apply_all();
        }
        assert_eq!(self.held("a"), messages);
    }

    fn changed(&self) -> u64 {
        let counters = self.partition.counters();
        counters.enqueued + counters.consumed
    }

    /// Whether the partition, once it leads no more, is as one that has read its log.
    fn is_as_its_log(&mut self, settings: Settings) -> bool {
        self.step(|partition, effects| partition.stop(effects).expect("nothing is spilled"));
        let mut replica = Partition::new(settings);
        for (position, command) in self.log.clone() {
            replica.apply(position, command, &mut Vec::new());
        }
        self.partition.snapshot() == replica.snapshot()
    }

    fn held(&self, name: &str) -> u64 {
        let of = self.partition.queues().find(|(queue, _)| &*queue.name == name);
        of.map_or(0, |(_, entries)| entries)
    }
}

fn sent(number: u64, expires_at_ms: u64) -> Sent {
    let message = Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms,
        rare: None,
        bytes: Bytes::from(number.to_string()),
    };
    Sent::new(Destination::queue("a"), message)
}

fn limited() -> Arc<Policies> {
    let limit = Limit { messages_max: Some(100), action: AtLimit::DropOldest, ..Limit::default() };
    let fallback = Policies::default().fallback().clone();
    Arc::new(Policies::new(Policy { limit, ..fallback }))
}

#[test]
fn a_limit_that_is_put_on_a_backlog_drops_in_steps() {
    let mut steps = Steps::new(settings(1));
    steps.step(|partition, effects| partition.start(effects));
    steps.fill(BACKLOG, 0);
    steps.step(|partition, effects| partition.follow(limited(), effects));
    steps.apply_all();
    assert!(steps.held("a") > BACKLOG / 2, "not all at once");
    let ticks = steps.rest();
    assert_eq!((steps.held("a"), steps.partition.counters().overflowed), (100, BACKLOG - 100));
    assert!(ticks > 50, "{ticks} ticks");
    assert!(steps.worst < STEP_MAX, "one step did {}", steps.worst);
}

#[test]
fn a_start_with_a_new_limit_drops_in_steps() {
    let mut steps = Steps::new(Settings { policies: limited(), ..settings(1) });
    for number in 0..BACKLOG {
        steps.proposed.push_back(Command::Enqueue(sent(number, 0)));
    }
    steps.apply_all();
    steps.step(|partition, effects| partition.start(effects));
    steps.apply_all();
    assert!(steps.held("a") > BACKLOG / 2, "not all at once");
    steps.rest();
    assert_eq!((steps.held("a"), steps.partition.counters().overflowed), (100, BACKLOG - 100));
    assert!(steps.worst < STEP_MAX, "one step did {}", steps.worst);
}

#[test]
fn many_that_expire_at_once_go_to_the_dead_letters_in_steps() {
    let policies = Arc::new(Policies::with_dead_letters_in("dead"));
    let mut steps = Steps::new(Settings { policies, ..settings(1) });
    steps.step(|partition, effects| partition.start(effects));
    steps.fill(BACKLOG, 10);
    steps.now_ms = 10;
    steps.rest();
    assert_eq!((steps.held("a"), steps.held("dead")), (0, BACKLOG));
    assert!(steps.worst < STEP_MAX, "one step did {}", steps.worst);
}

#[test]
fn a_queue_that_is_deleted_lets_go_of_its_messages_in_steps() {
    let mut steps = Steps::new(settings(1));
    steps.step(|partition, effects| partition.start(effects));
    steps.fill(BACKLOG, 0);
    let (connection, ticket) = (ConnectionId::internal(PartitionId(0)), Ticket(0));
    let destination = Destination::queue("a");
    let delete = Event::Delete { destination, connection, ticket };
    steps.step(|partition, effects| partition.soft(delete, effects));
    steps.apply_all();
    steps.rest();
    assert_eq!((steps.held("a"), steps.partition.memory().messages), (0, 0));
    assert!(steps.worst < STEP_MAX, "one step did {}", steps.worst);
}

#[test]
fn the_oldest_queues_have_figures_and_the_others_cost_nothing() {
    let mut steps = Steps::new(settings(1));
    for number in 0..100 {
        let queue = Destination::queue(&format!("q{}", 100 - number));
        steps.proposed.push_back(Command::Declare { queue });
    }
    steps.apply_all();
    let names: Vec<String> =
        steps.partition.queue_figures().take(2).map(|figures| figures.queue.name.to_string()).collect();
    assert_eq!(names, ["q100", "q99"], "in the order in which they were made");
    assert_eq!(steps.partition.lasting_queues(), 100);
    steps.proposed.push_back(Command::Delete { queue: Destination::queue("q100") });
    steps.apply_all();
    assert_eq!(steps.partition.lasting_queues(), 99);
}

const CLIENT: ConnectionId = ConnectionId::new(0, 1);

const TRANSACTION: TransactionKey = TransactionKey { connection: CLIENT, number: 1 };

fn roomy() -> Settings {
    let large = 1 << 30;
    Settings {
        transaction_bytes_max: large,
        open_bytes_max: large,
        resident_bytes_max: large,
        messages_bytes_max: large,
        outbox_bytes_max: large,
        ..settings(1)
    }
}

/// A leader whose client has a large transaction, of which the log has the commit: ticket 1, and
/// after it a message: ticket 2.
fn committed() -> Steps {
    let mut steps = Steps::new(roomy());
    steps.step(|partition, effects| partition.start(effects));
    for number in 0..LARGE {
        let publish = Publish::plain(CLIENT, Ticket(0), sent(number, 0));
        let publish = Publish { transaction: Some(TRANSACTION), ..publish };
        steps.step(|partition, effects| partition.soft(Event::Publish(publish), effects));
    }
    steps.replies.clear();
    let commit =
        Event::Commit { transaction: TRANSACTION, participants: vec![PartitionId(0)], ticket: Ticket(1) };
    steps.step(|partition, effects| partition.soft(commit, effects));
    let publish = Publish::plain(CLIENT, Ticket(2), sent(LARGE, 0));
    steps.step(|partition, effects| partition.soft(Event::Publish(publish), effects));
    while !steps.partition.has_unfinished_records() {
        steps.now_ms += 1;
        steps.tick();
    }
    steps
}

#[test]
fn a_large_commit_is_carried_out_in_steps_and_answered_behind_the_last() {
    let mut steps = committed();
    assert_eq!((steps.held("a"), steps.replies.len()), (SLICE_CHANGES as u64, 0));
    let ticks = steps.rest();
    assert_eq!((steps.held("a"), &steps.replies[..]), (LARGE + 1, &[(1, true), (2, true)][..]));
    assert!(ticks >= LARGE / SLICE_CHANGES as u64, "{ticks} ticks");
    assert_eq!(steps.most_changed, SLICE_CHANGES as u64);
    assert!(steps.is_as_its_log(roomy()));
}

#[test]
fn a_large_commit_ends_before_the_leader_stops() {
    let mut steps = committed();
    steps.now_ms += 1;
    steps.tick();
    assert_eq!(steps.held("a"), 2 * SLICE_CHANGES as u64);
    assert!(steps.is_as_its_log(roomy()));
    assert_eq!((steps.held("a"), &steps.replies[..]), (LARGE + 1, &[(1, true), (2, true)][..]));
}

#[test]
fn a_large_commit_that_is_durable_is_no_failure_when_the_log_fails() {
    let mut steps = committed();
    let publish = Publish::plain(CLIENT, Ticket(3), sent(LARGE, 0));
    steps.step(|partition, effects| partition.soft(Event::Publish(publish), effects));
    steps.proposed.clear();
    let failed = Event::ProposalsFailed { reason: "no disk".to_owned() };
    steps.step(|partition, effects| partition.soft(failed, effects));
    assert_eq!(steps.replies, [(1, true), (2, true), (3, false)]);
    assert_eq!(steps.held("a"), LARGE + 1);
}

#[test]
fn a_snapshot_has_all_of_a_large_commit() {
    let mut steps = committed();
    assert!(steps.partition.has_unfinished_records());
    steps.step(|partition, effects| partition.finish_records(effects));
    assert!(!steps.partition.has_unfinished_records());
    let restored = Partition::restore(roomy(), &steps.partition.snapshot()).expect("its own snapshot");
    assert_eq!(restored.queues().map(|(_, entries)| entries).sum::<u64>(), LARGE + 1);
}

#[test]
fn a_large_share_of_a_transaction_ends_in_steps() {
    let id = TransactionId { coordinator: PartitionId(1), incarnation: 1, number: 1 };
    for commit in [true, false] {
        let mut steps = Steps::new(roomy());
        steps.step(|partition, effects| partition.start(effects));
        steps.fill(LARGE, 0);
        let end =
            |number| Settlement { queue: QueueId(0), tag: EntryTag(number), cause: SettleCause::Consumed };
        let changes = Changes {
            sends: (0..LARGE).map(|number| sent(number, 0)).collect(),
            settlements: (0..LARGE).map(end).collect(),
        };
        steps.proposed.push_back(Command::Prepare { id, changes });
        steps.apply_all();
        assert_eq!(steps.partition.memory().messages, LARGE + SLICE_CHANGES as u64, "commit: {commit}");
        steps.rest();
        assert_eq!(steps.partition.memory().messages, 2 * LARGE, "commit: {commit}");
        steps.most_changed = 0;
        steps.proposed.push_back(if commit { Command::Commit { id } } else { Command::Abort { id } });
        steps.apply_all();
        assert!(steps.partition.has_unfinished_records(), "commit: {commit}");
        steps.rest();
        assert_eq!(steps.held("a"), LARGE, "commit: {commit}");
        let consumed = if commit { LARGE } else { 0 };
        assert_eq!(steps.partition.counters().consumed, consumed, "commit: {commit}");
        assert_eq!(steps.partition.memory().messages, LARGE, "commit: {commit}");
        assert!(steps.most_changed <= SLICE_CHANGES as u64, "{}", steps.most_changed);
        assert!(steps.is_as_its_log(roomy()), "commit: {commit}");
    }
}

/// What one tick may close: see `transaction::closing`.
const CLOSED_PER_TICK: u64 = 2 * SLICE_CHANGES as u64;

const OTHER: ConnectionId = ConnectionId::new(0, 2);

fn event(steps: &mut Steps, event: Event) {
    steps.step(|partition, effects| partition.soft(event, effects));
    steps.apply_all();
}

fn commit(ticket: u64) -> Event {
    Event::Commit { transaction: TRANSACTION, participants: vec![PartitionId(0)], ticket: Ticket(ticket) }
}

/// A leader whose client has sent a large transaction.
fn sent_in_transaction() -> Steps {
    let mut steps = Steps::new(roomy());
    steps.step(|partition, effects| partition.start(effects));
    for number in 0..LARGE {
        let publish = Publish::plain(CLIENT, Ticket(0), sent(number, 0));
        event(&mut steps, Event::Publish(Publish { transaction: Some(TRANSACTION), ..publish }));
    }
    steps.replies.clear();
    steps
}

/// A leader whose client has acknowledged [`LARGE`] messages in a transaction; one more is after
/// them.
fn acknowledged_in_transaction() -> Steps {
    let mut steps = Steps::new(roomy());
    steps.step(|partition, effects| partition.start(effects));
    steps.fill(LARGE, 0);
    attach(&mut steps, CLIENT);
    ticks_until(&mut steps, |steps| steps.delivered.len() as u64 == LARGE);
    let tags: Vec<EntryTag> = steps.delivered.drain(..).map(|(_, tag)| tag).collect();
    assert_eq!(tags.len() as u64, LARGE);
    for tags in tags.chunks(100) {
        let settle = Settle {
            consumer: ConsumerKey::new(CLIENT, 1),
            tags: tags.to_vec(),
            outcome: Outcome::Accepted,
            transaction: Some(TRANSACTION),
            reason: None,
            ticket: None,
        };
        event(&mut steps, Event::Settle(settle));
    }
    event(&mut steps, Event::Publish(Publish::plain(OTHER, Ticket(0), sent(LARGE, 0))));
    steps.replies.clear();
    steps
}

fn attach(steps: &mut Steps, connection: ConnectionId) {
    let attach = Attach {
        consumer: ConsumerKey::new(connection, 1),
        source: Destination::queue("a"),
        at: None,
        mode: ConsumerMode::Shared,
        credit: LARGE as u32,
        credit_by_default: false,
        priority: 0,
        no_local: false,
        client: None,
        selector: "".into(),
        subscription: None,
        share: Share::No,
        steals: None,
        retroactive: false,
        notice: None,
        ticket: Ticket(0),
    };
    event(steps, Event::Attach(attach));
}

fn ticks_until(steps: &mut Steps, is_done: impl Fn(&Steps) -> bool) -> u64 {
    let mut ticks = 0;
    while !is_done(steps) {
        steps.now_ms += 1;
        steps.tick();
        ticks += 1;
        assert!(ticks < BACKLOG, "it never ends");
    }
    ticks
}

#[test]
fn a_large_transaction_is_closed_in_steps_and_its_connection_waits() {
    let mut steps = sent_in_transaction();
    event(&mut steps, commit(1));
    event(&mut steps, Event::Publish(Publish::plain(CLIENT, Ticket(2), sent(LARGE, 0))));
    event(&mut steps, Event::Publish(Publish::plain(OTHER, Ticket(3), sent(LARGE, 0))));
    assert_eq!((steps.held("a"), &steps.replies[..]), (1, &[(3, true)][..]), "the other one goes on");
    let ticks = ticks_until(&mut steps, |steps| steps.partition.has_unfinished_records());
    // Each message is looked at twice.
    assert_eq!(ticks, (2 * LARGE).div_ceil(CLOSED_PER_TICK));
    steps.rest();
    assert_eq!(steps.replies, [(3, true), (1, true), (2, true)]);
    let Some((_, Command::Enqueue(last))) = steps.log.last() else { panic!("the send is behind the commit") };
    assert_eq!(last.message.bytes, sent(LARGE, 0).message.bytes);
    assert!(steps.is_as_its_log(roomy()));
}

#[test]
fn a_large_transaction_that_cannot_be_taken_is_undone_in_steps() {
    let mut steps = sent_in_transaction();
    event(&mut steps, Event::Space { ample: false });
    event(&mut steps, commit(1));
    assert_eq!(steps.replies, []);
    // The first message is refused, and all are dropped.
    let ticks = ticks_until(&mut steps, |steps| !steps.replies.is_empty());
    assert_eq!((ticks, &steps.replies[..]), (LARGE.div_ceil(CLOSED_PER_TICK), &[(1, false)][..]));
    assert_eq!(steps.partition.miscounted(), None);
}

#[test]
fn a_large_rollback_goes_in_steps() {
    let mut steps = acknowledged_in_transaction();
    event(&mut steps, Event::Rollback { transaction: TRANSACTION, ticket: Some(Ticket(1)) });
    let ticks = ticks_until(&mut steps, |steps| !steps.replies.is_empty());
    assert_eq!((ticks, &steps.replies[..]), (LARGE.div_ceil(CLOSED_PER_TICK), &[(1, true)][..]));
    assert_eq!(steps.partition.miscounted(), None);
}

#[test]
fn a_large_rollback_holds_its_queues_from_the_beginning() {
    let mut steps = acknowledged_in_transaction();
    let consumer = ConsumerKey::new(CLIENT, 1);
    event(&mut steps, Event::Detach { consumer, delivered: Delivered::All, ticket: None });
    ticks_until(&mut steps, |steps| !steps.partition.has_slices_left());
    event(&mut steps, Event::Rollback { transaction: TRANSACTION, ticket: Some(Ticket(1)) });
    attach(&mut steps, OTHER);
    assert!(steps.delivered.is_empty(), "a later message would overtake those that are about to return");
    ticks_until(&mut steps, |steps| steps.delivered.len() as u64 == LARGE);
    let got: Vec<EntryTag> = steps.delivered.iter().map(|(_, tag)| *tag).collect();
    assert!(got.is_sorted(), "in order");
    assert_eq!(steps.partition.miscounted(), None);
}

#[test]
fn messages_of_a_large_transaction_go_to_others_in_order_when_its_connection_ends() {
    let mut steps = acknowledged_in_transaction();
    let consumer = ConsumerKey::new(CLIENT, 1);
    // So its messages have no consumer to go back to.
    event(&mut steps, Event::Detach { consumer, delivered: Delivered::All, ticket: None });
    event(&mut steps, Event::Closed { connection: CLIENT });
    steps.now_ms += 1;
    steps.tick();
    attach(&mut steps, OTHER);
    assert!(steps.delivered.is_empty(), "a later message would overtake those that are not back");
    let ticks = ticks_until(&mut steps, |steps| !steps.delivered.is_empty());
    // The consumer leaves, then the transaction is undone.
    assert_eq!(1 + ticks, 2 * LARGE.div_ceil(CLOSED_PER_TICK));
    ticks_until(&mut steps, |steps| steps.delivered.len() as u64 == LARGE);
    let got: Vec<EntryTag> = steps.delivered.iter().map(|(_, tag)| *tag).collect();
    assert!(got.is_sorted() && got.len() as u64 == LARGE, "{} of them", got.len());
    assert!(steps.worst <= STEP_MAX, "one step did {}", steps.worst);
}

/// A leader whose client holds [`LARGE`] messages; one more is after them.
fn delivered() -> Steps {
    delivered_with(roomy())
}

fn delivered_with(settings: Settings) -> Steps {
    let slice = settings.slice_changes as u64;
    let mut steps = Steps::new(settings);
    steps.step(|partition, effects| partition.start(effects));
    steps.fill(LARGE, 0);
    attach(&mut steps, CLIENT);
    let ticks = ticks_until(&mut steps, |steps| steps.delivered.len() as u64 == LARGE);
    assert_eq!(ticks, (LARGE - slice).div_ceil(2 * slice));
    assert!(steps.worst < STEP_MAX, "one step did {}", steps.worst);
    steps.held_by_first = steps.delivered.drain(..).map(|(_, tag)| tag).collect();
    event(&mut steps, Event::Publish(Publish::plain(OTHER, Ticket(0), sent(LARGE, 0))));
    steps.replies.clear();
    steps
}

/// Another consumer gets the messages in order, once all are back.
fn others_get_all_in_order(steps: &mut Steps) -> u64 {
    attach(steps, OTHER);
    event(steps, Event::Credit { consumer: ConsumerKey::new(CLIENT, 1), add: 100 });
    assert!(steps.delivered.is_empty(), "a later message would overtake those that are not back");
    let ticks = ticks_until(steps, |steps| !steps.delivered.is_empty());
    ticks_until(steps, |steps| steps.delivered.len() as u64 == LARGE);
    assert!(steps.worst <= STEP_MAX, "one step did {}", steps.worst);
    assert!(steps.delivered.iter().all(|(consumer, _)| consumer.connection == OTHER));
    let got: Vec<EntryTag> = steps.delivered.iter().map(|(_, tag)| *tag).collect();
    assert!(got.is_sorted() && got.len() as u64 == LARGE, "{} of them", got.len());
    assert_eq!(steps.partition.miscounted(), None);
    ticks
}

#[test]
fn a_connection_that_holds_many_messages_ends_in_steps() {
    let mut steps = delivered();
    event(&mut steps, Event::Closed { connection: CLIENT });
    assert!(steps.partition.has_slices_left());
    let ticks = others_get_all_in_order(&mut steps);
    assert_eq!(ticks, LARGE.div_ceil(CLOSED_PER_TICK));
    // A failed delivery was counted for each of the first one's messages.
    let counts = steps.log.iter().filter_map(|(_, command)| match command {
        Command::CountDelivery { tags, .. } => Some(tags.len()),
        _ => None,
    });
    let counts: Vec<usize> = counts.collect();
    assert!(counts.iter().all(|tags| *tags <= SLICE_CHANGES), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>() as u64, LARGE);
    assert!(steps.is_as_its_log(roomy()));
}

#[test]
fn a_consumer_that_holds_many_messages_ends_in_steps_and_is_answered_behind_the_last() {
    let mut steps = delivered();
    let consumer = ConsumerKey::new(CLIENT, 1);
    let detach = Event::Detach { consumer, delivered: Delivered::None, ticket: Some(Ticket(7)) };
    event(&mut steps, detach);
    event(&mut steps, Event::Publish(Publish::plain(CLIENT, Ticket(8), sent(LARGE, 0))));
    assert_eq!(steps.replies, []);
    others_get_all_in_order(&mut steps);
    assert_eq!(steps.replies, [(0, true), (7, true), (8, true)]);
    let is_count = |command: &Command| matches!(command, Command::CountDelivery { .. });
    assert!(!steps.log.iter().any(|(_, command)| is_count(command)), "it saw none of them");
}

#[test]
fn a_consumer_that_ends_in_steps_is_not_slow() {
    let mut policies = Policies::with_dead_letters_in("dead");
    let slow = Slow { after_ms: Some(1000), then: SlowAction::Detach };
    let policy = Policy { slow, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://a").expect("a pattern"), policy);
    for (case, ends, detached) in [("it stays", false, 1), ("it ends", true, 0)] {
        let mut steps = delivered_with(Settings { policies: Arc::new(policies.clone()), ..roomy() });
        let (consumer, delivered) = (ConsumerKey::new(CLIENT, 1), Delivered::None);
        if ends {
            event(&mut steps, Event::Detach { consumer, delivered, ticket: Some(Ticket(7)) });
            assert!(steps.partition.has_slices_left());
        }
        steps.now_ms += 5000;
        steps.rest();
        assert_eq!(steps.detached, detached, "case: {case}");
        assert_eq!(steps.replies.contains(&(7, true)), ends, "case: {case}");
    }
}

#[test]
fn a_drain_ends_behind_the_whole_backlog() {
    const BACKLOG: usize = 2 * SLICE_CHANGES + 500;
    for by_a_send in [false, true] {
        let mut steps = Steps::new(roomy());
        steps.step(|partition, effects| partition.start(effects));
        steps.fill(BACKLOG as u64, 0);
        attach(&mut steps, CLIENT);
        assert_eq!(steps.delivered.len(), SLICE_CHANGES);
        event(&mut steps, Event::Drain { consumer: ConsumerKey::new(CLIENT, 1) });
        assert_eq!((steps.delivered.len(), steps.drained), (2 * SLICE_CHANGES, 0));
        if by_a_send {
            event(&mut steps, Event::Publish(Publish::plain(OTHER, Ticket(0), sent(LARGE, 0))));
        } else {
            steps.now_ms += 1;
            steps.tick();
        }
        let sent = BACKLOG + usize::from(by_a_send);
        assert_eq!((steps.delivered.len(), steps.drained), (sent, 1), "by a send: {by_a_send}");
    }
}

/// A verdict of the first consumer on all that it holds.
fn accept_all(steps: &mut Steps, ticket: u64) {
    let tags = std::mem::take(&mut steps.held_by_first);
    let consumer = ConsumerKey::new(CLIENT, 1);
    let (outcome, ticket) = (Outcome::Accepted, Some(Ticket(ticket)));
    let settle = Settle { consumer, tags, outcome, transaction: None, reason: None, ticket };
    event(steps, Event::Settle(settle));
}

/// Entries that each of these records settles, if it settles any.
fn settled_by(log: &[(Position, Command)]) -> Vec<u64> {
    let settled = log.iter().filter_map(|(_, command)| match command {
        Command::Settle(settlements) => Some(settlements.len() as u64),
        Command::Transact(changes) => Some(changes.settlements.len() as u64).filter(|many| 0 < *many),
        _ => None,
    });
    settled.collect()
}

/// The log fails as soon as it gets something.
fn fails_once_proposed(steps: &mut Steps) {
    while steps.proposed.is_empty() {
        steps.now_ms += 1;
        let now = Now { ticks_ms: steps.now_ms, wall_ms: steps.now_ms };
        steps.step(|partition, effects| partition.soft(Event::Tick { now }, effects));
    }
    steps.proposed.clear();
    event(steps, Event::ProposalsFailed { reason: "no disk".to_owned() });
}

#[test]
fn many_verdicts_are_settled_in_steps_and_answered_behind_the_last() {
    let mut steps = delivered();
    let log = steps.log.len();
    steps.worst = 0;
    accept_all(&mut steps, 5);
    event(&mut steps, Event::Publish(Publish::plain(CLIENT, Ticket(6), sent(LARGE, 0))));
    assert_eq!(steps.replies, []);
    let ticks = ticks_until(&mut steps, |steps| !steps.replies.is_empty());
    // All are taken, then the record is carried out: its first slice at once.
    let slice = SLICE_CHANGES as u64;
    let expected = LARGE.div_ceil(CLOSED_PER_TICK) + (LARGE - slice).div_ceil(slice);
    assert_eq!((ticks, &steps.replies[..]), (expected, &[(5, true), (6, true)][..]));
    assert_eq!((settled_by(&steps.log[log..]), steps.held("a")), (vec![LARGE], 2));
    assert_eq!(steps.most_changed, slice);
    assert!(steps.worst < STEP_MAX, "one step did {}", steps.worst);
    assert!(steps.is_as_its_log(roomy()));
}

#[test]
fn many_verdicts_that_the_log_refuses_come_again_all_of_them() {
    let mut steps = delivered();
    accept_all(&mut steps, 5);
    fails_once_proposed(&mut steps);
    assert_eq!(steps.replies, [(5, false)]);
    attach(&mut steps, OTHER);
    ticks_until(&mut steps, |steps| steps.delivered.len() as u64 == LARGE);
    assert!(steps.delivered.is_sorted_by_key(|(_, tag)| *tag), "in order");
    assert_eq!((steps.held("a"), steps.partition.miscounted()), (LARGE + 1, None));
}

#[test]
fn many_verdicts_without_a_client_that_waits_are_proposed_again_as_one_record() {
    let mut steps = delivered();
    let tags = std::mem::take(&mut steps.held_by_first);
    let consumer = ConsumerKey::new(CLIENT, 1);
    let settle =
        Settle { consumer, tags, outcome: Outcome::Accepted, transaction: None, reason: None, ticket: None };
    event(&mut steps, Event::Settle(settle));
    fails_once_proposed(&mut steps);
    let log = steps.log.len();
    event(&mut steps, Event::Space { ample: true });
    steps.rest();
    assert_eq!((settled_by(&steps.log[log..]), steps.held("a")), (vec![LARGE], 1));
    assert_eq!(steps.partition.miscounted(), None);
}

#[test]
fn more_verdicts_than_one_record_has_are_several_and_confirmed_by_the_last() {
    let settings = || Settings { slice_changes: 8, ..roomy() };
    const RECORD_MAX: u64 = 128 * 8;
    for fails in [false, true] {
        let mut steps = delivered_with(settings());
        let log = steps.log.len();
        accept_all(&mut steps, 5);
        if fails {
            fails_once_proposed(&mut steps);
        }
        steps.rest();
        // The last one settles an entry of the record before once more, so that it is behind it.
        let records = if fails { 3 } else { 4 };
        let mut expected = vec![RECORD_MAX; records];
        expected.push(LARGE - 4 * RECORD_MAX + u64::from(!fails));
        assert_eq!((settled_by(&steps.log[log..]), &steps.replies[..]), (expected, &[(5, !fails)][..]));
        event(&mut steps, Event::Space { ample: true });
        steps.rest();
        assert_eq!((steps.held("a"), steps.partition.miscounted()), (1, None));
        assert!(steps.is_as_its_log(settings()));
    }
}

#[test]
fn a_leader_stops_while_connections_end() {
    let mut steps = delivered();
    let consumer = ConsumerKey::new(CLIENT, 1);
    let detach = Event::Detach { consumer, delivered: Delivered::All, ticket: Some(Ticket(7)) };
    event(&mut steps, detach);
    event(&mut steps, Event::Closed { connection: CLIENT });
    steps.now_ms += 1;
    steps.tick();
    assert!(steps.is_as_its_log(roomy()));
    assert_eq!(steps.replies, [(7, false)]);
}

#[test]
fn many_temporary_queues_of_a_connection_end_in_steps() {
    const QUEUES: usize = 2000;
    let mut steps = Steps::new(roomy());
    steps.step(|partition, effects| partition.start(effects));
    for number in 0..QUEUES {
        let destination = Destination { temporary: true, ..Destination::queue(&format!("t{number}")) };
        let declare = Event::Declare { destination, connection: CLIENT, steals: None, ticket: Ticket(0) };
        event(&mut steps, declare);
    }
    let queues = |steps: &Steps| steps.partition.queues().count();
    assert_eq!(queues(&steps), QUEUES);
    event(&mut steps, Event::Closed { connection: CLIENT });
    let (mut before, mut most) = (queues(&steps), 0);
    while steps.partition.has_slices_left() {
        steps.now_ms += 1;
        steps.tick();
        most = most.max(before - queues(&steps));
        before = queues(&steps);
    }
    assert_eq!((before, most as u64), (0, CLOSED_PER_TICK / 8));
}

#[test]
fn a_leader_that_stops_refuses_what_it_has_not_closed() {
    let mut steps = sent_in_transaction();
    event(&mut steps, commit(1));
    event(&mut steps, Event::Publish(Publish::plain(CLIENT, Ticket(2), sent(LARGE, 0))));
    steps.now_ms += 1;
    steps.tick();
    assert!(steps.is_as_its_log(roomy()));
    assert_eq!(steps.replies, [(1, false), (2, false)]);
}

#[test]
fn with_too_many_events_behind_it_a_transaction_is_closed_at_once() {
    const BEHIND_MAX: u64 = 16_384;
    let mut steps = sent_in_transaction();
    event(&mut steps, commit(1));
    let consumer = ConsumerKey::new(CLIENT, 9);
    for _ in 0..BEHIND_MAX {
        event(&mut steps, Event::Credit { consumer, add: 1 });
    }
    assert!(!steps.partition.has_unfinished_records());
    event(&mut steps, Event::Credit { consumer, add: 1 });
    assert!(steps.partition.has_unfinished_records());
}

//! What is done about a whole queue goes in steps: no event, record or tick makes a partition do more than so much.

mod bench;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bench::settings;
use bytes::Bytes;
use postroad_core::{Partition, Settings};
use postroad_model::{
    Command, ConnectionId, Destination, Effect, Encoding, Event, Message, MessageKey, NORMAL_PRIORITY, Now,
    PartitionId, Position, Protocol, Publish, Sent, Ticket,
};
use postroad_routing::{AtLimit, Limit, Policies, Policy};

/// Effects of one step, and entries that one record settles or sends: a page of a queue that is gone, behind others.
const STEP_MAX: usize = 4096 + 1024;

const BACKLOG: u64 = 20_000;

/// A partition whose proposals are durable one after another, each in a step of its own.
struct Steps {
    partition: Partition,
    next: u64,
    proposed: VecDeque<Command>,
    /// What records hold, for reads.
    stored: BTreeMap<Position, Message>,
    wanted: VecDeque<Vec<MessageKey>>,
    worst: usize,
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
            now_ms: 0,
        }
    }

    fn step(&mut self, act: impl FnOnce(&mut Partition, &mut Vec<Effect>)) {
        let mut effects = Vec::new();
        act(&mut self.partition, &mut effects);
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
                _ => {}
            }
        }
        self.worst = self.worst.max(weight);
    }

    fn apply_all(&mut self) {
        while let Some(command) = self.proposed.pop_front() {
            let position = Position::new(self.next).expect("from 1");
            self.next += 1;
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

    fn fill(&mut self, expires_at_ms: u64) {
        for number in 0..BACKLOG {
            let sent = sent(number, expires_at_ms);
            let publish = Publish::plain(ConnectionId::internal(PartitionId(0)), Ticket(number), sent);
            self.step(|partition, effects| partition.soft(Event::Publish(publish), effects));
            self.apply_all();
        }
        assert_eq!(self.held("a"), BACKLOG);
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
    steps.fill(0);
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
    steps.fill(10);
    steps.now_ms = 10;
    steps.rest();
    assert_eq!((steps.held("a"), steps.held("dead")), (0, BACKLOG));
    assert!(steps.worst < STEP_MAX, "one step did {}", steps.worst);
}

#[test]
fn a_queue_that_is_deleted_lets_go_of_its_messages_in_steps() {
    let mut steps = Steps::new(settings(1));
    steps.step(|partition, effects| partition.start(effects));
    steps.fill(0);
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

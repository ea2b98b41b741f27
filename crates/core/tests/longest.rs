//! The longest step of a partition with 100,000 of one thing: none may take 10 ms.
//!
//! `cargo test -p postroad-core --test longest -- --nocapture` prints the times. Each step is taken
//! several times and the shortest counts, so that other work of the machine does not.

mod bench;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::{equipped, settings};
use bytes::Bytes;
use postroad_core::{Partition, Settings};
use postroad_model::{
    Ask, Attach, Changes, Command, ConnectionId, ConsumerKey, ConsumerMode, Delivered, Destination, Effect,
    Encoding, EntryTag, Event, Explained, Group, LeaseEvent, Message, NORMAL_PRIORITY, Now, Order,
    PartitionId, Position, Protocol, Publish, Question, QueueId, RareHeaders, Reserve, Sent, SettleCause,
    Settlement, Share, Subscription, Take, Ticket, TransactionKey,
};
use postroad_routing::{AtLimit, DestinationPattern, Gathering, Limit, Policies, Policy, Slow, SlowAction};

const MANY: u32 = 100_000;

/// Each step is taken this often.
const TRIES: u32 = 5;

const STEP_MAX: Duration = Duration::from_millis(10);

const CONNECTIONS: u32 = 100;

/// A partition whose proposals are durable at once, unless they are held.
struct Timed {
    partition: Partition,
    next: u64,
    now_ms: u64,
    holds: bool,
    proposed: VecDeque<Command>,
    delivered: Vec<(ConsumerKey, EntryTag)>,
    replies: u64,
    steps: Vec<Duration>,
}

fn roomy(policies: Policies) -> Settings {
    let large = 1 << 40;
    Settings {
        resident_bytes_max: large,
        messages_bytes_max: large,
        volatile_bytes_max: large,
        open_bytes_max: large,
        transaction_bytes_max: large,
        outbox_bytes_max: large,
        page_entries: 1024,
        policies: Arc::new(policies),
        ..settings(2)
    }
}

impl Timed {
    fn new(policies: Policies) -> Timed {
        Timed::with(roomy(policies))
    }

    fn with(settings: Settings) -> Timed {
        let mut partition = equipped(Partition::new(settings));
        partition.start(&mut Vec::new());
        Timed {
            partition,
            next: 1,
            now_ms: 1,
            holds: false,
            proposed: VecDeque::new(),
            delivered: Vec::new(),
            replies: 0,
            steps: Vec::new(),
        }
    }

    fn step(&mut self, act: impl FnOnce(&mut Partition, &mut Vec<Effect>)) {
        let mut effects = Vec::with_capacity(4096);
        let begun = Instant::now();
        act(&mut self.partition, &mut effects);
        self.steps.push(begun.elapsed());
        for effect in effects {
            match effect {
                Effect::Propose { command, .. } => self.proposed.push_back(command),
                Effect::Deliver(delivery) => self.delivered.push((delivery.consumer, delivery.tag)),
                Effect::Reply { .. } => self.replies += 1,
                _ => {}
            }
        }
    }

    fn apply_all(&mut self) {
        while let Some(command) = self.proposed.pop_front() {
            let position = Position::new(self.next).expect("from 1");
            self.next += 1;
            self.step(|partition, effects| partition.apply(position, command, effects));
        }
    }

    fn event(&mut self, event: Event) {
        self.step(|partition, effects| partition.soft(event, effects));
        if !self.holds {
            self.apply_all();
        }
    }

    fn tick(&mut self, add_ms: u64) {
        self.now_ms += add_ms;
        let now = Now { ticks_ms: self.now_ms, wall_ms: self.now_ms };
        self.event(Event::Tick { now });
    }

    /// Until nothing is due in the next second.
    fn rest(&mut self) {
        for _ in 0..MANY {
            match self.partition.next_due_ms() {
                Some(due_ms) if due_ms < self.now_ms + 1000 => {
                    self.tick(due_ms.saturating_sub(self.now_ms).max(1));
                }
                _ => return,
            }
        }
    }

    /// The times of these steps.
    fn times_of(&mut self, act: impl FnOnce(&mut Timed)) -> Vec<Duration> {
        self.steps.clear();
        act(self);
        std::mem::take(&mut self.steps)
    }
}

/// The longest step of several tries, each step by its shortest time, has to be short enough.
fn check(name: &str, timed: &mut Timed, mut act: impl FnMut(&mut Timed, u32)) {
    let tries = (0..TRIES).map(|number| timed.times_of(|timed| act(timed, number)));
    is_short(name, tries.collect());
}

/// The same, where each try has a partition of its own.
fn check_anew(name: &str, mut make: impl FnMut() -> Timed, mut act: impl FnMut(&mut Timed)) {
    let tries = (0..TRIES).map(|_| make().times_of(&mut act));
    is_short(name, tries.collect());
}

fn is_short(name: &str, tries: Vec<Vec<Duration>>) {
    let longest = print_longest(name, tries);
    assert!(longest < STEP_MAX, "{name}: {longest:?}");
}

/// Prints the longest step, which is not bounded.
fn print(name: &str, timed: &mut Timed, mut act: impl FnMut(&mut Timed, u32)) {
    let tries = (0..TRIES).map(|number| timed.times_of(|timed| act(timed, number)));
    print_longest(name, tries.collect());
}

fn print_longest(name: &str, tries: Vec<Vec<Duration>>) -> Duration {
    let steps = tries.iter().map(Vec::len).max().unwrap_or_default();
    let shortest = |step: usize| tries.iter().filter_map(|times| times.get(step)).min().copied();
    let longest = (0..steps).filter_map(|step| Some((shortest(step)?, step))).max();
    let (longest, step) = longest.unwrap_or_default();
    eprintln!("{name}: {:.3} ms, step {step} of {steps}", longest.as_secs_f64() * 1000.0);
    longest
}

fn consumer(number: u32) -> ConsumerKey {
    ConsumerKey::new(ConnectionId::new(0, (1 + number % CONNECTIONS).into()), number)
}

fn attach_to(source: &str, number: u32, credit: u32) -> Attach {
    Attach {
        consumer: consumer(number),
        source: Destination::queue(source),
        at: None,
        mode: ConsumerMode::Shared,
        credit,
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
    }
}

fn message(persistent: bool, group: Option<Group>) -> Message {
    Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: group.map(|group| Arc::new(RareHeaders { group: Some(group), ..RareHeaders::default() })),
        bytes: Bytes::from_static(b"m"),
    }
}

fn publish(to: &str, connection: u32, message: Message) -> Publish {
    let connection = ConnectionId::new(0, connection.into());
    Publish::plain(connection, Ticket(0), Sent::new(Destination::queue(to), message))
}

fn with_consumers(policies: Policies, mode: ConsumerMode, credit: u32) -> Timed {
    let mut timed = Timed::new(policies);
    for number in 0..MANY {
        timed.event(Event::Attach(Attach { mode, ..attach_to("a", number, credit) }));
    }
    timed
}

fn one_more(mode: ConsumerMode, number: u32) -> Event {
    Event::Attach(Attach { mode, ..attach_to("a", MANY + number, 1) })
}

fn policy_for_a(change: impl Fn(&mut Policy)) -> Policies {
    let mut policies = Policies::with_dead_letters_in("dead");
    let mut policy = policies.fallback().clone();
    change(&mut policy);
    policies.set(&DestinationPattern::parse("queue://a").expect("a pattern"), policy);
    policies
}

#[test]
fn consumers_of_a_queue() {
    let mut timed = with_consumers(Policies::default(), ConsumerMode::Shared, 1);
    check("attach one more", &mut timed, |timed, number| {
        timed.event(one_more(ConsumerMode::Shared, number));
    });
    check("drain one", &mut timed, |timed, number| {
        timed.event(Event::Drain { consumer: consumer(MANY / 2 + number) });
    });
    check("detach one", &mut timed, |timed, number| {
        let consumer = consumer(MANY / 3 + number);
        timed.event(Event::Detach { consumer, delivered: Delivered::None, ticket: None });
    });
    check("explain the queue", &mut timed, |timed, _| {
        let question = Question::Explain { queue: Destination::queue("a"), of: Explained::Next };
        let ask = Ask { question, after: None, rows: Ask::ROWS_MAX, order: Order::default() }.into();
        let (connection, ticket) = (ConnectionId::internal(PartitionId(0)), Ticket(1));
        timed.event(Event::Ask { ask, connection, ticket });
        timed.rest();
    });
}

/// Consumers that have one message each.
fn with_deliveries(slow: Slow) -> Timed {
    let mut timed = with_consumers(policy_for_a(|policy| policy.slow = slow), ConsumerMode::Shared, 1);
    for number in 0..MANY {
        timed.event(Event::Publish(publish("a", 1 + number % CONNECTIONS, message(false, None))));
    }
    assert_eq!(timed.delivered.len(), MANY as usize);
    timed
}

#[test]
fn consumers_that_are_looked_at_for_slowness() {
    let mut timed = with_deliveries(Slow { after_ms: Some(60_000), then: SlowAction::Detach });
    check("look for slow consumers", &mut timed, |timed, _| {
        timed.tick(400);
        (0..100).for_each(|_| timed.tick(1));
    });
    let slow = Slow { after_ms: Some(2000), then: SlowAction::Advise };
    check_anew(
        "all become slow",
        || with_deliveries(slow),
        |timed| {
            timed.tick(2000);
            (0..500).for_each(|_| timed.tick(1));
            assert_eq!(timed.partition.counters().slow_consumers, u64::from(MANY));
        },
    );
}

#[test]
fn consumers_of_message_groups() {
    let mut timed = with_consumers(Policies::default(), ConsumerMode::Shared, 1000);
    let group = |number: u32, sequence| Some(Group { id: format!("g{number}").into(), sequence });
    // Once for each queue.
    check_anew(
        "the first message of a group",
        || with_consumers(Policies::default(), ConsumerMode::Shared, 1000),
        |timed| {
            timed.event(Event::Publish(publish("a", 1, message(false, group(1000, 1)))));
            timed.rest();
            assert_eq!(timed.delivered.len(), 1);
        },
    );
    check("a group ends", &mut timed, |timed, number| {
        timed.event(Event::Publish(publish("a", 1, message(false, group(number, 1)))));
        timed.rest();
        timed.event(Event::Publish(publish("a", 1, message(false, group(number, -1)))));
        timed.rest();
        assert_eq!(timed.delivered.len() as u32, 2 * (number + 1));
    });
    check("the owner of a group leaves", &mut timed, |timed, number| {
        timed.event(Event::Publish(publish("a", 1, message(false, group(100 + number, 1)))));
        timed.rest();
        let (owner, _) = timed.delivered[timed.delivered.len() - 1];
        timed.event(Event::Detach { consumer: owner, delivered: Delivered::All, ticket: None });
        timed.rest();
    });
    check("a consumer joins the groups", &mut timed, |timed, number| {
        timed.event(one_more(ConsumerMode::Shared, number));
    });
}

/// Consumers that want none of the messages, which have no properties.
fn with_idle_consumers() -> Timed {
    let mut timed = Timed::new(Policies::default());
    for number in 0..MANY {
        let selector = format!("n = {number}").into();
        timed.event(Event::Attach(Attach { selector, ..attach_to("a", number, 10) }));
        timed.rest();
    }
    timed
}

#[test]
fn consumers_that_select() {
    check_anew("all idle ones look again", with_idle_consumers, |timed| {
        let group = Some(Group { id: "g".into(), sequence: 1 });
        timed.event(Event::Publish(publish("a", 1, message(true, group))));
        timed.rest();
        assert!(timed.delivered.is_empty());
    });
}

/// All groups have an owner, and many messages of theirs are under way.
fn with_groups_under_way() -> Timed {
    let mut timed = Timed::new(Policies::default());
    for number in 0..CONNECTIONS {
        timed.event(Event::Attach(attach_to("a", number, 2000)));
    }
    for number in 0..MANY {
        let group = Some(Group { id: format!("g{}", number % 20_000).into(), sequence: 1 });
        timed.event(Event::Publish(publish("a", 1 + number % CONNECTIONS, message(false, group))));
    }
    assert_eq!(timed.delivered.len(), MANY as usize);
    timed
}

#[test]
fn a_consumer_that_shares_groups() {
    let mut timed = with_groups_under_way();
    check("it comes beside messages under way", &mut timed, |timed, number| {
        timed.event(one_more(ConsumerMode::Shared, number));
    });
}

/// Transactions with one message each, and a queue that moves.
fn with_open_transactions(settings: Settings) -> Timed {
    let mut timed = Timed::with(settings);
    timed.event(Event::Publish(publish("a", 1, message(true, None))));
    let (connection, ticket) = (ConnectionId::internal(PartitionId(0)), Ticket(1));
    let (queue, to) = (Destination::queue("a"), PartitionId(1));
    timed.event(Event::Move { queue, to, connection, ticket });
    for number in 0..MANY {
        let publish = publish(&format!("q{}", number % 10), 1 + number % CONNECTIONS, message(true, None));
        let key = TransactionKey { connection: publish.connection, number: number.into() };
        timed.event(Event::Publish(Publish { transaction: Some(key), ..publish }));
    }
    timed
}

#[test]
fn open_transactions() {
    let mut timed = with_open_transactions(roomy(Policies::default()));
    let (connection, ticket) = (ConnectionId::internal(PartitionId(0)), Ticket(1));
    check("what a queue that moves waits for", &mut timed, |timed, _| {
        timed.event(Event::ListMoves { connection, ticket });
    });
    print("explain a queue beside them", &mut timed, |timed, _| {
        let question = Question::Explain { queue: Destination::queue("a"), of: Explained::Next };
        let ask = Ask { question, after: None, rows: Ask::ROWS_MAX, order: Order::default() }.into();
        timed.event(Event::Ask { ask, connection, ticket });
        timed.rest();
    });
    let settings = Settings { transaction_ms_max: Some(60_000), ..roomy(Policies::default()) };
    check_anew(
        "all of them time out",
        || with_open_transactions(settings.clone()),
        |timed| {
            timed.tick(61_000);
            (0..1000).for_each(|_| timed.tick(1));
            assert_eq!(timed.partition.counters().timed_out_transactions, u64::from(MANY));
        },
    );
}

#[test]
fn a_transaction_to_many_queues() {
    let mut timed = Timed::new(Policies::default());
    check("it is rolled back", &mut timed, |timed, number| {
        let key = TransactionKey { connection: ConnectionId::new(0, 1), number: number.into() };
        for queue in 0..MANY / 10 {
            let publish = publish(&format!("q{queue}"), 1, message(true, None));
            timed.event(Event::Publish(Publish { transaction: Some(key), ..publish }));
        }
        timed.event(Event::Rollback { transaction: key, ticket: None });
        timed.rest();
        assert!(timed.partition.miscounted().is_none());
    });
}

#[test]
fn exclusive_consumers() {
    let mut timed = with_consumers(Policies::default(), ConsumerMode::Exclusive, 10);
    check("the exclusive consumer leaves", &mut timed, |timed, number| {
        let consumer = consumer(number);
        timed.event(Event::Detach { consumer, delivered: Delivered::None, ticket: None });
    });
}

#[test]
fn an_exclusive_consumer_among_shared_ones() {
    let mut timed = with_consumers(Policies::default(), ConsumerMode::Shared, 10);
    check("an exclusive consumer comes and goes", &mut timed, |timed, number| {
        timed.event(one_more(ConsumerMode::Exclusive, number));
        let consumer = consumer(MANY + number);
        timed.event(Event::Detach { consumer, delivered: Delivered::None, ticket: None });
    });
}

#[test]
fn consumers_that_gather() {
    let gathering = Gathering { consumers_min: MANY * 2, wait_ms_max: 1 << 30 };
    let policies = policy_for_a(|policy| policy.gathering = gathering);
    let mut timed = with_consumers(policies, ConsumerMode::Shared, 10);
    check("one more gathers", &mut timed, |timed, number| {
        timed.event(one_more(ConsumerMode::Shared, number));
    });
}

fn with_waiting_events() -> Timed {
    let mut timed = Timed::new(Policies::default());
    timed.holds = true;
    for number in 0..MANY {
        timed.event(Event::Attach(attach_to("a", number, 1)));
    }
    timed
}

#[test]
fn events_that_wait_for_a_queue() {
    let mut timed = with_waiting_events();
    check("credit for a consumer that waits", &mut timed, |timed, number| {
        timed.event(Event::Credit { consumer: consumer(MANY - 1 - number), add: 1 });
    });
    check("a connection ends", &mut timed, |timed, number| {
        timed.event(Event::Closed { connection: ConnectionId::new(0, (1 + number).into()) });
    });
    check_anew("the queue is there", with_waiting_events, |timed| {
        timed.apply_all();
        timed.holds = false;
        timed.rest();
        assert_eq!(timed.replies as u32, MANY);
    });
}

const RESERVES: u32 = 16_384;

fn with_reserves() -> Timed {
    let mut timed = Timed::new(Policies::default());
    let connection = ConnectionId::internal(PartitionId(0));
    for queue in 0..MANY / RESERVES {
        let name = format!("q{queue}");
        timed.event(Event::Publish(publish(&name, 1, message(true, None))));
        for number in 0..RESERVES {
            let reserve = Reserve {
                queue: Destination::queue(&name),
                messages_max: 1,
                selector: "".into(),
                wait_ms: 20_000,
                take: Take::Lease { lasts_ms: 60_000 },
                connection,
                ticket: Ticket(u64::from(queue * RESERVES + number)),
            };
            timed.event(Event::Lease(Box::new(LeaseEvent::Reserve(reserve))));
        }
    }
    timed
}

#[test]
fn reserves_that_wait() {
    let connection = ConnectionId::internal(PartitionId(0));
    check("a reserve is cancelled", &mut with_reserves(), |timed, number| {
        let (queue, ticket) = (Destination::queue("q0"), Ticket(u64::from(RESERVES - 1 - number)));
        timed.event(Event::Lease(Box::new(LeaseEvent::Cancel { queue, connection, ticket })));
    });
    check_anew("all reserves end at once", with_reserves, |timed| {
        timed.tick(20_001);
        timed.rest();
        // Those of the messages too, and one of each queue had its message at once.
        assert_eq!(timed.replies as u32, MANY / RESERVES * (RESERVES + 1));
    });
}

/// Messages that wait, on disk and in memory alone.
fn with_backlog() -> Timed {
    let mut timed = Timed::new(Policies::default());
    for number in 0..MANY / 4 {
        timed.event(Event::Publish(publish("a", 1, message(number % 2 == 0, None))));
    }
    timed
}

#[test]
fn a_queue_that_is_cleared() {
    check_anew("clear a queue", with_backlog, |timed| {
        let (replies, queue) = (timed.replies, Destination::queue("a"));
        let (connection, ticket) = (ConnectionId::new(0, 1), Ticket(1));
        timed.holds = true;
        timed.event(Event::Lease(Box::new(LeaseEvent::Clear { queue, connection, ticket })));
        // One that comes meanwhile stays.
        timed.event(Event::Publish(publish("a", 1, message(true, None))));
        timed.holds = false;
        timed.apply_all();
        assert_eq!(timed.replies, replies + 2);
        timed.event(Event::Attach(attach_to("a", 1, 9)));
        assert_eq!(timed.delivered.len(), 1);
    });
}

#[test]
fn consumers_of_patterns() {
    let mut timed = Timed::new(Policies::default());
    for number in 0..MANY {
        let attach = attach_to(&format!("p{number}.>"), number, 1);
        timed.event(Event::Attach(Attach { at: Some(PartitionId(0)), ..attach }));
    }
    check("one more pattern", &mut timed, |timed, number| {
        let attach = attach_to("b.>", MANY + number, 1);
        timed.event(Event::Attach(Attach { at: Some(PartitionId(0)), ..attach }));
    });
    check("a queue is made", &mut timed, |timed, number| {
        timed.event(Event::Publish(publish(&format!("c.{number}"), 1, message(true, None))));
    });
}

#[test]
fn addresses_with_sends_that_wait() {
    let limit = Limit { messages_max: Some(1), action: AtLimit::Block, ..Limit::default() };
    let fallback = Policies::default().fallback().clone();
    let mut timed = Timed::new(Policies::new(Policy { limit, ..fallback }));
    for number in 0..2 * MANY {
        let sent = publish(&format!("q{}", number % MANY), 1 + number % CONNECTIONS, message(true, None));
        timed.event(Event::Publish(sent));
    }
    check("a queue is made", &mut timed, |timed, number| {
        timed.event(Event::Publish(publish(&format!("new{number}"), 1, message(true, None))));
        timed.rest();
    });
    check("the disk has room again", &mut timed, |timed, _| {
        timed.event(Event::Space { ample: true });
        timed.rest();
    });
}

/// A restart or a follower applies each record at once: no client of this node waits then. How long
/// that takes is printed, and not bounded.
#[test]
fn a_large_transaction_is_applied_at_once_on_a_replica() {
    let sent = |_| publish("a", 1, message(true, None)).sent;
    let record = Command::Transact(Changes { sends: (0..MANY).map(sent).collect(), settlements: Vec::new() });
    let ends = |number| Settlement {
        queue: QueueId(0),
        tag: EntryTag(u64::from(number)),
        cause: SettleCause::Consumed,
    };
    let settled = Changes { sends: Vec::new(), settlements: (0..MANY).map(ends).collect() };
    let (mut sends, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let mut replica = equipped(Partition::new(roomy(Policies::default())));
        let mut timed = |position, command| {
            let begun = Instant::now();
            replica.apply(Position::new(position).expect("from 1"), command, &mut Vec::new());
            begun.elapsed()
        };
        sends.push(timed(1, record.clone()));
        ends.push(timed(2, Command::Transact(settled.clone())));
        assert_eq!(replica.queues().map(|(_, messages)| messages).sum::<u64>(), 0);
    }
    for (name, times) in [("sends", sends), ("acknowledgements", ends)] {
        let shortest = times.into_iter().min().unwrap_or_default();
        eprintln!("{MANY} {name} of a transaction: {:.3} ms", shortest.as_secs_f64() * 1000.0);
    }
}

const QUEUES: u32 = 300_000;

fn subscription(topic: &str, number: u32) -> Subscription {
    Subscription {
        name: format!("s{number}").into(),
        topic: Destination::topic(topic),
        selector: "".into(),
        skips: None,
        shared: false,
    }
}

/// Durable subscriptions of one topic, none of which has a reader.
fn with_subscriptions(policies: Policies, many: u32) -> Timed {
    let mut timed = Timed::new(policies);
    for number in 0..many {
        timed.proposed.push_back(Command::Subscribe(subscription("t", number)));
        timed.apply_all();
    }
    timed
}

#[test]
fn subscriptions_without_a_reader() {
    let mut timed = with_subscriptions(Policies::default(), QUEUES);
    let mut limited = Policies::default();
    limited.offline_subscription_ms = Some(3_600_000);
    let limited = Arc::new(limited);
    check("their time begins", &mut timed, |timed, number| {
        for policies in [Arc::default(), limited.clone()] {
            timed.step(|partition, effects| partition.follow(policies, effects));
        }
        (0..1000).for_each(|_| timed.tick(1));
        assert!(number < TRIES);
    });
}

fn add_queues(timed: &mut Timed) {
    for number in 0..QUEUES {
        timed.proposed.push_back(Command::Declare { queue: Destination::queue(&format!("q{number}")) });
        timed.apply_all();
    }
}

#[test]
fn policies_over_many_queues() {
    // The table of addresses grows at some of these steps, and looks at each name then.
    let tries = (0..TRIES).map(|_| Timed::new(Policies::default()).times_of(add_queues));
    print_longest("queues are made, not bounded", tries.collect());
    let mut timed = Timed::new(Policies::default());
    add_queues(&mut timed);
    let limit = Limit { messages_max: Some(10), action: AtLimit::DropOldest, ..Limit::default() };
    let fallback = Policies::default().fallback().clone();
    let limited = Arc::new(Policies::new(Policy { limit, ..fallback }));
    check("policies change", &mut timed, |timed, _| {
        for policies in [Arc::default(), limited.clone()] {
            timed.step(|partition, effects| partition.follow(policies, effects));
            (0..1000).for_each(|_| timed.tick(1));
        }
    });
}

/// A message to each of many subscriptions is one record, and one step. It is printed, and not
/// bounded.
#[test]
fn a_message_to_many_subscriptions_is_one_step() {
    let sent = |persistent| {
        let publish = publish("t", 1, message(persistent, None));
        Publish { sent: Sent { to: Destination::topic("t"), ..publish.sent }, ..publish }
    };
    let mut timed = with_subscriptions(Policies::default(), MANY);
    print("a persistent message to durable ones", &mut timed, |timed, _| {
        timed.event(Event::Publish(sent(true)));
        timed.rest();
    });
    let mut timed = Timed::new(Policies::default());
    for number in 0..MANY {
        let source = Destination::topic("t");
        timed.event(Event::Attach(Attach { source, ..attach_to("", number, 100) }));
    }
    print("a message to volatile ones", &mut timed, |timed, _| {
        timed.event(Event::Publish(sent(false)));
        timed.rest();
    });
    assert_eq!(timed.delivered.len() as u32, TRIES * MANY);
}

fn with_queues_of_a_pattern() -> Timed {
    let mut timed = Timed::new(Policies::default());
    for number in 0..MANY {
        timed.proposed.push_back(Command::Declare { queue: Destination::queue(&format!("p.{number}")) });
        timed.apply_all();
    }
    timed
}

/// The memory for messages bounds how many queues patterns may read. It is printed, and not
/// bounded.
#[test]
fn a_pattern_of_many_queues() {
    let mut timed = with_queues_of_a_pattern();
    print("a consumer of all of them comes", &mut timed, |timed, number| {
        let attach = Attach { at: Some(PartitionId(0)), ..attach_to("p.>", number, 1) };
        timed.event(Event::Attach(attach));
        timed.rest();
    });
    print("its credit is drained", &mut timed, |timed, number| {
        timed.event(Event::Drain { consumer: consumer(number) });
        timed.rest();
    });
    print("it leaves", &mut timed, |timed, number| {
        let consumer = consumer(number);
        timed.event(Event::Detach { consumer, delivered: Delivered::None, ticket: None });
        timed.rest();
    });
}

/// Full pages of a backlog that none of many consumers wants, beyond the memory for messages.
#[test]
fn a_backlog_beside_many_consumers() {
    let settings = Settings { resident_bytes_max: 1 << 20, page_entries: 64, ..roomy(Policies::default()) };
    let mut timed = Timed::with(settings);
    for number in 0..MANY {
        let selector = format!("n = {number}").into();
        timed.event(Event::Attach(Attach { selector, ..attach_to("a", number, 10) }));
    }
    timed.rest();
    for _ in 0..50_000 {
        timed.event(Event::Publish(publish("a", 1, message(true, None))));
    }
    timed.rest();
    check("pages are packed", &mut timed, |timed, _| {
        // Of each two pages one is packed.
        for _ in 0..128 {
            timed.event(Event::Publish(publish("a", 1, message(true, None))));
        }
    });
    assert!(0 < timed.partition.counters().packed_pages);
}

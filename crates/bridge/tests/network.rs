//! Networks of brokers without sockets: real state machines and real demand engines, between which
//! messages, answers and demand are delayed and lost by a seed, while consumers move and brokers
//! crash.
//!
//! ```text
//!   Partition ──deliveries──▶ DemandEngine ──forth──▶ Partition of the peer
//!                                          ◀──back── answers, credit, demand
//! ```
//! At the end each message was consumed once, no queue has anything left, and nothing waited for
//! over a second once the faults ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use postroad_bridge::forwarders;
use postroad_core::{Partition, Settings};
use postroad_model::{
    Attach, Command, ConnectionId, ConsumerKey, ConsumerMode, Delivered, Delivery, Destination, Effect,
    Encoding, EntryTag, Event, Message, MessageKey, NORMAL_PRIORITY, Now, Origin, Outcome, PartitionId,
    Placement, Position, Protocol, Publish, Sent, Settle, Share, Ticket,
};
use postroad_openwire::network::{
    CreditQuestion, Demand, Forwarder, Link, LinkOptions, MakeForwarder, RemoteConsumer,
};
use postroad_routing::Policies;
use postroad_selector::{Properties, Value};

const BROKERS: usize = 3;
const CONSUMERS: usize = 3;
const PREFETCH: u32 = 4;
const MESSAGES: usize = 60;
const STEPS: usize = 3000;

/// A message that waits for longer beside consumers with credit is stuck.
const STUCK_AFTER_MS: u64 = 1000;

struct NoProperties;

impl Properties for NoProperties {
    fn property(&self, _: &str) -> Option<Value<'_>> {
        None
    }
}

/// The body is `NUMBER`, or `NUMBER|BROKER|QUEUE|TAG` if a link has forwarded it.
fn origin_of(message: &Message) -> Option<Origin> {
    let text = std::str::from_utf8(&message.bytes).ok()?;
    let parts: Vec<u64> = text.split('|').filter_map(|part| part.parse().ok()).collect();
    let [_, broker, queue, tag] = parts[..] else { return None };
    let producer = u128::from(broker) << 64 | u128::from(queue);
    Some(Origin { producer, sequence: tag, from_link: true })
}

fn number_in(message: &Message) -> usize {
    let text = std::str::from_utf8(&message.bytes).expect("text");
    text.split('|').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn queue() -> Destination {
    Destination::queue("work")
}

fn broker(number: usize) -> Partition {
    let mut partition = Partition::new(settings(number));
    read_by(&mut partition);
    partition
}

fn read_by(partition: &mut Partition) {
    partition.read_properties_by(|_| Box::new(NoProperties));
    partition.read_origins_by(origin_of);
}

fn settings(number: usize) -> Settings {
    Settings {
        id: PartitionId(0),
        placement: Placement::over(1),
        incarnation: 1 + number as u64,
        resident_bytes_max: 64 << 20,
        messages_bytes_max: 64 << 20,
        page_entries: 64,
        volatile_bytes_max: 1 << 20,
        recent_bytes_max: 1 << 20,
        retained_bytes_max: 1 << 20,
        transaction_bytes_max: 1 << 20,
        open_bytes_max: 1 << 20,
        transaction_ms_max: None,
        slice_changes: 1024,
        outbox_bytes_max: 64 << 20,
        addressing: Arc::default(),
        audited_producers_max: 100,
        spill: None,
        policies: Arc::new(Policies::default()),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) % end as u64) as usize
    }
}

enum Forth {
    Message { request: i32, body: String },
    Question { request: i32 },
}

enum Back {
    Answer { request: i32 },
    Credit { request: i32, credit: u32 },
    Demand(Demand),
}

/// One direction between two brokers.
struct Way {
    from: usize,
    to: usize,
    engine: Option<Box<dyn Forwarder>>,
    make: MakeForwarder,
    epoch: u32,
    last_request: i32,
    forth: VecDeque<Forth>,
    back: VecDeque<Back>,
}

/// A consumer of a client, which moves from broker to broker.
struct Consumer {
    at: usize,
    connection: ConnectionId,
    held: VecDeque<(EntryTag, usize)>,
}

impl Consumer {
    fn key(&self) -> ConsumerKey {
        ConsumerKey::new(self.connection, 1)
    }

    fn demand(&self) -> Demand {
        Demand::Consumer(RemoteConsumer {
            id: format!("{:?}", self.connection).into(),
            sources: vec![queue()],
            prefetch: PREFETCH,
            ..RemoteConsumer::default()
        })
    }
}

struct Network {
    brokers: Vec<(Partition, Position)>,
    /// The messages of each broker's log.
    bodies: Vec<BTreeMap<MessageKey, Message>>,
    ways: Vec<Way>,
    consumers: Vec<Consumer>,
    connections: u64,
    now_ms: u64,
    consumed: Vec<u32>,
    cuts: u32,
    crashes: u32,
}

impl Network {
    fn new() -> Network {
        let makes: Vec<MakeForwarder> = (0..BROKERS).map(|_| forwarders("")).collect();
        let pairs = (0..BROKERS).flat_map(|from| (0..BROKERS).map(move |to| (from, to)));
        let way = |(from, to): (usize, usize)| Way {
            from,
            to,
            engine: None,
            make: makes[from].clone(),
            epoch: 0,
            last_request: 0,
            forth: VecDeque::new(),
            back: VecDeque::new(),
        };
        let mut network = Network {
            brokers: (0..BROKERS).map(|number| (broker(number), Position::FIRST)).collect(),
            bodies: vec![BTreeMap::new(); BROKERS],
            ways: pairs.filter(|(from, to)| from != to).map(way).collect(),
            consumers: Vec::new(),
            connections: 0,
            now_ms: 1,
            consumed: vec![0; MESSAGES],
            cuts: 0,
            crashes: 0,
        };
        for at in 0..BROKERS {
            let mut effects = Vec::new();
            network.brokers[at].0.start(&mut effects);
            network.carry_out(at, effects, &mut VecDeque::new());
        }
        network.pass(0);
        network
    }

    fn connection(&mut self) -> ConnectionId {
        self.connections += 1;
        ConnectionId::new(0, self.connections)
    }

    fn submit(&mut self, at: usize, events: Vec<Event>) {
        let mut work = VecDeque::from(events);
        while let Some(event) = work.pop_front() {
            let mut effects = Vec::new();
            self.brokers[at].0.soft(event, &mut effects);
            self.carry_out(at, effects, &mut work);
        }
    }

    fn carry_out(&mut self, at: usize, effects: Vec<Effect>, work: &mut VecDeque<Event>) {
        for effect in effects {
            match effect {
                Effect::Propose { command, .. } => {
                    let (partition, next) = &mut self.brokers[at];
                    let position = std::mem::replace(next, next.next());
                    if let Command::Enqueue(sent) = &command {
                        let key = MessageKey::Durable { position, ordinal: 0 };
                        self.bodies[at].insert(key, sent.message.clone());
                    }
                    let mut more = Vec::new();
                    partition.apply(position, command, &mut more);
                    self.carry_out(at, more, work);
                }
                Effect::Deliver(delivery) => self.deliver(at, delivery, work),
                Effect::Reply { connection, ticket, result } => {
                    self.reply(at, (connection, ticket), result, work)
                }
                Effect::Drained { consumer } => {
                    self.tell(at, consumer.connection, work, |engine, events| {
                        engine.drained(consumer.number, events)
                    });
                }
                Effect::Detached { consumer, cause } => {
                    self.tell(at, consumer.connection, work, |engine, events| {
                        engine.detached(consumer.number, cause, events);
                    });
                }
                Effect::Fetch { keys } => {
                    let body = |key: MessageKey| (key, Ok(self.bodies[at][&key].clone()));
                    work.push_back(Event::Fetched { bodies: keys.into_iter().map(body).collect() });
                }
                _ => {}
            }
        }
    }

    /// The way whose engine has this connection.
    fn way_of(&self, at: usize, connection: ConnectionId) -> Option<usize> {
        let index = connection.number().checked_sub(connection_of(0, 0).number())? as usize;
        let (way, epoch) = (index / 4096, (index % 4096) as u32);
        let known = self.ways.get(way)?;
        (known.from == at && known.epoch == epoch && known.engine.is_some()).then_some(way)
    }

    fn tell(
        &mut self,
        at: usize,
        connection: ConnectionId,
        work: &mut VecDeque<Event>,
        say: impl FnOnce(&mut dyn Forwarder, &mut Vec<Event>),
    ) {
        let Some(way) = self.way_of(at, connection) else { return };
        let mut events = Vec::new();
        if let Some(engine) = &mut self.ways[way].engine {
            say(&mut **engine, &mut events);
        }
        work.extend(events);
        self.ask(way);
    }

    fn ask(&mut self, way: usize) {
        let (way, now_ms) = (&mut self.ways[way], self.now_ms);
        let Some(engine) = &mut way.engine else { return };
        while let Some(question) = engine.question(now_ms) {
            let CreditQuestion { .. } = question;
            way.last_request += 1;
            engine.asked(way.last_request, &question);
            way.forth.push_back(Forth::Question { request: way.last_request });
        }
    }

    fn deliver(&mut self, at: usize, delivery: Delivery, work: &mut VecDeque<Event>) {
        let Delivery { consumer, tag, queue: (_, queue), message, .. } = delivery;
        let number = number_in(&message);
        if let Some(own) = self.consumers.iter_mut().find(|own| own.at == at && own.key() == consumer) {
            own.held.push_back((tag, number));
            return;
        }
        let Some(index) = self.way_of(at, consumer.connection) else { return };
        let (way, mut events) = (&mut self.ways[index], Vec::new());
        if let Some(engine) = &mut way.engine
            && engine.admit(consumer, tag, self.now_ms, &mut events).is_some()
        {
            way.last_request += 1;
            engine.sent(way.last_request, consumer, tag);
            let body = format!("{number}|{at}|{}|{}", queue.0, tag.0);
            way.forth.push_back(Forth::Message { request: way.last_request, body });
        }
        work.extend(events);
        self.ask(index);
    }

    fn reply(
        &mut self,
        at: usize,
        (connection, ticket): (ConnectionId, Ticket),
        result: Result<(), postroad_model::Refusal>,
        work: &mut VecDeque<Event>,
    ) {
        let arrives = |way: &&mut Way| way.to == at && arrival_of(way) == connection && way.engine.is_some();
        if let Some(way) = self.ways.iter_mut().find(arrives) {
            assert_eq!(result, Ok(()));
            way.back.push_back(Back::Answer { request: ticket.0 as i32 });
            return;
        }
        self.tell(at, connection, work, |engine, events| {
            engine.replied(ticket, result, events).expect("the link goes on");
        });
    }

    fn publish(
        &mut self,
        at: usize,
        (connection, ticket): (ConnectionId, Ticket),
        body: String,
        resent: bool,
    ) {
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: NORMAL_PRIORITY,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from(body),
        };
        let plain = Publish::plain(connection, ticket, Sent::new(queue(), message));
        self.submit(at, vec![Event::Publish(Publish { resent, ..plain })]);
    }

    fn link(&mut self, index: usize) {
        let way = &mut self.ways[index];
        way.epoch += 1;
        let mut engine = way.make.make(LinkOptions { message_ttl: -1, ..LinkOptions::default() });
        let link = Link {
            connection: connection_of(index, way.epoch),
            broker_id: format!("ID:{}", way.from).into(),
            broker_name: "here".into(),
            peer_id: format!("ID:{}", way.to).into(),
            peer_name: "there".into(),
            partitions: 1,
            counts_credit: true,
            crosses_swimlanes: false,
            figures: Arc::default(),
        };
        let (mut events, from, to) = (Vec::new(), way.from, way.to);
        engine.begin(link, &mut events);
        way.engine = Some(engine);
        let there = self.consumers.iter().filter(|consumer| consumer.at == to);
        way.back.extend(there.map(|consumer| Back::Demand(consumer.demand())));
        self.submit(from, events);
    }

    /// Some of the messages under way still arrive; answers do not.
    fn cut(&mut self, index: usize, arrive: usize) {
        self.cuts += 1;
        for _ in 0..arrive {
            self.arrive(index);
        }
        let way = &mut self.ways[index];
        let Some(mut engine) = way.engine.take() else { return };
        (way.forth, way.back) = (VecDeque::new(), VecDeque::new());
        let (mut events, from) = (Vec::new(), way.from);
        engine.close(&mut events);
        self.submit(from, events);
    }

    /// A broker ends without warning and comes back with the contents of its log. Links to it are
    /// cut, and those from it are gone; its consumers come again, without their deliveries.
    fn crash(&mut self, at: usize, random: &mut Random) {
        self.crashes += 1;
        for index in 0..self.ways.len() {
            if self.ways[index].to == at {
                self.cut(index, 0);
            }
            if self.ways[index].from == at {
                let arrive = random.below(self.ways[index].forth.len() + 1);
                for _ in 0..arrive {
                    self.arrive(index);
                }
                let way = &mut self.ways[index];
                (way.forth, way.back, way.engine) = (VecDeque::new(), VecDeque::new(), None);
                way.make = forwarders("");
            }
        }
        let gone: Vec<usize> =
            (0..self.consumers.len()).filter(|number| self.consumers[*number].at == at).collect();
        for number in gone.iter().rev() {
            self.consumers.remove(*number);
        }
        let (partition, _) = &mut self.brokers[at];
        let (settings, snapshot) = (settings(at), partition.snapshot());
        *partition = Partition::restore(settings, &snapshot).expect("its own snapshot");
        read_by(partition);
        let mut effects = Vec::new();
        partition.start(&mut effects);
        let mut work = VecDeque::new();
        self.carry_out(at, effects, &mut work);
        self.submit(at, work.into());
        self.pass(0);
        gone.iter().for_each(|_| self.attach(at));
    }

    fn arrive(&mut self, index: usize) {
        let way = &mut self.ways[index];
        let (to, connection) = (way.to, arrival_of(way));
        match way.forth.pop_front() {
            Some(Forth::Message { request, body }) => {
                self.publish(to, (connection, Ticket(request as u64)), body, true);
            }
            Some(Forth::Question { request }) => {
                let there = self.consumers.iter().filter(|consumer| consumer.at == to);
                let free: u32 = there.map(|consumer| PREFETCH - consumer.held.len() as u32).sum();
                self.ways[index].back.push_back(Back::Credit { request, credit: free.div_ceil(2) });
            }
            None => {}
        }
    }

    fn come_back(&mut self, index: usize) {
        let (way, now_ms, mut events) = (&mut self.ways[index], self.now_ms, Vec::new());
        let (Some(engine), from) = (&mut way.engine, way.from) else { return };
        match way.back.pop_front() {
            Some(Back::Answer { request }) => engine.answered(request, None, now_ms, &mut events),
            Some(Back::Credit { request, credit }) => engine.credit(request, credit, now_ms, &mut events),
            Some(Back::Demand(demand)) => engine.demand(demand, &mut events).expect("the link goes on"),
            None => {}
        }
        self.submit(from, events);
        self.ask(index);
    }

    fn announce(&mut self, at: usize, demand: &Demand) {
        let ways = self.ways.iter_mut().filter(|way| way.to == at && way.engine.is_some());
        ways.for_each(|way| way.back.push_back(Back::Demand(demand.clone())));
    }

    fn attach(&mut self, at: usize) {
        let connection = self.connection();
        let consumer = Consumer { at, connection, held: VecDeque::new() };
        let (key, demand) = (consumer.key(), consumer.demand());
        self.consumers.push(consumer);
        let attach = Attach {
            consumer: key,
            source: queue(),
            at: None,
            mode: ConsumerMode::Shared,
            credit: PREFETCH,
            credit_by_default: false,
            priority: 0,
            no_local: false,
            client: None,
            selector: Arc::default(),
            subscription: None,
            share: Share::No,
            steals: None,
            retroactive: false,
            notice: None,
            ticket: Ticket(0),
        };
        self.submit(at, vec![Event::Attach(attach)]);
        self.announce(at, &demand);
    }

    /// A consumer leaves, gives back what it holds, and comes to another broker.
    fn move_consumer(&mut self, number: usize, to: usize) {
        let gone = self.consumers.remove(number);
        let (consumer, delivered) = (gone.key(), Delivered::None);
        self.submit(gone.at, vec![Event::Detach { consumer, delivered, ticket: None }]);
        self.announce(gone.at, &Demand::Gone { id: format!("{:?}", gone.connection).into() });
        self.attach(to);
    }

    fn consume(&mut self, number: usize) {
        let consumer = &mut self.consumers[number];
        let Some((tag, message)) = consumer.held.pop_front() else { return };
        let (key, at) = (consumer.key(), consumer.at);
        self.consumed[message] += 1;
        let (tags, outcome) = (vec![tag], Outcome::Accepted);
        let (transaction, reason, ticket) = (None, None, None);
        let settle = Settle { consumer: key, tags, outcome, transaction, reason, ticket };
        self.submit(at, vec![Event::Settle(settle), Event::Credit { consumer: key, add: 1 }]);
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let now = Now { ticks_ms: self.now_ms, wall_ms: 1_000_000 + self.now_ms };
        (0..BROKERS).for_each(|at| self.submit(at, vec![Event::Tick { now }]));
        for index in 0..self.ways.len() {
            let (mut events, from) = (Vec::new(), self.ways[index].from);
            if let Some(engine) = &mut self.ways[index].engine {
                engine.wake(self.now_ms, &mut events);
            }
            self.submit(from, events);
            self.ask(index);
        }
    }

    fn step(&mut self, random: &mut Random, sent: &mut usize) {
        let way = random.below(self.ways.len());
        match random.below(100) {
            0..25 => self.arrive(way),
            25..50 => self.come_back(way),
            50..65 => self.consume(random.below(CONSUMERS)),
            65..70 if *sent < MESSAGES => {
                let connection = self.connection();
                self.publish(random.below(BROKERS), (connection, Ticket(0)), sent.to_string(), false);
                *sent += 1;
            }
            70..73 => self.move_consumer(random.below(CONSUMERS), random.below(BROKERS)),
            73..76 if self.ways[way].engine.is_some() => {
                let arrive = random.below(self.ways[way].forth.len() + 1);
                self.cut(way, arrive);
            }
            76..90 if self.ways[way].engine.is_none() => self.link(way),
            90 if random.below(3) == 0 => self.crash(random.below(BROKERS), random),
            _ => self.pass(random.below(5) as u64),
        }
    }
}

/// Numbers of connections that consumers and producers do not reach.
fn connection_of(way: usize, epoch: u32) -> ConnectionId {
    ConnectionId::new(0, 1_000_000 + way as u64 * 4096 + u64::from(epoch))
}

fn arrival_of(way: &Way) -> ConnectionId {
    ConnectionId::new(0, 2_000_000 + (way.from * BROKERS + way.to) as u64 * 4096 + u64::from(way.epoch))
}

/// How many links were cut and brokers crashed.
fn simulate(seed: u64) -> (u32, u32) {
    let mut random = Random(seed);
    let mut network = Network::new();
    (0..CONSUMERS).for_each(|number| network.attach(number % BROKERS));
    let mut sent = 0;
    for _ in 0..STEPS {
        network.step(&mut random, &mut sent);
    }
    // The faults end: everything finds its consumer.
    for way in 0..network.ways.len() {
        if network.ways[way].engine.is_none() {
            network.link(way);
        }
    }
    let began_ms = network.now_ms;
    while network.consumed.iter().take(sent).any(|times| *times == 0) {
        let waited_ms = network.now_ms - began_ms;
        assert!(waited_ms <= STUCK_AFTER_MS, "seed {seed}: messages are stuck: {:?}", network.consumed);
        for way in 0..network.ways.len() {
            while !network.ways[way].forth.is_empty() {
                network.arrive(way);
            }
            while !network.ways[way].back.is_empty() {
                network.come_back(way);
            }
        }
        (0..CONSUMERS).for_each(|number| network.consume(number));
        network.pass(1);
    }
    // One that was doubled would come now.
    for _ in 0..200 {
        (0..CONSUMERS).for_each(|number| network.consume(number));
        for way in 0..network.ways.len() {
            network.arrive(way);
            network.come_back(way);
        }
        network.pass(1);
    }
    let twice: Vec<usize> = (0..sent).filter(|number| network.consumed[*number] != 1).collect();
    assert!(twice.is_empty(), "seed {seed}: consumed not once: {twice:?}");
    (network.cuts, network.crashes)
}

#[test]
fn every_message_is_consumed_once_and_none_is_stuck_whatever_the_seed() {
    let seeds =
        std::env::var("POSTROAD_NETWORK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(20);
    let faults: Vec<(u32, u32)> = (0..seeds).map(simulate).collect();
    let (cuts, crashes) = faults.iter().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    assert!(
        seeds as u32 <= cuts && seeds as u32 <= crashes,
        "links were cut: {cuts}; brokers crashed: {crashes}"
    );
}

//! The longest step of a partition while it carries out a large transaction: `cargo run --release
//! -p postroad-core --example steps`. Writes one row for each kind of step, of transactions with
//! 100,000 messages of 100 bytes.
#![allow(clippy::print_stdout, reason = "a measuring tool")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postroad_core::{Partition, SLICE_CHANGES, Settings};
use postroad_model::{
    Attach, Command, ConnectionId, ConsumerKey, ConsumerMode, Destination, Effect, Encoding, EntryTag, Event,
    Message, NORMAL_PRIORITY, Now, Outcome, PartitionId, Peer, Placement, Position, Protocol, Publish, Sent,
    Settle, Share, Ticket, TransactionId, TransactionKey,
};

const MESSAGES: u64 = 100_000;
const CLIENT: ConnectionId = ConnectionId::new(0, 1);

struct Steps {
    partition: Partition,
    proposed: VecDeque<Command>,
    tags: Vec<EntryTag>,
    next: u64,
    now_ms: u64,
}

impl Steps {
    fn step(&mut self, act: impl FnOnce(&mut Partition, &mut Vec<Effect>)) -> Duration {
        let mut effects = Vec::new();
        let began = Instant::now();
        act(&mut self.partition, &mut effects);
        let took = began.elapsed();
        for effect in effects {
            match effect {
                Effect::Propose { command, .. } => self.proposed.push_back(command),
                Effect::Deliver(delivery) => self.tags.push(delivery.tag),
                _ => {}
            }
        }
        took
    }

    fn soft(&mut self, event: Event) -> Duration {
        self.step(|partition, effects| partition.soft(event, effects))
    }

    fn apply(&mut self) -> Duration {
        let mut longest = Duration::ZERO;
        while let Some(command) = self.proposed.pop_front() {
            let position = Position::new(self.next).expect("from 1");
            self.next += 1;
            longest =
                longest.max(self.step(|partition, effects| partition.apply(position, command, effects)));
        }
        longest
    }

    fn rest(&mut self) -> Duration {
        let mut longest = self.apply();
        while self.partition.next_due_ms().is_some_and(|due_ms| due_ms <= self.now_ms + 10) {
            self.now_ms += 1;
            let now = Now { ticks_ms: self.now_ms, wall_ms: self.now_ms };
            longest = longest.max(self.soft(Event::Tick { now })).max(self.apply());
        }
        longest
    }

    fn send_all(&mut self, transaction: Option<TransactionKey>) {
        for number in 0..MESSAGES {
            let publish = Publish::plain(CLIENT, Ticket(number), sent(number));
            self.soft(Event::Publish(Publish { transaction, ..publish }));
            self.apply();
        }
    }
}

fn sent(number: u64) -> Sent {
    let message = Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: None,
        bytes: Bytes::from(format!("{number:0100}")),
    };
    Sent::new(Destination::queue("a"), message)
}

fn started(slice_changes: usize) -> Steps {
    let large = 1 << 30;
    let settings = Settings {
        resident_bytes_max: large,
        messages_bytes_max: large,
        volatile_bytes_max: large,
        transaction_bytes_max: large,
        open_bytes_max: large,
        outbox_bytes_max: large,
        slice_changes,
        policies: Arc::default(),
        ..Settings::at_rest(PartitionId(0), Placement::over(1), 1)
    };
    let partition = Partition::new(settings);
    let mut steps = Steps { partition, proposed: VecDeque::new(), tags: Vec::new(), next: 1, now_ms: 1 };
    steps.step(|partition, effects| partition.start(effects));
    steps
}

fn consume_all(steps: &mut Steps, transaction: Option<TransactionKey>) {
    steps.send_all(None);
    let consumer = ConsumerKey::new(CLIENT, 1);
    let attach = Attach {
        consumer,
        source: Destination::queue("a"),
        at: None,
        mode: ConsumerMode::Shared,
        credit: MESSAGES as u32,
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
    steps.soft(Event::Attach(attach));
    steps.rest();
    for tags in std::mem::take(&mut steps.tags).chunks(1000) {
        let (outcome, ticket) = (Outcome::Accepted, None);
        let tags = tags.to_vec();
        steps.soft(Event::Settle(Settle { consumer, tags, outcome, transaction, reason: None, ticket }));
    }
    steps.apply();
}

/// A share of a transaction over several partitions, with as many sends as acknowledgements.
fn share(commit: bool) {
    let key = TransactionKey { connection: CLIENT, number: 1 };
    let mut steps = started(SLICE_CHANGES);
    consume_all(&mut steps, Some(key));
    steps.send_all(Some(key));
    let id = TransactionId { coordinator: PartitionId(1), incarnation: 1, number: 1 };
    steps.soft(Event::Peer { from: PartitionId(1), peer: Peer::Prepare { transactions: vec![key], id } });
    let (decide, carry_out) = (steps.soft(Event::Seal { transaction: key }), steps.rest());
    println!("share, prepare: decided in {decide:?}, longest step {carry_out:?}");
    let decided = Event::Peer { from: PartitionId(1), peer: Peer::Decided { id, commit } };
    let (decide, carry_out) = (steps.soft(decided), steps.rest());
    let name = if commit { "commit" } else { "abort" };
    println!("share, {name}: decided in {decide:?}, longest step {carry_out:?}");
}

fn main() {
    let key = TransactionKey { connection: CLIENT, number: 1 };
    let commit = || Event::Commit { transaction: key, participants: vec![PartitionId(0)], ticket: Ticket(0) };
    let rollback = || Event::Rollback { transaction: key, ticket: Some(Ticket(0)) };
    for (name, slice) in [("in slices", SLICE_CHANGES), ("at once", usize::MAX)] {
        let mut steps = started(slice);
        steps.send_all(Some(key));
        let (decide, carry_out) = (steps.soft(commit()), steps.rest());
        println!("sends, commit, {name}: decided in {decide:?}, longest step {carry_out:?}");
        let mut steps = started(slice);
        consume_all(&mut steps, Some(key));
        let (decide, carry_out) = (steps.soft(commit()), steps.rest());
        println!("acknowledgements, commit, {name}: decided in {decide:?}, longest step {carry_out:?}");
    }
    share(true);
    share(false);
    let mut steps = started(SLICE_CHANGES);
    consume_all(&mut steps, Some(key));
    println!(
        "acknowledgements, end of connection: {:?}",
        steps.soft(Event::Closed { connection: CLIENT }).max(steps.rest())
    );
    let mut steps = started(SLICE_CHANGES);
    steps.send_all(Some(key));
    println!("sends, rollback: {:?}", steps.soft(rollback()).max(steps.rest()));
    let mut steps = started(SLICE_CHANGES);
    consume_all(&mut steps, Some(key));
    println!("acknowledgements, rollback: {:?}", steps.soft(rollback()).max(steps.rest()));
    let mut steps = started(SLICE_CHANGES);
    steps.send_all(None);
    let delete =
        Event::Delete { destination: Destination::queue("a"), connection: CLIENT, ticket: Ticket(0) };
    println!("delete of a queue: {:?}", steps.soft(delete).max(steps.rest()));
}

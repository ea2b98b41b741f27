//! Nanoseconds per message that the core takes, by filters installed that do not match: `cargo run
//! --release -p postroad-core --example filters`. One subscriber gets everything; sockets,
//! protocols and other threads are left out.
#![allow(clippy::print_stdout, reason = "a measuring tool")]

use std::time::Instant;

use bytes::Bytes;
use postroad_core::{PAGE_ENTRIES, Partition, Settings};
use postroad_model::{
    Attach, ConnectionId, ConsumerKey, ConsumerMode, Destination, Effect, Encoding, EntryTag, Event, Message,
    NORMAL_PRIORITY, Outcome, PartitionId, Placement, Protocol, Publish, Sent, Settle, Share, Ticket,
};
use postroad_selector::{Properties, Value};

/// Messages between two looks at the clock.
const MESSAGES: usize = 2_000;

/// The best of this many runs, because the machine has other load.
const BATCHES: usize = 200;

/// Messages acknowledged together by a client.
const ACKNOWLEDGED: usize = 500;

/// A message's only property, `id`, is its body.
struct Id(Bytes);

impl Properties for Id {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        (name == "id").then(|| std::str::from_utf8(&self.0).ok().map(Value::from)).flatten()
    }
}

fn partition() -> Partition {
    let settings = Settings {
        page_entries: PAGE_ENTRIES,
        volatile_bytes_max: 1 << 30,
        outbox_bytes_max: 1 << 30,
        ..Settings::at_rest(PartitionId(0), Placement::over(1), 1)
    };
    let mut partition = Partition::new(settings);
    partition.read_properties_by(|message| Box::new(Id(message.bytes.clone())));
    partition.start(&mut Vec::new());
    partition
}

fn attach(number: u32, topic: &Destination, selector: &str) -> Event {
    Event::Attach(Attach {
        consumer: ConsumerKey::new(ConnectionId::new(0, 1), number),
        source: topic.clone(),
        at: None,
        mode: ConsumerMode::Shared,
        credit: 1000,
        credit_by_default: false,
        priority: 0,
        no_local: false,
        client: None,
        selector: selector.into(),
        subscription: None,
        share: Share::No,
        steals: None,
        retroactive: false,
        notice: None,
        ticket: Ticket(0),
    })
}

fn publish(topic: &Destination) -> Event {
    let message = Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: None,
        // A buffer of its own, as if read from a socket.
        bytes: Bytes::copy_from_slice(b"0"),
    };
    let sender = ConnectionId::new(0, 2);
    Event::Publish(Publish::plain(sender, Ticket(0), Sent::new(topic.clone(), message)))
}

/// The best time for one message, and how many were delivered in all.
fn measure(filters: u32) -> (f64, usize) {
    let topic = Destination::topic("t");
    let mut partition = partition();
    let (mut effects, mut held, mut delivered) = (Vec::new(), Vec::<EntryTag>::new(), 0);
    partition.soft(attach(0, &topic, ""), &mut effects);
    for number in 1..=filters {
        partition.soft(attach(number, &topic, &format!("id = 'other-{number}'")), &mut effects);
    }
    effects.clear();
    let consumer = ConsumerKey::new(ConnectionId::new(0, 1), 0);
    let mut best = f64::INFINITY;
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..MESSAGES {
            partition.soft(publish(&topic), &mut effects);
            for effect in effects.drain(..) {
                if let Effect::Deliver(delivery) = effect {
                    held.push(delivery.tag);
                }
            }
            if held.len() == ACKNOWLEDGED {
                delivered += held.len();
                let tags = std::mem::take(&mut held);
                let add = ACKNOWLEDGED as u32;
                let outcome = Outcome::Accepted;
                let settle =
                    Settle { consumer, tags, outcome, transaction: None, reason: None, ticket: None };
                partition.soft(Event::Settle(settle), &mut effects);
                partition.soft(Event::Credit { consumer, add }, &mut effects);
            }
        }
        best = best.min(begun.elapsed().as_secs_f64() * 1e9 / MESSAGES as f64);
    }
    (best, delivered)
}

fn main() {
    println!("filters  ns/message");
    for filters in [0, 1, 200, 1_000, 10_000, 100_000] {
        let (best, delivered) = measure(filters);
        assert_eq!(delivered, MESSAGES * BATCHES, "all go to the subscriber without a filter");
        println!("{filters:>7}  {best:>10.0}");
    }
}

//! Clients over a core whose journal is in memory.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;

use postroad_core::{Partition, Settings};
use postroad_model::{
    Delivered, Destination, Encoding, EntryTag, NORMAL_PRIORITY, Now, Order, Outcome, PartitionRange,
    Placement, Protocol, Question, Row,
};
use postroad_openwire::Advisories;
use postroad_replication::{ToPartition, ToWriter};

use super::*;
use crate::core::Links;
use crate::logs::{JournalWriter, LogLink, LogRing};
use crate::places::Places;
use crate::ring::{Receiver, WakingSender, ring};
use crate::translate::read_portable;

const PARTITIONS: u16 = 2;

/// Confirms each event, unless it is held.
struct MemoryJournal(
    Mutex<(Receiver<ToWriter>, WakingSender<ToPartition>)>,
    Arc<std::sync::atomic::AtomicBool>,
);

impl JournalWriter for MemoryJournal {
    fn hand_over(&self) {
        self.write_here();
    }

    fn write_here(&self) -> bool {
        if self.1.load(std::sync::atomic::Ordering::Relaxed) {
            return true;
        }
        let mut ends = self.0.lock().unwrap();
        while let Some(message) = ends.0.pop() {
            if let ToWriter::Batch { partition, epoch, records, .. } = message
                && let Some(last) = records.last()
            {
                ends.1.sender.send(ToPartition::Durable {
                    partition,
                    epoch,
                    through: last.position,
                    written: None,
                });
            }
        }
        ends.1.flush();
        true
    }
}

struct Bench {
    handle: CoreHandle,
    /// While set, nothing becomes durable.
    held: Arc<std::sync::atomic::AtomicBool>,
}

fn bench() -> Bench {
    let (wake, placement) = (Arc::new(Notify::new()), Placement::over(PARTITIONS));
    let partition = |id| {
        let settings = Settings {
            resident_bytes_max: 1 << 20,
            messages_bytes_max: 4 << 20,
            volatile_bytes_max: 1 << 20,
            outbox_bytes_max: 1 << 20,
            ..Settings::at_rest(PartitionId(id), placement, 1)
        };
        (PartitionId(id), Partition::new(settings))
    };
    let (to_writer, from_core) = ring(wake.clone());
    let (to_core, from_writer) = ring(wake.clone());
    let to_core = WakingSender { sender: to_core, waker: wake.clone() };
    let held = Arc::default();
    let journal = MemoryJournal(Mutex::new((from_core, to_core)), Arc::clone(&held));
    let range = PartitionRange { first: PartitionId(0), count: PARTITIONS };
    let ring = LogRing { sender: to_writer, receiver: from_writer };
    let links = Links {
        to_cores: vec![None],
        from_cores: Vec::new(),
        logs: vec![LogLink { range, ring, journal: Box::new(journal) }],
    };
    let places = Places {
        placement,
        addressing: Arc::default(),
        keys: Arc::default(),
        permissions: Arc::default(),
        draining: Default::default(),
        tenants: Default::default(),
        traces: None,
        offline_ends: Default::default(),
    };
    let advisories = Advisories::new(("test", "ID:test"), "tcp://test", 0, read_portable);
    let partitions: BTreeMap<PartitionId, Partition> = (0..PARTITIONS).map(partition).collect();
    let mut core = Core::new(
        0,
        places,
        partitions,
        links,
        advisories,
        Rc::new(|| Now { ticks_ms: 1_000, wall_ms: 1_000 }),
    );
    core.start();
    let share = Rc::new(Share::new(1 << 30));
    Bench { handle: CoreHandle { core: Rc::new(RefCell::new(core)), wake, share }, held }
}

/// Runs the test beside the core's turns.
fn run(test: impl AsyncFnOnce(&Bench)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let bench = bench();
        let (core, wake) = (bench.handle.core.clone(), bench.handle.wake.clone());
        let turns = tokio::task::spawn_local(async move {
            loop {
                core.borrow_mut().turn();
                wake.notified().await;
            }
        });
        within(test(&bench)).await;
        turns.abort();
    });
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_secs(10), work).await.expect("it ends")
}

impl Bench {
    fn client(&self, limits: ClientLimits) -> LocalClient {
        let options = ClientOptions { limits, ..ClientOptions::named("test") };
        let (client, mailbox) = LocalClient::join(&self.handle, options);
        tokio::task::spawn_local(mailbox.run());
        client
    }

    fn hold(&self, held: bool) {
        self.held.store(held, std::sync::atomic::Ordering::Relaxed);
    }
}

fn sent(to: &str, body: &str) -> Sent {
    let message = Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: None,
        bytes: Bytes::copy_from_slice(body.as_bytes()),
    };
    Sent::new(Destination::queue(to), message)
}

async fn bodies(consumer: &mut Consumer, count: usize) -> Vec<String> {
    let mut bodies = Vec::new();
    for _ in 0..count {
        let Some(delivery) = consumer.next().await else { break };
        bodies.push(String::from_utf8_lossy(&delivery.message.bytes).into_owned());
    }
    bodies
}

#[test]
fn what_is_published_is_consumed_in_order_and_settled_once() {
    run(async |bench| {
        let client = bench.client(ClientLimits::default());
        for body in ["a", "b", "c"] {
            client.publish(sent("q", body)).await.unwrap();
        }
        let mut consumer = client.attach(Attachment::shared(Destination::queue("q"), 2)).await.unwrap();
        let first = consumer.next().await.unwrap();
        consumer.settle(&[Held::of(&first)], Outcome::Accepted).await.unwrap();
        consumer.renew(&first);
        let second = consumer.next().await.unwrap();
        assert_eq!((&first.message.bytes[..], &second.message.bytes[..]), (&b"a"[..], &b"b"[..]));
        consumer.release(&[Held::of(&second)], true).await.unwrap();
        assert_eq!(bodies(&mut consumer, 1).await, ["c"], "the credit was for two, and one more");
        consumer.detach(Delivered::None).await.unwrap();
        let mut consumer = client.attach(Attachment::shared(Destination::queue("q"), 10)).await.unwrap();
        let (again, last) = (consumer.next().await.unwrap(), consumer.next().await.unwrap());
        assert_eq!((&again.message.bytes[..], again.failed_deliveries), (&b"b"[..], 1));
        assert_eq!((&last.message.bytes[..], last.failed_deliveries), (&b"c"[..], 0));
    });
}

#[test]
fn a_browser_sees_all_takes_nothing_and_ends() {
    run(async |bench| {
        let client = bench.client(ClientLimits::default());
        for body in ["a", "b"] {
            client.publish(sent("q", body)).await.unwrap();
        }
        for _ in 0..2 {
            let attachment = Attachment::browser(Destination::queue("q"), "", 10);
            let mut browser = client.attach(attachment).await.unwrap();
            assert_eq!(bodies(&mut browser, 10).await, ["a", "b"]);
        }
    });
}

#[test]
fn a_consumer_of_a_pattern_reads_every_partition() {
    run(async |bench| {
        let client = bench.client(ClientLimits::default());
        let names: Vec<String> = (0..8).map(|number| format!("in.{number}")).collect();
        for name in &names {
            client.publish(sent(name, name)).await.unwrap();
        }
        let attachment = Attachment::shared(Destination::queue("in.*"), 8);
        let mut consumer = client.attach(attachment).await.unwrap();
        let mut got = bodies(&mut consumer, names.len()).await;
        got.sort();
        assert_eq!(got, names);
    });
}

#[test]
fn requests_have_a_bound_and_wait_for_room() {
    run(async |bench| {
        let client = bench.client(ClientLimits { requests_max: 2, ..ClientLimits::default() });
        bench.hold(true);
        let first = client.send(sent("q", "a")).unwrap();
        let second = client.send(sent("q", "b")).unwrap();
        assert_eq!(client.send(sent("q", "c")).unwrap_err(), ClientError::TooManyRequests { max: 2 });
        let waiting = tokio::task::spawn_local({
            let client = client.clone();
            async move { client.publish(sent("q", "c")).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        bench.hold(false);
        // The next record has the journal look at its ring again.
        let other = bench.client(ClientLimits::default());
        other.publish(sent("q", "x")).await.unwrap();
        first.done().await.unwrap();
        second.done().await.unwrap();
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn consumers_and_their_credit_have_a_bound() {
    run(async |bench| {
        let limits = ClientLimits { credit_max: 10, consumers_max: 2, ..ClientLimits::default() };
        let client = bench.client(limits);
        let attach = |credit| client.attach(Attachment::shared(Destination::queue("q"), credit));
        assert_eq!(attach(11).await.err(), Some(ClientError::TooMuchCredit { max: 10 }));
        let first = attach(6).await.unwrap();
        assert_eq!(first.credit(5).err(), Some(ClientError::TooMuchCredit { max: 10 }));
        let _second = attach(4).await.unwrap();
        assert_eq!(attach(0).await.err(), Some(ClientError::TooManyConsumers { max: 2 }));
        drop(first);
        let _third = attach(0).await.unwrap();
    });
}

#[test]
fn a_refusal_is_the_callers_and_a_dropped_client_gives_back_what_it_had() {
    run(async |bench| {
        let client = bench.client(ClientLimits::default());
        let attachment = Attachment::browser(Destination::queue("q"), "not a selector", 1);
        let refused = client.attach(attachment).await.err();
        assert!(matches!(refused, Some(ClientError::Refused(Refusal::BadSelector { .. }))), "{refused:?}");
        client.publish(sent("q", "a")).await.unwrap();
        let other = bench.client(ClientLimits::default());
        let mut holder = other.attach(Attachment::shared(Destination::queue("q"), 1)).await.unwrap();
        assert_eq!(bodies(&mut holder, 1).await, ["a"]);
        drop((holder, other));
        let mut consumer = client.attach(Attachment::shared(Destination::queue("q"), 1)).await.unwrap();
        assert_eq!(bodies(&mut consumer, 1).await, ["a"]);
    });
}

#[test]
fn who_waits_when_the_broker_ends_is_told() {
    run(async |bench| {
        let (client, mailbox) = LocalClient::join(&bench.handle, ClientOptions::named("test"));
        let task = tokio::task::spawn_local(mailbox.run());
        let mut consumer = client.attach(Attachment::shared(Destination::queue("q"), 1)).await.unwrap();
        bench.hold(true);
        let receipt = client.send(sent("q", "a")).unwrap();
        task.abort();
        assert_eq!(receipt.done().await, Err(ClientError::Ended));
        assert!(consumer.next().await.is_none());
        assert_eq!(client.publish(sent("q", "b")).await, Err(ClientError::Ended));
        assert_eq!(bench.handle.core.borrow().mailboxes().len(), 0);
    });
}

#[test]
fn another_thread_has_a_client_too() {
    run(async |bench| {
        let (clients, mut doors) = Clients::over(1);
        let admitting = tokio::task::spawn_local(admit(bench.handle.clone(), doors.remove(0)));
        let other = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async move {
                let client = clients.connect(ClientOptions::named("other")).await.unwrap();
                client.publish(sent("q", "a")).await.unwrap();
                let attachment = Attachment::shared(Destination::queue("q"), 1);
                let taken = client.run(|local| async move {
                    let mut consumer = local.attach(attachment).await?;
                    Ok::<_, ClientError>(bodies(&mut consumer, 1).await)
                });
                taken.await
            })
        });
        while !other.is_finished() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(other.join().unwrap(), Ok(Ok(vec!["a".to_owned()])));
        while 0 < bench.handle.core.borrow().mailboxes().len() {
            tokio::task::yield_now().await;
        }
        admitting.abort();
    });
}

#[test]
fn a_browser_goes_on_behind_what_another_saw() {
    run(async |bench| {
        let client = bench.client(ClientLimits::default());
        for number in 0..10 {
            let sent = sent("q", &number.to_string());
            let message = Message { priority: 4 + number % 2, ..sent.message.clone() };
            client.publish(Sent { message, ..sent }).await.unwrap();
        }
        let mut seen: BTreeMap<u64, EntryTag> = BTreeMap::new();
        let mut bodies = Vec::new();
        for _ in 0..20 {
            let attachment = Attachment::browser(Destination::queue("q"), "", 0);
            let mut browser = client.attach(attachment).await.unwrap();
            browser.seek(&seen.values().copied().collect::<Vec<_>>());
            browser.credit(3).unwrap();
            for _ in 0..3 {
                let Some(delivery) = browser.next().await else { break };
                seen.insert(delivery.tag.0 >> 56, delivery.tag);
                bodies.push(String::from_utf8_lossy(&delivery.message.bytes).into_owned());
            }
        }
        assert_eq!(bodies, ["1", "3", "5", "7", "9", "0", "2", "4", "6", "8"]);
    });
}

#[test]
fn lists_are_gathered_over_partitions_page_by_page() {
    run(async |bench| {
        let client = bench.client(ClientLimits::default());
        let names: Vec<String> = (0..7).map(|number| format!("list.{number}")).collect();
        for name in &names {
            client.publish(sent(name, "body")).await.unwrap();
        }
        let _consumer = client.attach(Attachment::shared(Destination::queue("list.3"), 5)).await.unwrap();
        let question = Question::Queues { name_part: "list".into(), only: None };
        let (mut ask, mut got) =
            (Ask { question, after: None, rows: 2, order: Order::default() }, Vec::new());
        loop {
            let page = client.ask(ask.clone()).await.unwrap();
            for row in &page.rows {
                let Row::Queue(row) = row else { panic!("{row:?}") };
                got.push((row.destination.name.to_string(), row.messages, row.in_flight, row.consumers));
            }
            ask.after = page.next;
            if ask.after.is_none() {
                break;
            }
        }
        let want = names.iter().enumerate().map(|(number, name)| match number {
            3 => (name.clone(), 1, 1, 1),
            _ => (name.clone(), 1, 0, 0),
        });
        assert_eq!(got, want.collect::<Vec<_>>());
        let of = |name: &str| Question::Consumers { of: Some(Destination::queue(name)) };
        for (name, want) in [("list.3", 1), ("list.4", 0), ("nothing", 0)] {
            let page = client
                .ask(Ask { question: of(name), after: None, rows: 10, order: Order::default() })
                .await
                .unwrap();
            assert_eq!(page.rows.len(), want, "{name}: {page:?}");
        }
        let connections =
            Ask { question: Question::Connections, after: None, rows: 10, order: Order::default() };
        let page = client.ask(connections).await.unwrap();
        let [Row::Connection(row)] = &page.rows[..] else { panic!("{page:?}") };
        assert_eq!((row.connection, row.consumers), (client.connection(), 1));
    });
}

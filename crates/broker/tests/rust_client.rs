//! An AMQP client that is written in Rust, `fe2o3-amqp`, against the binary: send, receive, browse,
//! roll back, recover.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod running;

use std::net::{Ipv4Addr, Shutdown};
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    OwnedTransaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::messaging::{Accepted, DistributionMode, Header, Message, Modified, Outcome, Source};
use fe2o3_amqp::{Connection, Delivery, Receiver, Sender, Session};
use running::Broker;
use tokio::net::TcpStream;

/// Nothing here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Client {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
}

impl Client {
    /// A conversation, and a way to break it off without a word.
    async fn connect(broker: &Broker) -> (Client, std::net::TcpStream) {
        let stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, broker.port)).await.unwrap().into_std().unwrap();
        let breaks = stream.try_clone().unwrap();
        let stream = TcpStream::from_std(stream).unwrap();
        let builder = Connection::builder().container_id("rust").hostname("localhost");
        let mut connection = builder.open_with_stream(stream).await.unwrap();
        let session = Session::begin(&mut connection).await.unwrap();
        (Client { connection, session }, breaks)
    }

    async fn sender(&mut self, queue: &str) -> Sender {
        Sender::attach(&mut self.session, format!("to-{queue}"), queue).await.unwrap()
    }

    async fn receiver(&mut self, source: impl Into<Source>) -> Receiver {
        let builder = Receiver::builder().name("from").source(source);
        builder.attach(&mut self.session).await.unwrap()
    }

    async fn send(&mut self, queue: &str, bodies: &[&str]) {
        let mut sender = self.sender(queue).await;
        for body in bodies {
            assert_eq!(sender.send(durable(body)).await.unwrap(), Outcome::Accepted(Accepted {}));
        }
        sender.close().await.unwrap();
    }

    async fn close(mut self) {
        self.session.end().await.unwrap();
        self.connection.close().await.unwrap();
    }
}

fn durable(body: &str) -> Message<fe2o3_amqp::types::messaging::AmqpValue<String>> {
    let header = Header { durable: true, ..Header::default() };
    Message::builder().header(header).value(body.to_owned()).build()
}

async fn next(receiver: &mut Receiver) -> Delivery<String> {
    tokio::time::timeout(PATIENCE, receiver.recv::<String>()).await.expect("a message in time").unwrap()
}

/// The body, and how often it has failed.
fn seen(delivery: &Delivery<String>) -> (&str, u32) {
    let count = delivery.message().header.as_ref().map_or(0, |header| header.delivery_count);
    (delivery.body(), count)
}

#[tokio::test]
async fn what_is_sent_is_received_in_its_order() {
    let broker = Broker::start();
    let (mut client, _) = Client::connect(&broker).await;
    client.send("orders", &["a", "b", "c"]).await;
    let mut receiver = client.receiver("orders").await;
    for want in ["a", "b", "c"] {
        let delivery = next(&mut receiver).await;
        assert_eq!(seen(&delivery), (want, 0));
        receiver.accept(&delivery).await.unwrap();
    }
    receiver.close().await.unwrap();
    client.close().await;
}

#[tokio::test]
async fn a_browser_takes_nothing() {
    let broker = Broker::start();
    let (mut client, _) = Client::connect(&broker).await;
    client.send("orders", &["a", "b"]).await;
    for _ in 0..2 {
        let source = Source::builder().address("orders").distribution_mode(DistributionMode::Copy).build();
        let mut browser = client.receiver(source).await;
        for want in ["a", "b"] {
            let delivery = next(&mut browser).await;
            assert_eq!(seen(&delivery), (want, 0));
            browser.accept(&delivery).await.unwrap();
        }
        browser.close().await.unwrap();
    }
    client.close().await;
}

#[tokio::test]
async fn what_is_given_back_comes_again_counted_if_it_failed() {
    let broker = Broker::start();
    let (mut client, _) = Client::connect(&broker).await;
    client.send("orders", &["a"]).await;
    let mut receiver = client.receiver("orders").await;
    let delivery = next(&mut receiver).await;
    receiver.release(&delivery).await.unwrap();
    let delivery = next(&mut receiver).await;
    assert_eq!(seen(&delivery), ("a", 0));
    let failed =
        Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
    receiver.modify(&delivery, failed).await.unwrap();
    let delivery = next(&mut receiver).await;
    assert_eq!(seen(&delivery), ("a", 1));
    receiver.accept(&delivery).await.unwrap();
    receiver.close().await.unwrap();
    client.close().await;
}

#[tokio::test]
async fn a_transaction_is_all_or_nothing() {
    let broker = Broker::start();
    let (mut client, _) = Client::connect(&broker).await;
    client.send("in", &["a"]).await;
    let mut sender = client.sender("out").await;
    let mut receiver = client.receiver("in").await;
    for (round, commits) in [(0, false), (1, true)] {
        let delivery = next(&mut receiver).await;
        assert_eq!(seen(&delivery), ("a", round));
        let name = format!("controller-{round}");
        let transaction = OwnedTransaction::declare(&mut client.session, name, None).await.unwrap();
        transaction.post(&mut sender, durable(&format!("round {round}"))).await.unwrap();
        transaction.retire(&mut receiver, &delivery, Outcome::Accepted(Accepted {})).await.unwrap();
        match commits {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
    }
    receiver.close().await.unwrap();
    let mut out = client.receiver("out").await;
    let delivery = next(&mut out).await;
    assert_eq!(seen(&delivery), ("round 1", 0));
    out.accept(&delivery).await.unwrap();
    out.close().await.unwrap();
    client.close().await;
}

#[tokio::test]
async fn what_a_lost_connection_had_is_received_by_the_next_one() {
    let broker = Broker::start();
    let (mut lost, breaks) = Client::connect(&broker).await;
    lost.send("orders", &["a"]).await;
    let mut receiver = lost.receiver("orders").await;
    assert_eq!(seen(&next(&mut receiver).await), ("a", 0));
    breaks.shutdown(Shutdown::Both).unwrap();
    let (mut client, _) = Client::connect(&broker).await;
    let mut receiver = client.receiver("orders").await;
    let delivery = next(&mut receiver).await;
    assert_eq!(seen(&delivery), ("a", 1));
    receiver.accept(&delivery).await.unwrap();
    receiver.close().await.unwrap();
    client.close().await;
}

/// Its unsettled deliveries are announced, the answer has none of them, and unsettled messages are
/// delivered again.
#[tokio::test]
async fn a_link_that_is_attached_again_gets_anew_what_it_had_not_settled() {
    let broker = Broker::start();
    let (mut client, _) = Client::connect(&broker).await;
    client.send("orders", &["a", "b"]).await;
    let mut receiver = client.receiver("orders").await;
    assert_eq!(seen(&next(&mut receiver).await), ("a", 0));
    let detached = receiver.detach().await.unwrap();
    let mut receiver = detached.resume_on_session(&client.session).await.unwrap().into_receiver();
    for want in ["a", "b"] {
        let delivery = next(&mut receiver).await;
        assert_eq!(seen(&delivery), (want, 0));
        receiver.accept(&delivery).await.unwrap();
    }
    receiver.close().await.unwrap();
    client.close().await;
}

#[tokio::test]
async fn a_pattern_is_read_in_every_partition() {
    let broker = Broker::start_in(tempfile::tempdir().unwrap(), "[runtime]\npartitions = 4\n");
    let (mut client, _) = Client::connect(&broker).await;
    let names: Vec<String> = (0..8).map(|number| format!("orders.{number}")).collect();
    for kind in ["queue", "topic"] {
        let mut receiver = None;
        if kind == "topic" {
            receiver = Some(client.receiver("topic://orders.*").await);
        }
        for name in &names {
            client.send(&format!("{kind}://{name}"), &[name]).await;
        }
        let mut receiver = match receiver {
            Some(receiver) => receiver,
            None => client.receiver("queue://orders.*").await,
        };
        let mut got = Vec::new();
        for _ in &names {
            let delivery = next(&mut receiver).await;
            receiver.accept(&delivery).await.unwrap();
            got.push(seen(&delivery).0.to_owned());
        }
        got.sort();
        assert_eq!(got, names, "{kind}");
        receiver.close().await.unwrap();
    }
    client.close().await;
}

//! Messages between partitions that are faster than a client's own: a coordinator's request waits
//! for earlier events.

mod bench;

use bench::{equipped, settings};
use postroad_core::Partition;
use postroad_model::{
    Command, ConnectionId, Destination, DestinationKind, Effect, Encoding, Event, Message, NORMAL_PRIORITY,
    PartitionId, Peer, Protocol, Publish, Sent, Ticket, TransactionId, TransactionKey,
};

const CLIENT: ConnectionId = ConnectionId::new(0, 1);
const KEY: TransactionKey = TransactionKey { connection: CLIENT, number: 1 };
const ID: TransactionId = TransactionId { coordinator: PartitionId(1), incarnation: 0, number: 0 };

const COMMIT: Ticket = Ticket(9);

fn sent() -> Event {
    let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
    let (priority, bytes) = (NORMAL_PRIORITY, "m".into());
    let message = Message { encoding, persistent: true, priority, expires_at_ms: 0, rare: None, bytes };
    let to = Destination { kind: DestinationKind::Queue, temporary: false, name: "a".into() };
    let transaction = Some(KEY);
    Event::Publish(Publish { transaction, ..Publish::plain(CLIENT, Ticket(0), Sent::new(to, message)) })
}

fn asked(peer: Peer) -> Event {
    Event::Peer { from: PartitionId(1), peer }
}

/// The partition's output to the coordinator, and its proposals.
fn said(effects: &[Effect]) -> String {
    let word = |effect: &Effect| match effect {
        Effect::Propose { command: Command::Prepare { changes, .. }, .. } => {
            Some(format!("prepare:{}", changes.sends.len()))
        }
        Effect::Tell { peer: Peer::Prepared { result, .. }, .. } => Some(format!("ready:{}", result.is_ok())),
        Effect::Tell { peer: Peer::Done { .. }, .. } => Some("done".to_owned()),
        Effect::Reply { ticket: COMMIT, result, .. } => Some(format!("committed:{}", result.is_ok())),
        _ => None,
    };
    effects.iter().filter_map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_coordinator_that_is_faster_than_a_client_waits_for_its_seal_or_its_end() {
    let seal = || Event::Seal { transaction: KEY };
    let prepare = || asked(Peer::Prepare { transactions: vec![KEY], id: ID });
    let discard = || asked(Peer::Discard { transactions: vec![KEY], id: ID, timed_out: false });
    let closed = || Event::Closed { connection: CLIENT };
    let commit = || Event::Commit { transaction: KEY, participants: vec![PartitionId(0)], ticket: COMMIT };
    for (case, events, want) in [
        ("in order", vec![sent(), seal(), prepare()], "prepare:1"),
        ("ahead of the seal", vec![sent(), prepare(), seal()], "prepare:1"),
        ("ahead of all", vec![prepare(), sent(), seal()], "prepare:1"),
        ("ahead of a client that ends", vec![prepare(), closed()], "ready:false"),
        ("behind a client that has ended", vec![sent(), seal(), closed(), prepare()], "ready:false"),
        ("of what was refused", vec![seal(), prepare()], "ready:false"),
        ("undone ahead of all", vec![discard(), sent(), seal(), commit()], "done committed:false"),
        ("undone in order", vec![sent(), seal(), discard(), commit()], "done committed:false"),
    ] {
        let mut partition = equipped(Partition::new(settings(2)));
        let mut effects = Vec::new();
        for event in events {
            partition.soft(event, &mut effects);
        }
        assert_eq!(said(&effects), want, "case: {case}");
    }
}

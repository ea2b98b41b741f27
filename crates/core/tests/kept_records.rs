//! Kept records and snapshots: what version 1 of docs/formats/records.md wrote is read for ever.
//!
//! The files under `fixtures/records` never change. A new layout gets a folder and a table of its own beside these.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use postroad_core::{Partition, Settings, decode_record, encode_record};
use postroad_model::{
    Changes, Command, Destination, Encoding, EntryTag, Message, MessageKey, PartitionId, Placement, Position,
    Protocol, QueueId, Sent, SettleCause, Settlement, Subscription, TransactionId,
};
use postroad_routing::Policies;

const ID: TransactionId =
    TransactionId { coordinator: PartitionId(2), incarnation: 0x0102_0304_0506_0708, number: 5 };

fn kept(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/v1");
    folder.join(format!("{name}.bin"))
}

fn read(name: &str) -> Bytes {
    let file = kept(name);
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).into()
}

fn sent(to: Destination, body: &'static [u8]) -> Sent {
    let message = Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: 7,
        expires_at_ms: 0x0001_0203_0405_0607,
        bytes: Bytes::from_static(body),
    };
    Sent { to, message }
}

fn end(queue: u64, tag: u64, cause: SettleCause) -> Settlement {
    Settlement { queue: QueueId(queue), tag: EntryTag(tag), cause }
}

fn subscription() -> Subscription {
    Subscription {
        name: "6:client:news".into(),
        topic: Destination::topic("news"),
        selector: "colour = 'red'".into(),
    }
}

fn changes() -> Changes {
    Changes {
        sends: vec![
            sent(Destination::queue("orders"), b"one"),
            Sent {
                message: Message {
                    persistent: false,
                    priority: 0,
                    expires_at_ms: 0,
                    ..sent(Destination::topic("news"), b"").message
                },
                to: Destination::topic("news"),
            },
        ],
        settlements: vec![
            end(3, 1, SettleCause::Consumed),
            end(3, 2, SettleCause::Expired),
            end(4, 1 << 56, SettleCause::DeadLettered),
        ],
    }
}

/// One record of each type, by the name of its file.
fn records() -> Vec<(&'static str, Command)> {
    vec![
        ("declare", Command::Declare { queue: Destination::queue("größe") }),
        ("delete", Command::Delete { queue: Destination { temporary: true, ..Destination::topic("t") } }),
        ("enqueue", Command::Enqueue(sent(Destination::queue("orders"), b"a body"))),
        ("settle", Command::Settle(changes().settlements)),
        (
            "count-delivery",
            Command::CountDelivery { queue: QueueId(1), tags: vec![EntryTag(8), EntryTag(9)] },
        ),
        ("transact", Command::Transact(changes())),
        ("transact-nothing", Command::Transact(Changes::default())),
        ("prepare", Command::Prepare { id: ID, changes: changes() }),
        ("decide", Command::Decide { id: ID, participants: vec![PartitionId(0), PartitionId(7)] }),
        ("commit", Command::Commit { id: ID }),
        ("abort", Command::Abort { id: ID }),
        ("forget", Command::Forget { id: ID }),
        ("subscribe", Command::Subscribe(subscription())),
        ("unsubscribe", Command::Unsubscribe { name: "6:client:news".into() }),
    ]
}

fn settings() -> Settings {
    Settings {
        id: PartitionId(2),
        placement: Placement { partitions: 8 },
        incarnation: 1,
        resident_bytes_max: 1 << 20,
        volatile_bytes_max: 1 << 20,
        transaction_bytes_max: 1 << 20,
        outbox_bytes_max: 1 << 20,
        policies: Arc::new(Policies::with_dead_letters_in("dead")),
    }
}

/// A partition with something in every part of a snapshot.
fn partition() -> Partition {
    let orders = || Destination::queue("orders");
    let prepared = Changes {
        sends: vec![sent(orders(), b"not decided yet")],
        settlements: vec![end(0, 0, SettleCause::Consumed)],
    };
    let commands = [
        Command::Declare { queue: orders() },
        Command::Subscribe(Subscription { selector: "".into(), ..subscription() }),
        Command::Enqueue(sent(orders(), b"one")),
        Command::Enqueue(sent(orders(), b"gone")),
        Command::Enqueue(sent(Destination::topic("news"), b"two")),
        Command::Settle(vec![end(0, 1, SettleCause::Consumed)]),
        Command::CountDelivery { queue: QueueId(1), tags: vec![EntryTag(0)] },
        Command::Prepare { id: ID, changes: prepared },
        Command::Decide { id: TransactionId { number: 6, ..ID }, participants: vec![PartitionId(3)] },
    ];
    let mut partition = Partition::new(settings());
    for (command, position) in commands.into_iter().zip(1..) {
        partition.apply(Position::new(position).expect("from 1"), command, &mut Vec::new());
    }
    partition
}

#[test]
fn records_of_version_1_are_read_as_they_were_meant() {
    for (name, command) in records() {
        assert_eq!(decode_record(&read(name)), Ok(command), "case: {name}");
    }
}

#[test]
fn records_are_written_as_version_1() {
    for (name, command) in records() {
        assert_eq!(encode_record(&command).concat(), read(name), "case: {name}");
    }
}

#[test]
fn a_snapshot_of_version_1_becomes_the_partition_that_it_was() {
    let snapshot = read("snapshot");
    let restored = Partition::restore(settings(), &snapshot).expect("a snapshot");
    let position = |number| Position::new(number).expect("not 0");
    let mut live: Vec<_> = restored.live_positions().collect();
    live.sort_unstable();
    assert_eq!(restored.applied(), Some(position(9)));
    let live: Vec<_> = live.into_iter().map(|(position, _)| position).collect();
    assert_eq!(live, [position(3), position(5), position(8)]);
    let prepared = MessageKey::Durable { position: position(8), ordinal: 0 };
    assert_eq!(restored.absent_prepared(), [prepared]);
    assert_eq!(restored.snapshot(), snapshot, "restored");
    assert_eq!(partition().snapshot(), snapshot, "from its records");
}

/// Ran once. It never replaces a file: kept means kept.
#[test]
#[ignore = "writes the kept files of a layout that has none"]
fn write_the_kept_files() {
    let records = records().into_iter().map(|(name, command)| (name, encode_record(&command).concat()));
    for (name, bytes) in records.chain([("snapshot", partition().snapshot().to_vec())]) {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).open(kept(name)).expect("a new file");
        std::io::Write::write_all(&mut file, &bytes).expect("written");
    }
}

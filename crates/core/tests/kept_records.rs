//! Kept records and snapshots: the files under `fixtures/records` hold one record of each type and
//! snapshots, as the layout of docs/formats/records.md has them. They change only with a deliberate
//! change of the layout: run `cargo test -p postroad-core --test kept_records -- --ignored` to
//! write them again, and read the difference.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use postroad_core::{Partition, SLICE_CHANGES, Settings, decode_record, encode_record};
use postroad_model::{
    Binding, BranchId, Changes, Chunks, Command, Compression, Deduplication, Destination, DocumentChange,
    DocumentVersion, Due, Encoding, EntryTag, Group, Message, MessageKey, Origin, PartitionId, Placement,
    Position, Protocol, QueueId, RareHeaders, Recurrence, RedriveId, RedriveMark, RouteRetry, Schedule, Sent,
    SettleCause, Settlement, Subscription, TransactionId, UserKey,
};
use postroad_routing::Policies;

const ID: TransactionId =
    TransactionId { coordinator: PartitionId(2), incarnation: 0x0102_0304_0506_0708, number: 5 };

fn kept(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records");
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
        rare: None,
        bytes: Bytes::from_static(body),
    };
    Sent::new(to, message)
}

/// The `number`th queue of the partition.
fn made(number: u64) -> QueueId {
    QueueId::durable(PartitionId(2), number)
}

fn end(queue: u64, tag: u64, cause: SettleCause) -> Settlement {
    Settlement { queue: made(queue), tag: EntryTag(tag), cause }
}

fn subscription() -> Subscription {
    Subscription {
        name: "6:client:news".into(),
        topic: Destination::topic("news"),
        selector: "colour = 'red'".into(),
        skips: None,
        shared: false,
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
                ..sent(Destination::topic("news"), b"")
            },
        ],
        settlements: vec![
            end(3, 1, SettleCause::Consumed),
            end(3, 2, SettleCause::Expired),
            end(4, 1 << 56, SettleCause::DeadLettered),
        ],
    }
}

/// Records of messages with rare headers.
fn records_of_rare_headers() -> Vec<(&'static str, Command)> {
    let rare = |group, client: Option<&str>| {
        let group = Some(Group { id: "größe".into(), sequence: -1 }).filter(|_| group);
        Some(Arc::new(RareHeaders { group, client: client.map(Into::into), ..RareHeaders::default() }))
    };
    let with = |rare| {
        let sent = sent(Destination::queue("orders"), b"a body");
        Sent { message: Message { rare, ..sent.message }, ..sent }
    };
    vec![
        ("enqueue-group", Command::Enqueue(with(rare(true, None)))),
        ("enqueue-client", Command::Enqueue(with(rare(false, Some("client"))))),
        ("enqueue-group-client", Command::Enqueue(with(rare(true, Some("client"))))),
        (
            "enqueue-user",
            Command::Enqueue(with(Some(Arc::new(RareHeaders {
                user: UserKey::of("ann"),
                ..RareHeaders::default()
            })))),
        ),
        (
            "enqueue-once",
            Command::Enqueue(with(Some(Arc::new(RareHeaders {
                deduplication: Some(Deduplication { key: 1 << 127, id: 5, until_ms: 0x0102_0304 }),
                ..RareHeaders::default()
            })))),
        ),
        (
            "subscribe-no-local",
            Command::Subscribe(Subscription { skips: Some("client".into()), ..subscription() }),
        ),
    ]
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

/// Records of bindings, and of messages to several addresses.
fn records_of_bindings() -> Vec<(&'static str, Command)> {
    let also = vec![Destination::topic("news"), Destination::queue("audit")];
    vec![
        ("bind", Command::Bind(binding())),
        ("bind-nothing", Command::Bind(Binding { selectors: Vec::new(), ..binding() })),
        ("unbind", Command::Unbind { topic: binding().topic, queue: binding().queue }),
        ("enqueue-several", Command::Enqueue(Sent { also, ..sent(Destination::queue("orders"), b"a body") })),
        ("subscribe-shared", Command::Subscribe(Subscription { shared: true, ..subscription() })),
    ]
}

/// Records of branches and of messages that are due later.
fn records_of_schedules() -> Vec<(&'static str, Command)> {
    let due = Due { at_ms: 1_795_000_000_000, position: Position::FIRST, ordinal: 3 };
    let last = Recurrence { period_ms: 0, times: Some(0), cron: None, delay_ms: 0 };
    let often = Recurrence { period_ms: 500, times: None, cron: Some("0 6 * * 1-5".into()), delay_ms: 20 };
    let later = |again| Sent {
        schedule: Some(Box::new(Schedule { job: "ID:1".into(), due_ms: due.at_ms, again, retry: None })),
        ..sent(Destination::queue("orders"), b"a body")
    };
    let now = sent(Destination::queue("orders"), b"a body");
    vec![
        ("promise", promise()),
        ("enqueue-later", Command::Enqueue(later(None))),
        ("enqueue-often", Command::Enqueue(later(Some(often)))),
        ("fire", Command::Fire { due, next: Some((due.at_ms + 1, last)), sent: now.clone() }),
        ("fire-last", Command::Fire { due, next: None, sent: now }),
        ("unschedule", Command::Unschedule { jobs: vec![due] }),
    ]
}

fn records_of_routes() -> Vec<(&'static str, Command)> {
    let retry = Schedule {
        retry: Some(RouteRetry { route: "orders".into(), failed: 2 }),
        ..Schedule::once("postroad-route:orders".into(), 1_795_000_000_000)
    };
    let refused = Sent { schedule: Some(Box::new(retry)), ..sent(Destination::queue("orders"), b"a body") };
    vec![("enqueue-retry", Command::Enqueue(refused))]
}

fn promise() -> Command {
    Command::Promise { id: ID, branch: branch(), participants: vec![PartitionId(2)] }
}

fn branch() -> BranchId {
    BranchId { format: 4711, transaction: (*b"global").into(), qualifier: (*b"branch").into() }
}

/// With a branch in doubt, producers, and jobs, one of them prepared.
fn partition_with_jobs() -> Partition {
    let mut partition = partition_with_bindings();
    partition.read_origins_by(origin_by_length);
    let records = records_of_schedules();
    let [(_, promise), (_, later), (_, often), ..] = &records[..] else { panic!("fewer records") };
    let Command::Enqueue(prepared) = often.clone() else { panic!("another record") };
    let changes = Changes { sends: vec![prepared], ..Changes::default() };
    let id = TransactionId { number: 99, ..ID };
    let prepare = Command::Prepare { id, changes };
    for command in [promise.clone(), later.clone(), often.clone(), prepare] {
        apply_next(&mut partition, command);
    }
    partition
}

fn origin_by_length(message: &Message) -> Option<Origin> {
    Some(Origin { producer: u128::MAX - 7, sequence: message.bytes.len() as u64, from_link: false })
}

fn binding() -> Binding {
    Binding {
        topic: Destination::topic("VirtualTopic.>"),
        queue: Destination::queue("Consumer.A.VirtualTopic.>"),
        selectors: vec!["".into(), "colour = 'red'".into()],
    }
}

fn partition_with_bindings() -> Partition {
    let mut partition = partition();
    apply_next(&mut partition, Command::Bind(binding()));
    partition
}

fn settings() -> Settings {
    Settings {
        id: PartitionId(2),
        placement: Placement::over(8),
        incarnation: 1,
        resident_bytes_max: 256 << 20,
        messages_bytes_max: 256 << 20,
        page_entries: 512,
        volatile_bytes_max: 1 << 20,
        recent_bytes_max: 0,
        retained_bytes_max: 0,
        transaction_bytes_max: 1 << 20,
        open_bytes_max: 1 << 20,
        transaction_ms_max: None,
        slice_changes: SLICE_CHANGES,
        outbox_bytes_max: 1 << 20,
        addressing: Arc::default(),
        audited_producers_max: 100,
        spill: None,
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
        Command::CountDelivery { queue: made(1), tags: vec![EntryTag(0)] },
        Command::Prepare { id: ID, changes: prepared },
        Command::Decide { id: TransactionId { number: 6, ..ID }, participants: vec![PartitionId(3)] },
    ];
    let mut partition = Partition::new(settings());
    for (command, position) in commands.into_iter().zip(1..) {
        let position = Position::new(position).expect("from 1");
        partition.apply(position, in_lanes(command), &mut Vec::new());
    }
    partition
}

/// Behind all that it has applied.
fn apply_next(partition: &mut Partition, command: Command) {
    let next = partition.applied().expect("records").next();
    partition.apply(next, command, &mut Vec::new());
}

/// The tag of the `number`th entry of priority 7.
fn urgent(number: u64) -> u64 {
    ((7 ^ 4) << 1) << 56 | number
}

/// Entries of priority 7 have a lane of their own.
fn in_lanes(command: Command) -> Command {
    let moved = |tag: EntryTag| EntryTag(urgent(tag.0));
    let settled = |ends: Vec<Settlement>| -> Vec<Settlement> {
        ends.into_iter().map(|end| Settlement { tag: moved(end.tag), ..end }).collect()
    };
    match command {
        Command::Settle(ends) => Command::Settle(settled(ends)),
        Command::CountDelivery { queue, tags } => {
            Command::CountDelivery { queue, tags: tags.into_iter().map(moved).collect() }
        }
        Command::Prepare { id, changes } => {
            let settlements = settled(changes.settlements);
            Command::Prepare { id, changes: Changes { settlements, ..changes } }
        }
        other => other,
    }
}

/// Pages of two entries, and no memory for more than needs be.
fn settings_for_pages() -> Settings {
    Settings { resident_bytes_max: 0, page_entries: 2, ..settings() }
}

fn partition_with_pages(messages: u64) -> Partition {
    let mut partition =
        Partition::restore(settings_for_pages(), &partition_with_jobs().snapshot()).expect("a snapshot");
    let queue = || Destination::queue("deep");
    for number in 0..messages {
        let to = queue();
        let sent = match number {
            2 => sent(to, b"another size"),
            5 => in_group(to),
            _ => sent(to, b"alike"),
        };
        apply_next(&mut partition, Command::Enqueue(sent));
    }
    partition
}

fn in_group(to: Destination) -> Sent {
    let group = Group { id: "g".into(), sequence: 3 };
    let rare = RareHeaders { group: Some(group), ..RareHeaders::default() };
    let sent = sent(to, b"grouped");
    Sent { message: Message { rare: Some(Arc::new(rare)), ..sent.message }, ..sent }
}

#[test]
fn a_record_with_a_compressed_body_is_read() {
    let bodies = |stored: Vec<&[u8]>| {
        let targets = ["orders", "news"].map(Destination::queue).into_iter();
        let sends = targets.zip(stored).map(|(to, body)| {
            let sent = sent(to, b"");
            Sent { message: Message { bytes: Bytes::copy_from_slice(body), ..sent.message }, ..sent }
        });
        Command::Transact(Changes { sends: sends.collect(), settlements: Vec::new() })
    };
    let long = "<item colour='red' weight='1'/>".repeat(20);
    // The first is worth it, the second is too short.
    let command = bodies(vec![long.as_bytes(), b"one"]);
    let record = read("transact-compressed");
    assert!(record.len() < long.len());
    assert_eq!(decode_record(&record), Ok(command.clone()));
    // How a body is compressed may change from build to build; that it comes back must not.
    let written: Bytes = encode_record(&command, Compression::Lz4).concat().into();
    assert_eq!(decode_record(&written), Ok(command));
    assert!(written.len() < long.len());
}

fn left() -> Command {
    let to = |number: u8| sent(Destination::queue("orders"), if number == 1 { b"one" } else { b"other" });
    Command::Left { sends: vec![(1, to(1)), (300, to(2))] }
}

#[test]
fn a_record_of_what_was_left_is_read_and_written() {
    let record = read("left");
    assert_eq!(decode_record(&record), Ok(left()));
    assert_eq!(encode_record(&left(), Compression::None).concat(), record);
    let mut partition = Partition::new(settings());
    partition.apply(Position::FIRST, left(), &mut Vec::new());
    let keys: Vec<MessageKey> = partition.live_messages().flat_map(|row| row.keys()).collect();
    let key = |ordinal| MessageKey::Durable { position: Position::FIRST, ordinal };
    assert_eq!(keys, [key(1), key(300)], "where a log has nothing else its messages are there");
}

fn overruled() -> Vec<(&'static str, Command)> {
    let overrule = |number, qualifier: &[u8], commit| Command::Overrule {
        id: TransactionId { number, ..ID },
        branch: BranchId { qualifier: qualifier.into(), ..branch() },
        participants: vec![PartitionId(2), PartitionId(3)],
        commit,
    };
    vec![
        ("overrule-commit", overrule(70, b"one", true)),
        ("overrule-rollback", overrule(71, b"two", false)),
        ("forget-branch", Command::ForgetBranch { branch: branch() }),
    ]
}

/// Documents of operators.
fn records_of_documents() -> Vec<(&'static str, Command)> {
    let change = |name: &str, replaces, content: &'static [u8]| {
        let (replaces, content) = (DocumentVersion(replaces), Bytes::from_static(content));
        Command::Document(Box::new(DocumentChange { name: name.into(), replaces, content }))
    };
    vec![
        ("document", change("users", 0, b"ann SCRAM\nbob SCRAM\n")),
        ("document-again", change("users", 1, b"bob SCRAM\n")),
        ("document-empty", change("tenants", 0, b"")),
    ]
}

fn partition_with_documents() -> Partition {
    let mut partition = partition();
    for (_, command) in records_of_documents() {
        apply_next(&mut partition, command);
    }
    partition
}

/// Operators have ended two branches.
fn partition_with_overruled_branches(messages: u64) -> Partition {
    let mut partition = partition_with_pages(messages);
    for (_, command) in overruled() {
        apply_next(&mut partition, command);
    }
    partition
}

fn holds_the_same_unpacked(snapshot: &Bytes, restored: &Partition) {
    // With pages of another size for new queues, and memory for all, it holds the same in the pages
    // that it has.
    let roomy = Partition::restore(settings(), snapshot).expect("a snapshot");
    let entries = |partition: &Partition| -> Vec<String> {
        partition.durable_entries().map(|entry| format!("{entry:?}")).collect()
    };
    assert_eq!((entries(&roomy), roomy.memory()), (entries(restored), restored.memory()));
}

/// Records of large messages: a piece, and a message whose body is three of them.
fn large_records() -> Vec<(&'static str, Command)> {
    let positions = [3, 4, 9].into_iter().filter_map(Position::new).collect();
    let chunks = Some(Arc::new(Chunks { bytes: 20, piece_bytes: 8, positions }));
    let rare = Some(Arc::new(RareHeaders { chunks, ..RareHeaders::default() }));
    let plain = sent(Destination::queue("orders"), b"without its body");
    let large = Sent { message: Message { rare, ..plain.message.clone() }, ..plain };
    let later = Schedule::once("job".into(), 7);
    let scheduled = Sent { schedule: Some(Box::new(later)), ..large.clone() };
    vec![
        ("chunk", Command::Chunk(Bytes::from_static(b"a piece of a body"))),
        ("enqueue-large", Command::Enqueue(large)),
        ("enqueue-large-scheduled", Command::Enqueue(scheduled)),
    ]
}

fn partition_with_large_messages() -> Partition {
    let mut partition = partition_with_jobs();
    for (_, command) in large_records() {
        let position = partition.applied().map_or(Position::FIRST, Position::next);
        partition.apply(position, command, &mut Vec::new());
    }
    partition
}

/// The record of dead letters that go back by themselves: the number of returns.
fn returned_record() -> Command {
    let plain = sent(Destination::queue("orders"), b"a body");
    let group = Some(Group { id: "g".into(), sequence: 1 });
    let rare = Some(Arc::new(RareHeaders { group, returns: 3, ..RareHeaders::default() }));
    Command::Enqueue(Sent { message: Message { rare, ..plain.message.clone() }, ..plain })
}

/// The record of a message that a redrive has moved.
fn redriven_record() -> Command {
    let plain = sent(Destination::queue("orders"), b"a body");
    let (from, origin) = (Destination::queue("ActiveMQ.DLQ"), Some(Destination::queue("orders")));
    let mark = RedriveMark { id: RedriveId(0x0102_0304_0506), from, origin, reason: Some("why".into()) };
    let rare = Some(Arc::new(RareHeaders { redriven: Some(Arc::new(mark)), ..RareHeaders::default() }));
    Command::Enqueue(Sent { message: Message { rare, ..plain.message.clone() }, ..plain })
}

/// With jobs enough that most of them are packed.
fn partition_with_many_jobs() -> Partition {
    let mut partition = Partition::new(settings_for_pages());
    for (_, command) in records_of_schedules().into_iter().filter(|(name, _)| name.starts_with("enqueue")) {
        let position = partition.applied().map_or(Position::FIRST, Position::next);
        partition.apply(position, command, &mut Vec::new());
    }
    for number in 0..100_u64 {
        let due_ms = 2_000_000 + number * number % 37 * 100;
        let schedule = Schedule { job: format!("job-{number}").into(), due_ms, again: None, retry: None };
        let mut later = sent(Destination::queue("a"), b"later");
        later.schedule = Some(Box::new(schedule));
        let position = partition.applied().map_or(Position::FIRST, Position::next);
        partition.apply(position, Command::Enqueue(later), &mut Vec::new());
    }
    partition
}

/// With jobs that are in records of their own.
fn partition_with_shelves() -> Partition {
    let mut partition = partition_with_many_jobs();
    for (_, command) in shelf_records() {
        let position = partition.applied().map_or(Position::FIRST, Position::next);
        partition.apply(position, command, &mut Vec::new());
    }
    partition
}

/// Jobs of [`partition_with_many_jobs`] leave memory by three records; those of the second one come
/// back.
fn shelf_records() -> Vec<(&'static str, Command)> {
    let shelves = ["shelve-1", "shelve-2", "shelve-3"]
        .map(|name| (name, decode_record(&read(name)).expect("a record")));
    let Command::Shelve { jobs } = shelves[1].1.clone() else { panic!("{shelves:?}") };
    let shelf = partition_with_many_jobs().applied().map(|last| last.next().next()).expect("records");
    shelves.into_iter().chain([("unshelve", Command::Unshelve { shelf, jobs })]).collect()
}

/// Records of moving queues: one that leaves, a message that arrives, and one on its way to another
/// partition.
fn records_of_moves() -> Vec<(&'static str, Command)> {
    let moved = Sent { moved: Some(2), ..sent(Destination::queue("orders"), b"a body") };
    let changes = |sends, settlements| Changes { sends, settlements };
    let id = |number| TransactionId { number, ..ID };
    vec![
        ("leave", Command::Leave { queue: Destination::queue("audit"), to: PartitionId(5) }),
        ("remember", Command::Remember { known: known() }),
        ("prepare-moved", Command::Prepare { id: id(80), changes: changes(vec![moved.clone()], Vec::new()) }),
        ("transact-moved", Command::Transact(changes(vec![moved], vec![end(7, 8, SettleCause::Moved)]))),
    ]
}

/// One producer with two windows, and one queue of another broker with two runs.
fn known() -> Bytes {
    let mut known = Vec::new();
    let words = |known: &mut Vec<u8>, words: &[u64]| {
        words.iter().for_each(|word| known.extend_from_slice(&word.to_le_bytes()));
    };
    known.extend_from_slice(&1u32.to_le_bytes());
    words(&mut known, &[3, 7, 0, 900, 5, 0, 0, 1]);
    known.extend_from_slice(&1u32.to_le_bytes());
    words(&mut known, &[12, 1, 0, 0, 0]);
    known.extend_from_slice(&1u32.to_le_bytes());
    words(&mut known, &[0, 8, 1]);
    known.extend_from_slice(&2u32.to_le_bytes());
    words(&mut known, &[4, 9, 11, 11]);
    known.into()
}

fn partition_on_the_move() -> Partition {
    let mut partition = partition_with_jobs();
    for (_, command) in records_of_moves() {
        let position = partition.applied().map_or(Position::FIRST, Position::next);
        partition.apply(position, command, &mut Vec::new());
    }
    partition
}

/// Pages of messages that came several to a record, some of them in a group.
fn partition_with_transactions() -> Partition {
    let mut partition =
        Partition::restore(settings_for_pages(), &partition_on_the_move().snapshot()).expect("a snapshot");
    for messages in [2, 7, 1, 9] {
        let deep = || Destination::queue("deep");
        let sends =
            (0..messages).map(|place| if place % 3 == 1 { in_group(deep()) } else { sent(deep(), b"alike") });
        let sends = sends.collect();
        apply_next(&mut partition, Command::Transact(Changes { sends, settlements: Vec::new() }));
    }
    partition
}

/// Some pages have messages that another queue has too.
fn partition_with_shared_pages() -> Partition {
    let before = partition_with_transactions().snapshot();
    let mut partition = Partition::restore(settings_for_pages(), &before).expect("a snapshot");
    for number in 0..9 {
        let also = if number % 4 < 2 { vec![Destination::queue("beside")] } else { Vec::new() };
        let sent = Sent { also, ..sent(Destination::queue("deep"), b"alike") };
        apply_next(&mut partition, Command::Enqueue(sent));
    }
    partition
}

/// Every kept record but those of shelves, which are read from their files.
fn all_records() -> Vec<(&'static str, Command)> {
    let groups = [
        records(),
        records_of_rare_headers(),
        records_of_bindings(),
        records_of_schedules(),
        records_of_routes(),
        overruled(),
        large_records(),
        vec![
            ("enqueue-returned", returned_record()),
            ("enqueue-redriven", redriven_record()),
            ("left", left()),
        ],
        records_of_moves(),
        records_of_documents(),
    ];
    groups.into_iter().flatten().collect()
}

#[test]
fn kept_records_are_read_and_written() {
    for (name, command) in all_records().into_iter().chain(shelf_records()) {
        assert_eq!(encode_record(&command, Compression::None).concat(), read(name), "case: {name}");
        assert_eq!(decode_record(&read(name)), Ok(command), "case: {name}");
    }
}

/// The kept snapshots, each with its partition made from records, and the settings to restore it
/// with.
fn snapshots() -> Vec<(&'static str, Settings, Partition)> {
    vec![
        ("snapshot", settings(), partition()),
        ("snapshot-bindings", settings(), partition_with_bindings()),
        ("snapshot-jobs", settings(), partition_with_jobs()),
        ("snapshot-pages", settings_for_pages(), partition_with_pages(7)),
        ("snapshot-wide-pages", settings_for_pages(), partition_with_overruled_branches(21)),
        ("snapshot-large", settings(), partition_with_large_messages()),
        ("snapshot-many-jobs", settings_for_pages(), partition_with_many_jobs()),
        ("snapshot-shelves", settings_for_pages(), partition_with_shelves()),
        ("snapshot-moving", settings(), partition_on_the_move()),
        ("snapshot-transactions", settings_for_pages(), partition_with_transactions()),
        ("snapshot-shared", settings_for_pages(), partition_with_shared_pages()),
        ("snapshot-documents", settings(), partition_with_documents()),
    ]
}

#[test]
fn kept_snapshots_restore_the_partition_that_their_records_made() {
    for (name, settings, partition) in snapshots() {
        let kept = read(name);
        let restored = Partition::restore(settings, &kept).expect("a snapshot");
        assert_eq!(restored.snapshot(), partition.snapshot(), "case: {name}");
        assert_eq!(partition.snapshot(), kept, "case: {name}: as it is written");
        holds_the_same_unpacked(&kept, &restored);
    }
}

#[test]
fn a_restored_partition_knows_its_live_messages() {
    let restored = Partition::restore(settings(), &read("snapshot")).expect("a snapshot");
    let position = |number| Position::new(number).expect("not 0");
    let mut live: Vec<_> = restored.live_messages().collect();
    live.sort_unstable();
    assert_eq!(restored.applied(), Some(position(9)));
    let live: Vec<_> = live.into_iter().map(|row| row.first).collect();
    assert_eq!(live, [position(3), position(5), position(8)]);
    let prepared = MessageKey::Durable { position: position(8), ordinal: 0 };
    assert_eq!(restored.absent_prepared(), [prepared]);
}

#[test]
fn a_restored_partition_knows_its_jobs_and_packed_messages() {
    let restore = |settings: Settings, name| Partition::restore(settings, &read(name)).expect("a snapshot");
    let shelves = restore(settings_for_pages(), "snapshot-shelves");
    assert_eq!((shelves.scheduled(), shelves.jobs_in_memory()), (102, 86));
    for (name, settings, scheduled) in [
        ("snapshot-jobs", settings(), 2),
        ("snapshot-many-jobs", settings_for_pages(), 102),
        // Pages of another size are pages as well.
        ("snapshot-many-jobs", self::settings(), 102),
    ] {
        assert_eq!(restore(settings, name).scheduled(), scheduled, "case: {name}");
    }
    for (name, packed) in [("snapshot-pages", 6), ("snapshot-wide-pages", 20), ("snapshot-transactions", 18)]
    {
        assert_eq!(restore(settings_for_pages(), name).memory().packed_messages, packed, "case: {name}");
    }
}

#[test]
fn pieces_of_a_large_message_are_live_once_for_each_message_that_names_them() {
    let restored = Partition::restore(settings(), &read("snapshot-large")).expect("a snapshot");
    let plain = Partition::restore(settings(), &partition_with_jobs().snapshot()).expect("a snapshot");
    let live = |partition: &Partition| -> Vec<(u64, u64)> {
        let rows = partition.live_messages();
        let mut live: Vec<_> =
            rows.flat_map(|row| vec![(row.first.get(), row.body_bytes); row.keys().count()]).collect();
        live.sort_unstable();
        live
    };
    let mut more = live(&restored);
    for known in live(&plain) {
        more.remove(more.iter().position(|other| *other == known).expect("still there"));
    }
    let own = b"without its body".len() as u64;
    more.retain(|(_, bytes)| *bytes != own);
    assert_eq!(more, [(3, 8), (3, 8), (4, 8), (4, 8), (9, 4), (9, 4)], "once for each of the messages");
}

#[test]
fn a_restored_partition_goes_on_moving_its_queues() {
    let restored = Partition::restore(settings(), &read("snapshot-moving")).expect("a snapshot");
    let leaving: Vec<_> = restored.leaving().collect();
    assert_eq!(leaving, [(&Destination::queue("audit"), PartitionId(5))]);
    let entries = restored.durable_entries().filter(|entry| &*entry.queue.name == "orders");
    let failed: Vec<u32> = entries.map(|entry| entry.failed_deliveries).collect();
    assert_eq!(failed, [2, 0], "what has moved is ahead");
}

#[test]
fn records_and_snapshots_of_other_versions_are_refused() {
    for version in [0, 2] {
        let mut record = read("declare").to_vec();
        record[1] = version;
        let refused = decode_record(&record.into()).expect_err("another version").to_string();
        assert_eq!(refused, format!("record version {version} is not supported by this build"));
        let mut snapshot = read("snapshot").to_vec();
        snapshot[0] = version;
        let refused =
            Partition::restore(settings(), &snapshot.into()).map(drop).expect_err("another version");
        let want = format!("snapshot version {version} is not supported; this build reads version 1");
        assert_eq!(refused.to_string(), want);
    }
}

#[test]
#[ignore = "writes fixtures/records"]
fn write_the_kept_files() {
    let write = |name: &str, bytes: &[u8]| std::fs::write(kept(name), bytes).expect("written");
    for (name, command) in all_records() {
        write(name, &encode_record(&command, Compression::None).concat());
    }
    for (name, _, partition) in snapshots() {
        write(name, &partition.snapshot());
    }
}

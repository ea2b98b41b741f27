//! Logs with holes: nothing that is still there is lost, and nothing is taken for something else.

mod bench;

use std::collections::BTreeSet;
use std::sync::Arc;

use bench::{Bench, equipped, settings};
use bytes::Bytes;
use postroad_core::{
    Doubts, Holder, LostMessage, Partition, PartitionRebuild, RebuiltPartition, Settings, decode_record,
    encode_record, sent_in_record, shorten_record,
};
use postroad_model::{
    Chunks, Command, Compression, Destination, Message, MessageKey, Position, RareHeaders, Sent,
};

fn position(number: usize) -> Position {
    Position::new(number as u64).expect("from 1")
}

/// Applies the records of partition 0 but for those at these positions, from 1.
fn mend(log: &[Bytes], holes: &[usize]) -> RebuiltPartition {
    let is_there = |at: Position| !holes.contains(&(at.get() as usize));
    let mut mending = PartitionRebuild::begin(equipped(Partition::new(settings(1))), is_there);
    for (number, record) in (1..).zip(log) {
        match holes.contains(&number) {
            true => mending.lose(position(number)),
            false => mending.apply(position(number), decode_record(record).expect("a record")),
        }
    }
    for row in mending.take_shelved() {
        for key in row.keys() {
            let MessageKey::Durable { position, ordinal } = key else { continue };
            let record = is_there(position).then(|| &log[position.get() as usize - 1]);
            let sent = record.and_then(|record| sent_in_record(record, ordinal).expect("a record"));
            mending.put_back(key, row.body_bytes, sent.as_ref());
        }
    }
    mending.end(is_there)
}

/// The contents of the queues: where, and by which record.
fn entries(mended: &RebuiltPartition) -> BTreeSet<(Destination, u64)> {
    let entries = mended.partition.durable_entries().map(|entry| match entry.key {
        MessageKey::Durable { position, .. } => (entry.queue.clone(), position.get()),
        MessageKey::Volatile(_) => panic!("only in memory"),
    });
    entries.collect()
}

/// Two queues, one made late; messages accepted out of order, in a transaction, with a priority,
/// given back and moved.
const SCRIPT: &str = "send 1 a m1\n send 1 a m2\n send 1 b n1\n attach 2.1 a 20\n attach 2.2 b 20\n accept 2.1 m1\n \
    send 1 a m3\n send 1 c k1\n send 1 a m4 priority=9\n send 1 a,b o1\n accept 2.1 m3\n send 1 b n2\n accept 2.2 n1\n \
    attach 2.3 c 20\n send 1 c k2\n accept 2.3 k1\n fail 2.1 m4\n send 1 a m5 tx=1\n accept 2.1 m2 tx=1\n commit 1 1\n \
    send 1 a m6\n accept 2.1 m6\n reject 2.2 n2\n send 1 c k3\n accept 2.3 k3";

fn log() -> Vec<Bytes> {
    let mut bench = Bench::new(settings(1));
    bench.run(SCRIPT);
    bench.log.swap_remove(0)
}

#[test]
fn whatever_is_lost_the_rest_of_what_was_there_stays() {
    let log = log();
    assert!(20 <= log.len(), "{} records", log.len());
    let whole = mend(&log, &[]);
    assert_eq!((whole.doubts, whole.lost), (Doubts::default(), vec![]));
    let left = entries(&mend(&log, &[]));
    // Everything that was ever in a queue.
    let settles = |record: &Bytes| matches!(decode_record(record), Ok(Command::Settle(_)));
    let mut ever = entries(&mend(&log, &[]));
    let mut mending = PartitionRebuild::begin(equipped(Partition::new(settings(1))), |_| true);
    for (number, record) in (1..).zip(&log) {
        let command = match decode_record(record).expect("a record") {
            Command::Settle(_) => Command::Settle(Vec::new()),
            Command::Transact(changes) => {
                Command::Transact(postroad_model::Changes { settlements: Vec::new(), ..changes })
            }
            other => other,
        };
        mending.apply(position(number), command);
    }
    ever.extend(entries(&mending.end(|_| true)));
    assert!(log.iter().any(settles) && left.len() < ever.len());
    let pairs = (1..=log.len()).flat_map(|first| (first..=log.len()).map(move |second| [first, second]));
    for holes in pairs {
        let mended = mend(&log, &holes);
        let got = entries(&mended);
        let is_lost = |at: u64| holes.contains(&(at as usize));
        let missing: Vec<_> = left.iter().filter(|entry| !is_lost(entry.1) && !got.contains(entry)).collect();
        assert!(missing.is_empty(), "without {holes:?}: {missing:?}");
        let wrong: Vec<_> = got.iter().filter(|entry| is_lost(entry.1) || !ever.contains(entry)).collect();
        assert!(wrong.is_empty(), "without {holes:?}: {wrong:?}");
        let again = got.difference(&left).count() as u64;
        let doubtful: u64 = mended.doubts.settlements.values().sum();
        let settled_by_lost: u64 = holes
            .iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|hole| match decode_record(&log[hole - 1]) {
                Ok(Command::Settle(settlements)) => settlements.len() as u64,
                Ok(Command::Transact(changes)) => changes.settlements.len() as u64,
                _ => 0,
            })
            .sum();
        assert!(
            again <= doubtful + settled_by_lost,
            "without {holes:?}: {again} come again, {doubtful} told"
        );
        assert_eq!(mended.partition.miscounted(), None, "without {holes:?}");
        let snapshot = mended.partition.snapshot();
        let restored = Partition::restore(settings(1), &snapshot).expect("a sound snapshot");
        assert_eq!(restored.snapshot(), snapshot, "without {holes:?}");
    }
}

/// Of a transaction compaction has left the messages that stay; which entries the settles after it
/// name is not certain any more.
#[test]
fn what_is_left_of_a_record_is_settled_by_no_record_that_meant_others() {
    let script = "send 1 early e1\n attach 2.3 early 9\n send 1 goes g1 tx=1\n send 1 goes g2 tx=1\n send 1 stays s1 tx=1\n \
        send 1 stays s2 tx=1\n commit 1 1\n attach 2.1 goes 9\n attach 2.2 stays 9\n accept 2.1 g1\n accept 2.1 g2\n \
        accept 2.2 s1\n accept 2.3 e1";
    let mut bench = Bench::new(settings(1));
    bench.run(script);
    let mut log = bench.log.swap_remove(0);
    let is_transaction = |record: &Bytes| matches!(decode_record(record), Ok(Command::Transact(_)));
    let place = log.iter().position(is_transaction).expect("a transaction");
    let (left, shorter) = shorten_record(&log[place], &|ordinal| ordinal == 3).expect("the others go");
    assert_eq!(left, 1);
    log[place] = shorter.into();
    let mended = mend(&log, &[]);
    assert_eq!(entries(&mended), [(Destination::queue("stays"), place as u64 + 1)].into());
    assert_eq!(
        mended.doubts.settlements.values().sum::<u64>(),
        3,
        "what those of the transaction meant is told as doubtful"
    );
    assert_eq!(mended.partition.miscounted(), None);
}

#[test]
fn what_names_entries_from_before_a_loss_is_carried_out_and_what_names_later_ones_is_told() {
    let script = "send 1 a m1\n send 1 a m2\n send 1 a m3\n attach 2.1 a 20\n accept 2.1 m1\n send 1 a m4\n \
        accept 2.1 m4\n send 1 late k1\n attach 2.2 late 20\n accept 2.2 k1";
    let mut bench = Bench::new(settings(1));
    bench.run(script);
    let log = bench.log.swap_remove(0);
    let kinds: Vec<String> = log
        .iter()
        .map(|record| {
            format!("{:?}", decode_record(record))
                .chars()
                .skip(3)
                .take_while(|c| c.is_alphanumeric())
                .collect()
        })
        .collect();
    assert_eq!(kinds, ["Enqueue", "Enqueue", "Enqueue", "Settle", "Enqueue", "Settle", "Enqueue", "Settle"]);
    let (a, late) = (Destination::queue("a"), Destination::queue("late"));
    // m1, m2, m3, m4 and k1 are in the records 1, 2, 3, 5 and 7.
    for (case, hole, want, doubts) in [
        (
            "a message: those before it are settled as ever",
            3,
            vec![(&a, 2), (&a, 5), (&late, 7)],
            vec![(Some(&a), 1), (None, 1)],
        ),
        (
            "a settlement: its message comes again",
            4,
            vec![(&a, 1), (&a, 2), (&a, 3), (&a, 5), (&late, 7)],
            vec![(Some(&a), 1), (None, 1)],
        ),
        (
            "the last settlement: what came before it is certain",
            8,
            vec![(&a, 2), (&a, 3), (&late, 7)],
            vec![],
        ),
        (
            "what made a queue: later numbers may be another queue's",
            7,
            vec![(&a, 2), (&a, 3)],
            vec![(None, 1)],
        ),
        ("the first record", 1, vec![(&a, 2), (&a, 3), (&a, 5), (&late, 7)], vec![(None, 3)]),
    ] {
        let mended = mend(&log, &[hole]);
        let want: BTreeSet<_> = want.into_iter().map(|(queue, at)| (queue.clone(), at)).collect();
        assert_eq!(entries(&mended), want, "case: {case}");
        let told = mended.doubts.settlements.into_iter();
        let doubts =
            doubts.into_iter().map(|(queue, count)| (queue.cloned(), count)).collect::<BTreeSet<_>>();
        assert_eq!(told.collect::<BTreeSet<_>>(), doubts, "case: {case}");
    }
}

#[test]
fn messages_whose_records_are_gone_leave_everything_that_held_them() {
    let mut bench = Bench::new(settings(1));
    bench.run(
        "attach 3.1 #t 9 sub=s\n detach 3.1 none\n send 1 a m1\n send 1 a m2\n send 1 a m3\n send 1 a m4\n send 1 a m5\n \
         send 1 #t t1\n send 1 a later at=9 every=5 times=2",
    );
    let snapshot = bench.partitions[0].snapshot();
    let at = |body: &str| {
        let held = |record: &Bytes| match decode_record(record) {
            Ok(Command::Enqueue(sent)) => sent.message.bytes == body,
            _ => false,
        };
        position(1 + bench.log[0].iter().position(held).expect("it was sent"))
    };
    let gone = [at("m2"), at("t1"), at("later")];
    let partition = equipped(Partition::restore(settings(1), &snapshot).expect("a snapshot"));
    let mended = PartitionRebuild::begin(partition, |_| true).end(|position| !gone.contains(&position));
    let lost =
        |queue: Option<Destination>, subscription: Option<&str>, position, body_bytes, holder| LostMessage {
            queue,
            subscription: subscription.map(Into::into),
            position,
            ordinal: 0,
            body_bytes,
            holder,
        };
    let topic = Destination::topic("t");
    let mut told = mended.lost.clone();
    told.sort_by_key(|lost| lost.position);
    assert_eq!(
        told,
        [
            lost(Some(Destination::queue("a")), None, gone[0], 2, Holder::Entry),
            lost(Some(topic), Some("s"), gone[1], 2, Holder::Entry),
            lost(None, None, gone[2], 5, Holder::Job),
        ]
    );
    let left: Vec<u64> = entries(&mended).into_iter().map(|(_, position)| position).collect();
    assert_eq!(left, [at("m1"), at("m3"), at("m4"), at("m5")].map(Position::get));
    let live: BTreeSet<MessageKey> = mended.partition.live_messages().flat_map(|row| row.keys()).collect();
    let key = |position| MessageKey::Durable { position, ordinal: 0 };
    assert_eq!(live, ["m1", "m3", "m4", "m5"].map(|body| key(at(body))).into());
}

#[test]
fn a_large_message_is_lost_with_any_of_its_pieces() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m1");
    let Ok(Command::Enqueue(sent)) = decode_record(&bench.log[0][0]) else { panic!("one message") };
    let chunks = Some(Arc::new(Chunks { bytes: 10, piece_bytes: 8, positions: [2, 3].map(position).into() }));
    let rare = Some(Arc::new(RareHeaders { chunks, ..RareHeaders::default() }));
    let large = Sent { message: Message { rare, ..sent.message.clone() }, ..sent };
    let piece = |bytes: &'static [u8]| Command::Chunk(Bytes::from_static(bytes));
    let later = [piece(b"12345678"), piece(b"90"), Command::Enqueue(large)];
    let written = later.iter().map(|command| encode_record(command, Compression::None).concat().into());
    bench.log[0].extend(written);
    for (case, holes, want) in [
        ("all is there", &[][..], &[1, 4][..]),
        ("a piece", &[2], &[1]),
        ("the last piece", &[3], &[1]),
        ("another message", &[1], &[4]),
    ] {
        let mended = mend(&bench.log[0], holes);
        let left: Vec<u64> = entries(&mended).into_iter().map(|(_, position)| position).collect();
        assert_eq!(left, want, "case: {case}");
        assert_eq!(mended.lost.len(), usize::from(holes.iter().any(|hole| *hole != 1)), "case: {case}");
    }
}

#[test]
fn jobs_on_shelves_are_lost_with_their_messages_alone() {
    let mut bench = Bench::new(Settings { resident_bytes_max: 0, page_entries: 2, ..settings(1) });
    for number in 0..200 {
        bench.run(&format!("send 1 a {number} at={}", 100_000 + number));
    }
    let log = bench.log.swap_remove(0);
    let of_kind = |wanted: fn(&Command) -> bool| {
        let records =
            (1..).zip(&log).filter(move |(_, record)| wanted(&decode_record(record).expect("a record")));
        records.map(|(number, _)| number).collect::<Vec<usize>>()
    };
    let shelves = of_kind(|command| matches!(command, Command::Shelve { .. }));
    let messages = of_kind(|command| matches!(command, Command::Enqueue(_)));
    assert!(50 < shelves.len() && messages.len() == 200, "{} shelves", shelves.len());
    let some = [shelves[0], messages[150], shelves[40], messages[199], shelves[shelves.len() - 1]];
    for (case, holes, lost) in [
        ("all is there", &[][..], &[][..]),
        ("a shelf", &shelves[..1], &[]),
        ("every shelf", &shelves, &[]),
        ("a message", &messages[180..181], &messages[180..181]),
        ("shelves and messages", &some, &[messages[150], messages[199]]),
    ] {
        let mended = mend(&log, holes);
        // The kind of a message whose record came after the last checkpoint is unknown.
        let told: Vec<usize> = mended.lost.iter().map(|lost| lost.position.get() as usize).collect();
        assert!(told.iter().all(|position| lost.contains(position)), "case: {case}: {told:?}");
        let left = (mended.partition.scheduled(), mended.partition.jobs_in_memory());
        assert_eq!(left, (200 - lost.len(), 200 - lost.len()), "case: {case}");
        let live: BTreeSet<MessageKey> =
            mended.partition.live_messages().flat_map(|row| row.keys()).collect();
        assert_eq!(live.len(), 200 - lost.len(), "case: {case}: no shelf is needed any more");
    }
}

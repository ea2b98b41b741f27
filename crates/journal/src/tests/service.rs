//! The journal in service, on the simulated disk: commit, read, checkpoint, recycle, full and broken disks.

use crate::{Journal, Options, Payload, Record, Recovered, SimulatedDisk, StoredRecord};
use bytes::Bytes;
use postroad_model::{PartitionId, Position};

const OPTIONS: Options =
    Options { segment_bytes: 16 << 10, checkpoint_bytes: 24 << 10, dead_segments_max: 2 };

fn position(number: u64) -> Position {
    Position::new(number).unwrap()
}

fn payload(partition: u16, number: u64, bytes: usize) -> Bytes {
    (0..bytes).map(|index| (index as u64 * 7 + number * 13 + u64::from(partition)) as u8).collect()
}

fn record(partition: u16, number: u64, bytes: usize) -> Record {
    let whole = payload(partition, number, bytes);
    let cut = bytes / 3;
    let payload = Payload::from([whole.slice(..cut), whole.slice(cut..)]);
    Record { partition: PartitionId(partition), position: position(number), payload, reserve: false }
}

fn stored(partition: u16, number: u64, bytes: usize) -> StoredRecord {
    let payload = payload(partition, number, bytes);
    StoredRecord { partition: PartitionId(partition), position: position(number), payload }
}

fn open(disk: &SimulatedDisk) -> (Journal<SimulatedDisk>, Vec<StoredRecord>) {
    let (journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    let records = records(&recovered);
    (journal, records)
}

fn records(recovered: &Recovered<<SimulatedDisk as crate::Disk>::File>) -> Vec<StoredRecord> {
    assert_eq!(recovered.damaged, vec![]);
    recovered.records().map(|record| record.unwrap()).collect()
}

fn serve(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk) {
    if let Some(request) = journal.wants_segment() {
        journal.provide(request.prepare(disk));
    }
}

#[test]
fn what_was_committed_comes_back_in_order_after_a_power_cut() {
    for (name, groups) in [
        ("nothing", vec![]),
        ("one record", vec![vec![(0, 1, 1000)]]),
        ("an empty payload", vec![vec![(0, 1, 0)]]),
        ("two partitions in one group", vec![vec![(0, 1, 10), (7, 1, 600), (0, 2, 0)], vec![(7, 2, 5)]]),
        ("more than one segment", (1..=60).map(|number| vec![(0, number, 900)]).collect()),
        ("larger than a segment", vec![vec![(0, 1, 10)], vec![(0, 2, 50_000)], vec![(0, 3, 10)]]),
        ("more pieces than one write takes", vec![(1..=1500).map(|number| (0, number, 3)).collect()]),
    ] {
        let disk = SimulatedDisk::new(1);
        let (mut journal, before) = open(&disk);
        assert_eq!(before, vec![], "case: {name}");
        let mut want = Vec::new();
        for group in &groups {
            let records: Vec<Record> = group.iter().map(|&(p, n, b)| record(p, n, b)).collect();
            journal.commit(&records).unwrap();
            want.extend(group.iter().map(|&(p, n, b)| stored(p, n, b)));
            serve(&mut journal, &disk);
        }
        disk.crash();
        let (mut journal, got) = open(&disk);
        assert_eq!(got, want, "case: {name}");
        for record in &want {
            assert_eq!(
                journal.read(record.partition, record.position).unwrap(),
                record.payload,
                "case: {name}"
            );
        }
        assert_eq!(open(&disk).1, want, "case: {name}, opened twice");
    }
}

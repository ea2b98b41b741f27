//! The log after a copy of the store stays for the node that gets it.

use bytes::Bytes;
use postroad_cluster::Index;
use postroad_journal::{Payload, Record, SimulatedDisk};
use postroad_model::Position;

use super::damage::open_with;
use super::replicas::{OPTIONS, PARTITION};
use crate::{LogWriter, Replica, ToPartition, ToWriter};

const TRAILING_BYTES: u64 = 64 << 10;
/// Each has 1 KiB.
const ROUND_RECORDS: u64 = 400;

struct Leader {
    disk: SimulatedDisk,
    writer: LogWriter<SimulatedDisk>,
    position: Position,
}

impl Leader {
    fn new() -> Leader {
        let disk = SimulatedDisk::new(1);
        let replica = open_with(&disk, OPTIONS).unwrap().trailing(TRAILING_BYTES);
        let writer = LogWriter::new(replica, [PARTITION]);
        let mut leader = Leader { disk, writer, position: Position::FIRST };
        (0..100).for_each(|_| leader.pass());
        leader
    }

    fn pass(&mut self) {
        self.writer.tick();
        self.writer.drive();
        self.writer.leadership().take_over();
        while let Some(job) = self.writer.next_job() {
            self.writer.finish(job.run(&self.disk, &mut ()));
        }
        while let Some(message) = self.writer.next_message() {
            match message {
                ToPartition::Durable { through, .. } => self.position = through,
                ToPartition::SnapshotWanted { partition } => {
                    let state = Bytes::from_static(b"state").into();
                    self.writer.push(ToWriter::Snapshot { partition, position: self.position, state });
                }
                _ => {}
            }
        }
    }

    /// Writes far more than stays for lagging replicas.
    fn write_on(&mut self, from: u64) {
        for number in from..from + ROUND_RECORDS {
            let payload = Payload::from(Bytes::from(vec![7; 1 << 10]));
            let (partition, position) = (PARTITION, Position::new(number).unwrap());
            let records = vec![Record { partition, position, payload, reserve: false, key: None }];
            self.writer.push(ToWriter::Batch { partition, epoch: 0, records, sync: true });
            self.writer.write();
            self.pass();
            assert_eq!(self.position, position, "{:?}", self.replica().status());
        }
    }

    fn replica(&self) -> &Replica<SimulatedDisk> {
        self.writer.replica().unwrap()
    }

    fn floor(&self) -> Index {
        self.replica().status().floor
    }
}

#[test]
fn the_log_after_a_copy_stays_until_it_is_released_or_the_disk_is_short_of_space() {
    for runs_short in [false, true] {
        let mut leader = Leader::new();
        leader.write_on(1);
        let (copied, before) = (leader.replica().stored_last().index, leader.floor());
        assert!(Index(0) < before && before < copied, "{before:?} {copied:?}");
        leader.writer.leadership().keep_log_after(Some(copied));
        leader.write_on(1 + ROUND_RECORDS);
        let kept = leader.floor();
        assert!(before < kept && kept <= copied, "entries before the copy go, and no later ones: {kept:?}");
        if runs_short {
            // Three segments of room.
            leader.disk.set_capacity(Some(leader.disk.used_bytes() + 3 * OPTIONS.segment_bytes));
        } else {
            leader.writer.leadership().keep_log_after(None);
        }
        leader.write_on(1 + 2 * ROUND_RECORDS);
        assert!(copied < leader.floor(), "runs short: {runs_short}, {:?}", leader.floor());
    }
}

//! A replica whose disk has lost entries, or some of their bytes.

use bytes::Bytes;
use postroad_cluster::{Config, GroupError, JournalLog, Members, NodeId, VoteError, VoteFile};
use postroad_journal::{Journal, Keys, Options, Payload, Record, SimulatedDisk};
use postroad_model::{PartitionId, Position};

use crate::{LogWriter, Replica, ToPartition, ToWriter, first_damage};

const PARTITION: PartitionId = PartitionId(0);
const OPTIONS: Options =
    Options { segment_bytes: 64 << 10, checkpoint_bytes: 1 << 30, checkpoint_share: 0, dead_segments_max: 2 };
const FIRST_SEGMENT: &str = "0000000000000001.segment";

/// A replica that is a majority of itself.
fn open(disk: &SimulatedDisk) -> Result<LogWriter<SimulatedDisk>, GroupError> {
    open_with(disk, OPTIONS).map(|replica| LogWriter::new(replica, [PARTITION]))
}

pub(super) fn open_with(
    disk: &SimulatedDisk,
    options: Options,
) -> Result<Replica<SimulatedDisk>, GroupError> {
    let vote = match VoteFile::open(disk) {
        Err(VoteError::Io(_)) => VoteFile::create(disk).unwrap(),
        vote => vote.unwrap(),
    };
    let (journal, recovered) = Journal::open(disk.clone(), options).unwrap();
    let log = JournalLog::over(disk.clone(), (options, Keys::default()), journal, &recovered).unwrap();
    let node = NodeId::new(1).unwrap();
    let config = Config {
        node,
        members: Members::first([node]),
        seed: 1,
        uncommitted_bytes_max: 1 << 20,
        cache_bytes_max: 0,
    };
    Replica::open(&config, log, vote, [], Box::new(|_| ()))
}

/// Some ticks pass, and all that is to be done for it is done.
fn pass(writer: &mut LogWriter<SimulatedDisk>, disk: &SimulatedDisk, ticks: u32) -> Vec<ToPartition> {
    let mut messages = Vec::new();
    for _ in 0..ticks {
        writer.tick();
        writer.drive();
        writer.leadership().take_over();
        while let Some(job) = writer.next_job() {
            writer.finish(job.run(disk, &mut ()));
        }
        messages.extend(std::iter::from_fn(|| writer.next_message()));
        while writer.next_replicated().is_some() {}
    }
    messages
}

fn send(writer: &mut LogWriter<SimulatedDisk>, disk: &SimulatedDisk, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let payload = Payload::from(Bytes::from(vec![7; 20 << 10]));
        let (partition, position) = (PARTITION, Position::new(number).unwrap());
        let records = vec![Record { partition, position, payload, reserve: false, key: None }];
        writer.push(ToWriter::Batch { partition, epoch: 0, records, sync: true });
        writer.write();
        pass(writer, disk, 1);
    }
}

#[test]
fn a_log_that_ends_before_its_mark_is_refused() {
    // The mark is written every 20 ticks.
    for (case, loses, ticks, is_refused) in
        [("nothing is lost", false, 25, false), ("an entry that is marked is lost", true, 25, true)]
    {
        let disk = SimulatedDisk::new(1);
        let mut writer = open(&disk).unwrap();
        pass(&mut writer, &disk, 60);
        send(&mut writer, &disk, 1..=1);
        let before = disk.contents(FIRST_SEGMENT).unwrap();
        send(&mut writer, &disk, 2..=2);
        pass(&mut writer, &disk, ticks);
        drop(writer);
        if loses {
            disk.set_contents(FIRST_SEGMENT, before);
        }
        let opened = open(&disk).map(|writer| writer.replica().unwrap().stored_last());
        match opened {
            Err(GroupError::LostEntries { stored, last }) => {
                assert!(is_refused && last.index < stored.index, "case: {case}: {stored:?} {last:?}");
            }
            opened => assert!(!is_refused && opened.is_ok(), "case: {case}: {opened:?}"),
        }
    }
}

#[test]
fn a_record_that_a_replica_has_lost_is_not_reported_as_lost() {
    let disk = SimulatedDisk::new(2);
    let mut writer = open(&disk).unwrap();
    pass(&mut writer, &disk, 60);
    send(&mut writer, &disk, 1..=6);
    drop(writer);
    // It has no file open but the last.
    let mut writer = open(&disk).unwrap();
    pass(&mut writer, &disk, 60);
    let read = |writer: &mut LogWriter<SimulatedDisk>, number| {
        let position = Position::new(number).unwrap();
        writer.push(ToWriter::Read { partition: PARTITION, position });
        pass(writer, &disk, 3).into_iter().find_map(|message| match message {
            ToPartition::Read { record, .. } => Some(record.map(|record| record.len())),
            _ => None,
        })
    };
    let mut bytes = disk.contents(FIRST_SEGMENT).unwrap();
    let place = bytes.windows(64).position(|window| window == [7; 64]).unwrap();
    // More than the journal corrects by the checksum.
    bytes[place..place + 64].iter_mut().for_each(|byte| *byte ^= 1);
    disk.set_contents(FIRST_SEGMENT, bytes);
    assert_eq!(read(&mut writer, 6), Some(Ok(20 << 10)));
    assert_eq!(first_damage(&writer), None);
    assert_eq!(read(&mut writer, 1), None, "the others have it");
    let damage = first_damage(&writer).unwrap();
    assert!(damage.contains("checksum of the record at position 1 fails"), "{damage}");
}

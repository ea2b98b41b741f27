//! Encryption: the data on the disk, the keys of a directory, and the change from one key to
//! another.

use super::in_memory;
use super::service::{OPTIONS, position, record, row, serve, stored};
use crate::disks::disk::write_all_at;
use crate::layout::format::{GROUP_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader};
use crate::reading::scan::{GroupHead, Window};
use crate::{
    Checkpoint, DamageKind, Disk, Fault, Journal, KEY_BYTES, Key, KeyId, KeySet, Keys, Operation, Payload,
    Record, Salvage, SimulatedDisk, StoredRecord,
};
use bytes::Bytes;
use postroad_model::PartitionId;
use std::collections::BTreeMap;
use std::io::IoSlice;

const PARTITION: PartitionId = PartitionId(0);

/// Stands in every record and state.
const SECRET: &[u8] = b"nobody may read this";

pub(super) fn key(byte: u8) -> Key {
    Key::new(&[byte; KEY_BYTES])
}

/// A current key, and former ones.
pub(super) fn keys(current: Option<u8>, former: &[u8]) -> Keys {
    Keys::new(KeySet { current: current.map(key), former: former.iter().copied().map(key).collect() }, [])
}

fn id(byte: u8) -> KeyId {
    key(byte).id()
}

fn secret(number: u64) -> Bytes {
    [SECRET, &number.to_le_bytes(), &[number as u8; 900]].concat().into()
}

fn secret_record(number: u64) -> Record {
    Record { payload: Payload::from(secret(number)), ..record(0, number, 0) }
}

fn state(number: u64) -> Checkpoint {
    let state = Bytes::from([SECRET, &number.to_le_bytes()].concat()).into();
    Checkpoint { partition: PARTITION, position: position(number), state }
}

type Opened = (Journal<SimulatedDisk>, Vec<StoredRecord>, Vec<Checkpoint>);

fn open(disk: &SimulatedDisk, keys: &Keys) -> Opened {
    let (mut journal, recovered) =
        Journal::open_with(disk.clone(), OPTIONS, keys.clone(), &mut |_, _| ()).unwrap();
    assert_eq!(recovered.damaged, vec![]);
    let records: Vec<StoredRecord> = recovered.records().map(|record| record.unwrap()).collect();
    let last = journal.last_position(PARTITION).map_or(0, |last| last.get());
    assert_eq!(journal.recount(PARTITION, (1..=last).map(|number| row(position(number), 928))), 0);
    (journal, records, in_memory(&recovered.checkpoints))
}

fn commit(
    journal: &mut Journal<SimulatedDisk>,
    disk: &SimulatedDisk,
    numbers: std::ops::RangeInclusive<u64>,
) {
    for number in numbers {
        journal.commit(&[secret_record(number)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, 928));
        serve(journal, disk);
    }
}

/// Everything that a broker at rest does.
fn rest(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk) {
    journal.seal().unwrap();
    let last = journal.last_position(PARTITION).unwrap().get();
    for _ in 0..50 {
        if journal.checkpoint_due() {
            journal.write_checkpoint(vec![state(last)]).unwrap();
        }
        if let Some(request) = journal.wants_compaction() {
            let done = request.run(disk, &mut ());
            journal.finish_compaction(done).unwrap();
        }
        if let Some(removal) = journal.wants_removal() {
            removal.run(disk);
        }
        serve(journal, disk);
    }
    assert!(!journal.checkpoint_due(), "it comes to rest");
}

fn files_with_secrets(disk: &SimulatedDisk) -> Vec<String> {
    let names = disk.list().unwrap().into_iter();
    names
        .filter(|name| disk.contents(name).unwrap().windows(SECRET.len()).any(|part| part == SECRET))
        .collect()
}

#[test]
fn a_state_comes_back_wherever_it_was_cut() {
    // Two and a half of the steps in which states are encrypted and written.
    let whole: Vec<u8> = (0..5 << 19).map(|at: u64| ((at * at) >> 7) as u8).collect();
    for keys in [Keys::default(), keys(Some(1), &[])] {
        for cuts in [&[][..], &[0, 0], &[1, 1 << 20], &[1 << 18, (1 << 20) + 1, 5 << 19]] {
            let disk = SimulatedDisk::new(1);
            let (mut journal, _, _) = open(&disk, &keys);
            commit(&mut journal, &disk, 1..=3);
            let ends = cuts.iter().copied().chain([whole.len()]);
            let begins = std::iter::once(0).chain(cuts.iter().copied());
            let pieces = begins.zip(ends).map(|(begin, end)| Bytes::copy_from_slice(&whole[begin..end]));
            let state = Checkpoint { state: pieces.collect(), ..state(3) };
            journal.write_checkpoint(vec![state.clone()]).unwrap();
            disk.restart();
            let (_, _, states) = open(&disk, &keys);
            assert_eq!(states, [state], "cut at {cuts:?}, {keys:?}");
        }
    }
}

#[test]
fn what_was_encrypted_comes_back_after_a_power_cut_and_cannot_be_read_on_the_disk() {
    for (name, keys, readable) in
        [("without a key", Keys::default(), true), ("with one", keys(Some(1), &[]), false)]
    {
        let disk = SimulatedDisk::new(1);
        let (mut journal, _, _) = open(&disk, &keys);
        commit(&mut journal, &disk, 1..=30);
        journal.write_checkpoint(vec![state(30)]).unwrap();
        commit(&mut journal, &disk, 31..=40);
        for number in 41..=42 {
            journal.append(&[secret_record(number)]).unwrap();
        }
        disk.restart();
        let (mut journal, records, states) = open(&disk, &keys);
        let want: Vec<StoredRecord> = (31..=42)
            .map(|number| StoredRecord { payload: secret(number), ..stored(0, number, 0) })
            .collect();
        assert_eq!((records, states), (want, vec![state(30)]), "case: {name}");
        for number in 1..=42 {
            assert_eq!(journal.read(PARTITION, position(number)).unwrap(), secret(number), "case: {name}");
        }
        assert_eq!(!files_with_secrets(&disk).is_empty(), readable, "case: {name}");
    }
}

#[test]
fn a_directory_that_needs_another_key_is_refused_and_stays_as_it_is() {
    let (a, b) = (keys(Some(1), &[]), keys(Some(2), &[1]));
    let source = SimulatedDisk::new(2);
    let (mut journal, _, _) = open(&source, &a);
    commit(&mut journal, &source, 1..=5);
    let early = source.copy();
    journal.write_checkpoint(vec![state(5)]).unwrap();
    let checkpointed = source.copy();
    let (mut journal, _, _) = open(&source, &b);
    commit(&mut journal, &source, 6..=8);
    journal.write_checkpoint(vec![state(8)]).unwrap();
    let rotating = source.copy();
    let (checkpoint, segment) = ("0000000000000001.checkpoint", "0000000000000001.segment");
    let [one, two, three] = [1, 2, 3].map(|byte| id(byte).to_string());
    for (name, disk, keys, file, want) in [
        ("none is given", &early, Keys::default(), segment, format!("key {one}, and no key is given")),
        ("a wrong one", &early, keys(Some(2), &[3]), segment, {
            let mut given = [two.clone(), three.clone()];
            given.sort();
            format!("key {one}, and the keys given are {}", given.join(", "))
        }),
        ("for the checkpoint", &checkpointed, keys(Some(3), &[]), checkpoint, {
            format!("key {one}, and the keys given are {three}")
        }),
        ("a former one is gone too early", &rotating, keys(Some(2), &[]), segment, {
            format!("key {one}, and the keys given are {two}")
        }),
    ] {
        let disk = disk.copy();
        let before: BTreeMap<String, _> =
            disk.list().unwrap().into_iter().map(|name| (name.clone(), disk.contents(&name))).collect();
        let want = format!("{file}: encrypted with {want}");
        let error = Journal::open_with(disk.clone(), OPTIONS, keys.clone(), &mut |_, _| ()).unwrap_err();
        assert_eq!(error.to_string(), want, "case: {name}");
        let error = Salvage::look_with(disk.clone(), keys).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), want, "case: {name}: repair");
        let after: BTreeMap<String, _> =
            disk.list().unwrap().into_iter().map(|name| (name.clone(), disk.contents(&name))).collect();
        assert!(before == after, "case: {name}: something was changed");
    }
}

#[test]
fn a_directory_comes_to_another_key_by_itself_and_needs_the_former_one_no_more() {
    for (name, before, during, after) in [
        ("on", keys(None, &[]), keys(Some(1), &[]), keys(Some(1), &[])),
        ("another", keys(Some(1), &[]), keys(Some(2), &[1]), keys(Some(2), &[])),
        ("off", keys(Some(1), &[]), keys(None, &[1]), keys(None, &[])),
    ] {
        let disk = SimulatedDisk::new(3);
        let (mut journal, _, _) = open(&disk, &before);
        commit(&mut journal, &disk, 1..=40);
        journal.write_checkpoint(vec![state(30)]).unwrap();
        let (mut journal, _, _) = open(&disk, &during);
        let both = [before.current(), during.current()];
        rest(&mut journal, &disk);
        assert!(journal.bytes_by_key().keys().all(|key| *key == both[1]), "case: {name}");
        commit(&mut journal, &disk, 41..=45);
        rest(&mut journal, &disk);
        disk.crash();
        let (mut journal, _, _) = open(&disk, &after);
        for number in 1..=45 {
            assert_eq!(journal.read(PARTITION, position(number)).unwrap(), secret(number), "case: {name}");
        }
        let hidden = during.current().is_some();
        assert_eq!(files_with_secrets(&disk).is_empty(), hidden, "case: {name}: {:?}", disk.list());
    }
}

#[test]
fn checkpoints_that_fail_keep_nothing_from_coming_to_another_key() {
    let disk = SimulatedDisk::new(3);
    let (mut journal, _, _) = open(&disk, &keys(Some(1), &[]));
    commit(&mut journal, &disk, 1..=40);
    let (mut journal, _, _) = open(&disk, &keys(Some(2), &[1]));
    journal.seal().unwrap();
    for _ in 0..9 {
        assert!(journal.checkpoint_due(), "it is tried again");
        disk.fail(Operation::Sync, 0, Fault::Broken);
        journal.write_checkpoint(vec![state(40)]).unwrap_err();
        assert!(!journal.checkpoint_due(), "not at once");
        journal.want_checkpoint();
    }
    rest(&mut journal, &disk);
    assert!(journal.bytes_by_key().into_keys().all(|key| key == Some(id(2))));
}

#[test]
fn a_record_of_a_tenant_has_the_tenants_key_for_ever() {
    let tenant = |current, former: &[u8]| KeySet {
        current: Some(key(current)),
        former: former.iter().copied().map(key).collect(),
    };
    let own = |current, former: &[u8]| tenant(current, former);
    let disk = SimulatedDisk::new(4);
    let before = Keys::new(own(1, &[]), [tenant(10, &[])]);
    let (mut journal, _, _) = open(&disk, &before);
    for number in 1..=40 {
        let key = (number % 2 == 0).then_some(id(10));
        journal.commit(&[Record { key, ..secret_record(number) }]).unwrap();
        serve(&mut journal, &disk);
    }
    let bytes = 20 * (secret(1).len() as u64 + 28);
    assert_eq!(journal.bytes_by_key(), BTreeMap::from([(Some(id(1)), bytes), (Some(id(10)), bytes)]));
    let after = Keys::new(own(2, &[1]), [tenant(11, &[10])]);
    let (mut journal, _, _) = open(&disk, &after);
    rest(&mut journal, &disk);
    assert_eq!(journal.bytes_by_key(), BTreeMap::from([(Some(id(2)), bytes), (Some(id(11)), bytes)]));
    let (mut journal, _, _) = open(&disk, &Keys::new(own(2, &[]), [tenant(11, &[])]));
    for number in 1..=40 {
        assert_eq!(journal.read(PARTITION, position(number)).unwrap(), secret(number));
    }
}

/// The groups in the first segment, and that file.
fn groups(disk: &SimulatedDisk, journal: &Journal<SimulatedDisk>) -> Vec<GroupHead> {
    let header = journal.current.header;
    let file = disk.open("0000000000000001.segment").unwrap();
    let mut window = Window::new(&file, 4096, journal.current.end);
    let (mut offset, mut found) = (512, Vec::new());
    while let Some(head) = window.head(header.salt, offset).unwrap() {
        offset = head.end();
        found.push(head);
    }
    found
}

fn at(disk: &SimulatedDisk, offset: u64, length: usize) -> Vec<u8> {
    disk.contents("0000000000000001.segment").unwrap()[offset as usize..offset as usize + length].to_vec()
}

/// Changes bytes, and puts all checksums right that cover them.
fn forge(disk: &SimulatedDisk, head: &GroupHead, payload: &[u8], row: impl Fn(RecordHeader) -> RecordHeader) {
    let file = disk.open("0000000000000001.segment").unwrap();
    let row = row(head.records[0].header).sealed(std::iter::once(payload)).encode();
    let mut header = head.header;
    header.table_checksum = crc32c::crc32c(&row);
    let front = [&header.encode(head.offset)[..], &row, payload].concat();
    write_all_at(&file, &mut [IoSlice::new(&front)], head.offset).unwrap();
    assert_eq!(front.len() - payload.len(), GROUP_HEADER_BYTES + RECORD_HEADER_BYTES);
}

#[test]
fn what_somebody_altered_is_never_taken_for_what_was_committed_nor_for_a_torn_write() {
    for (name, group) in [("in the middle", 1), ("the last one", 3)] {
        for (how, from, byte) in [
            ("a byte", group, 20),
            ("the nonce", group, 0),
            ("the tag", group, 950),
            ("another record's bytes", 0, 0),
        ] {
            let disk = SimulatedDisk::new(5);
            let keys = keys(Some(1), &[]);
            let (mut journal, _, _) = open(&disk, &keys);
            commit(&mut journal, &disk, 1..=4);
            let heads = groups(&disk, &journal);
            let length = heads[0].records[0].header.payload_bytes as usize;
            let mut payload = at(&disk, heads[from].records[0].payload_offset, length);
            if from == group {
                payload[byte] ^= 1;
            }
            forge(&disk, &heads[group], &payload, |row| row);
            let opened = Journal::open_with(disk, OPTIONS, keys, &mut |_, _| ());
            let (mut journal, recovered) = opened.unwrap();
            let position = position(group as u64 + 1);
            let kinds: Vec<_> = recovered.damaged.iter().map(|damage| damage.kind).collect();
            assert_eq!(kinds, [DamageKind::Forged { position }], "{name}: {how}");
            assert_eq!(recovered.torn, None, "{name}: {how}");
            let error = journal.read(PARTITION, position).unwrap_err().to_string();
            assert!(error.ends_with("was altered after its encryption (partition 0)"), "{error}");
        }
    }
}

#[test]
fn where_everything_has_to_be_encrypted_nothing_else_is_read() {
    let strict = || keys(Some(1), &[]).requiring_encryption();
    let begin = |keys: &Keys| {
        let disk = SimulatedDisk::new(8);
        let (mut journal, _, _) = open(&disk, keys);
        commit(&mut journal, &disk, 1..=4);
        (disk, journal)
    };
    let refused = |disk: SimulatedDisk| {
        let opened = Journal::open_with(disk, OPTIONS, strict(), &mut |_, _| ());
        opened.map(drop).map_err(|error| error.to_string())
    };
    let want = |file: &str| Err(format!("{file}: it contains unencrypted data, and encryption is required"));

    let (disk, mut journal) = begin(&strict());
    journal.write_checkpoint(vec![state(4)]).unwrap();
    assert_eq!(refused(disk.copy()), Ok(()), "all of it is encrypted");

    let (disk, mut journal) = begin(&Keys::default());
    assert_eq!(refused(disk.copy()), want("0000000000000001.segment"), "none of it");
    journal.write_checkpoint(vec![state(4)]).unwrap();
    assert_eq!(refused(disk.copy()), want("0000000000000001.checkpoint"), "nor the checkpoint");

    let plain = secret(9);
    let in_the_clear = |row: RecordHeader| RecordHeader { key: None, ..row };
    let (disk, mut journal) = begin(&strict());
    let heads = groups(&disk, &journal);
    let length = heads[1].records[0].header.payload_bytes as usize;
    let forged: Vec<u8> = plain.iter().copied().cycle().take(length).collect();
    forge(&disk, &heads[1], &forged, in_the_clear);
    assert_eq!(refused(disk.copy()), want("0000000000000001.segment"), "one record is not");
    let error = journal.read(PARTITION, position(2)).unwrap_err().to_string();
    assert!(error.ends_with("was altered after its encryption (partition 0)"), "{error}");
}

#[test]
fn what_a_crash_left_and_what_comes_in_its_place_have_different_nonces() {
    let disk = SimulatedDisk::new(6);
    let keys = keys(Some(1), &[]);
    let mut nonces = Vec::new();
    for _ in 0..20 {
        let (mut journal, _, _) = open(&disk, &keys);
        let next = journal.last_position(PARTITION).map_or(1, |last| last.get() + 1);
        journal.append(&[secret_record(next)]).unwrap();
        let heads = groups(&disk, &journal);
        nonces.push(at(&disk, heads.last().unwrap().records[0].payload_offset, 12));
        disk.crash();
    }
    let count = nonces.len();
    nonces.sort();
    nonces.dedup();
    assert_eq!((nonces.len(), count), (20, 20));
}

#[test]
fn without_the_keys_checksums_are_verified_and_sizes_told() {
    let disk = SimulatedDisk::new(7);
    let (mut journal, _, _) = open(&disk, &keys(Some(1), &[]));
    commit(&mut journal, &disk, 1..=20);
    journal.write_checkpoint(vec![state(20)]).unwrap();
    commit(&mut journal, &disk, 21..=25);
    journal.seal().unwrap();
    let look = |disk: &SimulatedDisk| {
        let opened = Journal::open_with(disk.clone(), OPTIONS, Keys::done_without(), &mut |_, _| ());
        let (journal, recovered) = opened.unwrap();
        let mut damage: Vec<_> = recovered.damaged.iter().map(|damage| damage.kind).collect();
        let mut seen = Vec::new();
        for used in journal.segments() {
            let walk = journal.walk(used.number).unwrap().unwrap();
            let found = walk.run(&mut (), &mut |record| {
                seen.push((record.position.get(), record.stored_bytes, record.key, record.payload.is_ok()));
            });
            damage.extend(found.unwrap().iter().map(|damage| damage.kind));
        }
        (seen, damage)
    };
    let all: Vec<_> = (1..=25).map(|number| (number, 928 + 28, Some(id(1)), false)).collect();
    assert_eq!(look(&disk), (all, vec![]));
    let damaged = disk.copy();
    let name = "0000000000000001.segment";
    let mut bytes = damaged.contents(name).unwrap();
    bytes[700] ^= 1;
    damaged.set_contents(name, bytes);
    assert_eq!(look(&damaged).1, vec![DamageKind::Payload { position: position(1) }]);
}

#[test]
fn repair_keeps_what_is_encrypted_and_can_be_read() {
    let disk = SimulatedDisk::new(8);
    let keys = keys(Some(1), &[]);
    let (mut journal, _, _) = open(&disk, &keys);
    commit(&mut journal, &disk, 1..=25);
    journal.write_checkpoint(vec![state(20)]).unwrap();
    journal.seal().unwrap();
    let name = "0000000000000001.segment";
    let mut bytes = disk.contents(name).unwrap();
    bytes[700] ^= 1;
    disk.set_contents(name, bytes);
    let salvage = Salvage::look_with(disk.clone(), keys.clone()).unwrap();
    assert_eq!(in_memory(&salvage.checkpoints()), vec![state(20)]);
    assert_eq!(salvage.read_damaged(PARTITION, position(1)).unwrap(), None, "ciphertext tells nothing");
    let live = (2..=25).map(|number| (PARTITION, position(number)));
    let aside = SimulatedDisk::new(1);
    salvage.repair(&aside, OPTIONS, vec![state(25)], live).unwrap();
    let (mut journal, _) = Journal::open_with(disk.clone(), OPTIONS, keys, &mut |_, _| ()).unwrap();
    for number in 2..=25 {
        assert_eq!(journal.read(PARTITION, position(number)).unwrap(), secret(number));
    }
    assert_eq!(files_with_secrets(&disk), Vec::<String>::new());
}

//! The room on a directory of the operating system.

use super::service::{OPTIONS, record, stored};
use crate::{Journal, OpenError, RealDisk};

#[test]
fn a_directory_keeps_what_was_committed_and_belongs_to_one_process() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("new/journal");
    let want: Vec<_> = (1..=30).map(|number| stored(0, number, 900)).collect();
    let disk = RealDisk::open(&path).unwrap();
    let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert_eq!(recovered.records().count(), 0);
    for number in 1..=30 {
        journal.commit(&[record(0, number, 900)]).unwrap();
        if let Some(request) = journal.wants_segment() {
            let disk = disk.clone();
            journal.provide(std::thread::spawn(move || request.prepare(&disk, &mut ())).join().unwrap());
        }
    }
    let owner = Some(std::process::id());
    assert!(matches!(RealDisk::open(&path), Err(OpenError::Locked { pid, .. }) if pid == owner));
    drop((journal, recovered, disk));
    let (mut journal, recovered) = Journal::open(RealDisk::open(&path).unwrap(), OPTIONS).unwrap();
    let records: Vec<_> = recovered.records().map(|record| record.unwrap()).collect();
    assert_eq!(records, want);
    for stored in &want {
        assert_eq!(journal.read(stored.partition, stored.position).unwrap(), stored.payload);
    }
}

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use postroad_cluster::{
    Entry, EntryId, EntryKind, EntryLog, Index, JournalLog, NodeId, Term, VoteFile, encode_batch,
};
use postroad_journal::{JournalFile, Keys, Options, Payload, RealDisk, Record};
use postroad_model::{PartitionId, Position};

use super::*;
use crate::runtime::cluster::identity::Identities;
use crate::runtime::cluster::wire::Wire;

fn wires() -> (Wire, Wire) {
    patient_wires(Duration::from_secs(5))
}

/// Of an introduction with this patience.
fn patient_wires(patience: Duration) -> (Wire, Wire) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    let wire = |socket| Wire::plain(socket, patience).unwrap();
    (wire(one), wire(other))
}

#[test]
fn a_chunk_comes_back_as_it_was_and_a_damaged_one_is_refused() {
    let chunk = encode_chunk(3, 4096, b"content");
    assert_eq!(decode_chunk(&chunk).unwrap(), (3, 4096, &b"content"[..]));
    for place in 0..chunk.len() {
        let mut damaged = chunk.to_vec();
        damaged[place] ^= 1;
        assert!(decode_chunk(&damaged).is_err(), "byte {place}");
        assert!(decode_chunk(&chunk[..place]).is_err(), "{place} bytes");
    }
}

/// Those in force at the author.
fn members() -> Members {
    Members { since: Index(9), ..Members::founders(["a:1", "b:1", "c:1", "d:1"]) }
}

/// The directory of a replica with some entries, and what an author would say of it.
fn author(home: &Path) -> (Manifest, EntryId) {
    let disk = RealDisk::open(home).unwrap();
    let (mut log, _) = JournalLog::open(disk, Options::default()).unwrap();
    let record = |number: u64| Record {
        partition: PartitionId(0),
        position: Position::new(number).unwrap(),
        payload: Payload::from(Bytes::from(vec![number as u8; 200_000])),
        reserve: false,
        key: None,
    };
    let entry = |number: u64| Entry {
        id: EntryId { index: Index(number), term: Term(7) },
        kind: EntryKind::Batch,
        payload: encode_batch(&[record(number)]),
    };
    let entries: Vec<Entry> = (1..=20).map(entry).collect();
    log.append(&entries).unwrap();
    let names =
        std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let length = |name: &String| std::fs::metadata(home.join(name)).unwrap().len();
    let mut files: Vec<(String, u64)> = names
        .filter(|name| JournalFile::of(name).is_some())
        .map(|name| (name.clone(), length(&name)))
        .collect();
    files.sort();
    let (version, copy, layout) = (VERSION, "first".to_owned(), Layout::new(1, 3));
    let members = ListedMembers::of(&members());
    (Manifest { version, copy, term: 7, last: (20, 7), layout, files, members }, entries[19].id)
}

/// Answers one request with a manifest and at most `chunks_max` chunks. Returns how much the node
/// had.
fn send(wire: &Wire, home: &Path, manifest: &Manifest, chunks_max: usize, damages: bool) -> u64 {
    let request: Request = serde_json::from_slice(&wire.read_frame(MANIFEST_BYTES_MAX).unwrap()).unwrap();
    wire.write_frame(&serde_json::to_vec(&Answer::Manifest(Box::new(manifest.clone()))).unwrap()).unwrap();
    let have = if request.copy == manifest.copy { request.have } else { BTreeMap::new() };
    let mut chunks = 0;
    for (number, (name, _)) in (0..).zip(&manifest.files).take(chunks_max) {
        let mut content = std::fs::read(home.join(name)).unwrap();
        if damages {
            let middle = 1 << 20;
            content[middle] ^= 1;
        }
        let mut offset = have.get(name).copied().unwrap_or(0) as usize;
        while offset < content.len() && chunks < chunks_max {
            let end = content.len().min(offset + CHUNK_BYTES);
            let _ = wire.write_frame(&encode_chunk(number, offset as u64, &content[offset..end]));
            (offset, chunks) = (end, chunks + 1);
        }
    }
    have.values().sum()
}

/// One connection, on which the node fetches.
fn fetch(
    fetcher: &Fetcher,
    (home, manifest): (&Path, &Manifest),
    (chunks_max, damages): (usize, bool),
) -> (anyhow::Result<Fetched>, u64) {
    let (node, leader) = wires();
    let (home, manifest) = (home.to_owned(), manifest.clone());
    let sends = std::thread::spawn(move || send(&leader, &home, &manifest, chunks_max, damages));
    let fetched = fetcher.fetch((&node, "b"), fetcher.round(Term(0)), &Progress::default());
    (fetched, sends.join().unwrap())
}

#[test]
fn a_copy_is_resumed_after_a_lost_connection_and_installed_at_the_next_start() {
    let (leader, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (manifest, last) = author(leader.path());
    let fetcher = Fetcher::new(node.path(), Keys::default(), false);
    let from = (leader.path(), &manifest);
    let (lost, had) = fetch(&fetcher, from, (2, false));
    assert!(lost.is_err() && had == 0);
    let (copy, had) = fetch(&fetcher, from, (usize::MAX, false));
    assert_eq!(had, 2 * CHUNK_BYTES as u64, "the first two chunks are not sent again");
    let copy = copy.unwrap();
    assert_eq!((copy.term, copy.last), (Term(7), last));

    let number = NodeId::new(3).unwrap();
    std::fs::write(node.path().join("0000000000000009.segment"), "of the former store").unwrap();
    announce(node.path(), &copy, true).unwrap();
    install(node.path(), "c", number).unwrap();
    install(node.path(), "c", number).unwrap();
    let disk = RealDisk::open(node.path()).unwrap();
    let file = VoteFile::open(&disk).unwrap();
    let vote = file.vote();
    assert_eq!((vote.term, vote.voted_for), (Term(7), Some(number)));
    assert_eq!((file.members(), file.mark()), (Some(&members()), last));
    assert!(Identities::open(node.path(), "c", number).unwrap().joined());
    assert_eq!(Layout::find(node.path()).unwrap(), Some(manifest.layout));
    let (log, _) = JournalLog::open(disk, Options::default()).unwrap();
    assert_eq!((log.last(), log.term(last.index)), (last.index, Some(last.term)));
    assert!(!node.path().join("incoming").exists());
}

/// Answers one request. Returns the term that it asked for.
fn answer_once(wire: &Wire, answer: &Answer) -> Option<u64> {
    let request: Request = serde_json::from_slice(&wire.read_frame(MANIFEST_BYTES_MAX).unwrap()).unwrap();
    wire.write_frame(&serde_json::to_vec(answer).unwrap()).unwrap();
    request.least
}

#[test]
fn a_copy_of_an_earlier_term_is_not_received_and_all_nodes_are_told_which_is_needed() {
    let (leader, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (manifest, _) = author(leader.path());
    let fetcher = Fetcher::new(node.path(), Keys::default(), false);
    let mut least = fetcher.round(Term(8));
    let offers = Answer::Manifest(Box::new(manifest.clone()));
    let follows = Answer::Refused("it does not lead".to_owned());
    let leads = Answer::Refused("it hands over".to_owned());
    let too_early = "the copy is of term 7, and another node has seen term 8";
    for (case, asked, answer, refused) in [
        ("the first round", None, &offers, too_early),
        ("the second, of a follower", Some(8), &follows, "it does not lead"),
        ("the second, of the leader", Some(8), &leads, "it hands over"),
        ("the third", None, &follows, "it does not lead"),
    ] {
        if !case.ends_with("the leader") {
            least = fetcher.round(Term(8));
        }
        let (node, leader_end) = wires();
        let fetched = std::thread::scope(|scope| {
            let answers = scope.spawn(|| answer_once(&leader_end, answer));
            let fetched = fetcher.fetch((&node, "b"), least, &Progress::default());
            assert_eq!(answers.join().unwrap(), asked, "case: {case}");
            fetched
        });
        assert_eq!(fetched.err().map(|error| error.to_string()).as_deref(), Some(refused), "case: {case}");
    }
    let (node, leader_end) = wires();
    std::thread::scope(|scope| {
        scope.spawn(|| send(&leader_end, leader.path(), &manifest, usize::MAX, false));
        fetcher.fetch((&node, "b"), fetcher.round(Term(7)), &Progress::default()).unwrap();
    });
}

#[test]
fn a_former_store_is_not_used_by_a_leader_of_an_earlier_term() {
    let (node, manifest) = with_former_store();
    let fetcher = Fetcher::new(node.path(), Keys::default(), false);
    let Manifest { version, term, last, layout, members, .. } = manifest;
    let offers = Answer::Shared(Box::new(former::SharedLog { version, term, last, layout, members }));
    for (least, asked, refused) in [
        (8, None, Some("the copy is of term 7, and another node has seen term 8")),
        (8, Some(8), Some("the copy is of term 7, and another node has seen term 8")),
        (7, Some(7), None),
        (7, None, None),
    ] {
        let (node, leader_end) = wires();
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| answer_once(&leader_end, &offers));
            let taken = fetcher.take_former((&node, "b"), fetcher.round(Term(least)));
            assert_eq!(answers.join().unwrap(), asked);
            assert_eq!(taken.err().map(|error| error.to_string()).as_deref(), refused);
        });
    }
}

/// A directory of a node that has the former store of an author.
fn with_former_store() -> (tempfile::TempDir, Manifest) {
    let node = tempfile::tempdir().unwrap();
    let former = node.path().join("former");
    std::fs::create_dir(&former).unwrap();
    let (manifest, _) = author(&former);
    (node, manifest)
}

#[test]
fn a_node_that_reads_its_former_store_may_ask_after_the_patience_of_introductions() {
    let (node, _) = with_former_store();
    let leader = tempfile::tempdir().unwrap();
    let fetcher = Fetcher::new(node.path(), Keys::default(), false);
    for has_former in [false, true] {
        let patience = Duration::from_millis(20);
        let (asks, answers) = patient_wires(patience);
        let outgoing = Outgoing::new(leader.path());
        let (served, fetched) = std::thread::scope(|scope| {
            let served = scope.spawn(|| outgoing.serve(&answers, "c", &AtomicU64::new(0)));
            std::thread::sleep(10 * patience);
            let least = fetcher.round(Term(0));
            let fetched = match has_former {
                true => fetcher.take_former((&asks, "b"), least),
                false => fetcher.fetch((&asks, "b"), least, &Progress::default()),
            };
            drop(asks);
            (served.join().unwrap(), fetched)
        });
        assert!(served.is_ok(), "{has_former}: {served:?}");
        assert_eq!(fetched.unwrap_err().to_string(), "it does not lead", "{has_former}");
    }
}

#[test]
fn a_former_store_stays_of_use_while_no_node_leads() {
    let (node, manifest) = with_former_store();
    let fetcher = Fetcher::new(node.path(), Keys::default(), false);
    let follows = Answer::Refused("it does not lead".to_owned());
    let Manifest { version, term, last, layout, members, .. } = manifest;
    let outdated = Answer::Shared(Box::new(former::SharedLog { version, term, last, layout, members }));
    let of_another_version = Answer::Manifest(Box::new(author(tempfile::tempdir().unwrap().path()).0));
    for (case, answer, rounds, stays) in [
        ("followers", &follows, 30, true),
        ("a leader of an earlier term", &outdated, 30, true),
        ("a leader that answers something else", &of_another_version, 9, true),
        ("the same once more", &of_another_version, 1, false),
    ] {
        for _ in 0..rounds {
            let (asks, answers) = wires();
            std::thread::scope(|scope| {
                scope.spawn(|| answer_once(&answers, answer));
                fetcher.take_former((&asks, "b"), fetcher.round(Term(8))).unwrap_err();
            });
        }
        assert_eq!(fetcher.has_former(), stays, "case: {case}");
    }
}

#[test]
fn the_former_directory_of_a_node_has_those_of_its_further_stores() {
    for (case, made, is_further, want) in [
        ("none", "other", true, false),
        ("in that of the node", "former/store-2", true, true),
        ("its own", "store-2/former", true, true),
        ("that of another store", "former/store-3", true, false),
        ("the first store looks beside nothing", "former/store-2", false, false),
    ] {
        let node = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(node.path().join(made)).unwrap();
        let fetcher = Fetcher::new(&node.path().join("store-2"), Keys::default(), is_further);
        assert_eq!(fetcher.has_former(), want, "case: {case}");
    }
}

#[test]
fn a_damaged_copy_is_refused_and_not_kept() {
    let (leader, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (manifest, _) = author(leader.path());
    let fetcher = Fetcher::new(node.path(), Keys::default(), false);
    let (copy, _) = fetch(&fetcher, (leader.path(), &manifest), (usize::MAX, true));
    let error = format!("{:#}", copy.unwrap_err());
    assert!(error.contains("the copy cannot be used"), "{error}");
    let (_, had) = fetch(&fetcher, (leader.path(), &manifest), (usize::MAX, false));
    assert_eq!(had, 0);
}

#[test]
fn names_that_are_no_files_of_a_journal_and_other_versions_are_refused() {
    let (leader, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (manifest, _) = author(leader.path());
    let fetcher = Fetcher::new(node.path(), Keys::default(), false);
    for (case, wrong, want) in [
        (
            "name",
            Manifest { files: vec![("../vote".to_owned(), 1)], ..manifest.clone() },
            "is not a file of a journal",
        ),
        (
            "members",
            Manifest { members: ListedMembers(0, vec![9]), ..manifest.clone() },
            "no list of members",
        ),
        ("version", Manifest { version: 9, ..manifest }, "version 9 of copies is not supported"),
    ] {
        let (copy, _) = fetch(&fetcher, (leader.path(), &wrong), (0, false));
        let error = format!("{:#}", copy.unwrap_err());
        assert!(error.contains(want), "case: {case}: {error}");
    }
}

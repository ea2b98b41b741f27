//! Documents of operators, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, documents_of, settings};
use bytes::Bytes;
use postroad_core::Partition;
use postroad_model::{
    Command, DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, DOCUMENTS_MAX, DocumentChange, DocumentVersion,
    Position,
};

const CHANGED: &str =
    "no: users were changed by somebody else at the same time: look at them again, and repeat the change";

fn change(name: &str, replaces: u64, content: impl Into<Bytes>) -> DocumentChange {
    DocumentChange { name: name.into(), replaces: DocumentVersion(replaces), content: content.into() }
}

#[test]
fn a_document_is_replaced_by_a_change_of_its_present_version_alone() {
    for (case, script, want, kept) in [
        ("a new one", "document 1 users a after=0", "ok", "users=a@1"),
        ("the next version", "document 1 users a after=0\ndocument 1 users b after=1", "ok ok", "users=b@2"),
        (
            "two of them",
            "document 1 users a after=0\ndocument 1 tokens b after=0",
            "ok ok",
            "tokens=b@1 users=a@1",
        ),
        ("one that is not there", "document 1 users a after=1", CHANGED, ""),
        (
            "an earlier version",
            "document 1 users a after=0\ndocument 1 users b after=1\ndocument 1 users c after=1",
            &format!("ok ok {CHANGED}"),
            "users=b@2",
        ),
    ] {
        let mut bench = Bench::new(settings(2));
        assert_eq!(bench.run(script), want, "case: {case}");
        assert_eq!(bench.documents(), kept, "case: {case}");
    }
}

#[test]
fn a_change_is_answered_once_it_is_durable_and_another_one_meanwhile_is_refused() {
    let mut bench = Bench::new(settings(1));
    bench.late_from_now_on();
    assert_eq!(bench.run("document 1 users a after=0"), "");
    assert_eq!(bench.run("document 1 users b after=0"), CHANGED);
    assert_eq!(bench.run("document 1 users b after=1"), CHANGED);
    assert_eq!(bench.run("document 1 tokens t after=0"), "", "another document");
    assert_eq!(bench.documents(), "");
    assert_eq!(bench.all_durable(), "ok ok");
    assert_eq!(bench.documents(), "tokens=t@1 users=a@1");
}

#[test]
fn a_change_that_fails_leaves_the_document_as_it_was() {
    let mut bench = Bench::new(settings(1));
    bench.run("document 1 users a after=0");
    bench.late_from_now_on();
    bench.run("document 1 users b after=1");
    assert!(bench.all_fail().starts_with("no: the store could not write"));
    assert_eq!(bench.documents(), "users=a@1");
    assert_eq!(bench.run("document 1 users c after=1"), "ok");
}

#[test]
fn the_next_leader_has_what_was_confirmed_and_a_deposed_one_says_that_it_does_not_know() {
    let mut bench = Bench::new(settings(1));
    bench.run("document 1 users a after=0");
    bench.late_from_now_on();
    bench.run("document 1 users b after=1");
    let unknown =
        "no: the leader changed before the request was confirmed; it may or may not have been carried out";
    assert_eq!(bench.stop(), unknown);
    assert_eq!(documents_of(&bench.replica(0)), "users=a@1");
    bench.keep_late(1);
    assert_eq!(documents_of(&bench.replica(0)), "users=b@2");
    assert_eq!(bench.lead(), "");
    assert_eq!(bench.run("document 1 users c after=1"), CHANGED);
    assert_eq!(bench.run("document 1 users c after=2"), "ok");
}

#[test]
fn documents_survive_a_restart_and_a_snapshot() {
    for begins_again in [Bench::restart, Bench::reload] {
        let mut bench = Bench::new(settings(2));
        bench.run("document 1 users a after=0\ndocument 1 users b after=1\ndocument 1 tokens t after=0");
        begins_again(&mut bench);
        assert_eq!(bench.documents(), "tokens=t@1 users=b@2");
        assert_eq!(bench.run("document 1 users c after=2"), "ok");
    }
}

#[test]
fn documents_are_bounded_in_bytes_names_and_number() {
    let mut bench = Bench::new(settings(1));
    let mut made = |change| bench.document(change);
    assert_eq!(made(change("full", 0, vec![b'x'; DOCUMENT_BYTES_MAX])), "ok");
    assert_eq!(
        made(change("full", 1, vec![b'x'; DOCUMENT_BYTES_MAX + 1])),
        "no: full would have 8388609 bytes; the most is 8388608: remove some first"
    );
    let refused = |name: &str| {
        format!("no: the document {name} cannot be made: 16 exist already, or its name is empty or too long")
    };
    let (long, longer) = ("n".repeat(DOCUMENT_NAME_BYTES_MAX), "n".repeat(DOCUMENT_NAME_BYTES_MAX + 1));
    assert_eq!(made(change(&long, 0, "")), "ok");
    for name in [&longer, ""] {
        assert_eq!(made(change(name, 0, "")), refused(name));
    }
    for number in 2..DOCUMENTS_MAX {
        assert_eq!(made(change(&number.to_string(), 0, "")), "ok");
    }
    assert_eq!(made(change("one more", 0, "")), refused("one more"));
    assert_eq!(made(change("full", 1, "")), "ok", "one that exists is replaced");
}

#[test]
fn a_record_of_another_version_changes_nothing() {
    let mut partition = Partition::new(settings(1));
    let changes = [change("users", 0, "a"), change("users", 0, "b"), change("users", 7, "c")];
    let mut position = Position::FIRST;
    for change in changes {
        partition.apply(position, Command::Document(Box::new(change)), &mut Vec::new());
        position = position.next();
    }
    assert_eq!(documents_of(&partition), "users=a@1");
}

use std::sync::Mutex;

use postroad_model::{DocumentChange, DocumentVersion};

use super::*;
use crate::oidc::{KeySet, Oidc, OidcRules};
use crate::users::Users;

const BEGUN_MS: u64 = 1_700_000_000_000;

fn door(password: &str) -> Door {
    let mut users = Users::default();
    users.set("ann", password).unwrap();
    users.set("bob", "secret of bob").unwrap();
    let rules = OidcRules {
        issuer: "https://login.example".to_owned(),
        audiences: vec!["postroad".to_owned()],
        user_claim: "sub".to_owned(),
        groups_claim: "groups".to_owned(),
        leeway_seconds: 30,
    };
    let oidc = Oidc::new(rules, KeySet::default(), None);
    Door::of(users, false).unwrap().with_oidc(Arc::new(oidc))
}

fn user(name: &str) -> Principal {
    Principal::User(name.into())
}

fn federated(groups: &[String], expires_ms: Option<u64>) -> Principal {
    let groups = groups.iter().map(|group| group.as_str().into()).collect();
    Principal::Federated(Arc::new(Federated { user: "oidc:eve of \"x\"".into(), groups, expires_ms }))
}

fn is_found(book: &SessionBook, text: &str, door: &Door, now_ms: u64) -> bool {
    matches!(book.find(text, door, now_ms), SessionSearch::Found(_))
}

/// A node of a cluster, and how it gets the documents of the leader.
fn node() -> (SessionBook, Arc<Documents>) {
    let documents = Arc::new(Documents::replicated());
    let text = Text::new("sessions", std::path::Path::new(""), &documents);
    (SessionBook::open(Some(text)).unwrap(), documents)
}

fn replicate(log: &Mutex<Vec<DocumentChange>>, (book, documents): &(SessionBook, Arc<Documents>)) {
    let last = log.lock().unwrap().last().cloned().unwrap();
    documents.read([(last.name, DocumentVersion(last.replaces.0 + 1), last.content)]);
    book.reload().unwrap();
}

#[test]
fn each_node_knows_a_session_and_its_end() {
    let (door, log) = (door("wonder"), Arc::new(Mutex::new(Vec::new())));
    let (leader, follower) = (node(), node());
    let commits = log.clone();
    let refused = leader.0.begin(user("ann"), &door, BEGUN_MS).unwrap_err();
    assert!(matches!(refused, UserError::Refused(_)), "no key, and none can be written: {refused}");
    leader.1.lead(Arc::new(move |change| {
        commits.lock().unwrap().push(change);
        Ok(())
    }));
    let (session, text) = leader.0.begin(user("ann"), &door, BEGUN_MS).unwrap();
    let (other, other_text) = leader.0.begin(federated(&[], None), &door, BEGUN_MS).unwrap();
    assert_eq!(log.lock().unwrap().len(), 1, "a sign-in that finds a key writes nothing");
    let awaited = SessionSearch::UnknownKey { key: session.key.clone() };
    assert_eq!(follower.0.find(&text, &door, BEGUN_MS), awaited);
    assert!(!follower.0.knows_key(&session.key, BEGUN_MS));
    replicate(&log, &follower);
    assert!(follower.0.knows_key(&session.key, BEGUN_MS));
    assert_eq!(follower.0.find(&text, &door, BEGUN_MS), SessionSearch::Found(session.clone()));
    assert_eq!(follower.0.find(&other_text, &door, BEGUN_MS), SessionSearch::Found(other.clone()));
    assert_eq!(claimed_principal(&other_text), Some(other.principal));
    assert!(session.csrf != other.csrf && session.csrf.len() == 52, "{}", session.csrf);
    assert!(follower.0.begin(user("bob"), &door, BEGUN_MS).is_ok(), "it has the key");
    assert!(follower.0.end(&session, BEGUN_MS).is_err(), "it does not write");
    leader.0.end(&session, BEGUN_MS + 5).unwrap();
    assert_eq!(leader.0.find(&text, &door, BEGUN_MS + 5), SessionSearch::Ended);
    assert!(is_found(&follower.0, &text, &door, BEGUN_MS + 5), "not known there yet");
    replicate(&log, &follower);
    assert_eq!(follower.0.find(&text, &door, BEGUN_MS + 5), SessionSearch::Ended);
    assert!(is_found(&follower.0, &other_text, &door, BEGUN_MS + 5), "the other one goes on");
}

#[test]
fn a_session_ends_when_it_is_idle_and_in_any_case() {
    let (door, book) = (door("wonder"), SessionBook::open(None).unwrap());
    let (begun, first) = book.begin(user("ann"), &door, BEGUN_MS).unwrap();
    assert_eq!(begun.lasts_ms(BEGUN_MS + 1), SESSION_LASTS_MS - 1);
    assert!(book.renewed(&begun, &door, BEGUN_MS + RENEWED_EVERY_MS - 1).is_none(), "it is recent");
    assert!(is_found(&book, &first, &door, BEGUN_MS + SESSION_IDLE_MS - 1));
    assert!(!is_found(&book, &first, &door, BEGUN_MS + SESSION_IDLE_MS));
    let (mut text, mut now_ms) = (first.clone(), BEGUN_MS);
    while now_ms + SESSION_IDLE_MS < BEGUN_MS + SESSION_LASTS_MS {
        now_ms += SESSION_IDLE_MS - 1_000;
        let SessionSearch::Found(session) = book.find(&text, &door, now_ms) else {
            panic!("in use after {} ms", now_ms - BEGUN_MS)
        };
        assert_eq!(session.csrf, begun.csrf, "open pages go on");
        text = book.renewed(&session, &door, now_ms).unwrap();
    }
    assert!(is_found(&book, &text, &door, BEGUN_MS + SESSION_LASTS_MS - 1));
    assert!(!is_found(&book, &text, &door, BEGUN_MS + SESSION_LASTS_MS), "it lasts no longer");
    assert!(is_found(&book, &first, &door, 0), "by a clock that is slow, it has just begun");
}

#[test]
fn a_session_ends_with_its_users_password_removal_and_token() {
    let (first, book) = (door("wonder"), SessionBook::open(None).unwrap());
    let (_, ann) = book.begin(user("ann"), &first, BEGUN_MS).unwrap();
    let (_, eve) = book.begin(federated(&["a".to_owned()], None), &first, BEGUN_MS).unwrap();
    let (_, late) = book.begin(federated(&[], Some(1)), &first, BEGUN_MS).unwrap();
    assert!(is_found(&book, &ann, &first, BEGUN_MS) && is_found(&book, &eve, &first, BEGUN_MS));
    assert!(!is_found(&book, &late, &first, BEGUN_MS), "the provider's token has expired");
    let changed = door("other");
    assert!(!is_found(&book, &ann, &changed, BEGUN_MS) && is_found(&book, &eve, &changed, BEGUN_MS));
    let without = Door::of(Users::default(), false).unwrap();
    assert!(!is_found(&book, &ann, &without, BEGUN_MS) && !is_found(&book, &eve, &without, BEGUN_MS));
}

#[test]
fn a_text_that_was_changed_is_of_no_session() {
    let (door, book) = (door("wonder"), SessionBook::open(None).unwrap());
    let (_, text) = book.begin(user("ann"), &door, BEGUN_MS).unwrap();
    let (_, bob) = book.begin(user("bob"), &door, BEGUN_MS).unwrap();
    let ((said, digest), (of_bob, digest_of_bob)) =
        (text.split_once('.').unwrap(), bob.split_once('.').unwrap());
    let as_root = String::from_utf8(BASE64URL_NOPAD.decode(said.as_bytes()).unwrap()).unwrap();
    let as_root = BASE64URL_NOPAD.encode(as_root.replace("ann", "bob").as_bytes());
    for (case, text) in [
        ("another user", format!("{as_root}.{digest}")),
        ("the digest of another session", format!("{said}.{digest_of_bob}")),
        ("of another session, the other way", format!("{of_bob}.{digest}")),
        ("a digest that is cut", text[..text.len() - 2].to_owned()),
        ("no digest", format!("{said}.")),
        ("nothing", String::new()),
        ("no session", "x.y".to_owned()),
        ("too long", format!("{said}.{}", "A".repeat(TEXT_BYTES_MAX))),
    ] {
        assert_eq!(book.find(&text, &door, BEGUN_MS), SessionSearch::Ended, "case: {case}");
    }
    let other = SessionBook::open(None).unwrap();
    let found = other.find(&text, &door, BEGUN_MS);
    assert!(matches!(found, SessionSearch::UnknownKey { .. }), "of another broker: {found:?}");
    other.begin(user("bob"), &door, BEGUN_MS).unwrap();
    assert_eq!(other.find(&text, &door, BEGUN_MS), SessionSearch::Ended, "its key is not newer");
}

#[test]
fn a_key_is_awaited_only_if_it_may_be_newer_than_all_that_are_known() {
    let door = door("wonder");
    let (old, new) = (SessionBook::open(None).unwrap(), SessionBook::open(None).unwrap());
    old.begin(user("ann"), &door, BEGUN_MS).unwrap();
    let later_ms = BEGUN_MS + SESSION_LASTS_MS;
    let claims = |begun_ms: u64| new.begin(user("ann"), &door, begun_ms).unwrap().1;
    for (case, begun_ms, now_ms, is_awaited) in [
        ("the known one began it", later_ms - 1, later_ms, false),
        ("the next one may have", later_ms, later_ms, true),
        ("by a clock that is a minute ahead", later_ms, later_ms - CLOCKS_DIFFER_MS, true),
        ("by no clock of the cluster", later_ms, later_ms - CLOCKS_DIFFER_MS - 1, false),
        ("while the known one begins sessions", BEGUN_MS + 1, BEGUN_MS + 1, false),
        ("it would be idle", later_ms, later_ms + SESSION_IDLE_MS, false),
        ("it is about to be", later_ms, later_ms + SESSION_IDLE_MS - 1, true),
    ] {
        let found = old.find(&claims(begun_ms), &door, now_ms);
        match is_awaited {
            true => assert!(matches!(found, SessionSearch::UnknownKey { .. }), "case: {case}: {found:?}"),
            false => assert_eq!(found, SessionSearch::Ended, "case: {case}"),
        }
    }
}

#[test]
fn a_session_fits_into_a_cookie_or_is_refused() {
    let (door, book) = (door("wonder"), SessionBook::open(None).unwrap());
    let groups = |count: usize| (0..count).map(|number| format!("group-{number:014}")).collect::<Vec<_>>();
    let (_, text) = book.begin(federated(&groups(100), None), &door, BEGUN_MS).unwrap();
    assert!(text.len() <= TEXT_BYTES_MAX && is_found(&book, &text, &door, BEGUN_MS));
    let refused = book.begin(federated(&groups(256), None), &door, BEGUN_MS).unwrap_err();
    assert!(refused.to_string().contains("256 groups"), "{refused}");
}

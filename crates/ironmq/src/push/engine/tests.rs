use postroad_model::{EntryTag, QueueId};

use super::*;
use crate::push::Subscriber;

/// A queue with its endpoints, over simulated time.
struct Bench {
    engine: Engine,
    queue: Arc<str>,
    now_ms: u64,
    actions: Vec<Action>,
    posted: u64,
}

fn settings(kind: PushKind, urls: &[&str]) -> PushSettings {
    let subscriber = |url: &&str| Subscriber {
        name: url.trim_start_matches("http://").to_owned(),
        url: (*url).to_owned(),
        headers: BTreeMap::new(),
    };
    let subscribers = urls.iter().map(subscriber).collect();
    let error_queue = Some("errors".to_owned());
    PushSettings { subscribers, retries: 2, retries_delay_s: 10, error_queue, ..PushSettings::new(kind) }
}

impl Bench {
    fn new(settings: PushSettings) -> Bench {
        let (mut engine, queue): (Engine, Arc<str>) = (Engine::new(1000), "q".into());
        engine.configure(&queue, settings, 0);
        Bench { engine, queue, now_ms: 0, actions: Vec::new(), posted: 0 }
    }

    /// Reserves are answered by messages, as long as there are some.
    fn post(&mut self, count: u64) {
        self.poll();
        let fresh = |number| Fresh {
            id: MessageId { queue: QueueId(1), tag: EntryTag(number) },
            lease: LeaseId(number),
            body: Some(Bytes::from_static(b"body")),
            headers: Vec::new(),
        };
        let fresh = (self.posted..).take(count as usize).map(fresh).collect();
        self.posted += count;
        self.engine.reserved(&self.queue.clone(), fresh, self.now_ms, &mut self.actions);
        self.poll();
    }

    fn poll(&mut self) {
        self.engine.poll(self.now_ms, &mut self.actions);
    }

    /// The requests that were sent since.
    fn sent(&mut self) -> Vec<Attempt> {
        self.poll();
        let (mut sent, mut rest) = (Vec::new(), Vec::new());
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Send(attempt) => sent.push(*attempt),
                Action::Reserve { .. } => {
                    self.engine.reserved(&self.queue.clone(), Vec::new(), self.now_ms, &mut rest);
                }
                other => rest.push(other),
            }
        }
        self.actions = rest;
        sent
    }

    fn urls(&mut self) -> Vec<String> {
        let mut urls: Vec<String> = self.sent().iter().map(|attempt| attempt.url.to_string()).collect();
        urls.sort();
        urls
    }

    fn answer(&mut self, attempt: &Attempt, status: u16) {
        let answer = Answer { status, ..Answer::default() };
        self.engine.answered(attempt, answer, self.now_ms, &mut self.actions);
    }

    /// The ends of messages since.
    fn ended(&mut self) -> Vec<&'static str> {
        let ended = std::mem::take(&mut self.actions).into_iter().filter_map(|action| match action {
            Action::Delete { .. } => Some("deleted"),
            Action::Report { .. } => Some("reported"),
            Action::Release { .. } => Some("released"),
            _ => None,
        });
        ended.collect()
    }
}

#[test]
fn multicast_retries_only_the_endpoint_that_failed_and_waits_longer_each_time() {
    let mut bench = Bench::new(settings(PushKind::Multicast, &["http://a", "http://b"]));
    bench.post(1);
    let sent = bench.sent();
    assert_eq!(sent.len(), 2);
    bench.answer(&sent[0], 200);
    bench.answer(&sent[1], 500);
    for (wait_ms, status) in [(10_000, 404), (20_000, 0)] {
        bench.now_ms += wait_ms - 1;
        assert_eq!(bench.urls(), Vec::<String>::new());
        bench.now_ms += 1;
        let again = bench.sent();
        assert_eq!((again.len(), &*again[0].url, again[0].body.is_none()), (1, "http://b", true));
        bench.answer(&again[0], status);
    }
    assert_eq!(bench.ended(), ["reported"], "the first attempt and two retries");
    assert_eq!((bench.engine.held, bench.engine.due.len()), (0, 0));
}

#[test]
fn unicast_asks_the_next_endpoint_at_once_and_waits_after_all_have_failed() {
    let mut bench = Bench::new(settings(PushKind::Unicast, &["http://a", "http://b"]));
    bench.post(1);
    for round in 0..3 {
        let mut asked = Vec::new();
        for _ in 0..2 {
            let sent = bench.sent();
            assert_eq!(sent.len(), 1, "round {round}");
            asked.push(sent[0].url.to_string());
            bench.answer(&sent[0], 503);
        }
        asked.sort();
        assert_eq!(asked, ["http://a", "http://b"], "round {round}");
        assert_eq!(bench.sent().len(), 0);
        bench.now_ms += 40_000;
    }
    assert_eq!(bench.ended(), ["reported"]);

    bench.post(1);
    let sent = bench.sent();
    bench.answer(&sent[0], 500);
    let sent = bench.sent();
    bench.answer(&sent[0], 204);
    assert_eq!((bench.ended(), bench.sent().len()), (vec!["deleted"], 0));
}

#[test]
fn what_an_endpoint_accepts_it_deletes_or_gets_again() {
    let mut bench = Bench::new(settings(PushKind::Multicast, &["http://a"]));
    let queue = bench.queue.clone();
    for (case, lease_off, name, want) in [
        ("by name", 0, Some("a"), Acknowledged::Done),
        ("for all", 0, None, Acknowledged::Done),
        ("another reservation", 1, Some("a"), Acknowledged::WrongReservation),
        ("another name", 0, Some("x"), Acknowledged::NoSuchSubscriber),
    ] {
        bench.post(1);
        let sent = bench.sent();
        bench.answer(&sent[0], 202);
        assert_eq!(bench.sent().len(), 0);
        let handle = (sent[0].key.id, Some(LeaseId(sent[0].lease.0 + lease_off)));
        let got = bench.engine.acknowledge(&queue, handle, name, &mut bench.actions);
        assert_eq!(got, want, "case: {case}");
        match want {
            Acknowledged::Done => assert_eq!(bench.ended(), ["deleted"], "case: {case}"),
            _ => {
                bench.now_ms += 10_000;
                let again = bench.sent();
                assert_eq!(again[0].key.id, sent[0].key.id, "case: {case}");
                bench.answer(&again[0], 200);
                assert_eq!(bench.ended(), ["deleted"], "case: {case}");
            }
        }
    }
}

#[test]
fn a_delete_may_come_before_the_202() {
    let mut bench = Bench::new(settings(PushKind::Multicast, &["http://a"]));
    bench.post(1);
    let sent = bench.sent();
    let queue = bench.queue.clone();
    let handle = (sent[0].key.id, Some(sent[0].lease));
    bench.engine.acknowledge(&queue, handle, Some("a"), &mut bench.actions);
    bench.answer(&sent[0], 202);
    assert_eq!((bench.ended(), bench.engine.due.len()), (vec!["deleted"], 0));
}

#[test]
fn an_endpoint_that_hangs_holds_up_no_other_queue() {
    let mut bench = Bench::new(settings(PushKind::Multicast, &["http://hangs"]));
    bench.post(60);
    assert_eq!(bench.sent().len(), 16, "as many as the queue allows, and none is answered");
    let other: Arc<str> = "other".into();
    bench.engine.configure(&other, settings(PushKind::Multicast, &["http://well"]), 0);
    let id = MessageId { queue: QueueId(2), tag: EntryTag(1) };
    let fresh = Fresh { id, lease: LeaseId(1), body: Some(Bytes::new()), headers: Vec::new() };
    bench.poll();
    bench.engine.reserved(&other, vec![fresh], 0, &mut bench.actions);
    assert_eq!(bench.urls(), ["http://well"]);
}

#[test]
fn an_endpoint_that_fails_for_an_hour_gets_its_messages_afterwards() {
    let mut bench =
        Bench::new(PushSettings { retries: 5, ..settings(PushKind::Multicast, &["http://down"]) });
    let (mut requests, mut reported, mut delivered) = (0, 0, 0);
    for minute in 0..180 {
        if minute < 60 {
            bench.post(10);
        }
        for _ in 0..60 {
            loop {
                let sent = bench.sent();
                if sent.is_empty() {
                    break;
                }
                requests += if minute < 60 { sent.len() } else { 0 };
                let status = if minute < 60 { 500 } else { 200 };
                sent.iter().for_each(|attempt| bench.answer(attempt, status));
                let ended = bench.ended();
                reported += ended.iter().filter(|word| **word == "reported").count();
                delivered += ended.iter().filter(|word| **word == "deleted").count();
            }
            bench.now_ms += 1000;
        }
    }
    assert_eq!(reported + delivered, 600, "each is delivered or reported");
    assert!(requests < 60 && 590 <= delivered, "{requests} requests in the hour, {delivered} delivered");
    assert_eq!((bench.engine.held, bench.engine.due.len()), (0, 0));
}

#[test]
fn a_subscriber_that_moves_or_goes_is_followed() {
    let mut bench = Bench::new(PushSettings {
        concurrency: 1,
        ..settings(PushKind::Multicast, &["http://a", "http://b"])
    });
    bench.post(2);
    let sent = bench.sent();
    assert_eq!(sent.len(), 2);
    let mut changed = settings(PushKind::Multicast, &["http://a"]);
    changed.subscribers[0].url = "http://moved".to_owned();
    let queue = bench.queue.clone();
    bench.engine.configure(&queue, changed, 0);
    sent.iter().for_each(|attempt| bench.answer(attempt, 200));
    assert_eq!(bench.urls(), ["http://moved"]);
}

#[test]
fn leases_are_extended_and_lost_ones_are_let_go() {
    let mut bench = Bench::new(settings(PushKind::Multicast, &["http://a"]));
    bench.post(3);
    assert_eq!(bench.sent().len(), 3);
    bench.now_ms = 60_000;
    bench.poll();
    let extended: Vec<usize> = (bench.actions.iter())
        .filter_map(|action| match action {
            Action::Extend { handles, .. } => Some(handles.len()),
            _ => None,
        })
        .collect();
    assert_eq!(extended, [3]);
    let id = MessageId { queue: QueueId(1), tag: EntryTag(1) };
    bench.engine.lost(&bench.queue.clone(), id, LeaseId(1));
    assert_eq!(bench.engine.held, 2);
    bench.engine.remove(&bench.queue.clone());
    assert_eq!((bench.engine.held, bench.engine.next_ms().is_some()), (0, false));
}

/// The ends of two messages whose queue changes from the settings to others while the second one
/// waits: after the change its requests are answered by these statuses.
fn ended_after(before: PushSettings, after: PushSettings, statuses: &[u16]) -> Vec<&'static str> {
    let mut bench = Bench::new(PushSettings { concurrency: 1, ..before });
    bench.post(2);
    let queue = bench.queue.clone();
    // The second message waits for its turn.
    let sent = bench.sent();
    bench.engine.configure(&queue, PushSettings { concurrency: 1, ..after }, bench.now_ms);
    sent.iter().for_each(|attempt| bench.answer(attempt, 200));
    let mut ended = bench.ended();
    for status in statuses {
        for attempt in bench.sent() {
            bench.answer(&attempt, *status);
        }
        ended.extend(bench.ended());
        bench.now_ms += 60_000;
    }
    assert_eq!(bench.urls(), Vec::<String>::new());
    ended.extend(bench.ended());
    assert_eq!((bench.engine.held, bench.engine.due.len()), (0, 0));
    ended
}

#[test]
fn messages_of_a_removed_subscriber_are_given_back_unless_another_one_has_them() {
    let (one, two) = (&["http://a"][..], &["http://a", "http://b"][..]);
    let renamed = |kind| {
        let mut renamed = settings(kind, one);
        renamed.subscribers[0].name = "renamed".to_owned();
        renamed
    };
    for kind in [PushKind::Multicast, PushKind::Unicast] {
        let ended = ended_after(settings(kind, one), renamed(kind), &[]);
        assert_eq!(ended, ["deleted", "released"], "{kind:?}: renamed");
        let ended = ended_after(settings(kind, one), settings(kind, &[]), &[]);
        assert_eq!(ended, ["deleted", "released"], "{kind:?}: the last one was removed");
        let ended = ended_after(settings(kind, one), settings(kind, &["http://c"]), &[]);
        assert_eq!(ended, ["deleted", "released"], "{kind:?}: replaced");
    }
    let (multicast, unicast) = (PushKind::Multicast, PushKind::Unicast);
    let ended = ended_after(settings(multicast, two), settings(multicast, one), &[200]);
    assert_eq!(ended, ["deleted", "deleted"], "the other subscriber has taken it");
    let ended = ended_after(settings(multicast, two), settings(multicast, one), &[500, 500, 500]);
    assert_eq!(ended, ["deleted", "reported"], "the other subscriber has failed");
    let ended = ended_after(settings(unicast, two), settings(unicast, &["http://c"]), &[]);
    assert_eq!(ended, ["deleted", "deleted"], "both were on their way");
}

#[test]
fn unicast_goes_on_with_the_next_subscriber_when_one_is_removed() {
    let mut bench = Bench::new(settings(PushKind::Unicast, &["http://a", "http://b"]));
    let queue = bench.queue.clone();
    bench.post(1);
    let sent = bench.sent();
    assert_eq!(&*sent[0].url, "http://a");
    bench.answer(&sent[0], 500);
    let sent = bench.sent();
    assert_eq!(&*sent[0].url, "http://b");
    bench.answer(&sent[0], 500);
    // Both have failed, and it waits for another round, which begins with the second one.
    let without = settings(PushKind::Unicast, &["http://a"]);
    bench.engine.configure(&queue, without, 0);
    bench.now_ms += 10_000;
    let sent = bench.sent();
    assert_eq!((sent.len(), &*sent[0].url, sent[0].subscriber.as_ref()), (1, "http://a", "a"));
    bench.answer(&sent[0], 500);
    bench.now_ms += 20_000;
    let sent = bench.sent();
    assert_eq!((sent.len(), &*sent[0].url), (1, "http://a"));
    bench.answer(&sent[0], 500);
    assert_eq!(bench.ended(), ["reported"], "the first attempt and two retries of the one that is left");
    assert_eq!((bench.engine.held, bench.engine.due.len()), (0, 0));
}

#[test]
fn unicast_retries_the_subscriber_that_failed_when_the_next_one_is_removed() {
    let mut bench =
        Bench::new(PushSettings { concurrency: 1, ..settings(PushKind::Unicast, &["http://a", "http://b"]) });
    let queue = bench.queue.clone();
    bench.post(3);
    let sent = bench.sent();
    let urls: Vec<&str> = sent.iter().map(|attempt| &*attempt.url).collect();
    assert_eq!(urls, ["http://a", "http://b"], "the third one waits for the first endpoint");
    // The first message is in the line of the second endpoint.
    bench.answer(&sent[0], 500);
    bench.engine.configure(&queue, settings(PushKind::Unicast, &["http://a"]), 0);
    bench.answer(&sent[1], 200);
    let third = bench.sent();
    assert_eq!((third.len(), &*third[0].url), (1, "http://a"));
    bench.answer(&third[0], 200);
    assert_eq!(bench.ended(), ["deleted", "deleted"], "the first message is not given up");
    bench.now_ms += 10_000;
    let again = bench.sent();
    assert_eq!((again.len(), &*again[0].url, again[0].key.id), (1, "http://a", sent[0].key.id));
    bench.answer(&again[0], 200);
    assert_eq!(bench.ended(), ["deleted"]);
    assert_eq!((bench.engine.held, bench.engine.due.len()), (0, 0));
}

#[test]
fn a_body_that_cannot_be_read_for_now_uses_no_retry_and_is_not_the_endpoints_fault() {
    let once = PushSettings { retries: 0, concurrency: 1, ..settings(PushKind::Multicast, &["http://a"]) };
    for kind in [PushKind::Multicast, PushKind::Unicast] {
        let mut bench = Bench::new(PushSettings { kind, ..once.clone() });
        bench.post(2);
        for round in 0..50 {
            let sent = bench.sent();
            assert_eq!(sent.len(), 1, "{kind:?}, round {round}: the concurrency, and no open circuit");
            bench.engine.unread(&sent[0], "no memory".to_owned(), bench.now_ms);
            let (key, queue) = (&sent[0].key, bench.queue.clone());
            let delivery = &bench.engine.message(&queue, key.id).expect("it is held").deliveries[0];
            assert_eq!((delivery.tries, &*delivery.error), (0, "no memory"), "{kind:?}, round {round}");
            let other = bench.sent();
            assert_eq!(other.len(), usize::from(round == 0), "{kind:?}, round {round}: after a pause");
            other.iter().for_each(|attempt| bench.answer(attempt, 200));
            bench.now_ms += 1000;
        }
        let sent = bench.sent();
        bench.answer(&sent[0], 200);
        assert_eq!(bench.ended(), ["deleted", "deleted"], "{kind:?}");
        let Engine { held, due, requests, .. } = &bench.engine;
        assert_eq!((*held, due.len(), *requests), (0, 0, 0), "{kind:?}");
    }
}

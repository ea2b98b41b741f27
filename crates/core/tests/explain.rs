//! Why messages are not delivered, case by case, and that the smallest change delivers them. See
//! `bench` for the words.

mod bench;

use bench::{Bench, connection, settings};
use bytes::Bytes;
use postroad_model::{
    Ask, Change, ConnectionId, ConsumerFlow, ConsumerKey, Decisive, Destination, Encoding, EntryTag,
    Explained, LeaseEvent, Message, NORMAL_PRIORITY, Order, Post, Protocol, Question, QueueFlow, RareHeaders,
    Reserve, Row, Take, Ticket, Verdict, VerdictRow, decisive,
};
use postroad_routing::{
    DestinationPattern, Gathering, LeaseLimit, Limit, Policies, Policy, Redelivery, Slow, SlowAction,
};

const CLIENT: ConnectionId = ConnectionId::new(0, 90);

fn rows(bench: &mut Bench, of: Explained) -> Vec<VerdictRow> {
    let question = Question::Explain { queue: Destination::queue("a"), of };
    let page = bench.ask(&Ask { question, after: None, rows: Ask::ROWS_MAX, order: Order::default() });
    let rows = page.rows.into_iter().map(|row| match row {
        Row::Verdict(row) => row,
        row => panic!("{row:?}"),
    });
    rows.collect()
}

/// The verdict that decides about the queue `a`, and its change.
fn cause(bench: &mut Bench, of: Explained) -> Option<(Verdict, Change)> {
    match decisive(&rows(bench, of)) {
        Decisive::Cause(row) => Some((row.verdict.clone(), row.verdict.change()?)),
        _ => None,
    }
}

fn with_policy(change: impl Fn(&mut Policy)) -> Bench {
    let mut policies = Policies::with_dead_letters_in("dead");
    let mut policy = policies.fallback().clone();
    change(&mut policy);
    policies.set(&DestinationPattern::parse("queue://a").expect("a pattern"), policy);
    let mut bench = Bench::new(settings(1));
    bench.follow(policies);
    bench
}

fn plain() -> Bench {
    Bench::new(settings(1))
}

fn selector(text: &str, facts: &[(&str, Option<&str>)], is_exclusive: bool) -> Verdict {
    let fact = |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), value.map(str::to_owned));
    Verdict::Selector { selector: text.into(), facts: facts.iter().map(fact).collect(), is_exclusive }
}

#[test]
fn the_named_cause_once_removed_delivers_the_message() {
    let narrow = || {
        let mut settings = settings(1);
        settings.outbox_bytes_max = 3;
        Bench::new(settings)
    };
    let gathering =
        || with_policy(|policy| policy.gathering = Gathering { consumers_min: 2, wait_ms_max: 900 });
    let resting = || {
        with_policy(|policy| {
            policy.redelivery = Redelivery { count_max: 2, delay_ms: 500, ..Redelivery::default() };
        })
    };
    let full = || with_policy(|policy| policy.limit = Limit { messages_max: Some(1), ..Limit::default() });
    type Case = (&'static str, Bench, &'static str, Verdict, Change, &'static str, &'static str);
    let cases: Vec<Case> = vec![
        (
            "no consumer",
            plain(),
            "send 2 a m",
            Verdict::NoConsumer,
            Change::Attach,
            "attach 1.1 a 1",
            "ok 1.1<m",
        ),
        (
            "a browser is no consumer",
            plain(),
            "send 2 a m\nattach 1.1 a 1 browse",
            Verdict::NoConsumer,
            Change::Attach,
            "attach 1.2 a 1",
            "ok 1.2<m",
        ),
        (
            "the selector, with the property that fails",
            plain(),
            "attach 1.1 a 9 where=k=5\nsend 2 a m?k=6",
            selector("k=5", &[("k", Some("6"))], false),
            Change::AttachMatching,
            "attach 1.2 a 9 where=k=6",
            "ok 1.2<m?k=6",
        ),
        (
            "the selector of an exclusive consumer: no other gets the message",
            plain(),
            "attach 1.1 a 9 exclusive where=k=5\nattach 1.2 a 9\nsend 2 a m",
            selector("k=5", &[("k", None)], true),
            Change::EndOwner,
            "detach 1.1 none",
            "1.2<m",
        ),
        (
            "no credit: how many are held, and since when",
            plain(),
            "time 100\nattach 1.1 a 2\nsend 2 a m\ntime 150\nsend 2 a n\ntime 350\nsend 2 a o",
            Verdict::NoCredit { held: 2, in_transaction: false, for_ms: 250 },
            Change::Settle,
            "accept 1.1 m\ncredit 1.1 1",
            "ok 1.1<o",
        ),
        (
            "the client asks for nothing",
            plain(),
            "attach 1.1 a 0\nsend 2 a m",
            Verdict::NoCredit { held: 0, in_transaction: false, for_ms: 0 },
            Change::GiveCredit,
            "credit 1.1 1",
            "1.1<m",
        ),
        (
            "the connection does not read",
            narrow(),
            "attach 1.1 a 9\nsend 2 a big\nsend 2 a m",
            Verdict::OutboxFull { bytes: 3 },
            Change::Read,
            "written 1 3",
            "1.1<m",
        ),
        (
            "paused, whatever its consumers are",
            plain(),
            "attach 1.1 a 0\npause 1 a\nattach 1.2 a 1\nsend 2 a m",
            Verdict::Paused,
            Change::Resume,
            "resume 1 a",
            "1.2<m ok",
        ),
        (
            "it waits for more consumers",
            gathering(),
            "time 100\nattach 1.1 a 9\nsend 2 a m\ntime 200",
            Verdict::Gathering { for_ms: 800 },
            Change::Attach,
            "attach 1.2 a 0",
            "ok 1.1<m",
        ),
        (
            "it failed and rests",
            resting(),
            "time 100\nattach 1.1 a 9\nsend 2 a m\nreject 1.1 m\ntime 200",
            Verdict::Resting { for_ms: 400 },
            Change::WaitUntilDue,
            "time 600",
            "1.1<m!1",
        ),
        (
            "a consumer has it, and since when",
            plain(),
            "time 100\nattach 1.1 a 9\nattach 2.1 a 9\nsend 2 a m\ntime 300",
            Verdict::Held { by: "1.1".into(), in_transaction: false, for_ms: 200 },
            Change::Settle,
            "detach 1.1 none",
            "2.1<m",
        ),
        (
            "a consumer has it in an open transaction",
            plain(),
            "time 100\nattach 1.1 a 9\nsend 2 a m\naccept 1.1 m tx=1\ntime 300",
            Verdict::Held { by: "1.1".into(), in_transaction: true, for_ms: 200 },
            Change::EndTransaction,
            "rollback 1 1\nrelease 1.1 m",
            "ok ok 1.1<m",
        ),
        (
            "a consumer that is gone has settled it in an open transaction",
            plain(),
            "introduce 1\ntime 100\nattach 1.1 a 9\nsend 2 a m\naccept 1.1 m tx=1\ntime 300\ndetach 1.1 none",
            Verdict::Settled { connection: connection("1"), by: "1".into(), for_ms: 200 },
            Change::EndTransaction,
            "rollback 1 1\nattach 2.1 a 9",
            "ok ok 2.1<m!1",
        ),
        (
            "no credit, and all that it has is in an open transaction",
            plain(),
            "time 100\nattach 1.1 a 1\nsend 2 a m\naccept 1.1 m tx=1\nsend 2 a n\ntime 300",
            Verdict::NoCredit { held: 1, in_transaction: true, for_ms: 200 },
            Change::EndTransaction,
            "commit 1 1\ncredit 1.1 1",
            "ok 1.1<n",
        ),
        (
            "it was sent in an open transaction",
            plain(),
            "time 100\nattach 1.1 a 9\nsend 2 a m tx=1\nsend 2 a n tx=1\ntime 300",
            Verdict::Uncommitted { connection: connection("2"), by: "".into(), messages: 2, for_ms: 200 },
            Change::EndTransaction,
            "commit 2 1",
            "1.1<m 1.1<n ok",
        ),
        (
            "a link had it when its connection was cut",
            plain(),
            "time 100\nattach 1.1 a 9 steals\nsend 2 a m\ndetach 1.1 in-doubt\ntime 300\nattach 2.1 a 9",
            Verdict::InDoubt { for_ms: 800 },
            Change::WaitUntilDue,
            "time 1100",
            "2.1<m",
        ),
    ];
    for (case, mut bench, script, verdict, change, cure, delivered) in cases {
        bench.run(script);
        assert_eq!(cause(&mut bench, Explained::Next), Some((verdict, change)), "case: {case}");
        assert_eq!(bench.run(cure), delivered, "case: {case}");
    }
    let mut bench = full();
    bench.run("make 1 a\nsend 2 a m\nsend 2 a n");
    let all = rows(&mut bench, Explained::Next);
    let blocked = Verdict::Blocked { reason: "queue-limit", sends: 1, at: None };
    assert!(all.iter().any(|row| row.verdict == blocked), "{all:?}");
    assert!(all.iter().any(|row| row.verdict == Verdict::Full), "{all:?}");
    assert_eq!(cause(&mut bench, Explained::Id("n".into())), Some((blocked, Change::MakeRoom)));
    assert_eq!(bench.run("attach 1.1 a 9\naccept 1.1 m"), "ok 1.1<m 1.1<n ok ok");
}

#[test]
fn a_send_to_several_queues_names_the_one_that_is_full() {
    for (case, sends, blocked, before) in [
        ("it waits here", "send 2 a,b both\nsend 2 a later", ("queue-limit", 2), "1.2<both 1.2<later"),
        ("it waits there", "send 2 b,a both\nsend 2 a later", ("own-send", 1), "1.2<both 1.2<later"),
    ] {
        let mut policies = Policies::with_dead_letters_in("dead");
        let limit = Limit { messages_max: Some(1), ..Limit::default() };
        let policy = Policy { limit, ..policies.fallback().clone() };
        policies.set(&DestinationPattern::parse("queue://b").expect("a pattern"), policy);
        let mut bench = plain();
        bench.follow(policies);
        bench.run(&format!("make 1 a\nmake 1 b\nsend 3 b full\n{sends}"));
        let (reason, sends) = blocked;
        let blocked = Verdict::Blocked { reason, sends, at: Some(Destination::queue("b")) };
        let all = rows(&mut bench, Explained::Next);
        assert!(all.iter().any(|row| row.verdict == blocked), "case: {case}: {all:?}");
        bench.run("attach 1.1 b 1\naccept 1.1 full");
        assert_eq!(bench.run("attach 1.2 a 9"), format!("ok {before}"), "case: {case}");
    }
}

#[test]
fn each_consumer_has_its_verdict() {
    let named = |rows: Vec<VerdictRow>| -> Vec<(String, Verdict)> {
        let of_consumers = rows.into_iter().filter(|row| row.consumer.is_some());
        of_consumers.map(|row| (row.name.to_string(), row.verdict)).collect()
    };
    let no_credit = || Verdict::NoCredit { held: 1, in_transaction: false, for_ms: 0 };
    let group = |owner: &str| Verdict::Group { group: "g".into(), owner: Some(owner.into()) };
    for (case, script, want) in [
        (
            "the group belongs to the first",
            "attach 1.1 a 1\nattach 2.1 a 9\nsend 3 a m group=g\nsend 3 a n group=g",
            vec![("1.1", no_credit()), ("2.1", group("1.1"))],
        ),
        (
            "an exclusive consumer is before the others",
            "attach 1.1 a 9\nattach 2.1 a 1 exclusive\nsend 3 a m\nsend 3 a n",
            vec![("1.1", Verdict::NotExclusive { owner: "2.1".into() }), ("2.1", no_credit())],
        ),
        (
            "operators work on a paused queue",
            "make 1 a\npause 1 a\nattach 1.1 a 9\nsend 3 a m\nattach 2.1 a 0 operator\nattach 3.1 a 9 browse",
            vec![
                ("1.1", Verdict::Paused),
                ("2.1", Verdict::NoCredit { held: 0, in_transaction: false, for_ms: 0 }),
                ("3.1", Verdict::Browses),
            ],
        ),
        (
            "a member of a consumer of a pattern has the name of the whole",
            "make 1 a\nattach 1.1 a.> 0\nsend 3 a m",
            vec![("1.1", Verdict::NoCredit { held: 0, in_transaction: false, for_ms: 0 })],
        ),
    ] {
        let mut bench = plain();
        bench.run(script);
        let want: Vec<_> = want.into_iter().map(|(name, verdict)| (name.to_owned(), verdict)).collect();
        assert_eq!(named(rows(&mut bench, Explained::Next)), want, "case: {case}");
    }
    let mut bench =
        with_policy(|policy| policy.slow = Slow { after_ms: Some(100), then: SlowAction::Requeue });
    bench.run("time 100\nattach 1.1 a 1\nsend 3 a m\nattach 2.1 a 0\ntime 400\ntime 700");
    let want = vec![
        ("1.1".to_owned(), Verdict::TooSlow { taken_back: 1 }),
        ("2.1".to_owned(), Verdict::NoCredit { held: 0, in_transaction: false, for_ms: 0 }),
    ];
    assert_eq!(named(rows(&mut bench, Explained::Next)), want);
}

#[test]
fn messages_that_the_owner_of_a_group_passed_over_are_free_when_it_leaves() {
    let mut bench = plain();
    bench.run("attach 1.1 a 9 where=k=5\nsend 3 a m?k=5 group=g\nsend 3 a n?k=6 group=g\nattach 2.1 a 9");
    assert_eq!(bench.run("detach 1.1 none"), "2.1<m?k=5* 2.1<n?k=6");
}

#[test]
fn a_message_behind_others_waits_for_its_turn() {
    let mut bench = plain();
    let script = "send 1 a a\nsend 1 a b\nsend 1 a c\nsend 1 a high priority=9\nsend 1 a low priority=1";
    bench.run(&format!("{script}\nattach 1.1 a 2"));
    // The third of the first lane: one of a higher priority, and two before it.
    let behind = Verdict::Behind { messages: 3, of_higher_priority: 1 };
    let all = rows(&mut bench, Explained::Entry(EntryTag(2)));
    assert!(all.iter().any(|row| row.verdict == behind), "{all:?}");
    let got = cause(&mut bench, Explained::Entry(EntryTag(2)));
    assert_eq!(got, Some((Verdict::NoCredit { held: 2, in_transaction: false, for_ms: 0 }, Change::Settle)));
    assert_eq!(bench.run("credit 1.1 2"), "1.1<b 1.1<c");
}

#[test]
fn messages_that_a_prepared_transaction_settles_are_counted_beside_one_that_is_ready() {
    let consume = "attach 1.1 a 2\naccept 1.1 m tx=1\naccept 1.1 n tx=1\nend 1 1 x\nprepare 1 x";
    for partitions in [1, 2] {
        let mut bench = Bench::new(settings(partitions));
        bench.run(&format!("send 3 a m\nsend 3 a n\nsend 3 a o\n{consume}\nattach 3.1 a 0"));
        let no_credit = Verdict::NoCredit { held: 0, in_transaction: false, for_ms: 0 };
        assert_eq!(cause(&mut bench, Explained::Next), Some((no_credit, Change::GiveCredit)));
        let named = rows(&mut bench, Explained::Next).into_iter().find_map(|row| match row.verdict {
            Verdict::Prepared { transaction, is_sent: false, messages, .. } => Some((transaction, messages)),
            _ => None,
        });
        let Some((transaction, 2)) = named else { panic!("{partitions}: {named:?}") };
        let branch = rows(&mut bench, Explained::Transaction(transaction));
        assert!(
            matches!(&branch[..], [VerdictRow { verdict: Verdict::Prepared { branch: Some(_), .. }, .. }]),
            "{partitions}: {branch:?}"
        );
        // The client leaves: the branch stays, and without another message it is the cause.
        bench.run("close 1\ncredit 3.1 1\naccept 3.1 o");
        let left = cause(&mut bench, Explained::Next);
        assert!(
            matches!(left, Some((Verdict::Prepared { is_sent: false, messages: 2, .. }, Change::Decide))),
            "{partitions}: {left:?}"
        );
        assert!(bench.run("decide 3 x rollback\ncredit 3.1 2").contains("3.1<m"), "{partitions}");
    }
}

#[test]
fn a_prepared_transaction_is_named_with_its_branch() {
    for (case, script, of, is_sent, cure, delivered) in [
        (
            "it was sent in it",
            "attach 2.1 a 9\nsend 1 a m tx=1\nend 1 1 x\nprepare 1 x",
            Explained::Id("m".into()),
            true,
            "decide 2 x commit",
            "2.1<m 1/1 done ok",
        ),
        (
            "the next of the queue was",
            "attach 2.1 a 9\nsend 1 a m tx=1\nend 1 1 x\nprepare 1 x",
            Explained::Next,
            true,
            "decide 2 x commit",
            "2.1<m 1/1 done ok",
        ),
        (
            "it was settled in it",
            "send 3 a m\nattach 1.1 a 9\naccept 1.1 m tx=1\nend 1 1 x\nprepare 1 x\nattach 2.1 a 9",
            Explained::Id("m".into()),
            false,
            "close 1\ndecide 2 x rollback",
            "2.1<m ok",
        ),
    ] {
        for partitions in [1, 2] {
            let mut bench = Bench::new(settings(partitions));
            bench.run(script);
            let Some((Verdict::Prepared { transaction, branch, is_sent: sent, messages }, change)) =
                cause(&mut bench, of.clone())
            else {
                panic!("case: {case}: {:?}", rows(&mut bench, of));
            };
            assert_eq!((sent, messages, change), (is_sent, 1, Change::Decide), "case: {case}");
            // Only the partition that coordinates the branch knows its name.
            let named = rows(&mut bench, Explained::Transaction(transaction));
            let [VerdictRow { verdict: Verdict::Prepared { branch: Some(name), .. }, .. }] = &named[..]
            else {
                panic!("case: {case}: {named:?}");
            };
            assert!(branch.is_none_or(|branch| branch == *name), "case: {case}");
            assert!(name.ends_with(":78"), "case: {case}: {name}");
            let said = bench.run(cure);
            let words = |text: &str| {
                let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
                words.sort();
                words
            };
            for word in words(delivered) {
                assert!(words(&said).contains(&word), "case: {case}, {partitions} partitions: {said}");
            }
        }
    }
}

#[test]
fn the_first_partition_knows_the_name_of_a_connection() {
    for partitions in [1, 3] {
        let mut bench = Bench::new(settings(partitions));
        bench.run("introduce 1\nsend 1 a m tx=1");
        let of_connection = rows(&mut bench, Explained::Connection(connection("1")));
        let named =
            Verdict::Uncommitted { connection: connection("1"), by: "1".into(), messages: 0, for_ms: 0 };
        assert_eq!(of_connection, [VerdictRow::new(None, named)]);
        let Some((Verdict::Uncommitted { connection: of_message, .. }, _)) =
            cause(&mut bench, Explained::Next)
        else {
            panic!("{:?}", rows(&mut bench, Explained::Next));
        };
        assert_eq!(of_message, connection("1"));
    }
}

fn flow(bench: &mut Bench) -> QueueFlow {
    let question = Question::Explain { queue: Destination::queue("a"), of: Explained::Flow };
    let page = bench.ask(&Ask { question, after: None, rows: 1, order: Order::default() });
    match &page.rows[..] {
        [Row::Flow(flow)] => QueueFlow::clone(flow),
        rows => panic!("{rows:?}"),
    }
}

#[test]
fn the_flow_of_the_last_minute_is_counted() {
    let mut bench = plain();
    bench.run("time 1000\nattach 1.1 a 1\nattach 1.2 a 9 browse\nsend 2 a m\ntime 5000\nsend 2 a n");
    bench.run("accept 1.1 m\ncredit 1.1 1\ntime 7000");
    let consumer = ConsumerFlow {
        consumer: ConsumerKey::new(connection("1"), 1),
        name: "1.1".into(),
        is_link: false,
        window_ms: 6000,
        settled: 1,
        held_ms: 4000,
        waiting_ms: 6000,
        prefetch: 1,
    };
    let want = QueueFlow {
        messages: 1,
        in_flight: 1,
        window_ms: 6000,
        came: 2,
        consumed: 1,
        consumers: vec![consumer],
        ..QueueFlow::default()
    };
    assert_eq!(flow(&mut bench), want);
    bench.run("reject 1.1 n");
    let left = flow(&mut bench);
    assert_eq!((left.messages, left.consumed, left.dead_lettered, left.left()), (0, 1, 1, 2));
    // A minute later it is forgotten.
    bench.run("time 80000");
    let later = flow(&mut bench);
    assert_eq!((later.came, later.left(), later.window_ms), (0, 0, 50_000));
    assert_eq!((later.consumers[0].settled, later.consumers[0].waiting_ms), (0, 0));
}

fn post(bench: &mut Bench, body: &str, group: Option<&str>, visible_at_ms: u64) {
    let group = group.map(|id| postroad_model::Group { id: id.into(), sequence: 0 });
    let rare = RareHeaders { group, visible_at_ms, ..RareHeaders::default() };
    let message = Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: Some(rare.into()),
        bytes: Bytes::copy_from_slice(body.as_bytes()),
    };
    let (to, messages) = (Destination::queue("a"), vec![message]);
    bench.lease(LeaseEvent::Post(Post { connection: CLIENT, ticket: Ticket(1), to, messages }));
}

fn reserve(bench: &mut Bench) -> String {
    bench.lease(LeaseEvent::Reserve(Reserve {
        connection: CLIENT,
        ticket: Ticket(1),
        queue: Destination::queue("a"),
        messages_max: 1,
        selector: "".into(),
        wait_ms: 0,
        take: Take::Lease { lasts_ms: 500 },
    }))
}

#[test]
fn leases_and_delays_end_at_their_time() {
    let mut bench = plain();
    bench.run("time 1000");
    post(&mut bench, "later", None, 1400);
    let got = cause(&mut bench, Explained::Next);
    assert_eq!(got, Some((Verdict::Delayed { for_ms: 400 }, Change::WaitUntilDue)));
    bench.run("time 1400");
    assert_eq!(reserve(&mut bench), "later#1 ok");
    bench.run("attach 1.1 a 9\ntime 1500");
    let Some((Verdict::Reserved { lease, for_ms: 400 }, Change::Release)) =
        cause(&mut bench, Explained::Next)
    else {
        panic!("{:?}", rows(&mut bench, Explained::Next));
    };
    assert_eq!(bench.handles["later"][0].lease.map(|lease| lease.0), Some(lease));
    assert_eq!(bench.run("time 1900"), "1.1<later!1");

    let mut bench = plain();
    bench.run("time 1000");
    post(&mut bench, "one", Some("g"), 0);
    post(&mut bench, "two", Some("g"), 0);
    assert_eq!(reserve(&mut bench), "one#1 ok");
    bench.run("attach 1.1 a 9");
    let got = cause(&mut bench, Explained::Next);
    assert_eq!(got, Some((Verdict::Group { group: "g".into(), owner: None }, Change::Release)));
}

#[test]
fn clients_without_consumers_meet_the_limit_of_leases() {
    let mut bench = with_policy(|policy| policy.leases_max = LeaseLimit(1));
    bench.run("time 1000");
    for body in ["one", "two"] {
        post(&mut bench, body, None, 0);
    }
    assert_eq!(reserve(&mut bench), "one#1 ok");
    assert!(reserve(&mut bench).starts_with("no: "), "the limit is reached");
    let got = cause(&mut bench, Explained::Next);
    assert_eq!(got, Some((Verdict::LeaseLimit { max: 1 }, Change::Release)));
    bench.run("time 1500");
    assert_ne!(cause(&mut bench, Explained::Next), got, "the lease has ended");
}

#[test]
fn what_is_read_from_the_disk_is_not_judged() {
    let mut settings = settings(1);
    settings.resident_bytes_max = 0;
    let mut bench = Bench::new(settings);
    bench.disk_hangs();
    bench.run("send 1 a m?k=5\nsend 1 a n?k=5");
    bench.restart();
    bench.disk_hangs();
    bench.run("attach 1.1 a 9 where=k=5");
    let got = cause(&mut bench, Explained::Next);
    assert_eq!(got, Some((Verdict::Reading, Change::Wait)));
    assert_eq!(bench.disk_answers(), "1.1<m?k=5 1.1<n?k=5");
}

#[test]
fn an_id_that_is_nowhere_has_no_verdict() {
    let mut bench = plain();
    bench.run("send 1 a m\nsend 2 b n tx=1");
    for id in ["m", "n", "o"] {
        // A message that browsers see is found by them.
        assert_eq!(rows(&mut bench, Explained::Id(id.into())), [], "{id}");
    }
}

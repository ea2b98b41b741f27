//! Pages of lists: all rows come once, in order, whatever the size of a page.

mod bench;

use bench::{Bench, settings};
use postroad_model::{
    Ask, ConnectionId, Destination, Effect, Event, JobsWanted, Now, Order, Page, Question, Refusal, Row,
    SortBy, Ticket,
};

fn page(bench: &mut Bench, ask: Ask) -> Page {
    let (connection, ticket) = (ConnectionId::new(0, 9), Ticket(1));
    let mut effects = Vec::new();
    bench.partitions[0].soft(Event::Ask { ask: ask.into(), connection, ticket }, &mut effects);
    let answer = effects.into_iter().find_map(|effect| match effect {
        Effect::Answer { page, .. } => Some(*page),
        _ => None,
    });
    answer.expect("an answer")
}

#[test]
fn pages_of_queues_by_name_are_the_whole_list() {
    let mut bench = Bench::new(settings(1));
    for name in ["b", "a.2", "~t", "a.1", "c"] {
        bench.run(&format!("make 1 {name}"));
    }
    bench.run("send 1 d m\nattach 1.1 d 1");
    // Subscriptions of one topic have one name.
    for subscription in ["x", "z", "y"] {
        bench.run(&format!("attach 2.{} #b 1 sub={subscription}", subscription.as_bytes()[0]));
    }
    let question = || Question::Queues { name_part: "".into(), only: None };
    let ask = |after, rows| Ask { question: question(), after, rows, order: Order::default() };
    let all = page(&mut bench, ask(None, 500));
    assert_eq!((all.rows.len() as u64, all.next), (all.total, None));
    let mut in_order = all.rows.clone();
    in_order.sort_by_key(Row::key);
    assert_eq!(all.rows, in_order);
    assert_eq!(all.rows.len(), 9, "{:?}", all.rows);
    for rows in 1..=all.rows.len() as u32 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = page(&mut bench, ask(after, rows));
            assert_eq!(page.total, all.total);
            assert!(page.rows.len() <= rows as usize);
            found.extend(page.rows);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, all.rows, "pages of {rows}");
    }
}

/// All rows of a list, page by page; each page has no more rows than were asked for.
fn paged(bench: &mut Bench, question: &Question, rows: u32) -> Vec<Row> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..1000 {
        let page = bench.ask(&Ask { question: question.clone(), after, rows, order: Order::default() });
        assert!(page.rows.len() <= rows as usize);
        found.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
    panic!("the list has no end");
}

fn each_size(bench: &mut Bench, question: &Question, want: &[&str], text: impl Fn(&Row) -> String) {
    for rows in 1..=want.len() as u32 + 1 {
        let found: Vec<String> = paged(bench, question, rows).iter().map(&text).collect();
        assert_eq!(found, want, "pages of {rows}");
    }
}

#[test]
fn topics_and_bindings_are_listed_page_by_page() {
    let mut bench = Bench::new(settings(2));
    bench.run(
        "attach 1.1 #b 1\nattach 1.2 #b 1 where=k=5\nattach 1.3 #b 1 sub=s where=k=6\nattach 2.1 #b.c 1",
    );
    bench.run("attach 2.2 #b.> 1\nproduce 3 #a\nattach 3.1 ~r 1\nmake 1 queue");
    let name_part = |text: &str| text.into();
    let topics = |text: &str| Question::Topics { name_part: name_part(text), only: None };
    let topic = |row: &Row| match row {
        Row::Topic(row) => format!("{} {} {}", row.destination.name, row.bindings, row.selectors),
        _ => panic!("{row:?}"),
    };
    // A consumer of `b.>` has `b.c` too.
    each_size(&mut bench, &topics(""), &["a 0 0", "b 3 2", "b.c 2 0"], topic);
    each_size(&mut bench, &topics("b."), &["b.c 2 0"], topic);
    let only = Question::Topics { name_part: name_part(""), only: Some(Destination::topic("b.c")) };
    each_size(&mut bench, &only, &["b.c 2 0"], topic);

    let binding = |row: &Row| match row {
        Row::Binding(row) => {
            let selectors: Vec<&str> = row.selectors.iter().map(|text| &**text).collect();
            format!(
                "{} {} {}",
                row.topic.name,
                row.subscription.as_deref().unwrap_or("-"),
                selectors.join(",")
            )
        }
        _ => panic!("{row:?}"),
    };
    let all = Question::Bindings { name_part: name_part(""), of: None };
    let found: Vec<String> = paged(&mut bench, &all, 500).iter().map(binding).collect();
    assert_eq!(found.iter().filter(|row| row.starts_with("b ")).count(), 3);
    assert!(found.contains(&"b s k=6".to_owned()), "{found:?}");
    assert_eq!(found.iter().filter(|row| row.starts_with("b.> ")).count(), 1, "one for all partitions");
    let want: Vec<&str> = found.iter().map(String::as_str).collect();
    each_size(&mut bench, &all, &want, binding);
    bench.run("close 1\nclose 2");
    let left: Vec<String> = paged(&mut bench, &all, 500).iter().map(binding).collect();
    assert_eq!(left, ["b s k=6"], "the durable one alone");
}

#[test]
fn durable_subscriptions_are_listed_page_by_page() {
    let mut bench = Bench::new(settings(2));
    bench.run("make 1 a\nmake 1 z\nattach 1.1 #b 1\nattach 1.2 #b 1 sub=1:c:s\nattach 1.3 #b 1 sub=1:d:s");
    bench.run("attach 1.4 #c 1 sub=1:c:t\nattach 1.5 #b.> 1 sub=1:c:p");
    let subscription = |row: &Row| match row {
        Row::Queue(row) => format!("{} {}", row.destination.name, row.subscription.as_deref().unwrap_or("-")),
        _ => panic!("{row:?}"),
    };
    let of = |prefix: &str| Question::Subscriptions { prefix: prefix.into() };
    each_size(&mut bench, &of(""), &["b 1:c:s", "b 1:d:s", "b.> 1:c:p", "c 1:c:t"], subscription);
    each_size(&mut bench, &of("1:c:"), &["b 1:c:s", "b.> 1:c:p", "c 1:c:t"], subscription);
    each_size(&mut bench, &of("1:x:"), &[], subscription);
}

/// Far more entries than one step looks at.
const MANY: u64 = 3000;

/// Entries that one step looks at.
const STEP_ENTRIES: u64 = 2048;

/// A page, and after how many ticks it came.
fn awaited(bench: &mut Bench, ask: Ask) -> (Page, u64) {
    let (connection, ticket) = (ConnectionId::new(0, 9), Ticket(1));
    let mut effects = Vec::new();
    bench.partitions[0].soft(Event::Ask { ask: ask.into(), connection, ticket }, &mut effects);
    for ticks in 0..100 {
        let answer = effects.drain(..).find_map(|effect| match effect {
            Effect::Answer { page, .. } => Some(*page),
            _ => None,
        });
        if let Some(page) = answer {
            return (page, ticks);
        }
        let due_ms = bench.partitions[0].next_due_ms().expect("a list that goes on");
        let now = Now { ticks_ms: due_ms, wall_ms: due_ms };
        bench.partitions[0].soft(Event::Tick { now }, &mut effects);
    }
    panic!("no answer");
}

#[test]
fn a_step_looks_at_a_bounded_part_of_a_list() {
    let mut bench = Bench::new(settings(1));
    for number in 0..MANY {
        let client = 10 + number;
        bench.run(&format!(
            "attach {client}.1 q{number:04} 1\nproduce {client} #t{number:04}\nattach {client}.2 #all 1\n\
             attach {client}.3 one 1"
        ));
    }
    let part = |text: &str| text.into();
    let queues = |text| Question::Queues { name_part: part(text), only: None };
    let consumers = |of: &str| Question::Consumers { of: Some(Destination::queue(of)) };
    let topics = |text| Question::Topics { name_part: part(text), only: None };
    let bindings = |of| Question::Bindings { name_part: part(""), of };
    let producers = |text| Question::Producers { name_part: part(text), of: None };
    let subscriptions = |prefix| Question::Subscriptions { prefix: part(prefix) };
    let topic = Some(Destination::topic("all"));
    let by_consumers = Order { by: Some(SortBy::Consumers), descending: true };
    let by_held = Order { by: Some(SortBy::Held), descending: false };
    let by_name = Order::default();
    // With the rows of the whole list, and the entries that are looked at for a page at its start.
    for (question, order, rows, looked_at) in [
        (queues(""), by_name, MANY + 1, 0),
        (queues("q299"), by_name, 10, MANY),
        (queues(""), by_consumers, MANY + 1, MANY),
        (Question::Connections, by_name, MANY, MANY),
        (Question::Connections, by_consumers, MANY, MANY),
        (Question::Consumers { of: None }, by_name, 3 * MANY, 3 * MANY),
        (Question::Consumers { of: None }, by_held, 3 * MANY, 3 * MANY),
        (consumers("one"), by_name, MANY, MANY),
        (consumers("q0001"), by_name, 1, 0),
        (producers(""), by_name, MANY, MANY),
        (producers("t2999"), by_name, 1, MANY),
        (Question::Sessions { name_part: part("nothing") }, by_name, 0, MANY),
        (Question::Sessions { name_part: part("nothing") }, by_held, 0, MANY),
        (topics(""), by_name, MANY + 1, 0),
        (topics("t2999"), by_name, 1, MANY),
        (subscriptions("1:x:"), by_name, 0, MANY),
        (bindings(None), by_name, MANY, 0),
        (bindings(topic), by_name, MANY, 0),
    ] {
        let case = format!("{question:?} {order:?}");
        let ask = |after, rows| Ask { question: question.clone(), after, rows, order };
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let (page, ticks) = awaited(&mut bench, ask(after, 500));
            if pages == 0 {
                assert!(looked_at.div_ceil(STEP_ENTRIES) <= ticks + 1, "{case}: {ticks} ticks");
            }
            // The last one has no row that ends the search.
            let is_short = 0 < looked_at || page.next.is_none() || ticks == 0;
            assert!(is_short, "{case}: {ticks} ticks for page {pages}");
            found.extend(page.rows);
            (after, pages) = (page.next, pages + 1);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found.len() as u64, rows, "{case}");
        let keys: std::collections::BTreeSet<_> = found.iter().map(Row::key).collect();
        assert_eq!(keys.len() as u64, rows, "{case}: each row once");
        if order == by_name {
            assert!(found.is_sorted_by_key(Row::key), "{case}");
        }
        // Small pages from there on have the same rows.
        let cursor = found.get(found.len() / 2).filter(|_| order == by_name).map(Row::key);
        if let Some(cursor) = cursor {
            let (page, _) = awaited(&mut bench, ask(Some(cursor), 3));
            let want: Vec<Row> = found.iter().skip(found.len() / 2 + 1).take(3).cloned().collect();
            assert_eq!(page.rows, want, "{case}");
        }
    }

    // As many lists as are made at a time, and one more; all end with the connection.
    let ask = Ask { question: Question::Connections, after: None, rows: 5, order: by_name };
    let mut refused = Vec::new();
    for ticket in 0..=64 {
        let mut effects = Vec::new();
        let event = Event::Ask {
            ask: ask.clone().into(),
            connection: ConnectionId::new(0, 9),
            ticket: Ticket(ticket),
        };
        bench.partitions[0].soft(event, &mut effects);
        refused.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Reply { ticket, result, .. } => Some((ticket.0, result)),
            _ => None,
        }));
    }
    assert_eq!(refused, [(64, Err(Refusal::TooManyLists { max: 64 }))]);
    bench.partitions[0].soft(Event::Closed { connection: ConnectionId::new(0, 9) }, &mut Vec::new());
    assert_eq!(awaited(&mut bench, ask.clone()).0.total, MANY);

    // A leader that stops answers.
    let event = Event::Ask { ask: ask.into(), connection: ConnectionId::new(0, 9), ticket: Ticket(1) };
    bench.partitions[0].soft(event, &mut Vec::new());
    assert_eq!(bench.stop().matches("not the leader").count(), 1);
}

#[test]
fn producers_are_listed_by_connection() {
    let mut bench = Bench::new(settings(2));
    bench.run("produce 2 a\nproduce 2 #b\nproduce 1 a\nproduce 3 c");
    let producer = |row: &Row| match row {
        Row::Producer(row) => format!("{} {}", row.connection.number(), row.destination),
        _ => panic!("{row:?}"),
    };
    let of = |name_part: &str, of| Question::Producers { name_part: name_part.into(), of };
    let all = ["1 queue://a", "2 topic://b", "2 queue://a", "3 queue://c"];
    each_size(&mut bench, &of("", None), &all, producer);
    each_size(&mut bench, &of("", Some(Destination::queue("a"))), &[all[0], all[2]], producer);
    each_size(&mut bench, &of("b", None), &all[1..2], producer);
}

fn schedules(job: Option<&str>, due_ms: std::ops::RangeInclusive<u64>) -> Question {
    Question::Schedules(JobsWanted { job: job.map(Into::into), due_ms, only: None })
}

fn job(row: &Row) -> String {
    match row {
        Row::Schedule(row) => {
            let record = row.record.as_ref().expect("a record that can be read");
            let times = row.again.as_ref().and_then(|again| again.times).map(|times| format!(" {times}"));
            format!("{} {} {}{}", row.id.due.at_ms, record.job, record.to[0], times.unwrap_or_default())
        }
        _ => panic!("{row:?}"),
    }
}

#[test]
fn schedules_of_all_partitions_are_listed_by_time() {
    let mut bench = Bench::new(settings(3));
    bench.run("send 1 a m at=30\nsend 1 b n at=20 every=5 times=3\nsend 1 c o at=30\nsend 1 d p at=10");
    let all: Vec<String> = paged(&mut bench, &schedules(None, 0..=u64::MAX), 100).iter().map(job).collect();
    assert_eq!(all[..2], ["10 p queue://d", "20 n queue://b 3"]);
    assert_eq!(all.len(), 4);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    each_size(&mut bench, &schedules(None, 0..=u64::MAX), &all, job);
    each_size(&mut bench, &schedules(None, 11..=29), &all[1..2], job);
    each_size(&mut bench, &schedules(Some("o"), 0..=u64::MAX), &["30 o queue://c"], job);

    // One, by its id; a job that goes on keeps it.
    let [Row::Schedule(row)] = &paged(&mut bench, &schedules(Some("n"), 0..=u64::MAX), 1)[..] else {
        panic!()
    };
    let one = Question::Schedules(JobsWanted { only: Some(row.id), ..JobsWanted::all() });
    bench.run("time 20");
    let found = paged(&mut bench, &one, 1);
    assert_eq!(found.iter().map(job).collect::<Vec<_>>(), ["25 n queue://b 2"]);
    let Row::Schedule(found) = &found[0] else { panic!() };
    assert!(found.record.as_ref().is_some_and(|record| record.message.is_some()), "with its message");
    let end = |bench: &mut Bench| bench.end_job(JobsWanted { only: Some(row.id), ..JobsWanted::all() });
    assert_eq!(end(&mut bench), "ok");
    assert!(end(&mut bench).starts_with("no: there is no scheduled message "), "it is gone");
    assert_eq!(paged(&mut bench, &one, 1), []);
}

#[test]
fn schedules_that_left_memory_are_listed_too() {
    let mut bench =
        Bench::new(postroad_core::Settings { resident_bytes_max: 0, page_entries: 2, ..settings(1) });
    for number in 0..300_u64 {
        bench.run(&format!("send 1 a {number} at={}", 100_000 + number.wrapping_mul(7919) % 1_000));
    }
    assert!(bench.partitions[0].jobs_in_memory() <= 32);
    let question = schedules(None, 0..=u64::MAX);
    let all = paged(&mut bench, &question, 100);
    assert_eq!(all.len(), 300);
    assert!(all.is_sorted_by_key(Row::key));
    assert_eq!(paged(&mut bench, &question, 7), all);
    let page = bench.ask(&Ask { question, after: None, rows: 500, order: Order::default() });
    assert_eq!((page.rows.len(), page.total), (Ask::SCHEDULES_MAX as usize, 300));
}

#[test]
fn a_page_of_schedules_is_answered_whatever_becomes_of_its_records() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m at=30\nsend 1 a n at=40");
    let ask =
        |rows| Ask { question: schedules(None, 0..=u64::MAX), after: None, rows, order: Order::default() };
    bench.disk_hangs();
    (0..65).for_each(|_| bench.begin_ask(&ask(2)));
    let said = bench.run("");
    assert_eq!(said.matches("no: ").count(), 1, "as many as are made at a time wait: {said}");
    assert_eq!(bench.pages.len(), 0);
    bench.disk_answers();
    assert_eq!(bench.pages.len(), 64);
    bench.disk_hangs();
    bench.begin_ask(&ask(2));
    assert_eq!(bench.stop().matches("not the leader").count(), 1);
}

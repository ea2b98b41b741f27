//! Pages of lists: all rows come once, in order, whatever the size of a page.

mod bench;

use bench::{Bench, settings};
use postroad_model::{Ask, ConnectionId, Effect, Event, Order, Page, Question, Row, Ticket};

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

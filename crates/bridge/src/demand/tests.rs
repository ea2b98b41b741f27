use postroad_model::ConnectionId;
use postroad_openwire::network::LinkShare;

use super::*;

const CONNECTION: ConnectionId = ConnectionId::new(0, 7);

fn engine(options: LinkOptions) -> DemandEngine {
    engine_of(options, false)
}

fn link(partitions: u16, counts_credit: bool) -> Link {
    Link {
        connection: CONNECTION,
        broker_id: "ID:here".into(),
        broker_name: "here".into(),
        peer_id: "ID:there".into(),
        peer_name: "there".into(),
        partitions,
        counts_credit,
        crosses_swimlanes: false,
        figures: Arc::default(),
    }
}

fn engine_of(options: LinkOptions, counts_credit: bool) -> DemandEngine {
    let mut engine = DemandEngine::new(options);
    let mut events = Vec::new();
    engine.begin(link(2, counts_credit), &mut events);
    let heirs = if counts_credit { ["attach queue://> 0", "drain"].repeat(2) } else { Vec::new() };
    assert_eq!(short(&events), heirs);
    for partition in (0..2).filter(|_| counts_credit) {
        events.clear();
        engine.drained(FORWARDER_NUMBER | 1 << 30 | partition, &mut events);
        assert_eq!(short(&events), ["detach None"], "nothing was in doubt");
    }
    engine
}

fn consumer(id: &str, source: Destination, prefetch: u32) -> Demand {
    let sources = vec![source];
    Demand::Consumer(RemoteConsumer { id: id.into(), sources, prefetch, ..RemoteConsumer::default() })
}

fn gone(id: &str) -> Demand {
    Demand::Gone { id: id.into() }
}

/// Events in short: kind and number.
fn short(events: &[Event]) -> Vec<String> {
    let each = |event: &Event| match event {
        Event::Attach(attach) => format!("attach {} {}", attach.source, attach.credit),
        Event::Credit { add, .. } => format!("credit {add}"),
        Event::Drain { .. } => "drain".to_owned(),
        Event::Detach { delivered, .. } => format!("detach {delivered:?}"),
        Event::Settle(settle) => format!("settle {:?} {:?}", settle.tags[0], settle.outcome),
        other => format!("{other:?}"),
    };
    events.iter().map(each).collect()
}

fn change(engine: &mut DemandEngine, change: Demand) -> Vec<String> {
    let mut events = Vec::new();
    engine.demand(change, &mut events).unwrap();
    short(&events)
}

fn key(number: u32) -> ConsumerKey {
    ConsumerKey::new(CONNECTION, FORWARDER_NUMBER | number)
}

#[test]
fn consumers_share_a_subscription_whose_window_is_what_they_take_ahead() {
    let mut engine = engine(LinkOptions { prefetch: 25, ..LinkOptions::default() });
    let orders = || Destination::queue("orders");
    assert_eq!(change(&mut engine, consumer("a", orders(), 10)), ["attach queue://orders 10"]);
    assert_eq!(change(&mut engine, consumer("a", orders(), 10)), [""; 0], "told twice");
    assert_eq!(change(&mut engine, consumer("b", orders(), 10)), ["credit 10"]);
    assert_eq!(change(&mut engine, consumer("c", orders(), 10)), ["credit 5"], "bounded by the link");
    assert_eq!(change(&mut engine, gone("a")), [""; 0]);
    assert_eq!(change(&mut engine, gone("b")), [""; 0]);
    assert_eq!(change(&mut engine, gone("c")), ["drain"]);
}

#[test]
fn a_subscription_ends_once_the_peer_has_answered_and_forwards_nothing_meanwhile() {
    let mut engine = engine(LinkOptions::default());
    change(&mut engine, consumer("a", Destination::queue("orders"), 2));
    let mut events = Vec::new();
    assert!(engine.admit(key(1), EntryTag(1), 0, &mut events).is_some());
    engine.sent(41, key(1), EntryTag(1));
    assert_eq!(change(&mut engine, gone("a")), ["drain"]);
    assert!(engine.admit(key(1), EntryTag(2), 0, &mut events).is_none());
    assert_eq!(short(&events), ["settle EntryTag(2) Released { failed: false }"]);
    events.clear();
    engine.drained(key(1).number, &mut events);
    assert!(events.is_empty(), "a response is to come");
    engine.answered(41, None, 0, &mut events);
    assert_eq!(short(&events), ["settle EntryTag(1) Accepted", "detach None"]);
    assert!(!engine.has_consumer(key(1).number));
}

#[test]
fn an_answer_makes_room_for_the_next_message() {
    let mut engine = engine(LinkOptions::default());
    change(&mut engine, consumer("a", Destination::queue("orders"), 2));
    let mut events = Vec::new();
    engine.admit(key(1), EntryTag(1), 0, &mut events);
    engine.sent(41, key(1), EntryTag(1));
    engine.answered(40, None, 0, &mut events);
    assert!(events.is_empty(), "nothing was sent by that number");
    engine.answered(41, None, 0, &mut events);
    assert_eq!(short(&events), ["settle EntryTag(1) Accepted", "credit 1"]);
}

#[test]
fn a_refused_message_rests_and_is_tried_again_one_at_a_time_until_one_is_taken() {
    let mut engine = engine(LinkOptions::default());
    change(&mut engine, consumer("a", Destination::queue("orders"), 3));
    let mut events = Vec::new();
    for number in [1, 2] {
        engine.admit(key(1), EntryTag(number), 0, &mut events);
        engine.sent(40 + number as i32, key(1), EntryTag(number));
    }
    engine.answered(41, Some("not yours"), 500, &mut events);
    engine.answered(42, Some("not yours"), 500, &mut events);
    assert!(events.is_empty() && engine.remark().unwrap().contains("queue://orders: not yours"));
    assert_eq!((engine.remark(), engine.deadline()), (None, Some(1500)), "said once");
    engine.wake(1499, &mut events);
    assert!(events.is_empty());
    engine.wake(1500, &mut events);
    assert_eq!(short(&events), ["settle EntryTag(1) Released { failed: true }"]);
    assert_eq!(engine.deadline(), Some(2500), "the second refusal in a row");
    events.clear();
    engine.wake(2500, &mut events);
    assert_eq!(short(&events), ["settle EntryTag(2) Released { failed: true }"], "one may be in flight yet");
    events.clear();
    engine.admit(key(1), EntryTag(1), 0, &mut events);
    engine.sent(43, key(1), EntryTag(1));
    engine.answered(43, None, 2600, &mut events);
    assert_eq!(short(&events), ["settle EntryTag(1) Accepted", "credit 3"]);
    events.clear();
    engine.close(&mut events);
    assert_eq!(short(&events), ["detach None"], "what is in flight goes back uncounted");
}

#[test]
fn demand_that_would_loop_or_is_not_permitted_is_passed_over() {
    let mut engine = engine(LinkOptions {
        consumer_ttl: 2,
        exclude: vec![Destination::queue("secret.>")],
        include: vec![Destination::queue(">")],
        ..LinkOptions::default()
    });
    let with = |path: &[&str], browses| {
        let path = path.iter().map(|id| Arc::from(*id)).collect();
        let sources = vec![Destination::queue("orders")];
        Demand::Consumer(RemoteConsumer {
            id: "a".into(),
            sources,
            path,
            browses,
            ..RemoteConsumer::default()
        })
    };
    for (case, demand) in [
        ("it has passed this broker", with(&["ID:here"], false)),
        ("too far away", with(&["ID:x", "ID:y"], false)),
        ("a browser", with(&[], true)),
        ("excluded", consumer("a", Destination::queue("secret.a"), 1)),
        ("not included", consumer("a", Destination::topic("news"), 1)),
        ("an advisory", consumer("a", Destination::topic("ActiveMQ.Advisory.Queue"), 1)),
    ] {
        assert_eq!(change(&mut engine, demand), [""; 0], "{case}");
    }
    assert_eq!(change(&mut engine, with(&["ID:x"], false)), ["attach queue://orders 1"]);
}

#[test]
fn a_durable_subscription_wants_messages_until_it_is_unsubscribed() {
    // Peers of the same name differ by their ids, where these last.
    for (counts_credit, want) in
        [(false, "18:there_inbound_here:NC-DS_here_news"), (true, "21:ID:there_inbound_here:NC-DS_here_news")]
    {
        let mut engine = engine_of(LinkOptions::default(), counts_credit);
        let subscription: (Arc<str>, Arc<str>) = ("client".into(), "news".into());
        let consumer = RemoteConsumer {
            id: "a".into(),
            sources: vec![Destination::topic("news")],
            prefetch: 5,
            subscription: Some(subscription.clone()),
            ..RemoteConsumer::default()
        };
        let mut events = Vec::new();
        engine.demand(Demand::Consumer(consumer), &mut events).unwrap();
        let [Event::Attach(attach)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(attach.subscription.as_deref(), Some(want));
        assert_eq!(change(&mut engine, gone("a")), [""; 0]);
        let unsubscribed = Demand::Unsubscribed { subscription, topic: None };
        assert_eq!(change(&mut engine, unsubscribed), ["drain"]);
        // Another one of this topic waits until the former subscription has ended.
        assert_eq!(change(&mut engine, Demand::Consumer(durable("b", "news", "again"))), [""; 0]);
        let mut events = Vec::new();
        engine.drained(key(1).number, &mut events);
        let [detached, Event::Unsubscribe { name, .. }, Event::Attach(attach)] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(short(std::slice::from_ref(detached)), ["detach None"]);
        assert_eq!((&**name, attach.subscription.as_deref()), (want, Some(want)));
    }
}

/// A reader of a durable subscription at the peer.
fn durable(id: &str, topic: &str, subscription: &str) -> RemoteConsumer {
    RemoteConsumer {
        id: id.into(),
        sources: vec![Destination::topic(topic)],
        prefetch: 5,
        subscription: Some(("client".into(), subscription.into())),
        ..RemoteConsumer::default()
    }
}

fn unsubscribed(subscription: &str, topic: Option<&str>) -> Demand {
    let subscription = ("client".into(), subscription.into());
    Demand::Unsubscribed { subscription, topic: topic.map(Destination::topic) }
}

#[test]
fn a_subscription_that_changes_its_topic_wants_the_new_one_alone() {
    let mut engine = engine(LinkOptions::default());
    change(&mut engine, Demand::Consumer(durable("a", "old", "news")));
    let moved = Demand::Consumer(durable("b", "new", "news"));
    assert_eq!(change(&mut engine, moved), ["attach topic://new 5"], "its end is told later");
    assert_eq!(change(&mut engine, unsubscribed("news", Some("old"))), ["drain"]);
    assert_eq!(change(&mut engine, unsubscribed("news", Some("other"))), [""; 0]);
    assert_eq!(change(&mut engine, unsubscribed("news", None)), ["drain"]);
}

/// The answer of the core to the engine's question: these subscriptions of these topics.
fn list_own(engine: &mut DemandEngine, asked: &[Event], own: &[(&str, &str)]) -> Vec<String> {
    let Some(Event::Ask { ask, ticket, .. }) = asked.last() else { panic!("{asked:?}") };
    let row = |(topic, name): &(&str, &str)| {
        model::Row::Queue(model::QueueRow::idle(Destination::topic(topic), Some((*name).into())))
    };
    engine.page(*ticket, Page::first(own.iter().map(row), ask));
    let mut events = Vec::new();
    engine.replied(*ticket, Ok(()), &mut events).unwrap();
    let each = |event: &Event| match event {
        Event::Unsubscribe { name, .. } => format!("unsubscribe {name}"),
        other => short(std::slice::from_ref(other)).concat(),
    };
    events.iter().map(each).collect()
}

#[test]
fn subscriptions_that_the_peer_does_not_list_end() {
    let own = |topic: &str| format!("21:ID:there_inbound_here:NC-DS_here_{topic}");
    let options =
        LinkOptions { exclude: vec![Destination::topic("x.>")], consumer_ttl: -1, ..LinkOptions::default() };
    let mut engine = engine_of(options, true);
    // The first one ended before the list comes, which was made earlier.
    change(&mut engine, unsubscribed("ended", Some("ended")));
    let onward = |topic: &str| RemoteConsumer { path: vec!["ID:far".into()], ..durable("far", topic, topic) };
    let list =
        vec![durable("1", "ended", "ended"), durable("2", "kept", "kept"), onward("behind"), onward("new")];
    let mut events = Vec::new();
    engine.subscriptions(list, true, &mut events).unwrap();
    let [Event::Attach(attach), Event::Ask { .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(attach.source, Destination::topic("kept"), "its reader is away");
    let names = ["behind", "ended", "gone", "kept", "x.y"].map(own);
    let topics = ["behind", "ended", "gone", "kept", "x.y"];
    let rows: Vec<(&str, &str)> = topics.into_iter().zip(names.iter().map(String::as_str)).collect();
    let done = list_own(&mut engine, &events, &rows);
    let want = [
        "attach topic://behind 5".to_owned(),
        format!("unsubscribe {}", own("ended")),
        format!("unsubscribe {}", own("gone")),
    ];
    assert_eq!(done, want, "those behind the peer are kept, other links may serve excluded ones");
    events.clear();
    engine.subscriptions(Vec::new(), true, &mut events).unwrap();
    assert_eq!(short(&events), [""; 0], "one list in each connection");
}

#[test]
fn a_peer_that_lists_included_topics_alone_says_nothing_of_others() {
    let mut engine = engine(LinkOptions::default());
    let mut events = Vec::new();
    engine.subscriptions(Vec::new(), false, &mut events).unwrap();
    let own = [("news", "18:there_inbound_here:NC-DS_here_news")];
    assert_eq!(list_own(&mut engine, &events, &own), [""; 0]);
}

#[test]
fn messages_of_queues_return_to_brokers_that_they_have_passed_and_those_of_topics_do_not() {
    for (source, want) in [
        (Destination::queue("orders"), ""),
        (
            Destination::topic("orders"),
            "(JMSActiveMQBrokerPath IS NULL OR JMSActiveMQBrokerPath NOT LIKE '%ID:there%' ESCAPE '\\')",
        ),
    ] {
        let mut engine = engine_of(LinkOptions { message_ttl: -1, ..LinkOptions::default() }, true);
        let mut events = Vec::new();
        engine.demand(consumer("a", source.clone(), 5), &mut events).unwrap();
        let [Event::Attach(attach)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(&*attach.selector, want, "{source}");
    }
}

#[test]
fn a_pattern_reads_from_each_partition_and_is_told_of_once() {
    let mut engine = engine(LinkOptions::default());
    let mut events = Vec::new();
    engine.demand(consumer("a", Destination::topic("news.>"), 5), &mut events).unwrap();
    let told: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Attach(attach) => Some((attach.at, attach.notice.is_some())),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(Some(PartitionId(0)), true), (Some(PartitionId(1)), false)]);
}

#[test]
fn the_bound_on_remote_consumers_ends_the_link() {
    let mut engine = engine(LinkOptions::default());
    let mut events = Vec::new();
    for number in 0..HOLDERS_MAX {
        engine.demand(consumer(&number.to_string(), Destination::queue("q"), 1), &mut events).unwrap();
    }
    let more = engine.demand(consumer("more", Destination::queue("q"), 1), &mut events);
    assert_eq!(more, Err("the peer has more than 65536 consumers".to_owned()));
}

#[test]
fn temporary_destinations_come_and_go_with_those_of_the_peer() {
    let mut engine = engine(LinkOptions::default());
    let reply = Destination { temporary: true, ..Destination::queue("ID:x:1") };
    let told = |present| Demand::Temporary { destination: reply.clone(), present };
    let mut events = Vec::new();
    engine.demand(told(true), &mut events).unwrap();
    engine.demand(told(true), &mut events).unwrap();
    let [Event::Declare { ticket, .. }] = events[..] else { panic!("{events:?}") };
    engine.replied(ticket, Ok(()), &mut Vec::new()).unwrap();
    events.clear();
    engine.demand(told(false), &mut events).unwrap();
    assert!(matches!(events[..], [Event::Delete { .. }]), "{events:?}");
    // One that another connection has made is left alone.
    let other = Destination { temporary: true, ..Destination::queue("ID:y:1") };
    events.clear();
    engine.demand(Demand::Temporary { destination: other.clone(), present: true }, &mut events).unwrap();
    let [Event::Declare { ticket, .. }] = events[..] else { panic!("{events:?}") };
    engine.replied(ticket, Err(Refusal::NotOwner(other.clone())), &mut Vec::new()).unwrap();
    events.clear();
    engine.demand(Demand::Temporary { destination: other, present: false }, &mut events).unwrap();
    assert!(events.is_empty());
}

#[test]
fn a_temporary_destination_is_deleted_once_its_subscription_has_ended() {
    let mut engine = engine(LinkOptions::default());
    let reply = Destination { temporary: true, ..Destination::queue("ID:x:1") };
    let mut events = Vec::new();
    engine.demand(consumer("a", reply.clone(), 1), &mut events).unwrap();
    let [Event::Declare { ticket, .. }, Event::Attach(_)] = events[..] else { panic!("{events:?}") };
    engine.replied(ticket, Ok(()), &mut Vec::new()).unwrap();
    events.clear();
    engine.demand(gone("a"), &mut events).unwrap();
    engine.demand(Demand::Temporary { destination: reply, present: false }, &mut events).unwrap();
    assert_eq!(short(&events), ["drain"], "the core deletes none in use");
    events.clear();
    engine.drained(key(1).number, &mut events);
    assert!(matches!(events[..], [Event::Detach { .. }, Event::Delete { .. }]), "{events:?}");
}

#[test]
fn of_several_connections_one_reads_a_temporary_destination_and_takes_it_over_for_that() {
    let reply = Destination { temporary: true, ..Destination::queue("ID:x:1") };
    let of_two = |number| LinkOptions { share: LinkShare { number, of: 2 }, ..LinkOptions::default() };
    let number = u16::from(!of_two(0).share.has(&reply));
    let (mut reading, mut other) = (engine(of_two(number)), engine(of_two(1 - number)));
    let mut events = Vec::new();
    other.demand(consumer("a", reply.clone(), 1), &mut events).unwrap();
    let [Event::Declare { steals: Some(_), .. }] = &events[..] else { panic!("{events:?}") };
    events.clear();
    reading.demand(Demand::Temporary { destination: reply.clone(), present: true }, &mut events).unwrap();
    reading.demand(consumer("a", reply.clone(), 1), &mut events).unwrap();
    let [Event::Declare { .. }, Event::Declare { ticket, .. }, Event::Attach(attach)] = &events[..] else {
        panic!("{events:?}")
    };
    reading.replied(*ticket, Ok(()), &mut Vec::new()).unwrap();
    let (attached, mut again) = (attach.ticket, Vec::new());
    let refusal = Refusal::NotOwner(reply.clone());
    reading.replied(attached, Err(refusal), &mut again).unwrap();
    assert!(matches!(again[..], [Event::Declare { .. }, Event::Attach(_)]), "{again:?}");
    // Gone at the peer: the one that has read it deletes it.
    let gone = Demand::Temporary { destination: reply, present: false };
    events.clear();
    other.demand(gone.clone(), &mut events).unwrap();
    assert!(events.is_empty(), "{events:?}");
    reading.demand(self::gone("a"), &mut Vec::new()).unwrap();
    reading.demand(gone, &mut events).unwrap();
    reading.drained(key(2).number, &mut events);
    assert!(
        matches!(events[..], [Event::Detach { .. }, Event::Declare { .. }, Event::Delete { .. }]),
        "{events:?}"
    );
}

#[test]
fn between_swimlanes_only_named_destinations_are_forwarded() {
    let named = LinkOptions {
        include: vec![Destination::queue("shared.>")],
        statics: vec![Destination::queue("audit")],
        exclude: vec![Destination::queue("shared.secret")],
        ..LinkOptions::default()
    };
    for (case, options, crosses, queue, want) in [
        ("within one", LinkOptions::default(), false, "a", true),
        ("ordinary demand", LinkOptions::default(), true, "a", false),
        ("included", named.clone(), true, "shared.a", true),
        ("excluded", named.clone(), true, "shared.secret", false),
        ("static", named.clone(), true, "audit", true),
        ("neither", named, true, "a", false),
    ] {
        let mut engine = engine(LinkOptions { statics: Vec::new(), ..options.clone() });
        engine.options = options;
        engine.link.as_mut().unwrap().crosses_swimlanes = crosses;
        assert_eq!(engine.is_permitted(&Destination::queue(queue)), want, "case: {case}");
    }
}

#[test]
fn priorities_fall_with_the_distance() {
    let engine = engine(LinkOptions::default());
    assert_eq!([1, 2, 3].map(|brokers| engine.priority_at(brokers)), [-5, -8, -9]);
}

#[test]
fn selectors_hold_messages_back_that_have_passed_the_peer_or_too_many_brokers() {
    for (own, ttl, path, want) in [
        ("", 1, None, true),
        ("", 1, Some("[ID:x]"), false),
        ("", 2, Some("[ID:x]"), true),
        ("", 2, Some("[ID:t_re]"), false),
        ("", 2, Some("[ID:txre]"), true),
        ("", 2, Some("[ID:x, ID:y]"), false),
        ("", 3, Some("[ID:x, ID:y]"), true),
        ("", -1, Some("[ID:x, ID:y, ID:z]"), true),
        ("", -1, Some("[ID:x, ID:t_re]"), false),
        ("", 0, None, false),
        ("a = 1 OR a = 2", 1, None, false),
    ] {
        let text = selector_for(own, ("ID:t_re", false), ttl);
        let selector = postroad_selector::Selector::parse(&text).unwrap();
        assert_eq!(selector.matches(&Path(path)), want, "{text} for {path:?}");
    }
}

#[test]
fn a_message_may_return_to_a_postroad_that_it_has_passed() {
    for (ttl, path, want) in [
        (1, None, true),
        (1, Some("[ID:t_re]"), true),
        (1, Some("[ID:x]"), false),
        (2, Some("[ID:x]"), true),
        (2, Some("[ID:x, ID:y]"), false),
        (2, Some("[ID:x, ID:t_re]"), true),
        (0, None, false),
    ] {
        let text = selector_for("", ("ID:t_re", true), ttl);
        let selector = postroad_selector::Selector::parse(&text).unwrap();
        assert_eq!(selector.matches(&Path(path)), want, "{text} for {path:?}");
    }
    assert_eq!(&*selector_for("a = 1", ("ID:t_re", true), -1), "a = 1");
}

#[test]
fn no_more_is_forwarded_to_a_postroad_than_its_consumers_would_take() {
    let mut engine = engine_of(LinkOptions::default(), true);
    assert_eq!(
        change(&mut engine, consumer("a", Destination::queue("orders"), 10)),
        ["attach queue://orders 1"]
    );
    let mut events = Vec::new();
    assert_eq!(engine.question(0), None, "nothing waits");
    assert!(engine.admit(key(1), EntryTag(1), 0, &mut events).is_some());
    engine.sent(41, key(1), EntryTag(1));
    let question = engine.question(0).unwrap();
    assert_eq!((&question.source, question.onward), (&Destination::queue("orders"), false));
    engine.asked(42, &question);
    assert_eq!((engine.question(0), events.len()), (None, 0), "nothing more goes before the answer");
    engine.credit(42, 8, 5, &mut events);
    assert_eq!(short(&events), ["credit 7"], "one is in flight, which the peer may not have counted");
    events.clear();
    engine.answered(41, None, 6, &mut events);
    assert_eq!(short(&events), ["settle EntryTag(1) Accepted"]);
    // Credit that is stale goes back.
    events.clear();
    assert!(engine.admit(key(1), EntryTag(2), 5000, &mut events).is_some());
    assert!(engine.admit(key(1), EntryTag(3), 5000, &mut events).is_none());
    assert_eq!(short(&events), ["settle EntryTag(3) Released { failed: false }"]);
}

struct Path(Option<&'static str>);

impl postroad_selector::Properties for Path {
    fn property(&self, name: &str) -> Option<postroad_selector::Value<'_>> {
        let path = self.0.filter(|_| name == "JMSActiveMQBrokerPath")?;
        Some(postroad_selector::Value::String(path.into()))
    }

    fn body(&self) -> Option<std::borrow::Cow<'_, str>> {
        None
    }
}

#[test]
fn deliveries_in_doubt_stay_with_the_link_and_are_sent_again_first() {
    let cut = |counts_credit, queue: &str| {
        let (mut engine, mut events) = (engine_of(LinkOptions::default(), counts_credit), Vec::new());
        change(&mut engine, consumer("a", Destination::queue(queue), 2));
        change(&mut engine, consumer("b", Destination::queue("idle"), 2));
        engine.admit(key(1), EntryTag(1), 0, &mut events).expect("it goes");
        engine.sent(41, key(1), EntryTag(1));
        events.clear();
        engine.close(&mut events);
        short(&events)
    };
    assert_eq!(cut(false, "other"), ["detach None", "detach None"], "this peer recognises nothing");
    assert_eq!(cut(true, "orders"), ["detach InDoubt { kept_ms: 60000 }", "detach None"]);
    for is_cut in [false, true] {
        let (mut engine, mut events) = (DemandEngine::new(LinkOptions::default()), Vec::new());
        engine.begin(link(1, true), &mut events);
        assert_eq!(short(&events), ["attach queue://> 0", "drain"]);
        events.clear();
        // Whatever the peer's consumers would take.
        let heir = key(1 << 30).with_member(3);
        assert!(engine.admit(heir, EntryTag(1), 0, &mut events).is_some());
        engine.sent(42, heir, EntryTag(1));
        engine.drained(heir.number, &mut events);
        assert!(events.is_empty(), "{events:?}");
        if is_cut {
            engine.close(&mut events);
            assert_eq!(short(&events), ["detach InDoubt { kept_ms: 60000 }"], "still in doubt");
            continue;
        }
        engine.answered(42, None, 10, &mut events);
        assert_eq!(short(&events), ["settle EntryTag(1) Accepted", "detach None"]);
    }
}

/// A reader at the peer of a subscription that is known here as `6:client:news`.
fn moved(id: &str) -> Demand {
    let durable = Some("6:client:news".into());
    Demand::Consumer(RemoteConsumer { durable, ..durable_of(id) })
}

fn durable_of(id: &str) -> RemoteConsumer {
    durable(id, "news", "news")
}

/// The engine's last attach.
fn attached(events: &[Event]) -> Attach {
    let attach = events.iter().rev().find_map(|event| match event {
        Event::Attach(attach) => Some(attach.clone()),
        _ => None,
    });
    attach.unwrap_or_else(|| panic!("{events:?}"))
}

fn following() -> (DemandEngine, Attach) {
    let mut engine = engine_of(LinkOptions::default(), true);
    let mut events = Vec::new();
    engine.demand(moved("a"), &mut events).unwrap();
    assert_eq!(short(&events), ["attach topic://news 5"; 2], "by the topic, then the backlog");
    let attach = attached(&events);
    assert_eq!(attach.subscription.as_deref(), Some("moving 6:client:news"));
    assert_eq!((attach.notice.is_none(), attach.steals.as_deref()), (true, Some("link to ID:there")));
    (engine, attach)
}

fn in_use() -> Result<(), Refusal> {
    Err(Refusal::SubscriptionInUse { name: "6:client:news".into() })
}

#[test]
fn what_waits_here_follows_its_reader_for_that_subscription_alone() {
    let (mut engine, attach) = following();
    let (consumer, mut events) = (attach.consumer, Vec::new());
    engine.replied(attach.ticket, Ok(()), &mut events).unwrap();
    assert_eq!(engine.admit(consumer, EntryTag(1), 5, &mut events), Some(Destination::topic("news")));
    assert_eq!(engine.only_for(consumer).as_deref(), Some("6:client:news"));
    assert_eq!(engine.only_for(key(1)), None, "by the topic, for all");
    engine.sent(41, consumer, EntryTag(1));
    engine.answered(41, None, 6, &mut events);
    assert_eq!(short(&events), ["settle EntryTag(1) Accepted", "credit 1"]);
    engine.admit(consumer, EntryTag(2), 7, &mut events);
    engine.sent(42, consumer, EntryTag(2));
    // The link is cut.
    events.clear();
    engine.close(&mut events);
    assert_eq!(short(&events), ["detach None", "detach InDoubt { kept_ms: 60000 }"]);
}

#[test]
fn nothing_follows_without_a_reader_that_the_peer_names() {
    let mut engine = engine_of(LinkOptions::default(), true);
    assert_eq!(change(&mut engine, Demand::Consumer(durable_of("a"))), ["attach topic://news 5"]);
    let far = RemoteConsumer {
        path: vec!["ID:far".into()],
        durable: Some("6:client:news".into()),
        ..durable_of("b")
    };
    assert_eq!(change(&mut engine, Demand::Consumer(far)), [""; 0], "a broker behind the peer");
    assert_eq!(change(&mut engine, moved("c")), ["attach topic://news 5"]);
    assert_eq!(change(&mut engine, moved("c")), [""; 0], "told twice");
    assert_eq!(change(&mut engine, moved("d")), ["credit 5"], "its next connection");
    assert_eq!(change(&mut engine, gone("c")), [""; 0]);
    assert_eq!(change(&mut engine, gone("d")), ["drain"], "the backlog waits");
    let mut engine = self::engine(LinkOptions::default());
    assert_eq!(change(&mut engine, moved("a")), ["attach topic://news 5"], "a peer that is no Postroad");
}

#[test]
fn a_subscription_in_use_is_tried_again_for_a_minute() {
    let (mut engine, mut attach) = following();
    let (mut now_ms, mut tries) = (0, 0);
    loop {
        let mut events = Vec::new();
        engine.replied(attach.ticket, in_use(), &mut events).unwrap();
        assert!(events.is_empty() && !engine.has_consumer(attach.consumer.number));
        engine.wake(now_ms, &mut events);
        let Some(due_ms) = engine.deadline().filter(|due_ms| *due_ms < u64::MAX) else { break };
        now_ms = due_ms;
        engine.wake(now_ms, &mut events);
        attach = attached(&events);
        tries += 1;
    }
    assert!((55_000..65_000).contains(&now_ms) && tries < 40, "{tries} until {now_ms} ms");
    // Its reader connects once more.
    assert_eq!(change(&mut engine, gone("a")), [""; 0]);
    assert_eq!(change(&mut engine, moved("b")), ["attach topic://news 5"]);
}

#[test]
fn a_reader_here_gets_the_subscription_back_once_the_peer_has_answered() {
    let (mut engine, attach) = following();
    let (consumer, mut events) = (attach.consumer, Vec::new());
    engine.admit(consumer, EntryTag(1), 5, &mut events);
    engine.sent(41, consumer, EntryTag(1));
    engine.drained(consumer.number, &mut events);
    assert!(events.is_empty(), "{events:?}");
    engine.answered(41, None, 6, &mut events);
    assert_eq!(short(&events), ["settle EntryTag(1) Accepted", "detach None"]);
    engine.wake(10, &mut events);
    events.clear();
    engine.wake(110, &mut events);
    assert_eq!(short(&events), ["attach topic://news 5"], "the reader may leave soon");
}

#[test]
fn a_subscription_that_is_quiet_for_a_minute_ends() {
    let (mut engine, attach) = following();
    let (consumer, mut events) = (attach.consumer, Vec::new());
    engine.wake(10, &mut events);
    engine.admit(consumer, EntryTag(1), 50, &mut events);
    engine.sent(41, consumer, EntryTag(1));
    assert_eq!(engine.deadline(), Some(60_050));
    engine.wake(60_050, &mut events);
    assert!(events.is_empty(), "the peer has not answered");
    engine.answered(41, None, 60_060, &mut events);
    events.clear();
    engine.wake(120_060, &mut events);
    let [detached, Event::Unsubscribe { name, ticket, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (&**name, short(std::slice::from_ref(detached)).concat()),
        ("moving 6:client:news", "detach None".into())
    );
    let ticket = *ticket;
    events.clear();
    engine.replied(ticket, in_use(), &mut events).unwrap();
    assert_eq!(short(&events), ["attach topic://news 5"], "something has come after all");
}

/// The answer to an attach, with the events that follow.
fn refuse(engine: &mut DemandEngine, attach: &Attach, refusal: &Refusal) -> Result<Vec<String>, String> {
    let mut events = Vec::new();
    engine.replied(attach.ticket, Err(refusal.clone()), &mut events).map(|()| short(&events))
}

fn attach_for(engine: &mut DemandEngine, demand: Demand) -> Attach {
    let mut events = Vec::new();
    engine.demand(demand, &mut events).unwrap();
    attached(&events)
}

fn not_permitted(source: &Destination) -> Refusal {
    Refusal::NotPermitted { user: None, action: model::Action::Read, destination: source.clone() }
}

#[test]
fn a_refusal_that_lasts_leaves_the_link_up_and_one_that_passes_ends_it() {
    let source = Destination::queue("secret");
    let pattern = source.clone();
    for (refusal, lasts) in [
        (not_permitted(&source), true),
        (Refusal::PatternTooWide { pattern, queues: 2, read: 1, max: 2 }, true),
        (Refusal::BadSelector { selector: "a =".into(), reason: "it ends".to_owned() }, true),
        (Refusal::TooManyQueues { tenant: "t".into(), max: 2 }, true),
        (Refusal::NotLeader, false),
        (Refusal::StoreFailed { reason: "no space".to_owned() }, false),
        (Refusal::QueueMoving(source.clone()), false),
        (Refusal::ConsumerExists { number: 1 }, false),
    ] {
        let mut engine = engine(LinkOptions::default());
        let attach = attach_for(&mut engine, consumer("a", source.clone(), 5));
        let reason = format!("cannot subscribe to queue://secret: {refusal}");
        let result = refuse(&mut engine, &attach, &refusal);
        assert!(!engine.has_consumer(attach.consumer.number), "{refusal}");
        assert_eq!(result, if lasts { Ok(Vec::new()) } else { Err(reason.clone()) }, "{refusal}");
        assert_eq!(engine.remark(), lasts.then_some(reason), "{refusal}");
    }
}

#[test]
fn a_refused_target_is_tried_again_for_another_consumer_and_the_reason_given_once() {
    let (source, other) = (Destination::queue("secret"), Destination::queue("other"));
    let mut engine = engine(LinkOptions::default());
    let attach = attach_for(&mut engine, consumer("a", source.clone(), 5));
    refuse(&mut engine, &attach, &not_permitted(&source)).unwrap();
    let attach = attach_for(&mut engine, consumer("o", other.clone(), 5));
    refuse(&mut engine, &attach, &not_permitted(&other)).unwrap();
    let remark = engine.remark().unwrap();
    assert!(remark.contains("queue://secret: ") && remark.contains("; cannot subscribe to queue://other: "));
    // The second consumer.
    let attach = attach_for(&mut engine, consumer("b", source.clone(), 5));
    assert_eq!(attach.credit, 10, "for both");
    assert_eq!(refuse(&mut engine, &attach, &not_permitted(&source)), Ok(Vec::new()));
    assert_eq!((engine.remark(), engine.deadline()), (None, Some(0)), "given before");
    // Half a minute later both are tried again: the permission may be there.
    let mut again = Vec::new();
    engine.wake(1000, &mut again);
    engine.wake(30_999, &mut again);
    assert_eq!((short(&again).len(), engine.deadline()), (0, Some(31_000)));
    engine.wake(31_000, &mut again);
    assert_eq!(short(&again), ["attach queue://other 5", "attach queue://secret 10"]);
    assert_eq!(engine.deadline(), None);
    for event in &again {
        let Event::Attach(attach) = event else { panic!("{event:?}") };
        assert_eq!(refuse(&mut engine, attach, &not_permitted(&attach.source)), Ok(Vec::new()));
    }
    assert_eq!(engine.remark(), None, "given before");
    // They go: nothing is left.
    assert_eq!(change(&mut engine, gone("a")), [""; 0]);
    assert_eq!(change(&mut engine, gone("b")), [""; 0], "there is nothing to drain");
    let left = engine.targets.keys().map(|target| &target.source);
    assert!(left.eq([&other]) && engine.subscriptions.is_empty() && engine.attaching.is_empty());
    // One that comes later reads it once that is permitted.
    let attach = attach_for(&mut engine, consumer("c", source.clone(), 5));
    engine.replied(attach.ticket, Ok(()), &mut Vec::new()).unwrap();
    let mut events = Vec::new();
    assert_eq!(engine.admit(attach.consumer, EntryTag(1), 0, &mut events), Some(source.clone()));
    assert_eq!(change(&mut engine, consumer("d", source, 5)), ["credit 5"], "not a second subscription");
}

#[test]
fn a_partition_that_refuses_a_pattern_is_tried_again_alone() {
    let source = Destination::queue("orders.>");
    let mut engine = engine(LinkOptions::default());
    let mut events = Vec::new();
    engine.demand(consumer("a", source.clone(), 5), &mut events).unwrap();
    let refused = attached(&events);
    let wide = Refusal::PatternTooWide { pattern: source.clone(), queues: 2, read: 1, max: 2 };
    assert_eq!(refuse(&mut engine, &refused, &wide), Ok(Vec::new()));
    events.clear();
    engine.demand(consumer("b", source, 5), &mut events).unwrap();
    assert_eq!(short(&events), ["credit 5", "attach queue://orders.> 10"]);
    assert_eq!((refused.at, attached(&events).at), (Some(PartitionId(1)), Some(PartitionId(1))));
    change(&mut engine, gone("a"));
    assert_eq!(change(&mut engine, gone("b")), ["drain", "drain"]);
}

#[test]
fn a_durable_subscription_that_is_refused_after_its_end_may_begin_again() {
    let topic = Destination::topic("news");
    let mut engine = engine(LinkOptions::default());
    let attach = attach_for(&mut engine, Demand::Consumer(durable("a", "news", "news")));
    assert_eq!(change(&mut engine, unsubscribed("news", None)), ["drain"]);
    assert_eq!(change(&mut engine, Demand::Consumer(durable("b", "news", "again"))), [""; 0]);
    let mut events = Vec::new();
    engine.replied(attach.ticket, Err(not_permitted(&topic)), &mut events).unwrap();
    let [Event::Unsubscribe { .. }, Event::Attach(again)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(engine.remark(), None, "its consumer does not wait for it");
    assert_eq!(refuse(&mut engine, again, &not_permitted(&topic)), Ok(Vec::new()), "not in a loop");
    assert!(engine.remark().is_some() && engine.ending.is_empty());
}

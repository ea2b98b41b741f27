//! Conversations with a session: commands in, replies and events out, those of broken clients
//! included.
#![allow(clippy::unwrap_used, reason = "all of this file is test code")]

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::portable::{Portable, TranslationError};
use postroad_model::{
    BranchId, BranchStanding, ConnectionId as Connection, ConsumerKey, Decision, Delivery,
    Destination as Address, Elsewhere, Encoding, Endpoint, EntryTag, Event, LoginAnswer, Message as Stored,
    Now, Page, Parting, PartitionId, Principal, Protocol, QueueId, QueueRow, Refusal, Row, Session,
    Subscription, Ticket, ToSession, UserKey,
};
use postroad_openwire::codec::{
    BrokerId, BrokerInfo, BrokerSubscriptionInfo, Command, ConnectionId, ConnectionInfo, ConsumerId,
    ConsumerInfo, Destination, DestinationInfo, LocalTransactionId, Message, MessageAck, MessageId,
    Primitive, PrimitiveMap, ProducerId, ProducerInfo, RemoveInfo, RemovedId, SessionId, TransactionId,
    TransactionInfo, WireFormat, WireFormatOptions, WireString, XaTransactionId, take_frame,
};
use postroad_openwire::{OpenWireOptions, OpenWireSession};

const LARGE_BYTES: usize = 1 << 20;

fn read_nothing(_: &Stored) -> Result<Portable, TranslationError> {
    Ok(Portable::default())
}

/// A session, and its output so far.
struct Conversation {
    session: OpenWireSession,
    format: WireFormat,
    events: Vec<Event>,
    output: BytesMut,
}

impl Conversation {
    /// The wire formats are negotiated, and the client is not yet introduced.
    fn begin() -> Conversation {
        Conversation::of(false)
    }

    /// As [`Conversation::begin`], and clients have to log in.
    fn asking() -> Conversation {
        Conversation::of(true)
    }

    fn of(asks_login: bool) -> Conversation {
        Conversation::at(asks_login, None)
    }

    /// A session of a broker whose clients are served elsewhere.
    fn at(asks_login: bool, elsewhere: Option<Elsewhere>) -> Conversation {
        let elsewhere = elsewhere.map(Arc::new);
        let options = OpenWireOptions {
            max_frame_bytes: 100 << 20,
            large_message_bytes: LARGE_BYTES as u64,
            tight_encoding: false,
            cache: false,
            max_inactivity_ms: 30_000,
            broker_name: "test".to_owned(),
            broker_url: "tcp://test".to_owned(),
            partitions: 1,
            broker_id: "ID:b".to_owned(),
            forwarder: None,
            elsewhere,
            spread: None,
            asks_login,
        };
        let session = OpenWireSession::new(Connection::new(0, 1), options, read_nothing);
        let (format, events, output) = (WireFormat::initial(), Vec::new(), BytesMut::new());
        let mut conversation = Conversation { session, format, events, output };
        let info = WireFormatOptions::pass_through(100 << 20).to_info().unwrap();
        conversation.say(info).unwrap();
        conversation.format = WireFormat::loose(12);
        conversation.output.clear();
        conversation
    }

    /// As [`Conversation::begin`], and it is known who the client is.
    fn known() -> Conversation {
        let mut conversation = Conversation::begin();
        conversation.introduce();
        conversation.let_in();
        conversation
    }

    /// The core accepts the claim of the client's id.
    fn let_in(&mut self) {
        let Some(Event::Claim { ticket, .. }) = self.events.pop() else { panic!("no claim") };
        self.answer(ToSession::Reply { ticket, result: Ok(()) });
        self.events.clear();
        self.output.clear();
    }

    /// The client says who it is.
    fn introduce(&mut self) {
        let connection_id = Some(ConnectionId { value: Some("ID:c".into()) });
        let info = ConnectionInfo {
            connection_id,
            client_id: Some("c".into()),
            response_required: true,
            ..ConnectionInfo::default()
        };
        self.say(info).unwrap();
    }

    fn answer(&mut self, message: ToSession) {
        self.session.answer(message, Now::default(), &mut self.events, &mut self.output).unwrap();
    }

    /// The next command that the client reads.
    fn read(&mut self) -> Option<Command> {
        let frame = take_frame(&mut self.output, u64::MAX).unwrap()?;
        Some(self.format.decode(&frame).unwrap())
    }

    fn say(&mut self, command: impl Into<Command>) -> Result<(), Parting> {
        let mut input = BytesMut::new();
        self.format.encode(&command.into(), &mut input).unwrap();
        self.hear(&mut input)
    }

    fn hear(&mut self, input: &mut BytesMut) -> Result<(), Parting> {
        self.session.receive(input, Now::default(), &mut self.events, &mut self.output)
    }
}

fn message(sequence: i64, body_bytes: usize) -> Message {
    let producer_id = ProducerId { connection_id: Some("ID:c".into()), session_id: 1, value: 1 };
    let producer_id = Some(producer_id);
    Message {
        destination: Some(Destination::Queue("a".into())),
        producer_id: producer_id.clone(),
        message_id: Some(MessageId { producer_id, producer_sequence_id: sequence, ..MessageId::default() }),
        content: Some(Bytes::from(vec![0; body_bytes])),
        ..Message::default()
    }
}

#[test]
fn nothing_large_is_taken_from_whoever_has_not_said_who_it_is() {
    let mut conversation = Conversation::begin();
    let mut input = BytesMut::new();
    let large = Command::Message(Box::new(message(1, 2 * LARGE_BYTES)));
    conversation.format.encode(&large, &mut input).unwrap();
    let heard = conversation.hear(&mut input.split_to(LARGE_BYTES));
    assert!(matches!(heard, Err(Parting::Fault(_))), "{heard:?}");
    assert!(conversation.events.is_empty(), "a piece of it is on its way to the log");
}

#[test]
fn a_refusal_is_told_however_long_its_words_are() {
    let mut conversation = Conversation::known();
    // Each of these takes more room on the wire than anywhere else.
    let selector = "\u{10000}".repeat(10_920);
    let consumer_id = ConsumerId { connection_id: Some("ID:c".into()), session_id: 1, value: 1 };
    let info = ConsumerInfo {
        consumer_id: Some(consumer_id),
        destination: Some(Destination::Queue("a".into())),
        selector: Some(selector.as_str().into()),
        command_id: 7,
        response_required: true,
        ..ConsumerInfo::default()
    };
    conversation.say(info).unwrap();
    let Some(Event::Attach(attach)) = conversation.events.pop() else { panic!("no consumer") };
    let refusal = Refusal::BadSelector { selector: attach.selector, reason: "no selector".to_owned() };
    conversation.answer(ToSession::Reply { ticket: attach.ticket, result: Err(refusal) });
    let Some(Command::ExceptionResponse(response)) = conversation.read() else { panic!("no answer") };
    assert_eq!(response.correlation_id, 7);
}

#[test]
fn as_many_branches_in_doubt_are_listed_as_an_answer_holds() {
    let mut conversation = Conversation::known();
    let info = TransactionInfo {
        kind: TransactionInfo::RECOVER,
        command_id: 7,
        response_required: true,
        ..TransactionInfo::default()
    };
    conversation.say(info).unwrap();
    let Some(Event::ListBranches { ticket, .. }) = conversation.events.pop() else { panic!("no question") };
    let branch = |number: u32| {
        let (transaction, qualifier) = (number.to_be_bytes()[..].into(), [][..].into());
        (BranchId { format: 1, transaction, qualifier }, BranchStanding::Prepared)
    };
    let branches = (0..1 << 15).map(branch).collect();
    conversation.answer(ToSession::Branches { ticket, branches });
    conversation.answer(ToSession::Reply { ticket, result: Ok(()) });
    let Some(Command::DataArrayResponse(response)) = conversation.read() else { panic!("no answer") };
    let listed = response.data.map(|data| data.len());
    assert_eq!((response.correlation_id, listed), (7, Some((1 << 15) - 1)));
}

#[test]
fn a_durable_subscription_is_taken_from_what_the_same_client_has_left_behind() {
    let mut conversation = Conversation::known();
    let steals = ["s", ""].map(|name| {
        let consumer_id =
            ConsumerId { connection_id: Some("ID:c".into()), session_id: 1, value: name.len() as i64 };
        let info = ConsumerInfo {
            consumer_id: Some(consumer_id),
            destination: Some(Destination::Topic("a".into())),
            subscription_name: Some(name.into()).filter(|_| !name.is_empty()),
            ..ConsumerInfo::default()
        };
        conversation.say(info).unwrap();
        let Some(Event::Attach(attach)) = conversation.events.pop() else { panic!("no consumer") };
        attach.steals
    });
    assert_eq!(steals, [Some("OpenWire connection 0@:ID:c".into()), None]);
}

#[test]
fn what_a_client_makes_belongs_to_the_user_who_has_logged_in() {
    let mut conversation = Conversation::asking();
    conversation.introduce();
    assert!(conversation.events.is_empty(), "nothing is claimed ahead of the login");
    let (now, user) = (Now { ticks_ms: 0, wall_ms: 0 }, Principal::User("ann".into()));
    assert!(conversation.session.login().is_some());
    let welcome = LoginAnswer::Welcome { principal: user, last: None };
    conversation.session.admit(welcome, now, &mut conversation.events, &mut conversation.output).unwrap();
    let Some(Event::Claim { user, holder, ticket, .. }) = conversation.events.pop() else {
        panic!("no claim")
    };
    assert_eq!((&*user, &*holder), ("ann", "ID:c"));
    conversation.answer(ToSession::Reply { ticket, result: Ok(()) });
    let Some(Event::Introduce { client, .. }) = conversation.events.pop() else { panic!("no notice") };
    assert_eq!(client.user.as_deref(), Some("ann"));

    let info = ConsumerInfo {
        consumer_id: Some(ConsumerId { connection_id: Some("ID:c".into()), session_id: 1, value: 1 }),
        destination: Some(Destination::Topic("a".into())),
        subscription_name: Some("s".into()),
        ..ConsumerInfo::default()
    };
    conversation.say(info).unwrap();
    let Some(Event::Attach(attach)) = conversation.events.pop() else { panic!("no consumer") };
    let named = (attach.subscription.as_deref(), attach.steals.as_deref());
    assert_eq!(named, (Some("3@ann:1:c:s"), Some("OpenWire connection 3@ann:ID:c")));

    for (persistent, want) in [(true, UserKey::of("ann")), (false, None)] {
        let sent = Message { persistent, ..message(1, 1) };
        conversation.say(Command::Message(Box::new(sent))).unwrap();
        let Some(Event::Publish(publish)) = conversation.events.pop() else { panic!("no message") };
        assert_eq!(publish.sent.message.user(), want, "persistent: {persistent}");
    }
}

#[test]
fn a_window_is_given_back_for_what_took_of_it_and_for_nothing_else() {
    let mut conversation = Conversation::known();
    let producer_id = message(1, 1).producer_id;
    conversation.say(ProducerInfo { producer_id, window_size: 4096, ..ProducerInfo::default() }).unwrap();
    let whole = message(1, 1);
    for (case, sent, want) in [
        ("answered", Message { response_required: true, ..whole.clone() }, vec!["Response"]),
        ("not answered", whole.clone(), vec!["ProducerAck"]),
        ("refused", Message { message_id: None, ..whole }, vec!["ConnectionError", "ProducerAck"]),
    ] {
        conversation.events.clear();
        conversation.say(Command::Message(Box::new(sent))).unwrap();
        if let Some(Event::Publish(publish)) = conversation.events.pop() {
            conversation.answer(ToSession::Reply { ticket: publish.ticket, result: Ok(()) });
        }
        let said: Vec<_> = std::iter::from_fn(|| conversation.read()).map(|said| said.name()).collect();
        assert_eq!(said, want, "case: {case}");
    }
}

#[test]
fn a_temporary_destination_is_taken_from_what_the_same_client_has_left_behind() {
    let mut conversation = Conversation::known();
    let steals =
        [Destination::TempQueue("ID:c:1".into()), Destination::Queue("a".into())].map(|destination| {
            let info = DestinationInfo { destination: Some(destination), ..DestinationInfo::default() };
            conversation.say(info).unwrap();
            let Some(Event::Declare { steals, .. }) = conversation.events.pop() else {
                panic!("nothing is made")
            };
            steals
        });
    assert_eq!(steals, [Some("OpenWire connection 0@:ID:c".into()), None]);
}

#[test]
fn a_frame_beyond_the_limit_is_told_with_its_size_and_the_limit() {
    let mut conversation = Conversation::known();
    let mut input = BytesMut::from(&u32::to_be_bytes(100 * 1024 * 1024 + 1)[..]);
    let heard = conversation.hear(&mut input);
    let told = "frame of 104857601 bytes exceeds the limit of 104857600, which is openwire.max_frame_bytes or the peer's MaxFrameSize";
    assert!(matches!(&heard, Err(Parting::Fault(reason)) if reason == told), "{heard:?}");
    let Some(Command::ConnectionError(error)) = conversation.read() else { panic!("it is not told") };
    let said = format!("{:?}", error.exception);
    assert!(said.contains(told) && said.contains("java.io.IOException"), "{said}");
}

fn introduction(is_fault_tolerant: bool) -> ConnectionInfo {
    ConnectionInfo {
        connection_id: Some(ConnectionId { value: Some("ID:c".into()) }),
        client_id: Some("c".into()),
        fault_tolerant: is_fault_tolerant,
        command_id: 7,
        response_required: true,
        ..ConnectionInfo::default()
    }
}

/// The broker that a client was sent to by the next command but signs of life.
fn sent_to(conversation: &mut Conversation) -> Option<String> {
    match conversation.read()? {
        Command::KeepAliveInfo(_) => sent_to(conversation),
        Command::ConnectionControl(control) => control.connected_brokers.map(|it| it.to_str().into_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_comes_back_through_another_node_is_served_and_moved_later_between_transactions() {
    let own = "tcp://n1:61616";
    let elsewhere = || Elsewhere {
        reason: "this node serves clients".to_owned(),
        served_at: Endpoint::parse(own),
        serves_others: true,
    };
    let first = Conversation::at(false, Some(elsewhere())).say(introduction(true));
    assert!(first.is_err(), "one that has nothing to restore is sent on at once");
    let mut conversation = Conversation::at(false, Some(elsewhere()));
    conversation.say(ConnectionInfo { failover_reconnect: true, ..introduction(true) }).unwrap();
    conversation.let_in();
    let wake = |conversation: &mut Conversation, ticks_ms: u64| {
        let Conversation { session, events, output, .. } = conversation;
        session.heard(Now { ticks_ms, ..Now::default() });
        session.wake(Now { ticks_ms, ..Now::default() }, events, output)
    };
    let transaction = |kind| TransactionInfo {
        transaction_id: Some(TransactionId::Local(LocalTransactionId {
            value: 1,
            connection_id: Some(ConnectionId { value: Some("ID:c".into()) }),
        })),
        kind,
        ..TransactionInfo::default()
    };
    assert_eq!(wake(&mut conversation, 9999), Ok(()));
    conversation.say(transaction(TransactionInfo::BEGIN)).unwrap();
    for (case, at_ms, is_leaving, look_ms, told) in [
        ("told, and gets no more messages", 10_000, true, 10_200, Some(own)),
        ("in a transaction", 10_200, true, 10_700, None),
        ("it did not end in time: served again", 10_700, false, 20_700, None),
        ("once more", 20_700, true, 20_900, Some(own)),
        ("still in the transaction", 20_900, true, 21_400, None),
    ] {
        assert_eq!(wake(&mut conversation, at_ms), Ok(()), "{case}");
        let session = &conversation.session;
        assert_eq!(session.is_leaving(), is_leaving, "{case}");
        // A sign of life may be due earlier.
        assert!(session.deadline() <= Some(look_ms), "{case}: {:?}", session.deadline());
        assert_eq!(sent_to(&mut conversation).as_deref(), told, "{case}");
    }
    conversation.say(transaction(TransactionInfo::ROLLBACK)).unwrap();
    assert_eq!(wake(&mut conversation, 21_000), Ok(()), "it waits for an answer");
    let rolls_back = conversation.events.pop();
    let Some(Event::Rollback { ticket: Some(ticket), .. }) = rolls_back else { panic!("{rolls_back:?}") };
    let Conversation { session, events, output, .. } = &mut conversation;
    output.clear();
    let reply = ToSession::Reply { ticket, result: Ok(()) };
    let now = Now { ticks_ms: 21_001, ..Now::default() };
    assert_eq!(session.answer(reply, now, events, output), Err(Parting::Farewell));
}

#[test]
fn a_client_that_is_served_elsewhere_gets_the_address_once_it_has_logged_in() {
    let leader = Endpoint::parse("tcp://n1:61616");
    for (case, is_fault_tolerant, served_at, asks_login) in [
        ("moves", true, leader.clone(), false),
        ("moves, with a login", true, leader.clone(), true),
        ("cannot move", false, leader.clone(), false),
        ("cannot move, with a login", false, leader, true),
        ("would move, and no leader is known", true, None, false),
        ("cannot move, and no leader is known", false, None, false),
    ] {
        let elsewhere = Elsewhere {
            reason: "n2 follows n1".to_owned(),
            served_at: served_at.clone(),
            serves_others: false,
        };
        let mut conversation = Conversation::at(asks_login, Some(elsewhere));
        let mut said = conversation.say(introduction(is_fault_tolerant));
        if asks_login {
            assert!(said.is_ok() && conversation.read().is_none(), "case: {case}: nothing before the login");
            let welcome = LoginAnswer::Welcome { principal: Principal::Anonymous, last: None };
            let Conversation { session, events, output, .. } = &mut conversation;
            said = session.admit(welcome, Now::default(), events, output);
        }
        assert_eq!(said, Err(Parting::Fault("n2 follows n1".to_owned())), "case: {case}");
        assert!(conversation.events.is_empty(), "case: {case}: there is no core");
        match (is_fault_tolerant, served_at, conversation.read()) {
            (true, Some(leader), Some(Command::ConnectionControl(control))) => {
                let told = control.connected_brokers.map(|brokers| brokers.to_str().into_owned());
                assert_eq!(told, Some(leader.to_string()), "case: {case}");
            }
            (true, None, None) => {}
            (false, _, Some(Command::ExceptionResponse(response))) => {
                assert_eq!(response.correlation_id, 7, "case: {case}");
            }
            (_, _, read) => panic!("case: {case}: {read:?}"),
        }
    }
}

fn peer(properties: &str) -> BrokerInfo {
    BrokerInfo {
        broker_id: Some(BrokerId { value: Some("ID:peer".into()) }),
        broker_name: Some("peer".into()),
        network_connection: true,
        network_properties: Some(properties.into()),
        ..BrokerInfo::default()
    }
}

/// A broker has opened a link that is not duplex, and reads advisories.
fn linked(properties: &str) -> Conversation {
    let mut conversation = Conversation::begin();
    conversation.say(peer(properties)).unwrap();
    conversation.introduce();
    let Some(Event::Claim { ticket, .. }) = conversation.events.pop() else { panic!("no claim") };
    conversation.answer(ToSession::Reply { ticket, result: Ok(()) });
    let consumer = ConsumerInfo {
        consumer_id: Some(ConsumerId { connection_id: Some("ID:c".into()), session_id: 1, value: 1 }),
        destination: Some(Destination::Topic("ActiveMQ.Advisory.Consumer.>".into())),
        ..ConsumerInfo::default()
    };
    conversation.events.clear();
    conversation.say(consumer).unwrap();
    let Some(Event::Attach(attach)) = conversation.events.pop() else { panic!("no attach") };
    conversation.output.clear();
    conversation.answer(ToSession::Reply { ticket: attach.ticket, result: Ok(()) });
    conversation
}

fn subscription(topic: &str, client: &str, name: &str) -> Row {
    let name = Subscription::name_of("", client, name);
    Row::Queue(QueueRow::idle(Address::topic(topic), Some(name)))
}

#[test]
fn a_peer_that_asks_for_them_is_told_the_durable_subscriptions() {
    for (ttl, want) in [(1, "client:news"), (3, "client:news ID:far_inbound_test:NC-DS_test_b<ID:far")] {
        let mut conversation = linked(&format!("syncDurableSubs=true\nconsumerTTL={ttl}\n"));
        let mut rows = [
            subscription("a", "client", "news"),
            // Links have subscribed for the peer itself.
            subscription("b", "ID:peer_inbound_test", "NC-DS_test_b"),
            subscription("b", "peer_inbound_test", "NC-DS_test_b"),
            subscription("b", "ID:far_inbound_test", "NC-DS_test_b"),
        ];
        rows.sort_by_key(Row::key);
        // Two rows to a page.
        for page in rows.chunks(2) {
            let Some(Event::Ask { ask, ticket, .. }) = conversation.events.pop() else {
                panic!("no question")
            };
            assert_eq!(ask.after.is_none(), page[0] == rows[0]);
            let next = (page[0] == rows[0]).then(|| page[1].key());
            let page = Box::new(Page { rows: page.to_vec(), next, total: 4 });
            conversation.answer(ToSession::Page { ticket, page });
            conversation.answer(ToSession::Reply { ticket, result: Ok(()) });
        }
        let Some(Command::BrokerSubscriptionInfo(info)) = conversation.read() else { panic!("no list") };
        let text = |text: &Option<WireString>| text.as_ref().unwrap().to_str().into_owned();
        let path = |info: &ConsumerInfo| {
            let ids = info.broker_path.iter().flatten();
            ids.map(|id| format!("<{}", text(&id.value))).collect::<String>()
        };
        let each = |info: &ConsumerInfo| {
            format!("{}:{}{}", text(&info.client_id), text(&info.subscription_name), path(info))
        };
        let told: Vec<String> = info.subscription_infos.iter().flatten().map(each).collect();
        assert_eq!(told.join(" "), want, "consumerTTL {ttl}");
    }
    assert!(linked("consumerTTL=1\n").events.is_empty(), "it did not ask");
}

#[test]
fn a_broken_list_of_subscriptions_is_not_told() {
    let mut conversation = linked("syncDurableSubs=true\n");
    let Some(Event::Ask { ticket, .. }) = conversation.events.pop() else { panic!("no question") };
    conversation.answer(ToSession::Reply { ticket, result: Err(Refusal::Draining) });
    assert_eq!(conversation.read(), None, "what is not on it would end at the peer");
}

/// A list of durable subscriptions whose frame has some more bytes than its padding.
fn list_of(padding: usize) -> BrokerSubscriptionInfo {
    let name = "n".repeat(padding.min(1 << 14));
    let names = padding / name.len().max(1);
    let info = ConsumerInfo { client_id: Some(name.as_str().into()), ..ConsumerInfo::default() };
    BrokerSubscriptionInfo {
        subscription_infos: Some(vec![info; names]),
        ..BrokerSubscriptionInfo::default()
    }
}

#[test]
fn a_list_ahead_of_the_introduction_of_a_broker_does_no_harm() {
    // Short, at most as long as a frame may be by then, longer, and much longer.
    for (padding, is_used) in [(64, true), (48 << 10, true), (64 << 10, false), (8 << 20, false)] {
        let mut conversation = Conversation::begin();
        conversation.say(peer("syncDurableSubs=true\n")).unwrap();
        conversation.say(list_of(padding)).unwrap();
        conversation.introduce();
        assert_eq!(conversation.read(), None, "{padding} bytes");
        conversation.let_in();
        let remark = conversation.session.remark();
        assert_eq!(remark.is_none(), is_used, "{padding} bytes: {remark:?}");
    }
    let mut too_long = Conversation::begin();
    too_long.say(peer("")).unwrap();
    let mut frame = BytesMut::from(&(101_i32 << 20).to_be_bytes()[..]);
    frame.extend_from_slice(&[92, 0]);
    assert!(matches!(too_long.hear(&mut frame), Err(Parting::Fault(_))), "longer than any frame");
    let mut client = Conversation::begin();
    client.say(list_of(64)).unwrap();
    assert!(matches!(client.read(), Some(Command::ConnectionError(_))), "not from a client");
    let mut client = Conversation::begin();
    assert!(client.say(list_of(64 << 10)).is_err(), "nor a long one");
}

#[test]
fn only_a_broker_tells_its_subscriptions() {
    assert_eq!(linked("").say(BrokerSubscriptionInfo::default()), Ok(()));
    let mut client = Conversation::known();
    client
        .say(BrokerSubscriptionInfo { response_required: true, ..BrokerSubscriptionInfo::default() })
        .unwrap();
    assert!(matches!(client.read(), Some(Command::ExceptionResponse(_))));
}

/// The end of a consumer of this number, of the session, or of the connection; without a response
/// as the clients of ActiveMQ end consumers and sessions.
fn removal(of: RemovedId, command_id: Option<i32>) -> RemoveInfo {
    RemoveInfo {
        object_id: Some(of),
        response_required: command_id.is_some(),
        command_id: command_id.unwrap_or_default(),
        ..RemoveInfo::default()
    }
}

#[test]
fn the_removal_of_a_connection_waits_for_consumers_that_were_removed_one_way() {
    let consumer = |value| ConsumerId { connection_id: Some("ID:c".into()), session_id: 1, value };
    let session = || SessionId { connection_id: Some("ID:c".into()), value: 1 };
    let connection = || RemovedId::Connection(ConnectionId { value: Some("ID:c".into()) });
    for (case, refused) in [("all are removed", None), ("one is refused", Some(0)), ("another is", Some(2))] {
        let mut conversation = Conversation::known();
        for value in 1..=3 {
            conversation
                .say(ConsumerInfo {
                    consumer_id: Some(consumer(value)),
                    destination: Some(Destination::Queue("a".into())),
                    ..ConsumerInfo::default()
                })
                .unwrap();
        }
        conversation.events.clear();
        conversation.say(removal(RemovedId::Consumer(consumer(1)), None)).unwrap();
        conversation.say(removal(RemovedId::Consumer(consumer(2)), None)).unwrap();
        conversation.say(removal(RemovedId::Session(session()), None)).unwrap();
        conversation.say(removal(connection(), Some(77))).unwrap();
        let tickets: Vec<_> = conversation
            .events
            .drain(..)
            .filter_map(|event| match event {
                Event::Detach { ticket, .. } => ticket,
                Event::Disclaim { ticket, .. } => Some(ticket),
                _ => None,
            })
            .collect();
        let [first, second, third, name] = tickets[..] else { panic!("case: {case}: {tickets:?}") };
        // In any order: the first is answered last.
        for (number, ticket) in [(3, name), (2, third), (1, second), (0, first)] {
            assert!(conversation.read().is_none(), "case: {case}: before answer {number}");
            let reason = || Err(Refusal::StoreFailed { reason: "the disk".to_owned() });
            let result = if refused == Some(number) { reason() } else { Ok(()) };
            conversation.answer(ToSession::Reply { ticket, result });
        }
        let last = std::iter::from_fn(|| conversation.read()).last();
        let answer = match &last {
            Some(Command::Response(response)) => (response.correlation_id, true),
            Some(Command::ExceptionResponse(response)) => (response.correlation_id, false),
            other => panic!("case: {case}: {other:?}"),
        };
        assert_eq!(answer, (77, refused.is_none()), "case: {case}");
    }
}

#[test]
fn the_removal_of_a_connection_without_consumers_waits_for_its_name_alone() {
    let mut conversation = Conversation::known();
    let removed = RemovedId::Connection(ConnectionId { value: Some("ID:c".into()) });
    conversation.say(removal(removed, Some(77))).unwrap();
    let Some(Event::Disclaim { ticket, .. }) = conversation.events.pop() else { panic!("the name stays") };
    assert!(conversation.read().is_none());
    conversation.answer(ToSession::Reply { ticket, result: Ok(()) });
    assert!(matches!(conversation.read(), Some(Command::Response(answer)) if answer.correlation_id == 77));
}

#[test]
fn a_long_row_of_removals_is_answered_at_once() {
    let mut conversation = Conversation::known();
    let consumer = |value| ConsumerId { connection_id: Some("ID:c".into()), session_id: 1, value };
    const REMOVALS: i64 = 4000;
    for value in 0..REMOVALS {
        let info = ConsumerInfo {
            consumer_id: Some(consumer(value)),
            destination: Some(Destination::Queue("a".into())),
            ..ConsumerInfo::default()
        };
        conversation.say(info).unwrap();
        let Some(Event::Attach(attach)) = conversation.events.pop() else { panic!("no consumer") };
        conversation.answer(ToSession::Reply { ticket: attach.ticket, result: Ok(()) });
    }
    for value in 0..REMOVALS {
        conversation.say(removal(RemovedId::Consumer(consumer(value)), Some(value as i32 + 100))).unwrap();
    }
    let tickets: Vec<_> = conversation
        .events
        .drain(..)
        .filter_map(|event| if let Event::Detach { ticket, .. } = event { ticket } else { None })
        .collect();
    assert_eq!(tickets.len() as i64, REMOVALS);
    conversation.output.clear();
    for ticket in tickets.into_iter().rev() {
        assert!(conversation.output.is_empty(), "the first is the last to be answered");
        conversation.answer(ToSession::Reply { ticket, result: Ok(()) });
    }
    let answers: Vec<i32> = std::iter::from_fn(|| conversation.read())
        .map(|answer| match answer {
            Command::Response(response) => response.correlation_id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(answers, (100..100 + REMOVALS as i32).collect::<Vec<_>>());
}

fn local(value: i64) -> TransactionId {
    let connection_id = Some(ConnectionId { value: Some("ID:c".into()) });
    TransactionId::Local(LocalTransactionId { value, connection_id })
}

fn xa() -> TransactionId {
    TransactionId::Xa(Box::new(XaTransactionId {
        format_id: 1,
        global_transaction_id: Some(Bytes::from_static(b"g")),
        branch_qualifier: Some(Bytes::from_static(b"b")),
    }))
}

impl Conversation {
    /// A step of a transaction, whose answer the client waits for.
    fn step(&mut self, kind: u8, id: TransactionId) {
        let transaction_id = Some(id);
        let info = TransactionInfo {
            transaction_id,
            kind,
            command_id: 7,
            response_required: true,
            ..TransactionInfo::default()
        };
        self.say(info).unwrap();
    }

    /// The events of a command, in short, and the ticket of the last one that has any.
    fn told(&mut self) -> (Vec<String>, Option<Ticket>) {
        let mut last = None;
        let mut name = |event: Event| {
            let (name, ticket) = match event {
                Event::Publish(publish) => (
                    format!("publish in {:?}", publish.transaction.map(|key| key.number)),
                    Some(publish.ticket),
                ),
                Event::Commit { transaction, ticket, .. } => {
                    (format!("commit {}", transaction.number), Some(ticket))
                }
                Event::Rollback { transaction, ticket } => {
                    (format!("rollback {}", transaction.number), ticket)
                }
                Event::EndBranch { transaction, ticket, .. } => {
                    (format!("end {}", transaction.number), Some(ticket))
                }
                Event::PrepareBranch { ticket, .. } => ("prepare".to_owned(), Some(ticket)),
                Event::DecideBranch { decision, ticket, .. } => {
                    let name = match decision {
                        Decision::Rollback => "roll back",
                        _ => "go through with it",
                    };
                    (name.to_owned(), Some(ticket))
                }
                Event::Settle(settle) => (format!("settle {}", settle.tags.len()), settle.ticket),
                other => (format!("{other:?}"), None),
            };
            last = ticket.or(last);
            name
        };
        let names = self.events.drain(..).map(&mut name).collect();
        (names, last)
    }

    /// What the client reads next: nothing, an answer without error, or the error.
    fn heard(&mut self) -> Option<Result<(), String>> {
        Some(match self.read()? {
            Command::Response(_) | Command::IntegerResponse(_) => Ok(()),
            Command::ExceptionResponse(response) => Err(format!("{:?}", response.exception)),
            Command::ConnectionError(error) => Err(format!("{:?}", error.exception)),
            other => panic!("{other:?}"),
        })
    }

    /// The client reads an error with this text next.
    fn hears_of(&mut self, text: &str, case: &str) {
        let heard = self.heard();
        assert!(matches!(&heard, Some(Err(said)) if said.contains(text)), "case: {case}: {heard:?}");
    }
}

/// Messages that a session refuses itself, by the cause.
fn refusable() -> [(&'static str, Message); 4] {
    let mut marshalled = BytesMut::new();
    let period = ("AMQ_SCHEDULED_PERIOD".into(), Primitive::Long(-1));
    PrimitiveMap(vec![period]).encode(&mut marshalled).unwrap();
    let marshalled_properties = Some(marshalled.freeze());
    let list = (0..=1025).map(|number| format!("a{number}")).collect::<Vec<_>>().join(",");
    let to = |name: &str| Some(Destination::Queue(name.into()));
    [
        ("AMQ_SCHEDULED_PERIOD is -1", Message { marshalled_properties, ..message(2, 1) }),
        ("the destination has no name", Message { destination: to(""), ..message(2, 1) }),
        ("too many destinations", Message { destination: to(&list), ..message(2, 1) }),
        ("no message id", Message { message_id: None, ..message(2, 1) }),
    ]
}

#[test]
fn a_transaction_of_which_a_send_was_refused_can_only_be_rolled_back() {
    for (why, refused) in refusable() {
        let mut conversation = Conversation::known();
        let send = |conversation: &mut Conversation, message: &Message, id: TransactionId| {
            let sent = Message { transaction_id: Some(id), ..message.clone() };
            conversation.say(Command::Message(Box::new(sent))).unwrap();
        };
        let good = message(1, 1);
        for (value, commits) in [(1, true), (2, false)] {
            conversation.step(TransactionInfo::BEGIN, local(value));
            assert_eq!(conversation.heard(), Some(Ok(())));
            send(&mut conversation, &good, local(value));
            send(&mut conversation, &refused, local(value));
            conversation.hears_of(why, why);
            assert_eq!(conversation.told().0, [format!("publish in Some({value})")], "case: {why}");
            match commits {
                true => conversation.step(TransactionInfo::COMMIT_ONE_PHASE, local(value)),
                false => conversation.step(TransactionInfo::ROLLBACK, local(value)),
            }
            let (told, ticket) = conversation.told();
            assert_eq!(told, [format!("rollback {value}")], "case: {why}");
            match ticket {
                None => conversation.hears_of("TransactionRolledBackException", why),
                Some(ticket) => {
                    conversation.answer(ToSession::Reply { ticket, result: Ok(()) });
                    assert_eq!((conversation.heard(), commits), (Some(Ok(())), false), "case: {why}");
                }
            }
        }
        conversation.step(TransactionInfo::BEGIN, local(3));
        send(&mut conversation, &good, local(3));
        conversation.step(TransactionInfo::COMMIT_ONE_PHASE, local(3));
        assert_eq!(conversation.told().0, ["publish in Some(3)", "commit 3"], "case: {why}");
        conversation.output.clear();

        // A branch is rolled back at the end of the share.
        conversation.step(TransactionInfo::BEGIN, xa());
        send(&mut conversation, &refused, xa());
        conversation.step(TransactionInfo::END, xa());
        assert_eq!(conversation.told().0, ["end 4", "roll back"], "case: {why}");
        assert_eq!(conversation.heard(), Some(Ok(())), "case: {why}");
        conversation.hears_of(why, why);
        conversation.hears_of("xaErrorCode:103", why);
    }
}

#[test]
fn sessions_of_one_connection_share_a_branch_until_the_last_one_ends_its_work() {
    use TransactionInfo as Step;
    let (end, none) = (vec!["end 1".to_owned()], Vec::new());
    for (case, steps, want) in [
        ("one", vec![Step::BEGIN, Step::END], end.clone()),
        ("two, and one goes on", vec![Step::BEGIN, Step::BEGIN, Step::END], none.clone()),
        ("two", vec![Step::BEGIN, Step::BEGIN, Step::END, Step::END], end.clone()),
        (
            "one is suspended and resumes",
            vec![Step::BEGIN, Step::BEGIN, Step::END, Step::BEGIN, Step::END],
            none.clone(),
        ),
        ("both are suspended", vec![Step::BEGIN, Step::BEGIN, Step::END, Step::END, Step::END], end),
        (
            "prepared while one goes on",
            vec![Step::BEGIN, Step::BEGIN, Step::PREPARE, Step::END],
            vec!["end 1".to_owned(), "prepare".to_owned()],
        ),
        (
            "committed while one goes on",
            vec![Step::BEGIN, Step::BEGIN, Step::COMMIT_ONE_PHASE],
            vec!["end 1".to_owned(), "go through with it".to_owned()],
        ),
        (
            "rolled back while one goes on",
            vec![Step::BEGIN, Step::BEGIN, Step::ROLLBACK, Step::END],
            vec!["end 1".to_owned(), "roll back".to_owned()],
        ),
    ] {
        let mut conversation = Conversation::known();
        steps.into_iter().for_each(|kind| conversation.step(kind, xa()));
        assert_eq!(conversation.told().0, want, "case: {case}");
    }
}

#[test]
fn a_session_works_on_in_a_branch_that_another_one_of_its_connection_has_ended() {
    let mut conversation = Conversation::known();
    for kind in [TransactionInfo::BEGIN, TransactionInfo::BEGIN, TransactionInfo::END] {
        conversation.step(kind, xa());
        assert_eq!(conversation.heard(), Some(Ok(())));
    }
    let sent = Message { transaction_id: Some(xa()), ..message(1, 1) };
    conversation.say(Command::Message(Box::new(sent))).unwrap();
    conversation.step(TransactionInfo::END, xa());
    assert_eq!(conversation.told().0, ["publish in Some(1)", "end 1"]);
    // Work after all have ended is refused.
    conversation
        .say(Command::Message(Box::new(Message { transaction_id: Some(xa()), ..message(2, 1) })))
        .unwrap();
    conversation.hears_of("xaErrorCode:-4", "after the end");
}

#[test]
fn work_without_an_end_is_no_part_of_a_branch_that_another_connection_prepares() {
    let (mut first, mut second) = (Conversation::known(), Conversation::known());
    for kind in [TransactionInfo::BEGIN, TransactionInfo::BEGIN, TransactionInfo::END] {
        first.step(kind, xa());
    }
    second.step(TransactionInfo::PREPARE, xa());
    assert_eq!((first.told().0.len(), second.told().0), (0, vec!["prepare".to_owned()]));
    first.output.clear();
    first.step(TransactionInfo::END, xa());
    let (told, ticket) = first.told();
    assert_eq!(told, ["end 1"]);
    let result = Err(Refusal::BranchClosed);
    first.answer(ToSession::Reply { ticket: ticket.unwrap(), result });
    first.hears_of("xaErrorCode:-6", "its end comes too late");
}

/// A consumer that has got two messages: its id, and theirs in the order of the dispatch.
fn with_two_messages(conversation: &mut Conversation) -> (ConsumerId, [MessageId; 2]) {
    let consumer_id = ConsumerId { connection_id: Some("ID:c".into()), session_id: 1, value: 1 };
    let info = ConsumerInfo {
        consumer_id: Some(consumer_id.clone()),
        destination: Some(Destination::Queue("a".into())),
        prefetch_size: 10,
        ..ConsumerInfo::default()
    };
    conversation.say(info).unwrap();
    let attach = conversation.events.drain(..).find_map(|event| match event {
        Event::Attach(attach) => Some(attach),
        _ => None,
    });
    let attach = attach.unwrap();
    conversation.answer(ToSession::Reply { ticket: attach.ticket, result: Ok(()) });
    conversation.output.clear();
    let ids = [1, 2].map(|tag| {
        conversation.answer(ToSession::Deliver(delivery(attach.consumer, tag)));
        let Some(Command::MessageDispatch(dispatch)) = conversation.read() else { panic!("no message") };
        dispatch.message.and_then(|message| message.message_id).unwrap()
    });
    conversation.events.clear();
    (consumer_id, ids)
}

fn delivery(consumer: ConsumerKey, tag: u64) -> Delivery {
    Delivery {
        consumer,
        source: None,
        tag: EntryTag(tag),
        queue: (PartitionId(0), QueueId(0)),
        failed_deliveries: 0,
        by_policy: false,
        first_of_group: false,
        trace: None,
        message: Stored {
            encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(b"x"),
        },
    }
}

#[test]
fn an_acknowledgement_against_the_order_of_the_dispatch_is_refused_with_its_transaction() {
    let refused = "dispatched after its last";
    for (case, ack_type, transaction, is_refused) in [
        ("standard", MessageAck::STANDARD, None, true),
        ("standard in a transaction", MessageAck::STANDARD, Some(local(1)), true),
        ("poison in a transaction", MessageAck::POISON, Some(local(1)), true),
        ("delivered in a transaction", MessageAck::DELIVERED, Some(local(1)), false),
        ("redelivered in a transaction", MessageAck::REDELIVERED, Some(local(1)), false),
    ] {
        let mut conversation = Conversation::known();
        let (consumer_id, [first, second]) = with_two_messages(&mut conversation);
        conversation.step(TransactionInfo::BEGIN, local(1));
        assert_eq!(conversation.heard(), Some(Ok(())));
        let is_in_transaction = transaction.is_some();
        let ack = MessageAck {
            consumer_id: Some(consumer_id),
            destination: Some(Destination::Queue("a".into())),
            transaction_id: transaction,
            ack_type,
            first_message_id: Some(second),
            last_message_id: Some(first),
            message_count: 2,
            ..MessageAck::default()
        };
        conversation.say(ack).unwrap();
        assert!(!conversation.told().0.iter().any(|told| told.contains("settle")), "case: {case}");
        match is_refused {
            true => conversation.hears_of(refused, case),
            false => assert_eq!(conversation.heard(), None, "case: {case}"),
        }
        conversation.step(TransactionInfo::COMMIT_ONE_PHASE, local(1));
        let want = if is_refused && is_in_transaction { "rollback 1" } else { "commit 1" };
        assert_eq!(conversation.told().0, [want], "case: {case}");
    }
}

//! Whole connections: input of the client, events for the core, output to the client.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_amqp::codec::{
    Accepted, Attach, Begin, Close, Coordinator, Declare, DeliveryState, Described, Detach, Discharge,
    Disposition, DistributionMode, End, Field, Flow, Frame, FrameKind, Header, Modified, Open, Performative,
    Reader, ReceiverSettleMode, Role, SaslCode, SaslFrame, SaslInit, SaslResponse, SenderSettleMode, Source,
    SourceTerminus, Symbol, Target, TargetTerminus, TerminusDurability, TerminusExpiry, TransactionalState,
    Transfer, Value, ValueMap, begin_frame, end_frame, take_frame,
};
use postroad_amqp::{AmqpOptions, AmqpSession};
use postroad_model::portable::{Portable, TranslationError};
use postroad_model::{
    Chunks, ConnectionId, ConsumerKey, Delivered, Delivery, Destination, DetachCause, Elsewhere, Encoding,
    Endpoint, EntryTag, Event, LinkDelivery, LinkEvent, LinkName, Login, LoginAnswer, Message, Now, Outcome,
    Parting, Position, Principal, Protocol, Refusal, ResumeLink, Session, Settle, Ticket, ToSession,
    Underway,
};

const MAX_MESSAGE_BYTES: u64 = 10_000;
const BODY: &[u8] = b"\0\x53\x77\xa1\x01a";

fn foreign(message: &Message) -> Result<Portable, TranslationError> {
    let protocol = message.encoding.protocol;
    Err(TranslationError::Unreadable { protocol, reason: "no words".to_owned() })
}

/// A session, and the client's and the core's side of it.
struct Bench {
    session: AmqpSession,
    events: Vec<Event>,
    output: BytesMut,
    input: BytesMut,
    now: Now,
    parting: Option<Parting>,
}

impl Bench {
    fn options() -> AmqpOptions {
        AmqpOptions {
            max_frame_bytes: 4096,
            max_message_bytes: MAX_MESSAGE_BYTES,
            large_message_bytes: u64::MAX,
            max_inactivity_ms: 60_000,
            broker_name: "postroad".to_owned(),
            mechanisms: vec!["PLAIN", "ANONYMOUS"],
            must_login: false,
            has_users: false,
            partitions: 1,
            elsewhere: None,
        }
    }

    fn new() -> Bench {
        Bench::with(Bench::options())
    }

    fn with(options: AmqpOptions) -> Bench {
        Bench {
            session: AmqpSession::new(ConnectionId::new(0, 1), options, foreign),
            events: Vec::new(),
            output: BytesMut::new(),
            input: BytesMut::new(),
            now: Now::default(),
            parting: None,
        }
    }

    /// With both opens exchanged, and one channel begun.
    fn begun() -> Bench {
        Bench::begun_with(Begin { incoming_window: 100, outgoing_window: 100, ..Begin::default() })
    }

    fn begun_with(begin: Begin) -> Bench {
        Bench::begun_as(Bench::options(), begin)
    }

    fn begun_as(options: AmqpOptions, begin: Begin) -> Bench {
        let mut bench = Bench::with(options);
        bench.bytes(b"AMQP\0\x01\0\0");
        bench.send(Open { container_id: "client".into(), max_frame_size: 1024, ..Open::default() });
        bench.send(begin);
        let frames = bench.frames();
        assert!(
            matches!(frames[..], [Performative::Open(_), Performative::Begin(_)]) && bench.parting.is_none(),
            "{frames:?}"
        );
        bench
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let result = self.session.receive(&mut self.input, self.now, &mut self.events, &mut self.output);
        self.parting = self.parting.take().or(result.err());
    }

    /// Answers the client's credentials.
    fn admit(&mut self, answer: LoginAnswer) {
        let result = self.session.admit(answer, self.now, &mut self.events, &mut self.output);
        self.parting = self.parting.take().or(result.err());
        self.bytes(b"");
    }

    fn send(&mut self, performative: impl Into<Performative>) {
        self.send_on(0, performative, b"");
    }

    fn send_on(&mut self, channel: u16, performative: impl Into<Performative>, payload: &[u8]) {
        let mut out = BytesMut::new();
        let start = begin_frame(FrameKind::Amqp { channel }, &mut out);
        performative.into().write(&mut out);
        out.extend_from_slice(payload);
        end_frame(start, &mut out);
        self.bytes(&out);
    }

    fn answer(&mut self, message: ToSession) {
        let result = self.session.answer(message, self.now, &mut self.events, &mut self.output);
        self.parting = self.parting.take().or(result.err());
    }

    fn reply(&mut self, ticket: Ticket, result: Result<(), Refusal>) {
        self.answer(ToSession::Reply { ticket, result });
    }

    fn deliver(&mut self, number: u32, tag: u64, protocol: Protocol) {
        self.deliver_to(key(number), tag, protocol);
    }

    fn deliver_to(&mut self, consumer: ConsumerKey, tag: u64, protocol: Protocol) {
        let message = Message {
            encoding: Encoding { protocol, version: 0 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(BODY),
        };
        let delivery = Delivery {
            consumer,
            source: None,
            tag: EntryTag(tag),
            queue: (postroad_model::PartitionId(0), postroad_model::QueueId(0)),
            failed_deliveries: 0,
            by_policy: false,
            first_of_group: false,
            trace: None,
            message,
        };
        self.answer(ToSession::Deliver(delivery));
    }

    /// A message of an empty header, whose body is to come.
    fn deliver_large(&mut self, number: u32, bytes: u64) {
        let positions = [3, 4].into_iter().filter_map(Position::new).collect();
        let chunks = Some(Arc::new(Chunks { bytes, piece_bytes: 2000, positions }));
        let message = Message {
            encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(b"\0\x53\x70\x45"),
        };
        let delivery = Delivery {
            consumer: key(number),
            source: None,
            tag: EntryTag(1),
            queue: (postroad_model::PartitionId(0), postroad_model::QueueId(0)),
            failed_deliveries: 0,
            by_policy: false,
            first_of_group: false,
            trace: None,
            message: message.with_chunks(chunks),
        };
        assert_eq!(self.session.streams(), Some(Protocol::Amqp));
        self.answer(ToSession::Deliver(delivery));
    }

    /// Output to the client, without headers of layers.
    fn read(&mut self) -> Vec<Frame> {
        let mut output = std::mem::take(&mut self.output);
        let mut frames = Vec::new();
        while !output.is_empty() {
            if output.starts_with(b"AMQP") {
                let _ = output.split_to(8);
                continue;
            }
            frames.push(take_frame(&mut output, 1 << 20).expect("frames").expect("whole ones"));
        }
        frames
    }

    fn frames(&mut self) -> Vec<Performative> {
        let performative =
            |frame: Frame| Performative::read(&mut Reader::new(&frame.body)).expect("performatives");
        self.read().into_iter().map(performative).collect()
    }

    /// Events for the core, without notices.
    fn events(&mut self) -> Vec<Event> {
        let events = std::mem::take(&mut self.events);
        events.into_iter().filter(|event| !is_for_others(event)).collect()
    }

    /// A link by which the client sends.
    fn sender(&mut self, handle: u32, target: TargetTerminus) {
        self.send(Attach {
            name: format!("sender-{handle}").into(),
            handle,
            role: Role::Sender,
            source: Some(SourceTerminus::Source(Source::default())),
            target: Some(target),
            initial_delivery_count: Some(0),
            ..Attach::default()
        });
    }

    /// A coordinator link by this handle, and a transaction declared on it: its id.
    fn declares(&mut self, handle: u32) -> Bytes {
        self.sender(handle, TargetTerminus::Coordinator(Coordinator::default()));
        self.send_on(0, Transfer { handle, ..transfer(handle) }, &coordinator_message(Declare::default()));
        let frames = self.frames();
        let declared = frames.iter().find_map(|frame| match frame {
            Performative::Disposition(Disposition { state: Some(DeliveryState::Declared(it)), .. }) => {
                Some(it.txn_id.clone())
            }
            _ => None,
        });
        declared.unwrap_or_else(|| panic!("{frames:?}"))
    }

    /// A link by which the client receives from the queue "q", attached; the core's number for it.
    fn receiver(&mut self, attach: Attach) -> u32 {
        self.send(receiver(attach));
        let events = self.events();
        let [Event::Attach(attach)] = &events[..] else { panic!("{events:?}") };
        self.reply(attach.ticket, Ok(()));
        let frames = self.frames();
        assert!(matches!(frames[..], [Performative::Attach(_)]), "{frames:?}");
        attach.consumer.number
    }
}

/// Whether the event only says who is there.
fn is_for_others(event: &Event) -> bool {
    matches!(event, Event::Introduce { .. } | Event::AddProducer { .. } | Event::RemoveProducer { .. })
}

#[test]
fn others_are_told_who_is_there() {
    let mut bench = Bench::begun();
    bench.sender(1, target("a"));
    bench.send(Detach { handle: 1, closed: true, ..Detach::default() });
    let said = |event: &Event| match event {
        Event::Introduce { client, .. } => format!("client {} {}", client.name, client.client_id),
        Event::AddProducer { producer, .. } => format!("{} sends to {}", producer.name, producer.to),
        Event::RemoveProducer { producer, .. } => format!("{} is gone", producer.name),
        other => format!("{other:?}"),
    };
    let said: Vec<String> = std::mem::take(&mut bench.events).iter().map(said).collect();
    let want = [
        "client AMQP:client:0:1 client",
        "AMQP:client:0:1:0:2 sends to queue://a",
        "AMQP:client:0:1:0:2 is gone",
    ];
    assert_eq!(said, want);
}

#[test]
fn an_address_is_read_as_openwire_clients_write_it() {
    let mut bench = Bench::begun();
    bench.sender(0, target(" b?x=1, topic://c "));
    bench.events();
    bench.send_on(0, transfer(0), BODY);
    let events = bench.events();
    let [Event::Publish(publish)] = &events[..] else { panic!("{events:?}") };
    let sent = (publish.sent.to.clone(), publish.sent.also.clone());
    assert_eq!(sent, (Destination::queue("b"), vec![Destination::topic("c")]));
    let source = Source { address: Some("b, queue://d?y=2 ,b".into()), ..Source::default() };
    let source = Some(SourceTerminus::Source(source));
    bench.send(Attach { name: "list".into(), handle: 2, role: Role::Receiver, source, ..Attach::default() });
    let source_of = |event: &Event| match event {
        Event::Attach(attach) => attach.source.clone(),
        other => panic!("{other:?}"),
    };
    let sources: Vec<Destination> = bench.events().iter().map(source_of).collect();
    assert_eq!(sources, [Destination::queue("b"), Destination::queue("d")]);
}

fn key(number: u32) -> ConsumerKey {
    ConsumerKey::new(ConnectionId::new(0, 1), number)
}

fn receiver(attach: Attach) -> Attach {
    let source = Source { address: Some("q".into()), ..Source::default() };
    Attach {
        name: "receiver".into(),
        role: Role::Receiver,
        source: Some(SourceTerminus::Source(source)),
        target: Some(TargetTerminus::Target(Target::default())),
        ..attach
    }
}

fn target(address: &str) -> TargetTerminus {
    TargetTerminus::Target(Target { address: Some(address.into()), ..Target::default() })
}

fn transfer(delivery: u32) -> Transfer {
    Transfer {
        delivery_id: Some(delivery),
        delivery_tag: Some(Bytes::copy_from_slice(&delivery.to_be_bytes())),
        ..Transfer::default()
    }
}

fn condition(error: &Option<postroad_amqp::codec::Error>) -> Option<&str> {
    error.as_ref().map(|error| error.condition.as_str())
}

/// Frames that end something, with their errors.
fn ends(frames: &[Performative]) -> Vec<(&'static str, Option<&str>)> {
    let end = |frame| match frame {
        &Performative::Close(Close { ref error }) => Some(("close", condition(error))),
        Performative::End(End { error }) => Some(("end", condition(error))),
        Performative::Detach(Detach { error, .. }) => Some(("detach", condition(error))),
        _ => None,
    };
    frames.iter().filter_map(end).collect()
}

fn settles(events: &[Event]) -> Vec<(Vec<u64>, Outcome)> {
    let settle = |event: &Event| match event {
        Event::Settle(Settle { tags, outcome, .. }) => {
            Some((tags.iter().map(|tag| tag.0).collect(), *outcome))
        }
        _ => None,
    };
    events.iter().filter_map(settle).collect()
}

fn sasl_frame(frame: impl Into<SaslFrame>) -> BytesMut {
    let mut out = BytesMut::new();
    let start = begin_frame(FrameKind::Sasl, &mut out);
    frame.into().write(&mut out);
    end_frame(start, &mut out);
    out
}

fn sasl_init(mechanism: &'static str, response: Option<&'static [u8]>) -> BytesMut {
    let initial_response = response.map(Bytes::from_static);
    sasl_frame(SaslInit { mechanism: Symbol::from_static(mechanism), initial_response, hostname: None })
}

fn fault(text: &str) -> Option<Parting> {
    Some(Parting::Fault(text.to_owned()))
}

#[test]
fn layers_are_negotiated_or_named() {
    let external = Login::Begin { mechanism: "EXTERNAL".into(), response: Some(Bytes::new()) };
    let sasl = [&b"AMQP\x03\x01\0\0"[..], &sasl_init("EXTERNAL", Some(b""))].concat();
    for (case, bytes, login, parting) in [
        ("no SASL", b"AMQP\0\x01\0\0".to_vec(), None, None),
        ("half a header", b"AMQP\0".to_vec(), None, None),
        ("SASL", sasl, Some(external), None),
        (
            "TLS",
            b"AMQP\x02\x01\0\0".to_vec(),
            None,
            fault("the peer requests TLS, which is not configured on this port"),
        ),
        (
            "AMQP 0-9-1",
            b"AMQP\0\0\x09\x01".to_vec(),
            None,
            fault("the peer speaks AMQP 0.9.1; this port speaks 1.0.0"),
        ),
        ("HTTP", b"GET / HTTP/1.1\r\n".to_vec(), None, fault("the peer speaks HTTP; this port speaks AMQP")),
        (
            "noise",
            b"noise".to_vec(),
            None,
            fault("the peer does not speak AMQP: its first bytes are not a protocol header"),
        ),
    ] {
        let mut bench = Bench::new();
        bench.bytes(&bytes);
        assert_eq!(bench.session.login(), login, "case: {case}");
        if parting.is_some() {
            assert_eq!(&bench.output[..], b"AMQP\0\x01\0\0", "case: {case}: what is supported");
        }
        assert_eq!(bench.parting, parting, "case: {case}");
    }
}

impl Bench {
    fn sasl_frames(&mut self) -> Vec<SaslFrame> {
        let frame = |frame: Frame| SaslFrame::read(&mut Reader::new(&frame.body)).expect("SASL frames");
        self.read().into_iter().map(frame).collect()
    }

    /// With the mechanisms offered, and one chosen.
    fn choosing(mechanism: &'static str, response: Option<&'static [u8]>) -> Bench {
        let mut bench = Bench::new();
        bench.bytes(b"AMQP\x03\x01\0\0");
        let offered = bench.sasl_frames();
        let [SaslFrame::SaslMechanisms(offered)] = &offered[..] else { panic!("{offered:?}") };
        let names: Vec<&str> = offered.sasl_server_mechanisms.iter().map(Symbol::as_str).collect();
        assert_eq!(names, ["PLAIN", "ANONYMOUS"]);
        bench.bytes(&sasl_init(mechanism, response));
        bench
    }
}

#[test]
fn what_a_client_says_of_itself_is_answered_from_outside() {
    let mut bench = Bench::choosing("SCRAM-SHA-256", Some(b"first"));
    let first =
        Login::Begin { mechanism: "SCRAM-SHA-256".into(), response: Some(Bytes::from_static(b"first")) };
    assert_eq!((bench.session.login(), bench.session.login()), (Some(first), None));
    // Input before the answer waits for it.
    assert!(!bench.session.takes_input());
    bench.bytes(&sasl_frame(SaslResponse { response: Bytes::from_static(b"last") }));
    assert_eq!(bench.session.login(), None);
    bench.admit(LoginAnswer::Challenge(Bytes::from_static(b"prove it")));
    let frames = bench.sasl_frames();
    let [SaslFrame::SaslChallenge(challenge)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(&challenge.challenge[..], b"prove it");
    assert_eq!(bench.session.login(), Some(Login::Continue { response: Bytes::from_static(b"last") }));
    assert!(!bench.session.is_known());
    bench.admit(LoginAnswer::Welcome {
        principal: Principal::User("me".into()),
        last: Some(Bytes::from_static(b"so do I")),
    });
    let frames = bench.sasl_frames();
    let [SaslFrame::SaslOutcome(outcome)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((outcome.code, outcome.additional_data.as_deref()), (SaslCode::Ok, Some(&b"so do I"[..])));
    assert!(bench.session.is_known());
    bench.bytes(b"AMQP\0\x01\0\0");
    bench.send(Open { container_id: "client".into(), ..Open::default() });
    let frames = bench.frames();
    assert!(matches!(frames[..], [Performative::Open(_)]) && bench.parting.is_none(), "{frames:?}");
}

#[test]
fn whoever_does_not_say_who_it_is_learns_no_more_than_that() {
    let mut bench = Bench::choosing("PLAIN", Some(b"\0me\0wrong"));
    bench.admit(LoginAnswer::Refused { reason: "no such user".to_owned() });
    let frames = bench.sasl_frames();
    let [SaslFrame::SaslOutcome(outcome)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((outcome.code, &outcome.additional_data), (SaslCode::Auth, &None));
    assert_eq!(bench.parting, fault("SASL failed: no such user"));

    let mut bench = Bench::choosing("PLAIN", None);
    bench.admit(LoginAnswer::Challenge(Bytes::new()));
    bench.bytes(b"\0\0\0\x08\x02\x01\0\0");
    let Some(Parting::Fault(reason)) = &bench.parting else { panic!("{:?}", bench.parting) };
    assert!(reason.starts_with("SASL: "), "an empty frame is the end: {reason}");

    let mut bench = Bench::choosing("PLAIN", None);
    assert!(bench.session.login().is_some());
    bench.admit(LoginAnswer::Challenge(Bytes::new()));
    bench.bytes(&sasl_init("PLAIN", None));
    assert_eq!(bench.parting, fault("SASL: SaslInit was not expected"));

    for (header, reason) in [
        (b"AMQP\0\x01\0\0", "the peer does not authenticate: no SASL layer"),
        (b"AMQP\x02\x01\0\0", "the peer requests TLS, which is not configured on this port"),
    ] {
        let mut bench = Bench::with(AmqpOptions { must_login: true, ..Bench::options() });
        bench.bytes(header);
        assert_eq!((bench.parting, &bench.output[..]), (fault(reason), &b"AMQP\x03\x01\0\0"[..]));
    }
}

#[test]
fn what_a_client_that_closes_has_not_settled_goes_back_uncounted() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach::default());
    bench.send(Flow { handle: Some(0), link_credit: Some(2), ..windows() });
    bench.events();
    bench.deliver(number, 1, Protocol::Amqp);
    bench.send(Close::default());
    let events = bench.events();
    let [Event::Detach { consumer, delivered: Delivered::None, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((consumer, &bench.parting), (&key(number), &Some(Parting::Farewell)));
}

#[test]
fn frames_sent_ahead_of_their_answers_are_taken_in_order() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    bench.send_on(0, transfer(0), BODY);
    bench.send_on(0, Transfer { settled: Some(true), ..transfer(1) }, BODY);
    let events = bench.events();
    let [Event::Publish(first), Event::Publish(second)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(first.sent.message.bytes, BODY);
    bench.reply(second.ticket, Ok(()));
    bench.reply(first.ticket, Ok(()));
    let frames = bench.frames();
    let [Performative::Attach(attach), Performative::Flow(flow), Performative::Disposition(confirmed)] =
        &frames[..]
    else {
        panic!("{frames:?}")
    };
    assert_eq!((attach.role, flow.handle, flow.link_credit), (Role::Receiver, Some(0), Some(1000)));
    assert_eq!((confirmed.first, confirmed.last, confirmed.settled), (0, None, true));
    assert_eq!(confirmed.state, Some(DeliveryState::Accepted(Accepted {})));
}

#[test]
fn what_is_wrong_ends_as_much_as_it_must() {
    type Steps = fn(&mut Bench);
    let cases: &[(&str, Steps, &str, &str)] = &[
        ("second open", |bench| bench.send(Open::default()), "close", "amqp:not-allowed"),
        (
            "channel that was not begun",
            |bench| bench.send_on(7, Flow::default(), b""),
            "close",
            "amqp:not-allowed",
        ),
        (
            "open on another channel than 0",
            |bench| bench.send_on(7, Open::default(), b""),
            "close",
            "amqp:connection:framing-error",
        ),
        (
            "begin that answers one of ours, and there was none",
            |bench| bench.send_on(1, Begin { remote_channel: Some(3), ..Begin::default() }, b""),
            "close",
            "amqp:invalid-field",
        ),
        (
            "flow of a channel above the agreed",
            |bench| bench.send_on(4096, windows(), b""),
            "close",
            "amqp:connection:framing-error",
        ),
        ("channel begun twice", |bench| bench.send(Begin::default()), "close", "amqp:not-allowed"),
        (
            "channel above the agreed",
            |bench| bench.send_on(65_535, Begin::default(), b""),
            "close",
            "amqp:connection:framing-error",
        ),
        (
            "frame above the agreed",
            |bench| bench.bytes(b"\0\0\x10\x01\x02\0\0\0"),
            "close",
            "amqp:connection:framing-error",
        ),
        (
            "no performative",
            |bench| bench.bytes(b"\0\0\0\x0a\x02\0\0\0\x40\x40"),
            "close",
            "amqp:decode-error",
        ),
        (
            "bytes behind a begin",
            |bench| bench.send_on(1, Begin::default(), b"x"),
            "close",
            "amqp:connection:framing-error",
        ),
        (
            "handle above the agreed",
            |bench| bench.sender(1 << 20, target("q")),
            "close",
            "amqp:connection:framing-error",
        ),
        (
            "handle in use",
            |bench| {
                bench.sender(0, target("q"));
                bench.sender(0, target("q"));
            },
            "end",
            "amqp:session:handle-in-use",
        ),
        (
            "no such link",
            |bench| bench.send_on(0, transfer(0), BODY),
            "end",
            "amqp:session:unattached-handle",
        ),
        (
            "flow of no such link",
            |bench| bench.send(Flow { handle: Some(7), ..windows() }),
            "end",
            "amqp:session:unattached-handle",
        ),
        ("detach of nothing", |bench| bench.send(Detach::default()), "end", "amqp:session:unattached-handle"),
        (
            "transfer without a number",
            |bench| {
                bench.sender(0, target("q"));
                bench.send_on(0, Transfer::default(), BODY);
            },
            "end",
            "amqp:invalid-field",
        ),
        (
            "delivery tag above 32 bytes",
            |bench| {
                bench.sender(0, target("q"));
                let delivery_tag = Some(Bytes::from_static(&[7; 33]));
                bench.send_on(0, Transfer { delivery_tag, ..transfer(0) }, BODY);
            },
            "end",
            "amqp:invalid-field",
        ),
        (
            "another delivery before the end of the previous one",
            |bench| {
                bench.sender(0, target("q"));
                bench.send_on(0, Transfer { more: true, ..transfer(0) }, BODY);
                bench.send_on(0, transfer(1), BODY);
            },
            "end",
            "amqp:not-allowed",
        ),
        (
            "unknown transaction",
            |bench| {
                bench.receiver(Attach::default());
                bench.send(Flow { handle: Some(0), link_credit: Some(1), ..windows() });
                bench.deliver(3, 1, Protocol::Amqp);
                let state = TransactionalState { txn_id: Bytes::from_static(b"no"), outcome: None };
                bench.send(verdict(0, None, true, Some(DeliveryState::TransactionalState(state))));
            },
            "end",
            "amqp:transaction:unknown-id",
        ),
        (
            "attach whose answer fits no frame of the client",
            |bench| {
                bench.send(Attach {
                    name: "n".repeat(2000).into(),
                    target: Some(target("q")),
                    ..Attach::default()
                })
            },
            "end",
            "amqp:frame-size-too-small",
        ),
        (
            "acquisition in a transaction",
            |bench| {
                bench.receiver(Attach::default());
                let mut properties = ValueMap::default();
                properties.push("txn-id", Value::Binary(Bytes::from_static(b"t")));
                bench.send(Flow { handle: Some(0), properties: Some(properties), ..windows() });
            },
            "detach",
            "amqp:not-implemented",
        ),
        (
            "one delivery in two transactions",
            |bench| {
                let (first, second) = (bench.declares(8), bench.declares(9));
                let number = bench.receiver(Attach::default());
                bench.send(Flow { handle: Some(0), link_credit: Some(1), ..windows() });
                bench.deliver(number, 1, Protocol::Amqp);
                for txn_id in [first, second] {
                    let state = TransactionalState { txn_id, outcome: None };
                    bench.send(verdict(0, None, false, Some(DeliveryState::TransactionalState(state))));
                }
            },
            "detach",
            "amqp:transaction:rollback",
        ),
        (
            "end of a transaction in the middle of a message",
            |bench| {
                let txn_id = bench.declares(8);
                bench.sender(0, target("q"));
                let state = TransactionalState { txn_id: txn_id.clone(), outcome: None };
                let state = Some(DeliveryState::TransactionalState(state));
                bench.send_on(0, Transfer { state, more: true, ..transfer(1) }, BODY);
                let discharge = coordinator_message(Discharge { txn_id, fail: true });
                bench.send_on(0, Transfer { handle: 8, ..transfer(2) }, &discharge);
            },
            "detach",
            "amqp:transaction:rollback",
        ),
        (
            "no target",
            |bench| bench.send(Attach { name: "x".into(), role: Role::Sender, ..Attach::default() }),
            "detach",
            "amqp:invalid-field",
        ),
        ("no name", |bench| bench.sender(0, target("queue://")), "detach", "amqp:invalid-field"),
        (
            "message above the agreed",
            |bench| {
                bench.sender(0, target("q"));
                let part = vec![0; 3000];
                (0..4).for_each(|_| bench.send_on(0, Transfer { more: true, ..transfer(0) }, &part));
            },
            "detach",
            "amqp:link:message-size-exceeded",
        ),
        (
            "unfinished messages above the agreed",
            |bench| {
                for handle in 0..4 {
                    bench.sender(handle, target("q"));
                    let transfer = Transfer { handle, more: true, ..transfer(handle) };
                    bench.send_on(0, transfer, &[0; 3000]);
                }
            },
            "detach",
            "amqp:resource-limit-exceeded",
        ),
        (
            "link of the same name",
            |bench| {
                bench.sender(0, target("q"));
                bench.send(Attach {
                    name: "sender-0".into(),
                    handle: 1,
                    target: Some(target("q")),
                    ..Attach::default()
                });
            },
            "detach",
            "amqp:link:stolen",
        ),
        (
            "a message that its settled sender will not hear of",
            |bench| {
                bench.sender(0, target("q"));
                bench.send_on(0, Transfer { settled: Some(true), ..transfer(0) }, b"noise");
            },
            "detach",
            "amqp:decode-error",
        ),
    ];
    for (case, steps, what, why) in cases {
        let mut bench = Bench::begun();
        steps(&mut bench);
        let frames = bench.frames();
        assert_eq!(ends(&frames), [(*what, Some(*why))], "case: {case}: {frames:?}");
        assert_eq!(matches!(bench.parting, Some(Parting::Fault(_))), *what == "close", "case: {case}");
    }
}

fn windows() -> Flow {
    Flow { next_incoming_id: Some(0), incoming_window: 100, outgoing_window: 100, ..Flow::default() }
}

fn verdict(first: u32, last: Option<u32>, settled: bool, state: Option<DeliveryState>) -> Disposition {
    Disposition { role: Role::Receiver, first, last, settled, state, batchable: false }
}

#[test]
fn an_answer_says_how_long_the_source_lasts() {
    let lasting = |durable, expiry_policy| Source {
        address: Some("topic://t".into()),
        durable,
        expiry_policy,
        timeout: 60,
        ..Source::default()
    };
    let (durable, none) = (TerminusDurability::UnsettledState, TerminusDurability::None);
    for (case, source, want) in [
        ("a durable subscription", lasting(durable, TerminusExpiry::Never), (durable, TerminusExpiry::Never)),
        (
            "one that is not durable",
            lasting(none, TerminusExpiry::SessionEnd),
            (none, TerminusExpiry::LinkDetach),
        ),
        (
            "a queue keeps nothing for one link",
            Source { address: Some("q".into()), ..lasting(durable, TerminusExpiry::Never) },
            (none, TerminusExpiry::LinkDetach),
        ),
    ] {
        let mut bench = Bench::begun();
        bench.send(Attach { source: Some(SourceTerminus::Source(source)), ..receiver(Attach::default()) });
        let events = bench.events();
        let [Event::Attach(attach)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(attach.steals, attach.subscription.as_ref().map(|_| "".into()), "case: {case}");
        bench.reply(attach.ticket, Ok(()));
        let frames = bench.frames();
        let [Performative::Attach(Attach { source: Some(SourceTerminus::Source(got)), .. })] = &frames[..]
        else {
            panic!("{frames:?}")
        };
        assert_eq!((got.durable, got.expiry_policy, got.timeout), (want.0, want.1, 0), "case: {case}");
    }
}

#[test]
fn a_link_that_the_core_ends_says_why() {
    for (cause, want) in [
        (DetachCause::Deleted, "amqp:resource-deleted"),
        (DetachCause::Slow, "amqp:link:detach-forced"),
        (DetachCause::PatternTooWide, "amqp:resource-limit-exceeded"),
        (DetachCause::Stolen, "amqp:link:stolen"),
    ] {
        let mut bench = Bench::begun();
        let number = bench.receiver(Attach::default());
        bench.answer(ToSession::Detached { consumer: key(number), cause });
        assert_eq!(ends(&bench.frames()), [("detach", Some(want))]);
        // Its client sees it, and may attach again.
        bench.send(Detach { handle: 0, closed: true, ..Detach::default() });
        bench.events();
        bench.receiver(Attach::default());
    }
}

#[test]
fn nothing_is_said_ahead_of_an_open() {
    let mut bench = Bench::new();
    bench.bytes(b"AMQP\0\x01\0\0");
    bench.send(Begin::default());
    let frames = bench.frames();
    assert!(matches!(frames[..], [Performative::Open(_), Performative::Close(_)]), "{frames:?}");
    assert_eq!(ends(&frames), [("close", Some("amqp:connection:framing-error"))]);
}

#[test]
fn a_frame_size_below_the_least_is_refused() {
    for (max_frame_size, want) in [(512, vec![]), (511, vec![("close", Some("amqp:invalid-field"))])] {
        let mut bench = Bench::new();
        bench.bytes(b"AMQP\0\x01\0\0");
        bench.send(Open { container_id: "c".into(), max_frame_size, ..Open::default() });
        assert_eq!(ends(&bench.frames()), want, "{max_frame_size}");
    }
}

#[test]
fn a_link_without_credit_takes_no_transfers() {
    let mut bench = Bench::begun();
    bench.sender(0, TargetTerminus::Target(Target { dynamic: true, ..Target::default() }));
    // The node is being made: credit comes once it is there.
    bench.send_on(0, transfer(0), BODY);
    assert_eq!(ends(&bench.frames()), [("detach", Some("amqp:link:transfer-limit-exceeded"))]);
}

#[test]
fn the_core_gets_the_credit_that_the_window_can_carry() {
    let begin = Begin { incoming_window: 2, outgoing_window: 100, ..Begin::default() };
    let mut bench = Bench::begun_with(begin);
    let number = bench.receiver(Attach::default());
    let credit = |events: &[Event]| -> Vec<u32> {
        let add = |event: &Event| match event {
            Event::Credit { add, .. } => Some(*add),
            _ => None,
        };
        events.iter().filter_map(add).collect()
    };
    bench.send(Flow { incoming_window: 2, handle: Some(0), link_credit: Some(u32::MAX), ..windows() });
    assert_eq!(credit(&bench.events()), [2], "no more than the window");
    bench.deliver(number, 1, Protocol::Amqp);
    bench.deliver(number, 2, Protocol::Amqp);
    assert_eq!(bench.frames().len(), 2);
    // A flow that was written before the second arrived leaves one place.
    bench.send(Flow { next_incoming_id: Some(1), incoming_window: 2, ..windows() });
    assert_eq!(credit(&bench.events()), [1]);
    bench.send(Flow { next_incoming_id: Some(2), incoming_window: 5000, ..windows() });
    assert_eq!(credit(&bench.events()), [2047], "and no more than one promise");
}

#[test]
fn what_the_window_does_not_take_waits_for_the_next_flow() {
    let mut bench = Bench::begun_with(Begin { incoming_window: 1, outgoing_window: 9, ..Begin::default() });
    let number = bench.receiver(Attach::default());
    bench.send(Flow { incoming_window: 1, handle: Some(0), link_credit: Some(9), ..windows() });
    bench.deliver(number, 1, Protocol::Amqp);
    bench.deliver(number, 2, Protocol::Amqp);
    assert_eq!(bench.frames().len(), 1);
    bench.send(Flow { next_incoming_id: Some(1), incoming_window: 1, ..windows() });
    let frames = bench.frames();
    let [Performative::Transfer(second)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((second.delivery_id, second.delivery_tag.as_deref()), (Some(1), Some(&b"\x01"[..])));
}

#[test]
fn a_large_message_leaves_in_frames_of_the_agreed_size() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach::default());
    bench.send(Flow { handle: Some(0), link_credit: Some(9), ..windows() });
    let body = [&b"\0\x53\x75\xb0\0\0\x0b\xb8"[..], &[7; 3000]].concat();
    let message = Message {
        encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
        persistent: true,
        priority: 4,
        expires_at_ms: 0,
        rare: None,
        bytes: body.clone().into(),
    };
    let delivery = Delivery {
        consumer: key(number),
        source: None,
        tag: EntryTag(1),
        queue: (postroad_model::PartitionId(0), postroad_model::QueueId(0)),
        failed_deliveries: 3,
        by_policy: false,
        first_of_group: false,
        trace: None,
        message,
    };
    bench.answer(ToSession::Deliver(delivery));
    let frames = bench.read();
    let mut whole = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        assert!(frame.body.len() + 8 <= 1024, "{}", frame.body.len());
        let mut reader = Reader::new(&frame.body);
        let Ok(Performative::Transfer(transfer)) = Performative::read(&mut reader) else {
            panic!("{frame:?}")
        };
        assert_eq!(transfer.more, index + 1 < frames.len());
        assert_eq!(transfer.delivery_id.is_some(), index == 0);
        whole.extend_from_slice(&frame.body[reader.offset()..]);
    }
    let mut header = BytesMut::new();
    Header { delivery_count: 3, ..Header::default() }.write(&mut header);
    assert!(whole == [header.to_vec(), body].concat(), "the whole message, behind its own header");
}

#[test]
fn a_message_comes_in_as_many_frames_as_it_takes() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    bench.send_on(0, Transfer { more: true, ..transfer(5) }, &BODY[..2]);
    bench.send_on(0, Transfer { more: true, ..Transfer::default() }, b"");
    assert!(bench.events().is_empty());
    bench.send_on(0, Transfer { settled: Some(true), ..Transfer::default() }, &BODY[2..]);
    let events = bench.events();
    let [Event::Publish(publish)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(publish.sent.message.bytes, BODY);
    // An aborted delivery was never sent.
    bench.send_on(0, Transfer { more: true, ..transfer(6) }, BODY);
    bench.send_on(0, Transfer { aborted: true, ..Transfer::default() }, b"");
    assert!(bench.events().is_empty() && ends(&bench.frames()).is_empty());
}

/// The payloads of transfers, and whether each says that more comes.
fn payloads(frames: &[Frame]) -> Vec<(bool, Bytes)> {
    let payload = |frame: &Frame| {
        let mut reader = Reader::new(&frame.body);
        let Ok(Performative::Transfer(transfer)) = Performative::read(&mut reader) else {
            panic!("{frame:?}")
        };
        (transfer.more, frame.body.slice(reader.offset()..))
    };
    frames.iter().map(payload).collect()
}

/// Takes the pieces out of events: their number of the upload, bytes and ticket.
fn pieces(events: &[Event]) -> Vec<(u64, Bytes, Ticket)> {
    let piece = |event: &Event| match event {
        Event::Chunk { upload, bytes, ticket, .. } => (*upload, bytes.clone(), *ticket),
        other => panic!("{other:?}"),
    };
    events.iter().map(piece).collect()
}

fn large_bench() -> Bench {
    let options = AmqpOptions {
        max_frame_bytes: 1 << 20,
        max_message_bytes: 1 << 20,
        large_message_bytes: 300 << 10,
        ..Bench::options()
    };
    let mut bench =
        Bench::begun_as(options, Begin { incoming_window: 100, outgoing_window: 100, ..Begin::default() });
    bench.sender(0, target("q"));
    bench
}

/// An empty header, and the body behind it.
fn large_message() -> (&'static [u8], Vec<u8>) {
    let body = [&b"\0\x53\x75\xb0\0\x09\x60\0"[..], &[7; 600 << 10]].concat();
    (b"\0\x53\x70\x45", body)
}

#[test]
fn a_large_body_is_in_the_log_ahead_of_its_message() {
    for refused in [false, true] {
        let mut bench = large_bench();
        let (head, body) = large_message();
        bench.send_on(0, Transfer { more: true, ..transfer(5) }, &[head, &body[..400 << 10]].concat());
        let mut told = pieces(&bench.events());
        assert_eq!(told.len(), 1, "one whole piece is there");
        bench.send_on(0, Transfer::default(), &body[400 << 10..]);
        told.extend(pieces(&bench.events()));
        let sent: Vec<u8> = told.iter().flat_map(|(_, bytes, _)| bytes.to_vec()).collect();
        let lengths: Vec<usize> = told.iter().map(|(_, bytes, _)| bytes.len()).collect();
        assert_eq!(lengths, [256 << 10, 256 << 10, (88 << 10) + 8]);
        assert!(sent == body && !bench.session.takes_input());
        bench.frames();
        for (index, (_, _, ticket)) in told.iter().enumerate() {
            assert!(bench.events().is_empty(), "not before all are there");
            let reason = "full".to_owned();
            let refusal = (refused && index == 1).then_some(Refusal::StoreFailed { reason });
            bench.reply(*ticket, refusal.map_or(Ok(()), Err));
        }
        let (number, events) = (told[0].0, bench.events());
        match (&events[..], refused) {
            ([Event::Publish(publish)], false) => {
                assert_eq!((publish.upload, &publish.sent.message.bytes[..]), (Some(number), head));
            }
            ([Event::Abandon { upload, .. }], true) => {
                assert_eq!(*upload, number);
                let frames = bench.frames();
                let [Performative::Disposition(disposition)] = &frames[..] else { panic!("{frames:?}") };
                assert!(matches!(disposition.state, Some(DeliveryState::Rejected(_))), "{frames:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(bench.session.takes_input());
    }
}

#[test]
fn a_large_message_that_ends_early_is_abandoned() {
    for aborts in [true, false] {
        let mut bench = large_bench();
        let (head, body) = large_message();
        bench.send_on(0, Transfer { more: true, ..transfer(5) }, &[head, &body[..400 << 10]].concat());
        let number = pieces(&bench.events())[0].0;
        match aborts {
            true => bench.send_on(0, Transfer { aborted: true, ..Transfer::default() }, b""),
            false => bench.send(Detach { handle: 0, closed: true, error: None }),
        }
        let events = bench.events();
        let abandoned = |event: &&Event| matches!(event, Event::Abandon { upload, .. } if *upload == number);
        assert_eq!(events.iter().filter(abandoned).count(), 1, "{events:?}");
    }
}

#[test]
fn a_large_message_leaves_as_its_pieces_come_and_others_may_speak_meanwhile() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach::default());
    bench.send(Flow { handle: Some(0), link_credit: Some(9), ..windows() });
    bench.deliver_large(number, 3000);
    let mut whole = payloads(&bench.read());
    for piece in [&[1; 2000][..], &[2; 1000]] {
        assert!(bench.session.takes_body() && bench.session.body_missing() >= 1000);
        let bytes = Bytes::copy_from_slice(piece);
        bench.session.body(&bytes, bench.now, &mut bench.events, &mut bench.output);
        whole.extend(payloads(&bench.read()));
    }
    assert_eq!(bench.session.body_missing(), 0);
    let last = whole.len() - 1;
    assert!(whole.iter().enumerate().all(|(index, (more, _))| *more == (index < last)), "{whole:?}");
    let whole: Vec<u8> = whole.iter().flat_map(|(_, payload)| payload.to_vec()).collect();
    assert!(whole == [&b"\0\x53\x70\x45"[..], &[1; 2000], &[2; 1000]].concat());
    // A link that ends takes its message with it.
    bench.deliver_large(number, 3000);
    bench.read();
    bench.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!((bench.session.body_missing(), bench.session.takes_body()), (0, false));
}

#[test]
fn credit_that_is_taken_back_is_taken_back_from_the_core() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach::default());
    bench.send(Flow { handle: Some(0), link_credit: Some(9), ..windows() });
    bench.send(Flow { handle: Some(0), link_credit: Some(0), ..windows() });
    let events = bench.events();
    assert!(matches!(events[..], [Event::Credit { add: 9, .. }, Event::Drain { .. }]), "{events:?}");
    // Deliveries on their way go back untouched.
    bench.deliver(number, 1, Protocol::Amqp);
    assert_eq!(settles(&bench.events()), [(vec![1], Outcome::Released { failed: false })]);
    bench.answer(ToSession::Drained { consumer: key(number) });
    assert!(bench.frames().is_empty() && bench.events().is_empty());
    bench.send(Flow { handle: Some(0), link_credit: Some(2), ..windows() });
    assert!(matches!(bench.events()[..], [Event::Credit { add: 2, .. }]));
}

#[test]
fn deliveries_without_a_verdict_have_a_bound() {
    const UNSETTLED_MAX: u64 = 1 << 16;
    let window = u32::MAX >> 1;
    let begin = Begin { incoming_window: window, outgoing_window: 9, ..Begin::default() };
    let mut bench = Bench::begun_with(begin);
    let number = bench.receiver(Attach::default());
    let credit = Flow { incoming_window: window, handle: Some(0), link_credit: Some(1 << 30), ..windows() };
    bench.send(credit);
    let mut granted = 0;
    let mut delivered = 0;
    loop {
        for event in bench.events() {
            if let Event::Credit { add, .. } = event {
                granted += u64::from(add);
            }
        }
        if granted == delivered {
            break;
        }
        delivered += 1;
        bench.deliver(number, delivered, Protocol::Amqp);
        bench.output.clear();
    }
    assert!((UNSETTLED_MAX..UNSETTLED_MAX + 2048).contains(&delivered), "{delivered}");
    bench.send(verdict(0, Some(999), true, Some(DeliveryState::Accepted(Accepted {}))));
    assert!(bench.events().iter().any(|event| matches!(event, Event::Credit { .. })));
}

#[test]
fn links_that_are_refused_and_kept_have_a_bound() {
    let mut bench = Bench::begun();
    for channel in 1..=4 {
        bench.send_on(channel, Begin { outgoing_window: 9, ..Begin::default() }, b"");
        for handle in 0..9_000 {
            let name = format!("{channel}-{handle}").into();
            bench.send_on(channel, Attach { name, handle, ..Attach::default() }, b"");
            bench.output.clear();
            if bench.parting.is_some() {
                return;
            }
        }
    }
    panic!("36,000 links without a node, and nobody minds");
}

#[test]
fn a_peer_that_never_speaks_is_told_nothing() {
    let mut bench = Bench::new();
    bench.now.ticks_ms = 30_000;
    let Bench { session, events, output, now, .. } = &mut bench;
    assert!(matches!(session.wake(*now, events, output), Err(Parting::Fault(_))));
    assert!(output.is_empty());
}

#[test]
fn a_drain_ends_with_the_credit_used_up() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach::default());
    bench.send(Flow { handle: Some(0), link_credit: Some(9), drain: true, ..windows() });
    let events = bench.events();
    assert!(matches!(events[..], [Event::Credit { add: 9, .. }, Event::Drain { .. }]), "{events:?}");
    bench.deliver(number, 1, Protocol::Amqp);
    bench.answer(ToSession::Drained { consumer: key(number) });
    let frames = bench.frames();
    let [Performative::Transfer(_), Performative::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(9), Some(0), true));
}

#[test]
fn verdicts_reach_the_core_and_are_confirmed_to_those_who_wait() {
    let modified = Modified { delivery_failed: true, ..Modified::default() };
    let accepted = || Some(DeliveryState::Accepted(Accepted {}));
    for (case, sent, want, told) in [
        ("settled", verdict(0, Some(2), true, accepted()), vec![(vec![1, 2, 3], Outcome::Accepted)], false),
        ("waiting", verdict(1, None, false, accepted()), vec![(vec![2], Outcome::Accepted)], true),
        (
            "failed",
            verdict(0, Some(1), true, Some(DeliveryState::Modified(modified))),
            vec![(vec![1, 2], Outcome::Released { failed: true })],
            false,
        ),
        (
            "settled without a word",
            verdict(2, None, true, None),
            vec![(vec![3], Outcome::Released { failed: false })],
            false,
        ),
        (
            "no outcome yet",
            verdict(0, None, false, Some(DeliveryState::Received(Default::default()))),
            vec![],
            false,
        ),
        (
            "far beyond what was sent",
            verdict(0, Some(1 << 30), true, accepted()),
            vec![(vec![1, 2, 3], Outcome::Accepted)],
            false,
        ),
        ("not sent yet", verdict(3, Some(9), true, accepted()), vec![], false),
        ("the wrong way round", verdict(2, Some(1), true, accepted()), vec![], false),
    ] {
        let mut bench = Bench::begun();
        let number = bench.receiver(Attach::default());
        bench.send(Flow { handle: Some(0), link_credit: Some(9), ..windows() });
        (1..=3).for_each(|tag| bench.deliver(number, tag, Protocol::Amqp));
        bench.read();
        bench.events();
        bench.send(sent.clone());
        let events = bench.events();
        assert_eq!(settles(&events), want, "case: {case}");
        assert!(bench.read().is_empty(), "case: {case}: told before it is durable");
        if let Some(Event::Settle(Settle { ticket: Some(ticket), .. })) = events.first() {
            bench.reply(*ticket, Ok(()));
        }
        let frames = bench.frames();
        assert_eq!(!frames.is_empty(), told, "case: {case}");
        for frame in frames {
            let settled = Disposition { role: Role::Sender, settled: true, ..sent.clone() };
            assert_eq!(frame, Performative::Disposition(settled), "case: {case}");
        }
        // A verdict holds: the second one is about nothing.
        bench.send(sent);
        assert_eq!(settles(&bench.events()), [], "case: {case}");
    }
}

#[test]
fn settlement_modes_are_honoured() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach { snd_settle_mode: SenderSettleMode::Settled, ..Attach::default() });
    bench.send(Flow { handle: Some(0), link_credit: Some(9), ..windows() });
    bench.events();
    bench.deliver(number, 1, Protocol::Amqp);
    assert_eq!(settles(&bench.events()), [(vec![1], Outcome::Accepted)]);
    let frames = bench.frames();
    let [Performative::Transfer(transfer)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(transfer.settled, Some(true));

    let mut bench = Bench::begun();
    bench.send(Attach {
        name: "second".into(),
        rcv_settle_mode: ReceiverSettleMode::Second,
        target: Some(target("q")),
        ..Attach::default()
    });
    bench.send_on(0, self::transfer(0), BODY);
    let events = bench.events();
    let [Event::Publish(publish)] = &events[..] else { panic!("{events:?}") };
    bench.read();
    bench.reply(publish.ticket, Ok(()));
    let frames = bench.frames();
    let [Performative::Disposition(told)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((told.settled, &told.state), (false, &Some(DeliveryState::Accepted(Accepted {}))));
}

#[test]
fn a_delivery_may_be_settled_first_on_a_link_that_settles_second_and_not_the_other_way_round() {
    use ReceiverSettleMode::{First, Second};
    for (link, delivery, want) in [
        (First, None, Ok(true)),
        (First, Some(First), Ok(true)),
        (First, Some(Second), Err("amqp:invalid-field")),
        (Second, None, Ok(false)),
        (Second, Some(First), Ok(true)),
        (Second, Some(Second), Ok(false)),
    ] {
        let mut bench = Bench::begun();
        bench.send(Attach { rcv_settle_mode: link, target: Some(target("q")), ..Attach::default() });
        bench.frames();
        bench.send_on(0, Transfer { rcv_settle_mode: delivery, ..transfer(0) }, BODY);
        if let [Event::Publish(publish)] = &bench.events()[..] {
            bench.reply(publish.ticket, Ok(()));
        }
        let frames = bench.frames();
        let got = match &frames[..] {
            [Performative::Disposition(told)] => Ok(told.settled),
            frames => Err(ends(frames)[0].1.unwrap_or_default()),
        };
        assert_eq!(got, want, "{link:?}, {delivery:?}");
    }
}

#[test]
fn a_sender_counts_its_deliveries_from_where_it_likes() {
    for first in [0, 5000, u32::MAX] {
        let mut bench = Bench::begun();
        let initial_delivery_count = Some(first);
        bench.send(Attach { initial_delivery_count, target: Some(target("q")), ..Attach::default() });
        let frames = bench.frames();
        let [Performative::Attach(_), Performative::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!((flow.delivery_count, flow.link_credit), (Some(first), Some(1000)));
        bench.send_on(0, transfer(0), BODY);
        bench.send(Flow { handle: Some(0), echo: true, ..windows() });
        let frames = bench.frames();
        let [Performative::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!((flow.delivery_count, flow.link_credit), (Some(first.wrapping_add(1)), Some(999)));
    }
}

#[test]
fn what_the_core_refuses_is_rejected_with_its_reason() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    bench.send_on(0, transfer(0), BODY);
    bench.send_on(0, Transfer { message_format: Some(0x8001_3700), ..transfer(1) }, BODY);
    let events = bench.events();
    let [Event::Publish(publish)] = &events[..] else { panic!("{events:?}") };
    let to = publish.sent.to.clone();
    bench.reply(publish.ticket, Err(Refusal::StoreFull { to }));
    let frames = bench.frames();
    let conditions: Vec<_> = frames
        .iter()
        .filter_map(|frame| match frame {
            Performative::Disposition(Disposition {
                first,
                state: Some(DeliveryState::Rejected(it)),
                ..
            }) => Some((*first, condition(&it.error))),
            _ => None,
        })
        .collect();
    let want = [(1, Some("amqp:not-implemented")), (0, Some("amqp:resource-limit-exceeded"))];
    assert_eq!(conditions, want);
    // A link that the core refuses has no node, and ends.
    bench.send(receiver(Attach { handle: 1, ..Attach::default() }));
    let events = bench.events();
    let [Event::Attach(attach)] = &events[..] else { panic!("{events:?}") };
    let refusal = Refusal::NotOwner(attach.source.clone());
    bench.reply(attach.ticket, Err(refusal));
    let frames = bench.frames();
    let [Performative::Attach(Attach { source: None, .. }), Performative::Detach(_)] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(ends(&frames), [("detach", Some("amqp:unauthorized-access"))]);
}

#[test]
fn a_message_that_cannot_be_translated_is_rejected_and_costs_no_credit() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach::default());
    bench.send(Flow { handle: Some(0), link_credit: Some(1), ..windows() });
    bench.events();
    bench.deliver(number, 1, Protocol::OpenWire);
    let events = bench.events();
    assert_eq!(settles(&events), [(vec![1], Outcome::Rejected)]);
    assert!(bench.frames().is_empty());
    assert!(matches!(events[..], [_, Event::Credit { add: 1, .. }]), "another one in its place: {events:?}");
}

fn coordinator_message(step: impl Field) -> Vec<u8> {
    let mut bytes = BytesMut::from(&b"\0\x53\x77"[..]);
    step.write(&mut bytes);
    bytes.to_vec()
}

#[test]
fn a_transaction_holds_sends_and_verdicts_until_it_is_discharged() {
    let failed = Refusal::StoreFailed { reason: "no".to_owned() };
    let late = Refusal::TransactionTimedOut { limit_ms: 1 };
    for (case, fail, refuse) in [
        ("commit", false, None),
        ("rollback", true, None),
        ("a commit that fails", false, Some((failed, "amqp:transaction:rollback"))),
        ("a commit that comes too late", false, Some((late, "amqp:transaction:timeout"))),
    ] {
        let mut bench = Bench::begun();
        bench.sender(0, TargetTerminus::Coordinator(Coordinator::default()));
        bench.sender(1, target("q"));
        let number = bench.receiver_at(2);
        bench.send(Flow { handle: Some(2), link_credit: Some(9), ..windows() });
        bench.deliver(number, 7, Protocol::Amqp);
        bench.send_on(0, transfer(0), &coordinator_message(Declare::default()));
        let frames = bench.frames();
        let txn_id = frames.iter().find_map(|frame| match frame {
            Performative::Disposition(Disposition { state: Some(DeliveryState::Declared(it)), .. }) => {
                Some(it.txn_id.clone())
            }
            _ => None,
        });
        let txn_id = txn_id.unwrap_or_else(|| panic!("case: {case}: {frames:?}"));
        bench.events();
        let state = |outcome| {
            let txn_id = txn_id.clone();
            Some(DeliveryState::TransactionalState(TransactionalState { txn_id, outcome }))
        };
        bench.send_on(0, Transfer { handle: 1, state: state(None), ..transfer(1) }, BODY);
        let accepted = Some(Box::new(DeliveryState::Accepted(Accepted {})));
        bench.send(verdict(0, None, true, state(accepted)));
        let discharge = Discharge { txn_id: txn_id.clone(), fail };
        bench.send_on(0, transfer(2), &coordinator_message(discharge.clone()));
        let events = bench.events();
        let [Event::Publish(publish), Event::Settle(settle), end] = &events[..] else {
            panic!("case: {case}: {events:?}")
        };
        assert_eq!((publish.transaction.is_some(), publish.transaction), (true, settle.transaction));
        let ticket = match end {
            Event::Commit { ticket, .. } if !fail => *ticket,
            Event::Rollback { ticket: Some(ticket), .. } if fail => *ticket,
            other => panic!("case: {case}: {other:?}"),
        };
        let (refusal, why) = refuse.unzip();
        bench.reply(ticket, refusal.clone().map_or(Ok(()), Err));
        let back = [(vec![7], Outcome::Released { failed: true })];
        let want = if fail || refusal.is_some() { &back[..] } else { &[] };
        assert_eq!(settles(&bench.events()), want, "case: {case}");
        let frames = bench.frames();
        let [Performative::Disposition(told)] = &frames[..] else { panic!("case: {case}: {frames:?}") };
        let condition = match &told.state {
            Some(DeliveryState::Rejected(it)) => condition(&it.error),
            _ => None,
        };
        assert_eq!(condition, why, "case: {case}");
        // It is over, well or badly.
        bench.send_on(0, transfer(3), &coordinator_message(discharge));
        let frames = bench.frames();
        let [Performative::Disposition(told)] = &frames[..] else { panic!("case: {case}: {frames:?}") };
        assert!(matches!(told.state, Some(DeliveryState::Rejected(_))), "case: {case}");
    }
}

/// How a transaction of the coordinator link 8 ends that is to be committed.
fn commits(bench: &mut Bench, txn_id: &Bytes) -> Result<(), (&'static str, String)> {
    bench.events();
    bench.frames();
    let discharge = Discharge { txn_id: txn_id.clone(), fail: false };
    bench.send_on(0, Transfer { handle: 8, ..transfer(99) }, &coordinator_message(discharge));
    let events = bench.events();
    if let [Event::Commit { .. }] = events[..] {
        return Ok(());
    }
    let is_undone = matches!(events[..], [Event::Rollback { .. }]);
    let frames = bench.frames();
    let [Performative::Disposition(Disposition { state: Some(DeliveryState::Rejected(it)), .. })] =
        &frames[..]
    else {
        panic!("{events:?}, {frames:?}")
    };
    let why = condition(&it.error).unwrap_or_default().to_owned();
    Err((if is_undone { "undone" } else { "left open" }, why))
}

#[test]
fn a_transaction_of_which_a_settled_message_was_dropped_with_its_link_is_rolled_back() {
    type Steps = fn(&mut Bench, Transfer);
    let large: Steps = |bench, part| {
        bench.send_on(0, Transfer { more: true, ..part }, &[0; 3000]);
        let rest = Transfer { handle: 1, ..Transfer::default() };
        (0..2).for_each(|_| bench.send_on(0, Transfer { more: true, ..rest.clone() }, &[0; 3000]));
        bench.send_on(0, rest, &[0; 3000]);
    };
    let after_noise: Steps = |bench, part| {
        bench.send_on(0, Transfer { handle: 1, settled: Some(true), ..transfer(1) }, b"noise");
        bench.send_on(0, part, BODY);
    };
    let cut_off: Steps = |bench, part| {
        bench.send_on(0, Transfer { more: true, ..part }, BODY);
        let mut properties = ValueMap::default();
        properties.push("txn-id", Value::Binary(Bytes::from_static(b"t")));
        bench.send(Flow { handle: Some(1), properties: Some(properties), ..windows() });
        bench.send_on(0, Transfer { handle: 1, ..Transfer::default() }, BODY);
    };
    let ended_channel: Steps = |bench, part| {
        bench.send_on(1, Begin { incoming_window: 9, outgoing_window: 9, ..Begin::default() }, b"");
        bench.send_on(1, transfer(0), BODY);
        bench.send_on(1, part, BODY);
    };
    let aborted: Steps = |bench, part| {
        bench.send_on(0, Transfer { handle: 1, settled: Some(true), ..transfer(1) }, b"noise");
        bench.send_on(0, Transfer { aborted: true, ..part }, b"");
    };
    let is_lost = || Err(("undone", "amqp:transaction:rollback".to_owned()));
    for (case, steps, settled, want) in [
        ("too large", large, true, is_lost()),
        ("too large, and its sender waits for an outcome", large, false, Ok(())),
        ("on its way to a link that has ended", after_noise, true, is_lost()),
        ("on its way, and its sender waits for an outcome", after_noise, false, Ok(())),
        ("its end is on its way to a link that has ended", cut_off, true, is_lost()),
        ("on its way to a channel that has ended", ended_channel, true, is_lost()),
        ("aborted by its sender", aborted, true, Ok(())),
    ] {
        let mut bench = Bench::begun();
        let txn_id = bench.declares(8);
        bench.sender(1, target("q"));
        let state = TransactionalState { txn_id: txn_id.clone(), outcome: None };
        let state = Some(DeliveryState::TransactionalState(state));
        steps(&mut bench, Transfer { handle: 1, settled: Some(settled), state, ..transfer(2) });
        assert_eq!(ends(&bench.frames()).len(), 1, "case: {case}");
        assert_eq!(commits(&mut bench, &txn_id), want, "case: {case}");
        // The next transaction is another one.
        let declare = coordinator_message(Declare::default());
        bench.send_on(0, Transfer { handle: 8, ..transfer(100) }, &declare);
        let frames = bench.frames();
        let [Performative::Disposition(Disposition { state: Some(DeliveryState::Declared(declared)), .. })] =
            &frames[..]
        else {
            panic!("case: {case}: {frames:?}")
        };
        assert_eq!(commits(&mut bench, &declared.txn_id), Ok(()), "case: {case}");
    }
}

#[test]
fn a_transaction_is_under_way_once_something_was_done_in_it() {
    let mut bench = Bench::begun();
    let txn_id = bench.declares(0);
    bench.sender(1, target("q"));
    let number = bench.receiver_at(2);
    bench.send(Flow { handle: Some(2), link_credit: Some(9), ..windows() });
    bench.events();
    let nothing = Underway::default();
    assert_eq!(bench.session.underway(), nothing, "declared: clients do so ahead of time");
    bench.deliver(number, 7, Protocol::Amqp);
    assert_eq!(bench.session.underway(), Underway { deliveries: true, ..nothing });
    let in_transaction = |outcome| {
        Some(DeliveryState::TransactionalState(TransactionalState { txn_id: txn_id.clone(), outcome }))
    };
    bench.send(verdict(0, None, true, in_transaction(Some(Box::new(DeliveryState::Accepted(Accepted {}))))));
    assert!(bench.session.underway().work, "a verdict in it");
    let discharge = Discharge { txn_id: txn_id.clone(), fail: false };
    bench.send_on(0, transfer(2), &coordinator_message(discharge));
    assert!(bench.session.underway().work, "the commit is not answered");
    let events = bench.events();
    let Some(Event::Commit { ticket, .. }) = events.last() else { panic!("{events:?}") };
    bench.reply(*ticket, Ok(()));
    assert_eq!(bench.session.underway(), nothing);
    bench.send_on(0, Transfer { handle: 1, ..transfer(3) }, BODY);
    assert_eq!(bench.session.underway(), Underway { work: true, ..nothing }, "a send is not answered");
}

impl Bench {
    fn receiver_at(&mut self, handle: u32) -> u32 {
        self.read();
        self.receiver(Attach { handle, ..Attach::default() })
    }
}

#[test]
fn whoever_does_not_know_rejections_loses_its_coordinator_by_one() {
    for (case, outcomes, want) in [
        ("does not say", &[][..], vec![]),
        ("knows it", &["amqp:accepted:list", "amqp:rejected:list"], vec![]),
        ("does not know it", &["amqp:accepted:list"], vec![("detach", Some("amqp:transaction:unknown-id"))]),
    ] {
        let mut bench = Bench::begun();
        let outcomes = outcomes.iter().copied().map(Symbol::from_static).collect();
        bench.send(Attach {
            role: Role::Sender,
            source: Some(SourceTerminus::Source(Source { outcomes, ..Source::default() })),
            target: Some(TargetTerminus::Coordinator(Coordinator::default())),
            ..Attach::default()
        });
        bench.frames();
        let discharge = Discharge { txn_id: Bytes::from_static(b"no"), fail: false };
        bench.send_on(0, transfer(0), &coordinator_message(discharge));
        let frames = bench.frames();
        assert_eq!((frames.len(), ends(&frames)), (1, want), "case: {case}");
    }
}

#[test]
fn a_broker_that_ends_says_so_to_whoever_has_opened() {
    for (case, bytes, want) in [
        ("nothing was said", &b""[..], &[][..]),
        ("no open yet", b"AMQP\0\x01\0\0", &[]),
        (
            "opened",
            b"AMQP\0\x01\0\0\0\0\0\x11\x02\0\0\0\0\x53\x10\xc0\x04\x01\xa1\x01c",
            &[("close", Some("amqp:connection:forced"))],
        ),
    ] {
        let mut bench = Bench::new();
        bench.bytes(bytes);
        bench.read();
        bench.session.stop(None, bench.now, &mut bench.output);
        assert_eq!(ends(&bench.frames()), want, "case: {case}");
    }
}

#[test]
fn a_coordinator_link_that_ends_rolls_back_what_it_declared() {
    let mut bench = Bench::begun();
    bench.sender(0, TargetTerminus::Coordinator(Coordinator::default()));
    bench.send_on(0, transfer(0), &coordinator_message(Declare::default()));
    bench.send_on(0, transfer(1), &coordinator_message(Declare { global_id: Some(Value::Uint(1)) }));
    bench.read();
    bench.send(Detach { handle: 0, closed: true, error: None });
    assert!(matches!(bench.events()[..], [Event::Rollback { .. }]), "the second was refused");
    assert_eq!(ends(&bench.frames()), [("detach", None)]);
}

#[test]
fn a_detach_is_answered_once_the_core_has_let_go() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach::default());
    bench.send(Detach { handle: 0, closed: true, error: None });
    let events = bench.events();
    let [Event::Detach { ticket: Some(ticket), .. }] = &events[..] else { panic!("{events:?}") };
    // Deliveries that the core had sent already have no consumer any more.
    bench.deliver(number, 1, Protocol::Amqp);
    assert!(bench.frames().is_empty());
    bench.reply(*ticket, Ok(()));
    assert_eq!(ends(&bench.frames()), [("detach", None)]);
    // The handle is free again.
    bench.receiver(Attach::default());
    bench.send(End::default());
    let events = bench.events();
    let [Event::Detach { ticket: Some(ticket), .. }] = &events[..] else { panic!("{events:?}") };
    bench.reply(*ticket, Ok(()));
    assert_eq!(ends(&bench.frames()), [("end", None)]);
    bench.send(Close::default());
    assert_eq!((ends(&bench.frames()), bench.parting), (vec![("close", None)], Some(Parting::Farewell)));
}

#[test]
fn a_container_id_is_claimed_for_those_who_want_it_alone() {
    for (case, taken) in [("free", false), ("taken", true)] {
        let mut bench = Bench::new();
        bench.bytes(b"AMQP\0\x01\0\0");
        bench.send(Open {
            container_id: "mine".into(),
            desired_capabilities: vec!["sole-connection-for-container".into()],
            ..Open::default()
        });
        let events = bench.events();
        let [Event::Claim { name, ticket, .. }] = &events[..] else { panic!("{events:?}") };
        assert!(bench.frames().is_empty() && !bench.session.takes_input());
        let refusal = Refusal::NameTaken { name: name.clone(), holder: "another".into() };
        bench.reply(*ticket, if taken { Err(refusal) } else { Ok(()) });
        let frames = bench.frames();
        let want = if taken { vec![("close", Some("amqp:invalid-field"))] } else { vec![] };
        assert_eq!(ends(&frames), want, "case: {case}");
        assert!(matches!(frames[0], Performative::Open(_)), "case: {case}");
    }
}

#[test]
fn silence_ends_a_connection_and_the_broker_is_not_silent() {
    let mut bench = Bench::new();
    bench.bytes(b"AMQP\0\x01\0\0");
    bench.send(Open { container_id: "c".into(), idle_time_out: Some(10_000), ..Open::default() });
    let frames = bench.frames();
    let [Performative::Open(open)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(open.idle_time_out, Some(30_000));
    assert_eq!(bench.session.deadline(), Some(5_000));
    bench.now.ticks_ms = 5_000;
    let Bench { session, events, output, now, .. } = &mut bench;
    session.wake(*now, events, output).unwrap();
    assert_eq!(output.split().to_vec(), b"\0\0\0\x08\x02\0\0\0");
    now.ticks_ms = 60_000;
    assert!(matches!(session.wake(*now, events, output), Err(Parting::Fault(_))));
    assert_eq!(ends(&bench.frames()), [("close", Some("amqp:resource-limit-exceeded"))]);
}

/// A link "l" to the queue "q" that its client wishes to come back to.
fn kept_sender(mode: ReceiverSettleMode, expiry_policy: TerminusExpiry, timeout: u32) -> Attach {
    let target = Target { address: Some("q".into()), expiry_policy, timeout, ..Target::default() };
    Attach {
        name: "l".into(),
        handle: 1,
        role: Role::Sender,
        rcv_settle_mode: mode,
        source: Some(SourceTerminus::Source(Source::default())),
        target: Some(TargetTerminus::Target(target)),
        initial_delivery_count: Some(0),
        ..Attach::default()
    }
}

fn tag(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

impl Bench {
    /// Attaches such a link, of which the core knows these deliveries; the request to the core, and
    /// the answer.
    fn resumes(&mut self, attach: Attach, known: &[(u32, Option<Refusal>)]) -> (ResumeLink, Attach) {
        self.send(attach);
        let events = self.events();
        let [Event::Link(LinkEvent::Resume(resume))] = &events[..] else { panic!("{events:?}") };
        let (ticket, known) = (resume.ticket, known.iter().cloned());
        let deliveries = known.map(|(number, refusal)| (tag(number), refusal)).collect();
        assert_eq!(self.frames(), [], "the core was asked");
        self.answer(ToSession::Unsettled { ticket, deliveries });
        self.reply(ticket, Ok(()));
        let mut frames = self.frames().into_iter();
        let Some(Performative::Attach(answer)) = frames.next() else { panic!("no attach") };
        ((**resume).clone(), answer)
    }
}

/// The unsettled deliveries of an attach.
fn unsettled(attach: &Attach) -> Vec<(Value, DeliveryState)> {
    let state = |value: &Value| {
        let mut bytes = BytesMut::new();
        value.write(&mut bytes);
        DeliveryState::read(&mut Reader::new(&bytes.freeze())).expect("a state")
    };
    let pairs = attach.unsettled.iter().flat_map(|unsettled| &unsettled.0);
    pairs.map(|(tag, value)| (tag.clone(), state(value))).collect()
}

#[test]
fn a_target_lasts_as_its_answer_says() {
    use TerminusExpiry::{ConnectionClose, LinkDetach, Never, SessionEnd};
    for (policy, timeout, want) in [
        (SessionEnd, 0, None),
        (ConnectionClose, 0, None),
        (LinkDetach, 5, Some((LinkDetach, 5))),
        (SessionEnd, 5, Some((SessionEnd, 5))),
        (ConnectionClose, 9999, Some((ConnectionClose, 3600))),
        (Never, 0, Some((ConnectionClose, 3600))),
    ] {
        let mut bench = Bench::begun();
        let mut attach = kept_sender(ReceiverSettleMode::First, policy, timeout);
        if let Some(TargetTerminus::Target(target)) = &mut attach.target {
            target.durable = TerminusDurability::UnsettledState;
        }
        let answer = match want {
            None => {
                bench.send(attach);
                let mut frames = bench.frames().into_iter();
                let Some(Performative::Attach(answer)) = frames.next() else { panic!("no attach") };
                answer
            }
            Some((_, timeout)) => {
                let (resume, answer) = bench.resumes(attach, &[]);
                let LinkName { user, container, name, to } = &*resume.link;
                assert_eq!(&**user, "");
                let link = (&**container, &**name, to.to_string(), resume.kept_ms, resume.in_doubt);
                let want = ("client", "l", "queue://q".into(), u64::from(timeout) * 1000, Some(Vec::new()));
                assert_eq!(link, want, "{policy:?}");
                answer
            }
        };
        let Some(TargetTerminus::Target(target)) = answer.target else { panic!("no target") };
        let got = (target.durable, target.expiry_policy, target.timeout);
        let (policy, timeout) = want.unwrap_or((LinkDetach, 0));
        assert_eq!(got, (TerminusDurability::None, policy, timeout));
    }
}

#[test]
fn deliveries_are_resumed_and_settled_without_being_sent_again() {
    let full = Refusal::QueueFull { to: Destination::queue("q"), limit: "messages_max = 1".into() };
    for (mode, settled_by_us) in [(ReceiverSettleMode::First, true), (ReceiverSettleMode::Second, false)] {
        let mut bench = Bench::begun();
        let map = [1, 2, 3].map(|number| (Value::Binary(tag(number)), Value::Null));
        let attach = kept_sender(mode, TerminusExpiry::ConnectionClose, 60);
        let attach = Attach { unsettled: Some(ValueMap(map.to_vec())), ..attach };
        let (resume, answer) = bench.resumes(attach, &[(1, None), (2, Some(full.clone()))]);
        assert_eq!(resume.in_doubt, Some(vec![tag(1), tag(2), tag(3)]));
        let accepted = DeliveryState::Accepted(Accepted {});
        let states = unsettled(&answer);
        let [(first, one), (second, DeliveryState::Rejected(two))] = &states[..] else {
            panic!("{states:?}")
        };
        assert_eq!((first, second, one), (&Value::Binary(tag(1)), &Value::Binary(tag(2)), &accepted));
        assert_eq!(condition(&two.error), Some("amqp:resource-limit-exceeded"));
        assert!(!answer.incomplete_unsettled);

        // The second is settled by the client at once, the third is unknown and passed over;
        // payloads are.
        let resumed = |number, settled| Transfer {
            handle: 1,
            resume: true,
            settled: Some(settled),
            delivery_id: Some(number),
            delivery_tag: Some(tag(number)),
            ..Transfer::default()
        };
        for (number, settled) in [(1, false), (2, true), (3, false)] {
            bench.send_on(0, resumed(number, settled), BODY);
        }
        let forgotten = |events: &[Event]| match events {
            [Event::Link(LinkEvent::Forget { link, tags, .. })] if *link == resume.link => Some(tags.clone()),
            _ => None,
        };
        let events = bench.events();
        assert_eq!(forgotten(&events), Some(vec![tag(2)]), "{events:?}");
        let disposition = Disposition {
            role: Role::Receiver,
            first: 1,
            settled: settled_by_us,
            state: Some(accepted),
            ..Disposition::default()
        };
        assert_eq!(bench.frames(), [Performative::Disposition(disposition)]);

        // A new one has its tag with it; who settles second says when it need not be remembered.
        bench.send_on(0, Transfer { handle: 1, ..transfer(4) }, BODY);
        let events = bench.events();
        let [Event::Publish(publish)] = &events[..] else { panic!("{events:?}") };
        let delivery = publish.delivery.as_deref().cloned();
        assert_eq!(delivery, Some(LinkDelivery { link: resume.link.clone(), tag: tag(4) }));
        bench.reply(publish.ticket, Ok(()));
        let settle = Disposition {
            role: Role::Sender,
            first: 1,
            last: Some(4),
            settled: true,
            ..Disposition::default()
        };
        bench.send(settle);
        let want = (!settled_by_us).then(|| vec![tag(1), tag(4)]);
        let events = bench.events();
        assert_eq!(forgotten(&events), want, "{events:?}");
    }
}

#[test]
fn a_resumed_delivery_of_a_link_that_is_not_remembered_is_passed_over() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    bench.frames();
    bench.send_on(0, Transfer { resume: true, more: true, ..transfer(0) }, BODY);
    bench.send_on(0, Transfer { resume: true, ..transfer(0) }, BODY);
    assert_eq!((bench.events().len(), bench.frames()), (0, vec![]));
    bench.send_on(0, transfer(1), BODY);
    assert!(matches!(bench.events()[..], [Event::Publish(_)]), "and what is new is taken in");
}

#[test]
fn a_map_that_fits_no_frame_is_incomplete_and_nothing_new_may_follow() {
    let mut bench = Bench::begun();
    let known: Vec<(u32, Option<Refusal>)> = (0..200).map(|number| (number, None)).collect();
    let attach = kept_sender(ReceiverSettleMode::Second, TerminusExpiry::ConnectionClose, 60);
    let attach = Attach { incomplete_unsettled: true, ..attach };
    let (resume, answer) = bench.resumes(attach, &known);
    assert_eq!(resume.in_doubt, None, "it has not named all");
    // Half of a half of them goes into 1024 bytes.
    let told = unsettled(&answer).len();
    assert_eq!((told, answer.incomplete_unsettled), (50, true));
    bench.send_on(0, Transfer { handle: 1, ..transfer(1000) }, BODY);
    assert_eq!(ends(&bench.frames()), [("detach", Some("amqp:not-allowed"))]);
}

#[test]
fn a_link_that_is_left_is_remembered_from_then_on_when_its_policy_says() {
    use TerminusExpiry::{ConnectionClose, LinkDetach, SessionEnd};
    let left = |events: Vec<Event>| -> Vec<bool> {
        let is_kept = |event: &Event| match event {
            Event::Link(LinkEvent::Leave { is_kept, .. }) => Some(*is_kept),
            _ => None,
        };
        events.iter().filter_map(is_kept).collect()
    };
    for (policy, closed, at_detach, at_end) in [
        (LinkDetach, false, vec![true], vec![]),
        (SessionEnd, false, vec![], vec![true]),
        (ConnectionClose, false, vec![], vec![]),
        (LinkDetach, true, vec![false], vec![]),
        (SessionEnd, true, vec![false], vec![]),
        (ConnectionClose, true, vec![false], vec![]),
    ] {
        let mut bench = Bench::begun();
        bench.resumes(kept_sender(ReceiverSettleMode::First, policy, 60), &[]);
        bench.send(Detach { handle: 1, closed, error: None });
        assert_eq!(left(bench.events()), at_detach, "{policy:?}, {closed}");
        let detach = Performative::Detach(Detach { handle: 1, closed, error: None });
        assert_eq!(bench.frames(), [detach], "answered as it was meant");
        bench.send(End::default());
        assert_eq!(left(bench.events()), at_end, "{policy:?}, {closed}");
        assert_eq!(bench.frames(), [Performative::End(End::default())]);
    }
    // Who comes back in the same session keeps it.
    let mut bench = Bench::begun();
    bench.resumes(kept_sender(ReceiverSettleMode::First, SessionEnd, 60), &[]);
    bench.send(Detach { handle: 1, ..Detach::default() });
    bench.frames();
    bench.send_on(1, Begin { incoming_window: 100, outgoing_window: 100, ..Begin::default() }, b"");
    bench.send_on(1, kept_sender(ReceiverSettleMode::First, SessionEnd, 60), b"");
    bench.send(End::default());
    assert_eq!(left(bench.events()), [false; 0]);
}

#[test]
fn a_link_that_cannot_be_remembered_or_is_stolen_says_so() {
    let attach = || kept_sender(ReceiverSettleMode::First, TerminusExpiry::ConnectionClose, 60);
    let mut bench = Bench::begun();
    bench.send(attach());
    let [Event::Link(LinkEvent::Resume(resume))] = &bench.events()[..] else { panic!("no question") };
    bench.reply(resume.ticket, Err(Refusal::TooManyLinks { max: 1 }));
    let frames = bench.frames();
    let [Performative::Attach(answer), Performative::Flow(_)] = &frames[..] else { panic!("{frames:?}") };
    let Some(TargetTerminus::Target(target)) = &answer.target else { panic!("no target") };
    assert_eq!((target.expiry_policy, target.timeout), (TerminusExpiry::LinkDetach, 0));

    // One whose name is too long is not even asked for.
    let mut bench = Bench::new();
    bench.bytes(b"AMQP\0\x01\0\0");
    bench.send(Open { container_id: "client".into(), max_frame_size: 4096, ..Open::default() });
    bench.send(Begin { incoming_window: 100, outgoing_window: 100, ..Begin::default() });
    bench.frames();
    bench.events();
    bench.send(Attach { name: "l".repeat(1024).into(), ..attach() });
    assert_eq!(bench.events().len(), 0);
    let frames = bench.frames();
    assert!(matches!(frames[..], [Performative::Attach(_), Performative::Flow(_)]), "{frames:?}");

    // Attached again before the answer, it is detached, and the answer to the earlier attach is
    // dropped.
    let mut bench = Bench::begun();
    bench.send(attach());
    bench.send(Attach { handle: 2, ..attach() });
    let events = bench.events();
    let asked = events.iter().filter_map(|event| match event {
        Event::Link(LinkEvent::Resume(resume)) => Some(resume.ticket),
        _ => None,
    });
    let asked: Vec<Ticket> = asked.collect();
    assert_eq!((asked.len(), ends(&bench.frames())), (2, vec![("detach", Some("amqp:link:stolen"))]));
    bench.reply(asked[0], Err(Refusal::LinkLost { name: "l".into() }));
    assert_eq!(bench.frames(), []);
    bench.reply(asked[1], Ok(()));
    assert!(matches!(bench.frames()[..], [Performative::Attach(_), Performative::Flow(_)]));

    let mut bench = Bench::begun();
    let (resume, _) = bench.resumes(attach(), &[]);
    bench.answer(ToSession::Detached { consumer: resume.holder, cause: DetachCause::Stolen });
    assert_eq!(ends(&bench.frames()), [("detach", Some("amqp:link:stolen"))]);
}

#[test]
fn words_that_fit_no_frame_are_left_out_and_the_condition_is_not() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    bench.send_on(0, transfer(0), BODY);
    let events = bench.events();
    let [Event::Publish(publish)] = &events[..] else { panic!("{events:?}") };
    bench.read();
    bench.reply(publish.ticket, Err(Refusal::StoreFailed { reason: "long ".repeat(1000) }));
    let frames = bench.frames();
    let [Performative::Disposition(Disposition { state: Some(DeliveryState::Rejected(told)), .. })] =
        &frames[..]
    else {
        panic!("{frames:?}")
    };
    let error = told.error.as_ref().map(|error| (error.condition.as_str(), &error.description));
    assert_eq!(error, Some(("amqp:internal-error", &None)));
}

#[test]
fn messages_that_are_aborted_cost_no_credit_for_good() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    let mut credit = 0;
    for number in 0..5000 {
        for frame in bench.frames() {
            if let Performative::Flow(Flow { handle: Some(0), link_credit: Some(granted), .. }) = frame {
                credit = granted;
            }
        }
        assert!(credit > 0, "none left after {number}");
        credit -= 1;
        bench.send_on(0, Transfer { aborted: true, ..transfer(number) }, b"whatever");
    }
    assert_eq!((bench.events().len(), &bench.parting), (0, &None));
}

#[test]
fn how_a_receiver_settles_is_of_no_matter_to_what_is_settled_already() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    bench.frames();
    let rcv_settle_mode = Some(ReceiverSettleMode::Second);
    bench.send_on(0, Transfer { settled: Some(true), rcv_settle_mode, ..transfer(0) }, BODY);
    assert!(matches!(bench.events()[..], [Event::Publish(_)]));
    assert_eq!(bench.frames(), []);
}

#[test]
fn nothing_is_said_of_a_link_ahead_of_its_attach() {
    let mut bench = Bench::begun();
    bench.send(receiver(Attach::default()));
    bench.send(Flow { handle: Some(0), link_credit: Some(5), echo: true, ..windows() });
    let events = bench.events();
    let [Event::Attach(attach)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(bench.frames(), []);
    bench.reply(attach.ticket, Ok(()));
    let frames = bench.frames();
    let [Performative::Attach(_), Performative::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((flow.handle, flow.link_credit), (Some(0), Some(5)));
    assert!(matches!(bench.events()[..], [Event::Credit { add: 5, .. }]));

    // The node of a sender is being made.
    let mut bench = Bench::begun();
    bench.sender(0, TargetTerminus::Target(Target { dynamic: true, ..Target::default() }));
    bench.send(Flow { handle: Some(0), delivery_count: Some(0), echo: true, ..windows() });
    assert_eq!(bench.frames(), []);
    let events = bench.events();
    let [Event::Declare { ticket, .. }] = &events[..] else { panic!("{events:?}") };
    bench.reply(*ticket, Ok(()));
    assert!(matches!(bench.frames()[..], [Performative::Attach(_), Performative::Flow(_)]));
}

#[test]
fn what_the_client_counts_is_taken_over() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    bench.frames();
    let said = |bench: &mut Bench, delivery_count, next_outgoing_id| {
        let flow =
            Flow { handle: Some(0), delivery_count: Some(delivery_count), next_outgoing_id, ..windows() };
        bench.send(Flow { echo: true, ..flow });
        let frames = bench.frames();
        let [Performative::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
        (flow.delivery_count, flow.link_credit, flow.next_incoming_id)
    };
    for (case, delivery_count, next_outgoing_id, want) in [
        ("nothing new", 0, 0, (Some(0), Some(1000), Some(0))),
        ("some were passed over", 100, 7, (Some(100), Some(900), Some(7))),
        ("many were: there is credit for more", 600, 8, (Some(600), Some(1000), Some(8))),
        ("more than there was credit for", 9999, 8, (Some(9999), Some(1000), Some(8))),
        ("back again", 9990, 8, (Some(9990), Some(1000), Some(8))),
    ] {
        assert_eq!(said(&mut bench, delivery_count, next_outgoing_id), want, "case: {case}");
    }
}

#[test]
fn whoever_has_not_named_all_it_holds_is_sent_nothing_new() {
    let mut bench = Bench::begun();
    let number = bench.receiver(Attach { incomplete_unsettled: true, ..Attach::default() });
    bench.send(Flow { handle: Some(0), link_credit: Some(5), ..windows() });
    assert!(bench.events().is_empty());
    bench.send(Flow { handle: Some(0), link_credit: Some(5), drain: true, ..windows() });
    assert!(matches!(bench.events()[..], [Event::Drain { .. }]));
    bench.answer(ToSession::Drained { consumer: key(number) });
    let frames = bench.frames();
    let [Performative::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(5), Some(0), true));
}

#[test]
fn what_was_settled_in_a_transaction_that_fails_has_the_default_outcome() {
    let modified = |delivery_failed| {
        let modified = Modified { delivery_failed, ..Modified::default() };
        Some(Box::new(DeliveryState::Modified(modified)))
    };
    for (case, default_outcome, want) in [
        ("none", None, Outcome::Released { failed: true }),
        ("modified", modified(true), Outcome::Released { failed: true }),
        ("uncounted", modified(false), Outcome::Released { failed: false }),
        ("accepted", Some(Box::new(DeliveryState::Accepted(Accepted {}))), Outcome::Accepted),
    ] {
        let mut bench = Bench::begun();
        let txn_id = bench.declares(8);
        let source = Source { address: Some("q".into()), default_outcome, ..Source::default() };
        bench.send(Attach { source: Some(SourceTerminus::Source(source)), ..receiver(Attach::default()) });
        let events = bench.events();
        let [Event::Attach(attach)] = &events[..] else { panic!("{events:?}") };
        bench.reply(attach.ticket, Ok(()));
        bench.send(Flow { handle: Some(0), link_credit: Some(1), ..windows() });
        bench.deliver(attach.consumer.number, 1, Protocol::Amqp);
        let state = TransactionalState { txn_id: txn_id.clone(), outcome: None };
        bench.send(verdict(0, None, true, Some(DeliveryState::TransactionalState(state))));
        let discharge = coordinator_message(Discharge { txn_id, fail: true });
        bench.send_on(0, Transfer { handle: 8, ..transfer(9) }, &discharge);
        let events = bench.events();
        let Some(Event::Rollback { ticket: Some(ticket), .. }) = events.last() else { panic!("{events:?}") };
        bench.reply(*ticket, Ok(()));
        assert_eq!(settles(&bench.events()), [(vec![1], want)], "case: {case}");
    }
}

#[test]
fn an_answer_names_what_a_terminus_has_and_nothing_else() {
    use DistributionMode::{Copy, Move};
    let capabilities = |names: &[&'static str]| names.iter().copied().map(Symbol::from_static).collect();
    for (case, address, wished_mode, wished, want) in [
        ("a queue", "q", None, &[][..], (Some(Move), &[][..])),
        ("a queue that is browsed", "q", Some(Copy), &["queue", "x"], (Some(Copy), &["queue"])),
        ("a topic", "topic://t", None, &["topic", "shared", "unheard-of"], (None, &["topic", "shared"])),
    ] {
        let mut bench = Bench::begun();
        let source = Source {
            address: Some(address.into()),
            distribution_mode: wished_mode,
            capabilities: capabilities(wished),
            ..Source::default()
        };
        bench.send(Attach { source: Some(SourceTerminus::Source(source)), ..receiver(Attach::default()) });
        let events = bench.events();
        let [Event::Attach(attach)] = &events[..] else { panic!("{events:?}") };
        bench.reply(attach.ticket, Ok(()));
        let frames = bench.frames();
        let [Performative::Attach(Attach { source: Some(SourceTerminus::Source(got)), .. })] = &frames[..]
        else {
            panic!("{frames:?}")
        };
        let want = (want.0, capabilities(want.1));
        assert_eq!((got.distribution_mode, got.capabilities.clone()), want, "case: {case}");
    }
    // A node that is made for a link ends with it, whatever was wished for.
    let mut bench = Bench::begun();
    let ends = |number| {
        let described = Described { descriptor: Value::Ulong(number), value: Value::List(vec![]) };
        let mut properties = ValueMap::default();
        properties.push("lifetime-policy", Value::Described(Box::new(described)));
        Some(properties)
    };
    let wished = Target {
        dynamic: true,
        dynamic_node_properties: ends(0x2e),
        capabilities: capabilities(&["temporary-queue", "x"]),
        ..Target::default()
    };
    bench.sender(0, TargetTerminus::Target(wished));
    let events = bench.events();
    let [Event::Declare { ticket, .. }] = &events[..] else { panic!("{events:?}") };
    bench.reply(*ticket, Ok(()));
    let frames = bench.frames();
    let Some(Performative::Attach(Attach { target: Some(TargetTerminus::Target(got)), .. })) = frames.first()
    else {
        panic!("{frames:?}")
    };
    let got = (got.dynamic_node_properties.clone(), got.capabilities.clone());
    assert_eq!(got, (ends(0x2b), capabilities(&["temporary-queue"])));
}

#[test]
fn an_idle_timeout_that_cannot_be_kept_is_refused() {
    for (idle_ms, want) in [(0, vec![]), (199, vec![("close", Some("amqp:invalid-field"))]), (200, vec![])] {
        let mut bench = Bench::new();
        bench.bytes(b"AMQP\0\x01\0\0");
        bench.send(Open { container_id: "c".into(), idle_time_out: Some(idle_ms), ..Open::default() });
        assert_eq!(ends(&bench.frames()), want, "{idle_ms}");
    }
}

#[test]
fn a_frame_of_sasl_has_one_value() {
    let mut init = sasl_init("PLAIN", Some(b"\0me\0secret"));
    init.extend_from_slice(b"xy");
    let size = u32::try_from(init.len()).expect("small").to_be_bytes();
    init[..4].copy_from_slice(&size);
    let mut bench = Bench::new();
    bench.bytes(b"AMQP\x03\x01\0\0");
    bench.bytes(&init);
    assert_eq!(
        (bench.session.login(), bench.parting),
        (None, fault("SASL: 2 bytes follow a SaslInit frame"))
    );
}

#[test]
fn what_is_on_its_way_to_a_link_that_has_ended_is_passed_over() {
    let mut bench = Bench::begun();
    bench.sender(0, target("q"));
    bench.send_on(0, Transfer { settled: Some(true), ..transfer(0) }, b"noise");
    assert_eq!(ends(&bench.frames()), [("detach", Some("amqp:decode-error"))]);
    bench.send_on(0, transfer(1), BODY);
    bench.send(Flow { handle: Some(0), delivery_count: Some(2), echo: true, ..windows() });
    assert_eq!((bench.events().len(), bench.frames()), (0, vec![]));
    // A client that continues after it has answered the detach is at fault.
    bench.send(Detach { handle: 0, closed: true, ..Detach::default() });
    bench.send_on(0, transfer(2), BODY);
    assert_eq!(ends(&bench.frames()), [("end", Some("amqp:session:unattached-handle"))]);
}

#[test]
fn a_message_that_the_client_takes_none_so_large_of_ends_its_link_and_stays() {
    for (max_message_size, want) in [
        (None, vec![]),
        (Some(0), vec![]),
        (Some(BODY.len() as u64), vec![]),
        (Some(BODY.len() as u64 - 1), vec![("detach", Some("amqp:link:message-size-exceeded"))]),
    ] {
        let mut bench = Bench::begun();
        let number = bench.receiver(Attach { max_message_size, ..Attach::default() });
        bench.send(Flow { handle: Some(0), link_credit: Some(9), ..windows() });
        bench.events();
        bench.deliver(number, 1, Protocol::Amqp);
        assert_eq!(ends(&bench.frames()), want, "{max_message_size:?}");
        let events = bench.events();
        match want.is_empty() {
            true => assert!(events.is_empty(), "{events:?}"),
            false => {
                assert!(matches!(events[..], [Event::Detach { .. }]), "it is nobody's verdict: {events:?}")
            }
        }
    }
}

#[test]
fn an_empty_frame_says_nothing_but_that_somebody_is_there() {
    let mut bench = Bench::begun();
    bench.now.ticks_ms = 59_999;
    for channel in [0, 7, u8::MAX] {
        bench.bytes(&[0, 0, 0, 8, 2, 0, channel, channel]);
    }
    assert_eq!((bench.events().len(), bench.read().len(), &bench.parting), (0, 0, &None));
    bench.now.ticks_ms = 119_998;
    let Bench { session, events, output, now, .. } = &mut bench;
    assert_eq!(session.wake(*now, events, output), Ok(()), "it was heard");
}

#[test]
fn our_numbers_stay_within_what_the_client_takes() {
    let begun = |channel_max| {
        let mut bench = Bench::new();
        bench.bytes(b"AMQP\0\x01\0\0");
        bench.send(Open { container_id: "c".into(), channel_max, ..Open::default() });
        bench.send_on(7, Begin { handle_max: 1, incoming_window: 9, ..Begin::default() }, b"");
        bench
    };
    let channels =
        |bench: &mut Bench| -> Vec<FrameKind> { bench.read().into_iter().map(|frame| frame.kind).collect() };
    let on = |channel| FrameKind::Amqp { channel };
    let mut bench = begun(1);
    assert_eq!(channels(&mut bench), [on(0), on(0)], "7 is above its own");
    bench.send_on(8, Begin::default(), b"");
    assert_eq!(channels(&mut bench), [on(1)]);
    bench.send_on(9, Begin::default(), b"");
    assert_eq!(ends(&bench.frames()), [("close", Some("amqp:not-allowed"))], "there is no third one");

    let mut bench = begun(7);
    bench.read();
    let mut handles = Vec::new();
    for handle in [9, 1, 0] {
        let name = format!("l{handle}").into();
        bench.send_on(7, Attach { name, handle, target: Some(target("q")), ..Attach::default() }, b"");
        for frame in bench.frames() {
            match frame {
                Performative::Attach(attach) => handles.push(attach.handle),
                frame => handles.extend(ends(&[frame]).iter().map(|_| 99)),
            }
        }
    }
    assert_eq!(handles, [0, 1, 99], "the third ends the session");
}

#[test]
fn whoever_does_not_wait_for_its_coordinator_loses_it() {
    let mut bench = Bench::begun();
    let txn_id = bench.declares(8);
    bench.send_on(
        0,
        Transfer { handle: 8, settled: Some(true), ..transfer(9) },
        &coordinator_message(Discharge { txn_id, fail: false }),
    );
    assert_eq!(ends(&bench.frames()), [("detach", Some("amqp:not-allowed"))]);
    assert!(matches!(bench.events()[..], [Event::Rollback { .. }]), "and what was open is rolled back");
}

#[test]
fn what_a_client_comes_back_to_is_its_users() {
    let mut bench = Bench::choosing("PLAIN", Some(b"\0ann\0secret"));
    bench.session.login();
    bench.admit(LoginAnswer::Welcome { principal: Principal::User("ann".into()), last: None });
    bench.sasl_frames();
    bench.bytes(b"AMQP\0\x01\0\0");
    bench.send(Open { container_id: "client".into(), ..Open::default() });
    bench.send(Begin { incoming_window: 100, outgoing_window: 100, ..Begin::default() });
    let introduced = bench.events.iter().find_map(|event| match event {
        Event::Introduce { client, .. } => client.user.clone(),
        _ => None,
    });
    assert_eq!(introduced.as_deref(), Some("ann"));
    bench.events();
    let durable = TerminusDurability::UnsettledState;
    let source = Source { address: Some("topic://t".into()), durable, ..Source::default() };
    bench.send(Attach { source: Some(SourceTerminus::Source(source)), ..receiver(Attach::default()) });
    bench.send(kept_sender(ReceiverSettleMode::First, TerminusExpiry::ConnectionClose, 60));
    let events = bench.events();
    let [Event::Attach(attach), Event::Link(LinkEvent::Resume(resume))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((attach.steals.as_deref(), &*resume.link.user), (Some("ann"), "ann"));
}

#[test]
fn a_pattern_is_read_in_each_partition_with_one_credit() {
    let begin = || Begin { incoming_window: 100, outgoing_window: 100, ..Begin::default() };
    let options = || AmqpOptions { partitions: 3, ..Bench::options() };
    let attach = |address: &str| {
        let source = Source { address: Some(address.into()), ..Source::default() };
        Attach { source: Some(SourceTerminus::Source(source)), ..receiver(Attach::default()) }
    };
    let places = |events: &[Event]| -> Vec<(String, Option<u16>, bool)> {
        let place = |event: &Event| match event {
            Event::Attach(attach) => {
                (attach.source.to_string(), attach.at.map(|at| at.0), attach.notice.is_some())
            }
            other => panic!("{other:?}"),
        };
        events.iter().map(place).collect()
    };
    for (address, everywhere) in [
        ("a.*", true),
        ("queue://a.>", true),
        ("topic://*.a", true),
        ("a*", false),
        ("topic://a", false),
        ("temp-queue://*", false),
    ] {
        let mut bench = Bench::begun_as(options(), begin());
        bench.send(attach(address));
        let name = if address.contains("://") { address.to_owned() } else { format!("queue://{address}") };
        let want = match everywhere {
            true => (0..3).map(|at| (name.clone(), Some(at), at == 0)).collect(),
            false => vec![(name, None, true)],
        };
        assert_eq!(places(&bench.events()), want, "{address}");
    }

    let mut bench = Bench::begun_as(options(), begin());
    bench.send(attach("a.*"));
    let events = bench.events();
    let consumers: Vec<(ConsumerKey, Ticket)> = events
        .iter()
        .filter_map(|event| match event {
            Event::Attach(attach) => Some((attach.consumer, attach.ticket)),
            _ => None,
        })
        .collect();
    for (count, (_, ticket)) in consumers.iter().enumerate() {
        assert_eq!((bench.frames(), count), (vec![], count), "not before all agree");
        bench.reply(*ticket, Ok(()));
    }
    assert!(matches!(bench.frames()[..], [Performative::Attach(_)]));
    bench.send(Flow { handle: Some(0), link_credit: Some(1), ..windows() });
    assert!(matches!(
        bench.events()[..],
        [Event::Credit { add: 1, .. }, Event::Credit { .. }, Event::Credit { .. }]
    ));
    // The first gets it; sends of the second meanwhile go back. A member of a pattern settles its
    // deliveries.
    let member = consumers[1].0.with_member(7);
    bench.deliver_to(member, 1, Protocol::Amqp);
    bench.deliver_to(consumers[0].0, 2, Protocol::Amqp);
    assert_eq!(settles(&bench.events()), [(vec![2], Outcome::Released { failed: false })]);
    assert!(matches!(bench.frames()[..], [Performative::Transfer(_)]));
    bench.send(verdict(0, None, true, Some(DeliveryState::Accepted(Accepted {}))));
    let events = bench.events();
    let [Event::Settle(settle)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((settle.consumer, settle.outcome), (member, Outcome::Accepted));
    // It is drained once all are.
    bench.send(Flow {
        handle: Some(0),
        delivery_count: Some(1),
        link_credit: Some(5),
        drain: true,
        ..windows()
    });
    let drains: Vec<ConsumerKey> = bench
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Drain { consumer } => Some(*consumer),
            _ => None,
        })
        .collect();
    assert_eq!(drains, consumers.iter().map(|(consumer, _)| *consumer).collect::<Vec<_>>());
    for consumer in drains {
        assert_eq!(bench.frames(), []);
        bench.answer(ToSession::Drained { consumer });
    }
    let frames = bench.frames();
    let [Performative::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(6), Some(0), true));
    bench.send(Detach { handle: 0, closed: true, error: None });
    let events = bench.events();
    let left = |event: &Event| matches!(event, Event::Detach { ticket: Some(_), .. });
    assert_eq!((events.len(), events.iter().all(left)), (3, true), "{events:?}");
    for event in events {
        assert_eq!(bench.frames(), []);
        let Event::Detach { ticket: Some(ticket), .. } = event else { panic!("{event:?}") };
        bench.reply(ticket, Ok(()));
    }
    assert_eq!(ends(&bench.frames()), [("detach", None)]);
}

#[test]
fn a_link_whose_messages_wait_gets_no_more_credit_and_others_go_on() {
    let mut bench = Bench::begun();
    bench.sender(0, target("full"));
    bench.sender(1, target("q"));
    bench.frames();
    (0..1000).for_each(|number| bench.send_on(0, transfer(number), BODY));
    let waiting: Vec<Ticket> = bench
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Publish(publish) => Some(publish.ticket),
            _ => None,
        })
        .collect();
    assert_eq!(waiting.len(), 1000);
    let of_link = |frames: Vec<Performative>, handle| -> Vec<Option<u32>> {
        let credit = |frame: &Performative| match frame {
            Performative::Flow(flow) if flow.handle == Some(handle) => Some(flow.link_credit),
            _ => None,
        };
        frames.iter().filter_map(credit).collect()
    };
    assert_eq!(of_link(bench.frames(), 0), [], "nobody has taken anything");
    for delivery_count in [0, 500, 1000, 1] {
        bench.send(Flow { handle: Some(0), delivery_count: Some(delivery_count), ..windows() });
        assert_eq!(of_link(bench.frames(), 0), [], "nor is credit to be had by counting back");
    }
    bench.send_on(0, Transfer { handle: 1, ..transfer(1000) }, BODY);
    assert!(matches!(bench.events()[..], [Event::Publish(_)]), "the other link goes on");
    bench.send_on(0, transfer(1001), BODY);
    assert_eq!(ends(&bench.frames()), [("detach", Some("amqp:link:transfer-limit-exceeded"))]);

    // There is room again.
    let mut bench = Bench::begun();
    bench.sender(0, target("full"));
    bench.frames();
    (0..1000).for_each(|number| bench.send_on(0, transfer(number), BODY));
    let events = bench.events();
    for (count, event) in events.iter().enumerate() {
        let Event::Publish(publish) = event else { panic!("{event:?}") };
        bench.reply(publish.ticket, Ok(()));
        let credit = of_link(bench.frames(), 0);
        match count + 1 {
            500 => assert_eq!(credit, [Some(500)]),
            1000 => assert_eq!(credit, [Some(1000)]),
            _ => assert_eq!(credit, [], "{count}"),
        }
    }
}

#[test]
fn a_connection_ends_with_the_node_that_leads_now_2_8_16() {
    for (onward, condition) in
        [(Endpoint::parse("amqp://n1:5672"), "amqp:connection:redirect"), (None, "amqp:connection:forced")]
    {
        let mut bench = Bench::begun();
        bench.session.stop(onward.as_ref(), Now::default(), &mut bench.output);
        let frames = bench.frames();
        let [Performative::Close(close)] = &frames[..] else { panic!("{condition}: {frames:?}") };
        let error = close.error.as_ref().unwrap();
        assert_eq!(error.condition.as_str(), condition);
        let port = error.info.as_ref().and_then(|info| info.get("port")).cloned();
        assert_eq!(port, onward.map(|it| Value::Uint(u32::from(it.port))), "{condition}");
    }
}

#[test]
fn a_client_whose_login_is_served_elsewhere_reads_why_in_the_answer_to_its_open() {
    let mut bench = Bench::choosing("PLAIN", Some(b"\0me\0right"));
    let reason = "store 3 is not here".to_owned();
    bench.admit(LoginAnswer::Elsewhere { reason: reason.clone(), last: None });
    let frames = bench.sasl_frames();
    let [SaslFrame::SaslOutcome(outcome)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(outcome.code, SaslCode::Ok);
    bench.bytes(b"AMQP\0\x01\0\0");
    bench.send(Open { container_id: "client".into(), ..Open::default() });
    assert!(bench.parting.is_some() && bench.events.is_empty());
    let frames = bench.frames();
    let [Performative::Open(_), Performative::Close(close)] = &frames[..] else { panic!("{frames:?}") };
    let error = close.error.as_ref().unwrap();
    assert_eq!(error.condition.as_str(), "amqp:connection:forced");
    assert_eq!(error.description.as_ref().map(|text| text.as_str()), Some(&*reason));
}

#[test]
fn a_client_that_is_served_elsewhere_is_redirected_2_8_16() {
    for (served_at, condition) in
        [(Endpoint::parse("amqp://n1:5672"), "amqp:connection:redirect"), (None, "amqp:connection:forced")]
    {
        let elsewhere = Elsewhere {
            reason: "n2 follows n1".to_owned(),
            served_at: served_at.clone(),
            serves_others: false,
        };
        let mut bench = Bench::with(AmqpOptions { elsewhere: Some(Arc::new(elsewhere)), ..Bench::options() });
        bench.bytes(b"AMQP\0\x01\0\0");
        bench.send(Open { container_id: "client".into(), ..Open::default() });
        assert!(bench.parting.is_some() && bench.events.is_empty());
        let frames = bench.frames();
        let [Performative::Open(open), Performative::Close(close)] = &frames[..] else {
            panic!("{condition}: {frames:?}");
        };
        let properties = open.properties.as_ref().unwrap();
        assert!(properties.get("amqp:connection-establishment-failed").is_some(), "{condition}");
        let error = close.error.as_ref().unwrap();
        assert_eq!(error.condition.as_str(), condition);
        let told = |name: &str| error.info.as_ref().and_then(|info| info.get(name)).cloned();
        let host = served_at.as_ref().map(|it| Value::from(it.host.as_str()));
        let port = served_at.map(|it| Value::Uint(u32::from(it.port)));
        assert_eq!((told("network-host"), told("hostname"), told("port")), (host.clone(), host, port));
    }
}

use super::*;
use crate::codec::{BrokerInfo, ConnectionError, Destination, ExceptionResponse, Response, Throwable};

const NOW_MS: u64 = 1_000;

/// A broker that sends scripted commands, and decodes the client's.
struct Broker {
    format: WireFormat,
    frames: FrameReader,
}

impl Broker {
    fn new() -> Broker {
        Broker { format: WireFormat::initial(), frames: FrameReader::new(u64::MAX) }
    }

    fn says(&mut self, command: impl Into<Command>) -> Vec<u8> {
        let mut out = BytesMut::new();
        self.format.encode(&command.into(), &mut out).unwrap();
        out.to_vec()
    }

    fn heard(&mut self, client: &mut OpenWireClient) -> Vec<Command> {
        self.frames.push(&client.output().split());
        let mut commands = Vec::new();
        while let Some(frame) = self.frames.next_frame().unwrap() {
            commands.push(self.format.decode(&frame).unwrap());
        }
        commands
    }
}

fn options() -> ClientOptions {
    ClientOptions {
        connection_id: "ID:c".into(),
        user: Some("u".into()),
        password: Some("p".into()),
        max_inactivity_ms: 30_000,
    }
}

fn events(client: &mut OpenWireClient) -> Vec<ClientEvent> {
    std::iter::from_fn(|| client.next_event()).collect()
}

fn names(commands: &[Command]) -> Vec<&'static str> {
    commands.iter().map(Command::name).collect()
}

fn greeting(broker: &mut Broker) -> Vec<u8> {
    let info = WireFormatOptions { max_frame_bytes: 2_000, ..WireFormatOptions::pass_through(0) };
    broker.says(info.to_info().unwrap())
}

fn response(correlation_id: i32) -> Response {
    Response { correlation_id, ..Response::default() }
}

/// A client that the broker has accepted.
fn connected() -> (OpenWireClient, Broker) {
    let mut client = OpenWireClient::new(options(), NOW_MS).unwrap();
    let mut broker = Broker::new();
    let bytes = greeting(&mut broker);
    client.receive(&bytes, NOW_MS).unwrap();
    let heard = broker.heard(&mut client);
    assert_eq!(names(&heard), ["WireFormatInfo", "ConnectionInfo", "SessionInfo"]);
    let bytes = broker.says(response(heard[1].command_id()));
    client.receive(&bytes, NOW_MS).unwrap();
    assert_eq!(events(&mut client), [ClientEvent::Connected]);
    (client, broker)
}

#[test]
fn a_client_presents_itself_when_the_broker_has_said_what_it_speaks() {
    let mut client = OpenWireClient::new(options(), NOW_MS).unwrap();
    let mut broker = Broker::new();
    assert_eq!(names(&broker.heard(&mut client)), ["WireFormatInfo"]);
    let bytes = [greeting(&mut broker), broker.says(BrokerInfo::default())].concat();
    for byte in bytes {
        client.receive(&[byte], NOW_MS).unwrap();
    }
    let heard = broker.heard(&mut client);
    let Command::ConnectionInfo(info) = &heard[0] else { panic!("{heard:?}") };
    let who = (info.client_id.clone(), info.user_name.clone(), info.password.clone());
    assert_eq!(who, (Some("ID:c".into()), Some("u".into()), Some("p".into())));
    assert!(info.response_required);
}

#[test]
fn what_the_broker_says_becomes_events() {
    let consumer_id = |value| ConsumerId { connection_id: Some("ID:c".into()), session_id: 1, value };
    let queue = Destination::Queue("a".into());
    let message = Message { destination: Some(queue.clone()), ..Message::default() };
    let exception = Some(Box::new(Throwable::new("javax.jms.JMSException", "no")));
    let refusal = BrokerException { class: "javax.jms.JMSException".into(), message: "no".into() };
    let asked = connected().0.send(Message::default(), true).unwrap().0;
    let cases: Vec<(&str, Command, Vec<ClientEvent>)> = vec![
        ("done", response(asked.0).into(), vec![ClientEvent::Done(asked)]),
        ("done, which nobody asked about", response(asked.0 - 1).into(), vec![]),
        (
            "refused",
            ExceptionResponse { correlation_id: 9, exception: exception.clone(), ..Default::default() }
                .into(),
            vec![ClientEvent::Refused { request: RequestId(9), exception: refusal.clone() }],
        ),
        (
            "failed",
            ConnectionError { exception, ..Default::default() }.into(),
            vec![ClientEvent::Failed(refusal)],
        ),
        (
            "message",
            MessageDispatch {
                consumer_id: Some(consumer_id(3)),
                destination: Some(queue.clone()),
                message: Some(Box::new(message.clone())),
                redelivery_counter: 2,
                ..Default::default()
            }
            .into(),
            vec![ClientEvent::Delivered(Incoming {
                consumer: ConsumerNumber(3),
                destination: queue,
                message: Box::new(message),
                redeliveries: 2,
            })],
        ),
        (
            "no message",
            MessageDispatch { consumer_id: Some(consumer_id(3)), ..Default::default() }.into(),
            vec![ClientEvent::NothingMore(ConsumerNumber(3))],
        ),
        ("farewell", ShutdownInfo::default().into(), vec![ClientEvent::Leaving]),
        ("of no concern", BrokerInfo::default().into(), vec![]),
    ];
    for (case, command, want) in cases {
        let (mut client, mut broker) = connected();
        assert_eq!(client.send(Message::default(), true).unwrap().0, asked);
        let bytes = broker.says(command);
        assert_eq!(client.receive(&bytes, NOW_MS), Ok(()), "case: {case}");
        assert_eq!(events(&mut client), want, "case: {case}");
    }
}

#[test]
fn what_no_broker_says_ends_the_conversation() {
    let mut broker = Broker::new();
    for (case, bytes, want) in [
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Err(ClientError::NotOpenWire)),
        ("small frame", vec![0, 0, 0, 2, 1, 2], Err(ClientError::NotOpenWire)),
        ("command ahead of the greeting", broker.says(response(1)), Err(ClientError::NotOpenWire)),
        ("greeting", greeting(&mut broker), Ok(())),
        (
            "two greetings",
            [greeting(&mut broker), greeting(&mut broker)].concat(),
            Err(ClientError::Unexpected { name: "a second WireFormatInfo" }),
        ),
        (
            "a command for brokers",
            [greeting(&mut broker), broker.says(ConsumerInfo::default())].concat(),
            Err(ClientError::Unexpected { name: "ConsumerInfo" }),
        ),
        (
            "no command",
            [greeting(&mut broker), vec![0, 0, 0, 1, 99]].concat(),
            Err(ClientError::Wire(WireError::UnknownType { type_id: 99, offset: 0 })),
        ),
    ] {
        let mut client = OpenWireClient::new(options(), NOW_MS).unwrap();
        assert_eq!(client.receive(&bytes, NOW_MS), want, "case: {case}");
    }
}

#[test]
fn messages_get_ids_one_after_the_other() {
    let (mut client, mut broker) = connected();
    let (first, _) = client.send(Message::default(), true).unwrap();
    let (second, id) = client.send(Message::default(), false).unwrap();
    assert_ne!(first, second);
    assert_eq!(super::super::message_id_text(&id), "ID:c:1:1:2");
    let heard = broker.heard(&mut client);
    assert_eq!(names(&heard), ["ProducerInfo", "ActiveMQMessage", "ActiveMQMessage"]);
    let sent: Vec<_> =
        heard[1..].iter().map(|sent| (RequestId(sent.command_id()), sent.response_required())).collect();
    assert_eq!(sent, [(first, true), (second, false)]);
}

#[test]
fn a_message_above_the_brokers_limit_is_refused_and_the_connection_goes_on() {
    let (mut client, mut broker) = connected();
    let large = Message { content: Some(vec![0; 2_001].into()), ..Message::default() };
    let refused = client.send(large, true).unwrap_err();
    assert!(matches!(refused, WireError::FrameTooLarge { max_bytes: 2_000, .. }), "{refused}");
    let (_, id) = client.send(Message::default(), true).unwrap();
    assert_eq!(id.producer_sequence_id, 1, "what was not sent has no number");
    assert_eq!(names(&broker.heard(&mut client)), ["ProducerInfo", "ActiveMQMessage"]);
}

#[test]
fn acknowledgements_name_their_range() {
    let (mut client, mut broker) = connected();
    let subscription = Subscription {
        destination: Destination::Queue("a".into()),
        prefetch: 7,
        browses: false,
        selector: None,
    };
    let (_, consumer) = client.subscribe(&subscription).unwrap();
    let incoming = |sequence| Incoming {
        consumer,
        destination: Destination::Queue("a".into()),
        message: Box::new(Message {
            message_id: Some(MessageId { broker_sequence_id: sequence, ..MessageId::default() }),
            ..Message::default()
        }),
        redeliveries: 0,
    };
    client.acknowledge(&incoming(1), &incoming(3), 3, Verdict::Consumed, true).unwrap();
    client.acknowledge(&incoming(4), &incoming(4), 1, Verdict::Seen, false).unwrap();
    client.unsubscribe(consumer, Some(4)).unwrap();
    let heard = broker.heard(&mut client);
    let [
        Command::ConsumerInfo(info),
        Command::MessageAck(done),
        Command::MessageAck(seen),
        Command::RemoveInfo(end),
    ] = &heard[..]
    else {
        panic!("{heard:?}")
    };
    let sequence = |id: &Option<MessageId>| id.as_ref().map(|id| id.broker_sequence_id);
    let range = |ack: &MessageAck| {
        (ack.ack_type, sequence(&ack.first_message_id), sequence(&ack.last_message_id), ack.message_count)
    };
    assert_eq!((info.prefetch_size, info.browser), (7, false));
    assert_eq!(range(done), (MessageAck::STANDARD, Some(1), Some(3), 3));
    assert_eq!(range(seen), (MessageAck::DELIVERED, Some(4), Some(4), 1));
    assert_eq!((done.response_required, seen.response_required), (true, false));
    assert_eq!(end.last_delivered_sequence_id, 4);
}

#[test]
fn signs_of_life_are_written_in_time_and_wanted_from_the_broker() {
    let (mut client, mut broker) = connected();
    client.wake(NOW_MS + 9_999).unwrap();
    assert_eq!(names(&broker.heard(&mut client)), [""; 0]);
    client.wake(NOW_MS + 10_000).unwrap();
    assert_eq!(names(&broker.heard(&mut client)), ["KeepAliveInfo"]);
    assert_eq!(
        client.wake(NOW_MS + 30_000),
        Err(ClientError::Silent(postroad_model::Silence::Peer { ms: 30_000 }))
    );
}

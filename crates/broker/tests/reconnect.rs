//! Connections whose sockets take nothing more, while the broker still holds them for alive: their
//! client has connected again, or is gone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod running;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use postroad_openwire::codec::{
    Command, ConnectionId, ConnectionInfo, ConsumerId, ConsumerInfo, Destination, KeepAliveInfo, Message,
    MessageAck, MessageId, ProducerId, WireFormat, WireFormatOptions, WireString, take_frame,
};
use running::Broker;

/// Nothing here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// More than sockets and the connection itself hold for a client that does not read.
const MESSAGES: i64 = 400;
const MESSAGE_BYTES: usize = 100_000;

/// A client without a library.
struct Client {
    name: WireString,
    stream: TcpStream,
    input: BytesMut,
    format: WireFormat,
    commands: i32,
}

impl Client {
    /// The connection of this name.
    fn connect(broker: &Broker, name: &str) -> Client {
        Client::connect_with(broker, name, WireFormatOptions::pass_through(100 << 20))
    }

    fn connect_with(broker: &Broker, name: &str, options: WireFormatOptions) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, broker.openwire)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (input, format) = (BytesMut::new(), WireFormat::initial());
        let mut client = Client { name: name.into(), stream, input, format, commands: 0 };
        client.say(options.to_info().unwrap().into());
        while !matches!(client.read(), Command::WireFormatInfo(_)) {}
        client.format = WireFormat::loose(12);
        let info = ConnectionInfo {
            connection_id: Some(ConnectionId { value: Some(name.into()) }),
            client_id: Some(name.into()),
            response_required: true,
            ..ConnectionInfo::default()
        };
        client.ask(info.into());
        client
    }

    fn say(&mut self, mut command: Command) {
        self.commands += 1;
        command.set_command_id(self.commands);
        let mut output = BytesMut::new();
        self.format.encode(&command, &mut output).unwrap();
        self.stream.write_all(&output).unwrap();
    }

    /// Says something, and waits for the answer.
    fn ask(&mut self, command: Command) {
        self.say(command);
        loop {
            match self.read() {
                Command::Response(response) if response.correlation_id == self.commands => return,
                Command::ExceptionResponse(response) => panic!("{:?}", response.exception),
                _ => {}
            }
        }
    }

    fn read(&mut self) -> Command {
        loop {
            if let Some(frame) = take_frame(&mut self.input, u64::MAX).unwrap() {
                return self.format.decode(&frame).unwrap();
            }
            let mut part = vec![0; 64 << 10];
            let read = self.stream.read(&mut part).unwrap();
            assert!(0 < read, "the broker has closed");
            self.input.extend_from_slice(&part[..read]);
        }
    }

    /// Whether something comes within this time.
    fn has_more(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let has_more = !self.input.is_empty() || self.stream.peek(&mut [0]).is_ok();
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        has_more
    }

    fn consumer_id(&self) -> ConsumerId {
        ConsumerId { connection_id: Some(self.name.clone()), session_id: 1, value: 1 }
    }

    fn consume(&mut self, queue: &str, prefetch: i32) {
        let info = ConsumerInfo {
            consumer_id: Some(self.consumer_id()),
            destination: Some(Destination::Queue(queue.into())),
            prefetch_size: prefetch,
            ..ConsumerInfo::default()
        };
        self.say(info.into());
    }

    fn send(&mut self, queue: &str, sequence: i64) {
        let producer_id = ProducerId { connection_id: Some(self.name.clone()), session_id: 1, value: 1 };
        let producer_id = Some(producer_id);
        let message = Message {
            destination: Some(Destination::Queue(queue.into())),
            producer_id: producer_id.clone(),
            message_id: Some(MessageId {
                producer_id,
                producer_sequence_id: sequence,
                ..MessageId::default()
            }),
            content: Some(Bytes::from(vec![0; MESSAGE_BYTES])),
            persistent: true,
            response_required: true,
            ..Message::default()
        };
        self.ask(Command::Message(Box::new(message)));
    }

    /// The number of the next message that it is sent, which is done with.
    fn take(&mut self) -> i64 {
        loop {
            let Command::MessageDispatch(dispatch) = self.read() else { continue };
            let message = dispatch.message.unwrap();
            let ack = MessageAck {
                consumer_id: Some(self.consumer_id()),
                destination: message.destination.clone(),
                ack_type: MessageAck::STANDARD,
                last_message_id: message.message_id.clone(),
                message_count: 1,
                ..MessageAck::default()
            };
            self.say(ack.into());
            return message.message_id.unwrap().producer_sequence_id;
        }
    }
}

#[test]
fn a_client_that_connects_anew_gets_what_its_last_connection_never_took() {
    let broker = Broker::start();
    let mut stalled = Client::connect(&broker, "ID:c");
    stalled.consume("a", 1000);
    let mut producer = Client::connect(&broker, "ID:p");
    for sequence in 1..=MESSAGES {
        producer.send("a", sequence);
    }
    let mut anew = Client::connect(&broker, "ID:c");
    anew.consume("a", 1);
    let taken: BTreeSet<i64> = (0..MESSAGES).map(|_| anew.take()).collect();
    assert_eq!(taken.len() as i64, MESSAGES);
}

#[test]
fn what_a_client_holds_that_takes_nothing_is_free_once_it_is_silent() {
    const SILENCE: Duration = Duration::from_secs(3);
    let broker = Broker::start();
    let options = WireFormatOptions {
        max_inactivity_ms: SILENCE.as_millis() as i64,
        max_inactivity_initial_delay_ms: 0,
        ..WireFormatOptions::pass_through(100 << 20)
    };
    let mut producer = Client::connect(&broker, "ID:p");
    for sequence in 1..=MESSAGES {
        producer.send("a", sequence);
    }
    let mut stalled = Client::connect_with(&broker, "ID:c", options);
    stalled.consume("a", 1000);
    let mut other = Client::connect(&broker, "ID:d");
    other.consume("a", 1);
    // It reads nothing, and lives: messages that it holds are its own.
    let (begin, mut taken) = (Instant::now(), BTreeSet::new());
    while begin.elapsed() < SILENCE * 4 / 3 {
        stalled.say(KeepAliveInfo::default().into());
        if other.has_more(SILENCE / 15) {
            taken.insert(other.take());
        }
    }
    let held = MESSAGES as usize - taken.len();
    assert!(0 < held, "it held nothing");
    // And does not.
    taken.extend((0..held).map(|_| other.take()));
    assert_eq!(taken.len() as i64, MESSAGES);
}

//! Conversations that clients in their right mind do not have, at the door of a session.
#![allow(clippy::unwrap_used, reason = "all of this file is test code")]

use bytes::{Bytes, BytesMut};
use postroad_model::portable::{Portable, TranslationError};
use postroad_model::{ConnectionId as Connection, Event, Message as Stored, Now, Parting, Session};
use postroad_openwire::codec::{
    Command, Destination, Message, MessageId, ProducerId, WireFormat, WireFormatOptions,
};
use postroad_openwire::{OpenWireOptions, OpenWireSession};

const LARGE_BYTES: usize = 1 << 20;

fn read_nothing(_: &Stored) -> Result<Portable, TranslationError> {
    Ok(Portable::default())
}

/// A session, and what it has said so far.
struct Conversation {
    session: OpenWireSession,
    format: WireFormat,
    events: Vec<Event>,
    output: BytesMut,
}

impl Conversation {
    /// Both sides have said what they speak, and the client not yet who it is.
    fn begin() -> Conversation {
        let options = OpenWireOptions {
            max_frame_bytes: 100 << 20,
            large_message_bytes: LARGE_BYTES as u64,
            tight_encoding: false,
            cache: false,
            max_inactivity_ms: 30_000,
            broker_name: "test".to_owned(),
            broker_url: "tcp://test".to_owned(),
            partitions: 1,
            asks_login: false,
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

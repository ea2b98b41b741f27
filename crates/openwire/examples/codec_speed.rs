//! Nanoseconds per command: `cargo run --release -p postroad-openwire --example codec_speed`.
#![allow(clippy::print_stdout, reason = "a measuring tool")]

use std::{hint::black_box, time::Instant};

use bytes::{Bytes, BytesMut};
use postroad_openwire::codec::{
    Command, ConsumerId, Destination, DispatchHeader, Message, MessageAck, MessageId, MessageKind, Patch,
    ProducerId, WireError, WireFormat, WireString, encode_dispatch, peek_headers, peek_properties,
    stored_form,
};

const ROUNDS: u32 = 1_000_000;

/// The best batch counts: short ones escape the other work of the machine.
const BATCHES: u32 = 1_000;

fn main() -> Result<(), WireError> {
    let message = message();
    let ack = ack();
    for (name, tight) in [("loose", false), ("tight", true)] {
        let format = || {
            let mut format = WireFormat::loose(12);
            format.tight_encoding = tight;
            format
        };
        for (what, command) in [("text message", &message), ("ack", &ack)] {
            let frame = frame(&mut format(), command)?;
            let mut peer = format();
            time(&format!("decode {name} {what}"), || peer.decode(black_box(&frame)).map(drop))?;
            let mut ours = format();
            let mut out = BytesMut::with_capacity(4096);
            time(&format!("encode {name} {what}"), || {
                out.clear();
                ours.encode(black_box(command), &mut out)
            })?;
        }
    }
    let frame = frame(&mut WireFormat::loose(12), &message)?;
    let mut format = WireFormat::loose(12);
    let Command::Message(decoded) = format.decode(&frame)? else { return Ok(()) };
    let stored = stored_form(&format, &decoded, &frame)?;
    time("peek headers", || peek_headers(black_box(&stored), 12).map(drop))?;
    time("peek properties", || peek_properties(black_box(&stored), 12).map(drop))?;
    dispatch(&stored)
}

fn dispatch(stored: &Bytes) -> Result<(), WireError> {
    let consumer_id = ConsumerId { connection_id: Some(connection()), session_id: 1, value: 1 };
    let destination = Destination::Queue("orders.incoming".into());
    let header = DispatchHeader {
        command_id: 1,
        consumer_id: &consumer_id,
        destination: Some(&destination),
        redelivery_counter: 0,
    };
    let patch = Patch { broker_sequence_id: Some(7), broker_in_time_ms: Some(8), ..Patch::default() };
    let mut format = WireFormat::loose(12);
    let mut out = BytesMut::with_capacity(4096);
    time("dispatch by splice", || {
        out.clear();
        encode_dispatch(&mut format, &header, black_box(stored), 12, &patch, &mut out).map(drop)
    })
}

fn time(name: &str, mut work: impl FnMut() -> Result<(), WireError>) -> Result<(), WireError> {
    let mut best = f64::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..ROUNDS / BATCHES {
            work()?;
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:24} {:7.1} ns", best * 1e9 / f64::from(ROUNDS / BATCHES));
    Ok(())
}

fn frame(format: &mut WireFormat, command: &Command) -> Result<Bytes, WireError> {
    let mut out = BytesMut::new();
    format.encode(command, &mut out)?;
    // As the frame reader gives it: shared memory, so that slices do not allocate.
    let mut bytes = out.freeze();
    drop(bytes.split_to(4));
    Ok(bytes)
}

fn connection() -> WireString {
    "ID:host.example.com-41234-1700000000000-1:1".into()
}

fn message_id() -> MessageId {
    MessageId {
        producer_id: Some(ProducerId { connection_id: Some(connection()), value: 1, session_id: 1 }),
        producer_sequence_id: 12345,
        ..MessageId::default()
    }
}

fn message() -> Command {
    let mut message = Message { kind: MessageKind::Text, ..Message::default() };
    message.message_id = Some(message_id());
    message.producer_id = message_id().producer_id;
    message.destination = Some(Destination::Queue("orders.incoming".into()));
    message.persistent = true;
    message.priority = 4;
    message.timestamp_ms = 1_700_000_000_000;
    message.content = Some(Bytes::from(vec![b'x'; 1024]));
    Command::Message(Box::new(message))
}

fn ack() -> Command {
    Command::MessageAck(MessageAck {
        destination: Some(Destination::Queue("orders.incoming".into())),
        consumer_id: Some(ConsumerId { connection_id: Some(connection()), session_id: 1, value: 1 }),
        ack_type: MessageAck::STANDARD,
        first_message_id: Some(message_id()),
        last_message_id: Some(message_id()),
        message_count: 1,
        ..MessageAck::default()
    })
}

//! The broker's last frame to a client that is still writing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod running;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use postroad_amqp::codec::{Field, Performative, Reader, take_frame};
use running::Broker;

/// A header of AMQP, an open, and a frame of 2 GiB, which is larger than any that is agreed.
const FAULT: &[u8] =
    b"AMQP\0\x01\0\0\0\0\0\x11\x02\0\0\0\0\x53\x10\xc0\x04\x01\xa1\x01c\x7f\xff\xff\xff\x02\0\0\0";

/// Bytes under way when the broker closes: more than the buffers of an unread socket.
const LATE_BYTES: usize = 900 << 10;

#[test]
fn what_the_broker_says_last_arrives_though_the_client_is_still_writing() {
    let broker = Broker::start();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, broker.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(FAULT).unwrap();
    stream.write_all(&vec![7; LATE_BYTES]).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said[..8], *b"AMQP\0\x01\0\0");
    let mut frames = BytesMut::from(&said[8..]);
    let mut last = None;
    while let Some(frame) = take_frame(&mut frames, 1 << 20).unwrap() {
        last = Some(Performative::read(&mut Reader::new(&frame.body)).unwrap());
    }
    assert!(frames.is_empty(), "nothing follows: {frames:?}");
    let Some(Performative::Close(close)) = last else { panic!("{last:?}") };
    assert_eq!(close.error.unwrap().condition.as_str(), "amqp:connection:framing-error");
}

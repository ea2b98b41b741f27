//! Recovery of links (AMQP 1.0, 2.6.13), over sockets and in the standard's own frames: no
//! published client carries unsettled deliveries over to another connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod running;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use postroad_amqp::codec::{
    Attach, Begin, DeliveryState, Disposition, Field, Flow, FrameKind, Open, Performative, Reader,
    ReceiverSettleMode, Role, Source, SourceTerminus, Target, TargetTerminus, TerminusExpiry, Transfer,
    Value, ValueMap, begin_frame, end_frame, take_frame,
};
use running::Broker;

/// Nothing here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long nothing has to come for there to be nothing.
const MOMENT: Duration = Duration::from_millis(300);

struct Client {
    stream: TcpStream,
    input: BytesMut,
}

impl Client {
    /// A conversation with one channel, as the container "c".
    fn connect(broker: &Broker) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, broker.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { stream, input: BytesMut::new() };
        client.stream.write_all(b"AMQP\0\x01\0\0").unwrap();
        let mut header = [0; 8];
        client.stream.read_exact(&mut header).unwrap();
        client.send(Open { container_id: "c".into(), ..Open::default() }, b"");
        client.send(Begin { incoming_window: 100, outgoing_window: 100, ..Begin::default() }, b"");
        assert!(matches!(client.read(), Performative::Open(_)));
        assert!(matches!(client.read(), Performative::Begin(_)));
        client
    }

    fn send(&mut self, performative: impl Into<Performative>, payload: &[u8]) {
        let mut out = BytesMut::new();
        let start = begin_frame(FrameKind::Amqp { channel: 0 }, &mut out);
        performative.into().write(&mut out);
        out.extend_from_slice(payload);
        end_frame(start, &mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// The next frame, and the bytes after it.
    fn frame(&mut self) -> std::io::Result<(Performative, Bytes)> {
        loop {
            if let Some(frame) = take_frame(&mut self.input, 1 << 20).unwrap() {
                if frame.body.is_empty() {
                    continue;
                }
                let mut reader = Reader::new(&frame.body);
                let performative = Performative::read(&mut reader).unwrap();
                let payload = frame.body.slice(reader.offset()..);
                return Ok((performative, payload));
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes)?;
            assert!(count > 0, "the broker closed the connection");
            self.input.extend_from_slice(&bytes[..count]);
        }
    }

    fn read(&mut self) -> Performative {
        self.frame().unwrap().0
    }

    /// Attaches the sender "l" to the queue "q", with these deliveries in doubt; which of them were
    /// accepted.
    fn attach(&mut self, mode: ReceiverSettleMode, in_doubt: &[u8]) -> Vec<u8> {
        let target = Target {
            address: Some("q".into()),
            expiry_policy: TerminusExpiry::ConnectionClose,
            timeout: 60,
            ..Target::default()
        };
        let pairs = in_doubt.iter().map(|tag| (Value::Binary(Bytes::copy_from_slice(&[*tag])), Value::Null));
        self.send(
            Attach {
                name: "l".into(),
                role: Role::Sender,
                rcv_settle_mode: mode,
                source: Some(SourceTerminus::Source(Source::default())),
                target: Some(TargetTerminus::Target(target)),
                unsettled: Some(ValueMap(pairs.collect())).filter(|map| !map.is_empty()),
                initial_delivery_count: Some(0),
                ..Attach::default()
            },
            b"",
        );
        let Performative::Attach(answer) = self.read() else { panic!("no attach") };
        assert!(matches!(self.read(), Performative::Flow(_)), "credit");
        let tag = |(tag, state): (Value, Value)| {
            let mut bytes = BytesMut::new();
            state.write(&mut bytes);
            let state = DeliveryState::read(&mut Reader::new(&bytes.freeze())).unwrap();
            assert!(matches!(state, DeliveryState::Accepted(_)), "{state:?}");
            let Value::Binary(tag) = tag else { panic!("{tag:?}") };
            tag[0]
        };
        answer.unsettled.into_iter().flat_map(|map| map.0).map(tag).collect()
    }

    /// Sends a durable message whose body is its tag.
    fn transfer(&mut self, tag: u8, resume: bool) {
        let transfer = Transfer {
            delivery_id: Some(tag.into()),
            delivery_tag: Some(Bytes::copy_from_slice(&[tag])),
            resume,
            ..Transfer::default()
        };
        self.send(transfer, &[0, 0x53, 0x70, 0xc0, 2, 1, 0x41, 0, 0x53, 0x75, 0xa0, 1, tag]);
    }

    /// The tags of the next `count` accepted deliveries, and whether they are settled.
    fn accepted(&mut self, count: usize) -> Vec<(u8, bool)> {
        let mut accepted = Vec::new();
        while accepted.len() < count {
            let Performative::Disposition(it) = self.read() else { continue };
            assert!(matches!(it.state, Some(DeliveryState::Accepted(_))), "{it:?}");
            let deliveries = it.first..=it.last.unwrap_or(it.first);
            accepted.extend(deliveries.map(|delivery| (delivery as u8, it.settled)));
        }
        accepted
    }

    /// The bodies of all that the queue "q" holds, which are taken from it.
    fn take_all(&mut self) -> Vec<u8> {
        let source = Source { address: Some("q".into()), ..Source::default() };
        self.send(
            Attach {
                name: "r".into(),
                handle: 1,
                role: Role::Receiver,
                source: Some(SourceTerminus::Source(source)),
                target: Some(TargetTerminus::Target(Target::default())),
                ..Attach::default()
            },
            b"",
        );
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window: 100,
            outgoing_window: 100,
            handle: Some(1),
            delivery_count: Some(0),
            link_credit: Some(100),
            ..Flow::default()
        };
        self.send(flow, b"");
        self.stream.set_read_timeout(Some(MOMENT)).unwrap();
        let mut bodies = Vec::new();
        while let Ok((performative, payload)) = self.frame() {
            if let Performative::Transfer(transfer) = performative {
                bodies.extend(payload.last());
                let first = transfer.delivery_id.unwrap();
                let state = Some(DeliveryState::Accepted(Default::default()));
                let role = Role::Receiver;
                self.send(Disposition { role, first, settled: true, state, ..Disposition::default() }, b"");
            }
        }
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        bodies
    }
}

#[test]
fn a_sender_that_lost_its_connection_is_told_what_was_taken_in() {
    for (mode, settled) in [(ReceiverSettleMode::First, true), (ReceiverSettleMode::Second, false)] {
        let broker = Broker::start();
        let mut lost = Client::connect(&broker);
        assert_eq!(lost.attach(mode, &[]), [0; 0]);
        // The connection ends without a read of the broker's answers; the third was never sent.
        for tag in [1, 2] {
            lost.transfer(tag, false);
        }
        lost.stream.shutdown(Shutdown::Write).unwrap();
        let mut next = Client::connect(&broker);
        assert_eq!(next.attach(mode, &[1, 2, 3]), [1, 2], "{mode:?}");
        for (tag, resume) in [(1, true), (2, true), (3, false)] {
            next.transfer(tag, resume);
        }
        assert_eq!(next.accepted(3), [(1, settled), (2, settled), (3, settled)]);
        assert_eq!(next.take_all(), [1, 2, 3], "{mode:?}: each once");
    }
}

#[test]
fn a_link_is_taken_over_from_a_connection_that_hangs() {
    let broker = Broker::start();
    let mut hangs = Client::connect(&broker);
    hangs.attach(ReceiverSettleMode::First, &[]);
    hangs.transfer(1, false);
    assert_eq!(hangs.accepted(1), [(1, true)]);
    let mut next = Client::connect(&broker);
    assert_eq!(next.attach(ReceiverSettleMode::First, &[1, 2]), [1]);
    let Performative::Detach(detach) = hangs.read() else { panic!("no detach") };
    assert_eq!(detach.error.unwrap().condition, *"amqp:link:stolen");
    next.transfer(2, false);
    assert_eq!(next.accepted(1), [(2, true)]);
    assert_eq!(next.take_all(), [1, 2]);
}

#[test]
fn after_a_restart_no_link_is_known_and_what_was_confirmed_is_there() {
    let mut broker = Broker::start();
    let mut lost = Client::connect(&broker);
    lost.attach(ReceiverSettleMode::Second, &[]);
    lost.transfer(1, false);
    assert_eq!(lost.accepted(1), [(1, false)]);
    broker.restart();
    let mut next = Client::connect(&broker);
    assert_eq!(next.attach(ReceiverSettleMode::Second, &[1]), [0; 0]);
    assert_eq!(next.take_all(), [1]);
}

#[test]
fn a_broker_that_is_stopped_closes_its_connections_with_a_word() {
    let broker = Broker::start();
    let mut client = Client::connect(&broker);
    broker.stop();
    let Performative::Close(close) = client.read() else { panic!("no close") };
    assert_eq!(close.error.unwrap().condition, *"amqp:connection:forced");
    assert_eq!(client.stream.read(&mut [0; 1]).unwrap(), 0, "and nothing behind it");
}

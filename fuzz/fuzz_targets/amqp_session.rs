//! Any client against a session: frames in any order, whole or cut, while the core agrees, refuses
//! and delivers.
//!
//! Each step begins with a byte: below 200 a frame of this length follows as it is; from there on
//! the core acts.
#![no_main]

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use postroad_amqp::codec::take_frame;
use postroad_amqp::{AmqpOptions, AmqpSession};
use postroad_model::portable::{Portable, TranslationError};
use postroad_model::{
    ConnectionId, ConsumerKey, Delivery, DetachCause, Encoding, EntryTag, Event, LinkEvent, LoginAnswer,
    Message, Now, PartitionId, Principal, Protocol, QueueId, Refusal, Session, Ticket, ToSession,
};

const BODY: &[u8] = b"\0\x53\x77\xa1\x01a";

fn foreign(_: &Message) -> Result<Portable, TranslationError> {
    Ok(Portable::default())
}

struct Core {
    tickets: VecDeque<Ticket>,
    /// Of questions about links.
    resumes: VecDeque<Ticket>,
    consumers: Vec<ConsumerKey>,
    /// Credit of each consumer, which no delivery may exceed.
    credit: Vec<u64>,
    tag: u64,
}

impl Core {
    fn hear(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Publish(publish) => self.tickets.push_back(publish.ticket),
                Event::Attach(attach) => {
                    assert!(!self.consumers.contains(&attach.consumer), "a number is used once");
                    self.consumers.push(attach.consumer);
                    self.credit.push(attach.credit.into());
                    self.tickets.push_back(attach.ticket);
                }
                Event::Credit { consumer, add } => {
                    if let Some(index) = self.consumers.iter().position(|known| *known == consumer) {
                        self.credit[index] += u64::from(add);
                    }
                }
                Event::Detach { ticket, .. } | Event::Rollback { ticket, .. } => self.tickets.extend(ticket),
                Event::Link(LinkEvent::Resume(resume)) => {
                    self.resumes.push_back(resume.ticket);
                    self.tickets.push_back(resume.ticket);
                }
                Event::Settle(settle) => self.tickets.extend(settle.ticket),
                Event::Commit { ticket, .. }
                | Event::Declare { ticket, .. }
                | Event::Delete { ticket, .. }
                | Event::Unsubscribe { ticket, .. }
                | Event::Claim { ticket, .. }
                | Event::Disclaim { ticket, .. } => self.tickets.push_back(ticket),
                _ => {}
            }
        }
    }

    fn act(&mut self, choice: u8) -> Option<ToSession> {
        let consumers = self.consumers.len();
        let index = usize::from(choice / 8);
        match choice % 8 {
            0 if !self.resumes.is_empty() => {
                let known = |tag: u8| {
                    (Bytes::copy_from_slice(&[tag]), (tag % 2 == 0).then_some(Refusal::NoSuchTransaction))
                };
                let deliveries = (0..choice).map(known).collect();
                Some(ToSession::Unsettled { ticket: self.resumes.pop_front()?, deliveries })
            }
            0..=2 => Some(ToSession::Reply { ticket: self.tickets.pop_front()?, result: Ok(()) }),
            3 => {
                let result = Err(Refusal::NoSuchTransaction);
                Some(ToSession::Reply { ticket: self.tickets.pop_front()?, result })
            }
            4 | 5 if consumers > 0 && self.credit[index % consumers] > 0 => {
                self.credit[index % consumers] -= 1;
                self.tag += 1;
                let protocol = if choice % 8 == 4 { Protocol::Amqp } else { Protocol::OpenWire };
                let message = Message {
                    encoding: Encoding { protocol, version: 0 },
                    persistent: false,
                    priority: 4,
                    expires_at_ms: 0,
                    rare: None,
                    bytes: Bytes::from_static(BODY),
                };
                let consumer = self.consumers[index % consumers];
                let tag = EntryTag(self.tag);
                Some(ToSession::Deliver(Delivery {
                    consumer,
                    source: None,
                    tag,
                    queue: (PartitionId(0), QueueId(1)),
                    failed_deliveries: 1,
                    by_policy: false,
                    first_of_group: false,
                    trace: None,
                    message,
                }))
            }
            6 if consumers > 0 => {
                self.credit[index % consumers] = 0;
                Some(ToSession::Drained { consumer: self.consumers[index % consumers] })
            }
            7 if consumers > 0 => {
                let causes = [DetachCause::Deleted, DetachCause::Slow, DetachCause::Stolen];
                let cause = causes[index % causes.len()];
                Some(ToSession::Detached { consumer: self.consumers[index % consumers], cause })
            }
            _ => None,
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let options = AmqpOptions {
        max_frame_bytes: 1 << 16,
        max_message_bytes: 1 << 16,
        large_message_bytes: u64::MAX,
        max_inactivity_ms: 60_000,
        mechanisms: vec!["PLAIN", "ANONYMOUS"],
        must_login: false,
        has_users: false,
        partitions: 2,
        elsewhere: None,
        broker_name: "postroad".to_owned(),
    };
    let mut session = AmqpSession::new(ConnectionId::new(0, 1), options, foreign);
    let mut core = Core {
        tickets: VecDeque::new(),
        resumes: VecDeque::new(),
        consumers: Vec::new(),
        credit: Vec::new(),
        tag: 0,
    };
    let (mut stream, mut output, mut written) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
    let mut rest = input;
    while let Some((&step, behind)) = rest.split_first() {
        rest = behind;
        let mut events = Vec::new();
        let now = Now { ticks_ms: 1, wall_ms: 1 };
        let result = if step < 200 {
            let (frame, behind) = rest.split_at(rest.len().min(usize::from(step)));
            rest = behind;
            stream.extend_from_slice(frame);
            let received = session.receive(&mut stream, now, &mut events, &mut output);
            match session.login() {
                Some(_) => received.and_then(|()| {
                    session.admit(
                        LoginAnswer::Welcome { principal: Principal::Anonymous, last: None },
                        now,
                        &mut events,
                        &mut output,
                    )
                }),
                None => received,
            }
        } else {
            match core.act(step) {
                Some(message) => session.answer(message, now, &mut events, &mut output),
                None => Ok(()),
            }
        };
        core.hear(events);
        written.unsplit(output.split());
        if result.is_err() {
            break;
        }
    }
    read(written);
});

/// The client reads headers of layers and whole frames only.
fn read(mut written: BytesMut) {
    while !written.is_empty() {
        if written.starts_with(b"AMQP") {
            let _ = written.split_to(8);
            continue;
        }
        let frame = take_frame(&mut written, u32::MAX).expect("what is written is frames");
        frame.expect("whole ones");
    }
}

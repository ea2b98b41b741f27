//! The seam between protocols and the runtime: a conversation as a state machine without sockets.

use bytes::{Bytes, BytesMut};

use crate::{
    BranchId, BranchStanding, ConsumerKey, Delivery, DetachCause, Endpoint, Event, LeaseAnswer, LinkedPeer,
    Login, LoginAnswer, Moving, Page, PartitionId, Position, Protocol, RedriveCounts, Refusal, Ticket,
};

/// The core's output to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum ToSession {
    /// The answer to the event that carried this ticket.
    Reply {
        /// Which question.
        ticket: Ticket,
        /// The answer.
        result: Result<(), Refusal>,
    },
    /// A message for one of its consumers.
    Deliver(Delivery),
    /// The next piece of the large message that is on its way out; pieces come in order.
    Chunk {
        /// The partition that has it.
        from: PartitionId,
        /// Its record.
        position: Position,
        /// The piece, or why it cannot be had.
        bytes: Result<Bytes, String>,
    },
    /// See [`crate::Effect::Drained`].
    Drained {
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// See [`crate::Effect::Prefetch`].
    Prefetch {
        /// The consumer.
        consumer: ConsumerKey,
        /// Messages that it is sent ahead.
        messages: u32,
    },
    /// See [`crate::Effect::Ended`].
    Ended {
        /// The session's number for its share.
        transaction: u64,
        /// Whether its changes are durable.
        committed: bool,
    },
    /// See [`crate::Effect::Branches`].
    Branches {
        /// Which question.
        ticket: Ticket,
        /// Some of the branches; more may follow, then the reply.
        branches: Vec<(BranchId, BranchStanding)>,
    },
    /// See [`crate::Effect::Unsettled`].
    Unsettled {
        /// Which question.
        ticket: Ticket,
        /// The deliveries by their tags; with the reason if they were refused.
        deliveries: Vec<(Bytes, Option<Refusal>)>,
    },
    /// See [`crate::Effect::Redriven`].
    Redriven {
        /// Which question.
        ticket: Ticket,
        /// How many, and where to.
        counts: Box<RedriveCounts>,
    },
    /// See [`crate::Effect::Lease`].
    Lease {
        /// Which question.
        ticket: Ticket,
        /// The answer.
        answer: LeaseAnswer,
    },
    /// See [`crate::Effect::Moves`].
    Moves {
        /// Which question.
        ticket: Ticket,
        /// Some of the queues; more may follow, then the reply.
        moves: Vec<Moving>,
    },
    /// See [`crate::Effect::Answer`].
    Page {
        /// Which question.
        ticket: Ticket,
        /// The rows of one partition.
        page: Box<Page>,
    },
    /// See [`crate::Effect::Moved`]. For the runtime alone: no session hears of it.
    Moved {
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// See [`crate::Effect::Left`]. For the runtime alone: no session hears of it.
    Left {
        /// The consumer.
        consumer: ConsumerKey,
        /// Messages that it may be sent.
        credit: u32,
    },
    /// See [`crate::Effect::Evict`].
    Evicted,
    /// See [`crate::Effect::Detached`].
    Detached {
        /// The consumer.
        consumer: ConsumerKey,
        /// Why.
        cause: DetachCause,
    },
}

/// Why a session wants its connection closed, after its output is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The peer said goodbye.
    Farewell,
    /// The peer broke the protocol, or went silent: a line for the log.
    Fault(String),
}

/// A moment, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since some moment of this run (for a session, since it began), by a clock that
    /// is never set: for waits and deadlines.
    pub ticks_ms: u64,
    /// Milliseconds since 1970, by a clock that people set: for times of day that come from outside
    /// or go there.
    pub wall_ms: u64,
}

/// When a session wants to be woken: see [`Now::ticks_ms`].
pub type Deadline = Option<u64>;

/// What a client would notice if its connection ended now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Underway {
    /// Deliveries that it has not settled, or in a transaction that is open.
    pub deliveries: bool,
    /// A transaction is open, or a request waits for its answer.
    pub work: bool,
}

/// One client conversation: bytes in, events out; answers in, bytes out. No IO, no clock.
pub trait Session {
    /// Takes whole frames from the front of `input` and leaves an incomplete one there, as long as
    /// `takes_input`.
    ///
    /// # Errors
    /// [`Parting`]: `output` is still to be sent, then the connection ends.
    fn receive(
        &mut self,
        input: &mut BytesMut,
        now: Now,
        events: &mut Vec<Event>,
        output: &mut BytesMut,
    ) -> Result<(), Parting>;

    /// Takes output of the core.
    ///
    /// # Errors
    /// As for `receive`.
    fn answer(
        &mut self,
        message: ToSession,
        now: Now,
        events: &mut Vec<Event>,
        output: &mut BytesMut,
    ) -> Result<(), Parting>;

    /// The peer's proof of identity, once. The runtime has it checked and gives the answer to
    /// `admit`; until then the session takes no input.
    fn login(&mut self) -> Option<Login> {
        None
    }

    /// Takes the answer to `login`.
    ///
    /// # Errors
    /// As for `receive`.
    fn admit(
        &mut self,
        _answer: LoginAnswer,
        _now: Now,
        _events: &mut Vec<Event>,
        _output: &mut BytesMut,
    ) -> Result<(), Parting> {
        Ok(())
    }

    /// Whether the peer is authenticated, or need not be.
    fn is_known(&self) -> bool;

    /// The broker at the other end, if there is one, and it was let in.
    fn link(&self) -> Option<LinkedPeer> {
        None
    }

    /// Something that operators should read in the log, once; only of a session with a
    /// [`Session::link`].
    fn remark(&mut self) -> Option<String> {
        None
    }

    /// The deadline has come, or any earlier moment.
    ///
    /// # Errors
    /// As for `receive`.
    fn wake(&mut self, now: Now, events: &mut Vec<Event>, output: &mut BytesMut) -> Result<(), Parting>;

    /// Whether more input can be taken. If not, give the rest of `input` to `receive` again, and
    /// read the socket again, once it can.
    fn takes_input(&self) -> bool;

    /// A sign of life outside of `receive`: the socket is not read now, and data waits in it.
    fn heard(&mut self, now: Now);

    /// What its client would notice if the connection ended now.
    fn underway(&self) -> Underway {
        Underway::default()
    }

    /// Whether the client gets no further messages, as it is to be moved once it has settled those
    /// that it has.
    fn is_leaving(&self) -> bool {
        false
    }

    /// The protocol whose messages can leave in pieces, if any can: as they are in the log, or as
    /// its portable room writes them. Others the runtime puts together first.
    fn streams(&self) -> Option<Protocol> {
        None
    }

    /// Whether it still has this consumer: deliveries to others are dropped, as the core has them
    /// back.
    fn has_consumer(&self, consumer: ConsumerKey) -> bool;

    /// After `answer` was given a delivery that streams: bytes of its body that are still to be
    /// given to `body`; zero, if none. Until it is zero nothing else may be answered.
    fn body_missing(&self) -> u64 {
        0
    }

    /// Whether other output may stand between the pieces of a body; otherwise the runtime keeps it
    /// until the body is out.
    fn interleaves(&self) -> bool {
        false
    }

    /// Whether the next bytes of the body can be given to `body` now.
    fn takes_body(&self) -> bool {
        true
    }

    /// Takes the next bytes of the body that it is sending.
    fn body(&mut self, _bytes: &Bytes, _now: Now, _events: &mut Vec<Event>, _output: &mut BytesMut) {}

    /// The rest of the body cannot be read: the message becomes a dead letter. The connection ends
    /// behind it, for the peer waits for that rest.
    fn body_lost(&mut self, _reason: &str, _events: &mut Vec<Event>) {}

    /// This message cannot be encoded for the consumer: it becomes a dead letter.
    fn cannot_deliver(
        &mut self,
        _delivery: &Delivery,
        _reason: &str,
        _now: Now,
        _events: &mut Vec<Event>,
        _output: &mut BytesMut,
    ) {
    }

    /// When `wake` is due next.
    fn deadline(&self) -> Deadline;

    /// The broker is about to end the connection: writes the notification of the peer. `onward` is
    /// where its client is served from now on, if that is known.
    fn stop(&mut self, _onward: Option<&Endpoint>, _now: Now, _output: &mut BytesMut) {}

    /// The connection is gone: the last events for the core, before [`Event::Closed`].
    fn close(&mut self, events: &mut Vec<Event>);

    /// How many bytes of the frame that `input` begins with are still missing, so that the runtime
    /// can make room at once; zero if unknown.
    fn missing_bytes(&self, input: &BytesMut) -> usize;
}

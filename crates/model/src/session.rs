//! The seam between protocols and the runtime: a conversation as a state machine without sockets.

use bytes::BytesMut;

use crate::{
    BranchId, BranchStanding, ConsumerKey, Delivery, DetachCause, Event, Login, LoginAnswer, Refusal, Ticket,
};

/// What the core sends back to a session.
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
    /// See [`crate::Effect::Drained`].
    Drained {
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// See [`crate::Effect::Ended`].
    Ended {
        /// The session's number for its share.
        transaction: u64,
        /// Whether what was done in it is durable.
        committed: bool,
    },
    /// See [`crate::Effect::Branches`].
    Branches {
        /// Which question.
        ticket: Ticket,
        /// Some of the branches; more may follow, then the reply.
        branches: Vec<(BranchId, BranchStanding)>,
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

/// Why a session wants its connection closed, once what it has written was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The peer said goodbye.
    Farewell,
    /// The peer broke the protocol, or went silent: a line for the log.
    Fault(String),
}

/// A moment of a conversation, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the conversation began, by a clock that is never set: for waits and deadlines.
    pub ticks_ms: u64,
    /// Milliseconds since 1970, by a clock that people set: only for what the peer is told.
    pub wall_ms: u64,
}

/// When a session wants to be woken: see [`Now::ticks_ms`].
pub type Deadline = Option<u64>;

/// One client conversation: bytes in, events out; answers in, bytes out. No IO, no clock.
pub trait Session {
    /// Takes whole frames from the front of `input` and leaves an incomplete one there, as long as `takes_input`.
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

    /// Takes what the core sent.
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

    /// What the peer has said to prove who it is, once. The runtime has it looked into and gives the answer to `admit`; until
    /// then the session takes no input.
    fn login(&mut self) -> Option<Login> {
        None
    }

    /// Takes the answer to what `login` returned.
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

    /// The deadline has come, or any earlier moment.
    ///
    /// # Errors
    /// As for `receive`.
    fn wake(&mut self, now: Now, events: &mut Vec<Event>, output: &mut BytesMut) -> Result<(), Parting>;

    /// Whether more input can be taken. If not, what `input` holds is to be given to `receive` again, and the socket to be
    /// read again, once it can.
    fn takes_input(&self) -> bool;

    /// From now on the socket is read, or is not: the silence of a peer whom nobody hears says nothing. Conversations
    /// begin heard.
    fn listens(&mut self, listens: bool, now: Now);

    /// When `wake` is due next.
    fn deadline(&self) -> Deadline;

    /// The connection is gone: what the core must still be told, ahead of [`Event::Closed`].
    fn close(&mut self, events: &mut Vec<Event>);

    /// How many bytes of the frame that `input` begins with are still missing, so that the runtime can make room at
    /// once; zero if unknown.
    fn missing_bytes(&self, input: &BytesMut) -> usize;
}

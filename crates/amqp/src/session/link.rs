//! Links: attach and detach (2.6, 2.7.3, 2.7.7). A link is named by the handle that the client gave
//! it.
//!
//! ```text
//!   attach ─▶ Attaching ──the core says yes──▶ Attached ──detach──▶ Leaving ──the core let go──▶ gone
//!                │ no                             │ fault
//!                └─────────▶ DetachSent ◀─────────┘
//!                                └──the client's detach──▶ gone
//! ```

use std::sync::Arc;

use postroad_model::{Delivered, Destination, Event, Ticket};

use super::fault::Fault;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::replies::Then;
use super::{AmqpSession, Turn, name_key};
use crate::codec::{Attach, Detach, Error, Flow, Role, Source, SourceTerminus, Text};

/// Links of one connection: pools have hundreds.
const LINKS_MAX: usize = 16_384;

/// Where a link is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAt {
    /// The client's number of its channel.
    pub channel: u16,
    /// The client's handle.
    pub handle: u32,
    /// Distinguishes it from another one that had the same handle before.
    pub number: u32,
}

/// One link.
pub struct Link {
    /// See [`LinkAt::number`].
    pub number: u32,
    /// Its name, in memory of its own.
    pub name: Text,
    /// The client's role in it.
    pub client: Role,
    /// Our handle.
    pub handle: u32,
    /// How far it has come.
    pub stage: Stage,
    /// Our end of it.
    pub end: LinkEnd,
    /// The node that was made for it, and ends with it.
    pub dynamic: Option<Destination>,
}

/// How far a link has come: see the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "drawn at the head of this file")]
pub enum Stage {
    Attaching,
    Attached,
    Leaving,
    DetachSent,
}

/// Our end of a link.
pub enum LinkEnd {
    /// Nothing: it was refused, or is gone.
    Nothing,
    /// We receive.
    Incoming(Box<Incoming>),
    /// We send.
    Outgoing(Box<Outgoing>),
    /// The end of a durable subscription that the client only looks up, to end it.
    Subscription(Arc<str>),
}

impl LinkEnd {
    /// The end that receives.
    pub fn incoming(&mut self) -> Option<&mut Incoming> {
        match self {
            LinkEnd::Incoming(incoming) => Some(incoming),
            _ => None,
        }
    }

    /// The end that sends.
    pub fn outgoing(&mut self) -> Option<&mut Outgoing> {
        match self {
            LinkEnd::Outgoing(outgoing) => Some(outgoing),
            _ => None,
        }
    }
}

/// A link that waits for the core: the continuation after its answer.
#[derive(Debug)]
pub struct Attaching {
    /// Where it is.
    pub at: LinkAt,
    /// Our attach.
    pub answer: Attach,
}

impl AmqpSession {
    pub(super) fn attach(&mut self, channel: u16, attach: Attach, turn: &mut Turn<'_>) -> Result<(), Fault> {
        if attach.handle > super::channel::HANDLE_MAX {
            let text = format!("handle {} is above the agreed {}", attach.handle, super::channel::HANDLE_MAX);
            return Err(Fault::framing(text));
        }
        // Those that were refused count until the client has taken notice.
        let links: usize = self.channels.values().map(|known| known.links.len()).sum();
        if links >= 2 * LINKS_MAX {
            let text = format!("{links} links were attached, and those that were refused not detached");
            return Err(Fault::connection("amqp:resource-limit-exceeded", text));
        }
        let Some(known) = self.channels.get(&channel) else { return Ok(()) };
        if known.links.contains_key(&attach.handle) {
            let text = format!("handle {} is attached already", attach.handle);
            return Err(Fault::channel(channel, "amqp:session:handle-in-use", text));
        }
        if let Some(at) = self.names.get(&name_key(&attach.name, attach.role)).copied() {
            let text = format!("the link {} was attached again", attach.name);
            self.detach_by(at, super::fault::error("amqp:link:stolen", text), turn);
        }
        let link = Link {
            number: self.next_number(),
            name: attach.name.own(),
            client: attach.role,
            handle: 0,
            stage: Stage::Attaching,
            end: LinkEnd::Nothing,
            dynamic: None,
        };
        let at = LinkAt { channel, handle: attach.handle, number: link.number };
        let too_many = self.names.len() >= LINKS_MAX;
        let Some(known) = self.channels.get_mut(&channel) else { return Ok(()) };
        let Some(handle) = known.take_handle(attach.handle) else {
            let text = "no handle is free".to_owned();
            return Err(Fault::channel(channel, "amqp:resource-limit-exceeded", text));
        };
        self.names.insert((link.name.clone(), attach.role == Role::Receiver), at);
        known.links.insert(attach.handle, Link { handle, ..link });
        let attached = match (too_many, attach.role) {
            (true, _) => {
                let text = format!("the limit is {LINKS_MAX} links on a connection");
                Err(super::fault::error("amqp:resource-limit-exceeded", text))
            }
            (false, Role::Sender) => self.attach_incoming(at, &attach, turn),
            (false, Role::Receiver) => self.attach_outgoing(at, &attach, turn),
        };
        if let Err(error) = attached {
            self.refuse_attach(at, answer_to(&attach), error, turn);
        }
        Ok(())
    }

    /// The core agrees: both ends are attached.
    pub(super) fn attached(&mut self, attaching: Attaching, turn: &mut Turn<'_>) {
        let Attaching { at, mut answer } = attaching;
        let Some(outgoing) = self.channels.get(&at.channel).map(|known| known.outgoing) else { return };
        let Some(link) = self.link_at(at) else { return };
        if !matches!(link.stage, Stage::Attaching | Stage::Leaving) {
            return;
        }
        answer.handle = link.handle;
        let receives = matches!(link.end, LinkEnd::Incoming(_)) && link.stage == Stage::Attaching;
        if link.stage == Stage::Attaching {
            link.stage = Stage::Attached;
        }
        self.send(outgoing, answer, turn);
        match receives {
            true => self.grant_incoming(at, turn),
            false => {
                self.grant(at, turn);
                self.send_owed_flow(at, turn);
            }
        }
    }

    /// Says no to an attach: an attach without a node, and a detach that says why (2.6.3).
    pub(super) fn refuse_attach(&mut self, at: LinkAt, answer: Attach, error: Error, turn: &mut Turn<'_>) {
        let Some(outgoing) = self.channels.get(&at.channel).map(|known| known.outgoing) else { return };
        // A link attached again meanwhile is detached already.
        let Some(link) = self.link_at(at).filter(|link| link.stage != Stage::DetachSent) else { return };
        let leaving = link.stage == Stage::Leaving;
        let handle = link.handle;
        let refusal = match answer.role {
            Role::Sender => Attach { handle, source: None, ..answer },
            Role::Receiver => Attach { handle, target: None, ..answer },
        };
        self.send(outgoing, refusal, turn);
        if !leaving {
            self.detach_by(at, error, turn);
        }
    }

    /// Detaches a link for a fault in it.
    pub(super) fn detach_by(&mut self, at: LinkAt, error: Error, turn: &mut Turn<'_>) {
        let Some(outgoing) = self.channels.get(&at.channel).map(|known| known.outgoing) else { return };
        let Some(link) = self.link_at(at) else { return };
        if matches!(link.stage, Stage::DetachSent | Stage::Leaving) {
            return;
        }
        link.stage = Stage::DetachSent;
        let unfinished = link.end.incoming().and_then(|incoming| incoming.unfinished_in());
        let gone = Link {
            end: std::mem::replace(&mut link.end, LinkEnd::Nothing),
            dynamic: link.dynamic.take(),
            name: link.name.clone(),
            ..*link
        };
        let handle = gone.handle;
        self.transactions.doom_any(unfinished);
        self.forget_deliveries(at.channel, &gone);
        self.dismantle(gone, None, turn);
        self.send(outgoing, Detach { handle, closed: true, error: Some(error) }, turn);
    }

    /// The client detaches a link.
    pub(super) fn detach(&mut self, channel: u16, detach: &Detach, turn: &mut Turn<'_>) -> Result<(), Fault> {
        let Some(known) = self.channels.get_mut(&channel) else { return Ok(()) };
        let Some(link) = known.links.get_mut(&detach.handle) else {
            return Err(unattached(channel, detach.handle));
        };
        match link.stage {
            Stage::DetachSent => {
                known.remove_link(detach.handle);
            }
            Stage::Leaving => {}
            Stage::Attaching | Stage::Attached => {
                link.stage = Stage::Leaving;
                let at = LinkAt { channel, handle: detach.handle, number: link.number };
                self.leave(at, detach.closed, turn);
            }
        }
        Ok(())
    }

    fn leave(&mut self, at: LinkAt, closed: bool, turn: &mut Turn<'_>) {
        let Some(link) = self.link_at(at) else { return };
        let mut gone = Link {
            end: std::mem::replace(&mut link.end, LinkEnd::Nothing),
            // A link that is only detached may come back to its node.
            dynamic: if closed { link.dynamic.take() } else { None },
            name: link.name.clone(),
            ..*link
        };
        let ended = match &gone.end {
            LinkEnd::Outgoing(outgoing) => outgoing.subscription.clone().filter(|_| closed),
            LinkEnd::Subscription(name) => Some(name.clone()).filter(|_| closed),
            _ => None,
        };
        if let Some(kept) = gone.end.incoming().filter(|_| closed).and_then(|incoming| incoming.kept.take()) {
            self.leave_link(at, &kept, true, turn);
        }
        self.forget_deliveries(at.channel, &gone);
        let ticket = self.replies.wait(0, Then::Left { at, closed });
        let mut answers = self.dismantle(gone, Some(ticket), turn);
        if let Some(name) = ended {
            turn.events.push(Event::Unsubscribe { name, connection: self.id, ticket });
            answers += 1;
        }
        if !self.replies.expect(ticket, answers) {
            self.left(at, closed, None, turn);
        }
    }

    /// The core has let go of a link that the client detached.
    pub(super) fn left(&mut self, at: LinkAt, closed: bool, error: Option<Error>, turn: &mut Turn<'_>) {
        let Some(known) = self.channels.get_mut(&at.channel) else { return };
        let outgoing = known.outgoing;
        let is_it = known.links.get(&at.handle).is_some_and(|link| link.number == at.number);
        let Some(link) = (if is_it { known.remove_link(at.handle) } else { None }) else { return };
        self.send(outgoing, Detach { handle: link.handle, closed, error }, turn);
    }

    /// Takes a link apart: the events for the core. With a ticket it answers as many times as
    /// returned.
    pub(super) fn dismantle(&mut self, link: Link, ticket: Option<Ticket>, turn: &mut Turn<'_>) -> u32 {
        let key = name_key(&link.name, link.client);
        if self.names.get(&key).is_some_and(|at| at.number == link.number) {
            self.names.remove(&key);
        }
        let mut answers = 0;
        match link.end {
            LinkEnd::Incoming(mut incoming) => {
                if let Some(upload) = incoming.take_upload() {
                    self.give_up(&upload, turn);
                }
                self.partial_bytes -= incoming.partial_bytes();
                if let Some(producer) = incoming.notice.clone() {
                    turn.events.push(Event::RemoveProducer { connection: self.id, producer });
                }
                if let Some(kept) = incoming.kept.take()
                    && let Some(at) = self.consumers.get(&link.number).copied()
                {
                    self.leave_link(at, &kept, false, turn);
                }
                if incoming.is_coordinator() {
                    self.abandon_transactions(link.number, turn);
                }
            }
            LinkEnd::Outgoing(outgoing) => {
                for part in outgoing.parts {
                    self.consumers.remove(&part.number);
                    let (consumer, delivered) = (self.key(part.number), Delivered::None);
                    turn.events.push(Event::Detach { consumer, delivered, ticket });
                    answers += 1;
                }
            }
            LinkEnd::Nothing | LinkEnd::Subscription(_) => {}
        }
        if let Some(destination) = link.dynamic {
            let ticket = ticket.inspect(|_| answers += 1);
            let ticket = ticket.unwrap_or_else(|| self.replies.wait(1, Then::Nothing));
            turn.events.push(Event::Delete { destination, connection: self.id, ticket });
        }
        answers
    }

    /// The client says how much it takes, or how much it has (2.6.7).
    pub(super) fn flow_link(
        &mut self,
        channel: u16,
        handle: u32,
        flow: &Flow,
        turn: &mut Turn<'_>,
    ) -> Result<(), Fault> {
        let Some(known) = self.channels.get_mut(&channel) else { return Ok(()) };
        let Some(link) = known.links.get_mut(&handle) else { return Err(unattached(channel, handle)) };
        let at = LinkAt { channel, handle, number: link.number };
        if matches!(link.stage, Stage::DetachSent | Stage::Leaving) {
            return Ok(());
        }
        if flow.properties.as_ref().is_some_and(|properties| properties.get("txn-id").is_some()) {
            let text = "messages are not acquired in transactions; settle them in one instead".to_owned();
            return Err(Fault::link(at, "amqp:not-implemented", text));
        }
        // Of a link that is not attached yet, its attach is the first word; a flow follows it where
        // one is due.
        let is_attached = link.stage == Stage::Attached;
        match &mut link.end {
            LinkEnd::Outgoing(outgoing) => {
                outgoing.take_credit(flow);
                outgoing.owes_flow |= flow.echo && !is_attached;
                self.grant(at, turn);
                if flow.echo && is_attached {
                    self.send_link_flow(at, turn);
                }
            }
            LinkEnd::Incoming(incoming) => {
                if let Some(count) = flow.delivery_count {
                    incoming.take_count(count);
                }
                if is_attached {
                    self.answer_sender_flow(at, flow.echo, turn);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The channel ends if a frame names a link that is not there.
pub fn unattached(channel: u16, handle: u32) -> Fault {
    let text = format!("no link is attached by handle {handle}");
    Fault::channel(channel, "amqp:session:unattached-handle", text)
}

/// The answer to an attach, without our handle and node.
pub fn answer_to(attach: &Attach) -> Attach {
    let role = match attach.role {
        Role::Sender => Role::Receiver,
        Role::Receiver => Role::Sender,
    };
    Attach {
        name: attach.name.clone(),
        role,
        snd_settle_mode: attach.snd_settle_mode,
        rcv_settle_mode: attach.rcv_settle_mode,
        source: attach.source.clone(),
        target: attach.target.clone(),
        initial_delivery_count: (role == Role::Sender).then_some(0),
        ..Attach::default()
    }
}

/// The source that an attach names.
///
/// # Errors
/// There is none, or it is no source.
pub fn source_of(attach: &Attach) -> Result<Option<&Source>, Error> {
    match &attach.source {
        Some(SourceTerminus::Source(source)) => Ok(Some(source)),
        Some(SourceTerminus::Other(_)) => {
            Err(super::fault::error("amqp:not-implemented", "the source is of an unknown type"))
        }
        None => Ok(None),
    }
}

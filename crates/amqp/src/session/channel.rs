//! Channels, the standard's sessions (2.5): windows of transfers in both directions, and the links
//! in them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use postroad_model::LinkName;

use super::disposition::Held;
use super::fault::Fault;
use super::link::{Link, LinkAt, LinkEnd};
use super::outgoing::Pending;
use super::replies::Then;
use super::sequence::Sequence;
use super::{AmqpSession, Turn};
use crate::codec::{Begin, End, Flow};

/// The highest channel that a client may use: a client with a session per thread has hundreds.
pub const CHANNEL_MAX: u16 = 4095;

/// The highest handle that a client may use.
pub const HANDLE_MAX: u32 = 16_383;

/// Transfers that a client may send before our next flow.
const INCOMING_WINDOW: u32 = 2048;

/// Sent to the client, which has no use for it: our sends are bounded by its window alone.
const OUTGOING_WINDOW: u32 = u32::MAX >> 1;

/// One channel. It is found by the client's number for it.
pub struct Channel {
    /// Distinguishes it from another one that had the same number before.
    pub number: u32,
    /// Our number for it.
    pub outgoing: u16,
    stage: Stage,
    next_incoming_id: u32,
    incoming_left: u32,
    next_outgoing_id: u32,
    /// Transfers that the client takes.
    pub remote_window: u32,
    handle_max: u32,
    /// Number of the next delivery to the client.
    pub next_delivery: Sequence,
    /// Unsettled deliveries to the client.
    pub unsettled: BTreeMap<Sequence, Held>,
    /// Deliveries that wait for the client's window.
    pub pending: VecDeque<Pending>,
    /// By the client's handles.
    pub links: BTreeMap<u32, Link>,
    /// Links that were detached, and that the client may come back to while the channel lasts, and
    /// some time after.
    pub left: Vec<Arc<LinkName>>,
    /// Handles of ours that are taken.
    handles: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Live,
    /// We have ended it; input that the client sent before it knew is skipped.
    EndSent,
    /// The client has ended it; the core still has to let its consumers go.
    EndReceived,
}

/// The name of a channel while the core answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelAt {
    /// The client's number.
    pub channel: u16,
    /// See [`Channel::number`].
    pub number: u32,
}

impl Channel {
    /// Takes the next id of a transfer to the client, and one place of its window.
    pub fn take_outgoing(&mut self) {
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
        self.remote_window = self.remote_window.saturating_sub(1);
    }

    /// A handle of ours for the client's handle, if one is free.
    pub fn take_handle(&mut self, wish: u32) -> Option<u32> {
        let max = self.handle_max.min(HANDLE_MAX);
        let is_free = |handle: &u32| !self.handles.contains(handle);
        let handle = Some(wish).filter(|wish| *wish <= max).filter(is_free);
        let handle = handle.or_else(|| (0..=max).find(is_free))?;
        self.handles.insert(handle);
        Some(handle)
    }

    /// A link is gone, and its handle free.
    pub fn remove_link(&mut self, handle: u32) -> Option<Link> {
        let link = self.links.remove(&handle)?;
        self.handles.remove(&link.handle);
        Some(link)
    }

    /// The windows, as every flow has them.
    pub fn windows(&self) -> Flow {
        Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: self.incoming_left,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW,
            ..Flow::default()
        }
    }
}

/// Refuses a channel above the agreed (2.7.1).
pub fn check_number(channel: u16) -> Result<(), Fault> {
    match channel <= CHANNEL_MAX {
        true => Ok(()),
        false => Err(Fault::framing(format!("channel {channel} is above the agreed {CHANNEL_MAX}"))),
    }
}

impl AmqpSession {
    /// Whether the channel carries frames now; those of one that is ending are passed over.
    pub(super) fn is_live(&self, channel: u16) -> Result<bool, Fault> {
        match self.channels.get(&channel) {
            Some(known) => Ok(known.stage == Stage::Live),
            None => Err(Fault::connection("amqp:not-allowed", format!("channel {channel} was not begun"))),
        }
    }

    pub(super) fn begin(&mut self, channel: u16, begin: &Begin, turn: &mut Turn<'_>) -> Result<(), Fault> {
        if let Some(ours) = begin.remote_channel {
            let text = format!("this Begin answers one of ours on channel {ours}; there was none");
            return Err(Fault::connection("amqp:invalid-field", text));
        }
        if self.channels.contains_key(&channel) {
            let text = format!("channel {channel} was begun already");
            return Err(Fault::connection("amqp:not-allowed", text));
        }
        let is_free = |number: &u16| !self.outgoing_channels.contains(number);
        let max = self.peer.channel_max;
        let wish = Some(channel).filter(|wish| *wish <= max).filter(is_free);
        let outgoing = wish.or_else(|| (0..=max).find(is_free));
        let none_left = || Fault::connection("amqp:not-allowed", format!("no channel up to {max} is free"));
        let outgoing = outgoing.ok_or_else(none_left)?;
        let known = Channel {
            number: self.next_number(),
            outgoing,
            stage: Stage::Live,
            next_incoming_id: begin.next_outgoing_id,
            incoming_left: INCOMING_WINDOW,
            next_outgoing_id: 0,
            remote_window: begin.incoming_window,
            handle_max: begin.handle_max,
            next_delivery: Sequence::default(),
            unsettled: BTreeMap::new(),
            pending: VecDeque::new(),
            links: BTreeMap::new(),
            left: Vec::new(),
            handles: BTreeSet::new(),
        };
        let Flow { next_outgoing_id, incoming_window, outgoing_window, .. } = known.windows();
        self.outgoing_channels.insert(outgoing);
        self.channels.insert(channel, known);
        let answer = Begin {
            remote_channel: Some(channel),
            next_outgoing_id,
            incoming_window,
            outgoing_window,
            handle_max: HANDLE_MAX,
            ..Begin::default()
        };
        self.send(outgoing, answer, turn);
        Ok(())
    }

    pub(super) fn channel_at(&mut self, at: ChannelAt) -> Option<&mut Channel> {
        self.channels.get_mut(&at.channel).filter(|known| known.number == at.number)
    }

    /// One transfer has come: its place in the window is given back in good time.
    pub(super) fn count_incoming(&mut self, channel: u16, turn: &mut Turn<'_>) -> Result<(), Fault> {
        let Some(known) = self.channels.get_mut(&channel) else { return Ok(()) };
        if known.incoming_left == 0 {
            let text = format!("more than {INCOMING_WINDOW} transfers without a flow");
            return Err(Fault::channel(channel, "amqp:session:window-violation", text));
        }
        known.incoming_left -= 1;
        known.next_incoming_id = known.next_incoming_id.wrapping_add(1);
        if known.incoming_left < INCOMING_WINDOW / 2 {
            known.incoming_left = INCOMING_WINDOW;
            let (outgoing, flow) = (known.outgoing, known.windows());
            self.send(outgoing, flow, turn);
        }
        Ok(())
    }

    pub(super) fn flow(&mut self, channel: u16, flow: &Flow, turn: &mut Turn<'_>) -> Result<(), Fault> {
        let Some(known) = self.channels.get_mut(&channel) else { return Ok(()) };
        // The client counts from its state when it wrote this; later deliveries are on their way
        // (2.5.6).
        let seen = flow.next_incoming_id.unwrap_or(0);
        let on_their_way = known.next_outgoing_id.wrapping_sub(seen);
        known.remote_window = flow.incoming_window.saturating_sub(on_their_way);
        known.next_incoming_id = flow.next_outgoing_id;
        self.send_pending(channel, turn);
        self.grant_channel(channel, turn);
        match flow.handle {
            Some(handle) => self.flow_link(channel, handle, flow, turn),
            None if flow.echo => {
                let Some(known) = self.channels.get(&channel) else { return Ok(()) };
                let (outgoing, windows) = (known.outgoing, known.windows());
                self.send(outgoing, windows, turn);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The client ends a channel.
    pub(super) fn end(&mut self, channel: u16, turn: &mut Turn<'_>) -> Result<(), Fault> {
        self.is_live(channel)?;
        let Some(known) = self.channels.get_mut(&channel) else { return Ok(()) };
        match known.stage {
            Stage::EndSent => self.forget_channel(channel),
            Stage::EndReceived => {}
            Stage::Live => {
                known.stage = Stage::EndReceived;
                let at = ChannelAt { channel, number: known.number };
                self.end_links(at, turn);
            }
        }
        Ok(())
    }

    fn end_links(&mut self, at: ChannelAt, turn: &mut Turn<'_>) {
        let Some(known) = self.channel_at(at) else { return };
        known.pending.clear();
        known.unsettled.clear();
        let handles: Vec<u32> = known.links.keys().copied().collect();
        let links: Vec<Link> = handles.into_iter().filter_map(|handle| known.remove_link(handle)).collect();
        let ticket = self.replies.wait(0, Then::Ended(at));
        let answers: u32 = links.into_iter().map(|link| self.dismantle(link, Some(ticket), turn)).sum();
        self.leave_links_of(at, turn);
        if self.replies.expect(ticket, answers) {
            return;
        }
        self.ended(at, turn);
    }

    /// The client closes: every channel ends with the connection, and its unsettled deliveries go
    /// back uncounted, as at the end of one. When a client is lost, it is unknown what it has seen:
    /// there the core counts.
    pub(super) fn dismantle_all(&mut self, turn: &mut Turn<'_>) {
        for known in std::mem::take(&mut self.channels).into_values() {
            // Transactions first: messages settled in them are no longer their consumers'.
            let (first, then): (Vec<Link>, Vec<Link>) =
                known.links.into_values().partition(|link| matches!(link.end, LinkEnd::Incoming(_)));
            for link in first.into_iter().chain(then) {
                self.dismantle(link, None, turn);
            }
        }
    }

    /// The core has let go of everything in the channel.
    pub(super) fn ended(&mut self, at: ChannelAt, turn: &mut Turn<'_>) {
        let Some(known) = self.channel_at(at) else { return };
        let (outgoing, stage) = (known.outgoing, known.stage);
        if stage == Stage::EndReceived {
            self.forget_channel(at.channel);
            self.send(outgoing, End::default(), turn);
        }
    }

    fn forget_channel(&mut self, channel: u16) {
        if let Some(gone) = self.channels.remove(&channel) {
            self.outgoing_channels.remove(&gone.outgoing);
        }
    }

    /// Ends a channel for a fault in it.
    pub(super) fn end_by(&mut self, channel: u16, end: End, turn: &mut Turn<'_>) {
        let Some(known) = self.channels.get_mut(&channel) else { return };
        known.stage = Stage::EndSent;
        let at = ChannelAt { channel, number: known.number };
        let outgoing = known.outgoing;
        for incoming in known.links.values_mut().filter_map(|link| link.end.incoming()) {
            self.transactions.doom_any(incoming.unfinished_in());
        }
        self.end_links(at, turn);
        self.send(outgoing, end, turn);
    }

    /// The link of this handle, if it is still the one that was meant.
    pub(super) fn link_at(&mut self, at: LinkAt) -> Option<&mut Link> {
        let known = self.channels.get_mut(&at.channel)?;
        known.links.get_mut(&at.handle).filter(|link| link.number == at.number)
    }
}

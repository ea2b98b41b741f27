//! The list of durable subscriptions that the peer of a link gets when the link begins. By it the
//! peer ends its own ones for subscriptions that have ended meanwhile.
//!
//! ```text
//!   the peer's consumer of advisories is attached ──▶ the core lists ──▶ BrokerSubscriptionInfo
//! ```
//! Later changes come as advisories: none is missed, because the list is made after the attach.
//!
//! ActiveMQ 5.18 sends its own list ahead of its `ConnectionInfo`. It is kept until the peer is let
//! in, and passed over if it is longer than a frame may be by then.

use bytes::{Buf, BytesMut};
use postroad_model::{Inquiry, Page, Question, QueueRow, Refusal, Row, RowKey, Subscription, Ticket};

use super::OpenWireSession;
use super::Turn;
use super::handshake::FIRST_FRAME_BYTES_MAX;
use super::replies::Then;
use crate::codec::{
    BrokerId, BrokerSubscriptionInfo, Command, ConsumerId, ConsumerInfo, SIZE_BYTES, announced_bytes,
};
use crate::network::{DURABLE_PREFIX, INBOUND};
use crate::portable::to_wire_destination;

/// Version of the format that has [`BrokerSubscriptionInfo`].
const VERSION_MIN: i32 = 12;

/// Type of the command with the list: the first byte of its frame.
const LIST_TYPE: u8 = 92;

/// A broker with more durable subscriptions sends no list: a peer knows no more consumers.
const OFFERED_MAX: usize = 65_536;

/// Messages that a subscription without a reader takes ahead: as many as the link lets it.
const PREFETCH: i32 = 1000;

/// How far the list is.
#[derive(Default)]
pub enum Offer {
    /// The peer has no consumer of advisories yet.
    #[default]
    NotYet,
    /// The core is asked.
    Listing(Listing),
    /// The list was sent, or is not to be sent.
    Done,
}

/// Pages that have come.
pub struct Listing {
    inquiry: Inquiry,
    rows: Vec<QueueRow>,
}

/// The peer that the list is for.
#[derive(Clone, Copy)]
pub struct OfferedTo<'n> {
    /// Its id.
    pub id: &'n str,
    /// Its name.
    pub name: &'n str,
    /// It may subscribe for brokers behind this one.
    pub passes_on: bool,
}

/// A list that came ahead of the introduction of its sender.
#[derive(Default)]
pub struct EarlyList {
    kept: Option<BrokerSubscriptionInfo>,
    /// Bytes of one that are still to be passed over.
    unread_bytes: usize,
    /// The remark for operators on one that was passed over.
    remark: Option<String>,
}

impl EarlyList {
    pub fn take(&mut self) -> Option<BrokerSubscriptionInfo> {
        self.kept.take()
    }

    pub fn remark(&mut self) -> Option<String> {
        self.remark.take()
    }
}

/// Keeps the list of a peer that has not yet said who it is; returns any other command.
pub fn keep_early(session: &mut OpenWireSession, command: Command) -> Option<Command> {
    match command {
        Command::BrokerSubscriptionInfo(info) if !session.is_introduced() && session.network.is_link() => {
            session.network.early.kept.get_or_insert(info);
            None
        }
        other => Some(other),
    }
}

/// Passes over an early list that is too long to be kept for a client without login; `true` until
/// all of it has come.
pub fn pass_over_early(session: &mut OpenWireSession, input: &mut BytesMut) -> bool {
    let can_come = !session.is_introduced() && session.network.is_link();
    let early = &mut session.network.early;
    if early.unread_bytes == 0 {
        let announced = announced_bytes(input, session.options.max_frame_bytes);
        let Ok(Some(bytes)) = announced else { return false };
        let is_list = input.get(SIZE_BYTES) == Some(&LIST_TYPE);
        if !can_come || !is_list || bytes as u64 <= FIRST_FRAME_BYTES_MAX {
            return false;
        }
        early.unread_bytes = SIZE_BYTES + bytes;
        early.remark = Some(format!(
            "the peer's list of durable subscriptions is not used: it has {bytes} bytes and came \
             ahead of its login, which allows {FIRST_FRAME_BYTES_MAX}"
        ));
    }
    let there = early.unread_bytes.min(input.len());
    input.advance(there);
    early.unread_bytes -= there;
    0 < early.unread_bytes
}

impl Offer {
    /// Whether the core answers this question.
    pub fn has_asked(&self, ticket: Ticket) -> bool {
        matches!(self, Offer::Listing(listing) if listing.inquiry.has_asked(ticket))
    }

    /// The page of one partition.
    pub fn add(&mut self, page: Page) {
        if let Offer::Listing(listing) = self {
            listing.inquiry.add(page);
        }
    }
}

/// A consumer of the connection was attached: that of a peer reads advisories.
pub fn offer_subscriptions(session: &mut OpenWireSession, turn: &mut Turn<'_>) {
    if !matches!(session.network.offer, Offer::NotYet) || session.network.offers_to().is_none() {
        return;
    }
    let can_read = VERSION_MIN <= i32::from(session.format.version);
    match can_read {
        true => list_subscriptions(session, None, Vec::new(), turn),
        false => session.network.offer = Offer::Done,
    }
}

fn list_subscriptions(
    session: &mut OpenWireSession,
    after: Option<RowKey>,
    rows: Vec<QueueRow>,
    turn: &mut Turn<'_>,
) {
    let question = Question::Subscriptions { prefix: "".into() };
    let waiter = (session.id, session.wait(1, None, Then::Offered));
    let inquiry = Inquiry::new(question, after, waiter, turn.events);
    session.network.offer = Offer::Listing(Listing { inquiry, rows });
}

/// All partitions have answered.
pub fn offer_listed(session: &mut OpenWireSession, refusal: Option<&Refusal>, turn: &mut Turn<'_>) {
    let Offer::Listing(listing) = std::mem::replace(&mut session.network.offer, Offer::Done) else { return };
    let Listing { inquiry, mut rows } = listing;
    let page = inquiry.page();
    rows.extend(page.rows.into_iter().filter_map(|row| match row {
        Row::Queue(row) => Some(row),
        _ => None,
    }));
    // Half of a list would end subscriptions that are needed.
    if refusal.is_some() || OFFERED_MAX < rows.len() {
        return;
    }
    if page.next.is_some() {
        return list_subscriptions(session, page.next, rows, turn);
    }
    let Some(to) = session.network.offers_to() else { return };
    let broker_id = session.options.broker_id.as_str();
    let offered = |(number, row): (usize, &QueueRow)| offered(row, to, (broker_id, number));
    let infos: Vec<ConsumerInfo> = rows.iter().enumerate().filter_map(offered).collect();
    let info = BrokerSubscriptionInfo {
        broker_id: Some(BrokerId { value: Some(broker_id.into()) }),
        broker_name: Some(session.options.broker_name.as_str().into()),
        subscription_infos: Some(infos),
        ..BrokerSubscriptionInfo::default()
    };
    session.send(info.into(), turn);
}

/// The name of a subscription, whether it is set aside or not: until it ends the peer may have
/// messages for it.
fn own_name(name: &str) -> &str {
    Subscription::without_aside(name).unwrap_or(name)
}

/// The subscription as a consumer; `None` if it is the peer's own, or of no interest there.
fn offered(row: &QueueRow, to: OfferedTo<'_>, (broker_id, number): (&str, usize)) -> Option<ConsumerInfo> {
    let (_, client_id, name) = Subscription::parts_of(own_name(row.subscription.as_deref()?))?;
    let behind = match name.starts_with(DURABLE_PREFIX) {
        true => Some(client_id.split_once(INBOUND).map_or("", |(peer, _)| peer)),
        false => None,
    };
    if behind.is_some_and(|peer| !to.passes_on || peer == to.id || peer == to.name) {
        return None;
    }
    let connection_id = Some(format!("{broker_id}-durable").as_str().into());
    Some(ConsumerInfo {
        consumer_id: Some(ConsumerId {
            connection_id,
            session_id: 1,
            value: i64::try_from(number).unwrap_or(i64::MAX),
        }),
        destination: Some(to_wire_destination(&row.destination)),
        prefetch_size: PREFETCH,
        client_id: Some(client_id.into()),
        subscription_name: Some(name.into()),
        network_subscription: behind.is_some(),
        broker_path: behind.map(|peer| vec![BrokerId { value: Some(peer.into()) }]),
        ..ConsumerInfo::default()
    })
}

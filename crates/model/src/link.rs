//! Links: senders with names, which a client may come back to over its next connection.

use std::sync::Arc;

use bytes::Bytes;

use crate::{ConnectionId, ConsumerKey, Destination, Ticket};

/// The name of a client's sending link, for as long as the broker remembers it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName {
    /// The user who has logged in and alone may use the link; empty without login.
    pub user: Arc<str>,
    /// The client's container id.
    pub container: Arc<str>,
    /// The client's name of the link.
    pub name: Arc<str>,
    /// Where the link leads.
    pub to: Destination,
}

/// One message of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDelivery {
    /// The link.
    pub link: Arc<LinkName>,
    /// The client's name for the message within the link.
    pub tag: Bytes,
}

/// Changes of a remembered link.
#[derive(Clone, Debug)]
pub enum LinkEvent {
    /// A client attaches it: answered by [`crate::Effect::Unsettled`] and a reply.
    Resume(Box<ResumeLink>),
    /// Its client knows the outcome of these deliveries.
    Forget {
        /// The link.
        link: Arc<LinkName>,
        /// Who has it.
        connection: ConnectionId,
        /// Their tags.
        tags: Vec<Bytes>,
    },
    /// Its client gives it up.
    Leave {
        /// The link.
        link: Arc<LinkName>,
        /// Who had it.
        connection: ConnectionId,
        /// Whether it may come back to it.
        is_kept: bool,
    },
}

impl LinkEvent {
    /// Which link.
    pub fn link(&self) -> &LinkName {
        match self {
            LinkEvent::Resume(resume) => &resume.link,
            LinkEvent::Forget { link, .. } | LinkEvent::Leave { link, .. } => link,
        }
    }
}

/// A client attaches a link that is to be remembered, for the first time or again.
#[derive(Clone, Debug)]
pub struct ResumeLink {
    /// The link.
    pub link: Arc<LinkName>,
    /// The new holder, by a number that no consumer of the connection has. The previous holder
    /// loses it.
    pub holder: ConsumerKey,
    /// How long it is remembered without a holder, in milliseconds.
    pub kept_ms: u64,
    /// The deliveries that the client does not know the end of; of all others it does. `None`: it
    /// may be any of them.
    pub in_doubt: Option<Vec<Bytes>>,
    /// The waiting request: the reply follows the state of the link, once none of its messages is
    /// outstanding.
    pub ticket: Ticket,
}

impl ResumeLink {
    /// Who asks.
    pub fn connection(&self) -> ConnectionId {
        self.holder.connection
    }
}

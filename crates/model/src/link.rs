//! Links: senders with names, which a client may come back to over its next connection.

use std::sync::Arc;

use bytes::Bytes;

use crate::{ConnectionId, ConsumerKey, Destination, Ticket};

/// The name of a link by which a client sends, for as long as anybody remembers it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName {
    /// Who has logged in, whose link alone it is; empty for nobody.
    pub user: Arc<str>,
    /// What the client calls itself.
    pub container: Arc<str>,
    /// What it calls the link.
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

/// What happens to a link that is remembered.
#[derive(Clone, Debug)]
pub enum LinkEvent {
    /// A client attaches it: answered by [`crate::Effect::Unsettled`] and a reply.
    Resume(Box<ResumeLink>),
    /// Its client knows what became of these deliveries.
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
    /// Who has it from now on, by a number that no consumer of the connection has. Whoever had it before loses it.
    pub holder: ConsumerKey,
    /// How long it is remembered once nobody has it, in milliseconds.
    pub kept_ms: u64,
    /// The deliveries that the client does not know the end of; of all others it does. `None`: it may be any of them.
    pub in_doubt: Option<Vec<Bytes>>,
    /// Who waits: the reply follows what is known of the link, once none of its messages is on its way any more.
    pub ticket: Ticket,
}

impl ResumeLink {
    /// Who asks.
    pub fn connection(&self) -> ConnectionId {
        self.holder.connection
    }
}

//! Commands: the replicated ones. Each is one record of a partition's log.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    BranchId, Destination, DocumentChange, Due, EntryTag, LeaseId, Message, PartitionId, Position, QueueId,
    QueueOptions, Recurrence, Schedule, TransactionId,
};

/// A durable change of one partition, applied in log order on every replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The queue exists from now on.
    Declare {
        /// A lasting queue.
        queue: Destination,
    },
    /// The queue and all it holds are gone.
    Delete {
        /// A lasting queue.
        queue: Destination,
    },
    /// From now on the topic's messages are kept for this subscription; one of the same name is
    /// replaced.
    Subscribe(Subscription),
    /// The subscription and all it holds are gone.
    Unsubscribe {
        /// Its name.
        name: Arc<str>,
    },
    /// The topic feeds the queue from now on, in place of how it fed it before; the queue is made
    /// if it is not there.
    Bind(Binding),
    /// The topic feeds the queue no more.
    Unbind {
        /// The topic, or a pattern of topics.
        topic: Destination,
        /// The queue.
        queue: Destination,
    },
    /// One message for every durable queue bound to the address; a queue is made on first use.
    Enqueue(Sent),
    /// A piece of a large body, before the message that will name it; see [`crate::Chunks`].
    /// Nothing follows from it.
    Chunk(Bytes),
    /// Entries left their queues for good.
    Settle(Vec<Settlement>),
    /// These entries were delivered once more without success.
    CountDelivery {
        /// The queue that holds them.
        queue: QueueId,
        /// The entries.
        tags: Vec<EntryTag>,
    },
    /// These entries are leased, each by the lease of its place after `before_first`, and count as
    /// delivered once more.
    Lease {
        /// The queue.
        queue: QueueId,
        /// The lease before the first one.
        before_first: LeaseId,
        /// When the leases end, and how long they last.
        until: LeaseEnd,
        /// The entries.
        tags: Vec<EntryTag>,
    },
    /// These entries are leased, or delayed, until another time.
    Touch {
        /// The queue.
        queue: QueueId,
        /// The end; `None`: they are ready.
        until: Option<LeaseEnd>,
        /// The entries, each with its lease; without one it is delayed.
        entries: Vec<(EntryTag, Option<LeaseId>)>,
    },
    /// The queue exists, and has these options.
    Configure {
        /// A lasting queue.
        queue: Destination,
        /// Its options from now on.
        options: QueueOptions,
    },
    /// Everything of a transaction that touched this partition alone.
    Transact(Changes),
    /// The rest of a compacted record with messages: those still needed, by their ordinals. It is
    /// never proposed, and a start never meets one: it is read for its contents.
    Left {
        /// In order.
        sends: Vec<(u32, Sent)>,
    },
    /// A job is due: its message is there now, as the log has it here. A job that goes on is due
    /// again.
    Fire {
        /// Which firing of which job.
        due: Due,
        /// When it is due again, and how it goes on then.
        next: Option<(u64, Recurrence)>,
        /// The messages for its queues.
        sent: Sent,
    },
    /// These jobs end without a message.
    Unschedule {
        /// Their next firings.
        jobs: Vec<Due>,
    },
    /// These jobs leave memory, if all of them are there: from now on this record has them.
    Shelve {
        /// Who they are, in order, as the core writes them.
        jobs: Bytes,
    },
    /// The jobs of that record are in memory again.
    Unshelve {
        /// The record.
        shelf: Position,
        /// The jobs.
        jobs: Bytes,
    },
    /// This partition's share of a transaction over several; binding until the coordinator decides.
    Prepare {
        /// The transaction.
        id: TransactionId,
        /// The changes at commit.
        changes: Changes,
    },
    /// The coordinator's decision to commit: the moment the transaction is durable.
    Decide {
        /// The transaction.
        id: TransactionId,
        /// Who prepared it.
        participants: Vec<PartitionId>,
    },
    /// Every participant has prepared this branch: any session may decide its end, in this run or a
    /// later one.
    Promise {
        /// The transaction, as its participants call it.
        id: TransactionId,
        /// The transaction, as its manager calls it.
        branch: BranchId,
        /// Who prepared it.
        participants: Vec<PartitionId>,
    },
    /// An operator decides a promised branch in place of its manager, which gets that decision when
    /// it comes.
    Overrule {
        /// The transaction, as its participants call it.
        id: TransactionId,
        /// The transaction, as its manager calls it.
        branch: BranchId,
        /// Who prepared it.
        participants: Vec<PartitionId>,
        /// Whether it is carried out.
        commit: bool,
    },
    /// The manager no longer needs to learn that an operator has ended the branch.
    ForgetBranch {
        /// The branch.
        branch: BranchId,
    },
    /// The queue exists, and its consumers get nothing of it until it is resumed.
    Pause {
        /// A lasting queue.
        queue: Destination,
        /// `false`: it is resumed.
        paused: bool,
    },
    /// A document is replaced, if it is still of the version that this was made from.
    Document(Box<DocumentChange>),
    /// The queue leaves for another partition, step by step: from now on it delivers nothing here,
    /// and its entries follow. It is gone with the `Delete` after its last entry. Said again it
    /// changes nothing.
    Leave {
        /// A lasting queue.
        queue: Destination,
        /// Where it lives from now on.
        to: PartitionId,
    },
    /// Another partition, a queue of which comes here, has had these messages of producers: those
    /// that are sent again are known here too.
    Remember {
        /// Windows of the duplicate detection, as the core writes them.
        known: Bytes,
    },
    /// A participant applies its prepared changes.
    Commit {
        /// The transaction.
        id: TransactionId,
    },
    /// A participant drops its prepared changes; a coordinator forgets that it promised the branch.
    Abort {
        /// The transaction.
        id: TransactionId,
    },
    /// Every participant has committed: the coordinator may forget its decision.
    Forget {
        /// The transaction.
        id: TransactionId,
    },
}

/// The deadline of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseEnd {
    /// In milliseconds since 1970.
    pub wall_ms: u64,
    /// How long it was to last: after a restart it lasts no longer, wherever the clock stands.
    pub lasts_ms: u64,
}

/// Marks the name of a subscription that is set aside. No other name begins so: see
/// [`Subscription::name_of`].
const ASIDE: &str = "moving ";

/// Prefix of the durable subscriptions that links make (ActiveMQ's
/// `NetworkConnector.DURABLE_SUB_PREFIX`).
pub const LINK_PREFIX: &str = "NC-DS_";

/// Separates the peer from the broker itself in client ids of links.
pub const LINK_INBOUND: &str = "_inbound_";

/// Selects messages that came by a link, and that the broker at its other end had taken in by the
/// time that follows.
const OF_LINKS: &str = "JMSActiveMQBrokerPath IS NOT NULL AND JMSPostroadInTime <= ";

/// The subscription's own selector in that of one that is set aside.
fn own_selector_in(selector: &str) -> Option<&str> {
    let rest = selector.strip_prefix(OF_LINKS)?.trim_start_matches(|digit: char| digit.is_ascii_digit());
    match rest {
        "" => Some(""),
        rest => rest.strip_prefix(" AND (")?.strip_suffix(')'),
    }
}

/// A durable subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its name, unique in the broker: see [`Subscription::name_of`].
    pub name: Arc<str>,
    /// Its topic.
    pub topic: Destination,
    /// Only messages that match this selector; empty for everything.
    pub selector: Arc<str>,
    /// It takes nothing that this client sends (`noLocal`).
    pub skips: Option<Arc<str>>,
    /// Several consumers may read it at a time, in competition (JMS 3.1, section 8.3.4).
    pub shared: bool,
}

impl Subscription {
    /// The broker's name for this user's subscription of that name. A client without login is the
    /// user without a name.
    ///
    /// Client and user have their lengths ahead, so that no two subscriptions look alike:
    /// `3:cts:orders`, and `3@ann:3:cts:orders`.
    pub fn name_of(user: &str, client: &str, name: &str) -> Arc<str> {
        match user.len() {
            0 => format!("{}:{client}:{name}", client.len()).into(),
            length => format!("{length}@{user}:{}:{client}:{name}", client.len()).into(),
        }
    }

    /// The name of this subscription while it is set aside: its subscriber reads it at another
    /// broker, where a link takes its messages.
    ///
    /// A subscription that is set aside gathers only messages that were on their way to it over
    /// links: see [`Subscription::set_aside`].
    pub fn aside_of(name: &str) -> Arc<str> {
        format!("{ASIDE}{name}").into()
    }

    /// The name of a subscription without the mark that it is set aside; `None` without that mark.
    pub fn without_aside(name: &str) -> Option<&str> {
        name.strip_prefix(ASIDE)
    }

    /// Whether it is set aside.
    pub fn is_aside(&self) -> bool {
        Subscription::without_aside(&self.name).is_some()
    }

    /// The peer and this broker, each as it was named when a link made the subscription of this
    /// name; `None` if no link did.
    pub fn link_of(name: &str) -> Option<(&str, &str)> {
        let (_, client, name) = Subscription::parts_of(name)?;
        name.strip_prefix(LINK_PREFIX)?;
        client.split_once(LINK_INBOUND)
    }

    /// Its name, whether it is set aside or not.
    pub fn own_name(&self) -> &str {
        Subscription::without_aside(&self.name).unwrap_or(&self.name)
    }

    /// Its selector, whether it is set aside or not.
    pub fn own_selector(&self) -> &str {
        match self.is_aside() {
            true => own_selector_in(&self.selector).unwrap_or(&self.selector),
            false => &self.selector,
        }
    }

    /// The subscription set aside: from now on it takes only messages that come by links, and that
    /// the broker there had taken in by `until_ms` (milliseconds since 1970).
    pub fn set_aside(&self, until_ms: u64) -> Subscription {
        let own = self.own_selector();
        let closed = format!("{OF_LINKS}{until_ms}");
        let selector = if own.is_empty() { closed } else { format!("{closed} AND ({own})") };
        Subscription {
            name: Subscription::aside_of(self.own_name()),
            selector: selector.into(),
            ..self.clone()
        }
    }

    /// The subscription as it was before it was set aside.
    pub fn resumed(&self) -> Subscription {
        Subscription { name: self.own_name().into(), selector: self.own_selector().into(), ..self.clone() }
    }

    /// User, client and the client's own name, in a name as [`Subscription::name_of`] makes it.
    pub fn parts_of(name: &str) -> Option<(&str, &str, &str)> {
        let (user, rest) = match name.split_once(['@', ':']) {
            Some((length, rest)) if name[length.len()..].starts_with('@') => {
                let length: usize = length.parse().ok()?;
                (rest.get(..length)?, rest.get(length..)?.strip_prefix(':')?)
            }
            _ => ("", name),
        };
        let (length, rest) = rest.split_once(':')?;
        let length: usize = length.parse().ok()?;
        Some((user, rest.get(..length)?, rest.get(length..)?.strip_prefix(':')?))
    }
}

/// The tie from a topic to a queue that has a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The topic, or a pattern of topics.
    pub topic: Destination,
    /// The queue.
    pub queue: Destination,
    /// The queue takes messages that match one of them; an empty one matches everything, none at
    /// all match nothing.
    pub selectors: Vec<Arc<str>>,
}

/// One message and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The address.
    pub to: Destination,
    /// Further addresses of the same partition that get it too: one record, one body, all or
    /// nothing.
    pub also: Vec<Destination>,
    /// The message.
    pub message: Message,
    /// It is seen when it is due, and not before.
    pub schedule: Option<Box<Schedule>>,
    /// It comes from where its queue lived before, and was delivered there so often without
    /// success. It is older than whatever was sent to the queue here.
    pub moved: Option<u32>,
}

impl Sent {
    /// A message for one address.
    pub fn new(to: Destination, message: Message) -> Sent {
        Sent { to, also: Vec::new(), message, schedule: None, moved: None }
    }

    /// Every address that gets it.
    pub fn targets(&self) -> impl Iterator<Item = &Destination> {
        std::iter::once(&self.to).chain(&self.also)
    }
}

/// The end of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The queue that held it.
    pub queue: QueueId,
    /// The entry.
    pub tag: EntryTag,
    /// Why it left.
    pub cause: SettleCause,
}

/// Why an entry left its queue: each cause is counted apart. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SettleCause {
    /// A consumer acknowledged it.
    Consumed = 0,
    /// Its time to live was over.
    Expired = 1,
    /// It moved to a dead-letter queue.
    DeadLettered = 2,
    /// Its queue held more than the policy of its owner allows.
    Dropped = 3,
    /// A newer message with the same value took its place.
    Replaced = 4,
    /// Its queue has left for another partition, and it with the queue; or its subscription is set
    /// aside, and the one at the other broker has the message by its topic.
    Moved = 5,
}

/// The durable changes that a transaction makes in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Messages that become visible, in order.
    pub sends: Vec<Sent>,
    /// Entries that leave.
    pub settlements: Vec<Settlement>,
}

/// The failures that a record must survive before it is applied. The greater one survives more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing: it is not journaled.
    Memory,
    /// The process: the operating system has it. It is synced a little later.
    Async,
    /// The machine: it is synced.
    #[default]
    Sync,
}

/// How bodies are written into a record; the last makes them shortest, and takes longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// As LZ4 blocks, where that is shorter.
    Lz4,
    /// As Zstandard frames, where that is shorter.
    Zstd,
}

/// How soon a record must be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A client waits for it: sync as soon as the disk is free.
    Waiting,
    /// No client waits: it may ride with the next group, within a few milliseconds.
    Lazy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_that_was_set_aside_is_resumed_as_it_was() {
        for selector in ["", "a = 1", "a = ') AND (' OR (b = 2)"] {
            let own = Subscription {
                name: Subscription::name_of("ann", "c", "moving s"),
                topic: Destination::topic("t"),
                selector: selector.into(),
                skips: Some("c".into()),
                shared: false,
            };
            let aside = own.set_aside(7);
            assert!(aside.is_aside() && !own.is_aside());
            assert_eq!((aside.own_name(), aside.own_selector()), (&*own.name, selector));
            assert_eq!(aside.set_aside(9), own.set_aside(9), "set aside again, later");
            assert_eq!(aside.resumed(), own);
            assert_eq!(Subscription::parts_of(&aside.name), None, "no client's name is like it");
        }
    }

    #[test]
    fn the_parts_of_the_name_of_a_subscription_are_found_again() {
        for (user, client, name) in [
            ("", "cts", "orders"),
            ("ann", "cts", "orders"),
            ("a:1@b", "c:2@d", "x:3@y"),
            ("", "", ""),
            ("ü", "ö", "ä"),
        ] {
            let whole = Subscription::name_of(user, client, name);
            assert_eq!(Subscription::parts_of(&whole), Some((user, client, name)), "{whole}");
        }
        for broken in
            ["", "s", "x:c:s", "9:c:s", "1@a", "1@a:s", "1@ab:1:c:s", "1:ö:s", "99999999999999999999:c:s"]
        {
            assert_eq!(Subscription::parts_of(broken), None, "{broken}");
        }
    }
}

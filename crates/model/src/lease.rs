//! Leases: deliveries owned by a deadline instead of a connection (IronMQ reservation, SQS
//! visibility timeout).

use std::sync::Arc;

use bytes::Bytes;

use crate::{ConnectionId, Destination, EntryTag, Message, PartitionId, QueueId, Ticket};

/// One delivery to a deadline: unique in the broker for the life of the data directory.
///
/// The highest bit marks a delivery to the link of a name, see [`LeaseId::of_link`]. Otherwise the
/// next 23 bits are the run of the broker (its incarnation). Of the lower 40 the highest are the
/// number of the partition, as many as the number of partitions takes, and the rest count the
/// leases of that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// Bits below the run of the broker.
    const RUN_SHIFT: u32 = 40;

    /// Marks deliveries to links.
    const LINK: u64 = 1 << 63;

    /// The lease before the first one of this run.
    pub const fn before_first(incarnation: u64, partition: PartitionId, partitions: u16) -> LeaseId {
        let own = (partition.0 as u64) << LeaseId::count_bits(partitions);
        LeaseId((incarnation & 0x7f_ffff) << LeaseId::RUN_SHIFT | own)
    }

    /// Whether this partition has given it, if there were as many partitions then.
    pub const fn is_of(self, partition: PartitionId, partitions: u16) -> bool {
        let without_run = self.0 & ((1 << LeaseId::RUN_SHIFT) - 1);
        without_run >> LeaseId::count_bits(partitions) == partition.0 as u64
    }

    const fn count_bits(partitions: u16) -> u32 {
        LeaseId::RUN_SHIFT - (u16::BITS - partitions.saturating_sub(1).leading_zeros())
    }

    /// Stands for all deliveries to links of this name. It is kept in journals: the same in every
    /// build.
    pub fn of_link(name: &str) -> LeaseId {
        // FNV-1a.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        LeaseId(name.bytes().fold(0xcbf2_9ce4_8422_2325, step) | LeaseId::LINK)
    }

    /// Whether it stands for deliveries to a link.
    pub const fn is_of_link(self) -> bool {
        self.0 & LeaseId::LINK != 0
    }

    /// The lease `count` places further on.
    pub const fn plus(self, count: u64) -> LeaseId {
        LeaseId(self.0.wrapping_add(count))
    }
}

/// Requests of front ends whose clients have no consumers.
#[derive(Clone, Debug)]
pub enum LeaseEvent {
    /// Send messages: all or none. Answered by [`LeaseAnswer::Posted`].
    Post(Post),
    /// Take messages for a time, or look at some. Answered by [`LeaseAnswer::Reserved`].
    Reserve(Reserve),
    /// Delete, extend or release entries. Answered by [`LeaseAnswer::Handled`].
    Handle(HandleEntries),
    /// Wait until the length of a queue has reached a bound. Answered by
    /// [`LeaseAnswer::Described`].
    Watch(Watch),
    /// The client no longer waits for its reserve or its watch. Nothing is answered.
    Cancel {
        /// The queue.
        queue: Destination,
        /// Who asked.
        connection: ConnectionId,
        /// The ticket of the reserve or watch.
        ticket: Ticket,
    },
    /// Make the queue if it does not exist, and set its options durably.
    Configure {
        /// A lasting queue.
        queue: Destination,
        /// Its options from now on.
        options: QueueOptions,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits.
        ticket: Ticket,
    },
    /// The state of a queue: answered by [`LeaseAnswer::Described`].
    Describe {
        /// A lasting queue.
        queue: Destination,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits.
        ticket: Ticket,
    },
    /// The names of lasting queues of this partition: answered by [`LeaseAnswer::Listed`].
    List {
        /// Only names with this prefix.
        prefix: Arc<str>,
        /// Only names behind this one; empty for all.
        after: Arc<str>,
        /// The maximum number.
        count_max: u32,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits.
        ticket: Ticket,
    },
    /// Lasting queues of this partition for which options are set: answered by
    /// [`LeaseAnswer::Configured`].
    Configured {
        /// Only names after this one; empty for all.
        after: Arc<str>,
        /// At most this many.
        count_max: u32,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits.
        ticket: Ticket,
    },
    /// Delete all entries of a queue that no consumer and no lease holds.
    Clear {
        /// A lasting queue.
        queue: Destination,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits.
        ticket: Ticket,
    },
}

impl LeaseEvent {
    /// The queue; none for a question to all partitions.
    pub fn queue(&self) -> Option<&Destination> {
        match self {
            LeaseEvent::Post(post) => Some(&post.to),
            LeaseEvent::Reserve(reserve) => Some(&reserve.queue),
            LeaseEvent::Handle(handle) => Some(&handle.queue),
            LeaseEvent::Watch(watch) => Some(&watch.queue),
            LeaseEvent::Cancel { queue, .. }
            | LeaseEvent::Configure { queue, .. }
            | LeaseEvent::Describe { queue, .. }
            | LeaseEvent::Clear { queue, .. } => Some(queue),
            LeaseEvent::List { .. } | LeaseEvent::Configured { .. } => None,
        }
    }

    /// Who waits for the answer.
    pub fn ticket(&self) -> Ticket {
        match self {
            LeaseEvent::Post(post) => post.ticket,
            LeaseEvent::Reserve(reserve) => reserve.ticket,
            LeaseEvent::Handle(handle) => handle.ticket,
            LeaseEvent::Watch(watch) => watch.ticket,
            LeaseEvent::Cancel { ticket, .. }
            | LeaseEvent::Configure { ticket, .. }
            | LeaseEvent::Describe { ticket, .. }
            | LeaseEvent::Clear { ticket, .. }
            | LeaseEvent::Configured { ticket, .. }
            | LeaseEvent::List { ticket, .. } => *ticket,
        }
    }

    /// Bytes that it takes until it is answered.
    pub fn byte_length(&self) -> u64 {
        match self {
            LeaseEvent::Post(post) => post.messages.iter().map(Message::size).sum(),
            LeaseEvent::Handle(handle) => size_of_val(&handle.handles[..]) as u64,
            _ => 0,
        }
    }
}

/// Messages for one queue, in one record: all of them or none.
#[derive(Clone, Debug)]
pub struct Post {
    /// Who sends.
    pub connection: ConnectionId,
    /// Who waits: the answer leaves once they are durable.
    pub ticket: Ticket,
    /// A lasting queue, made on first use.
    pub to: Destination,
    /// The messages, of normal priority.
    pub messages: Vec<Message>,
}

/// A request for messages.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// Who asks.
    pub connection: ConnectionId,
    /// Who waits.
    pub ticket: Ticket,
    /// A lasting queue.
    pub queue: Destination,
    /// The maximum number.
    pub messages_max: u32,
    /// Only messages that match; empty for all.
    pub selector: Arc<str>,
    /// How long to wait if nothing is there.
    pub wait_ms: u64,
    /// The messages to take.
    pub take: Take,
}

/// A request to be notified of the length of a queue.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Who asks.
    pub connection: ConnectionId,
    /// Who waits.
    pub ticket: Ticket,
    /// A lasting queue.
    pub queue: Destination,
    /// Answered once the queue has at least this many entries.
    pub rises_to: Option<u64>,
    /// Answered once the queue has at most this many entries.
    pub falls_to: Option<u64>,
}

/// How messages are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// How long they are leased.
    Lease {
        /// Milliseconds.
        lasts_ms: u64,
    },
    /// They stay where they are: only waiting messages are read.
    Peek,
    /// This entry is read, also while it is held.
    Get(EntryTag),
}

/// One entry as the holder of a lease calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The queue: deleted and made again, it is another one.
    pub queue: QueueId,
    /// The entry.
    pub tag: EntryTag,
    /// The lease; `None` for an entry without a holder.
    pub lease: Option<LeaseId>,
}

/// Changes of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleEntries {
    /// The queue.
    pub queue: Destination,
    /// Who asks: any connection may.
    pub connection: ConnectionId,
    /// Who waits.
    pub ticket: Ticket,
    /// The entries.
    pub handles: Vec<Handle>,
    /// The change of each.
    pub action: HandleAction,
    /// If one of them is stale, nothing happens to any.
    pub all_or_none: bool,
}

/// The change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleAction {
    /// It is deleted: durable before the answer.
    Delete {
        /// Even if the lease has expired, unless another client holds the entry.
        even_expired: bool,
    },
    /// New duration of its lease, from now on.
    Extend {
        /// Milliseconds.
        lasts_ms: u64,
    },
    /// A new lease takes the place of its lease, which is stale from now on. Answered by
    /// [`LeaseAnswer::Renewed`] too.
    Renew {
        /// Milliseconds that the new lease lasts.
        lasts_ms: u64,
    },
    /// Its lease ends, and it is ready again after a delay.
    Release {
        /// Milliseconds.
        delay_ms: u64,
    },
}

/// Why a handle does not apply any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The entry was deleted or has left the queue in another way (it expired, or lies among the
    /// dead letters), or never was there.
    #[error("the message does not exist")]
    Gone,
    /// The lease has expired; the entry is free.
    #[error("the lease has expired")]
    Expired,
    /// The lease has expired, and another lease or a consumer holds the entry now.
    #[error("the lease has expired, and the message was delivered again")]
    Taken,
    /// A lease or a consumer holds the entry, and no lease was named.
    #[error("the message is reserved")]
    Held,
}

/// A message that was reserved, or looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserved {
    /// The queue.
    pub queue: QueueId,
    /// The entry.
    pub tag: EntryTag,
    /// The lease, if it is leased.
    pub lease: Option<LeaseId>,
    /// How often it was delivered, with this time.
    pub deliveries: u32,
    /// The partition whose log has the pieces of a large body.
    pub from: PartitionId,
    /// The message.
    pub message: Message,
}

/// The answer to a [`LeaseEvent`]; the reply to the same ticket follows.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseAnswer {
    /// The messages are in this queue, as entries that follow one another, but for duplicates.
    Posted {
        /// The queue.
        queue: QueueId,
        /// The first of the entries.
        first: EntryTag,
        /// Messages that the queue has taken in before.
        duplicates: Vec<Duplicate>,
    },
    /// The messages; none if nothing was there.
    Reserved(Vec<Reserved>),
    /// The new leases of entries that were renewed, in their order; [`LeaseAnswer::Handled`]
    /// follows.
    Renewed(Vec<LeaseId>),
    /// The result for each entry.
    Handled(Vec<Result<(), Stale>>),
    /// The queue.
    Described(Box<QueueDescription>),
    /// Some of the names, in order.
    Listed(Vec<Arc<str>>),
    /// Some of the queues with their options, in the order of their names.
    Configured(Vec<(Arc<str>, QueueOptions)>),
}

/// A message of a post that its queue has taken in before: it is not there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Its place among the messages of the post.
    pub index: usize,
    /// The entry of the first one.
    pub tag: EntryTag,
    /// The id of the first one.
    pub id: u128,
}

/// Options of one queue that clients set, durable with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueOptions {
    /// A message is dead after this many deliveries without success; 0: the policy of the queue
    /// decides.
    pub deliveries_max: u32,
    /// Where dead messages go, in place of where the policy says.
    pub dead_letters: Option<Arc<str>>,
    /// The front end's own data about the queue, in its own format.
    pub document: Bytes,
}

/// The state of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDescription {
    /// The queue.
    pub queue: QueueId,
    /// Its options, if some were set.
    pub options: Option<QueueOptions>,
    /// Entries in it, in whatever state.
    pub length: u64,
    /// Entries that leases hold.
    pub leased: u64,
    /// Entries that wait for their delay.
    pub delayed: u64,
    /// Entries that consumers hold, or that leave.
    pub held: u64,
    /// Entries that have been in it since the start of the broker.
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_two_partitions_or_runs_differ_and_name_their_partition() {
        for partitions in [1, 2, 3, 16, u16::MAX] {
            let (last, most) = (PartitionId(partitions - 1), 1 << 20);
            let of = |run, partition| LeaseId::before_first(run, partition, partitions).plus(most);
            assert!(of(7, last).is_of(last, partitions), "{partitions}");
            assert!(of(7, last) < LeaseId::before_first(8, PartitionId(0), partitions), "{partitions}");
            if 1 < partitions {
                assert!(!of(7, last).is_of(PartitionId(0), partitions), "{partitions}");
                assert!(of(7, PartitionId(0)) < LeaseId::before_first(7, PartitionId(1), partitions));
            }
        }
    }
}

//! Why the core says no.

use std::sync::Arc;

use crate::{Action, Destination};

/// A request that was not carried out. Nothing of it happened; protocols map it to their own
/// errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A temporary destination that does not exist (any more).
    #[error("the temporary destination {0} does not exist; its connection may have closed")]
    NoSuchDestination(Destination),
    /// Only the connection that made a temporary destination may consume from it, or delete it.
    #[error("{0} belongs to another connection")]
    NotOwner(Destination),
    /// No permission of the configuration grants this to the user.
    #[error(
        "{} has no permission to {action} {destination}: a [[security.permission]] of the configuration must grant it",
        match user { Some(user) => format!("user {user}"), None => "the anonymous user".to_owned() }
    )]
    NotPermitted {
        /// The user; `None` for the anonymous user.
        user: Option<Arc<str>>,
        /// The refused action.
        action: Action,
        /// The destination of the action.
        destination: Destination,
    },
    /// Another store of the cluster has the destination.
    #[error(
        "{destination} is in store {store} of the cluster: a client is served by the store of its user's tenant"
    )]
    OtherStore {
        /// The destination.
        destination: Destination,
        /// The number of that store.
        store: u16,
    },
    /// A destination can be deleted only without consumers.
    #[error("cannot delete {destination}: it has {consumers} consumers")]
    InUse {
        /// The destination.
        destination: Destination,
        /// How many consumers it has.
        consumers: u64,
    },
    /// The selector does not follow the grammar.
    #[error("invalid selector {selector:?}: {reason}")]
    BadSelector {
        /// The selector.
        selector: Arc<str>,
        /// Where and why.
        reason: String,
    },
    /// Too many redrives are running.
    #[error("the maximum of {max} redrives is running; try again later")]
    TooManyRedrives {
        /// How many there may be.
        max: usize,
    },
    /// Too many lists are being made.
    #[error(
        "a partition makes the maximum of {max} lists at the same time: ask again in a second, or for fewer at once"
    )]
    TooManyLists {
        /// How many there may be.
        max: usize,
    },
    /// All queues of a tenant, or of the broker, hold as much as they may.
    #[error("{to} refuses messages until some are consumed: {} at the limit ({limit})",
        match owner { Some(owner) => format!("the tenant {owner} is"), None => "the broker is".to_owned() })]
    QuotaFull {
        /// Where the message was to go.
        to: Destination,
        /// Whose limit it is; `None` for the broker's.
        owner: Option<Arc<str>>,
        /// The limit, as configured.
        limit: Arc<str>,
    },
    /// A tenant has as many queues as its quota permits.
    #[error(
        "the tenant {tenant} has its maximum of {max} queues: delete some, or have its queues_max raised"
    )]
    TooManyQueues {
        /// The tenant.
        tenant: Arc<str>,
        /// How many it may have.
        max: u64,
    },
    /// A tenant has as many connections as its quota permits.
    #[error(
        "the tenant {tenant} has its maximum of {max} connections: close some, or have its connections_max raised"
    )]
    TooManyConnections {
        /// The tenant.
        tenant: Arc<str>,
        /// How many it may have.
        max: u64,
    },
    /// A tenant sends faster than its quota permits, and the sender cannot wait longer.
    #[error("the tenant {tenant} sends more than {max} messages in a second: send them more slowly")]
    TooFast {
        /// The tenant.
        tenant: Arc<str>,
        /// How many it may send.
        max: u64,
    },
    /// A durable subscription has one reader at a time.
    #[error("the durable subscription {} is in use", shown(name))]
    SubscriptionInUse {
        /// The subscription.
        name: Arc<str>,
    },
    /// A shared and an unshared durable subscription cannot have the same name (JMS 3.1, section
    /// 8.3.4).
    #[error("the durable subscription {} exists and is {}", shown(name), if *shared { "shared" } else { "not shared" })]
    SubscriptionOfOtherKind {
        /// The subscription.
        name: Arc<str>,
        /// Whether it is shared.
        shared: bool,
    },
    /// There is no durable subscription of this name.
    #[error("there is no durable subscription {}", shown(name))]
    NoSuchSubscription {
        /// The name.
        name: Arc<str>,
    },
    /// There is no such job: it was sent, or was ended.
    #[error("there is no scheduled message {id}: it was sent or deleted")]
    NoSuchSchedule {
        /// The job.
        id: crate::ScheduleId,
    },
    /// The consumer number is taken on this connection.
    #[error("the consumer is attached already")]
    ConsumerExists {
        /// The session's number for it.
        number: u32,
    },
    /// Another connection has the exclusive name.
    #[error("the client id {name} is in use by another connection, {holder}")]
    NameTaken {
        /// The name.
        name: Arc<str>,
        /// Who has it.
        holder: Arc<str>,
    },
    /// The queue cannot move to another store.
    #[error("{queue} cannot be moved: {reason}")]
    NotMovable {
        /// The queue.
        queue: Destination,
        /// The reason, and the remedy.
        reason: String,
    },
    /// A temporary queue cannot be paused.
    #[error("{0} is temporary; only lasting queues can be paused")]
    NotPausable(Destination),
    /// A document is of another version than the change was made from, or is being changed.
    #[error(
        "{name} were changed by somebody else at the same time: look at them again, and repeat the change"
    )]
    DocumentChanged {
        /// Which document.
        name: Arc<str>,
    },
    /// A document is bounded.
    #[error("{name} would have {bytes} bytes; the most is {max}: remove some first")]
    DocumentTooLarge {
        /// Which document.
        name: Arc<str>,
        /// What it would have.
        bytes: usize,
        /// What it may have.
        max: usize,
    },
    /// There is a bounded number of documents, whose names are bounded.
    #[error("the document {name} cannot be made: {max} exist already, or its name is empty or too long")]
    TooManyDocuments {
        /// Which document.
        name: Arc<str>,
        /// How many there may be.
        max: usize,
    },
    /// An operator drains the broker: it takes no messages.
    #[error(
        "the broker is being drained and takes no messages; send to another broker, or `postroad ctl broker resume`"
    )]
    Draining,
    /// The queue is moving between stores.
    #[error("{0} is moving to another store; try again once it is there")]
    QueueMoving(Destination),
    /// No more links are remembered.
    #[error("the maximum of {max} recoverable links is attached")]
    TooManyLinks {
        /// The limit.
        max: usize,
    },
    /// Another connection has attached the link.
    #[error("the link {name} was attached by another connection")]
    LinkLost {
        /// The link.
        name: Arc<str>,
    },
    /// The disk has no room for more messages; consuming them makes room.
    #[error("the store is full: {to} refuses persistent messages until there is space")]
    StoreFull {
        /// Where the message was sent.
        to: Destination,
    },
    /// The queue, or one that the topic feeds, holds as much as its policy allows.
    #[error("{to} is at the limit of its policy ({limit}), and refuses messages until some are consumed")]
    QueueFull {
        /// Where the message was sent.
        to: Destination,
        /// The limit, as configured.
        limit: Arc<str>,
    },
    /// The consumer was slow, and another one has the message that it settles.
    #[error(
        "the message was requeued, because the consumer did not settle it in time, and delivered to another consumer"
    )]
    TakenBack,
    /// Messages that are to move cannot be read from the disk.
    #[error("unreadable messages stay where they are: {reason}")]
    Unreadable {
        /// Their location, and the reason.
        reason: String,
    },
    /// There is no such queue.
    #[error("{0} does not exist")]
    NoSuchQueue(Destination),
    /// The queue has its maximum of leases.
    #[error(
        "{queue} has the maximum of {max} messages in flight: delete or release some, or wait until their leases expire"
    )]
    TooManyLeases {
        /// The queue.
        queue: Destination,
        /// How many there may be.
        max: u64,
    },
    /// The queues of the tenant have its maximum of leases.
    #[error(
        "the tenant {tenant} has the maximum of {max} messages in flight: delete or release some, or wait until their leases expire"
    )]
    TooManyTenantLeases {
        /// The tenant.
        tenant: std::sync::Arc<str>,
        /// How many there may be here.
        max: u64,
    },
    /// The queue has its maximum of deduplication ids.
    #[error("{queue} has the maximum of {max} deduplication ids: send fewer messages in five minutes")]
    TooManyDeduplicationIds {
        /// The queue.
        queue: Destination,
        /// How many there may be.
        max: usize,
    },
    /// The maximum of requests wait for messages of the queue.
    #[error("the maximum of {max} requests waits for messages of {queue}: ask again without waiting")]
    TooManyWaiting {
        /// The queue.
        queue: Destination,
        /// How many there may be.
        max: usize,
    },
    /// Writing or syncing the journal failed; whether anything is on disk is settled: it is not.
    #[error("the store could not write: {reason}")]
    StoreFailed {
        /// The operating system's error.
        reason: String,
    },
    /// Another node leads the partition, or none does: the request had no effect.
    #[error("this node is not the leader any more; nothing was done: connect again")]
    NotLeader,
    /// The node lost its leadership while the request was on its way to the log.
    #[error("the leader changed before the request was confirmed; it may or may not have been carried out")]
    OutcomeUnknown,
    /// The transaction holds more than one transaction may.
    #[error("the transaction is larger than {max_bytes} bytes")]
    TransactionTooLarge {
        /// The limit.
        max_bytes: u64,
    },
    /// Open transactions hold more than all of them may.
    #[error(
        "open transactions have the maximum of {max_bytes} bytes: commit or roll back one, or give the broker more memory"
    )]
    TransactionsFull {
        /// The limit.
        max_bytes: u64,
    },
    /// Prepared transactions hold all that they may together.
    #[error(
        "prepared transactions have the maximum of {max_bytes} bytes: complete one, or give the broker more memory"
    )]
    PreparedFull {
        /// The limit.
        max_bytes: u64,
    },
    /// Consumers of patterns read too many queues together.
    #[error(
        "a consumer of {pattern} would read {queues} queues, but consumers of patterns read {read} already, and at most {max} \
         together: narrow the pattern, close others, or raise limits.memory_bytes"
    )]
    PatternTooWide {
        /// The pattern.
        pattern: Destination,
        /// Queues that it matches.
        queues: usize,
        /// Queues that are read by patterns, once for each consumer.
        read: usize,
        /// The limit.
        max: usize,
    },
    /// More branches are open than may be.
    #[error("the maximum of {max} branch parts is open: prepare or roll back some")]
    TooManyBranches {
        /// The limit.
        max: usize,
    },
    /// A schedule that makes no sense.
    #[error("cannot schedule a message to {to}: {reason}")]
    BadSchedule {
        /// Where the message was sent.
        to: Destination,
        /// The fault, and the remedy.
        reason: String,
    },
    /// The branch was not begun, or has ended.
    #[error("no such branch: it was not begun, or has ended")]
    NoSuchBranch,
    /// A decision after two phases needs the first one.
    #[error("the branch is not prepared")]
    BranchNotPrepared,
    /// The branch is being ended already, or was prepared.
    #[error("the branch accepts no more work: it is prepared, or about to be")]
    BranchClosed,
    /// Nothing was done in the branch: it has ended, and nothing is left to decide.
    #[error("nothing was done in the branch")]
    BranchEmpty,
    /// The branch's changes are undone.
    #[error("the branch was rolled back: {reason}")]
    BranchRolledBack {
        /// Why.
        reason: String,
    },
    /// An operator has ended the branch in place of its manager, and this is kept until it is
    /// forgotten.
    #[error(
        "an operator has already {} the branch; call forget to remove this record",
        if *committed { "committed" } else { "rolled back" }
    )]
    BranchOverruled {
        /// How it ended.
        committed: bool,
    },
    /// It was open for longer than a transaction may be.
    #[error("rolled back: the transaction was open for longer than {limit_ms} ms")]
    TransactionTimedOut {
        /// The limit.
        limit_ms: u64,
    },
    /// The transaction was not begun, or has ended.
    #[error("no such transaction")]
    NoSuchTransaction,
}

/// A subscription as its client calls it. The broker's name has the client's id, after its length,
/// before the client's name: see [`crate::Subscription::name_of`].
fn shown(name: &str) -> String {
    let parts = || {
        let name = name.strip_prefix("volatile:").unwrap_or(name);
        let (length, rest) = without_user(name).unwrap_or(name).split_once(':')?;
        let (client, rest) = rest.split_at_checked(length.parse().ok()?)?;
        Some((client, rest.strip_prefix(':')?))
    };
    match parts() {
        Some(("", name)) => name.to_owned(),
        Some((client, name)) => format!("{name} of the client id {client}"),
        None => name.to_owned(),
    }
}

/// The name of a subscription of a user who has logged in, without that user.
fn without_user(name: &str) -> Option<&str> {
    let (length, rest) = name.split_once('@')?;
    rest.get(length.parse().ok()?..)?.strip_prefix(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_a_subscription_as_its_client_does() {
        for (name, want) in [
            ("3:cts:foo", "foo of the client id cts"),
            ("4:a:b::c:d", "c:d of the client id a:b:"),
            ("volatile:0::news", "news"),
            ("3@ann:3:cts:foo", "foo of the client id cts"),
            ("volatile:3@ann:0::news", "news"),
            ("0::a:b", "a:b"),
            ("news", "news"),
            ("9:cts:foo", "9:cts:foo"),
            ("2:é:foo", "foo of the client id é"),
            ("1:é:foo", "1:é:foo"),
        ] {
            let refusal = Refusal::NoSuchSubscription { name: name.into() };
            assert_eq!(refusal.to_string(), format!("there is no durable subscription {want}"));
        }
    }
}

//! Statistics of a broker at one moment, as plain numbers. Counters are from the start of the
//! process.

use std::sync::Arc;

use postroad_model::Destination;
use postroad_node::TraceCounts;

use crate::alerts::Ledger;
use serde::Serialize;

/// All statistics of the broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// By protocol.
    pub connections: Vec<ConnectionFigures>,
    /// The threads that serve connections and own partitions, by number.
    pub cores: Vec<StepFigures>,
    /// By number.
    pub partitions: Vec<PartitionFigures>,
    /// The oldest [`crate::QUEUES_MAX`] lasting queues of each partition, by name.
    pub queues: Vec<QueueFigures>,
    /// An operator drains the broker.
    pub draining: bool,
    /// How many there are beside them.
    pub queues_unlisted: u64,
    /// Tenants, and the broker if it has a limit, by name.
    pub tenants: Vec<TenantFigures>,
    /// Routes, in the order of the configuration.
    pub routes: Vec<RouteFigures>,
    /// The journals, that of the main store first.
    pub journals: Vec<JournalFigures>,
    /// Links to other brokers, by name.
    pub bridges: Vec<BridgeFigures>,
    /// Alert rules, in the order of the configuration.
    pub alerts: Vec<AlertFigures>,
    /// The last check of the ledger.
    pub ledger: Ledger,
    /// Notifications of alerts that were given up.
    pub undelivered_notifications: u64,
    /// Traced messages, if any are traced.
    pub traces: Option<TraceCounts>,
    /// The replica of a node of a cluster.
    pub cluster: Option<ClusterFigures>,
}

/// The roles of a replica.
pub const CLUSTER_ROLES: &[&str] = &["leader", "follower", "candidate"];

/// A node of a cluster, as it sees itself and the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFigures {
    /// Its name.
    pub node: String,
    /// One of [`CLUSTER_ROLES`].
    pub role: &'static str,
    /// The term.
    pub term: u64,
    /// Changes of the leader that this process has seen.
    pub elections: u64,
    /// The index of the last committed entry.
    pub committed: u64,
    /// Microseconds from the proposal of an entry to its commit; of a leader.
    pub commit_micros: Distribution,
    /// Microseconds of them after the local sync.
    pub majority_micros: Distribution,
    /// Bytes of the copy that fills its store, and those that are here; 0 without a copy.
    pub copy_bytes: (u64, u64),
    /// The other nodes.
    pub peers: Vec<PeerFigures>,
    /// The damage of its store, while that is not filled from another.
    pub damage: Option<String>,
    /// That its disk is full, with the consequences.
    pub full: Option<&'static str>,
    /// The stores of the cluster, if there are several.
    pub stores: Vec<StoreFigures>,
}

/// One of several stores of a cluster, as its replica on this node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Its number.
    pub store: u16,
    /// Whether it has a leader, as far as this node knows.
    pub is_led: bool,
    /// Whether this node serves its clients.
    pub serves: bool,
    /// The index of the last committed entry.
    pub committed: u64,
    /// Entries that other nodes lack, by name; only the leader knows.
    pub lags: Vec<(String, u64)>,
}

/// Another node of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerFigures {
    /// Its name.
    pub node: String,
    /// Whether there is a connection.
    pub connected: bool,
    /// Entries of the leader's log that it has not synced; only a leader knows.
    pub lag: Option<u64>,
    /// Bytes of messages sent to it.
    pub sent_bytes: u64,
    /// Bytes of copies of the store sent to it.
    pub copied_bytes: u64,
    /// The damage of its store, while that is not filled from another.
    pub damage: Option<String>,
    /// That its disk is full, with the consequences.
    pub full: Option<&'static str>,
}

/// The steps of a core: each is the handling of one event, record or tick, during which it does
/// nothing else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// Its number.
    pub core: u16,
    /// Microseconds that a step took.
    pub micros: Distribution,
}

/// Messages and bytes that all queues of a tenant hold together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantFigures {
    /// Its name; empty for the broker as a whole.
    pub tenant: String,
    /// Entries in its queues.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Of these bytes those that lie on the disk.
    pub disk_bytes: u64,
    /// Addresses whose next message waits for room there.
    pub waiting: u64,
    /// Leases of its queues, if they have a limit.
    pub leases: u64,
    /// Its queues, with durable subscriptions.
    pub queues: u64,
    /// Connections of its users, with HTTP requests under way.
    pub connections: u64,
    /// How often connections waited for its fair share.
    pub share_waits: u64,
    /// How long they waited, together.
    pub share_wait_micros: u64,
}

/// One alert rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFigures {
    /// Its name.
    pub alert: String,
    /// How urgent it is.
    pub severity: &'static str,
    /// Queues, stores or brokers for which it fires.
    pub firing: u64,
}

/// One lasting queue, as alert rules look at it; a queue on the move has a part in each of two
/// partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedQueue {
    /// The number of its partition.
    pub partition: u16,
    /// Its number there.
    pub queue: u64,
    /// The queue; of a durable subscription, its topic.
    pub destination: Destination,
    /// The name of the durable subscription that it is, if it is one.
    pub subscription: Option<Arc<str>>,
    /// Messages in it, in whatever state.
    pub messages: u64,
    /// Consumers attached.
    pub consumers: u64,
    /// Messages that became dead letters, since the start.
    pub dead_lettered: u64,
    /// The number in order of arrival of the oldest message in it.
    pub oldest: Option<u64>,
    /// The number of the next message to come.
    pub next: u64,
    /// Messages that came and did not leave, less those that are there: 0 unless the broker lost or
    /// miscounted one.
    pub difference: i64,
}

impl WatchedQueue {
    /// Its name for operators.
    pub fn subject(&self) -> String {
        match &self.subscription {
            Some(subscription) => format!("{} subscription {subscription}", self.destination),
            None => self.destination.to_string(),
        }
    }
}

/// Connections of one protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionFigures {
    /// Its name.
    pub protocol: &'static str,
    /// Open now.
    pub open: u64,
    /// Ever opened.
    pub opened: u64,
}

/// One route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteFigures {
    /// Its name.
    pub route: String,
    /// The addresses whose messages it takes.
    pub from: String,
    /// Whether these leave their address.
    pub consumes: bool,
    /// Messages that it sent on.
    pub matched: u64,
    /// Messages that its selector matched, and none of its targets.
    pub unmatched: u64,
    /// Messages that it could not send on.
    pub dead_lettered: u64,
    /// Messages that had passed too many routes to take this one too.
    pub cut: u64,
    /// By target; recipients that messages named are one target.
    pub targets: Vec<RouteTargetFigures>,
}

/// One target of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTargetFigures {
    /// Its address.
    pub destination: String,
    /// Copies sent to it.
    pub copies: u64,
    /// Times that it refused a copy, which is sent to it again later.
    pub retried: u64,
    /// Copies that it refused for the last time.
    pub refused: u64,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionFigures {
    /// Its number.
    pub partition: u16,
    /// Messages that came in.
    pub intake: IntakeFigures,
    /// Entries put into queues.
    pub enqueued: u64,
    /// Entries that consumers accepted.
    pub consumed: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries that moved to the dead letters, or ended for want of any.
    pub dead_lettered: u64,
    /// Lasting queues.
    pub queues: u64,
    /// Queues that operators have paused.
    pub paused_queues: u64,
    /// Deliveries sent to consumers.
    pub delivered: u64,
    /// Entries of deleted queues and ended subscriptions.
    pub discarded: u64,
    /// Non-persistent messages that could never be processed and so ended.
    pub dropped: u64,
    /// Dead letters that went back to where they were.
    pub redriven: u64,
    /// Entries that left because their queue held more than its policy allows.
    pub overflowed: u64,
    /// Entries that a newer one with the same value took the place of.
    pub replaced: u64,
    /// How often a consumer was found to be slow.
    pub slow_consumers: u64,
    /// Transactions that were rolled back, for they were open for too long.
    pub timed_out_transactions: u64,
    /// Advisories that a subscription had no room for.
    pub advisories_dropped: u64,
    /// Messages that a topic could not retain, for want of room.
    pub unretained: u64,
    /// Entries set aside because their body could not be read.
    pub unreadable: u64,
    /// Messages that are due later.
    pub scheduled: u64,
    /// Messages that some queue refers to.
    pub messages: u64,
    /// Entries of packed pages.
    pub packed_messages: u64,
    /// Bytes of durable bodies in memory.
    pub resident_bytes: u64,
    /// Bytes of packed pages in memory.
    pub page_bytes: u64,
    /// Bytes of messages that are only in memory.
    pub volatile_bytes: u64,
}

/// Messages that came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntakeFigures {
    /// Messages taken in.
    pub received: u64,
    /// Selectors installed at the addresses of these messages, counted for each message.
    pub filters: u64,
    /// Sends that had come before.
    pub duplicates: u64,
}

/// One lasting queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueFigures {
    /// `queue://NAME`; of a durable subscription its topic.
    pub destination: String,
    /// The durable subscription that it is; empty if it is none.
    pub subscription: String,
    /// Entries in it.
    pub depth: u64,
    /// Consumers attached.
    pub consumers: u64,
    /// Entries put into it.
    pub enqueued: u64,
    /// Entries that consumers accepted.
    pub consumed: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries that moved to the dead letters, or ended for want of any.
    pub dead_lettered: u64,
    /// Entries that left because it held more than its policy allows.
    pub dropped: u64,
    /// Entries that a newer one with the same value took the place of.
    pub replaced: u64,
}

/// One link to another broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BridgeFigures {
    /// Its name.
    pub bridge: String,
    /// Distinguishes links of the same name to the same peer.
    pub number: u16,
    /// `opened` by this broker, or `accepted`.
    pub direction: &'static str,
    /// One of [`BRIDGE_STATES`].
    pub state: &'static str,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// The profile of one that is opened by this broker.
    pub profile: &'static str,
    /// The other end.
    pub address: String,
    /// The peer's name, while linked.
    pub peer: String,
    /// The swimlane that the peer says it belongs to.
    pub swimlane: String,
    /// The peer's id, as far as it is known.
    pub peer_id: String,
    /// Messages go both ways.
    pub is_duplex: bool,
    /// Why it ended, or why the peer refuses messages.
    pub reason: String,
    /// The pause until it is opened again.
    pub retry_seconds: u64,
    /// Messages sent to the peer.
    pub dispatched: u64,
    /// Bytes of them on the wire.
    pub dispatched_bytes: u64,
    /// Messages that the peer confirmed.
    pub forwarded: u64,
    /// Messages that the peer refused.
    pub refused: u64,
    /// Messages that the peer sent.
    pub received: u64,
    /// Consumers and durable subscriptions at the peer that want messages.
    pub demand: u64,
    /// Messages sent and not answered.
    pub in_flight: u64,
    /// How long the oldest of them waits.
    pub oldest_in_flight_ms: u64,
    /// Times that it was opened again.
    pub reconnects: u64,
    /// Messages that wait for it.
    pub wait: BridgeWait,
}

/// Messages that wait for a link to another broker for over a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BridgeWait {
    /// Those that a consumer at the peer could have.
    pub stuck_messages: u64,
    /// How long one has waited.
    pub longest_wait_ms: u64,
    /// Why; empty if none waits.
    pub wait_cause: &'static str,
    /// The queue of that message, if it is still in one.
    pub wait_queue: String,
}

/// The states of a link.
pub const BRIDGE_STATES: &[&str] = &["connecting", "introducing", "linked", "waiting", "ended"];

/// The journal of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalFigures {
    /// Name of the store.
    pub store: String,
    /// It is a replica that serves no clients: why not, and which node does.
    pub follows: Option<String>,
    /// Records in a group.
    pub group_records: Distribution,
    /// Microseconds that a group took from its first byte until it was confirmed.
    pub group_micros: Distribution,
    /// Microseconds that a sync took, or a write that is durable by itself.
    pub sync_micros: Distribution,
    /// Syncs.
    pub syncs: u64,
    /// Bytes of payloads written.
    pub bytes: u64,
    /// Microseconds that records waited for their group to be written, all together.
    pub record_wait_micros: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Runs of segments compacted.
    pub compactions: u64,
    /// Failures of the work beside the writing: segments, checkpoints, compactions.
    pub failed_jobs: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of their files.
    pub file_bytes: u64,
    /// Bytes of bodies in them that are still needed.
    pub live_bytes: u64,
    /// Memory that the indexes of segments take.
    pub index_bytes: u64,
    /// Bytes of payloads by the id of their key, or `none`.
    pub bytes_by_key: Vec<(String, u64)>,
    /// Damaged places found at the start and since.
    pub damaged_places: u64,
    /// Each partition that is stopped for damage, with the fault and its place.
    pub stopped: Vec<String>,
    /// Persistent messages are refused for want of disk space.
    pub full: bool,
    /// Why nothing is written, if nothing is.
    pub broken: Option<String>,
}

/// How often which values came, in buckets up to powers of two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Bucket n counts values up to 2ⁿ, and above 2ⁿ⁻¹.
    pub counts: Vec<u64>,
    /// All values together.
    pub sum: u64,
}

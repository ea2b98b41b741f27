//! The volatile half of a partition: the knowledge of the node that serves it now.
//!
//! A snapshot writes none of it, and no command of the log depends on it. Each feature has a part
//! of its own.
//!
//! Never here: data that must survive a restart.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use postroad_model::{
    ConsumerKey, Destination, LookupMap, QueueId, Settlement, TransactionId, TransactionKey,
};
use rustc_hash::FxBuildHasher;

use crate::addresses::offline::Offline;
use crate::ask::Lists;
use crate::claims::Claims;
use crate::connection::{Connections, Ended};
use crate::delivery::backlog::Backlogs;
use crate::delivery::browse::Browses;
use crate::delivery::consumer::Consumer;
use crate::delivery::drains::Drains;
use crate::delivery::fetches::Fetches;
use crate::delivery::gathering::Gatherings;
use crate::delivery::slow::SlowSearch;
use crate::delivery::spread::Spread;
use crate::flow::Flows;
use crate::intake::account::Accounts;
use crate::intake::chunks::Uploads;
use crate::intake::homes::Homes;
use crate::intake::limit::UnbornQueues;
use crate::intake::link::Links;
use crate::intake::parked::ParkedSends;
use crate::intake::policy_round::PolicyRound;
use crate::intake::queue_quota::QueuesOnTheWay;
use crate::intake::recent::Recent;
use crate::intake::routes::Paces;
use crate::intake::unparking::Unparking;
use crate::intake::wait_queues::WaitQueues;
use crate::intake::waiting::Waiting;
use crate::leasing::Leasing;
use crate::log::completion::Completion;
use crate::moving::Moves;
use crate::retained::Retained;
use crate::settings::Settings;
use crate::settling::carrying::Carrying;
use crate::settling::doubt::Doubts;
use crate::settling::lending::Lending;
use crate::settling::redrive::Redrives;
use crate::settling::rest::RedeliveryDelays;
use crate::traces::Traces;
use crate::transaction::{
    Closings, Coordination, OpenBranches, OpenTransaction, Senders, Slices, VolatileChanges,
};

/// See the head of this file.
pub struct Leader {
    /// Recovery has ended: decisions get into the log.
    pub is_live: bool,
    /// Another node leads since this one has stopped: events are refused.
    pub has_stopped: bool,
    /// Connections that have sent something.
    pub connections: Connections,
    /// Connections that have ended lately.
    pub ended: Ended,
    /// Exclusive names.
    pub claims: Claims,
    /// Pages of lists that are being made.
    pub lists: Lists,
    /// Queues whose flow is measured.
    pub flows: Flows,
    /// Durable subscriptions without a reader.
    pub offline: Offline,
    /// Who reads which queues.
    pub delivery: Delivery,
    /// Sends and uploads on their way in.
    pub intake: Intake,
    /// Requests for leases.
    pub leasing: Leasing,
    /// Entries that fail, rest, or go elsewhere.
    pub settling: Settling,
    /// Queues that are moving to or from other partitions.
    pub moves: Moves,
    /// Transactions that are not prepared, and those that are coordinated here.
    pub transactions: Transactions,
    /// Commands on their way to the log.
    pub log: Proposals,
    /// Volatile queues and messages.
    pub volatile: Volatile,
    /// Messages that topics keep for later subscribers.
    pub retained: Retained,
    /// How durable messages make way for volatile ones.
    pub memory: ShrinkState,
    /// Traced messages.
    pub traces: Traces,
}

/// Consumers, and the bodies and browsers that they wait for.
pub struct Delivery {
    /// Consumers by key. Each is a box, as a table that grows moves all of its entries at once.
    pub consumers: HashMap<ConsumerKey, Box<Consumer>, FxBuildHasher>,
    /// Consumers of patterns of queues, by their whole.
    pub spreads: BTreeMap<ConsumerKey, Spread>,
    /// The same, by the first element of their patterns, empty for a wildcard.
    pub spreads_by_first: BTreeMap<String, BTreeSet<ConsumerKey>>,
    /// Members of all of them.
    pub members: usize,
    /// Consumers that drain, by queue, and consumers of patterns that do.
    pub drains: Drains,
    /// See [`Delivery::drains`].
    pub draining_wholes: BTreeSet<ConsumerKey>,
    /// Those of them that have no room to read a queue that was made in this step.
    pub crowded: Vec<ConsumerKey>,
    /// Numbers the deliveries to consumers.
    pub next_hold: u64,
    /// Queues whose consumers go on with the next tick.
    pub backlogs: Backlogs,
    /// Queues whose browsers go on with the next tick.
    pub browses: Browses,
    /// Bodies that are on their way from the log.
    pub fetches: Fetches,
    /// Queues whose consumers wait for more of them.
    pub gatherings: Gatherings,
    /// The search for slow consumers.
    pub slow: SlowSearch,
    /// Something was taken back from a consumer in this run.
    pub has_taken_back: bool,
    /// Attached consumers of operators, which paused queues serve.
    pub operators: usize,
}

/// Sends and uploads that are on their way in.
#[derive(Default)]
pub struct Intake {
    /// Sends that wait for memory, or for room in a queue, by address, in order.
    pub parked: ParkedSends,
    /// The addresses of these, by the cause of the wait of the first send of each.
    pub lines: WaitQueues,
    /// The round in which all of them are looked at again.
    pub unparking: Unparking,
    /// The round in which all queues take their policies.
    pub policy_round: PolicyRound,
    /// Messages on their way to queues that their records make.
    pub unborn_queues: UnbornQueues,
    /// Messages and bytes that tenants and the broker hold.
    pub accounts: Accounts,
    /// Queues on their way into the log, as far as tenants may have a limited number.
    pub queues_on_the_way: QueuesOnTheWay,
    /// Events that wait for queues and subscriptions that are on their way into the log.
    pub waiting: Waiting,
    /// Links of protocols whose deliveries outlive a connection.
    pub links: Links,
    /// Large bodies on their way in or out.
    pub uploads: Uploads,
    /// Topic messages that came by links.
    pub recent: Recent,
    /// Subscriptions that messages may follow here from other brokers.
    pub homes: Homes,
    /// When the next message of a throttled route is due.
    pub paces: Paces,
    /// Queues have ended in this step: sends that wait are looked at once, when it ends.
    pub has_ended_queues: bool,
}

/// Entries that failed, and those that go elsewhere.
#[derive(Default)]
pub struct Settling {
    /// When entries are delivered again that failed.
    pub rests: RedeliveryDelays,
    /// Deliveries of links that were cut.
    pub doubts: Doubts,
    /// Deliveries to links that are being recorded.
    pub lending: Lending,
    /// Dead letters that are going back.
    pub redrives: Redrives,
    /// Large bodies on their way to other partitions.
    pub carrying: Carrying,
    /// Settlements without a waiting client that the log refused: proposed again when it recovers.
    pub unsaved: Vec<Settlement>,
}

/// Transactions that are open, or coordinated here.
#[derive(Default)]
pub struct Transactions {
    /// Open transactions of sessions.
    pub open: HashMap<TransactionKey, OpenTransaction, FxBuildHasher>,
    /// Those whose time can run out, by the time at which they were first heard of.
    pub by_age: BTreeSet<(u64, TransactionKey)>,
    /// Bytes that those hold, and those that are being closed.
    pub open_bytes: u64,
    /// How many of those, and of prepared ones, send to each destination.
    pub senders: Senders,
    /// The number of the next transaction of this partition.
    pub next_transaction: u64,
    /// Branches of distributed transactions that are open.
    pub branches: OpenBranches,
    /// When it is time to look for transactions that are open for too long.
    pub next_timeout_ms: Option<u64>,
    /// Transactions that this partition coordinates.
    pub coordinating: BTreeMap<TransactionId, Coordination>,
    /// Volatile changes of prepared transactions.
    pub prepared_volatile: BTreeMap<TransactionId, VolatileChanges>,
    /// Those that are being closed or undone.
    pub closings: Closings,
    /// A large one whose record is durable, and the records after it.
    pub slices: Slices,
}

/// Commands that were proposed and have not come back.
pub struct Proposals {
    /// The continuation of each, in the order of the proposals.
    pub pending: VecDeque<Completion>,
    /// How many proposals there were in this run.
    pub made: u64,
    /// Proposals made when a durable binding last ended. Sends that bypass the log wait until these
    /// have completed.
    pub barrier: u64,
    /// The disk has room.
    pub space_ample: bool,
}

/// Queues and messages that a restart forgets.
#[derive(Default)]
pub struct Volatile {
    /// The number of the next volatile queue.
    pub next_queue: u64,
    /// The number of the next volatile message.
    pub next_message: u64,
    /// Subscriptions that end with the last of their readers, by name.
    pub subscriptions: LookupMap<Arc<str>, QueueId>,
    /// Queues that no topic feeds yet, as the log could not take that.
    pub unbound: BTreeSet<Destination>,
}

/// How durable messages shrink to their budget, for messages that are only in memory.
pub struct ShrinkState {
    /// Budget of durable messages when they last shrank.
    pub shrink_bytes: u64,
    /// When shrinking continues.
    pub shrink_due_ms: Option<u64>,
}

impl Leader {
    /// Nothing is connected, and nothing waits.
    pub fn new(settings: &Settings) -> Leader {
        Leader {
            is_live: false,
            has_stopped: false,
            connections: Connections::default(),
            ended: Ended::default(),
            claims: Claims::default(),
            lists: Lists::default(),
            flows: Flows::default(),
            offline: Offline::default(),
            delivery: Delivery::default(),
            intake: Intake::default(),
            leasing: Leasing::default(),
            settling: Settling::default(),
            moves: Moves::default(),
            transactions: Transactions::default(),
            log: Proposals::default(),
            volatile: Volatile::default(),
            retained: Retained::default(),
            memory: ShrinkState { shrink_bytes: settings.resident_bytes_max, shrink_due_ms: None },
            traces: Traces::default(),
        }
    }
}

impl Default for Delivery {
    fn default() -> Delivery {
        Delivery {
            consumers: HashMap::default(),
            spreads: BTreeMap::new(),
            spreads_by_first: BTreeMap::new(),
            members: 0,
            drains: Drains::default(),
            draining_wholes: BTreeSet::new(),
            crowded: Vec::new(),
            next_hold: 1,
            backlogs: Backlogs::default(),
            browses: Browses::default(),
            fetches: Fetches::default(),
            gatherings: Gatherings::default(),
            slow: SlowSearch::default(),
            has_taken_back: false,
            operators: 0,
        }
    }
}

impl Default for Proposals {
    fn default() -> Proposals {
        Proposals { pending: VecDeque::new(), made: 0, barrier: 0, space_ample: true }
    }
}

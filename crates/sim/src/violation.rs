//! The result of a run: its counts, or the broken rule and how to see it again.

use crate::phase::Ends;

/// How much a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Choices made.
    pub steps: u64,
    /// Messages that clients sent.
    pub sent: u64,
    /// Messages that a topic had to feed to a queue, for each of these queues.
    pub fed: u64,
    /// Messages that clients sent again over another connection.
    pub resent: u64,
    /// Messages that were to be delivered later.
    pub scheduled: u64,
    /// Deliveries checked.
    pub delivered: u64,
    /// Positive replies to sends, acknowledgements and commits.
    pub confirmed: u64,
    /// Negative ones.
    pub refused: u64,
    /// Transactions that clients asked to commit.
    pub commits: u64,
    /// Branches that clients asked to prepare.
    pub prepared: u64,
    /// Power cuts and ends of the process.
    pub crashes: u64,
    /// The broker's work when the disk failed, and at power failures and ends of the process.
    pub ends: Ends,
    /// Faults planned on the disk.
    pub faults: u64,
    /// Bodies that were read back from the disk.
    pub fetched: u64,
    /// Records with scheduled messages that were read back.
    pub shelves_read: u64,
    /// Operations that a power cut found confirmed and not synced.
    pub doubted: u64,
    /// Pages of entries.
    pub pages: Pages,
    /// Runs of segments that were compacted.
    pub compactions: u64,
    /// Starts with another key.
    pub rotations: u64,
    /// Messages that queues dropped by their limits.
    pub dropped: u64,
    /// Messages that newer ones of the same value took the place of.
    pub replaced: u64,
    /// Consumers that were found slow.
    pub slow: u64,
    /// Transactions that were open for too long.
    pub timed_out: u64,
    /// Messages that went to another partition with their queues.
    pub moved: u64,
    /// Dead letters that went back and were delivered.
    pub revived: u64,
    /// Deliveries of messages that had rested.
    pub rested: u64,
    /// Messages that failed once more than the policy of their queue bears.
    pub given_up: u64,
    /// Messages of jobs that send more than one.
    pub repeated: u64,
    /// Messages that were explained.
    pub explained: Explained,
    /// Messages in queues when the run ended, before they were drained.
    pub drained: u64,
}

/// Pages of entries that were packed to save memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// That were packed.
    pub packed: u64,
    /// That were opened again.
    pub opened: u64,
}

/// Messages whose causes were removed, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// That were delivered then.
    pub delivered: u64,
    /// Changes that this took.
    pub changes: u64,
    /// That left their queues by the changes.
    pub gone: u64,
    /// Of transactions, or of producers that wait, that came then.
    pub sends: u64,
    /// Messages and sends that waited to the end for room that others held.
    pub without_room: u64,
}

impl Explained {
    fn add(&mut self, other: &Explained) {
        self.delivered += other.delivered;
        self.changes += other.changes;
        self.gone += other.gone;
        self.sends += other.sends;
        self.without_room += other.without_room;
    }
}

impl Report {
    /// Both together.
    pub fn add(&mut self, other: &Report) {
        self.steps += other.steps;
        self.sent += other.sent;
        self.fed += other.fed;
        self.resent += other.resent;
        self.scheduled += other.scheduled;
        self.delivered += other.delivered;
        self.confirmed += other.confirmed;
        self.refused += other.refused;
        self.commits += other.commits;
        self.prepared += other.prepared;
        self.crashes += other.crashes;
        self.ends.add(&other.ends);
        self.faults += other.faults;
        self.fetched += other.fetched;
        self.shelves_read += other.shelves_read;
        self.doubted += other.doubted;
        self.pages.packed += other.pages.packed;
        self.pages.opened += other.pages.opened;
        self.compactions += other.compactions;
        self.rotations += other.rotations;
        self.drained += other.drained;
        self.dropped += other.dropped;
        self.replaced += other.replaced;
        self.slow += other.slow;
        self.timed_out += other.timed_out;
        self.moved += other.moved;
        self.revived += other.revived;
        self.rested += other.rested;
        self.given_up += other.given_up;
        self.repeated += other.repeated;
        self.explained.add(&other.explained);
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The run.
    pub seed: u64,
    /// How far it came.
    pub step: u64,
    /// The fault.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { seed, step, what } = self;
        writeln!(f, "seed {seed}, step {step}: {what}")?;
        write!(f, "again: POSTROAD_SEED={seed} cargo test -p postroad-sim --test seeds -- --nocapture")
    }
}

impl std::error::Error for Violation {}

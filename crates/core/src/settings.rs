//! Settings of a partition, fixed when it is made.

use std::sync::Arc;

use postroad_model::{PartitionId, Placement, Spill};
use postroad_routing::{Addressing, Policies};

/// Entries to a page that serve well: a packed page then costs some 150 bytes beside its columns,
/// less than a byte for an entry, and opening one takes a fraction of a millisecond.
pub const PAGE_ENTRIES: u64 = 512;

/// Changes of a transaction that one turn carries out: a millisecond or two of work.
pub const SLICE_CHANGES: usize = 1024;

/// Settings that a partition gets once, at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which one it is.
    pub id: PartitionId,
    /// Where the other addresses live.
    pub placement: Placement,
    /// Rules by which names decide where addresses live and which topics feed them.
    pub addressing: Arc<Addressing>,
    /// Rises from start to start of the broker; makes transaction ids unique.
    pub incarnation: u64,
    /// Durable bodies beyond this many bytes stay on disk until they are due; if headers and
    /// entries take more with them, pages of entries are packed.
    pub resident_bytes_max: u64,
    /// All messages take no more than this together: durable ones make way for those that have
    /// nowhere else to be.
    pub messages_bytes_max: u64,
    /// Entries to a page: a power of two, of at most 4096.
    pub page_entries: u64,
    /// Beyond this many bytes of non-persistent messages their producers wait.
    pub volatile_bytes_max: u64,
    /// Limit in bytes of all messages that topics keep for later subscribers.
    pub recent_bytes_max: u64,
    /// Limit in bytes of the latest messages that topics retain.
    pub retained_bytes_max: u64,
    /// A transaction may hold this many bytes before it commits.
    pub transaction_bytes_max: u64,
    /// All that are open may hold this many bytes together.
    pub open_bytes_max: u64,
    /// Longest time of a transaction before it is prepared, if there is a limit.
    pub transaction_ms_max: Option<u64>,
    /// Changes of a transaction that one turn carries out.
    pub slice_changes: usize,
    /// Number of producers whose last messages are remembered for duplicate detection; 0 for none.
    pub audited_producers_max: usize,
    /// Limit in bytes of deliveries that wait in a connection's outbox.
    pub outbox_bytes_max: u64,
    /// Where pages of entries go that memory has no room for; `None`: they stay.
    pub spill: Option<Arc<dyn Spill>>,
    /// The operators' policies, until [`Partition::follow`] replaces them.
    pub policies: Arc<Policies>,
}

/// With less memory for messages than this number of bytes for each entry of a page, pages have
/// fewer entries: the last page of each queue stays open.
const BYTES_PER_PAGE_ENTRY: u64 = 512 << 10;

/// As few as pay the cost of a page.
const PAGE_ENTRIES_MIN: u64 = 64;

/// Memory for messages that allows one more queue to be read by a pattern. Such a member of a
/// consumer takes some 530 bytes: all of them take a quarter of the memory for messages at most.
const BYTES_PER_MEMBER: u64 = 2048;

/// With little memory for messages: half a MiB.
const MEMBERS_MIN: u64 = 1024;

impl Settings {
    /// Queues that consumers of patterns may read together, each counted once for each of them.
    pub(crate) fn members_max(&self) -> usize {
        usize::try_from((self.messages_bytes_max / BYTES_PER_MEMBER).max(MEMBERS_MIN)).unwrap_or(usize::MAX)
    }

    /// Entries to a page of a new queue.
    pub(crate) fn queue_page_entries(&self) -> u64 {
        let entries = (self.resident_bytes_max / BYTES_PER_PAGE_ENTRY).max(PAGE_ENTRIES_MIN);
        self.page_entries.min(1 << entries.ilog2())
    }

    /// Settings of a partition without connections: bodies stay on the disk, and names have no
    /// special meaning.
    pub fn at_rest(id: PartitionId, placement: Placement, incarnation: u64) -> Settings {
        Settings {
            id,
            placement,
            addressing: Arc::default(),
            incarnation,
            resident_bytes_max: 0,
            messages_bytes_max: 0,
            page_entries: PAGE_ENTRIES,
            volatile_bytes_max: 0,
            recent_bytes_max: 0,
            retained_bytes_max: 0,
            transaction_bytes_max: 0,
            open_bytes_max: 0,
            transaction_ms_max: None,
            slice_changes: SLICE_CHANGES,
            audited_producers_max: 0,
            outbox_bytes_max: 0,
            spill: None,
            policies: Arc::default(),
        }
    }
}

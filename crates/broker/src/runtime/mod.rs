//! The runtime: threads, rings and tasks around the state machines.
//!
//! One thread for each core with its connections and partitions; for each store one that writes its
//! journal, and five workers for reads, segments, checkpoints, sorted copies and compaction. A lone
//! core writes the journal itself. Between cores and journals messages go through bounded
//! single-producer rings, to workers through channels.

mod alarm;
mod body;
mod closing;
mod cluster;
mod connection;
mod descriptors;
mod dialler;
mod durations;
mod farewell;
mod figures;
mod handover;
mod http;
mod identified;
mod journal;
mod link_watch;
mod links;
mod new_socket;
mod options;
mod orders;
mod pinning;
mod reception;
mod spans;
mod spreading;
mod store_figures;
mod threads;
mod written_groups;

pub use cluster::{
    Admitted, CAUGHT_UP, ClientEntry, ClientRedirect, ClusterOptions, ClusterView, DocumentContents,
    DocumentWriter, EntryLogin, Following, Forwarded, ForwardedClients, LeaderStore, NodePort, NodeReplica,
    StorePart, admin_elsewhere, admitted, cluster_api, cluster_orders, follow, keep_balanced,
    publish_documents, read_documents, restart, sealed_clients_max,
};
pub use descriptors::descriptors_max;
pub use dialler::{Diallers, Dials};
pub use figures::StatsCollector;
pub use http::{
    HttpEntry, HttpSocket, Network, Networks, Origins, PushOptions, SpanPoster, SqsOptions, other_store,
    store_requests, webhooks,
};
pub use journal::NamedDoor;
pub use link_watch::watch_links;
pub use links::LinkBoard;
pub use new_socket::{NewSocket, Service};
pub use options::RuntimeOptions;
pub use orders::{Order, Orders, Outcome};
pub use postroad_node::{TenantKeys, read_portable};
pub use spans::export_spans;
pub use spreading::{SpreadOptions, spread_clients};
pub use threads::Runtime;

use std::time::{SystemTime, UNIX_EPOCH};

use postroad_model::Now;

/// The wall clock, in milliseconds since 1970. The only place where the broker reads it.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The same, in microseconds.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// The monotone clock, in milliseconds since the machine started: it goes on while the machine
/// sleeps, and is never set.
pub fn ticks_ms() -> u64 {
    ticks_us() / 1000
}

/// The same, in microseconds.
pub fn ticks_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default().saturating_mul(1_000_000).saturating_add(nanos.unwrap_or_default() / 1000)
}

/// Both clocks, for a core and its partitions.
pub fn now() -> Now {
    Now { ticks_ms: ticks_ms(), wall_ms: now_ms() }
}

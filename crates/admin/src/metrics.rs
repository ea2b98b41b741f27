//! Every metric: its name, its meaning, and its source. docs/features/metrics.md has the same rows.

use postroad_node::TraceCounts;

use crate::exposition::Sample;
use crate::figures::{
    AlertFigures, BRIDGE_STATES, BridgeFigures, CLUSTER_ROLES, ClusterFigures, Distribution, Figures,
    JournalFigures, PartitionFigures, PeerFigures, QueueFigures, RouteFigures, RouteTargetFigures,
    StepFigures, StoreFigures, TenantFigures,
};

/// Limit of the queues of one partition with metrics of their own: with seven lines each, this is
/// the most that a scrape can carry.
pub const QUEUES_MAX: usize = 1000;

/// Targets of routes that have a figure of their own, over all routes.
const ROUTE_TARGETS_MAX: usize = 2000;

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// The quantity and its unit, for the page and for Prometheus.
    pub help: &'static str,
    pub(crate) samples: fn(&Figures) -> Vec<Sample>,
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, from 0 at the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Values in buckets, which only rise.
    Histogram,
}

impl Kind {
    /// Its word in the exposition.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

const fn counter(name: &'static str, help: &'static str, samples: fn(&Figures) -> Vec<Sample>) -> Metric {
    Metric { name, kind: Kind::Counter, help, samples }
}

const fn gauge(name: &'static str, help: &'static str, samples: fn(&Figures) -> Vec<Sample>) -> Metric {
    Metric { name, kind: Kind::Gauge, help, samples }
}

const fn histogram(name: &'static str, help: &'static str, samples: fn(&Figures) -> Vec<Sample>) -> Metric {
    Metric { name, kind: Kind::Histogram, help, samples }
}

/// In the order of the output.
pub const METRICS: &[Metric] = &[
    gauge("postroad_connections", "open connections, by protocol", |figures| {
        figures.connections.iter().map(|of| Sample::of(of.open).label("protocol", of.protocol)).collect()
    }),
    counter(
        "postroad_connections_opened_total",
        "connections opened since the start, by protocol",
        |figures| {
            figures
                .connections
                .iter()
                .map(|of| Sample::of(of.opened).label("protocol", of.protocol))
                .collect()
        },
    ),
    gauge("postroad_tenant_messages", "messages in all queues of the tenant", |figures| {
        tenants(figures, |tenant| tenant.messages)
    }),
    gauge("postroad_tenant_bytes", "bytes of messages in all queues of the tenant", |figures| {
        tenants(figures, |tenant| tenant.bytes)
    }),
    gauge("postroad_tenant_disk_bytes", "bytes of the tenant's messages on disk", |figures| {
        tenants(figures, |tenant| tenant.disk_bytes)
    }),
    gauge("postroad_tenant_queues", "queues and durable subscriptions of the tenant", |figures| {
        tenants(figures, |tenant| tenant.queues)
    }),
    gauge("postroad_tenant_connections", "connections of the tenant's users, and HTTP requests", |figures| {
        tenants(figures, |tenant| tenant.connections)
    }),
    gauge(
        "postroad_tenant_blocked_destinations",
        "destinations whose sends wait because the tenant's quota is full",
        |figures| tenants(figures, |tenant| tenant.waiting),
    ),
    counter(
        "postroad_tenant_share_waits_total",
        "how often connections of the tenant waited for its fair share",
        |figures| tenants(figures, |tenant| tenant.share_waits),
    ),
    counter(
        "postroad_tenant_share_wait_seconds_total",
        "time that connections of the tenant waited for its fair share, together",
        |figures| {
            let sample = |of: &TenantFigures| {
                Sample::of_f64(of.share_wait_micros as f64 / 1e6).label("tenant", &of.tenant)
            };
            figures.tenants.iter().map(sample).collect()
        },
    ),
    gauge("postroad_tenant_leases", "leases of all queues of a tenant with leases_max", |figures| {
        tenants(figures, |tenant| tenant.leases)
    }),
    counter("postroad_route_messages_total", "messages that the route forwarded", |figures| {
        routes(figures, |of| of.matched)
    }),
    counter("postroad_route_unmatched_total", "messages that matched no target of the route", |figures| {
        routes(figures, |of| of.unmatched)
    }),
    counter(
        "postroad_route_dead_letters_total",
        "messages that the route could not forward and dead-lettered",
        |figures| routes(figures, |of| of.dead_lettered),
    ),
    counter(
        "postroad_route_hop_limit_total",
        "messages not routed because they had passed the maximum number of routes",
        |figures| routes(figures, |of| of.cut),
    ),
    counter("postroad_route_copies_total", "copies that the route sent to the target", |figures| {
        route_targets(figures, |target| Some(target.copies))
    }),
    counter(
        "postroad_route_retries_total",
        "copies that the target refused and the route redelivers; targets that refused any",
        |figures| route_targets(figures, |target| Some(target.retried).filter(|retried| 0 < *retried)),
    ),
    counter(
        "postroad_route_refused_total",
        "copies that the target refused at the last redelivery; targets that refused any",
        |figures| route_targets(figures, |target| Some(target.refused).filter(|refused| 0 < *refused)),
    ),
    gauge("postroad_alerts_firing", "queues, stores or brokers for which the alert fires", |figures| {
        let sample = |of: &AlertFigures| {
            Sample::of(of.firing).label("alert", &of.alert).label("severity", of.severity)
        };
        figures.alerts.iter().map(sample).collect()
    }),
    counter(
        "postroad_alert_notifications_failed_total",
        "alert notifications that failed after all retries",
        |figures| vec![Sample::of(figures.undelivered_notifications)],
    ),
    counter("postroad_traces_total", "messages that were traced", |figures| {
        traces(figures, |counts| counts.traced)
    }),
    counter(
        "postroad_traces_over_rate_total",
        "messages that were not traced, as more were to be traced than messages_per_second allows",
        |figures| traces(figures, |counts| counts.over_rate),
    ),
    counter(
        "postroad_trace_contexts_malformed_total",
        "trace contexts of messages that are malformed",
        |figures| traces(figures, |counts| counts.malformed),
    ),
    counter(
        "postroad_trace_points_dropped_total",
        "steps of traced messages that were dropped, as the buffer of a core was full",
        |figures| traces(figures, |counts| counts.dropped_points),
    ),
    counter(
        "postroad_traces_evicted_total",
        "traced messages that made room for others while a queue still had them",
        |figures| traces(figures, |counts| counts.left_early),
    ),
    counter("postroad_trace_spans_total", "spans that the collector has taken", |figures| {
        traces(figures, |counts| counts.exported_spans)
    }),
    counter(
        "postroad_trace_spans_dropped_total",
        "spans that the collector did not get: it failed, or too many waited",
        |figures| traces(figures, |counts| counts.lost_spans),
    ),
    gauge(
        "postroad_ledger_difference",
        "messages by which the counters of the queues differ from their content",
        |figures| vec![Sample::of(figures.ledger.sums.difference)],
    ),
    counter("postroad_ledger_checks_total", "complete checks of the ledger", |figures| {
        vec![Sample::of(figures.ledger.checks)]
    }),
    gauge("postroad_queue_depth", "messages in the queue, unacknowledged ones included", |figures| {
        queues(figures, |queue| queue.depth)
    }),
    gauge("postroad_queue_consumers", "consumers attached to the queue", |figures| {
        queues(figures, |queue| queue.consumers)
    }),
    counter("postroad_queue_enqueued_total", "messages enqueued", |figures| {
        queues(figures, |queue| queue.enqueued)
    }),
    counter("postroad_queue_dequeued_total", "messages acknowledged by consumers", |figures| {
        queues(figures, |queue| queue.consumed)
    }),
    counter("postroad_queue_expired_total", "messages that expired", |figures| {
        queues(figures, |queue| queue.expired)
    }),
    counter(
        "postroad_queue_dead_lettered_total",
        "messages moved to a dead-letter queue, or discarded for lack of one",
        |figures| queues(figures, |queue| queue.dead_lettered),
    ),
    counter("postroad_queue_dropped_total", "messages dropped at the queue's limit", |figures| {
        queues(figures, |queue| queue.dropped)
    }),
    counter(
        "postroad_queue_replaced_total",
        "messages replaced by a newer one with the same last-value key",
        |figures| queues(figures, |queue| queue.replaced),
    ),
    gauge("postroad_draining", "1 while an operator drains the broker", |figures| {
        vec![Sample::of(u64::from(figures.draining))]
    }),
    gauge("postroad_queues", "queues and durable subscriptions, without temporary ones", |figures| {
        partitions(figures, |partition| partition.queues)
    }),
    gauge("postroad_queues_paused", "paused queues", |figures| {
        partitions(figures, |partition| partition.paused_queues)
    }),
    gauge("postroad_queues_unlisted", "queues without series of their own", |figures| {
        vec![Sample::of(figures.queues_unlisted)]
    }),
    counter("postroad_received_total", "messages taken in", |figures| {
        partitions(figures, |partition| partition.intake.received)
    }),
    counter("postroad_filters_total", "selectors installed for the messages taken in", |figures| {
        partitions(figures, |partition| partition.intake.filters)
    }),
    counter("postroad_enqueued_total", "messages enqueued, in all queues", |figures| {
        partitions(figures, |partition| partition.enqueued)
    }),
    counter("postroad_dequeued_total", "messages acknowledged by consumers, in all queues", |figures| {
        partitions(figures, |partition| partition.consumed)
    }),
    counter("postroad_expired_total", "messages that expired, in all queues", |figures| {
        partitions(figures, |partition| partition.expired)
    }),
    counter(
        "postroad_dead_lettered_total",
        "messages moved to a dead-letter queue, in all queues",
        |figures| partitions(figures, |partition| partition.dead_lettered),
    ),
    counter(
        "postroad_delivered_total",
        "messages delivered to consumers, redeliveries included",
        |figures| partitions(figures, |partition| partition.delivered),
    ),
    counter(
        "postroad_discarded_total",
        "messages discarded with their deleted queue or ended subscription",
        |figures| partitions(figures, |partition| partition.discarded),
    ),
    counter("postroad_duplicates_total", "resent messages that duplicate detection recognised", |figures| {
        partitions(figures, |partition| partition.intake.duplicates)
    }),
    counter(
        "postroad_dead_letters_discarded_total",
        "undeliverable messages discarded because no dead-letter queue is configured",
        |figures| partitions(figures, |partition| partition.dropped),
    ),
    counter("postroad_redriven_total", "dead letters returned to their original queues", |figures| {
        partitions(figures, |partition| partition.redriven)
    }),
    counter(
        "postroad_dropped_total",
        "messages dropped at limits, in all queues and subscriptions",
        |figures| partitions(figures, |partition| partition.overflowed),
    ),
    counter(
        "postroad_replaced_total",
        "messages replaced by a newer one, in all last-value queues",
        |figures| partitions(figures, |partition| partition.replaced),
    ),
    counter("postroad_slow_consumers_total", "times that a consumer was found to be slow", |figures| {
        partitions(figures, |partition| partition.slow_consumers)
    }),
    counter(
        "postroad_transactions_timed_out_total",
        "transactions rolled back after limits.transaction_ms",
        |figures| partitions(figures, |partition| partition.timed_out_transactions),
    ),
    counter(
        "postroad_advisories_dropped_total",
        "advisories dropped because a subscription was full",
        |figures| partitions(figures, |partition| partition.advisories_dropped),
    ),
    counter(
        "postroad_retained_skipped_total",
        "topic messages not retained because limits.retroactive_bytes was reached",
        |figures| partitions(figures, |partition| partition.unretained),
    ),
    counter(
        "postroad_damaged_messages_total",
        "messages set aside because their body is damaged on disk",
        |figures| partitions(figures, |partition| partition.unreadable),
    ),
    gauge("postroad_scheduled_messages", "messages that wait for their scheduled time", |figures| {
        partitions(figures, |partition| partition.scheduled)
    }),
    gauge("postroad_messages", "messages in queues and open transactions", |figures| {
        partitions(figures, |partition| partition.messages)
    }),
    gauge(
        "postroad_paged_messages",
        "messages whose queue entries are packed into pages to save memory",
        |figures| partitions(figures, |partition| partition.packed_messages),
    ),
    gauge(
        "postroad_cached_body_bytes",
        "memory of cached bodies of persistent messages, in bytes",
        |figures| partitions(figures, |partition| partition.resident_bytes),
    ),
    gauge("postroad_page_bytes", "memory of pages of queue entries, in bytes", |figures| {
        partitions(figures, |partition| partition.page_bytes)
    }),
    gauge("postroad_non_persistent_bytes", "memory of non-persistent messages, in bytes", |figures| {
        partitions(figures, |partition| partition.volatile_bytes)
    }),
    histogram("postroad_core_step_seconds", "time that a core thread spent on one event", |figures| {
        let label = |of: &StepFigures| ("core", of.core.to_string());
        figures.cores.iter().flat_map(|of| buckets(&of.micros, 1e6, &label(of))).collect()
    }),
    histogram("postroad_journal_group_records", "records written together, with one sync", |figures| {
        distributions(figures, |journal| &journal.group_records, 1.0)
    }),
    histogram(
        "postroad_journal_group_seconds",
        "time to write a group of records, with its sync",
        |figures| distributions(figures, |journal| &journal.group_micros, 1e6),
    ),
    histogram("postroad_journal_sync_seconds", "time of one sync, or of one synchronous write", |figures| {
        distributions(figures, |journal| &journal.sync_micros, 1e6)
    }),
    counter("postroad_journal_syncs_total", "syncs of the journal", |figures| {
        journals(figures, |journal| journal.syncs)
    }),
    counter("postroad_journal_bytes_total", "bytes of records written", |figures| {
        journals(figures, |journal| journal.bytes)
    }),
    counter(
        "postroad_journal_wait_seconds_total",
        "time that records waited for their group, summed over all records",
        |figures| {
            let sample = |of: &JournalFigures| {
                Sample::of_f64(of.record_wait_micros as f64 / 1e6).label("store", &of.store)
            };
            figures.journals.iter().map(sample).collect()
        },
    ),
    counter("postroad_journal_checkpoints_total", "checkpoints written", |figures| {
        journals(figures, |journal| journal.checkpoints)
    }),
    counter("postroad_journal_compactions_total", "compactions of segments", |figures| {
        journals(figures, |journal| journal.compactions)
    }),
    counter("postroad_journal_failed_jobs_total", "background jobs of the journal that failed", |figures| {
        journals(figures, |journal| journal.failed_jobs)
    }),
    gauge("postroad_journal_segments", "segment files in use", |figures| {
        journals(figures, |journal| journal.segments)
    }),
    gauge("postroad_journal_file_bytes", "disk space of segment files, in bytes", |figures| {
        journals(figures, |journal| journal.file_bytes)
    }),
    gauge(
        "postroad_journal_live_bytes",
        "bytes of message bodies that are still needed, in segments",
        |figures| journals(figures, |journal| journal.live_bytes),
    ),
    gauge("postroad_journal_index_bytes", "memory of segment indexes, in bytes", |figures| {
        journals(figures, |journal| journal.index_bytes)
    }),
    gauge(
        "postroad_journal_key_bytes",
        "bytes encrypted with the key; a key without a series is not needed",
        |figures| {
            let by_key =
                figures.journals.iter().flat_map(|of| of.bytes_by_key.iter().map(|row| (&of.store, row)));
            let sample = |(store, (key, bytes)): (&String, &(String, u64))| {
                Sample::of(*bytes).label("store", store).label("key", key)
            };
            by_key.map(sample).collect()
        },
    ),
    gauge("postroad_journal_damaged_ranges", "damaged byte ranges found since the start", |figures| {
        journals(figures, |journal| journal.damaged_places)
    }),
    gauge(
        "postroad_journal_stopped_partitions",
        "partitions stopped because damage was found at the start",
        |figures| journals(figures, |journal| journal.stopped.len() as u64),
    ),
    gauge(
        "postroad_journal_full",
        "1 while persistent messages are refused for lack of disk space",
        |figures| journals(figures, |journal| u64::from(journal.full)),
    ),
    gauge(
        "postroad_journal_broken",
        "1 while the journal is stopped after a failed write or sync",
        |figures| journals(figures, |journal| u64::from(journal.broken.is_some())),
    ),
    gauge("postroad_bridge_state", "1 for the state of the link, 0 for its other states", bridge_states),
    counter("postroad_bridge_reconnects_total", "reconnects of the link", |figures| {
        bridges(figures, |of| of.reconnects)
    }),
    gauge(
        "postroad_bridge_demand",
        "consumers and durable subscriptions of the peer that want messages",
        |figures| bridges(figures, |of| of.demand),
    ),
    counter("postroad_bridge_dispatched_total", "messages sent to the peer", |figures| {
        bridges(figures, |of| of.dispatched)
    }),
    counter(
        "postroad_bridge_dispatched_bytes_total",
        "bytes of messages sent to the peer, as sent",
        |figures| bridges(figures, |of| of.dispatched_bytes),
    ),
    counter("postroad_bridge_forwarded_total", "messages that the peer confirmed", |figures| {
        bridges(figures, |of| of.forwarded)
    }),
    counter(
        "postroad_bridge_refused_total",
        "messages that the peer refused; each is sent again later",
        |figures| bridges(figures, |of| of.refused),
    ),
    counter("postroad_bridge_received_total", "messages received from the peer", |figures| {
        bridges(figures, |of| of.received)
    }),
    gauge("postroad_bridge_in_flight", "messages sent that the peer has not confirmed", |figures| {
        bridges(figures, |of| of.in_flight)
    }),
    gauge(
        "postroad_bridge_oldest_in_flight_seconds",
        "age of the oldest message that the peer has not confirmed",
        |figures| {
            let seconds = |of: &BridgeFigures| Sample::of_f64(of.oldest_in_flight_ms as f64 / 1e3);
            figures.bridges.iter().map(|of| of_bridge(seconds(of), of)).collect()
        },
    ),
    gauge(
        "postroad_bridge_stuck_messages",
        "messages that waited more than a second while the peer has demand",
        |figures| bridges(figures, |of| of.wait.stuck_messages),
    ),
    gauge("postroad_bridge_longest_wait_seconds", "longest wait of a message for the link", |figures| {
        let seconds = |of: &BridgeFigures| Sample::of_f64(of.wait.longest_wait_ms as f64 / 1e3);
        figures.bridges.iter().map(|of| of_bridge(seconds(of), of)).collect()
    }),
    gauge("postroad_cluster_role", "1 for the role of this node, 0 for the other roles", |figures| {
        let sample = |role: &&'static str, of: &ClusterFigures| {
            Sample::of(u64::from(of.role == *role)).label("role", role)
        };
        let of = figures.cluster.iter();
        of.flat_map(|of| CLUSTER_ROLES.iter().map(move |role| sample(role, of))).collect()
    }),
    gauge("postroad_cluster_term", "current term of the replica group", |figures| {
        figures.cluster.iter().map(|of| Sample::of(of.term)).collect()
    }),
    counter("postroad_cluster_elections_total", "changes of leader that this node has seen", |figures| {
        figures.cluster.iter().map(|of| Sample::of(of.elections)).collect()
    }),
    gauge("postroad_cluster_committed_index", "index of the last committed log entry", |figures| {
        figures.cluster.iter().map(|of| Sample::of(of.committed)).collect()
    }),
    gauge("postroad_cluster_store_led", "1 while the store has a leader, as this node knows", |figures| {
        of_stores(figures, |of| u64::from(of.is_led))
    }),
    gauge("postroad_cluster_store_serves", "1 while this node serves the clients of the store", |figures| {
        of_stores(figures, |of| u64::from(of.serves))
    }),
    gauge(
        "postroad_cluster_store_committed_index",
        "index of the last committed log entry of the store",
        |figures| of_stores(figures, |of| of.committed),
    ),
    gauge(
        "postroad_cluster_store_lag_entries",
        "log entries of the store that another node has not synced; reported by its leader",
        lags_of_stores,
    ),
    histogram(
        "postroad_cluster_commit_seconds",
        "time from the proposal of an entry to its commit by a majority",
        |figures| {
            let of = figures.cluster.iter();
            of.flat_map(|of| buckets(&of.commit_micros, 1e6, &("node", of.node.clone()))).collect()
        },
    ),
    histogram(
        "postroad_cluster_majority_seconds",
        "time from the local sync of an entry to its commit: network and followers",
        |figures| {
            let of = figures.cluster.iter();
            of.flat_map(|of| buckets(&of.majority_micros, 1e6, &("node", of.node.clone()))).collect()
        },
    ),
    gauge("postroad_cluster_connected", "1 while the other node is connected", |figures| {
        peers(figures, |of| Some(u64::from(of.connected)))
    }),
    gauge("postroad_cluster_damaged", "1 while the store of the node is damaged", |figures| {
        nodes(figures, |damage, _| damage.is_some())
    }),
    gauge("postroad_cluster_full", "1 while the disk of the node is full", |figures| {
        nodes(figures, |_, full| full.is_some())
    }),
    gauge(
        "postroad_cluster_lag_entries",
        "log entries that the follower has not synced; reported by the leader",
        |figures| peers(figures, |of| of.lag),
    ),
    counter("postroad_cluster_sent_bytes_total", "bytes sent to the other node", |figures| {
        peers(figures, |of| Some(of.sent_bytes))
    }),
    counter(
        "postroad_cluster_copied_bytes_total",
        "bytes of store copies sent to the other node",
        |figures| peers(figures, |of| Some(of.copied_bytes)),
    ),
    gauge(
        "postroad_cluster_copy_bytes",
        "size of the store copy that fills this node; 0 without a copy",
        |figures| figures.cluster.iter().map(|of| Sample::of(of.copy_bytes.0)).collect(),
    ),
    gauge(
        "postroad_cluster_copy_received_bytes",
        "bytes received of the store copy that fills this node",
        |figures| figures.cluster.iter().map(|of| Sample::of(of.copy_bytes.1)).collect(),
    ),
];

/// Of a broker that traces messages.
fn traces(figures: &Figures, count: fn(&TraceCounts) -> u64) -> Vec<Sample> {
    figures.traces.iter().map(|counts| Sample::of(count(counts))).collect()
}

/// A sample for each node of the cluster, by its damage and by the words for its full disk.
fn nodes(figures: &Figures, is: impl Fn(&Option<String>, Option<&'static str>) -> bool) -> Vec<Sample> {
    let cluster = figures.cluster.iter();
    let own = cluster.clone().map(|of| (&of.node, &of.damage, of.full));
    let all = own.chain(cluster.flat_map(|of| &of.peers).map(|of| (&of.node, &of.damage, of.full)));
    all.map(|(node, damage, full)| Sample::of(u64::from(is(damage, full))).label("node", node)).collect()
}

fn peers(figures: &Figures, value: fn(&PeerFigures) -> Option<u64>) -> Vec<Sample> {
    let sample = |of: &PeerFigures| Some(Sample::of(value(of)?).label("node", &of.node));
    figures.cluster.iter().flat_map(|of| &of.peers).filter_map(sample).collect()
}

/// A sample for each of several stores of a cluster.
fn of_stores(figures: &Figures, value: fn(&StoreFigures) -> u64) -> Vec<Sample> {
    let of = figures.cluster.iter().flat_map(|of| &of.stores);
    of.map(|of| Sample::of(value(of)).label("store", &of.store.to_string())).collect()
}

/// A sample for each of several stores that this node leads, and each other node.
fn lags_of_stores(figures: &Figures) -> Vec<Sample> {
    let stores = figures.cluster.iter().flat_map(|of| &of.stores);
    let lags = stores.flat_map(|of| of.lags.iter().map(|(node, lag)| (of.store, node, *lag)));
    let sample = |(store, node, lag): (u16, &String, u64)| {
        Sample::of(lag).label("store", &store.to_string()).label("node", node)
    };
    lags.map(sample).collect()
}

/// The labels that tell links apart.
fn of_bridge(sample: Sample, of: &BridgeFigures) -> Sample {
    let sample = sample.label("bridge", &of.bridge).label("direction", of.direction);
    sample.label("peer", &of.peer_id).label("number", &of.number.to_string())
}

fn bridges(figures: &Figures, value: fn(&BridgeFigures) -> u64) -> Vec<Sample> {
    figures.bridges.iter().map(|of| of_bridge(Sample::of(value(of)), of)).collect()
}

fn bridge_states(figures: &Figures) -> Vec<Sample> {
    let each = |of: &'static str| {
        let sample = move |bridge: &BridgeFigures| {
            of_bridge(Sample::of(u64::from(bridge.state == of)), bridge).label("state", of)
        };
        figures.bridges.iter().map(sample)
    };
    BRIDGE_STATES.iter().flat_map(|of| each(of)).collect()
}

fn journals(figures: &Figures, value: fn(&JournalFigures) -> u64) -> Vec<Sample> {
    figures.journals.iter().map(|of| Sample::of(value(of)).label("store", &of.store)).collect()
}

fn distributions(
    figures: &Figures,
    value: fn(&JournalFigures) -> &Distribution,
    per_unit: f64,
) -> Vec<Sample> {
    let of = |journal: &JournalFigures| buckets(value(journal), per_unit, &("store", journal.store.clone()));
    figures.journals.iter().flat_map(of).collect()
}

fn queues(figures: &Figures, value: fn(&QueueFigures) -> u64) -> Vec<Sample> {
    let sample = |queue: &QueueFigures| {
        let sample = Sample::of(value(queue)).label("destination", &queue.destination);
        if queue.subscription.is_empty() { sample } else { sample.label("subscription", &queue.subscription) }
    };
    figures.queues.iter().map(sample).collect()
}

fn tenants(figures: &Figures, value: fn(&TenantFigures) -> u64) -> Vec<Sample> {
    let sample = |of: &TenantFigures| Sample::of(value(of)).label("tenant", &of.tenant);
    figures.tenants.iter().map(sample).collect()
}

fn routes(figures: &Figures, value: fn(&RouteFigures) -> u64) -> Vec<Sample> {
    let sample = |of: &RouteFigures| Sample::of(value(of)).label("route", &of.route);
    figures.routes.iter().map(sample).collect()
}

fn route_targets(figures: &Figures, value: fn(&RouteTargetFigures) -> Option<u64>) -> Vec<Sample> {
    let of_route = |of: &RouteFigures| {
        let sample = |target: &RouteTargetFigures| {
            let sample = Sample::of(value(target)?).label("route", &of.route);
            Some(sample.label("target", &target.destination))
        };
        of.targets.iter().filter_map(sample).collect::<Vec<_>>()
    };
    figures.routes.iter().flat_map(of_route).take(ROUTE_TARGETS_MAX).collect()
}

fn partitions(figures: &Figures, value: fn(&PartitionFigures) -> u64) -> Vec<Sample> {
    let sample = |of: &PartitionFigures| Sample::of(value(of)).label("partition", &of.partition.to_string());
    figures.partitions.iter().map(sample).collect()
}

/// Bucket by bucket, each with all below it and this label; `per_unit` of the values make one unit.
fn buckets(distribution: &Distribution, per_unit: f64, (name, of): &(&'static str, String)) -> Vec<Sample> {
    let mut below = 0;
    let mut samples = Vec::with_capacity(distribution.counts.len() + 3);
    for (power, count) in distribution.counts.iter().enumerate() {
        below += count;
        let bound = (1_u64 << power.min(63)) as f64 / per_unit;
        samples.push(Sample::of(below).suffix("_bucket").label(name, of).label("le", &bound.to_string()));
    }
    samples.push(Sample::of(below).suffix("_bucket").label(name, of).label("le", "+Inf"));
    samples.push(Sample::of_f64(distribution.sum as f64 / per_unit).suffix("_sum").label(name, of));
    samples.push(Sample::of(below).suffix("_count").label(name, of));
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/features/metrics.md");

    #[test]
    fn the_page_has_every_metric_and_no_other() {
        let rows: Vec<Vec<&str>> = PAGE
            .lines()
            .filter(|line| line.starts_with("| `postroad_"))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let name = |metric: &Metric| format!("`{}`", metric.name);
        let want: Vec<Vec<String>> = METRICS
            .iter()
            .map(|metric| vec![name(metric), metric.kind.word().to_owned(), metric.help.to_owned()])
            .collect();
        assert_eq!(rows, want);
        assert!(PAGE.contains(&format!("first {QUEUES_MAX} lasting queues")), "the limit on queues");
    }

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        for metric in METRICS {
            let total = metric.name.ends_with("_total");
            assert_eq!(total, metric.kind == Kind::Counter, "{}: counters alone end in _total", metric.name);
        }
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len(), "each name once");
    }
}

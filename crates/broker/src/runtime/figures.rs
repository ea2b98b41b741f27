//! Statistics of the broker, requested from every core and from the journals.
//!
//! Never here: counting. Each core and the journal's writer count for themselves.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postroad_admin::{
    Alerts, ConnectionFigures, Figures, IntakeFigures, JournalFigures, LedgerSums, PartitionFigures,
    QUEUES_MAX, QueueFigures, RouteFigures, RouteTargetFigures, Source, StepFigures, TenantFigures,
    WatchPage, WatchRequest, WatchedQueue,
};
use postroad_core::{Counters, Memory, Partition, Watched, paused_queues};
use postroad_model::{PartitionId, QueueId};
use postroad_node::{ConnectionCounts, Core, Draining, TenantMeters, TraceBook};
use postroad_routing::{Policies, Route, RouteCounters, is_wildcard};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::runtime::durations::distribution;
use crate::runtime::{ClusterView, LinkBoard, NamedDoor, store_figures};

/// Requests that wait for a core; further ones wait with their senders.
pub const QUESTIONS_MAX: usize = 4;

/// A journal whose disk hangs is reported as hanging after this time; it is well within the time
/// that requesters wait.
const JOURNAL_WITHIN: Duration = Duration::from_millis(500);

/// A question to a core.
#[derive(Debug)]
pub enum Question {
    /// Whether it serves clients at all.
    Alive(oneshot::Sender<()>),
    /// How it is, with or without the figures of each queue.
    Figures { with_queues: bool, answer: oneshot::Sender<CoreFigures> },
    /// Some of its queues.
    Watch { request: WatchRequest, answer: oneshot::Sender<WatchPage> },
}

/// Statistics of one core.
#[derive(Debug, Default)]
pub struct CoreFigures {
    pub connections: Vec<ConnectionFigures>,
    pub steps: Vec<StepFigures>,
    pub partitions: Vec<PartitionFigures>,
    pub queues: Vec<QueueFigures>,
    pub queues_unlisted: u64,
    pub tenants: Vec<TenantFigures>,
}

/// The channels to all cores and journals.
#[derive(Clone)]
pub struct StatsCollector {
    pub cores: Vec<mpsc::Sender<Question>>,
    pub journals: Vec<NamedDoor>,
    pub links: LinkBoard,
    /// The policies in force.
    pub policies: watch::Receiver<Arc<Policies>>,
    /// The state of the cluster, in a node of one.
    pub cluster: Option<ClusterView>,
    /// Rules of alerts, and which fire.
    pub alerts: Alerts,
    /// Whether the broker is being drained.
    pub draining: Draining,
    /// Connections of tenants.
    pub tenants: TenantMeters,
    /// Traced messages, if any are traced.
    pub traces: Option<TraceBook>,
}

/// How the routes are, in the order of the configuration.
fn route_figures(policies: &Policies) -> Vec<RouteFigures> {
    let figures_of = |(rule, counters): (&Route, &Arc<RouteCounters>)| {
        let counted = counters.figures();
        let names = rule.fixed_targets().map(|target| target.destination.to_string());
        let names =
            names.chain(rule.recipients.as_ref().map(|recipients| format!("${{{}}}", recipients.header)));
        let mut targets: Vec<RouteTargetFigures> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (name, counted) in names.zip(counted.targets) {
            let place = *places.entry(name.clone()).or_insert_with(|| {
                targets.push(RouteTargetFigures { destination: name, ..Default::default() });
                targets.len() - 1
            });
            targets[place].copies += counted.copies;
            targets[place].retried += counted.retried;
            targets[place].refused += counted.refused;
        }
        RouteFigures {
            route: rule.name.to_string(),
            from: rule.from.to_string(),
            consumes: rule.consumes,
            matched: counted.matched,
            unmatched: counted.unmatched,
            dead_lettered: counted.dead_lettered,
            cut: counted.cut,
            targets,
        }
    };
    policies.routes.counted().map(figures_of).collect()
}

impl Source for StatsCollector {
    fn is_draining(&self) -> bool {
        self.draining.is_on()
    }

    async fn figures(&self) -> Figures {
        let mut figures = self.gather(true).await;
        for (store, other) in self.cluster.iter().flat_map(|view| view.part().others_led()) {
            store_figures::add(&mut figures, store, other.gather(true).await);
        }
        figures
    }

    async fn readiness(&self) -> Vec<JournalFigures> {
        let mut answers = Vec::with_capacity(self.cores.len());
        for core in &self.cores {
            let (question, answer) = oneshot::channel();
            // A core that is gone has nothing to say.
            let _ = core.send(Question::Alive(question)).await;
            answers.push(answer);
        }
        let journals = self.ask_journals();
        for answer in answers {
            let _ = answer.await;
        }
        self.answers_of(journals).await
    }
}

impl StatsCollector {
    /// The policies in force.
    pub fn policies(&self) -> Arc<Policies> {
        self.policies.borrow().clone()
    }

    /// How the routes are.
    pub fn routes(&self) -> Vec<RouteFigures> {
        route_figures(&self.policies.borrow())
    }

    /// Figures without those of each queue: as cheap with a million queues as with one.
    pub async fn totals(&self) -> Figures {
        self.gather(false).await
    }

    /// Some queues of a core; `None` if there is no such core.
    pub async fn watch(&self, request: WatchRequest) -> Option<WatchPage> {
        let (answer, answered) = oneshot::channel();
        // A core that is gone has nothing to say.
        let _ = self.cores.get(request.core)?.send(Question::Watch { request, answer }).await;
        Some(answered.await.unwrap_or_default())
    }

    async fn gather(&self, with_queues: bool) -> Figures {
        let mut answers = Vec::with_capacity(self.cores.len());
        for core in &self.cores {
            let (answer, answered) = oneshot::channel();
            // A core that is gone has nothing to say.
            let _ = core.send(Question::Figures { with_queues, answer }).await;
            answers.push(answered);
        }
        let journals = self.ask_journals();
        let mut figures = Figures::default();
        let mut connections: BTreeMap<&'static str, ConnectionFigures> = BTreeMap::new();
        let mut tenants: BTreeMap<String, TenantFigures> = BTreeMap::new();
        let mut queues: BTreeMap<(String, String), QueueFigures> = BTreeMap::new();
        for answer in answers {
            let CoreFigures {
                connections: own,
                steps,
                partitions,
                queues: parts,
                queues_unlisted,
                tenants: shares,
            } = answer.await.unwrap_or_default();
            figures.cores.extend(steps);
            for share in shares {
                let all = tenants.entry(share.tenant.clone()).or_default();
                *all = TenantFigures {
                    tenant: share.tenant,
                    messages: all.messages + share.messages,
                    bytes: all.bytes + share.bytes,
                    disk_bytes: all.disk_bytes + share.disk_bytes,
                    waiting: all.waiting + share.waiting,
                    leases: all.leases + share.leases,
                    queues: all.queues + share.queues,
                    ..TenantFigures::default()
                };
            }
            for ConnectionFigures { protocol, open, opened } in own {
                let all = connections.entry(protocol).or_default();
                *all = ConnectionFigures { protocol, open: all.open + open, opened: all.opened + opened };
            }
            figures.partitions.extend(partitions);
            parts.into_iter().for_each(|part| merge(&mut queues, part));
            figures.queues_unlisted += queues_unlisted;
        }
        for (tenant, open) in self.tenants.connections() {
            if let Some(of) = tenants.get_mut(&*tenant) {
                of.connections = open;
            }
        }
        for (tenant, waits) in self.tenants.share_waits() {
            if let Some(of) = tenants.get_mut(&*tenant) {
                (of.share_waits, of.share_wait_micros) = (waits.waits, waits.micros);
            }
        }
        figures.connections = connections.into_values().collect();
        figures.tenants = tenants.into_values().collect();
        figures.partitions.sort_unstable_by_key(|partition| partition.partition);
        figures.queues = queues.into_values().collect();
        figures.journals = self.answers_of(journals).await;
        figures.bridges = self.links.figures();
        figures.routes = self.routes();
        (figures.alerts, figures.ledger) = (self.alerts.figures(), self.alerts.ledger());
        figures.undelivered_notifications = self.alerts.undelivered();
        figures.draining = self.draining.is_on();
        figures.traces = self.traces.as_ref().map(TraceBook::counts);
        figures.cluster = self.cluster.as_ref().and_then(ClusterView::figures);
        figures
    }

    /// Each may have to wait for a sync, and none may hold up the others' answers.
    fn ask_journals(&self) -> Vec<JoinHandle<JournalFigures>> {
        let ask = |door: NamedDoor| tokio::task::spawn_blocking(move || door.figures());
        self.journals.iter().cloned().map(ask).collect()
    }

    async fn answers_of(&self, journals: Vec<JoinHandle<JournalFigures>>) -> Vec<JournalFigures> {
        let mut answers = Vec::with_capacity(journals.len());
        for (journal, NamedDoor { store, .. }) in journals.into_iter().zip(&self.journals) {
            let said = tokio::time::timeout(JOURNAL_WITHIN, journal).await;
            let silent = || JournalFigures {
                store: store.to_string(),
                broken: Some(format!("its journal is busy for more than {} ms", JOURNAL_WITHIN.as_millis())),
                ..JournalFigures::default()
            };
            let mut said = said.ok().and_then(Result::ok).unwrap_or_else(silent);
            if let (Some(_), Some(cluster)) = (&said.follows, &self.cluster) {
                said.follows = Some(cluster.reason());
            }
            answers.push(said);
        }
        answers
    }
}

/// A queue that moves is in two partitions, and one with wildcards in each: it has one row of
/// figures all the same.
pub(super) fn merge(queues: &mut BTreeMap<(String, String), QueueFigures>, part: QueueFigures) {
    use std::collections::btree_map::Entry;
    match queues.entry((part.destination.clone(), part.subscription.clone())) {
        Entry::Vacant(vacant) => {
            vacant.insert(part);
        }
        Entry::Occupied(mut all) => {
            let all = all.get_mut();
            let name = part.destination.split_once("://").map_or("", |(_, name)| name);
            // Those of a queue with wildcards are attached in every partition, those of another in
            // one.
            all.consumers = match is_wildcard(name) {
                true => all.consumers.max(part.consumers),
                false => all.consumers + part.consumers,
            };
            all.depth += part.depth;
            all.enqueued += part.enqueued;
            all.consumed += part.consumed;
            all.expired += part.expired;
            all.dead_lettered += part.dead_lettered;
            all.dropped += part.dropped;
            all.replaced += part.replaced;
        }
    }
}

/// Queues that are looked at in one step of a core: well below a millisecond.
const WATCHED_QUEUES: usize = 1000;

/// The next queues of a core, in one partition.
pub fn watch_page(core: &Core, request: WatchRequest) -> WatchPage {
    let WatchRequest { after, for_rules, .. } = request;
    let first = PartitionId(after.map_or(0, |(partition, _)| partition));
    let mut partitions = core.partitions().filter(|(id, _)| first <= *id);
    let Some((id, partition)) = partitions.next() else { return WatchPage::default() };
    let behind = after.filter(|(of, _)| PartitionId(*of) == id).and_then(|(_, queue)| queue).map(QueueId);
    let Watched { queues, sums, next } = postroad_core::watch(partition, behind, WATCHED_QUEUES, for_rules);
    let queues = queues.into_iter().map(|queue| WatchedQueue {
        partition: id.0,
        queue: queue.id.0,
        destination: queue.destination,
        subscription: queue.subscription,
        messages: queue.messages,
        consumers: queue.consumers,
        dead_lettered: queue.dead_lettered,
        oldest: queue.oldest,
        next: queue.next,
        difference: queue.difference,
    });
    WatchPage {
        queues: queues.collect(),
        sums: ledger_sums(&sums),
        next: match next {
            Some(last) => Some((id.0, Some(last.0))),
            None => partitions.next().map(|(further, _)| (further.0, None)),
        },
    }
}

fn ledger_sums(sums: &postroad_core::LedgerSums) -> LedgerSums {
    let counts = &sums.counts;
    LedgerSums {
        queues: sums.queues,
        sent: counts.enqueued,
        held: sums.held,
        in_flight: sums.in_flight,
        consumed: counts.consumed,
        expired: counts.expired,
        dead_lettered: counts.dead_lettered,
        dropped: counts.dropped + counts.replaced,
        moved: counts.moved,
        difference: sums.difference,
        differing: sums.differing,
    }
}

impl CoreFigures {
    /// Of a core as it is now, and then of one partition after another: others are served in
    /// between.
    pub async fn gather(core: &RefCell<Core>, with_queues: bool) -> CoreFigures {
        let mut figures = CoreFigures::of(&core.borrow());
        let ids: Vec<PartitionId> = core.borrow().partitions().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(partition) = core.borrow().partition(id) {
                figures.add(id, partition);
                if with_queues {
                    figures.add_queues(partition);
                }
            }
            tokio::task::yield_now().await;
        }
        figures
    }

    /// Statistics of a core without its partitions.
    fn of(core: &Core) -> CoreFigures {
        let connections = core.connection_counts().map(|(protocol, ConnectionCounts { open, opened })| {
            ConnectionFigures { protocol, open, opened }
        });
        let steps = StepFigures { core: core.number(), micros: distribution(core.steps()) };
        CoreFigures { connections: connections.collect(), steps: vec![steps], ..CoreFigures::default() }
    }

    /// Adds the statistics of a partition.
    pub fn add(&mut self, id: PartitionId, partition: &Partition) {
        self.partitions.push(partition_figures(id, partition));
        self.tenants.extend(partition.accounts().map(|(account, waiting)| TenantFigures {
            tenant: account.owner.as_deref().unwrap_or_default().to_owned(),
            messages: account.load.messages,
            bytes: account.load.bytes,
            disk_bytes: account.load.bytes.saturating_sub(account.volatile_bytes),
            waiting,
            leases: account.leases,
            queues: account.queues,
            ..TenantFigures::default()
        }));
    }

    /// Adds its queues, up to the bound.
    fn add_queues(&mut self, partition: &Partition) {
        self.queues_unlisted += partition.lasting_queues().saturating_sub(QUEUES_MAX as u64);
        let figures = partition.queue_figures().take(QUEUES_MAX).map(|queue| QueueFigures {
            destination: queue.queue.to_string(),
            subscription: queue.subscription.unwrap_or_default().to_owned(),
            depth: queue.depth,
            consumers: queue.consumers,
            enqueued: queue.counts.enqueued,
            consumed: queue.counts.consumed,
            expired: queue.counts.expired,
            dead_lettered: queue.counts.dead_lettered,
            dropped: queue.counts.dropped,
            replaced: queue.counts.replaced,
        });
        self.queues.extend(figures);
    }
}

fn partition_figures(id: PartitionId, partition: &Partition) -> PartitionFigures {
    let Counters { delivered, discarded, duplicates, dropped, redriven, overflowed, replaced, .. } =
        partition.counters();
    let Counters { received, filters, enqueued, consumed, expired, dead_lettered, .. } = partition.counters();
    let Counters {
        slow_consumers, timed_out_transactions, advisories_dropped, unretained, unreadable, ..
    } = partition.counters();
    let Memory { messages, packed_messages, resident_bytes, page_bytes, volatile_bytes } = partition.memory();
    PartitionFigures {
        partition: id.0,
        intake: IntakeFigures { received, filters, duplicates },
        enqueued,
        consumed,
        expired,
        dead_lettered,
        queues: partition.lasting_queues(),
        paused_queues: paused_queues(partition),
        delivered,
        discarded,
        dropped,
        redriven,
        overflowed,
        replaced,
        slow_consumers,
        timed_out_transactions,
        advisories_dropped,
        unretained,
        unreadable,
        scheduled: partition.scheduled() as u64,
        messages,
        packed_messages,
        resident_bytes,
        page_bytes,
        volatile_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_in_several_partitions_has_one_row() {
        let row = |destination: &str, subscription: &str, each: u64| QueueFigures {
            destination: destination.to_owned(),
            subscription: subscription.to_owned(),
            depth: each,
            consumers: each,
            enqueued: 2 * each,
            consumed: 3 * each,
            expired: 4 * each,
            dead_lettered: 5 * each,
            dropped: 6 * each,
            replaced: 7 * each,
        };
        let moving = |each| row("queue://b", "", each);
        let answers = [
            vec![moving(1), row("topic://>", "s", 2), row("topic://>", "t", 1)],
            vec![row("queue://a", "", 1), moving(10), row("topic://>", "s", 2)],
        ];
        let core = |queues: Vec<QueueFigures>| {
            let (question, mut asked) = mpsc::channel::<Question>(1);
            tokio::spawn(async move {
                let Some(Question::Figures { answer, .. }) = asked.recv().await else { return };
                let _ = answer.send(CoreFigures { queues, ..CoreFigures::default() });
            });
            question
        };
        let everybody = StatsCollector {
            cores: answers.into_iter().map(core).collect(),
            journals: Vec::new(),
            links: LinkBoard::default(),
            policies: watch::channel(Arc::default()).1,
            cluster: None,
            alerts: Alerts::default(),
            draining: Draining::default(),
            tenants: TenantMeters::default(),
            traces: None,
        };
        let want = [
            row("queue://a", "", 1),
            moving(11),
            QueueFigures { consumers: 2, ..row("topic://>", "s", 4) },
            row("topic://>", "t", 1),
        ];
        assert_eq!(everybody.figures().await.queues, want);
    }
}

//! The whole broker at a glance: figures now, an hour of their history, and alarms.
//!
//! A sample costs a core as much as its partitions, not its queues. One is taken every ten seconds,
//! and more often only on request; requests at about the same time share one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior};

use super::lists::query;
use super::problem::Problem;
use super::process::Process;
use super::{Api, ApiOptions, Caller, Shared, alerts, ledger};
use crate::alerts::{Ledger, Severity};
use crate::figures::{ClusterFigures, Distribution, Figures, JournalFigures, PeerFigures};
use crate::planner::Counted;

/// Time between two samples of the history.
const EVERY: Duration = Duration::from_secs(10);

/// Samples of the history: an hour.
const SAMPLES_MAX: usize = 360;

/// A sample of this age is given to others that ask.
const FRESH: Duration = Duration::from_millis(900);

/// Alerts that are alarms of the overview; beyond that their number is.
const ALERTS_MAX: usize = 5;

/// A core that does not answer within this time is not waited for.
const FIGURES_WITHIN: Duration = Duration::from_secs(2);

/// The broker at one moment. Names that end in `_total` only rise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Sample {
    at_ms: u64,
    enqueued_total: u64,
    delivered_total: u64,
    acknowledged_total: u64,
    expired_total: u64,
    dead_lettered_total: u64,
    dropped_total: u64,
    messages: u64,
    scheduled: u64,
    queues: u64,
    connections: u64,
    memory_bytes: u64,
    volatile_bytes: u64,
    disk_bytes: u64,
    live_bytes: u64,
    written_bytes_total: u64,
    syncs_total: u64,
    /// Microseconds that half of the syncs since the sample before took, and 99 of 100.
    sync_p50_us: u64,
    sync_p99_us: u64,
    /// Microseconds of the longest steps of a core since the sample before, 99 of 100.
    step_p99_us: u64,
    process_bytes: u64,
    process_cpu_ms_total: u64,
}

macro_rules! columns {
    ($($name:ident),*) => {
        /// Names of the columns of the history, as of the fields of a sample.
        const COLUMNS: &[&str] = &[$(stringify!($name)),*];

        impl Sample {
            fn row(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }
        }
    };
}

columns!(
    at_ms,
    enqueued_total,
    delivered_total,
    acknowledged_total,
    expired_total,
    dead_lettered_total,
    dropped_total,
    messages,
    scheduled,
    queues,
    connections,
    memory_bytes,
    volatile_bytes,
    disk_bytes,
    live_bytes,
    written_bytes_total,
    syncs_total,
    sync_p50_us,
    sync_p99_us,
    step_p99_us,
    process_bytes,
    process_cpu_ms_total
);

/// A state that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Alarm {
    /// `critical`: clients are refused. `warning`: they will be, or data is at risk.
    severity: &'static str,
    subject: String,
    text: String,
}

/// Samples so far.
#[derive(Default)]
pub struct Seen {
    history: VecDeque<Sample>,
    last: Option<Last>,
}

struct Last {
    taken: Instant,
    sample: Sample,
    syncs: Distribution,
    steps: Distribution,
    figures: Arc<Figures>,
}

/// Takes samples as long as the API is there.
pub async fn keep_history(api: std::sync::Weak<Shared>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(api) = api.upgrade().map(Api) else { return };
        super::audit::take_others(&api).await;
        if let Ok((sample, _)) = sample(&api).await {
            let mut seen = api.0.seen.lock().await;
            if SAMPLES_MAX <= seen.history.len() {
                seen.history.pop_front();
            }
            seen.history.push_back(sample);
        }
    }
}

/// The newest sample; a new one, if that is old.
async fn sample(api: &Api) -> Result<(Sample, Arc<Figures>), Problem> {
    // Held meanwhile, so that requests at the same time share one sample.
    let mut seen = api.0.seen.lock().await;
    if let Some(last) = seen.last.as_ref().filter(|last| last.taken.elapsed() < FRESH) {
        return Ok((last.sample.clone(), last.figures.clone()));
    }
    let silent = |_| {
        let text = format!("a core does not answer within {} seconds", FIGURES_WITHIN.as_secs());
        Problem::new(503, text)
    };
    let figures = tokio::time::timeout(FIGURES_WITHIN, (api.0.options.totals)()).await.map_err(silent)?;
    let last = Last::of(figures, seen.last.as_ref(), api.now_ms());
    let said = (last.sample.clone(), last.figures.clone());
    seen.last = Some(last);
    Ok(said)
}

/// The figures of the newest sample.
pub async fn figures(api: &Api) -> Result<Arc<Figures>, Problem> {
    Ok(sample(api).await?.1)
}

/// The counters of the capacity planner.
pub async fn counted(api: &Api) -> Result<Counted, Problem> {
    let (sample, figures) = sample(api).await?;
    let of_all = |value: fn(&crate::PartitionFigures) -> u64| figures.partitions.iter().map(value).sum();
    Ok(Counted {
        at_ms: sample.at_ms,
        received: of_all(|of| of.intake.received),
        filters: of_all(|of| of.intake.filters),
        delivered: sample.delivered_total,
        written_bytes: sample.written_bytes_total,
        syncs: sample.syncs_total,
        cpu_micros: sample.process_cpu_ms_total * 1000,
    })
}

impl Last {
    fn of(figures: Figures, before: Option<&Last>, now_ms: u64) -> Last {
        let Process { memory_bytes: process_bytes, cpu_ms } = Process::now();
        let of_all = |value: fn(&crate::PartitionFigures) -> u64| figures.partitions.iter().map(value).sum();
        let of_stores = |value: fn(&JournalFigures) -> u64| figures.journals.iter().map(value).sum();
        let syncs = sum_of(figures.journals.iter().map(|journal| &journal.sync_micros));
        let steps = sum_of(figures.cores.iter().map(|core| &core.micros));
        let new_syncs = since(&syncs, before.map(|before| &before.syncs));
        let new_steps = since(&steps, before.map(|before| &before.steps));
        let sample = Sample {
            at_ms: now_ms,
            enqueued_total: of_all(|of| of.enqueued),
            delivered_total: of_all(|of| of.delivered),
            acknowledged_total: of_all(|of| of.consumed),
            expired_total: of_all(|of| of.expired),
            dead_lettered_total: of_all(|of| of.dead_lettered),
            dropped_total: of_all(|of| of.dropped + of.overflowed + of.replaced),
            messages: of_all(|of| of.messages),
            scheduled: of_all(|of| of.scheduled),
            queues: of_all(|of| of.queues),
            connections: figures.connections.iter().map(|of| of.open).sum(),
            memory_bytes: of_all(|of| of.resident_bytes + of.page_bytes + of.volatile_bytes),
            volatile_bytes: of_all(|of| of.volatile_bytes),
            disk_bytes: of_stores(|of| of.file_bytes),
            live_bytes: of_stores(|of| of.live_bytes),
            written_bytes_total: of_stores(|of| of.bytes),
            syncs_total: of_stores(|of| of.syncs),
            sync_p50_us: within(&new_syncs, 500),
            sync_p99_us: within(&new_syncs, 990),
            step_p99_us: within(&new_steps, 990),
            process_bytes,
            process_cpu_ms_total: cpu_ms,
        };
        Last { taken: Instant::now(), sample, syncs, steps, figures: Arc::new(figures) }
    }
}

fn sum_of<'d>(all: impl Iterator<Item = &'d Distribution>) -> Distribution {
    let mut sum = Distribution::default();
    for one in all {
        if sum.counts.len() < one.counts.len() {
            sum.counts.resize(one.counts.len(), 0);
        }
        sum.counts.iter_mut().zip(&one.counts).for_each(|(sum, count)| *sum += count);
        sum.sum += one.sum;
    }
    sum
}

/// Counts that came since an earlier state.
fn since(now: &Distribution, before: Option<&Distribution>) -> Vec<u64> {
    let before =
        before.map(|before| &before.counts[..]).unwrap_or_default().iter().chain(std::iter::repeat(&0));
    now.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect()
}

/// Quantile: this number of thousandths of the values is no higher than this power of two.
fn within(counts: &[u64], thousandths: u64) -> u64 {
    let all: u64 = counts.iter().sum();
    let wanted = (all * thousandths).div_ceil(1000);
    let mut seen = 0;
    for (bucket, count) in counts.iter().enumerate() {
        seen += count;
        if 0 < all && wanted <= seen {
            return 1 << bucket.min(63);
        }
    }
    0
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// With the history.
    history: Option<bool>,
}

#[derive(Serialize)]
pub struct Overview {
    broker: super::Broker,
    /// Whether the caller may not see the figures of the whole broker: they are 0 then.
    is_limited: bool,
    now: Sample,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<History>,
    alarms: Vec<Alarm>,
    /// Open connections by protocol.
    protocols: Vec<Protocol>,
    stores: Vec<Store>,
    /// The memory budget.
    memory_bytes_max: u64,
    /// The last check of the ledger.
    ledger: ledger::ShownLedger,
    /// `None` outside of a cluster.
    cluster: Option<Cluster>,
}

#[derive(Serialize)]
struct History {
    columns: &'static [&'static str],
    rows: Vec<Vec<u64>>,
}

#[derive(Serialize)]
struct Protocol {
    protocol: &'static str,
    open: u64,
    opened_total: u64,
}

#[derive(Serialize)]
struct Store {
    store: String,
    file_bytes: u64,
    live_bytes: u64,
    segments: u64,
    full: bool,
    broken: Option<String>,
}

/// The cluster, as this node sees it.
#[derive(Debug, Serialize)]
struct Cluster {
    node: String,
    role: &'static str,
    peers: Vec<ClusterPeer>,
}

#[derive(Debug, Serialize)]
struct ClusterPeer {
    node: String,
    connected: bool,
    /// Entries that it has not synced.
    lag: Option<u64>,
}

impl From<&ClusterFigures> for Cluster {
    fn from(of: &ClusterFigures) -> Cluster {
        let peer =
            |of: &PeerFigures| ClusterPeer { node: of.node.clone(), connected: of.connected, lag: of.lag };
        Cluster { node: of.node.clone(), role: of.role, peers: of.peers.iter().map(peer).collect() }
    }
}

pub async fn overview(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Overview>, Problem> {
    let wants_history = query(which)?.history.unwrap_or(false);
    if !api.administers(&caller) {
        return Ok(Json(limited(&api)));
    }
    let (now, figures) = sample(&api).await?;
    let history = match wants_history {
        true => {
            let rows = api.0.seen.lock().await.history.iter().map(Sample::row).collect();
            Some(History { columns: COLUMNS, rows })
        }
        false => None,
    };
    let ApiOptions { memory_bytes_max, .. } = api.0.options;
    let protocols = figures.connections.iter().map(|of| Protocol {
        protocol: of.protocol,
        open: of.open,
        opened_total: of.opened,
    });
    let stores = figures.journals.iter().map(|of| Store {
        store: of.store.clone(),
        file_bytes: of.file_bytes,
        live_bytes: of.live_bytes,
        segments: of.segments,
        full: of.full,
        broken: of.broken.clone(),
    });
    Ok(Json(Overview {
        broker: api.about(),
        is_limited: false,
        alarms: alarms(&figures).into_iter().chain(alerts_of(&api, &caller)).collect(),
        history,
        protocols: protocols.collect(),
        stores: stores.collect(),
        memory_bytes_max,
        ledger: api.0.options.alerts.ledger().into(),
        cluster: figures.cluster.as_ref().map(Cluster::from),
        now,
    }))
}

/// The overview of users who may not see the whole broker: its name and no figures.
fn limited(api: &Api) -> Overview {
    Overview {
        broker: api.about(),
        is_limited: true,
        now: Sample { at_ms: api.now_ms(), ..Sample::default() },
        history: None,
        alarms: Vec::new(),
        protocols: Vec::new(),
        stores: Vec::new(),
        memory_bytes_max: 0,
        ledger: Ledger::default().into(),
        cluster: None,
    }
}

/// Alerts that fire, as alarms; none for users who may not see the names of all queues.
fn alerts_of(api: &Api, caller: &Caller) -> Vec<Alarm> {
    if !api.administers(caller) {
        return Vec::new();
    }
    let (firing, more) = alerts::firing(&api.0.options.alerts, ALERTS_MAX);
    let alarm = |(severity, subject, text): (Severity, String, String)| Alarm {
        severity: severity.name(),
        subject,
        text,
    };
    let others = Alarm {
        severity: Severity::Warning.name(),
        subject: "alerts".to_owned(),
        text: format!("{more} more are firing; see the list of alerts"),
    };
    let ledger = api.0.options.alerts.ledger();
    let differs = (0 < ledger.sums.differing).then(|| Alarm {
        severity: Severity::Critical.name(),
        subject: "ledger".to_owned(),
        text: format!(
            "the counts of {} queues differ from their content, by {} messages; see `postroad ctl ledger`",
            ledger.sums.differing, ledger.sums.difference
        ),
    });
    let alerts = firing.into_iter().map(alarm).chain((0 < more).then_some(others));
    differs.into_iter().chain(alerts).collect()
}

fn alarms(figures: &Figures) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let mut raise = |severity, subject: String, text: String| alarms.push(Alarm { severity, subject, text });
    if figures.draining {
        let text = "it is being drained: new connections and messages are refused; see `postroad ctl broker`";
        raise("warning", "broker".to_owned(), text.to_owned());
    }
    for journal in &figures.journals {
        let subject = format!("store {}", journal.store);
        if let Some(reason) = &journal.broken {
            raise("critical", subject.clone(), format!("writes nothing: {reason}"));
        }
        if journal.full {
            let text = "the disk is full; persistent messages are refused until there is space".to_owned();
            raise("critical", subject.clone(), text);
        }
        for damage in journal.stopped.iter().take(3) {
            let text = format!("a partition is stopped for damage: {damage}; see `postroad store repair`");
            raise("critical", subject.clone(), text);
        }
        if 0 < journal.damaged_places {
            let text =
                format!("damaged places found: {}; see `postroad store verify`", journal.damaged_places);
            raise("warning", subject, text);
        }
    }
    let cluster = figures.cluster.iter();
    let own = cluster.clone().map(|of| (&of.node, &of.damage, of.full));
    let peers = cluster.flat_map(|of| &of.peers).map(|of| (&of.node, &of.damage, of.full));
    for (node, damage, full) in own.chain(peers) {
        if let Some(damage) = damage {
            raise("critical", format!("node {node}"), damage.clone());
        }
        if let Some(full) = full {
            raise("critical", format!("node {node}"), full.to_owned());
        }
    }
    for tenant in figures.tenants.iter().filter(|tenant| 0 < tenant.waiting) {
        let subject = match tenant.tenant.is_empty() {
            true => "broker".to_owned(),
            false => format!("tenant {}", tenant.tenant),
        };
        let text = format!("producers of {} addresses wait for room in the quota", tenant.waiting);
        raise("warning", subject, text);
    }
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_came_since_the_sample_before() {
        let of = |counts: &[u64]| Distribution { counts: counts.to_vec(), sum: 0 };
        let before = of(&[100, 0, 5]);
        let now = of(&[100, 0, 5, 99, 0, 0, 1]);
        let new = since(&now, Some(&before));
        assert_eq!(new, [0, 0, 0, 99, 0, 0, 1]);
        assert_eq!((within(&new, 500), within(&new, 990), within(&new, 1000)), (8, 8, 64));
        assert_eq!(within(&since(&now, Some(&now)), 990), 0, "nothing came");
    }

    #[test]
    fn a_row_has_a_value_for_each_column_in_the_order_of_the_fields() {
        let sample = Sample { at_ms: 7, process_cpu_ms_total: 9, ..Sample::default() };
        let fields = serde_json::to_value(&sample).expect("JSON");
        assert_eq!(sample.row().len(), COLUMNS.len());
        assert_eq!(fields.as_object().map(serde_json::Map::len), Some(COLUMNS.len()));
        for (name, value) in COLUMNS.iter().zip(sample.row()) {
            assert_eq!(fields[*name], value, "{name}");
        }
    }

    #[test]
    fn trouble_raises_alarms() {
        let full = JournalFigures { store: "main".to_owned(), full: true, ..JournalFigures::default() };
        let figures = Figures { journals: vec![full], ..Figures::default() };
        let raised = alarms(&figures);
        assert_eq!(raised.len(), 1);
        assert_eq!((raised[0].severity, raised[0].subject.as_str()), ("critical", "store main"));
        assert_eq!(alarms(&Figures::default()), []);
    }
}

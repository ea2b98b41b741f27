//! The rounds: values of all queues, stores and the process, and the rules that watch them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use postroad_node::Clients;

use super::Alerts;
use super::history::{Histories, Times};
use super::notify::{Notifier, Outlets, Post};
use super::rule::{AlertRule, Measure};
use super::state::{ALERTS_MAX, Readings};
use crate::api::Process;
use crate::figures::WatchedQueue;

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause between two pages of queues: a round over 100,000 queues takes half a second or longer, and few per cent of a core.
const PAGE_PAUSE: Duration = Duration::from_millis(10);

/// Values of one rule that are looked at in one round.
const READINGS_MAX: usize = 2 * ALERTS_MAX;

/// Some queues of one core, and where to go on, if there are more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPage {
    /// Those that hold messages or have dead letters, or whose counts differ.
    pub queues: Vec<WatchedQueue>,
    /// Where to go on.
    pub next: Option<WatchCursor>,
}

/// A place in the queues of a core: a partition, and the queue there behind which to go on.
pub type WatchCursor = (u16, Option<u64>);

/// Looks at some queues of a core; `None` if there is no such core.
pub type WatchQueues = Arc<
    dyn Fn(usize, Option<WatchCursor>) -> Pin<Box<dyn Future<Output = Option<WatchPage>> + Send>>
        + Send
        + Sync,
>;

/// Says how many per cent of each store's disk space are in use; may wait for the disk.
pub type Disks = Arc<dyn Fn() -> Vec<(String, u64)> + Send + Sync>;

/// Where values come from, and how notifications leave.
pub struct AlertSources {
    /// The broker's name.
    pub broker_name: String,
    /// Queues.
    pub queues: WatchQueues,
    /// Stores.
    pub disks: Disks,
    /// The memory budget.
    pub memory_bytes_max: u64,
    /// Posts to webhooks.
    pub post: Post,
    /// Sends to queues.
    pub clients: Clients,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: fn() -> u64,
}

/// Watches as long as the process runs. Without rules it waits for some.
pub async fn watch(alerts: Alerts, sources: AlertSources) {
    let AlertSources { broker_name, post, clients, .. } = &sources;
    let outlets = Outlets { broker_name: broker_name.clone(), post: post.clone(), clients: clients.clone() };
    let mut notifier = Notifier::new(outlets, alerts.clone());
    let mut changed = alerts.0.rules.subscribe();
    let mut histories = Histories::default();
    loop {
        let rules = changed.borrow_and_update().clone();
        notifier.retain(&rules);
        if rules.is_empty() {
            histories = Histories::default();
            if changed.changed().await.is_err() {
                return;
            }
            continue;
        }
        let all = readings_of_all(&rules, &sources, &mut histories).await;
        // Rules that came meanwhile are looked at in the next round.
        if !changed.has_changed().unwrap_or(true) {
            let now_ms = (sources.now_ms)();
            alerts.state().unlisted = 0;
            for (rule, readings) in rules.iter().zip(&all) {
                let changes = alerts.state().look(rule, readings, now_ms);
                notifier.notify(rule, &changes, now_ms);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The values of each rule.
async fn readings_of_all(
    rules: &[AlertRule],
    sources: &AlertSources,
    histories: &mut Histories,
) -> Vec<Readings> {
    let mut all = vec![Readings::new(); rules.len()];
    if rules.iter().any(|rule| rule.on.is_of_queue()) {
        read_queues(rules, sources, histories, &mut all).await;
    }
    if rules.iter().any(|rule| rule.on == Measure::Disk) {
        let disks = sources.disks.clone();
        let disks = tokio::task::spawn_blocking(move || disks()).await.unwrap_or_default();
        let readings: Readings =
            disks.into_iter().map(|(store, percent)| (format!("store {store}").into(), percent)).collect();
        put(rules, &mut all, Measure::Disk, &readings);
    }
    if rules.iter().any(|rule| rule.on == Measure::Memory) {
        let percent = Process::now().memory_bytes.saturating_mul(100) / sources.memory_bytes_max.max(1);
        put(rules, &mut all, Measure::Memory, &Readings::from([("broker".into(), percent)]));
    }
    all
}

fn put(rules: &[AlertRule], all: &mut [Readings], on: Measure, readings: &Readings) {
    for (rule, own) in rules.iter().zip(all) {
        if rule.on == on {
            own.clone_from(readings);
        }
    }
}

async fn read_queues(
    rules: &[AlertRule],
    sources: &AlertSources,
    histories: &mut Histories,
    all: &mut [Readings],
) {
    let needs_times =
        |rule: &AlertRule| matches!(rule.on, Measure::Age | Measure::Stuck | Measure::DeadLetters);
    let (timed, was_full) = (rules.iter().any(needs_times), histories.is_full());
    for core in 0.. {
        let mut after = None;
        loop {
            let Some(WatchPage { queues, next }) = (sources.queues)(core, after).await else {
                histories.end_round();
                if histories.is_full() && !was_full {
                    tracing::warn!(
                        "more queues than alert rules can follow hold messages: ages of some are not known"
                    );
                }
                return;
            };
            let now_ms = (sources.now_ms)();
            for queue in &queues {
                let is_timed =
                    timed && rules.iter().any(|rule| needs_times(rule) && rule.covers(&queue.destination));
                let key = (queue.partition, queue.queue);
                let times = if is_timed { histories.note(key, queue, now_ms) } else { Times::default() };
                read_queue(rules, queue, times, all);
            }
            after = next;
            if after.is_none() {
                break;
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
    }
}

/// Adds the values of one queue to those of the rules that cover it.
fn read_queue(rules: &[AlertRule], queue: &WatchedQueue, times: Times, all: &mut [Readings]) {
    let mut subject: Option<Arc<str>> = None;
    for (rule, readings) in rules.iter().zip(all) {
        if !rule.on.is_of_queue() || !rule.covers(&queue.destination) {
            continue;
        }
        let value = value_of(rule.on, queue, times);
        if value == 0 || READINGS_MAX <= readings.len() {
            continue;
        }
        let subject = subject.get_or_insert_with(|| queue.subject().into());
        // A queue may have a part in several partitions.
        let sum = readings.entry(subject.clone()).or_insert(0);
        *sum = match rule.on {
            Measure::Age | Measure::Stuck => value.max(*sum),
            _ => sum.saturating_add(value),
        };
    }
}

fn value_of(on: Measure, queue: &WatchedQueue, times: Times) -> u64 {
    match on {
        Measure::Depth => queue.messages,
        Measure::Age => times.age_ms / 1000,
        Measure::NoConsumer if queue.consumers == 0 => queue.messages,
        Measure::DeadLetters => times.dead_letters,
        Measure::Stuck if 0 < queue.consumers => times.oldest_for_ms / 1000,
        Measure::Ledger => queue.difference.unsigned_abs(),
        Measure::NoConsumer | Measure::Stuck | Measure::Disk | Measure::Memory => 0,
    }
}

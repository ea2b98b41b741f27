//! The rounds: values of all queues, stores and the process, and the rules that watch them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use postroad_node::Clients;
use tokio::time::Instant;

use super::Alerts;
use super::history::{Histories, Times};
use super::ledger::{Check, LedgerSums};
use super::notify::{NotificationTargets, Notifier, Post};
use super::rule::{AlertRule, Measure};
use super::state::{ALERTS_MAX, Readings};
use crate::api::Process;
use crate::figures::WatchedQueue;

/// Pause between two rounds with rules.
const PAUSE: Duration = Duration::from_secs(1);

/// Without rules on queues, the ledger is checked at this distance.
const LEDGER_PAUSE: Duration = Duration::from_secs(10);

/// Pause between two pages of queues: a round over 100,000 queues takes half a second or longer,
/// and few per cent of a core.
const PAGE_PAUSE: Duration = Duration::from_millis(10);

/// Values of one rule that are looked at in one round.
const READINGS_MAX: usize = 2 * ALERTS_MAX;

/// Some queues of one core, and where to go on, if there are more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPage {
    /// Those whose counts differ, and, for rules, those that hold messages or have dead letters.
    pub queues: Vec<WatchedQueue>,
    /// The counts of all that were looked at.
    pub sums: LedgerSums,
    /// Where to go on.
    pub next: Option<WatchCursor>,
}

/// A place in the queues of a core: a partition, and the queue there after which to go on.
pub type WatchCursor = (u16, Option<u64>);

/// Looks at some queues of a core; `None` if there is no such core.
pub type WatchQueues =
    Arc<dyn Fn(WatchRequest) -> Pin<Box<dyn Future<Output = Option<WatchPage>> + Send>> + Send + Sync>;

/// Which queues are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The number of the core.
    pub core: usize,
    /// Behind this place.
    pub after: Option<WatchCursor>,
    /// Whether queues that hold messages or have dead letters are wanted, as rules need, beside
    /// those whose counts differ.
    pub for_rules: bool,
}

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

/// Watches as long as the process runs. Without rules only the ledger is checked, and not often.
pub async fn watch(alerts: Alerts, sources: AlertSources) {
    let AlertSources { broker_name, post, clients, .. } = &sources;
    let outlets = NotificationTargets {
        broker_name: broker_name.clone(),
        post: post.clone(),
        clients: clients.clone(),
    };
    let mut notifier = Notifier::new(outlets, alerts.clone());
    let mut changed = alerts.0.rules.subscribe();
    let (mut histories, mut ledger_due) = (Histories::default(), Instant::now());
    loop {
        let rules = changed.borrow_and_update().clone();
        notifier.retain(&rules);
        let of_queues = rules.iter().any(|rule| rule.on.is_of_queue());
        if !of_queues {
            histories = Histories::default();
        }
        let reads_queues = of_queues || ledger_due <= Instant::now();
        let all = readings_of_all(&rules, reads_queues, &sources, &mut histories, &alerts).await;
        if reads_queues {
            ledger_due = Instant::now() + LEDGER_PAUSE;
        }
        // Rules that came meanwhile are looked at in the next round.
        if !changed.has_changed().unwrap_or(true) {
            let now_ms = (sources.now_ms)();
            alerts.state().unlisted = 0;
            for (rule, readings) in rules.iter().zip(&all) {
                let changes = alerts.state().look(rule, readings, now_ms);
                notifier.notify(rule, &changes, now_ms);
            }
        }
        let pause = if rules.is_empty() { LEDGER_PAUSE } else { PAUSE };
        // Other rules are looked at without delay.
        let _ = tokio::time::timeout(pause, changed.changed()).await;
    }
}

/// The values of each rule.
async fn readings_of_all(
    rules: &[AlertRule],
    reads_queues: bool,
    sources: &AlertSources,
    histories: &mut Histories,
    alerts: &Alerts,
) -> Vec<Readings> {
    let mut all = vec![Readings::new(); rules.len()];
    if reads_queues {
        let check = read_queues(rules, sources, histories, &mut all).await;
        check.end(&mut alerts.ledger_mut(), (sources.now_ms)());
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
) -> Check {
    let for_rules = rules.iter().any(|rule| rule.on.is_of_queue());
    let mut check = Check::default();
    let needs_times =
        |rule: &AlertRule| matches!(rule.on, Measure::Age | Measure::Stuck | Measure::DeadLetters);
    let (timed, was_full) = (rules.iter().any(needs_times), histories.is_full());
    let (mut core, mut after) = (0, None);
    while let Some(page) = (sources.queues)(WatchRequest { core, after, for_rules }).await {
        let (WatchPage { queues, sums, next }, now_ms) = (page, (sources.now_ms)());
        check.add(sums, &queues);
        for queue in &queues {
            let is_timed =
                timed && rules.iter().any(|rule| needs_times(rule) && rule.covers(&queue.destination));
            let key = (queue.partition, queue.queue);
            let times = if is_timed { histories.note(key, queue, now_ms) } else { Times::default() };
            read_queue(rules, queue, times, all);
        }
        after = next;
        match after {
            Some(_) => tokio::time::sleep(PAGE_PAUSE).await,
            None => core += 1,
        }
    }
    histories.end_round();
    if histories.is_full() && !was_full {
        tracing::warn!("more queues than alert rules can follow hold messages: ages of some are not known");
    }
    check
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

#[cfg(test)]
mod tests {
    use postroad_model::Destination;

    use super::super::rule::{Recipient, Severity};
    use super::*;

    fn queue(messages: u64, difference: i64) -> WatchedQueue {
        WatchedQueue {
            partition: 0,
            queue: 7,
            destination: Destination::queue("a"),
            subscription: None,
            messages,
            consumers: 0,
            dead_lettered: 0,
            oldest: None,
            next: 0,
            difference,
        }
    }

    /// Two cores: the first has two pages, and a queue with a difference on the second of them.
    fn page(request: WatchRequest) -> Option<WatchPage> {
        let sums = LedgerSums { queues: 1000, sent: 5, ..LedgerSums::default() };
        match (request.core, request.after) {
            (0, None) => Some(WatchPage { sums, next: Some((0, Some(7))), ..WatchPage::default() }),
            (0, Some(_)) => {
                let sums = LedgerSums { difference: 2, differing: 1, ..sums };
                Some(WatchPage { queues: vec![queue(0, -2)], sums, next: None })
            }
            // The queue is on the move, and has a part here too.
            (1, None) if request.for_rules => Some(WatchPage { queues: vec![queue(4, 0)], sums, next: None }),
            (1, None) => Some(WatchPage { sums, ..WatchPage::default() }),
            _ => None,
        }
    }

    fn rule(name: &str, on: Measure) -> AlertRule {
        AlertRule {
            name: name.into(),
            severity: Severity::Warning,
            on,
            destinations: Vec::new(),
            above: 1,
            clear_at: 1,
            lasts: Duration::ZERO,
            to: vec![Recipient::Log],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_ledger_is_checked_without_rules_and_rules_are_looked_at_once_they_come() {
        let alerts = Alerts::default();
        let sources = AlertSources {
            broker_name: "one".to_owned(),
            queues: Arc::new(|request| Box::pin(async move { page(request) })),
            disks: Arc::new(|| vec![("main".to_owned(), 95)]),
            memory_bytes_max: 1,
            post: Arc::new(|_, _| Box::pin(async { Ok(()) })),
            clients: Clients::over(1).0,
            now_ms: || 5,
        };
        tokio::spawn(watch(alerts.clone(), sources));
        tokio::time::sleep(Duration::from_secs(25)).await;
        let ledger = alerts.ledger();
        assert_eq!((ledger.checks, ledger.checked_ms), (3, Some(5)));
        assert_eq!((ledger.sums.queues, ledger.sums.sent, ledger.sums.difference), (3000, 15, 2));
        assert_eq!(ledger.differing, [("queue://a".into(), -2)]);
        alerts.follow(vec![
            rule("depth", Measure::Depth),
            rule("disk", Measure::Disk),
            rule("ledger", Measure::Ledger),
            rule("lonely", Measure::NoConsumer),
            rule("old", Measure::Age),
        ]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let firing: Vec<_> = alerts
            .list()
            .into_iter()
            .map(|listed| (listed.rule.name.to_string(), listed.subject.to_string(), listed.alert.value))
            .collect();
        let want = [
            ("depth", "queue://a", 4),
            ("disk", "store main", 95),
            ("ledger", "queue://a", 2),
            ("lonely", "queue://a", 4),
        ];
        assert_eq!(firing, want.map(|(rule, subject, value)| (rule.to_owned(), subject.to_owned(), value)));
        assert!(alerts.figures().iter().all(|of| (of.alert == "old") == (of.firing == 0)));
    }
}

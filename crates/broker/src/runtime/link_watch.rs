//! The link watch: finds messages that wait here although a consumer behind a link could take them.
//!
//! ```text
//!   every half second ─▶ late answers of the peer
//!                     └▶ queues that the peer has demand for: does a message wait, and has none left since? ─▶ explain
//! ```
//! A message that waits over a second has a cause, which operators see on the board of links and in
//! the log. Never on a message's way: at most [`QUEUES_PER_TURN`] queues are looked at in a turn.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postroad_bridge::BROKER_PATH;
use postroad_model::{
    Ask, Destination, Explained, Order, Page, Question, QueueRow, QueuesOfLink, Row, Verdict, VerdictRow,
};
use postroad_node::{Client, ClientError, ClientOptions, Clients};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::runtime::links::{LinkBoard, LinkKey, Wait};
use crate::runtime::now_ms;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(500);

/// A turn that takes longer is given up: cores that do not answer have other alarms.
const TURN_MAX: Duration = Duration::from_secs(5);

/// A message that waits for this time is stuck.
const STUCK_AFTER_MS: u64 = 1000;

/// Queues that one turn looks at; with more of them each turn goes on after the last.
const QUEUES_PER_TURN: usize = 64;

/// Queues of all links that are looked at, in the order of the links' names.
const QUEUES_MAX: usize = 4096;

/// Why messages wait for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Consumers at the peer have no free credit. That is no fault.
    NoCredit,
    /// The link is down.
    LinkDown,
    /// The peer was sent messages and says nothing.
    PeerSilent,
    /// The peer answers, but does not confirm messages.
    Unconfirmed,
    /// The peer refuses messages.
    Refused,
    /// The message has passed as many brokers as it may.
    HopLimit,
    /// The message has passed the peer.
    AlreadyVisited,
    /// The options of the link exclude the queue.
    Excluded,
    /// Settled messages do not leave the queue.
    StoreStalled,
}

impl Cause {
    /// Its name in the API.
    pub fn code(self) -> &'static str {
        match self {
            Cause::NoCredit => "no_credit",
            Cause::LinkDown => "link_down",
            Cause::PeerSilent => "peer_silent",
            Cause::Unconfirmed => "unconfirmed",
            Cause::Refused => "refused",
            Cause::HopLimit => "hop_limit",
            Cause::AlreadyVisited => "already_visited",
            Cause::Excluded => "excluded",
            Cause::StoreStalled => "store_stalled",
        }
    }

    /// The sentence in the log.
    pub fn text(self) -> &'static str {
        match self {
            Cause::NoCredit => "consumers at the peer have no free credit",
            Cause::LinkDown => "the link is down",
            Cause::PeerSilent => "the peer reads nothing, or does not answer",
            Cause::Unconfirmed => {
                "the peer answers but confirms no message: its store is slow, stopped or full"
            }
            Cause::Refused => "the peer refuses messages",
            Cause::HopLimit => "message_ttl: the message has passed as many brokers as it may",
            Cause::AlreadyVisited => "the message has passed the peer before",
            Cause::Excluded => "include or exclude of the link leaves the queue out",
            Cause::StoreStalled => "the store of this broker does not write",
        }
    }

    /// Whether a message that waits for this is stuck. A consumer without credit takes none, and an
    /// excluded queue is the operator's choice.
    pub fn is_stuck(self) -> bool {
        !matches!(self, Cause::NoCredit | Cause::Excluded)
    }
}

/// A link as the watch sees it.
#[derive(Clone, Debug, Default)]
pub struct WatchedLink {
    /// It is not linked.
    pub is_down: bool,
    /// Id of the peer.
    pub peer_id: String,
    /// The queues that the peer has demand for, or last had.
    pub queues: QueuesOfLink,
    /// Messages that the peer has not answered.
    pub in_flight: u64,
    /// When the oldest of them was sent; zero if there is none.
    pub oldest_sent_ms: u64,
    /// When the peer last said something.
    pub heard_ms: u64,
    /// Messages that the peer has refused and that are sent again after a pause.
    pub resting: u64,
}

/// A queue of a link at the last look.
struct Head {
    /// Messages that had left the queue by then.
    left: u64,
    /// Since when none has left.
    since_ms: u64,
    waiting: u64,
    cause: Option<Cause>,
}

type Spot = (LinkKey, Destination);

struct LinkWatch {
    board: LinkBoard,
    heads: BTreeMap<Spot, Head>,
    /// Links with refused messages, and since when.
    refused: BTreeMap<LinkKey, u64>,
    /// The last queue of the turn before.
    last: Option<Spot>,
}

/// Looks after the links until the broker ends.
pub async fn watch_links(clients: Clients, board: LinkBoard) {
    let mut watch = LinkWatch { board, heads: BTreeMap::new(), refused: BTreeMap::new(), last: None };
    let mut turns = interval(EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let links = watch.board.watched();
        // A broker that stops has no cores left to ask.
        let looked = timeout(TURN_MAX, watch.look(&links, &clients)).await;
        if let Ok(Err(ClientError::Ended)) = looked {
            return;
        }
        watch.judge(&links, now_ms());
    }
}

impl LinkWatch {
    /// Looks at the next queues.
    async fn look(
        &mut self,
        links: &BTreeMap<LinkKey, WatchedLink>,
        clients: &Clients,
    ) -> Result<(), ClientError> {
        let spots = spots_of(links);
        self.heads.retain(|spot, _| spots.contains(spot));
        let next = next_spots(&spots, self.last.as_ref());
        if next.is_empty() {
            return Ok(());
        }
        let client = clients.connect(ClientOptions::named("link-watch")).await?;
        for spot in next {
            let Some(link) = links.get(&spot.0) else { continue };
            self.visit(&spot, link, &client).await?;
            self.last = Some(spot);
        }
        Ok(())
    }

    async fn visit(&mut self, spot: &Spot, link: &WatchedLink, client: &Client) -> Result<(), ClientError> {
        let queue = &spot.1;
        let question = Question::Queues { name_part: "".into(), only: Some(queue.clone()) };
        let page = ask(client, question).await?;
        let row = page.rows.into_iter().find_map(|row| match row {
            Row::Queue(row) if row.subscription.is_none() => Some(row),
            _ => None,
        });
        let waiting = row.as_ref().map_or(0, |row| row.messages.saturating_sub(row.in_flight));
        let Some(row) = row.filter(|_| 0 < waiting) else {
            self.heads.remove(spot);
            return Ok(());
        };
        let (now_ms, left) = (now_ms(), left_of(&row));
        let Some(head) = self.heads.get_mut(spot).filter(|head| head.left == left) else {
            self.heads.insert(spot.clone(), Head { left, since_ms: now_ms, waiting, cause: None });
            return Ok(());
        };
        let page = ask(client, Question::Explain { queue: queue.clone(), of: Explained::Next }).await?;
        let verdicts: Vec<VerdictRow> = page.rows.into_iter().filter_map(verdict_of).collect();
        head.waiting = waiting;
        head.cause = cause_of(link, queue, (&verdicts, now_ms));
        if head.cause.is_none() {
            // A message that others can have does not wait for the link.
            head.since_ms = now_ms;
        }
        Ok(())
    }

    /// Puts the waits of each link on the board.
    fn judge(&mut self, links: &BTreeMap<LinkKey, WatchedLink>, now_ms: u64) {
        self.refused.retain(|key, _| links.get(key).is_some_and(|link| 0 < link.resting));
        for (key, link) in links {
            let late = late_answers(link, now_ms);
            let refused = (0 < link.resting).then(|| {
                let since_ms = *self.refused.entry(key.clone()).or_insert(now_ms);
                (Cause::Refused, String::new(), link.resting, now_ms.saturating_sub(since_ms))
            });
            let heads = self.heads.range((key.clone(), Destination::queue(""))..);
            let heads = heads.take_while(|((of, _), _)| of == key).filter_map(|((_, queue), head)| {
                let waited_ms = now_ms.saturating_sub(head.since_ms);
                Some((head.cause?, queue.to_string(), head.waiting, waited_ms))
            });
            let waits = late.into_iter().chain(refused).chain(heads);
            self.board.judge(key, sum(waits.filter(|(.., waited_ms)| STUCK_AFTER_MS <= *waited_ms)));
        }
    }
}

async fn ask(client: &Client, question: Question) -> Result<Page, ClientError> {
    client.ask(Ask { question, after: None, rows: Ask::ROWS_MAX, order: Order::default() }).await
}

fn verdict_of(row: Row) -> Option<VerdictRow> {
    match row {
        Row::Verdict(row) => Some(row),
        _ => None,
    }
}

/// Messages that have left the queue, in whatever way.
fn left_of(row: &QueueRow) -> u64 {
    row.consumed + row.expired + row.dead_lettered + row.dropped
}

/// The queues of all links.
fn spots_of(links: &BTreeMap<LinkKey, WatchedLink>) -> BTreeSet<Spot> {
    let of_link = |(key, link): (&LinkKey, &WatchedLink)| {
        let QueuesOfLink { read, excluded, .. } = &link.queues;
        let queues = read.values().chain(excluded.iter().map(|(queue, _)| queue));
        queues.map(|queue| (key.clone(), queue.clone())).collect::<BTreeSet<_>>()
    };
    links.iter().flat_map(of_link).take(QUEUES_MAX).collect()
}

/// Those after the last one, and from the beginning on.
fn next_spots(spots: &BTreeSet<Spot>, last: Option<&Spot>) -> Vec<Spot> {
    let is_behind = |spot: &&Spot| last.is_none_or(|last| last < *spot);
    let (behind, before): (Vec<&Spot>, Vec<&Spot>) = spots.iter().partition(is_behind);
    behind.into_iter().chain(before).take(QUEUES_PER_TURN).cloned().collect()
}

/// Messages that the peer should have answered by now.
fn late_answers(link: &WatchedLink, now_ms: u64) -> Option<(Cause, String, u64, u64)> {
    if link.is_down || link.oldest_sent_ms == 0 {
        return None;
    }
    // After a second without an answer the peer was asked for a sign of life.
    let lives = link.oldest_sent_ms.saturating_add(STUCK_AFTER_MS) <= link.heard_ms;
    let cause = if lives { Cause::Unconfirmed } else { Cause::PeerSilent };
    Some((cause, String::new(), link.in_flight, now_ms.saturating_sub(link.oldest_sent_ms)))
}

/// All waits of a link as one: the cause of the longest, of those that are stuck if any is.
fn sum(waits: impl Iterator<Item = (Cause, String, u64, u64)>) -> Option<Wait> {
    let waits: Vec<_> = waits.collect();
    let stuck_messages = waits.iter().filter(|wait| wait.0.is_stuck()).map(|wait| wait.2).sum();
    let longest = waits.into_iter().max_by_key(|(cause, _, _, waited_ms)| (cause.is_stuck(), *waited_ms));
    longest.map(|(cause, queue, _, longest_ms)| Wait { cause, queue, stuck_messages, longest_ms })
}

/// Why the next message of the queue waits for the link; `None` if it does not, or may not for
/// long.
fn cause_of(
    link: &WatchedLink,
    queue: &Destination,
    (verdicts, now_ms): (&[VerdictRow], u64),
) -> Option<Cause> {
    let (of_consumers, of_queue): (Vec<_>, Vec<_>) = verdicts.iter().partition(|row| row.consumer.is_some());
    if of_queue.iter().any(|row| row.verdict == Verdict::Leaving) {
        return Some(Cause::StoreStalled);
    }
    let is_ready = of_queue.iter().any(|row| row.verdict == Verdict::Ready);
    let is_busy = |row: &&VerdictRow| {
        matches!(
            row.verdict,
            Verdict::Moving { .. } | Verdict::Gathering { .. } | Verdict::Reading | Verdict::Returning
        )
    };
    let is_taken = of_consumers.iter().any(|row| row.verdict == Verdict::Takes);
    if !is_ready || is_taken || of_queue.iter().any(is_busy) {
        return None;
    }
    if link.is_down {
        return Some(Cause::LinkDown);
    }
    let QueuesOfLink { read, excluded, .. } = &link.queues;
    if excluded.iter().any(|(other, _)| other == queue) {
        return Some(Cause::Excluded);
    }
    let is_of_link = |row: &&&VerdictRow| row.consumer.is_some_and(|key| read.contains_key(&key.whole()));
    let causes = of_consumers.iter().filter(is_of_link);
    causes
        .filter_map(|row| cause_at(link, &row.verdict, now_ms))
        .max_by_key(|cause| (cause.is_stuck(), *cause))
}

/// Why the subscription of a link does not get the message.
fn cause_at(link: &WatchedLink, verdict: &Verdict, now_ms: u64) -> Option<Cause> {
    match verdict {
        Verdict::OutboxFull { .. } => Some(Cause::PeerSilent),
        Verdict::NoCredit { .. } if 0 < link.resting => Some(Cause::Refused),
        Verdict::NoCredit { .. } => match late_answers(link, now_ms) {
            Some((cause, _, _, late_ms)) if STUCK_AFTER_MS <= late_ms => Some(cause),
            _ => Some(Cause::NoCredit),
        },
        Verdict::Selector { selector, facts, .. } => {
            let may_pass_none = facts.is_empty() && selector.ends_with("1 = 0");
            let all_of_path = !facts.is_empty() && facts.iter().all(|(property, _)| property == BROKER_PATH);
            let passed = |(_, path): &(String, Option<String>)| {
                path.as_ref().is_some_and(|path| path.contains(&link.peer_id))
            };
            match all_of_path {
                true if facts.iter().any(passed) => Some(Cause::AlreadyVisited),
                true => Some(Cause::HopLimit),
                false => may_pass_none.then_some(Cause::HopLimit),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::{ConnectionId, ConsumerKey};

    use super::*;

    const OURS: ConsumerKey = ConsumerKey::new(ConnectionId::new(0, 1), 1);
    const OTHER: ConsumerKey = ConsumerKey::new(ConnectionId::new(0, 2), 1);

    fn linked() -> WatchedLink {
        let mut link = WatchedLink { peer_id: "ID:peer".into(), ..WatchedLink::default() };
        link.queues.read.insert(OURS, Destination::queue("q"));
        link
    }

    fn path(value: Option<&str>) -> Verdict {
        let facts = vec![(BROKER_PATH.to_owned(), value.map(str::to_owned))];
        Verdict::Selector { selector: "…".into(), facts, is_exclusive: false }
    }

    #[test]
    fn a_message_that_waits_for_a_link_has_a_cause() {
        let (ready, no_credit) = (
            || VerdictRow::new(None, Verdict::Ready),
            || Verdict::NoCredit { held: 0, in_transaction: false, for_ms: 0 },
        );
        let down = WatchedLink { is_down: true, ..linked() };
        let late = WatchedLink { in_flight: 1, oldest_sent_ms: 10_000, ..linked() };
        let refusing = WatchedLink { resting: 1, ..linked() };
        let mut excluding = linked();
        excluding.queues.excluded.insert((Destination::queue("q"), "c".into()));
        let own = |facts| Verdict::Selector { selector: "a = 1".into(), facts, is_exclusive: false };
        for (name, link, rows, want) in [
            ("nothing waits", linked(), vec![VerdictRow::new(None, Verdict::NoMessage)], None),
            ("no consumer of the link", linked(), vec![ready()], None),
            (
                "no credit there",
                linked(),
                vec![ready(), VerdictRow::new(Some(OURS), no_credit())],
                Some(Cause::NoCredit),
            ),
            (
                "late answers",
                late,
                vec![ready(), VerdictRow::new(Some(OURS), no_credit())],
                Some(Cause::PeerSilent),
            ),
            (
                "another takes it",
                linked(),
                vec![
                    ready(),
                    VerdictRow::new(Some(OURS), no_credit()),
                    VerdictRow::new(Some(OTHER), Verdict::Takes),
                ],
                None,
            ),
            ("another cannot", linked(), vec![ready(), VerdictRow::new(Some(OTHER), no_credit())], None),
            (
                "the peer does not read",
                linked(),
                vec![ready(), VerdictRow::new(Some(OURS), Verdict::OutboxFull { bytes: 9 })],
                Some(Cause::PeerSilent),
            ),
            (
                "the peer refuses",
                refusing,
                vec![ready(), VerdictRow::new(Some(OURS), no_credit())],
                Some(Cause::Refused),
            ),
            (
                "passed the peer",
                linked(),
                vec![ready(), VerdictRow::new(Some(OURS), path(Some("ID:a, ID:peer")))],
                Some(Cause::AlreadyVisited),
            ),
            (
                "too many hops",
                linked(),
                vec![ready(), VerdictRow::new(Some(OURS), path(Some("ID:a")))],
                Some(Cause::HopLimit),
            ),
            (
                "no hop at all",
                linked(),
                vec![
                    ready(),
                    VerdictRow::new(
                        Some(OURS),
                        Verdict::Selector { selector: "1 = 0".into(), facts: vec![], is_exclusive: false },
                    ),
                ],
                Some(Cause::HopLimit),
            ),
            (
                "no consumer selects it",
                linked(),
                vec![ready(), VerdictRow::new(Some(OURS), own(vec![("a".into(), None)]))],
                None,
            ),
            (
                "the link is down",
                down.clone(),
                vec![ready(), VerdictRow::new(None, Verdict::NoConsumer)],
                Some(Cause::LinkDown),
            ),
            ("down, and nothing waits", down, vec![VerdictRow::new(None, Verdict::NoMessage)], None),
            ("excluded", excluding, vec![ready()], Some(Cause::Excluded)),
            (
                "the store does not write",
                linked(),
                vec![VerdictRow::new(None, Verdict::Leaving)],
                Some(Cause::StoreStalled),
            ),
            (
                "it moves",
                linked(),
                vec![
                    ready(),
                    VerdictRow::new(None, Verdict::Moving { held: 0, transactions: 0 }),
                    VerdictRow::new(Some(OURS), no_credit()),
                ],
                None,
            ),
        ] {
            assert_eq!(cause_of(&link, &Destination::queue("q"), (&rows, 20_000)), want, "case: {name}");
        }
    }

    #[test]
    fn late_answers_tell_a_silent_peer_from_one_that_does_not_confirm() {
        let late = |heard_ms, now_ms| {
            let link = WatchedLink { in_flight: 3, oldest_sent_ms: 10_000, heard_ms, ..linked() };
            late_answers(&link, now_ms).map(|(cause, _, messages, waited_ms)| (cause, messages, waited_ms))
        };
        assert_eq!(late(10_500, 12_000), Some((Cause::PeerSilent, 3, 2000)));
        assert_eq!(late(11_200, 12_000), Some((Cause::Unconfirmed, 3, 2000)));
        assert_eq!(late_answers(&linked(), 12_000), None, "nothing is in flight");
    }

    #[test]
    fn stuck_messages_come_before_those_that_wait_for_credit() {
        let of = |cause, messages, waited_ms| (cause, String::new(), messages, waited_ms);
        assert_eq!(sum([].into_iter()), None);
        let wait =
            sum([of(Cause::NoCredit, 5, 9000), of(Cause::HopLimit, 2, 3000), of(Cause::PeerSilent, 1, 4000)]
                .into_iter());
        let want =
            Wait { cause: Cause::PeerSilent, queue: String::new(), stuck_messages: 3, longest_ms: 4000 };
        assert_eq!(wait, Some(want));
        let wait = sum([of(Cause::NoCredit, 5, 9000)].into_iter()).unwrap();
        assert_eq!((wait.stuck_messages, wait.longest_ms), (0, 9000));
    }

    #[test]
    fn a_turn_looks_at_a_bounded_number_of_queues_and_all_get_their_turn() {
        let board = LinkBoard::default();
        let key = board.opened("east", 0, "auto");
        let mut link = WatchedLink::default();
        for number in 0..QUEUES_MAX as u32 + 10 {
            let of = ConsumerKey::new(ConnectionId::new(0, 1), number);
            link.queues.read.insert(of, Destination::queue(&format!("q{number:05}")));
        }
        let spots = spots_of(&BTreeMap::from([(key, link)]));
        assert_eq!(spots.len(), QUEUES_MAX);
        let (mut seen, mut last) = (BTreeSet::new(), None);
        for _ in 0..QUEUES_MAX / QUEUES_PER_TURN {
            let next = next_spots(&spots, last.as_ref());
            assert_eq!(next.len(), QUEUES_PER_TURN);
            last = next.last().cloned();
            seen.extend(next);
        }
        assert_eq!(seen.len(), QUEUES_MAX);
    }
}

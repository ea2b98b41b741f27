//! Why a message is not delivered, in words, with the smallest change that would deliver it.
//!
//! Which verdict decides, and which change removes it, is decided by
//! [`postroad_model::decisive`]; here both get their sentences.

mod growing;
mod words;

use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use axum::{Extension, Json};
use postroad_model::{
    Ask, Destination, Explained as Of, JobsWanted, LinkBar, Order, Question, QueueFlow, Row, Verdict,
    VerdictRow,
};
use postroad_node::Client;
use serde::Serialize;

use self::growing::Growing;
use self::words::Words;
use super::lists::existing;
use super::messages::{no_message, tag_of};
use super::problem::Problem;
use super::{Api, Caller, queue_of};
use crate::figures::BridgeFigures;

/// A search of all queues ends after this time, and once it has found the message so often.
const SEARCH_WITHIN: Duration = Duration::from_secs(10);
const FOUND_MAX: usize = 20;

/// Links that are named at most.
const LINKS_MAX: usize = 8;

#[derive(Debug, Serialize)]
pub struct Explained {
    queue: String,
    /// The message that was asked for; the next one to be delivered without it.
    message: Option<String>,
    /// The answer in a sentence.
    summary: String,
    /// The smallest change that would deliver the message, if one is needed.
    remedy: Option<String>,
    /// About the queue and the message.
    queue_verdicts: Vec<ExplainedVerdict>,
    /// About each consumer.
    consumer_verdicts: Vec<ExplainedVerdict>,
    /// Why the queue grows, if it does; of a queue alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    growth: Option<Growing>,
}

#[derive(Clone, Debug, Serialize)]
struct ExplainedVerdict {
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<String>,
    code: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    /// It keeps the message from being delivered, to this consumer or at all.
    blocks: bool,
}

/// Where a message is, of all queues.
#[derive(Debug, Serialize)]
pub struct Search {
    id: String,
    queues: Vec<Explained>,
    /// Queues that were searched.
    searched: u64,
    /// All queues were searched in time.
    is_complete: bool,
}

pub async fn of_queue(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Explained>, Problem> {
    let queue = queue_of(&name)?;
    let client = api.client(&caller).await?;
    existing(&client, &queue).await?;
    let rows = verdicts(&client, &queue, Of::Next).await?;
    let mut explained = Explained::of((&api, &caller), (&queue, None), &rows);
    let words = Words { queue: &queue, now_ms: api.now_ms() };
    explained.growth = flow(&client, &queue).await?.map(|flow| Growing::of(&flow, &rows, words));
    Ok(Json(explained))
}

pub async fn of_message(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Json<Explained>, Problem> {
    let queue = queue_of(&name)?;
    let client = api.client(&caller).await?;
    existing(&client, &queue).await?;
    let due = if api.administers(&caller) { scheduled(&client, &id).await? } else { Vec::new() };
    let explained = of_one((&api, &caller), &client, &queue, (&id, &due)).await?;
    explained.map(Json).ok_or_else(|| no_message(&queue, &id))
}

pub async fn of_id(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Search>, Problem> {
    let client = api.client(&caller).await?;
    let mut search = Search { id: id.clone(), queues: Vec::new(), searched: 0, is_complete: false };
    let until = Instant::now() + SEARCH_WITHIN;
    let due = scheduled(&client, &id).await?;
    let mut after = None;
    loop {
        let question = Question::Queues { name_part: "".into(), only: None };
        let page = client.ask(Ask { question, after, rows: Ask::ROWS_MAX, order: Order::default() }).await?;
        for queue in page.rows.into_iter().filter_map(queue_in) {
            search.queues.extend(of_one((&api, &caller), &client, &queue, (&id, &due)).await?);
            search.searched += 1;
            if FOUND_MAX <= search.queues.len() || until <= Instant::now() {
                return Ok(Json(search));
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    search.is_complete = true;
    if search.queues.is_empty() {
        let text = format!(
            "no queue of {} has the message {id}: it was consumed, has expired, or never came; \
             see the dead letters and `postroad ctl ledger`",
            search.searched
        );
        return Err(Problem::new(404, text));
    }
    Ok(Json(search))
}

fn queue_in(row: Row) -> Option<Destination> {
    match row {
        Row::Queue(row) if row.subscription.is_none() => Some(row.destination),
        _ => None,
    }
}

/// The explanation of a message, if the queue has it, or will have it.
async fn of_one(
    (api, caller): (&Api, &Caller),
    client: &Client,
    queue: &Destination,
    (id, due): (&str, &[(Destination, u64)]),
) -> Result<Option<Explained>, Problem> {
    let (of, wanted) = (queue.clone(), id.to_owned());
    let tag = client.run(move |local| async move { tag_of(&local, of, &wanted).await }).await??;
    let of = tag.map_or_else(|| Of::Id(id.into()), Of::Entry);
    let mut rows = verdicts(client, queue, of).await?;
    if rows.is_empty() {
        let here = due.iter().find(|(to, _)| to == queue);
        let delayed = |due_ms: &u64| Verdict::Delayed { for_ms: due_ms.saturating_sub(api.now_ms()) };
        rows.extend(here.map(|(_, due_ms)| VerdictRow::new(None, delayed(due_ms))));
    }
    Ok((!rows.is_empty()).then(|| Explained::of((api, caller), (queue, Some(id)), &rows)))
}

async fn verdicts(client: &Client, queue: &Destination, of: Of) -> Result<Vec<VerdictRow>, Problem> {
    let mut rows = ask(client, Question::Explain { queue: queue.clone(), of }).await?;
    // The partition of the queue may not know the branches of its transactions, nor the names of
    // connections.
    for row in &mut rows {
        match &mut row.verdict {
            Verdict::Prepared { transaction, branch: named @ None, .. } => {
                let of = Question::Explain { queue: queue.clone(), of: Of::Transaction(*transaction) };
                *named = ask(client, of).await?.into_iter().find_map(|row| match row.verdict {
                    Verdict::Prepared { branch, .. } => branch,
                    _ => None,
                });
            }
            Verdict::Uncommitted { connection, by, .. } | Verdict::Settled { connection, by, .. }
                if by.is_empty() =>
            {
                let of = Question::Explain { queue: queue.clone(), of: Of::Connection(*connection) };
                let name = ask(client, of).await?.into_iter().find_map(|row| match row.verdict {
                    Verdict::Uncommitted { by, .. } => Some(by),
                    _ => None,
                });
                *by = name.unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(rows)
}

/// The last minute of the queue.
async fn flow(client: &Client, queue: &Destination) -> Result<Option<QueueFlow>, Problem> {
    let question = Question::Explain { queue: queue.clone(), of: Of::Flow };
    let ask = Ask { question, after: None, rows: 1, order: Order::default() };
    Ok(client.ask(ask).await?.rows.into_iter().find_map(|row| match row {
        Row::Flow(flow) => Some(*flow),
        _ => None,
    }))
}

async fn ask(client: &Client, question: Question) -> Result<Vec<VerdictRow>, Problem> {
    let ask = Ask { question, after: None, rows: Ask::ROWS_MAX, order: Order::default() };
    let rows = client.ask(ask).await?.rows.into_iter().filter_map(|row| match row {
        Row::Verdict(row) => Some(row),
        _ => None,
    });
    Ok(rows.collect())
}

/// Where a message goes that is due later, and when, by the name of its job: that is its id for
/// clients that schedule messages by headers.
async fn scheduled(client: &Client, id: &str) -> Result<Vec<(Destination, u64)>, Problem> {
    let question = Question::Schedules(JobsWanted { job: Some(id.into()), ..JobsWanted::all() });
    let ask = Ask { question, after: None, rows: Ask::SCHEDULES_MAX, order: Order::default() };
    let due = client.ask(ask).await?.rows.into_iter().filter_map(|row| match row {
        Row::Schedule(row) => Some((row.id.due.at_ms, row.record?.to)),
        _ => None,
    });
    Ok(due.flat_map(|(at_ms, to)| to.into_iter().map(move |to| (to, at_ms))).collect())
}

impl Explained {
    fn of(
        (api, caller): (&Api, &Caller),
        (queue, message): (&Destination, Option<&str>),
        rows: &[VerdictRow],
    ) -> Explained {
        let mut explained = Explained::said(queue, message, (rows, api.now_ms()));
        // Links belong to the operators of the broker.
        let links = if api.administers(caller) { (api.0.options.bridges)() } else { Vec::new() };
        let waits = rows.iter().any(|row| row.verdict == Verdict::Ready);
        if waits && !rows.iter().any(|row| row.is_link) {
            let barring = if links.is_empty() { Vec::new() } else { (api.0.options.barring)(queue) };
            let bar_of = |link: &BridgeFigures| {
                let found = |(name, number, _): &&(String, u16, LinkBar)| {
                    *name == link.bridge && *number == link.number
                };
                barring.iter().find(found).map(|(_, _, bar)| *bar)
            };
            let mut verdicts: Vec<_> = links.iter().map(|link| (bar_of(link), link)).collect();
            // Those that do not serve the queue come first: the others have no demand for it.
            verdicts.sort_by_key(|(bar, _)| (bar.is_none(), *bar));
            let verdicts = verdicts.into_iter().map(|(bar, link)| of_link(link, bar));
            explained.queue_verdicts.extend(verdicts.take(LINKS_MAX));
        }
        explained
    }

    fn said(queue: &Destination, message: Option<&str>, (rows, now_ms): (&[VerdictRow], u64)) -> Explained {
        let words = Words { queue, now_ms };
        let (of_queue, of_consumers): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.consumer.is_none());
        let (summary, remedy) = words.summary(rows, of_consumers.len());
        let said = |rows: Vec<&VerdictRow>| -> Vec<ExplainedVerdict> {
            rows.into_iter().map(|row| ExplainedVerdict::of(row, words)).collect()
        };
        Explained {
            queue: queue.to_string(),
            message: message.map(str::to_owned),
            summary,
            remedy,
            queue_verdicts: said(of_queue),
            consumer_verdicts: said(of_consumers),
            growth: None,
        }
    }
}

impl ExplainedVerdict {
    fn of(row: &VerdictRow, words: Words<'_>) -> ExplainedVerdict {
        let connection = row.consumer.map(|key| key.connection).or(match &row.verdict {
            Verdict::Uncommitted { connection, .. } | Verdict::Settled { connection, .. } => {
                Some(*connection)
            }
            _ => None,
        });
        let connection = connection.map(super::lists::connection_text);
        let consumer = row.consumer.map(|key| match row.name.is_empty() {
            true => key.number.to_string(),
            false => row.name.to_string(),
        });
        let blocks = !matches!(row.verdict, Verdict::Full | Verdict::Browses)
            && (row.verdict.change().is_some() || row.verdict == Verdict::NoMessage);
        let (code, text) = words.of(row);
        ExplainedVerdict { consumer, connection, code, text, remedy: words.remedy(&row.verdict), blocks }
    }
}

/// A link that does not read the queue: its rules leave it out, or the peer has no demand.
fn of_link(link: &BridgeFigures, bar: Option<LinkBar>) -> ExplainedVerdict {
    let BridgeFigures { bridge, peer, state, reason, .. } = link;
    let (code, text, remedy) = match (*state, bar) {
        ("linked", Some(LinkBar::Excluded)) => (
            "link_excludes",
            format!(
                "Consumers at {peer} want the queue, but include or exclude of the link {bridge} leaves it out."
            ),
            "Change include or exclude of the link, and reload the configuration.",
        ),
        ("linked", Some(LinkBar::TooFar)) => (
            "link_hop_limit",
            format!(
                "Consumers behind {peer} want the queue, but they are further away than consumer_ttl of the \
                 link {bridge} permits (networkTTL of ActiveMQ)."
            ),
            "Raise consumer_ttl and message_ttl of the link, and reload the configuration.",
        ),
        ("linked", Some(LinkBar::OwnPath)) => (
            "link_own_path",
            format!(
                "Consumers that {peer} knows have another path from this broker: the link {bridge} does not \
                 send the queue's messages a second way."
            ),
            "See the links on that path, or attach a consumer at the peer itself.",
        ),
        ("linked", None) => (
            "link_without_demand",
            format!("The link {bridge} to {peer} has no demand for the queue: no consumer there reads it."),
            "Attach a consumer at the peer.",
        ),
        _ => (
            "link_down",
            format!(
                "The link {bridge} is down ({state}{}).",
                if reason.is_empty() { String::new() } else { format!(": {reason}") }
            ),
            "See `postroad ctl bridges` for the reason.",
        ),
    };
    ExplainedVerdict {
        consumer: None,
        connection: None,
        code,
        text,
        remedy: Some(remedy.to_owned()),
        blocks: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::{ConnectionId, ConsumerKey, PartitionId, TransactionId};

    fn row(consumer: Option<u32>, verdict: Verdict) -> VerdictRow {
        let consumer = consumer.map(|number| ConsumerKey::new(ConnectionId::new(0, 1), number));
        VerdictRow::new(consumer, verdict)
    }

    #[test]
    fn the_summary_names_the_cause_that_decides_and_its_remedy() {
        let selector = |is_exclusive| Verdict::Selector {
            selector: "colour = 'red'".into(),
            facts: vec![("colour".to_owned(), Some("'blue'".to_owned())), ("size".to_owned(), None)],
            is_exclusive,
        };
        let transaction = TransactionId { coordinator: PartitionId(0), incarnation: 1, number: 7 };
        let prepared =
            |is_sent| Verdict::Prepared { transaction, branch: Some("1:aa:bb".into()), is_sent, messages: 2 };
        let ready = || row(None, Verdict::Ready);
        for (rows, says, remedy) in [
            (vec![row(None, Verdict::NoMessage)], "holds no message", None),
            (vec![ready(), row(None, Verdict::NoConsumer)], "No consumer", Some("Attach a consumer")),
            (vec![row(None, Verdict::Paused), ready()], "paused", Some("ctl resume orders")),
            (vec![ready(), row(Some(1), Verdict::Takes)], "Nothing is in the way", None),
            (
                vec![ready(), row(Some(1), selector(false))],
                "as colour is 'blue' and size is not set",
                Some("selector matches"),
            ),
            (vec![ready(), row(Some(1), selector(true))], "as colour", Some("End the exclusive consumer")),
            (
                vec![
                    ready(),
                    row(Some(1), selector(false)),
                    row(Some(2), Verdict::NoCredit { held: 9, in_transaction: false, for_ms: 61_000 }),
                ],
                "None of the 2 consumers takes the message. The nearest: its prefetch is full: 9 messages are \
                 not acknowledged, the oldest for 61 s.",
                Some("acknowledge"),
            ),
            (
                vec![ready(), row(Some(2), Verdict::NoCredit { held: 0, in_transaction: false, for_ms: 0 })],
                "asks for no message",
                Some("receive"),
            ),
            (
                vec![row(None, Verdict::Held { by: "c".into(), in_transaction: true, for_ms: 4000 })],
                "has had the message in an open transaction for 4 s",
                Some("Commit or roll back"),
            ),
            (
                vec![row(
                    None,
                    Verdict::Settled { connection: ConnectionId::new(0, 1), by: "c7".into(), for_ms: 4000 },
                )],
                "A consumer that has left acknowledged the message in an open transaction of the connection \
                 c7, begun 4 s ago",
                Some("Commit or roll back"),
            ),
            (
                vec![
                    ready(),
                    row(Some(2), Verdict::NoCredit { held: 1, in_transaction: true, for_ms: 2000 }),
                ],
                "its prefetch is full: 1 message is in open transactions, the oldest for 2 s",
                Some("Commit or roll back"),
            ),
            (
                vec![row(None, prepared(false))],
                "prepared transaction 1:aa:bb",
                Some("transactions commit 1:aa:bb"),
            ),
            (
                vec![row(None, Verdict::NoMessage), row(None, prepared(true))],
                "2 messages are in the prepared transaction 1:aa:bb",
                Some("rollback 1:aa:bb"),
            ),
            (
                vec![row(None, Verdict::Resting { for_ms: 90_000 })],
                "until 1970-01-01T00:02:40Z (in 90 s)",
                Some("redelivery delay"),
            ),
            (
                vec![row(None, Verdict::Reserved { lease: 77, for_ms: 10_000 })],
                "reserved the message (lease 77) until 1970-01-01T00:01:20Z (in 10 s)",
                Some("release"),
            ),
            (
                vec![ready(), row(Some(1), Verdict::Group { group: "g".into(), owner: Some("c1".into()) })],
                "group g belongs to the consumer c1",
                Some("End the consumer c1"),
            ),
            (
                vec![ready(), row(Some(1), Verdict::NotExclusive { owner: "c1".into() })],
                "the exclusive consumer c1 has the queue",
                Some("End the consumer c1"),
            ),
        ] {
            let queue = Destination::queue("orders");
            let said = Explained::said(&queue, None, (&rows, 70_000));
            assert!(said.summary.contains(says), "{says}: {}", said.summary);
            let given = said.remedy.as_deref();
            assert_eq!(given.is_some(), remedy.is_some(), "{says}: {given:?}");
            assert!(given.unwrap_or_default().contains(remedy.unwrap_or_default()), "{says}: {given:?}");
        }
    }

    #[test]
    fn a_link_is_down_or_has_no_demand() {
        let excluded = Some(LinkBar::Excluded);
        for (state, reason, bar, code, says) in [
            ("linked", "", None, "link_without_demand", "The link east to b has no demand"),
            ("linked", "", excluded, "link_excludes", "include or exclude of the link east leaves it out"),
            ("linked", "", Some(LinkBar::TooFar), "link_hop_limit", "consumer_ttl of the link east permits"),
            ("linked", "", Some(LinkBar::OwnPath), "link_own_path", "another path from this broker"),
            ("waiting", "refused", excluded, "link_down", "The link east is down (waiting: refused)."),
            ("connecting", "", None, "link_down", "The link east is down (connecting)."),
        ] {
            let (bridge, peer) = ("east".to_owned(), "b".to_owned());
            let figures =
                BridgeFigures { bridge, peer, state, reason: reason.to_owned(), ..Default::default() };
            let said = of_link(&figures, bar);
            assert_eq!(said.code, code);
            assert!(said.text.contains(says), "{}", said.text);
        }
    }
}

//! Why a message is not delivered, in words, with the smallest change that would deliver it.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use postroad_model::{Ask, Destination, EntryTag, Order, Question, Row, Verdict, VerdictRow};
use serde::Serialize;

use super::lists::existing;
use super::messages::{no_message, tag_of};
use super::problem::Problem;
use super::{Api, Caller, queue_of};

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

pub async fn of_queue(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Explained>, Problem> {
    let queue = queue_of(&name)?;
    explain(&api, &caller, queue, None).await
}

pub async fn of_message(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Json<Explained>, Problem> {
    let queue = queue_of(&name)?;
    let client = api.client(&caller).await?;
    existing(&client, &queue).await?;
    let (of, wanted) = (queue.clone(), id.clone());
    let tag = client.run(move |local| async move { tag_of(&local, of, &wanted).await }).await??;
    let tag = tag.ok_or_else(|| no_message(&queue, &id))?;
    explain(&api, &caller, queue, Some((id, tag))).await
}

async fn explain(
    api: &Api,
    caller: &Caller,
    queue: Destination,
    message: Option<(String, EntryTag)>,
) -> Result<Json<Explained>, Problem> {
    let client = api.client(caller).await?;
    existing(&client, &queue).await?;
    let (id, entry) = message.map_or((None, None), |(id, tag)| (Some(id), Some(tag)));
    let question = Question::Explain { queue: queue.clone(), entry };
    let ask = Ask { question, after: None, rows: Ask::ROWS_MAX, order: Order::default() };
    let rows = client.ask(ask).await?.rows.into_iter().filter_map(|row| match row {
        Row::Verdict(row) => Some(row),
        _ => None,
    });
    Ok(Json(Explained::of(queue.to_string(), id, rows.collect())))
}

impl Explained {
    fn of(queue: String, message: Option<String>, rows: Vec<VerdictRow>) -> Explained {
        let (of_queue, of_consumers): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.consumer.is_none());
        let (summary, remedy) = summary(&of_queue, &of_consumers);
        let said = |rows: Vec<&VerdictRow>| rows.into_iter().map(ExplainedVerdict::of).collect();
        Explained {
            queue,
            message,
            summary,
            remedy,
            queue_verdicts: said(of_queue),
            consumer_verdicts: said(of_consumers),
        }
    }
}

/// The first of these that holds decides: a consumer's credit matters to no message that another
/// has.
fn summary(of_queue: &[&VerdictRow], of_consumers: &[&VerdictRow]) -> (String, Option<String>) {
    let first = |wanted: fn(&Verdict) -> bool| of_queue.iter().find(|row| wanted(&row.verdict));
    let decides = first(|verdict| {
        !matches!(verdict, Verdict::Ready | Verdict::NoConsumer | Verdict::Full | Verdict::Reading)
    });
    let decides = decides.or_else(|| first(|verdict| *verdict == Verdict::NoConsumer));
    if let Some(row) = decides {
        let ExplainedVerdict { text, remedy, .. } = ExplainedVerdict::of(row);
        return (text, remedy);
    }
    let takers = of_consumers.iter().filter(|row| row.verdict == Verdict::Takes).count();
    if 0 < takers {
        return (format!("Nothing is in the way: consumers that can take the message now: {takers}."), None);
    }
    // The consumer that is nearest to taking it: credit comes by itself, a selector never changes.
    let rank = |verdict: &Verdict| match verdict {
        Verdict::NoCredit { .. } => 0,
        Verdict::OutboxFull { .. } => 1,
        Verdict::Group { .. } => 2,
        Verdict::NotJudged => 3,
        Verdict::Selector { .. } => 4,
        Verdict::NotExclusive => 5,
        _ => 6,
    };
    let nearest = of_consumers.iter().min_by_key(|row| rank(&row.verdict));
    let Some(nearest) = nearest.map(|row| ExplainedVerdict::of(row)) else {
        return ("The message waits for its turn.".to_owned(), None);
    };
    let all = of_consumers.len();
    let summary = match all {
        1 => format!("The only consumer does not take the message: {}", lower(&nearest.text)),
        _ => format!("None of the {all} consumers takes the message. The nearest: {}", lower(&nearest.text)),
    };
    (summary, nearest.remedy)
}

fn lower(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}

impl ExplainedVerdict {
    fn of(row: &VerdictRow) -> ExplainedVerdict {
        let (code, text, remedy) = words(&row.verdict);
        let blocks = !matches!(row.verdict, Verdict::Ready | Verdict::Takes | Verdict::Full);
        let connection = row.consumer.map(|key| super::lists::connection_text(key.connection));
        let consumer = row.consumer.map(|key| match row.name.is_empty() {
            true => key.number.to_string(),
            false => row.name.to_string(),
        });
        ExplainedVerdict { consumer, connection, code, text, remedy: remedy.map(str::to_owned), blocks }
    }
}

/// Code, sentence and remedy.
fn words(verdict: &Verdict) -> (&'static str, String, Option<&'static str>) {
    let (code, text, remedy) = match verdict {
        Verdict::Selector { selector, facts } => return of_selector(selector, facts),
        Verdict::Held { by, in_transaction } => return held(by, *in_transaction),
        Verdict::NoCredit { held } => {
            let text = format!("It has as many messages as it may: {held} are not settled.");
            return ("no_credit", text, Some("Have the consumer acknowledge, or raise its prefetch."));
        }
        Verdict::OutboxFull { bytes } => {
            let text = format!("Its connection is slow: {bytes} bytes wait to be sent to it.");
            return ("slow_connection", text, Some("Find out why the client does not read, or end it."));
        }
        Verdict::Resting { for_ms } => {
            let seconds = for_ms.div_ceil(1000);
            let text = format!("It failed and is delayed; its redelivery is in {seconds} s.");
            return ("resting", text, Some("Wait, or lower the redelivery delay of its queue."));
        }
        Verdict::Group { group } => {
            let text = format!("The message's group {group} belongs to another consumer.");
            return ("group", text, Some("Wait for the owner of the group, or end its consumer."));
        }
        Verdict::NoMessage => ("no_message", "The queue holds no message.", None),
        Verdict::Ready => ("ready", "The message is ready for a consumer.", None),
        Verdict::Leased { is_reserved: true } => {
            let remedy = "Wait for the end of the reservation, or release it.";
            ("reserved", "An HTTP client has reserved the message.", Some(remedy))
        }
        Verdict::Leased { is_reserved: false } => {
            ("delayed", "The message is delayed.", Some("Wait until it is due."))
        }
        Verdict::Leaving => ("leaving", "It was settled and is about to leave, or cannot be read.", None),
        Verdict::Moving => {
            let remedy = "Wait for the move: see `postroad queue moves`.";
            ("moving", "The queue moves to another store, and delivers nothing meanwhile.", Some(remedy))
        }
        Verdict::Paused => {
            let text = "An operator has paused the queue: its consumers get nothing.";
            ("paused", text, Some("Resume the queue: `postroad ctl resume QUEUE`."))
        }
        Verdict::Reading => ("reading", "Messages are read from the disk now.", Some("Wait a moment.")),
        Verdict::Gathering => {
            let remedy = "Attach more consumers, or lower consumers_before_dispatch.";
            ("gathering", "The queue waits for more consumers before it begins.", Some(remedy))
        }
        Verdict::NoConsumer => {
            ("no_consumer", "No consumer is attached.", Some("Attach a consumer to the queue."))
        }
        Verdict::Full => {
            let remedy = "Consume, purge, or raise the limit.";
            ("full", "The queue or its tenant is at its limit: producers wait or are refused.", Some(remedy))
        }
        Verdict::Takes => ("takes", "It can take the message now.", None),
        Verdict::Browses => ("browser", "It is a browser, which takes no messages.", None),
        Verdict::NotExclusive => {
            let remedy = "End the exclusive consumer.";
            ("not_exclusive", "An exclusive consumer is attached.", Some(remedy))
        }
        Verdict::NotJudged => {
            let text = "Its selector has not been judged: the message is on the disk.";
            ("not_judged", text, Some("Ask about the message by its id, which reads it."))
        }
    };
    (code, text.to_owned(), remedy)
}

fn held(by: &str, in_transaction: bool) -> (&'static str, String, Option<&'static str>) {
    let who = if by.is_empty() { "A consumer".to_owned() } else { format!("The consumer {by}") };
    match in_transaction {
        true => {
            let text = format!("{who} has the message in an open transaction.");
            ("in_transaction", text, Some("Commit or roll back the transaction."))
        }
        false => {
            let text = format!("{who} has the message and has not acknowledged it.");
            ("held", text, Some("Have the consumer acknowledge, or end it: the message comes back."))
        }
    }
}

fn of_selector(
    selector: &str,
    facts: &[(String, Option<String>)],
) -> (&'static str, String, Option<&'static str>) {
    let fact = |(name, value): &(String, Option<String>)| match value {
        Some(value) => format!("{name} is {value}"),
        None => format!("{name} is not set"),
    };
    let because = match facts {
        [] => String::new(),
        _ => format!(", as {}", facts.iter().map(fact).collect::<Vec<_>>().join(" and ")),
    };
    let text = format!("Its selector `{selector}` does not match{because}.");
    ("selector", text, Some("Attach a consumer whose selector matches, or without one."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::{ConnectionId, ConsumerKey};

    fn row(consumer: Option<u32>, verdict: Verdict) -> VerdictRow {
        let key = |number| ConsumerKey { connection: ConnectionId::new(0, 1), number, member: 0 };
        VerdictRow { consumer: consumer.map(key), name: "".into(), verdict }
    }

    #[test]
    fn the_summary_names_the_cause_that_decides() {
        let selector = || Verdict::Selector {
            selector: "colour = 'red'".into(),
            facts: vec![("colour".to_owned(), Some("'blue'".to_owned())), ("size".to_owned(), None)],
        };
        for (rows, says, remedy) in [
            (vec![row(None, Verdict::NoMessage)], "holds no message", None),
            (vec![row(None, Verdict::Ready), row(None, Verdict::NoConsumer)], "No consumer", Some("Attach")),
            (vec![row(None, Verdict::Paused), row(None, Verdict::Ready)], "paused", Some("ctl resume")),
            (vec![row(None, Verdict::Ready), row(Some(1), Verdict::Takes)], "Nothing is in the way", None),
            (
                vec![row(None, Verdict::Ready), row(Some(1), selector())],
                "as colour is 'blue' and size is not set",
                Some("selector matches"),
            ),
            (
                vec![
                    row(None, Verdict::Ready),
                    row(Some(1), selector()),
                    row(Some(2), Verdict::NoCredit { held: 9 }),
                ],
                "None of the 2 consumers takes the message. The nearest: it has as many messages as it may: 9",
                Some("acknowledge"),
            ),
            (
                vec![row(None, Verdict::Held { by: "c".into(), in_transaction: true })],
                "open transaction",
                Some("Commit"),
            ),
        ] {
            let said = Explained::of("queue://q".to_owned(), None, rows);
            assert!(said.summary.contains(says), "{says}: {}", said.summary);
            let given = said.remedy.as_deref();
            assert!(
                remedy.is_none_or(|remedy| given.is_some_and(|given| given.contains(remedy))),
                "{given:?}"
            );
        }
    }
}

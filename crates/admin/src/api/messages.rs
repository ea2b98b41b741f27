//! Messages of a queue: browse, find, remove, move, purge, send.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use data_encoding::BASE64URL_NOPAD;
use postroad_model::{
    Action, Delivery, Destination, EntryTag, Event, Outcome, Publish, Sent, Settle, TransactionKey,
};
use postroad_node::{Attachment, ClientError, ClientOptions, Consumer, Held, LocalClient, write_message};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lists::{existing, find, query};
use super::problem::Problem;
use super::shown::{Shown, ToSend, body_has};
use super::{Api, Caller, destination_of, queue_of};

/// Messages of a page, if nothing else is asked for, and at most.
const MESSAGES: u32 = 50;
const MESSAGES_MAX: u32 = 500;

/// Bytes of each body that are shown, if nothing else is asked for, and at most.
const BODY_BYTES: usize = 4 << 10;
const BODY_BYTES_MAX: usize = 1 << 20;

/// A page has the messages found within this time: a selector may match little of a long queue.
const BROWSE_WITHIN: Duration = Duration::from_secs(5);

/// Messages that a search looks at before others have their turn.
const YIELD_EVERY: u64 = 64;

/// A message that is moved is not larger.
const MOVED_BYTES_MAX: u64 = 16 << 20;

/// Messages that a purge takes at a time.
const PURGE_MESSAGES: u32 = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    selector: Option<String>,
    /// Only messages whose body has this text in it, in whatever case.
    text: Option<String>,
    /// Only messages that were sent at or after this time, in milliseconds since 1970.
    from_ms: Option<i64>,
    /// Only messages that were sent before this time.
    to_ms: Option<i64>,
    limit: Option<u32>,
    cursor: Option<String>,
    body_bytes: Option<usize>,
}

impl Which {
    /// The selector, with the times as further conditions.
    fn condition(&self) -> String {
        let own = self.selector.as_deref().map(str::trim).filter(|selector| !selector.is_empty());
        let conditions = own.map(|own| format!("({own})")).into_iter();
        let from = self.from_ms.map(|from| format!("JMSTimestamp >= {from}"));
        let to = self.to_ms.map(|to| format!("JMSTimestamp < {to}"));
        match (own, &from, &to) {
            (Some(own), None, None) => own.to_owned(),
            _ => conditions.chain(from).chain(to).collect::<Vec<_>>().join(" AND "),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Messages {
    items: Vec<Shown>,
    /// The cursor of the next page; `None` if all has been seen.
    next: Option<String>,
    /// Messages that were looked at, of those that the selector matches.
    scanned: u64,
}

/// Messages to show.
#[derive(Debug, Default)]
struct Sought {
    selector: String,
    /// In lower case; empty for all.
    text: String,
    after: Vec<EntryTag>,
    limit: u32,
    body_bytes: usize,
}

/// A page of a queue.
struct Browsed {
    shown: Vec<Shown>,
    last: BTreeMap<u64, EntryTag>,
    has_more: bool,
    scanned: u64,
}

pub async fn browse(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Messages>, Problem> {
    let (queue, which) = (queue_of(&name)?, query(which)?);
    let limit = which.limit.unwrap_or(MESSAGES);
    if !(1..=MESSAGES_MAX).contains(&limit) {
        return Err(Problem::new(400, format!("limit is {limit}; use 1 to {MESSAGES_MAX}")));
    }
    let body_bytes = which.body_bytes.unwrap_or(BODY_BYTES).min(BODY_BYTES_MAX);
    let after = which.cursor.as_deref().map(read_cursor).transpose()?.unwrap_or_default();
    let client = api.client(&caller).await?;
    existing(&client, &queue).await?;
    let text = which.text.as_deref().unwrap_or_default().to_lowercase();
    let sought = Sought { selector: which.condition(), text, after, limit, body_bytes };
    let page = client.run(move |local| async move { page_of(&local, queue, sought).await });
    let Browsed { shown, last, has_more, scanned } = page.await??;
    Ok(Json(Messages { items: shown, next: has_more.then(|| write_cursor(&last)), scanned }))
}

async fn page_of(client: &LocalClient, queue: Destination, sought: Sought) -> Result<Browsed, ClientError> {
    let Sought { selector, text, after, limit, body_bytes } = sought;
    let mut browser = client.attach(Attachment::browser(queue, &selector, 0)).await?;
    browser.seek(&after);
    browser.credit(limit)?;
    let mut page = Browsed { shown: Vec::new(), last: by_lane(after), has_more: false, scanned: 0 };
    let until = tokio::time::Instant::now() + BROWSE_WITHIN;
    while page.shown.len() < limit as usize {
        match tokio::time::timeout_at(until, browser.next()).await {
            Ok(Some(delivery)) => {
                page.last.extend(by_lane([delivery.tag]));
                page.scanned += 1;
                match text.is_empty() || body_has(&delivery.message, &text) {
                    true => page.shown.push(Shown::of(&delivery, body_bytes)),
                    false => browser.credit(1)?,
                }
                // A busy queue must not keep a core from its other work.
                if page.scanned.is_multiple_of(YIELD_EVERY) {
                    tokio::task::yield_now().await;
                    if until <= tokio::time::Instant::now() {
                        break;
                    }
                }
            }
            Ok(None) => return Ok(page),
            Err(_) => break,
        }
    }
    page.has_more = true;
    Ok(page)
}

/// The last entries, by the lanes in which they lie.
fn by_lane(tags: impl IntoIterator<Item = EntryTag>) -> BTreeMap<u64, EntryTag> {
    tags.into_iter().map(|tag| (tag.0 >> EntryTag::SEQUENCE_BITS, tag)).collect()
}

fn write_cursor(last: &BTreeMap<u64, EntryTag>) -> String {
    let bytes: Vec<u8> = last.values().flat_map(|tag| tag.0.to_be_bytes()).collect();
    BASE64URL_NOPAD.encode(&bytes)
}

fn read_cursor(text: &str) -> Result<Vec<EntryTag>, Problem> {
    let wrong = || Problem::new(400, "cursor is not the \"next\" of an earlier page".to_owned());
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| wrong())?;
    // A queue has fewer lanes than this.
    if !bytes.len().is_multiple_of(8) || 64 * 8 < bytes.len() {
        return Err(wrong());
    }
    let tags =
        bytes.chunks_exact(8).map(|tag| EntryTag(u64::from_be_bytes(tag.try_into().unwrap_or_default())));
    Ok(tags.collect())
}

/// The selector of one message.
fn of_id(id: &str) -> String {
    format!("JMSMessageID = '{}'", id.replace('\'', "''"))
}

pub fn no_message(queue: &Destination, id: &str) -> Problem {
    Problem::new(404, format!("{queue} has no message {id} that is ready"))
}

/// Where a message lies in its queue, by its JMSMessageID.
pub async fn tag_of(
    client: &LocalClient,
    queue: Destination,
    id: &str,
) -> Result<Option<EntryTag>, ClientError> {
    let page = page_of(client, queue, Sought { selector: of_id(id), limit: 1, ..Sought::default() }).await?;
    Ok(page.last.into_values().next())
}

pub async fn one(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Json<Shown>, Problem> {
    let queue = queue_of(&name)?;
    let client = api.client(&caller).await?;
    existing(&client, &queue).await?;
    let (selector, of) = (of_id(&id), queue.clone());
    let sought = Sought { selector, limit: 1, body_bytes: BODY_BYTES_MAX, ..Sought::default() };
    let page = client.run(move |local| async move { page_of(&local, of, sought).await });
    page.await??.shown.pop().map(Json).ok_or_else(|| no_message(&queue, &id))
}

/// The end of a search for one message, which does not last long.
async fn in_time<T>(id: &str, search: impl Future<Output = T>) -> Result<T, Problem> {
    let found = tokio::time::timeout(BROWSE_WITHIN, search).await;
    found.map_err(|_| Problem::new(503, format!("{id} was not found in time; try again")))
}

/// Takes one message, as a consumer would.
async fn take(client: &LocalClient, queue: &Destination, id: &str) -> Result<(Consumer, Delivery), Problem> {
    let attachment = Attachment { selector: of_id(id).into(), ..Attachment::operator(queue.clone(), 1) };
    let mut consumer = client.attach(attachment).await?;
    in_time(id, consumer.drain()).await?;
    let delivery = consumer.take().ok_or_else(|| no_message(queue, id))?;
    Ok((consumer, delivery))
}

pub async fn remove(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((name, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let queue = queue_of(&name)?;
    let client = api.client(&caller).await?;
    existing(&client, &queue).await?;
    let removed = client.run(move |local| async move {
        let (consumer, delivery) = take(&local, &queue, &id).await?;
        consumer.settle(&[Held::of(&delivery)], Outcome::Accepted).await?;
        Ok::<_, Problem>(())
    });
    removed.await??;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    /// The queue or topic that it goes to.
    to: String,
}

pub async fn move_to(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((name, id)): Path<(String, String)>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let (queue, to) = (queue_of(&name)?, destination_of(&read_json::<Move>(&body)?.to)?);
    let client = api.client(&caller).await?;
    existing(&client, &queue).await?;
    let said = json!({ "moved": id, "to": to.to_string() });
    let moved = client.run(move |local| async move {
        let (_consumer, delivery) = take(&local, &queue, &id).await?;
        move_delivery(&local, &delivery, to).await
    });
    moved.await??;
    Ok(Json(said))
}

pub async fn copy_to(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((name, id)): Path<(String, String)>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let (queue, to) = (queue_of(&name)?, destination_of(&read_json::<Move>(&body)?.to)?);
    let client = api.client(&caller).await?;
    existing(&client, &queue).await?;
    let said = json!({ "copied": id, "to": to.to_string() });
    let copied = client.run(move |local| async move {
        let mut browser = local.attach(Attachment::browser(queue.clone(), &of_id(&id), 1)).await?;
        let found = in_time(&id, browser.next()).await?;
        let delivery = found.ok_or_else(|| no_message(&queue, &id))?;
        let message = local.whole(&delivery, MOVED_BYTES_MAX).await?;
        Ok::<_, Problem>(local.publish(Sent::new(to, message)).await?)
    });
    copied.await??;
    Ok(Json(said))
}

/// Counts the messages of a page of a dead-letter queue that a redrive would take, by the queues
/// that they would go to; the second is whether all have been seen.
pub async fn redrivable(
    client: &LocalClient,
    queue: Destination,
    selector: String,
    messages_max: u64,
) -> Result<(BTreeMap<String, u64>, bool), ClientError> {
    let (mut origins, mut after, mut seen) = (BTreeMap::new(), Vec::new(), 0);
    let until = tokio::time::Instant::now() + BROWSE_WITHIN;
    loop {
        let sought = Sought {
            selector: selector.clone(),
            after,
            limit: u32::try_from(messages_max - seen).unwrap_or(MESSAGES_MAX).min(MESSAGES_MAX),
            ..Sought::default()
        };
        let page = page_of(client, queue.clone(), sought).await?;
        seen += page.shown.len() as u64;
        for message in &page.shown {
            *origins.entry(message.origin().unwrap_or_default().to_owned()).or_insert(0) += 1;
        }
        if !page.has_more || messages_max <= seen {
            return Ok((origins, !page.has_more));
        }
        if until <= tokio::time::Instant::now() {
            return Ok((origins, false));
        }
        after = page.last.into_values().collect();
    }
}

/// The copy arrives, and the original leaves, in one transaction.
async fn move_delivery(client: &LocalClient, delivery: &Delivery, to: Destination) -> Result<(), Problem> {
    let message = client.whole(delivery, MOVED_BYTES_MAX).await?;
    let key = TransactionKey { connection: client.connection(), number: 1 };
    let publish = client.try_request(|connection, ticket| {
        let publish = Publish::plain(connection, ticket, Sent::new(to, message));
        Event::Publish(Publish { transaction: Some(key), ..publish })
    })?;
    let settle = client.try_request(|_, ticket| {
        let (consumer, tags) = (delivery.consumer, vec![delivery.tag]);
        let (outcome, reason, ticket) = (Outcome::Accepted, None, Some(ticket));
        Event::Settle(Settle { consumer, tags, outcome, transaction: Some(key), reason, ticket })
    })?;
    let ends = match (publish.done().await, settle.done().await) {
        (Ok(()), Ok(())) => {
            client.request(|_, ticket| Event::Commit { transaction: key, participants: Vec::new(), ticket })
        }
        (Err(error), _) | (_, Err(error)) => {
            client.say(Event::Rollback { transaction: key, ticket: None });
            return Err(error.into());
        }
    };
    Ok(ends.await?.result?)
}

pub async fn purge(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    let queue = queue_of(&name)?;
    let client = api.client(&caller).await?;
    let there = existing(&client, &queue).await?.messages;
    api.permissions().grants_of(&caller.principal).check(&caller.principal, Action::Manage, &queue)?;
    // It consumes as the broker itself: the user need not be permitted to read.
    let client = api.0.options.clients.connect(ClientOptions::named("admin-api")).await?;
    let purged = client.run(move |local| async move { purge_some(&local, queue, there).await });
    Ok(Json(json!({ "removed": purged.await?? })))
}

/// Removes ready messages, but not more than were there at the beginning: producers may be faster.
async fn purge_some(client: &LocalClient, queue: Destination, max: u64) -> Result<u64, ClientError> {
    let mut consumer = client.attach(Attachment::operator(queue, 0)).await?;
    let mut removed = 0;
    while removed < max {
        consumer.credit(PURGE_MESSAGES.min(u32::try_from(max - removed).unwrap_or(u32::MAX)))?;
        consumer.drain().await;
        let held: Vec<Held> =
            std::iter::from_fn(|| consumer.take()).map(|delivery| Held::of(&delivery)).collect();
        if held.is_empty() {
            break;
        }
        consumer.settle(&held, Outcome::Accepted).await?;
        removed += held.len() as u64;
    }
    Ok(removed)
}

/// Headers of a request that become properties of its message (W3C Trace Context, section 3).
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

pub async fn send(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let to = destination_of(&name)?;
    let (mut message, id) = (read_json::<ToSend>(&body)?, api.message_id());
    for name in TRACE_HEADERS {
        if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
            message.add_property(name, value);
        }
    }
    let portable = message.portable(&to, &id, api.now_ms(), caller.principal.user().map(|user| &**user))?;
    api.client(&caller).await?.publish(Sent::new(to, write_message(&portable))).await?;
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))))
}

pub async fn declare(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let destination = queue_of(&name)?;
    let client = api.client(&caller).await?;
    let is_there = find(&client, destination.clone()).await?.is_some();
    let make = |connection, ticket| Event::Declare { destination, connection, steals: None, ticket };
    client.request(make).await?.result?;
    Ok(if is_there { StatusCode::OK } else { StatusCode::CREATED })
}

pub async fn delete_queue(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let destination = queue_of(&name)?;
    let client = api.client(&caller).await?;
    existing(&client, &destination).await?;
    let make = |connection, ticket| Event::Delete { destination, connection, ticket };
    client.request(make).await?.result?;
    Ok(StatusCode::NO_CONTENT)
}

pub fn read_json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let right = "see /api/v1/openapi.json for the fields";
        Problem::new(400, format!("the body is not a valid JSON object: {error}; {right}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_others_are_refused() {
        let tags = vec![EntryTag(7), EntryTag(2 << 56 | 9)];
        assert_eq!(read_cursor(&write_cursor(&by_lane(tags.clone()))), Ok(tags));
        for text in ["!", "AAAA", &"A".repeat(10_000)] {
            assert_eq!(read_cursor(text).map_err(|problem| problem.status), Err(400), "{text}");
        }
    }

    #[test]
    fn times_are_conditions_of_the_selector() {
        let which = |selector: Option<&str>, from_ms, to_ms| {
            Which { selector: selector.map(str::to_owned), from_ms, to_ms, ..Which::default() }.condition()
        };
        for (got, want) in [
            (which(None, None, None), ""),
            (which(Some(" "), None, None), ""),
            (which(Some("a = 1"), None, None), "a = 1"),
            (which(Some("a = 1 OR b = 2"), Some(5), None), "(a = 1 OR b = 2) AND JMSTimestamp >= 5"),
            (which(None, Some(5), Some(9)), "JMSTimestamp >= 5 AND JMSTimestamp < 9"),
        ] {
            assert_eq!(got, want);
        }
    }

    #[test]
    fn an_id_cannot_break_out_of_its_selector() {
        assert_eq!(of_id("a' OR TRUE --"), "JMSMessageID = 'a'' OR TRUE --'");
    }
}

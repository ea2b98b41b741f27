//! Calls: requests as operations.

use std::collections::BTreeMap;

use postroad_model::LeaseId;
use serde::Deserialize;
use serde_json::Value;

use crate::alerts::{AlertChange, Alerts, Chosen};
use crate::fields::Fields;
use crate::id::lease;
use crate::push::{headers, subscribers};
use crate::settings::{EXPIRATION_S, TIMEOUT_S_MAX};
use crate::{ApiError, MessageId, Settings, SubscriberChange};

/// Messages in one post, at most: the API promises 100.
pub(crate) const POSTED_MAX: usize = 1000;
/// Messages in one reserve or peek, at most.
pub(crate) const RESERVED_MAX: u64 = 100;
/// Seconds that a reserve waits at most.
pub(crate) const WAIT_S_MAX: u64 = 30;
/// Names on one page, at most and by default.
pub(crate) const PER_PAGE: (u64, u64) = (100, 30);
/// Messages that one delete names, at most.
pub(crate) const DELETED_MAX: usize = 1000;

/// The parts of a request that matter.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The method, as the header `X-HTTP-Method-Override` has it if there is one.
    pub method: &'r str,
    /// The path, still percent-encoded.
    pub path: &'r str,
    /// The query without its question mark.
    pub query: &'r str,
    /// The body.
    pub body: &'r [u8],
}

/// A request of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The project.
    pub project: String,
    /// The operation.
    pub operation: Operation,
}

/// A message to post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Its body.
    pub body: String,
    /// Seconds until it may be reserved.
    pub delay_s: u64,
    /// Headers of the requests that push it.
    pub push_headers: BTreeMap<String, String>,
    /// The trace of its sender, in place of that of the request.
    pub context: Option<TraceHeaders>,
}

/// The trace of a sender (W3C Trace Context, section 3.2), as headers or fields have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceHeaders {
    /// `traceparent`.
    pub parent: String,
    /// `tracestate`.
    pub state: Option<String>,
}

impl TraceHeaders {
    /// Longest text of each: the standard asks for 512 characters of `tracestate`.
    pub const BYTES_MAX: usize = 512;

    /// Of the headers of a request; longer ones are left out, as the standard permits.
    pub fn of(get: impl Fn(&str) -> Option<String>) -> Option<TraceHeaders> {
        let fitting = |name| get(name).filter(|text| text.len() <= TraceHeaders::BYTES_MAX);
        Some(TraceHeaders { parent: fitting("traceparent")?, state: fitting("tracestate") })
    }

    /// Of the fields of a message.
    fn of_fields(fields: &mut Fields) -> Result<Option<TraceHeaders>, ApiError> {
        let mut fitting = |name: &str| match fields.text(name)? {
            Some(text) if TraceHeaders::BYTES_MAX < text.len() => {
                Err(ApiError::bad(format!("{name} has at most {} bytes", TraceHeaders::BYTES_MAX)))
            }
            text => Ok(text),
        };
        let (parent, state) = (fitting("traceparent")?, fitting("tracestate")?);
        Ok(parent.map(|parent| TraceHeaders { parent, state }))
    }
}

/// A message that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Which.
    pub id: MessageId,
    /// By whom it is reserved.
    pub reservation: Option<LeaseId>,
    /// Of a push queue: which subscriber is done with it.
    pub subscriber: Option<String>,
}

/// An operation on queues or messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named as the API names them")]
pub enum Operation {
    /// Names of queues.
    List { prefix: String, previous: String, per_page: u32 },
    /// Make a queue, or change its settings.
    Create { queue: String, change: Change },
    /// Set a queue that is there.
    Update { queue: String, change: Change },
    /// Settings and counts of a queue.
    Info { queue: String },
    /// End a queue with all that it holds.
    DeleteQueue { queue: String },
    /// Send messages.
    Post { queue: String, messages: Vec<NewMessage> },
    /// Send a body as it is.
    Webhook { queue: String },
    /// Reserve messages.
    Reserve { queue: String, n: u32, timeout_s: Option<u64>, wait_s: u64, delete: bool },
    /// Look at messages that are not reserved.
    Peek { queue: String, n: u32 },
    /// Look at one message.
    Get { queue: String, id: MessageId },
    /// Delete messages, all or none.
    Delete { queue: String, messages: Vec<Deleted> },
    /// Delete all messages.
    Clear { queue: String },
    /// Make a reservation last longer.
    Touch { queue: String, id: MessageId, reservation: LeaseId, timeout_s: Option<u64> },
    /// Change the subscribers of a push queue.
    Subscribe { queue: String, change: SubscriberChange },
    /// Change the alerts of a queue.
    Alert { queue: String, change: AlertChange },
    /// How far the subscribers of a push queue are with a message.
    PushStatus { queue: String, id: MessageId },
    /// Give a message back.
    Release { queue: String, id: MessageId, reservation: LeaseId, delay_s: u64 },
}

/// Settings that a request changes: kept as it came, for it changes the settings that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    settings: Value,
    /// Alerts are added to those that are there, and do not replace them.
    adds_alerts: bool,
}

impl Change {
    fn parse(body: &[u8], adds_alerts: bool) -> Result<Change, ApiError> {
        let mut fields = Fields::parse(body)?;
        let settings = fields.take("queue").unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let change = Change { settings, adds_alerts };
        // Nonsense is refused before anything is looked up.
        change.apply(Settings::default(), true)?;
        Ok(change)
    }

    /// The settings after the change; `is_new`: no settings were made yet.
    ///
    /// # Errors
    /// A setting makes no sense.
    pub fn apply(&self, mut settings: Settings, is_new: bool) -> Result<Settings, ApiError> {
        let mut fields = Fields::of(self.settings.clone(), "queue")?;
        settings.update(&mut fields, is_new)?;
        if let Some(items) = fields.list("alerts")? {
            let alerts = Alerts::parse(items)?;
            settings.change_alerts(&match self.adds_alerts {
                true => AlertChange::Add(alerts),
                false => AlertChange::Replace(alerts),
            })?;
        }
        Ok(settings)
    }
}

impl Call {
    /// Reads a request below `/3/`.
    ///
    /// # Errors
    /// There is no such path, or something in the request makes no sense.
    pub fn parse(request: &Request<'_>) -> Result<Call, ApiError> {
        let words: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        let ["3", "projects", project, "queues", rest @ ..] = &words[..] else {
            return Err(ApiError::no_such_path(request.path));
        };
        let project = decoded(project)?;
        let operation = match rest {
            [] | [""] => list(request)?,
            [queue, rest @ ..] => of_queue(request, decoded(queue)?, rest)?,
        };
        Ok(Call { project, operation })
    }
}

fn list(request: &Request<'_>) -> Result<Operation, ApiError> {
    only(request, &["GET"])?;
    let per_page = query_number(request.query, "per_page", 1, PER_PAGE.0)?.unwrap_or(PER_PAGE.1) as u32;
    let text = |name| query(request.query, name).transpose().map(Option::unwrap_or_default);
    Ok(Operation::List { prefix: text("prefix")?, previous: text("previous")?, per_page })
}

fn of_queue(request: &Request<'_>, queue: String, rest: &[&str]) -> Result<Operation, ApiError> {
    match rest {
        [] | [""] => about_queue(request, queue),
        ["messages"] => about_messages(request, queue),
        ["webhook"] => {
            only(request, &["POST"])?;
            Ok(Operation::Webhook { queue })
        }
        ["reservations"] => {
            only(request, &["POST"])?;
            reserve(request, queue)
        }
        ["subscribers"] => subscribe(request, queue),
        ["alerts"] => alert(request, queue),
        ["alerts", id] => {
            only(request, &["DELETE"])?;
            let change = AlertChange::Remove(vec![Chosen::Id(decoded(id)?)]);
            Ok(Operation::Alert { queue, change })
        }
        ["messages", id, "subscribers"] => {
            only(request, &["GET"])?;
            Ok(Operation::PushStatus { queue, id: message_id(id)? })
        }
        ["messages", id] => about_message(request, queue, message_id(id)?),
        ["messages", id, "touch"] => {
            only(request, &["POST"])?;
            let mut fields = Fields::parse(request.body)?;
            let reservation = reservation(&mut fields)?;
            let timeout_s = fields.number("timeout", 1, TIMEOUT_S_MAX)?;
            Ok(Operation::Touch { queue, id: message_id(id)?, reservation, timeout_s })
        }
        ["messages", id, "release"] => {
            only(request, &["POST"])?;
            let mut fields = Fields::parse(request.body)?;
            let reservation = reservation(&mut fields)?;
            let delay_s = fields.number("delay", 0, EXPIRATION_S)?.unwrap_or(0);
            Ok(Operation::Release { queue, id: message_id(id)?, reservation, delay_s })
        }
        _ => Err(ApiError::no_such_path(request.path)),
    }
}

fn about_queue(request: &Request<'_>, queue: String) -> Result<Operation, ApiError> {
    Ok(match only(request, &["GET", "PUT", "PATCH", "DELETE"])? {
        "PUT" => Operation::Create { queue, change: Change::parse(request.body, false)? },
        "PATCH" => Operation::Update { queue, change: Change::parse(request.body, true)? },
        "DELETE" => Operation::DeleteQueue { queue },
        _ => Operation::Info { queue },
    })
}

fn about_messages(request: &Request<'_>, queue: String) -> Result<Operation, ApiError> {
    match only(request, &["GET", "POST", "DELETE"])? {
        "POST" => post(request, queue),
        "DELETE" => delete(request, queue),
        _ => {
            let n = query_number(request.query, "n", 1, RESERVED_MAX)?.unwrap_or(1) as u32;
            Ok(Operation::Peek { queue, n })
        }
    }
}

fn about_message(request: &Request<'_>, queue: String, id: MessageId) -> Result<Operation, ApiError> {
    if only(request, &["GET", "DELETE"])? == "GET" {
        return Ok(Operation::Get { queue, id });
    }
    let mut fields = Fields::parse(request.body)?;
    let message = deleted(id, &mut fields)?;
    Ok(Operation::Delete { queue, messages: vec![message] })
}

fn post(request: &Request<'_>, queue: String) -> Result<Operation, ApiError> {
    let mut fields = Fields::parse(request.body)?;
    let items = fields.list("messages")?.unwrap_or_default();
    if items.is_empty() || POSTED_MAX < items.len() {
        return Err(ApiError::bad(format!("messages is to be a list of 1 to {POSTED_MAX} messages")));
    }
    let message = |item| {
        let mut fields = Fields::of(item, "each of messages")?;
        let body = fields.text("body")?;
        let body = body.ok_or_else(|| ApiError::bad("each of messages has a body, which is a string"))?;
        let delay_s = fields.number("delay", 0, EXPIRATION_S)?.unwrap_or(0);
        let push_headers = headers(&mut fields, "push_headers")?;
        let context = TraceHeaders::of_fields(&mut fields)?;
        Ok(NewMessage { body, delay_s, push_headers, context })
    };
    let messages: Result<Vec<NewMessage>, ApiError> = items.into_iter().map(message).collect();
    Ok(Operation::Post { queue, messages: messages? })
}

fn reserve(request: &Request<'_>, queue: String) -> Result<Operation, ApiError> {
    let mut fields = Fields::parse(request.body)?;
    let n = fields.number("n", 1, RESERVED_MAX)?.unwrap_or(1) as u32;
    // Clients send 0 for a value that they do not set.
    let timeout_s = fields.number("timeout", 0, TIMEOUT_S_MAX)?.filter(|timeout| *timeout != 0);
    let wait_s = fields.number("wait", 0, WAIT_S_MAX)?.unwrap_or(0);
    let delete = fields.boolean("delete")?;
    Ok(Operation::Reserve { queue, n, timeout_s, wait_s, delete })
}

/// The body of a delete as most clients write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainDelete<'b> {
    #[serde(borrow)]
    ids: Vec<PlainHandle<'b>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainHandle<'b> {
    id: &'b str,
    reservation_id: &'b str,
}

/// The messages of a plain body; of any other it is for the fields to say what is wrong.
fn plain_deletes(body: &[u8]) -> Option<Vec<Deleted>> {
    let PlainDelete { ids } = serde_json::from_slice(body).ok()?;
    let one = |handle: PlainHandle<'_>| {
        let (id, reservation) = (message_id(handle.id).ok()?, lease(handle.reservation_id).ok()?);
        Some(Deleted { id, reservation: Some(reservation), subscriber: None })
    };
    let messages: Option<Vec<Deleted>> = ids.into_iter().map(one).collect();
    messages.filter(|messages| (1..=DELETED_MAX).contains(&messages.len()))
}

fn delete(request: &Request<'_>, queue: String) -> Result<Operation, ApiError> {
    if let Some(messages) = plain_deletes(request.body) {
        return Ok(Operation::Delete { queue, messages });
    }
    let mut fields = Fields::parse(request.body)?;
    let Some(items) = fields.list("ids")? else { return Ok(Operation::Clear { queue }) };
    if items.is_empty() || DELETED_MAX < items.len() {
        return Err(ApiError::bad(format!("ids is to be a list of 1 to {DELETED_MAX} messages")));
    }
    let one = |item: Value| {
        if let Value::String(id) = &item {
            return Ok(Deleted { id: message_id(id)?, reservation: None, subscriber: None });
        }
        let mut fields = Fields::of(item, "each of ids")?;
        let id = fields.id("id")?.ok_or_else(|| ApiError::bad("each of ids has an id"))?;
        deleted(message_id(&id)?, &mut fields)
    };
    let messages: Result<Vec<_>, ApiError> = items.into_iter().map(one).collect();
    Ok(Operation::Delete { queue, messages: messages? })
}

fn deleted(id: MessageId, fields: &mut Fields) -> Result<Deleted, ApiError> {
    let reservation = fields.id("reservation_id")?.map(|text| lease(&text)).transpose()?;
    let subscriber = fields.text("subscriber_name")?.filter(|name| !name.is_empty());
    Ok(Deleted { id, reservation, subscriber })
}

fn subscribe(request: &Request<'_>, queue: String) -> Result<Operation, ApiError> {
    let method = only(request, &["POST", "PUT", "DELETE"])?;
    let mut fields = Fields::parse(request.body)?;
    let items = fields.list("subscribers")?;
    let items = items.ok_or_else(|| ApiError::bad("subscribers is missing: a list of name and url"))?;
    let change = match method {
        "POST" => SubscriberChange::Add(subscribers(items)?),
        "PUT" => SubscriberChange::Replace(subscribers(items)?),
        _ => {
            let name = |item| match item {
                Value::String(name) => Ok(name),
                other => {
                    let name = Fields::of(other, "each of subscribers")?.text("name")?;
                    name.ok_or_else(|| ApiError::bad("each of subscribers has a name"))
                }
            };
            SubscriberChange::Remove(items.into_iter().map(name).collect::<Result<_, _>>()?)
        }
    };
    Ok(Operation::Subscribe { queue, change })
}

fn alert(request: &Request<'_>, queue: String) -> Result<Operation, ApiError> {
    let method = only(request, &["POST", "PUT", "DELETE"])?;
    let mut fields = Fields::parse(request.body)?;
    // The Python client wraps them as the settings of a queue are.
    let mut fields = fields.object("queue")?.unwrap_or(fields);
    let items = fields.list("alerts")?;
    let change = match (method, items) {
        // Without a list: all of them.
        ("DELETE", None) => AlertChange::Replace(Vec::new()),
        ("DELETE", Some(items)) => {
            AlertChange::Remove(items.into_iter().map(Chosen::parse).collect::<Result<_, _>>()?)
        }
        (_, None) => return Err(ApiError::bad("alerts is missing: a list of type, trigger and queue")),
        ("POST", Some(items)) => AlertChange::Add(Alerts::parse(items)?),
        (_, Some(items)) => AlertChange::Replace(Alerts::parse(items)?),
    };
    Ok(Operation::Alert { queue, change })
}

fn reservation(fields: &mut Fields) -> Result<LeaseId, ApiError> {
    let text = fields.id("reservation_id")?;
    lease(&text.ok_or_else(|| ApiError::bad("reservation_id is missing"))?)
}

fn message_id(text: &str) -> Result<MessageId, ApiError> {
    MessageId::parse(text).ok_or_else(ApiError::message_not_found)
}

/// The method, if it is one of these.
fn only<'r>(request: &Request<'r>, methods: &[&str]) -> Result<&'r str, ApiError> {
    match methods.contains(&request.method) {
        true => Ok(request.method),
        false => {
            let msg = format!("{} is not allowed here: {}", request.method, methods.join(", "));
            Err(ApiError { status: 405, msg })
        }
    }
}

/// A parameter of a query.
fn query(query: &str, name: &str) -> Option<Result<String, ApiError>> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| decoded(&value.replace('+', " ")))
}

fn query_number(text: &str, name: &str, min: u64, max: u64) -> Result<Option<u64>, ApiError> {
    let Some(value) = query(text, name).transpose()? else { return Ok(None) };
    let number = value.parse().ok().filter(|number| (min..=max).contains(number));
    let wrong =
        || ApiError::bad(format!("{name} is to be a whole number from {min} to {max}, and is {value}"));
    number.map(Some).ok_or_else(wrong)
}

/// Text without its percent-encoding.
fn decoded(text: &str) -> Result<String, ApiError> {
    let wrong = || ApiError::bad(format!("{text} is not percent-encoded UTF-8"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'%', [high, low, behind @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
                (digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low).ok_or_else(wrong)?, behind)
            }
            (b'%', _) => return Err(wrong()),
            (byte, behind) => (*byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::{EntryTag, QueueId};

    fn parse(method: &str, target: &str, body: &str) -> Result<Operation, ApiError> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = format!("/3/projects/p/queues{path}");
        let request = Request { method, path: &path, query, body: body.as_bytes() };
        Call::parse(&request).map(|call| call.operation)
    }

    #[test]
    fn each_request_becomes_its_operation() {
        let id = MessageId { queue: QueueId(2), tag: EntryTag(7) };
        let queue = || "q".to_owned();
        let (at, of) = (
            format!("/q/messages/{id}"),
            format!("{{\"ids\":[{{\"id\":\"{id}\",\"reservation_id\":\"9\"}}]}}"),
        );
        let push_headers = BTreeMap::new();
        let messages = vec![NewMessage { body: "b".into(), delay_s: 3, push_headers, context: None }];
        let deleted = |reservation| vec![Deleted { id, reservation, subscriber: None }];
        for (case, method, target, body, want) in [
            (
                "list",
                "GET",
                "?per_page=5&previous=a%20b&prefix=x",
                "{}",
                Operation::List { prefix: "x".into(), previous: "a b".into(), per_page: 5 },
            ),
            ("info", "GET", "/a%2Fb", "", Operation::Info { queue: "a/b".into() }),
            (
                "post",
                "POST",
                "/q/messages",
                r#"{"messages":[{"body":"b","delay":3}]}"#,
                Operation::Post { queue: queue(), messages },
            ),
            (
                "reserve",
                "POST",
                "/q/reservations",
                r#"{"n":2,"timeout":0,"wait":1,"delete":true}"#,
                Operation::Reserve { queue: queue(), n: 2, timeout_s: None, wait_s: 1, delete: true },
            ),
            ("peek", "GET", "/q/messages?n=3", "{}", Operation::Peek { queue: queue(), n: 3 }),
            ("get", "GET", &at, "", Operation::Get { queue: queue(), id }),
            ("delete", "DELETE", &at, "{}", Operation::Delete { queue: queue(), messages: deleted(None) }),
            (
                "delete many",
                "DELETE",
                "/q/messages",
                &of,
                Operation::Delete { queue: queue(), messages: deleted(Some(LeaseId(9))) },
            ),
            ("clear", "DELETE", "/q/messages", "{}", Operation::Clear { queue: queue() }),
            (
                "touch",
                "POST",
                &format!("{at}/touch"),
                r#"{"reservation_id":"5"}"#,
                Operation::Touch { queue: queue(), id, reservation: LeaseId(5), timeout_s: None },
            ),
            (
                "release",
                "POST",
                &format!("{at}/release"),
                r#"{"reservation_id":"5","delay":10}"#,
                Operation::Release { queue: queue(), id, reservation: LeaseId(5), delay_s: 10 },
            ),
        ] {
            assert_eq!(parse(method, target, body), Ok(want), "case: {case}");
        }
    }

    #[test]
    fn bad_input_is_told_what_is_wrong() {
        for (case, method, target, body, status, words) in [
            ("no JSON", "POST", "/q/messages", "{", 400, "not JSON"),
            ("no object", "POST", "/q/messages", "[]", 400, "is a list"),
            ("no messages", "POST", "/q/messages", "{}", 400, "1 to 1000 messages"),
            ("no body", "POST", "/q/messages", r#"{"messages":[{}]}"#, 400, "has a body"),
            (
                "a body that is no text",
                "POST",
                "/q/messages",
                r#"{"messages":[{"body":1}]}"#,
                400,
                "body is to be a string",
            ),
            (
                "too long a delay",
                "POST",
                "/q/messages",
                r#"{"messages":[{"body":"","delay":604801}]}"#,
                400,
                "604800",
            ),
            ("too many", "POST", "/q/reservations", r#"{"n":101}"#, 400, "from 1 to 100"),
            ("too long a wait", "POST", "/q/reservations", r#"{"wait":31}"#, 400, "from 0 to 30"),
            ("no id", "GET", "/q/messages/x", "", 404, "Message not found"),
            (
                "no reservation",
                "POST",
                "/q/messages/18446744073709551616/touch",
                "{}",
                400,
                "reservation_id is missing",
            ),
            ("a method", "PUT", "/q/messages", "", 405, "GET, POST, DELETE"),
            ("a path", "GET", "/q/letters", "", 404, "Not found"),
            ("percent", "GET", "/%zz", "", 400, "percent-encoded"),
            ("a type", "PUT", "/q", r#"{"queue":{"type":"x"}}"#, 400, "pull, multicast or unicast"),
            ("no url", "POST", "/q/subscribers", r#"{"subscribers":[{"name":"a"}]}"#, 400, "url"),
            (
                "an own header",
                "PUT",
                "/q/subscribers",
                r#"{"subscribers":[{"name":"a","url":"http://h","headers":{"Iron-Message-Id":"1"}}]}"#,
                400,
                "set by the broker",
            ),
            (
                "another scheme",
                "POST",
                "/q/subscribers",
                r#"{"subscribers":[{"name":"a","url":"ftp://h"}]}"#,
                400,
                "http://",
            ),
        ] {
            let error = parse(method, target, body).expect_err(case);
            assert_eq!(error.status, status, "case: {case}: {}", error.msg);
            assert!(error.msg.contains(words), "case: {case}: {}", error.msg);
        }
    }
}

//! Actions: requests of either protocol, with their parameters checked.

use std::collections::BTreeSet;

use crate::error::{Code, SqsError};
use crate::form::read_form;
use crate::id::{Receipt, checked_name, queue_of_arn, queue_of_url};
use crate::message::{BATCH_BYTES_MAX, NewMessage, check_system_names};
use crate::params::{Params, Texts};

/// The start of the header `X-Amz-Target`.
const TARGET: &str = "AmazonSQS.";

/// Entries of one batch, at most.
const ENTRIES_MAX: usize = 10;
/// Characters of the id of an entry.
const ENTRY_ID_CHARS_MAX: usize = 80;
/// Messages of one receive, at most.
const MESSAGES_MAX: u64 = 10;
/// Seconds that a receive waits, at most.
const WAIT_S_MAX: u64 = 20;
/// Seconds that a message stays invisible, at most.
pub(crate) const VISIBILITY_S_MAX: u64 = 43_200;
/// Queues on one page, at most and by default.
const RESULTS_MAX: u64 = 1000;
/// Tasks of one list, at most.
const TASKS_MAX: u64 = 10;
/// Messages that a task moves in a second, at most.
const PER_SECOND_MAX: u64 = 500;

/// How a request is written, and so its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `application/x-amz-json-1.0`, with the action in `X-Amz-Target`.
    Json,
    /// Forms and XML.
    Query,
}

/// The parts of an HTTP request that matter.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The path, still percent-encoded.
    pub path: &'r str,
    /// The query without its question mark.
    pub query: &'r str,
    /// The header `X-Amz-Target`.
    pub target: Option<&'r str>,
    /// The body.
    pub body: &'r [u8],
}

impl Request<'_> {
    /// How it is written.
    pub fn protocol(&self) -> Protocol {
        if self.target.is_some() { Protocol::Json } else { Protocol::Query }
    }
}

/// One entry of a batch: a wrong one fails alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// Its id in the batch.
    pub id: String,
    /// Its parameters.
    pub content: Result<T, SqsError>,
}

/// The parameters of a receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receive {
    /// Messages, at most.
    pub messages_max: u32,
    /// Seconds that it waits, if not as the queue says.
    pub wait_s: Option<u64>,
    /// Seconds that messages stay invisible, if not as the queue says.
    pub visibility_s: Option<u64>,
    /// System attributes that are asked for.
    pub system_names: Vec<String>,
    /// Message attributes that are asked for.
    pub attribute_names: Vec<String>,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The largest number of items, if the client asks for pages.
    pub max: Option<u32>,
    /// The name after which it begins.
    pub after: String,
}

/// A receipt handle and seconds.
pub type Visibility = (String, Receipt, u64);

/// A request, and its parameters. Queues are named without account.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the API names them")]
pub enum Action {
    CreateQueue { queue: String, attributes: Texts, tags: Texts },
    GetQueueUrl { queue: String },
    ListQueues { prefix: String, page: Page },
    GetQueueAttributes { queue: String, names: Vec<String> },
    SetQueueAttributes { queue: String, attributes: Texts },
    DeleteQueue { queue: String },
    PurgeQueue { queue: String },
    TagQueue { queue: String, tags: Texts },
    UntagQueue { queue: String, keys: Vec<String> },
    ListQueueTags { queue: String },
    SendMessage { queue: String, message: NewMessage },
    SendMessageBatch { queue: String, entries: Vec<Entry<NewMessage>> },
    ReceiveMessage { queue: String, receive: Receive },
    DeleteMessage { queue: String, handle: String, receipt: Receipt },
    DeleteMessageBatch { queue: String, entries: Vec<Entry<(String, Receipt)>> },
    ChangeMessageVisibility { queue: String, change: Visibility },
    ChangeMessageVisibilityBatch { queue: String, entries: Vec<Entry<Visibility>> },
    ListDeadLetterSourceQueues { queue: String, page: Page },
    StartMessageMoveTask { source: String, destination: Option<String>, per_second: Option<u64> },
    CancelMessageMoveTask { handle: String },
    ListMessageMoveTasks { source: String, max: usize },
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name of the action.
    pub name: String,
    /// The action.
    pub action: Action,
}

impl Call {
    /// Reads a request.
    ///
    /// # Errors
    /// There is no such action, or something in the request cannot be.
    pub fn parse(request: &Request<'_>) -> Result<Call, SqsError> {
        let (name, mut params) = match request.target {
            Some(target) => {
                let name = target.strip_prefix(TARGET).ok_or_else(|| no_such_action(target))?;
                (name.to_owned(), Params::of_json(request.body)?)
            }
            None => read_form(form_of(request)?)?,
        };
        let action = parse(&name, &mut params, request.path)?;
        Ok(Call { name, action })
    }
}

/// The form of a query request: its body, or its query.
fn form_of<'r>(request: &Request<'r>) -> Result<&'r str, SqsError> {
    if request.body.is_empty() {
        return Ok(request.query);
    }
    std::str::from_utf8(request.body).map_err(|_| Code::MalformedInput.because("The body is not UTF-8."))
}

fn no_such_action(name: &str) -> SqsError {
    let shown: String = name.chars().take(100).collect();
    Code::InvalidAction.because(format!("The action {shown} is not valid for this endpoint."))
}

fn parse(name: &str, params: &mut Params, path: &str) -> Result<Action, SqsError> {
    Ok(match name {
        "CreateQueue" => {
            let queue = checked_name(params.required("QueueName")?)?;
            let mut tags = params.texts("tags")?;
            tags.extend(params.texts("Tags")?);
            Action::CreateQueue { queue, attributes: params.texts("Attributes")?, tags }
        }
        "GetQueueUrl" => Action::GetQueueUrl { queue: checked_name(params.required("QueueName")?)? },
        "ListQueues" => {
            let prefix = params.text("QueueNamePrefix")?.unwrap_or_default();
            Action::ListQueues { prefix, page: page(params)? }
        }
        "StartMessageMoveTask" => Action::StartMessageMoveTask {
            source: arn_of(params, "SourceArn")?.ok_or_else(|| SqsError::missing("SourceArn"))?,
            destination: arn_of(params, "DestinationArn")?,
            per_second: params.number("MaxNumberOfMessagesPerSecond", 1, PER_SECOND_MAX)?,
        },
        "CancelMessageMoveTask" => Action::CancelMessageMoveTask { handle: params.required("TaskHandle")? },
        "ListMessageMoveTasks" => Action::ListMessageMoveTasks {
            source: arn_of(params, "SourceArn")?.ok_or_else(|| SqsError::missing("SourceArn"))?,
            max: params.number("MaxResults", 1, TASKS_MAX)?.unwrap_or(1) as usize,
        },
        "AddPermission" | "RemovePermission" => {
            let message = format!("{name} is not supported: permissions belong to the broker's users.");
            return Err(Code::UnsupportedOperation.because(message));
        }
        _ => return of_queue(name, params, path),
    })
}

fn of_queue(name: &str, params: &mut Params, path: &str) -> Result<Action, SqsError> {
    const KNOWN: &[&str] = &[
        "GetQueueAttributes",
        "SetQueueAttributes",
        "DeleteQueue",
        "PurgeQueue",
        "TagQueue",
        "UntagQueue",
        "ListQueueTags",
        "SendMessage",
        "SendMessageBatch",
        "ReceiveMessage",
        "DeleteMessage",
        "DeleteMessageBatch",
        "ChangeMessageVisibility",
        "ChangeMessageVisibilityBatch",
        "ListDeadLetterSourceQueues",
    ];
    if !KNOWN.contains(&name) {
        return Err(no_such_action(name));
    }
    // Requests of the query protocol may go to the URL of the queue.
    let url = params.text("QueueUrl")?.or_else(|| (2 < path.len()).then(|| path.to_owned()));
    let queue = queue_of_url(&url.ok_or_else(|| SqsError::missing("QueueUrl"))?)?;
    Ok(match name {
        "GetQueueAttributes" => Action::GetQueueAttributes { queue, names: params.names("AttributeNames")? },
        "SetQueueAttributes" => Action::SetQueueAttributes { queue, attributes: params.texts("Attributes")? },
        "DeleteQueue" => Action::DeleteQueue { queue },
        "PurgeQueue" => Action::PurgeQueue { queue },
        "TagQueue" => Action::TagQueue { queue, tags: params.texts("Tags")? },
        "UntagQueue" => Action::UntagQueue { queue, keys: params.names("TagKeys")? },
        "ListQueueTags" => Action::ListQueueTags { queue },
        "SendMessage" => Action::SendMessage { queue, message: NewMessage::parse(params)? },
        "SendMessageBatch" => {
            let entries = entries(params, NewMessage::parse)?;
            let bytes = entries.iter().filter_map(|entry| entry.content.as_ref().ok());
            if BATCH_BYTES_MAX < bytes.map(NewMessage::byte_length).sum() {
                let message = format!("Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes.");
                return Err(Code::BatchRequestTooLong.because(message));
            }
            Action::SendMessageBatch { queue, entries }
        }
        "ReceiveMessage" => Action::ReceiveMessage { queue, receive: receive(params)? },
        "DeleteMessage" => {
            let (handle, receipt) = receipt(params)?;
            Action::DeleteMessage { queue, handle, receipt }
        }
        "DeleteMessageBatch" => Action::DeleteMessageBatch { queue, entries: entries(params, receipt)? },
        "ChangeMessageVisibility" => Action::ChangeMessageVisibility { queue, change: visibility(params)? },
        "ChangeMessageVisibilityBatch" => {
            Action::ChangeMessageVisibilityBatch { queue, entries: entries(params, visibility)? }
        }
        _ => Action::ListDeadLetterSourceQueues { queue, page: page(params)? },
    })
}

fn arn_of(params: &mut Params, name: &str) -> Result<Option<String>, SqsError> {
    let Some(arn) = params.text(name)? else { return Ok(None) };
    let reason = "It is no ARN of a queue";
    queue_of_arn(&arn).map(Some).ok_or_else(|| SqsError::invalid(name, &arn, reason))
}

fn page(params: &mut Params) -> Result<Page, SqsError> {
    let max = params.number("MaxResults", 1, RESULTS_MAX)?.map(|max| max as u32);
    let after = params.text("NextToken")?.unwrap_or_default();
    Ok(Page { max, after })
}

fn receive(params: &mut Params) -> Result<Receive, SqsError> {
    let messages_max = params.number("MaxNumberOfMessages", 1, MESSAGES_MAX)?.unwrap_or(1) as u32;
    let wait_s = params.number("WaitTimeSeconds", 0, WAIT_S_MAX)?;
    let visibility_s = params.number("VisibilityTimeout", 0, VISIBILITY_S_MAX)?;
    let mut system_names = params.names("MessageSystemAttributeNames")?;
    system_names.extend(params.names("AttributeNames")?);
    check_system_names(&system_names)?;
    let attribute_names = params.names("MessageAttributeNames")?;
    Ok(Receive { messages_max, wait_s, visibility_s, system_names, attribute_names })
}

fn receipt(params: &mut Params) -> Result<(String, Receipt), SqsError> {
    let handle = params.required("ReceiptHandle")?;
    let receipt = Receipt::parse(&handle)?;
    Ok((handle, receipt))
}

fn visibility(params: &mut Params) -> Result<Visibility, SqsError> {
    let timeout_s = params.number("VisibilityTimeout", 0, VISIBILITY_S_MAX)?;
    let timeout_s = timeout_s.ok_or_else(|| SqsError::missing("VisibilityTimeout"))?;
    let (handle, receipt) = receipt(params)?;
    Ok((handle, receipt, timeout_s))
}

fn entries<T>(
    params: &mut Params,
    read: impl Fn(&mut Params) -> Result<T, SqsError>,
) -> Result<Vec<Entry<T>>, SqsError> {
    let items = params.list("Entries")?;
    if items.is_empty() {
        let message = "There should be at least one entry in the request: Entries is empty.";
        return Err(Code::EmptyBatchRequest.because(message));
    }
    if ENTRIES_MAX < items.len() {
        let message = format!(
            "Maximum number of entries per request are {ENTRIES_MAX}. You have sent {}.",
            items.len()
        );
        return Err(Code::TooManyEntriesInBatchRequest.because(message));
    }
    let mut ids = BTreeSet::new();
    let mut entries = Vec::with_capacity(items.len());
    for item in items {
        let mut params = Params::of(item, "each of Entries")?;
        let id = params.required("Id")?;
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if id.is_empty() || ENTRY_ID_CHARS_MAX < id.len() || !id.chars().all(is_good) {
            let message = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. \
                           It can be at most 80 letters long.";
            return Err(Code::InvalidBatchEntryId.because(message));
        }
        if !ids.insert(id.clone()) {
            return Err(Code::BatchEntryIdsNotDistinct.because(format!("Id {id} repeated.")));
        }
        entries.push(Entry { id, content: read(&mut params) });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::{EntryTag, LeaseId, QueueId};
    use serde_json::{Value, json};

    fn call(action: &str, params: &Value) -> Result<Action, SqsError> {
        let body = params.to_string();
        let target = format!("AmazonSQS.{action}");
        let request = Request { path: "/", query: "", target: Some(&target), body: body.as_bytes() };
        Call::parse(&request).map(|call| call.action)
    }

    fn handle() -> String {
        let (queue, tag) = (QueueId(1), EntryTag(2));
        Receipt { queue, tag, lease: LeaseId(3), received_ms: 4 }.to_handle()
    }

    #[test]
    fn both_protocols_say_the_same() {
        let handle = handle();
        let form = format!("Action=ChangeMessageVisibility&VisibilityTimeout=7&ReceiptHandle={handle}");
        let request = Request { path: "/000000000000/q", query: "", target: None, body: form.as_bytes() };
        let by_form = Call::parse(&request).unwrap();
        let by_json = call(
            "ChangeMessageVisibility",
            &json!({ "QueueUrl": "http://h/0/q", "ReceiptHandle": handle, "VisibilityTimeout": 7 }),
        );
        assert_eq!(Ok(by_form.action), by_json);
        let query = "Action=GetQueueUrl&QueueName=q";
        let request = Request { path: "/", query, target: None, body: b"" };
        assert_eq!(Call::parse(&request).unwrap().action, Action::GetQueueUrl { queue: "q".to_owned() });
    }

    #[test]
    fn wrong_requests_are_refused_with_their_code() {
        let url = "http://h/000000000000/q";
        let entry = |id: &str| json!({ "Id": id, "MessageBody": "x" });
        let many: Vec<Value> = (0..11).map(|number| entry(&number.to_string())).collect();
        let long = json!({ "Id": "a", "MessageBody": "x".repeat(600_000) });
        let mut longer = long.clone();
        longer["Id"] = json!("b");
        for (action, params, code) in [
            ("Nonsense", json!({}), Code::InvalidAction),
            ("AddPermission", json!({}), Code::UnsupportedOperation),
            ("CreateQueue", json!({}), Code::MissingParameter),
            ("CreateQueue", json!({ "QueueName": "a b" }), Code::InvalidParameterValue),
            ("SendMessage", json!({ "MessageBody": "x" }), Code::MissingParameter),
            ("SendMessage", json!({ "QueueUrl": "http://h/x/q", "MessageBody": "x" }), Code::InvalidAddress),
            (
                "ReceiveMessage",
                json!({ "QueueUrl": url, "MaxNumberOfMessages": 11 }),
                Code::InvalidParameterValue,
            ),
            (
                "ReceiveMessage",
                json!({ "QueueUrl": url, "WaitTimeSeconds": 21 }),
                Code::InvalidParameterValue,
            ),
            (
                "ReceiveMessage",
                json!({ "QueueUrl": url, "AttributeNames": ["x"] }),
                Code::InvalidAttributeName,
            ),
            ("DeleteMessage", json!({ "QueueUrl": url, "ReceiptHandle": "x" }), Code::ReceiptHandleIsInvalid),
            (
                "ChangeMessageVisibility",
                json!({ "QueueUrl": url, "ReceiptHandle": "x" }),
                Code::MissingParameter,
            ),
            ("SendMessageBatch", json!({ "QueueUrl": url }), Code::EmptyBatchRequest),
            (
                "SendMessageBatch",
                json!({ "QueueUrl": url, "Entries": many }),
                Code::TooManyEntriesInBatchRequest,
            ),
            (
                "SendMessageBatch",
                json!({ "QueueUrl": url, "Entries": [entry("a b")] }),
                Code::InvalidBatchEntryId,
            ),
            (
                "SendMessageBatch",
                json!({ "QueueUrl": url, "Entries": [entry("a"), entry("a")] }),
                Code::BatchEntryIdsNotDistinct,
            ),
            (
                "SendMessageBatch",
                json!({ "QueueUrl": url, "Entries": [long, longer] }),
                Code::BatchRequestTooLong,
            ),
            ("ListMessageMoveTasks", json!({ "SourceArn": "x" }), Code::InvalidParameterValue),
        ] {
            let error = call(action, &params).unwrap_err();
            assert_eq!(error.code, code, "{action}: {}", error.message);
        }
        let request = Request { path: "/", query: "", target: Some("AmazonSQS.ListQueues"), body: b"[" };
        assert_eq!(Call::parse(&request).unwrap_err().code, Code::MalformedInput);
    }

    #[test]
    fn a_wrong_entry_fails_alone() {
        let entries = json!([{ "Id": "a", "MessageBody": "x" }, { "Id": "b" }]);
        let params = json!({ "QueueUrl": "http://h/000000000000/q", "Entries": entries });
        let Ok(Action::SendMessageBatch { entries, .. }) = call("SendMessageBatch", &params) else {
            panic!("no batch")
        };
        assert_eq!(entries.iter().map(|entry| entry.content.is_ok()).collect::<Vec<_>>(), [true, false]);
    }
}

//! Settings of push queues: their subscribers, and how often and how fast each is tried.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::ApiError;
use crate::fields::Fields;

/// Subscribers of one queue, at most.
pub(crate) const SUBSCRIBERS_MAX: usize = 100;
/// Characters of a subscriber's name, at most.
pub(crate) const NAME_CHARS_MAX: usize = 200;
/// Characters of a URL, at most.
pub(crate) const URL_CHARS_MAX: usize = 2048;
/// Retries after the first attempt: by default, and at most.
pub(crate) const RETRIES: (u64, u64) = (3, 100);
/// Seconds until the first retry: by default, and at most.
pub(crate) const RETRIES_DELAY_S: (u64, u64) = (60, 86_400);
/// Seconds until an endpoint has answered: by default and at most.
pub(crate) const TIMEOUT_S_MAX: u64 = 60;
/// Requests to one endpoint at a time: by default, and at most.
pub(crate) const CONCURRENCY: (u64, u64) = (16, 1000);
/// Requests to one endpoint in a second, at most.
pub(crate) const RATE_MAX: u64 = 100_000;
/// Headers of a subscriber or of a message, at most.
pub(crate) const HEADERS_MAX: usize = 20;
/// Characters of a header's value, at most.
pub(crate) const HEADER_CHARS_MAX: usize = 4096;
/// How a webhook marks headers for subscribers.
const PREFIX: &str = "X-Subscribers-";
/// Headers that the broker sets itself.
const OWN_HEADERS: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "keep-alive",
    "expect",
    "proxy-connection",
];

/// To how many subscribers a message of a push queue goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushKind {
    /// To each.
    Multicast,
    /// To one: the first that takes it.
    Unicast,
}

impl PushKind {
    /// The word of the API.
    pub fn name(self) -> &'static str {
        match self {
            PushKind::Multicast => "multicast",
            PushKind::Unicast => "unicast",
        }
    }
}

/// An endpoint that messages are pushed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Unique in the queue.
    pub name: String,
    /// `http://`, `https://` or `ironmq:///QUEUE`.
    pub url: String,
    /// Headers of each request.
    pub headers: BTreeMap<String, String>,
}

impl Subscriber {
    /// The queue of the same project that the URL names, if it names one.
    pub fn queue(&self) -> Option<&str> {
        self.url.strip_prefix("ironmq:///")
    }

    fn parse(item: Value) -> Result<Subscriber, ApiError> {
        let mut fields = Fields::of(item, "each of subscribers")?;
        let url = fields.text("url")?.unwrap_or_default();
        check_url(&url)?;
        // Clients of the first version of the API send no name: the URL is one.
        let name = fields.text("name")?.filter(|name| !name.is_empty()).unwrap_or_else(|| url.clone());
        if NAME_CHARS_MAX.max(URL_CHARS_MAX) < name.chars().count() || name.chars().any(char::is_control) {
            let msg = format!("a subscriber's name has 1 to {NAME_CHARS_MAX} characters, none of control");
            return Err(ApiError::bad(msg));
        }
        let headers = headers(&mut fields, "headers")?;
        Ok(Subscriber { name, url, headers })
    }

    fn shown(&self) -> Value {
        let mut shown = json!({ "name": self.name, "url": self.url });
        if !self.headers.is_empty() {
            shown["headers"] = json!(self.headers);
        }
        shown
    }
}

fn check_url(url: &str) -> Result<(), ApiError> {
    let wrong = |why: &str| {
        let msg = format!(
            "the url of a subscriber {why}: use http://HOST/PATH, https://HOST/PATH or ironmq:///QUEUE"
        );
        Err(ApiError::bad(msg))
    };
    if url.is_empty() {
        return wrong("is missing");
    }
    if URL_CHARS_MAX < url.len() || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong("has more than 2048 characters, or some that are to be percent-encoded");
    }
    if let Some(queue) = url.strip_prefix("ironmq:///") {
        return if queue.is_empty() { wrong("names no queue") } else { Ok(()) };
    }
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return wrong(&format!("is {url}"));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority {
        "" => wrong("names no host"),
        _ if authority.contains('@') => wrong("has a user; send an Authorization header instead"),
        _ => Ok(()),
    }
}

/// Headers that a client sets for requests to endpoints.
pub(crate) fn headers(fields: &mut Fields, name: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let Some(value) = fields.take(name) else { return Ok(BTreeMap::new()) };
    let Value::Object(items) = value else {
        return Err(ApiError::bad(format!("{name} is to be an object of names and strings")));
    };
    if HEADERS_MAX < items.len() {
        return Err(ApiError::bad(format!("{name} has more than {HEADERS_MAX} headers")));
    }
    let mut headers = BTreeMap::new();
    for (header, value) in items {
        let value = match value {
            Value::String(value) => value,
            Value::Number(value) => value.to_string(),
            // The Go client's form: a list of values.
            Value::Array(values) if values.iter().all(Value::is_string) => {
                values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
            }
            _ => return Err(ApiError::bad(format!("{name}: the value of {header} is to be a string"))),
        };
        check_header(&header, &value).map_err(|msg| ApiError::bad(format!("{name}: {msg}")))?;
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Whether a client may set this header of a push request.
fn check_header(name: &str, value: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || HEADER_CHARS_MAX < name.len() || !name.bytes().all(is_token) {
        return Err(format!("{name:?} is not the name of a header"));
    }
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("iron-") || OWN_HEADERS.contains(&&*lower) {
        return Err(format!("{name} is set by the broker"));
    }
    let is_value = |byte: u8| byte == b'\t' || (32..127).contains(&byte);
    if HEADER_CHARS_MAX < value.len() || !value.bytes().all(is_value) {
        return Err(format!("the value of {name} is to be at most {HEADER_CHARS_MAX} ASCII characters"));
    }
    Ok(())
}

/// The headers of a webhook that are meant for subscribers: `X-Subscribers-NAME` becomes `NAME`.
///
/// # Errors
/// One of them is not allowed, or there are too many.
pub fn of_webhook<'h>(
    all: impl Iterator<Item = (&'h str, &'h [u8])>,
) -> Result<BTreeMap<String, String>, ApiError> {
    let mut headers = BTreeMap::new();
    for (name, value) in all {
        let is_meant = name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
        let Some(name) = name.get(PREFIX.len()..).filter(|_| is_meant) else { continue };
        let value = String::from_utf8_lossy(value).into_owned();
        check_header(name, &value).map_err(ApiError::bad)?;
        headers.insert(name.to_owned(), value);
    }
    match headers.len() <= HEADERS_MAX {
        true => Ok(headers),
        false => Err(ApiError::bad(format!("more than {HEADERS_MAX} headers begin with {PREFIX}"))),
    }
}

/// The subscribers of a request.
pub(crate) fn subscribers(items: Vec<Value>) -> Result<Vec<Subscriber>, ApiError> {
    let parsed: Result<Vec<Subscriber>, ApiError> = items.into_iter().map(Subscriber::parse).collect();
    let mut subscribers: Vec<Subscriber> = Vec::new();
    add(&mut subscribers, parsed?)?;
    Ok(subscribers)
}

/// Adds subscribers, or replaces those of the same names.
pub(crate) fn add(to: &mut Vec<Subscriber>, more: Vec<Subscriber>) -> Result<(), ApiError> {
    for subscriber in more {
        match to.iter_mut().find(|known| known.name == subscriber.name) {
            Some(known) => *known = subscriber,
            None => to.push(subscriber),
        }
    }
    match to.len() <= SUBSCRIBERS_MAX {
        true => Ok(()),
        false => Err(ApiError::bad(format!("a queue has at most {SUBSCRIBERS_MAX} subscribers"))),
    }
}

/// How a queue pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSettings {
    /// To how many.
    pub kind: PushKind,
    /// To whom.
    pub subscribers: Vec<Subscriber>,
    /// Attempts after the first.
    pub retries: u32,
    /// Seconds until the first of them; each further one comes after twice the time.
    pub retries_delay_s: u64,
    /// Where messages are reported that could not be delivered, if anywhere.
    pub error_queue: Option<String>,
    /// Seconds until an endpoint must have answered.
    pub timeout_s: u64,
    /// Requests to one endpoint at a time.
    pub concurrency: u32,
    /// Requests to one endpoint in a second; 0 for any number.
    pub rate_limit: u32,
}

impl PushSettings {
    /// The defaults of the API.
    pub fn new(kind: PushKind) -> PushSettings {
        PushSettings {
            kind,
            subscribers: Vec::new(),
            retries: RETRIES.0 as u32,
            retries_delay_s: RETRIES_DELAY_S.0,
            error_queue: None,
            timeout_s: TIMEOUT_S_MAX,
            concurrency: CONCURRENCY.0 as u32,
            rate_limit: 0,
        }
    }

    /// How far its subscribers are with a message that was not sent yet.
    pub fn not_tried(&self) -> Vec<Value> {
        let shown = |subscriber: &Subscriber| {
            json!({
                "name": subscriber.name,
                "subscriber_name": subscriber.name,
                "url": subscriber.url,
                "tries": 0,
                "retries_remaining": self.retries + 1,
                "status_code": 0,
                "msg": "",
                "last_try_at": null,
            })
        };
        self.subscribers.iter().map(shown).collect()
    }

    /// The subscriber of this name.
    pub fn subscriber(&self, name: &str) -> Option<&Subscriber> {
        self.subscribers.iter().find(|subscriber| subscriber.name == name)
    }

    /// Takes over the settings of a request, and leaves the rest.
    pub(crate) fn update(&mut self, fields: &mut Fields) -> Result<(), ApiError> {
        if let Some(items) = fields.list("subscribers")? {
            self.subscribers = subscribers(items)?;
        }
        if let Some(retries) = fields.number("retries", 0, RETRIES.1)? {
            self.retries = retries as u32;
        }
        if let Some(delay) = fields.number("retries_delay", 1, RETRIES_DELAY_S.1)? {
            self.retries_delay_s = delay;
        }
        if let Some(name) = fields.text("error_queue")? {
            // An empty name switches it off.
            self.error_queue = Some(name).filter(|name| !name.is_empty());
        }
        if let Some(timeout) = fields.number("timeout", 1, TIMEOUT_S_MAX)? {
            self.timeout_s = timeout;
        }
        if let Some(concurrency) = fields.number("concurrency", 1, CONCURRENCY.1)? {
            self.concurrency = concurrency as u32;
        }
        if let Some(rate) = fields.number("rate_limit", 0, RATE_MAX)? {
            self.rate_limit = rate as u32;
        }
        Ok(())
    }

    /// As clients see it, and as the broker keeps it.
    pub(crate) fn shown(&self) -> Value {
        let subscribers: Vec<Value> = self.subscribers.iter().map(Subscriber::shown).collect();
        let mut shown = json!({
            "subscribers": subscribers,
            "retries": self.retries,
            "retries_delay": self.retries_delay_s,
            "timeout": self.timeout_s,
            "concurrency": self.concurrency,
            "rate_limit": self.rate_limit,
        });
        if let Some(name) = &self.error_queue {
            shown["error_queue"] = json!(name);
        }
        shown
    }
}

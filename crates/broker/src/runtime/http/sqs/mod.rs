//! SQS at the HTTP port: requests of its clients, signed with access keys, on the broker's queues.

mod auth;
mod messages;
mod moving;
mod queues;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use postroad_admin::Body;
use postroad_model::portable::uuid_text;
use postroad_model::{
    ConnectionId, Destination, LeaseAnswer, LeaseEvent, Principal, QueueDescription, Ticket,
};
use postroad_security::{Door, Text};
use postroad_sqs::{
    Action, Call, Code, Protocol, Settings, Signed, SqsError, answer_xml, error_xml, queue_url,
};
use serde_json::{Value, json};

pub use auth::KeyRing;

use super::bodies::Room;
use super::client::{FrontClient, Fronts};
use super::push::PushHub;

/// A request's body arrives within this time.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// A request's body is not larger: a batch of 1 MiB, with room for how JSON and forms write it.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Options of all requests.
#[derive(Clone, Debug)]
pub struct SqsOptions {
    /// The text of access keys.
    pub access_keys: Text,
    /// The message move tasks that are under way, by their handles.
    pub tasks: moving::Tasks,
}

impl SqsOptions {
    /// Of a broker with these access keys, started now.
    pub fn new(access_keys: Text) -> SqsOptions {
        SqsOptions { access_keys, tasks: moving::Tasks::default() }
    }
}

/// SQS on one core.
pub struct Front {
    fronts: Rc<Fronts>,
    hub: PushHub,
    keys: auth::KeyRing,
}

/// One request: whose it is, and where.
struct Asked<'f> {
    /// The client of the user.
    client: FrontClient,
    /// The user whose access key has signed it.
    user: Option<String>,
    scheme: &'static str,
    host: String,
    tasks: &'f moving::Tasks,
    hub: &'f PushHub,
}

/// Whether the request is one of SQS: by its headers, or by its form.
pub fn is_meant<B>(head: &Request<B>) -> bool {
    let text = |name: &HeaderName| head.headers().get(name).and_then(|value| value.to_str().ok());
    let is_signed = text(&AUTHORIZATION).is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256"));
    if is_signed || head.headers().contains_key("x-amz-target") {
        return true;
    }
    let path = head.uri().path();
    let account = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if !account.bytes().all(|byte| byte.is_ascii_digit()) || path.starts_with("/3/") {
        return false;
    }
    let is_form =
        text(&CONTENT_TYPE).is_some_and(|value| value.starts_with("application/x-www-form-urlencoded"));
    let names_action = head.uri().query().is_some_and(|query| query.contains("Action="));
    head.method() == Method::POST && is_form || names_action
}

impl Front {
    /// With the client of a core's HTTP connections.
    pub fn new(fronts: Rc<Fronts>, hub: PushHub) -> Front {
        Front { fronts, hub, keys: auth::KeyRing::default() }
    }

    /// Answers a request.
    pub async fn respond(
        &self,
        (request, peer): (Request<Incoming>, IpAddr),
        door: &Arc<Door>,
        options: &SqsOptions,
    ) -> Response<Body> {
        let protocol = match request.headers().contains_key("x-amz-target") {
            true => Protocol::Json,
            false => Protocol::Query,
        };
        let request_id = random().map_or_else(|_| String::new(), |bytes| uuid_text(&bytes));
        let (head, body) = request.into_parts();
        let answered = self.answer((&head, peer), body, door, options).await;
        response(protocol, answered, &request_id)
    }

    async fn answer(
        &self,
        (head, peer): (&Parts, IpAddr),
        body: Incoming,
        door: &Arc<Door>,
        options: &SqsOptions,
    ) -> Result<(String, Value, Room), SqsError> {
        let mut headers: Vec<(&str, &str)> = texts(&head.headers).collect();
        // HTTP/2 has no header for it.
        let authority = head.uri.authority().filter(|_| !head.headers.contains_key(HOST));
        headers.extend(authority.map(|authority| (HOST.as_str(), authority.as_str())));
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        let unread = Signed { method: head.method.as_str(), path, query, headers: &headers, body: &[] };
        // Strangers take no memory by bodies.
        self.keys.admit((&unread, peer), door, &options.access_keys).await?;
        let body = &read(body).await?;
        let signed = Signed { body, ..unread };
        let user = self.keys.user_of((&signed, peer), door, &options.access_keys).await?;
        let get = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let target = get("x-amz-target");
        let call = Call::parse(&postroad_sqs::Request { path, query, target, body })?;
        let scheme = if get("x-forwarded-proto") == Some("https") { "https" } else { "http" };
        let host = get(HOST.as_str()).unwrap_or("localhost").to_owned();
        let user_name = user.as_deref().map(Arc::from);
        let client = self.fronts.of(Principal::of(user_name.as_ref()));
        let client = client.map_err(|refusal| SqsError::of_refusal(&refusal))?;
        let asked = Asked { client, user, scheme, host, tasks: &options.tasks, hub: &self.hub };
        let answer = asked.carry_out(call.action).await?;
        Ok((call.name, answer, asked.client.take_room()))
    }
}

impl Asked<'_> {
    async fn carry_out(&self, action: Action) -> Result<Value, SqsError> {
        match action {
            Action::CreateQueue { queue, attributes, tags } => self.create(queue, attributes, tags).await,
            Action::GetQueueUrl { queue } => {
                self.describe(&queue).await?;
                Ok(json!({ "QueueUrl": self.url(&queue) }))
            }
            Action::ListQueues { prefix, page } => self.list(&prefix, page).await,
            Action::GetQueueAttributes { queue, names } => self.attributes(&queue, &names).await,
            Action::SetQueueAttributes { queue, attributes } => self.set(&queue, &attributes).await,
            Action::DeleteQueue { queue } => self.delete_queue(&queue).await,
            Action::PurgeQueue { queue } => self.purge(&queue).await,
            Action::TagQueue { queue, tags } => self.change(&queue, |settings| settings.tag(tags)).await,
            Action::UntagQueue { queue, keys } => {
                let untag = |settings: &mut Settings| {
                    keys.iter().for_each(|key| drop(settings.tags.remove(key)));
                    Ok(())
                };
                self.change(&queue, untag).await
            }
            Action::ListQueueTags { queue } => {
                let settings = Settings::of(self.describe(&queue).await?.options.as_ref());
                Ok(json!({ "Tags": settings.tags }))
            }
            Action::ListDeadLetterSourceQueues { queue, page } => self.sources(&queue, page).await,
            Action::SendMessage { queue, message } => self.send(&queue, message).await,
            Action::SendMessageBatch { queue, entries } => self.send_batch(&queue, entries).await,
            Action::ReceiveMessage { queue, receive } => self.receive(&queue, &receive).await,
            Action::DeleteMessage { queue, handle, receipt } => self.delete(&queue, (handle, receipt)).await,
            Action::DeleteMessageBatch { queue, entries } => self.delete_batch(&queue, entries).await,
            Action::ChangeMessageVisibility { queue, change } => self.change_visibility(&queue, change).await,
            Action::ChangeMessageVisibilityBatch { queue, entries } => {
                self.change_visibilities(&queue, entries).await
            }
            Action::StartMessageMoveTask { source, destination, per_second } => {
                self.start_task(source, destination, per_second).await
            }
            Action::CancelMessageMoveTask { handle } => self.cancel_task(&handle).await,
            Action::ListMessageMoveTasks { source, max } => self.list_tasks(&source, max).await,
        }
    }

    fn url(&self, queue: &str) -> String {
        queue_url(self.scheme, &self.host, queue)
    }

    async fn describe(&self, queue: &str) -> Result<QueueDescription, SqsError> {
        describe(&self.client, queue).await
    }
}

async fn describe(client: &FrontClient, queue: &str) -> Result<QueueDescription, SqsError> {
    let queue = Destination::queue(queue);
    let event = |connection, ticket| LeaseEvent::Describe { queue, connection, ticket };
    let found = ask(client, event).await?.into_iter().find_map(|answer| match answer {
        LeaseAnswer::Described(about) => Some(*about),
        _ => None,
    });
    found.ok_or_else(SqsError::no_such_queue)
}

async fn ask(
    client: &FrontClient,
    event: impl FnOnce(ConnectionId, Ticket) -> LeaseEvent,
) -> Result<Vec<LeaseAnswer>, SqsError> {
    client.lease(event).await.map_err(|refusal| SqsError::of_refusal(&refusal))
}

async fn read(body: Incoming) -> Result<Bytes, SqsError> {
    match tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("The body has more than {BODY_BYTES_MAX} bytes.");
            Err(Code::RequestEntityTooLarge.because(message))
        }
        Ok(Err(error)) => Err(Code::MalformedInput.because(format!("The body cannot be read: {error}."))),
        Err(_) => {
            let message = format!("The body did not arrive within {} seconds.", BODY_WITHIN.as_secs());
            Err(Code::MalformedInput.because(message))
        }
    }
}

/// Headers that are text.
fn texts(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
}

fn response(
    protocol: Protocol,
    mut answered: Result<(String, Value, Room), SqsError>,
    request_id: &str,
) -> Response<Body> {
    let room = answered.as_mut().map(|(_, _, room)| std::mem::take(room)).unwrap_or_default();
    let (status, body) = match (protocol, &answered) {
        (Protocol::Json, Ok((_, Value::Null, _))) => (200, "{}".to_owned()),
        (Protocol::Json, Ok((_, answer, _))) => (200, answer.to_string()),
        (Protocol::Json, Err(error)) => (error.code.status(), error.to_json().to_string()),
        (Protocol::Query, Ok((action, answer, _))) => (200, answer_xml(action, answer, request_id)),
        (Protocol::Query, Err(error)) => (error.code.status(), error_xml(error, request_id)),
    };
    let mut response = Response::new(Body::from(room.answer(body.into_bytes())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let content_type = match protocol {
        Protocol::Json => "application/x-amz-json-1.0",
        Protocol::Query => "text/xml",
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let mut put = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    put("x-amzn-requestid", request_id);
    if let (Protocol::Json, Err(error)) = (protocol, &answered) {
        put("x-amzn-query-error", &error.query_header());
    }
    response
}

fn random() -> Result<[u8; 16], SqsError> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|_| Code::InternalFailure.because("The system provides no random numbers."))?;
    Ok(bytes)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

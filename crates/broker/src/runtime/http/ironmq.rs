//! IronMQ's operations on the broker's queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use postroad_ironmq::alerts::Alerts;
use postroad_ironmq::push::{Acknowledged, of_webhook};
use postroad_ironmq::{
    ApiError, Call, Deleted, MessageId, Messages, NewMessage, Operation, Settings, TraceHeaders, ids_posted,
    message, msg, names, push_statuses, queue_info, queue_name, queue_settings, touched,
};
use postroad_model::{
    Destination, Event, Handle, HandleAction, HandleEntries, LeaseAnswer, LeaseEvent, LeaseId,
    QueueDescription, Reserve, Reserved, Stale, Take,
};
use serde_json::Value;

use super::client::{Answered, FrontClient, passed_over};
use super::push::{PushHub, ToPusher};
use super::stored::{BODY_BYTES_MAX, Extras, body_of, stored, with_body};

/// A lease of a message that is deleted at once: long enough for a slow disk.
const DELETED_WITHIN_MS: u64 = 60_000;

/// The result of a call: a status and a body.
pub type Done = Result<(u16, Value), ApiError>;

/// Carries out a call; `headers` and `body` are those of the request. Returns the status and the
/// JSON of the answer.
pub async fn carry_out(
    (client, hub): (&FrontClient, &PushHub),
    call: Call,
    headers: &hyper::HeaderMap,
    body: &Bytes,
) -> Result<(u16, Vec<u8>), ApiError> {
    let named = |queue: &str| queue_name(&call.project, queue).map(|name| Destination::queue(&name));
    match call.operation {
        Operation::Reserve { queue, n, timeout_s, wait_s, delete } => {
            let queue = named(&queue)?;
            if delete {
                return Ok((200, reserve_and_delete(client, queue, n, wait_s * 1000).await?));
            }
            let lasts_ms = match timeout_s {
                Some(timeout_s) => timeout_s * 1000,
                None => timeout_ms(client, &queue, None).await?,
            };
            Ok((200, reserve(client, queue, n, wait_s * 1000, Take::Lease { lasts_ms }).await?))
        }
        Operation::Peek { queue, n } => Ok((200, reserve(client, named(&queue)?, n, 0, Take::Peek).await?)),
        operation => {
            let call = Call { operation, ..call };
            let (status, value) = carry_out_other((client, hub), call, headers, body).await?;
            Ok((status, value.to_string().into_bytes()))
        }
    }
}

/// Carries out a call that does not take messages.
async fn carry_out_other(
    (client, hub): (&FrontClient, &PushHub),
    call: Call,
    headers: &hyper::HeaderMap,
    body: &Bytes,
) -> Done {
    let project = &call.project;
    let named = |queue: &str| queue_name(project, queue).map(|name| Destination::queue(&name));
    match call.operation {
        Operation::Post { queue, messages } => {
            post(client, named(&queue)?, messages, context_of(headers)).await
        }
        Operation::Webhook { queue } => {
            let (to, context) = (named(&queue)?, context_of(headers));
            let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
            let push_headers = of_webhook(headers)?;
            let extras = Extras { push_headers: kept(&push_headers), context };
            post_bodies(client, to, vec![(body.clone(), 0, extras)]).await
        }
        Operation::Get { queue, id } => get(client, named(&queue)?, id).await,
        Operation::Delete { queue, messages } => {
            delete((client, hub), named(&queue)?, messages).await?;
            Ok((200, msg("Deleted")))
        }
        Operation::Clear { queue } => {
            let queue = named(&queue)?;
            ask(client, |connection, ticket| LeaseEvent::Clear { queue, connection, ticket }).await?;
            Ok((200, msg("Cleared")))
        }
        Operation::Touch { queue, id, reservation, timeout_s } => {
            let queue = named(&queue)?;
            let lasts_ms = timeout_ms(client, &queue, timeout_s).await?;
            let action = HandleAction::Renew { lasts_ms };
            let renewed = handle(client, queue, vec![(id, Some(reservation))], action).await?;
            Ok((200, touched(renewed.first().unwrap_or(&reservation))))
        }
        Operation::Release { queue, id, reservation, delay_s } => {
            let queue = named(&queue)?;
            describe(client, &queue).await?;
            let action = HandleAction::Release { delay_ms: delay_s * 1000 };
            handle(client, queue, vec![(id, Some(reservation))], action).await?;
            Ok((200, msg("Released")))
        }
        operation => about_queues((client, hub), project, operation).await,
    }
}

/// Carries out a call about queues themselves.
async fn about_queues((client, hub): (&FrontClient, &PushHub), project: &str, operation: Operation) -> Done {
    let named = |queue: &str| queue_name(project, queue).map(|name| Destination::queue(&name));
    match operation {
        Operation::List { prefix, previous, per_page } => {
            list(client, project, &prefix, &previous, per_page).await
        }
        Operation::Info { queue } => {
            let about = describe(client, &named(&queue)?).await?;
            Ok((200, queue_info(project, &queue, &about)))
        }
        Operation::Create { queue, change } => {
            let change = |settings, is_new| change.apply(settings, is_new);
            let settings = configure((client, hub), project, &queue, change, true).await?;
            Ok((200, queue_settings(project, &queue, &settings)))
        }
        Operation::Update { queue, change } => {
            // The type stays, even of a queue for which nothing was set yet.
            let change = |settings, _| change.apply(settings, false);
            let settings = configure((client, hub), project, &queue, change, false).await?;
            Ok((200, queue_settings(project, &queue, &settings)))
        }
        Operation::Subscribe { queue, change } => {
            let change = |mut settings: Settings, _| settings.subscribe(&change).map(|()| settings);
            configure((client, hub), project, &queue, change, false).await?;
            Ok((200, msg("Updated")))
        }
        Operation::Alert { queue, change } => {
            let change = |mut settings: Settings, _| settings.change_alerts(&change).map(|()| settings);
            configure((client, hub), project, &queue, change, false).await?;
            Ok((200, msg("Updated")))
        }
        Operation::PushStatus { queue, id } => push_status((client, hub), &named(&queue)?, id).await,
        Operation::DeleteQueue { queue } => {
            let destination = named(&queue)?;
            let _changing = hub.changing(&destination.name).await;
            describe(client, &destination).await?;
            let queue = destination.name.clone();
            let event = |connection, ticket| Event::Delete { destination, connection, ticket };
            client.ask(event).await.map_err(|refusal| ApiError::of_refusal(&refusal))?;
            let (project, alerts) = (project.to_owned(), Alerts::default());
            hub.tell(ToPusher::Configured { queue, project, push: None, alerts }).await;
            Ok((200, msg("Deleted")))
        }
        _ => Err(ApiError::bad("the request is about messages")),
    }
}

/// How long a reservation lasts: as asked for, or as set for the queue.
async fn timeout_ms(
    client: &FrontClient,
    queue: &Destination,
    timeout_s: Option<u64>,
) -> Result<u64, ApiError> {
    let about = describe(client, queue).await?;
    let set = || Settings::of(about.options.as_ref()).message_timeout_s;
    Ok(timeout_s.unwrap_or_else(set) * 1000)
}

async fn ask(
    client: &FrontClient,
    event: impl FnOnce(postroad_model::ConnectionId, postroad_model::Ticket) -> LeaseEvent,
) -> Result<Vec<LeaseAnswer>, ApiError> {
    let answered: Answered = client.lease(event).await;
    answered.map_err(|refusal| ApiError::of_refusal(&refusal))
}

async fn describe(client: &FrontClient, queue: &Destination) -> Result<QueueDescription, ApiError> {
    let queue = queue.clone();
    let answers =
        ask(client, |connection, ticket| LeaseEvent::Describe { queue, connection, ticket }).await?;
    let found = answers.into_iter().find_map(|answer| match answer {
        LeaseAnswer::Described(about) => Some(*about),
        _ => None,
    });
    found.ok_or_else(ApiError::queue_not_found)
}

async fn list(client: &FrontClient, project: &str, prefix: &str, previous: &str, per_page: u32) -> Done {
    let own = if project == "default" { String::new() } else { format!("{project}.") };
    let (whole, after): (Arc<str>, Arc<str>) = (
        format!("{own}{prefix}").into(),
        if previous.is_empty() { "".into() } else { format!("{own}{previous}").into() },
    );
    let event = |connection, ticket| {
        let (prefix, after, count_max) = (whole, after, per_page);
        LeaseEvent::List { prefix, after, count_max, connection, ticket }
    };
    let answers = ask(client, event).await?;
    let mut found: Vec<Arc<str>> = Vec::new();
    for answer in answers {
        if let LeaseAnswer::Listed(names) = answer {
            found.extend(names);
        }
    }
    found.sort_unstable();
    found.truncate(per_page as usize);
    Ok((200, names(found.iter().filter_map(|name| name.strip_prefix(&own)))))
}

/// Changes the settings of a queue; one change at a time. The broker writes to the targets of the
/// queue, so a new one needs the caller's permission to do so.
async fn configure(
    (client, hub): (&FrontClient, &PushHub),
    project: &str,
    name: &str,
    change: impl FnOnce(Settings, bool) -> Result<Settings, ApiError>,
    create: bool,
) -> Result<Settings, ApiError> {
    let queue = Destination::queue(&queue_name(project, name)?);
    let _changing = hub.changing(&queue.name).await;
    let kept = match describe(client, &queue).await {
        Ok(about) => about.options,
        Err(error) if create && error.status == 404 => None,
        Err(error) => return Err(error),
    };
    let before = Settings::of(kept.as_ref());
    // The queue may have been configured as one of another project, with other targets.
    let project_before = kept.as_ref().and_then(Settings::project_of);
    let targets_before = before.targets(project_before.as_deref().unwrap_or(project));
    let settings = change(before, kept.is_none())?;
    let (options, broker_name) = (settings.options(project, name)?, queue.name.clone());
    let targets = settings.targets(project);
    let checked = client.check_writes(targets.difference(&targets_before).map(|target| &**target));
    checked.map_err(|refusal| ApiError::of_refusal(&refusal))?;
    ask(client, |connection, ticket| LeaseEvent::Configure { queue, options, connection, ticket }).await?;
    let (push, alerts) = (settings.push.clone(), settings.alerts.clone());
    hub.tell(ToPusher::Configured { queue: broker_name, project: project.to_owned(), push, alerts }).await;
    Ok(settings)
}

/// Sends messages; those without a trace of their own have that of the request.
async fn post(
    client: &FrontClient,
    to: Destination,
    messages: Vec<NewMessage>,
    context: Option<TraceHeaders>,
) -> Done {
    let body = |message: NewMessage| {
        let context = message.context.or_else(|| context.clone());
        let extras = Extras { push_headers: kept(&message.push_headers), context };
        (Bytes::from(message.body), message.delay_s, extras)
    };
    post_bodies(client, to, messages.into_iter().map(body).collect()).await
}

fn context_of(headers: &hyper::HeaderMap) -> Option<TraceHeaders> {
    TraceHeaders::of(|name| headers.get(name)?.to_str().ok().map(str::to_owned))
}

/// Headers for subscribers as they are kept with a message.
fn kept(headers: &BTreeMap<String, String>) -> Option<String> {
    (!headers.is_empty()).then(|| serde_json::json!(headers).to_string())
}

/// Sends bodies, each with its delay and its properties.
pub async fn post_bodies(client: &FrontClient, to: Destination, bodies: Vec<(Bytes, u64, Extras)>) -> Done {
    let settings = match describe(client, &to).await {
        Ok(about) => Settings::of(about.options.as_ref()),
        Err(error) if error.status == 404 => Settings::default(),
        Err(error) => return Err(error),
    };
    let (now_ms, count) = (wall_ms(), bodies.len() as u64);
    let message = |(body, delay_s, extras): (Bytes, u64, Extras)| {
        let visible_at_ms = if delay_s == 0 { 0 } else { now_ms + delay_s * 1000 };
        let ends_ms = now_ms + (delay_s + settings.message_expiration_s) * 1000;
        stored(body, now_ms, (ends_ms, visible_at_ms), extras)
    };
    let messages = bodies.into_iter().map(message).collect();
    let posted = client.post(to, messages).await.map_err(|refusal| ApiError::of_refusal(&refusal))?;
    let Some(answers) = posted else {
        // They may be in any number of queues.
        let numbers = (0..count).map(|index| MessageId::passed_on(now_ms << 16 | index));
        return Ok((201, ids_posted(numbers)));
    };
    let ids = answers.into_iter().find_map(|answer| match answer {
        LeaseAnswer::Posted { queue, first, .. } => Some((queue, first)),
        _ => None,
    });
    let (queue, first) = ids.ok_or_else(ApiError::queue_not_found)?;
    let tags = (first.0..).take(count as usize).map(postroad_model::EntryTag);
    Ok((201, ids_posted(tags.map(|tag| MessageId { queue, tag }))))
}

/// Deletes messages: all or none, unless subscribers of a push queue are done with them.
async fn delete(
    (client, hub): (&FrontClient, &PushHub),
    queue: Destination,
    messages: Vec<Deleted>,
) -> Result<(), ApiError> {
    let about = describe(client, &queue).await?;
    let push = Settings::of(about.options.as_ref()).push;
    let mut rest = Vec::with_capacity(messages.len());
    for message in messages {
        let handle = (message.id, message.reservation);
        let Some(push) = &push else {
            rest.push(handle);
            continue;
        };
        let is_for_one = message.subscriber.is_some() && 1 < push.subscribers.len();
        let queue = queue.name.clone();
        match hub.ask(|answer| ToPusher::Acknowledge { queue, message, answer }).await?? {
            Acknowledged::Done => {}
            // The broker was started again since: other subscribers may not have it yet.
            Acknowledged::NotHeld if is_for_one => return Err(ApiError::of_stale(Stale::Expired)),
            Acknowledged::NotHeld => rest.push(handle),
            Acknowledged::WrongReservation => return Err(ApiError::of_stale(Stale::Held)),
            Acknowledged::NoSuchSubscriber => {
                return Err(ApiError::bad("subscriber_name is not a subscriber of this message"));
            }
        }
    }
    if rest.is_empty() {
        return Ok(());
    }
    handle(client, queue, rest, HandleAction::Delete { even_expired: false }).await.map(drop)
}

async fn push_status((client, hub): (&FrontClient, &PushHub), queue: &Destination, id: MessageId) -> Done {
    let about = describe(client, queue).await?;
    let push = Settings::of(about.options.as_ref()).push.ok_or_else(ApiError::no_push_queue)?;
    let name = queue.name.clone();
    if let Some(found) = hub.ask(|answer| ToPusher::Status { queue: name, id, answer }).await? {
        return Ok((200, push_statuses(found)));
    }
    // It has not come to the driver yet.
    get(client, queue.clone(), id).await?;
    Ok((200, push_statuses(push.not_tried())))
}

async fn reserve(
    client: &FrontClient,
    queue: Destination,
    messages_max: u32,
    wait_ms: u64,
    take: Take,
) -> Result<Vec<u8>, ApiError> {
    let name = queue.name.clone();
    let taken = take_some(client, queue, messages_max, wait_ms, take).await?;
    Ok(written(&name, &taken, true).1)
}

/// Deletes the messages before they are handed out. They are leased and read first: those which
/// HTTP clients do not get stay.
async fn reserve_and_delete(
    client: &FrontClient,
    queue: Destination,
    messages_max: u32,
    wait_ms: u64,
) -> Result<Vec<u8>, ApiError> {
    let take = Take::Lease { lasts_ms: DELETED_WITHIN_MS };
    let taken = take_some(client, queue.clone(), messages_max, wait_ms, take).await?;
    let (entries, json) = written(&queue.name, &taken, false);
    if !entries.is_empty() {
        handle(client, queue, entries, HandleAction::Delete { even_expired: true }).await?;
    }
    Ok(json)
}

async fn take_some(
    client: &FrontClient,
    queue: Destination,
    messages_max: u32,
    wait_ms: u64,
    take: Take,
) -> Result<Vec<Reserved>, ApiError> {
    let selector: Arc<str> = Arc::default();
    let reserve =
        |connection, ticket| Reserve { connection, ticket, queue, messages_max, selector, wait_ms, take };
    let reserved = client.reserve_whole(reserve, BODY_BYTES_MAX).await;
    reserved.map_err(|refusal| ApiError::of_refusal(&refusal))
}

/// A message and its lease.
type Held = (MessageId, Option<LeaseId>);

/// Messages as their client gets them, without those whose bodies are too large for that.
fn written(queue: &str, taken: &[Reserved], shows_leases: bool) -> (Vec<Held>, Vec<u8>) {
    let bytes = taken.iter().map(|reserved| reserved.message.bytes.len()).sum();
    let mut messages = Messages::new(shows_leases).with_room(taken.len(), bytes);
    let mut entries = Vec::with_capacity(taken.len());
    for reserved in taken {
        let shown = with_body(&reserved.message, |body| {
            let fits = body.len() as u64 <= BODY_BYTES_MAX;
            match fits {
                true => messages.push(reserved, body),
                false => passed_over(queue, body.len() as u64, BODY_BYTES_MAX),
            }
            fits
        });
        if shown {
            entries.push((MessageId { queue: reserved.queue, tag: reserved.tag }, reserved.lease));
        }
    }
    (entries, messages.into_json())
}

async fn get(client: &FrontClient, queue: Destination, id: MessageId) -> Done {
    if describe(client, &queue).await?.queue != id.queue {
        return Err(ApiError::message_not_found());
    }
    let name = queue.name.clone();
    let found = take_some(client, queue, 1, 0, Take::Get(id.tag)).await?;
    let found = found.first().ok_or_else(ApiError::message_not_found)?;
    let body = body_of(&found.message);
    if BODY_BYTES_MAX < body.len() as u64 {
        passed_over(&name, body.len() as u64, BODY_BYTES_MAX);
        return Err(ApiError::message_not_found());
    }
    Ok((200, serde_json::json!({ "message": message(found, &body) })))
}

/// Has something done with messages; returns the leases that are new.
async fn handle(
    client: &FrontClient,
    queue: Destination,
    entries: Vec<Held>,
    action: HandleAction,
) -> Result<Vec<LeaseId>, ApiError> {
    let handle = |(id, lease): (MessageId, _)| Handle { queue: id.queue, tag: id.tag, lease };
    let handles = entries.into_iter().map(handle).collect();
    let event = |connection, ticket| {
        let all_or_none = true;
        LeaseEvent::Handle(HandleEntries { queue, connection, ticket, handles, action, all_or_none })
    };
    let mut renewed = Vec::new();
    for answer in ask(client, event).await? {
        match answer {
            LeaseAnswer::Handled(results) => {
                let stale: Result<Vec<()>, Stale> = results.into_iter().collect();
                stale.map_err(ApiError::of_stale)?;
            }
            LeaseAnswer::Renewed(leases) => renewed = leases,
            _ => {}
        }
    }
    Ok(renewed)
}

/// The time of day.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

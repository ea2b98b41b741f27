//! IronMQ's operations on the broker's queues.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use postroad_ironmq::{
    ApiError, Call, Change, MessageId, NewMessage, Operation, Settings, ids_posted, message, messages, msg,
    names, queue_info, queue_name, queue_settings, touched,
};
use postroad_model::{
    Destination, Event, Handle, HandleAction, HandleEntries, LeaseAnswer, LeaseEvent, LeaseId, Post,
    QueueDescription, Reserve, Stale, Take,
};
use serde_json::Value;

use super::client::{Answered, FrontClient};
use super::stored::{body_of, stored};

/// What a call is answered: a status and a body.
pub type Done = Result<(u16, Value), ApiError>;

/// Carries out a call; `body` is that of the request.
pub async fn carry_out(client: &FrontClient, call: Call, body: &Bytes) -> Done {
    let project = &call.project;
    let named = |queue: &str| queue_name(project, queue).map(|name| Destination::queue(&name));
    match call.operation {
        Operation::List { prefix, previous, per_page } => {
            list(client, project, &prefix, &previous, per_page).await
        }
        Operation::Info { queue } => {
            let about = describe(client, &named(&queue)?).await?;
            Ok((200, queue_info(project, &queue, &about)))
        }
        Operation::Create { queue, change } => configure(client, project, &queue, &change, true).await,
        Operation::Update { queue, change } => configure(client, project, &queue, &change, false).await,
        Operation::DeleteQueue { queue } => {
            let destination = named(&queue)?;
            describe(client, &destination).await?;
            let event = |connection, ticket| Event::Delete { destination, connection, ticket };
            client.ask(event).await.map_err(|refusal| ApiError::of_refusal(&refusal))?;
            Ok((200, msg("Deleted")))
        }
        Operation::Post { queue, messages } => post(client, named(&queue)?, messages).await,
        Operation::Webhook { queue } => {
            let to = named(&queue)?;
            post_bodies(client, to, vec![(body.clone(), 0)]).await
        }
        Operation::Reserve { queue, n, timeout_s, wait_s, delete } => {
            let queue = named(&queue)?;
            let take = match (delete, timeout_s) {
                (true, _) => Take::Delete,
                (false, Some(timeout_s)) => Take::Lease { lasts_ms: timeout_s * 1000 },
                (false, None) => {
                    let settings = Settings::of(describe(client, &queue).await?.options.as_ref());
                    Take::Lease { lasts_ms: settings.message_timeout_s * 1000 }
                }
            };
            Ok((200, messages(reserve(client, queue, n, wait_s * 1000, take).await?)))
        }
        Operation::Peek { queue, n } => {
            Ok((200, messages(reserve(client, named(&queue)?, n, 0, Take::Peek).await?)))
        }
        Operation::Get { queue, id } => get(client, named(&queue)?, id).await,
        Operation::Delete { queue, ids } => {
            let action = HandleAction::Delete { even_expired: false };
            handle(client, named(&queue)?, ids, action).await?;
            Ok((200, msg("Deleted")))
        }
        Operation::Clear { queue } => {
            let queue = named(&queue)?;
            ask(client, |connection, ticket| LeaseEvent::Clear { queue, connection, ticket }).await?;
            Ok((200, msg("Cleared")))
        }
        Operation::Touch { queue, id, reservation, timeout_s } => {
            let queue = named(&queue)?;
            let timeout_s = match timeout_s {
                Some(timeout_s) => timeout_s,
                None => Settings::of(describe(client, &queue).await?.options.as_ref()).message_timeout_s,
            };
            let action = HandleAction::Extend { lasts_ms: timeout_s * 1000 };
            handle(client, queue, vec![(id, Some(reservation))], action).await?;
            Ok((200, touched(&reservation.0.to_string())))
        }
        Operation::Release { queue, id, reservation, delay_s } => {
            let action = HandleAction::Release { delay_ms: delay_s * 1000 };
            handle(client, named(&queue)?, vec![(id, Some(reservation))], action).await?;
            Ok((200, msg("Released")))
        }
    }
}

async fn ask(
    client: &FrontClient,
    event: impl FnOnce(postroad_model::ConnectionId, postroad_model::Ticket) -> LeaseEvent,
) -> Result<Vec<LeaseAnswer>, ApiError> {
    let answered: Answered =
        client.ask(|connection, ticket| Event::Lease(Box::new(event(connection, ticket)))).await;
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

async fn configure(client: &FrontClient, project: &str, name: &str, change: &Change, create: bool) -> Done {
    let queue = Destination::queue(&queue_name(project, name)?);
    let before = match describe(client, &queue).await {
        Ok(about) => Settings::of(about.options.as_ref()),
        Err(error) if create && error.status == 404 => Settings::default(),
        Err(error) => return Err(error),
    };
    let settings = change.apply(before)?;
    let options = settings.options(project)?;
    ask(client, |connection, ticket| LeaseEvent::Configure { queue, options, connection, ticket }).await?;
    Ok((200, queue_settings(project, name, &settings)))
}

async fn post(client: &FrontClient, to: Destination, messages: Vec<NewMessage>) -> Done {
    let bodies = messages.into_iter().map(|message| (Bytes::from(message.body), message.delay_s)).collect();
    post_bodies(client, to, bodies).await
}

async fn post_bodies(client: &FrontClient, to: Destination, bodies: Vec<(Bytes, u64)>) -> Done {
    let settings = match describe(client, &to).await {
        Ok(about) => Settings::of(about.options.as_ref()),
        Err(error) if error.status == 404 => Settings::default(),
        Err(error) => return Err(error),
    };
    let (now_ms, count) = (wall_ms(), bodies.len() as u64);
    let message = |(body, delay_s): (Bytes, u64)| {
        let visible_at_ms = if delay_s == 0 { 0 } else { now_ms + delay_s * 1000 };
        let ends_ms = now_ms + (delay_s + settings.message_expiration_s) * 1000;
        stored(body, now_ms, ends_ms, visible_at_ms)
    };
    let messages = bodies.into_iter().map(message).collect();
    let answers =
        ask(client, |connection, ticket| LeaseEvent::Post(Post { connection, ticket, to, messages })).await?;
    let ids = answers.into_iter().find_map(|answer| match answer {
        LeaseAnswer::Posted { queue, first } => Some((queue, first)),
        _ => None,
    });
    let (queue, first) = ids.ok_or_else(ApiError::queue_not_found)?;
    let tags = (first.0..).take(count as usize).map(postroad_model::EntryTag);
    Ok((201, ids_posted(tags.map(|tag| MessageId { queue, tag }))))
}

async fn reserve(
    client: &FrontClient,
    queue: Destination,
    messages_max: u32,
    wait_ms: u64,
    take: Take,
) -> Result<Vec<Value>, ApiError> {
    let selector: Arc<str> = Arc::default();
    let event = |connection, ticket| {
        LeaseEvent::Reserve(Reserve { connection, ticket, queue, messages_max, selector, wait_ms, take })
    };
    let answers = ask(client, event).await?;
    let reserved = answers.into_iter().find_map(|answer| match answer {
        LeaseAnswer::Reserved(messages) => Some(messages),
        _ => None,
    });
    let reserved = reserved.unwrap_or_default();
    Ok(reserved.iter().map(|reserved| message(reserved, &body_of(&reserved.message))).collect())
}

async fn get(client: &FrontClient, queue: Destination, id: MessageId) -> Done {
    if describe(client, &queue).await?.queue != id.queue {
        return Err(ApiError::message_not_found());
    }
    let mut found = reserve(client, queue, 1, 0, Take::Get(id.tag)).await?;
    let message = found.pop().ok_or_else(ApiError::message_not_found)?;
    Ok((200, serde_json::json!({ "message": message })))
}

async fn handle(
    client: &FrontClient,
    queue: Destination,
    entries: Vec<(MessageId, Option<LeaseId>)>,
    action: HandleAction,
) -> Result<(), ApiError> {
    describe(client, &queue).await?;
    let handle = |(id, lease): (MessageId, _)| Handle { queue: id.queue, tag: id.tag, lease };
    let handles = entries.into_iter().map(handle).collect();
    let event = |connection, ticket| {
        let all_or_none = true;
        LeaseEvent::Handle(HandleEntries { queue, connection, ticket, handles, action, all_or_none })
    };
    for answer in ask(client, event).await? {
        if let LeaseAnswer::Handled(results) = answer {
            let stale: Result<Vec<()>, Stale> = results.into_iter().collect();
            stale.map_err(ApiError::of_stale)?;
        }
    }
    Ok(())
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

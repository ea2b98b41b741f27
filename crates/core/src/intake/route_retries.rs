//! Redelivery by routes: a copy that its target refuses does not fail the send. It becomes a job of
//! the schedule, so that it is as durable as the copies that were taken.
//!
//! ```text
//!  send ─▶ target has room ──▶ its queue
//!     └──▶ it is full ───────▶ job, due after the delay ─┬─ target has room ──────▶ its queue
//!                                        ▲               ├─ full, not the last time ─▶ job again
//!                                        └───────────────┘
//!                                                        └─ full, the last time ──▶ dead letters
//! ```
//! One record ends a job and begins what follows from it: no restart loses or doubles the copy.
//! Dead letters for a queue of another partition pass a queue of this one, which has no consumers:
//! they have expired there, and leave it as expired messages do, in a transaction over both.

use std::sync::Arc;

use postroad_model::{
    ConnectionId, DeadLetter, Destination, DestinationKind, HeaderChanges, HeaderValue, Message, RouteRetry,
    Schedule, Sent,
};
use postroad_selector::Value;

use crate::Partition;
use crate::clock::Clock;
use crate::intake::limit::{full_refusal, is_full_for};
use crate::protocols::Protocols;
use crate::settings::Settings;

/// Names of queues for dead letters on their way to another partition begin with this.
const STAGING: &str = "postroad.route.dead-letters.";

/// More numbers than are needed to find a name that belongs to this partition.
const STAGING_MAX: u32 = 1 << 20;

/// Time at which staged messages expire: at once.
const EXPIRED_MS: u64 = 1;

/// Properties of a dead letter of a route.
const ROUTE: &str = "postroadRoute";
const TARGET: &str = "postroadRouteTarget";
const REDELIVERIES: &str = "postroadRouteRedeliveries";
const DEAD_LETTER_QUEUE: &str = "postroadRouteDeadLetterQueue";

/// The message for those of its targets that have room, and a job for each of the others.
pub fn put_off_refused(
    partition: &Partition,
    sent: Sent,
    route: Option<&Arc<str>>,
    from: ConnectionId,
) -> Vec<Sent> {
    let rule = route.and_then(|name| partition.settings.policies.routes.named(name));
    let Some(rule) = rule.filter(|_| sent.schedule.is_none() && partition.settings.policies.any_limit())
    else {
        return vec![sent];
    };
    let only = |to: &Destination| Sent { to: to.clone(), also: Vec::new(), ..sent.clone() };
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for to in sent.targets() {
        match is_full_for(partition, &only(to), from) {
            true => refused.push(to.clone()),
            false => taken.push(to.clone()),
        }
    }
    if refused.is_empty() {
        return vec![sent];
    }
    let mut sends = Vec::with_capacity(refused.len() + 1);
    let mut taken = taken.into_iter();
    if let Some(to) = taken.next() {
        sends.push(Sent { to, also: taken.collect(), ..sent.clone() });
    }
    for to in refused {
        rule.note_retried(&to);
        let delay_ms = rule.rule.redelivery.and_then(|redelivery| redelivery.rest_ms(0)).unwrap_or(0);
        sends.push(later(&partition.clock, only(&to), &rule.rule.name, (0, delay_ms)));
    }
    sends
}

/// A job that sends the copy after this number of redeliveries and this delay.
fn later(clock: &Clock, sent: Sent, route: &Arc<str>, (failed, delay_ms): (u32, u64)) -> Sent {
    let due_ms = clock.wall_ms().saturating_add(delay_ms);
    let retry = RouteRetry { route: route.clone(), failed };
    let job = format!("postroad-route:{route}").into();
    let schedule = Schedule { retry: Some(retry), ..Schedule::once(job, due_ms) };
    Sent { schedule: Some(Box::new(schedule)), ..sent }
}

/// A copy is due: it goes to its target, becomes a job again, or a dead letter.
pub fn redeliver(partition: &Partition, stored: &Sent, retry: &RouteRetry) -> Sent {
    let own = ConnectionId::internal(partition.settings.id);
    let sent = Sent { schedule: None, ..stored.clone() };
    if !is_full_for(partition, &sent, own) {
        return sent;
    }
    let failed = retry.failed.saturating_add(1);
    let route = partition.settings.policies.routes.named(&retry.route);
    let delay_ms = route.and_then(|route| route.rule.redelivery?.rest_ms(failed));
    if let (Some(route), Some(delay_ms)) = (route, delay_ms) {
        route.note_retried(&sent.to);
        return later(&partition.clock, sent, &retry.route, (failed, delay_ms));
    }
    if let Some(route) = route {
        route.note_refused(&sent.to);
    }
    // Of a route that is gone: as the policy of the target says.
    let policy = || partition.settings.policies.of(&sent.to).dead_letters.queue_of(&sent.to);
    match route.and_then(|route| route.rule.dead_letter.clone()).or_else(policy) {
        Some(grave) if grave != sent.to => refused_for_good(partition, &sent, &retry.route, failed, grave),
        // What the broker moves itself is not limited.
        _ => sent,
    }
}

fn refused_for_good(
    partition: &Partition,
    sent: &Sent,
    route: &str,
    failed: u32,
    grave: Destination,
) -> Sent {
    let refusal = full_refusal(partition, sent, ConnectionId::internal(partition.settings.id));
    let reason = format!("route {route}: {refusal}, after {failed} redeliveries");
    let past = DeadLetter { queue: grave.clone(), origin: sent.to.clone(), reason: Some(reason.into()) };
    let dead = partition.protocols.dead(&sent.message, &past);
    let mut changes = HeaderChanges::default();
    changes.put(ROUTE.into(), Some(HeaderValue::String(route.into())));
    changes.put(TARGET.into(), Some(HeaderValue::String(sent.to.to_string().into())));
    changes.put(REDELIVERIES.into(), Some(HeaderValue::integer(failed.into())));
    let is_here = partition.settings.partition_of(&grave) == partition.settings.id;
    let staging = staging_queue(&partition.settings)
        .filter(|_| !is_here || partition.settings.policies.routes.takes_from(&grave));
    match staging {
        Some(staging) => {
            changes.put(DEAD_LETTER_QUEUE.into(), Some(HeaderValue::String(grave.to_string().into())));
            let message = (partition.protocols.change_headers)(&dead, &changes);
            Sent::new(staging, Message { expires_at_ms: EXPIRED_MS, ..message })
        }
        None => Sent::new(grave, (partition.protocols.change_headers)(&dead, &changes)),
    }
}

/// A queue of this partition for dead letters that go to another one.
fn staging_queue(settings: &Settings) -> Option<Destination> {
    let names = (0..STAGING_MAX).map(|number| Destination::queue(&format!("{STAGING}{number}")));
    names.into_iter().find(|queue| settings.partition_of(queue) == settings.id)
}

/// Where a staged dead letter goes.
pub fn grave_of_staged(protocols: &Protocols, message: &Message) -> Option<Destination> {
    let properties = (protocols.properties_of)(message);
    let Some(Value::String(grave)) = properties.property(DEAD_LETTER_QUEUE) else { return None };
    let queue = grave.strip_prefix("queue://").map(Destination::queue);
    queue.or_else(|| grave.strip_prefix("topic://").map(Destination::topic))
}

/// Whether this is a queue for dead letters on their way to another partition.
pub fn is_staging(queue: &Destination) -> bool {
    queue.kind == DestinationKind::Queue && queue.name.starts_with(STAGING)
}

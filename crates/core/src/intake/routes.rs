//! Routes, beside their addresses: versions of a message that become one record, delays, and
//! throttles.
//!
//! The assembly has found the versions, before the message came here; messages that are made here,
//! dead letters, pass the routes here. A message that waits is in its queue, durably, and is not
//! delivered before its time: a restart changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{Effect, HeaderChanges, Hold, Message, Pace, Publish, RoutedSend, Routing, Sent};

use crate::Partition;
use crate::clock::Clock;
use crate::intake::publish::prepare_sent;
use crate::intake::route_retries::put_off_refused;
use crate::leader::Leader;
use crate::partition::reply;
use crate::protocols::Protocols;
use crate::settings::Settings;
use crate::transaction::put_in_transaction;

/// How the assembly changes headers of a message, whatever its protocol. A message that it cannot
/// read stays as it is.
pub type ChangeHeaders = fn(&Message, &HeaderChanges) -> Message;

/// Throttles: when the next message of each throttled route is due.
#[derive(Debug, Default)]
pub struct Paces {
    by_route: BTreeMap<Arc<str>, Window>,
}

/// A period, and how many messages are due in it already.
#[derive(Clone, Copy, Debug)]
struct Window {
    start_ms: u64,
    messages: u32,
}

impl Paces {
    /// When the next message of this route is due.
    fn due_ms(&mut self, pace: &Pace, now_ms: u64) -> u64 {
        let window =
            self.by_route.entry(pace.route.clone()).or_insert(Window { start_ms: now_ms, messages: 0 });
        if window.start_ms.saturating_add(pace.period_ms) <= now_ms {
            *window = Window { start_ms: now_ms, messages: 0 };
        }
        if pace.messages.max(1) <= window.messages {
            *window = Window { start_ms: window.start_ms.saturating_add(pace.period_ms), messages: 0 };
        }
        window.messages += 1;
        window.start_ms
    }
}

impl Partition {
    /// Says how to change the headers of messages, which only their protocols know. Until then they
    /// stay as they are.
    pub fn change_headers_by(&mut self, change_headers: ChangeHeaders) {
        self.protocols.change_headers = change_headers;
    }
}

/// The message waits as a route says: a scheduled message is due later still.
pub fn hold_back(leader: &mut Leader, clock: &Clock, sent: &mut Sent, hold: &Hold) {
    if hold.is_none() {
        return;
    }
    let now_ms = clock.wall_ms();
    let turn_ms = hold.pace.as_ref().map_or(now_ms, |pace| leader.intake.paces.due_ms(pace, now_ms));
    let wait_ms = turn_ms.saturating_sub(now_ms).saturating_add(hold.delay_ms);
    match &mut sent.schedule {
        Some(schedule) => schedule.due_ms = schedule.due_ms.saturating_add(wait_ms),
        None if 0 < wait_ms => {
            let visible_at_ms = now_ms.saturating_add(wait_ms).max(sent.message.visible_at_ms());
            sent.message = sent.message.clone().with_visible_at_ms(visible_at_ms);
        }
        None => {}
    }
}

/// Passes messages that this partition sends itself through the routes.
pub fn route_own(
    leader: &mut Leader,
    settings: &Settings,
    clock: &Clock,
    protocols: &Protocols,
    sends: Vec<Sent>,
) -> Vec<Sent> {
    let routes = settings.policies.routes.clone();
    if routes.is_empty() || !sends.iter().any(|sent| sent.targets().any(|to| routes.takes_from(to))) {
        return sends;
    }
    let mut routed = Vec::with_capacity(sends.len());
    for sent in sends {
        let properties = (protocols.properties_of)(&sent.message);
        let plan = routes.plan(&settings.addressing, sent.targets(), &*properties);
        drop(properties);
        for copy in plan.copies {
            let message = match copy.changes.is_empty() {
                true => sent.message.clone(),
                false => (protocols.change_headers)(&sent.message, &copy.changes),
            };
            // Each address may live in another partition.
            for to in copy.to {
                let mut version = Sent { to, also: Vec::new(), message: message.clone(), ..sent.clone() };
                hold_back(leader, clock, &mut version, &copy.hold);
                routed.push(version);
            }
        }
    }
    routed
}

/// Takes the versions of a message into the transaction that all of them belong to, with one
/// answer for all.
pub fn publish_routed(
    partition: &mut Partition,
    publish: Publish,
    routing: Routing,
    effects: &mut Vec<Effect>,
) {
    let Publish { connection, ticket, transaction, resent, ref sent, .. } = publish;
    // They share its body.
    let chunks = sent.message.chunks().cloned();
    let mut versions = vec![RoutedSend { sent: sent.clone(), hold: routing.hold }];
    versions.extend(routing.further);
    let mut result = Ok(());
    for RoutedSend { mut sent, hold } in versions {
        if sent.message.chunks().is_none() && chunks.is_some() {
            sent.message = sent.message.with_chunks(chunks.clone());
        }
        prepare_sent(&partition.settings, &partition.clock, &partition.protocols, &mut sent);
        hold_back(&mut partition.leader, &partition.clock, &mut sent, &hold);
        for sent in put_off_refused(partition, sent, hold.retry.as_ref(), connection) {
            let version = Publish { transaction, resent, ..Publish::plain(connection, ticket, sent) };
            result = result.and(put_in_transaction(partition, version));
        }
    }
    reply(connection, ticket, result, effects);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_lets_so_many_pass_in_each_period() {
        let mut paces = Paces::default();
        let pace = Pace { route: "r".into(), messages: 2, period_ms: 10 };
        let due: Vec<u64> = [0, 0, 0, 1, 1, 35].map(|now_ms| paces.due_ms(&pace, now_ms)).to_vec();
        assert_eq!(due, [0, 0, 10, 10, 20, 35]);
        let other = Pace { route: "other".into(), ..pace };
        assert_eq!(paces.due_ms(&other, 3), 3, "each has its own");
    }
}

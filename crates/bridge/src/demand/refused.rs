//! Subscriptions that the core refuses for a reason that lasts and concerns their destination: the
//! link goes on without them.
//!
//! ```text
//!   refused ──▶ remark, once for each reason ──▶ half a minute is over, or another consumer wants
//!                                                the target: tried again
//! ```
//! Never here: refusals that pass, which end the link: it is opened again after a pause.

use std::mem::{Discriminant, discriminant};

use postroad_model::{ConsumerKey, Destination, Event, Refusal, Ticket};
use rustc_hash::FxHashSet;

use super::{Closing, DemandEngine, Subscription, Target};

/// Reasons that are remembered; with more, they may be given again.
const GIVEN_MAX: usize = 1024;

/// Remarks that wait to be shown are one line; further ones are left out.
const REMARK_BYTES_MAX: usize = 4096;

/// All that were refused are tried again after this time: the permission, or the limit, may have
/// changed.
const AGAIN_MS: u64 = 30_000;

/// See the head of this file.
#[derive(Default)]
pub struct Refused {
    /// The reasons that operators have been given.
    given: FxHashSet<(Destination, Discriminant<Refusal>)>,
    /// When it is time to try again; 0 until the time of the refusal is known.
    again_ms: Option<u64>,
}

impl Refused {
    /// When there is something to do.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.again_ms
    }
}

/// Whether another attempt would be refused until an operator, or the consumer, changes something.
fn lasts(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotPermitted { .. }
            | Refusal::PatternTooWide { .. }
            | Refusal::BadSelector { .. }
            | Refusal::TooManyQueues { .. }
    )
}

/// The core has answered an attach.
///
/// # Errors
/// It is refused for a reason that ends the link.
pub(super) fn attach_answered(
    engine: &mut DemandEngine,
    ticket: Ticket,
    result: Result<(), Refusal>,
    events: &mut Vec<Event>,
) -> Result<(), String> {
    let Some(number) = engine.attaching.remove(&ticket) else { return Ok(()) };
    let Err(refusal) = result else { return Ok(()) };
    let Some(subscription) = engine.subscriptions.remove(&number) else { return Ok(()) };
    if let Some(link) = &engine.link {
        link.figures.queues.unsubscribed(ConsumerKey::new(link.connection, number));
    }
    if let Some(wanted) = engine.targets.get_mut(&subscription.target) {
        wanted.numbers.retain(|other| *other != number);
    }
    engine.moving.detached(number);
    if subscription.target.moves.is_some() {
        engine.cannot_move(subscription.target, &refusal);
        return Ok(());
    }
    if subscription.target.source.temporary {
        engine.temporary_refused(&subscription, &refusal, events);
        return Ok(());
    }
    refused(engine, subscription, &refusal, events)
}

/// The core has refused a subscription, which is gone.
///
/// # Errors
/// The reason passes, or concerns more than this destination: the link ends.
fn refused(
    engine: &mut DemandEngine,
    Subscription { target, at, closing, .. }: Subscription,
    refusal: &Refusal,
    events: &mut Vec<Event>,
) -> Result<(), String> {
    let source = &target.source;
    let remark = format!("cannot subscribe to {source}: {refusal}");
    if !lasts(refusal) {
        return Err(remark);
    }
    if let Some(wanted) = engine.targets.get_mut(&target).filter(|_| closing == Closing::No) {
        wanted.refused.push(at);
        engine.refused.again_ms.get_or_insert(0);
        if GIVEN_MAX <= engine.refused.given.len() {
            engine.refused.given.clear();
        }
        if engine.refused.given.insert((source.clone(), discriminant(refusal))) {
            say(&mut engine.remark, remark);
        }
    }
    // Its last consumer had gone before the answer.
    engine.end_durable(&target, events);
    Ok(())
}

/// One more wants a target of which some partitions have been refused.
pub(super) fn try_refused(engine: &mut DemandEngine, target: &Target, events: &mut Vec<Event>) {
    let Some(wanted) = engine.targets.get_mut(target) else { return };
    let refused = std::mem::take(&mut wanted.refused);
    let window = engine.targets.get(target).map_or(1, |wanted| engine.window_of(wanted));
    refused.into_iter().for_each(|at| engine.attach(target, at, window, events));
}

/// Tries all again that were refused, if it is time.
pub(super) fn wake(engine: &mut DemandEngine, now_ms: u64, events: &mut Vec<Event>) {
    match engine.refused.again_ms {
        Some(0) => engine.refused.again_ms = Some(now_ms + AGAIN_MS),
        Some(at_ms) if at_ms <= now_ms => {
            engine.refused.again_ms = None;
            let refused = engine.targets.iter().filter(|(_, wanted)| !wanted.refused.is_empty());
            let targets: Vec<Target> = refused.map(|(target, _)| target.clone()).collect();
            targets.iter().for_each(|target| try_refused(engine, target, events));
        }
        _ => {}
    }
}

/// Something that operators should know of the link, which goes on.
pub(super) fn say(remarks: &mut Option<String>, remark: String) {
    match remarks {
        None => *remarks = Some(remark),
        Some(before) if before.len() + remark.len() < REMARK_BYTES_MAX => {
            before.push_str("; ");
            before.push_str(&remark);
        }
        Some(_) => {}
    }
}

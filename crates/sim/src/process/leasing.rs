//! Clients of leases, as front ends for HTTP are: they post, reserve, and use handles, their own
//! and those of others.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use postroad_model::{
    Delivered, Destination, Event, Group, Handle, HandleAction, HandleEntries, LeaseAnswer, LeaseEvent,
    LeaseId, Now, Outcome, PartitionId, QueueOptions, RareHeaders, Reserve, Stale, Take,
};
use postroad_node::{Attachment, ClientError, Held, LocalClient};

use super::clients::{message, number_of};
use super::lease_ledger::{BURYING_QUEUE, LeaseLedger, SHARED_QUEUE, group_of};
use crate::random::Random;
use crate::selectors::SELECTORS;

/// Queues with reservers.
pub const QUEUES: usize = 3;

/// Messages that may be in the queues before posts pause.
const ALIVE_MAX: usize = 40;

/// How long leases last; shorter where queues move, which wait for them.
const LASTS_MS: [u64; 4] = [15, 60, 200, 1000];

/// Handles that clients remember.
const KNOWN_MAX: usize = 80;

/// Polls for which a client waits in most cases.
const PATIENCE: u64 = 400;

/// A handle that some client has got.
#[derive(Clone, Copy)]
struct Known {
    number: u64,
    queue: usize,
    handle: Handle,
}

/// What clients of leases share.
#[derive(Clone)]
pub struct LeaseWorld {
    /// The queues, and at last the one of the dead letters.
    pub queues: Rc<[Destination]>,
    /// The judge.
    pub ledger: Rc<RefCell<LeaseLedger>>,
    clock: Rc<Cell<Now>>,
    /// The last handles, old ones too.
    known: Rc<RefCell<Vec<Known>>>,
    /// Clients do not wait for all of their reserves.
    cancels: bool,
    /// Queues move between partitions.
    pub moves: bool,
}

impl LeaseWorld {
    /// Empty queues.
    pub fn new(clock: &Rc<Cell<Now>>, cancels: bool, moves: bool) -> LeaseWorld {
        let queues = (0..=QUEUES).map(|number| Destination::queue(&format!("leased{number}"))).collect();
        let (ledger, known) = (LeaseLedger::new(clock), Rc::default());
        LeaseWorld { queues, ledger, clock: clock.clone(), known, cancels, moves }
    }

    fn lasts_ms(&self, random: &mut Random) -> u64 {
        let some = if self.moves { &LASTS_MS[..2] } else { &LASTS_MS[..] };
        *random.pick(some).unwrap_or(&60)
    }

    fn delay_max_ms(&self) -> u64 {
        if self.moves { 20 } else { 200 }
    }

    fn learn(&self, known: Known) {
        let mut all = self.known.borrow_mut();
        if KNOWN_MAX <= all.len() {
            all.remove(0);
        }
        all.push(known);
    }
}

/// The result, unless it takes longer than this number of polls.
async fn patiently<F: Future>(future: F, mut polls: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Others have a turn.
pub(super) async fn pause(polls: u64) {
    patiently(std::future::pending::<()>(), polls).await;
}

/// Posts, reserves and uses handles until the process ends.
pub async fn lease(client: LocalClient, world: LeaseWorld, mut random: Random) {
    let dead_letters = Some(world.queues[QUEUES].name.clone());
    let queue = world.queues[BURYING_QUEUE].clone();
    let options = QueueOptions { deliveries_max: 3, dead_letters, ..QueueOptions::default() };
    let configure = |connection, ticket| LeaseEvent::Configure { queue, options, connection, ticket };
    // Refused if the disk has a fault: then it is as before.
    if client.lease(configure).await == Err(ClientError::Ended) {
        return;
    }
    loop {
        let done = match random.below(10) {
            0..2 => post(&client, &world, &mut random).await,
            2..6 => reserve(&client, &world, &mut random).await,
            _ => handle(&client, &world, &mut random).await,
        };
        if done.is_err() {
            return;
        }
    }
}

/// Whether the client goes on after this error.
fn goes_on(error: ClientError) -> Result<(), ClientError> {
    match error {
        ClientError::Refused(_) => Ok(()),
        error => Err(error),
    }
}

async fn post(client: &LocalClient, world: &LeaseWorld, random: &mut Random) -> Result<(), ClientError> {
    if ALIVE_MAX <= world.ledger.borrow().alive() {
        pause(1).await;
        return Ok(());
    }
    let queue = random.below(QUEUES as u64) as usize;
    let wall_ms = world.clock.get().wall_ms;
    let (mut calls, mut messages) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(4) {
        let delay_ms = if random.one_in(5) { 1 + random.below(world.delay_max_ms()) } else { 0 };
        let expires_at_ms = if random.one_in(12) { wall_ms + 50 + random.below(500) } else { 0 };
        let (number, call) = world.ledger.borrow_mut().posting(queue, delay_ms, expires_at_ms);
        let mut message = message(number, random.below(300) as usize);
        message.expires_at_ms = expires_at_ms;
        let group = group_of(number).map(|name| Group { id: name.into(), sequence: 0 });
        message.rare = group.map(|group| Arc::new(RareHeaders { group: Some(group), ..Default::default() }));
        messages.push(match delay_ms {
            0 => message,
            _ => message.with_visible_at_ms(wall_ms + delay_ms),
        });
        calls.push((number, call));
    }
    match client.post(world.queues[queue].clone(), messages).await {
        Ok(_) => calls.into_iter().for_each(|(number, call)| world.ledger.borrow_mut().posted(number, call)),
        // Whether they are there is not known.
        Err(error) => goes_on(error)?,
    }
    Ok(())
}

async fn reserve(client: &LocalClient, world: &LeaseWorld, random: &mut Random) -> Result<(), ClientError> {
    let queue = random.below(QUEUES as u64) as usize;
    let lasts_ms = world.lasts_ms(random);
    let wait_ms = if random.one_in(3) { random.below(100) } else { 0 };
    let (messages_max, from) = (1 + random.below(4) as u32, world.queues[queue].clone());
    let patience = if world.cancels && random.one_in(10) { random.below(8) } else { u64::MAX };
    client.ready().await?;
    let call = world.ledger.borrow_mut().reserving(queue);
    let (selector, take) = (some_selector(random), Take::Lease { lasts_ms });
    let wanted = selector.clone();
    let event = |connection, ticket| {
        let reserve = Reserve { connection, ticket, queue: from, messages_max, selector, wait_ms, take };
        LeaseEvent::Reserve(reserve)
    };
    // Not waited for, it is cancelled.
    let answers = patiently(client.lease(event), patience).await;
    let mut ledger = world.ledger.borrow_mut();
    let answers = match answers {
        Some(Ok(answers)) => answers,
        other => {
            ledger.reserve_failed(call, other.is_none());
            ledger.counts.add("reserves without answer", 1);
            return other.and_then(Result::err).map_or(Ok(()), goes_on);
        }
    };
    let reserved = answers.into_iter().flat_map(|answer| match answer {
        LeaseAnswer::Reserved(reserved) => reserved,
        _ => Vec::new(),
    });
    let handles: Vec<(u64, Handle)> = reserved
        .map(|one| {
            let handle = Handle { queue: one.queue, tag: one.tag, lease: one.lease };
            (number_of(&one.message), handle)
        })
        .collect();
    ledger.reserved(call, lasts_ms, &handles);
    handles.iter().for_each(|(number, _)| ledger.selected(*number, &wanted));
    handles.into_iter().for_each(|(number, handle)| world.learn(Known { number, queue, handle }));
    Ok(())
}

/// A selector, or none.
fn some_selector(random: &mut Random) -> Arc<str> {
    let selector = random.pick(&SELECTORS).filter(|_| random.one_in(3));
    selector.map_or_else(Arc::default, |(text, _)| (*text).into())
}

/// Some handles of one queue, mostly new ones, and now and then entries without their leases.
fn some_handles(world: &LeaseWorld, random: &mut Random) -> Vec<Known> {
    let known = world.known.borrow();
    let among = if random.one_in(3) { KNOWN_MAX } else { 8 };
    let last = &known[known.len().saturating_sub(among)..];
    let Some(first) = random.pick(last) else { return Vec::new() };
    let (mut some, mut numbers) = (vec![*first], BTreeSet::from([first.number]));
    for _ in 0..if random.one_in(3) { 2 } else { 0 } {
        let more = random.pick(last).filter(|known| known.queue == first.queue);
        some.extend(more.filter(|known| numbers.insert(known.number)));
    }
    some
}

fn some_action(world: &LeaseWorld, random: &mut Random) -> HandleAction {
    let lasts_ms = world.lasts_ms(random);
    match random.below(8) {
        0..4 => HandleAction::Delete { even_expired: random.one_in(4) },
        4 => HandleAction::Extend { lasts_ms },
        5 => HandleAction::Renew { lasts_ms },
        _ => HandleAction::Release {
            delay_ms: if random.one_in(2) { 0 } else { random.below(world.delay_max_ms()) },
        },
    }
}

async fn handle(client: &LocalClient, world: &LeaseWorld, random: &mut Random) -> Result<(), ClientError> {
    let mut some = some_handles(world, random);
    let Some(first) = some.first().copied() else {
        pause(1).await;
        return Ok(());
    };
    let (mut action, all_or_none) = (some_action(world, random), random.one_in(4));
    // Without its lease an entry is known by its queue's number, which another queue may have where
    // it is now.
    if !world.moves && random.one_in(10) {
        action = HandleAction::Delete { even_expired: false };
        some.iter_mut().for_each(|known| known.handle.lease = None);
    }
    client.ready().await?;
    let begin = |known: &Known| world.ledger.borrow_mut().handling(known.number, known.handle, action);
    let calls: Vec<_> = some.iter().map(begin).collect();
    let (queue, handles) =
        (world.queues[first.queue].clone(), some.iter().map(|known| known.handle).collect());
    let event = |connection, ticket| {
        LeaseEvent::Handle(HandleEntries { queue, connection, ticket, handles, action, all_or_none })
    };
    let answers = match client.lease(event).await {
        Ok(answers) => Some(answers),
        Err(ClientError::Refused(_)) => None,
        Err(error) => return Err(error),
    };
    let (results, renewed) = answers.map_or((None, Vec::new()), results_of);
    let is_done = !(all_or_none && results.iter().flatten().any(Result::is_err));
    let mut renewed = renewed.into_iter();
    for (place, (known, call)) in some.into_iter().zip(calls).enumerate() {
        let result = results.as_ref().map_or(Err(()), |results| results.get(place).copied().ok_or(()));
        let lease = if result == Ok(Ok(())) && is_done { renewed.next() } else { None };
        let about = (known.number, known.handle, action);
        world.ledger.borrow_mut().handled(about, call, (result, is_done), lease);
        if lease.is_some() {
            world.learn(Known { handle: Handle { lease, ..known.handle }, ..known });
        }
    }
    Ok(())
}

fn results_of(answers: Vec<LeaseAnswer>) -> (Option<Vec<Result<(), Stale>>>, Vec<LeaseId>) {
    let (mut results, mut renewed) = (None, Vec::new());
    for answer in answers {
        match answer {
            LeaseAnswer::Handled(handled) => results = Some(handled),
            LeaseAnswer::Renewed(leases) => renewed = leases,
            _ => {}
        }
    }
    (results, renewed)
}

/// Consumes beside the reservers until the process ends, now and then.
pub async fn compete(client: LocalClient, world: LeaseWorld, mut random: Random) {
    loop {
        pause(random.below(PATIENCE)).await;
        let consumer = world.ledger.borrow_mut().attached();
        let credit = 1 + random.below(3) as u32;
        let attachment = Attachment {
            selector: some_selector(&mut random),
            ..Attachment::shared(world.queues[SHARED_QUEUE].clone(), credit)
        };
        let wanted = attachment.selector.clone();
        let Ok(mut attached) = client.attach(attachment).await else { return };
        for _ in 0..1 + random.below(4) {
            let Some(Some(delivery)) = patiently(attached.next(), random.below(PATIENCE)).await else {
                break;
            };
            let number = number_of(&delivery.message);
            world.ledger.borrow_mut().consumed(number, consumer);
            world.ledger.borrow_mut().selected(number, &wanted);
            if random.one_in(2) {
                let call = world.ledger.borrow_mut().settling(number);
                let done = attached.settle(&[Held::of(&delivery)], Outcome::Accepted).await;
                if !matches!(done, Ok(()) | Err(ClientError::Refused(_))) {
                    return;
                }
                world.ledger.borrow_mut().settled(number, call, done.is_ok());
            }
        }
        world.ledger.borrow_mut().detaching(consumer);
        if attached.detach(Delivered::None).await == Err(ClientError::Ended) {
            return;
        }
    }
}

/// Has queues move between partitions until the process ends.
pub async fn move_queues(client: LocalClient, world: LeaseWorld, partitions: u64, mut random: Random) {
    loop {
        pause(random.below(PATIENCE / 8)).await;
        let queue = random.below(world.queues.len() as u64) as usize;
        let (leaves, to) = (world.queues[queue].clone(), PartitionId(random.below(partitions) as u16));
        if client.ready().await.is_err() {
            return;
        }
        let before = world.ledger.borrow_mut().moving(queue);
        let answer =
            client.request(|connection, ticket| Event::Move { queue: leaves, to, connection, ticket }).await;
        let Ok(answer) = answer else { return };
        world.ledger.borrow_mut().moves(queue, before, answer.result);
    }
}

/// Reads a queue to its end.
pub async fn read_out(client: LocalClient, world: LeaseWorld, queue: usize) {
    let Ok(mut consumer) = client.attach(Attachment::shared(world.queues[queue].clone(), 10)).await else {
        return;
    };
    while let Some(delivery) = consumer.next().await {
        consumer.renew(&delivery);
        world.ledger.borrow_mut().read_out(number_of(&delivery.message), queue == QUEUES);
        if consumer.settle(&[Held::of(&delivery)], Outcome::Accepted).await.is_err() {
            return;
        }
    }
}

/// Nothing is left in a queue, says the queue.
pub async fn describe(client: LocalClient, world: LeaseWorld, queue: usize) {
    let of = world.queues[queue].clone();
    let asked = |connection, ticket| LeaseEvent::Describe { queue: of, connection, ticket };
    let Ok(answers) = client.lease(asked).await else { return };
    for answer in answers {
        let LeaseAnswer::Described(about) = answer else { continue };
        let mut ledger = world.ledger.borrow_mut();
        ledger.counts.add("described", 1);
        if (about.length, about.leased, about.delayed, about.held) != (0, 0, 0, 0) {
            ledger.breaks(format!("queue {queue} was read to its end, and is not empty: {about:?}"));
        }
    }
}

//! Clients inside the process: producers and consumers that say in the ledger what they were
//! promised.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use postroad_model::{
    Delivered, Delivery, Destination, Encoding, Event, Message, NORMAL_PRIORITY, Outcome, PartitionId,
    Protocol, Sent,
};
use postroad_node::{Attachment, ClientError, Held, LocalClient};

use super::leasing::pause;
use super::ledger::Ledger;
use super::transacting::Transacting;
use crate::random::Random;

/// Unconfirmed sends of a producer, at most.
const WINDOW_MAX: u64 = 6;

/// Turns between two moves, at most.
const MOVED_AFTER: u64 = 12;

/// What clients of one process share.
#[derive(Clone)]
pub struct World {
    /// Their queues, which are on several partitions.
    pub queues: Rc<[Destination]>,
    /// The judge.
    pub ledger: Rc<RefCell<Ledger>>,
    /// Each queue has one consumer.
    pub is_alone: bool,
    /// Clients have transactions.
    pub transacts: bool,
    /// Queues move between partitions.
    pub moves: bool,
}

impl World {
    /// One queue, or several.
    pub fn some_queues(&self, random: &mut Random) -> Vec<usize> {
        let first = random.below(self.queues.len() as u64) as usize;
        let mut queues = vec![first];
        if random.one_in(4) {
            queues.extend((first + 1..self.queues.len()).filter(|_| random.one_in(2)));
        }
        queues
    }
}

/// Producers that are consumers too have numbers from here on.
const FIRST_FORWARDER: u64 = 1 << 32;

/// Sends messages until the process ends, some to several queues at once.
pub async fn produce(client: LocalClient, world: World, producer: u64, mut random: Random) {
    let window = 1 + random.below(WINDOW_MAX) as usize;
    let mut waiting = VecDeque::new();
    while client.ready().await.is_ok() {
        if world.transacts && random.one_in(4) {
            let mut transacting = Transacting::begin(&client, &world);
            if transacting.send_some(producer, &mut random).await.is_err()
                || transacting.end(&mut random).await.is_err()
            {
                return;
            }
            continue;
        }
        let queues = world.some_queues(&mut random);
        let number = world.ledger.borrow_mut().sending(producer, &queues);
        let mut sent =
            Sent::new(world.queues[queues[0]].clone(), message(number, random.below(300) as usize));
        sent.also = queues[1..].iter().map(|queue| world.queues[*queue].clone()).collect();
        let Ok(receipt) = client.send(sent) else { return };
        waiting.push_back((number, receipt));
        while window <= waiting.len()
            && let Some((number, receipt)) = waiting.pop_front()
        {
            match receipt.done().await {
                Ok(()) => world.ledger.borrow_mut().confirmed(number),
                // Whether it is there is not known: the disk had a fault.
                Err(ClientError::Refused(_)) => {}
                Err(_) => return,
            }
        }
    }
}

/// Reads a queue until the process ends, by one consumer after the other.
pub async fn consume(client: LocalClient, world: World, queue: usize, mut random: Random) {
    loop {
        let id = world.ledger.borrow_mut().attached();
        let attachment = Attachment::shared(world.queues[queue].clone(), 1 + random.below(6) as u32);
        let Ok(mut consumer) = client.attach(attachment).await else { return };
        let mut kept: Vec<Delivery> = Vec::new();
        for _ in 0..1 + random.below(30) {
            // One whose queue has moved may have been ended.
            let Some(delivery) = consumer.next().await else { break };
            let copy = (number_of(&delivery.message), queue);
            world.ledger.borrow_mut().delivered(copy, id, world.is_alone);
            consumer.renew(&delivery);
            kept.push(delivery);
            if world.transacts && random.one_in(4) {
                let mut transacting = Transacting::begin(&client, &world);
                if transacting.settle(&kept, queue).await.is_err() {
                    return;
                }
                if random.one_in(2) && transacting.send_some(FIRST_FORWARDER + id, &mut random).await.is_err()
                {
                    return;
                }
                match transacting.end(&mut random).await {
                    Ok(true) => kept.clear(),
                    // It has them again.
                    Ok(false) => {}
                    Err(_) => return,
                }
                continue;
            }
            if random.one_in(2) && settle(&consumer, &world, queue, &mut kept).await.is_err() {
                return;
            }
        }
        world.ledger.borrow_mut().detached(id);
        if consumer.cause().is_none() && consumer.detach(Delivered::None).await.is_err() {
            return;
        }
    }
}

/// Moves queues between partitions until the process ends.
pub async fn move_some(client: LocalClient, world: World, partitions: u64, mut random: Random) {
    loop {
        pause(random.below(MOVED_AFTER)).await;
        let queue = world.queues[random.below(world.queues.len() as u64) as usize].clone();
        let to = PartitionId(random.below(partitions) as u16);
        let moving = |connection, ticket| Event::Move { queue, to, connection, ticket };
        let Ok(answer) = client.request(moving).await else { return };
        world.ledger.borrow_mut().moves += u64::from(answer.result.is_ok());
    }
}

/// Reads a queue to its end, and settles all of it.
pub async fn drain(client: LocalClient, world: World, queue: usize) {
    loop {
        let id = world.ledger.borrow_mut().attached();
        let attachment = Attachment::shared(world.queues[queue].clone(), 10);
        let Ok(mut consumer) = client.attach(attachment).await else { return };
        while let Some(delivery) = consumer.next().await {
            world.ledger.borrow_mut().delivered((number_of(&delivery.message), queue), id, true);
            consumer.renew(&delivery);
            if settle(&consumer, &world, queue, &mut vec![delivery]).await.is_err() {
                return;
            }
        }
        world.ledger.borrow_mut().detached(id);
    }
}

/// Settles these, and notes that the broker said so.
async fn settle(
    consumer: &postroad_node::Consumer,
    world: &World,
    queue: usize,
    kept: &mut Vec<Delivery>,
) -> Result<(), ClientError> {
    let kept = std::mem::take(kept);
    let copies: Vec<_> = kept.iter().map(|delivery| (number_of(&delivery.message), queue)).collect();
    copies.iter().for_each(|copy| world.ledger.borrow_mut().settling(*copy));
    let held: Vec<Held> = kept.iter().map(Held::of).collect();
    match consumer.settle(&held, Outcome::Accepted).await {
        Ok(()) => copies.iter().for_each(|copy| world.ledger.borrow_mut().settled(*copy)),
        // They may be settled or not.
        Err(ClientError::Refused(_)) => {
            copies.iter().for_each(|copy| world.ledger.borrow_mut().unsettled(*copy));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

pub(super) fn message(number: u64, more: usize) -> Message {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + more, b'.');
    Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: None,
        bytes: Bytes::from(bytes),
    }
}

pub(super) fn number_of(message: &Message) -> u64 {
    let first = message.bytes.first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(first)
}

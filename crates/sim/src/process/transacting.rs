//! Transactions of clients: sends, settlements, or both, which are committed or rolled back.

use postroad_model::{Delivery, Event, Outcome, Publish, Sent, Settle, TransactionKey};
use postroad_node::{ClientError, LocalClient, Receipt};

use super::clients::{World, message, number_of};
use super::ledger::Copy;
use crate::random::Random;

/// Messages of a transaction, at most.
const SENDS_MAX: u64 = 4;

/// A transaction of one client.
pub struct Transacting<'c> {
    client: &'c LocalClient,
    world: &'c World,
    key: TransactionKey,
    /// Its number in the ledger.
    number: u64,
    receipts: Vec<Receipt>,
    settled: Vec<Copy>,
}

impl<'c> Transacting<'c> {
    /// A new one.
    pub fn begin(client: &'c LocalClient, world: &'c World) -> Transacting<'c> {
        let number = world.ledger.borrow_mut().begins();
        let key = TransactionKey { connection: client.connection(), number };
        Transacting { client, world, key, number, receipts: Vec::new(), settled: Vec::new() }
    }

    /// Sends messages in it.
    pub async fn send_some(&mut self, producer: u64, random: &mut Random) -> Result<(), ClientError> {
        for _ in 0..1 + random.below(SENDS_MAX) {
            self.client.ready().await?;
            let queues = self.world.some_queues(random);
            let number = self.world.ledger.borrow_mut().sending_in(self.number, producer, &queues);
            let mut sent = Sent::new(self.world.queues[queues[0]].clone(), message(number, 20));
            sent.also = queues[1..].iter().map(|queue| self.world.queues[*queue].clone()).collect();
            let transaction = Some(self.key);
            self.receipts.push(self.client.try_request(|connection, ticket| {
                Event::Publish(Publish { transaction, ..Publish::plain(connection, ticket, sent) })
            })?);
        }
        Ok(())
    }

    /// Settles these in it.
    pub async fn settle(&mut self, kept: &[Delivery], queue: usize) -> Result<(), ClientError> {
        for delivery in kept {
            self.client.ready().await?;
            self.settled.push((number_of(&delivery.message), queue));
            let (consumer, tags, transaction) = (delivery.consumer, vec![delivery.tag], Some(self.key));
            self.receipts.push(self.client.try_request(|_, ticket| {
                let (outcome, reason, ticket) = (Outcome::Accepted, None, Some(ticket));
                Event::Settle(Settle { consumer, tags, outcome, transaction, reason, ticket })
            })?);
        }
        Ok(())
    }

    /// Commits it, or rolls it back; whether the commit was confirmed.
    pub async fn end(self, random: &mut Random) -> Result<bool, ClientError> {
        let (ledger, transaction) = (&self.world.ledger, self.key);
        // A client may commit before it has all answers.
        let waits = random.one_in(2);
        for receipt in self.receipts {
            if !waits {
                break;
            }
            match receipt.done().await {
                Ok(()) => {}
                Err(ClientError::Refused(_)) => ledger.borrow_mut().refused_in(self.number),
                Err(error) => return Err(error),
            }
        }
        self.client.ready().await?;
        if random.one_in(4) {
            let rollback = |_, ticket| Event::Rollback { transaction, ticket: Some(ticket) };
            let answer = self.client.try_request(rollback)?.answer().await?;
            ledger.borrow_mut().rolled_back += u64::from(answer.result.is_ok());
            return Ok(false);
        }
        ledger.borrow_mut().committing(self.number, &self.settled);
        let commit = |_, ticket| Event::Commit { transaction, participants: Vec::new(), ticket };
        let answer = self.client.try_request(commit)?.answer().await?;
        match answer.result.is_ok() {
            true => ledger.borrow_mut().committed(self.number),
            false => ledger.borrow_mut().in_doubt(self.number),
        }
        Ok(answer.result.is_ok())
    }
}

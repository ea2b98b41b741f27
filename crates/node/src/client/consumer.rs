//! A client's consumers: deliveries come with credit, and wait in a bounded inbox.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use postroad_model::{
    Attach, ConsumerKey, ConsumerMode, ConsumerNotice, Delivered, Delivery, Destination, DetachCause,
    EntryTag, Event, Outcome, PartitionId, Settle, Share, ToSession,
};
use tokio::sync::Notify;

use crate::client::{ClientError, LocalClient};

/// The source, and the mode of reading.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// A queue or topic; a pattern reads every destination that matches.
    pub source: Destination,
    /// How it reads.
    pub mode: ConsumerMode,
    /// Messages that it may be sent at first; of a pattern, from each partition.
    pub credit: u32,
    /// Only messages that match this selector; empty for all.
    pub selector: Arc<str>,
    /// Consumers of higher priority are served first.
    pub priority: i8,
    /// Topics: the subscription's name, and whether others may read it too.
    pub subscription: Option<Arc<str>>,
    /// See [`Attachment::subscription`].
    pub share: Share,
    /// Topics: skip messages of this client.
    pub no_local: bool,
    /// Topics: begin with the retained messages.
    pub retroactive: bool,
    /// Its advisory, if it has one.
    pub notice: Option<Arc<ConsumerNotice>>,
}

impl Attachment {
    /// In competition with other consumers.
    pub fn shared(source: Destination, credit: u32) -> Attachment {
        Attachment {
            source,
            mode: ConsumerMode::Shared,
            credit,
            selector: Arc::default(),
            priority: 0,
            subscription: None,
            share: Share::No,
            no_local: false,
            retroactive: false,
            notice: None,
        }
    }

    /// As [`Attachment::shared`], and of a paused queue too.
    pub fn operator(source: Destination, credit: u32) -> Attachment {
        Attachment { mode: ConsumerMode::Operator, ..Attachment::shared(source, credit) }
    }

    /// Sees the queue's present messages, takes none, and ends after that.
    pub fn browser(source: Destination, selector: &str, credit: u32) -> Attachment {
        let selector = selector.into();
        Attachment { mode: ConsumerMode::Browse, selector, ..Attachment::shared(source, credit) }
    }

    fn attach(&self, consumer: ConsumerKey, at: Option<PartitionId>, client: &LocalClient) -> Attach {
        Attach {
            consumer,
            source: self.source.clone(),
            at,
            mode: self.mode,
            credit: self.credit,
            credit_by_default: false,
            priority: self.priority,
            no_local: self.no_local,
            client: Some(client.options().name.clone()),
            selector: self.selector.clone(),
            subscription: self.subscription.clone(),
            share: self.share,
            steals: None,
            retroactive: self.retroactive,
            notice: self.notice.clone().filter(|_| at.is_none_or(|at| at == PartitionId(0))),
            ticket: postroad_model::Ticket(0),
        }
    }
}

/// A delivery in a consumer's hands, to be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The consumer, or the member of it that was sent it.
    pub consumer: ConsumerKey,
    /// The entry.
    pub tag: EntryTag,
}

impl Held {
    /// Of this delivery.
    pub fn of(delivery: &Delivery) -> Held {
        Held { consumer: delivery.consumer, tag: delivery.tag }
    }
}

/// Deliveries that the consumer has not taken. Bounded by its credit.
#[derive(Default)]
pub(super) struct Inbox {
    deliveries: RefCell<VecDeque<Delivery>>,
    /// Parts that have said so since the last drain began, or since a browser was attached.
    drained: Cell<usize>,
    parts: Cell<usize>,
    cause: Cell<Option<DetachCause>>,
    filled: Notify,
}

impl Inbox {
    pub(super) fn put(&self, delivery: Delivery) {
        self.deliveries.borrow_mut().push_back(delivery);
        self.filled.notify_one();
    }

    pub(super) fn drained(&self) {
        self.drained.set(self.drained.get() + 1);
        self.filled.notify_one();
    }

    pub(super) fn detached(&self, cause: DetachCause) {
        self.cause.set(Some(cause));
        self.ended();
    }

    /// One of its parts is gone.
    pub(super) fn ended(&self) {
        self.parts.set(self.parts.get().saturating_sub(1));
        self.filled.notify_one();
    }
}

/// A consumer. Dropped, it is detached: its deliveries go back as not delivered.
pub struct Consumer {
    client: LocalClient,
    inbox: Rc<Inbox>,
    /// Its numbers in the core: one, or one for each partition if it reads a pattern.
    numbers: Vec<u32>,
    browses: bool,
    is_detached: bool,
}

impl LocalClient {
    /// Attaches a consumer; done once it is attached.
    ///
    /// # Errors
    /// [`ClientError::Refused`], [`ClientError::TooManyConsumers`], [`ClientError::TooMuchCredit`],
    /// [`ClientError::Ended`].
    pub async fn attach(&self, attachment: Attachment) -> Result<Consumer, ClientError> {
        let limits = &self.joined.options.limits;
        let places = self.joined.handle.core.borrow().places();
        let partitions = places.borrow().placement.partitions;
        let is_pattern = attachment.source.is_pattern();
        let parts: Vec<Option<PartitionId>> = match is_pattern {
            true => (0..partitions).map(|number| Some(PartitionId(number))).collect(),
            false => vec![None],
        };
        let numbers = {
            let mut state = self.joined.state.borrow_mut();
            if limits.consumers_max < state.consumers.len() + parts.len() {
                return Err(ClientError::TooManyConsumers { max: limits.consumers_max });
            }
            let credit = u64::from(attachment.credit) * parts.len() as u64;
            state.take_credit(credit, limits.credit_max)?;
            let first = state.last_consumer + 1;
            state.last_consumer += parts.len() as u32;
            (first..=state.last_consumer).collect::<Vec<u32>>()
        };
        let inbox = Rc::new(Inbox::default());
        inbox.parts.set(numbers.len());
        for number in &numbers {
            self.joined.state.borrow_mut().consumers.insert(*number, inbox.clone());
        }
        let browses = attachment.mode == ConsumerMode::Browse;
        // From here on it is detached if anything fails.
        let consumer = Consumer { client: self.clone(), inbox, numbers, browses, is_detached: false };
        for (number, at) in consumer.numbers.iter().zip(parts) {
            let attach = attachment.attach(ConsumerKey::new(self.joined.id, *number), at, self);
            let answer = self.request(|_, ticket| Event::Attach(Attach { ticket, ..attach })).await?;
            answer.result?;
        }
        Ok(consumer)
    }
}

impl super::State {
    fn take_credit(&mut self, add: u64, max: u64) -> Result<(), ClientError> {
        if max < self.credit + add {
            return Err(ClientError::TooMuchCredit { max });
        }
        self.credit += add;
        Ok(())
    }
}

impl Consumer {
    /// The next delivery; `None` once it has ended: see [`Consumer::cause`]. A browser ends when it
    /// has seen all.
    pub async fn next(&mut self) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.take() {
                return Some(delivery);
            }
            if self.has_ended() {
                return None;
            }
            self.inbox.filled.notified().await;
        }
    }

    /// A delivery that is there already.
    pub fn take(&mut self) -> Option<Delivery> {
        let delivery = self.inbox.deliveries.borrow_mut().pop_front()?;
        let mut state = self.client.joined.state.borrow_mut();
        state.credit = state.credit.saturating_sub(1);
        drop(state);
        // Its bytes have left the outbox: the partition may send more.
        let delivery = ToSession::Deliver(delivery);
        self.client.joined.note(&delivery);
        self.client.joined.handle.tell(|_| ());
        match delivery {
            ToSession::Deliver(delivery) => Some(delivery),
            _ => None,
        }
    }

    fn has_ended(&self) -> bool {
        let parts = self.inbox.parts.get();
        parts == 0 || self.browses && self.numbers.len() <= self.inbox.drained.get()
    }

    /// Why the broker ended it, if it did.
    pub fn cause(&self) -> Option<DetachCause> {
        self.inbox.cause.get()
    }

    /// Has a browser without credit begin after these entries: those that another browser saw last,
    /// one of each lane.
    pub fn seek(&self, after: &[EntryTag]) {
        let after = after.to_vec();
        self.keys().for_each(|consumer| self.client.say(Event::Seek { consumer, after: after.clone() }));
    }

    /// Adds credit for this number of messages; of a pattern, in each partition.
    ///
    /// # Errors
    /// [`ClientError::TooMuchCredit`].
    pub fn credit(&self, add: u32) -> Result<(), ClientError> {
        let max = self.client.joined.options.limits.credit_max;
        let all = u64::from(add) * self.numbers.len() as u64;
        self.client.joined.state.borrow_mut().take_credit(all, max)?;
        self.keys().for_each(|consumer| self.client.say(Event::Credit { consumer, add }));
        Ok(())
    }

    /// Lets it be sent one more message, by the partition that this one came from.
    pub fn renew(&self, delivery: &Delivery) {
        self.client.joined.state.borrow_mut().credit += 1;
        self.client.say(Event::Credit { consumer: delivery.consumer.whole(), add: 1 });
    }

    /// Withdraws the remaining credit; done once all earlier deliveries are here.
    pub async fn drain(&mut self) {
        self.inbox.drained.set(0);
        self.keys().for_each(|consumer| self.client.say(Event::Drain { consumer }));
        while self.inbox.drained.get() < self.inbox.parts.get() {
            self.inbox.filled.notified().await;
        }
        let waiting = self.inbox.deliveries.borrow().len() as u64;
        let mut state = self.client.joined.state.borrow_mut();
        state.credit = state.credit.min(waiting + state.consumers.len() as u64);
        drop(state);
        // `next` has to find deliveries that came meanwhile.
        self.inbox.filled.notify_one();
    }

    /// Settles deliveries; done once that is durable, where it is to be.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Ended`].
    pub async fn settle(&self, held: &[Held], outcome: Outcome) -> Result<(), ClientError> {
        let mut receipts = Vec::new();
        for of_one in held.chunk_by(|a, b| a.consumer == b.consumer) {
            let (consumer, tags) = (of_one[0].consumer, of_one.iter().map(|held| held.tag).collect());
            self.client.ready().await?;
            receipts.push(self.client.try_request(|_, ticket| {
                let (transaction, reason, ticket) = (None, None, Some(ticket));
                Event::Settle(Settle { consumer, tags, outcome, transaction, reason, ticket })
            })?);
        }
        for receipt in receipts {
            receipt.done().await?;
        }
        Ok(())
    }

    /// Gives deliveries back to their places in the queue.
    ///
    /// # Errors
    /// As [`Consumer::settle`].
    pub async fn release(&self, held: &[Held], failed: bool) -> Result<(), ClientError> {
        self.settle(held, Outcome::Released { failed }).await
    }

    /// Detaches it; done once its deliveries are back in the queue. `delivered` says which of them
    /// count as delivered.
    ///
    /// # Errors
    /// [`ClientError::Ended`].
    pub async fn detach(mut self, delivered: Delivered) -> Result<(), ClientError> {
        self.is_detached = true;
        self.forget();
        let keys: Vec<ConsumerKey> = self.keys().collect();
        for consumer in keys {
            let detach = |_, ticket| Event::Detach { consumer, delivered, ticket: Some(ticket) };
            self.client.request(detach).await?.result?;
        }
        Ok(())
    }

    fn keys(&self) -> impl Iterator<Item = ConsumerKey> + '_ {
        self.numbers.iter().map(|number| ConsumerKey::new(self.client.joined.id, *number))
    }

    /// Later deliveries to it are not kept: the broker has them back when it is detached.
    fn forget(&self) {
        let mut state = self.client.joined.state.borrow_mut();
        self.numbers.iter().for_each(|number| {
            state.consumers.remove(number);
        });
        if state.consumers.is_empty() {
            state.credit = 0;
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if self.is_detached {
            return;
        }
        self.forget();
        for consumer in self.keys() {
            self.client.say(Event::Detach { consumer, delivered: Delivered::None, ticket: None });
        }
    }
}

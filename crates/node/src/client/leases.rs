//! Leases, for front ends whose clients have no consumers: post, reserve, delete, and the settings
//! of queues.

use postroad_model::{
    ConnectionId, ConsumerKey, Destination, Event, LeaseAnswer, LeaseEvent, Message, Post, Publish, Reserved,
    Sent, Ticket, ToSession, TransactionKey,
};

use crate::client::{Answer, ClientError, LocalClient};

impl LocalClient {
    /// Makes a request about leases, and waits for the answers. Dropped before they have come, a
    /// reserve or watch is cancelled.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Ended`].
    pub async fn lease(
        &self,
        make: impl FnOnce(ConnectionId, Ticket) -> LeaseEvent,
    ) -> Result<Vec<LeaseAnswer>, ClientError> {
        self.ready().await?;
        let mut polling = Polling { client: self, polled: None };
        let receipt = self.try_request(|connection, ticket| {
            let event = make(connection, ticket);
            polling.polled = match &event {
                LeaseEvent::Reserve(reserve) => Some((reserve.queue.clone(), ticket)),
                LeaseEvent::Watch(watch) => Some((watch.queue.clone(), ticket)),
                _ => None,
            };
            Event::Lease(Box::new(event))
        })?;
        let answer = receipt.answer().await;
        polling.polled = None;
        let Answer { result, collected } = answer?;
        result?;
        let answers = collected.into_iter().filter_map(|message| match message {
            ToSession::Lease { answer, .. } => Some(answer),
            _ => None,
        });
        Ok(answers.collect())
    }

    /// Posts messages to a queue: all or none, and durable when it returns. Routes and composite
    /// destinations apply as to messages that are published; then it returns `None`, as the
    /// messages may be in other queues.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Ended`].
    pub async fn post(
        &self,
        to: Destination,
        messages: Vec<Message>,
    ) -> Result<Option<Vec<LeaseAnswer>>, ClientError> {
        let is_passed_on = {
            let state = self.joined.state.borrow();
            messages.iter().any(|message| state.router.is_passed_on(&to, message))
        };
        if is_passed_on {
            return self.publish_all(&to, messages).await.map(|()| None);
        }
        let post = |connection, ticket| LeaseEvent::Post(Post { connection, ticket, to, messages });
        self.lease(post).await.map(Some)
    }

    /// The message of a reserve, complete: the pieces of a large body are read from the log. The
    /// caller bounds the bytes that it gathers; the pieces stay readable while `reserved` exists,
    /// also after the message is deleted.
    ///
    /// # Errors
    /// [`ClientError::Unreadable`], [`ClientError::Ended`].
    pub async fn whole_of(&self, reserved: &Reserved) -> Result<Message, ClientError> {
        self.gather(&reserved.message, ConsumerKey::new(self.connection(), 0), reserved.from).await
    }

    /// Publishes messages in one transaction.
    async fn publish_all(&self, to: &Destination, messages: Vec<Message>) -> Result<(), ClientError> {
        let number = self.joined.state.borrow_mut().ticket().0;
        let key = TransactionKey { connection: self.connection(), number };
        let mut open = OpenTransaction { client: self, key: Some(key) };
        let mut receipts = Vec::with_capacity(messages.len());
        for message in messages {
            self.ready().await?;
            let sent = Sent::new(to.clone(), message);
            receipts.push(self.try_request(|connection, ticket| {
                let publish = Publish::plain(connection, ticket, sent);
                Event::Publish(Publish { transaction: Some(key), ..publish })
            })?);
        }
        for receipt in receipts {
            receipt.done().await?;
        }
        // From here on the outcome is the broker's.
        open.key = None;
        let commit = |_, ticket| Event::Commit { transaction: key, participants: Vec::new(), ticket };
        Ok(self.request(commit).await?.result?)
    }
}

/// A reserve or watch that waits.
struct Polling<'c> {
    client: &'c LocalClient,
    polled: Option<(Destination, Ticket)>,
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let Some((queue, ticket)) = self.polled.take() else { return };
        self.client.joined.state.borrow_mut().requests.remove(&ticket);
        let connection = self.client.connection();
        self.client.say(Event::Lease(Box::new(LeaseEvent::Cancel { queue, connection, ticket })));
    }
}

/// A transaction that is rolled back unless it is taken out.
struct OpenTransaction<'c> {
    client: &'c LocalClient,
    key: Option<TransactionKey>,
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        if let Some(transaction) = self.key.take() {
            self.client.say(Event::Rollback { transaction, ticket: None });
        }
    }
}

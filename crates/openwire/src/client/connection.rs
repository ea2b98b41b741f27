//! The conversation itself: greeting, requests and their answers, deliveries, signs of life.

use std::collections::{BTreeSet, VecDeque};

use bytes::BytesMut;
use postroad_model::Liveness;

use super::{
    BrokerException, ClientError, ClientEvent, ConsumerNumber, Incoming, RequestId, Subscription, Verdict,
};
use crate::codec::{
    Command, ConnectionId, ConnectionInfo, ConsumerId, ConsumerInfo, FrameReader, KeepAliveInfo,
    LocalTransactionId, Magic, Message, MessageAck, MessageDispatch, MessageId, ProducerId, ProducerInfo,
    RemoveInfo, RemovedId, SessionId, SessionInfo, ShutdownInfo, TransactionId, TransactionInfo, WireError,
    WireFormat, WireFormatInfo, WireFormatOptions, WireString,
};

/// The one session and the one producer of a client.
const ONLY: i64 = 1;

/// Largest first frame: a server that announces more is not a broker.
const GREETING_BYTES_MAX: u64 = 64 << 10;

/// A dispatch is larger than the message in it by ids and destination.
const DISPATCH_BYTES_EXTRA: u64 = 64 << 10;

/// Where the magic bytes stand in the first frame: after its type.
const MAGIC_AT: usize = 1;

/// Who the client is.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Name of the connection; no other client of that broker may have it at the same time.
    pub connection_id: String,
    /// Who it says it is.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The longest silence that is borne, in milliseconds; 0 for any.
    pub max_inactivity_ms: i64,
}

/// The client's side of one connection.
///
/// Pass bytes of the broker to [`OpenWireClient::receive`], and send those of
/// [`OpenWireClient::output`] to it; [`OpenWireClient::next_event`] returns events.
/// [`OpenWireClient::wake`] takes the time: call it before a request after a pause, and several
/// times in the agreed inactivity.
#[derive(Debug)]
pub struct OpenWireClient {
    options: ClientOptions,
    frames: FrameReader,
    format: WireFormat,
    /// The wire formats are negotiated.
    negotiated: bool,
    /// The answer to it opens the connection.
    connect: Option<RequestId>,
    produces: bool,
    next_command_id: i32,
    /// Requests without an answer: some brokers send answers without a request.
    asked: BTreeSet<RequestId>,
    consumers: i64,
    messages: i64,
    transactions: i64,
    now_ms: u64,
    liveness: Liveness,
    output: BytesMut,
    events: VecDeque<ClientEvent>,
}

impl OpenWireClient {
    /// A client that has sent its wire format, and waits for the broker's.
    ///
    /// # Errors
    /// Never, with the options as they are; the encoding of the greeting may fail in principle.
    pub fn new(options: ClientOptions, now_ms: u64) -> Result<OpenWireClient, WireError> {
        let mut client = OpenWireClient {
            options,
            frames: FrameReader::new(GREETING_BYTES_MAX),
            format: WireFormat::initial(),
            negotiated: false,
            connect: None,
            produces: false,
            next_command_id: 0,
            asked: BTreeSet::new(),
            consumers: 0,
            messages: 0,
            transactions: 0,
            now_ms,
            liveness: Liveness::since(now_ms),
            output: BytesMut::new(),
            events: VecDeque::new(),
        };
        let greeting = client.wire_format_options().to_info()?;
        client.write(greeting.into())?;
        Ok(client)
    }

    /// Bytes for the socket; remove from the front the bytes that were written.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// The next event; `None` until more bytes come.
    pub fn next_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Takes bytes as they came from the broker.
    ///
    /// # Errors
    /// [`ClientError`]: close the connection. Earlier events are still returned.
    pub fn receive(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), ClientError> {
        self.now_ms = now_ms;
        self.liveness.heard(now_ms);
        self.frames.push(bytes);
        while let Some(frame) = self.frames.next_frame().map_err(|error| self.fault(error))? {
            if !self.negotiated && !frame.get(MAGIC_AT..).is_some_and(|rest| rest.starts_with(&Magic::BYTES))
            {
                return Err(ClientError::NotOpenWire);
            }
            let command = self.format.decode(&frame)?;
            self.understand(command)?;
        }
        Ok(())
    }

    /// Looks at the clock, and writes a sign of life where one is due.
    ///
    /// # Errors
    /// [`ClientError::Silent`]: the broker has shown none for too long.
    pub fn wake(&mut self, now_ms: u64) -> Result<(), ClientError> {
        self.now_ms = now_ms;
        self.liveness.check(now_ms)?;
        if self.negotiated && self.liveness.must_write(now_ms) {
            self.write(KeepAliveInfo::default().into())?;
        }
        Ok(())
    }

    /// Whether this client has sent the message, on this connection.
    pub fn has_sent(&self, message: &Message) -> bool {
        let producer = message.message_id.as_ref().and_then(|id| id.producer_id.as_ref());
        producer == Some(&self.producer_id())
    }

    /// Sends a message, giving it its id. With `confirmed` the broker answers when the message is
    /// safe; without it only a failure is reported, by [`ClientEvent::Failed`].
    ///
    /// # Errors
    /// As [`WireFormat::encode`]: the message is larger than agreed, for one. The connection can go
    /// on.
    pub fn send(
        &mut self,
        mut message: Message,
        confirmed: bool,
    ) -> Result<(RequestId, MessageId), WireError> {
        if !self.produces {
            let producer_id = Some(self.producer_id());
            self.write(ProducerInfo { producer_id, ..ProducerInfo::default() }.into())?;
            self.produces = true;
        }
        let id = MessageId {
            producer_id: Some(self.producer_id()),
            producer_sequence_id: self.messages + 1,
            ..MessageId::default()
        };
        message.producer_id.clone_from(&id.producer_id);
        message.message_id = Some(id.clone());
        message.response_required = confirmed;
        let request = self.write(Command::Message(Box::new(message)))?;
        self.messages += 1;
        Ok((request, id))
    }

    /// Attaches a consumer; deliveries may follow at once, even before the answer.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn subscribe(
        &mut self,
        subscription: &Subscription,
    ) -> Result<(RequestId, ConsumerNumber), WireError> {
        self.consumers += 1;
        let consumer = ConsumerNumber(self.consumers);
        let info = ConsumerInfo {
            consumer_id: Some(self.consumer_id(consumer)),
            destination: Some(subscription.destination.clone()),
            prefetch_size: subscription.prefetch.into(),
            browser: subscription.browses,
            selector: subscription.selector.as_deref().map(WireString::from),
            dispatch_async: true,
            response_required: true,
            ..ConsumerInfo::default()
        };
        Ok((self.write(info.into())?, consumer))
    }

    /// Gives the verdict on `count` deliveries of one consumer, from the first to the last; with
    /// `confirmed` the broker answers when it is safe.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn acknowledge(
        &mut self,
        first: &Incoming,
        last: &Incoming,
        count: i32,
        verdict: Verdict,
        confirmed: bool,
    ) -> Result<RequestId, WireError> {
        let ack_type = match verdict {
            Verdict::Consumed => MessageAck::STANDARD,
            Verdict::Seen => MessageAck::DELIVERED,
        };
        let range = MessageAck {
            first_message_id: first.message.message_id.clone(),
            message_count: count,
            response_required: confirmed,
            ..self.ack_of(last, ack_type)
        };
        self.write(range.into())
    }

    /// Gives the verdict that this delivery is done with, if the transaction is committed.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn acknowledge_in(
        &mut self,
        transaction: &TransactionId,
        incoming: &Incoming,
    ) -> Result<(), WireError> {
        let transaction_id = Some(transaction.clone());
        let one = MessageAck { transaction_id, ..self.ack_of(incoming, MessageAck::INDIVIDUAL) };
        self.write(one.into()).map(drop)
    }

    fn ack_of(&self, incoming: &Incoming, ack_type: u8) -> MessageAck {
        MessageAck {
            consumer_id: Some(self.consumer_id(incoming.consumer)),
            destination: Some(incoming.destination.clone()),
            ack_type,
            last_message_id: incoming.message.message_id.clone(),
            message_count: 1,
            ..MessageAck::default()
        }
    }

    /// Begins a transaction: messages that carry its id, and acknowledgements in it, count once it
    /// is committed.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn begin(&mut self) -> Result<TransactionId, WireError> {
        self.transactions += 1;
        let (value, connection_id) = (self.transactions, Some(self.connection_id()));
        let transaction = TransactionId::Local(LocalTransactionId { value, connection_id });
        self.transact(TransactionInfo::BEGIN, &transaction, false)?;
        Ok(transaction)
    }

    /// Commits a transaction; the broker answers when it is safe.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn commit(&mut self, transaction: &TransactionId) -> Result<RequestId, WireError> {
        self.transact(TransactionInfo::COMMIT_ONE_PHASE, transaction, true)
    }

    fn transact(
        &mut self,
        kind: u8,
        transaction: &TransactionId,
        response_required: bool,
    ) -> Result<RequestId, WireError> {
        let (connection_id, transaction_id) = (Some(self.connection_id()), Some(transaction.clone()));
        let info = TransactionInfo {
            connection_id,
            transaction_id,
            kind,
            response_required,
            ..TransactionInfo::default()
        };
        self.write(info.into())
    }

    /// Ends a consumer. `last_seen` is the number of the last delivery that was put to use
    /// ([`Incoming::sequence`]); the application did not see later ones.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn unsubscribe(
        &mut self,
        consumer: ConsumerNumber,
        last_seen: Option<i64>,
    ) -> Result<RequestId, WireError> {
        let consumer = RemovedId::Consumer(self.consumer_id(consumer));
        self.remove(consumer, last_seen.unwrap_or(RemoveInfo::LAST_DELIVERED_UNSET))
    }

    /// Ends the connection; the broker answers when all that was sent before is done.
    /// [`OpenWireClient::shut_down`] comes after that.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn leave(&mut self) -> Result<RequestId, WireError> {
        let connection = RemovedId::Connection(self.connection_id());
        self.remove(connection, RemoveInfo::LAST_DELIVERED_UNKNOWN)
    }

    /// The last word: the socket may be closed once it is written.
    ///
    /// # Errors
    /// As [`WireFormat::encode`].
    pub fn shut_down(&mut self) -> Result<(), WireError> {
        self.write(ShutdownInfo::default().into()).map(|_| ())
    }

    fn remove(&mut self, id: RemovedId, last_delivered_sequence_id: i64) -> Result<RequestId, WireError> {
        let info = RemoveInfo {
            object_id: Some(id),
            last_delivered_sequence_id,
            response_required: true,
            ..RemoveInfo::default()
        };
        self.write(info.into())
    }

    /// All branching on commands is here.
    fn understand(&mut self, command: Command) -> Result<(), ClientError> {
        match command {
            Command::WireFormatInfo(info) => self.negotiate(&info),
            Command::Response(response) => self.answered(response.correlation_id),
            Command::ExceptionResponse(response) => {
                let request = RequestId(response.correlation_id);
                self.asked.remove(&request);
                self.tell(ClientEvent::Refused { request, exception: response.exception.into() })
            }
            Command::ConnectionError(error) => {
                self.tell(ClientEvent::Failed(BrokerException::from(error.exception)))
            }
            Command::MessageDispatch(dispatch) => self.dispatched(dispatch),
            Command::KeepAliveInfo(info) if info.response_required => {
                self.write(KeepAliveInfo::default().into())?;
                Ok(())
            }
            Command::ShutdownInfo(_) => self.tell(ClientEvent::Leaving),
            // Information about the broker and others changes nothing for one plain connection.
            Command::KeepAliveInfo(_)
            | Command::BrokerInfo(_)
            | Command::ConnectionControl(_)
            | Command::ConsumerControl(_)
            | Command::ControlCommand(_)
            | Command::ProducerAck(_) => Ok(()),
            other => Err(ClientError::Unexpected { name: other.name() }),
        }
    }

    fn tell(&mut self, event: ClientEvent) -> Result<(), ClientError> {
        self.events.push_back(event);
        Ok(())
    }

    fn negotiate(&mut self, info: &WireFormatInfo) -> Result<(), ClientError> {
        if self.negotiated {
            return Err(ClientError::Unexpected { name: "a second WireFormatInfo" });
        }
        let ours = self.wire_format_options();
        let theirs = WireFormatOptions::from_info(info)?;
        self.format = WireFormat::negotiate(&ours, &theirs)?;
        self.frames.set_max_frame_bytes(self.format.max_frame_bytes.saturating_add(DISPATCH_BYTES_EXTRA));
        self.liveness.agree(ours.silences(&theirs));
        self.negotiated = true;
        let id = self.connection_id();
        let connection = ConnectionInfo {
            client_id: id.value.clone(),
            connection_id: Some(id),
            user_name: self.options.user.as_deref().map(WireString::from),
            password: self.options.password.as_deref().map(WireString::from),
            response_required: true,
            ..ConnectionInfo::default()
        };
        self.connect = Some(self.write(connection.into())?);
        let connection_id = Some(self.options.connection_id.as_str().into());
        let session_id = Some(SessionId { connection_id, value: ONLY });
        self.write(SessionInfo { session_id, ..SessionInfo::default() }.into())?;
        Ok(())
    }

    fn answered(&mut self, correlation_id: i32) -> Result<(), ClientError> {
        let request = RequestId(correlation_id);
        if !self.asked.remove(&request) {
            return Ok(());
        }
        if self.connect == Some(request) {
            self.connect = None;
            return self.tell(ClientEvent::Connected);
        }
        self.tell(ClientEvent::Done(request))
    }

    fn dispatched(&mut self, dispatch: MessageDispatch) -> Result<(), ClientError> {
        let consumer = ConsumerNumber(dispatch.consumer_id.map_or(0, |id| id.value));
        let Some(message) = dispatch.message else { return self.tell(ClientEvent::NothingMore(consumer)) };
        let Some(destination) = dispatch.destination.or_else(|| message.destination.clone()) else {
            return Err(ClientError::Unexpected { name: "MessageDispatch without a destination" });
        };
        let redeliveries = dispatch.redelivery_counter;
        self.tell(ClientEvent::Delivered(Incoming { consumer, destination, message, redeliveries }))
    }

    /// Before negotiation, a malformed frame means that the server is not a broker.
    fn fault(&self, error: WireError) -> ClientError {
        if self.negotiated { ClientError::Wire(error) } else { ClientError::NotOpenWire }
    }

    fn write(&mut self, mut command: Command) -> Result<RequestId, WireError> {
        let id = self.next_command_id.wrapping_add(1);
        command.set_command_id(id);
        self.format.encode(&command, &mut self.output)?;
        self.next_command_id = id;
        if command.response_required() {
            self.asked.insert(RequestId(id));
        }
        self.liveness.wrote(self.now_ms);
        Ok(RequestId(id))
    }

    fn wire_format_options(&self) -> WireFormatOptions {
        WireFormatOptions {
            max_inactivity_ms: self.options.max_inactivity_ms,
            provider_name: Some("Postroad".to_owned()),
            provider_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..WireFormatOptions::pass_through(i32::MAX.into())
        }
    }

    fn connection_id(&self) -> ConnectionId {
        ConnectionId { value: Some(self.options.connection_id.as_str().into()) }
    }

    fn producer_id(&self) -> ProducerId {
        let connection_id = Some(self.options.connection_id.as_str().into());
        ProducerId { connection_id, session_id: ONLY, value: ONLY }
    }

    fn consumer_id(&self, consumer: ConsumerNumber) -> ConsumerId {
        let connection_id = Some(self.options.connection_id.as_str().into());
        ConsumerId { connection_id, session_id: ONLY, value: consumer.0 }
    }
}

#[cfg(test)]
mod tests;

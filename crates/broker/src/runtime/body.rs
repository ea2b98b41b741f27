//! Bodies on their way out: pieces of one large message, read from the log as the socket has room for them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::{Chunks, ConsumerKey, Delivery, Event, Message, PartitionId, Position, Protocol};

/// Pieces that are asked for ahead: one is read while the other is sent.
const AHEAD: usize = 2;

/// A message is put together in memory, for a consumer that cannot have it in pieces, up to so many bytes.
const WHOLE_BYTES_MAX: u64 = 100 << 20;

/// One body on its way out.
pub struct Body {
    consumer: ConsumerKey,
    /// Where it lies.
    from: PartitionId,
    chunks: Arc<Chunks>,
    asked: usize,
    arrived: usize,
    /// The message that is put together first.
    whole: Option<(Box<Delivery>, BytesMut)>,
    /// Nothing else may be said until it is out.
    pub is_exclusive: bool,
}

impl Body {
    /// A body that leaves in pieces.
    pub fn streamed(
        consumer: ConsumerKey,
        from: PartitionId,
        chunks: Arc<Chunks>,
        is_exclusive: bool,
    ) -> Body {
        Body { consumer, from, chunks, asked: 0, arrived: 0, whole: None, is_exclusive }
    }

    /// A body that is put together first.
    pub fn whole(from: PartitionId, chunks: Arc<Chunks>, delivery: Delivery) -> Body {
        let consumer = delivery.consumer;
        let whole = Some((Box::new(delivery), BytesMut::with_capacity(chunks.bytes as usize)));
        Body { consumer, from, chunks, asked: 0, arrived: 0, whole, is_exclusive: false }
    }

    /// Why a body cannot be put together, if it cannot.
    pub fn too_large(chunks: &Chunks) -> Option<String> {
        let (got, max) = (chunks.bytes, WHOLE_BYTES_MAX);
        (max < got).then(|| {
            format!(
                "a body of {got} bytes is too large for a consumer that needs it whole: at most {max} are translated or encoded anew"
            )
        })
    }

    /// The next pieces to be read.
    pub fn ask(&mut self, events: &mut Vec<Event>) {
        while self.asked < self.chunks.positions.len().min(self.arrived + AHEAD) {
            let position = self.chunks.positions[self.asked];
            events.push(Event::WantChunk { consumer: self.consumer, from: self.from, position });
            self.asked += 1;
        }
    }

    /// Whether it is put together first.
    pub fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Whether this piece is the next one.
    pub fn waits_for(&self, from: PartitionId, position: Position) -> bool {
        self.from == from && self.chunks.positions.get(self.arrived) == Some(&position)
    }

    /// One more piece is there. Returns it if it can leave now.
    pub fn arrived(&mut self, bytes: Bytes) -> Option<Bytes> {
        self.arrived += 1;
        match &mut self.whole {
            Some((_, whole)) => {
                whole.extend_from_slice(&bytes);
                None
            }
            None => Some(bytes),
        }
    }

    /// Whether no piece is missing.
    pub fn is_complete(&self) -> bool {
        self.arrived == self.chunks.positions.len()
    }

    /// The delivery of a message that was put together, or as it was, with the reason why nobody gets it. `None` for a body
    /// that left in pieces.
    pub fn into_delivery(self) -> Option<(Delivery, Option<String>)> {
        let is_complete = self.is_complete();
        let (delivery, body) = self.whole?;
        let whole =
            if is_complete { with_body(&delivery.message, body) } else { Err("it is not whole".to_owned()) };
        Some(match whole {
            Ok(message) => (Delivery { message, ..*delivery }, None),
            Err(reason) => (*delivery, Some(reason)),
        })
    }
}

/// A large message with its body in memory.
///
/// # Errors
/// Its bytes are not what its protocol says they are.
pub fn with_body(message: &Message, body: BytesMut) -> Result<Message, String> {
    let bytes = match message.encoding.protocol {
        Protocol::OpenWire => {
            let (stored, version) = (&message.bytes, message.encoding.version);
            postroad_openwire::codec::with_content(stored, version, &body)
                .map_err(|error| error.to_string())?
        }
        Protocol::Amqp => [&message.bytes[..], &body].concat().into(),
    };
    Ok(Message { bytes, ..message.clone() }.with_chunks(None))
}

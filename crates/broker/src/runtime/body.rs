//! Bodies on their way out: pieces of one large message, read from the log as the socket has room
//! for them.
//!
//! A consumer of the protocol that the message came by gets the pieces as they are. For one of
//! another protocol they are converted on their way, once the length of the body is known: some
//! have to be read twice for that. Bodies that cannot be handled either way are put together in
//! memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::portable::TranslationError;
use postroad_model::{Chunks, ConsumerKey, Delivery, Event, Message, PartitionId, Position, Protocol};

use postroad_node::{Rewriter, with_body};

/// Pieces that are asked for ahead: one is read while the other is sent.
const AHEAD: usize = 2;

/// A message is put together in memory, for a consumer that cannot have it in pieces, up to this
/// size.
const WHOLE_BYTES_MAX: u64 = 100 << 20;

/// One body on its way out.
pub struct Body {
    pieces: Pieces,
    way: Way,
    /// Nothing else may be said until it is out.
    pub is_exclusive: bool,
}

/// Which pieces were asked for, and which are there. They come in any order, and one that was asked
/// for twice comes twice.
struct Pieces {
    consumer: ConsumerKey,
    /// Where the body lies.
    from: PartitionId,
    chunks: Arc<Chunks>,
    asked: usize,
    taken: usize,
    /// By their numbers, those that are there and not taken.
    there: BTreeMap<usize, Result<Bytes, String>>,
}

enum Way {
    /// It leaves as it is in the log.
    PassThrough,
    /// It is put together first, and the message then sent with it.
    Whole(Box<Delivery>, BytesMut),
    /// It is read to know how long it will be for a consumer of another protocol, and leaves then.
    Measured(Box<Delivery>, Box<Measure>),
    /// It leaves, rewritten for another protocol.
    Rewritten(Box<Rewritten>),
}

struct Measure {
    to: Protocol,
    /// The first piece, once it is there, and its conversion.
    begun: Option<(Bytes, Rewriter)>,
    /// Declared text is taken as bytes: it was not text.
    as_bytes: bool,
    /// Bytes that will leave, as far as it is read.
    bytes: u64,
    is_done: bool,
}

struct Rewritten {
    /// The bytes before the body, until they are sent.
    front: Bytes,
    rewriter: Rewriter,
    /// Bytes that the consumer still expects.
    left: u64,
}

/// The result of a body after its last piece.
pub enum End {
    /// It is out.
    Out,
    /// It is out as far as could be read: why it ends there.
    Torn(String),
    /// Its message can be sent now.
    Deliver(Delivery),
    /// Its message can be sent now, and then the body itself.
    Leave(Delivery, Body),
    /// This message cannot be sent: why.
    Never(Box<Delivery>, String),
}

impl Pieces {
    fn of(consumer: ConsumerKey, from: PartitionId, chunks: Arc<Chunks>) -> Pieces {
        Pieces { consumer, from, chunks, asked: 0, taken: 0, there: BTreeMap::new() }
    }

    fn ask(&mut self, events: &mut Vec<Event>) {
        while self.asked < self.chunks.positions.len().min(self.taken + AHEAD) {
            let position = self.chunks.positions[self.asked];
            events.push(Event::WantChunk { consumer: self.consumer, from: self.from, position });
            self.asked += 1;
        }
    }

    fn put(&mut self, from: PartitionId, position: Position, piece: Result<Bytes, String>) {
        let expected = self.chunks.positions.iter().take(self.asked).skip(self.taken);
        let place = expected.zip(self.taken..).find(|(at, _)| self.from == from && **at == position);
        // Or it was asked for a body that was given up, or is here already.
        if let Some((_, number)) = place {
            self.there.insert(number, piece);
        }
    }

    fn has_next(&self) -> bool {
        self.there.contains_key(&self.taken)
    }

    /// The next piece, if it is there, and whether it is the last one.
    fn next(&mut self) -> Option<(Result<Bytes, String>, bool)> {
        let piece = self.there.remove(&self.taken)?;
        self.taken += 1;
        Some((piece, self.is_complete()))
    }

    fn is_complete(&self) -> bool {
        self.taken == self.chunks.positions.len()
    }

    /// From the first piece on once more, which is this one.
    fn begin_again(&mut self, first: Bytes) {
        if 1 < self.taken {
            self.there.clear();
            self.asked = 1;
        }
        self.taken = 0;
        self.there.insert(0, Ok(first));
    }
}

impl Body {
    fn new(pieces: Pieces, way: Way) -> Body {
        Body { pieces, way, is_exclusive: false }
    }

    /// A body that leaves as it is in the log.
    pub fn streamed(consumer: ConsumerKey, from: PartitionId, chunks: Arc<Chunks>) -> Body {
        Body::new(Pieces::of(consumer, from, chunks), Way::PassThrough)
    }

    /// A body that is put together first.
    ///
    /// # Errors
    /// It is too large for that.
    pub fn whole(
        from: PartitionId,
        chunks: Arc<Chunks>,
        delivery: Delivery,
    ) -> Result<Body, (Box<Delivery>, String)> {
        let (pieces, delivery) = (Pieces::of(delivery.consumer, from, chunks), Box::new(delivery));
        match whole_bytes(&pieces.chunks) {
            Ok(room) => Ok(Body::new(pieces, Way::Whole(delivery, room))),
            Err(reason) => Err((delivery, reason)),
        }
    }

    /// A body that is rewritten for another protocol.
    pub fn rewritten(from: PartitionId, chunks: Arc<Chunks>, delivery: Delivery, to: Protocol) -> Body {
        let pieces = Pieces::of(delivery.consumer, from, chunks);
        let measure = Measure { to, begun: None, as_bytes: false, bytes: 0, is_done: false };
        Body::new(pieces, Way::Measured(Box::new(delivery), Box::new(measure)))
    }

    /// The next pieces to be read.
    pub fn ask(&mut self, events: &mut Vec<Event>) {
        self.pieces.ask(events);
    }

    /// Who is to have it.
    pub fn consumer(&self) -> ConsumerKey {
        self.pieces.consumer
    }

    /// Whether its message has left, and pieces of it follow.
    pub fn is_leaving(&self) -> bool {
        matches!(self.way, Way::PassThrough | Way::Rewritten(_))
    }

    /// Takes a piece that has come, or why it cannot be had, if it is one of those that were asked
    /// for.
    pub fn put(&mut self, from: PartitionId, position: Position, piece: Result<Bytes, String>) {
        self.pieces.put(from, position, piece);
    }

    /// Whether the next piece is there.
    pub fn has_next(&self) -> bool {
        self.pieces.has_next()
    }

    /// Takes the next piece, if it is there. Returns the bytes that can leave now.
    ///
    /// # Errors
    /// The fault of the body.
    pub fn advance(&mut self) -> Result<Option<Bytes>, String> {
        let Some((piece, is_last)) = self.pieces.next() else { return Ok(None) };
        let piece = piece?;
        match &mut self.way {
            Way::PassThrough => Ok(Some(piece)),
            Way::Rewritten(rewritten) => rewritten.take(&piece, is_last).map(Some),
            Way::Whole(_, whole) => {
                whole.extend_from_slice(&piece);
                Ok(None)
            }
            Way::Measured(delivery, measure) => {
                let measured = measure.take(&delivery.message, &piece, is_last);
                match measured.map_err(|error| error.to_string())? {
                    Measured::Going => {}
                    Measured::Restarted(first) => self.pieces.begin_again(first),
                    Measured::NotInPieces => self.put_together(piece)?,
                }
                Ok(None)
            }
        }
    }

    /// It turns out at its first piece that it cannot leave in pieces.
    fn put_together(&mut self, first: Bytes) -> Result<(), String> {
        let room = whole_bytes(&self.pieces.chunks)?;
        if let Way::Measured(delivery, _) = std::mem::replace(&mut self.way, Way::PassThrough) {
            self.way = Way::Whole(delivery, room);
        }
        self.pieces.begin_again(first);
        Ok(())
    }

    /// Whether no piece is missing.
    pub fn is_complete(&self) -> bool {
        match &self.way {
            Way::Measured(_, measure) => measure.is_done,
            _ => self.pieces.is_complete(),
        }
    }

    /// Its result, now that it is complete, or faulty.
    pub fn end(self, lost: Option<String>) -> End {
        match (self.way, lost) {
            (Way::PassThrough | Way::Rewritten(_), None) => End::Out,
            (Way::PassThrough | Way::Rewritten(_), Some(reason)) => End::Torn(reason),
            (Way::Whole(delivery, _) | Way::Measured(delivery, _), Some(reason)) => {
                End::Never(delivery, reason)
            }
            (Way::Whole(delivery, body), None) => match with_body(&delivery.message, &body) {
                Ok(message) => End::Deliver(Delivery { message, ..*delivery }),
                Err(reason) => End::Never(delivery, reason),
            },
            (Way::Measured(delivery, measure), None) => match measure.end(&delivery.message, self.pieces) {
                Ok((message, body)) => {
                    let delivery = Delivery { message, ..*delivery };
                    match body {
                        Some(body) => End::Leave(delivery, body),
                        None => End::Deliver(delivery),
                    }
                }
                Err(error) => End::Never(delivery, error.to_string()),
            },
        }
    }
}

/// Room for a body that is put together.
fn whole_bytes(chunks: &Chunks) -> Result<BytesMut, String> {
    let (got, max) = (chunks.bytes, WHOLE_BYTES_MAX);
    if max < got {
        return Err(format!(
            "a body of {got} bytes is too large for a consumer that needs it whole: the maximum is {max}"
        ));
    }
    Ok(BytesMut::with_capacity(got as usize))
}

/// The result of a piece of a body that is measured.
enum Measured {
    Going,
    /// The assumption was wrong: once more from the first piece on, which this is.
    Restarted(Bytes),
    NotInPieces,
}

impl Measure {
    fn take(
        &mut self,
        message: &Message,
        piece: &Bytes,
        is_last: bool,
    ) -> Result<Measured, TranslationError> {
        let (first, mut rewriter) = match self.begun.take() {
            Some(begun) => begun,
            None => match Rewriter::of(message, piece, self.to, self.as_bytes)? {
                Some(begins) => (piece.clone(), begins),
                None => return Ok(Measured::NotInPieces),
            },
        };
        if let Some(bytes) = rewriter.known_bytes() {
            (self.bytes, self.is_done) = (bytes, true);
        } else {
            match rewriter.take(piece, is_last) {
                Ok(written) => {
                    self.bytes += written.len() as u64;
                    self.is_done = is_last;
                }
                Err(reason) if self.as_bytes => return Err(unreadable(message, reason)),
                Err(reason) => {
                    (self.as_bytes, self.bytes) = (true, 0);
                    let as_bytes = Rewriter::of(message, &first, self.to, true)?;
                    self.begun = Some((first.clone(), as_bytes.ok_or_else(|| unreadable(message, reason))?));
                    return Ok(Measured::Restarted(first));
                }
            }
        }
        self.begun = Some((first, rewriter));
        Ok(Measured::Going)
    }

    /// The message as the session is to have it, and its body as it is to leave; none, if nothing
    /// of it does.
    fn end(self, source: &Message, mut pieces: Pieces) -> Result<(Message, Option<Body>), TranslationError> {
        let no_body = || unreadable(source, "it has no body".to_owned());
        let (first, _) = self.begun.ok_or_else(no_body)?;
        let rewriter = Rewriter::of(source, &first, self.to, self.as_bytes)?.ok_or_else(no_body)?;
        let front = rewriter.front(self.bytes)?;
        let (left, message) = (front.len() as u64 + self.bytes, rewriter.message().clone());
        if left == 0 {
            return Ok((message, None));
        }
        let piece_bytes = pieces.chunks.piece_bytes;
        let message = message.with_chunks(Some(Arc::new(Chunks {
            bytes: left,
            piece_bytes,
            positions: Box::default(),
        })));
        pieces.begin_again(first);
        let way = Way::Rewritten(Box::new(Rewritten { front, rewriter, left }));
        Ok((message, Some(Body::new(pieces, way))))
    }
}

fn unreadable(message: &Message, reason: String) -> TranslationError {
    TranslationError::Unreadable { protocol: message.encoding.protocol, reason }
}

impl Rewritten {
    /// The output for the next piece.
    fn take(&mut self, piece: &[u8], is_last: bool) -> Result<Bytes, String> {
        let mut leaves = self.rewriter.take(piece, is_last)?.freeze();
        if !self.front.is_empty() {
            leaves = [&std::mem::take(&mut self.front)[..], &leaves].concat().into();
        }
        let bytes = leaves.len() as u64;
        match self.left.checked_sub(bytes).filter(|left| !is_last || *left == 0) {
            Some(left) => self.left = left,
            None => {
                return Err(format!("its body has {bytes} bytes instead of {}", self.left));
            }
        }
        Ok(leaves)
    }
}

#[cfg(test)]
mod tests {
    use postroad_amqp::portable as amqp;
    use postroad_model::portable::{Body as Content, Headers, Portable};
    use postroad_model::{ConnectionId, Encoding, EntryTag};
    use postroad_openwire::codec::{Destination, content_at, with_content};
    use postroad_openwire::portable::{TranslatedId, write_portable};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use postroad_node::read_portable;

    const VERSION: u8 = 12;
    const FROM: PartitionId = PartitionId(0);

    fn stored(protocol: Protocol, bytes: Bytes) -> Message {
        let version = if protocol == Protocol::OpenWire { VERSION } else { 0 };
        let encoding = Encoding { protocol, version };
        Message { encoding, persistent: true, priority: 4, expires_at_ms: 0, rare: None, bytes }
    }

    fn in_openwire(portable: &Portable) -> Bytes {
        let id = TranslatedId { tag: EntryTag(1), stored: b"" };
        write_portable(portable, id, &Destination::Queue("at".into()), VERSION).unwrap()
    }

    /// A message as the log has a large one: its head, and its body in pieces of this size.
    fn cut(whole: &Message, body_at: usize, body_end: usize, piece_bytes: usize) -> (Message, Vec<Bytes>) {
        let body = whole.bytes.slice(body_at..body_end);
        let pieces: Vec<Bytes> = body.chunks(piece_bytes).map(Bytes::copy_from_slice).collect();
        let positions = (1..).filter_map(Position::new).take(pieces.len()).collect();
        let chunks = Chunks { bytes: body.len() as u64, piece_bytes: piece_bytes as u32, positions };
        let head = match whole.encoding.protocol {
            Protocol::OpenWire => with_content(&whole.bytes, VERSION, b"").unwrap(),
            Protocol::Amqp => whole.bytes.slice(..body_at),
        };
        (Message { bytes: head, ..whole.clone() }.with_chunks(Some(Arc::new(chunks))), pieces)
    }

    fn cut_openwire(portable: &Portable, piece_bytes: usize) -> (Message, Vec<Bytes>) {
        let whole = stored(Protocol::OpenWire, in_openwire(portable));
        let at = content_at(&whole.bytes, VERSION).unwrap() + 1;
        let length: [u8; 4] = whole.bytes[at..at + 4].try_into().unwrap();
        cut(&whole, at + 4, at + 4 + u32::from_be_bytes(length) as usize, piece_bytes)
    }

    fn cut_amqp(bytes: Bytes, piece_bytes: usize) -> (Message, Vec<Bytes>) {
        let at = postroad_amqp::message::body_start(&bytes).unwrap();
        let end = bytes.len();
        cut(&stored(Protocol::Amqp, bytes), at, end, piece_bytes)
    }

    /// Answers the requests of a body, until it ends, in this order: the last request first, or the
    /// first, and each of them this number of times. Returns the output.
    fn run(
        mut body: Body,
        pieces: &[Bytes],
        (last_first, times): (bool, usize),
        events: &mut Vec<Event>,
    ) -> (Vec<u8>, End) {
        let mut left = Vec::new();
        loop {
            body.ask(events);
            while !body.has_next() {
                assert!(!events.is_empty(), "it waits for nothing, and is not complete");
                let event = if last_first { events.pop() } else { Some(events.remove(0)) };
                let Some(Event::WantChunk { from, position, .. }) = event else { panic!("{event:?}") };
                let piece = &pieces[position.get() as usize - 1];
                (0..times).for_each(|_| body.put(from, position, Ok(piece.clone())));
            }
            match body.advance() {
                Ok(leaves) => left.extend(leaves.into_iter().flatten()),
                Err(reason) => return (left, body.end(Some(reason))),
            }
            if body.is_complete() {
                return (left, body.end(None));
            }
        }
    }

    /// The output for a consumer of the other protocol, in any order of the pieces: the message,
    /// and whether it left in pieces.
    fn sent(message: &Message, pieces: &[Bytes], to: Protocol) -> Result<(Portable, bool), String> {
        let want = sent_in((false, 1), message, pieces, to);
        for order in [(true, 1), (false, 2), (true, 2)] {
            assert_eq!(sent_in(order, message, pieces, to), want, "{order:?}");
        }
        want
    }

    fn sent_in(
        order: (bool, usize),
        message: &Message,
        pieces: &[Bytes],
        to: Protocol,
    ) -> Result<(Portable, bool), String> {
        let delivery = Delivery {
            consumer: ConsumerKey::new(ConnectionId::new(0, 1), 1),
            source: None,
            tag: EntryTag(1),
            queue: (postroad_model::PartitionId(0), postroad_model::QueueId(0)),
            failed_deliveries: 0,
            by_policy: false,
            first_of_group: false,
            trace: None,
            message: message.clone(),
        };
        let body = Body::rewritten(FROM, message.chunks().unwrap().clone(), delivery, to);
        let mut events = Vec::new();
        let (nothing, end) = run(body, pieces, order, &mut events);
        assert!(nothing.is_empty(), "the message is not with its session yet");
        let (delivery, body) = match end {
            End::Deliver(delivery) => return Ok((read_portable(&delivery.message).unwrap(), false)),
            End::Leave(delivery, body) => (delivery, body),
            End::Never(_, reason) => return Err(reason),
            End::Out | End::Torn(_) => panic!("it has not begun"),
        };
        // Outstanding requests are answered, too.
        let (left, end) = run(body, pieces, order, &mut events);
        assert!(matches!(end, End::Out), "it is torn");
        assert_eq!(left.len() as u64, delivery.message.chunk_bytes());
        // As the sessions do.
        let bytes = match to {
            Protocol::OpenWire => {
                let head = in_openwire(&read_portable(&delivery.message).unwrap());
                with_content(&head, VERSION, &left).unwrap()
            }
            Protocol::Amqp => {
                let head = amqp::in_amqp(&delivery.message, read_portable).unwrap();
                [&head[..], &left].concat().into()
            }
        };
        Ok((read_portable(&stored(to, bytes)).unwrap(), true))
    }

    fn text(text: &str) -> Content {
        Content::Text(Some(text.into()))
    }

    fn whole(message: &Message, pieces: &[Bytes]) -> Portable {
        read_portable(&with_body(message, &pieces.concat()).unwrap()).unwrap()
    }

    #[test]
    fn bodies_of_amqp_leave_by_openwire() {
        let typed = |mime: &'static str| Headers { content_type: Some(mime.into()), ..Headers::default() };
        let section =
            |headers, body| amqp::write_portable(&Portable { headers, body, ..Portable::default() });
        let data = |mime, bytes: &'static [u8]| {
            let body = Content::Bytes(Bytes::from_static(bytes));
            Bytes::from([&section(typed(mime), body)[..]].concat())
        };
        let untyped = Bytes::from_static(b"\0\x53\x75\xa0\x03abc\0\x53\x75\xa0\x03def\0\x53\x78\xc1\x01\0");
        // Its content type is text/plain.
        let mime = b"\0\x53\x73\xc0\x13\x07\x40\x40\x40\x40\x40\x40\xa3\x0atext/plain";
        let said_to_be_text = |body: &[u8]| Bytes::from([&mime[..], body].concat());
        let raw = |bytes: &'static [u8]| Content::Bytes(Bytes::from_static(bytes));
        for (case, bytes, want, in_pieces) in [
            ("bytes", data("application/octet-stream", b"abcdef"), raw(b"abcdef"), true),
            (
                "none",
                Bytes::from_static(b"\0\x53\x75\xa0\0\0\x53\x75\xa0\0\0\x53\x78\xc1\x01\0"),
                raw(b""),
                false,
            ),
            ("two sections and a footer", untyped, raw(b"abcdef"), true),
            ("text", section(Headers::default(), text("a\0é😀€")), text("a\0é😀€"), true),
            (
                "data that is text",
                said_to_be_text(b"\0\x53\x75\xa0\x06a\xf0\x9f\x98\x80b"),
                text("a😀b"),
                true,
            ),
            ("data that is none", said_to_be_text(b"\0\x53\x75\xa0\x05ab\xffcd"), raw(b"ab\xffcd"), true),
            (
                "an object",
                section(Headers::default(), Content::Object(Some(Bytes::from_static(b"java")))),
                Content::Object(Some(Bytes::from_static(b"java"))),
                true,
            ),
            (
                "a map",
                section(Headers::default(), Content::Map(vec![("a".into(), "b".into())])),
                Content::Map(vec![("a".into(), "b".into())]),
                false,
            ),
        ] {
            // The first piece of a real one has all of a section's header.
            for piece_bytes in 8..20 {
                let (message, pieces) = cut_amqp(bytes.clone(), piece_bytes);
                let (got, left_in_pieces) = sent(&message, &pieces, Protocol::OpenWire).unwrap();
                let case = format!("{case}, in pieces of {piece_bytes}");
                assert_eq!((&got.body, left_in_pieces), (&want, in_pieces), "{case}");
                assert_eq!(got.body, whole(&message, &pieces).body, "{case}: as if it were small");
            }
        }
    }

    #[test]
    fn bodies_of_openwire_leave_by_amqp() {
        for (case, want, in_pieces) in [
            ("bytes", Content::Bytes(Bytes::from_static(b"abcdef")), true),
            ("text", text("a\0é😀€"), true),
            ("an object", Content::Object(Some(Bytes::from_static(b"java"))), true),
            ("a map", Content::Map(vec![("a".into(), "b".into())]), false),
        ] {
            let portable = Portable { body: want.clone(), ..Portable::default() };
            for piece_bytes in 1..20 {
                let (message, pieces) = cut_openwire(&portable, piece_bytes);
                let (got, left_in_pieces) = sent(&message, &pieces, Protocol::Amqp).unwrap();
                assert_eq!(
                    (&got.body, left_in_pieces),
                    (&want, in_pieces),
                    "{case}, in pieces of {piece_bytes}"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_sent_to_nobody() {
        let (message, mut pieces) = cut_amqp(Bytes::from_static(b"\0\x53\x77\xa1\x05ab\xffcd"), 8);
        let error = sent(&message, &pieces, Protocol::OpenWire).map(drop).unwrap_err();
        assert!(error.contains("no UTF-8"), "{error}");
        // Another body than the one that was measured.
        let portable = Portable { body: text("a😀b"), ..Portable::default() };
        let (message, _) = cut_openwire(&portable, 4);
        pieces =
            vec![Bytes::from_static(b"\0\0\0\x08"), Bytes::from_static(b"\xff\xff\xff\xff"), Bytes::new()];
        let error = sent(&message, &pieces, Protocol::Amqp).map(drop).unwrap_err();
        assert!(error.contains("no modified UTF-8"), "{error}");
    }

    proptest! {
        #[test]
        fn text_and_bytes_are_what_they_would_be_if_they_were_small(
            said in ".{1,40}",
            held in vec(any::<u8>(), 8..60),
            piece_bytes in 8_usize..30,
        ) {
            let held = Content::Bytes(held.into());
            for body in [text(&said), held] {
                let portable = Portable { body: body.clone(), ..Portable::default() };
                let (message, pieces) = cut_openwire(&portable, piece_bytes);
                let (got, _) = sent(&message, &pieces, Protocol::Amqp).unwrap();
                prop_assert_eq!(&got.body, &body);
                let (message, pieces) = cut_amqp(amqp::write_portable(&portable), piece_bytes);
                let (got, _) = sent(&message, &pieces, Protocol::OpenWire).unwrap();
                prop_assert_eq!(&got.body, &body);
            }
        }
    }
}

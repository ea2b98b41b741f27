//! One connection: a socket, the layers on it, and two buffers, all bounded.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::layer::{Layer, Layers};

/// How often a peer that is not read is looked after.
const PEER_CHECK: Duration = Duration::from_millis(500);

/// The size of a read unless a larger frame is on its way: many small frames, little idle memory.
const READ_BYTES: usize = 16 << 10;

/// Buffers that a thread keeps for the next connection with something to read: as many as it mostly
/// has in use...
const SPARES_MAX: usize = 4;

/// ... and none that has grown beyond this.
const SPARE_BYTES_MAX: usize = 2 * READ_BYTES;

thread_local! {
    /// An idle connection has no buffer, and asking the allocator for one for each read costs more
    /// than the read's frame.
    static SPARES: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// The buffer for a large frame grows by this, or by as much as has arrived: bytes that a peer
/// announces and does not send costs little.
const STEP_BYTES: usize = 1 << 20;

/// A peer is not read while this much sealed output waits for it: layers answer by themselves, for
/// example the pings of WebSockets, and a peer that never reads its answers must not fill the
/// memory.
const LEAVING_BYTES_MAX: usize = 256 << 10;

/// Limit of the bytes that a peer may still send after the last frame before it is cut off.
const LATE_BYTES_MAX: usize = 1 << 20;

/// A socket with its unparsed input and its pending output.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Between the socket and the two buffers.
    layers: Option<Layers>,
    /// Read, and not yet taken by the session.
    pub input: BytesMut,
    /// `input` lies in a buffer made for a large frame. Small reads do not go into its rest: that
    /// would keep all of it alive.
    input_is_large: bool,
    /// To be written.
    pub output: BytesMut,
}

/// The result of a step of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// This number of bytes was read into `input`.
    Read(usize),
    /// The peer has closed: nothing more will come.
    Closed,
    /// `output` can be written.
    Writable,
}

impl Connection {
    /// Takes over an accepted socket, with its `layers`, the outermost first. Call within the
    /// runtime that is to serve it.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(stream: std::net::TcpStream, layers: Vec<Box<dyn Layer>>) -> io::Result<Connection> {
        let stream = TcpStream::from_std(stream)?;
        let (input, output, layers) = (BytesMut::new(), BytesMut::new(), Layers::new(layers));
        Ok(Connection { stream, layers, input, input_is_large: false, output })
    }

    /// Waits until the layers are ready: `input` may then have bytes from after their handshakes.
    /// The caller bounds the time.
    ///
    /// # Errors
    /// The system's error, or the peer's fault; the notification of the peer was written, if the
    /// socket took it.
    pub async fn ready(&mut self) -> io::Result<Moved> {
        // The side that opened the connection speaks first.
        self.write()?;
        while self.layers.as_ref().is_some_and(|layers| !layers.are_ready()) {
            let moved = self.moved(true, 0).await;
            let written = self.write();
            if moved? == Moved::Closed {
                return Ok(Moved::Closed);
            }
            written?;
        }
        self.layers = self.layers.take().and_then(Layers::that_do_something);
        Ok(Moved::Read(self.input.len()))
    }

    /// The socket, if nothing is around it; otherwise the connection as it was. Input that was read
    /// is lost.
    ///
    /// # Errors
    /// The system's error.
    pub fn into_socket(self) -> io::Result<Result<std::net::TcpStream, Connection>> {
        match self.layers {
            None => self.stream.into_std().map(Ok),
            Some(_) => Ok(Err(self)),
        }
    }

    /// The peer's certificate (DER), if a layer has seen a good one.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.layers.as_ref()?.peer_certificate()
    }

    /// The peer is authenticated: the full limits of its layers apply.
    pub fn let_in(&mut self) {
        if let Some(layers) = &mut self.layers {
            layers.let_in();
        }
    }

    /// Bytes that have come to the socket and are not read yet.
    ///
    /// # Errors
    /// The system's error.
    pub fn unread_bytes(&self) -> io::Result<u64> {
        Ok(rustix::io::ioctl_fionread(&self.stream)?)
    }

    /// Whether the layers may answer more. Nothing is read otherwise.
    pub fn has_room(&self) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers.leaving_bytes() < LEAVING_BYTES_MAX)
    }

    /// Reads into `input` (if `reads`, and there is room for the answers of layers), or waits for
    /// input; or until `output` can be written, if it is not empty. While nothing is read, it still
    /// notices that the peer has closed. Nothing is lost if it is dropped before it is done.
    ///
    /// `missing_bytes` of the frame that `input` begins with are still to come: a large frame gets
    /// a buffer of its own, in steps.
    ///
    /// # Errors
    /// The system's error.
    pub async fn moved(&mut self, reads: bool, missing_bytes: usize) -> io::Result<Moved> {
        self.moved_in_turn(reads, missing_bytes, |_| Poll::Ready(())).await
    }

    /// As [`Connection::moved`]; input that is there is read once it is this connection's `turn`.
    ///
    /// # Errors
    /// The system's error.
    pub async fn moved_in_turn(
        &mut self,
        reads: bool,
        missing_bytes: usize,
        turn: impl Fn(&mut Context<'_>) -> Poll<()>,
    ) -> io::Result<Moved> {
        if reads && self.has_room() {
            return poll_fn(|context| match self.poll_read(missing_bytes, &turn, context) {
                Poll::Pending => self.poll_writable(context),
                read => read,
            })
            .await;
        }
        tokio::select! {
            writable = poll_fn(|context| self.poll_writable(context)) => writable,
            () = self.closed_by_peer() => Ok(Moved::Closed),
        }
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<Moved>> {
        if self.is_flushed() {
            return Poll::Pending;
        }
        self.stream.poll_write_ready(context).map_ok(|()| Moved::Writable)
    }

    /// Checks now and then, because earlier unread input keeps the socket readable all the time.
    async fn closed_by_peer(&self) {
        loop {
            tokio::time::sleep(PEER_CHECK).await;
            let closed = tokio::select! {
                biased;
                ready = self.stream.ready(Interest::READABLE) => ready.is_ok_and(|ready| ready.is_read_closed()),
                () = std::future::ready(()) => false,
            };
            if closed {
                return;
            }
        }
    }

    /// A buffer is made only once there is something to read. A read that leaves room in it has
    /// read all there is: the next one waits for more without asking the system.
    fn poll_read(
        &mut self,
        missing_bytes: usize,
        turn: impl Fn(&mut Context<'_>) -> Poll<()>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Moved>> {
        if self.layers.as_ref().is_some_and(Layers::have_ended) {
            return Poll::Ready(Ok(Moved::Closed));
        }
        ready!(self.stream.poll_read_ready(context))?;
        ready!(turn(context));
        let room = missing_bytes.min(self.input.len().max(STEP_BYTES)).max(READ_BYTES);
        self.make_room(room);
        let outside = match &mut self.layers {
            Some(layers) => {
                layers.arrived().reserve(READ_BYTES);
                layers.arrived()
            }
            None => &mut self.input,
        };
        let mut limited = outside.limit(room);
        let read = ready!(pin!(self.stream.read_buf(&mut limited)).poll(context))?;
        if let Some(layers) = &mut self.layers {
            layers.open(&mut self.input)?;
        }
        Poll::Ready(Ok(if read == 0 { Moved::Closed } else { Moved::Read(read) }))
    }

    fn make_room(&mut self, room: usize) {
        let has_room = room <= self.input.capacity() - self.input.len();
        let is_large = READ_BYTES < room;
        if has_room && (is_large || !self.input_is_large) {
            return;
        }
        if is_large || self.input_is_large {
            let mut buffer = BytesMut::with_capacity(self.input.len() + room);
            buffer.extend_from_slice(&self.input);
            self.input = buffer;
            self.input_is_large = is_large;
            return;
        }
        if self.input.capacity() == 0 {
            self.input = SPARES.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        self.input.reserve(room);
    }

    /// All input is parsed: the buffer is for the next reader, unless parts of it are still in use
    /// and the rest is too small to read into.
    fn lend_input(&mut self) {
        let mut buffer = std::mem::take(&mut self.input);
        let is_large = std::mem::take(&mut self.input_is_large);
        if is_large || !buffer.try_reclaim(READ_BYTES) || SPARE_BYTES_MAX < buffer.capacity() {
            return;
        }
        SPARES.with_borrow_mut(|spares| {
            if spares.len() < SPARES_MAX {
                spares.push(buffer);
            }
        });
    }

    /// Closes the connection so that the peer can read the last output: closing a socket with
    /// unread input would reset it. Returns when the peer has closed too, or has sent too much; the
    /// caller bounds the time.
    ///
    /// # Errors
    /// The system's error.
    pub async fn part(&mut self) -> io::Result<()> {
        if let Some(layers) = &mut self.layers {
            layers.finish();
            self.write()?;
        }
        self.stream.shutdown().await?;
        let (mut late, mut late_bytes) = (vec![0; READ_BYTES], 0);
        while late_bytes < LATE_BYTES_MAX {
            self.stream.readable().await?;
            match self.stream.try_read(&mut late) {
                Ok(0) => return Ok(()),
                Ok(read) => late_bytes += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes as much of `output` as the socket takes now.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&mut self) -> io::Result<()> {
        loop {
            let outside = match &mut self.layers {
                Some(layers) => {
                    layers.seal(&mut self.output)?;
                    layers.leaving()
                }
                None => &mut self.output,
            };
            if outside.is_empty() {
                break;
            }
            match self.stream.try_write(outside) {
                Ok(written) => outside.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if !self.output.is_empty() {
            // A layer takes nothing before its handshake is over.
            return Ok(());
        }
        if let Some(layers) = &mut self.layers {
            layers.rest();
        }
        // An idle connection keeps no buffers.
        self.output = BytesMut::new();
        if self.input.is_empty() {
            self.lend_input();
        }
        Ok(())
    }

    /// Whether the socket took everything.
    pub fn is_flushed(&self) -> bool {
        self.output.is_empty() && !self.layers.as_ref().is_some_and(Layers::has_leaving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn connection(input: &[u8], capacity: usize, input_is_large: bool) -> (Connection, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(stream, Vec::new()).unwrap();
        connection.input = BytesMut::with_capacity(capacity);
        connection.input.extend_from_slice(input);
        connection.input_is_large = input_is_large;
        (connection, peer)
    }

    #[tokio::test]
    async fn nothing_small_is_read_into_a_large_buffer() {
        const LARGE: usize = 4 << 20;
        for (case, capacity, input_is_large, room, want) in [
            ("a small buffer has room", READ_BYTES + 3, false, READ_BYTES, (READ_BYTES + 3, false)),
            ("a large frame gets its own", READ_BYTES + 3, false, LARGE, (LARGE + 3, true)),
            ("and goes on in it", LARGE + 3, true, LARGE, (LARGE + 3, true)),
            ("small frames leave it", LARGE + 3, true, READ_BYTES, (READ_BYTES + 3, false)),
        ] {
            let (mut connection, _peer) = connection(b"abc", capacity, input_is_large);
            connection.make_room(room);
            let got = (connection.input.capacity(), connection.input_is_large);
            assert_eq!((&connection.input[..], got), (&b"abc"[..], want), "case: {case}");
        }
    }

    #[tokio::test]
    async fn a_buffer_goes_to_whoever_reads_next_unless_it_is_in_use() {
        const NONE: &[usize] = &[];
        for (case, capacity, input_is_large, keeps_a_frame, want) in [
            ("a small one", READ_BYTES, false, false, &[READ_BYTES][..]),
            ("a large one", READ_BYTES, true, false, NONE),
            ("none", 0, false, false, NONE),
            ("one of which a frame is kept", READ_BYTES, false, true, NONE),
            ("one that is too small", READ_BYTES / 2, false, false, NONE),
            ("one that has grown", 2 * SPARE_BYTES_MAX, false, false, NONE),
        ] {
            SPARES.take();
            let (mut lender, _peer) = connection(b"", capacity, input_is_large);
            lender.input.extend_from_slice(&b"frame"[..capacity.min(5)]);
            let frame = lender.input.split().freeze();
            let kept = keeps_a_frame.then_some(frame);
            lender.write().unwrap();
            assert_eq!((lender.input.capacity(), lender.input_is_large), (0, false), "case: {case}");
            let spares: Vec<usize> =
                SPARES.with_borrow(|spares| spares.iter().map(BytesMut::capacity).collect());
            assert_eq!(spares, want, "case: {case}");
            let (mut reader, _peer) = connection(b"", 0, false);
            reader.make_room(READ_BYTES);
            assert!(READ_BYTES <= reader.input.capacity() && SPARES.take().is_empty(), "case: {case}");
            drop(kept);
        }
        for _ in 0..2 * SPARES_MAX {
            connection(b"", READ_BYTES, false).0.lend_input();
        }
        assert_eq!(SPARES.take().len(), SPARES_MAX);
    }

    #[tokio::test]
    async fn an_announcement_makes_room_for_one_step_and_only_once_something_comes() {
        let (mut connection, mut peer) = connection(b"abc", 3, false);
        let idle = tokio::time::timeout(Duration::from_millis(20), connection.moved(true, 100 << 20)).await;
        assert!(idle.is_err(), "nothing is there");
        assert_eq!(connection.input.capacity(), 3);
        peer.write_all(b"def").unwrap();
        assert_eq!(connection.moved(true, 100 << 20).await.unwrap(), Moved::Read(3));
        assert_eq!((&connection.input[..], connection.input.capacity()), (&b"abcdef"[..], STEP_BYTES + 3));
    }

    #[tokio::test]
    async fn a_peer_that_takes_none_of_its_answers_is_not_read() {
        let (listener, stream) =
            (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), std::net::TcpStream::connect);
        let mut peer = stream(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(socket, vec![Box::new(Echo::default())]).unwrap();
        peer.set_nonblocking(true).unwrap();
        let question = [7; READ_BYTES];
        for _ in 0..1_000 {
            // It asks and asks, and reads nothing.
            let _ = peer.write(&question);
            let moved = connection.moved(true, 0);
            let _ = tokio::time::timeout(Duration::from_millis(1), moved).await;
            connection.write().unwrap();
        }
        let waits = connection.layers.as_mut().map_or(0, |layers| layers.leaving().len());
        assert!(waits <= LEAVING_BYTES_MAX + READ_BYTES, "{waits} bytes wait for it");
        assert!(!connection.has_room());
    }

    /// A layer that answers for itself, as one that is pinged does.
    #[derive(Debug, Default)]
    struct Echo(BytesMut);

    impl Layer for Echo {
        fn open(&mut self, outside: &mut BytesMut, _: &mut BytesMut) -> io::Result<()> {
            self.0.unsplit(outside.split());
            Ok(())
        }

        fn seal(&mut self, _: &mut BytesMut, outside: &mut BytesMut, _: usize) -> io::Result<()> {
            outside.unsplit(self.0.split());
            Ok(())
        }

        fn is_ready(&self) -> bool {
            true
        }

        fn has_ended(&self) -> bool {
            false
        }

        fn finish(&mut self) {}
    }

    #[tokio::test]
    async fn everything_comes_in_order_and_then_the_end() {
        let (mut connection, mut peer) = connection(b"", 0, false);
        let sent: Vec<u8> = (0..5 * READ_BYTES + 7).map(|number| number as u8).collect();
        peer.write_all(&sent).unwrap();
        drop(peer);
        while connection.input.len() < sent.len() {
            assert!(matches!(connection.moved(true, 0).await.unwrap(), Moved::Read(1..)));
        }
        assert!(connection.input == sent);
        assert_eq!(connection.moved(true, 0).await.unwrap(), Moved::Closed);
    }

    #[tokio::test]
    async fn while_nothing_is_read_only_the_end_and_room_to_write_count() {
        let (mut connection, mut peer) = connection(b"", 0, false);
        peer.write_all(b"unread").unwrap();
        let neither = tokio::time::timeout(Duration::from_millis(20), connection.moved(false, 0)).await;
        assert!(neither.is_err() && connection.input.is_empty());
        connection.output.extend_from_slice(b"reply");
        assert_eq!(connection.moved(false, 0).await.unwrap(), Moved::Writable);
        connection.write().unwrap();
        drop(peer);
        assert_eq!(connection.moved(false, 0).await.unwrap(), Moved::Closed);
    }
}

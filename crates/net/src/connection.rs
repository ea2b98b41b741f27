//! One connection: a socket and its two buffers, both bounded.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// How often a peer that is not read is looked after.
const PEER_CHECK: Duration = Duration::from_millis(500);

/// What is read at once unless a larger frame is on its way: many small frames, little idle memory.
const READ_BYTES: usize = 16 << 10;

/// Room is made for so much of a large frame at once, or for as much again as has arrived: what a peer announces and does
/// not send costs little.
const STEP_BYTES: usize = 1 << 20;

/// A peer that was told goodbye may still send so much before it is cut off.
const LATE_BYTES_MAX: usize = 1 << 20;

/// A socket with what was read and not yet understood, and what is to be written.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Read, and not yet taken by the session.
    pub input: BytesMut,
    /// `input` lies in a buffer made for a large frame. Nothing small is read into what is left of it: that would keep all
    /// of it alive.
    input_is_large: bool,
    /// To be written.
    pub output: BytesMut,
}

/// What a connection can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes, or the end of them, can be read.
    pub readable: bool,
    /// Bytes can be written.
    pub writable: bool,
}

impl Connection {
    /// Takes over an accepted socket. Call within the runtime that is to serve it.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(stream: std::net::TcpStream) -> io::Result<Connection> {
        let stream = TcpStream::from_std(stream)?;
        let (input, output) = (BytesMut::new(), BytesMut::new());
        Ok(Connection { stream, input, input_is_large: false, output })
    }

    /// Waits until the peer has closed, without reading: for while nothing is read. Looks now and then, because what was
    /// sent before and is still unread keeps the socket readable all the time.
    pub async fn closed_by_peer(&self) {
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

    /// Waits until the socket can be read (if `reads`) or written (if there is something to write). With neither to
    /// wait for it never returns.
    ///
    /// # Errors
    /// What the system says.
    pub async fn ready(&self, reads: bool) -> io::Result<Readiness> {
        let interest = match (reads, self.output.is_empty()) {
            (true, true) => Interest::READABLE,
            (true, false) => Interest::READABLE | Interest::WRITABLE,
            (false, false) => Interest::WRITABLE,
            (false, true) => return std::future::pending().await,
        };
        let ready = self.stream.ready(interest).await?;
        let readable = reads && (ready.is_readable() || ready.is_read_closed());
        Ok(Readiness { readable, writable: ready.is_writable() })
    }

    /// Reads what is there into `input`. `missing_bytes` of the frame that it begins with are still to come: a large frame
    /// gets a buffer of its own, in steps. `Ok(0)`: the peer has closed. `Ok(None)`: nothing is there after all.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(&mut self, missing_bytes: usize) -> io::Result<Option<usize>> {
        let room = missing_bytes.min(self.input.len().max(STEP_BYTES)).max(READ_BYTES);
        self.make_room(room);
        match self.stream.try_read_buf(&mut (&mut self.input).limit(room)) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
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
        } else {
            self.input.reserve(room);
        }
    }

    /// Ends the conversation so that the peer can read what it was sent last: closing a socket with unread input would
    /// reset it. Returns when the peer has closed too, or has sent too much; the caller bounds the time.
    ///
    /// # Errors
    /// What the system says.
    pub async fn part(&mut self) -> io::Result<()> {
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
    /// What the system says.
    pub fn write(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.try_write(&self.output) {
                Ok(written) => self.output.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // An idle connection keeps no buffers.
        self.output = BytesMut::new();
        if self.input.is_empty() {
            self.input = BytesMut::new();
            self.input_is_large = false;
        }
        Ok(())
    }

    /// Whether the socket took everything.
    pub fn is_flushed(&self) -> bool {
        self.output.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(input: &[u8], capacity: usize, input_is_large: bool) -> Connection {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(stream).unwrap();
        connection.input = BytesMut::with_capacity(capacity);
        connection.input.extend_from_slice(input);
        connection.input_is_large = input_is_large;
        connection
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
            let mut connection = connection(b"abc", capacity, input_is_large);
            connection.make_room(room);
            let got = (connection.input.capacity(), connection.input_is_large);
            assert_eq!((&connection.input[..], got), (&b"abc"[..], want), "case: {case}");
        }
    }

    #[tokio::test]
    async fn an_announcement_makes_room_for_one_step() {
        let mut connection = connection(b"abc", 0, false);
        assert_eq!(connection.read(100 << 20).unwrap(), None);
        assert_eq!(connection.input.capacity(), STEP_BYTES + 3);
    }
}

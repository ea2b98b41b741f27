//! One connection: a socket and its two buffers, both bounded.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What is read at once unless a larger frame is on its way: many small frames, little idle memory.
const READ_BYTES: usize = 16 << 10;

/// A socket with what was read and not yet understood, and what is to be written.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Read, and not yet taken by the session.
    pub input: BytesMut,
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
        Ok(Connection { stream, input: BytesMut::new(), output: BytesMut::new() })
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

    /// Reads what is there into `input`, with room for at least `missing_bytes`. `Ok(0)`: the peer has closed.
    /// `Ok(None)`: nothing is there after all.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(&mut self, missing_bytes: usize) -> io::Result<Option<usize>> {
        self.input.reserve(missing_bytes.max(READ_BYTES));
        match self.stream.try_read_buf(&mut self.input) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
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
        }
        Ok(())
    }

    /// Whether the socket took everything.
    pub fn is_flushed(&self) -> bool {
        self.output.is_empty()
    }
}

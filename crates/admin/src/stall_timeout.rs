//! A stream to a client that may be slow, but not for ever: output that it does not take in time
//! ends the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep};

/// Longest time in which a client reads nothing of an answer.
pub const TAKES_WITHIN: Duration = Duration::from_secs(10);

/// See the head of this file.
pub struct StallTimeout<S> {
    stream: S,
    /// When it is over, while the client takes nothing.
    until: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> StallTimeout<S> {
    /// Around a stream.
    pub fn new(stream: S) -> StallTimeout<S> {
        StallTimeout { stream, until: Box::pin(tokio::time::sleep(TAKES_WITHIN)), is_waiting: false }
    }

    /// The result of an attempt to write, or the end of the patience.
    fn judge<T>(&mut self, context: &mut Context<'_>, tried: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if tried.is_ready() {
            self.is_waiting = false;
            return tried;
        }
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.until.as_mut().reset(Instant::now() + TAKES_WITHIN);
        }
        self.until.as_mut().poll(context).map(|()| {
            let what =
                format!("the client took nothing of its answer for {} seconds", TAKES_WITHIN.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        })
    }
}

impl<S: Read + Unpin> Read for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: Write + Unpin> Write for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, tried)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, tried)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, tried)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, tried)
    }
}

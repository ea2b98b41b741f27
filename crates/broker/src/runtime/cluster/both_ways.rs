//! Bytes of a client that is carried to a leader, both ways.
//!
//! A client may end its direction first, and gets the whole answer, however long that takes. Once
//! the leader has ended the connection, the client has a time to read the rest and to end it, too.
//!
//! Never here: who the client is, where its leader is.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::sync::oneshot;

use crate::runtime::cluster::sealed::Far;

/// Time for a client to end a connection that its leader has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// Copies bytes until both sides have ended, with these bytes of each direction in memory.
///
/// # Errors
/// One of the two sides breaks off, or the client does not end within 30 s of its leader.
pub async fn copy_both_ways(client: impl Far, leader: impl Far, buffer_bytes: usize) -> io::Result<()> {
    copy_within(ENDS_WITHIN, (client, leader), buffer_bytes).await
}

async fn copy_within(
    ends_within: Duration,
    (mut client, leader): (impl Far, impl Far),
    buffer_bytes: usize,
) -> io::Result<()> {
    let (says, has_ended) = oneshot::channel();
    let mut leader = Leader { stream: leader, says: Some(says) };
    let is_late = async {
        let _ = has_ended.await;
        tokio::time::sleep(ends_within).await;
    };
    tokio::select! {
        copied = copy_bidirectional_with_sizes(&mut client, &mut leader, buffer_bytes, buffer_bytes) => {
            copied.map(|_| ())
        }
        () = is_late => {
            let reason = format!("the client did not end within {ends_within:?} of its leader");
            Err(io::Error::new(ErrorKind::TimedOut, reason))
        }
    }
}

/// The leader's side, which says once that it has ended.
struct Leader<S> {
    stream: S,
    says: Option<oneshot::Sender<()>>,
}

impl<S: Far> AsyncRead for Leader<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, has_room) = (buffer.filled().len(), 0 < buffer.remaining());
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if has_room && buffer.filled().len() == before {
            self.says.take().into_iter().for_each(|says| says.send(()).unwrap_or_default());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Far> AsyncWrite for Leader<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    const BUFFER_BYTES: usize = 1 << 10;

    /// The ends of a client and of its leader, and the copying between them.
    fn carried() -> (DuplexStream, DuplexStream, JoinHandle<io::Result<()>>) {
        let ((client, near), (leader, far)) = (duplex(BUFFER_BYTES), duplex(BUFFER_BYTES));
        (client, leader, tokio::spawn(copy_both_ways(near, far, BUFFER_BYTES)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_ignores_the_end_of_its_leader_is_closed_after_a_time() {
        let (mut client, mut leader, copied) = carried();
        // As long as the leader has not ended, an idle client stays.
        sleep(10 * ENDS_WITHIN).await;
        assert!(!copied.is_finished());
        leader.write_all(b"farewell").await.unwrap();
        leader.shutdown().await.unwrap();
        let (ended_at, mut bytes) = (Instant::now(), Vec::new());
        client.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"farewell");
        let copied = timeout(2 * ENDS_WITHIN, copied).await.expect("it ends").unwrap();
        assert_eq!(ended_at.elapsed().as_secs(), ENDS_WITHIN.as_secs());
        let error = copied.unwrap_err().to_string();
        assert_eq!(error, "the client did not end within 30s of its leader");
        assert_eq!(client.write_all(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_ends_after_its_leader_is_done_at_once() {
        let (client, leader, copied) = carried();
        drop(leader);
        sleep(ENDS_WITHIN / 2).await;
        let ended_at = Instant::now();
        drop(client);
        timeout(ENDS_WITHIN, copied).await.expect("it ends").unwrap().unwrap();
        assert_eq!(ended_at.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_ends_its_direction_gets_the_whole_answer() {
        let (mut client, mut leader, copied) = carried();
        let answers = tokio::spawn(async move {
            let mut request = Vec::new();
            leader.read_to_end(&mut request).await.unwrap();
            for _ in 0..3 {
                sleep(2 * ENDS_WITHIN).await;
                leader.write_all(&[7; 5 * BUFFER_BYTES]).await.unwrap();
            }
            request
        });
        client.write_all(b"request").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answers.await.unwrap(), b"request");
        assert_eq!(answer, [7; 15 * BUFFER_BYTES]);
        copied.await.unwrap().unwrap();
    }
}

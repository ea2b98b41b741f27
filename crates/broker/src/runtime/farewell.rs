//! The end of a connection: its peer reads everything first.

use std::time::Duration;

use postroad_net::{Connection, Moved};

/// Time that a peer has to read the last frame before its connection is closed.
const FAREWELL: Duration = Duration::from_secs(2);

/// Time for which bytes that a peer still sends after the last frame are discarded.
const LINGER: Duration = Duration::from_secs(1);

/// Writes the remaining output, and waits for the peer to close.
pub async fn part(connection: &mut Connection) {
    let _ = tokio::time::timeout(FAREWELL, write_out(connection)).await;
    linger(connection).await;
}

/// Waits for the peer to close.
pub async fn linger(connection: &mut Connection) {
    let _ = tokio::time::timeout(LINGER, connection.part()).await;
}

async fn write_out(connection: &mut Connection) -> std::io::Result<()> {
    while !connection.is_flushed() {
        if connection.moved(false, 0).await? == Moved::Closed {
            return Ok(());
        }
        connection.write()?;
    }
    Ok(())
}

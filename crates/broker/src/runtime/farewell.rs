//! The end of a connection: its peer reads everything first, and those who watch it hear why.

use std::net::SocketAddr;
use std::time::Duration;

use postroad_model::Parting;
use postroad_net::{Connection, Moved};

use crate::runtime::dialler::{LinkChange, LinkReporter};

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

/// Tells the link that it was, or operators if it was a fault.
pub fn tell(parting: &Parting, peer: SocketAddr, link: Option<&LinkReporter>) {
    match (link, parting) {
        (Some(link), parting) => link.tell(LinkChange::Ended(reason_of(parting).to_owned())),
        (None, Parting::Fault(reason)) => tracing::warn!(%peer, reason, "connection ended"),
        (None, Parting::Farewell) => {}
    }
}

/// The reason in words.
pub fn reason_of(parting: &Parting) -> &str {
    match parting {
        Parting::Fault(reason) => reason,
        Parting::Farewell => "the peer has closed the connection",
    }
}

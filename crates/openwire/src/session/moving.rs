//! Clients that another node serves: they are sent there by a ConnectionControl, which a client
//! with `failover:` adds to its own list of brokers, and by the end of the connection. It connects
//! to any other broker first (ActiveMQ's `FailoverTransport.updateURIs` and `getConnectList`).

use postroad_model::{Deadline, Endpoint, Parting};

use super::exception::Exception;
use super::{OpenWireSession, Turn};
use crate::codec::{ConnectionControl, ConnectionInfo};

/// A client that has lost its connection and came back through another node is served at once, and
/// moved after this time: reconnecting again would make its interruption longer.
const CARRIED_MS: u64 = 5000;

/// A client that is to be moved, and is in a transaction, is looked at again after this time.
const AGAIN_MS: u64 = 1000;

/// Whether a client can be moved, and when it is to be.
#[derive(Default)]
pub struct Moving {
    /// The client reconnects by itself.
    can: bool,
    /// It does that now.
    reconnects: bool,
    /// It is to be moved from then on.
    from_ms: Deadline,
    look_ms: Deadline,
}

impl Moving {
    /// The client has introduced itself.
    pub fn introduced(&mut self, info: &ConnectionInfo) {
        (self.can, self.reconnects) = (info.fault_tolerant, info.failover_reconnect);
    }

    /// When [`move_due`] is to be called next.
    pub fn deadline(&self) -> Deadline {
        self.look_ms
    }
}

/// Whether the client that has introduced itself is sent on at once.
pub fn sends_on(session: &OpenWireSession) -> bool {
    let Moving { can, reconnects, .. } = session.moving;
    session.options.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.sends_on(can && !reconnects))
}

/// The client is let in. If it came through another node, it is moved later.
pub fn let_in(session: &mut OpenWireSession, turn: &Turn<'_>) {
    let elsewhere = session.options.elsewhere.as_ref();
    if elsewhere.is_some_and(|elsewhere| elsewhere.sends_on(session.moving.can)) {
        session.moving.from_ms = Some(turn.now.ticks_ms + CARRIED_MS);
        session.moving.look_ms = session.moving.from_ms;
    }
}

/// Moves the client if that is due, and it is between transactions and waits for no answer.
pub fn move_due(session: &mut OpenWireSession, turn: &mut Turn<'_>) -> Result<(), Parting> {
    let now_ms = turn.now.ticks_ms;
    if session.moving.from_ms.is_none_or(|from_ms| now_ms < from_ms) {
        return Ok(());
    }
    if !session.transactions.are_none_open() || !session.replies.is_empty() {
        session.moving.look_ms = Some(now_ms + AGAIN_MS);
        return Ok(());
    }
    let elsewhere = session.options.elsewhere.clone();
    point_to(session, elsewhere.as_ref().and_then(|elsewhere| elsewhere.served_at.as_ref()), turn);
    Err(Parting::Farewell)
}

/// Sends a client to the broker that serves it. One that reconnects by itself gets no response: an
/// error would be final for its application.
pub fn send_on(session: &mut OpenWireSession, respond: Option<i32>, turn: &mut Turn<'_>) -> Parting {
    let Some(elsewhere) = session.options.elsewhere.clone() else { return Parting::Farewell };
    if !session.moving.can {
        session.refuse(respond, &Exception::jms(&elsewhere.reason), turn);
    }
    point_to(session, elsewhere.served_at.as_ref(), turn);
    Parting::Fault(elsewhere.reason.clone())
}

/// Names the broker that serves the client from now on, if the client can be moved.
pub fn point_to(session: &mut OpenWireSession, served_at: Option<&Endpoint>, turn: &mut Turn<'_>) {
    let Some(served_at) = served_at.filter(|_| session.moving.can) else { return };
    let connected_brokers = Some(served_at.to_string().as_str().into());
    session.send(ConnectionControl { connected_brokers, ..ConnectionControl::default() }.into(), turn);
}

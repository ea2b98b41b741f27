//! Clients that another node serves: they are sent there by a ConnectionControl, which a client
//! with `failover:` adds to its own list of brokers, and by the end of the connection. It connects
//! to any other broker first (ActiveMQ's `FailoverTransport.updateURIs` and `getConnectList`).

use postroad_model::{Deadline, Endpoint, Parting, Session, Underway};

use super::exception::Exception;
use super::{OpenWireSession, Turn};
use crate::codec::{ConnectionControl, ConnectionInfo};

/// A client that has lost its connection and came back through another node is served at once, and
/// moved after this time: it may reconnect through another node again, each time with a pause.
const CARRIED_MS: u64 = 10_000;

/// The connection ends no earlier after a client was told where it is served. Its reconnecting
/// thread is woken by that. If the connection is lost before that thread sleeps again, it makes
/// another one without a word to consumers, which keep their messages and get them once more
/// (ActiveMQ's `FailoverTransport.handleTransportFailure`).
const TOLD_MS: u64 = 200;

/// A client that was told gets no messages for this further time, in which it settles those that it
/// has.
const LEAVES_MS: u64 = 500;

/// Whether a client can be moved, and when it is to be.
#[derive(Default)]
pub struct Moving {
    /// The client reconnects by itself.
    can: bool,
    /// It does that now.
    reconnects: bool,
    /// It came through another node. Few do: a pointer, for the sake of all others.
    carried: Option<Box<Carried>>,
}

/// A client that is served, and to be moved.
struct Carried {
    /// The next step is due then.
    due_ms: u64,
    step: Step,
}

/// How far a move is.
///
/// ```text
///   Served ──▶ Told ──▶ Leaving ──nothing is under way──▶ the connection ends
///      ▲                   │
///      └───────────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Served,
    /// It gets no messages from here on.
    Told,
    Leaving,
}

impl Moving {
    /// The client has introduced itself.
    pub fn introduced(&mut self, info: &ConnectionInfo) {
        (self.can, self.reconnects) = (info.fault_tolerant, info.failover_reconnect);
    }

    /// When [`move_due`] is to be called at the latest.
    pub fn deadline(&self) -> Deadline {
        self.carried.as_ref().map(|carried| carried.due_ms)
    }

    /// Whether the client gets no messages.
    pub fn is_leaving(&self) -> bool {
        self.carried.as_ref().is_some_and(|carried| carried.step != Step::Served)
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
        let due_ms = turn.now.ticks_ms + CARRIED_MS;
        session.moving.carried = Some(Box::new(Carried { due_ms, step: Step::Served }));
    }
}

/// Moves the client if that is due, once it has nothing under way: it would see a transaction fail,
/// or messages of which it still has copies.
pub fn move_due(session: &mut OpenWireSession, turn: &mut Turn<'_>) -> Result<(), Parting> {
    let now_ms = turn.now.ticks_ms;
    let Some(Carried { due_ms, step }) = session.moving.carried.as_deref() else { return Ok(()) };
    let (is_due, step) = (*due_ms <= now_ms, *step);
    if step == Step::Leaving && session.underway() == Underway::default() {
        return Err(Parting::Farewell);
    }
    if !is_due {
        return Ok(());
    }
    let (step, lasts_ms) = match step {
        Step::Served => (Step::Told, TOLD_MS),
        Step::Told => (Step::Leaving, LEAVES_MS),
        Step::Leaving => (Step::Served, CARRIED_MS),
    };
    session.moving.carried = Some(Box::new(Carried { due_ms: now_ms + lasts_ms, step }));
    if step == Step::Told {
        let elsewhere = session.options.elsewhere.clone();
        point_to(session, elsewhere.as_ref().and_then(|elsewhere| elsewhere.served_at.as_ref()), turn);
    }
    if step == Step::Leaving { move_due(session, turn) } else { Ok(()) }
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

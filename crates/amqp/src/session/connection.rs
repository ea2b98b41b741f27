//! Connections: open and close (2.7.1, 2.7.9).

use std::sync::Arc;

use postroad_model::{ClientNotice, Endpoint, Event, Parting, Silences};

use super::delay::DELAYED_DELIVERY;
use super::fault::{Fault, error};
use super::replies::Then;
use super::{AmqpSession, Refused, Turn, channel};
use crate::codec::{Close, Open, Symbol, Value, ValueMap};

/// The least that both sides can take (2.8.19).
const FRAME_BYTES_MAX_MIN: u32 = 512;

/// A client that bears less silence, in milliseconds, is refused: empty frames are sent for its
/// sake twice in that time, and not more often than each 100 ms.
const IDLE_MS_MIN: u32 = 200;

/// The capabilities of this broker.
const CAPABILITIES: [&str; 4] = ["ANONYMOUS-RELAY", "SHARED-SUBS", DELAYED_DELIVERY, SOLE_CONNECTION];

/// A client that wants its container id for itself asks for this (as `qpid-jms` does for JMS client
/// ids).
const SOLE_CONNECTION: &str = "sole-connection-for-container";

/// Property of an open: a close follows at once, as clients of `qpid-jms` expect.
const ESTABLISHMENT_FAILED: &str = "amqp:connection-establishment-failed";

/// The state of the other side.
#[derive(Default)]
pub struct Peer {
    stage: Stage,
    /// The client's container id.
    pub container: Arc<str>,
    /// The user who has logged in, if the client has.
    pub user: Option<Arc<str>>,
    /// The largest frame that it takes.
    max_frame_bytes: u32,
    /// The highest channel that it takes.
    pub channel_max: u16,
    claimed: bool,
    /// Our open has gone out.
    answered: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No open yet.
    #[default]
    Silent,
    /// Its container id is being claimed.
    Claiming,
    /// Both sides have opened.
    Open,
    /// It closes: its container id is being given up.
    Closing,
}

impl Peer {
    /// Whether the core has to answer before the client may say more.
    pub fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Claiming | Stage::Closing)
    }

    /// Bytes of the largest frame that it takes: the least one, as long as it has not said so
    /// (2.4.1).
    pub fn frame_bytes_max(&self) -> usize {
        self.max_frame_bytes.max(FRAME_BYTES_MAX_MIN) as usize
    }

    /// Whether our open has gone out.
    pub fn has_opened(&self) -> bool {
        self.answered
    }
}

impl AmqpSession {
    /// Refuses frames before the open.
    pub(super) fn check_open(&self, name: &str) -> Result<(), Fault> {
        match self.peer.stage {
            Stage::Open => Ok(()),
            _ => Err(Fault::framing(format!("{name} ahead of Open"))),
        }
    }

    pub(super) fn open(&mut self, open: Open, turn: &mut Turn<'_>) -> Result<(), Fault> {
        if self.peer.stage != Stage::Silent {
            return Err(Fault::connection("amqp:not-allowed", "a second Open".to_owned()));
        }
        if open.max_frame_size < FRAME_BYTES_MAX_MIN {
            let text = format!("max-frame-size {} is below {FRAME_BYTES_MAX_MIN}", open.max_frame_size);
            return Err(Fault::connection("amqp:invalid-field", text));
        }
        if let Some(idle_ms) = open.idle_time_out.filter(|ms| (1..IDLE_MS_MIN).contains(ms)) {
            let text = format!("idle-time-out {idle_ms} is below {IDLE_MS_MIN}");
            return Err(Fault::connection("amqp:invalid-field", text));
        }
        self.liveness.agree(self.silences(open.idle_time_out));
        self.peer.container = open.container_id.as_str().into();
        self.peer.max_frame_bytes = open.max_frame_size;
        self.peer.channel_max = open.channel_max;
        if let Some(elsewhere) = self.options.elsewhere.clone() {
            let mut properties = ValueMap::default();
            properties.push(ESTABLISHMENT_FAILED, true);
            self.send_open(properties, turn);
            return Err(redirect(elsewhere.served_at.as_ref(), &elsewhere.reason));
        }
        if open.desired_capabilities.iter().any(|desired| *desired == SOLE_CONNECTION) {
            self.peer.stage = Stage::Claiming;
            let ticket = self.replies.wait(1, Then::Opened);
            let holder = format!("AMQP connection {}:{}", self.id.core(), self.id.number()).into();
            let name = self.peer.container.clone();
            let user = self.owner().into();
            turn.events.push(Event::Claim { name, user, holder, connection: self.id, ticket });
            return Ok(());
        }
        self.opened(turn);
        Ok(())
    }

    /// The user who has logged in, who owns the client's destinations; empty for the anonymous
    /// user.
    pub(super) fn owner(&self) -> &str {
        self.peer.user.as_deref().filter(|_| self.options.has_users).unwrap_or_default()
    }

    /// The name of the connection in notices.
    pub(super) fn notice_connection(&self) -> String {
        format!("AMQP:{}:{:x}:{:x}", self.peer.container, self.id.core(), self.id.number())
    }

    fn opened(&mut self, turn: &mut Turn<'_>) {
        self.peer.stage = Stage::Open;
        self.send_open(ValueMap::default(), turn);
        let client = ClientNotice {
            name: self.notice_connection().into(),
            client_id: self.peer.container.clone(),
            user: self.peer.user.clone(),
        };
        turn.events.push(Event::Introduce { connection: self.id, client: Arc::new(client) });
    }

    /// We accept the inactivity of the options, and write at least twice within that of the peer
    /// (2.4.5).
    fn silences(&self, idle_time_out_ms: Option<u32>) -> Silences {
        Silences {
            peer_ms_max: Some(self.options.max_inactivity_ms).filter(|max| *max > 0),
            peer_from_ms: 0,
            write_every_ms: idle_time_out_ms.filter(|ms| *ms > 0).map(|ms| u64::from(ms / 2)),
        }
    }

    /// The idle timeout that we announce: half of our own, as the standard advises.
    fn announced_idle_ms(&self) -> Option<u32> {
        let half = u32::try_from(self.options.max_inactivity_ms / 2).unwrap_or(u32::MAX);
        (half > 0).then_some(half)
    }

    /// The core has answered the claim of the container id.
    pub(super) fn claimed(&mut self, result: Result<(), String>, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let Err(text) = result else {
            self.peer.claimed = true;
            self.opened(turn);
            return Ok(());
        };
        let mut properties = ValueMap::default();
        properties.push(ESTABLISHMENT_FAILED, true);
        self.send_open(properties, turn);
        let mut info = ValueMap::default();
        info.push("invalid-field", Symbol::from_static("container-id"));
        let refused = crate::codec::Error { info: Some(info), ..error("amqp:invalid-field", text.as_str()) };
        self.send(0, Close { error: Some(refused) }, turn);
        Err(Parting::Fault(text))
    }

    /// Sends our open, with further properties.
    pub(super) fn send_open(&mut self, mut properties: ValueMap, turn: &mut Turn<'_>) {
        properties.push("product", "Postroad");
        properties.push("version", env!("CARGO_PKG_VERSION"));
        // JMS clients remove it from names they show, and put it before names they write: a client
        // without JMS can reply to a topic as it stands in a message, and to a queue, which needs
        // nothing ahead.
        properties.push("topic-prefix", "topic://");
        self.peer.answered = true;
        let open = Open {
            container_id: self.options.broker_name.as_str().into(),
            max_frame_size: self.options.max_frame_bytes,
            channel_max: channel::CHANNEL_MAX,
            idle_time_out: self.announced_idle_ms(),
            offered_capabilities: CAPABILITIES.map(Symbol::from_static).to_vec(),
            properties: Some(properties),
            ..Open::default()
        };
        self.send(0, open, turn);
    }

    /// The client says goodbye: its container id is free before it reads the answer.
    pub(super) fn close_connection(&mut self, close: Close, turn: &mut Turn<'_>) -> Result<(), Refused> {
        if self.peer.stage == Stage::Silent {
            self.send_open(ValueMap::default(), turn);
        }
        if let Some(error) = close.error {
            self.send(0, Close::default(), turn);
            let text = error.description.map_or_else(String::new, |text| format!(": {text}"));
            let text = format!("the client closed the connection for {}{text}", error.condition);
            return Err(Refused::Parting(Parting::Fault(text)));
        }
        self.dismantle_all(turn);
        if !std::mem::take(&mut self.peer.claimed) {
            self.send(0, Close::default(), turn);
            return Err(Refused::Parting(Parting::Farewell));
        }
        self.peer.stage = Stage::Closing;
        let ticket = self.replies.wait(1, Then::Closed);
        let name = self.peer.container.clone();
        turn.events.push(Event::Disclaim { name, connection: self.id, ticket });
        Ok(())
    }

    /// The container id is free.
    pub(super) fn closed(&mut self, turn: &mut Turn<'_>) -> Parting {
        self.send(0, Close::default(), turn);
        Parting::Farewell
    }

    /// Properties of a link or connection that are numbers.
    pub(super) fn number_in(properties: Option<&ValueMap>, name: &str) -> Option<i64> {
        match properties?.get(name)? {
            Value::Byte(number) => Some((*number).into()),
            Value::Short(number) => Some((*number).into()),
            Value::Int(number) => Some((*number).into()),
            Value::Long(number) => Some(*number),
            Value::Ubyte(number) => Some((*number).into()),
            Value::Ushort(number) => Some((*number).into()),
            Value::Uint(number) => Some((*number).into()),
            Value::Ulong(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }
}

/// Sends the client to the broker that serves it (2.8.16); if none is known, it may try again.
pub fn redirect(served_at: Option<&Endpoint>, reason: &str) -> Fault {
    let Some(Endpoint { host, port, .. }) = served_at else {
        return Fault::connection("amqp:connection:forced", reason.to_owned());
    };
    let mut info = ValueMap::default();
    info.push("hostname", host.as_str());
    info.push("network-host", host.as_str());
    info.push("port", Value::Uint(u32::from(*port)));
    let mut fault = Fault::connection("amqp:connection:redirect", reason.to_owned());
    fault.error.info = Some(info);
    fault
}

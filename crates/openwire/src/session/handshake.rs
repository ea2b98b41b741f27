//! The handshake: which protocol, which version of it, and who the client is.

use std::sync::Arc;

use postroad_model::{
    ClientNotice, Event, Login, LoginAnswer, Parting, RareHeaders, Silences, Ticket, UserKey, protocol_of,
};

use super::exception::{Exception, JAKARTA, JAVAX};
use super::moving;
use super::replies::Then;
use super::spreading::Spreading;
use super::{Done, OpenWireSession, Turn};
use crate::codec::{
    BrokerId, BrokerInfo, Command, ConnectionInfo, Magic, WireFormat, WireFormatInfo, WireFormatOptions,
    WireString,
};
use crate::network::MakeForwarder;

/// Where the magic bytes stand in the first frame: behind its size and type.
const MAGIC_AT: usize = 5;

/// Before it is known who the client is no frame is larger: a `WireFormatInfo` has a few hundred
/// bytes, and a `ConnectionInfo` little more than names and a password. A larger frame would take
/// memory, or room in the log, for a client without login.
pub const FIRST_FRAME_BYTES_MAX: u64 = 64 << 10;

/// Who is at the other end.
pub struct Client {
    /// The client's own name for its connection.
    pub connection_id: WireString,
    /// The exclusive name that it claimed.
    pub client_id: Arc<str>,
    /// Who it says that it is.
    pub user: Option<Arc<str>>,
    /// The user who has logged in, who owns its destinations; empty for the anonymous user.
    pub owner: Arc<str>,
}

impl Client {
    /// Whose durable subscriptions and temporary destinations it may take if it has lost its last
    /// connection: the claim of its id has ended that, but another core may not know yet that it is
    /// gone.
    pub(super) fn heir(&self) -> Arc<str> {
        let (user, connection) = (&self.owner, self.connection_id.to_str());
        format!("OpenWire connection {}@{user}:{connection}", user.len()).into()
    }
}

/// How far a client has introduced itself.
///
/// ```text
///   Unknown ──ConnectionInfo──▶ Claiming ──the core says yes──▶ Known
///      ▲                           │                              │
///      └────the core says no───────┴──────────RemoveInfo──────────┘
/// ```
#[derive(Default)]
pub enum Introduction {
    /// It has not, or was refused.
    #[default]
    Unknown,
    /// Its client id is being claimed. Its further input waits, in order.
    Claiming(Client),
    /// It has.
    Known(Client),
}

impl Introduction {
    /// The client, from its `ConnectionInfo` on.
    pub fn client(&self) -> Option<&Client> {
        match self {
            Introduction::Unknown => None,
            Introduction::Claiming(client) | Introduction::Known(client) => Some(client),
        }
    }
}

/// A client whose credentials are being checked: they, and the continuation after its login.
#[derive(Default)]
pub struct LoginState {
    login: Option<Login>,
    /// Who waits for the claim of its client id, and the command that waits for an answer.
    claim: Option<(Ticket, Option<i32>)>,
}

impl LoginState {
    /// The credentials, once.
    pub fn fetch(&mut self) -> Option<Login> {
        self.login.take()
    }
}

/// The commands that a client may send before its introduction: those without an effect. A client
/// whose introduction was refused still removes its connection.
fn needs_no_introduction(command: &Command) -> bool {
    matches!(
        command,
        Command::WireFormatInfo(_)
            | Command::ConnectionInfo(_)
            | Command::BrokerInfo(_)
            | Command::KeepAliveInfo(_)
            | Command::ShutdownInfo(_)
            | Command::ControlCommand(_)
            | Command::ConnectionControl(_)
            | Command::RemoveInfo(_)
    )
}

/// Ends a conversation that is not OpenWire, as soon as its first bytes show it.
pub fn check_protocol(input: &[u8]) -> Result<(), Parting> {
    if let Some(name) = protocol_of(input).filter(|name| *name != "OpenWire") {
        return Err(Parting::Fault(format!("the peer speaks {name}; this port speaks OpenWire")));
    }
    let Some(magic) = input.get(MAGIC_AT..) else { return Ok(()) };
    let there = magic.len().min(Magic::BYTES.len());
    if magic[..there] == Magic::BYTES[..there] {
        return Ok(());
    }
    Err(Parting::Fault(
        "the peer does not speak OpenWire: its first frame is not a WireFormatInfo".to_owned(),
    ))
}

/// The name of this broker's implementation (`WireFormatInfo`, `ProviderName`).
const PROVIDER: &str = "Postroad";

impl OpenWireSession {
    pub(super) fn negotiate(&mut self, info: &WireFormatInfo, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let fault = |error: crate::codec::WireError| Parting::Fault(format!("WireFormatInfo: {error}"));
        let ours = self.wire_format_options();
        let theirs = WireFormatOptions::from_info(info).map_err(fault)?;
        let agreed = WireFormat::negotiate(&ours, &theirs).map_err(fault)?;
        // Ours goes out in the format that every conversation begins with.
        if !self.network.dials() {
            self.send(Command::WireFormatInfo(ours.to_info().map_err(fault)?), turn);
        }
        self.format = agreed;
        self.negotiated = true;
        self.jms_package = jms_package(theirs.provider_version.as_deref());
        self.network.peer_is_postroad = theirs.provider_name.as_deref() == Some(PROVIDER);
        let initial_delay_ms =
            ours.max_inactivity_initial_delay_ms.min(theirs.max_inactivity_initial_delay_ms);
        let peer_from_ms =
            turn.now.ticks_ms.saturating_add(u64::try_from(initial_delay_ms).unwrap_or_default());
        self.liveness.agree(Silences { peer_from_ms, ..ours.silences(&theirs) });
        if self.network.dials() {
            return Ok(());
        }
        let own = self.options.forwarder.as_ref().map(MakeForwarder::properties).unwrap_or_default();
        let broker = BrokerInfo {
            broker_id: Some(BrokerId { value: Some(self.options.broker_id.as_str().into()) }),
            broker_name: Some(self.options.broker_name.as_str().into()),
            broker_url: Some(self.options.broker_url.as_str().into()),
            network_properties: (!own.is_empty()).then(|| own.as_str().into()),
            ..BrokerInfo::default()
        };
        self.send(broker.into(), turn);
        Ok(())
    }

    /// The first frame of a connection that this broker has opened.
    pub(super) fn greet(&mut self, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let info = self.wire_format_options().to_info();
        let info = info.map_err(|error| Parting::Fault(format!("WireFormatInfo: {error}")))?;
        self.send(info.into(), turn);
        Ok(())
    }

    fn wire_format_options(&self) -> WireFormatOptions {
        WireFormatOptions {
            tight_encoding: self.options.tight_encoding,
            cache: self.options.cache,
            cache_size: 1024,
            max_inactivity_ms: self.network.max_inactivity_ms().unwrap_or(self.options.max_inactivity_ms),
            provider_name: Some(PROVIDER.to_owned()),
            provider_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..WireFormatOptions::pass_through(self.options.max_frame_bytes as i64)
        }
    }

    pub(super) fn connect(&mut self, info: &ConnectionInfo, turn: &mut Turn<'_>) -> Result<Done, Exception> {
        let connection_id = info.connection_id.as_ref().and_then(|id| id.value.as_ref());
        let connection_id = super::own(
            connection_id.ok_or_else(|| Exception::jms("ConnectionInfo without a connection id"))?,
        );
        let Some(client_id) = info.client_id.as_ref().filter(|client_id| !client_id.is_empty()) else {
            return Err(Exception::of("InvalidClientIDException", "ConnectionInfo without a client id"));
        };
        let name: Arc<str> = client_id.to_str().into();
        if let Some(client) = self.introduction.client() {
            // Clients that were interrupted may introduce themselves again; another identity needs
            // another connection.
            return match client.connection_id == connection_id && client.client_id == name {
                true => Ok(Done::Now),
                false => Err(Exception::jms("a second ConnectionInfo that differs from the first")),
            };
        }
        self.reconnected = info.failover_reconnect;
        let spread = self.options.spread.clone();
        self.spreading = spread.map(|spread| Box::new(Spreading::new(spread, info.fault_tolerant)));
        let user = info.user_name.as_ref().map(|user| user.to_str().into());
        let ticket = self.wait(1, None, Then::Claimed);
        let owner = "".into();
        self.introduction = Introduction::Claiming(Client { connection_id, client_id: name, user, owner });
        if self.options.asks_login {
            let text = |text: &Option<WireString>| text.as_ref().map(|text| text.to_str().into());
            let (user, password) = (text(&info.user_name), text(&info.password));
            self.login.login = Some(Login::Password { user, password });
            self.login.claim = Some((ticket, info.response_required.then_some(info.command_id)));
        } else {
            self.claim_client_id(ticket, turn);
        }
        Ok(Done::Later(ticket))
    }

    fn claim_client_id(&self, ticket: Ticket, turn: &mut Turn<'_>) {
        let Some(client) = self.introduction.client() else { return };
        let (name, user) = (client.client_id.clone(), client.owner.clone());
        let holder = client.connection_id.to_str().into();
        turn.events.push(Event::Claim { name, user, holder, connection: self.id, ticket });
    }

    /// The user who has logged in, who owns the client's destinations; empty for the anonymous
    /// user.
    pub(super) fn owner(&self) -> &str {
        self.introduction.client().map_or("", |client| &client.owner)
    }

    /// The client's credentials have been checked.
    pub(super) fn admitted(&mut self, answer: LoginAnswer, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let Some((ticket, respond)) = self.login.claim.take() else { return Ok(()) };
        let reason = match answer {
            LoginAnswer::Welcome { .. } if moving::sends_on(self) => {
                return Err(moving::send_on(self, respond, turn));
            }
            LoginAnswer::Welcome { principal, .. } => {
                self.log_in(principal.user().cloned());
                self.claim_client_id(ticket, turn);
                return Ok(());
            }
            LoginAnswer::Refused { reason } => reason,
            LoginAnswer::Elsewhere { reason, .. } => {
                self.refuse(respond, &Exception::jms(&reason), turn);
                return Err(Parting::Fault(reason));
            }
            LoginAnswer::Full { reason } => {
                self.refuse(respond, &Exception::of("ResourceAllocationException", &reason), turn);
                return Err(Parting::Fault(reason));
            }
            LoginAnswer::Challenge(_) => "this mechanism needs a challenge and response".to_owned(),
        };
        self.refuse(respond, &Exception::of("JMSSecurityException", "user name or password are wrong"), turn);
        Err(Parting::Fault(format!("login failed: {reason}")))
    }

    fn log_in(&mut self, user: Option<Arc<str>>) {
        let Introduction::Claiming(client) = &mut self.introduction else { return };
        client.owner = user.clone().unwrap_or_default();
        client.user = user;
        let key = UserKey::of(&client.owner);
        self.user_headers = key.map(|_| Arc::new(RareHeaders { user: key, ..RareHeaders::default() }));
    }

    /// Whether it is known who the client is.
    pub(super) fn is_introduced(&self) -> bool {
        matches!(self.introduction, Introduction::Known(_))
    }

    /// Refuses a command before the introduction.
    pub(super) fn check_introduced(&self, command: &Command) -> Result<(), Exception> {
        if self.is_introduced() || needs_no_introduction(command) {
            return Ok(());
        }
        Err(Exception::jms(&format!("{} ahead of ConnectionInfo", command.name())))
    }

    /// The core has answered the claim of the client id.
    pub(super) fn claimed(&mut self, accepted: bool, turn: &mut Turn<'_>) {
        self.introduction = match std::mem::take(&mut self.introduction) {
            Introduction::Claiming(client) if accepted => Introduction::Known(client),
            Introduction::Claiming(_) => Introduction::Unknown,
            other => other,
        };
        if let Introduction::Known(client) = &self.introduction {
            let client = ClientNotice {
                name: client.connection_id.to_str().into(),
                client_id: client.client_id.clone(),
                user: client.user.clone(),
            };
            turn.events.push(Event::Introduce { connection: self.id, client: Arc::new(client) });
            self.begin_link(turn);
            if let Some(spreading) = self.spreading.as_mut().filter(|_| !self.network.is_link()) {
                spreading.begin();
            }
            moving::let_in(self, turn);
            super::spreading::say_due(self, turn);
        }
    }

    /// The client takes its leave: the name that it gives up.
    pub(super) fn forget_client(&mut self) -> Option<Arc<str>> {
        match std::mem::take(&mut self.introduction) {
            Introduction::Known(client) => Some(client.client_id),
            other => {
                self.introduction = other;
                None
            }
        }
    }
}

/// The package of the client's JMS interfaces: Jakarta since provider version 6.
fn jms_package(provider_version: Option<&str>) -> &'static str {
    let major = provider_version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    if major.is_some_and(|major| major >= 6) { JAKARTA } else { JAVAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_are_named() {
        for (case, input, want) in [
            ("nothing yet", &b""[..], Ok(())),
            ("OpenWire", b"\0\0\x01\x02\x01ActiveMQ\0\0", Ok(())),
            ("OpenWire so far", b"\0\0\x01\x02\x01Act", Ok(())),
            ("AMQP", b"AMQP\0\x01\0\0", Err("the peer speaks AMQP; this port speaks OpenWire")),
            ("HTTP", b"GET / HTTP/1.1", Err("the peer speaks HTTP; this port speaks OpenWire")),
            (
                "noise",
                b"\0\0\0\x05\x01noise",
                Err("the peer does not speak OpenWire: its first frame is not a WireFormatInfo"),
            ),
        ] {
            let want = want.map_err(|reason| Parting::Fault(reason.to_owned()));
            assert_eq!(check_protocol(input), want, "case: {case}");
        }
    }

    #[test]
    fn exceptions_come_from_the_package_that_the_client_has() {
        for (version, want) in
            [(Some("6.1.0"), JAKARTA), (Some("5.19.1"), JAVAX), (None, JAVAX), (Some("x"), JAVAX)]
        {
            assert_eq!(jms_package(version), want, "{version:?}");
        }
    }
}

//! Layers: protocol headers (2.2), and SASL before AMQP (5.3).

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use postroad_model::{Elsewhere, Login, LoginAnswer, Parting, protocol_of};

use super::{AmqpSession, Turn};
use crate::codec::{
    Field, FrameKind, PROTOCOL_HEADER_BYTES, ProtocolHeader, ProtocolId, Reader, SaslChallenge, SaslCode,
    SaslFrame, SaslMechanisms, SaslOutcome, Symbol, begin_frame, end_frame,
};

/// Before AMQP itself begins no frame is larger: the standard has 512 bytes, but tokens and names
/// may be long.
pub const FIRST_FRAME_BYTES_MAX: u32 = 64 << 10;

/// The layer of the next bytes.
///
/// ```text
///   Header ──SASL header──▶ Sasl ⇄ challenges ──outcome: ok──▶ AuthenticatedHeader
///      └───────────────AMQP header───────────────────────┴─────────▶ Frames
/// ```
#[derive(Debug, Default)]
pub enum Layer {
    /// The first header.
    #[default]
    Header,
    /// Frames of the SASL layer.
    Sasl(Exchange),
    /// The header after the SASL layer.
    AuthenticatedHeader,
    /// Frames of AMQP.
    Frames,
}

/// Whose turn it is in the SASL layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The client's, to choose a mechanism.
    Offered,
    /// The broker's turn, to check the client's message.
    Checking,
    /// The client's, to answer a challenge.
    Challenged,
}

impl Layer {
    /// Whether the client's message is being checked, and it has to wait.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Layer::Sasl(Exchange::Checking))
    }

    /// Whether a header comes next.
    pub fn awaits_header(&self) -> bool {
        matches!(self, Layer::Header | Layer::AuthenticatedHeader)
    }
}

impl AmqpSession {
    /// Takes a protocol header; `false` if it is not there whole.
    pub(super) fn take_header(&mut self, input: &mut BytesMut, turn: &mut Turn<'_>) -> Result<bool, Parting> {
        let Some(bytes) = input.first_chunk::<PROTOCOL_HEADER_BYTES>().copied() else {
            let there = input.len().min(4);
            let is_header = input[..there] == b"AMQP"[..there];
            return if is_header { Ok(false) } else { Err(self.refuse_header(no_header(input), turn)) };
        };
        let Some(header) = ProtocolHeader::from_bytes(bytes) else {
            return Err(self.refuse_header(no_header(input), turn));
        };
        let _ = input.split_to(PROTOCOL_HEADER_BYTES);
        match (&self.layer, header) {
            (Layer::Header, ProtocolHeader::AMQP) if self.options.must_login => {
                let reason = "the peer does not authenticate: no SASL layer".to_owned();
                return Err(self.refuse_header(reason, turn));
            }
            (_, ProtocolHeader::AMQP) => {
                turn.output.put_slice(&header.to_bytes());
                self.layer = Layer::Frames;
            }
            (Layer::Header, ProtocolHeader::SASL) => {
                turn.output.put_slice(&header.to_bytes());
                let offered = self.options.mechanisms.iter().copied();
                let sasl_server_mechanisms = offered.map(Symbol::from_static).collect();
                send_sasl(SaslMechanisms { sasl_server_mechanisms }, turn);
                self.layer = Layer::Sasl(Exchange::Offered);
            }
            _ => {
                return Err(self.refuse_header(unsupported(header), turn));
            }
        }
        Ok(true)
    }

    /// Closes a connection with a wrong first header: the reply is the header of the expected
    /// protocol (2.2, 5.2, 5.3).
    fn refuse_header(&self, reason: String, turn: &mut Turn<'_>) -> Parting {
        let wants_sasl = self.options.must_login && matches!(self.layer, Layer::Header);
        let right = if wants_sasl { ProtocolHeader::SASL } else { ProtocolHeader::AMQP };
        turn.output.put_slice(&right.to_bytes());
        Parting::Fault(reason)
    }

    /// Takes a frame of the SASL layer: the client's message is checked elsewhere.
    pub(super) fn take_sasl(&mut self, body: &Bytes) -> Result<(), Parting> {
        let mut reader = Reader::new(body);
        let frame = SaslFrame::read(&mut reader);
        let frame = frame.map_err(|error| Parting::Fault(format!("SASL: {error}")))?;
        let behind = body.len() - reader.offset();
        if behind > 0 {
            return Err(Parting::Fault(format!("SASL: {behind} bytes follow a {} frame", frame.name())));
        }
        self.login = Some(match (frame, &self.layer) {
            (SaslFrame::SaslInit(init), Layer::Sasl(Exchange::Offered)) => {
                Login::Begin { mechanism: init.mechanism.as_str().into(), response: init.initial_response }
            }
            (SaslFrame::SaslResponse(response), Layer::Sasl(Exchange::Challenged)) => {
                Login::Continue { response: response.response }
            }
            (frame, _) => return Err(Parting::Fault(format!("SASL: {} was not expected", frame.name()))),
        });
        self.layer = Layer::Sasl(Exchange::Checking);
        Ok(())
    }

    /// The result of the check.
    pub(super) fn answer_sasl(&mut self, answer: LoginAnswer, turn: &mut Turn<'_>) -> Result<(), Parting> {
        match answer {
            LoginAnswer::Challenge(challenge) => {
                send_sasl(SaslChallenge { challenge }, turn);
                self.layer = Layer::Sasl(Exchange::Challenged);
                Ok(())
            }
            LoginAnswer::Welcome { principal, last } => {
                self.peer.user = principal.user().cloned();
                send_sasl(SaslOutcome { code: SaslCode::Ok, additional_data: last }, turn);
                self.layer = Layer::AuthenticatedHeader;
                Ok(())
            }
            LoginAnswer::Elsewhere { reason, last } => {
                // SASL has no room for a reason: the answer to the open has it.
                self.options.elsewhere =
                    Some(Arc::new(Elsewhere { reason, served_at: None, serves_others: false }));
                send_sasl(SaslOutcome { code: SaslCode::Ok, additional_data: last }, turn);
                self.layer = Layer::AuthenticatedHeader;
                Ok(())
            }
            LoginAnswer::Full { reason } => {
                send_sasl(SaslOutcome { code: SaslCode::SystemTemporary, additional_data: None }, turn);
                Err(Parting::Fault(reason))
            }
            LoginAnswer::Refused { reason } => {
                send_sasl(SaslOutcome { code: SaslCode::Auth, additional_data: None }, turn);
                Err(Parting::Fault(format!("SASL failed: {reason}")))
            }
        }
    }
}

fn send_sasl(frame: impl Into<SaslFrame>, turn: &mut Turn<'_>) {
    let start = begin_frame(FrameKind::Sasl, turn.output);
    frame.into().write(turn.output);
    end_frame(start, turn.output);
}

fn unsupported(header: ProtocolHeader) -> String {
    let [major, minor, revision] = header.version;
    let version = format!("{major}.{minor}.{revision}");
    match header.id {
        ProtocolId::Tls => "the peer requests TLS, which is not configured on this port".to_owned(),
        ProtocolId::Amqp => format!("the peer speaks AMQP {version}; this port speaks 1.0.0"),
        ProtocolId::Sasl => format!("a SASL {version} layer where AMQP 1.0.0 belongs"),
        ProtocolId::Other(id) => format!("the peer wants layer {id} of AMQP {version}, which does not exist"),
    }
}

/// The peer's protocol, if it is not AMQP.
fn no_header(input: &[u8]) -> String {
    match protocol_of(input) {
        Some(name) => format!("the peer speaks {name}; this port speaks AMQP"),
        None => "the peer does not speak AMQP: its first bytes are not a protocol header".to_owned(),
    }
}

//! Layers: protocol headers (2.2), and SASL ahead of AMQP (5.3).

use bytes::{BufMut, Bytes, BytesMut};
use postroad_model::{Parting, protocol_of};

use super::{AmqpSession, Turn};
use crate::codec::{
    Field, FrameKind, PROTOCOL_HEADER_BYTES, ProtocolHeader, ProtocolId, Reader, SaslChallenge, SaslCode,
    SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, Symbol, begin_frame, end_frame,
};

/// Before AMQP itself begins no frame is larger: the standard has 512 bytes, but tokens and names may be long.
pub const FIRST_FRAME_BYTES_MAX: u32 = 64 << 10;

/// What the next bytes belong to.
///
/// ```text
///   Header ──SASL header──▶ Sasl ──outcome: ok──▶ AuthenticatedHeader
///      └───────────────AMQP header───────────────────────┴─────────▶ Frames
/// ```
#[derive(Debug, Default)]
pub enum Layer {
    /// The first header.
    #[default]
    Header,
    /// Frames of the SASL layer.
    Sasl {
        /// The client has chosen PLAIN without saying who it is, and was asked.
        asked: bool,
    },
    /// The header behind the SASL layer.
    AuthenticatedHeader,
    /// Frames of AMQP.
    Frames,
}

impl Layer {
    /// Whether a header comes next.
    pub fn awaits_header(&self) -> bool {
        matches!(self, Layer::Header | Layer::AuthenticatedHeader)
    }
}

/// What a client may authenticate by. EXTERNAL needs a TLS layer, which knows the client's certificate.
const MECHANISMS: [&str; 2] = ["PLAIN", "ANONYMOUS"];

impl AmqpSession {
    /// Takes a protocol header; `false` if it is not there whole.
    pub(super) fn take_header(&mut self, input: &mut BytesMut, turn: &mut Turn<'_>) -> Result<bool, Parting> {
        let Some(bytes) = input.first_chunk::<PROTOCOL_HEADER_BYTES>().copied() else {
            let there = input.len().min(4);
            return if input[..there] == b"AMQP"[..there] { Ok(false) } else { Err(refuse(input, turn)) };
        };
        let Some(header) = ProtocolHeader::from_bytes(bytes) else { return Err(refuse(input, turn)) };
        let _ = input.split_to(PROTOCOL_HEADER_BYTES);
        match (&self.layer, header) {
            (_, ProtocolHeader::AMQP) => {
                turn.output.put_slice(&header.to_bytes());
                self.layer = Layer::Frames;
            }
            (Layer::Header, ProtocolHeader::SASL) => {
                turn.output.put_slice(&header.to_bytes());
                let sasl_server_mechanisms = MECHANISMS.map(Symbol::from_static).to_vec();
                send_sasl(SaslMechanisms { sasl_server_mechanisms }, turn);
                self.layer = Layer::Sasl { asked: false };
            }
            _ => {
                // The header of what would be right tells the peer (2.2).
                turn.output.put_slice(&ProtocolHeader::AMQP.to_bytes());
                return Err(Parting::Fault(unsupported(header)));
            }
        }
        Ok(true)
    }

    /// Takes a frame of the SASL layer.
    pub(super) fn take_sasl(&mut self, body: &Bytes, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let frame = SaslFrame::read(&mut Reader::new(body));
        let frame = frame.map_err(|error| Parting::Fault(format!("SASL: {error}")))?;
        match (frame, &self.layer) {
            (SaslFrame::SaslInit(init), Layer::Sasl { asked: false }) => self.begin_sasl(&init, turn),
            (SaslFrame::SaslResponse(response), Layer::Sasl { asked: true }) => {
                self.authenticate(is_plain(&response.response), "PLAIN", turn)
            }
            (frame, _) => Err(Parting::Fault(format!("SASL: {} was not expected", frame.name()))),
        }
    }

    fn begin_sasl(&mut self, init: &SaslInit, turn: &mut Turn<'_>) -> Result<(), Parting> {
        match (init.mechanism.as_str(), &init.initial_response) {
            ("ANONYMOUS", _) => self.authenticate(true, "ANONYMOUS", turn),
            ("PLAIN", Some(response)) => self.authenticate(is_plain(response), "PLAIN", turn),
            ("PLAIN", None) => {
                self.layer = Layer::Sasl { asked: true };
                send_sasl(SaslChallenge { challenge: Bytes::new() }, turn);
                Ok(())
            }
            (other, _) => self.authenticate(false, other, turn),
        }
    }

    fn authenticate(&mut self, good: bool, mechanism: &str, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let code = if good { SaslCode::Ok } else { SaslCode::Auth };
        send_sasl(SaslOutcome { code, additional_data: None }, turn);
        if good {
            self.layer = Layer::AuthenticatedHeader;
            return Ok(());
        }
        let offered = MECHANISMS.join(" and ");
        let reason = match MECHANISMS.contains(&mechanism) {
            true => "its response is malformed".to_owned(),
            false => format!("{offered} are offered"),
        };
        Err(Parting::Fault(format!("SASL {mechanism} failed: {reason}")))
    }
}

fn send_sasl(frame: impl Into<SaslFrame>, turn: &mut Turn<'_>) {
    let start = begin_frame(FrameKind::Sasl, turn.output);
    frame.into().write(turn.output);
    end_frame(start, turn.output);
}

/// Whether this is a response of the mechanism PLAIN (RFC 4616): whom to act as, who, and the password. Any credentials
/// are good as long as there is nobody to check them.
fn is_plain(response: &[u8]) -> bool {
    let mut parts = response.split(|byte| *byte == 0);
    let (_, user, password) = (parts.next(), parts.next(), parts.next());
    user.is_some_and(|user| !user.is_empty()) && password.is_some() && parts.next().is_none()
}

fn unsupported(header: ProtocolHeader) -> String {
    let [major, minor, revision] = header.version;
    let version = format!("{major}.{minor}.{revision}");
    match header.id {
        ProtocolId::Tls => "the peer wants a TLS layer, which this port has not".to_owned(),
        ProtocolId::Amqp => format!("the peer speaks AMQP {version}; this port speaks 1.0.0"),
        ProtocolId::Sasl => format!("a SASL {version} layer where AMQP 1.0.0 belongs"),
        ProtocolId::Other(id) => format!("the peer wants layer {id} of AMQP {version}, which does not exist"),
    }
}

/// Ends a conversation that is not AMQP.
fn refuse(input: &[u8], turn: &mut Turn<'_>) -> Parting {
    turn.output.put_slice(&ProtocolHeader::AMQP.to_bytes());
    Parting::Fault(match protocol_of(input) {
        Some(name) => format!("the peer speaks {name}; this port speaks AMQP"),
        None => "the peer does not speak AMQP: its first bytes are no protocol header".to_owned(),
    })
}

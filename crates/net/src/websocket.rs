//! The WebSocket layer (RFC 6455), by tungstenite: the bytes of a TCP protocol in binary messages.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read, Write};
use std::rc::Rc;

use bytes::{Buf, BytesMut};
use tungstenite::handshake::MidHandshake;
use tungstenite::handshake::server::{ErrorResponse, Request, Response, ServerHandshake};
use tungstenite::http::{HeaderValue, StatusCode};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, HandshakeError, Message};

use crate::layer::Layer;

/// The header by which both sides name the inner protocol (RFC 6455, section 11.3.4).
const PROTOCOL_HEADER: &str = "Sec-WebSocket-Protocol";

/// Output is cut into messages of this size: readers take a message whole.
const MESSAGE_BYTES: usize = 32 << 10;

/// The maximum of a message from a peer without login: twice the largest frame that a login needs,
/// as some gather frames in a message.
const FIRST_MESSAGE_BYTES_MAX: usize = 128 << 10;

/// The size of tungstenite's reads; each connection has a buffer of it.
const READ_BYTES: usize = 8 << 10;

type Choose = Box<dyn FnOnce(&Request, Response) -> Result<Response, ErrorResponse>>;
type Upgrading = MidHandshake<ServerHandshake<Pipe, Choose>>;

/// The broker's side of a WebSocket on one connection.
pub struct WebSocket {
    state: State,
    /// Shared with `state`, which keeps it to itself where it fails.
    pipe: Pipe,
    ended: bool,
    /// Once it is known who the peer is.
    max_message_bytes: usize,
}

enum State {
    /// The peer asks by HTTP.
    Upgrading(Box<Upgrading>),
    /// Messages go both ways.
    Open(Box<tungstenite::WebSocket<Pipe>>),
    /// It was refused; the error response is still to be sent.
    Refused,
}

/// The socket, as tungstenite sees it.
#[derive(Clone, Debug, Default)]
struct Pipe(Rc<RefCell<Buffers>>);

#[derive(Debug, Default)]
struct Buffers {
    arrived: BytesMut,
    leaving: BytesMut,
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Buffers { arrived, .. } = &mut *self.0.borrow_mut();
        if arrived.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { arrived.reader().read(into) }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().leaving.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WebSocket {
    /// Before its handshake. The peer must ask for the subprotocol `speaks`; no message of it may
    /// be larger than `max_message_bytes`, nor than 128 KiB before it is let in.
    #[expect(clippy::result_large_err, reason = "the signature is tungstenite's")]
    pub fn new(speaks: &'static str, max_message_bytes: usize) -> WebSocket {
        let first_bytes_max = max_message_bytes.min(FIRST_MESSAGE_BYTES_MAX);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(first_bytes_max))
            .max_frame_size(Some(first_bytes_max));
        let choose: Choose = Box::new(move |request, response| choose(speaks, request, response));
        let pipe = Pipe::default();
        let upgrading = ServerHandshake::start(pipe.clone(), choose, Some(config));
        WebSocket { state: State::Upgrading(Box::new(upgrading)), pipe, ended: false, max_message_bytes }
    }

    /// Goes on with the handshake, as far as the peer has.
    fn upgrade(&mut self) -> io::Result<()> {
        let State::Upgrading(upgrading) = std::mem::replace(&mut self.state, State::Refused) else {
            return Ok(());
        };
        self.state = match upgrading.handshake() {
            Ok(open) => State::Open(Box::new(open)),
            Err(HandshakeError::Interrupted(upgrading)) => State::Upgrading(Box::new(upgrading)),
            Err(HandshakeError::Failure(Error::Http(_))) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "WebSocket: the peer asks for another subprotocol",
                ));
            }
            Err(HandshakeError::Failure(error)) => return Err(broken(&error)),
        };
        Ok(())
    }
}

impl Layer for WebSocket {
    fn open(&mut self, outside: &mut BytesMut, inside: &mut BytesMut) -> io::Result<()> {
        self.pipe.0.borrow_mut().arrived.unsplit(outside.split());
        if matches!(self.state, State::Upgrading(_)) {
            self.upgrade()?;
        }
        let State::Open(open) = &mut self.state else { return Ok(()) };
        while !self.ended {
            match open.read() {
                Ok(Message::Binary(bytes)) => inside.extend_from_slice(&bytes),
                Ok(Message::Text(_)) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "WebSocket: text where binary messages belong",
                    ));
                }
                Ok(Message::Close(_)) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => {
                    self.ended = true
                }
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }

    fn seal(
        &mut self,
        inside: &mut BytesMut,
        outside: &mut BytesMut,
        outside_bytes_max: usize,
    ) -> io::Result<()> {
        if let State::Open(open) = &mut self.state {
            // Answers to pings wait in there.
            or_closed(open.flush())?;
            while !inside.is_empty() && self.pipe.0.borrow().leaving.len() + outside.len() < outside_bytes_max
            {
                let part = inside.split_to(inside.len().min(MESSAGE_BYTES)).freeze();
                or_closed(open.send(Message::Binary(part)))?;
            }
        }
        outside.unsplit(self.pipe.0.borrow_mut().leaving.split());
        Ok(())
    }

    fn is_ready(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn let_in(&mut self) {
        if let State::Open(open) = &mut self.state {
            let bytes_max = Some(self.max_message_bytes);
            open.set_config(|config| {
                (config.max_message_size, config.max_frame_size) = (bytes_max, bytes_max)
            });
        }
    }

    fn finish(&mut self) {
        if let State::Open(open) = &mut self.state {
            // It is over either way.
            let _ = open.close(None);
        }
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket")
            .field("ready", &self.is_ready())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Agrees on the subprotocol, or says that there is no other.
#[expect(clippy::result_large_err, reason = "the signature is tungstenite's")]
fn choose(
    speaks: &'static str,
    request: &Request,
    mut response: Response,
) -> Result<Response, ErrorResponse> {
    let asked = request.headers().get_all(PROTOCOL_HEADER).iter().filter_map(|value| value.to_str().ok());
    if asked.flat_map(|names| names.split(',')).any(|name| name.trim() == speaks) {
        response.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(speaks));
        return Ok(response);
    }
    let mut refusal = ErrorResponse::new(Some(format!("this port supports only the subprotocol {speaks}\n")));
    *refusal.status_mut() = StatusCode::BAD_REQUEST;
    Err(refusal)
}

/// Output after the end is dropped.
fn or_closed(result: Result<(), Error>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => Ok(()),
        Err(Error::Protocol(tungstenite::error::ProtocolError::SendAfterClosing)) => Ok(()),
        Err(error) => Err(broken(&error)),
    }
}

fn broken(error: &Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("WebSocket: {error}"))
}

#[cfg(test)]
mod tests {
    use tungstenite::protocol::Role;
    use tungstenite::protocol::frame::Frame;
    use tungstenite::protocol::frame::coding::{Data, OpCode};

    use super::*;

    const MAX: usize = 1_000_000;

    fn request(subprotocol: &str) -> BytesMut {
        let text = format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
        );
        BytesMut::from(text.as_bytes())
    }

    /// Both sides, their handshake done.
    fn pair() -> (WebSocket, tungstenite::WebSocket<Pipe>, Pipe) {
        let (mut layer, mut inside, mut outside) =
            (WebSocket::new("amqp", MAX), BytesMut::new(), BytesMut::new());
        let mut request = request("mqtt, amqp");
        // In parts is as good as at once. (Byte by byte it is taken for an attack.)
        while !request.is_empty() {
            assert!(!layer.is_ready());
            layer.open(&mut request.split_to(request.len().min(50)), &mut inside).unwrap();
        }
        layer.seal(&mut inside, &mut outside, MAX).unwrap();
        let response = String::from_utf8(outside.to_vec()).unwrap().to_lowercase();
        assert!(response.starts_with("http/1.1 101 "), "{response}");
        // The key of the example in RFC 6455, section 1.3.
        assert!(response.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{response}");
        assert!(response.contains("sec-websocket-protocol: amqp\r\n") && layer.is_ready(), "{response}");
        let pipe = Pipe::default();
        let client = tungstenite::WebSocket::from_raw_socket(pipe.clone(), Role::Client, None);
        (layer, client, pipe)
    }

    fn said(pipe: &Pipe) -> BytesMut {
        pipe.0.borrow_mut().leaving.split()
    }

    #[test]
    fn messages_of_any_cut_are_one_stream() {
        let (mut layer, mut client, pipe) = pair();
        for part in ["AM", "", "QP"] {
            client.send(Message::Binary(part.as_bytes().to_vec().into())).unwrap();
        }
        client.send(Message::Ping(Default::default())).unwrap();
        let (mut input, mut sealed) = (BytesMut::new(), BytesMut::new());
        layer.open(&mut said(&pipe), &mut input).unwrap();
        assert_eq!(&input[..], b"AMQP");
        let sent: Vec<u8> = (0..MESSAGE_BYTES as u32 * 2 + 5).map(|number| number as u8).collect();
        let mut output = BytesMut::from(&sent[..]);
        layer.seal(&mut output, &mut sealed, 50_000).unwrap();
        assert!(sealed.len() < 50_000 + MESSAGE_BYTES + 100 && !output.is_empty(), "{} wait", sealed.len());
        layer.seal(&mut output, &mut sealed, usize::MAX).unwrap();
        pipe.0.borrow_mut().arrived.unsplit(sealed.split());
        assert!(matches!(client.read().unwrap(), Message::Pong(_)));
        let mut got = Vec::new();
        while let Ok(Message::Binary(part)) = client.read() {
            got.extend_from_slice(&part);
        }
        assert!(got == sent && output.is_empty());
    }

    #[test]
    fn the_end_is_said_by_either_side_and_answered() {
        let (mut layer, mut client, pipe) = pair();
        client.close(None).unwrap();
        let (mut inside, mut sealed) = (BytesMut::new(), BytesMut::new());
        layer.open(&mut said(&pipe), &mut inside).unwrap();
        assert!(layer.has_ended());
        layer.seal(&mut BytesMut::from(&b"late"[..]), &mut sealed, MAX).unwrap();
        assert_eq!(sealed.first(), Some(&0x88), "a close frame");
        let (mut layer, mut client, pipe) = pair();
        layer.finish();
        layer.seal(&mut inside, &mut sealed, MAX).unwrap();
        pipe.0.borrow_mut().arrived.unsplit(sealed.split());
        while !matches!(client.read().unwrap(), Message::Close(_)) {}
    }

    #[test]
    fn what_is_no_such_conversation_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut layer = WebSocket::new("amqp", MAX);
            let (mut inside, mut outside) = (BytesMut::new(), BytesMut::new());
            let error = layer.open(&mut BytesMut::from(bytes), &mut inside).unwrap_err().to_string();
            layer.seal(&mut inside, &mut outside, MAX).unwrap();
            assert!(!layer.is_ready());
            (error, String::from_utf8(outside.to_vec()).unwrap())
        };
        let (error, response) = refused(&request("mqtt"));
        assert_eq!(error, "WebSocket: the peer asks for another subprotocol");
        assert!(
            response.starts_with("HTTP/1.1 400 ") && response.ends_with("only the subprotocol amqp\n"),
            "{response}"
        );
        let (error, response) = refused(b"AMQP\0\x01\0\0 without HTTP\r\n\r\n");
        assert!(error.starts_with("WebSocket: ") && response.is_empty(), "{error} {response}");

        let (mut layer, mut client, pipe) = pair();
        client.send(Message::Text("AMQP".into())).unwrap();
        let error = layer.open(&mut said(&pipe), &mut BytesMut::new()).unwrap_err().to_string();
        assert!(error.contains("text where binary messages belong"), "{error}");
    }

    #[test]
    fn a_message_is_no_larger_than_its_sender_may_send_it() {
        const FIRST: usize = FIRST_MESSAGE_BYTES_MAX;
        for (case, is_let_in, parts, is_taken) in [
            ("the largest before it is known who that is", false, &[FIRST][..], true),
            ("more", false, &[FIRST + 1], false),
            ("more, in parts", false, &[FIRST, 1], false),
            ("the largest", true, &[MAX], true),
            ("too much", true, &[MAX + 1], false),
            ("too much, in parts", true, &[MAX, 1], false),
        ] {
            let (mut layer, mut client, pipe) = pair();
            if is_let_in {
                layer.let_in();
            }
            for (index, bytes) in parts.iter().enumerate() {
                let code = OpCode::Data(if index == 0 { Data::Binary } else { Data::Continue });
                let frame = Frame::message(vec![0; *bytes], code, index + 1 == parts.len());
                client.send(Message::Frame(frame)).unwrap();
            }
            let mut inside = BytesMut::new();
            let taken = layer.open(&mut said(&pipe), &mut inside);
            assert_eq!(taken.is_ok(), is_taken, "case: {case}: {taken:?}");
            assert_eq!(inside.len(), if is_taken { parts.iter().sum() } else { 0 }, "case: {case}");
        }
    }

    #[test]
    fn of_what_is_announced_nothing_is_kept_that_is_too_large() {
        let (mut layer, _, _) = pair();
        // A masked frame of 16 MiB: its head alone is enough.
        let mut head = BytesMut::from(&[0x82, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4][..]);
        let error = layer.open(&mut head, &mut BytesMut::new()).unwrap_err().to_string();
        assert!(error.contains("too long"), "{error}");
    }
}

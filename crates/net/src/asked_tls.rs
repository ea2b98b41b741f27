//! TLS that a peer asks for in the words of its protocol, on a port where it may also speak in the
//! clear.

use std::io;

use bytes::{Buf, BytesMut};

use crate::layer::Layer;
use crate::tls::{Tls, TlsConfig};

/// Nothing, unless the peer's first bytes are `question`: they are answered with the same, and TLS
/// begins.
///
/// ```text
///   Asked ──question──▶ Tls
///     └──anything else──▶ Clear, and the layer can go
/// ```
#[derive(Debug)]
pub struct AskedTls {
    question: &'static [u8],
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Asked(TlsConfig),
    Clear,
    Tls { tls: Box<Tls>, answered: bool },
}

impl AskedTls {
    /// Before the peer has said anything.
    pub fn new(config: TlsConfig, question: &'static [u8]) -> AskedTls {
        AskedTls { question, stage: Stage::Asked(config) }
    }

    /// Looks at the peer's first bytes.
    fn decide(&mut self, outside: &mut BytesMut) -> io::Result<()> {
        let Stage::Asked(config) = &self.stage else { return Ok(()) };
        let there = outside.len().min(self.question.len());
        if outside[..there] != self.question[..there] {
            self.stage = Stage::Clear;
        } else if there == self.question.len() {
            outside.advance(there);
            self.stage = Stage::Tls { tls: Box::new(Tls::new(config.clone())?), answered: false };
        }
        Ok(())
    }
}

impl Layer for AskedTls {
    fn open(&mut self, outside: &mut BytesMut, inside: &mut BytesMut) -> io::Result<()> {
        self.decide(outside)?;
        match &mut self.stage {
            Stage::Asked(_) => Ok(()),
            Stage::Clear => {
                inside.unsplit(outside.split());
                Ok(())
            }
            Stage::Tls { tls, .. } => tls.open(outside, inside),
        }
    }

    fn seal(
        &mut self,
        inside: &mut BytesMut,
        outside: &mut BytesMut,
        outside_bytes_max: usize,
    ) -> io::Result<()> {
        match &mut self.stage {
            Stage::Asked(_) => Ok(()),
            Stage::Clear => {
                outside.unsplit(inside.split());
                Ok(())
            }
            Stage::Tls { tls, answered } => {
                if !std::mem::replace(answered, true) {
                    outside.extend_from_slice(self.question);
                }
                tls.seal(inside, outside, outside_bytes_max)
            }
        }
    }

    fn is_ready(&self) -> bool {
        match &self.stage {
            Stage::Asked(_) => false,
            Stage::Clear => true,
            Stage::Tls { tls, .. } => tls.is_ready(),
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self.stage, Stage::Clear)
    }

    fn has_ended(&self) -> bool {
        match &self.stage {
            Stage::Asked(_) | Stage::Clear => false,
            Stage::Tls { tls, .. } => tls.has_ended(),
        }
    }

    fn finish(&mut self) {
        if let Stage::Tls { tls, .. } = &mut self.stage {
            tls.finish();
        }
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        match &self.stage {
            Stage::Asked(_) | Stage::Clear => None,
            Stage::Tls { tls, .. } => tls.peer_certificate(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::{configs, exchange};

    const QUESTION: &[u8] = b"TLS, please";

    #[test]
    fn whoever_asks_gets_tls_and_nobody_else() {
        for (case, said, ready, nothing, inside) in [
            ("nothing yet", "", false, false, ""),
            ("the beginning of the question", "TLS, pl", false, false, ""),
            ("something else", "TLS, no", true, true, "TLS, no"),
            ("at once", "hello", true, true, "hello"),
            ("the question", "TLS, please", false, false, ""),
        ] {
            let mut layer = AskedTls::new(configs().0, QUESTION);
            let (mut outside, mut opened) = (BytesMut::from(said), BytesMut::new());
            layer.open(&mut outside, &mut opened).unwrap();
            let got = (layer.is_ready(), layer.is_nothing(), &opened[..]);
            assert_eq!(got, (ready, nothing, inside.as_bytes()), "case: {case}");
        }
    }

    #[test]
    fn the_question_is_answered_ahead_of_the_handshake() {
        let (server, mut client) = configs();
        let mut layer = AskedTls::new(server, QUESTION);
        let (mut inside, mut answer) = (BytesMut::new(), BytesMut::new());
        layer.open(&mut BytesMut::from(QUESTION), &mut inside).unwrap();
        layer.seal(&mut BytesMut::new(), &mut answer, 100).unwrap();
        assert_eq!(&answer[..], QUESTION);
        let mut output = BytesMut::from(&b"welcome"[..]);
        std::io::Write::write_all(&mut client.writer(), b"hello").unwrap();
        let (input, read) = exchange(&mut layer, &mut client, &mut output);
        assert_eq!((&input[..], &read[..], layer.is_ready()), (&b"hello"[..], &b"welcome"[..], true));
    }
}

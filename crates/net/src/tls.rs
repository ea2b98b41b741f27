//! The TLS layer (RFC 8446, RFC 5246), by rustls.

use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::{Buf, BufMut, BytesMut};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use crate::layer::Layer;

/// Certificates and keys, ready for use.
pub type TlsConfig = Arc<ServerConfig>;

/// TLS to a peer that this broker connects to.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// Trusted authorities, and the certificate of this broker if it has one.
    pub config: Arc<ClientConfig>,
    /// The name that the peer's certificate must have.
    pub name: ServerName<'static>,
}

/// The broker's side of TLS on one connection.
#[derive(Debug)]
pub struct Tls {
    session: rustls::Connection,
    ended: bool,
}

impl Tls {
    /// Before its handshake.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(config: TlsConfig) -> io::Result<Tls> {
        let session = ServerConnection::new(config).map_err(broken)?.into();
        Ok(Tls { session, ended: false })
    }

    /// The side that has opened the connection, before its handshake.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn to_peer(client: TlsClient) -> io::Result<Tls> {
        let session = ClientConnection::new(client.config, client.name).map_err(broken)?.into();
        Ok(Tls { session, ended: false })
    }

    /// Moves the layer's sealed bytes to `outside`.
    fn take_sealed(&mut self, outside: &mut BytesMut) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut outside.writer())?;
        }
        Ok(())
    }
}

impl Layer for Tls {
    fn open(&mut self, outside: &mut BytesMut, inside: &mut BytesMut) -> io::Result<()> {
        while !outside.is_empty() && !self.ended {
            self.session.read_tls(&mut (&mut *outside).reader())?;
            let state = self.session.process_new_packets().map_err(broken)?;
            self.ended = state.peer_has_closed();
            let start = inside.len();
            inside.resize(start + state.plaintext_bytes_to_read(), 0);
            self.session.reader().read_exact(&mut inside[start..])?;
        }
        Ok(())
    }

    fn seal(
        &mut self,
        inside: &mut BytesMut,
        outside: &mut BytesMut,
        outside_bytes_max: usize,
    ) -> io::Result<()> {
        self.take_sealed(outside)?;
        while !inside.is_empty() && outside.len() < outside_bytes_max && self.is_ready() {
            let part = inside.len().min(outside_bytes_max);
            let taken = self.session.writer().write(&inside[..part])?;
            inside.advance(taken);
            self.take_sealed(outside)?;
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        !self.session.is_handshaking()
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn finish(&mut self) {
        self.session.send_close_notify();
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        Some(self.session.peer_certificates()?.first()?.as_ref())
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// The broker's configuration, and a client that trusts it.
    pub(crate) fn configs() -> (TlsConfig, ClientConnection) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone());
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        (Arc::new(server), ClientConnection::new(Arc::new(client), name).unwrap())
    }

    /// Both sides of a connection, without a socket between them.
    fn pair() -> (Tls, ClientConnection) {
        let (server, client) = configs();
        (Tls::new(server).unwrap(), client)
    }

    /// Exchanges bytes between client and broker until neither has any.
    pub(crate) fn exchange(
        tls: &mut dyn Layer,
        client: &mut ClientConnection,
        output: &mut BytesMut,
    ) -> (Vec<u8>, Vec<u8>) {
        let (mut input, mut read) = (BytesMut::new(), Vec::new());
        loop {
            let (mut outside, mut sealed) = (BytesMut::new(), BytesMut::new());
            while client.wants_write() {
                client.write_tls(&mut (&mut outside).writer()).unwrap();
            }
            tls.open(&mut outside, &mut input).unwrap();
            tls.seal(output, &mut sealed, 20_000).unwrap();
            assert!(sealed.len() < 20_000 + (32 << 10), "{} bytes wait for the socket", sealed.len());
            if sealed.is_empty() && !client.wants_write() {
                return (input.to_vec(), read);
            }
            while !sealed.is_empty() {
                client.read_tls(&mut (&mut sealed).reader()).unwrap();
                let state = client.process_new_packets().unwrap();
                let mut part = vec![0; state.plaintext_bytes_to_read()];
                client.reader().read_exact(&mut part).unwrap();
                read.extend(part);
            }
        }
    }

    #[test]
    fn what_is_said_arrives_on_the_other_side_and_so_does_the_end() {
        let (mut tls, mut client) = pair();
        assert!(!tls.is_ready());
        let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        let mut output = BytesMut::from(&sent[..]);
        client.writer().write_all(b"hello").unwrap();
        let (input, read) = exchange(&mut tls, &mut client, &mut output);
        assert!(tls.is_ready() && output.is_empty());
        assert_eq!((&input[..], read == sent), (&b"hello"[..], true));
        client.set_buffer_limit(None);
        client.writer().write_all(&sent).unwrap();
        client.send_close_notify();
        let (input, _) = exchange(&mut tls, &mut client, &mut output);
        assert!(input == sent && tls.has_ended());
    }

    #[test]
    fn whoever_speaks_no_tls_is_told_so() {
        let (mut tls, _) = pair();
        let mut inside = BytesMut::new();
        let error =
            tls.open(&mut BytesMut::from(&b"AMQP\0\x01\0\0 in the clear"[..]), &mut inside).unwrap_err();
        assert!(error.to_string().starts_with("TLS: "), "{error}");
        let mut alert = BytesMut::new();
        tls.seal(&mut inside, &mut alert, 1).unwrap();
        // A record of the kind "alert" (RFC 8446, section 5.1).
        assert_eq!(alert.first(), Some(&21));
    }
}

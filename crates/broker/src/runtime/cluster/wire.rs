//! One connection between two nodes, as frames: the length of the content (4 bytes, little endian)
//! and the content.
//!
//! One thread may read while another writes. With TLS both share its state, and neither holds it
//! while it waits for the socket: two nodes that write much to each other do not block each other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use postroad_security::nodes::NodeTls;

/// Plain bytes that are encrypted at a time.
const PART_BYTES: usize = 32 << 10;
/// Encrypted bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;

/// See the head of this file.
pub struct Wire {
    socket: TcpStream,
    tls: Option<Mutex<Tls>>,
}

struct Tls {
    connection: Connection,
    /// Encrypted bytes that came and are not decrypted yet.
    pending: Vec<u8>,
}

impl Wire {
    /// Over a connected socket. Each write, and each read of the introduction, ends within
    /// `patience`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn plain(socket: TcpStream, patience: Duration) -> io::Result<Wire> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        Ok(Wire { socket, tls: None })
    }

    /// The side that accepted, with TLS if there is any.
    ///
    /// # Errors
    /// The system or the peer refuses, or the peer's certificate is not good.
    pub fn accepted(socket: TcpStream, patience: Duration, tls: Option<&NodeTls>) -> io::Result<Wire> {
        let wire = Wire::plain(socket, patience)?;
        let Some(tls) = tls else { return Ok(wire) };
        let connection = ServerConnection::new(tls.server.clone()).map_err(io::Error::other)?;
        wire.shake_hands(connection.into())
    }

    /// The side that connected to a host, with TLS if there is any.
    ///
    /// # Errors
    /// As [`Wire::accepted`]; or `host` is not the name of one.
    pub fn dialled(
        socket: TcpStream,
        patience: Duration,
        (tls, host): (Option<&NodeTls>, &str),
    ) -> io::Result<Wire> {
        let wire = Wire::plain(socket, patience)?;
        let Some(tls) = tls else { return Ok(wire) };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(tls.client.clone(), name).map_err(io::Error::other)?;
        wire.shake_hands(connection.into())
    }

    fn shake_hands(mut self, mut connection: Connection) -> io::Result<Wire> {
        while connection.is_handshaking() {
            connection.complete_io(&mut &self.socket).map_err(|error| match error.kind() {
                // So that it is not taken for a peer that is away.
                ErrorKind::InvalidData => {
                    io::Error::new(ErrorKind::PermissionDenied, format!("TLS: {error}"))
                }
                _ => error,
            })?;
        }
        self.tls = Some(Mutex::new(Tls { connection, pending: Vec::new() }));
        Ok(self)
    }

    /// Longest silence of a peer.
    ///
    /// # Errors
    /// The system refuses.
    pub fn expect_within(&self, silence: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(silence))
    }

    /// Longest time in which a peer may read nothing.
    ///
    /// # Errors
    /// The system refuses.
    pub fn write_within(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(Some(patience))
    }

    /// Writes one frame. By one thread at a time.
    ///
    /// # Errors
    /// The connection has ended, or the peer does not read.
    pub fn write_frame(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(&(bytes.len() as u32).to_le_bytes())?;
        self.write_all(bytes)
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return (&self.socket).write_all(bytes) };
        let mut encrypted = Vec::new();
        for part in bytes.chunks(PART_BYTES) {
            let mut turn = locked(tls)?;
            turn.connection.writer().write_all(part)?;
            while turn.connection.wants_write() {
                turn.connection.write_tls(&mut encrypted)?;
            }
            drop(turn);
            (&self.socket).write_all(&encrypted)?;
            encrypted.clear();
        }
        Ok(())
    }

    /// The next frame. By one thread at a time.
    ///
    /// # Errors
    /// The connection has ended, the peer is silent, or the frame is longer than `bytes_max`.
    pub fn read_frame(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        let mut reader = self;
        reader.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if bytes_max < length {
            let reason = format!("a frame of {length} bytes; the maximum is {bytes_max}");
            return Err(io::Error::new(ErrorKind::InvalidData, reason));
        }
        let mut bytes = Vec::new();
        // No more memory than came.
        reader.take(length as u64).read_to_end(&mut bytes)?;
        if bytes.len() < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    /// Ends the connection for both threads.
    pub fn shut_down(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

fn locked(tls: &Mutex<Tls>) -> io::Result<MutexGuard<'_, Tls>> {
    tls.lock().map_err(|_| io::Error::other("a thread of the connection has failed"))
}

impl Read for &Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return (&self.socket).read(buffer) };
        let mut encrypted = [0; READ_BYTES];
        loop {
            if let Some(length) = locked(tls)?.read(buffer)? {
                return Ok(length);
            }
            let length = (&self.socket).read(&mut encrypted)?;
            if length == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            locked(tls)?.pending.extend_from_slice(&encrypted[..length]);
        }
    }
}

impl Tls {
    /// What has been decrypted; `None` if more must be read from the socket first.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read.map(Some),
            }
            if self.pending.is_empty() {
                return Ok(None);
            }
            let taken = self.connection.read_tls(&mut &*self.pending)?;
            self.pending.drain(..taken);
            self.connection
                .process_new_packets()
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }
}

/// The host of an address, as certificates have it.
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Connects to a node within `patience` for each of its addresses.
///
/// # Errors
/// None of them answers.
pub fn dial(address: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut failure = io::ErrorKind::AddrNotAvailable.into();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;
    use std::thread;

    use postroad_security::nodes::NodeTlsFiles;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Files of a node called `name`, signed by an authority whose certificate others find in
    /// `authority`.
    fn certified(home: &Path, name: &str, authority: &str, trusts: &str) -> NodeTls {
        let issuer = home.join(format!("{authority}.key"));
        let key = match std::fs::read_to_string(&issuer) {
            Ok(key) => KeyPair::from_pem(&key).unwrap(),
            Err(_) => KeyPair::generate().unwrap(),
        };
        std::fs::write(&issuer, key.serialize_pem()).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, authority);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(home.join(format!("{authority}.pem")), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let own_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let own = params.signed_by(&own_key, &issuer).unwrap();
        let file = |ending: &str| home.join(format!("{name}.{ending}"));
        std::fs::write(file("pem"), own.pem()).unwrap();
        std::fs::write(file("key"), own_key.serialize_pem()).unwrap();
        let authorities = home.join(format!("{trusts}.pem"));
        NodeTls::load(&NodeTlsFiles { certificate: file("pem"), key: file("key"), authorities }).unwrap()
    }

    /// What both sides make of a connection: the second one accepts.
    fn connect(one: Option<&NodeTls>, other: Option<NodeTls>) -> (io::Result<Wire>, io::Result<Wire>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accepts = thread::spawn(move || {
            let wire = Wire::accepted(listener.accept().unwrap().0, PATIENCE, other.as_ref())?;
            wire.write_frame(b"welcome")?;
            wire.read_frame(16)?;
            Ok(wire)
        });
        let dialled = Wire::dialled(TcpStream::connect(address).unwrap(), PATIENCE, (one, "localhost"));
        let dialled = dialled.and_then(|wire| {
            wire.write_frame(b"hello")?;
            wire.read_frame(16)?;
            Ok(wire)
        });
        (dialled, accepts.join().unwrap())
    }

    #[test]
    fn nodes_of_one_authority_exchange_frames_of_any_size_both_ways_at_once() {
        let home = tempfile::tempdir().unwrap();
        let one = certified(home.path(), "one", "ours", "ours");
        let other = certified(home.path(), "other", "ours", "ours");
        // The authority's certificate was written again, with the same key.
        for (one, other) in [(None, None), (Some(one), Some(other))] {
            let (dialled, accepted) = connect(one.as_ref(), other);
            let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());
            let large = vec![7; 5 << 20];
            thread::scope(|scope| {
                for wire in [&dialled, &accepted] {
                    scope.spawn(|| {
                        for length in [0, 1, PART_BYTES, PART_BYTES + 1, large.len()] {
                            wire.write_frame(&large[..length]).unwrap();
                        }
                    });
                    scope.spawn(|| {
                        for length in [0, 1, PART_BYTES, PART_BYTES + 1, large.len()] {
                            assert_eq!(wire.read_frame(large.len()).unwrap(), large[..length]);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_foreign_certificate_is_refused_by_both_sides_and_named() {
        let home = tempfile::tempdir().unwrap();
        let own = certified(home.path(), "own", "ours", "ours");
        // It trusts our authority, and was signed by another one.
        let foreign = certified(home.path(), "foreign", "theirs", "ours");
        let (_, accepted) = connect(Some(&foreign), Some(own.clone()));
        let error = accepted.err().unwrap().to_string();
        assert!(error.contains("the certificate CN=foreign is refused"), "{error}");
        let (dialled, _) = connect(Some(&own), Some(foreign));
        let error = dialled.err().unwrap().to_string();
        assert!(error.contains("the certificate CN=foreign is refused"), "{error}");
    }

    #[test]
    fn plain_bytes_are_refused_where_tls_is_wanted() {
        let home = tempfile::tempdir().unwrap();
        let own = certified(home.path(), "own", "ours", "ours");
        let (dialled, accepted) = connect(None, Some(own));
        assert!(dialled.is_err() && accepted.is_err());
    }
}

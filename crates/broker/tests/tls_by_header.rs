//! TLS that is asked for by a protocol header, on the port where AMQP is spoken in the clear too
//! (AMQP 1.0, 5.2).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod running;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use running::Broker;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const TLS: &[u8; 8] = b"AMQP\x02\x01\0\0";
const AMQP: &[u8; 8] = b"AMQP\0\x01\0\0";

/// Nothing here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn connect(broker: &Broker) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, broker.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The broker's answer to the first eight bytes.
fn answer(stream: &mut (impl Read + Write), header: &[u8; 8]) -> [u8; 8] {
    stream.write_all(header).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    answer
}

fn client(certificate: CertificateDer<'static>) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

#[test]
fn whoever_asks_for_tls_at_the_plain_port_gets_it_and_others_need_not() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    fs::write(file("cert.pem"), made.cert.pem()).unwrap();
    fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let config = format!("[tls]\ncertificate = {:?}\nkey = {:?}\n", file("cert.pem"), file("key.pem"));
    let broker = Broker::start_in(directory, &config);

    let mut plain = connect(&broker);
    assert_eq!(&answer(&mut plain, AMQP), AMQP);

    let mut asking = connect(&broker);
    assert_eq!(&answer(&mut asking, TLS), TLS);
    let mut sealed = StreamOwned::new(client(made.cert.der().clone()), asking);
    assert_eq!(&answer(&mut sealed, AMQP), AMQP);
    // An open of the container "c": the broker's begins with its size, which is more than the
    // header's.
    sealed.write_all(b"\0\0\0\x11\x02\0\0\0\0\x53\x10\xc0\x04\x01\xa1\x01c").unwrap();
    let mut open = [0; 8];
    sealed.read_exact(&mut open).unwrap();
    assert_eq!((&open[..2], &open[4..]), (&[0, 0][..], &[2, 0, 0, 0][..]));

    // Once is enough.
    let mut twice = connect(&broker);
    assert_eq!(&answer(&mut twice, TLS), TLS);
    let mut twice = StreamOwned::new(client(made.cert.der().clone()), twice);
    assert_eq!(&answer(&mut twice, TLS), AMQP);
}

#[test]
fn without_a_certificate_whoever_asks_is_told_what_there_is() {
    let broker = Broker::start();
    let mut asking = connect(&broker);
    assert_eq!(&answer(&mut asking, TLS), AMQP);
    assert_eq!(asking.read(&mut [0; 1]).unwrap(), 0, "and the connection is closed");
}

//! First bytes: which protocol a peer speaks that has come to the wrong port.

/// First bytes of protocols, with their names.
const STARTS: [(&[u8], &str); 9] = [
    (b"AMQP", "AMQP"),
    (b"\0\0", "OpenWire"),
    (b"CONNECT", "STOMP"),
    (b"STOMP", "STOMP"),
    (b"\x10", "MQTT"),
    (b"GET ", "HTTP"),
    (b"POST ", "HTTP"),
    (b"PUT ", "HTTP"),
    (b"\x16\x03", "TLS"),
];

/// The protocol whose conversations begin with the first of these bytes, if it is one that people
/// mix up.
pub fn protocol_of(first: &[u8]) -> Option<&'static str> {
    STARTS.iter().find(|(start, _)| first.starts_with(start)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_known_by_its_first_bytes() {
        for (first, want) in [
            (&b"AMQP\0\x01\0\0"[..], Some("AMQP")),
            (b"\0\0\0\xF0\x01ActiveMQ", Some("OpenWire")),
            (b"CONNECT\naccept-version:1.2", Some("STOMP")),
            (b"\x10\x0E\0\x04MQTT", Some("MQTT")),
            (b"PUT /3/projects", Some("HTTP")),
            (b"\x16\x03\x01\x02", Some("TLS")),
            (b"SSH-2.0", None),
            (b"", None),
        ] {
            assert_eq!(protocol_of(first), want);
        }
    }
}

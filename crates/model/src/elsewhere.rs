//! Clients that have connected to a broker that does not serve them, and where they are served.

use std::fmt;

/// An address that clients connect to, written as `SCHEME://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The scheme of its URL, such as `tcp` or `amqps`.
    pub scheme: String,
    /// A name or an IP address; one of version 6 without its brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// Reads `SCHEME://HOST:PORT`; `None` if the text is something else.
    pub fn parse(text: &str) -> Option<Endpoint> {
        let (scheme, address) = text.split_once("://")?;
        let (host, port) = address.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_text = |part: &str| !part.is_empty() && !part.contains(['/', '?', ',', ' ', '[', ']']);
        let is_valid = is_text(scheme) && is_text(host);
        let port = port.parse().ok().filter(|port| *port != 0 && is_valid)?;
        Some(Endpoint { scheme: scheme.to_owned(), host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { scheme, host, port } = self;
        match host.contains(':') {
            true => write!(out, "{scheme}://[{host}]:{port}"),
            false => write!(out, "{scheme}://{host}:{port}"),
        }
    }
}

/// Why this broker serves no clients, and which one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The reason, for people.
    pub reason: String,
    /// Where the same protocol is served; `None` if no broker is known to serve.
    pub served_at: Option<Endpoint>,
    /// Clients that cannot move are served here: their connection came through another broker.
    pub serves_others: bool,
}

impl Elsewhere {
    /// Whether a client is sent on.
    pub fn sends_on(&self, is_movable: bool) -> bool {
        !self.serves_others || is_movable && self.served_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_read_as_it_is_written() {
        for (text, want) in [
            ("tcp://10.0.0.1:61616", Some(("tcp", "10.0.0.1", 61616))),
            ("amqps://broker.example:5671", Some(("amqps", "broker.example", 5671))),
            ("http://[::1]:8161", Some(("http", "::1", 8161))),
            ("tcp://host", None),
            ("tcp://host:0", None),
            ("tcp://host:70000", None),
            ("tcp://:61616", None),
            ("tcp://a,tcp://b:1", None),
            ("host:1", None),
        ] {
            let got = Endpoint::parse(text);
            let shown = got.as_ref().map(|it| (&*it.scheme, &*it.host, it.port));
            assert_eq!(shown, want, "{text}");
            if let Some(endpoint) = got {
                assert_eq!(endpoint.to_string(), text);
            }
        }
    }
}

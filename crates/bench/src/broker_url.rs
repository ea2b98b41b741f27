//! The URL of a broker with OpenWire.

use std::fmt;
use std::str::FromStr;

/// The port of a URL that names none.
const PORT_DEFAULT: u16 = 61616;

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerUrl {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "tcp://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "tcp://{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for BrokerUrl {
    /// The fault, in words.
    type Err = String;

    /// Reads `tcp://HOST[:PORT]`; an IPv6 address stands in brackets.
    fn from_str(text: &str) -> Result<BrokerUrl, String> {
        let Some(rest) = text.strip_prefix("tcp://") else {
            return Err("a broker's URL begins with tcp://, as in tcp://127.0.0.1:61616".to_owned());
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(unknown) = rest.find(['?', '/', '@', ' ']) {
            return Err(format!("`{}` is not supported in a URL", &rest[unknown..]));
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("`[` without `]`")?,
            None => rest.find(':').map_or((rest, ""), |colon| rest.split_at(colon)),
        };
        if host.is_empty() {
            return Err("the host is missing".to_owned());
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => PORT_DEFAULT,
            Some(port) => {
                let number = port.parse().ok().filter(|number| *number != 0);
                number.ok_or_else(|| format!("`{port}` is not a port"))?
            }
            None => return Err(format!("expected a port after the host, got `{port}`")),
        };
        Ok(BrokerUrl { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_host_and_perhaps_a_port() {
        let url = |host: &str, port| Some(BrokerUrl { host: host.to_owned(), port });
        for (case, text, want) in [
            ("both", "tcp://localhost:1234", url("localhost", 1234)),
            ("no port", "tcp://a.example", url("a.example", 61616)),
            ("slash at the end", "tcp://a:1/", url("a", 1)),
            ("IPv6", "tcp://[::1]:1234", url("::1", 1234)),
            ("IPv6 without port", "tcp://[::1]", url("::1", 61616)),
            ("another protocol", "ssl://a:1", None),
            ("no protocol", "localhost:1234", None),
            ("no host", "tcp://:1", None),
            ("no number", "tcp://a:b", None),
            ("port 0", "tcp://a:0", None),
            ("beyond 65535", "tcp://a:65536", None),
            ("options", "tcp://a:1?wireFormat.tight=true", None),
            ("bracket stays open", "tcp://[::1:1", None),
            ("junk behind the bracket", "tcp://[::1]1", None),
        ] {
            let got = text.parse::<BrokerUrl>();
            assert_eq!(got.clone().ok(), want, "case: {case}: {got:?}");
            if let Ok(url) = got {
                assert_eq!(url.to_string().parse(), Ok(url), "and back: {case}");
            }
        }
    }
}

//! Names that people type: destinations, the broker's URL, properties.

use postroad_bench::BrokerUrl;
use postroad_openwire::codec::{Destination, Primitive};

/// The port of a URL that names none.
const PORT_DEFAULT: u16 = 61616;

/// Reads `tcp://HOST[:PORT]`; an IPv6 address stands in brackets.
///
/// # Errors
/// The fault, in words.
pub fn parse_url(text: &str) -> Result<BrokerUrl, String> {
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

/// Reads `queue://NAME`, `topic://NAME`, or `NAME` for a queue.
///
/// # Errors
/// The fault, in words.
pub fn parse_destination(text: &str) -> Result<Destination, String> {
    let (name, kind): (_, fn(_) -> Destination) = match text.split_once("://") {
        None => (text, Destination::Queue),
        Some(("queue", name)) => (name, Destination::Queue),
        Some(("topic", name)) => (name, Destination::Topic),
        Some((other, _)) => return Err(format!("`{other}://` is unknown; use queue:// or topic://")),
    };
    if name.trim().is_empty() {
        return Err("the name is missing".to_owned());
    }
    Ok(kind(name.into()))
}

/// Parses the name of a queue, for commands that do not apply to topics.
///
/// # Errors
/// The fault, in words.
pub fn parse_queue(text: &str) -> Result<Destination, String> {
    match parse_destination(text)? {
        queue @ Destination::Queue(_) => Ok(queue),
        _ => Err("expected a queue: a topic stores no messages".to_owned()),
    }
}

/// The destination with its kind, as [`parse_destination`] reads it.
pub fn destination_text(destination: &Destination) -> String {
    let kind = match destination {
        Destination::Queue(_) => "queue",
        Destination::Topic(_) => "topic",
        Destination::TempQueue(_) => "temp-queue",
        Destination::TempTopic(_) => "temp-topic",
    };
    format!("{kind}://{}", destination.name())
}

/// Reads `NAME=TEXT`, or `NAME:TYPE=VALUE` with a primitive type of Java.
///
/// # Errors
/// The fault, in words.
pub fn parse_property(text: &str) -> Result<(String, Primitive), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE or NAME:TYPE=VALUE")?;
    let (name, kind) = name.split_once(':').unwrap_or((name, "string"));
    if name.is_empty() {
        return Err("the property's name is missing".to_owned());
    }
    let primitive = match kind {
        "string" => Some(Primitive::String(value.into())),
        "boolean" => value.parse().ok().map(Primitive::Boolean),
        "byte" => value.parse().ok().map(Primitive::Byte),
        "short" => value.parse().ok().map(Primitive::Short),
        "int" => value.parse().ok().map(Primitive::Int),
        "long" => value.parse().ok().map(Primitive::Long),
        "float" => value.parse().ok().map(Primitive::Float),
        "double" => value.parse().ok().map(Primitive::Double),
        other => {
            let known = "string, boolean, byte, short, int, long, float or double";
            return Err(format!("`{other}` is not a property type: {known}"));
        }
    };
    let primitive = primitive.ok_or_else(|| format!("`{value}` is not a valid {kind}"))?;
    Ok((name.to_owned(), primitive))
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
            let got = parse_url(text);
            assert_eq!(got.clone().ok(), want, "case: {case}: {got:?}");
            if let Ok(url) = got {
                assert_eq!(parse_url(&url.to_string()), Ok(url), "and back: {case}");
            }
        }
    }

    #[test]
    fn destinations_are_queues_unless_they_say_otherwise() {
        for (case, text, want) in [
            ("bare", "a.b", Some("queue://a.b")),
            ("queue", "queue://a", Some("queue://a")),
            ("topic", "topic://a", Some("topic://a")),
            ("unknown kind", "tcp://a", None),
            ("no name", "topic://", None),
            ("nothing", "", None),
        ] {
            let got = parse_destination(text).map(|destination| destination_text(&destination));
            assert_eq!(got.clone().ok().as_deref(), want, "case: {case}: {got:?}");
        }
        let refused = "expected a queue: a topic stores no messages";
        assert_eq!(parse_queue("topic://a"), Err(refused.to_owned()));
    }

    #[test]
    fn properties_are_text_unless_they_say_otherwise() {
        for (case, text, want) in [
            ("text", "a=b=c", Ok(("a", Primitive::String("b=c".into())))),
            ("empty", "a=", Ok(("a", Primitive::String("".into())))),
            ("int", "a:int=-7", Ok(("a", Primitive::Int(-7)))),
            ("boolean", "a:boolean=true", Ok(("a", Primitive::Boolean(true)))),
            ("double", "a:double=0.5", Ok(("a", Primitive::Double(0.5)))),
            ("out of range", "a:byte=128", Err("`128` is not a valid byte")),
            ("no value", "a", Err("expected NAME=VALUE or NAME:TYPE=VALUE")),
            ("no name", ":int=1", Err("the property's name is missing")),
        ] {
            let want = want.map(|(name, value)| (name.to_owned(), value)).map_err(str::to_owned);
            assert_eq!(parse_property(text), want, "case: {case}");
        }
    }
}

//! Names that people type: destinations and properties.

use postroad_openwire::codec::{Destination, Primitive};

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

//! `<networkConnector>` elements that become `[[bridge]]` tables.
//!
//! `static:(a,b)` opens a link to each broker; `masterslave:(a,b)` and `failover:(a,b)` open one
//! link, to the first that answers. Connectors that find their brokers by multicast and the like
//! are left out, with a note.

use super::element::Element;
use super::translation::{Table, Translation, Value};
use postroad_bridge::urls_of;

/// Attributes that need no key, or have none.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("conduitSubscriptions", MERGED),
    ("conduitNetworkQueueSubscriptions", MERGED),
    ("suppressDuplicateQueueSubscriptions", MERGED),
    ("suppressDuplicateTopicSubscriptions", MERGED),
    (
        "dynamicOnly",
        "not translated: a link subscribes for consumers that are there, and for durable subscriptions",
    ),
    ("syncDurableSubs", "not needed: durable subscriptions are exchanged whenever the peer can"),
    (
        "useVirtualDestSubs",
        "not translated: consumers of a virtual topic's queues are demand, the topic is not",
    ),
    ("dispatchAsync", ""),
    ("alwaysSyncSend", "not needed: the peer confirms each message, and many are in flight"),
    ("useCompression", "not translated: bodies pass as they are"),
    ("advisoryForFailedForward", "not translated: a refused message is logged, counted and sent again"),
    ("advisoryPrefetchSize", ""),
    ("advisoryAckPercentage", ""),
    ("gcDestinationViews", "Postroad has no JMX"),
    ("gcSweepTime", "Postroad has no JMX"),
    ("objectName", "Postroad has no JMX"),
    ("checkDuplicateMessagesOnDuplex", "not needed: a message that arrives twice is recognized"),
    ("clientIdToken", "not translated"),
    ("useBrokerNamesAsIdSeed", ""),
    ("destinationFilter", "not translated: name destinations in include and exclude"),
    ("brokerName", ""),
    ("brokerURL", ""),
    ("localUri", ""),
    ("bridgeFactory", "not translated: Postroad runs no Java plugins"),
    ("sslContext", "not translated: set tls of the [[bridge]] by hand"),
    ("useBrokerNameAsIdSees", ""),
];

const MERGED: &str =
    "not needed: consumers of one queue and selector share a subscription, and selectors cross the link";

const SCHEMES: [&str; 2] = ["tcp://", "nio://"];
const SCHEMES_TLS: [&str; 2] = ["ssl://", "nio+ssl://"];

/// File of the certificates that `[tls]` and a `[[bridge]]` trust, in PEM form.
pub const TRUST: &str = "trust.pem";

/// The longest pause that a `[[bridge]]` can have.
const RETRY_MS_MAX: i64 = 3_600_000;

/// The largest prefetch that a `[[bridge]]` can have.
const PREFETCH_MAX: i64 = 100_000;

/// `<networkConnectors>`.
pub fn translate(connectors: &Element<'_>, translation: &mut Translation) {
    let mut names = Vec::new();
    for connector in connectors.children() {
        match connector.name() {
            "networkConnector" | "ldapNetworkConnector" | "multicastNetworkConnector" => {
                connect(&connector, &mut names, translation);
            }
            _ => translation.note(&connector, "is unknown"),
        }
    }
}

/// Links of one connector: the URLs of each, and the options of the list.
struct Uri<'u> {
    links: Vec<Vec<&'u str>>,
    options: &'u str,
    has_tls: bool,
}

/// # Errors
/// Why no link can be opened.
fn read_uri(uri: &str) -> Result<Uri<'_>, String> {
    let scheme = uri.split(':').next().unwrap_or_default();
    let is_each = match scheme {
        "static" | "simple" => true,
        "masterslave" | "failover" | "tcp" | "nio" | "ssl" | "nio+ssl" => false,
        "multicast" | "zeroconf" | "rendezvous" | "ldap" | "http" | "https" | "discovery" | "fabric" => {
            return Err(format!("{scheme}: finds brokers by itself: name them in to of a [[bridge]]"));
        }
        _ => return Err(format!("{uri} names no broker that a link could be opened to")),
    };
    let urls = urls_of(uri);
    let is_one_of = |url: &str, schemes: [&str; 2]| schemes.iter().any(|scheme| url.starts_with(scheme));
    let has_tls = urls.iter().any(|url| is_one_of(url, SCHEMES_TLS));
    let is_known = |url: &&str| is_one_of(url, SCHEMES) || is_one_of(url, SCHEMES_TLS);
    if let Some(other) = urls.iter().find(|url| !is_known(url)) {
        return Err(format!("expected tcp://HOST:PORT or ssl://HOST:PORT, got {other}"));
    }
    let options = match uri.rsplit_once(')') {
        Some((_, behind)) => behind.trim_start_matches('?'),
        None => "",
    };
    // One failover list in a static one is one broker in several places.
    let is_nested = uri.contains("failover:") || uri.contains("masterslave:");
    let links = match is_each && !is_nested {
        true => urls.into_iter().map(|url| vec![url]).collect(),
        false => vec![urls],
    };
    Ok(Uri { links, options, has_tls })
}

fn connect(connector: &Element<'_>, names: &mut Vec<String>, translation: &mut Translation) {
    let Some(uri) = connector.value("uri", translation) else {
        return translation.note(connector, "not translated: it has no uri that could be read");
    };
    let Uri { links, options, has_tls } = match read_uri(uri) {
        Ok(uri) => uri,
        Err(why) => return translation.note(connector, &format!("not translated: {why}")),
    };
    if connector.flag("autoStart", translation) == Some(false) {
        return translation
            .note(connector, "not translated: autoStart=\"false\", a [[bridge]] starts with the broker");
    }
    let wanted = connector.value("name", translation).unwrap_or("NC");
    let mut keys = keys_of(connector, translation);
    if has_password(connector, translation) {
        let file = format!("{}.password", legal_name(wanted));
        let why =
            format!("its password is not copied: write it into {file}, with mode 600, or set password_env");
        translation.note(connector, &why);
        keys.push(("password_file", Value::from(&*file)));
    }
    if has_tls {
        keys.push(("tls", Value::table([("trust", Value::from(TRUST))])));
        translation.note(connector, &format!("certificates that it trusts: export them to {TRUST}"));
    }
    retries(connector, options, &mut keys, translation);
    for child in connector.children() {
        let key = match child.name() {
            "dynamicallyIncludedDestinations" => "include",
            "excludedDestinations" => "exclude",
            "staticallyIncludedDestinations" => "static",
            "durableDestinations" => {
                translation.note(&child, "not needed: durable subscriptions are found by themselves");
                continue;
            }
            _ => {
                translation.note(&child, "is unknown");
                continue;
            }
        };
        let names = destinations(&child, translation);
        if !names.is_empty() {
            keys.push((key, Value::list(names)));
        }
    }
    connector.note_the_rest(ATTRIBUTES, translation);
    for urls in links {
        let name = free_name(wanted, names);
        if name != wanted {
            let why = format!("the link to {} is called {name}: each has a name of its own", urls.join(", "));
            translation.note(connector, &why);
        }
        let mut all =
            vec![("name", Value::from(&*name)), ("to", Value::list(urls.into_iter().map(Value::from)))];
        all.extend(keys.iter().cloned());
        names.push(name);
        translation.push(Table { name: "bridge", lines: vec![connector.line()], keys: all });
    }
}

/// Whether the connector has a password for the peer; a placeholder is noted, and is one.
fn has_password(connector: &Element<'_>, translation: &mut Translation) -> bool {
    let passwords = ["remotePassword", "password"];
    for name in passwords {
        connector.value(name, translation);
    }
    passwords.iter().any(|name| connector.has(name))
}

fn legal_name(wanted: &str) -> String {
    let legal = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    let name: String = wanted.chars().map(|sign| if legal(sign) { sign } else { '-' }).collect();
    if name.is_empty() { "NC".to_owned() } else { name }
}

/// The name with legal characters, and a number if another link has it.
fn free_name(wanted: &str, taken: &[String]) -> String {
    let name = legal_name(wanted);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or(name)
}

fn keys_of(connector: &Element<'_>, translation: &mut Translation) -> Vec<(&'static str, Value)> {
    let mut keys = Vec::new();
    for (attribute, key, fallback) in [
        ("duplex", "duplex", false),
        ("staticBridge", "only_static", false),
        ("decreaseNetworkConsumerPriority", "decrease_priority", true),
        ("bridgeTempDestinations", "temporary", true),
    ] {
        if let Some(flag) = connector.flag(attribute, translation).filter(|flag| *flag != fallback) {
            keys.push((key, Value::from(flag)));
        }
    }
    // That for the own broker is not needed: a link belongs to it.
    let local = connector.value("userName", translation);
    if let Some(user) = connector.value("remoteUserName", translation).or(local) {
        keys.push(("user", Value::from(user)));
    }
    let all = connector.number("networkTTL", translation);
    for (attribute, key) in [("messageTTL", "message_ttl"), ("consumerTTL", "consumer_ttl")] {
        let number = connector.number(attribute, translation).or(all);
        push_number(
            connector,
            (attribute, key, 1),
            number,
            i64::from(i32::MIN)..=i64::from(i32::MAX),
            &mut keys,
            translation,
        );
    }
    let prefetch = connector.number("prefetchSize", translation);
    push_number(
        connector,
        ("prefetchSize", "prefetch", 1000),
        prefetch,
        1..=PREFETCH_MAX,
        &mut keys,
        translation,
    );
    let priority = connector.number("consumerPriorityBase", translation);
    push_number(
        connector,
        ("consumerPriorityBase", "priority", -5),
        priority,
        -128..=127,
        &mut keys,
        translation,
    );
    keys
}

/// A number that is not the default, brought into the range of the key, which is noted.
fn push_number(
    connector: &Element<'_>,
    (attribute, key, fallback): (&str, &'static str, i64),
    number: Option<i64>,
    range: std::ops::RangeInclusive<i64>,
    keys: &mut Vec<(&'static str, Value)>,
    translation: &mut Translation,
) {
    let Some(number) = number else { return };
    let nearest = number.clamp(*range.start(), *range.end());
    if nearest != number {
        translation
            .note(connector, &format!("{attribute}=\"{number}\": {nearest} is the nearest value of {key}"));
    }
    if nearest != fallback {
        keys.push((key, Value::from(nearest)));
    }
}

/// Pauses in the options of the list; other options are noted.
fn retries(
    connector: &Element<'_>,
    options: &str,
    keys: &mut Vec<(&'static str, Value)>,
    translation: &mut Translation,
) {
    let (mut first_ms, mut longest_ms) = (1000, 30_000);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match (name, value.parse::<i64>()) {
            ("initialReconnectDelay", Ok(ms)) => first_ms = ms.clamp(1, RETRY_MS_MAX),
            ("maxReconnectDelay", Ok(ms)) => longest_ms = ms.clamp(1, RETRY_MS_MAX),
            ("useExponentialBackOff" | "randomize" | "maxReconnectAttempts" | "backOffMultiplier", _) => {
                let why = "not needed: pauses double, and a link is opened again without end";
                translation.note(connector, &format!("{option}: {why}"));
            }
            _ => translation.note(connector, &format!("{option} is not translated")),
        }
    }
    let longest_ms = longest_ms.max(first_ms);
    for (key, ms, fallback) in [("retry_ms", first_ms, 1000), ("retry_max_ms", longest_ms, 30_000)] {
        if ms != fallback {
            keys.push((key, Value::from(ms)));
        }
    }
}

/// `<queue physicalName="a.>"/>` and `<topic …/>`.
fn destinations(list: &Element<'_>, translation: &mut Translation) -> Vec<Value> {
    let mut names = Vec::new();
    for destination in list.children() {
        let scheme = match destination.name() {
            "queue" => "queue://",
            "topic" => "topic://",
            _ => {
                translation.note(&destination, "not translated: queues and topics are included and excluded");
                continue;
            }
        };
        let Some(name) = destination.value("physicalName", translation) else {
            translation.note(&destination, "not translated: it has no physicalName that could be read");
            continue;
        };
        let (name, options) = name.split_once('?').unwrap_or((name, ""));
        if !options.is_empty() {
            translation.note(&destination, &format!("{options} is not translated"));
        }
        names.extend(name.split(',').map(|name| Value::from(&*format!("{scheme}{}", name.trim()))));
        destination.note_the_rest(&[], translation);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::translate;

    /// The `[[bridge]]` tables without their comments, and the notes.
    fn translated(connector: &str) -> (String, String) {
        let text =
            format!("<broker brokerName='b'><networkConnectors>{connector}</networkConnectors></broker>");
        let translation = translate(&text).unwrap();
        let toml = translation.to_toml("f");
        let at = toml.find("[[bridge]]").unwrap_or(toml.len());
        let lines = toml[at..].lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        (lines.collect::<Vec<_>>().join("\n"), translation.notes_text("f"))
    }

    #[test]
    fn connectors_become_bridges() {
        for (case, connector, want) in [
            (
                "all options",
                "<networkConnector name='to east' uri='static:(tcp://east:61616?wireFormat.x=1)?initialReconnectDelay=200&amp;maxReconnectDelay=5000'
                  duplex='true' userName='link' password='p' networkTTL='3' consumerTTL='2' prefetchSize='50' consumerPriorityBase='-7'
                  decreaseNetworkConsumerPriority='false' bridgeTempDestinations='false' staticBridge='true'>
                  <dynamicallyIncludedDestinations><queue physicalName='shop.>'/><topic physicalName='news'/></dynamicallyIncludedDestinations>
                  <excludedDestinations><queue physicalName='shop.internal'/></excludedDestinations>
                  <staticallyIncludedDestinations><topic physicalName='audit'/></staticallyIncludedDestinations></networkConnector>",
                "[[bridge]]\nname = \"to-east\"\nto = [\"tcp://east:61616?wireFormat.x=1\"]\nduplex = true\nonly_static = true\n\
                 decrease_priority = false\ntemporary = false\nuser = \"link\"\nmessage_ttl = 3\nconsumer_ttl = 2\n\
                 prefetch = 50\npriority = -7\npassword_file = \"to-east.password\"\nretry_ms = 200\nretry_max_ms = 5000\n\
                 include = [\"queue://shop.>\", \"topic://news\"]\nexclude = [\"queue://shop.internal\"]\nstatic = [\"topic://audit\"]",
            ),
            (
                "defaults are left out",
                "<networkConnector uri='static:(tcp://a:1)' duplex='false' networkTTL='1' prefetchSize='1000'/>",
                "[[bridge]]\nname = \"NC\"\nto = [\"tcp://a:1\"]",
            ),
            (
                "TLS",
                "<networkConnector name='n' uri='masterslave:(ssl://a:1,nio+ssl://b:2)'/>",
                "[[bridge]]\nname = \"n\"\nto = [\"ssl://a:1\", \"nio+ssl://b:2\"]\ntls = { trust = \"trust.pem\" }",
            ),
            (
                "a static list is a link to each",
                "<networkConnector name='n' uri='static:(tcp://a:1,tcp://b:2)'/>",
                "[[bridge]]\nname = \"n\"\nto = [\"tcp://a:1\"]\n[[bridge]]\nname = \"n-2\"\nto = [\"tcp://b:2\"]",
            ),
            (
                "a pair of brokers is one link",
                "<networkConnector name='n' uri='masterslave:(tcp://a:1,tcp://b:2)'/>",
                "[[bridge]]\nname = \"n\"\nto = [\"tcp://a:1\", \"tcp://b:2\"]",
            ),
            (
                "also as a list in a list",
                "<networkConnector name='n' uri='static:(failover:(tcp://a:1,tcp://b:2)?randomize=false)'/>",
                "[[bridge]]\nname = \"n\"\nto = [\"tcp://a:1\", \"tcp://b:2\"]",
            ),
            (
                "the remote user comes first",
                "<networkConnector name='n' uri='static:(tcp://a:1)' userName='own' remoteUserName='far'/>",
                "[[bridge]]\nname = \"n\"\nto = [\"tcp://a:1\"]\nuser = \"far\"",
            ),
            (
                "connectors of one name",
                "<networkConnector name='n' uri='static:(tcp://a:1)'/><networkConnector name='n' uri='static:(tcp://b:2)'/>",
                "[[bridge]]\nname = \"n\"\nto = [\"tcp://a:1\"]\n[[bridge]]\nname = \"n-2\"\nto = [\"tcp://b:2\"]",
            ),
        ] {
            let (toml, notes) = translated(connector);
            assert_eq!(toml, want, "case: {case}: {notes}");
        }
    }

    #[test]
    fn passwords_are_not_copied() {
        for (case, attributes, want) in [
            ("of the connector", "userName='u' password='s3cret'", true),
            ("of the peer", "remoteUserName='u' remotePassword='s3cret'", true),
            ("of both", "password='s3cret-a' remotePassword='s3cret-b'", true),
            ("a placeholder", "password='${link.password}'", true),
            ("none", "userName='u'", false),
        ] {
            let connector =
                format!("<networkConnector name='e/w' uri='static:(tcp://a:1,tcp://b:2)' {attributes}/>");
            let (toml, notes) = translated(&connector);
            assert!(!toml.contains("s3cret") && !notes.contains("s3cret"), "case: {case}: {toml}\n{notes}");
            let file = "e-w.password";
            assert_eq!(
                toml.matches(&format!("password_file = \"{file}\"")).count(),
                2 * usize::from(want),
                "case: {case}: {toml}"
            );
            assert_eq!(notes.contains(&format!("write it into {file}")), want, "case: {case}: {notes}");
        }
    }

    #[test]
    fn parts_of_connectors_that_are_not_translated_are_named() {
        for (case, connector, want, is_left_out) in [
            (
                "multicast",
                "<networkConnector uri='multicast://default'/>",
                "multicast: finds brokers by itself",
                true,
            ),
            ("an unknown scheme", "<networkConnector uri='jms:x'/>", "jms:x names no broker", true),
            ("no uri", "<networkConnector name='n'/>", "has no uri", true),
            ("a placeholder", "<networkConnector uri='${to}'/>", "stands for a value elsewhere", true),
            ("TLS", "<networkConnector uri='static:(ssl://a:1)'/>", "export them to trust.pem", false),
            ("another scheme", "<networkConnector uri='static:(stomp://a:1)'/>", "got stomp://a:1", true),
            (
                "not started",
                "<networkConnector uri='static:(tcp://a:1)' autoStart='false'/>",
                "autoStart",
                true,
            ),
            (
                "conduits",
                "<networkConnector uri='static:(tcp://a:1)' conduitSubscriptions='false'/>",
                "selectors cross",
                false,
            ),
            (
                "a prefetch of 0",
                "<networkConnector uri='static:(tcp://a:1)' prefetchSize='0'/>",
                "1 is the nearest value",
                false,
            ),
            (
                "an unknown option",
                "<networkConnector uri='static:(tcp://a:1)' teapot='1'/>",
                "teapot=\"1\" is unknown",
                false,
            ),
            (
                "an option of the uri",
                "<networkConnector uri='static:(tcp://a:1)?x=1'/>",
                "x=1 is not translated",
                false,
            ),
            (
                "a temporary queue",
                "<networkConnector uri='static:(tcp://a:1)'><excludedDestinations><tempQueue physicalName='t'/></excludedDestinations></networkConnector>",
                "<tempQueue> not translated",
                false,
            ),
        ] {
            let (toml, notes) = translated(connector);
            assert!(notes.contains(want), "case: {case}: {notes}");
            assert_eq!(toml.is_empty(), is_left_out, "case: {case}: {toml}");
        }
    }
}

//! A configuration as flat keys with their values: for lists, and for comparisons of a file with
//! the settings in force.
//!
//! Never here: files, and what a value means.

use std::collections::{BTreeMap, BTreeSet};

use postroad_admin::{Setting, SettingChange, SettingOrigin};
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::Config;
use crate::cli::ServeArguments;

/// The reference, which a test of `crate::config` compares with the keys and defaults of the code.
pub const REFERENCE: &str = include_str!("../../../../docs/postroad.toml");

/// Shown in place of a secret. A text with it is refused, so that no masked text is applied.
pub const MASK: &str = "***";

/// Members that name the elements of lists, in the order of preference.
const NAMES: &[&str] = &["name", "destination", "tenant", "topics"];

/// Tables of which every key is followed at once, but for those of [`AT_START`].
const FOLLOWED: &[&str] = &["alert", "bridge", "dead_letter_queue", "policy", "route", "security", "tenant"];

/// Further keys that are followed at once.
const FOLLOWED_KEYS: &[&str] = &[
    "limits.messages_max",
    "limits.bytes_max",
    "limits.at_limit",
    "limits.at_limit_wait_ms",
    "limits.offline_subscription_ms",
    "tls.client_authorities",
    "tls.clients",
    "tls.key",
];

/// All keys of a configuration that have a value, with their values as TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    values: BTreeMap<String, (String, SettingOrigin)>,
    /// The elements of lists whose order matters, by the name of the list.
    orders: BTreeMap<String, Vec<String>>,
}

impl Settings {
    /// Of the text of a file, which [`Config`] has understood, under the options of the command
    /// line.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn of(text: &str, arguments: &ServeArguments) -> anyhow::Result<Settings> {
        let file: Table = text.parse()?;
        let mut settings = Settings::default();
        let mut defaults: Table = REFERENCE.parse()?;
        let Config { memory_bytes, runtime, .. } = Config::default();
        let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        defaults.insert("memory_bytes".to_owned(), number(memory_bytes));
        if let Some(Value::Table(table)) = defaults.get_mut("runtime") {
            table.insert("cores".to_owned(), number(runtime.cores.into()));
        }
        // A list of the file takes the place of the default, with all its elements.
        defaults.retain(|key, _| !matches!(file.get(key), Some(Value::Array(_))));
        settings.add("", &Value::Table(defaults), SettingOrigin::Default);
        settings.add("", &Value::Table(file), SettingOrigin::File);
        for (key, value) in overruled(arguments) {
            settings.add(key, &value, SettingOrigin::CommandLine);
        }
        Ok(settings)
    }

    fn add(&mut self, key: &str, value: &Value, origin: SettingOrigin) {
        let inside = |name: &str| match key {
            "" => name.to_owned(),
            key => format!("{key}.{name}"),
        };
        match value {
            Value::Table(table) => {
                for (name, value) in table {
                    self.add(&inside(name), value, origin);
                }
            }
            Value::Array(elements) if elements.first().is_some_and(Value::is_table) => {
                let mut order: Vec<String> = Vec::new();
                for (element, number) in elements.iter().zip(1..) {
                    let name = name_of(element).unwrap_or_else(|| format!("{number}"));
                    let same = order.iter().filter(|other| **other == name).count();
                    let suffix = if same == 0 { String::new() } else { format!("#{}", same + 1) };
                    self.add(&format!("{key}[{name}{suffix}]"), element, origin);
                    order.push(name);
                }
                self.orders.insert(key.to_owned(), order);
            }
            value => {
                self.values.insert(key.to_owned(), (value.to_string(), origin));
            }
        }
    }

    /// All of them, without secrets.
    pub fn shown(&self) -> Vec<Setting> {
        let of = |(key, (value, origin)): (&String, &(String, SettingOrigin))| Setting {
            key: key.clone(),
            value: masked(key, value),
            origin: *origin,
            needs_restart: !is_followed(key, None),
        };
        self.values.iter().map(of).collect()
    }

    /// The changes that would make these settings those, without secrets.
    pub fn changes_to(&self, other: &Settings) -> Vec<SettingChange> {
        let value = |settings: &Settings, key: &str| settings.values.get(key).map(|(value, _)| value.clone());
        let mut changes = Vec::new();
        for key in self.keys_with(other) {
            let (from, to) = (value(self, key), value(other, key));
            if from != to {
                let needs_restart = !is_followed(key, Some((from.as_deref(), to.as_deref())));
                let shown = |value: Option<String>| value.map(|value| masked(key, &value));
                let is_secret = from.as_deref().is_some_and(|value| masked(key, value) != value);
                let to = shown(to).map(|to| if is_secret { format!("{to} (another)") } else { to });
                changes.push(SettingChange { key: key.to_owned(), from: shown(from), to, needs_restart });
            }
        }
        for (list, to) in &other.orders {
            let Some(from) = self.orders.get(list) else { continue };
            let sorted = |order: &[String]| order.iter().cloned().collect::<BTreeSet<_>>();
            if from != to && from.len() == to.len() && sorted(from) == sorted(to) {
                let key = format!("{list}[]");
                let needs_restart = !is_followed(&key, None);
                let (from, to) = (Some(from.join(", ")), Some(to.join(", ")));
                changes.push(SettingChange { key, from, to, needs_restart });
            }
        }
        changes
    }

    /// The settings in force after those have been followed: keys that need a restart stay.
    pub fn followed(&self, other: &Settings) -> Settings {
        let changes = self.changes_to(other);
        let waits = |key: &str| changes.iter().any(|change| change.key == key && change.needs_restart);
        let of = |key: &String| {
            let settings = if waits(key) { self } else { other };
            Some((key.clone(), settings.values.get(key)?.clone()))
        };
        let orders = other.orders.iter().map(|(list, order)| {
            let order = if waits(&format!("{list}[]")) { self.orders.get(list) } else { Some(order) };
            (list.clone(), order.cloned().unwrap_or_default())
        });
        let keys: BTreeSet<&String> = self.values.keys().chain(other.values.keys()).collect();
        Settings { values: keys.into_iter().filter_map(of).collect(), orders: orders.collect() }
    }

    fn keys_with<'s>(&'s self, other: &'s Settings) -> BTreeSet<&'s str> {
        self.values.keys().chain(other.values.keys()).map(String::as_str).collect()
    }
}

/// The name of an element of a list.
fn name_of(element: &Value) -> Option<String> {
    NAMES.iter().find_map(|name| element.get(name)?.as_str().map(str::to_owned))
}

fn overruled(arguments: &ServeArguments) -> Vec<(&'static str, Value)> {
    let ServeArguments { config: _, data, bind, anonymous, port_offset, memory, .. } = arguments;
    let ServeArguments { node, cluster_listen, cluster_seeds, .. } = arguments;
    let text = |text: &dyn std::fmt::Display| Value::String(text.to_string());
    let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let seeds = || Value::Array(cluster_seeds.iter().map(|seed| text(seed)).collect());
    [
        ("data", data.as_ref().map(|data| text(&data.display()))),
        ("bind", bind.as_ref().map(|bind| text(bind))),
        ("security.anonymous", anonymous.then_some(Value::Boolean(true))),
        ("port_offset", port_offset.map(|offset| number(offset.into()))),
        ("memory_bytes", memory.map(number)),
        ("cluster.node", node.as_ref().map(|node| text(node))),
        ("cluster.listen", cluster_listen.as_ref().map(|listen| text(listen))),
        ("cluster.seeds", (!cluster_seeds.is_empty()).then(seeds)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
    .collect()
}

/// Whether a running broker follows this key. Some do not follow each change of it.
fn is_followed(key: &str, change: Option<(Option<&str>, Option<&str>)>) -> bool {
    let table = key.split(['.', '[']).next().unwrap_or_default();
    match key {
        "security.users" => false,
        // TLS ports are opened at the start, if there is a certificate then.
        "tls.certificate" => {
            let is_none = |value: Option<&str>| value.is_none_or(|value| value == "\"\"");
            change.is_none_or(|(from, to)| is_none(from) == is_none(to))
        }
        // The store of a destination is found at the start.
        _ if key.ends_with("].store") => false,
        _ => FOLLOWED.contains(&table) || FOLLOWED_KEYS.contains(&key),
    }
}

fn is_secret(key: &str) -> bool {
    key.rsplit('.').next() == Some("password")
}

fn masked(key: &str, value: &str) -> String {
    let is_shown = !is_secret(key) || value == "\"\"";
    if is_shown { value.to_owned() } else { format!("\"{MASK}\"") }
}

/// The text of a configuration with [`MASK`] in place of each secret.
pub fn without_secrets(text: &str) -> String {
    let Ok(document) = DeTable::parse(text) else { return String::new() };
    let mut secrets = Vec::new();
    find_secrets(document.get_ref(), &mut secrets);
    secrets.sort_by_key(|span| std::cmp::Reverse(span.start));
    let mut shown = text.to_owned();
    for span in secrets {
        shown.replace_range(span, &format!("\"{MASK}\""));
    }
    shown
}

/// Whether a text has [`MASK`] where a secret is.
pub fn is_masked(text: &str) -> bool {
    let Ok(document) = DeTable::parse(text) else { return false };
    let mut secrets = Vec::new();
    find_secrets(document.get_ref(), &mut secrets);
    secrets.into_iter().any(|span| text[span].trim_matches(['"', '\'']) == MASK)
}

fn find_secrets(table: &DeTable<'_>, found: &mut Vec<std::ops::Range<usize>>) {
    for (key, value) in table {
        match value.get_ref() {
            DeValue::Table(table) => find_secrets(table, found),
            DeValue::Array(elements) => {
                for element in elements {
                    if let DeValue::Table(table) = element.get_ref() {
                        find_secrets(table, found);
                    }
                }
            }
            DeValue::String(text) if is_secret(key.get_ref()) && !text.is_empty() => found.push(value.span()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        Settings::of(text, &ServeArguments::default()).unwrap()
    }

    #[test]
    fn changes_are_named_with_what_they_need() {
        let policy = |name: &str, rest: &str| format!("[[policy]]\ndestination = '{name}'\n{rest}\n");
        let two = policy("queue://a", "messages_max = 1") + &policy("queue://b", "");
        let turned = policy("queue://b", "") + &policy("queue://a", "messages_max = 1");
        let link = |password: &str| format!("[[bridge]]\nname = 'east'\npassword = '{password}'");
        for (case, from, to, want) in [
            ("none", "port_offset = 0", "", vec![]),
            ("a value", "", "[limits]\nmessages_max = 5", vec!["limits.messages_max 0 → 5"]),
            ("at the next start", "", "[runtime]\npin = true", vec!["runtime.pin false → true, restart"]),
            (
                "a list's element",
                "",
                &policy("queue://a", "messages_max = 5"),
                vec![
                    "policy[queue://a].destination - → \"queue://a\"",
                    "policy[queue://a].messages_max - → 5",
                ],
            ),
            ("order", &two, &turned, vec!["policy[] queue://a, queue://b → queue://b, queue://a"]),
            (
                "a store",
                &policy("queue://a", ""),
                &policy("queue://a", "store = 'fast'"),
                vec!["policy[queue://a].store - → \"fast\", restart"],
            ),
            (
                "a secret",
                &link("one"),
                &link("two"),
                vec!["bridge[east].password \"***\" → \"***\" (another)"],
            ),
            (
                "TLS begins",
                "",
                "[tls]\ncertificate = 'c'\nkey = 'k'",
                vec!["tls.certificate \"\" → \"c\", restart", "tls.key \"\" → \"k\""],
            ),
            (
                "a new certificate",
                "[tls]\ncertificate = 'c'",
                "[tls]\ncertificate = 'd'",
                vec!["tls.certificate \"c\" → \"d\""],
            ),
            (
                "a default list goes",
                "",
                "virtual_topic = []",
                vec![
                    "virtual_topic - → [], restart",
                    "virtual_topic[VirtualTopic.>].postfix \"\" → -, restart",
                    "virtual_topic[VirtualTopic.>].prefix \"Consumer.*.\" → -, restart",
                    "virtual_topic[VirtualTopic.>].selector_aware false → -, restart",
                    "virtual_topic[VirtualTopic.>].topics \"VirtualTopic.>\" → -, restart",
                ],
            ),
        ] {
            let said = |change: SettingChange| {
                let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
                let restart = if change.needs_restart { ", restart" } else { "" };
                format!("{} {} → {}{restart}", change.key, text(change.from), text(change.to))
            };
            let got: Vec<String> = settings(from).changes_to(&settings(to)).into_iter().map(said).collect();
            assert_eq!(got, want, "case: {case}");
        }
    }

    #[test]
    fn keys_that_need_a_restart_stay_as_they_are_until_then() {
        let (running, file) =
            (settings("port_offset = 1"), settings("port_offset = 2\n[[alert]]\nname = 'a'"));
        let followed = running.followed(&file);
        let keys = |changes: Vec<SettingChange>| changes.into_iter().map(|c| c.key).collect::<Vec<_>>();
        assert_eq!(keys(running.changes_to(&followed)), ["alert[a].name"]);
        assert_eq!(keys(followed.changes_to(&file)), ["port_offset"]);
        assert_eq!(followed.followed(&running), running, "and back");
    }

    #[test]
    fn the_command_line_wins_and_is_named() {
        let arguments = ServeArguments { port_offset: Some(7), ..ServeArguments::default() };
        let shown = Settings::of("port_offset = 3\nbroker_name = 'b'", &arguments).unwrap().shown();
        let of = |key: &str| {
            let setting = shown.iter().find(|setting| setting.key == key).unwrap();
            (setting.value.as_str(), setting.origin, setting.needs_restart)
        };
        assert_eq!(of("port_offset"), ("7", SettingOrigin::CommandLine, true));
        assert_eq!(of("broker_name"), ("\"b\"", SettingOrigin::File, true));
        assert_eq!(of("dead_letter_queue"), ("\"ActiveMQ.DLQ\"", SettingOrigin::Default, false));
        assert!(shown.iter().any(|setting| setting.key == "runtime.cores"));
    }

    #[test]
    fn no_text_shows_a_secret() {
        let text = "[[bridge]]\nname = 'a' # one\npassword = 'x\"y'\n[[bridge]]\npassword=\"\"\n\
                    [[x]]\ny = [{ password = '''z''', n = 1 }]\n";
        let shown = without_secrets(text);
        let want = "[[bridge]]\nname = 'a' # one\npassword = \"***\"\n[[bridge]]\npassword=\"\"\n\
                    [[x]]\ny = [{ password = \"***\", n = 1 }]\n";
        assert_eq!(shown, want);
        assert!(is_masked(&shown) && !is_masked(text));
        let shown = settings("[[bridge]]\nname = 'a'\npassword = 'x'").shown();
        assert!(shown.iter().any(|row| row.key == "bridge[a].password" && row.value == "\"***\""));
    }
}

//! `[[route]]`: rules that move or copy the messages of some addresses to others.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use postroad_model::{Destination, HIGHEST_PRIORITY, HeaderValue, SETTABLE_HEADERS};
use postroad_routing::{
    Addressing, DestinationPattern, Distribution, Factor, HeaderChange, HeaderRule, Recipients, Redelivery,
    Route, RouteTarget, Routes, Template, Throttle,
};
use postroad_selector::Selector;
use serde::Deserialize;

use super::destinations::FactorConfig;

/// Routes that one broker may have.
const ROUTES_MAX: usize = 10_000;

/// Targets of one route.
const TARGETS_MAX: usize = 1_000;

/// Longest delay and longest period of a throttle: a week.
const TIME_MS_MAX: u64 = 7 * 24 * 3_600_000;

/// Redeliveries of one copy: each is a record with its body.
const REDELIVERIES_MAX: u32 = 10_000;

/// One `[[route]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteConfig {
    /// Its name.
    name: String,
    /// Which addresses: `queue://orders`, or a pattern.
    from: String,
    /// Whether messages leave their address, or are copied.
    mode: ModeConfig,
    /// Only messages that this matches.
    selector: Option<String>,
    /// Headers that get a value, or a text with `${header}` in it.
    set: BTreeMap<String, toml::Value>,
    /// Headers that get the value of another one.
    copy: BTreeMap<String, String>,
    /// Headers that go.
    remove: Vec<String>,
    /// Where messages go.
    to: Vec<RouteTargetConfig>,
    /// Which of the targets that match.
    distribute: DistributeConfig,
    /// Where a message goes that none of them matches.
    otherwise: Vec<RouteTargetConfig>,
    /// The header that names further targets.
    recipients: Option<String>,
    /// The text between them.
    recipients_delimiter: Option<String>,
    /// The only addresses that it may name.
    recipients_allow: Vec<String>,
    /// How long every message waits before it is delivered.
    delay_ms: u64,
    /// Messages in the period of the throttle; 0 for any number.
    throttle_messages: u32,
    /// That period.
    throttle_ms: u64,
    /// How often a copy that its target refuses is sent to it again; without it the send fails.
    redelivery_count: Option<u32>,
    /// How long it waits before the first time.
    redelivery_delay_ms: Option<u64>,
    /// Each further wait is longer by this factor.
    redelivery_multiplier: Option<FactorConfig>,
    /// The longest wait.
    redelivery_delay_max_ms: Option<u64>,
    /// Where messages go that cannot be sent on.
    dead_letter_queue: Option<String>,
}

impl Default for RouteConfig {
    fn default() -> RouteConfig {
        RouteConfig {
            name: String::new(),
            from: String::new(),
            mode: ModeConfig::Consume,
            selector: None,
            set: BTreeMap::new(),
            copy: BTreeMap::new(),
            remove: Vec::new(),
            to: Vec::new(),
            distribute: DistributeConfig::All,
            otherwise: Vec::new(),
            recipients: None,
            recipients_delimiter: None,
            recipients_allow: Vec::new(),
            delay_ms: 0,
            throttle_messages: 0,
            throttle_ms: 1_000,
            redelivery_count: None,
            redelivery_delay_ms: None,
            redelivery_multiplier: None,
            redelivery_delay_max_ms: None,
            dead_letter_queue: None,
        }
    }
}

/// One target of a `[[route]]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteTargetConfig {
    /// `queue://a` or `topic://b`.
    destination: String,
    /// Only messages that this matches.
    selector: Option<String>,
    /// As for the route.
    set: BTreeMap<String, toml::Value>,
    /// As for the route.
    copy: BTreeMap<String, String>,
    /// As for the route.
    remove: Vec<String>,
    /// Added to the delay of the route.
    delay_ms: u64,
}

/// Whether messages leave their address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeConfig {
    /// They do.
    #[default]
    Consume,
    /// They stay, and the targets get copies.
    Copy,
}

/// Which of the targets that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DistributeConfig {
    /// All of them.
    #[default]
    All,
    /// The first one.
    First,
    /// One, in turn.
    Balance,
}

/// All routes.
///
/// # Errors
/// A name is missing or taken, a value cannot be understood, or routes form a cycle.
pub fn routes(configs: &[RouteConfig], addressing: &Addressing) -> anyhow::Result<Routes> {
    if ROUTES_MAX < configs.len() {
        bail!("configuration: {} [[route]]; the most is {ROUTES_MAX}", configs.len());
    }
    let mut names = BTreeSet::new();
    let mut rules = Vec::with_capacity(configs.len());
    for (number, config) in (1..).zip(configs) {
        let place = || format!("configuration: [[route]] {number} {:?}", config.name);
        rules.push(config.rule().with_context(place)?);
        if !names.insert(&*config.name) {
            bail!("configuration: [[route]] {number}: the name {} is taken", config.name);
        }
    }
    Routes::new(rules, addressing).context("configuration: [[route]]")
}

impl RouteConfig {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The route.
    ///
    /// # Errors
    /// A value is missing or cannot be understood.
    pub fn rule(&self) -> anyhow::Result<Route> {
        let legal = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
        if self.name.is_empty() || !self.name.chars().all(legal) {
            bail!("name is {:?}; use letters, digits, '-', '_' and '.'", self.name);
        }
        let from = DestinationPattern::parse(&self.from).context("from")?;
        if from.temporary {
            bail!("from is {}; use queue:// or topic://", self.from);
        }
        let (targets, otherwise) =
            (self.targets("to", &self.to)?, self.targets("otherwise", &self.otherwise)?);
        if targets.is_empty() && self.recipients.is_none() {
            bail!(
                "it has no targets; use to = [{{ destination = \"queue://NAME\" }}] or recipients = \"HEADER\""
            );
        }
        if TARGETS_MAX < targets.len() + otherwise.len() {
            bail!("it has {} targets; the most is {TARGETS_MAX}", targets.len() + otherwise.len());
        }
        if TIME_MS_MAX < self.delay_ms {
            bail!("delay_ms is {}; the most is {TIME_MS_MAX}", self.delay_ms);
        }
        let dead_letter = self.dead_letter_queue.as_deref();
        let dead_letter =
            dead_letter.map(|name| one_address("dead_letter_queue", &qualified(name))).transpose()?;
        Ok(Route {
            name: self.name.as_str().into(),
            from,
            consumes: self.mode == ModeConfig::Consume,
            selector: selector(self.selector.as_deref())?,
            headers: header_rules(&self.remove, &self.copy, &self.set)?,
            distribution: match self.distribute {
                DistributeConfig::All => Distribution::All,
                DistributeConfig::First => Distribution::First,
                DistributeConfig::Balance => Distribution::Balance,
            },
            targets,
            otherwise,
            recipients: self.recipients()?,
            delay_ms: self.delay_ms,
            throttle: self.throttle()?,
            redelivery: self.redelivery()?,
            dead_letter,
        })
    }

    fn targets(&self, key: &str, configs: &[RouteTargetConfig]) -> anyhow::Result<Vec<RouteTarget>> {
        let target = |(number, config): (usize, &RouteTargetConfig)| {
            config.target().with_context(|| format!("{key} {number}"))
        };
        (1..).zip(configs).map(target).collect()
    }

    /// All addresses that it takes from or sends to, as far as it names them; `None` if messages
    /// may name any others.
    pub fn addresses(&self) -> Option<Vec<&str>> {
        let is_open = self.recipients.is_some() && self.recipients_allow.is_empty();
        let targets = self.to.iter().chain(&self.otherwise).map(|target| &*target.destination);
        let allowed = self.recipients_allow.iter().map(String::as_str);
        (!is_open).then(|| [&*self.from].into_iter().chain(targets).chain(allowed).collect())
    }

    /// Where messages go that cannot be sent on.
    pub fn dead_letter_queue(&self) -> Option<&str> {
        self.dead_letter_queue.as_deref()
    }

    fn recipients(&self) -> anyhow::Result<Option<Recipients>> {
        let Some(header) = self.recipients.as_deref() else {
            if self.recipients_delimiter.is_some() || !self.recipients_allow.is_empty() {
                bail!("recipients_delimiter and recipients_allow need recipients = \"HEADER\"");
            }
            return Ok(None);
        };
        let delimiter = self.recipients_delimiter.as_deref().unwrap_or(",");
        if header.is_empty() || delimiter.is_empty() {
            bail!("recipients and recipients_delimiter must not be empty");
        }
        let allow = self.recipients_allow.iter().map(|pattern| DestinationPattern::parse(pattern));
        let allow = allow.collect::<Result<_, _>>().context("recipients_allow")?;
        Ok(Some(Recipients { header: header.into(), delimiter: delimiter.into(), allow }))
    }

    fn redelivery(&self) -> anyhow::Result<Option<Redelivery>> {
        let times = [self.redelivery_delay_ms, self.redelivery_delay_max_ms];
        let Some(count_max) = self.redelivery_count else {
            if times.iter().any(Option::is_some) || self.redelivery_multiplier.is_some() {
                bail!(
                    "redelivery_delay_ms, redelivery_multiplier and redelivery_delay_max_ms need redelivery_count"
                );
            }
            return Ok(None);
        };
        if REDELIVERIES_MAX < count_max {
            bail!("redelivery_count is {count_max}; the most is {REDELIVERIES_MAX}");
        }
        if let Some(time_ms) =
            times.into_iter().flatten().find(|time_ms| !(1..=TIME_MS_MAX).contains(time_ms))
        {
            bail!(
                "redelivery_delay_ms or redelivery_delay_max_ms is {time_ms}; it must be from 1 to {TIME_MS_MAX}"
            );
        }
        if self.dead_letter_queue.is_none() {
            bail!(
                "redelivery_count needs dead_letter_queue = \"NAME\", for messages that are refused once more"
            );
        }
        let fallback = Redelivery::default();
        Ok(Some(Redelivery {
            count_max,
            delay_ms: self.redelivery_delay_ms.unwrap_or(fallback.delay_ms),
            multiplier: self.redelivery_multiplier.map_or(fallback.multiplier, Factor::from),
            delay_ms_max: self.redelivery_delay_max_ms.unwrap_or(fallback.delay_ms_max),
            ..fallback
        }))
    }

    fn throttle(&self) -> anyhow::Result<Option<Throttle>> {
        let period_ms = self.throttle_ms;
        if !(1..=TIME_MS_MAX).contains(&period_ms) {
            bail!("throttle_ms is {period_ms}; it must be from 1 to {TIME_MS_MAX}");
        }
        Ok((0 < self.throttle_messages).then_some(Throttle { messages: self.throttle_messages, period_ms }))
    }
}

impl RouteTargetConfig {
    fn target(&self) -> anyhow::Result<RouteTarget> {
        if TIME_MS_MAX < self.delay_ms {
            bail!("delay_ms is {}; the most is {TIME_MS_MAX}", self.delay_ms);
        }
        Ok(RouteTarget {
            destination: one_address("destination", &self.destination)?,
            selector: selector(self.selector.as_deref())?,
            headers: header_rules(&self.remove, &self.copy, &self.set)?,
            delay_ms: self.delay_ms,
        })
    }
}

fn qualified(queue: &str) -> String {
    if queue.contains("://") { queue.to_owned() } else { format!("queue://{queue}") }
}

/// A lasting queue or topic of one name.
fn one_address(key: &str, text: &str) -> anyhow::Result<Destination> {
    let DestinationPattern { kind, temporary, name } =
        DestinationPattern::parse(text).with_context(|| key.to_owned())?;
    if temporary || name.is_wildcard() {
        bail!("{key} is {text}; use a queue or topic, without wildcards and not temporary");
    }
    Ok(Destination { kind, temporary, name: name.text().into() })
}

fn selector(text: Option<&str>) -> anyhow::Result<Option<Selector>> {
    text.map(Selector::parse).transpose().with_context(|| format!("selector {:?}", text.unwrap_or_default()))
}

/// The header changes, in order; all values are read before any changes.
fn header_rules(
    remove: &[String],
    copy: &BTreeMap<String, String>,
    set: &BTreeMap<String, toml::Value>,
) -> anyhow::Result<Vec<HeaderRule>> {
    let mut rules = Vec::with_capacity(remove.len() + copy.len() + set.len());
    for name in remove {
        rules.push(HeaderRule { name: header_name("remove", name)?, change: HeaderChange::Remove });
    }
    for (name, from) in copy {
        let change = HeaderChange::Copy(from.as_str().into());
        rules.push(HeaderRule { name: header_name("copy", name)?, change });
    }
    for (name, value) in set {
        let change = match value {
            toml::Value::String(text) => {
                let template = Template::parse(text).with_context(|| format!("set {name}"))?;
                match template.constant() {
                    Some(text) => HeaderChange::Set(HeaderValue::String(text.into())),
                    None => HeaderChange::Template(template),
                }
            }
            toml::Value::Integer(value) => HeaderChange::Set(HeaderValue::integer(*value)),
            toml::Value::Float(value) => HeaderChange::Set(HeaderValue::Double(*value)),
            toml::Value::Boolean(value) => HeaderChange::Set(HeaderValue::Boolean(*value)),
            other => bail!("set {name} is {other}; use a text, a number or true or false"),
        };
        check_priority(name, &change)?;
        rules.push(HeaderRule { name: header_name("set", name)?, change });
    }
    Ok(rules)
}

fn check_priority(name: &str, change: &HeaderChange) -> anyhow::Result<()> {
    match change {
        HeaderChange::Set(value) if name == "JMSPriority" => {
            let priority = value.text().parse::<u8>();
            if !priority.is_ok_and(|priority| priority <= HIGHEST_PRIORITY) {
                bail!("set JMSPriority is {}; it must be from 0 to {HIGHEST_PRIORITY}", value.text());
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A property, or one of the headers of JMS that a route may change.
fn header_name(key: &str, name: &str) -> anyhow::Result<std::sync::Arc<str>> {
    let is_reserved = name.starts_with("JMS") && !name.starts_with("JMS_");
    if name.is_empty() || is_reserved && !SETTABLE_HEADERS.contains(&name) {
        bail!(
            "{key} {name:?}: a route changes properties, and of JMS's headers {}",
            SETTABLE_HEADERS.join(", ")
        );
    }
    if name == "JMSPriority" && key == "remove" {
        bail!("remove \"JMSPriority\": every message has a priority; use set = {{ JMSPriority = 4 }}");
    }
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn read(text: &str) -> Result<Routes, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        let addressing = config.addressing().map_err(|error| format!("{error:#}"))?;
        routes(&config.route, &addressing).map_err(|error| format!("{error:#}"))
    }

    const FROM: &str = "[[route]]\nname = \"r\"\nfrom = \"queue://a\"\n";

    #[test]
    fn a_route_is_read_with_all_that_it_says() {
        let text = "[[route]]
            name = \"orders\"
            from = \"queue://orders.>\"
            mode = \"copy\"
            selector = \"kind = 'order'\"
            set = { stage = 2, key = \"${region}-${id}\", on = true, JMSPriority = 7 }
            copy = { was = \"region\" }
            remove = [\"secret\"]
            distribute = \"first\"
            to = [{ destination = \"queue://eu\", selector = \"region = 'eu'\", delay_ms = 5 }, { destination = \"topic://rest\" }]
            otherwise = [{ destination = \"queue://others\" }]
            recipients = \"cc\"
            recipients_allow = [\"queue://cc.>\"]
            delay_ms = 10
            throttle_messages = 100
            redelivery_count = 3
            redelivery_delay_ms = 10
            redelivery_multiplier = 2
            dead_letter_queue = \"bad\"";
        let routes = read(text).unwrap();
        let rule = routes.rules().next().unwrap().clone();
        let names: Vec<&str> = rule.headers.iter().map(|rule| &*rule.name).collect();
        assert_eq!(names, ["secret", "was", "JMSPriority", "key", "on", "stage"]);
        assert_eq!((rule.targets.len(), rule.otherwise.len(), rule.consumes), (2, 1, false));
        assert_eq!(rule.throttle, Some(Throttle { messages: 100, period_ms: 1_000 }));
        assert_eq!(rule.dead_letter, Some(Destination::queue("bad")));
        assert_eq!(rule.distribution, Distribution::First);
        let redelivery = rule.redelivery.unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|failed| redelivery.rest_ms(failed)),
            [Some(10), Some(20), Some(40), None]
        );
    }

    #[test]
    fn a_route_that_cannot_be_is_refused_with_its_reason() {
        let to = "to = [{ destination = \"queue://b\" }]\n";
        for (text, want) in [
            (FROM.to_owned(), "it has no targets"),
            (format!("{FROM}to = [{{ destination = \"queue://b.>\" }}]"), "to 1: destination is queue://b.>"),
            (format!("{FROM}to = [{{ destination = \"b\" }}]"), "must start with queue://"),
            (format!("{FROM}{to}selector = \"a =\""), "selector \"a =\""),
            (format!("{FROM}{to}set = {{ JMSMessageID = \"x\" }}"), "set \"JMSMessageID\": a route changes"),
            (format!("{FROM}{to}set = {{ JMSPriority = 10 }}"), "it must be from 0 to 9"),
            (format!("{FROM}{to}set = {{ x = \"${{y\" }}"), "has no closing brace"),
            (format!("{FROM}{to}throttle_ms = 0"), "throttle_ms is 0; it must be from 1 to"),
            (format!("{FROM}{to}redelivery_delay_ms = 5"), "need redelivery_count"),
            (format!("{FROM}{to}redelivery_count = 5"), "redelivery_count needs dead_letter_queue"),
            (
                format!("{FROM}{to}redelivery_count = 5\nredelivery_delay_ms = 0\ndead_letter_queue = \"d\""),
                "is 0; it must be from 1 to",
            ),
            (format!("{FROM}{to}redelivery_count = 10001"), "redelivery_count is 10001; the most is 10000"),
            (
                format!("{FROM}{to}redelivery_count = 1\nredelivery_multiplier = 0.5"),
                "0.5 is not a factor from 1",
            ),
            (format!("{FROM}{to}recipients_allow = [\"queue://b\"]"), "need recipients"),
            (format!("{FROM}{to}{FROM}{to}"), "the name r is taken"),
            (FROM.replace("queue://a", "temp-queue://a") + to, "use queue:// or topic://"),
            (
                format!("{FROM}to = [{{ destination = \"queue://a\" }}]"),
                "routes form a cycle: r (queue://a) -> r",
            ),
            (
                format!(
                    "{FROM}{to}[[route]]\nname = \"back\"\nfrom = \"queue://*\"\nto = [{{ destination = \"queue://a\" }}]"
                ),
                "routes form a cycle: r (queue://b) -> back (queue://a) -> r",
            ),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(want), "{text}\n{error}");
        }
    }

    #[test]
    fn a_pattern_that_matches_its_own_target_is_no_cycle() {
        let text = "[[route]]\nname = \"tap\"\nfrom = \"queue://>\"\nmode = \"copy\"\nto = [{ destination = \"queue://audit\" }]";
        assert!(read(text).is_ok());
    }

    #[test]
    fn a_cycle_may_pass_a_composite_destination() {
        let text = format!(
            "{FROM}to = [{{ destination = \"queue://c\" }}]\n[[composite]]\naddress = \"queue://c\"\ntargets = [{{ destination = \"queue://a\" }}]"
        );
        assert!(read(&text).unwrap_err().contains("routes form a cycle: r (queue://a) -> r"));
    }
}

//! `[[alert]]`: conditions that operators are notified of.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use postroad_admin::{AlertRule, Measure, RULES_MAX, Recipient, Severity};
use postroad_model::Destination;
use postroad_routing::DestinationPattern;
use serde::Deserialize;

/// The longest time that a condition can be asked to last: a day.
const FOR_SECONDS_MAX: u64 = 86_400;

/// Patterns and recipients of one rule.
const PATTERNS_MAX: usize = 100;
const RECIPIENTS_MAX: usize = 10;

/// A name is a label of a metric.
const NAME_BYTES_MAX: usize = 100;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertConfig {
    /// Its name.
    name: String,
    /// Which value is watched.
    on: String,
    /// Patterns of queues and topics; empty for every queue.
    #[serde(default)]
    destinations: Vec<String>,
    /// The alert fires above this value.
    above: Option<u64>,
    /// It resolves at this value, or below.
    clear_at: Option<u64>,
    /// The condition must hold for this time, and be over for this time.
    #[serde(default)]
    for_seconds: u64,
    /// `warning` or `critical`.
    #[serde(default)]
    severity: SeverityConfig,
    /// `log`, URLs of webhooks, and queues or topics.
    #[serde(default = "to_log")]
    to: Vec<String>,
}

/// See [`Severity`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SeverityConfig {
    #[default]
    Warning,
    Critical,
}

fn to_log() -> Vec<String> {
    vec!["log".to_owned()]
}

/// The rules of a file.
///
/// # Errors
/// One is incomplete or malformed: with its number.
pub fn rules(alerts: &[AlertConfig]) -> anyhow::Result<Vec<AlertRule>> {
    if RULES_MAX < alerts.len() {
        bail!("configuration: there are {} rules [[alert]]; the most is {RULES_MAX}", alerts.len());
    }
    let mut names = BTreeSet::new();
    let rules = (1..).zip(alerts).map(|(number, alert)| {
        let rule = alert.rule().and_then(|rule| match names.insert(rule.name.clone()) {
            true => Ok(rule),
            false => bail!("there is another [[alert]] of the name {:?}", rule.name),
        });
        rule.with_context(|| format!("configuration: [[alert]] {number}"))
    });
    rules.collect()
}

impl AlertConfig {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rule.
    ///
    /// # Errors
    /// A value is missing or cannot be understood.
    pub fn rule(&self) -> anyhow::Result<AlertRule> {
        if self.name.is_empty() || NAME_BYTES_MAX < self.name.len() {
            bail!("its name has {} bytes; 1 to {NAME_BYTES_MAX} is right", self.name.len());
        }
        let on = self.measure()?;
        if !on.is_of_queue() && !self.destinations.is_empty() {
            bail!("on = {:?} is of the broker: destinations must not be set", self.on);
        }
        let above = match (self.above, on) {
            (Some(above), _) => above,
            (None, Measure::NoConsumer | Measure::Ledger | Measure::DeadLetters) => 0,
            (None, _) => bail!("on = {:?} needs above, the value beyond which the alert fires", self.on),
        };
        let clear_at = self.clear_at.unwrap_or(above);
        if above < clear_at {
            bail!("clear_at is {clear_at}; it must not be higher than above, which is {above}");
        }
        if FOR_SECONDS_MAX < self.for_seconds {
            bail!("for_seconds is {}; the most is {FOR_SECONDS_MAX}", self.for_seconds);
        }
        let within = |key: &str, count: usize, max: usize| match count <= max {
            true => Ok(()),
            false => bail!("{key} has {count} entries; the most is {max}"),
        };
        within("destinations", self.destinations.len(), PATTERNS_MAX)?;
        within("to", self.to.len(), RECIPIENTS_MAX)?;
        let patterns = self.destinations.iter().map(|pattern| DestinationPattern::parse(pattern));
        Ok(AlertRule {
            name: self.name.as_str().into(),
            severity: match self.severity {
                SeverityConfig::Warning => Severity::Warning,
                SeverityConfig::Critical => Severity::Critical,
            },
            on,
            destinations: patterns.collect::<Result<_, _>>()?,
            above,
            clear_at,
            lasts: Duration::from_secs(self.for_seconds),
            to: self.to.iter().map(|to| recipient(to)).collect::<anyhow::Result<_>>()?,
        })
    }

    fn measure(&self) -> anyhow::Result<Measure> {
        let found = Measure::ALL.into_iter().find(|measure| measure.name() == self.on);
        found.with_context(|| {
            let names: Vec<&str> = Measure::ALL.iter().map(|measure| measure.name()).collect();
            format!("on is {:?}; right is one of {}", self.on, names.join(", "))
        })
    }
}

fn recipient(text: &str) -> anyhow::Result<Recipient> {
    let named = |name: &str, destination: fn(&str) -> Destination| match name.is_empty() {
        true => bail!("to has {text:?}, which names no destination"),
        false => Ok(Recipient::Destination(destination(name))),
    };
    match text.split_once("://") {
        None if text == "log" => Ok(Recipient::Log),
        Some(("queue", name)) => named(name, Destination::queue),
        Some(("topic", name)) => named(name, Destination::topic),
        Some(("http" | "https", _)) => {
            let url: hyper::Uri =
                text.parse().with_context(|| format!("to has {text:?}, which is not a URL"))?;
            match url.host() {
                Some(_) => Ok(Recipient::Webhook(text.to_owned())),
                None => bail!("to has {text:?}, which names no host"),
            }
        }
        _ => bail!("to has {text:?}; right is log, http://…, https://…, queue://NAME or topic://NAME"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn read(text: &str) -> anyhow::Result<Vec<AlertRule>> {
        Config::parse(text)?.alert_rules()
    }

    #[test]
    fn a_rule_is_read_with_its_defaults() {
        let text = "[[alert]]\nname = \"deep\"\non = \"depth\"\nabove = 1000\ndestinations = [\"queue://orders.>\"]\n\
                    to = [\"log\", \"https://hooks.example/a\", \"queue://ops\"]";
        let rules = read(text).unwrap();
        let [rule] = &rules[..] else { panic!("{rules:?}") };
        assert_eq!((rule.above, rule.clear_at, rule.lasts), (1000, 1000, Duration::ZERO));
        assert!(
            rule.covers(&Destination::queue("orders.a")) && !rule.covers(&Destination::topic("orders.a"))
        );
        let webhook = Recipient::Webhook("https://hooks.example/a".to_owned());
        assert_eq!(rule.to, [Recipient::Log, webhook, Recipient::Destination(Destination::queue("ops"))]);
        let rules = read("[[alert]]\nname = \"lonely\"\non = \"no_consumer\"").unwrap();
        assert_eq!((rules[0].above, &rules[0].to[..]), (0, &[Recipient::Log][..]));
        assert!(rules[0].covers(&Destination::queue("any")));
    }

    #[test]
    fn a_rule_that_cannot_be_meant_is_refused_by_number() {
        for (rest, want) in [
            ("on = \"length\"", "on is \"length\"; right is one of depth, age,"),
            ("on = \"depth\"", "on = \"depth\" needs above"),
            ("on = \"depth\"\nabove = 5\nclear_at = 6", "clear_at is 6; it must not be higher than above"),
            ("on = \"depth\"\nabove = 5\nfor_seconds = 90000", "for_seconds is 90000; the most is 86400"),
            ("on = \"disk\"\nabove = 5\ndestinations = [\"queue://a\"]", "destinations must not be set"),
            ("on = \"depth\"\nabove = 5\ndestinations = [\"a\"]", "must start with queue://"),
            ("on = \"depth\"\nabove = 5\nto = [\"mail\"]", "to has \"mail\"; right is log, http://"),
            ("on = \"depth\"\nabove = 5\nto = [\"queue://\"]", "names no destination"),
            ("on = \"depth\"\nabove = 5\nto = [\"http:///x\"]", "to has \"http:///x\", which"),
        ] {
            let error = format!("{:#}", read(&format!("[[alert]]\nname = \"a\"\n{rest}")).unwrap_err());
            assert!(error.contains("[[alert]] 1: ") && error.contains(want), "{rest}: {error}");
        }
        let one = "[[alert]]\nname = \"a\"\non = \"no_consumer\"\n";
        let error = format!("{:#}", read(&one.repeat(2)).unwrap_err());
        assert!(error.contains("[[alert]] 2: there is another [[alert]] of the name \"a\""), "{error}");
        let many: String =
            (0..=RULES_MAX).map(|number| one.replace("\"a\"", &format!("\"{number}\""))).collect();
        let error = format!("{:#}", read(&many).unwrap_err());
        assert!(error.contains("there are 201 rules [[alert]]; the most is 200"), "{error}");
    }
}

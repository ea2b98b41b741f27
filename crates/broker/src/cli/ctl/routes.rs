//! `postroad ctl routes test`: the targets and header changes of one message, by a configuration
//! file. Nothing is sent.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use postroad_model::{Destination, HeaderValue};
use postroad_routing::{DestinationPattern, RoutedCopy};
use postroad_selector::{Properties, Value};
use serde::Deserialize;

use crate::config::Config;

/// A message to test is small: headers alone.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The message, and the routes.
#[derive(Debug, Args)]
pub struct TestArguments {
    /// JSON file with the message: {"to": "queue://orders", "headers": {"region": "eu"}}.
    #[arg(long, value_name = "FILE")]
    message: PathBuf,
    /// Configuration file with the routes.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object for each target.
    #[arg(long)]
    json: bool,
}

/// A message of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestMessage {
    to: String,
    #[serde(default)]
    headers: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    body: Option<String>,
}

impl Properties for TestMessage {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        match self.headers.get(name)? {
            serde_json::Value::Null => None,
            serde_json::Value::Bool(value) => Some((*value).into()),
            serde_json::Value::Number(number) => {
                number.as_i64().map(Value::Long).or_else(|| number.as_f64().map(Value::Double))
            }
            serde_json::Value::String(text) => Some(text.as_str().into()),
            _ => Some(Value::Other),
        }
    }

    fn body(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.body.as_deref().map(Into::into)
    }
}

/// Prints the targets of the message.
///
/// # Errors
/// A file cannot be read or understood.
pub fn test(arguments: &TestArguments) -> anyhow::Result<()> {
    let config = Config::of(Some(&arguments.config))?;
    let (addressing, policies) = (config.addressing()?, config.policies()?);
    let (to, message) = read_message(&arguments.message)?;
    let routed = policies.routes.dry_run(&addressing, std::iter::once(&to), &message);
    let mut out = std::io::stdout().lock();
    let lines = routed.copies.iter().flat_map(|copy| copy.to.iter().map(move |to| (to, copy)));
    for (to, copy) in lines {
        let written = match arguments.json {
            true => writeln!(out, "{}", as_json(to, copy)),
            false => writeln!(out, "{}", as_text(to, copy)),
        };
        written.context("cannot write to standard output")?;
    }
    Ok(())
}

fn read_message(file: &Path) -> anyhow::Result<(Destination, TestMessage)> {
    let place = || format!("in the message {}", file.display());
    let bytes = std::fs::metadata(file).with_context(place)?.len();
    if FILE_BYTES_MAX < bytes {
        bail!("the message {} has {bytes} bytes; the most is {FILE_BYTES_MAX}", file.display());
    }
    let text = std::fs::read_to_string(file).with_context(place)?;
    let message: TestMessage = serde_json::from_str(&text).with_context(place)?;
    let DestinationPattern { kind, temporary, name } =
        DestinationPattern::parse(&message.to).context("\"to\"").with_context(place)?;
    if temporary || name.is_wildcard() {
        bail!("\"to\" is {}; use queue://NAME or topic://NAME, {}", message.to, place());
    }
    Ok((Destination { kind, temporary, name: name.text().into() }, message))
}

/// `queue://eu  key = "eu/7"  remove secret  delay 5 ms`.
fn as_text(to: &Destination, copy: &RoutedCopy) -> String {
    let mut text = to.to_string();
    for (name, value) in copy.changes.iter() {
        text += &match value {
            None => format!("  remove {name}"),
            Some(value) => format!("  {name} = {}", json_of(value)),
        };
    }
    if 0 < copy.hold.delay_ms {
        text += &format!("  delay {} ms", copy.hold.delay_ms);
    }
    if let Some(pace) = &copy.hold.pace {
        text += &format!("  at most {} in {} ms", pace.messages, pace.period_ms);
    }
    text
}

fn as_json(to: &Destination, copy: &RoutedCopy) -> serde_json::Value {
    let changes = copy.changes.iter();
    let set: serde_json::Map<String, serde_json::Value> =
        changes.filter_map(|(name, value)| Some((name.to_owned(), json_of(value?)))).collect();
    let removed: Vec<&str> =
        copy.changes.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
    serde_json::json!({
        "to": to.to_string(), "set": set, "remove": removed, "delay_ms": copy.hold.delay_ms,
        "throttled": copy.hold.pace.is_some(),
    })
}

fn json_of(value: &HeaderValue) -> serde_json::Value {
    match value {
        HeaderValue::Boolean(value) => (*value).into(),
        HeaderValue::Int(value) => (*value).into(),
        HeaderValue::Long(value) => (*value).into(),
        HeaderValue::Double(value) => (*value).into(),
        HeaderValue::String(text) => text.as_ref().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_shows_targets_and_changes() {
        let config: Config = toml::from_str(
            "[[route]]
            name = \"orders\"
            from = \"queue://orders\"
            set = { key = \"${region}/${n}\" }
            remove = [\"secret\"]
            delay_ms = 5
            to = [{ destination = \"queue://eu\", selector = \"region = 'eu'\" }, { destination = \"queue://us\", selector = \"region = 'us'\" }]",
        )
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("message.json");
        std::fs::write(&file, "{\"to\": \"queue://orders\", \"headers\": {\"region\": \"eu\", \"n\": 7}}")
            .unwrap();
        let (to, message) = read_message(&file).unwrap();
        let routes = config.policies().unwrap().routes;
        let routed = routes.dry_run(&config.addressing().unwrap(), std::iter::once(&to), &message);
        let shown: Vec<String> = routed.copies.iter().map(|copy| as_text(&copy.to[0], copy)).collect();
        assert_eq!(shown, ["queue://eu  key = \"eu/7\"  remove secret  delay 5 ms"]);
        assert_eq!(routes.counted().next().unwrap().1.figures().matched, 0, "nothing is counted");
        for (text, want) in [
            ("{\"to\": \"orders\"}", "must start with queue://"),
            ("{\"to\": \"queue://a.*\"}", "use queue://NAME"),
            ("{\"from\": 1}", "unknown field `from`"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = format!("{:#}", read_message(&file).unwrap_err());
            assert!(error.contains(want) && error.contains("message.json"), "{error}");
        }
    }
}

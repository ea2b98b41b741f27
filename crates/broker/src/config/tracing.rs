//! `[runtime.tracing]`: which messages are traced.

use anyhow::bail;
use postroad_node::TraceOptions;
use postroad_trace::{KEPT_MAX, Sampling};
use serde::Deserialize;

/// Messages in a second that may be traced at most: each takes some microseconds of its core.
const PER_SECOND_MAX: u32 = 10_000;

/// Traces of messages. Without the section no message is traced, and none is searched for a
/// context.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracingConfig {
    /// Whether messages are traced.
    enabled: bool,
    /// The share of messages without a trace context that is traced, from 0 to 1.
    sample: f64,
    /// Messages in a second that are traced at most.
    messages_per_second: u32,
    /// Messages that are kept for `ctl trace`.
    kept_messages: usize,
    /// The collector to which spans are sent; empty for none.
    endpoint: String,
}

impl Default for TracingConfig {
    fn default() -> TracingConfig {
        TracingConfig {
            enabled: false,
            sample: 0.0,
            messages_per_second: 100,
            kept_messages: 1000,
            endpoint: String::new(),
        }
    }
}

impl TracingConfig {
    /// Checks its values.
    ///
    /// # Errors
    /// One is out of its range: with its name.
    pub fn check(&self) -> anyhow::Result<()> {
        let TracingConfig { sample, messages_per_second, kept_messages, .. } = *self;
        if !(0.0..=1.0).contains(&sample) {
            bail!("runtime.tracing.sample is {sample}; it is a share, from 0 to 1");
        }
        if !(1..=PER_SECOND_MAX).contains(&messages_per_second) {
            bail!(
                "runtime.tracing.messages_per_second is {messages_per_second}; it can be 1 to {PER_SECOND_MAX}; \
                 enabled = false traces no message"
            );
        }
        if !(1..=KEPT_MAX).contains(&kept_messages) {
            bail!("runtime.tracing.kept_messages is {kept_messages}; it can be 1 to {KEPT_MAX}");
        }
        let is_url = |url: &str| {
            let parsed: Option<hyper::Uri> = url.parse().ok();
            parsed
                .is_some_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some())
        };
        if !self.endpoint.is_empty() && !is_url(&self.endpoint) {
            let endpoint = &self.endpoint;
            bail!("runtime.tracing.endpoint is {endpoint:?}; a URL is right, such as http://localhost:4318");
        }
        Ok(())
    }

    /// Where spans are posted, if they are.
    pub fn spans_url(&self) -> Option<String> {
        let endpoint = self.endpoint.trim_end_matches('/');
        (self.enabled && !endpoint.is_empty()).then(|| format!("{endpoint}/v1/traces"))
    }

    /// How messages are traced; `None` if they are not.
    pub fn options(&self, (now_us, wall_us): (Clock, Clock), replicated: bool) -> Option<TraceOptions> {
        let sampling = Sampling { ratio: self.sample, per_second: self.messages_per_second };
        let options = || TraceOptions {
            sampling,
            kept_max: self.kept_messages,
            replicated,
            now_us,
            wall_us,
            seed: random_seed(),
            exports: !self.endpoint.is_empty(),
        };
        self.enabled.then(options)
    }
}

/// Microseconds of a clock.
type Clock = fn() -> u64;

/// Other processes have other ids.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (text, want) in [
            ("", None),
            ("sample = 1.0\nmessages_per_second = 10000\nkept_messages = 10000", None),
            ("sample = 1.1", Some("runtime.tracing.sample")),
            ("sample = -0.1", Some("runtime.tracing.sample")),
            ("sample = nan", Some("runtime.tracing.sample")),
            ("messages_per_second = 0", Some("runtime.tracing.messages_per_second")),
            ("messages_per_second = 10001", Some("runtime.tracing.messages_per_second")),
            ("kept_messages = 0", Some("runtime.tracing.kept_messages")),
            ("kept_messages = 10001", Some("runtime.tracing.kept_messages")),
            ("endpoint = 'http://[::1]:4318/'", None),
            ("endpoint = 'localhost:4318'", Some("runtime.tracing.endpoint")),
            ("endpoint = 'ftp://localhost'", Some("runtime.tracing.endpoint")),
        ] {
            let config: TracingConfig = toml::from_str(text).unwrap();
            let refused = config.check().err().map(|error| error.to_string());
            assert_eq!(refused.is_some(), want.is_some(), "{text}: {refused:?}");
            assert!(refused.unwrap_or_default().contains(want.unwrap_or_default()), "{text}");
        }
    }

    #[test]
    fn no_message_is_traced_unless_it_is_enabled() {
        let options = |text: &str| {
            let config: TracingConfig = toml::from_str(text).unwrap();
            config.options((|| 0, || 0), false).map(|options| options.kept_max)
        };
        assert_eq!((options("sample = 1.0"), options("enabled = true")), (None, Some(1000)));
    }
}

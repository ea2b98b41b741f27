//! `[runtime.tracing]`: which messages are traced.

use std::path::PathBuf;

use anyhow::{Context, bail};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use postroad_node::TraceOptions;
use postroad_trace::{KEPT_MAX, Sampling};
use serde::Deserialize;

use super::secrets::{text_in_file, text_in_variable};

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
    /// The file with headers for the collector, such as its secret; empty for none.
    headers_file: PathBuf,
    /// The environment variable with them; empty for none.
    headers_env: String,
}

/// Headers for the collector, at most.
const HEADERS_MAX: usize = 16;

impl Default for TracingConfig {
    fn default() -> TracingConfig {
        TracingConfig {
            enabled: false,
            sample: 0.0,
            messages_per_second: 100,
            kept_messages: 1000,
            endpoint: String::new(),
            headers_file: PathBuf::new(),
            headers_env: String::new(),
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
        if !self.headers_file.as_os_str().is_empty() && !self.headers_env.is_empty() {
            bail!("runtime.tracing has headers_file and headers_env: one of them is right");
        }
        Ok(())
    }

    /// Headers for the collector, as they are now. No error shows a value.
    ///
    /// # Errors
    /// They cannot be read, or are malformed.
    pub fn headers(&self) -> anyhow::Result<HeaderMap> {
        let (text, key) = if !self.headers_file.as_os_str().is_empty() {
            let key = format!("runtime.tracing.headers_file {}", self.headers_file.display());
            (text_in_file(&self.headers_file, "list of headers"), key)
        } else if !self.headers_env.is_empty() {
            let key = format!("runtime.tracing.headers_env {}", self.headers_env);
            (text_in_variable(&self.headers_env), key)
        } else {
            return Ok(HeaderMap::new());
        };
        text.and_then(|text| headers_of(&text)).context(key)
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

/// Reads `name=value` pairs, with commas or line ends between them and values in percent encoding:
/// the form of `OTEL_EXPORTER_OTLP_HEADERS`.
fn headers_of(text: &str) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let pairs = text.split([',', '\n']).map(str::trim).filter(|pair| !pair.is_empty());
    for (number, pair) in (1..).zip(pairs) {
        let fault = || format!("header {number} is not NAME=VALUE");
        let (name, value) = pair.split_once('=').with_context(fault)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| anyhow::anyhow!(fault()))?;
        let value = decoded(value.trim()).with_context(fault)?;
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| anyhow::anyhow!(fault()))?;
        value.set_sensitive(true);
        headers.insert(name, value);
        if HEADERS_MAX < headers.len() {
            bail!("there are more than {HEADERS_MAX} headers");
        }
    }
    Ok(headers)
}

/// A value without its percent encoding; `None` if that is malformed.
fn decoded(value: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    Some(bytes)
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
            ("headers_file = '/run/secret'", None),
            ("headers_file = '/run/secret'\nheaders_env = 'SECRET'", Some("headers_file and headers_env")),
        ] {
            let config: TracingConfig = toml::from_str(text).unwrap();
            let refused = config.check().err().map(|error| error.to_string());
            assert_eq!(refused.is_some(), want.is_some(), "{text}: {refused:?}");
            assert!(refused.unwrap_or_default().contains(want.unwrap_or_default()), "{text}");
        }
    }

    #[test]
    fn headers_are_read_and_no_error_shows_a_value() {
        let read = |text: &str| {
            let headers = headers_of(text).map_err(|error| format!("{error:#}"))?;
            assert!(headers.values().all(HeaderValue::is_sensitive), "{text}");
            let shown = |(name, value): (&HeaderName, &HeaderValue)| {
                format!("{name}:{}", value.to_str().unwrap_or("?"))
            };
            Ok(headers.iter().map(shown).collect::<Vec<_>>().join(" "))
        };
        let is_not = |number: u32| Err(format!("header {number} is not NAME=VALUE"));
        for (text, want) in [
            ("", Ok("".to_owned())),
            ("Authorization=Basic%20YTpi==\n", Ok("authorization:Basic YTpi==".to_owned())),
            ("api-key = s3cret , x-scope=a%2Cb", Ok("api-key:s3cret x-scope:a,b".to_owned())),
            ("# api-key=s3cret", is_not(1)),
            ("a=b\ns3cret", is_not(2)),
            ("api key=s3cret", is_not(1)),
            ("api-key=s3cret%", is_not(1)),
            ("api-key=s3cret%0a", is_not(1)),
            ("api-key=s3cret%g1", is_not(1)),
            ("api-key=s3cret%+1", is_not(1)),
        ] {
            assert_eq!(read(text), want, "{text}");
        }
        let many: Vec<_> = (0..=HEADERS_MAX).map(|number| format!("h{number}=v")).collect();
        assert_eq!(read(&many[1..].join(",")).map(|all| all.split(' ').count()), Ok(HEADERS_MAX));
        assert!(read(&many.join(",")).is_err());
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

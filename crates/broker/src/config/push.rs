//! Push queues, as the configuration file says it.

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::runtime::{Network, Networks, PushOptions};

/// Ranges that may be allowed, at most.
const NETWORKS_MAX: usize = 1000;

/// `[push]`: messages that go to HTTP endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PushConfig {
    /// Private addresses and networks to which may be pushed.
    allow: Vec<String>,
    /// How endpoints reach the HTTP port; empty for where it listens.
    url: String,
}

impl PushConfig {
    /// The options; `listens` is the URL of the HTTP port, and `requests_max` may be under way at a
    /// time.
    ///
    /// # Errors
    /// A network or the URL cannot be read.
    pub fn options(&self, listens: &str, requests_max: usize) -> anyhow::Result<PushOptions> {
        if NETWORKS_MAX < self.allow.len() {
            bail!("configuration: push.allow has more than {NETWORKS_MAX} networks");
        }
        let networks = self.allow.iter().map(|text| text.parse::<Network>());
        let networks = networks.collect::<Result<Vec<_>, _>>().context("configuration: push.allow")?;
        let url = if self.url.is_empty() { listens } else { self.url.trim_end_matches('/') };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            bail!("configuration: push.url is {url}; it must start with http:// or https://");
        }
        Ok(PushOptions { allowed: Networks(networks), url: url.to_owned(), requests_max })
    }
}

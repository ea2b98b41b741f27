//! Queues over HTTP, as the configuration file says it.

use serde::Deserialize;

use crate::runtime::Origins;

/// `[http]`: the queues over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Origins whose pages may use the queues from a browser; `*` is any.
    origins: Vec<String>,
}

impl HttpConfig {
    /// The origins.
    pub fn origins(&self) -> Origins {
        Origins::new(self.origins.clone())
    }
}

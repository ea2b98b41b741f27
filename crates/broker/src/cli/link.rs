//! How sub-commands reach a broker.

use clap::Args;
use postroad_bench::{BrokerUrl, Link, LinkError, Stop};

/// Where the broker is, and who we are.
#[derive(Clone, Debug, Args)]
pub struct ConnectArguments {
    /// URL of the broker.
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:61616")]
    pub url: BrokerUrl,
    /// User name.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Password of the user.
    #[arg(long, value_name = "TEXT")]
    pub password: Option<String>,
}

impl ConnectArguments {
    /// Connects, and waits until the broker has accepted.
    ///
    /// # Errors
    /// As [`Link::open`].
    pub fn open(&self, stop: &Stop) -> Result<Link, LinkError> {
        Link::open(&self.url, self.user.clone(), self.password.clone(), stop.flag())
    }
}

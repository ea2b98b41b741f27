//! Reloading: on SIGHUP the whole configuration, and after a change of users or groups these alone.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::bail;
use postroad_admin::{AlertRule, Reload};
use postroad_net::TlsConfig;
use postroad_routing::Policies;
use postroad_security::{Attempts, Door, TokenBook, UserFile};
use tokio::sync::{mpsc, oneshot};

use crate::cli::ServeArguments;
use crate::config::{Bridge, Config};

/// Changes that wait for the main thread, at most: each request waits for its own.
const CHANGES_MAX: usize = 16;

/// A change of users that the broker is to follow, with the way of the answer.
pub type Changed = oneshot::Sender<Result<(), String>>;

/// The parts of the configuration that a running broker follows.
pub struct Reread {
    pub policies: Policies,
    pub alerts: Vec<AlertRule>,
    pub tls: Option<TlsConfig>,
    pub door: Door,
    pub bridges: Vec<Bridge>,
}

/// The configuration in force, and the files of identities beside it.
pub struct Reloader<'a> {
    arguments: &'a ServeArguments,
    config: RefCell<Config>,
    tokens: Arc<TokenBook>,
    attempts: Arc<Attempts>,
    file: Option<Arc<UserFile>>,
}

impl Reloader<'_> {
    /// Begins with this configuration.
    ///
    /// # Errors
    /// The file of tokens cannot be read.
    pub fn new<'a>(arguments: &'a ServeArguments, config: &Config) -> anyhow::Result<Reloader<'a>> {
        let file = config.users_file().map(|file| Arc::new(UserFile::new(file)));
        let (tokens, attempts) = (Arc::new(config.tokens()?), Arc::default());
        Ok(Reloader { arguments, config: RefCell::new(config.clone()), tokens, attempts, file })
    }

    /// Policies and users by the configuration in force, with the files of identities as they are
    /// now.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn identities(&self) -> anyhow::Result<(Policies, Door)> {
        self.identities_by(&self.config.borrow())
    }

    fn identities_by(&self, config: &Config) -> anyhow::Result<(Policies, Door)> {
        let (policies, door) = config.identities(&self.tokens, &self.attempts)?;
        Ok((policies, self.file.iter().fold(door, |door, file| door.with_file(file.clone()))))
    }

    /// The configuration in force, with the files of identities as they are now.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn in_force(&self) -> anyhow::Result<Reread> {
        let config = self.config.borrow();
        let (alerts, bridges, tls) = (config.alert_rules()?, config.bridges()?, config.tls()?);
        let (policies, door) = self.identities_by(&config)?;
        Ok(Reread { policies, alerts, tls, door, bridges })
    }

    /// Reads the configuration file again; the result is in force from now on.
    ///
    /// # Errors
    /// A file cannot be read, or another file of users is named; the configuration before stays in
    /// force.
    pub fn reread(&self) -> anyhow::Result<Reread> {
        let config = Config::load(self.arguments)?;
        if config.users_file() != self.config.borrow().users_file() {
            bail!("security.users names another file: this needs a restart");
        }
        let (alerts, bridges, tls) = (config.alert_rules()?, config.bridges()?, config.tls()?);
        self.tokens.reload()?;
        let (policies, door) = self.identities_by(&config)?;
        self.config.replace(config);
        Ok(Reread { policies, alerts, tls, door, bridges })
    }
}

/// The way of requests to the main thread, and its end there.
pub fn channel() -> (Reload, mpsc::Receiver<Changed>) {
    let (changes, receiver) = mpsc::channel::<Changed>(CHANGES_MAX);
    let reload = Arc::new(move || {
        let changes = changes.clone();
        let ended = || "the broker is shutting down".to_owned();
        let future = async move {
            let (answer, answered) = oneshot::channel();
            changes.send(answer).await.map_err(|_| ended())?;
            answered.await.map_err(|_| ended())?
        };
        Box::pin(future) as _
    });
    (reload, receiver)
}

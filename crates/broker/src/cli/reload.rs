//! The configuration in force, and its changes: by SIGHUP and by operators the whole file, after a
//! change of users or groups these alone.

use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, bail};
use postroad_admin::{
    AlertRule, Configuration, ConfigurationAnswer, ConfigurationAuthor, ConfigurationFault,
    ConfigurationOrder, ConfigurationPlan, ConfigurationSource, ConfigurationVersion, Reload, RulesAnswer,
    RulesOrder, TenantRulesKeeper,
};
use postroad_model::{DocumentChange, Refusal};
use postroad_net::TlsConfig;
use postroad_routing::Policies;
use postroad_security::{
    AccessKeyBook, Attempts, Documents, Door, SessionBook, TenantBook, Text, TokenBook, UserFile,
};
use tokio::sync::{mpsc, oneshot};

use crate::cli::ServeArguments;
use crate::cli::directory::Directory;
use crate::cli::oidc_keys::Provider;
use crate::cli::store_count;
use crate::cli::versions::{KeptVersion, Versions, check_length, replace_configuration};
use crate::config::{Bridge, Config, Settings, TenantRuleBook, is_masked, without_secrets};
use crate::runtime::now_ms;

/// Changes that wait for the main thread, at most: each request waits for its own.
const CHANGES_MAX: usize = 16;

/// Work for the main thread, with the way of the answer.
pub enum Changed {
    /// Users, groups or tokens are others now.
    Identities(oneshot::Sender<Result<(), String>>),
    /// An order about the configuration.
    Configuration(ConfigurationOrder, oneshot::Sender<Result<ConfigurationAnswer, ConfigurationFault>>),
    /// An order about the rules of tenants.
    Rules(RulesOrder, RulesAnswered),
    /// The nodes of the cluster have the new rules of tenants, or refused them.
    RulesCommitted(Box<RulesChange>, Result<(), Refusal>, RulesAnswered),
}

/// The way of the answer to an order about the rules of tenants.
pub type RulesAnswered = oneshot::Sender<Result<RulesAnswer, ConfigurationFault>>;

/// Rules of tenants that are to be committed by the nodes of the cluster before they are in force.
pub struct RulesChange {
    answer: RulesAnswer,
    book: TenantRuleBook,
    /// The change of their document.
    pub change: DocumentChange,
}

/// The outcome of an order about the rules of tenants.
pub enum Declared {
    /// It is done; the configuration in force is another now, if there is one.
    Done(RulesAnswer, Option<Box<Reread>>),
    /// It is to be committed first.
    Commit(Box<RulesChange>),
}

/// The parts of the configuration that a running broker follows.
pub struct Reread {
    pub policies: Policies,
    pub alerts: Vec<AlertRule>,
    pub tls: Option<TlsConfig>,
    pub door: Door,
    pub bridges: Vec<Bridge>,
}

/// Those who vouch for users that are not in the file.
#[derive(Default)]
struct Vouchers {
    provider: Option<Provider>,
    directory: Option<Directory>,
}

/// Other vouchers; `None` for each that stays.
#[derive(Default)]
struct NextVouchers {
    provider: Option<Option<Provider>>,
    directory: Option<Option<Directory>>,
}

/// The record of redrives, in the data directory.
const REDRIVES: &str = "redrives";

/// The document of console sessions, in a cluster.
const SESSIONS: &str = "sessions";

/// The configuration in force, and the files of identities beside it.
pub struct Reloader<'a> {
    arguments: &'a ServeArguments,
    config: RefCell<Config>,
    /// The settings in force, as flat keys.
    running: RefCell<Settings>,
    versions: Versions,
    documents: Arc<Documents>,
    /// Those of the store itself: in a further store of a cluster not the documents of all.
    own_documents: Arc<Documents>,
    tokens: Arc<TokenBook>,
    attempts: Arc<Attempts>,
    made_tenants: Arc<TenantBook>,
    redrives: Text,
    access_keys: Arc<AccessKeyBook>,
    sessions: Arc<SessionBook>,
    tenant_rules: RefCell<TenantRuleBook>,
    /// Those who vouch for users; each is kept while its configuration is the same.
    vouchers: RefCell<Vouchers>,
    /// Those of a configuration that is not in force yet.
    next: RefCell<NextVouchers>,
    file: Option<Arc<UserFile>>,
}

impl Reloader<'_> {
    /// Begins with this configuration.
    ///
    /// # Errors
    /// A file of the data directory cannot be read.
    pub fn new<'a>(arguments: &'a ServeArguments, config: &Config) -> anyhow::Result<Reloader<'a>> {
        let documents = config.documents();
        let own_documents = if config.is_further_store() { config.documents() } else { documents.clone() };
        let file = config.users_text(&documents).map(Arc::new);
        let (tokens, attempts) = (Arc::new(config.tokens(&documents)?), Arc::default());
        let made_tenants = Arc::new(config.made_tenants(&documents)?);
        let redrives = config.text(REDRIVES, &own_documents);
        let access_keys = Arc::new(AccessKeyBook::new(config.access_keys(&documents)));
        let of_sessions = documents.are_replicated().then(|| config.text(SESSIONS, &documents));
        let sessions = Arc::new(SessionBook::open(of_sessions)?);
        let tenant_rules = RefCell::new(config.tenant_rules(&documents)?);
        let running = RefCell::new(Settings::of(&text_of(arguments)?, arguments)?);
        let (config, versions) = (RefCell::new(config.clone()), Versions::new(&config.data));
        Ok(Reloader {
            arguments,
            config,
            running,
            versions,
            documents,
            own_documents,
            tokens,
            attempts,
            made_tenants,
            redrives,
            access_keys,
            sessions,
            tenant_rules,
            vouchers: RefCell::default(),
            next: RefCell::default(),
            file,
        })
    }

    /// The texts that the admin API changes by itself.
    pub fn texts(&self) -> Texts {
        Texts {
            made_tenants: self.made_tenants.clone(),
            redrives: self.redrives.clone(),
            access_keys: self.access_keys.clone(),
            sessions: self.sessions.clone(),
        }
    }

    /// The text of access keys.
    pub fn access_keys(&self) -> Text {
        self.access_keys.text().clone()
    }

    /// The texts that the nodes of a cluster replicate.
    pub fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// The texts that the replicas of this store have: of a further store the record of its
    /// redrives, of any other all.
    pub fn own_documents(&self) -> &Arc<Documents> {
        &self.own_documents
    }

    /// Users, tokens, sessions, tenants and their rules are those of the documents that this node
    /// has read.
    ///
    /// # Errors
    /// One of them is malformed.
    pub fn follow_documents(&self) -> anyhow::Result<()> {
        self.tokens.reload()?;
        self.sessions.reload()?;
        self.made_tenants.reload()?;
        let text = self.tenant_rules.borrow().text().clone();
        self.tenant_rules.replace(TenantRuleBook::open(text)?);
        Ok(())
    }

    /// Changes that make documents of the files of this node, unless one has done so before. A node
    /// that lacks its file of users leaves that to another one.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn imports(&self) -> anyhow::Result<Vec<DocumentChange>> {
        let Some(end) = self.documents.end_of_import() else { return Ok(Vec::new()) };
        let (rules, users) = (self.tenant_rules.borrow(), self.file.as_deref().map(UserFile::text));
        if let Some(users) = users
            && users.read()?.is_none()
        {
            tracing::warn!(file = %users.file().display(), "there are no users: their file is missing");
            return Ok(Vec::new());
        }
        let keys = self.access_keys.text();
        let others = [self.tokens.text(), self.made_tenants.text(), rules.text(), &self.redrives, keys];
        let texts = users.into_iter().chain(others);
        let imports: Result<Vec<_>, _> = texts.map(Text::import).collect();
        Ok(imports?.into_iter().flatten().chain([end]).collect())
    }

    /// Keeps the configuration that the broker has started with, unless it is the newest version.
    /// The data directory exists.
    pub fn keep_first(&self) {
        let kept = text_of(self.arguments).and_then(|text| {
            let newest = self.newest_text();
            if newest.as_ref() == Some(&text) {
                return Ok(());
            }
            let before = Settings::of(&newest.unwrap_or_default(), self.arguments).unwrap_or_default();
            let changes = before.changes_to(&self.running.borrow()).len() as u64;
            self.keep("start", (text, changes), None).map(|_| ())
        });
        if let Err(error) = kept {
            tracing::warn!(error = format!("{error:#}"), "the version of the configuration is not kept");
        }
    }

    /// The text of the newest version that is kept.
    fn newest_text(&self) -> Option<String> {
        Some(self.versions.find(self.versions.newest().ok()?).ok()??.text)
    }

    /// Policies and users by the configuration in force, with the files of identities as they are
    /// now.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn identities(&self) -> anyhow::Result<(Policies, Door)> {
        let identities = self.identities_by(&self.config.borrow())?;
        self.keep_vouchers();
        Ok(identities)
    }

    fn identities_by(&self, config: &Config) -> anyhow::Result<(Policies, Door)> {
        let (mut policies, mut door) =
            config.identities(self.file.as_deref(), &self.tokens, &self.attempts, &self.made_tenants)?;
        self.tenant_rules.borrow().add_routes(config, &mut policies)?;
        let known = self.vouchers.borrow();
        let next = NextVouchers {
            provider: Provider::follow(&config.security.oidc, known.provider.as_ref())?,
            directory: Directory::follow(&config.security.ldap, known.directory.as_ref())?,
        };
        if let Some(provider) = next.provider.as_ref().map_or(known.provider.as_ref(), Option::as_ref) {
            door = door.with_oidc(provider.oidc());
        }
        if let Some(directory) = next.directory.as_ref().map_or(known.directory.as_ref(), Option::as_ref) {
            door = door.with_ldap(directory.ldap());
        }
        self.next.replace(next);
        Ok((policies, self.file.iter().fold(door, |door, file| door.with_file(file.clone()))))
    }

    /// Records which tenant of the configuration in force is in which store.
    ///
    /// # Errors
    /// See [`store_count::record_tenants`].
    pub fn record_tenants(&self) -> anyhow::Result<()> {
        store_count::record_tenants(&self.config.borrow())
    }

    /// The configuration in force, with the files of identities as they are now.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn in_force(&self) -> anyhow::Result<Reread> {
        let reread = self.by_config(&self.config.borrow())?;
        self.keep_vouchers();
        Ok(reread)
    }

    fn by_config(&self, config: &Config) -> anyhow::Result<Reread> {
        let (bridges, tls) = (config.bridges()?, config.tls()?);
        let (policies, door) = self.identities_by(config)?;
        let alerts = self.tenant_rules.borrow().alert_rules(config, &policies);
        let alerts = alerts.inspect_err(|_| self.drop_next_vouchers())?;
        Ok(Reread { policies, alerts, tls, door, bridges })
    }

    /// Reads the configuration file again; the result is in force from now on. Another file of
    /// users is read at the next start, as of a configuration that was applied.
    ///
    /// # Errors
    /// A file cannot be read; the configuration before stays in force.
    pub fn reread(&self) -> anyhow::Result<Reread> {
        let text = text_of(self.arguments)?;
        let mut config = Config::load_text(&text, self.arguments).with_context(|| self.place())?;
        config.keep_users_of(&self.config.borrow());
        store_count::check_tenants(&config).with_context(|| self.place())?;
        let reread = self.parts_of(&config)?;
        let settings = Settings::of(&text, self.arguments)?;
        let changes = self.running.borrow().changes_to(&settings).len() as u64;
        if let Err(error) = self.keep_reloaded((text, changes), None) {
            tracing::warn!(error = format!("{error:#}"), "the version of the configuration is not kept");
        }
        self.now_in_force(config, &settings);
        Ok(reread)
    }

    /// Carries out an order. What it returns beside the answer is to be followed.
    ///
    /// # Errors
    /// With the reason; nothing is changed then.
    pub fn carry_out(
        &self,
        order: ConfigurationOrder,
    ) -> Result<(ConfigurationAnswer, Option<Reread>), ConfigurationFault> {
        let answer = match order {
            ConfigurationOrder::Get => ConfigurationAnswer::Settings(self.running.borrow().shown()),
            ConfigurationOrder::Diff => {
                ConfigurationAnswer::Plan(self.plan(&self.checked_file()?.1).map_err(failed)?)
            }
            ConfigurationOrder::Plan(source) => {
                let (_, settings) = self.checked(&self.text_of_source(source)?).map_err(invalid)?;
                ConfigurationAnswer::Plan(self.plan(&settings).map_err(failed)?)
            }
            ConfigurationOrder::Apply(source, author) => {
                return self.apply(source, author).inspect_err(|_| self.drop_next_vouchers());
            }
            ConfigurationOrder::Reload(author) => {
                return self.reload(author).inspect_err(|_| self.drop_next_vouchers());
            }
            ConfigurationOrder::History => {
                ConfigurationAnswer::Versions(self.versions.all().map_err(failed)?)
            }
            ConfigurationOrder::Version(number) => {
                let KeptVersion { about, text } = self.kept(number)?;
                ConfigurationAnswer::Version(about, without_secrets(&text))
            }
        };
        Ok((answer, None))
    }

    /// Carries out an order about the rules of tenants.
    ///
    /// # Errors
    /// With the reason; nothing is changed then.
    pub fn declare(&self, order: RulesOrder) -> Result<Declared, ConfigurationFault> {
        let (answer, book) = match order {
            RulesOrder::Declare { tenant, rules, prunes, is_dry_run } => {
                let (policies, _) = self.identities().map_err(failed)?;
                let wanted = (&*tenant, &rules, prunes);
                let changed = self.tenant_rules.borrow().changed(&self.config.borrow(), &policies, wanted);
                let (answer, book) = changed.map_err(invalid)?;
                let is_new = !is_dry_run && answer.faults.is_empty() && book != *self.tenant_rules.borrow();
                (answer, is_new.then_some(book))
            }
            RulesOrder::Forget { tenant } => {
                (RulesAnswer::default(), self.tenant_rules.borrow().without(&tenant))
            }
        };
        let Some(book) = book else { return Ok(Declared::Done(answer, None)) };
        let content = book.content();
        if let Some(change) = book.text().change(content.clone()) {
            return Ok(Declared::Commit(Box::new(RulesChange { answer, book, change })));
        }
        book.text().replace(&content).map_err(|error| failed(error.into()))?;
        self.tenant_rules.replace(book);
        Ok(Declared::Done(answer, Some(Box::new(self.in_force().map_err(failed)?))))
    }

    /// The new rules of tenants are committed; the caller applies the configuration that comes with
    /// the answer.
    ///
    /// # Errors
    /// They are not, or it is not known; or a file cannot be read.
    pub fn declared(
        &self,
        declared: RulesChange,
        result: Result<(), Refusal>,
    ) -> Result<(RulesAnswer, Reread), ConfigurationFault> {
        result.map_err(|refusal| match refusal {
            Refusal::DocumentChanged { .. } | Refusal::DocumentTooLarge { .. } => {
                ConfigurationFault::Conflict(refusal.to_string())
            }
            _ => ConfigurationFault::Failed(refusal.to_string()),
        })?;
        let RulesChange { answer, book, change } = declared;
        self.documents.committed(change);
        self.tenant_rules.replace(book);
        Ok((answer, self.in_force().map_err(failed)?))
    }

    fn apply(
        &self,
        source: ConfigurationSource,
        author: ConfigurationAuthor,
    ) -> Result<(ConfigurationAnswer, Option<Reread>), ConfigurationFault> {
        let text = self.text_of_source(source)?;
        let (mut config, settings) = self.checked(&text).map_err(invalid)?;
        let file = self.file()?;
        let mut plan = self.plan(&settings).map_err(failed)?;
        // Another file of users is read at the next start.
        config.keep_users_of(&self.config.borrow());
        let reread = self.parts_of(&config).map_err(invalid)?;
        let before = text_of(self.arguments).map_err(failed)?;
        replace_configuration(file, &text).map_err(failed)?;
        let changes = plan.changes.len() as u64;
        match self.keep("apply", (text, changes), Some(author)) {
            Ok(version) => plan.version = version,
            Err(error) => {
                replace_configuration(file, &before).map_err(failed)?;
                return Err(failed(error));
            }
        }
        self.now_in_force(config, &settings);
        Ok((ConfigurationAnswer::Plan(plan), Some(reread)))
    }

    fn reload(
        &self,
        author: ConfigurationAuthor,
    ) -> Result<(ConfigurationAnswer, Option<Reread>), ConfigurationFault> {
        self.file()?;
        let (mut config, settings, text) = self.checked_file()?;
        let mut plan = self.plan(&settings).map_err(failed)?;
        // Another file of users is read at the next start.
        config.keep_users_of(&self.config.borrow());
        let reread = self.parts_of(&config).map_err(invalid)?;
        let changes = plan.changes.len() as u64;
        let kept = self.keep_reloaded((text, changes), Some(author)).map_err(failed)?;
        plan.version = kept.unwrap_or(plan.version);
        self.now_in_force(config, &settings);
        Ok((ConfigurationAnswer::Plan(plan), Some(reread)))
    }

    /// The configuration file, which a change needs.
    fn file(&self) -> Result<&Path, ConfigurationFault> {
        let missing = "the broker runs without a configuration file; start it with --config FILE";
        self.arguments.config.as_deref().ok_or_else(|| ConfigurationFault::Conflict(missing.to_owned()))
    }

    /// The file as it is now, as in [`Reloader::checked`], and its text.
    fn checked_file(&self) -> Result<(Config, Settings, String), ConfigurationFault> {
        let text = text_of(self.arguments).map_err(failed)?;
        let checked = self.checked(&text);
        let (config, settings) =
            checked.map_err(|error| ConfigurationFault::Conflict(format!("{}: {error:#}", self.place())))?;
        Ok((config, settings, text))
    }

    /// The configuration of a text that a broker could start with, and its flat keys.
    fn checked(&self, text: &str) -> anyhow::Result<(Config, Settings)> {
        check_length(text)?;
        if is_masked(text) {
            bail!("a password is masked (\"***\"): write the password itself, or use password_file");
        }
        let config = Config::load_text(text, self.arguments)?;
        config.tls()?;
        store_count::check_tenants(&config)?;
        Ok((config, Settings::of(text, self.arguments)?))
    }

    fn plan(&self, settings: &Settings) -> anyhow::Result<ConfigurationPlan> {
        let file = self.arguments.config.as_ref().map(|file| file.display().to_string());
        let changes = self.running.borrow().changes_to(settings);
        Ok(ConfigurationPlan { file, version: self.versions.newest()?, changes })
    }

    fn text_of_source(&self, source: ConfigurationSource) -> Result<String, ConfigurationFault> {
        match source {
            ConfigurationSource::Text(text) => Ok(text),
            ConfigurationSource::Version(number) => Ok(self.kept(number)?.text),
        }
    }

    fn kept(&self, number: u64) -> Result<KeptVersion, ConfigurationFault> {
        let found = self.versions.find(number).map_err(failed)?;
        let right = "`postroad ctl config history` lists all";
        found.ok_or_else(|| ConfigurationFault::Missing(format!("there is no version {number}; {right}")))
    }

    /// Keeps the file that was read again, unless it is the newest version: reloads without a
    /// change must not push earlier ones out.
    fn keep_reloaded(
        &self,
        (text, changes): (String, u64),
        author: Option<ConfigurationAuthor>,
    ) -> anyhow::Result<Option<u64>> {
        if self.newest_text().is_some_and(|newest| newest == text) {
            return Ok(None);
        }
        self.keep("reload", (text, changes), author).map(Some)
    }

    fn keep(
        &self,
        cause: &str,
        (text, changes): (String, u64),
        author: Option<ConfigurationAuthor>,
    ) -> anyhow::Result<u64> {
        let (at_ms, cause) = (now_ms(), cause.to_owned());
        let about = ConfigurationVersion { version: 0, at_ms, cause, changes, author };
        self.versions.add(KeptVersion { about, text })
    }

    fn parts_of(&self, config: &Config) -> anyhow::Result<Reread> {
        // Those of a cluster are in force already, and a change of them may be on its way.
        if !self.documents.are_replicated() {
            self.follow_documents()?;
        }
        self.by_config(config)
    }

    /// The next vouchers are in force; those before end.
    fn keep_vouchers(&self) {
        let (next, mut vouchers) = (self.next.take(), self.vouchers.borrow_mut());
        if let Some(provider) = next.provider {
            vouchers.provider = provider;
        }
        if let Some(directory) = next.directory {
            vouchers.directory = directory;
        }
    }

    fn drop_next_vouchers(&self) {
        self.next.take();
    }

    fn now_in_force(&self, config: Config, settings: &Settings) {
        self.keep_vouchers();
        self.config.replace(config);
        let followed = self.running.borrow().followed(settings);
        self.running.replace(followed);
    }

    fn place(&self) -> String {
        let file = self.arguments.config.as_deref().unwrap_or(Path::new("the command line"));
        format!("in {}", file.display())
    }
}

fn failed(error: anyhow::Error) -> ConfigurationFault {
    ConfigurationFault::Failed(format!("{error:#}"))
}

fn invalid(error: anyhow::Error) -> ConfigurationFault {
    ConfigurationFault::Invalid(format!("{error:#}"))
}

/// The text of the configuration file; empty without one.
fn text_of(arguments: &ServeArguments) -> anyhow::Result<String> {
    let Some(file) = &arguments.config else { return Ok(String::new()) };
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Texts that the admin API changes by itself.
pub struct Texts {
    /// Tenants that were made while the broker ran.
    pub made_tenants: Arc<TenantBook>,
    /// The record of redrives.
    pub redrives: Text,
    /// Access keys of users.
    pub access_keys: Arc<AccessKeyBook>,
    /// Sessions of the console.
    pub sessions: Arc<SessionBook>,
}

/// The ways of requests to the main thread.
pub struct Orders {
    pub reload: Reload,
    pub configuration: Configuration,
    pub tenant_rules: TenantRulesKeeper,
}

/// The ways of requests to the main thread, and their end there, with one more way.
pub fn channel() -> (Orders, mpsc::Receiver<Changed>, mpsc::Sender<Changed>) {
    let (changes, receiver) = mpsc::channel::<Changed>(CHANGES_MAX);
    let of_identities = changes.clone();
    let reload = Arc::new(move || {
        let changes = of_identities.clone();
        let ended = || "the broker is shutting down".to_owned();
        let future = async move {
            let (answer, answered) = oneshot::channel();
            changes.send(Changed::Identities(answer)).await.map_err(|_| ended())?;
            answered.await.map_err(|_| ended())?
        };
        Box::pin(future) as _
    });
    let configuration = way(changes.clone(), Changed::Configuration);
    let tenant_rules = one_by_one(way(changes.clone(), Changed::Rules));
    (Orders { reload, configuration, tenant_rules }, receiver, changes)
}

/// Carries out orders of one kind.
type Way<Order, Answer> = Arc<
    dyn Fn(Order) -> Pin<Box<dyn Future<Output = Result<Answer, ConfigurationFault>> + Send>> + Send + Sync,
>;

/// An order is given once the one before is carried out.
fn one_by_one<Order: Send + 'static, Answer: Send + 'static>(way: Way<Order, Answer>) -> Way<Order, Answer> {
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    Arc::new(move |order| {
        let (way, turn) = (way.clone(), turn.clone());
        Box::pin(async move {
            let _turn = turn.lock().await;
            way(order).await
        })
    })
}

fn way<Order: Send + 'static, Answer: Send + 'static>(
    changes: mpsc::Sender<Changed>,
    make: fn(Order, oneshot::Sender<Result<Answer, ConfigurationFault>>) -> Changed,
) -> Way<Order, Answer> {
    Arc::new(move |order| {
        let changes = changes.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            changes.send(make(order, answer)).await.map_err(|_| ConfigurationFault::Ended)?;
            answered.await.map_err(|_| ConfigurationFault::Ended)?
        })
    })
}

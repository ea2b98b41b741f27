//! Public keys of the identity provider: fetched at the start, at intervals, and when a token names
//! an unknown one.
//!
//! One task of the main thread fetches; logins wait for it without holding a thread. Fetches have a
//! least distance, so that made-up tokens cause no flood of requests.

use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use postroad_security::oidc::{DOCUMENT_BYTES_MAX, KeySet, Oidc, Refresh};
use postroad_security::tls::{TlsClientFiles, load_client};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::{KeySource, OidcConfig, key_url, keys_in_file};

/// The provider answers within this time.
const FETCH_WITHIN: Duration = Duration::from_secs(5);

/// Keys are fetched again after this time: one that the provider has withdrawn is refused by then.
const FETCHED_EVERY: Duration = Duration::from_secs(300);

/// After a failure.
const RETRIED_AFTER: Duration = Duration::from_secs(30);

/// The least time between two fetches, whatever tokens ask for.
const FETCHES_APART: Duration = Duration::from_secs(5);

/// A login waits no longer for keys.
const LOGIN_WAITS: Duration = Duration::from_secs(10);

/// The identity provider of a broker, with the task that fetches its keys.
pub struct Provider {
    config: OidcConfig,
    oidc: Arc<Oidc>,
    fetching: Option<JoinHandle<()>>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.fetching.iter().for_each(JoinHandle::abort);
    }
}

impl Provider {
    /// The provider of a configuration; `None` if it is the one that is known, whose keys in a file
    /// are read again. The known one stays in use until the caller replaces it.
    ///
    /// # Errors
    /// The file of the keys or of authorities cannot be read.
    pub fn follow(config: &OidcConfig, known: Option<&Provider>) -> anyhow::Result<Option<Option<Provider>>> {
        if !config.is_set() {
            return Ok(known.map(|_| None));
        }
        let source = config.key_source()?;
        let of_file = match &source {
            KeySource::File(file) => Some(keys_in_file(file)?),
            KeySource::Url(_) | KeySource::Discovery(_) => None,
        };
        if let Some(same) = known.filter(|known| known.config == *config) {
            of_file.into_iter().for_each(|keys| same.oidc.set_keys(keys));
            return Ok(None);
        }
        let (oidc, fetching) = match of_file {
            Some(keys) => (Arc::new(Oidc::new(config.rules(), keys, None)), None),
            None => {
                let (wanted, (done, fetched)) = (Arc::new(Notify::new()), watch::channel(()));
                let refresh = refresh(wanted.clone(), fetched);
                let oidc = Arc::new(Oidc::new(config.rules(), KeySet::default(), Some(refresh)));
                let fetcher = Fetcher { client: client(config)?, source, issuer: config.issuer().to_owned() };
                let fetching = tokio::spawn(fetcher.run(Arc::downgrade(&oidc), wanted, done));
                (oidc, Some(fetching))
            }
        };
        Ok(Some(Some(Provider { config: config.clone(), oidc, fetching })))
    }

    /// Checks its tokens.
    pub fn oidc(&self) -> Arc<Oidc> {
        self.oidc.clone()
    }
}

/// Asks the task for keys, and waits until it has tried.
fn refresh(wanted: Arc<Notify>, fetched: watch::Receiver<()>) -> Refresh {
    Box::new(move || {
        let (wanted, mut fetched) = (wanted.clone(), fetched.clone());
        fetched.mark_unchanged();
        Box::pin(async move {
            wanted.notify_one();
            // A task that has ended, or is late: the token is looked at by the keys there are.
            let _ = tokio::time::timeout(LOGIN_WAITS, fetched.changed()).await;
        })
    })
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

fn client(config: &OidcConfig) -> anyhow::Result<HttpClient> {
    let builder = HttpsConnectorBuilder::new();
    let connector = match config.authorities() {
        Some(file) => {
            let files = TlsClientFiles { trust: file.to_owned(), own: None };
            let tls = load_client(&files).context("security.oidc.authorities")?;
            builder.with_tls_config(Arc::unwrap_or_clone(tls))
        }
        None => builder.with_provider_and_native_roots(rustls::crypto::ring::default_provider())?,
    };
    let connector = connector.https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector))
}

struct Fetcher {
    client: HttpClient,
    source: KeySource,
    issuer: String,
}

impl Fetcher {
    /// Fetches while the provider is in use.
    async fn run(self, oidc: Weak<Oidc>, wanted: Arc<Notify>, done: watch::Sender<()>) {
        loop {
            let keys = tokio::time::timeout(FETCH_WITHIN, self.fetch()).await;
            let keys = keys.unwrap_or_else(|_| Err(anyhow!("no answer within {} s", FETCH_WITHIN.as_secs())));
            let Some(oidc) = oidc.upgrade() else { return };
            let next = match keys {
                Ok(keys) => {
                    tracing::info!(issuer = self.issuer, keys = keys.len(), "keys of the identity provider");
                    oidc.set_keys(keys);
                    FETCHED_EVERY
                }
                Err(error) => {
                    let (issuer, error) = (&self.issuer, format!("{error:#}"));
                    tracing::warn!(issuer, error, "cannot fetch the keys of the identity provider");
                    RETRIED_AFTER
                }
            };
            drop(oidc);
            let fetched_at = Instant::now();
            done.send_replace(());
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(fetched_at + next) => break,
                    () = wanted.notified() => {
                        if FETCHES_APART <= fetched_at.elapsed() {
                            break;
                        }
                        // Too soon: those who wait go on with the keys there are.
                        done.send_replace(());
                    }
                }
            }
        }
    }

    async fn fetch(&self) -> anyhow::Result<KeySet> {
        let url = match &self.source {
            KeySource::Discovery(url) => self.discover(url).await?,
            KeySource::Url(url) => url.clone(),
            KeySource::File(_) => bail!("they are in a file"),
        };
        let text = self.get(&url).await?;
        KeySet::parse(&text).map_err(|reason| anyhow!("{url}: {reason}"))
    }

    /// The URL of the keys (OpenID Connect Discovery 1.0, section 4).
    async fn discover(&self, url: &Uri) -> anyhow::Result<Uri> {
        let text = self.get(url).await?;
        let document: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("{url}"))?;
        let named = |name: &str| document.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        if named("issuer") != self.issuer {
            bail!(
                "{url} is about the issuer {:?}; security.oidc.issuer is {:?}",
                named("issuer"),
                self.issuer
            );
        }
        key_url(named("jwks_uri")).with_context(|| format!("jwks_uri of {url}"))
    }

    async fn get(&self, url: &Uri) -> anyhow::Result<String> {
        let answer = self.client.get(url.clone()).await.with_context(|| format!("{url}"))?;
        if !answer.status().is_success() {
            bail!("{url}: {}", answer.status());
        }
        let body = Limited::new(answer.into_body(), DOCUMENT_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow!("{url}: {error}"))?.to_bytes();
        String::from_utf8(body.to_vec()).with_context(|| format!("{url}"))
    }
}

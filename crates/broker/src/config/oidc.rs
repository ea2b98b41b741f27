//! The identity provider whose tokens are accepted.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hyper::Uri;
use postroad_security::oidc::{DOCUMENT_BYTES_MAX, KeySet, OidcRules};
use serde::Deserialize;

/// Clocks that differ by more are a fault to mend.
const LEEWAY_SECONDS_MAX: u64 = 300;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OidcConfig {
    /// The issuer, as in the tokens; empty for none.
    issuer: String,
    /// Names of this service in the tokens.
    audience: Vec<String>,
    /// Where the public keys are; empty to ask the issuer.
    jwks: String,
    /// Authorities of the provider's certificate; empty for those of the system.
    authorities: PathBuf,
    /// The claim that names the user.
    user_claim: String,
    /// The claim that names the groups; empty for none.
    groups_claim: String,
    /// By how much clocks may differ.
    leeway_seconds: u64,
}

/// Where the public keys of the provider are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// In this file.
    File(PathBuf),
    /// At this URL.
    Url(Uri),
    /// Where the document at this URL says, which must be of the issuer.
    Discovery(Uri),
}

impl Default for OidcConfig {
    fn default() -> OidcConfig {
        OidcConfig {
            issuer: String::new(),
            audience: Vec::new(),
            jwks: String::new(),
            authorities: PathBuf::new(),
            user_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            leeway_seconds: 30,
        }
    }
}

impl OidcConfig {
    /// Whether tokens of a provider are accepted.
    pub fn is_set(&self) -> bool {
        !self.issuer.is_empty()
    }

    /// The issuer, as in the tokens.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Authorities of the provider's certificate, if they are not those of the system.
    pub fn authorities(&self) -> Option<&Path> {
        Some(&*self.authorities).filter(|file| !file.as_os_str().is_empty())
    }

    /// Checks that no token would be refused, or accepted, by mistake.
    pub fn check(&self) -> anyhow::Result<()> {
        if *self == OidcConfig::default() {
            return Ok(());
        }
        if !self.is_set() {
            bail!("configuration: [security.oidc] needs issuer, exactly as in the tokens' iss");
        }
        if self.audience.is_empty() || self.audience.iter().any(String::is_empty) {
            bail!(
                "configuration: security.oidc.audience is empty, and tokens for every other service of the issuer \
                 would be accepted; name this service as the tokens' aud does"
            );
        }
        if self.user_claim.is_empty() {
            bail!("configuration: security.oidc.user_claim is empty; \"sub\" is the default");
        }
        if LEEWAY_SECONDS_MAX < self.leeway_seconds {
            let seconds = self.leeway_seconds;
            bail!("configuration: security.oidc.leeway_seconds is {seconds}; at most {LEEWAY_SECONDS_MAX}");
        }
        self.key_source().context("configuration: security.oidc.jwks").map(drop)
    }

    /// Claims that a token must have.
    pub fn rules(&self) -> OidcRules {
        OidcRules {
            issuer: self.issuer.clone(),
            audiences: self.audience.clone(),
            user_claim: self.user_claim.clone(),
            groups_claim: self.groups_claim.clone(),
            leeway_seconds: self.leeway_seconds,
        }
    }

    /// Where the keys are.
    ///
    /// # Errors
    /// At a URL where a stranger between could put other keys.
    pub fn key_source(&self) -> anyhow::Result<KeySource> {
        match &*self.jwks {
            "" => {
                let base = self.issuer.trim_end_matches('/');
                let url = format!("{base}/.well-known/openid-configuration");
                Ok(KeySource::Discovery(key_url(&url).context("it is empty, so the issuer is asked")?))
            }
            url if url.contains("://") => Ok(KeySource::Url(key_url(url)?)),
            file => Ok(KeySource::File(PathBuf::from(file))),
        }
    }
}

/// A URL that keys may be fetched from.
///
/// # Errors
/// It is not one, or not safe.
pub fn key_url(text: &str) -> anyhow::Result<Uri> {
    let url: Uri = text.parse().with_context(|| format!("{text:?} is not a URL"))?;
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_here =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match url.scheme_str() {
        _ if host.is_empty() => bail!("{text:?} has no host; https://HOST/PATH is right"),
        Some("https") => Ok(url),
        Some("http") if is_here => Ok(url),
        Some("http") => bail!("{text:?}: keys that come without TLS could be anybody's; use https://"),
        _ => bail!("{text:?} is not an https:// URL"),
    }
}

/// The keys of a file.
///
/// # Errors
/// It cannot be read, or has none.
pub fn keys_in_file(file: &Path) -> anyhow::Result<KeySet> {
    let context = || format!("security.oidc.jwks: {}", file.display());
    let length = std::fs::metadata(file).with_context(context)?.len();
    if length > DOCUMENT_BYTES_MAX as u64 {
        bail!("{}: it has {length} bytes; at most {DOCUMENT_BYTES_MAX} are read", context());
    }
    let text = std::fs::read_to_string(file).with_context(context)?;
    KeySet::parse(&text).map_err(|reason| anyhow::anyhow!("{}: {reason}", context()))
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn users_of(config: &Config) -> anyhow::Result<Option<postroad_security::Users>> {
        config.users_of(config.users_text(&config.documents()).as_ref())
    }

    #[test]
    fn a_provider_that_would_let_others_in_is_refused() {
        let good = "[security.oidc]\nissuer = \"https://id.example\"\naudience = [\"postroad\"]\n";
        Config::check_text(good).unwrap();
        for (case, text, want) in [
            ("no issuer", "[security.oidc]\naudience = [\"a\"]\n".to_owned(), "[security.oidc] needs issuer"),
            (
                "no audience",
                "[security.oidc]\nissuer = \"https://id.example\"\n".to_owned(),
                "security.oidc.audience is empty",
            ),
            ("keys without TLS", format!("{good}jwks = \"http://id.example/keys\"\n"), "use https://"),
            ("another scheme", format!("{good}jwks = \"ftp://id.example/keys\"\n"), "not an https:// URL"),
            ("far clocks", format!("{good}leeway_seconds = 301\n"), "at most 300"),
            ("no claim", format!("{good}user_claim = \"\"\n"), "security.oidc.user_claim is empty"),
            ("a typing error", format!("{good}groupsclaim = \"x\"\n"), "did you mean `groups_claim`?"),
            (
                "an issuer without TLS",
                good.replace("https://", "http://"),
                "it is empty, so the issuer is asked",
            ),
        ] {
            let error = format!("{:#}", Config::check_text(&text).unwrap_err());
            assert!(error.contains(want), "case: {case}: {error}");
        }
        for jwks in ["https://id.example/keys", "http://127.0.0.1:1/keys", "http://[::1]:1/keys", "keys.json"]
        {
            Config::check_text(&format!("{good}jwks = \"{jwks}\"\n")).unwrap();
        }
    }

    #[test]
    fn a_user_of_the_file_with_a_name_of_the_provider_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let mut users = postroad_security::Users::default();
        users.set_with("oidc:ann", "wonder", false).unwrap();
        users.store(&file).unwrap();
        let alone = format!("[security]\nusers = {:?}\n", file.display().to_string());
        let provider = "[security.oidc]\nissuer = \"https://id.example\"\naudience = [\"postroad\"]\n";
        assert!(users_of(&Config::parse(&alone).unwrap()).is_ok());
        let error = users_of(&Config::parse(&format!("{alone}{provider}")).unwrap()).unwrap_err();
        assert!(error.to_string().contains("oidc:ann could be a user of [security.oidc]"), "{error}");
        let without = Config::parse(provider).unwrap();
        assert!(users_of(&without).unwrap().is_some_and(|users| users.names().next().is_none()));
        assert!(!without.policies().unwrap().permissions.permit_all());
    }
}

//! Rules: which user a client's certificate stands for.

use anyhow::{Context, bail};
use postroad_security::{CertificateRule, CertificateRules, NameKind};
use serde::Deserialize;

use super::Config;

/// Rules of a configuration, at most: each login looks at them in order.
const RULES_MAX: usize = 10_000;

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateConfig {
    /// The whole subject (RFC 4514).
    subject: Option<String>,
    /// Its common name; one `*` stands for any characters, as in the others.
    common_name: Option<String>,
    /// A DNS name among the alternative names.
    dns: Option<String>,
    /// An e-mail address among these.
    email: Option<String>,
    /// A URI among these.
    uri: Option<String>,
    /// The user; `{}` stands for the name that fits. Empty for that name.
    user: String,
    /// Groups of the user, beside those that it has elsewhere.
    groups: Vec<String>,
}

impl CertificateConfig {
    fn rule(&self) -> anyhow::Result<CertificateRule> {
        let names = [
            (NameKind::Subject, &self.subject),
            (NameKind::CommonName, &self.common_name),
            (NameKind::Dns, &self.dns),
            (NameKind::Email, &self.email),
            (NameKind::Uri, &self.uri),
        ];
        let mut given = names.into_iter().filter_map(|(kind, name)| Some((kind, name.as_deref()?)));
        let (Some(name), None) = (given.next(), given.next()) else {
            bail!("it needs one of subject, common_name, dns, email and uri");
        };
        if name.1.is_empty() {
            bail!("the name is empty");
        }
        Ok(CertificateRule::new(name, &self.user, &self.groups)?)
    }
}

impl Config {
    /// Whom certificates of clients stand for.
    ///
    /// # Errors
    /// A rule cannot be.
    pub fn certificate_rules(&self) -> anyhow::Result<CertificateRules> {
        let all = &self.security.certificate;
        if RULES_MAX < all.len() {
            bail!("configuration: {} [[security.certificate]]; at most {RULES_MAX}", all.len());
        }
        let rule = |(index, config): (usize, &CertificateConfig)| {
            config.rule().with_context(|| format!("configuration: security.certificate[{index}]"))
        };
        let rules = all.iter().enumerate().map(rule).collect::<anyhow::Result<_>>()?;
        Ok(CertificateRules(rules))
    }

    /// Checks that certificates are asked for, where they are to stand for users.
    pub(super) fn check_certificates(&self) -> anyhow::Result<()> {
        if self.certificate_rules()?.0.is_empty() || self.tls.asks_clients() {
            return Ok(());
        }
        bail!(
            "configuration: [[security.certificate]] needs certificates of clients: set tls.clients to \"optional\" \
             or \"required\", and tls.client_authorities"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    const TLS: &str = "[tls]\ncertificate = \"a\"\nkey = \"b\"\nclients = \"optional\"\n\
                       client_authorities = \"c\"\n";

    fn checked(text: &str) -> anyhow::Result<Config> {
        let config = Config::parse(text)?;
        config.check()?;
        Ok(config)
    }

    #[test]
    fn rules_for_certificates_are_checked() {
        for (case, text, want) in [
            ("no name", "user = \"a\"\n", "it needs one of subject, common_name, dns, email and uri"),
            ("two names", "dns = \"a\"\nuri = \"b\"\n", "it needs one of"),
            ("an empty name", "dns = \"\"\n", "the name is empty"),
            ("not a subject", "subject = \"alice\"\n", "is not a distinguished name"),
            ("a user of the provider", "dns = \"*\"\nuser = \"oidc:{}\"\n", "is not a user name"),
            ("a typing error", "comon_name = \"a\"\n", "did you mean `common_name`?"),
        ] {
            let text = format!("{TLS}[[security.certificate]]\n{text}");
            let error = format!("{:#}", checked(&text).unwrap_err());
            assert!(error.contains(want), "case: {case}: {error}");
        }
        let good = "[[security.certificate]]\nsubject = \"CN=alice,O=Example\"\nuser = \"ann\"\n\
                    [[security.certificate]]\ncommon_name = \"*\"\ngroups = [\"apps\"]\n";
        let config = checked(&format!("{TLS}{good}")).unwrap();
        assert_eq!(config.certificate_rules().unwrap().0.len(), 2);
        let error = format!("{:#}", checked(good).unwrap_err());
        assert!(error.contains("set tls.clients"), "{error}");
    }

    #[test]
    fn with_rules_for_certificates_nobody_else_is_let_in_without_a_login() {
        let text = format!("{TLS}[[security.certificate]]\ncommon_name = \"*\"\n");
        let config = checked(&text).unwrap();
        let users = config.users_of(None).unwrap();
        assert_eq!(users, Some(postroad_security::Users::default()));
        let permission = "[[security.permission]]\nusers = [\"a\"]\ndestinations = [\"queue://>\"]\nactions = [\"read\"]\n";
        checked(&format!("{text}{permission}")).unwrap();
    }
}

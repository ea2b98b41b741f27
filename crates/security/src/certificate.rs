//! Certificates of clients: the names in them, and the users whom these names stand for.
//!
//! TLS has found the certificate good before. Rules are looked at in order; the first that fits
//! gives the user and its groups. Without rules the subject itself is the user.

mod names;

use std::sync::Arc;

use postroad_model::{Federated, Principal};

pub use names::Names;
use names::{DistinguishedName, ParseNameError};

use crate::users::{check_group, check_name};

/// Before names of users that others vouch for; no certificate gives one.
const OTHERS: [&str; 2] = [crate::oidc::OIDC_PREFIX, crate::ldap::LDAP_PREFIX];

/// A user name from a subject is not longer.
const NAME_BYTES_MAX: usize = 255;

/// A rule: which certificates it fits, and whom these stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRule {
    fits: Fits,
    /// `{}` stands for the name that fitted.
    user: String,
    groups: Vec<Arc<str>>,
}

/// The name of a certificate that a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// The whole subject.
    Subject,
    /// The common name in the subject.
    CommonName,
    /// A DNS name among the alternative names.
    Dns,
    /// An e-mail address among these.
    Email,
    /// A URI among these.
    Uri,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fits {
    Subject(DistinguishedName),
    Name(NameKind, NamePattern),
}

/// A text, with at most one `*` for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamePattern {
    before: String,
    /// The text after the `*`; `None` without one.
    after: Option<String>,
}

/// Why a rule cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateRuleError {
    /// It is not a distinguished name.
    #[error("subject {text:?} is not a distinguished name (RFC 4514), such as CN=alice,O=Example: {fault}")]
    Subject {
        /// The text.
        text: String,
        /// The fault.
        fault: ParseNameError,
    },
    /// More than one `*`.
    #[error("{text:?} has more than one *")]
    Pattern {
        /// The text.
        text: String,
    },
    /// The user may not be named so.
    #[error("user {text:?} is not a user name, or begins as those of another provider do")]
    User {
        /// The text.
        text: String,
    },
    /// The group may not be named so.
    #[error("{text:?} is not the name of a group")]
    Group {
        /// The text.
        text: String,
    },
}

impl NamePattern {
    fn parse(text: &str) -> Result<NamePattern, CertificateRuleError> {
        match text.split_once('*') {
            None => Ok(NamePattern { before: text.to_owned(), after: None }),
            Some((_, after)) if after.contains('*') => {
                Err(CertificateRuleError::Pattern { text: text.to_owned() })
            }
            Some((before, after)) => {
                Ok(NamePattern { before: before.to_owned(), after: Some(after.to_owned()) })
            }
        }
    }

    /// Names of hosts have no case.
    fn fits(&self, name: &str, kind: NameKind) -> bool {
        if kind == NameKind::Dns {
            let lower = |text: &String| text.to_ascii_lowercase();
            let after = self.after.as_ref().map(lower);
            return NamePattern { before: lower(&self.before), after }.is_of(&name.to_ascii_lowercase());
        }
        self.is_of(name)
    }

    fn is_of(&self, name: &str) -> bool {
        match &self.after {
            None => self.before == name,
            Some(after) => name.strip_prefix(&*self.before).is_some_and(|rest| rest.ends_with(&**after)),
        }
    }
}

impl CertificateRule {
    /// A rule for certificates with this name: a distinguished name for the subject, or else a text
    /// with at most one `*`. The user may have `{}` for the name that fitted; empty is only that.
    ///
    /// # Errors
    /// One of the texts cannot be.
    pub fn new(
        (kind, name): (NameKind, &str),
        user: &str,
        groups: &[String],
    ) -> Result<CertificateRule, CertificateRuleError> {
        let fits = match kind {
            NameKind::Subject => Fits::Subject(
                DistinguishedName::parse(name)
                    .map_err(|fault| CertificateRuleError::Subject { text: name.to_owned(), fault })?,
            ),
            kind => Fits::Name(kind, NamePattern::parse(name)?),
        };
        let user = if user.is_empty() { "{}" } else { user };
        if !is_user_name(&user.replace("{}", "x")) {
            return Err(CertificateRuleError::User { text: user.to_owned() });
        }
        if let Some(text) = groups.iter().find(|group| check_group(group).is_err()) {
            return Err(CertificateRuleError::Group { text: text.clone() });
        }
        let groups = groups.iter().map(|group| group.as_str().into()).collect();
        Ok(CertificateRule { fits, user: user.to_owned(), groups })
    }

    /// Whether it gives groups.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The name that fits.
    fn name_in<'n>(&self, names: &'n Names) -> Option<&'n str> {
        match &self.fits {
            Fits::Subject(subject) => (*subject == names.subject).then_some(&*names.subject_text),
            Fits::Name(kind, pattern) => names.all(*kind).find(|name| pattern.fits(name, *kind)),
        }
    }
}

/// Rules of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRules(pub Vec<CertificateRule>);

impl CertificateRules {
    /// Whether one gives groups.
    pub fn have_groups(&self) -> bool {
        self.0.iter().any(CertificateRule::has_groups)
    }

    /// The user whom a certificate stands for; `None` if no rule fits, or if the name cannot be
    /// that of a user.
    pub fn principal_of(&self, names: &Names) -> Option<Principal> {
        if self.0.is_empty() {
            let name = &names.subject_text;
            let is_good = !name.contains(char::is_control) && (1..=NAME_BYTES_MAX).contains(&name.len());
            return is_good.then(|| Principal::User(name.as_str().into()));
        }
        let (rule, name) = self.0.iter().find_map(|rule| Some((rule, rule.name_in(names)?)))?;
        let user: Arc<str> = rule.user.replace("{}", name).into();
        if !is_user_name(&user) {
            tracing::warn!(subject = names.subject_text, %user, "a certificate gives no valid user name");
            return None;
        }
        if !rule.has_groups() {
            return Some(Principal::User(user));
        }
        let (groups, expires_ms) = (rule.groups.clone(), names.expires_ms);
        Some(Principal::Federated(Arc::new(Federated { user, groups, expires_ms })))
    }
}

fn is_user_name(name: &str) -> bool {
    let is_of_others = OTHERS.iter().any(|prefix| name.starts_with(prefix));
    let has_spaces_alone = check_name(&name.replace(' ', "_")).is_ok();
    has_spaces_alone && !is_of_others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(subject: &[(rcgen::DnType, &str)], alternative: Vec<rcgen::SanType>) -> Names {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            parameters.distinguished_name.push(kind.clone(), *value);
        }
        parameters.subject_alt_names = alternative;
        let key = rcgen::KeyPair::generate().unwrap();
        Names::of(parameters.self_signed(&key).unwrap().der()).unwrap()
    }

    fn rule(name: (NameKind, &str), user: &str, groups: &[&str]) -> CertificateRule {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        CertificateRule::new(name, user, &groups).unwrap()
    }

    fn user_of(rules: &[CertificateRule], names: &Names) -> Option<String> {
        CertificateRules(rules.to_vec()).principal_of(names)?.user().map(|user| user.to_string())
    }

    #[test]
    fn the_first_rule_that_fits_gives_the_user() {
        use NameKind::{CommonName, Dns, Email, Subject, Uri};
        let alternative = vec![
            rcgen::SanType::DnsName("Orders.Example".try_into().unwrap()),
            rcgen::SanType::Rfc822Name("ann@example.com".try_into().unwrap()),
            rcgen::SanType::URI("spiffe://example/ns/shop/sa/orders".try_into().unwrap()),
        ];
        let subject = [
            (rcgen::DnType::OrganizationName, "Smith, Jones"),
            (rcgen::DnType::OrganizationalUnitName, "Orders"),
            (rcgen::DnType::CommonName, "alice"),
        ];
        let certificate = names(&subject, alternative);
        for (case, rules, want) in [
            ("no rules", vec![], Some("CN=alice,OU=Orders,O=Smith\\, Jones")),
            (
                "subject",
                vec![rule((Subject, "CN=alice,OU=Orders,O=Smith\\, Jones"), "ann", &[])],
                Some("ann"),
            ),
            (
                "subject as Java and OpenSSL write it",
                vec![rule((Subject, "cn=alice, OU=Orders, O=\"Smith, Jones\""), "ann", &[])],
                Some("ann"),
            ),
            ("a part of the subject", vec![rule((Subject, "CN=alice"), "ann", &[])], None),
            ("the subject in another order", vec![rule((Subject, "OU=Orders,CN=alice"), "ann", &[])], None),
            ("another case", vec![rule((CommonName, "Alice"), "ann", &[])], None),
            ("common name", vec![rule((CommonName, "alice"), "", &[])], Some("alice")),
            ("any common name", vec![rule((CommonName, "*"), "tls.{}", &[])], Some("tls.alice")),
            ("DNS name has no case", vec![rule((Dns, "*.example"), "", &[])], Some("Orders.Example")),
            ("e-mail", vec![rule((Email, "*@example.com"), "", &[])], Some("ann@example.com")),
            ("another domain", vec![rule((Email, "*@example.co"), "", &[])], None),
            ("URI", vec![rule((Uri, "spiffe://example/ns/shop/sa/*"), "shop", &[])], Some("shop")),
            (
                "the first",
                vec![
                    rule((CommonName, "bob"), "1", &[]),
                    rule((Dns, "*"), "2", &[]),
                    rule((CommonName, "*"), "3", &[]),
                ],
                Some("2"),
            ),
        ] {
            assert_eq!(user_of(&rules, &certificate).as_deref(), want, "case: {case}");
        }
        let groups = vec![rule((CommonName, "alice"), "ann", &["orders", "audit"])];
        let principal = CertificateRules(groups).principal_of(&certificate);
        let Some(Principal::Federated(federated)) = principal else { panic!("{principal:?}") };
        assert_eq!((&*federated.user, federated.groups.len()), ("ann", 2));
        assert_eq!(federated.expires_ms, certificate.expires_ms);
        assert!(certificate.expires_ms.is_some());
    }

    #[test]
    fn no_certificate_pretends_to_be_another_user() {
        use NameKind::CommonName;
        let any = [rule((CommonName, "*"), "", &[])];
        let of = |name: &str| names(&[(rcgen::DnType::CommonName, name)], Vec::new());
        for (case, name, want) in [
            ("good", "alice", Some("alice")),
            ("of the identity provider", "oidc:ann", None),
            ("of the directory", "ldap:ann", None),
            ("a control character", "ann\u{7}", None),
            ("a line", "ann\nbob", None),
            ("too long", &"x".repeat(256), None),
        ] {
            assert_eq!(user_of(&any, &of(name)).as_deref(), want, "case: {case}");
        }
        let forged = of("alice,O=Orders");
        assert_eq!(user_of(&[], &forged).as_deref(), Some("CN=alice\\,O\\=Orders"), "is no other subject");
        let exact = [rule((NameKind::Subject, "CN=alice,O=Orders"), "root", &[])];
        assert_eq!(user_of(&exact, &forged), None);
        let two =
            [(rcgen::DnType::CommonName, "alice"), (rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]), "root")];
        assert_eq!(user_of(&any, &names(&two, Vec::new())), None, "two common names are none");
        assert!(user_of(&[], &names(&[], Vec::new())).is_none(), "an empty subject");
    }

    #[test]
    fn rules_that_cannot_be_are_refused_with_the_reason() {
        for (case, name, user, groups, want) in [
            ("no DN", (NameKind::Subject, "alice"), "a", "", "is not a distinguished name"),
            ("two stars", (NameKind::Dns, "*.*"), "a", "", "more than one *"),
            ("of a provider", (NameKind::Dns, "*"), "oidc:{}", "", "user \"oidc:{}\""),
            ("a bad group", (NameKind::Dns, "*"), "a", "a b", "is not the name of a group"),
        ] {
            let groups: Vec<String> = if groups.is_empty() { vec![] } else { vec![groups.to_owned()] };
            let error = CertificateRule::new(name, user, &groups).unwrap_err().to_string();
            assert!(error.contains(want), "case: {case}: {error}");
        }
    }
}

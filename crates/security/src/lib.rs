//! Security room: who connects, and how they prove it.
//!
//! A [`Door`] knows the users; each connection is a [`Visit`] to it, which offers mechanisms to its
//! peer and checks its messages. [`tls`] makes the certificates of a broker ready for use.
//! Never here: sockets, threads, permissions of an authenticated client, protocols' own frames.

mod access_keys;
mod argon;
mod attempts;
mod certificate;
mod documents;
mod door;
mod elliptic;
mod failures;
mod file;
mod keys;
pub mod ldap;
pub mod nodes;
pub mod oidc;
mod prepare;
mod refusals;
mod scram;
mod sessions;
mod tenants;
pub mod tls;
mod tokens;
mod users;

pub use access_keys::{AccessKey, AccessKeyBook, AccessKeys};
pub use argon::set_checks_max as set_password_checks_max;
pub use attempts::Attempts;
pub use certificate::{CertificateRule, CertificateRuleError, CertificateRules, NameKind};
pub use documents::{Commit, Documents, Text, TextStamp};
pub use door::{Credential, Door, PasswordCheck, ProviderCheck, Step, Visit, locked};
pub use failures::{FailedLogin, FailedLogins};
pub use file::replace_file;
pub use keys::ITERATIONS;
pub use refusals::Refusals;
pub use sessions::{ConsoleSession, SessionBook, SessionSearch, claimed_principal};
pub use tenants::{TENANTS_MAX, TenantBook, TenantEntry, check_tenant_name};
pub use tokens::{Scope, Scopes, TOKEN_PREFIX, TOKENS_MAX, Token, TokenBook, digest_of, secret};
pub use users::{UserError, UserFile, Users};

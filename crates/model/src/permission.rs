//! Permissions: who acts, and which kind of action.

use std::fmt;
use std::sync::Arc;

/// One kind of action on destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Consume, browse, reserve and acknowledge messages.
    Read,
    /// Send messages.
    Write,
    /// Create a lasting queue or topic explicitly, and set its options.
    Create,
    /// Delete or purge a destination, redrive its dead letters.
    Manage,
    /// Operate the broker: lists of connections, moves between stores, transactions of other users.
    Admin,
}

impl Action {
    /// All of them, in the order of the configuration's documentation.
    pub const ALL: [Action; 5] = [Action::Read, Action::Write, Action::Create, Action::Manage, Action::Admin];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::Write => "write",
            Action::Create => "create",
            Action::Manage => "manage",
            Action::Admin => "admin",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The client on whose behalf an event is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// The broker itself, or its operator on this machine: every action is permitted.
    Operator,
    /// A client that has not logged in.
    Anonymous,
    /// The user of this name.
    User(Arc<str>),
    /// A user whom an identity provider vouches for.
    Federated(Arc<Federated>),
}

/// A user of an identity provider, as it has described the user at the login.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Federated {
    /// The name, with the kind of the provider before it: `oidc:ann`. No user of the broker's own
    /// file has such a name.
    pub user: Arc<str>,
    /// Its groups.
    pub groups: Vec<Arc<str>>,
    /// When this ends, in milliseconds since 1970; `None` for never.
    pub expires_ms: Option<u64>,
}

impl Principal {
    /// The principal of a connection, by the user who logged in there.
    pub fn of(user: Option<&Arc<str>>) -> Principal {
        user.map_or(Principal::Anonymous, |user| Principal::User(user.clone()))
    }

    /// The name of the user, if there is one.
    pub fn user(&self) -> Option<&Arc<str>> {
        match self {
            Principal::User(name) => Some(name),
            Principal::Federated(federated) => Some(&federated.user),
            Principal::Operator | Principal::Anonymous => None,
        }
    }
}

//! Logins: how a peer proves its identity, and the answers.

use std::fmt;

use bytes::Bytes;

use crate::Principal;

/// A message of a peer that proves its identity.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// The first message of a SASL exchange (RFC 4422).
    Begin {
        /// The peer's choice of the offered mechanisms.
        mechanism: Box<str>,
        /// Its initial response.
        response: Option<Bytes>,
    },
    /// Its answer to a challenge.
    Continue {
        /// In the mechanism's words.
        response: Bytes,
    },
    /// A name and a password, without SASL.
    Password {
        /// The name, if it says one.
        user: Option<Box<str>>,
        /// The password, if it says one.
        password: Option<Box<str>>,
    },
}

/// Secrets stay out of logs.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Login::Begin { mechanism, .. } => {
                f.debug_struct("Begin").field("mechanism", mechanism).finish_non_exhaustive()
            }
            Login::Continue { .. } => f.debug_struct("Continue").finish_non_exhaustive(),
            Login::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
        }
    }
}

/// The answer to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginAnswer {
    /// It has to say more.
    Challenge(Bytes),
    /// It is let in.
    Welcome {
        /// Who it is.
        principal: Principal,
        /// The last word of a mechanism by which the broker proves itself too.
        last: Option<Bytes>,
    },
    /// It is not.
    Refused {
        /// For the log: the peer learns only that it failed.
        reason: String,
    },
    /// It is known, and there is no room for its connection.
    Full {
        /// The quota that is used up.
        reason: String,
    },
    /// It is known, and what is its own is not served here.
    Elsewhere {
        /// The reason, for people.
        reason: String,
        /// As in [`LoginAnswer::Welcome`].
        last: Option<Bytes>,
    },
}

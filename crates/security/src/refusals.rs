//! Refusals of logins, for the log and the audit.

use std::net::IpAddr;
use std::sync::Arc;

use postroad_model::LoginAnswer;

use crate::door::Door;
use crate::failures::FailedLogin;

/// Whose refusal is kept for the log and the audit.
#[derive(Clone, Debug)]
pub struct Refusals {
    door: Arc<Door>,
    address: Option<IpAddr>,
    protocol: &'static str,
    user: Option<Box<str>>,
}

impl Refusals {
    /// Those of a peer at this address with this protocol, which claims to be this user.
    pub(crate) fn new(
        door: Arc<Door>,
        (address, protocol): (Option<IpAddr>, &'static str),
        user: Option<Box<str>>,
    ) -> Refusals {
        Refusals { door, address, protocol, user }
    }

    /// Keeps the answer, if it is a refusal.
    pub fn note(&self, answer: &LoginAnswer) {
        let LoginAnswer::Refused { reason } = answer else { return };
        let peer = self.address.map_or_else(|| "-".to_owned(), |address| address.to_string());
        self.door.failures().add(FailedLogin::new(self.protocol, self.user.as_deref(), peer, reason));
    }
}

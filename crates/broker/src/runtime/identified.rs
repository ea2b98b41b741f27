//! Connections that end when their credential does: a token is revoked or expires, or a user is
//! removed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postroad_model::{ConnectionId, ToSession};
use postroad_node::Mailbox;
use postroad_security::{Credential, Door};
use tokio::sync::watch;

/// How often credentials are checked again.
const CHECKED_EVERY: Duration = Duration::from_secs(1);

/// The connections of one core that were let in with a password or a token.
#[derive(Default)]
pub struct Identified(RefCell<BTreeMap<ConnectionId, Entry>>);

struct Entry {
    credential: Credential,
    door: watch::Receiver<Arc<Door>>,
    /// The users as they were when the credential was checked last; `None` before the first check:
    /// a login is by the users as they were when the connection began.
    checked: Option<Arc<Door>>,
    mailbox: Rc<Mailbox>,
    is_revoked: Rc<Cell<bool>>,
}

impl Identified {
    /// From now on the connection ends with its credential. `is_revoked` is set before its mailbox
    /// wakes it for that.
    pub fn add(
        &self,
        id: ConnectionId,
        (credential, door): (Credential, watch::Receiver<Arc<Door>>),
        (mailbox, is_revoked): (Rc<Mailbox>, Rc<Cell<bool>>),
    ) {
        self.0.borrow_mut().insert(id, Entry { credential, door, checked: None, mailbox, is_revoked });
    }

    /// The connection has ended.
    pub fn remove(&self, id: ConnectionId) {
        self.0.borrow_mut().remove(&id);
    }

    /// Checks the credentials again and again.
    pub async fn watch(self: Rc<Self>) {
        loop {
            tokio::time::sleep(CHECKED_EVERY).await;
            self.check();
        }
    }

    fn check(&self) {
        self.0.borrow_mut().retain(|_, entry| entry.is_good());
    }
}

impl Entry {
    fn is_good(&mut self) -> bool {
        let door = self.door.borrow();
        let is_same = self.checked.as_ref().is_some_and(|checked| Arc::ptr_eq(checked, &door));
        // A token may end while the users stay as they are.
        let is_good = is_same && matches!(self.credential, Credential::Password { .. })
            || door.honours(&self.credential);
        if !is_same {
            self.checked = Some(door.clone());
        }
        if !is_good {
            self.is_revoked.set(true);
            self.mailbox.put(ToSession::Evicted);
        }
        is_good
    }
}

#[cfg(test)]
mod tests {
    use postroad_security::Users;

    use super::*;

    #[test]
    fn a_user_who_is_removed_between_a_connection_and_its_login_does_not_stay() {
        let mut users = Users::default();
        users.set("bob", "secret").unwrap();
        // The login of ann was by the users before.
        let (_says, door) = watch::channel(Arc::new(Door::of(users, false).unwrap()));
        let identified = Identified::default();
        let let_in = |number: u64, user: &str| {
            let is_revoked = Rc::new(Cell::new(false));
            let credential = Credential::Password { user: user.into() };
            let ends = (Rc::default(), is_revoked.clone());
            identified.add(ConnectionId::new(0, number), (credential, door.clone()), ends);
            is_revoked
        };
        let (ann, bob) = (let_in(1, "ann"), let_in(2, "bob"));
        identified.check();
        assert_eq!((ann.get(), bob.get()), (true, false));
        assert_eq!(identified.0.borrow().len(), 1);
    }
}

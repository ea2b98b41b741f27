//! Which key the messages of each tenant are encrypted with.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_journal::KeyId;
use postroad_model::{Command, Destination, Sent};
use postroad_routing::Tenants;

/// The keys of those tenants that have one of their own, as they were at the start.
#[derive(Debug, Default)]
pub struct TenantKeys {
    /// The tenants and their destinations.
    pub tenants: Tenants,
    /// By the tenant's name.
    pub keys: BTreeMap<Arc<str>, KeyId>,
}

impl TenantKeys {
    /// The key for the command's record; `None` for that of the broker. A record with messages of
    /// several owners gets the broker's. `addresses`: the targets of the message of which the
    /// command is a piece.
    pub fn key_of(&self, command: &Command, addresses: Option<&[Destination]>) -> Option<KeyId> {
        if self.keys.is_empty() {
            return None;
        }
        let sent = match command {
            Command::Enqueue(sent) | Command::Fire { sent, .. } => std::slice::from_ref(sent),
            Command::Transact(changes) | Command::Prepare { changes, .. } => &changes.sends,
            _ => &[],
        };
        let targets = sent.iter().flat_map(Sent::targets).chain(addresses.into_iter().flatten());
        let mut owners = targets.map(|destination| self.key_for(destination));
        let first = owners.next()??;
        owners.all(|other| other == Some(first)).then_some(first)
    }

    fn key_for(&self, destination: &Destination) -> Option<KeyId> {
        self.keys.get(&self.tenants.owner_of(destination)?.name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use postroad_journal::{KEY_BYTES, Key};
    use postroad_model::{Changes, Encoding, Message, Protocol};
    use postroad_routing::{DestinationPattern, Limit, Tenant};

    fn id(byte: u8) -> KeyId {
        Key::new(&[byte; KEY_BYTES]).id()
    }

    fn sent(to: &[&str]) -> Sent {
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(b"body"),
        };
        let mut to = to.iter().map(|name| Destination::queue(name));
        let first = to.next().unwrap();
        Sent { also: to.collect(), ..Sent::new(first, message) }
    }

    #[test]
    fn a_record_has_the_key_of_the_tenant_whose_messages_alone_are_in_it() {
        let mut tenants = Tenants::default();
        for name in ["acme", "lab", "poor"] {
            let owns = DestinationPattern::parse(&format!("queue://{name}.>")).unwrap();
            tenants.add(Tenant::new(name, Limit::default()), &[owns]).unwrap();
        }
        let keys = BTreeMap::from([("acme".into(), id(1)), ("lab".into(), id(2))]);
        let keys = TenantKeys { tenants, keys };
        let changes = |sends: &[&str]| Changes {
            sends: sends.iter().map(|name| sent(&[name])).collect(),
            settlements: Vec::new(),
        };
        for (case, command, want) in [
            ("its own", Command::Enqueue(sent(&["acme.a"])), Some(id(1))),
            ("another's", Command::Enqueue(sent(&["lab.a"])), Some(id(2))),
            ("a tenant's without a key", Command::Enqueue(sent(&["poor.a"])), None),
            ("nobody's", Command::Enqueue(sent(&["a"])), None),
            ("one body for two queues of one", Command::Enqueue(sent(&["acme.a", "acme.b"])), Some(id(1))),
            ("one body for two tenants", Command::Enqueue(sent(&["acme.a", "lab.b"])), None),
            ("one body for a tenant and nobody", Command::Enqueue(sent(&["acme.a", "b"])), None),
            ("a transaction of one", Command::Transact(changes(&["acme.a", "acme.b"])), Some(id(1))),
            ("a transaction of two", Command::Transact(changes(&["acme.a", "lab.b"])), None),
            ("what has no messages", Command::Settle(Vec::new()), None),
        ] {
            assert_eq!(keys.key_of(&command, None), want, "case: {case}");
        }
        assert_eq!(TenantKeys::default().key_of(&Command::Enqueue(sent(&["acme.a"])), None), None);
        for (case, to, want) in [
            ("a piece for a tenant", &["acme.a", "acme.b"][..], Some(id(1))),
            ("a piece for two", &["acme.a", "lab.b"], None),
            ("a piece for nobody's", &["a"], None),
            ("a piece for nowhere", &[], None),
        ] {
            let to: Vec<Destination> = to.iter().map(|name| Destination::queue(name)).collect();
            let piece = Command::Chunk(Bytes::new());
            assert_eq!(keys.key_of(&piece, Some(&to)), want, "case: {case}");
        }
    }
}

//! How safe a command must be before it is applied: the operators' policies for its queues. Of
//! several queues the one that wants most decides.
//!
//! And how its bodies are written, which they decide as well.
//!
//! Never here: how that is done.

use postroad_model::{
    Command, Compression, Destination, DestinationKind, Durability, QueueId, Sent, Settlement,
};

use crate::Partition;

impl Partition {
    /// How safe the command must be. Journaled commands outlive the process in any case.
    pub(crate) fn durability_of(&self, command: &Command) -> Durability {
        // A lease is known to its holder; without its record the message is only delivered too
        // early.
        if matches!(command, Command::Lease { .. } | Command::Touch { .. }) {
            return Durability::Async;
        }
        if !self.settings.policies.any_weaker_durability() {
            return Durability::Sync;
        }
        let wanted = match command {
            Command::Enqueue(sent) | Command::Fire { sent, .. } => self.wanted_by_targets(sent),
            Command::Settle(settlements) => self.wanted_by_settlements(settlements),
            Command::CountDelivery { queue, .. } => self.wanted_by_queue(*queue),
            Command::Transact(changes) => {
                let sends = changes.sends.iter().filter_map(|sent| self.wanted_by_targets(sent)).max();
                sends.max(self.wanted_by_settlements(&changes.settlements))
            }
            // The existence of queues, and agreements of several partitions, are always safe.
            _ => None,
        };
        wanted.unwrap_or_default().max(Durability::Async)
    }

    /// How bodies in the command's record are written: compressed if one of the addresses that they
    /// were sent to wants it.
    pub(crate) fn compression_of(&self, command: &Command) -> Compression {
        let policies = &self.settings.policies;
        let sends = match command {
            _ if !policies.any_compression() => return Compression::None,
            Command::Enqueue(sent) | Command::Fire { sent, .. } => std::slice::from_ref(sent),
            Command::Transact(changes) | Command::Prepare { changes, .. } => &changes.sends,
            _ => return Compression::None,
        };
        let targets = sends.iter().flat_map(|sent| sent.targets());
        targets.map(|to| policies.of(to).compression).max().unwrap_or_default()
    }

    /// How safe a persistent message for this address must be; for a topic that no durable queue is
    /// bound to, not at all.
    pub(crate) fn wanted_by(&self, to: &Destination) -> Durability {
        match to.kind {
            DestinationKind::Queue => self.settings.policies.durability_of(to),
            DestinationKind::Topic => self.wanted_by_bound(to).unwrap_or(Durability::Memory),
        }
    }

    fn wanted_by_targets(&self, sent: &Sent) -> Option<Durability> {
        sent.targets().map(|to| self.wanted_by(to)).max()
    }

    fn wanted_by_settlements(&self, settlements: &[Settlement]) -> Option<Durability> {
        settlements.iter().filter_map(|settlement| self.wanted_by_queue(settlement.queue)).max()
    }

    fn wanted_by_bound(&self, topic: &Destination) -> Option<Durability> {
        let bounds = self.state.addresses.bounds(topic);
        if !self.settings.policies.any_weaker_durability() {
            return bounds.iter().any(|bound| bound.has_durable()).then_some(Durability::Sync);
        }
        let durable = bounds.iter().flat_map(|bound| bound.iter()).filter(|queue| !queue.is_volatile());
        durable.filter_map(|queue| self.wanted_by_queue(queue)).max()
    }

    fn wanted_by_queue(&self, queue: QueueId) -> Option<Durability> {
        let queue = self.state.queues.get(&queue)?;
        Some(self.settings.policies.durability_of(&queue.source))
    }
}

/// Whether something durable may be bound to an address by this command.
pub fn may_begin_binding(command: &Command) -> bool {
    matches!(command, Command::Subscribe(_) | Command::Bind(_))
}

/// Whether bindings of an address may end by this command, so that messages for it go past the log
/// from then on.
pub fn may_end_binding(command: &Command) -> bool {
    matches!(
        command,
        Command::Subscribe(_) | Command::Unsubscribe { .. } | Command::Unbind { .. } | Command::Delete { .. }
    )
}

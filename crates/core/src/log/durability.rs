//! How safe a command must be before it is applied: the operators' policies for its queues. Of
//! several queues the one that wants most decides.
//!
//! And how its bodies are written, which they decide as well.
//!
//! Never here: how that is done.

use postroad_model::{
    Command, Compression, Destination, DestinationKind, Durability, QueueId, Sent, Settlement,
};

use crate::settings::Settings;
use crate::state::State;

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

/// How bodies in the command's record are written: compressed if one of the addresses that they
/// were sent to wants it.
pub fn compression_of(settings: &Settings, command: &Command) -> Compression {
    let policies = &settings.policies;
    let sends = match command {
        _ if !policies.any_compression() => return Compression::None,
        Command::Enqueue(sent) | Command::Fire { sent, .. } => std::slice::from_ref(sent),
        Command::Transact(changes) | Command::Prepare { changes, .. } => &changes.sends,
        _ => return Compression::None,
    };
    let targets = sends.iter().flat_map(|sent| sent.targets());
    targets.map(|to| policies.of(to).compression).max().unwrap_or_default()
}

fn wanted_by_queue(state: &State, settings: &Settings, queue: QueueId) -> Option<Durability> {
    let queue = state.queues.get(&queue)?;
    Some(settings.policies.durability_of(&queue.source))
}

fn wanted_by_settlements(
    state: &State,
    settings: &Settings,
    settlements: &[Settlement],
) -> Option<Durability> {
    settlements.iter().filter_map(|settlement| wanted_by_queue(state, settings, settlement.queue)).max()
}

fn wanted_by_bound(state: &State, settings: &Settings, topic: &Destination) -> Option<Durability> {
    let bounds = state.addresses.bounds(topic);
    if !settings.policies.any_weaker_durability() {
        return bounds.iter().any(|bound| bound.has_durable()).then_some(Durability::Sync);
    }
    let durable = bounds.iter().flat_map(|bound| bound.iter()).filter(|queue| !queue.is_volatile());
    durable.filter_map(|queue| wanted_by_queue(state, settings, queue)).max()
}

/// How safe a persistent message for this address must be; for a topic that no durable queue is
/// bound to, not at all.
pub fn wanted_by(state: &State, settings: &Settings, to: &Destination) -> Durability {
    match to.kind {
        DestinationKind::Queue => settings.policies.durability_of(to),
        DestinationKind::Topic => wanted_by_bound(state, settings, to).unwrap_or(Durability::Memory),
    }
}

fn wanted_by_targets(state: &State, settings: &Settings, sent: &Sent) -> Option<Durability> {
    sent.targets().map(|to| wanted_by(state, settings, to)).max()
}

/// How safe the command must be. Journaled commands outlive the process in any case.
pub fn durability_of(state: &State, settings: &Settings, command: &Command) -> Durability {
    // A lease is known to its holder; without its record the message is only delivered too
    // early.
    if matches!(command, Command::Lease { .. } | Command::Touch { .. }) {
        return Durability::Async;
    }
    if !settings.policies.any_weaker_durability() {
        return Durability::Sync;
    }
    let wanted = match command {
        Command::Enqueue(sent) | Command::Fire { sent, .. } => wanted_by_targets(state, settings, sent),
        Command::Settle(settlements) => wanted_by_settlements(state, settings, settlements),
        Command::CountDelivery { queue, .. } => wanted_by_queue(state, settings, *queue),
        Command::Transact(changes) => {
            let sends =
                changes.sends.iter().filter_map(|sent| wanted_by_targets(state, settings, sent)).max();
            sends.max(wanted_by_settlements(state, settings, &changes.settlements))
        }
        // The existence of queues, and agreements of several partitions, are always safe.
        _ => None,
    };
    wanted.unwrap_or_default().max(Durability::Async)
}

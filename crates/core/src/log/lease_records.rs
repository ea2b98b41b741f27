//! Leases and deliveries to links, as a snapshot has them.

use postroad_model::{EntryTag, LeaseEnd, QueueId};

use crate::Partition;
use crate::entries::entry_at;
use crate::leasing::{Remembered, begin_lease, group_of};
use crate::log::reader::Reader;
use crate::log::record::Writer;
use crate::log::snapshot::SnapshotError;
use crate::queue::{EntryState, Queue};
use crate::settling::lending;
use crate::state::State;

pub fn write_leases(state: &State, out: &mut Writer, queues: &[&Queue]) {
    let leased = state.leases.durable().map(|(queue, tag, lease)| (queue, tag, lease.id, lease.end));
    let lent = state.lent.iter().map(|(queue, tag, link)| (queue, tag, Some(link), LeaseEnd::default()));
    out.list(&leased.chain(lent).collect::<Vec<_>>(), |out, (queue, tag, lease, end)| {
        out.u64(queue.0).u64(tag.0).lease(*lease).lease_end(*end);
    });
    let options = queues.iter().filter_map(|queue| Some((queue.id, queue.options.as_ref()?)));
    out.list(&options.collect::<Vec<_>>(), |out, (queue, options)| {
        out.u64(queue.0).queue_options(options);
    });
    let known = queues.iter().filter_map(|queue| Some((queue.id, queue.duplicates.as_ref()?)));
    out.list(&known.collect::<Vec<_>>(), |out, (queue, duplicates)| {
        out.u64(queue.0).list(&duplicates.iter().collect::<Vec<_>>(), |out, (key, known)| {
            out.u128(*key).u128(known.id).u64(known.tag.0).u64(known.until_ms);
        });
    });
}

pub fn read_leases(partition: &mut Partition, input: &mut Reader<'_>) -> Result<(), SnapshotError> {
    let lease = |input: &mut Reader<'_>| {
        let entry = (QueueId(input.u64()?), EntryTag(input.u64()?));
        Ok((entry, (input.lease()?, input.lease_end()?)))
    };
    for ((queue, tag), lease) in input.list(lease)? {
        if let Some(link) = lease.0.filter(|lease| lease.is_of_link()) {
            lending::apply(partition, queue, true, &[(tag, Some(link))]);
            continue;
        }
        let is_there = entry_at(partition, queue, tag).is_some_and(|entry| entry.state == EntryState::Ready);
        // A prepared transaction that deletes it has it already.
        if is_there {
            let group = group_of(partition, queue, tag);
            begin_lease(partition, queue, tag, lease, group);
        }
    }
    for (id, options) in input.list(|input| Ok((QueueId(input.u64()?), input.queue_options()?)))? {
        let queue = partition.state.queues.get_mut(&id);
        let queue = queue.ok_or(SnapshotError::Dangling { what: "queue of options", number: id.0 })?;
        queue.options = Some(Box::new(options));
    }
    let one = |input: &mut Reader<'_>| {
        let (key, id) = (input.u128()?, input.u128()?);
        Ok((key, Remembered { tag: EntryTag(input.u64()?), id, until_ms: input.u64()? }))
    };
    for (id, known) in input.list(|input| Ok((QueueId(input.u64()?), input.list(one)?)))? {
        let queue = partition.state.queues.get_mut(&id);
        let queue = queue.ok_or(SnapshotError::Dangling { what: "queue of duplicates", number: id.0 })?;
        let duplicates = queue.duplicates.get_or_insert_default();
        known.into_iter().for_each(|(key, message)| duplicates.remember(key, message));
    }
    Ok(())
}

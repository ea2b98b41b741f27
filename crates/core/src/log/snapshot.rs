//! Snapshots: the durable state of a partition at one position, as bytes. See
//! docs/formats/records.md.
//!
//! A snapshot holds queue entries and message headers, never bodies: those stay in the log. Full
//! pages lie in it as packed ones, as most are, and are not opened when it is read: its size, the
//! time to write it and the time to read it depend on its changes, and on the number of pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{
    Binding, Destination, DestinationKind, Message, MessageKey, MessageRow, PartitionId, Piece, Position,
    QueueId, Snapshot, Subscription, TransactionId,
};

use crate::Partition;
use crate::addresses::binding::{TopicFeed, apply_bind};
use crate::addresses::subscription::bind_subscription;
use crate::documents::Documents;
use crate::entries::entry_at;
use crate::figures::{Counts, QueueCounts};
use crate::intake::arrivals::Arrivals;
use crate::intake::audit::Audit;
use crate::intake::limit::{new_queue, set_state};
use crate::log::known::{read_arrivals, read_producer, write_arrivals, write_producers};
use crate::log::lease_records::{read_leases, write_leases};
use crate::log::reader::Reader;
use crate::log::record::{RecordError, Writer};
use crate::memory::bodies::Bodies;
use crate::memory::packing::{pack_all, packed_pages, written_page};
use crate::moving::apply_leave;
use crate::partition::add_queue;
use crate::pausing::Paused;
use crate::queue::{Entry, EntryState, Lane, LaneNumber, Load, Packed, Page, Queue, Span, tag};
use crate::schedule::{Chunk, Job, Jobs, Shelf, WORDS};
use crate::settings::Settings;
use crate::state::State;
use crate::transaction::{Prepared, Promised};

/// The layout of snapshots; any other is refused.
const VERSION: u8 = 1;

/// Why bytes are no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Another version of Postroad wrote it.
    #[error("snapshot version {found} is not supported; this build reads version {known}")]
    Version {
        /// The version in the snapshot.
        found: u8,
        /// The version that this build reads.
        known: u8,
    },
    /// Its fields do not hold together.
    #[error("damaged snapshot: {0}")]
    Damaged(#[from] RecordError),
    /// A reference to a missing object.
    #[error("damaged snapshot: {what} {number} does not exist")]
    Dangling {
        /// The kind of object.
        what: &'static str,
        /// Which one.
        number: u64,
    },
}

/// One entry of a durable queue, as [`Partition::durable_entries`] shows it.
#[derive(Clone, Debug)]
pub struct HeldEntry<'p> {
    /// The queue; of a durable subscription, its topic.
    pub queue: &'p Destination,
    /// The subscription that the queue is, if it is one.
    pub subscription: Option<&'p Subscription>,
    /// The message.
    pub key: MessageKey,
    /// Its headers; the body may be on the disk.
    pub headers: Message,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// How often it was delivered without success.
    pub failed_deliveries: u32,
}

impl Partition {
    /// The contents of all durable queues, queue by queue, in each lane in order.
    pub fn durable_entries(&self) -> impl Iterator<Item = HeldEntry<'_>> {
        let mut queues: Vec<&Queue> =
            self.state.queues.values().filter(|queue| !queue.id.is_volatile()).collect();
        queues.sort_unstable_by_key(|queue| queue.id);
        queues.into_iter().flat_map(move |queue| {
            let lanes = queue.lanes.iter().filter(|(number, _)| !number.is_volatile());
            lanes
                .flat_map(|(_, lane)| lane.spans())
                .flat_map(move |span| self.state.bodies.entries_of(queue, span))
        })
    }

    /// The durable state as it is after the last applied command, in one piece.
    pub fn snapshot(&self) -> Bytes {
        self.snapshot_pieces().to_bytes()
    }

    /// The durable state as it is after the last applied command, in pieces: contents of packed
    /// pages are shared, not copied, so it takes neither time nor memory.
    pub fn snapshot_pieces(&self) -> Snapshot {
        let mut out = Writer::default();
        out.u8(VERSION).u64(self.state.applied.map_or(0, Position::get)).u64(self.state.next_queue);
        let mut queues: Vec<&Queue> =
            self.state.queues.values().filter(|queue| !queue.id.is_volatile()).collect();
        queues.sort_unstable_by_key(|queue| queue.id);
        let parts: Vec<_> = queues.iter().map(|queue| (*queue, lanes_of(&self.state, queue))).collect();
        let lanes = || parts.iter().flat_map(|(_, lanes)| lanes);
        out.reserve_blobs(lanes().map(|lane| lane.pages.len()).sum());
        let messages = outside_pages(&self.state, lanes());
        out.list(&messages, |out, (key, message, bytes)| {
            write_key(out, *key);
            out.headers(message, *bytes);
        });
        out.list(&parts, |out, (queue, lanes)| write_queue(out, queue, lanes));
        let prepared: Vec<_> = self.state.prepared.iter().collect();
        out.list(&prepared, |out, (id, prepared)| {
            out.transaction(**id).settlements(&prepared.settlements);
            out.list(&prepared.sends, |out, (key, to)| {
                write_key(out, *key);
                out.destination(to);
            });
        });
        let decided: Vec<_> = self.state.decided.iter().collect();
        out.list(&decided, |out, (id, participants)| {
            out.transaction(**id).participants(participants);
        });
        let promised: Vec<_> = self.state.branches.promised().collect();
        out.list(&promised, |out, (branch, promised)| {
            out.branch(branch).transaction(promised.id).participants(&promised.participants);
        });
        out.list(&bindings(&queues), |out, binding| {
            out.binding(binding);
        });
        for generation in self.state.audit.generations() {
            write_producers(&mut out, &generation);
        }
        for generation in self.state.audit.arrivals.generations() {
            write_arrivals(&mut out, &generation);
        }
        write_jobs(&self.state, &mut out);
        let overruled: Vec<_> = self.state.branches.all_overruled().collect();
        out.list(&overruled, |out, (branch, committed)| {
            out.branch(branch).u8(u8::from(*committed));
        });
        out.list(&self.state.scheduled_bodies.iter().collect::<Vec<_>>(), |out, (key, chunks)| {
            write_key(out, **key);
            out.chunks(chunks);
        });
        self.state.jobs.write_shelves(&mut out);
        write_moves(self, &mut out);
        write_leases(&self.state, &mut out, &queues);
        write_counts(&mut out, &queues);
        self.state.paused.write(&mut out, !self.state.documents.is_empty());
        self.state.documents.write(&mut out);
        out.finish_state()
    }

    /// A partition as the snapshot describes it; bodies are absent until they are asked for.
    ///
    /// # Errors
    /// [`SnapshotError`]: the snapshot is of a newer version or damaged.
    pub fn restore(settings: Settings, snapshot: &Bytes) -> Result<Partition, SnapshotError> {
        Partition::restore_pieces(settings, &mut std::iter::once(snapshot.clone()))
    }

    /// As [`Partition::restore`], from pieces, wherever they were cut. Each is released before the
    /// next but one is asked for, and data that memory has no room for is spilled meanwhile: this
    /// never takes much more than the partition takes afterwards.
    ///
    /// # Errors
    /// [`SnapshotError`]; it is damaged, too, if the pieces end before the snapshot does.
    pub fn restore_pieces(
        settings: Settings,
        pieces: &mut dyn Iterator<Item = Bytes>,
    ) -> Result<Partition, SnapshotError> {
        let mut partition = Partition::new(settings);
        let mut input = Reader::of_pieces(pieces);
        let found = input.u8()?;
        if found != VERSION {
            return Err(SnapshotError::Version { found, known: VERSION });
        }
        partition.state.applied = Position::new(input.u64()?);
        partition.state.next_queue = input.u64()?;
        input.each(|input| -> Result<(), RecordError> {
            let (key, (message, bytes)) = (read_key(input)?, input.headers()?);
            partition.state.bodies.insert_absent(key, message, bytes);
            Ok(())
        })?;
        input.each(|input| read_queue(&mut partition, input))?;
        let prepared = input.list(|input| Ok((input.transaction()?, read_prepared(input)?)))?;
        for (id, prepared) in &prepared {
            partition.state.bodies.claim_prepared(*id, prepared)?;
        }
        partition.state.bodies.forget_unreferred();
        restore_packed(&mut partition.state);
        for (id, prepared) in prepared {
            restore_prepared(&mut partition, id, prepared)?;
        }
        let decided = input.list(|input| Ok((input.transaction()?, input.participants()?)))?;
        partition.state.decided = decided.into_iter().collect();
        for (branch, promised) in input.list(|input| Ok((input.branch()?, read_promised(input)?)))? {
            partition.state.branches.promise(branch, promised);
        }
        for (binding, number) in input.list(Reader::binding)?.into_iter().zip(0..) {
            if partition.state.addresses.get(&binding.queue).is_none() {
                return Err(SnapshotError::Dangling { what: "queue of binding", number });
            }
            apply_bind(&mut partition, binding);
        }
        let producers = [input.list(read_producer)?, input.list(read_producer)?];
        let arrivals = Arrivals::restore([input.list(read_arrivals)?, input.list(read_arrivals)?]);
        partition.state.audit = Audit::restore(producers, arrivals);
        read_jobs(&mut partition.state, &mut input)?;
        for (branch, committed) in input.list(|input| Ok((input.branch()?, input.boolean("outcome")?)))? {
            partition.state.branches.overrule(branch, committed);
        }
        for (key, chunks) in input.list(|input| Ok((read_key(input)?, input.chunks()?)))? {
            partition.state.scheduled_bodies.insert(key, Arc::new(chunks));
        }
        partition.state.jobs.read_shelves(&mut input)?;
        read_moves(&mut partition, &mut input)?;
        read_leases(&mut partition, &mut input)?;
        read_counts(&mut partition.state, &mut input)?;
        partition.state.paused = Paused::read(&mut input)?;
        if let Some(id) = partition.state.paused.dangling(|id| partition.state.queues.contains_key(id)) {
            return Err(SnapshotError::Dangling { what: "paused queue", number: id.0 });
        }
        partition.state.documents = Documents::read(&mut input)?;
        input.end()?;
        pack_all(&mut partition);
        Ok(partition)
    }

    /// The messages that the journal must keep, once each, and each piece of a large one for each
    /// message that names it.
    pub fn live_messages(&self) -> impl Iterator<Item = MessageRow> {
        let own = |message: &Message, bytes: u64| bytes.saturating_sub(message.chunk_bytes());
        let open = self.state.bodies.durable().map(move |(key, message, bytes)| (key, own(message, bytes)));
        let prepared = self.state.prepared.values().flat_map(|prepared| &prepared.scheduled);
        let prepared = prepared.map(|(key, bytes, _)| (*key, *bytes));
        let alone = open.chain(prepared).filter_map(|(key, body_bytes)| match key {
            MessageKey::Durable { position, ordinal } => {
                Some(MessageRow::of_one(position, ordinal, body_bytes))
            }
            MessageKey::Volatile(_) => None,
        });
        let later = self
            .state
            .jobs
            .iter()
            .map(|(due, job, _)| MessageRow::of_one(due.position, due.ordinal, u64::from(job.bytes)));
        let shelves = self.state.jobs.shelves.iter();
        let shelves = shelves.map(|shelf| MessageRow::of_one(shelf.position, 0, u64::from(shelf.bytes)));
        alone
            .chain(self.state.bodies.only_packed(packed_pages(self.state.queues.values())))
            .chain(later)
            .chain(self.state.jobs.shelves.keys.rows())
            .chain(shelves)
            .chain(live_pieces(&self.state))
    }

    /// Messages of prepared transactions whose bodies a snapshot left on the disk. They must be
    /// read before anything is applied: their contents decide which subscriptions take them.
    pub fn absent_prepared(&self) -> Vec<MessageKey> {
        let keys =
            self.state.prepared.values().flat_map(|prepared| prepared.sends.iter().map(|(key, _)| *key));
        keys.filter(|key| self.state.bodies.resident(*key).is_none()).collect()
    }

    /// Whether this message of a prepared transaction goes where it goes whatever is in it: to
    /// queues alone.
    pub fn is_prepared_for_queues(&self, key: MessageKey) -> bool {
        let sends = self.state.prepared.values().flat_map(|prepared| &prepared.sends);
        sends.filter(|(sent, _)| *sent == key).all(|(_, to)| to.kind == DestinationKind::Queue)
    }

    /// Gives a message its body back.
    pub fn restore_body(&mut self, key: MessageKey, message: Message) {
        self.state.bodies.restore(key, message);
        self.state.bodies.pin(key);
    }
}

/// The bindings of queues, beside direct sends.
fn bindings(queues: &[&Queue]) -> Vec<Binding> {
    let of = |queue: &Queue, fed: &TopicFeed| Binding {
        topic: fed.topic.clone(),
        queue: queue.source.clone(),
        selectors: fed.selectors.clone(),
    };
    queues.iter().flat_map(|queue| queue.fed_by.iter().map(|fed| of(queue, fed))).collect()
}

/// Sequence, deliveries without success, message.
type OpenEntry = (u64, u32, MessageKey);

/// The entries of a lane.
enum Part {
    Entry(OpenEntry),
    /// With its contents.
    Page(Page, Load),
}

impl Part {
    fn first(&self) -> u64 {
        match self {
            Part::Entry((sequence, ..)) => *sequence,
            Part::Page(page, _) => page.ends().0,
        }
    }
}

/// A message of a group binds the queue's consumers to groups.
fn begin_groups(queue: &mut Queue, has_group: bool) {
    if has_group && queue.has_groups() {
        queue.groups.get_or_insert_default();
    }
}

/// A lane as a snapshot has it.
struct WrittenLane<'p> {
    number: LaneNumber,
    lane: &'p Lane,
    /// Those that are in no page, with their sequences.
    entries: Vec<(u64, &'p Entry)>,
    /// Each with a sequence by which they are in order.
    pages: Vec<(u64, &'p Page)>,
}

fn write_queue(out: &mut Writer, queue: &Queue, lanes: &[WrittenLane<'_>]) {
    out.u64(queue.id.0).destination(&queue.source);
    let subscription: Vec<_> = queue.subscription.iter().collect();
    out.list(&subscription, |out, subscription| {
        out.subscription(subscription);
    });
    out.list(lanes, |out, WrittenLane { number, lane, entries, pages }| {
        out.u8(number.0).u64(lane.next_sequence());
        out.list(entries, |out, (sequence, entry)| {
            out.u64(*sequence).u32(entry.failed_deliveries);
            write_key(out, entry.key);
        });
        out.u32(lane.page_entries() as u32);
        out.list(pages, |out, (_, page)| {
            out.u8(u8::from(page.is_shared()));
            match page.piece() {
                Piece::Here(bytes) => out.kept_blob(bytes),
                Piece::Spilled(spilled) => out.spilled_blob(spilled),
            };
        });
    });
}

/// The counts of the queues that had messages.
fn write_counts(out: &mut Writer, queues: &[&Queue]) {
    let counted = queues.iter().map(|queue| (queue.id, queue.counts.lasting()));
    let counted: Vec<_> = counted.filter(|(_, counts)| **counts != QueueCounts::default()).collect();
    out.list(&counted, |out, (id, counts)| {
        let QueueCounts { enqueued, consumed, expired, dead_lettered, dropped, replaced, moved } = **counts;
        out.u64(id.0).u64(enqueued).u64(consumed).u64(expired).u64(dead_lettered);
        out.u64(dropped).u64(replaced).u64(moved);
    });
}

fn write_key(out: &mut Writer, key: MessageKey) {
    if let MessageKey::Durable { position, ordinal } = key {
        out.u64(position.get()).u32(ordinal);
    }
}

fn read_key(input: &mut Reader<'_>) -> Result<MessageKey, RecordError> {
    let position = Position::new(input.u64()?);
    let position = position.ok_or(RecordError::Unknown { field: "position", value: 0 })?;
    Ok(MessageKey::Durable { position, ordinal: input.u32()? })
}

fn read_promised(input: &mut Reader<'_>) -> Result<Promised, RecordError> {
    Ok(Promised { id: input.transaction()?, participants: input.participants()? })
}

fn read_prepared(input: &mut Reader<'_>) -> Result<Prepared, RecordError> {
    let settlements = input.settlements()?;
    let sends = input.list(|input| Ok((read_key(input)?, input.destination()?)))?;
    Ok(Prepared { sends, settlements, moved: BTreeMap::new(), scheduled: Vec::new() })
}

impl Bodies {
    /// The entries of an open block or a packed page.
    fn entries_of<'p>(&'p self, queue: &'p Queue, span: Span<'p>) -> Vec<HeldEntry<'p>> {
        let held = |key, headers: Message, body_bytes, failed_deliveries| HeldEntry {
            queue: &queue.source,
            subscription: queue.subscription.as_ref(),
            key,
            headers,
            body_bytes,
            failed_deliveries,
        };
        match span {
            Span::Open(entry) => {
                let found = self.headers(entry.key);
                let found = found.map(|(headers, body_bytes)| {
                    held(entry.key, headers.clone(), body_bytes, entry.failed_deliveries)
                });
                found.into_iter().collect()
            }
            Span::Packed(page) => {
                let packed = page.entries().into_iter().map(|packed| {
                    let Packed { position, ordinal, failed_deliveries, headers, body_bytes, .. } = packed;
                    held(MessageKey::Durable { position, ordinal }, headers, body_bytes, failed_deliveries)
                });
                packed.collect()
            }
        }
    }

    /// A prepared transaction holds its sends.
    fn claim_prepared(&mut self, id: TransactionId, prepared: &Prepared) -> Result<(), SnapshotError> {
        let dangling = || SnapshotError::Dangling { what: "message of transaction", number: id.number };
        let mut sends = prepared.sends.iter();
        sends.try_for_each(|(key, _)| self.claim(*key).map(drop).ok_or_else(dangling))
    }
}

/// The messages that entries outside of pages and prepared transactions need, each once.
fn outside_pages<'p>(
    state: &State,
    lanes: impl Iterator<Item = &'p WrittenLane<'p>>,
) -> Vec<(MessageKey, &Message, u64)> {
    let entries = lanes.flat_map(|lane| lane.entries.iter().map(|(_, entry)| entry.key));
    let prepared = state.prepared.values().flat_map(|prepared| prepared.sends.iter().map(|(key, _)| *key));
    let mut keys: Vec<MessageKey> = entries.chain(prepared).collect();
    keys.sort_unstable();
    keys.dedup();
    let message = |key: MessageKey| {
        let (headers, body_bytes) = state.bodies.headers(key)?;
        Some((key, headers, body_bytes))
    };
    keys.into_iter().filter_map(message).collect()
}

fn write_jobs(state: &State, out: &mut Writer) {
    out.list(&state.jobs.waiting.pages(), |out, (packed, jobs)| {
        out.kept_blob(packed).list(jobs, |out, (due, job)| {
            out.due(*due).u32(job.bytes).u64(job.name);
        });
    });
    out.list(&state.jobs.repeating(), |out, (due, again)| {
        out.due(*due).again(again);
    });
    let scheduled = state.prepared.iter().flat_map(|(id, prepared)| {
        prepared.scheduled.iter().map(move |(key, bytes, schedule)| (*id, *key, *bytes, schedule))
    });
    out.list(&scheduled.collect::<Vec<_>>(), |out, (id, key, bytes, schedule)| {
        out.transaction(*id);
        write_key(out, *key);
        out.u64(*bytes).schedule(schedule);
    });
}

impl Jobs {
    fn write_shelves(&self, out: &mut Writer) {
        out.list(&self.shelves.iter().collect::<Vec<_>>(), |out, shelf| {
            out.u64(shelf.position.get()).due(shelf.first).due(shelf.last).u32(shelf.jobs).u32(shelf.bytes);
        });
        out.list(&self.shelves.keys.chunks().collect::<Vec<_>>(), |out, ((ordinal, number), chunk)| {
            out.u32(*ordinal).u64(*number).u64(chunk.body_bytes);
            // Where all are here, as most often, one word says so.
            let words = if chunk.bits == [u64::MAX; WORDS] { &[][..] } else { &chunk.bits[..] };
            out.list(words, |out, word| {
                out.u64(*word);
            });
        });
    }

    fn read_shelves(&mut self, input: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let shelf = |input: &mut Reader<'_>| {
            let (position, first, last) = (input.position()?, input.due()?, input.due()?);
            Ok(Shelf { position, first, last, jobs: input.u32()?, bytes: input.u32()? })
        };
        for shelf in input.list(shelf)? {
            let number = shelf.position.get();
            if !self.shelves.insert(shelf) {
                return Err(SnapshotError::Dangling { what: "place for shelf", number });
            }
        }
        let chunk = |input: &mut Reader<'_>| {
            let (number, body_bytes) = ((input.u32()?, input.u64()?), input.u64()?);
            Ok((number, body_bytes, input.list(Reader::u64)?))
        };
        for (number, body_bytes, words) in input.list(chunk)? {
            let bits = if words.is_empty() { Ok([u64::MAX; WORDS]) } else { words.try_into() };
            let bits = bits.map_err(|_| SnapshotError::Dangling {
                what: "chunk of shelved messages",
                number: number.1,
            })?;
            self.shelves.keys.restore(number, Chunk { bits, body_bytes });
        }
        Ok(())
    }
}

fn read_jobs(state: &mut State, input: &mut Reader<'_>) -> Result<(), SnapshotError> {
    let job = |input: &mut Reader<'_>| Ok((input.due()?, Job { bytes: input.u32()?, name: input.u64()? }));
    let pages = input.list(|input| Ok((input.blob()?, input.list(job)?)))?;
    state.jobs.restore(pages, input.list(|input| Ok((input.due()?, input.again()?)))?)?;
    let scheduled = input
        .list(|input| Ok((input.transaction()?, (read_key(input)?, input.u64()?, input.schedule()?))))?;
    for (id, scheduled) in scheduled {
        let prepared = state.prepared.get_mut(&id);
        let what = "transaction of scheduled message";
        prepared.ok_or(SnapshotError::Dangling { what, number: id.number })?.scheduled.push(scheduled);
    }
    Ok(())
}

pub fn live_pieces(state: &State) -> impl Iterator<Item = MessageRow> {
    let large = state.bodies.durable().filter_map(|(_, message, _)| message.chunks());
    let large = large.chain(state.scheduled_bodies.values());
    large.flat_map(|chunks| chunks.iter()).map(|(chunk, bytes)| MessageRow::of_one(chunk, 0, bytes))
}

/// Counts the messages of packed pages, and finds those that other pages hold too.
fn restore_packed(state: &mut State) {
    state.bodies.restore_packed(packed_pages(state.queues.values()));
    let lanes = state.queues.values_mut().flat_map(|queue| queue.lanes.iter_mut());
    for page in lanes.flat_map(|(_, lane)| lane.packed_pages_mut()).filter(|page| page.is_shared()) {
        page.set_shared(state.bodies.has_packed_counts(page));
    }
}

/// The counts of its queues go on.
fn read_counts(state: &mut State, input: &mut Reader<'_>) -> Result<(), SnapshotError> {
    for _ in 0..input.u32()? {
        let id = QueueId(input.u64()?);
        let queue = state.queues.get_mut(&id);
        let queue = queue.ok_or(SnapshotError::Dangling { what: "queue of counts", number: id.0 })?;
        queue.counts = Counts::of_snapshot(QueueCounts {
            enqueued: input.u64()?,
            consumed: input.u64()?,
            expired: input.u64()?,
            dead_lettered: input.u64()?,
            dropped: input.u64()?,
            replaced: input.u64()?,
            moved: input.u64()?,
        });
    }
    Ok(())
}

fn read_entry(
    state: &mut State,
    number: LaneNumber,
    queue: &mut Queue,
    (sequence, failed_deliveries, key): OpenEntry,
) -> Result<(), SnapshotError> {
    let message = state.bodies.claim(key);
    let (place, message, bytes) =
        message.ok_or(SnapshotError::Dangling { what: "message of entry", number: sequence })?;
    queue.load.add(bytes);
    let value = message.last_value().filter(|_| queue.keeps_last).cloned();
    begin_groups(queue, message.group().is_some());
    state.expiries.insert(message.expires_at_ms, queue.id, tag(number.0, sequence));
    let stamp = queue.next_stamp;
    queue.next_stamp += 1;
    let lane = queue.lanes.get_or_make(number);
    if lane.packed(sequence).is_some() || lane.get(sequence).is_some() {
        return Err(RecordError::Page { what: "one of its sequences is taken" }.into());
    }
    let state = EntryState::Ready;
    let entry = Entry { key, place, stamp, failed_deliveries, uncounted_deliveries: 0, state };
    lane.restore(sequence, entry);
    if let Some(value) = value {
        queue.note_value(&value, key, tag(number.0, sequence));
    }
    Ok(())
}

/// A page, which is kept already, takes its place as it is.
fn read_page(
    state: &mut State,
    number: LaneNumber,
    queue: &mut Queue,
    page: Page,
    load: Load,
) -> Result<(), SnapshotError> {
    let page = page.stamped(&mut queue.next_stamp);
    queue.load.add_all(load);
    begin_groups(queue, page.has_groups());
    state.expiries.insert(page.first_expiry_ms(), queue.id, tag(number.0, page.ends().0));
    for packed in queue.keeps_last.then(|| page.entries()).into_iter().flatten() {
        let key = MessageKey::Durable { position: packed.position, ordinal: packed.ordinal };
        if let Some(value) = packed.headers.last_value() {
            queue.note_value(value, key, tag(number.0, packed.sequence));
        }
    }
    match queue.lanes.get_or_make(number).restore_packed(page) {
        true => Ok(()),
        false => Err(RecordError::Page { what: "it has no place in its lane" }.into()),
    }
}

fn read_lane(
    state: &mut State,
    settings: &Settings,
    number: LaneNumber,
    queue: &mut Queue,
    input: &mut Reader<'_>,
) -> Result<(), SnapshotError> {
    let next = input.u64()?;
    let entry = |input: &mut Reader<'_>| Ok(Part::Entry((input.u64()?, input.u32()?, read_key(input)?)));
    let mut parts = input.list(entry)?;
    let page_entries = u64::from(input.u32()?);
    let kept = |input: &mut Reader<'_>| {
        let is_shared = input.boolean("shared")?;
        let page = Page::read(&input.blob()?)?.shared(is_shared);
        // It may be out of memory from here on.
        let load = page.load();
        Ok(Part::Page(state.bodies.keep_page(page, settings), load))
    };
    parts.extend(input.list(kept)?);
    parts.sort_by_key(Part::first);
    let lane = queue.lanes.get_or_make(number);
    let has_pages = parts.iter().any(|part| matches!(part, Part::Page(..)));
    // It keeps the size of the pages that it has, whatever a new lane's would be.
    if has_pages && !lane.restore_page_entries(page_entries) {
        return Err(RecordError::Page { what: "the number of entries to a page" }.into());
    }
    lane.begin_at(parts.first().map_or(next, Part::first));
    for part in parts {
        match part {
            Part::Entry(entry) => read_entry(state, number, queue, entry)?,
            Part::Page(page, load) => read_page(state, number, queue, page, load)?,
        }
    }
    queue.lanes.get_or_make(number).skip_to(next);
    Ok(())
}

/// The durable lanes of a queue. Every page that has all its entries is written as a packed
/// one, open or not: entries in memory cost a snapshot nothing, and a start no more than
/// others.
fn lanes_of<'p>(state: &State, queue: &'p Queue) -> Vec<WrittenLane<'p>> {
    let lanes = queue.lanes.iter().filter(|(number, _)| !number.is_volatile());
    let parts = lanes.map(|(number, lane)| {
        let packed = lane.packed_pages();
        let mut pages: Vec<_> = packed.map(|page| (page.ends().0, page)).collect();
        let (mut entries, mut open) = (Vec::new(), lane.open_pages().collect::<Vec<_>>());
        open.sort_unstable();
        for page in open {
            match lane.is_full(page).then(|| written_page(state, lane, page)).flatten() {
                Some(written) => pages.push((page, written)),
                None => entries.extend(lane.page(page)),
            }
        }
        pages.sort_unstable_by_key(|(first, _)| *first);
        WrittenLane { number, lane, entries, pages }
    });
    parts.collect()
}

fn read_lanes(
    state: &mut State,
    settings: &Settings,
    queue: &mut Queue,
    input: &mut Reader<'_>,
) -> Result<(), SnapshotError> {
    for _ in 0..input.u32()? {
        let value = input.u8()?;
        let number = LaneNumber(value);
        if number.is_volatile() || !number.is_known() || queue.lanes.get(number).is_some() {
            return Err(RecordError::Unknown { field: "lane", value }.into());
        }
        read_lane(state, settings, number, queue, input)?;
    }
    Ok(())
}

fn write_moves(partition: &Partition, out: &mut Writer) {
    out.list(&partition.leaving().collect::<Vec<_>>(), |out, (queue, to)| {
        out.destination(queue).u16(to.0);
    });
    let moved = partition
        .state
        .prepared
        .iter()
        .flat_map(|(id, prepared)| prepared.moved.iter().map(move |of| (*id, of)));
    out.list(&moved.collect::<Vec<_>>(), |out, (id, (key, failed_deliveries))| {
        out.transaction(*id);
        write_key(out, **key);
        out.u32(**failed_deliveries);
    });
}

fn read_moves(partition: &mut Partition, input: &mut Reader<'_>) -> Result<(), SnapshotError> {
    for (queue, to) in input.list(|input| Ok((input.destination()?, PartitionId(input.u16()?))))? {
        apply_leave(partition, queue, to);
    }
    let moved = input.list(|input| Ok((input.transaction()?, read_key(input)?, input.u32()?)))?;
    for (id, key, failed_deliveries) in moved {
        let prepared = partition.state.prepared.get_mut(&id);
        let what = "transaction of moved message";
        let prepared = prepared.ok_or(SnapshotError::Dangling { what, number: id.number })?;
        prepared.moved.insert(key, failed_deliveries);
    }
    Ok(())
}

fn read_queue(partition: &mut Partition, input: &mut Reader<'_>) -> Result<(), SnapshotError> {
    let id = QueueId(input.u64()?);
    let source = input.destination()?;
    let subscription = input.list(Reader::subscription)?.pop();
    let mut queue = new_queue(&partition.state, &partition.leader, &partition.settings, id, source.clone());
    read_lanes(&mut partition.state, &partition.settings, &mut queue, input)?;
    match subscription {
        Some(subscription) => bind_subscription(partition, queue, subscription),
        None => {
            partition.state.addresses.get_or_make(&source).bound.insert(id, None);
            add_queue(&mut partition.state, &mut partition.leader, queue);
        }
    }
    Ok(())
}

fn restore_prepared(
    partition: &mut Partition,
    id: TransactionId,
    prepared: Prepared,
) -> Result<(), SnapshotError> {
    // A queue that was deleted meanwhile, or a subscription that was ended, has taken its
    // entries along.
    for settlement in &prepared.settlements {
        if !partition.state.queues.contains_key(&settlement.queue) {
            continue;
        }
        let entry = entry_at(partition, settlement.queue, settlement.tag);
        let number = settlement.tag.0;
        entry.ok_or(SnapshotError::Dangling { what: "entry of transaction", number })?;
        set_state(partition, settlement.queue, settlement.tag, EntryState::Leaving);
    }
    partition.state.prepared.insert(id, prepared);
    Ok(())
}

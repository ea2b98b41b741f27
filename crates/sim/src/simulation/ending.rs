//! The end of a run: everything comes to rest, in-doubt branches are decided, every queue is
//! emptied, and the balance is checked.

use std::collections::BTreeSet;

use postroad_model::{ConnectionId, ConsumerMode, Destination, DestinationKind, Effect, Event, Ticket};

use crate::assembly::Core;
use crate::client::Client;
use crate::violation::Report;

use super::{Checked, SLOTS, Simulation};

/// Choices after which a run that should come to rest has not.
const REST_STEPS_MAX: u64 = 200_000;

/// So often is looked how far queues and messages on the move are...
const MOVE_LOOKS_MAX: u32 = 100;

/// ... each time so much later that all that has to wait a little has its turn.
const MOVE_LOOK_MS: u64 = 1000;

/// A job goes on so often at most...
const REPEATS_MAX: u32 = 4;

/// ... each time after so long at most.
const PERIOD_MS_MAX: u64 = 40;

/// Steps of redrives, one in each ms, that are waited for.
const REDRIVE_STEPS_MAX: u64 = 150;

/// Both checkpoints that are kept must know that nothing is live, and older ones must be gone.
const CHECKPOINTS_TO_FREE: u32 = 3;

/// The one that is filled, the one before as long as its end is where a start begins, the next one,
/// and two to be used again.
const SEGMENTS_KEPT: u64 = 5;

/// Two checkpoints, and the file of the next one.
const CHECKPOINT_BYTES_KEPT: u64 = 3 * (64 << 10);

impl Simulation {
    /// The disk is well again; everything under way comes to its end.
    pub(super) fn rest(&mut self) -> Checked {
        for _ in 0..REST_STEPS_MAX {
            let mut busy = false;
            for index in 0..self.assembly.cores.len() {
                for source in self.assembly.cores[index].sources() {
                    busy |= self.work(index, source)?;
                }
                // A large transaction, or a backlog, goes on with each tick.
                let partition = &self.assembly.cores[index].partition;
                let is_slow = partition.has_unfinished_records() || partition.has_slices_left();
                self.now_ms += u64::from(is_slow);
                busy |= self.pass_time(index)?;
                while self.assembly.cores[index].has_news() {
                    self.poll(index)?;
                    busy = true;
                }
                self.poll(index)?;
                self.assembly.cores[index].flush(true);
                busy |= self.assembly.push(index, usize::MAX);
            }
            busy |= self.assembly.write();
            busy |= self.assembly.send_out();
            busy |= self.assembly.run_job(0);
            busy |= self.assembly.finish_job();
            busy |= self.assembly.try_again();
            for key in self.lines.keys().copied().collect::<Vec<_>>() {
                while self.take_mail(key)? {
                    busy = true;
                }
            }
            let silent = self.explaining.silent;
            for slot in (0..SLOTS).filter(|slot| Some(*slot) != silent) {
                let mut written = false;
                self.with_client(slot, |client, world| {
                    let events = client.written(world, 1);
                    written = !events.is_empty();
                    events
                })?;
                busy |= written;
            }
            if !busy {
                return Ok(());
            }
        }
        Err(format!("the broker does not come to rest: {:?}", self.assembly.writer.trouble()))
    }

    pub(super) fn finish(mut self) -> Result<Report, String> {
        self.trace(|| "the end begins".to_owned());
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        self.assembly.retry = true;
        self.rest()?;
        if self.scene.revived.is_some() && self.random.one_in(2) {
            self.with_client(0, Client::redrive)?;
        }
        for _ in 0..12 {
            for slot in 0..SLOTS {
                self.with_client(slot, |client, _| client.credit_all(1000))?;
                self.with_client(slot, Client::accept_all)?;
            }
            self.rest()?;
        }
        // A redrive goes on a little later, with each message if memory is short.
        for _ in 0..self.scene.revived.as_ref().map_or(0, |_| REDRIVE_STEPS_MAX) {
            self.now_ms += 1;
            self.rest()?;
        }
        let connected: BTreeSet<ConnectionId> =
            self.clients.iter().flatten().map(|client| client.connection).collect();
        let may_wait = self.assembly.cores.iter().any(|core| core.partition.memory().messages > 0);
        self.oracle.check_quiet(&connected, may_wait)?;
        for slot in 0..SLOTS {
            self.close(slot)?;
        }
        self.rest()?;
        if self.random.one_in(2) {
            self.crash()?;
            self.disk.clear_faults();
            self.disk.set_capacity(None);
            self.assembly.retry = true;
            self.rest()?;
            self.start_again()?;
            self.check_space()?;
        }
        self.decide_branches()?;
        // Everything that is scheduled becomes due.
        self.now_ms += 10_000 + self.wall.spread_ms();
        self.rest()?;
        for _ in 0..REPEATS_MAX {
            if self.assembly.cores.iter().all(|core| core.partition.scheduled() == 0) {
                break;
            }
            self.now_ms += PERIOD_MS_MAX;
            self.rest()?;
        }
        self.drain()?;
        self.check_counts()?;
        let (delivered, confirmed, refused) = self.oracle.checked;
        self.start_again()?;
        self.check_space()?;
        let (doubted, fed, revived) = (self.oracle.doubted(), self.oracle.fed(), self.oracle.revived());
        let (rested, given_up) = self.oracle.rested();
        let repeated = self.oracle.repeated();
        Ok(Report {
            delivered,
            confirmed,
            refused,
            doubted,
            fed,
            revived,
            rested,
            given_up,
            repeated,
            ..self.report
        })
    }

    /// Lets those queues and messages go on that are on the move; `false` if there is none.
    fn let_moves_go_on(&mut self) -> Result<bool, String> {
        let moves = |core: &Core| core.partition.leaving().next().is_some() || core.partition.is_carrying();
        if !self.assembly.cores.iter().any(moves) {
            return Ok(false);
        }
        self.now_ms += MOVE_LOOK_MS;
        self.rest()?;
        Ok(true)
    }

    /// No message is in flight any more, and nothing is in memory: every queue has arrived.
    fn check_moves(&mut self) -> Checked {
        for core in &mut self.assembly.cores {
            let (connection, ticket) = (ConnectionId::internal(core.id), Ticket(0));
            for effect in core.soft(Event::ListMoves { connection, ticket }).effects {
                if let Effect::Moves { moves, .. } = effect {
                    return Err(format!("queues do not arrive: {moves:?}"));
                }
            }
        }
        Ok(())
    }

    /// A client asks for branches in doubt, and decides all of them.
    fn decide_branches(&mut self) -> Checked {
        self.connect(0)?;
        self.with_client(0, Client::recover)?;
        self.rest()?;
        self.with_client(0, Client::decide_all)?;
        self.rest()?;
        self.close(0)?;
        self.rest()?;
        self.oracle.check_decided()
    }

    /// One consumer to each queue takes everything; then nothing may be left anywhere.
    fn drain(&mut self) -> Checked {
        let held = self.assembly.cores.iter().flat_map(|core| core.partition.queues());
        self.report.drained = held.map(|(_, entries)| entries).sum();
        self.connect(0)?;
        let mut queues: Vec<Destination> = self.scene.destinations.clone();
        queues.retain(|queue| queue.kind == DestinationKind::Queue);
        let mut tickets: Vec<Ticket> = Vec::new();
        let before = self.oracle.checked.2;
        // One by one: several could fill a segment as small as these faster than the next one is
        // prepared.
        let refusing = self.scene.refusing().cloned();
        for queue in queues.iter().filter(|queue| refusing.as_ref() != Some(*queue)) {
            self.with_client(0, |client, world| {
                let (ticket, events) = client.probe(world, queue);
                tickets.push(ticket);
                events
            })?;
            self.rest()?;
        }
        if self.oracle.checked.2 != before {
            return Err("a persistent message is refused though the disk is well again".to_owned());
        }
        queues.push(self.scene.dead_letters.clone());
        queues.extend(self.scene.revived.clone());
        for queue in queues {
            self.with_client(0, |client, world| {
                client.attach_to(world, queue, ConsumerMode::Shared, u32::MAX)
            })?;
        }
        for name in self.scene.names.clone() {
            self.with_client(0, |client, world| client.read(world, name, u32::MAX))?;
        }
        self.rest()?;
        let (most, mut looks) = (10 + self.numbers.next() + u64::from(MOVE_LOOKS_MAX), 0);
        for _ in 0..most {
            let mut any = false;
            self.with_client(0, |client, world| {
                let events = client.accept_all(world);
                any = !events.is_empty();
                events
            })?;
            self.rest()?;
            looks += u32::from(!any);
            if !any && (MOVE_LOOKS_MAX < looks || !self.let_moves_go_on()?) {
                break;
            }
        }
        self.check_moves()?;
        self.report.dropped = self.dropped();
        self.oracle.check_all(self.wall.latest(self.now_ms), self.report.dropped)?;
        let connected = self.clients.iter().flatten().map(|client| client.connection).collect();
        self.oracle.check_quiet(&connected, false)?;
        self.close(0)?;
        self.rest()?;
        self.check_empty()
    }

    /// The process ends in peace and starts again: it finds files that could not be removed before.
    fn start_again(&mut self) -> Checked {
        self.check_counts()?;
        self.dropped = self.dropped();
        self.report_work();
        self.disk.restart();
        self.boot()?;
        self.lines.clear();
        self.clients.iter_mut().for_each(|client| *client = None);
        self.oracle.crashed(false);
        self.started()?;
        self.rest()
    }

    /// After a few checkpoints at rest the disk holds no more than twice the live data, beside the
    /// reserve for the next messages (rule 9 of the design): unneeded data has been removed or
    /// compacted. Copies and indexes, which only save time, are not counted.
    fn check_space(&mut self) -> Checked {
        for _ in 0..CHECKPOINTS_TO_FREE {
            self.assembly.writer.ask_for_snapshots();
            self.rest()?;
        }
        let file = |name: String| (self.disk.contents(&name).map_or(0, |bytes| bytes.len() as u64), name);
        let files: Vec<(u64, String)> = self.disk.names().into_iter().map(file).collect();
        let counts = |name: &str| !name.ends_with(".sorted") && !name.ends_with(".index");
        let used: u64 = files.iter().filter(|(_, name)| counts(name)).map(|(bytes, _)| bytes).sum();
        let live: u64 = self.assembly.writer.segments().map(|segment| segment.live_bytes).sum();
        let kept = SEGMENTS_KEPT * self.journal.segment_bytes + CHECKPOINT_BYTES_KEPT;
        if used <= 2 * live + kept {
            return Ok(());
        }
        let segments: Vec<_> = self.assembly.writer.segments().collect();
        Err(format!("{used} bytes of the disk are used, and {live} are live: {files:?}, {segments:?}"))
    }

    fn check_empty(&self) -> Checked {
        for core in &self.assembly.cores {
            if let Some((queue, entries)) = core.partition.queues().find(|(_, entries)| *entries > 0) {
                return Err(format!("{entries} entries are left in {queue} of {:?}", core.id));
            }
            if core.partition.scheduled() > 0 {
                return Err(format!(
                    "{} messages are due and still wait in {:?}",
                    core.partition.scheduled(),
                    core.id
                ));
            }
            let memory = core.partition.memory();
            if memory != postroad_core::Memory::default() {
                return Err(format!("{:?} is empty, but accounts for {memory:?}", core.id));
            }
        }
        Ok(())
    }

    /// Messages that queues have dropped by their limits.
    pub(super) fn dropped(&self) -> u64 {
        let now = self.assembly.cores.iter().map(|core| core.partition.counters().overflowed);
        self.dropped + now.sum::<u64>()
    }

    /// Conservation: each message that came into a queue has left it for one cause, or is there.
    pub(super) fn check_counts(&self) -> Checked {
        for core in &self.assembly.cores {
            for (queue, flow, held) in core.partition.flows() {
                if flow.enqueued != flow.left() + held {
                    return Err(format!("{queue}: {flow:?}, {held} are there"));
                }
            }
            if let Some(queue) = core.partition.miscounted() {
                return Err(format!("{queue} does not know what it holds"));
            }
        }
        for (core, (entries, before)) in self.assembly.cores.iter().zip(&self.started) {
            let now = core.partition.counters();
            let came = now.enqueued - before.enqueued + entries;
            let left = now.consumed
                + now.expired
                + now.dead_lettered
                + now.discarded
                + now.overflowed
                + now.replaced
                + now.moved
                - (before.consumed
                    + before.expired
                    + before.dead_lettered
                    + before.discarded
                    + before.overflowed
                    + before.replaced
                    + before.moved);
            let held: u64 = core.partition.queues().map(|(_, entries)| entries).sum();
            if came != left + held {
                return Err(format!("{:?}: {came} came, {left} left, {held} are there: {now:?}", core.id));
            }
        }
        Ok(())
    }
}

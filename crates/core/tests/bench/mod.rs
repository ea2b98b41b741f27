//! A broker for tests: some partitions whose proposals are durable at once, controlled by lines of
//! text.
//!
//! `send 1 a m` (connection 1 sends the message `m` to the queue `a`; then perhaps `volatile`,
//! `again`, `by-link` (taken in once), `trace=7`,
//! `at=9 every=5 times=2`, or `at=9 cron=5` (at five past each hour), `priority=9`, `by:ann` (the
//! user), `only:s` (for the subscription s alone),
//! `until=5`, `tx=1`, `group=g` or `group=g/-1`: with a number),
//! `attach 1.2 a 5` (consumer 2 of connection 1, credit 5; then `exclusive`, `browse` or
//! `operator`, `priority=3`),
//! `credit 1.2 5`, `drain 1.2`, `detach 1.2 all|none` (then `asking` for an answer), `accept 1.2 m
//! n` (then `tx=1`, or `silently` without an answer), `expire`, `reject`, `release`, `fail`,
//! `retry`, `commit 1 tx`, `rollback 1 tx`, `close 1`, `written 1 9` (bytes left its outbox), `echo
//! 1`, `time 7` (then `wall=9`, if the time of day is another), `space` (the log is well again),
//! `make 1 a`, `unmake 1 a`.
//! Names: `claim 1 x h` (for the holder h; `claim 1 x h ann` for one of the user ann), `disclaim 1
//! x`, `conclude 1 x`; `1 evicted`.
//! Branches: `end 1 1 x` (transaction 1 of connection 1 is its share of branch x), `prepare 1 x`,
//! `decide 1 x commit|once|rollback|overrule-commit|overrule-rollback`, `forget 1 x`, `branches 1`.
//! Links: `link 1 l a keep=5` attaches the link l to a, which is remembered for so long without a
//! holder (then the tags that are in doubt,
//! all without any, or `none`); it says what is known, `known m n!` (n was refused). `send 1 a m
//! link=l` goes by it, with m for a tag;
//! `know 1 l a m` settles, `part 1 l a` detaches it and `part 1 l a closed` ends it.
//! Notices: `listen` says them from then on, `[1.2 gone]`; `introduce 1`, `produce 1 a` and `leave
//! 1 a` make some.
//! Dead letters: `redrive 1 dead to=b origin=a where=k=5 max=1 id=7` sends them back; `2 back, 1
//! left`
//! comes before its answer, and with an id `, to b:2`. `redrive 1 b undo=7`
//! undoes it, `count=7` counts; `by=ann` is the user who asks.
//! Moves: `move 1 a to=1` (to that partition), `moves 1` says `a to 1: 2 moved, 3 left, 1 held`,
//! and with open transactions `, 1 open`,
//! with large messages on their way in `, 1 coming`.
//! Pauses: `pause 1 a`, `resume 1 a`.
//! Documents: `document 1 users ann after=0` (the content `ann` replaces version 0).
//! Large messages: `piece 1 7 a abc` for each piece, then `abandon 1 7` or `send 1 a m upload=7`;
//! they come as `1.2<m+abcdef`.
//! Jobs: `jobs 1 r` (copies of all to the queue r), `cancel 1 m until=9` (the job m, or all; due
//! until then).
//! A name beginning with `~` is a temporary queue, with `#` a topic. An attach may have a selector,
//! `where=k=5`, without
//! blanks; a message `m?k=5&l=6` has these properties, and the id `m`. It may name a subscription,
//! `sub=s`, and share it, `share=durable`
//! or `share=volatile`, or take nothing of its own client, `nolocal`, or take the subscription from
//! `aside=s` reads it as a link that takes it to another broker (`unsubscribe 1 aside:s` ends it
//! then);
//! a reader that says the same, `steals` or `steals:USER`, or as the link to a broker, `peer:ID`;
//! `unsubscribe 1 s` ends one. `make 1 ~t
//! steals` takes a temporary queue. `send 1 a,#t m` is one message for several addresses.
//!
//! A notice, `send 1 #t m keep=K`, is retained as the latest of its key; `drop=K` ends that.
//!
//! A consumer of a pattern of queues, `attach 1.2 a.> 5`, has members `1.2/1`, `1.2/2` in them,
//! which settle.
//!
//! Answers: `ok`, `no: why`, `1.2<m` (delivered), `1.2<m!2` (after two failures), `1.2<m*` (its
//! first of the group), `1.2 drained`, `1.2 detached`, `1/1 done` or `1/1 undone` (the end of a
//! share), `in doubt: x y+ z-` (with those that operators have committed or rolled back).

#![allow(dead_code, reason = "each test uses some of the words")]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use postroad_core::{
    Document, Partition, SLICE_CHANGES, Settings, chunk_in_record, decode_record, documents, encode_record,
    jobs_in_record, places_of_leaving, sent_in_record,
};
use postroad_model::{
    Aim, Ask, Attach, BranchId, BranchStanding, ClientNotice, Command, Compression, ConnectionId,
    ConsumerKey, ConsumerMode, ConsumerNotice, DeadLetter, Decision, Delivered, Delivery, Destination,
    DestinationKind, DocumentChange, DocumentRequest, DocumentVersion, Durability, Effect, Encoding,
    EntryTag, Event, Group, JobsWanted, LinkDelivery, LinkEvent, LinkName, Message, MessageKey, Moving,
    NORMAL_PRIORITY, Notice, Now, OfflineEnd, Origin, Outcome, Page, PartitionId, Peer, Placement, Position,
    Principal, ProducerNotice, Protocol, Publish, RareHeaders, Recurrence, Redrive, RedriveCounts, RedriveId,
    RedriveWay, Refusal, ResumeLink, Retain, Revived, Schedule, Sent, Settle, Share, Subscription, Ticket,
    TraceKey, TraceStep, TracedStep, TransactionKey, UserKey,
};
use postroad_model::{Handle, LeaseAnswer, LeaseEvent, LeaseId, QueueDescription, Reserved, Stale};
use postroad_routing::{Policies, is_wildcard};
use postroad_selector::{Properties, Value};

/// See the head of this file.
pub struct Bench {
    pub partitions: Vec<Partition>,
    /// Where the next record of each goes.
    pub positions: Vec<Position>,
    pub settings: Settings,
    /// Records of each partition, for replays.
    pub log: Vec<Vec<Bytes>>,
    work: VecDeque<(PartitionId, Event)>,
    said: Vec<String>,
    sources: HashMap<ConsumerKey, Destination>,
    /// How and where consumers are attached.
    seats: HashMap<ConsumerKey, (Attach, PartitionId)>,
    tags: HashMap<(ConsumerKey, String), EntryTag>,
    touched: HashMap<TransactionKey, Vec<PartitionId>>,
    /// Proposals of this partition fail.
    pub broken: Option<PartitionId>,
    /// Proposals that are not durable yet, if they are held back.
    late: Option<Vec<(PartitionId, Command)>>,
    /// How safe each proposal was to be.
    pub durabilities: Vec<Durability>,
    /// How the last proposal's bodies were to be written.
    compression: Compression,
    /// Counts sends on links.
    last_ticket: u64,
    /// Notices are said too.
    listens: bool,
    /// How often each record is needed, since the last start.
    kept: BTreeMap<(PartitionId, Position), i64>,
    /// Large messages have arrived with pieces in the log; they are reported with their bodies.
    has_pieces: bool,
    /// Where the pieces of large messages on their way in go, from the first one on.
    uploads: HashMap<(ConnectionId, u64), PartitionId>,
    /// Contents of pieces and bodies that cannot be read.
    pub unread: &'static str,
    /// Of carried pieces, the last read arrives first.
    pub last_read_first: bool,
    /// How often a piece was to be read for another partition.
    pub carried: usize,
    /// How many bodies were asked for at once, each time.
    pub fetched: Vec<usize>,
    /// The retention of the next message.
    retain: Option<Retain>,
    /// The handles of reserved messages, by body, in order.
    pub handles: HashMap<String, Vec<Handle>>,
    /// The leases of renewed entries, in order.
    pub renewed: Vec<LeaseId>,
    /// Reserved messages with large bodies, as long as their reader has them.
    pub read_in_pieces: Vec<Message>,
    /// Bodies that were asked for, if the disk hangs.
    hung: Option<Vec<(PartitionId, MessageKey)>>,
    /// Pages of lists that were answered.
    pub pages: Vec<Page>,
    /// Steps of traced messages: `7:delivered 1.2`.
    pub traced: Vec<String>,
}

/// Ticket of requests that a test makes to follow a queue, without a client's request.
const FOLLOWING: Ticket = Ticket(u64::MAX);

pub fn settings(partitions: u16) -> Settings {
    Settings {
        id: PartitionId(0),
        placement: Placement::over(partitions),
        incarnation: 1,
        resident_bytes_max: 1 << 20,
        messages_bytes_max: 4 << 20,
        page_entries: 4,
        volatile_bytes_max: 1 << 20,
        recent_bytes_max: 1 << 20,
        retained_bytes_max: 1 << 20,
        transaction_bytes_max: 1 << 20,
        open_bytes_max: 1 << 20,
        transaction_ms_max: None,
        slice_changes: SLICE_CHANGES,
        outbox_bytes_max: 1 << 20,
        addressing: Arc::default(),
        audited_producers_max: 100,
        spill: None,
        policies: Arc::new(Policies::with_dead_letters_in("dead")),
    }
}

/// A partition that reads the properties of the bench's messages.
fn partition(settings: &Settings, id: u16) -> Partition {
    equipped(Partition::new(Settings { id: PartitionId(id), ..settings.clone() }))
}

/// A notice in few words.
fn told(notice: &Notice) -> String {
    let gone = |present: &bool| if *present { "" } else { " gone" };
    match notice {
        Notice::Connection { client, present } => format!("[{}{}]", client.name, gone(present)),
        Notice::Consumer { consumer, present } => format!("[{}{}]", consumer.name, gone(present)),
        Notice::Producer { producer, present } => format!("[{}{}]", producer.name, gone(present)),
        Notice::Destination { destination, present } => format!("[{destination}{}]", gone(present)),
        Notice::Unsubscribed { client_id, name, .. } => format!("[{client_id}:{name} ended]"),
        Notice::SlowConsumer { consumer, .. } => format!("[{} slow]", consumer.name),
        Notice::FastProducer { producer, .. } => format!("[{} fast]", producer.name),
        Notice::Bridge { bridge, present } => format!("[bridge {} {present}]", bridge.name),
        Notice::Full { destination } => format!("[{destination} full]"),
        Notice::Message { event, message, .. } => {
            format!("[{event:?} {}]", String::from_utf8_lossy(&message.bytes))
        }
    }
}

/// The partition, with everything that it must know of the bench's messages.
pub fn equipped(mut partition: Partition) -> Partition {
    partition.read_properties_by(|message| Box::new(InBody(&message.bytes)));
    partition.read_origins_by(origin_of);
    partition.name_messages_by(name_of);
    partition.revive_by(revive);
    partition
}

/// `users=ann@1`, for each document.
pub fn documents_of(partition: &Partition) -> String {
    let text = |(name, document): (&Arc<str>, &Document)| {
        let content = String::from_utf8_lossy(&document.content);
        format!("{name}={content}@{}", document.version.0)
    };
    documents(partition).map(text).collect::<Vec<_>>().join(" ")
}

/// `2 back, 1 left, 1 held, to a:2`; parts that are empty are left out.
fn redriven(RedriveCounts { moved, stayed, held, targets }: &RedriveCounts) -> String {
    let held = if *held == 0 { String::new() } else { format!(", {held} held") };
    let targets = targets.iter().map(|(to, messages)| format!(" {}:{messages}", to.name));
    let targets = targets.collect::<String>();
    let to = if targets.is_empty() { "" } else { ", to" };
    format!("{moved} back, {stayed} left{held}{to}{targets}")
}

/// A dead letter says where it was: `m@queue://a`.
pub fn mark_dead(message: &Message, past: &DeadLetter) -> Message {
    let Revived { message, .. } = revive(message);
    let bytes = [&message.bytes[..], b"@", past.origin.to_string().as_bytes()].concat();
    Message { bytes: bytes.into(), ..message }
}

fn revive(message: &Message) -> Revived {
    let text = std::str::from_utf8(&message.bytes).unwrap_or_default();
    let Some((body, (kind, name))) =
        text.split_once('@').and_then(|(body, at)| Some((body, at.split_once("://")?)))
    else {
        return Revived { origin: None, reason: None, message: message.clone() };
    };
    let origin = if kind == "queue" { Destination::queue(name) } else { Destination::topic(name) };
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    Revived { origin: Some(origin), reason: None, message: Message { bytes, ..message.clone() } }
}

/// The properties in a body such as `m?k=5&l=6`.
struct InBody<'a>(&'a [u8]);

thread_local! {
    /// How often selectors have asked for a property.
    pub static QUESTIONS: Cell<u64> = const { Cell::new(0) };
}

impl Properties for InBody<'_> {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        QUESTIONS.set(QUESTIONS.get() + 1);
        let (text, _) =
            std::str::from_utf8(self.0).ok().map(|text| text.split_once('@').unwrap_or((text, "")))?;
        if name == "JMSMessageID" {
            let id = text.split('?').next().unwrap_or_default();
            return Some(Value::String(id.into()));
        }
        let (_, pairs) = text.split_once('?')?;
        let mut pairs = pairs.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(known, _)| *known == name)?;
        Some(value.parse().map_or_else(|_| Value::String(value.into()), Value::Long))
    }
}

impl Bench {
    pub fn new(settings: Settings) -> Bench {
        let count = settings.placement.partitions;
        let mut bench = Bench {
            partitions: (0..count).map(|id| partition(&settings, id)).collect(),
            positions: vec![Position::FIRST; usize::from(count)],
            log: vec![Vec::new(); usize::from(count)],
            settings,
            work: VecDeque::new(),
            said: Vec::new(),
            sources: HashMap::new(),
            seats: HashMap::new(),
            tags: HashMap::new(),
            touched: HashMap::new(),
            broken: None,
            last_ticket: 0,
            late: None,
            durabilities: Vec::new(),
            compression: Compression::None,
            listens: false,
            kept: BTreeMap::new(),
            has_pieces: false,
            uploads: HashMap::new(),
            unread: "",
            last_read_first: false,
            carried: 0,
            fetched: Vec::new(),
            retain: None,
            handles: HashMap::new(),
            renewed: Vec::new(),
            read_in_pieces: Vec::new(),
            hung: None,
            pages: Vec::new(),
            traced: Vec::new(),
        };
        bench.start();
        bench
    }

    /// Replaces the operators' policies.
    pub fn follow(&mut self, policies: Policies) {
        let policies = Arc::new(policies);
        self.settings.policies = policies.clone();
        for id in 0..self.partitions.len() as u16 {
            let mut effects = Vec::new();
            self.partitions[usize::from(id)].follow(policies.clone(), &mut effects);
            self.carry_out(PartitionId(id), effects);
        }
        self.settle_down();
    }

    /// Does the lines one after the other; returns all answers, with a space between.
    pub fn run(&mut self, script: &str) -> String {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.line(line);
            self.settle_down();
        }
        std::mem::take(&mut self.said).join(" ")
    }

    /// Does both lines before anything that they propose is durable.
    pub fn run_late(&mut self, first: &str, second: &str) -> String {
        self.run_all_late(&format!("{first}\n{second}"))
    }

    /// Does all lines before anything that they propose is durable.
    pub fn run_all_late(&mut self, script: &str) -> String {
        self.late = Some(Vec::new());
        script.lines().for_each(|line| self.run_silently(line));
        for (id, command) in self.late.take().unwrap_or_default() {
            self.apply(id, command);
        }
        self.run("")
    }

    /// Nothing that is proposed from now on is durable before it is said to be.
    pub fn late_from_now_on(&mut self) {
        self.late = Some(Vec::new());
    }

    /// The first held-back proposal is durable.
    pub fn first_durable(&mut self) {
        let late = self.late.as_mut().filter(|late| !late.is_empty());
        if let Some((id, command)) = late.map(|late| late.remove(0)) {
            self.apply(id, command);
        }
        self.settle_down();
    }

    /// All held-back proposals are durable; returns the output since the last call.
    pub fn all_durable(&mut self) -> String {
        while self.late.as_ref().is_some_and(|late| !late.is_empty()) {
            self.first_durable();
        }
        self.late = None;
        self.run("")
    }

    /// The log refuses all held-back proposals; returns the output since the last call.
    pub fn all_fail(&mut self) -> String {
        let late = self.late.take().unwrap_or_default();
        let mut partitions: Vec<PartitionId> = late.into_iter().map(|(id, _)| id).collect();
        partitions.dedup();
        for id in partitions {
            self.work.push_back((id, Event::ProposalsFailed { reason: "broken".into() }));
        }
        self.settle_down();
        self.run("")
    }

    fn run_silently(&mut self, line: &str) {
        self.line(line);
        self.settle_down();
    }

    /// The process ends and starts again from its records. State that is not durable is lost.
    pub fn restart(&mut self) {
        self.settings.incarnation += 1;
        self.late = None;
        self.kept.clear();
        let (mut effects, mut followed) = (Vec::new(), Vec::new());
        for (id, log) in (0_u16..).zip(&self.log) {
            let mut partition = partition(&self.settings, id);
            let mut position = Position::FIRST;
            for record in log {
                let command = decode_record(record).expect("a sound script");
                partition.apply(position, command, &mut effects);
                position = position.next();
            }
            self.partitions[usize::from(id)] = partition;
            effects.retain(|effect| matches!(effect, Effect::Retain { .. } | Effect::Release { .. }));
            followed.push((PartitionId(id), std::mem::take(&mut effects)));
        }
        followed.into_iter().for_each(|(id, effects)| self.carry_out(id, effects));
        self.start();
    }

    /// As `restart`, with the first of each partition's records only: their journals may have lost
    /// later ones.
    pub fn restart_with(&mut self, records: &[usize]) {
        for ((log, position), records) in self.log.iter_mut().zip(&mut self.positions).zip(records) {
            log.truncate(*records);
            *position = Position::new(log.len() as u64 + 1).expect("more than 0");
        }
        self.restart();
    }

    /// As `restart`, from a snapshot of each partition.
    pub fn reload(&mut self) {
        self.settings.incarnation += 1;
        for (id, partition) in (0_u16..).zip(&mut self.partitions) {
            let settings = Settings { id: PartitionId(id), ..self.settings.clone() };
            *partition = Partition::restore(settings, &partition.snapshot()).expect("its own snapshot");
            partition.read_properties_by(|message| Box::new(InBody(&message.bytes)));
            partition.revive_by(revive);
        }
        self.start();
    }

    /// Another node leads from now on; returns the output to waiting clients.
    pub fn stop(&mut self) -> String {
        for id in 0..self.partitions.len() {
            let mut effects = Vec::new();
            self.partitions[id].stop(&mut effects).expect("nothing is spilled");
            self.carry_out(PartitionId(id as u16), effects);
        }
        self.settle_down();
        self.run("")
    }

    /// Held-back proposals up to this count get into the log, written by the former leader; the
    /// rest never does.
    pub fn keep_late(&mut self, count: usize) {
        let late = self.late.take().unwrap_or_default();
        for (id, command) in late.into_iter().take(count) {
            self.apply(id, command);
        }
    }

    /// This node leads again.
    pub fn lead(&mut self) -> String {
        self.start();
        self.run("")
    }

    /// A replica that has applied the same records, and has never led.
    pub fn replica(&self, id: u16) -> Partition {
        let mut replica = partition(&self.settings, id);
        let mut position = Position::FIRST;
        for record in &self.log[usize::from(id)] {
            let command = decode_record(record).expect("a sound script");
            replica.apply(position, command, &mut Vec::new());
            position = position.next();
        }
        replica
    }

    fn start(&mut self) {
        self.find_places();
        for id in 0..self.partitions.len() {
            let mut effects = Vec::new();
            self.partitions[id].start(&mut effects);
            self.carry_out(PartitionId(id as u16), effects);
        }
        self.settle_down();
    }

    fn settle_down(&mut self) {
        while let Some((id, event)) = self.work.pop_front() {
            let mut effects = Vec::new();
            self.partitions[usize::from(id.0)].soft(event, &mut effects);
            self.carry_out(id, effects);
        }
    }

    fn carry_out(&mut self, id: PartitionId, effects: Vec<Effect>) {
        // They happened before the records of the same turn are applied, which is at once here.
        self.traced.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Trace(step) => Some(traced(step)),
            _ => None,
        }));
        for effect in effects {
            match effect {
                Effect::OfflineEnded(ended) => {
                    let OfflineEnd { name, messages, offline_ms, .. } = *ended;
                    self.said.push(format!("{name} ended: {messages} after {offline_ms}"));
                }
                Effect::Propose { .. } if self.broken == Some(id) => {
                    self.work.push_back((id, Event::ProposalsFailed { reason: "broken".into() }));
                }
                Effect::Propose { command, durability, compression, .. } => {
                    self.durabilities.push(durability);
                    self.compression = compression;
                    match &mut self.late {
                        Some(late) => late.push((id, command)),
                        None => self.apply(id, command),
                    }
                }
                Effect::Tell { to, peer } => self.work.push_back((to, Event::Peer { from: id, peer })),
                Effect::Reply { result: Ok(()), ticket: FOLLOWING, .. } => {}
                Effect::Reply { result: Ok(()), .. } => self.said.push("ok".into()),
                Effect::Announce(announcement) => {
                    self.said.extend(announcement.answer.map(|_| "ok".to_owned()));
                    self.said.extend(self.listens.then(|| told(&announcement.notice)));
                }
                Effect::Reply { result: Err(refusal), .. } => self.said.push(format!("no: {refusal}")),
                Effect::Ended { transaction: TransactionKey { connection, number }, committed } => {
                    let how = if committed { "done" } else { "undone" };
                    self.said.push(format!("{}/{number} {how}", number_of(connection)));
                }
                Effect::Branches { branches, .. } => {
                    let name = |(branch, standing): &(BranchId, BranchStanding)| {
                        let sign = match standing {
                            BranchStanding::Prepared => "",
                            BranchStanding::Overruled { committed: true } => "+",
                            BranchStanding::Overruled { committed: false } => "-",
                        };
                        format!("{}{sign}", String::from_utf8_lossy(&branch.qualifier))
                    };
                    let names: Vec<String> = branches.iter().map(name).collect();
                    self.said.push(format!("in doubt: {}", names.join(" ")));
                }
                Effect::Unsettled { deliveries, .. } => {
                    let name = |(tag, refusal): &(Bytes, Option<Refusal>)| {
                        let sign = if refusal.is_some() { "!" } else { "" };
                        format!(" {}{sign}", String::from_utf8_lossy(tag))
                    };
                    self.said.push(format!("known{}", deliveries.iter().map(name).collect::<String>()));
                }
                Effect::Redriven { counts, .. } => self.said.push(redriven(&counts)),
                Effect::Moves { moves, .. } => self.said.extend(moves.iter().map(on_the_move)),
                Effect::Lease { answer, .. } => self.say_lease(answer),
                Effect::Place { queue, to } => {
                    self.place(&queue, to);
                    self.work.push_back((id, Event::Placed { queue, of: 1 }));
                }
                Effect::Moved { consumer } => self.follow_queue(consumer),
                Effect::Left { consumer, credit } => {
                    if let Some((_, there)) = self.seats.get(&consumer) {
                        self.work.push_back((*there, Event::Credit { consumer, add: credit }));
                    }
                }
                Effect::Drained { consumer } => self.said.push(format!("{} drained", name(consumer))),
                Effect::Prefetch { consumer, messages } => {
                    self.said.push(format!("{} is sent {messages} ahead", name(consumer)));
                }
                Effect::Evict { connection } => self.said.push(format!("{} evicted", connection.number())),
                Effect::Detached { consumer, .. } => self.said.push(format!("{} detached", name(consumer))),
                Effect::Deliver(delivery) => {
                    let body = String::from_utf8(delivery.message.bytes.to_vec()).expect("a sound script");
                    let failed = match delivery.failed_deliveries {
                        0 => String::new(),
                        count => format!("!{count}"),
                    };
                    let first = if delivery.first_of_group { "*" } else { "" };
                    let large = self.body_of(&delivery);
                    self.said.push(format!("{}<{body}{large}{failed}{first}", name(delivery.consumer)));
                    self.tags.insert((delivery.consumer, body), delivery.tag);
                }
                Effect::Fetch { keys } => self.fetch(id, keys),
                Effect::Answer { page, .. } => self.pages.push(*page),
                Effect::ReadShelf { position } => {
                    let record = &self.log[usize::from(id.0)][position.get() as usize - 1];
                    let jobs = jobs_in_record(record).expect("a record of ours").expect("one with jobs");
                    self.work.push_back((id, Event::ShelfRead { position, jobs: Ok(jobs) }));
                }
                Effect::Retain { position, count, .. } => {
                    let before = self.kept.insert((id, position), 0);
                    assert_ne!(before, Some(0), "{position:?} of {id:?} counts again: it may be gone");
                    self.kept.insert((id, position), before.unwrap_or(0) + i64::from(count));
                }
                Effect::Release { position, .. } => *self.kept.entry((id, position)).or_default() -= 1,
                Effect::CarryChunk { position, to, piece } => {
                    self.carried += 1;
                    let bytes = self.piece(id, position);
                    let back = match bytes == self.unread {
                        true => {
                            let (upload, reason) = (piece.upload, "damaged".into());
                            (id, Event::PieceUnread { upload, reason })
                        }
                        false => (to, Event::Peer { from: id, peer: Peer::Piece { piece, bytes } }),
                    };
                    match self.last_read_first {
                        true => self.work.push_front(back),
                        false => self.work.push_back(back),
                    }
                }
                _ => {}
            }
        }
    }

    /// A page of a list, of all partitions.
    pub fn ask(&mut self, ask: &Ask) -> Page {
        self.begin_ask(ask);
        self.said.clear();
        Page::merge(std::mem::take(&mut self.pages), ask)
    }

    /// A client ends jobs.
    pub fn end_job(&mut self, wanted: JobsWanted) -> String {
        let connection = connection("9");
        self.all(|_| Event::EndJobs { wanted: wanted.clone(), connection, ticket: Ticket(0) });
        self.settle_down();
        let said = self.run("");
        // As the router merges them: yes if one partition says so.
        if said.split(' ').any(|word| word == "ok") { "ok".to_owned() } else { said }
    }

    /// As [`Bench::ask`], where the answer comes later.
    pub fn begin_ask(&mut self, ask: &Ask) {
        let (connection, ticket) = (connection("9"), Ticket(0));
        self.all(|_| Event::Ask { ask: Arc::new(ask.clone()), connection, ticket });
        self.settle_down();
    }

    /// An operator replaces a document; returns the output.
    pub fn document(&mut self, change: DocumentChange) -> String {
        self.replace_document(change);
        self.settle_down();
        self.run("")
    }

    fn replace_document(&mut self, change: DocumentChange) {
        let request = DocumentRequest { change, connection: connection("1"), ticket: Ticket(0) };
        self.work.push_back((PartitionId(0), Event::Document(Box::new(request))));
    }

    /// The documents of the first partition: `users=ann@1`.
    pub fn documents(&self) -> String {
        documents_of(&self.partitions[0])
    }

    /// A front end makes a request about a queue; returns the output: `m#1` was reserved for the
    /// first time.
    pub fn lease(&mut self, event: LeaseEvent) -> String {
        let to = event.queue().expect("a queue").clone();
        self.send(&to, Event::Lease(Box::new(event)));
        self.settle_down();
        self.run("")
    }

    fn say_lease(&mut self, answer: LeaseAnswer) {
        match answer {
            LeaseAnswer::Posted { first, duplicates, .. } => {
                self.said.push(format!("posted {}", first.0));
                let known = duplicates.iter().map(|of| format!("{}={}:{}", of.index, of.tag.0, of.id));
                self.said.extend(known);
            }
            LeaseAnswer::Reserved(messages) if messages.is_empty() => self.said.push("nothing".into()),
            LeaseAnswer::Reserved(messages) => {
                for Reserved { queue, tag, lease, deliveries, message, .. } in messages {
                    let body = String::from_utf8(message.bytes.to_vec()).expect("a sound script");
                    self.said.push(format!("{body}#{deliveries}"));
                    self.read_in_pieces.extend(Some(message).filter(|message| message.chunks().is_some()));
                    self.handles.entry(body).or_default().push(Handle { queue, tag, lease });
                }
            }
            LeaseAnswer::Handled(results) => {
                let one = |result: Result<(), Stale>| {
                    result.map_or_else(|stale| format!("{stale:?}"), |()| "done".into())
                };
                self.said.extend(results.into_iter().map(one));
            }
            LeaseAnswer::Renewed(leases) => {
                self.said.push(format!("{} renewed", leases.len()));
                self.renewed.extend(leases);
            }
            LeaseAnswer::Described(about) => {
                let QueueDescription { length, leased, delayed, held, .. } = *about;
                self.said.push(format!("{length}: {leased} leased, {delayed} delayed, {held} held"));
            }
            LeaseAnswer::Listed(names) => self.said.push(names.join(",")),
            LeaseAnswer::Configured(queues) => {
                self.said.extend(queues.iter().map(|(queue, _)| queue.to_string()));
            }
        }
    }

    fn place(&mut self, queue: &Destination, to: PartitionId) {
        Arc::make_mut(&mut self.settings.addressing).settle(queue, to);
        for partition in &mut self.partitions {
            partition.address_by(self.settings.addressing.clone());
        }
    }

    /// A consumer follows its queue, as a router has it do.
    fn follow_queue(&mut self, consumer: ConsumerKey) {
        let Some((attach, here)) = self.seats.get_mut(&consumer) else { return };
        let there = self.settings.addressing.partition_of(self.settings.placement, &attach.source);
        let attach = Attach { credit: 0, ticket: FOLLOWING, ..attach.clone() };
        let left = std::mem::replace(here, there);
        self.work.push_back((there, Event::Follow(attach)));
        self.work.push_back((left, Event::Leave { consumer }));
    }

    /// After a start: queues are where they are found, or where they were going.
    fn find_places(&mut self) {
        let mut places = Vec::new();
        for (id, partition) in (0_u16..).map(PartitionId).zip(&self.partitions) {
            let queues = partition.held_addresses().filter(|held| held.kind == DestinationKind::Queue);
            places.extend(queues.map(|queue| (queue.clone(), id)));
        }
        let ids = (0_u16..).map(PartitionId);
        let leaving = places_of_leaving(ids.zip(&self.partitions));
        for (queue, id) in places {
            let home = self.settings.addressing.partition_of(self.settings.placement, &queue);
            if home != id && leaving.iter().all(|(left, ..)| *left != queue) {
                self.place(&queue, id);
            }
        }
        for (queue, from, to) in leaving {
            self.place(&queue, to);
            self.partitions[usize::from(to.0)].expect_queue(queue, from);
        }
    }

    /// The body of a large message that came in pieces, as `+abc`.
    fn body_of(&self, delivery: &Delivery) -> String {
        let Some(chunks) = delivery.message.chunks().filter(|_| self.has_pieces) else {
            return String::new();
        };
        let source = &self.sources[&delivery.consumer.whole()];
        let home = self.settings.addressing.partition_of(self.settings.placement, source);
        let pieces = chunks.positions.iter().map(|position| self.piece(home, *position));
        let text = pieces.map(|piece| String::from_utf8(piece.to_vec()).expect("a sound script"));
        format!("+{}", text.collect::<String>())
    }

    /// The piece of a large body in this record.
    fn piece(&self, id: PartitionId, position: Position) -> Bytes {
        let record = &self.log[usize::from(id.0)][position.get() as usize - 1];
        chunk_in_record(record).expect("a sound record").expect("a piece")
    }

    /// The pieces of large bodies that are needed, by partition: `0: abc def`.
    pub fn pieces(&self) -> String {
        let mut found: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        for ((id, position), count) in &self.kept {
            let record = &self.log[usize::from(id.0)][position.get() as usize - 1];
            let piece = chunk_in_record(record).expect("a sound record");
            assert!(0 <= *count, "{position:?} of {id:?} was given back more often than it was taken");
            if let Some(piece) = piece.filter(|_| 0 < *count) {
                found.entry(id.0).or_default().push(String::from_utf8_lossy(&piece).into_owned());
            }
        }
        let told = found.iter().map(|(id, pieces)| format!("{id}: {}", pieces.join(" ")));
        told.collect::<Vec<_>>().join(", ")
    }

    /// No body comes from the disk from now on.
    pub fn disk_hangs(&mut self) {
        self.hung = Some(Vec::new());
    }

    /// The disk answers; returns the output since the last call.
    pub fn disk_answers(&mut self) -> String {
        for (id, key) in self.hung.take().unwrap_or_default() {
            self.fetch(id, vec![key]);
        }
        self.settle_down();
        self.run("")
    }

    fn fetch(&mut self, id: PartitionId, keys: Vec<MessageKey>) {
        if let Some(hung) = &mut self.hung {
            return hung.extend(keys.into_iter().map(|key| (id, key)));
        }
        self.fetched.push(keys.len());
        for key in keys {
            let sent = self.stored(id, key);
            let is_unread = !self.unread.is_empty() && sent.message.bytes == self.unread;
            let event = match sent.schedule {
                _ if is_unread => Event::Fetched { bodies: vec![(key, Err("a bad sector".to_owned()))] },
                Some(_) => Event::Recalled { key, sent: Box::new(sent) },
                None => Event::Fetched { bodies: vec![(key, Ok(sent.message))] },
            };
            self.work.push_back((id, event));
        }
    }

    fn apply(&mut self, id: PartitionId, command: Command) {
        let index = usize::from(id.0);
        self.log[index].push(encode_record(&command, self.compression).concat().into());
        let position = self.positions[index];
        self.positions[index] = position.next();
        let mut effects = Vec::new();
        self.partitions[index].apply(position, command, &mut effects);
        self.carry_out(id, effects);
    }

    fn send(&mut self, to: &Destination, event: Event) -> PartitionId {
        let id = self.settings.addressing.partition_of(self.settings.placement, to);
        self.work.push_back((id, event));
        id
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (plain, options): (Vec<&str>, Vec<&str>) =
            words.iter().skip(1).partition(|word| !word.contains('=') || word.contains('?'));
        let group = options.iter().find_map(|option| option.strip_prefix("group="));
        let option = |name: &str| {
            let found = options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
            found.map(|value| value.parse::<u64>().expect("a sound script"))
        };
        match words[0] {
            // `piece CONNECTION UPLOAD ADDRESS BYTES`: of a body whose message says
            // `upload=UPLOAD`.
            "abandon" => {
                let (connection, upload) = (connection(plain[0]), plain[1].parse().expect("a sound script"));
                let home = self.uploads[&(connection, upload)];
                self.work.push_back((home, Event::Abandon { connection, upload }));
            }
            "piece" => {
                self.has_pieces = true;
                let (connection, to) = (connection(plain[0]), destination(plain[2]));
                let upload = plain[1].parse().expect("a sound script");
                let bytes = Bytes::copy_from_slice(plain[3].as_bytes());
                let targets = [to.clone()].into();
                let home = self.settings.addressing.partition_of(self.settings.placement, &to);
                let home = *self.uploads.entry((connection, upload)).or_insert(home);
                let piece = Event::Chunk { connection, upload, to: targets, bytes, ticket: Ticket(0) };
                self.work.push_back((home, piece));
            }
            "send" => {
                let link = options.iter().find_map(|option| option.strip_prefix("link="));
                let text = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
                let retain = |key: &str, keep| Retain { key: key.into(), keep };
                let kept = text("keep=").map(|key| retain(key, true));
                self.retain = kept.or_else(|| text("drop=").map(|key| retain(key, false)));
                self.publish(&plain, group, link, &option);
            }
            "attach" => {
                let selector = options.iter().find_map(|option| option.strip_prefix("where="));
                let text = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
                let share = match text("share=") {
                    Some("durable") => Share::Durable,
                    Some("volatile") => Share::Volatile,
                    _ => Share::No,
                };
                let named = (text("sub=").map(Arc::from), share);
                let aside = text("aside=").map(Subscription::aside_of);
                let named = (aside.or(named.0), named.1);
                self.attach(&plain, option("priority"), selector.unwrap_or_default(), named);
            }
            "unsubscribe" => {
                let connection = connection(plain[0]);
                let aside = plain[1].strip_prefix("aside:").map(Subscription::aside_of);
                let name = aside.unwrap_or_else(|| plain[1].into());
                self.work
                    .push_back((PartitionId(0), Event::Unsubscribe { name, connection, ticket: Ticket(0) }));
            }
            "accept" => self.verdict(&plain, Outcome::Accepted, option("tx")),
            "expire" => self.verdict(&plain, Outcome::Expired, None),
            "reject" => self.verdict(&plain, Outcome::Rejected, None),
            "release" => self.verdict(&plain, Outcome::Released { failed: false }, None),
            "fail" => self.verdict(&plain, Outcome::Released { failed: true }, None),
            "retry" => self.verdict(&plain, Outcome::Retried, None),
            "commit" | "rollback" => self.end(words[0] == "commit", &plain),
            "end" => self.end_share(&plain),
            "prepare" | "decide" => self.about_branch(&plain),
            "jobs" => {
                let (connection, reply_to) = (connection(plain[0]), destination(plain[1]));
                let wanted = JobsWanted { job: None, due_ms: 0..=u64::MAX, only: None };
                self.all(|_| Event::BrowseJobs {
                    wanted: wanted.clone(),
                    reply_to: reply_to.clone(),
                    connection,
                    ticket: Ticket(0),
                });
            }
            "cancel" => {
                let (connection, job) = (connection(plain[0]), plain.get(1).map(|job| (*job).into()));
                let wanted = JobsWanted { job, due_ms: 0..=option("until").unwrap_or(u64::MAX), only: None };
                self.all(|_| Event::EndJobs { wanted: wanted.clone(), connection, ticket: Ticket(0) });
            }
            "forget" => {
                let (connection, branch, ticket) = (connection(plain[0]), branch(plain[1]), Ticket(0));
                let coordinator = self.settings.placement.coordinator_of(&branch);
                self.work.push_back((coordinator, Event::ForgetBranch { branch, connection, ticket }));
            }
            "redrive" => {
                let text = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
                let wanted = Redrive {
                    from: destination(plain[1]),
                    to: text("to=").map(destination),
                    origin: text("origin=").map(destination),
                    selector: text("where=").unwrap_or_default().into(),
                    messages_max: option("max").unwrap_or(u64::MAX),
                    way: match (option("undo"), option("count")) {
                        (Some(id), _) => RedriveWay::Undo(RedriveId(id)),
                        (None, Some(id)) => RedriveWay::Count(RedriveId(id)),
                        (None, None) => RedriveWay::Back(option("id").map(RedriveId)),
                    },
                    by: text("by=").map(|user| Principal::User(user.into())),
                };
                let (from, connection, ticket) = (wanted.from.clone(), connection(plain[0]), Ticket(0));
                self.send(&from, Event::Redrive { wanted: Box::new(wanted), connection, ticket });
            }
            "move" => {
                let (queue, connection, ticket) = (destination(plain[1]), connection(plain[0]), Ticket(0));
                let to = PartitionId(option("to").expect("a sound script") as u16);
                self.send(&queue.clone(), Event::Move { queue, to, connection, ticket });
            }
            "pause" | "resume" => {
                let (queue, connection, ticket) = (destination(plain[1]), connection(plain[0]), Ticket(0));
                let paused = words[0] == "pause";
                self.send(&queue.clone(), Event::Pause { queue, paused, connection, ticket });
            }
            "document" => {
                let replaces = DocumentVersion(option("after").expect("a sound script"));
                let content = Bytes::copy_from_slice(plain[2].as_bytes());
                let change = DocumentChange { name: plain[1].into(), replaces, content };
                self.replace_document(change);
            }
            "moves" => {
                let connection = connection(plain[0]);
                self.all(|_| Event::ListMoves { connection, ticket: Ticket(0) });
            }
            "branches" => {
                let connection = connection(plain[0]);
                self.all(|_| Event::ListBranches { connection, ticket: Ticket(0) });
            }
            "time" => {
                let ticks_ms = plain[0].parse().expect("a sound script");
                let wall_ms = option("wall").unwrap_or(ticks_ms);
                self.all(|_| Event::Tick { now: Now { ticks_ms, wall_ms } });
            }
            "written" => {
                let bytes = plain[1].parse().expect("a sound script");
                self.all(|_| Event::Written { connection: connection(plain[0]), bytes });
            }
            "echo" => self.all(|_| Event::Echo { connection: connection(plain[0]), ticket: Ticket(0) }),
            "close" => self.all(|_| Event::Closed { connection: connection(plain[0]) }),
            "claim" | "disclaim" | "conclude" => {
                let (connection, name) = (connection(plain[0]), Arc::<str>::from(plain[1]));
                let ticket = Ticket(0);
                let event = match words[0] {
                    "claim" => {
                        let user = plain.get(3).copied().unwrap_or_default().into();
                        Event::Claim { name, user, holder: plain[2].into(), connection, ticket }
                    }
                    "disclaim" => Event::Disclaim { name, connection, ticket },
                    _ => Event::Concluded { name, connection },
                };
                self.work.push_back((PartitionId(0), event));
            }
            "make" | "unmake" => {
                let (destination, connection) = (destination(plain[1]), connection(plain[0]));
                let (ticket, to) = (Ticket(0), destination.clone());
                let steals = stealing(&plain);
                self.send(
                    &to,
                    match words[0] {
                        "make" => Event::Declare { destination, connection, steals, ticket },
                        _ => Event::Delete { destination, connection, ticket },
                    },
                );
            }
            "link" | "know" | "part" => self.link(words[0], &plain, option("keep")),
            "space" => self.all(|_| Event::Space { ample: true }),
            "listen" => self.listens = true,
            "introduce" => {
                let (name, client_id) = (plain[0].into(), plain[0].into());
                let client = Arc::new(ClientNotice { name, client_id, user: None });
                self.work.push_back((
                    PartitionId(0),
                    Event::Introduce { connection: connection(plain[0]), client },
                ));
            }
            "produce" | "leave" => {
                let (connection, to) = (connection(plain[0]), destination(plain[1]));
                let name = format!("{}>{}", plain[0], plain[1]).into();
                let producer = Arc::new(ProducerNotice { name, to: to.clone(), window_bytes: 0 });
                let event = match words[0] {
                    "produce" => Event::AddProducer { connection, producer },
                    _ => Event::RemoveProducer { connection, producer },
                };
                self.send(&to, event);
            }
            "credit" | "drain" | "detach" => self.about(words[0], &plain),
            other => panic!("unknown word {other}"),
        }
    }

    fn all(&mut self, event: impl Fn(PartitionId) -> Event) {
        for id in (0..self.partitions.len() as u16).map(PartitionId) {
            self.work.push_back((id, event(id)));
        }
    }

    fn about(&mut self, word: &str, plain: &[&str]) {
        let consumer = consumer(plain[0]);
        let source = self.sources[&consumer.whole()].clone();
        let event = match word {
            "credit" => Event::Credit { consumer, add: plain[1].parse().expect("a sound script") },
            "drain" => Event::Drain { consumer },
            _ => {
                let delivered = match plain[1] {
                    "all" => Delivered::All,
                    "in-doubt" => Delivered::InDoubt { kept_ms: 1000 },
                    _ => Delivered::None,
                };
                let ticket = (plain.get(2) == Some(&"asking")).then_some(Ticket(0));
                Event::Detach { consumer, delivered, ticket }
            }
        };
        match self.seats.get(&consumer.whole()) {
            Some((_, seat)) => self.work.push_back((*seat, event)),
            None => drop(self.send(&source, event)),
        }
    }

    fn link(&mut self, word: &str, plain: &[&str], kept_ms: Option<u64>) {
        let (connection, to) = (connection(plain[0]), destination(plain[2]));
        let link = link_name(plain[1], &to);
        let tags = || plain[3..].iter().map(|tag| Bytes::copy_from_slice(tag.as_bytes())).collect::<Vec<_>>();
        let event = match word {
            "link" => LinkEvent::Resume(Box::new(ResumeLink {
                link,
                holder: ConsumerKey::new(connection, 0),
                kept_ms: kept_ms.unwrap_or(1000),
                in_doubt: (plain.len() > 3).then(tags),
                ticket: Ticket(0),
            })),
            "know" => LinkEvent::Forget { link, connection, tags: tags() },
            _ => LinkEvent::Leave { link, connection, is_kept: plain.len() == 3 },
        };
        self.send(&to, Event::Link(event));
    }

    fn publish(
        &mut self,
        plain: &[&str],
        group: Option<&str>,
        link: Option<&str>,
        option: &dyn Fn(&str) -> Option<u64>,
    ) {
        let (until, transaction) = (option("until"), option("tx"));
        let connection = connection(plain[0]);
        let mut targets = plain[1].split(',').map(destination);
        let to = targets.next().expect("a sound script");
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: !plain.contains(&"volatile"),
            priority: option("priority").map_or(NORMAL_PRIORITY, |priority| priority as u8),
            expires_at_ms: until.unwrap_or(0),
            rare: Some(rare_headers(plain, group)),
            bytes: Bytes::copy_from_slice(plain[2].as_bytes()),
        };
        let message = message.with_trace(option("trace").and_then(NonZeroU64::new).map(TraceKey));
        let transaction = transaction.map(|number| TransactionKey { connection, number });
        let again = option("every").map(|period_ms| Recurrence {
            period_ms,
            times: option("times").map(|times| times as u32),
            cron: None,
            delay_ms: 0,
        });
        let again = again.or(option("cron").map(|minute| Recurrence {
            period_ms: 0,
            times: None,
            cron: Some(format!("{minute} * * * *").into()),
            delay_ms: 0,
        }));
        let schedule = option("at")
            .map(|due_ms| Box::new(Schedule { job: plain[2].into(), due_ms, again, retry: None }));
        let moved = message.aim().map(|_| 0);
        let sent = Sent { also: targets.collect(), schedule, moved, ..Sent::new(to.clone(), message) };
        let resent = plain.contains(&"again");
        let by_link = plain.contains(&"by-link");
        let once = by_link.then(|| name_of(&sent.message, &sent.to)).flatten().map(Box::new);
        let delivery = link.map(|link| {
            let tag = Bytes::copy_from_slice(plain[2].as_bytes());
            Box::new(LinkDelivery { link: link_name(link, &to), tag })
        });
        self.last_ticket += u64::from(delivery.is_some());
        let ticket = Ticket(if delivery.is_some() { self.last_ticket } else { 0 });
        let upload = option("upload");
        let plain = Publish::plain(connection, ticket, sent);
        let retain = self.retain.take();
        let is_notice = retain.is_some();
        let publish = Publish { transaction, resent, once, delivery, upload, retain, is_notice, ..plain };
        let id = match upload.and_then(|upload| self.uploads.remove(&(connection, upload))) {
            Some(home) => {
                self.work.push_back((home, Event::Publish(publish)));
                home
            }
            None => self.send(&to, Event::Publish(publish)),
        };
        self.touch(transaction, id);
    }

    fn touch(&mut self, transaction: Option<TransactionKey>, id: PartitionId) {
        if let Some(key) = transaction {
            let touched = self.touched.entry(key).or_default();
            if !touched.contains(&id) {
                touched.push(id);
            }
        }
    }

    fn attach(
        &mut self,
        plain: &[&str],
        priority: Option<u64>,
        selector: &str,
        (subscription, share): (Option<Arc<str>>, Share),
    ) {
        let (consumer, source) = (consumer(plain[0]), destination(plain[1]));
        let mode = match plain.get(3) {
            Some(&"exclusive") => ConsumerMode::Exclusive,
            Some(&"browse") => ConsumerMode::Browse,
            Some(&"operator") => ConsumerMode::Operator,
            _ => ConsumerMode::Shared,
        };
        self.sources.insert(consumer, source.clone());
        let attach = Attach {
            consumer,
            source: source.clone(),
            mode,
            credit: plain[2].parse().expect("a sound script"),
            credit_by_default: plain.contains(&"by-default"),
            priority: priority.unwrap_or(0) as i8,
            no_local: plain.contains(&"nolocal"),
            share,
            steals: stealing(plain),
            at: is_wildcard(&source.name)
                .then(|| self.settings.addressing.partition_of(self.settings.placement, &source)),
            retroactive: plain.contains(&"retroactive"),
            notice: Some(Arc::new(ConsumerNotice {
                network: None,
                name: plain[0].into(),
                source: source.clone(),
                mode,
                prefetch: 0,
                priority: 0,
                no_local: false,
                retroactive: false,
                selector: selector.into(),
                subscription: None,
                durable: None,
                since_ms: 0,
                client_id: "".into(),
            })),
            ticket: Ticket(0),
            selector: match subscription.as_deref().and_then(Subscription::without_aside) {
                None => selector.into(),
                Some(name) => {
                    let (name, topic, selector) = (name.into(), source.clone(), selector.into());
                    Subscription { name, topic, selector, skips: None, shared: false }
                        .set_aside(9000)
                        .selector
                }
            },
            subscription,
            client: Some(plain[0].split('.').next().unwrap_or_default().into()),
        };
        let seat = self.send(&source, Event::Attach(attach.clone()));
        self.seats.insert(consumer, (attach, seat));
    }

    fn verdict(&mut self, plain: &[&str], outcome: Outcome, transaction: Option<u64>) {
        let consumer = consumer(plain[0]);
        let is_silent = plain.last() == Some(&"silently");
        let named = &plain[1..plain.len() - usize::from(is_silent)];
        let tags = named.iter().map(|body| self.tags[&(consumer, body.to_string())]).collect();
        let connection = consumer.connection;
        let transaction = transaction.map(|number| TransactionKey { connection, number });
        let ticket = (!is_silent).then_some(Ticket(0));
        let source = self.sources[&consumer.whole()].clone();
        let settle = Settle { consumer, tags, outcome, transaction, reason: None, ticket };
        let id = match self.seats.get(&consumer.whole()) {
            Some((_, seat)) => {
                self.work.push_back((*seat, Event::Settle(settle)));
                *seat
            }
            None => self.send(&source, Event::Settle(settle)),
        };
        self.touch(transaction, id);
    }

    fn end(&mut self, commit: bool, plain: &[&str]) {
        let transaction = TransactionKey {
            connection: connection(plain[0]),
            number: plain[1].parse().expect("a sound script"),
        };
        let participants = self.touched.remove(&transaction).unwrap_or_default();
        if commit {
            let event = Event::Commit { transaction, participants: participants.clone(), ticket: Ticket(0) };
            for id in participants.iter().filter(|_| participants.len() > 1) {
                self.work.push_back((*id, Event::Seal { transaction }));
            }
            self.work.push_back((participants[0], event));
            return;
        }
        for id in participants {
            self.work.push_back((id, Event::Rollback { transaction, ticket: Some(Ticket(0)) }));
        }
    }

    /// Who coordinates the branch.
    pub fn coordinator(&self, word: &str) -> PartitionId {
        self.settings.placement.coordinator_of(&branch(word))
    }

    /// A message of the first partition, as its record has it.
    pub fn message(&self, key: MessageKey) -> Message {
        self.stored(PartitionId(0), key).message
    }

    fn stored(&self, id: PartitionId, key: MessageKey) -> Sent {
        let MessageKey::Durable { position, ordinal } = key else { panic!("only in memory: {key:?}") };
        let record = &self.log[usize::from(id.0)][position.get() as usize - 1];
        sent_in_record(record, ordinal).expect("a sound record").expect("a message")
    }

    fn end_share(&mut self, plain: &[&str]) {
        let transaction = TransactionKey {
            connection: connection(plain[0]),
            number: plain[1].parse().expect("a sound script"),
        };
        let branch = branch(plain[2]);
        let participants = self.touched.remove(&transaction).unwrap_or_default();
        for id in &participants {
            self.work.push_back((*id, Event::Seal { transaction }));
        }
        let coordinator = self.settings.placement.coordinator_of(&branch);
        let event = Event::EndBranch { branch, transaction, participants, ticket: Ticket(0) };
        self.work.push_back((coordinator, event));
    }

    fn about_branch(&mut self, plain: &[&str]) {
        let (connection, branch, ticket) = (connection(plain[0]), branch(plain[1]), Ticket(0));
        let coordinator = self.settings.placement.coordinator_of(&branch);
        let event = match plain.get(2) {
            None => Event::PrepareBranch { branch, connection, ticket },
            Some(word) => {
                let decision = match *word {
                    "commit" => Decision::Commit,
                    "once" => Decision::CommitOnePhase,
                    "overrule-commit" => Decision::Overrule { commit: true },
                    "overrule-rollback" => Decision::Overrule { commit: false },
                    _ => Decision::Rollback,
                };
                Event::DecideBranch { branch, decision, connection, ticket }
            }
        };
        self.work.push_back((coordinator, event));
    }

    /// Entries of each queue, by name.
    pub fn held(&self) -> String {
        let queues = self.partitions.iter().flat_map(Partition::queues);
        let mut held: Vec<String> = queues
            .filter(|(_, count)| *count > 0)
            .map(|(queue, count)| format!("{}:{count}", queue.name))
            .collect();
        held.sort();
        held.join(" ")
    }
}

fn on_the_move(moving: &Moving) -> String {
    let Moving { queue, to, moved, left, held, transactions, uploads, .. } = moving;
    let held = if *held > 0 { format!(", {held} held") } else { String::new() };
    let open = if *transactions > 0 { format!(", {transactions} open") } else { String::new() };
    let coming = if *uploads > 0 { format!(", {uploads} coming") } else { String::new() };
    format!("{} to {}: {moved} moved, {left} left{held}{open}{coming}", queue.name, to.0)
}

fn link_name(name: &str, to: &Destination) -> Arc<LinkName> {
    Arc::new(LinkName { user: "".into(), container: "c".into(), name: name.into(), to: to.clone() })
}

/// `p7.3` is the third message of producer 7.
fn origin_of(message: &Message) -> Option<Origin> {
    let (producer, sequence) =
        std::str::from_utf8(&message.bytes).ok()?.strip_prefix('p')?.split_once('.')?;
    Some(Origin { producer: producer.parse().ok()?, sequence: sequence.parse().ok()?, from_link: false })
}

/// The client is called as its connection. A group is `g`, or `g/-1` with the number in the group.
fn rare_headers(words: &[&str], group: Option<&str>) -> Arc<RareHeaders> {
    let group = group.map(|word| {
        let (id, sequence) = word.split_once('/').unwrap_or((word, "0"));
        Group { id: id.into(), sequence: sequence.parse().expect("a sound script") }
    });
    let user = words.iter().find_map(|word| word.strip_prefix("by:")).and_then(UserKey::of);
    let aim = words.iter().find_map(|word| word.strip_prefix("only:")).map(|name| Aim::Only(name.into()));
    Arc::new(RareHeaders { group, client: Some(words[0].into()), user, aim, ..RareHeaders::default() })
}

/// All brokers call a message as its text does, without its properties.
fn name_of(message: &Message, _: &Destination) -> Option<u128> {
    let text = std::str::from_utf8(&message.bytes).ok()?;
    let id = text.split('?').next()?.bytes();
    Some(id.fold(0, |name, byte| name << 8 | u128::from(byte)))
}

fn traced(TracedStep { trace, step }: &TracedStep) -> String {
    let what = match step {
        TraceStep::Ready { queue, ahead, consumers, .. } => {
            format!("ready {} {ahead}/{consumers}", queue.name)
        }
        TraceStep::Delivered { consumer, is_leased: true, .. } => {
            format!("answers {}", number_of(consumer.connection))
        }
        TraceStep::Delivered { consumer, .. } => format!("delivered {}", name(*consumer)),
        TraceStep::Settled { outcome, .. } => format!("settled {outcome:?}"),
        TraceStep::Ended { cause, .. } => format!("ended {cause:?}"),
        other => format!("{other:?}"),
    };
    format!("{}:{what}", trace.0)
}

/// `steals` or `steals:USER`; or `peer:ID`, as a link to that broker does.
fn stealing(words: &[&str]) -> Option<Arc<str>> {
    let link = words.iter().find_map(|word| word.strip_prefix("peer:")).map(postroad_model::link_to);
    link.or_else(|| words.iter().find_map(|word| word.strip_prefix("steals")).map(Arc::from))
}

pub fn connection(word: &str) -> ConnectionId {
    ConnectionId::new(0, word.parse().expect("a sound script"))
}

fn consumer(word: &str) -> ConsumerKey {
    let (connection_word, number) = word.split_once('.').expect("a sound script");
    let (number, member) = number.split_once('/').unwrap_or((number, "0"));
    let [number, member] = [number, member].map(|word| word.parse().expect("a sound script"));
    ConsumerKey::new(connection(connection_word), number).with_member(member)
}

fn name(key: ConsumerKey) -> String {
    let member = if key.member == 0 { String::new() } else { format!("/{}", key.member) };
    format!("{}.{}{member}", number_of(key.connection), key.number)
}

fn number_of(connection: ConnectionId) -> u64 {
    (0..100).find(|number| ConnectionId::new(0, *number) == connection).expect("a sound script")
}

fn branch(word: &str) -> BranchId {
    BranchId { format: 1, transaction: b"t".as_slice().into(), qualifier: word.as_bytes().into() }
}

fn destination(word: &str) -> Destination {
    match word.chars().next() {
        Some('~') => Destination {
            kind: DestinationKind::Queue,
            temporary: true,
            name: word.trim_start_matches('~').into(),
        },
        Some('#') => Destination::topic(word.trim_start_matches('#')),
        _ => Destination::queue(word),
    }
}

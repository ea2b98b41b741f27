//! Links: senders that a client comes back to after it has lost its connection.
//!
//! It does not know then which of its last messages were taken in. For each delivery of a
//! recoverable link, this keeps by its tag whether it is on its way, was taken in, or was refused:
//! until the client says that it knows, and until some time after the link's last holder has gone.
//! A client that attaches the link again gets this state, once none of its messages is on its way;
//! later sends of its earlier holder are refused from then on. So no message is taken in twice.
//!
//! ```text
//!   publish ─▶ on its way ──▶ taken in, or refused ──the client knows, or too long ago──▶ forgotten
//! ```
//! Known to this run alone: after a start no link is known, and its client sends messages in doubt
//! again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{
    ConnectionId, ConsumerKey, Destination, DetachCause, Effect, LinkDelivery, LinkEvent, LinkName, Publish,
    Refusal, ResumeLink, Ticket,
};
use rustc_hash::FxBuildHasher;

use crate::Partition;
use crate::intake::parked::Parked;
use crate::intake::unparking::unpark_at;
use crate::leader::Leader;
use crate::partition::reply;

/// Links that one partition remembers: one for each thread of some hundred clients.
const LINKS_MAX: usize = 4096;

/// Deliveries of one link that are remembered: twice the number that a client may have without an
/// answer.
const LINK_DELIVERIES_MAX: usize = 2048;

/// Deliveries of all links together: some 40 MiB.
const DELIVERIES_MAX: usize = 1 << 18;

/// See the head of this file.
#[derive(Default)]
pub struct Links {
    by_name: BTreeMap<Arc<LinkName>, Link>,
    on_their_way: HashMap<(ConnectionId, Ticket), LinkDelivery, FxBuildHasher>,
    /// Links without a holder, by the time at which they are forgotten.
    ends: BTreeSet<(u64, Arc<LinkName>)>,
    /// Deliveries of all of them.
    deliveries: usize,
}

#[derive(Default)]
struct Link {
    holder: Option<ConsumerKey>,
    kept_ms: u64,
    ends_ms: Option<u64>,
    deliveries: BTreeMap<Bytes, Known>,
    /// Their tags in the order in which they came.
    tags: BTreeMap<u64, Bytes>,
    last: u64,
    on_their_way: usize,
    /// Who wants to know of them.
    asked: Option<ResumeLink>,
}

struct Known {
    order: u64,
    standing: Standing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    OnItsWay,
    TakenIn,
    Refused(Refusal),
}

impl Link {
    /// One more delivery, in place of an earlier one with the same tag.
    fn insert(&mut self, tag: Bytes) {
        self.remove(&tag);
        self.last += 1;
        self.on_their_way += 1;
        self.tags.insert(self.last, tag.clone());
        self.deliveries.insert(tag, Known { order: self.last, standing: Standing::OnItsWay });
    }

    fn remove(&mut self, tag: &Bytes) {
        let Some(known) = self.deliveries.remove(tag) else { return };
        self.tags.remove(&known.order);
        if known.standing == Standing::OnItsWay {
            self.on_their_way -= 1;
        }
    }

    /// The delivery has its answer, or none will come.
    fn end(&mut self, tag: &Bytes, standing: Option<Standing>) {
        let Some(known) = self.deliveries.get_mut(tag) else { return };
        match standing {
            Some(standing) => {
                if known.standing == Standing::OnItsWay {
                    self.on_their_way -= 1;
                }
                known.standing = standing;
            }
            None => self.remove(tag),
        }
    }

    /// The delivery whose answer was given the longest ago.
    fn remove_oldest(&mut self) {
        let has_ended = |tag: &&Bytes| {
            self.deliveries.get(*tag).is_some_and(|known| known.standing != Standing::OnItsWay)
        };
        if let Some(tag) = self.tags.values().find(has_ended).cloned() {
            self.remove(&tag);
        }
    }
}

impl Links {
    /// Clients that wait to know of their links.
    pub fn waiters(&self) -> Vec<(ConnectionId, Ticket)> {
        let asked = self.by_name.values().filter_map(|link| link.asked.as_ref());
        asked.map(|asked| (asked.connection(), asked.ticket)).collect()
    }

    /// The longest-lost link goes; `false` if each of them has a holder.
    fn forget_lost(&mut self) -> bool {
        let Some((_, name)) = self.ends.first().cloned() else { return false };
        self.forget(&name);
        true
    }

    fn forget(&mut self, name: &Arc<LinkName>) {
        let Some(link) = self.by_name.remove(name) else { return };
        self.deliveries -= link.deliveries.len();
        if let Some(ends_ms) = link.ends_ms {
            self.ends.remove(&(ends_ms, name.clone()));
        }
    }

    /// Changes a link, and updates the counts.
    fn with<T>(&mut self, name: &LinkName, change: impl FnOnce(&mut Link) -> T) -> Option<T> {
        let link = self.by_name.get_mut(name)?;
        let before = link.deliveries.len();
        let result = change(link);
        self.deliveries = self.deliveries - before + link.deliveries.len();
        Some(result)
    }

    /// One more delivery is on its way.
    fn note(&mut self, delivery: &LinkDelivery, from: (ConnectionId, Ticket)) {
        while DELIVERIES_MAX <= self.deliveries && self.forget_lost() {}
        let is_full = DELIVERIES_MAX <= self.deliveries;
        self.with(&delivery.link, |link| {
            if is_full || LINK_DELIVERIES_MAX <= link.deliveries.len() {
                link.remove_oldest();
            }
            link.insert(delivery.tag.clone());
        });
        self.on_their_way.insert(from, delivery.clone());
    }

    /// A message that was on its way has its answer, or none will come; returns the resulting
    /// answers.
    fn end(&mut self, from: (ConnectionId, Ticket), standing: Option<Standing>) -> Option<Answer> {
        let LinkDelivery { link, tag } = self.on_their_way.remove(&from)?;
        self.with(&link, |link| link.end(&tag, standing))?;
        self.answer(&link)
    }

    /// The answer to a waiting request for the state of the link, if none of its messages is on its
    /// way.
    fn answer(&mut self, name: &LinkName) -> Option<Answer> {
        self.with(name, |link| {
            let asked = link.asked.take_if(|_| link.on_their_way == 0)?;
            if let Some(in_doubt) = &asked.in_doubt {
                let in_doubt: BTreeSet<&Bytes> = in_doubt.iter().collect();
                let known = link.deliveries.keys().filter(|tag| !in_doubt.contains(tag));
                for tag in known.cloned().collect::<Vec<_>>() {
                    link.remove(&tag);
                }
            }
            let told = |tag: &Bytes| match &link.deliveries.get(tag)?.standing {
                Standing::OnItsWay => None,
                Standing::TakenIn => Some((tag.clone(), None)),
                Standing::Refused(refusal) => Some((tag.clone(), Some(refusal.clone()))),
            };
            let deliveries = link.tags.values().filter_map(told).collect();
            Some(Answer { connection: asked.connection(), ticket: asked.ticket, deliveries })
        })?
    }

    /// A message comes by a link that is remembered; refused if it has a new holder.
    pub fn note_delivery(&mut self, publish: &Publish) -> Result<(), Refusal> {
        let Some(delivery) = &publish.delivery else { return Ok(()) };
        let holder = self.by_name.get(&delivery.link).and_then(|link| link.holder);
        if holder.is_none_or(|holder| holder.connection != publish.connection) {
            return Err(Refusal::LinkLost { name: delivery.link.name.clone() });
        }
        let from = (publish.connection, publish.ticket);
        if !self.on_their_way.contains_key(&from) {
            self.note(delivery, from);
        }
        Ok(())
    }

    /// Looks for the answers to messages of such links among the effects from `first` on.
    pub fn note_answers(&mut self, first: usize, effects: &mut Vec<Effect>) {
        if self.on_their_way.is_empty() {
            return;
        }
        let mut answers = Vec::new();
        for effect in &effects[first..] {
            let Effect::Reply { connection, ticket, result } = effect else { continue };
            let standing = match result {
                Ok(()) => Standing::TakenIn,
                Err(refusal) => Standing::Refused(refusal.clone()),
            };
            answers.extend(self.end((*connection, *ticket), Some(standing)));
        }
        for answer in answers {
            tell(Some(answer), effects);
        }
    }

    /// The client knows the outcome of these deliveries.
    fn forget_deliveries(&mut self, name: &LinkName, connection: ConnectionId, tags: &[Bytes]) {
        self.with(name, |link| {
            if link.holder.is_some_and(|holder| holder.connection == connection) {
                tags.iter().for_each(|tag| link.remove(tag));
            }
        });
    }
}

/// The state of a link, for its new holder.
struct Answer {
    connection: ConnectionId,
    ticket: Ticket,
    deliveries: Vec<(Bytes, Option<Refusal>)>,
}

/// The requester has lost the link meanwhile.
fn refuse(asked: &ResumeLink, effects: &mut Vec<Effect>) {
    let result = Err(Refusal::LinkLost { name: asked.link.name.clone() });
    effects.push(Effect::Reply { connection: asked.connection(), ticket: asked.ticket, result });
}

/// Sends the state of a link, and then the answer.
fn tell(answer: Option<Answer>, effects: &mut Vec<Effect>) {
    let Some(Answer { connection, ticket, deliveries }) = answer else { return };
    effects.push(Effect::Unsettled { connection, ticket, deliveries });
    effects.push(Effect::Reply { connection, ticket, result: Ok(()) });
}

/// A send that waits for room and meets the condition will never come in: its connection has
/// lost the link. Returns the addresses where such sends waited.
pub fn forget_parked(
    leader: &mut Leader,
    connection: ConnectionId,
    goes: impl Fn(&Parked) -> bool,
    effects: &mut Vec<Effect>,
) -> BTreeSet<Destination> {
    let mut freed = BTreeSet::new();
    for Parked { publish, .. } in leader.intake.parked.take_out_of(connection, goes) {
        freed.insert(publish.sent.to.clone());
        if publish.delivery.is_some() {
            tell(leader.intake.links.end((connection, publish.ticket), None), effects);
        }
    }
    freed
}

/// A connection gives up a link, for good unless it `is_kept`.
pub fn leave_link(
    leader: &mut Leader,
    now_ms: u64,
    name: &Arc<LinkName>,
    connection: ConnectionId,
    is_kept: bool,
    effects: &mut Vec<Effect>,
) {
    if let Some(known) = leader.connections.get_mut(&connection) {
        known.links.remove(name);
    }
    let Some(link) = leader.intake.links.by_name.get_mut(name) else { return };
    if link.holder.is_none_or(|holder| holder.connection != connection) {
        return;
    }
    if let Some(asked) = link.asked.take() {
        refuse(&asked, effects);
    }
    if !is_kept || link.kept_ms == 0 {
        return leader.intake.links.forget(name);
    }
    let ends_ms = now_ms.saturating_add(link.kept_ms);
    (link.holder, link.ends_ms) = (None, Some(ends_ms));
    leader.intake.links.ends.insert((ends_ms, name.clone()));
}

/// Links that were lost for long enough are forgotten.
pub fn forget_links(leader: &mut Leader, now_ms: u64) {
    while let Some((ends_ms, _)) = leader.intake.links.ends.first()
        && *ends_ms <= now_ms
    {
        leader.intake.links.forget_lost();
    }
}

pub fn about_link(partition: &mut Partition, event: LinkEvent, effects: &mut Vec<Effect>) {
    match event {
        LinkEvent::Resume(resume) => resume_link(partition, *resume, effects),
        LinkEvent::Forget { link, connection, tags } => {
            partition.leader.intake.links.forget_deliveries(&link, connection, &tags)
        }
        LinkEvent::Leave { link, connection, is_kept } => {
            leave_link(&mut partition.leader, partition.now_ms, &link, connection, is_kept, effects);
        }
    }
}

/// A client attaches a link that is to be remembered.
fn resume_link(partition: &mut Partition, resume: ResumeLink, effects: &mut Vec<Effect>) {
    let (name, holder) = (resume.link.clone(), resume.holder);
    let is_known = partition.leader.intake.links.by_name.contains_key(&name);
    if !is_known
        && LINKS_MAX <= partition.leader.intake.links.by_name.len()
        && !partition.leader.intake.links.forget_lost()
    {
        let refusal = Refusal::TooManyLinks { max: LINKS_MAX };
        return reply(resume.connection(), resume.ticket, Err(refusal), effects);
    }
    let link = partition.leader.intake.links.by_name.entry(name.clone()).or_default();
    link.kept_ms = resume.kept_ms;
    let before = link.holder.replace(holder).filter(|before| before.connection != holder.connection);
    let asked = link.asked.replace(resume);
    if let Some(ends_ms) = link.ends_ms.take() {
        partition.leader.intake.links.ends.remove(&(ends_ms, name.clone()));
    }
    partition.leader.connections.get_or_make(holder.connection).links.insert(name.clone());
    if let Some(asked) = asked {
        refuse(&asked, effects);
    }
    if let Some(before) = before {
        effects.push(Effect::Detached { consumer: before, cause: DetachCause::Stolen });
        let by_it =
            |parked: &Parked| parked.publish.delivery.as_ref().is_some_and(|delivery| delivery.link == name);
        let freed = forget_parked(&mut partition.leader, before.connection, by_it, effects);
        // Others may have waited after them alone.
        unpark_at(partition, freed, before.connection, effects);
    }
    tell(partition.leader.intake.links.answer(&name), effects);
}

#[cfg(test)]
mod tests {
    use postroad_model::Destination;

    use super::*;

    fn name(number: usize) -> Arc<LinkName> {
        let (container, name, to) = ("c".into(), format!("l{number}").into(), Destination::queue("q"));
        Arc::new(LinkName { user: "u".into(), container, name, to })
    }

    fn delivery(link: usize, number: u64) -> LinkDelivery {
        LinkDelivery { link: name(link), tag: Bytes::copy_from_slice(&number.to_be_bytes()) }
    }

    const SENDER: ConnectionId = ConnectionId::new(0, 1);

    #[test]
    fn a_link_remembers_its_latest_deliveries_and_those_on_their_way() {
        let mut links = Links::default();
        links.by_name.insert(name(0), Link::default());
        for number in 0..2 * LINK_DELIVERIES_MAX as u64 {
            links.note(&delivery(0, number), (SENDER, Ticket(number)));
            // The first has no answer yet.
            if number > 0 {
                links.end((SENDER, Ticket(number)), Some(Standing::TakenIn));
            }
        }
        let link = &links.by_name[&name(0)];
        assert_eq!((link.deliveries.len(), link.tags.len(), link.on_their_way), (2048, 2048, 1));
        assert_eq!((links.deliveries, links.on_their_way.len()), (2048, 1));
        let first = |at: usize| link.tags.values().nth(at).cloned();
        assert_eq!([first(0), first(1)], [Some(delivery(0, 0).tag), Some(delivery(0, 2049).tag)]);
    }

    #[test]
    fn all_together_have_a_bound_at_which_the_longest_lost_goes() {
        let mut links = Links::default();
        let each = LINK_DELIVERIES_MAX as u64;
        let count = DELIVERIES_MAX / LINK_DELIVERIES_MAX;
        for number in 0..=count {
            let ends_ms = (number < 2).then(|| 10 - number as u64);
            links.by_name.insert(name(number), Link { ends_ms, ..Link::default() });
            links.ends.extend(ends_ms.map(|ends_ms| (ends_ms, name(number))));
            for ticket in 0..each {
                let ticket = Ticket(number as u64 * each + ticket);
                links.note(&delivery(number, ticket.0), (SENDER, ticket));
                links.end((SENDER, ticket), Some(Standing::TakenIn));
            }
        }
        let gone: Vec<usize> = (0..=count).filter(|link| !links.by_name.contains_key(&name(*link))).collect();
        assert_eq!((gone, links.deliveries), (vec![1], DELIVERIES_MAX));
        let held = links.by_name.values().map(|link| link.deliveries.len()).sum::<usize>();
        assert_eq!(held, DELIVERIES_MAX);
    }
}

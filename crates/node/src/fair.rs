//! The fair shares of one core: in which class a connection is, and how it waits for its turn.
//!
//! Off while there are no tenants: a connection asks one flag then.
//! Never here: the division itself ([`FairShares`]), sockets, the meaning of events.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use postroad_model::{Command, Destination, PartitionId, Sent};
use rustc_hash::FxHashMap;

use crate::fair_share::{ClassId, FairShares, MESSAGE_COST, STEP_COST};
use crate::tenant_meters::{ShareMeter, TenantMeters};

/// Divides the work of one core among tenants; shared by its connections.
pub struct Fair {
    /// Whether there are tenants.
    is_on: Cell<bool>,
    shares: RefCell<FairShares<Rc<Waiting>>>,
    meters: TenantMeters,
    began: Instant,
    /// By partition, in order: costs of records that are on their way to the journal. One for each
    /// proposal, so bounded as these are.
    in_flight: RefCell<FxHashMap<PartitionId, Proposed>>,
}

/// Costs of records, each with the meter of its tenant.
type Proposed = VecDeque<(Arc<ShareMeter>, u64)>;

/// A connection, as far as it waits for its turn.
struct Waiting {
    /// Cost that it may still cause whatever its class's budget is.
    allowance: Cell<u64>,
    is_queued: Cell<bool>,
    has_ended: Cell<bool>,
    meter: Arc<ShareMeter>,
    task: RefCell<Option<Waker>>,
}

impl Waiting {
    /// Its turn has come; `false` if it has ended.
    fn grant(&self, waited_us: u64) -> bool {
        if self.has_ended.get() {
            return false;
        }
        self.is_queued.set(false);
        self.allowance.set(STEP_COST);
        self.meter.note_wait(waited_us);
        if let Some(task) = self.task.take() {
            task.wake();
        }
        true
    }
}

impl Fair {
    /// For a core, with the tenants of these meters.
    pub fn new(meters: TenantMeters) -> Rc<Fair> {
        Rc::new(Fair {
            is_on: Cell::new(meters.any()),
            shares: RefCell::default(),
            meters,
            began: Instant::now(),
            in_flight: RefCell::default(),
        })
    }

    /// The tenants have changed.
    pub fn follow(&self) {
        self.is_on.set(self.meters.any());
        let mut shares = self.shares.borrow_mut();
        if self.is_on.get() {
            shares.set_shares(|tenant| self.meters.share_of(tenant).0);
        } else {
            shares.release(|waiting, waited_us| waiting.grant(waited_us));
        }
    }

    /// Whether work is divided.
    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A turn of the core: lets connections go on that wait.
    pub fn turn(&self) {
        if self.is_on.get() {
            let now_us = self.now_us();
            let grant = |waiting: Rc<Waiting>, waited_us| waiting.grant(waited_us);
            self.shares.borrow_mut().turn((now_us / 1000, now_us), grant);
        }
    }

    /// Whether a turn would let a connection go on.
    pub fn wants_turn(&self) -> bool {
        self.is_on.get() && self.shares.borrow().wants_turn()
    }

    /// Whether a connection waits.
    pub fn has_waiting(&self) -> bool {
        self.is_on.get() && self.shares.borrow().has_waiting()
    }

    /// The owner of a destination.
    pub fn owner_of(&self, destination: &Destination) -> Option<Arc<str>> {
        self.meters.owner_of(destination)
    }

    /// A connection that does the work of this tenant, or of none.
    pub fn seat(self: &Rc<Fair>, tenant: Option<&Arc<str>>) -> Seat {
        let none = Arc::from("");
        let name = tenant.unwrap_or(&none);
        let (share, meter) = self.meters.share_of(name);
        let class = self.shares.borrow_mut().join(name, share, &meter.in_flight);
        let waiting = Waiting {
            allowance: Cell::new(0),
            is_queued: Cell::new(false),
            has_ended: Cell::new(false),
            meter,
            task: RefCell::new(None),
        };
        Seat { fair: self.clone(), class, waiting: Rc::new(waiting) }
    }

    /// A record of the partition is on its way to the journal. `addresses`: the targets of the
    /// message of which it is a piece.
    pub fn proposed(
        &self,
        id: PartitionId,
        command: &Command,
        addresses: Option<&[Destination]>,
        record: &[Bytes],
    ) {
        if !self.is_on.get() {
            return;
        }
        let sent = match command {
            Command::Enqueue(sent) | Command::Fire { sent, .. } => std::slice::from_ref(sent),
            Command::Transact(changes) | Command::Prepare { changes, .. } => &changes.sends,
            _ => &[],
        };
        let first = sent.iter().flat_map(Sent::targets).chain(addresses.into_iter().flatten()).next();
        let owner = first.and_then(|to| self.meters.owner_of(to));
        let (_, meter) = self.meters.share_of(owner.as_deref().unwrap_or_default());
        let bytes: u64 = record.iter().map(|part| part.len() as u64).sum();
        let cost = if first.is_some() { bytes + MESSAGE_COST } else { bytes };
        meter.in_flight.fetch_add(cost, Ordering::Relaxed);
        self.in_flight.borrow_mut().entry(id).or_default().push_back((meter, cost));
    }

    /// The oldest record of the partition is durable.
    pub fn committed(&self, id: PartitionId) {
        let mut in_flight = self.in_flight.borrow_mut();
        // Mostly there is nothing, as there are no tenants.
        if in_flight.is_empty() {
            return;
        }
        if let Some((meter, cost)) = in_flight.get_mut(&id).and_then(Proposed::pop_front) {
            meter.in_flight.fetch_sub(cost, Ordering::Relaxed);
        }
    }

    /// No record of the partition is on its way any more.
    pub fn failed(&self, id: PartitionId) {
        for (meter, cost) in self.in_flight.borrow_mut().remove(&id).unwrap_or_default() {
            meter.in_flight.fetch_sub(cost, Ordering::Relaxed);
        }
    }
}

impl Drop for Fair {
    fn drop(&mut self) {
        for (meter, cost) in self.in_flight.take().into_values().flatten() {
            meter.in_flight.fetch_sub(cost, Ordering::Relaxed);
        }
    }
}

/// A connection's place in the class of its tenant.
pub struct Seat {
    fair: Rc<Fair>,
    class: ClassId,
    waiting: Rc<Waiting>,
}

impl Seat {
    /// Whether it may go on now.
    pub fn has_turn(&self) -> bool {
        !self.fair.is_on()
            || 0 < self.waiting.allowance.get()
            || self.fair.shares.borrow_mut().admits(self.class)
    }

    /// Ready once it may go on; until then it keeps its place.
    pub fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_turn() {
            return Poll::Ready(());
        }
        if !self.waiting.is_queued.replace(true) {
            let now_us = self.fair.now_us();
            self.fair.shares.borrow_mut().wait(self.class, self.waiting.clone(), now_us);
        }
        match &mut *self.waiting.task.borrow_mut() {
            Some(task) => task.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Waits until it may go on.
    pub async fn comes(&self) {
        poll_fn(|context| self.poll_turn(context)).await;
    }

    /// Its work has this cost.
    pub fn charge(&self, cost: u64) {
        if self.fair.is_on() {
            self.waiting.allowance.set(self.waiting.allowance.get().saturating_sub(cost));
            let now_ms = self.fair.now_us() / 1000;
            self.fair.shares.borrow_mut().charge(self.class, cost, now_ms);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.waiting.has_ended.set(true);
        self.fair.shares.borrow_mut().leave(self.class);
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::{Encoding, Message, Protocol};
    use postroad_routing::{DestinationPattern, Limit, Policies, Tenant};

    use super::*;

    fn meters(names: &[&str]) -> TenantMeters {
        let mut policies = Policies::default();
        for name in names {
            let owns = [DestinationPattern::parse(&format!("queue://{name}.>")).expect("a pattern")];
            policies.tenants.add(Tenant::new(name, Limit::default()), &owns).expect("a tenant");
        }
        let meters = TenantMeters::default();
        meters.follow(&policies);
        meters
    }

    fn in_flight(meters: &TenantMeters, tenant: &str) -> u64 {
        meters.share_of(tenant).1.in_flight.load(Ordering::Relaxed)
    }

    #[test]
    fn without_tenants_nothing_is_divided() {
        let fair = Fair::new(TenantMeters::default());
        let (one, other) = (fair.seat(None), fair.seat(Some(&"a".into())));
        one.charge(u64::MAX);
        assert!(!fair.is_on() && one.has_turn() && other.has_turn() && !fair.wants_turn());
    }

    #[test]
    fn a_connection_beyond_its_part_waits_for_the_turn_and_for_its_tenant_alone() {
        let meters = meters(&["a", "b"]);
        let fair = Fair::new(meters.clone());
        let [one, two] = [(); 2].map(|()| fair.seat(Some(&"a".into())));
        assert!(one.has_turn());
        one.charge(1 << 30);
        assert!(one.has_turn(), "no other tenant is there");
        let other = fair.seat(Some(&"b".into()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(one.poll_turn(&mut context).is_pending() && two.poll_turn(&mut context).is_pending());
        assert!(other.has_turn() && fair.wants_turn());
        drop(two);
        // It has used many turns ahead.
        (0..2000).for_each(|_| fair.turn());
        assert!(one.poll_turn(&mut context).is_ready() && !fair.has_waiting());
        assert_eq!(meters.share_waits()["a"].waits, 1, "one that has ended does not count");
        one.charge(1 << 30);
        assert!(one.poll_turn(&mut context).is_pending());
        drop(other);
        fair.turn();
        assert!(one.poll_turn(&mut context).is_ready(), "its tenant is alone again");
    }

    #[test]
    fn records_count_for_the_owner_of_their_first_target_until_they_are_durable() {
        let meters = meters(&["a", "b"]);
        let fair = Fair::new(meters.clone());
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(b"body"),
        };
        let command = |to| Command::Enqueue(Sent::new(Destination::queue(to), message.clone()));
        let (id, record) = (PartitionId(0), [Bytes::from_static(b"0123456789")]);
        fair.proposed(id, &command("a.x"), None, &record);
        fair.proposed(id, &command("b.x"), None, &record);
        fair.proposed(id, &command("x"), None, &record);
        let each = MESSAGE_COST + 10;
        let all = || [in_flight(&meters, "a"), in_flight(&meters, "b"), in_flight(&meters, "")];
        assert_eq!(all(), [each, each, each]);
        fair.committed(id);
        assert_eq!(all(), [0, each, each]);
        fair.failed(id);
        assert_eq!(all(), [0, 0, 0]);
        fair.proposed(id, &command("a.x"), None, &record);
        drop(fair);
        assert_eq!(all(), [0, 0, 0], "the core has ended");
    }
}

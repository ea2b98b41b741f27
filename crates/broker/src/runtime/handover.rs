//! A planned handover of leadership: clients finish what they have under way before it, so that no
//! transaction of theirs fails and no message that they hold is delivered again.
//!
//! ```text
//!   Serves ──an order──▶ HoldsDeliveries ──▶ TakesNothingNew ──▶ leadership is transferred
//!      ▲                  until no client       until none is in       │
//!      │                  has a delivery        a transaction          │
//!      └───────────────────── no other node took over ◀────────────────┘
//! ```
//! Both steps end after a time. Producers are served during the first one.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postroad_model::Underway;
use postroad_node::Core;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Clients finish the messages in their hands within this time, or get them again.
const HOLDS_WITHIN: Duration = Duration::from_secs(2);

/// Transactions end and requests are answered within this time, or are as at any lost connection.
/// Producers pause for as long.
const ENDS_WITHIN: Duration = Duration::from_millis(100);

/// How often the leader looks whether clients have finished.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How far a handover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// None is under way.
    #[default]
    Serves,
    /// Clients get no further messages, and settle those that they have.
    HoldsDeliveries,
    /// Clients between transactions are not read any more.
    TakesNothingNew,
}

impl Step {
    fn of(number: u8) -> Step {
        match number {
            0 => Step::Serves,
            1 => Step::HoldsDeliveries,
            _ => Step::TakesNothingNew,
        }
    }

    /// Whether the client of a connection has to finish something first.
    fn waits_for(self, underway: Underway) -> bool {
        match self {
            Step::Serves => false,
            Step::HoldsDeliveries => underway.deliveries,
            Step::TakesNothingNew => underway.work,
        }
    }
}

/// The handover of a node, shared by its cores and the order.
#[derive(Debug, Default)]
pub struct Handover {
    step: AtomicU8,
    /// Cores whose connections have all looked at the step.
    looked: AtomicUsize,
    /// Connections whose client has to finish something.
    busy: AtomicUsize,
    is_under_way: AtomicBool,
    /// Of the cores; empty while this node follows.
    wakers: Mutex<Vec<Arc<Notify>>>,
}

impl Handover {
    /// Clients are served by these cores from now on.
    pub fn begin_serving(&self, wakers: &[Arc<Notify>]) {
        self.step.store(Step::Serves as u8, Ordering::Release);
        self.busy.store(0, Ordering::Release);
        *self.wakers.lock().unwrap_or_else(PoisonError::into_inner) = wakers.to_vec();
    }

    /// Takes the right to hand over; `None` if a handover is under way.
    pub fn take_turn(self: &Arc<Self>) -> Option<Turn> {
        let was_under_way = self.is_under_way.swap(true, Ordering::AcqRel);
        (!was_under_way).then(|| Turn(self.clone()))
    }

    fn enter(&self, step: Step) -> usize {
        self.looked.store(0, Ordering::Release);
        self.step.store(step as u8, Ordering::Release);
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.iter().for_each(|waker| waker.notify_one());
        wakers.len()
    }

    async fn settle(&self, step: Step, within: Duration) {
        let cores = self.enter(step);
        let until = Instant::now() + within;
        let all_looked = || cores <= self.looked.load(Ordering::Acquire);
        while Instant::now() < until && !(all_looked() && self.busy.load(Ordering::Acquire) == 0) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The one handover that is under way, until it is dropped.
pub struct Turn(Arc<Handover>);

impl Turn {
    /// Lets clients finish. Leadership is to be transferred next.
    pub async fn prepare(&self) {
        self.0.settle(Step::HoldsDeliveries, HOLDS_WITHIN).await;
        self.0.settle(Step::TakesNothingNew, ENDS_WITHIN).await;
        let busy = self.0.busy.load(Ordering::Acquire);
        if 0 < busy {
            tracing::info!(clients = busy, "handing over while clients are in transactions");
        }
    }

    /// This node leads on: clients are served as before.
    pub fn serve_on(self) {
        self.0.enter(Step::Serves);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_under_way.store(false, Ordering::Release);
    }
}

/// The handover as the connections of one core see it.
#[derive(Debug)]
pub struct CoreHandover {
    shared: Arc<Handover>,
    step: Cell<Step>,
}

impl CoreHandover {
    /// No handover is under way.
    pub fn new(shared: Arc<Handover>) -> Rc<CoreHandover> {
        Rc::new(CoreHandover { shared, step: Cell::default() })
    }

    /// How far it is.
    pub fn step(&self) -> Step {
        self.step.get()
    }

    /// Calls all connections if a step has begun. For the task that turns the core.
    pub fn look(self: &Rc<Self>, core: &Core) {
        let step = Step::of(self.shared.step.load(Ordering::Acquire));
        if self.step.replace(step) == step {
            return;
        }
        core.mailboxes().for_each(|mailbox| mailbox.call());
        let shared = self.shared.clone();
        tokio::task::spawn_local(async move {
            // It runs behind all connections that were called.
            tokio::task::yield_now().await;
            shared.looked.fetch_add(1, Ordering::AcqRel);
        });
    }

    /// Counts a connection whose client has to finish something, or has finished.
    pub fn count(&self, is_counted: &mut bool, underway: impl FnOnce() -> Underway) {
        let step = self.step.get();
        if step == Step::Serves && !*is_counted {
            return;
        }
        let is_busy = step != Step::Serves && step.waits_for(underway());
        match (std::mem::replace(is_counted, is_busy), is_busy) {
            (false, true) => drop(self.shared.busy.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(self.shared.busy.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: Step) -> (Arc<Handover>, Rc<CoreHandover>) {
        let shared = Arc::new(Handover::default());
        let core = CoreHandover::new(shared.clone());
        core.step.set(step);
        (shared, core)
    }

    #[test]
    fn each_step_waits_for_its_own_part_of_what_is_under_way() {
        let (delivery, work) =
            (Underway { deliveries: true, work: false }, Underway { deliveries: false, work: true });
        for (step, underway, want) in [
            (Step::Serves, delivery, 0),
            (Step::Serves, work, 0),
            (Step::HoldsDeliveries, delivery, 1),
            (Step::HoldsDeliveries, work, 0),
            (Step::TakesNothingNew, delivery, 0),
            (Step::TakesNothingNew, work, 1),
        ] {
            let (shared, core) = at(step);
            let mut is_counted = false;
            core.count(&mut is_counted, || underway);
            core.count(&mut is_counted, || underway);
            assert_eq!(shared.busy.load(Ordering::Acquire), want, "{step:?} {underway:?}");
            core.count(&mut is_counted, Underway::default);
            assert_eq!(shared.busy.load(Ordering::Acquire), 0, "{step:?} {underway:?}, finished");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_holds_a_handover_up_for_a_time_at_most() {
        let shared = Arc::new(Handover::default());
        shared.busy.store(1, Ordering::Release);
        let began = Instant::now();
        let turn = shared.take_turn().unwrap();
        assert!(shared.take_turn().is_none(), "one at a time");
        turn.prepare().await;
        let took = began.elapsed();
        let want = HOLDS_WITHIN + ENDS_WITHIN;
        assert!((want..want + 4 * LOOK_EVERY).contains(&took), "{took:?}");
        turn.serve_on();
        assert!(shared.take_turn().is_some());
    }
}

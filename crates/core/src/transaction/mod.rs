//! Transactions: gathered while open, one record if they touch this partition alone, two phases if
//! more.
//!
//! ```text
//!  coordinator                      each participant
//!      │ ── Prepare ──────────────▶ record Prepare: entries are leaving, sends are stored
//!      │ ◀───────────── Prepared ── durable
//!  record Decide   (the transaction is durable from here on)
//!      │ ── Decided ──────────────▶ record Commit: entries are gone, sends are visible
//!      │ ◀───────────────── Done ── durable
//!  reply to the client; record Forget
//! ```
//! No decision in the coordinator's log means abort. After a restart participants ask (`InDoubt`)
//! and coordinators tell again. A branch of a distributed transaction has a record Promise in the
//! place of Decide, and is decided later: see `branch`.

mod branch;
mod closing;
mod coordinator;
mod held;
mod open;
mod participant;
mod senders;
mod slices;
mod timeout;
mod verdicts;

pub use branch::{
    Branches, OpenBranches, Promised, apply_decide, apply_overrule, decide_branch, end_branch, forget_branch,
    prepare_branch, promised, shares_ended, undo_branches_of,
};
pub use closing::{
    Closings, Returning, behind_its_transactions, close_leaving, finish_decided, go_on_closing,
    resume_behind, settle, undo_all,
};
pub use coordinator::{
    Coordinated, Coordination, decision_failed, resolve_transactions, spread_decision, tell,
};
pub use held::count_prepared;
pub use open::{
    OpenTransaction, VolatileChanges, begin_commit, move_at_once, open_transaction, publish_in_transaction,
    put_in_transaction, refuse_publish, return_to_holders, roll_back, settle_in_transaction,
};
pub use participant::{Prepared, apply_abort, apply_commit, apply_prepare, hear, seal};
pub use senders::Senders;
pub use slices::{Rest, Slices, carry_out, go_on, record_ended};
pub use timeout::end_overdue;

//! Simulation room: the second assembly, core and journal on a false disk and a false clock.
//!
//! In: a seed. Out: a [`Report`], or the first [`Violation`] of the promises to clients:
//! acknowledged is never lost, a confirmed acknowledgement is never undone, order per producer and
//! queue is kept, every message is accounted for. The same seed always does the same.
//! Never here: threads, real clocks, real files, sockets, a second opinion borrowed from the core.
//! Start at [`Simulation::run`]; `assembly` joins the pieces as the broker does, `client` acts,
//! `oracle` judges.
//! [`ProcessRun`] runs the room `node` itself: cores, rings, routers and clients of one process.

mod simulation;

mod oracle;

mod client;

mod assembly;

mod kept;
mod keys;
mod mistake;
mod phase;
mod places;
mod policies;
mod process;
mod random;
mod repeating;
mod scene;
mod selectors;
mod spill;
mod trace;
mod upload;
mod violation;
mod wall;

pub use mistake::Mistake;
pub use phase::{Ends, Phase};
pub use process::{LeaseReport, ProcessReport, ProcessRun};
pub use simulation::{Options, Simulation};
pub use violation::{Explained, Pages, Report, Violation};

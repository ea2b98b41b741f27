//! The cost of selectors: the six experiments of Menth, Henjes, Gehrsitz and Zepfel on a message
//! server with filters.
//!
//! A saturated server takes `B = t_rcv + n · t_fltr + r · t_tx` for one message: to receive it, to
//! test it against `n` installed filters, and to send it to `r` subscribers. Each experiment varies
//! one of these; a fit over all of them gives the three constants.
//! Start at [`run`].

mod experiment;
mod figure;
mod fit;
mod load;
mod report;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use experiment::{Experiment, Filter, Point};
pub use fit::{Constant, Fit, fit};
pub use load::Measurement;
pub use report::Report;

use crate::{BrokerUrl, LinkError, ServerTime};

/// How the experiments are run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The broker.
    pub url: BrokerUrl,
    /// Its process, if it is on this machine.
    pub server: Option<ServerTime>,
    /// Which experiments, in this order.
    pub experiments: Vec<Experiment>,
    /// How often each point is measured; rounds follow each other, so that a drift of the machine
    /// hits all points.
    pub rounds: u32,
    /// Load before each window.
    pub warmup: Duration,
    /// The window that is measured.
    pub window: Duration,
    /// The maximum of installed filters.
    pub filters_max: u32,
}

/// Runs all experiments, and passes each measurement to `each`.
///
/// # Errors
/// The broker cannot be reached, refuses something, or goes away.
pub fn run(
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    mut each: impl FnMut(&Measurement),
) -> Result<Report, LinkError> {
    let mut measurements = Vec::new();
    for round in 0..plan.rounds {
        for experiment in &plan.experiments {
            for point in experiment.points(plan.filters_max) {
                let measurement = load::measure(plan, round, point, stop)?;
                each(&measurement);
                measurements.push(measurement);
            }
        }
    }
    Ok(Report { measurements })
}

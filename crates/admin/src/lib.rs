//! Admin room: the HTTP port for operators and their tools.
//!
//! In: connections that somebody else accepted, and a [`Source`] that says how the broker is. Out: metrics in the text format of
//! Prometheus, and whether the broker is well.
//! Never here: listening, the broker's threads, protocols of its clients, what a figure means for a decision.
//! Start at [`serve`]; every metric is in the table of `metrics`, and in docs/features/metrics.md.

mod figures;
mod metrics;
mod patience;

mod exposition;
mod http;

pub use figures::{
    ConnectionFigures, Distribution, Figures, JournalFigures, PartitionFigures, QueueFigures, TenantFigures,
};
pub use http::{Source, serve};
pub use metrics::{METRICS, Metric, QUEUES_MAX};
